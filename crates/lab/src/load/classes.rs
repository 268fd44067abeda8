//! Scheduling classes among the clients of a load.
//!
//! A share of the clients is of the high class. In a closed loop that is all there is to it. In
//! an open loop each class has a stream of arrivals of its own, in proportion to its clients: a
//! Poisson stream whose arrivals are marked high at random is two independent Poisson streams. So
//! a class whose clients are all busy makes nobody else's transactions late.

use tidegate_gate::Class;

use super::pacer::Arrivals;

/// How clients of the high class call themselves when they log in, for a proxy's
/// `high_priority.applications`.
pub const HIGH_APPLICATION: &str = "tidegate load high";

/// How the others do.
const NORMAL_APPLICATION: &str = "tidegate load";

/// Some clients are of the high class, spread evenly among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    pub high_clients: usize,
    /// Whether their calls of the embedded engine are of the high class there; otherwise they are
    /// only counted apart. Before a proxy it is the proxy's configuration that decides.
    pub is_given: bool,
}

/// Which clients are of which class.
#[derive(Clone, Copy, Debug)]
pub(super) struct Classes {
    clients: usize,
    high: usize,
}

impl Classes {
    pub(super) fn new(clients: usize, priority: Option<Priority>) -> Self {
        let high = priority.map_or(0, |priority| priority.high_clients);
        Classes { clients, high: high.min(clients) }
    }

    /// The class of a client; those of the high class are spread evenly.
    pub(super) fn of(self, client: usize) -> Class {
        let until = |client: usize| client.saturating_mul(self.high) / self.clients.max(1);
        if until(client + 1) > until(client) { Class::High } else { Class::Normal }
    }

    /// The name that a client logs in with.
    pub(super) fn application(self, client: usize) -> &'static str {
        match self.of(client) {
            Class::High => HIGH_APPLICATION,
            Class::Normal => NORMAL_APPLICATION,
        }
    }

    pub(super) fn are_two(self) -> bool {
        self.high > 0 && self.high < self.clients
    }

    /// The arrivals of a class, of all there are. A trace cannot be split: it is the normal
    /// class's.
    pub(super) fn share(self, class: Class, arrivals: &Arrivals) -> Arrivals {
        let part = match class {
            Class::High => self.high,
            Class::Normal => self.clients - self.high,
        };
        let part = u32::try_from(part).map_or(f64::from(u32::MAX), f64::from);
        let all = u32::try_from(self.clients.max(1)).map_or(f64::from(u32::MAX), f64::from);
        match arrivals {
            Arrivals::Poisson { rate } => Arrivals::Poisson { rate: rate * part / all },
            Arrivals::Constant { rate } => Arrivals::Constant { rate: rate * part / all },
            Arrivals::Trace(_) if class == Class::High => Arrivals::Trace([].into()),
            other => other.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(clients: usize, high_clients: usize) -> Classes {
        Classes::new(clients, Some(Priority { high_clients, is_given: true }))
    }

    #[test]
    fn the_high_class_is_spread_evenly() {
        let of = |clients, high| {
            let classes = classes(clients, high);
            let letter = |client| if classes.of(client) == Class::High { 'H' } else { 'n' };
            (0..clients).map(letter).collect::<String>()
        };
        assert_eq!(of(10, 1), "nnnnnnnnnH");
        assert_eq!(of(6, 2), "nnHnnH");
        assert_eq!(of(4, 3), "nHHH");
        assert_eq!((of(3, 0), of(3, 9)), ("nnn".to_owned(), "HHH".to_owned()));
        let two = |high| classes(3, high).are_two();
        assert_eq!((two(0), two(1), two(3)), (false, true, false));
        assert!(!Classes::new(3, None).are_two());
        assert_eq!(classes(2, 1).application(1), HIGH_APPLICATION);
    }

    #[test]
    fn arrivals_are_shared_out() {
        let classes = classes(50, 5);
        let rate = |class, arrivals: &Arrivals| match classes.share(class, arrivals) {
            Arrivals::Poisson { rate } | Arrivals::Constant { rate } => rate,
            other => panic!("{other:?}"),
        };
        let poisson = Arrivals::Poisson { rate: 200.0 };
        assert_eq!((rate(Class::High, &poisson), rate(Class::Normal, &poisson)), (20.0, 180.0));
        let constant = Arrivals::Constant { rate: 10.0 };
        assert_eq!((rate(Class::High, &constant), rate(Class::Normal, &constant)), (1.0, 9.0));
    }
}

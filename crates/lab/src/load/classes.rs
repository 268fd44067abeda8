//! The scheduling class of each transaction of a load.
//!
//! A share of the transactions is of the high class. Which ones they are is drawn from the seed:
//! one draw for each transaction, in the order in which they begin (closed loop) or arrive (open
//! loop). So the same seed gives the same sequence of classes, whatever the number of clients, and
//! any client runs transactions of either class.
//!
//! The embedded engine is told the class with each call. A proxy knows it by the connection, from
//! the name of the application at login. So a client on sockets has a connection for each class and
//! takes the one of its transaction's class; the other is idle meanwhile.

use tidegate_gate::Class;
use tidegate_workload::Random;

/// The name of the application at the login of a connection for the high class, for a proxy's
/// `high_priority.applications`.
pub const HIGH_APPLICATION: &str = "tidegate load high";

/// The same for the normal class.
const NORMAL_APPLICATION: &str = "tidegate load";

/// The lowest share of the high class. Below it the next arrival of the class would be sought for
/// long.
pub const HIGH_SHARE_MIN: f64 = 1e-6;

/// The stream of draws for classes; clients have theirs by their numbers.
const STREAM: u64 = u64::MAX - 1;

/// A share of the transactions is of the high class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Priority {
    /// The share, from [`HIGH_SHARE_MIN`] to 1.
    pub high_share: f64,
    /// Whether they go first where arrivals of an open loop wait for a client. What the class
    /// does behind that is for the proxy's or the embedded engine's settings to say.
    pub is_first: bool,
}

/// Draws the class of one transaction after the other.
#[derive(Clone, Debug)]
pub(super) struct ClassDraws {
    high_share: f64,
    draw: Random,
}

impl ClassDraws {
    pub(super) fn new(priority: Option<Priority>, seed: u64) -> Self {
        let high_share = priority.map_or(0.0, |priority| priority.high_share);
        ClassDraws { high_share, draw: Random::new(seed, STREAM) }
    }

    /// Returns the class of the next transaction.
    pub(super) fn next(&mut self) -> Class {
        let unit = f64::from(self.draw.up_to(u32::MAX - 1)) / f64::from(u32::MAX);
        if unit < self.high_share { Class::High } else { Class::Normal }
    }

    /// Returns the classes that are drawn, highest first.
    pub(super) fn classes(&self) -> &'static [Class] {
        if self.high_share <= 0.0 {
            &[Class::Normal]
        } else if self.high_share >= 1.0 {
            &[Class::High]
        } else {
            &Class::ALL
        }
    }
}

/// A connection of a client, for its transactions of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClientConnection {
    pub(super) client: usize,
    pub(super) class: Class,
}

impl ClientConnection {
    /// Returns the connection of a number, where each client has one for each of these classes.
    pub(super) fn of(number: usize, classes: &[Class]) -> Self {
        let class = classes[number % classes.len()];
        ClientConnection { client: number / classes.len(), class }
    }

    /// Returns the number of the connection.
    pub(super) fn number(self, classes: &[Class]) -> usize {
        let place = classes.iter().position(|class| *class == self.class);
        self.client * classes.len() + place.expect("only these classes are drawn")
    }

    /// Returns the name of the application that it logs in with.
    pub(super) fn application(self) -> &'static str {
        match self.class {
            Class::High => HIGH_APPLICATION,
            Class::Normal => NORMAL_APPLICATION,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(high_share: f64, seed: u64) -> ClassDraws {
        ClassDraws::new(Some(Priority { high_share, is_first: true }), seed)
    }

    /// Shares of 100,000 draws, within five standard errors; the same sequence from the same seed.
    #[test]
    fn a_share_of_the_transactions_is_of_the_high_class() {
        const COUNT: u32 = 100_000;
        for seed in 1..=20_u64 {
            let high_share = f64::from(u32::try_from(seed).unwrap()) / 25.0;
            let drawn = |seed| {
                let mut draws = draws(high_share, seed);
                (0..COUNT).map(|_| draws.next()).collect::<Vec<_>>()
            };
            let classes = drawn(seed);
            let high = classes.iter().filter(|class| **class == Class::High).count();
            let share = high as f64 / f64::from(COUNT);
            let error = (high_share * (1.0 - high_share) / f64::from(COUNT)).sqrt();
            assert!((share - high_share).abs() < 5.0 * error, "seed {seed}: {share}");
            assert_eq!(classes, drawn(seed), "seed {seed}");
            assert_ne!(classes, drawn(seed + 1), "seed {seed}");
        }
    }

    #[test]
    fn a_share_of_all_or_none_is_one_class() {
        for (share, class) in [(1.0, Class::High), (0.0, Class::Normal)] {
            let mut draws = draws(share, 3);
            assert!((0..1_000).all(|_| draws.next() == class));
            assert_eq!(draws.classes(), [class]);
        }
        assert_eq!(ClassDraws::new(None, 3).classes(), [Class::Normal]);
        assert_eq!(draws(0.5, 3).classes(), Class::ALL);
    }

    #[test]
    fn a_client_has_a_connection_for_each_class() {
        let high = ClientConnection { client: 3, class: Class::High };
        let normal = ClientConnection { class: Class::Normal, ..high };
        assert_eq!([high, normal].map(|one| one.number(&Class::ALL)), [6, 7]);
        assert_eq!([6, 7].map(|number| ClientConnection::of(number, &Class::ALL)), [high, normal]);
        assert_eq!(ClientConnection::of(3, &[Class::High]), high);
        assert_eq!(normal.number(&[Class::Normal]), 3);
        assert_eq!((high.application(), normal.application()), (HIGH_APPLICATION, "tidegate load"));
    }
}

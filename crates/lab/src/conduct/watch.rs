//! Looks at a database, and changes its settings, while clients are at work.
//!
//! A thread of its own does both at moments of the measured time, so that the clients are not
//! held up: it is told when that time begins by the first report of progress, which says how long
//! ago that was. When the clients are done it looks once more and ends. On a machine in virtual
//! time it is a task of the machine, for whose looks time stands still.

use std::time::{Duration, Instant};

use tidegate_runtime::clock;
use tidegate_runtime::sync::{Receiver, RecvTimeoutError};
use tidegate_subject::embedded::{EmbeddedError, Probe};

use crate::experiment::treatment::{Aging, Exchange, Treatment};
use crate::measured::TreeSnapshot;

/// What is done while the clients are at work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ScheduledActions {
    /// The memory for pages after a time.
    buffer: Option<(Duration, u64)>,
    /// Time between two looks.
    look: Option<Duration>,
}

impl ScheduledActions {
    /// What a treatment asks for in so much measured time.
    pub(super) fn of(treatment: &Treatment, ctl: Duration) -> Self {
        let buffer = match treatment.exchange {
            Some(Exchange::Buffer(buffer)) => Some((ctl / 2, buffer.get())),
            _ => None,
        };
        ScheduledActions { buffer, look: treatment.aging.map(|Aging { look, .. }| look) }
    }

    /// Whether there is nothing to do.
    pub(super) fn are_none(self) -> bool {
        self == ScheduledActions::default()
    }

    /// Does them until `begun` is hung up on; `begun` says when the measured time began. The looks
    /// that were taken, the last at the end.
    pub(super) fn run(
        self,
        probe: &Probe,
        begun: &Receiver<Instant>,
    ) -> Result<Vec<TreeSnapshot>, EmbeddedError> {
        let mut looks = Vec::new();
        if self.look.is_some() {
            looks.push(TreeSnapshot { at_s: 0.0, trees: probe.trees()? });
        }
        let Ok(start) = begun.recv() else { return Ok(looks) };
        let mut buffer = self.buffer;
        let mut next_look = self.look;
        loop {
            let next = [buffer.map(|(at, _)| at), next_look].into_iter().flatten().min();
            if is_over(begun, next.map(|at| start + at)) {
                break;
            }
            let now = clock::now() - start;
            if let Some((_, bytes)) = buffer.filter(|(at, _)| *at <= now) {
                probe.set_buffer_bytes(usize::try_from(bytes).expect("addresses have 64 bits"))?;
                buffer = None;
            }
            if let (Some(at), Some(every)) = (next_look, self.look)
                && at <= now
            {
                looks.push(TreeSnapshot { at_s: now.as_secs_f64(), trees: probe.trees()? });
                next_look = Some(now + every);
            }
        }
        if self.look.is_some() {
            looks.push(TreeSnapshot {
                at_s: (clock::now() - start).as_secs_f64(),
                trees: probe.trees()?,
            });
        }
        Ok(looks)
    }
}

/// Waits until a moment, or for ever; whether the clients are done by then.
fn is_over(begun: &Receiver<Instant>, until: Option<Instant>) -> bool {
    loop {
        let left = until.map(|until| until.saturating_duration_since(clock::now()));
        let heard = match left {
            Some(left) => begun.recv_timeout(left),
            None => begun.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match heard {
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) => return false,
            Err(RecvTimeoutError::Disconnected) => return true,
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_runtime::sync::channel;
    use tidegate_subject::embedded::{Embedded, Options};

    use super::*;
    use crate::experiment::values::Bytes;

    #[test]
    fn what_a_treatment_asks_for_is_done() {
        let ctl = Duration::from_secs(10);
        assert!(ScheduledActions::of(&Treatment::default(), ctl).are_none());
        let buffer = Bytes::try_from("2MB".to_owned()).unwrap();
        let look = Duration::from_millis(1);
        let treatment = Treatment {
            exchange: Some(Exchange::Buffer(buffer)),
            aging: Some(Aging { transactions: 1, look, split: None }),
            ..Treatment::default()
        };
        let actions = ScheduledActions::of(&treatment, ctl);
        assert_eq!(
            actions,
            ScheduledActions { buffer: Some((ctl / 2, 2 << 20)), look: Some(look) }
        );
    }

    /// Looks before, in between and after; none in between when the clients never began.
    #[test]
    fn looks_are_taken_until_the_clients_are_done() {
        let options = Options { buffer_bytes: 1 << 20, ..Options::default() };
        let database = Embedded::start(options).unwrap();
        let probe = database.probe();
        let actions = ScheduledActions {
            buffer: Some((Duration::ZERO, 2 << 20)),
            look: Some(Duration::ZERO),
        };
        let (say, begun) = channel();
        let watched = &probe;
        let looks = std::thread::scope(|scope| {
            let watch = scope.spawn(move || actions.run(watched, &begun).unwrap());
            say.send(Instant::now()).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            drop(say);
            watch.join().unwrap()
        });
        assert!(looks.len() >= 3, "{}", looks.len());
        assert!(looks.windows(2).all(|pair| pair[0].at_s <= pair[1].at_s));
        let (say, begun) = channel();
        drop(say);
        assert_eq!(actions.run(&probe, &begun).unwrap().len(), 1);
    }
}

//! How long transactions take, by the text of their first statement, constants aside.
//!
//! For `order = "shortest-expected"`. Each event loop learns by itself. What is kept is bounded:
//! when the newer half of the table is full, it becomes the older half, and what has not been
//! asked for since the last time is forgotten.

use std::collections::HashMap;
use std::time::Duration;

/// What tells texts apart: a hash of a statement without its constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint(pub(crate) u64);

/// Statements in one half of the table.
const HALF: usize = 2048;

/// The mean follows each transaction by this part of the difference.
const STEP: u32 = 8;

/// How long transactions are expected to take.
#[derive(Debug, Default)]
pub(crate) struct ExpectedTimes {
    newer: HashMap<Fingerprint, Duration>,
    older: HashMap<Fingerprint, Duration>,
}

impl ExpectedTimes {
    /// Returns how long a transaction is expected to take; `None` for one that is not known.
    pub(crate) fn get(&mut self, fingerprint: Fingerprint) -> Option<Duration> {
        if let Some(time) = self.newer.get(&fingerprint) {
            return Some(*time);
        }
        let time = self.older.remove(&fingerprint)?;
        self.keep(fingerprint, time);
        Some(time)
    }

    /// A transaction has taken this long.
    pub(crate) fn learn(&mut self, fingerprint: Fingerprint, took: Duration) {
        let mean = self.get(fingerprint).unwrap_or(took);
        let (up, down) = (took.saturating_sub(mean), mean.saturating_sub(took));
        self.keep(fingerprint, (mean + up / STEP).saturating_sub(down / STEP));
    }

    fn keep(&mut self, fingerprint: Fingerprint, time: Duration) {
        if self.newer.len() >= HALF && !self.newer.contains_key(&fingerprint) {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(fingerprint, time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_follows_and_the_table_is_bounded() {
        let mut times = ExpectedTimes::default();
        let milliseconds = Duration::from_millis;
        assert_eq!(times.get(Fingerprint(0)), None);
        for _ in 0..100 {
            times.learn(Fingerprint(0), milliseconds(80));
        }
        times.learn(Fingerprint(0), milliseconds(160));
        assert_eq!(times.get(Fingerprint(0)), Some(milliseconds(90)));
        for other in 1..10 * HALF as u64 {
            times.learn(Fingerprint(other), milliseconds(1));
            assert!(times.get(Fingerprint(0)).is_some(), "it is asked for all the time");
        }
        assert!(times.newer.len() + times.older.len() <= 2 * HALF);
        assert_eq!(times.get(Fingerprint(1)), None, "forgotten");
    }
}

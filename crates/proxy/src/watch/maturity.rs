//! How far the transactions of a server are with their locks, as samples tell it.
//!
//! A transaction is *mature* once it holds a quarter of the locks it will ask for (Carey,
//! Krishnamurthi and Livny, PODS 1990). The server says how many it holds now. How many it will
//! have asked for at its end is not known, and neither is the end seen: a transaction is in some
//! samples and then in none. So the number at the end is estimated from those that were seen
//! before.
//!
//! # Estimate
//! Of a transaction that was seen k times and held m locks at most, the number at the end is taken
//! to be m·(k + 1)/k. That is right on average where locks come evenly over its time, because the
//! last of k moments chosen at random lies at k/(k + 1) of it. Where a transaction has all of its
//! locks from the beginning it is too high by at most a factor of 2, which does no harm: half of
//! the estimate is still more than a quarter of it. The mean of those that ended fades
//! exponentially. Long transactions are seen more often than short ones, and counted as often as
//! they are seen: that is also how they are inside at any moment.
//!
//! # Where this leaves the study
//! * **No row locks.** PostgreSQL notes the lock of a row in the row. `pg_locks` has the tables and
//!   indexes, the transaction's own number, advisory locks, and what is waited for. So a quarter of
//!   the locks is a quarter of the tables and indexes, and who waits is exact.
//! * **Idle transactions** are left out: they neither run nor wait for a lock.
//! * The lock on a transaction's virtual number is not counted: every transaction has it at once.

use std::collections::HashMap;

use tidegate_control::LockObservation;

/// The share of the newest transaction in the mean.
const SHARE: f64 = 0.02;

/// The part of its locks that a mature transaction holds.
const MATURE: f64 = 0.25;

/// A transaction in a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LockHolder {
    /// What tells it from every other: the process and its virtual number.
    pub(super) transaction: String,
    /// Locks that it holds.
    pub(super) locks: u64,
    /// Whether it waits for one more.
    pub(super) is_waiting: bool,
    /// Whether it waits for its client.
    pub(super) is_idle: bool,
}

/// What was seen of a transaction that has not ended.
#[derive(Clone, Copy, Debug)]
struct LocksSeen {
    locks_max: u64,
    count: u32,
}

impl LocksSeen {
    /// Returns the estimate of its locks at the end, as if it had ended now.
    fn at_end(self) -> f64 {
        debug_assert!(self.count > 0, "it was in a sample");
        self.locks_max as f64 * (1.0 + 1.0 / f64::from(self.count))
    }
}

/// The transactions of a server.
#[derive(Debug, Default)]
pub(super) struct LockMaturity {
    seen: HashMap<String, LocksSeen>,
    /// The mean number of locks at the end; `None` before a transaction has ended.
    locks_mean: Option<f64>,
}

impl LockMaturity {
    /// Takes a sample. Returns how its transactions stand.
    pub(super) fn observe(&mut self, holders: &[LockHolder]) -> LockObservation {
        self.learn(holders);
        // Before the first has ended, every transaction counts as mature.
        let mature = MATURE * self.locks_mean.unwrap_or(0.0);
        let mut observation = LockObservation::default();
        for holder in holders.iter().filter(|holder| !holder.is_idle) {
            let is_mature = holder.locks as f64 >= mature;
            let count = match (is_mature, holder.is_waiting) {
                (true, false) => &mut observation.mature_running,
                (true, true) => &mut observation.mature_blocked,
                (false, false) => &mut observation.young_running,
                (false, true) => &mut observation.young_blocked,
            };
            *count += 1;
            observation.locks_held = observation.locks_held.saturating_add(holder.locks);
            if !holder.is_waiting {
                let running = &mut observation.locks_held_by_running;
                *running = running.saturating_add(holder.locks);
            }
        }
        observation
    }

    fn learn(&mut self, holders: &[LockHolder]) {
        let mut before = std::mem::take(&mut self.seen);
        for holder in holders {
            let last = before.remove(&holder.transaction);
            let last = last.unwrap_or(LocksSeen { locks_max: 0, count: 0 });
            let now =
                LocksSeen { locks_max: last.locks_max.max(holder.locks), count: last.count + 1 };
            self.seen.insert(holder.transaction.clone(), now);
        }
        for ended in before.into_values() {
            let (old, new) = (self.locks_mean, ended.at_end());
            self.locks_mean = Some(old.map_or(new, |old| old + SHARE * (new - old)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_control::SplitMix64;

    fn holder(number: u64, locks: u64, is_waiting: bool) -> LockHolder {
        LockHolder { transaction: number.to_string(), locks, is_waiting, is_idle: false }
    }

    #[test]
    fn a_quarter_of_the_locks_at_the_end_makes_a_transaction_mature() {
        let mut maturity = LockMaturity::default();
        // Seen three times with 12 at most: 16 at the end, so 4 make one mature.
        for locks in [3, 8, 12] {
            maturity.observe(&[holder(0, locks, false)]);
        }
        let inside =
            [holder(1, 3, false), holder(2, 4, false), holder(3, 3, true), holder(4, 9, true)];
        let seen = maturity.observe(&inside);
        assert_eq!((seen.mature_running, seen.mature_blocked), (1, 1));
        assert_eq!((seen.young_running, seen.young_blocked), (1, 1));
        assert_eq!((seen.locks_held, seen.locks_held_by_running), (19, 7));
    }

    #[test]
    fn an_idle_transaction_is_in_no_number_and_has_not_ended() {
        let mut maturity = LockMaturity::default();
        let idle = LockHolder { is_idle: true, ..holder(1, 8, false) };
        assert_eq!(maturity.observe(&[idle]), LockObservation::default());
        assert_eq!(maturity.locks_mean, None);
        let seen = maturity.observe(&[holder(1, 8, false)]);
        assert_eq!((seen.mature_running, seen.locks_held), (1, 8));
        assert_eq!(maturity.locks_mean, None);
        maturity.observe(&[]);
        assert_eq!(maturity.locks_mean, Some(12.0), "seen twice");
    }

    /// Transactions that take a lock every 10 ms, 20 in all, looked at every 30 to 70 ms.
    #[test]
    fn the_estimate_is_right_where_locks_come_evenly() {
        let seed = 7;
        println!("seed {seed}");
        let mut random = SplitMix64::new(seed);
        let mut maturity = LockMaturity::default();
        let (mut now_ms, mut sum, mut samples) = (0_u64, 0.0, 0.0);
        for sample in 0..20_000 {
            now_ms += 30 + random.next_bits() % 41;
            // Eight clients, each with a transaction of 200 ms after the other.
            let inside: Vec<LockHolder> = (0..8)
                .map(|client| {
                    let age = now_ms + client * 25;
                    holder(age / 200 * 8 + client, age % 200 / 10, false)
                })
                .collect();
            maturity.observe(&inside);
            if sample > 1_000 {
                sum += maturity.locks_mean.unwrap();
                samples += 1.0;
            }
        }
        let mean = sum / samples;
        assert!((17.0..=25.0).contains(&mean), "{mean}");
    }
}

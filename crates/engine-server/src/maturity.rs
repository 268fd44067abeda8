//! Counts mature and young transactions, for controllers that observe the lock manager.
//!
//! A transaction is *mature* once it holds a quarter of the locks it will ask for (Carey,
//! Krishnamurthi and Livny, "Load control for locking: the `Half-and-Half` approach", PODS 1990).
//! That number is not known in advance. It is estimated by the mean of the transactions that have
//! ended, with exponential smoothing, so that it follows the workload.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_control::LockObservation;
use tidegate_engine::lock::{LockStatistics, LockerWatch};
use tidegate_runtime::sync::Mutex;

/// The weight of the newest transaction in the mean.
const SHARE: f64 = 0.01;

/// The share of its locks that a mature transaction holds.
const MATURE: f64 = 0.25;

/// The running transactions, by id.
#[derive(Default)]
pub(crate) struct Maturity {
    running: Mutex<HashMap<u64, LockerWatch>>,
    /// The mean number of locks at the end, as the bits of an `f64`.
    locks_mean: AtomicU64,
}

impl Maturity {
    pub(crate) fn began(&self, number: u64, watch: LockerWatch) {
        self.running.lock().insert(number, watch);
    }

    /// Records that a transaction has ended, and its number of locks if it was committed.
    pub(crate) fn ended(&self, number: u64, locks: Option<usize>) {
        self.running.lock().remove(&number);
        if let Some(locks) = locks {
            let old = f64::from_bits(self.locks_mean.load(Ordering::Relaxed));
            let new = if old == 0.0 { locks as f64 } else { old + SHARE * (locks as f64 - old) };
            // Two that end at once may overwrite each other's mean, which does not matter.
            self.locks_mean.store(new.to_bits(), Ordering::Relaxed);
        }
    }

    /// Returns the counts of mature and young transactions, running and blocked.
    pub(crate) fn observe(&self, statistics: &LockStatistics) -> LockObservation {
        let mature = MATURE * f64::from_bits(self.locks_mean.load(Ordering::Relaxed));
        let mut seen = LockObservation {
            locks_held: statistics.held,
            // The two counters are not read at the same moment.
            locks_held_by_running: statistics.held.saturating_sub(statistics.held_by_waiting),
            ..LockObservation::default()
        };
        for watch in self.running.lock().values() {
            let is_mature = watch.locks() as f64 >= mature;
            let count = match (is_mature, watch.is_waiting()) {
                (true, false) => &mut seen.mature_running,
                (true, true) => &mut seen.mature_blocked,
                (false, false) => &mut seen.young_running,
                (false, true) => &mut seen.young_blocked,
            };
            *count += 1;
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use tidegate_engine::lock::multi_granularity::X;
    use tidegate_engine::lock::{LockManager, LockSettings, ModeTable, Priority, Wait};

    use super::*;

    #[test]
    fn a_quarter_of_the_locks_makes_a_transaction_mature() {
        let table: std::sync::Arc<LockManager<u32>> =
            LockManager::new(ModeTable::multi_granularity(), LockSettings::default());
        let maturity = Maturity::default();
        // One that ended had eight locks, so two make one mature.
        maturity.ended(0, Some(8));
        let mut lockers = Vec::new();
        for locks in [0, 1, 2, 5] {
            let mut locker = table.locker(Priority::default());
            for lock in 0..locks {
                locker.lock(&(locks * 10 + lock), X, Wait::Forever).unwrap();
            }
            maturity.began(u64::from(locks), locker.watch());
            lockers.push(locker);
        }
        let seen = maturity.observe(&table.statistics());
        assert_eq!((seen.mature_running, seen.young_running), (2, 2));
        assert_eq!((seen.mature_blocked, seen.young_blocked), (0, 0));
        assert_eq!((seen.locks_held, seen.locks_held_by_running), (8, 8));
        maturity.ended(5, None);
        assert_eq!(maturity.observe(&table.statistics()).mature_running, 1);
    }
}

//! What a lock manager counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::bucket::Load;
use super::locker_state::Outcome;

/// Counts since the start, and the state now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LockStatistics {
    /// Requests that reached the lock table; a locker answers for what it holds already.
    pub requests: u64,
    /// Requests that had to wait.
    pub waits: u64,
    /// Time spent in waits that are over.
    pub wait_time: Duration,
    /// Waits that ended because of a deadlock.
    pub deadlocks: u64,
    /// Waits that took too long.
    pub timeouts: u64,
    /// Waits that ended in favour of a higher priority.
    pub preemptions: u64,
    /// Times that many locks became one.
    pub escalations: u64,
    /// Locks held now.
    pub held: u64,
    /// Requests that stand in a queue now.
    pub waiting: u64,
    /// Threads that sleep now: those of `waiting` that are done looking around, and those that were
    /// granted their lock and are not awake yet.
    pub asleep: u64,
    /// Locks held now by lockers that wait.
    pub held_by_waiting: u64,
}

impl LockStatistics {
    /// The conflict ratio: all locks held over those held by lockers that do not wait; 1 without
    /// waits, infinite when everybody who holds a lock waits. By Moenkeberg and Weikum (Performance
    /// Evaluation of an Adaptive and Robust Load Control Method, VLDB 1992) data contention is
    /// critical from about 1.3 on, whatever the workload.
    #[must_use]
    pub fn conflict_ratio(&self) -> f64 {
        if self.held == 0 {
            return 1.0;
        }
        self.held as f64 / self.held.saturating_sub(self.held_by_waiting) as f64
    }
}

/// What is counted outside of the buckets, by those who wait.
#[derive(Debug, Default)]
pub(super) struct Counters {
    waits: AtomicU64,
    wait_ns: AtomicU64,
    deadlocks: AtomicU64,
    timeouts: AtomicU64,
    preemptions: AtomicU64,
    escalations: AtomicU64,
    asleep: AtomicU64,
    held_by_waiting: AtomicU64,
}

impl Counters {
    /// A locker with so many locks goes to sleep.
    pub(super) fn begin_wait(&self, locks: usize) {
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.asleep.fetch_add(1, Ordering::Relaxed);
        self.held_by_waiting.fetch_add(locks as u64, Ordering::Relaxed);
    }

    /// It is awake and has waited so long.
    pub(super) fn end_wait(&self, locks: usize, waited: Duration, outcome: Outcome) {
        self.asleep.fetch_sub(1, Ordering::Relaxed);
        self.held_by_waiting.fetch_sub(locks as u64, Ordering::Relaxed);
        let waited = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        self.wait_ns.fetch_add(waited, Ordering::Relaxed);
        let reason = match outcome {
            Outcome::Deadlock => &self.deadlocks,
            Outcome::TimedOut => &self.timeouts,
            Outcome::Preempted => &self.preemptions,
            Outcome::Granted | Outcome::Waiting => return,
        };
        reason.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn escalated(&self) {
        self.escalations.fetch_add(1, Ordering::Relaxed);
    }

    /// Together with what the buckets count.
    pub(super) fn with(&self, loads: impl Iterator<Item = Load>) -> LockStatistics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let own = LockStatistics {
            waits: read(&self.waits),
            wait_time: Duration::from_nanos(read(&self.wait_ns)),
            deadlocks: read(&self.deadlocks),
            timeouts: read(&self.timeouts),
            preemptions: read(&self.preemptions),
            escalations: read(&self.escalations),
            asleep: read(&self.asleep),
            held_by_waiting: read(&self.held_by_waiting),
            ..LockStatistics::default()
        };
        loads.fold(own, |sum, load| LockStatistics {
            requests: sum.requests + load.requests,
            held: sum.held + load.held,
            waiting: sum.waiting + load.waiting,
            ..sum
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_conflict_ratio_leaves_out_who_waits() {
        for (held, held_by_waiting, ratio) in
            [(0, 0, 1.0), (10, 0, 1.0), (10, 5, 2.0), (13, 3, 1.3), (4, 4, f64::INFINITY)]
        {
            let seen = LockStatistics { held, held_by_waiting, ..LockStatistics::default() };
            let seen = seen.conflict_ratio();
            let is_same = seen.total_cmp(&ratio).is_eq() || (seen - ratio).abs() < 1e-12;
            assert!(is_same, "{seen} for {held}");
        }
    }
}

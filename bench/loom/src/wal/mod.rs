//! A seat of the log: a thread enters the list of those that wait, the leader signals it.

#[path = "../../../../crates/engine/src/wal/waiters.rs"]
mod waiters;

/// A position in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lsn(pub(crate) u64);

impl Lsn {
    pub(crate) const ZERO: Lsn = Lsn(0);
}

#[cfg(test)]
mod tests {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU64, Ordering};

    use super::Lsn;
    use super::waiters::{Signal, WaitGoal, Waiters};
    use crate::sync::Mutex;

    /// The state of a log, and what is durable, which is written without its mutex.
    struct Log {
        waiters: Mutex<(Lsn, Waiters)>,
        durable: AtomicU64,
    }

    fn is_reached(goal: WaitGoal, durable: Lsn) -> bool {
        matches!(goal, WaitGoal::Durable(lsn) if durable >= lsn)
    }

    fn force(log: &Log, up_to: Lsn) {
        let mut state = log.waiters.lock();
        if state.0 < up_to {
            let slot = state.1.add(WaitGoal::Durable(up_to));
            drop(state);
            assert_eq!(slot.wait(), Signal::Reached);
            assert_eq!(log.durable.load(Ordering::Relaxed), 1, "the sync is seen");
        }
    }

    #[test]
    fn who_is_signalled_sees_what_the_leader_did() {
        loom::model(|| {
            let waiters = Mutex::new((Lsn(0), Waiters::default()));
            let log = Arc::new(Log { waiters, durable: AtomicU64::new(0) });
            let theirs = Arc::clone(&log);
            let leader = loom::thread::spawn(move || {
                // Those that are signalled are taken out of the list first.
                let mut state = theirs.waiters.lock();
                state.0 = Lsn(1);
                let wakeups = state.1.take(|goal| is_reached(goal, Lsn(1)), true);
                drop(state);
                theirs.durable.store(1, Ordering::Relaxed);
                wakeups.send();
            });
            force(&log, Lsn(1));
            leader.join().expect("no assertion failed");
        });
    }
}

//! Deadlocks: found from a copy of the waits, broken only after a second look.
//!
//! # Mechanism
//! A pass copies the waits of one bucket after the other, holding one latch at a time and only
//! for the copy, and looks for a cycle in the copy. Since locks move meanwhile, a cycle in it may
//! never have been there at one moment. So before anybody is rolled back, all buckets that the
//! cycle touches are latched together, in order of their numbers, and each wait of it is looked at
//! again. What still stands then is a deadlock: nobody in it can move. The victim's request is
//! taken out of its queue under the same latches. Then, or when the cycle is gone, the search
//! begins anew with another copy, until there is no cycle in it.
//!
//! A locker that checks when it blocks copies only the waits it can reach. That finds every
//! deadlock: who completes a circle does so by beginning to wait, and all other waits of the circle
//! are there by then.
//!
//! # Example
//! ```text
//! T1 holds S(a), T2 holds S(a); T1 asks for X(a) and waits for T2; T2 asks for X(a)
//! copy: T1 → T2, T2 → T1     cycle T1 T2, both with one lock; the younger, T2, is the victim
//! T2's request leaves the queue, its wait ends with `Deadlock`; when it has given its locks
//! back, T1's conversion is granted
//! ```
//!
//! # Where this leaves the literature
//! * **PostgreSQL** latches the whole lock table for a search. Here nobody is held up for longer
//!   than a copy of one bucket, at the price of the second look.
//! * **Soft edges.** PostgreSQL tries to break a cycle with soft edges by another order of a queue.
//!   Here a queue is never reordered, and somebody is rolled back instead: such cycles need
//!   a holder that comes back for a second resource, and a request that waits between two that
//!   go together.
//! * **Who is to blame.** The study of XML locking (Section 2.3) takes who holds the fewest locks
//!   of all in the cycle. Here of those that hold what another waits for, see `waits_for.rs`.
//!
//! # Limits
//! A thread with two lockers that waits with one of them is not seen to wait with the other.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::locker_state::{LockerId, Outcome, Place, Woken};
use super::manager::{LockManager, Resource};
use super::queues::Waiting;
use super::waits_for::{Node, WaitsFor};

impl<R: Resource> LockManager<R> {
    /// Looks for deadlocks now and breaks them. Returns how many requests it ended.
    pub fn break_deadlocks(&self) -> usize {
        let waits_in = |bucket: u32| self.latch(bucket).waits(self.rules());
        self.break_cycles(|| (0..self.bucket_count()).flat_map(waits_in).collect())
    }

    /// Breaks the deadlocks that `locker`, which waits at `place`, is in or waits for.
    pub(super) fn break_deadlocks_from(&self, locker: LockerId, place: Place) -> usize {
        self.break_cycles(|| self.waits_reached_from(locker, place))
    }

    /// Starts a thread that calls [`break_deadlocks`](LockManager::break_deadlocks) every
    /// `interval`, which is raised to a millisecond. It ends when the returned value is dropped.
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn start_detector(self: &Arc<Self>, interval: Duration) -> io::Result<Detector> {
        let interval = interval.max(Duration::from_millis(1));
        let manager = Arc::clone(self);
        let (stop, stopped) = mpsc::channel();
        let thread = thread::Builder::new().name("deadlock detector".into()).spawn(move || {
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                manager.break_deadlocks();
            }
        })?;
        Ok(Detector { stop: Some(stop), thread: Some(thread) })
    }

    fn waits_reached_from(&self, locker: LockerId, place: Place) -> Vec<Waiting> {
        let mut reached = HashSet::from([locker]);
        let mut next = vec![(locker, place)];
        let mut waits = Vec::new();
        while let Some((locker, place)) = next.pop() {
            let wait = self.latch(place.bucket).wait_at(self.rules(), place.request, locker);
            if let Some(wait) = wait {
                let new = wait.edges.iter().filter(|edge| reached.insert(edge.to));
                next.extend(new.map(|edge| (edge.to, edge.place)));
                waits.push(wait);
            }
        }
        waits
    }

    /// One cycle of each copy: who waited behind a victim may be in another cycle, which the copy
    /// does not show.
    fn break_cycles(&self, copy: impl Fn() -> Vec<Waiting>) -> usize {
        let mut victims = 0;
        loop {
            let graph = WaitsFor::new(copy());
            let Some(cycle) = graph.cycle() else { return victims };
            victims += usize::from(self.break_cycle(&graph, &cycle));
        }
    }

    /// Rolls one of the cycle back, if it still is one.
    fn break_cycle(&self, graph: &WaitsFor, cycle: &[Node]) -> bool {
        let mut woken = Woken::default();
        let buckets = cycle.iter().map(|node| graph.wait(*node).place.bucket);
        let mut latched = self.latch_all(buckets);
        let following = cycle.iter().cycle().skip(1);
        let mut edges = cycle.iter().zip(following);
        let is_there = edges.all(|(waiter, blocker)| {
            let (waiter, blocker) = (graph.wait(*waiter), graph.wait(*blocker));
            latched.is_blocked_by(self.rules(), waiter.locker, waiter.place, blocker.locker)
        });
        let Some(victim) = graph.victim(cycle, self.settings().victim).filter(|_| is_there) else {
            return false;
        };
        tracing::debug!(victim = victim.locker.0, lockers = cycle.len(), "deadlock");
        latched.dismiss(self.rules(), victim.place, Outcome::Deadlock, &mut woken);
        drop(latched);
        woken.wake();
        true
    }
}

/// A thread that looks for deadlocks; dropping this stops it and waits for its end.
#[derive(Debug)]
#[must_use = "the detector stops when this is dropped"]
pub struct Detector {
    /// Dropped to stop.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Detector {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Had it panicked, there would be nothing to do about it here.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::hash_slab::hash_of;
    use super::super::locker_state::LockerState;
    use super::super::modes::ModeTable;
    use super::super::multi_granularity::X;
    use super::super::queues::{Answer, Ask, IfBusy};
    use super::super::settings::{LockSettings, Priority};
    use super::*;

    /// Lockers that wait without a thread.
    struct Table {
        manager: Arc<LockManager<&'static str>>,
        lockers: Vec<Arc<LockerState>>,
    }

    impl Table {
        fn new(lockers: u64) -> Table {
            let modes = ModeTable::multi_granularity();
            let state = |id| Arc::new(LockerState::new(LockerId(id), Priority::default()));
            let lockers = (0..lockers).map(state).collect();
            Table { manager: LockManager::new(modes, LockSettings::default()), lockers }
        }

        /// Asks for X.
        fn ask(&self, locker: usize, resource: &'static str) -> Answer {
            let hash = hash_of(&resource);
            let locker = &self.lockers[locker];
            let ask = Ask { hash, resource: &resource, mode: X, locker, if_busy: IfBusy::Queue };
            self.manager.latch(self.manager.bucket_of(hash)).ask(self.manager.rules(), &ask)
        }

        fn give_up(&self, locker: usize) {
            let place = self.lockers[locker].place().expect("it waits");
            let mut bucket = self.manager.latch(place.bucket);
            let (rules, mut woken) = (self.manager.rules(), Woken::default());
            bucket.dismiss(rules, place.request, Outcome::TimedOut, &mut woken);
        }

        fn graph(&self) -> WaitsFor {
            let buckets = 0..self.manager.bucket_count();
            let waits_in = |bucket| self.manager.latch(bucket).waits(self.manager.rules());
            WaitsFor::new(buckets.flat_map(waits_in).collect())
        }

        fn outcomes(&self) -> Vec<Outcome> {
            self.lockers.iter().map(|locker| locker.outcome()).collect()
        }
    }

    /// 0 holds a and waits for b, 1 holds b and waits for a.
    fn circle_of_two() -> Table {
        let table = Table::new(2);
        table.ask(0, "a");
        table.ask(1, "b");
        table.ask(0, "b");
        table.ask(1, "a");
        table
    }

    #[test]
    fn a_cycle_that_is_there_is_broken() {
        let table = circle_of_two();
        let graph = table.graph();
        let cycle = graph.cycle().expect("a circle");
        assert!(table.manager.break_cycle(&graph, &cycle));
        assert_eq!(table.outcomes(), [Outcome::Waiting, Outcome::Deadlock]);
    }

    #[test]
    fn a_cycle_that_is_gone_harms_nobody() {
        let table = circle_of_two();
        let graph = table.graph();
        let cycle = graph.cycle().expect("a circle");
        table.give_up(1);
        assert!(!table.manager.break_cycle(&graph, &cycle), "1 does not wait");
        table.ask(1, "c");
        assert!(!table.manager.break_cycle(&graph, &cycle), "1 has what it waited for");
        assert_eq!(table.outcomes(), [Outcome::Waiting, Outcome::TimedOut]);
    }

    #[test]
    fn a_locker_that_waits_again_is_looked_at_again() {
        let table = Table::new(3);
        // 2 holds c, whose bucket need not be another: what counts is whom 1 waits for.
        table.ask(2, "c");
        for (locker, resource) in [(0, "a"), (1, "b"), (0, "b"), (1, "a")] {
            table.ask(locker, resource);
        }
        let graph = table.graph();
        let cycle = graph.cycle().expect("a circle");
        table.give_up(1);
        assert!(matches!(table.ask(1, "c"), Answer::Waiting(_)));
        assert!(!table.manager.break_cycle(&graph, &cycle));
        assert_eq!(table.manager.break_deadlocks(), 0);
        assert_eq!(table.outcomes()[..2], [Outcome::Waiting, Outcome::Waiting]);
    }
}

//! Preempt on wait: who waits gives way to a higher priority.
//!
//! # Mechanism
//! Both sides look when they begin to wait. The one of high priority looks at those in its way: a
//! lower one that waits itself is rolled back. The one of low priority looks at the queues of what
//! it holds: if a higher one waits for it there, it is rolled back itself. A wait begins in its
//! queue before its locker looks, so of two that begin at the same time at least one sees the
//! other.
//!
//! Before a wait is ended the buckets of both are latched, and it is looked at again.
//!
//! # Example
//! ```text
//! L holds X(a), M holds X(b), H is of higher priority than both
//! H asks for X(a)    L runs: H waits for it
//! L asks for X(b)    L waits now, and H for L: L's wait ends with `Preempted`, and when it has
//!                    given X(a) back, H goes on
//! ```

use std::sync::Arc;

use super::bucket::Granted;
use super::locker::Locker;
use super::locker_state::{LockerState, Outcome, Place, Woken};
use super::manager::{LockManager, Resource};

impl<R: Resource> Locker<R> {
    /// Rolls back what should give way, now that this locker waits at `place`; perhaps itself.
    pub(super) fn preempt(&self, place: Place) {
        let manager = &*self.manager;
        for low in manager.blockers_below(&self.state, place) {
            manager.preempt(&low, &self.state);
        }
        for (hash, resource, held) in self.held.iter() {
            let bucket = manager.bucket_of(hash);
            let granted = Granted { hash, resource, handle: held.handle, locker: &self.state };
            let high = manager.latch(bucket).blocked_above(manager.rules(), &granted);
            if high.is_some_and(|high| manager.preempt(&self.state, &high)) {
                return;
            }
        }
    }
}

impl<R: Resource> LockManager<R> {
    /// Lockers of lower priority that `high` waits for at `place`.
    fn blockers_below(&self, high: &LockerState, place: Place) -> Vec<Arc<LockerState>> {
        let bucket = self.latch(place.bucket);
        if !bucket.is_waiting(place.request, high.id) {
            return Vec::new();
        }
        bucket.blockers_below(self.rules(), place.request, high.priority)
    }

    /// Ends the wait of `low` if it waits and is in the way of `high`; says whether it did.
    fn preempt(&self, low: &LockerState, high: &LockerState) -> bool {
        let (Some(low_place), Some(high_place)) = (low.place(), high.place()) else {
            return false;
        };
        let mut woken = Woken::default();
        let mut latched = self.latch_all([low_place.bucket, high_place.bucket].into_iter());
        let is_in_the_way = latched.is_waiting(low.id, low_place)
            && latched.is_blocked_by(self.rules(), high.id, high_place, low.id);
        if is_in_the_way {
            latched.dismiss(self.rules(), low_place, Outcome::Preempted, &mut woken);
        }
        drop(latched);
        woken.wake();
        is_in_the_way
    }
}

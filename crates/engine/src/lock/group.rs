//! Lock tables that a transaction may use beside each other, and that are searched for deadlocks
//! together.
//!
//! # Mechanism
//! A table of keys and one of somebody's own resources have different kinds of resources and other
//! modes, but the same transactions wait in both. So tables are in a *group*. Each has a number in
//! it, which is part of the [number of a bucket](BucketNumber): where a locker waits names a table
//! as well, and whoever latches several buckets does so in one order through all tables. What a
//! search needs of a table, whatever it locks, is [`GroupTable`].
//!
//! A group knows its tables weakly. A locker keeps its table alive, so the table of a wait is there
//! as long as the wait is.
//!
//! # Example
//! ```text
//! T1 holds X(key a)  in table 0    T2 holds X(node 1.3) in table 1
//! T1 asks for X(node 1.3)          T2 asks for X(key a)
//! T1 waits in bucket 1.77, T2 in bucket 0.12: both are latched, 0.12 first, and one gives up
//! ```
//!
//! # Limits
//! A group has 65,536 tables at most at one time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use tidegate_runtime::sync::{MutexGuard, RwLock};

use super::locker_state::{BucketNumber, LockerId, LockerState, Outcome, RequestIndex, Woken};
use super::queues::{Rules, Waiting};
use super::table::Bucket;
use super::{LockManager, Priority, Resource};

/// See the [module](self).
#[derive(Default)]
pub(super) struct TableGroup {
    /// `None` where no table has the number.
    tables: RwLock<Vec<Option<Weak<dyn GroupTable>>>>,
    /// Lockers made so far.
    lockers: AtomicU64,
}

impl TableGroup {
    /// Adds a table. Returns its number, which is its own until [`TableGroup::leave`].
    pub(super) fn join(&self, table: Weak<dyn GroupTable>) -> u32 {
        let mut tables = self.tables.write();
        let free = tables.iter().position(Option::is_none);
        let at = free.unwrap_or(tables.len());
        if free.is_none() {
            tables.push(None);
        }
        tables[at] = Some(table);
        // A table takes megabytes, or at least kilobytes: memory ends before.
        let number = u16::try_from(at).expect("a group has at most 65,536 tables at one time");
        u32::from(number)
    }

    /// Removes the table with this number.
    pub(super) fn leave(&self, number: u32) {
        let left = self.tables.write()[number as usize].take();
        debug_assert!(left.is_some(), "a table leaves once");
    }

    /// Returns a number for a locker that none of the group has had.
    pub(super) fn next_locker(&self) -> LockerId {
        LockerId(self.lockers.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the tables that are in the group now.
    pub(super) fn tables(&self) -> Tables {
        let upgrade = |table: &Option<Weak<dyn GroupTable>>| table.as_ref()?.upgrade();
        Tables(self.tables.read().iter().map(upgrade).collect())
    }
}

/// The tables of a group by number, kept alive.
pub(super) struct Tables(Vec<Option<Arc<dyn GroupTable>>>);

impl Tables {
    fn of(&self, bucket: BucketNumber) -> Option<&dyn GroupTable> {
        self.0.get(bucket.table() as usize)?.as_deref()
    }

    /// Returns all waits in all tables, each bucket seen at another moment.
    pub(super) fn waits(&self) -> Vec<Waiting> {
        self.0.iter().flatten().flat_map(|table| table.waits()).collect()
    }

    /// Returns the wait of `locker` at `place`; `None` if it is not there, or not any more.
    pub(super) fn wait_at(&self, place: RequestIndex, locker: LockerId) -> Option<Waiting> {
        self.of(place.bucket)?.wait_at(place, locker)
    }

    /// Lockers below `priority` that `locker` waits for at `place`.
    pub(super) fn blockers_below(
        &self,
        place: RequestIndex,
        locker: LockerId,
        priority: Priority,
    ) -> Vec<Arc<LockerState>> {
        let table = self.of(place.bucket);
        table.map_or_else(Vec::new, |table| table.blockers_below(place, locker, priority))
    }

    /// Latches several buckets, each named as often as one likes. The order of their numbers keeps
    /// two who do so from waiting for each other.
    pub(super) fn latch_all(&self, buckets: impl Iterator<Item = BucketNumber>) -> Latched<'_> {
        let mut numbers: Vec<BucketNumber> = buckets.collect();
        numbers.sort_unstable();
        numbers.dedup();
        let latch = |number: BucketNumber| Some((number, self.of(number)?.latched(number)));
        Latched(numbers.into_iter().filter_map(latch).collect())
    }
}

/// Several buckets that stand still. A bucket whose table is gone is not among them: there is no
/// wait in it.
pub(super) struct Latched<'a>(Vec<(BucketNumber, Box<dyn LatchedBucket + 'a>)>);

impl Latched<'_> {
    /// Returns whether `waiter` waits at `place` and `blocker` is one whom it waits for.
    pub(super) fn is_blocked_by(
        &self,
        waiter: LockerId,
        place: RequestIndex,
        blocker: LockerId,
    ) -> bool {
        self.bucket(place.bucket).is_some_and(|bucket| {
            bucket.is_waiting(place.request, waiter) && bucket.is_blocked_by(place.request, blocker)
        })
    }

    /// Returns whether `waiter` waits at `place`.
    pub(super) fn is_waiting(&self, waiter: LockerId, place: RequestIndex) -> bool {
        let bucket = self.bucket(place.bucket);
        bucket.is_some_and(|bucket| bucket.is_waiting(place.request, waiter))
    }

    /// Ends the wait at `place`, which was seen to be there under these latches.
    pub(super) fn dismiss(&mut self, place: RequestIndex, outcome: Outcome, woken: &mut Woken) {
        let mut latched = self.0.iter_mut();
        let bucket = latched.find(|(number, _)| *number == place.bucket).map(|(_, bucket)| bucket);
        bucket.expect("a wait that was seen is in a table").dismiss(place.request, outcome, woken);
    }

    fn bucket(&self, number: BucketNumber) -> Option<&(dyn LatchedBucket + '_)> {
        let latched = self.0.iter().find(|(latched, _)| *latched == number);
        latched.map(|(_, bucket)| &**bucket)
    }
}

/// What a search for deadlocks needs of a lock table, whatever it locks.
pub(super) trait GroupTable: Send + Sync {
    /// Returns all waits, each bucket seen at another moment.
    fn waits(&self) -> Vec<Waiting>;

    /// Returns the wait of `locker` at `place`; `None` if it is not there, or not any more.
    fn wait_at(&self, place: RequestIndex, locker: LockerId) -> Option<Waiting>;

    /// Lockers below `priority` that `locker` waits for at `place`; none if it does not wait there.
    fn blockers_below(
        &self,
        place: RequestIndex,
        locker: LockerId,
        priority: Priority,
    ) -> Vec<Arc<LockerState>>;

    /// Latches a bucket of this table. No locker that has one latched may call this, except through
    /// [`Tables::latch_all`].
    fn latched(&self, bucket: BucketNumber) -> Box<dyn LatchedBucket + '_>;
}

/// A bucket of a lock table that stands still.
pub(super) trait LatchedBucket {
    /// Returns whether the request is a wait of this locker.
    fn is_waiting(&self, request: u32, locker: LockerId) -> bool;

    /// Returns whether the waiting request waits for `locker`.
    fn is_blocked_by(&self, request: u32, locker: LockerId) -> bool;

    /// Ends a wait without a grant.
    fn dismiss(&mut self, request: u32, outcome: Outcome, woken: &mut Woken);
}

impl<R: Resource> GroupTable for LockManager<R> {
    fn waits(&self) -> Vec<Waiting> {
        let waits_in = |bucket: u32| self.latch(bucket).waits(&self.rules);
        (0..self.bucket_count).flat_map(waits_in).collect()
    }

    fn wait_at(&self, place: RequestIndex, locker: LockerId) -> Option<Waiting> {
        let bucket = self.latch(place.bucket.in_table());
        bucket.queues.wait_at(&self.rules, place.request, locker)
    }

    fn blockers_below(
        &self,
        place: RequestIndex,
        locker: LockerId,
        priority: Priority,
    ) -> Vec<Arc<LockerState>> {
        let bucket = self.latch(place.bucket.in_table());
        if !bucket.queues.is_waiting(place.request, locker) {
            return Vec::new();
        }
        bucket.queues.blockers_below(&self.rules, place.request, priority)
    }

    fn latched(&self, bucket: BucketNumber) -> Box<dyn LatchedBucket + '_> {
        let bucket = self.latch(bucket.in_table());
        Box::new(LatchedQueues { bucket, rules: &self.rules })
    }
}

/// A latched bucket, and the rules of its table.
struct LatchedQueues<'a, R> {
    bucket: MutexGuard<'a, Bucket<R>>,
    rules: &'a Rules,
}

impl<R: Resource> LatchedBucket for LatchedQueues<'_, R> {
    fn is_waiting(&self, request: u32, locker: LockerId) -> bool {
        self.bucket.queues.is_waiting(request, locker)
    }

    fn is_blocked_by(&self, request: u32, locker: LockerId) -> bool {
        self.bucket.queues.is_blocked_by(self.rules, request, locker)
    }

    fn dismiss(&mut self, request: u32, outcome: Outcome, woken: &mut Woken) {
        self.bucket.queues.dismiss(self.rules, request, outcome, woken);
    }
}

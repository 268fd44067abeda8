//! What others can see and do of a locker: where it waits, and how its wait ends.
//!
//! A wait begins and ends under the latch of the bucket that holds its request, and the thread that
//! ends it takes the request out of the queue at the same time. So of a grant, a deadlock, a
//! preemption and a timeout that meet, the first to get the latch wins, and the others see that
//! there is no such request any more. The thread that waits is woken after the latch is free again.

use std::fmt;
use std::sync::Arc;

use tidegate_runtime::sync::Mutex;
use tidegate_runtime::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use tidegate_runtime::thread::{self, Task};

use super::Priority;

/// A locker; a higher number began later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockerId(pub u64);

impl fmt::Display for LockerId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// A bucket of a lock table: the number of the table in its [group](super::group), and that of the
/// bucket in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BucketNumber(u32);

impl BucketNumber {
    /// Returns the number of a bucket of a table, where both are below 65,536.
    pub(super) fn new(table: u32, bucket: u32) -> BucketNumber {
        debug_assert!(table < 1 << 16 && bucket < 1 << 16, "a half has 16 bits");
        BucketNumber(table << 16 | bucket)
    }

    pub(super) fn table(self) -> u32 {
        self.0 >> 16
    }

    /// Returns the number of the bucket in its table.
    pub(super) fn in_table(self) -> u32 {
        self.0 & 0xffff
    }
}

/// Where a request is: a bucket of a lock table and an index in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestIndex {
    pub(super) bucket: BucketNumber,
    pub(super) request: u32,
}

/// The packed form of no place; its halves are no indices.
const NOWHERE: u64 = u64::MAX;

impl RequestIndex {
    fn pack(self) -> u64 {
        u64::from(self.bucket.0) << 32 | u64::from(self.request)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the two halves are wanted")]
    fn unpack(packed: u64) -> Option<RequestIndex> {
        let bucket = BucketNumber((packed >> 32) as u32);
        let place = RequestIndex { bucket, request: packed as u32 };
        (packed != NOWHERE).then_some(place)
    }
}

/// How a wait stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Outcome {
    Waiting,
    Granted,
    Deadlock,
    Preempted,
    TimedOut,
}

impl Outcome {
    const ALL: [Outcome; 5] = [
        Outcome::Waiting,
        Outcome::Granted,
        Outcome::Deadlock,
        Outcome::Preempted,
        Outcome::TimedOut,
    ];
}

/// See the [module](self). On cache lines of its own: each request counts a reference to it.
#[repr(align(128))]
pub(super) struct LockerState {
    pub(super) id: LockerId,
    pub(super) priority: Priority,
    /// Where its intention locks are.
    pub(super) stripe: usize,
    outcome: AtomicU8,
    place: AtomicU64,
    /// Locks held, in all tables.
    locks: AtomicUsize,
    /// Lockers of this transaction, each of another table.
    tables: AtomicUsize,
    /// The thread to wake.
    thread: Mutex<Option<Task>>,
}

impl LockerState {
    pub(super) fn new(id: LockerId, priority: Priority, stripe: usize) -> LockerState {
        LockerState {
            id,
            priority,
            stripe,
            outcome: AtomicU8::new(Outcome::Granted as u8),
            place: AtomicU64::new(NOWHERE),
            locks: AtomicUsize::new(0),
            tables: AtomicUsize::new(1),
            thread: Mutex::new(None),
        }
    }

    /// Returns where the locker waits. The answer is out of date as soon as it is read, unless the
    /// bucket is latched.
    pub(super) fn place(&self) -> Option<RequestIndex> {
        RequestIndex::unpack(self.place.load(Ordering::Relaxed))
    }

    pub(super) fn outcome(&self) -> Outcome {
        // What the thread that ended the wait did before is to be seen after it.
        let outcome = self.outcome.load(Ordering::Acquire);
        Outcome::ALL[usize::from(outcome)]
    }

    pub(super) fn locks(&self) -> usize {
        self.locks.load(Ordering::Relaxed)
    }

    /// Counts a lock that was granted. Only the thread of the transaction counts.
    pub(super) fn count_lock(&self) {
        self.locks.store(self.locks() + 1, Ordering::Relaxed);
    }

    /// Counts locks that were given up.
    pub(super) fn count_less(&self, locks: usize) {
        debug_assert!(self.locks() >= locks, "what is given up was held");
        self.locks.store(self.locks() - locks, Ordering::Relaxed);
    }

    /// Returns in how many tables the transaction has a locker, or had.
    pub(super) fn tables(&self) -> usize {
        self.tables.load(Ordering::Relaxed)
    }

    /// Records that the transaction has a locker in one more table.
    pub(super) fn count_table(&self) {
        self.tables.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that the calling thread is about to wait at `place`, whose bucket is latched.
    pub(super) fn begin_wait(&self, place: RequestIndex) {
        debug_assert!(self.place().is_none(), "a locker waits for one lock at a time");
        *self.thread.lock() = Some(thread::current());
        self.outcome.store(Outcome::Waiting as u8, Ordering::Relaxed);
        self.place.store(place.pack(), Ordering::Relaxed);
    }

    /// Ends the wait. Its bucket is latched, and the thread is woken later, by [`Woken::wake`].
    pub(super) fn end_wait(&self, outcome: Outcome, woken: &mut Woken) {
        debug_assert!(self.place().is_some() && outcome != Outcome::Waiting, "a wait ends once");
        self.place.store(NOWHERE, Ordering::Relaxed);
        let thread = self.thread.lock().take();
        // From here on the locker may be gone on.
        self.outcome.store(outcome as u8, Ordering::Release);
        // Who ends its own wait is awake.
        woken.0.extend(thread.filter(|_| outcome != Outcome::TimedOut));
    }
}

/// What another thread can see of a locker: out of date as soon as it is read.
#[derive(Clone)]
pub struct LockerWatch(pub(super) Arc<LockerState>);

impl LockerWatch {
    /// Returns how many locks are held, in all tables in which the transaction locks.
    #[must_use]
    pub fn locks(&self) -> usize {
        self.0.locks()
    }

    /// Returns whether the locker waits for a lock.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.0.place().is_some()
    }
}

impl fmt::Debug for LockerWatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("LockerWatch").field(&self.0.id).finish()
    }
}

/// Threads to wake once no latch is held.
#[derive(Debug, Default)]
pub(super) struct Woken(Vec<Task>);

impl Woken {
    pub(super) fn wake(&mut self) {
        for thread in self.0.drain(..) {
            thread.unpark();
        }
    }
}

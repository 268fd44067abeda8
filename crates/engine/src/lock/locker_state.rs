//! What others see of a locker: who it is, where it waits, and how the wait ends.
//!
//! A wait begins and ends under the latch of the bucket that holds its request, and whoever ends it
//! takes the request out of the queue at the same time. So of a grant, a deadlock, a preemption
//! and a timeout that meet, the first to get the latch wins, and the others see that there is no
//! such request any more. The thread that waits is woken after the latch is free again.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, Thread};

use parking_lot::Mutex;

use super::intents::own_stripe;
use super::settings::Priority;

/// A locker; a higher number began later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockerId(pub u64);

impl fmt::Display for LockerId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Where a request is: a bucket of the lock table and an index in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) bucket: u32,
    pub(super) request: u32,
}

/// The packed form of no place; its halves are no indices.
const NOWHERE: u64 = u64::MAX;

impl Place {
    fn pack(self) -> u64 {
        u64::from(self.bucket) << 32 | u64::from(self.request)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the two halves are wanted")]
    fn unpack(packed: u64) -> Option<Place> {
        let place = Place { bucket: (packed >> 32) as u32, request: packed as u32 };
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
    /// Locks held; those given back early are counted until the next is taken.
    locks: AtomicUsize,
    /// Who is to be woken.
    thread: Mutex<Option<Thread>>,
}

impl LockerState {
    pub(super) fn new(id: LockerId, priority: Priority) -> LockerState {
        LockerState {
            id,
            priority,
            stripe: own_stripe(),
            outcome: AtomicU8::new(Outcome::Granted as u8),
            place: AtomicU64::new(NOWHERE),
            locks: AtomicUsize::new(0),
            thread: Mutex::new(None),
        }
    }

    /// Where it waits; out of date as soon as it is read, unless the bucket is latched.
    pub(super) fn place(&self) -> Option<Place> {
        Place::unpack(self.place.load(Ordering::Relaxed))
    }

    pub(super) fn outcome(&self) -> Outcome {
        // What whoever ended the wait did before is to be seen after it.
        let outcome = self.outcome.load(Ordering::Acquire);
        Outcome::ALL.get(usize::from(outcome)).copied().unwrap_or(Outcome::Waiting)
    }

    pub(super) fn locks(&self) -> usize {
        self.locks.load(Ordering::Relaxed)
    }

    pub(super) fn set_locks(&self, locks: usize) {
        self.locks.store(locks, Ordering::Relaxed);
    }

    /// The calling thread is about to wait at `place`, whose bucket is latched.
    pub(super) fn begin_wait(&self, place: Place) {
        *self.thread.lock() = Some(thread::current());
        self.outcome.store(Outcome::Waiting as u8, Ordering::Relaxed);
        self.place.store(place.pack(), Ordering::Relaxed);
    }

    /// The wait is over; its bucket is latched. The thread is woken later, by [`Woken::wake`].
    pub(super) fn end_wait(&self, outcome: Outcome, woken: &mut Woken) {
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
pub struct LockerWatch(pub(super) std::sync::Arc<LockerState>);

impl LockerWatch {
    /// Locks held. Those given back early are counted until the next is taken.
    #[must_use]
    pub fn locks(&self) -> usize {
        self.0.locks()
    }

    /// Whether it waits for a lock.
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
pub(super) struct Woken(Vec<Thread>);

impl Woken {
    pub(super) fn wake(&mut self) {
        for thread in self.0.drain(..) {
            thread.unpark();
        }
    }
}

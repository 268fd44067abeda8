//! Locks, condition variables and channels for threads of the operating system and for tasks of a
//! machine in virtual time.
//!
//! [`Mutex`] and [`RwLock`] are for short sections: a task that holds one waits for nothing but
//! another lock. On a machine in virtual time such a section takes no time, so they are never
//! contended there, and a debug build panics if a task waits while it holds one. What has to be
//! held across a wait is a [`LongMutex`], a [`LongRwLock`] or a [`RawRwLock`].
//!
//! Sharing a lock between tasks of a machine and threads outside it is an error: a task that finds
//! a lock taken waits for another task to release it.

pub mod atomic {
    //! The standard library's atomics. Protocols that are checked with loom name them by this
    //! path, where the model has its own (`bench/loom`).

    pub use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64};
    pub use std::sync::atomic::{AtomicUsize, Ordering};
}

mod channel;
mod condvar;
mod raw;

pub use channel::{Receiver, RecvError, RecvTimeoutError, SendError, Sender, channel};
pub use condvar::Condvar;
pub use raw::{RawMutex, RawRwLock};

/// A mutual exclusion that is not held across a wait.
pub type Mutex<T> = lock_api::Mutex<RawMutex<false>, T>;
/// The guard of a [`Mutex`].
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex<false>, T>;
/// A mutual exclusion that may be held across a wait.
pub type LongMutex<T> = lock_api::Mutex<RawMutex<true>, T>;
/// A lock of readers and writers that is not held across a wait.
pub type RwLock<T> = lock_api::RwLock<RawRwLock<false>, T>;

/// A lock of readers and writers that may be held across a wait.
pub type LongRwLock<T> = lock_api::RwLock<RawRwLock<true>, T>;

/// How many locks the running task of a machine holds that it must not hold at a wait. It is
/// counted by debug builds.
pub(crate) mod held {
    use std::cell::Cell;

    thread_local! {
        static HELD: Cell<u32> = const { Cell::new(0) };
    }

    pub(crate) fn get() -> u32 {
        HELD.get()
    }

    pub(crate) fn set(count: u32) {
        HELD.set(count);
    }

    pub(super) fn take() {
        HELD.set(HELD.get() + 1);
    }

    pub(super) fn release() {
        HELD.set(HELD.get() - 1);
    }
}

//! Locks and atomics of the model.

use std::sync::OnceLock;

use loom::sync::atomic::{AtomicI32, Ordering};

pub mod atomic {
    //! Atomics of the model.

    pub use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64};
    pub use loom::sync::atomic::{AtomicUsize, Ordering};
}

/// A mutual exclusion of the model.
#[derive(Debug)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

/// The guard of a [`Mutex`].
pub type MutexGuard<'a, T> = loom::sync::MutexGuard<'a, T>;

impl<T> Mutex<T> {
    /// Returns a mutex that is free.
    pub fn new(value: T) -> Mutex<T> {
        Mutex(loom::sync::Mutex::new(value))
    }

    /// Waits for the mutex.
    ///
    /// # Panics
    /// If a thread of the model has panicked with it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("no thread panics")
    }
}

/// What `lock_api` calls a raw lock of readers and a writer.
pub trait RawRwLockApi {
    /// A lock that is free.
    const INIT: Self;
    /// Waits until no writer has the lock.
    fn lock_shared(&self);
    /// Takes the lock if no writer has it.
    fn try_lock_shared(&self) -> bool;
    /// Gives back what [`lock_shared`](RawRwLockApi::lock_shared) took.
    fn unlock_shared(&self);
    /// Waits until the lock is free.
    fn lock_exclusive(&self);
    /// Takes the lock if it is free.
    fn try_lock_exclusive(&self) -> bool;
    /// Gives back what [`lock_exclusive`](RawRwLockApi::lock_exclusive) took.
    fn unlock_exclusive(&self);
    /// Returns whether anybody has the lock.
    fn is_locked(&self) -> bool;
    /// Returns whether a writer has the lock.
    fn is_locked_exclusive(&self) -> bool;
}

/// A lock of readers and a writer. One that is not got gives no order: as in `parking_lot`, only
/// taking and releasing do.
#[derive(Debug)]
pub struct RawRwLock<const LONG: bool>(OnceLock<AtomicI32>);

impl<const LONG: bool> RawRwLock<LONG> {
    /// Returns the readers, or -1 for a writer. The model's atomics cannot be made in a constant.
    fn holders(&self) -> &AtomicI32 {
        self.0.get_or_init(|| AtomicI32::new(0))
    }

    fn take(&self, by: impl Fn(i32) -> Option<i32>) -> bool {
        let before = self.holders().load(Ordering::Relaxed);
        by(before).is_some_and(|after| {
            let (taken, failed) = (Ordering::Acquire, Ordering::Relaxed);
            self.holders().compare_exchange(before, after, taken, failed).is_ok()
        })
    }
}

impl<const LONG: bool> RawRwLockApi for RawRwLock<LONG> {
    const INIT: RawRwLock<LONG> = RawRwLock(OnceLock::new());

    fn lock_shared(&self) {
        while !self.try_lock_shared() {
            loom::thread::yield_now();
        }
    }

    fn try_lock_shared(&self) -> bool {
        self.take(|holders| (holders >= 0).then_some(holders + 1))
    }

    fn unlock_shared(&self) {
        self.holders().fetch_sub(1, Ordering::Release);
    }

    fn lock_exclusive(&self) {
        while !self.try_lock_exclusive() {
            loom::thread::yield_now();
        }
    }

    fn try_lock_exclusive(&self) -> bool {
        self.take(|holders| (holders == 0).then_some(-1))
    }

    fn unlock_exclusive(&self) {
        self.holders().store(0, Ordering::Release);
    }

    fn is_locked(&self) -> bool {
        self.holders().load(Ordering::Relaxed) != 0
    }

    fn is_locked_exclusive(&self) -> bool {
        self.holders().load(Ordering::Relaxed) < 0
    }
}

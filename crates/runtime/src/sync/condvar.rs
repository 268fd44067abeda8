//! Waiting for a condition that another thread or task makes true.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use lock_api::MutexGuard;

use super::{Mutex, RawMutex};
use crate::thread::{self, Task};

/// A condition variable for the mutexes of this crate.
///
/// As with every condition variable, the condition is looked at again after each wait.
#[derive(Debug, Default)]
pub struct Condvar {
    waiting: Mutex<VecDeque<Arc<Waiter>>>,
}

#[derive(Debug)]
struct Waiter {
    task: Task,
    is_notified: AtomicBool,
}

impl Condvar {
    /// Returns a condition variable for which nobody waits.
    #[must_use]
    pub const fn new() -> Condvar {
        Condvar { waiting: Mutex::new(VecDeque::new()) }
    }

    /// Releases the mutex, waits until it is notified, and takes the mutex again.
    pub fn wait<const LONG: bool, T>(&self, guard: &mut MutexGuard<'_, RawMutex<LONG>, T>) {
        self.wait_to(guard, None);
    }

    /// Like [`wait`](Condvar::wait), at the longest until the moment. Returns whether it was
    /// notified.
    pub fn wait_until<const LONG: bool, T>(
        &self,
        guard: &mut MutexGuard<'_, RawMutex<LONG>, T>,
        moment: Instant,
    ) -> bool {
        self.wait_to(guard, Some(moment))
    }

    fn wait_to<const LONG: bool, T>(
        &self,
        guard: &mut MutexGuard<'_, RawMutex<LONG>, T>,
        deadline: Option<Instant>,
    ) -> bool {
        let is_notified = AtomicBool::new(false);
        let waiter = Arc::new(Waiter { task: thread::current(), is_notified });
        self.waiting.lock().push_back(Arc::clone(&waiter));
        MutexGuard::unlocked(guard, || {
            thread::wait_until(deadline, || waiter.is_notified.load(Ordering::Acquire));
        });
        // One that was notified has been taken out. The notification may have come after the time
        // was over: it counts, because nobody else got it.
        self.waiting.lock().retain(|other| !Arc::ptr_eq(other, &waiter));
        waiter.is_notified.load(Ordering::Acquire)
    }

    /// Lets one of those that wait go on: the one that has waited longest.
    pub fn notify_one(&self) {
        let first = self.waiting.lock().pop_front();
        if let Some(waiter) = first {
            waiter.notify();
        }
    }

    /// Lets all that wait go on.
    pub fn notify_all(&self) {
        let all = std::mem::take(&mut *self.waiting.lock());
        for waiter in all {
            waiter.notify();
        }
    }
}

impl Waiter {
    fn notify(&self) {
        self.is_notified.store(true, Ordering::Release);
        self.task.unpark();
    }
}

//! The thread that makes durable what may wait a little.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::commit::Core;

/// Forces the log within a time after it was asked to; started when it is first asked.
pub(super) struct Flusher {
    request: Arc<Request>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Time from the request to the sync.
    delay: Duration,
}

#[derive(Default)]
struct Request {
    is_asked: AtomicBool,
    is_stopped: Mutex<bool>,
    changed: Condvar,
}

impl Flusher {
    /// `bound` is the time within which the sync has begun and, as a rule, ended.
    pub(super) fn new(bound: Duration) -> Flusher {
        let request = Arc::default();
        Flusher { request, thread: Mutex::new(None), delay: bound / 2 }
    }

    /// Asks for a sync of everything that was appended before.
    pub(super) fn ask(&self, core: &Arc<Core>) -> io::Result<()> {
        if self.request.is_asked.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let mut running = self.thread.lock();
        if running.is_none() {
            let (core, request, delay) = (Arc::clone(core), Arc::clone(&self.request), self.delay);
            let flusher = thread::Builder::new().name("log-flusher".into());
            let started = flusher.spawn(move || request.serve(&core, delay));
            *running = Some(started.inspect_err(|_| {
                self.request.is_asked.store(false, Ordering::Release);
            })?);
        }
        drop(running);
        // Taken so that the thread is either before its look at the request or asleep.
        drop(self.request.is_stopped.lock());
        self.request.changed.notify_one();
        Ok(())
    }
}

impl Request {
    fn serve(&self, core: &Core, delay: Duration) {
        let mut is_stopped = self.is_stopped.lock();
        loop {
            while !*is_stopped && !self.is_asked.load(Ordering::Acquire) {
                self.changed.wait(&mut is_stopped);
            }
            let due = Instant::now() + delay;
            while !*is_stopped && !self.changed.wait_until(&mut is_stopped, due).timed_out() {}
            let is_asked = self.is_asked.swap(false, Ordering::AcqRel);
            let is_last = *is_stopped;
            if is_asked {
                // An error closes the log, and the next that uses it is told.
                let forced = MutexGuard::unlocked(&mut is_stopped, || core.force(core.end()));
                if forced.is_err() {
                    return;
                }
            }
            if is_last {
                return;
            }
        }
    }
}

impl Flusher {
    /// Ends the thread, which first does what it was asked to.
    pub(super) fn finish(&self) {
        *self.request.is_stopped.lock() = true;
        self.request.changed.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            // A panic there has been reported by the thread itself.
            let _ = thread.join();
        }
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.finish();
    }
}

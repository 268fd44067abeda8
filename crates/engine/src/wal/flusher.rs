//! The thread that makes durable what may wait a little, and writes ahead what is much.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::commit::Core;

/// Forces the log within a time after it was asked to, or writes it at once; started when it is
/// first asked.
pub(super) struct Flusher {
    request: Arc<Request>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Time from the request to the sync.
    delay: Duration,
}

#[derive(Default)]
struct Request {
    is_asked: AtomicBool,
    /// To write what there is, without a sync.
    is_long: AtomicBool,
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
        self.wake(core).inspect_err(|_| self.request.is_asked.store(false, Ordering::Release))
    }

    /// Asks for everything that was appended before to be written, if there is a thread to do it.
    pub(super) fn ask_to_write(&self, core: &Arc<Core>) {
        if !self.request.is_long.swap(true, Ordering::AcqRel) && self.wake(core).is_err() {
            self.request.is_long.store(false, Ordering::Release);
        }
    }

    fn wake(&self, core: &Arc<Core>) -> io::Result<()> {
        let mut running = self.thread.lock();
        if running.is_none() {
            let (core, request, delay) = (Arc::clone(core), Arc::clone(&self.request), self.delay);
            let flusher = thread::Builder::new().name("log-flusher".into());
            *running = Some(flusher.spawn(move || request.serve(&core, delay))?);
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
        // When to sync, once that was asked for.
        let mut due: Option<Instant> = None;
        loop {
            if due.is_none() && self.is_asked.load(Ordering::Acquire) {
                due = Some(Instant::now() + delay);
            }
            let is_due = due.is_some_and(|due| *is_stopped || due <= Instant::now());
            let is_long = self.is_long.load(Ordering::Acquire);
            if is_due {
                due = None;
                self.is_asked.swap(false, Ordering::AcqRel);
            }
            if is_due || is_long {
                // An error closes the log, and the next that uses it is told.
                let done = MutexGuard::unlocked(&mut is_stopped, || {
                    if is_due { core.force(core.end()) } else { core.write_out(core.end()) }
                });
                self.is_long.store(false, Ordering::Release);
                if done.is_err() {
                    return;
                }
            } else if *is_stopped {
                return;
            } else if let Some(due) = due {
                self.changed.wait_until(&mut is_stopped, due);
            } else {
                self.changed.wait(&mut is_stopped);
            }
        }
    }
}

impl Drop for Flusher {
    /// Waits for the thread, which first does what it was asked to.
    fn drop(&mut self) {
        *self.request.is_stopped.lock() = true;
        self.request.changed.notify_one();
        if let Some(thread) = self.thread.get_mut().take() {
            // A panic there has been reported by the thread itself.
            let _ = thread.join();
        }
    }
}

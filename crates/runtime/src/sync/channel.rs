//! Values handed from threads or tasks to one that receives them, in the order in which they came.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::{Condvar, Mutex};
use crate::clock;

/// Returns the two ends of a channel without a bound.
#[must_use]
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let queue = Queue { values: VecDeque::new(), senders: 1, is_received: true };
    let shared = Arc::new(Shared { queue: Mutex::new(queue), changed: Condvar::new() });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

#[derive(Debug)]
struct Shared<T> {
    queue: Mutex<Queue<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct Queue<T> {
    values: VecDeque<T>,
    senders: usize,
    is_received: bool,
}

/// The receiver has been dropped; the value comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nobody receives from the channel any more")]
pub struct SendError<T>(pub T);

/// All senders have been dropped, and no value is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nobody sends to the channel any more")]
pub struct RecvError;

/// No value was received in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecvTimeoutError {
    /// The time is over.
    #[error("no value came in time")]
    Timeout,
    /// All senders have been dropped, and no value is left.
    #[error("nobody sends to the channel any more")]
    Disconnected,
}

/// The end of a channel that sends.
#[derive(Debug)]
pub struct Sender<T>(Arc<Shared<T>>);

/// The end of a channel that receives.
#[derive(Debug)]
pub struct Receiver<T>(Arc<Shared<T>>);

impl<T> Sender<T> {
    /// Puts a value behind those that were sent before. It does not wait.
    ///
    /// # Errors
    ///
    /// [`SendError`] with the value, if the receiver has been dropped.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        let mut queue = self.0.queue.lock();
        if !queue.is_received {
            return Err(SendError(value));
        }
        queue.values.push_back(value);
        drop(queue);
        self.0.changed.notify_one();
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.0.queue.lock().senders += 1;
        Sender(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.queue.lock().senders -= 1;
        self.0.changed.notify_one();
    }
}

impl<T> Receiver<T> {
    /// Waits for the next value.
    ///
    /// # Errors
    ///
    /// [`RecvError`], if there is none and all senders have been dropped.
    pub fn recv(&self) -> Result<T, RecvError> {
        let mut queue = self.0.queue.lock();
        loop {
            if let Some(value) = queue.values.pop_front() {
                return Ok(value);
            }
            if queue.senders == 0 {
                return Err(RecvError);
            }
            self.0.changed.wait(&mut queue);
        }
    }

    /// Waits for the next value, at the longest for `time`.
    ///
    /// # Errors
    ///
    /// [`RecvTimeoutError`], if there is none after that time or no sender any more.
    pub fn recv_timeout(&self, time: Duration) -> Result<T, RecvTimeoutError> {
        let until = clock::now() + time;
        let mut queue = self.0.queue.lock();
        loop {
            if let Some(value) = queue.values.pop_front() {
                return Ok(value);
            }
            if queue.senders == 0 {
                return Err(RecvTimeoutError::Disconnected);
            }
            if clock::now() >= until {
                return Err(RecvTimeoutError::Timeout);
            }
            self.0.changed.wait_until(&mut queue, until);
        }
    }

    /// Returns the next value, if one is there.
    #[must_use]
    pub fn try_recv(&self) -> Option<T> {
        self.0.queue.lock().values.pop_front()
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.queue.lock().is_received = false;
    }
}

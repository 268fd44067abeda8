//! Threads that do something over and over.

use std::io;
use std::time::Duration;

use tidegate_runtime::sync::{RecvTimeoutError, Sender, channel};
use tidegate_runtime::thread::{self, JoinHandle};

/// A thread that does something over and over. Dropping this waits until it has stopped.
#[derive(Debug)]
pub(crate) struct Periodic {
    /// Dropped to stop.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Periodic {
    /// Starts a thread that calls `act`, which returns how long to rest before the next call.
    pub(crate) fn start(
        name: &str,
        mut act: impl FnMut() -> Duration + Send + 'static,
    ) -> io::Result<Periodic> {
        let (stop, stopped) = channel();
        let thread = thread::spawn(name, move || {
            let mut rest = Duration::ZERO;
            while stopped.recv_timeout(rest) == Err(RecvTimeoutError::Timeout) {
                rest = act();
            }
        })?;
        Ok(Periodic { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Periodic {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a background thread panicked");
        }
    }
}

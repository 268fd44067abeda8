//! Signs of life for the service manager, as long as every event loop turns.
//!
//! An event loop turns at least every quarter of a second, also when nothing happens. One that
//! does not has met an endless loop or a lock that never opens; then no sign is given, and the
//! manager restarts the proxy.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::metrics::WorkerCounters;
use crate::notify::{ServiceState, notify};

/// Event loops turn at least this often, with room for a machine that is busy.
const TURN_TIME: Duration = Duration::from_secs(1);

/// The running thread; dropping it stops it.
pub(crate) struct Watchdog {
    /// Closed to stop the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts to give signs of life that are expected every `within`.
    ///
    /// # Errors
    /// There can be no more threads.
    pub(crate) fn start(
        within: Duration,
        workers: Vec<Arc<WorkerCounters>>,
    ) -> std::io::Result<Watchdog> {
        let (stop, stopped) = mpsc::channel::<()>();
        let interval = (within / 2).max(Duration::from_millis(1));
        if interval < TURN_TIME {
            tracing::warn!(?within, "the watchdog's time is short; at least 2 s are needed");
        }
        let thread = std::thread::Builder::new().name("tidegate-watchdog".into());
        let thread = thread.spawn(move || {
            let mut before = turns(&workers);
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                let now = turns(&workers);
                if now.iter().zip(&before).all(|(now, before)| now != before) {
                    notify(ServiceState::Alive);
                } else {
                    tracing::error!("an event loop has stopped turning");
                }
                before = now;
            }
        })?;
        Ok(Watchdog { stop: Some(stop), thread: Some(thread) })
    }
}

fn turns(workers: &[Arc<WorkerCounters>]) -> Vec<u64> {
    workers.iter().map(|worker| worker.turns.load(Ordering::Relaxed)).collect()
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the watchdog panicked");
        }
    }
}

//! The background writer: writes pages ahead of need and takes checkpoints.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::core::{Core, StoreError};
use crate::wal::Lsn;

/// The thread. Dropping it waits until it has stopped.
pub(super) struct BackgroundWriter {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Stop {
    is_asked: Mutex<bool>,
    asked: Condvar,
}

/// How long the thread rests when there was nothing to write.
const REST: Duration = Duration::from_millis(50);

impl BackgroundWriter {
    pub(super) fn start(core: &Arc<Core>, checkpoint_bytes: u64) -> io::Result<BackgroundWriter> {
        let stop = Arc::new(Stop::default());
        let (core, stopped) = (Arc::clone(core), Arc::clone(&stop));
        let has_failed = AtomicBool::new(false);
        let thread =
            std::thread::Builder::new().name("tidegate-writer".into()).spawn(move || {
                let mut last = core.log.end();
                let mut is_idle = false;
                while !stopped.wait(if is_idle { REST } else { Duration::ZERO }) {
                    match write_some(&core, &mut last, checkpoint_bytes) {
                        Ok(written) => is_idle = written == 0,
                        Err(error) => {
                            is_idle = true;
                            // Every user of the store gets the same error.
                            if !has_failed.swap(true, Ordering::Relaxed) {
                                tracing::error!("the background writer: {error}");
                            }
                        }
                    }
                }
            })?;
        Ok(BackgroundWriter { stop, thread: Some(thread) })
    }
}

/// Takes a checkpoint if one is due, and writes pages that are likely to be replaced next. Returns
/// how many.
fn write_some(core: &Core, last: &mut Lsn, checkpoint_bytes: u64) -> Result<usize, StoreError> {
    if core.log.end().0 - last.0 > checkpoint_bytes {
        core.pool.write_all()?;
        core.checkpoint()?;
        *last = core.log.end();
    }
    Ok(core.pool.write_coldest()?)
}

impl Stop {
    /// Waits for `rest` or until the thread should stop. Returns whether it should.
    fn wait(&self, rest: Duration) -> bool {
        let mut is_asked = self.is_asked.lock();
        if !*is_asked && !rest.is_zero() {
            self.asked.wait_for(&mut is_asked, rest);
        }
        *is_asked
    }
}

impl Drop for BackgroundWriter {
    fn drop(&mut self) {
        *self.stop.is_asked.lock() = true;
        self.stop.asked.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the background writer panicked");
        }
    }
}

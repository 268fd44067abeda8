//! The background writer: writes pages ahead of need and takes checkpoints.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::core::{Core, StoreError};
use crate::periodic::Periodic;
use crate::wal::Lsn;

/// How long the thread rests when there was nothing to write.
const REST: Duration = Duration::from_millis(50);

pub(super) fn start_writer(core: &Arc<Core>, checkpoint_bytes: u64) -> io::Result<Periodic> {
    let core = Arc::clone(core);
    let mut last = core.log.end();
    let mut has_failed = false;
    Periodic::start("tidegate-writer", move || {
        match write_some(&core, &mut last, checkpoint_bytes) {
            Ok(0) => REST,
            Ok(_) => Duration::ZERO,
            Err(error) => {
                // Every user of the store gets the same error.
                if !std::mem::replace(&mut has_failed, true) {
                    tracing::error!("the background writer: {error}");
                }
                REST
            }
        }
    })
}

/// Takes a checkpoint if one is due, and writes pages that are likely to be replaced next. Returns
/// how many.
fn write_some(core: &Core, last: &mut Lsn, checkpoint_bytes: u64) -> Result<usize, StoreError> {
    debug_assert!(*last <= core.log.end(), "the log goes forward");
    if core.log.end().0 - last.0 > checkpoint_bytes {
        core.pool.write_all()?;
        core.checkpoint()?;
        *last = core.log.end();
    }
    Ok(core.pool.write_coldest()?)
}

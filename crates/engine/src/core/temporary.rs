//! Temporary files of a store.
//!
//! A temporary file loses its name as soon as it is made, and its room when it is closed. The
//! opening of a store removes those that kept their name in a crash.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::disk::{Disk, File, Open};

/// What the names of temporary files begin with, and no other file's.
const PREFIX: &str = "temporary-";

/// Makes temporary files.
pub(crate) struct TemporaryFiles {
    disk: Arc<dyn Disk>,
    /// Files made so far.
    made: AtomicU64,
}

impl TemporaryFiles {
    pub(crate) fn new(disk: &Arc<dyn Disk>) -> TemporaryFiles {
        TemporaryFiles { disk: Arc::clone(disk), made: AtomicU64::new(0) }
    }

    /// Makes an empty file without a name.
    pub(crate) fn make(&self) -> io::Result<Arc<dyn File>> {
        let name = format!("{PREFIX}{}", self.made.fetch_add(1, Ordering::Relaxed));
        let file = self.disk.open(&name, Open::New)?;
        self.disk.remove(&name)?;
        Ok(file)
    }

    /// Removes the files that a crash has left.
    pub(crate) fn remove_all(disk: &dyn Disk) -> io::Result<()> {
        for name in disk.list()?.iter().filter(|name| name.starts_with(PREFIX)) {
            disk.remove(name)?;
        }
        Ok(())
    }
}

//! The file of pages, as those who write batches share it: its length, its syncs, its writers.

use std::io;
use std::sync::Arc;

use tidegate_runtime::sync::{Condvar, Mutex};

use super::shared_sync::SharedSync;
use super::writers::{Run, Writers};
use crate::disk::File;
use crate::page::PageId;

/// The file grows by so many bytes at a time, so that not every write changes its length.
const GROWTH_BYTES: u64 = 4 << 20;

/// The file of pages.
pub(super) struct DataFile {
    shared: SharedSync,
    writers: Writers,
    page_bytes: u64,
    length: Mutex<Length>,
    grown: Condvar,
}

struct Length {
    /// How far the file has been lengthened durably, in pages.
    pages: u64,
    is_growing: bool,
}

impl DataFile {
    pub(super) fn new(
        file: Arc<dyn File>,
        page_bytes: usize,
        io_writers: usize,
    ) -> io::Result<DataFile> {
        let page_bytes = page_bytes as u64;
        let length = Length { pages: file.len()? / page_bytes, is_growing: false };
        Ok(DataFile {
            shared: SharedSync::new(file),
            writers: Writers::new(io_writers),
            page_bytes,
            length: Mutex::new(length),
            grown: Condvar::new(),
        })
    }

    pub(super) fn file(&self) -> &dyn File {
        &**self.shared.file()
    }

    /// Writes runs of `bytes`, several at the same time, and gives the memory back. They are not
    /// synced.
    pub(super) fn write(&self, bytes: Vec<u8>, runs: Vec<Run>) -> (Vec<u8>, io::Result<()>) {
        self.writers.write(self.shared.file(), bytes, runs)
    }

    /// Makes durable what was written before the call.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.shared.sync()
    }

    /// Has the file hold the page `last`, durably. It grows in large steps.
    pub(super) fn lengthen(&self, last: PageId) -> io::Result<()> {
        let mut length = self.length.lock();
        while last.0 >= length.pages {
            if length.is_growing {
                self.grown.wait(&mut length);
                continue;
            }
            length.is_growing = true;
            drop(length);
            let grown = self.grow(last);
            length = self.length.lock();
            length.is_growing = false;
            self.grown.notify_all();
            length.pages = grown?;
        }
        Ok(())
    }

    /// Lengthens the file to hold the page `last`. Returns how many pages it has room for.
    fn grow(&self, last: PageId) -> io::Result<u64> {
        let step = GROWTH_BYTES / self.page_bytes;
        let pages = (last.0 / step + 1) * step;
        self.shared.file().set_len(pages * self.page_bytes)?;
        // Or a crash may leave the file long, and what was there before on the disk in it.
        self.sync()?;
        Ok(pages)
    }

    /// Ends the threads that write. Nothing is being written.
    pub(super) fn stop(&self) {
        self.writers.stop();
    }
}

//! Putting batches into segments.
//!
//! A segment is synced before the log goes on in the next, so that only one file at a time has
//! anything to sync, and the name of a segment on the disk says that those before it are complete.
//!
//! A sync is cheap when it need not change the file's length or its list of blocks. So a small
//! write behind what was written of a file is followed by zeros, which the same sync makes durable,
//! and the next writes overwrite them. On ext4, writes of 2 to 8 KiB with a sync each were so 1.5
//! times as many a second as in a file that grows, and 1.2 times as many as in one whose length is
//! set before, because there the blocks are still to be found. With 64 KiB all were the same, so a
//! large write is not followed by zeros.

use std::io;
use std::sync::Arc;

use super::layout::to_usize;
use super::segment::{Segments, segment_name};
use super::{LogError, Lsn};
use crate::disk::File;

/// Files are filled with as many bytes of zeros at once.
const AHEAD: u64 = 1 << 20;

/// Writes of as many bytes and more are not followed by zeros.
const LARGE: usize = 64 << 10;

/// The segment that is being written.
#[derive(Default)]
pub(super) struct Writer {
    current: Option<Current>,
}

struct Current {
    segment: Lsn,
    file: Arc<dyn File>,
    /// Up to here the file's blocks were written.
    filled: u64,
    is_synced: bool,
}

impl Writer {
    /// Writes `bytes`, which lie within one segment; returns how many were written, zeros included.
    pub(super) fn write(
        &mut self,
        segments: &Segments,
        lsn: Lsn,
        bytes: &[u8],
    ) -> Result<u64, LogError> {
        let layout = segments.layout();
        let segment = layout.segment(lsn);
        let current = match &mut self.current {
            Some(current) if current.segment == segment => current,
            _ => self.enter(segments, lsn)?,
        };
        current
            .write(bytes, layout.offset(lsn), layout.segment_bytes())
            .map_err(|error| segments.failed("writing", lsn, error))
    }

    /// Goes on with the segment of `lsn`, which was opened or is begun now.
    fn enter(&mut self, segments: &Segments, lsn: Lsn) -> Result<&mut Current, LogError> {
        self.sync()?;
        let segment = segments.layout().segment(lsn);
        let (file, filled) = match segments.find(segment)? {
            Some(file) => (file, segments.layout().offset(lsn)),
            None => segments.begin(segment)?,
        };
        Ok(self.current.insert(Current { segment, file, filled, is_synced: true }))
    }

    /// Makes durable what was written.
    pub(super) fn sync(&mut self) -> Result<(), LogError> {
        if let Some(current) = self.current.as_mut().filter(|current| !current.is_synced) {
            let synced = current.file.sync();
            synced
                .map_err(|error| LogError::io(&segment_name(current.segment), "syncing", error))?;
            current.is_synced = true;
        }
        Ok(())
    }
}

impl Current {
    fn write(&mut self, bytes: &[u8], offset: u64, segment_bytes: u64) -> io::Result<u64> {
        self.is_synced = false;
        self.file.write_at(bytes, offset)?;
        let end = offset + bytes.len() as u64;
        if end <= self.filled {
            return Ok(bytes.len() as u64);
        }
        self.filled = end;
        if bytes.len() < LARGE {
            let filled = (end + 1).next_multiple_of(AHEAD).min(segment_bytes);
            self.file.write_at(&vec![0; to_usize(filled - end)], end)?;
            self.filled = filled;
        }
        Ok(self.filled - offset)
    }
}

//! Pages on their way to disk.
//!
//! # Mechanism
//! A batch of changed pages is copied, each under its latch, and sealed. Then, without any latch:
//! the log is forced up to the highest LSN among them, the batch is written and synced as a whole
//! to the doublewrite file, and only then each page to its place, which is synced as well. A crash
//! during the former leaves all places as they were; during the latter, every page that was hit is
//! whole in the doublewrite file. Last, each page that has not been changed since its copy, and
//! that nobody is changing, is clean.

use std::sync::atomic::Ordering;

use super::frame::Frame;
use super::{BufferError, PAGES, Pool};
use crate::page::{self, PageId};
use crate::wal::Lsn;

/// Pages of a batch, at most: their list fits into a page of 4 KiB.
pub(super) const BATCH: usize = 240;

/// The file grows by so many bytes at a time, so that not every write changes its length.
const GROWTH_BYTES: u64 = 4 << 20;

/// Pages copied for writing, one behind the other.
struct Batch<'p> {
    members: Vec<(&'p Frame, PageId, Lsn)>,
    bytes: Vec<u8>,
}

/// Whether to wait for a frame's latch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    /// Who looks for a victim may hold latches itself.
    None,
    /// Who holds none may wait, as long as the batch is empty: what is in it is kept from others.
    Waits,
}

impl Pool {
    /// Writes a candidate that was dirty, and others that are likely to be next.
    pub(super) fn write_cold(&self, index: usize) -> Result<(), BufferError> {
        let share = self.frames() / 4;
        let mut coldest = self.replacement.lock().coldest(BATCH, share, &self.frames);
        coldest.insert(0, index);
        self.write_indices(&coldest, BATCH, Patience::None).map(|_| ())
    }

    /// Writes up to a batch of the pages that are likely to go next, ahead of need; how many. A
    /// quarter of the frames is to be free or clean: while so many have never been used, nothing
    /// is written, because a page that is written early is likely to be written again.
    ///
    /// # Errors
    /// A page cannot be written.
    pub(crate) fn write_ahead(&self) -> Result<usize, BufferError> {
        let (share, coldest) = {
            let replacement = self.replacement.lock();
            let share = (replacement.frames() / 4).saturating_sub(replacement.free());
            (share, replacement.coldest(BATCH, share, &self.frames))
        };
        // Two syncs are too much for a few pages.
        if coldest.len() < BATCH.min(share / 4) {
            return Ok(0);
        }
        self.write_indices(&coldest, BATCH, Patience::Waits)
    }

    /// Writes every page as it is now or later. Pages that are changed meanwhile may be left as
    /// they were written.
    ///
    /// # Errors
    /// A page cannot be written.
    pub(crate) fn write_all(&self) -> Result<(), BufferError> {
        let now = self.log.end();
        loop {
            let is_old = |frame: &Frame| frame.since().is_some_and(|since| since < now);
            let mut old: Vec<&Frame> = self.frames.iter().filter(|frame| is_old(frame)).collect();
            if old.is_empty() {
                return self.check_running();
            }
            old.sort_by_key(|frame| frame.page());
            let mut written = 0;
            for batch in old.chunks(BATCH) {
                let batch = self.copy(batch.iter().copied(), BATCH, Patience::Waits);
                written += self.write_batch(batch)?;
            }
            if written == 0 {
                // Somebody else is writing them.
                std::thread::yield_now();
            }
        }
    }

    pub(super) fn write_frames(&self, frames: &[&Frame]) -> Result<(), BufferError> {
        let batch = self.copy(frames.iter().copied(), frames.len(), Patience::Waits);
        self.write_batch(batch).map(|_| ())
    }

    fn write_indices(
        &self,
        indices: &[usize],
        count: usize,
        patience: Patience,
    ) -> Result<usize, BufferError> {
        let frames = indices.iter().filter_map(|&index| self.frames.get(index));
        self.write_batch(self.copy(frames, count, patience))
    }

    /// Copies those of `frames` that are dirty and that nobody else writes.
    fn copy<'p>(
        &self,
        frames: impl Iterator<Item = &'p Frame>,
        count: usize,
        patience: Patience,
    ) -> Batch<'p> {
        let size = self.page_size.bytes();
        let mut batch = Batch { members: Vec::new(), bytes: Vec::new() };
        for frame in frames.filter(|frame| frame.is_dirty()) {
            if batch.members.len() == count {
                break;
            }
            match patience {
                Patience::Waits if batch.members.is_empty() => frame.lock_shared(),
                _ if frame.try_lock_shared() => {}
                _ => continue,
            }
            if frame.is_dirty() && !frame.page().is_none() && frame.begin_writing() {
                let bytes = frame.bytes(size);
                batch.members.push((frame, frame.page(), page::lsn(bytes)));
                batch.bytes.extend_from_slice(bytes);
            }
            frame.unlock_shared();
        }
        batch
    }

    fn write_batch(&self, mut batch: Batch<'_>) -> Result<usize, BufferError> {
        if batch.members.is_empty() {
            return self.check_running().map(|()| 0);
        }
        let result = self.check_running().and_then(|()| self.write_copies(&mut batch));
        if result.is_err() {
            self.is_stopped.store(true, Ordering::Relaxed);
        }
        for &(frame, _, lsn) in &batch.members {
            // Not waited for: who changes the page may wait for a frame that the caller is to free,
            // and the page is not clean any more anyway.
            if result.is_ok() && frame.try_lock_shared() {
                frame.was_written(lsn, page::lsn(frame.bytes(self.page_size.bytes())));
                frame.unlock_shared();
            }
            frame.end_writing();
        }
        result.map(|()| batch.members.len())
    }

    fn check_running(&self) -> Result<(), BufferError> {
        if self.is_stopped.load(Ordering::Relaxed) { Err(BufferError::Stopped) } else { Ok(()) }
    }

    fn write_copies(&self, batch: &mut Batch<'_>) -> Result<(), BufferError> {
        let size = self.page_size.bytes();
        let mut order: Vec<usize> = (0..batch.members.len()).collect();
        order.sort_by_key(|&member| batch.members[member].1);
        let mut sorted = Vec::with_capacity(batch.bytes.len());
        for &member in &order {
            sorted.extend_from_slice(&batch.bytes[member * size..(member + 1) * size]);
        }
        let ids: Vec<PageId> = order.iter().map(|&member| batch.members[member].1).collect();
        sorted.chunks_exact_mut(size).for_each(|page| page::seal(page, self.seed));

        let last = batch.members.iter().map(|member| member.2).max().unwrap_or(Lsn::ZERO);
        self.log.force(last)?;
        let first = ids.first().copied().unwrap_or(PageId::NONE);
        let failed =
            |action| move |source| BufferError::Io { action, file: PAGES, page: first, source };
        let mut doublewrite = self.doublewrite.lock();
        doublewrite.write(&ids, &sorted, size).map_err(failed("write a copy of"))?;
        self.lengthen(ids.last().copied().unwrap_or(first)).map_err(failed("make room for"))?;
        for (start, run) in runs(&ids) {
            let bytes = &sorted[start * size..(start + run) * size];
            self.file.write_at(bytes, ids[start].0 * size as u64).map_err(failed("write"))?;
        }
        self.file.sync().map_err(failed("sync"))?;
        drop(doublewrite);
        self.count_writes(&sorted);
        Ok(())
    }

    /// Lengthens the file in large steps.
    fn lengthen(&self, last: PageId) -> std::io::Result<()> {
        let size = self.page_size.bytes() as u64;
        let mut file_pages = self.file_pages.lock();
        if last.0 >= *file_pages {
            let step = GROWTH_BYTES / size;
            let pages = (last.0 / step + 1) * step;
            self.file.set_len(pages * size)?;
            // Or a crash may leave the file long, and what was there before on the disk in it.
            self.file.sync()?;
            *file_pages = pages;
        }
        Ok(())
    }

    fn count_writes(&self, pages: &[u8]) {
        for page in pages.chunks_exact(self.page_size.bytes()) {
            if page::kind(page) == page::Kind::Node {
                self.counters(page::Node::new(page).tree()).count_write();
            }
        }
    }
}

/// Where pages that follow each other begin in `ids`, which are sorted, and how many they are.
fn runs(ids: &[PageId]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (at, id) in ids.iter().enumerate() {
        match runs.last_mut() {
            Some((start, len)) if ids[*start].0 + *len as u64 == id.0 => *len += 1,
            _ => runs.push((at, 1)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_written_together() {
        let ids = [2, 3, 4, 7, 9, 10].map(PageId);
        assert_eq!(runs(&ids), [(0, 3), (3, 1), (4, 2)]);
        assert_eq!(runs(&[]), []);
    }
}

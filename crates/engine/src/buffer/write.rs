//! Pages on their way to disk.
//!
//! # Mechanism
//! A batch of changed pages is copied, each under its latch, and sealed. Then, without any latch or
//! mutex: the log is forced up to the highest LSN among them, the batch is written and synced as a
//! whole to its slot of the doublewrite file, and only then each page to its place, by as many
//! writers as there may be (`writers`); then the file of pages is synced. A crash during the former
//! leaves all places as they were; during the latter, every page that was hit is whole in the
//! doublewrite file. Last, each page that has not been changed since its copy, and that no thread
//! is changing, is clean.
//!
//! # Several batches
//! Up to [`BATCHES`](super::slots::BATCHES) are under way at the same time, each with a slot of its
//! own. They share syncs (`shared_sync`), and no page is in two of them (rule 4 of the pool).
//! Batches are written by three kinds of threads: the background writer, those that flush the
//! store, and those that look for a frame and find none that is clean (`victim`). The first two
//! wait for a slot, and hold no latch then. The third never does, and waits for batches of others
//! instead. Who waits for a latch in order to copy has no slot: the owner of the latch may look
//! for a frame, and need one.
//!
//! # Errors
//! When a write or a sync fails, no page of the batch is called clean, and the log is stopped
//! before the batch gives its slot back: a batch looks at the log after it has got its slot, so no
//! copy that may be needed is overwritten. Batches that are under way go on. Their pages are in
//! slots of their own, and a sync that fails, fails all that wait for it or come later.

use tidegate_runtime::work::{self, Operation};

use super::frame::Frame;
use super::slots::BatchTicket;
use super::writers::Run;
use super::{BufferError, PAGES, Pool};
use crate::page::{self, PageId, TreeId};
use crate::wal::Lsn;

/// Pages of a batch, at most: their list fits into a page of 4 KiB.
pub(super) const BATCH: usize = 240;

/// Buffers of batches that are kept for the next ones.
const SPARES: usize = 2;

/// Pages copied for writing, in the order of their numbers.
struct Batch<'p> {
    members: Vec<(&'p Frame, PageId, Lsn)>,
    /// A page for their list in the doublewrite file, and they one behind the other.
    bytes: Vec<u8>,
}

/// Whether to wait for a frame's latch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LatchWait {
    /// Who looks for a victim may hold latches itself.
    Never,
    /// Who holds none may wait, as long as the batch is empty: what is in it is kept from others.
    IfBatchIsEmpty,
}

impl Pool {
    /// Writes a batch of pages whose turn to go has come, and others that are likely to be next.
    /// Returns how many, 0 if others write so many already that it is better to wait for them.
    pub(super) fn write_victims(&self) -> Result<usize, BufferError> {
        let Some(ticket) = self.slots.try_begin() else { return Ok(0) };
        let victims = {
            let replacement = self.replacement.lock();
            let mut victims = replacement.waiting_aside(BATCH, &self.frames);
            let (more, share) = (BATCH - victims.len(), replacement.frames() / 4);
            victims.extend(replacement.coldest(more, share, &self.frames));
            victims
        };
        // Two syncs are too much for a few pages, unless there is nothing else to wait for.
        let is_enough = victims.len() >= BATCH.min(self.frames() / 16) || ticket.others.is_empty();
        let victims = if is_enough { victims } else { Vec::new() };
        let batch = self.copy_indices(&victims, LatchWait::Never);
        if batch.members.is_empty() {
            self.slots.end(&ticket);
            self.keep_spare(batch.bytes);
            return Ok(0);
        }
        self.write_batch(batch, &ticket)
    }

    /// Writes up to a batch of the pages that are likely to be replaced next. Returns how many. A
    /// quarter of the frames is to be free or clean: while so many have never been used, nothing is
    /// written, because a page that is written early is likely to be written again.
    pub(crate) fn write_coldest(&self) -> Result<usize, BufferError> {
        let (share, coldest) = {
            let replacement = self.replacement.lock();
            let share = (replacement.frames() / 4).saturating_sub(replacement.available());
            (share, replacement.coldest(BATCH, share, &self.frames))
        };
        // Two syncs are too much for a few pages.
        if coldest.len() < BATCH.min(share / 4) {
            return Ok(0);
        }
        self.write_copied(self.copy_indices(&coldest, LatchWait::IfBatchIsEmpty))
    }

    /// Writes every page as it is now or later. Pages that are changed meanwhile may be left as
    /// they were written.
    pub(crate) fn write_all(&self) -> Result<(), BufferError> {
        let now = self.log.end();
        loop {
            let seen = self.events.count();
            let is_old = |frame: &Frame| frame.since().is_some_and(|since| since < now);
            let mut old: Vec<&Frame> = self.frames.iter().filter(|frame| is_old(frame)).collect();
            if old.is_empty() {
                return self.check_running();
            }
            // Cached: a frame that another thread writes meanwhile may get another page.
            old.sort_by_cached_key(|frame| frame.page());
            let mut written = 0;
            for batch in old.chunks(BATCH) {
                written += self.write_copied(self.copy(batch, LatchWait::IfBatchIsEmpty))?;
            }
            if written == 0 {
                // Another thread is writing them.
                self.events.wait(seen);
            }
        }
    }

    pub(super) fn write_frames(&self, frames: &[&Frame]) -> Result<(), BufferError> {
        self.write_copied(self.copy(frames, LatchWait::IfBatchIsEmpty)).map(|_| ())
    }

    fn copy_indices(&self, indices: &[usize], latch_wait: LatchWait) -> Batch<'_> {
        let frames = indices.iter().take(BATCH).map(|&index| &self.frames[index]);
        let mut frames: Vec<&Frame> = frames.collect();
        frames.sort_by_cached_key(|frame| frame.page());
        self.copy(&frames, latch_wait)
    }

    /// Copies those of `frames`, a batch at most and in the order of their pages, that are dirty
    /// and that no other thread writes.
    fn copy<'p>(&self, frames: &[&'p Frame], latch_wait: LatchWait) -> Batch<'p> {
        let size = self.page_size.bytes();
        let mut batch = Batch { members: Vec::new(), bytes: self.spare() };
        batch.bytes.resize(size, 0);
        for &frame in frames.iter().filter(|frame| frame.is_dirty()) {
            match latch_wait {
                LatchWait::IfBatchIsEmpty if batch.members.is_empty() => frame.lock_shared(),
                _ if frame.try_lock_shared() => {}
                _ => continue,
            }
            let page = frame.page();
            // One that has got another page meanwhile may be out of order.
            let is_next = batch.members.last().is_none_or(|(_, last, _)| *last < page);
            if frame.is_dirty() && !page.is_none() && is_next && frame.begin_writing() {
                let bytes = frame.bytes(size);
                debug_assert_eq!(page::id(bytes), page, "a frame has the page that it says");
                batch.members.push((frame, page, page::lsn(bytes)));
                batch.bytes.extend_from_slice(bytes);
                work::count(Operation::PageWrite, 1);
            }
            frame.unlock_shared();
        }
        batch
    }

    /// Writes a batch when there is room for it. Returns how many pages it has.
    fn write_copied(&self, batch: Batch<'_>) -> Result<usize, BufferError> {
        if batch.members.is_empty() {
            self.keep_spare(batch.bytes);
            return self.check_running().map(|()| 0);
        }
        let ticket = self.slots.begin();
        self.write_batch(batch, &ticket)
    }

    /// Writes a batch that has members. Returns how many.
    fn write_batch(
        &self,
        mut batch: Batch<'_>,
        ticket: &BatchTicket,
    ) -> Result<usize, BufferError> {
        // After it has its slot: once the log is closed, nothing is written after
        // `wait_for_writes`.
        let result = self.check_running().and_then(|()| self.write_copies(&mut batch, ticket));
        if let Err(error) = &result {
            // It is unknown what is on the disk now, and a second sync would not tell.
            self.log.stop(&error.to_string());
        }
        self.slots.end(ticket);
        debug_assert!(batch.members.len() <= BATCH, "a batch has a list of one page");
        debug_assert!(batch.members.iter().all(|(frame, ..)| frame.is_being_written()), "rule 4");
        for &(frame, _, lsn) in &batch.members {
            // Not waited for: who changes the page may wait for a frame that the caller is to free,
            // and the page is not clean any more anyway.
            if result.is_ok() && frame.try_lock_shared() {
                frame.was_written(lsn, page::lsn(frame.bytes(self.page_size.bytes())));
                frame.unlock_shared();
            }
            frame.end_writing();
        }
        self.replacement.lock().sort_aside(&self.frames);
        self.events.record(true);
        self.keep_spare(batch.bytes);
        result.map(|()| batch.members.len())
    }

    /// Returns an empty buffer. With memory that was used before there are no page faults.
    fn spare(&self) -> Vec<u8> {
        let mut spare = self.spares.lock().pop().unwrap_or_default();
        spare.clear();
        spare
    }

    fn keep_spare(&self, spare: Vec<u8>) {
        let mut spares = self.spares.lock();
        if spares.len() < SPARES {
            spares.push(spare);
        }
    }

    /// Ends the writing of pages, after the log was closed: returns when no batch is being written.
    pub(crate) fn stop_writing(&self) {
        debug_assert!(self.check_running().is_err(), "no batch begins any more");
        self.slots.wait_until_none();
        self.data.stop();
    }

    pub(super) fn check_running(&self) -> Result<(), BufferError> {
        Ok(self.log.check()?)
    }

    /// Writes a batch that has members to the doublewrite file and to its places.
    fn write_copies(&self, batch: &mut Batch<'_>, ticket: &BatchTicket) -> Result<(), BufferError> {
        let size = self.page_size.bytes();
        let ids: Vec<PageId> = batch.members.iter().map(|member| member.1).collect();
        let (_, pages) = batch.bytes.split_at_mut(size);
        pages.chunks_exact_mut(size).for_each(|page| page::seal(page, self.seed));

        let (first, last) = (ids[0], ids[ids.len() - 1]);
        debug_assert!(ids.is_sorted_by(|one, next| one < next), "runs are found by order");
        let newest = batch.members.iter().map(|member| member.2).max();
        let newest = newest.expect("a batch has members");
        self.log.force(newest)?;
        debug_assert!(newest < self.log.durable(), "rule 3 of the pool");
        let failed =
            |action| move |source| BufferError::Io { action, file: PAGES, page: first, source };
        let copied = self.doublewrite.write(ticket, &ids, &mut batch.bytes, size);
        copied.map_err(failed("write a copy of"))?;
        self.data.lengthen(last).map_err(failed("make room for"))?;
        let run = |(start, run): (usize, usize)| Run {
            // The first page of the bytes is the list.
            start: (1 + start) * size,
            len: run * size,
            offset: ids[start].0 * size as u64,
        };
        let runs = runs(&ids).into_iter().map(run).collect();
        let trees = self.trees(&batch.bytes[size..]);
        let (bytes, written) = self.data.write(std::mem::take(&mut batch.bytes), runs);
        batch.bytes = bytes;
        written.map_err(failed("write"))?;
        self.data.sync().map_err(failed("sync"))?;
        for tree in trees {
            self.counters(tree).count_write();
        }
        Ok(())
    }

    /// Returns the trees of the nodes among `pages`, one for each.
    fn trees(&self, pages: &[u8]) -> Vec<TreeId> {
        let pages = pages.chunks_exact(self.page_size.bytes());
        let nodes = pages.filter(|page| page::kind(page) == page::Kind::Node);
        nodes.map(|page| page::Node::new(page).tree()).collect()
    }
}

/// Returns where pages that follow each other begin in `ids`, which are sorted, and how many they
/// are.
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

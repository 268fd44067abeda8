//! The buffer pool: pages in memory, and which of them stay there.
//!
//! # Mechanism
//! A fixed number of *frames* hold a page each. A table indexed by page number says which frame a
//! page is in, so that finding one takes two loads and no lock (`table`; compare vmcache, Leis et
//! al., SIGMOD 2023). Every frame has a *latch* for readers and one writer. The thread that holds
//! it also pins the page: a frame is given to another page only under its exclusive latch, which is
//! tried and not waited for. After latching, the frame's page number is compared with the one
//! wanted; if it was given away in between, the search begins anew.
//!
//! A page that is not there is read by one thread (`loading`) into a free frame, or into that of a
//! victim (`victim`) that `replacement` names. Pages that were changed go to disk in batches
//! (`write`), which the background writer does ahead of need. Reads of different pages do not wait
//! for each other, and several batches are written at the same time, each by as many writers as
//! [`StoreOptions::io_writers`](crate::StoreOptions::io_writers) says. No mutex is held while a
//! page is read, written or synced.
//!
//! # Rules
//! 1. A page is changed only under its exclusive latch and only by a logged change
//!    ([`Exclusive::apply`]).
//! 2. Before a change is logged the frame gets a recovery LSN that is not above the record's
//!    ([`Exclusive::announce`]), so that a checkpoint that looks at the frame cannot miss it.
//! 3. A page goes to disk only when the log is durable up to the page's LSN.
//! 4. Between the copy of a page for writing and the end of that write the frame is *being
//!    written*: no other thread writes it, and it is not given away.
//! 5. No latch is held while the writes of a batch are made, and neither a latch nor the end of
//!    another's batch slot is waited for by who looks for a victim. So a thread may read a page
//!    while it holds latches on others.
//!
//! # Limits
//! * The pin and the latch are one. A cursor that wants to rest on a page without its latch
//!   remembers page and LSN and looks again; what it costs is a search when the page has changed.
//! * The table takes four bytes for each page of the file, whatever the size of the pool.

mod arena;
mod counters;
mod data_file;
mod doublewrite;
mod frame;
mod loading;
mod replacement;
#[cfg(test)]
mod schedules_tests;
mod shared_sync;
mod slots;
mod table;
mod victim;
mod write;
mod writers;

use std::collections::HashMap;
use std::io;
use std::ops::Deref;
use std::sync::Arc;

use thiserror::Error;
use tidegate_runtime::sync::{Mutex, RwLock};

use crate::disk::File;
use crate::page::{self, Change, ChangeError, PageFault, PageId, PageSize, Seed, TreeId};
use crate::wal::{Log, LogError, Lsn};

use arena::Arena;
pub(crate) use arena::prefetch;
pub use counters::{IoCounters, IoCounts};
use data_file::DataFile;
pub(crate) use doublewrite::{DoubleWrite, NAME as DOUBLEWRITE};
use frame::Frame;
use loading::Loading;
use replacement::Replacement;
use slots::Slots;
use table::Table;
use victim::FrameEvents;

/// Fewer frames than this do not hold what a few threads need at once: the fewest of a store.
pub(crate) const FRAMES_MIN: usize = 64;

/// Errors of the buffer pool.
#[derive(Debug, Error)]
pub enum BufferError {
    /// The page on disk is damaged.
    #[error("page {page} of {file} is damaged: {fault}; restore the store from a backup")]
    Damaged {
        /// The name of the file.
        file: &'static str,
        /// The number of the page.
        page: PageId,
        /// What is wrong with the page.
        fault: PageFault,
    },
    /// The system cannot read or write.
    #[error("cannot {action} page {page} of {file}: {source}")]
    Io {
        /// What the system was asked to do.
        action: &'static str,
        /// The name of the file.
        file: &'static str,
        /// The number of the page.
        page: PageId,
        /// The system's error.
        source: io::Error,
    },
    /// The page has a change that is not in the log.
    #[error(
        "page {page} of {file} was changed by log record {lsn}, and the log ends before it: the \
         log has lost its end; restore the store from a backup"
    )]
    Ahead {
        /// The name of the file.
        file: &'static str,
        /// The number of the page.
        page: PageId,
        /// The record that changed it last.
        lsn: Lsn,
    },
    /// Every frame is in use. The number is that of the frames.
    #[error("all {0} frames of the buffer are in use at once; give it more")]
    Full(usize),
    /// The log is closed or cannot be written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The log does not belong to the page.
    #[error("page {page}: {source}")]
    Change {
        /// The number of the page.
        page: PageId,
        /// The reason why the change does not fit.
        source: ChangeFault,
    },
}

/// A logged change does not fit its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct ChangeFault(&'static str);

impl From<ChangeError> for ChangeFault {
    fn from(error: ChangeError) -> Self {
        ChangeFault(error.0)
    }
}

/// The name of the file of pages.
pub(crate) const PAGES: &str = "data.pages";

/// The pool.
pub(crate) struct Pool {
    page_size: PageSize,
    seed: Seed,
    data: DataFile,
    log: Arc<Log>,
    /// How few frames there may be.
    frames_min: usize,
    frames: Box<[Frame]>,
    /// What the frames' memory is part of, page after page.
    arena: Arena,
    table: Table,
    replacement: Mutex<Replacement>,
    loading: Loading,
    events: FrameEvents,
    doublewrite: DoubleWrite,
    slots: Slots,
    /// Memory of batches that were written.
    spares: Mutex<Vec<Vec<u8>>>,
    counters: RwLock<HashMap<TreeId, Arc<IoCounters>>>,
}

impl Pool {
    /// Returns a pool of `frames` frames that may grow to `frames_max`, of which a batch is written
    /// by up to `io_writers` at the same time.
    ///
    /// # Errors
    /// The length of the file cannot be read, or there is no room for the frames.
    pub(crate) fn new(
        page_size: PageSize,
        frames: usize,
        frames_max: usize,
        file: Arc<dyn File>,
        io_writers: usize,
        doublewrite: DoubleWrite,
        log: Arc<Log>,
    ) -> io::Result<Pool> {
        let frames_max = frames_max.max(frames);
        let arena = Arena::new(frames_max * page_size.bytes())?;
        let memory = |index: usize| arena.start().wrapping_add(index * page_size.bytes());
        let pool = Pool {
            page_size,
            seed: doublewrite.seed(),
            data: DataFile::new(file, page_size.bytes(), io_writers)?,
            log,
            frames_min: frames.min(FRAMES_MIN),
            frames: (0..frames_max).map(|index| Frame::new(memory(index))).collect(),
            arena,
            table: Table::new(),
            replacement: Mutex::new(Replacement::new()),
            loading: Loading::new(),
            events: FrameEvents::default(),
            slots: doublewrite.slots(),
            doublewrite,
            spares: Mutex::default(),
            counters: RwLock::new(HashMap::new()),
        };
        pool.replacement.lock().grow(frames);
        Ok(pool)
    }

    pub(crate) fn page_size(&self) -> PageSize {
        self.page_size
    }

    /// Returns how many frames there are.
    pub(crate) fn frames(&self) -> usize {
        self.replacement.lock().frames()
    }

    /// Returns the counters of a tree, made when they are first asked for.
    pub(crate) fn counters(&self, tree: TreeId) -> Arc<IoCounters> {
        if let Some(counters) = self.counters.read().get(&tree) {
            return Arc::clone(counters);
        }
        Arc::clone(self.counters.write().entry(tree).or_default())
    }

    /// Forgets the counters of a tree that has no pages any more.
    pub(crate) fn forget_counters(&self, tree: TreeId) {
        self.counters.write().remove(&tree);
    }

    /// Latches a page to be read; others may read it, too.
    pub(crate) fn read(
        &self,
        id: PageId,
        counters: &IoCounters,
    ) -> Result<Shared<'_>, BufferError> {
        counters.count_logical_reads(1);
        self.read_uncounted(id, counters)
    }

    /// Latches a page like [`Pool::read`]. The caller counts the pages of a descent together.
    pub(crate) fn read_uncounted(
        &self,
        id: PageId,
        counters: &IoCounters,
    ) -> Result<Shared<'_>, BufferError> {
        loop {
            if let Some(frame) = self.find(id) {
                frame.lock_shared();
                if frame.page() == id {
                    frame.touch();
                    return Ok(Shared { frame, size: self.page_size.bytes() });
                }
                frame.unlock_shared();
            }
            self.load(id, counters, Content::OnDisk)?;
        }
    }

    /// Returns a copy of a page as it is at this moment: from its frame, or from disk if it is in
    /// none. The pool stays as it is, nothing is counted, and no latch is waited for: `None` if the
    /// page is just being changed. While threads write the file, a copy from disk may be torn and
    /// is an error then; nothing is torn while time stands still.
    pub(crate) fn look(&self, id: PageId) -> Result<Option<Vec<u8>>, BufferError> {
        let size = self.page_size.bytes();
        let Some(index) = self.table.get(id) else {
            let mut bytes = vec![0; size];
            return self.read_from_disk(id, &mut bytes).map(|()| Some(bytes));
        };
        let frame = &self.frames[index];
        if !frame.try_lock_shared() {
            return Ok(None);
        }
        let page = Shared { frame, size };
        Ok((frame.page() == id).then(|| page.to_vec()))
    }

    /// Latches a page to be changed.
    pub(crate) fn write(
        &self,
        id: PageId,
        counters: &IoCounters,
    ) -> Result<Exclusive<'_>, BufferError> {
        self.exclusive(id, counters, Content::OnDisk)
    }

    /// Latches a page that is to be formatted, so that it is not read from disk.
    pub(crate) fn write_new(
        &self,
        id: PageId,
        counters: &IoCounters,
    ) -> Result<Exclusive<'_>, BufferError> {
        self.exclusive(id, counters, Content::New)
    }

    fn exclusive(
        &self,
        id: PageId,
        counters: &IoCounters,
        content: Content,
    ) -> Result<Exclusive<'_>, BufferError> {
        counters.count_logical_reads(1);
        loop {
            if let Some(frame) = self.find(id) {
                frame.lock_exclusive();
                if frame.page() == id {
                    frame.touch();
                    return Ok(Exclusive { frame, id, pool: self });
                }
                frame.unlock_exclusive();
            }
            self.load(id, counters, content)?;
        }
    }

    fn find(&self, id: PageId) -> Option<&Frame> {
        let index = self.table.get(id)?;
        debug_assert!(index < self.frames.len(), "the table names frames");
        // On its way while the latch is.
        self.arena.prefetch(index * self.page_size.bytes());
        Some(&self.frames[index])
    }

    /// Brings a page into a frame, unless another thread does.
    fn load(&self, id: PageId, counters: &IoCounters, content: Content) -> Result<(), BufferError> {
        // Where another thread has read it, or failed to, the caller looks again.
        let Some(_load) = self.loading.begin(id) else { return Ok(()) };
        if self.table.get(id).is_some() {
            return Ok(());
        }
        let index = self.take_frame()?;
        let frame = &self.frames[index];
        debug_assert!(!frame.is_dirty() && frame.page().is_none(), "the frame is free");
        let filled = match content {
            Content::New => {
                frame.bytes_mut(self.page_size.bytes()).fill(0);
                Ok(())
            }
            Content::OnDisk => {
                counters.count_physical_read();
                self.read_from_disk(id, frame.bytes_mut(self.page_size.bytes()))
            }
        };
        let entered = filled.and_then(|()| self.enter(id, index));
        let mut replacement = self.replacement.lock();
        match entered {
            Ok(()) => replacement.insert(index, id),
            Err(_) => replacement.give_back(index),
        }
        drop(replacement);
        frame.unlock_exclusive();
        self.events.record(false);
        entered
    }

    fn enter(&self, id: PageId, index: usize) -> Result<(), BufferError> {
        debug_assert!(self.frames[index].page().is_none(), "a frame holds one page");
        if self.table.set(id, index) {
            self.frames[index].set_page(id);
            debug_assert_eq!(self.table.get(id), Some(index));
            return Ok(());
        }
        let source = io::Error::new(io::ErrorKind::InvalidInput, "there cannot be so many pages");
        Err(BufferError::Io { action: "address", file: PAGES, page: id, source })
    }

    /// Reads a page. A page beyond the end of the file was allocated and never written.
    fn read_from_disk(&self, id: PageId, bytes: &mut [u8]) -> Result<(), BufferError> {
        // A number that is too high is refused when the page is entered.
        let offset = id.0.saturating_mul(bytes.len() as u64);
        let failed = |source| BufferError::Io { action: "read", file: PAGES, page: id, source };
        match self.data.file().read_at(bytes, offset) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                if offset < self.data.file().len().map_err(failed)? {
                    let fault = PageFault::Malformed("the file ends within it");
                    return Err(BufferError::Damaged { file: PAGES, page: id, fault });
                }
                bytes.fill(0);
            }
            Err(error) => return Err(failed(error)),
        }
        page::verify(bytes, id, self.seed).map_err(|fault| BufferError::Damaged {
            file: PAGES,
            page: id,
            fault,
        })?;
        // A page is written after the records that changed it were made durable.
        match page::lsn(bytes) {
            lsn if lsn < self.log.end() => Ok(()),
            lsn => Err(BufferError::Ahead { file: PAGES, page: id, lsn }),
        }
    }

    /// Gives the pool another number of frames, at least [`FRAMES_MIN`] or what it began with if
    /// that is less, and at most what it was made for. Pages in frames that go are written first.
    ///
    /// # Errors
    /// A page cannot be written; the pool has then lost some frames and not all.
    pub(crate) fn resize(&self, frames: usize) -> Result<(), BufferError> {
        let wanted = frames.clamp(self.frames_min, self.frames.len());
        let now = self.frames();
        if wanted >= now {
            self.replacement.lock().grow(wanted);
            return Ok(());
        }
        self.replacement.lock().shrink(wanted);
        for frame in &self.frames[wanted..now] {
            loop {
                let seen = self.events.count();
                self.write_frames(&[frame])?;
                frame.lock_exclusive();
                if self.vacate_if_clean(frame) {
                    break;
                }
                // Another thread writes it, or has changed it again.
                self.events.wait(seen);
            }
            frame.give_back_memory(self.page_size.bytes());
            frame.unlock_exclusive();
        }
        Ok(())
    }

    /// Returns the pages that were changed and not written, each with a record before which none
    /// has changed it since it was last written.
    pub(crate) fn dirty(&self) -> Vec<(PageId, Lsn)> {
        // The frame cannot be given away while it is dirty, so the two belong together unless it
        // was written in between, which does not hurt.
        let dirty = |frame: &Frame| frame.since().map(|since| (frame.page(), since));
        self.frames.iter().filter_map(dirty).filter(|(page, _)| !page.is_none()).collect()
    }
}

/// What a page that is not in memory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    OnDisk,
    /// Content that is overwritten before it is read.
    New,
}

/// A page that may be read.
pub(crate) struct Shared<'p> {
    frame: &'p Frame,
    size: usize,
}

impl Deref for Shared<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.frame.bytes(self.size)
    }
}

impl Drop for Shared<'_> {
    fn drop(&mut self) {
        self.frame.unlock_shared();
    }
}

/// A page that may be read, and changed by logged changes.
pub(crate) struct Exclusive<'p> {
    frame: &'p Frame,
    id: PageId,
    pool: &'p Pool,
}

impl Exclusive<'_> {
    pub(crate) fn id(&self) -> PageId {
        self.id
    }

    /// Announces, before it is logged, that a change will come. A page that is dirty was announced,
    /// and stays dirty while this latch is held.
    pub(crate) fn announce(&mut self, log: &Log) {
        debug_assert!(page::lsn(self) < log.end(), "what changed the page is in the log");
        if !self.frame.is_dirty() {
            self.frame.set_dirty_since(log.end());
        }
    }

    /// Has the page written, whatever becomes of it: the copy on disk may lack what was logged as
    /// the record `lsn` or later.
    pub(crate) fn write_since(&mut self, lsn: Lsn) {
        self.frame.set_dirty_since(lsn);
    }

    /// Makes changes that were logged as the record `lsn`.
    ///
    /// # Errors
    /// A change does not fit. The page in memory is then wrong, and the log is closed: nothing is
    /// written, read or committed any more.
    pub(crate) fn apply(&mut self, changes: &[Change<'_>], lsn: Lsn) -> Result<(), BufferError> {
        debug_assert!(page::lsn(self) < lsn, "changes are made in the order of the log");
        debug_assert_eq!(self.frame.page(), self.id, "a latched page stays in its frame");
        self.frame.set_dirty_since(lsn);
        let bytes = self.frame.bytes_mut(self.pool.page_size.bytes());
        for change in changes {
            if let Err(error) = change.apply(bytes, self.id) {
                let error = BufferError::Change { page: self.id, source: error.into() };
                self.pool.log.stop(&error.to_string());
                return Err(error);
            }
        }
        page::set_lsn(bytes, lsn);
        debug_assert!(self.frame.since().is_some_and(|since| since <= lsn), "rule 2");
        Ok(())
    }
}

impl Deref for Exclusive<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.frame.bytes(self.pool.page_size.bytes())
    }
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        self.frame.unlock_exclusive();
    }
}

//! A frame: the memory of one page, its latch and what is known of it.
#![expect(unsafe_code, reason = "a page's memory is shared between threads under a latch")]

use lock_api::RawRwLock as _;
use tidegate_runtime::sync::RawRwLock;
use tidegate_runtime::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, Ordering};

use super::arena::give_back;
use crate::page::PageId;
use crate::wal::Lsn;

/// Uses beyond these do not count (S3-FIFO).
const USES_MAX: u8 = 3;

/// A frame of the pool, on cache lines of its own.
#[repr(align(64))]
pub(super) struct Frame {
    latch: RawRwLock<true>,
    uses: AtomicU8,
    is_being_written: AtomicBool,
    /// The page's number; 0 for none.
    page: AtomicU64,
    /// The recovery LSN of a page that was changed; 0 of one that was not.
    since: AtomicU64,
    /// A page's bytes, valid for as many as the pool's pages have, as long as the pool lives.
    memory: AtomicPtr<u8>,
}

impl Frame {
    /// Returns a frame over memory that is valid for a page's bytes as long as the frame is used,
    /// and that nothing else uses.
    pub(super) fn new(memory: *mut u8) -> Frame {
        Frame {
            latch: RawRwLock::INIT,
            uses: AtomicU8::new(0),
            is_being_written: AtomicBool::new(false),
            page: AtomicU64::new(PageId::NONE.0),
            since: AtomicU64::new(0),
            memory: AtomicPtr::new(memory),
        }
    }

    pub(super) fn lock_shared(&self) {
        self.latch.lock_shared();
    }

    pub(super) fn try_lock_shared(&self) -> bool {
        self.latch.try_lock_shared()
    }

    pub(super) fn lock_exclusive(&self) {
        self.latch.lock_exclusive();
    }

    pub(super) fn try_lock_exclusive(&self) -> bool {
        self.latch.try_lock_exclusive()
    }

    /// Releases a shared latch. It is called once for each that was taken.
    pub(super) fn unlock_shared(&self) {
        debug_assert!(self.latch.is_locked(), "what is released is held");
        // SAFETY: the guards of this module's parent call this once for each latch they took.
        unsafe { self.latch.unlock_shared() }
    }

    /// Releases an exclusive latch. It is called once for each that was taken.
    pub(super) fn unlock_exclusive(&self) {
        debug_assert!(self.latch.is_locked_exclusive(), "what is released is held");
        // SAFETY: the guards of this module's parent call this once for each latch they took.
        unsafe { self.latch.unlock_exclusive() }
    }

    pub(super) fn page(&self) -> PageId {
        PageId(self.page.load(Ordering::Acquire))
    }

    /// Sets the page of the frame. The exclusive latch is held.
    pub(super) fn set_page(&self, page: PageId) {
        self.uses.store(0, Ordering::Relaxed);
        self.page.store(page.0, Ordering::Release);
    }

    /// Counts a use. A counter at its bound is not written.
    pub(super) fn touch(&self) {
        let uses = self.uses.load(Ordering::Relaxed);
        if uses < USES_MAX {
            self.uses.store(uses + 1, Ordering::Relaxed);
        }
    }

    pub(super) fn uses(&self) -> u8 {
        self.uses.load(Ordering::Relaxed)
    }

    pub(super) fn set_uses(&self, uses: u8) {
        self.uses.store(uses, Ordering::Relaxed);
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.since.load(Ordering::Acquire) != 0
    }

    /// Returns the recovery LSN of a page that was changed.
    pub(super) fn since(&self) -> Option<Lsn> {
        let since = self.since.load(Ordering::Acquire);
        (since != 0).then_some(Lsn(since))
    }

    /// Makes a clean page dirty from `lsn` on; a dirty page is left as it is. The exclusive latch
    /// is held.
    pub(super) fn set_dirty_since(&self, lsn: Lsn) {
        debug_assert!(self.latch.is_locked_exclusive() && lsn > Lsn::ZERO);
        if !self.is_dirty() {
            self.since.store(lsn.0, Ordering::Release);
        }
    }

    /// Records that the page was written as it was at `lsn`. It is clean if it is still so. Called
    /// under a latch by the only thread that wrote it.
    pub(super) fn was_written(&self, lsn: Lsn, now: Lsn) {
        debug_assert!(self.is_being_written() && lsn <= now, "a page's LSN grows");
        let since = if lsn == now { 0 } else { lsn.0 };
        self.since.store(since, Ordering::Release);
    }

    /// Returns whether the caller is now the only thread to write the page.
    pub(super) fn begin_writing(&self) -> bool {
        !self.is_being_written.swap(true, Ordering::AcqRel)
    }

    pub(super) fn end_writing(&self) {
        let was_written = self.is_being_written.swap(false, Ordering::Release);
        debug_assert!(was_written, "a write ends once");
    }

    pub(super) fn is_being_written(&self) -> bool {
        self.is_being_written.load(Ordering::Acquire)
    }

    /// Gives the memory of a page that is not there back to the system. Under the exclusive latch.
    pub(super) fn give_back_memory(&self, size: usize) {
        debug_assert!(self.latch.is_locked_exclusive() && self.page().is_none());
        // SAFETY: the pool made the frame over memory of its arena, and the exclusive latch keeps
        // all other threads away from it.
        unsafe { give_back(self.memory.load(Ordering::Relaxed), size) }
    }

    /// Returns the page's bytes. A latch is held.
    pub(super) fn bytes(&self, size: usize) -> &[u8] {
        debug_assert!(self.latch.is_locked(), "bytes are read under a latch");
        let memory = self.memory.load(Ordering::Relaxed);
        // SAFETY: the memory holds `size` bytes, all written; the caller has a latch, so no thread
        // changes them while the guard, and with it this borrow, lives.
        unsafe { std::slice::from_raw_parts(memory, size) }
    }

    /// Returns the page's bytes to be changed. The exclusive latch is held, and there is one borrow
    /// at a time.
    #[expect(clippy::mut_from_ref, reason = "the exclusive latch makes the borrow exclusive")]
    pub(super) fn bytes_mut(&self, size: usize) -> &mut [u8] {
        debug_assert!(self.latch.is_locked_exclusive(), "bytes are changed under the latch");
        let memory = self.memory.load(Ordering::Relaxed);
        // SAFETY: the memory holds `size` bytes, all written; the caller has the exclusive latch,
        // so no other thread sees them.
        unsafe { std::slice::from_raw_parts_mut(memory, size) }
    }
}

//! The memory of all frames: one piece of address space, in huge pages where the system has them.
//!
//! A store's pages are visited at random, and with pages of memory of 4 KiB nearly every visit of
//! one also misses the processor's cache of address translations. The piece is as long as the pool
//! may ever get; what was never used takes no memory, and what is given up is given back.
#![expect(unsafe_code, reason = "memory is asked of the system and given back to it")]

use std::ffi::c_void;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// The size of a huge page.
const HUGE: usize = 2 << 20;

/// Lines of memory that a search of a page comes to first: its head and some tens of slots.
const FIRST_LINES: usize = 8;

/// Bytes of a line of the processor's cache.
const LINE: usize = 64;

/// Address space of its own, given back when it is dropped.
pub(super) struct Arena {
    base: AtomicPtr<c_void>,
    len: usize,
    /// Where the bytes begin.
    start: AtomicPtr<u8>,
}

impl Arena {
    /// Address space for so many bytes, all zero.
    ///
    /// # Errors
    /// The system has no address space left.
    pub(super) fn new(bytes: usize) -> io::Result<Arena> {
        // Room to begin at a multiple of a huge page.
        let len = bytes.saturating_add(HUGE);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: new address space is not used by anything else.
        let base = unsafe {
            mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags)?
        };
        // Without huge pages it is only slower.
        // SAFETY: the range is ours; the advice changes nothing that can be seen in it.
        let _ = unsafe { madvise(base, len, Advice::LinuxHugepage) };
        let first = base.cast::<u8>();
        let start = AtomicPtr::new(first.wrapping_add(first.align_offset(HUGE)));
        Ok(Arena { base: AtomicPtr::new(base), len, start })
    }

    /// Returns where the bytes begin. The pointer is valid for as many as were asked for, as long
    /// as this lives.
    pub(super) fn start(&self) -> *mut u8 {
        self.start.load(Ordering::Relaxed)
    }

    /// Asks for the first lines of the page at `offset`, so that they come at the same time and not
    /// one after the other.
    #[inline]
    pub(super) fn prefetch(&self, offset: usize) {
        debug_assert!(offset < self.len, "the offset lies within the arena");
        let at = self.start.load(Ordering::Relaxed).wrapping_add(offset);
        for line in 0..FIRST_LINES {
            prefetch_line(at.wrapping_add(line * LINE));
        }
    }
}

/// Asks for bytes that will be read soon.
#[inline]
pub(crate) fn prefetch(bytes: &[u8]) {
    for line in bytes.chunks(LINE) {
        prefetch_line(line.as_ptr());
    }
    // Where the bytes begin within a line, the last line has not been asked for.
    if let Some(last) = bytes.last() {
        prefetch_line(last);
    }
}

#[inline]
fn prefetch_line(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: it reads nothing that could be seen, wherever it points.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Gives memory back to the system; when it is used again it is zero.
///
/// # Safety
/// The range is of an [`Arena`], begins and ends at multiples of 4 KiB, and no thread uses it.
pub(super) unsafe fn give_back(memory: *mut u8, bytes: usize) {
    // If the system does not take it, it is only not used.
    // SAFETY: the caller's.
    let _ = unsafe { madvise(memory.cast(), bytes, Advice::LinuxDontNeed) };
}

impl Drop for Arena {
    fn drop(&mut self) {
        let base = *self.base.get_mut();
        // SAFETY: `new` made it, and with the arena goes the last who may use it.
        if let Err(error) = unsafe { munmap(base, self.len) } {
            tracing::error!("the buffer's memory cannot be given back: {error}");
        }
    }
}

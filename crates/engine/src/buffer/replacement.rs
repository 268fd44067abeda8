//! Which page goes when another needs its frame: S3-FIFO.
//!
//! # Mechanism
//! Two queues, first in, first out. A page that is new enters the *small* one, a tenth of the
//! frames. When it comes to its end it moves to the *main* queue if it was used more than once
//! meanwhile, else it goes, and its number is remembered for a while among the *ghosts*. A page
//! that comes back as a ghost enters the main queue at once. At the end of the main queue a page
//! that was used goes round again with one use less, up to three times. So a scan, whose pages are
//! used once, passes through the small queue and leaves the main one as it was (Yang et al.,
//! "FIFO queues are all you need for cache eviction", SOSP 2023).
//!
//! # Where this leaves the paper
//! A use is counted by the thread that latches the page, without a lock; a use that is counted in
//! the same moment by two threads may count once. A candidate that turns out to be latched goes to
//! the end of the main queue, because a thread wants it. One that is dirty, or being written, is
//! put *aside*: its turn to go has come, and it has to be written first. When a batch has ended,
//! what is clean of it goes before all others, unless it was used meanwhile; then it goes to the
//! main queue, as from the small one. At most half of the frames are aside, so that the others
//! are not passed through for the sake of the few clean ones among them.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use super::frame::Frame;
use crate::page::PageId;

/// The share of the frames that the small queue has: one of so many.
const SMALL: usize = 10;

/// Frames and the order in which they lose their pages.
pub(super) struct Replacement {
    frames: usize,
    /// Frames without a page.
    free: Vec<usize>,
    /// Frames whose turn to go has come and that are clean.
    ready: VecDeque<usize>,
    /// Frames whose turn has come and that have to be written first.
    aside: Vec<usize>,
    small: VecDeque<usize>,
    main: VecDeque<usize>,
    ghosts: VecDeque<PageId>,
    is_ghost: HashSet<PageId, BuildHasherDefault<PageHasher>>,
}

/// A hash of a page's number by a multiplication: no client can choose the numbers of pages such
/// that they collide.
#[derive(Default)]
struct PageHasher(u64);

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Replacement {
    pub(super) fn new() -> Replacement {
        Replacement {
            frames: 0,
            free: Vec::new(),
            ready: VecDeque::new(),
            aside: Vec::new(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: VecDeque::new(),
            is_ghost: HashSet::default(),
        }
    }

    pub(super) fn frames(&self) -> usize {
        self.frames
    }

    pub(super) fn grow(&mut self, frames: usize) {
        self.free.extend(self.frames..frames);
        self.frames = self.frames.max(frames);
    }

    /// Frames from `frames` on are named no longer.
    pub(super) fn shrink(&mut self, frames: usize) {
        self.frames = frames;
        self.free.retain(|&index| index < frames);
        self.ready.retain(|&index| index < frames);
        self.aside.retain(|&index| index < frames);
        self.small.retain(|&index| index < frames);
        self.main.retain(|&index| index < frames);
    }

    /// Takes the frame that loses its page next out of its queue. Returns `None` when all are in
    /// use, or so many aside that some have to be written first.
    pub(super) fn candidate(&mut self, frames: &[Frame]) -> Option<usize> {
        if let Some(index) = self.free.pop() {
            return Some(index);
        }
        while let Some(index) = self.ready.pop_front() {
            match frames[index].uses() {
                0 => return Some(index),
                uses => frames[index].set_uses(uses - 1),
            }
            self.main.push_back(index);
        }
        if self.aside.len() >= self.frames / 2 {
            return None;
        }
        loop {
            let is_small = self.small.len() * SMALL >= self.frames || self.main.is_empty();
            let queue = if is_small { &mut self.small } else { &mut self.main };
            let index = queue.pop_front()?;
            debug_assert!(index < self.frames, "a frame that is gone is in no queue");
            let frame = &frames[index];
            match frame.uses() {
                0 => return Some(index),
                1 if is_small => return Some(index),
                uses => frame.set_uses(if is_small { 0 } else { uses - 1 }),
            }
            self.main.push_back(index);
        }
    }

    /// Puts a candidate back that keeps its page.
    pub(super) fn keep(&mut self, index: usize) {
        if index < self.frames {
            self.main.push_back(index);
        }
        debug_assert!(self.queued() <= self.frames, "a frame is in one queue");
    }

    /// Puts a candidate aside that has to be written before it can go. Uses count anew.
    pub(super) fn put_aside(&mut self, index: usize, frames: &[Frame]) {
        frames[index].set_uses(0);
        if index < self.frames {
            self.aside.push(index);
        }
        // Its batch may have ended since it was looked at, and have missed it.
        if !frames[index].is_being_written() {
            self.sort_aside(frames);
        }
        debug_assert!(self.queued() <= self.frames, "a frame is in one queue");
    }

    /// Lets those aside go that were written, after a batch has ended. Those that were used
    /// meanwhile stay.
    pub(super) fn sort_aside(&mut self, frames: &[Frame]) {
        let Replacement { aside, ready, main, .. } = self;
        aside.retain(|&index| {
            let frame = &frames[index];
            if frame.is_being_written() {
                return true;
            }
            let is_used = frame.uses() > 0;
            if is_used {
                main.push_back(index);
            } else if !frame.is_dirty() {
                ready.push_back(index);
            }
            !is_used && frame.is_dirty()
        });
    }

    /// Returns how many frames are in a queue or free, for assertions.
    fn queued(&self) -> usize {
        let aside = self.ready.len() + self.aside.len();
        self.free.len() + aside + self.small.len() + self.main.len()
    }

    /// Puts a candidate back that has no page.
    pub(super) fn give_back(&mut self, index: usize) {
        debug_assert!(!self.free.contains(&index), "frame {index} is free already");
        if index < self.frames {
            self.free.push(index);
        }
    }

    /// Puts a candidate back that has got a page.
    pub(super) fn insert(&mut self, index: usize, page: PageId) {
        debug_assert!(!page.is_none());
        if index >= self.frames {
            return;
        }
        if self.is_ghost.remove(&page) {
            self.main.push_back(index);
        } else {
            self.small.push_back(index);
        }
        debug_assert!(self.queued() <= self.frames, "a frame is in one queue");
    }

    /// Records that a page has lost its frame.
    pub(super) fn forget(&mut self, page: PageId) {
        if self.is_ghost.insert(page) {
            self.ghosts.push_back(page);
        }
        debug_assert!(self.ghosts.len() >= self.is_ghost.len(), "each ghost is queued");
        while self.ghosts.len() > self.frames {
            let Some(oldest) = self.ghosts.pop_front() else { break };
            self.is_ghost.remove(&oldest);
        }
    }

    /// Returns how many frames can be taken before any queue is looked at.
    pub(super) fn available(&self) -> usize {
        self.free.len() + self.ready.len()
    }

    /// Returns those aside that are to be written and that no thread writes, `count` at most.
    pub(super) fn waiting_aside(&self, count: usize, frames: &[Frame]) -> Vec<usize> {
        let is_waiting = |index: &&usize| is_to_be_written(&frames[**index]);
        self.aside.iter().filter(is_waiting).take(count).copied().collect()
    }

    /// Returns those among the `share` frames of each queue that are likely to go next that are to
    /// be written and that no thread writes, `count` at most. They are from both queues, because
    /// victims come from both.
    pub(super) fn coldest(&self, count: usize, share: usize, frames: &[Frame]) -> Vec<usize> {
        let is_dirty = |index: &&usize| is_to_be_written(&frames[**index]);
        let dirty = |queue: &VecDeque<usize>, count: usize| -> Vec<usize> {
            queue.iter().take(share).filter(is_dirty).take(count).copied().collect()
        };
        let mut coldest = dirty(&self.small, count.div_ceil(2));
        coldest.extend(dirty(&self.main, count - coldest.len()));
        debug_assert!(coldest.len() <= count);
        coldest
    }
}

fn is_to_be_written(frame: &Frame) -> bool {
    frame.is_dirty() && !frame.is_being_written()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks a pool of frames without memory for pages in turn. Returns how many were there.
    fn hits(frames: usize, pages: impl IntoIterator<Item = u64>) -> usize {
        let all: Vec<Frame> = (0..frames).map(|_| Frame::new(std::ptr::null_mut())).collect();
        let mut replacement = Replacement::new();
        replacement.grow(frames);
        let mut hits = 0;
        for page in pages.into_iter().map(|page| PageId(page + 1)) {
            if let Some(frame) = all.iter().find(|frame| frame.page() == page) {
                frame.touch();
                hits += 1;
                continue;
            }
            let index = replacement.candidate(&all).expect("nobody holds any");
            let old = all[index].page();
            if !old.is_none() {
                replacement.forget(old);
            }
            all[index].set_page(page);
            replacement.insert(index, page);
        }
        hits
    }

    #[test]
    fn what_fits_stays() {
        assert_eq!(hits(100, (0..10).flat_map(|_| 0..100)), 900);
    }

    #[test]
    fn a_scan_leaves_what_is_used_where_it_is() {
        // 50 pages used in every round, and a scan of 1,000 new pages between: without resistance
        // every round would find none.
        let rounds = (0..20).flat_map(|round| {
            let scan = (0..1_000).map(move |page| 1_000 + round * 1_000 + page);
            (0..50).chain(0..50).chain(0..50).chain(scan)
        });
        let hits = hits(100, rounds);
        // Two of three uses hit in any case: 2,000. The third only if the scan left the page.
        assert!(hits > 2_000 + 18 * 50, "{hits}");
    }

    #[test]
    fn frames_come_and_go() {
        let all: Vec<Frame> = (0..8).map(|_| Frame::new(std::ptr::null_mut())).collect();
        let mut replacement = Replacement::new();
        replacement.grow(4);
        let mut taken: Vec<usize> = std::iter::from_fn(|| replacement.candidate(&all)).collect();
        taken.sort_unstable();
        assert_eq!(taken, [0, 1, 2, 3]);
        for index in taken {
            replacement.give_back(index);
        }
        replacement.grow(8);
        replacement.shrink(2);
        let left: Vec<usize> = std::iter::from_fn(|| replacement.candidate(&all)).collect();
        assert_eq!(left.len(), 2);
        replacement.keep(5);
        assert_eq!(replacement.candidate(&all), None, "a frame that is gone comes back");
    }
}

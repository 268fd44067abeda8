//! How a thread comes by a frame for a page that is to be read.
//!
//! # Mechanism
//! `replacement` names candidates in the order in which pages are to go. One that is clean is
//! taken. One that was changed, or is being written, is put aside, and the next is looked at, until
//! half of the frames are aside. A thread that finds none writes a batch itself: what is aside,
//! and what is likely to come next. While others write enough already, it waits until one of their
//! batches has ended. What was written then is taken first, unless it was used in the meantime.
//!
//! # Waiting
//! Nobody waits for a latch here, because who looks for a frame may hold some. What is waited for
//! is an event: a batch that has ended, a page that was loaded. Latches that are released are no
//! event, because it would burden every use of a page; so the wait is a short one, after which the
//! thread looks again. A pool in which nothing has happened in so many waits is said to be full.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_runtime::clock;
use tidegate_runtime::sync::{Condvar, Mutex};

use super::frame::Frame;
use super::{BufferError, Pool};
use crate::page::PageId;

/// How long an event is waited for before a thread looks again.
const WAIT: Duration = Duration::from_millis(5);

/// The pool is full after so many waits in which nothing has happened: 10 s, in which a page can be
/// read from any disk that works.
const WAITS: usize = 2_000;

/// Counts what may give a thread a frame.
#[derive(Default)]
pub(super) struct FrameEvents {
    count: AtomicU64,
    waiting: Mutex<usize>,
    happened: Condvar,
}

impl FrameEvents {
    /// Returns how many there were.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Records that frames can be taken: many, or one.
    pub(super) fn record(&self, many: bool) {
        self.count.fetch_add(1, Ordering::SeqCst);
        if *self.waiting.lock() == 0 {
            return;
        }
        if many {
            self.happened.notify_all();
        } else {
            self.happened.notify_one();
        }
    }

    /// Waits a while for an event after the first `seen`. Returns whether there was one.
    pub(super) fn wait(&self, seen: u64) -> bool {
        let mut waiting = self.waiting.lock();
        if self.count() == seen {
            *waiting += 1;
            self.happened.wait_until(&mut waiting, clock::now() + WAIT);
            *waiting -= 1;
        }
        self.count() != seen
    }
}

impl Pool {
    /// Takes a frame, so that it has no page, with its exclusive latch.
    pub(super) fn take_frame(&self) -> Result<usize, BufferError> {
        let mut waits = 0;
        while waits < WAITS {
            let seen = self.events.count();
            if let Some(index) = self.look_for_frame() {
                return Ok(index);
            }
            if self.write_victims()? > 0 || self.events.wait(seen) {
                waits = 0;
            } else {
                waits += 1;
            }
            self.check_running()?;
        }
        Err(BufferError::Full(self.frames()))
    }

    /// Takes the first candidate that is clean and not latched.
    fn look_for_frame(&self) -> Option<usize> {
        let mut latched = 0;
        while latched < self.frames.len() {
            let index = self.replacement.lock().candidate(&self.frames)?;
            let frame = &self.frames[index];
            if !frame.try_lock_exclusive() {
                self.replacement.lock().keep(index);
                latched += 1;
            } else if self.vacate_if_clean(frame) {
                return Some(index);
            } else {
                self.replacement.lock().put_aside(index, &self.frames);
            }
        }
        None
    }

    /// Takes the page out of a frame whose exclusive latch is held. Where a change would be lost,
    /// the latch is released instead. Returns whether the page was taken out.
    pub(super) fn vacate_if_clean(&self, frame: &Frame) -> bool {
        if frame.is_dirty() || frame.is_being_written() {
            frame.unlock_exclusive();
            return false;
        }
        let page = frame.page();
        if !page.is_none() {
            self.table.clear(page);
            self.replacement.lock().forget(page);
            frame.set_page(PageId::NONE);
        }
        debug_assert!(frame.page().is_none(), "the frame is free");
        true
    }
}

//! What reaches the event loop from other threads.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use rustix::event::EventfdFlags;

use crate::server::Answer;
use crate::server::protocol::RequestId;

use super::poller::Token;

/// A message to the event loop.
pub(super) enum Letter {
    /// A request of a connection has its answer.
    Answer { connection: Token, id: RequestId, answer: Answer },
    /// No more requests are taken; at `deadline` all ends.
    Stop { deadline: Instant },
}

/// The loop's mailbox, and what the loop says of itself.
///
/// Who posts rings the bell only when the loop sleeps, so that answers to a busy loop cost no
/// system call.
pub(super) struct Mailbox {
    state: Mutex<State>,
    /// Its number means nothing: each ring is an event.
    bell: OwnedFd,
    connections: AtomicUsize,
}

#[derive(Default)]
struct State {
    letters: Vec<Letter>,
    is_asleep: bool,
    /// Nobody will read any more.
    is_closed: bool,
}

impl Mailbox {
    pub(super) fn new() -> io::Result<Mailbox> {
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Mailbox { state: Mutex::default(), bell, connections: AtomicUsize::new(0) })
    }

    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Leaves a letter. The loop may do so itself.
    pub(super) fn post(&self, letter: Letter) {
        let mut state = self.state.lock();
        if state.is_closed {
            return;
        }
        state.letters.push(letter);
        let is_asleep = std::mem::replace(&mut state.is_asleep, false);
        drop(state);
        if is_asleep && let Err(error) = rustix::io::write(&self.bell, &1_u64.to_ne_bytes()) {
            tracing::error!("the event loop cannot be woken: {error}");
        }
    }

    /// The loop is about to sleep; false when there is a letter to be read before.
    pub(super) fn sleep(&self) -> bool {
        let mut state = self.state.lock();
        state.is_asleep = state.letters.is_empty();
        state.is_asleep
    }

    /// The loop is awake. Moves all letters to `into`, which is empty and whose memory is used
    /// again.
    pub(super) fn take(&self, into: &mut Vec<Letter>) {
        let mut state = self.state.lock();
        state.is_asleep = false;
        std::mem::swap(&mut state.letters, into);
    }

    /// The loop has ended. What comes now is dropped.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let letters = std::mem::take(&mut state.letters);
        drop(state);
        drop(letters);
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    pub(super) fn set_connections(&self, count: usize) {
        self.connections.store(count, Ordering::Relaxed);
    }
}

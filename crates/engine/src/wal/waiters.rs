//! Threads that wait for the log, each parked on a seat of its own.
//!
//! All are in one list with what they wait for. So a leader wakes exactly those it has served, and
//! one more to lead, and nobody wakes up in vain only to wait again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::Lsn;

/// What a waiting thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// That the batch was taken, to append to the next.
    Room,
    /// That everything before this position was handed to the system.
    Written(Lsn),
    /// That everything before this position is durable.
    Durable(Lsn),
}

/// Why a thread was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// Its goal is reached.
    Reached,
    /// It has to look: there is no leader, or the log has failed, or its time is over.
    Look,
}

/// Where one thread waits, once.
pub(super) struct Seat {
    thread: Thread,
    signal: AtomicU8,
}

const NONE: u8 = 0;
const REACHED: u8 = 1;
const LOOK: u8 = 2;

impl Seat {
    fn signal(&self) -> Option<Signal> {
        match self.signal.load(Ordering::Acquire) {
            NONE => None,
            REACHED => Some(Signal::Reached),
            _ => Some(Signal::Look),
        }
    }

    /// Waits for the signal.
    pub(super) fn wait(&self) -> Signal {
        loop {
            match self.signal() {
                Some(signal) => return signal,
                None => thread::park(),
            }
        }
    }

    /// Waits for the signal, but no longer than `timeout`.
    pub(super) fn wait_for(&self, timeout: Duration) -> Option<Signal> {
        let until = Instant::now() + timeout;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if let Some(signal) = self.signal() {
                return Some(signal);
            }
            if left.is_zero() {
                return None;
            }
            thread::park_timeout(left);
        }
    }

    fn send(&self, signal: Signal) {
        let signal = if signal == Signal::Reached { REACHED } else { LOOK };
        self.signal.store(signal, Ordering::Release);
        self.thread.unpark();
    }
}

struct Waiter {
    goal: Goal,
    seat: Arc<Seat>,
}

/// The threads that wait now.
#[derive(Default)]
pub(super) struct Waiters {
    list: Vec<Waiter>,
}

impl Waiters {
    /// A seat for the calling thread.
    pub(super) fn add(&mut self, goal: Goal) -> Arc<Seat> {
        let seat = Arc::new(Seat { thread: thread::current(), signal: AtomicU8::new(NONE) });
        self.list.push(Waiter { goal, seat: Arc::clone(&seat) });
        seat
    }

    /// Takes a thread out of the list; false when that was done, so that it will be signalled.
    pub(super) fn remove(&mut self, seat: &Arc<Seat>) -> bool {
        let place = self.list.iter().position(|waiter| Arc::ptr_eq(&waiter.seat, seat));
        place.map(|place| self.list.swap_remove(place)).is_some()
    }

    /// How many wait for a sync.
    pub(super) fn forcing(&self) -> usize {
        self.list.iter().filter(|waiter| waiter.forces()).count()
    }

    /// Takes out those whose goal is reached, and with `with_leader` one of the others to lead; the
    /// first who needs a sync, if anyone does.
    pub(super) fn take(&mut self, is_reached: impl Fn(Goal) -> bool, with_leader: bool) -> Wakeups {
        let reached = self.list.extract_if(.., |waiter| is_reached(waiter.goal));
        let others = reached.map(|waiter| waiter.seat).collect();
        let first = self.list.iter().position(Waiter::forces).unwrap_or(0);
        let has_first = with_leader && !self.list.is_empty();
        let first = has_first.then(|| self.list.remove(first).seat);
        Wakeups { first, others, signal: Signal::Reached }
    }

    /// Takes out all, to see for themselves.
    pub(super) fn take_all(&mut self) -> Wakeups {
        let others = self.list.drain(..).map(|waiter| waiter.seat).collect();
        Wakeups { first: None, others, signal: Signal::Look }
    }
}

impl Waiter {
    fn forces(&self) -> bool {
        matches!(self.goal, Goal::Durable(_))
    }
}

/// The threads to wake, once the mutex is free.
pub(super) struct Wakeups {
    /// Who leads next.
    first: Option<Arc<Seat>>,
    others: Vec<Arc<Seat>>,
    signal: Signal,
}

impl Wakeups {
    pub(super) fn send(self) {
        if let Some(seat) = self.first {
            seat.send(Signal::Look);
        }
        for seat in self.others {
            seat.send(self.signal);
        }
    }
}

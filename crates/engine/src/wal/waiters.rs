//! Threads that wait for the log.
//!
//! Each thread that waits is parked on a [`WaitSlot`] of its own. All slots are in one list with
//! what their threads wait for. So a leader wakes exactly the threads it has served, and one more
//! to lead, and none wakes up in vain only to wait again.

use std::sync::Arc;
use std::time::Duration;

use tidegate_runtime::clock;
use tidegate_runtime::sync::atomic::{AtomicU8, Ordering};
use tidegate_runtime::thread::{self, Task};

use super::Lsn;

/// What a waiting thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitGoal {
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

impl Signal {
    const fn code(self) -> u8 {
        match self {
            Signal::Reached => 1,
            Signal::Look => 2,
        }
    }

    fn of(code: u8) -> Option<Signal> {
        let signal =
            [Signal::Reached, Signal::Look].into_iter().find(|signal| signal.code() == code);
        debug_assert_eq!(signal.is_none(), code == NO_SIGNAL, "no other code is sent");
        signal
    }
}

/// Where one thread waits, once.
pub(super) struct WaitSlot {
    thread: Task,
    /// The signal as [`Signal::code`], or [`NO_SIGNAL`].
    signal: AtomicU8,
}

const NO_SIGNAL: u8 = 0;

impl WaitSlot {
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
        let until = clock::now() + timeout;
        loop {
            let is_over = clock::now() >= until;
            if let Some(signal) = self.signal() {
                return Some(signal);
            }
            if is_over {
                return None;
            }
            thread::park_until(until);
        }
    }

    /// Returns the signal, if it was sent: then what its sender did before is seen as well.
    fn signal(&self) -> Option<Signal> {
        Signal::of(self.signal.load(Ordering::Acquire))
    }

    fn send(&self, signal: Signal) {
        let before = self.signal.swap(signal.code(), Ordering::Release);
        debug_assert_eq!(before, NO_SIGNAL, "a thread is signalled once, when it leaves the list");
        self.thread.unpark();
    }
}

struct Waiter {
    goal: WaitGoal,
    slot: Arc<WaitSlot>,
}

/// The threads that wait now.
#[derive(Default)]
pub(super) struct Waiters {
    list: Vec<Waiter>,
}

impl Waiters {
    /// Adds the calling thread. Returns its slot.
    pub(super) fn add(&mut self, goal: WaitGoal) -> Arc<WaitSlot> {
        debug_assert!(
            !self.list.iter().any(|waiter| waiter.slot.thread.is(&thread::current())),
            "a thread waits once"
        );
        let slot =
            Arc::new(WaitSlot { thread: thread::current(), signal: AtomicU8::new(NO_SIGNAL) });
        self.list.push(Waiter { goal, slot: Arc::clone(&slot) });
        slot
    }

    /// Takes a thread out of the list; false when that was done, so that it will be signalled.
    pub(super) fn remove(&mut self, slot: &Arc<WaitSlot>) -> bool {
        let place = self.list.iter().position(|waiter| Arc::ptr_eq(&waiter.slot, slot));
        place.map(|place| self.list.swap_remove(place)).is_some()
    }

    /// Returns how many wait for a sync.
    pub(super) fn forcing(&self) -> usize {
        self.list.iter().filter(|waiter| waiter.forces()).count()
    }

    /// Takes out those whose goal is reached, and with `with_leader` one of the others to lead; the
    /// first who needs a sync, if anyone does.
    pub(super) fn take(
        &mut self,
        is_reached: impl Fn(WaitGoal) -> bool,
        with_leader: bool,
    ) -> Wakeups {
        let reached = self.list.extract_if(.., |waiter| is_reached(waiter.goal));
        let others = reached.map(|waiter| waiter.slot).collect();
        let first = self.list.iter().position(Waiter::forces).unwrap_or(0);
        let has_first = with_leader && !self.list.is_empty();
        let first = has_first.then(|| self.list.remove(first).slot);
        Wakeups { first, others, signal: Signal::Reached }
    }

    /// Takes out all, to see for themselves.
    pub(super) fn take_all(&mut self) -> Wakeups {
        let others = self.list.drain(..).map(|waiter| waiter.slot).collect();
        Wakeups { first: None, others, signal: Signal::Look }
    }
}

impl Waiter {
    fn forces(&self) -> bool {
        matches!(self.goal, WaitGoal::Durable(_))
    }
}

/// The threads to wake, once the mutex is free.
pub(super) struct Wakeups {
    /// The thread that leads next.
    first: Option<Arc<WaitSlot>>,
    others: Vec<Arc<WaitSlot>>,
    signal: Signal,
}

impl Wakeups {
    pub(super) fn send(self) {
        if let Some(slot) = self.first {
            slot.send(Signal::Look);
        }
        for slot in self.others {
            slot.send(self.signal);
        }
    }
}

//! Who may go on: one client at a time, so that a schedule can be repeated.
//!
//! Each client has a thread of its own and asks for a turn before each step. The leader gives the
//! next turn when nothing moves any more: every client asks for a turn, waits for a lock or is
//! gone. So the order of steps is what the leader makes it, down to which client comes to wait for
//! which. Those whom one step frees, by the locks that it gives back, go on beside each other until
//! they have done their step; in that alone two runs of one schedule can differ.

use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tidegate_engine::Lockable;
use tidegate_engine::lock::LockManager;

/// What a client is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It asks for a turn.
    Ready,
    /// It does its step, or waits for a lock to do it.
    Busy,
    /// It is done.
    Gone,
}

/// A place where clients wait for their turns.
pub(crate) struct Turns {
    clients: Mutex<Clients>,
    changed: Condvar,
}

struct Clients {
    standing: Vec<Standing>,
    /// Everybody goes on as they like.
    is_free: bool,
}

/// How often the leader looks at clients who all wait for locks, before it takes them for stuck.
const LOOKS_MAX: u32 = 2_000;

/// Without a check whenever somebody blocks, deadlocks are looked for once in so many turns.
const TURNS_PER_DETECTION: u64 = 8;

impl Turns {
    /// Turns for so many clients, all of which are busy.
    pub(crate) fn new(clients: usize) -> Turns {
        let clients = Clients { standing: vec![Standing::Busy; clients], is_free: false };
        Turns { clients: Mutex::new(clients), changed: Condvar::new() }
    }

    /// Lets everybody go on as they like, from now on.
    pub(crate) fn set_free(&self) {
        self.clients.lock().is_free = true;
        self.changed.notify_all();
    }

    /// Waits for a turn.
    fn take(&self, client: usize) {
        let mut clients = self.clients.lock();
        clients.standing[client] = Standing::Ready;
        self.changed.notify_all();
        while clients.standing[client] == Standing::Ready && !clients.is_free {
            self.changed.wait(&mut clients);
        }
    }

    fn leave(&self, client: usize) {
        self.clients.lock().standing[client] = Standing::Gone;
        self.changed.notify_all();
    }

    /// Gives turns, each to whom `pick` takes from those who ask for one, until all are gone. Where
    /// nobody looks for a deadlock when they block, this does now and then. Whether they came to an
    /// end: if they are all stuck they are let go, to wait until their locks time out.
    pub(crate) fn lead(
        &self,
        locks: &LockManager<Lockable>,
        mut pick: impl FnMut(&[usize]) -> usize,
    ) -> bool {
        let mut stuck = 0;
        for turn in 0_u64.. {
            let (ready, busy) = self.settle(locks);
            if !locks.settings().check_on_block
                && (ready.is_empty() || turn.is_multiple_of(TURNS_PER_DETECTION))
                && locks.break_deadlocks() > 0
            {
                continue;
            }
            if ready.is_empty() {
                if busy == 0 {
                    return true;
                }
                stuck += 1;
                if stuck > LOOKS_MAX {
                    self.set_free();
                    return false;
                }
                thread::sleep(Duration::from_millis(1));
                continue;
            }
            stuck = 0;
            self.clients.lock().standing[pick(&ready)] = Standing::Busy;
            self.changed.notify_all();
        }
        true
    }

    /// Waits until nothing moves; who asks for a turn, and how many wait for a lock.
    fn settle(&self, locks: &LockManager<Lockable>) -> (Vec<usize>, usize) {
        loop {
            let (ready, busy) = self.clients.lock().ready_and_busy();
            if busy == 0 || all_wait(locks, busy) {
                return (ready, busy);
            }
            let mut clients = self.clients.lock();
            if clients.ready_and_busy().1 == busy {
                self.changed.wait_for(&mut clients, Duration::from_micros(50));
            }
        }
    }
}

impl Clients {
    fn ready_and_busy(&self) -> (Vec<usize>, usize) {
        let with = |standing| {
            let clients = self.standing.iter().enumerate();
            clients.filter(move |(_, client)| **client == standing).map(|(number, _)| number)
        };
        (with(Standing::Ready).collect(), with(Standing::Busy).count())
    }
}

/// Whether so many wait for locks. Buckets are counted one after the other, so only what is seen
/// twice, with nothing asked for or given back in between, was so at one moment.
fn all_wait(locks: &LockManager<Lockable>, count: usize) -> bool {
    let look = || {
        let seen = locks.statistics();
        (seen.waiting, seen.requests, seen.held)
    };
    let seen = look();
    seen.0 == count as u64 && look() == seen
}

/// A client's place among the turns, given up when it is dropped.
pub(crate) struct Seat<'t> {
    turns: &'t Turns,
    client: usize,
}

impl<'t> Seat<'t> {
    pub(crate) fn new(turns: &'t Turns, client: usize) -> Seat<'t> {
        Seat { turns, client }
    }

    /// Waits for a turn.
    pub(crate) fn take_turn(&self) {
        self.turns.take(self.client);
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.turns.leave(self.client);
    }
}

//! Intention locks on what contains other resources, in stripes.
//!
//! # Mechanism
//! Each transaction locks the store and a tree in IS or IX before it locks a key. These locks go
//! together, and yet all of them would be written into one bucket: its cache lines would go from
//! processor to processor all the time. So what contains other resources is locked in the *intent
//! modes* of the table elsewhere: in a *stripe*, of which each thread has one, as long as there
//! are enough.
//!
//! Any other request for such a resource is *strong*. It is counted, in a counter that the hash of
//! the resource leads to, then all stripes are gone through, and the locks there on the resource
//! move to its bucket; only then is the strong request put there. The locker that asks for an
//! intent mode looks at the counter while it has latched its stripe, and goes to the bucket as well
//! unless it is 0. So a strong request sees all others: a lock that was first in the stripe is
//! found there, and a later request finds the counter. The counter is taken back when the strong
//! lock is given up, or the request is.
//!
//! Which modes are intents, the table says: its modes are gone through in order, and each is taken
//! that goes with itself and with all taken before. So intents never wait for each other, and only
//! a strong request can wait for one. For [`multi_granularity`](super::multi_granularity)
//! they are IS and IX.
//!
//! For example:
//!
//! ```text
//! T1: IX(tree)  counter 0: stripe 1        T2: IS(tree)  counter 0: stripe 2
//! T3: S(tree)   counter 1; both move to the bucket, and T3 waits there for T1
//! T4: IS(tree)  counter 1: bucket          T3 releases: counter 0
//! T4: IS(tree), in another transaction: stripe
//! ```
//!
//! # Where this leaves the literature
//! PostgreSQL's fast path (its `README` of the lock manager) has a few places for each process and
//! 1,024 counters. There the strong modes are fixed; here they are all that are no intents.
//! Speculative lock inheritance (Johnson, Pandis, Ailamaki, VLDB 2009) leaves the locks with the
//! thread when a transaction ends; then a strong request has to take them away from a thread.
//!
//! # Limits
//! A strong request latches all stripes, one after the other. A counter is shared by all resources
//! that lead to it: a strong lock on one of them sends intents on all to their buckets.

use std::sync::Arc;

use tidegate_runtime::sync::atomic::{AtomicU32, Ordering};
use tidegate_runtime::sync::{Mutex, MutexGuard};
use tidegate_runtime::thread;

use super::locker_state::LockerState;
use super::modes::{Mode, ModeSet};
use super::queues::NewRequest;
use super::table::Load;
use super::{Padded, Resource};

/// Enough for the threads of a machine that run at one time; each strong request latches them all.
const STRIPES: usize = 32;

/// Locks in one stripe, which are looked through one by one.
const IN_STRIPE_MAX: usize = 64;

const COUNTERS: usize = 256;

/// See the [module](self).
pub(super) struct Intents<R> {
    modes: ModeSet,
    /// Whether a resource contains others.
    pub(super) is_whole: fn(&R) -> bool,
    stripes: Box<[Padded<Mutex<Stripe<R>>>]>,
    /// Lockers with a strong mode, held or asked for.
    strong: Box<[AtomicU32]>,
}

struct Stripe<R> {
    held: Vec<Intent<R>>,
    requests: u64,
}

/// An intention lock that is held.
pub(super) struct Intent<R> {
    pub(super) resource: R,
    pub(super) locker: Arc<LockerState>,
    pub(super) mode: Mode,
}

/// Returns the stripe of this thread.
pub(super) fn own_stripe() -> usize {
    thread::number() % STRIPES
}

impl<R: Resource> Intents<R> {
    pub(super) fn new(modes: ModeSet, is_whole: fn(&R) -> bool) -> Intents<R> {
        let stripe = |_| Padded(Mutex::new(Stripe { held: Vec::new(), requests: 0 }));
        Intents {
            modes,
            is_whole,
            stripes: (0..STRIPES).map(stripe).collect(),
            strong: (0..COUNTERS).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Returns whether a mode is an intent; else it is strong.
    pub(super) fn has(&self, mode: Mode) -> bool {
        self.modes.contains(mode)
    }

    /// Writes an intention lock into a stripe, unless a locker holds or wants a strong one.
    pub(super) fn grant(&self, ask: &NewRequest<'_, R>) -> bool {
        debug_assert!(
            self.has(ask.mode) && (self.is_whole)(ask.resource),
            "only intentions on wholes"
        );
        let mut stripe = self.latch(ask.locker.stripe);
        // Who has gone through this stripe before has counted itself before.
        let is_free = self.counter(ask.hash).load(Ordering::Acquire) == 0;
        let may = is_free && stripe.held.len() < IN_STRIPE_MAX;
        if may {
            let (resource, locker) = (ask.resource.clone(), Arc::clone(ask.locker));
            debug_assert!(stripe.find(ask.resource, ask.locker).is_none(), "a lock is held once");
            stripe.requests += 1;
            stripe.held.push(Intent { resource, locker, mode: ask.mode });
        }
        may
    }

    /// Changes an intention lock into another, if it is in the stripe still.
    pub(super) fn change(&self, ask: &NewRequest<'_, R>) -> bool {
        let mut stripe = self.latch(ask.locker.stripe);
        let Some(at) = stripe.find(ask.resource, ask.locker) else { return false };
        debug_assert!(self.has(ask.mode), "only intentions are in a stripe");
        stripe.requests += 1;
        stripe.held[at].mode = ask.mode;
        true
    }

    /// Gives an intention lock up, if it is in the stripe still.
    pub(super) fn release(&self, resource: &R, locker: &Arc<LockerState>) -> bool {
        let mut stripe = self.latch(locker.stripe);
        let at = stripe.find(resource, locker);
        at.map(|at| stripe.held.swap_remove(at)).is_some()
    }

    /// Counts a strong request, and has the locks on `resource` moved out of the stripes by
    /// `adopt`, which is called while their stripe is latched.
    pub(super) fn begin_strong(&self, hash: u64, resource: &R, adopt: impl Fn(&Intent<R>)) {
        debug_assert!((self.is_whole)(resource), "only on wholes an intention may be in the way");
        self.counter(hash).fetch_add(1, Ordering::Relaxed);
        for number in 0..STRIPES {
            self.latch(number).held.retain(|intent| {
                let stays = intent.resource != *resource;
                if !stays {
                    adopt(intent);
                }
                stays
            });
        }
    }

    /// Records that a strong lock was given up, or the request for it.
    pub(super) fn end_strong(&self, hash: u64) {
        // Who sees 0 sees what its holder did.
        let before = self.counter(hash).fetch_sub(1, Ordering::Release);
        debug_assert!(before > 0, "a strong request is taken back once");
    }

    /// Calls `at` with every lock in the stripes, each seen at another moment.
    pub(super) fn look(&self, mut at: impl FnMut(&Intent<R>)) {
        for number in 0..STRIPES {
            self.latch(number).held.iter().for_each(&mut at);
        }
    }

    pub(super) fn loads(&self) -> impl Iterator<Item = Load> {
        (0..STRIPES).map(|number| {
            let stripe = self.latch(number);
            Load { requests: stripe.requests, held: stripe.held.len() as u64, waiting: 0 }
        })
    }

    fn latch(&self, number: usize) -> MutexGuard<'_, Stripe<R>> {
        self.stripes[number % STRIPES].0.lock()
    }

    fn counter(&self, hash: u64) -> &AtomicU32 {
        #[expect(clippy::cast_possible_truncation, reason = "the remainder is of the lowest bits")]
        let at = hash as usize % COUNTERS;
        &self.strong[at]
    }
}

impl<R: Eq> Stripe<R> {
    /// Finds a lock of a locker. The last taken is the first to be released.
    fn find(&self, resource: &R, locker: &Arc<LockerState>) -> Option<usize> {
        let is_it = |intent: &Intent<R>| {
            Arc::ptr_eq(&intent.locker, locker) && intent.resource == *resource
        };
        self.held.iter().rposition(is_it)
    }
}

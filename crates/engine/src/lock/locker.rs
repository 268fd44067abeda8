//! The locks of one transaction: asking, waiting, releasing, and escalation.
//!
//! # Escalation: one lock on a whole instead of many on its parts
//! Which resource contains which, from how many locks on the parts on a whole is locked at once,
//! and which mode on the whole stands for one on all parts is the client's to say, in an
//! [`Escalation`]. The locker counts the locks it holds below each resource that it holds itself.
//! Before it asks for one more than allowed, it asks for the whole, in the mode that covers all its
//! locks on the parts and the new one. If that is granted, the locks on the parts are released, and
//! those on the parts' parts.
//!
//! A part of what is locked so needs no lock: its request is answered at once and leaves no trace.
//!
//! For example:
//!
//! At most 1,000 keys of a tree, S and X cover themselves:
//!
//! ```text
//! holds IX(tree), X on 1,000 keys    asks for X(key 1,001)
//! nobody else in the tree            X(tree) is granted, the keys are given back; holds X(tree)
//! a reader holds IS(tree)            X(tree) is refused; X(key 1,001) as ever; again at 2,000
//! ```
//!
//! # Where this leaves the literature
//! * **Waiting.** Two that escalate in one tree and wait for it wait for each other's intention: a
//!   deadlock made of thrift. So an escalation is tried and never waits, and is tried again as many
//!   locks later. SQL Server does the same.
//! * **Threshold.** That of the study of XML locking depends on the level in the document (Section
//!   2.3, the equation of the threshold). So here it is given with the parent.

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_runtime::work::{self, Operation};
use tidegate_runtime::{clock, thread};

use super::locker_state::{
    BucketNumber, LockerId, LockerState, LockerWatch, Outcome, RequestIndex, Woken,
};
use super::modes::Mode;
use super::queues::{Answer, Handle, IfBusy, NewRequest};
use super::table::Granted;
use super::{
    EscalationPolicy, EscalationRules, LockError, LockManager, Priorities, Resource, Wait,
};
use crate::hash_slab::{HashSlab, NONE, hash_of};

/// One transaction's locks. They are released by [`release_all`](Locker::release_all), or when this
/// is dropped.
///
/// It knows what it holds, so that a second request for the same costs no visit to the shared
/// table. After an error it still holds everything it held before: the transaction rolls back
/// first, and releases then.
pub struct Locker<R: Resource> {
    pub(super) manager: Arc<LockManager<R>>,
    pub(super) state: Arc<LockerState>,
    pub(super) held: HashSlab<R, Held>,
    /// Who waited for what this one gives up; kept for its memory.
    woken: Woken,
    is_preempted: bool,
    /// Where among those held the lock is that contains the last one taken, if it is there still.
    pub(super) last_whole: Option<u32>,
    /// Where among those held the lock is that was granted last on what was not held before.
    pub(super) last_kept: u32,
    /// How many locks were given up: while this is the same, each is where it was.
    pub(super) given_up: u64,
    pub(super) policy: EscalationPolicy,
    pub(super) figures: LockerFigures,
}

/// What a locker has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockerFigures {
    /// Requests, also those for which nothing was to be done.
    pub requests: u64,
    /// Locks that were granted on what was not held before.
    pub locks: u64,
    /// Locks that were granted in a stronger mode than the one held before.
    pub conversions: u64,
    /// Locks on a whole that were taken in place of those on its parts.
    pub escalations: u64,
    /// Requests that waited.
    pub waits: u64,
    /// Time spent in these waits.
    pub wait_time: Duration,
}

impl std::ops::AddAssign for LockerFigures {
    fn add_assign(&mut self, other: LockerFigures) {
        self.requests += other.requests;
        self.locks += other.locks;
        self.conversions += other.conversions;
        self.escalations += other.escalations;
        self.waits += other.waits;
        self.wait_time += other.wait_time;
    }
}

/// One lock that is held.
pub(super) struct Held {
    pub(super) mode: Mode,
    pub(super) handle: Handle,
    /// It is counted at the intents of its resource.
    is_strong: bool,
    /// Locks held on parts of it, where there is an escalation, and requests for it when it was
    /// held, where those count.
    pub(super) parts: u32,
    /// How many those were when an escalation was last refused.
    pub(super) refused_at: u32,
}

/// A request, with what is known before it is put into the shared table.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a, R> {
    pub(super) hash: u64,
    pub(super) resource: &'a R,
    /// The mode held when it is granted.
    pub(super) mode: Mode,
    /// What is held of it already.
    pub(super) held: Option<u32>,
    /// What is held of that which contains it.
    pub(super) whole: Option<u32>,
}

/// What came of a request.
pub(super) enum RequestOutcome {
    Granted,
    Waiting(Pending),
    Refused,
}

/// A request that waits.
pub(super) struct Pending {
    kept: GrantEffects,
    place: RequestIndex,
}

/// What is to be written down when a request is granted.
struct GrantEffects {
    hash: u64,
    /// The mode held then.
    mode: Mode,
    /// For a conversion, what is held already.
    held: Option<u32>,
    /// What is held of that which contains it.
    whole: Option<u32>,
    /// It was counted at the intents of its resource, and what is held already was not.
    is_strong: bool,
}

impl<R: Resource> Locker<R> {
    pub(super) fn new(manager: Arc<LockManager<R>>, state: LockerState) -> Locker<R> {
        let state = Arc::new(state);
        Locker::with_state(manager, state)
    }

    fn with_state(manager: Arc<LockManager<R>>, state: Arc<LockerState>) -> Locker<R> {
        let (held, woken) = (HashSlab::new(), Woken::default());
        Locker {
            manager,
            state,
            held,
            woken,
            is_preempted: false,
            last_whole: None,
            last_kept: NONE,
            given_up: 0,
            policy: EscalationPolicy::default(),
            figures: LockerFigures::default(),
        }
    }

    /// Returns a locker of the same transaction for a table [beside](LockManager::beside) its own:
    /// a deadlock that leads through locks of both is found. One thread at a time uses the two.
    ///
    /// # Panics
    /// If the table is not beside this locker's.
    #[must_use]
    pub fn beside<Q: Resource>(&self, manager: &Arc<LockManager<Q>>) -> Locker<Q> {
        assert!(Arc::ptr_eq(&self.manager.group, &manager.group), "the two are in one group");
        self.state.count_table();
        Locker::with_state(Arc::clone(manager), Arc::clone(&self.state))
    }

    /// Returns the number of this locker, as it stands in [queues](LockManager::queue).
    #[must_use]
    pub fn id(&self) -> LockerId {
        self.state.id
    }

    /// Locks `resource` in `mode`, or in what the two make together if it is held already; waits if
    /// others are in the way.
    ///
    /// # Errors
    /// See [`LockError`]; what was held is held still.
    ///
    /// # Panics
    /// If `mode` is of another [`ModeTable`](super::ModeTable), as far as that can be seen.
    pub fn lock(&mut self, resource: &R, mode: Mode, wait: Wait) -> Result<(), LockError> {
        match self.ask(resource, mode, IfBusy::Queue)? {
            RequestOutcome::Granted => Ok(()),
            RequestOutcome::Waiting(pending) => self.wait(resource, &pending, wait),
            RequestOutcome::Refused => Err(LockError::TimedOut),
        }
    }

    /// Locks `resource` like [`lock`](Locker::lock), but returns `false` instead of waiting.
    ///
    /// # Errors
    /// [`LockError::Preempted`], if this locker was.
    ///
    /// # Panics
    /// As [`lock`](Locker::lock).
    pub fn try_lock(&mut self, resource: &R, mode: Mode) -> Result<bool, LockError> {
        let asked = self.ask(resource, mode, IfBusy::Refuse)?;
        Ok(matches!(asked, RequestOutcome::Granted))
    }

    /// Waits until `resource` could be held in `mode`, and leaves what is held of it as it was: a
    /// lock of instant duration (Mohan, ARIES/KVL, VLDB 1990).
    ///
    /// # Errors
    /// As [`lock`](Locker::lock).
    ///
    /// # Panics
    /// As [`lock`](Locker::lock).
    pub fn lock_instant(&mut self, resource: &R, mode: Mode, wait: Wait) -> Result<(), LockError> {
        let before = self.held(resource);
        self.lock(resource, mode, wait)?;
        self.restore(resource, before);
        Ok(())
    }

    /// Releases what was locked of `resource` since `before` was held of it.
    pub fn restore(&mut self, resource: &R, before: Option<Mode>) {
        match before {
            None => {
                self.unlock(resource);
            }
            Some(before) => self.weaken(resource, before),
        }
    }

    /// Releases one lock before the end. Returns whether there was one. What was held of the
    /// resource for other reasons is gone as well.
    pub fn unlock(&mut self, resource: &R) -> bool {
        let hash = hash_of(resource);
        let Some(at) = self.held.find(hash, resource) else { return false };
        let Held { handle, is_strong, .. } = self.held[at];
        let granted = Granted { hash, resource, handle, locker: &self.state };
        self.manager.take_back(&granted, is_strong, &mut self.woken);
        self.held.remove(at);
        self.given_up += 1;
        self.state.count_less(1);
        self.count_less(resource);
        true
    }

    /// Releases all locks, the last taken first. The locker is as new, but keeps its age.
    pub fn release_all(&mut self) {
        for (hash, resource, held) in self.held.iter() {
            let granted = Granted { hash, resource, handle: held.handle, locker: &self.state };
            self.manager.take_back(&granted, held.is_strong, &mut self.woken);
        }
        self.state.count_less(self.held.len());
        self.held.clear();
        self.given_up += 1;
        self.last_whole = None;
        self.is_preempted = false;
        debug_assert!(self.state.place().is_none(), "who waits releases nothing");
        debug_assert_eq!(self.held.len(), 0);
    }

    /// Returns the mode in which this locker holds `resource`.
    #[must_use]
    pub fn held(&self, resource: &R) -> Option<Mode> {
        self.held.find(hash_of(resource), resource).map(|at| self.held[at].mode)
    }

    /// Returns all locks held, the last taken first unless some were released early.
    pub fn locks(&self) -> impl Iterator<Item = (&R, Mode)> {
        self.held.iter().map(|(_, resource, held)| (resource, held.mode))
    }

    /// Locks held.
    #[must_use]
    pub fn count(&self) -> usize {
        self.held.len()
    }

    /// Returns how many requests count towards an escalation to `resource`: the locks held on parts
    /// of it, taken while it was held, and repeated requests for it where
    /// [they count](Escalation::counts_repeats). 0 for what is not held.
    #[must_use]
    pub fn requests(&self, resource: &R) -> u32 {
        self.held.find(hash_of(resource), resource).map_or(0, |at| self.held[at].parts)
    }

    /// Returns a view of this locker for other threads.
    #[must_use]
    pub fn watch(&self) -> LockerWatch {
        LockerWatch(Arc::clone(&self.state))
    }

    /// Returns whether the locker gave way to a higher priority. Every further request then fails
    /// until all locks are released.
    #[must_use]
    pub fn is_preempted(&self) -> bool {
        self.is_preempted
    }

    /// Sets the rule for escalations from the next request on.
    pub fn set_policy(&mut self, policy: EscalationPolicy) {
        self.policy = policy;
    }

    /// Returns what this locker has done since it was made.
    #[must_use]
    pub fn figures(&self) -> LockerFigures {
        self.figures
    }

    /// Counts a request, and refuses it if the locker has to give up.
    pub(super) fn begin(&mut self, mode: Mode) -> Result<(), LockError> {
        assert!(self.manager.modes().knows(mode), "{mode:?} is of another table");
        work::count(Operation::Lock, 1);
        self.figures.requests += 1;
        if self.is_preempted { Err(LockError::Preempted) } else { Ok(()) }
    }

    /// Asks without waiting.
    pub(super) fn ask(
        &mut self,
        resource: &R,
        mode: Mode,
        if_busy: IfBusy,
    ) -> Result<RequestOutcome, LockError> {
        self.begin(mode)?;
        let hash = hash_of(resource);
        let held = self.held.find(hash, resource);
        let before = held.map(|at| self.held[at].mode);
        let asked = mode;
        let mode = before.map_or(mode, |before| self.manager.modes().convert(before, mode));
        debug_assert!(self.manager.modes().covers(mode, asked), "a conversion covers its parts");
        if let Some(at) = held.filter(|_| before == Some(mode)) {
            self.count_repeat(at);
            return Ok(RequestOutcome::Granted);
        }
        let whole = match self.cover(resource, mode, held.is_some())? {
            Cover::Whole => return Ok(RequestOutcome::Granted),
            Cover::Part(at) => Some(at),
            Cover::None => None,
        };
        Ok(self.put(&Wanted { hash, resource, mode, held, whole }, if_busy))
    }

    /// Puts a request into the shared table.
    pub(super) fn put(&mut self, wanted: &Wanted<'_, R>, if_busy: IfBusy) -> RequestOutcome {
        let Wanted { hash, resource, mode, held, whole } = *wanted;
        let is_counted = held.is_some_and(|at| self.held[at].is_strong);
        let is_strong = !is_counted && self.begin_if_strong(hash, resource, mode);
        let kept = GrantEffects { hash, mode, held, whole, is_strong };
        let ask = NewRequest { hash, resource, mode, locker: &self.state, if_busy };
        match self.manager.put(&ask, held.map(|at| self.held[at].handle)) {
            Answer::Granted(handle) => {
                self.keep(resource, &kept, handle);
                RequestOutcome::Granted
            }
            Answer::Waiting(request) => {
                let bucket = BucketNumber::new(self.manager.number, self.manager.bucket_of(hash));
                let place = RequestIndex { bucket, request };
                RequestOutcome::Waiting(Pending { kept, place })
            }
            Answer::Refused => {
                self.drop_count(&kept);
                RequestOutcome::Refused
            }
        }
    }

    /// Returns whether a lock is a strong one on a resource that others lock in the intent modes.
    /// Those locks are moved out of the stripes then, and stay out until the strong lock is given
    /// up.
    fn begin_if_strong(&self, hash: u64, resource: &R, mode: Mode) -> bool {
        let is_strong = self.manager.intents_on(resource).is_some_and(|intents| !intents.has(mode));
        if is_strong {
            self.manager.begin_strong(hash, resource);
        }
        is_strong
    }

    /// Takes back the count of a strong request that was not granted.
    fn drop_count(&self, wanted: &GrantEffects) {
        if wanted.is_strong {
            self.manager.intents.end_strong(wanted.hash);
        }
    }

    /// Writes down what was granted.
    fn keep(&mut self, resource: &R, granted: &GrantEffects, handle: Handle) {
        let GrantEffects { hash, mode, held, whole, is_strong } = *granted;
        if let Some(at) = held {
            self.held[at].mode = mode;
            self.held[at].is_strong |= is_strong;
            self.figures.conversions += 1;
            return;
        }
        debug_assert!(self.held.find(hash, resource).is_none(), "a lock is held once");
        let held = Held { mode, handle, is_strong, parts: 0, refused_at: 0 };
        self.last_kept = self.held.insert(hash, resource.clone(), held);
        self.figures.locks += 1;
        self.state.count_lock();
        if let Some(whole) = whole {
            self.held[whole].parts += 1;
        }
    }

    /// Counts a request for what is held already.
    pub(super) fn count_repeat(&mut self, at: u32) {
        if self.manager.escalation.as_ref().is_some_and(|escalation| escalation.counts_repeats) {
            self.held[at].parts += 1;
        }
    }

    /// Counts one lock less at what contains `resource`.
    fn count_less(&mut self, resource: &R) {
        let Some(escalation) = &self.manager.escalation else { return };
        let Some(parent) = (escalation.parent)(resource) else { return };
        if let Some(at) = self.held.find(hash_of(&parent), &parent) {
            // A part that was locked before the whole was not counted.
            self.held[at].parts = self.held[at].parts.saturating_sub(1);
        }
    }

    fn weaken(&mut self, resource: &R, mode: Mode) {
        let hash = hash_of(resource);
        let Some(at) = self.held.find(hash, resource) else { return };
        if self.held[at].mode == mode {
            return;
        }
        debug_assert!(self.manager.modes().covers(self.held[at].mode, mode), "it gets weaker");
        self.held[at].mode = mode;
        let Held { handle, is_strong, .. } = self.held[at];
        let manager = &*self.manager;
        let granted = Granted { hash, resource, handle, locker: &self.state };
        manager.weaken(&granted, mode, &mut self.woken);
        let intents = manager.intents_on(resource).filter(|intents| intents.has(mode));
        if is_strong && intents.is_some() {
            self.held[at].is_strong = false;
            manager.intents.end_strong(hash);
        }
    }

    /// Waits for a request that is in its queue.
    pub(super) fn wait(
        &mut self,
        resource: &R,
        pending: &Pending,
        wait: Wait,
    ) -> Result<(), LockError> {
        let began = clock::now();
        let locks = self.state.locks();
        if self.manager.settings().priorities == Priorities::PreemptOnWait {
            self.preempt(pending.place);
        }
        if self.manager.settings().check_on_block {
            self.manager.break_deadlocks_from(self.state.id, pending.place);
        }
        self.manager.counters.0.begin_wait(locks);
        let outcome = self.sleep(pending.place, began, wait.at_most(self.manager.settings()));
        let waited = clock::now() - began;
        self.manager.counters.0.end_wait(locks, pending.kept.mode, waited, outcome);
        self.figures.waits += 1;
        self.figures.wait_time += waited;
        debug_assert!(self.state.place().is_none(), "a wait that is over has no place");
        debug_assert_ne!(outcome, Outcome::Waiting, "who sleeps is woken by an end");
        if outcome == Outcome::Granted {
            self.keep(resource, &pending.kept, Handle::Request(pending.place.request));
            return Ok(());
        }
        self.drop_count(&pending.kept);
        match outcome {
            Outcome::Deadlock => Err(LockError::Deadlock),
            Outcome::Preempted => {
                self.is_preempted = true;
                Err(LockError::Preempted)
            }
            _ => Err(LockError::TimedOut),
        }
    }

    /// Sleeps until the wait at `place` has an end, at the latest the one this makes of it.
    fn sleep(&mut self, place: RequestIndex, began: Instant, at_most: Option<Duration>) -> Outcome {
        // A deadline that is too far away to be represented is no deadline.
        let deadline = at_most.and_then(|at_most| began.checked_add(at_most));
        loop {
            let outcome = self.state.outcome();
            if outcome != Outcome::Waiting {
                return outcome;
            }
            let Some(deadline) = deadline else {
                thread::park();
                continue;
            };
            if clock::now() >= deadline {
                return self.give_up(place);
            }
            thread::park_until(deadline);
        }
    }

    /// Takes the request out of its queue, unless the wait has ended already.
    fn give_up(&mut self, place: RequestIndex) -> Outcome {
        let mut bucket = self.manager.latch(place.bucket.in_table());
        if self.state.outcome() == Outcome::Waiting {
            let rules = &self.manager.rules;
            bucket.queues.dismiss(rules, place.request, Outcome::TimedOut, &mut self.woken);
        }
        drop(bucket);
        self.woken.wake();
        self.state.outcome()
    }
}

impl<R: Resource> Drop for Locker<R> {
    fn drop(&mut self) {
        self.release_all();
    }
}

impl<R: Resource> Debug for Locker<R> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Locker")
            .field("id", &self.state.id)
            .field("locks", &self.held.len())
            .finish_non_exhaustive()
    }
}

impl<R: Resource> EscalationRules<R> {
    /// Returns the mode on `whole` that covers `mode` on `resource`; `None` unless the one contains
    /// the other.
    fn covering_on(&self, whole: &R, resource: &R, mode: Mode) -> Option<Mode> {
        let mut mode = self.covering(mode);
        let mut above = (self.parent)(resource)?;
        while above != *whole {
            mode = self.covering(mode);
            above = (self.parent)(&above)?;
        }
        Some(mode)
    }
}

/// What is held of that which contains a resource.
pub(super) enum Cover {
    /// No lock is held on it.
    None,
    /// It, in a mode that does not cover the part: its place in the table of locks held.
    Part(u32),
    /// Enough, so that the part needs no lock.
    Whole,
}

impl<R: Resource> Locker<R> {
    /// Returns whether a lock on what contains the resource makes this one needless, perhaps one
    /// taken right now.
    pub(super) fn cover(
        &mut self,
        resource: &R,
        mode: Mode,
        is_held: bool,
    ) -> Result<Cover, LockError> {
        let Some(escalation) = &self.manager.escalation else { return Ok(Cover::None) };
        let Some(whole) = (escalation.parent)(resource) else { return Ok(Cover::None) };
        let strong = escalation.covering(mode);
        let place = self.find_whole(&whole);
        self.last_whole = place;
        let modes = self.manager.modes();
        // What contains what is held was looked at when that was asked for.
        let is_covered = match place {
            Some(at) => modes.covers(self.held[at].mode, strong),
            None => self.is_below(escalation, &whole, strong),
        };
        if is_covered {
            return Ok(Cover::Whole);
        }
        let Some(at) = place else { return Ok(Cover::None) };
        if !is_held && self.is_due(&whole, at) {
            let Some(escalation) = &self.manager.escalation else { return Ok(Cover::None) };
            let is_below = self.is_below(escalation, &whole, strong);
            if is_below || self.escalate(&whole, mode)? {
                return Ok(Cover::Whole);
            }
        }
        Ok(Cover::Part(at))
    }

    /// Returns whether so many parts of `whole`, which is held at `at`, are locked that the whole
    /// is to be locked.
    pub(super) fn is_due(&self, whole: &R, at: u32) -> bool {
        let Some(escalation) = &self.manager.escalation else { return false };
        let Held { parts, refused_at, .. } = self.held[at];
        if parts <= refused_at {
            return false;
        }
        let parts_max = (escalation.parts_max)(whole, self.policy);
        parts >= refused_at.saturating_add(parts_max.max(1))
    }

    /// Returns where a lock on `whole` is among those held. Mostly it is the one that was asked for
    /// last.
    fn find_whole(&self, whole: &R) -> Option<u32> {
        let last = self.last_whole.filter(|at| self.held.key(*at) == Some(whole));
        last.or_else(|| self.held.find(hash_of(whole), whole))
    }

    /// Returns whether something that contains `resource` is held in a mode that covers `mode`.
    fn is_below(&self, escalation: &EscalationRules<R>, resource: &R, mode: Mode) -> bool {
        let mut mode = mode;
        let mut above = (escalation.parent)(resource);
        while let Some(parent) = above {
            mode = escalation.covering(mode);
            let held = self.held(&parent);
            if held.is_some_and(|held| self.manager.modes().covers(held, mode)) {
                return true;
            }
            above = (escalation.parent)(&parent);
        }
        false
    }

    /// Tries to lock `whole` for all its parts that are held, and for one in `mode`.
    pub(super) fn escalate(&mut self, whole: &R, mode: Mode) -> Result<bool, LockError> {
        let manager = Arc::clone(&self.manager);
        let Some(escalation) = &manager.escalation else { return Ok(false) };
        debug_assert!(self.held(whole).is_some(), "what contains a part is locked first");
        let mut strong = escalation.covering(mode);
        let mut parts = Vec::new();
        for (resource, mode) in self.locks() {
            if let Some(covering) = escalation.covering_on(whole, resource, mode) {
                strong = manager.modes().convert(strong, covering);
                parts.push(resource.clone());
            }
        }
        if !self.try_with_above(whole, strong)? {
            if let Some(at) = self.held.find(hash_of(whole), whole) {
                self.held[at].refused_at = self.held[at].parts;
            }
            return Ok(false);
        }
        for part in parts {
            self.unlock(&part);
        }
        debug_assert!(self.held(whole).is_some_and(|held| manager.modes().covers(held, strong)));
        manager.counters.0.escalated();
        self.figures.escalations += 1;
        Ok(true)
    }
}

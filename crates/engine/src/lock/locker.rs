//! The handle of one transaction.

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::LockError;
use super::bucket::Granted;
use super::escalation::Cover;
use super::hash_slab::{HashSlab, hash_of};
use super::locker_state::{LockerId, LockerState, LockerWatch, Outcome, Place, Woken};
use super::manager::{LockManager, Resource};
use super::modes::Mode;
use super::queues::{Answer, Ask, Handle, IfBusy};
use super::settings::{Priorities, Wait};

/// One transaction's locks. They are given back by [`release_all`](Locker::release_all), or when
/// this is dropped.
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
}

/// One lock that is held.
pub(super) struct Held {
    pub(super) mode: Mode,
    pub(super) handle: Handle,
    /// It is counted at the intents of its resource.
    is_strong: bool,
    /// Locks held on parts of it, where there is an escalation.
    pub(super) parts: u32,
    /// How many those were when an escalation was last refused.
    pub(super) refused_at: u32,
}

/// What came of a request.
pub(super) enum Asked {
    Granted,
    Waiting(Pending),
    Refused,
}

/// A request that waits.
pub(super) struct Pending {
    kept: Kept,
    place: Place,
}

/// What is to be written down when a request is granted.
struct Kept {
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
        let (held, woken) = (HashSlab::new(), Woken::default());
        Locker { manager, state, held, woken, is_preempted: false, last_whole: None }
    }

    /// Who this is in [queues](LockManager::queue).
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
            Asked::Granted => Ok(()),
            Asked::Waiting(pending) => self.wait(resource, &pending, wait),
            Asked::Refused => Err(LockError::TimedOut),
        }
    }

    /// Like [`lock`](Locker::lock), but says `false` instead of waiting.
    ///
    /// # Errors
    /// [`LockError::Preempted`], if this locker was.
    ///
    /// # Panics
    /// As [`lock`](Locker::lock).
    pub fn try_lock(&mut self, resource: &R, mode: Mode) -> Result<bool, LockError> {
        let asked = self.ask(resource, mode, IfBusy::Refuse)?;
        Ok(matches!(asked, Asked::Granted))
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

    /// Gives back what was locked of `resource` since `before` was held of it.
    pub fn restore(&mut self, resource: &R, before: Option<Mode>) {
        match before {
            None => {
                self.unlock(resource);
            }
            Some(before) => self.weaken(resource, before),
        }
    }

    /// Gives one lock back before the end, and says whether there was one. What was held of the
    /// resource for other reasons is gone as well.
    pub fn unlock(&mut self, resource: &R) -> bool {
        let hash = hash_of(resource);
        let Some(at) = self.held.find(hash, resource) else { return false };
        let Held { handle, is_strong, .. } = self.held[at];
        let granted = Granted { hash, resource, handle, locker: &self.state };
        self.manager.take_back(&granted, is_strong, &mut self.woken);
        self.held.remove(at);
        self.count_less(resource);
        true
    }

    /// Gives all locks back, the last taken first. The locker is as new, but keeps its age.
    pub fn release_all(&mut self) {
        for (hash, resource, held) in self.held.iter() {
            let granted = Granted { hash, resource, handle: held.handle, locker: &self.state };
            self.manager.take_back(&granted, held.is_strong, &mut self.woken);
        }
        self.held.clear();
        self.is_preempted = false;
    }

    /// The mode in which this locker holds `resource`.
    #[must_use]
    pub fn held(&self, resource: &R) -> Option<Mode> {
        self.held.find(hash_of(resource), resource).map(|at| self.held[at].mode)
    }

    /// All locks held, the last taken first unless some were given back early.
    pub fn locks(&self) -> impl Iterator<Item = (&R, Mode)> {
        self.held.iter().map(|(_, resource, held)| (resource, held.mode))
    }

    /// Locks held.
    #[must_use]
    pub fn count(&self) -> usize {
        self.held.len()
    }

    /// How this locker stands, for another thread to see.
    #[must_use]
    pub fn watch(&self) -> LockerWatch {
        LockerWatch(Arc::clone(&self.state))
    }

    /// Whether a higher priority was given way to: every further request fails until all locks are
    /// released.
    #[must_use]
    pub fn is_preempted(&self) -> bool {
        self.is_preempted
    }

    /// Asks without waiting.
    pub(super) fn ask(
        &mut self,
        resource: &R,
        mode: Mode,
        if_busy: IfBusy,
    ) -> Result<Asked, LockError> {
        assert!(self.manager.modes().knows(mode), "{mode:?} is of another table");
        if self.is_preempted {
            return Err(LockError::Preempted);
        }
        let hash = hash_of(resource);
        let held = self.held.find(hash, resource);
        let before = held.map(|at| self.held[at].mode);
        let mode = before.map_or(mode, |before| self.manager.modes().convert(before, mode));
        if before == Some(mode) {
            return Ok(Asked::Granted);
        }
        let whole = match self.cover(resource, mode, held.is_some())? {
            Cover::Whole => return Ok(Asked::Granted),
            Cover::Part(at) => Some(at),
            Cover::None => None,
        };
        let is_counted = held.is_some_and(|at| self.held[at].is_strong);
        let is_strong = !is_counted && self.begin_if_strong(hash, resource, mode);
        let kept = Kept { hash, mode, held, whole, is_strong };
        match self.put(resource, &kept, if_busy) {
            Answer::Granted(handle) => {
                self.keep(resource, &kept, handle);
                Ok(Asked::Granted)
            }
            Answer::Waiting(request) => {
                let place = Place { bucket: self.manager.bucket_of(hash), request };
                Ok(Asked::Waiting(Pending { kept, place }))
            }
            Answer::Refused => {
                self.drop_count(&kept);
                Ok(Asked::Refused)
            }
        }
    }

    /// Whether a lock is a strong one on what others have in the intent modes; these are out of
    /// the stripes then, and stay so until it is given up.
    fn begin_if_strong(&self, hash: u64, resource: &R, mode: Mode) -> bool {
        let intents = self.manager.intents_on(resource).filter(|intents| !intents.has(mode));
        if let Some(intents) = intents {
            self.manager.begin_strong(intents, hash, resource);
        }
        intents.is_some()
    }

    /// Puts a request where it belongs.
    fn put(&self, resource: &R, wanted: &Kept, if_busy: IfBusy) -> Answer {
        let Kept { hash, mode, held, .. } = *wanted;
        let manager = &*self.manager;
        let ask = Ask { hash, resource, mode, locker: &self.state, if_busy };
        let handle = held.map(|at| self.held[at].handle);
        if let Some(intents) = manager.intents_on(resource).filter(|intents| intents.has(mode)) {
            let is_granted = match handle {
                None => intents.grant(&ask),
                Some(Handle::Stripe) => intents.change(&ask),
                Some(_) => false,
            };
            if is_granted {
                return Answer::Granted(Handle::Stripe);
            }
        }
        let mut bucket = manager.latch(manager.bucket_of(hash));
        match handle {
            None => bucket.ask(manager.rules(), &ask),
            Some(handle) => {
                let granted = Granted { hash, resource, handle, locker: &self.state };
                bucket.strengthen(manager.rules(), &granted, mode, if_busy)
            }
        }
    }

    /// Nothing has come of a request.
    fn drop_count(&self, wanted: &Kept) {
        if wanted.is_strong {
            self.manager.end_strong(wanted.hash);
        }
    }

    /// Writes down what was granted.
    fn keep(&mut self, resource: &R, granted: &Kept, handle: Handle) {
        let Kept { hash, mode, held, whole, is_strong } = *granted;
        if let Some(at) = held {
            self.held[at].mode = mode;
            self.held[at].is_strong |= is_strong;
            return;
        }
        let held = Held { mode, handle, is_strong, parts: 0, refused_at: 0 };
        self.held.insert(hash, resource.clone(), held);
        self.state.set_locks(self.held.len());
        if let Some(whole) = whole {
            self.held[whole].parts += 1;
        }
    }

    /// Counts one lock less at what contains `resource`.
    fn count_less(&mut self, resource: &R) {
        let Some(escalation) = self.manager.escalation() else { return };
        let Some(parent) = (escalation.parent)(resource) else { return };
        if let Some(at) = self.held.find(hash_of(&parent.resource), &parent.resource) {
            self.held[at].parts = self.held[at].parts.saturating_sub(1);
        }
    }

    fn weaken(&mut self, resource: &R, mode: Mode) {
        let hash = hash_of(resource);
        let Some(at) = self.held.find(hash, resource) else { return };
        if self.held[at].mode == mode {
            return;
        }
        self.held[at].mode = mode;
        let Held { handle, is_strong, .. } = self.held[at];
        let manager = &*self.manager;
        let granted = Granted { hash, resource, handle, locker: &self.state };
        manager.weaken(&granted, mode, &mut self.woken);
        let intents = manager.intents_on(resource).filter(|intents| intents.has(mode));
        if is_strong && intents.is_some() {
            self.held[at].is_strong = false;
            manager.end_strong(hash);
        }
    }

    /// Waits for a request that is in its queue.
    fn wait(&mut self, resource: &R, pending: &Pending, wait: Wait) -> Result<(), LockError> {
        let began = Instant::now();
        let locks = self.held.len();
        self.state.set_locks(locks);
        if self.manager.settings().priorities == Priorities::PreemptOnWait {
            self.preempt(pending.place);
        }
        if self.manager.settings().check_on_block {
            self.manager.break_deadlocks_from(self.state.id, pending.place);
        }
        self.manager.counters().begin_wait(locks);
        let outcome = self.sleep(pending.place, began, wait.at_most(self.manager.settings()));
        self.manager.counters().end_wait(locks, began.elapsed(), outcome);
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
    fn sleep(&mut self, place: Place, began: Instant, at_most: Option<Duration>) -> Outcome {
        // A time too far away to be written down is none.
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
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return self.give_up(place);
            }
            thread::park_timeout(left);
        }
    }

    /// Takes the request out of its queue, unless somebody was faster.
    fn give_up(&mut self, place: Place) -> Outcome {
        let mut bucket = self.manager.latch(place.bucket);
        if self.state.outcome() == Outcome::Waiting {
            let rules = self.manager.rules();
            bucket.dismiss(rules, place.request, Outcome::TimedOut, &mut self.woken);
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

//! A lock together with those that it needs on what contains the resource, in one pass.
//!
//! # Mechanism
//! In a hierarchy a resource is held in a mode only while what contains it is held in the mode that
//! [`Escalation::above`](super::Escalation::above) names. A request goes up first: what is held
//! already and what is asked for make a mode together, and *that* mode says what is needed one step
//! above, where it is joined with what is held there. The first step that needs no more than it has
//! ends the way up, because its own needs were met when it was locked. Then the locks are taken
//! from there down, the resource last. So a lock is never held, not even for a moment, without what
//! it needs above it, and a conversion that gives more than its two parts together locks anew what
//! is above.
//!
//! For example, in the modes of `taDOM3+`:
//!
//! ```text
//! holds IR site, IR people, NU person    asks for IX person
//! NU and IX make NX, which needs CX people; IR and CX make CX, which needs IX site
//! locks IX site, CX people, NX person
//! ```
//!
//! A [`LockPath`] is the way to the resource locked last. Most requests of a transaction are near
//! one another, so that most steps of the next way are the same, and are found where they were.

use std::sync::Arc;

use tidegate_runtime::work::{self, Operation};

use super::locker::{RequestOutcome, Wanted};
use super::modes::Mode;
use super::queues::IfBusy;
use super::{LockError, Locker, Resource, Wait};
use crate::hash_slab::hash_of;

/// Steps of a path for which memory is taken at once.
const STEPS: usize = 12;

/// What contains a resource, outermost first.
pub struct LockPath<R> {
    steps: Vec<Step<R>>,
    /// [`Locker::given_up`] when the steps were found.
    found_at: Option<u64>,
}

/// One of what contains a resource.
struct Step<R> {
    resource: R,
    hash: u64,
    /// Where it is among the locks held, if it was found there and is there still.
    held: Option<u32>,
    /// The mode that it has to be held in, from the first step on that is not held so.
    wanted: Mode,
}

impl<R> Default for LockPath<R> {
    fn default() -> Self {
        LockPath { steps: Vec::with_capacity(STEPS), found_at: None }
    }
}

impl<R: Resource> LockPath<R> {
    pub(crate) fn len(&self) -> usize {
        self.steps.len()
    }

    /// Makes it the path of `count` steps. The step of a number is made by `make`, unless it `is`
    /// that already.
    pub(crate) fn lead(
        &mut self,
        count: usize,
        is: impl Fn(usize, &R) -> bool,
        make: impl Fn(usize) -> R,
    ) {
        let same = self.steps.iter().take(count).enumerate();
        let same = same.take_while(|(at, step)| is(*at, &step.resource)).count();
        self.steps.truncate(same);
        while self.steps.len() < count {
            let resource = make(self.steps.len());
            let hash = hash_of(&resource);
            self.steps.push(Step { resource, hash, held: None, wanted: Mode::in_row(0) });
        }
    }

    /// Finds out which steps are held. Those that were found held are where they were, as long as
    /// nothing was given up.
    fn find(&mut self, locker: &Locker<R>) {
        let is_same = self.found_at == Some(locker.given_up);
        for step in &mut self.steps {
            if !(is_same && step.held.is_some()) {
                step.held = locker.held.find(step.hash, &step.resource);
            }
        }
        self.found_at = Some(locker.given_up);
    }
}

impl<R: Resource> Locker<R> {
    /// Locks `resource` in `mode`, or in what the two make together if it is held already, behind
    /// what has to be held of that which contains it: the steps of `path`. What is below something
    /// that is held in a mode that covers it gets no lock.
    ///
    /// # Errors
    /// See [`LockError`]; what was held is held still.
    ///
    /// # Panics
    /// If `mode` is of another [`ModeTable`](super::ModeTable), as far as that can be seen.
    pub fn lock_path(
        &mut self,
        path: &mut LockPath<R>,
        resource: &R,
        mode: Mode,
        wait: Wait,
    ) -> Result<(), LockError> {
        self.begin(mode)?;
        let hash = hash_of(resource);
        loop {
            let held = self.held.find(hash, resource);
            let before = held.map(|at| self.held[at].mode);
            let result = before.map_or(mode, |before| self.manager.modes().convert(before, mode));
            if let Some(at) = held.filter(|_| before == Some(result)) {
                self.count_repeat(at);
                return Ok(());
            }
            path.find(self);
            if self.is_covered(path, mode) {
                return Ok(());
            }
            let mode = result;
            if self.take_steps(path, mode, wait)? {
                let whole = path.steps.last().and_then(|step| step.held);
                let target = Wanted { hash, resource, mode, held, whole };
                match self.take(path.steps.last(), &target, wait)? {
                    Taken::Escalated => {}
                    Taken::Covered | Taken::Held => return Ok(()),
                }
            }
            // A whole was locked, and what was held below it was given back. Look again.
        }
    }

    /// Returns whether something on the way is held in a mode that covers `mode` on what the way
    /// leads to.
    fn is_covered(&self, path: &LockPath<R>, mode: Mode) -> bool {
        let Some(escalation) = &self.manager.escalation else { return false };
        let mut covering = mode;
        path.steps.iter().rev().any(|step| {
            covering = escalation.covering(covering);
            let held = step.held.map(|at| self.held[at].mode);
            held.is_some_and(|held| self.manager.modes().covers(held, covering))
        })
    }

    /// Finds what the steps have to be held in while what they lead to is held in `mode`. Returns
    /// the first step that is not held so.
    fn plan(&self, path: &mut LockPath<R>, mode: Mode) -> usize {
        let mut first = path.steps.len();
        let Some(escalation) = &self.manager.escalation else { return first };
        let mut needed = escalation.above(mode);
        for (at, step) in path.steps.iter_mut().enumerate().rev() {
            let Some(wanted) = needed else { break };
            let before = step.held.map(|at| self.held[at].mode);
            let after = before.map_or(wanted, |held| self.manager.modes().convert(held, wanted));
            if before == Some(after) {
                break;
            }
            (first, step.wanted) = (at, after);
            needed = escalation.above(after);
        }
        first
    }

    /// Locks the steps that have to be, outermost first. Returns `false` when a whole was locked
    /// instead.
    fn take_steps(
        &mut self,
        path: &mut LockPath<R>,
        mode: Mode,
        wait: Wait,
    ) -> Result<bool, LockError> {
        for at in self.plan(path, mode)..path.steps.len() {
            work::count(Operation::Lock, 1);
            let (above, below) = path.steps.split_at(at);
            let Step { ref resource, hash, held, wanted: mode } = below[0];
            let whole = above.last().and_then(|step| step.held);
            let taken =
                self.take(above.last(), &Wanted { hash, resource, mode, held, whole }, wait)?;
            match taken {
                Taken::Escalated => return Ok(false),
                // A conversion is where it was.
                Taken::Held if held.is_none() => path.steps[at].held = Some(self.last_kept),
                Taken::Held | Taken::Covered => {}
            }
        }
        Ok(true)
    }

    /// Locks something that is in `whole`, or the whole, if that is due.
    fn take(
        &mut self,
        whole: Option<&Step<R>>,
        wanted: &Wanted<'_, R>,
        wait: Wait,
    ) -> Result<Taken, LockError> {
        if let (Some(step), Some(at), None) = (whole, wanted.whole, wanted.held)
            && let Some(escalation) = &self.manager.escalation
        {
            let covering = escalation.covering(wanted.mode);
            if self.manager.modes().covers(self.held[at].mode, covering) {
                return Ok(Taken::Covered);
            }
            if self.is_due(&step.resource, at) && self.escalate(&step.resource, wanted.mode)? {
                return Ok(Taken::Escalated);
            }
        }
        match self.put(wanted, IfBusy::Queue) {
            RequestOutcome::Granted => {}
            RequestOutcome::Waiting(pending) => self.wait(wanted.resource, &pending, wait)?,
            RequestOutcome::Refused => return Err(LockError::TimedOut),
        }
        Ok(Taken::Held)
    }

    /// Locks `whole`, which is held, in `mode`, and what that needs above it, unless one of these
    /// locks would have to wait. Returns whether it is locked.
    pub(super) fn try_with_above(&mut self, whole: &R, mode: Mode) -> Result<bool, LockError> {
        let manager = Arc::clone(&self.manager);
        let Some(escalation) = &manager.escalation else { return Ok(false) };
        let mut wanted = Vec::new();
        let mut next = Some((whole.clone(), mode));
        while let Some((resource, mode)) = next {
            let before = self.held(&resource);
            let after = before.map_or(mode, |held| manager.modes().convert(held, mode));
            next = (escalation.parent)(&resource)
                .filter(|_| before != Some(after))
                .and_then(|parent| Some((parent, escalation.above(after)?)));
            wanted.push((resource, mode));
        }
        for (resource, mode) in wanted.iter().rev() {
            if !matches!(self.ask(resource, *mode, IfBusy::Refuse)?, RequestOutcome::Granted) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// What came of a request for a part.
enum Taken {
    Held,
    /// The whole is held in a mode that covers it.
    Covered,
    /// The whole was locked instead.
    Escalated,
}

//! Lock escalation: one lock on a whole in place of many on its parts.
//!
//! # Mechanism
//! Which resource contains which, from how many locks on the parts on a whole is locked at once,
//! and which mode on the whole stands for one on all parts is the client's to say, in an
//! [`Escalation`]. The locker counts the locks it holds below each resource that it holds itself.
//! Before it asks for one more than allowed, it asks for the whole, in the mode that covers all its
//! locks on the parts and the new one. If that is granted, the locks on the parts are given back.
//!
//! A part of what is locked so needs no lock: its request is answered at once and leaves no trace.
//!
//! # Example
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

use std::sync::Arc;

use super::LockError;
use super::hash_slab::hash_of;
use super::locker::{Asked, Held, Locker};
use super::manager::Resource;
use super::modes::Mode;
use super::queues::IfBusy;

/// What the parent of a resource is, if any.
pub type ParentOf<R> = Box<dyn Fn(&R) -> Option<Parent<R>> + Send + Sync>;

/// What escalates to what, see the [module](self).
pub struct Escalation<R> {
    /// The resource that contains one; `None` where nothing escalates any further. Going from
    /// parent to parent must end.
    pub parent: ParentOf<R>,
    /// The mode on the parent that covers a mode on every part.
    pub covering: Box<dyn Fn(Mode) -> Mode + Send + Sync>,
}

/// A resource that contains others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent<R> {
    /// The resource.
    pub resource: R,
    /// Locks that one locker may hold on its parts before the whole is locked.
    pub parts_max: u32,
}

/// What is held of that which contains a resource.
pub(super) enum Cover {
    /// Nothing.
    None,
    /// It, in a mode that does not cover the part: its place in the table of locks held.
    Part(u32),
    /// Enough, so that the part needs no lock.
    Whole,
}

impl<R: Resource> Locker<R> {
    /// Whether a lock on something larger makes this one needless, perhaps one taken right now.
    pub(super) fn cover(
        &mut self,
        resource: &R,
        mode: Mode,
        is_held: bool,
    ) -> Result<Cover, LockError> {
        let Some(escalation) = self.manager.escalation() else { return Ok(Cover::None) };
        let Some(Parent { resource: whole, parts_max }) = (escalation.parent)(resource) else {
            return Ok(Cover::None);
        };
        let strong = (escalation.covering)(mode);
        let place = self.find_whole(&whole);
        self.last_whole = place;
        let modes = self.manager.modes();
        let is_covered = place.is_some_and(|at| modes.covers(self.held[at].mode, strong));
        if is_covered || self.is_below(escalation, &whole, strong) {
            return Ok(Cover::Whole);
        }
        let Some(at) = place else { return Ok(Cover::None) };
        let Held { parts, refused_at, .. } = self.held[at];
        let is_due = parts >= refused_at.saturating_add(parts_max.max(1));
        if is_due && !is_held && self.escalate(&whole, mode)? {
            return Ok(Cover::Whole);
        }
        Ok(Cover::Part(at))
    }

    /// Where a lock on `whole` is among those held. Mostly it is the one that was asked for last.
    fn find_whole(&self, whole: &R) -> Option<u32> {
        let last = self.last_whole.filter(|at| self.held.key(*at) == Some(whole));
        last.or_else(|| self.held.find(hash_of(whole), whole))
    }

    /// Whether something that contains `resource` is held in a mode that covers `mode`.
    fn is_below(&self, escalation: &Escalation<R>, resource: &R, mode: Mode) -> bool {
        let mut mode = mode;
        let mut above = (escalation.parent)(resource);
        while let Some(parent) = above {
            mode = (escalation.covering)(mode);
            let held = self.held(&parent.resource);
            if held.is_some_and(|held| self.manager.modes().covers(held, mode)) {
                return true;
            }
            above = (escalation.parent)(&parent.resource);
        }
        false
    }

    /// Tries to lock `whole` for all its parts that are held, and for one in `mode`.
    fn escalate(&mut self, whole: &R, mode: Mode) -> Result<bool, LockError> {
        let manager = Arc::clone(&self.manager);
        let Some(escalation) = manager.escalation() else { return Ok(false) };
        let mut strong = (escalation.covering)(mode);
        let mut parts = Vec::new();
        for (resource, mode) in self.locks() {
            if (escalation.parent)(resource).is_some_and(|parent| parent.resource == *whole) {
                strong = manager.modes().convert(strong, (escalation.covering)(mode));
                parts.push(resource.clone());
            }
        }
        if !matches!(self.ask(whole, strong, IfBusy::Refuse)?, Asked::Granted) {
            if let Some(at) = self.held.find(hash_of(whole), whole) {
                self.held[at].refused_at = self.held[at].parts;
            }
            return Ok(false);
        }
        for part in parts {
            self.unlock(&part);
        }
        manager.counters().escalated();
        Ok(true)
    }
}

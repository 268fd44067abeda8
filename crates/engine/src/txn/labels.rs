//! Locks of a transaction in the spaces of its client. `core/spaces.rs` has the spaces.
//!
//! A transaction takes part in a space from its first request there to its end. All its locks, on
//! keys and on labels of whatever space, are of one locker in the search for deadlocks, and each
//! conflict is the end of the transaction.

use super::{Transaction, TxnError};
use crate::core::{LabelResource, LockSpace};
use crate::lock::{EscalationPolicy, LockPath, Locker, LockerFigures, MODES_MAX, Mode, Wait};

/// Bytes of a label for which memory is taken at once.
const LABEL: usize = 64;

/// What a transaction has locked in one space.
pub(super) struct SpaceLocks {
    space: LockSpace,
    locker: Locker<LabelResource>,
    /// The way to the label that was locked last, by [`LabelLocks::lock_path`].
    path: LockPath<LabelResource>,
    /// The label that the last step of it has.
    path_label: Vec<u8>,
    /// Requests by mode.
    requests: [u32; MODES_MAX],
}

impl Drop for SpaceLocks {
    fn drop(&mut self) {
        self.locker.release_all();
        self.space.leave(&self.requests);
    }
}

/// The locks of a transaction in one space: what [`Transaction::locks_in`] returns.
///
/// Labels are any byte strings. What contains a label is not locked with it; that is the client's
/// to do, as far as its modes ask for it. A label whose [parent](crate::LabelHierarchy::parent) is
/// held in a mode that covers the one asked for needs no lock, and gets none; so does one whose
/// parent is not held if that holds for the next one above.
pub struct LabelLocks<'t> {
    transaction: &'t mut Transaction,
    /// The index of the space's locks.
    at: usize,
}

impl Transaction {
    /// Returns the locks of this transaction in a space, to ask for more.
    ///
    /// # Errors
    /// [`TxnError::OtherStore`];
    /// [`StoreError::LockSpaceReplaced`](crate::StoreError::LockSpaceReplaced); or
    /// [`TxnError::Conflict`], after an earlier one.
    pub fn locks_in(&mut self, space: &LockSpace) -> Result<LabelLocks<'_>, TxnError> {
        self.check_conflict()?;
        let at = match self.spaces.iter().position(|locks| locks.space == *space) {
            Some(at) => at,
            None => self.enter_space(space)?,
        };
        Ok(LabelLocks { transaction: self, at })
    }

    fn enter_space(&mut self, space: &LockSpace) -> Result<usize, TxnError> {
        if !space.is_of(&self.core) {
            return Err(TxnError::OtherStore);
        }
        space.enter()?;
        let (space, locker) = (space.clone(), self.locker.beside(space.table()));
        let (path, path_label) = (LockPath::default(), Vec::with_capacity(LABEL));
        let requests = [0; MODES_MAX];
        self.spaces.push(SpaceLocks { space, locker, path, path_label, requests });
        Ok(self.spaces.len() - 1)
    }
}

impl Transaction {
    /// Returns what the transaction has done to lock keys and trees.
    #[must_use]
    pub fn key_lock_figures(&self) -> LockerFigures {
        self.locker.figures()
    }

    /// Returns what the transaction has done to lock labels, in all spaces together.
    #[must_use]
    pub fn label_lock_figures(&self) -> LockerFigures {
        let mut figures = LockerFigures::default();
        self.spaces.iter().for_each(|locks| figures += locks.locker.figures());
        figures
    }
}

impl LabelLocks<'_> {
    /// Locks a label until the end of the transaction, in `mode` or in what the two make together
    /// if it is held already. Waits as long as the store's settings say.
    ///
    /// # Errors
    /// [`TxnError::Conflict`].
    ///
    /// # Panics
    /// If `mode` is not of the space's table, as far as that can be seen.
    pub fn lock(&mut self, label: &[u8], mode: Mode) -> Result<(), TxnError> {
        self.lock_with(label, mode, Wait::AsSet)
    }

    /// Locks a label like [`lock`](LabelLocks::lock), and waits as long as `wait` says.
    ///
    /// # Errors
    /// [`TxnError::Conflict`], also when the wait was too long: then the transaction has to be
    /// rolled back. Who would go on without the lock asks by [`try_lock`](LabelLocks::try_lock).
    ///
    /// # Panics
    /// As [`lock`](LabelLocks::lock).
    pub fn lock_with(&mut self, label: &[u8], mode: Mode, wait: Wait) -> Result<(), TxnError> {
        self.ask(label, mode, |locker, label| locker.lock(label, mode, wait))
    }

    /// Locks a label like [`lock_with`](LabelLocks::lock_with), behind what contains it, in the
    /// modes that [`LabelHierarchy::above`](crate::LabelHierarchy::above) says. The labels of what
    /// contains it are the first bytes of `above`, up to each of `ends`, outermost first; this is
    /// said here because a client often knows it without asking for one parent after the other.
    ///
    /// # Errors
    /// As [`lock_with`](LabelLocks::lock_with).
    ///
    /// # Panics
    /// As [`lock`](LabelLocks::lock), and if an end is not within `above`.
    pub fn lock_path(
        &mut self,
        above: &[u8],
        ends: &[usize],
        label: &[u8],
        mode: Mode,
        wait: Wait,
    ) -> Result<(), TxnError> {
        self.transaction.check_conflict()?;
        self.transaction.leave_end();
        let SpaceLocks { space, locker, path, path_label, requests } = self.own();
        requests[mode.row()] += 1;
        if *path_label != *above || path.len() != ends.len() {
            path.lead(
                ends.len(),
                |at, step| step.bytes() == &above[..ends[at]],
                |at| space.resource(&above[..ends[at]]),
            );
            path_label.clear();
            path_label.extend_from_slice(above);
        }
        let asked = locker.lock_path(path, &space.resource(label), mode, wait);
        self.transaction.note(asked)
    }

    /// Sets the rule for escalations of this transaction in the space, from the next request on.
    pub fn set_policy(&mut self, policy: EscalationPolicy) {
        self.own().locker.set_policy(policy);
    }

    /// Locks a label like [`lock`](LabelLocks::lock), unless it would have to wait. Returns whether
    /// it is locked.
    ///
    /// # Errors
    /// [`TxnError::Conflict`], after an earlier one.
    ///
    /// # Panics
    /// As [`lock`](LabelLocks::lock).
    pub fn try_lock(&mut self, label: &[u8], mode: Mode) -> Result<bool, TxnError> {
        self.ask(label, mode, |locker, label| locker.try_lock(label, mode))
    }

    /// Waits until a label could be locked, as long as `wait` says, and leaves what is held of it
    /// as it was.
    ///
    /// # Errors
    /// As [`lock_with`](LabelLocks::lock_with).
    ///
    /// # Panics
    /// As [`lock`](LabelLocks::lock).
    pub fn lock_instant(&mut self, label: &[u8], mode: Mode, wait: Wait) -> Result<(), TxnError> {
        self.ask(label, mode, |locker, label| locker.lock_instant(label, mode, wait))
    }

    /// Releases a lock before the end of the transaction: a short lock. Returns whether there was
    /// one.
    pub fn unlock(&mut self, label: &[u8]) -> bool {
        let resource = self.own().space.resource(label);
        self.own().locker.unlock(&resource)
    }

    /// Releases what was locked of a label since `before` was held of it, which
    /// [`held`](LabelLocks::held) has returned then.
    pub fn restore(&mut self, label: &[u8], before: Option<Mode>) {
        let resource = self.own().space.resource(label);
        self.own().locker.restore(&resource, before);
    }

    /// Returns the mode in which the transaction holds a label.
    #[must_use]
    pub fn held(&self, label: &[u8]) -> Option<Mode> {
        let own = &self.transaction.spaces[self.at];
        own.locker.held(&own.space.resource(label))
    }

    /// Returns how many requests count towards an [escalation](crate::LabelHierarchy::escalate_at)
    /// to a label: locks on its parts, and repeated requests for it. 0 for what is not held.
    #[must_use]
    pub fn requests(&self, label: &[u8]) -> u32 {
        let own = &self.transaction.spaces[self.at];
        own.locker.requests(&own.space.resource(label))
    }

    /// Returns how many labels of the space are held.
    #[must_use]
    pub fn count(&self) -> usize {
        self.transaction.spaces[self.at].locker.count()
    }

    fn own(&mut self) -> &mut SpaceLocks {
        &mut self.transaction.spaces[self.at]
    }

    fn ask<T>(
        &mut self,
        label: &[u8],
        mode: Mode,
        ask: impl FnOnce(
            &mut Locker<LabelResource>,
            &LabelResource,
        ) -> Result<T, crate::lock::LockError>,
    ) -> Result<T, TxnError> {
        self.transaction.check_conflict()?;
        self.transaction.leave_end();
        let own = self.own();
        own.requests[mode.row()] += 1;
        let resource = own.space.resource(label);
        let asked = ask(&mut own.locker, &resource);
        self.transaction.note(asked)
    }
}

//! What a transaction locks first when it is run again after a deadlock.
//!
//! # Mechanism
//! Most deadlocks come of conversions: several transactions read the same, such as the end of a
//! list, and then each comes to write it. One of them goes on, and the victims are run again. If
//! they began as before, all that wait to read would read together as soon as the writer has ended,
//! and all but one would be victims once more: of k appenders, k - 1 for each that commits. So a
//! transaction knows what it asked for when it became a victim, and in which mode. The next run
//! [locks that first](XmlTransaction::claim_first), as soon as the document is open, and converts
//! nothing there. A run that is ended over something else adds to what is claimed. All claim in one
//! order, so that claims do not wait for each other in a circle.
//!
//! This is preventive locking (`claims.rs`) that is learnt: nothing is to be known of a transaction
//! beforehand, and a claim costs others nothing but the time for which it comes earlier.
//!
//! # Example
//! ```text
//! T1, T2: the last child of a list     NR on its end
//! T1: append    NX waits for T2        T2: append    NX, a deadlock; T2 gives up what it holds
//! T1 goes on and commits               T2 again: NX on the end first, waits for T1; reads; appends
//! ```
//!
//! # Limits
//! * Entries of indexes, which the engine locks, are not claimed.
//! * Below serializable, what is locked for one operation alone is not claimed either.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tidegate_engine::lock::Mode;

use super::protocol::TreeModes;
use super::space::HEAD;
use super::{Hold, Names};
use crate::store::{Document, XmlStoreError, XmlTransaction};

/// What earlier runs of a transaction asked for when they became victims of deadlocks.
#[derive(Clone, Default)]
pub struct RetryClaims {
    /// The modes that the claims are in.
    modes: Option<Arc<TreeModes>>,
    /// By the name of what is locked.
    claims: BTreeMap<Vec<u8>, RetryClaim>,
}

#[derive(Clone, Debug)]
struct RetryClaim {
    mode: Mode,
    is_write: bool,
    /// The name of the node that it is in, and where those of the ancestors end.
    above: Vec<u8>,
    ends: Vec<usize>,
}

impl fmt::Debug for RetryClaims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RetryClaims").field(&self.claims).finish()
    }
}

impl RetryClaims {
    /// Returns whether nothing is claimed: no run was the victim of a deadlock over nodes or gaps.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    /// Claims what a run asked for that became a victim. `held` returns what it holds.
    pub(super) fn add(
        &mut self,
        modes: &Arc<TreeModes>,
        names: &Names,
        (mode, is_write): (Mode, bool),
        held: impl Fn(&[u8]) -> Option<Mode>,
    ) {
        if !self.are_in(modes) {
            *self = RetryClaims { modes: Some(Arc::clone(modes)), claims: BTreeMap::new() };
        }
        let Names { own, above, ends } = names;
        let convert = |before, mode| modes.table.convert(before, mode);
        let mut mode = held(own).map_or(mode, |before| convert(before, mode));
        self.claim(modes, own, mode, (above, ends), is_write);
        // Perhaps it waited on the way there, to convert what it has read of a list.
        for (at, &end) in ends.iter().enumerate().rev() {
            let (name, needed) = (&above[..end], modes.above(mode));
            let before = held(name);
            mode = before.map_or(needed, |before| convert(before, needed));
            if before.is_some_and(|before| before != mode) && mode != needed {
                self.claim(modes, name, mode, (above, &ends[..at]), is_write);
            }
        }
    }

    fn claim(
        &mut self,
        modes: &TreeModes,
        own: &[u8],
        mode: Mode,
        (above, ends): (&[u8], &[usize]),
        is_write: bool,
    ) {
        let above = ends.last().map_or(Vec::new(), |&end| above[..end].to_vec());
        let new = RetryClaim { mode, is_write, above, ends: ends.to_vec() };
        let claim = self.claims.entry(own.to_vec()).or_insert(new);
        claim.mode = modes.table.convert(claim.mode, mode);
        claim.is_write |= is_write;
    }

    /// Gives what is claimed the modes that claims below it need there, so that each thing is
    /// locked once: in two steps the second would be a conversion, over which two that claim the
    /// same meet.
    fn joined(mut self, modes: &TreeModes) -> BTreeMap<Vec<u8>, RetryClaim> {
        let mut below_first: Vec<Vec<u8>> = self.claims.keys().cloned().collect();
        below_first.sort_by_key(|name| Reverse(self.claims[name].ends.len()));
        for name in below_first {
            let RetryClaim { mode, is_write, above, ends } = self.claims[&name].clone();
            let mut needed = modes.above(mode);
            for end in ends.into_iter().rev() {
                if let Some(claim) = self.claims.get_mut(&above[..end]) {
                    claim.mode = modes.table.convert(claim.mode, needed);
                    claim.is_write |= is_write;
                    needed = claim.mode;
                }
                needed = modes.above(needed);
            }
        }
        self.claims
    }

    fn are_in(&self, modes: &Arc<TreeModes>) -> bool {
        self.modes.as_ref().is_some_and(|own| Arc::ptr_eq(own, modes))
    }
}

impl XmlTransaction<'_> {
    /// Has a transaction that is run again lock first what its earlier runs were ended over:
    /// each time that it opens a document, what is claimed in that. Claims by modes that are not in
    /// use any more are left out.
    pub fn claim_first(&mut self, claims: RetryClaims) {
        *self.locks.claims.get_mut() = claims;
    }

    /// Returns what the next run has to claim first: what this one has, and what it was ended over
    /// if it became the victim of a deadlock.
    #[must_use]
    pub fn retry_claims(&self) -> RetryClaims {
        self.locks.claims.borrow().clone()
    }
}

impl Document<'_> {
    /// Locks what is claimed in this document.
    pub(in crate::store) fn lock_claims(&self) -> Result<(), XmlStoreError> {
        if self.locks.claims.borrow().is_empty() {
            return Ok(());
        }
        let claims = self.locks.claims.borrow().clone();
        let modes = self.protocol().modes();
        if !claims.are_in(modes) {
            return Ok(());
        }
        let document = self.stored.paths.document().to_be_bytes();
        for (own, claim) in claims.joined(modes) {
            if own.get(1..HEAD) != Some(&document[..]) {
                continue;
            }
            let RetryClaim { mode, is_write, above, ends } = claim;
            if is_write {
                self.lock_to_write()?;
            }
            self.names.replace(Names { own, above, ends });
            self.lock_named(mode, is_write, Hold::Transaction)?;
        }
        Ok(())
    }
}

//! Putting an entry into a leaf, and what it has to lock for that.
//!
//! The leaf is latched first, and then the key locked, and with it in one request the lower part of
//! the gap that a new key goes into. So an insert goes down the tree once and asks for two locks.
//!
//! # Sequences
//! An insert that follows its predecessor in a leaf is likely to be followed by the next: the leaf
//! is remembered, and looked at first. Its fences tell whether it is the right one. Who appends to
//! a tree keeps the lock on its last gap from the second key on (`core/key_locks.rs`), so that
//! each further key costs one lock.

use std::sync::Arc;

use super::{Lockable, RangeModes, Reference, Transaction, TxnError, hash_key, next_key};
use crate::btree::{NewEntry, Tree, TreeEntry};
use crate::buffer::Exclusive;
use crate::lock::Mode;
use crate::lock::multi_granularity::{IX, X};
use crate::page::{Node, TreeId};
use crate::record::Undo;

/// The last gap of a tree, into which the last insert went.
#[derive(Clone, Copy)]
pub(super) struct AtEnd {
    tree: TreeId,
    /// Whether RI is kept on it.
    is_kept: bool,
    /// What was held of it before.
    before: Option<Mode>,
}

/// What a change of a key finds of the key and, if it puts it in, of the gap that it goes into.
enum Entered {
    /// The change may be made.
    Free,
    /// It may be made, and what was locked of the gap for it released then.
    Through(Lockable, Option<Mode>),
    /// It would have to wait for this.
    Busy(Lockable, Mode),
}

impl Transaction {
    /// Sets what is stored of the value of a key of a tree. Returns whether that was done, and the
    /// reference to a long value that it has replaced.
    pub(super) fn put_stored(
        &mut self,
        entry: &TreeEntry,
        key: &[u8],
        value: &[u8],
        may: impl Fn(bool) -> bool,
    ) -> Result<(bool, Option<Reference>), TxnError> {
        self.lock_parents(entry, IX)?;
        let core = Arc::clone(&self.core);
        let tree = core.tree(entry);
        let own = Lockable::Key(entry.id, hash_key(key));
        let need = NewEntry { key, value_len: value.len() };
        loop {
            let mut leaf = self.leaf_to_change(tree, key)?;
            let node = Node::new(&leaf);
            let place = node.search(key);
            let is_wanted = may(place.is_ok());
            if is_wanted && !need.fits_at(node, place) {
                drop(leaf);
                tree.make_room(&need)?;
                continue;
            }
            let entered = match place {
                Err(slot) if is_wanted => self.enter_gap(tree, &leaf, slot, own)?,
                _ => self.enter_key(entry, own)?,
            };
            if let Entered::Busy(resource, mode) = entered {
                drop(leaf);
                // Kept until the end, also where a moment is all an insert needs: who comes back
                // without it may find that readers who queued behind it are in the way now, again
                // and again.
                self.lock_key(&resource, mode)?;
                continue;
            }
            let mut replaced = None;
            if is_wanted {
                replaced = self.make_entry(tree, &mut leaf, (key, value), place)?;
            }
            drop(leaf);
            if let Entered::Through(next, before) = entered {
                self.locker.restore(&next, before);
            }
            return Ok((is_wanted, replaced));
        }
    }

    /// Latches the leaf for a key exclusively. Looks first where the last insert of a sequence
    /// went.
    pub(super) fn leaf_to_change<'s>(
        &mut self,
        tree: Tree<'s>,
        key: &[u8],
    ) -> Result<Exclusive<'s>, TxnError> {
        if let Some((_, page)) = self.finger.take_if(|(of, _)| *of == tree.entry.id)
            && let Some(leaf) = tree.leaf_at(page, key)?
        {
            return Ok(leaf);
        }
        Ok(tree.leaf_to_change(key)?)
    }

    /// Logs and makes a change of a leaf that has room for it, when all is locked. Returns the
    /// reference to a long value that it has replaced.
    pub(super) fn make_entry<'s>(
        &mut self,
        tree: Tree<'s>,
        leaf: &mut Exclusive<'s>,
        (key, value): (&[u8], &[u8]),
        place: Result<usize, usize>,
    ) -> Result<Option<Reference>, TxnError> {
        let id = tree.entry.id;
        debug_assert_eq!(place, Node::new(leaf).search(key), "the leaf was latched all the time");
        self.note_unlocked(tree.entry, key);
        match place {
            Ok(slot) => {
                let old = Node::new(leaf).value(slot).to_vec();
                let undo = Undo::Replace { tree: id, key, value: &old };
                self.log(undo, |cause| tree.replace(leaf, slot, value, cause))?;
                Ok(Reference::of(tree.entry, &old))
            }
            Err(slot) => {
                let undo = Undo::Remove { tree: id, key };
                self.log(undo, |cause| tree.insert(leaf, slot, key, value, cause))?;
                let is_sequence = Node::new(leaf).run() > 0;
                self.finger = is_sequence.then(|| (id, leaf.id()));
                Ok(None)
            }
        }
    }

    /// Locks a key that is not put in: it is there, or stays away.
    fn enter_key(&mut self, tree: &TreeEntry, own: Lockable) -> Result<Entered, TxnError> {
        let is_free = self.covers_keys(tree, X) || self.try_key(&own, X)?;
        Ok(if is_free { Entered::Free } else { Entered::Busy(own, X) })
    }

    /// Locks what an insert at `slot` of a leaf needs: its own key, the gap there, and the lower
    /// part of it, which will be the new key's. What this transaction has read of the gap has to
    /// stay read.
    fn enter_gap(
        &mut self,
        tree: Tree<'_>,
        leaf: &[u8],
        slot: usize,
        own: Lockable,
    ) -> Result<Entered, TxnError> {
        if self.covers_keys(tree.entry, X) {
            return Ok(Entered::Free);
        }
        let next = next_key(tree, leaf, slot)?;
        debug_assert!(next != own || Node::new(leaf).count() > slot, "the key is not there yet");
        let at_end = self.end.filter(|end| next == Lockable::End(end.tree));
        let RangeModes { gap_s, gap_i, gap_si, insert, strongest, .. } = self.core.range_modes;
        let kept = at_end.filter(|end| end.is_kept);
        let before = if let Some(AtEnd { before, .. }) = kept {
            before
        } else {
            self.leave_end();
            self.locker.held(&next)
        };
        let was_read = before.is_some_and(|held| self.core.locks.modes().covers(held, gap_s));
        if !self.try_more(&own, if was_read { strongest } else { insert })? {
            // Waits for the key, or only for the gap where the key is held already.
            let is_key_held = self.locker.held(&own).is_some_and(|held| self.is_x(held));
            let mode = if was_read { gap_si } else { gap_i };
            return Ok(Entered::Busy(own, if is_key_held { mode } else { X }));
        }
        if kept.is_some() {
            return Ok(Entered::Free);
        }
        if !self.try_more(&next, gap_i)? {
            return Ok(Entered::Busy(next, gap_i));
        }
        let (tree, is_kept) = (tree.entry.id, at_end.is_some());
        self.end = (next == Lockable::End(tree)).then_some(AtEnd { tree, is_kept, before });
        Ok(if is_kept { Entered::Free } else { Entered::Through(next, before) })
    }

    fn is_x(&self, held: Mode) -> bool {
        self.core.locks.modes().covers(held, X)
    }

    /// Releases what is kept of the end of a tree.
    pub(super) fn leave_end(&mut self) {
        if let Some(AtEnd { tree, is_kept: true, before }) = self.end.take() {
            self.locker.restore(&Lockable::End(tree), before);
        }
    }
}

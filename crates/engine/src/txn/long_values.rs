//! Values that are too long for a leaf: setting, reading and removing them.
//!
//! `core/long_values.rs` says how they are stored. Their pieces are not locked: the lock on the key
//! of the entry guards them, and readers without locks notice when they are gone.

use std::ops::Range;
use std::sync::Arc;

use super::{Savepoint, Transaction, TxnError, check_not_dropped};
use crate::btree::{NewEntry, Tree, TreeEntry};
use crate::core::{
    LACKS_PIECE, Reference, StoreError, TreeHandle, ValueId, is_stored_apart, piece_bytes,
};
use crate::lock::multi_granularity::{IX, U, X};
use crate::page::Node;
use crate::wal::Lsn;

/// A long value that no entry refers to any more, once the transaction is committed.
pub(super) struct Discarded {
    /// The record of its mark.
    lsn: Lsn,
    values: Arc<TreeEntry>,
    reference: Reference,
}

/// What of a value is to be read.
#[derive(Clone, Copy)]
pub(super) enum Part {
    All,
    /// So many bytes from a place on, or what there is of them.
    Bytes {
        offset: u64,
        len: usize,
    },
    /// Nothing but its length.
    Len,
}

impl Part {
    fn of(self, len: u64) -> Range<u64> {
        match self {
            Part::All => 0..len,
            Part::Len => 0..0,
            Part::Bytes { offset, len: wanted } => {
                let begin = offset.min(len);
                begin..begin.saturating_add(wanted as u64).min(len)
            }
        }
    }
}

impl Transaction {
    /// Returns a part of the value of a key: at most `len` bytes from `offset` on, fewer where the
    /// value ends. Of a long value no more than that is read.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn get_range(
        &mut self,
        tree: &TreeHandle,
        key: &[u8],
        offset: u64,
        len: usize,
    ) -> Result<Option<Vec<u8>>, TxnError> {
        self.check(tree)?;
        self.read_value(tree, key, Part::Bytes { offset, len }, false, |bytes, _| bytes.to_vec())
    }

    /// Returns the length of the value of a key, in bytes.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn value_len(&mut self, tree: &TreeHandle, key: &[u8]) -> Result<Option<u64>, TxnError> {
        self.check(tree)?;
        self.read_value(tree, key, Part::Len, false, |_, len| len)
    }

    /// Returns what `read` makes of a part of the value of a key and of the value's length.
    pub(super) fn read_value<R>(
        &mut self,
        tree: &TreeHandle,
        key: &[u8],
        part: Part,
        is_for_update: bool,
        read: impl FnOnce(&[u8], u64) -> R,
    ) -> Result<Option<R>, TxnError> {
        let entry = tree.entry();
        let mut read = Some(read);
        let (mut bytes, mut missed) = (Vec::new(), None);
        loop {
            let look = |value: &[u8]| {
                if let Some(reference) = Reference::of(entry, value) {
                    return Err(reference);
                }
                let range = part.of(value.len() as u64);
                let at = |place: u64| usize::try_from(place).unwrap_or(value.len());
                let part = &value[at(range.start)..at(range.end)];
                Ok(read.take().map(|read| read(part, value.len() as u64)))
            };
            let found = if is_for_update {
                self.lock_parents(entry, IX)?;
                if self.covers_keys(entry, X) {
                    self.peek(entry, key, look)
                } else {
                    self.get_locked(tree, key, U, look)
                }
            } else {
                self.get_at_level(tree, key, look)
            };
            // Who locks nothing does not see the tree go, and its pages say anything then.
            check_not_dropped(entry)?;
            let reference = match found? {
                None => return Ok(None),
                Some(Ok(short)) => return Ok(short),
                Some(Err(reference)) => reference,
            };
            if self.read_apart(entry, &reference, part, &mut missed, &mut bytes)? {
                return Ok(read.take().map(|read| read(&bytes, reference.len)));
            }
        }
    }

    /// Reads a part of a long value. Returns whether it was there: else it was removed since the
    /// reference was read. `missed` is a reference that led nowhere before.
    pub(super) fn read_apart(
        &self,
        entry: &TreeEntry,
        reference: &Reference,
        part: Part,
        missed: &mut Option<Reference>,
        bytes: &mut Vec<u8>,
    ) -> Result<bool, TxnError> {
        let read = self.core.read_apart(entry, reference, part.of(reference.len), bytes);
        check_not_dropped(entry)?;
        let is_there = read?;
        // An entry that is removed is so before its pieces, so it cannot be found again.
        if !is_there && missed.replace(*reference) == Some(*reference) {
            let (name, page) = (entry.name.clone(), entry.root);
            return Err(StoreError::Unsound { name, page, what: LACKS_PIECE }.into());
        }
        Ok(is_there)
    }

    /// Returns the value of a key that is locked.
    pub(super) fn peek_all(
        &self,
        entry: &TreeEntry,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, TxnError> {
        let value = self.peek(entry, key, <[u8]>::to_vec)?;
        let Some(reference) = value.as_deref().and_then(|value| Reference::of(entry, value)) else {
            return Ok(value);
        };
        let mut bytes = Vec::new();
        // It is locked, so it is there.
        let mut missed = Some(reference);
        self.read_apart(entry, &reference, Part::All, &mut missed, &mut bytes)?;
        Ok(Some(bytes))
    }

    /// Sets the value of a key of a tree, and leaves its indexes alone.
    pub(super) fn put_entry(
        &mut self,
        entry: &TreeEntry,
        key: &[u8],
        value: &[u8],
        may: impl Fn(bool) -> bool,
    ) -> Result<bool, TxnError> {
        let savepoint = self.savepoint();
        if !is_stored_apart(key.len(), value, self.core.pool.page_size()) {
            let (is_done, replaced) = self.put_stored(entry, key, value, may)?;
            self.discard(entry, replaced, savepoint)?;
            return Ok(is_done);
        }
        // Nothing is to be stored that is not wanted then.
        self.lock_to_write(entry, key)?;
        let exists = self.peek(entry, key, |_| ())?.is_some();
        if !may(exists) {
            return Ok(false);
        }
        let put = self.put_apart(entry, key, value);
        let replaced = self.or_roll_back(savepoint, put)?;
        self.discard(entry, replaced, savepoint)?;
        Ok(true)
    }

    /// Stores a long value and its reference. Returns the reference that it has replaced.
    fn put_apart(
        &mut self,
        entry: &TreeEntry,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<Reference>, TxnError> {
        let core = Arc::clone(&self.core);
        let values = core.make_values(entry)?;
        let id = ValueId { transaction: self.id, number: self.long_values };
        self.long_values += 1;
        for (piece, number) in value.chunks(piece_bytes(core.pool.page_size())).zip(0..) {
            self.insert_unlocked(core.tree(&values), &id.piece(number), piece)?;
        }
        let reference = Reference { id, len: value.len() as u64 };
        let (is_done, replaced) = self.put_stored(entry, key, &reference.encode(), |_| true)?;
        debug_assert!(is_done, "a value that is wanted is stored");
        Ok(replaced)
    }

    /// Inserts an entry that no other transaction knows of.
    fn insert_unlocked(
        &mut self,
        tree: Tree<'_>,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), TxnError> {
        let need = NewEntry { key, value_len: value.len() };
        loop {
            let mut leaf = self.leaf_to_change(tree, key)?;
            let place = Node::new(&leaf).search(key);
            if need.fits_at(Node::new(&leaf), place) {
                debug_assert!(place.is_err(), "the number of a value is used once");
                return self.make_entry(tree, &mut leaf, (key, value), place).map(drop);
            }
            drop(leaf);
            tree.make_room(&need)?;
        }
    }

    /// Marks a value that was replaced or removed, so that it is freed after the commit. If that
    /// cannot be done, the transaction is rolled back to the savepoint.
    pub(super) fn discard(
        &mut self,
        entry: &TreeEntry,
        replaced: Option<Reference>,
        savepoint: Savepoint,
    ) -> Result<(), TxnError> {
        let Some(reference) = replaced else { return Ok(()) };
        let core = Arc::clone(&self.core);
        let values = core.make_values(entry)?;
        let (tree, len) = (core.tree(&values), reference.len.to_le_bytes());
        let marked = self.insert_unlocked(tree, &reference.id.mark(), &len);
        self.or_roll_back(savepoint, marked)?;
        self.discarded.push(Discarded { lsn: self.last_lsn(), values, reference });
        Ok(())
    }

    /// Rolls back to the savepoint after an error, unless the whole transaction has to be.
    fn or_roll_back<T>(
        &mut self,
        savepoint: Savepoint,
        result: Result<T, TxnError>,
    ) -> Result<T, TxnError> {
        if result.is_err() && self.conflict.is_none() {
            self.roll_back_to(savepoint)?;
        }
        result
    }

    /// Forgets what was discarded since a savepoint that was rolled back to.
    pub(super) fn keep_discarded(&mut self, savepoint: Lsn) {
        self.discarded.retain(|discarded| discarded.lsn <= savepoint);
    }

    /// Frees the values that were replaced or removed, when the transaction is committed. If that
    /// fails, the next opening does it.
    pub(super) fn free_discarded(&mut self) {
        if self.discarded.is_empty() {
            return;
        }
        // The lock on the tree stays, so that it is not dropped meanwhile.
        self.release_keys();
        for Discarded { values, reference, .. } in std::mem::take(&mut self.discarded) {
            if let Err(error) = self.core.free_apart(&values, &reference) {
                tracing::warn!("a long value is freed when the store is opened again: {error}");
                return;
            }
        }
    }
}

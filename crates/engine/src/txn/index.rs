//! Secondary indexes: rows found by something else than their key.
//!
//! # Mechanism
//! An index is a tree of its own. For each row of the indexed tree a function says what it is to be
//! found by, any number of *secondary keys*, and for each of these there is one entry whose key is
//! the secondary key and behind it the row's key, so that rows with the same secondary key are told
//! apart. A transaction that changes a row changes its entries as well, with the same locks and log
//! records as those of any tree. So an index needs nothing of its own in
//! recovery, and a serializable scan of it sees no phantoms.
//!
//! # Example
//! Rows 1 → "red", 2 → "blue", 3 → "red", found by their value, give the entries blue 2, red 1,
//! red 3. When row 1 becomes "blue", red 1 goes and blue 1 comes.
//!
//! # Order
//! A secondary key may be any bytes, so its end is marked: a byte 0 in it is written as 0 255, and
//! its end as 0 0. Then entries are in the order of secondary keys, and of row keys where those
//! are equal.
//!
//! # After opening
//! The store remembers which tree is an index of which, but not the function. Until the program has
//! given it again by [`Store::create_index`](crate::Store::create_index), rows can be read and not
//! changed.
//!
//! # Where this leaves the literature
//! * **Keys, not places.** An entry names its row by key, as the indexes of `InnoDB` do, and not by
//!   page and slot: rows move when leaves are split, and undo is logical. A lookup costs a second
//!   descent.
//! * **Locks.** ARIES/KVL and ARIES/IM (Mohan) lock either the key value or the row. Here an entry
//!   is locked like a row of the index, and the row again when it is read: more locks, and one rule
//!   for all trees.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use super::{Cursor, Direction, Lockable, Transaction, TxnError, TxnOptions};
use crate::btree::TreeEntry;
use crate::core::{
    COMPLETE, Core, Index, IndexHandle, KeyExtractor, TreeHandle, TreeOptions, above_entries,
    decode_entry, encode_secondary,
};
use crate::lock::multi_granularity::X;
use crate::page::TreeId;

/// See [`Store::create_index`](crate::Store::create_index).
pub(crate) fn create_index(
    core: &Arc<Core>,
    tree: &TreeHandle,
    name: &str,
    extract: KeyExtractor,
) -> Result<IndexHandle, TxnError> {
    if !tree.is_of(core) {
        return Err(TxnError::OtherStore);
    }
    if tree.entry().indexed.is_some() {
        return Err(TxnError::IsIndex);
    }
    let id = tree.entry().id;
    // A transaction that changes a row meanwhile waits until the function is known.
    let mut known = core.indexes.of.write();
    let options = TreeOptions::default().key_locking(tree.key_locking());
    let handle = core.create_tree(name, Some(id), options)?;
    if handle.entry().indexed != Some(id) {
        return Err(TxnError::NameTaken { name: name.to_owned() });
    }
    let entry = handle.shared_entry();
    let of_tree = known.entry(id).or_default();
    of_tree.retain(|index| index.entry.id != entry.id);
    let index = Arc::new(Index { entry, extract });
    of_tree.push(Arc::clone(&index));
    drop(known);
    make_entries(core, tree, &index)?;
    Ok(IndexHandle::new(handle))
}

/// Makes the entries of an index that does not have them yet.
fn make_entries(core: &Arc<Core>, tree: &TreeHandle, index: &Index) -> Result<(), TxnError> {
    let mut transaction = Transaction::begin(core, TxnOptions::default());
    if transaction.peek(&index.entry, COMPLETE, |_| ())?.is_some() {
        return Ok(());
    }
    transaction.lock_tree(tree, X)?;
    transaction.lock(&Lockable::Tree(index.entry.id), X)?;
    let all = (Bound::Unbounded, Bound::Unbounded);
    let mut rows = transaction.cursor(tree, all, Direction::Up)?;
    while let Some((key, value)) = rows.next(&mut transaction)? {
        for entry in index.entries(key, value) {
            transaction.check_lengths(&entry, &[])?;
            transaction.put_entry(&index.entry, &entry, &[], |_| true)?;
        }
    }
    transaction.put_entry(&index.entry, COMPLETE, &[], |_| true)?;
    transaction.commit()
}

impl Transaction {
    /// Returns the indexes of a tree that has some.
    fn indexes_of(&self, tree: &TreeEntry) -> Result<Vec<Arc<Index>>, TxnError> {
        let known = self.core.indexes.of.read().get(&tree.id).cloned().unwrap_or_default();
        if known.len() == tree.indexes() {
            return Ok(known);
        }
        let is_known = |id: TreeId| known.iter().any(|index| index.entry.id == id);
        match self.core.catalog.indexes_of(tree.id).into_iter().find(|of| !is_known(of.id)) {
            Some(missing) => Err(TxnError::IndexUnknown { name: missing.name.clone() }),
            None => Ok(known),
        }
    }

    /// Changes or, without a value, removes a row of a tree with indexes, if `may` allows it for a
    /// row that exists or not. Returns whether that was done.
    pub(super) fn change_row(
        &mut self,
        tree: &TreeEntry,
        key: &[u8],
        value: Option<&[u8]>,
        may: impl Fn(bool) -> bool,
    ) -> Result<bool, TxnError> {
        self.lock_to_write(tree, key)?;
        let indexes = self.indexes_of(tree)?;
        let old = self.peek_all(tree, key)?;
        if !may(old.is_some()) {
            return Ok(false);
        }
        let entries = |index: &Index, value: Option<&[u8]>| {
            value.map(|value| index.entries(key, value)).unwrap_or_default()
        };
        let mut changes = Vec::new();
        for index in indexes {
            let (before, after) = (entries(&index, old.as_deref()), entries(&index, value));
            for entry in after.difference(&before) {
                self.check_lengths(entry, &[])?;
            }
            changes.push(EntryChange { index, before, after });
        }
        let savepoint = self.savepoint();
        let done = self.change_entries(tree, key, value, &changes);
        if done.is_err() && self.conflict.is_none() {
            // A row without its entries is not to be committed.
            self.roll_back_to(savepoint)?;
        }
        done.map(|()| true)
    }

    fn change_entries(
        &mut self,
        tree: &TreeEntry,
        key: &[u8],
        value: Option<&[u8]>,
        changes: &[EntryChange],
    ) -> Result<(), TxnError> {
        match value {
            Some(value) => self.put_entry(tree, key, value, |_| true)?,
            None => self.remove_entry(tree, key)?,
        };
        for EntryChange { index, before, after } in changes {
            for entry in before.difference(after) {
                self.remove_entry(&index.entry, entry)?;
            }
            for entry in after.difference(before) {
                self.put_entry(&index.entry, entry, &[], |_| true)?;
            }
        }
        Ok(())
    }

    /// Returns the keys of the rows that have a secondary key, in order.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn find(
        &mut self,
        index: &IndexHandle,
        secondary: &[u8],
    ) -> Result<Vec<Vec<u8>>, TxnError> {
        let bound = Bound::Included(secondary);
        let mut cursor = self.index_cursor(index, (bound, bound), Direction::Up)?;
        let mut keys = Vec::new();
        while let Some((_, key)) = cursor.next(self)? {
            keys.push(key.to_vec());
        }
        Ok(keys)
    }

    /// Returns a cursor over the entries of an index whose secondary keys are in a range.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn index_cursor(
        &mut self,
        index: &IndexHandle,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
    ) -> Result<IndexCursor, TxnError> {
        let low = match range.0 {
            Bound::Included(key) => Bound::Included(encode_secondary(key)),
            Bound::Excluded(key) => Bound::Included(above_entries(key)),
            Bound::Unbounded => Bound::Excluded(COMPLETE.to_vec()),
        };
        let high = match range.1 {
            Bound::Included(key) => Bound::Excluded(above_entries(key)),
            Bound::Excluded(key) => Bound::Excluded(encode_secondary(key)),
            Bound::Unbounded => Bound::Unbounded,
        };
        let range = (as_slice(&low), as_slice(&high));
        let cursor = self.cursor(index.tree(), range, direction)?;
        Ok(IndexCursor { cursor, secondary: Vec::new() })
    }
}

/// What a change of a row does to an index: the keys of the row's entries.
struct EntryChange {
    index: Arc<Index>,
    before: BTreeSet<Vec<u8>>,
    after: BTreeSet<Vec<u8>>,
}

/// A secondary key, and the key of a row that has it.
pub type IndexEntry<'c> = (&'c [u8], &'c [u8]);

/// A place in a range of an index. It belongs to the transaction that made it.
pub struct IndexCursor {
    cursor: Cursor,
    secondary: Vec<u8>,
}

impl IndexCursor {
    /// Returns the next secondary key and the key of a row that has it, or `None` at the end of the
    /// range.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn next(
        &mut self,
        transaction: &mut Transaction,
    ) -> Result<Option<IndexEntry<'_>>, TxnError> {
        let Some((entry, _)) = self.cursor.next(transaction)? else {
            return Ok(None);
        };
        let key = decode_entry(entry, &mut self.secondary);
        Ok(Some((&self.secondary, key)))
    }
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

//! Secondary indexes: rows found by something else than their key.
//!
//! # Mechanism
//! An index is a tree of its own. For each row of the indexed tree a function says what it is to be
//! found by, any number of *secondary keys*, and for each of these there is one entry whose key is
//! the secondary key and behind it the row's key, so that rows with the same secondary key are told
//! apart. Whoever changes a row changes its entries in the same transaction, with the same locks
//! and log records as those of any tree. So an index needs nothing of its own in recovery, and a
//! serializable scan of it sees no phantoms.
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
//! given it again by [`Store::create_index`], rows can be read and not changed.
//!
//! # Where this leaves the literature
//! * **Keys, not places.** An entry names its row by key, as the indexes of `InnoDB` do, and not by
//!   page and slot: rows move when leaves are split, and undo is logical. A lookup costs a second
//!   descent.
//! * **Locks.** ARIES/KVL and ARIES/IM (Mohan) lock either the key value or the row. Here an entry
//!   is locked like a row of the index, and the row again when it is read: more locks, and one rule
//!   for all trees.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::RwLock;

use super::{Cursor, Direction, Lockable, Transaction, TxnError, TxnOptions};
use crate::btree::TreeEntry;
use crate::lock::multi_granularity::X;
use crate::page::TreeId;
use crate::store::{Store, TreeHandle};

/// What a row is to be found by: called with its key and its value, it hands each secondary key to
/// the third argument. The same row must always give the same ones.
pub type KeysOf = Box<dyn Fn(&[u8], &[u8], &mut dyn FnMut(&[u8])) + Send + Sync>;

/// An index whose function is known.
pub(crate) struct Index {
    entry: Arc<TreeEntry>,
    keys_of: KeysOf,
}

impl Index {
    /// The keys of the entries for a row.
    fn entries(&self, key: &[u8], value: &[u8]) -> BTreeSet<Vec<u8>> {
        let mut entries = BTreeSet::new();
        (self.keys_of)(key, value, &mut |secondary| {
            let mut entry = encode(secondary);
            entry.extend_from_slice(key);
            entries.insert(entry);
        });
        entries
    }
}

/// The indexes whose functions are known, by the tree that they are indexes of.
#[derive(Default)]
pub(crate) struct Indexes {
    of: RwLock<HashMap<TreeId, Vec<Arc<Index>>>>,
}

/// In an index: that it has an entry for each row. No other entry has an empty key.
const COMPLETE: &[u8] = b"";

/// An index of a tree.
#[derive(Clone)]
pub struct IndexHandle {
    tree: TreeHandle,
}

impl IndexHandle {
    /// The tree that it is: for its name, its fills, its input and output.
    #[must_use]
    pub fn tree(&self) -> &TreeHandle {
        &self.tree
    }
}

impl Store {
    /// The index of that name of `tree`, with an entry for every row; made if there is none. After
    /// the store was opened this has to be called, with the same function as ever, before rows can
    /// be changed.
    ///
    /// Making it locks the tree and takes one transaction over all rows.
    ///
    /// # Errors
    /// The name is not to be had, or is another tree's. Or there was a conflict, an entry is too
    /// long, or the store failed: then there is an index without entries, and this has to be called
    /// again.
    pub fn create_index(
        &self,
        tree: &TreeHandle,
        name: &str,
        keys_of: KeysOf,
    ) -> Result<IndexHandle, TxnError> {
        if !tree.is_of(&self.core) {
            return Err(TxnError::OtherStore);
        }
        if tree.entry().indexed.is_some() {
            return Err(TxnError::IsIndex);
        }
        let id = tree.entry().id;
        // Who changes a row meanwhile waits until the function is known.
        let mut known = self.core.indexes.of.write();
        let handle = self.create_index_tree(name, id)?;
        let entry = handle.shared_entry();
        let of_tree = known.entry(id).or_default();
        of_tree.retain(|index| index.entry.id != entry.id);
        let index = Arc::new(Index { entry, keys_of });
        of_tree.push(Arc::clone(&index));
        drop(known);
        self.complete(tree, &index)?;
        Ok(IndexHandle { tree: handle })
    }

    /// Makes the entries of an index that does not have them yet.
    fn complete(&self, tree: &TreeHandle, index: &Index) -> Result<(), TxnError> {
        let mut transaction = self.begin(TxnOptions::default());
        if transaction.peek(&index.entry, COMPLETE)?.is_some() {
            return Ok(());
        }
        transaction.lock(&Lockable::Tree(tree.entry().id), X)?;
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
}

impl Transaction {
    /// The indexes of a tree that has some.
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

    /// Gives a row of a tree with indexes a value, or takes it out, if `may` says so of whether it
    /// is there; whether that was done.
    pub(super) fn change_row(
        &mut self,
        tree: &TreeEntry,
        key: &[u8],
        value: Option<&[u8]>,
        may: impl Fn(bool) -> bool,
    ) -> Result<bool, TxnError> {
        let indexes = self.indexes_of(tree)?;
        self.lock_to_write(tree.id, key)?;
        let old = self.peek(tree, key)?;
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

    /// A cursor over the entries of an index whose secondary keys are in a range.
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
            Bound::Included(key) => Bound::Included(encode(key)),
            Bound::Excluded(key) => Bound::Included(behind(key)),
            Bound::Unbounded => Bound::Excluded(COMPLETE.to_vec()),
        };
        let high = match range.1 {
            Bound::Included(key) => Bound::Excluded(behind(key)),
            Bound::Excluded(key) => Bound::Excluded(encode(key)),
            Bound::Unbounded => Bound::Unbounded,
        };
        let range = (as_slice(&low), as_slice(&high));
        let cursor = self.cursor(&index.tree, range, direction)?;
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
    /// The next secondary key and the key of a row that has it, or `None` at the end of the range.
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
        let key = decode(entry, &mut self.secondary);
        Ok(Some((&self.secondary, key)))
    }
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

/// A secondary key as entries begin with it.
fn encode(secondary: &[u8]) -> Vec<u8> {
    let mut entry = Vec::with_capacity(secondary.len() + 16);
    for &byte in secondary {
        entry.push(byte);
        if byte == 0 {
            entry.push(255);
        }
    }
    entry.extend_from_slice(&[0, 0]);
    entry
}

/// What is above all entries with a secondary key, and below those with a higher one.
fn behind(secondary: &[u8]) -> Vec<u8> {
    let mut entry = encode(secondary);
    if let Some(last) = entry.last_mut() {
        *last = 1;
    }
    entry
}

/// Writes an entry's secondary key into `secondary` and returns the row's key.
fn decode<'e>(entry: &'e [u8], secondary: &mut Vec<u8>) -> &'e [u8] {
    secondary.clear();
    let mut rest = entry;
    loop {
        match rest {
            [0, 255, after @ ..] => {
                secondary.push(0);
                rest = after;
            }
            [0, _, key @ ..] => return key,
            [byte, after @ ..] => {
                secondary.push(*byte);
                rest = after;
            }
            [] => return rest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_in_the_order_of_secondary_keys_and_say_what_went_in() {
        let secondaries: [&[u8]; 8] =
            [b"", b"\0", b"\0\0", b"\0\x01", b"a", b"a\0", b"a\0b", b"a\xff"];
        let keys: [&[u8]; 4] = [b"", b"\0", b"k", b"\xff"];
        let mut last = Vec::new();
        for secondary in secondaries {
            assert!(last < encode(secondary));
            for key in keys {
                let entry = [&encode(secondary), key].concat();
                assert!(last < entry && entry < behind(secondary), "{secondary:?} {key:?}");
                let mut decoded = Vec::new();
                assert_eq!(decode(&entry, &mut decoded), key);
                assert_eq!(decoded, secondary);
                last = entry;
            }
        }
    }
}

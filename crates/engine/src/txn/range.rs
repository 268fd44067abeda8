//! Ranges of a tree as iterators.
//!
//! A [`Range`] borrows its transaction, so that it can be used with no other. It is two cursors
//! that walk towards each other and stop where they meet; see `cursor.rs` for what they lock.

use std::iter::FusedIterator;
use std::ops::{Bound, RangeBounds};

use super::{Cursor, Direction, Isolation, Transaction, TxnError};
use crate::core::{Reference, TreeHandle, check_not_dropped};
use crate::lock::multi_granularity::IS;
use crate::page::Node;

/// A key and its value, copied out of a tree.
pub type KeyValue = (Vec<u8>, Vec<u8>);

/// An iterator over the entries of a range, from both ends. It ends after the first error.
///
/// ```
/// # use tidegate_engine::{Store, StoreOptions, TxnError};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let parent = tempfile::tempdir()?;
/// # let store = Store::open_or_create(parent.path().join("store"), &StoreOptions::default())?;
/// let tree = store.create_tree("words")?;
/// store.transaction(|transaction| {
///     for word in ["ant", "bee", "cat", "dog"] {
///         transaction.insert(&tree, word.as_bytes(), b"")?;
///     }
///     let mut range = transaction.range(&tree, "b"..)?;
///     let ends = (range.next().transpose()?, range.next_back().transpose()?);
///     assert_eq!(ends, (Some((b"bee".to_vec(), vec![])), Some((b"dog".to_vec(), vec![]))));
///     Ok::<(), TxnError>(())
/// })?;
/// # Ok(())
/// # }
/// ```
pub struct Range<'t> {
    transaction: &'t mut Transaction,
    front: End,
    back: End,
    is_done: bool,
}

struct End {
    cursor: Cursor,
    /// An entry was taken from this end.
    has_begun: bool,
}

impl Transaction {
    /// Returns the entries whose keys are in a range, as an iterator in the order of keys.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn range<K: AsRef<[u8]>>(
        &mut self,
        tree: &TreeHandle,
        range: impl RangeBounds<K>,
    ) -> Result<Range<'_>, TxnError> {
        let bounds = (range.start_bound().map(K::as_ref), range.end_bound().map(K::as_ref));
        self.range_between(tree, bounds)
    }

    /// Returns all entries of a tree, as an iterator in the order of keys.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn entries(&mut self, tree: &TreeHandle) -> Result<Range<'_>, TxnError> {
        self.range_between(tree, (Bound::Unbounded, Bound::Unbounded))
    }

    /// Returns the entries whose keys begin with `prefix`, as an iterator in the order of keys.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn prefix(&mut self, tree: &TreeHandle, prefix: &[u8]) -> Result<Range<'_>, TxnError> {
        let end = after_prefix(prefix);
        let high = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        self.range_between(tree, (Bound::Included(prefix), high))
    }

    /// Returns the entry with the lowest key of a tree.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn first(&mut self, tree: &TreeHandle) -> Result<Option<KeyValue>, TxnError> {
        self.entries(tree)?.next().transpose()
    }

    /// Returns the entry with the highest key of a tree.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn last(&mut self, tree: &TreeHandle) -> Result<Option<KeyValue>, TxnError> {
        self.entries(tree)?.next_back().transpose()
    }

    /// Returns the entry with the lowest key that is not below `key`.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn ceiling(&mut self, tree: &TreeHandle, key: &[u8]) -> Result<Option<KeyValue>, TxnError> {
        let bounds = (Bound::Included(key), Bound::Unbounded);
        self.range_between(tree, bounds)?.next().transpose()
    }

    /// Returns what `read` makes of the entry with the lowest key that is not below `key`, and of
    /// its value. Neither is copied where no key has to be locked and the value is not long. `read`
    /// may be called while the entry's page is latched, so it should be short, and must not use the
    /// store.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn ceiling_with<R>(
        &mut self,
        tree: &TreeHandle,
        key: &[u8],
        read: impl FnOnce(&[u8], &[u8]) -> R,
    ) -> Result<Option<R>, TxnError> {
        self.check(tree)?;
        let entry = tree.entry();
        if self.options.isolation != Isolation::ReadUncommitted {
            self.lock_parents(entry, IS)?;
        }
        if self.locks_keys(entry) {
            return self.ceiling_by_cursor(tree, key, read);
        }
        let on = tree.tree();
        let mut leaf = on.leaf(key)?;
        let mut slot = Node::new(&leaf).search(key).unwrap_or_else(|slot| slot);
        // Leaves that have no entry are passed.
        while slot >= Node::new(&leaf).count() {
            let right = on.leaf_after(&leaf)?;
            check_not_dropped(entry)?;
            let Some(right) = right else { return Ok(None) };
            (leaf, slot) = (right, 0);
        }
        let node = Node::new(&leaf);
        if Reference::of(entry, node.value(slot)).is_some() {
            drop(leaf);
            return self.ceiling_by_cursor(tree, key, read);
        }
        let found = read(&node.key(slot), node.value(slot));
        drop(leaf);
        // Who locks nothing does not see the tree go, and its pages say anything then.
        check_not_dropped(entry)?;
        Ok(Some(found))
    }

    fn ceiling_by_cursor<R>(
        &mut self,
        tree: &TreeHandle,
        key: &[u8],
        read: impl FnOnce(&[u8], &[u8]) -> R,
    ) -> Result<Option<R>, TxnError> {
        let bounds = (Bound::Included(key), Bound::Unbounded);
        let mut cursor = self.cursor(tree, bounds, Direction::Up)?;
        Ok(cursor.next(self)?.map(|(key, value)| read(key, value)))
    }

    /// Returns the entry with the highest key that is not above `key`.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn floor(&mut self, tree: &TreeHandle, key: &[u8]) -> Result<Option<KeyValue>, TxnError> {
        let bounds = (Bound::Unbounded, Bound::Included(key));
        self.range_between(tree, bounds)?.next_back().transpose()
    }

    fn range_between(
        &mut self,
        tree: &TreeHandle,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Result<Range<'_>, TxnError> {
        let mut end = |direction| -> Result<End, TxnError> {
            Ok(End { cursor: self.cursor(tree, bounds, direction)?, has_begun: false })
        };
        let (front, back) = (end(Direction::Up)?, end(Direction::Down)?);
        Ok(Range { transaction: self, front, back, is_done: false })
    }
}

impl Range<'_> {
    /// Takes the next entry from one end, unless the other end has returned it already.
    fn step(&mut self, direction: Direction) -> Option<Result<KeyValue, TxnError>> {
        if self.is_done {
            return None;
        }
        let (own, other) = match direction {
            Direction::Up => (&mut self.front, &self.back),
            Direction::Down => (&mut self.back, &self.front),
        };
        own.has_begun = true;
        let is_met = |key: &[u8]| {
            let last = other.cursor.last_key();
            other.has_begun && if direction == Direction::Up { key >= last } else { key <= last }
        };
        let entry = own.cursor.next(self.transaction).transpose().and_then(|entry| match entry {
            Ok((key, _)) if is_met(key) => None,
            entry => Some(entry.map(|(key, value)| (key.to_vec(), value.to_vec()))),
        });
        self.is_done = !matches!(entry, Some(Ok(_)));
        entry
    }
}

impl Iterator for Range<'_> {
    type Item = Result<KeyValue, TxnError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(Direction::Up)
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(Direction::Down)
    }
}

impl FusedIterator for Range<'_> {}

/// Returns the lowest key above all that begin with `prefix`, if there is one.
fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_below_the_next() {
        let cases: [(&[u8], Option<&[u8]>); 5] = [
            (b"ab", Some(b"ac")),
            (b"a\xff\xff", Some(b"b")),
            (b"\0", Some(b"\x01")),
            (b"\xff", None),
            (b"", None),
        ];
        for (prefix, end) in cases {
            assert_eq!(after_prefix(prefix).as_deref(), end, "{prefix:?}");
        }
    }
}

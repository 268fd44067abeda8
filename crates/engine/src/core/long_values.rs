//! Values that are too long for a leaf.
//!
//! # Mechanism
//! A value that would take more than a quarter of a page with its key is stored apart, in pieces,
//! and the entry in the leaf has a *reference* in its place: what the value is known by, and its
//! length. The pieces are the entries of a tree of their own, one for each tree that has such
//! values; their keys are the value's number and the number of the piece. So they are logged,
//! undone, split, merged and checked like all other entries, and a part of a value is found without
//! reading what comes before it.
//!
//! A value is never changed in its place. Its pieces are inserted by the transaction that sets it,
//! before the reference: a rollback removes both.
//!
//! # Freeing
//! A transaction that replaces or removes a value leaves the pieces where they are, because its
//! rollback would need them, and inserts a *mark* with the value's number into the tree of the
//! pieces. A rollback removes the mark. After the commit the pieces are removed, a leaf in a
//! record, and at last the mark. After a crash the opening does so for all marks that are left when
//! the unfinished transactions have been undone.
//!
//! # Readers without locks
//! They may have a reference whose pieces are removed meanwhile. The number of a value is never
//! used twice, so they find a piece missing, and read the entry again.
//!
//! # What tells a reference
//! Its first 16 bytes, drawn at random once and for all, and its length. A value that looks so is
//! itself stored apart, so that nothing a client stores is taken for a reference.
//!
//! # Example
//! Pages of 8 KiB, the 100,000 bytes of a book, set by transaction 7:
//!
//! ```text
//! books         "moby"           -> reference: value 7.0, 100,000 bytes
//! its pieces    mark ...
//!               piece 7.0.0      -> 1,967 bytes
//!               piece 7.0.1      -> 1,967 bytes ... piece 7.0.50 -> 1,650 bytes
//! ```
//!
//! # Where this leaves the literature
//! `PostgreSQL` stores such values in pieces in a table of their own as well (TOAST), and leaves it
//! to the vacuum to remove them. `SQLite` chains pages, so that a part is found only by reading
//! what comes before it. Both are undone or versioned by page; here undo is logical, by key.
//!
//! # Limits
//! Four pieces share a page, so a value takes about 3 percent more than its bytes. The log has each
//! byte once, when the value is set.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::{Core, StoreError};
use crate::btree::TreeEntry;
use crate::buffer::BufferError;
use crate::bytes::{Reader, short};
use crate::page::{Change, Node, PageSize};
use crate::record::{Cause, MiniTransaction, TxnId, log_change};

/// The longest value in bytes, 1 GiB: what one slice of memory can hold with ease. What a client
/// wants to keep in memory is far less, so longer values would only be read in parts.
pub(crate) const VALUE_MAX: usize = 1 << 30;

/// What a reference begins with.
const REFERENCE: [u8; 16] = [
    0xd3, 0x1f, 0x5b, 0x8e, 0xa6, 0x70, 0x42, 0xc9, 0x95, 0x0d, 0xe8, 0x37, 0x6c, 0xb1, 0xf4, 0x2a,
];

pub(crate) const REFERENCE_BYTES: usize = 16 + 8 + 4 + 8;

/// What the keys of marks and of pieces begin with.
const MARK: u8 = 0;
const PIECE: u8 = 1;

const PIECE_KEY_BYTES: usize = 1 + 8 + 4 + 4;

/// The number of a value that is stored apart, never used twice in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ValueId {
    /// The transaction that set it.
    pub(crate) transaction: TxnId,
    /// How many such values it had set before.
    pub(crate) number: u32,
}

/// What stands for a value that is stored apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(crate) id: ValueId,
    /// The length of the value in bytes.
    pub(crate) len: u64,
}

impl ValueId {
    fn key(self, first: u8) -> Vec<u8> {
        let mut key = Vec::with_capacity(PIECE_KEY_BYTES);
        key.push(first);
        key.extend_from_slice(&self.transaction.0.to_be_bytes());
        key.extend_from_slice(&self.number.to_be_bytes());
        key
    }

    /// Returns the key of the mark that says that the value is to be removed.
    pub(crate) fn mark(self) -> Vec<u8> {
        self.key(MARK)
    }

    /// Returns the key of a piece.
    pub(crate) fn piece(self, number: u64) -> Vec<u8> {
        let number = u32::try_from(number).expect("a value has fewer than 2^32 pieces");
        let mut key = self.key(PIECE);
        key.extend_from_slice(&number.to_be_bytes());
        key
    }

    /// Returns the value whose mark or piece has this key, and whether it is a mark.
    fn of_key(key: &[u8]) -> Option<(ValueId, bool)> {
        let first = *key.first()?;
        let transaction = TxnId(u64::from_be_bytes(key.get(1..9)?.try_into().ok()?));
        let number = u32::from_be_bytes(key.get(9..13)?.try_into().ok()?);
        (first <= PIECE).then_some((ValueId { transaction, number }, first == MARK))
    }
}

impl Reference {
    pub(crate) fn encode(&self) -> [u8; REFERENCE_BYTES] {
        let mut bytes = [0; REFERENCE_BYTES];
        bytes[..16].copy_from_slice(&REFERENCE);
        bytes[16..24].copy_from_slice(&self.id.transaction.0.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.id.number.to_le_bytes());
        bytes[28..].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    /// Returns the reference that the value of an entry is, if it is one.
    pub(crate) fn of(tree: &TreeEntry, value: &[u8]) -> Option<Reference> {
        if !looks_like_one(value) || tree.values.get().is_none() {
            return None;
        }
        let mut reader = Reader::new(&value[16..]);
        let transaction = TxnId(reader.u64().ok()?);
        let id = ValueId { transaction, number: reader.u32().ok()? };
        Some(Reference { id, len: reader.u64().ok()? })
    }
}

fn looks_like_one(value: &[u8]) -> bool {
    value.len() == REFERENCE_BYTES && value.starts_with(&REFERENCE)
}

/// Returns whether a value with a key of so many bytes is stored apart.
pub(crate) fn is_stored_apart(key_len: usize, value: &[u8], size: PageSize) -> bool {
    key_len + value.len() > size.entry_max() || looks_like_one(value)
}

/// Returns the length of all pieces but the last, in bytes.
pub(crate) fn piece_bytes(size: PageSize) -> usize {
    size.entry_max() - PIECE_KEY_BYTES
}

impl Core {
    /// Reads a part of a value that is stored apart into `bytes`. Returns whether all of it was
    /// there: else the value was removed meanwhile, or the tree is damaged.
    pub(crate) fn read_apart(
        &self,
        tree: &TreeEntry,
        reference: &Reference,
        part: Range<u64>,
        bytes: &mut Vec<u8>,
    ) -> Result<bool, BufferError> {
        debug_assert!(part.end <= reference.len, "a part lies within its value");
        bytes.clear();
        let Some(values) = tree.values.get() else { return Ok(false) };
        let values = self.tree(values);
        let size = piece_bytes(self.pool.page_size()) as u64;
        let mut at = part.start;
        while at < part.end {
            let key = reference.id.piece(at / size);
            let leaf = values.leaf(&key)?;
            let node = Node::new(&leaf);
            let Ok(first) = node.search(&key) else { return Ok(false) };
            // Those that follow are likely to be in the same leaf.
            for slot in first..node.count() {
                let number = at / size;
                if at >= part.end || node.key(slot) != reference.id.piece(number) {
                    break;
                }
                let (piece, begin) = (node.value(slot), number * size);
                if piece.len() as u64 != size.min(reference.len - begin) {
                    return Ok(false);
                }
                let end = (part.end - begin).min(piece.len() as u64);
                let within = |place: u64| usize::try_from(place).expect("a piece fits into a page");
                bytes.extend_from_slice(&piece[within(at - begin)..within(end)]);
                at = begin + end;
            }
        }
        Ok(true)
    }

    /// Removes the pieces of a value that no entry refers to, and its mark. No other thread removes
    /// them, and the tree is not dropped meanwhile.
    pub(crate) fn free_apart(
        &self,
        values: &TreeEntry,
        reference: &Reference,
    ) -> Result<(), BufferError> {
        let tree = self.tree(values);
        let size = piece_bytes(self.pool.page_size()) as u64;
        // From the last, so that those left are without a gap.
        let mut left = reference.len.div_ceil(size);
        while left > 0 {
            let key = reference.id.piece(left - 1);
            let leaf = tree.leaf_to_change(&key)?;
            let node = Node::new(&leaf);
            let Ok(last) = node.search(&key) else {
                // Removed before a crash.
                left -= 1;
                continue;
            };
            let is_next = |slot: &usize| {
                let before = (last - slot) as u64;
                before < left && node.key(*slot) == reference.id.piece(left - 1 - before)
            };
            let slots: Vec<usize> =
                (0..=last).rev().take_while(is_next).take(REMOVED_MAX).collect();
            debug_assert!(!slots.is_empty(), "the one that was found is removed");
            left -= slots.len() as u64;
            let is_last = slots.len() == node.count();
            let remove = |&slot: &usize| Change::Remove { slot: short(slot) };
            let mut mini = MiniTransaction::new();
            let changes = slots.iter().map(remove).collect();
            mini.change(leaf, changes);
            mini.commit(&self.log, &Cause::Structure)?;
            if is_last {
                tree.merge_underfull(&key)?;
            }
        }
        let mark = reference.id.mark();
        let mut leaf = tree.leaf_to_change(&mark)?;
        if let Ok(slot) = Node::new(&leaf).search(&mark) {
            let remove = Change::Remove { slot: short(slot) };
            log_change(&self.log, &Cause::Structure, &mut leaf, remove)?;
            let is_underfull = tree.is_underfull(Node::new(&leaf));
            drop(leaf);
            if is_underfull {
                tree.merge_underfull(&mark)?;
            }
        }
        Ok(())
    }

    /// Removes all values that have a mark, when no transaction is under way. Returns how many.
    pub(crate) fn free_marked(&self) -> Result<usize, StoreError> {
        let mut freed = 0;
        for values in self.catalog.values_trees() {
            for reference in self.marked(&values)? {
                self.free_apart(&values, &reference)?;
                freed += 1;
            }
        }
        Ok(freed)
    }

    /// Returns the values that have a mark.
    fn marked(&self, values: &TreeEntry) -> Result<Vec<Reference>, StoreError> {
        let mut marked = Vec::new();
        self.each_entry(
            values,
            &mut |key, value| match (ValueId::of_key(key), value.try_into()) {
                (Some((id, true)), Ok(len)) => {
                    marked.push(Reference { id, len: u64::from_le_bytes(len) });
                    true
                }
                _ => false,
            },
        )?;
        Ok(marked)
    }

    /// Calls `look` with each entry of a tree in order until it returns false.
    fn each_entry(
        &self,
        tree: &TreeEntry,
        look: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), BufferError> {
        let tree = self.tree(tree);
        let (mut leaf, mut key) = (tree.leaf(b"")?, Vec::new());
        loop {
            let node = Node::new(&leaf);
            for slot in 0..node.count() {
                node.copy_key(slot, &mut key);
                if !look(&key, node.value(slot)) {
                    return Ok(());
                }
            }
            match tree.leaf_after(&leaf)? {
                Some(right) => leaf = right,
                None => return Ok(()),
            }
        }
    }

    /// Checks, while no transaction is under way, that each reference of a tree has its pieces, and
    /// each piece its reference or its mark.
    pub(crate) fn check_apart(&self, tree: &Arc<TreeEntry>) -> Result<(), StoreError> {
        let Some(values) = tree.values.get() else { return Ok(()) };
        let mut missing: HashMap<ValueId, u64> = HashMap::new();
        self.each_entry(tree, &mut |_, value| {
            if let Some(Reference { id, len }) = Reference::of(tree, value) {
                missing.insert(id, len);
            }
            true
        })?;
        let (mut marked, mut is_alone) = (Vec::new(), false);
        self.each_entry(values, &mut |key, value| {
            match ValueId::of_key(key) {
                Some((id, true)) => marked.push(id),
                Some((id, false)) if marked.contains(&id) => {}
                Some((id, false)) => {
                    let left = missing.get_mut(&id).and_then(|left| {
                        *left = left.checked_sub(value.len() as u64)?;
                        Some(())
                    });
                    is_alone |= left.is_none();
                }
                None => is_alone = true,
            }
            true
        })?;
        let what = if is_alone {
            "a piece of a long value belongs to no entry"
        } else if missing.values().any(|&left| left > 0) {
            LACKS_PIECE
        } else {
            return Ok(());
        };
        Err(StoreError::Unsound { name: tree.name.clone(), page: values.root, what })
    }
}

/// What is wrong with a tree whose references lead nowhere.
pub(crate) const LACKS_PIECE: &str = "a long value lacks a piece";

/// Pieces that one record removes at most; a page has fewer unless they are short.
const REMOVED_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_order_and_say_what_they_are_of() {
        let id = |transaction, number| ValueId { transaction: TxnId(transaction), number };
        let ids = [id(0, 0), id(0, 1), id(255, 0), id(256, 7), id(u64::MAX, u32::MAX)];
        let mut last = Vec::new();
        for id in ids {
            assert!(last < id.mark());
            last = id.mark();
            assert_eq!(ValueId::of_key(&last), Some((id, true)));
        }
        for id in ids {
            for number in [0, 1, 256, u64::from(u32::MAX)] {
                assert!(last < id.piece(number), "{id:?} {number}");
                last = id.piece(number);
                assert_eq!(ValueId::of_key(&last), Some((id, false)));
            }
        }
        for bad in [&[][..], &[1, 2], &[2; 17]] {
            assert_eq!(ValueId::of_key(bad), None);
        }
    }

    #[test]
    fn what_looks_like_a_reference_is_stored_apart() {
        let size = PageSize::DEFAULT;
        let id = ValueId { transaction: TxnId(7), number: 3 };
        let bytes = Reference { id, len: 99 }.encode();
        assert!(is_stored_apart(3, &bytes, size));
        assert!(!is_stored_apart(3, &bytes[..REFERENCE_BYTES - 1], size));
        assert!(!is_stored_apart(3, &[7; 1_981], size) && is_stored_apart(3, &[7; 1_982], size));
    }

    /// A page of each size has room for four pieces, which is what the length of one is for.
    #[test]
    fn four_pieces_and_their_fences_fit_into_a_page() {
        for bytes in [4096, 8192, 16384, 32768, 65536] {
            let size = PageSize::new(bytes).expect("it is a size");
            let piece = PIECE_KEY_BYTES + piece_bytes(size) + 10;
            assert!(4 * piece + 2 * PIECE_KEY_BYTES + 72 <= size.bytes(), "{bytes}");
        }
    }
}

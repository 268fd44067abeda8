//! The functions of secondary indexes, and how the entries of an index are encoded.
//!
//! `txn/index.rs` says how indexes are kept.
//!
//! # Order
//! A secondary key may be any bytes, so its end is marked: a byte 0 in it is written as 0 255, and
//! its end as 0 0. Then entries are in the order of secondary keys, and of row keys where those
//! are equal.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tidegate_runtime::sync::RwLock;

use super::TreeHandle;
use crate::btree::TreeEntry;
use crate::page::TreeId;

/// Returns what a row is found by: called with the row's key and value, it hands each secondary key
/// to the third argument. The same row must always give the same secondary keys.
pub type KeyExtractor = Box<dyn Fn(&[u8], &[u8], &mut dyn FnMut(&[u8])) + Send + Sync>;

/// An index whose function is known.
pub(crate) struct Index {
    pub(crate) entry: Arc<TreeEntry>,
    pub(crate) extract: KeyExtractor,
}

impl Index {
    /// Returns the keys of the entries for a row.
    pub(crate) fn entries(&self, key: &[u8], value: &[u8]) -> BTreeSet<Vec<u8>> {
        let mut entries = BTreeSet::new();
        (self.extract)(key, value, &mut |secondary| {
            let mut entry = encode_secondary(secondary);
            entry.extend_from_slice(key);
            entries.insert(entry);
        });
        entries
    }
}

/// The indexes whose functions are known, by the tree that they index.
#[derive(Default)]
pub(crate) struct Indexes {
    pub(crate) of: RwLock<HashMap<TreeId, Vec<Arc<Index>>>>,
}

/// The key in an index that says that the index has an entry for each row. No entry is empty.
pub(crate) const COMPLETE: &[u8] = b"";

/// A handle of an index.
#[derive(Clone)]
pub struct IndexHandle {
    tree: TreeHandle,
}

impl IndexHandle {
    pub(crate) fn new(tree: TreeHandle) -> IndexHandle {
        IndexHandle { tree }
    }

    /// Returns the tree that the index is: for its name, its fills, its input and output.
    #[must_use]
    pub fn tree(&self) -> &TreeHandle {
        &self.tree
    }
}

/// Encodes a secondary key as the entries that have it begin.
pub(crate) fn encode_secondary(secondary: &[u8]) -> Vec<u8> {
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

/// Returns a key that is above all entries with a secondary key and below those with a higher one.
pub(crate) fn above_entries(secondary: &[u8]) -> Vec<u8> {
    let mut entry = encode_secondary(secondary);
    let last = entry.last_mut().expect("the end of a secondary key takes two bytes");
    *last = 1;
    entry
}

/// Writes an entry's secondary key into `secondary` and returns the row's key.
pub(crate) fn decode_entry<'e>(entry: &'e [u8], secondary: &mut Vec<u8>) -> &'e [u8] {
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
            assert!(last < encode_secondary(secondary));
            for key in keys {
                let entry = [&encode_secondary(secondary), key].concat();
                assert!(last < entry && entry < above_entries(secondary), "{secondary:?} {key:?}");
                let mut decoded = Vec::new();
                assert_eq!(decode_entry(&entry, &mut decoded), key);
                assert_eq!(decoded, secondary);
                last = entry;
            }
        }
    }
}

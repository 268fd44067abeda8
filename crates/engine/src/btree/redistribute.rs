//! Redistribution: the first entries of a sequence move to the leaf in which the sequence goes on.
//!
//! # Mechanism
//! A leaf that an ascending sequence fills may also hold the first entries of the next sequence,
//! whose other entries are in the leaf to the right. When the leaf is full, a split would leave
//! these few entries in a leaf of their own, to which no more would be added. So they are moved to
//! the leaf to the right, if they fit there, and no new leaf is needed.
//!
//! The parent, the leaf and the leaf to the right are latched in this order and logged as one
//! record, as in a split. Entries are moved between children of one parent only.
//!
//! # Example
//! ```text
//! p4 p5 p6 q1 q2 | q3 q4 q5 - - -        p7 comes
//! p4 p5 p6 -  -  | q1 q2 q3 q4 q5 -      p7 fits
//! ```

use std::ops::Range;

use super::modify::{NewEntry, put_entries};
use super::policy::{Trend, separator};
use super::{Tree, check_neighbours};
use crate::buffer::{BufferError, Exclusive};
use crate::bytes::short;
use crate::page::{Budget, Change, Fences, Node, PageId};
use crate::record::{Cause, MiniTransaction};

impl<'s> Tree<'s> {
    /// Moves the entries above a sequence in the leaf at `slot` of the parent to the leaf to the
    /// right. Returns both unchanged if they cannot be moved.
    pub(super) fn redistribute(
        &self,
        parent: Exclusive<'s>,
        slot: usize,
        child: Exclusive<'s>,
        need: &NewEntry<'_>,
    ) -> Result<Option<(Exclusive<'s>, Exclusive<'s>)>, BufferError> {
        let (above, leaf) = (Node::new(&parent), Node::new(&child));
        let from = self.above_sequence(leaf, need).filter(|_| slot + 1 < above.count());
        let Some(from) = from else {
            return Ok(Some((parent, child)));
        };
        let right = self.write(above.child(slot + 1))?;
        self.check_node(right.id(), &right, 0)?;
        check_neighbours(&child, &right)?;
        // As high as can be: the sequence goes on to the left of it.
        let separator = separator(need.key, &leaf.key(from), Trend::Descending);
        let fits = fit(leaf, from, Node::new(&right), &separator, right.len());
        if !fits || !above.has_room(&separator, 8) {
            return Ok(Some((parent, child)));
        }
        self.move_entries((parent, slot + 1), (child, from), right, &separator)?;
        Ok(None)
    }

    /// Moves the entries of a leaf from `from` on to the one behind, whose slot in the parent is
    /// given with that.
    fn move_entries(
        &self,
        (parent, slot): (Exclusive<'s>, usize),
        (leaf, from): (Exclusive<'s>, usize),
        right: Exclusive<'s>,
        separator: &[u8],
    ) -> Result<(), BufferError> {
        debug_assert_eq!(
            Node::new(&parent).child(slot),
            right.id(),
            "the slot is the right leaf's"
        );
        let (slot, pointer) = (short(slot), right.id().0.to_le_bytes());
        let tail = Node::new(&parent).tail(separator);
        let insert = Change::Insert { slot, tail, value: &pointer };
        let (node, behind) = (Node::new(&leaf), Node::new(&right));
        let (low, high) = (node.fences().low.to_vec(), behind.fences().high.map(<[u8]>::to_vec));
        let fences = Fences { low: &low, high: Some(separator) };
        let fences_behind = Fences { low: separator, high: high.as_deref() };
        let prefix_len = fences_behind.prefix_len();
        let last = behind.count() - in_sequence(behind);
        let mut entries = Vec::new();
        put_entries(&mut entries, node, from..node.count(), prefix_len);
        put_entries(&mut entries, behind, 0..last, prefix_len);
        let entry = |at: usize| (behind.key(at), behind.value(at).to_vec());
        let last: Vec<(Vec<u8>, Vec<u8>)> = (last..behind.count()).map(entry).collect();
        let format = Change::FormatNode {
            tree: self.entry.id,
            level: 0,
            fences: fences_behind,
            right: behind.right().unwrap_or(PageId::NONE),
        };
        let mut changes = vec![format, Change::Append { entries: &entries }];
        let first = node.count() - from + behind.count() - last.len();
        changes.extend((first..).zip(&last).map(|(at, (key, value))| Change::Insert {
            slot: short(at),
            tail: &key[prefix_len..],
            value,
        }));
        let mut mini = MiniTransaction::new();
        mini.change(parent, vec![Change::Remove { slot }, insert]);
        mini.change(leaf, vec![Change::Narrow { from: 0, to: short(from), fences }]);
        mini.change(right, changes);
        mini.commit(self.log, &Cause::Structure)?;
        Ok(())
    }
}

/// Returns how many entries at the end of a leaf tell that an ascending sequence goes on there, if
/// one does. They are inserted one by one, so that the leaf remembers the sequence.
fn in_sequence(leaf: Node<'_>) -> usize {
    let is_at_end = leaf.last_insert().is_some_and(|last| last + 1 == leaf.count());
    if is_at_end && leaf.run() > 0 { leaf.count().min(3) } else { 0 }
}

/// Returns whether the entries of a leaf from `from` on fit into the one behind it, and the others
/// where they are, when `separator` is between the two.
fn fit(leaf: Node<'_>, from: usize, behind: Node<'_>, separator: &[u8], page_bytes: usize) -> bool {
    let left = Fences { low: leaf.fences().low, high: Some(separator) };
    let right = Fences { low: separator, high: behind.fences().high };
    debug_assert!(from <= leaf.count(), "what moves is there");
    let mut of_left = Budget::of_empty(left.room(page_bytes));
    let mut of_right = Budget::of_empty(right.room(page_bytes));
    take_all(&mut of_left, leaf, 0..from, left.prefix_len())
        && take_all(&mut of_right, leaf, from..leaf.count(), right.prefix_len())
        && take_all(&mut of_right, behind, 0..behind.count(), right.prefix_len())
}

/// Returns whether so many entries of a node fit.
fn take_all(budget: &mut Budget, node: Node<'_>, slots: Range<usize>, prefix_len: usize) -> bool {
    let mut key = Vec::new();
    slots.into_iter().all(|slot| {
        node.copy_key(slot, &mut key);
        budget.take(&key[prefix_len..], node.value(slot).len())
    })
}

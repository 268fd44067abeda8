//! Nodes that have lost entries are merged with a neighbour.

use super::modify::put_entries;
use super::policy::MergePolicy;
use super::{Tree, check_neighbours};
use crate::buffer::{BufferError, Exclusive};
use crate::bytes::short;
use crate::page::{Budget, Change, Fences, Node, PageId};
use crate::record::{Cause, MiniTransaction};

impl<'s> Tree<'s> {
    /// Returns whether a node has so few entries that it should be merged.
    pub(crate) fn is_underfull(&self, node: Node<'_>) -> bool {
        match (self.entry.merge_policy(), node.is_leaf()) {
            (MergePolicy::FreeAtEmpty, true) => node.count() == 0,
            (MergePolicy::FreeAtEmpty, false) => node.count() == 1,
            (MergePolicy::MergeAtHalf, _) => node.fill() < 0.5,
        }
    }

    /// Merges the leaf for `key` with a neighbour if it is spare, and then the nodes above. No
    /// latch of the tree is held.
    pub(crate) fn merge_underfull(&self, key: &[u8]) -> Result<(), BufferError> {
        for level in 0..u8::MAX {
            if !self.merge_at_level(key, level)? {
                break;
            }
        }
        self.lower_root()
    }

    /// Merges the node for `key` at `level` with the neighbour to its right, or to its left where
    /// it is its parent's last. Returns whether that was done and the parent may have too few
    /// entries now.
    fn merge_at_level(&self, key: &[u8], level: u8) -> Result<bool, BufferError> {
        let (root, root_level) = self.root()?;
        drop(root);
        if root_level <= level {
            return Ok(false);
        }
        let Some(parent) = self.node_to_change(key, level + 1)? else {
            return Ok(false);
        };
        let node = Node::new(&parent);
        let slot = node.child_slot(key);
        let left_slot = if slot + 1 < node.count() { Some(slot) } else { slot.checked_sub(1) };
        // The only child of its parent has no neighbour.
        let Some(left_slot) = left_slot else { return Ok(false) };
        let left = self.write(node.child(left_slot))?;
        let right = self.write(node.child(left_slot + 1))?;
        self.check_node(left.id(), &left, level)?;
        self.check_node(right.id(), &right, level)?;
        check_neighbours(&left, &right)?;
        let spare = if left_slot == slot { Node::new(&left) } else { Node::new(&right) };
        if !self.is_underfull(spare)
            || !fit_into_one(Node::new(&left), Node::new(&right), left.len())
        {
            return Ok(false);
        }
        self.merge(parent, left_slot, left, right)?;
        Ok(true)
    }

    /// Puts all entries of `right` into `left`.
    fn merge(
        &self,
        parent: Exclusive<'s>,
        left_slot: usize,
        left: Exclusive<'s>,
        right: Exclusive<'s>,
    ) -> Result<(), BufferError> {
        let (one, other) = (Node::new(&left), Node::new(&right));
        debug_assert_eq!(one.level(), other.level(), "siblings are on one level");
        debug_assert!(!one.is_leaf() || one.right() == Some(right.id()), "siblings are linked");
        let (low, high) = (one.fences().low.to_vec(), other.fences().high.map(<[u8]>::to_vec));
        let fences = Fences { low: &low, high: high.as_deref() };
        let mut entries = Vec::new();
        put_entries(&mut entries, other, 0..other.count(), fences.prefix_len());
        let changes = vec![
            Change::Narrow { from: 0, to: short(one.count()), fences },
            Change::Append { entries: &entries },
            Change::Link { right: other.right().unwrap_or(PageId::NONE) },
        ];
        let mut mini = MiniTransaction::new();
        mini.change(parent, vec![Change::Remove { slot: short(left_slot + 1) }]);
        mini.change(left, changes);
        self.allocator.free(self.pool, right, &mut mini)?;
        mini.commit(self.log, &Cause::Structure)?;
        Ok(())
    }

    /// Moves what the only child of the root has into the root, as long as the root has one child.
    fn lower_root(&self) -> Result<(), BufferError> {
        loop {
            let (root, level) = self.root()?;
            if level == 0 || Node::new(&root).count() > 1 {
                return Ok(());
            }
            drop(root);
            let root = self.write(self.entry.root)?;
            let node = Node::new(&root);
            if node.level() != level || node.count() != 1 {
                continue;
            }
            let child = self.write(node.child(0))?;
            self.check_node(child.id(), &child, level - 1)?;
            let node = Node::new(&child);
            debug_assert!(node.prefix().is_empty(), "the only child has its parent's fences");
            let mut entries = Vec::new();
            put_entries(&mut entries, node, 0..node.count(), 0);
            let fences = Fences { low: b"", high: None };
            let (tree, right, level) = (self.entry.id, PageId::NONE, level - 1);
            let format = Change::FormatNode { tree, level, fences, right };
            let mut mini = MiniTransaction::new();
            mini.change(root, vec![format, Change::Append { entries: &entries }]);
            self.allocator.free(self.pool, child, &mut mini)?;
            mini.commit(self.log, &Cause::Structure)?;
        }
    }
}

/// Returns whether one page holds the entries of both.
fn fit_into_one(left: Node<'_>, right: Node<'_>, page_bytes: usize) -> bool {
    let fences = Fences { low: left.fences().low, high: right.fences().high };
    let mut budget = Budget::of_empty(fences.room(page_bytes));
    let mut key = Vec::new();
    [left, right].into_iter().all(|node| {
        (0..node.count()).all(|slot| {
            node.copy_key(slot, &mut key);
            budget.take(&key[fences.prefix_len()..], node.value(slot).len())
        })
    })
}

//! Bulk load: entries in ascending order behind the last, a leaf at a time.
//!
//! # Mechanism
//! As many entries as the last leaf is to hold are appended by one log record. Then the leaf is
//! split such that it keeps all it has, and the entries go on in the new one. Each step leaves a
//! good tree, so a crash leaves one with the first part of the entries. What is loaded is not
//! undone: each step is a change of structure, as a split is.
//!
//! Nodes above the leaves are filled by the rule for ascending keys, whole.

use super::Tree;
use super::modify::{NewEntry, SplitPlan, plan_near};
use super::policy::{Cut, Trend};
use crate::buffer::BufferError;
use crate::page::{Change, Entries, Node};
use crate::record::{Cause, log_change};

/// A key and its value.
pub(crate) type KeyValue<'a> = (&'a [u8], &'a [u8]);

impl Tree<'_> {
    /// Appends the first of `entries` to the leaf for their keys, until it is full to
    /// `fill_percent`, from 50 to 100. Returns how many were appended. If there is no room for the
    /// first, a new leaf is begun for it. The keys ascend and are above all keys of the tree, and
    /// the entries are not too long.
    pub(crate) fn load_leaf(
        &self,
        entries: &[KeyValue<'_>],
        fill_percent: u8,
    ) -> Result<usize, BufferError> {
        let Some(&(first, _)) = entries.first() else {
            return Ok(0);
        };
        debug_assert!((50..=100).contains(&fill_percent), "it was checked");
        debug_assert!(entries.is_sorted_by(|(one, _), (next, _)| one < next), "keys ascend");
        let mut leaf = self.leaf_to_change(first)?;
        let node = Node::new(&leaf);
        debug_assert!(node.count() == 0 || node.key(node.count() - 1)[..] < *first);
        let mut budget = node.budget();
        let room = node.used() + node.free();
        // At 50 percent there is still room for the longest entry.
        budget.reserve(room * usize::from(100 - fill_percent) / 100);
        let mut bytes = Vec::new();
        let mut loaded = 0;
        for &(key, value) in entries {
            if !node.covers(key) || !budget.take(node.tail(key), value.len()) {
                break;
            }
            Entries::put(&mut bytes, node.tail(key), value);
            loaded += 1;
        }
        debug_assert!(loaded <= entries.len() && node.is_leaf());
        if loaded == 0 {
            drop(leaf);
            self.begin_leaf(first)?;
            return Ok(0);
        }
        log_change(self.log, &Cause::Structure, &mut leaf, Change::Append { entries: &bytes })?;
        Ok(loaded)
    }

    /// Splits the leaf for `key`, which is above all it has, such that `key` goes to an empty one.
    fn begin_leaf(&self, key: &[u8]) -> Result<(), BufferError> {
        loop {
            let Some(parent) = self.node_to_change(key, 1)? else {
                let root = self.write(self.entry.root)?;
                if Node::new(&root).is_leaf() {
                    self.grow_root(root)?;
                }
                continue;
            };
            let (node, slot) = (Node::new(&parent), Node::new(&parent).child_slot(key));
            let child = self.write(node.child(slot))?;
            self.check_node(child.id(), &child, 0)?;
            let leaf = Node::new(&child);
            if leaf.count() == 0 {
                return Ok(());
            }
            let plan = plan_before(leaf, key);
            if node.has_room(&plan.separator, 8) {
                return self.split(parent, slot + 1, child, &plan);
            }
            drop((child, parent));
            self.split_at_level(&NewEntry { key, value_len: plan.separator.len() }, 1)?;
        }
    }
}

/// Splits a leaf before `key`, which is above all it has.
fn plan_before(leaf: Node<'_>, key: &[u8]) -> SplitPlan {
    let (mut sizes, size) = leaf.sizes_with(key, 0);
    sizes.push(size);
    let key_at = |at: usize| if at < leaf.count() { leaf.key(at) } else { key.to_vec() };
    plan_near(leaf, &sizes, Cut { left: leaf.count(), trend: Trend::Ascending }, key_at)
}

//! Taking a tree apart: its pages are freed one by one.
//!
//! # Mechanism
//! Each step is one log record: the last node that has no children is freed, its entry in its
//! parent removed, and its page marked as free. So a crash between two steps leaves a tree that has
//! lost its end, and the next opening goes on from there. No step latches more than a node, its
//! parent and a map page, and none is longer in the log than a few dozen bytes, however large the
//! tree is. The root is freed last, together with the tree's entry in the catalog
//! (`core/dropping.rs`).
//!
//! # Example
//! ```text
//! root: a b      a: 1 2      b: 3
//! root: a b      a: 1 2      b:           leaf 3 is freed
//! root: a        a: 1 2                   b, which has no children, is freed
//! root: a        a: 1                     leaf 2, and so on, until the root has none
//! ```
//!
//! # Limits
//! A tree that is being taken apart breaks the rule that an inner node has a child, and the last
//! leaf may be linked to a page that is free. Only the functions of this file are called for it.

use super::{Tree, misplaced};
use crate::buffer::{BufferError, Exclusive};
use crate::bytes::short;
use crate::page::{self, Change, Kind, Node, PageId};
use crate::record::{Cause, MiniTransaction};

impl Tree<'_> {
    /// Frees the last node below the root that has no children. Returns whether there was one:
    /// else the root is all that is left.
    pub(crate) fn free_last(&self) -> Result<bool, BufferError> {
        let mut parent = self.write(self.entry.root)?;
        self.check_part(&parent, Node::new(&parent).level())?;
        loop {
            let node = Node::new(&parent);
            if is_bare(node) {
                return Ok(false);
            }
            let slot = node.count() - 1;
            let child = self.write(node.child(slot))?;
            self.check_part(&child, node.level() - 1)?;
            if !is_bare(Node::new(&child)) {
                parent = child;
                continue;
            }
            let mut mini = MiniTransaction::new();
            mini.change(parent, vec![Change::Remove { slot: short(slot) }]);
            self.allocator.free(self.pool, child, &mut mini)?;
            mini.commit(self.log, &Cause::Structure)?;
            return Ok(true);
        }
    }

    /// Hands each page of a tree that is being taken apart to `visit`.
    pub(crate) fn parts(&self, visit: &mut dyn FnMut(PageId)) -> Result<(), BufferError> {
        let mut waiting = vec![self.entry.root];
        while let Some(id) = waiting.pop() {
            visit(id);
            let page = self.read(id)?;
            let node = Node::new(&page);
            if !is_bare(node) {
                waiting.extend((0..node.count()).map(|slot| node.child(slot)));
            }
        }
        Ok(())
    }

    /// Checks that a page is a node of this tree at that level, with or without children.
    fn check_part(&self, page: &Exclusive<'_>, level: u8) -> Result<(), BufferError> {
        let node = Node::new(page);
        let is_ours =
            page::kind(page) == Kind::Node && node.tree() == self.entry.id && node.level() == level;
        if is_ours { Ok(()) } else { Err(misplaced(page.id())) }
    }
}

/// Returns whether a node has no children.
fn is_bare(node: Node<'_>) -> bool {
    node.is_leaf() || node.count() == 0
}

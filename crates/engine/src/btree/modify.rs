//! Changes of a tree: entries put in, changed and taken out, nodes split, the root grown.

use super::Tree;
use super::policy::{FullNode, separator};
use crate::buffer::{BufferError, Exclusive};
use crate::page::{Change, Entries, Fences, Node, PageId, SLOT_BYTES};
use crate::record::{Cause, MiniTransaction, log_change};
use crate::wal::Lsn;

/// A key and the length of the value it is to have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) value_len: usize,
}

impl Need<'_> {
    /// Whether a leaf has room for it, in the place of the key's present value if it has one.
    pub(crate) fn fits(&self, leaf: Node<'_>) -> bool {
        match leaf.search(self.key) {
            Ok(slot) => self.value_len <= leaf.free() + leaf.value(slot).len(),
            Err(_) => leaf.has_room(self.key.len(), self.value_len),
        }
    }
}

/// A slot of a page, which has fewer than 65,536.
fn short(slot: usize) -> u16 {
    u16::try_from(slot).unwrap_or(u16::MAX)
}

impl<'s> Tree<'s> {
    /// Puts an entry at `slot` of a leaf that has room for it.
    ///
    /// # Errors
    /// The log is not to be had.
    pub(crate) fn insert(
        &self,
        leaf: &mut Exclusive<'s>,
        slot: usize,
        key: &[u8],
        value: &[u8],
        cause: &Cause<'_>,
    ) -> Result<Lsn, BufferError> {
        let rest = key.get(Node::new(leaf).prefix().len()..).unwrap_or_default();
        let change = Change::Insert { slot: short(slot), rest, value };
        log_change(self.log, cause, leaf, change)
    }

    /// Gives the entry at `slot` of a leaf another value, for which there is room.
    ///
    /// # Errors
    /// The log is not to be had.
    pub(crate) fn replace(
        &self,
        leaf: &mut Exclusive<'s>,
        slot: usize,
        value: &[u8],
        cause: &Cause<'_>,
    ) -> Result<Lsn, BufferError> {
        log_change(self.log, cause, leaf, Change::Replace { slot: short(slot), value })
    }

    /// Takes the entry at `slot` of a leaf out.
    ///
    /// # Errors
    /// The log is not to be had.
    pub(crate) fn remove(
        &self,
        leaf: &mut Exclusive<'s>,
        slot: usize,
        cause: &Cause<'_>,
    ) -> Result<Lsn, BufferError> {
        log_change(self.log, cause, leaf, Change::Remove { slot: short(slot) })
    }

    /// Splits nodes until the leaf for a key has room. No latch of the tree is held.
    ///
    /// # Errors
    /// A page cannot be had, or the log is not.
    pub(crate) fn make_room(&self, need: &Need<'_>) -> Result<(), BufferError> {
        while !self.split_at_level(need, 0)? {}
        Ok(())
    }

    /// One step towards room at `level`; whether there is room now.
    fn split_at_level(&self, need: &Need<'_>, level: u8) -> Result<bool, BufferError> {
        let (root, root_level) = self.root()?;
        drop(root);
        if root_level <= level {
            return self.split_root(need, level);
        }
        let Some(parent) = self.node_to_change(need.key, level + 1)? else {
            return Ok(false);
        };
        let (node, slot) = (Node::new(&parent), Node::new(&parent).child_slot(need.key));
        let child = self.write(node.child(slot))?;
        self.check_node(child.id(), &child, level)?;
        if has_room(Node::new(&child), need) {
            return Ok(true);
        }
        let split = self.plan(Node::new(&child), need);
        if !node.has_room(split.separator.len(), 8) {
            drop((child, parent));
            let need = Need { key: need.key, value_len: split.separator.len() };
            self.split_at_level(&need, level + 1)?;
            return Ok(false);
        }
        self.split(parent, slot + 1, child, &split)?;
        Ok(false)
    }

    /// Gives the root, if it is the node to be split, a child with all it has, so that the child
    /// can be split; whether it need not.
    fn split_root(&self, need: &Need<'_>, level: u8) -> Result<bool, BufferError> {
        let root = self.write(self.entry.root)?;
        let node = Node::new(&root);
        if node.level() != level {
            return Ok(false);
        }
        if has_room(node, need) {
            return Ok(true);
        }
        let reserved = self.space.reserve(self.pool)?;
        let child_id = reserved.id().0.to_le_bytes();
        let mut entries = Vec::new();
        put_entries(&mut entries, node, 0..node.count(), node.prefix().len());
        let fences = Fences { low: b"", high: None };
        let (tree, right) = (self.entry.id, PageId::NONE);
        let format = |level| Change::FormatNode { tree, level, fences, right };
        let mut mini = MiniTransaction::new();
        let insert = Change::Insert { slot: 0, rest: b"", value: &child_id };
        mini.change(root, vec![format(level + 1), insert]);
        reserved.give_out(vec![format(level), Change::Append { entries: &entries }], &mut mini);
        mini.commit(self.log, &Cause::Structure)?;
        Ok(false)
    }

    fn plan(&self, node: Node<'_>, need: &Need<'_>) -> Plan {
        if node.is_leaf() { self.plan_leaf(node, need) } else { plan_inner(node) }
    }

    fn plan_leaf(&self, node: Node<'_>, need: &Need<'_>) -> Plan {
        let mut sizes: Vec<usize> = (0..node.count()).map(|slot| node.entry_bytes(slot)).collect();
        let (slot, is_new) = match node.search(need.key) {
            Ok(slot) => {
                sizes[slot] += need.value_len.saturating_sub(node.value(slot).len());
                (slot, false)
            }
            Err(slot) => {
                let rest = need.key.len() - node.prefix().len().min(need.key.len());
                sizes.insert(slot, SLOT_BYTES + rest + need.value_len);
                (slot, true)
            }
        };
        let full = FullNode {
            sizes,
            new: is_new.then_some(slot),
            room: node.used() + node.free(),
            last: node.last_insert(),
            run: node.run(),
            is_last: node.right().is_none(),
        };
        let cut = full.cut(self.entry.split_policy());
        let key_at = |at: usize| match (is_new, at.cmp(&slot)) {
            (false, _) | (true, std::cmp::Ordering::Less) => node.key(at),
            (true, std::cmp::Ordering::Equal) => need.key.to_vec(),
            (true, std::cmp::Ordering::Greater) => node.key(at - 1),
        };
        let separator = separator(&key_at(cut.left - 1), &key_at(cut.left), cut.trend);
        let left = if is_new && slot < cut.left { cut.left - 1 } else { cut.left };
        Plan { left, separator }
    }

    /// Splits `child`; its new sibling gets the entry `slot` of the parent.
    fn split(
        &self,
        parent: Exclusive<'s>,
        slot: usize,
        child: Exclusive<'s>,
        plan: &Plan,
    ) -> Result<(), BufferError> {
        let reserved = self.space.reserve(self.pool)?;
        let new_id = reserved.id();
        let pointer = new_id.0.to_le_bytes();
        let node = Node::new(&child);
        let (count, level) = (node.count(), node.level());
        let (low, high) = (node.fences().low.to_vec(), node.fences().high.map(<[u8]>::to_vec));
        let left = Fences { low: &low, high: Some(&plan.separator) };
        let right = Fences { low: &plan.separator, high: high.as_deref() };
        let mut entries = Vec::new();
        put_entries(&mut entries, node, plan.left..count, right.prefix_len());

        let format = Change::FormatNode {
            tree: self.entry.id,
            level,
            fences: right,
            right: node.right().unwrap_or(PageId::NONE),
        };
        let rest = plan.separator.get(Node::new(&parent).prefix().len()..).unwrap_or_default();
        let narrow = Change::Narrow { from: 0, to: short(plan.left), fences: left };
        let link = (level == 0).then_some(Change::Link { right: new_id });
        let mut mini = MiniTransaction::new();
        mini.change(parent, vec![Change::Insert { slot: short(slot), rest, value: &pointer }]);
        mini.change(child, [narrow].into_iter().chain(link).collect());
        reserved.give_out(vec![format, Change::Append { entries: &entries }], &mut mini);
        mini.commit(self.log, &Cause::Structure)?;
        Ok(())
    }
}

/// How a node is split.
struct Plan {
    /// How many of its entries stay.
    left: usize,
    separator: Vec<u8>,
}

/// Whether a leaf has room for an entry, or an inner node for a separator of `value_len` bytes.
fn has_room(node: Node<'_>, need: &Need<'_>) -> bool {
    if node.is_leaf() { need.fits(node) } else { node.has_room(need.value_len, 8) }
}

/// Splits an inner node where its entries are: after the last but one when the last was put in at
/// the end, as ascending keys do, else in the middle.
fn plan_inner(node: Node<'_>) -> Plan {
    let sizes: Vec<usize> = (0..node.count()).map(|slot| node.entry_bytes(slot)).collect();
    let at_end = node.last_insert().is_some_and(|last| last + 1 == sizes.len()) && node.run() > 0;
    let left = if at_end && sizes.len() > 2 {
        sizes.len() - 1
    } else {
        let full =
            FullNode { sizes, new: None, room: usize::MAX, last: None, run: 0, is_last: false };
        full.cut(super::SplitPolicy::Half).left
    };
    Plan { left, separator: node.key(left) }
}

/// Writes entries of a node as they are to be appended to one with a longer or equal prefix.
pub(super) fn put_entries(
    out: &mut Vec<u8>,
    node: Node<'_>,
    slots: std::ops::Range<usize>,
    prefix_len: usize,
) {
    let mut key = Vec::new();
    for slot in slots {
        node.copy_key(slot, &mut key);
        Entries::put(out, key.get(prefix_len..).unwrap_or_default(), node.value(slot));
    }
}

//! Changes of a tree: entries put in, changed and removed, nodes split, the root grown.

use std::cmp::Ordering;

use tidegate_runtime::work::{self, Operation};

use super::Tree;
use super::policy::{Cut, FullNode, separator};
use crate::buffer::{BufferError, Exclusive};
use crate::bytes::short;
use crate::page::{Change, Entries, Fences, Node, PageId};
use crate::record::{Cause, MiniTransaction, log_change};
use crate::wal::Lsn;

/// A key and the length of the value it is to have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewEntry<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) value_len: usize,
}

impl NewEntry<'_> {
    /// Returns whether a leaf has room for the entry, in the place of the key's present value if it
    /// has one.
    pub(crate) fn fits(&self, leaf: Node<'_>) -> bool {
        self.fits_at(leaf, leaf.search(self.key))
    }

    /// Returns the same, when it is known what a search for the key gives.
    pub(crate) fn fits_at(&self, leaf: Node<'_>, place: Result<usize, usize>) -> bool {
        match place {
            Ok(slot) => self.value_len <= leaf.free() + leaf.value(slot).len(),
            Err(_) => leaf.has_room(self.key, self.value_len),
        }
    }
}

impl<'s> Tree<'s> {
    /// Inserts an entry at `slot` of a leaf that has room for it.
    pub(crate) fn insert(
        &self,
        leaf: &mut Exclusive<'s>,
        slot: usize,
        key: &[u8],
        value: &[u8],
        cause: &Cause<'_>,
    ) -> Result<Lsn, BufferError> {
        debug_assert!(Node::new(leaf).covers(key), "an entry goes to the leaf for its key");
        let tail = Node::new(leaf).tail(key);
        let change = Change::Insert { slot: short(slot), tail, value };
        log_change(self.log, cause, leaf, change)
    }

    /// Replaces the value of the entry at `slot` of a leaf, which has room for it.
    pub(crate) fn replace(
        &self,
        leaf: &mut Exclusive<'s>,
        slot: usize,
        value: &[u8],
        cause: &Cause<'_>,
    ) -> Result<Lsn, BufferError> {
        debug_assert!(Node::new(leaf).is_leaf(), "entries of transactions are in leaves");
        log_change(self.log, cause, leaf, Change::Replace { slot: short(slot), value })
    }

    /// Removes the entry at `slot` of a leaf.
    pub(crate) fn remove(
        &self,
        leaf: &mut Exclusive<'s>,
        slot: usize,
        cause: &Cause<'_>,
    ) -> Result<Lsn, BufferError> {
        debug_assert!(Node::new(leaf).is_leaf(), "entries of transactions are in leaves");
        log_change(self.log, cause, leaf, Change::Remove { slot: short(slot) })
    }

    /// Splits nodes until the leaf for a key has room. No latch of the tree is held.
    pub(crate) fn make_room(&self, need: &NewEntry<'_>) -> Result<(), BufferError> {
        while !self.split_at_level(need, 0)? {}
        Ok(())
    }

    /// Makes one step towards room at `level`. Returns whether there is room now.
    pub(super) fn split_at_level(
        &self,
        need: &NewEntry<'_>,
        level: u8,
    ) -> Result<bool, BufferError> {
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
        if !node.has_room(&split.separator, 8) {
            drop((child, parent));
            let need = NewEntry { key: need.key, value_len: split.separator.len() };
            self.split_at_level(&need, level + 1)?;
            return Ok(false);
        }
        if let Some((parent, child)) = self.redistribute(parent, slot, child, need)? {
            self.split(parent, slot + 1, child, &split)?;
        }
        Ok(false)
    }

    /// Grows the root, if it is the node to be split, so that its child can be split. Returns
    /// whether the root has room.
    fn split_root(&self, need: &NewEntry<'_>, level: u8) -> Result<bool, BufferError> {
        let root = self.write(self.entry.root)?;
        let node = Node::new(&root);
        if node.level() != level {
            return Ok(false);
        }
        if has_room(node, need) {
            return Ok(true);
        }
        self.grow_root(root)?;
        Ok(false)
    }

    /// Gives the root a child with all it has, and nothing else.
    pub(super) fn grow_root(&self, root: Exclusive<'s>) -> Result<(), BufferError> {
        let node = Node::new(&root);
        debug_assert!(node.right().is_none() && node.prefix().is_empty(), "a root is alone");
        let level = node.level();
        let reserved = self.allocator.reserve(self.pool)?;
        let child_id = reserved.id().0.to_le_bytes();
        let mut entries = Vec::new();
        put_entries(&mut entries, node, 0..node.count(), node.prefix().len());
        let fences = Fences { low: b"", high: None };
        let (tree, right) = (self.entry.id, PageId::NONE);
        let format = |level| Change::FormatNode { tree, level, fences, right };
        let mut mini = MiniTransaction::new();
        let insert = Change::Insert { slot: 0, tail: b"", value: &child_id };
        mini.change(root, vec![format(level + 1), insert]);
        reserved.allocate(vec![format(level), Change::Append { entries: &entries }], &mut mini);
        mini.commit(self.log, &Cause::Structure)?;
        Ok(())
    }

    fn plan(&self, node: Node<'_>, need: &NewEntry<'_>) -> SplitPlan {
        if node.is_leaf() { self.plan_leaf(node, need) } else { plan_inner(node) }
    }

    fn plan_leaf(&self, node: Node<'_>, need: &NewEntry<'_>) -> SplitPlan {
        let (full, slot) = full_leaf(node, need);
        let is_new = full.new.is_some();
        let cut = full.cut(self.entry.split_policy());
        let key_at = |at: usize| match (is_new, at.cmp(&slot)) {
            (false, _) | (true, Ordering::Less) => node.key(at),
            (true, Ordering::Equal) => need.key.to_vec(),
            (true, Ordering::Greater) => node.key(at - 1),
        };
        let mut plan = plan_near(node, &full.sizes, cut, key_at);
        if is_new && slot < plan.left {
            plan.left -= 1;
        }
        plan
    }

    /// Returns the first entry above an ascending sequence in a full leaf, if there is one.
    pub(super) fn above_sequence(&self, node: Node<'_>, need: &NewEntry<'_>) -> Option<usize> {
        if !node.is_leaf() {
            return None;
        }
        let (full, slot) = full_leaf(node, need);
        full.has_others_above(self.entry.split_policy()).then_some(slot)
    }

    /// Splits `child`. Its new sibling gets the entry `slot` of the parent.
    pub(super) fn split(
        &self,
        parent: Exclusive<'s>,
        slot: usize,
        child: Exclusive<'s>,
        plan: &SplitPlan,
    ) -> Result<(), BufferError> {
        work::count(Operation::PageSplit, 1);
        let reserved = self.allocator.reserve(self.pool)?;
        let new_id = reserved.id();
        let pointer = new_id.0.to_le_bytes();
        let node = Node::new(&child);
        let (count, level) = (node.count(), node.level());
        debug_assert!(plan.left <= count && node.covers(&plan.separator));
        debug_assert!(Node::new(&parent).covers(&plan.separator), "a child lies in its parent");
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
        let tail = Node::new(&parent).tail(&plan.separator);
        let narrow = Change::Narrow { from: 0, to: short(plan.left), fences: left };
        let link = (level == 0).then_some(Change::Link { right: new_id });
        let mut mini = MiniTransaction::new();
        mini.change(parent, vec![Change::Insert { slot: short(slot), tail, value: &pointer }]);
        mini.change(child, [narrow].into_iter().chain(link).collect());
        reserved.allocate(vec![format, Change::Append { entries: &entries }], &mut mini);
        mini.commit(self.log, &Cause::Structure)?;
        Ok(())
    }
}

/// Returns a leaf together with the entry that has no room in it, and the slot of that entry.
fn full_leaf(node: Node<'_>, need: &NewEntry<'_>) -> (FullNode, usize) {
    let (mut sizes, size) = node.sizes_with(need.key, need.value_len);
    let (slot, is_new) = match node.search(need.key) {
        Ok(slot) => {
            sizes[slot] = sizes[slot].max(size);
            (slot, false)
        }
        Err(slot) => {
            sizes.insert(slot, size);
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
    (full, slot)
}

/// How a node is split.
pub(super) struct SplitPlan {
    /// How many of its entries stay.
    pub(super) left: usize,
    pub(super) separator: Vec<u8>,
}

/// Returns the split at `cut`, or next to it where a side would not fit between its new fences:
/// they may be longer than the old ones. `sizes` are the bytes of the entries, `key_at` are their
/// keys.
pub(super) fn plan_near(
    node: Node<'_>,
    sizes: &[usize],
    cut: Cut,
    key_at: impl Fn(usize) -> Vec<u8>,
) -> SplitPlan {
    let Fences { low, high } = node.fences();
    let fits = |fences: &Fences<'_>, sizes: &[usize]| {
        sizes.iter().sum::<usize>() <= fences.room(node.page_bytes())
    };
    debug_assert!(cut.left > 0 && cut.left < sizes.len(), "each side gets an entry");
    let at = |left: usize| {
        let separator = separator(&key_at(left - 1), &key_at(left), cut.trend);
        let fits_left = fits(&Fences { low, high: Some(&separator) }, &sizes[..left]);
        let fits_right = fits(&Fences { low: &separator, high }, &sizes[left..]);
        (SplitPlan { left, separator }, fits_left, fits_right)
    };
    let (mut plan, mut fits_left, mut fits_right) = at(cut.left);
    while !fits_left && plan.left > 1 {
        (plan, fits_left, _) = at(plan.left - 1);
        fits_right = true;
    }
    while !fits_right && plan.left + 1 < sizes.len() {
        (plan, _, fits_right) = at(plan.left + 1);
    }
    plan
}

/// Returns whether a leaf has room for an entry, or an inner node for a separator of `value_len`
/// bytes.
fn has_room(node: Node<'_>, need: &NewEntry<'_>) -> bool {
    if node.is_leaf() { need.fits(node) } else { node.has_room_for_any(need.value_len, 8) }
}

/// Splits an inner node where its entries are: after the last but one when the last was put in at
/// the end, as ascending keys do, else in the middle.
fn plan_inner(node: Node<'_>) -> SplitPlan {
    let sizes: Vec<usize> = (0..node.count()).map(|slot| node.entry_bytes(slot)).collect();
    let at_end = node.last_insert().is_some_and(|last| last + 1 == sizes.len()) && node.run() > 0;
    let left = if at_end && sizes.len() > 2 {
        sizes.len() - 1
    } else {
        let full =
            FullNode { sizes, new: None, room: usize::MAX, last: None, run: 0, is_last: false };
        full.cut(super::SplitPolicy::Half).left
    };
    SplitPlan { left, separator: node.key(left) }
}

/// Writes entries of a node as they are to be appended to a node whose fences they lie between and
/// whose prefix has `prefix_len` bytes.
pub(super) fn put_entries(
    out: &mut Vec<u8>,
    node: Node<'_>,
    slots: std::ops::Range<usize>,
    prefix_len: usize,
) {
    let mut key = Vec::new();
    for slot in slots {
        node.copy_key(slot, &mut key);
        Entries::put(out, &key[prefix_len..], node.value(slot));
    }
}

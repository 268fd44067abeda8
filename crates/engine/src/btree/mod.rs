//! B+trees: ordered maps from byte strings to byte strings.
//!
//! # Mechanism
//! Keys and values are in the leaves, which are linked to the right. The root never moves, so that
//! a tree is known by one page number. A search goes down from the root with *latch coupling*: it
//! latches a child before it releases the parent. All latches are shared, except that of the node
//! to be changed.
//!
//! A change that fits its leaf latches only the leaf exclusively. A change that does not fit
//! releases all latches, makes room, and starts again: [`Tree::make_room`] latches one node and its
//! parent and splits the node. If the parent has no room for another entry, it is split first, in
//! the same way. So each split is one small step that is logged as one record, and a crash between
//! two splits leaves a sound tree.
//!
//! # Latch order
//! From the root down; on a level to the right; then map pages. No thread waits against it: one
//! that goes left starts again at the root. So there is no deadlock of latches.
//!
//! # Example
//! A leaf holds 1, 3, 5 and has no room for 4. `make_room` latches the parent and the leaf, makes
//! a page for 5, links it to the right, puts the separator 4 into the parent, and logs the four
//! pages (leaf, new leaf, parent, map) as one record. The insert starts again, finds the left or
//! the new leaf, and fits.
//!
//! # Where this leaves the literature
//! * Lehman and Yao's trees (TODS 1981) let a reader pass a split that is half done by way of the
//!   right link, and need no coupling. Here a split is never seen half done, and the link is only
//!   for scans. Coupling costs readers a second latch for a moment.
//! * ARIES/IM (Mohan and Levine, SIGMOD 1992) lets a split span several records and guards it by a
//!   tree latch and bits in the pages. One record for a split needs neither.
//!
//! # Limits
//! * Scans to the left go down from the root once for each leaf.
//! * The root is latched, shared, by every thread that passes.

mod inspect;
mod load;
mod merge;
mod modify;
mod policy;
mod redistribute;
mod teardown;

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use crate::allocator::PageAllocator;
use crate::buffer::{BufferError, Exclusive, IoCounters, PAGES, Pool, Shared};
use crate::page::{self, Kind, Node, PageFault, PageId, TreeId};
use crate::wal::Log;

pub(crate) use modify::NewEntry;

pub use inspect::{LeafFill, TreeShape, TreeSize};
pub use policy::{MergePolicy, SplitPolicy};

/// Who locks the keys of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyLocking {
    /// The transactions lock each key and the gaps between keys, as their isolation asks.
    #[default]
    Engine,
    /// The client, by resources and modes of its own
    /// ([`LockSpace`](crate::LockSpace)). Transactions lock the tree in an intention
    /// and nothing in it: reads see what is there, as at read uncommitted, at every isolation
    /// level.
    ///
    /// A change is taken back by its key, so a key that a transaction has inserted, changed or
    /// removed must not be changed by another before the first has ended: the client holds an
    /// exclusive lock that stands for the key, from before the change to the end of the
    /// transaction. If it does not, a rollback overwrites the changes of others or fails, and a
    /// rollback that fails closes the store. Builds with assertions panic at the second change.
    ClientOnly,
}

/// A tree as the catalog has it; settings may change while the tree is in use.
#[derive(Debug)]
pub(crate) struct TreeEntry {
    pub(crate) id: TreeId,
    pub(crate) name: String,
    pub(crate) root: PageId,
    pub(crate) counters: Arc<IoCounters>,
    /// The tree that this is an index of.
    pub(crate) indexed: Option<TreeId>,
    /// Who locks its keys.
    pub(crate) key_locking: KeyLocking,
    /// The tree whose long values this one has.
    pub(crate) values_of: Option<TreeId>,
    /// The tree with the long values of this one, once there is one.
    pub(crate) values: OnceLock<Arc<TreeEntry>>,
    /// How many indexes of this tree there are.
    indexes: AtomicU32,
    split: AtomicU32,
    merge_policy: AtomicU8,
    /// Its pages are being freed, or were.
    is_dropped: AtomicBool,
}

impl TreeEntry {
    pub(crate) fn new(
        id: TreeId,
        name: &str,
        root: PageId,
        counters: Arc<IoCounters>,
        indexed: Option<TreeId>,
    ) -> TreeEntry {
        let entry = TreeEntry {
            id,
            name: name.to_owned(),
            root,
            counters,
            indexed,
            key_locking: KeyLocking::default(),
            values_of: None,
            values: OnceLock::new(),
            indexes: AtomicU32::new(0),
            split: AtomicU32::new(0),
            merge_policy: AtomicU8::new(0),
            is_dropped: AtomicBool::new(false),
        };
        entry.set_split_policy(SplitPolicy::default());
        entry.set_merge_policy(MergePolicy::default());
        entry
    }

    /// Returns how many indexes of this tree there are.
    pub(crate) fn indexes(&self) -> usize {
        self.indexes.load(Ordering::Acquire) as usize
    }

    pub(crate) fn count_index(&self) {
        debug_assert!(self.indexed.is_none(), "an index has no indexes");
        self.indexes.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn discount_index(&self) {
        let before = self.indexes.fetch_sub(1, Ordering::Release);
        debug_assert!(before > 0, "an index is dropped once");
    }

    /// Returns whether the tree was dropped. It is known before the first page is freed.
    pub(crate) fn is_dropped(&self) -> bool {
        self.is_dropped.load(Ordering::Acquire)
    }

    pub(crate) fn set_dropped(&self) {
        self.is_dropped.store(true, Ordering::Release);
    }

    pub(crate) fn split_policy(&self) -> SplitPolicy {
        let split = SplitPolicy::from_bits(self.split.load(Ordering::Relaxed));
        split.expect("only policies are stored")
    }

    pub(crate) fn set_split_policy(&self, policy: SplitPolicy) {
        self.split.store(policy.to_bits(), Ordering::Relaxed);
    }

    pub(crate) fn merge_policy(&self) -> MergePolicy {
        let merge_policy = MergePolicy::from_bits(self.merge_policy.load(Ordering::Relaxed));
        merge_policy.expect("only policies are stored")
    }

    pub(crate) fn set_merge_policy(&self, merge_policy: MergePolicy) {
        self.merge_policy.store(merge_policy.to_bits(), Ordering::Relaxed);
    }
}

/// A tree with all that it takes to work on it.
#[derive(Clone, Copy)]
pub(crate) struct Tree<'s> {
    pub(crate) pool: &'s Pool,
    pub(crate) log: &'s Log,
    pub(crate) allocator: &'s PageAllocator,
    pub(crate) entry: &'s TreeEntry,
}

impl<'s> Tree<'s> {
    fn read(&self, page: PageId) -> Result<Shared<'s>, BufferError> {
        self.pool.read(page, &self.entry.counters)
    }

    fn write(&self, page: PageId) -> Result<Exclusive<'s>, BufferError> {
        self.pool.write(page, &self.entry.counters)
    }

    /// Checks that a page is a node of this tree at that level. A link that leads elsewhere is
    /// damage.
    fn check_node(&self, page: PageId, bytes: &[u8], level: u8) -> Result<(), BufferError> {
        let node = Node::new(bytes);
        let is_ours = page::kind(bytes) == Kind::Node
            && node.tree() == self.entry.id
            && node.level() == level
            && (level == 0 || node.count() > 0);
        if is_ours { Ok(()) } else { Err(misplaced(page)) }
    }

    /// Latches the root to be read. Returns it and its level.
    fn root(&self) -> Result<(Shared<'s>, u8), BufferError> {
        let page = self.read(self.entry.root)?;
        let level = Node::new(&page).level();
        self.check_node(self.entry.root, &page, level)?;
        Ok((page, level))
    }

    /// Latches the leaf for `key` to be read.
    pub(crate) fn leaf(&self, key: &[u8]) -> Result<Shared<'s>, BufferError> {
        let (mut page, mut level) = self.root()?;
        self.entry.counters.count_logical_reads(u64::from(level));
        while level > 0 {
            let node = Node::new(&page);
            let child = node.child(node.child_slot(key));
            level -= 1;
            let next = self.pool.read_uncounted(child, &self.entry.counters)?;
            self.check_node(child, &next, level)?;
            page = next;
        }
        debug_assert!(Node::new(&page).is_leaf(), "a search ends in a leaf");
        Ok(page)
    }

    /// Latches the leaf with the greatest keys below `key`, or of all, to be read. It may hold none
    /// of them, and then those before it may.
    pub(crate) fn leaf_before(&self, key: Option<&[u8]>) -> Result<Shared<'s>, BufferError> {
        let (mut page, mut level) = self.root()?;
        while level > 0 {
            let node = Node::new(&page);
            let child = node.child(slot_before(node, key));
            level -= 1;
            page = self.step(child, level)?;
        }
        debug_assert!(Node::new(&page).is_leaf(), "a search ends in a leaf");
        Ok(page)
    }

    /// Latches a child while its parent still is.
    fn step(&self, child: PageId, level: u8) -> Result<Shared<'s>, BufferError> {
        debug_assert_ne!(child, self.entry.root, "no link leads to the root");
        let page = self.read(child)?;
        self.check_node(child, &page, level)?;
        Ok(page)
    }

    /// Latches the next leaf to the right of `leaf` while that one still is.
    pub(crate) fn leaf_after(&self, leaf: &[u8]) -> Result<Option<Shared<'s>>, BufferError> {
        Node::new(leaf).right().map(|right| self.step(right, 0)).transpose()
    }

    /// Latches the leaf to the right of one whose fence says that there is one.
    ///
    /// # Errors
    /// A page cannot be read, or there is no such leaf.
    pub(crate) fn leaf_behind(&self, leaf: &[u8]) -> Result<Shared<'s>, BufferError> {
        let right = self.leaf_after(leaf)?.ok_or_else(|| misplaced(page::id(leaf)))?;
        check_neighbours(leaf, &right)?;
        Ok(right)
    }

    /// Checks that a leaf is the one for `key`: a scan that began in another might never end.
    ///
    /// # Errors
    /// It is not.
    pub(crate) fn check_covers(leaf: &[u8], key: &[u8]) -> Result<(), BufferError> {
        if Node::new(leaf).covers(key) { Ok(()) } else { Err(misplaced(page::id(leaf))) }
    }

    /// Checks that a leaf may hold keys below `key`.
    ///
    /// # Errors
    /// It may not.
    pub(crate) fn check_before(leaf: &[u8], key: &[u8]) -> Result<(), BufferError> {
        let low = Node::new(leaf).fences().low;
        if low.is_empty() || low < key { Ok(()) } else { Err(misplaced(page::id(leaf))) }
    }

    /// Latches the leaf for `key` to be changed.
    pub(crate) fn leaf_to_change(&self, key: &[u8]) -> Result<Exclusive<'s>, BufferError> {
        loop {
            if let Some(leaf) = self.node_to_change(key, 0)? {
                return Ok(leaf);
            }
        }
    }

    /// Latches a page to be changed, if it is the leaf for `key`, which its fences tell.
    pub(crate) fn leaf_at(
        &self,
        page: PageId,
        key: &[u8],
    ) -> Result<Option<Exclusive<'s>>, BufferError> {
        let leaf = self.write(page)?;
        let is_it = self.check_node(page, &leaf, 0).is_ok() && Node::new(&leaf).covers(key);
        Ok(is_it.then_some(leaf))
    }

    /// Latches the node for `key` at `level` to be changed. Returns `None` when the root has grown
    /// or shrunk meanwhile, or is below that level.
    fn node_to_change(&self, key: &[u8], level: u8) -> Result<Option<Exclusive<'s>>, BufferError> {
        let (mut page, mut at) = self.root()?;
        if at <= level {
            drop(page);
            let root = self.write(self.entry.root)?;
            let is_there = Node::new(&root).level() == level;
            return Ok(is_there.then_some(root));
        }
        loop {
            let node = Node::new(&page);
            let child = node.child(node.child_slot(key));
            at -= 1;
            if at == level {
                let node = self.write(child)?;
                self.check_node(child, &node, level)?;
                return Ok(Some(node));
            }
            page = self.step(child, at)?;
        }
    }
}

/// Returns the last child that may hold a key below `key`.
fn slot_before(node: Node<'_>, key: Option<&[u8]>) -> usize {
    let Some(key) = key else {
        // An inner node has a child, see `Tree::check_node`.
        return node.count() - 1;
    };
    // Below the first child there is none.
    match node.search(key) {
        Ok(slot) | Err(slot) => slot.saturating_sub(1),
    }
}

/// Checks that a node begins where the one to its left ends.
fn check_neighbours(left: &[u8], right: &[u8]) -> Result<(), BufferError> {
    let (high, low) = (Node::new(left).fences().high, Node::new(right).fences().low);
    if high == Some(low) { Ok(()) } else { Err(misplaced(page::id(right))) }
}

fn misplaced(page: PageId) -> BufferError {
    let fault = PageFault::Malformed("it is not the node that its parent takes it for");
    BufferError::Damaged { file: PAGES, page, fault }
}

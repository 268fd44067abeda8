//! The trees of a store, by name and by number.
//!
//! The catalog is a tree itself, whose root is page 2. Its keys are the names of the trees, its
//! values their numbers, roots and settings.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

use super::{Core, StoreError};
use crate::allocator::PageAllocator;
use crate::btree::{LeafFill, MergePolicy, NewEntry, SplitPolicy, Tree, TreeEntry};
use crate::buffer::{BufferError, IoCounts, Pool};
use crate::bytes::{Reader, short};
use crate::page::{self, Change, Fences, Node, PageId, TreeId};
use crate::record::{Cause, MiniTransaction};
use crate::wal::Log;

/// The number and the root of the catalog itself.
const CATALOG: TreeId = TreeId(0);
const CATALOG_ROOT: PageId = PageId(2);

/// The trees of an open store.
pub(crate) struct Catalog {
    own: Arc<TreeEntry>,
    trees: RwLock<Trees>,
}

#[derive(Default)]
struct Trees {
    by_name: HashMap<String, Arc<TreeEntry>>,
    by_id: HashMap<TreeId, Arc<TreeEntry>>,
}

impl Trees {
    /// Adds a tree. An index is added after the tree that it indexes.
    fn add(&mut self, entry: &Arc<TreeEntry>) {
        if let Some(of) = entry.indexed.and_then(|id| self.by_id.get(&id)) {
            of.count_index();
        }
        self.by_name.insert(entry.name.clone(), Arc::clone(entry));
        self.by_id.insert(entry.id, Arc::clone(entry));
        debug_assert_eq!(self.by_name.len(), self.by_id.len(), "names and numbers are unique");
    }

    fn next_id(&self) -> TreeId {
        TreeId(self.by_id.keys().map(|id| id.0).max().unwrap_or(CATALOG.0) + 1)
    }
}

impl Catalog {
    /// Returns a catalog without trees.
    pub(crate) fn new(pool: &Pool) -> Catalog {
        let counters = pool.counters(CATALOG);
        let own = Arc::new(TreeEntry::new(CATALOG, "", CATALOG_ROOT, counters, None));
        Catalog { own, trees: RwLock::default() }
    }

    /// Makes the catalog of a new store. It is the first page that is allocated, which is page 2.
    pub(crate) fn create(
        pool: &Pool,
        log: &Log,
        allocator: &PageAllocator,
    ) -> Result<(), BufferError> {
        let reserved = allocator.reserve(pool)?;
        debug_assert_eq!(reserved.id(), CATALOG_ROOT, "the store has no other page yet");
        let mut mini = MiniTransaction::new();
        reserved.allocate(vec![empty_leaf(CATALOG)], &mut mini);
        mini.commit(log, &Cause::Structure).map(|_| ())
    }

    /// Returns the tree of a name.
    pub(crate) fn named(&self, name: &str) -> Option<Arc<TreeEntry>> {
        self.trees.read().by_name.get(name).cloned()
    }

    /// Returns the tree of a number, which may be the catalog itself.
    pub(crate) fn numbered(&self, id: TreeId) -> Option<Arc<TreeEntry>> {
        if id == CATALOG {
            return Some(self.own());
        }
        self.trees.read().by_id.get(&id).cloned()
    }

    /// Returns all trees in the order in which they were made.
    pub(crate) fn all(&self) -> Vec<Arc<TreeEntry>> {
        let mut all: Vec<_> = self.trees.read().by_id.values().cloned().collect();
        all.sort_by_key(|entry| entry.id);
        all
    }

    /// Returns the indexes of a tree.
    pub(crate) fn indexes_of(&self, tree: TreeId) -> Vec<Arc<TreeEntry>> {
        let trees = self.trees.read();
        trees.by_id.values().filter(|entry| entry.indexed == Some(tree)).cloned().collect()
    }

    /// Returns the catalog's own tree.
    pub(crate) fn own(&self) -> Arc<TreeEntry> {
        Arc::clone(&self.own)
    }
}

impl Core {
    /// Reads the catalog of a store whose pages are recovered.
    pub(crate) fn load_catalog(&self) -> Result<(), StoreError> {
        let tree = self.tree(&self.catalog.own);
        let mut entries = Vec::new();
        let mut leaf = tree.leaf(b"")?;
        loop {
            let node = Node::new(&leaf);
            for slot in 0..node.count() {
                let entry = decode(node.key(slot), node.value(slot), &self.pool);
                let entry = entry.ok_or_else(|| StoreError::Unsound {
                    name: String::new(),
                    page: page::id(&leaf),
                    what: "an entry of the catalog describes no tree",
                })?;
                entries.push(Arc::new(entry));
            }
            match tree.leaf_after(&leaf)? {
                Some(right) => leaf = right,
                None => break,
            }
        }
        // An index comes after its tree, because numbers ascend.
        entries.sort_by_key(|entry| entry.id);
        let mut trees = self.catalog.trees.write();
        for entry in &entries {
            trees.add(entry);
        }
        Ok(())
    }

    /// Returns the tree of that name. Makes an empty tree, or an empty index of the tree `indexed`,
    /// if there is none.
    pub(crate) fn create_tree(
        self: &Arc<Self>,
        name: &str,
        indexed: Option<TreeId>,
    ) -> Result<TreeHandle, StoreError> {
        let max = self.pool.page_size().key_max();
        if name.is_empty() || name.len() > max {
            return Err(StoreError::Name { len: name.len(), max });
        }
        let mut trees = self.catalog.trees.write();
        let entry = if let Some(entry) = trees.by_name.get(name) {
            Arc::clone(entry)
        } else {
            let id = trees.next_id();
            let root = self.add_tree(name, id, indexed)?;
            let entry = TreeEntry::new(id, name, root, self.pool.counters(id), indexed);
            let entry = Arc::new(entry);
            trees.add(&entry);
            drop(trees);
            self.log.force(self.log.end())?;
            entry
        };
        Ok(TreeHandle { core: Arc::clone(self), entry })
    }

    /// Makes a tree in the store and returns its root.
    fn add_tree(
        &self,
        name: &str,
        id: TreeId,
        indexed: Option<TreeId>,
    ) -> Result<PageId, StoreError> {
        let catalog = self.tree(&self.catalog.own);
        let need = NewEntry { key: name.as_bytes(), value_len: ENTRY_BYTES };
        let leaf = loop {
            let leaf = catalog.leaf_to_change(need.key)?;
            if need.fits(Node::new(&leaf)) {
                break leaf;
            }
            drop(leaf);
            catalog.make_room(&need)?;
        };
        let reserved = self.allocator.reserve(&self.pool)?;
        let root = reserved.id();
        let settings = (SplitPolicy::default(), MergePolicy::default());
        let value = encode(id, root, settings, indexed);
        let node = Node::new(&leaf);
        let Err(slot) = node.search(need.key) else {
            let (name, page) = (name.to_owned(), leaf.id());
            let what = "the catalog has an entry that was not found when it was read";
            return Err(StoreError::Unsound { name, page, what });
        };
        let tail = node.tail(need.key);
        let mut mini = MiniTransaction::new();
        mini.change(leaf, vec![Change::Insert { slot: short(slot), tail, value: &value }]);
        reserved.allocate(vec![empty_leaf(id)], &mut mini);
        mini.commit(&self.log, &Cause::Structure)?;
        Ok(root)
    }

    /// Writes the present settings of a tree into the catalog.
    fn save_settings(&self, entry: &TreeEntry) -> Result<(), StoreError> {
        let catalog = self.tree(&self.catalog.own);
        let settings = (entry.split_policy(), entry.merge_policy());
        let value = encode(entry.id, entry.root, settings, entry.indexed);
        let mut leaf = catalog.leaf_to_change(entry.name.as_bytes())?;
        let Ok(slot) = Node::new(&leaf).search(entry.name.as_bytes()) else {
            let (name, page) = (entry.name.clone(), leaf.id());
            let what = "the catalog has lost its entry";
            return Err(StoreError::Unsound { name, page, what });
        };
        catalog.replace(&mut leaf, slot, &value, &Cause::Structure)?;
        Ok(())
    }

    /// Returns the handle of a tree.
    pub(crate) fn handle(self: &Arc<Self>, entry: Arc<TreeEntry>) -> TreeHandle {
        TreeHandle { core: Arc::clone(self), entry }
    }
}

fn empty_leaf(tree: TreeId) -> Change<'static> {
    let fences = Fences { low: b"", high: None };
    Change::FormatNode { tree, level: 0, fences, right: PageId::NONE }
}

const ENTRY_BYTES: usize = 21;

fn encode(
    id: TreeId,
    root: PageId,
    (split, merge_policy): (SplitPolicy, MergePolicy),
    indexed: Option<TreeId>,
) -> [u8; ENTRY_BYTES] {
    let mut value = [0; ENTRY_BYTES];
    value[..4].copy_from_slice(&id.0.to_le_bytes());
    value[4..12].copy_from_slice(&root.0.to_le_bytes());
    value[12..16].copy_from_slice(&split.to_bits().to_le_bytes());
    value[16] = merge_policy.to_bits();
    value[17..21].copy_from_slice(&indexed.unwrap_or(CATALOG).0.to_le_bytes());
    value
}

/// Returns the tree that an entry of the catalog describes, if it describes one.
fn decode(name: Vec<u8>, value: &[u8], pool: &Pool) -> Option<TreeEntry> {
    let name = String::from_utf8(name).ok()?;
    let mut reader = Reader::new(value);
    let (id, root) = (TreeId(reader.u32().ok()?), PageId(reader.u64().ok()?));
    let split = SplitPolicy::from_bits(reader.u32().ok()?)?;
    let merge_policy = MergePolicy::from_bits(reader.u8().ok()?)?;
    // The catalog has no index, so its number stands for none.
    let indexed = Some(TreeId(reader.u32().ok()?)).filter(|&indexed| indexed != CATALOG);
    let entry = TreeEntry::new(id, &name, root, pool.counters(id), indexed);
    entry.set_split_policy(split);
    entry.set_merge_policy(merge_policy);
    Some(entry)
}

/// A handle of a tree.
#[derive(Clone)]
pub struct TreeHandle {
    core: Arc<Core>,
    entry: Arc<TreeEntry>,
}

impl TreeHandle {
    /// Returns the name of the tree.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.entry.name
    }

    pub(crate) fn entry(&self) -> &TreeEntry {
        &self.entry
    }

    /// Returns the tree with what it takes to work on it.
    pub(crate) fn tree(&self) -> Tree<'_> {
        self.core.tree(&self.entry)
    }

    pub(crate) fn shared_entry(&self) -> Arc<TreeEntry> {
        Arc::clone(&self.entry)
    }

    /// Returns whether the tree belongs to a store.
    pub(crate) fn is_of(&self, core: &Arc<Core>) -> bool {
        Arc::ptr_eq(&self.core, core)
    }

    /// Returns how full nodes are split.
    #[must_use]
    pub fn split_policy(&self) -> SplitPolicy {
        self.entry.split_policy()
    }

    /// Sets how full nodes are split from now on.
    ///
    /// # Errors
    /// The store cannot write.
    pub fn set_split_policy(&self, policy: SplitPolicy) -> Result<(), StoreError> {
        self.entry.set_split_policy(policy);
        self.core.save_settings(&self.entry)
    }

    /// Sets when nodes are merged from now on.
    ///
    /// # Errors
    /// The store cannot write.
    pub fn set_merge_policy(&self, merge_policy: MergePolicy) -> Result<(), StoreError> {
        self.entry.set_merge_policy(merge_policy);
        self.core.save_settings(&self.entry)
    }

    /// Returns how full each leaf is, in the order of keys. Others may change the tree meanwhile.
    ///
    /// # Errors
    /// A page cannot be read.
    pub fn fills(&self) -> Result<Vec<LeafFill>, StoreError> {
        Ok(self.tree().fills()?)
    }

    /// Returns the counts of pages read and written for the tree since the store was opened.
    #[must_use]
    pub fn io(&self) -> IoCounts {
        self.entry.counters.counts()
    }
}

//! The trees of a store, by name and by number.
//!
//! The catalog is a tree itself, whose root is page 2. Its keys are the names of the trees, its
//! values their numbers, roots and settings. A key that is no text belongs to the store itself.

use std::collections::HashMap;
use std::sync::Arc;

use tidegate_runtime::sync::{LongMutex, LongRwLock};

use super::{Core, StoreError};
use crate::allocator::PageAllocator;
use crate::btree::{
    KeyLocking, LeafFill, MergePolicy, NewEntry, SplitPolicy, Tree, TreeEntry, TreeSize,
};
use crate::buffer::{BufferError, Exclusive, IoCounts, Pool};
use crate::bytes::{Reader, short};
use crate::page::{self, Change, Fences, Node, PageId, TreeId};
use crate::record::{Cause, MiniTransaction};
use crate::wal::Log;

/// The number and the root of the catalog itself.
const CATALOG: TreeId = TreeId(0);
const CATALOG_ROOT: PageId = PageId(2);

/// The key with a number above those of all trees that were dropped. No name is like it: a byte
/// 255 is in no UTF-8.
const NEXT_NUMBER: &[u8] = &[255, b'n'];

/// The trees of an open store.
pub(crate) struct Catalog {
    own: Arc<TreeEntry>,
    /// Held while the entry of a tree is written, which may read its page.
    pub(super) trees: LongRwLock<Trees>,
    /// Held by the thread that frees the pages of dropped trees.
    pub(super) drops: LongMutex<()>,
}

#[derive(Default)]
pub(super) struct Trees {
    by_name: HashMap<String, Arc<TreeEntry>>,
    by_id: HashMap<TreeId, Arc<TreeEntry>>,
    /// Trees that were dropped and still have pages. What belongs to a tree comes after it.
    pub(super) dropping: Vec<Arc<TreeEntry>>,
    /// No tree that was dropped had this number or a higher one.
    next_number: u32,
}

impl Trees {
    /// Adds a tree. An index is added after the tree that it indexes.
    fn add(&mut self, entry: &Arc<TreeEntry>) {
        if let Some(of) = entry.indexed.and_then(|id| self.by_id.get(&id)) {
            of.count_index();
        }
        if let Some(of) = entry.values_of.and_then(|id| self.by_id.get(&id)) {
            let is_first = of.values.set(Arc::clone(entry)).is_ok();
            debug_assert!(is_first, "a tree has one tree of long values");
        } else {
            self.by_name.insert(entry.name.clone(), Arc::clone(entry));
        }
        self.by_id.insert(entry.id, Arc::clone(entry));
        debug_assert!(self.by_name.len() <= self.by_id.len(), "names and numbers are unique");
    }

    fn next_id(&self) -> TreeId {
        let highest = self.by_id.keys().map(|id| id.0).max().unwrap_or(CATALOG.0);
        TreeId(self.next_number.max(highest + 1))
    }

    /// Adds a tree that is in the catalog.
    fn load(&mut self, entry: Arc<TreeEntry>) {
        let is_of_dropped = |owner: TreeId| self.dropping.iter().any(|entry| entry.id == owner);
        let owner = entry.indexed.or(entry.values_of);
        if entry.is_dropped() || owner.is_some_and(is_of_dropped) {
            entry.set_dropped();
            self.dropping.push(entry);
        } else {
            self.add(&entry);
        }
    }

    /// Moves a tree and what belongs to it to those that were dropped.
    fn drop_tree(&mut self, tree: &Arc<TreeEntry>) {
        if let Some(of) = tree.indexed.and_then(|id| self.by_id.get(&id)) {
            of.discount_index();
        }
        let is_owned =
            |entry: &&Arc<TreeEntry>| [entry.indexed, entry.values_of].contains(&Some(tree.id));
        let owned = self.by_id.values().filter(is_owned);
        let mut owned: Vec<Arc<TreeEntry>> = owned.cloned().collect();
        owned.sort_by_key(|entry| entry.id);
        for entry in [tree].into_iter().chain(&owned) {
            entry.set_dropped();
            if entry.values_of.is_none() {
                self.by_name.remove(&entry.name);
            }
            self.by_id.remove(&entry.id);
            self.dropping.push(Arc::clone(entry));
        }
        debug_assert!(self.by_name.len() <= self.by_id.len(), "names and numbers are unique");
    }
}

impl Catalog {
    /// Returns a catalog without trees.
    pub(crate) fn new(pool: &Pool) -> Catalog {
        let counters = pool.counters(CATALOG);
        let own = Arc::new(TreeEntry::new(CATALOG, "", CATALOG_ROOT, counters, None));
        Catalog { own, trees: LongRwLock::default(), drops: LongMutex::default() }
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

    /// Returns all trees of the client in the order in which they were made.
    pub(crate) fn all(&self) -> Vec<Arc<TreeEntry>> {
        self.sorted(|entry| entry.values_of.is_none())
    }

    /// Returns the trees with long values.
    pub(crate) fn values_trees(&self) -> Vec<Arc<TreeEntry>> {
        self.sorted(|entry| entry.values_of.is_some())
    }

    fn sorted(&self, is_wanted: impl Fn(&TreeEntry) -> bool) -> Vec<Arc<TreeEntry>> {
        let trees = self.trees.read();
        let wanted = trees.by_id.values().filter(|entry| is_wanted(entry));
        let mut wanted: Vec<_> = wanted.cloned().collect();
        drop(trees);
        wanted.sort_by_key(|entry| entry.id);
        wanted
    }

    /// Returns whether a tree of that name was dropped and still has pages.
    pub(crate) fn is_dropping(&self, name: &str) -> bool {
        self.trees.read().dropping.iter().any(|entry| entry.name == name)
    }

    /// Returns the trees that were dropped and still have pages.
    pub(crate) fn dropping(&self) -> Vec<Arc<TreeEntry>> {
        self.trees.read().dropping.clone()
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
        let (mut entries, mut next_number) = (Vec::new(), 0);
        let mut leaf = tree.leaf(b"")?;
        loop {
            let node = Node::new(&leaf);
            for slot in 0..node.count() {
                if let (NEXT_NUMBER, Ok(number)) =
                    (&node.key(slot)[..], node.value(slot).try_into())
                {
                    next_number = u32::from_le_bytes(number);
                    continue;
                }
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
        trees.next_number = next_number;
        for entry in entries {
            trees.load(entry);
        }
        Ok(())
    }

    /// Returns the tree of that name. Makes an empty tree, or an empty index of the tree `indexed`,
    /// if there is none.
    pub(crate) fn create_tree(
        self: &Arc<Self>,
        name: &str,
        indexed: Option<TreeId>,
        options: TreeOptions,
    ) -> Result<TreeHandle, StoreError> {
        let max = self.pool.page_size().key_max();
        if name.is_empty() || name.len() > max {
            return Err(StoreError::Name { len: name.len(), max });
        }
        let mut trees = self.catalog.trees.write();
        let entry = if let Some(entry) = trees.by_name.get(name) {
            Arc::clone(entry)
        } else {
            if let Some(dropped) = trees.dropping.iter().find(|entry| entry.name == name) {
                return Err(StoreError::Dropped { name: dropped.name.clone() });
            }
            if let Some(owner) = indexed.filter(|id| !trees.by_id.contains_key(id)) {
                return Err(StoreError::Dropped { name: format!("number {}", owner.0) });
            }
            let id = trees.next_id();
            let flags = locking_flag(options.key_locking);
            let root = self.add_tree(name.as_bytes(), id, indexed, flags)?;
            let mut entry = TreeEntry::new(id, name, root, self.pool.counters(id), indexed);
            entry.key_locking = options.key_locking;
            let entry = Arc::new(entry);
            trees.add(&entry);
            drop(trees);
            self.log.force(self.log.end())?;
            entry
        };
        Ok(TreeHandle { core: Arc::clone(self), entry })
    }

    /// Returns the tree with the long values of a tree. Makes an empty one if there is none. The
    /// transaction has locked the tree, so that it is not dropped.
    pub(crate) fn make_values(&self, of: &TreeEntry) -> Result<Arc<TreeEntry>, StoreError> {
        if let Some(values) = of.values.get() {
            return Ok(Arc::clone(values));
        }
        let mut trees = self.catalog.trees.write();
        check_not_dropped(of)?;
        if let Some(values) = of.values.get() {
            return Ok(Arc::clone(values));
        }
        let id = trees.next_id();
        let root = self.add_tree(&values_key(of.id), id, Some(of.id), HAS_VALUES)?;
        let entry = Arc::new(values_entry(id, root, of.id, &self.pool));
        trees.add(&entry);
        Ok(entry)
    }

    /// Makes a tree in the store and returns its root.
    fn add_tree(
        &self,
        key: &[u8],
        id: TreeId,
        owner: Option<TreeId>,
        flags: u8,
    ) -> Result<PageId, StoreError> {
        let need = NewEntry { key, value_len: ENTRY_BYTES };
        let leaf = self.catalog_leaf(&need)?;
        let reserved = self.allocator.reserve(&self.pool)?;
        let root = reserved.id();
        let settings = (SplitPolicy::default(), MergePolicy::default());
        let value = encode(id, root, settings, owner, flags);
        let node = Node::new(&leaf);
        let Err(slot) = node.search(need.key) else {
            let (name, page) = (String::from_utf8_lossy(key).into_owned(), leaf.id());
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

    /// Latches the leaf of the catalog that has room for an entry.
    fn catalog_leaf(&self, need: &NewEntry<'_>) -> Result<Exclusive<'_>, StoreError> {
        let catalog = self.tree(&self.catalog.own);
        loop {
            let leaf = catalog.leaf_to_change(need.key)?;
            if need.fits(Node::new(&leaf)) {
                return Ok(leaf);
            }
            drop(leaf);
            catalog.make_room(need)?;
        }
    }

    /// Writes the present settings of a tree into the catalog.
    fn save_settings(&self, entry: &TreeEntry) -> Result<(), StoreError> {
        // No tree is dropped meanwhile, and the settings of two threads are not mixed.
        let _trees = self.catalog.trees.write();
        check_not_dropped(entry)?;
        self.save_entry(entry, 0)
    }

    /// Writes what is known of a tree into its entry in the catalog.
    fn save_entry(&self, entry: &TreeEntry, flags: u8) -> Result<(), StoreError> {
        let settings = (entry.split_policy(), entry.merge_policy());
        let flags = flags | locking_flag(entry.key_locking);
        let value = encode(entry.id, entry.root, settings, entry.indexed, flags);
        let need = NewEntry { key: entry.name.as_bytes(), value_len: value.len() };
        let mut leaf = self.catalog_leaf(&need)?;
        let Ok(slot) = Node::new(&leaf).search(need.key) else {
            return Err(lost_entry(entry, leaf.id()));
        };
        let catalog = self.tree(&self.catalog.own);
        catalog.replace(&mut leaf, slot, &value, &Cause::Structure)?;
        Ok(())
    }

    /// Records that a tree is dropped, with its indexes. When this returns, that is durable, and no
    /// search finds the tree any more. The caller has locked the tree against all others.
    pub(crate) fn mark_dropped(&self, entry: &Arc<TreeEntry>) -> Result<(), StoreError> {
        let mut trees = self.catalog.trees.write();
        check_not_dropped(entry)?;
        // First, because the number of a tree is never used twice.
        let next = trees.next_id().0;
        if next > trees.next_number {
            self.save_next_number(next)?;
            trees.next_number = next;
        }
        self.save_entry(entry, DROPPED)?;
        trees.drop_tree(entry);
        drop(trees);
        Ok(self.log.force(self.log.end())?)
    }

    fn save_next_number(&self, next: u32) -> Result<(), StoreError> {
        let value = next.to_le_bytes();
        let mut leaf = self.catalog_leaf(&NewEntry { key: NEXT_NUMBER, value_len: value.len() })?;
        let catalog = self.tree(&self.catalog.own);
        let cause = Cause::Structure;
        match Node::new(&leaf).search(NEXT_NUMBER) {
            Ok(slot) => catalog.replace(&mut leaf, slot, &value, &cause)?,
            Err(slot) => catalog.insert(&mut leaf, slot, NEXT_NUMBER, &value, &cause)?,
        };
        Ok(())
    }

    /// Frees the root of a dropped tree, all that is left of it, and removes its entry from the
    /// catalog.
    pub(super) fn free_root(&self, entry: &TreeEntry) -> Result<(), StoreError> {
        let catalog = self.tree(&self.catalog.own);
        let key = match entry.values_of {
            Some(owner) => values_key(owner),
            None => entry.name.as_bytes().to_vec(),
        };
        let leaf = catalog.leaf_to_change(&key)?;
        let node = Node::new(&leaf);
        let Ok(slot) = node.search(&key) else {
            return Err(lost_entry(entry, leaf.id()));
        };
        let is_last = node.count() == 1;
        let root = self.pool.write(entry.root, &entry.counters)?;
        let mut mini = MiniTransaction::new();
        mini.change(leaf, vec![Change::Remove { slot: short(slot) }]);
        self.allocator.free(&self.pool, root, &mut mini)?;
        mini.commit(&self.log, &Cause::Structure)?;
        if is_last {
            catalog.merge_underfull(&key)?;
        }
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

/// Returns an error for a tree that was dropped.
pub(crate) fn check_not_dropped(entry: &TreeEntry) -> Result<(), StoreError> {
    if entry.is_dropped() { Err(StoreError::Dropped { name: entry.name.clone() }) } else { Ok(()) }
}

fn lost_entry(entry: &TreeEntry, page: PageId) -> StoreError {
    let what = "the catalog has lost its entry";
    StoreError::Unsound { name: entry.name.clone(), page, what }
}

const ENTRY_BYTES: usize = 22;

/// The flag of a tree that was dropped and still has pages.
const DROPPED: u8 = 1;

/// The flag of a tree with the long values of another.
const HAS_VALUES: u8 = 2;

/// The flag of a tree whose keys the client locks.
const CLIENT_LOCKS: u8 = 4;

fn locking_flag(key_locking: KeyLocking) -> u8 {
    match key_locking {
        KeyLocking::Engine => 0,
        KeyLocking::ClientOnly => CLIENT_LOCKS,
    }
}

/// Returns the key in the catalog of the tree with the long values of a tree. No name is like it.
fn values_key(of: TreeId) -> Vec<u8> {
    [&[255, b'v'][..], &of.0.to_be_bytes()].concat()
}

fn values_entry(id: TreeId, root: PageId, of: TreeId, pool: &Pool) -> TreeEntry {
    let name = format!("long values of tree {}", of.0);
    let mut entry = TreeEntry::new(id, &name, root, pool.counters(id), None);
    entry.values_of = Some(of);
    entry
}

fn encode(
    id: TreeId,
    root: PageId,
    (split, merge_policy): (SplitPolicy, MergePolicy),
    indexed: Option<TreeId>,
    flags: u8,
) -> [u8; ENTRY_BYTES] {
    let mut value = [0; ENTRY_BYTES];
    value[..4].copy_from_slice(&id.0.to_le_bytes());
    value[4..12].copy_from_slice(&root.0.to_le_bytes());
    value[12..16].copy_from_slice(&split.to_bits().to_le_bytes());
    value[16] = merge_policy.to_bits();
    value[17..21].copy_from_slice(&indexed.unwrap_or(CATALOG).0.to_le_bytes());
    value[21] = flags;
    value
}

/// Returns the tree that an entry of the catalog describes, if it describes one.
fn decode(key: Vec<u8>, value: &[u8], pool: &Pool) -> Option<TreeEntry> {
    let mut reader = Reader::new(value);
    let (id, root) = (TreeId(reader.u32().ok()?), PageId(reader.u64().ok()?));
    let split = SplitPolicy::from_bits(reader.u32().ok()?)?;
    let merge_policy = MergePolicy::from_bits(reader.u8().ok()?)?;
    // The catalog has no index, so its number stands for none.
    let indexed = Some(TreeId(reader.u32().ok()?)).filter(|&indexed| indexed != CATALOG);
    // Entries of format version 1 end here.
    let flags = if reader.is_empty() { 0 } else { reader.u8().ok()? };
    if flags & !(DROPPED | HAS_VALUES | CLIENT_LOCKS) != 0 {
        return None;
    }
    let mut entry = if flags & HAS_VALUES == 0 {
        TreeEntry::new(id, &String::from_utf8(key).ok()?, root, pool.counters(id), indexed)
    } else {
        values_entry(id, root, indexed?, pool)
    };
    entry.set_split_policy(split);
    entry.set_merge_policy(merge_policy);
    if flags & CLIENT_LOCKS != 0 {
        entry.key_locking = KeyLocking::ClientOnly;
    }
    if flags & DROPPED != 0 {
        entry.set_dropped();
    }
    Some(entry)
}

/// Settings of a tree, fixed when it is made.
///
/// ```
/// # use tidegate_engine::{KeyLocking, TreeOptions};
/// let options = TreeOptions::default().key_locking(KeyLocking::ClientOnly);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeOptions {
    /// Who locks the keys of the tree and of its indexes.
    pub key_locking: KeyLocking,
}

setters! {
    TreeOptions {
        key_locking: KeyLocking,
    }
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

    /// Returns who locks the keys of the tree.
    #[must_use]
    pub fn key_locking(&self) -> KeyLocking {
        self.entry.key_locking
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
    /// The store cannot write, or the tree was dropped.
    pub fn set_split_policy(&self, policy: SplitPolicy) -> Result<(), StoreError> {
        self.entry.set_split_policy(policy);
        self.core.save_settings(&self.entry)
    }

    /// Sets when nodes are merged from now on.
    ///
    /// # Errors
    /// The store cannot write, or the tree was dropped.
    pub fn set_merge_policy(&self, merge_policy: MergePolicy) -> Result<(), StoreError> {
        self.entry.set_merge_policy(merge_policy);
        self.core.save_settings(&self.entry)
    }

    /// Returns how full each leaf is, in the order of keys. Others may change the tree meanwhile.
    ///
    /// # Errors
    /// A page cannot be read, or the tree was dropped.
    pub fn fills(&self) -> Result<Vec<LeafFill>, StoreError> {
        let fills = self.tree().fills();
        // Pages of a dropped tree say anything.
        check_not_dropped(&self.entry)?;
        Ok(fills?)
    }

    /// Returns how full each leaf is at this moment, in the order of keys, without bringing pages
    /// into the buffer; `None` if a page of the tree is just being changed: look again later. For
    /// a machine in virtual time while time stands still
    /// ([`stand_still`](tidegate_runtime::thread::stand_still)): on the operating system a page
    /// that is being written may be read torn, which is an error.
    ///
    /// # Errors
    /// A page cannot be read, or the tree was dropped.
    pub fn fills_now(&self) -> Result<Option<Vec<LeafFill>>, StoreError> {
        let fills = self.tree().fills_now();
        // Pages of a dropped tree say anything.
        check_not_dropped(&self.entry)?;
        Ok(fills?)
    }

    /// Returns the size of the tree, of which it reads every page but those of long values. Others
    /// may change the tree meanwhile; then the figures are of different moments.
    ///
    /// # Errors
    /// A page cannot be read, or the tree was dropped.
    pub fn size(&self) -> Result<TreeSize, StoreError> {
        let measured = self.measure();
        // Pages of a dropped tree say anything.
        check_not_dropped(&self.entry)?;
        Ok(measured?)
    }

    fn measure(&self) -> Result<TreeSize, BufferError> {
        let (shape, fill) = self.tree().measure()?;
        let long_value_pages = match self.entry.values.get() {
            None => 0,
            Some(values) => {
                let (shape, _) = self.core.tree(values).measure()?;
                shape.leaves + shape.inner_nodes
            }
        };
        let pages = shape.leaves + shape.inner_nodes + long_value_pages;
        let bytes = pages * self.core.pool.page_size().bytes() as u64;
        Ok(TreeSize { shape, fill, long_value_pages, bytes })
    }

    /// Returns the counts of pages read and written for the tree since the store was opened.
    #[must_use]
    pub fn io(&self) -> IoCounts {
        self.entry.counters.counts()
    }
}

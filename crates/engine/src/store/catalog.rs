//! The trees of a store, by name: a tree itself, whose root is page 2.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::btree::{Deletion, Need, SplitPolicy, Tree, TreeEntry};
use crate::buffer::{BufferError, Pool};
use crate::page::{Change, Fences, Node, PageId, Reader, TreeId};
use crate::record::{Cause, MiniTransaction};

use super::Space;
use crate::wal::Log;

/// The catalog's own number and root.
pub(crate) const CATALOG: TreeId = TreeId(0);
pub(crate) const CATALOG_ROOT: PageId = PageId(2);

/// Trees that are known.
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
    fn add(&mut self, entry: &Arc<TreeEntry>) {
        if let Some(of) = entry.indexed.and_then(|id| self.by_id.get(&id)) {
            of.count_index();
        }
        self.by_name.insert(entry.name.clone(), Arc::clone(entry));
        self.by_id.insert(entry.id, Arc::clone(entry));
    }

    fn next_id(&self) -> TreeId {
        TreeId(self.by_id.keys().map(|id| id.0).max().unwrap_or(CATALOG.0) + 1)
    }
}

fn empty_leaf(tree: TreeId) -> Change<'static> {
    let fences = Fences { low: b"", high: None };
    Change::FormatNode { tree, level: 0, fences, right: PageId::NONE }
}

impl Catalog {
    pub(crate) fn new(pool: &Pool) -> Catalog {
        let counters = pool.counters(CATALOG);
        let own = Arc::new(TreeEntry::new(CATALOG, "", CATALOG_ROOT, counters, None));
        Catalog { own, trees: RwLock::default() }
    }

    fn tree<'s>(&'s self, pool: &'s Pool, log: &'s Log, space: &'s Space) -> Tree<'s> {
        Tree { pool, log, space, entry: &self.own }
    }

    /// Makes the catalog of a new store: nothing else is in it yet, so its root gets page 2.
    pub(crate) fn create(pool: &Pool, log: &Log, space: &Space) -> Result<(), BufferError> {
        let reserved = space.reserve(pool)?;
        let mut mini = MiniTransaction::new();
        reserved.give_out(vec![empty_leaf(CATALOG)], &mut mini);
        mini.commit(log, &Cause::Structure).map(|_| ())
    }

    /// Reads the catalog of a store that was recovered.
    pub(crate) fn load(&self, pool: &Pool, log: &Log, space: &Space) -> Result<(), BufferError> {
        let tree = self.tree(pool, log, space);
        let mut entries = Vec::new();
        let mut leaf = tree.leaf(b"")?;
        loop {
            let node = Node::new(&leaf);
            for slot in 0..node.count() {
                let name = String::from_utf8_lossy(&node.key(slot)).into_owned();
                entries.extend(decode(&name, node.value(slot), pool).map(Arc::new));
            }
            match tree.leaf_after(&leaf)? {
                Some(right) => leaf = right,
                None => break,
            }
        }
        // In the order in which they were made: an index after its tree.
        entries.sort_by_key(|entry| entry.id);
        let mut trees = self.trees.write();
        for entry in &entries {
            trees.add(entry);
        }
        Ok(())
    }

    pub(crate) fn named(&self, name: &str) -> Option<Arc<TreeEntry>> {
        self.trees.read().by_name.get(name).cloned()
    }

    pub(crate) fn numbered(&self, id: TreeId) -> Option<Arc<TreeEntry>> {
        if id == CATALOG {
            return Some(Arc::clone(&self.own));
        }
        self.trees.read().by_id.get(&id).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<TreeEntry>> {
        let mut all: Vec<_> = self.trees.read().by_id.values().cloned().collect();
        all.sort_by_key(|entry| entry.id);
        all
    }

    /// The indexes of a tree.
    pub(crate) fn indexes_of(&self, tree: TreeId) -> Vec<Arc<TreeEntry>> {
        let trees = self.trees.read();
        trees.by_id.values().filter(|entry| entry.indexed == Some(tree)).cloned().collect()
    }

    /// The catalog's own entry.
    pub(crate) fn own(&self) -> Arc<TreeEntry> {
        Arc::clone(&self.own)
    }

    /// Makes an empty tree, or an empty index of another, or finds the tree that has the name;
    /// whether it was made.
    pub(crate) fn create_tree(
        &self,
        name: &str,
        indexed: Option<TreeId>,
        pool: &Pool,
        log: &Log,
        space: &Space,
    ) -> Result<(Arc<TreeEntry>, bool), BufferError> {
        let mut trees = self.trees.write();
        if let Some(entry) = trees.by_name.get(name) {
            return Ok((Arc::clone(entry), false));
        }
        let id = trees.next_id();
        let tree = self.tree(pool, log, space);
        let need = Need { key: name.as_bytes(), value_len: ENTRY_BYTES };
        let root = loop {
            let leaf = tree.leaf_to_change(need.key)?;
            if !need.fits(Node::new(&leaf)) {
                drop(leaf);
                tree.make_room(&need)?;
                continue;
            }
            let reserved = space.reserve(pool)?;
            let root = reserved.id();
            let settings = (SplitPolicy::default(), Deletion::default());
            let value = encode(id, root, settings, indexed);
            let node = Node::new(&leaf);
            let slot = node.search(need.key).unwrap_or_else(|slot| slot);
            let tail = node.tail(need.key);
            let slot = u16::try_from(slot).unwrap_or(u16::MAX);
            let mut mini = MiniTransaction::new();
            mini.change(leaf, vec![Change::Insert { slot, tail, value: &value }]);
            reserved.give_out(vec![empty_leaf(id)], &mut mini);
            mini.commit(log, &Cause::Structure)?;
            break root;
        };
        let entry = Arc::new(TreeEntry::new(id, name, root, pool.counters(id), indexed));
        trees.add(&entry);
        Ok((entry, true))
    }

    /// Makes the present settings of a tree lasting.
    pub(crate) fn save(
        &self,
        entry: &TreeEntry,
        pool: &Pool,
        log: &Log,
        space: &Space,
    ) -> Result<(), BufferError> {
        let tree = self.tree(pool, log, space);
        let settings = (entry.split_policy(), entry.deletion());
        let value = encode(entry.id, entry.root, settings, entry.indexed);
        let mut leaf = tree.leaf_to_change(entry.name.as_bytes())?;
        if let Ok(slot) = Node::new(&leaf).search(entry.name.as_bytes()) {
            tree.replace(&mut leaf, slot, &value, &Cause::Structure)?;
        }
        Ok(())
    }
}

const ENTRY_BYTES: usize = 21;

fn encode(
    id: TreeId,
    root: PageId,
    (split, deletion): (SplitPolicy, Deletion),
    indexed: Option<TreeId>,
) -> [u8; ENTRY_BYTES] {
    let mut value = [0; ENTRY_BYTES];
    value[..4].copy_from_slice(&id.0.to_le_bytes());
    value[4..12].copy_from_slice(&root.0.to_le_bytes());
    value[12..16].copy_from_slice(&split.to_bits().to_le_bytes());
    value[16] = deletion.to_bits();
    value[17..21].copy_from_slice(&indexed.unwrap_or(CATALOG).0.to_le_bytes());
    value
}

fn decode(name: &str, value: &[u8], pool: &Pool) -> Option<TreeEntry> {
    let mut reader = Reader::new(value);
    let (id, root) = (TreeId(reader.u32().ok()?), PageId(reader.u64().ok()?));
    let (split, deletion) = (reader.u32().ok()?, reader.u8().ok()?);
    let indexed = Some(TreeId(reader.u32().ok()?)).filter(|&indexed| indexed != CATALOG);
    let entry = TreeEntry::new(id, name, root, pool.counters(id), indexed);
    entry.set_split_policy(SplitPolicy::from_bits(split));
    entry.set_deletion(Deletion::from_bits(deletion));
    Some(entry)
}

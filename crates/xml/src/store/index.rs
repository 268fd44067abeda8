//! Indexes of a document: chosen for each document, built while it is used, and kept up to date in
//! the transactions that change it.
//!
//! Each index is a tree of the engine, `xml index N.M` for index M of document N, whose keys the
//! engine locks. A reader locks an entry and the gap below it, as serializable scans need. A writer
//! locks the entry that it inserts or removes, and the gap as the engine's range modes say. These
//! are the key-value locks of ARIES/KVL, on (key, label) pairs. An entry of the tree `xml indexes`
//! defines the index and says how far it is built.
//!
//! | module | what it has |
//! | --- | --- |
//! | `definition.rs` | what an index holds, and the text form of that |
//! | `classes.rs` | which path classes are on a path |
//! | `key.rs` | keys and values of entries |
//! | `build.rs` | making and dropping an index while others use the document |
//! | `query.rs` | answers from indexes |
//! | `verify.rs` | comparing indexes with their document |
//!
//! Invariants:
//! - The list of a document's indexes changes only under a lock on the document that keeps out all
//!   who change it. So each change of a node finds the indexes that its transaction has to keep.
//! - An index that is being built has right entries for all nodes up to the label that its entry in
//!   `xml indexes` names. Behind it some may be missing, and none is wrong.
//! - Only an index that is ready answers queries.

mod build;
mod classes;
mod definition;
mod key;
mod query;
mod string_value;
mod verify;

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tidegate_engine::{Transaction, TreeHandle, TxnError, TxnOptions};
use tidegate_runtime::sync::{LongMutex, LongRwLock};

use self::classes::{ClassesOnPaths, NodeClass, Reached};
use super::paths::Paths;
use super::record::{
    MalformedRecord, Record, RecordKind, push_number, push_text, take_number, take_text,
};
use super::statistics::IndexStatistics;
use super::vocabulary::Vocabulary;
use super::{Document, Stored, XmlStore, XmlStoreError};
use crate::label::Label;

pub use self::build::IndexState;
pub(super) use self::build::NewIndex;
pub use self::definition::{IndexDefinition, IndexDefinitionError, PathPattern, ValueType};

/// The tree that defines all indexes.
pub(super) const INDEXES: &str = "xml indexes";
/// Names of the trees that hold indexes begin with it.
const INDEX: &str = "xml index ";

/// Longest name of an index, in bytes.
pub const INDEX_NAME_MAX: usize = 255;

/// An entry of an index: key and value.
pub(super) type Entry = (Vec<u8>, Vec<u8>);

/// An index of an open document.
pub(super) struct Index {
    document: u32,
    number: u32,
    name: String,
    definition: IndexDefinition,
    /// Longest text in a key, in bytes; see `key.rs`.
    text_max: usize,
    tree: TreeHandle,
    is_ready: AtomicBool,
    /// For each path of the definition, how far it leads to each path class.
    reached: LongMutex<Vec<Reached>>,
}

/// The indexes of an open document.
pub(super) struct Indexes {
    document: u32,
    next: AtomicU32,
    list: LongRwLock<Vec<Arc<Index>>>,
    classes: ClassesOnPaths,
}

impl Indexes {
    pub(super) fn new(document: u32) -> Indexes {
        let (list, classes) = (LongRwLock::default(), ClassesOnPaths::default());
        Indexes { document, next: AtomicU32::new(0), list, classes }
    }

    fn list(&self) -> impl Deref<Target = Vec<Arc<Index>>> {
        self.list.read()
    }

    fn named(&self, name: &str) -> Option<Arc<Index>> {
        self.list().iter().find(|index| index.name == name).cloned()
    }

    /// Keeps out all who look at the list. A transaction that defines an index or removes one
    /// takes this before its commit, and the list is changed behind the commit: so it changes if
    /// the commit succeeds, and before a transaction that then gets the document looks at it.
    fn list_to_change(&self) -> impl DerefMut<Target = Vec<Arc<Index>>> {
        self.list.write()
    }

    /// Returns the indexes that are not being built.
    fn ready(&self) -> Vec<Arc<Index>> {
        self.list().iter().filter(|index| index.is_ready()).cloned().collect()
    }

    /// Returns the figures of all indexes.
    pub(super) fn statistics(&self) -> Result<Vec<IndexStatistics>, XmlStoreError> {
        let all = self.list().clone();
        let statistics = all.iter().map(|index| {
            Ok(IndexStatistics {
                name: index.name.clone(),
                definition: index.definition.clone(),
                is_ready: index.is_ready(),
                tree: index.tree.size()?,
            })
        });
        statistics.collect()
    }

    /// Makes the entries of one changed node what they have to be, in the transaction that changes
    /// it. An index that is being built may lack the old entry, or have the new one.
    pub(super) fn change(
        &self,
        transaction: &mut Transaction,
        (vocabulary, paths): (&Vocabulary, &Paths),
        label: &Label,
        (old, new): (Option<&Record>, Option<&Record>),
    ) -> Result<(), XmlStoreError> {
        for index in self.list().iter() {
            let entry = |record: Option<&Record>| {
                record.and_then(|record| index.entry(vocabulary, paths, label, record))
            };
            let (old, new) = (entry(old), entry(new));
            if old == new {
                continue;
            }
            if let Some((key, _)) = &old
                && new.as_ref().is_none_or(|(new, _)| new != key)
            {
                transaction.remove(&index.tree, key)?;
            }
            if let Some((key, value)) = &new {
                transaction.put(&index.tree, key, value)?;
            }
        }
        Ok(())
    }
}

impl Index {
    fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    fn catalog_key(&self) -> [u8; 8] {
        catalog_key(self.document, self.number)
    }

    /// Returns whether the index is of nodes of this class.
    fn covers(&self, vocabulary: &Vocabulary, paths: &Paths, class: NodeClass) -> bool {
        let patterns = self.definition.patterns();
        if patterns.is_empty() {
            return true;
        }
        let mut reached = self.reached.lock();
        patterns.iter().zip(reached.iter_mut()).any(|(pattern, reached)| {
            let steps = pattern.steps();
            if reached.known() < paths.count() {
                let classes = paths.since(reached.known());
                reached.extend(&steps, &classes, &|name| vocabulary.name(name));
            }
            reached.is_on_path(&steps, class)
        })
    }

    pub(super) fn tree(&self) -> &TreeHandle {
        &self.tree
    }

    /// Returns the entry that the index has to have of a node, if any.
    pub(super) fn entry(
        &self,
        vocabulary: &Vocabulary,
        paths: &Paths,
        label: &Label,
        record: &Record,
    ) -> Option<Entry> {
        let mut entry = Entry::default();
        self.write_entry((vocabulary, paths), (label, record), &mut entry).then_some(entry)
    }

    /// Writes the entry that the index has to have of a node in the place of what is in `entry`.
    /// Returns whether it has one; if not, `entry` may have a part of it.
    pub(super) fn write_entry(
        &self,
        (vocabulary, paths): (&Vocabulary, &Paths),
        (label, record): (&Label, &Record),
        (key, value): &mut Entry,
    ) -> bool {
        key.clear();
        value.clear();
        let Some(class) = NodeClass::of(record) else { return false };
        let class_bytes = class.to_bytes();
        let has_content = record.kind != RecordKind::Element;
        match &self.definition {
            IndexDefinition::Name => {
                let Some(name) = record.name.filter(|_| !has_content) else { return false };
                key.extend(name.0.to_be_bytes());
                value.extend(class_bytes);
            }
            IndexDefinition::Path { .. } => {
                if !self.covers(vocabulary, paths, class) {
                    return false;
                }
                key.extend(class_bytes);
            }
            IndexDefinition::Content { value: how } => {
                let content = &record.content;
                if !has_content || !key::push_content(key, *how, content, self.text_max) {
                    return false;
                }
                value.extend(class_bytes);
            }
            IndexDefinition::Cas { value: how, .. } => {
                if !has_content || !self.covers(vocabulary, paths, class) {
                    return false;
                }
                key.extend(class_bytes);
                if !key::push_content(key, *how, &record.content, self.text_max) {
                    return false;
                }
            }
        }
        key.extend_from_slice(label.as_bytes());
        true
    }

    /// Returns where the label begins in a key.
    fn label_at(&self, key: &[u8]) -> Option<usize> {
        match &self.definition {
            IndexDefinition::Name | IndexDefinition::Path { .. } => Some(key::CLASS),
            IndexDefinition::Content { value } => key::behind_content(key, 0, *value),
            IndexDefinition::Cas { value, .. } => key::behind_content(key, key::CLASS, *value),
        }
    }

    /// Returns the label of an entry.
    fn label_of(&self, key: &[u8]) -> Result<Label, XmlStoreError> {
        let label = self.label_at(key).and_then(|at| key.get(at..));
        let label = label.ok_or(XmlStoreError::Unsound("a key of an index is too short"))?;
        Ok(Label::from_bytes(label)?)
    }
}

impl Document<'_> {
    fn entry_of(&self, index: &Index, label: &Label, record: &Record) -> Option<Entry> {
        index.entry(&self.store.vocabulary, &self.stored.paths, label, record)
    }
}

/// Opening and dropping documents.
impl XmlStore {
    /// Finds the indexes of the documents, and removes those of documents that there are not, and
    /// the trees of indexes that nothing defines.
    pub(super) fn restore_indexes(
        &self,
        documents: &HashMap<u32, Stored>,
    ) -> Result<(), XmlStoreError> {
        let mut stray = Vec::new();
        let mut transaction = self.engine.begin(TxnOptions::default());
        for entry in transaction.entries(&self.indexes)? {
            let (key, value) = entry?;
            let (document, number) = numbers_of(&key)?;
            let Some(stored) = documents.get(&document) else {
                stray.push(key);
                continue;
            };
            let tree = self.engine.tree(&tree_name(document, number));
            let tree = tree.ok_or(XmlStoreError::Unsound("an index has no tree"))?;
            let definition = Defined::decode(&value)?;
            let index = definition.open(document, number, tree);
            stored.indexes.next.fetch_max(number.saturating_add(1), Ordering::Relaxed);
            stored.indexes.list_to_change().push(Arc::new(index));
        }
        for key in stray {
            transaction.remove(&self.indexes, &key)?;
        }
        transaction.commit()?;
        self.drop_index_trees(|document, number| {
            documents.get(&document).is_none_or(|stored| {
                stored.indexes.list().iter().all(|index| index.number != number)
            })
        })
    }

    /// Removes the indexes of a document that no catalog names.
    pub(super) fn discard_indexes(&self, document: u32) -> Result<(), XmlStoreError> {
        self.engine.transaction(|transaction| {
            let keys = transaction.prefix(&self.indexes, &document.to_be_bytes())?;
            let keys: Vec<Vec<u8>> =
                keys.map(|entry| Ok(entry?.0)).collect::<Result<_, TxnError>>()?;
            keys.iter().try_for_each(|key| transaction.remove(&self.indexes, key).map(|_| ()))
        })?;
        self.drop_index_trees(|of, _| of == document)
    }

    fn drop_index_trees(&self, is_stray: impl Fn(u32, u32) -> bool) -> Result<(), XmlStoreError> {
        for tree in self.engine.trees() {
            let numbers = tree.strip_prefix(INDEX).and_then(|numbers| numbers.split_once('.'));
            let Some((document, number)) = numbers else { continue };
            if let (Ok(document), Ok(number)) = (document.parse::<u32>(), number.parse::<u32>())
                && is_stray(document, number)
            {
                self.engine.drop_tree(&tree)?;
            }
        }
        Ok(())
    }
}

/// An index as the tree `xml indexes` defines it: the longest text in a key; name and definition,
/// each with its length; then, while it is being built, a byte 1 and the label that it is built up
/// to.
struct Defined {
    text_max: u32,
    name: String,
    definition: IndexDefinition,
    built_to: Option<Label>,
}

impl Defined {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        push_number(&mut bytes, self.text_max);
        push_text(&mut bytes, &self.name);
        push_text(&mut bytes, &self.definition.to_string());
        if let Some(label) = &self.built_to {
            bytes.push(1);
            bytes.extend_from_slice(label.as_bytes());
        }
        bytes
    }

    fn decode(mut bytes: &[u8]) -> Result<Defined, XmlStoreError> {
        let malformed = |reason| XmlStoreError::Record { what: "an index's entry", reason };
        let text_max = take_number(&mut bytes).map_err(malformed)?;
        let mut text = || take_text(&mut bytes).map(str::to_owned).map_err(malformed);
        let (name, definition) = (text()?, text()?);
        let definition = definition
            .parse()
            .map_err(|_| XmlStoreError::Unsound("an index's definition cannot be read"))?;
        let built_to = match bytes.split_first() {
            None => None,
            Some((1, label)) => Some(Label::from_bytes(label)?),
            Some(_) => return Err(malformed(MalformedRecord::Number)),
        };
        if (text_max as usize) < key::TEXT_MIN {
            return Err(XmlStoreError::Unsound("an index's bound of texts is too low"));
        }
        Ok(Defined { text_max, name, definition, built_to })
    }

    fn open(self, document: u32, number: u32, tree: TreeHandle) -> Index {
        let reached = self.definition.patterns().iter().map(|_| Reached::new()).collect();
        Index {
            document,
            number,
            name: self.name,
            text_max: self.text_max as usize,
            tree,
            is_ready: AtomicBool::new(self.built_to.is_none()),
            reached: LongMutex::new(reached),
            definition: self.definition,
        }
    }
}

fn numbers_of(key: &[u8]) -> Result<(u32, u32), XmlStoreError> {
    match (key.first_chunk(), key.last_chunk()) {
        (Some(&document), Some(&number)) if key.len() == 8 => {
            Ok((u32::from_be_bytes(document), u32::from_be_bytes(number)))
        }
        _ => Err(XmlStoreError::Unsound("a key of the indexes has not eight bytes")),
    }
}

fn tree_name(document: u32, number: u32) -> String {
    format!("{INDEX}{document}.{number}")
}

fn catalog_key(document: u32, number: u32) -> [u8; 8] {
    let mut key = [0; 8];
    key[..4].copy_from_slice(&document.to_be_bytes());
    key[4..].copy_from_slice(&number.to_be_bytes());
    key
}

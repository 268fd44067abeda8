//! The document store: XML documents as trees of the embedded engine.
//!
//! Each document is a tree of the engine with a record a node under the node's
//! [`Label`], so the order of keys is document order and a subtree is a range
//! of keys. `docs/xml.md` describes what is stored.
//!
//! | tree | key | value |
//! | --- | --- | --- |
//! | `xml documents` | name of a document | its number and options |
//! | `xml names` | number of a name | the name (`vocabulary.rs`) |
//! | `xml settings` | name of a setting | the setting; only if one was saved |
//! | `xml paths` | document, number of a path class | the class (`paths.rs`) |
//! | `xml document N` | label | record (`record.rs`) |
//! | `xml indexes` | document, number of an index | what the index holds (`index.rs`) |
//! | `xml index N.M` | as `index/key.rs` says | |
//!
//! ```
//! use std::ops::ControlFlow;
//!
//! use tidegate_xml::store::{DocumentOptions, NewNode, Place, XmlStore};
//! use tidegate_xml::tree::Tree;
//! use tidegate_xml::name::QName;
//! use tidegate_xml::serialize::XmlWriter;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let parent = tempfile::tempdir()?;
//! let store = XmlStore::open_or_create(parent.path().join("store"))?;
//! let text = &b"<people><anna/></people>"[..];
//! store.load("people", DocumentOptions::default(), text, |_| ControlFlow::Continue(()))?;
//!
//! let transaction = store.begin();
//! let people = transaction.document_to_update("people")?;
//! let list = people.first_child(&people.root()?)?.ok_or("there is a root element")?;
//! people.insert(&Place::Last(list), NewNode::Element(&QName::local("bert")))?;
//! let text = people.write(XmlWriter::canonical(Vec::new(), true))?;
//! assert_eq!(text, b"<people><anna></anna><bert></bert></people>");
//! transaction.commit()?;
//! # Ok(())
//! # }
//! ```

mod check;
mod dom;
mod fragment;
mod index;
mod leaves;
mod load;
mod locks;
mod many;
mod navigate;
mod output;
mod paths;
mod recent;
mod record;
mod relabel;
mod relocate;
mod statistics;
mod steps;
mod update;
mod view;
mod vocabulary;

use std::cell::{Cell, Ref, RefCell};
use std::collections::HashMap;
use std::io;
use std::num::NonZeroU16;
use std::path::Path;
use std::sync::Arc;

use thiserror::Error;
use tidegate_engine::wal::LogError;
use tidegate_engine::{
    HeadError, KeyLocking, Savepoint, Store, StoreError, StoreOptions, Transaction, TreeHandle,
    TreeOptions, TxnError, TxnOptions,
};
use tidegate_runtime::sync::{Mutex, MutexGuard};

use self::index::{INDEXES, Indexes};
use self::locks::{
    Access, ConflictCounters, LockedSubtrees, Names, NodeLocks, ShortLock, SpaceUse,
    TransactionLocks, isolation_of, lock_opened,
};
use self::paths::Paths;
use self::recent::Recent;
use self::record::{push_number, take_number};
use self::view::View;
use self::vocabulary::Vocabulary;
use crate::label::{Label, LabelError, LabelRules, MalformedLabel};
use crate::parse::{ParseError, Position};
use crate::serialize::SerializeError;

pub use self::check::Problem;
pub use self::dom::DomCursor;
pub use self::index::{
    INDEX_NAME_MAX, IndexDefinition, IndexDefinitionError, IndexState, PathPattern, ValueType,
};
pub use self::leaves::InnerNodes;
pub use self::load::{LoadOptions, LoadPhase, Progress};
pub use self::locks::{
    Claim, ConflictCounts, ConflictPlace, EscalationReading, LockEscalation, LockFigures,
    LockProtocol, Locking, LockingError, LockingListener, ProtocolError, RetryClaims, ask_locking,
};
pub use self::navigate::{Children, Descendants};
pub use self::record::MalformedRecord;
pub use self::statistics::{DocumentStatistics, IndexStatistics, NodeCounts};
pub use self::update::{NewNode, Place};
pub use tidegate_engine::TreeSize;

const DOCUMENTS: &str = "xml documents";
const NAMES: &str = "xml names";
const PATHS: &str = "xml paths";
/// There only if a setting was saved.
const SETTINGS: &str = "xml settings";
/// The key of how transactions lock.
const LOCKING: &[u8] = b"locking";
/// Names of the trees that hold documents begin with it.
const DOCUMENT: &str = "xml document ";

/// Longest content of a node, in bytes. It is held in memory when the node is read.
pub const CONTENT_MAX: usize = 256 << 20;

/// Longest name of a document, in bytes: it is a key of the engine, whose smallest pages have keys
/// of that length.
pub const DOCUMENT_NAME_MAX: usize = 255;

/// Errors of the document store.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum XmlStoreError {
    /// The engine refused or failed; after a conflict the transaction may be run again.
    #[error(transparent)]
    Engine(#[from] TxnError),
    /// The text of a document or a fragment is refused. Nothing of it is stored.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// A document cannot be written as text.
    #[error(transparent)]
    Serialize(#[from] SerializeError),
    /// A document that is loaded goes beyond a limit of the store. Nothing of it is stored.
    #[error("{position}: {error}")]
    At {
        /// The end of what is beyond the limit.
        position: Position,
        /// Which limit.
        error: Box<XmlStoreError>,
    },
    /// There is no label for a new node, mostly because it would be too long: the node is too deep.
    #[error(
        "{0}; for deeper documents, load with a larger `DocumentOptions::label_max`, which may be \
         an eighth of the store's page"
    )]
    Label(#[from] LabelError),
    /// The caller stopped the load. Nothing of the document is stored.
    #[error("the load was cancelled; nothing of the document is stored")]
    Cancelled,
    /// The system starts no thread. Nothing of the document is stored.
    #[error("a thread cannot be started: {0}; load with `LoadOptions::threads` of 1")]
    Thread(#[source] io::Error),
    /// There is no document of that name.
    #[error("there is no document {0:?}; load it first")]
    NoSuchDocument(String),
    /// There is a document of that name.
    #[error("there is a document {0:?} already; choose another name or drop that one")]
    DocumentExists(String),
    /// A document's name is empty or too long.
    #[error("a document's name has 1 to {DOCUMENT_NAME_MAX} bytes, not {0}")]
    DocumentName(usize),
    /// There is no node of that label.
    #[error("there is no node {0}: it was deleted, or the label is another document's")]
    NoSuchNode(Label),
    /// What was asked for does not apply to a node of this kind or at this place.
    #[error("{label}: {what}")]
    NotPossible {
        /// The node.
        label: Label,
        /// What is not possible, and what to do.
        what: &'static str,
    },
    /// A name that XML does not allow.
    #[error("{0:?} is not a name in XML; choose another one")]
    Name(String),
    /// A prefix that is bound to no namespace.
    #[error("the prefix {0:?} is not bound to a namespace here; bind it, or declare it above")]
    Prefix(String),
    /// Content that XML does not allow in such a node.
    #[error("{0}; change the content")]
    Content(&'static str),
    /// A node's content is too long.
    #[error("a node's content has at most {CONTENT_MAX} bytes, not {0}; divide it")]
    ContentTooLong(usize),
    /// A stored record cannot be read.
    #[error("{what} cannot be read: {reason}; restore the store from a backup")]
    Record {
        /// Whose record.
        what: &'static str,
        /// Why not.
        reason: MalformedRecord,
    },
    /// A stored key is no label.
    #[error("a key of a document is no label: {0}; restore the store from a backup")]
    Key(#[from] MalformedLabel),
    /// Numbers have run out: there are 2^32 of them.
    #[error("there are too many {0}; use several stores")]
    Full(&'static str),
    /// There is no index of that name.
    #[error("there is no index {0:?}; create it first")]
    NoSuchIndex(String),
    /// There is an index of that name, which is ready or has another definition.
    #[error("there is an index {0:?} already; choose another name or drop that one")]
    IndexExists(String),
    /// An index's name is empty or too long.
    #[error("an index's name has 1 to {INDEX_NAME_MAX} bytes, not {0}")]
    IndexName(usize),
    /// A text defines no index.
    #[error(transparent)]
    IndexDefinition(#[from] IndexDefinitionError),
    /// Keys of the store are too short for labels of the document with content.
    #[error(
        "labels of the document have up to {label_max} bytes, and keys of the store {key_max}, too \
         few for an index; load the document with shorter labels, or make a store of larger pages"
    )]
    IndexKeys {
        /// Longest label of the document, in bytes.
        label_max: usize,
        /// Longest key of the store, in bytes.
        key_max: usize,
    },
    /// The caller stopped the building of an index. Nothing of it is left.
    #[error("the building of the index was cancelled; nothing of it is left")]
    IndexCancelled,
    /// The engine's store has trees, and none of them is the catalog of documents.
    #[error("the store holds no documents but something else; choose another directory")]
    OtherStore,
    /// A transaction without locks was to change something.
    #[error(
        "a transaction that locks nothing cannot change anything, because the change could not be \
         taken back; begin it with another protocol than none"
    )]
    Unlocked,
    /// What is stored contradicts itself.
    #[error("{0}; restore the store from a backup")]
    Unsound(&'static str),
}

impl From<StoreError> for XmlStoreError {
    fn from(error: StoreError) -> XmlStoreError {
        XmlStoreError::Engine(error.into())
    }
}

impl XmlStoreError {
    /// Returns whether the same transaction, run again, may succeed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, XmlStoreError::Engine(error) if error.is_retryable())
    }

    /// Adds the place in the document's text to an error that its content is the reason for.
    fn at(self, position: Position) -> XmlStoreError {
        match self {
            XmlStoreError::Label(_) | XmlStoreError::ContentTooLong(_) => {
                XmlStoreError::At { position, error: Box::new(self) }
            }
            error => error,
        }
    }

    /// Returns whether there is no store in the directory that was to be opened.
    #[must_use]
    pub fn is_missing_store(&self) -> bool {
        let XmlStoreError::Engine(TxnError::Store(error)) = self else { return false };
        matches!(error, StoreError::Head(HeadError::Missing))
    }
}

/// How a document is stored. It is fixed when the document is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DocumentOptions {
    /// Longest label, in bytes. The default, 500, fits the engine's pages from 4 KiB on; a label
    /// that is longer than the engine's keys may be is refused by the engine.
    pub label_max: u16,
    /// Distance of consecutive siblings at loading; see [`LabelRules::distance`].
    pub distance: NonZeroU16,
    /// How full the load makes the leaves of the tree, in percent from 50 to 100.
    pub fill_percent: u8,
    /// Which elements have records.
    pub inner_nodes: InnerNodes,
}

impl Default for DocumentOptions {
    fn default() -> DocumentOptions {
        DocumentOptions {
            label_max: 500,
            distance: LabelRules::DEFAULT_DISTANCE,
            fill_percent: 90,
            inner_nodes: InnerNodes::default(),
        }
    }
}

impl DocumentOptions {
    fn rules(self) -> LabelRules {
        LabelRules::new(usize::from(self.label_max)).with_distance(self.distance)
    }
}

/// What is kept of a document while the store is open.
struct Stored {
    tree: TreeHandle,
    rules: LabelRules,
    inner_nodes: InnerNodes,
    paths: Paths,
    indexes: Indexes,
}

/// The documents of a store by their numbers, and the next number.
#[derive(Default)]
struct Known {
    documents: HashMap<u32, Arc<Stored>>,
    next: u32,
}

/// An open store of documents.
pub struct XmlStore {
    engine: Arc<Store>,
    catalog: TreeHandle,
    paths: TreeHandle,
    indexes: TreeHandle,
    vocabulary: Vocabulary,
    locks: NodeLocks,
    /// How transactions lock that do not say it.
    locking: Mutex<Locking>,
    conflicts: ConflictCounters,
    known: Mutex<Known>,
}

/// Opening and closing, and documents as a whole.
impl XmlStore {
    /// Opens the store in a directory, or makes one if the directory is empty or does not exist.
    ///
    /// # Errors
    /// [`XmlStoreError::OtherStore`], or the engine's store cannot be opened or made, or its
    /// content is damaged.
    pub fn open_or_create(path: impl AsRef<Path>) -> Result<XmlStore, XmlStoreError> {
        XmlStore::on(Store::open_or_create(path, &StoreOptions::default())?)
    }

    /// Opens the store in a directory. Makes none, and leaves a directory that has no store as it
    /// was.
    ///
    /// # Errors
    /// [`HeadError::Missing`](tidegate_engine::HeadError::Missing) if there is no store; or it is
    /// open in another process, cannot be opened, or its content is damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<XmlStore, XmlStoreError> {
        XmlStore::on(Store::open_directory(path, &StoreOptions::default())?)
    }

    /// Opens the store in a directory to be read only: several processes may do so at the same
    /// time, and nothing is written. A store that was not closed has to be recovered; it is opened
    /// as by [`XmlStore::open`] then.
    ///
    /// # Errors
    /// As [`XmlStore::open`].
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<XmlStore, XmlStoreError> {
        let path = path.as_ref();
        match Store::open_directory_read_only(path, &StoreOptions::default()) {
            Ok(store) => match XmlStore::on(store) {
                // Something that a load or a drop has left has to be removed.
                Err(XmlStoreError::Engine(TxnError::Store(StoreError::Log(
                    LogError::ReadOnly,
                )))) => XmlStore::open(path),
                opened => opened,
            },
            Err(StoreError::NotClosed) => XmlStore::open(path),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens the documents in an open store of the engine, which may be new. What loads and drops
    /// that did not end have left is removed. A program that keeps trees of its own in the same
    /// store makes them when the documents' trees are there.
    ///
    /// # Errors
    /// [`XmlStoreError::OtherStore`], or the store fails or its content is damaged.
    pub fn on(engine: impl Into<Arc<Store>>) -> Result<XmlStore, XmlStoreError> {
        let engine = engine.into();
        // The catalog is made first, so that it is there when a crash comes between.
        if engine.tree(DOCUMENTS).is_none() && !engine.trees().is_empty() {
            return Err(XmlStoreError::OtherStore);
        }
        let catalog = engine.create_tree(DOCUMENTS)?;
        let paths = engine.create_tree(PATHS)?;
        let indexes = engine.create_tree(INDEXES)?;
        let vocabulary = Vocabulary::open(&engine, engine.create_tree(NAMES)?)?;
        let known = Mutex::new(Known::default());
        let locks = NodeLocks::new(&engine)?;
        let store = XmlStore {
            engine,
            catalog,
            paths,
            indexes,
            vocabulary,
            locks,
            locking: Mutex::default(),
            conflicts: ConflictCounters::default(),
            known,
        };
        store.restore()?;
        store.restore_locking()?;
        Ok(store)
    }

    /// Writes everything and closes the store. Where the engine's store is used elsewhere, it is
    /// written and stays open.
    ///
    /// # Errors
    /// As [`Store::close`].
    pub fn close(self) -> Result<(), XmlStoreError> {
        match Arc::try_unwrap(self.engine) {
            Ok(engine) => Ok(engine.close()?),
            Err(engine) => Ok(engine.flush()?),
        }
    }

    /// Returns the engine's store, for its figures and maintenance.
    #[must_use]
    pub fn engine(&self) -> &Arc<Store> {
        &self.engine
    }

    /// Returns the names of all documents, in the order of their bytes.
    ///
    /// # Errors
    /// If there is a conflict or the store cannot read.
    pub fn documents(&self) -> Result<Vec<String>, XmlStoreError> {
        self.documents_in("")
    }

    /// Returns the names of the documents of a collection, which are those that begin with
    /// `prefix`, in the order of their bytes. Collections exist by the names of their documents
    /// only.
    ///
    /// # Errors
    /// If there is a conflict or the store cannot read.
    pub fn documents_in(&self, prefix: &str) -> Result<Vec<String>, XmlStoreError> {
        let mut transaction = self.engine.begin(TxnOptions::default());
        let mut names = Vec::new();
        for entry in transaction.prefix(&self.catalog, prefix.as_bytes())? {
            names.push(document_name(entry?.0)?);
        }
        transaction.commit()?;
        Ok(names)
    }

    /// Drops a document. Returns whether there was one of that name. It waits until no transaction
    /// uses the document, so the caller must not have one under way that does. The drop is durable
    /// when it returns; after a crash the document is whole or gone.
    ///
    /// # Errors
    /// If there is a conflict, or the store cannot read or write. After an error of the store the
    /// document may be gone and its space in use until the store is opened again.
    pub fn drop_document(&self, name: &str) -> Result<bool, XmlStoreError> {
        let removed = self.engine.transaction(|transaction| {
            let value = transaction.get(&self.catalog, name.as_bytes())?;
            transaction.remove(&self.catalog, name.as_bytes())?;
            Ok(value)
        })?;
        let Some(value) = removed else { return Ok(false) };
        self.discard(Entry::decode(&value)?.number)?;
        Ok(true)
    }

    /// Begins a transaction that locks as [`XmlStore::locking`] says.
    #[must_use]
    pub fn begin(&self) -> XmlTransaction<'_> {
        self.begin_with(TxnOptions::default())
    }

    /// Begins a transaction with other options, that locks as [`XmlStore::locking`] says when it
    /// begins. If that cannot be mixed with what is under way, it waits, but not longer than the
    /// longest transaction runs that was under way when it came.
    #[must_use]
    pub fn begin_with(&self, options: TxnOptions) -> XmlTransaction<'_> {
        let (locking, used) = self.locks.enter_as_set(&self.engine, || self.locking());
        self.begin_in(used, locking, options)
    }

    /// Begins a transaction that locks documents in a way of its own. It waits until transactions
    /// have ended whose protocol does not [go with](LockProtocol::goes_with) its own. A thread that
    /// has one of those open waits for ever.
    ///
    /// What it reads stays as it was to its end if it is serializable, as it is by default. At
    /// repeatable read that holds for nodes, but others may come beside them; at read committed
    /// nodes change, and at read uncommitted it reads what others will roll back. Lists and
    /// subtrees that are read at once, not node by node, stay as they are but at the last.
    /// Transactions that lock documents as a whole are always serializable.
    ///
    /// Two transactions that update items of one list beside each other, the second of which locks
    /// items as a whole. They know the items from before: who reads the list keeps others from
    /// changing it.
    ///
    /// ```
    /// # use std::ops::ControlFlow;
    /// # use tidegate_engine::TxnOptions;
    /// # use tidegate_xml::label::Label;
    /// # use tidegate_xml::name::QName;
    /// # use tidegate_xml::store::{
    /// #     DocumentOptions, LockEscalation, LockProtocol, Locking, NewNode, Place, XmlStore,
    /// # };
    /// # use tidegate_xml::tree::Tree;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let parent = tempfile::tempdir()?;
    /// # let store = XmlStore::open_or_create(parent.path().join("shop"))?;
    /// # let text = &b"<shop><item/><item/></shop>"[..];
    /// # store.load("shop", DocumentOptions::default(), text, |_| ControlFlow::Continue(()))?;
    /// # let before = store.begin();
    /// # let list = before.document("shop")?;
    /// # let items: Vec<Label> = list.children(&Label::root())?.collect::<Result<_, _>>()?;
    /// # drop(list);
    /// # drop(before);
    /// let by_nodes = Locking::by(LockProtocol::tadom()).escalating(LockEscalation::MODERATE);
    /// let one = store.begin_locking(by_nodes.clone(), TxnOptions::default());
    /// let other = store.begin_locking(by_nodes.to_depth(1), TxnOptions::default());
    /// let (shop, same) = (one.document("shop")?, other.document("shop")?);
    /// let sold = QName::local("sold");
    /// shop.insert(&Place::Last(items[0].clone()), NewNode::Element(&sold))?;
    /// same.insert(&Place::Last(items[1].clone()), NewNode::Element(&sold))?;
    /// # drop((shop, same));
    /// assert_eq!(one.lock_figures().escalations, 0);
    /// one.commit()?;
    /// other.commit()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn begin_locking(&self, locking: Locking, options: TxnOptions) -> XmlTransaction<'_> {
        let used = self.locks.enter(&self.engine, &locking.protocol);
        self.begin_in(used, locking, options)
    }

    fn begin_in<'s>(
        &'s self,
        used: SpaceUse<'s>,
        locking: Locking,
        options: TxnOptions,
    ) -> XmlTransaction<'s> {
        let isolation = isolation_of(&locking.protocol, options.isolation);
        XmlTransaction {
            store: self,
            inner: RefCell::new(self.engine.begin(options.isolation(isolation))),
            locks: TransactionLocks::new(locking, &used, isolation),
            changes: Cell::new(0),
            _used: used,
        }
    }

    /// Sets how transactions lock that begin from now on and do not say it themselves. Those that
    /// are under way go on as they are. If their protocols do not [go
    /// with](LockProtocol::goes_with) the new one, the next transaction begins when they have
    /// ended.
    pub fn set_locking(&self, locking: Locking) {
        *self.locking.lock() = locking;
    }

    /// Keeps [`XmlStore::locking`] for the next time that the store is opened.
    ///
    /// # Errors
    /// The store cannot be written.
    pub fn save_locking(&self) -> Result<(), XmlStoreError> {
        let settings = self.engine.create_tree(SETTINGS)?;
        let text = self.locking().to_string();
        Ok(self.engine.transaction(|transaction| {
            transaction.put(&settings, LOCKING, text.as_bytes()).map(drop)
        })?)
    }

    fn restore_locking(&self) -> Result<(), XmlStoreError> {
        let Some(settings) = self.engine.tree(SETTINGS) else { return Ok(()) };
        let mut transaction = self.engine.begin(TxnOptions::default());
        let Some(text) = transaction.get(&settings, LOCKING)? else { return Ok(()) };
        let text = String::from_utf8_lossy(&text);
        // A protocol that only a program knows is set by that program.
        if let Ok(locking) = text.parse() {
            self.set_locking(locking);
        }
        Ok(())
    }

    /// Returns how transactions lock that do not say it themselves.
    #[must_use]
    pub fn locking(&self) -> Locking {
        self.locking.lock().clone()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }

    /// Finds the documents, and removes trees and paths of those that are not in the catalog.
    fn restore(&self) -> Result<(), XmlStoreError> {
        let mut documents = HashMap::new();
        let mut transaction = self.engine.begin(TxnOptions::default());
        for entry in transaction.entries(&self.catalog)? {
            let Entry { number, rules, inner_nodes } = Entry::decode(&entry?.1)?;
            let tree = self.engine.tree(&tree_name(number));
            let tree = tree.ok_or(XmlStoreError::Unsound("a document has no tree"))?;
            let paths = Paths::new(number, self.paths.clone());
            let indexes = Indexes::new(number);
            documents.insert(number, Stored { tree, rules, inner_nodes, paths, indexes });
        }
        let mut stray = Vec::new();
        for entry in transaction.entries(&self.paths)? {
            let (key, value) = entry?;
            let (number, pcr) = paths::of_key(&key)?;
            match documents.get(&number) {
                Some(stored) => stored.paths.restore(pcr, &value)?,
                None => stray.push(key),
            }
        }
        for key in stray {
            transaction.remove(&self.paths, &key)?;
        }
        transaction.commit()?;
        for tree in self.engine.trees() {
            let number = tree.strip_prefix(DOCUMENT).and_then(|number| number.parse().ok());
            if number.is_some_and(|number| !documents.contains_key(&number)) {
                self.engine.drop_tree(&tree)?;
            }
        }
        self.restore_indexes(&documents)?;
        let mut known = self.known();
        known.next = documents.keys().max().map_or(0, |last| last.saturating_add(1));
        known.documents = documents.into_iter().map(|(n, stored)| (n, Arc::new(stored))).collect();
        Ok(())
    }

    /// Makes the tree of a new document, which no catalog names yet.
    fn reserve(&self, options: DocumentOptions) -> Result<(u32, Arc<Stored>), XmlStoreError> {
        let mut known = self.known();
        let number = known.next;
        known.next = number.checked_add(1).ok_or(XmlStoreError::Full("documents"))?;
        drop(known);
        let tree_options = TreeOptions::default().key_locking(KeyLocking::ClientOnly);
        let tree = self.engine.create_tree_with(&tree_name(number), tree_options)?;
        let paths = Paths::new(number, self.paths.clone());
        let (rules, indexes) = (options.rules(), Indexes::new(number));
        let inner_nodes = options.inner_nodes;
        let stored = Arc::new(Stored { tree, rules, inner_nodes, paths, indexes });
        self.known().documents.insert(number, Arc::clone(&stored));
        Ok((number, stored))
    }

    /// Removes what is stored of a document that no catalog names.
    fn discard(&self, number: u32) -> Result<(), XmlStoreError> {
        self.known().documents.remove(&number);
        self.engine.drop_tree(&tree_name(number))?;
        self.discard_indexes(number)?;
        let prefix = number.to_be_bytes();
        Ok(self.engine.transaction(|transaction| {
            let keys = transaction.prefix(&self.paths, &prefix)?;
            let keys: Vec<Vec<u8>> =
                keys.map(|entry| Ok(entry?.0)).collect::<Result<_, TxnError>>()?;
            keys.iter().try_for_each(|key| transaction.remove(&self.paths, key).map(|_| ()))
        })?)
    }
}

fn tree_name(number: u32) -> String {
    format!("{DOCUMENT}{number}")
}

fn document_name(key: Vec<u8>) -> Result<String, XmlStoreError> {
    String::from_utf8(key).map_err(|_| XmlStoreError::Unsound("a document's name is not UTF-8"))
}

/// What the catalog holds of a document.
struct Entry {
    number: u32,
    rules: LabelRules,
    inner_nodes: InnerNodes,
}

impl Entry {
    fn encode(number: u32, options: DocumentOptions) -> Vec<u8> {
        let mut bytes = Vec::new();
        push_number(&mut bytes, number);
        push_number(&mut bytes, options.label_max.into());
        push_number(&mut bytes, options.distance.get().into());
        push_number(&mut bytes, options.inner_nodes.code());
        bytes
    }

    /// Reads an entry. Those of earlier versions end behind the distance of labels.
    fn decode(mut bytes: &[u8]) -> Result<Entry, XmlStoreError> {
        let malformed = |reason| XmlStoreError::Record { what: "a document's entry", reason };
        let mut number = || take_number(&mut bytes).map_err(malformed);
        let (own, label_max, distance) = (number()?, number()?, number()?);
        let distance = u16::try_from(distance).ok().and_then(NonZeroU16::new);
        let distance = distance.ok_or(XmlStoreError::Unsound("a document's distance of labels"))?;
        let inner_nodes = match bytes {
            [] => Some(InnerNodes::Stored),
            mut rest => InnerNodes::from_code(take_number(&mut rest).map_err(malformed)?),
        };
        Ok(Entry {
            number: own,
            rules: LabelRules::new(label_max as usize).with_distance(distance),
            inner_nodes: inner_nodes.ok_or(XmlStoreError::Unsound("a document's inner nodes"))?,
        })
    }
}

/// A transaction over documents. One that is dropped is rolled back.
///
/// After a conflict ([`XmlStoreError::is_retryable`]) it has to be dropped, and may be run again.
pub struct XmlTransaction<'s> {
    store: &'s XmlStore,
    inner: RefCell<Transaction>,
    locks: TransactionLocks,
    /// Number of changes of nodes and of ways back to a savepoint.
    changes: Cell<u64>,
    // Dropped last: others may wait until the locks are released.
    _used: SpaceUse<'s>,
}

impl XmlTransaction<'_> {
    /// Opens a document to read it: no other transaction changes what this one has read until it
    /// ends. It can be updated, too, but two transactions that do so after both have read the same
    /// are a deadlock.
    ///
    /// # Errors
    /// [`XmlStoreError::NoSuchDocument`], or a conflict, or the store cannot read.
    pub fn document(&self, name: &str) -> Result<Document<'_>, XmlStoreError> {
        self.open(name, Access::Read)
    }

    /// Opens a document to update it: no other transaction uses it, or if nodes are locked, what
    /// is updated of it, until this one ends.
    ///
    /// # Errors
    /// As [`XmlTransaction::document`].
    pub fn document_to_update(&self, name: &str) -> Result<Document<'_>, XmlStoreError> {
        self.open(name, Access::Write)
    }

    fn open(&self, name: &str, access: Access) -> Result<Document<'_>, XmlStoreError> {
        let mut inner = self.inner.borrow_mut();
        // The lock on the catalog's entry keeps the document from being dropped.
        let value = inner.get(&self.store.catalog, name.as_bytes())?;
        let value = value.ok_or_else(|| XmlStoreError::NoSuchDocument(name.to_owned()))?;
        let number = Entry::decode(&value)?.number;
        let stored = self.store.known().documents.get(&number).cloned();
        let stored =
            stored.ok_or(XmlStoreError::Unsound("a document of the catalog is missing"))?;
        lock_opened(&mut inner, &stored, &self.locks.locking.protocol, access)?;
        drop(inner);
        let document = Document {
            store: self.store,
            transaction: &self.inner,
            stored,
            locks: &self.locks,
            access: Cell::new(access),
            operations: Cell::new(0),
            names: RefCell::default(),
            locked_subtrees: RefCell::default(),
            short_locks: RefCell::default(),
            relabelled: RefCell::default(),
            recent: Recent::new(&self.changes),
            view: RefCell::default(),
        };
        document.lock_claims()?;
        Ok(document)
    }

    /// Returns a place to roll back to.
    ///
    /// ```
    /// # use std::ops::ControlFlow;
    /// # use tidegate_xml::label::Label;
    /// # use tidegate_xml::store::{DocumentOptions, Place, XmlStore};
    /// # use tidegate_xml::tree::Tree;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let parent = tempfile::tempdir()?;
    /// # let store = XmlStore::open_or_create(parent.path().join("store"))?;
    /// # let text = &b"<list/>"[..];
    /// # store.load("d", DocumentOptions::default(), text, |_| ControlFlow::Continue(()))?;
    /// let transaction = store.begin();
    /// let document = transaction.document_to_update("d")?;
    /// document.insert_xml(&Place::Last(Label::root()), &b"kept"[..])?;
    /// let savepoint = transaction.savepoint();
    /// document.insert_xml(&Place::Last(Label::root()), &b" and not kept"[..])?;
    /// transaction.roll_back_to(savepoint)?;
    /// assert_eq!(document.string_value(&Label::root())?, "kept");
    /// # drop(document);
    /// transaction.commit()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn savepoint(&self) -> Savepoint {
        self.inner.borrow().savepoint()
    }

    /// Takes back all changes since a savepoint. Locks are kept.
    ///
    /// # Errors
    /// As [`Transaction::roll_back_to`].
    pub fn roll_back_to(&self, savepoint: Savepoint) -> Result<(), XmlStoreError> {
        self.changes.set(self.changes.get() + 1);
        Ok(self.inner.borrow_mut().roll_back_to(savepoint)?)
    }

    /// Returns the engine's transaction, for its number and what it has locked.
    ///
    /// # Panics
    /// If the result is still there when an operation on a document begins.
    #[must_use]
    pub fn engine(&self) -> Ref<'_, Transaction> {
        self.inner.borrow()
    }

    /// Makes all changes durable.
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub fn commit(self) -> Result<(), XmlStoreError> {
        Ok(self.inner.into_inner().commit()?)
    }
}

/// A document as a transaction sees it; a [`Tree`](crate::tree::Tree) whose nodes are labels.
///
/// The handle of a node stays good until the node is deleted, is moved, or gets a new label because
/// that of an inserted node would be too long ([`Document::take_relabelled`]). A label that was a
/// node's may be that of a node inserted later.
pub struct Document<'t> {
    store: &'t XmlStore,
    transaction: &'t RefCell<Transaction>,
    stored: Arc<Stored>,
    locks: &'t TransactionLocks,
    access: Cell<Access>,
    /// Updates under way that are parts of each other.
    operations: Cell<u32>,
    names: RefCell<Names>,
    locked_subtrees: RefCell<LockedSubtrees>,
    /// Locks that the present operation has taken for itself alone.
    short_locks: RefCell<Vec<ShortLock>>,
    /// Elements whose children were labelled anew, until the caller has asked for them.
    relabelled: RefCell<Vec<Label>>,
    recent: Recent<'t>,
    view: RefCell<View>,
}

impl Document<'_> {
    /// Returns the number of path classes: distinct paths of element and attribute names that
    /// nodes of the document have or have had.
    #[must_use]
    pub fn path_classes(&self) -> usize {
        self.stored.paths.count()
    }
}

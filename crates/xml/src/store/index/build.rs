//! Making and dropping indexes while others use the document.
//!
//! An index is registered in a short transaction that has the document's exclusive lock. From
//! then on each change keeps it up to date, whether its node was scanned or not. Then short
//! transactions each scan the next stretch of the document under the shared lock, put the entries
//! of its nodes, and record how far they came; the last one makes the index ready. A build that was
//! ended by a crash or an error goes on when it is called again.
//!
//! A load makes its indexes before anybody knows of the document (`load/run.rs`).

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_engine::TreeHandle;
use tidegate_engine::lock::multi_granularity::X;

use super::{Defined, Entry, INDEX_NAME_MAX, Index, IndexDefinition, catalog_key, key, tree_name};
use crate::label::Label;
use crate::store::{Document, Stored, XmlStore, XmlStoreError, XmlTransaction};

/// Nodes that a transaction scans.
const STRETCH: usize = 1_000;

/// Most times that a transaction of a build is run again after conflicts.
const RETRIES_MAX: u32 = 100;

/// An index as [`XmlStore::indexes`] lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexState {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub definition: IndexDefinition,
    /// Whether it answers queries: it has been built as a whole.
    pub is_ready: bool,
}

/// What one transaction of a build has done.
enum Stretch {
    /// So many nodes; there may be more.
    Scanned(usize),
    /// All that was left.
    Last(Arc<Index>),
}

/// Indexes of documents.
impl XmlStore {
    /// Makes an index of a document. Others can read and update the document meanwhile, and wait
    /// for a stretch of 1,000 nodes at most. `progress` is called behind each stretch with the
    /// number of nodes that this call has scanned, and stops the build with
    /// [`ControlFlow::Break`]: then nothing of the index is left. When it returns, the index is
    /// durable and answers queries.
    ///
    /// A build that was ended by an error or a crash goes on if this is called again with the same
    /// name and definition. Until then updates keep what there is of the index up to date.
    ///
    /// ```
    /// # use std::ops::ControlFlow;
    /// # use tidegate_xml::store::{DocumentOptions, XmlStore};
    /// # use tidegate_xml::tree::Tree;
    /// # use tidegate_xml::xpath::{Environment, Prefixes, Query};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let parent = tempfile::tempdir()?;
    /// # let store = XmlStore::open_or_create(parent.path().join("store"))?;
    /// # let text = &b"<shop><price>7</price><price>20</price></shop>"[..];
    /// # store.load("shop", DocumentOptions::default(), text, |_| ControlFlow::Continue(()))?;
    /// let definition = "cas number //price/text()".parse()?;
    /// store.create_index("shop", "prices", &definition, |_| ControlFlow::Continue(()))?;
    /// let transaction = store.begin();
    /// let document = transaction.document("shop")?;
    /// let query = Query::parse("count(//price[text() < 10])", &Prefixes::new())?;
    /// let environment = Environment::default();
    /// assert!(query.explain(&document, &environment).contains("index prices"));
    /// assert_eq!(query.number(&document, &document.root()?, &environment)?, 1.0);
    /// assert_eq!(document.check()?, []);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`XmlStoreError::NoSuchDocument`], [`XmlStoreError::IndexName`],
    /// [`XmlStoreError::IndexExists`], [`XmlStoreError::IndexKeys`],
    /// [`XmlStoreError::IndexCancelled`], [`XmlStoreError::NoSuchIndex`] if it was dropped
    /// meanwhile, or there is a conflict or the store fails.
    pub fn create_index(
        &self,
        document: &str,
        name: &str,
        definition: &IndexDefinition,
        mut progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), XmlStoreError> {
        check_name(name)?;
        self.register(document, name, definition)?;
        let mut nodes = 0;
        loop {
            let stretch =
                self.again(|transaction| transaction.document(document)?.build_stretch(name))?;
            match stretch {
                Stretch::Last(index) => {
                    index.is_ready.store(true, Ordering::Release);
                    return Ok(());
                }
                Stretch::Scanned(more) => nodes += more as u64,
            }
            if progress(nodes).is_break() {
                self.drop_index(document, name)?;
                return Err(XmlStoreError::IndexCancelled);
            }
        }
    }

    /// Drops an index of a document, also one that is being built. Returns whether there was one
    /// of that name. It waits until no transaction uses the document, so the caller must not have
    /// one under way that does.
    ///
    /// # Errors
    /// [`XmlStoreError::NoSuchDocument`], or there is a conflict or the store fails. After an error
    /// of the store the index may be gone and its space in use until the store is opened again.
    pub fn drop_index(&self, document: &str, name: &str) -> Result<bool, XmlStoreError> {
        let stored = self.stored(document)?;
        let dropped = self.again(|transaction| {
            let document = transaction.document_to_update(document)?;
            let index = stored.indexes.named(name);
            let Some(index) = index.filter(|_| Arc::ptr_eq(&stored, &document.stored)) else {
                return Ok(None);
            };
            let mut inner = document.transaction.borrow_mut();
            inner.remove(&self.indexes, &index.catalog_key())?;
            Ok(Some((index, stored.indexes.list_to_change())))
        })?;
        let Some((index, mut list)) = dropped else { return Ok(false) };
        list.retain(|other| other.number != index.number);
        drop(list);
        self.engine.drop_tree(&tree_name(index.document, index.number))?;
        Ok(true)
    }

    /// Returns the indexes of a document, in the order in which they were made.
    ///
    /// # Errors
    /// [`XmlStoreError::NoSuchDocument`], or there is a conflict or the store cannot read.
    pub fn indexes(&self, document: &str) -> Result<Vec<IndexState>, XmlStoreError> {
        self.again(|transaction| {
            let document = transaction.document(document)?;
            let state = |index: &Arc<Index>| IndexState {
                name: index.name.clone(),
                definition: index.definition.clone(),
                is_ready: index.is_ready(),
            };
            Ok(document.stored.indexes.list().iter().map(state).collect())
        })
    }

    /// Makes empty indexes of a document that no catalog names yet. They are ready.
    pub(in crate::store) fn make_indexes(
        &self,
        stored: &Stored,
        definitions: &[(String, IndexDefinition)],
    ) -> Result<Vec<NewIndex>, XmlStoreError> {
        let document = stored.indexes.document;
        let mut made = Vec::new();
        for (name, definition) in definitions {
            check_name(name)?;
            if stored.indexes.named(name).is_some() {
                return Err(XmlStoreError::IndexExists(name.clone()));
            }
            let text_max = self.text_max(stored)?;
            let (name, definition) = (name.clone(), definition.clone());
            let defined = Defined { text_max, name, definition, built_to: None };
            let number = stored.indexes.next.fetch_add(1, Ordering::Relaxed);
            let tree = self.engine.create_tree(&tree_name(document, number))?;
            let (key, entry) = (catalog_key(document, number), defined.encode());
            let index = Arc::new(defined.open(document, number, tree));
            stored.indexes.list_to_change().push(Arc::clone(&index));
            made.push(NewIndex { key, entry, index });
        }
        Ok(made)
    }

    /// Returns how long texts in keys of a document's indexes are at most.
    fn text_max(&self, stored: &Stored) -> Result<u32, XmlStoreError> {
        let (label_max, key_max) = (stored.rules.max_bytes(), self.engine.page_size().key_max());
        let text_max = key_max.saturating_sub(label_max + key::BESIDE).min(key::TEXT_MAX);
        if text_max < key::TEXT_MIN {
            return Err(XmlStoreError::IndexKeys { label_max, key_max });
        }
        Ok(u32::try_from(text_max).expect("at most TEXT_MAX"))
    }

    /// Makes an empty index, unless there is one that is being built and has this definition.
    fn register(
        &self,
        document: &str,
        name: &str,
        definition: &IndexDefinition,
    ) -> Result<(), XmlStoreError> {
        let stored = self.stored(document)?;
        let reserved = self.again(|transaction| {
            if transaction.document(document)?.is_begun(name, definition)? {
                return Ok(None);
            }
            Ok(Some(stored.indexes.next.fetch_add(1, Ordering::Relaxed)))
        })?;
        let Some(number) = reserved else { return Ok(()) };
        let of = stored.indexes.document;
        let tree = self.engine.create_tree(&tree_name(of, number))?;
        let registered = self.again(|transaction| {
            // Exclusively, so that of two calls with the same name one finds the other's index.
            let document = transaction.document_to_update(document)?;
            if !Arc::ptr_eq(&stored, &document.stored) || document.is_begun(name, definition)? {
                return Ok(None);
            }
            let index = document.register(number, name, definition, &tree)?;
            Ok(Some((index, stored.indexes.list_to_change())))
        });
        match registered {
            Ok(Some((index, mut list))) => {
                list.push(Arc::new(index));
                Ok(())
            }
            registered => {
                // If this fails, the store has failed, and the next opening does it.
                let _ = self.engine.drop_tree(&tree_name(of, number));
                registered.map(|_| ())
            }
        }
    }

    /// Returns what is kept of a document.
    fn stored(&self, document: &str) -> Result<Arc<Stored>, XmlStoreError> {
        self.again(|transaction| Ok(Arc::clone(&transaction.document(document)?.stored)))
    }

    /// Runs a transaction, again after each conflict, and commits it.
    fn again<R>(
        &self,
        run: impl Fn(&XmlTransaction<'_>) -> Result<R, XmlStoreError>,
    ) -> Result<R, XmlStoreError> {
        let mut retries = 0;
        loop {
            let transaction = self.begin();
            let result = run(&transaction);
            let result = match result {
                Ok(value) => transaction.commit().map(|()| value),
                Err(error) => {
                    drop(transaction);
                    Err(error)
                }
            };
            retries += 1;
            if !result.as_ref().is_err_and(XmlStoreError::is_retryable) || retries > RETRIES_MAX {
                return result;
            }
        }
    }
}

/// An index of a document that is being loaded, with its entry in `xml indexes`.
pub(in crate::store) struct NewIndex {
    pub(in crate::store) key: [u8; 8],
    pub(in crate::store) entry: Vec<u8>,
    pub(in crate::store) index: Arc<Index>,
}

fn check_name(name: &str) -> Result<(), XmlStoreError> {
    if name.is_empty() || name.len() > INDEX_NAME_MAX {
        return Err(XmlStoreError::IndexName(name.len()));
    }
    Ok(())
}

impl Document<'_> {
    /// Returns whether there is an index of that name that is being built and has this definition.
    fn is_begun(&self, name: &str, definition: &IndexDefinition) -> Result<bool, XmlStoreError> {
        match self.stored.indexes.named(name) {
            None => Ok(false),
            Some(index) if !index.is_ready() && index.definition == *definition => Ok(true),
            Some(_) => Err(XmlStoreError::IndexExists(name.to_owned())),
        }
    }

    /// Defines an index. The document's lock keeps out who changes it until the commit, and the
    /// caller adds the index to the list behind it.
    fn register(
        &self,
        number: u32,
        name: &str,
        definition: &IndexDefinition,
        tree: &TreeHandle,
    ) -> Result<Index, XmlStoreError> {
        let defined = Defined {
            text_max: self.store.text_max(&self.stored)?,
            name: name.to_owned(),
            definition: definition.clone(),
            built_to: Some(Label::document()),
        };
        let of = self.stored.indexes.document;
        let key = catalog_key(of, number);
        self.transaction.borrow_mut().insert(&self.store.indexes, &key, &defined.encode())?;
        Ok(defined.open(of, number, tree.clone()))
    }

    /// Puts the entries of the next nodes.
    fn build_stretch(&self, name: &str) -> Result<Stretch, XmlStoreError> {
        let gone = || XmlStoreError::NoSuchIndex(name.to_owned());
        let index = self.stored.indexes.named(name).ok_or_else(gone)?;
        let key = index.catalog_key();
        let value = self.transaction.borrow_mut().get_for_update(&self.store.indexes, &key)?;
        let mut defined = Defined::decode(&value.ok_or_else(gone)?)?;
        // Two calls may build the same index.
        let Some(from) = &defined.built_to else { return Ok(Stretch::Last(index)) };
        let (entries, scanned, last) = self.stretch(&index, from)?;
        let mut transaction = self.transaction.borrow_mut();
        transaction.lock_tree(&index.tree, X)?;
        for (key, value) in &entries {
            transaction.put(&index.tree, key, value)?;
        }
        let is_last = scanned < STRETCH;
        defined.built_to = last.filter(|_| !is_last);
        transaction.put(&self.store.indexes, &key, &defined.encode())?;
        Ok(if is_last { Stretch::Last(index) } else { Stretch::Scanned(scanned) })
    }

    /// Returns the entries of the nodes behind a label in the order of their keys, how many nodes
    /// there were, and the label of the last.
    fn stretch(
        &self,
        index: &Index,
        from: &Label,
    ) -> Result<(Vec<Entry>, usize, Option<Label>), XmlStoreError> {
        let mut scan = self.scan_behind(from)?;
        let (mut entries, mut scanned, mut last) = (Vec::new(), 0, None);
        while scanned < STRETCH
            && let Some((label, record)) = scan.step()?
        {
            entries.extend(self.entry_of(index, &label, &record));
            scanned += 1;
            last = Some(label);
        }
        entries.sort_unstable();
        Ok((entries, scanned, last))
    }
}

//! The vocabulary: names of all documents, each with a number that stands for it in records.
//!
//! A name is stored with its prefix, so that a document comes out as it went in: names that differ
//! in the prefix only are the same to a query and have two numbers. A name is committed by a
//! transaction of its own before its number is used, and never removed. So the number is right
//! whatever becomes of the transaction that needed it, and a name that no node has does no harm.
//! That commit does not wait for the log to be synced. Its record is in the log before those of the
//! transaction that uses the number, so when that transaction is durable, the name is too.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use tidegate_engine::{Durability, Store, TreeHandle, TxnOptions};
use tidegate_runtime::sync::LongRwLock;

use super::XmlStoreError;
use super::record::{MalformedRecord, push_text, take_text};
use crate::name::QName;

/// The number of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct NameId(pub(super) u32);

/// All names, in memory and in a tree of the engine: the number, big-endian, as the key; prefix,
/// local part and namespace as the value.
pub(super) struct Vocabulary {
    tree: TreeHandle,
    names: LongRwLock<Names>,
}

#[derive(Default)]
struct Names {
    by_number: Vec<Arc<QName>>,
    /// By namespace and local part; then by prefix.
    by_name: HashMap<QName, Vec<(Box<str>, NameId)>>,
}

impl Names {
    fn find(&self, name: &QName) -> Option<NameId> {
        let prefixes = self.by_name.get(name)?;
        prefixes.iter().find(|(prefix, _)| *prefix == name.prefix).map(|&(_, id)| id)
    }

    fn push(&mut self, name: QName, id: NameId) {
        self.by_number.push(Arc::new(name.clone()));
        let prefix = name.prefix.clone();
        self.by_name.entry(name).or_default().push((prefix, id));
    }
}

/// Options of a transaction that commits something which others may use at once.
pub(super) fn own_transaction() -> TxnOptions {
    TxnOptions::default().durability(Durability::Lazy)
}

impl Vocabulary {
    /// Reads all names.
    pub(super) fn open(engine: &Store, tree: TreeHandle) -> Result<Vocabulary, XmlStoreError> {
        let mut names = Names::default();
        let mut transaction = engine.begin(TxnOptions::default());
        for entry in transaction.entries(&tree)? {
            let (key, value) = entry?;
            let id = next_number(names.by_number.len())?;
            if key != id.to_be_bytes() {
                return Err(XmlStoreError::Unsound("a number of the vocabulary is missing"));
            }
            let name = decode(&value)
                .map_err(|reason| XmlStoreError::Record { what: "a name", reason })?;
            names.push(name, NameId(id));
        }
        transaction.commit()?;
        Ok(Vocabulary { tree, names: LongRwLock::new(names) })
    }

    fn names(&self) -> impl Deref<Target = Names> {
        self.names.read()
    }

    /// Returns the number of a name, which it gets now if it has none.
    pub(super) fn number(&self, engine: &Store, name: &QName) -> Result<NameId, XmlStoreError> {
        if let Some(id) = self.names().find(name) {
            return Ok(id);
        }
        let mut names = self.names.write();
        if let Some(id) = names.find(name) {
            return Ok(id);
        }
        let id = next_number(names.by_number.len())?;
        let value = encode(name);
        engine.transaction_with(own_transaction(), |transaction| {
            transaction.insert(&self.tree, &id.to_be_bytes(), &value)
        })?;
        names.push(name.clone(), NameId(id));
        Ok(NameId(id))
    }

    /// Returns the numbers of a name, whatever the prefix.
    pub(super) fn numbers(&self, name: &QName) -> Vec<NameId> {
        let names = self.names();
        let prefixes = names.by_name.get(name).map_or(&[][..], Vec::as_slice);
        prefixes.iter().map(|&(_, id)| id).collect()
    }

    /// Returns how many names there are.
    pub(super) fn count(&self) -> usize {
        self.names().by_number.len()
    }

    /// Returns the name of a number, if there is one.
    pub(super) fn name(&self, id: NameId) -> Option<Arc<QName>> {
        self.names().by_number.get(id.0 as usize).cloned()
    }
}

fn next_number(count: usize) -> Result<u32, XmlStoreError> {
    u32::try_from(count).map_err(|_| XmlStoreError::Full("names"))
}

fn encode(name: &QName) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in [&name.prefix, &name.local, &name.namespace] {
        push_text(&mut bytes, part);
    }
    bytes
}

fn decode(mut bytes: &[u8]) -> Result<QName, MalformedRecord> {
    let mut part = || take_text(&mut bytes).map(Box::from);
    let (prefix, local, namespace) = (part()?, part()?, part()?);
    if bytes.is_empty() {
        Ok(QName { prefix, local, namespace })
    } else {
        Err(MalformedRecord::Number)
    }
}

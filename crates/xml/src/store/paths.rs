//! The path synopsis of a document: every path that a node of it has had, each with a number.
//!
//! The number is the path class reference (PCR) of the study. A class is a name and a kind below
//! another class, so that the label of a node and its PCR give the names of all its ancestors
//! without a look at the document. Elements and attributes have classes; texts, comments,
//! processing instructions and namespace declarations are in that of their element.
//!
//! A class is committed by a transaction of its own before it is used, and removed with the
//! document only, as names are (`vocabulary.rs` says why that is enough). A class without nodes is
//! harmless: a query that finds it looks for nodes and finds none.

use std::collections::HashMap;
use std::ops::Deref;

use tidegate_engine::{Store, TreeHandle};
use tidegate_runtime::sync::LongRwLock;

use super::XmlStoreError;
use super::record::{MalformedRecord, RecordKind, push_number, take_number};
use super::vocabulary::{NameId, own_transaction};

/// The number of a path class of a document. 0 is the document node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Pcr(pub(super) u32);

impl Pcr {
    pub(super) const DOCUMENT: Pcr = Pcr(0);
    /// The highest number: indexes keep a bit beside it.
    pub(super) const LAST: Pcr = Pcr(u32::MAX >> 1);
}

/// A name and a kind below another class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct PathClass {
    pub(super) parent: Pcr,
    pub(super) name: NameId,
    pub(super) kind: RecordKind,
}

/// All classes of a document, in memory and in a tree of the engine that all documents share: the
/// numbers of document and class, big-endian, as the key; parent, name and kind as the value.
pub(super) struct Paths {
    document: u32,
    tree: TreeHandle,
    classes: LongRwLock<Classes>,
}

#[derive(Default)]
struct Classes {
    /// The class of PCR n at n − 1.
    by_number: Vec<PathClass>,
    numbers: HashMap<PathClass, Pcr>,
}

impl Classes {
    fn push(&mut self, class: PathClass) -> Result<Pcr, XmlStoreError> {
        let pcr = self.next()?;
        self.by_number.push(class);
        self.numbers.insert(class, pcr);
        Ok(pcr)
    }

    fn next(&self) -> Result<Pcr, XmlStoreError> {
        let next = u32::try_from(self.by_number.len() + 1).ok().map(Pcr);
        next.filter(|next| *next <= Pcr::LAST).ok_or(XmlStoreError::Full("path classes"))
    }
}

impl Paths {
    /// The synopsis of a new document.
    pub(super) fn new(document: u32, tree: TreeHandle) -> Paths {
        Paths { document, tree, classes: LongRwLock::default() }
    }

    /// Adds a class that was read from the tree, where they are in the order of their numbers.
    pub(super) fn restore(&self, pcr: Pcr, value: &[u8]) -> Result<(), XmlStoreError> {
        let class =
            decode(value).map_err(|reason| XmlStoreError::Record { what: "a path", reason })?;
        let mut classes = self.classes.write();
        if classes.next()? != pcr || class.parent.0 >= pcr.0 {
            return Err(XmlStoreError::Unsound("path classes are not in order"));
        }
        classes.push(class).map(|_| ())
    }

    fn classes(&self) -> impl Deref<Target = Classes> {
        self.classes.read()
    }

    /// Returns the number of the document.
    pub(super) fn document(&self) -> u32 {
        self.document
    }

    /// Returns whether a class has a number.
    pub(super) fn has(&self, class: PathClass) -> bool {
        self.classes().numbers.contains_key(&class)
    }

    /// Returns the number of a class, which it gets now if it has none.
    pub(super) fn number(&self, engine: &Store, class: PathClass) -> Result<Pcr, XmlStoreError> {
        if let Some(&pcr) = self.classes().numbers.get(&class) {
            return Ok(pcr);
        }
        let mut classes = self.classes.write();
        if let Some(&pcr) = classes.numbers.get(&class) {
            return Ok(pcr);
        }
        let (key, value) = (key(self.document, classes.next()?), encode(class));
        engine.transaction_with(own_transaction(), |transaction| {
            transaction.insert(&self.tree, &key, &value)
        })?;
        classes.push(class)
    }

    /// Returns the class of a number, if there is one.
    pub(super) fn class(&self, pcr: Pcr) -> Option<PathClass> {
        let index = (pcr.0 as usize).checked_sub(1)?;
        self.classes().by_number.get(index).copied()
    }

    /// Returns the names from the root element down to a class.
    pub(super) fn names(&self, mut pcr: Pcr) -> Option<Vec<NameId>> {
        let mut names = Vec::new();
        while pcr != Pcr::DOCUMENT {
            let class = self.class(pcr)?;
            names.push(class.name);
            pcr = class.parent;
        }
        names.reverse();
        Some(names)
    }

    /// Returns the classes behind the first `known` ones, in the order of their numbers.
    pub(super) fn since(&self, known: usize) -> Vec<PathClass> {
        self.classes().by_number.get(known..).unwrap_or_default().to_vec()
    }

    /// Returns how many classes there are.
    pub(super) fn count(&self) -> usize {
        self.classes().by_number.len()
    }
}

fn key(document: u32, pcr: Pcr) -> [u8; 8] {
    let mut key = [0; 8];
    key[..4].copy_from_slice(&document.to_be_bytes());
    key[4..].copy_from_slice(&pcr.0.to_be_bytes());
    key
}

/// Returns the document and the number of a class from its key.
pub(super) fn of_key(key: &[u8]) -> Result<(u32, Pcr), XmlStoreError> {
    match (key.first_chunk(), key.last_chunk()) {
        (Some(&document), Some(&pcr)) if key.len() == 8 => {
            Ok((u32::from_be_bytes(document), Pcr(u32::from_be_bytes(pcr))))
        }
        _ => Err(XmlStoreError::Unsound("a key of the path synopsis has not eight bytes")),
    }
}

fn encode(class: PathClass) -> Vec<u8> {
    let mut bytes = vec![class.kind.code()];
    push_number(&mut bytes, class.parent.0);
    push_number(&mut bytes, class.name.0);
    bytes
}

fn decode(bytes: &[u8]) -> Result<PathClass, MalformedRecord> {
    let (&code, mut rest) = bytes.split_first().ok_or(MalformedRecord::Kind(0))?;
    let kind = RecordKind::from_code(code).filter(|kind| kind.has_class());
    let kind = kind.ok_or(MalformedRecord::Kind(code))?;
    let (parent, name) = (Pcr(take_number(&mut rest)?), NameId(take_number(&mut rest)?));
    if rest.is_empty() {
        Ok(PathClass { parent, name, kind })
    } else {
        Err(MalformedRecord::Number)
    }
}

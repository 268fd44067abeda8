//! Loading a document from text, in one pass and with bounded memory.
//!
//! Records go into a tree that the catalog does not name yet, by the engine's bulk load: labels of
//! a parsed document ascend. Entries of its indexes are sorted beside that, and loaded into trees
//! of their own behind it. The catalog's entry and those of the indexes are the last things
//! written, by one transaction, so a document is there with all its indexes or not at all. A load
//! that fails drops its trees; one that a crash ended leaves trees without an entry, which the next
//! opening drops.
//!
//! | module | what it has |
//! | --- | --- |
//! | `classes.rs` | numbers of names and path classes at hand |
//! | `options.rs` | what a load is told, and what it tells |
//! | `run.rs` | the load |
//!
//! Here is what makes records of events; fragments use it as well.

mod classes;
mod options;
mod run;

use std::collections::VecDeque;
use std::sync::Arc;

use self::classes::KnownClasses;
use super::paths::{PathClass, Pcr};
use super::record::{Record, RecordKind};
use super::{CONTENT_MAX, Stored, XmlStore, XmlStoreError};
use crate::label::{Label, LabelError, Siblings};
use crate::name::QName;
use crate::parse::{Attribute, Event, XML_NAMESPACE};

pub use self::options::{LoadOptions, LoadPhase, Progress};

/// An element that has not ended, or the document.
struct Open {
    label: Label,
    pcr: Pcr,
    last: Option<Label>,
}

/// A node with its record. Something is below an inner node.
pub(super) struct Made {
    pub(super) label: Label,
    pub(super) record: Record,
    pub(super) is_inner: bool,
}

/// Makes the record of a kind, below a class, with a name, and locks what it needs for that.
pub(super) type FragmentNamed<'a> =
    Box<dyn Fn(RecordKind, Pcr, &QName) -> Result<Record, XmlStoreError> + 'a>;

/// Makes records of the events of a document or a fragment.
pub(super) struct Builder<'a> {
    store: &'a XmlStore,
    stored: &'a Stored,
    /// The document, or the parent of a fragment, and the elements that have not ended.
    open: Vec<Open>,
    /// The node that follows a fragment.
    right: Option<Label>,
    /// The parts of a text that have come.
    text: String,
    /// Nodes in front of the root element, which get labels backwards from the root's. `None` from
    /// the root element on, and for a fragment.
    prolog: Option<Vec<Record>>,
    /// An element that has begun, until something is below it or it ends.
    begun: Option<(Label, Record)>,
    /// How a record with a name is made for a fragment. `None` for a document.
    fragment_named: Option<FragmentNamed<'a>>,
    /// `None` for a fragment, which is too short for a table to pay.
    known: Option<KnownClasses>,
    ready: VecDeque<Made>,
    nodes: u64,
}

impl<'a> Builder<'a> {
    fn new(store: &'a XmlStore, stored: &'a Stored) -> Builder<'a> {
        let document = Open { label: Label::document(), pcr: Pcr::DOCUMENT, last: None };
        Builder {
            store,
            stored,
            open: vec![document],
            right: None,
            text: String::new(),
            prolog: Some(Vec::new()),
            begun: None,
            fragment_named: None,
            known: Some(KnownClasses::default()),
            ready: VecDeque::new(),
            nodes: 0,
        }
    }

    /// Begins a fragment below `parent`, whose class is `pcr`, between two of its children.
    pub(super) fn fragment(
        store: &'a XmlStore,
        stored: &'a Stored,
        (parent, pcr): (&Label, Pcr),
        (left, right): (Option<&Label>, Option<&Label>),
        named: FragmentNamed<'a>,
    ) -> Builder<'a> {
        let parent = Open { label: parent.clone(), pcr, last: left.cloned() };
        let (open, right) = (vec![parent], right.cloned());
        let fragment_named = Some(named);
        let builder = Builder::new(store, stored);
        Builder { open, right, prolog: None, known: None, fragment_named, ..builder }
    }

    /// Returns the nodes that the events so far have made, and forgets them.
    pub(super) fn made(&mut self) -> impl Iterator<Item = Made> + '_ {
        self.ready.drain(..)
    }

    pub(super) fn event(&mut self, event: Event<'_>) -> Result<(), XmlStoreError> {
        if let Event::Text(part) = event {
            self.text.push_str(part);
            return check_length(self.text.len());
        }
        if !self.text.is_empty() {
            let content = std::mem::take(&mut self.text);
            self.leaf(RecordKind::Text, None, content)?;
        }
        match event {
            Event::StartElement { name, attributes } => self.start(name, attributes),
            Event::Comment(text) => self.leaf(RecordKind::Comment, None, text.to_owned()),
            Event::ProcessingInstruction { target, data } => {
                let name = QName::local(target);
                self.leaf(RecordKind::ProcessingInstruction, Some(&name), data.to_owned())
            }
            Event::EndElement { .. } => {
                self.settle(false);
                self.open.pop();
                Ok(())
            }
            Event::StartDocument | Event::EndDocument | Event::Text(_) => Ok(()),
        }
    }

    fn innermost(&mut self) -> Result<&mut Open, XmlStoreError> {
        self.open.last_mut().ok_or(XmlStoreError::Unsound("an event behind the document's end"))
    }

    fn push(&mut self, label: Label, record: Record) {
        self.settle(true);
        self.nodes += 1;
        self.ready.push_back(Made { label, record, is_inner: false });
    }

    /// Passes on the element that has begun last, if that was not done.
    fn settle(&mut self, is_inner: bool) {
        let made = self.begun.take().map(|(label, record)| Made { label, record, is_inner });
        self.ready.extend(made);
    }

    /// Gives a label to a child of the innermost element.
    fn child(&mut self) -> Result<Label, XmlStoreError> {
        let rules = self.stored.rules;
        let right = self.right.clone().filter(|_| self.open.len() == 1);
        let parent = self.innermost()?;
        let siblings = parent.label.children(rules);
        Ok(following(&siblings, &mut parent.last, right.as_ref())?)
    }

    fn leaf(
        &mut self,
        kind: RecordKind,
        name: Option<&QName>,
        content: String,
    ) -> Result<(), XmlStoreError> {
        let number = |name| self.store.vocabulary.number(&self.store.engine, name);
        let name = name.map(number).transpose()?;
        let pcr = self.innermost()?.pcr;
        let record = Record { kind, is_id: false, name, pcr, content };
        if let Some(prolog) = &mut self.prolog {
            prolog.push(record);
            return Ok(());
        }
        let label = self.child()?;
        self.push(label, record);
        Ok(())
    }

    fn start(&mut self, name: &Arc<QName>, attributes: &[Attribute]) -> Result<(), XmlStoreError> {
        let label = match self.prolog.take() {
            Some(prolog) => self.root(prolog)?,
            None => self.child()?,
        };
        let above = self.innermost()?.pcr;
        let record = self.named(RecordKind::Element, above, name)?;
        let pcr = record.pcr;
        self.settle(true);
        self.nodes += 1;
        self.begun = Some((label.clone(), record));
        let rules = self.stored.rules;
        for (siblings, declares) in
            [(label.namespaces(rules), true), (label.attributes(rules), false)]
        {
            let mut last = None;
            for attribute in attributes.iter().filter(|a| a.declares_namespace() == declares) {
                let kind = if declares { RecordKind::Namespace } else { RecordKind::Attribute };
                let mut record = self.named(kind, pcr, &attribute.name)?;
                record.is_id = !declares && identifies(attribute);
                record.content.clone_from(&attribute.value);
                let label = following(&siblings, &mut last, None)?;
                self.push(label, record);
            }
        }
        self.open.push(Open { label, pcr, last: None });
        Ok(())
    }

    /// Makes a record as [`XmlStore::named`] does.
    fn named(
        &mut self,
        kind: RecordKind,
        above: Pcr,
        name: &Arc<QName>,
    ) -> Result<Record, XmlStoreError> {
        let make = || match &self.fragment_named {
            Some(named) => named(kind, above, name),
            None => self.store.named(self.stored, kind, above, name),
        };
        match &mut self.known {
            Some(known) => known.record(kind, above, name, make),
            None => make(),
        }
    }

    /// Stores what precedes the root element, and returns the root's label.
    fn root(&mut self, prolog: Vec<Record>) -> Result<Label, XmlStoreError> {
        let root = Label::root();
        let siblings = Label::document().children(self.stored.rules);
        let mut first = root.clone();
        let mut labelled = Vec::new();
        for record in prolog.into_iter().rev() {
            first = siblings.before_first(&first)?;
            labelled.push((first.clone(), record));
        }
        for (label, record) in labelled.into_iter().rev() {
            self.push(label, record);
        }
        self.innermost()?.last = Some(root.clone());
        Ok(root)
    }
}

impl XmlStore {
    /// Makes the record of a node with a name, without content. `above` is the element's class.
    pub(super) fn named(
        &self,
        stored: &Stored,
        kind: RecordKind,
        above: Pcr,
        name: &QName,
    ) -> Result<Record, XmlStoreError> {
        let name = self.vocabulary.number(&self.engine, name)?;
        let pcr = if kind.has_class() {
            stored.paths.number(&self.engine, PathClass { parent: above, name, kind })?
        } else {
            above
        };
        Ok(Record { kind, is_id: false, name: Some(name), pcr, content: String::new() })
    }
}

/// Returns the label behind `last` and in front of `right`, and makes it the last.
fn following(
    siblings: &Siblings,
    last: &mut Option<Label>,
    right: Option<&Label>,
) -> Result<Label, LabelError> {
    let label = siblings.at(last.as_ref(), right)?;
    *last = Some(label.clone());
    Ok(label)
}

fn identifies(attribute: &Attribute) -> bool {
    attribute.is_id || is_xml_id(&attribute.name)
}

/// Returns whether the name is `xml:id`, which identifies elements without a document type.
pub(super) fn is_xml_id(name: &QName) -> bool {
    &*name.local == "id" && &*name.namespace == XML_NAMESPACE
}

pub(super) fn check_length(length: usize) -> Result<(), XmlStoreError> {
    if length > CONTENT_MAX { Err(XmlStoreError::ContentTooLong(length)) } else { Ok(()) }
}

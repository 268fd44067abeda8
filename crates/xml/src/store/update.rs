//! Changing a document.
//!
//! Each operation happens as a whole or, if it returns an error, not at all. It begins with the
//! locks on all that it touches (`locks.rs`), which is more than the node itself:
//!
//! - an insertion and a deletion, the gap between the neighbours;
//! - an insertion whose label would be too long, the subtrees that get new labels (`relabel.rs`);
//! - a deletion between two texts, both of them, because it joins them; in the same way the texts
//!   beside inserted XML text (`fragment.rs`);
//! - a move or a copy (`relocate.rs`), both subtrees;
//! - a change of an element's name, its whole subtree: the path classes of all nodes below change,
//!   and are written anew.

use std::cell::RefCell;
use std::collections::HashMap;

use super::load::{check_length, is_xml_id};
use super::locks::{Edge, Touch};
use super::paths::{PathClass, Pcr};
use super::record::{Record, RecordKind};
use super::steps::Wanted;
use super::{Document, XmlStoreError};
use crate::label::Label;
use crate::name::QName;
use crate::parse::chars::{first_forbidden, is_name};
use crate::parse::{XML_NAMESPACE, XMLNS_NAMESPACE};
use crate::tree::{Kind, Tree};

/// Where a node is inserted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In front of this node.
    Before(Label),
    /// Behind this node.
    After(Label),
    /// As the first child of this element or the document.
    First(Label),
    /// As the last child of this element or the document.
    Last(Label),
}

/// A node to be inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewNode<'a> {
    /// An element without attributes and children.
    Element(&'a QName),
    /// A text, which must not be empty.
    Text(&'a str),
    /// A comment.
    Comment(&'a str),
    /// A processing instruction.
    ProcessingInstruction {
        /// The name of whom it is for.
        target: &'a str,
        /// What it says.
        data: &'a str,
    },
}

/// A place in a list of children.
#[derive(Debug, Clone)]
pub(super) struct Gap {
    pub(super) parent: Label,
    pub(super) left: Option<Label>,
    pub(super) right: Option<Label>,
}

/// The path classes that the nodes of a subtree get because its path changes, by those that they
/// have.
pub(super) struct NewClasses(HashMap<Pcr, Pcr>);

impl NewClasses {
    /// Begins with the class that all others are below.
    pub(super) fn new(old: Pcr, new: Pcr) -> NewClasses {
        NewClasses(HashMap::from([(old, new)]))
    }

    /// Returns the new class of a node. Those above it have been asked for before.
    pub(super) fn of(
        &mut self,
        document: &Document<'_>,
        record: &Record,
    ) -> Result<Pcr, XmlStoreError> {
        let stored = &document.stored;
        if record.kind.has_class() && !self.0.contains_key(&record.pcr) {
            let class = stored.paths.class(record.pcr);
            let class = class.ok_or(XmlStoreError::Unsound("a path class is not known"))?;
            let class = PathClass { parent: self.changed(class.parent)?, ..class };
            self.0.insert(record.pcr, document.class_number(class)?);
        }
        self.changed(record.pcr)
    }

    fn changed(&self, pcr: Pcr) -> Result<Pcr, XmlStoreError> {
        let unknown = XmlStoreError::Unsound("a path class does not follow its parent's");
        self.0.get(&pcr).copied().ok_or(unknown)
    }
}

impl Document<'_> {
    /// Inserts a node and returns its label. If its label would be too long, nodes around the place
    /// get new labels; see [`Document::take_relabelled`].
    ///
    /// # Errors
    /// There is no such place; a text would be empty or beside another one, or in the document
    /// itself; the document would have a second root element; XML does not allow the name or the
    /// content; the place is so deep that the label would be too long whatever labels the nodes
    /// around it have ([`XmlStoreError::Label`]); or the store failed.
    pub fn insert(&self, place: &Place, node: NewNode<'_>) -> Result<Label, XmlStoreError> {
        self.insert_followed(place, node, &[])
    }

    /// Inserts a node. Labels in `followed` stay those of their nodes.
    pub(super) fn insert_followed(
        &self,
        place: &Place,
        node: NewNode<'_>,
        followed: &[&RefCell<Label>],
    ) -> Result<Label, XmlStoreError> {
        let _operation = self.begin(|| self.lock_place(place, false))?;
        let gap = self.gap(place)?;
        self.check_new(&gap, node)?;
        let above = self.class_of(&gap.parent)?;
        let plain = |kind, content: &str| Record {
            kind,
            is_id: false,
            name: None,
            pcr: above,
            content: content.to_owned(),
        };
        let record = match node {
            NewNode::Element(name) => self.named(RecordKind::Element, above, name)?,
            NewNode::Text(text) => plain(RecordKind::Text, text),
            NewNode::Comment(text) => plain(RecordKind::Comment, text),
            NewNode::ProcessingInstruction { target, data } => {
                let kind = RecordKind::ProcessingInstruction;
                let record = self.named(kind, above, &QName::local(target))?;
                Record { content: data.to_owned(), ..record }
            }
        };
        self.with_room(gap, followed, |gap, label| {
            self.change(label, None, Some(&record))?;
            self.unstore(&gap.parent)?;
            Ok(label.clone())
        })
    }

    /// Sets the content of a text, comment, processing instruction or attribute.
    ///
    /// # Errors
    /// There is no such node, it is an element, XML does not allow the content, or the store
    /// failed.
    pub fn set_value(&self, node: &Label, value: &str) -> Result<(), XmlStoreError> {
        let _operation = self.begin(|| self.lock_content(node))?;
        let old = self.record(node)?;
        let Some(kind) = old.kind.node().filter(|&kind| kind != Kind::Element) else {
            return Err(not_possible(node, "an element has no value; set that of a text in it"));
        };
        check_content(kind, value)?;
        let new = Record { content: value.to_owned(), ..old.clone() };
        self.change(node, Some(&old), Some(&new))
    }

    /// Sets an attribute of an element, whether the element has it or not, and returns its label.
    /// A new one is the last. The prefix of one that exists stays.
    ///
    /// # Errors
    /// There is no such element, the name declares a namespace, XML does not allow the name or the
    /// value, the label would be too long, or the store failed.
    pub fn set_attribute(
        &self,
        element: &Label,
        name: &QName,
        value: &str,
    ) -> Result<Label, XmlStoreError> {
        let _operation = self.begin(|| self.lock_attribute(element, name, false))?;
        let above = self.element(element)?.pcr;
        check_attribute_name(element, name)?;
        check_content(Kind::Attribute, value)?;
        if let Some(attribute) = self.attribute(element, name)? {
            self.set_value(&attribute, value)?;
            return Ok(attribute);
        }
        let last = Tree::attributes(self, element)?.pop();
        let label = element.attributes(self.stored.rules).at(last.as_ref(), None)?;
        self.lock_new(&label)?;
        let record = self.named(RecordKind::Attribute, above, name)?;
        let (is_id, content) = (is_xml_id(name), value.to_owned());
        self.atomically(|| {
            self.change(&label, None, Some(&Record { is_id, content, ..record }))?;
            self.unstore(element)
        })?;
        Ok(label)
    }

    /// Removes an attribute of an element. Returns whether the element had it.
    ///
    /// # Errors
    /// There is no such element or the store failed.
    pub fn remove_attribute(&self, element: &Label, name: &QName) -> Result<bool, XmlStoreError> {
        let _operation = self.begin(|| self.lock_attribute(element, name, true))?;
        self.element(element)?;
        match self.attribute(element, name)? {
            Some(attribute) => {
                self.atomically(|| self.remove_below(element, &attribute.subtree()))?;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Returns the attribute of that name of an element.
    ///
    /// # Errors
    /// If the store cannot read.
    pub fn attribute(&self, element: &Label, name: &QName) -> Result<Option<Label>, XmlStoreError> {
        self.begin_reading();
        self.touch(Touch::Node(element))?;
        // Nobody gives or takes the element an attribute of that name then. Others may come and go.
        self.touch(Touch::Edge(Edge::Named(element, name)))?;
        let wanted = Wanted::Named(RecordKind::Attribute, self.numbers_of(name));
        let found = self.scan(&element.attributes_range())?.step_where(&wanted)?;
        if let Some(attribute) = &found {
            self.touch(Touch::Node(attribute))?;
        }
        Ok(found)
    }

    /// Gives an element, attribute or processing instruction another name.
    ///
    /// # Errors
    /// There is no such node, it has no name, its element has an attribute of that name, XML does
    /// not allow the name, or the store failed.
    pub fn rename(&self, node: &Label, name: &QName) -> Result<(), XmlStoreError> {
        let _operation = self.begin(|| self.lock_rename(node, name))?;
        let old = self.record(node)?;
        check_name(name)?;
        let parent = Document::parent_of(node).unwrap_or(Label::document());
        match old.kind {
            RecordKind::Element => {}
            RecordKind::Attribute => {
                check_attribute_name(&parent, name)?;
                let same = self.attribute(&parent, name)?;
                if same.is_some_and(|other| other != *node) {
                    return Err(not_possible(node, "the element has an attribute of that name"));
                }
            }
            RecordKind::ProcessingInstruction => check_target(name)?,
            _ => return Err(not_possible(node, "a node of this kind has no name")),
        }
        let above = self.class_of(&parent)?;
        let renamed = self.named(old.kind, above, name)?;
        self.atomically(|| {
            // A document type declares an attribute as ID by its name, so another name is none.
            let is_id = old.kind == RecordKind::Attribute && is_xml_id(name);
            let new = Record { is_id, content: old.content.clone(), ..renamed };
            if old.kind == RecordKind::Element {
                self.rename_element(node, old.pcr, &new)
            } else {
                self.change(node, Some(&old), Some(&new))
            }
        })
    }

    /// Deletes a node with all that is below it. Texts on both sides of it become one.
    ///
    /// # Errors
    /// There is no such node, it is the document or the root element, the joined text would be too
    /// long, or the store failed.
    pub fn delete(&self, node: &Label) -> Result<(), XmlStoreError> {
        let _operation = self.begin(|| self.lock_removal(node))?;
        if *node == Label::document() {
            return Err(not_possible(node, "drop the document instead"));
        }
        let record = self.record(node)?;
        let is_root = node.parent() == Some(Label::document());
        if record.kind == RecordKind::Element && is_root {
            return Err(not_possible(node, "a document keeps its root element"));
        }
        self.atomically(|| self.remove_and_join(node))
    }

    /// Removes a node with all that is below it, and joins texts on both sides of it.
    pub(super) fn remove_and_join(&self, node: &Label) -> Result<(), XmlStoreError> {
        let (left, right) = (self.previous_sibling(node)?, self.next_sibling(node)?);
        let parent = Document::parent_of(node).unwrap_or(Label::document());
        self.remove_below(&parent, &node.subtree())?;
        self.join(left.as_ref(), right.as_ref()).map(|_| ())
    }

    /// Makes one text of two neighbours if both are texts: the left one has the content of both
    /// then, and the right one is removed. Returns whether it did.
    pub(super) fn join(
        &self,
        left: Option<&Label>,
        right: Option<&Label>,
    ) -> Result<bool, XmlStoreError> {
        let (Some(left), Some(right)) = (left, right) else { return Ok(false) };
        let (old, rest) = (self.record(left)?, self.record(right)?);
        if old.kind != RecordKind::Text || rest.kind != RecordKind::Text {
            return Ok(false);
        }
        check_length(old.content.len() + rest.content.len())?;
        let content = [&*old.content, &*rest.content].concat();
        self.change(left, Some(&old), Some(&Record { content, ..old.clone() }))?;
        self.change(right, Some(&rest), None)?;
        Ok(true)
    }

    /// Joins texts at both ends of nodes that were inserted into a gap with the texts beside them,
    /// and replaces the labels of those that are no more.
    pub(super) fn join_ends(&self, gap: &Gap, inserted: &mut [Label]) -> Result<(), XmlStoreError> {
        if let (Some(left), Some(first)) = (&gap.left, inserted.first_mut())
            && self.join(Some(left), Some(&*first))?
        {
            first.clone_from(left);
        }
        self.join(inserted.last(), gap.right.as_ref()).map(|_| ())
    }

    /// Runs several changes that are all taken back if one fails.
    pub(super) fn atomically<T>(
        &self,
        run: impl FnOnce() -> Result<T, XmlStoreError>,
    ) -> Result<T, XmlStoreError> {
        let savepoint = self.transaction.borrow().savepoint();
        let result = run();
        if result.as_ref().is_err_and(|error| !error.is_retryable()) {
            self.recent.note_change();
            self.transaction.borrow_mut().roll_back_to(savepoint)?;
        }
        result
    }

    /// Changes one node that has a record: makes it if there is no `old`, removes it if there is no
    /// `new`.
    pub(super) fn change(
        &self,
        label: &Label,
        old: Option<&Record>,
        new: Option<&Record>,
    ) -> Result<(), XmlStoreError> {
        self.change_as(true, label, old, new)
    }

    /// Changes one node, also an inner node without a record. Every update of a node goes through
    /// here; `leaves.rs` writes and removes records of elements that stay.
    pub(super) fn change_as(
        &self,
        has_record: bool,
        label: &Label,
        old: Option<&Record>,
        new: Option<&Record>,
    ) -> Result<(), XmlStoreError> {
        debug_assert!(old.is_some() || new.is_some());
        self.recent.note_change();
        let mut transaction = self.transaction.borrow_mut();
        match new {
            _ if !has_record => {}
            Some(new) => {
                transaction.put(&self.stored.tree, label.as_bytes(), &new.encode())?;
            }
            None => {
                transaction.remove(&self.stored.tree, label.as_bytes())?;
            }
        }
        let synopsis = (&self.store.vocabulary, &self.stored.paths);
        self.stored.indexes.change(&mut transaction, synopsis, label, (old, new))
    }

    /// Gives an element another name, and writes the records below it anew, whose classes change.
    fn rename_element(&self, node: &Label, old: Pcr, new: &Record) -> Result<(), XmlStoreError> {
        if old == new.pcr {
            return Ok(());
        }
        let mut classes = NewClasses::new(old, new.pcr);
        let mut scan = self.scan(&node.subtree())?;
        while let Some((label, record)) = scan.step()? {
            let name = if label == *node { new.name } else { record.name };
            let changed = Record { name, pcr: classes.of(self, &record)?, ..record.clone() };
            self.change_as(scan.is_at_record(), &label, Some(&record), Some(&changed))?;
        }
        Ok(())
    }

    /// Returns the record of an element.
    pub(super) fn element(&self, label: &Label) -> Result<Record, XmlStoreError> {
        if *label == Label::document() {
            return Err(not_possible(label, "the document has no attributes"));
        }
        let record = self.record(label)?;
        if record.kind != RecordKind::Element {
            return Err(not_possible(label, "only elements have attributes and children"));
        }
        Ok(record)
    }

    /// Returns the class of an element or the document.
    pub(super) fn class_of(&self, parent: &Label) -> Result<Pcr, XmlStoreError> {
        if *parent == Label::document() {
            return Ok(Pcr::DOCUMENT);
        }
        Ok(self.element(parent)?.pcr)
    }

    /// Returns the gap between two children that a place means.
    pub(super) fn gap(&self, place: &Place) -> Result<Gap, XmlStoreError> {
        let list_of = |node: &Label| {
            let is_in_none = matches!(self.kind(node)?, Kind::Document | Kind::Attribute);
            let parent = node.parent().filter(|_| !is_in_none);
            parent.ok_or_else(|| not_possible(node, "it is in no list of children"))
        };
        Ok(match place {
            Place::Before(node) => Gap {
                parent: list_of(node)?,
                left: self.previous_sibling(node)?,
                right: Some(node.clone()),
            },
            Place::After(node) => Gap {
                parent: list_of(node)?,
                left: Some(node.clone()),
                right: self.next_sibling(node)?,
            },
            Place::First(parent) => {
                Gap { parent: parent.clone(), left: None, right: self.first_child(parent)? }
            }
            Place::Last(parent) => {
                Gap { parent: parent.clone(), left: self.last_child(parent)?, right: None }
            }
        })
    }

    fn check_new(&self, gap: &Gap, node: NewNode<'_>) -> Result<(), XmlStoreError> {
        match node {
            NewNode::Element(name) => {
                check_child(&gap.parent, RecordKind::Element)?;
                check_name(name)?;
            }
            NewNode::Text(text) => {
                check_child(&gap.parent, RecordKind::Text)?;
                check_content(Kind::Text, text)?;
                for neighbour in [&gap.left, &gap.right].into_iter().flatten() {
                    if self.record(neighbour)?.kind == RecordKind::Text {
                        return Err(not_possible(
                            neighbour,
                            "a text is beside the new one; set the value of that one instead",
                        ));
                    }
                }
            }
            NewNode::Comment(text) => check_content(Kind::Comment, text)?,
            NewNode::ProcessingInstruction { target, data } => {
                check_target(&QName::local(target))?;
                check_content(Kind::ProcessingInstruction, data)?;
            }
        }
        Ok(())
    }
}

pub(super) fn not_possible(label: &Label, what: &'static str) -> XmlStoreError {
    XmlStoreError::NotPossible { label: label.clone(), what }
}

/// Refuses children that a document has no place for beside its root element.
pub(super) fn check_child(parent: &Label, kind: RecordKind) -> Result<(), XmlStoreError> {
    match kind {
        RecordKind::Element if *parent == Label::document() => {
            Err(not_possible(parent, "it has a root element already"))
        }
        RecordKind::Text if *parent == Label::document() => {
            Err(not_possible(parent, "text is allowed in elements only"))
        }
        _ => Ok(()),
    }
}

fn check_name(name: &QName) -> Result<(), XmlStoreError> {
    let is_prefix = match &*name.prefix {
        "" => true,
        "xml" => *name.namespace == *XML_NAMESPACE,
        "xmlns" => false,
        prefix => is_name(prefix) && !name.namespace.is_empty(),
    };
    if is_name(&name.local) && is_prefix && *name.namespace != *XMLNS_NAMESPACE {
        Ok(())
    } else {
        Err(XmlStoreError::Name(name.to_string()))
    }
}

/// Refuses what would declare a namespace when it is written.
fn check_attribute_name(element: &Label, name: &QName) -> Result<(), XmlStoreError> {
    if name.prefix.is_empty() && *name.local == *"xmlns" {
        let what = "xmlns declares a namespace and is no attribute; choose another name";
        return Err(not_possible(element, what));
    }
    check_name(name)
}

fn check_target(name: &QName) -> Result<(), XmlStoreError> {
    let is_plain = name.prefix.is_empty() && name.namespace.is_empty();
    if is_plain && !name.local.eq_ignore_ascii_case("xml") {
        check_name(name)
    } else {
        Err(XmlStoreError::Name(name.to_string()))
    }
}

fn check_content(kind: Kind, content: &str) -> Result<(), XmlStoreError> {
    check_length(content.len())?;
    if first_forbidden(content).is_some() {
        return Err(XmlStoreError::Content("XML does not allow one of the characters"));
    }
    let starts_with_space = content.starts_with([' ', '\t', '\r', '\n']);
    let refused = match kind {
        Kind::Text if content.is_empty() => "a text must not be empty",
        Kind::Comment if content.contains("--") || content.ends_with('-') => {
            "a comment must not contain -- or end with -"
        }
        Kind::ProcessingInstruction if content.contains("?>") || starts_with_space => {
            "a processing instruction must not contain ?> or begin with white space"
        }
        Kind::Comment | Kind::ProcessingInstruction if content.contains('\r') => {
            "text of comments and processing instructions cannot carry a carriage return"
        }
        _ => return Ok(()),
    };
    Err(XmlStoreError::Content(refused))
}

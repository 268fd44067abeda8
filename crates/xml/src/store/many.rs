//! One change made to many nodes, such as all that a query has found.
//!
//! Targets are given in document order and each once, as a query returns them. A change of one can
//! take another away, or its label: a deletion takes what is below it and can join texts, and an
//! insertion may label nodes anew. So the order in which targets are changed is not free. What each
//! method does about it is said there.
//!
//! Each change of one node locks what it touches by itself.

use std::cell::RefCell;

use super::record::RecordKind;
use super::update::{NewNode, Place};
use super::{Document, XmlStoreError};
use crate::label::Label;
use crate::name::QName;
use crate::tree::{Kind, Tree};
use crate::xpath::Prefixes;

/// Returns the targets that are not below others.
fn outermost(targets: &[Label]) -> Vec<Label> {
    let mut kept: Vec<Label> = Vec::new();
    for target in targets {
        if kept.last().is_none_or(|last| !last.is_ancestor_of(target)) {
            kept.push(target.clone());
        }
    }
    kept
}

/// Labels that are kept up to date while others get new ones.
struct Followed(Vec<RefCell<Label>>);

impl Followed {
    fn new(targets: &[Label]) -> Followed {
        Followed(targets.iter().cloned().map(RefCell::new).collect())
    }

    fn cells(&self) -> Vec<&RefCell<Label>> {
        self.0.iter().collect()
    }
}

/// Changes of many nodes. Each happens as a whole or, if it returns an error, not at all.
impl Document<'_> {
    /// Inserts the same XML text at a place relative to each target, and returns how many targets
    /// there are; see [`Document::insert_xml`].
    ///
    /// ```
    /// # use std::ops::ControlFlow;
    /// # use tidegate_xml::serialize::XmlWriter;
    /// # use tidegate_xml::store::{DocumentOptions, Place, XmlStore};
    /// # use tidegate_xml::tree::Tree;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let parent = tempfile::tempdir()?;
    /// # let store = XmlStore::open_or_create(parent.path().join("store"))?;
    /// # let text = &b"<l><a/><a/></l>"[..];
    /// # store.load("d", DocumentOptions::default(), text, |_| ControlFlow::Continue(()))?;
    /// let transaction = store.begin();
    /// let document = transaction.document_to_update("d")?;
    /// let list = document.first_child(&document.root()?)?.ok_or("there is a root element")?;
    /// let targets = document.children(&list)?.collect::<Result<Vec<_>, _>>()?;
    /// document.insert_at_each(&targets, Place::After, "<b/>")?;
    /// let text = document.write(XmlWriter::canonical(Vec::new(), true))?;
    /// assert_eq!(text, b"<l><a></a><b></b><a></a><b></b></l>");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Document::insert_xml`].
    pub fn insert_at_each(
        &self,
        targets: &[Label],
        place: impl Fn(Label) -> Place,
        xml: &str,
    ) -> Result<u64, XmlStoreError> {
        self.lock_to_write()?;
        let followed = Followed::new(targets);
        let cells = followed.cells();
        self.atomically(|| {
            // From the last on: of two texts that are joined the right one loses its label, and
            // all to the right of this target has been changed.
            for at in (0..cells.len()).rev() {
                let place = place(cells[at].borrow().clone());
                self.insert_xml_followed(&place, xml.as_bytes(), &cells[..at])?;
            }
            Ok(targets.len() as u64)
        })
    }

    /// Sets the value of each target, and returns how many there are. The value of an element is
    /// one text, which replaces its children; see [`Document::set_value`] for the others. An empty
    /// value of an element leaves it without children, and that of a text deletes the text.
    ///
    /// # Errors
    /// A target is the document, XML does not allow the value, or the store failed.
    pub fn set_value_of_each(&self, targets: &[Label], value: &str) -> Result<u64, XmlStoreError> {
        self.lock_to_write()?;
        let followed = Followed::new(targets);
        let cells = followed.cells();
        self.atomically(|| {
            // From the last on, so that a target below another one is still there.
            for at in (0..cells.len()).rev() {
                let node = cells[at].borrow().clone();
                match self.kind(&node)? {
                    Kind::Document | Kind::Element => {
                        self.element(&node)?;
                        self.lock_subtree(&node)?;
                        self.remove_below(&node, &node.children_range())?;
                        if !value.is_empty() {
                            let (place, text) = (Place::First(node), NewNode::Text(value));
                            self.insert_followed(&place, text, &cells[..at])?;
                        }
                    }
                    Kind::Text if value.is_empty() => self.delete(&node)?,
                    _ => self.set_value(&node, value)?,
                }
            }
            Ok(targets.len() as u64)
        })
    }

    /// Deletes each target with all that is below it, and returns how many targets were not below
    /// others. Then texts that have become neighbours are one.
    ///
    /// # Errors
    /// As [`Document::delete`].
    pub fn delete_each(&self, targets: &[Label]) -> Result<u64, XmlStoreError> {
        self.lock_to_write()?;
        let targets = outermost(targets);
        let mut others = Vec::new();
        self.atomically(|| {
            // Texts first: no text is beside a text, so that joins nothing. All texts that the
            // other deletions join stay.
            for target in &targets {
                if *target != Label::document() && self.record(target)?.kind == RecordKind::Text {
                    self.delete(target)?;
                } else {
                    others.push(target);
                }
            }
            others.iter().try_for_each(|target| self.delete(target))?;
            Ok(targets.len() as u64)
        })
    }

    /// Moves the targets to a place, where they follow one another in their order, and returns how
    /// many there are. A target below another one moves with that one. See [`Document::move_to`].
    ///
    /// # Errors
    /// As [`Document::move_to`]; [`XmlStoreError::NoSuchNode`] if a target is a text that the move
    /// of one before it joins with another text.
    pub fn move_each(&self, targets: &[Label], place: &Place) -> Result<u64, XmlStoreError> {
        self.lock_to_write()?;
        let mut followed = Followed::new(&outermost(targets));
        let count = followed.0.len();
        self.atomically(|| {
            // Between two comments, only texts are joined that follow one another in the targets.
            // Without them, one could be joined with a text at the place that is a target, too.
            let mark = NewNode::Comment("");
            let end = self.insert_followed(place, mark, &followed.cells())?;
            followed.0.push(RefCell::new(end));
            let before_end =
                |cells: &[&RefCell<Label>]| Place::Before(cells[count].borrow().clone());
            let cells = followed.cells();
            let begin = self.insert_followed(&before_end(&cells), mark, &cells)?;
            followed.0.push(RefCell::new(begin));
            let cells = followed.cells();
            for at in 0..count {
                self.move_followed(&cells[at..], &before_end(&cells))?;
            }
            for mark in &followed.0[count..] {
                self.delete(&mark.borrow())?;
            }
            Ok(count as u64)
        })
    }

    /// Gives each target another name, and returns how many there are; see
    /// [`Document::name_at`] and [`Document::rename`].
    ///
    /// # Errors
    /// As these two.
    pub fn rename_each(
        &self,
        targets: &[Label],
        name: &str,
        prefixes: &Prefixes,
    ) -> Result<u64, XmlStoreError> {
        self.lock_to_write()?;
        self.atomically(|| {
            for target in targets {
                let kind = self.kind(target)?;
                let name = match kind {
                    Kind::ProcessingInstruction => QName::local(name),
                    _ => self.name_at(target, name, kind == Kind::Element, prefixes)?,
                };
                self.rename(target, &name)?;
            }
            Ok(targets.len() as u64)
        })
    }

    /// Sets an attribute of each target, and returns how many there are; see
    /// [`Document::name_at`] and [`Document::set_attribute`].
    ///
    /// # Errors
    /// As these two.
    pub fn set_attribute_of_each(
        &self,
        targets: &[Label],
        name: &str,
        prefixes: &Prefixes,
        value: &str,
    ) -> Result<u64, XmlStoreError> {
        self.lock_to_write()?;
        self.atomically(|| {
            for target in targets {
                self.element(target)?;
                let name = self.name_at(target, name, false, prefixes)?;
                self.set_attribute(target, &name, value)?;
            }
            Ok(targets.len() as u64)
        })
    }

    /// Removes an attribute of each target, and returns how many of them had it; see
    /// [`Document::name_at`] and [`Document::remove_attribute`].
    ///
    /// # Errors
    /// As these two.
    pub fn remove_attribute_of_each(
        &self,
        targets: &[Label],
        name: &str,
        prefixes: &Prefixes,
    ) -> Result<u64, XmlStoreError> {
        self.lock_to_write()?;
        self.atomically(|| {
            let mut removed = 0;
            for target in targets {
                self.element(target)?;
                let name = self.name_at(target, name, false, prefixes)?;
                removed += u64::from(self.remove_attribute(target, &name)?);
            }
            Ok(removed)
        })
    }

    /// Returns the name that `prefix:local` or `local` means at a node. A prefix is looked for in
    /// `prefixes` first, then in the scope of the node. The name of an element without prefix is in
    /// the default namespace there, as in text that is inserted; that of an attribute is in no
    /// namespace.
    ///
    /// # Errors
    /// [`XmlStoreError::Prefix`], or the store cannot read.
    pub fn name_at(
        &self,
        node: &Label,
        name: &str,
        is_element: bool,
        prefixes: &Prefixes,
    ) -> Result<QName, XmlStoreError> {
        let (prefix, local) = name.split_once(':').unwrap_or(("", name));
        if prefix.is_empty() && (!is_element || name.contains(':')) {
            // With a colon it is no name, which is said by who uses it.
            return Ok(QName::local(name));
        }
        let mut namespace = prefixes.get(prefix).map(Box::from);
        if namespace.is_none() {
            let mut bindings = self.namespaces_in_scope(node)?.into_iter();
            let binding = bindings.find(|binding| &*binding.prefix == prefix);
            namespace = binding.map(|binding| binding.uri);
        }
        match namespace {
            Some(namespace) => Ok(QName { prefix: prefix.into(), local: local.into(), namespace }),
            None if prefix.is_empty() => Ok(QName::local(local)),
            None => Err(XmlStoreError::Prefix(prefix.to_owned())),
        }
    }
}

//! A cursor that goes from node to node, as programs for the DOM do.

use std::cell::RefCell;

use super::update::{NewNode, Place};
use super::{Document, XmlStoreError};
use crate::label::Label;
use crate::tree::Tree;

/// A current node of a document, from which one goes to the next and beside which nodes are
/// inserted.
///
/// It stays at its node whatever happens around it: only the node's own deletion or move, and
/// other updates that label it anew ([`Document::take_relabelled`]), leave it without a node, which
/// its methods report as [`XmlStoreError::NoSuchNode`]. The cursor's own insertions never do.
///
/// ```
/// # use std::ops::ControlFlow;
/// # use tidegate_xml::name::QName;
/// # use tidegate_xml::serialize::XmlWriter;
/// # use tidegate_xml::store::{DocumentOptions, DomCursor, NewNode, Place, XmlStore};
/// # use tidegate_xml::tree::Tree;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let parent = tempfile::tempdir()?;
/// # let store = XmlStore::open_or_create(parent.path().join("store"))?;
/// # let text = &b"<list><anna/><carl/></list>"[..];
/// # store.load("d", DocumentOptions::default(), text, |_| ControlFlow::Continue(()))?;
/// let transaction = store.begin();
/// let document = transaction.document_to_update("d")?;
/// let mut cursor = DomCursor::new(&document, document.root()?)?;
/// assert!(cursor.go_to_first_child()? && cursor.go_to_first_child()?);
/// cursor.insert(Place::After, NewNode::Element(&QName::local("bert")))?;
/// assert!(cursor.go_to_next_sibling()? && cursor.go_to_next_sibling()?);
/// cursor.delete()?;
/// let text = document.write(XmlWriter::canonical(Vec::new(), true))?;
/// assert_eq!(text, b"<list><anna></anna><bert></bert></list>");
/// # Ok(())
/// # }
/// ```
pub struct DomCursor<'d, 't> {
    document: &'d Document<'t>,
    node: RefCell<Label>,
}

impl<'d, 't> DomCursor<'d, 't> {
    /// Returns a cursor at a node, which may be the document or an attribute.
    ///
    /// # Errors
    /// If there is no such node or the store cannot read.
    pub fn new(document: &'d Document<'t>, node: Label) -> Result<Self, XmlStoreError> {
        document.kind(&node)?;
        Ok(DomCursor { document, node: RefCell::new(node) })
    }

    /// Returns the label of the current node, with which the document's methods are called.
    #[must_use]
    pub fn node(&self) -> Label {
        self.node.borrow().clone()
    }

    /// Goes to a node if there is one. Returns whether it did.
    fn go(
        &mut self,
        to: impl FnOnce(&Document<'t>, &Label) -> Result<Option<Label>, XmlStoreError>,
    ) -> Result<bool, XmlStoreError> {
        self.document.kind(self.node.get_mut())?;
        let Some(next) = to(self.document, self.node.get_mut())? else { return Ok(false) };
        self.node.replace(next);
        Ok(true)
    }

    /// Goes to the parent; from an attribute to its element. Returns `false`, and stays, if there
    /// is none.
    ///
    /// # Errors
    /// If the current node is no more or the store cannot read.
    pub fn go_to_parent(&mut self) -> Result<bool, XmlStoreError> {
        self.go(Tree::parent)
    }

    /// Goes to the first child. Returns `false`, and stays, if there is none.
    ///
    /// # Errors
    /// If the current node is no more or the store cannot read.
    pub fn go_to_first_child(&mut self) -> Result<bool, XmlStoreError> {
        self.go(Tree::first_child)
    }

    /// Goes to the last child. Returns `false`, and stays, if there is none.
    ///
    /// # Errors
    /// If the current node is no more or the store cannot read.
    pub fn go_to_last_child(&mut self) -> Result<bool, XmlStoreError> {
        self.go(Tree::last_child)
    }

    /// Goes to the next sibling. Returns `false`, and stays, if there is none.
    ///
    /// # Errors
    /// If the current node is no more or the store cannot read.
    pub fn go_to_next_sibling(&mut self) -> Result<bool, XmlStoreError> {
        self.go(Tree::next_sibling)
    }

    /// Goes to the previous sibling. Returns `false`, and stays, if there is none.
    ///
    /// # Errors
    /// If the current node is no more or the store cannot read.
    pub fn go_to_previous_sibling(&mut self) -> Result<bool, XmlStoreError> {
        self.go(Tree::previous_sibling)
    }

    /// Inserts a node at a place that is relative to the current node, as in
    /// `cursor.insert(Place::After, …)`, and returns its label. The cursor stays.
    ///
    /// # Errors
    /// As [`Document::insert`].
    pub fn insert(
        &self,
        place: impl FnOnce(Label) -> Place,
        node: NewNode<'_>,
    ) -> Result<Label, XmlStoreError> {
        let place = place(self.node());
        self.document.insert_followed(&place, node, &[&self.node])
    }

    /// Deletes the current node with all that is below it, and goes to its parent. Texts on both
    /// sides of it become one.
    ///
    /// # Errors
    /// As [`Document::delete`]. The cursor stays then.
    pub fn delete(&mut self) -> Result<(), XmlStoreError> {
        let node = self.node();
        self.document.delete(&node)?;
        self.node.replace(Document::parent_of(&node).unwrap_or(Label::document()));
        Ok(())
    }
}

//! Moving and copying subtrees.
//!
//! Names keep their namespaces wherever they go, because a name is stored with its namespace.
//! What a move can lose are bindings of prefixes that are declared above the old place.
//! Contents may mention them (`xsi:type="p:a"`), so they are declared again on the element, as
//! *`XQuery` Update Facility 1.0* does for `copy-namespaces preserve, inherit`. The DOM adds no
//! declarations when a node is moved, only when the document is written. A default namespace of
//! the new place that the old one does not have is undeclared by `xmlns=""`. Other prefixes
//! cannot be undeclared in XML 1.0 and are inherited.

use std::cell::RefCell;

use super::record::{Record, RecordKind};
use super::update::{Gap, NewClasses, Place, check_child, not_possible};
use super::{Document, XmlStoreError};
use crate::label::Label;
use crate::name::QName;
use crate::parse::XMLNS_NAMESPACE;
use crate::tree::{Binding, Kind, Tree};

impl Document<'_> {
    /// Moves a node with all that is below it and returns its new label. Labels of the nodes below
    /// it change, too. A node that is at the place already keeps its label.
    ///
    /// Texts on both sides of the old place become one. A text that comes beside another one is
    /// joined with it: the left one keeps its label, which is returned. If a label would be too
    /// long, nodes around the place get new ones; see [`Document::take_relabelled`]. Attributes
    /// that identify elements still do. Declarations of namespaces that are in scope at the old
    /// place and not at the new one are added to a moved element.
    ///
    /// # Errors
    /// There is no such node or place; the node is the document, the root element or an attribute;
    /// the place is in the node itself; an element or a text would be in the document itself; a
    /// joined text would be too long; a label would be too long ([`XmlStoreError::Label`]); or the
    /// store failed.
    pub fn move_to(&self, node: &Label, place: &Place) -> Result<Label, XmlStoreError> {
        self.move_followed(&[&RefCell::new(node.clone())], place)
    }

    /// Moves the first of some nodes. The labels of the others stay those of their nodes when nodes
    /// get new labels, but not when their texts are joined with others.
    pub(super) fn move_followed(
        &self,
        nodes: &[&RefCell<Label>],
        place: &Place,
    ) -> Result<Label, XmlStoreError> {
        let node = &nodes[0].borrow().clone();
        let _operation = self.begin(|| {
            self.lock_removal(node)?;
            self.lock_place(place, true)
        })?;
        let kind = self.child_kind(node)?;
        if kind == RecordKind::Element && node.parent() == Some(Label::document()) {
            return Err(not_possible(node, "a document keeps its root element where it is"));
        }
        let gap = self.gap(place)?;
        if [&gap.left, &gap.right].into_iter().flatten().any(|neighbour| neighbour == node) {
            return Ok(node.clone());
        }
        if gap.parent == *node || node.is_ancestor_of(&gap.parent) {
            return Err(not_possible(node, "it cannot be moved into itself; copy it instead"));
        }
        check_child(&gap.parent, kind)?;
        let node = nodes[0];
        self.atomically(|| {
            let copy = |gap: &Gap, label: &Label| self.copy_into(gap, &node.borrow(), label);
            let moved = self.with_room(gap, nodes, copy)?;
            self.remove_and_join(&node.borrow())?;
            Ok(moved)
        })
    }

    /// Copies a node with all that is below it to a place, which may be in the node itself, and
    /// returns the label of the copy. Texts and namespaces are as [`Document::move_to`] says.
    /// Attributes that identify elements do so in the copy, too: of several elements with an ID,
    /// [`Tree::element_by_id`] returns the first.
    ///
    /// # Errors
    /// There is no such node or place; the node is the document or an attribute; an element or a
    /// text would be in the document itself; a joined text would be too long; a label would be too
    /// long ([`XmlStoreError::Label`]); or the store failed.
    pub fn copy_to(&self, node: &Label, place: &Place) -> Result<Label, XmlStoreError> {
        let _operation = self.begin(|| {
            self.lock_source(node)?;
            self.lock_place(place, true)
        })?;
        let kind = self.child_kind(node)?;
        let gap = self.gap(place)?;
        check_child(&gap.parent, kind)?;
        let node = RefCell::new(node.clone());
        self.with_room(gap, &[&node], |gap, label| self.copy_into(gap, &node.borrow(), label))
    }

    /// Returns the kind of a node that is in a list of children.
    fn child_kind(&self, node: &Label) -> Result<RecordKind, XmlStoreError> {
        if *node == Label::document() {
            return Err(not_possible(node, "move or copy nodes of the document instead"));
        }
        match self.record(node)?.kind {
            RecordKind::Attribute | RecordKind::Namespace => {
                Err(not_possible(node, "it is in no list of children; set the attribute instead"))
            }
            kind => Ok(kind),
        }
    }

    /// Copies a subtree into a gap, where it gets the label `copy`. Returns the label that it has
    /// after texts were joined.
    fn copy_into(&self, gap: &Gap, node: &Label, copy: &Label) -> Result<Label, XmlStoreError> {
        let parent = Document::parent_of(node).unwrap_or(Label::document());
        let classes = NewClasses::new(self.class_of(&parent)?, self.class_of(&gap.parent)?);
        let lost = self.lost_bindings(node, &gap.parent)?;
        self.copy_nodes(node, copy, classes)?;
        // Only now: it may be in what is copied, with the record that the copy gets.
        self.unstore(&gap.parent)?;
        self.declare(copy, lost)?;
        let mut copies = [copy.clone()];
        self.join_ends(gap, &mut copies)?;
        let [copy] = copies;
        Ok(copy)
    }

    fn copy_nodes(
        &self,
        from: &Label,
        to: &Label,
        mut classes: NewClasses,
    ) -> Result<(), XmlStoreError> {
        let mut scan = self.scan(&from.subtree())?;
        while let Some((label, record)) = scan.step()? {
            // The scan meets a copy that is in the node itself. It is not copied again.
            if label == *to || to.is_ancestor_of(&label) {
                continue;
            }
            let copy = label.moved(from, to, self.stored.rules)?;
            let pcr = classes.of(self, &record)?;
            let record = Record { pcr, ..record };
            self.change_as(scan.is_at_record(), &copy, None, Some(&record))?;
        }
        Ok(())
    }

    /// Returns what has to be declared on an element so that prefixes mean below `parent` what they
    /// mean where it is.
    fn lost_bindings(&self, node: &Label, parent: &Label) -> Result<Vec<Binding>, XmlStoreError> {
        if self.kind(node)? != Kind::Element {
            return Ok(Vec::new());
        }
        let (own, around) = (self.declarations(node)?, self.namespaces_in_scope(parent)?);
        let mut lost = self.namespaces_in_scope(node)?;
        let has_default = |list: &[Binding]| list.iter().any(|binding| binding.prefix.is_empty());
        if has_default(&around) && !has_default(&lost) {
            lost.push(Binding { prefix: "".into(), uri: "".into() });
        }
        let is_own = |binding: &Binding| own.iter().any(|own| own.prefix == binding.prefix);
        lost.retain(|binding| !around.contains(binding) && !is_own(binding));
        Ok(lost)
    }

    /// Adds declarations to an element, behind those that it has.
    fn declare(&self, element: &Label, bindings: Vec<Binding>) -> Result<(), XmlStoreError> {
        if bindings.is_empty() {
            return Ok(());
        }
        let pcr = self.element(element)?.pcr;
        let mut last = None;
        let mut scan = self.scan(&element.namespaces_range())?;
        while let Some((label, _)) = scan.step()? {
            last = Some(label);
        }
        let siblings = element.namespaces(self.stored.rules);
        for Binding { prefix, uri } in bindings {
            let kind = RecordKind::Namespace;
            let record = self.named(kind, pcr, &declaration(&prefix))?;
            let label = siblings.at(last.as_ref(), None)?;
            self.change(&label, None, Some(&Record { content: uri.into(), ..record }))?;
            last = Some(label);
        }
        self.unstore(element)
    }
}

/// Returns the name of the declaration of a prefix, or of the default namespace.
pub(super) fn declaration(prefix: &str) -> QName {
    let (prefix, local) = if prefix.is_empty() { ("", "xmlns") } else { ("xmlns", prefix) };
    QName { prefix: prefix.into(), local: local.into(), namespace: XMLNS_NAMESPACE.into() }
}

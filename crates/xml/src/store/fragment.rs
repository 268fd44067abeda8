//! Inserting XML text into a document.

use std::cell::RefCell;
use std::io::BufRead;

use super::load::{Builder, Made};
use super::update::{Gap, Place, check_child, not_possible};
use super::{Document, XmlStoreError};
use crate::label::Label;
use crate::parse::XmlReader;
use crate::tree::Tree;

impl Document<'_> {
    /// Inserts XML text and returns the labels of the nodes that are at the place now, without
    /// those below them. The text is what may stand between the tags of an element (XML 1.0,
    /// production `content`): any number of nodes, with the namespaces in scope at the place. It
    /// has no document type, so `xml:id` is its only attribute that identifies an element.
    ///
    /// The first and the last node are joined with the texts beside them if they are texts, too.
    /// Of two joined texts the left one keeps its label, and the label of the right one is no
    /// node's any more. The text is read once, and only one node of it is in memory. Empty text
    /// changes nothing.
    ///
    /// ```
    /// # use std::ops::ControlFlow;
    /// # use tidegate_xml::serialize::XmlWriter;
    /// # use tidegate_xml::store::{DocumentOptions, Place, XmlStore};
    /// # use tidegate_xml::tree::Tree;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let parent = tempfile::tempdir()?;
    /// # let store = XmlStore::open_or_create(parent.path().join("store"))?;
    /// # let text = &b"<p>one </p>"[..];
    /// # store.load("d", DocumentOptions::default(), text, |_| ControlFlow::Continue(()))?;
    /// let transaction = store.begin();
    /// let document = transaction.document_to_update("d")?;
    /// let p = document.first_child(&document.root()?)?.ok_or("there is a root element")?;
    /// let inserted = document.insert_xml(&Place::Last(p), "or <b>two</b>".as_bytes())?;
    /// assert_eq!(inserted.len(), 2);
    /// let text = document.write(XmlWriter::canonical(Vec::new(), true))?;
    /// assert_eq!(text, b"<p>one or <b>two</b></p>");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// There is no such place; [`XmlStoreError::Parse`], with line and column in the text; an
    /// element or a text would be in the document itself; a joined text would be too long; a label
    /// would be too long ([`XmlStoreError::Label`]); or the store failed. Nodes around the place
    /// get new labels to make room for the first node ([`Document::take_relabelled`]), but not for
    /// what is below it, because the text is read once.
    pub fn insert_xml(
        &self,
        place: &Place,
        text: impl BufRead,
    ) -> Result<Vec<Label>, XmlStoreError> {
        self.insert_xml_followed(place, text, &[])
    }

    /// Inserts XML text. Labels in `followed` stay those of their nodes when nodes get new labels,
    /// but not when their texts are joined with others.
    pub(super) fn insert_xml_followed(
        &self,
        place: &Place,
        text: impl BufRead,
        followed: &[&RefCell<Label>],
    ) -> Result<Vec<Label>, XmlStoreError> {
        let _operation = self.begin(|| self.lock_place(place, true))?;
        let gap = self.gap(place)?;
        self.atomically(|| {
            let gap = self.with_room(gap, followed, |gap, _| Ok(gap.clone()))?;
            let mut inserted = self.insert_events(&gap, text)?;
            self.join_ends(&gap, &mut inserted)?;
            Ok(inserted)
        })
    }

    /// Replaces all children of an element by XML text, and returns the labels of the new ones;
    /// see [`Document::insert_xml`]. Attributes and declarations stay.
    ///
    /// # Errors
    /// There is no such element, or as [`Document::insert_xml`].
    pub fn set_content(
        &self,
        element: &Label,
        text: impl BufRead,
    ) -> Result<Vec<Label>, XmlStoreError> {
        let _operation = self.begin(|| self.lock_subtree(element))?;
        if *element == Label::document() {
            return Err(not_possible(element, "set the content of its root element instead"));
        }
        self.element(element)?;
        self.atomically(|| {
            self.remove_below(element, &element.children_range())?;
            self.insert_xml(&Place::First(element.clone()), text)
        })
    }

    /// Inserts the nodes of a text and returns the labels of those that are not below others.
    fn insert_events(&self, gap: &Gap, text: impl BufRead) -> Result<Vec<Label>, XmlStoreError> {
        let parent = (&gap.parent, self.class_of(&gap.parent)?);
        let neighbours = (gap.left.as_ref(), gap.right.as_ref());
        let named = Box::new(|kind, above, name: &_| self.named(kind, above, name));
        let mut builder = Builder::fragment(self.store, &self.stored, parent, neighbours, named);
        let mut reader = XmlReader::fragment(text, &self.namespaces_in_scope(&gap.parent)?);
        let mut inserted = Vec::new();
        while let Some(event) = reader.next_event()? {
            builder.event(event)?;
            for Made { label, record, is_inner } in builder.made() {
                if label.parent().as_ref() == Some(&gap.parent) {
                    check_child(&gap.parent, record.kind)?;
                    self.lock_new(&label)?;
                    inserted.push(label.clone());
                }
                let has_record = self.stored.inner_nodes.has_record(is_inner);
                self.change_as(has_record, &label, None, Some(&record))?;
            }
        }
        if !inserted.is_empty() {
            self.unstore(&gap.parent)?;
        }
        Ok(inserted)
    }
}

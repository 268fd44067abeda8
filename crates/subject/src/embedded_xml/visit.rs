//! What transactions have in common: steps to children, entry, lookups, new elements.

use std::cell::Cell;
use std::sync::Arc;

use tidegate_workload::xmark::{AuctionTransaction, ChildAccess, EntryList, Quantile};
use tidegate_xml::label::Label;
use tidegate_xml::name::QName;
use tidegate_xml::store::{Children, Document, NewNode, Place, XmlStoreError};
use tidegate_xml::tree::{Below, Comparand, PathTest, Pattern, Relation, Tree};

use super::{AuctionSite, generated};

/// How often a transaction draws its entry again before it gives up.
const DRAWS: usize = 100;

/// An attempt of a transaction on an open document.
pub(super) struct Visit<'d, 't> {
    pub(super) site: &'d AuctionSite,
    pub(super) document: &'d Document<'t>,
    pub(super) transaction: &'d AuctionTransaction,
    /// Bidders and mails that it has removed.
    pub(super) removed: Cell<u64>,
}

/// The children of a node one by one, by the way of the variant.
pub(super) enum ChildSteps<'d, 't> {
    /// From the node to its first child, and from child to sibling.
    Navigation(&'d Document<'t>, Next),
    /// As a stream.
    Stream(Children<'d, 't>),
}

/// From where a navigation goes on.
pub(super) enum Next {
    FirstOf(Label),
    SiblingOf(Label),
    End,
}

impl Iterator for ChildSteps<'_, '_> {
    type Item = Result<Label, XmlStoreError>;

    fn next(&mut self) -> Option<Result<Label, XmlStoreError>> {
        let (document, next) = match self {
            ChildSteps::Stream(children) => return children.next(),
            ChildSteps::Navigation(document, next) => (document, next),
        };
        let found = match next {
            Next::FirstOf(parent) => document.first_child(parent),
            Next::SiblingOf(child) => document.next_sibling(child),
            Next::End => Ok(None),
        };
        *next = match &found {
            Ok(Some(child)) => Next::SiblingOf(child.clone()),
            Ok(None) | Err(_) => Next::End,
        };
        found.transpose()
    }
}

/// The error of a document that has something else at a place than the generator puts there.
pub(super) fn not_generated(label: &Label) -> XmlStoreError {
    let what = "the document is no auction site of the generator of XMark; load that";
    XmlStoreError::NotPossible { label: label.clone(), what }
}

/// Returns the value of an element's attribute.
pub(super) fn attribute_of(
    document: &Document<'_>,
    element: &Label,
    name: &str,
) -> Result<String, XmlStoreError> {
    let found = document.attribute(element, &QName::local(name))?;
    document.content(&found.ok_or_else(|| not_generated(element))?)
}

/// Returns an element's identifier.
pub(super) fn id_of(document: &Document<'_>, element: &Label) -> Result<String, XmlStoreError> {
    attribute_of(document, element, "id")
}

/// How transactions read the document.
impl<'d, 't> Visit<'d, 't> {
    pub(super) fn children(&self, node: &Label) -> Result<ChildSteps<'d, 't>, XmlStoreError> {
        Ok(match self.transaction.access {
            ChildAccess::Stream => ChildSteps::Stream(self.document.children(node)?),
            ChildAccess::Navigation => {
                ChildSteps::Navigation(self.document, Next::FirstOf(node.clone()))
            }
        })
    }

    /// Returns the name of an element; `None` for other nodes.
    pub(super) fn name(&self, node: &Label) -> Result<Option<Arc<QName>>, XmlStoreError> {
        self.document.node_name(node)
    }

    pub(super) fn is_named(&self, node: &Label, name: &str) -> Result<bool, XmlStoreError> {
        Ok(self.name(node)?.is_some_and(|own| *own.local == *name))
    }

    /// Goes through the children to the first one of a name.
    pub(super) fn child(&self, node: &Label, name: &str) -> Result<Label, XmlStoreError> {
        for child in self.children(node)? {
            let child = child?;
            if self.is_named(&child, name)? {
                return Ok(child);
            }
        }
        Err(not_generated(node))
    }

    /// Returns the only text of an element, if it has one.
    pub(super) fn text_of(&self, element: &Label) -> Result<Option<Label>, XmlStoreError> {
        self.children(element)?.next().transpose()
    }

    /// Reads an element that has nothing but text.
    pub(super) fn read(&self, element: &Label) -> Result<String, XmlStoreError> {
        match self.text_of(element)? {
            Some(text) => self.document.content(&text),
            None => Ok(String::new()),
        }
    }

    pub(super) fn attribute(&self, element: &Label, name: &str) -> Result<String, XmlStoreError> {
        attribute_of(self.document, element, name)
    }

    /// Returns the element of a name that has an identifier, by the CAS index.
    pub(super) fn by_id(&self, element: &str, id: &str) -> Result<Label, XmlStoreError> {
        let (element, attribute) = (QName::local(element), QName::local("id"));
        let pattern = Pattern {
            path: vec![
                (Below::Anywhere, PathTest::Element(Some(&element))),
                (Below::Directly, PathTest::Attribute(Some(&attribute))),
            ],
            content: Some((Relation::Equal, Comparand::Text(id))),
        };
        let found = self.document.matching(&pattern)?;
        let no_index = || XmlStoreError::NoSuchIndex(generated::ID_INDEX.to_owned());
        let found = found.ok_or_else(no_index)?.next().transpose()?;
        let dangling = XmlStoreError::Unsound("a reference in the auction site leads nowhere");
        found.and_then(|attribute| attribute.owner()).ok_or(dangling)
    }

    /// Enters at a random node: draws, claims what it will need if it is preventive, and looks
    /// whether the node is there; if it is gone, draws again.
    pub(super) fn enter(&self) -> Result<Label, XmlStoreError> {
        let list = self.transaction.entry_list();
        let list: EntryList = list.ok_or_else(|| not_generated(&Label::root()))?;
        let (labels, name) = self.site.entries(list);
        for quantile in self.transaction.entry.quantiles().take(DRAWS) {
            let number = quantile.index(labels.len());
            let Some(label) = labels.get(number) else { break };
            self.claim_entry((list, number), label)?;
            match self.is_named(label, name) {
                Ok(true) => return Ok(label.clone()),
                Ok(false) | Err(XmlStoreError::NoSuchNode(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(not_generated(&Label::root()))
    }
}

/// How transactions add elements to the document.
impl Visit<'_, '_> {
    pub(super) fn insert(&self, place: &Place, name: &str) -> Result<Label, XmlStoreError> {
        self.document.insert(place, NewNode::Element(&QName::local(name)))
    }

    pub(super) fn append(&self, parent: &Label, name: &str) -> Result<Label, XmlStoreError> {
        self.insert(&Place::Last(parent.clone()), name)
    }

    pub(super) fn set_attribute(
        &self,
        element: &Label,
        name: &str,
        value: &str,
    ) -> Result<(), XmlStoreError> {
        self.document.set_attribute(element, &QName::local(name), value).map(|_| ())
    }

    /// Appends an element with nothing but text.
    pub(super) fn append_leaf(
        &self,
        parent: &Label,
        name: &str,
        text: &str,
    ) -> Result<(), XmlStoreError> {
        let leaf = self.append(parent, name)?;
        self.write(&leaf, text)
    }

    /// Puts text into an element that has none.
    pub(super) fn write(&self, element: &Label, text: &str) -> Result<(), XmlStoreError> {
        let place = Place::Last(element.clone());
        self.document.insert(&place, NewNode::Text(text)).map(|_| ())
    }

    /// Appends an empty element that refers to another by an attribute.
    pub(super) fn append_reference(
        &self,
        parent: &Label,
        (name, attribute): (&str, &str),
        to: &str,
    ) -> Result<(), XmlStoreError> {
        let reference = self.append(parent, name)?;
        self.set_attribute(&reference, attribute, to)
    }

    /// Returns whether a list of so many bidders or mails loses its oldest when one is added.
    pub(super) fn is_full(&self, count: usize) -> bool {
        self.transaction.keep.is_some_and(|keep| count >= keep.get() as usize)
    }

    /// Removes the oldest bidder or mail of a list.
    pub(super) fn remove_oldest(&self, oldest: &Label) -> Result<(), XmlStoreError> {
        self.document.delete(oldest)?;
        self.removed.set(self.removed.get() + 1);
        Ok(())
    }

    /// Looks at the end of a list, as a program does that appends to it, and appends an element.
    pub(super) fn append_behind_last(
        &self,
        list: &Label,
        name: &str,
    ) -> Result<Label, XmlStoreError> {
        self.document.last_child(list)?;
        self.append(list, name)
    }

    pub(super) fn person(&self, person: Quantile) -> String {
        format!("person{}", person.index(self.site.generated_persons))
    }

    pub(super) fn category(&self, category: Quantile) -> String {
        format!("category{}", category.index(self.site.categories))
    }
}

//! Documents without records of inner nodes.
//!
//! A document with [`InnerNodes::Virtual`] has records of its leaves only: texts, comments,
//! processing instructions, attributes, namespace declarations, and elements that have nothing
//! below them. Any other element, an *inner node*, is rebuilt from a record below it: the label of
//! that record is the inner node's label with further divisions, and the classes above the
//! record's class are those of the elements above the record, one a level. The class has the name.
//!
//! The text in `<site><people><person/>x</people></site>` has the label 1.3.5 and the class
//! `/site/people`. So 1.3 is an element `people` and 1 an element `site`. Beside the text only
//! `person` has a record, under 1.3.3.
//!
//! All other modules read and write nodes, whether they have records or not. They reach what is
//! here from these places:
//!
//! - [`Document::find`] rebuilds an inner node from the first record below it.
//! - [`Scan`](super::navigate::Scan) returns inner nodes in their place in document order.
//! - [`Document::unstore`] removes the record of an element that something was inserted below, and
//!   [`Document::remove_below`] writes that of an element that has nothing below it any more.
//! - [`InnerNodes::has_record`] tells a load which elements have records.
//!
//! Invariants:
//! - Between two operations an element has a record if and only if nothing is below it.
//! - The new record is written before the old one is removed: that of an element before its last
//!   leaf goes, and a leaf before the record of its element goes. So a reader that does not wait
//!   for the writer finds the element at any time; see `docs/xml.md` on locks.
//! - All records below an element have classes below its class. A rename writes them anew.

use std::ops::Bound;

use tidegate_engine::Direction;

use super::navigate::malformed;
use super::paths::{Paths, Pcr};
use super::record::{Record, RecordKind};
use super::{Document, XmlStoreError};
use crate::label::{Ancestors, Label, LabelRange};

/// Which elements of a document have records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum InnerNodes {
    /// All elements.
    #[default]
    Stored,
    /// Only elements that have nothing below them, neither attributes nor namespace declarations
    /// nor children. The others are rebuilt from the labels and path classes of the nodes below
    /// them. The document takes less space, and reading an inner node takes longer.
    Virtual,
}

impl InnerNodes {
    /// Returns the number that stands for the option in the catalog.
    pub(super) fn code(self) -> u32 {
        match self {
            InnerNodes::Stored => 0,
            InnerNodes::Virtual => 1,
        }
    }

    pub(super) fn from_code(code: u32) -> Option<InnerNodes> {
        [InnerNodes::Stored, InnerNodes::Virtual].into_iter().find(|option| option.code() == code)
    }

    /// Returns whether a node has a record. `is_inner` says whether something is below it.
    pub(super) fn has_record(self, is_inner: bool) -> bool {
        !is_inner || self == InnerNodes::Stored
    }
}

/// The elements above a node, from its parent up to the root element, with the records that they
/// would have.
pub(super) struct ElementsAbove<'a> {
    paths: &'a Paths,
    labels: Ancestors<'a>,
    pcr: Pcr,
}

/// Returns the elements above a node by its label and its class.
pub(super) fn elements_above<'a>(
    paths: &'a Paths,
    label: &'a Label,
    record: &Record,
) -> Result<ElementsAbove<'a>, XmlStoreError> {
    let mut labels = label.ancestors();
    if matches!(record.kind, RecordKind::Attribute | RecordKind::Namespace) {
        // Their parent by label is the root of the attributes or declarations.
        labels.next();
    }
    let pcr = if record.kind.has_class() {
        paths.class(record.pcr).ok_or_else(unfit)?.parent
    } else {
        record.pcr
    };
    Ok(ElementsAbove { paths, labels, pcr })
}

impl Iterator for ElementsAbove<'_> {
    type Item = Result<(Label, Record), XmlStoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let label = self.labels.next().filter(|label| *label != Label::document())?;
        let class = self.paths.class(self.pcr).filter(|class| class.kind == RecordKind::Element);
        let Some(class) = class else { return Some(Err(unfit())) };
        let record = Record {
            kind: RecordKind::Element,
            is_id: false,
            name: Some(class.name),
            pcr: self.pcr,
            content: String::new(),
        };
        self.pcr = class.parent;
        Some(Ok((label, record)))
    }
}

fn unfit() -> XmlStoreError {
    XmlStoreError::Unsound("a node's path class does not fit its label")
}

/// What a scan of a document knows to return inner nodes, each in front of the first record below
/// it.
pub(super) struct InnerNodesOfScan {
    /// What the scan has passed: the last record's label, a label whose subtree was passed over, or
    /// at the beginning the start of the range.
    passed: Vec<u8>,
    /// Whether a node with the label `passed` is still to come: only at the beginning.
    is_included: bool,
    /// The record that the scan has come to, while inner nodes above it are to be returned.
    record: Option<(Label, Record)>,
    /// These inner nodes; the next is the last.
    above: Vec<(Label, Record)>,
}

impl InnerNodesOfScan {
    pub(super) fn new(start: Bound<&[u8]>) -> InnerNodesOfScan {
        let (passed, is_included) = match start {
            Bound::Included(key) => (key.to_vec(), true),
            Bound::Excluded(key) => (key.to_vec(), false),
            Bound::Unbounded => (Vec::new(), false),
        };
        InnerNodesOfScan { passed, is_included, record: None, above: Vec::new() }
    }

    /// Goes on behind the subtree of a label.
    pub(super) fn pass_over(&mut self, label: &Label) {
        self.above.clear();
        self.record = None;
        self.pass(label);
    }

    fn pass(&mut self, label: &Label) {
        self.passed.clear();
        self.passed.extend_from_slice(label.as_bytes());
        self.is_included = false;
    }

    /// Returns the next node up to the record that the scan has come to, if there is one.
    pub(super) fn next(&mut self) -> Option<(Label, Record)> {
        self.above.pop().or_else(|| self.record.take())
    }

    /// Returns whether the node returned last has a record.
    pub(super) fn is_at_record(&self) -> bool {
        self.record.is_none()
    }

    /// Takes the next record of the scan and returns the first node to be returned for it: the
    /// record itself or the highest inner node above it that was not returned.
    pub(super) fn enter(
        &mut self,
        paths: &Paths,
        (label, record): (Label, Record),
    ) -> Result<(Label, Record), XmlStoreError> {
        let bytes = label.as_bytes();
        let shared = self.passed.iter().zip(bytes).take_while(|(a, b)| a == b).count();
        // An ancestor of the record is behind what was passed if it is no prefix of that.
        let is_start = self.is_included && shared == self.passed.len();
        let returned = shared.saturating_sub(usize::from(is_start));
        let mut all = std::mem::take(&mut self.above);
        for element in elements_above(paths, &label, &record)? {
            let element = element?;
            if element.0.as_bytes().len() <= returned {
                break;
            }
            all.push(element);
        }
        self.above = all;
        self.pass(&label);
        match self.above.pop() {
            None => Ok((label, record)),
            Some(first) => {
                self.record = Some((label, record));
                Ok(first)
            }
        }
    }
}

impl Document<'_> {
    pub(super) fn has_virtual_nodes(&self) -> bool {
        !self.stored.inner_nodes.has_record(true)
    }

    /// Returns what a scan that begins at a key needs to return inner nodes; `None` if all nodes
    /// have records.
    pub(super) fn inner_nodes_from(&self, start: Bound<&[u8]>) -> Option<InnerNodesOfScan> {
        self.has_virtual_nodes().then(|| InnerNodesOfScan::new(start))
    }

    /// Returns a node that has a record, and in front of it the inner nodes without records between
    /// `above`, which is above it, and the node.
    pub(super) fn nodes_below(
        &self,
        above: &Label,
        label: &Label,
        record: &Record,
    ) -> Result<Vec<(Label, Record)>, XmlStoreError> {
        let mut nodes = vec![(label.clone(), record.clone())];
        if self.has_virtual_nodes() {
            for element in elements_above(&self.stored.paths, label, record)? {
                let element = element?;
                if !above.is_ancestor_of(&element.0) {
                    break;
                }
                nodes.push(element);
            }
        }
        nodes.reverse();
        Ok(nodes)
    }

    /// Returns the record of a node; of an inner node what it would be.
    pub(super) fn find_or_rebuild(&self, label: &Label) -> Result<Option<Record>, XmlStoreError> {
        let read = |key: &[u8], value: &[u8]| {
            let is_found = key.starts_with(label.as_bytes());
            is_found.then(|| (Label::from_bytes(key), Record::decode(value)))
        };
        let mut transaction = self.transaction.borrow_mut();
        let found = transaction.ceiling_with(&self.stored.tree, label.as_bytes(), read)?;
        let Some((first, record)) = found.flatten() else { return Ok(None) };
        let (first, record) = (first?, record.map_err(malformed)?);
        if first == *label {
            return Ok(Some(record));
        }
        for element in elements_above(&self.stored.paths, &first, &record)? {
            let (above, record) = element?;
            if above == *label {
                return Ok(Some(record));
            }
        }
        // It is the root of attributes or declarations, or the document.
        Ok(None)
    }

    /// Removes the record of an element or the document that something was inserted below.
    pub(super) fn unstore(&self, parent: &Label) -> Result<(), XmlStoreError> {
        if self.has_virtual_nodes() && *parent != Label::document() {
            self.transaction.borrow_mut().remove(&self.stored.tree, parent.as_bytes())?;
        }
        Ok(())
    }

    /// Removes all nodes of a range of labels below an element or the document, which gets a record
    /// if nothing else is below it.
    pub(super) fn remove_below(
        &self,
        parent: &Label,
        labels: &LabelRange,
    ) -> Result<(), XmlStoreError> {
        if self.has_virtual_nodes()
            && *parent != Label::document()
            && self.is_all_below(parent, labels)?
        {
            let record = self.record(parent)?.encode();
            self.transaction.borrow_mut().put(&self.stored.tree, parent.as_bytes(), &record)?;
        }
        let mut scan = self.scan(labels)?;
        while let Some((label, record)) = scan.step()? {
            self.change_as(scan.is_at_record(), &label, Some(&record), None)?;
        }
        Ok(())
    }

    /// Returns whether all that is below an element is in a range of labels.
    fn is_all_below(&self, parent: &Label, labels: &LabelRange) -> Result<bool, XmlStoreError> {
        let before = (Bound::Excluded(parent.as_bytes()), Bound::Excluded(labels.start()));
        if self.end_of(before, Direction::Down)?.is_some() {
            return Ok(false);
        }
        let all = parent.subtree();
        let low = labels.end().map_or(Bound::Unbounded, Bound::Included);
        let high = all.end().map_or(Bound::Unbounded, Bound::Excluded);
        Ok(self.end_of((low, high), Direction::Up)?.is_none())
    }
}

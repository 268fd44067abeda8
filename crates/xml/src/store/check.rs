//! Whether a stored document is sound: every rule that updates have to keep.

use std::collections::HashSet;
use std::sync::Arc;

use super::locks::Touch;
use super::paths::{PathClass, Pcr};
use super::record::{Record, RecordKind};
use super::{Document, XmlStoreError};
use crate::label::{Label, LabelRole};
use crate::name::QName;

/// Most problems that a check returns.
pub(super) const PROBLEMS_MAX: usize = 100;

/// Something of a stored document that contradicts the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The node; the last one that could be read if the key is no label.
    pub label: Label,
    /// The name of the index that contradicts the document; `None` if the document itself is not
    /// sound.
    pub index: Option<String>,
    /// What is wrong.
    pub what: &'static str,
}

/// An element above the node being checked, or the document.
struct Above {
    label: Label,
    pcr: Pcr,
    /// Whether it has a record, which an inner node must not have in this document.
    is_surplus: bool,
    /// Names of its attributes and declarations so far.
    attributes: HashSet<(RecordKind, Arc<QName>)>,
    /// Whether the last child was a text.
    after_text: bool,
    roots: u32,
}

impl Above {
    fn new(label: Label, pcr: Pcr, is_surplus: bool) -> Above {
        let attributes = HashSet::new();
        Above { label, pcr, is_surplus, attributes, after_text: false, roots: 0 }
    }
}

impl Document<'_> {
    /// Reads the whole document and returns what is wrong with it, at most 100 problems: keys that
    /// are no labels, records that cannot be read, nodes without a parent or in a place that is not
    /// for their kind, unknown names and path classes, a path class that does not follow from the
    /// parent's, and a record of an inner node if inner nodes have none. If nothing is, compares
    /// each index with the document: entries that are missing, wrong, or of no node.
    ///
    /// # Errors
    /// If the store cannot read.
    pub fn check(&self) -> Result<Vec<Problem>, XmlStoreError> {
        self.touch(Touch::Subtree(&Label::document()))?;
        let mut problems = Vec::new();
        let mut open = vec![Above::new(Label::document(), Pcr::DOCUMENT, false)];
        let mut last = Label::document();
        let mut scan = self.scan(&Label::document().children_range())?;
        while let Some((key, value)) = scan.step_raw()? {
            let mut report = |label: &Label, what| {
                if problems.len() < PROBLEMS_MAX {
                    problems.push(Problem { label: label.clone(), index: None, what });
                }
            };
            let Ok(label) = Label::from_bytes(&key) else {
                report(&last, "the next key is no label");
                continue;
            };
            while open.len() > 1 && !open[open.len() - 1].label.is_ancestor_of(&label) {
                open.pop();
            }
            last.clone_from(&label);
            let Ok(record) = Record::decode(&value) else {
                report(&label, "the record cannot be read");
                continue;
            };
            let nodes = open.last().map(|above| self.nodes_below(&above.label, &label, &record));
            let Some(Ok(nodes)) = nodes else {
                report(&label, "its path class does not fit its label");
                continue;
            };
            for (node, record) in nodes {
                if let Some(above) = open.last_mut() {
                    for what in self.check_node(above, &node, &record) {
                        report(&node, what);
                    }
                }
                if record.kind == RecordKind::Element {
                    let is_surplus = node == label && !self.stored.inner_nodes.has_record(true);
                    open.push(Above::new(node, record.pcr, is_surplus));
                }
            }
        }
        if open.first().is_some_and(|document| document.roots != 1) {
            let (label, what) = (Label::document(), "it has not one root element");
            problems.push(Problem { label, index: None, what });
        }
        if problems.is_empty() {
            self.check_indexes(&mut problems)?;
        }
        Ok(problems)
    }

    /// Returns what is wrong with a node whose nearest stored ancestor is `above`.
    fn check_node(&self, above: &mut Above, label: &Label, record: &Record) -> Vec<&'static str> {
        let is_text = record.kind == RecordKind::Text;
        let is_element = record.kind == RecordKind::Element;
        let in_document = above.label == Label::document();
        let role = match record.kind {
            RecordKind::Attribute => LabelRole::Attribute,
            RecordKind::Namespace => LabelRole::Namespace,
            _ => LabelRole::Child,
        };
        let class = self.stored.paths.class(record.pcr);
        let name = record.name;
        let expected = name.map(|name| PathClass { parent: above.pcr, name, kind: record.kind });
        let is_attribute = role != LabelRole::Child;
        let known = name.and_then(|name| self.store.vocabulary.name(name));
        let is_unknown = name.is_some() && known.is_none();
        let is_second = known
            .filter(|_| is_attribute)
            .is_some_and(|name| !above.attributes.insert((record.kind, name)));
        let has_class = record.kind.has_class();
        let rules = [
            (Document::parent_of(label).as_ref() != Some(&above.label), "its parent is missing"),
            (label.role() != role, "its label is not for its kind"),
            (has_class && (class.is_none() || class != expected), "its path class is wrong"),
            (!has_class && record.pcr != above.pcr, "its path class is not its parent's"),
            (is_unknown, "its name is not in the vocabulary"),
            (is_second, "its element has two attributes of that name"),
            (above.is_surplus, "its element has a record, too"),
            (is_text && record.content.is_empty(), "it is a text without content"),
            (is_text && above.after_text, "it is a text behind another text"),
            (is_text && in_document, "it is a text outside the root element"),
            (is_attribute && in_document, "it is an attribute of the document"),
        ];
        if !is_attribute {
            above.after_text = is_text;
            above.roots += u32::from(is_element);
        }
        rules.into_iter().filter_map(|(is_broken, what)| is_broken.then_some(what)).collect()
    }
}

//! Figures of a document: its nodes, its labels, its tree and its indexes.

use tidegate_engine::TreeSize;

use super::index::IndexDefinition;
use super::locks::Touch;
use super::record::RecordKind;
use super::{Document, InnerNodes, XmlStoreError};
use crate::label::{Label, Level};

/// Numbers of nodes by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// Number of elements.
    pub elements: u64,
    /// Attributes, without declarations of namespaces.
    pub attributes: u64,
    /// Number of texts.
    pub texts: u64,
    /// Number of comments.
    pub comments: u64,
    /// Processing instructions.
    pub processing_instructions: u64,
    /// Declarations of namespaces, which are no nodes of the data model and have records.
    pub declarations: u64,
}

/// Figures of a document, as [`Document::statistics`] finds them.
#[derive(Debug, Clone, PartialEq)]
pub struct DocumentStatistics {
    /// Numbers of nodes by kind.
    pub nodes: NodeCounts,
    /// Which elements have records in the tree.
    pub inner_nodes: InnerNodes,
    /// Number of elements around the deepest element, with itself; the root element is at 1.
    pub depth: u32,
    /// Bytes of contents: texts, attribute values, comments, instructions and namespaces.
    pub content_bytes: u64,
    /// Bytes of the labels of all nodes, before the tree compresses their common prefixes.
    pub label_bytes: u64,
    /// The longest label in bytes.
    pub label_max: usize,
    /// The longest label that the document allows, in bytes.
    pub label_limit: usize,
    /// Distinct paths of names that nodes have or have had; see [`Document::path_classes`].
    pub path_classes: usize,
    /// The size of the document's tree, without indexes.
    pub tree: TreeSize,
    /// The indexes, in the order in which they were made.
    pub indexes: Vec<IndexStatistics>,
}

/// Figures of an index of a document.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexStatistics {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub definition: IndexDefinition,
    /// Whether it answers queries: it has been built as a whole.
    pub is_ready: bool,
    /// The size of its tree, with the number of its entries.
    pub tree: TreeSize,
}

impl Document<'_> {
    /// Returns figures of the document and its indexes. It reads all of them once.
    ///
    /// # Errors
    /// If the store cannot read.
    pub fn statistics(&self) -> Result<DocumentStatistics, XmlStoreError> {
        let mut statistics = DocumentStatistics {
            nodes: NodeCounts::default(),
            inner_nodes: self.stored.inner_nodes,
            depth: 0,
            content_bytes: 0,
            label_bytes: 0,
            label_max: 0,
            label_limit: self.stored.rules.max_bytes(),
            path_classes: self.path_classes(),
            tree: self.stored.tree.size()?,
            indexes: Vec::new(),
        };
        self.touch(Touch::Subtree(&Label::document()))?;
        let mut scan = self.scan(&Label::document().children_range())?;
        while let Some((label, record)) = scan.step()? {
            statistics.count(&label, record.kind, record.content.len());
        }
        statistics.indexes = self.stored.indexes.statistics()?;
        Ok(statistics)
    }
}

impl DocumentStatistics {
    fn count(&mut self, label: &Label, kind: RecordKind, content_len: usize) {
        let nodes = &mut self.nodes;
        *match kind {
            RecordKind::Element => &mut nodes.elements,
            RecordKind::Attribute => &mut nodes.attributes,
            RecordKind::Text => &mut nodes.texts,
            RecordKind::Comment => &mut nodes.comments,
            RecordKind::ProcessingInstruction => &mut nodes.processing_instructions,
            RecordKind::Namespace => &mut nodes.declarations,
        } += 1;
        if let (RecordKind::Element, Level::Node(level)) = (kind, label.level()) {
            self.depth = self.depth.max(level + 1);
        }
        self.content_bytes += content_len as u64;
        self.label_bytes += label.as_bytes().len() as u64;
        self.label_max = self.label_max.max(label.as_bytes().len());
    }
}

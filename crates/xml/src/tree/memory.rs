//! A tree in memory: an array of nodes in document order.
//!
//! It is the oracle of the store's tests, so it is simple rather than fast: a node's index is its
//! place in document order, and almost every method of [`Tree`] keeps its default.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::convert::Infallible;

use crate::name::QName;
use crate::tree::{Binding, Kind, Tree, XML_NAMESPACE};

/// A node of a [`MemoryTree`]: its place in document order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIndex(usize);

/// A tree in memory; made by a [`Builder`].
#[derive(Debug, Clone)]
pub struct MemoryTree {
    nodes: Vec<Entry>,
    ids: HashMap<String, NodeIndex>,
}

#[derive(Debug, Clone)]
struct Entry {
    kind: Kind,
    name: Option<QName>,
    content: String,
    declarations: Vec<Binding>,
    parent: Option<NodeIndex>,
    attributes: Vec<NodeIndex>,
    first_child: Option<NodeIndex>,
    last_child: Option<NodeIndex>,
    next_sibling: Option<NodeIndex>,
    previous_sibling: Option<NodeIndex>,
}

impl Entry {
    fn new(kind: Kind, name: Option<QName>, content: &str) -> Entry {
        Entry {
            kind,
            name,
            content: content.to_owned(),
            declarations: Vec::new(),
            parent: None,
            attributes: Vec::new(),
            first_child: None,
            last_child: None,
            next_sibling: None,
            previous_sibling: None,
        }
    }
}

/// Builds a [`MemoryTree`] from events in document order.
///
/// It trusts its caller to send what a well-formed document would: attributes and declarations
/// right after the start of their element, and one end for each start. Calls that break the order
/// still give a tree: [`Builder::finish`] ends open elements, and a surplus end is ignored.
///
/// ```
/// use tidegate_xml::name::QName;
/// use tidegate_xml::tree::{Tree, memory::Builder};
///
/// let mut builder = Builder::new();
/// builder.start_element(QName::local("a"));
/// builder.attribute(QName::local("x"), "1");
/// builder.text("hello");
/// builder.end_element();
/// let tree = builder.finish();
/// assert_eq!(tree.string_value(&tree.root()?)?, "hello");
/// # Ok::<(), std::convert::Infallible>(())
/// ```
#[derive(Debug)]
pub struct Builder {
    nodes: Vec<Entry>,
    ids: HashMap<String, NodeIndex>,
    /// The document and the elements that are open, outermost first; never empty.
    open: Vec<NodeIndex>,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder::new()
    }
}

impl Builder {
    /// Starts an empty document.
    #[must_use]
    pub fn new() -> Builder {
        Builder {
            nodes: vec![Entry::new(Kind::Document, None, "")],
            ids: HashMap::new(),
            open: vec![NodeIndex(0)],
        }
    }

    /// Opens an element.
    pub fn start_element(&mut self, name: QName) {
        let element = self.append_child(Entry::new(Kind::Element, Some(name), ""));
        self.open.push(element);
    }

    /// Declares a namespace on the element that is open; an empty prefix is the default namespace.
    pub fn declare(&mut self, prefix: &str, uri: &str) {
        let element = self.innermost();
        let binding = Binding { prefix: prefix.into(), uri: uri.into() };
        self.nodes[element.0].declarations.push(binding);
    }

    /// Adds an attribute to the element that is open. `xml:id` is its ID.
    pub fn attribute(&mut self, name: QName, value: &str) {
        if &*name.local == "id" && &*name.namespace == XML_NAMESPACE {
            self.id(value);
        }
        let element = self.innermost();
        let mut entry = Entry::new(Kind::Attribute, Some(name), value);
        entry.parent = Some(element);
        let attribute = self.push(entry);
        self.nodes[element.0].attributes.push(attribute);
    }

    /// Registers an ID of the element that is open, for attributes that a DTD declares as ID. The
    /// first element with an ID keeps it.
    pub fn id(&mut self, id: &str) {
        let element = self.innermost();
        self.ids.entry(id.to_owned()).or_insert(element);
    }

    /// Adds character data; joins it with a text right before. Empty data is no node.
    pub fn text(&mut self, data: &str) {
        if data.is_empty() {
            return;
        }
        if let Some(last) = self.nodes[self.innermost().0].last_child {
            let entry = &mut self.nodes[last.0];
            if entry.kind == Kind::Text {
                entry.content.push_str(data);
                return;
            }
        }
        self.append_child(Entry::new(Kind::Text, None, data));
    }

    /// Adds a comment.
    pub fn comment(&mut self, data: &str) {
        self.append_child(Entry::new(Kind::Comment, None, data));
    }

    /// Adds a processing instruction.
    pub fn processing_instruction(&mut self, target: &str, data: &str) {
        let name = Some(QName::local(target));
        self.append_child(Entry::new(Kind::ProcessingInstruction, name, data));
    }

    /// Closes the element that was opened last.
    pub fn end_element(&mut self) {
        if self.open.len() > 1 {
            self.open.pop();
        }
    }

    /// Returns the tree.
    #[must_use]
    pub fn finish(self) -> MemoryTree {
        MemoryTree { nodes: self.nodes, ids: self.ids }
    }

    fn innermost(&self) -> NodeIndex {
        self.open.last().copied().unwrap_or(NodeIndex(0))
    }

    fn push(&mut self, entry: Entry) -> NodeIndex {
        self.nodes.push(entry);
        NodeIndex(self.nodes.len() - 1)
    }

    fn append_child(&mut self, mut entry: Entry) -> NodeIndex {
        let parent = self.innermost();
        let before = self.nodes[parent.0].last_child;
        entry.parent = Some(parent);
        entry.previous_sibling = before;
        let child = self.push(entry);
        match before {
            Some(before) => self.nodes[before.0].next_sibling = Some(child),
            None => self.nodes[parent.0].first_child = Some(child),
        }
        self.nodes[parent.0].last_child = Some(child);
        child
    }
}

impl MemoryTree {
    /// Returns every node, attributes included, in document order.
    pub fn nodes(&self) -> impl Iterator<Item = NodeIndex> + '_ {
        (0..self.nodes.len()).map(NodeIndex)
    }

    fn entry(&self, node: NodeIndex) -> &Entry {
        &self.nodes[node.0]
    }
}

impl Tree for MemoryTree {
    type Node = NodeIndex;
    type Error = Infallible;

    fn root(&self) -> Result<NodeIndex, Infallible> {
        Ok(NodeIndex(0))
    }

    fn kind(&self, node: &NodeIndex) -> Result<Kind, Infallible> {
        Ok(self.entry(*node).kind)
    }

    fn name(&self, node: &NodeIndex) -> Result<Option<QName>, Infallible> {
        Ok(self.entry(*node).name.clone())
    }

    fn has_name(&self, node: &NodeIndex, name: &QName) -> Result<bool, Infallible> {
        Ok(self.entry(*node).name.as_ref() == Some(name))
    }

    fn content(&self, node: &NodeIndex) -> Result<String, Infallible> {
        Ok(self.entry(*node).content.clone())
    }

    fn parent(&self, node: &NodeIndex) -> Result<Option<NodeIndex>, Infallible> {
        Ok(self.entry(*node).parent)
    }

    fn first_child(&self, node: &NodeIndex) -> Result<Option<NodeIndex>, Infallible> {
        Ok(self.entry(*node).first_child)
    }

    fn last_child(&self, node: &NodeIndex) -> Result<Option<NodeIndex>, Infallible> {
        Ok(self.entry(*node).last_child)
    }

    fn next_sibling(&self, node: &NodeIndex) -> Result<Option<NodeIndex>, Infallible> {
        Ok(self.entry(*node).next_sibling)
    }

    fn previous_sibling(&self, node: &NodeIndex) -> Result<Option<NodeIndex>, Infallible> {
        Ok(self.entry(*node).previous_sibling)
    }

    fn attributes(&self, node: &NodeIndex) -> Result<Vec<NodeIndex>, Infallible> {
        Ok(self.entry(*node).attributes.clone())
    }

    fn declarations(&self, node: &NodeIndex) -> Result<Vec<Binding>, Infallible> {
        Ok(self.entry(*node).declarations.clone())
    }

    fn compare(&self, a: &NodeIndex, b: &NodeIndex) -> Result<Ordering, Infallible> {
        Ok(a.cmp(b))
    }

    fn element_by_id(&self, id: &str) -> Result<Option<NodeIndex>, Infallible> {
        Ok(self.ids.get(id).copied())
    }
}

//! What a query needs of a tree of nodes, and a plain tree in memory.
//!
//! [`Tree`] is the data model of `XPath` 1.0 (section 5): seven kinds of nodes in document order.
//! Every access can fail, because a stored tree takes locks and reads pages. Methods with a default
//! body are faster ways to an answer that the required methods give as well; [`memory`] leaves
//! almost all of them at their defaults, so it can be the oracle of a store that has indexes.

use std::cmp::Ordering;
use std::fmt::Debug;

use crate::name::QName;

pub mod memory;

/// URI that the prefix `xml` is always bound to (*Namespaces in XML 1.0*, section 3).
pub const XML_NAMESPACE: &str = "http://www.w3.org/XML/1998/namespace";

/// The kind of a node that a tree holds.
///
/// Namespace nodes are missing on purpose: they exist only as answers of the namespace axis, which
/// computes them from [`Tree::namespaces_in_scope`], so a store needs no handle for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The root of the tree, above the root element.
    Document,
    /// An element.
    Element,
    /// An attribute; its parent is the element, but it is no child of the element.
    Attribute,
    /// Character data. Two text nodes are never adjacent siblings.
    Text,
    /// A comment.
    Comment,
    /// A processing instruction.
    ProcessingInstruction,
}

/// A prefix bound to a namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Binding {
    /// Prefix, empty for the default namespace.
    pub prefix: Box<str>,
    /// URI of the namespace; empty if the declaration removes the default namespace.
    pub uri: Box<str>,
}

/// The nodes that an index or a scan of a [`Tree`] returns, in document order and each once.
pub type Indexed<'a, T> =
    Box<dyn Iterator<Item = Result<<T as Tree>::Node, <T as Tree>::Error>> + 'a>;

/// How a node relates to the one before it on a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Below {
    /// It is a child, or an attribute.
    Directly,
    /// It is below it at any depth; an attribute is that of the node or of an element below.
    Anywhere,
}

/// What a node on a path has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PathTest<'a> {
    /// An element, of this name if there is one.
    Element(Option<&'a QName>),
    /// An attribute, of this name if there is one.
    Attribute(Option<&'a QName>),
    /// A text.
    Text,
}

/// A relation between the value of a node and a constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Relation {
    /// The value equals the constant.
    Equal,
    /// Less than; numbers only.
    Less,
    /// Less than or equal; numbers only.
    LessOrEqual,
    /// Greater than; numbers only.
    Greater,
    /// Greater than or equal; numbers only.
    GreaterOrEqual,
}

/// What the content of a node is compared with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Comparand<'a> {
    /// The content as it is, byte by byte.
    Text(&'a str),
    /// The content as the number that `XPath` 1.0 makes of it (section 4.4).
    Number(f64),
}

/// The nodes on some paths from the document node down, as a path index or a content index can
/// return them.
///
/// `//item/@id = "item7"` has the path `[(Anywhere, Element(item)), (Directly, Attribute(id))]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Pattern<'a> {
    /// From below the document node to the node that is asked for. Only the last is an attribute or
    /// a text.
    pub path: Vec<(Below, PathTest<'a>)>,
    /// What its content has to be, if that matters: of an attribute or a text its content, of an
    /// element its string-value.
    pub content: Option<(Relation, Comparand<'a>)>,
}

/// The axis of a [`Tree::step`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StepAxis {
    /// The children.
    Child,
    /// The nodes below, without attributes.
    Descendant,
    /// The attributes.
    Attribute,
}

/// What a [`Tree::step`] asks of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StepTest<'a> {
    /// That it is on the axis.
    Any,
    /// That it is an attribute on the axis of attributes, and an element on the others.
    Principal,
    /// The same, and that it has this name.
    Name(&'a QName),
    /// That it is a text.
    Text,
}

/// A tree of nodes in document order.
///
/// Document order is the order of the start tags: a node precedes its descendants, and the
/// attributes of an element follow the element and precede its children.
pub trait Tree {
    /// Handle of a node: a label or an index, cheap to clone.
    type Node: Clone + Debug;
    /// Reason why an access fails, for example a deadlock or a disk error.
    type Error: std::error::Error + 'static;

    /// Returns the document node.
    ///
    /// # Errors
    /// If the tree cannot be read. The same holds for every method of the trait.
    fn root(&self) -> Result<Self::Node, Self::Error>;

    /// Returns the kind of a node.
    ///
    /// # Errors
    /// If the tree cannot be read.
    fn kind(&self, node: &Self::Node) -> Result<Kind, Self::Error>;

    /// Returns the name of an element or attribute, or the target of a processing instruction as a
    /// name in no namespace; `None` for all other kinds.
    ///
    /// # Errors
    /// If the tree cannot be read.
    fn name(&self, node: &Self::Node) -> Result<Option<QName>, Self::Error>;

    /// Returns the content of an attribute, text, comment or processing instruction; an empty
    /// string for an element or the document, whose value is [`Tree::string_value`].
    ///
    /// # Errors
    /// If the tree cannot be read.
    fn content(&self, node: &Self::Node) -> Result<String, Self::Error>;

    /// Returns the parent; `None` for the document.
    ///
    /// # Errors
    /// If the tree cannot be read.
    fn parent(&self, node: &Self::Node) -> Result<Option<Self::Node>, Self::Error>;

    /// Returns the first child that is not an attribute.
    ///
    /// # Errors
    /// If the tree cannot be read.
    fn first_child(&self, node: &Self::Node) -> Result<Option<Self::Node>, Self::Error>;

    /// Returns the last child that is not an attribute.
    ///
    /// # Errors
    /// If the tree cannot be read.
    fn last_child(&self, node: &Self::Node) -> Result<Option<Self::Node>, Self::Error>;

    /// Returns the sibling after this node; `None` for an attribute.
    ///
    /// # Errors
    /// If the tree cannot be read.
    fn next_sibling(&self, node: &Self::Node) -> Result<Option<Self::Node>, Self::Error>;

    /// Returns the sibling before this node; `None` for an attribute.
    ///
    /// # Errors
    /// If the tree cannot be read.
    fn previous_sibling(&self, node: &Self::Node) -> Result<Option<Self::Node>, Self::Error>;

    /// Returns the attributes of an element in document order, without namespace declarations.
    ///
    /// # Errors
    /// If the tree cannot be read.
    fn attributes(&self, node: &Self::Node) -> Result<Vec<Self::Node>, Self::Error>;

    /// Returns the namespace declarations (`xmlns…`) that an element itself carries.
    ///
    /// # Errors
    /// If the tree cannot be read.
    fn declarations(&self, node: &Self::Node) -> Result<Vec<Binding>, Self::Error>;

    /// Compares two nodes by document order; `Equal` if both are the same node.
    ///
    /// # Errors
    /// If the tree cannot be read.
    fn compare(&self, a: &Self::Node, b: &Self::Node) -> Result<Ordering, Self::Error>;

    /// Returns the element whose attribute of type ID has this value.
    ///
    /// # Errors
    /// If the tree cannot be read.
    fn element_by_id(&self, id: &str) -> Result<Option<Self::Node>, Self::Error>;

    /// Returns whether an element, attribute or processing instruction has this name.
    ///
    /// # Errors
    /// If the tree cannot be read.
    fn has_name(&self, node: &Self::Node, name: &QName) -> Result<bool, Self::Error> {
        Ok(self.name(node)?.as_ref() == Some(name))
    }

    /// Returns whether `node` is below `ancestor`; an attribute is below its element.
    ///
    /// # Errors
    /// If the tree cannot be read.
    fn is_ancestor(&self, ancestor: &Self::Node, node: &Self::Node) -> Result<bool, Self::Error> {
        let mut above = self.parent(node)?;
        while let Some(candidate) = above {
            if self.compare(&candidate, ancestor)?.is_eq() {
                return Ok(true);
            }
            above = self.parent(&candidate)?;
        }
        Ok(false)
    }

    /// Returns the string-value of a node (`XPath` 1.0, section 5): the text of all descendants for
    /// an element or the document, the content otherwise.
    ///
    /// # Errors
    /// If the tree cannot be read.
    fn string_value(&self, node: &Self::Node) -> Result<String, Self::Error> {
        if !matches!(self.kind(node)?, Kind::Document | Kind::Element) {
            return self.content(node);
        }
        let mut text = String::new();
        let mut depth = 0_usize;
        let mut at = node.clone();
        while let Some(next) = self.next_below(&at, &mut depth)? {
            if self.kind(&next)? == Kind::Text {
                text.push_str(&self.content(&next)?);
            }
            at = next;
        }
        Ok(text)
    }

    /// Returns the next node of a walk in document order through the descendants of one node.
    ///
    /// `depth` is the number of levels between that node and `at`: 0 at the start.
    ///
    /// # Errors
    /// If the tree cannot be read.
    fn next_below(
        &self,
        at: &Self::Node,
        depth: &mut usize,
    ) -> Result<Option<Self::Node>, Self::Error> {
        if let Some(child) = self.first_child(at)? {
            *depth += 1;
            return Ok(Some(child));
        }
        let mut at = at.clone();
        while *depth > 0 {
            if let Some(sibling) = self.next_sibling(&at)? {
                return Ok(Some(sibling));
            }
            let Some(parent) = self.parent(&at)? else { return Ok(None) };
            at = parent;
            *depth -= 1;
        }
        Ok(None)
    }

    /// Returns the namespaces in scope of an element, sorted by prefix, with that of `xml`.
    ///
    /// # Errors
    /// If the tree cannot be read.
    fn namespaces_in_scope(&self, element: &Self::Node) -> Result<Vec<Binding>, Self::Error> {
        let mut found = vec![Binding { prefix: "xml".into(), uri: XML_NAMESPACE.into() }];
        let mut at = Some(element.clone());
        while let Some(node) = at {
            for binding in self.declarations(&node)? {
                if found.iter().all(|nearer| nearer.prefix != binding.prefix) {
                    found.push(binding);
                }
            }
            at = self.parent(&node)?;
        }
        found.retain(|binding| !binding.uri.is_empty());
        found.sort();
        Ok(found)
    }

    /// Returns the nodes on an axis that pass a test, in document order and each once, if the tree
    /// finds them faster than from node to node; `None` if it does not, and the caller has to walk.
    ///
    /// # Errors
    /// If the tree cannot be read.
    fn step<'a>(
        &'a self,
        node: &Self::Node,
        axis: StepAxis,
        test: StepTest<'_>,
    ) -> Result<Option<Indexed<'a, Self>>, Self::Error>
    where
        Self: Sized,
    {
        let _ = (node, axis, test);
        Ok(None)
    }

    /// Returns all elements of this name below `node` in document order, from an index; `None` if
    /// there is no such index, and the caller has to walk.
    ///
    /// # Errors
    /// If the index cannot be read.
    fn elements_below<'a>(
        &'a self,
        node: &Self::Node,
        name: &'a QName,
    ) -> Result<Option<Indexed<'a, Self>>, Self::Error>
    where
        Self: Sized,
    {
        let _ = (node, name);
        Ok(None)
    }

    /// Names the index that [`Tree::elements_below`] uses for this name, for the plan of a query.
    fn index_of_elements(&self, name: &QName) -> Option<String> {
        let _ = name;
        None
    }

    /// Returns the nodes of a pattern in document order, each once, from indexes; `None` if no
    /// index serves it, and the caller has to walk.
    ///
    /// # Errors
    /// If the index cannot be read.
    fn matching<'a>(
        &'a self,
        pattern: &Pattern<'_>,
    ) -> Result<Option<Indexed<'a, Self>>, Self::Error>
    where
        Self: Sized,
    {
        let _ = pattern;
        Ok(None)
    }

    /// Names the index that [`Tree::matching`] uses for this pattern, for the plan of a query.
    fn index_for(&self, pattern: &Pattern<'_>) -> Option<String> {
        let _ = pattern;
        None
    }
}

//! Operations on nodes, and what they return.

use std::fmt;

use tidegate_xml::label::Label;
use tidegate_xml::name::QName;
use tidegate_xml::parse::Event;
use tidegate_xml::store::{Document, NewNode, Place, XmlStoreError};
use tidegate_xml::tree::{Below, Comparand, Kind, PathTest, Pattern, Relation, Tree};

/// A node that is inserted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum New {
    Element(&'static str),
    Text(String),
    /// An element with an attribute `id` that has a child `q` with a text.
    Fragment(&'static str, String, String),
}

/// An operation on a document. Names are in no namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Node(Label),
    /// The names from the root element to the node.
    Path(Label),
    Parent(Label),
    First(Label),
    Last(Label),
    Next(Label),
    Previous(Label),
    /// The children as a stream, each with its name or content.
    Children(Label),
    /// All that is below a node, with it.
    Subtree(Label),
    Attribute(Label, &'static str),
    Attributes(Label),
    /// All elements of a name, from the name index.
    Named(&'static str),
    /// All elements with this value of the attribute `id`, from the index of content by path.
    WithId(String),
    /// All texts of this content, from the content index.
    WithText(String),
    /// All elements with these names from the root element on, from the path index.
    OnPath(Vec<&'static str>),
    SetText(Label, String),
    Rename(Label, &'static str),
    SetAttribute(Label, &'static str, String),
    RemoveAttribute(Label, &'static str),
    RenameAttribute(Label, &'static str, &'static str),
    Insert(Place, New),
    Delete(Label),
    Move(Label, Place),
}

/// What an operation returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// A rule of the data model or the lack of a node forbids it.
    Refused,
    Done {
        /// Nodes that were found. For an insertion or a move the new labels in document order.
        labels: Vec<Label>,
        text: String,
    },
}

impl Seen {
    pub(crate) fn labels(&self) -> &[Label] {
        match self {
            Seen::Refused => &[],
            Seen::Done { labels, .. } => labels,
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Seen::Refused => write!(f, "refused"),
            Seen::Done { labels, text } => {
                labels.iter().try_for_each(|label| write!(f, "{label} "))?;
                write!(f, "{text}")
            }
        }
    }
}

impl Step {
    /// Returns whether it changes nothing.
    pub(crate) fn reads(&self) -> bool {
        use Step::{
            Delete, Insert, Move, RemoveAttribute, Rename, RenameAttribute, SetAttribute, SetText,
        };
        !matches!(
            self,
            SetText(..)
                | Rename(..)
                | SetAttribute(..)
                | RemoveAttribute(..)
                | RenameAttribute(..)
                | Insert(..)
                | Delete(_)
                | Move(..)
        )
    }

    /// Does it. Conflicts are errors.
    pub(crate) fn run(&self, document: &Document<'_>) -> Result<Seen, XmlStoreError> {
        let done = if self.reads() { self.read(document) } else { self.write(document) };
        match done {
            Err(error @ (XmlStoreError::NoSuchNode(_) | XmlStoreError::NotPossible { .. })) => {
                assert!(!error.is_retryable());
                Ok(Seen::Refused)
            }
            Err(error) if !error.is_retryable() => panic!("{self:?}: {error}"),
            done => done.map(|(labels, text)| Seen::Done { labels, text }),
        }
    }

    fn read(&self, document: &Document<'_>) -> Result<(Vec<Label>, String), XmlStoreError> {
        let reached = |found: Option<Label>| {
            let text = found.as_ref().map(|found| describe(document, found)).transpose()?;
            Ok((found.into_iter().collect(), text.unwrap_or_default()))
        };
        match self {
            Step::Node(node) => Ok((Vec::new(), describe(document, node)?)),
            Step::Path(node) => {
                let names = document.path(node)?;
                let names: Vec<&str> = names.iter().map(|name| &*name.local).collect();
                Ok((Vec::new(), names.join("/")))
            }
            Step::Parent(node) => reached(document.parent(node)?),
            Step::First(node) => reached(document.first_child(node)?),
            Step::Last(node) => reached(document.last_child(node)?),
            Step::Next(node) => reached(document.next_sibling(node)?),
            Step::Previous(node) => reached(document.previous_sibling(node)?),
            Step::Children(node) => {
                let (mut labels, mut text) = (Vec::new(), String::new());
                for child in document.children(node)? {
                    let child = child?;
                    text += &describe(document, &child)?;
                    labels.push(child);
                }
                Ok((labels, text))
            }
            Step::Subtree(node) => Ok((Vec::new(), subtree(document, node)?)),
            Step::Attribute(node, name) => {
                let found = document.attribute(node, &QName::local(name))?;
                let value = found.map(|found| document.content(&found)).transpose()?;
                Ok((Vec::new(), format!("{value:?}")))
            }
            Step::Attributes(node) => {
                let mut all = Vec::new();
                for attribute in Tree::attributes(document, node)? {
                    let name = document.node_name(&attribute)?.unwrap();
                    all.push((name.local.to_string(), document.content(&attribute)?));
                }
                all.sort();
                Ok((Vec::new(), format!("{all:?}")))
            }
            _ => Ok((self.look_up(document)?, String::new())),
        }
    }

    fn look_up(&self, document: &Document<'_>) -> Result<Vec<Label>, XmlStoreError> {
        let local = QName::local;
        let (names, id) = match self {
            Step::Named(name) => (vec![local(name)], local("id")),
            Step::OnPath(names) => (names.iter().map(|name| local(name)).collect(), local("id")),
            _ => (Vec::new(), local("id")),
        };
        let matching = |path, content| {
            let pattern = Pattern { path, content };
            let found = document.matching(&pattern)?.expect("there is an index");
            found.collect::<Result<Vec<Label>, XmlStoreError>>()
        };
        let is = |value| Some((Relation::Equal, Comparand::Text(value)));
        match self {
            Step::Named(_) => {
                let found = document.elements_below(&Label::document(), &names[0])?;
                found.expect("there is an index").collect()
            }
            Step::OnPath(_) => {
                let step = |name| (Below::Directly, PathTest::Element(Some(name)));
                matching(names.iter().map(step).collect(), None)
            }
            Step::WithText(value) => matching(vec![(Below::Anywhere, PathTest::Text)], is(value)),
            Step::WithId(value) => {
                let attribute = (Below::Directly, PathTest::Attribute(Some(&id)));
                let path = vec![(Below::Anywhere, PathTest::Element(None)), attribute];
                let found = matching(path, is(value))?;
                Ok(found.iter().map(|attribute| attribute.owner().unwrap()).collect())
            }
            other => panic!("{other:?} asks no index"),
        }
    }

    fn write(&self, document: &Document<'_>) -> Result<(Vec<Label>, String), XmlStoreError> {
        let nothing = (Vec::new(), String::new());
        match self {
            Step::SetText(node, value) => document.set_value(node, value).map(|()| nothing),
            Step::Rename(node, name) => {
                document.rename(node, &QName::local(name)).map(|()| nothing)
            }
            Step::SetAttribute(node, name, value) => {
                document.set_attribute(node, &QName::local(name), value).map(|_| nothing)
            }
            Step::RemoveAttribute(node, name) => {
                let removed = document.remove_attribute(node, &QName::local(name))?;
                Ok((Vec::new(), removed.to_string()))
            }
            Step::RenameAttribute(node, from, to) => {
                let Some(found) = document.attribute(node, &QName::local(from))? else {
                    return Ok((Vec::new(), "none".to_owned()));
                };
                document.rename(&found, &QName::local(to)).map(|()| nothing)
            }
            Step::Insert(place, new) => {
                let inserted = match new {
                    New::Element(name) => {
                        document.insert(place, NewNode::Element(&QName::local(name)))?
                    }
                    New::Text(value) => document.insert(place, NewNode::Text(value))?,
                    New::Fragment(name, id, value) => {
                        let text = format!("<{name} id='{id}'><q>{value}</q></{name}>");
                        let mut inserted = document.insert_xml(place, text.as_bytes())?;
                        inserted.pop().expect("an element was inserted")
                    }
                };
                if matches!(new, New::Fragment(..)) {
                    return with_descendants(document, inserted);
                }
                Ok((vec![inserted], String::new()))
            }
            Step::Delete(node) => document.delete(node).map(|()| nothing),
            Step::Move(node, place) => {
                let moved = document.move_to(node, place)?;
                with_descendants(document, moved)
            }
            other => panic!("{other:?} changes nothing"),
        }
    }
}

fn with_descendants(
    document: &Document<'_>,
    node: Label,
) -> Result<(Vec<Label>, String), XmlStoreError> {
    let mut labels = vec![node];
    for below in document.descendants(&labels[0].clone())? {
        labels.push(below?);
    }
    Ok((labels, String::new()))
}

/// Returns the name of an element, or the content of a text.
fn describe(document: &Document<'_>, node: &Label) -> Result<String, XmlStoreError> {
    match document.kind(node)? {
        Kind::Element => {
            let name = document.node_name(node)?.expect("an element has a name");
            Ok(format!("<{}>", name.local))
        }
        Kind::Text => Ok(format!("[{}]", document.content(node)?)),
        kind => Ok(format!("{kind:?}")),
    }
}

fn subtree(document: &Document<'_>, node: &Label) -> Result<String, XmlStoreError> {
    let mut text = String::new();
    document.subtree_events(node, |event| {
        match event {
            Event::StartElement { name, attributes } => {
                text.extend(["<", &name.local, ">"]);
                let mut all: Vec<String> = Vec::new();
                for attribute in attributes {
                    all.push(format!("@{}={}", attribute.name.local, attribute.value));
                }
                all.sort();
                text += &all.concat();
            }
            Event::EndElement { .. } => text += "</>",
            Event::StartDocument | Event::EndDocument => {}
            Event::Text(part) => text.extend(["[", part, "]"]),
            other => panic!("{other:?} is in no document of these tests"),
        }
        Ok::<(), XmlStoreError>(())
    })?;
    Ok(text)
}

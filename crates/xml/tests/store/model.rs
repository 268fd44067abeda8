//! A document as nested vectors, and random changes made to it and to a stored one alike.

use std::collections::BTreeMap;

use tidegate_random::SplitMix64;
use tidegate_xml::label::{Label, LabelError};
use tidegate_xml::name::QName;
use tidegate_xml::store::{Document, NewNode, Place, XmlStoreError};
use tidegate_xml::tree::memory::{Builder, MemoryTree};
use tidegate_xml::tree::{Kind, Tree};

/// The document that the model begins with.
pub(crate) const FIRST: &str = "<r xmlns:p=\"urn:p\"></r>";

const WORDS: [&str; 6] = ["w", " ", "two words", "é\n", "<&]]>", "\r\t\""];

/// Indices of children from the document down to a node.
type Path = Vec<usize>;

#[derive(Debug, Clone)]
struct Node {
    kind: Kind,
    name: Option<QName>,
    content: String,
    /// Prefixes and namespaces. No document of the model declares a default namespace.
    declarations: Vec<(&'static str, &'static str)>,
    attributes: Vec<(QName, String)>,
    children: Vec<Node>,
}

impl Node {
    fn new(kind: Kind, name: Option<QName>, content: &str) -> Node {
        let (declarations, attributes, children) = (Vec::new(), Vec::new(), Vec::new());
        Node { kind, name, content: content.to_owned(), declarations, attributes, children }
    }

    fn element(name: QName) -> Node {
        Node::new(Kind::Element, Some(name), "")
    }

    /// Makes one text of each two beside each other.
    fn join_texts(&mut self) {
        self.children.iter_mut().for_each(Node::join_texts);
        self.children.dedup_by(|right, left| {
            let both = [&*left, &*right].iter().all(|node| node.kind == Kind::Text);
            if both {
                left.content.push_str(&right.content);
            }
            both
        });
    }

    fn collect(&self, path: &mut Path, found: &mut Vec<Path>) {
        found.push(path.clone());
        for (index, child) in self.children.iter().enumerate() {
            path.push(index);
            child.collect(path, found);
            path.pop();
        }
    }

    fn build(&self, builder: &mut Builder) {
        let name = || self.name.clone().unwrap();
        match self.kind {
            Kind::Element => {
                builder.start_element(name());
                for (prefix, uri) in &self.declarations {
                    builder.declare(prefix, uri);
                }
                for (name, value) in &self.attributes {
                    builder.attribute(name.clone(), value);
                }
                self.children.iter().for_each(|child| child.build(builder));
                builder.end_element();
            }
            Kind::Text => builder.text(&self.content),
            Kind::Comment => builder.comment(&self.content),
            _ => builder.processing_instruction(&name().local, &self.content),
        }
    }
}

/// What a document should be.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    document: Node,
    /// Above so many nodes more are deleted than inserted.
    nodes_max: usize,
}

fn prefixed(prefix: &str, local: &str) -> QName {
    let namespace = format!("urn:{prefix}").into();
    QName { prefix: prefix.into(), local: local.into(), namespace }
}

fn name(random: &mut SplitMix64) -> QName {
    match random.next_below(6) {
        0 => prefixed("p", "a"),
        1 => prefixed("p", "b"),
        number => QName::local(["a", "b", "c", "d"][number as usize - 2]),
    }
}

fn word(random: &mut SplitMix64) -> &'static str {
    WORDS[random.next_below(6) as usize]
}

/// Returns whether a child of that kind may come to the parent, which has a root element if it is
/// the document.
fn may_hold(parent: Kind, child: Kind) -> bool {
    match parent {
        Kind::Document => !matches!(child, Kind::Element | Kind::Text),
        parent => parent == Kind::Element,
    }
}

/// Draws XML text and the nodes that it stands for.
fn fragment(random: &mut SplitMix64) -> (String, Vec<Node>) {
    let (mut text, mut all) = (String::new(), Node::new(Kind::Document, None, ""));
    for _ in 0..random.next_below(4) {
        let (written, node) = match random.next_below(4) {
            0 => ("t&amp;", Node::new(Kind::Text, None, "t&")),
            1 => ("<!--f-->", Node::new(Kind::Comment, None, "f")),
            2 => {
                let mut element = Node::element(prefixed("p", "f"));
                element.attributes.push((QName::local("k"), "v".to_owned()));
                element.children.push(Node::new(Kind::Text, None, "u"));
                ("<p:f k='v'>u</p:f>", element)
            }
            _ => {
                let mut element = Node::element(prefixed("q", "g"));
                element.declarations.push(("q", "urn:q"));
                element.children.push(Node::element(prefixed("q", "h")));
                ("<q:g xmlns:q='urn:q'><q:h/></q:g>", element)
            }
        };
        text.push_str(written);
        all.children.push(node);
    }
    all.join_texts();
    (text, all.children)
}

impl Model {
    /// The model of [`FIRST`].
    pub(crate) fn new() -> Model {
        Model::filled(0)
    }

    /// The model of [`FIRST`] with so many elements in its root, each of which has a text.
    pub(crate) fn filled(elements: usize) -> Model {
        let mut root = Node::element(QName::local("r"));
        root.declarations.push(("p", "urn:p"));
        for _ in 0..elements {
            let mut element = Node::element(QName::local("a"));
            element.children.push(Node::new(Kind::Text, None, "w"));
            root.children.push(element);
        }
        let mut document = Node::new(Kind::Document, None, "");
        document.children.push(root);
        Model { document, nodes_max: 60 + 2 * elements }
    }

    /// The text of [`Model::filled`].
    pub(crate) fn filled_text(elements: usize) -> String {
        FIRST.replace("></r>", &format!(">{}</r>", "<a>w</a>".repeat(elements)))
    }

    pub(crate) fn tree(&self) -> MemoryTree {
        let mut builder = Builder::new();
        self.document.children.iter().for_each(|child| child.build(&mut builder));
        builder.finish()
    }

    fn paths(&self) -> Vec<Path> {
        let mut found = Vec::new();
        self.document.collect(&mut Path::new(), &mut found);
        found
    }

    fn at(&mut self, path: &[usize]) -> &mut Node {
        path.iter().fold(&mut self.document, |node, &index| &mut node.children[index])
    }

    /// Inserts a node unless a rule forbids it; returns whether it did.
    fn insert(&mut self, parent: &[usize], index: usize, node: Node) -> bool {
        let list = self.at(parent);
        let is_text = |at: Option<usize>| {
            at.and_then(|at| list.children.get(at)).is_some_and(|node| node.kind == Kind::Text)
        };
        let beside_text = is_text(index.checked_sub(1)) || is_text(Some(index));
        let may = may_hold(list.kind, node.kind) && (node.kind != Kind::Text || !beside_text);
        if may {
            list.children.insert(index, node);
        }
        may
    }

    fn delete(&mut self, path: &[usize]) -> bool {
        let Some((&index, parent)) = path.split_last() else { return false };
        if parent.is_empty() && self.at(path).kind == Kind::Element {
            return false;
        }
        let list = self.at(parent);
        list.children.remove(index);
        list.join_texts();
        true
    }

    /// Inserts what a fragment holds, unless a rule forbids it; returns whether it did.
    fn insert_all(&mut self, (parent, index): (&[usize], usize), nodes: Vec<Node>) -> bool {
        let list = self.at(parent);
        let may = matches!(list.kind, Kind::Document | Kind::Element)
            && nodes.iter().all(|node| may_hold(list.kind, node.kind));
        if may {
            list.children.splice(index..index, nodes);
            list.join_texts();
        }
        may
    }

    /// Returns the namespaces in scope of a node by their prefixes.
    fn scope(&self, path: &[usize]) -> BTreeMap<&'static str, &'static str> {
        let mut scope = BTreeMap::new();
        let mut node = &self.document;
        for &index in path {
            node = &node.children[index];
            scope.extend(node.declarations.iter().copied());
        }
        scope
    }

    /// Copies a node, or moves it, unless a rule forbids it; returns whether it did.
    fn relocate(
        &mut self,
        from: &[usize],
        (parent, index): (&[usize], usize),
        moves: bool,
    ) -> bool {
        let Some((&own_index, own_parent)) = from.split_last() else { return false };
        let mut node = self.at(from).clone();
        let is_element = node.kind == Kind::Element;
        if moves {
            if is_element && own_parent.is_empty() {
                return false;
            }
            if own_parent == parent && (index == own_index || index == own_index + 1) {
                return true;
            }
            if parent.starts_with(from) {
                return false;
            }
        }
        let around = self.scope(parent);
        for (prefix, uri) in self.scope(from) {
            let is_own = node.declarations.iter().any(|(own, _)| *own == prefix);
            if is_element && !is_own && around.get(prefix) != Some(&uri) {
                node.declarations.push((prefix, uri));
            }
        }
        let list = self.at(parent);
        if !may_hold(list.kind, node.kind) {
            return false;
        }
        list.children.insert(index, node);
        if moves {
            let mut from = from.to_vec();
            if from.starts_with(parent) && from[parent.len()] >= index {
                from[parent.len()] += 1;
            }
            let place = from.pop().unwrap();
            self.at(&from).children.remove(place);
        }
        self.document.join_texts();
        true
    }

    /// Does as [`Model::step`], but leaves both unchanged if a label would be too long. Returns
    /// whether it was not.
    ///
    /// # Errors
    /// The engine's, after which it is not known what was done.
    pub(crate) fn step_within_limits(
        &mut self,
        random: &mut SplitMix64,
        document: &Document<'_>,
    ) -> Result<bool, XmlStoreError> {
        let before = self.clone();
        match self.step(random, document) {
            Err(XmlStoreError::Label(LabelError::TooLong { .. })) => {
                *self = before;
                Ok(false)
            }
            done => done.map(|()| true),
        }
    }

    /// Makes the same random change to the model and to the document. Changes that a rule forbids
    /// are asked for as well, and have to be refused.
    ///
    /// # Errors
    /// The engine's, after which it is not known what was done. One of a label: the document has
    /// not changed then, but the model may have.
    pub(crate) fn step(
        &mut self,
        random: &mut SplitMix64,
        document: &Document<'_>,
    ) -> Result<(), XmlStoreError> {
        let mut labels = vec![document.root()?];
        for label in document.descendants(&labels[0])? {
            labels.push(label?);
        }
        let paths = self.paths();
        assert_eq!(paths.len(), labels.len(), "as many nodes as in the model");
        let nodes = u32::try_from(paths.len()).unwrap();
        let [pick, other] = [(); 2].map(|()| random.next_below(nodes) as usize);
        let (path, label) = (&paths[pick], &labels[pick]);
        // Keeps documents from growing for ever.
        let is_large = paths.len() > self.nodes_max;
        let (may, done) = match random.next_below(if is_large { 19 } else { 17 }) {
            0..5 => self.insert_both(random, document, path, label),
            5 => self.set_value_both(random, document, path, label),
            6 => self.set_attribute_both(random, document, path, label),
            7 => self.remove_attribute_both(random, document, path, label),
            8 | 9 => self.rename_both(random, document, path, label),
            10 if !is_large => self.insert_fragment_both(random, document, path, label),
            11 => self.set_content_both(random, document, path, label),
            12..15 if !is_large => {
                let target = (&*paths[other], &labels[other]);
                self.relocate_both(random, document, (path, label), target)
            }
            _ => (self.delete(path), document.delete(label)),
        };
        match done {
            Err(error @ (XmlStoreError::Engine(_) | XmlStoreError::Label(_))) => Err(error),
            done => {
                assert_eq!(done.is_ok(), may, "{label} at {path:?}: {done:?}");
                Ok(())
            }
        }
    }

    fn insert_both(
        &mut self,
        random: &mut SplitMix64,
        document: &Document<'_>,
        path: &[usize],
        label: &Label,
    ) -> (bool, Result<(), XmlStoreError>) {
        let (element, text) = (name(random), word(random));
        let (node, new) = match random.next_below(6) {
            0..3 => (Node::element(element.clone()), NewNode::Element(&element)),
            3 | 4 => (Node::new(Kind::Text, None, text), NewNode::Text(text)),
            _ if random.next_chance(0.5) => {
                (Node::new(Kind::Comment, None, "c"), NewNode::Comment("c"))
            }
            _ => (
                Node::new(Kind::ProcessingInstruction, Some(QName::local("t")), "d"),
                NewNode::ProcessingInstruction { target: "t", data: "d" },
            ),
        };
        let (place, at) = self.place(random, path, label);
        let may = at.is_some_and(|(parent, index)| self.insert(&parent, index, node));
        (may, document.insert(&place, new).map(|_| ()))
    }

    /// Draws a place at a node. The model's is the parent and the index of the new child, if there
    /// is such a place.
    fn place(
        &mut self,
        random: &mut SplitMix64,
        path: &[usize],
        label: &Label,
    ) -> (Place, Option<(Path, usize)>) {
        let label = label.clone();
        let beside = |after: usize| {
            path.split_last().map(|(&index, parent)| (parent.to_vec(), index + after))
        };
        match random.next_below(4) {
            0 => (Place::First(label), Some((path.to_vec(), 0))),
            1 => (Place::Last(label), Some((path.to_vec(), self.at(path).children.len()))),
            2 => (Place::After(label), beside(1)),
            _ => (Place::Before(label), beside(0)),
        }
    }

    fn insert_fragment_both(
        &mut self,
        random: &mut SplitMix64,
        document: &Document<'_>,
        path: &[usize],
        label: &Label,
    ) -> (bool, Result<(), XmlStoreError>) {
        let (text, nodes) = fragment(random);
        let (place, at) = self.place(random, path, label);
        let may = at.is_some_and(|(parent, index)| self.insert_all((&parent, index), nodes));
        (may, document.insert_xml(&place, text.as_bytes()).map(|_| ()))
    }

    fn relocate_both(
        &mut self,
        random: &mut SplitMix64,
        document: &Document<'_>,
        (path, label): (&[usize], &Label),
        (other_path, other_label): (&[usize], &Label),
    ) -> (bool, Result<(), XmlStoreError>) {
        let (place, at) = self.place(random, other_path, other_label);
        let moves = random.next_chance(0.7);
        let may = at.is_some_and(|(parent, index)| self.relocate(path, (&parent, index), moves));
        let done =
            if moves { document.move_to(label, &place) } else { document.copy_to(label, &place) };
        (may, done.map(|_| ()))
    }

    fn set_content_both(
        &mut self,
        random: &mut SplitMix64,
        document: &Document<'_>,
        path: &[usize],
        label: &Label,
    ) -> (bool, Result<(), XmlStoreError>) {
        let (text, nodes) = fragment(random);
        let node = self.at(path);
        let may = node.kind == Kind::Element;
        if may {
            node.children = nodes;
        }
        (may, document.set_content(label, text.as_bytes()).map(|_| ()))
    }

    fn set_value_both(
        &mut self,
        random: &mut SplitMix64,
        document: &Document<'_>,
        path: &[usize],
        label: &Label,
    ) -> (bool, Result<(), XmlStoreError>) {
        let node = self.at(path);
        let value = if node.kind == Kind::Text { word(random) } else { "v" };
        let may = !matches!(node.kind, Kind::Element | Kind::Document);
        if may {
            value.clone_into(&mut node.content);
        }
        (may, document.set_value(label, value))
    }

    fn set_attribute_both(
        &mut self,
        random: &mut SplitMix64,
        document: &Document<'_>,
        path: &[usize],
        label: &Label,
    ) -> (bool, Result<(), XmlStoreError>) {
        let (name, value) = (name(random), word(random));
        let node = self.at(path);
        let may = node.kind == Kind::Element;
        if may {
            match node.attributes.iter_mut().find(|(other, _)| *other == name) {
                Some((_, old)) => value.clone_into(old),
                None => node.attributes.push((name.clone(), value.to_owned())),
            }
        }
        (may, document.set_attribute(label, &name, value).map(|_| ()))
    }

    fn remove_attribute_both(
        &mut self,
        random: &mut SplitMix64,
        document: &Document<'_>,
        path: &[usize],
        label: &Label,
    ) -> (bool, Result<(), XmlStoreError>) {
        let name = name(random);
        let node = self.at(path);
        let before = node.attributes.len();
        node.attributes.retain(|(other, _)| *other != name);
        let removed = node.attributes.len() < before;
        let done = document.remove_attribute(label, &name);
        let may = node.kind == Kind::Element;
        (may, done.map(|found| assert_eq!(found, removed, "{label}: attribute {name}")))
    }

    fn rename_both(
        &mut self,
        random: &mut SplitMix64,
        document: &Document<'_>,
        path: &[usize],
        label: &Label,
    ) -> (bool, Result<(), XmlStoreError>) {
        let name = name(random);
        let node = self.at(path);
        if !node.attributes.is_empty() && random.next_chance(0.5) {
            let attributes = document.attributes(label);
            let label = match attributes {
                Ok(attributes) => attributes[0].clone(),
                Err(error) => return (true, Err(error)),
            };
            let may = node.attributes[1..].iter().all(|(other, _)| *other != name);
            if may {
                node.attributes[0].0 = name.clone();
            }
            return (may, document.rename(&label, &name));
        }
        let is_plain = name.prefix.is_empty();
        let may = match node.kind {
            Kind::Element => true,
            Kind::ProcessingInstruction => is_plain,
            _ => false,
        };
        if may {
            node.name = Some(name.clone());
        }
        (may, document.rename(label, &name))
    }
}

//! A document as nested vectors, and random changes made to it and to a stored one alike.

use tidegate_random::SplitMix64;
use tidegate_xml::label::Label;
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
    attributes: Vec<(QName, String)>,
    children: Vec<Node>,
}

impl Node {
    fn new(kind: Kind, name: Option<QName>, content: &str) -> Node {
        let (attributes, children) = (Vec::new(), Vec::new());
        Node { kind, name, content: content.to_owned(), attributes, children }
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
}

fn name(random: &mut SplitMix64) -> QName {
    match random.next_below(6) {
        0 => QName { prefix: "p".into(), local: "a".into(), namespace: "urn:p".into() },
        1 => QName { prefix: "p".into(), local: "b".into(), namespace: "urn:p".into() },
        number => QName::local(["a", "b", "c", "d"][number as usize - 2]),
    }
}

fn word(random: &mut SplitMix64) -> &'static str {
    WORDS[random.next_below(6) as usize]
}

impl Model {
    /// The model of [`FIRST`].
    pub(crate) fn new() -> Model {
        let mut document = Node::new(Kind::Document, None, "");
        document.children.push(Node::new(Kind::Element, Some(QName::local("r")), ""));
        Model { document }
    }

    pub(crate) fn tree(&self) -> MemoryTree {
        let mut builder = Builder::new();
        for child in &self.document.children {
            if child.kind == Kind::Element {
                builder.start_element(child.name.clone().unwrap());
                builder.declare("p", "urn:p");
                for (name, value) in &child.attributes {
                    builder.attribute(name.clone(), value);
                }
                child.children.iter().for_each(|child| child.build(&mut builder));
                builder.end_element();
            } else {
                child.build(&mut builder);
            }
        }
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
        let may = match (list.kind, node.kind) {
            (Kind::Document, kind) => !matches!(kind, Kind::Element | Kind::Text),
            (Kind::Element, Kind::Text) => !beside_text,
            (kind, _) => kind == Kind::Element,
        };
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
        let list = &mut self.at(parent).children;
        list.remove(index);
        if index > 0 && index < list.len() {
            let both = [index - 1, index].map(|at| list[at].kind == Kind::Text);
            if both == [true, true] {
                let right = list.remove(index);
                list[index - 1].content.push_str(&right.content);
            }
        }
        true
    }

    /// Makes the same random change to the model and to the document. Changes that a rule forbids
    /// are asked for as well, and have to be refused.
    ///
    /// # Errors
    /// The engine's: nobody knows what was done then.
    pub(crate) fn step(
        &mut self,
        random: &mut SplitMix64,
        document: &Document<'_>,
    ) -> Result<(), XmlStoreError> {
        let below: Vec<Label> =
            document.descendants(&document.root()?)?.collect::<Result<_, _>>()?;
        let paths = self.paths();
        assert_eq!(paths.len(), below.len() + 1, "as many nodes as in the model");
        let pick = random.next_below(u32::try_from(paths.len()).unwrap()) as usize;
        let path = &paths[pick];
        let label = if pick == 0 { Label::document() } else { below[pick - 1].clone() };
        // Keeps documents from growing for ever.
        let deletes = if paths.len() > 60 { 6 } else { 2 };
        let (may, done) = match random.next_below(10 + deletes) {
            0..5 => self.insert_both(random, document, path, &label),
            5 => self.set_value_both(random, document, path, &label),
            6 => self.set_attribute_both(random, document, path, &label),
            7 => self.remove_attribute_both(random, document, path, &label),
            8 | 9 => self.rename_both(random, document, path, &label),
            _ => (self.delete(path), document.delete(&label)),
        };
        match done {
            Err(error @ XmlStoreError::Engine(_)) => Err(error),
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
            0..3 => {
                (Node::new(Kind::Element, Some(element.clone()), ""), NewNode::Element(&element))
            }
            3 | 4 => (Node::new(Kind::Text, None, text), NewNode::Text(text)),
            _ if random.next_chance(0.5) => {
                (Node::new(Kind::Comment, None, "c"), NewNode::Comment("c"))
            }
            _ => (
                Node::new(Kind::ProcessingInstruction, Some(QName::local("t")), "d"),
                NewNode::ProcessingInstruction { target: "t", data: "d" },
            ),
        };
        let (place, may) = match random.next_below(4) {
            0 => (Place::First(label.clone()), self.insert(path, 0, node)),
            1 => {
                let count = self.at(path).children.len();
                (Place::Last(label.clone()), self.insert(path, count, node))
            }
            side => {
                let after = usize::from(side == 2);
                let may = match path.split_last() {
                    Some((&index, parent)) => self.insert(parent, index + after, node),
                    None => false,
                };
                let label = label.clone();
                (if after == 1 { Place::After(label) } else { Place::Before(label) }, may)
            }
        };
        (may, document.insert(&place, new).map(|_| ()))
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

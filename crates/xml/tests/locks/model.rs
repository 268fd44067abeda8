//! A document in memory, of which each operation says what it has to return.

use std::collections::HashMap;

use tidegate_xml::label::Label;
use tidegate_xml::parse::{Event, XmlReader};
use tidegate_xml::store::Place;

use super::steps::{New, Seen, Step};

/// Number of a node of a [`Model`]. That of a node that was removed is not given again.
pub(crate) type Id = usize;

/// The document node.
pub(crate) const DOCUMENT: Id = 0;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Document,
    Element { name: String, attributes: Vec<(String, String)> },
    Text(String),
}

#[derive(Clone, Debug)]
struct Node {
    label: Label,
    parent: Id,
    what: What,
    children: Vec<Id>,
}

/// A document in memory. Its nodes have the labels that the store has told.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    nodes: Vec<Node>,
    by_label: HashMap<Label, Id>,
}

/// Why an operation is refused, or what is wrong with what the store did.
type Done<T> = Result<T, Refusal>;

enum Refusal {
    Rule,
    Wrong(String),
}

/// A place in a list of children.
struct Gap {
    parent: Id,
    index: usize,
}

impl Model {
    /// Reads a document whose nodes below the document node have these labels in document order.
    pub(crate) fn new(text: &str, labels: Vec<Label>) -> Model {
        let mut model = Model { nodes: Vec::new(), by_label: HashMap::new() };
        model.add(Label::document(), DOCUMENT, What::Document);
        let (mut labels, mut open) = (labels.into_iter(), vec![DOCUMENT]);
        let mut reader = XmlReader::new(text.as_bytes());
        while let Some(event) = reader.next_event().unwrap() {
            let what = match event {
                Event::StartElement { name, attributes } => {
                    let pair = |attribute: &tidegate_xml::parse::Attribute| {
                        (attribute.name.local.to_string(), attribute.value.clone())
                    };
                    let attributes = attributes.iter().map(pair).collect();
                    What::Element { name: name.local.to_string(), attributes }
                }
                Event::Text(text) => What::Text(text.to_owned()),
                Event::EndElement { .. } => {
                    open.pop();
                    continue;
                }
                _ => continue,
            };
            let is_element = matches!(what, What::Element { .. });
            let parent = *open.last().unwrap();
            let id = model.add(labels.next().unwrap(), parent, what);
            model.nodes[parent].children.push(id);
            if is_element {
                open.push(id);
            }
        }
        assert_eq!(labels.next(), None);
        model
    }

    fn add(&mut self, label: Label, parent: Id, what: What) -> Id {
        let id = self.nodes.len();
        self.by_label.insert(label.clone(), id);
        self.nodes.push(Node { label, parent, what, children: Vec::new() });
        id
    }

    /// Returns the nodes of a subtree in document order, its top first.
    pub(crate) fn below(&self, top: Id) -> Vec<Id> {
        let mut found = vec![top];
        for &child in &self.nodes[top].children {
            found.extend(self.below(child));
        }
        found
    }

    pub(crate) fn label(&self, node: Id) -> &Label {
        &self.nodes[node].label
    }

    pub(crate) fn what(&self, node: Id) -> &What {
        &self.nodes[node].what
    }

    pub(crate) fn children(&self, node: Id) -> &[Id] {
        &self.nodes[node].children
    }

    pub(crate) fn parent(&self, node: Id) -> Option<Id> {
        (node != DOCUMENT).then(|| self.nodes[node].parent)
    }

    pub(crate) fn find(&self, label: &Label) -> Option<Id> {
        self.by_label.get(label).copied()
    }

    /// Returns the place of a node among the children of its parent.
    pub(crate) fn index(&self, node: Id) -> usize {
        let list = &self.nodes[self.nodes[node].parent].children;
        list.iter().position(|&child| child == node).unwrap()
    }

    /// Returns the name of an element.
    pub(crate) fn name(&self, node: Id) -> Option<&str> {
        match &self.nodes[node].what {
            What::Element { name, .. } => Some(name),
            _ => None,
        }
    }

    pub(crate) fn attribute(&self, node: Id, wanted: &str) -> Option<&str> {
        let What::Element { attributes, .. } = &self.nodes[node].what else { return None };
        attributes.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
    }

    /// Returns the names from the root element to the node; a text has those of its element.
    pub(crate) fn path(&self, node: Id) -> Vec<&str> {
        let mut names: Vec<&str> = self.name(node).into_iter().collect();
        let mut above = self.parent(node);
        while let Some(node) = above {
            names.extend(self.name(node));
            above = self.parent(node);
        }
        names.reverse();
        names
    }

    /// Returns the names of attributes in alphabetical order, and values.
    fn sorted_attributes(&self, node: Id) -> Vec<(String, String)> {
        let What::Element { attributes, .. } = &self.nodes[node].what else { return Vec::new() };
        let mut all = attributes.clone();
        all.sort();
        all
    }

    fn describe(&self, node: Id) -> String {
        match &self.nodes[node].what {
            What::Document => "Document".to_owned(),
            What::Element { name, .. } => format!("<{name}>"),
            What::Text(text) => format!("[{text}]"),
        }
    }

    pub(crate) fn subtree(&self, node: Id) -> String {
        let mut text = self.describe(node);
        let children = &self.nodes[node].children;
        if node == DOCUMENT {
            return children.iter().map(|&child| self.subtree(child)).collect();
        }
        for (name, value) in self.sorted_attributes(node) {
            text.extend(["@", &name, "=", &value]);
        }
        for &child in children {
            text += &self.subtree(child);
        }
        if self.name(node).is_some() {
            text += "</>";
        }
        text
    }

    fn found(&self, node: Option<Id>) -> Seen {
        let labels = node.iter().map(|&node| self.nodes[node].label.clone()).collect();
        Seen::Done { labels, text: node.map(|node| self.describe(node)).unwrap_or_default() }
    }

    /// Does the step. Returns what it has to return beside new labels, which `seen` tells.
    ///
    /// # Errors
    /// A description of what is wrong with new labels in `seen`.
    pub(crate) fn apply(&mut self, step: &Step, seen: &Seen) -> Result<Seen, String> {
        let done = if step.reads() { self.read(step) } else { self.write(step, seen.labels()) };
        match done {
            Ok(seen) => Ok(seen),
            Err(Refusal::Rule) => Ok(Seen::Refused),
            Err(Refusal::Wrong(what)) => Err(what),
        }
    }

    fn node(&self, label: &Label) -> Done<Id> {
        self.find(label).ok_or(Refusal::Rule)
    }

    fn read(&self, step: &Step) -> Done<Seen> {
        let text = |text| Ok(Seen::Done { labels: Vec::new(), text });
        let beside = |label: &Label, forward: bool| {
            let node = self.node(label)?;
            let Some(parent) = self.parent(node) else { return Ok(self.found(None)) };
            let index = self.index(node);
            let at = if forward { index.checked_add(1) } else { index.checked_sub(1) };
            Ok(self.found(at.and_then(|at| self.nodes[parent].children.get(at).copied())))
        };
        match step {
            Step::Node(node) => text(self.describe(self.node(node)?)),
            Step::Path(node) => {
                let names = self.path(self.node(node)?);
                text(names.join("/"))
            }
            Step::Parent(node) => Ok(self.found(self.parent(self.node(node)?))),
            Step::First(node) => {
                Ok(self.found(self.nodes[self.node(node)?].children.first().copied()))
            }
            Step::Last(node) => {
                Ok(self.found(self.nodes[self.node(node)?].children.last().copied()))
            }
            Step::Next(node) => beside(node, true),
            Step::Previous(node) => beside(node, false),
            Step::Children(node) => {
                let children = &self.nodes[self.node(node)?].children;
                let labels = children.iter().map(|&child| self.nodes[child].label.clone());
                let text = children.iter().map(|&child| self.describe(child)).collect();
                Ok(Seen::Done { labels: labels.collect(), text })
            }
            Step::Subtree(node) => text(self.subtree(self.node(node)?)),
            Step::Attribute(node, name) => {
                text(format!("{:?}", self.attribute(self.node(node)?, name)))
            }
            Step::Attributes(node) => {
                text(format!("{:?}", self.sorted_attributes(self.node(node)?)))
            }
            _ => Ok(Seen::Done { labels: self.look_up(step), text: String::new() }),
        }
    }

    fn look_up(&self, step: &Step) -> Vec<Label> {
        let wanted = |node: &Id| match step {
            Step::Named(name) => self.name(*node) == Some(name),
            Step::OnPath(names) => self.name(*node).is_some() && self.path(*node) == *names,
            Step::WithText(value) => self.nodes[*node].what == What::Text(value.clone()),
            Step::WithId(value) => self.attribute(*node, "id") == Some(value),
            other => panic!("{other:?} asks no index"),
        };
        let found = self.below(DOCUMENT).into_iter().filter(wanted);
        found.map(|node| self.nodes[node].label.clone()).collect()
    }

    fn write(&mut self, step: &Step, labels: &[Label]) -> Done<Seen> {
        let mut seen = String::new();
        let mut moved = Vec::new();
        match step {
            Step::SetText(node, value) => {
                let node = self.node(node)?;
                let What::Text(text) = &mut self.nodes[node].what else {
                    return Err(Refusal::Rule);
                };
                value.clone_into(text);
            }
            Step::Rename(node, new) => {
                let node = self.node(node)?;
                let What::Element { name, .. } = &mut self.nodes[node].what else {
                    return Err(Refusal::Rule);
                };
                (*new).clone_into(name);
            }
            Step::SetAttribute(node, name, value) => self.set_attribute(node, name, value)?,
            Step::RemoveAttribute(node, name) => {
                let attributes = self.attributes(node)?;
                let before = attributes.len();
                attributes.retain(|(own, _)| own != name);
                seen = (attributes.len() < before).to_string();
            }
            Step::RenameAttribute(node, from, to) => {
                // Asking for an attribute of what is no element finds none.
                let Ok(attributes) = self.attributes(node) else {
                    return Ok(Seen::Done { labels: moved, text: "none".to_owned() });
                };
                let has = |wanted: &str| attributes.iter().position(|(own, _)| own == wanted);
                match (has(from), has(to)) {
                    (None, _) => "none".clone_into(&mut seen),
                    (Some(at), Some(other)) if at != other => return Err(Refusal::Rule),
                    (Some(at), _) => (*to).clone_into(&mut attributes[at].0),
                }
            }
            Step::Insert(place, new) => {
                self.insert(place, new, labels)?;
                moved = labels.to_vec();
            }
            Step::Delete(node) => {
                let node = self.node(node)?;
                if node == DOCUMENT || self.parent(node) == Some(DOCUMENT) {
                    return Err(Refusal::Rule);
                }
                self.remove(node);
            }
            Step::Move(node, place) => moved = self.relocate(node, place, labels)?,
            other => panic!("{other:?} changes nothing"),
        }
        Ok(Seen::Done { labels: moved, text: seen })
    }

    fn attributes(&mut self, node: &Label) -> Done<&mut Vec<(String, String)>> {
        let node = self.node(node)?;
        match &mut self.nodes[node].what {
            What::Element { attributes, .. } => Ok(attributes),
            _ => Err(Refusal::Rule),
        }
    }

    fn set_attribute(&mut self, node: &Label, name: &str, value: &str) -> Done<()> {
        let attributes = self.attributes(node)?;
        match attributes.iter_mut().find(|(own, _)| own == name) {
            Some((_, old)) => value.clone_into(old),
            None => attributes.push((name.to_owned(), value.to_owned())),
        }
        Ok(())
    }

    fn gap(&self, place: &Place) -> Done<Gap> {
        match place {
            Place::Before(node) | Place::After(node) => {
                let node = self.node(node)?;
                let parent = self.parent(node).ok_or(Refusal::Rule)?;
                let after = usize::from(matches!(place, Place::After(_)));
                Ok(Gap { parent, index: self.index(node) + after })
            }
            Place::First(node) => Ok(Gap { parent: self.node(node)?, index: 0 }),
            Place::Last(node) => {
                let parent = self.node(node)?;
                Ok(Gap { parent, index: self.nodes[parent].children.len() })
            }
        }
    }

    /// Returns the neighbours of a gap.
    fn around(&self, gap: &Gap) -> [Option<Id>; 2] {
        let children = &self.nodes[gap.parent].children;
        let at = |index: Option<usize>| index.and_then(|index| children.get(index).copied());
        [at(gap.index.checked_sub(1)), at(Some(gap.index))]
    }

    fn is_text(&self, node: Option<Id>) -> bool {
        node.is_some_and(|node| matches!(self.nodes[node].what, What::Text(_)))
    }

    fn insert(&mut self, place: &Place, new: &New, labels: &[Label]) -> Done<()> {
        let gap = self.gap(place)?;
        if self.name(gap.parent).is_none() {
            return Err(Refusal::Rule);
        }
        let element = |name: &str, attributes| What::Element { name: name.to_owned(), attributes };
        let nodes = match new {
            New::Element(name) => vec![element(name, Vec::new())],
            New::Text(text) => vec![What::Text(text.clone())],
            New::Fragment(name, id, text) => {
                let attributes = vec![("id".to_owned(), id.clone())];
                let child = element("q", Vec::new());
                vec![element(name, attributes), child, What::Text(text.clone())]
            }
        };
        let is_text = matches!(new, New::Text(_));
        if is_text && self.around(&gap).iter().any(|&beside| self.is_text(beside)) {
            return Err(Refusal::Rule);
        }
        if labels.len() != nodes.len() {
            let count = labels.len();
            return Err(Refusal::Wrong(format!("it has {count} labels and not {}", nodes.len())));
        }
        let mut parent = gap.parent;
        for (depth, (what, label)) in nodes.into_iter().zip(labels).enumerate() {
            self.check_new(label)?;
            let node = self.add(label.clone(), parent, what);
            let index = if depth == 0 { gap.index } else { 0 };
            self.nodes[parent].children.insert(index, node);
            self.check_order(node)?;
            parent = node;
        }
        Ok(())
    }

    fn check_new(&self, label: &Label) -> Done<()> {
        if self.by_label.contains_key(label) {
            return Err(Refusal::Wrong(format!("another node has the label {label}")));
        }
        Ok(())
    }

    /// Checks that a node's label is that of a child of its parent and between its neighbours'.
    fn check_order(&self, node: Id) -> Done<()> {
        let Node { label, parent, .. } = &self.nodes[node];
        let index = self.index(node);
        let [left, _] = self.around(&Gap { parent: *parent, index });
        let [_, right] = self.around(&Gap { parent: *parent, index: index + 1 });
        let is_between = left.is_none_or(|left| self.nodes[left].label < *label)
            && right.is_none_or(|right| *label < self.nodes[right].label);
        if !is_between || label.parent().as_ref() != Some(&self.nodes[*parent].label) {
            return Err(Refusal::Wrong(format!("the label {label} does not suit its place")));
        }
        Ok(())
    }

    /// Removes a node with all that is below it, and joins texts on both sides of it.
    fn remove(&mut self, node: Id) {
        for node in self.below(node) {
            self.by_label.remove(&self.nodes[node].label.clone());
        }
        let (parent, index) = (self.nodes[node].parent, self.index(node));
        self.nodes[parent].children.remove(index);
        self.join(&Gap { parent, index });
    }

    /// Makes one text of two on both sides of a gap.
    fn join(&mut self, gap: &Gap) {
        let [Some(left), Some(right)] = self.around(gap) else { return };
        let What::Text(rest) = self.nodes[right].what.clone() else { return };
        let What::Text(text) = &mut self.nodes[left].what else { return };
        text.push_str(&rest);
        self.nodes[gap.parent].children.remove(gap.index);
        let label = self.nodes[right].label.clone();
        self.by_label.remove(&label);
    }

    /// Moves a node; returns the labels that the store has to tell.
    fn relocate(&mut self, node: &Label, place: &Place, labels: &[Label]) -> Done<Vec<Label>> {
        let node = self.node(node)?;
        if node == DOCUMENT || self.parent(node) == Some(DOCUMENT) {
            return Err(Refusal::Rule);
        }
        let gap = self.gap(place)?;
        let subtree = self.below(node);
        let label_of = |model: &Model, &id: &Id| model.nodes[id].label.clone();
        let around = self.around(&gap);
        if around.contains(&Some(node)) {
            return Ok(subtree.iter().map(|id| label_of(self, id)).collect());
        }
        if subtree.contains(&gap.parent) || self.name(gap.parent).is_none() {
            return Err(Refusal::Rule);
        }
        let is_text = self.is_text(Some(node));
        if is_text && self.is_text(around[0]) {
            let left = around[0].unwrap();
            let What::Text(more) = self.nodes[node].what.clone() else { unreachable!() };
            if let What::Text(text) = &mut self.nodes[left].what {
                text.push_str(&more);
            }
            self.remove(node);
            return Ok(vec![label_of(self, &left)]);
        }
        if labels.len() != subtree.len() {
            let (count, nodes) = (labels.len(), subtree.len());
            return Err(Refusal::Wrong(format!("it has {count} labels and not {nodes}")));
        }
        // A copy at the new place, then the old one goes.
        let mut copies: HashMap<Id, Id> = HashMap::new();
        for (original, label) in subtree.iter().zip(labels) {
            self.check_new(label)?;
            let old = self.nodes[*original].clone();
            let parent = copies.get(&old.parent).copied();
            let copy = self.add(label.clone(), parent.unwrap_or(gap.parent), old.what);
            match parent {
                Some(parent) => self.nodes[parent].children.push(copy),
                None => self.nodes[gap.parent].children.insert(gap.index, copy),
            }
            copies.insert(*original, copy);
            self.check_order(copy)?;
        }
        if is_text {
            self.join(&Gap { parent: gap.parent, index: gap.index + 1 });
        }
        self.remove(node);
        Ok(labels.to_vec())
    }
}

//! What an operation reads and writes, for the truth about conflicts.
//!
//! Two operations conflict if one writes what the other reads or writes. That is a conflict in the
//! sense of the theory of serializability, whether or not these two would give the same results in
//! both orders.

use std::collections::BTreeSet;

use tidegate_xml::label::Label;
use tidegate_xml::store::Place;

use super::model::{Id, Model, What};
use super::steps::{New, Step};

/// What can be read or written of a document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    /// That the node is there, and where.
    Existence(Id),
    /// Its name, if it is an element, or its content, if it is a text.
    Own(Id),
    /// The gap before the child of this index, or behind the last child.
    Gap(Id, usize),
    /// The value of an attribute of this name or that there is none.
    Attribute(Id, String),
    /// The set of all elements of this name.
    Named(String),
    /// The set of all elements with these names from the root element on.
    OnPath(Vec<String>),
    /// The set of all texts of this content.
    WithText(String),
    /// The set of all elements with this attribute `id`.
    WithId(String),
}

impl Item {
    /// Returns whether it is a set of nodes.
    fn is_set(&self) -> bool {
        matches!(self, Item::Named(_) | Item::OnPath(_) | Item::WithText(_) | Item::WithId(_))
    }
}

/// What an operation reads and writes.
#[derive(Debug, Default)]
pub(crate) struct Footprint {
    reads: BTreeSet<Item>,
    writes: BTreeSet<Item>,
}

/// The names of attributes in these tests.
const ATTRIBUTES: [&str; 3] = ["id", "k", "z"];

impl Footprint {
    /// Returns whether one writes what the other reads or writes. Two that put different nodes
    /// into the same set do not conflict in it.
    pub(crate) fn conflicts(&self, other: &Footprint) -> bool {
        let both_write = |item: &Item| !item.is_set() && other.writes.contains(item);
        self.writes.iter().any(|item| other.reads.contains(item) || both_write(item))
            || other.writes.iter().any(|item| self.reads.contains(item))
    }

    /// Returns what a step reads and writes of a document in which it is allowed.
    pub(crate) fn of(step: &Step, model: &Model) -> Footprint {
        let mut all = Footprint::default();
        if step.reads() {
            all.add_reader(step, model);
        } else {
            all.add_writer(step, model);
        }
        all
    }

    fn read(&mut self, item: Item) {
        self.reads.insert(item);
    }

    fn write(&mut self, item: Item) {
        self.writes.insert(item);
    }

    fn read_node(&mut self, node: Id) {
        self.read(Item::Existence(node));
        self.read(Item::Own(node));
    }

    fn add_reader(&mut self, step: &Step, model: &Model) {
        let id = |label: &Label| model.find(label).expect("the step is allowed");
        match step {
            Step::Node(node) => self.read_node(id(node)),
            Step::Path(node) => {
                let mut above = Some(id(node));
                self.read(Item::Existence(id(node)));
                while let Some(node) = above {
                    if model.name(node).is_some() {
                        self.read(Item::Own(node));
                    }
                    above = model.parent(node);
                }
            }
            Step::Parent(node) => {
                // The parent is known from the label.
                model.parent(id(node)).into_iter().for_each(|parent| self.read_node(parent));
            }
            Step::First(node) => self.read_edge(model, id(node), 0, true),
            Step::Last(node) => {
                let count = model.children(id(node)).len();
                self.read_edge(model, id(node), count, false);
            }
            Step::Next(node) | Step::Previous(node) => {
                let (node, forward) = (id(node), matches!(step, Step::Next(_)));
                self.read(Item::Existence(node));
                if let Some(parent) = model.parent(node) {
                    let index = model.index(node) + usize::from(forward);
                    self.read_gap(model, parent, index, forward);
                }
            }
            Step::Children(node) => {
                let node = id(node);
                self.read(Item::Existence(node));
                let children = model.children(node);
                (0..=children.len()).for_each(|index| self.read(Item::Gap(node, index)));
                for &child in children {
                    self.read_node(child);
                }
            }
            Step::Subtree(node) => {
                for node in model.below(id(node)) {
                    self.read_node(node);
                    let count = model.children(node).len();
                    (0..=count).for_each(|index| self.read(Item::Gap(node, index)));
                    self.read_attributes(node);
                }
            }
            Step::Attribute(node, name) => {
                self.read(Item::Existence(id(node)));
                self.read(Item::Attribute(id(node), (*name).to_owned()));
            }
            Step::Attributes(node) => {
                self.read(Item::Existence(id(node)));
                self.read_attributes(id(node));
            }
            Step::Named(name) => self.read(Item::Named((*name).to_owned())),
            Step::OnPath(names) => self.read(Item::OnPath(owned(names))),
            Step::WithText(value) => self.read(Item::WithText(value.clone())),
            Step::WithId(value) => self.read(Item::WithId(value.clone())),
            other => panic!("{other:?} does not read only"),
        }
    }

    fn read_attributes(&mut self, node: Id) {
        for name in ATTRIBUTES {
            self.read(Item::Attribute(node, name.to_owned()));
        }
    }

    /// Reads the gap at one end of a list and the child there.
    fn read_edge(&mut self, model: &Model, node: Id, index: usize, is_first: bool) {
        self.read(Item::Existence(node));
        self.read_gap(model, node, index, is_first);
    }

    /// Reads a gap and the child that is behind it in this direction.
    fn read_gap(&mut self, model: &Model, parent: Id, index: usize, forward: bool) {
        self.read(Item::Gap(parent, index));
        let at = if forward { Some(index) } else { index.checked_sub(1) };
        let reached = at.and_then(|at| model.children(parent).get(at));
        if let Some(&reached) = reached {
            self.read_node(reached);
        }
    }

    fn add_writer(&mut self, step: &Step, model: &Model) {
        let id = |label: &Label| model.find(label).expect("the step is allowed");
        match step {
            Step::SetText(node, value) => {
                let node = id(node);
                self.read(Item::Existence(node));
                self.write(Item::Own(node));
                self.write(Item::WithText(value.clone()));
                if let What::Text(old) = model.what(node) {
                    self.write(Item::WithText(old.clone()));
                }
            }
            Step::Rename(node, new) => {
                let node = id(node);
                self.read(Item::Existence(node));
                self.write(Item::Own(node));
                self.write(Item::Named((*new).to_owned()));
                let depth = model.path(node).len() - 1;
                for below in model.below(node) {
                    let mut path = owned(&model.path(below));
                    self.write(Item::OnPath(path.clone()));
                    (*new).clone_into(&mut path[depth]);
                    self.write(Item::OnPath(path));
                }
                self.write(Item::Named(model.name(node).unwrap().to_owned()));
            }
            Step::SetAttribute(node, name, value) => {
                self.write_attribute(model, id(node), name);
                if *name == "id" {
                    self.write(Item::WithId(value.clone()));
                }
            }
            Step::RemoveAttribute(node, name) => self.write_attribute(model, id(node), name),
            Step::RenameAttribute(node, from, to) => {
                let node = id(node);
                self.write_attribute(model, node, from);
                self.write_attribute(model, node, to);
                if let ("id", Some(value)) = (*to, model.attribute(node, from)) {
                    self.write(Item::WithId(value.to_owned()));
                }
            }
            Step::Insert(place, new) => self.add_insertion(model, place, new),
            Step::Delete(node) => self.write_removal(model, id(node)),
            Step::Move(node, place) => {
                let node = id(node);
                self.write_removal(model, node);
                let parent = self.write_place(model, place);
                let depth = model.path(node).len() - 1;
                for below in model.below(node) {
                    let mut path = owned(&model.path(parent));
                    path.extend(owned(&model.path(below)[depth..]));
                    self.write(Item::OnPath(path));
                }
            }
            other => panic!("{other:?} writes nothing"),
        }
    }

    fn write_attribute(&mut self, model: &Model, node: Id, name: &str) {
        self.read(Item::Existence(node));
        self.write(Item::Attribute(node, name.to_owned()));
        if let ("id", Some(old)) = (name, model.attribute(node, name)) {
            self.write(Item::WithId(old.to_owned()));
        }
    }

    fn add_insertion(&mut self, model: &Model, place: &Place, new: &New) {
        let parent = self.write_place(model, place);
        let path = owned(&model.path(parent));
        let mut element = |names: &[&str]| {
            self.writes.insert(Item::Named((*names.last().unwrap()).to_owned()));
            self.writes.insert(Item::OnPath([path.clone(), owned(names)].concat()));
        };
        match new {
            New::Element(name) => element(&[name]),
            New::Text(text) => self.write(Item::WithText(text.clone())),
            New::Fragment(name, value, text) => {
                element(&[name]);
                element(&[name, "q"]);
                self.write(Item::WithId(value.clone()));
                self.write(Item::WithText(text.clone()));
            }
        }
    }

    /// Writes the gap of a place; returns the parent.
    fn write_place(&mut self, model: &Model, place: &Place) -> Id {
        let (Place::Before(beside)
        | Place::After(beside)
        | Place::First(beside)
        | Place::Last(beside)) = place;
        let beside = model.find(beside).expect("the step is allowed");
        self.read(Item::Existence(beside));
        let (parent, index) = match place {
            Place::First(_) => (beside, 0),
            Place::Last(_) => (beside, model.children(beside).len()),
            Place::Before(_) => (model.parent(beside).unwrap(), model.index(beside)),
            Place::After(_) => (model.parent(beside).unwrap(), model.index(beside) + 1),
        };
        self.read(Item::Existence(parent));
        self.write(Item::Gap(parent, index));
        parent
    }

    /// Writes all of a subtree and the gaps on both sides of it.
    fn write_removal(&mut self, model: &Model, top: Id) {
        let (parent, index) = (model.parent(top).unwrap(), model.index(top));
        self.write(Item::Gap(parent, index));
        self.write(Item::Gap(parent, index + 1));
        for node in model.below(top) {
            self.write(Item::Existence(node));
            self.write(Item::Own(node));
            let count = model.children(node).len();
            (0..=count).for_each(|index| self.write(Item::Gap(node, index)));
            for name in ATTRIBUTES {
                self.write_attribute(model, node, name);
            }
            if let What::Text(text) = model.what(node) {
                self.write(Item::WithText(text.clone()));
            } else {
                self.write(Item::Named(model.name(node).unwrap().to_owned()));
                self.write(Item::OnPath(owned(&model.path(node))));
            }
        }
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

//! Changes of many nodes at once, against a naive tree.

use std::num::NonZeroU16;
use std::ops::ControlFlow;

use tidegate_random::SplitMix64;
use tidegate_xml::label::Label;
use tidegate_xml::serialize::text_as_xml;
use tidegate_xml::store::{Document, DocumentOptions, InnerNodes, Place, XmlStoreError};
use tidegate_xml::tree::Tree;
use tidegate_xml::xpath::Prefixes;

use super::{canonical, dump, load, new_store};

/// An element with a name, or a text without one.
#[derive(Debug, Clone, Default)]
struct Node {
    name: Option<&'static str>,
    text: String,
    attribute: Option<&'static str>,
    children: Vec<Node>,
    is_target: bool,
    is_destination: bool,
}

impl Node {
    fn element(name: &'static str, children: Vec<Node>) -> Node {
        Node { name: Some(name), children, ..Node::default() }
    }

    fn text(text: &str) -> Node {
        Node { text: text.to_owned(), ..Node::default() }
    }

    fn random(random: &mut SplitMix64, depth: u32) -> Node {
        let mut node = Node::element(["a", "b"][random.next_below(2) as usize], Vec::new());
        for _ in 0..random.next_below(5) {
            if random.next_chance(0.4) {
                node.children.push(Node::text(["t", "u<"][random.next_below(2) as usize]));
            } else if depth > 0 {
                node.children.push(Node::random(random, depth - 1));
            }
        }
        node.join();
        node
    }

    fn join(&mut self) {
        self.children.retain(|child| child.name.is_some() || !child.text.is_empty());
        self.children.dedup_by(|right, left| {
            let both = left.name.is_none() && right.name.is_none();
            if both {
                left.text.push_str(&right.text);
            }
            both
        });
        self.children.iter_mut().for_each(Node::join);
    }

    fn write(&self) -> String {
        let Some(name) = self.name else { return text_as_xml(&self.text) };
        let children: String = self.children.iter().map(Node::write).collect();
        let attribute = self.attribute.map_or(String::new(), |value| format!(" k='{value}'"));
        format!("<{name}{attribute}>{children}</{name}>")
    }

    /// All nodes in document order.
    fn each(&mut self, visit: &mut dyn FnMut(&mut Node)) {
        visit(self);
        self.children.iter_mut().for_each(|child| child.each(visit));
    }

    /// Replaces each child that is a target by what `with` makes of it, innermost targets first.
    fn replace(&mut self, with: &dyn Fn(Node) -> Vec<Node>) {
        let children = std::mem::take(&mut self.children);
        for mut child in children {
            child.replace(with);
            if child.is_target {
                self.children.extend(with(child));
            } else {
                self.children.push(child);
            }
        }
    }

    /// Takes the outermost targets out.
    fn take(&mut self, taken: &mut Vec<Node>) {
        let children = std::mem::take(&mut self.children);
        for mut child in children {
            if child.is_target {
                taken.push(child);
            } else {
                child.take(taken);
                self.children.push(child);
            }
        }
    }

    fn put(&mut self, how: usize, nodes: &[Node]) {
        if self.is_destination && how >= 2 {
            let at = if how == 2 { 0 } else { self.children.len() };
            self.children.splice(at..at, nodes.iter().cloned());
        }
        if let Some(at) = self.children.iter().position(|child| child.is_destination)
            && how < 2
        {
            self.children.splice(at + how..at + how, nodes.iter().cloned());
        }
        self.children.iter_mut().filter(|child| !child.is_target).for_each(|c| c.put(how, nodes));
    }
}

const PLACES: [fn(Label) -> Place; 4] = [Place::Before, Place::After, Place::First, Place::Last];

/// Text to insert, and the nodes that it stands for.
fn fragment(number: u32) -> (&'static str, Vec<Node>) {
    let x = || Node::element("x", vec![Node::text("v")]);
    match number {
        0 => ("t", vec![Node::text("t")]),
        1 => ("<x>v</x>", vec![x()]),
        2 => ("t<x>v</x>", vec![Node::text("t"), x()]),
        _ => ("<x>v</x>t", vec![x(), Node::text("t")]),
    }
}

/// Chooses targets and returns their labels: a share of all nodes but the root element.
fn choose(
    random: &mut SplitMix64,
    model: &mut Node,
    document: &Document<'_>,
    is_possible: impl Fn(&Node) -> bool,
) -> Vec<Label> {
    let root = document.root().unwrap();
    let labels: Vec<Label> = document.descendants(&root).unwrap().map(Result::unwrap).collect();
    let (mut targets, mut all) = (Vec::new(), labels.iter());
    let share = f64::from(random.next_below(3)) * 0.3 + 0.1;
    model.each(&mut |node| {
        let label = all.next().unwrap();
        let is_root = *label == Label::root();
        if !is_root && is_possible(node) && random.next_chance(share) {
            node.is_target = true;
            targets.push(label.clone());
        }
    });
    assert_eq!(all.next(), None, "as many nodes as in the model");
    targets
}

/// Makes a random change to both. Returns `None` if the store refused it.
fn change(
    random: &mut SplitMix64,
    model: &mut Node,
    document: &Document<'_>,
) -> Option<(u64, usize)> {
    let prefixes = Prefixes::new();
    let is_element = |node: &Node| node.name.is_some();
    let operation = random.next_below(7);
    let place = random.next_below(4) as usize;
    let targets = choose(random, model, document, |node| match operation {
        0 => place < 2 || is_element(node),
        3..=5 => is_element(node),
        _ => true,
    });
    let count = targets.len();
    let changed = match operation {
        0 => {
            let (text, nodes) = fragment(random.next_below(4));
            model.replace(&|mut node| match place {
                0 => nodes.iter().cloned().chain([node]).collect(),
                1 => [node].into_iter().chain(nodes.iter().cloned()).collect(),
                _ => {
                    let at = if place == 2 { 0 } else { node.children.len() };
                    node.children.splice(at..at, nodes.iter().cloned());
                    vec![node]
                }
            });
            document.insert_at_each(&targets, PLACES[place], text).unwrap()
        }
        1 => {
            model.replace(&|_| Vec::new());
            let mut expected = targets.clone();
            expected.dedup_by(|below, above| above.is_ancestor_of(below));
            let deleted = document.delete_each(&targets).unwrap();
            assert_eq!(deleted, expected.len() as u64);
            return Some((deleted, expected.len()));
        }
        2 => {
            let value = ["", "new <"][random.next_below(2) as usize];
            model.replace(&|node| match node.name {
                Some(_) => vec![Node { children: vec![Node::text(value)], ..node }],
                None => vec![Node::text(value)],
            });
            document.set_value_of_each(&targets, value).unwrap()
        }
        3 => {
            model.replace(&|node| vec![Node { name: Some("n"), ..node }]);
            document.rename_each(&targets, "n", &prefixes).unwrap()
        }
        4 => {
            model.replace(&|node| vec![Node { attribute: Some("w"), ..node }]);
            document.set_attribute_of_each(&targets, "k", &prefixes, "w").unwrap()
        }
        5 => {
            model.replace(&|node| vec![Node { attribute: None, ..node }]);
            document.remove_attribute_of_each(&targets, "k", &prefixes).unwrap();
            count as u64
        }
        _ => return relocate(random, model, document, &targets, place),
    };
    Some((changed, count))
}

fn relocate(
    random: &mut SplitMix64,
    model: &mut Node,
    document: &Document<'_>,
    targets: &[Label],
    place: usize,
) -> Option<(u64, usize)> {
    let root = document.root().unwrap();
    let labels: Vec<Label> = document.descendants(&root).unwrap().map(Result::unwrap).collect();
    let pick = random.next_below(u32::try_from(labels.len()).unwrap()) as usize;
    let destination = &labels[pick];
    let is_inside = |target: &Label| target == destination || target.is_ancestor_of(destination);
    let (mut at, mut is_element) = (0, false);
    model.each(&mut |node| {
        node.is_destination = at == pick;
        is_element |= node.is_destination && node.name.is_some();
        at += 1;
    });
    let is_possible = if place < 2 { pick > 0 } else { is_element };
    if targets.iter().any(is_inside) || !is_possible {
        return None;
    }
    let mut taken = Vec::new();
    model.take(&mut taken);
    model.put(place, &taken);
    match document.move_each(targets, &PLACES[place](destination.clone())) {
        Ok(moved) => Some((moved, taken.len())),
        Err(XmlStoreError::NoSuchNode(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn many_nodes_are_changed_as_in_a_naive_tree() {
    let (mut refused, mut total) = (0, 0);
    for seed in 0..120 {
        let mut random = SplitMix64::new(seed);
        let mut model = Node::random(&mut random, 4);
        let store = new_store(seed);
        let options = DocumentOptions {
            // Now and then so short that nodes get new labels.
            label_max: [500, 12][random.next_below(2) as usize],
            distance: NonZeroU16::MIN,
            inner_nodes: [InnerNodes::Stored, InnerNodes::Virtual][random.next_below(2) as usize],
            ..DocumentOptions::default()
        };
        let text = model.write();
        store.load("d", options, text.as_bytes(), |_| ControlFlow::Continue(())).unwrap();
        let transaction = store.begin();
        let document = transaction.document_to_update("d").unwrap();
        for step in 0..6 {
            let before = dump(&document);
            let mut changed = model.clone();
            let counts = change(&mut random, &mut changed, &document);
            changed.each(&mut |node| {
                (node.is_target, node.is_destination) = (false, false);
            });
            changed.join();
            total += 1;
            match counts {
                Some((ours, expected)) => {
                    assert_eq!(ours, expected as u64, "seed {seed}, step {step}");
                    model = changed;
                }
                None => refused += 1,
            }
            let case = format!("seed {seed}, step {step}, before:\n{before}");
            assert_eq!(dump(&document), canonical(&model.write()), "{case}");
            assert_eq!(document.check().unwrap(), [], "{case}");
        }
    }
    assert!(refused * 8 < total, "{refused} of {total} were refused");
}

#[test]
fn a_change_that_fails_at_one_node_is_made_at_none() {
    let store = new_store(1);
    load(&store, "d", "<r><a/><b/>t</r>").unwrap();
    let transaction = store.begin();
    let document = transaction.document_to_update("d").unwrap();
    let before = dump(&document);
    let root = document.first_child(&document.root().unwrap()).unwrap().unwrap();
    let all: Vec<Label> = document.children(&root).unwrap().map(Result::unwrap).collect();
    let prefixes = Prefixes::new();
    let with_root = [std::slice::from_ref(&root), &all].concat();
    for result in [
        document.insert_at_each(&with_root, Place::After, "<x/>"),
        document.insert_at_each(&all, Place::First, "<x/>"),
        document.insert_at_each(&all, Place::After, "<x>"),
        document.set_value_of_each(&all, "\0"),
        document.rename_each(&all, "n", &prefixes),
        document.rename_each(&all[..2], "q:n", &prefixes),
        document.rename_each(&all[..2], "a:b:c", &prefixes.clone().with("a", "urn:a")),
        document.set_attribute_of_each(&all, "k", &prefixes, "v"),
        document.remove_attribute_of_each(&all, "k", &prefixes),
        document.move_each(&all, &Place::Last(all[1].clone())),
        document.delete_each(&with_root),
    ] {
        let error = result.unwrap_err();
        assert_eq!(dump(&document), before, "{error}");
    }
}

#[test]
fn names_of_updates_have_the_namespaces_of_their_place() {
    let store = new_store(1);
    load(&store, "d", "<r xmlns='urn:d' xmlns:p='urn:p'><a/></r>").unwrap();
    let transaction = store.begin();
    let document = transaction.document_to_update("d").unwrap();
    let root = document.first_child(&document.root().unwrap()).unwrap().unwrap();
    let a = [document.first_child(&root).unwrap().unwrap()];
    let prefixes = Prefixes::new().with("q", "urn:q");
    document.set_attribute_of_each(&a, "p:k", &prefixes, "1").unwrap();
    document.set_attribute_of_each(&a, "k", &prefixes, "2").unwrap();
    document.rename_each(&a, "b", &prefixes).unwrap();
    let expected = r#"<r xmlns="urn:d" xmlns:p="urn:p"><b p:k="1" k="2"/></r>"#;
    assert_eq!(dump(&document), canonical(expected));
    document.rename_each(&a, "q:b", &prefixes).unwrap();
    assert_eq!(&*document.name(&a[0]).unwrap().unwrap().namespace, "urn:q");
}

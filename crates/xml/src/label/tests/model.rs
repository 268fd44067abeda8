//! Labels against a plain tree of nodes in which each list of siblings is a `Vec`.

use std::collections::BTreeMap;

use tidegate_random::SplitMix64;

use super::super::{Label, LabelRange, LabelRole, Level, Siblings};
use super::RULES;

/// A list of siblings.
#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    Namespaces,
    Attributes,
    Children,
}

struct Node {
    label: Label,
    role: LabelRole,
    /// Index in the tree. An attribute's is its element.
    parent: Option<usize>,
    level: Level,
    /// Indices of the namespace nodes, attributes and children.
    lists: [Vec<usize>; 3],
    /// Index in its list of the sibling that was inserted last, for each list.
    newest: [usize; 3],
    deleted: bool,
}

impl Node {
    fn new(label: Label, role: LabelRole, parent: Option<usize>, level: Level) -> Node {
        Node {
            label,
            role,
            parent,
            level,
            lists: Default::default(),
            newest: [0; 3],
            deleted: false,
        }
    }
}

struct Tree {
    nodes: Vec<Node>,
    random: SplitMix64,
}

impl Tree {
    fn new(seed: u64) -> Tree {
        let document = Node::new(Label::document(), LabelRole::Document, None, Level::Document);
        let root = Node::new(Label::root(), LabelRole::Child, Some(0), Level::Node(0));
        let mut tree = Tree { nodes: vec![document, root], random: SplitMix64::new(seed) };
        tree.nodes[0].lists[List::Children as usize].push(1);
        tree
    }

    fn below(&mut self, end: usize) -> usize {
        self.random.next_below(u32::try_from(end).unwrap()) as usize
    }

    /// Draws a node that is not deleted. Every other time it is one of the first, so that some
    /// lists become long.
    fn draw(&mut self) -> usize {
        let end = if self.random.next_chance(0.5) { self.nodes.len() } else { 20 };
        loop {
            let drawn = self.below(end.min(self.nodes.len()));
            if !self.nodes[drawn].deleted {
                return drawn;
            }
        }
    }

    /// Draws a list, and a place in it: an end, beside the node inserted last, or any.
    fn draw_gap(&mut self, parent: usize) -> (List, usize) {
        let list = match self.below(8) {
            0 if self.nodes[parent].role == LabelRole::Child => List::Namespaces,
            1 | 2 if self.nodes[parent].role == LabelRole::Child => List::Attributes,
            _ => List::Children,
        };
        let length = self.nodes[parent].lists[list as usize].len();
        let newest = self.nodes[parent].newest[list as usize].min(length);
        let gap = match self.below(5) {
            0 => 0,
            1 => length,
            2 => newest,
            3 => (newest + 1).min(length),
            _ => self.below(length + 1),
        };
        (list, gap)
    }

    fn siblings(&self, parent: usize, list: List) -> Siblings {
        let label = &self.nodes[parent].label;
        match list {
            List::Namespaces => label.namespaces(RULES),
            List::Attributes => label.attributes(RULES),
            List::Children => label.children(RULES),
        }
    }

    fn insert(&mut self) {
        let parent = self.draw();
        let (list, gap) = self.draw_gap(parent);
        let nodes = &self.nodes[parent].lists[list as usize];
        let label_of = |index: usize| nodes.get(index).map(|&node| &self.nodes[node].label);
        let left = gap.checked_sub(1).and_then(label_of);
        let label = self.siblings(parent, list).at(left, label_of(gap)).unwrap();
        let (role, down) = match list {
            List::Namespaces => (LabelRole::Namespace, 2),
            List::Attributes => (LabelRole::Attribute, 2),
            List::Children => (LabelRole::Child, 1),
        };
        let level = match self.nodes[parent].level {
            Level::Document => 0,
            Level::Node(level) => level + down,
        };
        let index = self.nodes.len();
        self.nodes.push(Node::new(label, role, Some(parent), Level::Node(level)));
        self.nodes[parent].lists[list as usize].insert(gap, index);
        self.nodes[parent].newest[list as usize] = gap;
    }

    /// Deletes a node with all that is below it, but not one of the first.
    fn delete(&mut self) {
        let node = self.draw();
        let Some(parent) = self.nodes[node].parent.filter(|_| node >= 20) else { return };
        for list in &mut self.nodes[parent].lists {
            list.retain(|&index| index != node);
        }
        let mut rest = vec![node];
        while let Some(node) = rest.pop() {
            self.nodes[node].deleted = true;
            rest.extend(self.nodes[node].lists.iter().flatten());
        }
    }

    /// Returns the nodes in document order.
    fn walk(&self) -> Vec<usize> {
        let (mut order, mut rest) = (Vec::new(), vec![0]);
        while let Some(node) = rest.pop() {
            order.push(node);
            rest.extend(self.nodes[node].lists.iter().rev().flat_map(|list| list.iter().rev()));
        }
        order
    }

    fn path(&self, node: usize) -> Vec<usize> {
        let mut path: Vec<_> =
            std::iter::successors(Some(node), |&node| self.nodes[node].parent).collect();
        path.reverse();
        path
    }

    fn check(&mut self) {
        let order = self.walk();
        assert!(order.is_sorted_by(|&a, &b| self.nodes[a].label < self.nodes[b].label));
        for &index in &order {
            let node = &self.nodes[index];
            assert_eq!((node.label.level(), node.label.role()), (node.level, node.role));
            assert_eq!(Label::from_bytes(node.label.as_bytes()).as_ref(), Ok(&node.label));
            let parent = match node.role {
                LabelRole::Namespace | LabelRole::Attribute => node.label.owner(),
                _ => node.label.parent(),
            };
            assert_eq!(parent.as_ref(), node.parent.map(|parent| &self.nodes[parent].label));
        }
        let keys: BTreeMap<_, _> =
            order.iter().map(|&node| (self.nodes[node].label.clone(), node)).collect();
        for _ in 0..order.len().min(1_000) {
            let (left, right) = (order[self.below(order.len())], order[self.below(order.len())]);
            self.check_pair(left, right);
            self.check_ranges(left, &keys);
        }
    }

    fn check_pair(&self, left: usize, right: usize) {
        let (left_path, right_path) = (self.path(left), self.path(right));
        let shared = left_path.iter().zip(&right_path).take_while(|(a, b)| a == b);
        let common = *shared.last().unwrap().0;
        let label = |node: usize| &self.nodes[node].label;
        // Two attributes of an element meet at its attribute root.
        let mut nearest = label(left).nearest_common_ancestor(label(right));
        if matches!(nearest.role(), LabelRole::AttributeRoot | LabelRole::NamespaceRoot) {
            nearest = nearest.owner().unwrap();
        }
        assert_eq!(&nearest, label(common), "{} {}", label(left), label(right));
        assert_eq!(label(left).is_ancestor_of(label(right)), common == left && left != right);
        let below_document = left_path.iter().map(|&node| &self.nodes[node]);
        for node in below_document {
            assert_eq!(label(left).ancestor_at(node.level).as_ref(), Some(&node.label));
        }
    }

    fn check_ranges(&self, node: usize, keys: &BTreeMap<Label, usize>) {
        let in_range = |range: LabelRange| keys.range::<[u8], _>(range).map(|(_, &node)| node);
        let [namespaces, attributes, children] = [0, 1, 2].map(|list| {
            let mut below = Vec::new();
            let mut rest: Vec<_> = self.nodes[node].lists[list].iter().rev().copied().collect();
            while let Some(node) = rest.pop() {
                below.push(node);
                let lists = self.nodes[node].lists.iter().rev();
                rest.extend(lists.flat_map(|list| list.iter().rev()));
            }
            below
        });
        let label = &self.nodes[node].label;
        assert!(in_range(label.namespaces_range()).eq(namespaces.iter().copied()));
        assert!(in_range(label.attributes_range()).eq(attributes.iter().copied()));
        assert!(in_range(label.children_range()).eq(children.iter().copied()));
        let all = [node].into_iter().chain(namespaces).chain(attributes).chain(children);
        assert!(in_range(label.subtree()).eq(all));
    }
}

/// Inserts and deletes nodes and checks the tree `checks` times on the way.
fn run(seed: u64, insertions: u32, checks: u32) {
    println!("seed {seed}");
    let mut tree = Tree::new(seed);
    for _ in 0..checks {
        for _ in 0..insertions / checks {
            tree.insert();
            if tree.random.next_chance(0.1) {
                tree.delete();
            }
        }
        tree.check();
    }
    let longest = tree.nodes.iter().map(|node| node.label.as_bytes().len()).max();
    println!("longest label: {longest:?} bytes, nodes: {}", tree.nodes.len());
}

#[test]
fn labels_agree_with_a_plain_tree() {
    for seed in 0..50 {
        run(seed, 100, 20);
    }
    for seed in 0..5 {
        run(seed, 20_000, 2);
    }
}

#[test]
#[ignore = "soak: millions of insertions"]
fn labels_agree_with_a_plain_tree_for_long() {
    for seed in 100..105 {
        run(seed, 1_000_000, 3);
    }
}

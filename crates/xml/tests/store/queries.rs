//! Queries on stored documents: with indexes and scans as by walks from node to node.

use std::cmp::Ordering;

use tidegate_engine::TxnOptions;
use tidegate_random::SplitMix64;
use tidegate_xml::label::Label;
use tidegate_xml::name::QName;
use tidegate_xml::store::{Document, InnerNodes, LockProtocol, Locking, XmlStoreError};
use tidegate_xml::tree::{Binding, Kind, Tree};
use tidegate_xml::xpath::{Environment, Item, Prefixes, Query, Value};

use super::absolute::{document, expression};
use super::indexes::create;
use super::{load_as, new_store};

/// A document without what makes queries faster: neither scans nor indexes.
struct Walked<'d, 't>(&'d Document<'t>);

impl Tree for Walked<'_, '_> {
    type Node = Label;
    type Error = XmlStoreError;

    fn root(&self) -> Result<Label, XmlStoreError> {
        self.0.root()
    }

    fn kind(&self, node: &Label) -> Result<Kind, XmlStoreError> {
        self.0.kind(node)
    }

    fn name(&self, node: &Label) -> Result<Option<QName>, XmlStoreError> {
        self.0.name(node)
    }

    fn content(&self, node: &Label) -> Result<String, XmlStoreError> {
        self.0.content(node)
    }

    fn parent(&self, node: &Label) -> Result<Option<Label>, XmlStoreError> {
        self.0.parent(node)
    }

    fn first_child(&self, node: &Label) -> Result<Option<Label>, XmlStoreError> {
        self.0.first_child(node)
    }

    fn last_child(&self, node: &Label) -> Result<Option<Label>, XmlStoreError> {
        self.0.last_child(node)
    }

    fn next_sibling(&self, node: &Label) -> Result<Option<Label>, XmlStoreError> {
        self.0.next_sibling(node)
    }

    fn previous_sibling(&self, node: &Label) -> Result<Option<Label>, XmlStoreError> {
        self.0.previous_sibling(node)
    }

    fn attributes(&self, node: &Label) -> Result<Vec<Label>, XmlStoreError> {
        self.0.attributes(node)
    }

    fn declarations(&self, node: &Label) -> Result<Vec<Binding>, XmlStoreError> {
        self.0.declarations(node)
    }

    fn compare(&self, a: &Label, b: &Label) -> Result<Ordering, XmlStoreError> {
        self.0.compare(a, b)
    }

    fn element_by_id(&self, id: &str) -> Result<Option<Label>, XmlStoreError> {
        self.0.element_by_id(id)
    }
}

fn nodes(tree: &impl Tree<Node = Label>, query: &str, context: &Label) -> Vec<Label> {
    nodes_in(tree, query, context, &Environment::default())
}

fn nodes_in(
    tree: &impl Tree<Node = Label>,
    query: &str,
    context: &Label,
    environment: &Environment<Label>,
) -> Vec<Label> {
    let query = Query::parse(query, &Prefixes::new()).unwrap();
    match query.evaluate(tree, context, environment).unwrap() {
        Value::Nodes(items) => items
            .into_iter()
            .map(|item| match item {
                Item::Node(label) => label,
                Item::Namespace { .. } => panic!("no namespaces are asked for"),
            })
            .collect(),
        other => panic!("a path has nodes, not {other:?}"),
    }
}

fn index(random: &mut SplitMix64, count: usize) -> usize {
    random.next_below(u32::try_from(count).unwrap()) as usize
}

/// Steps on any axis but that of namespaces.
fn steps(random: &mut SplitMix64) -> String {
    let all = [
        "self",
        "parent",
        "ancestor",
        "ancestor-or-self",
        "child",
        "child",
        "descendant",
        "descendant-or-self",
        "attribute",
        "following",
        "following-sibling",
        "preceding",
        "preceding-sibling",
    ];
    let step = |random: &mut SplitMix64| {
        let mut pick = |list: &[&'static str]| list[index(random, list.len())];
        let axis = pick(&all);
        let test = pick(&["*", "node()", "text()", "comment()", "a", "b", "c"]);
        let predicate = pick(&["", "", "", "[1]", "[last()]", "[@a]", "[text()]", "[. = 'x']"]);
        format!("{axis}::{test}{predicate}")
    };
    let count = 1 + random.next_below(3);
    let steps: Vec<String> = (0..count).map(|_| step(random)).collect();
    steps.join("/")
}

both!(answers_are_the_same_by_scans_as_by_walks);
fn answers_are_the_same_by_scans_as_by_walks(inner: InnerNodes) {
    let mut found = 0;
    for seed in 1..=8 {
        let mut random = SplitMix64::new(seed);
        let store = new_store(seed);
        load_as(inner, &store, "d", &document(&mut random)).unwrap();
        let transaction = store.begin();
        let document = transaction.document("d").unwrap();
        let mut contexts = nodes(&Walked(&document), "//node() | //@*", &Label::document());
        contexts.push(Label::document());
        for _ in 0..200 {
            let query = steps(&mut random);
            let context = &contexts[index(&mut random, contexts.len())];
            let by_scans = nodes(&document, &query, context);
            let by_walks = nodes(&Walked(&document), &query, context);
            assert_eq!(by_scans, by_walks, "seed {seed}, {query} from {context}");
            found += usize::from(!by_scans.is_empty());
        }
    }
    assert!(found > 250, "only {found} queries found something");
}

both!(answers_are_the_same_with_indexes_as_without);
fn answers_are_the_same_with_indexes_as_without(inner: InnerNodes) {
    let definitions = [
        "name",
        "path",
        "content text",
        "content number",
        "cas text",
        "cas number",
        "cas text //@a",
    ];
    let mut found = 0;
    for seed in 1..=12 {
        let mut random = SplitMix64::new(seed);
        let store = new_store(seed);
        load_as(inner, &store, "d", &document(&mut random)).unwrap();
        for definition in definitions.iter().filter(|_| random.next_chance(0.5)) {
            create(&store, definition, definition).unwrap();
        }
        let transaction = store.begin();
        let document = transaction.document("d").unwrap();
        for _ in 0..250 {
            let query = expression(&mut random);
            let with = nodes(&document, &query, &Label::document());
            let environment = Environment::default().without_indexes();
            let without = nodes_in(&document, &query, &Label::document(), &environment);
            assert_eq!(with, without, "seed {seed}, {query}");
            found += usize::from(!with.is_empty());
        }
    }
    assert!(found > 600, "only {found} queries found something");
}

/// The nodes below one, by walks from node to node in two ways.
fn walked(document: &Document<'_>, node: &Label, found: &mut [Vec<Label>; 2]) {
    for child in document.children(node).unwrap() {
        let child = child.unwrap();
        found[0].push(child.clone());
        let mut both = [Vec::new(), Vec::new()];
        walked(document, &child, &mut both);
        found[0].append(&mut both[0]);
    }
    let mut next = document.first_child(node).unwrap();
    while let Some(child) = next {
        found[1].push(child.clone());
        if document.kind(&child).unwrap() == Kind::Element {
            let mut both = [Vec::new(), Vec::new()];
            walked(document, &child, &mut both);
            found[1].append(&mut both[1]);
        }
        next = document.next_sibling(&child).unwrap();
    }
}

both!(walks_through_many_nodes_and_long_texts_find_all);
fn walks_through_many_nodes_and_long_texts_find_all(inner: InnerNodes) {
    let store = new_store(21);
    let long = "x".repeat(100_000);
    let children = (0..700).map(|number| {
        let content = if number == 350 { &long } else { "y" };
        format!("<a n='{number}' m='1'>{content}<b><c/></b></a>")
    });
    let text = format!("<r>{}</r>", children.collect::<Vec<_>>().concat());
    load_as(inner, &store, "d", &text).unwrap();
    for protocol in [LockProtocol::document(), LockProtocol::mgl(), LockProtocol::tadom()] {
        let transaction = store.begin_locking(Locking::by(protocol), TxnOptions::default());
        let document = transaction.document("d").unwrap();
        let mut found = [Vec::new(), Vec::new()];
        walked(&document, &Label::document(), &mut found);
        let all = document.descendants(&Label::document()).unwrap();
        let all: Vec<Label> = all.collect::<Result<_, _>>().unwrap();
        assert_eq!(all.len(), 1 + 4 * 700);
        assert_eq!(found, [all.clone(), all]);
        let numbers = nodes(&document, "//a/@n", &Label::document());
        assert_eq!(numbers.len(), 700);
        let last = document.content(&numbers[699]).unwrap();
        assert_eq!(last, "699");
    }
}

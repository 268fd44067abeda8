//! Indexes: against a walk, built beside updates, and damaged.

use std::ops::ControlFlow;

use tidegate_engine::TxnOptions;
use tidegate_random::SplitMix64;
use tidegate_xml::label::Label;
use tidegate_xml::name::QName;
use tidegate_xml::store::{Document, IndexDefinition, InnerNodes, XmlStore, XmlStoreError};
use tidegate_xml::tree::{Below, Comparand, Kind, PathTest, Pattern, Relation, Tree};

use super::model::{FIRST, Model};
use super::{load_as, new_disk, new_store, open};

pub(super) const DEFINITIONS: [&str; 6] =
    ["name", "path", "content text", "content number", "cas text", "cas number //@a //text()"];

pub(super) fn create(store: &XmlStore, name: &str, definition: &str) -> Result<(), XmlStoreError> {
    let definition: IndexDefinition = definition.parse().unwrap();
    store.create_index("d", name, &definition, |_| ControlFlow::Continue(()))
}

/// All nodes that pass, by a walk in document order.
fn walk(document: &Document<'_>, passes: impl Fn(&Label) -> bool) -> Vec<Label> {
    let mut found = Vec::new();
    for node in document.descendants(&document.root().unwrap()).unwrap() {
        let node = node.unwrap();
        let attributes = match document.kind(&node).unwrap() {
            Kind::Element => document.attributes(&node).unwrap(),
            _ => Vec::new(),
        };
        found.extend([node].into_iter().chain(attributes).filter(|node| passes(node)));
    }
    found
}

fn answer(document: &Document<'_>, pattern: &Pattern<'_>) -> Option<Vec<Label>> {
    let nodes = document.matching(pattern).unwrap()?;
    Some(nodes.collect::<Result<_, _>>().unwrap())
}

/// Compares answers with a walk. Returns how many came from an index.
fn compare(document: &Document<'_>, case: &str) -> usize {
    assert_eq!(document.check().unwrap(), [], "{case}");
    let a = QName::local("a");
    let is = |node: &Label, kind| document.kind(node).unwrap() == kind;
    let named = |node: &Label| document.has_name(node, &a).unwrap();
    let mut answered = 0;
    let mut expect = |path: PathTest<'_>, content, expected: Vec<Label>| {
        let pattern = Pattern { path: vec![(Below::Anywhere, path)], content };
        if let Some(found) = answer(document, &pattern) {
            assert_eq!(found, expected, "{case}: {pattern:?}");
            answered += 1;
        }
    };
    let elements = walk(document, |node| is(node, Kind::Element) && named(node));
    expect(PathTest::Element(Some(&a)), None, elements);
    let attributes = walk(document, |node| is(node, Kind::Attribute) && named(node));
    expect(PathTest::Attribute(Some(&a)), None, attributes);
    for text in ["w", "two words", "absent", "w\0"] {
        let content = Some((Relation::Equal, Comparand::Text(text)));
        let is_text = |node: &Label| document.content(node).unwrap() == text;
        let expected = walk(document, |node| is(node, Kind::Text) && is_text(node));
        expect(PathTest::Text, content, expected);
    }
    answered
}

both!(answers_are_those_of_a_walk_whatever_changes);
fn answers_are_those_of_a_walk_whatever_changes(inner: InnerNodes) {
    for seed in 1..=6 {
        let mut random = SplitMix64::new(seed);
        let store = new_store(seed);
        load_as(inner, &store, "d", FIRST).unwrap();
        let mut model = Model::new();
        let mut answered = 0;
        for round in 0..30 {
            let case = format!("seed {seed}, round {round}");
            let definition = DEFINITIONS[random.next_below(6) as usize];
            if random.next_chance(0.3) {
                store.drop_index("d", definition).unwrap();
            } else if store.indexes("d").unwrap().iter().all(|index| index.name != definition) {
                create(&store, definition, definition).unwrap();
            }
            let transaction = store.begin();
            let document = transaction.document_to_update("d").unwrap();
            let before = model.clone();
            for _ in 0..random.next_below(20) {
                model.step(&mut random, &document).unwrap();
            }
            let savepoint = transaction.savepoint();
            let mut lost = model.clone();
            for _ in 0..random.next_below(10) {
                lost.step(&mut random, &document).unwrap();
            }
            transaction.roll_back_to(savepoint).unwrap();
            answered += compare(&document, &case);
            drop(document);
            if random.next_chance(0.3) {
                drop(transaction);
                model = before;
            } else {
                transaction.commit().unwrap();
            }
        }
        assert!(answered > 0, "seed {seed}");
    }
}

both!(numbers_and_long_texts_are_found_exactly);
fn numbers_and_long_texts_are_found_exactly(inner: InnerNodes) {
    let (long, other) = ("x".repeat(200), format!("{}y", "x".repeat(199)));
    let store = new_store(1);
    let text = format!("<r><p>{long}</p><p>{other}</p><p> 7 </p><p>-3.5</p><p>7e1</p></r>");
    load_as(inner, &store, "d", &text).unwrap();
    create(&store, "t", "cas text //p/text()").unwrap();
    create(&store, "n", "content number").unwrap();
    let transaction = store.begin();
    let document = transaction.document("d").unwrap();
    let p = QName::local("p");
    let count = |relation, comparand| {
        let path =
            vec![(Below::Anywhere, PathTest::Element(Some(&p))), (Below::Directly, PathTest::Text)];
        answer(&document, &Pattern { path, content: Some((relation, comparand)) }).unwrap().len()
    };
    assert_eq!(count(Relation::Equal, Comparand::Text(&long)), 1);
    assert_eq!(count(Relation::Equal, Comparand::Text(&long[1..])), 0);
    assert_eq!(count(Relation::Equal, Comparand::Number(7.0)), 1);
    assert_eq!(count(Relation::Less, Comparand::Number(7.0)), 1);
    assert_eq!(count(Relation::GreaterOrEqual, Comparand::Number(-3.5)), 2);
    assert_eq!(count(Relation::Greater, Comparand::Number(f64::NAN)), 0);
}

both!(a_damaged_index_is_found);
fn a_damaged_index_is_found(inner: InnerNodes) {
    let store = new_store(1);
    load_as(inner, &store, "d", "<r><a/><b/></r>").unwrap();
    create(&store, "names", "name").unwrap();
    let tree = store.engine().tree("xml index 0.0").unwrap();
    let mut inner = store.engine().begin(TxnOptions::default());
    let (mut key, value) = inner.first(&tree).unwrap().unwrap();
    inner.remove(&tree, &key).unwrap();
    key[0] = 9;
    inner.put(&tree, &key, &value).unwrap();
    inner.commit().unwrap();
    let transaction = store.begin();
    let found = transaction.document("d").unwrap().check().unwrap();
    let what: Vec<_> = found.iter().map(|problem| problem.what).collect();
    let missing = "the index has no entry of the node";
    assert_eq!(what, [missing, "the index has an entry that is not the node's"]);
    assert!(found.iter().all(|problem| problem.index.as_deref() == Some("names")));
}

both!(a_build_is_cancelled_and_an_index_outlives_the_store);
fn a_build_is_cancelled_and_an_index_outlives_the_store(inner: InnerNodes) {
    let disk = new_disk(1);
    let store = open(&disk).unwrap();
    load_as(inner, &store, "d", &format!("<r>{}</r>", "<a/>".repeat(3_000))).unwrap();
    let trees = store.engine().trees();
    let definition = "name".parse().unwrap();
    let stopped = store.create_index("d", "n", &definition, |_| ControlFlow::Break(()));
    assert!(matches!(stopped, Err(XmlStoreError::IndexCancelled)), "{stopped:?}");
    assert_eq!(store.engine().trees(), trees);
    create(&store, "n", "name").unwrap();
    assert!(matches!(create(&store, "n", "name"), Err(XmlStoreError::IndexExists(_))));
    store.close().unwrap();
    let store = open(&disk).unwrap();
    assert!(store.indexes("d").unwrap()[0].is_ready);
    let transaction = store.begin();
    compare(&transaction.document("d").unwrap(), "opened again");
}

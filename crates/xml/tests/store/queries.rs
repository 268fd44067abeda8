//! Queries on stored documents: with indexes as without.

use tidegate_random::SplitMix64;
use tidegate_xml::label::Label;
use tidegate_xml::store::{Document, InnerNodes};
use tidegate_xml::tree::Tree;
use tidegate_xml::xpath::{Environment, Item, Prefixes, Query, Value};

use super::absolute::{document, expression};
use super::indexes::create;
use super::{load_as, new_store};

fn nodes(document: &Document<'_>, query: &str, environment: &Environment<Label>) -> Vec<String> {
    let root = document.root().unwrap();
    let query = Query::parse(query, &Prefixes::new()).unwrap();
    match query.evaluate(document, &root, environment).unwrap() {
        Value::Nodes(items) => items
            .iter()
            .map(|item| match item {
                Item::Node(label) => label.to_string(),
                Item::Namespace { .. } => panic!("no namespaces are asked for"),
            })
            .collect(),
        other => panic!("a path has nodes, not {other:?}"),
    }
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
            let with = nodes(&document, &query, &Environment::default());
            let without = nodes(&document, &query, &Environment::default().without_indexes());
            assert_eq!(with, without, "seed {seed}, {query}");
            found += usize::from(!with.is_empty());
        }
    }
    assert!(found > 600, "only {found} queries found something");
}

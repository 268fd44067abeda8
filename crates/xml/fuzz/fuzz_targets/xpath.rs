//! Text as an expression: it is refused, or has a value on a small tree, with and without indexes
//! alike, whose nodes are in document order and there once each.

#![no_main]

use std::cmp::Ordering;

use libfuzzer_sys::fuzz_target;
use tidegate_xml::name::QName;
use tidegate_xml::tree::Tree;
use tidegate_xml::tree::memory::{Builder, MemoryTree};
use tidegate_xml::xpath::{Environment, Item, Prefixes, Query, Value};

/// Steps and predicates of an expression that is evaluated: its time may be exponential in them.
const STEPS_MAX: usize = 6;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let prefixes = Prefixes::new().with("p", "urn:p");
    let query = match Query::parse(text, &prefixes) {
        Ok(query) => query,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let tree = tree();
    let environment = Environment::default();
    assert!(!query.explain(&tree, &environment).is_empty());
    let steps = text.matches(['/', '[', '|', '(', ':']).count();
    if text.len() > 200 || steps > STEPS_MAX {
        return;
    }
    for node in tree.nodes() {
        let value = query.evaluate(&tree, &node, &environment);
        if let Ok(Value::Nodes(nodes)) = &value {
            for pair in nodes.windows(2) {
                if let [Item::Node(one), Item::Node(other)] = pair {
                    let order = tree.compare(one, other).expect("it is in memory");
                    assert_eq!(order, Ordering::Less, "{text}: {nodes:?}");
                }
            }
            let first = query.boolean(&tree, &node, &environment);
            assert_eq!(first, Ok(!nodes.is_empty()), "{text}");
        }
        let walked = query.evaluate(&tree, &node, &Environment::default().without_indexes());
        // NaN is no equal of itself.
        assert_eq!(format!("{value:?}"), format!("{walked:?}"), "{text}");
    }
});

fn tree() -> MemoryTree {
    let prefixed =
        |local: &str| QName { prefix: "p".into(), local: local.into(), namespace: "urn:p".into() };
    let mut builder = Builder::new();
    builder.comment("c");
    builder.start_element(QName::local("a"));
    builder.declare("p", "urn:p");
    builder.attribute(QName::local("a"), "1");
    builder.text("12");
    for text in ["b", " 7 "] {
        builder.start_element(prefixed("a"));
        builder.id("i");
        builder.attribute(prefixed("b"), text);
        builder.text(text);
        builder.start_element(QName::local("b"));
        builder.end_element();
        builder.end_element();
    }
    builder.processing_instruction("a", "d");
    builder.end_element();
    builder.finish()
}

//! What happens when a label would be longer than the document allows.

use std::fmt::Write as _;
use std::ops::ControlFlow;

use tidegate_random::SplitMix64;
use tidegate_xml::label::{Label, LabelError};
use tidegate_xml::name::QName;
use tidegate_xml::store::{
    Document, DocumentOptions, InnerNodes, NewNode, Place, XmlStore, XmlStoreError,
};
use tidegate_xml::tree::Tree;

use super::model::{FIRST, Model};
use super::{compare, dump, in_memory, new_store};

/// A store with one document whose labels have at most `label_max` bytes.
fn store_with(inner_nodes: InnerNodes, text: &str, label_max: u16, seed: u64) -> XmlStore {
    let store = new_store(seed);
    let options = DocumentOptions { label_max, inner_nodes, ..DocumentOptions::default() };
    store.load("d", options, text.as_bytes(), |_| ControlFlow::Continue(())).unwrap();
    store
}

/// Inserts elements named by their numbers on alternating sides of the last one, below `parent`,
/// which has no children. Returns the numbers in document order and the label of the last one.
fn alternate(document: &Document<'_>, parent: &Label, count: usize) -> (Vec<usize>, Label) {
    let name = |number| QName::local(&format!("n{number}"));
    let mut at = document.insert(&Place::Last(parent.clone()), NewNode::Element(&name(0))).unwrap();
    let (mut order, mut index) = (vec![0], 0);
    for number in 1..count {
        let place = match number % 2 {
            0 => Place::After(at),
            _ => Place::Before(at),
        };
        index += usize::from(number % 2 == 0);
        order.insert(index, number);
        at = document.insert(&place, NewNode::Element(&name(number))).unwrap();
    }
    (order, at)
}

fn written(order: &[usize], last: &str) -> String {
    let one = |number: &usize| {
        let content = if number + 1 == order.len() { last } else { "" };
        format!("<n{number}>{content}</n{number}>")
    };
    order.iter().map(one).collect()
}

both!(a_list_is_labelled_anew_when_a_label_would_be_too_long);
fn a_list_is_labelled_anew_when_a_label_would_be_too_long(inner: InnerNodes) {
    let store = store_with(inner, "<r><a/></r>", 40, 1);
    let transaction = store.begin();
    let document = transaction.document_to_update("d").unwrap();
    let a = document.first_child(&Label::root()).unwrap().unwrap();
    let (order, _) = alternate(&document, &a, 1_000);
    let relabelled = document.take_relabelled();
    assert!(relabelled.len() > 1 && relabelled.iter().all(|list| *list == a), "{relabelled:?}");
    assert_eq!(document.take_relabelled(), []);
    let expected = format!("<r><a>{}</a></r>", written(&order, ""));
    compare(&document, &in_memory(&expected), "1,000 insertions");
    for label in document.descendants(&Label::document()).unwrap() {
        assert!(label.unwrap().as_bytes().len() <= 40);
    }
}

both!(lists_above_are_labelled_anew_if_that_is_what_helps);
fn lists_above_are_labelled_anew_if_that_is_what_helps(inner: InnerNodes) {
    let store = store_with(inner, "<r><a/><b><c/>x</b></r>", 40, 1);
    let transaction = store.begin();
    let document = transaction.document_to_update("d").unwrap();
    let a = document.first_child(&Label::root()).unwrap().unwrap();
    let b = document.next_sibling(&a).unwrap().unwrap();
    // The last label has nearly 40 bytes, so few levels fit below it.
    let (order, mut inner) = alternate(&document, &a, 240);
    assert_eq!(document.take_relabelled(), []);
    let mut content = String::new();
    for depth in 0..10 {
        let name = QName::local(&format!("d{depth}"));
        inner = document.insert(&Place::First(inner), NewNode::Element(&name)).unwrap();
        write!(content, "<d{depth}>").unwrap();
    }
    assert_eq!(document.take_relabelled(), *std::slice::from_ref(&a));
    document.copy_to(&b, &Place::Last(inner)).unwrap();
    content.push_str("<b><c/>x</b>");
    (0..10).rev().for_each(|depth| write!(content, "</d{depth}>").unwrap());
    let all = written(&order, &content);
    let expected = format!("<r><a>{all}</a><b><c/>x</b></r>");
    compare(&document, &in_memory(&expected), "ten levels below a worn list");
}

both!(a_node_that_is_too_deep_is_refused_and_changes_nothing);
fn a_node_that_is_too_deep_is_refused_and_changes_nothing(inner: InnerNodes) {
    let store = store_with(inner, "<r/>", 40, 1);
    let transaction = store.begin();
    let document = transaction.document_to_update("d").unwrap();
    let name = QName::local("n");
    let mut at = Label::root();
    let error = loop {
        match document.insert(&Place::First(at.clone()), NewNode::Element(&name)) {
            Ok(label) => at = label,
            Err(error) => break error,
        }
    };
    assert_eq!(at.as_bytes().len(), 40);
    let before = dump(&document);
    assert!(matches!(error, XmlStoreError::Label(LabelError::TooLong { .. })), "{error}");
    let place = Place::First(at);
    assert!(document.insert(&place, NewNode::Text("x")).is_err());
    assert!(document.insert_xml(&place, &b"<a/>"[..]).is_err());
    assert_eq!(dump(&document), before);
    assert_eq!(document.check().unwrap(), []);
    assert_eq!(document.take_relabelled(), []);
}

both!(random_changes_under_a_tight_limit_are_those_of_the_model);
fn random_changes_under_a_tight_limit_are_those_of_the_model(inner: InnerNodes) {
    let (mut relabelled, mut refused) = (0, 0);
    for seed in 1..=6 {
        let mut random = SplitMix64::new(seed);
        let store = store_with(inner, FIRST, 9, seed);
        let mut model = Model::new();
        let transaction = store.begin();
        let document = transaction.document_to_update("d").unwrap();
        for step in 0..400 {
            if !model.step_within_limits(&mut random, &document).unwrap() {
                refused += 1;
            }
            if step % 20 == 0 {
                compare(&document, &model.tree(), &format!("seed {seed}, step {step}"));
            }
        }
        relabelled += document.take_relabelled().len();
    }
    assert!(relabelled > 0 && refused > 0, "{relabelled} relabelled, {refused} refused");
}

both!(labels_come_back_when_the_transaction_is_rolled_back);
fn labels_come_back_when_the_transaction_is_rolled_back(inner: InnerNodes) {
    let store = store_with(inner, "<r><a/></r>", 40, 1);
    let transaction = store.begin();
    let document = transaction.document_to_update("d").unwrap();
    let a = document.first_child(&Label::root()).unwrap().unwrap();
    alternate(&document, &a, 240);
    let before: Vec<Label> = document.descendants(&a).unwrap().collect::<Result<_, _>>().unwrap();
    let savepoint = transaction.savepoint();
    let middle = before.iter().max_by_key(|label| label.as_bytes().len()).unwrap().clone();
    let mut at = middle;
    for number in 0..200 {
        let place = if number % 2 == 0 { Place::After(at) } else { Place::Before(at) };
        at = document.insert(&place, NewNode::Comment("c")).unwrap();
    }
    assert!(!document.take_relabelled().is_empty());
    transaction.roll_back_to(savepoint).unwrap();
    let after: Vec<Label> = document.descendants(&a).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(after, before);
    assert_eq!(document.check().unwrap(), []);
}

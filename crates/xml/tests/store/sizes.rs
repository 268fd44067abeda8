//! Documents of odd shapes: deep, wide, long, many, and with odd names.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::sync::Arc;

use tidegate_engine::disk::{Faults, SimulatedDisk};
use tidegate_engine::wal::LogId;
use tidegate_engine::{PageSize, Store};
use tidegate_xml::label::LabelError;
use tidegate_xml::name::QName;
use tidegate_xml::parse::ParseErrorKind;
use tidegate_xml::store::{Document, DocumentOptions, NewNode, Place, XmlStore, XmlStoreError};
use tidegate_xml::tree::Tree;
use tidegate_xml::xpath::{Environment, Prefixes, Query};

use super::indexes::create;
use super::{canonical, compare, dump, in_memory, load, new_store, options, shared};

/// The value of an expression, in which the prefix `ü` is bound, as text.
fn value(document: &Document<'_>, expression: &str) -> String {
    let query = Query::parse(expression, &Prefixes::new().with("ü", "urn:ü")).unwrap();
    let root = document.root().unwrap();
    query.string(document, &root, &Environment::default()).unwrap()
}

fn nested(depth: usize) -> String {
    format!("{}x{}", "<a>".repeat(depth), "</a>".repeat(depth))
}

fn store_of_large_pages() -> XmlStore {
    let page_size = PageSize::new(64 << 10).unwrap();
    let bytes = 64 << 16;
    let options = options().page_size(page_size).buffer_bytes(bytes).buffer_bytes_max(bytes);
    let disk = Arc::new(SimulatedDisk::new(1, Faults::default()));
    drop(Store::create(&shared(&disk), LogId(1), &options).unwrap());
    XmlStore::on(Store::open(&shared(&disk), &options).unwrap()).unwrap()
}

/// A document of so many levels, more than default labels can name.
fn deep(levels: usize) {
    let refused = load(&new_store(1), "d", &nested(levels));
    let Err(XmlStoreError::At { position, error }) = refused else { panic!("{refused:?}") };
    let too_long = matches!(*error, XmlStoreError::Label(LabelError::TooLong { .. }));
    assert!(too_long && position.line == 1 && position.column > 500, "{position}: {error}");
    let store = store_of_large_pages();
    let options = DocumentOptions { label_max: 8_000, ..DocumentOptions::default() };
    let go_on = |_| ControlFlow::Continue(());
    store.load("d", options, nested(levels).as_bytes(), go_on).unwrap();
    create(&store, "names", "name").unwrap();
    let transaction = store.begin();
    let document = transaction.document_to_update("d").unwrap();
    assert_eq!(document.check().unwrap(), []);
    assert_eq!(dump(&document), nested(levels));
    assert_eq!(value(&document, "count(//*)"), levels.to_string());
    assert_eq!(value(&document, "count(//text()/ancestor::*)"), levels.to_string());
    let outer = document.first_child(&document.root().unwrap()).unwrap().unwrap();
    let inner = document.first_child(&outer).unwrap().unwrap();
    document.rename(&inner, &QName::local("b")).unwrap();
    assert_eq!(value(&document, "count(//b//a)"), (levels - 2).to_string());
    document.delete(&inner).unwrap();
    assert_eq!(dump(&document), "<a></a>");
}

#[test]
fn a_document_of_700_levels_needs_long_labels() {
    deep(700);
}

#[test]
#[ignore = "soak: a document of 4,096 levels"]
fn a_document_of_4096_levels_is_the_deepest() {
    deep(4_096);
    let refused = load(&store_of_large_pages(), "d", &nested(4_097));
    let Err(XmlStoreError::Parse(error)) = refused else { panic!("{refused:?}") };
    assert!(matches!(error.kind, ParseErrorKind::Limit { field: "depth", .. }), "{error}");
}

#[test]
fn names_of_any_letters_are_stored_and_found() {
    let names = ["日本", "𐐀", "é", "e\u{301}", "_", "a·b", "x\u{203F}", "\u{37F}", "div", "or"];
    let mut text = String::from("<ñ xmlns:ü='urn:ü' ü:ñ='𝄞'>");
    for name in names {
        write!(text, "<{name} {name}='{name}'/><ü:{name}/>").unwrap();
    }
    text.push_str("</ñ>");
    let store = new_store(1);
    load(&store, "文書\n\0", &text).unwrap();
    assert_eq!(store.documents().unwrap(), ["文書\n\0"]);
    let transaction = store.begin();
    let document = transaction.document_to_update("文書\n\0").unwrap();
    compare(&document, &in_memory(&text), "as loaded");
    assert_eq!(dump(&document), canonical(&text));
    for name in names {
        let expression = format!("count(//{name}[@{name} = '{name}'] | //ü:{name})");
        assert_eq!(value(&document, &expression), "2", "{expression}");
    }
    let root = document.root().unwrap();
    for name in ["", "1", "a b", "a:b", "-", "\u{301}", "·", "×", "a\u{0}", "<", "\u{FFFF}"] {
        let refused =
            document.insert(&Place::Last(root.clone()), NewNode::Element(&QName::local(name)));
        assert!(refused.is_err(), "{name:?}");
    }
}

#[test]
fn an_attribute_and_a_text_of_a_million_characters() {
    let long = "é&#9;".repeat(500_000);
    let text = format!("<a b='{long}'>{long}</a>");
    let store = new_store(1);
    load(&store, "d", &text).unwrap();
    create(&store, "content", "content text").unwrap();
    let transaction = store.begin();
    let document = transaction.document_to_update("d").unwrap();
    compare(&document, &in_memory(&text), "as loaded");
    assert_eq!(value(&document, "string-length(/a/@b)"), "1000000");
    assert_eq!(value(&document, "count(/a[@b = text()])"), "1");
    let element = document.first_child(&document.root().unwrap()).unwrap().unwrap();
    let attribute = document.attributes(&element).unwrap().remove(0);
    document.set_value(&attribute, "short").unwrap();
    assert_eq!(document.check().unwrap(), []);
    assert_eq!(value(&document, "count(/a[@b = 'short'])"), "1");
}

/// One element with so many children.
fn wide(children: usize) {
    let store = new_store(1);
    let text = format!("<r>{}</r>", "<a>x</a>".repeat(children));
    load(&store, "d", &text).unwrap();
    create(&store, "names", "name").unwrap();
    let transaction = store.begin();
    let document = transaction.document_to_update("d").unwrap();
    assert_eq!(document.check().unwrap(), []);
    assert_eq!(value(&document, "count(/r/*)"), children.to_string());
    assert_eq!(
        value(&document, "count(/r/a[last()]/preceding-sibling::*)"),
        (children - 1).to_string()
    );
    let root = document.first_child(&document.root().unwrap()).unwrap().unwrap();
    let last = document.last_child(&root).unwrap().unwrap();
    let moved = document.move_to(&last, &Place::First(root.clone())).unwrap();
    document.insert(&Place::After(moved), NewNode::Comment("c")).unwrap();
    assert_eq!(value(&document, "count(/r/a[1]/following::comment())"), "1");
    document.set_content(&root, &b"<b/>"[..]).unwrap();
    assert_eq!(dump(&document), "<r><b></b></r>");
    assert_eq!(document.check().unwrap(), []);
}

#[test]
fn an_element_with_twenty_thousand_children() {
    wide(20_000);
}

#[test]
#[ignore = "soak: an element with a million children"]
fn an_element_with_a_million_children() {
    wide(1_000_000);
}

/// A store with so many documents, of which each tenth is dropped.
fn many(documents: usize) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = XmlStore::open_or_create(&path).unwrap();
    for number in 0..documents {
        load(&store, &format!("d{number:06}"), &format!("<a n='{number}'>text</a>")).unwrap();
    }
    store.close().unwrap();
    let store = XmlStore::open_or_create(&path).unwrap();
    assert_eq!(store.documents().unwrap().len(), documents);
    for place in (0..documents).step_by(10) {
        assert!(store.drop_document(&format!("d{place:06}")).unwrap());
    }
    let transaction = store.begin();
    for place in (1..documents).step_by(10) {
        let document = transaction.document(&format!("d{place:06}")).unwrap();
        assert_eq!(value(&document, "string(/a/@n)"), place.to_string());
        assert_eq!(document.check().unwrap(), []);
    }
    drop(transaction);
    store.engine().check().unwrap();
    store.close().unwrap();
    let store = XmlStore::open_or_create(&path).unwrap();
    assert_eq!(store.documents().unwrap().len(), documents - documents.div_ceil(10));
}

#[test]
fn a_store_of_five_hundred_documents() {
    many(500);
}

#[test]
#[ignore = "soak: a store of 100,000 documents"]
fn a_store_of_a_hundred_thousand_documents() {
    many(100_000);
}

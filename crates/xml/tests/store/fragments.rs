//! Inserting XML text: by example, refused, and taken back.

use tidegate_xml::label::Label;
use tidegate_xml::parse::{ParseError, ParseErrorKind};
use tidegate_xml::store::{Document, InnerNodes, Place, XmlStore, XmlStoreError};
use tidegate_xml::tree::Tree;

use super::{compare, dump, in_memory, load_as, new_store};

/// A store with one document.
fn store_with(inner: InnerNodes, text: &str) -> XmlStore {
    let store = new_store(1);
    load_as(inner, &store, "d", text).unwrap();
    store
}

/// The children of the root element.
fn children(document: &Document<'_>) -> Vec<Label> {
    document.children(&Label::root()).unwrap().collect::<Result<_, _>>().unwrap()
}

/// Inserts `fragment` at a place in `text` and compares with `expected`.
fn check(
    inner: InnerNodes,
    text: &str,
    place: impl Fn(&[Label]) -> Place,
    fragment: &str,
    expected: &str,
) {
    let store = store_with(inner, text);
    let transaction = store.begin();
    let document = transaction.document_to_update("d").unwrap();
    let place = place(&children(&document));
    let inserted = document.insert_xml(&place, fragment.as_bytes()).unwrap();
    compare(&document, &in_memory(expected), &format!("{fragment} in {text}"));
    for label in inserted {
        assert!(document.kind(&label).is_ok(), "{label} of {fragment} in {text}");
    }
}

fn parse_error(error: XmlStoreError) -> ParseError {
    match error {
        XmlStoreError::Parse(error) => error,
        other => panic!("not an error of the parser: {other}"),
    }
}

both!(fragments_go_where_they_are_put);
fn fragments_go_where_they_are_put(inner: InnerNodes) {
    let first = |_: &[Label]| Place::First(Label::root());
    let last = |_: &[Label]| Place::Last(Label::root());
    let before_second = |children: &[Label]| Place::Before(children[1].clone());
    let after_first = |children: &[Label]| Place::After(children[0].clone());
    let document = |_: &[Label]| Place::First(Label::document());
    check(inner, "<r/>", first, "x<b c='1'><d/>y</b>z", "<r>x<b c='1'><d/>y</b>z</r>");
    check(inner, "<r><a/></r>", last, "<b/><!--c--><?d e?>", "<r><a/><b/><!--c--><?d e?></r>");
    check(inner, "<r><a/><b/></r>", before_second, "<c/><d/>", "<r><a/><c/><d/><b/></r>");
    check(inner, "<r><a/><b/></r>", after_first, "&lt;<![CDATA[&]]>", "<r><a/>&lt;&amp;<b/></r>");
    check(inner, "<r><a/></r>", last, "", "<r><a/></r>");
    check(inner, "<!--1--><r/>", document, "<?a b?><!--0-->", "<?a b?><!--0--><!--1--><r/>");
}

both!(texts_at_the_ends_of_a_fragment_are_joined);
fn texts_at_the_ends_of_a_fragment_are_joined(inner: InnerNodes) {
    let last = |_: &[Label]| Place::Last(Label::root());
    let first = |_: &[Label]| Place::First(Label::root());
    let after_first = |children: &[Label]| Place::After(children[0].clone());
    check(inner, "<r>a</r>", last, "b<c/>d", "<r>ab<c/>d</r>");
    check(inner, "<r>a</r>", first, "b<c/>d", "<r>b<c/>da</r>");
    check(inner, "<r>a</r>", last, "b", "<r>ab</r>");
    check(inner, "<r>a</r>", first, "b", "<r>ba</r>");
    check(inner, "<r><a/>x</r>", after_first, "<b/>y", "<r><a/><b/>yx</r>");
}

both!(a_fragment_has_the_namespaces_of_its_place);
fn a_fragment_has_the_namespaces_of_its_place(inner: InnerNodes) {
    let store = store_with(inner, "<r xmlns='urn:d' xmlns:p='urn:p'><p:a xmlns:p='urn:q'/></r>");
    let transaction = store.begin();
    let document = transaction.document_to_update("d").unwrap();
    let a = children(&document)[0].clone();
    for (place, p) in [(Place::Last(Label::root()), "urn:p"), (Place::Last(a), "urn:q")] {
        let inserted = document.insert_xml(&place, &b"<p:x/><y/>"[..]).unwrap();
        let namespaces =
            inserted.iter().map(|label| document.name(label).unwrap().unwrap().namespace);
        assert_eq!(namespaces.collect::<Vec<_>>(), [Box::<str>::from(p), "urn:d".into()]);
    }
    let unknown = document.insert_xml(&Place::Last(Label::root()), &b"<q:x/>"[..]).unwrap_err();
    let error = parse_error(unknown);
    assert!(matches!(error.kind, ParseErrorKind::UndeclaredPrefix(_)), "{error}");
}

both!(a_fragment_that_is_refused_changes_nothing);
fn a_fragment_that_is_refused_changes_nothing(inner: InnerNodes) {
    let store = store_with(inner, "<!--c--><r>text<a/></r>");
    let transaction = store.begin();
    let document = transaction.document_to_update("d").unwrap();
    let before = dump(&document);
    let many = "<b>x</b>".repeat(500);
    for (fragment, line, column) in [
        ("<b/>\n<c>", 2, 4),
        ("<b/>\n </c>", 2, 2),
        ("a&b", 1, 4),
        ("<?xml version='1.0'?><b/>", 1, 1),
        ("<!DOCTYPE b><b/>", 1, 1),
        (&*format!("{many}<b x='1' x='2'/>"), 1, 4_001),
    ] {
        for place in [Place::Last(Label::root()), Place::First(Label::document())] {
            let error = document.insert_xml(&place, fragment.as_bytes()).unwrap_err();
            if place == Place::Last(Label::root()) {
                let position = parse_error(error).position;
                assert_eq!((position.line, position.column), (line, column), "{fragment}");
            }
            assert_eq!(dump(&document), before, "{fragment}");
        }
    }
    for fragment in ["<b/>", "text", "<!--c--><b/>"] {
        let place = Place::Last(Label::document());
        let error = document.insert_xml(&place, fragment.as_bytes()).unwrap_err();
        assert!(matches!(error, XmlStoreError::NotPossible { .. }), "{error}");
        assert_eq!(dump(&document), before, "{fragment}");
    }
    assert!(document.set_content(&Label::document(), &b"<!--c-->"[..]).is_err());
    assert!(document.set_content(&Label::root(), &b"<b>"[..]).is_err());
    assert_eq!(dump(&document), before);
    assert_eq!(document.check().unwrap(), []);
}

both!(the_content_of_an_element_is_replaced);
fn the_content_of_an_element_is_replaced(inner: InnerNodes) {
    let store = store_with(inner, "<r k='1' xmlns:p='urn:p'>text<a><b/></a></r>");
    let transaction = store.begin();
    let document = transaction.document_to_update("d").unwrap();
    let inserted = document.set_content(&Label::root(), &b"<p:c/>more"[..]).unwrap();
    assert_eq!(inserted, children(&document));
    let expected = "<r k='1' xmlns:p='urn:p'><p:c/>more</r>";
    compare(&document, &in_memory(expected), "replaced");
    assert_eq!(document.set_content(&Label::root(), &b""[..]).unwrap(), []);
    compare(&document, &in_memory("<r k='1' xmlns:p='urn:p'/>"), "emptied");
}

//! Moving and copying subtrees: by example, refused, and taken back.

use tidegate_xml::label::Label;
use tidegate_xml::store::{Document, InnerNodes, Place};
use tidegate_xml::tree::{Kind, Tree};
use tidegate_xml::xpath::{Environment, Item, Prefixes, Query};

use super::{compare, dump, in_memory, load_as, new_store};

/// The first node that an expression finds.
fn find(document: &Document<'_>, expression: &str) -> Label {
    let prefixes = Prefixes::new().with("p", "urn:p");
    let query = Query::parse(expression, &prefixes).unwrap();
    let root = document.root().unwrap();
    let environment = Environment::default();
    let mut nodes = query.nodes(document, &root, &environment).unwrap();
    match nodes.next() {
        Some(Ok(Item::Node(node))) => node,
        _ => panic!("{expression} finds no node"),
    }
}

/// Moves or copies a node in `text`, to a place at another one, and compares with `expected`.
fn check(
    inner: InnerNodes,
    text: &str,
    node: &str,
    (place, at): (fn(Label) -> Place, &str),
    expected: [&str; 2],
) {
    for (copies, expected) in [false, true].into_iter().zip(expected) {
        let store = new_store(1);
        load_as(inner, &store, "d", text).unwrap();
        let transaction = store.begin();
        let document = transaction.document_to_update("d").unwrap();
        let (node, place) = (find(&document, node), place(find(&document, at)));
        let label = if copies {
            document.copy_to(&node, &place).unwrap()
        } else {
            document.move_to(&node, &place).unwrap()
        };
        compare(&document, &in_memory(expected), &format!("{node} of {text} to {place:?}"));
        assert!(document.kind(&label).is_ok(), "{label} in {expected}");
    }
}

both!(subtrees_go_where_they_are_put);
fn subtrees_go_where_they_are_put(inner: InnerNodes) {
    let text = "<r><a k='1'><b>x</b></a><c/><!--d--></r>";
    let moved = "<r><c><a k='1'><b>x</b></a></c><!--d--></r>";
    let copied = "<r><a k='1'><b>x</b></a><c><a k='1'><b>x</b></a></c><!--d--></r>";
    check(inner, text, "//a", (Place::First, "//c"), [moved, copied]);
    let moved = "<r><c/><!--d--><a k='1'><b>x</b></a></r>";
    let copied = "<r><a k='1'><b>x</b></a><c/><!--d--><a k='1'><b>x</b></a></r>";
    check(inner, text, "//a", (Place::Last, "/r"), [moved, copied]);
    let moved = "<r><a k='1'><!--d--><b>x</b></a><c/></r>";
    let copied = "<r><a k='1'><!--d--><b>x</b></a><c/><!--d--></r>";
    check(inner, text, "//comment()", (Place::Before, "//b"), [moved, copied]);
    let moved = "<r><a k='1'/><c/><b>x</b><!--d--></r>";
    let copied = "<r><a k='1'><b>x</b></a><c/><b>x</b><!--d--></r>";
    check(inner, text, "//b", (Place::After, "//c"), [moved, copied]);
    let moved = "<!--d--><r><a k='1'><b>x</b></a><c/></r>";
    let copied = "<!--d--><r><a k='1'><b>x</b></a><c/><!--d--></r>";
    check(inner, text, "//comment()", (Place::Before, "/r"), [moved, copied]);
}

both!(texts_are_joined_where_a_node_leaves_and_where_it_comes);
fn texts_are_joined_where_a_node_leaves_and_where_it_comes(inner: InnerNodes) {
    let text = "<r>x<a/>y<b>z</b></r>";
    check(
        inner,
        text,
        "//a",
        (Place::First, "//b"),
        ["<r>xy<b><a/>z</b></r>", "<r>x<a/>y<b><a/>z</b></r>"],
    );
    check(
        inner,
        text,
        "/r/text()[1]",
        (Place::First, "//b"),
        ["<r><a/>y<b>xz</b></r>", "<r>x<a/>y<b>xz</b></r>"],
    );
    check(
        inner,
        text,
        "//b/text()",
        (Place::After, "/r/text()[2]"),
        ["<r>x<a/>yz<b/></r>", "<r>x<a/>yz<b>z</b></r>"],
    );
    check(
        inner,
        text,
        "/r/text()[1]",
        (Place::After, "//a"),
        ["<r><a/>xy<b>z</b></r>", "<r>x<a/>xy<b>z</b></r>"],
    );
}

both!(an_element_is_copied_into_itself);
fn an_element_is_copied_into_itself(inner: InnerNodes) {
    let store = new_store(1);
    load_as(inner, &store, "d", "<r><a><b/>x</a></r>").unwrap();
    let transaction = store.begin();
    let document = transaction.document_to_update("d").unwrap();
    let (a, b) = (find(&document, "//a"), find(&document, "//b"));
    document.copy_to(&a, &Place::Last(b)).unwrap();
    let expected = in_memory("<r><a><b><a><b/>x</a></b>x</a></r>");
    compare(&document, &expected, "below itself");
    document.copy_to(&a, &Place::After(a.clone())).unwrap();
    let one = "<a><b><a><b/>x</a></b>x</a>";
    compare(&document, &in_memory(&format!("<r>{one}{one}</r>")), "behind itself");
}

both!(prefixes_mean_the_same_at_the_new_place);
fn prefixes_mean_the_same_at_the_new_place(inner: InnerNodes) {
    let text = "<r xmlns:z='urn:z'><o xmlns:p='urn:p' xmlns:z='urn:y'><p:a t='z:x'/></o>\
        <n xmlns='urn:d' xmlns:p='urn:other'/></r>";
    let store = new_store(1);
    load_as(inner, &store, "d", text).unwrap();
    let transaction = store.begin();
    let document = transaction.document_to_update("d").unwrap();
    let n = find(&document, "/r/*[2]");
    let a = document.move_to(&find(&document, "//p:a"), &Place::Last(n)).unwrap();
    let bindings = document.declarations(&a).unwrap();
    let bindings: Vec<_> = bindings.iter().map(|b| (&*b.prefix, &*b.uri)).collect();
    assert_eq!(bindings, [("p", "urn:p"), ("z", "urn:y"), ("", "")]);
    let expected = "<r xmlns:z='urn:z'><o xmlns:p='urn:p' xmlns:z='urn:y'/>\
        <n xmlns='urn:d' xmlns:p='urn:other'>\
        <p:a xmlns:p='urn:p' xmlns:z='urn:y' xmlns='' t='z:x'/></n></r>";
    compare(&document, &in_memory(expected), "moved");
    // Nothing is lost on the way back.
    let o = find(&document, "/r/*[1]");
    let a = document.move_to(&a, &Place::Last(o)).unwrap();
    assert_eq!(document.declarations(&a).unwrap().len(), 3);
}

both!(an_identified_element_is_found_where_it_is);
fn an_identified_element_is_found_where_it_is(inner: InnerNodes) {
    let text = "<!DOCTYPE r [<!ATTLIST a i ID #IMPLIED>]><r><a i='x'/><b/></r>";
    let store = new_store(1);
    load_as(inner, &store, "d", text).unwrap();
    let transaction = store.begin();
    let document = transaction.document_to_update("d").unwrap();
    let (a, b) = (find(&document, "//a"), find(&document, "//b"));
    let moved = document.move_to(&a, &Place::Last(b)).unwrap();
    assert_eq!(document.element_by_id("x").unwrap(), Some(moved.clone()));
    let copy = document.copy_to(&moved, &Place::First(Label::root())).unwrap();
    assert_eq!(document.element_by_id("x").unwrap(), Some(copy));
}

both!(what_cannot_be_moved_is_refused);
fn what_cannot_be_moved_is_refused(inner: InnerNodes) {
    let store = new_store(1);
    load_as(inner, &store, "d", "<!--c--><r><a k='1'><b/></a>x</r>").unwrap();
    let transaction = store.begin();
    let document = transaction.document_to_update("d").unwrap();
    let before = dump(&document);
    let [a, b, text] = ["//a", "//b", "/r/text()"].map(|path| find(&document, path));
    let [comment, attribute] = ["/comment()", "//@k"].map(|path| find(&document, path));
    let root = Label::root();
    for (node, place) in [
        (&Label::document(), Place::Last(b.clone())),
        (&root, Place::Before(comment.clone())),
        (&root, Place::Last(b.clone())),
        (&a, Place::Last(b.clone())),
        (&a, Place::First(a.clone())),
        (&a, Place::Before(b.clone())),
        (&a, Place::Last(Label::document())),
        (&text, Place::Last(Label::document())),
        (&a, Place::Last(text.clone())),
        (&a, Place::After(attribute.clone())),
        (&a, Place::Before(Label::document())),
        (&attribute, Place::Last(b.clone())),
    ] {
        let done = document.move_to(node, &place);
        assert!(done.is_err(), "{node} to {place:?}");
        assert_eq!(dump(&document), before, "{node} to {place:?}");
    }
    // At its place already.
    for place in [Place::After(a.clone()), Place::Before(text.clone()), Place::First(root)] {
        assert_eq!(document.move_to(&a, &place).unwrap(), a);
        assert_eq!(dump(&document), before);
    }
    document.move_to(&b, &Place::Before(comment)).unwrap_err();
    assert_eq!(document.kind(&b).unwrap(), Kind::Element);
    assert_eq!(document.check().unwrap(), []);
}

//! The cursor and the events of a subtree.

use tidegate_xml::label::Label;
use tidegate_xml::name::QName;
use tidegate_xml::parse::Event;
use tidegate_xml::store::{Document, DomCursor, InnerNodes, NewNode, Place, XmlStoreError};
use tidegate_xml::tree::{Kind, Tree};

use super::{dump, load_as, new_store};

/// The events of a node, one a word.
fn events(document: &Document<'_>, node: &Label) -> Result<String, XmlStoreError> {
    let mut words = Vec::new();
    document.subtree_events::<XmlStoreError>(node, |event| {
        words.push(match event {
            Event::StartDocument => "[".to_owned(),
            Event::StartElement { name, attributes } => format!("<{name}{}", attributes.len()),
            Event::Text(text) | Event::Comment(text) => text.to_owned(),
            Event::ProcessingInstruction { target, .. } => format!("?{target}"),
            Event::EndElement { name } => format!("/{name}"),
            Event::EndDocument => "]".to_owned(),
        });
        Ok(())
    })?;
    Ok(words.join(" "))
}

both!(a_subtree_is_passed_on_as_events);
fn a_subtree_is_passed_on_as_events(inner: InnerNodes) {
    let store = new_store(1);
    load_as(inner, &store, "d", "<r><a k='1' xmlns:p='u'>x<b/></a><!--c--><?d?></r>").unwrap();
    let transaction = store.begin();
    let document = transaction.document("d").unwrap();
    let found: Vec<String> = document
        .descendants(&Label::document())
        .unwrap()
        .map(|node| events(&document, &node.unwrap()).unwrap())
        .collect();
    let all = "<r0 <a2 x <b0 /b /a c ?d /r";
    assert_eq!(found, [all, "<a2 x <b0 /b /a", "x", "<b0 /b", "c", "?d"]);
    assert_eq!(events(&document, &Label::document()).unwrap(), format!("[ {all} ]"));
    let a = document.first_child(&Label::root()).unwrap().unwrap();
    let attribute = document.attributes(&a).unwrap()[0].clone();
    let refused = events(&document, &attribute).unwrap_err();
    assert!(matches!(refused, XmlStoreError::NotPossible { .. }), "{refused}");
}

both!(a_cursor_stays_at_its_node_while_others_come_and_go);
fn a_cursor_stays_at_its_node_while_others_come_and_go(inner: InnerNodes) {
    let store = new_store(1);
    load_as(inner, &store, "d", "<r><a/><b/><c/></r>").unwrap();
    let transaction = store.begin();
    let document = transaction.document_to_update("d").unwrap();
    let mut cursor = DomCursor::new(&document, Label::root()).unwrap();
    assert!(cursor.go_to_last_child().unwrap() && cursor.go_to_previous_sibling().unwrap());
    let is_at_b =
        |cursor: &DomCursor<'_, '_>| document.has_name(&cursor.node(), &QName::local("b")).unwrap();
    assert!(is_at_b(&cursor));
    document.delete(&document.first_child(&Label::root()).unwrap().unwrap()).unwrap();
    cursor.insert(Place::Before, NewNode::Comment("1")).unwrap();
    cursor.insert(Place::First, NewNode::Text("2")).unwrap();
    assert!(is_at_b(&cursor));
    assert_eq!(dump(&document), "<r><!--1--><b>2</b><c></c></r>");
    assert!(!DomCursor::new(&document, Label::document()).unwrap().go_to_parent().unwrap());

    document.delete(&cursor.node()).unwrap();
    let gone = cursor.go_to_next_sibling().unwrap_err();
    assert!(matches!(gone, XmlStoreError::NoSuchNode(_)), "{gone}");
}

both!(insertions_of_a_cursor_may_label_its_node_anew);
fn insertions_of_a_cursor_may_label_its_node_anew(inner: InnerNodes) {
    let store = new_store(1);
    load_as(inner, &store, "d", "<r><a/><b/></r>").unwrap();
    let transaction = store.begin();
    let document = transaction.document_to_update("d").unwrap();
    let mut cursor = DomCursor::new(&document, Label::root()).unwrap();
    assert!(cursor.go_to_first_child().unwrap());
    let name = QName::local("n");
    let first = cursor.node();
    // On alternating sides of the last one labels grow by a bit each time.
    for number in 0..4_000 {
        let place = if number % 2 == 0 { Place::After } else { Place::Before };
        let inserted = cursor.insert(place, NewNode::Element(&name)).unwrap();
        assert_eq!(document.kind(&cursor.node()).unwrap(), Kind::Element);
        cursor = DomCursor::new(&document, inserted).unwrap();
    }
    assert!(!document.take_relabelled().is_empty());
    assert!(matches!(document.kind(&first), Err(XmlStoreError::NoSuchNode(_))));
    assert!(cursor.go_to_parent().unwrap());
    assert_eq!(cursor.node(), Label::root());
    assert_eq!(document.check().unwrap(), []);
}

both!(a_cursor_stays_when_its_insertion_is_refused);
fn a_cursor_stays_when_its_insertion_is_refused(inner: InnerNodes) {
    let store = new_store(1);
    load_as(inner, &store, "d", "<r/>").unwrap();
    let transaction = store.begin();
    let document = transaction.document_to_update("d").unwrap();
    let mut cursor = DomCursor::new(&document, Label::root()).unwrap();
    let name = QName::local("n");
    let refused = loop {
        let first = match cursor.insert(Place::First, NewNode::Element(&name)) {
            Ok(first) => first,
            Err(error) => break error,
        };
        cursor = DomCursor::new(&document, first).unwrap();
    };
    assert!(matches!(refused, XmlStoreError::Label(_)), "{refused}");
    assert_eq!(document.kind(&cursor.node()).unwrap(), Kind::Element);
    assert_eq!(document.check().unwrap(), []);
}

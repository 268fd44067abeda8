//! Damage that the check of a document has to find.

use tidegate_engine::TxnOptions;
use tidegate_xml::label::Label;
use tidegate_xml::store::{XmlStore, XmlStoreError};
use tidegate_xml::tree::Tree;

use super::{load, new_store};

const TEXT: &str = "<r><a k='1'><b>x</b></a><c>y</c></r>";

/// Sets or removes a record of the only document behind the store's back.
fn damage(store: &XmlStore, key: &[u8], value: Option<&[u8]>) {
    let tree = store.engine().tree("xml document 0").unwrap();
    let mut transaction = store.engine().begin(TxnOptions::default());
    match value {
        Some(value) => transaction.put(&tree, key, value).unwrap(),
        None => assert!(transaction.remove(&tree, key).unwrap()),
    }
    transaction.commit().unwrap();
}

fn record(store: &XmlStore, key: &[u8]) -> Vec<u8> {
    let tree = store.engine().tree("xml document 0").unwrap();
    store.engine().begin(TxnOptions::default()).get(&tree, key).unwrap().unwrap()
}

/// What the check says of each node.
fn problems(store: &XmlStore) -> Vec<String> {
    let transaction = store.begin();
    let found = transaction.document("d").unwrap().check().unwrap();
    found.iter().map(|problem| format!("{}: {}", problem.label, problem.what)).collect()
}

#[test]
fn damage_is_found_and_named() {
    let keys = || {
        let store = new_store(1);
        load(&store, "d", TEXT).unwrap();
        assert_eq!(problems(&store), [""; 0]);
        let transaction = store.begin();
        let document = transaction.document("d").unwrap();
        let a = document.first_child(&Label::root()).unwrap().unwrap();
        let b = document.first_child(&a).unwrap().unwrap();
        let text = document.first_child(&b).unwrap().unwrap();
        let c = document.last_child(&Label::root()).unwrap().unwrap();
        drop(document);
        drop(transaction);
        (store, [a, b, text, c])
    };
    let (store, [a, b, ..]) = keys();
    damage(&store, a.as_bytes(), None);
    let found = problems(&store);
    assert!(found.contains(&format!("{b}: its parent is missing")), "{found:?}");

    let (store, [_, b, text, c]) = keys();
    damage(&store, text.as_bytes(), Some(&record(&store, c.as_bytes())));
    let found = problems(&store);
    assert_eq!(found, [format!("{text}: its path class is wrong")]);
    damage(&store, text.as_bytes(), Some(b"\x07"));
    assert_eq!(problems(&store), [format!("{text}: the record cannot be read")]);
    let transaction = store.begin();
    let refused = transaction.document("d").unwrap().string_value(&b).unwrap_err();
    assert!(matches!(refused, XmlStoreError::Record { .. }), "{refused}");
    drop(transaction);

    let (store, [a, .., text, c]) = keys();
    let name = record(&store, c.as_bytes());
    damage(&store, c.as_bytes(), Some(&[name[0], 99, name[2]]));
    let found = problems(&store);
    assert!(found.contains(&format!("{c}: its name is not in the vocabulary")), "{found:?}");
    damage(&store, c.as_bytes(), None);
    damage(&store, a.attribute_root().as_bytes(), Some(&record(&store, text.as_bytes())));
    let found = problems(&store);
    assert!(found.iter().any(|what| what.ends_with("its label is not for its kind")), "{found:?}");
    damage(&store, &[0xff], Some(&name));
    let found = problems(&store);
    assert!(found.iter().any(|what| what.ends_with("the next key is no label")), "{found:?}");

    let (store, [a, ..]) = keys();
    damage(&store, Label::root().as_bytes(), Some(&record(&store, a.as_bytes())));
    assert!(problems(&store).len() > 2);
}

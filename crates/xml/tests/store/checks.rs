//! Damage that the check of a document has to find.

use tidegate_engine::{Store, TxnOptions};
use tidegate_random::SplitMix64;
use tidegate_xml::label::Label;
use tidegate_xml::store::{InnerNodes, XmlStore, XmlStoreError};
use tidegate_xml::tree::Tree;

use super::{damaged, load, load_as, new_disk, new_store, open, options, shared};

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

#[test]
fn damage_is_found_where_inner_nodes_have_no_records() {
    let loaded = || {
        let store = new_store(1);
        load_as(InnerNodes::Virtual, &store, "d", TEXT).unwrap();
        assert_eq!(problems(&store), [""; 0]);
        let transaction = store.begin();
        let document = transaction.document("d").unwrap();
        let a = document.first_child(&Label::root()).unwrap().unwrap();
        let b = document.first_child(&a).unwrap().unwrap();
        let attribute = document.attributes(&a).unwrap().pop();
        let c = document.last_child(&Label::root()).unwrap().unwrap();
        let texts = [&b, &c].map(|element| document.first_child(element).unwrap().unwrap());
        let found = (a, b, attribute.unwrap(), texts);
        drop(document);
        drop(transaction);
        (store, found)
    };
    // The second name and the second class are those of `a`.
    let element = [1, 1, 2];
    let (store, (a, _, attribute, _)) = loaded();
    damage(&store, a.as_bytes(), Some(&element));
    let found = problems(&store);
    assert!(found.contains(&format!("{attribute}: its element has a record, too")), "{found:?}");

    // A text whose class is on a level that is not its own, or of another element.
    let (store, (_, b, _, [x, y])) = loaded();
    damage(&store, x.as_bytes(), Some(&record(&store, y.as_bytes())));
    assert_eq!(problems(&store), [format!("{b}: its path class is wrong")]);
    let (store, (a, _, attribute, [x, y])) = loaded();
    damage(&store, y.as_bytes(), Some(&record(&store, x.as_bytes())));
    let found = problems(&store);
    assert!(found[0].ends_with("its path class is wrong"), "{found:?}");
    damage(&store, y.as_bytes(), Some(&[3, 0]));
    let unfit = format!("{y}: its path class does not fit its label");
    assert_eq!(problems(&store), [unfit]);
    let transaction = store.begin();
    let document = transaction.document("d").unwrap();
    let parent = document.next_sibling(&a).unwrap().unwrap();
    let refused = document.kind(&parent).unwrap_err();
    assert!(matches!(refused, XmlStoreError::Unsound(_)), "{refused}");
    let read: Result<Vec<_>, _> = document.descendants(&Label::document()).unwrap().collect();
    assert!(read.is_err());
    drop(document);
    drop(transaction);

    // One that no class has.
    damage(&store, attribute.as_bytes(), Some(&[2, 0, 99]));
    let found = problems(&store);
    assert!(
        found.contains(&format!("{attribute}: its path class does not fit its label")),
        "{found:?}"
    );
}

#[test]
fn a_store_with_damaged_trees_answers_or_refuses() {
    for seed in 0..40 {
        let mut random = SplitMix64::new(seed);
        let length = 1 + random.next_below(24);
        let bytes: Vec<u8> = (0..length).map(|_| random.next_below(256).to_le_bytes()[0]).collect();
        damaged::run(&bytes);
    }
}

#[test]
fn a_store_of_something_else_is_refused_and_not_changed() {
    let disk = new_disk(1);
    let engine = Store::open(&shared(&disk), &options()).unwrap();
    engine.create_tree("accounts").unwrap();
    assert!(matches!(XmlStore::on(engine), Err(XmlStoreError::OtherStore)));
    let engine = Store::open(&shared(&disk), &options()).unwrap();
    assert_eq!(engine.trees(), ["accounts"]);
    // A tree beside those of the documents is no harm.
    let disk = new_disk(2);
    open(&disk).unwrap().engine().create_tree("accounts").unwrap();
    assert_eq!(open(&disk).unwrap().documents().unwrap(), Vec::<String>::new());
}

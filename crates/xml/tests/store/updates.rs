//! Random changes against the model, rollback, and what is refused.

use std::ops::ControlFlow;

use tidegate_random::SplitMix64;
use tidegate_xml::label::Label;
use tidegate_xml::name::QName;
use tidegate_xml::store::{DocumentOptions, InnerNodes, NewNode, Place, XmlStore, XmlStoreError};
use tidegate_xml::tree::Tree;

use super::indexes::{self, DEFINITIONS};
use super::model::{FIRST, Model};
use super::{compare, dump, in_memory, load, load_as, new_disk, new_store, open, plain, seeds};

both!(a_changed_document_is_the_model);
fn a_changed_document_is_the_model(inner: InnerNodes) {
    for seed in 1..=6 {
        let mut random = SplitMix64::new(seed);
        let store = new_store(seed);
        load_as(inner, &store, "d", FIRST).unwrap();
        let mut model = Model::new();
        let transaction = store.begin();
        let document = transaction.document_to_update("d").unwrap();
        for step in 0..300 {
            model.step(&mut random, &document).unwrap();
            if step % 30 == 0 {
                let case = format!("seed {seed}, step {step}");
                compare(&document, &model.tree(), &case);
                compare(&document, &in_memory(&plain(&document).unwrap()), &case);
            }
        }
        transaction.commit().unwrap();
        let transaction = store.begin();
        let document = transaction.document("d").unwrap();
        compare(&document, &model.tree(), &format!("seed {seed}, committed"));
    }
}

/// Makes an index or drops it, now and then.
fn change_indexes(store: &XmlStore, random: &mut SplitMix64) {
    let definition = DEFINITIONS[random.next_below(6) as usize];
    let exists = store.indexes("d").unwrap().iter().any(|index| index.name == definition);
    match (exists, random.next_below(8)) {
        (true, 0) => assert!(store.drop_index("d", definition).unwrap()),
        (false, 0 | 1) => indexes::create(store, definition, definition).unwrap(),
        _ => {}
    }
}

/// Changes a document at least so many times, in transactions that roll back to savepoints, are
/// rolled back or commit. Now and then opens the store again, makes an index or drops one. Labels
/// are short in every second run, so that lists are labelled anew.
fn change_and_roll_back(inner: InnerNodes, seed: u64, changes: u32) {
    let mut random = SplitMix64::new(seed);
    let disk = new_disk(seed);
    let mut store = open(&disk).unwrap();
    let label_max = if seed.is_multiple_of(2) { 9 } else { 500 };
    let options = DocumentOptions { label_max, inner_nodes: inner, ..DocumentOptions::default() };
    store.load("d", options, FIRST.as_bytes(), |_| ControlFlow::Continue(())).unwrap();
    let mut committed = Model::new();
    let (mut done, mut round) = (0, 0);
    while done < changes {
        round += 1;
        let case = format!("seed {seed}, round {round}");
        if random.next_chance(0.05) {
            store.close().unwrap();
            store = open(&disk).unwrap();
        }
        change_indexes(&store, &mut random);
        let mut model = committed.clone();
        let transaction = store.begin();
        let document = transaction.document("d").unwrap();
        for _ in 0..random.next_below(4) {
            let (savepoint, kept) = (transaction.savepoint(), model.clone());
            let steps = random.next_below(20);
            for _ in 0..steps {
                done += u32::from(model.step_within_limits(&mut random, &document).unwrap());
            }
            if random.next_chance(0.4) {
                transaction.roll_back_to(savepoint).unwrap();
                model = kept;
            }
        }
        compare(&document, &model.tree(), &case);
        drop(document);
        if random.next_chance(0.5) {
            transaction.commit().unwrap();
            committed = model;
        } else {
            drop(transaction);
        }
        let transaction = store.begin();
        compare(&transaction.document("d").unwrap(), &committed.tree(), &case);
    }
}

both!(what_is_rolled_back_never_was);
fn what_is_rolled_back_never_was(inner: InnerNodes) {
    (7..10).for_each(|seed| change_and_roll_back(inner, seed, 400));
}

#[test]
#[ignore = "soak: two million random changes"]
fn two_million_changes_are_those_of_the_model() {
    let seeds = seeds(100..200);
    for seed in seeds.clone() {
        let inner = if seed % 4 < 2 { InnerNodes::Stored } else { InnerNodes::Virtual };
        change_and_roll_back(inner, seed, 20_000);
        println!("seeds {} to {seed}: {} changes", seeds.start, (seed + 1 - seeds.start) * 20_000);
    }
}

both!(a_renamed_element_changes_the_paths_below_it);
fn a_renamed_element_changes_the_paths_below_it(inner: InnerNodes) {
    let store = new_store(9);
    load_as(inner, &store, "d", "<r><a k='1'><b><c>x</c></b></a><a><b/></a></r>").unwrap();
    let transaction = store.begin();
    let document = transaction.document_to_update("d").unwrap();
    let a = document.first_child(&Label::root()).unwrap().unwrap();
    document.rename(&a, &QName::local("z")).unwrap();
    let expected = in_memory("<r><z k='1'><b><c>x</c></b></z><a><b/></a></r>");
    compare(&document, &expected, "renamed");
    let classes = document.path_classes();
    document.rename(&a, &QName::local("a")).unwrap();
    assert_eq!(document.path_classes(), classes, "classes are found again");
    drop(document);
    drop(transaction);
    let transaction = store.begin();
    let document = transaction.document("d").unwrap();
    compare(&document, &in_memory("<r><a k='1'><b><c>x</c></b></a><a><b/></a></r>"), "undone");
}

both!(what_xml_does_not_allow_is_refused);
fn what_xml_does_not_allow_is_refused(inner: InnerNodes) {
    let store = new_store(10);
    load_as(inner, &store, "d", "<r>text<!--c--></r>").unwrap();
    let transaction = store.begin();
    let document = transaction.document_to_update("d").unwrap();
    let before = dump(&document);
    let root = Label::root();
    let children: Vec<Label> = document.children(&root).unwrap().collect::<Result<_, _>>().unwrap();
    let bad_name = QName::local("a b");
    let insert = |node| document.insert(&Place::Last(root.clone()), node).map(|_| ());
    let instruction = |target, data| NewNode::ProcessingInstruction { target, data };
    let xmlns = QName {
        prefix: "xmlns".into(),
        local: "p".into(),
        namespace: "http://www.w3.org/2000/xmlns/".into(),
    };
    let [xml, other] = ["xml", "xmlns"].map(|prefix| QName {
        prefix: prefix.into(),
        local: "p".into(),
        namespace: "urn:p".into(),
    });
    document.set_attribute(&root, &QName::local("k"), "v").unwrap();
    let attribute = document.attribute(&root, &QName::local("k")).unwrap().unwrap();
    let declaration = QName::local("xmlns");
    for refused in [
        document.set_attribute(&root, &declaration, "urn:p").map(|_| ()),
        document.rename(&attribute, &declaration),
        document.set_attribute(&root, &xml, "u").map(|_| ()),
        document.rename(&root, &xml),
        document.set_attribute(&root, &other, "u").map(|_| ()),
        insert(NewNode::Element(&other)),
        insert(NewNode::Element(&bad_name)),
        insert(NewNode::Text("")),
        insert(NewNode::Text("\u{1}")),
        insert(NewNode::Comment("a--b")),
        insert(NewNode::Comment("a-")),
        insert(instruction("xml", "")),
        insert(instruction("a", "?>")),
        insert(instruction("a", " b")),
        document.set_value(&children[0], ""),
        document.set_value(&children[1], "--"),
        document.set_value(&root, "x"),
        document.set_attribute(&root, &xmlns, "u").map(|_| ()),
        document.set_attribute(&root, &bad_name, "u").map(|_| ()),
        document.rename(&root, &bad_name),
        document.rename(&children[0], &QName::local("a")),
        document.delete(&root),
    ] {
        let error = refused.unwrap_err();
        assert!(!matches!(error, XmlStoreError::Engine(_)), "{error}");
    }
    assert!(document.remove_attribute(&root, &QName::local("k")).unwrap());
    document.delete(&children[0]).unwrap();
    let gone = document.kind(&children[0]).unwrap_err();
    assert!(matches!(gone, XmlStoreError::NoSuchNode(_)), "{gone}");
    assert_eq!(before.replace("text", ""), dump(&document));
}

#[test]
fn readers_share_a_document_and_a_writer_waits_for_them() {
    let store = new_store(11);
    load(&store, "d", "<r/>").unwrap();
    let (one, two) = (store.begin(), store.begin());
    one.document("d").unwrap();
    two.document("d").unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let transaction = store.begin();
            let document = transaction.document_to_update("d").unwrap();
            document.insert(&Place::Last(Label::root()), NewNode::Text("written")).unwrap();
            drop(document);
            transaction.commit().unwrap();
        });
        two.commit().unwrap();
        assert_eq!(dump(&one.document("d").unwrap()), "<r></r>");
        one.commit().unwrap();
        writer.join().unwrap();
    });
    let transaction = store.begin();
    assert_eq!(dump(&transaction.document("d").unwrap()), "<r>written</r>");
}

both!(a_name_that_was_asked_for_follows_changes_and_ways_back);
fn a_name_that_was_asked_for_follows_changes_and_ways_back(inner: InnerNodes) {
    let store = new_store(11);
    load_as(inner, &store, "d", "<r><a>x</a></r>").unwrap();
    let transaction = store.begin();
    let (one, other) =
        (transaction.document_to_update("d").unwrap(), transaction.document("d").unwrap());
    let a = one.first_child(&Label::root()).unwrap().unwrap();
    let names = || {
        let name = |name: Option<QName>| name.unwrap().local;
        [name(one.name(&a).unwrap()), name(other.name(&a).unwrap())]
    };
    assert_eq!(names(), ["a".into(), "a".into()]);
    let savepoint = transaction.savepoint();
    one.rename(&a, &QName::local("b")).unwrap();
    assert_eq!(names(), ["b".into(), "b".into()]);
    transaction.roll_back_to(savepoint).unwrap();
    assert_eq!(names(), ["a".into(), "a".into()]);
    one.delete(&a).unwrap();
    for document in [&one, &other] {
        assert!(matches!(document.kind(&a), Err(XmlStoreError::NoSuchNode(_))));
    }
}

both!(a_subtree_is_written_with_the_namespaces_that_it_uses);
fn a_subtree_is_written_with_the_namespaces_that_it_uses(inner: InnerNodes) {
    let store = new_store(12);
    let text = "<r xmlns:p='urn:p'>x<p:a b='&lt;'>y<c/></p:a><!--z--></r>";
    load_as(inner, &store, "d", text).unwrap();
    let transaction = store.begin();
    let document = transaction.document("d").unwrap();
    let written = |node: &Label| {
        document.write_subtree(node, Vec::new()).map(|text| String::from_utf8(text).unwrap())
    };
    let children: Vec<Label> =
        document.children(&Label::root()).unwrap().collect::<Result<_, _>>().unwrap();
    let parts: Vec<String> = children.iter().map(|child| written(child).unwrap()).collect();
    assert_eq!(parts, ["x", "<p:a b=\"&lt;\" xmlns:p=\"urn:p\">y<c/></p:a>", "<!--z-->"]);
    let whole = written(&Label::document()).unwrap();
    assert_eq!(whole, "<r xmlns:p=\"urn:p\">x<p:a b=\"&lt;\">y<c/></p:a><!--z--></r>");
    let attribute = &document.attributes(&children[1]).unwrap()[0];
    assert!(matches!(written(attribute), Err(XmlStoreError::NotPossible { .. })));
}

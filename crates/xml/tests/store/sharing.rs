//! A store that several use at once, and directories of stores.

use std::fs;
use std::io::{self, BufReader, Read};
use std::ops::ControlFlow;
use std::thread;

use tidegate_engine::{Store, StoreOptions};
use tidegate_random::SplitMix64;
use tidegate_xml::parse::ParseErrorKind;
use tidegate_xml::store::{DocumentOptions, NewNode, Place, XmlStore, XmlStoreError};
use tidegate_xml::tree::Tree;

use super::indexes::create;
use super::{canonical, dump, load, new_store};

#[test]
fn of_loads_of_the_same_name_at_once_one_succeeds() {
    let store = new_store(1);
    for round in 0..5 {
        let name = format!("d{round}");
        let text = |number| format!("<r>{}</r>", format!("<n{round}.{number}/>").repeat(500));
        let loaded: Vec<bool> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|number| (&store, &name, text(number)))
                .map(|(store, name, text)| scope.spawn(move || load(store, name, &text)))
                .collect();
            let results = threads.into_iter().map(|thread| thread.join().unwrap());
            results
                .map(|result| match result {
                    Ok(_) => true,
                    Err(XmlStoreError::DocumentExists(_)) => false,
                    Err(error) => panic!("{error}"),
                })
                .collect()
        });
        assert_eq!(loaded.iter().filter(|loaded| **loaded).count(), 1, "{loaded:?}");
        let winner = loaded.iter().position(|loaded| *loaded).unwrap();
        let transaction = store.begin();
        let document = transaction.document(&name).unwrap();
        assert_eq!(dump(&document), canonical(&text(winner)));
        assert_eq!(document.check().unwrap(), []);
        drop(document);
        drop(transaction);
        assert_eq!(store.engine().trees().len(), 4 + round + 1, "no stray trees");
    }
}

#[test]
fn a_document_is_loaded_read_and_dropped_while_another_is_used() {
    let store = new_store(1);
    load(&store, "d", "<r><a/></r>").unwrap();
    create(&store, "names", "name").unwrap();
    let transaction = store.begin();
    let document = transaction.document_to_update("d").unwrap();
    document.insert(&Place::First(document.root().unwrap()), NewNode::Comment("c")).unwrap();
    // The name is taken, whatever the transaction does.
    assert!(matches!(load(&store, "d", "<r/>"), Err(XmlStoreError::DocumentExists(_))));
    load(&store, "e", "<r/>").unwrap();
    assert!(store.drop_document("e").unwrap());
    assert_eq!(store.documents().unwrap(), ["d"]);
    assert_eq!(document.check().unwrap(), []);
    transaction.commit().unwrap();
}

#[test]
fn a_drop_waits_for_who_reads() {
    let store = new_store(1);
    load(&store, "d", "<r><a/>text</r>").unwrap();
    create(&store, "names", "name").unwrap();
    thread::scope(|scope| {
        let transaction = store.begin();
        let document = transaction.document("d").unwrap();
        let dropping = scope.spawn(|| store.drop_document("d"));
        for _ in 0..200 {
            assert_eq!(dump(&document), "<r><a></a>text</r>");
            thread::yield_now();
        }
        assert!(!dropping.is_finished());
        drop(document);
        transaction.commit().unwrap();
        assert!(dropping.join().unwrap().unwrap());
    });
    let gone = store.begin().document("d").map(|_| ());
    assert!(matches!(gone, Err(XmlStoreError::NoSuchDocument(_))), "{gone:?}");
    assert_eq!(store.engine().trees().len(), 4);
    assert!(!store.drop_document("d").unwrap());
}

/// Threads insert, read, index and drop the same documents. Whatever they do, what is there in the
/// end is sound.
#[test]
fn threads_that_do_everything_at_once_leave_sound_documents() {
    let store = new_store(1);
    let body = "<a k='1'>x</a>".repeat(300);
    let text = format!("<r>{body}</r>");
    thread::scope(|scope| {
        for seed in 0..4 {
            let (store, text) = (&store, &text);
            scope.spawn(move || {
                let mut random = SplitMix64::new(seed);
                for _ in 0..40 {
                    let name = ["d", "e"][random.next_below(2) as usize];
                    let done = one_of_many(store, &mut random, name, text);
                    match done {
                        Ok(())
                        | Err(
                            XmlStoreError::NoSuchDocument(_)
                            | XmlStoreError::DocumentExists(_)
                            | XmlStoreError::NoSuchIndex(_)
                            | XmlStoreError::IndexExists(_),
                        ) => {}
                        Err(error) => assert!(error.is_retryable(), "seed {seed}: {error}"),
                    }
                }
            });
        }
    });
    let mut trees = 4;
    for name in store.documents().unwrap() {
        trees += 1 + store.indexes(&name).unwrap().len();
        let transaction = store.begin();
        assert_eq!(transaction.document(&name).unwrap().check().unwrap(), [], "{name}");
    }
    assert_eq!(store.engine().trees().len(), trees, "no stray trees");
    store.engine().check().unwrap();
}

fn one_of_many(
    store: &XmlStore,
    random: &mut SplitMix64,
    name: &str,
    text: &str,
) -> Result<(), XmlStoreError> {
    let index = ["name", "cas text", "path //a"][random.next_below(3) as usize];
    match random.next_below(10) {
        0 => store.drop_document(name).map(|_| ()),
        1..4 => load(store, name, text).map(|_| ()),
        4 => {
            let definition = index.parse().unwrap();
            store.create_index(name, index, &definition, |_| ControlFlow::Continue(()))
        }
        5 => store.drop_index(name, index).map(|_| ()),
        6 | 7 => {
            let transaction = store.begin();
            assert_eq!(transaction.document(name)?.check()?, []);
            Ok(())
        }
        _ => {
            let transaction = store.begin();
            let document = transaction.document_to_update(name)?;
            let root = document.last_child(&document.root()?)?.unwrap();
            document.insert_xml(&Place::Last(root.clone()), &b"<b>y</b>"[..])?;
            let first = document.first_child(&root)?.unwrap();
            document.delete(&first)?;
            drop(document);
            transaction.commit()
        }
    }
}

#[test]
fn a_copied_directory_is_another_store() {
    let directory = tempfile::tempdir().unwrap();
    let [one, two] = ["one", "two"].map(|name| directory.path().join(name));
    let store = XmlStore::open_or_create(&one).unwrap();
    load(&store, "d", "<r>x</r>").unwrap();
    create(&store, "names", "name").unwrap();
    store.close().unwrap();
    fs::create_dir(&two).unwrap();
    for entry in fs::read_dir(&one).unwrap() {
        let entry = entry.unwrap();
        assert!(entry.file_type().unwrap().is_file(), "{entry:?}");
        fs::copy(entry.path(), two.join(entry.file_name())).unwrap();
    }
    let (store, copy) =
        (XmlStore::open_or_create(&one).unwrap(), XmlStore::open_or_create(&two).unwrap());
    assert!(store.drop_document("d").unwrap());
    load(&copy, "e", "<r/>").unwrap();
    let transaction = copy.begin();
    let document = transaction.document("d").unwrap();
    assert_eq!(document.check().unwrap(), []);
    assert_eq!(dump(&document), "<r>x</r>");
    assert_eq!(store.documents().unwrap(), Vec::<String>::new());
    assert_eq!(copy.documents().unwrap(), ["d", "e"]);
}

#[test]
fn a_store_that_is_open_is_not_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = XmlStore::open_or_create(&path).unwrap();
    let refused = XmlStore::open_or_create(&path).map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("in use") || refused.contains("open"), "{refused}");
    store.close().unwrap();
    XmlStore::open_or_create(&path).unwrap();
}

#[test]
fn what_is_no_store_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("letter.txt");
    fs::write(&file, "dear all").unwrap();
    assert!(XmlStore::open_or_create(directory.path()).is_err());
    assert!(XmlStore::open_or_create(&file).is_err());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    let path = directory.path().join("other");
    let other = Store::open_or_create(&path, &StoreOptions::default()).unwrap();
    other.create_tree("accounts").unwrap();
    other.close().unwrap();
    assert!(matches!(XmlStore::open_or_create(&path), Err(XmlStoreError::OtherStore)));
}

/// Gives a document, and an error in place of its end.
struct Broken<'a>(&'a [u8]);

impl Read for Broken<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.0.read(into)? {
            0 => Err(io::Error::new(io::ErrorKind::ConnectionReset, "the line is down")),
            count => Ok(count),
        }
    }
}

#[test]
fn input_that_breaks_off_leaves_nothing() {
    let store = new_store(1);
    let text = format!("<r>{}", "<a/>".repeat(5_000));
    let input = BufReader::new(Broken(text.as_bytes()));
    let go_on = |_| ControlFlow::Continue(());
    let Err(XmlStoreError::Parse(error)) =
        store.load("d", DocumentOptions::default(), input, go_on)
    else {
        panic!("the document has no end")
    };
    assert!(matches!(error.kind, ParseErrorKind::Io(_)), "{error}");
    assert!(error.to_string().contains("the line is down"), "{error}");
    assert_eq!(store.documents().unwrap(), Vec::<String>::new());
    assert_eq!(store.engine().trees().len(), 4);
}

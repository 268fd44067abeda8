//! A disk that fills up in the midst of a load, an update or the building of an index: nothing is
//! there by halves, the error says so, and the store opens again when there is room.

use std::sync::Arc;

use tidegate_engine::disk::{Crash, Disk, Faults, Open, SimulatedDisk};
use tidegate_xml::store::{Place, XmlStore, XmlStoreError};
use tidegate_xml::tree::Tree;

use super::indexes::create;
use super::{canonical, dump, load, new_disk, open};

fn size(disk: &SimulatedDisk) -> u64 {
    let names = disk.list().unwrap();
    names.iter().map(|name| disk.open(name, Open::Existing).unwrap().len().unwrap()).sum()
}

fn text(elements: usize) -> String {
    format!("<r>{}</r>", "<a k='v'>some text</a>".repeat(elements))
}

/// Does something on disks with ever less room, of which `setup` has used some, and calls `verify`
/// on the store that is then opened with more room, with whether all was done.
fn fill(
    setup: impl Fn(&XmlStore),
    work: impl Fn(&XmlStore) -> Result<(), XmlStoreError>,
    verify: impl Fn(&XmlStore, bool),
) {
    let prepared = new_disk(1);
    let store = open(&prepared).unwrap();
    setup(&store);
    store.close().unwrap();
    let (mut failed, mut room) = (0, 0);
    loop {
        let disk = Arc::new(prepared.crash(Crash::Kept));
        disk.set_faults(Faults { capacity: Some(size(&disk) + room), ..Faults::default() });
        let done = open(&disk).and_then(|store| {
            work(&store)?;
            store.close()
        });
        if let Err(error) = &done {
            failed += 1;
            let said = error.to_string();
            let says_why = said.contains("full") || said.contains("space");
            assert!(says_why, "{room} bytes of room: {said}");
        }
        let disk = Arc::new(disk.crash(Crash::Kept));
        let store = open(&disk).unwrap_or_else(|error| panic!("{room} bytes of room: {error}"));
        verify(&store, done.is_ok());
        store.engine().check().unwrap();
        if done.is_ok() {
            break;
        }
        room += 20_000 + room / 4;
    }
    assert!(failed > 3, "the disk was full only {failed} times");
}

#[test]
fn in_a_load() {
    let text = text(5_000);
    fill(
        |store| {
            load(store, "old", "<r/>").unwrap();
        },
        |store| load(store, "new", &text).map(|_| ()),
        |store, done| {
            let documents = store.documents().unwrap();
            let is_there = documents.len() == 2;
            assert!(is_there || !done);
            assert_eq!(store.engine().trees().len(), 4 + documents.len());
            let transaction = store.begin();
            assert_eq!(dump(&transaction.document("old").unwrap()), "<r></r>");
            if is_there {
                let document = transaction.document("new").unwrap();
                assert_eq!(document.check().unwrap(), []);
                assert_eq!(dump(&document), canonical(&text));
            }
        },
    );
}

#[test]
fn in_an_update() {
    let (before, inserted) = (text(10), "<b>more</b>".repeat(4_000));
    let after = before.replace("</r>", &format!("{inserted}</r>"));
    fill(
        |store| {
            load(store, "d", &before).unwrap();
        },
        |store| {
            let transaction = store.begin();
            let document = transaction.document_to_update("d")?;
            let root = document.last_child(&document.root()?)?.unwrap();
            document.insert_xml(&Place::Last(root), inserted.as_bytes())?;
            drop(document);
            transaction.commit()
        },
        |store, done| {
            let transaction = store.begin();
            let document = transaction.document("d").unwrap();
            assert_eq!(document.check().unwrap(), []);
            let found = dump(&document);
            assert!(found == canonical(&after) || (!done && found == canonical(&before)));
        },
    );
}

#[test]
fn in_the_building_of_an_index() {
    let text = text(3_000);
    fill(
        |store| {
            load(store, "d", &text).unwrap();
        },
        |store| create(store, "content", "content text"),
        |store, done| {
            let indexes = store.indexes("d").unwrap();
            assert!(indexes.first().is_some_and(|index| index.is_ready) || !done);
            assert_eq!(store.engine().trees().len(), 5 + indexes.len());
            // What there is of it goes on.
            if !done && !indexes.first().is_some_and(|index| index.is_ready) {
                create(store, "content", "content text").unwrap();
            }
            let transaction = store.begin();
            let document = transaction.document("d").unwrap();
            assert_eq!(document.check().unwrap(), []);
            assert_eq!(dump(&document), canonical(&text));
        },
    );
}

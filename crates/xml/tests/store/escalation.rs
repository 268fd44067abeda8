//! Escalation: many locks on nodes become one on a node above, and conflicts wait as before.

use std::num::NonZeroU32;

use tidegate_xml::label::Label;
use tidegate_xml::store::{
    Document, EscalationReading, InnerNodes, LockEscalation, LockProtocol, Locking, XmlStore,
    XmlStoreError, XmlTransaction,
};
use tidegate_xml::tree::Tree;

use super::locks::impatient;
use super::{dump, load_as, new_disk, shared};

/// 40 requests below the root element, 20 below a section, 10 below an item.
const ESCALATION: LockEscalation = LockEscalation {
    requests: 40,
    gain_percent: NonZeroU32::new(100).unwrap(),
    reading: EscalationReading::Formula,
};

const ITEMS: usize = 50;
const LAST: usize = ITEMS - 1;

/// A store whose document has two sections of many items, and the items' texts by section.
fn sections(escalation: Option<LockEscalation>) -> (XmlStore, [Vec<Label>; 2]) {
    let engine = tidegate_engine::Store::open(&shared(&new_disk(1)), &impatient()).unwrap();
    let store = XmlStore::on(engine).unwrap();
    let section = format!("<s>{}</s>", "<i>x</i>".repeat(ITEMS));
    load_as(InnerNodes::Stored, &store, "d", &format!("<r>{section}{section}</r>")).unwrap();
    store.set_locking(Locking { escalation, ..Locking::by(LockProtocol::mgl()) });
    assert_eq!(store.locking().escalation, escalation);
    let texts = {
        let transaction = store.begin();
        let document = transaction.document("d").unwrap();
        let sections: Vec<Label> = listed(&document, &Label::root());
        [0, 1].map(|section| {
            let items = listed(&document, &sections[section]);
            items.iter().map(|item| document.first_child(item).unwrap().unwrap()).collect()
        })
    };
    (store, texts)
}

fn listed(document: &Document<'_>, node: &Label) -> Vec<Label> {
    document.children(node).unwrap().collect::<Result<_, _>>().unwrap()
}

fn begin(store: &XmlStore) -> XmlTransaction<'_> {
    store.begin()
}

/// Sets a text in a transaction of its own, which commits. Returns whether it had to wait.
fn has_to_wait(store: &XmlStore, text: &Label) -> bool {
    let transaction = begin(store);
    let set = transaction.document("d").and_then(|document| document.set_value(text, "other"));
    match set {
        Ok(()) => {
            transaction.commit().unwrap();
            false
        }
        Err(error) => {
            assert!(error.is_retryable(), "{error}");
            true
        }
    }
}

fn read_all(document: &Document<'_>, texts: &[Label]) -> Result<(), XmlStoreError> {
    texts.iter().try_for_each(|text| document.content(text).map(drop))
}

#[test]
fn many_locks_become_one_on_the_section() {
    let (store, [first, second]) = sections(Some(ESCALATION));
    let reader = begin(&store);
    let document = reader.document("d").unwrap();
    read_all(&document, &first[..10]).unwrap();
    assert_eq!(store.node_lock_statistics().escalations, 0);
    assert!(!has_to_wait(&store, &first[LAST]), "few locks are locks on nodes");
    read_all(&document, &first[..30]).unwrap();
    let seen = store.node_lock_statistics();
    assert_eq!(seen.escalations, 1);
    assert!(seen.held < 10, "{seen:?}");
    assert!(has_to_wait(&store, &first[LAST]), "the section is locked as a whole");
    assert!(!has_to_wait(&store, &second[0]), "the other section is not");
    let other = begin(&store);
    read_all(&other.document("d").unwrap(), &first).unwrap();
    drop(document);
    drop((reader, other));
    assert_eq!(store.node_lock_statistics().held, 0);
    let by_mode = store.node_lock_statistics_by_mode();
    let requests = |name: &str| by_mode.iter().find(|mode| mode.name == name).unwrap().requests;
    assert!(requests("SR") >= 30 && requests("SX") > 0, "{by_mode:?}");
}

#[test]
fn without_a_threshold_nodes_stay_locked_one_by_one() {
    let (store, [first, _]) = sections(None);
    let reader = begin(&store);
    let document = reader.document("d").unwrap();
    read_all(&document, &first[..LAST]).unwrap();
    let seen = store.node_lock_statistics();
    assert!(seen.escalations == 0 && seen.held > LAST as u64, "{seen:?}");
    assert!(!has_to_wait(&store, &first[LAST]));
    assert!(has_to_wait(&store, &first[0]));
}

/// Who cannot lock the whole without waiting goes on node by node, and what it has locked stays.
#[test]
fn an_escalation_that_meets_others_is_left_out() {
    let (store, [first, _]) = sections(Some(ESCALATION));
    let writer = begin(&store);
    writer.document("d").unwrap().set_value(&first[LAST], "changed").unwrap();
    let reader = begin(&store);
    read_all(&reader.document("d").unwrap(), &first[..LAST]).unwrap();
    let seen = store.node_lock_statistics();
    assert!(seen.escalations == 0 && seen.held > LAST as u64, "{seen:?}");
    assert!(has_to_wait(&store, &first[0]));
    writer.commit().unwrap();
    assert!(!has_to_wait(&store, &first[LAST]));
}

#[test]
fn what_is_rolled_back_after_an_escalation_never_was() {
    let (store, [first, second]) = sections(Some(ESCALATION));
    let read = || dump(&store.begin().document("d").unwrap());
    let before = read();
    let writer = begin(&store);
    let document = writer.document("d").unwrap();
    let savepoint = writer.savepoint();
    for text in &first {
        document.set_value(text, "changed").unwrap();
    }
    assert_eq!(store.node_lock_statistics().escalations, 1);
    writer.roll_back_to(savepoint).unwrap();
    assert!(has_to_wait(&store, &first[0]), "locks are kept");
    document.delete(&first[0]).unwrap();
    document.set_value(&second[0], "changed").unwrap();
    drop(document);
    drop(writer);
    assert_eq!(read(), before);
    assert_eq!(store.node_lock_statistics().held, 0);
    assert!(!has_to_wait(&store, &first[0]));
}

/// Reading becomes writing after the escalation: the lock on the section becomes exclusive.
#[test]
fn a_section_that_was_read_as_a_whole_is_written() {
    let (store, [first, second]) = sections(Some(ESCALATION));
    let transaction = begin(&store);
    let document = transaction.document("d").unwrap();
    read_all(&document, &first).unwrap();
    document.set_value(&first[3], "changed").unwrap();
    let other = begin(&store);
    let beside = other.document("d").unwrap();
    assert!(beside.content(&first[3]).is_err_and(|error| error.is_retryable()));
    assert!(has_to_wait(&store, &first[4]));
    assert!(!has_to_wait(&store, &second[4]));
}

//! Weaker isolation levels: each has the anomalies that are named for it, and no others.

use std::time::Duration;

use tidegate_engine::{Isolation, TxnOptions};
use tidegate_xml::label::Label;
use tidegate_xml::store::{Document, InnerNodes, LockProtocol, Locking, Place, XmlStore};

use super::pairs::named;
use super::protocols::{Protocol, Setting};
use super::steps::{New, Seen, Step};
use super::{INDEXES, options, store_of};

const TEXT: &str = "<site><a><b1>x</b1><b2>y</b2></a><people><p id=\"p1\"/><p/></people>\
    <other/></site>";

const LEVELS: [Isolation; 4] = [
    Isolation::ReadUncommitted,
    Isolation::ReadCommitted,
    Isolation::RepeatableRead,
    Isolation::Serializable,
];

/// What two transactions may do to each other.
#[derive(Clone, Copy, Debug)]
enum Anomaly {
    /// Two write the same, and neither has committed.
    DirtyWrite,
    /// What was read was never committed.
    DirtyRead,
    /// What was read twice was changed between.
    NonRepeatableRead,
    /// What was read was changed by another transaction before it was written.
    LostUpdate,
    /// A node has come beside one that was read.
    PhantomSibling,
    /// An entry has come into an index where there was none.
    PhantomEntry,
}

use Anomaly::{DirtyRead, DirtyWrite, LostUpdate, NonRepeatableRead, PhantomEntry, PhantomSibling};

/// Each anomaly, and the number of levels from the weakest on that have it.
const ANOMALIES: [(Anomaly, usize); 6] = [
    (DirtyWrite, 0),
    (DirtyRead, 1),
    (NonRepeatableRead, 2),
    (LostUpdate, 2),
    (PhantomSibling, 3),
    (PhantomEntry, 3),
];

struct Scene {
    store: XmlStore,
    text: Label,
    last: Label,
    person: Label,
    other: Label,
}

impl Scene {
    fn new() -> Scene {
        let options = options(Some(Duration::ZERO));
        let (store, model) = store_of(TEXT, &INDEXES, InnerNodes::Stored, &options);
        let nodes = named(&model);
        let at = |name: &str| nodes[name].clone();
        let [text, last, person, other] = ["b1/text", "b2", "p", "other"].map(at);
        Scene { store, text, last, person, other }
    }

    /// Reads another node: until then a transaction that does not repeat its reads may keep what it
    /// has locked for the last one.
    fn go_on(&self, document: &Document<'_>) {
        Step::Node(self.other.clone()).run(document).unwrap();
    }

    /// Runs a step in a transaction of its own, and commits it if it had not to wait. Returns
    /// whether it did.
    fn commits(&self, setting: Setting, step: &Step) -> bool {
        let transaction = setting.begin(&self.store);
        let done = transaction.document("d").and_then(|document| step.run(&document));
        match done {
            Ok(seen) => {
                assert_ne!(seen, Seen::Refused);
                transaction.commit().unwrap();
                true
            }
            Err(error) => {
                assert!(error.is_retryable(), "{error}");
                false
            }
        }
    }

    /// Returns whether what a transaction of this level read changes because of another's step.
    fn changes(
        &self,
        [own, other]: [Setting; 2],
        level: Isolation,
        read: &Step,
        write: &Step,
    ) -> bool {
        let transaction = own.begin_as(&self.store, level);
        let document = transaction.document("d").unwrap();
        let before = read.run(&document).unwrap();
        self.go_on(&document);
        if !self.commits(other, write) {
            return false;
        }
        let after = read.run(&document).unwrap();
        assert_ne!(before, after, "{level:?}: the change is not seen");
        true
    }

    /// Returns whether the anomaly occurs between a transaction of this level and a serializable
    /// one.
    fn shows(&self, anomaly: Anomaly, settings: [Setting; 2], level: Isolation) -> bool {
        let [own, other] = settings;
        let set = |value: &str| Step::SetText(self.text.clone(), value.to_owned());
        let read = Step::Node(self.text.clone());
        match anomaly {
            DirtyWrite => {
                let first = own.begin_as(&self.store, level);
                set("v").run(&first.document("d").unwrap()).unwrap();
                let second = other.begin_as(&self.store, level);
                let done = second.document("d").and_then(|document| set("w").run(&document));
                done.is_ok()
            }
            DirtyRead => {
                let writer = other.begin(&self.store);
                set("v").run(&writer.document("d").unwrap()).unwrap();
                let reader = own.begin_as(&self.store, level);
                let seen = reader.document("d").and_then(|document| read.run(&document));
                seen.is_ok_and(|seen| seen.to_string() == "[v]")
            }
            NonRepeatableRead => self.changes(settings, level, &read, &set("v")),
            LostUpdate => {
                let one = own.begin_as(&self.store, level);
                let document = one.document("d").unwrap();
                read.run(&document).unwrap();
                self.go_on(&document);
                self.commits(other, &set("v")) && set("w").run(&document).is_ok()
            }
            PhantomSibling => {
                let new = Step::Insert(Place::After(self.last.clone()), New::Element("new"));
                self.changes(settings, level, &Step::Next(self.last.clone()), &new)
            }
            PhantomEntry => {
                let new = Step::SetAttribute(self.person.clone(), "id", "p9".to_owned());
                self.changes(settings, level, &Step::WithId("p9".to_owned()), &new)
            }
        }
    }
}

#[test]
fn levels_have_their_anomalies_and_no_others() {
    let mut wrong = Vec::new();
    for protocol in [Protocol::Mgl, Protocol::Tadom] {
        for other in [Protocol::Mgl, Protocol::Tadom] {
            for depth in [None, Some(3), Some(2)] {
                let own = Setting { depth, ..protocol.unbounded() };
                let settings = [own, other.unbounded()];
                for (anomaly, levels) in ANOMALIES {
                    for (index, level) in LEVELS.into_iter().enumerate() {
                        let seen = Scene::new().shows(anomaly, settings, level);
                        if seen != (index < levels) {
                            let what = if seen { "shows" } else { "does not show" };
                            wrong.push(format!("{own}, {other:?}: {level:?} {what} {anomaly:?}"));
                        }
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Without locks a reader waits for no writer and no writer for it, and it writes nothing.
#[test]
fn without_locks_there_are_dirty_reads_and_no_writes() {
    let scene = Scene::new();
    let none = Locking::by(LockProtocol::none());
    let reader = scene.store.begin_locking(none, TxnOptions::default());
    let document: Document<'_> = reader.document("d").unwrap();
    let read = Step::Node(scene.text.clone());
    assert_eq!(read.run(&document).unwrap().to_string(), "[x]");
    let writer = Protocol::Tadom.unbounded().begin(&scene.store);
    let set = Step::SetText(scene.text.clone(), "v".to_owned());
    set.run(&writer.document("d").unwrap()).unwrap();
    assert_eq!(read.run(&document).unwrap().to_string(), "[v]");
    drop(writer);
    assert_eq!(read.run(&document).unwrap().to_string(), "[x]");
    let refused = document.set_value(&scene.text, "w").unwrap_err();
    assert!(!refused.is_retryable(), "{refused}");
    let refused = document.delete(&scene.last).unwrap_err();
    assert!(!refused.is_retryable(), "{refused}");
    reader.commit().unwrap();
}

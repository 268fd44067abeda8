//! Named schedules: what one transaction holds, and whether another has to wait, by protocol.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_xml::label::Label;
use tidegate_xml::store::{InnerNodes, Place, XmlStore};

use super::pairs::named;
use super::protocols::{Protocol, Setting};
use super::steps::{New, Seen, Step};
use super::{INDEXES, options, store_of};

/// Level 0 `site`; 1 `open_auctions`, `regions`; 2 `a`, `region`; 3 `b1`, `b2`, `current`, `item`;
/// 4 texts, `mailbox`, `mailbox2`. No two texts are beside each other in an index of content that
/// are set in one schedule: who removes an entry locks the next one.
const TEXT: &str = "<site><open_auctions><a phone=\"1\"><b1>x</b1><b2>y</b2><current>5</current>\
    </a></open_auctions><regions><region><item><name>xx</name><mailbox/><mailbox2/></item>\
    <person id=\"person5\"><q>z</q></person><person/></region></regions></site>";

/// What a second transaction has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Wait,
    GoOn,
}

use Then::{GoOn as G, Wait as W};

/// A schedule of two transactions.
struct Schedule {
    name: &'static str,
    first: Vec<Step>,
    second: Step,
    /// By document locks, by MGL, by taDOM3+, and by taDOM3+ with a lock depth of 2.
    then: [Then; 4],
    /// The lock depth of the first transaction where the protocol's is unbounded.
    depth: Option<u32>,
}

fn one(name: &'static str, first: Step, second: Step, then: [Then; 4]) -> Schedule {
    Schedule { name, first: vec![first], second, then, depth: None }
}

/// A store with its nodes by name.
struct Scene {
    store: XmlStore,
    nodes: BTreeMap<String, Label>,
}

impl Scene {
    fn new(timeout: Duration) -> Scene {
        let (store, model) = store_of(TEXT, &INDEXES, InnerNodes::Stored, &options(Some(timeout)));
        Scene { store, nodes: named(&model) }
    }

    fn at(&self, name: &str) -> Label {
        self.nodes[name].clone()
    }

    fn append(&self, name: &str) -> Step {
        Step::Insert(Place::Last(self.at(name)), New::Element("new"))
    }

    fn before(&self, name: &str) -> Step {
        Step::Insert(Place::Before(self.at(name)), New::Element("new"))
    }

    fn after(&self, name: &str) -> Step {
        Step::Insert(Place::After(self.at(name)), New::Element("new"))
    }

    fn rename(&self, name: &str) -> Step {
        Step::Rename(self.at(name), "new")
    }

    fn set_text(&self, name: &str) -> Step {
        Step::SetText(self.at(name), "1".to_owned())
    }

    fn schedules(&self) -> Vec<Schedule> {
        let at = |name| self.at(name);
        let at_depth = |depth, schedule| Schedule { depth: Some(depth), ..schedule };
        let set = |name| Step::SetAttribute(self.at("a"), name, "2".to_owned());
        let first_mail = || Step::First(at("mailbox"));
        let empty = |name| one(name, first_mail(), self.append("mailbox"), [W; 4]);
        let split = Schedule {
            first: vec![Step::Next(at("b1")), self.after("b1")],
            ..one("split gap", first_mail(), self.before("b2"), [W; 4])
        };
        let children = || Step::Children(at("a"));
        let next = || Step::Next(at("b1"));
        let path = ["site", "open_auctions", "a", "b1"].to_vec();
        // All its path classes are those of nodes that are there.
        let register = New::Fragment("person", "person9".to_owned(), "Anna".to_owned());
        let register = Step::Insert(Place::Last(at("region")), register);
        let set_id = Step::SetAttribute(at("person"), "id", "person9".to_owned());
        let absent = || Step::Attribute(at("a"), "x");
        vec![
            // No locks on edges.
            one("last-child phantom", Step::Last(at("a")), self.append("a"), [W; 4]),
            // A lock on a level that leaves out the edges of the children.
            empty("empty-list phantom"),
            at_depth(3, empty("empty-list phantom, a reader to the level above")),
            at_depth(2, empty("empty-list phantom, a reader to the level above that")),
            // An edge on the wrong side, or too many.
            one("gap phantom, within", next(), self.before("b2"), [W; 4]),
            one("gap phantom, behind", next(), self.after("b2"), [W, G, G, W]),
            // One name for a gap.
            split,
            // A lock on a level for one on the subtree, and without CX on the parent.
            one("level and text", children(), self.set_text("current/text"), [W, W, G, W]),
            one("level and name", children(), self.rename("current"), [W; 4]),
            one("level and delete", children(), Step::Delete(at("b1")), [W; 4]),
            // A name that a reader below has got from a path class.
            one("rename above a path", Step::OnPath(path), self.rename("a"), [W; 4]),
            one(
                "rename above a path of a node",
                Step::Path(at("b1/text")),
                self.rename("a"),
                [W; 4],
            ),
            // A rename locks the subtree here, so that a reader by label waits as well.
            one("rename above a reader", Step::Node(at("b1/text")), self.rename("a"), [W; 4]),
            // No intention locks when a node is entered through an index.
            one("delete above an index", Step::Named("mailbox"), Step::Delete(at("item")), [W; 4]),
            // Attributes that are not locked, or are locked as children.
            one("absent attribute, the same", absent(), set("x"), [W; 4]),
            one("absent attribute, another", absent(), set("phone"), [W, W, G, W]),
            // Entries locked, but not the gaps between them.
            one("absent id", Step::WithId("person9".to_owned()), register.clone(), [W; 4]),
            one(
                "absent id of an element",
                Step::WithId("person9".to_owned()),
                set_id.clone(),
                [W; 4],
            ),
            one("another id", Step::WithId("person1".to_owned()), set_id, [W, G, G, G]),
            one("another id in XML", Step::WithId("person1".to_owned()), register, [W, G, G, G]),
        ]
    }

    /// Label reuse, and what goes on although much is locked.
    fn more_schedules(&self) -> Vec<Schedule> {
        let at = |name| self.at(name);
        let set = |name| Step::SetAttribute(self.at("a"), name, "2".to_owned());
        vec![
            // A label that is given twice.
            one("label reuse", Step::Delete(at("b2")), self.after("b1"), [W; 4]),
            one(
                "label reuse, from the other side",
                Step::Delete(at("b2")),
                self.before("current"),
                [W; 4],
            ),
            // Locks on too much.
            one("two lists", self.append("b1"), self.append("b2"), [W, G, G, W]),
            one("two regions", self.append("a"), self.append("region"), [W, G, G, G]),
            one("two ends", Step::First(at("a")), self.append("a"), [W, W, G, W]),
            one(
                "text beside text",
                self.set_text("b1/text"),
                self.set_text("b2/text"),
                [W, G, G, W],
            ),
            one("node and text below", Step::Node(at("a")), self.set_text("b1/text"), [W, W, G, W]),
            one("node and append", Step::Node(at("a")), self.append("a"), [W, W, G, W]),
            one("names of two nodes", Step::Node(at("b1")), self.rename("b2"), [W, G, G, W]),
            one("subtree beside append", Step::Subtree(at("b1")), self.append("a"), [W, G, G, W]),
            one("two attributes", set("x"), Step::Attribute(at("a"), "phone"), [W, W, G, W]),
        ]
    }

    /// Runs both. Returns whether the second waits.
    fn run(&self, settings: [Setting; 2], first: &[Step], second: &Step) -> Then {
        let one = settings[0].begin(&self.store);
        let document = one.document("d").unwrap();
        for step in first {
            assert_ne!(step.run(&document).unwrap(), Seen::Refused, "{step:?}");
        }
        let other = settings[1].begin(&self.store);
        match other.document("d").and_then(|document| second.run(&document)) {
            Ok(seen) => {
                assert_ne!(seen, Seen::Refused, "{second:?}");
                Then::GoOn
            }
            Err(_) => Then::Wait,
        }
    }
}

fn column(protocol: Protocol) -> usize {
    match protocol {
        Protocol::Document | Protocol::X => 0,
        Protocol::Mgl => 1,
        Protocol::Tadom | Protocol::Planted(..) | Protocol::Own => 2,
    }
}

#[test]
fn named_schedules_wait_or_go_on() {
    let scene = Scene::new(Duration::ZERO);
    let mut wrong = Vec::new();
    let all = scene.schedules().into_iter().chain(scene.more_schedules());
    let all: Vec<Schedule> = all.collect();
    let count = all.len();
    for Schedule { name, first, second, then, depth } in all {
        for protocol in Protocol::ALL {
            let holder = Setting { depth, ..protocol.unbounded() };
            let at_two = protocol.unbounded().to_depth(2);
            let expected = then[column(protocol)];
            let mut cases = vec![([holder, protocol.unbounded()], expected)];
            if depth.is_none() {
                cases.push(([at_two; 2], if expected == W { W } else { then[3] }));
            }
            for (settings, expected) in cases {
                let seen = scene.run(settings, &first, &second);
                if seen != expected {
                    wrong.push(format!("{name}, {}; {}: {seen:?}", settings[0], settings[1]));
                }
            }
        }
    }
    println!("{count} schedules");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Each reads one list and writes the other; both together are no serial run.
#[test]
fn two_that_would_skew_do_not_both_commit() {
    let scene = Scene::new(Duration::ZERO);
    for one in Protocol::ALL {
        for other in Protocol::ALL {
            let transactions =
                [one, other].map(|protocol| protocol.unbounded().begin(&scene.store));
            let documents = [0, 1].map(|index| transactions[index].document("d").ok());
            let boxes = ["mailbox", "mailbox2"];
            let mut done = [true; 2];
            for (index, document) in documents.iter().enumerate() {
                let read = Step::Children(scene.at(boxes[index]));
                done[index] = document.as_ref().is_some_and(|document| read.run(document).is_ok());
            }
            for (index, document) in documents.iter().enumerate() {
                let write = scene.append(boxes[1 - index]);
                let document = document.as_ref().filter(|_| done[index]);
                done[index] = document.is_some_and(|document| write.run(document).is_ok());
            }
            assert_ne!(done, [true, true], "{one:?}, {other:?}");
        }
    }
}

/// MGL reads nodes by R, never by IR, and a writer by it has CX on the parent: so it meets readers
/// and writers of levels and nodes.
#[test]
fn two_protocols_meet() {
    let scene = Scene::new(Duration::ZERO);
    let (mgl, tadom) = (Protocol::Mgl.unbounded(), Protocol::Tadom.unbounded());
    let (at, delete) = (|name| scene.at(name), Step::Delete(scene.at("b1")));
    let mails = || Step::First(at("mailbox"));
    for (name, settings, first, second, then) in [
        ("level and delete", [tadom, mgl], Step::Children(at("a")), delete, W),
        ("rename and node", [tadom, mgl], scene.rename("current"), Step::Node(at("current")), W),
        ("node and rename", [mgl, tadom], Step::Node(at("current")), scene.rename("current"), W),
        ("empty list, MGL reads", [mgl, tadom], mails(), scene.append("mailbox"), W),
        ("empty list, taDOM3+ reads", [tadom, mgl], mails(), scene.append("mailbox"), W),
        ("two texts", [tadom, mgl], scene.set_text("b1/text"), scene.set_text("b2/text"), G),
        ("node, text below", [tadom, mgl], Step::Node(at("a")), scene.set_text("b1/text"), G),
        ("text, node above", [tadom, mgl], scene.set_text("b1/text"), Step::Node(at("a")), W),
        ("two ends", [tadom, mgl], Step::First(at("a")), scene.append("a"), G),
        ("two subtrees", [mgl, tadom], Step::Subtree(at("b1")), scene.append("b2"), G),
    ] {
        assert_eq!(scene.run(settings, &[first], &second), then, "{name}");
    }
}

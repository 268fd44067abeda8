//! Locks of nodes: what conflicts waits, what does not goes on, and histories are serial.

#![expect(clippy::print_stdout, reason = "seeds and figures, for who reads a failure")]

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use tidegate_engine::lock::LockSettings;
use tidegate_engine::{StoreOptions, TxnOptions};
use tidegate_random::SplitMix64;
use tidegate_xml::label::Label;
use tidegate_xml::name::QName;
use tidegate_xml::store::{
    Document, EscalationReading, InnerNodes, LockEscalation, LockProtocol, Locking, NewNode, Place,
    XmlStore, XmlStoreError, XmlTransaction,
};
use tidegate_xml::tree::{Kind, Tree};

use super::{dump, load_as, new_disk, options, shared};

/// Elements on levels 0 to 4, one of them empty, and a text beside an element beside a text.
const TEXT: &str = "<site><open><a k=\"1\"><b1>x</b1><b2/><cur>5</cur></a></open>\
    <empty/><item>t<box/>u</item></site>";

fn store_with(options: &StoreOptions, inner_nodes: InnerNodes) -> XmlStore {
    let disk = new_disk(1);
    let engine = tidegate_engine::Store::open(&shared(&disk), options).unwrap();
    let store = XmlStore::on(engine).unwrap();
    load_as(inner_nodes, &store, "d", TEXT).unwrap();
    store
}

/// Options with which no request waits.
pub(crate) fn impatient() -> StoreOptions {
    let timeout = Some(Duration::ZERO);
    options().locks(LockSettings { timeout, ..options().locks })
}

fn begin<'s>(store: &'s XmlStore, locking: &Locking) -> XmlTransaction<'s> {
    store.begin_locking(locking.clone(), TxnOptions::default())
}

fn mgl() -> Locking {
    Locking::by(LockProtocol::mgl())
}

fn tadom() -> Locking {
    Locking::by(LockProtocol::tadom())
}

/// An operation on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Kind,
    Name,
    First,
    Last,
    Next,
    Previous,
    Children,
    Subtree,
    Attribute,
    OtherAttribute,
    SetValue,
    Rename,
    SetAttribute,
    SetOtherAttribute,
    RemoveAttribute,
    Before,
    After,
    Prepend,
    Append,
    Fragment,
    Delete,
    MoveToEmpty,
    CopyToEmpty,
}

const OPS: [Op; 23] = [
    Op::Kind,
    Op::Name,
    Op::First,
    Op::Last,
    Op::Next,
    Op::Previous,
    Op::Children,
    Op::Subtree,
    Op::Attribute,
    Op::OtherAttribute,
    Op::SetValue,
    Op::Rename,
    Op::SetAttribute,
    Op::SetOtherAttribute,
    Op::RemoveAttribute,
    Op::Before,
    Op::After,
    Op::Prepend,
    Op::Append,
    Op::Fragment,
    Op::Delete,
    Op::MoveToEmpty,
    Op::CopyToEmpty,
];

impl Op {
    fn reads(self) -> bool {
        OPS.iter().position(|op| *op == self) < OPS.iter().position(|op| *op == Op::SetValue)
    }

    /// Whether it does anything but fail at a node of this kind.
    fn suits(self, is_element: bool) -> bool {
        use Op::{
            Append, Attribute, Children, First, Fragment, Last, OtherAttribute, Prepend,
            RemoveAttribute, Rename, SetAttribute, SetOtherAttribute, SetValue,
        };
        match self {
            SetValue => !is_element,
            First | Last | Children | Attribute | OtherAttribute | Rename | SetAttribute
            | SetOtherAttribute | RemoveAttribute | Prepend | Append | Fragment => is_element,
            _ => true,
        }
    }
}

/// Does an operation. Returns what it returned, in words; conflicts are errors.
fn run(document: &Document<'_>, op: Op, node: &Label) -> Result<String, XmlStoreError> {
    let done = run_op(document, op, node);
    match done {
        Err(error) if !error.is_retryable() => Ok(format!("refused: {error}")),
        done => done,
    }
}

fn run_op(document: &Document<'_>, op: Op, node: &Label) -> Result<String, XmlStoreError> {
    let (k, z, new) = (QName::local("k"), QName::local("z"), QName::local("new"));
    // The second child of the root element.
    let children = Label::root().children(tidegate_xml::label::LabelRules::new(500));
    let empty = children.after_last(&children.first()?)?;
    let insert = |place| {
        let inserted = document.insert(&place, NewNode::Element(&new))?;
        Ok(inserted.to_string())
    };
    let value = |name| {
        let found = document.attribute(node, name)?;
        let found = found.map(|found| document.content(&found)).transpose()?;
        Ok(format!("{found:?}"))
    };
    match op {
        Op::Kind => Ok(format!("{:?}", document.kind(node)?)),
        Op::Name => Ok(format!("{:?}", document.name(node)?)),
        Op::First => Ok(format!("{:?}", document.first_child(node)?)),
        Op::Last => Ok(format!("{:?}", document.last_child(node)?)),
        Op::Next => Ok(format!("{:?}", document.next_sibling(node)?)),
        Op::Previous => Ok(format!("{:?}", document.previous_sibling(node)?)),
        Op::Children => {
            let children = document.children(node)?;
            Ok(format!("{:?}", children.collect::<Result<Vec<_>, _>>()?))
        }
        Op::Subtree => document.string_value(node),
        Op::Attribute => value(&k),
        Op::OtherAttribute => value(&z),
        Op::SetValue => document.set_value(node, "set").map(|()| String::new()),
        Op::Rename => document.rename(node, &new).map(|()| String::new()),
        Op::SetAttribute => Ok(document.set_attribute(node, &k, "set")?.to_string()),
        Op::SetOtherAttribute => Ok(document.set_attribute(node, &z, "set")?.to_string()),
        Op::RemoveAttribute => Ok(document.remove_attribute(node, &k)?.to_string()),
        Op::Before => insert(Place::Before(node.clone())),
        Op::After => insert(Place::After(node.clone())),
        Op::Prepend => insert(Place::First(node.clone())),
        Op::Append => insert(Place::Last(node.clone())),
        Op::Fragment => {
            let inserted = document.insert_xml(&Place::Last(node.clone()), &b"w<new/>"[..])?;
            Ok(format!("{inserted:?}"))
        }
        Op::Delete => document.delete(node).map(|()| String::new()),
        Op::MoveToEmpty => Ok(document.move_to(node, &Place::Last(empty))?.to_string()),
        Op::CopyToEmpty => Ok(document.copy_to(node, &Place::First(empty))?.to_string()),
    }
}

/// The nodes of the document by name; a text is `parent/text`, or `parent/text2` if it is no first.
fn nodes(store: &XmlStore) -> BTreeMap<String, (Label, bool)> {
    let transaction = store.begin();
    let document = transaction.document("d").unwrap();
    let mut found: BTreeMap<String, (Label, bool)> = BTreeMap::new();
    for label in document.descendants(&Label::document()).unwrap() {
        let label = label.unwrap();
        let is_element = document.kind(&label).unwrap() == Kind::Element;
        let named = if is_element { label.clone() } else { label.parent().unwrap() };
        let mut name = document.name(&named).unwrap().unwrap().local.to_string();
        if !is_element {
            name += "/text";
        }
        if found.contains_key(&name) {
            name += "2";
        }
        found.insert(name, (label, is_element));
    }
    found
}

type Step<'a> = (Op, &'a Label);

/// What two operations return and leave behind in this order, each in words.
fn in_order(store: &XmlStore, steps: [Step<'_>; 2]) -> ([String; 2], String) {
    let transaction = store.begin();
    let document = transaction.document_to_update("d").unwrap();
    let results = steps.map(|(op, node)| run(&document, op, node).unwrap());
    (results, dump(&document))
}

/// Runs the first in a transaction that stays, and the second in another one. Returns what the
/// second returned, or nothing if it had to wait.
fn beside(store: &XmlStore, lockings: [&Locking; 2], steps: [Step<'_>; 2]) -> Option<String> {
    let first = begin(store, lockings[0]);
    let document = first.document("d").unwrap();
    run(&document, steps[0].0, steps[0].1).expect("nobody is in the way");
    let second = begin(store, lockings[1]);
    let beside = second.document("d").and_then(|document| run(&document, steps[1].0, steps[1].1));
    beside.ok()
}

both! {
    /// Pairs of operations around one list of children.
    conflicts_wait
}

fn conflicts_wait(inner_nodes: InnerNodes) {
    let store = store_with(&impatient(), inner_nodes);
    let nodes = nodes(&store);
    let pairs = pairs(&store, &nodes, |name, op| {
        let repeats = [Op::Name, Op::Previous, Op::OtherAttribute, Op::Before, Op::CopyToEmpty];
        let is_one_of_many = ["a", "b1/text", "b2"].contains(&name) && !repeats.contains(&op);
        is_one_of_many || matches!((name, op), ("b1", Op::Next | Op::Delete) | (_, Op::Append))
    });
    for lockings in [[mgl(), mgl()], [tadom(), tadom()], [mgl(), tadom()], [tadom(), mgl()]] {
        check_pairs(&store, &pairs, lockings.each_ref());
    }
}

both! {
    /// Pairs of transactions of equal and of different lock depths.
    conflicts_wait_at_each_depth
}

fn conflicts_wait_at_each_depth(inner_nodes: InnerNodes) {
    check_depths(inner_nodes, |name, op| match name {
        "a" => matches!(op, Op::Children | Op::OtherAttribute | Op::SetOtherAttribute | Op::Append),
        "b1" => matches!(op, Op::Kind | Op::First | Op::Next | Op::Rename | Op::Delete),
        "b1/text" => matches!(op, Op::Subtree | Op::SetValue),
        "b2" => matches!(op, Op::First | Op::Append | Op::Before),
        "box" => matches!(op, Op::Subtree | Op::Prepend | Op::Delete),
        _ => false,
    });
}

both! {
    #[ignore = "soak: minutes for 50,000 pairs of operations at each two of six depths"]
    all_conflicts_wait
}

fn all_conflicts_wait(inner_nodes: InnerNodes) {
    check_depths(inner_nodes, |_, _| true);
}

/// Two operations of two transactions.
struct Pair<'a> {
    case: String,
    steps: [Step<'a>; 2],
    /// They give another result in another order.
    is_conflict: bool,
    /// What the second one returns beside an updating first one that it does not meet.
    alone: String,
}

/// All pairs of the operations that are wanted.
fn pairs<'n>(
    store: &XmlStore,
    nodes: &'n BTreeMap<String, (Label, bool)>,
    is_wanted: impl Fn(&str, Op) -> bool,
) -> Vec<Pair<'n>> {
    let mut steps: Vec<(String, Step<'n>)> = Vec::new();
    for (name, (label, is_element)) in nodes {
        let suits = OPS.into_iter().filter(|op| op.suits(*is_element));
        let wanted = suits.filter(|op| is_wanted(name, *op));
        steps.extend(wanted.map(|op| (format!("{op:?} {name}"), (op, label))));
    }
    let mut pairs = Vec::new();
    for (one, first) in &steps {
        for (other, second) in &steps {
            let steps = [*first, *second];
            let mut pair = Pair {
                case: format!("{one}, then {other}"),
                steps,
                is_conflict: false,
                alone: String::new(),
            };
            if !steps.iter().all(|(op, _)| op.reads()) {
                let ([a, b], left) = in_order(store, steps);
                let ([c, d], right) = in_order(store, [*second, *first]);
                pair.is_conflict = (&a, &b, left) != (&d, &c, right);
                pair.alone = c;
            }
            pairs.push(pair);
        }
    }
    pairs
}

/// Every pair of operations of two transactions: if they give another result in another order, the
/// second waits; if it does not wait, it sees what it would see alone. Returns how many pairs wait
/// that need not.
fn check_pairs(store: &XmlStore, pairs: &[Pair<'_>], [first, second]: [&Locking; 2]) -> usize {
    let (mut conflicts, mut needless, mut free) = (0, 0, 0);
    for Pair { case, steps, is_conflict, alone } in pairs {
        let case = format!("{first:?}, {second:?}: {case}");
        let seen = beside(store, [first, second], *steps);
        assert!(!is_conflict || seen.is_none(), "{case} did not wait");
        let [one, other] = steps.map(|(op, _)| op.reads());
        if one && other {
            assert!(seen.is_some(), "{case}: readers wait for each other");
        }
        match (is_conflict, &seen) {
            (true, _) => conflicts += 1,
            (false, None) => needless += 1,
            (false, Some(seen)) => {
                free += 1;
                assert!(one || seen == alone, "{case}: {seen}, and alone {alone}");
            }
        }
    }
    println!(
        "{first:?}, {second:?}: {conflicts} conflicts, {needless} wait without need, {free} go on"
    );
    assert!(conflicts > 20 && free > 20);
    needless
}

/// A protocol to each depth from the root element to the leaves, and to no bound.
fn depths(protocol: &LockProtocol) -> Vec<Locking> {
    let to = |depth| Locking { depth, ..Locking::by(protocol.clone()) };
    (0..=4).map(Some).chain([None]).map(to).collect()
}

/// Pairs at each lock depth and at each two different ones.
fn check_depths(inner_nodes: InnerNodes, is_wanted: impl Fn(&str, Op) -> bool) {
    let store = store_with(&impatient(), inner_nodes);
    let nodes = nodes(&store);
    let pairs = pairs(&store, &nodes, is_wanted);
    let protocols = [LockProtocol::mgl(), LockProtocol::tadom()];
    for (one, other) in [(0, 0), (1, 1), (0, 1), (1, 0)] {
        let mut needless = Vec::new();
        for first in depths(&protocols[one]) {
            for second in depths(&protocols[other]) {
                let waits = check_pairs(&store, &pairs, [&first, &second]);
                if first.depth == second.depth {
                    needless.push(waits);
                }
            }
        }
        assert!(needless.is_sorted_by(|coarse, fine| coarse >= fine), "{needless:?}");
        assert!(needless.first() > needless.last(), "{needless:?}");
    }
}

#[test]
fn the_named_schedules_wait_or_go_on() {
    let store = store_with(&impatient(), InnerNodes::Stored);
    let nodes = nodes(&store);
    let at = |name: &str| &nodes[name].0;
    let (waits, goes) = (true, false);
    for (name, first, second, expected) in [
        ("last-child phantom", (Op::Last, "a"), (Op::Append, "a"), waits),
        ("empty-list phantom", (Op::First, "box"), (Op::Append, "box"), waits),
        ("gap phantom", (Op::Next, "b1"), (Op::Before, "b2"), waits),
        ("beside the gap", (Op::Next, "b1"), (Op::After, "b2"), goes),
        ("level and text", (Op::Children, "a"), (Op::SetValue, "cur/text"), waits),
        ("level and name", (Op::Children, "a"), (Op::Rename, "cur"), waits),
        ("level and delete", (Op::Children, "a"), (Op::Delete, "b1"), waits),
        ("rename above a reader", (Op::Subtree, "b1/text"), (Op::Rename, "a"), waits),
        ("delete above a reader", (Op::Kind, "box"), (Op::Delete, "item"), waits),
        ("absent attribute", (Op::OtherAttribute, "a"), (Op::SetOtherAttribute, "a"), waits),
        ("other attribute", (Op::OtherAttribute, "a"), (Op::SetAttribute, "a"), waits),
        ("label reuse", (Op::Delete, "b2"), (Op::After, "b1"), waits),
        ("two appenders", (Op::Append, "a"), (Op::Append, "a"), waits),
        ("two lists", (Op::Append, "a"), (Op::Append, "item"), goes),
        ("both ends", (Op::Prepend, "a"), (Op::Append, "a"), goes),
        ("two attributes", (Op::SetAttribute, "a"), (Op::SetOtherAttribute, "a"), goes),
        ("writer beside reader", (Op::Subtree, "item"), (Op::SetValue, "b1/text"), goes),
        ("insert beside reader", (Op::Subtree, "b1"), (Op::Append, "a"), goes),
        ("joined texts", (Op::Delete, "box"), (Op::SetValue, "item/text2"), waits),
    ] {
        let steps = [(first.0, at(first.1)), (second.0, at(second.1))];
        let seen = beside(&store, [&mgl(), &mgl()], steps);
        assert_eq!(seen.is_none(), expected, "{name}");
    }
}

/// T1 has read the gap and divides it; the rest of it has another name, and is its own still.
#[test]
fn a_gap_that_was_read_and_divided_stays_locked() {
    let store = store_with(&impatient(), InnerNodes::Stored);
    let nodes = nodes(&store);
    let one = begin(&store, &mgl());
    let document = one.document("d").unwrap();
    let (b1, b2) = (&nodes["b1"].0, &nodes["b2"].0);
    assert_eq!(document.next_sibling(b1).unwrap().as_ref(), Some(b2));
    run(&document, Op::After, b1).unwrap();
    let other = begin(&store, &mgl());
    let beside = other.document("d").unwrap();
    assert!(run(&beside, Op::Before, b2).is_err());
}

/// An update reads the node beside it under its own locks, which do not keep the node's name.
#[test]
fn what_an_update_has_read_beside_it_is_read_again() {
    let store = store_with(&impatient(), InnerNodes::Stored);
    let nodes = nodes(&store);
    let beside = &nodes["b2"].0;
    let one = begin(&store, &mgl());
    let document = one.document("d").unwrap();
    run(&document, Op::Before, beside).unwrap();
    let other = begin(&store, &mgl());
    run(&other.document("d").unwrap(), Op::Rename, beside).unwrap();
    other.commit().unwrap();
    assert_eq!(document.name(beside).unwrap(), Some(QName::local("new")));
}

#[test]
fn documents_and_nodes_are_locked_beside_each_other() {
    let store = store_with(&impatient(), InnerNodes::Stored);
    let nodes = nodes(&store);
    let at = |name: &str| &nodes[name].0;
    let whole = Locking::default();
    for (first, second, waits) in [
        ((Op::Kind, "b1"), (Op::Kind, "a"), false),
        ((Op::Kind, "b1"), (Op::SetValue, "item/text"), true),
        ((Op::SetValue, "b1/text"), (Op::Kind, "item"), true),
    ] {
        let steps = [(first.0, at(first.1)), (second.0, at(second.1))];
        let seen = beside(&store, [&whole, &mgl()], steps);
        assert_eq!(seen.is_none(), waits, "{first:?} {second:?}");
    }
    let nodes_first = begin(&store, &mgl());
    run(&nodes_first.document("d").unwrap(), Op::SetValue, at("b1/text")).unwrap();
    assert!(store.begin().document("d").is_err());
}

#[test]
fn readers_of_an_index_meet_writers_of_what_they_found_and_of_what_they_did_not() {
    let store = store_with(&impatient(), InnerNodes::Stored);
    for (name, definition) in [("names", "name"), ("content", "content text")] {
        let definition = definition.parse().unwrap();
        let go_on = |_| std::ops::ControlFlow::Continue(());
        store.create_index("d", name, &definition, go_on).unwrap();
    }
    let nodes = nodes(&store);
    let at = |name: &str| &nodes[name].0;
    let find = |document: &Document<'_>, name: &str| -> Result<Vec<Label>, XmlStoreError> {
        let name = QName::local(name);
        let found = document.elements_below(&Label::document(), &name)?;
        found.expect("there is an index").collect()
    };
    let cases: [(&str, &str, Op, &str, bool); 6] = [
        ("delete above an index reader", "box", Op::Delete, "item", true),
        ("rename of what was found", "box", Op::Rename, "box", true),
        ("a class that is not there yet", "new", Op::Append, "a", true),
        ("a name that came by renaming", "new", Op::Rename, "b2", true),
        ("content of another node", "box", Op::SetValue, "b1/text", false),
        ("an attribute elsewhere", "box", Op::SetAttribute, "a", false),
    ];
    for (case, name, op, node, waits) in cases {
        let reader = begin(&store, &mgl());
        let found = find(&reader.document("d").unwrap(), name).unwrap();
        assert_eq!(found.len(), usize::from(name == "box"), "{case}");
        let writer = begin(&store, &mgl());
        let done = run(&writer.document("d").unwrap(), op, at(node));
        assert_eq!(done.is_err(), waits, "{case}: {done:?}");
    }
    // An identifier that is not there.
    let reader = begin(&store, &mgl());
    assert_eq!(reader.document("d").unwrap().element_by_id("p9").unwrap(), None);
    let writer = begin(&store, &mgl());
    let id = QName {
        prefix: "xml".into(),
        local: "id".into(),
        namespace: "http://www.w3.org/XML/1998/namespace".into(),
    };
    let set = writer.document("d").unwrap().set_attribute(at("b2"), &id, "p9");
    assert!(set.is_err_and(|error| error.is_retryable()));
}

/// From 8 requests below the root element, 2 on level 2.
const EARLY: LockEscalation = LockEscalation {
    requests: 8,
    gain_percent: NonZeroU32::new(100).unwrap(),
    reading: EscalationReading::Formula,
};

/// One committed transaction: its operations and what they returned.
type Committed = Vec<(Op, Label, String)>;

/// Runs a few operations at random and commits, again after each conflict. Returns how often it
/// was run again.
fn update(
    store: &XmlStore,
    nodes: &[Label],
    random: &mut SplitMix64,
    history: &Mutex<Vec<Committed>>,
    escalation: Option<LockEscalation>,
) -> usize {
    let below = |random: &mut SplitMix64, bound: usize| {
        usize::try_from(random.next_bits() % bound as u64).unwrap()
    };
    let count = 1 + below(random, 3);
    let mut steps = Vec::new();
    for _ in 0..count {
        let op = OPS[below(random, OPS.len())];
        steps.push((op, nodes[below(random, nodes.len())].clone()));
    }
    let (mgl, tadom) = (LockProtocol::mgl(), LockProtocol::tadom());
    let protocols = [LockProtocol::document(), LockProtocol::x(), mgl.clone(), mgl, tadom.clone()];
    let protocol = protocols.get(below(random, 7)).unwrap_or(&tadom).clone();
    let depth = [Some(1), Some(2), Some(3), None, None, None][below(random, 6)];
    let locking = Locking { depth, escalation, ..Locking::by(protocol) };
    for retries in 0..500 {
        let transaction = begin(store, &locking);
        let done = (|| {
            let document = transaction.document("d")?;
            let run = |(op, node): &(Op, Label)| {
                let result = run(&document, *op, node)?;
                thread::yield_now();
                Ok((*op, node.clone(), result))
            };
            steps.iter().map(run).collect::<Result<Committed, XmlStoreError>>()
        })();
        match done {
            Ok(committed) => {
                // In the order of the commits: locks are held until then.
                let mut history = history.lock().unwrap();
                transaction.commit().unwrap();
                history.push(committed);
                return retries;
            }
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
        drop(transaction);
        thread::sleep(Duration::from_micros(random.next_bits() % 2_000));
    }
    panic!("a transaction is run again for ever");
}

both! {
    /// Concurrent updaters of all protocols and several depths leave what one after the other
    /// leave, in the order of their commits. In every second run nodes escalate after a few
    /// requests.
    histories_are_serial
}

fn histories_are_serial(inner_nodes: InnerNodes) {
    let mut escalated = 0;
    for seed in 0..4 {
        println!("seed {seed}");
        let store = store_with(&options(), inner_nodes);
        let is_early = seed % 2 == 1;
        let escalation = is_early.then_some(EARLY);
        let nodes: Vec<Label> = nodes(&store).into_values().map(|(label, _)| label).collect();
        let history = Mutex::new(Vec::new());
        let retries: usize = thread::scope(|scope| {
            let updater = |thread: u64| {
                let (store, nodes, history) = (&store, &nodes, &history);
                scope.spawn(move || {
                    let mut random = SplitMix64::new(seed * 100 + thread);
                    (0..25)
                        .map(|_| update(store, nodes, &mut random, history, escalation))
                        .sum::<usize>()
                })
            };
            let threads: Vec<_> = (0..4).map(updater).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        let serial = store_with(&options(), inner_nodes);
        for (number, committed) in history.into_inner().unwrap().into_iter().enumerate() {
            let transaction = serial.begin();
            let document = transaction.document_to_update("d").unwrap();
            for (op, node, result) in committed {
                let expected = run(&document, op, &node).unwrap();
                assert_eq!(result, expected, "seed {seed}, commit {number}: {op:?} {node}");
            }
            transaction.commit().unwrap();
        }
        let dumps = [&store, &serial].map(|store| {
            let transaction = store.begin();
            let document = transaction.document("d").unwrap();
            assert_eq!(document.check().unwrap(), [], "seed {seed}");
            dump(&document)
        });
        assert_eq!(dumps[0], dumps[1], "seed {seed}");
        let seen = store.engine().lock_statistics();
        assert_eq!((seen.held, seen.timeouts), (0, 0), "seed {seed}");
        let escalations = store.node_lock_statistics().escalations;
        println!(
            "{retries} retries of 100, {} deadlocks, {escalations} escalations",
            seen.deadlocks
        );
        assert!(is_early || escalations == 0, "seed {seed}");
        escalated += escalations;
        assert!(retries < 1_000, "seed {seed}: {retries} retries of 100 transactions");
    }
    assert!(escalated > 0);
}

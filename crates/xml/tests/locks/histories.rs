//! Histories of random concurrent transactions, which have to be serializable.
//!
//! Each transaction records what its operations returned. It takes a number before it ends, while
//! it holds its locks, so the order of these numbers is a serial order that two-phase locking has
//! to lead to. Afterwards all transactions are run again in this order on a document in memory.
//! Those that were rolled back, and victims of deadlocks up to their last operation, have to have
//! seen what they see there, too; then the document is put back as it was.

use std::collections::BTreeMap;
use std::iter;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_engine::lock::LockError;
use tidegate_engine::{Isolation, TxnError};
use tidegate_random::SplitMix64;
use tidegate_runtime::{Machine, Strategy, clock, is_virtual, run_all, search, thread};
use tidegate_xml::label::Label;
use tidegate_xml::store::{
    Document, EscalationReading, InnerNodes, LockEscalation, Place, XmlStore, XmlStoreError,
    XmlTransaction,
};

use super::model::{DOCUMENT, Model};
use super::protocols::{Protocol, Setting};
use super::steps::{New, Seen, Step};
use super::{INDEXES, options, seeds, store_of};

/// Lists with few and with many children, empty elements, texts between elements, and identifiers.
const TEXT: &str = "<site><open><a id=\"p0\" k=\"1\"><b1>x</b1><b2><m/></b2><cur>5</cur></a>\
    <a id=\"p1\"><b1>y</b1>t<cur>6</cur></a></open><closed/><people><p id=\"p2\"><q>x</q></p>\
    <p id=\"p3\"><q>z</q></p></people><item>t<box/>u</item></site>";

const THREADS: u64 = 8;
const TRANSACTIONS: usize = 6;
const NAMES: [&str; 6] = ["a", "b1", "cur", "p", "q", "new"];
const ATTRIBUTES: [&str; 3] = ["id", "k", "z"];
const IDS: [&str; 6] = ["p0", "p1", "p2", "p3", "p4", "p5"];
const TEXTS: [&str; 4] = ["x", "y", "5", "w"];

/// Policies of escalation: none, and two that act in small documents.
fn escalations() -> [Option<LockEscalation>; 3] {
    [None, Some((12, 100)), Some((40, 150))].map(|policy| {
        policy.map(|(requests, gain)| LockEscalation {
            requests,
            gain_percent: NonZeroU32::new(gain).unwrap(),
            reading: EscalationReading::default(),
        })
    })
}

/// What a transaction did, in its order.
#[derive(Clone, Debug)]
enum Event {
    Did(Step, Seen),
    Savepoint,
    BackToSavepoint,
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Commit,
    RollBack,
    Conflict,
}

/// A transaction that has ended.
#[derive(Debug)]
struct Ended {
    number: u64,
    setting: String,
    end: End,
    events: Vec<Event>,
}

/// What the threads of a history share.
struct Stage {
    store: XmlStore,
    history: History,
    /// Labels of nodes, also of some that were deleted.
    labels: Mutex<Vec<Label>>,
    numbers: AtomicU64,
    ended: Mutex<Vec<Ended>>,
    /// The longest time that a transaction waited to begin, in microseconds.
    longest_wait: AtomicU64,
    /// The longest time that one took from then on, in microseconds.
    longest_run: AtomicU64,
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap()
}

/// Asserts that an operation ended because of a deadlock.
fn assert_deadlock(error: &XmlStoreError) {
    let is_deadlock =
        matches!(error, XmlStoreError::Engine(TxnError::Conflict(LockError::Deadlock)));
    assert!(is_deadlock, "{error}");
}

/// Counts of one history or of several.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    commits: usize,
    rollbacks: usize,
    conflicts: usize,
    operations: usize,
    refused: usize,
    escalations: u64,
    waits: u64,
    longest_wait_us: u64,
    longest_run_us: u64,
}

impl Counts {
    fn add(&mut self, more: &Counts) {
        self.commits += more.commits;
        self.rollbacks += more.rollbacks;
        self.conflicts += more.conflicts;
        self.operations += more.operations;
        self.refused += more.refused;
        self.escalations += more.escalations;
        self.waits += more.waits;
        self.longest_wait_us = self.longest_wait_us.max(more.longest_wait_us);
        self.longest_run_us = self.longest_run_us.max(more.longest_run_us);
    }
}

fn one_of<T: Copy>(random: &mut SplitMix64, all: &[T]) -> T {
    all[random.next_below(u32::try_from(all.len()).unwrap()) as usize]
}

/// A transaction that is under way.
struct Actor<'a, 't> {
    document: &'a Document<'t>,
    random: &'a mut SplitMix64,
    /// Labels that the transaction may use.
    known: Vec<Label>,
    events: Vec<Event>,
}

impl Actor<'_, '_> {
    fn label(&mut self) -> Label {
        let count = u32::try_from(self.known.len()).unwrap();
        self.known[self.random.next_below(count) as usize].clone()
    }

    fn run(&mut self, step: Step) -> Result<bool, XmlStoreError> {
        let seen = step.run(self.document)?;
        let is_done = seen != Seen::Refused;
        self.known.extend_from_slice(seen.labels());
        self.events.push(Event::Did(step, seen));
        if self.random.next_chance(0.3) {
            thread::yield_now();
        }
        Ok(is_done)
    }

    /// Runs an operation on a node. A reader looks first whether the node is there.
    fn act(&mut self) -> Result<(), XmlStoreError> {
        let node = self.label();
        match self.random.next_below(20) {
            0..8 => {
                if self.run(Step::Node(node.clone()))? {
                    let step = self.reader(node);
                    self.run(step)?;
                }
            }
            8..10 => {
                let step = self.look_up();
                self.run(step)?;
            }
            _ => {
                let step = self.writer(node);
                self.run(step)?;
            }
        }
        Ok(())
    }

    fn reader(&mut self, node: Label) -> Step {
        match self.random.next_below(10) {
            0 => Step::Path(node),
            1 => Step::Parent(node),
            2 => Step::First(node),
            3 => Step::Last(node),
            4 => Step::Next(node),
            5 => Step::Previous(node),
            6 => Step::Children(node),
            7 => Step::Subtree(node),
            8 => Step::Attribute(node, one_of(self.random, &ATTRIBUTES)),
            _ => Step::Attributes(node),
        }
    }

    fn look_up(&mut self) -> Step {
        match self.random.next_below(5) {
            0 | 1 => Step::WithId(one_of(self.random, &IDS).to_owned()),
            2 => Step::Named(one_of(self.random, &NAMES)),
            3 => Step::WithText(one_of(self.random, &TEXTS).to_owned()),
            _ => {
                let names = [&["site", "open", "a"][..], &["site", "people", "p", "q"]];
                Step::OnPath(one_of(self.random, &names).to_vec())
            }
        }
    }

    fn writer(&mut self, node: Label) -> Step {
        let random = &mut *self.random;
        let text = one_of(random, &TEXTS).to_owned();
        let id = one_of(random, &IDS).to_owned();
        let name = one_of(random, &NAMES);
        let attribute = one_of(random, &ATTRIBUTES);
        match random.next_below(16) {
            0..3 => Step::SetText(node, text),
            3 => Step::Rename(node, name),
            4 => Step::SetAttribute(node, "id", id),
            5 => Step::SetAttribute(node, attribute, text),
            6 => Step::RemoveAttribute(node, attribute),
            7 => Step::RenameAttribute(node, attribute, one_of(random, &ATTRIBUTES)),
            8..13 => {
                let new = match random.next_below(4) {
                    0 => New::Text(text),
                    1 => New::Fragment(name, id, text),
                    _ => New::Element(name),
                };
                Step::Insert(self.place(node), new)
            }
            13 | 14 => Step::Delete(node),
            _ => {
                let target = self.label();
                Step::Move(node, self.place(target))
            }
        }
    }

    fn place(&mut self, node: Label) -> Place {
        match self.random.next_below(4) {
            0 => Place::Before(node),
            1 => Place::After(node),
            2 => Place::First(node),
            _ => Place::Last(node),
        }
    }
}

/// Runs the operations of a transaction. Returns them, and whether there was a conflict.
fn act(
    transaction: &XmlTransaction<'_>,
    random: &mut SplitMix64,
    known: Vec<Label>,
) -> (Vec<Event>, bool) {
    let opened = if random.next_chance(0.2) {
        transaction.document_to_update("d")
    } else {
        transaction.document("d")
    };
    let document = match opened {
        Ok(document) => document,
        Err(error) => {
            assert_deadlock(&error);
            return (Vec::new(), true);
        }
    };
    let count = 1 + random.next_below(5);
    let mut actor = Actor { document: &document, random, known, events: Vec::new() };
    let mut savepoint = None;
    for _ in 0..count {
        if savepoint.is_none() && actor.random.next_chance(0.1) {
            savepoint = Some(transaction.savepoint());
            actor.events.push(Event::Savepoint);
        }
        if let Err(error) = actor.act() {
            assert_deadlock(&error);
            return (actor.events, true);
        }
        if let Some(savepoint) = savepoint.take_if(|_| actor.random.next_chance(0.4)) {
            // A gap of an index that was read may have to be locked by another name.
            if let Err(error) = transaction.roll_back_to(savepoint) {
                assert_deadlock(&error);
                return (actor.events, true);
            }
            actor.events.push(Event::BackToSavepoint);
        }
    }
    let events = actor.events;
    assert_eq!(document.take_relabelled(), []);
    (events, false)
}

impl Stage {
    fn transaction(&self, random: &mut SplitMix64) {
        let begun = clock::now();
        let (transaction, setting) = if self.history.settings.is_empty() {
            (self.store.begin(), "as the store says".to_owned())
        } else {
            let escalation = one_of(random, &escalations());
            let setting = Setting { escalation, ..one_of(random, &self.history.settings) };
            (setting.begin_as(&self.store, self.history.isolation), setting.to_string())
        };
        let admitted = clock::now();
        let known = self.labels.lock().unwrap().clone();
        let (events, is_conflict) = act(&transaction, random, known);
        let end = if is_conflict {
            End::Conflict
        } else if random.next_chance(0.15) {
            End::RollBack
        } else {
            End::Commit
        };
        // All locks are held still.
        let number = self.numbers.fetch_add(1, Ordering::SeqCst);
        if end == End::Commit {
            transaction.commit().unwrap();
            self.add_labels(&events);
        } else {
            drop(transaction);
        }
        self.longest_wait.fetch_max(micros(admitted - begun), Ordering::Relaxed);
        self.longest_run.fetch_max(micros(clock::now() - admitted), Ordering::Relaxed);
        self.ended.lock().unwrap().push(Ended { number, setting, end, events });
    }

    fn add_labels(&self, events: &[Event]) {
        let mut labels = self.labels.lock().unwrap();
        for event in events {
            if let Event::Did(step, seen) = event
                && !step.reads()
            {
                labels.extend_from_slice(seen.labels());
            }
        }
    }
}

/// Runs the transactions one after the other on the model, and compares.
fn replay(model: &mut Model, ended: &[Ended], case: &str) -> Counts {
    let mut counts = Counts::default();
    for Ended { number, setting, end, events } in ended {
        let before = model.clone();
        let mut savepoint = None;
        for (index, event) in events.iter().enumerate() {
            match event {
                Event::Savepoint => savepoint = Some(model.clone()),
                Event::BackToSavepoint => *model = savepoint.take().unwrap(),
                Event::Did(step, seen) => {
                    counts.operations += 1;
                    counts.refused += usize::from(*seen == Seen::Refused);
                    let expected = model.apply(step, seen);
                    let is_right = expected.as_ref() == Ok(seen);
                    if !is_right {
                        print_history(ended, *number);
                    }
                    let at = format!("{case}: {number} ({setting}, {end:?}), {index}: {step:?}");
                    assert!(is_right, "{at}\nreturned {seen}\nexpected {expected:?}");
                }
            }
        }
        match end {
            End::Commit => counts.commits += 1,
            End::RollBack => counts.rollbacks += 1,
            End::Conflict => counts.conflicts += 1,
        }
        if *end != End::Commit {
            *model = before;
        }
    }
    counts
}

fn print_history(ended: &[Ended], last: u64) {
    for Ended { number, setting, end, events } in ended.iter().filter(|one| one.number <= last) {
        println!("{number} ({setting}, {end:?})");
        for event in events {
            match event {
                Event::Did(step, seen) => println!("    {step:?} -> {seen}"),
                other => println!("    {other:?}"),
            }
        }
    }
}

/// Concurrent transactions.
#[derive(Clone, Debug)]
struct History {
    seed: u64,
    /// What transactions draw from; if it is empty, they lock as the store says.
    settings: Vec<Setting>,
    /// Transactions of each thread.
    transactions: usize,
    /// How often it is changed meanwhile what the store says.
    exchanges: usize,
    isolation: Isolation,
    name: String,
}

impl History {
    /// Runs it on threads and checks it.
    fn check(&self) -> Counts {
        let inner_nodes = if self.seed % 4 == 3 { InnerNodes::Virtual } else { InnerNodes::Stored };
        // Where schedules are drawn, a time-out may happen at any time.
        let timeout = (!is_virtual()).then_some(Duration::from_secs(60));
        let (store, model) = store_of(TEXT, &INDEXES, inner_nodes, &options(timeout));
        let labels = model.below(DOCUMENT).into_iter().skip(1);
        let stage = Arc::new(Stage {
            store,
            history: self.clone(),
            labels: Mutex::new(labels.map(|id| model.label(id).clone()).collect()),
            numbers: AtomicU64::new(0),
            ended: Mutex::default(),
            longest_wait: AtomicU64::new(0),
            longest_run: AtomicU64::new(0),
        });
        let exchanges = iter::once(0).filter(|_| self.exchanges > 0);
        let body = |number| {
            let stage = Arc::clone(&stage);
            move || stage.act(number)
        };
        run_all((1..=THREADS).chain(exchanges).map(body));
        let stage = Arc::into_inner(stage).expect("all threads have ended");
        stage.check(model)
    }

    /// Runs it under a schedule that is drawn from its seed, and checks it. The same seed gives the
    /// same run.
    fn check_scheduled(self) -> Counts {
        let strategy = Strategy::Random { seed: self.seed };
        let report = Machine::schedules(strategy).run(move || self.check());
        report.unwrap().value
    }
}

impl Stage {
    /// Does what a thread does; the first one exchanges protocols.
    fn act(&self, thread: u64) {
        let History { seed, transactions, exchanges, .. } = self.history;
        let mut random = SplitMix64::new(seed * (THREADS + 1) + thread);
        if thread > 0 {
            (0..transactions).for_each(|_| self.transaction(&mut random));
            return;
        }
        for _ in 0..exchanges {
            let own = iter::once(Protocol::Own);
            let all: Vec<Protocol> = Protocol::ALL.into_iter().chain(own).collect();
            let setting = {
                let protocol = one_of(&mut random, &all);
                one_of(&mut random, &protocol.depths())
            };
            let escalation = one_of(&mut random, &escalations());
            self.store.set_locking(Setting { escalation, ..setting }.locking());
            // Until it is in use.
            drop(self.store.begin());
            thread::sleep(Duration::from_micros(u64::from(random.next_below(2_000))));
        }
    }

    /// Compares what happened with a serial run.
    fn check(self, mut model: Model) -> Counts {
        let mut ended = self.ended.into_inner().unwrap();
        ended.sort_by_key(|one| one.number);
        let case = format!("{}, seed {}", self.history.name, self.history.seed);
        let mut counts = replay(&mut model, &ended, &case);
        let transaction = self.store.begin();
        let document = transaction.document("d").unwrap();
        let whole = Step::Subtree(Label::document());
        let left = whole.run(&document).unwrap();
        let expected = model.apply(&whole, &left);
        if expected.as_ref() != Ok(&left) {
            print_history(&ended, u64::MAX);
        }
        assert_eq!(expected, Ok(left), "{case}");
        assert_eq!(document.check().unwrap(), [], "{case}");
        drop(document);
        drop(transaction);
        let locks = self.store.engine().lock_statistics();
        assert_eq!((locks.held, locks.waiting, locks.timeouts), (0, 0, 0), "{case}");
        counts.escalations = self.store.node_lock_statistics().escalations;
        counts.waits = locks.waits;
        counts.longest_wait_us = self.longest_wait.into_inner();
        counts.longest_run_us = self.longest_run.into_inner();
        counts
    }
}

/// Each protocol alone and each two of them, each with all depths. Unbounded depths are as frequent
/// as all others.
fn mixes() -> BTreeMap<String, Vec<Setting>> {
    let mut mixes = BTreeMap::new();
    for one in Protocol::ALL {
        for other in Protocol::ALL.into_iter().filter(|other| *other >= one) {
            let mut all: Vec<Setting> = Vec::new();
            for protocol in [one, other] {
                let depths = protocol.depths();
                all.extend(depths.iter().map(|_| protocol.unbounded()));
                all.extend(depths);
            }
            mixes.insert(format!("{one:?} and {other:?}"), all);
        }
    }
    mixes
}

/// Whether threads of the system run a history, or tasks whose schedule is drawn.
#[derive(Clone, Copy)]
enum On {
    Threads,
    Schedules,
}

/// Runs histories of so many seeds; returns what they have counted together.
fn check_seeds(on: On, count: u64, history: &History) -> (usize, Counts) {
    let mut all = Counts::default();
    let seeds = seeds(0..count);
    for seed in seeds.clone() {
        let one = History { seed, ..history.clone() };
        let counts = match on {
            On::Threads => one.check(),
            On::Schedules => one.check_scheduled(),
        };
        all.add(&counts);
        if (seed + 1) % 1_000 == 0 {
            println!("{}: to seed {}: {all:?}", history.name, seed + 1);
        }
    }
    assert!(all.commits > 0 && all.waits > 0 && all.refused < all.operations, "{history:?}");
    (seeds.count(), all)
}

/// Checks all mixes of protocols, and prints a table.
fn check_mixes(on: On, count: u64) {
    println!(
        "| protocols | seeds | commits | roll-backs | deadlocks | operations | waits \
         | escalations |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for (name, settings) in mixes() {
        let history = History {
            seed: 0,
            settings,
            transactions: TRANSACTIONS,
            exchanges: 0,
            isolation: Isolation::Serializable,
            name: name.clone(),
        };
        let (seeds, all) = check_seeds(on, count, &history);
        let Counts { commits, rollbacks, conflicts, operations, waits, escalations, .. } = all;
        println!(
            "| {name} | {seeds} | {commits} | {rollbacks} | {conflicts} | {operations} | {waits} \
             | {escalations} |"
        );
    }
}

#[test]
fn histories_are_serializable() {
    check_mixes(On::Threads, 4);
}

#[test]
fn scheduled_histories_are_serializable() {
    check_mixes(On::Schedules, 20);
}

#[test]
#[ignore = "soak: minutes for 500 histories of each two protocols"]
fn many_histories_are_serializable() {
    check_mixes(On::Threads, 500);
}

#[test]
#[ignore = "soak: minutes for 5,000 schedules of each two protocols"]
fn many_scheduled_histories_are_serializable() {
    check_mixes(On::Schedules, 5_000);
}

/// At weaker levels histories are not serializable, and that shows: at read committed by what
/// changes, and at repeatable read by phantoms alone.
#[test]
fn histories_show_what_is_not_serializable() {
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
        let shows = |seed: u64| {
            let history = History {
                seed,
                settings: vec![Protocol::Tadom.unbounded()],
                transactions: TRANSACTIONS,
                exchanges: 0,
                isolation,
                name: format!("{isolation:?}"),
            };
            let program = move || {
                history.check();
            };
            search([Strategy::Random { seed }], program).is_err()
        };
        let found = (0..200).find(|&seed| shows(seed));
        println!("{isolation:?}: shown by seed {found:?}");
        assert!(found.is_some(), "{isolation:?}");
    }
}

/// Exchanges the protocol while transactions run that lock as the store says.
fn check_exchanges(on: On, count: u64, exchanges: usize) {
    let history = History {
        seed: 0,
        settings: Vec::new(),
        transactions: 4 * TRANSACTIONS,
        exchanges,
        isolation: Isolation::Serializable,
        name: format!("{exchanges} exchanges"),
    };
    let (seeds, all) = check_seeds(on, count, &history);
    println!("{exchanges} exchanges in each of {seeds} seeds: {all:?}");
}

#[test]
fn exchanges_under_load_lose_nothing() {
    check_exchanges(On::Threads, 2, 10);
    check_exchanges(On::Schedules, 10, 10);
}

#[test]
#[ignore = "soak: minutes for 100 exchanges of the protocol in each of 50 histories"]
fn many_exchanges_under_load_lose_nothing() {
    check_exchanges(On::Threads, 50, 100);
    check_exchanges(On::Schedules, 200, 100);
}

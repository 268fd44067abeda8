//! Schedules of several operations: conversions, claims, escalation and deadlocks.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use tidegate_xml::label::Label;
use tidegate_xml::name::QName;
use tidegate_xml::store::{
    Claim, ConflictCounts, ConflictPlace, Document, EscalationReading, InnerNodes, LockEscalation,
    NewNode, Place, RetryClaims, XmlStore, XmlStoreError, XmlTransaction,
};
use tidegate_xml::tree::Tree;

use super::pairs::named;
use super::protocols::{Protocol, Setting};
use super::steps::Step;
use super::{options, store_of};

const PATIENT: Duration = Duration::from_secs(60);

const NODE_PROTOCOLS: [Protocol; 2] = [Protocol::Mgl, Protocol::Tadom];

/// Counts the deadlocks that a store has broken.
fn deadlocks(store: &XmlStore) -> u64 {
    store.conflict_counts().iter().map(|(_, counts)| counts.deadlocks).sum()
}

/// An update lock on a node that became an exclusive one by a write below it needs the parent's
/// lock anew before the node itself is written.
#[test]
fn a_mode_that_came_of_a_conversion_locks_the_parent_before_it_is_used() {
    let text = "<site><list><a><b1>x</b1><b2/></a></list></site>";
    let impatient = options(Some(Duration::ZERO));
    let (store, model) = store_of(text, &[], InnerNodes::Stored, &impatient);
    let nodes = named(&model);
    for one in NODE_PROTOCOLS {
        for other in NODE_PROTOCOLS {
            let writer = one.unbounded().begin(&store);
            let document = writer.document("d").unwrap();
            document.claim(Claim::UpdateNode(&nodes["b1"])).unwrap();
            document.set_value(&nodes["b1/text"], "y").unwrap();
            let reader = other.unbounded().begin(&store);
            let read = Step::Children(nodes["a"].clone());
            let has_read = read.run(&reader.document("d").unwrap()).is_ok();
            let renamed = document.rename(&nodes["b1"], &QName::local("new"));
            let case = format!("{one:?}, {other:?}");
            assert!(!has_read || renamed.is_err(), "{case}: the name was read and changed");
            assert!(has_read || renamed.is_ok(), "{case}: none of them goes on");
        }
    }
}

/// An update lock goes beside readers that have it already, keeps out new ones, and there is one.
#[test]
fn an_update_lock_is_for_one_and_readers_are_before_it() {
    let impatient = options(Some(Duration::ZERO));
    let (store, model) = store_of("<site><a><b/></a></site>", &[], InnerNodes::Stored, &impatient);
    let node = &named(&model)["a"];
    for protocol in NODE_PROTOCOLS {
        let begin = || protocol.unbounded().begin(&store);
        let [reader, updater, later, other] = [begin(), begin(), begin(), begin()];
        let claim = |transaction: &XmlTransaction<'_>, claim| {
            transaction.document("d").unwrap().claim(claim).is_ok()
        };
        assert!(claim(&reader, Claim::ReadNode(node)), "{protocol:?}");
        assert!(claim(&updater, Claim::UpdateNode(node)), "{protocol:?}");
        assert!(!claim(&later, Claim::ReadNode(node)), "{protocol:?}: a new reader waits");
        assert!(!claim(&other, Claim::UpdateNode(node)), "{protocol:?}: another updater waits");
        let writes = claim(&updater, Claim::WriteSubtree(node));
        assert!(!writes, "{protocol:?}: a write waits for readers");
    }
}

/// Two transactions look for the last child at the same time, and append one each. Returns how
/// many deadlocks there were.
fn append_twice(setting: Setting, claims: bool) -> u64 {
    let text = "<site><list><a/></list></site>";
    let (store, model) = store_of(text, &[], InnerNodes::Stored, &options(Some(PATIENT)));
    let list = &named(&model)["list"];
    let both_have_read = Barrier::new(2);
    let append = |is_first_run: bool| -> Result<(), XmlStoreError> {
        let transaction = setting.begin(&store);
        let document = transaction.document("d")?;
        if claims {
            document.claim(Claim::Append(list))?;
        }
        let end = document.last_child(list)?.expect("there is a child");
        if is_first_run && !claims {
            both_have_read.wait();
        }
        document.insert(&Place::After(end), NewNode::Element(&QName::local("new")))?;
        drop(document);
        transaction.commit()
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut done = append(true);
                while let Err(error) = done {
                    assert!(error.is_retryable(), "{error}");
                    done = append(false);
                }
            });
        }
    });
    let transaction = setting.begin(&store);
    let document = transaction.document("d").unwrap();
    assert_eq!(document.children(list).unwrap().count(), 3);
    deadlocks(&store)
}

#[test]
fn two_appenders_are_a_deadlock_unless_they_claim_the_end() {
    for protocol in NODE_PROTOCOLS {
        let setting = protocol.unbounded();
        // The first two are one. Who reads the end again may meet the other one once more.
        assert!(append_twice(setting, false) > 0, "{setting}");
        assert_eq!(append_twice(setting, true), 0, "{setting}");
        assert_eq!(append_twice(setting.to_depth(1), true), 0, "{setting} to 1");
    }
}

/// Clients that each look for the last child and append one, many times. A run that is ended by a
/// deadlock is followed by one that claims what it was ended over. Returns how often one
/// transaction was ended at most, and how many deadlocks there were.
fn append_often(settings: &[Setting], seed: u64) -> (usize, u64) {
    use tidegate_runtime::{Hardware, Machine, clock, thread};

    let settings = settings.to_vec();
    let program = move || {
        let text = "<site><list><a/></list></site>";
        let (store, model) = store_of(text, &[], InnerNodes::Stored, &options(Some(PATIENT)));
        let (store, list) = (Arc::new(store), named(&model)["list"].clone());
        let append =
            |store: &XmlStore, list: &Label, setting: Setting, claims: &mut RetryClaims| {
                let mut transaction = setting.begin(store);
                transaction.claim_first(std::mem::take(claims));
                let append = || -> Result<(), XmlStoreError> {
                    let document = transaction.document_to_update("d")?;
                    document.last_child(list)?;
                    // All others come to read the end meanwhile.
                    thread::sleep(Duration::from_micros(100));
                    let place = Place::Last(list.clone());
                    document.insert(&place, NewNode::Element(&QName::local("new"))).map(drop)
                };
                let done = append().inspect_err(|_| *claims = transaction.retry_claims());
                done.and_then(|()| transaction.commit())
            };
        let began = clock::now();
        let client = |number: usize| {
            let (store, list) = (Arc::clone(&store), list.clone());
            let setting = settings[number % settings.len()];
            let run = move || {
                let mut most = 0;
                for _ in 0..10 {
                    let mut claims = RetryClaims::default();
                    let mut ended = 0;
                    while let Err(error) = append(&store, &list, setting, &mut claims) {
                        assert!(error.is_retryable() && !claims.is_empty(), "{error}");
                        ended += 1;
                    }
                    most = most.max(ended);
                }
                most
            };
            thread::spawn("appender", run).unwrap()
        };
        let clients: Vec<_> = (0..12).map(client).collect();
        let most = clients.into_iter().map(|client| client.join().unwrap()).max().unwrap();
        assert!(clock::now() > began);
        let transaction = settings[0].begin(&store);
        let document = transaction.document("d").unwrap();
        assert_eq!(document.children(&list).unwrap().count(), 121);
        (most, deadlocks(&store))
    };
    Machine::new(Hardware::with_processors(4), seed).run(program).unwrap().value
}

#[test]
fn what_a_run_was_ended_over_does_not_end_the_next_one() {
    for seed in 1..=5 {
        for protocol in NODE_PROTOCOLS {
            let settings = [protocol.unbounded(), protocol.unbounded().to_depth(1)];
            for settings in [&settings[..1], &settings[1..], &settings[..]] {
                let (most, deadlocks) = append_often(settings, seed);
                println!("{protocol:?}, {}: {most} at most, {deadlocks} in all", settings.len());
                // By taDOM3+ the end of the list alone; by MGL the list, too.
                let bound = if protocol == Protocol::Tadom && settings.len() == 1 { 1 } else { 4 };
                assert!(most <= bound, "{protocol:?}, seed {seed}: {most}");
            }
        }
    }
}

/// Bids of several clients in one auction. `current` is the sum of all increases, and there are as
/// many bidders as bids. Returns how many deadlocks there were.
fn bid(settings: &[Setting], claims: bool) -> u64 {
    let text = "<site><auction><initial>10</initial><current>10</current></auction></site>";
    let (store, model) = store_of(text, &[], InnerNodes::Stored, &options(Some(PATIENT)));
    let nodes = named(&model);
    let [auction, current] = ["auction", "current"].map(|name| &nodes[name]);
    let value = &nodes["current/text"];
    let bid = |setting: Setting| -> Result<(), XmlStoreError> {
        let transaction = setting.begin(&store);
        let document = if claims {
            let document = transaction.document_to_update("d")?;
            document.claim(Claim::WriteSubtree(auction))?;
            document
        } else {
            transaction.document("d")?
        };
        let old: u64 = document.content(value)?.parse().unwrap();
        document.previous_sibling(current)?;
        document
            .insert(&Place::Before(current.clone()), NewNode::Element(&QName::local("bidder")))?;
        document.set_value(value, &(old + 3).to_string())?;
        drop(document);
        transaction.commit()
    };
    let (threads, bids) = (4, 10);
    thread::scope(|scope| {
        for number in 0..threads {
            let setting = settings[number % settings.len()];
            scope.spawn(move || {
                for _ in 0..bids {
                    while let Err(error) = bid(setting) {
                        assert!(error.is_retryable(), "{error}");
                    }
                }
            });
        }
    });
    let transaction = settings[0].begin(&store);
    let document = transaction.document("d").unwrap();
    let all = threads * bids;
    assert_eq!(document.content(value).unwrap(), (10 + 3 * all).to_string());
    assert_eq!(document.children(auction).unwrap().count(), 2 + all);
    deadlocks(&store)
}

#[test]
fn no_bid_is_lost() {
    for protocol in Protocol::ALL {
        bid(&[protocol.unbounded()], false);
        assert_eq!(bid(&[protocol.unbounded()], true), 0, "{protocol:?}");
    }
    let mixed = Protocol::ALL.map(Protocol::unbounded);
    bid(&mixed, false);
    assert_eq!(bid(&mixed, true), 0, "all protocols");
}

const ITEMS: usize = 60;

/// 32 requests below the root element, 16 below a section, 8 below an item.
fn escalating(protocol: Protocol) -> Setting {
    let escalation = LockEscalation {
        requests: 32,
        gain_percent: NonZeroU32::new(100).unwrap(),
        reading: EscalationReading::default(),
    };
    Setting { escalation: Some(escalation), ..protocol.unbounded() }
}

/// A store with a section of items, and the texts of these.
fn section(timeout: Duration) -> (XmlStore, Vec<Label>) {
    let text = format!("<site><s>{}</s></site>", "<i>x</i>".repeat(ITEMS));
    let (store, model) = store_of(&text, &[], InnerNodes::Stored, &options(Some(timeout)));
    let section = model.find(&named(&model)["s"]).unwrap();
    let texts = model.children(section).iter();
    let texts = texts.map(|&item| model.label(model.children(item)[0]).clone()).collect();
    (store, texts)
}

fn set_all(document: &Document<'_>, texts: &[Label]) -> Result<(), XmlStoreError> {
    texts.iter().try_for_each(|text| document.set_value(text, "set"))
}

#[test]
fn an_escalation_waits_for_none_and_happens_when_the_others_have_gone() {
    for protocol in NODE_PROTOCOLS {
        for other in NODE_PROTOCOLS {
            let (store, texts) = section(Duration::ZERO);
            let reader = other.unbounded().begin(&store);
            reader.document("d").unwrap().content(&texts[0]).unwrap();
            let writer = escalating(protocol).begin(&store);
            let document = writer.document("d").unwrap();
            set_all(&document, &texts[1..40]).unwrap();
            assert_eq!(writer.lock_figures().escalations, 0, "{protocol:?}, {other:?}");
            reader.commit().unwrap();
            set_all(&document, &texts[40..]).unwrap();
            let escalations = writer.lock_figures().escalations;
            assert!(escalations > 0, "{protocol:?}, {other:?}");
        }
    }
}

#[test]
fn what_has_escalated_stays_locked_and_is_rolled_back() {
    for protocol in NODE_PROTOCOLS {
        let (store, texts) = section(Duration::ZERO);
        let writer = escalating(protocol).begin(&store);
        let document = writer.document("d").unwrap();
        let savepoint = writer.savepoint();
        set_all(&document, &texts).unwrap();
        assert!(writer.lock_figures().escalations > 0, "{protocol:?}");
        let is_free = |text: &Label, sets: bool| {
            let transaction = protocol.unbounded().begin(&store);
            let document = transaction.document("d").unwrap();
            let set = || document.set_value(text, "other").is_ok();
            if sets { set() } else { document.content(text).is_ok() }
        };
        for text in [&texts[0], &texts[ITEMS / 2], &texts[ITEMS - 1]] {
            assert!(!is_free(text, false), "{protocol:?}: {text} is written");
        }
        writer.roll_back_to(savepoint).unwrap();
        assert!(!is_free(&texts[0], true), "{protocol:?}: locks outlive a savepoint");
        assert_eq!(document.content(&texts[0]).unwrap(), "x");
        drop(document);
        drop(writer);
        assert_eq!(store.engine().lock_statistics().held, 0, "{protocol:?}");
        for text in &texts {
            assert!(is_free(text, true), "{protocol:?}: {text} is free");
        }
        let reader = protocol.unbounded().begin(&store);
        let document = reader.document("d").unwrap();
        assert!(texts.iter().all(|text| document.content(text).unwrap() == "x"));
        assert_eq!(document.check().unwrap(), [], "{protocol:?}");
    }
}

/// A cycle of three transactions, each with a lock that the one before it asks for: a text that
/// was set, the end of a list that was read, and an entry of an index.
struct Cycle {
    store: XmlStore,
    text: Label,
    list: Label,
    person: Label,
    /// Nodes that none of the three needs.
    others: Vec<Label>,
}

impl Cycle {
    fn new() -> Cycle {
        let others = "<o/>".repeat(120);
        let text = format!(
            "<site><a>x</a><list><e/></list><people><p id=\"p1\"/></people>\
             <rest>{others}</rest></site>"
        );
        let ids = [("ids", "cas text //@id")];
        let (store, model) = store_of(&text, &ids, InnerNodes::Stored, &options(Some(PATIENT)));
        let nodes = named(&model);
        let rest = model.find(&nodes["rest"]).unwrap();
        let others = model.children(rest).iter().map(|&node| model.label(node).clone());
        Cycle {
            text: nodes["a/text"].clone(),
            list: nodes["list"].clone(),
            person: nodes["p"].clone(),
            others: others.collect(),
            store,
        }
    }

    fn hold(&self, number: usize, document: &Document<'_>) -> Result<(), XmlStoreError> {
        match number {
            0 => document.set_value(&self.text, "y"),
            1 => document.last_child(&self.list).map(drop),
            _ => document.set_attribute(&self.person, &QName::local("id"), "p2").map(drop),
        }
    }

    fn ask(&self, number: usize, document: &Document<'_>) -> Result<(), XmlStoreError> {
        match number {
            0 => {
                let new = QName::local("new");
                let place = Place::Last(self.list.clone());
                document.insert(&place, NewNode::Element(&new)).map(drop)
            }
            1 => Step::WithId("p2".to_owned()).run(document).map(drop),
            _ => document.content(&self.text).map(drop),
        }
    }

    /// Runs the three; all but `victim` hold many more locks. Returns who was rolled back.
    fn run(&self, protocol: Protocol, victim: usize) -> Vec<usize> {
        let have_locked = Barrier::new(3);
        let turn = AtomicUsize::new(0);
        let one = |number: usize| {
            let transaction = protocol.unbounded().begin(&self.store);
            let document = transaction.document("d").unwrap();
            self.hold(number, &document).unwrap();
            if number != victim {
                for other in &self.others[40 * number..40 * (number + 1)] {
                    document.kind(other).unwrap();
                }
            }
            have_locked.wait();
            // One after the other, so that the last one closes the cycle.
            while turn.load(Ordering::SeqCst) < number
                || self.store.engine().lock_statistics().waiting < number as u64
            {
                thread::yield_now();
            }
            turn.fetch_add(1, Ordering::SeqCst);
            let is_done = self.ask(number, &document).is_ok();
            drop(document);
            drop(transaction);
            is_done
        };
        let done: Vec<bool> = thread::scope(|scope| {
            let threads: Vec<_> = (0..3).map(|number| scope.spawn(move || one(number))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        (0..3).filter(|&number| !done[number]).collect()
    }
}

#[test]
fn the_victim_of_a_cycle_is_who_holds_the_fewest_locks() {
    let places = [ConflictPlace::Edge, ConflictPlace::Entry, ConflictPlace::Node];
    for protocol in NODE_PROTOCOLS {
        for (victim, expected) in places.into_iter().enumerate() {
            let cycle = Cycle::new();
            assert_eq!(cycle.run(protocol, victim), [victim], "{protocol:?}");
            for (place, counts) in cycle.store.conflict_counts() {
                let is_here = place == expected
                    || protocol == Protocol::Mgl && victim == 0 && place == ConflictPlace::Node;
                let ConflictCounts { deadlocks, timeouts, preemptions } = counts;
                assert!(is_here || deadlocks == 0, "{protocol:?}, {victim}: at {place:?}");
                assert_eq!((timeouts, preemptions), (0, 0));
            }
            assert_eq!(deadlocks(&cycle.store), 1, "{protocol:?}, {victim}");
        }
    }
}

/// Who waits to begin by a protocol that is mixed with no other waits for those that had begun
/// before, and not for one that came later. In virtual time, so that all have come when one looks.
#[test]
fn none_that_waits_to_begin_is_overtaken() {
    use tidegate_runtime::{Hardware, Machine, thread};

    let program = || {
        let options = options(Some(PATIENT));
        let store = Arc::new(store_of("<site/>", &[], InnerNodes::Stored, &options).0);
        let order = Arc::new(Mutex::new(Vec::new()));
        let first = Protocol::Tadom.unbounded().begin(&store);
        let begin = |protocol: Protocol| {
            let (store, order) = (Arc::clone(&store), Arc::clone(&order));
            let task = thread::spawn("begins", move || {
                let _transaction = protocol.unbounded().begin(&store);
                order.lock().unwrap().push(protocol);
            });
            thread::sleep(Duration::from_secs(1));
            task.unwrap()
        };
        let tasks = [Protocol::Own, Protocol::Tadom].map(begin);
        assert_eq!(*order.lock().unwrap(), [], "one of them has begun beside the first");
        drop(first);
        for task in tasks {
            task.join().unwrap();
        }
        order.lock().unwrap().clone()
    };
    let report = Machine::new(Hardware::with_processors(2), 1).run(program);
    assert_eq!(report.unwrap().value, [Protocol::Own, Protocol::Tadom]);
}

/// How long transactions that lock as the store says waited to begin, and how long they ran, at
/// most. Each setting is exchanged for each other one, far faster than transactions end. In virtual
/// time, where nothing but sleeps takes time.
fn exchange_in_all_directions(seed: u64) -> (Duration, Duration) {
    use tidegate_random::SplitMix64;
    use tidegate_runtime::{Hardware, Machine, clock, thread};

    let program = move || {
        let options = options(Some(PATIENT));
        let store = Arc::new(store_of("<site/>", &[], InnerNodes::Stored, &options).0);
        let is_over = Arc::new(AtomicUsize::new(0));
        let client = |number: u64| {
            let (store, is_over) = (Arc::clone(&store), Arc::clone(&is_over));
            let run = move || {
                let mut random = SplitMix64::new(seed * 100 + number);
                let (mut waited, mut ran) = (Duration::ZERO, Duration::ZERO);
                while is_over.load(Ordering::SeqCst) == 0 {
                    let came = clock::now();
                    let transaction = store.begin();
                    let began = clock::now();
                    thread::sleep(Duration::from_micros(1 + u64::from(random.next_below(9_000))));
                    drop(transaction);
                    waited = waited.max(began - came);
                    ran = ran.max(clock::now() - began);
                    thread::sleep(Duration::from_micros(u64::from(random.next_below(500))));
                }
                (waited, ran)
            };
            thread::spawn("client", run).unwrap()
        };
        let clients: Vec<_> = (0..8).map(client).collect();
        // Two that are mixed with each other, and two that are mixed with none.
        let settings = [Protocol::Mgl, Protocol::Tadom, Protocol::Own, Protocol::Own]
            .map(|protocol| protocol.unbounded().locking());
        let mut random = SplitMix64::new(seed);
        let mut directions = 0_usize;
        while directions < 100 {
            let (from, to) = (random.next_below(4) as usize, random.next_below(4) as usize);
            for setting in [&settings[from], &settings[to]] {
                store.set_locking(setting.clone());
                thread::sleep(Duration::from_micros(u64::from(random.next_below(4_000))));
            }
            directions += usize::from(from != to);
        }
        is_over.store(1, Ordering::SeqCst);
        let ended = clients.into_iter().map(|client| client.join().unwrap());
        ended.fold((Duration::ZERO, Duration::ZERO), |(waited, ran), (other_waited, other_ran)| {
            (waited.max(other_waited), ran.max(other_ran))
        })
    };
    Machine::new(Hardware::with_processors(2), seed).run(program).unwrap().value
}

#[test]
fn none_waits_to_begin_for_longer_than_the_longest_runs() {
    for seed in 1..=20 {
        let (waited, ran) = exchange_in_all_directions(seed);
        println!("seed {seed}: waited {waited:?} at most, ran {ran:?} at most");
        assert!(!waited.is_zero() && waited <= ran, "seed {seed}: {waited:?}, {ran:?}");
    }
}

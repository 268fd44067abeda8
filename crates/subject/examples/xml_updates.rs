//! Runs the updating transactions of `xmark` with several clients on the XML store and on `BaseX`,
//! in turns, for `bench/xml_updates.py`.
//!
//! ```text
//! xml_updates FACTOR SEED CLIENTS ROUNDS COUNT
//! ```
//!
//! In each round every side runs the same transactions, `COUNT` of each client, in changing order.
//! Each line of the output has the round, the side, seconds, and attempts that a conflict has
//! ended, between tabs; round 0 warms up. Every side has a document of its own. At the end each of
//! them is checked, that of `BaseX` too, and has to have as much of everything.
//!
//! | side | what it is |
//! | --- | --- |
//! | `basex` | `BaseX`, a query each over a connection for each client |
//! | `PROTOCOL lazy` | the store, which writes and syncs its log behind the commit |
//! | `PROTOCOL synced` | the store, which syncs its log before a commit returns |

#![expect(clippy::print_stdout, reason = "printing measurements is what the program is for")]

use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use tidegate_engine::{Durability, Store, StoreOptions, TxnOptions};
use tidegate_subject::basex::{self, BasexConnection, BasexSite, Server};
use tidegate_subject::embedded_xml::{self, AuctionRun, AuctionSite, GeneratedText};
use tidegate_workload::workload::Workload;
use tidegate_workload::xmark::{AuctionMix, AuctionTransaction, Xmark};
use tidegate_xml::store::{LoadOptions, LockProtocol, Locking, XmlStore, XmlStoreError};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// The side and the database of the other program.
const BASEX: &str = "basex";

/// Memory for pages, in bytes: all documents are in it.
const BUFFER: usize = 512 << 20;

static NEVER: AtomicBool = AtomicBool::new(false);

/// What is locked, and when a commit returns.
#[derive(Clone, Copy)]
struct Setup {
    name: &'static str,
    protocol: &'static str,
    durability: Durability,
}

const OURS: [Setup; 6] = [
    setup("document lazy", "document", Durability::Lazy),
    setup("MGL lazy", "MGL", Durability::Lazy),
    setup("taDOM3+ lazy", "taDOM3+", Durability::Lazy),
    setup("document synced", "document", Durability::Synced),
    setup("MGL synced", "MGL", Durability::Synced),
    setup("taDOM3+ synced", "taDOM3+", Durability::Synced),
];

const fn setup(name: &'static str, protocol: &'static str, durability: Durability) -> Setup {
    Setup { name, protocol, durability }
}

/// What a run is told.
struct Plan {
    workload: Xmark,
    clients: usize,
    rounds: u64,
    count: usize,
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [factor, seed, clients, rounds, count] = &arguments[..] else {
        return Err("give factor, seed, clients, rounds, and transactions of a client".into());
    };
    let workload = Xmark::new(factor.parse()?, seed.parse()?);
    let plan = Plan {
        workload: Xmark { mix: AuctionMix::UPDATES, ..workload },
        clients: clients.parse()?,
        rounds: rounds.parse()?,
        count: count.parse()?,
    };
    let server = Server::start(basex::Options::default())?;
    let directory = tempfile::tempdir()?;
    let options = StoreOptions::default().buffer_bytes(BUFFER).buffer_bytes_max(BUFFER);
    let place = directory.path().join("store");
    let store = XmlStore::on(Store::open_or_create(place, &options)?)?;
    let mut sites = Vec::new();
    for setup in OURS {
        embedded_xml::load(&store, setup.name, &plan.workload, LoadOptions::default(), &NEVER)?;
        sites.push((setup, AuctionSite::open(&store, setup.name)?));
    }
    let mut connection = server.connect()?;
    BasexSite::load(&mut connection, BASEX, GeneratedText::start(&plan.workload)?)?;
    let theirs = BasexSite::open(&mut connection, BASEX)?;
    measure(&plan, (&store, &sites), (&server, &theirs))?;
    check(&store, &sites, &theirs.text(&mut connection)?)?;
    store.close()?;
    Ok(server.stop()?)
}

/// Runs all rounds.
fn measure(
    plan: &Plan,
    (store, sites): (&XmlStore, &[(Setup, AuctionSite)]),
    (server, theirs): (&Server, &BasexSite),
) -> Outcome<()> {
    let connect = |_| Ok(Mutex::new(server.connect()?));
    let connections: Vec<Mutex<BasexConnection>> =
        (0..plan.clients).map(connect).collect::<Outcome<_>>()?;
    for round in 0..=plan.rounds {
        let work = transactions(plan, round);
        for turn in 0..=sites.len() {
            let turn = if round % 2 == 0 { turn } else { sites.len() - turn };
            let (name, (seconds, conflicts)) = match sites.get(turn) {
                Some((setup, site)) => (setup.name, run_ours(store, *setup, site, &work)?),
                None => (BASEX, run_basex(theirs, &connections, &work)?),
            };
            println!("{round}\t{name}\t{seconds}\t{conflicts}");
        }
    }
    Ok(())
}

/// Draws the transactions of each client.
fn transactions(plan: &Plan, round: u64) -> Vec<Vec<AuctionTransaction>> {
    let of_client = |number| {
        let mut client = plan.workload.client(number, plan.clients, round);
        let draw = |_| client.next().auction().cloned();
        (0..plan.count).filter_map(draw).collect()
    };
    (0..plan.clients).map(of_client).collect()
}

/// Lets each client run its transactions, and returns the seconds from the beginning of the first
/// to the end of the last one, by the clients' own clocks.
fn timed(
    work: &[Vec<AuctionTransaction>],
    run: impl Fn(usize, &AuctionTransaction) -> Outcome<()> + Sync,
) -> Outcome<f64> {
    let ready = Barrier::new(work.len());
    let client = |number: usize| -> Result<(Instant, Instant), String> {
        ready.wait();
        let began = Instant::now();
        let done = work[number].iter().try_for_each(|one| run(number, one));
        done.map(|()| (began, Instant::now())).map_err(|error| error.to_string())
    };
    let times = thread::scope(|scope| {
        let client = &client;
        let clients: Vec<_> =
            (0..work.len()).map(|number| scope.spawn(move || client(number))).collect();
        let join = |client: thread::ScopedJoinHandle<'_, _>| {
            client.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        clients.into_iter().map(join).collect::<Result<Vec<_>, String>>()
    })?;
    let first = times.iter().map(|(began, _)| *began).min();
    let last = times.iter().map(|(_, ended)| *ended).max();
    let (first, last) = first.zip(last).ok_or("there are no clients")?;
    Ok((last - first).as_secs_f64())
}

fn run_ours(
    store: &XmlStore,
    setup: Setup,
    site: &AuctionSite,
    work: &[Vec<AuctionTransaction>],
) -> Outcome<(f64, u64)> {
    let conflicts = AtomicU64::new(0);
    let options = TxnOptions::default().durability(setup.durability);
    let protocol = LockProtocol::named(setup.protocol).ok_or("there is no such protocol")?;
    let locking = Locking::by(protocol);
    let attempt = |transaction: &AuctionTransaction| -> Result<AuctionRun, XmlStoreError> {
        let within = store.begin_locking(locking.clone(), options);
        let run = site.run(transaction, &within)?;
        within.commit()?;
        Ok(run)
    };
    let seconds = timed(work, |_, transaction| {
        loop {
            match attempt(transaction) {
                Ok(run) => {
                    site.committed(transaction, &run);
                    return Ok(());
                }
                Err(error) if error.is_retryable() => {
                    conflicts.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => return Err(error.into()),
            }
        }
    })?;
    Ok((seconds, conflicts.into_inner()))
}

fn run_basex(
    site: &BasexSite,
    connections: &[Mutex<BasexConnection>],
    work: &[Vec<AuctionTransaction>],
) -> Outcome<(f64, u64)> {
    let seconds = timed(work, |number, transaction| {
        let mut connection = connections[number].lock().unwrap_or_else(PoisonError::into_inner);
        site.answer(transaction, &mut connection)?;
        Ok(())
    })?;
    Ok((seconds, 0))
}

/// Checks all documents, that of the other program by loading it.
fn check(store: &XmlStore, sites: &[(Setup, AuctionSite)], theirs: &str) -> Outcome<()> {
    let options = embedded_xml::with_indexes(LoadOptions::default())?;
    store.load(BASEX, options, theirs.as_bytes(), |_| ControlFlow::Continue(()))?;
    let theirs = AuctionSite::open(store, BASEX)?;
    let all = sites.iter().map(|(setup, site)| (setup.name, site)).chain([(BASEX, &theirs)]);
    for (name, site) in all {
        if site.expected() != theirs.expected() {
            let counts = (site.expected(), theirs.expected());
            return Err(format!("{name} has other numbers than {BASEX}: {counts:?}").into());
        }
        for condition in site.check(store)? {
            if let Some(violation) = condition.violation {
                return Err(format!("{name}, {}: {violation}", condition.name).into());
            }
        }
    }
    Ok(())
}

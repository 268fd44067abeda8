//! The store on a machine in virtual time: it takes the time that its processors and disks take,
//! it is the same at each run, and drawn schedules find no error in it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::disk::{Disk, MemoryDisk, TimedDisk};
use tidegate_engine::wal::LogId;
use tidegate_engine::{Store, StoreOptions, TreeHandle, TxnError, TxnOptions};
use tidegate_runtime::work::{Costs, Operation};
use tidegate_runtime::{Hardware, Machine, Report, Service, clock, explore, thread};

use crate::{Random, options};

const ACCOUNTS: u32 = 400;
const BALANCE: u64 = 1_000;

/// What clients do: each so many transfers between accounts, from a seed.
#[derive(Clone, Copy)]
struct Load {
    clients: u64,
    transfers: u32,
    /// Accounts among which most transfers are.
    hot: usize,
    /// Processor time of a transfer.
    work: Duration,
    seed: u64,
}

/// What came of a load.
#[derive(Debug, PartialEq, Eq)]
struct Done {
    /// When each transfer was committed, and by which client.
    journal: Vec<(Duration, u64)>,
    /// Every file of the disk, after the store was closed.
    files: BTreeMap<String, Vec<u8>>,
}

fn key(account: usize) -> [u8; 4] {
    u32::try_from(account).unwrap().to_be_bytes()
}

fn balance(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

/// A value of this balance that makes rows fill pages.
fn value(balance: u64) -> Vec<u8> {
    [&balance.to_le_bytes()[..], &[0x20; 400]].concat()
}

fn fill(store: &Store) -> TreeHandle {
    let tree = store.create_tree("accounts").unwrap();
    let mut transaction = store.begin(TxnOptions::default());
    for account in 0..ACCOUNTS as usize {
        transaction.put(&tree, &key(account), &value(BALANCE)).unwrap();
    }
    transaction.commit().unwrap();
    tree
}

fn transfer(store: &Store, tree: &TreeHandle, random: &mut Random, load: &Load) {
    let from = random.index(load.hot);
    let to = random.index(ACCOUNTS as usize);
    let moved = store.transaction(|transaction| {
        let Some(held) = transaction.get_for_update(tree, &key(from))? else {
            panic!("account {from} is missing")
        };
        thread::work_for(load.work);
        let sum = balance(&held).min(7);
        transaction.put(tree, &key(from), &value(balance(&held) - sum))?;
        let Some(held) = transaction.get_for_update(tree, &key(to))? else {
            panic!("account {to} is missing")
        };
        transaction.put(tree, &key(to), &value(balance(&held) + sum))?;
        Ok::<(), TxnError>(())
    });
    moved.unwrap();
}

/// Runs clients against a new store on this disk.
fn run_clients(disk: &Arc<MemoryDisk>, options: &StoreOptions, load: Load) -> Done {
    let timed: Arc<dyn Disk> = Arc::new(TimedDisk::new(Arc::clone(disk) as Arc<dyn Disk>));
    let store = Arc::new(Store::create(&timed, LogId(load.seed), options).unwrap());
    let tree = fill(&store);
    let began = clock::now();
    let clients: Vec<_> = (0..load.clients)
        .map(|client| {
            let (store, tree) = (Arc::clone(&store), tree.clone());
            let body = move || {
                let mut random = Random::new(load.seed.wrapping_mul(1_000) + client);
                let mut commits = Vec::new();
                for _ in 0..load.transfers {
                    transfer(&store, &tree, &mut random, &load);
                    commits.push((clock::now() - began, client));
                }
                commits
            };
            thread::spawn("client", body).unwrap()
        })
        .collect();
    let mut journal: Vec<_> =
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
    journal.sort_unstable();
    let mut reader = store.begin(TxnOptions::default());
    let balances = reader.entries(&tree).unwrap().map(|entry| balance(&entry.unwrap().1));
    assert_eq!(balances.sum::<u64>(), u64::from(ACCOUNTS) * BALANCE, "money came or went");
    drop(reader);
    Arc::into_inner(store).expect("the clients have ended").close().unwrap();
    let names = disk.list().unwrap();
    let read = |name: String| {
        let file = disk.open(&name, tidegate_engine::disk::Open::Existing).unwrap();
        let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
        file.read_at(&mut bytes, 0).unwrap();
        (name, bytes)
    };
    Done { journal, files: names.into_iter().map(read).collect() }
}

fn run_on(hardware: Hardware, options: StoreOptions, load: Load) -> Report<Done> {
    let machine = Machine::new(hardware, load.seed);
    machine.run(move || run_clients(&Arc::new(MemoryDisk::new()), &options, load)).unwrap()
}

const fn milliseconds(count: u64) -> Service {
    Service::Constant { latency: Duration::from_millis(count), bytes_per_s: f64::INFINITY }
}

fn last(report: &Report<Done>) -> Duration {
    report.value.journal.last().expect("transfers were made").0
}

/// Everything that waits: locks on hot accounts, a pool smaller than the tree, the log, both
/// background threads.
fn busy(seed: u64) -> (Hardware, StoreOptions, Load) {
    let hardware = Hardware {
        data_disks: 2,
        stripe_bytes: 4_096,
        data: milliseconds(4),
        log: milliseconds(2),
        ..Hardware::with_processors(2)
    };
    let options = options()
        .buffer_bytes(32 * 4_096)
        .buffer_bytes_max(32 * 4_096)
        .background(true)
        .detect_every(Some(Duration::from_millis(10)));
    let work = Duration::from_micros(150);
    (hardware, options, Load { clients: 12, transfers: 40, hot: 20, work, seed })
}

#[test]
fn a_run_is_the_same_from_the_same_seed() {
    let run = |seed| {
        let (hardware, options, load) = busy(seed);
        run_on(hardware, options, load)
    };
    let first = run(1);
    let beside: Vec<_> = (0..2).map(|_| std::thread::spawn(move || run(1))).collect();
    for other in beside {
        let other = other.join().unwrap();
        assert!(first.value.files == other.value.files, "the same bytes");
        assert_eq!(first, other);
    }
    assert_ne!(first.value.journal, run(2).value.journal);
}

/// Without conflicts and disks, processors are all that clients wait for.
#[test]
fn processors_limit_what_clients_do() {
    let time = |processors| {
        let work = Duration::from_millis(2);
        let load = Load { clients: 16, transfers: 25, hot: ACCOUNTS as usize, work, seed: 3 };
        let report = run_on(Hardware::with_processors(processors), options(), load);
        last(&report).as_secs_f64()
    };
    // 400 transfers with two milliseconds each. A few wait for a lock or are made again.
    let (one, four) = (time(1), time(4));
    assert!((0.8..0.83).contains(&one), "{one} s on one processor");
    assert!((3.5..=4.0).contains(&(one / four)), "{one} s and {four} s on four");
}

/// Commits that come while the log is synced are synced together by the next.
#[test]
fn commits_share_the_syncs_of_the_log() {
    let time = |clients| {
        let load =
            Load { clients, transfers: 50, hot: ACCOUNTS as usize, work: Duration::ZERO, seed: 4 };
        let hardware = Hardware { log: milliseconds(10), ..Hardware::with_processors(1) };
        last(&run_on(hardware, options(), load)).as_secs_f64()
    };
    let (one, twenty) = (time(1), time(20));
    // A new segment of the log takes some syncs of its own.
    assert!((0.5..0.6).contains(&one), "{one} s for 50 commits, each with a sync of 10 ms");
    assert!(twenty < 4.0 * one, "{twenty} s for twenty clients, {one} s for one");
}

/// A lock that is waited for in vain is waited for exactly as long as was said.
#[test]
fn a_lock_time_out_takes_its_time() {
    let report = Machine::new(Hardware::with_processors(1), 1).run(|| {
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
        let timeout = Duration::from_secs(50);
        let locks =
            tidegate_engine::lock::LockSettings { timeout: Some(timeout), ..options().locks };
        let store = Arc::new(Store::create(&disk, LogId(1), &options().locks(locks)).unwrap());
        let tree = fill(&store);
        let mut holder = store.begin(TxnOptions::default());
        holder.put(&tree, &key(1), &value(1)).unwrap();
        let (theirs, began) = (Arc::clone(&store), clock::now());
        let waiter = thread::spawn("waiter", move || {
            let mut waiter = theirs.begin(TxnOptions::default());
            let error = waiter.put(&tree, &key(1), &value(2)).unwrap_err();
            (error.to_string(), clock::now() - began)
        });
        let (error, time) = waiter.unwrap().join().unwrap();
        assert_eq!(time, timeout, "{error}");
    });
    report.unwrap();
}

/// Transfers under schedules that switch at each lock, wake-up and look at the clock.
fn transfers() {
    let load = Load { clients: 3, transfers: 3, hot: 3, work: Duration::ZERO, seed: 5 };
    run_clients(&Arc::new(MemoryDisk::new()), &options().io_writers(2), load);
}

#[test]
fn drawn_schedules_find_no_error() {
    println!("{}", explore("store, transfers", 20, transfers));
}

#[test]
#[ignore = "soak: 5,000 schedules"]
fn many_drawn_schedules_find_no_error() {
    println!("{}", explore("store, transfers", 5_000, transfers));
}

/// What the engine counts is paid with processor time before the locks are released.
#[test]
fn counted_work_takes_processor_time() {
    let load =
        Load { clients: 4, transfers: 50, hot: ACCOUNTS as usize, work: Duration::ZERO, seed: 6 };
    let time = |name: Option<Operation>| {
        let mut costs = Costs::default();
        if let Some(operation) = name {
            costs.0[operation as usize] = 100_000.0;
        }
        let report = run_on(Hardware { costs, ..Hardware::with_processors(2) }, options(), load);
        (last(&report), report.usage)
    };
    let (free, usage) = time(None);
    assert!(free < Duration::from_millis(1), "{free:?} if nothing costs anything");
    assert_eq!(usage.processors, Duration::ZERO);
    for operation in [
        Operation::Transaction,
        Operation::PageVisit,
        Operation::Comparison,
        Operation::Lock,
        Operation::LogRecord,
        Operation::LogByte,
        Operation::PageSplit,
    ] {
        let (_, usage) = time(Some(operation));
        let paid = Duration::from_micros(100) * u32::try_from(usage.counts.of(operation)).unwrap();
        assert!(paid > Duration::ZERO, "{} is counted", operation.name());
        // The end of each piece of work is rounded to a nanosecond.
        let error = usage.processors.abs_diff(paid);
        assert!(error < Duration::from_micros(1), "{}: off by {error:?}", operation.name());
    }
}

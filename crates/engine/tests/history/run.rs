//! A run: clients with plans on a new store, and the history of what they did.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::thread;
use std::time::Duration;

use tidegate_engine::disk::{Disk, Faults, SimulatedDisk};
use tidegate_engine::lock::{LockSettings, LockStatistics};
use tidegate_engine::wal::{LogId, LogSettings};
use tidegate_engine::{
    Direction, Durability, Isolation, PageSize, Store, StoreOptions, TxnError, TxnOptions,
};
use tidegate_runtime::run_all;

use super::client::{Client, Plan, Planted, Span, Stage, Step, key_bytes, read_span, trail_of};
use super::history::{History, Key, Txn};
use super::turns::{Seat, Turns};

/// How a run is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setup {
    pub(crate) isolation: Isolation,
    pub(crate) planted: Planted,
    /// Whether each request that has to wait looks for a deadlock at once.
    pub(crate) check_on_block: bool,
    /// Bytes by which values are longer than they need be. Leaves have 4096.
    pub(crate) padding: usize,
    /// Keys that are there from the beginning.
    pub(crate) keys: Vec<Key>,
    /// How often a transaction is tried.
    pub(crate) attempts: usize,
    /// How long a lock is waited for.
    pub(crate) timeout: Option<Duration>,
}

impl Setup {
    pub(crate) fn new(isolation: Isolation) -> Setup {
        Setup {
            isolation,
            planted: Planted::Nothing,
            check_on_block: true,
            padding: 0,
            keys: Vec::new(),
            attempts: 1,
            // Nobody waits so long, unless a deadlock is overlooked.
            timeout: Some(Duration::from_secs(20)),
        }
    }
}

/// What came of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) history: History,
    /// Requests that had to wait for a lock.
    pub(crate) waits: u64,
    pub(crate) deadlocks: u64,
}

/// Who goes on when.
pub(crate) enum Pace<'p> {
    /// The threads as they like.
    Free,
    /// The machine as it draws, on which the caller is a task.
    Drawn,
    /// One at a time, taken from those who can.
    Turns(&'p mut dyn FnMut(&[usize]) -> usize),
}

/// Keys that a plan may name are below this one.
pub(crate) const KEY_END: Key = 40;

fn store(check_on_block: bool, timeout: Option<Duration>) -> Store {
    let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new(0, Faults::default()));
    let options = StoreOptions::default()
        .page_size(PageSize::new(4096).unwrap())
        .buffer_bytes(64 * 4096)
        .buffer_bytes_max(64 * 4096)
        .log(LogSettings {
            segment_bytes: 256 << 10,
            lazy_sync: Duration::from_millis(2),
            ..LogSettings::default()
        })
        .locks(LockSettings { check_on_block, timeout, buckets: 16, ..LockSettings::default() })
        .background(false);
    Store::create(&disk, LogId(0), &options).unwrap()
}

fn stage(setup: &Setup) -> Stage {
    let store = store(setup.check_on_block, setup.timeout);
    let [tree, trails] = ["values", "trails"].map(|name| store.create_tree(name).unwrap());
    let mut transaction = store.begin(TxnOptions::default());
    for key in 0..KEY_END {
        transaction.insert(&trails, &key_bytes(key), &[]).unwrap();
    }
    transaction.commit().unwrap();
    let Setup { isolation, planted, padding, .. } = *setup;
    let (clock, writes) = (AtomicU64::new(1), AtomicU32::new(0));
    Stage { store, tree, trails, isolation, planted, padding, clock, writes }
}

/// Runs the plans of each client. Whatever goes wrong but deadlocks is an error, as it is when the
/// store is not sound afterwards.
pub(crate) fn run(
    setup: &Setup,
    plans: &[Vec<Plan>],
    pace: Pace<'_>,
) -> Result<Outcome, Box<dyn Error>> {
    let stage = Arc::new(stage(setup));
    let steps = setup.keys.iter().map(|&key| Step::Insert(key)).collect();
    let first = [Plan { steps, is_committed: true }];
    let mut txns = Client::new(&stage, 0, None).run(&first, 1)?;
    let (ended, is_over) = perform(&stage, setup, plans, pace);
    if !is_over {
        return Err("all waited for locks, and nobody broke the deadlock".into());
    }
    for result in ended {
        txns.extend(result?);
    }
    txns.sort_by_key(|txn| txn.began);
    let LockStatistics { held, waits, deadlocks, .. } = stage.store.locks().statistics();
    if held > 0 {
        return Err(format!("{held} locks are not given back").into());
    }
    stage.store.check()?;
    Ok(Outcome { history: finish(&stage, txns)?, waits, deadlocks })
}

/// What each client did, and whether they came to an end by themselves.
fn perform(
    stage: &Arc<Stage>,
    setup: &Setup,
    plans: &[Vec<Plan>],
    pace: Pace<'_>,
) -> (Vec<Result<Vec<Txn>, TxnError>>, bool) {
    let locks = stage.store.locks();
    let turns = Turns::new(plans.len());
    let is_free = matches!(pace, Pace::Free | Pace::Drawn);
    let detector = (is_free && !setup.check_on_block)
        .then(|| locks.start_detector(Duration::from_millis(1)).unwrap());
    if matches!(pace, Pace::Drawn) {
        let bodies = plans.iter().cloned().enumerate().map(|(number, plans)| {
            let (stage, attempts) = (Arc::clone(stage), setup.attempts);
            move || Client::new(&stage, number + 1, None).run(&plans, attempts)
        });
        return (run_all(bodies), true);
    }
    let ended = thread::scope(|scope| {
        let threads: Vec<_> = plans
            .iter()
            .enumerate()
            .map(|(number, plans)| {
                let seat = (!is_free).then(|| Seat::new(&turns, number));
                let client = Client::new(stage, number + 1, seat);
                scope.spawn(move || client.run(plans, setup.attempts))
            })
            .collect();
        let is_over = match pace {
            Pace::Free | Pace::Drawn => true,
            Pace::Turns(pick) => turns.lead(locks, pick),
        };
        (threads.into_iter().map(|thread| thread.join().unwrap()).collect(), is_over)
    });
    drop(detector);
    ended
}

/// What is there in the end.
fn finish(stage: &Stage, txns: Vec<Txn>) -> Result<History, TxnError> {
    let mut reader = stage.begin(Isolation::Serializable, Durability::Lazy);
    let all = Span { low: 0, high: Key::MAX, way: Direction::Up, is_open: false, most: usize::MAX };
    let left = read_span(&mut reader, &stage.tree, all, || ())?;
    let mut trails = BTreeMap::new();
    for key in 0..KEY_END {
        let trail = reader.get(&stage.trails, &key_bytes(key))?.unwrap_or_default();
        trails.insert(key, trail_of(&trail));
    }
    Ok(History { txns, trails, left: left.into_iter().collect() })
}

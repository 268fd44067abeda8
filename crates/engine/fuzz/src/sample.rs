//! Small stores with a past, to be damaged; and what is found in them afterwards.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_engine::disk::{Crash, Disk, Faults, SimulatedDisk};
use tidegate_engine::wal::{Log, LogId, LogSettings, Lsn, RECORD_HEADER};
use tidegate_engine::{
    Isolation, PageSize, Recovery, Store, StoreOptions, Transaction, TxnError, TxnOptions,
};

use super::random::Random;

/// Bytes of a page of these stores.
pub const PAGE: usize = 4096;

/// Bytes of a segment of their logs.
pub const SEGMENT: u64 = 64 << 10;

/// What a tree holds.
pub type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// What all trees hold, by their names.
pub type Model = BTreeMap<String, Entries>;

/// How the program that used the store ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It closed the store.
    Closed,
    /// The power failed, while a transaction was under way.
    Crashed,
}

/// A store that nobody has open.
pub struct Sample {
    /// Its files.
    pub disk: SimulatedDisk,
    /// Its number.
    pub id: LogId,
    /// What had been committed after each commit; the store holds the last.
    pub states: Vec<Model>,
    /// Which of the states was the last at the last checkpoint.
    pub floor: usize,
    /// The files at an earlier time, when all pages had been written.
    pub earlier: BTreeMap<String, Vec<u8>>,
    /// Which of the states was the last then.
    pub earlier_state: usize,
    /// The records that are read when the store is opened.
    pub records: Vec<Record>,
}

/// A record of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Where it begins.
    pub lsn: Lsn,
    /// Bytes of it, header and payload.
    pub len: u64,
    /// It says that a transaction is done.
    pub is_commit: bool,
}

/// The kind of record that ends a transaction, the first byte of its payload (`docs/wal.md`).
const COMMIT: u8 = 4;

struct Shape {
    name: &'static str,
    keys: u64,
    prefix: usize,
    value_max: u64,
}

/// Short entries, keys that share much, and entries of which four fill a page.
const SHAPES: [Shape; 3] = [
    Shape { name: "short", keys: 800, prefix: 0, value_max: 100 },
    Shape { name: "long keys", keys: 500, prefix: 200, value_max: 500 },
    Shape { name: "long values", keys: 450, prefix: 3, value_max: 900 },
];

/// The tree in which a transaction is under way at the end.
const UNDER_WAY: &str = "under way";

const CHANGES: usize = 50;

impl Shape {
    fn key(&self, number: u64) -> Vec<u8> {
        let letter = b"aeiou"[usize::try_from(number % 5).unwrap()];
        let mut key = vec![letter; self.prefix];
        key.extend_from_slice(&number.to_be_bytes()[6..]);
        key
    }
}

/// How the stores are kept: a buffer that is smaller than what is in them, and nothing that
/// happens by itself.
pub fn options() -> StoreOptions {
    let log =
        LogSettings { segment_bytes: SEGMENT, buffer_bytes: 64 << 10, ..LogSettings::default() };
    StoreOptions::default()
        .page_size(PageSize::new(PAGE as u64).unwrap())
        .buffer_bytes(64 * PAGE)
        .buffer_bytes_max(64 * PAGE)
        .log(log)
        .background(false)
}

/// The disk as a store takes it.
pub fn shared(disk: &Arc<SimulatedDisk>) -> Arc<dyn Disk> {
    Arc::clone(disk) as Arc<dyn Disk>
}

struct History {
    store: Store,
    random: Random,
    states: Vec<Model>,
}

impl History {
    fn begin(disk: &Arc<SimulatedDisk>, seed: u64) -> History {
        let store = Store::create(&shared(disk), LogId(seed), &options()).unwrap();
        let mut empty = Model::new();
        for name in SHAPES.iter().map(|shape| shape.name).chain([UNDER_WAY]) {
            store.create_tree(name).unwrap();
            empty.insert(name.to_owned(), Entries::new());
        }
        History { store, random: Random::new(seed), states: vec![empty] }
    }

    fn last(&self) -> usize {
        self.states.len() - 1
    }

    fn run(&mut self, transactions: usize) {
        for _ in 0..transactions {
            let is_kept = self.random.below(6) > 0;
            self.transact(is_kept);
        }
    }

    fn transact(&mut self, is_kept: bool) {
        let mut model = self.states[self.last()].clone();
        let mut transaction = self.store.begin(TxnOptions::default());
        for _ in 0..CHANGES {
            self.change(&mut transaction, &mut model);
        }
        if is_kept {
            transaction.commit().unwrap();
            self.states.push(model);
        } else {
            transaction.roll_back().unwrap();
        }
    }

    fn change(&mut self, transaction: &mut Transaction, model: &mut Model) {
        let random = &mut self.random;
        let shape = random.pick(&SHAPES);
        let tree = self.store.tree(shape.name).unwrap();
        let entries = model.get_mut(shape.name).unwrap();
        let key = shape.key(random.below(shape.keys));
        if random.below(5) == 0 {
            let was_there = transaction.remove(&tree, &key).unwrap();
            assert_eq!(was_there, entries.remove(&key).is_some());
        } else {
            let len = random.below(shape.value_max + 1);
            let value = random.bytes(len);
            transaction.put(&tree, &key, &value).unwrap();
            entries.insert(key, value);
        }
    }
}

/// A store whose past is drawn from `seed`, which is also its number.
pub fn build(seed: u64, ending: Ending) -> Sample {
    let disk = Arc::new(SimulatedDisk::new(seed, Faults::default()));
    let mut history = History::begin(&disk, seed);
    history.run(25);
    history.store.flush().unwrap();
    let (earlier, earlier_state) = (disk.image(), history.last());
    history.run(15);

    let tree = history.store.tree(UNDER_WAY).unwrap();
    let mut under_way = history.store.begin(TxnOptions::default());
    let mut put = |from: u16| {
        for key in from..from + 20 {
            under_way.put(&tree, &key.to_be_bytes(), &[9; 300]).unwrap();
        }
    };
    put(0);
    history.store.checkpoint().unwrap();
    let mut floor = history.last();
    history.run(6);
    put(10);
    history.transact(true);
    history.transact(true);

    let disk = if ending == Ending::Crashed {
        disk.crash(Crash::Lost)
    } else {
        under_way.roll_back().unwrap();
        drop(tree);
        floor = history.last();
        history.store.close().unwrap();
        disk.fork()
    };
    let id = LogId(seed);
    let records = records(&disk, id);
    Sample { disk, id, states: history.states, floor, earlier, earlier_state, records }
}

/// The last checkpoint's record, and the position before which no record is needed, by the head.
pub fn checkpoint(head: &[u8]) -> (Lsn, Lsn) {
    let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap());
    let latest = [PAGE, 2 * PAGE].into_iter().max_by_key(|block| number(block + 8)).unwrap();
    (Lsn(number(latest + 16)), Lsn(number(latest + 24)))
}

fn records(disk: &SimulatedDisk, id: LogId) -> Vec<Record> {
    let (record, needed) = checkpoint(&disk.image()["head"]);
    let from = record.min(needed);
    let disk = Arc::new(disk.fork());
    let settings = LogSettings { id, ..options().log };
    let (log, _) = Log::open(shared(&disk), settings, from).unwrap();
    let mut reader = log.reader(from);
    let mut records = Vec::new();
    while let Some((lsn, payload)) = reader.read_next().unwrap() {
        let len = (RECORD_HEADER + payload.len()) as u64;
        records.push(Record { lsn, len, is_commit: payload.first() == Some(&COMMIT) });
    }
    records
}

/// What is in a store, and what opening it took.
pub struct Found {
    /// The store, still open.
    pub store: Store,
    /// Everything in it.
    pub model: Model,
    /// What opening it did.
    pub recovery: Recovery,
}

/// Opens a store and reads all of it, entry by entry and page by page.
///
/// # Errors
/// It was damaged, and it was noticed.
pub fn read_back(disk: &Arc<SimulatedDisk>) -> Result<Found, TxnError> {
    let store = Store::open(&shared(disk), &options())?;
    let model = contents(&store)?;
    store.check()?;
    let recovery = store.recovery();
    Ok(Found { store, model, recovery })
}

/// Everything in a store.
///
/// # Errors
/// A page is damaged.
pub fn contents(store: &Store) -> Result<Model, TxnError> {
    let isolation = Isolation::ReadUncommitted;
    let mut transaction = store.begin(TxnOptions::default().isolation(isolation));
    let mut model = Model::new();
    for name in store.trees() {
        let Some(tree) = store.tree(&name) else { continue };
        let mut entries = Entries::new();
        for entry in transaction.entries(&tree)? {
            let (key, value) = entry?;
            // Else it may go round in a circle.
            let is_higher = entries.last_key_value().is_none_or(|(last, _)| key > *last);
            assert!(is_higher, "keys are out of order, after {} of them", entries.len());
            entries.insert(key, value);
        }
        model.insert(name, entries);
    }
    Ok(model)
}

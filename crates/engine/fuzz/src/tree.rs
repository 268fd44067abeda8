//! A tree against a `BTreeMap`.
//!
//! The first two bytes say how nodes are split and merged, the rest is a list of steps: changes,
//! reads and scans in a transaction, savepoints, commits and rollbacks, and now and then the store
//! is closed and opened, or the machine crashes. Pages have 4 KiB, the smallest there are, values
//! up to 446 bytes or, rarely, 10,200, and keys up to 494, so that a few steps make a tree of
//! several levels.
//!
//! Everything that is read must be what the map says; after every opening, and at the end, the
//! whole of it, and the tree must be sound.

use std::collections::btree_map::Entry;
use std::ops::Bound;
use std::sync::Arc;

use tidegate_engine::disk::{Crash, Faults, SimulatedDisk};
use tidegate_engine::wal::LogId;
use tidegate_engine::{
    Direction, MergePolicy, Savepoint, SplitPolicy, Store, Transaction, TreeHandle, TxnError,
    TxnOptions,
};

use super::input::Input;
use super::sample::{Entries, options, shared};

const NAME: &str = "tree";

/// Steps of one input: what comes after tells little more and takes long.
const STEPS_MAX: usize = 3_000;

/// Does what `bytes` say.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut subject = Subject::new(&mut input);
    for _ in 0..STEPS_MAX {
        let Some(step) = input.next_byte() else { break };
        subject.step(step, &mut input);
    }
    subject.check();
    subject.end(true);
    subject.check();
}

/// An open store, a transaction that may be under way, and what both should hold.
struct Subject {
    disk: Arc<SimulatedDisk>,
    open: Option<(Store, TreeHandle)>,
    transaction: Option<Transaction>,
    savepoints: Vec<(Savepoint, Entries)>,
    /// What the transaction sees.
    now: Entries,
    /// What was committed.
    committed: Entries,
}

impl Subject {
    fn new(input: &mut Input<'_>) -> Subject {
        let disk = Arc::new(SimulatedDisk::new(1, Faults::default()));
        let store = Store::create(&shared(&disk), LogId(1), &options()).unwrap();
        let tree = store.create_tree(NAME).unwrap();
        let subject = Subject {
            disk,
            open: Some((store, tree)),
            transaction: None,
            savepoints: Vec::new(),
            now: Entries::new(),
            committed: Entries::new(),
        };
        subject.set(input);
        subject
    }

    /// Sets how nodes are split and merged.
    fn set(&self, input: &mut Input<'_>) {
        let policy = match input.below(4) {
            0 => SplitPolicy::Half,
            1 => SplitPolicy::MaxKey,
            2 => SplitPolicy::Adaptive { fill_percent: 100 },
            _ => SplitPolicy::Adaptive { fill_percent: 50 + input.byte() % 51 },
        };
        let merging =
            [MergePolicy::FreeAtEmpty, MergePolicy::MergeAtHalf][usize::from(input.byte() % 2)];
        self.tree().set_split_policy(policy).unwrap();
        self.tree().set_merge_policy(merging).unwrap();
    }

    fn tree(&self) -> &TreeHandle {
        &self.open.as_ref().unwrap().1
    }

    /// The transaction that is under way, or one that begins now, and its tree.
    fn begun(&mut self) -> (&mut Transaction, &TreeHandle) {
        let (store, tree) = self.open.as_ref().unwrap();
        let begin = || store.begin(TxnOptions::default());
        (self.transaction.get_or_insert_with(begin), tree)
    }

    fn step(&mut self, step: u8, input: &mut Input<'_>) {
        match step % 16 {
            0..=3 => self.put(key(input), value(input)),
            4 => self.insert(key(input), value(input)),
            5 => self.update(key(input), value(input)),
            6 | 7 => self.remove(&key(input)),
            8 => self.get(&key(input)),
            9 => self.scan(input, Direction::Up),
            10 => self.scan(input, Direction::Down),
            11 => {
                let savepoint = self.begun().0.savepoint();
                self.savepoints.push((savepoint, self.now.clone()));
            }
            12 => self.roll_back_to(input),
            13 => self.end(step < 208),
            14 => self.run_of_puts(input),
            _ => self.rarely(input),
        }
    }

    fn rarely(&mut self, input: &mut Input<'_>) {
        match input.below(8) {
            0 => self.open.as_ref().unwrap().0.checkpoint().unwrap(),
            1 => self.open.as_ref().unwrap().0.flush().unwrap(),
            2 => self.set(input),
            3 => self.check(),
            4 => self.reopen(),
            5 => self.crash(Crash::Lost),
            6 => self.crash(Crash::Random),
            _ => self.crash(Crash::Kept),
        }
    }

    fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        let (transaction, tree) = self.begun();
        transaction.put(tree, &key, &value).unwrap();
        self.now.insert(key, value);
    }

    fn insert(&mut self, key: Vec<u8>, value: Vec<u8>) {
        let (transaction, tree) = self.begun();
        let inserted = transaction.insert(tree, &key, &value);
        match self.now.entry(key) {
            Entry::Occupied(_) => {
                assert!(matches!(inserted, Err(TxnError::KeyExists)), "{inserted:?}");
            }
            Entry::Vacant(entry) => {
                inserted.unwrap();
                entry.insert(value);
            }
        }
    }

    fn update(&mut self, key: Vec<u8>, value: Vec<u8>) {
        let (transaction, tree) = self.begun();
        let was_there = transaction.update(tree, &key, &value).unwrap();
        assert_eq!(was_there, self.now.contains_key(&key));
        if was_there {
            self.now.insert(key, value);
        }
    }

    fn remove(&mut self, key: &[u8]) {
        let (transaction, tree) = self.begun();
        let was_there = transaction.remove(tree, key).unwrap();
        assert_eq!(was_there, self.now.remove(key).is_some());
    }

    fn get(&mut self, key: &[u8]) {
        let (transaction, tree) = self.begun();
        let value = transaction.get(tree, key).unwrap();
        let part = transaction.get_range(tree, key, 100, 3_000).unwrap();
        let expected = self.now.get(key);
        assert_eq!(value.as_ref(), expected);
        let end = |value: &Vec<u8>| value.len().min(3_100);
        let expected = expected.map(|value| value[value.len().min(100)..end(value)].to_vec());
        assert_eq!(part, expected);
    }

    /// Many entries at once, ascending, descending or strewn about.
    fn run_of_puts(&mut self, input: &mut Input<'_>) {
        let (first, count, way) = (key(input), input.byte() % 64, input.below(3));
        let value = value(input);
        for number in 0..count {
            let number = match way {
                0 => number,
                1 => count - number,
                _ => number.wrapping_mul(101),
            };
            let mut key = first.clone();
            key.push(number);
            self.put(key, value.clone());
        }
    }

    fn scan(&mut self, input: &mut Input<'_>, direction: Direction) {
        let kinds = input.byte();
        let (one, other) = (key(input), key(input));
        let (low, high) = if one < other { (one, other) } else { (other, one) };
        let bound = |key, kind| match kind % 3 {
            0 => Bound::Unbounded,
            1 => Bound::Included(key),
            _ => Bound::Excluded(key),
        };
        let range = (bound(&low[..], kinds), bound(&high[..], kinds / 3));
        let holds_nothing = low == high
            && matches!(range, (Bound::Excluded(_), Bound::Included(_) | Bound::Excluded(_)));
        let mut expected: Vec<_> = if holds_nothing {
            Vec::new()
        } else {
            self.now.range::<[u8], _>(range).map(|(k, v)| (k.clone(), v.clone())).collect()
        };
        if direction == Direction::Down {
            expected.reverse();
        }
        let (transaction, tree) = self.begun();
        assert!(read(transaction, tree, range, direction) == expected, "{range:?} {direction:?}");
    }

    fn roll_back_to(&mut self, input: &mut Input<'_>) {
        let at = input.below(self.savepoints.len());
        let Some((savepoint, then)) = self.savepoints.get(at).cloned() else { return };
        self.begun().0.roll_back_to(savepoint).unwrap();
        self.now = then;
        self.savepoints.truncate(at + 1);
    }

    /// Ends the transaction that is under way.
    fn end(&mut self, is_kept: bool) {
        self.savepoints.clear();
        let Some(transaction) = self.transaction.take() else { return };
        if is_kept {
            transaction.commit().unwrap();
            self.committed.clone_from(&self.now);
        } else {
            transaction.roll_back().unwrap();
            self.now.clone_from(&self.committed);
        }
    }

    /// Closes the store and opens it again.
    fn reopen(&mut self) {
        self.end(true);
        let (store, tree) = self.open.take().unwrap();
        drop(tree);
        store.close().unwrap();
        self.open_again();
        let recovery = self.open.as_ref().unwrap().0.recovery();
        assert_eq!((recovery.redone, recovery.rolled_back), (0, 0), "it was closed");
    }

    /// Opens what a crash leaves. What was under way is gone.
    fn crash(&mut self, how: Crash) {
        self.disk = Arc::new(self.disk.crash(how));
        self.end(false);
        self.open = None;
        self.open_again();
    }

    fn open_again(&mut self) {
        let store = Store::open(&shared(&self.disk), &options()).unwrap();
        let tree = store.tree(NAME).unwrap();
        self.open = Some((store, tree));
        self.check();
    }

    /// Compares everything, and looks at every page.
    fn check(&mut self) {
        let (transaction, tree) = self.begun();
        let all = (Bound::Unbounded, Bound::Unbounded);
        let found = read(transaction, tree, all, Direction::Up);
        assert!(found.iter().map(|(k, v)| (k, v)).eq(&self.now), "{} entries", found.len());
        let (store, _) = self.open.as_ref().unwrap();
        let shapes = store.check().unwrap();
        assert_eq!(shapes[0].1.entries, self.now.len() as u64);
    }
}

fn read(
    transaction: &mut Transaction,
    tree: &TreeHandle,
    range: (Bound<&[u8]>, Bound<&[u8]>),
    direction: Direction,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut cursor = transaction.cursor(tree, range, direction).unwrap();
    let mut entries = Vec::new();
    while let Some((key, value)) = cursor.next(transaction).unwrap() {
        entries.push((key.to_vec(), value.to_vec()));
    }
    entries
}

/// A key: one of four lengths, which begin alike.
fn key(input: &mut Input<'_>) -> Vec<u8> {
    let class = input.byte();
    let mut key = vec![b'k'; [0, 1, 40, 490][usize::from(class % 4)]];
    key.extend_from_slice(input.take(usize::from(class / 4 % 4)));
    key
}

/// A value: of up to 446 bytes, or, one in sixteen, of up to 10,200 and so too long for a leaf.
fn value(input: &mut Input<'_>) -> Vec<u8> {
    let len = input.byte();
    let times_four = if len % 16 == 15 { 160 } else { 7 };
    vec![len; usize::from(len) * times_four / 4]
}

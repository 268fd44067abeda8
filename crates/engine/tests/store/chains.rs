//! Chains of faults: a store lives, is ended somehow, and lives again on what is left.
//!
//! A chain has up to three lives. In each the store is opened, read, changed and perhaps closed,
//! while the disk stops after some operation, fails syncs, tears writes, fails reads or fills up.
//! Then the process is killed or the power fails, and the next life begins on what that left. In
//! the end the store is opened without faults.
//!
//! Whatever the chain: a transaction that was acknowledged is there, one that was rolled back or
//! never asked to be committed is not, and what any life has read from a store that opened is not
//! lost later. The fate of the one transaction whose commit returned an error is open until
//! somebody reads it.

use std::sync::{Arc, Mutex};
use std::thread;

use tidegate_engine::disk::{Crash, Disk, Faults, Open, SimulatedDisk};
use tidegate_engine::wal::{LogId, LogSettings};
use tidegate_engine::{Store, StoreOptions, TreeHandle, TxnOptions};

use super::{Model, Random, disk, new_store, options, reopen, shared};

const CRASHES: [Crash; 4] = [Crash::Kept, Crash::Lost, Crash::Random, Crash::Weak];

/// What the store has to hold.
#[derive(Default)]
struct Expected {
    /// What was acknowledged, or read.
    sure: Model,
    /// The same with the transaction of which nobody knows whether it is done.
    doubt: Option<Model>,
}

impl Expected {
    /// Compares what was read with what has to be there. From then on it has to stay.
    fn resolve(&mut self, found: &Model, case: &str) {
        if self.doubt.as_ref() == Some(found) {
            self.sure.clone_from(found);
        }
        self.doubt = None;
        let lost = self.sure.iter().filter(|(key, value)| found.get(*key) != Some(value)).count();
        let new = found.keys().filter(|key| !self.sure.contains_key(*key)).count();
        assert!(
            lost + new == 0,
            "{case}: {lost} of {} entries are lost or changed, {new} should not be there",
            self.sure.len()
        );
    }
}

/// One chain, from its seed.
struct Chain {
    random: Random,
    disk: Arc<SimulatedDisk>,
    options: StoreOptions,
    keys: u64,
    expected: Expected,
    /// What has happened, for the message of a failure.
    story: String,
}

impl Chain {
    fn new(seed: u64) -> Chain {
        let mut random = Random::new(seed);
        let disk = disk(seed);
        let segment_bytes = [32 << 10, 64 << 10, 256 << 10][random.index(3)];
        let options = options().log(LogSettings { segment_bytes, ..LogSettings::default() });
        let keys = [40, 400, 1_500][random.index(3)];
        drop(Store::create(&shared(&disk), LogId(seed), &options).unwrap());
        let story = format!("seed {seed}");
        Chain { random, disk, options, keys, expected: Expected::default(), story }
    }

    fn open(&self) -> Option<Store> {
        Store::open(&shared(&self.disk), &self.options).ok()
    }

    /// Bytes of all files.
    fn size(&self) -> u64 {
        let names = self.disk.list().unwrap();
        names.iter().map(|name| self.disk.open(name, Open::Existing).unwrap().len().unwrap()).sum()
    }

    fn draw_faults(&mut self) -> Faults {
        let probability = [0.003, 0.03, 0.3][self.random.index(3)];
        let scale = [10, 100, 1_000][self.random.index(3)];
        let crash_after = Some(self.random.below(scale));
        let none = Faults::default();
        match self.random.below(8) {
            0 => none,
            1 | 2 => Faults { crash_after, ..none },
            7 => Faults { fail_after: crash_after, ..none },
            3 => Faults { sync_error: probability, ..none },
            4 => Faults { write_error: probability, ..none },
            5 => Faults { capacity: Some(self.size() + self.random.below(200_000)), ..none },
            _ => Faults {
                crash_after,
                sync_error: probability / 3.0,
                write_error: probability / 3.0,
                read_error: probability / 3.0,
                ..none
            },
        }
    }

    /// A life of the store, and its end: any faults at all, or one of the two halves of a hazard.
    /// Pages that were written and not synced are seen by the next life and are not on the disk;
    /// that is lost only if the next life writes nothing, which would sync them.
    fn live(&mut self) {
        let kind = self.random.below(3);
        let faults = if kind == 0 { self.draw_faults() } else { Faults::default() };
        let how = [Crash::Kept, CRASHES[self.random.index(4)]][self.random.index(2)];
        self.story = format!("{}; kind {kind}, {faults:?}, then {how:?}", self.story);
        self.disk.set_faults(faults);
        if let Some(store) = self.open() {
            if kind == 2 {
                if let Some(found) = self.read(&store) {
                    self.expected.resolve(&found, &self.story);
                }
            } else {
                let transactions = self.random.below(25);
                self.work(&store, transactions);
            }
            if kind == 1 {
                // Ended in the few operations in which pages are written and the log is given up.
                let crash_after = Some(self.random.below(20));
                self.disk.set_faults(Faults { crash_after, ..Faults::default() });
            }
            match self.random.below(4) {
                0 => drop(store),
                _ => drop(store.close()),
            }
        }
        self.disk = Arc::new(self.disk.crash(how));
    }

    /// Reads everything, then changes it until something fails or there was enough.
    fn work(&mut self, store: &Store, transactions: u64) {
        let Some(found) = self.read(store) else { return };
        self.expected.resolve(&found, &self.story);
        let Ok(mut tree) = store.create_tree("tree") else { return };
        for _ in 0..transactions {
            if !self.transact(store, &tree) {
                assert_stopped(store, &tree, &self.story);
                return;
            }
            let done = match self.random.below(24) {
                0 | 1 => store.checkpoint(),
                2 | 3 => store.flush(),
                4 => match self.drop_tree(store) {
                    Some(made) => {
                        tree = made;
                        Ok(())
                    }
                    None => return,
                },
                _ => Ok(()),
            };
            if done.is_err() {
                return;
            }
        }
    }

    /// Drops the tree and makes it again; `None` when the store has failed.
    fn drop_tree(&mut self, store: &Store) -> Option<TreeHandle> {
        if store.drop_tree("tree").is_err() {
            self.expected.doubt = Some(Model::new());
            return None;
        }
        self.expected.sure = Model::new();
        store.create_tree("tree").ok()
    }

    fn read(&self, store: &Store) -> Option<Model> {
        let mut model = Model::new();
        let Some(tree) = store.tree("tree") else { return Some(model) };
        let mut transaction = store.begin(TxnOptions::default());
        for key in 0..self.keys {
            let key = format!("{key:05}").into_bytes();
            if let Some(value) = transaction.get(&tree, &key).ok()? {
                model.insert(key, value);
            }
        }
        transaction.commit().ok()?;
        Some(model)
    }

    /// A transaction; false when the store has failed in its commit.
    fn transact(&mut self, store: &Store, tree: &TreeHandle) -> bool {
        let mut transaction = store.begin(TxnOptions::default());
        let mut changed = self.expected.sure.clone();
        for _ in 0..=self.random.below(20) {
            let key = format!("{:05}", self.random.below(self.keys)).into_bytes();
            let done = if self.random.below(3) == 0 {
                changed.remove(&key);
                transaction.remove(tree, &key).map(drop)
            } else {
                // One in sixteen is too long for a leaf.
                let longest = if self.random.below(16) == 0 { 5_000 } else { 300 };
                let value = self.random.bytes_up_to(longest);
                changed.insert(key.clone(), value.clone());
                transaction.put(tree, &key, &value)
            };
            if done.is_err() {
                // Nobody asked for it to be committed.
                return true;
            }
        }
        if self.random.below(5) == 0 {
            drop(transaction.roll_back());
            return true;
        }
        let committed = transaction.commit();
        if committed.is_ok() {
            self.expected.sure = changed;
        } else {
            self.expected.doubt = Some(changed);
        }
        committed.is_ok()
    }

    /// The store opens, holds what it has to, is sound, and stays so when the power fails.
    fn verify(&mut self) {
        for ending in 0..3 {
            let case = format!("{}; at the end, {ending}", self.story);
            let store = match Store::open(&shared(&self.disk), &self.options) {
                Ok(store) => store,
                Err(error) => panic!("{case}: {error}\n{}", self.disk.trace()),
            };
            let redone = store.recovery().redone;
            assert!(ending == 0 || redone == 0, "{case}: a second recovery redoes {redone}");
            let found = self.read(&store).unwrap();
            self.expected.resolve(&found, &case);
            if let Err(error) = store.check() {
                panic!("{case}: {error}");
            }
            if ending == 1 {
                store.close().unwrap();
            }
            self.disk = Arc::new(self.disk.crash(Crash::Lost));
        }
    }

    fn run(seed: u64) {
        let mut chain = Chain::new(seed);
        for _ in 0..=chain.random.below(3) {
            chain.live();
        }
        chain.verify();
    }

    /// Has the machine stop after so many operations at most.
    fn switch_off_within(&mut self, bound: u64) {
        let operations = 1 + self.random.below(bound);
        self.story = format!("{}, off after {operations}", self.story);
        self.disk.set_faults(Faults { crash_after: Some(operations), ..Faults::default() });
    }

    /// A life of work until the machine is switched off. Every third recovery is cut off as well.
    fn run_until_off(seed: u64) {
        let mut chain = Chain { keys: 400, ..Chain::new(seed) };
        let how = CRASHES[usize::try_from(seed % 4).unwrap()];
        chain.story = format!("{}, {how:?}", chain.story);
        chain.switch_off_within(400);
        if let Some(store) = chain.open() {
            chain.work(&store, u64::MAX);
        }
        chain.disk = Arc::new(chain.disk.crash(how));
        if seed.is_multiple_of(3) {
            chain.switch_off_within(30);
            drop(chain.open());
            chain.disk = Arc::new(chain.disk.crash(how));
        }
        chain.verify();
    }
}

/// After a commit failed, nothing is read or committed any more.
fn assert_stopped(store: &Store, tree: &TreeHandle, case: &str) {
    let mut transaction = store.begin(TxnOptions::default());
    assert!(transaction.get(tree, b"00000").is_err(), "{case}: read after the store had failed");
    assert!(transaction.commit().is_err(), "{case}: commit after the store had failed");
}

#[test]
fn no_chain_of_faults_loses_what_was_acknowledged() {
    println!("seeds 0 to 299");
    (0..300).for_each(Chain::run);
}

#[test]
#[ignore = "soak: 20,000 chains of faults"]
fn no_chain_of_20000_loses_what_was_acknowledged() {
    println!("seeds 100000 to 119999");
    let began = std::time::Instant::now();
    for seed in 100_000..120_000 {
        Chain::run(seed);
        if seed % 1_000 == 999 {
            println!("{} chains, {:.0} s", seed - 99_999, began.elapsed().as_secs_f64());
        }
    }
}

#[test]
fn after_a_crash_everything_acknowledged_is_there_and_nothing_by_halves() {
    println!("seeds 0 to 399");
    (0..400).for_each(Chain::run_until_off);
}

#[test]
#[ignore = "soak: ten thousand crashes"]
fn after_ten_thousand_crashes_everything_acknowledged_is_there() {
    println!("seeds 1000 to 10999");
    (1_000..11_000).for_each(Chain::run_until_off);
}

/// Threads commit while another takes checkpoints, until the machine is switched off: what was
/// acknowledged to any of them is there.
#[test]
fn what_was_acknowledged_to_any_thread_survives_checkpoints_and_crashes() {
    for seed in 0..20 {
        let random = &mut Random::new(seed);
        let (disk, store, tree) = new_store(seed, &options());
        let operations = 200 + random.below(3_000);
        disk.set_faults(Faults { crash_after: Some(operations), ..Faults::default() });
        let acknowledged = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for writer in 0..4_u64 {
                let (store, tree, acknowledged) = (&store, &tree, &acknowledged);
                scope.spawn(move || {
                    for number in 0_u64.. {
                        let key = [writer.to_be_bytes(), number.to_be_bytes()].concat();
                        let mut transaction = store.begin(TxnOptions::default());
                        let put = transaction.insert(tree, &key, &[7; 100]);
                        if put.is_err() || transaction.commit().is_err() {
                            return;
                        }
                        acknowledged.lock().unwrap().push(key);
                    }
                });
            }
            scope.spawn(|| while store.checkpoint().is_ok() {});
        });
        drop((tree, store));
        let crashed = Arc::new(disk.crash([Crash::Lost, Crash::Random][(seed % 2) as usize]));
        let store = reopen(&crashed);
        let tree = store.tree("tree").unwrap();
        let mut transaction = store.begin(TxnOptions::default());
        let acknowledged = acknowledged.into_inner().unwrap();
        for key in &acknowledged {
            let value = transaction.get(&tree, key).unwrap();
            assert!(value.is_some(), "seed {seed}: one of {} is lost", acknowledged.len());
        }
        drop(transaction);
        store.check().unwrap();
    }
}

/// A life of fixed work, during which each operation in turn fails or is the last one; then another
/// life in which one does; then the power fails.
#[test]
fn every_operation_may_fail_or_be_the_last() {
    fail_at_every_operation(&[Crash::Kept, Crash::Random]);
}

#[test]
#[ignore = "soak: the same with every kind of crash"]
fn every_operation_may_fail_or_be_the_last_with_every_crash() {
    fail_at_every_operation(&CRASHES);
}

fn fail_at_every_operation(crashes: &[Crash]) {
    // How many there are is known when none fails.
    let operations = fixed_life(1, Faults::default(), None).1;
    for at in 0..=operations {
        for &how in crashes {
            let after = Some(at);
            let none = Faults::default();
            fixed_life(at, Faults { crash_after: after, ..none }, Some(how));
            fixed_life(at, Faults { fail_after: after, ..none }, Some(how));
        }
    }
}

/// Runs fixed work with `faults`, ends it by `how`, opens and closes the store with another fault
/// drawn from the seed, and verifies what is left. Returns how many operations the work had.
fn fixed_life(seed: u64, faults: Faults, how: Option<Crash>) -> (Chain, u64) {
    let mut chain = Chain { keys: 40, story: format!("{faults:?}, then {how:?}"), ..Chain::new(0) };
    chain.random = Random::new(seed);
    chain.disk.set_faults(faults);
    let before = chain.disk.operations();
    if let Some(store) = chain.open() {
        if let Ok(tree) = store.create_tree("tree") {
            for step in 0..6 {
                let goes_on = chain.transact(&store, &tree);
                let done = match step {
                    1 => store.checkpoint(),
                    3 => store.flush(),
                    _ => Ok(()),
                };
                if !goes_on || done.is_err() {
                    break;
                }
            }
        }
        drop(store.close());
    }
    let operations = chain.disk.operations() - before;
    if let Some(how) = how {
        chain.disk = Arc::new(chain.disk.crash(how));
        let after = Some(chain.random.below(40));
        let none = Faults::default();
        let second = [Faults { crash_after: after, ..none }, Faults { fail_after: after, ..none }];
        chain.disk.set_faults(second[chain.random.index(2)]);
        if let Some(store) = chain.open() {
            drop(store.close());
        }
        chain.disk = Arc::new(chain.disk.crash(CRASHES[chain.random.index(4)]));
        chain.verify();
    }
    (chain, operations)
}

const ROWS: u8 = 40;

/// Rows committed one by one, and a tree for them.
fn forty_rows(seed: u64) -> (Arc<SimulatedDisk>, Store) {
    let (disk, store, tree) = new_store(seed, &options());
    for row in 0..ROWS {
        let mut transaction = store.begin(TxnOptions::default());
        transaction.put(&tree, &[row], &[row; 100]).unwrap();
        transaction.commit().unwrap();
    }
    drop(tree);
    (disk, store)
}

fn assert_forty_rows(disk: &Arc<SimulatedDisk>, case: &str) {
    let store = match Store::open(&shared(disk), &options()) {
        Ok(store) => store,
        Err(error) => panic!("{case}: {error}\n{}", disk.trace()),
    };
    store.check().unwrap_or_else(|error| panic!("{case}: {error}"));
    let tree = store.tree("tree").unwrap();
    let mut transaction = store.begin(TxnOptions::default());
    let rows = (0..ROWS).filter(|row| transaction.get(&tree, &[*row]).unwrap().is_some());
    assert_eq!(rows.count(), usize::from(ROWS), "{case}");
}

/// Closes a store while the machine stops after so many operations, or a sync fails.
fn close_with(faults: Faults, seed: u64) -> (Arc<SimulatedDisk>, u64) {
    let (disk, store) = forty_rows(seed);
    let before = disk.operations();
    disk.set_faults(faults);
    drop(store.close());
    let operations = disk.operations() - before;
    (disk, operations)
}

/// Killed in `close()` at every operation in turn, opened and closed again and stopped there as
/// well, or not, and then the power fails.
#[test]
fn a_close_that_was_killed_anywhere_and_repeated_anywhere_keeps_every_row() {
    let (_, operations) = close_with(Faults::default(), 1);
    for first in 0..=operations {
        for second in [Some(0), Some(1), Some(3), Some(6), Some(9), None] {
            for how in [Crash::Lost, Crash::Random] {
                let case = format!("stopped after {first}, then after {second:?}, then {how:?}");
                let faults = Faults { crash_after: Some(first), ..Faults::default() };
                let (disk, _) = close_with(faults, first);
                let disk = Arc::new(disk.crash(Crash::Kept));
                disk.set_faults(Faults { crash_after: second, ..Faults::default() });
                if let Ok(store) = Store::open(&shared(&disk), &options()) {
                    drop(store.close());
                }
                assert_forty_rows(&Arc::new(disk.crash(how)), &case);
            }
        }
    }
}

/// A sync that failed has dropped what it was to write, and what is read still looks right. The
/// process ends, the next one closes the store, and then the power fails.
#[test]
fn syncs_that_failed_before_the_process_ended_keep_every_row() {
    for seed in 0..80 {
        let sync_error = [0.1, 0.3, 0.6, 1.0][usize::try_from(seed % 4).unwrap()];
        let (disk, _) = close_with(Faults { sync_error, ..Faults::default() }, seed);
        let disk = Arc::new(disk.crash(Crash::Kept));
        Store::open(&shared(&disk), &options()).unwrap().close().unwrap();
        assert_forty_rows(&Arc::new(disk.crash(Crash::Lost)), &format!("seed {seed}"));
    }
}

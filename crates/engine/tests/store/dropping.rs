//! Trees that are dropped: what becomes of their pages, their indexes and those who use them.

use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::disk::{Crash, Disk, Faults, Open, SimulatedDisk};
use tidegate_engine::lock::LockSettings;
use tidegate_engine::wal::LogId;
use tidegate_engine::{
    HeadError, Isolation, KeyExtractor, Store, StoreError, StoreOptions, TreeHandle, TxnError,
    TxnOptions,
};

use super::{LEVELS, Random, at, disk, new_store, options, reopen, scan, shared};

/// Each row is found by its value.
fn by_value() -> KeyExtractor {
    Box::new(|_, value, found_by| found_by(value))
}

fn fill(store: &Store, tree: &TreeHandle, rows: u32) {
    let mut transaction = store.begin(TxnOptions::default());
    for row in 0..rows {
        transaction.put(tree, &row.to_be_bytes(), &[7; 100]).unwrap();
    }
    transaction.commit().unwrap();
}

fn is_dropped<T>(result: &Result<T, TxnError>) -> bool {
    matches!(result, Err(TxnError::Store(StoreError::Dropped { .. })))
}

/// The length of the file of pages.
fn page_bytes(disk: &SimulatedDisk) -> u64 {
    disk.open("data.pages", Open::Existing).unwrap().len().unwrap()
}

#[test]
fn pages_of_dropped_trees_are_used_again() {
    let (disk, store, tree) = new_store(1, &options());
    fill(&store, &tree, 10);
    let mut bytes = 0;
    for round in 0..10 {
        let other = store.create_tree("other").unwrap();
        fill(&store, &other, 3_000);
        store.flush().unwrap();
        assert!(round == 0 || page_bytes(&disk) == bytes, "round {round}");
        bytes = page_bytes(&disk);
        assert!(store.drop_tree("other").unwrap());
        assert!(!store.drop_tree("other").unwrap(), "it is gone");
        assert!(store.tree("other").is_none());
        assert_eq!(store.trees(), ["tree"]);
        assert_eq!(store.check().unwrap().len(), 1);
    }
    assert_eq!(scan(&store, &tree).len(), 10);
}

#[test]
fn a_handle_of_a_dropped_tree_is_of_no_use_and_not_of_the_next_tree() {
    let (disk, store, _) = new_store(1, &options());
    let old = store.create_tree("other").unwrap();
    fill(&store, &old, 100);
    for level in LEVELS {
        let mut reader = store.begin(at(level));
        assert!(store.drop_tree("other").is_ok());
        let new = store.create_tree("other").unwrap();
        fill(&store, &new, 3);
        assert!(is_dropped(&reader.get(&old, b"key")), "{level:?}");
        assert!(is_dropped(&reader.put(&old, b"key", b"")), "{level:?}");
        assert!(is_dropped(&reader.entries(&old).map(drop)), "{level:?}");
        assert!(reader.get(&new, &1_u32.to_be_bytes()).unwrap().is_some());
    }
    assert!(matches!(old.fills(), Err(StoreError::Dropped { .. })));
    assert!(matches!(old.set_split_policy(old.split_policy()), Err(StoreError::Dropped { .. })));
    drop(old);
    store.close().unwrap();
    // Numbers go on where they were, although no tree has the highest any more.
    let store = reopen(&disk);
    assert!(store.drop_tree("other").unwrap());
    assert_eq!(store.check().unwrap().len(), 1);
}

#[test]
fn indexes_go_with_their_tree_or_alone() {
    let (_, store, tree) = new_store(1, &options());
    let index = store.create_index(&tree, "by value", by_value()).unwrap();
    fill(&store, &tree, 500);
    assert!(store.drop_tree("by value").unwrap());
    let found = store.transaction(|transaction| transaction.find(&index, &[7; 100]));
    assert!(is_dropped(&found));
    fill(&store, &tree, 600);
    let index = store.create_index(&tree, "by value", by_value()).unwrap();
    let found = store.transaction(|transaction| transaction.find(&index, &[7; 100]));
    assert_eq!(found.unwrap().len(), 600);
    assert!(store.drop_tree("tree").unwrap());
    assert!(store.trees().is_empty() && store.check().unwrap().is_empty());
    assert!(is_dropped(&store.create_index(&tree, "again", by_value()).map(drop)));
}

#[test]
fn a_tree_in_use_is_waited_for_and_stays_when_that_takes_too_long() {
    let timeout = Some(Duration::from_millis(20));
    let locks = LockSettings { timeout, ..options().locks };
    let (_, store, tree) = new_store(1, &options().locks(locks));
    fill(&store, &tree, 100);
    for isolation in [Isolation::RepeatableRead, Isolation::Serializable] {
        let mut user = store.begin(at(isolation));
        assert!(user.get(&tree, &7_u32.to_be_bytes()).unwrap().is_some());
        let refused = store.drop_tree("tree");
        assert!(matches!(refused, Err(TxnError::Conflict(_))), "{refused:?}");
        user.put(&tree, b"key", b"value").unwrap();
        user.commit().unwrap();
    }
    assert_eq!(scan(&store, &tree).len(), 101);
    assert!(store.drop_tree("tree").unwrap());
}

/// Readers without locks see a tree whole, or that it is gone.
#[test]
fn who_locks_nothing_sees_a_tree_whole_or_not_at_all() {
    for isolation in [Isolation::ReadUncommitted, Isolation::ReadCommitted] {
        let (_, store, tree) = new_store(1, &options());
        fill(&store, &tree, 2_000);
        std::thread::scope(|scope| {
            let (reads, started) = std::sync::mpsc::channel();
            let (store, tree) = (&store, &tree);
            scope.spawn(move || {
                let mut random = Random::new(3);
                loop {
                    let mut reader = store.begin(at(isolation));
                    let key = u32::try_from(random.below(2_000)).unwrap().to_be_bytes();
                    match reader.get(tree, &key) {
                        Ok(value) => assert_eq!(value.unwrap(), [7; 100]),
                        gone => {
                            assert!(is_dropped(&gone));
                            return;
                        }
                    }
                    let _ = reads.send(());
                }
            });
            started.recv().unwrap();
            assert!(store.drop_tree("tree").unwrap());
        });
        store.check().unwrap();
    }
}

/// A store with a tree that stays, and one with an index that is dropped.
fn two_trees(seed: u64) -> (Arc<SimulatedDisk>, Store) {
    let (disk, store, tree) = new_store(seed, &options());
    fill(&store, &tree, 50);
    let other = store.create_tree("other").unwrap();
    store.create_index(&other, "by value", by_value()).unwrap();
    fill(&store, &other, 700);
    (disk, store)
}

/// Wherever the drop is cut off, the tree is there with its index, or both are gone with all pages.
#[test]
fn a_drop_that_is_cut_off_anywhere_is_done_or_not() {
    let dropped = |seed, faults: Faults| {
        let (disk, store) = two_trees(seed);
        disk.set_faults(faults);
        let before = disk.operations();
        // Pages are written between the steps, so that recovery finds some of them.
        let done = store.drop_tree("other").and_then(|_| Ok(store.flush()?));
        (disk.operations() - before, disk, done.is_ok())
    };
    let (operations, ..) = dropped(0, Faults::default());
    let mut outcomes = [0, 0];
    for after in 0..=operations {
        for how in [Crash::Kept, Crash::Lost, Crash::Random] {
            let faults = Faults { crash_after: Some(after), ..Faults::default() };
            let (_, disk, is_done) = dropped(after, faults);
            let disk = Arc::new(disk.crash(how));
            let store = reopen(&disk);
            let names = store.trees();
            assert!(!is_done || names.len() == 1, "stopped after {after}, then {how:?}");
            outcomes[usize::from(names.len() == 1)] += 1;
            if names.len() > 1 {
                assert_eq!(names, ["tree", "other", "by value"]);
                assert_eq!(scan(&store, &store.tree("other").unwrap()).len(), 700);
            }
            assert_eq!(scan(&store, &store.tree("tree").unwrap()).len(), 50);
            store.check().unwrap_or_else(|error| panic!("after {after}, {how:?}: {error}"));
        }
    }
    assert!(outcomes.iter().all(|&count| count > 0), "{outcomes:?}");
}

/// Sets the format version in the file `head`, as the program of that version has written it.
fn set_version(disk: &SimulatedDisk, version: u32) {
    let head = disk.open("head", Open::Existing).unwrap();
    let mut block = vec![0; 4096];
    head.read_at(&mut block, 0).unwrap();
    block[4..8].copy_from_slice(&version.to_le_bytes());
    let checksum = crc32c::crc32c(&block[4..64]);
    block[..4].copy_from_slice(&checksum.to_le_bytes());
    head.write_at(&block, 0).unwrap();
    head.sync().unwrap();
}

/// A store of version 1 is one of today in which nothing that is new was used.
#[test]
fn a_store_of_the_first_version_opens_and_is_one_of_this_version_then() {
    let disk = disk(1);
    drop(Store::create(&shared(&disk), LogId(1), &StoreOptions::default()).unwrap());
    set_version(&disk, 1);
    for _ in 0..2 {
        let store = Store::open(&shared(&disk), &StoreOptions::default()).unwrap();
        store.create_tree("tree").unwrap();
        store.close().unwrap();
        let head = disk.open("head", Open::Existing).unwrap();
        let mut version = [0; 4];
        head.read_at(&mut version, 4).unwrap();
        assert_eq!(u32::from_le_bytes(version), tidegate_engine::FORMAT_VERSION);
    }
    set_version(&disk, tidegate_engine::FORMAT_VERSION + 1);
    let newer = Store::open(&shared(&disk), &StoreOptions::default()).err();
    assert!(matches!(newer, Some(StoreError::Head(HeadError::NewerVersion { .. }))));
}

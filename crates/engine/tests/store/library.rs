//! The store as a library: opened by its path, ranges as iterators, retried transactions.

use std::cell::Cell;
use std::ops::{Bound, RangeBounds};

use tidegate_engine::lock::multi_granularity::{IX, S, X};
use tidegate_engine::wal::LogId;
use tidegate_engine::{
    Direction, HeadError, KeyValue, Lockable, Store, StoreError, StoreOptions, TxnError, TxnOptions,
};

use crate::{LEVELS, Model, Random, at, disk, new_store, options, shared};

#[test]
fn a_store_is_made_once_and_opened_by_its_path() {
    let parent = tempfile::TempDir::new().unwrap();
    let path = parent.path().join("store");
    for value in [None, Some(b"first".to_vec())] {
        let store = Store::open_or_create(&path, &options()).unwrap();
        let tree = store.create_tree("tree").unwrap();
        let old = store.transaction(|transaction| {
            let old = transaction.get(&tree, b"key")?;
            transaction.put(&tree, b"key", b"first")?;
            Ok(old)
        });
        assert_eq!(old.unwrap(), value);
        store.close().unwrap();
    }
    std::fs::write(parent.path().join("file"), b"").unwrap();
    let other = Store::open_or_create(parent.path(), &StoreOptions::default());
    assert!(matches!(other.err(), Some(StoreError::Head(HeadError::Missing))));
}

/// Takes the entries of ranges from both ends, in any order, and compares them with a map.
#[test]
fn ranges_are_what_a_map_has_from_both_ends() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let (_, store, tree) = new_store(seed, &options());
        let mut model = Model::new();
        let mut transaction = store.begin(TxnOptions::default());
        for _ in 0..[0, 3, 400, 3_000][random.index(4)] {
            let (key, value) = (random.bytes_up_to(5), random.bytes_up_to(60));
            transaction.put(&tree, &key, &value).unwrap();
            model.insert(key, value);
        }
        transaction.commit().unwrap();
        let owned = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
        for round in 0..60 {
            let mut transaction = store.begin(at(LEVELS[round % LEVELS.len()]));
            assert_eq!(transaction.first(&tree).unwrap(), model.first_key_value().map(owned));
            assert_eq!(transaction.last(&tree).unwrap(), model.last_key_value().map(owned));
            let (one, other) = (random.bytes_up_to(2), random.bytes_up_to(2));
            let (low, high) = if one < other { (one, other) } else { (other, one) };
            let bounds = (bound(&mut random, &low), bound(&mut random, &high));
            let is_in = |(key, _): &(&Vec<u8>, _)| bounds.contains(*key);
            let expected: Vec<KeyValue> = model.iter().filter(is_in).map(owned).collect();
            let mut range = transaction.range::<Vec<u8>>(&tree, bounds.clone()).unwrap();
            let (mut front, mut back) = (Vec::new(), Vec::new());
            // Only upward, only downward, or in any order.
            let fronts = random.below(3);
            loop {
                let is_front = random.below(2) < fronts;
                let next = if is_front { range.next() } else { range.next_back() };
                match next {
                    Some(entry) if is_front => front.push(entry.unwrap()),
                    Some(entry) => back.push(entry.unwrap()),
                    None => break,
                }
            }
            assert!(range.next().is_none() && range.next_back().is_none());
            front.extend(back.into_iter().rev());
            assert_eq!(front, expected, "seed {seed}: {bounds:?}");

            let prefix = random.bytes_up_to(1);
            let found = transaction.prefix(&tree, &prefix).unwrap().map(|entry| entry.unwrap().0);
            let expected = model.keys().filter(|key| key.starts_with(&prefix)).cloned();
            assert_eq!(found.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
            let is_there = transaction.contains_key(&tree, &low).unwrap();
            assert_eq!(is_there, model.contains_key(&low));
            let len = transaction.get_with(&tree, &low, <[u8]>::len).unwrap();
            assert_eq!(len, model.get(&low).map(Vec::len));
        }
    }
}

fn bound(random: &mut Random, key: &[u8]) -> Bound<Vec<u8>> {
    match random.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(key.to_vec()),
        _ => Bound::Excluded(key.to_vec()),
    }
}

/// What the transaction itself changes ahead of its cursor is seen, and what it changes behind does
/// not disturb it.
#[test]
fn a_cursor_stays_where_it_is_while_its_transaction_writes() {
    let (_, store, tree) = new_store(1, &options());
    let mut transaction = store.begin(TxnOptions::default());
    for key in (0..2_000_u32).step_by(2) {
        transaction.insert(&tree, &key.to_be_bytes(), &[7; 50]).unwrap();
    }
    let all = (Bound::Unbounded, Bound::Unbounded);
    let mut cursor = transaction.cursor(&tree, all, Direction::Up).unwrap();
    let mut seen = Vec::new();
    while let Some((key, _)) = cursor.next(&mut transaction).unwrap() {
        let key = u32::from_be_bytes(key.try_into().unwrap());
        seen.push(key);
        if key % 2 == 0 && key < 2_000 {
            // One behind, one ahead, and the one it stands on is taken out.
            transaction.put(&tree, &(key + 1).to_be_bytes(), &[8; 60]).unwrap();
            transaction.remove(&tree, &key.to_be_bytes()).unwrap();
        }
    }
    assert_eq!(seen, (0..2_000).collect::<Vec<u32>>());
    transaction.commit().unwrap();
    store.check().unwrap();
}

#[test]
fn threads_that_add_to_one_counter_lose_no_addition() {
    let (_, store, tree) = new_store(1, &options());
    let number = |value: Vec<u8>| u64::from_le_bytes(value.try_into().unwrap());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    // Reads without an update lock, so that two of them conflict.
                    store
                        .transaction_with(
                            TxnOptions::default().retries_max(u32::MAX),
                            |transaction| {
                                let old = transaction.get(&tree, b"n")?.map_or(0, number);
                                transaction.put(&tree, b"n", &(old + 1).to_le_bytes())
                            },
                        )
                        .unwrap();
                }
            });
        }
    });
    let sum = store.transaction(|transaction| transaction.get(&tree, b"n")).unwrap();
    assert_eq!(sum.map(number), Some(200));
}

#[test]
fn retries_are_bounded_and_other_errors_are_not_tried_again() {
    let mut options = options();
    options.locks.timeout = Some(std::time::Duration::from_millis(1));
    let (_, store, tree) = new_store(1, &options);
    let mut holder = store.begin(TxnOptions::default());
    holder.put(&tree, b"key", b"").unwrap();
    let runs = Cell::new(0);
    let result = store.transaction_with(TxnOptions::default().retries_max(3), |transaction| {
        runs.set(runs.get() + 1);
        transaction.put(&tree, b"key", b"")
    });
    assert!(matches!(result, Err(TxnError::Conflict(_))));
    assert_eq!(runs.take(), 4);
    holder.commit().unwrap();

    let result = store.transaction(|transaction| {
        runs.set(runs.get() + 1);
        transaction.put(&tree, b"other", b"")?;
        transaction.insert(&tree, b"key", b"")
    });
    assert!(matches!(result, Err(TxnError::KeyExists)));
    assert_eq!(runs.take(), 1);
    let is_there = store.transaction(|transaction| transaction.contains_key(&tree, b"other"));
    assert!(!is_there.unwrap(), "what came before the error is rolled back");
    assert_eq!(store.locks().statistics().held, 0);
}

#[test]
fn cursors_and_savepoints_belong_to_their_transaction() {
    let (_, store, tree) = new_store(1, &options());
    let mut one = store.begin(TxnOptions::default());
    one.put(&tree, b"key", b"").unwrap();
    let savepoint = one.savepoint();
    let mut cursor =
        one.cursor(&tree, (Bound::Unbounded, Bound::Unbounded), Direction::Up).unwrap();
    let mut other = store.begin(TxnOptions::default());
    assert!(matches!(other.roll_back_to(savepoint), Err(TxnError::OtherTransaction)));
    assert!(matches!(cursor.next(&mut other), Err(TxnError::OtherTransaction)));
    assert!(cursor.next(&mut one).unwrap().is_some());
    one.roll_back_to(savepoint).unwrap();
    // The first transaction of another store has the same number.
    let second = Store::create(&shared(&disk(2)), LogId(2), &options()).unwrap();
    let mut stranger = second.begin(TxnOptions::default());
    assert_eq!(stranger.id(), one.id());
    assert!(matches!(stranger.roll_back_to(savepoint), Err(TxnError::OtherTransaction)));
}

#[test]
fn a_tree_is_locked_as_a_whole() {
    let mut options = options();
    options.locks.timeout = Some(std::time::Duration::from_millis(1));
    let store = Store::create(&shared(&disk(1)), LogId(1), &options).unwrap();
    let (tree, free) = (store.create_tree("tree").unwrap(), store.create_tree("free").unwrap());
    let mut owner = store.begin(TxnOptions::default());
    owner.lock_tree(&tree, X).unwrap();
    let locks = owner.lock_count();
    owner.put(&tree, b"key", b"").unwrap();
    assert_eq!(owner.lock_count(), locks, "the lock on the tree covers its keys");
    assert_eq!(owner.held(&Lockable::Store), Some(IX));
    let mut other = store.begin(TxnOptions::default());
    other.put(&free, b"key", b"").unwrap();
    assert!(other.try_lock(&Lockable::Tree(tidegate_engine::TreeId(1_000)), X).unwrap());
    assert!(matches!(other.lock_tree(&tree, S), Err(TxnError::Conflict(_))));
}

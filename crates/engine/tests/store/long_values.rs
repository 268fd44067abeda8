//! Values that are longer than a quarter of a page.

use std::collections::btree_map::Entry;
use std::ops::Bound;
use std::sync::Arc;
use std::thread;

use tidegate_engine::disk::{Crash, Faults};
use tidegate_engine::{Direction, Isolation, Store, TreeHandle, TxnError, TxnOptions};

use super::{Model, Random, at, new_store, options, reopen, scan};

/// Bytes that tell where in a value they are.
fn value(len: usize, seed: u64) -> Vec<u8> {
    Random::new(seed).bytes(len as u64)
}

/// Lengths around those at which something changes, in pages of 4 KiB: an entry has 960 bytes at
/// most, a piece 943.
const LENGTHS: [usize; 12] =
    [0, 900, 956, 957, 958, 943 * 2 - 1, 943 * 2, 943 * 2 + 1, 4_096, 10_000, 70_001, 300_000];

/// Pages in use, by what `check` adds up; the tree is empty.
fn assert_empty(store: &Store, tree: &TreeHandle) {
    assert_eq!(store.check().unwrap()[0].1.entries, 0);
    assert_eq!(tree.fills().unwrap().len(), 1);
}

#[test]
fn values_of_every_length_are_read_whole_and_in_part() {
    let (disk, store, tree) = new_store(1, &options());
    let mut transaction = store.begin(TxnOptions::default());
    for (number, len) in (0_u8..).zip(LENGTHS) {
        transaction.insert(&tree, &[b'k', b'0' + number], &value(len, len as u64)).unwrap();
    }
    transaction.commit().unwrap();
    drop(tree);
    store.check().unwrap();
    store.close().unwrap();
    let store = reopen(&disk);
    let tree = store.tree("tree").unwrap();
    let mut random = Random::new(1);
    for isolation in super::LEVELS {
        let mut transaction = store.begin(at(isolation));
        for (number, len) in (0_u8..).zip(LENGTHS) {
            let (key, expected) = ([b'k', b'0' + number], value(len, len as u64));
            assert_eq!(transaction.get(&tree, &key).unwrap().unwrap(), expected);
            assert_eq!(transaction.value_len(&tree, &key).unwrap(), Some(len as u64));
            assert!(transaction.contains_key(&tree, &key).unwrap());
            for _ in 0..20 {
                let (from, wanted) = (random.index(len + 10), random.index(len + 10));
                let part = transaction.get_range(&tree, &key, from as u64, wanted).unwrap();
                let end = from.saturating_add(wanted).min(len);
                assert_eq!(part.unwrap(), expected[from.min(len)..end.max(from.min(len))]);
            }
        }
        assert_eq!(transaction.get_range(&tree, b"none", 0, 1).unwrap(), None);
        transaction.commit().unwrap();
    }
    let all = (Bound::Unbounded, Bound::Unbounded);
    for direction in [Direction::Up, Direction::Down] {
        let mut transaction = store.begin(TxnOptions::default());
        let mut cursor = transaction.cursor_for_update(&tree, all, direction).unwrap();
        let mut lengths = Vec::new();
        while let Some((_, found)) = cursor.next(&mut transaction).unwrap() {
            assert_eq!(found, value(found.len(), found.len() as u64));
            lengths.push(found.len());
        }
        if direction == Direction::Down {
            lengths.reverse();
        }
        assert_eq!(lengths, LENGTHS);
    }
    let mut transaction = store.begin(TxnOptions::default());
    let found = transaction.get_for_update(&tree, b"k9").unwrap().unwrap();
    assert_eq!(found, value(10_000, 10_000));
}

/// The bytes that a reference begins with are in the source; a client that stores them gets them.
#[test]
fn a_value_that_looks_like_a_reference_is_a_value() {
    let (_, store, tree) = new_store(1, &options());
    let mut sly = vec![
        0xd3, 0x1f, 0x5b, 0x8e, 0xa6, 0x70, 0x42, 0xc9, 0x95, 0x0d, 0xe8, 0x37, 0x6c, 0xb1, 0xf4,
        0x2a,
    ];
    sly.resize(36, 0);
    for round in 0..2 {
        let mut transaction = store.begin(TxnOptions::default());
        transaction.put(&tree, b"sly", &sly).unwrap();
        transaction.put(&tree, b"long", &value(5_000, round)).unwrap();
        transaction.commit().unwrap();
        let expected = [(b"long".to_vec(), value(5_000, round)), (b"sly".to_vec(), sly.clone())];
        assert_eq!(scan(&store, &tree), expected);
        store.check().unwrap();
    }
}

/// What is set, replaced, removed and rolled back in any order leaves no page behind.
#[test]
fn nothing_is_left_of_values_that_are_gone() {
    for seed in 0..8 {
        let mut random = Random::new(seed);
        let (disk, store, tree) = new_store(seed, &options());
        let mut model = Model::new();
        for _ in 0..25 {
            let mut transaction = store.begin(TxnOptions::default());
            let mut changed = model.clone();
            let mut savepoint = (transaction.savepoint(), changed.clone());
            for _ in 0..random.below(8) {
                let key = vec![b'a' + u8::try_from(random.below(6)).unwrap()];
                match random.below(6) {
                    0 => {
                        let was_there = transaction.remove(&tree, &key).unwrap();
                        assert_eq!(was_there, changed.remove(&key).is_some(), "seed {seed}");
                    }
                    1 => savepoint = (transaction.savepoint(), changed.clone()),
                    2 => {
                        transaction.roll_back_to(savepoint.0).unwrap();
                        changed.clone_from(&savepoint.1);
                    }
                    3 => {
                        let refused = transaction.insert(&tree, &key, &value(3_000, 5));
                        if let Entry::Vacant(entry) = changed.entry(key) {
                            refused.unwrap();
                            entry.insert(value(3_000, 5));
                        } else {
                            assert!(matches!(refused, Err(TxnError::KeyExists)));
                        }
                    }
                    _ => {
                        let bytes = value([10, 2_000, 9_000][random.index(3)], random.draw());
                        transaction.put(&tree, &key, &bytes).unwrap();
                        changed.insert(key, bytes);
                    }
                }
            }
            store.check().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            if random.below(3) == 0 {
                transaction.roll_back().unwrap();
            } else {
                transaction.commit().unwrap();
                model = changed;
            }
            store.check().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert!(scan(&store, &tree).into_iter().eq(model.clone()), "seed {seed}");
        }
        let mut transaction = store.begin(TxnOptions::default());
        for key in model.keys() {
            assert!(transaction.remove(&tree, key).unwrap());
        }
        transaction.commit().unwrap();
        assert_empty(&store, &tree);
        assert!(store.drop_tree("tree").unwrap());
        assert!(store.check().unwrap().is_empty());
        store.close().unwrap();
        reopen(&disk).check().unwrap();
    }
}

/// Wherever it stops: what was committed is there, and no piece belongs to no value.
#[test]
fn changes_of_long_values_that_are_cut_off_anywhere_leave_nothing_behind() {
    let life = |seed, faults: Faults| {
        let (disk, store, tree) = new_store(seed, &options());
        let mut transaction = store.begin(TxnOptions::default());
        transaction.put(&tree, b"old", &value(20_000, 1)).unwrap();
        transaction.put(&tree, b"both", &value(20_000, 2)).unwrap();
        transaction.commit().unwrap();
        let before = disk.operations();
        disk.set_faults(faults);
        let run = || {
            let mut transaction = store.begin(TxnOptions::default());
            transaction.remove(&tree, b"old")?;
            transaction.put(&tree, b"both", &value(15_000, 3))?;
            transaction.put(&tree, b"new", &value(20_000, 4))?;
            store.flush()?;
            transaction.commit()?;
            Ok::<(), TxnError>(store.flush()?)
        };
        let is_done = run().is_ok();
        (disk.operations() - before, disk, is_done)
    };
    let (operations, ..) = life(0, Faults::default());
    let mut outcomes = [0, 0];
    for after in 0..=operations {
        for how in [Crash::Kept, Crash::Lost, Crash::Random] {
            let faults = Faults { crash_after: Some(after), ..Faults::default() };
            let (_, disk, is_done) = life(after, faults);
            let store = reopen(&Arc::new(disk.crash(how)));
            store.check().unwrap_or_else(|error| panic!("after {after}, {how:?}: {error}"));
            let found = scan(&store, &store.tree("tree").unwrap());
            let entry = |key: &[u8], len, seed| (key.to_vec(), value(len, seed));
            let is_new = found.len() == 2 && found[1].0 == b"new";
            let expected = if is_new {
                [entry(b"both", 15_000, 3), entry(b"new", 20_000, 4)]
            } else {
                [entry(b"both", 20_000, 2), entry(b"old", 20_000, 1)]
            };
            assert!(found == expected, "after {after}, {how:?}");
            assert!(is_new || !is_done, "after {after}, {how:?}");
            outcomes[usize::from(is_new)] += 1;
        }
    }
    assert!(outcomes.iter().all(|&count| count > 0), "{outcomes:?}");
}

#[test]
fn a_bulk_load_takes_long_values_and_leaves_its_first_part_when_cut_off() {
    let rows = || {
        (0..400_u32).map(|row| {
            let len = if row % 7 == 0 { 3_000 } else { 50 };
            (row.to_be_bytes().to_vec(), value(len, row.into()))
        })
    };
    let (_, store, tree) = new_store(1, &options());
    assert_eq!(store.bulk_load(&tree, 100, rows()).unwrap(), 400);
    store.check().unwrap();
    assert!(scan(&store, &tree).into_iter().eq(rows()));
    for seed in 0..40 {
        let (disk, store, tree) = new_store(seed, &options());
        let crash_after = Some(1 + Random::new(seed).below(60));
        disk.set_faults(Faults { crash_after, ..Faults::default() });
        let is_loaded = store.bulk_load(&tree, 90, rows()).is_ok();
        drop((tree, store));
        let store = reopen(&Arc::new(disk.crash(Crash::Random)));
        store.check().unwrap();
        let found = scan(&store, &store.tree("tree").unwrap());
        assert!(!is_loaded || found.len() == 400, "seed {seed}");
        let len = found.len();
        assert!(found.into_iter().eq(rows().take(len)), "seed {seed}");
    }
}

/// Readers without locks never see half of a value, and one that was there all the time is found.
#[test]
fn readers_without_locks_see_values_whole() {
    for isolation in [Isolation::ReadUncommitted, Isolation::ReadCommitted] {
        let (_, store, tree) = new_store(1, &options());
        let put = |round: u64| {
            let mut transaction = store.begin(TxnOptions::default());
            transaction.put(&tree, b"key", &vec![round.to_le_bytes()[0]; 9_000]).unwrap();
            transaction.commit().unwrap();
        };
        put(0);
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                for _ in 0..300 {
                    let mut transaction = store.begin(at(isolation));
                    let found = transaction.get(&tree, b"key").unwrap().unwrap();
                    assert!(found == vec![found[0]; 9_000]);
                    let mut range = transaction.entries(&tree).unwrap();
                    let (_, found) = range.next().unwrap().unwrap();
                    assert!(found == vec![found[0]; 9_000]);
                }
            });
            let mut round = 0;
            while !reader.is_finished() {
                round += 1;
                put(round);
            }
        });
        store.check().unwrap();
    }
}

/// Sixty-four megabytes, in pages of the default size.
#[test]
#[ignore = "soak: writes a value of 64 MiB"]
fn a_value_of_64_mib_is_set_read_in_part_and_removed() {
    let options = tidegate_engine::StoreOptions::default();
    let (_, store, tree) = new_store(1, &options);
    let long = value(64 << 20, 1);
    store.transaction(|transaction| transaction.put(&tree, b"long", &long)).unwrap();
    let part = store
        .transaction(|transaction| transaction.get_range(&tree, b"long", 40 << 20, 99_999))
        .unwrap();
    assert!(part.unwrap() == long[40 << 20..(40 << 20) + 99_999]);
    store.transaction(|transaction| transaction.remove(&tree, b"long")).unwrap();
    assert_empty(&store, &tree);
}

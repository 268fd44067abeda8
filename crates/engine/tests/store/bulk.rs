//! Bulk load, and locks that many locks become.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::disk::{Crash, Disk, Faults, SimulatedDisk};
use tidegate_engine::lock::LockSettings;
use tidegate_engine::{Isolation, TxnError, TxnOptions};

use super::{Random, at, new_store, options, reopen, scan};

fn rows(count: u32) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    let mut random = Random::new(7);
    (0..count).map(move |key| (key.to_be_bytes().to_vec(), random.bytes_up_to(80)))
}

#[test]
fn leaves_are_as_full_as_was_asked_for() {
    for (percent, low, high) in [(50, 0.46, 0.51), (80, 0.76, 0.81), (100, 0.97, 1.0)] {
        let (_, store, tree) = new_store(1, &options());
        assert_eq!(store.bulk_load(&tree, percent, rows(20_000)).unwrap(), 20_000);
        let fills = tree.fills().unwrap();
        let mean = fills.iter().map(|leaf| leaf.fill).sum::<f64>() / fills.len() as f64;
        assert!((low..=high).contains(&mean), "{percent}: {mean}");
        store.check().unwrap();
        assert_eq!(scan(&store, &tree), rows(20_000).collect::<Vec<_>>());
    }
}

#[test]
fn a_load_goes_on_behind_what_is_there_and_only_there() {
    let (_, store, tree) = new_store(1, &options());
    store.bulk_load(&tree, 100, rows(500)).unwrap();
    store.bulk_load(&tree, 100, rows(2_000).skip(500)).unwrap();
    assert_eq!(scan(&store, &tree), rows(2_000).collect::<Vec<_>>());
    for unsorted in [vec![b"\0\0\0\0".to_vec()], vec![b"z".to_vec(), b"z".to_vec()]] {
        let entries = unsorted.into_iter().map(|key| (key, b""));
        let refused = store.bulk_load(&tree, 100, entries);
        assert!(matches!(refused, Err(TxnError::NotAscending { .. })));
    }
    let long = store.bulk_load(&tree, 100, [(vec![255; 10_000], b"")]);
    assert!(matches!(long, Err(TxnError::TooLong { .. })));
}

#[test]
fn a_load_that_is_cut_off_leaves_its_first_part() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let (first, store, tree) = new_store(seed, &options());
        let crash_after = Some(1 + random.below(120));
        first.set_faults(Faults { crash_after, ..Faults::default() });
        let loaded = store.bulk_load(&tree, 90, rows(5_000)).is_ok();
        drop((tree, store));
        let crashed = Arc::new(first.crash(Crash::Random));
        let store = reopen(&crashed);
        store.check().unwrap();
        let found = scan(&store, &store.tree("tree").unwrap());
        let expected: Vec<_> = rows(5_000).take(found.len()).collect();
        assert_eq!(found, expected, "seed {seed}");
        assert!(!loaded || found.len() == 5_000, "seed {seed}");
    }
}

fn shuffled(random: &mut Random, count: u32) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut entries: Vec<_> = rows(count).collect();
    for at in (1..entries.len()).rev() {
        entries.swap(at, random.index(at + 1));
    }
    entries
}

fn has_temporary_files(disk: &SimulatedDisk) -> bool {
    disk.list().unwrap().iter().any(|name| name.starts_with("temporary-"))
}

/// In memory, in one merge, and in merges of merged runs.
#[test]
fn entries_in_any_order_are_loaded_in_order_and_once() {
    for count in [0, 1, 1_000, 5_000, 60_000] {
        let (disk, store, tree) = new_store(1, &options());
        let mut entries = shuffled(&mut Random::new(u64::from(count)), count);
        entries.extend_from_within(..entries.len() / 3);
        let loaded = store.bulk_load_unsorted(&tree, 90, 0, entries).unwrap();
        assert_eq!(loaded, u64::from(count));
        assert_eq!(scan(&store, &tree), rows(count).collect::<Vec<_>>(), "{count}");
        store.check().unwrap();
        assert!(!has_temporary_files(&disk));
    }
}

/// Keys that begin alike, are short, or continue others with zeros, in runs and in memory.
#[test]
fn keys_that_are_hard_to_tell_apart_are_loaded_in_order() {
    for (seed, count) in [(1, 400), (2, 9_000)] {
        let (_, store, tree) = new_store(seed, &options());
        let mut random = Random::new(seed);
        let mut sorter = store.sorter(0);
        let mut expected = BTreeMap::new();
        for _ in 0..count {
            let length = 1 + random.index(14);
            let key: Vec<u8> = (0..length).map(|_| [0, 0, 0, 1, 255][random.index(5)]).collect();
            sorter.push(&key, &key[..length / 2]).unwrap();
            expected.insert(key.clone(), key[..length / 2].to_vec());
        }
        store.bulk_load_sorted_by(&tree, 90, sorter).unwrap();
        let mut transaction = store.begin(TxnOptions::default());
        let loaded: Result<Vec<_>, _> = transaction.entries(&tree).unwrap().collect();
        assert!(loaded.unwrap().into_iter().eq(expected), "seed {seed}");
    }
}

#[test]
fn what_cannot_be_loaded_from_a_sorter_is_said() {
    let (_, store, tree) = new_store(1, &options());
    let two = store.bulk_load_unsorted(&tree, 90, 0, [("a", "1"), ("b", ""), ("a", "2")]);
    assert!(matches!(two, Err(TxnError::KeyExists)), "{two:?}");
    store.bulk_load_unsorted(&tree, 90, 0, [("d", ""), ("c", "")]).unwrap();
    let below = store.bulk_load_unsorted(&tree, 90, 0, [("e", ""), ("b", "")]);
    assert!(matches!(below, Err(TxnError::NotAscending { loaded: 0 })), "{below:?}");
    for percent in [0, 49, 101] {
        let refused = store.bulk_load(&tree, percent, [("x", "")]);
        assert!(matches!(refused, Err(TxnError::FillPercent { .. })), "{refused:?}");
    }
    let mut sorter = store.sorter(0);
    let long = vec![0; store.page_size().key_max() + 1];
    assert!(matches!(sorter.push(&long, b""), Err(TxnError::TooLong { .. })));
    let (_, other, its_tree) = new_store(2, &options());
    let strange = other.bulk_load_sorted_by(&its_tree, 90, sorter);
    assert!(matches!(strange, Err(TxnError::OtherStore)), "{strange:?}");
}

/// Wherever the load is cut off, the tree has a first part, and no temporary file is left.
#[test]
fn an_unsorted_load_that_is_cut_off_leaves_its_first_part_and_no_files() {
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let entries = shuffled(&mut random, 12_000);
        let (first, store, tree) = new_store(seed, &options());
        let crash_after = Some(random.below(400));
        first.set_faults(Faults { crash_after, ..Faults::default() });
        let loaded = store.bulk_load_unsorted(&tree, 90, 0, entries).is_ok();
        drop((tree, store));
        let how = [Crash::Kept, Crash::Lost, Crash::Random, Crash::Weak][random.index(4)];
        let crashed = Arc::new(first.crash(how));
        let store = reopen(&crashed);
        assert!(!has_temporary_files(&crashed), "seed {seed}, {how:?}");
        store.check().unwrap();
        let found = scan(&store, &store.tree("tree").unwrap());
        let expected: Vec<_> = rows(12_000).take(found.len()).collect();
        assert_eq!(found, expected, "seed {seed}, {how:?}");
        assert!(!loaded || found.len() == 12_000, "seed {seed}, {how:?}");
    }
}

#[test]
fn many_locks_on_keys_become_one_on_the_tree_unless_others_are_there() {
    let options = options().escalate_at(Some(100));
    let (_, store, tree) = new_store(1, &options);
    let mut alone = store.begin(TxnOptions::default());
    for (key, value) in rows(1_000) {
        alone.insert(&tree, &key, &value).unwrap();
    }
    // The store, the tree, and what was locked before it escalated.
    assert!(alone.lock_count() < 103, "{}", alone.lock_count());
    assert_eq!(store.locks().statistics().escalations, 1);
    alone.commit().unwrap();

    let mut reader = store.begin(TxnOptions::default());
    reader.get(&tree, &5_u32.to_be_bytes()).unwrap();
    let mut writer = store.begin(TxnOptions::default());
    for key in 100..400_u32 {
        writer.put(&tree, &key.to_be_bytes(), b"new").unwrap();
    }
    assert_eq!(store.locks().statistics().escalations, 1);
    assert!(writer.lock_count() >= 300);
    drop(reader);
    for key in 400..600_u32 {
        writer.put(&tree, &key.to_be_bytes(), b"new").unwrap();
    }
    assert_eq!(store.locks().statistics().escalations, 2);
    writer.roll_back().unwrap();
    assert_eq!(scan(&store, &tree), rows(1_000).collect::<Vec<_>>());
    assert_eq!(store.locks().statistics().held, 0);
}

#[test]
fn the_detector_breaks_deadlocks_where_nobody_else_does() {
    let locks = LockSettings { check_on_block: false, timeout: None, ..LockSettings::default() };
    let detect_every = Some(Duration::from_millis(5));
    let options = options().locks(locks).detect_every(detect_every);
    let (_, store, tree) = new_store(1, &options);
    let barrier = std::sync::Barrier::new(2);
    let run = |first: &[u8], second: &[u8]| {
        let mut transaction = store.begin(TxnOptions::default());
        transaction.put(&tree, first, b"").unwrap();
        barrier.wait();
        transaction.put(&tree, second, b"").and_then(|()| transaction.commit())
    };
    let (one, other) = std::thread::scope(|scope| {
        let other = scope.spawn(|| run(b"b", b"a"));
        (run(b"a", b"b"), other.join().unwrap())
    });
    let failed: Vec<TxnError> = [one, other].into_iter().filter_map(Result::err).collect();
    assert!(matches!(failed.as_slice(), [error] if error.is_retryable()), "{failed:?}");
    assert_eq!(store.locks().statistics().deadlocks, 1);
}

/// Read committed needs no locks where all of a page is committed, and waits where it is not.
#[test]
fn what_is_committed_is_read_without_locks() {
    let locks = LockSettings { timeout: Some(Duration::ZERO), ..LockSettings::default() };
    let (_, store, tree) = new_store(1, &options().locks(locks));
    store.bulk_load(&tree, 100, rows(2_000)).unwrap();
    let committed = at(Isolation::ReadCommitted);
    let mut reader = store.begin(committed);
    let key = |key: u32| key.to_be_bytes();
    assert_eq!(reader.get(&tree, &key(700)).unwrap(), rows(701).last().map(|(_, value)| value));
    assert_eq!(reader.lock_count(), 0);

    let mut writer = store.begin(TxnOptions::default());
    writer.put(&tree, &key(700), b"not committed").unwrap();
    // Far away nothing has changed; near by the row itself has to be locked, and is not to be had.
    assert!(reader.get(&tree, &key(1_900)).unwrap().is_some());
    let near = reader.get(&tree, &key(701)).unwrap();
    assert_eq!(near, rows(702).last().map(|(_, value)| value));
    assert!(matches!(reader.get(&tree, &key(700)), Err(TxnError::Conflict(_))));
    drop(reader);
    writer.commit().unwrap();
    let mut reader = store.begin(committed);
    assert_eq!(reader.get(&tree, &key(700)).unwrap().unwrap(), b"not committed");
    let range = reader.range(&tree, key(600)..key(800)).unwrap();
    assert_eq!(range.map(Result::unwrap).count(), 200);
}

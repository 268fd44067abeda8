//! What transactions see of each other, with threads.

use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use tidegate_engine::wal::LogId;
use tidegate_engine::{Direction, Isolation, Store, Transaction, TreeHandle, TxnError, TxnOptions};

use super::{Random, disk, options, shared};

fn store() -> (Arc<Store>, TreeHandle) {
    let disk = disk(1);
    let store = Store::create(&shared(&disk), LogId(1), &options()).unwrap();
    let tree = store.create_tree("tree").unwrap();
    (Arc::new(store), tree)
}

fn with(isolation: Isolation) -> TxnOptions {
    TxnOptions::default().isolation(isolation)
}

fn number(value: Option<Vec<u8>>) -> i64 {
    value.map_or(0, |value| i64::from_le_bytes(value.try_into().unwrap()))
}

/// Runs a transaction until there is no conflict.
fn retry(store: &Store, mut run: impl FnMut(&mut Transaction) -> Result<(), TxnError>) -> u32 {
    for attempt in 0.. {
        let mut transaction = store.begin(TxnOptions::default());
        match run(&mut transaction).and_then(|()| transaction.commit()) {
            Ok(()) => return attempt,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
    0
}

/// Money is moved between accounts by four threads, and a fifth adds it all up meanwhile.
#[test]
fn no_money_comes_or_goes() {
    const ACCOUNTS: u64 = 20;
    let (store, tree) = store();
    retry(&store, |transaction| {
        (0..ACCOUNTS).try_for_each(|account| {
            transaction.put(&tree, &account.to_be_bytes(), &100_i64.to_le_bytes())
        })
    });
    let is_over = Arc::new(AtomicBool::new(false));
    let movers: Vec<_> = (0..4)
        .map(|seed| {
            let (store, tree) = (Arc::clone(&store), tree.clone());
            thread::spawn(move || {
                let mut random = Random::new(seed);
                for _ in 0..300 {
                    let (from, to) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
                    retry(&store, |transaction| {
                        for (account, change) in [(from, -1), (to, 1)] {
                            let key = account.to_be_bytes();
                            let balance = number(transaction.get(&tree, &key)?) + change;
                            transaction.put(&tree, &key, &balance.to_le_bytes())?;
                        }
                        Ok(())
                    });
                }
            })
        })
        .collect();
    let auditor = {
        let (store, tree, is_over) = (Arc::clone(&store), tree.clone(), Arc::clone(&is_over));
        thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                retry(&store, |transaction| {
                    let all = (Bound::Unbounded, Bound::Unbounded);
                    let mut cursor = transaction.cursor(&tree, all, Direction::Up)?;
                    let mut sum = 0;
                    while let Some((_, value)) = cursor.next(transaction)? {
                        sum += number(Some(value.to_vec()));
                    }
                    assert_eq!(sum, i64::try_from(ACCOUNTS * 100).unwrap());
                    Ok(())
                });
            }
        })
    };
    for mover in movers {
        mover.join().unwrap();
    }
    is_over.store(true, Ordering::Relaxed);
    auditor.join().unwrap();
    store.check().unwrap();
    assert_eq!(store.locks().statistics().held, 0, "all locks are given back");
}

/// Runs `first`, then `second` in another thread, which must not be done before the first
/// transaction is.
fn waits(
    store: &Arc<Store>,
    tree: &TreeHandle,
    first: impl FnOnce(&mut Transaction, &TreeHandle),
    second: impl FnOnce(&mut Transaction, &TreeHandle) + Send + 'static,
) -> bool {
    let mut transaction = store.begin(TxnOptions::default());
    first(&mut transaction, tree);
    let is_done = Arc::new(AtomicBool::new(false));
    let barrier = Arc::new(Barrier::new(2));
    let other = {
        let (store, tree) = (Arc::clone(store), tree.clone());
        let (is_done, barrier) = (Arc::clone(&is_done), Arc::clone(&barrier));
        thread::spawn(move || {
            let mut transaction = store.begin(TxnOptions::default());
            barrier.wait();
            second(&mut transaction, &tree);
            is_done.store(true, Ordering::SeqCst);
            transaction.commit().unwrap();
        })
    };
    barrier.wait();
    // Done, or seen to wait for a lock.
    let waited = loop {
        if is_done.load(Ordering::SeqCst) {
            break false;
        }
        if store.locks().statistics().waiting > 0 {
            break true;
        }
        thread::sleep(Duration::from_millis(1));
    };
    transaction.commit().unwrap();
    other.join().unwrap();
    waited
}

fn filled() -> (Arc<Store>, TreeHandle) {
    let (store, tree) = store();
    retry(&store, |transaction| {
        [10_u8, 20, 30].iter().try_for_each(|&key| transaction.insert(&tree, &[key], b"v"))
    });
    (store, tree)
}

fn scan(transaction: &mut Transaction, tree: &TreeHandle, low: u8, high: u8, way: Direction) {
    let range = ([low], [high]);
    let range = (Bound::Included(&range.0[..]), Bound::Included(&range.1[..]));
    let mut cursor = transaction.cursor(tree, range, way).unwrap();
    while cursor.next(transaction).unwrap().is_some() {}
}

#[test]
fn no_phantom_comes_into_a_range_that_was_read() {
    for way in [Direction::Up, Direction::Down] {
        for (key, expected) in [(5, false), (12, true), (15, true), (25, true), (35, false)] {
            let (store, tree) = filled();
            // 12 to 25 holds 20; the gaps that are locked go from 10 to 30.
            let waited = waits(
                &store,
                &tree,
                |transaction, tree| scan(transaction, tree, 12, 25, way),
                move |transaction, tree| transaction.insert(tree, &[key], b"v").unwrap(),
            );
            assert_eq!(waited, expected, "{key}, {way:?}");
        }
    }
}

#[test]
fn what_is_not_there_stays_away() {
    let (store, tree) = filled();
    let read = |transaction: &mut Transaction, tree: &TreeHandle| {
        assert_eq!(transaction.get(tree, &[15]).unwrap(), None);
    };
    let insert = |transaction: &mut Transaction, tree: &TreeHandle| {
        transaction.insert(tree, &[15], b"v").unwrap();
    };
    assert!(waits(&store, &tree, read, insert));
}

#[test]
fn a_removed_key_is_not_seen_to_be_gone_before_it_is() {
    let (store, tree) = filled();
    let remove = |transaction: &mut Transaction, tree: &TreeHandle| {
        assert!(transaction.remove(tree, &[20]).unwrap());
    };
    let read = |transaction: &mut Transaction, tree: &TreeHandle| {
        scan(transaction, tree, 15, 25, Direction::Up);
    };
    assert!(waits(&store, &tree, remove, read));
}

/// Who waits to insert into a gap gets it before those that ask to read it meanwhile. Else many
/// that read a gap and then insert into it would be in each other's way for ever.
#[test]
fn readers_do_not_overtake_an_insert_that_waits_for_its_gap() {
    let (store, tree) = filled();
    let mut reader = store.begin(TxnOptions::default());
    let until_they_wait = |count: u64| {
        // Longer than a request waits.
        let seen = (0..60_000).any(|_| {
            thread::sleep(Duration::from_millis(1));
            store.locks().statistics().waiting == count
        });
        assert!(seen, "{count} should wait");
    };
    scan(&mut reader, &tree, 12, 18, Direction::Up);
    thread::scope(|scope| {
        let inserting = scope.spawn(|| {
            let mut transaction = store.begin(TxnOptions::default());
            scan(&mut transaction, &tree, 12, 18, Direction::Up);
            transaction.insert(&tree, &[15], b"v")?;
            transaction.commit()
        });
        until_they_wait(1);
        let late = scope.spawn(|| {
            let mut transaction = store.begin(TxnOptions::default());
            let found = transaction.get(&tree, &[16]).unwrap();
            // Until the insert is committed nobody gets here.
            (transaction, found, store.locks().statistics().waiting)
        });
        until_they_wait(2);
        reader.roll_back().unwrap();
        inserting.join().unwrap().unwrap();
        let (transaction, found, still_waiting) = late.join().unwrap();
        assert_eq!((found, still_waiting), (None, 0));
        transaction.roll_back().unwrap();
    });
}

#[test]
fn two_may_insert_into_one_gap() {
    let (store, tree) = filled();
    let insert = |key: u8| {
        move |transaction: &mut Transaction, tree: &TreeHandle| {
            transaction.insert(tree, &[key], b"v").unwrap();
        }
    };
    assert!(!waits(&store, &tree, insert(15), insert(16)));
    let (store, tree) = filled();
    assert!(!waits(&store, &tree, insert(16), insert(15)));
}

/// A gap that was read and is divided by the reader's own insert stays read on both sides.
#[test]
fn an_own_insert_does_not_open_the_gap_it_falls_into() {
    for key in [14, 16] {
        let (store, tree) = filled();
        let read_and_insert = |transaction: &mut Transaction, tree: &TreeHandle| {
            scan(transaction, tree, 12, 18, Direction::Up);
            transaction.insert(tree, &[15], b"v").unwrap();
        };
        let insert = move |transaction: &mut Transaction, tree: &TreeHandle| {
            transaction.insert(tree, &[key], b"v").unwrap();
        };
        assert!(waits(&store, &tree, read_and_insert, insert), "{key}");
    }
}

/// Whoever appends keeps the last gap from the second key on, until it locks anything else.
#[test]
fn the_last_gap_is_kept_while_keys_are_appended() {
    let append = |keys: std::ops::Range<u8>, and_reads: bool| {
        move |transaction: &mut Transaction, tree: &TreeHandle| {
            for key in keys {
                transaction.insert(tree, &[key], b"v").unwrap();
            }
            if and_reads {
                assert!(transaction.get(tree, &[10]).unwrap().is_some());
            }
        }
    };
    let look = |transaction: &mut Transaction, tree: &TreeHandle| {
        assert!(transaction.get(tree, &[200]).unwrap().is_none());
    };
    for (keys, and_reads, waited) in [
        (40..41, false, false),
        (40..42, false, true),
        (40..60, false, true),
        (40..60, true, false),
    ] {
        let (store, tree) = filled();
        let case = format!("{keys:?} {and_reads}");
        assert_eq!(waits(&store, &tree, append(keys.clone(), and_reads), look), waited, "{case}");
        // Another may append beside it.
        let more = append(100..120, false);
        assert!(!waits(&store, &tree, append(60..80, false), more), "{case}");
        assert_eq!(store.locks().statistics().held, 0, "{case}");
    }
}

/// A last gap that was read stays read while its reader appends to it, and when it is done.
#[test]
fn appending_does_not_open_the_last_gap() {
    for and_reads in [false, true] {
        for key in [35, 200] {
            let (store, tree) = filled();
            let read_and_append = move |transaction: &mut Transaction, tree: &TreeHandle| {
                assert!(transaction.get(tree, &[100]).unwrap().is_none());
                for key in 40..60 {
                    transaction.insert(tree, &[key], b"v").unwrap();
                }
                if and_reads {
                    assert!(transaction.get(tree, &[10]).unwrap().is_some());
                }
            };
            let insert = move |transaction: &mut Transaction, tree: &TreeHandle| {
                transaction.insert(tree, &[key], b"v").unwrap();
            };
            assert!(waits(&store, &tree, read_and_append, insert), "{key} {and_reads}");
        }
    }
}

/// The anomalies that each level below serializable permits, and those it does not.
#[test]
fn each_level_permits_what_it_says() {
    let read = |transaction: &mut Transaction, tree: &TreeHandle, key: u8| {
        transaction.get(tree, &[key]).unwrap()
    };
    // A dirty read.
    let (store, tree) = filled();
    let mut writer = store.begin(TxnOptions::default());
    writer.put(&tree, &[10], b"dirty").unwrap();
    let mut reader = store.begin(with(Isolation::ReadUncommitted));
    assert_eq!(read(&mut reader, &tree, 10), Some(b"dirty".to_vec()));
    writer.roll_back().unwrap();
    assert_eq!(read(&mut reader, &tree, 10), Some(b"v".to_vec()));

    // A read that is not repeatable.
    let mut reader = store.begin(with(Isolation::ReadCommitted));
    assert_eq!(read(&mut reader, &tree, 10), Some(b"v".to_vec()));
    retry(&store, |transaction| transaction.put(&tree, &[10], b"new"));
    assert_eq!(read(&mut reader, &tree, 10), Some(b"new".to_vec()));

    // A phantom.
    let mut reader = store.begin(with(Isolation::RepeatableRead));
    assert_eq!(read(&mut reader, &tree, 15), None);
    retry(&store, |transaction| transaction.insert(&tree, &[16], b"phantom"));
    let all = (Bound::Included(&[15_u8][..]), Bound::Excluded(&[20_u8][..]));
    let mut cursor = reader.cursor(&tree, all, Direction::Up).unwrap();
    assert!(cursor.next(&mut reader).unwrap().is_some());
}

/// Two that each read what the other writes: one of them has to be rolled back.
#[test]
fn write_skew_ends_in_a_deadlock_and_a_retry() {
    let (store, tree) = filled();
    let barrier = Arc::new(Barrier::new(2));
    let threads: Vec<_> = [(10_u8, 20_u8), (20, 10)]
        .into_iter()
        .map(|(reads, writes)| {
            let (store, tree, barrier) = (Arc::clone(&store), tree.clone(), Arc::clone(&barrier));
            thread::spawn(move || {
                let mut is_first = true;
                retry(&store, |transaction| {
                    let value = transaction.get(&tree, &[reads])?.unwrap_or_default();
                    if std::mem::take(&mut is_first) {
                        barrier.wait();
                    }
                    transaction.put(&tree, &[writes], &[&value[..], b"+"].concat())
                })
            })
        })
        .collect();
    let retries: u32 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert!(retries > 0, "both read before either wrote, so one had to be rolled back");
    let mut transaction = store.begin(TxnOptions::default());
    let [ten, twenty] = [10, 20].map(|key| transaction.get(&tree, &[key]).unwrap().unwrap().len());
    assert_eq!(ten + twenty, 5, "one of them saw what the other wrote");
}

//! What transactions see of each other, with threads; `tests/history` has each anomaly by name.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tidegate_engine::{Store, Transaction, TreeHandle, TxnError, TxnOptions};

use super::{Random, new_store, options};

/// Runs a transaction until there is no conflict.
fn retry(store: &Store, run: impl FnMut(&mut Transaction) -> Result<(), TxnError>) {
    store.transaction_with(TxnOptions::default().retries_max(u32::MAX), run).unwrap();
}

/// Money is moved between accounts by four threads, and a fifth adds it all up meanwhile.
#[test]
fn no_money_comes_or_goes() {
    const ACCOUNTS: u64 = 20;
    let number = |value: Vec<u8>| i64::from_le_bytes(value.try_into().unwrap());
    let (_, store, tree) = new_store(1, &options());
    retry(&store, |transaction| {
        (0..ACCOUNTS).try_for_each(|account| {
            transaction.put(&tree, &account.to_be_bytes(), &100_i64.to_le_bytes())
        })
    });
    let is_over = AtomicBool::new(false);
    let move_money = |seed: u64| {
        let mut random = Random::new(seed);
        for _ in 0..300 {
            let (from, to) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
            retry(&store, |transaction| {
                for (account, change) in [(from, -1), (to, 1)] {
                    let key = account.to_be_bytes();
                    let balance = transaction.get(&tree, &key)?.map_or(0, number) + change;
                    transaction.put(&tree, &key, &balance.to_le_bytes())?;
                }
                Ok(())
            });
        }
    };
    thread::scope(|scope| {
        let move_money = &move_money;
        let movers: Vec<_> = (0..4).map(|seed| scope.spawn(move || move_money(seed))).collect();
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                retry(&store, |transaction| {
                    let values = transaction.entries(&tree)?.map(|entry| Ok(number(entry?.1)));
                    let sum = values.sum::<Result<i64, TxnError>>()?;
                    assert_eq!(sum, i64::try_from(ACCOUNTS * 100).unwrap());
                    Ok(())
                });
            }
        });
        let moved: Vec<_> = movers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(moved.iter().all(Result::is_ok));
    });
    store.check().unwrap();
    assert_eq!(store.locks().statistics().held, 0, "all locks are given back");
}

type Run<'r> = &'r (dyn Fn(&mut Transaction) + Sync);

/// Runs `first`, then `second` in another thread. Returns whether that waits until the first
/// transaction is done.
fn waits(store: &Store, first: Run<'_>, second: Run<'_>) -> bool {
    let mut transaction = store.begin(TxnOptions::default());
    first(&mut transaction);
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut transaction = store.begin(TxnOptions::default());
            second(&mut transaction);
            is_done.store(true, Ordering::SeqCst);
            transaction.commit().unwrap();
        });
        // Done, or seen to wait for a lock.
        while !is_done.load(Ordering::SeqCst) && store.locks().statistics().waiting == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        let waited = !is_done.load(Ordering::SeqCst);
        transaction.commit().unwrap();
        waited
    })
}

/// A store with three rows.
fn filled() -> (Store, TreeHandle) {
    let (_, store, tree) = new_store(1, &options());
    retry(&store, |transaction| {
        [10, 20, 30].iter().try_for_each(|&key| transaction.insert(&tree, &[key], b"v"))
    });
    (store, tree)
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
    let gap = [12]..=[18];
    assert_eq!(reader.range(&tree, gap.clone()).unwrap().count(), 0);
    thread::scope(|scope| {
        let inserting = scope.spawn(|| {
            let mut transaction = store.begin(TxnOptions::default());
            assert_eq!(transaction.range(&tree, gap)?.count(), 0);
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

/// Whoever appends keeps the last gap from the second key on, until it locks anything else.
#[test]
fn the_last_gap_is_kept_while_keys_are_appended() {
    for (keys, and_reads, waited) in [
        (40..41, false, false),
        (40..42, false, true),
        (40..60, false, true),
        (40..60, true, false),
    ] {
        let (store, tree) = filled();
        let case = format!("{keys:?} {and_reads}");
        let append = |transaction: &mut Transaction, keys: std::ops::Range<u8>, and_reads: bool| {
            for key in keys {
                transaction.insert(&tree, &[key], b"v").unwrap();
            }
            if and_reads {
                assert!(transaction.contains_key(&tree, &[10]).unwrap());
            }
        };
        let first = |transaction: &mut Transaction| append(transaction, keys.clone(), and_reads);
        let look = |transaction: &mut Transaction| {
            assert!(!transaction.contains_key(&tree, &[200]).unwrap());
        };
        assert_eq!(waits(&store, &first, &look), waited, "{case}");
        // Another may append beside it.
        let one = |transaction: &mut Transaction| append(transaction, 60..80, false);
        let more = |transaction: &mut Transaction| append(transaction, 100..120, false);
        assert!(!waits(&store, &one, &more), "{case}");
        assert_eq!(store.locks().statistics().held, 0, "{case}");
    }
}

/// A last gap that was read stays read while its reader appends to it, and when it is done.
#[test]
fn appending_does_not_open_the_last_gap() {
    for (and_reads, key) in [(false, 35), (false, 200), (true, 35), (true, 200)] {
        let (store, tree) = filled();
        let read_and_append = |transaction: &mut Transaction| {
            assert!(!transaction.contains_key(&tree, &[100]).unwrap());
            for key in 40..60 {
                transaction.insert(&tree, &[key], b"v").unwrap();
            }
            if and_reads {
                assert!(transaction.contains_key(&tree, &[10]).unwrap());
            }
        };
        let insert = |transaction: &mut Transaction| {
            transaction.insert(&tree, &[key], b"v").unwrap();
        };
        assert!(waits(&store, &read_and_append, &insert), "{key} {and_reads}");
    }
}

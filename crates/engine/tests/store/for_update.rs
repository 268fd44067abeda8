//! Reads for update: two that read and then write do not wait for each other in a circle.

use std::ops::Bound;
use std::sync::Barrier;
use std::thread;

use tidegate_engine::{Direction, Isolation, Transaction, TreeHandle, TxnError};

use super::{LEVELS, at, new_store, options};

const KEYS: u8 = 5;
const ROUNDS: u8 = 50;
const THREADS: usize = 4;

/// Adds one to all keys, found by a cursor, or to the first, found by its key.
fn add(transaction: &mut Transaction, tree: &TreeHandle, all: bool) -> Result<(), TxnError> {
    let mut rows = Vec::new();
    if all {
        let range = (Bound::Unbounded, Bound::Excluded(&[KEYS][..]));
        let mut cursor = transaction.cursor_for_update(tree, range, Direction::Up)?;
        while let Some((key, value)) = cursor.next(transaction)? {
            rows.push((key.to_vec(), value[0]));
        }
    } else if let Some(value) = transaction.get_for_update(tree, &[0])? {
        rows.push((vec![0], value[0]));
    }
    thread::yield_now();
    for (key, value) in rows {
        assert!(transaction.update(tree, &key, &[value.wrapping_add(1)])?);
    }
    Ok(())
}

#[test]
fn readers_for_update_take_turns_at_every_level() {
    for isolation in LEVELS {
        let (_, store, tree) = new_store(1, &options());
        let options = at(isolation);
        let mut first = store.begin(options);
        for key in 0..=KEYS {
            first.insert(&tree, &[key], &[0]).unwrap();
        }
        first.commit().unwrap();
        let barrier = Barrier::new(THREADS);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    barrier.wait();
                    for round in 0..ROUNDS {
                        let mut transaction = store.begin(options);
                        add(&mut transaction, &tree, round % 2 == 0).unwrap();
                        transaction.commit().unwrap();
                    }
                });
            }
        });
        assert_eq!(store.locks().statistics().deadlocks, 0, "{isolation:?}");
        let rounds = ROUNDS * u8::try_from(THREADS).unwrap();
        let mut reader = store.begin(options);
        assert_eq!(reader.get(&tree, &[0]).unwrap(), Some(vec![rounds]), "{isolation:?}");
        assert_eq!(reader.get(&tree, &[1]).unwrap(), Some(vec![rounds / 2]), "{isolation:?}");
        assert_eq!(reader.get(&tree, &[KEYS]).unwrap(), Some(vec![0]), "{isolation:?}");
    }
}

#[test]
fn a_gap_read_for_update_stays_empty_where_the_level_says_so() {
    for (isolation, waits) in [(Isolation::RepeatableRead, false), (Isolation::Serializable, true)]
    {
        let (_, store, tree) = new_store(1, &options());
        let options = at(isolation);
        for absent in [true, false] {
            let mut reader = store.begin(options);
            if absent {
                assert_eq!(reader.get_for_update(&tree, b"b").unwrap(), None);
            } else {
                let range = (Bound::Included(&b"a"[..]), Bound::Excluded(&b"c"[..]));
                let mut cursor = reader.cursor_for_update(&tree, range, Direction::Up).unwrap();
                assert!(cursor.next(&mut reader).unwrap().is_none());
            }
            thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    let mut writer = store.begin(options);
                    writer.insert(&tree, b"bb", b"").unwrap();
                    writer.roll_back().unwrap();
                });
                if waits {
                    while store.locks().statistics().waiting == 0 {
                        thread::yield_now();
                    }
                } else {
                    writer.join().unwrap();
                }
                reader.roll_back().unwrap();
            });
        }
    }
}

//! Secondary indexes: rows and entries change together, whatever happens.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use tidegate_engine::disk::{Crash, Faults};
use tidegate_engine::{
    Direction, IndexHandle, KeyExtractor, KeyValue, Transaction, TreeHandle, TxnError, TxnOptions,
};

use super::{Model, Random, new_store, options, reopen};

/// A row is found by each of the words of its value.
fn words() -> KeyExtractor {
    Box::new(|_, value, found_by| {
        value.split(|&byte| byte == b' ').filter(|word| !word.is_empty()).for_each(found_by);
    })
}

fn entries(transaction: &mut Transaction, index: &IndexHandle) -> Vec<KeyValue> {
    let all = (Bound::Unbounded, Bound::Unbounded);
    let mut cursor = transaction.index_cursor(index, all, Direction::Up).unwrap();
    let mut entries = Vec::new();
    while let Some((word, key)) = cursor.next(transaction).unwrap() {
        entries.push((word.to_vec(), key.to_vec()));
    }
    entries
}

fn expected(model: &Model) -> Vec<KeyValue> {
    let mut entries = BTreeSet::new();
    for (key, value) in model {
        words()(key, value, &mut |word| {
            entries.insert((word.to_vec(), key.clone()));
        });
    }
    entries.into_iter().collect()
}

fn text(random: &mut Random) -> Vec<u8> {
    let words: Vec<String> = (0..random.below(4)).map(|_| random.below(12).to_string()).collect();
    words.join(" ").into_bytes()
}

fn change(random: &mut Random, transaction: &mut Transaction, tree: &TreeHandle, rows: &mut Model) {
    let key = random.below(40).to_be_bytes().to_vec();
    if random.below(3) == 0 {
        transaction.remove(tree, &key).unwrap();
        rows.remove(&key);
    } else {
        let value = text(random);
        transaction.put(tree, &key, &value).unwrap();
        rows.insert(key, value);
    }
}

#[test]
fn an_index_has_an_entry_for_each_word_of_each_row() {
    for seed in 0..6 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let (_, store, tree) = new_store(seed, &options());
        let mut model = Model::new();
        // Some rows are there before the index.
        let mut transaction = store.begin(TxnOptions::default());
        for _ in 0..30 {
            change(&mut random, &mut transaction, &tree, &mut model);
        }
        transaction.commit().unwrap();
        let index = store.create_index(&tree, "by word", words()).unwrap();
        for _ in 0..40 {
            let mut transaction = store.begin(TxnOptions::default());
            let mut changed = model.clone();
            for _ in 0..random.below(20) {
                change(&mut random, &mut transaction, &tree, &mut changed);
            }
            assert_eq!(entries(&mut transaction, &index), expected(&changed));
            if random.below(3) == 0 {
                transaction.roll_back().unwrap();
            } else {
                transaction.commit().unwrap();
                model = changed;
            }
        }
        let mut transaction = store.begin(TxnOptions::default());
        assert_eq!(entries(&mut transaction, &index), expected(&model));
        drop(transaction);
        store.check().unwrap();
    }
}

#[test]
fn a_range_of_secondary_keys_is_read_either_way() {
    let (_, store, tree) = new_store(1, &options());
    let index = store.create_index(&tree, "by word", words()).unwrap();
    let mut transaction = store.begin(TxnOptions::default());
    for (key, value) in [("1", "a b"), ("2", "b"), ("3", "b ba"), ("4", "c")] {
        transaction.insert(&tree, key.as_bytes(), value.as_bytes()).unwrap();
    }
    let included = |key: &'static str| Bound::Included(key.as_bytes());
    let excluded = |key: &'static str| Bound::Excluded(key.as_bytes());
    for (range, found) in [
        ((included("b"), included("b")), "b1 b2 b3"),
        ((excluded("a"), excluded("c")), "b1 b2 b3 ba3"),
        ((excluded("b"), Bound::Unbounded), "ba3 c4"),
        ((Bound::Unbounded, excluded("b")), "a1"),
        ((included("bb"), included("bz")), ""),
    ] {
        for direction in [Direction::Up, Direction::Down] {
            let mut cursor = transaction.index_cursor(&index, range, direction).unwrap();
            let mut seen = Vec::new();
            while let Some((word, key)) = cursor.next(&mut transaction).unwrap() {
                seen.push(String::from_utf8([word, key].concat()).unwrap());
            }
            if direction == Direction::Down {
                seen.reverse();
            }
            assert_eq!(seen.join(" "), found, "{range:?} {direction:?}");
        }
    }
}

#[test]
fn rows_wait_for_the_function_after_opening() {
    let (disk, store, tree) = new_store(1, &options());
    let index = store.create_index(&tree, "by word", words()).unwrap();
    let mut transaction = store.begin(TxnOptions::default());
    transaction.insert(&tree, b"1", b"one").unwrap();
    let refused = transaction.put(index.tree(), b"two", b"");
    assert!(matches!(refused, Err(TxnError::IsIndex)));
    transaction.commit().unwrap();
    drop((tree, index));
    store.close().unwrap();

    let store = reopen(&disk);
    let tree = store.tree("tree").unwrap();
    let mut transaction = store.begin(TxnOptions::default());
    assert_eq!(transaction.get(&tree, b"1").unwrap().unwrap(), b"one");
    let refused = transaction.put(&tree, b"2", b"two");
    assert!(matches!(refused, Err(TxnError::IndexUnknown { name }) if name == "by word"));
    let index = store.create_index(&tree, "by word", words()).unwrap();
    transaction.put(&tree, b"2", b"two").unwrap();
    let found = entries(&mut transaction, &index);
    assert_eq!(found, [("one", "1"), ("two", "2")].map(|(a, b)| (a.into(), b.into())));
    transaction.commit().unwrap();

    let other = store.create_tree("other").unwrap();
    for taken in ["by word", "tree"] {
        let refused = store.create_index(&other, taken, words());
        assert!(matches!(refused, Err(TxnError::NameTaken { .. })), "{taken}");
    }
}

/// The machine is switched off while an index is made and its rows are changed: afterwards the
/// index is made if it was not, and has what the rows say.
#[test]
fn after_a_crash_an_index_says_what_the_rows_say() {
    for seed in 0..120 {
        let mut random = Random::new(seed);
        let (first, store, tree) = new_store(seed, &options());
        let mut transaction = store.begin(TxnOptions::default());
        for _ in 0..30 {
            change(&mut random, &mut transaction, &tree, &mut Model::new());
        }
        transaction.commit().unwrap();
        let operations = 1 + random.below(60);
        first.set_faults(Faults { crash_after: Some(operations), ..Faults::default() });
        if store.create_index(&tree, "by word", words()).is_ok() {
            for _ in 0..40 {
                let mut transaction = store.begin(TxnOptions::default());
                let key = random.below(40).to_be_bytes();
                let value = text(&mut random);
                if transaction.put(&tree, &key, &value).is_err() || transaction.commit().is_err() {
                    break;
                }
            }
        }
        drop((tree, store));
        let crashed = Arc::new(first.crash(Crash::Random));
        let store = reopen(&crashed);
        let tree = store.tree("tree").unwrap();
        let index = store.create_index(&tree, "by word", words()).unwrap();
        let mut transaction = store.begin(TxnOptions::default());
        let rows: Model = transaction.entries(&tree).unwrap().map(Result::unwrap).collect();
        assert_eq!(entries(&mut transaction, &index), expected(&rows), "seed {seed}");
        drop(transaction);
        store.check().unwrap();
    }
}

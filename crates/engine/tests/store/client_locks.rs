//! Trees whose keys are locked by their client.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tidegate_engine::disk::Crash;
use tidegate_engine::lock::multi_granularity::{IX, X};
use tidegate_engine::lock::{LockSettings, ModeTable};
use tidegate_engine::{
    KeyLocking, LockSpace, Lockable, NoHierarchy, Store, StoreOptions, TreeHandle, TreeOptions,
    TxnError, TxnOptions,
};

use super::{LEVELS, Model, Random, at, new_store, options, reopen, scan};

fn client_only() -> TreeOptions {
    TreeOptions::default().key_locking(KeyLocking::ClientOnly)
}

/// Options with which no request waits for long.
fn impatient() -> StoreOptions {
    let timeout = Some(Duration::from_millis(20));
    options().locks(LockSettings { timeout, ..options().locks })
}

fn put_all(store: &Store, tree: &TreeHandle, keys: &[&str]) {
    let mut transaction = store.begin(TxnOptions::default());
    for key in keys {
        transaction.put(tree, key.as_bytes(), b"old").unwrap();
    }
    transaction.commit().unwrap();
}

fn keys(store: &Store, tree: &TreeHandle) -> Vec<String> {
    let entries = scan(store, tree).into_iter();
    entries.map(|(key, _)| String::from_utf8(key).unwrap()).collect()
}

/// What waits for the gaps of others in other trees goes here, at every isolation level.
#[test]
fn neighbours_do_not_wait_for_each_other_and_are_undone_apart() {
    for level in LEVELS {
        let (_, store, locked) = new_store(1, &impatient());
        let tree = store.create_tree_with("client's", client_only()).unwrap();
        for tree in [&locked, &tree] {
            put_all(&store, tree, &["a", "b", "c", "d"]);
        }
        let mut one = store.begin(at(level));
        let mut other = store.begin(at(level));
        assert!(one.remove(&tree, b"b").unwrap());
        assert!(other.remove(&tree, b"c").unwrap());
        other.insert(&tree, b"bb", b"new").unwrap();
        one.insert(&tree, b"ba", b"new").unwrap();
        other.insert(&tree, b"a5", b"new").unwrap();
        one.put(&tree, b"d", b"new").unwrap();
        one.roll_back().unwrap();
        other.commit().unwrap();
        assert_eq!(keys(&store, &tree), ["a", "a5", "b", "bb", "d"], "{level:?}");
        // The same on a tree whose keys the engine locks.
        let mut one = store.begin(at(level));
        let mut other = store.begin(at(level));
        assert!(one.remove(&locked, b"b").unwrap());
        assert!(matches!(other.remove(&locked, b"c"), Err(TxnError::Conflict(_))), "{level:?}");
    }
}

#[test]
fn who_locks_the_keys_of_a_tree_is_in_the_catalog() {
    let (disk, store, tree) = new_store(1, &options());
    let by_value =
        || -> tidegate_engine::KeyExtractor { Box::new(|_, value, found_by| found_by(value)) };
    let client = store.create_tree_with("client's", client_only()).unwrap();
    let index = store.create_index(&client, "by value", by_value()).unwrap();
    assert_eq!(index.tree().key_locking(), KeyLocking::ClientOnly);
    assert_eq!(tree.key_locking(), KeyLocking::Engine);
    // One that exists keeps its own.
    let same = store.create_tree("client's").unwrap();
    assert_eq!(same.key_locking(), KeyLocking::ClientOnly);
    client.set_split_policy(client.split_policy()).unwrap();
    drop((tree, client, index, same));
    store.close().unwrap();
    let store = reopen(&disk);
    for (name, expected) in [("tree", KeyLocking::Engine), ("client's", KeyLocking::ClientOnly)] {
        assert_eq!(store.tree(name).unwrap().key_locking(), expected);
    }
}

/// The tree still has its own lock: who has all of it waits for those in it.
#[test]
fn the_tree_is_locked_in_an_intention() {
    let (_, store, _) = new_store(1, &impatient());
    let tree = store.create_tree_with("client's", client_only()).unwrap();
    let mut writer = store.begin(TxnOptions::default());
    writer.put(&tree, b"key", b"").unwrap();
    assert_eq!(writer.held(&Lockable::Store), Some(IX));
    assert_eq!(writer.lock_count(), 2);
    let mut other = store.begin(TxnOptions::default());
    assert!(matches!(other.lock_tree(&tree, X), Err(TxnError::Conflict(_))));
    assert!(matches!(store.drop_tree("client's"), Err(TxnError::Conflict(_))));
    writer.commit().unwrap();
    assert!(store.drop_tree("client's").unwrap());
}

/// Threads that change what they have locked, by locks of their own, and roll back now and then,
/// leave what those that committed have written; also after a crash.
#[test]
fn clients_that_lock_what_they_change_lose_nothing() {
    for seed in 0..4 {
        let (disk, store, _) = new_store(seed, &options());
        let tree = store.create_tree_with("client's", client_only()).unwrap();
        let hierarchy = Arc::new(NoHierarchy);
        let locks = ModeTable::multi_granularity();
        let locks = store.create_lock_space("keys", locks, hierarchy).unwrap();
        let model = Mutex::new(Model::new());
        thread::scope(|scope| {
            for writer in 0..4 {
                let (store, tree, locks, model) = (&store, &tree, &locks, &model);
                scope.spawn(move || {
                    let mut random = Random::new(seed * 10 + writer);
                    for _ in 0..60 {
                        drop(change(&mut random, store, tree, locks, model));
                    }
                });
            }
        });
        let model = model.into_inner().unwrap();
        assert!(scan(&store, &tree).into_iter().eq(model.clone()), "seed {seed}");
        store.check().unwrap();
        let mut loser = store.begin(TxnOptions::default());
        for key in 0..40_u64 {
            loser.put(&tree, &key.to_be_bytes(), b"never committed").unwrap();
        }
        store.flush().unwrap();
        let crashed = Arc::new(disk.crash(Crash::Lost));
        drop(loser);
        let store = reopen(&crashed);
        let tree = store.tree("client's").unwrap();
        assert!(scan(&store, &tree).into_iter().eq(model), "seed {seed}");
    }
}

/// Changes a few keys, each under the client's exclusive lock, and commits or rolls back.
fn change(
    random: &mut Random,
    store: &Store,
    tree: &TreeHandle,
    locks: &LockSpace,
    model: &Mutex<Model>,
) -> Result<(), TxnError> {
    let mut transaction = store.begin(TxnOptions::default());
    let mut changes = Vec::new();
    for _ in 0..random.below(6) {
        let number = random.below(40);
        let key = number.to_be_bytes();
        transaction.locks_in(locks)?.lock(&key, X)?;
        if random.below(3) == 0 {
            transaction.remove(tree, &key)?;
            changes.push((key, None));
        } else {
            let longest = [100, 2_000][random.index(2)];
            let value = random.bytes_up_to(longest);
            transaction.put(tree, &key, &value)?;
            assert_eq!(transaction.get(tree, &key)?, Some(value.clone()));
            changes.push((key, Some(value)));
        }
    }
    if random.below(4) == 0 {
        return transaction.roll_back();
    }
    // Before the locks are released, so that the model has the order of the commits.
    let mut model = model.lock().unwrap();
    for (key, value) in changes {
        match value {
            Some(value) => model.insert(key.to_vec(), value),
            None => model.remove(&key[..]),
        };
    }
    transaction.commit()
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "the client's locks keep two writers of a key apart")]
fn two_writers_of_a_key_without_a_lock_are_noticed() {
    let (_, store, _) = new_store(1, &options());
    let tree = store.create_tree_with("client's", client_only()).unwrap();
    let mut one = store.begin(TxnOptions::default());
    let mut other = store.begin(TxnOptions::default());
    one.put(&tree, b"key", b"1").unwrap();
    other.put(&tree, b"key", b"2").unwrap();
}

//! The store against a map.

use tidegate_engine::{MergePolicy, SplitPolicy, Store, Transaction, TreeHandle, TxnOptions};

use super::{Model, Random, new_store, options, reopen, scan};

/// One change of a tree and of its model.
fn change(
    random: &mut Random,
    transaction: &mut Transaction,
    tree: &TreeHandle,
    model: &mut Model,
    keys: u64,
) {
    let mut key = format!("{:06}", random.below(keys)).into_bytes();
    key.extend(std::iter::repeat_n(b'k', usize::from(key[5] - b'0') * 7));
    if random.below(3) == 0 {
        let was_there = transaction.remove(tree, &key).unwrap();
        assert_eq!(was_there, model.remove(&key).is_some());
    } else {
        // One in sixteen is too long for a leaf.
        let longest = if random.below(16) == 0 { 6_000 } else { 300 };
        let value = random.bytes_up_to(longest);
        transaction.put(tree, &key, &value).unwrap();
        model.insert(key, value);
    }
}

fn assert_same(store: &Store, tree: &TreeHandle, model: &Model, keys: u64) {
    let mut transaction = store.begin(TxnOptions::default());
    for (key, value) in model {
        assert_eq!(transaction.get(tree, key).unwrap().as_ref(), Some(value));
    }
    drop(transaction);
    assert!(scan(store, tree).into_iter().eq(model.clone()), "of {keys} keys");
    let shapes = store.check().unwrap();
    assert_eq!(shapes[0].1.entries, model.len() as u64, "of {keys} keys");
}

#[test]
fn a_tree_is_the_map_that_was_put_into_it() {
    for seed in 0..6 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let (disk, store, tree) = new_store(seed, &options());
        if seed % 2 == 1 {
            tree.set_merge_policy(MergePolicy::MergeAtHalf).unwrap();
            tree.set_split_policy(SplitPolicy::Half).unwrap();
        }
        let mut model = Model::new();
        let keys = [10, 300, 3_000][usize::try_from(seed % 3).unwrap()];
        for round in 0..60 {
            let mut transaction = store.begin(TxnOptions::default());
            let mut changed = model.clone();
            for _ in 0..random.below(100) {
                change(&mut random, &mut transaction, &tree, &mut changed, keys);
            }
            if random.below(4) == 0 {
                transaction.roll_back().unwrap();
            } else {
                transaction.commit().unwrap();
                model = changed;
            }
            if round % 20 == 19 {
                assert_same(&store, &tree, &model, keys);
            }
        }
        drop(tree);
        store.close().unwrap();
        let store = reopen(&disk);
        assert_eq!(store.recovery().redone, 0, "after a clean close there is nothing to do");
        assert_same(&store, &store.tree("tree").unwrap(), &model, keys);
    }
}

//! What trees look like after inserts in different orders, under each split policy.

use tidegate_engine::{MergePolicy, SplitPolicy, Store, TreeHandle, TxnOptions};

use super::{Random, new_store, options, reopen};

const POLICIES: [SplitPolicy; 3] =
    [SplitPolicy::Half, SplitPolicy::MaxKey, SplitPolicy::Adaptive { fill_percent: 100 }];

/// The mean fill of the leaves of a tree with these keys, put in in this order.
fn fill(policy: SplitPolicy, keys: impl Iterator<Item = Vec<u8>>) -> f64 {
    with_tree(policy, keys, |_, tree| {
        let fills = tree.fills().unwrap();
        fills.iter().map(|leaf| leaf.fill).sum::<f64>() / fills.len() as f64
    })
}

fn with_tree<T>(
    policy: SplitPolicy,
    keys: impl Iterator<Item = Vec<u8>>,
    look: impl FnOnce(&Store, &TreeHandle) -> T,
) -> T {
    let (_, store, tree) = new_store(1, &options());
    tree.set_split_policy(policy).unwrap();
    let mut transaction = store.begin(TxnOptions::default());
    for (at, key) in keys.enumerate() {
        transaction.insert(&tree, &key, &[7; 40]).unwrap();
        if at % 1_000 == 999 {
            transaction.commit().unwrap();
            transaction = store.begin(TxnOptions::default());
        }
    }
    transaction.commit().unwrap();
    store.check().unwrap();
    look(&store, &tree)
}

/// Orders of 16 warehouses with 10 districts each, as they come in: the structural-deterioration
/// study's case, smaller.
fn orders(count: u32) -> impl Iterator<Item = Vec<u8>> {
    let mut random = Random::new(3);
    let mut next = [0_u32; 160];
    (0..count).map(move |_| {
        let place = usize::try_from(random.below(160)).unwrap();
        next[place] += 1;
        let place = u32::try_from(place).unwrap();
        [place.to_be_bytes(), next[place as usize].to_be_bytes()].concat()
    })
}

#[test]
fn sequences_at_many_places_leave_full_leaves_only_where_they_are_seen() {
    let [half, max_key, adaptive] = POLICIES.map(|policy| fill(policy, orders(60_000)));
    assert!((0.45..0.58).contains(&half), "{half}");
    assert!((0.45..0.58).contains(&max_key), "{max_key}");
    // 375 orders at each place are a little over six leaves, and the seventh is nearly empty.
    assert!(adaptive > 0.84, "{adaptive}");
}

/// The first entries of a sequence, in a leaf that the one before it fills, go to the leaf where
/// their own goes on: they would keep a leaf to themselves otherwise.
#[test]
fn sequences_that_grow_side_by_side_leave_no_leaf_nearly_empty_between_them() {
    let keys = (0..1_200_u32).flat_map(|at| {
        (0..16_u32).map(move |place| [place.to_be_bytes(), at.to_be_bytes()].concat())
    });
    let leaves = with_tree(SplitPolicy::default(), keys, |_, tree| tree.fills().unwrap());
    let near_empty = leaves.iter().filter(|leaf| leaf.fill < 0.3).count();
    // Without that there are 17.
    assert!(near_empty < 8, "{near_empty} of {}", leaves.len());
}

#[test]
fn the_size_of_a_tree_is_what_a_check_counts() {
    for count in [0, 1, 30_000] {
        let keys = orders(count);
        with_tree(SplitPolicy::default(), keys, |store, tree| {
            let (name, shape) = store.check().unwrap().remove(0);
            assert_eq!(name, tree.name());
            let size = tree.size().unwrap();
            assert_eq!(size.shape, shape);
            let fills = tree.fills().unwrap();
            let mean = fills.iter().map(|leaf| leaf.fill).sum::<f64>() / fills.len() as f64;
            assert_eq!(size.fill.to_bits(), mean.to_bits());
            assert_eq!(size.long_value_pages, 0);
            assert_eq!(size.bytes, (shape.leaves + shape.inner_nodes) * 4_096);

            let value = vec![7; 100_000];
            store.transaction(|transaction| transaction.put(tree, b"long", &value)).unwrap();
            let size = tree.size().unwrap();
            assert!((25..=32).contains(&size.long_value_pages), "{size:?}");
            let nodes = size.shape.leaves + size.shape.inner_nodes;
            assert_eq!(size.bytes, (nodes + size.long_value_pages) * 4_096);
        });
    }
}

#[test]
fn a_sequence_at_the_end_fills_leaves_as_each_policy_says() {
    let ascending = || (0..20_000_u32).map(|key| key.to_be_bytes().to_vec());
    let [half, max_key, adaptive] = POLICIES.map(|policy| fill(policy, ascending()));
    assert!((0.45..0.55).contains(&half), "{half}");
    assert!((0.86..0.95).contains(&max_key), "{max_key}");
    assert!(adaptive > 0.97, "{adaptive}");
    let eighty = fill(SplitPolicy::Adaptive { fill_percent: 80 }, ascending());
    assert!((0.73..0.82).contains(&eighty), "{eighty}");
}

#[test]
fn a_descending_sequence_is_seen_as_well() {
    let descending = || (0..20_000_u32).rev().map(|key| key.to_be_bytes().to_vec());
    let [half, _, adaptive] = POLICIES.map(|policy| fill(policy, descending()));
    assert!((0.45..0.55).contains(&half), "{half}");
    assert!(adaptive > 0.97, "{adaptive}");
}

/// Whatever is left free in a leaf when it is split, between its new fences all of it has a place.
#[test]
fn a_leaf_that_is_full_to_the_last_byte_is_split_without_loss() {
    for value_len in 0..160 {
        let (_, store, tree) = new_store(1, &options());
        let loaded = store.create_tree("loaded").unwrap();
        let key = |at: u32| format!("{:0width$}", at * 3, width = 4 + value_len % 40).into_bytes();
        let value = vec![7; value_len];
        let mut transaction = store.begin(TxnOptions::default());
        for at in 0..600 {
            transaction.insert(&tree, &key(at), &value).unwrap();
        }
        transaction.commit().unwrap();
        store.bulk_load(&loaded, 100, (0..600).map(|at| (key(at), &value))).unwrap();
        for (name, shape) in store.check().unwrap() {
            assert_eq!(shape.entries, 600, "{name}, values of {value_len} bytes");
        }
    }
}

#[test]
fn random_inserts_leave_leaves_two_thirds_full() {
    for policy in POLICIES {
        let mut random = Random::new(5);
        let keys = (0..20_000).map(|_| random.draw().to_be_bytes().to_vec());
        let fill = fill(policy, keys);
        assert!(fill > 0.66, "{policy:?}: {fill}");
    }
}

/// Blocks of ascending keys, each below the one before: the first leaf of a block stays full when
/// the next block begins.
#[test]
fn blocks_of_a_sequence_in_falling_order_leave_leaves_full() {
    let blocks = || (0..40_u32).rev().flat_map(|block| (0..500).map(move |at| block * 500 + at));
    let keys = || blocks().map(|key| key.to_be_bytes().to_vec());
    let [half, _, adaptive] = POLICIES.map(|policy| fill(policy, keys()));
    assert!((0.45..0.6).contains(&half), "{half}");
    assert!(adaptive > 0.7, "{adaptive}");
}

/// A full leaf, a gap, a full leaf; then keys fill the gap downward. If each were separated from
/// the full leaf below by itself, each would get a leaf of its own (`MySQL` bug #67718).
#[test]
fn keys_between_a_full_leaf_and_its_neighbour_share_a_leaf() {
    for policy in POLICIES {
        let low = 0..5_000_u32;
        let high = 100_000..105_000_u32;
        let between = (5_000..25_000_u32).rev();
        let keys = low.chain(high).chain(between).map(|key| key.to_be_bytes().to_vec());
        let fill = fill(policy, keys);
        assert!(fill > 0.45, "{policy:?}: {fill}");
    }
}

#[test]
fn what_is_removed_gives_its_pages_back() {
    for merging in [MergePolicy::FreeAtEmpty, MergePolicy::MergeAtHalf] {
        let keys = || (0..10_000_u32).map(|key| key.to_be_bytes().to_vec());
        with_tree(SplitPolicy::default(), keys(), |store, tree| {
            tree.set_merge_policy(merging).unwrap();
            let before = store.check().unwrap()[0].1;
            assert!(before.leaves > 100 && before.height > 1);
            let mut transaction = store.begin(TxnOptions::default());
            for key in keys() {
                assert!(transaction.remove(tree, &key).unwrap());
            }
            transaction.commit().unwrap();
            let after = store.check().unwrap()[0].1;
            assert_eq!((after.leaves, after.inner_nodes, after.entries), (1, 0, 0));
        });
    }
}

#[test]
fn settings_of_a_tree_last() {
    let (disk, store, _) = new_store(1, &options());
    for (at, policy) in POLICIES.into_iter().enumerate() {
        store.create_tree(&format!("tree {at}")).unwrap().set_split_policy(policy).unwrap();
    }
    store.close().unwrap();
    let store = reopen(&disk);
    assert_eq!(store.trees(), ["tree", "tree 0", "tree 1", "tree 2"]);
    for (at, policy) in POLICIES.into_iter().enumerate() {
        assert_eq!(store.tree(&format!("tree {at}")).unwrap().split_policy(), policy);
    }
}

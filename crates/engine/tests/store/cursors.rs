//! Cursors against a map, both ways.

use std::ops::Bound;

use tidegate_engine::wal::LogId;
use tidegate_engine::{Direction, Isolation, Store, TreeHandle, TxnOptions};

use super::{Model, Random, disk, options, shared};

const ISOLATIONS: [Isolation; 4] = [
    Isolation::ReadUncommitted,
    Isolation::ReadCommitted,
    Isolation::RepeatableRead,
    Isolation::Serializable,
];

fn walk(
    store: &Store,
    tree: &TreeHandle,
    range: (Bound<&[u8]>, Bound<&[u8]>),
    direction: Direction,
    isolation: Isolation,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut transaction = store.begin(TxnOptions::default().isolation(isolation));
    let mut cursor = transaction.cursor(tree, range, direction).unwrap();
    let mut entries = Vec::new();
    while let Some((key, value)) = cursor.next(&mut transaction).unwrap() {
        entries.push((key.to_vec(), value.to_vec()));
    }
    transaction.commit().unwrap();
    entries
}

fn bound(random: &mut Random, key: &[u8]) -> Bound<Vec<u8>> {
    match random.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(key.to_vec()),
        _ => Bound::Excluded(key.to_vec()),
    }
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

#[test]
fn a_range_is_what_the_map_says_in_both_directions() {
    for seed in 0..4 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let disk = disk(seed);
        let store = Store::create(&shared(&disk), LogId(seed), &options()).unwrap();
        let tree = store.create_tree("tree").unwrap();
        let mut model = Model::new();
        let mut transaction = store.begin(TxnOptions::default());
        for _ in 0..[0, 3, 500, 3_000][usize::try_from(seed).unwrap()] {
            let (key, value) = (random.bytes_up_to(5), random.bytes_up_to(100));
            transaction.put(&tree, &key, &value).unwrap();
            model.insert(key, value);
        }
        transaction.commit().unwrap();
        for round in 0..200_usize {
            let (one, other) = (random.bytes_up_to(2), random.bytes_up_to(2));
            let (low, high) = if one < other { (one, other) } else { (other, one) };
            let (low, high) = (bound(&mut random, &low), bound(&mut random, &high));
            let range = (as_slice(&low), as_slice(&high));
            let is_empty = matches!(
                range,
                (Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) if low >= high
            );
            let mut expected: Vec<_> = if is_empty {
                Vec::new()
            } else {
                let range = model.range::<[u8], _>(range);
                range.map(|(key, value)| (key.clone(), value.clone())).collect()
            };
            let isolation = ISOLATIONS[round % ISOLATIONS.len()];
            assert_eq!(walk(&store, &tree, range, Direction::Up, isolation), expected);
            expected.reverse();
            assert_eq!(walk(&store, &tree, range, Direction::Down, isolation), expected);
        }
    }
}

/// What the transaction itself changes ahead of its cursor is seen, and what it changes behind does
/// not disturb it.
#[test]
fn a_cursor_stays_where_it_is_while_its_transaction_writes() {
    let disk = disk(1);
    let store = Store::create(&shared(&disk), LogId(1), &options()).unwrap();
    let tree = store.create_tree("tree").unwrap();
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

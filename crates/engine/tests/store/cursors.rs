//! Cursors that go both ways and seek, against a map.

use std::ops::{Bound, RangeBounds};

use tidegate_engine::{Cursor, Direction, KeyLocking, Store, Transaction, TreeHandle, TreeOptions};

use super::{LEVELS, Model, Random, at, new_store, options};

/// Where a cursor is, by the map, in the order of keys.
#[derive(Clone, Debug)]
enum Place {
    BelowAll,
    At(Vec<u8>),
    AboveAll,
}

/// A cursor with what it should say.
struct Subject<'s> {
    cursor: Cursor,
    order: Direction,
    range: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    place: Place,
    tree: &'s TreeHandle,
}

type KeyValue = (Vec<u8>, Vec<u8>);

fn owned((key, value): (&[u8], &[u8])) -> KeyValue {
    (key.to_vec(), value.to_vec())
}

impl Subject<'_> {
    /// The entry of the map that a step upward or downward goes to.
    fn expect_step(&mut self, model: &Model, direction: Direction) -> Option<KeyValue> {
        let in_range = model.iter().filter(|(key, _)| self.range.contains(*key));
        let mut in_range = in_range.map(|(key, value)| (key.clone(), value.clone()));
        let found = match (direction, &self.place) {
            (Direction::Up, Place::BelowAll) => in_range.next(),
            (Direction::Up, Place::At(at)) => in_range.find(|(key, _)| key > at),
            (Direction::Down, Place::AboveAll) => in_range.next_back(),
            (Direction::Down, Place::At(at)) => in_range.rfind(|(key, _)| key < at),
            _ => None,
        };
        self.place = match (&found, direction) {
            (Some((key, _)), _) => Place::At(key.clone()),
            (None, Direction::Up) => Place::AboveAll,
            (None, Direction::Down) => Place::BelowAll,
        };
        found
    }

    fn expect_seek(&mut self, model: &Model, to: &[u8]) -> Option<KeyValue> {
        let in_range = model.iter().filter(|(key, _)| self.range.contains(*key));
        let mut in_range = in_range.map(|(key, value)| (key.clone(), value.clone()));
        let found = match self.order {
            Direction::Up => in_range.find(|(key, _)| &key[..] >= to),
            Direction::Down => in_range.rfind(|(key, _)| &key[..] <= to),
        };
        self.place = match (&found, self.order) {
            (Some((key, _)), _) => Place::At(key.clone()),
            (None, Direction::Up) => Place::AboveAll,
            (None, Direction::Down) => Place::BelowAll,
        };
        found
    }

    fn step(&mut self, random: &mut Random, transaction: &mut Transaction, model: &mut Model) {
        let opposite = match self.order {
            Direction::Up => Direction::Down,
            Direction::Down => Direction::Up,
        };
        match random.below(15) {
            12 => self.restart(random),
            13..=14 => {
                // One in four values passes, or one in thirty.
                let (every, rest) = ([4, 30][random.index(2)], random.index(4));
                let passes = |value: &[u8]| value.len() % every == rest;
                let expected = loop {
                    match self.expect_step(model, self.order) {
                        Some((_, value)) if !passes(&value) => {}
                        found => break found,
                    }
                };
                let found = self.cursor.next_where(transaction, passes).unwrap();
                assert_eq!(found.map(owned), expected);
            }
            0..=3 => {
                let expected = self.expect_step(model, self.order);
                assert_eq!(self.cursor.next(transaction).unwrap().map(owned), expected);
            }
            4..=7 => {
                let expected = self.expect_step(model, opposite);
                assert_eq!(self.cursor.prev(transaction).unwrap().map(owned), expected);
            }
            8 => {
                let to = key(random);
                let expected = self.expect_seek(model, &to);
                assert_eq!(self.cursor.seek(transaction, &to).unwrap().map(owned), expected);
            }
            9 => {
                // Next to where it is, which is likely to be in the same leaf.
                let Place::At(mut to) = self.place.clone() else { return };
                to.extend(random.bytes_up_to(1));
                let expected = self.expect_seek(model, &to);
                assert_eq!(self.cursor.seek(transaction, &to).unwrap().map(owned), expected);
            }
            10 => {
                if let (Place::At(at), Some((key, _))) = (&self.place, self.cursor.current()) {
                    assert_eq!(key, at);
                } else {
                    assert!(self.cursor.current().is_none() || matches!(self.place, Place::At(_)));
                }
            }
            _ => change(random, transaction, self.tree, model),
        }
    }
}

impl Subject<'_> {
    /// Gives the cursor another range, half the time one that begins where it is.
    fn restart(&mut self, random: &mut Random) {
        let mut ends = [key(random), key(random)];
        if let (Place::At(at), true) = (&self.place, random.below(2) == 0) {
            ends[0].clone_from(at);
        }
        ends.sort();
        let [low, high] = ends;
        self.range = (bound(random, low), bound(random, high));
        self.cursor.restart((as_slice(&self.range.0), as_slice(&self.range.1)));
        self.place = beginning(self.order);
    }
}

fn beginning(order: Direction) -> Place {
    match order {
        Direction::Up => Place::BelowAll,
        Direction::Down => Place::AboveAll,
    }
}

fn key(random: &mut Random) -> Vec<u8> {
    let mut key = random.bytes_up_to(2);
    key.extend(std::iter::repeat_n(7, random.index(20)));
    key
}

fn change(
    random: &mut Random,
    transaction: &mut Transaction,
    tree: &TreeHandle,
    model: &mut Model,
) {
    let key = key(random);
    if random.below(3) == 0 {
        transaction.remove(tree, &key).unwrap();
        model.remove(&key);
    } else {
        let longest = if random.below(30) == 0 { 3_000 } else { 60 };
        let value = random.bytes_up_to(longest);
        transaction.put(tree, &key, &value).unwrap();
        model.insert(key, value);
    }
}

fn bound(random: &mut Random, key: Vec<u8>) -> Bound<Vec<u8>> {
    match random.below(4) {
        0 => Bound::Included(key),
        1 => Bound::Excluded(key),
        _ => Bound::Unbounded,
    }
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

fn subject<'s>(
    random: &mut Random,
    transaction: &mut Transaction,
    tree: &'s TreeHandle,
) -> Subject<'s> {
    let (one, other) = (key(random), key(random));
    let (low, high) = if one < other { (one, other) } else { (other, one) };
    let range = (bound(random, low), bound(random, high));
    let order = [Direction::Up, Direction::Down][random.index(2)];
    let bounds = (as_slice(&range.0), as_slice(&range.1));
    let cursor = if random.below(4) == 0 {
        transaction.cursor_for_update(tree, bounds, order).unwrap()
    } else {
        transaction.cursor(tree, bounds, order).unwrap()
    };
    Subject { cursor, order, range, place: beginning(order), tree }
}

fn trees(store: &Store) -> [TreeHandle; 2] {
    let client_only = TreeOptions::default().key_locking(KeyLocking::ClientOnly);
    let other = store.create_tree_with("client's", client_only).unwrap();
    [store.tree("tree").unwrap(), other]
}

#[test]
fn cursors_go_where_a_map_says() {
    for seed in 0..24 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let (_, store, _) = new_store(seed, &options());
        for tree in trees(&store) {
            let mut model = Model::new();
            let mut transaction = store.begin(at(LEVELS[random.index(4)]));
            for _ in 0..[0, 5, 300, 1_500][random.index(4)] {
                change(&mut random, &mut transaction, &tree, &mut model);
            }
            transaction.commit().unwrap();
            for _ in 0..10 {
                let mut transaction = store.begin(at(LEVELS[random.index(4)]));
                let mut subject = subject(&mut random, &mut transaction, &tree);
                for _ in 0..40 {
                    subject.step(&mut random, &mut transaction, &mut model);
                }
                drop(subject);
                transaction.commit().unwrap();
            }
        }
    }
}

#[test]
fn the_nearest_entry_is_found_on_either_side() {
    let mut random = Random::new(5);
    let (_, store, _) = new_store(5, &options());
    for (tree, level) in
        trees(&store).into_iter().flat_map(|tree| LEVELS.map(|l| (tree.clone(), l)))
    {
        let mut transaction = store.begin(at(level));
        let entries = transaction.entries(&tree).unwrap();
        let mut model: Model = entries.collect::<Result<_, _>>().unwrap();
        for _ in 0..400 {
            change(&mut random, &mut transaction, &tree, &mut model);
        }
        for _ in 0..300 {
            let to = key(&mut random);
            let below = model.range(..=to.clone()).next_back();
            let above = model.range(to.clone()..).next();
            let cloned = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
            assert_eq!(transaction.floor(&tree, &to).unwrap(), below.map(cloned));
            assert_eq!(transaction.ceiling(&tree, &to).unwrap(), above.map(cloned));
            let copied = |key: &[u8], value: &[u8]| (key.to_vec(), value.to_vec());
            let found = transaction.ceiling_with(&tree, &to, copied).unwrap();
            assert_eq!(found, above.map(cloned));
        }
        transaction.commit().unwrap();
    }
}

/// A step to a neighbour in the same leaf reads that leaf's page and no other.
#[test]
fn neighbours_are_found_without_a_search_from_the_root() {
    let (_, store, _) = new_store(1, &options());
    let [_, tree] = trees(&store);
    let rows = (0..20_000_u32).map(|row| (row.to_be_bytes(), [7; 20]));
    store.bulk_load(&tree, 100, rows).unwrap();
    let mut transaction = store.begin(at(LEVELS[3]));
    let all = (Bound::Unbounded, Bound::Unbounded);
    let mut cursor = transaction.cursor(&tree, all, Direction::Up).unwrap();
    cursor.seek(&mut transaction, &10_000_u32.to_be_bytes()).unwrap();
    for round in 0..100_u32 {
        let row = 10_000 + round % 5;
        cursor.seek(&mut transaction, &row.to_be_bytes()).unwrap().unwrap();
        cursor.prev(&mut transaction).unwrap().unwrap();
        cursor.next(&mut transaction).unwrap().unwrap();
        assert_eq!(cursor.current().unwrap().0, row.to_be_bytes());
    }
    // At least one of these rows is not at the edge of a leaf.
    let reads = [10_030_u32, 10_050, 10_070].map(|row| {
        cursor.seek(&mut transaction, &row.to_be_bytes()).unwrap();
        let before = tree.io().logical_reads;
        for _ in 0..500 {
            cursor.prev(&mut transaction).unwrap().unwrap();
            cursor.next(&mut transaction).unwrap().unwrap();
        }
        tree.io().logical_reads - before
    });
    assert!(reads.iter().min() <= Some(&1_000), "{reads:?} pages for 1,000 turns");
}

//! What the transactions do, such that what is found afterwards can be judged.
//!
//! Each worker has slots of its own and numbers its transactions from 1. What a transaction does to
//! the slots follows from the worker and the number alone, so the parent works it out again. Every
//! slot is kept twice, in the trees `left` and `right`. Each transaction also
//!
//! * enters its number in `journal` and takes out one that is [`JOURNALED`] older;
//! * moves one unit between two of the `accounts`, which all workers share, so that they wait for
//!   each other and deadlock, and the sum of all stays 0;
//! * in every fifth case does something more and rolls back to a savepoint before it, and in every
//!   seventh does everything, rolls all of it back, and does it again.

use std::collections::BTreeMap;

use tidegate_engine::{Store, StoreError, Transaction, TreeHandle, TxnError};

use super::Random;

/// Threads of a child.
pub(crate) const WORKERS: u8 = 6;

/// How many of its last transactions a worker has in the journal.
pub(crate) const JOURNALED: u64 = 60;

const SLOTS: u64 = 250;
const ACCOUNTS: u64 = 8;

/// A key that is never committed.
const NEVER: [u8; 3] = [0xff; 3];

/// A key.
type Key = [u8; 3];

/// What a worker's transaction does to a slot.
enum Change {
    Put(Key, Vec<u8>),
    Remove(Key),
}

/// What the `number`th transaction of a worker does to its slots.
fn changes(worker: u8, number: u64) -> Vec<Change> {
    let random = &mut Random::new((u64::from(worker) << 40) + number);
    let count = 1 + random.below(6);
    let change = |_| {
        let [high, low] = u16::try_from(random.below(SLOTS)).unwrap().to_be_bytes();
        let key = [worker, high, low];
        if random.below(4) == 0 {
            return Change::Remove(key);
        }
        let mut value = number.to_be_bytes().to_vec();
        value.resize(8 + usize::try_from(random.below(600)).unwrap(), worker);
        Change::Put(key, value)
    };
    (0..count).map(change).collect()
}

/// The trees of the store.
#[derive(Clone)]
pub(crate) struct Trees {
    pub(crate) left: TreeHandle,
    pub(crate) right: TreeHandle,
    pub(crate) journal: TreeHandle,
    pub(crate) accounts: TreeHandle,
}

impl Trees {
    /// The trees, made where they are missing.
    pub(crate) fn of(store: &Store) -> Result<Trees, StoreError> {
        Ok(Trees {
            left: store.create_tree("left")?,
            right: store.create_tree("right")?,
            journal: store.create_tree("journal")?,
            accounts: store.create_tree("accounts")?,
        })
    }
}

/// A worker's number and that of its transaction: its key in the journal.
pub(crate) fn journal_key(worker: u8, number: u64) -> [u8; 9] {
    let mut key = [worker; 9];
    key[1..].copy_from_slice(&number.to_be_bytes());
    key
}

/// The last transaction that a worker has in the journal; 0 when it has none.
pub(crate) fn last_number(
    transaction: &mut Transaction,
    trees: &Trees,
    worker: u8,
) -> Result<u64, TxnError> {
    let last = transaction.prefix(&trees.journal, &[worker])?.next_back().transpose()?;
    Ok(last.map_or(0, |(key, _)| u64::from_be_bytes(key[1..].try_into().unwrap())))
}

/// Does everything that the `number`th transaction of a worker is to do. `draw` differs each time.
pub(crate) fn apply(
    transaction: &mut Transaction,
    trees: &Trees,
    worker: u8,
    number: u64,
    draw: &mut Random,
) -> Result<(), TxnError> {
    for change in changes(worker, number) {
        for tree in [&trees.left, &trees.right] {
            match &change {
                Change::Put(key, value) => {
                    if !transaction.update(tree, key, value)? {
                        transaction.insert(tree, key, value)?;
                    }
                }
                Change::Remove(key) => {
                    transaction.remove(tree, key)?;
                }
            }
        }
    }
    transaction.insert(&trees.journal, &journal_key(worker, number), &[worker; 20])?;
    if let Some(old) = number.checked_sub(JOURNALED) {
        transaction.remove(&trees.journal, &journal_key(worker, old))?;
    }
    if number.is_multiple_of(5) {
        let savepoint = transaction.savepoint();
        transaction.put(&trees.left, &NEVER, &[worker; 700])?;
        transaction.put(&trees.journal, &NEVER, &[worker; 700])?;
        transaction.roll_back_to(savepoint)?;
    }
    let (from, to) = (draw.below(ACCOUNTS), draw.below(ACCOUNTS));
    for (account, change) in [(from, -1), (to, 1)] {
        let key = account.to_be_bytes();
        let balance = balance(transaction.get(&trees.accounts, &key)?.as_deref()) + change;
        transaction.put(&trees.accounts, &key, &balance.to_le_bytes())?;
    }
    Ok(())
}

/// What an account holds.
pub(crate) fn balance(value: Option<&[u8]>) -> i64 {
    value.map_or(0, |value| i64::from_le_bytes(value.try_into().unwrap()))
}

/// What the slots of a worker hold after so many of its transactions.
#[derive(Default)]
pub(crate) struct Slots {
    pub(crate) number: u64,
    pub(crate) values: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Slots {
    /// Goes on to a later transaction.
    pub(crate) fn advance(&mut self, worker: u8, to: u64) {
        for number in self.number + 1..=to {
            for change in changes(worker, number) {
                match change {
                    Change::Put(key, value) => {
                        self.values.insert(key.to_vec(), value);
                    }
                    Change::Remove(key) => {
                        self.values.remove(&key[..]);
                    }
                }
            }
        }
        self.number = to;
    }
}

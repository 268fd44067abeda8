//! Bulk load of a tree.

use std::ops::{Bound, RangeInclusive};
use std::sync::Arc;

use super::{Direction, Parents, Transaction, TxnError, TxnOptions};
use crate::btree::TreeEntry;
use crate::core::{Core, Durability, StoreError, TreeHandle, is_stored_apart};
use crate::lock::multi_granularity::{IX, X};

/// Entries that are checked and loaded together: more than go into a leaf.
const BATCH: usize = 1024;

/// How full leaves may be, in percent: there is room for the longest entry in half a leaf.
const FILL_PERCENTS: RangeInclusive<u8> = 50..=100;

/// See [`Store::bulk_load`](crate::Store::bulk_load).
pub(crate) fn bulk_load<K: AsRef<[u8]>, V: AsRef<[u8]>>(
    core: &Arc<Core>,
    tree: &TreeHandle,
    fill_percent: u8,
    mut entries: impl Iterator<Item = Result<(K, V), TxnError>>,
) -> Result<u64, TxnError> {
    if !FILL_PERCENTS.contains(&fill_percent) {
        return Err(TxnError::FillPercent { percent: fill_percent });
    }
    let mut transaction = Transaction::begin(core, TxnOptions::default());
    transaction.check_to_change(tree)?;
    if tree.entry().indexes() > 0 {
        return Err(TxnError::Indexed);
    }
    transaction.lock_tree(tree, X)?;
    let all = (Bound::Unbounded, Bound::Unbounded);
    let mut last = transaction.cursor(tree, all, Direction::Down)?;
    let mut last = last.next(&mut transaction)?.map(|(key, _)| key.to_vec());

    let mut loaded = 0;
    loop {
        let batch = entries.by_ref().take(BATCH).collect::<Result<Vec<(K, V)>, TxnError>>()?;
        for (key, value) in &batch {
            transaction.check_lengths(key.as_ref(), value.as_ref())?;
            if last.as_ref().is_some_and(|last| last.as_slice() >= key.as_ref()) {
                return Err(TxnError::NotAscending { loaded });
            }
            last = Some(key.as_ref().to_vec());
        }
        if batch.is_empty() {
            break;
        }
        let batch: Vec<(&[u8], &[u8])> =
            batch.iter().map(|(key, value)| (key.as_ref(), value.as_ref())).collect();
        let mut rest = batch.as_slice();
        while !rest.is_empty() {
            let is_apart = |&(key, value): &(&[u8], &[u8])| {
                is_stored_apart(key.len(), value, core.pool.page_size())
            };
            let short = rest.iter().position(is_apart).unwrap_or(rest.len());
            let count = if short > 0 {
                tree.tree().load_leaf(&rest[..short], fill_percent)?
            } else {
                load_apart(core, tree.entry(), rest[0])?;
                1
            };
            rest = &rest[count..];
        }
        loaded += batch.len() as u64;
    }
    core.log.force(core.log.end()).map_err(StoreError::from)?;
    Ok(loaded)
}

/// Appends an entry with a long value to a tree that the load has locked, by a transaction of its
/// own: a crash leaves all of it or nothing.
fn load_apart(
    core: &Arc<Core>,
    entry: &TreeEntry,
    (key, value): (&[u8], &[u8]),
) -> Result<(), TxnError> {
    let options = TxnOptions::default().durability(Durability::Lazy);
    let mut transaction = Transaction::begin(core, options);
    let covers = [true; 2];
    transaction.parents = Some(Parents { tree: entry.id, intention: IX, covers });
    transaction.put_entry(entry, key, value, |_| true)?;
    transaction.commit()
}

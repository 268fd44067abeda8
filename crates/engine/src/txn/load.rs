//! Bulk load of a tree.

use std::ops::{Bound, RangeInclusive};
use std::sync::Arc;

use super::{Direction, Parents, Transaction, TxnError, TxnOptions, check_lengths};
use crate::btree::TreeEntry;
use crate::core::{Core, Durability, StoreError, TreeHandle, is_stored_apart};
use crate::lock::multi_granularity::{IX, X};

/// Entries that are checked and loaded together: more than go into a leaf.
const BATCH: usize = 1024;

/// A batch ends with the entry that makes its keys and values so long, in bytes: more than go into
/// a leaf, and little beside the pages in memory.
const BATCH_BYTES: usize = 256 << 10;

/// How full leaves may be, in percent: there is room for the longest entry in half a leaf.
const FILL_PERCENTS: RangeInclusive<u8> = 50..=100;

/// See [`Store::try_bulk_load`](crate::Store::try_bulk_load).
pub(crate) fn bulk_load<K: AsRef<[u8]>, V: AsRef<[u8]>, E: From<TxnError>>(
    core: &Arc<Core>,
    tree: &TreeHandle,
    fill_percent: u8,
    mut entries: impl Iterator<Item = Result<(K, V), E>>,
) -> Result<u64, E> {
    let (_locks, mut last) = begin(core, tree, fill_percent)?;
    let (mut loaded, mut batch) = (0, Vec::with_capacity(BATCH));
    while take_batch(&mut entries, &mut batch)? {
        for (key, value) in &batch {
            check_lengths(core, key.as_ref(), value.as_ref())?;
        }
        let is_behind = |key: &[u8]| last.as_ref().is_none_or(|last| last.as_slice() < key);
        let is_ascending = batch.first().is_none_or(|(key, _)| is_behind(key.as_ref()))
            && batch.is_sorted_by(|(one, _), (next, _)| one.as_ref() < next.as_ref());
        if !is_ascending {
            return Err(TxnError::NotAscending { loaded }.into());
        }
        append(core, tree, fill_percent, &batch)?;
        loaded += batch.len() as u64;
        last = batch.last().map(|(key, _)| key.as_ref().to_vec());
    }
    core.log.force(core.log.end()).map_err(StoreError::from).map_err(TxnError::from)?;
    Ok(loaded)
}

/// Locks the tree for a load. Returns what holds the lock, and the last key of the tree.
fn begin(
    core: &Arc<Core>,
    tree: &TreeHandle,
    fill_percent: u8,
) -> Result<(Transaction, Option<Vec<u8>>), TxnError> {
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
    let last = last.next(&mut transaction)?.map(|(key, _)| key.to_vec());
    Ok((transaction, last))
}

/// Replaces a batch with the next entries. Returns whether there are any.
fn take_batch<K: AsRef<[u8]>, V: AsRef<[u8]>, E>(
    entries: &mut impl Iterator<Item = Result<(K, V), E>>,
    batch: &mut Vec<(K, V)>,
) -> Result<bool, E> {
    batch.clear();
    let mut bytes = 0;
    while batch.len() < BATCH
        && bytes < BATCH_BYTES
        && let Some(entry) = entries.next()
    {
        let (key, value) = entry?;
        bytes += key.as_ref().len() + value.as_ref().len();
        batch.push((key, value));
    }
    Ok(!batch.is_empty())
}

/// Appends entries that were checked to a tree that the load has locked.
fn append<K: AsRef<[u8]>, V: AsRef<[u8]>>(
    core: &Arc<Core>,
    tree: &TreeHandle,
    fill_percent: u8,
    batch: &[(K, V)],
) -> Result<(), TxnError> {
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
    Ok(())
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

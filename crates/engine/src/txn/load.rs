//! Bulk load of a tree.

use std::ops::Bound;

use super::{Direction, Lockable, TxnError, TxnOptions};
use crate::lock::multi_granularity::X;
use crate::store::{Store, StoreError, TreeHandle};

/// Entries that are looked at together: more than go into a leaf.
const BATCH: usize = 1024;

impl Store {
    /// Appends entries to a tree, in ascending order of keys and above all that it has, and fills
    /// each leaf to `fill_percent`, from 50 to 100; how many there were. Several times faster than
    /// inserts, and not undone: after an error or a crash the tree has the first part of them, in
    /// order. When it returns, they are durable. The tree is locked meanwhile.
    ///
    /// # Errors
    /// [`TxnError::NotAscending`]; [`TxnError::Indexed`], because entries of indexes would not come
    /// in order: make the index afterwards; or another of [`TxnError`].
    pub fn bulk_load<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        tree: &TreeHandle,
        fill_percent: u8,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Result<u64, TxnError> {
        let mut transaction = self.begin(TxnOptions::default());
        transaction.check_to_change(tree)?;
        if tree.entry().indexes() > 0 {
            return Err(TxnError::Indexed);
        }
        transaction.lock(&Lockable::Tree(tree.entry().id), X)?;
        let all = (Bound::Unbounded, Bound::Unbounded);
        let mut last = transaction.cursor(tree, all, Direction::Down)?;
        let mut last = last.next(&mut transaction)?.map(|(key, _)| key.to_vec());

        let (mut loaded, mut entries) = (0, entries.into_iter());
        loop {
            let batch: Vec<(K, V)> = entries.by_ref().take(BATCH).collect();
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
                let count = self.core.on(tree.entry()).load_leaf(rest, fill_percent)?;
                rest = &rest[count..];
            }
            loaded += batch.len() as u64;
        }
        let log = &self.core.log;
        log.force(log.end()).map_err(StoreError::from)?;
        Ok(loaded)
    }
}

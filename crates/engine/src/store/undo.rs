//! Taking changes back: the same way when a transaction rolls back and in recovery.

use crate::btree::{Need, Tree};
use crate::page::{Node, TreeId};
use crate::record::{Cause, Record, Undo};
use crate::txn::Durability;
use crate::wal::Lsn;

use super::recovery::{decode, next_to_undo};
use super::transactions::TxnState;
use super::{Core, StoreError};

impl Core {
    /// The key that the record `lsn` of a transaction has put in, if it has.
    pub(crate) fn inserted_by(&self, lsn: Lsn) -> Result<Option<(TreeId, Vec<u8>)>, StoreError> {
        let payload = self.log.read(lsn)?;
        Ok(match decode(&payload, lsn)? {
            Record::Pages {
                cause: Cause::Update { undo: Undo::Remove { tree, key }, .. }, ..
            } => Some((tree, key.to_vec())),
            _ => None,
        })
    }

    /// Takes back what the record `lsn` of a transaction did; the record to go on with, or zero.
    pub(crate) fn undo_record(&self, state: &TxnState, lsn: Lsn) -> Result<Lsn, StoreError> {
        let payload = self.log.read(lsn)?;
        let Record::Pages { cause, .. } = decode(&payload, lsn)? else {
            return Err(StoreError::Record { lsn, what: "it belongs to no chain of undos" });
        };
        let undo_next = next_to_undo(&cause);
        if undo_next >= lsn {
            return Err(StoreError::Record { lsn, what: "the undo goes on behind it" });
        }
        if let Cause::Update { undo, .. } = cause {
            self.take_back(state, &undo, undo_next)?;
        }
        Ok(undo_next)
    }

    fn take_back(
        &self,
        state: &TxnState,
        undo: &Undo<'_>,
        undo_next: Lsn,
    ) -> Result<(), StoreError> {
        let (Undo::Remove { tree: id, key }
        | Undo::Insert { tree: id, key, .. }
        | Undo::Replace { tree: id, key, .. }) = *undo;
        let Some(entry) = self.catalog.numbered(id) else {
            return Err(StoreError::NoSuchTree { number: id.0 });
        };
        let (pool, log, space) = (&self.pool, &self.log, &self.space);
        let tree = Tree { pool, log, space, entry: &entry };
        let cause = Cause::Compensation { transaction: state.id, undo_next };
        match *undo {
            Undo::Remove { .. } => take_out(tree, key, state, &cause),
            Undo::Insert { value, .. } | Undo::Replace { value, .. } => {
                put_back(tree, key, value, state, &cause)
            }
        }
    }

    /// Rolls a transaction back to the record `until`, which stays; to its beginning if that is
    /// zero.
    pub(crate) fn roll_back(&self, state: &TxnState, until: Lsn) -> Result<(), StoreError> {
        let mut lsn = state.last();
        while lsn > until {
            lsn = self.undo_record(state, lsn)?;
        }
        Ok(())
    }

    /// A transaction is rolled back and done.
    pub(crate) fn end(&self, state: &TxnState) -> Result<(), StoreError> {
        let record = Record::End { transaction: state.id };
        state.log_end(|| self.log.append_with(16, |out| record.encode(out)))?;
        self.transactions.leave(state.id);
        Ok(())
    }

    /// Commits a transaction. Others see what it did without a lock when this has returned: when
    /// it is durable, or, with the lazy level, at once.
    pub(crate) fn commit(
        &self,
        state: &TxnState,
        durability: Durability,
    ) -> Result<(), StoreError> {
        let record = Record::Commit { transaction: state.id };
        let lsn = state.log_end(|| self.log.append_with(16, |out| record.encode(out)))?;
        match durability {
            Durability::Synced => self.log.force(lsn)?,
            Durability::Lazy => self.log.force_soon()?,
        }
        self.transactions.leave(state.id);
        Ok(())
    }
}

fn take_out(
    tree: Tree<'_>,
    key: &[u8],
    state: &TxnState,
    cause: &Cause<'_>,
) -> Result<(), StoreError> {
    let mut leaf = tree.leaf_to_change(key)?;
    let Ok(slot) = Node::new(&leaf).search(key) else {
        return Err(StoreError::Undo { transaction: state.id, what: "its key is not there" });
    };
    state.log(|| tree.remove(&mut leaf, slot, cause))?;
    let is_spare = tree.is_spare(Node::new(&leaf));
    drop(leaf);
    if is_spare {
        tree.tidy(key)?;
    }
    Ok(())
}

fn put_back(
    tree: Tree<'_>,
    key: &[u8],
    value: &[u8],
    state: &TxnState,
    cause: &Cause<'_>,
) -> Result<(), StoreError> {
    let need = Need { key, value_len: value.len() };
    loop {
        let mut leaf = tree.leaf_to_change(key)?;
        if !need.fits(Node::new(&leaf)) {
            drop(leaf);
            tree.make_room(&need)?;
            continue;
        }
        let place = Node::new(&leaf).search(key);
        match place {
            Ok(slot) => state.log(|| tree.replace(&mut leaf, slot, value, cause))?,
            Err(slot) => state.log(|| tree.insert(&mut leaf, slot, key, value, cause))?,
        };
        return Ok(());
    }
}

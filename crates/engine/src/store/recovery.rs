//! Recovery after a crash: analysis, redo, undo (ARIES; Mohan et al., TODS 1992).
//!
//! 1. **Analysis.** From the tables of the last checkpoint and the records since: which pages may
//!    lack a change, and which transactions were not done.
//! 2. **Redo.** Every logged change that a page lacks is made again, also those of transactions
//!    that were not done: history is repeated. A page lacks a change if its LSN is lower.
//! 3. **Undo.** The transactions that were not done are rolled back together, from the last record
//!    of all backward. Each step is logged as a compensation that says where the undo goes on, so
//!    that a crash in the middle of it costs nothing twice.
//!
//! Undo works on trees and not on pages, so the trees must be sound before it begins. They are:
//! every structure change is one record, which redo has made wholly or not at all.

use std::collections::HashMap;

use crate::page::{self, PageId};
use crate::record::{Cause, Pages, Record, TxnId};
use crate::wal::Lsn;

use super::{Core, StoreError};

/// What recovery found and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Pages put back whole after a torn write.
    pub repaired_pages: usize,
    /// Records read.
    pub records: u64,
    /// Changes of pages that were made again.
    pub redone: u64,
    /// Transactions that were rolled back.
    pub rolled_back: usize,
}

/// What analysis finds.
#[derive(Debug, Default)]
pub(super) struct Analysis {
    /// Pages that may lack changes, from which record on.
    dirty: HashMap<PageId, Lsn>,
    /// Transactions that were not done, and their last records.
    losers: HashMap<TxnId, Lsn>,
    /// A number that no transaction has had.
    pub(super) next_transaction: u64,
}

impl Core {
    /// Reads the tables of the checkpoint and the log since.
    pub(super) fn analyse(&self, checkpoint: Lsn) -> Result<Analysis, StoreError> {
        let payload = self.log.read(checkpoint)?;
        let Record::Checkpoint(tables) = decode(&payload, checkpoint)? else {
            return Err(StoreError::Record {
                lsn: checkpoint,
                what: "the head calls it a checkpoint, and it is none",
            });
        };
        let mut analysis = Analysis {
            dirty: tables.dirty.into_iter().collect(),
            losers: tables.active.iter().map(|active| (active.transaction, active.last)).collect(),
            next_transaction: tables.next_transaction,
        };
        let mut reader = self.log.reader(tables.begin);
        while let Some((lsn, payload)) = reader.read_next()? {
            analysis.take(lsn, &decode(payload, lsn)?)?;
        }
        Ok(analysis)
    }

    /// Makes again what pages lack.
    pub(super) fn redo(
        &self,
        analysis: &Analysis,
        recovery: &mut Recovery,
    ) -> Result<(), StoreError> {
        let Some(&from) = analysis.dirty.values().min() else {
            return Ok(());
        };
        let mut reader = self.log.reader(from);
        while let Some((lsn, payload)) = reader.read_next()? {
            recovery.records += 1;
            if let Record::Pages { pages, .. } = decode(payload, lsn)? {
                recovery.redone += self.redo_pages(lsn, pages, &analysis.dirty)?;
            }
        }
        Ok(())
    }

    fn redo_pages(
        &self,
        lsn: Lsn,
        pages: Pages<'_>,
        dirty: &HashMap<PageId, Lsn>,
    ) -> Result<u64, StoreError> {
        let mut redone = 0;
        let decoded = pages.decode().map_err(|bad| StoreError::Record { lsn, what: bad.0 })?;
        for (id, changes) in decoded {
            if dirty.get(&id).is_none_or(|&since| lsn < since) {
                continue;
            }
            let mut page = self.pool.write(id, &self.recovery_counters)?;
            if page::lsn(&page) < lsn {
                page.apply(&changes, lsn)?;
                redone += 1;
            }
        }
        Ok(redone)
    }

    /// Rolls back all transactions that were not done; how many.
    pub(super) fn undo(&self, analysis: &Analysis) -> Result<usize, StoreError> {
        let states: Vec<_> = analysis
            .losers
            .iter()
            .map(|(&id, &last)| self.transactions.enter_known(id, self.log.begin(), last))
            .collect();
        let mut next: Vec<_> = states.iter().map(|state| (state.last(), state)).collect();
        // The latest record of all is undone first.
        while let Some((at, &(lsn, state))) =
            next.iter().enumerate().max_by_key(|(_, (lsn, _))| *lsn)
        {
            let before = self.undo_record(state, lsn)?;
            if before == Lsn::ZERO {
                self.end(state)?;
                next.swap_remove(at);
            } else {
                next[at].0 = before;
            }
        }
        Ok(states.len())
    }
}

pub(super) fn decode(payload: &[u8], lsn: Lsn) -> Result<Record<'_>, StoreError> {
    Record::decode(payload).map_err(|bad| StoreError::Record { lsn, what: bad.0 })
}

impl Analysis {
    fn take(&mut self, lsn: Lsn, record: &Record<'_>) -> Result<(), StoreError> {
        match record {
            Record::Pages { cause, pages } => {
                if let Some(transaction) = cause.transaction() {
                    self.losers.insert(transaction, lsn);
                    self.next_transaction =
                        self.next_transaction.max(transaction.0.saturating_add(1));
                }
                let decoded =
                    pages.decode().map_err(|bad| StoreError::Record { lsn, what: bad.0 })?;
                for (page, _) in decoded {
                    self.dirty.entry(page).or_insert(lsn);
                }
            }
            Record::Commit { transaction } | Record::End { transaction } => {
                self.losers.remove(transaction);
            }
            Record::Checkpoint(_) => {}
        }
        Ok(())
    }
}

/// Where the undo of a transaction goes on after a record, and whether there is something to undo.
pub(super) fn next_to_undo(cause: &Cause<'_>) -> Lsn {
    match *cause {
        Cause::Update { previous, .. } => previous,
        Cause::Compensation { undo_next, .. } => undo_next,
        Cause::Structure => Lsn::ZERO,
    }
}

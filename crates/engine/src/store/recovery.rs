//! Recovery after a crash: analysis, redo, undo (ARIES; Mohan et al., TODS 1992).
//!
//! 1. **Analysis.** From the tables of the last checkpoint and the records since: which pages may
//!    lack a change, and which transactions were not done.
//! 2. **Redo.** Every logged change that a page lacks is made again, also those of transactions
//!    that were not done: history is repeated. A page lacks a change if its LSN is lower. A page
//!    that lacks none is written again as well: it may have been read from the system's memory, and
//!    on the disk be what it was before, because the process was killed before the sync, or the
//!    sync failed. A change
//!    depends on nothing but its page, so the log is taken in stretches, and the changes of a
//!    stretch are made page after page: each page is read and written once for all of them, and in
//!    the order of the file, also where the buffer holds few of them.
//! 3. **Undo.** The transactions that were not done are rolled back together, from the last record
//!    of all backward. Each step is logged as a compensation that says where the undo goes on, so
//!    that a crash in the middle of it costs nothing twice.
//!
//! 4. **What is left to free.** Long values that were removed, and the pages of dropped trees.
//!
//! Undo works on trees and not on pages, so the trees must be sound before it begins. They are:
//! every structure change is one record, which redo has made wholly or not at all.

use std::collections::HashMap;

use crate::core::{Core, StoreError, Transactions, bad_record, decode_record};
use crate::page::{self, PageId};
use crate::record::{CheckpointTables, PageChanges, Pages, Record, TxnId};
use crate::wal::Lsn;

/// What recovery found and did when a store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Pages put back whole after a torn write.
    pub repaired_pages: usize,
    /// Log records read for redo.
    pub records: u64,
    /// Pages that were changed since the last checkpoint, all of which are written again.
    pub pages: u64,
    /// Changes of pages that were made again.
    pub redone: u64,
    /// Transactions that were rolled back.
    pub rolled_back: usize,
    /// Dropped trees, indexes among them, whose last pages were freed.
    pub dropped_trees: usize,
}

/// What analysis finds.
#[derive(Debug, Default)]
struct Analysis {
    /// Pages that may lack changes, from which record on.
    dirty: HashMap<PageId, Lsn>,
    /// Transactions that were not done, and their last records.
    losers: HashMap<TxnId, Lsn>,
    /// A number that no transaction has had.
    next_transaction: u64,
}

impl Analysis {
    /// Returns whether there is nothing to redo and nothing to undo.
    fn is_empty(&self) -> bool {
        self.dirty.is_empty() && self.losers.is_empty()
    }
}

impl Core {
    /// Loads a store that was closed.
    ///
    /// # Errors
    /// [`StoreError::NotClosed`] if there is something to recover.
    pub(super) fn load_closed(&mut self) -> Result<(), StoreError> {
        let checkpoint = self.head.lock().checkpoint;
        let analysis = self.analyse(checkpoint.record)?;
        if !analysis.is_empty() {
            return Err(StoreError::NotClosed);
        }
        self.transactions = Transactions::new(analysis.next_transaction);
        self.allocator.check(&self.pool)?;
        self.load_catalog()
    }

    /// Recovers a store of which `repaired_pages` torn pages were put back.
    pub(super) fn recover(&mut self, repaired_pages: usize) -> Result<Recovery, StoreError> {
        let mut recovery = Recovery { repaired_pages, ..Recovery::default() };
        let checkpoint = self.head.lock().checkpoint;
        let analysis = self.analyse(checkpoint.record)?;
        self.transactions = Transactions::new(analysis.next_transaction);
        self.redo(&analysis, &mut recovery)?;
        self.allocator.check(&self.pool)?;
        self.load_catalog()?;
        recovery.rolled_back = self.undo(&analysis)?;
        let freed = self.free_marked()?;
        recovery.dropped_trees = self.finish_drops()?;
        let done = [recovery.rolled_back, recovery.dropped_trees, freed];
        if recovery.pages > 0 || done.iter().any(|&count| count > 0) {
            self.pool.write_all()?;
            self.checkpoint()?;
        }
        Ok(recovery)
    }

    /// Reads the tables of the checkpoint and the log since.
    fn analyse(&self, checkpoint: Lsn) -> Result<Analysis, StoreError> {
        let tables = self.checkpoint_tables(checkpoint)?;
        let mut analysis = Analysis {
            dirty: tables.dirty.into_iter().collect(),
            losers: tables.active.iter().map(|active| (active.transaction, active.last)).collect(),
            next_transaction: tables.next_transaction,
        };
        let mut reader = self.log.reader(tables.begin);
        while let Some((lsn, payload)) = reader.read_next()? {
            analysis.take(lsn, &decode_record(payload, lsn)?)?;
        }
        Ok(analysis)
    }

    /// Returns the tables of a checkpoint, put together from the record `last` and those before it.
    fn checkpoint_tables(&self, last: Lsn) -> Result<CheckpointTables, StoreError> {
        let mut all = CheckpointTables { earlier: last, ..CheckpointTables::default() };
        while all.earlier != Lsn::ZERO {
            let lsn = all.earlier;
            let bad = |what| StoreError::Record { lsn, what };
            let payload = self.log.read(lsn)?;
            let Record::Checkpoint(tables) = decode_record(&payload, lsn)? else {
                return Err(bad("the head calls it a checkpoint, and it is none"));
            };
            if tables.earlier >= lsn {
                return Err(bad("the checkpoint goes on behind itself"));
            }
            all.dirty.extend(tables.dirty);
            all.active.extend(tables.active);
            let CheckpointTables { earlier, begin, next_transaction, .. } = tables;
            (all.earlier, all.begin, all.next_transaction) = (earlier, begin, next_transaction);
        }
        Ok(all)
    }

    /// Redoes the changes that pages lack.
    fn redo(&self, analysis: &Analysis, recovery: &mut Recovery) -> Result<(), StoreError> {
        let Some(&from) = analysis.dirty.values().min() else {
            return Ok(());
        };
        let buffer = self.pool.frames() * self.pool.page_size().bytes();
        let limit = (buffer / 2).clamp(STRETCH_MIN, STRETCH_MAX);
        let mut stretch = LogStretch::default();
        let mut reader = self.log.reader(from);
        while let Some((lsn, payload)) = reader.read_next()? {
            recovery.records += 1;
            if let Record::Pages { pages, .. } = decode_record(payload, lsn)? {
                stretch.take(lsn, pages)?;
            }
            if stretch.bytes.len() >= limit {
                self.redo_stretch(&mut stretch, &analysis.dirty, recovery)?;
            }
        }
        self.redo_stretch(&mut stretch, &analysis.dirty, recovery)
    }

    /// Makes the changes of a stretch that pages lack, page after page, and counts them. It is
    /// empty then.
    fn redo_stretch(
        &self,
        stretch: &mut LogStretch,
        dirty: &HashMap<PageId, Lsn>,
        recovery: &mut Recovery,
    ) -> Result<(), StoreError> {
        // Those of a page stay in the order of the log.
        stretch.changes.sort_by_key(|change| change.page);
        for changes in stretch.changes.chunk_by(|one, other| one.page == other.page) {
            debug_assert!(changes.is_sorted_by_key(|change| change.lsn), "in the order of the log");
            let (id, last) = (changes[0].page, &changes[changes.len() - 1]);
            let Some(&since) = dirty.get(&id).filter(|&&since| since <= last.lsn) else {
                continue;
            };
            let mut page = self.pool.write(id, &self.recovery_counters)?;
            recovery.pages += 1;
            for &Logged { lsn, at, len, .. } in changes.iter().filter(|change| change.lsn >= since)
            {
                debug_assert!(lsn >= since, "what is older is on the disk");
                page.write_since(lsn);
                if page::lsn(&page) >= lsn {
                    continue;
                }
                let changes = PageChanges::of(id, &stretch.bytes[at..at + len]).decode();
                page.apply(&changes.map_err(|bad| bad_record(lsn, bad))?, lsn)?;
                recovery.redone += 1;
            }
        }
        stretch.bytes.clear();
        stretch.changes.clear();
        Ok(())
    }

    /// Rolls back all transactions that were not done. Returns how many.
    fn undo(&self, analysis: &Analysis) -> Result<usize, StoreError> {
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
            debug_assert!(before < lsn, "undo goes backward");
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

/// Bytes of changes that are collected at once: half of the buffer, within these.
const STRETCH_MIN: usize = 1 << 20;
const STRETCH_MAX: usize = 256 << 20;

/// Changes of pages from a stretch of the log.
#[derive(Default)]
struct LogStretch {
    changes: Vec<Logged>,
    bytes: Vec<u8>,
}

/// The changes of a page by one record; they are in [`LogStretch::bytes`].
struct Logged {
    page: PageId,
    lsn: Lsn,
    at: usize,
    len: usize,
}

impl LogStretch {
    fn take(&mut self, lsn: Lsn, pages: Pages<'_>) -> Result<(), StoreError> {
        for page in pages.split() {
            let page = page.map_err(|bad| bad_record(lsn, bad))?;
            let (at, len) = (self.bytes.len(), page.bytes().len());
            self.bytes.extend_from_slice(page.bytes());
            self.changes.push(Logged { page: page.page, lsn, at, len });
        }
        Ok(())
    }
}

impl Analysis {
    fn take(&mut self, lsn: Lsn, record: &Record<'_>) -> Result<(), StoreError> {
        match record {
            Record::Pages { cause, pages } => {
                if let Some(transaction) = cause.transaction() {
                    self.losers.insert(transaction, lsn);
                    let Some(next) = transaction.0.checked_add(1) else {
                        let what = "its transaction has the highest number there is";
                        return Err(StoreError::Record { lsn, what });
                    };
                    self.next_transaction = self.next_transaction.max(next);
                }
                for page in pages.split() {
                    let page = page.map_err(|bad| bad_record(lsn, bad))?;
                    self.dirty.entry(page.page).or_insert(lsn);
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

//! Transactions that have logged something: what checkpoints must know of them, and their ends.
//!
//! A transaction is rolled back in the same way when its client asks for it and in recovery.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tidegate_runtime::sync::Mutex;
use tidegate_runtime::thread;

use super::{Core, StoreError, decode_record};
use crate::btree::{NewEntry, Tree};
use crate::buffer::BufferError;
use crate::page::{Node, TreeId};
use crate::record::{Active, Cause, Record, TxnId, Undo};
use crate::wal::{Log, Lsn};

/// When a commit returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When the transaction is durable.
    #[default]
    Synced,
    /// At once. The transaction is durable within
    /// [`LogSettings::lazy_sync`](crate::wal::LogSettings::lazy_sync).
    Lazy,
}

/// What is known of a transaction that has logged something.
#[derive(Debug)]
pub(crate) struct TxnState {
    pub(crate) id: TxnId,
    /// No record of it is before this one.
    first: Lsn,
    last: AtomicU64,
    /// A record may be in the log that `last` does not know yet.
    is_logging: AtomicBool,
    /// The record that ends the transaction is in the log.
    is_done: AtomicBool,
}

impl TxnState {
    pub(crate) fn last(&self) -> Lsn {
        Lsn(self.last.load(Ordering::Acquire))
    }

    /// Logs a record by `append` and remembers it as the last. A checkpoint that falls in between
    /// waits, see [`Transactions::active`].
    pub(crate) fn log(
        &self,
        append: impl FnOnce() -> Result<Lsn, BufferError>,
    ) -> Result<Lsn, BufferError> {
        self.is_logging.store(true, Ordering::SeqCst);
        let appended = append();
        if let Ok(lsn) = appended {
            debug_assert!(lsn > self.last() && lsn >= self.first, "records follow each other");
            self.last.store(lsn.0, Ordering::Release);
        }
        self.is_logging.store(false, Ordering::Release);
        appended
    }

    /// Logs the record that ends the transaction by `append`. From then on no checkpoint takes it
    /// for one that is under way: recovery would roll it back, not having read that record.
    pub(crate) fn log_end<E>(&self, append: impl FnOnce() -> Result<Lsn, E>) -> Result<Lsn, E> {
        debug_assert!(!self.is_done.load(Ordering::Relaxed), "a transaction ends once");
        self.is_logging.store(true, Ordering::SeqCst);
        let appended = append();
        if appended.is_ok() {
            self.is_done.store(true, Ordering::Release);
        }
        self.is_logging.store(false, Ordering::Release);
        appended
    }
}

/// All transactions that have logged something and are not done.
pub(crate) struct Transactions {
    next: AtomicU64,
    /// Below this LSN all is committed and durable; it only grows.
    settled: AtomicU64,
    active: Mutex<HashMap<TxnId, Arc<TxnState>>>,
}

impl Transactions {
    pub(crate) fn new(next: u64) -> Transactions {
        let (next, settled) = (AtomicU64::new(next), AtomicU64::new(0));
        Transactions { next, settled, active: Mutex::default() }
    }

    pub(crate) fn next_id(&self) -> TxnId {
        TxnId(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns a number that no transaction has had.
    pub(crate) fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Adds a transaction, before its first record.
    pub(crate) fn enter(&self, id: TxnId, log: &Log) -> Arc<TxnState> {
        self.enter_known(id, log.end(), Lsn::ZERO)
    }

    /// Adds a transaction that recovery found.
    pub(crate) fn enter_known(&self, id: TxnId, first: Lsn, last: Lsn) -> Arc<TxnState> {
        let state = Arc::new(TxnState {
            id,
            first,
            last: AtomicU64::new(last.0),
            is_logging: AtomicBool::new(false),
            is_done: AtomicBool::new(false),
        });
        debug_assert!(last == Lsn::ZERO || first <= last, "no record is before the first");
        let before = self.active.lock().insert(id, Arc::clone(&state));
        debug_assert!(before.is_none(), "a transaction's number is its own");
        state
    }

    /// Returns whether all that a page holds is committed and durable, by its LSN. A reader of what
    /// is committed then needs no lock (Mohan, "`Commit_LSN`: a novel and simple method for
    /// reducing locking and latching in transaction processing systems", VLDB 1990).
    pub(crate) fn is_settled(&self, page: Lsn, log: &Log) -> bool {
        page.0 < self.settled.load(Ordering::Acquire) || page.0 < self.settle(log)
    }

    fn settle(&self, log: &Log) -> u64 {
        let active = self.active.lock();
        // The transaction that enters after this logs behind what is durable now.
        let durable = log.durable();
        debug_assert!(durable <= log.end());
        let first = active.values().map(|state| state.first).min();
        drop(active);
        let settled = first.map_or(durable, |first| first.min(durable)).0;
        self.settled.fetch_max(settled, Ordering::AcqRel).max(settled)
    }

    /// Removes a transaction that is done.
    pub(crate) fn leave(&self, id: TxnId) {
        let was_there = self.active.lock().remove(&id).is_some();
        debug_assert!(was_there, "a transaction ends once");
    }

    pub(crate) fn count(&self) -> usize {
        self.active.lock().len()
    }

    /// Transactions under way, and before which record none of them has any. Records that were
    /// appended before the call are taken into account: who appends one says so before, and the
    /// log's order of things makes that visible.
    pub(crate) fn active(&self) -> (Vec<Active>, Option<Lsn>) {
        let states: Vec<Arc<TxnState>> = self.active.lock().values().cloned().collect();
        let mut active = Vec::with_capacity(states.len());
        for state in &states {
            while state.is_logging.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            let last = state.last();
            if last > Lsn::ZERO && !state.is_done.load(Ordering::Acquire) {
                active.push(Active { transaction: state.id, last });
            }
        }
        active.sort_by_key(|active| active.transaction);
        (active, states.iter().map(|state| state.first).min())
    }
}

impl Core {
    /// Returns the key that the record `lsn` of a transaction has inserted, if it has.
    pub(crate) fn inserted_by(&self, lsn: Lsn) -> Result<Option<(TreeId, Vec<u8>)>, StoreError> {
        let payload = self.log.read(lsn)?;
        Ok(match decode_record(&payload, lsn)? {
            Record::Pages {
                cause: Cause::Update { undo: Undo::Remove { tree, key }, .. }, ..
            } => Some((tree, key.to_vec())),
            _ => None,
        })
    }

    /// Undoes what the record `lsn` of a transaction did. Returns the record to undo next, or zero.
    pub(crate) fn undo_record(&self, state: &TxnState, lsn: Lsn) -> Result<Lsn, StoreError> {
        let payload = self.log.read(lsn)?;
        let Record::Pages { cause, .. } = decode_record(&payload, lsn)? else {
            return Err(StoreError::Record { lsn, what: "it belongs to no chain of undos" });
        };
        if cause.transaction() != Some(state.id) {
            return Err(StoreError::Record { lsn, what: "it is of another transaction" });
        }
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
        let tree = self.tree(&entry);
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
        debug_assert!(until <= state.last(), "a savepoint lies before the last record");
        let mut lsn = state.last();
        while lsn > until {
            lsn = self.undo_record(state, lsn)?;
        }
        Ok(())
    }

    /// Ends a transaction that is rolled back.
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
        debug_assert!(state.last() > Lsn::ZERO, "who has changed nothing commits nothing");
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
    let is_underfull = tree.is_underfull(Node::new(&leaf));
    drop(leaf);
    if is_underfull {
        tree.merge_underfull(key)?;
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
    let need = NewEntry { key, value_len: value.len() };
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

/// Returns the record at which the undo of a transaction goes on after a record; zero for none.
fn next_to_undo(cause: &Cause<'_>) -> Lsn {
    match *cause {
        Cause::Update { previous, .. } => previous,
        Cause::Compensation { undo_next, .. } => undo_next,
        Cause::Structure => Lsn::ZERO,
    }
}

//! Transactions that are under way, and what recovery and checkpoints must know of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::buffer::BufferError;
use crate::record::{Active, TxnId};
use crate::wal::{Log, Lsn};

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
            self.last.store(lsn.0, Ordering::Release);
        }
        self.is_logging.store(false, Ordering::Release);
        appended
    }

    /// Logs the record that ends the transaction by `append`. From then on no checkpoint takes it
    /// for one that is under way: recovery would roll it back, not having read that record.
    pub(crate) fn log_end<E>(&self, append: impl FnOnce() -> Result<Lsn, E>) -> Result<Lsn, E> {
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

    /// A number that no transaction has had.
    pub(crate) fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Enters a transaction, before its first record.
    pub(crate) fn enter(&self, id: TxnId, log: &Log) -> Arc<TxnState> {
        self.enter_known(id, log.end(), Lsn::ZERO)
    }

    /// Enters a transaction that recovery found.
    pub(crate) fn enter_known(&self, id: TxnId, first: Lsn, last: Lsn) -> Arc<TxnState> {
        let state = Arc::new(TxnState {
            id,
            first,
            last: AtomicU64::new(last.0),
            is_logging: AtomicBool::new(false),
            is_done: AtomicBool::new(false),
        });
        self.active.lock().insert(id, Arc::clone(&state));
        state
    }

    /// Whether all that a page holds is committed and durable, by its LSN: then whoever wants to
    /// see what is committed needs no lock (Mohan, "`Commit_LSN`: a novel and simple method for
    /// reducing locking and latching in transaction processing systems", VLDB 1990).
    pub(crate) fn is_settled(&self, page: Lsn, log: &Log) -> bool {
        page.0 < self.settled.load(Ordering::Acquire) || page.0 < self.settle(log)
    }

    fn settle(&self, log: &Log) -> u64 {
        let active = self.active.lock();
        // Whoever enters after this logs behind what is durable now.
        let durable = log.durable();
        let first = active.values().map(|state| state.first).min();
        drop(active);
        let settled = first.map_or(durable, |first| first.min(durable)).0;
        self.settled.fetch_max(settled, Ordering::AcqRel).max(settled)
    }

    /// A transaction is done.
    pub(crate) fn leave(&self, id: TxnId) {
        self.active.lock().remove(&id);
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
                std::thread::yield_now();
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

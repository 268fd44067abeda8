//! What is counted of locks on nodes: of a transaction, and of a store.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_engine::lock::{LockError, LockStatistics, LockerFigures};
use tidegate_engine::{ModeStatistics, TxnError};

use crate::store::{XmlStore, XmlTransaction};

/// What a transaction has done to lock documents: nodes, gaps, and entries of indexes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LockFigures {
    /// Requests to the lock manager, also those for which nothing was to be done.
    pub requests: u64,
    /// Locks that were granted on what was not held before.
    pub locks: u64,
    /// Locks that were granted in a stronger mode than the one held before.
    pub conversions: u64,
    /// Locks that took the place of many below.
    pub escalations: u64,
    /// Requests that waited.
    pub waits: u64,
    /// Time spent in these waits.
    pub block_time: Duration,
    /// Time spent in requests for nodes and gaps, waits included. Zero unless
    /// [`Locking::is_timed`](super::Locking::is_timed).
    pub request_time: Duration,
}

/// What a request was about that ended a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConflictPlace {
    /// A node, a list or a subtree.
    Node,
    /// A gap between nodes, or the place of an attribute.
    Edge,
    /// An entry of an index, or something that is no node.
    Entry,
}

/// Conflicts that ended transactions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConflictCounts {
    /// Transactions that were chosen to break a deadlock.
    pub deadlocks: u64,
    /// Those that waited too long.
    pub timeouts: u64,
    /// Those that gave way to a higher priority.
    pub preemptions: u64,
}

/// Conflicts on nodes and edges by cause. The engine counts those on entries.
#[derive(Debug, Default)]
pub(in crate::store) struct ConflictCounters([[AtomicU64; 3]; 2]);

impl ConflictCounters {
    /// Counts the end of a transaction that asked for a node or an edge.
    pub(super) fn count(&self, is_edge: bool, error: &TxnError) {
        let TxnError::Conflict(cause) = error else { return };
        let cause = match cause {
            LockError::Deadlock => 0,
            LockError::TimedOut => 1,
            LockError::Preempted => 2,
        };
        self.0[usize::from(is_edge)][cause].fetch_add(1, Ordering::Relaxed);
    }
}

impl XmlStore {
    /// Returns how many transactions were ended by conflicts since the store was opened, by what
    /// they asked for last.
    #[must_use]
    pub fn conflict_counts(&self) -> [(ConflictPlace, ConflictCounts); 3] {
        let entries = self.engine.locks().statistics();
        let counted = |place: ConflictPlace| {
            let of = |cause: usize| self.conflicts.0[place as usize][cause].load(Ordering::Relaxed);
            ConflictCounts { deadlocks: of(0), timeouts: of(1), preemptions: of(2) }
        };
        let entries = ConflictCounts {
            deadlocks: entries.deadlocks,
            timeouts: entries.timeouts,
            preemptions: entries.preemptions,
        };
        [
            (ConflictPlace::Node, counted(ConflictPlace::Node)),
            (ConflictPlace::Edge, counted(ConflictPlace::Edge)),
            (ConflictPlace::Entry, entries),
        ]
    }

    /// Returns what was counted of locks on nodes and gaps since the store was opened or its modes
    /// were exchanged, escalations among them.
    #[must_use]
    pub fn node_lock_statistics(&self) -> LockStatistics {
        self.locks.space().statistics()
    }

    /// Returns the same by mode.
    #[must_use]
    pub fn node_lock_statistics_by_mode(&self) -> Vec<ModeStatistics> {
        self.locks.space().statistics_by_mode()
    }
}

impl XmlTransaction<'_> {
    /// Returns what the transaction has done to lock documents until now.
    #[must_use]
    pub fn lock_figures(&self) -> LockFigures {
        let transaction = self.inner.borrow();
        let mut all = transaction.label_lock_figures();
        all += transaction.key_lock_figures();
        let LockerFigures { requests, locks, conversions, escalations, waits, wait_time } = all;
        let (block_time, request_time) = (wait_time, self.locks.request_time.get());
        LockFigures { requests, locks, conversions, escalations, waits, block_time, request_time }
    }
}

//! The lock manager: who may use what together, in which order, and who gives up.
//!
//! It knows resources as values that can be compared, and modes as rows of a table. What a page, a
//! tree or a transaction is, it does not know.
//!
//! # Mechanism
//! The lock table is split into buckets by the hash of the resource, each behind its own latch. In
//! a bucket every resource that several have locked has a head with the requests that are granted
//! and the queue of those that wait; `queues.rs` states the rules of the queue. A lock that no
//! locker shares takes a place on the cache lines of the latch, and intention locks on what
//! contains other resources are kept by the threads that take them, until a locker asks for more:
//! see `table.rs` and `intents.rs`. A transaction has a [`Locker`], which knows what it holds:
//! asking again costs nothing, and releasing all takes no search. A request that has to wait parks
//! its thread; the locker that gives the lock up grants it in the waiter's name, so that a thread
//! that wakes holds its lock. A [`Detector`] looks for deadlocks from time to time.
//!
//! | file | what it holds |
//! | --- | --- |
//! | [`modes`] | which modes go together, as data; IS IX S SIX U X |
//! | `queues`, `hash_slab` | the queues and their rules, and how a wait ends |
//! | `table`, `intents` | buckets and latches; locks that need no queue: sole ones, intentions |
//! | `locker` | the locks of one transaction; waiting; escalation; preemption |
//! | [`deadlock`] | the search for deadlocks, and the graph it searches |
//!
//! # Example
//! Two readers of a row that both come to write it:
//!
//! ```text
//! T1: S(a) granted       T2: S(a) granted
//! T1: X(a) waits for T2  T2: X(a) waits for T1: one of the two is rolled back
//!
//! T1: U(a) granted       T2: U(a) waits, S(a) would wait too
//! T1: X(a) granted, as soon as those who read before are gone
//! ```
//!
//! ```
//! use tidegate_engine::lock::multi_granularity::{S, X};
//! use tidegate_engine::lock::{LockManager, LockSettings, ModeTable, Priority, Wait};
//!
//! let table = LockManager::new(ModeTable::multi_granularity(), LockSettings::default());
//! let mut reader = table.locker(Priority::default());
//! let mut writer = table.locker(Priority::default());
//! reader.lock(&"row", S, Wait::Forever)?;
//! assert!(!writer.try_lock(&"row", X)?);
//! reader.release_all();
//! assert!(writer.try_lock(&"row", X)?);
//! # Ok::<(), tidegate_engine::lock::LockError>(())
//! ```
//!
//! # Priorities
//! With [`Priorities::PreemptOnWait`] a request passes those of lower priority in the queue, though
//! no new request passes a conversion. A locker of lower priority that is in its way keeps its
//! locks as long as it runs, and is rolled back when it waits for another locker, be it already or
//! later. This is POW, of which the external scheduling study makes its Setup 1 (Section 5.2).
//!
//! # Where this leaves the literature
//! * **Order.** In the lock manager of Gray and Reuter (Transaction Processing, chapter 8) every
//!   new request waits behind a queue. Here one that goes with all who wait passes them, since it
//!   delays no other request: an intention to read does not wait behind an intention to write that
//!   waits for a scan.
//! * **Group mode.** Theirs is one mode, the supremum of what is granted. Here it is the set, in
//!   one word: the same test by one AND, exact where compatibility is not symmetric, and a locker
//!   can be left out of it when its own lock is converted.
//! * **Preemption.** POW has two priorities (`McWherter`, Schroeder, Ailamaki, Harchol-Balter,
//!   Improving Preemptive Prioritization via Statistical Characterization of OLTP Locking, ICDE
//!   2005). Here there are 256, and whatever waits gives way to whatever is higher. A conversion of
//!   lower priority ahead in the queue is in the way like a holder, which its locker is.
//! * The modules [`modes`] and [`deadlock`], and the file `locker.rs`, say where they differ.
//!
//! # Limits
//! * A thread that waits with one locker while it owns another can wait for itself, unseen.
//! * Memory for locks is used again but not released, until the table is dropped.
//! * No latch is held while the client's code runs, except `Hash`, `Eq`, `Clone` and `Drop` of the
//!   resource. If one of those panics, the table is not to be used any more.

pub mod deadlock;
mod hash_slab;
mod intents;
mod locker;
pub mod modes;
mod queues;
mod table;

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use thiserror::Error;

pub use deadlock::Detector;
pub use locker::Locker;
pub use modes::{Mode, ModeTable, ModeTableError, multi_granularity};
pub use queues::{LockQueue, LockRequest, LockerId, LockerWatch};
pub use table::{Escalation, Hierarchy, LockManager, LockStatistics, Parent, ParentOf};

/// Why a lock was not granted. The same transaction may well succeed when it is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LockError {
    /// It waited for another locker that waited for it, and was chosen to give up.
    #[error("chosen to break a deadlock; roll the transaction back and try it again")]
    Deadlock,
    /// The wait was longer than allowed. The locker can go on without the lock.
    #[error("the lock was not granted in time; try again, or allow a longer wait")]
    TimedOut,
    /// It waited and was in the way of a higher priority. All its further requests fail, until it
    /// has released its locks.
    #[error("gave way to a higher priority; roll the transaction back and try it again")]
    Preempted,
}

/// What can be locked. Small values that are cheap to clone and to compare are best.
pub trait Resource: Eq + Hash + Clone + Debug + Send + Sync + 'static {}

impl<T: Eq + Hash + Clone + Debug + Send + Sync + 'static> Resource for T {}

/// On cache lines of its own, two because they are fetched in pairs.
#[repr(align(128))]
pub(super) struct Padded<T>(pub(super) T);

/// Settings of a [`LockManager`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockSettings {
    /// How long a request waits unless it says otherwise; `None` waits as long as it takes.
    pub timeout: Option<Duration>,
    /// Who is rolled back to break a deadlock.
    pub victim: Victim,
    /// Whether each request that has to wait looks for a deadlock at once. Finds them without a
    /// detector and without delay, and costs each wait a walk along the waits ahead of it.
    pub check_on_block: bool,
    /// What priorities do in the queues.
    pub priorities: Priorities,
    /// Latches of the lock table; raised to a power of two, from 2 to 65,536. Threads that lock
    /// different resources meet at a latch with one chance in as many.
    pub buckets: u32,
}

impl Default for LockSettings {
    fn default() -> LockSettings {
        LockSettings {
            timeout: Some(Duration::from_secs(10)),
            victim: Victim::FewestLocks,
            check_on_block: false,
            priorities: Priorities::Ignored,
            buckets: 4096,
        }
    }
}

/// Who of those in a deadlock is rolled back. Among equals it is the youngest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// Who holds the fewest locks, and so has likely done the least.
    FewestLocks,
    /// Who began last: the oldest always gets through.
    Youngest,
    /// Who has the lowest priority; among those, who holds the fewest locks.
    LowestPriority,
}

/// What priorities do in the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priorities {
    /// They do nothing: first come, first served.
    Ignored,
    /// A request passes those of lower priority, and a locker of lower priority that is in its way
    /// while it waits itself is rolled back. See [the module](super#priorities).
    PreemptOnWait,
}

/// The priority of a locker; a higher number goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(pub u8);

/// How long a request may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// As long as [`LockSettings::timeout`] says.
    AsSet,
    /// Without a bound.
    Forever,
    /// At most this long.
    For(Duration),
}

impl Wait {
    /// Returns the longest wait; `None` for no bound.
    pub(super) fn at_most(self, settings: &LockSettings) -> Option<Duration> {
        match self {
            Wait::AsSet => settings.timeout,
            Wait::Forever => None,
            Wait::For(limit) => Some(limit),
        }
    }
}

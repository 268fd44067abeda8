//! The lock manager: who may use what together, in which order, and who gives up.
//!
//! It knows resources as values that can be compared, and modes as rows of a table. What a page, a
//! tree or a transaction is, it does not know.
//!
//! # Mechanism
//! The lock table is split into buckets by the hash of the resource, each behind its own latch. In
//! a bucket every resource that several have locked has a head with the requests that are granted
//! and the queue of those that wait; `queues.rs` states the rules of the queue. A lock that nobody
//! shares takes a place on the cache lines of the latch, and intention locks on what contains other
//! resources are kept by the threads that take them, until somebody asks for more: see `bucket.rs`
//! and `intents.rs`. A transaction has a [`Locker`], which knows what it holds: asking again costs
//! nothing, and giving all back takes no search. A request that has to wait parks its thread;
//! whoever gives the lock up grants it in the waiter's name, so that a thread that wakes holds its
//! lock. A [`Detector`] looks for deadlocks from time to time.
//!
//! | file | what it holds |
//! | --- | --- |
//! | [`modes`], [`multi_granularity`] | which modes go together, as data; IS IX S SIX U X |
//! | `queues`, `hash_slab` | the queues and their rules, without threads or time |
//! | `bucket`, `intents` | locks that need no queue: of one locker alone, and of intention |
//! | `manager`, `locker`, `locker_state` | latches, waiting and waking |
//! | [`deadlock`], `waits_for` | the search, and the graph it searches |
//! | `preempt`, [`escalation`] | two policies on top |
//! | `settings`, `statistics` | what goes in, and what can be seen |
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
//! locks as long as it runs, and is rolled back when it waits for somebody else, be it already or
//! later. This is POW, of which the external scheduling study makes its Setup 1 (Section 5.2).
//!
//! # Where this leaves the literature
//! * **Order.** In the lock manager of Gray and Reuter (Transaction Processing, chapter 8) every
//!   new request waits behind a queue. Here one that goes with all who wait passes them, since it
//!   delays nobody: an intention to read does not wait behind an intention to write that waits for
//!   a scan.
//! * **Group mode.** Theirs is one mode, the supremum of what is granted. Here it is the set, in
//!   one word: the same test by one AND, exact where compatibility is not symmetric, and a locker
//!   can be left out of it when its own lock is converted.
//! * **Preemption.** POW has two priorities (`McWherter`, Schroeder, Ailamaki, Harchol-Balter,
//!   Improving Preemptive Prioritization via Statistical Characterization of OLTP Locking, ICDE
//!   2005). Here there are 256, and whatever waits gives way to whatever is higher. A conversion of
//!   lower priority ahead in the queue is in the way like a holder, which its locker is.
//! * The modules [`modes`], [`deadlock`] and [`escalation`] say where they differ.
//!
//! # Limits
//! * A thread that waits with one locker while it owns another can wait for itself, unseen.
//! * Memory for locks is used again but not given back, until the table is dropped.
//! * No latch is held while the client's code runs, except `Hash`, `Eq`, `Clone` and `Drop` of the
//!   resource. If one of those panics, the table is not to be used any more.

mod bucket;
pub mod deadlock;
pub mod escalation;
mod hash_slab;
mod intents;
mod locker;
mod locker_state;
mod manager;
pub mod modes;
pub mod multi_granularity;
mod preempt;
mod queues;
mod settings;
mod statistics;
mod waits_for;

use thiserror::Error;

pub use deadlock::Detector;
pub use escalation::{Escalation, Parent};
pub use locker::Locker;
pub use locker_state::{LockerId, LockerWatch};
pub use manager::{Hierarchy, LockManager, Resource};
pub use modes::{Mode, ModeTable, ModeTableError};
pub use queues::{LockQueue, LockRequest};
pub use settings::{LockSettings, Priorities, Priority, Victim, Wait};
pub use statistics::LockStatistics;

/// Why a lock was not granted. The same transaction may well succeed when it is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LockError {
    /// It waited for somebody who waited for it, and was chosen to give up.
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

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
//! | file | mechanism |
//! | --- | --- |
//! | this one | the manager: settings, what contains what, what is seen and counted |
//! | [`modes`] | which modes go together, as data; IS IX S SIX U X |
//! | `queues` | the queues: grant and conversion |
//! | `locker_state` | how a wait begins and ends |
//! | `table` | where a lock is written down: buckets, sole locks' places |
//! | `intents` | intention locks, in stripes |
//! | `locker` | the locks of one transaction; waiting; escalation |
//! | `path` | a lock with those that it needs on what contains the resource |
//! | [`deadlock`] | who gives up: the search for deadlocks, and preemption |
//! | `group` | tables that are searched for deadlocks together |
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
mod group;
mod intents;
#[cfg(test)]
mod intents_tests;
mod locker;
mod locker_state;
pub mod modes;
mod path;
mod queues;
mod table;

use std::collections::HashMap;
use std::fmt::{self, Debug};
use std::hash::Hash;
use std::iter::Sum;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use thiserror::Error;
use tidegate_runtime::sync::Mutex;

use crate::hash_slab::hash_of;
use group::TableGroup;
use intents::{Intent, Intents, own_stripe};
use locker_state::{BucketNumber, LockerState, Outcome};
use queues::Rules;
use table::{Bucket, Load};

pub use deadlock::Detector;
pub use locker::{Locker, LockerFigures};
pub use locker_state::{LockerId, LockerWatch};
pub use modes::{MODES_MAX, Mode, ModeTable, ModeTableError, multi_granularity};
pub use path::LockPath;
pub use queues::{LockQueue, LockRequest};

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
struct Padded<T>(T);

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
    fn at_most(self, settings: &LockSettings) -> Option<Duration> {
        match self {
            Wait::AsSet => settings.timeout,
            Wait::Forever => None,
            Wait::For(limit) => Some(limit),
        }
    }
}

/// Which resource contains one, if any.
pub type ParentOf<R> = Box<dyn Fn(&R) -> Option<R> + Send + Sync>;

/// How many parts of a resource a locker of a policy locks before it locks the whole.
pub type PartsMax<R> = Box<dyn Fn(&R, EscalationPolicy) -> u32 + Send + Sync>;

/// Which locks on parts become one lock on the whole.
pub struct Escalation<R> {
    /// The resource that contains one; `None` where nothing escalates any further. Going from
    /// parent to parent must end.
    pub parent: ParentOf<R>,
    /// Locks that one locker may hold on the parts of a resource before the whole is locked.
    pub parts_max: PartsMax<R>,
    /// The mode on the parent that covers a mode on every part.
    pub covering: Box<dyn Fn(Mode) -> Mode + Send + Sync>,
    /// The mode in which the parent has to be held while a part is held in a mode, or a stronger
    /// one; `None` if it need not be held. [`Locker::lock_path`] sees to it.
    pub above: Box<dyn Fn(Mode) -> Option<Mode> + Send + Sync>,
    /// Whether a request for a whole that is held already counts as one for a part of it.
    pub counts_repeats: bool,
}

/// An [`Escalation`] with its answers about modes in tables.
struct EscalationRules<R> {
    parent: ParentOf<R>,
    parts_max: PartsMax<R>,
    covering: [Mode; MODES_MAX],
    above: [Option<Mode>; MODES_MAX],
    counts_repeats: bool,
}

impl<R> EscalationRules<R> {
    fn new(escalation: Escalation<R>, modes: &ModeTable) -> EscalationRules<R> {
        let Escalation { parent, parts_max, covering, above, counts_repeats } = escalation;
        let mut rules = EscalationRules {
            parent,
            parts_max,
            covering: [Mode::in_row(0); MODES_MAX],
            above: [None; MODES_MAX],
            counts_repeats,
        };
        for mode in modes.modes() {
            rules.covering[mode.row()] = covering(mode);
            rules.above[mode.row()] = above(mode);
        }
        rules
    }

    fn covering(&self, mode: Mode) -> Mode {
        self.covering[mode.row()]
    }

    fn above(&self, mode: Mode) -> Option<Mode> {
        self.above[mode.row()]
    }
}

/// A locker's rule for escalations, as the client numbers them; 0 at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EscalationPolicy(pub u64);

/// Which resources contain others.
pub struct Hierarchy<R> {
    /// Whether a resource contains others, so that it is locked by all who lock those: locks on it
    /// in the intent modes are kept apart from its bucket, see `intents.rs`.
    pub is_whole: fn(&R) -> bool,
    /// Which locks on parts become one on the whole, if any.
    pub escalation: Option<Escalation<R>>,
}

/// A lock table, see the [module](self).
pub struct LockManager<R> {
    /// A power of two of them.
    buckets: Box<[Padded<Mutex<Bucket<R>>>]>,
    bucket_count: u32,
    rules: Rules,
    settings: LockSettings,
    escalation: Option<EscalationRules<R>>,
    intents: Intents<R>,
    counters: Padded<Counters>,
    group: Arc<TableGroup>,
    /// The number in the group.
    number: u32,
}

impl<R> Drop for LockManager<R> {
    fn drop(&mut self) {
        self.group.leave(self.number);
    }
}

impl<R: Resource> LockManager<R> {
    /// Returns an empty lock table.
    #[must_use]
    pub fn new(modes: ModeTable, settings: LockSettings) -> Arc<LockManager<R>> {
        let none = Hierarchy { is_whole: |_| false, escalation: None };
        LockManager::with_hierarchy(modes, settings, none)
    }

    /// Returns an empty lock table for resources that contain one another.
    #[must_use]
    pub fn with_hierarchy(
        modes: ModeTable,
        settings: LockSettings,
        hierarchy: Hierarchy<R>,
    ) -> Arc<LockManager<R>> {
        LockManager::in_group(Arc::default(), modes, settings, hierarchy)
    }

    /// Returns an empty lock table for resources of another kind, in other modes, with the same
    /// settings. A transaction that uses both has a locker in each
    /// ([`Locker::beside`]), and deadlocks that lead through both are found.
    #[must_use]
    pub fn beside<Q: Resource>(
        &self,
        modes: ModeTable,
        hierarchy: Hierarchy<Q>,
    ) -> Arc<LockManager<Q>> {
        LockManager::in_group(Arc::clone(&self.group), modes, self.settings, hierarchy)
    }

    fn in_group(
        group: Arc<TableGroup>,
        modes: ModeTable,
        settings: LockSettings,
        hierarchy: Hierarchy<R>,
    ) -> Arc<LockManager<R>> {
        let bucket_count = settings.buckets.clamp(2, 1 << 16).next_power_of_two();
        let Hierarchy { is_whole, escalation } = hierarchy;
        let escalation = escalation.map(|escalation| EscalationRules::new(escalation, &modes));
        Arc::new_cyclic(|own: &Weak<LockManager<R>>| {
            let number = group.join(own.clone());
            let bucket = |at| Padded(Mutex::new(Bucket::new(BucketNumber::new(number, at))));
            LockManager {
                intents: Intents::new(modes.intents(), is_whole),
                escalation,
                buckets: (0..bucket_count).map(bucket).collect(),
                bucket_count,
                rules: Rules { modes, priorities: settings.priorities },
                settings,
                counters: Padded(Counters::default()),
                group,
                number,
            }
        })
    }

    /// Returns the modes of this table.
    #[must_use]
    pub fn modes(&self) -> &ModeTable {
        &self.rules.modes
    }

    /// Returns the settings, as given.
    #[must_use]
    pub fn settings(&self) -> &LockSettings {
        &self.settings
    }

    /// Returns all resources that are locked, with their queues, in no order. Each bucket is seen
    /// at another moment.
    #[must_use]
    pub fn dump(&self) -> Vec<LockQueue<R>> {
        let mut intents = self.intents_seen(|_| true);
        let mut queues = Vec::new();
        for bucket in 0..self.bucket_count {
            queues.extend(self.latch(bucket).queues());
        }
        for queue in &mut queues {
            add_seen(queue, intents.remove(&queue.resource).unwrap_or_default());
        }
        queues.extend(intents.into_iter().map(|(resource, granted)| LockQueue {
            resource,
            granted,
            waiting: Vec::new(),
        }));
        queues
    }

    /// Returns the lockers that hold `resource` and those that wait for it.
    #[must_use]
    pub fn queue(&self, resource: &R) -> LockQueue<R> {
        let hash = hash_of(resource);
        let mut intents = self.intents_seen(|intent| intent.resource == *resource);
        let mut queue = self.latch(self.bucket_of(hash)).queue_of(hash, resource);
        add_seen(&mut queue, intents.remove(resource).unwrap_or_default());
        queue
    }

    /// Returns the intention locks in the stripes. They are read before the buckets, so that a lock
    /// that moves meanwhile is seen twice rather than never.
    fn intents_seen(&self, is_wanted: impl Fn(&Intent<R>) -> bool) -> HashMap<R, Vec<LockRequest>> {
        let mut seen: HashMap<R, Vec<LockRequest>> = HashMap::new();
        self.intents.look(|intent| {
            if is_wanted(intent) {
                let (locker, mode) = (intent.locker.id, intent.mode);
                let request = LockRequest { locker, mode, converts: None };
                seen.entry(intent.resource.clone()).or_default().push(request);
            }
        });
        seen
    }

    /// Returns what was counted so far. Each bucket is read at another moment.
    #[must_use]
    pub fn statistics(&self) -> LockStatistics {
        let loads = (0..self.bucket_count).map(|bucket| self.latch(bucket).load());
        self.counters.0.with(self.intents.loads().chain(loads))
    }

    /// Returns what the waits for each mode came to, without modes that were not waited for. It is
    /// counted under the mode waited for: for a conversion, what it gives.
    #[must_use]
    pub fn waits_by_mode(&self) -> Vec<ModeWaits> {
        let counted = self.modes().modes().map(|mode| self.counters.0.waits_for(mode));
        counted.filter(|counted| counted.waits > 0).collect()
    }

    /// Returns a handle for one transaction. Its age counts from here: a transaction that is tried
    /// again under the same handle keeps its age, and a new one should get a new handle.
    #[must_use]
    pub fn locker(self: &Arc<Self>, priority: Priority) -> Locker<R> {
        let id = self.group.next_locker();
        Locker::new(Arc::clone(self), LockerState::new(id, priority, own_stripe()))
    }
}

impl<R> Debug for LockManager<R> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = &self.settings;
        formatter.debug_struct("LockManager").field("settings", settings).finish_non_exhaustive()
    }
}

/// Adds what was seen in the stripes, unless it has moved to the bucket since.
fn add_seen<R>(queue: &mut LockQueue<R>, seen: Vec<LockRequest>) {
    for request in seen {
        if queue.granted.iter().all(|granted| granted.locker != request.locker) {
            queue.granted.push(request);
        }
    }
}

/// Counts since the start, and the state now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LockStatistics {
    /// Requests that reached the lock table; a locker answers for what it holds already.
    pub requests: u64,
    /// Requests that had to wait.
    pub waits: u64,
    /// Time spent in waits that are over.
    pub wait_time: Duration,
    /// Waits that ended because of a deadlock.
    pub deadlocks: u64,
    /// Waits that ended because they took too long.
    pub timeouts: u64,
    /// Waits that ended in favour of a higher priority.
    pub preemptions: u64,
    /// Times that many locks became one.
    pub escalations: u64,
    /// Locks that are held now.
    pub held: u64,
    /// Requests that stand in a queue now.
    pub waiting: u64,
    /// Threads that sleep now: those of `waiting` that are done looking around, and those that were
    /// granted their lock and are not awake yet.
    pub asleep: u64,
    /// Locks held now by lockers that wait in this table, whatever the tables that the locks are
    /// in.
    pub held_by_waiting: u64,
}

impl Sum for LockStatistics {
    /// Returns the statistics of several tables together.
    fn sum<I: Iterator<Item = LockStatistics>>(tables: I) -> LockStatistics {
        tables.fold(LockStatistics::default(), |one, other| LockStatistics {
            requests: one.requests + other.requests,
            waits: one.waits + other.waits,
            wait_time: one.wait_time + other.wait_time,
            deadlocks: one.deadlocks + other.deadlocks,
            timeouts: one.timeouts + other.timeouts,
            preemptions: one.preemptions + other.preemptions,
            escalations: one.escalations + other.escalations,
            held: one.held + other.held,
            waiting: one.waiting + other.waiting,
            asleep: one.asleep + other.asleep,
            held_by_waiting: one.held_by_waiting + other.held_by_waiting,
        })
    }
}

/// What the waits for one mode came to since the start. Waits under way are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeWaits {
    /// The mode waited for.
    pub mode: Mode,
    /// Waits that are over.
    pub waits: u64,
    /// Time spent in them.
    pub wait_time: Duration,
    /// Waits that ended because of a deadlock.
    pub deadlocks: u64,
    /// Waits that ended because they took too long.
    pub timeouts: u64,
    /// Waits that ended in favour of a higher priority.
    pub preemptions: u64,
}

impl LockStatistics {
    /// Returns the conflict ratio: all locks held over those held by lockers that do not wait. It
    /// is 1 without waits, and infinite when every locker that holds a lock waits. By Moenkeberg
    /// and Weikum (Performance Evaluation of an Adaptive and Robust Load Control Method, VLDB 1992)
    /// data contention is critical from about 1.3 on, whatever the workload.
    #[must_use]
    pub fn conflict_ratio(&self) -> f64 {
        if self.held == 0 {
            return 1.0;
        }
        // The two are not counted at the same moment.
        self.held as f64 / self.held.saturating_sub(self.held_by_waiting) as f64
    }
}

/// What is counted outside of the buckets, by those who wait.
#[derive(Debug)]
struct Counters {
    waits: AtomicU64,
    escalations: AtomicU64,
    asleep: AtomicU64,
    held_by_waiting: AtomicU64,
    /// Waits that are over, by the mode waited for.
    over: Box<[WaitCounters; MODES_MAX]>,
}

/// Waits that are over.
#[derive(Debug, Default)]
struct WaitCounters {
    waits: AtomicU64,
    wait_ns: AtomicU64,
    deadlocks: AtomicU64,
    timeouts: AtomicU64,
    preemptions: AtomicU64,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            waits: AtomicU64::default(),
            escalations: AtomicU64::default(),
            asleep: AtomicU64::default(),
            held_by_waiting: AtomicU64::default(),
            over: Box::new(std::array::from_fn(|_| WaitCounters::default())),
        }
    }
}

impl Counters {
    /// Records that a locker with so many locks begins to wait.
    fn begin_wait(&self, locks: usize) {
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.asleep.fetch_add(1, Ordering::Relaxed);
        self.held_by_waiting.fetch_add(locks as u64, Ordering::Relaxed);
    }

    /// Records that its wait is over, and how long it was.
    fn end_wait(&self, locks: usize, mode: Mode, waited: Duration, outcome: Outcome) {
        let asleep = self.asleep.fetch_sub(1, Ordering::Relaxed);
        let held = self.held_by_waiting.fetch_sub(locks as u64, Ordering::Relaxed);
        debug_assert!(asleep > 0 && held >= locks as u64, "a wait that ends has begun");
        let waited = u64::try_from(waited.as_nanos()).expect("a wait is shorter than 584 years");
        let over = &self.over[mode.row()];
        over.waits.fetch_add(1, Ordering::Relaxed);
        over.wait_ns.fetch_add(waited, Ordering::Relaxed);
        let reason = match outcome {
            Outcome::Deadlock => &over.deadlocks,
            Outcome::TimedOut => &over.timeouts,
            Outcome::Preempted => &over.preemptions,
            Outcome::Granted | Outcome::Waiting => return,
        };
        reason.fetch_add(1, Ordering::Relaxed);
    }

    fn escalated(&self) {
        self.escalations.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns what the waits for a mode came to.
    fn waits_for(&self, mode: Mode) -> ModeWaits {
        let over = &self.over[mode.row()];
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ModeWaits {
            mode,
            waits: read(&over.waits),
            wait_time: Duration::from_nanos(read(&over.wait_ns)),
            deadlocks: read(&over.deadlocks),
            timeouts: read(&over.timeouts),
            preemptions: read(&over.preemptions),
        }
    }

    /// Returns the statistics, together with what the buckets count.
    fn with(&self, loads: impl Iterator<Item = Load>) -> LockStatistics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let sum = |of: fn(&WaitCounters) -> &AtomicU64| self.over.iter().map(of).map(read).sum();
        let own = LockStatistics {
            waits: read(&self.waits),
            wait_time: Duration::from_nanos(sum(|over| &over.wait_ns)),
            deadlocks: sum(|over| &over.deadlocks),
            timeouts: sum(|over| &over.timeouts),
            preemptions: sum(|over| &over.preemptions),
            escalations: read(&self.escalations),
            asleep: read(&self.asleep),
            held_by_waiting: read(&self.held_by_waiting),
            ..LockStatistics::default()
        };
        loads.fold(own, |sum, load| LockStatistics {
            requests: sum.requests + load.requests,
            held: sum.held + load.held,
            waiting: sum.waiting + load.waiting,
            ..sum
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_conflict_ratio_leaves_out_who_waits() {
        for (held, held_by_waiting, ratio) in
            [(0, 0, 1.0), (10, 0, 1.0), (10, 5, 2.0), (13, 3, 1.3), (4, 4, f64::INFINITY)]
        {
            let seen = LockStatistics { held, held_by_waiting, ..LockStatistics::default() };
            let seen = seen.conflict_ratio();
            let is_same = seen.total_cmp(&ratio).is_eq() || (seen - ratio).abs() < 1e-12;
            assert!(is_same, "{seen} for {held}");
        }
    }
}

//! Spaces: what a client of the store locks for itself, by labels and in modes of its own.
//!
//! # Mechanism
//! A [`LockSpace`] is a lock table of its own beside that of keys and trees: [`ModeTable`] and
//! statistics are the space's, resources are byte strings, and deadlocks are searched for in all
//! tables together. What labels mean, the client says by a [`LabelHierarchy`]: which label contains
//! which, from how many requests on a whole is locked in place of its parts, and
//! which labels all transactions lock in an intention, so that these locks are kept apart
//! (`lock/table.rs`).
//!
//! A space never changes. To lock by other modes the client replaces it by another space
//! ([`Store::replace_lock_space`](crate::Store::replace_lock_space)), which is possible while no
//! transaction has used it; from then on the old one is refused. So a mode is always one of the
//! space that it is used in.
//!
//! # Example
//! Sections of a document, `1` within the document, `1.3` within `1`:
//!
//! ```
//! use std::borrow::Cow;
//! use std::sync::Arc;
//!
//! use tidegate_engine::lock::{EscalationPolicy, Mode, ModeTable};
//! use tidegate_engine::lock::multi_granularity::{IX, S, X};
//! use tidegate_engine::{LabelHierarchy, Store, StoreOptions, TxnError, TxnOptions};
//!
//! struct Sections;
//!
//! impl LabelHierarchy for Sections {
//!     fn parent<'l>(&self, label: &'l [u8]) -> Option<Cow<'l, [u8]>> {
//!         let dot = label.iter().rposition(|byte| *byte == b'.')?;
//!         Some(Cow::Borrowed(&label[..dot]))
//!     }
//!
//!     fn escalate_at(&self, label: &[u8], _: EscalationPolicy) -> Option<u32> {
//!         let level = label.iter().filter(|byte| **byte == b'.').count();
//!         Some(1_000 >> level)
//!     }
//!
//!     fn covering(&self, mode: Mode) -> Mode {
//!         if mode == S { S } else { X }
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let parent = tempfile::tempdir()?;
//! let store = Store::open_or_create(parent.path().join("store"), &StoreOptions::default())?;
//! let modes = ModeTable::multi_granularity();
//! let sections = store.create_lock_space("sections", modes, Arc::new(Sections))?;
//!
//! let [mut one, mut other] = [(); 2].map(|()| store.begin(TxnOptions::default()));
//! let mut locks = one.locks_in(&sections)?;
//! locks.lock(b"1", IX)?;
//! locks.lock(b"1.3", X)?;
//! assert!(!other.locks_in(&sections)?.try_lock(b"1", S)?);
//! one.commit()?;
//! assert!(other.locks_in(&sections)?.try_lock(b"1", S)?);
//! # Ok(())
//! # }
//! ```
//!
//! # Limits
//! * Labels of more than 29 bytes are allocated for each request.
//! * A space takes as much memory as the lock table of keys: about 2 MiB with 4,096 buckets.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tidegate_runtime::sync::Mutex;

use super::{Core, StoreError};
use crate::lock::{
    Escalation, EscalationPolicy, Hierarchy, LockManager, LockQueue, LockStatistics, MODES_MAX,
    Mode, ModeTable,
};

/// What the labels of a [`LockSpace`] mean to each other. Each method gives the same answer for the
/// same label, except [`escalate_at`](LabelHierarchy::escalate_at).
///
/// It is asked while locks are taken, so it should be fast, and must not use the store.
pub trait LabelHierarchy: Send + Sync + 'static {
    /// Returns the label of what contains `label`; `None` for what is in nothing. Going from parent
    /// to parent must end.
    fn parent<'l>(&self, label: &'l [u8]) -> Option<Cow<'l, [u8]>>;

    /// Returns from how many requests a transaction that holds `label` locks it as a whole, if
    /// nobody is in its way; `None` for never. Counted are locks on parts and repeated
    /// requests for `label`. The transaction has set the policy
    /// ([`LabelLocks::set_policy`](crate::LabelLocks::set_policy)). The answer may change at any
    /// time.
    fn escalate_at(&self, label: &[u8], policy: EscalationPolicy) -> Option<u32> {
        let _ = (label, policy);
        None
    }

    /// Returns the mode in which what contains a label has to be held as long as the label is held
    /// in `mode`: an intention. `None`, as it is for all modes unless a client says otherwise, if
    /// it need not be held. [`LabelLocks::lock_path`](crate::LabelLocks::lock_path) locks it.
    fn above(&self, mode: Mode) -> Option<Mode> {
        let _ = mode;
        None
    }

    /// Returns the mode on a label that covers `mode` on each of its parts: who holds it needs no
    /// lock on them.
    fn covering(&self, mode: Mode) -> Mode;

    /// Returns whether all transactions lock `label` in an intention, such as the label of
    /// everything. Locks on it in the first modes of the table that go with each other are kept by
    /// the threads that take them then, until somebody asks for more.
    fn is_shared(&self, label: &[u8]) -> bool {
        let _ = label;
        false
    }
}

/// What the labels of a space mean in which no label contains another.
#[derive(Clone, Copy, Debug)]
pub struct NoHierarchy;

impl LabelHierarchy for NoHierarchy {
    fn parent<'l>(&self, _: &'l [u8]) -> Option<Cow<'l, [u8]>> {
        None
    }

    fn covering(&self, mode: Mode) -> Mode {
        mode
    }
}

/// Bytes of a label that need no memory of their own.
const INLINE_MAX: usize = 29;

/// A label as a resource of a lock table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LabelResource {
    Inline { len: u8, is_shared: bool, bytes: [u8; INLINE_MAX] },
    Long { is_shared: bool, bytes: Arc<[u8]> },
}

const _: () = assert!(size_of::<LabelResource>() == 32);

impl LabelResource {
    fn new(label: &[u8], is_shared: bool) -> LabelResource {
        match u8::try_from(label.len()) {
            Ok(len) if label.len() <= INLINE_MAX => {
                let mut bytes = [0; INLINE_MAX];
                bytes[..label.len()].copy_from_slice(label);
                LabelResource::Inline { len, is_shared, bytes }
            }
            _ => LabelResource::Long { is_shared, bytes: label.into() },
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            LabelResource::Inline { len, bytes, .. } => &bytes[..usize::from(*len)],
            LabelResource::Long { bytes, .. } => bytes,
        }
    }

    fn is_shared(&self) -> bool {
        let (LabelResource::Inline { is_shared, .. } | LabelResource::Long { is_shared, .. }) =
            self;
        *is_shared
    }
}

// Equal labels have equal bytes.
impl Hash for LabelResource {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.bytes());
    }
}

/// Set in [`Space::users`] when the space was replaced.
const REPLACED: u64 = 1 << 63;

/// A space of labels that a client locks; see the [module](self). Handles of one space are equal.
#[derive(Clone)]
pub struct LockSpace(Arc<Space>);

struct Space {
    name: String,
    core: Weak<Core>,
    table: Arc<LockManager<LabelResource>>,
    hierarchy: Arc<dyn LabelHierarchy>,
    /// Transactions that use it, and [`REPLACED`].
    users: AtomicU64,
    /// Requests by mode, of transactions that have ended.
    requests: [AtomicU64; MODES_MAX],
}

/// What was done in one mode of a [`LockSpace`] since the space was made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModeStatistics {
    /// The name of the mode.
    pub name: String,
    /// Requests of the client for it by transactions that have ended, also those for which nothing
    /// was to be done.
    pub requests: u64,
    /// Waits for it that are over. For a conversion it is what the conversion gives.
    pub waits: u64,
    /// Time spent in those waits.
    pub wait_time: Duration,
    /// Waits that ended because of a deadlock.
    pub deadlocks: u64,
    /// Waits that ended because they took too long.
    pub timeouts: u64,
    /// Waits that ended in favour of a higher priority.
    pub preemptions: u64,
}

impl LockSpace {
    /// Returns the name of the space.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the modes in which its labels are locked.
    #[must_use]
    pub fn modes(&self) -> &ModeTable {
        self.0.table.modes()
    }

    /// Returns the mode of this name.
    #[must_use]
    pub fn mode(&self, name: &str) -> Option<Mode> {
        self.modes().mode(name)
    }

    /// Returns what was counted in the space.
    #[must_use]
    pub fn statistics(&self) -> LockStatistics {
        self.0.table.statistics()
    }

    /// Returns what was counted for each mode, in the order of the table.
    #[must_use]
    pub fn statistics_by_mode(&self) -> Vec<ModeStatistics> {
        let waits = self.0.table.waits_by_mode();
        let of = |mode: Mode| {
            let waits = waits.iter().find(|waits| waits.mode == mode);
            let count = |of: fn(&crate::lock::ModeWaits) -> u64| waits.map_or(0, of);
            ModeStatistics {
                name: self.modes().name(mode).to_owned(),
                requests: self.0.requests[mode.row()].load(Ordering::Relaxed),
                waits: count(|waits| waits.waits),
                wait_time: waits.map_or(Duration::ZERO, |waits| waits.wait_time),
                deadlocks: count(|waits| waits.deadlocks),
                timeouts: count(|waits| waits.timeouts),
                preemptions: count(|waits| waits.preemptions),
            }
        };
        self.modes().modes().map(of).collect()
    }

    /// Returns the transactions that hold a label and those that wait for it.
    #[must_use]
    pub fn queue(&self, label: &[u8]) -> LockQueue<Vec<u8>> {
        with_bytes(self.0.table.queue(&self.resource(label)))
    }

    /// Returns all labels that are locked, with their queues, in no order. Each part of the table
    /// is seen at another moment.
    #[must_use]
    pub fn dump(&self) -> Vec<LockQueue<Vec<u8>>> {
        self.0.table.dump().into_iter().map(with_bytes).collect()
    }

    /// Returns a label as a resource of the table.
    pub(crate) fn resource(&self, label: &[u8]) -> LabelResource {
        LabelResource::new(label, self.0.hierarchy.is_shared(label))
    }

    pub(crate) fn table(&self) -> &Arc<LockManager<LabelResource>> {
        &self.0.table
    }

    pub(crate) fn is_of(&self, core: &Arc<Core>) -> bool {
        Weak::as_ptr(&self.0.core) == Arc::as_ptr(core)
    }

    /// Counts a transaction as a user, until [`LockSpace::leave`].
    pub(crate) fn enter(&self) -> Result<(), StoreError> {
        if self.0.users.fetch_add(1, Ordering::AcqRel) & REPLACED == 0 {
            return Ok(());
        }
        self.0.users.fetch_sub(1, Ordering::AcqRel);
        Err(self.replaced())
    }

    /// Takes back [`LockSpace::enter`], when the transaction has released its locks. `requests` are
    /// those it has made, by mode.
    pub(crate) fn leave(&self, requests: &[u32; MODES_MAX]) {
        for (total, own) in self.0.requests.iter().zip(requests).filter(|(_, own)| **own > 0) {
            total.fetch_add(u64::from(*own), Ordering::Relaxed);
        }
        let before = self.0.users.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before & !REPLACED > 0, "who leaves has entered");
    }

    fn retire(&self) -> Result<(), StoreError> {
        let users = &self.0.users;
        match users.compare_exchange(0, REPLACED, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(()),
            Err(users) if users & REPLACED != 0 => Err(self.replaced()),
            Err(transactions) => {
                Err(StoreError::LockSpaceInUse { name: self.0.name.clone(), transactions })
            }
        }
    }

    fn replaced(&self) -> StoreError {
        StoreError::LockSpaceReplaced { name: self.0.name.clone() }
    }
}

impl PartialEq for LockSpace {
    fn eq(&self, other: &LockSpace) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for LockSpace {}

impl std::fmt::Debug for LockSpace {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("LockSpace").field(&self.0.name).finish()
    }
}

fn with_bytes(queue: LockQueue<LabelResource>) -> LockQueue<Vec<u8>> {
    let LockQueue { resource, granted, waiting } = queue;
    LockQueue { resource: resource.bytes().to_vec(), granted, waiting }
}

/// The spaces of an open store.
#[derive(Default)]
pub(crate) struct LockSpaces(Mutex<Vec<LockSpace>>);

impl LockSpaces {
    pub(crate) fn all(&self) -> Vec<LockSpace> {
        self.0.lock().clone()
    }
}

impl Core {
    /// See [`Store::create_lock_space`](crate::Store::create_lock_space).
    pub(crate) fn create_lock_space(
        self: &Arc<Self>,
        name: &str,
        modes: ModeTable,
        hierarchy: Arc<dyn LabelHierarchy>,
    ) -> Result<LockSpace, StoreError> {
        let mut spaces = self.spaces.0.lock();
        if spaces.iter().any(|space| space.name() == name) {
            return Err(StoreError::LockSpaceExists { name: name.to_owned() });
        }
        let space = self.new_lock_space(name, modes, hierarchy);
        spaces.push(space.clone());
        Ok(space)
    }

    /// See [`Store::replace_lock_space`](crate::Store::replace_lock_space).
    pub(crate) fn replace_lock_space(
        self: &Arc<Self>,
        old: &LockSpace,
        modes: ModeTable,
        hierarchy: Arc<dyn LabelHierarchy>,
    ) -> Result<LockSpace, StoreError> {
        let mut spaces = self.spaces.0.lock();
        old.retire()?;
        let space = self.new_lock_space(old.name(), modes, hierarchy);
        let at = spaces.iter().position(|known| known == old);
        spaces[at.expect("a space that was not replaced is known")] = space.clone();
        Ok(space)
    }

    fn new_lock_space(
        self: &Arc<Self>,
        name: &str,
        modes: ModeTable,
        hierarchy: Arc<dyn LabelHierarchy>,
    ) -> LockSpace {
        let [parent, parts_max, covering, above] = [(); 4].map(|()| Arc::clone(&hierarchy));
        let escalation = Escalation {
            parent: Box::new(move |resource: &LabelResource| {
                let label = parent.parent(resource.bytes())?;
                Some(LabelResource::new(&label, parent.is_shared(&label)))
            }),
            parts_max: Box::new(move |whole, policy| {
                parts_max.escalate_at(whole.bytes(), policy).unwrap_or(u32::MAX)
            }),
            covering: Box::new(move |mode| covering.covering(mode)),
            above: Box::new(move |mode| above.above(mode)),
            counts_repeats: true,
        };
        let is_whole = LabelResource::is_shared;
        let hierarchy_of_table = Hierarchy { is_whole, escalation: Some(escalation) };
        LockSpace(Arc::new(Space {
            name: name.to_owned(),
            core: Arc::downgrade(self),
            table: self.locks.beside(modes, hierarchy_of_table),
            hierarchy,
            users: AtomicU64::new(0),
            requests: [const { AtomicU64::new(0) }; MODES_MAX],
        }))
    }
}

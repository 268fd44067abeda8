//! Transactions: changes that happen together, apart from those of others.
//!
//! # Mechanism
//! Strict two-phase locking on keys and the gaps between them (`core/key_locks.rs`). A lock is
//! tried while the leaf is latched. If the lock is not free, the transaction releases the latch,
//! waits for the lock, and searches again, because the key may be in another leaf by then. So no
//! transaction waits for a lock while it holds a latch.
//!
//! | isolation | reads lock | what may be seen |
//! | --- | --- | --- |
//! | read uncommitted | nothing | what will be rolled back |
//! | read committed | nothing or for a moment | another value the second time |
//! | repeatable read | to the end, not the gaps | new keys the second time |
//! | serializable | to the end, and the gaps | nothing of others |
//!
//! A read at read committed checks the leaf's LSN first. If the leaf has no change that is younger
//! than the oldest uncommitted one, all of the leaf is committed, and no lock is needed.
//!
//! # When the store has failed
//! After a failed write or sync, or a rollback that failed, the log is closed. Locks are released
//! then, also those of transactions that could not be rolled back, so that no transaction waits for
//! ever. What these locks guarded is never seen: a lock that is granted after the failure is an
//! error, and a lock granted before it guards against all transactions that failed later.
//!
//! # After an error
//! A transaction that is chosen as the victim of a deadlock, waits too long or is preempted has to
//! be rolled back. All its further requests fail with the same error. A request that is wrong in
//! itself, such as the insert of a key that exists, changes nothing.

mod cursor;
mod dropping;
mod for_update;
mod index;
mod labels;
mod load;
mod long_values;
mod put;
mod range;
mod runs;
mod sort;

use std::sync::Arc;

use thiserror::Error;

use tidegate_runtime::thread;
use tidegate_runtime::work::{self, Operation};

use crate::btree::{KeyLocking, Tree, TreeEntry};
use crate::buffer::{BufferError, prefetch};
use crate::core::{
    Core, Durability, Lockable, RangeModes, Reference, StoreError, TreeHandle, TxnState, VALUE_MAX,
    check_not_dropped, hash_key,
};
use crate::lock::multi_granularity::{IS, IX, S, X};
use crate::lock::{LockError, Locker, LockerWatch, Mode, Priority, Wait};
use crate::page::{self, Node, PageId, TreeId};
use crate::record::{Cause, TxnId, Undo};
use crate::wal::Lsn;

pub use cursor::{Cursor, Direction, Entry};
pub(crate) use dropping::drop_tree;
pub(crate) use index::create_index;
pub use index::{IndexCursor, IndexEntry};
pub use labels::LabelLocks;
use labels::SpaceLocks;
pub(crate) use load::bulk_load;
use long_values::{Discarded, Part};
use put::AtEnd;
pub use range::{KeyValue, Range};
pub use sort::{SortedEntries, Sorter};

/// How far a transaction is apart from others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Sees what others have not committed.
    ReadUncommitted,
    /// Sees what is committed, each time anew.
    ReadCommitted,
    /// What it has seen stays, but keys may be added.
    RepeatableRead,
    /// As if it ran alone.
    #[default]
    Serializable,
}

/// Settings of a transaction.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TxnOptions {
    /// How far it is apart from others.
    pub isolation: Isolation,
    /// When its commit returns.
    pub durability: Durability,
    /// Its priority in the queues of locks.
    pub priority: Priority,
    /// The most times that [`Store::transaction`](crate::Store::transaction) runs it again after a
    /// conflict.
    pub retries_max: u32,
}

impl Default for TxnOptions {
    fn default() -> Self {
        TxnOptions {
            isolation: Isolation::default(),
            durability: Durability::default(),
            priority: Priority::default(),
            retries_max: 100,
        }
    }
}

setters! {
    TxnOptions {
        isolation: Isolation,
        durability: Durability,
        priority: Priority,
        retries_max: u32,
    }
}

/// Errors of a transaction.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TxnError {
    /// It has to be rolled back, and may be run again.
    #[error("{0}; roll the transaction back and run it again")]
    Conflict(#[from] LockError),
    /// The store failed, or it is closed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The key exists already.
    #[error("the key is there already")]
    KeyExists,
    /// The key or the value is too long.
    #[error("{what} has {len} bytes, and {max} is the most")]
    TooLong {
        /// Which of the two: `the key` or `the value`.
        what: &'static str,
        /// Its length in bytes.
        len: usize,
        /// The longest length that is allowed, in bytes.
        max: usize,
    },
    /// The tree belongs to another store.
    #[error("the tree is one of another store")]
    OtherStore,
    /// The cursor or the savepoint belongs to another transaction.
    #[error("the cursor or savepoint is one of another transaction")]
    OtherTransaction,
    /// An index changes with its tree only.
    #[error("the tree is an index, and changes with its tree only")]
    IsIndex,
    /// What the index's rows are found by is not known.
    #[error("index {name} has no function since the store was opened; give it by `create_index`")]
    IndexUnknown {
        /// The index.
        name: String,
    },
    /// The tree has indexes, which a bulk load cannot change.
    #[error("the tree has indexes; load it first and make them then")]
    Indexed,
    /// Keys that are to be loaded do not ascend, or are not above those of the tree.
    #[error("the keys to be loaded do not ascend; {loaded} entries are loaded")]
    NotAscending {
        /// The least number of entries that are loaded.
        loaded: u64,
    },
    /// Leaves cannot be filled so.
    #[error("leaves are filled to 50 to 100 percent, not {percent}")]
    FillPercent {
        /// What was asked for, in percent.
        percent: u8,
    },
    /// The name is that of another tree.
    #[error("a tree that is no index of this one is called {name}; choose another name")]
    NameTaken {
        /// The name.
        name: String,
    },
}

impl From<BufferError> for TxnError {
    fn from(error: BufferError) -> Self {
        TxnError::Store(error.into())
    }
}

impl TxnError {
    /// Returns whether the same transaction, run again, may succeed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, TxnError::Conflict(_))
    }
}

/// Which transaction of which open store made something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    transaction: TxnId,
    /// The address of the store's parts.
    store: usize,
}

/// A place to roll back to. It belongs to the transaction that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint {
    owner: Owner,
    lsn: Lsn,
}

/// A transaction. One that is dropped is rolled back.
pub struct Transaction {
    core: Arc<Core>,
    locker: Locker<Lockable>,
    /// What it has locked in the client's spaces.
    spaces: Vec<SpaceLocks>,
    id: TxnId,
    /// Its state, from its first log record on.
    state: Option<Arc<TxnState>>,
    options: TxnOptions,
    /// The conflict after which there is only rollback.
    conflict: Option<LockError>,
    /// What is held of the tree used last.
    parents: Option<Parents>,
    /// The tree that the last insert made longer at its end.
    end: Option<AtEnd>,
    /// Where a sequence of inserts goes on, perhaps.
    finger: Option<(TreeId, PageId)>,
    /// How many long values it has set.
    long_values: u32,
    /// Long values that are to be freed when it is committed.
    discarded: Vec<Discarded>,
}

/// What a transaction holds of a tree and of the store, so that it need not look for each key.
struct Parents {
    tree: TreeId,
    /// IS or IX on both, at least.
    intention: Mode,
    /// Whether that makes locks on keys needless in S, in X.
    covers: [bool; 2],
}

impl Transaction {
    /// See [`Store::begin`](crate::Store::begin).
    pub(crate) fn begin(core: &Arc<Core>, options: TxnOptions) -> Transaction {
        Transaction {
            locker: core.locks.locker(options.priority),
            spaces: Vec::new(),
            id: core.transactions.next_id(),
            core: Arc::clone(core),
            state: None,
            options,
            conflict: None,
            parents: None,
            end: None,
            finger: None,
            long_values: 0,
            discarded: Vec::new(),
        }
    }

    /// Returns the number of the transaction.
    #[must_use]
    pub fn id(&self) -> TxnId {
        self.id
    }

    /// Returns the number of locks that the transaction holds, on keys, trees and labels.
    #[must_use]
    pub fn lock_count(&self) -> usize {
        self.locker.watch().locks()
    }

    /// Returns a view of the transaction's locks and waits for other threads.
    #[must_use]
    pub fn watch(&self) -> LockerWatch {
        self.locker.watch()
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn get(&mut self, tree: &TreeHandle, key: &[u8]) -> Result<Option<Vec<u8>>, TxnError> {
        self.get_with(tree, key, <[u8]>::to_vec)
    }

    /// Returns whether a key exists.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn contains_key(&mut self, tree: &TreeHandle, key: &[u8]) -> Result<bool, TxnError> {
        self.check(tree)?;
        self.read_value(tree, key, Part::Len, false, |_, _| ()).map(|found| found.is_some())
    }

    /// Returns what `read` makes of the value of a key, without a copy of it unless it is long.
    /// `read` is called while the value's page is latched, so it should be short, and must not use
    /// the store.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn get_with<R>(
        &mut self,
        tree: &TreeHandle,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, TxnError> {
        self.check(tree)?;
        self.read_value(tree, key, Part::All, false, |value, _| read(value))
    }

    /// Reads the value of a key as the isolation asks.
    fn get_at_level<R>(
        &mut self,
        tree: &TreeHandle,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, TxnError> {
        let entry = tree.entry();
        match self.options.isolation {
            Isolation::ReadUncommitted => return self.peek(entry, key, read),
            Isolation::ReadCommitted => {
                let leaf = self.core.tree(entry).leaf(key)?;
                if self.core.transactions.is_settled(page::lsn(&leaf), &self.core.log) {
                    return Ok(value_in(&leaf, key).map(read));
                }
                drop(leaf);
                let resource = Lockable::Key(entry.id, hash_key(key));
                self.lock_parents(entry, IS)?;
                let was_held = self.locker.held(&resource).is_some();
                if !self.covers_keys(entry, S) {
                    self.lock_key(&resource, S)?;
                }
                let value = self.peek(entry, key, read);
                if !was_held {
                    self.locker.unlock(&resource);
                }
                return value;
            }
            Isolation::RepeatableRead | Isolation::Serializable => {}
        }
        self.lock_parents(entry, IS)?;
        if self.covers_keys(entry, S) {
            return self.peek(entry, key, read);
        }
        self.get_locked(tree, key, S, read)
    }

    /// Reads the value of a key that is locked under the latch of its leaf. A key that does not
    /// exist is kept from being inserted.
    fn get_locked<R>(
        &mut self,
        tree: &TreeHandle,
        key: &[u8],
        mode: Mode,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, TxnError> {
        let on = tree.tree();
        let own = Lockable::Key(on.entry.id, hash_key(key));
        let gap_s = self.core.range_modes.gap_s;
        loop {
            let leaf = on.leaf(key)?;
            let place = Node::new(&leaf).search(key);
            if let Ok(slot) = place {
                // It comes while the lock is looked for.
                prefetch(Node::new(&leaf).value(slot));
            }
            if !self.try_key(&own, mode)? {
                drop(leaf);
                self.lock_key(&own, mode)?;
                continue;
            }
            let next = match place {
                Ok(slot) => return Ok(Some(read(Node::new(&leaf).value(slot)))),
                Err(_) if self.options.isolation != Isolation::Serializable => return Ok(None),
                Err(slot) => next_key(on, &leaf, slot)?,
            };
            if self.try_key(&next, gap_s)? {
                return Ok(None);
            }
            drop(leaf);
            self.lock_key(&next, gap_s)?;
        }
    }

    /// Reads the present value of a key, which another transaction may have written.
    fn peek<R>(
        &self,
        entry: &TreeEntry,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, TxnError> {
        let leaf = self.core.tree(entry).leaf(key)?;
        Ok(value_in(&leaf, key).map(read))
    }

    /// Inserts a key that does not exist.
    ///
    /// # Errors
    /// [`TxnError::KeyExists`], or another of [`TxnError`].
    pub fn insert(&mut self, tree: &TreeHandle, key: &[u8], value: &[u8]) -> Result<(), TxnError> {
        if self.put_if(tree, key, value, |exists| !exists)? {
            Ok(())
        } else {
            Err(TxnError::KeyExists)
        }
    }

    /// Sets the value of a key, whether it exists or not.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn put(&mut self, tree: &TreeHandle, key: &[u8], value: &[u8]) -> Result<(), TxnError> {
        self.put_if(tree, key, value, |_| true).map(|_| ())
    }

    /// Changes the value of a key that exists. Returns whether it existed.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn update(
        &mut self,
        tree: &TreeHandle,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool, TxnError> {
        self.put_if(tree, key, value, |exists| exists)
    }

    fn put_if(
        &mut self,
        tree: &TreeHandle,
        key: &[u8],
        value: &[u8],
        may: impl Fn(bool) -> bool,
    ) -> Result<bool, TxnError> {
        self.check_to_change(tree)?;
        self.check_lengths(key, value)?;
        // From here on no index of the tree is made or dropped.
        self.lock_parents(tree.entry(), IX)?;
        if tree.entry().indexes() > 0 {
            return self.change_row(tree.entry(), key, Some(value), may);
        }
        self.put_entry(tree.entry(), key, value, may)
    }

    /// Removes a key. Returns whether it existed.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn remove(&mut self, tree: &TreeHandle, key: &[u8]) -> Result<bool, TxnError> {
        self.check_to_change(tree)?;
        self.lock_parents(tree.entry(), IX)?;
        if tree.entry().indexes() > 0 {
            return self.change_row(tree.entry(), key, None, |exists| exists);
        }
        self.remove_entry(tree.entry(), key)
    }

    /// Removes a key of a tree, and leaves its indexes alone.
    fn remove_entry(&mut self, entry: &TreeEntry, key: &[u8]) -> Result<bool, TxnError> {
        self.lock_to_write(entry, key)?;
        let core = Arc::clone(&self.core);
        let tree = core.tree(entry);
        loop {
            let mut leaf = tree.leaf_to_change(key)?;
            let Ok(slot) = Node::new(&leaf).search(key) else {
                return Ok(false);
            };
            if let Some((resource, mode)) = self.close_gap(tree, &leaf, slot, key)? {
                drop(leaf);
                self.lock_key(&resource, mode)?;
                continue;
            }
            let old = Node::new(&leaf).value(slot).to_vec();
            let savepoint = self.savepoint();
            self.note_unlocked(entry, key);
            let undo = Undo::Insert { tree: entry.id, key, value: &old };
            self.log(undo, |cause| tree.remove(&mut leaf, slot, cause))?;
            let is_underfull = tree.is_underfull(Node::new(&leaf));
            drop(leaf);
            if is_underfull {
                tree.merge_underfull(key)?;
            }
            self.discard(entry, Reference::of(entry, &old), savepoint)?;
            return Ok(true);
        }
    }

    /// Locks the gap that the removal of `key` at `slot` of a leaf leaves. Returns what it would
    /// have to wait for.
    fn close_gap(
        &mut self,
        tree: Tree<'_>,
        leaf: &[u8],
        slot: usize,
        key: &[u8],
    ) -> Result<Option<(Lockable, Mode)>, TxnError> {
        if self.covers_keys(tree.entry, X) {
            return Ok(None);
        }
        let next = next_key(tree, leaf, slot + 1)?;
        let own = Lockable::Key(tree.entry.id, hash_key(key));
        let both = self.core.range_modes.gap_si;
        for (resource, mode) in [(own, both), (next, both)] {
            if !self.try_key(&resource, mode)? {
                return Ok(Some((resource, mode)));
            }
        }
        Ok(None)
    }

    /// Locks a tree until the end of the transaction, in a mode of
    /// [`multi_granularity`](crate::lock::multi_granularity). In S all its keys can be read and in
    /// X written without further locks.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn lock_tree(&mut self, tree: &TreeHandle, mode: Mode) -> Result<(), TxnError> {
        self.check(tree)?;
        self.lock(&Lockable::Store, if [IS, S].contains(&mode) { IS } else { IX })?;
        self.lock(&Lockable::Tree(tree.entry().id), mode)?;
        Ok(check_not_dropped(tree.entry())?)
    }

    /// Locks a resource until the end of the transaction.
    ///
    /// # Errors
    /// [`TxnError::Conflict`].
    ///
    /// # Panics
    /// If `mode` is not one of the store's lock table.
    pub fn lock(&mut self, resource: &Lockable, mode: Mode) -> Result<(), TxnError> {
        self.check_conflict()?;
        self.parents = None;
        self.lock_key(resource, mode)
    }

    /// Locks a resource until the end of the transaction, unless it would have to wait. Returns
    /// whether the resource is locked.
    ///
    /// # Errors
    /// [`TxnError::Conflict`], after an earlier one.
    ///
    /// # Panics
    /// As [`Transaction::lock`].
    pub fn try_lock(&mut self, resource: &Lockable, mode: Mode) -> Result<bool, TxnError> {
        self.check_conflict()?;
        self.parents = None;
        self.try_key(resource, mode)
    }

    /// Locks a resource until the end of the transaction, and waits as long as `wait` says.
    ///
    /// # Errors
    /// [`TxnError::Conflict`], also when the wait was too long: then the transaction has to be
    /// rolled back. Who would go on without the lock asks by [`Transaction::try_lock`].
    ///
    /// # Panics
    /// As [`Transaction::lock`].
    pub fn lock_with(
        &mut self,
        resource: &Lockable,
        mode: Mode,
        wait: Wait,
    ) -> Result<(), TxnError> {
        self.check_conflict()?;
        self.parents = None;
        self.lock_waiting(resource, mode, wait)
    }

    /// Waits until a resource could be locked, as long as `wait` says, and leaves what is held of
    /// it as it was.
    ///
    /// # Errors
    /// As [`Transaction::lock_with`].
    ///
    /// # Panics
    /// As [`Transaction::lock`].
    pub fn lock_instant(
        &mut self,
        resource: &Lockable,
        mode: Mode,
        wait: Wait,
    ) -> Result<(), TxnError> {
        self.check_conflict()?;
        self.leave_end();
        let locked = self.locker.lock_instant(resource, mode, wait);
        self.note(locked)
    }

    /// Returns the mode in which the transaction holds a resource.
    #[must_use]
    pub fn held(&self, resource: &Lockable) -> Option<Mode> {
        self.locker.held(resource)
    }

    /// Locks a key, or a gap.
    fn lock_key(&mut self, resource: &Lockable, mode: Mode) -> Result<(), TxnError> {
        self.lock_waiting(resource, mode, Wait::AsSet)
    }

    fn lock_waiting(
        &mut self,
        resource: &Lockable,
        mode: Mode,
        wait: Wait,
    ) -> Result<(), TxnError> {
        self.leave_end();
        let before = self.locker.count();
        let locked = self.locker.lock(resource, mode, wait);
        self.forget_parents_if_fewer(before);
        self.note(locked)
    }

    fn try_key(&mut self, resource: &Lockable, mode: Mode) -> Result<bool, TxnError> {
        self.leave_end();
        self.try_more(resource, mode)
    }

    /// Tries for a lock, and keeps what is kept of the end of a tree.
    fn try_more(&mut self, resource: &Lockable, mode: Mode) -> Result<bool, TxnError> {
        let before = self.locker.count();
        let tried = self.locker.try_lock(resource, mode);
        self.forget_parents_if_fewer(before);
        self.note(tried)
    }

    /// Forgets what is known of the tree's locks if there are fewer locks than `before`: they
    /// became one on the tree.
    fn forget_parents_if_fewer(&mut self, before: usize) {
        if self.locker.count() < before {
            self.parents = None;
        }
    }

    fn lock_for_a_moment(&mut self, resource: &Lockable, mode: Mode) -> Result<(), TxnError> {
        self.leave_end();
        let locked = self.locker.lock_instant(resource, mode, Wait::AsSet);
        self.note(locked)
    }

    /// Releases all locks but those on trees and the store, after the commit.
    fn release_keys(&mut self) {
        debug_assert!(self.state.is_none(), "the transaction is done");
        let is_kept = |resource: &Lockable| matches!(resource, Lockable::Store | Lockable::Tree(_));
        let locks = self.locker.locks().map(|(resource, _)| *resource);
        for resource in locks.filter(|resource| !is_kept(resource)).collect::<Vec<_>>() {
            self.locker.unlock(&resource);
        }
    }

    /// Remembers a conflict. A lock that was got when the store had failed may be one that a
    /// transaction released whose changes are still there: it is worth nothing.
    fn note<T>(&mut self, result: Result<T, LockError>) -> Result<T, TxnError> {
        let locked = result.map_err(|conflict| {
            self.conflict = Some(conflict);
            TxnError::Conflict(conflict)
        })?;
        self.check_running()?;
        Ok(locked)
    }

    /// Returns an error when the store has failed.
    fn check_running(&self) -> Result<(), TxnError> {
        Ok(self.core.log.check().map_err(StoreError::from)?)
    }

    fn lock_to_write(&mut self, tree: &TreeEntry, key: &[u8]) -> Result<(), TxnError> {
        self.lock_parents(tree, IX)?;
        if self.covers_keys(tree, X) {
            return Ok(());
        }
        self.lock_key(&Lockable::Key(tree.id, hash_key(key)), X)
    }

    /// Locks the store and a tree in an intention. While that is held, the tree is not dropped.
    fn lock_parents(&mut self, entry: &TreeEntry, mode: Mode) -> Result<(), TxnError> {
        debug_assert!([IS, IX].contains(&mode), "parents are locked in an intention");
        let tree = entry.id;
        let is_there = |parents: &Parents| {
            parents.tree == tree && (parents.intention == mode || parents.intention == IX)
        };
        if self.parents.as_ref().is_some_and(is_there) {
            return Ok(());
        }
        self.lock(&Lockable::Store, mode)?;
        self.lock(&Lockable::Tree(tree), mode)?;
        check_not_dropped(entry)?;
        let covers = [S, X].map(|mode| self.covers_keys(entry, mode));
        self.parents = Some(Parents { tree, intention: mode, covers });
        Ok(())
    }

    /// Returns whether locks on keys in S or X are needless: by a lock on the tree or the store, or
    /// because the client locks what they stand for.
    fn covers_keys(&self, entry: &TreeEntry, mode: Mode) -> bool {
        if entry.key_locking == KeyLocking::ClientOnly {
            return true;
        }
        let tree = entry.id;
        if let Some(parents) = self.parents.as_ref().filter(|parents| parents.tree == tree) {
            return parents.covers[usize::from(mode == X)];
        }
        let covers = |resource| {
            self.locker
                .held(&resource)
                .is_some_and(|held| self.core.locks.modes().covers(held, mode))
        };
        covers(Lockable::Tree(tree)) || covers(Lockable::Store)
    }

    fn check(&self, tree: &TreeHandle) -> Result<(), TxnError> {
        if !tree.is_of(&self.core) {
            return Err(TxnError::OtherStore);
        }
        check_not_dropped(tree.entry())?;
        self.check_running()?;
        self.check_conflict()
    }

    fn check_to_change(&self, tree: &TreeHandle) -> Result<(), TxnError> {
        if tree.entry().indexed.is_some() {
            return Err(TxnError::IsIndex);
        }
        self.core.log.check_writable().map_err(StoreError::from)?;
        self.check(tree)
    }

    /// Notes a change of a key that the engine does not lock, for an assertion.
    fn note_unlocked(&self, entry: &TreeEntry, key: &[u8]) {
        if entry.key_locking == KeyLocking::ClientOnly {
            self.core.unlocked_writes.note(entry.id, key, self.id);
        }
    }

    fn check_conflict(&self) -> Result<(), TxnError> {
        self.conflict.map_or(Ok(()), |conflict| Err(TxnError::Conflict(conflict)))
    }

    /// Returns whether there was a conflict, after which the transaction can only be rolled back.
    pub(crate) fn has_conflict(&self) -> bool {
        self.conflict.is_some()
    }

    fn check_lengths(&self, key: &[u8], value: &[u8]) -> Result<(), TxnError> {
        check_lengths(&self.core, key, value)
    }

    /// Logs a change that `make` makes.
    fn log(
        &mut self,
        undo: Undo<'_>,
        make: impl FnOnce(&Cause<'_>) -> Result<Lsn, BufferError>,
    ) -> Result<(), TxnError> {
        let core = &self.core;
        let state = self.state.get_or_insert_with(|| core.transactions.enter(self.id, &core.log));
        debug_assert_eq!(state.id, self.id, "a transaction logs for itself");
        let cause = Cause::Update { transaction: self.id, previous: state.last(), undo };
        state.log(|| make(&cause))?;
        Ok(())
    }

    /// Returns the place of the last log record of the transaction; zero for none.
    fn last_lsn(&self) -> Lsn {
        self.state.as_ref().map_or(Lsn::ZERO, |state| state.last())
    }

    fn owner(&self) -> Owner {
        Owner { transaction: self.id, store: Arc::as_ptr(&self.core).addr() }
    }

    fn check_owner(&self, owner: Owner) -> Result<(), TxnError> {
        if owner == self.owner() { Ok(()) } else { Err(TxnError::OtherTransaction) }
    }

    /// Returns the present place, to roll back to.
    #[must_use]
    pub fn savepoint(&self) -> Savepoint {
        Savepoint { owner: self.owner(), lsn: self.last_lsn() }
    }

    /// Rolls back to a savepoint. Locks are kept.
    ///
    /// # Errors
    /// [`TxnError::OtherTransaction`]; the store failed; or there was a conflict, since a gap that
    /// was read may have to be locked by another name.
    pub fn roll_back_to(&mut self, savepoint: Savepoint) -> Result<(), TxnError> {
        self.check_owner(savepoint.owner)?;
        let Some(state) = self.state.clone() else { return Ok(()) };
        let mut lsn = state.last();
        debug_assert!(savepoint.lsn <= lsn, "a savepoint lies before the last record");
        while lsn > savepoint.lsn {
            if let Some((tree, key)) = self.core.inserted_by(lsn)? {
                self.check_conflict()?;
                self.keep_read(tree, &key)?;
            }
            // Half of it taken back is not to be committed.
            let undone = self.core.undo_record(&state, lsn);
            lsn = undone.inspect_err(|error| self.core.log.stop(&error.to_string()))?;
        }
        self.keep_discarded(savepoint.lsn);
        Ok(())
    }

    /// Locks the gap below the next key, if this transaction has read the gap below `key`, a key of
    /// its own that will vanish: the two gaps will be one.
    fn keep_read(&mut self, tree: TreeId, key: &[u8]) -> Result<(), TxnError> {
        let gap_s = self.core.range_modes.gap_s;
        let held = self.locker.held(&Lockable::Key(tree, hash_key(key)));
        if !held.is_some_and(|held| self.core.locks.modes().covers(held, gap_s)) {
            return Ok(());
        }
        let Some(entry) = self.core.catalog.numbered(tree) else {
            return Err(StoreError::NoSuchTree { number: tree.0 }.into());
        };
        let core = Arc::clone(&self.core);
        let tree = core.tree(&entry);
        loop {
            let leaf = tree.leaf(key)?;
            let slot = Node::new(&leaf).search(key).map_or_else(|slot| slot, |slot| slot + 1);
            let next = next_key(tree, &leaf, slot)?;
            if self.try_key(&next, gap_s)? {
                return Ok(());
            }
            drop(leaf);
            self.lock_key(&next, gap_s)?;
        }
    }

    /// Commits the transaction: what it did lasts, and others see it.
    ///
    /// # Errors
    /// There was a conflict: the transaction is rolled back. Or the store has failed: whether a
    /// transaction that changed something is done is known when the store was opened again.
    pub fn commit(mut self) -> Result<(), TxnError> {
        self.check_conflict()?;
        match self.state.take() {
            Some(state) => {
                self.core.commit(&state, self.options.durability)?;
                self.core.unlocked_writes.forget(self.id);
                self.free_discarded();
                Ok(())
            }
            None => self.check_running(),
        }
    }

    /// Rolls the transaction back.
    ///
    /// # Errors
    /// The store failed. The next opening takes it back.
    pub fn roll_back(mut self) -> Result<(), TxnError> {
        self.undo_all()
    }

    fn undo_all(&mut self) -> Result<(), TxnError> {
        let Some(state) = self.state.take() else { return Ok(()) };
        let rolled_back =
            self.core.roll_back(&state, Lsn::ZERO).and_then(|()| self.core.end(&state));
        // The changes are still there, and the locks that guard them will be released.
        Ok(rolled_back.inspect_err(|error| self.core.log.stop(&error.to_string()))?)
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if let Err(error) = self.undo_all() {
            tracing::error!("transaction {} is not rolled back: {error}", self.id.0);
        }
        self.core.unlocked_writes.forget(self.id);
        // The locks are released after this, so they are held as long as the work takes.
        work::count(Operation::Transaction, 1);
        thread::settle();
    }
}

fn check_lengths(core: &Core, key: &[u8], value: &[u8]) -> Result<(), TxnError> {
    let too_long = |what, len, max| Err(TxnError::TooLong { what, len, max });
    let key_max = core.pool.page_size().key_max();
    if key.len() > key_max {
        return too_long("the key", key.len(), key_max);
    }
    if value.len() > VALUE_MAX {
        return too_long("the value", value.len(), VALUE_MAX);
    }
    Ok(())
}

fn value_in<'l>(leaf: &'l [u8], key: &[u8]) -> Option<&'l [u8]> {
    let node = Node::new(leaf);
    node.search(key).ok().map(|slot| node.value(slot))
}

/// Returns the key at a slot of a leaf or, behind its last, the first key of the leaves after it.
fn next_key(tree: Tree<'_>, leaf: &[u8], slot: usize) -> Result<Lockable, BufferError> {
    let id = tree.entry.id;
    let node = Node::new(leaf);
    if slot < node.count() {
        return Ok(Lockable::Key(id, hash_key(&node.key(slot))));
    }
    let mut right = tree.leaf_after(leaf)?;
    while let Some(leaf) = right {
        let node = Node::new(&leaf);
        if node.count() > 0 {
            return Ok(Lockable::Key(id, hash_key(&node.key(0))));
        }
        right = tree.leaf_after(&leaf)?;
    }
    Ok(Lockable::End(id))
}

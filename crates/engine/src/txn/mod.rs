//! Transactions: changes that happen together, apart from those of others.
//!
//! # Mechanism
//! Strict two-phase locking on keys and the gaps between them (`modes`). A lock is tried for while
//! the leaf is latched; if it is not free, the latch is let go, the lock waited for, and the
//! search begun anew, because the leaf may be another by then. So nobody waits for a lock while it
//! holds a latch.
//!
//! | isolation | reads lock | what may be seen |
//! | --- | --- | --- |
//! | read uncommitted | nothing | what will be rolled back |
//! | read committed | nothing or for a moment | another value the second time |
//! | repeatable read | to the end, not the gaps | new keys the second time |
//! | serializable | to the end, and the gaps | nothing of others |
//!
//! Read committed, a page is looked at first: if nothing in it is younger than the oldest change
//! that is not committed, all of it is, and no lock is needed.
//!
//! # When the store has failed
//! After a failed write or sync, or a rollback that could not be done, the log is closed. Locks are
//! given back then, also those of transactions that could not be rolled back, so that nobody waits
//! for ever. What they guarded is never seen: a lock that was got after the failure is refused,
//! and a lock got before it guards against all who failed later.
//!
//! # After an error
//! A transaction that is chosen as the victim of a deadlock, waits too long or is preempted has to
//! be rolled back; everything else it asks for fails with the same error. What was wrong with a
//! request itself, such as a key that is there already, changes nothing.

mod cursor;
mod for_update;
mod index;
mod load;
mod modes;
mod put;

use std::sync::Arc;

use thiserror::Error;

use crate::btree::{Tree, TreeEntry};
use crate::buffer::{BufferError, prefetch};
use crate::lock::multi_granularity::{IS, IX, S, X};
use crate::lock::{LockError, LockManager, Locker, LockerWatch, Mode, Priority, Wait};
use crate::page::{self, Node, PageId, TreeId};
use crate::record::{Cause, TxnId, Undo};
use crate::store::{Core, Store, StoreError, TreeHandle, TxnState};
use crate::wal::Lsn;

pub use cursor::{Cursor, Direction, Entry};
pub(crate) use index::Indexes;
pub use index::{IndexCursor, IndexEntry, IndexHandle, KeysOf};
pub(crate) use modes::{RangeModes, covering, mode_table};
use put::AtEnd;

/// What can be locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lockable {
    /// All trees.
    Store,
    /// A tree.
    Tree(TreeId),
    /// A key of a tree, by a hash of it, and the gap below: two keys with one hash are locked
    /// together.
    Key(TreeId, u64),
    /// The gap above the last key of a tree.
    End(TreeId),
    /// What a client of the engine makes of it: a space of its own, and a number in it.
    Client(u32, u64),
}

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

/// When a commit returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When it is durable.
    #[default]
    Synced,
    /// At once; it is durable within `LogSettings::lazy_sync`.
    Lazy,
}

/// How a transaction runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct TxnOptions {
    /// How far it is apart from others.
    pub isolation: Isolation,
    /// When its commit returns.
    pub durability: Durability,
    /// Its priority in the queues of locks.
    pub priority: Priority,
}

/// Why a transaction cannot do what it was asked.
#[derive(Debug, Error)]
pub enum TxnError {
    /// It has to be rolled back, and may be run again.
    #[error("{0}; roll the transaction back and run it again")]
    Conflict(#[from] LockError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The key is there already.
    #[error("the key is there already")]
    KeyExists,
    /// The key or the entry is too long.
    #[error("{what} has {len} bytes, and {max} is the most in pages of this size")]
    TooLong {
        /// Which of the two.
        what: &'static str,
        /// Its length.
        len: usize,
        /// What is possible.
        max: usize,
    },
    /// The tree belongs to another store.
    #[error("the tree is one of another store")]
    OtherStore,
    /// An index changes with its tree only.
    #[error("the tree is an index, and changes with its tree only")]
    IsIndex,
    /// What the index's rows are found by is not known.
    #[error("index {name} has no function since the store was opened; give it by `create_index`")]
    IndexUnknown {
        /// The index.
        name: String,
    },
    /// The tree has indexes already.
    #[error("the tree has indexes; load it first and make them then")]
    Indexed,
    /// Keys that are to be loaded do not ascend, or are not above those of the tree.
    #[error("the keys to be loaded do not ascend; {loaded} entries are loaded")]
    NotAscending {
        /// Entries loaded at least.
        loaded: u64,
    },
    /// The name is another tree's.
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
    /// Whether the same transaction, run again, may succeed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, TxnError::Conflict(_))
    }
}

/// A place to roll back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint(Lsn);

/// A transaction. One that is dropped is rolled back.
pub struct Transaction {
    core: Arc<Core>,
    locker: Locker<Lockable>,
    id: TxnId,
    /// From its first record on.
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
}

/// What a transaction holds of a tree and of the store, so that it need not look for each key.
struct Parents {
    tree: TreeId,
    /// IS or IX on both, at least.
    intention: Mode,
    /// Whether that makes locks on keys needless in S, in X.
    covers: [bool; 2],
}

/// A hash of a key that differs in all bits where a key differs in one.
fn hash_key(key: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = key.len() as u64;
    let mut chunks = key.chunks_exact(8);
    let mut mix = |word: u64| {
        hash = (hash ^ word).wrapping_mul(MULTIPLIER);
        hash ^= hash >> 29;
    };
    for chunk in &mut chunks {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        mix(u64::from_le_bytes(word));
    }
    let mut word = [0; 8];
    word[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    mix(u64::from_le_bytes(word));
    mix(0);
    hash
}

impl Store {
    /// Begins a transaction.
    #[must_use]
    pub fn begin(&self, options: TxnOptions) -> Transaction {
        let core = Arc::clone(&self.core);
        Transaction {
            locker: core.locks.locker(options.priority),
            id: core.transactions.next_id(),
            core,
            state: None,
            options,
            conflict: None,
            parents: None,
            end: None,
            finger: None,
        }
    }

    /// The locks of all transactions.
    #[must_use]
    pub fn locks(&self) -> &Arc<LockManager<Lockable>> {
        &self.core.locks
    }
}

impl Transaction {
    /// Its number.
    #[must_use]
    pub fn id(&self) -> TxnId {
        self.id
    }

    /// How many locks it holds.
    #[must_use]
    pub fn lock_count(&self) -> usize {
        self.locker.count()
    }

    /// How it stands with its locks, for another thread to see.
    #[must_use]
    pub fn watch(&self) -> LockerWatch {
        self.locker.watch()
    }

    /// The value of a key.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn get(&mut self, tree: &TreeHandle, key: &[u8]) -> Result<Option<Vec<u8>>, TxnError> {
        self.check(tree)?;
        let entry = tree.entry();
        match self.options.isolation {
            Isolation::ReadUncommitted => return self.peek(entry, key),
            Isolation::ReadCommitted => {
                let leaf = self.core.on(entry).leaf(key)?;
                if self.core.transactions.is_settled(page::lsn(&leaf), &self.core.log) {
                    return Ok(value_in(&leaf, key));
                }
                drop(leaf);
                let resource = Lockable::Key(entry.id, hash_key(key));
                self.lock_parents(entry.id, IS)?;
                let was_held = self.locker.held(&resource).is_some();
                if !self.covers_keys(entry.id, S) {
                    self.lock_key(&resource, S)?;
                }
                let value = self.peek(entry, key);
                if !was_held {
                    self.locker.unlock(&resource);
                }
                return value;
            }
            Isolation::RepeatableRead | Isolation::Serializable => {}
        }
        self.lock_parents(entry.id, IS)?;
        if self.covers_keys(entry.id, S) {
            return self.peek(entry, key);
        }
        self.get_locked(tree, key, S)
    }

    /// The value of a key, which is locked under the latch of its leaf; a key that is not there is
    /// kept from being put there.
    fn get_locked(
        &mut self,
        tree: &TreeHandle,
        key: &[u8],
        mode: Mode,
    ) -> Result<Option<Vec<u8>>, TxnError> {
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
            if !self.try_lock(&own, mode)? {
                drop(leaf);
                self.lock_key(&own, mode)?;
                continue;
            }
            let next = match place {
                Ok(slot) => return Ok(Some(Node::new(&leaf).value(slot).to_vec())),
                Err(_) if self.options.isolation != Isolation::Serializable => return Ok(None),
                Err(slot) => next_key(on, &leaf, slot)?,
            };
            if self.try_lock(&next, gap_s)? {
                return Ok(None);
            }
            drop(leaf);
            self.lock_key(&next, gap_s)?;
        }
    }

    /// The present value of a key, also one that another transaction wrote.
    fn peek(&self, entry: &TreeEntry, key: &[u8]) -> Result<Option<Vec<u8>>, TxnError> {
        let leaf = self.core.on(entry).leaf(key)?;
        Ok(value_in(&leaf, key))
    }

    /// Adds a key that is not there.
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

    /// Gives a key a value, whether it is there or not.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn put(&mut self, tree: &TreeHandle, key: &[u8], value: &[u8]) -> Result<(), TxnError> {
        self.put_if(tree, key, value, |_| true).map(|_| ())
    }

    /// Gives a key that is there another value; whether it was there.
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
        if tree.entry().indexes() > 0 {
            return self.change_row(tree.entry(), key, Some(value), may);
        }
        self.put_entry(tree.entry(), key, value, may)
    }

    /// Takes a key out; whether it was there.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn remove(&mut self, tree: &TreeHandle, key: &[u8]) -> Result<bool, TxnError> {
        self.check_to_change(tree)?;
        if tree.entry().indexes() > 0 {
            return self.change_row(tree.entry(), key, None, |exists| exists);
        }
        self.remove_entry(tree.entry(), key)
    }

    /// Takes a key of a tree out, whatever indexes there are.
    fn remove_entry(&mut self, entry: &TreeEntry, key: &[u8]) -> Result<bool, TxnError> {
        self.lock_to_write(entry.id, key)?;
        let core = Arc::clone(&self.core);
        let tree = core.on(entry);
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
            let undo = Undo::Insert { tree: entry.id, key, value: &old };
            self.log(undo, |cause| tree.remove(&mut leaf, slot, cause))?;
            let is_spare = tree.is_spare(Node::new(&leaf));
            drop(leaf);
            if is_spare {
                tree.tidy(key)?;
            }
            return Ok(true);
        }
    }

    /// Locks what the removal of `key` at `slot` of a leaf needs beside the key: the gap that it
    /// leaves; what it would have to wait for.
    fn close_gap(
        &mut self,
        tree: Tree<'_>,
        leaf: &[u8],
        slot: usize,
        key: &[u8],
    ) -> Result<Option<(Lockable, Mode)>, TxnError> {
        if self.covers_keys(tree.entry.id, X) {
            return Ok(None);
        }
        let next = next_key(tree, leaf, slot + 1)?;
        let own = Lockable::Key(tree.entry.id, hash_key(key));
        let both = self.core.range_modes.gap_si;
        for (resource, mode) in [(own, both), (next, both)] {
            if !self.try_lock(&resource, mode)? {
                return Ok(Some((resource, mode)));
            }
        }
        Ok(None)
    }

    /// Locks something until the end.
    ///
    /// # Errors
    /// [`TxnError::Conflict`].
    pub fn lock(&mut self, resource: &Lockable, mode: Mode) -> Result<(), TxnError> {
        self.check_conflict()?;
        self.parents = None;
        self.lock_key(resource, mode)
    }

    /// Locks a key, or a gap.
    fn lock_key(&mut self, resource: &Lockable, mode: Mode) -> Result<(), TxnError> {
        self.leave_end();
        let before = self.locker.count();
        let locked = self.locker.lock(resource, mode, Wait::AsSet);
        self.forget_parents_if_fewer(before);
        self.note(locked)
    }

    fn try_lock(&mut self, resource: &Lockable, mode: Mode) -> Result<bool, TxnError> {
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

    /// Fewer locks than before: they became one on the tree.
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

    /// Remembers a conflict. A lock that was got when the store had failed may be one that a
    /// transaction gave back whose changes are still there: it is worth nothing.
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

    fn lock_to_write(&mut self, tree: TreeId, key: &[u8]) -> Result<(), TxnError> {
        self.lock_parents(tree, IX)?;
        if self.covers_keys(tree, X) {
            return Ok(());
        }
        self.lock_key(&Lockable::Key(tree, hash_key(key)), X)
    }

    fn lock_parents(&mut self, tree: TreeId, mode: Mode) -> Result<(), TxnError> {
        let is_there = |parents: &Parents| {
            parents.tree == tree && (parents.intention == mode || parents.intention == IX)
        };
        if self.parents.as_ref().is_some_and(is_there) {
            return Ok(());
        }
        self.lock(&Lockable::Store, mode)?;
        self.lock(&Lockable::Tree(tree), mode)?;
        let covers = [S, X].map(|mode| self.covers_keys(tree, mode));
        self.parents = Some(Parents { tree, intention: mode, covers });
        Ok(())
    }

    /// Whether a lock on the tree or the store makes locks on keys in S or X needless.
    fn covers_keys(&self, tree: TreeId, mode: Mode) -> bool {
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

    fn check_conflict(&self) -> Result<(), TxnError> {
        self.conflict.map_or(Ok(()), |conflict| Err(TxnError::Conflict(conflict)))
    }

    fn check_lengths(&self, key: &[u8], value: &[u8]) -> Result<(), TxnError> {
        let size = self.core.pool.page_size();
        let too_long = |what, len, max| Err(TxnError::TooLong { what, len, max });
        if key.len() > size.key_max() {
            return too_long("the key", key.len(), size.key_max());
        }
        let len = key.len() + value.len();
        if len > size.entry_max() {
            return too_long("the entry", len, size.entry_max());
        }
        Ok(())
    }

    /// Logs a change that `make` makes.
    fn log(
        &mut self,
        undo: Undo<'_>,
        make: impl FnOnce(&Cause<'_>) -> Result<Lsn, BufferError>,
    ) -> Result<(), TxnError> {
        let core = &self.core;
        let state = self.state.get_or_insert_with(|| core.transactions.enter(self.id, &core.log));
        let cause = Cause::Update { transaction: self.id, previous: state.last(), undo };
        state.log(|| make(&cause))?;
        Ok(())
    }

    /// A place to roll back to.
    #[must_use]
    pub fn savepoint(&self) -> Savepoint {
        Savepoint(self.state.as_ref().map_or(Lsn::ZERO, |state| state.last()))
    }

    /// Takes back what was done since. Locks are kept.
    ///
    /// # Errors
    /// The store failed; or there was a conflict, since a gap that was read may have to be locked
    /// by another name.
    pub fn roll_back_to(&mut self, savepoint: Savepoint) -> Result<(), TxnError> {
        let Some(state) = self.state.clone() else { return Ok(()) };
        let mut lsn = state.last();
        while lsn > savepoint.0 {
            if let Some((tree, key)) = self.core.inserted_by(lsn)? {
                self.check_conflict()?;
                self.keep_read(tree, &key)?;
            }
            // Half of it taken back is not to be committed.
            let undone = self.core.undo_record(&state, lsn);
            lsn = undone.inspect_err(|error| self.core.log.stop(&error.to_string()))?;
        }
        Ok(())
    }

    /// A key of this transaction's own will vanish: if it has read the gap below it, which will be
    /// part of the next key's gap, that one is locked.
    fn keep_read(&mut self, tree: TreeId, key: &[u8]) -> Result<(), TxnError> {
        let gap_s = self.core.range_modes.gap_s;
        let held = self.locker.held(&Lockable::Key(tree, hash_key(key)));
        if !held.is_some_and(|held| self.core.locks.modes().covers(held, gap_s)) {
            return Ok(());
        }
        let Some(entry) = self.core.catalog.numbered(tree) else { return Ok(()) };
        let core = Arc::clone(&self.core);
        let tree = core.on(&entry);
        loop {
            let leaf = tree.leaf(key)?;
            let slot = Node::new(&leaf).search(key).map_or_else(|slot| slot, |slot| slot + 1);
            let next = next_key(tree, &leaf, slot)?;
            if self.try_lock(&next, gap_s)? {
                return Ok(());
            }
            drop(leaf);
            self.lock_key(&next, gap_s)?;
        }
    }

    /// Makes what was done last, and lets others see it.
    ///
    /// # Errors
    /// There was a conflict: the transaction is rolled back. Or the store has failed: whether a
    /// transaction that changed something is done is known when the store was opened again.
    pub fn commit(mut self) -> Result<(), TxnError> {
        self.check_conflict()?;
        match self.state.take() {
            Some(state) => Ok(self.core.commit(&state, self.options.durability)?),
            None => self.check_running(),
        }
    }

    /// Takes everything back.
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
        // The changes are still there, and the locks that guard them will be given back.
        Ok(rolled_back.inspect_err(|error| self.core.log.stop(&error.to_string()))?)
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if let Err(error) = self.undo_all() {
            tracing::error!("transaction {} is not rolled back: {error}", self.id.0);
        }
    }
}

fn value_in(leaf: &[u8], key: &[u8]) -> Option<Vec<u8>> {
    let node = Node::new(leaf);
    node.search(key).ok().map(|slot| node.value(slot).to_vec())
}

/// The key at a slot of a leaf or, behind its last, the first of the leaves after it.
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

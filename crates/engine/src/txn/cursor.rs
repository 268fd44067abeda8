//! Walking over keys in order, up or down.
//!
//! # Mechanism
//! A cursor takes a copy of a leaf and hands out its entries one by one. While it does it holds no
//! latch, so others go on. Where each key is locked, the lock is taken first, and then the leaf is
//! looked at again: if its LSN is still that of the copy, the entry is what it was; if not, the
//! leaf is looked for and copied anew, from the last key that was handed out. The lock stays, so
//! that the entry does not change again.
//!
//! Upward, the next leaf is the right sibling, as long as the leaf is still what was copied; else,
//! and downward always, it is looked for from the root.
//!
//! Read committed, a leaf of which all is committed needs no locks at all: its copy is what was
//! committed at one moment.
//!
//! What is changed by the cursor's own transaction ahead of it is seen, as by anybody else.
//!
//! # Gaps
//! Serializable, a key is locked with the gap below it. Upward, that leaves the gap between the
//! last key handed out and the end of the range: the first key beyond is locked as well. Downward,
//! it is the gap between the upper end and the first key handed out: the key above is locked first.
//!
//! # Limits
//! A leaf is copied whole for one entry of it as well.

use std::ops::Bound;
use std::sync::Arc;

use super::{Found, Isolation, Lockable, Transaction, TxnError, find, hash_key};
use crate::btree::TreeEntry;
use crate::lock::multi_granularity::{IS, S};
use crate::page::{self, Node, PageId};
use crate::store::TreeHandle;
use crate::wal::Lsn;

/// Which way a cursor goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To higher keys.
    Up,
    /// To lower keys.
    Down,
}

/// A place in a range of a tree. It belongs to the transaction that made it.
pub struct Cursor {
    tree: TreeHandle,
    direction: Direction,
    low: Bound<Vec<u8>>,
    high: Bound<Vec<u8>>,
    leaf: Option<Copy>,
    /// The key handed out last, where the range begins anew if there is one.
    key: Vec<u8>,
    is_begun: bool,
    is_done: bool,
    /// Memory of an earlier copy.
    spare: Vec<u8>,
    /// A key that is to be locked; kept for its memory.
    probe: Vec<u8>,
}

/// A copy of a leaf, and what of it is still to come.
struct Copy {
    bytes: Vec<u8>,
    id: PageId,
    lsn: Lsn,
    /// Slots to come, from this one up to, not including, that one.
    from: usize,
    to: usize,
    /// Its entries need no locks.
    is_settled: bool,
    /// [`Cursor::key`] is of an entry of it.
    is_handed_out: bool,
}

/// A key and its value.
pub type Entry<'c> = (&'c [u8], &'c [u8]);

/// What a cursor is to do next.
enum Next {
    Entry(usize),
    Leaf,
    Done,
}

impl Transaction {
    /// A cursor over the keys of a range.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn cursor(
        &mut self,
        tree: &TreeHandle,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
    ) -> Result<Cursor, TxnError> {
        self.check(tree)?;
        if self.options.isolation != Isolation::ReadUncommitted {
            self.lock_parents(tree.entry().id, IS)?;
        }
        let owned = |bound: Bound<&[u8]>| bound.map(<[u8]>::to_vec);
        Ok(Cursor {
            tree: tree.clone(),
            direction,
            low: owned(range.0),
            high: owned(range.1),
            leaf: None,
            key: Vec::new(),
            is_begun: false,
            is_done: false,
            spare: Vec::new(),
            probe: Vec::new(),
        })
    }

    /// Whether reads of this transaction lock each key.
    fn locks_keys(&self, tree: &TreeEntry) -> bool {
        self.options.isolation != Isolation::ReadUncommitted && !self.covers_keys(tree.id, S)
    }

    /// Locks a key that a cursor has come to, by its hash or the end of the tree.
    fn lock_for_scan(&mut self, resource: &Lockable) -> Result<(), TxnError> {
        match self.options.isolation {
            Isolation::ReadUncommitted => Ok(()),
            Isolation::ReadCommitted => self.lock_for_a_moment(resource, S),
            Isolation::RepeatableRead => self.lock_key(resource, S),
            Isolation::Serializable => self.lock_key(resource, self.core.range_modes.rs),
        }
    }
}

impl Cursor {
    /// The next key and its value, or `None` at the end of the range.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn next(&mut self, transaction: &mut Transaction) -> Result<Option<Entry<'_>>, TxnError> {
        transaction.check(&self.tree)?;
        loop {
            if self.is_done {
                return Ok(None);
            }
            self.begin(transaction)?;
            let slot = match self.look() {
                Next::Entry(slot) => slot,
                Next::Leaf => {
                    self.go_on(transaction)?;
                    continue;
                }
                Next::Done => {
                    self.forget_leaf();
                    if self.close(transaction)? {
                        self.is_done = true;
                    }
                    continue;
                }
            };
            if self.is_sure(transaction, slot)? {
                return Ok(self.hand_out(slot));
            }
            self.forget_leaf();
        }
    }

    fn hand_out(&mut self, slot: usize) -> Option<(&[u8], &[u8])> {
        let direction = self.direction;
        let leaf = self.leaf.as_mut()?;
        match direction {
            Direction::Up => leaf.from = slot + 1,
            Direction::Down => leaf.to = slot,
        }
        let node = Node::new(&leaf.bytes);
        node.copy_key(slot, &mut self.key);
        leaf.is_handed_out = true;
        Some((&self.key, node.value(slot)))
    }

    /// Gives the copy up. From the key handed out last on it is looked for again.
    fn forget_leaf(&mut self) {
        let Some(leaf) = self.leaf.take() else { return };
        if leaf.is_handed_out {
            match self.direction {
                Direction::Up => replace_bound(&mut self.low, &self.key),
                Direction::Down => replace_bound(&mut self.high, &self.key),
            }
        }
        self.spare = leaf.bytes;
    }

    /// Goes on behind the fence of the copy: to the right sibling, if the leaf is unchanged.
    fn go_on(&mut self, transaction: &Transaction) -> Result<(), TxnError> {
        let Some(leaf) = self.leaf.take() else { return Ok(()) };
        self.spare = leaf.bytes;
        if self.direction == Direction::Down {
            return Ok(());
        }
        let entry = self.tree.entry();
        let tree = transaction.core.on(entry);
        let now = transaction.core.pool.read(leaf.id, &entry.counters)?;
        if page::lsn(&now) == leaf.lsn
            && let Some(right) = tree.leaf_after(&now)?
        {
            drop(now);
            let spare = std::mem::take(&mut self.spare);
            self.leaf = Some(self.copy(&right, transaction, spare));
        }
        Ok(())
    }

    /// Sees to it that there is a copy of the leaf to go on with.
    fn begin(&mut self, transaction: &mut Transaction) -> Result<(), TxnError> {
        if !self.is_begun && self.direction == Direction::Down {
            self.lock_above(transaction)?;
        }
        self.is_begun = true;
        if self.leaf.is_none() {
            let spare = std::mem::take(&mut self.spare);
            self.leaf = Some(self.copy_leaf(transaction, spare)?);
        }
        Ok(())
    }

    /// Copies the leaf that the rest of the range begins in.
    fn copy_leaf(&self, transaction: &Transaction, spare: Vec<u8>) -> Result<Copy, TxnError> {
        let tree = transaction.core.on(self.tree.entry());
        let leaf = match (self.direction, &self.low, &self.high) {
            (Direction::Up, Bound::Included(key) | Bound::Excluded(key), _)
            | (Direction::Down, _, Bound::Included(key)) => tree.leaf(key)?,
            (Direction::Up, Bound::Unbounded, _) => tree.leaf(b"")?,
            (Direction::Down, _, Bound::Excluded(key)) => tree.leaf_before(Some(key))?,
            (Direction::Down, _, Bound::Unbounded) => tree.leaf_before(None)?,
        };
        Ok(self.copy(&leaf, transaction, spare))
    }

    /// Copies a leaf that is latched into `spare`.
    fn copy(&self, leaf: &[u8], transaction: &Transaction, spare: Vec<u8>) -> Copy {
        let (node, lsn) = (Node::new(leaf), page::lsn(leaf));
        let core = &transaction.core;
        let mut bytes = spare;
        bytes.clear();
        bytes.extend_from_slice(leaf);
        Copy {
            bytes,
            id: page::id(leaf),
            lsn,
            from: first_slot(node, &self.low),
            to: end_slot(node, &self.high),
            is_settled: transaction.options.isolation == Isolation::ReadCommitted
                && core.transactions.is_settled(lsn, &core.log),
            is_handed_out: false,
        }
    }

    /// What comes next by the copy. Where the copy has no more, the range goes on behind its fence.
    fn look(&mut self) -> Next {
        let Some(leaf) = &self.leaf else {
            return Next::Leaf;
        };
        if leaf.from < leaf.to {
            return match self.direction {
                Direction::Up => Next::Entry(leaf.from),
                Direction::Down => Next::Entry(leaf.to - 1),
            };
        }
        let fences = Node::new(&leaf.bytes).fences();
        match self.direction {
            Direction::Up => match fences.high {
                Some(high) if may_hold(high, &self.high) => {
                    self.low = Bound::Included(high.to_vec());
                    Next::Leaf
                }
                _ => Next::Done,
            },
            Direction::Down if !fences.low.is_empty() && is_above(fences.low, &self.low) => {
                self.high = Bound::Excluded(fences.low.to_vec());
                Next::Leaf
            }
            Direction::Down => Next::Done,
        }
    }

    /// Locks the entry at `slot` of the copy as the isolation asks; whether it is still there.
    fn is_sure(&mut self, transaction: &mut Transaction, slot: usize) -> Result<bool, TxnError> {
        let entry = self.tree.entry();
        let Some(leaf) = self.leaf.as_ref() else { return Ok(false) };
        if leaf.is_settled || !transaction.locks_keys(entry) {
            return Ok(true);
        }
        self.probe.clear();
        Node::new(&leaf.bytes).copy_key(slot, &mut self.probe);
        transaction.lock_for_scan(&Lockable::Key(entry.id, hash_key(&self.probe)))?;
        let now = transaction.core.pool.read(leaf.id, &entry.counters)?;
        Ok(page::lsn(&now) == leaf.lsn)
    }

    /// At the end of the range: upward, the gap up to the next key is locked; whether nothing has
    /// come into it meanwhile.
    fn close(&self, transaction: &mut Transaction) -> Result<bool, TxnError> {
        let entry = self.tree.entry();
        let is_open = self.direction == Direction::Up
            && transaction.options.isolation == Isolation::Serializable
            && transaction.locks_keys(entry);
        if !is_open {
            return Ok(true);
        }
        let core = Arc::clone(&transaction.core);
        let tree = core.on(entry);
        let (next, is_beyond) = {
            let from = bound_key(&self.low);
            let leaf = tree.leaf(from)?;
            let node = Node::new(&leaf);
            let slot = first_slot(node, &self.low);
            let is_beyond = slot >= end_slot(node, &self.high);
            (super::next_key(tree, &leaf, slot)?, is_beyond)
        };
        if !is_beyond {
            return Ok(false);
        }
        let rs = transaction.core.range_modes.rs;
        if transaction.locker.held(&next).is_some_and(|held| core.locks.modes().covers(held, rs)) {
            return Ok(true);
        }
        transaction.lock_key(&next, rs)?;
        // What was next when the lock was asked for may not be any more: look again.
        Ok(false)
    }

    /// Locks the key above the range, and with it the gap below, before the range is read downward.
    fn lock_above(&self, transaction: &mut Transaction) -> Result<(), TxnError> {
        let entry = self.tree.entry();
        if transaction.options.isolation != Isolation::Serializable
            || !transaction.locks_keys(entry)
        {
            return Ok(());
        }
        let core = Arc::clone(&transaction.core);
        let tree = core.on(entry);
        let rs = transaction.core.range_modes.rs;
        loop {
            let next = match &self.high {
                Bound::Unbounded => Lockable::End(entry.id),
                Bound::Included(key) | Bound::Excluded(key) => {
                    let leaf = tree.leaf(key)?;
                    match find(tree, &leaf, key)? {
                        Found::Here(_) => Lockable::Key(entry.id, hash_key(key)),
                        Found::Before(next) => next,
                    }
                }
            };
            let is_held = transaction.locker.held(&next);
            if is_held.is_some_and(|held| core.locks.modes().covers(held, rs)) {
                return Ok(());
            }
            transaction.lock_key(&next, rs)?;
        }
    }
}

fn replace_bound(bound: &mut Bound<Vec<u8>>, key: &[u8]) {
    match bound {
        Bound::Excluded(old) => {
            old.clear();
            old.extend_from_slice(key);
        }
        _ => *bound = Bound::Excluded(key.to_vec()),
    }
}

fn bound_key(bound: &Bound<Vec<u8>>) -> &[u8] {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => key,
        Bound::Unbounded => b"",
    }
}

/// The first slot of a node with a key that is not below the range.
fn first_slot(node: Node<'_>, low: &Bound<Vec<u8>>) -> usize {
    match low {
        Bound::Unbounded => 0,
        Bound::Included(key) => place(node, key).unwrap_or_else(|slot| slot),
        Bound::Excluded(key) => match place(node, key) {
            Ok(slot) => slot + 1,
            Err(slot) => slot,
        },
    }
}

/// The slot behind the last with a key that is not above the range.
fn end_slot(node: Node<'_>, high: &Bound<Vec<u8>>) -> usize {
    match high {
        Bound::Unbounded => node.count(),
        Bound::Included(key) => match place(node, key) {
            Ok(slot) => slot + 1,
            Err(slot) => slot,
        },
        Bound::Excluded(key) => place(node, key).unwrap_or_else(|slot| slot),
    }
}

/// Where a key is in a node, which need not cover it.
fn place(node: Node<'_>, key: &[u8]) -> Result<usize, usize> {
    let fences = node.fences();
    if key < fences.low {
        Err(0)
    } else if fences.high.is_some_and(|high| key >= high) {
        Err(node.count())
    } else {
        node.search(key)
    }
}

/// Whether keys from `fence` on may be in a range that ends so.
fn may_hold(fence: &[u8], high: &Bound<Vec<u8>>) -> bool {
    match high {
        Bound::Unbounded => true,
        Bound::Included(key) => fence <= key,
        Bound::Excluded(key) => fence < key,
    }
}

/// Whether keys below `fence` may be in a range that begins so.
fn is_above(fence: &[u8], low: &Bound<Vec<u8>>) -> bool {
    match low {
        Bound::Unbounded => true,
        Bound::Included(key) | Bound::Excluded(key) => fence > key,
    }
}

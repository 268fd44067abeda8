//! Walking over keys in order, up or down.
//!
//! # Mechanism
//! A cursor takes a copy of a leaf and hands out its entries one by one. While it does it holds no
//! latch, so others go on. Where each key is locked, the lock is taken first, and then the leaf is
//! looked at again: if its LSN is still that of the copy, the entry is what it was; if not, the
//! leaf is looked for and copied anew, from the last key that was handed out. The lock stays, so
//! that the entry does not change again.
//!
//! Upward, the next leaf is the right sibling. With the lock on its first entry the gap back to the
//! last key is locked; part of that gap is in the leaf that was left, so that one has to be what it
//! was as well. Downward the next leaf is looked for from the root, and when it has been copied the
//! key above it is locked, before the copy is believed.
//!
//! Read committed, a leaf of which all is committed needs no locks: its copy is what was committed
//! at one moment.
//!
//! Changes that the cursor's own transaction makes ahead of it are seen.
//!
//! # Turning and seeking
//! A cursor that is told to go to a key further on in its copy goes there in the copy, if the LSN
//! is still the same. Else a cursor that turns, is told to go to a key, or is given another range
//! drops what it knew of the way and looks for its leaf again, as after a change by others. It
//! looks at the leaf of its last copy first: if the fences say that the way goes on there, the
//! tree is not searched from the root, and if the LSN is still the same the copy is not even made
//! again. So a step between neighbours costs a latch and a binary search, and no memory is
//! allocated.
//!
//! # Gaps
//! Serializable, a key is locked with the gap below it. Upward, that leaves the gap between the
//! last key handed out and the end of the range: the gap below the first key beyond is locked as
//! well. Downward, it is the gap between the upper end and the first key handed out: that below the
//! key above is locked first. The lower levels lock the same gaps for a moment, because a key that
//! another transaction has removed and may put back leaves no other trace.
//!
//! # Example
//! A leaf has 10, 20, 30; another transaction removes 20 and has not committed: 30 is locked in RB.
//! A cursor hands out 10, comes to 30 and waits for RS on the gap below it. The removal is rolled
//! back; the leaf has another LSN, is copied anew from behind 10, and 20 is handed out.
//!
//! # Limits
//! * A leaf is copied whole for one entry of it as well.
//! * Where keys are locked, a turn downward searches for the key above what is to come from the
//!   root, because the gap below that key has to be locked.

use std::ops::Bound;
use std::sync::Arc;

use super::{
    Isolation, Lockable, Owner, Part, Reference, Transaction, TxnError, hash_key, next_key,
};
use crate::btree::{Tree, TreeEntry};
use crate::core::{TreeHandle, check_not_dropped};
use crate::lock::multi_granularity::{IS, S, X};
use crate::page::{self, Fences, Kind, Node, PageId};
use crate::wal::Lsn;

/// The direction of a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To higher keys.
    Up,
    /// To lower keys.
    Down,
}

/// A place in a range of a tree: before its first entry, at an entry, or behind its last. It
/// belongs to the transaction that made it, which lets go of it between two calls of
/// [`Cursor::next`]; [`Range`](super::Range) is the same as an iterator.
///
/// ```
/// # use std::ops::Bound;
/// # use tidegate_engine::{Direction, Store, StoreOptions, TxnError};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let parent = tempfile::tempdir()?;
/// # let store = Store::open_or_create(parent.path().join("store"), &StoreOptions::default())?;
/// let tree = store.create_tree("words")?;
/// store.transaction(|transaction| {
///     for word in ["ant", "bee", "cat", "dog"] {
///         transaction.insert(&tree, word.as_bytes(), b"")?;
///     }
///     let all = (Bound::Unbounded, Bound::Unbounded);
///     let mut cursor = transaction.cursor(&tree, all, Direction::Up)?;
///     assert_eq!(cursor.seek(transaction, b"c")?, Some((&b"cat"[..], &b""[..])));
///     assert_eq!(cursor.prev(transaction)?, Some((&b"bee"[..], &b""[..])));
///     assert_eq!(cursor.next(transaction)?, Some((&b"cat"[..], &b""[..])));
///     assert_eq!(cursor.current(), Some((&b"cat"[..], &b""[..])));
///     Ok::<(), TxnError>(())
/// })?;
/// # Ok(())
/// # }
/// ```
pub struct Cursor {
    tree: TreeHandle,
    owner: Owner,
    /// The range, and the direction in which it is gone through.
    range: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    order: Direction,
    /// The direction of the last step. Before the first step it is the other one, and the cursor at
    /// the end of that.
    direction: Direction,
    /// The slot of the copy whose entry the cursor is at.
    current: Option<usize>,
    /// Keys are locked in U, to the end.
    is_for_update: bool,
    /// What is still to come, apart from what the copy says.
    low: Bound<Vec<u8>>,
    high: Bound<Vec<u8>>,
    leaf: Option<Copy>,
    /// Upward: leaves that were left since the last entry was handed out.
    left: Vec<Version>,
    /// The key handed out last.
    key: Vec<u8>,
    is_done: bool,
    /// Memory of an earlier copy, and which page that is a copy of, if it is one still.
    spare: Vec<u8>,
    spare_version: Option<Version>,
    /// The next value to be handed out, if it is a long one.
    long: Vec<u8>,
    /// A reference to a long value that was not there.
    missed: Option<Reference>,
    /// A key that is to be locked.
    probe: Vec<u8>,
    /// It is the next to be handed out.
    is_probed: bool,
}

/// A page as it was.
#[derive(Clone, Copy)]
struct Version {
    id: PageId,
    lsn: Lsn,
}

/// A copy of a leaf, and what of it is still to come.
struct Copy {
    bytes: Vec<u8>,
    version: Version,
    /// Slots to come, from this one up to, not including, that one.
    from: usize,
    to: usize,
    /// Its entries need no locks, apart from the first if the leaf before was not settled.
    is_settled: bool,
    /// The last record of the cursor's transaction when the copy was made, or seen to be good.
    own: Lsn,
    /// All between the last entry handed out and the next of this copy is settled.
    is_way_settled: bool,
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
    /// Returns a cursor over the keys of a range.
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
            self.lock_parents(tree.entry(), IS)?;
        }
        Ok(Cursor::new(self.owner(), tree, range, direction, false))
    }

    /// Returns whether reads of this transaction lock each key.
    pub(super) fn locks_keys(&self, tree: &TreeEntry) -> bool {
        self.options.isolation != Isolation::ReadUncommitted && !self.covers_keys(tree, S)
    }

    /// Locks a key that a cursor has come to.
    fn lock_for_scan(&mut self, key: &Lockable) -> Result<(), TxnError> {
        let both_s = self.core.range_modes.both_s;
        match self.options.isolation {
            Isolation::ReadUncommitted => Ok(()),
            Isolation::ReadCommitted => self.lock_for_a_moment(key, both_s),
            Isolation::RepeatableRead => {
                self.lock_key(key, S)?;
                self.lock_gap(key)
            }
            Isolation::Serializable => self.lock_key(key, both_s),
        }
    }

    /// Locks the gap below a key, or the last gap of a tree, that a cursor passes.
    pub(super) fn lock_gap(&mut self, above: &Lockable) -> Result<(), TxnError> {
        let gap_s = self.core.range_modes.gap_s;
        match self.options.isolation {
            Isolation::ReadUncommitted => Ok(()),
            Isolation::ReadCommitted | Isolation::RepeatableRead => {
                self.lock_for_a_moment(above, gap_s)
            }
            Isolation::Serializable => self.lock_key(above, gap_s),
        }
    }
}

impl Cursor {
    pub(super) fn new(
        owner: Owner,
        tree: &TreeHandle,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        is_for_update: bool,
    ) -> Self {
        let copied = |bound: Bound<&[u8]>| bound.map(<[u8]>::to_vec);
        Cursor {
            tree: tree.clone(),
            owner,
            range: (copied(range.0), copied(range.1)),
            order: direction,
            direction: opposite(direction),
            current: None,
            is_for_update,
            low: Bound::Unbounded,
            high: Bound::Unbounded,
            leaf: None,
            left: Vec::new(),
            key: Vec::new(),
            is_done: true,
            spare: Vec::new(),
            spare_version: None,
            long: Vec::new(),
            missed: None,
            probe: Vec::new(),
            is_probed: false,
        }
    }

    /// Returns whether each key has to be locked.
    fn locks_keys(&self, transaction: &Transaction) -> bool {
        let tree = self.tree.entry();
        if self.is_for_update {
            !transaction.covers_keys(tree, X)
        } else {
            transaction.locks_keys(tree)
        }
    }

    /// Returns the key that was handed out last.
    pub(super) fn last_key(&self) -> &[u8] {
        &self.key
    }

    /// Moves to the next entry in the cursor's direction and returns its key and value; `None` at
    /// the end of the range.
    ///
    /// # Errors
    /// [`TxnError::OtherTransaction`] if `transaction` has not made the cursor; or another of
    /// [`TxnError`].
    pub fn next(&mut self, transaction: &mut Transaction) -> Result<Option<Entry<'_>>, TxnError> {
        self.walk(transaction, self.order)
    }

    /// Moves to the entry before the one that the cursor is at and returns its key and value; to
    /// the last of the range if the cursor has come to its end. Returns `None` before the first:
    /// then [`Cursor::next`] goes to the first.
    ///
    /// # Errors
    /// As [`Cursor::next`].
    pub fn prev(&mut self, transaction: &mut Transaction) -> Result<Option<Entry<'_>>, TxnError> {
        self.walk(transaction, opposite(self.order))
    }

    /// Moves to the first entry of the range, in the cursor's direction, that does not come before
    /// `key`, and returns its key and value: upward the lowest at or above `key`, downward the
    /// highest at or below it. Returns `None` if there is none: the cursor is at the end then.
    ///
    /// # Errors
    /// As [`Cursor::next`].
    pub fn seek(
        &mut self,
        transaction: &mut Transaction,
        key: &[u8],
    ) -> Result<Option<Entry<'_>>, TxnError> {
        transaction.check(&self.tree)?;
        transaction.check_owner(self.owner)?;
        self.current = None;
        if self.seek_in_copy(transaction, key)? {
            return self.advance(transaction);
        }
        self.forget_leaf();
        self.reset(self.order);
        let (low, high) = (&self.range.0, &self.range.1);
        match self.order {
            Direction::Up if !may_hold(key, high) => self.is_done = true,
            Direction::Up if is_above(key, low) => assign(&mut self.low, Bound::Included(key)),
            Direction::Down if !may_begin(key, low) => self.is_done = true,
            Direction::Down if is_below(key, high) => assign(&mut self.high, Bound::Included(key)),
            _ => {}
        }
        self.advance(transaction)
    }

    /// Goes to a key upward in the copy. Returns whether the key is in the range and in the copy
    /// behind the entry handed out last, and the leaf is what it was.
    fn seek_in_copy(&mut self, transaction: &Transaction, key: &[u8]) -> Result<bool, TxnError> {
        let is_upward = self.order == Direction::Up && self.direction == Direction::Up;
        let Some(leaf) = self.leaf.as_ref().filter(|leaf| is_upward && leaf.is_handed_out) else {
            return Ok(false);
        };
        let node = Node::new(&leaf.bytes);
        let is_ahead = key > &self.key[..] && node.covers(key) && may_hold(key, &self.range.1);
        if !is_ahead || !self.is_same(transaction, leaf.version)? {
            return Ok(false);
        }
        let slot = node.search(key).unwrap_or_else(|slot| slot);
        self.left.clear();
        assign(&mut self.low, Bound::Included(key));
        if let Some(leaf) = self.leaf.as_mut() {
            debug_assert!(slot >= leaf.from, "the key is behind the one handed out");
            leaf.from = slot.min(leaf.to);
            leaf.is_handed_out = false;
            leaf.is_way_settled = leaf.is_settled;
        }
        Ok(true)
    }

    /// Moves, as [`Cursor::next`] does, to the next entry whose value passes a test. Where keys are
    /// not locked, what does not pass costs little more than the test. Where they are, what is
    /// passed over is locked as well.
    ///
    /// # Errors
    /// As [`Cursor::next`].
    pub fn next_where(
        &mut self,
        transaction: &mut Transaction,
        mut passes: impl FnMut(&[u8]) -> bool,
    ) -> Result<Option<Entry<'_>>, TxnError> {
        loop {
            if self.direction == self.order && !self.locks_keys(transaction) {
                transaction.check_owner(self.owner)?;
                self.pass_over(transaction, &mut passes)?;
            }
            match self.walk(transaction, self.order)? {
                Some((_, value)) if !passes(value) => {}
                _ => return Ok(self.current()),
            }
        }
    }

    /// Passes over entries of the copy up to the next one whose value may pass a test.
    fn pass_over(
        &mut self,
        transaction: &Transaction,
        passes: &mut impl FnMut(&[u8]) -> bool,
    ) -> Result<(), TxnError> {
        if self.leaf.is_none() || !self.has_own_changes(transaction)? {
            return Ok(());
        }
        let (entry, direction) = (self.tree.entry(), self.direction);
        let Some(leaf) = self.leaf.as_mut() else { return Ok(()) };
        let node = Node::new(&leaf.bytes);
        let may_pass = |&slot: &usize| {
            let value = node.value(slot);
            Reference::of(entry, value).is_some() || passes(value)
        };
        match direction {
            Direction::Up => leaf.from = (leaf.from..leaf.to).find(may_pass).unwrap_or(leaf.to),
            Direction::Down => {
                let found = (leaf.from..leaf.to).rev().find(may_pass);
                leaf.to = found.map_or(leaf.from, |slot| slot + 1);
            }
        }
        Ok(())
    }

    /// Gives the cursor another range, of which it is at the beginning then, as a new cursor is. It
    /// keeps its memory and its copy of a leaf, so a range that begins near the last place costs
    /// less than with a new cursor.
    pub fn restart(&mut self, range: (Bound<&[u8]>, Bound<&[u8]>)) {
        self.forget_leaf();
        assign(&mut self.range.0, range.0);
        assign(&mut self.range.1, range.1);
        self.current = None;
        self.direction = opposite(self.order);
        self.is_done = true;
    }

    /// Returns the entry that the cursor is at, as it was when the cursor came to it.
    #[must_use]
    pub fn current(&self) -> Option<Entry<'_>> {
        let (leaf, slot) = (self.leaf.as_ref()?, self.current?);
        let value = Node::new(&leaf.bytes).value(slot);
        let is_long = Reference::of(self.tree.entry(), value).is_some();
        Some((&self.key, if is_long { &self.long } else { value }))
    }

    /// Moves one entry further in a direction.
    fn walk(
        &mut self,
        transaction: &mut Transaction,
        direction: Direction,
    ) -> Result<Option<Entry<'_>>, TxnError> {
        transaction.check(&self.tree)?;
        transaction.check_owner(self.owner)?;
        if direction != self.direction {
            self.turn(direction);
        }
        self.advance(transaction)
    }

    /// Turns around at the entry that the cursor is at, or at the end of the range.
    fn turn(&mut self, direction: Direction) {
        let is_at_entry = self.current.is_some();
        self.forget_leaf();
        self.reset(direction);
        if is_at_entry {
            match direction {
                Direction::Up => assign(&mut self.low, Bound::Excluded(&self.key)),
                Direction::Down => assign(&mut self.high, Bound::Excluded(&self.key)),
            }
        }
    }

    /// Has all of the range still to come, in a direction.
    fn reset(&mut self, direction: Direction) {
        debug_assert!(self.leaf.is_none(), "what was known of the way is forgotten");
        self.direction = direction;
        self.is_done = false;
        assign(&mut self.low, self.range.0.as_ref().map(Vec::as_slice));
        assign(&mut self.high, self.range.1.as_ref().map(Vec::as_slice));
    }

    /// Moves to the next entry in the present direction.
    fn advance(&mut self, transaction: &mut Transaction) -> Result<Option<Entry<'_>>, TxnError> {
        self.current = None;
        let found = self.find_next(transaction);
        // Who locks nothing does not see the tree go, and its pages say anything then.
        check_not_dropped(self.tree.entry())?;
        if let Some(slot) = found? {
            self.hand_out(slot);
        }
        Ok(self.current())
    }

    /// Returns the slot, in the copy, of the next entry.
    fn find_next(&mut self, transaction: &mut Transaction) -> Result<Option<usize>, TxnError> {
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
                    self.is_done = self.close(transaction)?;
                    self.forget_leaf();
                    continue;
                }
            };
            if self.is_sure(transaction, slot)? && self.load_apart(transaction, slot)? {
                return Ok(Some(slot));
            }
            self.forget_leaf();
        }
    }

    fn hand_out(&mut self, slot: usize) {
        self.left.clear();
        let direction = self.direction;
        let Some(leaf) = self.leaf.as_mut() else { return };
        match direction {
            Direction::Up => leaf.from = slot + 1,
            Direction::Down => leaf.to = slot,
        }
        debug_assert!(leaf.from <= leaf.to, "an entry is handed out once");
        leaf.is_handed_out = true;
        leaf.is_way_settled = leaf.is_settled;
        self.current = Some(slot);
        let node = Node::new(&leaf.bytes);
        if std::mem::take(&mut self.is_probed) {
            std::mem::swap(&mut self.key, &mut self.probe);
        } else {
            node.copy_key(slot, &mut self.key);
        }
    }

    /// Reads the value at a slot of the copy, if it is a long one. Returns whether it was there.
    fn load_apart(&mut self, transaction: &Transaction, slot: usize) -> Result<bool, TxnError> {
        let Some(leaf) = self.leaf.as_ref() else { return Ok(false) };
        let entry = self.tree.entry();
        let reference = Reference::of(entry, Node::new(&leaf.bytes).value(slot));
        let Some(reference) = reference else { return Ok(true) };
        transaction.read_apart(entry, &reference, Part::All, &mut self.missed, &mut self.long)
    }

    /// Gives the copy up. What is still to come is looked for again.
    fn forget_leaf(&mut self) {
        self.left.clear();
        if let Some(leaf) = self.leaf.take() {
            self.leave(&leaf);
            self.spare = leaf.bytes;
            self.spare_version = Some(leaf.version);
        }
    }

    /// Shortens the range to what comes after the key handed out last.
    fn leave(&mut self, leaf: &Copy) {
        if leaf.is_handed_out {
            match self.direction {
                Direction::Up => assign(&mut self.low, Bound::Excluded(&self.key)),
                Direction::Down => assign(&mut self.high, Bound::Excluded(&self.key)),
            }
        }
    }

    /// Goes on behind the fence of the copy. Upward, to the right sibling if the leaf is what it
    /// was; else it is looked for again.
    fn go_on(&mut self, transaction: &Transaction) -> Result<(), TxnError> {
        let has_own_changes = self.has_own_changes(transaction)?;
        let Some(leaf) = self.leaf.take() else { return Ok(()) };
        self.leave(&leaf);
        if !has_own_changes {
            self.left.clear();
            self.spare = leaf.bytes;
            return Ok(());
        }
        let fences = Node::new(&leaf.bytes).fences();
        if self.direction == Direction::Down {
            assign(&mut self.high, Bound::Excluded(fences.low));
            self.spare = leaf.bytes;
            return Ok(());
        }
        let Copy { bytes, version, is_way_settled, .. } = leaf;
        let entry = self.tree.entry();
        let tree = transaction.core.tree(entry);
        let now = transaction.core.pool.read(version.id, &entry.counters)?;
        if page::lsn(&now) == version.lsn {
            let right = tree.leaf_behind(&now)?;
            drop(now);
            let mut right = self.copy(&right, transaction, bytes);
            right.is_way_settled &= is_way_settled;
            self.leaf = Some(right);
            self.left.push(version);
        } else {
            self.left.clear();
            self.spare = bytes;
        }
        Ok(())
    }

    /// Sees to it that there is a copy of the leaf to go on with.
    fn begin(&mut self, transaction: &mut Transaction) -> Result<(), TxnError> {
        while self.leaf.is_none() {
            let leaf = if let Some(leaf) = self.copy_again(transaction)? {
                leaf
            } else {
                let spare = std::mem::take(&mut self.spare);
                self.copy_leaf(transaction, spare)?
            };
            let needs_lock = !leaf.is_settled && self.locks_keys(transaction);
            if self.direction == Direction::Up || !needs_lock {
                self.leaf = Some(leaf);
                return Ok(());
            }
            self.lock_above(transaction)?;
            if self.is_same(transaction, leaf.version)? {
                self.leaf = Some(leaf);
            } else {
                self.spare = leaf.bytes;
            }
        }
        Ok(())
    }

    /// Returns a copy of the leaf of the last copy, if the rest of the range begins there; the last
    /// copy itself if the leaf is what it was.
    fn copy_again(&mut self, transaction: &Transaction) -> Result<Option<Copy>, TxnError> {
        let Some(version) = self.spare_version.take() else { return Ok(None) };
        if !self.begins_in(Node::new(&self.spare)) {
            return Ok(None);
        }
        let entry = self.tree.entry();
        let page = transaction.core.pool.read(version.id, &entry.counters)?;
        if page::lsn(&page) == version.lsn {
            let bytes = std::mem::take(&mut self.spare);
            return Ok(Some(self.of_leaf(bytes, transaction)));
        }
        // It may have become another page since.
        let is_node = page::kind(&page) == Kind::Node;
        let node = Node::new(&page);
        if !is_node || node.tree() != entry.id || !node.is_leaf() || !self.begins_in(node) {
            return Ok(None);
        }
        let spare = std::mem::take(&mut self.spare);
        Ok(Some(self.copy(&page, transaction, spare)))
    }

    /// Returns whether the rest of the range begins in a leaf, by its fences.
    fn begins_in(&self, leaf: Node<'_>) -> bool {
        let Fences { low, high } = leaf.fences();
        match (self.direction, &self.low, &self.high) {
            (Direction::Up, Bound::Included(key) | Bound::Excluded(key), _)
            | (Direction::Down, _, Bound::Included(key)) => leaf.covers(key),
            (Direction::Up, Bound::Unbounded, _) => low.is_empty(),
            (Direction::Down, _, Bound::Excluded(key)) => {
                low < &key[..] && high.is_none_or(|high| &key[..] <= high)
            }
            (Direction::Down, _, Bound::Unbounded) => high.is_none(),
        }
    }

    /// Copies the leaf that the rest of the range begins in.
    fn copy_leaf(&self, transaction: &Transaction, spare: Vec<u8>) -> Result<Copy, TxnError> {
        let tree = transaction.core.tree(self.tree.entry());
        let leaf = match (self.direction, &self.low, &self.high) {
            (Direction::Up, Bound::Included(key) | Bound::Excluded(key), _)
            | (Direction::Down, _, Bound::Included(key)) => {
                let leaf = tree.leaf(key)?;
                Tree::check_covers(&leaf, key)?;
                leaf
            }
            (Direction::Up, Bound::Unbounded, _) => tree.leaf(b"")?,
            (Direction::Down, _, Bound::Excluded(key)) => {
                let leaf = tree.leaf_before(Some(key))?;
                Tree::check_before(&leaf, key)?;
                leaf
            }
            (Direction::Down, _, Bound::Unbounded) => tree.leaf_before(None)?,
        };
        Ok(self.copy(&leaf, transaction, spare))
    }

    /// Copies a leaf that is latched into `spare`.
    fn copy(&self, leaf: &[u8], transaction: &Transaction, spare: Vec<u8>) -> Copy {
        let mut bytes = spare;
        bytes.clear();
        bytes.extend_from_slice(leaf);
        self.of_leaf(bytes, transaction)
    }

    /// Returns what is to come of a leaf, of which `bytes` are a copy and which is latched.
    fn of_leaf(&self, bytes: Vec<u8>, transaction: &Transaction) -> Copy {
        let (node, lsn) = (Node::new(&bytes), page::lsn(&bytes));
        debug_assert!(node.is_leaf(), "a cursor walks over leaves");
        let core = &transaction.core;
        let is_settled = transaction.options.isolation == Isolation::ReadCommitted
            && !self.is_for_update
            && core.transactions.is_settled(lsn, &core.log);
        let (from, to) = (first_slot(node, &self.low), end_slot(node, &self.high));
        Copy {
            version: Version { id: page::id(&bytes), lsn },
            bytes,
            from,
            to,
            own: transaction.last_lsn(),
            is_settled,
            is_way_settled: is_settled,
            is_handed_out: false,
        }
    }

    /// Returns what comes next by the copy. Where the copy has no more entries, the range goes on
    /// behind its fence.
    fn look(&self) -> Next {
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
        let goes_on = match self.direction {
            Direction::Up => fences.high.is_some_and(|high| may_hold(high, &self.high)),
            Direction::Down => !fences.low.is_empty() && is_above(fences.low, &self.low),
        };
        if goes_on { Next::Leaf } else { Next::Done }
    }

    /// Locks the entry at `slot` of the copy as the isolation asks. Returns whether it is still
    /// there and nothing has come into the way to it.
    fn is_sure(&mut self, transaction: &mut Transaction, slot: usize) -> Result<bool, TxnError> {
        self.is_probed = false;
        let Some(leaf) = self.leaf.as_ref() else { return Ok(false) };
        let entry = self.tree.entry();
        if leaf.is_settled && leaf.is_way_settled || !self.locks_keys(transaction) {
            return self.has_own_changes(transaction);
        }
        Node::new(&leaf.bytes).copy_key(slot, &mut self.probe);
        let key = Lockable::Key(entry.id, hash_key(&self.probe));
        if self.is_for_update {
            transaction.lock_to_update(&key)?;
        } else {
            transaction.lock_for_scan(&key)?;
        }
        self.is_probed = true;
        self.are_same(transaction, leaf.version)
    }

    /// Returns whether the copy, and what was left behind, has all changes that the cursor's own
    /// transaction has made there, where no lock is asked for. They are looked at only if it has
    /// made any.
    fn has_own_changes(&mut self, transaction: &Transaction) -> Result<bool, TxnError> {
        let last = transaction.last_lsn();
        let Some(leaf) = self.leaf.as_ref() else { return Ok(false) };
        if leaf.own == last {
            return Ok(true);
        }
        let is_same = self.are_same(transaction, leaf.version)?;
        if is_same && let Some(leaf) = self.leaf.as_mut() {
            leaf.own = last;
        }
        Ok(is_same)
    }

    /// Returns whether pages are still as they were: one, and those left behind.
    fn are_same(&self, transaction: &Transaction, version: Version) -> Result<bool, TxnError> {
        for &version in [version].iter().chain(&self.left) {
            if !self.is_same(transaction, version)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_same(&self, transaction: &Transaction, version: Version) -> Result<bool, TxnError> {
        let page = transaction.core.pool.read(version.id, &self.tree.entry().counters)?;
        debug_assert!(page::lsn(&page) >= version.lsn, "a page's LSN grows");
        Ok(page::lsn(&page) == version.lsn)
    }

    /// Locks, at the upper end of the range, the gap up to the next key. Returns whether nothing
    /// has come into it meanwhile.
    fn close(&mut self, transaction: &mut Transaction) -> Result<bool, TxnError> {
        let Some(leaf) = self.leaf.as_ref() else { return Ok(false) };
        let is_settled = leaf.is_settled && leaf.is_way_settled;
        let entry = self.tree.entry();
        if self.direction == Direction::Down || is_settled || !self.locks_keys(transaction) {
            return self.has_own_changes(transaction);
        }
        let mut version = leaf.version;
        let above = {
            let tree = transaction.core.tree(entry);
            let mut page = transaction.core.pool.read(version.id, &entry.counters)?;
            if page::lsn(&page) != version.lsn {
                return Ok(false);
            }
            let mut slot = leaf.to;
            // Leaves that have no entry are passed.
            while slot >= Node::new(&page).count() {
                let Some(right) = tree.leaf_after(&page)? else { break };
                self.left.push(version);
                version = Version { id: page::id(&right), lsn: page::lsn(&right) };
                (page, slot) = (right, 0);
            }
            super::next_key(tree, &page, slot)?
        };
        transaction.lock_gap(&above)?;
        self.are_same(transaction, version)
    }

    /// Locks the gap below the key above what is still to come.
    fn lock_above(&self, transaction: &mut Transaction) -> Result<(), TxnError> {
        let entry = self.tree.entry();
        let core = Arc::clone(&transaction.core);
        let tree = core.tree(entry);
        let mut locked = None;
        loop {
            let next = match &self.high {
                Bound::Unbounded => Lockable::End(entry.id),
                Bound::Included(key) | Bound::Excluded(key) => {
                    let leaf = tree.leaf(key)?;
                    let slot = Node::new(&leaf).search(key).unwrap_or_else(|slot| slot);
                    next_key(tree, &leaf, slot)?
                }
            };
            if locked == Some(next) {
                return Ok(());
            }
            transaction.lock_gap(&next)?;
            locked = Some(next);
        }
    }
}

fn opposite(direction: Direction) -> Direction {
    match direction {
        Direction::Up => Direction::Down,
        Direction::Down => Direction::Up,
    }
}

/// Sets a bound, in the memory that it has.
fn assign(bound: &mut Bound<Vec<u8>>, to: Bound<&[u8]>) {
    let old = std::mem::replace(bound, Bound::Unbounded);
    *bound = to.map(|key| match old {
        Bound::Included(mut memory) | Bound::Excluded(mut memory) => {
            memory.clear();
            memory.extend_from_slice(key);
            memory
        }
        Bound::Unbounded => key.to_vec(),
    });
}

/// Returns the first slot of a node with a key that is not below the range.
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

/// Returns the slot behind the last with a key that is not above the range.
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

/// Returns where a key is in a node, which need not cover it.
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

/// Returns whether keys from `fence` on may be in a range that ends so.
fn may_hold(fence: &[u8], high: &Bound<Vec<u8>>) -> bool {
    match high {
        Bound::Unbounded => true,
        Bound::Included(key) => fence <= key,
        Bound::Excluded(key) => fence < key,
    }
}

/// Returns whether `key` or lower ones may be in a range that begins so.
fn may_begin(key: &[u8], low: &Bound<Vec<u8>>) -> bool {
    match low {
        Bound::Unbounded => true,
        Bound::Included(low) => key >= &low[..],
        Bound::Excluded(low) => key > &low[..],
    }
}

/// Returns whether a range that ends so has room for keys above `key`.
fn is_below(key: &[u8], high: &Bound<Vec<u8>>) -> bool {
    match high {
        Bound::Unbounded => true,
        Bound::Included(high) | Bound::Excluded(high) => key < &high[..],
    }
}

/// Returns whether keys below `fence` may be in a range that begins so.
fn is_above(fence: &[u8], low: &Bound<Vec<u8>>) -> bool {
    match low {
        Bound::Unbounded => true,
        Bound::Included(key) | Bound::Excluded(key) => fence > key,
    }
}

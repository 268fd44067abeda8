//! What a document remembers of what it has read last, so that the next look costs less.
//!
//! - The heads of records of nodes that were handed out. Whoever gets a node mostly asks for its
//!   kind and its name at once. They count as long as the transaction changes nothing, not even by
//!   rolling back to a savepoint. Other transactions change nothing of it: what is remembered was
//!   read under a lock, on the document or on the node or above it, and locks are held to the end.
//!   Reads that are part of an update, whose locks are chosen for the update as a whole, are not
//!   remembered where nodes are locked.
//! - Names by their numbers, and the numbers of names that steps asked for last. A number is the
//!   same name for ever; a name may get another number, with another prefix, when the vocabulary
//!   grows.
//! - Cursors of ended scans. Each keeps a copy of the leaf that it was in, and the next scan often
//!   begins there. A cursor compares the copy with the leaf before it trusts it.

use std::cell::{Cell, RefCell};
use std::ops::{Bound, Deref, DerefMut};
use std::sync::Arc;

use tidegate_engine::{Cursor, Direction};

use super::record::Head;
use super::vocabulary::NameId;
use super::{Document, XmlStoreError};
use crate::label::Label;
use crate::name::QName;

/// Number of heads that are kept.
const HEADS: usize = 16;
/// Number of names whose numbers are kept.
const ASKED: usize = 8;
/// Number of cursors that are kept.
const CURSORS: usize = 8;

pub(super) struct Recent<'t> {
    heads: [Cell<Option<(Label, Head)>>; HEADS],
    /// Number of changes that the transaction had made when the heads were read.
    as_of: Cell<u64>,
    /// Number of changes that it has made.
    changes: &'t Cell<u64>,
    cursors: RefCell<Vec<Cursor>>,
    names: RefCell<Vec<Option<Arc<QName>>>>,
    asked: RefCell<Vec<Asked>>,
}

/// A name that was asked for, its numbers, and the size of the vocabulary then.
type Asked = (QName, Arc<[NameId]>, usize);

/// Returns where the head of a node is kept.
fn place(label: &Label) -> usize {
    let bytes = label.as_bytes();
    // Neighbours in the document differ in one of both.
    let last = bytes.last().map_or(0, |last| usize::from(last >> 1));
    (last + 5 * bytes.len()) % HEADS
}

impl<'t> Recent<'t> {
    /// Remembers nothing. `changes` is the number of changes that the transaction has made.
    pub(super) fn new(changes: &'t Cell<u64>) -> Recent<'t> {
        Recent {
            heads: Default::default(),
            as_of: Cell::new(changes.get()),
            changes,
            cursors: RefCell::default(),
            names: RefCell::default(),
            asked: RefCell::default(),
        }
    }

    pub(super) fn remember(&self, label: &Label, head: Head) {
        self.forget_if_changed();
        self.heads[place(label)].set(Some((label.clone(), head)));
    }

    pub(super) fn head(&self, label: &Label) -> Option<Head> {
        self.forget_if_changed();
        let kept = &self.heads[place(label)];
        let node = kept.take()?;
        let head = (node.0 == *label).then_some(node.1);
        kept.set(Some(node));
        head
    }

    /// Notes that the transaction changes something.
    pub(super) fn note_change(&self) {
        self.changes.set(self.changes.get() + 1);
    }

    fn forget_if_changed(&self) {
        if self.as_of.replace(self.changes.get()) != self.changes.get() {
            self.heads.iter().for_each(|kept| kept.set(None));
        }
    }
}

impl Document<'_> {
    /// Remembers a node that was read under a lock on it.
    pub(super) fn remember(&self, label: &Label, head: Head) {
        let is_locked = !self.locks_nodes() || self.operations.get() == 0;
        if is_locked && self.keeps_reads() {
            self.recent.remember(label, head);
        }
    }

    /// Returns the name of a number.
    pub(super) fn name_of(&self, name: NameId) -> Result<Arc<QName>, XmlStoreError> {
        let at = name.0 as usize;
        if let Some(Some(known)) = self.recent.names.borrow().get(at) {
            return Ok(Arc::clone(known));
        }
        let found = self.store.vocabulary.name(name);
        let found =
            found.ok_or(XmlStoreError::Unsound("a node's name is not in the vocabulary"))?;
        let mut names = self.recent.names.borrow_mut();
        if names.len() <= at {
            names.resize(at + 1, None);
        }
        names[at] = Some(Arc::clone(&found));
        Ok(found)
    }

    /// Returns the numbers of a name, whatever the prefix.
    pub(super) fn numbers_of(&self, name: &QName) -> Arc<[NameId]> {
        let count = self.store.vocabulary.count();
        let mut asked = self.recent.asked.borrow_mut();
        let known = asked.iter().find(|(known, _, as_of)| known == name && *as_of == count);
        if let Some((_, numbers, _)) = known {
            return Arc::clone(numbers);
        }
        let numbers: Arc<[NameId]> = self.store.vocabulary.numbers(name).into();
        if asked.len() >= ASKED {
            asked.clear();
        }
        asked.push((name.clone(), Arc::clone(&numbers), count));
        numbers
    }

    /// Returns the number of changes that the transaction has made.
    pub(super) fn changes(&self) -> u64 {
        self.recent.changes.get()
    }

    /// Returns a cursor upward over a range of the document's records.
    pub(super) fn cursor(
        &self,
        range: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Result<KeptCursor<'_>, XmlStoreError> {
        let kept = self.recent.cursors.borrow_mut().pop();
        let cursor = if let Some(mut cursor) = kept {
            cursor.restart(range);
            cursor
        } else {
            let mut transaction = self.transaction.borrow_mut();
            transaction.cursor(&self.stored.tree, range, Direction::Up)?
        };
        Ok(KeptCursor { kept: &self.recent.cursors, cursor: Some(cursor) })
    }
}

/// A cursor that its document keeps for the next scan when it is dropped.
pub(super) struct KeptCursor<'d> {
    kept: &'d RefCell<Vec<Cursor>>,
    /// `None` only while it is dropped.
    cursor: Option<Cursor>,
}

impl Deref for KeptCursor<'_> {
    type Target = Cursor;

    fn deref(&self) -> &Cursor {
        match &self.cursor {
            Some(cursor) => cursor,
            None => unreachable!("only drop takes the cursor"),
        }
    }
}

impl DerefMut for KeptCursor<'_> {
    fn deref_mut(&mut self) -> &mut Cursor {
        match &mut self.cursor {
            Some(cursor) => cursor,
            None => unreachable!("only drop takes the cursor"),
        }
    }
}

impl Drop for KeptCursor<'_> {
    fn drop(&mut self) {
        let mut cursors = self.kept.borrow_mut();
        if cursors.len() < CURSORS {
            cursors.extend(self.cursor.take());
        }
    }
}

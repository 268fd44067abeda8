//! Nodes that were read in advance, so that going from one to the next costs no search.
//!
//! A document keeps the heads of records of one stretch of it, each with the place where its
//! subtree ends in the stretch. The first child is the next entry then, the next sibling the one
//! at that place, and the kind of the node found last is there. A look outside of the stretch
//! reads another one, which is the longer the more of the last one was used.
//!
//! ```text
//! labels       1   1.1   1.1.1   1.3   1.3.1   1.3.1.1   1.5
//! end          -   3     3       6     6       6         -
//! ```
//!
//! # What it relies on
//! - The transaction changes nothing: a change, or a way back to a savepoint, ends the stretch.
//! - Other transactions change nothing: the document is locked, or the stretch is within a subtree
//!   that was locked before it was read. Who is not below such a subtree goes the other way.
//! - All nodes have records. Documents with virtual inner nodes have no such stretch.
//!
//! Within an update the stretch is not used, because an update reads what it has just changed.

use std::cell::Cell;
use std::ops::{Bound, ControlFlow};

use super::navigate::malformed;
use super::record::{Head, RecordKind};
use super::{Document, XmlStoreError};
use crate::label::Label;

/// Fewest and most entries of a stretch.
const LENGTHS: (usize, usize) = (8, 512);
/// Bytes of records from which on a stretch ends.
const BYTES_MAX: usize = 64 << 10;

struct Entry {
    label: Label,
    /// The length of the parent's label; that of the root of attributes for an attribute.
    parent: usize,
    head: Head,
    /// The place of the first entry that is not below this one; behind the last if there is none.
    end: usize,
}

/// A stretch of a document.
#[derive(Default)]
pub(super) struct View {
    entries: Vec<Entry>,
    /// All records from this key up to `to` are among the entries.
    from: Vec<u8>,
    /// `None` before there is a stretch.
    to: Option<Bound<Vec<u8>>>,
    /// Number of changes that the transaction had made when it was read.
    as_of: u64,
    /// Number of stretches that were read.
    generation: u64,
    /// The place of the entry found last.
    found: Cell<usize>,
    /// How often something was found in the stretch.
    uses: Cell<usize>,
    /// Entries that the stretch was to have.
    length: usize,
    /// Entries that the next one may be below; kept for its memory.
    open: Vec<usize>,
}

impl View {
    fn covers(&self, key: &[u8]) -> bool {
        let is_below = match &self.to {
            None => false,
            Some(Bound::Unbounded) => true,
            Some(Bound::Included(to)) => key <= &to[..],
            Some(Bound::Excluded(to)) => key < &to[..],
        };
        is_below && key >= &self.from[..]
    }

    fn key(&self, at: usize) -> Option<&[u8]> {
        self.entries.get(at).map(|entry| entry.label.as_bytes())
    }

    /// Returns the place of the first entry that is not below a key.
    fn place(&self, key: &[u8]) -> usize {
        let found = self.found.get();
        let is_below = |at: usize| self.key(at).is_some_and(|own| own < key);
        if is_below(found) {
            if !is_below(found + 1) {
                return found + 1;
            }
        } else if found.checked_sub(1).is_none_or(is_below) {
            return found;
        }
        self.entries.partition_point(|entry| entry.label.as_bytes() < key)
    }

    fn note_use(&self, at: usize) {
        self.found.set(at);
        self.uses.set(self.uses.get() + 1);
    }

    fn push(&mut self, (label, parent): (Label, usize), head: Head) {
        let at = self.entries.len();
        while let Some(&above) = self.open.last()
            && !self.entries[above].label.is_ancestor_of(&label)
        {
            self.entries[above].end = at;
            self.open.pop();
        }
        self.open.push(at);
        self.entries.push(Entry { label, parent, head, end: usize::MAX });
    }
}

/// The place of an entry in one of the stretches.
#[derive(Debug, Clone, Copy)]
pub(super) struct ViewPlace {
    generation: u64,
    at: usize,
}

/// The children or the attributes of a node, one after the other.
pub(super) struct Viewed {
    node: Label,
    is_of_attributes: bool,
    next: Option<ViewPlace>,
    last: Option<Label>,
}

impl Viewed {
    /// Begins with the first child or attribute of a node.
    pub(super) fn new(node: Label, is_of_attributes: bool) -> Viewed {
        Viewed { node, is_of_attributes, next: None, last: None }
    }

    /// Goes to the next one that passes.
    pub(super) fn step(
        &mut self,
        document: &Document<'_>,
        passes: impl Fn(Head) -> bool,
    ) -> Result<Option<Label>, XmlStoreError> {
        loop {
            let at = match self.next {
                Some(place) if document.is_view_of(place.generation) => place.at,
                _ => match self.find_next(document)? {
                    Some(at) => at,
                    None => return Ok(None),
                },
            };
            let view = document.view.borrow();
            let Some(entry) = view.entries.get(at) else {
                // It goes on behind the stretch.
                self.next = None;
                continue;
            };
            // The first node that is not below another one has its parent above that one. The
            // parent of an attribute is the root of attributes, whose label has a byte more.
            if entry.parent < self.node.as_bytes().len() + usize::from(self.is_of_attributes) {
                return Ok(None);
            }
            self.next = Some(ViewPlace { generation: view.generation, at: entry.end.max(at + 1) });
            let label = entry.label.clone();
            if passes(entry.head) {
                view.note_use(at);
                self.last = Some(label.clone());
                return Ok(Some(label));
            }
            self.last = Some(label);
        }
    }

    /// Returns the place of the next entry, from the key of the last one.
    fn find_next(&self, document: &Document<'_>) -> Result<Option<usize>, XmlStoreError> {
        if let Some(last) = &self.last {
            let range = last.subtree();
            return match range.end() {
                Some(end) => document.view_from(&self.node, end),
                None => Ok(None),
            };
        }
        if !self.is_of_attributes
            && let Some(at) = document.view_behind_head(&self.node)
        {
            return Ok(Some(at));
        }
        let range = if self.is_of_attributes {
            self.node.attributes_range()
        } else {
            self.node.children_range()
        };
        document.view_from(&self.node, range.start())
    }
}

impl Document<'_> {
    /// Returns whether what is below a node may be read in advance.
    pub(super) fn may_view(&self, node: &Label) -> bool {
        self.operations.get() == 0
            && !self.has_virtual_nodes()
            && (!self.locks_nodes() || self.subtree_to_read(node).is_some())
    }

    fn is_view_of(&self, generation: u64) -> bool {
        let view = self.view.borrow();
        view.generation == generation && view.as_of == self.changes()
    }

    /// Returns the place of the first entry at or behind a key, of which there may be none below
    /// `within`, a node that [`Document::may_view`] allows; `None` if there is none in the document
    /// or the subtree that is locked.
    fn view_from(&self, within: &Label, key: &[u8]) -> Result<Option<usize>, XmlStoreError> {
        if within.subtree().end().is_some_and(|end| key >= end) {
            return Ok(None);
        }
        {
            let view = self.view.borrow();
            if view.as_of == self.changes() && view.covers(key) {
                let at = view.place(key);
                return Ok((at < view.entries.len()).then_some(at));
            }
        }
        self.read_view(within, key)?;
        Ok((!self.view.borrow().entries.is_empty()).then_some(0))
    }

    /// Reads the stretch from a key on.
    fn read_view(&self, within: &Label, key: &[u8]) -> Result<(), XmlStoreError> {
        let locked = if self.locks_nodes() { self.subtree_to_read(within) } else { None };
        let limit = locked.as_ref().map(Label::subtree);
        let limit = limit.as_ref().and_then(|range| range.end());
        let high = limit.map_or(Bound::Unbounded, Bound::Excluded);
        let mut view = self.view.borrow_mut();
        let view = &mut *view;
        let (fewest, most) = LENGTHS;
        let was_used = view.uses.get() >= view.length / 2 && view.to.is_some();
        view.length = if was_used { (2 * view.length).min(most) } else { fewest };
        view.entries.clear();
        view.open.clear();
        view.to = None;
        view.generation += 1;
        view.found.set(0);
        view.uses.set(0);
        let mut cursor = self.cursor((Bound::Included(key), high))?;
        let mut transaction = self.transaction.borrow_mut();
        let (mut is_end, mut bytes) = (false, 0);
        while view.entries.len() < view.length && bytes < BYTES_MAX && !is_end {
            match cursor.next(&mut transaction)? {
                None => is_end = true,
                Some((key, record)) => {
                    bytes += record.len();
                    let head = Head::decode(record).map_err(malformed)?.0;
                    view.push(Label::with_parent_length(key)?, head);
                }
            }
        }
        view.from.clear();
        view.from.extend_from_slice(key);
        view.as_of = self.changes();
        view.to = match view.entries.last() {
            Some(last) if !is_end => Some(Bound::Included(last.label.as_bytes().to_vec())),
            _ => Some(high.map(<[u8]>::to_vec)),
        };
        Ok(())
    }

    /// Returns the place behind a node and its attributes, if the node is the one found last.
    fn view_behind_head(&self, node: &Label) -> Option<usize> {
        let view = self.view.borrow();
        let found = view.found.get();
        let is_valid = view.as_of == self.changes() && view.to.is_some();
        if !is_valid || view.entries.get(found)?.label != *node {
            return None;
        }
        let is_head = |entry: &Entry| {
            matches!(entry.head.kind, RecordKind::Attribute | RecordKind::Namespace)
        };
        let behind = view.entries[found + 1..].iter().position(|entry| !is_head(entry))?;
        Some(found + 1 + behind)
    }

    /// Returns the first node at or behind a key that is below a node, from a stretch that is read
    /// if need be. Goes on if that may not be.
    pub(super) fn view_first(
        &self,
        within: &Label,
        key: &[u8],
    ) -> Result<ControlFlow<Option<Label>>, XmlStoreError> {
        if !self.may_view(within) {
            return Ok(ControlFlow::Continue(()));
        }
        let Some(at) = self.view_from(within, key)? else { return Ok(ControlFlow::Break(None)) };
        let view = self.view.borrow();
        view.note_use(at);
        let label = &view.entries[at].label;
        let is_below = within.is_ancestor_of(label);
        Ok(ControlFlow::Break(is_below.then(|| label.clone())))
    }

    /// Returns the first child of the node found last, or that it has none, if the stretch says so.
    pub(super) fn view_child(&self, node: &Label) -> ControlFlow<Option<Label>> {
        let at = self.view_behind_head(node).filter(|_| self.may_view(node));
        let view = self.view.borrow();
        let Some(at) = at else { return ControlFlow::Continue(()) };
        let entry = &view.entries[at];
        if !is_in(&entry.label, node) {
            return ControlFlow::Break(None);
        }
        view.note_use(at);
        ControlFlow::Break(Some(entry.label.clone()))
    }

    /// Returns the next sibling of a node, or that it has none, if the stretch says so, without a
    /// look at the parent. The gap is locked.
    pub(super) fn view_next(&self, node: &Label) -> ControlFlow<Option<Label>> {
        let view = self.view.borrow();
        let is_valid = view.as_of == self.changes() && self.operations.get() == 0;
        if !is_valid || view.to.is_none() {
            return ControlFlow::Continue(());
        }
        // The node found last is this one, or often the last one below it.
        let found = view.found.get();
        let last = view.entries.get(found).filter(|last| is_in(&last.label, node));
        let at = last.map(|last| if last.label == *node { last.end } else { found + 1 });
        let behind = at.and_then(|at| Some((at, view.entries.get(at)?)));
        let Some((at, entry)) = behind.filter(|(_, entry)| !is_in(&entry.label, node)) else {
            return ControlFlow::Continue(());
        };
        // The parent of the first node behind a subtree is that of the node or above it. Behind an
        // attribute there is none, or another attribute.
        let is_child = !matches!(entry.head.kind, RecordKind::Attribute | RecordKind::Namespace);
        if !is_child || !node.is_child_at(entry.parent) {
            return ControlFlow::Break(None);
        }
        view.note_use(at);
        ControlFlow::Break(Some(entry.label.clone()))
    }

    /// Returns the head of the node found last, if that is the node asked for.
    pub(super) fn viewed_head(&self, label: &Label) -> Option<Head> {
        let view = self.view.borrow();
        let entry = view.entries.get(view.found.get())?;
        let is_valid = view.as_of == self.changes() && self.operations.get() == 0;
        (is_valid && view.to.is_some() && entry.label == *label).then_some(entry.head)
    }
}

/// Returns whether a node is another one or below it.
fn is_in(node: &Label, other: &Label) -> bool {
    node.as_bytes().starts_with(other.as_bytes())
}

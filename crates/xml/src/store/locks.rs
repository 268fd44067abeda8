//! Locks on documents: each operation says here what it touches, and a protocol says what is locked
//! for it.
//!
//! # What operations touch
//! A [`Touch`] is a node, a list of children, a subtree, the name of an attribute, or an *edge*: a
//! gap between two neighbours in a list of children, by a name that one of them gives it. A gap has
//! two names, the one after its left and the one before its right neighbour (the first and the last
//! child of the parent at the ends), and everybody locks both. So navigation finds no phantoms.
//!
//! The public operations of a document call [`Document::touch`] before they read. Updates begin
//! with [`Document::begin`], which locks first and lets operations that are part of it lock
//! nothing. Labels that an update gives are locked when they are known ([`Document::lock_new`]).
//!
//! # Protocols
//! A transaction has a [`Locking`]: a [`LockProtocol`], a lock depth, and a rule for escalations.
//!
//! | protocol | what is locked |
//! | --- | --- |
//! | `none` | nothing; it only reads |
//! | `document` | the document's tree: S by readers, X by writers |
//! | `X` | the root element: SX by readers and writers |
//! | `MGL`, `taDOM3+` | nodes and edges, with intentions on all ancestors |
//!
//! All may be used side by side: who locks nodes has an intention on the tree as well. A protocol
//! is data (`locks/protocols/`, read by `protocol.rs`). Labels and their hierarchy are in the lock
//! space `xml nodes` of the engine (`space.rs`). The names of ancestors come from the label alone;
//! the engine locks a path of them in one pass, and knows which steps of it are held. The subtrees
//! locked last are remembered, so that what is in them is not asked for.
//!
//! **Lock depth.** What is below the level of the transaction is locked by its ancestor there, in
//! the mode that stands for its own, so a protocol needs no table for it. The list of an element is
//! one level below the element, and so are its edges; the names of attributes are two levels below,
//! in the attribute root. So who reads that a node just below the depth has no child locks the
//! subtree. Transactions of different depths may run side by side.
//!
//! **Escalation.** The engine counts the requests of a transaction below each node. From
//! [`LockEscalation::threshold`] on it tries to lock the node in the mode that covers all of them,
//! without waiting, and gives the locks below back. Edges beside the node are kept.
//!
//! **Deadlocks.** What a transaction was ended over is locked first when it is run again, if its
//! caller hands that on ([`RetryClaims`]).
//!
//! **Isolation.** Writers lock to the end at every level. [`TransactionLocks::hold`] says how long
//! readers do.
//!
//! # Example
//! ```text
//! T1: next sibling of 1.3    IR document, 1; NR 1.3, edge after 1.3; reads 1.5; NR edge before 1.5
//! T2: insert before 1.5      IX document, CX 1; NX edge before 1.5 waits for T1
//! T2: insert after 1.5       IX document, CX 1; NX edge after 1.5, ... goes on
//! T3, to level 0: content of 1.3.3        IR document; SR 1 waits for T2
//! ```
//!
//! # Decisions
//! * **Renames** of elements lock the subtree (X, which is SX): the names of ancestors are read
//!   from path classes, without a lock on the ancestors but their intentions.
//! * **The parent of an insertion** gets no lock but the intention. Its class is read under that:
//!   only a rename or a removal changes it, and both need X.
//! * **Path classes.** Who answers a pattern from an index relies on which classes there are. A
//!   class that does not exist has no entries and so no gap to lock: such a reader locks the
//!   synopsis of the document in R, and who makes a new class in IX.
//! * **Index entries** are locked by the engine, entry and gap. A reader then locks the node with
//!   its ancestors, and looks whether it is still there.
//! * **Documents with virtual inner nodes:** an insertion or removal may write or remove the record
//!   of the parent, so it locks the parent's subtree.
//! * **Lists labelled anew** are locked as subtrees, X.
//! * **Levels** are counted as labels count them, so the root element is on level 0. The document
//!   node is above them and is never locked by escalation.
//! * **X and indexes.** An index is asked under the lock on the root element, as all is by X.
//!
//! # Limits
//! * Who asks for the parent of a node reads nothing of it: the label says which it is.
//! * At read committed and at repeatable read a list or a subtree that is read at once stays locked
//!   to the end of the transaction.

mod claims;
mod figures;
mod protocol;
mod remote;
mod retry;
mod settings;
mod space;

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::time::Duration;

use tidegate_engine::lock::multi_granularity::{IS, IX, S, X};
use tidegate_engine::lock::{LockError, Mode, Wait};
use tidegate_engine::{Isolation, LockSpace, Transaction, TxnError};
use tidegate_runtime::clock;

pub use self::claims::Claim;
pub(super) use self::figures::ConflictCounters;
pub use self::figures::{ConflictCounts, ConflictPlace, LockFigures};
use self::protocol::{Action, Locked};
pub use self::protocol::{LockProtocol, ProtocolError};
pub use self::remote::{LockingListener, ask_locking};
pub use self::retry::RetryClaims;
pub use self::settings::{EscalationReading, LockEscalation, Locking, LockingError};
use self::space::{CLASSES, FIRST, HEAD, LAST, NAMED, NEXT, NODE, PREVIOUS, write_name};
pub(super) use self::space::{NodeLocks, SpaceUse};
use super::paths::{PathClass, Pcr};
use super::record::{Record, RecordKind};
use super::{Document, InnerNodes, Place, Stored, XmlStoreError};
use crate::label::{Label, Level};
use crate::name::QName;
use crate::tree::Tree;

/// What a document is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// A gap in a list of children, or the place of an attribute.
#[derive(Debug, Clone, Copy)]
pub(super) enum Edge<'a> {
    /// In front of the first child.
    First(&'a Label),
    /// Behind the last child.
    Last(&'a Label),
    /// In front of a child.
    Previous(&'a Label),
    /// Behind a child.
    Next(&'a Label),
    /// The attribute of that name of an element.
    Named(&'a Label, &'a QName),
}

/// Something that an operation touches.
#[derive(Debug, Clone, Copy)]
pub(super) enum Touch<'a> {
    /// A node: that it exists, its kind, name and content, and its attributes.
    Node(&'a Label),
    /// The list of a node's children.
    Children(&'a Label),
    /// A node with all that is below it.
    Subtree(&'a Label),
    /// The content or the name of a node without children.
    WriteNode(&'a Label),
    /// A node with all that is below it, to make, remove, move or rename it.
    WriteSubtree(&'a Label),
    /// A node that is read, and may be written.
    UpdateNode(&'a Label),
    /// A node with all that is below it, which is read, and may be written.
    UpdateSubtree(&'a Label),
    /// The list of a node's children, to add some and to remove some.
    WriteChildren(&'a Label),
    /// A gap that is looked into.
    Edge(Edge<'a>),
    /// A gap that is divided or joined with another one.
    WriteEdge(Edge<'a>),
}

/// What can be locked.
#[derive(Debug, Clone, Copy)]
enum Target<'a> {
    Node(&'a Label),
    Edge(Edge<'a>),
    /// The set of path classes.
    Classes,
}

impl<'a> Touch<'a> {
    fn parts(self) -> (Action, Target<'a>) {
        match self {
            Touch::Node(label) => (Action::ReadNode, Target::Node(label)),
            Touch::Children(label) => (Action::ReadChildren, Target::Node(label)),
            Touch::Subtree(label) => (Action::ReadSubtree, Target::Node(label)),
            Touch::WriteNode(label) => (Action::WriteNode, Target::Node(label)),
            Touch::WriteSubtree(label) => (Action::WriteSubtree, Target::Node(label)),
            Touch::UpdateNode(label) => (Action::UpdateNode, Target::Node(label)),
            Touch::UpdateSubtree(label) => (Action::UpdateSubtree, Target::Node(label)),
            Touch::WriteChildren(label) => (Action::WriteChildren, Target::Node(label)),
            Touch::Edge(edge) => (Action::ReadEdge, Target::Edge(edge)),
            Touch::WriteEdge(edge) => (Action::WriteEdge, Target::Edge(edge)),
        }
    }
}

impl Target<'_> {
    /// Writes the name of what is locked.
    fn write_name(self, document: u32, name: &mut Vec<u8>) {
        match self {
            Target::Node(label) => write_name(name, NODE, document, label.as_bytes()),
            Target::Classes => write_name(name, CLASSES, document, &[]),
            Target::Edge(edge) => edge.write_name(document, name),
        }
    }

    /// Returns the node that it is in.
    fn parent(&self) -> Option<Cow<'_, Label>> {
        match *self {
            Target::Classes => None,
            Target::Node(label) | Target::Edge(Edge::Previous(label) | Edge::Next(label)) => {
                label.parent().map(Cow::Owned)
            }
            Target::Edge(Edge::First(label) | Edge::Last(label)) => Some(Cow::Borrowed(label)),
            Target::Edge(Edge::Named(label, _)) => Some(Cow::Owned(label.attribute_root())),
        }
    }

    /// Returns the node that it is in, or that it is.
    fn within(&self) -> Option<Cow<'_, Label>> {
        match *self {
            Target::Node(label) => Some(Cow::Borrowed(label)),
            _ => self.parent(),
        }
    }

    /// Returns the node that is locked in place of something that is deeper than `depth`: its
    /// ancestor on that level, and how many levels that is above it. `None` for what is not deeper.
    fn at_depth(self, depth: u32) -> Option<(Label, u32)> {
        let (label, below) = match self {
            Target::Node(label) | Target::Edge(Edge::Previous(label) | Edge::Next(label)) => {
                (label, 0)
            }
            Target::Edge(Edge::First(label) | Edge::Last(label)) => (label, 1),
            Target::Edge(Edge::Named(label, _)) => (label, 2),
            Target::Classes => return None,
        };
        // Nothing in the document node's own list is deeper than level 0.
        let Level::Node(level) = label.level() else { return None };
        let levels = level.saturating_add(below).saturating_sub(depth);
        let ancestor = label.ancestor_at(Level::Node(depth)).filter(|_| levels > 0)?;
        Some((ancestor, levels))
    }
}

/// How long locks of readers are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    /// Not taken.
    Never,
    /// To the next operation of the transaction that reads.
    Operation,
    /// To the end of the transaction.
    Transaction,
}

/// How a transaction locks nodes.
pub(super) struct TransactionLocks {
    pub(super) locking: Locking,
    space: LockSpace,
    isolation: Isolation,
    /// Time spent in requests, if that is measured.
    pub(super) request_time: Cell<Duration>,
    /// What is locked first, and what this run was ended over.
    claims: RefCell<RetryClaims>,
}

impl TransactionLocks {
    pub(super) fn new(locking: Locking, used: &SpaceUse<'_>, isolation: Isolation) -> Self {
        let space = used.space.clone();
        let (request_time, claims) = (Cell::default(), RefCell::default());
        TransactionLocks { locking, space, isolation, request_time, claims }
    }

    /// Returns how long a lock is held.
    fn hold(&self, action: Action) -> Hold {
        let is_gap = action == Action::ReadEdge;
        let is_short = match self.isolation {
            _ if !action.is_read() => false,
            Isolation::ReadUncommitted => return Hold::Never,
            // Who reads a list or a subtree reads all of it under one lock, which stays.
            Isolation::ReadCommitted => is_gap || action == Action::ReadNode,
            Isolation::RepeatableRead => is_gap,
            Isolation::Serializable => false,
        };
        if is_short { Hold::Operation } else { Hold::Transaction }
    }
}

/// Memory for the names of what is locked: of itself, of the node that it is in, and where the
/// names of that node's ancestors end, which are the first bytes of its own.
#[derive(Debug)]
pub(super) struct Names {
    own: Vec<u8>,
    above: Vec<u8>,
    ends: Vec<usize>,
}

impl Default for Names {
    /// Memory for the names of most nodes.
    fn default() -> Names {
        let [own, above] = [(); 2].map(|()| Vec::with_capacity(64));
        Names { own, above, ends: Vec::with_capacity(16) }
    }
}

/// A lock that an operation has taken for itself alone: its name, and what was held of it before.
pub(super) type ShortLock = (Vec<u8>, Option<Mode>);

/// What a transaction has locked with all that is below it, last of all to read and to write. What
/// is below it needs no lock, so the lock manager is not asked.
#[derive(Debug, Default)]
pub(super) struct LockedSubtrees([Option<(Label, Mode)>; 2]);

impl LockedSubtrees {
    /// Returns the subtree that is locked in a mode and holds a node.
    fn around(&self, protocol: &LockProtocol, label: &Label, mode: Mode) -> Option<&Label> {
        let modes = protocol.modes();
        let needed = modes.whole_above(mode, u32::MAX);
        let found = self.0.iter().flatten().find(|(locked, held)| {
            label.as_bytes().starts_with(locked.as_bytes()) && modes.table.covers(*held, needed)
        });
        found.map(|(locked, _)| locked)
    }

    fn note(&mut self, protocol: &LockProtocol, label: &Label, action: Action, mode: Mode) {
        if protocol.modes().whole(mode) == mode {
            self.0[usize::from(!action.is_read())] = Some((label.clone(), mode));
        }
    }
}

/// An update that is under way: what is called meanwhile is part of it and locks nothing.
#[must_use = "the update ends when this is dropped"]
pub(super) struct Operation<'d>(&'d Cell<u32>);

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Returns how far a transaction that locks by a protocol is apart from others, if that was asked
/// for.
pub(super) fn isolation_of(protocol: &LockProtocol, asked: Isolation) -> Isolation {
    match protocol.locked() {
        Locked::Nothing => Isolation::ReadUncommitted,
        Locked::Document => Isolation::Serializable,
        Locked::Nodes => asked,
    }
}

/// Locks a document when it is opened, to the end of the transaction.
pub(super) fn lock_opened(
    transaction: &mut Transaction,
    stored: &Stored,
    protocol: &LockProtocol,
    access: Access,
) -> Result<(), XmlStoreError> {
    let mode = match (protocol.locked(), access) {
        (Locked::Document, Access::Read) => S,
        (Locked::Document, Access::Write) => X,
        // They keep out who locks the document as a whole, and who makes or drops an index.
        (Locked::Nodes | Locked::Nothing, Access::Read) => IS,
        (Locked::Nodes, Access::Write) => IX,
        (Locked::Nothing, Access::Write) => return Err(XmlStoreError::Unlocked),
    };
    Ok(transaction.lock_tree(&stored.tree, mode)?)
}

/// Locks of what operations read and write.
impl Document<'_> {
    /// Locks what an operation is about to read or write, unless it is part of an update, which has
    /// locked it.
    pub(super) fn touch(&self, touch: Touch<'_>) -> Result<(), XmlStoreError> {
        if self.operations.get() > 0 { Ok(()) } else { self.lock(touch) }
    }

    /// Locks what navigation has reached through a gap whose one name is locked: the node with the
    /// gap's other name, or that name alone if there is no node.
    pub(super) fn touch_reached<'a>(
        &self,
        reached: Option<&'a Label>,
        other_name: fn(&'a Label) -> Edge<'a>,
        at_end: Edge<'a>,
    ) -> Result<(), XmlStoreError> {
        self.touch(Touch::Edge(reached.map_or(at_end, other_name)))?;
        reached.map_or(Ok(()), |node| self.touch(Touch::Node(node)))
    }

    /// Begins an update. `lock` locks what it touches, unless the update is part of another one.
    pub(super) fn begin(
        &self,
        lock: impl FnOnce() -> Result<(), XmlStoreError>,
    ) -> Result<Operation<'_>, XmlStoreError> {
        let outer = self.operations.get();
        self.operations.set(outer + 1);
        let operation = Operation(&self.operations);
        if outer == 0 {
            self.lock_to_write()?;
            if self.locks_nodes() {
                lock()?;
            }
        }
        Ok(operation)
    }

    /// Returns whether nodes are locked, or nothing, and not the document.
    pub(super) fn locks_nodes(&self) -> bool {
        self.protocol().locked() != Locked::Document
    }

    /// Returns whether what was read stays as it is to the end of the transaction.
    pub(super) fn keeps_reads(&self) -> bool {
        match self.protocol().locked() {
            Locked::Nothing => false,
            Locked::Document => true,
            Locked::Nodes => self.locks.hold(Action::ReadNode) == Hold::Transaction,
        }
    }

    fn protocol(&self) -> &LockProtocol {
        &self.locks.locking.protocol
    }

    /// Locks the document itself as its updates need it, before what they touch.
    pub(super) fn lock_to_write(&self) -> Result<(), XmlStoreError> {
        if self.access.get() == Access::Read {
            let mut transaction = self.transaction.borrow_mut();
            lock_opened(&mut transaction, &self.stored, self.protocol(), Access::Write)?;
            self.access.set(Access::Write);
        }
        Ok(())
    }

    /// Begins an operation that reads: locks that the one before has taken for itself are released.
    pub(super) fn begin_reading(&self) {
        if self.operations.get() > 0 || self.short_locks.borrow().is_empty() {
            return;
        }
        let mut transaction = self.transaction.borrow_mut();
        // After a conflict there is nothing but rollback, which releases them.
        let Ok(mut locks) = transaction.locks_in(&self.locks.space) else { return };
        for (name, before) in self.short_locks.borrow_mut().drain(..).rev() {
            locks.restore(&name, before);
        }
    }

    /// Locks something now, also within an update.
    fn lock(&self, touch: Touch<'_>) -> Result<(), XmlStoreError> {
        let (action, target) = touch.parts();
        self.lock_for(action, target)
    }

    fn lock_for(&self, action: Action, target: Target<'_>) -> Result<(), XmlStoreError> {
        let protocol = self.protocol();
        let hold = self.locks.hold(action);
        if protocol.locked() != Locked::Nodes || hold == Hold::Never {
            return Ok(());
        }
        let mode = protocol.mode(action);
        let locked = self.locked_subtrees.borrow();
        if target.within().is_some_and(|label| locked.around(protocol, &label, mode).is_some()) {
            return Ok(());
        }
        drop(locked);
        let at_depth = self.locks.locking.depth_max().and_then(|depth| target.at_depth(depth));
        let (mode, target) = match &at_depth {
            Some((above, levels)) => {
                (protocol.modes().whole_above(mode, *levels), Target::Node(above))
            }
            None => (mode, target),
        };
        self.lock_target(target, mode, hold, !action.is_read())?;
        if let (Target::Node(label), Hold::Transaction) = (target, hold) {
            self.locked_subtrees.borrow_mut().note(protocol, label, action, mode);
        }
        Ok(())
    }

    /// Locks a node or an edge, behind the ancestors.
    fn lock_target(
        &self,
        target: Target<'_>,
        mode: Mode,
        hold: Hold,
        is_write: bool,
    ) -> Result<(), XmlStoreError> {
        let mut names = self.names.borrow_mut();
        let Names { own: name, above, ends } = &mut *names;
        let document = self.stored.paths.document();
        target.write_name(document, name);
        ends.clear();
        if let Some(parent) = target.parent() {
            write_name(above, NODE, document, parent.as_bytes());
            ends.push(HEAD);
            ends.extend(parent.ends().map(|end| HEAD + end));
        }
        if hold == Hold::Operation {
            let mut transaction = self.transaction.borrow_mut();
            let before = transaction.locks_in(&self.locks.space)?.held(name);
            self.short_locks.borrow_mut().push((name.clone(), before));
        }
        drop(names);
        self.lock_named(mode, is_write, hold)
    }

    /// Locks what has the names that were written last.
    fn lock_named(&self, mode: Mode, is_write: bool, hold: Hold) -> Result<(), XmlStoreError> {
        let names = self.names.borrow();
        let Names { own: name, above, ends } = &*names;
        let began = self.locks.locking.is_timed.then(clock::now);
        let mut transaction = self.transaction.borrow_mut();
        let mut locks = transaction.locks_in(&self.locks.space)?;
        locks.set_policy(LockEscalation::to_policy(self.locks.locking.escalation));
        let locked = locks.lock_path(above, ends, name, mode, Wait::AsSet);
        if let Some(began) = began {
            let time = &self.locks.request_time;
            time.set(time.get() + (clock::now() - began));
        }
        let is_edge = ![NODE, CLASSES].contains(&name[0]);
        if hold == Hold::Transaction
            && let Err(TxnError::Conflict(LockError::Deadlock)) = &locked
        {
            let mut claims = self.locks.claims.borrow_mut();
            let modes = self.protocol().modes();
            claims.add(modes, &names, (mode, is_write), |name| locks.held(name));
        }
        Ok(locked.inspect_err(|error| self.store.conflicts.count(is_edge, error))?)
    }

    /// Returns whether the list of children that a node is in is locked to be read, with its gaps:
    /// the document is locked, or a subtree around the node.
    pub(super) fn is_list_locked(&self, node: &Label) -> bool {
        if !self.locks_nodes() {
            return true;
        }
        // Its parent is that node then, or is below it.
        self.subtree_to_read(node).is_some_and(|above| above.is_ancestor_of(node))
    }

    /// Returns a subtree that is locked against changes of others and holds a node, with locks on
    /// nodes.
    pub(super) fn subtree_to_read(&self, node: &Label) -> Option<Label> {
        let protocol = self.protocol();
        let mode = protocol.mode(Action::ReadSubtree);
        self.locked_subtrees.borrow().around(protocol, node, mode).cloned()
    }

    /// Locks the label of a node that is about to be made, with all below it.
    pub(super) fn lock_new(&self, label: &Label) -> Result<(), XmlStoreError> {
        self.lock(Touch::WriteSubtree(label))
    }

    /// Locks the children of a node that get new labels.
    pub(super) fn lock_list(&self, list: &Label) -> Result<(), XmlStoreError> {
        self.lock(Touch::WriteSubtree(list))
    }

    /// Locks the set of path classes: against new ones, or to make one.
    pub(super) fn lock_classes(&self, access: Access) -> Result<(), XmlStoreError> {
        let action = match access {
            Access::Read => Action::RelyOnClasses,
            Access::Write => Action::AddClass,
        };
        // Who locks the root element alone has it before the document is asked through an index.
        if access == Access::Read && self.protocol().depth_max() == Some(0) {
            self.lock_for(Action::ReadSubtree, Target::Node(&Label::root()))?;
        }
        self.lock_for(action, Target::Classes)
    }

    /// Returns the number of a path class, which it gets now if it has none.
    pub(super) fn class_number(&self, class: PathClass) -> Result<Pcr, XmlStoreError> {
        if !self.stored.paths.has(class) {
            self.lock_classes(Access::Write)?;
        }
        self.stored.paths.number(&self.store.engine, class)
    }

    /// Makes the record of a node with a name, without content. `above` is the element's class.
    pub(super) fn named(
        &self,
        kind: RecordKind,
        above: Pcr,
        name: &QName,
    ) -> Result<Record, XmlStoreError> {
        let name = self.store.vocabulary.number(&self.store.engine, name)?;
        let class = PathClass { parent: above, name, kind };
        let pcr = if kind.has_class() { self.class_number(class)? } else { above };
        Ok(Record { kind, is_id: false, name: Some(name), pcr, content: String::new() })
    }

    /// Returns whether records of inner nodes come and go.
    fn is_virtual(&self) -> bool {
        self.stored.inner_nodes == InnerNodes::Virtual
    }

    /// Locks a place that nodes come to. If they may be joined with texts beside them
    /// (`may_join`), these too.
    pub(super) fn lock_place(&self, place: &Place, may_join: bool) -> Result<(), XmlStoreError> {
        let parent = match place {
            Place::Before(node) | Place::After(node) => node.parent(),
            Place::First(parent) | Place::Last(parent) => Some(parent.clone()),
        };
        // The document has no place beside it; the update refuses it.
        let Some(parent) = parent else { return Ok(()) };
        if self.is_virtual() {
            return self.lock(Touch::WriteSubtree(&parent));
        }
        let (left, right) = match place {
            Place::Before(node) => (self.lock_before(&parent, node)?, Some(node.clone())),
            Place::After(node) => (Some(node.clone()), self.lock_after(&parent, node)?),
            Place::First(parent) => (None, self.lock_first(parent)?),
            Place::Last(parent) => (self.lock_last(parent)?, None),
        };
        if !may_join {
            return Ok(());
        }
        if let Some(left) = left.filter(|left| self.is_text(left)) {
            self.lock(Touch::WriteNode(&left))?;
        }
        if let Some(right) = right.filter(|right| self.is_text(right)) {
            self.lock(Touch::WriteNode(&right))?;
            self.lock_after(&parent, &right)?;
        }
        Ok(())
    }

    /// Locks a node that is removed, and the gaps that become one.
    pub(super) fn lock_removal(&self, node: &Label) -> Result<(), XmlStoreError> {
        let Some(parent) = Document::parent_of(node) else { return Ok(()) };
        if self.is_virtual() {
            return self.lock(Touch::WriteSubtree(&parent));
        }
        self.lock(Touch::WriteSubtree(node))?;
        let left = self.lock_before(&parent, node)?;
        let right = self.lock_after(&parent, node)?;
        if let (Some(left), Some(right)) = (left, right)
            && self.is_text(&left)
            && self.is_text(&right)
        {
            self.lock(Touch::WriteNode(&left))?;
            self.lock(Touch::WriteNode(&right))?;
            self.lock_after(&parent, &right)?;
        }
        Ok(())
    }

    /// Locks an attribute that is set, or the place of one that there is not yet.
    pub(super) fn lock_attribute(
        &self,
        element: &Label,
        name: &QName,
        is_removed: bool,
    ) -> Result<(), XmlStoreError> {
        if self.is_virtual() {
            return self.lock(Touch::WriteSubtree(element));
        }
        self.lock(Touch::WriteEdge(Edge::Named(element, name)))?;
        let found = self.attribute(element, name)?;
        if let Some(attribute) = &found {
            self.lock(Touch::WriteSubtree(attribute))?;
        }
        if found.is_none() || is_removed {
            // The label of a new one follows from the last one's.
            self.lock(Touch::WriteEdge(Edge::Last(&element.attribute_root())))?;
        }
        Ok(())
    }

    /// Locks a node that gets another name.
    pub(super) fn lock_rename(&self, node: &Label, name: &QName) -> Result<(), XmlStoreError> {
        // Names are read from classes, with intentions on the ancestors only: X keeps them out.
        self.lock(Touch::WriteSubtree(node))?;
        let Some(element) = node.owner() else { return Ok(()) };
        if let Some(old) = self.name(node)? {
            self.lock(Touch::WriteEdge(Edge::Named(&element, &old)))?;
        }
        self.lock(Touch::WriteEdge(Edge::Named(&element, name)))
    }

    /// Locks a node whose content is set.
    pub(super) fn lock_content(&self, node: &Label) -> Result<(), XmlStoreError> {
        self.lock(Touch::WriteNode(node))
    }

    /// Locks all that is below an element that gets other content.
    pub(super) fn lock_subtree(&self, node: &Label) -> Result<(), XmlStoreError> {
        self.lock(Touch::WriteSubtree(node))
    }

    /// Locks a subtree that is copied.
    pub(super) fn lock_source(&self, node: &Label) -> Result<(), XmlStoreError> {
        self.lock(Touch::Subtree(node))
    }

    fn lock_before(&self, parent: &Label, node: &Label) -> Result<Option<Label>, XmlStoreError> {
        self.lock(Touch::WriteEdge(Edge::Previous(node)))?;
        let left = self.previous_sibling(node)?;
        self.lock(Touch::WriteEdge(left.as_ref().map_or(Edge::First(parent), Edge::Next)))?;
        Ok(left)
    }

    fn lock_after(&self, parent: &Label, node: &Label) -> Result<Option<Label>, XmlStoreError> {
        self.lock(Touch::WriteEdge(Edge::Next(node)))?;
        let right = self.next_sibling(node)?;
        self.lock(Touch::WriteEdge(right.as_ref().map_or(Edge::Last(parent), Edge::Previous)))?;
        Ok(right)
    }

    fn lock_first(&self, parent: &Label) -> Result<Option<Label>, XmlStoreError> {
        self.lock(Touch::WriteEdge(Edge::First(parent)))?;
        let first = self.first_child(parent)?;
        self.lock(Touch::WriteEdge(first.as_ref().map_or(Edge::Last(parent), Edge::Previous)))?;
        Ok(first)
    }

    fn lock_last(&self, parent: &Label) -> Result<Option<Label>, XmlStoreError> {
        self.lock(Touch::WriteEdge(Edge::Last(parent)))?;
        let last = self.last_child(parent)?;
        self.lock(Touch::WriteEdge(last.as_ref().map_or(Edge::First(parent), Edge::Next)))?;
        Ok(last)
    }

    /// Returns whether there is a text of that label. The kind of a node never changes, and the
    /// edges that are held keep it from being removed.
    fn is_text(&self, label: &Label) -> bool {
        self.find(label)
            .is_ok_and(|found| found.is_some_and(|record| record.kind == RecordKind::Text))
    }
}

impl Edge<'_> {
    fn write_name(self, document: u32, name: &mut Vec<u8>) {
        let (what, label) = match self {
            Edge::First(label) => (FIRST, label),
            Edge::Last(label) => (LAST, label),
            Edge::Previous(label) => (PREVIOUS, label),
            Edge::Next(label) => (NEXT, label),
            Edge::Named(label, attribute) => {
                let root = label.attribute_root();
                let length = u16::try_from(root.as_bytes().len()).expect("a label is shorter");
                write_name(name, NAMED, document, &length.to_be_bytes());
                name.extend_from_slice(root.as_bytes());
                // No URI has a zero byte.
                name.extend_from_slice(attribute.namespace.as_bytes());
                name.push(0);
                name.extend_from_slice(attribute.local.as_bytes());
                return;
            }
        };
        write_name(name, what, document, label.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::label::LabelRules;

    #[test]
    fn what_is_deeper_than_the_lock_depth_is_locked_by_an_ancestor() {
        let rules = LabelRules::new(100);
        let root = Label::root();
        let child = root.children(rules).first().expect("it is short");
        let grandchild = child.children(rules).first().expect("it is short");
        let name = QName::local("id");
        let document = Label::document();
        for (target, depth, expected) in [
            (Target::Node(&document), 0, None),
            (Target::Edge(Edge::First(&document)), 0, None),
            (Target::Node(&root), 0, None),
            (Target::Edge(Edge::Next(&root)), 0, None),
            (Target::Edge(Edge::First(&root)), 0, Some((&root, 1))),
            (Target::Edge(Edge::Named(&root, &name)), 0, Some((&root, 2))),
            (Target::Edge(Edge::Named(&root, &name)), 1, None),
            (Target::Node(&child), 0, Some((&root, 1))),
            (Target::Node(&child), 1, None),
            (Target::Edge(Edge::Last(&child)), 0, Some((&root, 2))),
            (Target::Node(&grandchild), 0, Some((&root, 2))),
            (Target::Edge(Edge::Previous(&grandchild)), 1, Some((&child, 1))),
            (Target::Edge(Edge::Previous(&grandchild)), 2, None),
        ] {
            let found = target.at_depth(depth);
            let found = found.as_ref().map(|(ancestor, levels)| (ancestor, *levels));
            assert_eq!(found, expected, "{target:?}, depth {depth}");
        }
    }
}

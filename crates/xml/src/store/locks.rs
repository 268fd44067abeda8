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
//! A transaction has a [`LockGranularity`].
//!
//! | granularity | what is locked |
//! | --- | --- |
//! | document | the document's tree: S by readers, X by writers |
//! | nodes | nodes and edges by a [`Protocol`], with intentions on all ancestors |
//! | nodes to a level | the same; what is deeper is locked by its ancestor on that level |
//!
//! All may be used side by side: who locks nodes has an intention on the tree as well.
//!
//! A protocol is data: modes, and for each [`Action`] the mode on the node, on its parent and on
//! the ancestors above. [`MGL`] is multi-granularity locking of the study's Section 2. R and X
//! stand for subtrees, so R on a node covers all reads in it. Labels and their hierarchy are in the
//! lock space `xml nodes` of the engine. Ancestors come from the label alone. The path locked last
//! is remembered, so that of a sibling costs nothing, and the subtrees locked last, so that what is
//! in them is not asked for.
//!
//! **Lock depth.** What is below the level of the transaction is locked by its ancestor there, for
//! a coarser [`Action`], so a protocol needs no table for it. The list of an element is one level
//! below the element, and so are its edges; the names of attributes are two levels below, in the
//! attribute root. Transactions of different depths may run side by side.
//!
//! **Escalation.** The engine counts the requests of a transaction below each node. From
//! [`LockEscalation::threshold`] on it tries to lock the node in the mode that covers all of them,
//! without waiting, and gives the locks below back. Edges beside the node are kept.
//!
//! # Example
//! ```text
//! T1: next sibling of 1.3    IR document, 1; R 1.3; R edge after 1.3; reads 1.5; R edge before 1.5
//! T2: insert before 1.5      IX document, 1; X edge before 1.5 waits for T1
//! T2: insert after 1.5       IX document, 1; X edge after 1.5, ... goes on
//! T3, to level 0: content of 1.3.3        IR document; R 1 waits for T2
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
//!   node is above them and is never locked by escalation: [`LockGranularity::Document`] does that.
//! * **Escalation is the store's**, not a transaction's: a lock space has one answer for all.
//!
//! # Limits
//! * There is no other protocol than [`MGL`] yet.
//! * Who asks for the parent of a node reads nothing of it: the label says which it is.

mod granularity;

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_engine::lock::multi_granularity::{IS, IX, S, X};
use tidegate_engine::lock::{LockStatistics, Mode, ModeTable, ModeTableError};
use tidegate_engine::{LabelHierarchy, LockSpace, ModeStatistics, Store, Transaction};

pub use self::granularity::{LockEscalation, LockGranularity};
use super::paths::{PathClass, Pcr};
use super::record::{Record, RecordKind};
use super::{Document, InnerNodes, Place, Stored, XmlStore, XmlStoreError};
use crate::label::{Label, Level};
use crate::name::QName;
use crate::tree::Tree;

/// What a document is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// A kind of request for locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    ReadNode,
    ReadChildren,
    ReadSubtree,
    WriteNode,
    WriteSubtree,
    ReadEdge,
    WriteEdge,
}

impl Action {
    /// Returns what is done to an ancestor so many levels above, the lock depth, in place of this.
    /// A node is read with the list that it is in; who reads deeper, or writes, needs the subtree.
    fn on_ancestor(self, levels: u32) -> Action {
        match (self, levels) {
            (action, 0) => action,
            (Action::ReadNode | Action::ReadEdge, 1) => Action::ReadChildren,
            (
                Action::ReadNode | Action::ReadChildren | Action::ReadSubtree | Action::ReadEdge,
                _,
            ) => Action::ReadSubtree,
            (Action::WriteNode | Action::WriteSubtree | Action::WriteEdge, _) => {
                Action::WriteSubtree
            }
        }
    }
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
}

impl<'a> Touch<'a> {
    fn parts(self) -> (Action, Target<'a>) {
        match self {
            Touch::Node(label) => (Action::ReadNode, Target::Node(label)),
            Touch::Children(label) => (Action::ReadChildren, Target::Node(label)),
            Touch::Subtree(label) => (Action::ReadSubtree, Target::Node(label)),
            Touch::WriteNode(label) => (Action::WriteNode, Target::Node(label)),
            Touch::WriteSubtree(label) => (Action::WriteSubtree, Target::Node(label)),
            Touch::Edge(edge) => (Action::ReadEdge, Target::Edge(edge)),
            Touch::WriteEdge(edge) => (Action::WriteEdge, Target::Edge(edge)),
        }
    }
}

impl Target<'_> {
    /// Returns the name of what is locked, and the node that it is in.
    fn name(self, document: u32) -> (Vec<u8>, Option<Label>) {
        match self {
            Target::Node(label) => (name_of(NODE, document, label), label.parent()),
            Target::Edge(edge) => edge.name(document),
        }
    }

    /// Returns the node that it is in, or that it is. The document is in no list.
    fn within(&self) -> Option<Cow<'_, Label>> {
        match *self {
            Target::Node(label)
            | Target::Edge(Edge::First(label) | Edge::Last(label) | Edge::Named(label, _)) => {
                Some(Cow::Borrowed(label))
            }
            Target::Edge(Edge::Previous(label) | Edge::Next(label)) => {
                label.parent().map(Cow::Owned)
            }
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
        };
        // Nothing in the document node's own list is deeper than level 0.
        let Level::Node(level) = label.level() else { return None };
        let levels = level.saturating_add(below).saturating_sub(depth);
        let ancestor = label.ancestor_at(Level::Node(depth)).filter(|_| levels > 0)?;
        Some((ancestor, levels))
    }
}

/// The modes that an action needs.
#[derive(Debug, Clone, Copy)]
struct Needs {
    own: Mode,
    parent: Mode,
    above: Mode,
}

/// A lock protocol as text.
struct ProtocolText {
    compatibility: &'static str,
    conversion: &'static str,
    /// For each action the modes on the node or edge, on its parent, and above.
    needs: [(Action, [&'static str; 3]); 7],
    /// The mode on a node that covers one on each node and edge below it, by modes.
    covering: &'static [(&'static str, &'static str)],
    /// The mode of who relies on the synopsis, and that of who adds a class.
    classes: [&'static str; 2],
}

/// Multi-granularity locking (Gray and Reuter, chapter 7) on nodes.
const MGL: ProtocolText = ProtocolText {
    compatibility: "
             IR   IX   R    RIX  U    X
        IR   +    +    +    +    -    -
        IX   +    +    -    -    -    -
        R    +    -    +    -    -    -
        RIX  +    -    -    -    -    -
        U    +    -    +    -    -    -
        X    -    -    -    -    -    -
    ",
    conversion: "
             IR   IX   R    RIX  U    X
        IR   IR   IX   R    RIX  U    X
        IX   IX   IX   RIX  RIX  X    X
        R    R    RIX  R    RIX  U    X
        RIX  RIX  RIX  RIX  RIX  X    X
        U    U    X    U    X    U    X
        X    X    X    X    X    X    X
    ",
    needs: [
        (Action::ReadNode, ["R", "IR", "IR"]),
        (Action::ReadChildren, ["R", "IR", "IR"]),
        (Action::ReadSubtree, ["R", "IR", "IR"]),
        (Action::WriteNode, ["X", "IX", "IX"]),
        (Action::WriteSubtree, ["X", "IX", "IX"]),
        (Action::ReadEdge, ["R", "IR", "IR"]),
        (Action::WriteEdge, ["X", "IX", "IX"]),
    ],
    covering: &[("IR", "R"), ("IX", "X"), ("R", "R"), ("RIX", "X"), ("U", "U"), ("X", "X")],
    classes: ["R", "IX"],
};

/// A lock protocol: modes, and what is requested for what.
struct Protocol {
    modes: ModeTable,
    needs: Vec<(Action, Needs)>,
    /// By mode.
    covering: Vec<(Mode, Mode)>,
    classes: [Mode; 2],
}

impl Protocol {
    fn read(text: &ProtocolText) -> Result<Protocol, ModeTableError> {
        let modes = ModeTable::parse(text.compatibility, text.conversion)?;
        let mode = |name: &str| modes.mode(name).expect("a protocol names modes of its table");
        let needs = text.needs.map(|(action, names)| {
            let [own, parent, above] = names.map(mode);
            (action, Needs { own, parent, above })
        });
        let covering = text.covering.iter().map(|(of, by)| (mode(of), mode(by))).collect();
        let classes = text.classes.map(mode);
        Ok(Protocol { needs: needs.to_vec(), covering, classes, modes })
    }

    /// Returns the mode on a node that covers one on each node and edge below it.
    fn covering(&self, mode: Mode) -> Mode {
        let found = self.covering.iter().find(|(of, _)| *of == mode);
        found.expect("a protocol says by what each mode is covered").1
    }

    fn needs(&self, action: Action) -> Needs {
        let found = self.needs.iter().find(|(known, _)| *known == action);
        found.expect("a protocol has each action").1
    }
}

/// The bytes in front of a label in the name of what is locked: what it is, and the document.
const HEAD: usize = 5;

/// What is locked, as the first byte of its name.
const NODE: u8 = 0;
const FIRST: u8 = 1;
const LAST: u8 = 2;
const PREVIOUS: u8 = 3;
const NEXT: u8 = 4;
/// Behind the label come its length in two bytes in front of it and the attribute's name.
const NAMED: u8 = 5;
/// The set of path classes of a document.
const CLASSES: u8 = 6;

fn name_of(what: u8, document: u32, label: &Label) -> Vec<u8> {
    let mut name = Vec::with_capacity(HEAD + label.as_bytes().len());
    name.push(what);
    name.extend(document.to_be_bytes());
    name.extend_from_slice(label.as_bytes());
    name
}

/// Nodes are in their parents, edges in the node whose list they are in.
struct NodeHierarchy {
    protocol: Arc<Protocol>,
    /// As [`LockEscalation::from_bits`] reads it.
    escalation: Arc<AtomicU64>,
}

impl LabelHierarchy for NodeHierarchy {
    fn parent<'l>(&self, name: &'l [u8]) -> Option<Cow<'l, [u8]>> {
        let (head, label) = name.split_at_checked(HEAD)?;
        let above = |label: &[u8]| {
            let parent = Label::from_bytes(label).ok()?.parent()?;
            Some(parent.as_bytes().len())
        };
        let (label, end) = match head[0] {
            NODE | PREVIOUS | NEXT => (label, above(label)?),
            FIRST | LAST => (label, label.len()),
            NAMED => {
                let (length, label) = label.split_first_chunk()?;
                (label, usize::from(u16::from_be_bytes(*length)))
            }
            _ => return None,
        };
        let parent = label.get(..end)?;
        if head[0] == NODE {
            return Some(Cow::Borrowed(&name[..HEAD + end]));
        }
        let mut bytes = vec![NODE];
        bytes.extend_from_slice(&head[1..]);
        bytes.extend_from_slice(parent);
        Some(Cow::Owned(bytes))
    }

    /// The engine asks for the level of nodes only, which contain others. The document is on level
    /// 0.
    fn level(&self, name: &[u8]) -> u32 {
        let label = name.get(HEAD..).and_then(|label| Label::from_bytes(label).ok());
        match label.map(|label| label.level()) {
            Some(Level::Node(level)) => level.saturating_add(1),
            Some(Level::Document) | None => 0,
        }
    }

    fn escalate_at(&self, _: &[u8], level: u32) -> Option<u32> {
        let escalation = LockEscalation::from_bits(self.escalation.load(Ordering::Relaxed))?;
        Some(escalation.threshold(level.checked_sub(1)?))
    }

    fn covering(&self, mode: Mode) -> Mode {
        self.protocol.covering(mode)
    }

    fn is_shared(&self, name: &[u8]) -> bool {
        name.len() == HEAD && name[0] == NODE
    }
}

/// The locks on nodes of a store.
pub(super) struct NodeLocks {
    space: LockSpace,
    protocol: Arc<Protocol>,
    escalation: Arc<AtomicU64>,
}

impl NodeLocks {
    pub(super) fn new(engine: &Store) -> Result<NodeLocks, XmlStoreError> {
        let protocol = Protocol::read(&MGL).map_err(tidegate_engine::StoreError::from)?;
        let protocol = Arc::new(protocol);
        let escalation = Arc::new(AtomicU64::new(LockEscalation::to_bits(None)));
        let hierarchy = Arc::new(NodeHierarchy {
            protocol: Arc::clone(&protocol),
            escalation: Arc::clone(&escalation),
        });
        let space = engine.create_lock_space("xml nodes", protocol.modes.clone(), hierarchy)?;
        Ok(NodeLocks { space, protocol, escalation })
    }
}

/// Settings and figures of locks on nodes.
impl XmlStore {
    /// Sets from when on locks on many nodes become one lock on a node above; `None`, the default,
    /// for never. It holds for all transactions that lock nodes, from their next request on.
    pub fn set_lock_escalation(&self, escalation: Option<LockEscalation>) {
        let bits = LockEscalation::to_bits(escalation);
        self.locks.escalation.store(bits, Ordering::Relaxed);
    }

    /// Returns from when on locks on many nodes become one lock on a node above.
    #[must_use]
    pub fn lock_escalation(&self) -> Option<LockEscalation> {
        LockEscalation::from_bits(self.locks.escalation.load(Ordering::Relaxed))
    }

    /// Returns what was counted of locks on nodes and gaps since the store was opened, escalations
    /// among them.
    #[must_use]
    pub fn node_lock_statistics(&self) -> LockStatistics {
        self.locks.space.statistics()
    }

    /// Returns what was counted of locks on nodes and gaps since the store was opened, by mode.
    #[must_use]
    pub fn node_lock_statistics_by_mode(&self) -> Vec<ModeStatistics> {
        self.locks.space.statistics_by_mode()
    }
}

/// The path of intentions that was locked last: down to this node.
#[derive(Debug, Clone)]
pub(super) struct LockedPath {
    to: Label,
    parent: Mode,
    above: Mode,
}

impl LockedPath {
    /// Returns whether the path to `parent` is locked for these needs.
    fn covers(&self, modes: &ModeTable, parent: &Label, needs: Needs) -> bool {
        let at_parent = if self.to == *parent {
            self.parent
        } else if parent.is_ancestor_of(&self.to) {
            self.above
        } else {
            return false;
        };
        modes.covers(at_parent, needs.parent) && modes.covers(self.above, needs.above)
    }
}

/// What a transaction has locked with all that is below it, last of all to read and to write. What
/// is below it needs no lock, so the lock manager is not asked.
#[derive(Debug, Default)]
pub(super) struct LockedSubtrees([Option<(Label, Mode)>; 2]);

impl LockedSubtrees {
    fn cover(&self, protocol: &Protocol, label: &Label, mode: Mode) -> bool {
        self.around(protocol, label, mode).is_some()
    }

    /// Returns the subtree that is locked in a mode and holds a node.
    fn around(&self, protocol: &Protocol, label: &Label, mode: Mode) -> Option<&Label> {
        let needed = protocol.covering(mode);
        let found = self.0.iter().flatten().find(|(locked, held)| {
            label.as_bytes().starts_with(locked.as_bytes()) && protocol.modes.covers(*held, needed)
        });
        found.map(|(locked, _)| locked)
    }

    fn note(&mut self, protocol: &Protocol, label: &Label, action: Action, mode: Mode) {
        if protocol.modes.covers(mode, protocol.covering(mode)) {
            let is_write = matches!(action, Action::WriteNode | Action::WriteSubtree);
            self.0[usize::from(is_write)] = Some((label.clone(), mode));
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

/// Locks a document when it is opened, to the end of the transaction.
pub(super) fn lock_opened(
    transaction: &mut Transaction,
    stored: &Stored,
    granularity: LockGranularity,
    access: Access,
) -> Result<(), XmlStoreError> {
    let mode = match (granularity, access) {
        (LockGranularity::Document, Access::Read) => S,
        (LockGranularity::Document, Access::Write) => X,
        // They keep out who locks the document as a whole, and who makes or drops an index.
        (_, Access::Read) => IS,
        (_, Access::Write) => IX,
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

    /// Returns whether nodes are locked, and not the document.
    pub(super) fn locks_nodes(&self) -> bool {
        self.granularity.locks_nodes()
    }

    /// Locks the document itself as its updates need it, before what they touch.
    pub(super) fn lock_to_write(&self) -> Result<(), XmlStoreError> {
        if self.access.get() == Access::Read {
            let mut transaction = self.transaction.borrow_mut();
            lock_opened(&mut transaction, &self.stored, self.granularity, Access::Write)?;
            self.access.set(Access::Write);
        }
        Ok(())
    }

    /// Locks something now, also within an update.
    fn lock(&self, touch: Touch<'_>) -> Result<(), XmlStoreError> {
        if !self.locks_nodes() {
            return Ok(());
        }
        let protocol = &self.store.locks.protocol;
        let (action, target) = touch.parts();
        let above = self.granularity.depth().and_then(|depth| target.at_depth(depth));
        let (action, target) = match &above {
            Some((ancestor, levels)) => (action.on_ancestor(*levels), Target::Node(ancestor)),
            None => (action, target),
        };
        let mode = protocol.needs(action).own;
        let is_covered = |within| self.locked_subtrees.borrow().cover(protocol, within, mode);
        if target.within().as_deref().is_some_and(is_covered) {
            return Ok(());
        }
        let (name, parent) = target.name(self.stored.paths.document());
        self.lock_with_ancestors(action, &name, parent)?;
        if let Target::Node(label) = target {
            self.locked_subtrees.borrow_mut().note(protocol, label, action, mode);
        }
        Ok(())
    }

    /// Locks what has a name, behind the ancestors from `parent` up.
    fn lock_with_ancestors(
        &self,
        action: Action,
        name: &[u8],
        parent: Option<Label>,
    ) -> Result<(), XmlStoreError> {
        let NodeLocks { space, protocol, .. } = &self.store.locks;
        let needs = protocol.needs(action);
        let mut transaction = self.transaction.borrow_mut();
        let mut locks = transaction.locks_in(space)?;
        let mut path = self.locked_path.borrow_mut();
        let is_locked = |parent: &Label| {
            path.as_ref().is_some_and(|path| path.covers(&protocol.modes, parent, needs))
        };
        if let Some(parent) = parent.filter(|parent| !is_locked(parent)) {
            let own = name_of(NODE, self.stored.paths.document(), &parent);
            // The bytes of each ancestor are the first of its descendants'.
            let mut ends: Vec<usize> =
                parent.ancestors().map(|above| HEAD + above.as_bytes().len()).collect();
            ends.reverse();
            for end in ends {
                locks.lock(&own[..end], needs.above)?;
            }
            locks.lock(&own, needs.parent)?;
            *path = Some(LockedPath { to: parent, parent: needs.parent, above: needs.above });
        }
        Ok(locks.lock(name, needs.own)?)
    }

    /// Returns whether the list of children that a node is in is locked to be read, with its gaps:
    /// the document is locked, or a subtree around the node.
    pub(super) fn is_list_locked(&self, node: &Label) -> bool {
        if !self.locks_nodes() {
            return true;
        }
        let protocol = &self.store.locks.protocol;
        let mode = protocol.needs(Action::ReadSubtree).own;
        let locked = self.locked_subtrees.borrow();
        // Its parent is that node then, or is below it.
        locked.around(protocol, node, mode).is_some_and(|above| above.is_ancestor_of(node))
    }

    /// Returns a subtree that is locked against changes of others and holds a node, with locks on
    /// nodes.
    pub(super) fn subtree_to_read(&self, node: &Label) -> Option<Label> {
        let protocol = &self.store.locks.protocol;
        let mode = protocol.needs(Action::ReadSubtree).own;
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
        if !self.locks_nodes() {
            return Ok(());
        }
        let NodeLocks { space, protocol, .. } = &self.store.locks;
        let mode = protocol.classes[usize::from(access == Access::Write)];
        let name = name_of(CLASSES, self.stored.paths.document(), &Label::document());
        Ok(self.transaction.borrow_mut().locks_in(space)?.lock(&name, mode)?)
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
    /// Returns the name of the edge, and the node whose list it is in.
    fn name(self, document: u32) -> (Vec<u8>, Option<Label>) {
        match self {
            Edge::First(label) => (name_of(FIRST, document, label), Some(label.clone())),
            Edge::Last(label) => (name_of(LAST, document, label), Some(label.clone())),
            Edge::Previous(label) => (name_of(PREVIOUS, document, label), label.parent()),
            Edge::Next(label) => (name_of(NEXT, document, label), label.parent()),
            Edge::Named(label, attribute) => {
                let bytes = label.as_bytes();
                let length = u16::try_from(bytes.len()).expect("the longest label is a u16");
                let mut name = name_of(NAMED, document, &Label::document());
                name.extend(length.to_be_bytes());
                name.extend_from_slice(bytes);
                // No URI has a zero byte.
                name.extend_from_slice(attribute.namespace.as_bytes());
                name.push(0);
                name.extend_from_slice(attribute.local.as_bytes());
                (name, Some(label.clone()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::label::LabelRules;

    #[test]
    fn the_protocol_is_read_and_covers_every_mode() {
        let protocol = Protocol::read(&MGL).expect("the laws hold");
        assert_eq!(protocol.covering.len(), protocol.modes.len());
        for (of, by) in &protocol.covering {
            let all = protocol.modes.modes();
            // Whoever clashes with a lock below takes an intention that clashes with the cover.
            assert!(protocol.modes.covers(*by, *of), "{of:?} {by:?}");
            assert_eq!(all.count(), 6);
        }
    }

    #[test]
    fn edges_are_in_the_node_whose_list_they_are_in() {
        let protocol = Arc::new(Protocol::read(&MGL).expect("the laws hold"));
        let escalation = Arc::new(AtomicU64::new(0));
        let hierarchy = NodeHierarchy { protocol, escalation };
        let rules = LabelRules::new(100);
        let root = Label::root();
        let child = root.children(rules).first().expect("it is short");
        let node = |label: &Label| name_of(NODE, 7, label);
        let name = QName::local("id");
        for (edge, expected) in [
            (Edge::First(&child), &child),
            (Edge::Last(&child), &child),
            (Edge::Previous(&child), &root),
            (Edge::Next(&child), &root),
            (Edge::Named(&child, &name), &child),
        ] {
            let (bytes, parent) = edge.name(7);
            assert_eq!(parent.as_ref(), Some(expected), "{edge:?}");
            assert_eq!(hierarchy.parent(&bytes).as_deref(), Some(&*node(expected)), "{edge:?}");
        }
        let above = hierarchy.parent(&node(&child)).map(Cow::into_owned);
        assert_eq!(above, Some(node(&root)));
        assert_eq!(hierarchy.parent(&node(&Label::document())), None);
        assert!(hierarchy.is_shared(&node(&Label::document())));
        for (label, level) in [(Label::document(), 0), (root, 1), (child, 2)] {
            assert_eq!(hierarchy.level(&node(&label)), level, "{label}");
        }
    }

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
        let (one, many) = (Action::ReadNode.on_ancestor(1), Action::ReadNode.on_ancestor(2));
        assert_eq!((one, many), (Action::ReadChildren, Action::ReadSubtree));
        assert_eq!(Action::WriteEdge.on_ancestor(1), Action::WriteSubtree);
    }
}

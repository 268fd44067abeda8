//! The lock space of a store's nodes: names of what is locked, their hierarchy, and the exchange of
//! one set of modes for another.
//!
//! # Exchange
//! A space has one [`TreeModes`]. Transactions of protocols of these modes begin at once, whatever
//! the others are. One of other modes waits until those that are under way have ended, and holds up
//! those that come meanwhile, so that it does not wait for ever; then the space is replaced.
//!
//! A transaction that locks as the store says takes the way that the store has when it begins, not
//! when it came: all that wait when the space is replaced begin at that moment, in the new modes.
//! So none of them waits longer than the longest transaction runs that was under way when it came,
//! however often the way is exchanged meanwhile. One with a way of its own, whose modes are not the
//! new ones, waits for the next exchange. A thread that begins a transaction while it has another
//! one open waits for itself then.
//!
//! For example, T1 runs by taDOM3+, and O is a protocol with modes of its own:
//!
//! ```text
//! the store is set to O    T2 comes and waits for T1; T3 comes and waits, too
//! set to taDOM3+ again     T1 ends: T2 and T3 begin, by taDOM3+; nothing was exchanged
//! set to O    T4 comes and waits for T2 and T3     they end: the space is replaced, T4 begins by O
//! ```

use std::borrow::Cow;
use std::sync::Arc;

use tidegate_engine::lock::{EscalationPolicy, Mode};
use tidegate_engine::{LabelHierarchy, LockSpace, Store};
use tidegate_runtime::sync::{Condvar, Mutex, MutexGuard};

use super::protocol::{LockProtocol, TreeModes};
use super::settings::{LockEscalation, Locking};
use crate::label::{Label, Level};
use crate::store::XmlStoreError;

/// The bytes in front of a label in the name of what is locked: what it is, and the document.
pub(super) const HEAD: usize = 5;

/// What is locked, as the first byte of its name.
pub(super) const NODE: u8 = 0;
pub(super) const FIRST: u8 = 1;
pub(super) const LAST: u8 = 2;
pub(super) const PREVIOUS: u8 = 3;
pub(super) const NEXT: u8 = 4;
/// In front of the label is its length in two bytes, behind it the attribute's name.
pub(super) const NAMED: u8 = 5;
/// The set of path classes of a document.
pub(super) const CLASSES: u8 = 6;

/// Writes the name of what is locked at a label, in place of what is there.
pub(super) fn write_name(name: &mut Vec<u8>, what: u8, document: u32, label: &[u8]) {
    name.clear();
    name.push(what);
    name.extend(document.to_be_bytes());
    name.extend_from_slice(label);
}

/// Nodes are in their parents, edges in the node whose list they are in.
struct NodeHierarchy(Arc<TreeModes>);

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

    /// Only nodes contain others. The document is locked as a whole by nobody's escalation.
    fn escalate_at(&self, name: &[u8], policy: EscalationPolicy) -> Option<u32> {
        let escalation = LockEscalation::from_policy(policy)?;
        match Label::from_bytes(name.get(HEAD..)?).ok()?.level() {
            Level::Document => None,
            Level::Node(level) => Some(escalation.threshold(level)),
        }
    }

    fn covering(&self, mode: Mode) -> Mode {
        self.0.whole(mode)
    }

    fn above(&self, mode: Mode) -> Option<Mode> {
        Some(self.0.above(mode))
    }

    fn is_shared(&self, name: &[u8]) -> bool {
        name.len() == HEAD && name[0] == NODE
    }
}

/// The locks on nodes of a store.
pub(in crate::store) struct NodeLocks {
    current: Mutex<Current>,
    ended: Condvar,
}

struct Current {
    space: LockSpace,
    modes: Arc<TreeModes>,
    /// Transactions under way.
    users: usize,
    /// Whether one waits for the others to end.
    is_exchanging: bool,
    /// Transactions that wait for that one, and lock as the store says.
    waiting: usize,
    /// How often all that waited have begun.
    admissions: u64,
    /// The way to lock by which they began last.
    admitted: Locking,
}

/// A transaction's part in the space, until it is dropped.
pub(in crate::store) struct SpaceUse<'s> {
    locks: &'s NodeLocks,
    pub(super) space: LockSpace,
}

impl Drop for SpaceUse<'_> {
    fn drop(&mut self) {
        let mut current = self.locks.current.lock();
        current.users -= 1;
        if current.users == 0 {
            self.locks.ended.notify_all();
        }
    }
}

impl NodeLocks {
    pub(in crate::store) fn new(engine: &Store) -> Result<NodeLocks, XmlStoreError> {
        let modes = Arc::clone(LockProtocol::tadom().modes());
        let hierarchy = Arc::new(NodeHierarchy(Arc::clone(&modes)));
        let space = engine.create_lock_space("xml nodes", modes.table.clone(), hierarchy)?;
        let current = Current {
            space,
            modes,
            users: 0,
            is_exchanging: false,
            waiting: 0,
            admissions: 0,
            admitted: Locking::default(),
        };
        Ok(NodeLocks { current: Mutex::new(current), ended: Condvar::new() })
    }

    /// Enters the space for a transaction that locks as the store says, which `as_set` returns.
    /// Returns how it locks.
    pub(in crate::store) fn enter_as_set(
        &self,
        engine: &Store,
        as_set: impl Fn() -> Locking,
    ) -> (Locking, SpaceUse<'_>) {
        let mut current = self.current.lock();
        if current.is_exchanging {
            let before = current.admissions;
            current.waiting += 1;
            while current.is_exchanging && current.admissions == before {
                self.ended.wait(&mut current);
            }
            if current.admissions > before {
                // It has begun, and is counted.
                return (current.admitted.clone(), self.used(&current));
            }
            current.waiting -= 1;
        }
        let mut locking = as_set();
        if !current.goes_with(&locking.protocol) {
            current = self.wait_for_all(current);
            locking = as_set();
            current.exchange(engine, &locking.protocol);
            current.admit_all(&locking);
            self.ended.notify_all();
        }
        current.users += 1;
        (locking, self.used(&current))
    }

    /// Enters the space for a transaction of a protocol, when those of other modes have ended.
    pub(in crate::store) fn enter(&self, engine: &Store, protocol: &LockProtocol) -> SpaceUse<'_> {
        let mut current = self.current.lock();
        while current.is_exchanging {
            self.ended.wait(&mut current);
        }
        if !current.goes_with(protocol) {
            current = self.wait_for_all(current);
            current.exchange(engine, protocol);
            self.ended.notify_all();
        }
        current.users += 1;
        self.used(&current)
    }

    /// Holds up those that come, until no transaction is under way.
    fn wait_for_all<'s>(&'s self, mut current: MutexGuard<'s, Current>) -> MutexGuard<'s, Current> {
        current.is_exchanging = true;
        while current.users > 0 {
            self.ended.wait(&mut current);
        }
        current.is_exchanging = false;
        current
    }

    fn used(&self, current: &Current) -> SpaceUse<'_> {
        SpaceUse { locks: self, space: current.space.clone() }
    }

    /// Returns the space as it is now.
    pub(super) fn space(&self) -> LockSpace {
        self.current.lock().space.clone()
    }
}

impl Current {
    fn goes_with(&self, protocol: &LockProtocol) -> bool {
        Arc::ptr_eq(&self.modes, protocol.modes())
    }

    /// Replaces the space by one of a protocol's modes, if it has others.
    fn exchange(&mut self, engine: &Store, protocol: &LockProtocol) {
        if self.goes_with(protocol) {
            return;
        }
        debug_assert_eq!(self.users, 0, "no transaction uses the space");
        let modes = Arc::clone(protocol.modes());
        let hierarchy = Arc::new(NodeHierarchy(Arc::clone(&modes)));
        let replaced = engine.replace_lock_space(&self.space, modes.table.clone(), hierarchy);
        self.space = replaced.expect("no transaction uses the space");
        self.modes = modes;
    }

    /// All that wait and lock as the store says begin by this way.
    fn admit_all(&mut self, locking: &Locking) {
        self.users += std::mem::take(&mut self.waiting);
        self.admissions += 1;
        self.admitted = locking.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Edge, Target};
    use super::*;
    use crate::label::LabelRules;
    use crate::name::QName;

    fn name(target: Target<'_>) -> Vec<u8> {
        let mut name = Vec::new();
        target.write_name(7, &mut name);
        name
    }

    #[test]
    fn edges_are_in_the_node_whose_list_they_are_in() {
        let hierarchy = NodeHierarchy(Arc::clone(LockProtocol::tadom().modes()));
        let rules = LabelRules::new(100);
        let root = Label::root();
        let child = root.children(rules).first().expect("it is short");
        let (attributes, id) = (child.attribute_root(), QName::local("id"));
        for (target, expected) in [
            (Target::Node(&child), &root),
            (Target::Edge(Edge::First(&child)), &child),
            (Target::Edge(Edge::Last(&child)), &child),
            (Target::Edge(Edge::Previous(&child)), &root),
            (Target::Edge(Edge::Next(&child)), &root),
            (Target::Edge(Edge::Named(&child, &id)), &attributes),
        ] {
            assert_eq!(target.parent().as_deref(), Some(expected), "{target:?}");
            let parent = hierarchy.parent(&name(target)).map(Cow::into_owned);
            assert_eq!(parent, Some(name(Target::Node(expected))), "{target:?}");
        }
        let document = Label::document();
        assert_eq!(hierarchy.parent(&name(Target::Node(&document))), None);
        assert_eq!(hierarchy.parent(&name(Target::Classes)), None);
        assert!(hierarchy.is_shared(&name(Target::Node(&document))));
        let policy = LockEscalation::to_policy(Some(LockEscalation::MODERATE));
        for (label, at) in [(document, None), (root, Some(1920)), (child, Some(960))] {
            let found = hierarchy.escalate_at(&name(Target::Node(&label)), policy);
            assert_eq!(found, at, "{label}");
        }
    }
}

//! The lock space of a store's nodes: names of what is locked, their hierarchy, and the exchange of
//! one set of modes for another.
//!
//! # Exchange
//! A space has one [`TreeModes`]. Transactions of protocols of these modes begin at once, whatever
//! the others are. One of other modes waits until those that are under way have ended, and holds up
//! those that come meanwhile, so that it does not wait for ever; then the space is replaced. Nobody
//! waits longer for that than the longest transaction under way runs. A thread that begins a
//! transaction while it has another one open waits for itself then.

use std::borrow::Cow;
use std::sync::Arc;

use tidegate_engine::lock::{EscalationPolicy, Mode};
use tidegate_engine::{LabelHierarchy, LockSpace, Store, TxnError};
use tidegate_runtime::sync::{Condvar, Mutex};

use super::protocol::{LockProtocol, TreeModes};
use super::settings::LockEscalation;
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
    /// Those that wait for the others to end.
    exchanging: usize,
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
        let current = Mutex::new(Current { space, modes, users: 0, exchanging: 0 });
        Ok(NodeLocks { current, ended: Condvar::new() })
    }

    /// Enters the space for a transaction of a protocol, when those of other modes have ended.
    pub(in crate::store) fn enter(&self, engine: &Store, protocol: &LockProtocol) -> SpaceUse<'_> {
        let mut current = self.current.lock();
        while current.exchanging > 0 {
            self.ended.wait(&mut current);
        }
        if !Arc::ptr_eq(&current.modes, protocol.modes()) {
            current.exchanging += 1;
            while current.users > 0 {
                self.ended.wait(&mut current);
            }
            current.exchanging -= 1;
            current.exchange(engine, protocol.modes()).expect("no transaction uses the space");
            self.ended.notify_all();
        }
        current.users += 1;
        SpaceUse { locks: self, space: current.space.clone() }
    }

    /// Returns the space as it is now.
    pub(super) fn space(&self) -> LockSpace {
        self.current.lock().space.clone()
    }
}

impl Current {
    fn exchange(&mut self, engine: &Store, modes: &Arc<TreeModes>) -> Result<(), TxnError> {
        let hierarchy = Arc::new(NodeHierarchy(Arc::clone(modes)));
        self.space = engine.replace_lock_space(&self.space, modes.table.clone(), hierarchy)?;
        self.modes = Arc::clone(modes);
        Ok(())
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

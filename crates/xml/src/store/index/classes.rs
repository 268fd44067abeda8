//! Which path classes are on a path.
//!
//! A class follows its parent in the synopsis, so one pass over the classes finds for each of them
//! which first steps of the path lead to it, from what is known of its parent. Classes are only
//! added, so an index keeps the result and goes on from there when there are new ones.

use std::collections::HashMap;
use std::sync::Arc;

use tidegate_runtime::sync::LongMutex;

use super::definition::Step;
use crate::name::QName;
use crate::store::paths::{PathClass, Pcr};
use crate::store::record::{Record, RecordKind};
use crate::store::vocabulary::NameId;
use crate::tree::{Below, PathTest};

/// What an index knows of the path of a node: its class, and whether it is a text, whose class is
/// that of its element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NodeClass {
    pub(super) pcr: Pcr,
    pub(super) is_text: bool,
}

impl NodeClass {
    /// Returns the class of a node that indexes hold: an element, attribute or text.
    pub(super) fn of(record: &Record) -> Option<NodeClass> {
        let is_text = record.kind == RecordKind::Text;
        (is_text || record.kind.has_class()).then_some(NodeClass { pcr: record.pcr, is_text })
    }

    /// Returns the class in four bytes, in whose order the classes are.
    pub(super) fn to_bytes(self) -> [u8; 4] {
        assert!(self.pcr <= Pcr::LAST, "the synopsis gives no greater numbers");
        ((self.pcr.0 << 1) | u32::from(self.is_text)).to_be_bytes()
    }

    pub(super) fn from_bytes(bytes: [u8; 4]) -> NodeClass {
        let number = u32::from_be_bytes(bytes);
        NodeClass { pcr: Pcr(number >> 1), is_text: number & 1 == 1 }
    }
}

/// Most paths whose classes are kept.
const KEPT_MAX: usize = 64;

/// The classes on paths that queries have asked for, so that the next one finds them at once. A
/// path's classes are kept until there are new classes in the synopsis.
#[derive(Default)]
pub(super) struct ClassesOnPaths(LongMutex<HashMap<Vec<u8>, Kept>>);

struct Kept {
    /// Number of classes that there were.
    known: usize,
    classes: Arc<[NodeClass]>,
}

impl ClassesOnPaths {
    /// Returns the classes on a path, which `find` finds if they are not kept, in ascending order.
    /// `known` is the number of classes that there are.
    pub(super) fn get(
        &self,
        path: &[Step<'_>],
        known: usize,
        find: impl FnOnce() -> Vec<NodeClass>,
    ) -> Arc<[NodeClass]> {
        let key = code(path);
        let mut kept = self.0.lock();
        if let Some(found) = kept.get(&key).filter(|found| found.known == known) {
            return Arc::clone(&found.classes);
        }
        let classes: Arc<[NodeClass]> = find().into();
        debug_assert!(classes.is_sorted(), "a class has a bit beside its number");
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(key, Kept { known, classes: Arc::clone(&classes) });
        classes
    }
}

/// Returns bytes that no other path has: no name has a zero byte.
fn code(path: &[Step<'_>]) -> Vec<u8> {
    let mut code = Vec::new();
    for &(below, test) in path {
        let (kind, name) = match test {
            PathTest::Element(name) => (0, name),
            PathTest::Attribute(name) => (2, name),
            PathTest::Text => (4, None),
        };
        code.push(kind + u8::from(name.is_some()));
        code.push(u8::from(below == Below::Directly));
        if let Some(QName { namespace, local, .. }) = name {
            code.extend_from_slice(namespace.as_bytes());
            code.push(0);
            code.extend_from_slice(local.as_bytes());
            code.push(0);
        }
    }
    code
}

/// How far a path leads to each class. Bit n says that the first n steps do.
#[derive(Debug)]
pub(super) struct Reached {
    /// To the class itself, by its number; the document node is the first.
    at: Vec<u64>,
    /// To the class or one above it.
    above: Vec<u64>,
}

impl Reached {
    /// Begins with the document node alone.
    pub(super) fn new() -> Reached {
        Reached { at: vec![1], above: vec![1] }
    }

    /// Returns the number of classes that are known.
    pub(super) fn known(&self) -> usize {
        self.at.len() - 1
    }

    /// Adds the classes that follow those which are known.
    pub(super) fn extend(
        &mut self,
        path: &[Step<'_>],
        classes: &[PathClass],
        name: &impl Fn(NameId) -> Option<Arc<QName>>,
    ) {
        for class in classes {
            let parent = class.parent.0 as usize;
            let above = self.above[parent];
            let mut at = 0;
            for (index, &(below, test)) in path.iter().enumerate() {
                let from = if below == Below::Directly { self.at[parent] } else { above };
                if (from >> index) & 1 == 1 && passes(test, class, name) {
                    at |= 1 << (index + 1);
                }
            }
            self.at.push(at);
            self.above.push(above | at);
        }
    }

    /// Returns whether nodes of a class are on the path. A class that the synopsis lacks, which a
    /// damaged record may have, is on none.
    pub(super) fn is_on_path(&self, path: &[Step<'_>], class: NodeClass) -> bool {
        let Some(&(below, last)) = path.last() else { return false };
        let (from, steps) = match last {
            PathTest::Text if !class.is_text => return false,
            PathTest::Text if below == Below::Directly => (&self.at, path.len() - 1),
            PathTest::Text => (&self.above, path.len() - 1),
            _ if class.is_text => return false,
            _ => (&self.at, path.len()),
        };
        from.get(class.pcr.0 as usize).is_some_and(|reached| (reached >> steps) & 1 == 1)
    }
}

fn passes(
    test: PathTest<'_>,
    class: &PathClass,
    name: &impl Fn(NameId) -> Option<Arc<QName>>,
) -> bool {
    let (kind, wanted) = match test {
        PathTest::Element(wanted) => (RecordKind::Element, wanted),
        PathTest::Attribute(wanted) => (RecordKind::Attribute, wanted),
        PathTest::Text => return false,
    };
    let has_name = |wanted: &QName| name(class.name).is_some_and(|own| *own == *wanted);
    class.kind == kind && wanted.is_none_or(has_name)
}

//! Steps of queries on a stored document: the nodes of an axis that pass a test, from one scan.
//!
//! A test reads the first bytes of a record, its kind and the number of its name. The label and the
//! rest of the record are read of nodes that pass.

use std::sync::Arc;

use super::locks::Touch;
use super::navigate::Scan;
use super::record::{Head, RecordKind, take_number};
use super::view::Viewed;
use super::vocabulary::NameId;
use super::{Document, XmlStoreError};
use crate::label::Label;
use crate::tree::{StepAxis, StepTest};

/// Nodes that are passed one by one before a scan looks for the end of a subtree.
const PASSED_ONE_BY_ONE: usize = 3;

/// What a node has to be.
pub(super) enum Wanted {
    /// A child of something: neither an attribute nor a declaration.
    Child,
    Of(RecordKind),
    Named(RecordKind, Arc<[NameId]>),
}

impl Wanted {
    pub(super) fn passes(&self, head: Head) -> bool {
        match self {
            Wanted::Child => !matches!(head.kind, RecordKind::Attribute | RecordKind::Namespace),
            Wanted::Of(kind) => head.kind == *kind,
            Wanted::Named(kind, names) => {
                head.kind == *kind && head.name.is_some_and(|name| names.contains(&name))
            }
        }
    }

    /// Returns whether the node of a record may pass. It does if the record is well-formed.
    pub(super) fn may_pass(&self, record: &[u8]) -> bool {
        let Some((first, mut rest)) = record.split_first() else { return true };
        let Some(kind) = RecordKind::of_first_byte(*first) else { return true };
        match self {
            Wanted::Child => !matches!(kind, RecordKind::Attribute | RecordKind::Namespace),
            Wanted::Of(wanted) => kind == *wanted,
            Wanted::Named(wanted, names) => {
                kind == *wanted
                    && take_number(&mut rest).is_ok_and(|name| names.contains(&NameId(name)))
            }
        }
    }
}

/// How the nodes are come by.
enum Way<'d, 't> {
    /// By a scan of the range.
    Below(Box<Scan<'d, 't>>),
    /// By a scan over the children of the context node; the last of them.
    Over(Box<Scan<'d, 't>>, Option<Label>),
    /// Among nodes that are read in advance.
    Viewed(&'d Document<'t>, Viewed),
}

/// The nodes that a step finds.
pub(super) struct Steps<'d, 't> {
    wanted: Wanted,
    way: Way<'d, 't>,
}

impl<'t> Document<'t> {
    /// Returns the nodes on an axis that pass a test, and locks what that relies on.
    pub(super) fn steps(
        &self,
        node: &Label,
        axis: StepAxis,
        test: StepTest<'_>,
    ) -> Result<Steps<'_, 't>, XmlStoreError> {
        let principal = match axis {
            StepAxis::Attribute => RecordKind::Attribute,
            StepAxis::Child | StepAxis::Descendant => RecordKind::Element,
        };
        let wanted = match test {
            StepTest::Any if axis == StepAxis::Attribute => Wanted::Of(principal),
            StepTest::Any => Wanted::Child,
            StepTest::Principal => Wanted::Of(principal),
            StepTest::Name(name) => Wanted::Named(principal, self.numbers_of(name)),
            StepTest::Text => Wanted::Of(RecordKind::Text),
        };
        self.begin_reading();
        match axis {
            StepAxis::Attribute => {
                self.touch(Touch::Node(node))?;
                self.touch(Touch::Children(&node.attribute_root()))?;
            }
            StepAxis::Child => self.touch(Touch::Children(node))?,
            StepAxis::Descendant => self.touch(Touch::Subtree(node))?,
        }
        // Below a node, a scan tests many records in less time than they are read in.
        if axis != StepAxis::Descendant && self.may_view(node) {
            let viewed = Viewed::new(node.clone(), axis == StepAxis::Attribute);
            return Ok(Steps { wanted, way: Way::Viewed(self, viewed) });
        }
        let way = match axis {
            StepAxis::Attribute => Way::Below(Box::new(self.scan(&node.attributes_range())?)),
            StepAxis::Descendant => Way::Below(Box::new(self.scan(&node.children_range())?)),
            StepAxis::Child => Way::Over(Box::new(self.scan(&node.children_range())?), None),
        };
        Ok(Steps { wanted, way })
    }
}

impl Steps<'_, '_> {
    fn step(&mut self) -> Result<Option<Label>, XmlStoreError> {
        let wanted = &self.wanted;
        let (scan, last) = match &mut self.way {
            Way::Below(scan) => return scan.step_where(wanted),
            Way::Viewed(document, viewed) => {
                return viewed.step(document, |head| wanted.passes(head));
            }
            Way::Over(scan, last) => (scan, last),
        };
        loop {
            let found = match last.take() {
                None => scan.step_head()?,
                Some(last) => scan.step_over(&last, PASSED_ONE_BY_ONE)?,
            };
            let Some((label, head)) = found else { return Ok(None) };
            *last = Some(label);
            if wanted.passes(head) {
                return Ok(last.clone().inspect(|label| scan.remember(label, head)));
            }
        }
    }
}

impl Iterator for Steps<'_, '_> {
    type Item = Result<Label, XmlStoreError>;

    fn next(&mut self) -> Option<Result<Label, XmlStoreError>> {
        self.step().transpose()
    }
}

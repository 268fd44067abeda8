//! Steps of queries on a stored document: the nodes of an axis that pass a test, from one scan.
//!
//! A test reads the first bytes of a record, its kind and the number of its name. The label and the
//! rest of the record are read of nodes that pass.

use super::locks::Touch;
use super::navigate::Scan;
use super::record::{Head, RecordKind, take_number};
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
    Named(RecordKind, Vec<NameId>),
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

/// How far a step has come.
enum Way {
    /// To any node of the range.
    Below,
    /// Over the children of the context node; the last of them.
    Over(Option<Label>),
}

/// The nodes that a step finds.
pub(super) struct Steps<'d, 't> {
    scan: Scan<'d, 't>,
    wanted: Wanted,
    way: Way,
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
            StepTest::Name(name) => Wanted::Named(principal, self.store.vocabulary.numbers(name)),
            StepTest::Text => Wanted::Of(RecordKind::Text),
        };
        let range = match axis {
            StepAxis::Attribute => node.attributes_range(),
            StepAxis::Child | StepAxis::Descendant => node.children_range(),
        };
        self.touch(match axis {
            StepAxis::Attribute => Touch::Node(node),
            StepAxis::Child => Touch::Children(node),
            StepAxis::Descendant => Touch::Subtree(node),
        })?;
        let way = if axis == StepAxis::Child { Way::Over(None) } else { Way::Below };
        Ok(Steps { scan: self.scan(&range)?, wanted, way })
    }
}

impl Steps<'_, '_> {
    fn step(&mut self) -> Result<Option<Label>, XmlStoreError> {
        let last = match &mut self.way {
            Way::Below => return self.scan.step_where(&self.wanted),
            Way::Over(last) => last,
        };
        loop {
            let found = match last.take() {
                None => self.scan.step_head()?,
                Some(last) => self.scan.step_over(&last, PASSED_ONE_BY_ONE)?,
            };
            let Some((label, head)) = found else { return Ok(None) };
            *last = Some(label);
            if self.wanted.passes(head) {
                return Ok(last.clone().inspect(|label| self.scan.remember(label, head)));
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

//! Labels for new nodes in a list of siblings.

use std::num::NonZeroU16;
use std::ops::Range;

use super::bytes::LabelBytes;
use super::division::{self, Division, Head, POSITION_MAX, POSITION_MIN, Place};
use super::fraction::{self, Fraction};
use super::{Label, LabelError};

/// What a caller decides about new labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LabelRules {
    /// Longest label, in bytes. It is the longest key of the tree that holds the nodes, less what
    /// the key holds beside the label.
    pub max_bytes: usize,
    /// Distance of consecutive siblings at loading and at both ends of a list, in positions. See
    /// [`LabelRules::DEFAULT_DISTANCE`].
    pub distance: NonZeroU16,
}

impl LabelRules {
    /// The default distance: 2, which leaves one free position between loaded siblings.
    ///
    /// The first nodes inserted between two others take the free positions; the next 15 on the same
    /// side take one byte more, and the next 100 two. A greater distance pushes loaded siblings out
    /// of the positions with short codes: with 1 the first 63 children take one byte each and the
    /// first 5,183 at most two, with 2 it is 32 and 2,592, with 16 it is 4 and 324. Most elements
    /// have fewer than 32 children, so that a free position costs them nothing; more are not worth
    /// a byte for each loaded node. `docs/results/xml-labels.md` has a table.
    pub const DEFAULT_DISTANCE: NonZeroU16 = NonZeroU16::MIN.saturating_add(1);

    /// Returns the rules for labels of at most `max_bytes` bytes at the default distance.
    #[must_use]
    pub const fn new(max_bytes: usize) -> LabelRules {
        LabelRules { max_bytes, distance: LabelRules::DEFAULT_DISTANCE }
    }

    /// Returns these rules with another distance of consecutive siblings.
    #[must_use]
    pub const fn with_distance(self, distance: NonZeroU16) -> LabelRules {
        LabelRules { distance, ..self }
    }

    /// Returns the length of the longest label, in bytes.
    #[must_use]
    pub const fn max_bytes(self) -> usize {
        self.max_bytes
    }

    /// Returns `label` if it is short enough.
    pub(super) fn check(self, label: Label, parent: &Label) -> Result<Label, LabelError> {
        let (length, limit) = (label.as_bytes().len(), self.max_bytes);
        if length > limit {
            return Err(LabelError::TooLong {
                length,
                limit,
                parent_length: parent.as_bytes().len(),
            });
        }
        Ok(label)
    }
}

/// The list of a node's children, attributes or namespace nodes, as a source of labels for new
/// ones.
///
/// It knows no label that was given: each method computes the new one from its neighbours alone, so
/// that neighbours that are locked are all that has to be locked. Consequently a label is given
/// again if its node was deleted and the neighbours are the same: a transaction that deletes a node
/// has to keep others from inserting into its gap until it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Siblings {
    parent: Label,
    rules: LabelRules,
}

impl Siblings {
    pub(super) fn new(parent: Label, rules: LabelRules) -> Siblings {
        Siblings { parent, rules }
    }

    /// Returns the parent: the element, or the root of its attributes or namespaces.
    #[must_use]
    pub fn parent(&self) -> &Label {
        &self.parent
    }

    /// Returns the label for the first node of an empty list.
    ///
    /// # Errors
    ///
    /// [`LabelError::TooLong`].
    pub fn first(&self) -> Result<Label, LabelError> {
        self.at(None, None)
    }

    /// Returns the label for a node in front of `first`, the first node of the list.
    ///
    /// # Errors
    ///
    /// [`LabelError::TooLong`], and [`LabelError::NotASibling`] if `first` is not of this list.
    pub fn before_first(&self, first: &Label) -> Result<Label, LabelError> {
        self.at(None, Some(first))
    }

    /// Returns the label for a node behind `last`, the last node of the list.
    ///
    /// # Errors
    ///
    /// [`LabelError::TooLong`], and [`LabelError::NotASibling`] if `last` is not of this list.
    pub fn after_last(&self, last: &Label) -> Result<Label, LabelError> {
        self.at(Some(last), None)
    }

    /// Returns the label for a node between `left` and `right`, the node that follows it.
    ///
    /// # Errors
    ///
    /// [`LabelError::TooLong`], [`LabelError::NotASibling`] if one of them is not of this list, and
    /// [`LabelError::NotInOrder`] if `left` is not in front of `right`.
    pub fn between(&self, left: &Label, right: &Label) -> Result<Label, LabelError> {
        self.at(Some(left), Some(right))
    }

    /// Returns the label for a node behind `left` and in front of `right`, each `None` if there is
    /// no such neighbour.
    ///
    /// # Errors
    ///
    /// Those of [`Siblings::between`].
    pub fn at(&self, left: Option<&Label>, right: Option<&Label>) -> Result<Label, LabelError> {
        let left_place = left.map(|left| self.place_of(left)).transpose()?;
        let right_place = right.map(|right| self.place_of(right)).transpose()?;
        if let (Some(left), Some(right)) = (left, right)
            && left >= right
        {
            return Err(LabelError::NotInOrder { left: left.clone(), right: right.clone() });
        }
        let distance = i64::from(self.rules.distance.get());
        let whole = |position| Place { position, fraction: Fraction::ZERO };
        let (position, fraction) = match (left_place, right_place) {
            (None, None) => (1, Vec::new()),
            (Some(left), None) if left.position <= POSITION_MAX - distance => {
                (left.position + distance, Vec::new())
            }
            (None, Some(right)) if right.ceiling() > POSITION_MIN + distance => {
                (right.ceiling() - distance, Vec::new())
            }
            (left, right) => between(
                left.unwrap_or(whole(POSITION_MIN)),
                right.unwrap_or(whole(POSITION_MAX + 1)),
            ),
        };
        self.rules.check(self.label(position, &fraction), &self.parent)
    }

    /// Returns labels for `count` siblings, in order and as far from each other as the rules say.
    ///
    /// They are those of a newly loaded list, and so they are short. A caller that holds the
    /// parent's whole subtree exclusively gives them to the nodes of a list in which a label became
    /// too long. [`Label::moved`] moves the nodes below.
    ///
    /// # Errors
    ///
    /// [`LabelError::TooLong`] if one of them is.
    pub fn evenly(&self, count: u32) -> Result<Evenly<'_>, LabelError> {
        if let Some(last) = count.checked_sub(1) {
            self.rules.check(self.even(last), &self.parent)?;
        }
        Ok(Evenly { siblings: self, rest: 0..count })
    }

    /// Returns the label of the sibling `index` of a loaded list. No index leaves the positions.
    fn even(&self, index: u32) -> Label {
        self.label(1 + i64::from(index) * i64::from(self.rules.distance.get()), &[])
    }

    fn label(&self, position: i64, fraction: &[u8]) -> Label {
        let head = Head::new(position, !fraction.is_empty());
        Label(LabelBytes::concat(&[self.parent.as_bytes(), head.as_slice(), fraction]))
    }

    /// Returns the place of a label of this list.
    fn place_of<'a>(&self, label: &'a Label) -> Result<Place<'a>, LabelError> {
        let bytes = label.as_bytes().strip_prefix(self.parent.as_bytes());
        match bytes.map(|bytes| (division::parse(bytes, 0), bytes.len())) {
            Some((Ok((Division::Place(place), end)), length)) if end == length => Ok(place),
            _ => Err(LabelError::NotASibling { label: label.clone(), parent: self.parent.clone() }),
        }
    }
}

/// Returns position and fraction of the place to be taken between `left` and `right`, which are in
/// order. Positions are preferred, as fractions need a byte more.
fn between(left: Place<'_>, right: Place<'_>) -> (i64, Vec<u8>) {
    match division::middle(left.position + 1, right.ceiling() - 1) {
        Some(position) => (position, Vec::new()),
        None if left.position == right.position => {
            (left.position, fraction::between(left.fraction, right.fraction))
        }
        // The right one is the next position, and 0 stands for 1 as the upper end.
        None => (left.position, fraction::between(left.fraction, Fraction::ZERO)),
    }
}

impl Place<'_> {
    /// Returns the lowest position that is not below this place.
    fn ceiling(self) -> i64 {
        self.position + i64::from(!self.fraction.is_zero())
    }
}

/// Labels of a newly loaded list; see [`Siblings::evenly`].
#[derive(Debug, Clone)]
pub struct Evenly<'a> {
    siblings: &'a Siblings,
    rest: Range<u32>,
}

impl Iterator for Evenly<'_> {
    type Item = Label;

    fn next(&mut self) -> Option<Label> {
        self.rest.next().map(|index| self.siblings.even(index))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.rest.size_hint()
    }
}

impl DoubleEndedIterator for Evenly<'_> {
    fn next_back(&mut self) -> Option<Label> {
        self.rest.next_back().map(|index| self.siblings.even(index))
    }
}

impl ExactSizeIterator for Evenly<'_> {}

//! Labels of nodes: prefix-based Dewey IDs, which insertions of other nodes do not change.
//!
//! A label is the key of a node's record. It holds one *division* for each level, so that level,
//! ancestors and document order follow from the label alone, without a look at the document: 1.5.7
//! is on level 2, a child of 1.5 on level 1, which is a child of the root element 1 on level 0.
//! That is what makes locks on nodes cheap, since a lock on a node needs one on each of its
//! ancestors (Haustein and Härder; `docs/xml.md` names the study).
//!
//! ```
//! use tidegate_xml::label::{Label, LabelRules, Level};
//!
//! let rules = LabelRules::new(1_000);
//! let people = Label::root();
//! let list = people.children(rules);
//! let anna = list.first()?;
//! let dora = list.after_last(&anna)?;
//! let bert = list.between(&anna, &dora)?;
//! let carl = list.between(&bert, &dora)?;
//! assert!(people < anna && anna < bert && bert < carl && carl < dora);
//! assert_eq!(carl.parent(), Some(people.clone()));
//!
//! let id = carl.attributes(rules).first()?;
//! let name = carl.children(rules).first()?;
//! assert!(carl < id && id < name && name < dora);
//! assert_eq!(id.owner(), Some(carl.clone()));
//! assert_eq!((people.level(), name.level()), (Level::Node(0), Level::Node(2)));
//! assert_eq!(name.nearest_common_ancestor(&dora), people);
//! assert_eq!([anna, bert, dora].map(|label| label.to_string()), ["1.3", "1.5", "1.7"]);
//! assert_eq!(name.to_string(), "1.6:1.3");
//!
//! // As keys of a tree in the order of their bytes, they are in document order.
//! assert!(carl.as_bytes() < id.as_bytes());
//! assert_eq!(Label::from_bytes(carl.as_bytes()).as_ref(), Ok(&carl));
//! # Ok::<(), tidegate_xml::label::LabelError>(())
//! ```
//!
//! # What has a label
//!
//! - The document node has the empty label, and it is above all levels: [`Level::Document`].
//! - The root element is [`Label::root`]. Comments and processing instructions beside it are its
//!   siblings, so the document's children are a list like any other.
//! - Elements, text, comments and processing instructions are children of their element.
//! - Attributes are children of their element's *attribute root*, a child in front of all others;
//!   in the same way namespace nodes are children of the *namespace root*, which is the very first.
//!   That is the document order of `XPath` 1.0 (section 5), and the attribute root is the node
//!   that `taDOM` locks for all attributes. An attribute is two levels below its element.
//! - A text, attribute or comment whose value needs several records has them as its children.
//!
//! Each of these is one range of keys: [`Label::subtree`], [`Label::children_range`],
//! [`Label::attributes_range`], [`Label::namespaces_range`].
//!
//! # New labels
//!
//! A place among siblings is a number: loaded nodes have whole ones, 1, 3, 5 and so on, and there
//! are negative ones for nodes inserted in front. Between 1 and 2 lie binary fractions, of which
//! `fraction.rs` takes one by a rule that keeps them short. A label depends on its two neighbours
//! and nothing else, and no insertion changes another label. For n insertions
//!
//! - at either end of a list it grows to log₂ n bits,
//! - at one place, always in front of the same node, always behind it, in front of or behind the
//!   node inserted last: to 2·log₂ n + 1 bits,
//! - at random places: to about 1.4·log₂ n bits on average,
//! - on alternating sides of the node inserted last: to n bits, and to 1.5·n bits in the worst
//!   case, which is two on each side in turn. Labels that never change need n bits in the worst
//!   case.
//!
//! Seven bits of a fraction take a byte. A label above the caller's limit is refused with
//! [`LabelError::TooLong`]. A caller that holds the list exclusively can give new labels to it, by
//! [`Siblings::evenly`] or behind the last one, and to the nodes below it by [`Label::moved`]; the
//! document store does the latter (`store/relabel.rs`).
//!
//! # Text form
//!
//! A label prints as a Dewey ID: an odd number for a whole place (2n + 1 for place n), an even one
//! and the digits of the fraction for those between (1.4:1 is between 1.3 and 1.5), `@` for an
//! attribute root and `#` for a namespace root. In a textbook's Dewey IDs an even number is
//! followed by further numbers of the same level in place of digits, and 1 is the attribute root.
//!
//! # Bytes
//!
//! The bytes are described in `division.rs`. A node's bytes are a prefix of its descendants' and of
//! no other node's. A division is one byte long for the places −8 to 63 and at most nine for whole
//! places up to 2^60. Labels are kept in memory as these bytes: up to 22 of them inline, so that a
//! `Label` is as large as a `Vec` and those of most nodes' ancestors need no allocation.

mod bytes;
mod division;
mod fraction;
mod siblings;
#[cfg(test)]
mod tests;

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::iter::FusedIterator;
use std::ops::{Bound, RangeBounds};

use thiserror::Error;

use self::bytes::LabelBytes;
use self::division::{Division, Marker};
pub use self::siblings::{Evenly, LabelRules, Siblings};

/// The label of a node.
///
/// Labels are ordered as their bytes are, which is document order: a node, its namespace nodes, its
/// attributes, its children, each with what is below it.
#[derive(Clone)]
pub struct Label(LabelBytes);

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Label>() == 24);

/// The level of a node. [`Level::Document`] is above [`Level::Node`], and lower in the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// The document node, above the levels that are counted.
    Document,
    /// A node so many levels below the root element, which is on level 0.
    Node(u32),
}

/// What a label says about the kind of its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LabelRole {
    /// The document node.
    Document,
    /// A child of the document or of an element, or a part of a value.
    Child,
    /// The parent of an element's namespace nodes.
    NamespaceRoot,
    /// A namespace node.
    Namespace,
    /// The parent of an element's attributes.
    AttributeRoot,
    /// An attribute.
    Attribute,
}

/// Why there is no new label.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LabelError {
    /// The label would be longer than the rules allow.
    #[error(
        "the new label would have {length} bytes, of which {parent_length} are its parent's, and \
         at most {limit} are allowed: relabel the siblings, or an ancestor's if the parent's label \
         is long already"
    )]
    TooLong {
        /// Its length, in bytes.
        length: usize,
        /// The longest allowed, in bytes.
        limit: usize,
        /// The length of the parent's label, in bytes. It stays if only the siblings get new ones.
        parent_length: usize,
    },
    /// A neighbour is not in the list that the new node is to be inserted into.
    #[error("{label} is not in the list of {parent}: name neighbours from that list")]
    NotASibling {
        /// The neighbour.
        label: Label,
        /// The list's parent.
        parent: Label,
    },
    /// The neighbours are the same node or in the wrong order.
    #[error("{left} is not in front of {right}: name the neighbours in document order")]
    NotInOrder {
        /// The neighbour named as the left one.
        left: Label,
        /// The neighbour named as the right one.
        right: Label,
    },
    /// A label is neither the root of the subtree that is moved nor below it.
    #[error("{label} is not in the subtree of {root}: move only nodes of that subtree")]
    NotInSubtree {
        /// The label to be moved.
        label: Label,
        /// The subtree's root.
        root: Label,
    },
}

/// Why bytes are no label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MalformedLabel {
    /// No division begins with this byte.
    #[error("byte {offset} is {byte:#04x}, which begins no division: this is no label's key")]
    UnknownByte {
        /// Its offset.
        offset: usize,
        /// The byte.
        byte: u8,
    },
    /// The last division is incomplete.
    #[error("the label's last division is incomplete after {length} bytes: the key was cut off")]
    Truncated {
        /// Number of bytes.
        length: usize,
    },
    /// A fraction ends with a byte without digits, so that its number has a shorter code.
    #[error("byte {offset} ends a fraction without a digit: this is no label's key")]
    TrailingZero {
        /// The byte's offset.
        offset: usize,
    },
    /// A position is below the lowest or above the highest one.
    #[error("the position at byte {offset} is out of range: this is no label's key")]
    OutOfRange {
        /// Offset of the position's first byte.
        offset: usize,
    },
}

impl Label {
    /// Returns the label of the document node.
    #[must_use]
    pub const fn document() -> Label {
        Label(LabelBytes::EMPTY)
    }

    /// Returns the label of the root element.
    #[must_use]
    pub const fn root() -> Label {
        Label(LabelBytes::of_byte(division::POSITION_0))
    }

    /// Reads a label from its bytes, which must be all of `bytes`.
    ///
    /// # Errors
    ///
    /// If no label has these bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Label, MalformedLabel> {
        division::check(bytes)?;
        Ok(Label::prefix(bytes))
    }

    /// Reads a label, and returns the length of its parent's bytes as well, 0 for the document.
    pub(crate) fn with_parent_length(bytes: &[u8]) -> Result<(Label, usize), MalformedLabel> {
        let parent = division::check(bytes)?;
        Ok((Label::prefix(bytes), parent))
    }

    /// Returns whether the node is a child, and of the node whose bytes are its first `length`.
    pub(crate) fn is_child_at(&self, length: usize) -> bool {
        let own = self.as_bytes().get(length..);
        own.is_some_and(|own| {
            let is_marker = own.first().is_none_or(|byte| Marker::from_byte(*byte).is_some());
            !is_marker && division::length(own) == own.len()
        })
    }

    /// Returns the bytes: the key whose order is document order.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_slice()
    }

    /// Returns the level.
    #[must_use]
    pub fn level(&self) -> Level {
        let divisions = Ends { bytes: self.as_bytes(), end: 0 }.count();
        match divisions.checked_sub(1) {
            None => Level::Document,
            Some(level) => Level::Node(u32::try_from(level).unwrap_or(u32::MAX)),
        }
    }

    /// Returns what the label says about the kind of its node.
    #[must_use]
    pub fn role(&self) -> LabelRole {
        let marker = |label: &Label| {
            let parent = label.parent_end()?;
            Marker::from_byte(label.as_bytes()[parent])
        };
        if self.as_bytes().is_empty() {
            return LabelRole::Document;
        }
        match (marker(self), self.parent().as_ref().and_then(marker)) {
            (Some(Marker::Namespaces), _) => LabelRole::NamespaceRoot,
            (Some(Marker::Attributes), _) => LabelRole::AttributeRoot,
            (None, Some(Marker::Namespaces)) => LabelRole::Namespace,
            (None, Some(Marker::Attributes)) => LabelRole::Attribute,
            (None, None) => LabelRole::Child,
        }
    }

    /// Returns the parent, or `None` for the document node. The parent of an attribute is the
    /// attribute root; [`Label::owner`] is the element.
    #[must_use]
    pub fn parent(&self) -> Option<Label> {
        self.parent_end().map(|end| Label::prefix(&self.as_bytes()[..end]))
    }

    /// Returns the element that an attribute, a namespace node, one of their roots or a part of an
    /// attribute's value belongs to; `None` for all other nodes.
    #[must_use]
    pub fn owner(&self) -> Option<Label> {
        let bytes = self.as_bytes();
        let (mut begin, mut owner) = (0, None);
        for end in (Ends { bytes, end: 0 }) {
            if Marker::from_byte(bytes[begin]).is_some() {
                owner = Some(begin);
            }
            begin = end;
        }
        owner.map(|end| Label::prefix(&bytes[..end]))
    }

    /// Returns the ancestors from the parent up to the document node. Reversed they are in the
    /// order in which locks are requested.
    #[must_use]
    pub fn ancestors(&self) -> Ancestors<'_> {
        Ancestors { bytes: self.as_bytes(), begin: 0, end: self.as_bytes().len() }
    }

    /// Returns where the labels of the node's ancestors but the document and of the node itself end
    /// within its bytes, outermost first.
    pub(crate) fn ends(&self) -> impl Iterator<Item = usize> {
        Ends { bytes: self.as_bytes(), end: 0 }
    }

    /// Returns the ancestor on `level`, or the node itself if that is its level; `None` if its
    /// level is above that.
    #[must_use]
    pub fn ancestor_at(&self, level: Level) -> Option<Label> {
        let Level::Node(level) = level else {
            return Some(Label::document());
        };
        let bytes = self.as_bytes();
        let end = Ends { bytes, end: 0 }.nth(usize::try_from(level).ok()?)?;
        Some(Label::prefix(&bytes[..end]))
    }

    /// Returns whether `other` is below this node. A node is not its own ancestor.
    #[must_use]
    pub fn is_ancestor_of(&self, other: &Label) -> bool {
        let (own, other) = (self.as_bytes(), other.as_bytes());
        other.len() > own.len() && other.starts_with(own)
    }

    /// Returns the lowest node whose subtree holds both nodes. If one is an ancestor of the other,
    /// or they are the same, it is that one.
    #[must_use]
    pub fn nearest_common_ancestor(&self, other: &Label) -> Label {
        let (own, other) = (self.as_bytes(), other.as_bytes());
        let mut shared = 0;
        for end in (Ends { bytes: own, end: 0 }) {
            if other.get(shared..end) != Some(&own[shared..end]) {
                break;
            }
            shared = end;
        }
        Label::prefix(&own[..shared])
    }

    /// Returns the label of the node's attribute root.
    #[must_use]
    pub fn attribute_root(&self) -> Label {
        self.marker(Marker::Attributes)
    }

    /// Returns the label of the node's namespace root.
    #[must_use]
    pub fn namespace_root(&self) -> Label {
        self.marker(Marker::Namespaces)
    }

    /// Returns the node's children as a source of labels for new ones. The parts of a value that
    /// needs several records are children, too.
    #[must_use]
    pub fn children(&self, rules: LabelRules) -> Siblings {
        Siblings::new(self.clone(), rules)
    }

    /// Returns the node's attributes as a source of labels for new ones.
    #[must_use]
    pub fn attributes(&self, rules: LabelRules) -> Siblings {
        Siblings::new(self.attribute_root(), rules)
    }

    /// Returns the node's namespace nodes as a source of labels for new ones.
    #[must_use]
    pub fn namespaces(&self, rules: LabelRules) -> Siblings {
        Siblings::new(self.namespace_root(), rules)
    }

    /// Returns the label that this node has after the subtree of `from` was moved to `to`, whose
    /// subtree it is in then.
    ///
    /// # Errors
    ///
    /// [`LabelError::TooLong`], and [`LabelError::NotInSubtree`] if the node is neither `from` nor
    /// below it.
    pub fn moved(&self, from: &Label, to: &Label, rules: LabelRules) -> Result<Label, LabelError> {
        let Some(rest) = self.as_bytes().strip_prefix(from.as_bytes()) else {
            return Err(LabelError::NotInSubtree { label: self.clone(), root: from.clone() });
        };
        let moved = Label(LabelBytes::concat(&[to.as_bytes(), rest]));
        let parent = moved.parent().unwrap_or(Label::document());
        rules.check(moved, &parent)
    }

    /// Returns the keys of the node and of all nodes below it. Their end is the key from which a
    /// search finds the next sibling or, if there is none, whatever follows.
    #[must_use]
    pub fn subtree(&self) -> LabelRange {
        LabelRange { start: self.0.clone(), end: self.successor() }
    }

    /// Returns the keys of the node's children and of all nodes below them.
    #[must_use]
    pub fn children_range(&self) -> LabelRange {
        LabelRange { start: self.with_byte(division::PLACE_LEAD_MIN), end: self.successor() }
    }

    /// Returns the keys of the node's attributes, without the attribute root, and of the parts of
    /// their values.
    #[must_use]
    pub fn attributes_range(&self) -> LabelRange {
        self.attribute_root().children_range()
    }

    /// Returns the keys of the node's namespace nodes, without the namespace root.
    #[must_use]
    pub fn namespaces_range(&self) -> LabelRange {
        self.namespace_root().children_range()
    }

    /// Returns the first key after the subtree: the same with the last byte, which is even, one
    /// higher. `None` for the document.
    fn successor(&self) -> Option<LabelBytes> {
        let mut end = self.0.clone();
        *end.last_mut()? |= 1;
        Some(end)
    }

    fn marker(&self, marker: Marker) -> Label {
        Label(self.with_byte(marker.byte()))
    }

    fn with_byte(&self, byte: u8) -> LabelBytes {
        self.0.with_byte(byte)
    }

    /// Wraps bytes that end where a division does.
    fn prefix(bytes: &[u8]) -> Label {
        Label(LabelBytes::from_slice(bytes))
    }

    /// Returns the length of the parent's bytes.
    fn parent_end(&self) -> Option<usize> {
        last_division(self.as_bytes())
    }
}

/// Returns the offset of the last of `bytes`' divisions, or `None` if there is none.
fn last_division(bytes: &[u8]) -> Option<usize> {
    let mut begin = None;
    let mut end = 0;
    for next in (Ends { bytes, end: 0 }) {
        begin = Some(end);
        end = next;
    }
    begin
}

/// Offsets at which the divisions of a valid label end.
struct Ends<'a> {
    bytes: &'a [u8],
    end: usize,
}

impl Iterator for Ends<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let rest = &self.bytes[self.end..];
        if rest.is_empty() {
            return None;
        }
        self.end += division::length(rest);
        Some(self.end)
    }
}

/// The ancestors of a node; see [`Label::ancestors`].
#[derive(Debug, Clone)]
pub struct Ancestors<'a> {
    bytes: &'a [u8],
    /// Length of the next label from the back.
    begin: usize,
    /// Length of the label whose parent is the next from the front.
    end: usize,
}

impl Iterator for Ancestors<'_> {
    type Item = Label;

    fn next(&mut self) -> Option<Label> {
        self.end = self.begin + last_division(&self.bytes[self.begin..self.end])?;
        Some(Label::prefix(&self.bytes[..self.end]))
    }
}

impl DoubleEndedIterator for Ancestors<'_> {
    fn next_back(&mut self) -> Option<Label> {
        let end = self.begin;
        self.begin += Ends { bytes: &self.bytes[end..self.end], end: 0 }.next()?;
        Some(Label::prefix(&self.bytes[..end]))
    }
}

impl FusedIterator for Ancestors<'_> {}

impl PartialEq for Label {
    fn eq(&self, other: &Label) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Label {}

impl PartialOrd for Label {
    fn partial_cmp(&self, other: &Label) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Label {
    fn cmp(&self, other: &Label) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl Hash for Label {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

/// Lets maps from labels be searched by keys and by a [`LabelRange`].
impl Borrow<[u8]> for Label {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl AsRef<[u8]> for Label {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Label({self})")
    }
}

impl fmt::Display for Label {
    /// Writes the label as a Dewey ID, and `document` for the document node.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.as_bytes();
        if bytes.is_empty() {
            return f.write_str("document");
        }
        let mut offset = 0;
        while let Ok((division, end)) = division::parse(bytes, offset) {
            if offset > 0 {
                f.write_str(".")?;
            }
            match division {
                Division::Marker(Marker::Namespaces) => f.write_str("#")?,
                Division::Marker(Marker::Attributes) => f.write_str("@")?,
                Division::Place(place) if place.fraction.is_zero() => {
                    write!(f, "{}", 2 * place.position + 1)?;
                }
                Division::Place(place) => {
                    write!(f, "{}:", 2 * place.position + 2)?;
                    for digit in place.fraction.digits() {
                        f.write_str(if digit { "1" } else { "0" })?;
                    }
                }
            }
            offset = end;
        }
        Ok(())
    }
}

/// A range of keys, from `start` to before `end`.
///
/// It is a [`RangeBounds`] of bytes, so that an ordered map from labels or byte strings takes it.
#[derive(Clone)]
pub struct LabelRange {
    start: LabelBytes,
    end: Option<LabelBytes>,
}

impl LabelRange {
    /// Returns the lowest key, which need not be a label.
    #[must_use]
    pub fn start(&self) -> &[u8] {
        self.start.as_slice()
    }

    /// Returns the key that follows the highest one, which is not a label; `None` if all keys from
    /// the start on are in the range.
    #[must_use]
    pub fn end(&self) -> Option<&[u8]> {
        self.end.as_ref().map(LabelBytes::as_slice)
    }
}

impl fmt::Debug for LabelRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LabelRange")
            .field("start", &self.start())
            .field("end", &self.end())
            .finish()
    }
}

impl RangeBounds<[u8]> for LabelRange {
    fn start_bound(&self) -> Bound<&[u8]> {
        Bound::Included(self.start())
    }

    fn end_bound(&self) -> Bound<&[u8]> {
        self.end().map_or(Bound::Unbounded, Bound::Excluded)
    }
}

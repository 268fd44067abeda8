//! The record of a node: what the tree of a document holds under the node's label.
//!
//! | part | bytes |
//! | --- | --- |
//! | kind, in the lower three bits, and 8 if the attribute identifies its element | 1 |
//! | name in the vocabulary; not for texts and comments | 1 to 5 |
//! | path class | 1 to 5 |
//! | content in UTF-8, to the end; nothing for elements | any number |
//!
//! Numbers have seven bits a byte, the lowest first; all bytes but the last have the highest bit.
//! There is one code for a record: others are refused when they are read.

use thiserror::Error;
use tidegate_runtime::work::{self, Operation};

use super::paths::Pcr;
use super::vocabulary::NameId;
use crate::tree::Kind;

const KIND_BITS: u8 = 0b0111;
const IS_ID: u8 = 0b1000;

/// What a record stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum RecordKind {
    Element,
    Attribute,
    Text,
    Comment,
    ProcessingInstruction,
    /// A declaration of a namespace: no node of [`crate::tree::Tree`].
    Namespace,
}

impl RecordKind {
    pub(super) fn code(self) -> u8 {
        match self {
            RecordKind::Element => 1,
            RecordKind::Attribute => 2,
            RecordKind::Text => 3,
            RecordKind::Comment => 4,
            RecordKind::ProcessingInstruction => 5,
            RecordKind::Namespace => 6,
        }
    }

    pub(super) fn from_code(code: u8) -> Option<RecordKind> {
        Some(match code {
            1 => RecordKind::Element,
            2 => RecordKind::Attribute,
            3 => RecordKind::Text,
            4 => RecordKind::Comment,
            5 => RecordKind::ProcessingInstruction,
            6 => RecordKind::Namespace,
            _ => return None,
        })
    }

    /// Returns the kind of the node; `None` for a declaration.
    pub(super) fn node(self) -> Option<Kind> {
        Some(match self {
            RecordKind::Element => Kind::Element,
            RecordKind::Attribute => Kind::Attribute,
            RecordKind::Text => Kind::Text,
            RecordKind::Comment => Kind::Comment,
            RecordKind::ProcessingInstruction => Kind::ProcessingInstruction,
            RecordKind::Namespace => return None,
        })
    }

    /// Returns the kind that the first byte of a record names.
    pub(super) fn of_first_byte(byte: u8) -> Option<RecordKind> {
        RecordKind::from_code(byte & KIND_BITS)
    }

    fn has_name(self) -> bool {
        !matches!(self, RecordKind::Text | RecordKind::Comment)
    }

    /// Returns whether nodes of this kind have path classes of their own. Others have that of
    /// their parent.
    pub(super) fn has_class(self) -> bool {
        matches!(self, RecordKind::Element | RecordKind::Attribute)
    }
}

/// A record without its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: RecordKind,
    /// Whether an attribute identifies its element.
    pub(super) is_id: bool,
    /// `None` for texts and comments only.
    pub(super) name: Option<NameId>,
    pub(super) pcr: Pcr,
}

/// A node as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) kind: RecordKind,
    /// Whether an attribute identifies its element.
    pub(super) is_id: bool,
    /// `None` for texts and comments only.
    pub(super) name: Option<NameId>,
    pub(super) pcr: Pcr,
    /// Empty for an element; the URI for a declaration of a namespace.
    pub(super) content: String,
}

/// Why bytes are no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MalformedRecord {
    /// The first byte names no kind.
    #[error("its first byte is {0:#04x}, which names no kind of node")]
    Kind(u8),
    /// A number is cut off, too large or longer than it need be.
    #[error("a number in it is cut off, too large or too long")]
    Number,
    /// An element with content.
    #[error("it is of an element and has content")]
    ElementContent,
    /// Content that is not UTF-8.
    #[error("its content is not UTF-8")]
    Encoding,
}

impl Record {
    pub(super) fn encode(&self) -> Vec<u8> {
        work::count(Operation::NodeWrite, 1);
        let mut bytes = Vec::with_capacity(11 + self.content.len());
        bytes.push(self.kind.code() | if self.is_id { IS_ID } else { 0 });
        if let Some(name) = self.name {
            push_number(&mut bytes, name.0);
        }
        push_number(&mut bytes, self.pcr.0);
        bytes.extend_from_slice(self.content.as_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Record, MalformedRecord> {
        let (Head { kind, is_id, name, pcr }, content) = Head::decode_all(bytes)?;
        Ok(Record { kind, is_id, name, pcr, content: content.to_owned() })
    }

    pub(super) fn head(&self) -> Head {
        let Record { kind, is_id, name, pcr, .. } = *self;
        Head { kind, is_id, name, pcr }
    }
}

impl Head {
    /// Reads a record up to its content, of which it returns the bytes.
    pub(super) fn decode(bytes: &[u8]) -> Result<(Head, &[u8]), MalformedRecord> {
        work::count(Operation::NodeRead, 1);
        let (&head, mut rest) = bytes.split_first().ok_or(MalformedRecord::Kind(0))?;
        let is_id = head & IS_ID != 0;
        let kind = RecordKind::of_first_byte(head)
            .filter(|_| head & !(KIND_BITS | IS_ID) == 0)
            .filter(|&kind| !is_id || kind == RecordKind::Attribute)
            .ok_or(MalformedRecord::Kind(head))?;
        let name = kind.has_name().then(|| take_number(&mut rest)).transpose()?.map(NameId);
        let pcr = Pcr(take_number(&mut rest)?);
        if pcr > Pcr::LAST {
            return Err(MalformedRecord::Number);
        }
        if kind == RecordKind::Element && !rest.is_empty() {
            return Err(MalformedRecord::ElementContent);
        }
        Ok((Head { kind, is_id, name, pcr }, rest))
    }

    /// Reads a record with its content.
    pub(super) fn decode_all(bytes: &[u8]) -> Result<(Head, &str), MalformedRecord> {
        let (head, content) = Head::decode(bytes)?;
        Ok((head, str::from_utf8(content).map_err(|_| MalformedRecord::Encoding)?))
    }
}

/// Appends a number.
pub(super) fn push_number(bytes: &mut Vec<u8>, mut number: u32) {
    loop {
        let digits = (number & 0x7f) as u8;
        number >>= 7;
        if number == 0 {
            return bytes.push(digits);
        }
        bytes.push(digits | 0x80);
    }
}

/// Takes a number off the front.
pub(super) fn take_number(bytes: &mut &[u8]) -> Result<u32, MalformedRecord> {
    let mut number = 0_u32;
    for shift in (0..35).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or(MalformedRecord::Number)?;
        *bytes = rest;
        let digits = u32::from(byte & 0x7f);
        if (digits << shift) >> shift != digits || (byte == 0 && shift > 0) {
            return Err(MalformedRecord::Number);
        }
        number |= digits << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(MalformedRecord::Number)
}

/// Appends text with its length in front.
pub(super) fn push_text(bytes: &mut Vec<u8>, text: &str) {
    push_number(bytes, u32::try_from(text.len()).unwrap_or(u32::MAX));
    bytes.extend_from_slice(text.as_bytes());
}

/// Takes text with its length off the front.
pub(super) fn take_text<'a>(bytes: &mut &'a [u8]) -> Result<&'a str, MalformedRecord> {
    let length = take_number(bytes)? as usize;
    let (text, rest) = bytes.split_at_checked(length).ok_or(MalformedRecord::Number)?;
    *bytes = rest;
    str::from_utf8(text).map_err(|_| MalformedRecord::Encoding)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record() -> impl Strategy<Value = Record> {
        (1_u8..7, any::<bool>(), any::<u32>(), 0..=Pcr::LAST.0, ".{0,40}").prop_map(
            |(code, is_id, name, pcr, content)| {
                let kind = RecordKind::from_code(code).expect("six codes are kinds");
                let content = if kind == RecordKind::Element { String::new() } else { content };
                let is_id = is_id && kind == RecordKind::Attribute;
                let name = kind.has_name().then_some(NameId(name));
                Record { kind, is_id, name, pcr: Pcr(pcr), content }
            },
        )
    }

    proptest! {
        #[test]
        fn a_record_is_read_as_it_was_written(record in record()) {
            prop_assert_eq!(Record::decode(&record.encode()), Ok(record));
        }

        #[test]
        fn bytes_are_the_only_code_of_a_record_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..16),
        ) {
            if let Ok(record) = Record::decode(&bytes) {
                prop_assert_eq!(record.encode(), bytes);
            }
        }
    }

    #[test]
    fn malformed_records_say_why() {
        let refused = |bytes: &[u8]| Record::decode(bytes).unwrap_err();
        assert_eq!(refused(&[]), MalformedRecord::Kind(0));
        assert_eq!(refused(&[7, 1, 1]), MalformedRecord::Kind(7));
        assert_eq!(refused(&[9, 1, 1]), MalformedRecord::Kind(9));
        assert_eq!(refused(&[3, 0x80]), MalformedRecord::Number);
        assert_eq!(refused(&[3, 0x81, 0]), MalformedRecord::Number);
        assert_eq!(refused(&[3, 255, 255, 255, 255, 0x1f]), MalformedRecord::Number);
        assert_eq!(refused(&[1, 1, 1, b'a']), MalformedRecord::ElementContent);
        assert_eq!(refused(&[3, 1, 0xff]), MalformedRecord::Encoding);
    }
}

//! The byte code of one division: the part of a label that stands for one level.
//!
//! A division is a marker (the root of an element's attributes or namespaces, one byte) or a place
//! among siblings: a whole position and, if it lies between two positions, a fraction.
//!
//! The first byte says how long the position is:
//!
//! | first byte | division | positions | bytes |
//! | --- | --- | --- | ---: |
//! | `02` | root of the namespaces | | 1 |
//! | `04` | root of the attributes | | 1 |
//! | `08`–`0C` | place | −2^60 and up | 9, 8, 7, 6, 5 |
//! | `0D`–`0E` | place | −16,942,600 and up | 4 |
//! | `0F`–`13` | place | −165,384 and up | 3 |
//! | `14`–`1F` | place | −1,544 and up | 2 |
//! | `20`–`2F` | place | −8 to −1 | 1 |
//! | `30`–`AF` | place | 0 to 63 | 1 |
//! | `B0`–`D7` | place | to 5,183 | 2 |
//! | `D8`–`F3` | place | to 922,687 | 3 |
//! | `F4`–`F9` | place | to 51,254,335 | 4 |
//! | `FA`–`FE` | place | to 2^60 | 5, 6, 7, 8, 9 |
//!
//! All others are refused; `00` and `FF` never begin a label. A place's bytes are a big-endian
//! number, twice the position counted from the lowest of its row, plus 1 if a fraction follows. A
//! fraction is a sequence of bytes with seven bits in each above a lowest bit that is 1 in all but
//! the last. So the lowest bit of a byte says "the division goes on" wherever a division may end:
//! the last byte of a label is even, and one more is the end of its subtree.

use super::MalformedLabel;
use super::fraction::Fraction;

/// The lowest position. It has places above it, by fractions, but is none itself: so there is
/// always a place in front.
pub(super) const POSITION_MIN: i64 = -(1 << 60);
/// The highest position.
pub(super) const POSITION_MAX: i64 = 1 << 60;
/// Bytes of the longest position.
const HEAD_MAX: usize = 9;

/// The first byte of the lowest place, above those of both markers.
pub(super) const PLACE_LEAD_MIN: u8 = 0x08;
/// The byte of position 0, which the root element has.
pub(super) const POSITION_0: u8 = 0x30;

/// A child that stands for a list apart from the children, before them in document order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Marker {
    /// The parent of an element's namespace nodes.
    Namespaces = 0x02,
    /// The parent of an element's attributes.
    Attributes = 0x04,
}

impl Marker {
    /// Returns the marker's code, which is one byte.
    pub(super) const fn byte(self) -> u8 {
        self as u8
    }

    /// Returns the marker that `byte` stands for.
    pub(super) const fn from_byte(byte: u8) -> Option<Marker> {
        match byte {
            0x02 => Some(Marker::Namespaces),
            0x04 => Some(Marker::Attributes),
            _ => None,
        }
    }
}

/// A place among siblings: `position` plus `fraction`, which is at least 0 and below 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place<'a> {
    /// The whole part.
    pub(super) position: i64,
    /// The rest.
    pub(super) fraction: Fraction<'a>,
}

/// One level's part of a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Division<'a> {
    /// The root of the attributes or of the namespaces.
    Marker(Marker),
    /// A place among siblings.
    Place(Place<'a>),
}

/// Positions that have codes of the same length and follow each other.
#[derive(Clone, Copy)]
struct Class {
    /// First byte of the lowest position.
    lead: u8,
    /// Bytes of a position.
    length: usize,
    /// Lowest position.
    lowest: i64,
    /// Number of positions.
    positions: i64,
}

/// Bytes of a position and number of first bytes, for each class in ascending order.
const LAYOUT: [(usize, u8); 18] = [
    (9, 1),
    (8, 1),
    (7, 1),
    (6, 1),
    (5, 1),
    (4, 2),
    (3, 5),
    (2, 12),
    (1, 16),
    (1, 128),
    (2, 40),
    (3, 28),
    (4, 6),
    (5, 1),
    (6, 1),
    (7, 1),
    (8, 1),
    (9, 1),
];
static CLASSES: [Class; LAYOUT.len()] = classes();
/// For each first byte the index of its class, or [`NO_CLASS`].
static CLASS_OF: [u8; 256] = class_of();
const NO_CLASS: u8 = u8::MAX;

/// Returns the number of positions of a class that is not the first or the last: half the codes,
/// as each has one with and one without a fraction.
const fn positions(class: usize) -> i64 {
    let (length, leads) = LAYOUT[class];
    ((leads as i64) << (8 * (length - 1))) / 2
}

const fn classes() -> [Class; LAYOUT.len()] {
    const HALF: usize = LAYOUT.len() / 2;
    let (mut below_0, mut from_0) = (0, 0);
    let mut index = 1;
    while index < HALF {
        below_0 += positions(index);
        from_0 += positions(LAYOUT.len() - 1 - index);
        index += 1;
    }
    let mut classes = [Class { lead: 0, length: 0, lowest: 0, positions: 0 }; LAYOUT.len()];
    let (mut lead, mut lowest) = (PLACE_LEAD_MIN, POSITION_MIN);
    let mut index = 0;
    while index < LAYOUT.len() {
        let positions = match index {
            0 => -POSITION_MIN - below_0,
            HALF => positions(HALF),
            _ if index == LAYOUT.len() - 1 => POSITION_MAX + 1 - from_0,
            _ => positions(index),
        };
        let (length, leads) = LAYOUT[index];
        classes[index] = Class { lead, length, lowest, positions };
        lead += leads;
        lowest += positions;
        index += 1;
    }
    assert!(lead == 0xFF && lowest == POSITION_MAX + 1);
    assert!(classes[HALF].lead == POSITION_0 && classes[HALF].lowest == 0);
    classes
}

#[expect(clippy::cast_possible_truncation, reason = "there are fewer than 256 classes")]
const fn class_of() -> [u8; 256] {
    let mut class_of = [NO_CLASS; 256];
    let mut index = 0;
    while index < LAYOUT.len() {
        let lead = CLASSES[index].lead as usize;
        let mut byte = lead;
        while byte < lead + LAYOUT[index].1 as usize {
            class_of[byte] = index as u8;
            byte += 1;
        }
        index += 1;
    }
    class_of
}

/// The encoded position of a place.
pub(super) struct Head {
    bytes: [u8; HEAD_MAX],
    length: usize,
}

impl Head {
    /// Encodes `position`, which is from [`POSITION_MIN`] to [`POSITION_MAX`]; `goes_on` says that
    /// a fraction follows.
    pub(super) fn new(position: i64, goes_on: bool) -> Head {
        let class = &CLASSES[CLASSES.partition_point(|class| class.lowest <= position) - 1];
        let code = u128::from((position - class.lowest).unsigned_abs()) << 1 | u128::from(goes_on);
        let code = code + (u128::from(class.lead) << (8 * (class.length - 1)));
        let mut bytes = [0; HEAD_MAX];
        let all = code.to_be_bytes();
        bytes[..class.length].copy_from_slice(&all[all.len() - class.length..]);
        Head { bytes, length: class.length }
    }

    /// Returns the encoded position.
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// For each first byte the number of bytes of a position, if all codes of that length are positions
/// but the lowest; else 0.
static PLAIN: [u8; 256] = plain();

#[expect(clippy::cast_possible_truncation, reason = "a position has at most 9 bytes")]
const fn plain() -> [u8; 256] {
    let mut plain = [0; 256];
    let mut byte = 0;
    while byte < plain.len() {
        let class = CLASS_OF[byte];
        // The first and the last class have codes beyond the bounds.
        if class != NO_CLASS && class != 0 && (class as usize) < LAYOUT.len() - 1 {
            plain[byte] = LAYOUT[class as usize].0 as u8;
        }
        byte += 1;
    }
    plain
}

/// Returns the end of a place without a fraction that begins at `offset`, if it is one that
/// [`parse`] accepts as a matter of course, as nearly all are.
fn plain_end(bytes: &[u8], offset: usize) -> Option<usize> {
    let length = usize::from(PLAIN[usize::from(*bytes.get(offset)?)]);
    let end = offset + length;
    (length > 0 && bytes.get(end - 1)? & 1 == 0).then_some(end)
}

/// Checks that bytes are divisions, and returns where the last of them begins.
///
/// # Errors
/// As [`parse`].
pub(super) fn check(bytes: &[u8]) -> Result<usize, MalformedLabel> {
    let (mut begin, mut end) = (0, 0);
    while end < bytes.len() {
        begin = end;
        end = match plain_end(bytes, begin) {
            Some(end) => end,
            None => parse(bytes, begin)?.1,
        };
    }
    Ok(begin)
}

/// Returns the number of bytes of the first division of `bytes`, which is not empty and begins with
/// a division that [`parse`] accepts.
pub(super) fn length(bytes: &[u8]) -> usize {
    let class = CLASS_OF[usize::from(bytes[0])];
    let mut end = CLASSES.get(usize::from(class)).map_or(1, |class| class.length);
    while bytes[end - 1] & 1 == 1 {
        end += 1;
    }
    end
}

/// Reads the division that begins at `offset` and returns it with the offset of its end.
///
/// # Errors
///
/// If no division is encoded like this.
pub(super) fn parse(bytes: &[u8], offset: usize) -> Result<(Division<'_>, usize), MalformedLabel> {
    let Some(&lead) = bytes.get(offset) else {
        return Err(MalformedLabel::Truncated { length: bytes.len() });
    };
    if let Some(marker) = Marker::from_byte(lead) {
        return Ok((Division::Marker(marker), offset + 1));
    }
    let Some(class) = CLASSES.get(usize::from(CLASS_OF[usize::from(lead)])) else {
        return Err(MalformedLabel::UnknownByte { offset, byte: lead });
    };
    let truncated = MalformedLabel::Truncated { length: bytes.len() };
    let head_end = offset + class.length;
    let head = bytes.get(offset..head_end).ok_or(truncated)?;
    let code = head.iter().fold(0_u128, |code, byte| code << 8 | u128::from(*byte));
    let code = code - (u128::from(class.lead) << (8 * (class.length - 1)));
    let goes_on = code & 1 == 1;
    let position = match i64::try_from(code >> 1) {
        Ok(index) if index < class.positions => class.lowest + index,
        _ => return Err(MalformedLabel::OutOfRange { offset }),
    };
    if position == POSITION_MIN && !goes_on {
        return Err(MalformedLabel::OutOfRange { offset });
    }
    let mut end = head_end;
    if goes_on {
        let last = bytes[head_end..].iter().position(|byte| byte & 1 == 0).ok_or(truncated)?;
        end = head_end + last + 1;
        if bytes[end - 1] == 0 {
            return Err(MalformedLabel::TrailingZero { offset: end - 1 });
        }
    }
    let fraction = Fraction::from_valid(&bytes[head_end..end]);
    Ok((Division::Place(Place { position, fraction }), end))
}

/// Returns the position from `low` to `high` that is to be taken first: the middle of those with
/// the shortest code. `None` if `low` is above `high`.
pub(super) fn middle(low: i64, high: i64) -> Option<i64> {
    let shared = |class: &Class| {
        let (low, high) = (low.max(class.lowest), high.min(class.lowest + class.positions - 1));
        (low <= high).then_some((class.length, low, high))
    };
    let (_, low, high) = CLASSES
        .iter()
        .filter_map(shared)
        .min_by_key(|&(length, low, high)| (length, low - high))?;
    Some(low + (high - low) / 2)
}

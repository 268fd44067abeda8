//! The keys and values of entries.
//!
//! | index | key | value |
//! | --- | --- | --- |
//! | name | number of the name, label | class |
//! | path | class, label | |
//! | content | content, label | class |
//! | CAS | class, content, label | |
//!
//! Numbers of names and classes have four bytes, the highest first. A class is twice the path class
//! reference, plus 1 for a text.
//!
//! Content that is read as a number has eight bytes in the order of numbers. Text is followed by a
//! zero byte, which XML does not allow in it. One that is longer than the index's bound is cut
//! seven bytes before the bound and followed by a byte 1 and seven bytes of a hash: two different
//! texts may have the same code then, so the content of the node decides.

use std::ops::Bound;

use super::definition::ValueType;
use crate::tree::Relation;
use crate::xpath::number_of;

/// Bytes of the hash of a text that is cut.
const HASH: usize = 7;

/// The lowest bound of texts, and the one that is taken if keys can be long enough.
pub(super) const TEXT_MIN: usize = HASH;
pub(super) const TEXT_MAX: usize = 64;

/// Bytes of a name's number or a class.
pub(super) const CLASS: usize = 4;

/// Most bytes of a key beside the label and the text.
pub(super) const BESIDE: usize = CLASS + 1;

/// The codes of numbers are no longer than those of texts.
const _: () = assert!(TEXT_MIN + 1 == size_of::<f64>());

const WHOLE: u8 = 0;
const CUT: u8 = 1;

/// Appends the code of a content. Returns whether it has one: what is no number has none.
pub(super) fn push_content(
    key: &mut Vec<u8>,
    value: ValueType,
    content: &str,
    text_max: usize,
) -> bool {
    match value {
        ValueType::Number => {
            let number = number_of(content);
            if !number.is_nan() {
                key.extend(number_code(number));
            }
            !number.is_nan()
        }
        ValueType::Text => {
            push_text(key, content, text_max);
            true
        }
    }
}

/// Appends the code of a text. Returns whether it is cut.
pub(super) fn push_text(key: &mut Vec<u8>, text: &str, text_max: usize) -> bool {
    let bytes = text.as_bytes();
    if bytes.len() <= text_max {
        key.extend_from_slice(bytes);
        key.push(WHOLE);
        return false;
    }
    key.extend_from_slice(&bytes[..text_max - HASH]);
    key.push(CUT);
    key.extend_from_slice(&hash(bytes).to_be_bytes()[..HASH]);
    true
}

/// FNV-1a: it is stored, so it must never change.
fn hash(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// Returns bytes in the order of numbers. Both zeros are the same number.
fn number_code(number: f64) -> [u8; 8] {
    let bits = if number == 0.0 { 0 } else { number.to_bits() };
    let is_negative = bits >> 63 == 1;
    (if is_negative { !bits } else { bits | (1 << 63) }).to_be_bytes()
}

/// A range of keys.
pub(super) type KeyRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Returns the keys that begin with `prefix` and a number in this relation to `number`, which is
/// not NaN.
pub(super) fn numbers(prefix: &[u8], relation: Relation, number: f64) -> KeyRange {
    let code = [prefix, &number_code(number)[..]].concat();
    // No key is as short as `code`: a label follows.
    let low = Bound::Included(prefix.to_vec());
    match relation {
        Relation::Equal => (Bound::Included(code.clone()), behind(&code)),
        Relation::Less => (low, Bound::Excluded(code)),
        Relation::LessOrEqual => (low, behind(&code)),
        Relation::Greater => (from_behind(&code), behind(prefix)),
        Relation::GreaterOrEqual => (Bound::Included(code), behind(prefix)),
    }
}

/// Returns the keys that begin with `prefix`.
pub(super) fn beginning_with(prefix: Vec<u8>) -> KeyRange {
    let high = behind(&prefix);
    (Bound::Included(prefix), high)
}

/// Returns the end of the keys that begin with `prefix`.
pub(super) fn behind(prefix: &[u8]) -> Bound<Vec<u8>> {
    successor(prefix).map_or(Bound::Unbounded, Bound::Excluded)
}

fn from_behind(prefix: &[u8]) -> Bound<Vec<u8>> {
    let next = successor(prefix);
    // 0xff in all eight bytes of a number is a NaN, which has no code.
    next.map_or_else(|| unreachable!("the code of a number has a successor"), Bound::Included)
}

/// Returns the lowest key above all that begin with `prefix`.
fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// Returns where the label begins in a key whose content begins at `from`.
pub(super) fn behind_content(key: &[u8], from: usize, value: ValueType) -> Option<usize> {
    let end = match value {
        ValueType::Number => from + size_of::<f64>(),
        ValueType::Text => {
            let ends = key.get(from..)?.iter().position(|byte| *byte <= CUT)? + from;
            ends + 1 + if key[ends] == CUT { HASH } else { 0 }
        }
    };
    (end <= key.len()).then_some(end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn codes_of_numbers_are_in_their_order(one in any::<f64>(), other in any::<f64>()) {
            prop_assume!(!one.is_nan() && !other.is_nan());
            let codes = number_code(one).cmp(&number_code(other));
            prop_assert_eq!(Some(codes), one.partial_cmp(&other));
        }

        #[test]
        fn the_label_is_found_behind_any_text(text in "[^\0-\x08]{0,90}", bound in 7_usize..65) {
            let mut key = b"code".to_vec();
            push_text(&mut key, &text, bound);
            prop_assert!(key.len() <= 4 + bound + 1);
            let end = key.len();
            key.extend(b"\x01label");
            prop_assert_eq!(behind_content(&key, 4, ValueType::Text), Some(end));
        }
    }

    #[test]
    fn the_zeros_and_infinities_have_their_places() {
        assert_eq!(number_code(0.0), number_code(-0.0));
        let ascending = [f64::NEG_INFINITY, f64::MIN, -1.0, 0.0, 5e-324, 1.0, f64::INFINITY];
        assert!(ascending.map(number_code).is_sorted());
    }
}

//! Values and their conversions (`XPath` 1.0, sections 3.4, 3.5 and 4).

use crate::tree::Binding;

/// A node that an expression finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item<N> {
    /// A node of the tree.
    Node(N),
    /// A namespace node: a namespace in scope of an element, which is its parent. Two elements
    /// have different namespace nodes for the same namespace.
    Namespace {
        /// The element.
        element: N,
        /// The namespace with its prefix.
        binding: Binding,
    },
}

/// The value of an expression or a variable.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<N> {
    /// A node-set. As a result it is in document order and without duplicates; as a variable it may
    /// be in any order.
    Nodes(Vec<Item<N>>),
    /// A boolean.
    Boolean(bool),
    /// A number.
    Number(f64),
    /// A string.
    String(String),
}

/// White space as XML means it; other Unicode spaces are none.
pub(crate) fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

/// Length of the number at the start: `Digits ('.' Digits?)? | '.' Digits`; 0 if there is none.
pub(crate) fn number_length(text: &str) -> usize {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let whole = digits(text);
    match text[whole..].strip_prefix('.').map(digits) {
        Some(fraction) if whole + fraction > 0 => whole + 1 + fraction,
        _ => whole,
    }
}

/// Converts a string to a number: white space, a sign and a `Number` of the grammar, else NaN.
pub(crate) fn number_of(text: &str) -> f64 {
    let text = text.trim_matches(is_space);
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || number_length(digits) != digits.len() {
        return f64::NAN;
    }
    text.parse().unwrap_or(f64::NAN)
}

/// Converts a number to a string (section 4.2): the fewest digits that tell it from every other
/// number, never with an exponent, and no sign for zero.
#[must_use]
pub fn string_of(number: f64) -> String {
    if number == 0.0 {
        "0".to_owned()
    } else if number.is_infinite() {
        (if number > 0.0 { "Infinity" } else { "-Infinity" }).to_owned()
    } else {
        number.to_string()
    }
}

/// Converts a boolean to a number.
pub(crate) fn number_of_boolean(boolean: bool) -> f64 {
    f64::from(u8::from(boolean))
}

/// Rounds to the nearest whole number, halves up. What rounds to zero from below is -0.
pub(crate) fn round(number: f64) -> f64 {
    let below = number.floor();
    // Not `(number + 0.5).floor()`: the sum itself rounds, and 0.49999999999999994 would become 1.
    let rounded = if number - below >= 0.5 { below + 1.0 } else { below };
    if rounded == 0.0 { rounded.copysign(number) } else { rounded }
}

/// The characters whose position is at least `round(from)` and, if there is a length, less than
/// `round(from) + round(length)`. Comparisons with NaN are false, so a NaN gives nothing.
pub(crate) fn substring(text: &str, from: f64, length: Option<f64>) -> String {
    let from = round(from);
    let end = length.map_or(f64::INFINITY, |length| from + round(length));
    let mut position = 0.0;
    let inside = |_: &char| {
        position += 1.0;
        position >= from && (length.is_none() || position < end)
    };
    text.chars().filter(inside).collect()
}

/// Removes white space at both ends and replaces every other run of it by one space.
pub(crate) fn normalize_space(text: &str) -> String {
    let words: Vec<&str> = text.split(is_space).filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

/// Replaces each character of `from` by the one at the same place in `to`, or removes it if there
/// is none; the first of several equal characters of `from` counts.
pub(crate) fn translate(text: &str, from: &str, to: &str) -> String {
    let mut map = std::collections::HashMap::new();
    let mut replacements = to.chars();
    for c in from.chars() {
        let replacement = replacements.next();
        map.entry(c).or_insert(replacement);
    }
    text.chars().filter_map(|c| map.get(&c).copied().unwrap_or(Some(c))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_without_exponent_and_read_only_in_the_grammar() {
        assert_eq!(string_of(-0.0), "0");
        assert_eq!(string_of(f64::NAN), "NaN");
        assert_eq!(string_of(f64::NEG_INFINITY), "-Infinity");
        assert_eq!(string_of(1e21), "1000000000000000000000");
        assert_eq!(string_of(1e-7), "0.0000001");
        assert_eq!(string_of(0.1 + 0.2), "0.30000000000000004");
        for text in ["", "-", ".", "+1", "1e3", "0x1", "1 2", "--1", "- 1", "inf", "NaN", "\u{a0}1"]
        {
            assert!(number_of(text).is_nan(), "{text:?}");
        }
        for (text, number) in [(" -1.5\n", -1.5), ("1.", 1.0), (".5", 0.5), ("-.5", -0.5)] {
            assert_eq!(number_of(text).to_bits(), f64::to_bits(number), "{text:?}");
        }
    }

    #[test]
    fn halves_round_up_and_zero_keeps_its_sign() {
        let cases = [
            (0.5, 1.0),
            (-0.5, -0.0),
            (-0.2, -0.0),
            (-0.0, -0.0),
            (2.5, 3.0),
            (-2.5, -2.0),
            (0.499_999_999_999_999_94, 0.0),
            (4_503_599_627_370_497.0, 4_503_599_627_370_497.0),
            (f64::INFINITY, f64::INFINITY),
            (f64::NEG_INFINITY, f64::NEG_INFINITY),
        ];
        for (number, rounded) in cases {
            assert_eq!(round(number).to_bits(), f64::to_bits(rounded), "{number}");
        }
        assert!(round(f64::NAN).is_nan());
    }

    #[test]
    fn substring_gives_the_examples_of_the_recommendation() {
        let inf = f64::INFINITY;
        let cases = [
            (1.5, Some(2.6), "234"),
            (0.0, Some(3.0), "12"),
            (f64::NAN, Some(3.0), ""),
            (1.0, Some(f64::NAN), ""),
            (-42.0, Some(inf), "12345"),
            (-inf, Some(inf), ""),
            (-inf, None, "12345"),
            (2.0, None, "2345"),
        ];
        for (from, length, expected) in cases {
            assert_eq!(substring("12345", from, length), expected, "{from} {length:?}");
        }
    }
}

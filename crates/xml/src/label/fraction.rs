//! Fractions, and which of those between two others is to be taken.
//!
//! A fraction is a number from 0 to below 1 with finitely many binary digits. All of them are
//! valid; what matters is which one an insertion takes. The rule here is a search tree without a
//! bottom over all fractions above 0, of which an insertion takes the topmost that lies between the
//! neighbours.
//!
//! The tree is made of *spines*. A spine begins at one end of an interval and steps towards the
//! other: for (0, 1) its fractions are
//!
//! ```text
//! 1/2 | 5/8 3/4 | 25/32 13/16 27/32 7/8 | 113/128 …
//! ```
//!
//! in groups of 1, 2, 4, 8, …: group g begins at 1 − 2^−g and takes half of what is left, so each
//! of its 2^g steps is 2^−(2g+1) wide. Insertions that are all at the far end of the interval walk
//! along the spine, and the n-th takes 2·⌊log₂ n⌋ + 1 digits. The interval between two steps of a
//! spine has a spine of its own, which steps the other way, from the upper to the lower end:
//! insertions that are all directly behind the same node walk along that one. Each change of the
//! side begins a new spine, whose first step takes one digit. So n insertions on alternating sides
//! take n digits. Labels that never change cannot do better in the worst case: each insertion can
//! be made into the half of the gap that has fewer labels left (Cohen, Kaplan and Milo, PODS 2002).
//!
//! The tree is that of the surreal numbers, with runs of the same sign written in Elias' gamma
//! code.

/// A fraction in its encoded form: seven digits in a byte, of which the lowest bit says whether
/// another byte follows; no byte at all for 0, and digits in the last byte otherwise.
///
/// The order of the bytes is that of the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Fraction<'a>(&'a [u8]);

/// Binary digits in a byte.
const DIGITS: usize = 7;

impl<'a> Fraction<'a> {
    /// The number 0.
    pub(super) const ZERO: Fraction<'static> = Fraction(&[]);

    /// Wraps bytes that were checked.
    pub(super) const fn from_valid(bytes: &'a [u8]) -> Fraction<'a> {
        Fraction(bytes)
    }

    /// Returns whether this is 0.
    pub(super) const fn is_zero(self) -> bool {
        self.0.is_empty()
    }

    /// Returns the binary digit with the value 2^−(`index` + 1).
    fn digit(self, index: usize) -> bool {
        self.0.get(index / DIGITS).is_some_and(|byte| byte >> (DIGITS - index % DIGITS) & 1 == 1)
    }

    /// Returns the index of the last digit that is 1; `None` for 0.
    fn last_one(self) -> Option<usize> {
        let last = self.0.len().checked_sub(1)?;
        let unused = (self.0[last] >> 1).trailing_zeros() as usize;
        Some(last * DIGITS + DIGITS - 1 - unused)
    }

    /// Returns the binary digits up to the last 1.
    pub(super) fn digits(self) -> impl Iterator<Item = bool> + 'a {
        (0..self.last_one().map_or(0, |last| last + 1)).map(move |index| self.digit(index))
    }
}

/// The infinite digits of a number, minus an infinitely small one: those of 1/2 are 0111….
struct Below<'a> {
    fraction: Fraction<'a>,
    /// `None` for the number 1, of which every digit is 1.
    last_one: Option<usize>,
}

impl Below<'_> {
    fn digit(&self, index: usize) -> bool {
        self.last_one
            .is_none_or(|last| if index < last { self.fraction.digit(index) } else { index > last })
    }
}

/// Returns the encoded fraction to be taken between `low` and `high`, or 1 if `high` is 0. `low`
/// must be below `high`.
pub(super) fn between(low: Fraction<'_>, high: Fraction<'_>) -> Vec<u8> {
    let high = Below { fraction: high, last_one: high.last_one() };
    // `low` and what is just below `high` share the digits before `start`, and these are an
    // interval of the tree. Its spine steps up or down.
    let (mut start, mut up) = (0, true);
    loop {
        // The step of the spine that `low` lies in, or that ends just below `high`: as many digits
        // as the group's number, one that differs, and as many that count within the group.
        let mut group = 0;
        while if up { low.digit(start + group) } else { !high.digit(start + group) } {
            group += 1;
        }
        let end = start + 2 * group + 1;
        if (start..end).any(|index| low.digit(index) != high.digit(index)) {
            // They lie in different steps: the border next to `low`, or next to `high`, is between.
            return if up { round_up(low, end) } else { encode(|index| high.digit(index), end) };
        }
        start = end;
        up = !up;
    }
}

/// Returns the lowest number above `low` that has `length` digits. One of these digits is 0.
fn round_up(low: Fraction<'_>, length: usize) -> Vec<u8> {
    let last_zero = (0..length).rfind(|&index| !low.digit(index)).unwrap_or(0);
    encode(|index| index == last_zero || low.digit(index), last_zero + 1)
}

/// Encodes the first `length` digits, one of which is 1.
fn encode(digit: impl Fn(usize) -> bool, length: usize) -> Vec<u8> {
    let last_one = (0..length).rfind(|&index| digit(index)).unwrap_or(0);
    let byte = |at: usize| {
        let digits =
            (at * DIGITS..(at + 1) * DIGITS).map(|index| index <= last_one && digit(index));
        let digits = digits.fold(0, |digits, one| digits << 1 | u8::from(one));
        digits << 1 | u8::from(at < last_one / DIGITS)
    };
    (0..=last_one / DIGITS).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::{DIGITS, Fraction, between, encode};

    /// Encodes `numerator` / 2^`digits`.
    fn fraction(numerator: u32, digits: usize) -> Vec<u8> {
        if numerator == 0 {
            return Vec::new();
        }
        encode(|index| numerator >> (digits - 1 - index) & 1 == 1, digits)
    }

    fn value(bytes: &[u8]) -> f64 {
        let weight = |index: usize| 0.5_f64.powi(i32::try_from(index).unwrap() + 1);
        let digits = Fraction(bytes).digits().enumerate();
        digits.map(|(index, one)| if one { weight(index) } else { 0.0 }).sum()
    }

    #[test]
    fn the_spine_is_that_of_the_chapter() {
        let mut last = Vec::new();
        for expected in [16.0, 20.0, 24.0, 25.0, 26.0, 27.0, 28.0, 28.25] {
            last = between(Fraction(&last), Fraction::ZERO);
            assert!((value(&last) * 32.0 - expected).abs() < 1e-9, "{}", value(&last) * 32.0);
        }
        let mut first = Vec::new();
        for expected in [16.0, 8.0, 6.0, 4.0, 3.5, 3.0] {
            first = between(Fraction::ZERO, Fraction(&first));
            assert!((value(&first) * 32.0 - expected).abs() < 1e-9, "{}", value(&first) * 32.0);
        }
    }

    #[test]
    fn of_all_small_pairs_the_topmost_of_one_tree_is_taken() {
        const N: u32 = 5;
        let all: Vec<_> = (0..1 << N).map(|numerator| fraction(numerator, N as usize)).collect();
        assert!(all.is_sorted());
        let get = |index: usize| all.get(index).map_or(Fraction::ZERO, |bytes| Fraction(bytes));
        for low in 0..all.len() {
            for high in low + 1..=all.len() {
                let taken = between(get(low), get(high));
                let (bytes, end) = (&taken[..], &taken[taken.len() - 1]);
                assert!(
                    bytes > &all[low][..] && all.get(high).is_none_or(|high| bytes < &high[..])
                );
                assert!(
                    *end != 0
                        && end & 1 == 0
                        && taken[..taken.len() - 1].iter().all(|b| b & 1 == 1)
                );
                // Nearer neighbours on both sides of it change nothing.
                for low in (low..high).filter(|&low| all[low] < taken) {
                    for high in
                        (low + 1..=high).filter(|&high| all.get(high).is_none_or(|h| *h > taken))
                    {
                        assert_eq!(between(get(low), get(high)), taken);
                    }
                }
            }
        }
    }

    #[test]
    fn alternating_sides_take_a_bit_each() {
        let (mut low, mut high) = (Vec::new(), Vec::new());
        for inserted in 0..1_000 {
            let taken = between(Fraction(&low), Fraction(&high));
            assert_eq!(taken.len(), inserted / DIGITS + 1);
            if inserted.is_multiple_of(2) { high = taken } else { low = taken }
        }
    }
}

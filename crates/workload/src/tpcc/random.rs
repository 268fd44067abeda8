//! The specification's draws: non-uniform numbers and last names.
//!
//! `NURand(A, x, y)` of clause 2.1.6 joins a number of `0..=A` with one of `x..=y` bit by bit,
//! which prefers numbers with many ones, and moves the result by a constant C round the range. So
//! some rows are hot: of 1,000 last names (A = 255) 23 take a quarter of the draws and 86 a half.
//!
//! C is drawn once for each field, and all terminals share it. For last names it must lie at a
//! certain distance from the C that the database was loaded with (clause 2.1.6.1): 65 to 119, but
//! neither 96 nor 112.
//!
//! In a reduced database A is halved until it is at most half of the range, as it is in the
//! specification's; a larger one would prefer hardly any row to another.

use crate::Random;

use super::scale::Scale;

/// A for each field, by clause 2.1.6.
const LAST_NAME: i32 = 255;
const CUSTOMER: i32 = 1_023;
const ITEM: i32 = 8_191;

/// The constant for last names when the database is loaded.
const LOADED: i32 = 123;

/// The sequence that the constants of a run are drawn from; clients have those from 0 on.
const CONSTANTS: u64 = u64::MAX;

const SYLLABLES: [&str; 10] =
    ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];

const LETTERS_AND_DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const DIGITS: &[u8] = b"0123456789";

/// The constants C, one for each field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Constants {
    last_name: i32,
    customer: i32,
    item: i32,
}

impl Constants {
    /// Those the database is loaded with, which needs one of them.
    pub(super) const LOAD: Constants = Constants { last_name: LOADED, customer: 0, item: 0 };

    /// Those of the run with this seed.
    pub(super) fn of_run(seed: u64) -> Self {
        let mut draw = Random::new(seed, CONSTANTS);
        let mut last_name = draw.between(0, LAST_NAME);
        while !is_far_enough(last_name) {
            last_name = draw.between(0, LAST_NAME);
        }
        Constants { last_name, customer: draw.between(0, CUSTOMER), item: draw.between(0, ITEM) }
    }

    /// The number of a last name, from 0.
    pub(super) fn last_name(self, scale: Scale, draw: &mut Random) -> i32 {
        nurand(draw, LAST_NAME, self.last_name, 0, scale.last_names() - 1)
    }

    /// The number of a customer, from 1.
    pub(super) fn customer(self, scale: Scale, draw: &mut Random) -> i32 {
        nurand(draw, CUSTOMER, self.customer, 1, scale.customers())
    }

    /// The number of an item, from 1.
    pub(super) fn item(self, scale: Scale, draw: &mut Random) -> i32 {
        nurand(draw, ITEM, self.item, 1, scale.items())
    }
}

/// Whether a run may have this constant for last names.
fn is_far_enough(constant: i32) -> bool {
    let delta = constant.abs_diff(LOADED);
    (65..=119).contains(&delta) && delta != 96 && delta != 112
}

fn nurand(draw: &mut Random, a: i32, constant: i32, low: i32, high: i32) -> i32 {
    let range = high - low + 1;
    let mut a = a;
    while a > range / 2 {
        a /= 2;
    }
    ((draw.between(0, a) | draw.between(low, high)) + constant) % range + low
}

/// The last name of a number: a syllable for each of its three digits (clause 4.3.2.3).
pub(super) fn last_name(number: i32) -> String {
    let syllable = |digit: i32| SYLLABLES[digit.rem_euclid(10).cast_unsigned() as usize];
    [number / 100, number / 10, number].map(syllable).concat()
}

/// An a-string: letters and digits.
pub(super) fn a_string(draw: &mut Random, low: i32, high: i32) -> String {
    draw.text(LETTERS_AND_DIGITS, low, high)
}

/// So many letters.
pub(super) fn letters(draw: &mut Random, count: i32) -> String {
    draw.text(LETTERS, count, count)
}

/// An n-string: so many digits.
pub(super) fn digits(draw: &mut Random, count: i32) -> String {
    draw.text(DIGITS, count, count)
}

/// A ZIP code (clause 4.3.2.7).
pub(super) fn zip(draw: &mut Random) -> String {
    digits(draw, 4) + "11111"
}

/// Whether an event of so many per cent happens.
pub(super) fn per_cent(draw: &mut Random, share: i32) -> bool {
    draw.between(1, 100) <= share
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(times: u32, size: usize, mut next: impl FnMut() -> i32) -> Vec<u32> {
        let mut counts = vec![0; size];
        for _ in 0..times {
            counts[usize::try_from(next()).unwrap()] += 1;
        }
        counts
    }

    /// The exact chances of NURand(255, 0, 999), by going through all pairs.
    fn chances(constant: i32) -> Vec<f64> {
        let mut chances = vec![0.0; 1000];
        for small in 0..256 {
            for uniform in 0..1000 {
                let place = usize::try_from(((small | uniform) + constant) % 1000).unwrap();
                chances[place] += 1.0 / 256_000.0;
            }
        }
        chances
    }

    #[test]
    fn nurand_has_the_distribution_of_its_definition() {
        let scale = Scale::new(1).unwrap();
        let constants = Constants::of_run(5);
        let mut draw = Random::new(11, 0);
        let seen = counts(400_000, 1000, || constants.last_name(scale, &mut draw));
        let expected = chances(constants.last_name);
        let chi_square: f64 = seen
            .iter()
            .zip(&expected)
            .filter(|(_, chance)| **chance > 0.0)
            .map(|(&count, chance)| (f64::from(count) - chance * 4e5).powi(2) / (chance * 4e5))
            .sum();
        // At most 999 degrees of freedom; six standard deviations of 45 above the mean.
        assert!(chi_square < 999.0 + 6.0 * 45.0, "{chi_square}");
        let hot = seen.iter().max().unwrap();
        assert!(*hot > 400 * 5, "the hottest name is far hotter than the mean: {hot}");
    }

    #[test]
    fn nurand_never_leaves_its_range_and_reaches_its_ends() {
        let mut draw = Random::new(12, 0);
        for (items, customers) in [(100_000, 3_000), (1_000, 300), (7, 10), (1, 11)] {
            let scale = Scale::new(1).unwrap().reduced(items, customers).unwrap();
            for seed in 0..20 {
                let constants = Constants::of_run(seed);
                for _ in 0..2_000 {
                    assert!((1..=scale.items()).contains(&constants.item(scale, &mut draw)));
                    assert!(
                        (1..=scale.customers()).contains(&constants.customer(scale, &mut draw))
                    );
                    assert!(
                        (0..scale.last_names()).contains(&constants.last_name(scale, &mut draw))
                    );
                }
            }
        }
        let scale = Scale::new(1).unwrap().reduced(7, 10).unwrap();
        let constants = Constants::of_run(3);
        let seen = counts(10_000, 8, || constants.item(scale, &mut draw));
        assert!(seen[1..].iter().all(|&count| count > 0), "{seen:?}");
    }

    #[test]
    fn the_constants_of_a_run_are_shared_and_far_from_those_of_the_load() {
        let mut different = std::collections::BTreeSet::new();
        for seed in 0..2_000 {
            let constants = Constants::of_run(seed);
            assert_eq!(constants, Constants::of_run(seed));
            assert!((0..=255).contains(&constants.last_name));
            assert!((0..=1_023).contains(&constants.customer));
            assert!((0..=8_191).contains(&constants.item));
            let delta = constants.last_name.abs_diff(123);
            assert!((65..=119).contains(&delta) && ![96, 112].contains(&delta), "{delta}");
            different.insert(constants.last_name);
        }
        // 123 - 119 to 123 - 65 and 123 + 65 to 123 + 119, without two on each side.
        assert_eq!(different.len(), 2 * 55 - 4);
    }

    #[test]
    fn last_names_are_those_of_the_specification() {
        for (number, name) in
            [(371, "PRICALLYOUGHT"), (40, "BARPRESBAR"), (0, "BARBARBAR"), (999, "EINGEINGEING")]
        {
            assert_eq!(last_name(number), name);
        }
        let longest = (0..1_000).map(|number| last_name(number).len()).max();
        assert_eq!(longest, Some(15));
    }
}

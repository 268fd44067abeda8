//! The draws of the specification, on top of [`Random::between`].

use std::time::Duration;

use crate::Random;

/// Digits, then capitals, then small letters: the specification asks for 64 characters or more in
/// an a-string. These are 62, so that no pattern of LIKE and no padding hides among them.
const ALPHANUMERIC: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const DIGITS: &[u8] = b"0123456789";
const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz";

/// The syllables that stand for the digits from 0 to 9.
const SYLLABLES: [&str; 10] = ["BA", "OG", "AL", "RI", "RE", "SE", "AT", "UL", "IN", "NG"];

/// Digits that a search word stands for.
const WORD: u32 = 7;

/// An a-string: so many alphanumeric characters at least and at most.
pub(super) fn text(draw: &mut Random, least: i32, most: i32) -> String {
    characters(draw, ALPHANUMERIC, least, most)
}

/// An n-string: digits.
pub(super) fn digits(draw: &mut Random, least: i32, most: i32) -> String {
    characters(draw, DIGITS, least, most)
}

/// Small letters.
pub(super) fn letters(draw: &mut Random, least: i32, most: i32) -> String {
    characters(draw, LETTERS, least, most)
}

fn characters(draw: &mut Random, alphabet: &[u8], least: i32, most: i32) -> String {
    let length = draw.between(least, most);
    (0..length).map(|_| char::from(alphabet[draw.index(alphabet.len())])).collect()
}

/// One of a list, all equally likely; `None` when it is empty.
pub(super) fn pick<'t, T>(draw: &mut Random, list: &'t [T]) -> Option<&'t T> {
    if list.is_empty() { None } else { list.get(draw.index(list.len())) }
}

/// One of the names in a list that has some.
pub(super) fn name(draw: &mut Random, list: &[&'static str]) -> &'static str {
    list[draw.index(list.len())]
}

/// NURand(A, x, y) of clause 2.1.13: numbers with many ones in their lower bits come more often.
pub(super) fn nurand(draw: &mut Random, a: i32, low: i32, high: i32) -> i32 {
    let drawn = i64::from(draw.between(0, a) | draw.between(low, high));
    let width = i64::from(high) - i64::from(low) + 1;
    i32::try_from(drawn % width + i64::from(low)).expect("from `low` to `high`")
}

/// The syllables of a number's digits, of all of them: what users are called by.
pub(super) fn syllables(number: i64) -> String {
    number.to_string().bytes().filter_map(syllable).collect()
}

/// The syllables of a number's last seven digits: a word of titles and of authors' names.
pub(super) fn word(number: i32) -> String {
    let lowest = i64::from(number).rem_euclid(10_i64.pow(WORD));
    format!("{lowest:07}").bytes().filter_map(syllable).collect()
}

fn syllable(digit: u8) -> Option<&'static str> {
    SYLLABLES.get(usize::from(digit.checked_sub(b'0')?)).copied()
}

/// A time by the negative exponential distribution, cut off at `most`.
pub(super) fn exponential(draw: &mut Random, mean: Duration, most: Duration) -> Duration {
    let uniform = f64::from(draw.between(1, i32::MAX)) / f64::from(i32::MAX);
    // At most 31 · ln 2 = 21.5 times the mean.
    mean.mul_f64(-libm::log(uniform)).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_spelled_in_syllables() {
        assert_eq!(syllables(0), "BA");
        assert_eq!(syllables(2_880), "ALININBA");
        assert_eq!(syllables(1_234_567_890), "OGALRIRESEATULINNGBA");
        assert_eq!(word(12), "BABABABABAOGAL");
        assert_eq!(word(1_234_567), "OGALRIRESEATUL");
    }

    #[test]
    fn strings_have_their_lengths_and_characters() {
        let mut draw = Random::new(7, 0);
        let mut lengths = [0; 4];
        for _ in 0..1_000 {
            let string = text(&mut draw, 2, 5);
            assert!(string.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{string}");
            lengths[string.len() - 2] += 1;
            assert!(digits(&mut draw, 9, 16).bytes().all(|byte| byte.is_ascii_digit()));
            assert!(letters(&mut draw, 1, 3).bytes().all(|byte| byte.is_ascii_lowercase()));
        }
        assert!(lengths.iter().all(|&count| (180..320).contains(&count)), "{lengths:?}");
        assert_eq!(pick::<u8>(&mut draw, &[]), None);
    }

    /// The draw has the chances that counting all pairs gives.
    #[test]
    fn nurand_has_the_chances_of_its_definition() {
        let (a, low, high) = (7, 1, 10);
        let mut expected = [0.0; 11];
        for first in 0..=a {
            for second in low..=high {
                let value = (first | second) % (high - low + 1) + low;
                expected[usize::try_from(value).unwrap()] += 1.0 / 80.0;
            }
        }
        let mut draw = Random::new(3, 0);
        let mut counts = [0_u32; 11];
        for _ in 0..80_000 {
            counts[usize::try_from(nurand(&mut draw, a, low, high)).unwrap()] += 1;
        }
        for (value, (count, chance)) in counts.iter().zip(expected).enumerate() {
            // Six standard deviations of a binomial.
            let bound = 6.0 * (80_000.0 * chance * (1.0_f64 - chance)).sqrt();
            let distance = (f64::from(*count) - 80_000.0 * chance).abs();
            assert!(distance <= bound, "{value}: {count}, expected {}", 80_000.0 * chance);
        }
    }

    #[test]
    fn think_times_are_exponential_and_end() {
        let (mean, most) = (Duration::from_secs(7), Duration::from_secs(70));
        let mut draw = Random::new(5, 0);
        let times: Vec<Duration> =
            (0..100_000).map(|_| exponential(&mut draw, mean, most)).collect();
        let sum: Duration = times.iter().sum();
        let seconds = sum.as_secs_f64() / 100_000.0;
        // The standard error is 7 s / sqrt(100,000) = 0.022 s.
        assert!((seconds - 7.0).abs() < 0.14, "{seconds}");
        let beyond = times.iter().filter(|&&time| time > mean).count();
        // e^-1 of them: 36,788, with a standard deviation of 152.
        assert!(beyond.abs_diff(36_788) < 915, "{beyond}");
        assert!(times.iter().all(|&time| time <= most));
        assert!(exponential(&mut draw, mean, Duration::from_millis(1)) <= Duration::from_millis(1));
    }
}

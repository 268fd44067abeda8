//! Seeded random choices: what clients draw and tables are filled with.
//!
//! Each client has a sequence of its own from the same seed: two seeds, or two streams of one seed,
//! give unrelated sequences.

use tidegate_random::SplitMix64;

/// A repeatable sequence of random choices.
#[derive(Clone, Debug)]
pub struct Random {
    bits: SplitMix64,
}

impl Random {
    /// Returns the sequence of `seed` for one of many clients; each `stream` has its own.
    pub fn new(seed: u64, stream: u64) -> Self {
        let base = SplitMix64::new(seed).next_bits();
        let mixed = SplitMix64::new(stream).next_bits();
        Random { bits: SplitMix64::new(SplitMix64::mix(base ^ mixed)) }
    }

    /// Returns a whole number from `low` to `high`, both included, all equally likely but for a
    /// bias below 2^-32.
    ///
    /// # Panics
    /// If `low` is above `high`.
    pub fn between(&mut self, low: i32, high: i32) -> i32 {
        assert!(low <= high, "nothing lies between {low} and {high}");
        let width = low.abs_diff(high);
        low.wrapping_add_unsigned(self.up_to(width))
    }

    /// Returns a place in a list of `length` elements.
    ///
    /// # Panics
    /// If the list is empty, or longer than 2^32.
    pub fn index(&mut self, length: usize) -> usize {
        let last = length.checked_sub(1).and_then(|last| u32::try_from(last).ok());
        self.up_to(last.expect("a list has from 1 to 2^32 elements")) as usize
    }

    /// Returns a number of 0 to `last`.
    pub fn up_to(&mut self, last: u32) -> u32 {
        // The upper half of the bits, scaled from 0..2^32 to 0..=last.
        (((self.bits.next_bits() >> 32) * (u64::from(last) + 1)) >> 32) as u32
    }

    /// Returns a time of the negative exponential distribution with this mean, in the mean's unit.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        // The upper 53 bits, as a number above 0 and up to 1.
        let uniform = ((self.bits.next_bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        -libm::log(uniform) * mean
    }

    /// Returns text of `low..=high` characters of an alphabet, which is ASCII and not empty.
    pub fn text(&mut self, alphabet: &[u8], low: i32, high: i32) -> String {
        let length = self.between(low, high);
        (0..length).map(|_| char::from(alphabet[self.below(alphabet.len())])).collect()
    }

    /// Puts things into an order of which all are equally likely.
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for place in (1..things.len()).rev() {
            things.swap(place, self.below(place + 1));
        }
    }

    /// Returns a whole number below `count`, which is not 0, from all 64 bits.
    #[expect(clippy::cast_possible_truncation, reason = "it is below `count`")]
    fn below(&mut self, count: usize) -> usize {
        ((u128::from(self.bits.next_bits()) * count as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_fill_their_range_evenly_and_never_leave_it() {
        let mut draw = Random::new(1, 0);
        let mut counts = [0_u32; 10];
        for _ in 0..100_000 {
            let value = draw.between(-5, 4);
            counts[usize::try_from(value + 5).unwrap()] += 1;
        }
        // 10,000 expected; six standard deviations of a binomial are 570.
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 570), "{counts:?}");
        assert_eq!(draw.between(7, 7), 7);
        let whole: Vec<i32> = (0..1000).map(|_| draw.between(i32::MIN, i32::MAX)).collect();
        let negative = whole.iter().filter(|&&value| value < 0).count();
        assert!((400..600).contains(&negative), "{negative}");
    }

    #[test]
    fn times_are_above_nothing_and_have_their_mean() {
        let mut draw = Random::new(7, 0);
        let times: Vec<f64> = (0..100_000).map(|_| draw.exponential(12.0)).collect();
        assert!(times.iter().all(|&time| time >= 0.0 && time.is_finite()));
        let mean = times.iter().sum::<f64>() / 100_000.0;
        // The mean of so many has a standard deviation of 12 / 316.
        assert!((mean - 12.0).abs() < 0.23, "{mean}");
        let long = times.iter().filter(|&&time| time > 12.0).count();
        // A share of 1/e, 36,788, with a standard deviation of 152.
        assert!(long.abs_diff(36_788) < 915, "{long}");
    }

    #[test]
    fn texts_keep_their_bounds_and_their_alphabet() {
        let mut draw = Random::new(7, 1);
        let texts: Vec<String> = (0..1000).map(|_| draw.text(b"abc", 2, 5)).collect();
        assert!(texts.iter().all(|text| text.bytes().all(|byte| b"abc".contains(&byte))));
        let mut lengths: Vec<usize> = texts.iter().map(String::len).collect();
        lengths.sort_unstable();
        lengths.dedup();
        assert_eq!(lengths, [2, 3, 4, 5]);
    }

    #[test]
    fn a_shuffle_keeps_all_and_reaches_every_order() {
        let mut draw = Random::new(7, 2);
        let mut seen = std::collections::BTreeMap::new();
        for _ in 0..6000 {
            let mut things = [1, 2, 3];
            draw.shuffle(&mut things);
            *seen.entry(things).or_insert(0_u32) += 1;
        }
        assert_eq!(seen.len(), 6);
        // 1,000 expected; six standard deviations of a binomial are 173.
        assert!(seen.values().all(|count| count.abs_diff(1000) < 173), "{seen:?}");
    }

    #[test]
    fn a_seed_repeats_and_streams_differ() {
        let sequence = |seed, stream| {
            let mut draw = Random::new(seed, stream);
            [(); 8].map(|()| draw.between(0, i32::MAX))
        };
        assert_eq!(sequence(3, 1), sequence(3, 1));
        assert_ne!(sequence(3, 1), sequence(3, 2));
        assert_ne!(sequence(3, 1), sequence(4, 1));
    }
}

//! Seeded draws: the `SplitMix64` generator.
//!
//! A workload needs speed and repeatability, not secrecy: one word of state per client, and any two
//! seeds give unrelated sequences (G. Steele, D. Lea, C. Flood, "Fast Splittable Pseudorandom
//! Number Generators", OOPSLA 2014, figure 17 with the constants of its 64-bit mixer).

const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// A repeatable sequence of draws.
#[derive(Clone, Debug)]
pub struct Draw {
    state: u64,
}

impl Draw {
    /// The sequence of `seed`, for one of many clients: each `stream` is a sequence of its own.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut seeds = Draw { state: seed };
        let base = seeds.next();
        Draw { state: mix(base ^ mix(stream.wrapping_add(GOLDEN_GAMMA))) }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN_GAMMA);
        mix(self.state)
    }

    /// A whole number of `low..=high`, all equally likely but for a bias below 2^-32.
    pub fn between(&mut self, low: i32, high: i32) -> i32 {
        let width = i64::from(high) - i64::from(low) + 1;
        let Ok(width) = u64::try_from(width) else {
            return low;
        };
        // The upper half of a draw, scaled from 0..2^32 to 0..width, with width at most 2^32.
        let offset = ((self.next() >> 32) * width) >> 32;
        i32::try_from(i64::from(low) + offset.cast_signed()).unwrap_or(high)
    }

    /// A time of the negative exponential distribution with this mean, in the mean's unit.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        // The upper 53 bits, as a number above 0 and up to 1.
        let uniform = ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        -uniform.ln() * mean
    }

    /// Text of `low..=high` characters of an alphabet, which is ASCII.
    pub fn text(&mut self, alphabet: &[u8], low: i32, high: i32) -> String {
        let length = self.between(low, high);
        let character = |_| alphabet.get(self.below(alphabet.len())).copied().map(char::from);
        (0..length).filter_map(character).collect()
    }

    /// Puts things into an order of which all are equally likely.
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for place in (1..things.len()).rev() {
            things.swap(place, self.below(place + 1));
        }
    }

    /// A whole number below `count`, or 0.
    fn below(&mut self, count: usize) -> usize {
        let scaled = (u128::from(self.next()) * count as u128) >> 64;
        usize::try_from(scaled).unwrap_or(0)
    }
}

fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_gives_its_published_sequence() {
        let mut draw = Draw { state: 1_234_567 };
        assert_eq!(draw.next(), 6_457_827_717_110_365_317);
        assert_eq!(draw.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn draws_fill_their_range_evenly_and_never_leave_it() {
        let mut draw = Draw::new(1, 0);
        let mut counts = [0_u32; 10];
        for _ in 0..100_000 {
            let value = draw.between(-5, 4);
            counts[usize::try_from(value + 5).unwrap()] += 1;
        }
        // 10,000 expected; six standard deviations of a binomial are 570.
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 570), "{counts:?}");
        assert_eq!(draw.between(7, 7), 7);
        assert_eq!(draw.between(7, 6), 7);
        let whole: Vec<i32> = (0..1000).map(|_| draw.between(i32::MIN, i32::MAX)).collect();
        let negative = whole.iter().filter(|&&value| value < 0).count();
        assert!((400..600).contains(&negative), "{negative}");
    }

    #[test]
    fn times_are_above_nothing_and_have_their_mean() {
        let mut draw = Draw::new(7, 0);
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
        let mut draw = Draw::new(7, 1);
        let texts: Vec<String> = (0..1000).map(|_| draw.text(b"abc", 2, 5)).collect();
        assert!(texts.iter().all(|text| text.bytes().all(|byte| b"abc".contains(&byte))));
        let mut lengths: Vec<usize> = texts.iter().map(String::len).collect();
        lengths.sort_unstable();
        lengths.dedup();
        assert_eq!(lengths, [2, 3, 4, 5]);
        assert_eq!(draw.text(b"", 2, 5), "");
    }

    #[test]
    fn a_shuffle_keeps_all_and_reaches_every_order() {
        let mut draw = Draw::new(7, 2);
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
            let mut draw = Draw::new(seed, stream);
            [(); 8].map(|()| draw.between(0, i32::MAX))
        };
        assert_eq!(sequence(3, 1), sequence(3, 1));
        assert_ne!(sequence(3, 1), sequence(3, 2));
        assert_ne!(sequence(3, 1), sequence(4, 1));
    }
}

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

//! Draws from a seed: `SplitMix64` (Steele, Lea and Flood, OOPSLA 2014).

/// A stream of draws; the same seed gives the same stream.
#[derive(Clone, Debug)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    pub(super) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to `most`, both included.
    pub(super) fn up_to(&mut self, most: usize) -> usize {
        let below = (most as u64).saturating_add(1);
        #[expect(clippy::cast_possible_truncation, reason = "it is at most a usize")]
        let drawn = (self.draw() % below) as usize;
        drawn
    }

    pub(super) fn coin(&mut self) -> bool {
        self.up_to(1) == 1
    }

    /// Whether something of this probability happens. What is impossible costs no draw.
    pub(super) fn happens(&mut self, probability: f64) -> bool {
        let scale = (1_u64 << 53) as f64;
        probability > 0.0 && ((self.draw() >> 11) as f64) < probability * scale
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first values of the reference implementation for the seed 0.
    #[test]
    fn it_is_splitmix64() {
        let mut chance = Chance::new(0);
        let drawn = [chance.draw(), chance.draw(), chance.draw()];
        assert_eq!(drawn, [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4, 0x06C4_5D18_8009_454F]);
    }

    #[test]
    fn probabilities_are_met_and_bounds_are_reached() {
        let mut chance = Chance::new(1);
        assert!((0..100).all(|_| !chance.happens(0.0) && chance.happens(1.0)));
        let hits = (0..10_000).filter(|_| chance.happens(0.2)).count();
        assert!((1_800..2_200).contains(&hits), "{hits} of 10,000");
        let mut drawn: Vec<usize> = (0..100).map(|_| chance.up_to(3)).collect();
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn, [0, 1, 2, 3]);
    }
}

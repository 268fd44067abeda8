//! What a simulated disk draws from its seed.

use tidegate_random::SplitMix64;

/// A stream of draws; the same seed gives the same stream.
#[derive(Clone, Debug)]
pub(super) struct Random(SplitMix64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(SplitMix64::new(seed))
    }

    pub(super) fn draw(&mut self) -> u64 {
        self.0.next_bits()
    }

    /// Draws a number from 0 to `most`, both included.
    pub(super) fn up_to(&mut self, most: usize) -> usize {
        let below = (most as u64).saturating_add(1);
        #[expect(clippy::cast_possible_truncation, reason = "it is at most a usize")]
        let drawn = (self.draw() % below) as usize;
        drawn
    }

    pub(super) fn coin(&mut self) -> bool {
        self.up_to(1) == 1
    }

    /// Draws whether something of this probability happens. What is impossible costs no draw.
    pub(super) fn happens(&mut self, probability: f64) -> bool {
        let scale = (1_u64 << 53) as f64;
        probability > 0.0 && ((self.draw() >> 11) as f64) < probability * scale
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_met_and_bounds_are_reached() {
        let mut random = Random::new(1);
        assert!((0..100).all(|_| !random.happens(0.0) && random.happens(1.0)));
        let hits = (0..10_000).filter(|_| random.happens(0.2)).count();
        assert!((1_800..2_200).contains(&hits), "{hits} of 10,000");
        let mut drawn: Vec<usize> = (0..100).map(|_| random.up_to(3)).collect();
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn, [0, 1, 2, 3]);
    }
}

//! Random numbers from a seed: one generator for the whole workspace.
//!
//! No crate but the command line asks the system for randomness. A simulation, a workload and a
//! test own a [`SplitMix64`]; a controller is handed a [`Draw`]. Runs can be repeated from their
//! seeds, on every machine: logarithms and exponentials are those of `libm`, because the standard
//! library's last bit depends on the system's C library.
//!
//! ```
//! use tidegate_random::SplitMix64;
//!
//! let mut random = SplitMix64::new(7);
//! let again = SplitMix64::new(7).next_draw().value();
//! assert_eq!(random.next_draw().value(), again);
//! ```

/// A uniform draw from [0, 1), handed to a controller with each observation.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Draw(f64);

impl Draw {
    /// The draw made of the 53 highest of 64 uniform random bits; every input is valid.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Draw {
        const UNIT: f64 = 1.0 / (1_u64 << 53) as f64;
        Draw((bits >> 11) as f64 * UNIT)
    }

    /// The draw as a number, at least 0 and below 1.
    #[must_use]
    pub const fn value(self) -> f64 {
        self.0
    }
}

/// The `SplitMix64` generator (Steele, Lea and Flood, OOPSLA 2014): 64 bits of state, a period of
/// 2^64, and the same sequence from the same seed on every machine.
///
/// It is a value that its owner advances, for simulation and replay, and no source of secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// The sequence that belongs to `seed`; every seed is good.
    #[must_use]
    pub const fn new(seed: u64) -> SplitMix64 {
        SplitMix64 { state: seed }
    }

    /// The next 64 uniform bits.
    pub const fn next_bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        SplitMix64::mix(self.state)
    }

    /// Mixes a word: every bit of the result depends on every bit of `word`, and no two words give
    /// the same.
    #[must_use]
    pub const fn mix(word: u64) -> u64 {
        let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    /// The next uniform draw from [0, 1).
    pub const fn next_draw(&mut self) -> Draw {
        Draw::from_bits(self.next_bits())
    }

    /// Returns a number uniform from `low` to below `high`.
    pub fn next_between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.next_draw().value()
    }

    /// Returns a number between `low` and `high`, both above 0, whose logarithm is uniform.
    pub fn next_log_between(&mut self, low: f64, high: f64) -> f64 {
        libm::exp(self.next_between(libm::log(low), libm::log(high)))
    }

    /// Returns a whole number uniform from 0 to below `end`; 0 if `end` is 0.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at least 0 and at most the `u32` that it is a share of"
    )]
    pub fn next_below(&mut self, end: u32) -> u32 {
        (self.next_draw().value() * f64::from(end)) as u32
    }

    /// Returns whether an event of this probability happens.
    pub fn next_chance(&mut self, probability: f64) -> bool {
        self.next_draw().value() < probability
    }

    /// Returns a draw from the exponential distribution with mean 1; always finite.
    pub fn next_exponential(&mut self) -> f64 {
        -libm::log(1.0 - self.next_draw().value())
    }

    /// Returns a draw from the standard normal distribution (Box and Muller, 1958).
    pub fn next_normal(&mut self) -> f64 {
        let radius = (-2.0 * libm::log(1.0 - self.next_draw().value())).sqrt();
        radius * libm::cos(std::f64::consts::TAU * self.next_draw().value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published test vector for seed 1234567.
    #[test]
    fn split_mix_gives_the_published_sequence() {
        let mut generator = SplitMix64::new(1_234_567);
        assert_eq!(generator.next_bits(), 6_457_827_717_110_365_317);
        assert_eq!(generator.next_bits(), 3_203_168_211_198_807_973);
        assert_eq!(generator.next_bits(), 9_817_491_932_198_370_423);
    }

    type Drawing = fn(&mut SplitMix64) -> f64;

    /// Means and variances of 100,000 draws, within five standard errors.
    #[test]
    fn draws_have_the_moments_of_their_distributions() {
        let moments = |draw: Drawing| {
            let mut random = SplitMix64::new(5);
            let draws: Vec<f64> = (0..100_000).map(|_| draw(&mut random)).collect();
            let mean = draws.iter().sum::<f64>() / 1e5;
            (mean, draws.iter().map(|draw| (draw - mean).powi(2)).sum::<f64>() / 1e5)
        };
        let table: [(Drawing, f64, f64); 5] = [
            (SplitMix64::next_normal, 0.0, 1.0),
            (SplitMix64::next_exponential, 1.0, 1.0),
            (|random| random.next_between(2.0, 8.0), 5.0, 3.0),
            (|random| f64::from(random.next_below(7)), 3.0, 4.0),
            (|random| if random.next_chance(0.2) { 1.0 } else { 0.0 }, 0.2, 0.16),
        ];
        for (draw, mean, variance) in table {
            let found = moments(draw);
            assert!(
                (found.0 - mean).abs() < 0.04 && (found.1 - variance).abs() < 0.06,
                "{found:?}"
            );
        }
        let mut random = SplitMix64::new(5);
        assert!((0..1_000).all(|_| (2.0..8.0).contains(&random.next_log_between(2.0, 8.0))));
        assert_eq!(random.next_below(0), 0);
    }

    #[test]
    fn every_draw_is_at_least_zero_and_below_one() {
        assert!(Draw::from_bits(0).value().abs() < f64::EPSILON);
        assert!(Draw::from_bits(u64::MAX).value() < 1.0);
        assert!(Draw::from_bits(u64::MAX).value() > 0.999_999);
        assert!((Draw::from_bits(1 << 63).value() - 0.5).abs() < f64::EPSILON);
    }
}

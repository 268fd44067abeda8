//! The sequential test of a candidate against the incumbent.
//!
//! Differences d of ln X with known precision are summed: Z = Σ d/v, I = Σ 1/v. Under the
//! hypothesis that the true difference is 0, the likelihood ratio against a difference drawn from
//! the positive half of N(0, τ²),
//!
//! ```text
//! Λ+ = 2·(1 + τ²I)^(-1/2) · exp(τ²Z² / 2(1 + τ²I)) · Φ(τZ / √(1 + τ²I)),
//! ```
//!
//! is a martingale with mean 1, so it reaches 1/α with probability at most α however often it is
//! looked at (Ville; mixture sequential probability ratio test, Robbins 1970). The variances are
//! estimated, so α holds as far as they do.

use std::f64::consts::SQRT_2;

/// Standard deviation of the differences that are expected, in ln X.
const EXPECTED: f64 = 0.15;

/// Sums of differences with their precisions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct SequentialTest {
    weighted: f64,
    precision: f64,
    squares: f64,
    pairs: f64,
}

impl SequentialTest {
    pub(crate) fn add(&mut self, difference: f64, variance: f64) {
        self.weighted += difference / variance;
        self.precision += 1.0 / variance;
        self.squares += difference * difference / variance;
        self.pairs += 1.0;
    }

    /// How much the differences vary about their mean, as a factor on the variances they were
    /// given with, and its degrees of freedom.
    fn dispersion(&self) -> Option<(f64, f64)> {
        let degrees = self.pairs - 1.0;
        let rest = self.squares - self.weighted * self.weighted / self.precision;
        (degrees > 0.0).then(|| (rest.max(0.0) / degrees, degrees))
    }

    pub(crate) fn mean(&self) -> f64 {
        if self.precision > 0.0 { self.weighted / self.precision } else { 0.0 }
    }

    pub(crate) fn error(&self) -> f64 {
        if self.precision > 0.0 { self.precision.sqrt().recip() } else { f64::INFINITY }
    }

    /// Returns the standard error of the mean, if variances are `scale` times what was said.
    pub(crate) fn scaled_error(&self, scale: f64) -> f64 {
        self.error() * scale.sqrt()
    }

    /// Whether the difference is shown to be positive, with an error of at most `alpha`, if
    /// variances are `scale` times what was said.
    pub(crate) fn is_positive(&self, alpha: f64, scale: f64) -> bool {
        let (weighted, precision) = (self.weighted / scale, self.precision / scale);
        let spread = 1.0 + EXPECTED * EXPECTED * precision;
        let side = normal_distribution(EXPECTED * weighted / spread.sqrt());
        let square = EXPECTED * EXPECTED * weighted * weighted / (2.0 * spread);
        square - libm::log(spread) / 2.0 + libm::log(2.0 * side.max(1e-300)) >= -libm::log(alpha)
    }
}

/// Pairs after which what was known of their dispersion counts half.
const DISPERSION_MEMORY: f64 = 10.0;

/// How much more pairs vary than their counts and ticks say, as a factor on the variance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PairScale(f64);

impl Default for PairScale {
    fn default() -> PairScale {
        PairScale(1.0)
    }
}

impl PairScale {
    pub(crate) fn get(self) -> f64 {
        self.0
    }

    pub(crate) fn learn(&mut self, test: &SequentialTest) {
        if let Some((factor, degrees)) = test.dispersion() {
            let share = degrees / (degrees + DISPERSION_MEMORY);
            let moved = self.0 + share * (factor - self.0);
            self.0 = moved.clamp(1.0, 4.0);
        }
    }
}

/// Φ, to 1e-7 (Abramowitz and Stegun, 7.1.26).
fn normal_distribution(z: f64) -> f64 {
    let x = z.abs() / SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let powers = [0.254_829_592, -0.284_496_736, 1.421_413_741, -1.453_152_027, 1.061_405_429];
    let polynomial = powers.iter().rev().fold(0.0, |sum, power| (sum + power) * t);
    let tail = polynomial * libm::exp(-x * x) / 2.0;
    if z < 0.0 { tail } else { 1.0 - tail }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SplitMix64;

    /// Of 2,000 tests without a difference, looked at after each of 200 pairs, at most 5 % and the
    /// chance of the draw say that there is one.
    #[test]
    fn the_error_holds_however_often_it_is_looked_at() {
        let random = &mut SplitMix64::new(7);
        let mut wrong = 0;
        for _ in 0..2_000 {
            let mut test = SequentialTest::default();
            wrong += u32::from((0..200).any(|_| {
                test.add(0.05 * random.next_normal(), 0.05 * 0.05);
                test.is_positive(0.05, 1.0)
            }));
        }
        assert!(wrong <= 115, "{wrong} of 2000");
    }

    #[test]
    fn a_difference_is_found() {
        let random = &mut SplitMix64::new(8);
        let mut test = SequentialTest::default();
        let pairs = (1..100).find(|_| {
            test.add(0.1 + 0.05 * random.next_normal(), 0.05 * 0.05);
            test.is_positive(0.05, 1.0)
        });
        assert!(pairs.is_some_and(|pairs| pairs < 20), "{pairs:?}");
    }
}

//! A number that is believed in several ways, each normal and with a weight of its own.

use crate::controllers::gaussian_process::normal_below;

/// Halvings that find a quantile: to 1e-6 of a standard deviation and better.
const BISECTIONS: u32 = 40;

/// A quantile is sought so many standard deviations about each mean.
const REACH: f64 = 6.0;

/// One way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MixtureComponent {
    pub(super) weight: f64,
    pub(super) mean: f64,
    pub(super) sd: f64,
}

/// A mixture of normal distributions; the weights add up to 1.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mixture(pub(super) Vec<MixtureComponent>);

impl Mixture {
    pub(super) fn mean(&self) -> f64 {
        self.0.iter().map(|part| part.weight * part.mean).sum()
    }

    /// The probability of a number below `x`.
    pub(super) fn below(&self, x: f64) -> f64 {
        self.0.iter().map(|part| part.weight * part.below(x)).sum()
    }

    /// The number below which a number lies with the probability `share`.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        let end = |side: f64| self.0.iter().map(move |part| part.mean + side * REACH * part.sd);
        let mut low = end(-1.0).fold(f64::INFINITY, f64::min);
        let mut high = end(1.0).fold(f64::NEG_INFINITY, f64::max);
        for _ in 0..BISECTIONS {
            let middle = f64::midpoint(low, high);
            if self.below(middle) < share {
                low = middle;
            } else {
                high = middle;
            }
        }
        f64::midpoint(low, high)
    }
}

impl MixtureComponent {
    fn below(&self, x: f64) -> f64 {
        if self.sd <= 0.0 {
            return if self.mean < x { 1.0 } else { 0.0 };
        }
        let z = (x - self.mean) / self.sd;
        normal_below(z, libm::exp(-0.5 * z * z) / std::f64::consts::TAU.sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_near(left: f64, right: f64) {
        assert!((left - right).abs() < 1e-5, "{left} is not {right}");
    }

    #[test]
    fn one_part_is_a_normal_distribution() {
        let one = Mixture(vec![MixtureComponent { weight: 1.0, mean: 2.0, sd: 0.5 }]);
        assert_near(one.quantile(0.95), 2.0 + 1.644_854 * 0.5);
        assert_near(one.quantile(0.05), 2.0 - 1.644_854 * 0.5);
        assert_near(one.below(2.5), 0.841_345);
        assert_near(one.mean(), 2.0);
    }

    /// Half of the weight at 0 and half at 10: the lower tenth is the lower fifth of the one at 0.
    #[test]
    fn parts_far_apart_have_their_own_tails() {
        let part = |mean| MixtureComponent { weight: 0.5, mean, sd: 1.0 };
        let two = Mixture(vec![part(0.0), part(10.0)]);
        assert_near(two.quantile(0.1), -0.841_621);
        assert_near(two.quantile(0.9), 10.841_621);
        assert_near(two.mean(), 5.0);
    }

    #[test]
    fn a_part_without_spread_is_a_step() {
        let sure = Mixture(vec![MixtureComponent { weight: 1.0, mean: 3.0, sd: 0.0 }]);
        assert_near(sure.quantile(0.9), 3.0);
        assert_near(sure.below(2.9) + 1.0 - sure.below(3.1), 0.0);
    }
}

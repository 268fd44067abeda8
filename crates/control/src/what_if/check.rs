//! How far off earlier expectations were: intervals are widened until they hold, never narrowed.
//!
//! Each measurement is compared with what was expected of it before it was made, from the last fit,
//! up to 10 seconds old. Its error over the standard deviation that was expected has a known 90 %
//! quantile, 1.645, if all is as assumed. The quantile of the last errors over that is the factor
//! by which intervals are widened (split conformal prediction: Vovk, Gammerman and Shafer, 2005,
//! with a window because databases change).

use std::collections::VecDeque;

/// Errors that are remembered.
const WINDOW: usize = 100;

/// What stands for errors before there are some: the absolute values of ten draws of a normal
/// distribution that are spread evenly.
const ASSUMED: [f64; 10] = [0.063, 0.189, 0.319, 0.454, 0.598, 0.755, 0.935, 1.15, 1.44, 1.96];

/// The 90 % quantile of the absolute value of a normal number.
pub(super) const QUANTILE: f64 = 1.645;

/// The least and the most that intervals are widened by.
const LEAST: f64 = 1.0;
const MOST: f64 = 4.0;

/// The last errors.
#[derive(Clone, Debug, Default)]
pub(super) struct ErrorCheck(VecDeque<f64>);

impl ErrorCheck {
    /// Takes an error, in standard deviations.
    pub(super) fn add(&mut self, error: f64) {
        if error.is_finite() {
            self.0.push_back(error.abs());
        }
        if self.0.len() > WINDOW {
            self.0.pop_front();
        }
    }

    /// The factor on standard deviations.
    pub(super) fn widening(&self) -> f64 {
        let mut errors: Vec<f64> = self.0.iter().copied().chain(ASSUMED).collect();
        errors.sort_by(f64::total_cmp);
        let place = 0.9 * errors.len() as f64 - 0.5;
        let below = crate::controller::whole(place) as usize;
        let at = |index: usize| errors[index.min(errors.len() - 1)];
        let share = place - below as f64;
        let quantile = (1.0 - share) * at(below) + share * at(below + 1);
        (quantile / QUANTILE).clamp(LEAST, MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_twice_as_large_widen_by_two() {
        let mut check = ErrorCheck::default();
        assert!((check.widening() - 1.0).abs() < 0.1, "{}", check.widening());
        for _ in 0..20 {
            for error in ASSUMED {
                check.add(2.0 * error);
            }
        }
        assert!((check.widening() - 2.0).abs() < 0.3, "{}", check.widening());
        for _ in 0..20 {
            for error in ASSUMED {
                check.add(-error);
            }
        }
        assert!((check.widening() - 1.0).abs() < 0.1, "the window has passed");
        for _ in 0..200 {
            check.add(0.0);
        }
        assert!((check.widening() - 1.0).abs() < 1e-9, "never narrowed");
    }
}

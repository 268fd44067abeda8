//! What is believed about the throughput curve: a Gaussian process on a grid of limits.
//!
//! The curve is the logarithm of throughput, f, over the logarithm of the limit, x. Its slope is an
//! Ornstein-Uhlenbeck process: it varies about a mean that the queueing model gives, with standard
//! deviation `slope_sd`, and is forgotten over `slope_length`. f is the integral of the slope, plus
//! a level that is known from no model, plus a small irregularity at each limit of its own. All of
//! it is jointly normal, so on a grid of K limits the belief is a mean vector and a covariance
//! matrix, and an observation changes both in closed form (Kalman, 1960; Rasmussen and Williams,
//! 2006, chapter 2).

use super::GaussianProcessSettings;
use crate::controller::whole;
use crate::{Bounds, Mpl, Resources};

/// Limits on the grid, at most. The matrix of this many rows is 16 KiB.
pub(in crate::controllers) const GRID_MAX: usize = 44;

/// A normal distribution over throughput curves.
#[derive(Clone, Debug)]
pub(in crate::controllers) struct ThroughputBelief {
    /// The limits of the grid, rising.
    limits: Vec<Mpl>,
    /// Their logarithms.
    x: Vec<f64>,
    /// Mean of f before any observation, level 0.
    prior_mean: Vec<f64>,
    /// Covariance of f before any observation, without the level; rows one after the other.
    prior_shape: Vec<f64>,
    mean: Vec<f64>,
    covariance: Vec<f64>,
    level_variance: f64,
}

/// Where an observation was made: between two neighbours on the grid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::controllers) struct GridPlace {
    below: usize,
    above: usize,
    /// From 0 at `below` to 1 at `above`.
    share: f64,
}

impl GridPlace {
    /// The neighbour that is nearer.
    pub(in crate::controllers) fn nearest(self) -> usize {
        if self.share < 0.5 { self.below } else { self.above }
    }
}

/// A prediction of ln X.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::controllers) struct ThroughputPrediction {
    pub(in crate::controllers) mean: f64,
    pub(in crate::controllers) variance: f64,
}

impl ThroughputBelief {
    pub(in crate::controllers) fn new(
        bounds: Bounds,
        resources: Resources,
        prior: &GaussianProcessSettings,
    ) -> ThroughputBelief {
        let limits = grid(bounds);
        let x: Vec<f64> = limits.iter().map(|limit| libm::log(f64::from(limit.get()))).collect();
        let prior_mean = model(&x, resources, prior);
        let prior_shape = shape(&x, prior);
        let level_variance = prior.level_sd * prior.level_sd;
        let covariance = prior_shape.iter().map(|value| value + level_variance).collect();
        let mean = prior_mean.clone();
        ThroughputBelief { limits, x, prior_mean, prior_shape, mean, covariance, level_variance }
    }

    pub(in crate::controllers) fn len(&self) -> usize {
        self.limits.len()
    }

    pub(in crate::controllers) fn limit(&self, index: usize) -> Mpl {
        self.limits[index]
    }

    pub(in crate::controllers) fn x(&self, index: usize) -> f64 {
        self.x[index]
    }

    pub(in crate::controllers) fn mean(&self, index: usize) -> f64 {
        self.mean[index]
    }

    pub(in crate::controllers) fn covariance(&self, row: usize, column: usize) -> f64 {
        self.covariances(row)[column]
    }

    /// Covariances of f at `index` with f at every limit of the grid.
    pub(in crate::controllers) fn covariances(&self, index: usize) -> &[f64] {
        &self.covariance[index * self.len()..][..self.len()]
    }

    /// The limit of the grid nearest to `level` from below; the first when there is none.
    pub(in crate::controllers) fn index_below(&self, level: f64) -> usize {
        let after = self.limits.partition_point(|limit| f64::from(limit.get()) <= level);
        after.saturating_sub(1)
    }

    /// The place of `level`, which may lie between two limits of the grid.
    pub(in crate::controllers) fn place(&self, level: f64) -> GridPlace {
        let below = self.index_below(level);
        let above = (below + 1).min(self.len() - 1);
        let width = self.x(above) - self.x(below);
        let share = if width > 0.0 { (libm::log(level) - self.x(below)) / width } else { 0.0 };
        GridPlace { below, above, share: share.clamp(0.0, 1.0) }
    }

    pub(in crate::controllers) fn predict(&self, place: GridPlace) -> ThroughputPrediction {
        let GridPlace { below, above, share } = place;
        let mean = (1.0 - share) * self.mean(below) + share * self.mean(above);
        ThroughputPrediction { mean, variance: self.covariance_between(place, place) }
    }

    /// Covariance of f at `index` and at `place`.
    pub(in crate::controllers) fn covariance_with(&self, index: usize, place: GridPlace) -> f64 {
        (1.0 - place.share) * self.covariance(index, place.below)
            + place.share * self.covariance(index, place.above)
    }

    /// Covariance of f at two places.
    pub(in crate::controllers) fn covariance_between(
        &self,
        one: GridPlace,
        other: GridPlace,
    ) -> f64 {
        (1.0 - one.share) * self.covariance_with(one.below, other)
            + one.share * self.covariance_with(one.above, other)
    }

    /// Learns that ln X was `seen` at `place`, with noise of this variance.
    pub(in crate::controllers) fn learn(&mut self, place: GridPlace, seen: f64, noise: f64) {
        let predicted = self.predict(place);
        let total = predicted.variance + noise;
        if !(total > 0.0 && seen.is_finite()) {
            return;
        }
        let size = self.len();
        let mut with = [0.0; GRID_MAX];
        for (index, value) in with.iter_mut().enumerate().take(size) {
            *value = self.covariance_with(index, place);
        }
        let surprise = (seen - predicted.mean) / total;
        for (row, mean) in self.mean.iter_mut().enumerate() {
            *mean += with[row] * surprise;
        }
        for (row, values) in self.covariance.chunks_exact_mut(size).enumerate() {
            let gain = with[row] / total;
            for (value, other) in values.iter_mut().zip(&with) {
                *value -= gain * other;
            }
        }
    }

    /// Lets an interval pass: the level and the shape become a little less certain.
    pub(in crate::controllers) fn fade(&mut self, level_variance: f64, shape_share: f64) {
        for (value, shape) in self.covariance.iter_mut().zip(&self.prior_shape) {
            *value += level_variance + shape_share * shape;
        }
    }

    /// Doubts the level: puts it where `seen` was seen, brings `share` of the prior's variance
    /// back.
    pub(in crate::controllers) fn relevel(&mut self, share: f64, place: GridPlace, seen: f64) {
        self.shift_to(place, seen);
        self.fade(self.level_variance, share);
    }

    /// Moves the whole curve up or down until `seen` is what is expected at `place`.
    fn shift_to(&mut self, place: GridPlace, seen: f64) {
        let shift = seen - self.predict(place).mean;
        for mean in &mut self.mean {
            *mean += shift;
        }
    }

    /// Doubts everything: keeps `memory` of the shape that was believed in, the rest is the
    /// prior's, and is as uncertain as at the start. The level is put where `seen` was seen.
    pub(in crate::controllers) fn forget(&mut self, memory: f64, place: GridPlace, seen: f64) {
        for (mean, prior) in self.mean.iter_mut().zip(&self.prior_mean) {
            *mean = memory * *mean + (1.0 - memory) * prior;
        }
        self.shift_to(place, seen);
        for (value, shape) in self.covariance.iter_mut().zip(&self.prior_shape) {
            *value = self.level_variance + shape;
        }
    }
}

/// Limits that divide `bounds` evenly on a logarithmic axis, without repeating one.
fn grid(bounds: Bounds) -> Vec<Mpl> {
    let (min, max) = (f64::from(bounds.min().get()), f64::from(bounds.max().get()));
    let mut limits = vec![bounds.min()];
    while let Some(&last) = limits.last().filter(|&&last| last < bounds.max()) {
        let level = f64::from(last.get());
        let left = (GRID_MAX - limits.len()) as f64;
        // Small limits are whole numbers and use up their share; the rest is divided anew.
        let ratio = if left > 1.0 { libm::pow(max / level, 1.0 / left) } else { max / min };
        let next = whole((level * ratio).round()).max(last.get().saturating_add(1));
        limits.push(bounds.clamp(Mpl::at_least_one(next)));
    }
    limits
}

/// The curve of a closed network of equal stations (external-scheduling study, 4.1), with a slope
/// that falls by the prior's contention.
fn model(x: &[f64], resources: Resources, prior: &GaussianProcessSettings) -> Vec<f64> {
    let others = prior.others * (f64::from(resources.stations()) - 1.0);
    let range = libm::log(1_000.0);
    x.iter()
        .map(|&x| {
            let level = libm::exp(x);
            libm::log(level / (level + others)) - prior.contention * x * x / (2.0 * range)
        })
        .collect()
}

/// Covariance of the integrals of an Ornstein-Uhlenbeck slope from x = 0 to each limit, and of the
/// irregularities.
fn shape(x: &[f64], prior: &GaussianProcessSettings) -> Vec<f64> {
    let length = prior.slope_length;
    let variance = prior.slope_sd * prior.slope_sd;
    let mut shape = Vec::with_capacity(x.len() * x.len());
    for (row, &s) in x.iter().enumerate() {
        for (column, &t) in x.iter().enumerate() {
            let low = s.min(t) / length;
            let decay = libm::exp(-s / length) + libm::exp(-t / length)
                - libm::exp(-(s - t).abs() / length);
            let integral = variance * length * length * (2.0 * low - 1.0 + decay);
            let rough = prior.roughness + prior.grain / libm::exp(s);
            let own = if row == column { rough * rough } else { 0.0 };
            shape.push(integral + own);
        }
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, bounds};

    const PRIOR: GaussianProcessSettings = GaussianProcessSettings {
        others: 1.0,
        roughness: 0.0,
        grain: 0.02,
        ..GaussianProcessSettings::DEFAULT
    };

    fn belief(min: u32, max: u32) -> ThroughputBelief {
        ThroughputBelief::new(bounds(min, max), Resources { cpus: 2, disks: 1 }, &PRIOR)
    }

    #[test]
    fn the_grid_rises_from_bound_to_bound_and_is_fine_enough() {
        for (min, max) in [(1, 1), (1, 2), (3, 7), (1, 1_000), (200, 210), (1, u32::MAX)] {
            let belief = belief(min, max);
            assert!(belief.len() <= GRID_MAX, "{min} to {max}: {}", belief.len());
            assert_eq!(belief.limit(0).get(), min);
            assert_eq!(belief.limit(belief.len() - 1).get(), max);
            assert!(belief.limits.is_sorted_by(|low, high| low < high), "{min} to {max}");
        }
        let steps = belief(1, 1_000);
        for pair in steps.limits.windows(2) {
            let (low, high) = (pair[0].get(), pair[1].get());
            assert!(high == low + 1 || f64::from(high) < 1.2 * f64::from(low), "{low}, {high}");
        }
    }

    #[test]
    fn a_level_between_two_limits_has_its_place_on_the_logarithmic_axis() {
        let belief = belief(1, 1_000);
        let place = belief.place(6_f64.sqrt());
        assert_eq!((belief.limit(place.below).get(), belief.limit(place.above).get()), (2, 3));
        assert_near(place.share, 0.5);
        assert_near(belief.place(1.0).share, 0.0);
        let top = belief.place(5_000.0);
        assert_eq!((top.below, top.above), (belief.len() - 1, belief.len() - 1));
    }

    /// With one limit the belief is one number, 0 with variance 4 + 0.02²: seeing 3 with a noise of
    /// 1 moves it by 4.0004/5.0004 of the way and leaves that share of the noise as variance.
    #[test]
    fn one_number_is_learnt_as_the_textbook_says() {
        let mut belief = belief(1, 1);
        let place = belief.place(1.0);
        let prior = belief.predict(place);
        assert_near(prior.variance, 4.000_4);
        belief.learn(place, prior.mean + 3.0, 1.0);
        let posterior = belief.predict(place);
        assert_near(posterior.mean - prior.mean, 3.0 * 4.000_4 / 5.000_4);
        assert_near(posterior.variance, 4.000_4 / 5.000_4);
    }

    #[test]
    fn what_is_learnt_at_one_limit_says_most_about_its_neighbours() {
        let mut belief = belief(1, 1_000);
        let at = belief.index_below(40.0);
        belief.learn(belief.place(f64::from(belief.limit(at).get())), 7.0, 1e-4);
        let sd = |index: usize| belief.covariance(index, index).sqrt();
        assert!(sd(at) < 0.011, "{}", sd(at));
        assert!(sd(at) < sd(at + 1) && sd(at + 1) < sd(at + 5) && sd(at + 5) < sd(at + 12));
        assert!(sd(at) < sd(at - 1) && sd(at - 1) < sd(at - 5) && sd(at - 5) < sd(at - 12));
    }

    #[test]
    fn the_slope_between_two_measurements_goes_on_beyond_them() {
        let mut belief = belief(1, 1_000);
        let flat = belief.clone();
        belief.learn(belief.place(20.0), libm::log(20.0), 1e-4);
        belief.learn(belief.place(40.0), libm::log(40.0), 1e-4);
        let (at, next) = (belief.index_below(40.0), belief.index_below(80.0));
        let rise = |belief: &ThroughputBelief| belief.mean(next) - belief.mean(at);
        assert!(rise(&belief) > rise(&flat) + 0.3, "{} {}", rise(&belief), rise(&flat));
    }

    #[test]
    fn the_covariance_stays_symmetric_and_positive_over_many_measurements() {
        let mut belief = belief(1, 1_000);
        let random = &mut crate::SplitMix64::new(7);
        for step in 0..20_000 {
            let level = libm::exp(random.next_draw().value() * libm::log(1_000.0));
            belief.fade(1e-5, 1e-4);
            belief.learn(belief.place(level), random.next_draw().value(), 1e-6);
            if step % 1_000 == 0 {
                let place = belief.place(level);
                belief.forget(0.5, place, 3.0);
                assert_near(belief.predict(place).mean, 3.0);
            }
        }
        for row in 0..belief.len() {
            assert!(belief.covariance(row, row) > 0.0);
            for column in 0..row {
                assert_near(belief.covariance(row, column), belief.covariance(column, row));
            }
        }
    }

    #[test]
    fn a_measurement_that_is_no_number_is_left_out() {
        let mut belief = belief(1, 10);
        let place = belief.place(5.0);
        let before = belief.predict(place);
        belief.learn(place, f64::NAN, 1.0);
        belief.learn(place, f64::INFINITY, 1.0);
        assert_eq!(belief.predict(place), before);
    }
}

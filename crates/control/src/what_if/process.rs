//! A Gaussian process over levels and time, whose parameters are chosen by the data.
//!
//! ln X at the level n and the time t is taken for a sum of independent parts, each normal:
//!
//! | part | covariance | parameters |
//! | --- | --- | --- |
//! | the height of the curve | constant | none |
//! | its smooth shape | Matérn 3/2 over ln n | none |
//! | what is rough about it | exponential over ln n | `rough` |
//! | what changes at some levels | exponential over ln n and t | `local` |
//! | the speed of the database as a whole | exponential over t | `drift`, `drift_s` |
//! | what a move leaves behind | one number a visit, fading | `moved` |
//! | noise | of each measurement | `noise` |
//!
//! The seven parameters are standard deviations but for `drift_s`, a time. They maximise the
//! likelihood of the measurements times a prior about each (Rasmussen and Williams, 2006, 5.4.1),
//! found by steps of a factor of two in one parameter at a time from where they were last.

use nalgebra::{Cholesky, DMatrix, DVector, Dyn};

use super::history::HistoryPoint;

/// Variance of the height of the curve, far more than anything that is seen.
const HEIGHT: f64 = 4.0;

/// Variance of the smooth shape, and the distance in ln n over which it is forgotten.
const SHAPE: f64 = 1.0;
const SHAPE_LENGTH: f64 = 2.0;

/// Distances over which what is rough, and what changes at some levels, is forgotten.
const ROUGH_LENGTH: f64 = 0.5;
const LOCAL_LENGTH: f64 = 0.7;

/// Time over which what has changed at some levels is forgotten, seconds.
const LOCAL_S: f64 = 60.0;

/// Variance that a measurement gains by a second of age: 0.12² in an hour.
const AGEING: f64 = 4e-6;

const ROUGH: usize = 0;
const LOCAL: usize = 1;
const DRIFT: usize = 2;
const DRIFT_S: usize = 3;
const MOVED: usize = 4;
const NOISE: usize = 5;
const COUNT: usize = 6;

/// Where the parameters start, and the standard deviations of the logarithms about it. `noise` is
/// that of a measurement of a second.
const START: [f64; COUNT] = [0.04, 0.03, 0.03, 20.0, 0.08, 0.02];
const SPREAD: [f64; COUNT] = [1.0, 1.0, 1.2, 1.2, 1.0, 1.5];
const LEAST: [f64; COUNT] = [0.005, 0.005, 0.002, 0.5, 0.005, 0.002];
const MOST: [f64; COUNT] = [0.6, 0.5, 1.0, 600.0, 0.6, 1.0];

/// Steps in each parameter when measurements were added.
const SWEEPS: u32 = 3;

/// What the data say about the parts of ln X, in the order of the constants above.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Parameters([f64; COUNT]);

impl Parameters {
    pub(super) const DEFAULT: Parameters = Parameters(START);

    fn variance(&self, index: usize) -> f64 {
        self.0[index] * self.0[index]
    }

    /// Logarithm of the prior's density, but for a constant.
    fn log_prior(&self) -> f64 {
        let terms = self.0.iter().zip(START).zip(SPREAD);
        terms
            .map(|((&value, start), spread)| -0.5 * (libm::log(value / start) / spread).powi(2))
            .sum()
    }

    /// The same with one parameter multiplied.
    fn stepped(&self, index: usize, factor: f64) -> Parameters {
        let mut stepped = *self;
        stepped.0[index] = (self.0[index] * factor).clamp(LEAST[index], MOST[index]);
        stepped
    }

    /// Variance of the noise of so many seconds, besides that of the count.
    pub(super) fn noise(&self, seconds: f64) -> f64 {
        self.variance(NOISE) / seconds.max(0.05)
    }

    /// Variance of what the drift of the database may do between two times so far apart.
    pub(super) fn change(&self, seconds: f64) -> f64 {
        2.0 * self.variance(DRIFT) * (1.0 - libm::exp(-seconds / self.0[DRIFT_S]))
            + 2.0 * self.variance(LOCAL) * (1.0 - libm::exp(-seconds / LOCAL_S))
    }

    /// Variance of a measurement that a move so far, so long ago, leaves.
    pub(super) fn moved(&self, settling: f64) -> f64 {
        self.variance(MOVED) * settling * settling
    }
}

/// The mean over a time, seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeSpan {
    pub(super) from_s: f64,
    pub(super) to_s: f64,
}

impl TimeSpan {
    fn length(self) -> f64 {
        (self.to_s - self.from_s).max(1e-3)
    }

    /// The mean over the span of the correlation with a moment, which is not after its beginning.
    fn with_moment(self, at_s: f64, time_s: f64) -> f64 {
        let near = ((self.from_s - at_s).max(0.0) / time_s).min(700.0);
        let length = self.length() / time_s;
        libm::exp(-near) * -libm::expm1(-length) / length
    }

    /// Variance of the mean over the span of a process of variance 1.
    fn with_itself(self, time_s: f64) -> f64 {
        let length = self.length() / time_s;
        if length < 1e-3 { 1.0 } else { 2.0 * (length + libm::expm1(-length)) / (length * length) }
    }
}

/// A prediction of ln X.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ProcessPrediction {
    pub(super) mean: f64,
    pub(super) variance: f64,
}

/// What follows from the measurements.
#[derive(Clone, Debug)]
pub(super) struct ProcessFit {
    points: Vec<HistoryPoint>,
    parameters: Parameters,
    mean: f64,
    factor: Cholesky<f64, Dyn>,
    weights: DVector<f64>,
}

/// What does not depend on the parameters.
struct Parts {
    fixed: DMatrix<f64>,
    rough: DMatrix<f64>,
    local: DMatrix<f64>,
    apart_s: DMatrix<f64>,
    visit: DMatrix<f64>,
    seen: DVector<f64>,
    mean: f64,
}

impl Parts {
    fn new(points: &[HistoryPoint]) -> Parts {
        let size = points.len();
        let table = |of: &dyn Fn(&HistoryPoint, &HistoryPoint) -> f64| {
            DMatrix::from_fn(size, size, |row, column| of(&points[row], &points[column]))
        };
        let apart = |one: &HistoryPoint, other: &HistoryPoint| (one.x - other.x).abs();
        let newest_s = points.iter().map(|point| point.at_s).fold(f64::MIN, f64::max);
        let mut fixed = table(&|one, other| HEIGHT + SHAPE * matern(apart(one, other)));
        for (index, point) in points.iter().enumerate() {
            fixed[(index, index)] += point.variance + AGEING * (newest_s - point.at_s) + 1e-8;
        }
        let mean = points.iter().map(|point| point.ln_x).sum::<f64>() / size.max(1) as f64;
        Parts {
            fixed,
            rough: table(&|one, other| libm::exp(-apart(one, other) / ROUGH_LENGTH)),
            local: table(&|one, other| {
                let seconds = (one.at_s - other.at_s).abs();
                libm::exp(-apart(one, other) / LOCAL_LENGTH - seconds / LOCAL_S)
            }),
            apart_s: table(&|one, other| (one.at_s - other.at_s).abs()),
            visit: table(&|one, other| {
                if one.visit == other.visit { one.settling * other.settling } else { 0.0 }
            }),
            seen: DVector::from_iterator(size, points.iter().map(|point| point.ln_x - mean)),
            mean,
        }
    }

    /// The factor of the covariance, the weights, and the logarithm of the posterior density.
    fn factor(
        &self,
        points: &[HistoryPoint],
        parameters: &Parameters,
    ) -> Option<(Cholesky<f64, Dyn>, DVector<f64>, f64)> {
        let [rough, local, drift, moved] =
            [ROUGH, LOCAL, DRIFT, MOVED].map(|index| parameters.variance(index));
        let drift_s = parameters.0[DRIFT_S];
        let mut sum = self.fixed.clone();
        for (index, value) in sum.as_mut_slice().iter_mut().enumerate() {
            *value += rough * self.rough.as_slice()[index]
                + local * self.local.as_slice()[index]
                + drift * libm::exp(-self.apart_s.as_slice()[index] / drift_s)
                + moved * self.visit.as_slice()[index];
        }
        for (index, point) in points.iter().enumerate() {
            sum[(index, index)] += parameters.noise(point.seconds);
        }
        let factor = sum.cholesky()?;
        let weights = factor.solve(&self.seen);
        let log_determinant: f64 =
            factor.l_dirty().diagonal().iter().map(|value| libm::log(*value)).sum::<f64>();
        let density = -0.5 * self.seen.dot(&weights) - log_determinant + parameters.log_prior();
        density.is_finite().then_some((factor, weights, density))
    }
}

/// The correlation of the smooth shape at two levels so far apart in ln n.
fn matern(apart: f64) -> f64 {
    let scaled = 3_f64.sqrt() * apart / SHAPE_LENGTH;
    (1.0 + scaled) * libm::exp(-scaled)
}

impl ProcessFit {
    /// What follows from `points`, with parameters near to `before`; nothing without points.
    pub(super) fn new(points: Vec<HistoryPoint>, before: Parameters) -> Option<ProcessFit> {
        if points.is_empty() {
            return None;
        }
        let parts = Parts::new(&points);
        let mut parameters = before;
        let mut best = parts.factor(&points, &parameters)?;
        for _ in 0..SWEEPS {
            let before = parameters;
            for index in 0..COUNT {
                for factor in [2.0, 0.5] {
                    let stepped = parameters.stepped(index, factor);
                    if let Some(other) = parts.factor(&points, &stepped)
                        && other.2 > best.2
                    {
                        (best, parameters) = (other, stepped);
                        break;
                    }
                }
            }
            if parameters == before {
                break;
            }
        }
        let (factor, weights, _) = best;
        Some(ProcessFit { points, parameters, mean: parts.mean, factor, weights })
    }

    pub(super) fn parameters(&self) -> Parameters {
        self.parameters
    }

    pub(super) fn points(&self) -> &[HistoryPoint] {
        &self.points
    }

    /// ln X at the logarithm `x` of a level, in the mean over `span`, without any noise.
    pub(super) fn expect(&self, x: f64, span: TimeSpan) -> ProcessPrediction {
        let parameters = &self.parameters;
        let [rough, local, drift] = [ROUGH, LOCAL, DRIFT].map(|index| parameters.variance(index));
        let drift_s = parameters.0[DRIFT_S];
        let with = DVector::from_iterator(
            self.points.len(),
            self.points.iter().map(|point| {
                let apart = (point.x - x).abs();
                HEIGHT
                    + SHAPE * matern(apart)
                    + rough * libm::exp(-apart / ROUGH_LENGTH)
                    + local
                        * libm::exp(-apart / LOCAL_LENGTH)
                        * span.with_moment(point.at_s, LOCAL_S)
                    + drift * span.with_moment(point.at_s, drift_s)
            }),
        );
        let own = HEIGHT
            + SHAPE
            + rough
            + local * span.with_itself(LOCAL_S)
            + drift * span.with_itself(drift_s);
        let explained = with.dot(&self.factor.solve(&with));
        let mean = self.mean + with.dot(&self.weights);
        ProcessPrediction { mean, variance: (own - explained).max(1e-9) }
    }
}

//! How sure a thrashing point is: the posterior of the point and of *none*, beside the study's
//! rule.
//!
//! # Mechanism
//! Eq. (1) is applied to means as if they were exact, and on a flat curve it reports thrashing
//! whenever noise alone lowers a level by 17 % and none above it comes back. Here the same rule is
//! applied to the *true* throughputs, which are unknown: their posterior given the executions says
//! how probable each level is as the thrashing point, and how probable it is that there is none
//! among the levels measured. The rule has a threshold, so a fall of less than 16.7 % is not
//! thrashing, however certain it is; no further smallest fall is needed.
//!
//! Let `x_1, …, x_n` be the logarithms of the true throughputs, in the order of the MPLs.
//!
//! * **Executions.** The logarithm of an execution's throughput is `x_i` plus an error of Student's
//!   t with 5 degrees of freedom, so that one outlier counts for little. The square of its scale is
//!   `σ² + w_i`. `σ` is the noise *between* executions, the same share of throughput at all levels
//!   (variances are pooled, because a level has few repetitions). `w_i` is the noise *within* an
//!   execution of the level: the variance of its mean, over its square, by batch means
//!   ([`variance_of_mean`]), which respect the autocorrelation of intervals. `w_i` alone is too
//!   small, since it does not see what differs from execution to execution.
//! * **Steps.** A step `x_(i+1) − x_i` is small (Laplace, scale 4 %), a rise (exponential, mean
//!   0.4) or a fall (exponential, mean 0.5). The kinds are a Markov chain, because curves rise for
//!   some levels, then hold, and what falls often falls further. The first step is a rise with
//!   probability 0.45, the next after a rise with 0.5, after a small step with 0.08; after a fall
//!   comes another with 0.4, a rise with 0.05. The probability of a fall after another step is such
//!   that a curve has one with probability 1/2, however many levels it has. By this prior a curve
//!   of 10 levels thrashes with probability 0.4 or so; in the study 36 % and 49 % of the batchset
//!   instances do. [`OutcomeProbability::prior`] has the numbers.
//! * **Noise.** `σ` is log-normal with median 5 % and a standard deviation of its logarithm of 0.8,
//!   between 0.5 % and 50 %. Repetitions tell it. With *one* execution at each level only the
//!   roughness of the curve does, which a curve of many real steps has, too: the posterior is then
//!   conditional on these priors, and [`Posterior::is_noise_measured`] is false.
//!
//! # Computation
//! The `x_i` are put on a grid and `σ` on another. The grid's cells are 1/12.5 of the rule's
//! threshold (1.5 % for Eq. (1)), so that the threshold is halfway between two cells. On the grid
//! the posterior is exact by forward filtering; paths are drawn from it backwards (Frühwirth-
//! Schnatter 1994, "Data augmentation and dynamic linear models", Section 3), [`DRAWS`] of them
//! from [`SEED`], and the rule is applied to each. So a probability has a standard error of at most
//! 0.8 %, and the same executions give the same probabilities.
//!
//! # Example
//! Levels of 100, 105, 95, 102 and 80 tps, once each: Eq. (1) reports thrashing at the fourth, for
//! 102 > 1.2·80. With one execution a level it may as well be noise: the posterior leaves "none"
//! and the fourth level in doubt. Seven repetitions within 2 % make it nearly certain.
//!
//! # Limits
//! * A level's median is meant where the noise is skewed: the error of the logarithm has median 0.
//! * Falls within about 1.5 % of the threshold are in doubt at any number of repetitions: the
//!   grid's cell.
//! * A throughput below 1 % of the curve's highest level counts as 1 % of it, also 0.
//! * Nothing between the levels, nor above the last, is looked at; see [`ThrashingPoint::bounds`].
//! * Noise that all executions of a level share, such as a disturbance while they ran one after the
//!   other, is not seen by repetitions. The laboratory spreads them over a run for that reason.

mod chain;
mod noise;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde::Serialize;
use tidegate_control::{Mpl, SplitMix64};

use self::chain::{Chain, Steps};
use super::curve::{Rule, ThrashingPoint};

pub use noise::variance_of_mean;

/// The version of the model; another when a prior, a constant or the computation changes.
pub const MODEL: &str = "posterior v1";

/// Paths drawn from the posterior.
pub const DRAWS: u32 = 4_000;

/// The seed of all draws.
pub const SEED: u64 = 20;

/// Paths drawn from the prior.
const PRIOR_DRAWS: u32 = 20_000;

/// What was measured at a level.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LevelSample {
    /// The level.
    pub mpl: Mpl,
    /// Completed transactions per second of each execution, in any order: at least one, finite,
    /// none below 0.
    pub tps: Vec<f64>,
    /// The variance of the mean throughput of one of these executions over its square, from its
    /// intervals ([`variance_of_mean`]); 0 where they do not tell.
    pub variance_within: f64,
}

/// What is believed of a curve's thrashing point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Posterior {
    /// The rule that is applied to the true throughputs.
    pub rule: Rule,
    /// The outcomes, disjoint: every level but the highest as the point, MPLs rising, then none.
    pub outcomes: Vec<OutcomeProbability>,
    /// The mean of the noise between executions, `σ`, as a share of throughput.
    pub noise: f64,
    /// Whether a level has several executions, so that this noise was measured and not only
    /// supposed.
    pub is_noise_measured: bool,
}

/// An outcome with its probability before and after the executions were seen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OutcomeProbability {
    /// The thrashing point; [`ThrashingPoint::Infinite`] is none within the levels.
    pub point: ThrashingPoint,
    /// By the prior of curves with so many levels, above 0.
    pub prior: f64,
    /// Given the executions.
    pub probability: f64,
}

impl Posterior {
    /// Returns the posterior of the thrashing point by a rule, given what was measured at each
    /// level; `None` where nothing was. Levels may be in any order.
    ///
    /// # Panics
    /// A level has no execution, or a throughput that is negative or no number, or is there twice.
    pub fn new(rule: Rule, levels: &[LevelSample]) -> Option<Posterior> {
        let mut levels: Vec<&LevelSample> = levels.iter().collect();
        levels.sort_by_key(|level| level.mpl);
        let last = levels.last()?;
        assert!(levels.windows(2).all(|pair| pair[0].mpl < pair[1].mpl), "a level is there twice");
        let steps = Steps::new(levels.len());
        let chain = Chain::new(rule, &levels, steps);
        let priors = remembered_prior(rule, steps, levels.len());
        let (counts, noise) = chain.count_outcomes(rule, DRAWS, &mut SplitMix64::new(SEED));
        let points = levels.windows(2).enumerate().map(|(place, pair)| match place {
            0 => ThrashingPoint::AtLowest { mpl: pair[0].mpl, next: pair[1].mpl },
            _ => ThrashingPoint::At { mpl: pair[0].mpl, next: pair[1].mpl },
        });
        let points = points.chain([ThrashingPoint::Infinite { highest: last.mpl }]);
        let outcomes = points.zip(priors).zip(counts).map(|((point, prior), count)| {
            let probability = f64::from(count) / f64::from(DRAWS);
            OutcomeProbability { point, prior, probability }
        });
        Some(Posterior {
            rule,
            outcomes: outcomes.collect(),
            noise,
            is_noise_measured: levels.iter().any(|level| level.tps.len() > 1),
        })
    }

    /// Returns the probability that there is no thrashing point within the levels measured.
    pub fn none(&self) -> f64 {
        let is_none = |one: &&OutcomeProbability| one.point.mpl().is_none();
        self.outcomes.iter().filter(is_none).map(|one| one.probability).sum()
    }

    /// Returns the most probable outcome; of several the one at the lowest MPL.
    pub fn most_probable(&self) -> OutcomeProbability {
        let first = self.outcomes[0];
        self.outcomes
            .iter()
            .fold(first, |best, &one| if one.probability > best.probability { one } else { best })
    }

    /// Returns the credible set: the fewest outcomes that have at least this probability together,
    /// in the order of the outcomes.
    pub fn credible_set(&self, share: f64) -> Vec<OutcomeProbability> {
        let mut order: Vec<usize> = (0..self.outcomes.len()).collect();
        order.sort_by(|&one, &other| {
            let of = |place: usize| self.outcomes[place].probability;
            of(other).total_cmp(&of(one))
        });
        let mut sum = 0.0;
        let mut chosen: Vec<usize> = Vec::new();
        for place in order {
            // Counts over draws: their sums are exact to a rounding error.
            if sum >= share - 1e-9 {
                break;
            }
            sum += self.outcomes[place].probability;
            chosen.push(place);
        }
        chosen.sort_unstable();
        chosen.into_iter().map(|place| self.outcomes[place]).collect()
    }
}

thread_local! {
    /// Priors by rule and number of levels: drawing one takes longer than a posterior.
    static PRIORS: RefCell<BTreeMap<(&'static str, usize), Vec<f64>>> =
        const { RefCell::new(BTreeMap::new()) };
}

fn remembered_prior(rule: Rule, steps: Steps, levels: usize) -> Vec<f64> {
    PRIORS.with_borrow_mut(|priors| {
        let known = priors.entry((rule.version(), levels));
        known.or_insert_with(|| prior(rule, steps, levels)).clone()
    })
}

/// Returns the probability of each outcome by the prior of curves with so many levels. Half a path
/// is added to each, so that none is 0.
fn prior(rule: Rule, steps: Steps, levels: usize) -> Vec<f64> {
    let mut random = SplitMix64::new(SEED);
    let mut counts = vec![0.5; levels];
    let mut path = vec![1.0; levels];
    for _ in 0..PRIOR_DRAWS {
        let mut log = 0.0;
        let drawn = steps.draw(levels - 1, &mut random);
        for (tps, step) in path.iter_mut().skip(1).zip(drawn) {
            log += step;
            *tps = libm::exp(log);
        }
        counts[outcome(rule, &path)] += 1.0;
    }
    let all: f64 = counts.iter().sum();
    counts.into_iter().map(|count| count / all).collect()
}

/// Returns the place of a path's outcome: that of the level that is the point, or the last place
/// for none.
fn outcome(rule: Rule, path: &[f64]) -> usize {
    rule.lasting_fall(path).unwrap_or(path.len() - 1)
}

//! Where to go next, given what is believed of all levels.
//!
//! # Mechanism
//! Three questions, in this order:
//!
//! 1. **Is the top between the lowest and the highest level seen?** If the lowest is not clearly
//!    worse than the best, go down from it by the factor `reach`; if the highest is not, and the law
//!    promises more beyond, go up from it by the same. Clearly is by two standard deviations. So
//!    no extrapolation is trusted: the law only says whether it is worth looking.
//! 2. **Is another level worth a look?** A level with m and s, mean and standard deviation of its ln X,
//!    may turn out better than the best mean m* there is. Seen once with noise of variance v, its
//!    mean moves by about s̃ = s²/√(s² + v), and if it becomes the best, `horizon` intervals gain. One
//!    interval at it costs what it is worse than the target, and a toll for the way there and back:
//!
//!    ```text
//!    horizon · s̃·f((m − m* − 1 %)/s̃)  −  (m_target − m)⁺  −  2 % · |ln N/N_target|
//!    ```
//!
//!    f(z) is the mean of what a normal variable of mean z and deviation 1 is above 0. (Frazier,
//!    Powell and Dayanik, 2008, call the first term the knowledge gradient.) The level with the most
//!    is looked at, if that is above 0.
//! 3. Otherwise **the target**: the lowest level that is believed to be within `loss` of the best.
//!
//! # Example
//! Noise of 5 %, v = 0.0025. The target is the best, and a level at a distance of 0.3 is believed to
//! be 3 % worse, give or take 10 %: s̃ = 0.01/√0.0125 = 0.089, f(−0.04/0.089) = f(−0.45) = 0.23, and
//! 40·0.089·0.23 = 0.82 is more than 0.03 + 0.006. Seen four times it is known within 2.4 %, about as
//! bad as before: s̃ = 0.0006/0.055 = 0.011, f(−3.6) = 0.001, 40·0.011·0.001 = 0.0004, and it is left.

use super::ScalabilitySettings;
use super::levels::{Belief, COUNT, Prediction, index_of, level_of};
use crate::controller::whole;
use crate::{Bounds, Mpl};

/// Standard deviations by which a level is clearly worse.
const CLEARLY: f64 = 2.0;

/// Gain below which a better level is not worth finding, in ln X.
const MARGIN: f64 = 0.01;

/// Cost of going to a level e times as high or low for an interval, in ln X.
const TOLL: f64 = 0.02;

/// Cells beyond those seen that are looked at.
const BEYOND: usize = 2;

/// The highest number of cells that a patrol goes away.
const PATROL_MAX: f64 = 16.0;

/// What is known when a limit is chosen.
pub(super) struct Search<'a> {
    pub(super) belief: &'a Belief,
    /// The lowest and the highest cell seen well enough.
    pub(super) seen: (usize, usize),
    /// Variance of ln X from one interval to the next.
    pub(super) noise: f64,
    pub(super) allowed: Bounds,
    pub(super) settings: &'a ScalabilitySettings,
}

/// A limit that could be chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) limit: Mpl,
    pub(super) believed: Prediction,
}

fn level(limit: Mpl) -> f64 {
    f64::from(limit.get())
}

impl Search<'_> {
    fn candidate(&self, limit: Mpl) -> Candidate {
        Candidate { limit, believed: self.belief.at(level(limit)) }
    }

    /// The way to go while the top may lie outside what was seen.
    pub(super) fn outward(&self) -> Option<Mpl> {
        let (low, high) = (level_of(self.seen.0), level_of(self.seen.1));
        let cells = (self.seen.0..=self.seen.1).map(|index| self.candidate(level_of(index)));
        let best = cells.max_by(|a, b| a.believed.mean.total_cmp(&b.believed.mean))?;
        let is_clearly_worse = |limit: Mpl| {
            let worse = self.belief.at(level(limit));
            let sd = (worse.variance + best.believed.variance).sqrt();
            limit != best.limit && worse.mean + CLEARLY * sd < best.believed.mean
        };
        let at = |level: f64| self.allowed.clamp(Mpl::at_least_one(whole(level.round())));
        let down = at(level(low) / self.settings.reach);
        let up = at(level(high) * self.settings.reach);
        let promised = self.belief.law_at(level(up)) - self.belief.law_at(level(high));
        let can_down = index_of(level(down)) < self.seen.0 && !is_clearly_worse(low);
        let can_up = index_of(level(up)) > self.seen.1
            && !is_clearly_worse(high)
            && promised > self.settings.loss;
        // With both ways open, first the one on which there is more to see.
        let above = level(self.allowed.max()) / level(high);
        let below = level(low) / level(self.allowed.min());
        match (can_down, can_up) {
            (true, true) => Some(if above > below { up } else { down }),
            (true, false) => Some(down),
            (false, true) => Some(up),
            (false, false) => None,
        }
    }

    /// The limits between those seen and a little beyond.
    fn candidates(&self) -> Vec<Candidate> {
        let least = index_of(level(self.allowed.min()));
        let most = index_of(level(self.allowed.max()));
        let low = self.seen.0.saturating_sub(BEYOND).clamp(least, most);
        let high = (self.seen.1 + BEYOND).clamp(least, most);
        (low..=high).map(|index| self.candidate(self.allowed.clamp(level_of(index)))).collect()
    }

    /// The target, and another limit that is worth a look before.
    pub(super) fn target(&self) -> (Candidate, Option<Candidate>) {
        let candidates = self.candidates();
        let peak =
            candidates.iter().map(|each| each.believed.mean).fold(f64::NEG_INFINITY, f64::max);
        let is_enough = |each: &&Candidate| each.believed.mean >= peak - self.settings.loss;
        let lowest = self.candidate(self.allowed.min());
        let target = candidates.iter().find(is_enough).copied().unwrap_or(lowest);
        let worth = |each: &Candidate| self.worth(each, &target, peak);
        let others = candidates.iter().filter(|each| each.limit != target.limit);
        let most = others.map(|each| (worth(each), *each)).max_by(|a, b| a.0.total_cmp(&b.0));
        (target, most.filter(|(worth, _)| *worth > 0.0).map(|(_, each)| each))
    }

    /// What a look at a limit is worth, in ln X of an interval.
    fn worth(&self, each: &Candidate, target: &Candidate, peak: f64) -> f64 {
        let Prediction { mean, variance } = each.believed;
        let learnt = variance / (variance + self.noise).sqrt();
        let gain = learnt * mean_above_zero((mean - peak - MARGIN) / learnt);
        let way = (level(each.limit) / level(target.limit)).ln().abs();
        self.settings.horizon * gain - (target.believed.mean - mean).max(0.0) - TOLL * way
    }

    /// A limit beside `target`, drawn so that one at least k cells away has a chance of 1/k².
    pub(super) fn beside(&self, target: Mpl, draw: f64) -> Mpl {
        let is_up = draw < 0.5;
        let rest = (2.0 * draw).fract();
        let cells = (1.0 / rest).min(PATROL_MAX);
        let cells = usize::try_from(whole(cells)).unwrap_or(1);
        let index = index_of(level(target));
        let index =
            if is_up { (index + cells).min(COUNT - 1) } else { index.saturating_sub(cells) };
        self.allowed.clamp(level_of(index))
    }
}

/// The mean of what a normal variable of mean z and deviation 1 is above 0: z·Φ(z) + φ(z), with the
/// logistic curve that is nearest to Φ. Its heavier tail suits a belief that is only roughly right.
fn mean_above_zero(z: f64) -> f64 {
    const LOGISTIC: f64 = 1.702;
    (LOGISTIC * z).exp().ln_1p() / LOGISTIC
}

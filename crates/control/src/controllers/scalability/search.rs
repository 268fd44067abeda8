//! Where to go next, given what is believed of all levels.
//!
//! # Mechanism
//! Three questions, in this order:
//!
//! 1. **Is the top between the lowest and the highest level seen?** If the lowest is not clearly
//!    worse than the best, go down from it by the factor `reach`; if the highest is not, and the
//!    law promises more beyond, go up from it by the same. Clearly is by two standard deviations.
//!    So no extrapolation is trusted: the law only says whether it is worth looking.
//! 2. **Is another level worth a look?** A level with m and s, mean and standard deviation of its
//!    ln X, may turn out better than the best mean m* there is. Seen once with noise of variance v,
//!    its mean moves by about s̃ = s²/√(s² + v), and if it becomes the best, `horizon` intervals
//!    gain. One interval at it costs what it is worse than the target, and a toll for the way there
//!    and back:
//!
//!    ```text
//!    horizon · s̃·f((m − m* − 1 %)/s̃)  −  (m_target − m)⁺  −  2 % · |ln N/N_target|
//!    ```
//!
//!    f(z) is the mean of what a normal variable of mean z and deviation 1 is above 0. (Frazier,
//!    Powell and Dayanik, 2008, call the first term the knowledge gradient.) The level with the
//!    most is looked at, if that is above 0.
//! 3. Otherwise **the target**: the lowest level that is believed to be within `loss` of the best,
//!    where the best is taken a quarter of a standard deviation lower than it is believed to be.
//!
//! # Example
//! Noise of 5 %, v = 0.0025. The target is the best, and a level at a distance of 0.3 in ln N is
//! believed to be 3 % worse, give or take 10 %: s̃ = 0.01/√0.0125 = 0.089, f(−0.04/0.089) =
//! f(−0.45) = 0.23, and 40·0.089·0.23 = 0.81 is more than 0.03 + 0.006, so it is looked at. Seen
//! four times it is known within 2.4 %, and if it is still as bad, s̃ = 0.0006/0.056 = 0.011,
//! f(−3.8) = 0.001 and 40·0.011·0.001 = 0.0004 is less, so it is left.

use super::ScalabilitySettings;
use super::levels::{COUNT, LevelBelief, LevelPrediction, index_of, level_of};
use crate::controller::whole;
use crate::{Bounds, Mpl};

/// Standard deviations by which a level is clearly worse.
const CLEARLY: f64 = 2.0;

/// Standard deviations by which the best is taken to be less than it is believed to be.
const SURE: f64 = 0.25;

/// Gain below which a better level is not worth finding, in ln X.
const MARGIN: f64 = 0.01;

/// Cost of going to a level e times as high or low for an interval, in ln X.
const TOLL: f64 = 0.02;

/// Cells beyond those seen that are looked at.
const BEYOND: usize = 2;

/// The highest number of cells that a patrol goes away.
const PATROL_MAX: f64 = 16.0;

/// What is known when a limit is chosen.
pub(super) struct LimitSearch<'a> {
    pub(super) belief: &'a LevelBelief,
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
    pub(super) believed: LevelPrediction,
}

fn level(limit: Mpl) -> f64 {
    f64::from(limit.get())
}

impl LimitSearch<'_> {
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
        // Of many levels that are equal, one is believed to be better than the others.
        let sure = |each: &Candidate| each.believed.mean - SURE * each.believed.variance.sqrt();
        let proven = candidates.iter().map(sure).fold(f64::NEG_INFINITY, f64::max);
        let is_enough = |each: &&Candidate| each.believed.mean >= proven - self.settings.loss;
        let lowest = self.candidate(self.allowed.min());
        let target = candidates.iter().find(is_enough).copied().unwrap_or(lowest);
        let worth = |each: &Candidate| self.worth(each, &target, peak);
        let others = candidates.iter().filter(|each| each.limit != target.limit);
        let most = others.map(|each| (worth(each), *each)).max_by(|a, b| a.0.total_cmp(&b.0));
        (target, most.filter(|(worth, _)| *worth > 0.0).map(|(_, each)| each))
    }

    /// What a look at a limit is worth, in ln X of an interval.
    fn worth(&self, each: &Candidate, target: &Candidate, peak: f64) -> f64 {
        let LevelPrediction { mean, variance } = each.believed;
        let learnt = variance / (variance + self.noise).sqrt();
        let gain = learnt * mean_above_zero((mean - peak - MARGIN) / learnt);
        let way = libm::log(level(each.limit) / level(target.limit)).abs();
        self.settings.horizon * gain - (target.believed.mean - mean).max(0.0) - TOLL * way
    }

    /// A limit beside `target`, at least two cells away, drawn so that k + 1 cells or more have a
    /// chance of 1/k².
    pub(super) fn beside(&self, target: Mpl, draw: f64) -> Mpl {
        let is_up = draw < 0.5;
        let rest = (2.0 * draw).fract();
        let cells = (1.0 + 1.0 / rest.sqrt()).min(PATROL_MAX);
        let cells = whole(cells) as usize;
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
    libm::log1p(libm::exp(LOGISTIC * z)) / LOGISTIC
}

#[cfg(test)]
mod tests {
    use super::super::levels::LevelGrid;
    use super::*;
    use crate::testing::bounds;

    const SETTINGS: &ScalabilitySettings = &ScalabilitySettings::PROXY;

    /// Levels and their throughput.
    type SeenLevels = &'static [(f64, f64)];

    struct KnownLevels {
        belief: LevelBelief,
        seen: (usize, usize),
    }

    impl KnownLevels {
        /// Each of these seen four times, with noise of 1 %.
        fn of(seen: &[(f64, f64)]) -> KnownLevels {
            let mut levels = LevelGrid::new();
            for &(level, tps) in seen {
                (0..4).for_each(|_| levels.learn(level, libm::log(tps), 0.0));
            }
            let seen = levels.seen(1e-4, 0.01).expect("some levels");
            KnownLevels { belief: levels.believe(1e-4).expect("some levels"), seen }
        }

        fn search(&self, min: u32, max: u32) -> LimitSearch<'_> {
            let allowed = bounds(min, max);
            LimitSearch {
                belief: &self.belief,
                seen: self.seen,
                noise: 1e-4,
                allowed,
                settings: SETTINGS,
            }
        }
    }

    #[test]
    fn the_way_out_is_where_the_top_may_be() {
        let all = 1_000;
        let table: [(SeenLevels, u32, Option<u32>, &str); 8] = [
            (&[(8.0, 100.0)], all, Some(24), "one level: the wider side, up"),
            (&[(100.0, 100.0)], all, Some(36), "one level: the wider side, down; its cell is 108"),
            (&[(8.0, 100.0)], 8, Some(3), "no way up"),
            (&[(1.0, 100.0)], 2, Some(2), "no further than allowed"),
            (&[(1.0, 100.0), (8.0, 700.0)], all, Some(24), "rising"),
            (&[(8.0, 700.0), (64.0, 300.0)], all, Some(3), "falling"),
            (&[(1.0, 500.0), (8.0, 500.0)], all, None, "level: nothing is promised above"),
            (&[(1.0, 100.0), (8.0, 500.0), (64.0, 200.0)], all, None, "the top is between"),
        ];
        for (seen, max, expected, case) in table {
            let way = KnownLevels::of(seen).search(1, max).outward();
            assert_eq!(way.map(Mpl::get), expected, "{case}");
        }
    }

    /// Every level of the grid was seen, so there is nothing to look for: 980 of 1,000 is enough,
    /// 979 is not.
    #[test]
    fn the_target_is_the_lowest_limit_that_gives_nearly_the_best() {
        for (third, expected) in [(985.0, 3), (975.0, 4)] {
            let seen = [
                (1.0, 500.0),
                (2.0, 800.0),
                (3.0, third),
                (4.0, 1_000.0),
                (5.0, 1_000.0),
                (6.0, 700.0),
            ];
            let (target, _) = KnownLevels::of(&seen).search(1, 1_000).target();
            assert_eq!(target.limit.get(), expected, "{third}");
        }
    }

    /// 8 and 64 are equal, and nothing between was seen.
    #[test]
    fn a_gap_about_the_top_is_looked_into() {
        let seen = [(1.0, 100.0), (8.0, 700.0), (64.0, 700.0), (500.0, 100.0)];
        let (target, look) = KnownLevels::of(&seen).search(1, 1_000).target();
        let look = look.expect("something to find").limit.get();
        assert!((9..64).contains(&look), "{look}");
        assert!((8..64).contains(&target.limit.get()), "{target:?}");
    }

    #[test]
    fn what_is_known_to_be_worse_is_not_looked_at() {
        let seen: Vec<(f64, f64)> = (1..=8)
            .map(|level| (f64::from(level), 1_000.0 - 100.0 * f64::from((level - 3_i32).abs())))
            .collect();
        let (target, look) = KnownLevels::of(&seen).search(1, 8).target();
        assert_eq!((target.limit.get(), look), (3, None));
    }

    /// Draws below a half go up, others down; of the rest, 1 is two cells away, 1/4 three cells,
    /// 1/9 four, and nothing more than sixteen. The cells about 64 are 27, 32, 38, 45, 54, 64, 76,
    /// 91, 108, 128 and 152.
    #[test]
    fn a_patrol_is_drawn_mostly_near() {
        let table =
            [(0.49, 91), (0.12, 108), (0.05, 128), (0.99, 45), (0.62, 38), (0.55, 32), (0.5, 4)];
        for (draw, expected) in table {
            let known = KnownLevels::of(&[(64.0, 100.0)]);
            let limit = known.search(1, 1_000).beside(Mpl::at_least_one(64), draw).get();
            assert_eq!(limit, expected, "{draw}");
        }
    }

    /// z·Φ(z) + φ(z) from tables: 0.3989 at 0, 0.0833 at −1, 1.0833 at 1.
    #[test]
    fn the_mean_above_zero_is_nearly_that_of_the_normal_distribution() {
        for (z, mean) in [(0.0, 0.3989), (-1.0, 0.0833), (1.0, 1.0833), (5.0, 5.0)] {
            assert!((mean_above_zero(z) - mean).abs() < 0.02, "{z}: {}", mean_above_zero(z));
        }
        assert!(mean_above_zero(f64::NEG_INFINITY).abs() < f64::EPSILON);
    }
}

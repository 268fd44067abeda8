//! What was seen at which level, and what to believe of all levels.
//!
//! # Mechanism
//! Levels lie on a grid: every whole number up to 8, then four to an octave, 124 for all there are.
//! A cell of the grid keeps the mean of ln X of the readings next to it and how many they were, so
//! that its variance follows what is known of the noise now. The memory is bounded however long a
//! limit is held, and what was seen long ago at other levels is not crowded out.
//!
//! What is believed is the law that fits the cells best, plus a smooth difference from it, for no
//! database keeps to the law: ln X(N) = ln law(N) + s(N)·g(N). s is the size of the difference:
//!
//! ```text
//! s(N) = 0.1 + 0.4/N       correlation of g at N and M: exp(−|x(N) − x(M)|), x(N) = ln N − 2/N
//! ```
//!
//! so that next to a level that was seen the difference seen there is believed, and further away
//! the law. One transaction more or less is a larger step for 2 than for 100, and a database may
//! have a corner there, one transaction for each processor, hence the terms with 1/N. g is a
//! Markov process along the grid, so a Kalman filter up the grid and a smoother down again
//! (Rauch, Tung and Striebel, 1965) give its mean and variance at every level exactly, with a few
//! operations for each cell.
//!
//! # Example
//! One reading of ln X = 7.0 at 91, with noise of variance 0.0025, where the law says 6.9. s² =
//! (0.1 + 0.4/91)² = 0.0109: of the difference of 0.1 the share 0.0109/(0.0109 + 0.0025) = 81 % is
//! believed. At 128 the correlation is exp(−0.348) = 0.71, and 57 % of the difference is.

use super::law::{Law, LawPoint};
use crate::Mpl;
use crate::controller::whole;

/// Cells of the grid: 8, and four for each of the 29 octaves up to the highest level.
pub(super) const COUNT: usize = 124;

/// Levels up to this have a cell each.
const SINGLE: usize = 8;

/// Cells of an octave beyond.
const PER_OCTAVE: f64 = 4.0;

/// Weight below which a cell knows nothing.
const UNKNOWN: f64 = 1e-6;

/// Variance of a usual reading, beside which its own is counted.
const USUAL: f64 = 0.0025;

/// Standard deviation of ln X about the law at high levels, and what is added to it at 1.
const MISFIT: f64 = 0.1;
const CORNER: f64 = 0.4;

/// How fast a difference from the law is forgotten in 1/N.
const CORNER_LENGTH: f64 = 2.0;

/// One cell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct LevelCell {
    /// Readings, each the less the larger its own variance is.
    weight: f64,
    /// Mean of their own variances.
    own: f64,
    ln_level: f64,
    ln_tps: f64,
}

/// Everything that was seen.
#[derive(Clone, Debug)]
pub(super) struct LevelGrid {
    cells: [LevelCell; COUNT],
}

/// What is believed of all levels.
#[derive(Clone, Debug)]
pub(super) struct LevelBelief {
    law: Law,
    /// Mean and variance of g at each cell.
    mean: [f64; COUNT],
    variance: [f64; COUNT],
}

/// What is believed of ln X at one level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LevelPrediction {
    pub(super) mean: f64,
    pub(super) variance: f64,
}

/// The level at the middle of a cell.
pub(super) fn level_of(index: usize) -> Mpl {
    let above = index as f64 + 1.0 - SINGLE as f64;
    let level = if above < 0.0 {
        index as f64 + 1.0
    } else {
        SINGLE as f64 * libm::exp2(above / PER_OCTAVE)
    };
    Mpl::at_least_one(whole(level.round()))
}

/// The cell of a level; the first for what is no level.
pub(super) fn index_of(level: f64) -> usize {
    let single = SINGLE as f64;
    let index = if level < single + 0.5 {
        level - 1.0
    } else {
        single - 1.0 + PER_OCTAVE * libm::log2(level / single)
    };
    usize::try_from(whole(index.round())).map_or(COUNT - 1, |index| index.min(COUNT - 1))
}

/// Variance of ln X about the law.
pub(super) fn misfit(level: f64) -> f64 {
    (MISFIT + CORNER / level).powi(2)
}

/// The place of a level on the line along which g is forgotten.
fn place(level: f64) -> f64 {
    libm::log(level) - CORNER_LENGTH / level
}

fn middle(index: usize) -> f64 {
    f64::from(level_of(index).get())
}

impl LevelGrid {
    pub(super) fn new() -> LevelGrid {
        LevelGrid { cells: [LevelCell::default(); COUNT] }
    }

    /// Lets an interval pass: everything known is worth `share` of what it was.
    pub(super) fn fade(&mut self, share: f64) {
        for cell in &mut self.cells {
            cell.weight *= share;
        }
    }

    /// The database has become faster at all levels, by so much in ln X.
    pub(super) fn shift(&mut self, by: f64) {
        for cell in &mut self.cells {
            cell.ln_tps += by;
        }
    }

    /// Learns what was seen at a level, with a variance of its own beside that of the noise.
    pub(super) fn learn(&mut self, level: f64, ln_tps: f64, own: f64) {
        let cell = &mut self.cells[index_of(level)];
        let weight = 1.0 / (1.0 + own / USUAL);
        cell.weight += weight;
        let share = weight / cell.weight;
        cell.own += (own - cell.own) * share;
        cell.ln_level += (libm::log(level) - cell.ln_level) * share;
        cell.ln_tps += (ln_tps - cell.ln_tps) * share;
    }

    /// The lowest and the highest cell whose mean has a variance of at most `most`.
    pub(super) fn seen(&self, noise: f64, most: f64) -> Option<(usize, usize)> {
        let is_seen = |cell: &LevelCell| cell.variance(noise) <= most;
        Some((self.cells.iter().position(is_seen)?, self.cells.iter().rposition(is_seen)?))
    }

    /// What to believe of all levels; nothing before anything was seen. A level counts for the fit
    /// in proportion to its throughput: it matters little how badly a bad level fits.
    pub(super) fn believe(&self, noise: f64) -> Option<LevelBelief> {
        let known = || self.cells.iter().filter(|cell| cell.weight > UNKNOWN);
        let best = known().map(|cell| cell.ln_tps).fold(f64::NEG_INFINITY, f64::max);
        let point = |cell: &LevelCell| LawPoint {
            ln_level: cell.ln_level,
            ln_tps: cell.ln_tps,
            weight: libm::exp(cell.ln_tps - best)
                / (misfit(libm::exp(cell.ln_level)) + cell.variance(noise)),
        };
        let points: Vec<LawPoint> = known().map(point).collect();
        let law = Law::fit(&points)?;
        let (mean, variance) = self.smooth(&law, noise);
        Some(LevelBelief { law, mean, variance })
    }

    /// Mean and variance of g at each cell.
    fn smooth(&self, law: &Law, noise: f64) -> ([f64; COUNT], [f64; COUNT]) {
        let (mut mean, mut variance) = ([0.0; COUNT], [1.0; COUNT]);
        // What the cells below say of a cell, before its own.
        let (mut ahead_mean, mut ahead_variance) = ([0.0; COUNT], [1.0; COUNT]);
        let mut keep = [0.0; COUNT];
        for index in 0..COUNT {
            if index > 0 {
                keep[index] = libm::exp(place(middle(index - 1)) - place(middle(index)));
                ahead_mean[index] = keep[index] * mean[index - 1];
                ahead_variance[index] = 1.0 + keep[index].powi(2) * (variance[index - 1] - 1.0);
            }
            (mean[index], variance[index]) =
                self.cells[index].correct(law, noise, ahead_mean[index], ahead_variance[index]);
        }
        for index in (0..COUNT - 1).rev() {
            let gain = variance[index] * keep[index + 1] / ahead_variance[index + 1];
            mean[index] += gain * (mean[index + 1] - ahead_mean[index + 1]);
            variance[index] += gain.powi(2) * (variance[index + 1] - ahead_variance[index + 1]);
        }
        (mean, variance)
    }
}

impl LevelCell {
    /// Variance of the mean, given that of the noise.
    fn variance(&self, noise: f64) -> f64 {
        (noise + self.own) / (self.weight * (1.0 + self.own / USUAL))
    }

    /// Mean and variance of g here, after what was seen here.
    fn correct(&self, law: &Law, noise: f64, mean: f64, variance: f64) -> (f64, f64) {
        if self.weight <= UNKNOWN {
            return (mean, variance);
        }
        let size = misfit(libm::exp(self.ln_level));
        let seen = (self.ln_tps - law.ln_tps(self.ln_level)) / size.sqrt();
        let gain = variance / (variance + self.variance(noise) / size);
        (mean + gain * (seen - mean), variance * (1.0 - gain))
    }
}

impl LevelBelief {
    /// What is believed of a level.
    pub(super) fn at(&self, level: f64) -> LevelPrediction {
        let (index, size) = (index_of(level), misfit(level));
        LevelPrediction {
            mean: self.law.ln_tps(libm::log(level)) + self.mean[index] * size.sqrt(),
            variance: self.variance[index] * size,
        }
    }

    /// ln X at a level as the law alone has it.
    pub(super) fn law_at(&self, level: f64) -> f64 {
        self.law.ln_tps(libm::log(level))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_has_a_cell_whose_middle_is_near() {
        let levels: Vec<u32> = (0..22).map(|index| level_of(index).get()).collect();
        let expected =
            [1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 13, 16, 19, 23, 27, 32, 38, 45, 54, 64, 76, 91];
        assert_eq!(levels, expected);
        assert_eq!(level_of(COUNT - 1).get(), u32::MAX);
        for index in 0..COUNT {
            assert_eq!(index_of(middle(index)), index);
        }
        for (level, index) in [(f64::NAN, 0), (-1.0, 0), (0.0, 0), (1.4, 0), (f64::MAX, 123)] {
            assert_eq!(index_of(level), index, "{level}");
        }
    }

    const NOISE: f64 = 1e-4;

    /// Levels 1, 3, 10, 32 and 100 on a straight rise of 100 tps each, so that the law fits, and
    /// `more` than that in ln X at 100.
    fn rise(more: f64) -> LevelGrid {
        let mut levels = LevelGrid::new();
        for level in [1.0_f64, 3.0, 10.0, 32.0] {
            levels.learn(level, libm::log(100.0 * level), 0.0);
        }
        levels.learn(100.0, libm::log(1e4) + more, 0.0);
        levels
    }

    #[test]
    fn what_was_seen_is_believed_near_it_and_the_law_far_away() {
        let belief = rise(-0.3).believe(NOISE).expect("five levels");
        let off = |level: f64| belief.at(level).mean - belief.law_at(level);
        assert!((belief.at(100.0).mean - (libm::log(1e4) - 0.3)).abs() < 0.02);
        assert!(off(100.0) < off(128.0) && off(128.0) < off(256.0) && off(256.0) < 0.0);
        assert!(off(1e6).abs() < 1e-3, "{}", off(1e6));
        let sd = |level: f64| belief.at(level).variance.sqrt();
        assert!(sd(100.0) < 0.011 && sd(128.0) > 0.05 && sd(1e6) > 0.099);
    }

    /// The example of the module's head: 81 % and 57 %.
    #[test]
    fn a_difference_is_believed_as_far_as_it_is_known() {
        let mut levels = LevelGrid::new();
        levels.learn(91.0, 7.0, 0.0);
        let point = LawPoint { ln_level: libm::log(91.0), ln_tps: 6.9, weight: 1.0 };
        let law = Law::fit(&[point]).expect("a level");
        let (mean, _) = levels.smooth(&law, 0.0025);
        let share = |level: f64| mean[index_of(level)] * misfit(91.0).sqrt() / 0.1;
        assert!((share(91.0) - 0.81).abs() < 0.005, "{}", share(91.0));
        assert!((share(128.0) - 0.57).abs() < 0.01, "{}", share(128.0));
    }

    /// A reading with the usual variance of its own counts half.
    #[test]
    fn a_cell_keeps_the_weighted_mean() {
        let mut levels = LevelGrid::new();
        let index = index_of(100.0);
        levels.learn(100.0, 5.0, 0.0);
        levels.learn(100.0, 8.0, USUAL);
        let mean = |levels: &LevelGrid| levels.cells[index].ln_tps;
        assert!((mean(&levels) - 6.0).abs() < 1e-12);
        assert!((levels.cells[index].weight - 1.5).abs() < 1e-12);
        levels.fade(0.5);
        levels.shift(0.25);
        assert!((mean(&levels) - 6.25).abs() < 1e-12);
        assert!((levels.cells[index].weight - 0.75).abs() < 1e-12);
    }

    /// Four readings with noise of 0.04 have a mean of variance 0.01, and of 0.0025 when the noise
    /// turns out to be 0.01. Counted from one completion, a reading has a variance of 1 of its own.
    #[test]
    fn the_variance_of_a_cell_follows_the_noise() {
        let mut levels = LevelGrid::new();
        (0..4).for_each(|_| levels.learn(100.0, 5.0, 0.0));
        levels.learn(1.0, 0.0, 1.0);
        let (low, index) = (index_of(1.0), index_of(100.0));
        assert_eq!(levels.seen(0.04, 0.0101), Some((index, index)));
        assert_eq!(levels.seen(0.04, 0.0099), None);
        assert_eq!(levels.seen(0.01, 0.0026), Some((index, index)));
        assert_eq!(levels.seen(0.01, 1.02), Some((low, index)));
    }

    #[test]
    fn nothing_seen_is_nothing_believed() {
        assert!(LevelGrid::new().believe(NOISE).is_none());
    }
}

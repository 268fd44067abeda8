//! The posterior of the true throughputs: a chain of steps on a grid, filtered forwards and drawn
//! backwards, for each value of the noise between executions.

use tidegate_control::SplitMix64;

use super::super::curve::Rule;
use super::{LevelSample, outcome};

/// The scale of small steps.
const SMALL: f64 = 0.04;
/// The mean of rises, and their probability.
const RISE: f64 = 0.4;
const RISE_CHANCE: f64 = 0.15;
/// The mean of falls, and the probability that a curve has one.
const FALL: f64 = 0.5;
const FALLING_CURVES: f64 = 0.5;

/// Degrees of freedom of an execution's error.
const FREEDOM: f64 = 5.0;
/// The noise between executions: the median of its prior, and the ends and size of its grid.
const NOISE_MEDIAN: f64 = 0.05;
const NOISE_LOW: f64 = 0.005;
const NOISE_HIGH: f64 = 0.5;
const NOISE_CELLS: u32 = 11;

/// Cells of the grid to the threshold of the rule: a whole number and a half.
const CELLS_TO_THRESHOLD: f64 = 12.5;
/// How far the grid goes beyond the executions at both ends.
const MARGIN: f64 = 0.25;
/// The least share of the highest level that counts as such.
const FLOOR: f64 = 0.01;
/// Cells whose probability is below this share of the largest pass on nothing.
const NEGLIGIBLE: f64 = 1e-13;

/// The prior of the steps between the logarithms of neighbouring levels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    fall_chance: f64,
}

impl Steps {
    /// Returns the prior for curves with so many levels.
    pub(super) fn new(levels: usize) -> Steps {
        let steps = levels.saturating_sub(1).max(1) as f64;
        Steps { fall_chance: 1.0 - (1.0 - FALLING_CURVES).powf(1.0 / steps) }
    }

    /// Draws a step.
    pub(super) fn draw(self, random: &mut SplitMix64) -> f64 {
        let which = random.next_draw().value();
        let size = random.next_exponential();
        if which < self.fall_chance {
            -FALL * size
        } else if which < self.fall_chance + RISE_CHANCE {
            RISE * size
        } else if random.next_chance(0.5) {
            SMALL * size
        } else {
            -SMALL * size
        }
    }

    /// Returns the probability of a step of at most `step`.
    fn below(self, step: f64) -> f64 {
        let small = 1.0 - self.fall_chance - RISE_CHANCE;
        if step < 0.0 {
            self.fall_chance * (step / FALL).exp() + small * 0.5 * (step / SMALL).exp()
        } else {
            let risen = RISE_CHANCE * (1.0 - (-step / RISE).exp());
            self.fall_chance + risen + small * (1.0 - 0.5 * (-step / SMALL).exp())
        }
    }
}

/// The grid, and the executions on it.
pub(super) struct Chain<'a> {
    levels: &'a [&'a LevelSample],
    /// The logarithms of the executions' throughputs over the highest level's, sorted, by level.
    logs: Vec<Vec<f64>>,
    cell: f64,
    low: f64,
    cells: usize,
    /// The probability of a step of `k − (cells − 1)` cells at place `k`.
    kernel: Vec<f64>,
}

/// What is known for one value of the noise.
struct Filtered {
    noise: f64,
    log_evidence: f64,
    /// For each level the probability of each cell, given the executions up to it.
    forward: Vec<Vec<f64>>,
}

impl<'a> Chain<'a> {
    pub(super) fn new(rule: Rule, levels: &'a [&'a LevelSample], steps: Steps) -> Chain<'a> {
        let top = levels.iter().map(|level| mean(&level.tps)).fold(0.0, f64::max);
        let log = |&tps: &f64| {
            assert!(tps.is_finite() && tps >= 0.0, "{tps} tps is no throughput");
            // Where nothing was completed at any level all are alike.
            if top > 0.0 { (tps / top).max(FLOOR).ln() } else { 0.0 }
        };
        let sorted = |level: &&LevelSample| {
            assert!(!level.tps.is_empty(), "MPL {} has no execution", level.mpl);
            let mut logs: Vec<f64> = level.tps.iter().map(log).collect();
            logs.sort_by(f64::total_cmp);
            logs
        };
        let logs: Vec<Vec<f64>> = levels.iter().map(sorted).collect();
        let all = || logs.iter().flatten().copied();
        let cell = rule.threshold().ln() / CELLS_TO_THRESHOLD;
        let low = all().fold(f64::INFINITY, f64::min) - MARGIN;
        let high = all().fold(f64::NEG_INFINITY, f64::max) + MARGIN;
        let cells = whole((high - low) / cell) + 1;
        let edge = |place: usize| (place as f64 - cells as f64 + 0.5) * cell;
        let mass = |place: usize| steps.below(edge(place + 1)) - steps.below(edge(place));
        let kernel = (0..2 * cells - 1).map(mass).collect();
        Chain { levels, logs, cell, low, cells, kernel }
    }

    /// Draws paths from the posterior. Returns how many have each outcome, and the mean of the
    /// noise between executions.
    pub(super) fn count_outcomes(
        &self,
        rule: Rule,
        draws: u32,
        random: &mut SplitMix64,
    ) -> (Vec<u32>, f64) {
        let grid = f64::from(NOISE_CELLS - 1);
        let ratio = (NOISE_HIGH / NOISE_LOW).ln() / grid;
        let noises = (0..NOISE_CELLS).map(|place| NOISE_LOW * (f64::from(place) * ratio).exp());
        let filtered: Vec<Filtered> = noises.map(|noise| self.filter(noise)).collect();
        let weights = normalised(&filtered);
        let mut counts = vec![0; self.levels.len()];
        let mut done = 0;
        let mut before = 0.0;
        for (one, weight) in filtered.iter().zip(&weights) {
            before += weight;
            // Systematic: so many of the draws as the noise has probability, to a draw.
            let until =
                if before > 1.0 - 1e-12 { f64::from(draws) } else { before * f64::from(draws) };
            let mut sampler = Sampler::new(self, one);
            while f64::from(done) + 0.5 < until {
                counts[outcome(rule, sampler.draw(random))] += 1;
                done += 1;
            }
        }
        assert_eq!(done, draws, "the probabilities of the noise are not 1 together");
        let noise = filtered.iter().zip(&weights).map(|(one, weight)| one.noise * weight).sum();
        (counts, noise)
    }

    fn filter(&self, noise: f64) -> Filtered {
        let mut log_evidence = -0.5 * (noise / NOISE_MEDIAN).ln().powi(2);
        let mut forward: Vec<Vec<f64>> = Vec::with_capacity(self.levels.len());
        for place in 0..self.levels.len() {
            let logs = self.log_likelihood(place, noise);
            let best = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let mut now = match forward.last() {
                None => vec![1.0 / self.cells as f64; self.cells],
                Some(before) => self.step(before),
            };
            for (cell, log) in now.iter_mut().zip(&logs) {
                *cell *= (log - best).exp();
            }
            let sum: f64 = now.iter().sum();
            // The tails of Student's t and of the steps are heavy: nothing underflows as a whole.
            assert!(sum > 0.0, "executions with no likelihood at all");
            for cell in &mut now {
                *cell /= sum;
            }
            log_evidence += best + sum.ln();
            forward.push(now);
        }
        Filtered { noise, log_evidence, forward }
    }

    /// Returns the probability of each cell after a step from these.
    fn step(&self, before: &[f64]) -> Vec<f64> {
        let largest = before.iter().copied().fold(0.0, f64::max);
        let mut after = vec![0.0; self.cells];
        for (from, &weight) in before.iter().enumerate() {
            if weight > NEGLIGIBLE * largest {
                let steps = &self.kernel[self.cells - 1 - from..];
                for (cell, chance) in after.iter_mut().zip(steps) {
                    *cell += weight * chance;
                }
            }
        }
        after
    }

    /// Returns the logarithm of the likelihood of each cell by a level's executions. A cell stands
    /// for all throughputs in it, whose variance is added.
    fn log_likelihood(&self, place: usize, noise: f64) -> Vec<f64> {
        let within = self.levels[place].variance_within;
        let scale2 = noise * noise + within + self.cell * self.cell / 12.0;
        let logs = &self.logs[place];
        let all = logs.len() as f64 * -0.5 * scale2.ln();
        let of_cell = |cell: usize| {
            let at = self.low + cell as f64 * self.cell;
            let of_log = |log: &f64| (1.0 + (log - at).powi(2) / (FREEDOM * scale2)).ln();
            all - 0.5 * (FREEDOM + 1.0) * logs.iter().map(of_log).sum::<f64>()
        };
        (0..self.cells).map(of_cell).collect()
    }
}

/// Draws paths backwards, for one value of the noise.
struct Sampler<'a> {
    chain: &'a Chain<'a>,
    forward: &'a [Vec<f64>],
    /// For each level but the last and each cell of the next, the sums of the weights of its cells
    /// where that next cell has been drawn.
    sums: Vec<Vec<Vec<f64>>>,
    last: Vec<f64>,
    path: Vec<f64>,
}

impl<'a> Sampler<'a> {
    fn new(chain: &'a Chain<'a>, filtered: &'a Filtered) -> Sampler<'a> {
        let levels = filtered.forward.len();
        Sampler {
            chain,
            forward: &filtered.forward,
            sums: vec![vec![Vec::new(); chain.cells]; levels - 1],
            last: sums(filtered.forward[levels - 1].iter().copied()),
            path: vec![0.0; levels],
        }
    }

    /// Returns a path of throughputs, over that of the lowest cell.
    fn draw(&mut self, random: &mut SplitMix64) -> &[f64] {
        let last = self.path.len() - 1;
        let mut cell = pick(&self.last, random);
        self.path[last] = self.tps(cell);
        for level in (0..last).rev() {
            let next = cell;
            if self.sums[level][next].is_empty() {
                let from = &self.forward[level];
                let steps = self.chain.kernel[next..next + self.chain.cells].iter().rev();
                let weights = from.iter().zip(steps).map(|(weight, chance)| weight * chance);
                self.sums[level][next] = sums(weights);
            }
            cell = pick(&self.sums[level][next], random);
            self.path[level] = self.tps(cell);
        }
        &self.path
    }

    fn tps(&self, cell: usize) -> f64 {
        (cell as f64 * self.chain.cell).exp()
    }
}

fn sums(weights: impl Iterator<Item = f64>) -> Vec<f64> {
    let add = |sum: &mut f64, weight: f64| {
        *sum += weight;
        Some(*sum)
    };
    weights.scan(0.0, add).collect()
}

/// Returns a place drawn by the weights that were summed up.
fn pick(sums: &[f64], random: &mut SplitMix64) -> usize {
    let all = sums.last().copied().unwrap_or(0.0);
    let at = random.next_draw().value() * all;
    // Rounding may put the draw at the end itself.
    sums.partition_point(|&sum| sum <= at).min(sums.len() - 1)
}

/// Returns the probabilities of the values of the noise.
fn normalised(filtered: &[Filtered]) -> Vec<f64> {
    let best = filtered.iter().map(|one| one.log_evidence).fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = filtered.iter().map(|one| (one.log_evidence - best).exp()).collect();
    let all: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / all).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the grid is from the floor to a few times the highest level"
)]
fn whole(number: f64) -> usize {
    number.ceil() as usize
}

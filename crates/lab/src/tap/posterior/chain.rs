//! The posterior of the true throughputs: a chain of steps on a grid, filtered forwards and drawn
//! backwards, for each value of the noise between executions.

use tidegate_control::SplitMix64;

use super::super::curve::Rule;
use super::{LevelSample, outcome};

/// The scale of small steps, and the means of rises and falls.
const SIZES: [f64; KINDS] = [0.04, 0.4, 0.5];
/// The probability that a curve has a fall after steps that were none.
const FALLING_CURVES: f64 = 0.5;
/// The probability that a rise comes first, after a small step, and after a rise.
const FIRST_RISE: f64 = 0.45;
const RISE: f64 = 0.08;
const FURTHER_RISE: f64 = 0.5;
/// The probabilities of the kinds of steps after a fall.
const AFTER_FALL: [f64; KINDS] = [0.55, 0.05, 0.4];

/// The kinds of steps: small ones, rises, falls.
const KINDS: usize = 3;
const SMALL: usize = 0;
const RISING: usize = 1;

/// Degrees of freedom of an execution's error.
const FREEDOM: f64 = 5.0;
/// The noise between executions: the median of its prior, the standard deviation of its logarithm,
/// and the ends and size of its grid.
const NOISE_MEDIAN: f64 = 0.05;
const NOISE_SPREAD: f64 = 0.8;
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
    /// The probability of a fall where the step before was none.
    fall: f64,
}

impl Steps {
    /// Returns the prior for curves with so many levels.
    pub(super) fn new(levels: usize) -> Steps {
        let steps = levels.saturating_sub(1).max(1) as f64;
        Steps { fall: 1.0 - libm::pow(1.0 - FALLING_CURVES, 1.0 / steps) }
    }

    /// Returns the probability of each kind of step after each kind, or of the first.
    fn chances(self, is_first: bool) -> [[f64; KINDS]; KINDS] {
        let after = |rise: f64| [1.0 - rise - self.fall, rise, self.fall];
        if is_first {
            [after(FIRST_RISE); KINDS]
        } else {
            [after(RISE), after(FURTHER_RISE), AFTER_FALL]
        }
    }

    /// Draws the steps of a curve, one after the other.
    pub(super) fn draw(
        self,
        count: usize,
        random: &mut SplitMix64,
    ) -> impl Iterator<Item = f64> + use<'_> {
        let mut before = None;
        let next = move |_| {
            let chances = self.chances(before.is_none())[before.unwrap_or(SMALL)];
            let kind = pick_kind(chances, random);
            before = Some(kind);
            let is_up = kind == RISING || kind == SMALL && random.next_chance(0.5);
            let size = SIZES[kind] * random.next_exponential();
            if is_up { size } else { -size }
        };
        (0..count).map(next)
    }
}

/// Returns the probability that a step of a kind is at most `step`.
fn below(kind: usize, step: f64) -> f64 {
    let tail = libm::exp(-step.abs() / SIZES[kind]);
    match (kind, step < 0.0) {
        (SMALL, true) => 0.5 * tail,
        (SMALL, false) => 1.0 - 0.5 * tail,
        (RISING, true) => 0.0,
        (RISING, false) => 1.0 - tail,
        (_, true) => tail,
        (_, false) => 1.0,
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
    steps: Steps,
    /// For each kind of step, the probability of one of `k − (cells − 1)` cells at place `k`.
    kernels: [Vec<f64>; KINDS],
}

/// A probability for each cell, by the kind of the step that led to it.
type ByKind = [Vec<f64>; KINDS];

/// What is known for one value of the noise.
struct Filtered {
    noise: f64,
    log_evidence: f64,
    /// For each level the probabilities given the executions up to it.
    forward: Vec<ByKind>,
}

impl<'a> Chain<'a> {
    pub(super) fn new(rule: Rule, levels: &'a [&'a LevelSample], steps: Steps) -> Chain<'a> {
        let top = levels.iter().map(|level| mean(&level.tps)).fold(0.0, f64::max);
        let log = |&tps: &f64| {
            assert!(tps.is_finite() && tps >= 0.0, "{tps} tps is no throughput");
            // Where nothing was completed at any level all are alike.
            if top > 0.0 { libm::log((tps / top).max(FLOOR)) } else { 0.0 }
        };
        let sorted = |level: &&LevelSample| {
            assert!(!level.tps.is_empty(), "MPL {} has no execution", level.mpl);
            let mut logs: Vec<f64> = level.tps.iter().map(log).collect();
            logs.sort_by(f64::total_cmp);
            logs
        };
        let logs: Vec<Vec<f64>> = levels.iter().map(sorted).collect();
        let all = || logs.iter().flatten().copied();
        let cell = libm::log(rule.threshold()) / CELLS_TO_THRESHOLD;
        let low = all().fold(f64::INFINITY, f64::min) - MARGIN;
        let high = all().fold(f64::NEG_INFINITY, f64::max) + MARGIN;
        let cells = whole((high - low) / cell) + 1;
        let edge = |place: usize| (place as f64 - cells as f64 + 0.5) * cell;
        let mass = |kind, place| below(kind, edge(place + 1)) - below(kind, edge(place));
        let kernels = [0, 1, 2].map(|kind| (0..2 * cells - 1).map(|at| mass(kind, at)).collect());
        Chain { levels, logs, cell, low, cells, steps, kernels }
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
        let ratio = libm::log(NOISE_HIGH / NOISE_LOW) / grid;
        let noises = (0..NOISE_CELLS).map(|place| NOISE_LOW * libm::exp(f64::from(place) * ratio));
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
        let away = libm::log(noise / NOISE_MEDIAN) / NOISE_SPREAD;
        let mut log_evidence = -0.5 * away * away;
        let mut forward: Vec<ByKind> = Vec::with_capacity(self.levels.len());
        for place in 0..self.levels.len() {
            let logs = self.log_likelihood(place, noise);
            let best = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let likelihood: Vec<f64> = logs.iter().map(|log| libm::exp(log - best)).collect();
            let mut now = match forward.last() {
                // No step led to the first level: its kind is never looked at.
                None => [vec![1.0 / self.cells as f64; self.cells], self.nowhere(), self.nowhere()],
                Some(before) => self.step(before, place == 1),
            };
            for (cell, weight) in now.iter_mut().flat_map(|kind| kind.iter_mut().zip(&likelihood)) {
                *cell *= weight;
            }
            let sum: f64 = now.iter().flatten().sum();
            // The tails of Student's t and of the steps are heavy: nothing underflows as a whole.
            assert!(sum > 0.0, "executions with no likelihood at all");
            for cell in now.iter_mut().flatten() {
                *cell /= sum;
            }
            log_evidence += best + libm::log(sum);
            forward.push(now);
        }
        Filtered { noise, log_evidence, forward }
    }

    fn nowhere(&self) -> Vec<f64> {
        vec![0.0; self.cells]
    }

    /// Returns the probabilities after a step from these.
    fn step(&self, before: &ByKind, is_first: bool) -> ByKind {
        [0, 1, 2].map(|kind| {
            let from = self.sources(before, kind, is_first);
            let largest = from.iter().copied().fold(0.0, f64::max);
            let mut after = self.nowhere();
            for (place, &weight) in from.iter().enumerate() {
                if weight > NEGLIGIBLE * largest {
                    let steps = &self.kernels[kind][self.cells - 1 - place..];
                    for (cell, chance) in after.iter_mut().zip(steps) {
                        *cell += weight * chance;
                    }
                }
            }
            after
        })
    }

    /// Returns the probability of each cell together with that of a step of a kind from it.
    fn sources(&self, before: &ByKind, kind: usize, is_first: bool) -> Vec<f64> {
        let chances = self.steps.chances(is_first);
        let of_cell = |cell| (0..KINDS).map(|old| chances[old][kind] * before[old][cell]).sum();
        (0..self.cells).map(of_cell).collect()
    }

    /// Returns the logarithm of the likelihood of each cell by a level's executions. A cell stands
    /// for all throughputs in it, whose variance is added.
    fn log_likelihood(&self, place: usize, noise: f64) -> Vec<f64> {
        let within = self.levels[place].variance_within;
        let scale2 = noise * noise + within + self.cell * self.cell / 12.0;
        let logs = &self.logs[place];
        let all = logs.len() as f64 * -0.5 * libm::log(scale2);
        let of_cell = |cell: usize| {
            let at = self.low + cell as f64 * self.cell;
            let of_log = |log: &f64| libm::log(1.0 + (log - at).powi(2) / (FREEDOM * scale2));
            all - 0.5 * (FREEDOM + 1.0) * logs.iter().map(of_log).sum::<f64>()
        };
        (0..self.cells).map(of_cell).collect()
    }
}

/// Draws paths backwards, for one value of the noise.
struct Sampler<'a> {
    chain: &'a Chain<'a>,
    forward: &'a [ByKind],
    /// For each level but the last, and the kind and the cell of the next: the sums of the weights
    /// of its cells, where these have been drawn.
    sums: Vec<[Vec<Vec<f64>>; KINDS]>,
    /// Those of the kinds and cells of the last level, one kind after the other.
    last: Vec<f64>,
    path: Vec<f64>,
}

impl<'a> Sampler<'a> {
    fn new(chain: &'a Chain<'a>, filtered: &'a Filtered) -> Sampler<'a> {
        let levels = filtered.forward.len();
        let unknown = || [0, 1, 2].map(|_| vec![Vec::new(); chain.cells]);
        Sampler {
            chain,
            forward: &filtered.forward,
            sums: (1..levels).map(|_| unknown()).collect(),
            last: sums(filtered.forward[levels - 1].iter().flatten().copied()),
            path: vec![0.0; levels],
        }
    }

    /// Returns a path of throughputs, over that of the lowest cell.
    fn draw(&mut self, random: &mut SplitMix64) -> &[f64] {
        let cells = self.chain.cells;
        let last = self.path.len() - 1;
        let drawn = pick(&self.last, random);
        let (mut kind, mut cell) = (drawn / cells, drawn % cells);
        self.path[last] = self.tps(cell, random);
        for level in (0..last).rev() {
            let before = &self.forward[level];
            if self.sums[level][kind][cell].is_empty() {
                let from = self.chain.sources(before, kind, level == 0);
                let steps = self.chain.kernels[kind][cell..cell + cells].iter().rev();
                let weights = from.iter().zip(steps).map(|(weight, chance)| weight * chance);
                self.sums[level][kind][cell] = sums(weights);
            }
            cell = pick(&self.sums[level][kind][cell], random);
            let chances = self.chain.steps.chances(level == 0);
            kind = pick_kind([0, 1, 2].map(|old| chances[old][kind] * before[old][cell]), random);
            self.path[level] = self.tps(cell, random);
        }
        &self.path
    }

    /// Returns a throughput in a cell: so near its middle that only levels in the same cell are
    /// told apart by it, which one is above the other half of the time.
    fn tps(&self, cell: usize, random: &mut SplitMix64) -> f64 {
        libm::exp((cell as f64 + random.next_between(-1e-6, 1e-6)) * self.chain.cell)
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

/// Returns a kind of step drawn by weights.
fn pick_kind(weights: [f64; KINDS], random: &mut SplitMix64) -> usize {
    let [small, rise, fall] = weights;
    let at = random.next_draw().value() * (small + rise + fall);
    usize::from(at >= small) + usize::from(at >= small + rise && fall > 0.0)
}

/// Returns the probabilities of the values of the noise.
fn normalised(filtered: &[Filtered]) -> Vec<f64> {
    let best = filtered.iter().map(|one| one.log_evidence).fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = filtered.iter().map(|one| libm::exp(one.log_evidence - best)).collect();
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

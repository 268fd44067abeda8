//! Runs the controllers on random pairs of plants and prints `docs/results/controllers-random.md`:
//!
//! `cargo run -p tidegate-control --example random_plants --release >
//! docs/results/controllers-random.md`
//!
//! The simulated plants of `experiments/plants` are few and known to whoever chooses parameters. A
//! random family shows how often a controller fails, and how badly. Every run begins with one seed,
//! from which come the two plants, the first limit and the noise; every controller gets the same.

#![expect(clippy::print_stdout, reason = "printing tables is what this program is for")]

use std::error::Error;
use std::f64::consts::LN_2;
use std::ops::Range;

use tidegate_control::plant::shapes::{
    RandomShape, flat_then_falling, network, scalability, sharp_peak,
};
use tidegate_control::plant::{Curve, CurvePhase, CurvePlant, Simulation};
use tidegate_control::{Algorithm, Bounds, Mpl, Resources, Setting, SplitMix64};

const SEEDS: Range<u64> = 50_000..50_400;
/// Intervals of a phase; the second half counts as settled.
const INTERVALS: u32 = 120;
/// Decisions within which a limit in the band has been found soon.
const SOON: u32 = 10;
const HIGHEST: u32 = 1_000;
/// The band: limits with at least this share of the best throughput.
const BAND: f64 = 0.95;
/// Nothing here has processors or disks; this is what the controllers are told.
const RESOURCES: Resources = Resources { cpus: 2, disks: 1 };

fn main() -> Result<(), Box<dyn Error>> {
    let pairs = SEEDS.map(Pair::draw).collect::<Result<Vec<_>, _>>()?;
    println!("{HEAD}\n{TABLE_HEAD}");
    for algorithm in Algorithm::ALL.into_iter().filter(|&algorithm| !needs_locks(algorithm)) {
        let runs = pairs.iter().map(|pair| run(algorithm, pair)).collect::<Result<Vec<_>, _>>()?;
        print_row(algorithm, &runs);
    }
    println!("\n{LIMITS}");
    Ok(())
}

/// Whether the algorithm decides from lock statistics, which a curve does not have.
fn needs_locks(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::HalfAndHalf | Algorithm::ConflictRatio)
}

/// Two plants, one after the other, and how a run on them begins.
struct Pair {
    phases: [Phase; 2],
    start: Mpl,
    plant_seed: u64,
    controller_seed: u64,
}

impl Pair {
    fn draw(seed: u64) -> Result<Pair, Box<dyn Error>> {
        let random = &mut SplitMix64::new(seed);
        let noise = random.next_log_between(0.01, 0.1);
        let clients = whole(random.next_log_between(100.0, 1_001.0));
        let phases = [Phase::draw(random, clients, noise)?, Phase::draw(random, clients, noise)?];
        let start = whole(random.next_log_between(1.0, f64::from(HIGHEST) + 1.0));
        Ok(Pair {
            phases,
            start: Mpl::at_least_one(start),
            plant_seed: random.next_bits(),
            controller_seed: random.next_bits(),
        })
    }
}

/// A plant with what the best fixed limit gets from it, without noise.
struct Phase {
    plant: CurvePhase,
    best_tps: f64,
    lowest_in_band: u32,
}

impl Phase {
    fn draw(random: &mut SplitMix64, clients: u32, noise: f64) -> Result<Phase, Box<dyn Error>> {
        let curve = draw_curve(random)?;
        let closed = CurvePhase::closed(curve, clients, noise);
        let plant = CurvePhase { intervals: INTERVALS, ..closed };
        let tps = |limit: &u32| plant.expected_tps(Mpl::at_least_one(*limit));
        let best_tps = (1..=HIGHEST).map(|limit| tps(&limit)).fold(0.0, f64::max);
        let lowest_in_band = (1..=HIGHEST).find(|limit| tps(limit) >= BAND * best_tps);
        Ok(Phase { best_tps, lowest_in_band: lowest_in_band.unwrap_or(HIGHEST), plant })
    }

    fn is_in_band(&self, limit: Mpl) -> bool {
        self.plant.expected_tps(limit) >= BAND * self.best_tps
    }
}

fn draw_curve(random: &mut SplitMix64) -> Result<Curve, Box<dyn Error>> {
    let shape = match whole(random.next_between(0.0, 5.0)) {
        0 => hill(random),
        1 => network(random),
        2 => scalability(random),
        3 => flat_then_falling(random, 30.0),
        _ => sharp_peak(random, 1.1),
    };
    let scale_tps = random.next_log_between(50.0, 5_000.0);
    let following = |&level: &u32| (level < HIGHEST).then(|| level + (level / 10).max(1));
    let levels = std::iter::successors(Some(1), following).map(|level| level.min(HIGHEST));
    let points = levels.map(|level| (level, scale_tps * shape(f64::from(level))));
    Ok(Curve::new(&points.collect::<Vec<_>>())?)
}

/// On logarithmic axes, with the top anywhere from 1 to 128: the slope falls in a straight line to
/// 0 at the top, and from there on to its steepest at e² times the top, where it stays.
fn hill(random: &mut SplitMix64) -> RandomShape {
    let top = random.next_between(0.0, 7.0) * LN_2;
    let (rise, fall) = (random.next_between(0.4, 1.1), random.next_between(0.1, 0.9));
    Box::new(move |level| {
        let (before, beyond) = (libm::log(level).min(top), (libm::log(level) - top).max(0.0));
        let up = rise * before * (1.0 - before / (2.0 * top));
        let down = if beyond < 2.0 { beyond * beyond / 4.0 } else { beyond - 1.0 };
        libm::exp(up - fall * down)
    })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "all that is drawn here lies from 0 to 1,001"
)]
fn whole(value: f64) -> u32 {
    value as u32
}

/// What a controller did in a phase.
struct Score {
    completions: f64,
    /// What the best fixed limit would have completed.
    possible: f64,
    is_found_soon: bool,
    /// Mean limit where settled, over the lowest in the band.
    excess: f64,
    /// Standard deviation of the limit over its mean, where settled.
    swing: f64,
}

fn run(algorithm: Algorithm, pair: &Pair) -> Result<[Score; 2], Box<dyn Error>> {
    let bounds = Bounds::new(Mpl::ONE, Mpl::at_least_one(HIGHEST))?;
    let setting = Setting { bounds, start: pair.start, resources: RESOURCES };
    let plants = pair.phases.each_ref().map(|phase| phase.plant.clone());
    let mut plant = CurvePlant::new(&plants, pair.plant_seed);
    let mut simulation = Simulation::new(algorithm.controller(&setting), pair.controller_seed);
    Ok(pair.phases.each_ref().map(|phase| run_phase(phase, &mut simulation, &mut plant)))
}

fn run_phase(phase: &Phase, simulation: &mut Simulation, plant: &mut CurvePlant) -> Score {
    let (mut completions, mut is_found_soon, mut settled) = (0.0, false, Vec::new());
    for decisions in 0..INTERVALS {
        let (observation, _) = simulation.interval(plant);
        completions += observation.completions as f64;
        is_found_soon |= decisions <= SOON && phase.is_in_band(observation.limit);
        if decisions >= INTERVALS / 2 {
            settled.push(f64::from(observation.limit.get()));
        }
    }
    let limit = mean(settled.iter().copied());
    let variance = mean(settled.iter().map(|at| (at - limit).powi(2)));
    Score {
        completions,
        possible: phase.best_tps * phase.plant.interval_s * f64::from(INTERVALS),
        is_found_soon,
        excess: limit / f64::from(phase.lowest_in_band),
        swing: variance.sqrt() / limit,
    }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}

/// Completions of a run as a share of what the best fixed limit of each phase gets.
fn share(run: &[Score; 2]) -> f64 {
    let [first, second] = run;
    (first.completions + second.completions) / (first.possible + second.possible)
}

fn print_row(algorithm: Algorithm, runs: &[[Score; 2]]) {
    let mut shares: Vec<f64> = runs.iter().map(share).collect();
    shares.sort_by(f64::total_cmp);
    let percentile = shares.get(shares.len() / 20).copied().unwrap_or(f64::NAN);
    let worst = shares.first().copied().unwrap_or(f64::NAN);
    let scores = runs.as_flattened();
    println!(
        "| {algorithm} | {} | {} | {} | {} | {:.2} | {:.2} | {:.2} |",
        percent(mean(shares.iter().copied())),
        percent(percentile),
        percent(worst),
        percent(mean(scores.iter().map(|score| f64::from(u8::from(score.is_found_soon))))),
        libm::exp(mean(scores.iter().map(|score| libm::log(score.excess)))),
        mean(scores.iter().map(|score| score.excess)),
        mean(scores.iter().map(|score| score.swing)),
    );
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

const HEAD: &str = "\
# Controllers on random plants

```text
cargo run -p tidegate-control --example random_plants --release \\
    > docs/results/controllers-random.md
```

writes this file, the same on every machine: the time is virtual. 400 random pairs of plants, seeds
50,000 to 50,399. The Gaussian process's parameters were looked at on this family of plants, with
seeds 1,000 to 1,999; the seeds here took no part in that.

- **Plants.** Closed systems of 100 to 1,000 clients without think time. Each of the five kinds of
  throughput curve is equally likely: a hill whose top is anywhere from 1 to 128, a closed network
  that thrashes, Gunther's scalability law, a rise that turns flat and then falls, and a sharp peak
  at 2 to 6 transactions that loses 5 to 20 % beside it. At its best limit a plant does from 11 to
  458,000 transactions a second, the median plant 886. The noise of an interval has a standard
  deviation of 1 to 10 % of throughput.
- **Runs.** 120 intervals of a second on the first plant, then 120 on the second, without notice.
  Limits from 1 to 1,000; the first is drawn from the same range, log-uniform.
- **Throughput.** Transactions completed in all 240 intervals, the search and the change included,
  over what the best fixed limit of each phase would have completed without noise. One run of twenty
  is below the 5th percentile.
- **Found soon.** The share of the 800 phases in which, after at most ten decisions, a limit was in
  the band, whether or not it stayed there. The band is every limit with at least 95 % of the best
  throughput.
- **Limit over lowest.** The mean limit of the last 60 intervals of a phase over the lowest limit in
  the band. 1 is the fewest transactions at once that serve; below 1 throughput is lost.
- **Swing.** The standard deviation of the limit in these 60 intervals over its mean.

Half-and-half and conflict-ratio are left out: they need lock statistics, which a curve does not
have.
";

const TABLE_HEAD: &str = "\
| controller | throughput, mean | 5th percentile | worst | found soon \
| limit over lowest, geometric mean | arithmetic mean | swing |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |";

const LIMITS: &str = "\
## Limits of these figures

- The curves are made up, by those who made the Gaussian process. It was tuned on other members of
  the same family; the other controllers were not.
- A plant answers at once and has no memory: no cache warms up, no checkpoint comes.
- Of a pair, the plant with the higher throughput has the greater part in the share, so a bad phase
  on a slow plant hides behind a good one on a fast plant. In the columns right of `worst` every
  phase has the same part.
- A slow plant into which too many were let takes long to come out of thrashing under any limit; the
  throughput of the best fixed limit is without that time.
- Controllers that look for a limit for latency's sake do not aim at the best throughput.
- `paired-comparison`, the default, compares windows of 100 ms. These plants have one observation a
  second, so that its comparisons take ten times as long as on a server.";

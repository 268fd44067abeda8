//! Controllers on plants with residence times and noise by tick, in seconds of computing.
//!
//! ```text
//! cargo run --release -p tidegate-control --example plants_by_tick -- NAME,.. SEEDS FIRST WHAT ..
//! ```
//! `WHAT` is `random:N` (plants drawn from the seeds from `FIRST` on, one run each) or files of
//! plants. With `LIMIT=8` the limit is held there, and with `LIMIT=best` at the best of each phase,
//! to see what can be reached. With `TRACE=1` every decision that changes the limit or its reason
//! is printed.

#![expect(clippy::print_stdout, reason = "printing tables is what this program is for")]

use std::error::Error;
use std::path::Path;

use tidegate_control::plant::{Scenario, ScenarioFile, Truth, random_scenario};
use tidegate_control::{Algorithm, Bounds, Mpl, Resources, Setting, SplitMix64};

const STARTS: [u32; 6] = [4, 64, 1, 500, 16, 200];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [names, seeds, first, what @ ..] = &arguments[..] else {
        return Err("give NAME,.. SEEDS FIRST WHAT ..".into());
    };
    let (seeds, first): (u64, u64) = (seeds.parse()?, first.parse()?);
    let names = Algorithm::list(names)?;
    for algorithm in names {
        let mut all = Vec::new();
        for what in what {
            if let Some(count) = what.strip_prefix("random:") {
                for seed in first..first + count.parse::<u64>()? {
                    let plant = random_scenario(seed)?;
                    let score = run(algorithm, &plant, seed)?;
                    all.push((format!("{} ({})", plant.name(), plant.about()), vec![score]));
                }
            } else {
                let plant = read(Path::new(what))?.by_tick();
                if plant.is_by_tick() {
                    let scores = (first..first + seeds).map(|seed| run(algorithm, &plant, seed));
                    all.push((plant.name().to_owned(), scores.collect::<Result<Vec<_>, _>>()?));
                }
            }
        }
        print(algorithm, &all);
    }
    Ok(())
}

fn read(path: &Path) -> Result<Scenario, Box<dyn Error>> {
    let file: ScenarioFile = toml::from_str(&std::fs::read_to_string(path)?)?;
    Ok(Scenario::try_from(file)?)
}

/// What came out of a run.
struct Score {
    share: f64,
    /// For each phase with more than 100 tps, whether the band was reached within 5 s.
    soon: Vec<bool>,
    /// Mean limit of the last half of each phase over the lowest in the band, as a logarithm.
    excess: Vec<f64>,
    /// Share of each tenth of the first phase.
    course: Vec<f64>,
}

fn run(algorithm: Algorithm, plant: &Scenario, seed: u64) -> Result<Score, Box<dyn Error>> {
    let is_traced = std::env::var_os("TRACE").is_some();
    let lengths = plant.intervals();
    let truths = (0..lengths.len())
        .map(|phase| Ok(plant.truth(phase)?.ok_or("no such phase")?))
        .collect::<Result<Vec<Truth>, Box<dyn Error>>>()?;
    let bounds = Bounds::new(Mpl::ONE, Mpl::at_least_one(1_000))?;
    let start = Mpl::at_least_one(STARTS[usize::try_from(seed % STARTS.len() as u64)?]);
    let setting = Setting { bounds, start, resources: Resources { cpus: 2, disks: 1 } };
    let mut controller = algorithm.controller(&setting);
    let mut running = plant.start(seed.wrapping_mul(7_919))?;
    let mut draws = SplitMix64::new(seed);
    let mut limit = controller.start();
    let seconds: u32 = lengths.iter().sum();
    let held = Held::from_environment()?;
    let (mut last, mut now_s) = (String::new(), 0.0);
    while running.seconds().len() < seconds as usize {
        let observed = running
            .interval_by(held.limit(limit, now_s, &lengths, &truths), controller.interval_rule());
        let decision = controller.decide(&observed, draws.next_draw());
        now_s += observed.interval.as_secs_f64();
        let line = decision.reason.to_string();
        if is_traced && (decision.limit != limit || line != last) {
            println!(
                "{now_s:7.1} s {limit:>5} {:8.0} tps inside {:6.1} waits {:.2} to {:>5} {line}",
                observed.throughput_tps(),
                observed.running_mean,
                observed.waiting_share,
                decision.limit,
            );
            last = line;
        }
        limit = decision.limit;
    }
    Ok(score(&lengths, &truths, running.seconds()))
}

/// The limit that is held instead of what the controller says.
enum Held {
    No,
    Fixed(u32),
    Best,
}

impl Held {
    fn from_environment() -> Result<Held, Box<dyn Error>> {
        Ok(match std::env::var("LIMIT").ok().as_deref() {
            None => Held::No,
            Some("best") => Held::Best,
            Some(limit) => Held::Fixed(limit.parse()?),
        })
    }

    fn limit(&self, wanted: Mpl, now_s: f64, lengths: &[u32], truths: &[Truth]) -> Mpl {
        match self {
            Held::No => wanted,
            Held::Fixed(limit) => Mpl::at_least_one(*limit),
            Held::Best => {
                let mut end_s = 0.0;
                let phase = lengths.iter().position(|&length| {
                    end_s += f64::from(length);
                    now_s < end_s - 1e-6
                });
                phase.and_then(|phase| truths.get(phase)).map_or(wanted, |truth| truth.best().0)
            }
        }
    }
}

fn score(lengths: &[u32], truths: &[Truth], seconds: &[tidegate_control::plant::Second]) -> Score {
    let (mut done, mut possible, mut backlog) = (0.0, 0.0, 0.0);
    let (mut soon, mut excess, mut course) = (Vec::new(), Vec::new(), Vec::new());
    let mut rest = seconds;
    for (&length, truth) in lengths.iter().zip(truths) {
        let (own, after) = rest.split_at((length as usize).min(rest.len()));
        rest = after;
        let (_, best_tps) = truth.best();
        done += own.iter().map(|second| second.completions as f64).sum::<f64>();
        possible += match truth.arrivals() {
            Some(arrivals) => {
                let supply = backlog + arrivals.tps * f64::from(length);
                let served = supply.min(arrivals.capacity_tps * f64::from(length));
                backlog = supply - served;
                served
            }
            None => best_tps * f64::from(length),
        };
        let at = |second: &tidegate_control::plant::Second| {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "1 to 1,000"
            )]
            let limit = second.limit.round() as u32;
            truth.tps(Mpl::at_least_one(limit))
        };
        if best_tps > 100.0 {
            soon.push(own.iter().take(6).any(|second| at(second) >= 0.95 * best_tps));
        }
        let lowest = f64::from(truth.band(0.95).start().get());
        let half = &own[own.len() / 2..];
        let mean =
            half.iter().map(|second| libm::log(second.limit)).sum::<f64>() / half.len() as f64;
        excess.push(mean - libm::log(lowest));
        if course.is_empty() {
            for part in own.chunks(own.len().div_ceil(10)) {
                let done: f64 = part.iter().map(|second| second.completions as f64).sum();
                course.push(done / (best_tps * part.len() as f64));
            }
        }
    }
    Score { share: done / possible, soon, excess, course }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / f64::max(count, 1.0)
}

fn print(algorithm: Algorithm, all: &[(String, Vec<Score>)]) {
    let mut means = Vec::new();
    let mut runs = Vec::new();
    let (mut soon, mut excess) = (Vec::new(), Vec::new());
    for (name, scores) in all {
        let share = mean(scores.iter().map(|score| score.share));
        let worst = scores.iter().map(|score| score.share).fold(f64::INFINITY, f64::min);
        means.push(share);
        runs.extend(scores.iter().map(|score| score.share));
        let own_soon: Vec<bool> =
            scores.iter().flat_map(|score| score.soon.iter().copied()).collect();
        let own_excess =
            libm::exp(mean(scores.iter().flat_map(|score| score.excess.iter().copied())));
        let course: Vec<String> = (0..10)
            .map(|part| {
                let at = scores.iter().filter_map(|score| score.course.get(part).copied());
                format!("{:3.0}", 100.0 * mean(at))
            })
            .collect();
        println!(
            "{share:.3} worst {worst:.3} soon {:.2} limit x {own_excess:5.2} [{}] {name}",
            mean(own_soon.iter().map(|&is| f64::from(u8::from(is)))),
            course.join(" "),
        );
        soon.extend(own_soon);
        excess.push(libm::log(own_excess));
    }
    runs.sort_by(f64::total_cmp);
    let worst = means.iter().copied().fold(f64::INFINITY, f64::min);
    let below = |bound: f64| means.iter().filter(|&&mean| mean < bound).count();
    println!(
        "{algorithm}: {} plants mean {:.4} worst plant {worst:.3} worst run {:.3} p5 {:.3} median \
         {:.3}; below .90 {} below .97 {}; soon {:.3} limit x {:.2}",
        means.len(),
        mean(means.iter().copied()),
        runs.first().copied().unwrap_or(f64::NAN),
        runs.get(runs.len() / 20).copied().unwrap_or(f64::NAN),
        runs.get(runs.len() / 2).copied().unwrap_or(f64::NAN),
        below(0.90),
        below(0.97),
        mean(soon.iter().map(|&is| f64::from(u8::from(is)))),
        libm::exp(mean(excess.iter().copied())),
    );
}

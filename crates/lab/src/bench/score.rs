//! How well each controller did, from the runs alone.
//!
//! # What is measured
//! A controller's run goes through the phases of its scenario, and each phase is scored by itself.
//! Its throughput is what the clients saw, in the whole phase and in its second half, *settled*,
//! over that of the best fixed limit. Everything else comes from the journal's intervals that lie
//! wholly inside the phase, by the simulator's own rules ([`crate::simulate`], `Score`), with the
//! sweep for the truth.
//!
//! # The best fixed limit
//! A machine is not the same all day, so a controller is compared with what a fixed limit gave
//! around the same time. The sweep proposes its best limits; these are measured again before,
//! between and after the controllers of a scenario. The one with the highest mean of these is *the
//! best fixed limit*, and each controller is compared with that limit's run that began nearest to
//! its own. The sweep itself does not vote: the winner of many noisy measurements is one that was
//! lucky, and would be so again in the comparison.
//!
//! # Example
//! Measured again, limit 4 gave 100 tps at 0 s and 90 at 100 s, limit 6 gave 98 and 96. Limit 6 has
//! the higher mean, 97. A controller that ran from 80 s on and settled at 93.12 tps has 93.12/96 =
//! 97 %.
//!
//! # Limits
//! * A single run for each: what a controller draws and the machine's noise are in its numbers. The
//!   spread of the repeated fixed limits shows how much the latter is.
//! * An interval that began in one phase and ended in the next belongs to none.

use serde::Serialize;
use tidegate_control::Mpl;
use tidegate_control::plant::Truth;

use super::sweep::Sweep;
use super::{Cell, Purpose, Scenario, Work};
use crate::load::PhaseReport;
use crate::rig::Interval;
use crate::simulate::{Measures, Reached, Sample, Score, phases};

/// Intervals for which the simulator expects a controller to find something. All of ours are meant
/// to be long enough, also those that hold fewer because transactions are long.
const LONG_ENOUGH: u32 = 20;

/// What a scenario's runs amount to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScenarioScore {
    /// The scenario.
    pub scenario: &'static str,
    /// The best fixed limit of each phase.
    pub references: Vec<Reference>,
    /// The controllers that ran, in the order they ran in.
    pub controllers: Vec<ControllerScore>,
}

/// The best fixed limit of a workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reference {
    /// The workload.
    pub work: Work,
    /// The best fixed limit.
    pub limit: Mpl,
    /// The lowest and the highest limit that reach 95 % of the best in the sweep.
    pub band: (Mpl, Mpl),
    /// When it was measured, in seconds since the benchmark began, and its throughput then.
    pub measured: Vec<(f64, f64)>,
}

/// How well one controller did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ControllerScore {
    /// The controller.
    pub controller: String,
    /// Transactions of the whole run over those of the best fixed limit of each phase.
    pub whole: Option<f64>,
    /// Its phases; none when its run failed.
    pub phases: Vec<PhaseScore>,
}

/// How well one controller did in one phase.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseScore {
    /// The workload.
    pub work: Work,
    /// What the best fixed limit gave around that time, in transactions per second.
    pub best_tps: f64,
    /// Throughput of the whole phase over that.
    pub whole: f64,
    /// Throughput of the second half over that.
    pub settled: f64,
    /// The mean limit of the settled intervals.
    pub settled_limit: Option<f64>,
    /// Intervals until the limit was inside the band; `None` when there was no interval.
    pub reached: Option<Reached>,
    /// The simulator's measures, from the journal.
    pub measures: Measures,
}

/// The scores of all controllers of `scenario` among the runs made.
pub(super) fn score(scenario: Scenario, cells: &[Cell]) -> ScenarioScore {
    let works = scenario.phases();
    let references: Vec<Reference> =
        works.iter().filter_map(|&work| reference(scenario, work, cells)).collect();
    let runs = cells
        .iter()
        .filter(|cell| cell.purpose == Purpose::Controller && cell.scenario == scenario.name());
    let controllers = runs.map(|run| {
        let phases = score_run(run, &references, cells);
        ControllerScore { controller: run.control.to_string(), whole: whole(&phases), phases }
    });
    ScenarioScore { scenario: scenario.name(), controllers: controllers.collect(), references }
}

/// The limit that was best when the sweep's best were measured again.
fn reference(scenario: Scenario, work: Work, cells: &[Cell]) -> Option<Reference> {
    let again = cells.iter().filter(|cell| {
        cell.purpose == Purpose::Reference
            && cell.scenario == scenario.name()
            && cell.works == [work]
    });
    let mut limits: Vec<(Mpl, Vec<(f64, f64)>)> = Vec::new();
    for cell in again {
        let (Some(limit), Some(tps)) = (cell.fixed_limit(), cell.tps()) else {
            continue;
        };
        match limits.iter_mut().find(|(known, _)| *known == limit) {
            Some((_, measured)) => measured.push((cell.began_s, tps)),
            None => limits.push((limit, vec![(cell.began_s, tps)])),
        }
    }
    let mean = |measured: &[(f64, f64)]| {
        measured.iter().map(|(_, tps)| tps).sum::<f64>() / measured.len() as f64
    };
    let best = limits.into_iter().max_by(|one, other| mean(&one.1).total_cmp(&mean(&other.1)));
    let (limit, measured) = best?;
    let band = Sweep::find(work, cells)?.band()?;
    Some(Reference { work, limit, band, measured })
}

impl Reference {
    /// Throughput in the run that began nearest to `at_s`.
    fn tps_near(&self, at_s: f64) -> Option<f64> {
        let distance = |measured: &&(f64, f64)| (measured.0 - at_s).abs();
        let nearest =
            self.measured.iter().min_by(|one, other| distance(one).total_cmp(&distance(other)));
        nearest.map(|&(_, tps)| tps)
    }
}

/// Nothing when there was no load, or nothing to compare with.
fn score_run(run: &Cell, references: &[Reference], cells: &[Cell]) -> Vec<PhaseScore> {
    let Some(load) = &run.load else {
        return Vec::new();
    };
    let halves = load.phases.chunks_exact(2);
    let scores = run.works.iter().zip(halves).filter_map(|(&work, halves)| {
        let reference = references.iter().find(|reference| reference.work == work)?;
        let best_tps = reference.tps_near(run.began_s)?;
        let truth = Sweep::find(work, cells)?.truth(best_tps)?;
        Some(score_phase(work, best_tps, truth, &Halves::of(halves)?, &run.intervals))
    });
    scores.collect()
}

/// All phases together. They last equally long, but one in which more could be done counts more.
fn whole(phases: &[PhaseScore]) -> Option<f64> {
    let best: f64 = phases.iter().map(|phase| phase.best_tps).sum();
    let reached: f64 = phases.iter().map(|phase| phase.whole * phase.best_tps).sum();
    (best > 0.0).then_some(reached / best)
}

/// A phase as the clients counted it.
#[derive(Clone, Copy, Debug)]
struct Halves {
    began_s: f64,
    ended_s: f64,
    whole_tps: f64,
    settled_tps: f64,
}

impl Halves {
    fn of(halves: &[PhaseReport]) -> Option<Halves> {
        let [first, second] = halves else {
            return None;
        };
        let transactions = first.transactions + second.transactions;
        Some(Halves {
            began_s: first.began_s,
            ended_s: second.began_s + second.seconds,
            whole_tps: transactions as f64 / (first.seconds + second.seconds),
            settled_tps: second.tps,
        })
    }
}

fn score_phase(
    work: Work,
    best_tps: f64,
    truth: Truth,
    halves: &Halves,
    intervals: &[Interval],
) -> PhaseScore {
    let samples = samples(intervals, halves);
    let count = u32::try_from(samples.len()).unwrap_or(u32::MAX);
    let score = Score::of(&phases([(count.max(LONG_ENOUGH), truth)]), &samples);
    let settled = &samples[samples.len() / 2..];
    let limits: f64 = settled.iter().map(|sample| f64::from(sample.limit.get())).sum();
    PhaseScore {
        work,
        best_tps,
        whole: halves.whole_tps / best_tps,
        settled: halves.settled_tps / best_tps,
        settled_limit: (!settled.is_empty()).then(|| limits / settled.len() as f64),
        reached: score.entries.first().copied().filter(|_| !samples.is_empty()),
        measures: score.measures,
    }
}

/// The intervals that lie wholly inside the phase.
fn samples(intervals: &[Interval], halves: &Halves) -> Vec<Sample> {
    let is_inside = |interval: &&Interval| {
        interval.at_s - interval.interval_s >= halves.began_s && interval.at_s <= halves.ended_s
    };
    let sample = |interval: &Interval| Sample {
        limit: Mpl::at_least_one(interval.limit),
        completions: completions(interval),
        seconds: interval.interval_s,
    };
    intervals.iter().filter(is_inside).map(sample).collect()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count as the journal has it, as a rate"
)]
fn completions(interval: &Interval) -> u64 {
    (interval.tps * interval.interval_s).round() as u64
}

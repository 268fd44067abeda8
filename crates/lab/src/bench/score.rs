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
//! best fixed limit*, and each controller is compared with the mean of that limit's last run before
//! its own and its first run after, the whole with the whole and the second half with the second
//! half. These runs last as long as the controller's in each phase. The sweep itself does not vote:
//! the winner of many noisy measurements is one that was lucky, and would be so again in the
//! comparison.
//!
//! # Example
//! Measured again, limit 4 gave 100 tps at 0 s and 90 at 100 s, limit 6 gave 98 and 96. Limit 6 has
//! the higher mean, 97. A controller that ran from 80 s on and settled at 92.15 tps has 92.15/97 =
//! 95 %.
//!
//! # Limits
//! * A single run for each: what a controller draws and the machine's noise are in its numbers. The
//!   spread of the repeated fixed limits shows how much the latter is.
//! * An interval that began in one phase and ended in the next belongs to none.

use serde::Serialize;
use tidegate_control::Mpl;
use tidegate_control::plant::Truth;

use super::sweep::Sweep;
use super::{BenchCell, BenchScenario, BenchWork, Purpose};
use crate::load::PhaseReport;
use crate::rig::Interval;
use crate::simulate::{Measures, Reached, Sample, Score, phases};

/// Intervals for which the simulator expects a controller to find something. All of ours are meant
/// to be long enough, also those that hold fewer because transactions are long.
const LONG_ENOUGH: u32 = 20;

/// What a scenario's runs amount to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScenarioScore {
    pub scenario: &'static str,
    /// The best fixed limit of each phase.
    pub references: Vec<ReferenceLimit>,
    /// The controllers that ran, in the order they ran in.
    pub controllers: Vec<ControllerScore>,
}

/// The best fixed limit of a workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReferenceLimit {
    pub work: BenchWork,
    pub limit: Mpl,
    /// The lowest and the highest limit that reach 95 % of the best in the sweep.
    pub band: (Mpl, Mpl),
    /// Its runs, in order.
    pub measured: Vec<ReferenceRun>,
}

/// A fixed limit, run as long as a controller in each phase.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ReferenceRun {
    /// When it began, in seconds since the benchmark began.
    pub began_s: f64,
    pub tps: f64,
    /// Throughput of its second half.
    pub settled_tps: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ControllerScore {
    pub controller: String,
    /// Throughput of the whole run: the mean of the phases' shares, which last equally long.
    pub whole: Option<f64>,
    /// Its phases; none when its run failed.
    pub phases: Vec<PhaseScore>,
}

/// How well one controller did in one phase.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseScore {
    pub work: BenchWork,
    /// What the best fixed limit gave around that time, in transactions per second.
    pub best_tps: f64,
    /// Throughput of the whole phase over that.
    pub whole: f64,
    /// Throughput of the second half over that limit's in its second half.
    pub settled: f64,
    /// The mean limit of the settled intervals.
    pub settled_limit: Option<f64>,
    /// Intervals until the limit was inside the band; `None` when there was no interval.
    pub reached: Option<Reached>,
    /// The simulator's measures, from the journal.
    pub measures: Measures,
}

/// The scores of all controllers of `scenario` among the runs made.
pub(super) fn score(scenario: BenchScenario, cells: &[BenchCell]) -> ScenarioScore {
    let works = scenario.phases();
    let references: Vec<ReferenceLimit> =
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
fn reference(
    scenario: BenchScenario,
    work: BenchWork,
    cells: &[BenchCell],
) -> Option<ReferenceLimit> {
    let again = cells.iter().filter(|cell| {
        cell.purpose == Purpose::Reference
            && cell.scenario == scenario.name()
            && cell.works == [work]
    });
    let mut limits: Vec<(Mpl, Vec<ReferenceRun>)> = Vec::new();
    for cell in again {
        let (Some(limit), Some(measured)) = (cell.fixed_limit(), measured(cell)) else {
            continue;
        };
        match limits.iter_mut().find(|(known, _)| *known == limit) {
            Some((_, runs)) => runs.push(measured),
            None => limits.push((limit, vec![measured])),
        }
    }
    let mean =
        |runs: &[ReferenceRun]| runs.iter().map(|run| run.tps).sum::<f64>() / runs.len() as f64;
    let best = limits.into_iter().max_by(|one, other| mean(&one.1).total_cmp(&mean(&other.1)));
    let (limit, measured) = best?;
    let band = Sweep::find(work, cells)?.band()?;
    Some(ReferenceLimit { work, limit, band, measured })
}

fn measured(cell: &BenchCell) -> Option<ReferenceRun> {
    let halves = Halves::of(&cell.load.as_ref()?.phases)?;
    let (tps, settled_tps) = (halves.whole_tps, halves.settled_tps);
    Some(ReferenceRun { began_s: cell.began_s, tps, settled_tps })
}

impl ControllerScore {
    /// How well it did with a workload; `None` when its run failed.
    pub fn phase(&self, work: BenchWork) -> Option<&PhaseScore> {
        self.phases.iter().find(|phase| phase.work == work)
    }
}

impl ReferenceLimit {
    /// The mean of the last run that began before `at_s` and the first after; the one there is when
    /// there is no other.
    fn around(&self, at_s: f64) -> Option<ReferenceRun> {
        let after = self.measured.iter().position(|run| run.began_s > at_s);
        let before = after.unwrap_or(self.measured.len()).checked_sub(1);
        let run = |at: Option<usize>| at.and_then(|at| self.measured.get(at)).copied();
        match (run(before), run(after)) {
            (Some(one), Some(other)) => Some(ReferenceRun {
                began_s: f64::midpoint(one.began_s, other.began_s),
                tps: f64::midpoint(one.tps, other.tps),
                settled_tps: f64::midpoint(one.settled_tps, other.settled_tps),
            }),
            (one, other) => one.or(other),
        }
    }
}

/// Nothing when there was no load, or nothing to compare with.
fn score_run(
    run: &BenchCell,
    references: &[ReferenceLimit],
    cells: &[BenchCell],
) -> Vec<PhaseScore> {
    let Some(load) = &run.load else {
        return Vec::new();
    };
    let halves = load.phases.chunks_exact(2);
    let scores = run.works.iter().zip(halves).filter_map(|(&work, halves)| {
        let reference = references.iter().find(|reference| reference.work == work)?;
        let best = reference.around(run.began_s)?;
        let truth = Sweep::find(work, cells)?.truth(best.tps)?;
        Some(score_phase(work, best, truth, &Halves::of(halves)?, &run.intervals))
    });
    scores.collect()
}

/// All phases together. Transactions are not added up: a phase of short ones would drown the rest.
fn whole(phases: &[PhaseScore]) -> Option<f64> {
    let sum: f64 = phases.iter().map(|phase| phase.whole).sum();
    (!phases.is_empty()).then(|| sum / phases.len() as f64)
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
    work: BenchWork,
    best: ReferenceRun,
    truth: Truth,
    halves: &Halves,
    intervals: &[Interval],
) -> PhaseScore {
    let samples = samples(intervals, halves);
    let count = u32::try_from(samples.len()).expect("a phase has fewer intervals");
    let score = Score::of(&phases([(count.max(LONG_ENOUGH), truth)]), &samples);
    let settled = &samples[samples.len() / 2..];
    let limits: f64 = settled.iter().map(|sample| f64::from(sample.limit.get())).sum();
    PhaseScore {
        work,
        best_tps: best.tps,
        whole: halves.whole_tps / best.tps,
        settled: halves.settled_tps / best.settled_tps,
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

#[cfg(test)]
mod tests {
    use tidegate_control::Algorithm;

    use super::*;
    use crate::bench::testing::{cell, fixed, load};
    use crate::simulate::Measure;

    /// The sweep of a top from 8 to 32: the band begins at 8·0.95² = 7.2.
    fn swept(work: BenchWork) -> Vec<BenchCell> {
        [(2, 100), (8, 200), (32, 200), (128, 100)]
            .map(|(limit, tps)| fixed(Purpose::Sweep, work, 0.0, limit, tps))
            .to_vec()
    }

    fn interval(at_s: f64, interval_s: f64, limit: u32, tps: f64) -> Interval {
        Interval {
            arm: None,
            at_s,
            interval_s,
            server: String::new(),
            limit,
            next_limit: limit,
            reason: String::new(),
            tps,
            concurrency: 200.0,
            in_queue_mean_s: None,
            in_database_mean_s: None,
        }
    }

    #[track_caller]
    fn assert_near(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-9, "{value} is not {expected}");
    }

    #[test]
    fn a_run_is_compared_with_the_best_fixed_limit_at_its_time() {
        let mut cells = swept(BenchWork::Tpcb1);
        // Limit 8 has a mean of 170 tps, limit 32 of 165, although it has the best run of all.
        for (began_s, limit, tps) in
            [(10.0, 8, 180), (12.0, 32, 190), (100.0, 8, 160), (102.0, 32, 140)]
        {
            cells.push(fixed(Purpose::Reference, BenchWork::Tpcb1, began_s, limit, tps));
        }
        // 200 transactions in the first 2 s and 304 in the others. The journal: an interval that
        // began before the load, one at the start limit, two in the band, one that ends too late.
        cells.push(BenchCell {
            load: Some(load(&[(0.5, 2.0, 200), (2.5, 2.0, 304)])),
            intervals: vec![
                interval(0.9, 0.9, 128, 20.0),
                interval(1.9, 1.0, 128, 80.0),
                interval(2.9, 1.0, 32, 160.0),
                interval(3.9, 1.0, 16, 152.0),
                interval(4.9, 1.0, 2, 1.0),
            ],
            ..cell(Purpose::Controller, Algorithm::Vegas, &[BenchWork::Tpcb1], 80.0)
        });
        let scored = score(BenchScenario::Tpcb1, &cells);

        let reference = &scored.references[0];
        assert_eq!(reference.limit.get(), 8);
        assert_eq!((reference.band.0.get(), reference.band.1.get()), (8, 35));
        let vegas = &scored.controllers[0];
        assert_eq!(vegas.controller, "vegas");
        let phase = vegas.phase(BenchWork::Tpcb1).unwrap();
        // Limit 8 gave 180 tps before and 160 after.
        assert_near(phase.best_tps, 170.0);
        assert_near(phase.whole, 504.0 / 4.0 / 170.0);
        assert_near(phase.settled, 152.0 / 170.0);
        assert_near(vegas.whole.unwrap(), phase.whole);
        // Three intervals count: at 128, 32 and 16. The last two are the settled half.
        assert_eq!(phase.reached, Some(Reached::After(1)));
        assert_near(phase.settled_limit.unwrap(), 24.0);
        for (measure, expected) in [
            (Measure::LimitRatio, 24.0 / 8.0),
            (Measure::Inside, 1.0),
            (Measure::Worst, 80.0 / 170.0),
            // 160 and 152 tps are 4 away from their mean, 32 and 16 are 8 away.
            (Measure::ThroughputSwing, 4.0 / 170.0),
            (Measure::LimitSwing, 8.0 / 24.0),
        ] {
            assert_near(phase.measures.get(measure).unwrap(), expected);
        }
        assert_eq!(phase.measures.get(Measure::WorstLate), None);
    }

    #[test]
    fn each_phase_of_a_switch_is_scored_by_itself() {
        let works = [BenchWork::Tpcb1, BenchWork::ThrashRead];
        let in_switch =
            |cell: BenchCell| BenchCell { scenario: BenchScenario::Switch.name(), ..cell };
        let mut cells = [swept(works[0]), swept(works[1])].concat();
        cells.push(in_switch(fixed(Purpose::Reference, works[0], 0.0, 8, 200)));
        cells.push(in_switch(fixed(Purpose::Reference, works[1], 0.0, 8, 1_000)));
        // Of the first phase the limit stays outside the band; after the switch it is inside from
        // the second interval on.
        cells.push(in_switch(BenchCell {
            load: Some(load(&[
                (0.0, 2.0, 200),
                (2.0, 2.0, 200),
                (4.0, 2.0, 1_000),
                (6.0, 2.0, 1_800),
            ])),
            intervals: vec![
                interval(2.0, 2.0, 128, 100.0),
                interval(4.0, 2.0, 128, 100.0),
                interval(6.0, 2.0, 64, 500.0),
                interval(8.0, 2.0, 16, 900.0),
            ],
            ..cell(Purpose::Controller, Algorithm::Aimd, &works, 5.0)
        }));
        let scored = score(BenchScenario::Switch, &cells);
        let aimd = &scored.controllers[0];
        let [before, after] = works.map(|work| aimd.phase(work).unwrap());
        assert_near(before.whole, 100.0 / 200.0);
        assert_near(before.settled, 100.0 / 200.0);
        assert_eq!(before.reached, Some(Reached::Never));
        assert_near(after.whole, 700.0 / 1_000.0);
        assert_near(after.settled, 900.0 / 1_000.0);
        assert_eq!(after.reached, Some(Reached::After(1)));
        assert_near(after.settled_limit.unwrap(), 16.0);
        assert_near(aimd.whole.unwrap(), 0.6);
    }

    #[test]
    fn a_failed_run_is_there_without_a_score() {
        let mut cells = swept(BenchWork::Tpcb1);
        cells.push(fixed(Purpose::Reference, BenchWork::Tpcb1, 0.0, 8, 200));
        let failed = cell(Purpose::Controller, Algorithm::Vegas, &[BenchWork::Tpcb1], 5.0);
        cells.push(BenchCell { failure: Some("the proxy fell over".into()), ..failed });
        let scored = score(BenchScenario::Tpcb1, &cells);
        assert_eq!(scored.controllers[0].whole, None);
        assert!(scored.controllers[0].phases.is_empty());
        // Without a reference there is nothing to compare with, and nothing is made up.
        let scored = score(BenchScenario::Tpcb1, &swept(BenchWork::Tpcb1));
        assert!(scored.references.is_empty() && scored.controllers.is_empty());
    }
}

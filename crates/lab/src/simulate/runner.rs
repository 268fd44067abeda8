//! One controller on one plant from one seed.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use tidegate_control::{
    Algorithm, Bounds, Decision, Draw, Mpl, Observation, Resources, Setting, SplitMix64,
};

use tidegate_control::plant::Second;

use super::plants::Plant;
use super::score::{Sample, ScoredPhase};
use super::{HIGHEST, SimulateError};

/// What the queueing models are told of every plant.
const RESOURCES: Resources = Resources { cpus: 2, disks: 1 };

/// All that a run depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlantRun<'a> {
    pub(super) algorithm: Algorithm,
    pub(super) plant: &'a Plant<'a>,
    pub(super) seed: u64,
    /// The limit before the first decision.
    pub(super) start: Mpl,
    /// The directory of the traces, when one is wanted.
    pub(super) traces: Option<&'a Path>,
}

/// What the seed of a run becomes.
struct Seeds {
    plant: u64,
    draws: SplitMix64,
}

impl Seeds {
    fn of(seed: u64) -> Seeds {
        let mut random = SplitMix64::new(seed);
        Seeds { plant: random.next_bits(), draws: SplitMix64::new(random.next_bits()) }
    }
}

/// The start limit that belongs to a seed: from 1 to 1,000, each factor of ten equally likely. The
/// multiples of the golden ratio lie evenly in [0, 1), so that a few consecutive seeds cover all
/// limits, which as many independent draws may fail to do.
pub(super) fn start_of(seed: u64) -> Mpl {
    let share = Draw::from_bits(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)).value();
    let limit = libm::pow(f64::from(HIGHEST + 1), share);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 1,001")]
    let limit = limit as u32;
    Mpl::at_least_one(limit.min(HIGHEST))
}

/// A control interval as a line of a trace.
#[derive(Debug, Serialize)]
struct TraceLine {
    /// Counted from 0, also phases.
    interval: usize,
    phase: usize,
    /// Virtual time at the interval's end.
    at_s: f64,
    limit: Mpl,
    tps: f64,
    /// What the limit reaches when it is fixed, without noise.
    expected_tps: f64,
    oracle_tps: f64,
    running_mean: f64,
    concurrency: u32,
    next_limit: Mpl,
    kind: &'static str,
    reason: String,
}

impl TraceLine {
    fn after(
        before: Option<&TraceLine>,
        (index, phase): (usize, &ScoredPhase),
        seen: &Observation,
        decision: &Decision,
    ) -> TraceLine {
        TraceLine {
            interval: before.map_or(0, |before| before.interval + 1),
            phase: index,
            at_s: before.map_or(0.0, |before| before.at_s) + seen.interval.as_secs_f64(),
            limit: seen.limit,
            tps: seen.throughput_tps(),
            expected_tps: phase.tps(seen.limit),
            oracle_tps: phase.best().1,
            running_mean: seen.running_mean,
            concurrency: seen.concurrency,
            next_limit: decision.limit,
            kind: decision.reason.kind(),
            reason: decision.reason.to_string(),
        }
    }
}

struct RunProgress<'a> {
    phases: &'a [ScoredPhase],
    intervals: u32,
    now_s: f64,
}

impl<'a> RunProgress<'a> {
    /// The phase that the next interval belongs to, with its index; none after the last. Phases of
    /// a plant that is observed by ticks last so many seconds.
    fn phase(&self, by_tick: bool) -> Option<(usize, &'a ScoredPhase)> {
        let mut begins = 0;
        self.phases.iter().enumerate().find(|(_, phase)| {
            begins += phase.intervals();
            // An interval ends at a multiple of 100 ms.
            if by_tick { self.now_s + 0.05 < f64::from(begins) } else { self.intervals < begins }
        })
    }
}

/// A second of a plant that is observed by ticks.
fn second(second: &Second) -> Sample {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 1,000")]
    let limit = Mpl::at_least_one(second.limit.round() as u32);
    Sample { limit, completions: second.completions, seconds: 1.0 }
}

impl PlantRun<'_> {
    /// The intervals of the run.
    ///
    /// # Errors
    /// When `cancel` is raised, or the trace cannot be written.
    pub(super) fn samples(&self, cancel: &AtomicBool) -> Result<Vec<Sample>, SimulateError> {
        let Seeds { plant: plant_seed, mut draws } = Seeds::of(self.seed);
        let scenario = &self.plant.scenario;
        let mut plant =
            scenario.start(plant_seed).map_err(SimulateError::plant(scenario.name()))?;
        let mut controller = self.algorithm.controller(&Setting {
            bounds: bounds(),
            start: self.start,
            resources: RESOURCES,
        });
        let mut limit = controller.start();
        let mut course = RunProgress { phases: &self.plant.phases, intervals: 0, now_s: 0.0 };
        let (mut samples, mut trace) = (Vec::new(), Vec::new());
        let by_tick = scenario.is_by_tick();
        while let Some(phase) = course.phase(by_tick) {
            if cancel.load(Ordering::Relaxed) {
                return Err(SimulateError::Cancelled);
            }
            let seen = plant.interval_by(limit, controller.interval_rule());
            let decision = controller.decide(&seen, draws.next_draw());
            let seconds = seen.interval.as_secs_f64();
            samples.push(Sample { limit, completions: seen.completions, seconds });
            if self.traces.is_some() {
                trace.push(TraceLine::after(trace.last(), phase, &seen, &decision));
            }
            course.intervals += 1;
            course.now_s += seconds;
            limit = decision.limit;
        }
        if by_tick {
            // Scored second by second, however long the controller's intervals are.
            samples = plant.seconds().iter().map(second).collect();
        }
        match self.traces {
            Some(directory) => self.write(&trace, directory).map(|()| samples),
            None => Ok(samples),
        }
    }

    fn write(&self, trace: &[TraceLine], directory: &Path) -> Result<(), SimulateError> {
        let directory = directory.join(self.plant.name());
        fs::create_dir_all(&directory).map_err(SimulateError::file(&directory))?;
        let controller = self.algorithm.to_string().replace(':', "-");
        let path = directory.join(format!("{controller}-{}.jsonl", self.seed));
        let lines = trace.iter().map(|line| Ok(serde_json::to_string(line)? + "\n"));
        let text: io::Result<String> = lines.collect();
        text.and_then(|text| fs::write(&path, text)).map_err(SimulateError::file(&path))
    }
}

/// The limits that every controller may choose from.
fn bounds() -> Bounds {
    Bounds::new(Mpl::ONE, Mpl::at_least_one(HIGHEST)).expect("1 is not above the highest limit")
}

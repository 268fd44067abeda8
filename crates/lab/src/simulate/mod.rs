//! Any controller against any plant: virtual time, a seed, and how far it stays behind an oracle.
//!
//! # Mechanism
//! Every controller runs on every plant from every seed, control interval by control interval. The
//! seed decides the limit a run starts with, the plant's noise and the controller's draws; the
//! start and the noise are the same for all controllers, so that they differ by what they decide.
//! Each run is scored against the best fixed limit of each phase (see [`Measure`]), and a cell of
//! the matrix of controllers and plants holds the mean and the worst over the seeds.
//!
//! Nothing here takes time for its own sake: a run of 120 intervals of a minute takes milliseconds.
//! Runs are independent, so they are spread over threads; results are put into the order of the
//! runs, so that the number of threads cannot be seen in them.
//!
//! # Limits
//! * A controller that needs lock statistics is not run on a plant that has none; its averages
//!   leave that plant out, and the default's average over the same plants is given beside them.
//! * A mean over plants gives every plant the same weight, though some resemble each other.

mod error;
mod figure;
mod parallel;
mod plants;
mod report;
mod runner;
mod score;
mod table;

use std::collections::BTreeSet;
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::AtomicBool;

use tidegate_control::plant::Scenario;
use tidegate_control::{Algorithm, Mpl};

use crate::rig::Update;

pub use error::{ControllersError, SimulateError};
pub use plants::{random, read};
pub use report::{
    CellResult, ControllerSummary, Entry, MatrixCell, PhaseSummary, PlantSummary, SimulationReport,
};
pub use score::{
    BAND, Measure, Measures, Reached, SOON, Sample, Score, ScoredPhase, Spread, phases,
};

use parallel::in_parallel;
use plants::Plant;
use runner::PlantRun;

/// The highest limit a controller may choose; the lowest is 1.
pub const HIGHEST: u32 = 1_000;

#[derive(Clone, Debug)]
pub struct SimulateOptions {
    pub scenarios: Vec<Scenario>,
    pub controllers: Controllers,
    /// How many runs of each controller on each plant.
    pub seeds: NonZero<u32>,
    /// The seed of the first run; the others follow it.
    pub seed: u64,
    /// The limit that every run starts with, from 1 to 1,000; drawn from its seed when there is
    /// none.
    pub start: Option<u32>,
    /// Where the results are written; made when missing.
    pub out: PathBuf,
    /// Whether the intervals of every run are written too.
    pub trace: bool,
    pub threads: NonZero<usize>,
    /// The command line that asked for this, for the record.
    pub command: String,
}

impl SimulateOptions {
    /// The limit that the run of `seed` starts with.
    fn start_of(&self, seed: u64) -> Mpl {
        self.start.map_or_else(|| runner::start_of(seed), Mpl::at_least_one)
    }

    fn run_seeds(&self) -> impl Iterator<Item = u64> {
        (0..self.seeds.get()).map(|offset| self.seed.wrapping_add(offset.into()))
    }
}

/// Controllers by name: `all`, or names, with parameters if need be, and `fixed:N`, with commas
/// between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controllers(Vec<Algorithm>);

impl Controllers {
    /// Every controller that decides, the default first.
    pub fn all() -> Controllers {
        Controllers(Algorithm::ALL.to_vec())
    }
}

impl FromStr for Controllers {
    type Err = ControllersError;

    fn from_str(text: &str) -> Result<Controllers, ControllersError> {
        let mut controllers = Vec::new();
        for name in Algorithm::names(text) {
            match &*name {
                "all" => controllers.extend(Algorithm::ALL),
                name => controllers.push(name.parse()?),
            }
        }
        let mut seen = BTreeSet::new();
        controllers.retain(|&controller| seen.insert(controller));
        Ok(Controllers(controllers))
    }
}

/// Runs the simulation and writes `simulate.json`, `simulate.md` and `simulate.svg`, and traces if
/// wanted, into the output directory.
pub fn run(
    options: &SimulateOptions,
    cancel: &AtomicBool,
    observer: &mut dyn FnMut(&Update),
) -> Result<SimulationReport, SimulateError> {
    fs::create_dir_all(&options.out).map_err(SimulateError::file(&options.out))?;
    let mut progress = StageProgress::new(options, observer);
    progress.begin("Finding the best fixed limits".to_owned(), truth_work(&options.scenarios));
    let plants = plants::prepare(&options.scenarios, options.threads, cancel, |done, all| {
        progress.show(done, all);
    })?;
    let traces = options.trace.then(|| options.out.join("traces"));
    let runs = runs(options, &plants, traces.as_deref());
    let message = format!("Simulating {} runs on {} threads", runs.len(), options.threads);
    progress.begin(message, run_work(options));
    let score = |index: usize| {
        let run = &runs[index];
        run.samples(cancel).map(|samples| Score::of(&run.plant.phases, &samples))
    };
    let scores = in_parallel(options.threads, runs.len(), cancel, score, |done, all| {
        progress.show(done, all);
    });
    let scores: Result<Vec<Score>, SimulateError> =
        scores.ok_or(SimulateError::Cancelled)?.into_iter().collect();
    let report = SimulationReport::new(options, &plants, &runs, &scores?);
    report.write(&options.out)?;
    Ok(report)
}

/// Every run there is to make: seeds outside, so that the time left is well estimated early on.
fn runs<'a>(
    options: &'a SimulateOptions,
    plants: &'a [Plant<'a>],
    traces: Option<&'a Path>,
) -> Vec<PlantRun<'a>> {
    let mut runs = Vec::new();
    for seed in options.run_seeds() {
        let start = options.start_of(seed);
        for plant in plants {
            for &algorithm in &options.controllers.0 {
                if applies(algorithm, plant) {
                    runs.push(PlantRun { algorithm, plant, seed, start, traces });
                }
            }
        }
    }
    runs
}

/// Whether the plant tells the controller what it goes by.
fn applies(algorithm: Algorithm, plant: &Plant<'_>) -> bool {
    match algorithm.base() {
        Algorithm::HalfAndHalf | Algorithm::ConflictRatio => plant.tells_locks,
        _ => true,
    }
}

/// Control intervals that finding the truth takes.
fn truth_work(scenarios: &[Scenario]) -> f64 {
    scenarios.iter().map(|scenario| f64::from(scenario.truth_intervals())).sum()
}

/// Control intervals of all runs together.
fn run_work(options: &SimulateOptions) -> f64 {
    let intervals = options.scenarios.iter().flat_map(Scenario::intervals).map(f64::from);
    let times = options.controllers.0.len() as f64 * f64::from(options.seeds.get());
    intervals.sum::<f64>() * times
}

/// Signs of life for the caller, by control intervals.
struct StageProgress<'a> {
    observer: &'a mut dyn FnMut(&Update),
    message: String,
    /// Intervals of the stages that are over, of the present one, and of all.
    over: f64,
    present: f64,
    all: f64,
    /// Tenths of the stage that are done, for those who do not watch.
    tenths: usize,
}

impl<'a> StageProgress<'a> {
    fn new(options: &SimulateOptions, observer: &'a mut dyn FnMut(&Update)) -> StageProgress<'a> {
        let all = truth_work(&options.scenarios) + run_work(options);
        StageProgress { observer, message: String::new(), over: 0.0, present: 0.0, all, tenths: 0 }
    }

    /// The stage before is over, and one of so many intervals begins.
    fn begin(&mut self, message: String, intervals: f64) {
        self.over += self.present;
        (self.message, self.present, self.tenths) = (message, intervals, 0);
        self.tell(0.0, true);
    }

    /// So many parts of the stage are done.
    fn show(&mut self, done: usize, all: usize) {
        let tenths = done * 10 / all.max(1);
        let is_new = std::mem::replace(&mut self.tenths, tenths) < tenths;
        self.tell(done as f64 / all.max(1) as f64, is_new);
    }

    fn tell(&mut self, share: f64, is_new: bool) {
        let fraction = (self.over + self.present * share) / self.all.max(1.0);
        let message = format!("{}: {:.0} %", self.message, share * 100.0);
        (self.observer)(&Update { fraction, message, is_new });
    }
}

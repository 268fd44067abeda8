//! Controllers on a real database: every fixed limit, then every controller, on several workloads.
//!
//! # Mechanism
//! A private PostgreSQL serves a crowd of clients through the proxy, or the embedded engine through
//! its own server. For each [`BenchScenario`] the
//! tables are loaded, and then:
//!
//! 1. **Sweep.** Every limit of a list, fixed, each with a warm-up and a measurement: the curve of
//!    throughput against limit. A workload swept for an earlier scenario is not swept again.
//! 2. **Controllers.** Each from the same, poor, limit, for a longer time that counts from its
//!    first moment on. In a scenario with a switch all clients change the workload at once in the
//!    middle.
//! 3. **References.** The sweep's two best limits are measured again before the controllers, after
//!    every sixth, and after the last, as long as a controller runs.
//!
//! Limits and controllers come in an order drawn from the seed, so that a machine that grows slower
//! all the time does not do so along the axis. Every run has a fresh proxy or server, and tables
//! that were vacuumed, put in order and checkpointed. The module `score` says how a controller is
//! judged.
//!
//! # Example
//! `tidegate bench control --workloads tpcb-1 --controllers vegas,hill-climbing` makes 13 runs for
//! the sweep, 2 references, the controllers, 2 references: 19 runs.
//!
//! # What goes wrong
//! A run whose proxy does not start or whose load breaks is written down with the reason, and the
//! others go on. Errors, transactions run again and lost connections of every run are listed. What
//! ends all is a database that fails, a file that cannot be written, and Ctrl-C (the caller's
//! flag).
//! In any case proxy and database are stopped and the directory is removed.
//!
//! # Limits
//! Clients, proxy and server share one machine, as they do in the demonstration; clients and the
//! embedded engine even a process. Autovacuum is on, as it would be in earnest, and works in some
//! runs and not in others.

mod cell;
mod figure;
mod report;
mod scenario;
mod score;
mod sweep;
mod table;
#[cfg(test)]
mod testing;

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use thiserror::Error;
use tidegate_control::{Algorithm, Mpl};
use tidegate_subject::database::{Database, DatabaseError, Gate};
use tidegate_subject::settings::Settings;
use tidegate_workload::Random;

use crate::load::{FileLimit, Progress, Stage};
use crate::rig::{self, DatabaseChoice, DatabaseDescription, MAX_CLIENTS, RigError, Times, Update};

pub use cell::{BenchCell, Purpose};
pub use report::BenchReport;
pub use scenario::{BenchScenario, BenchWork, Ranges, UnknownBenchScenario};
pub use score::{ControllerScore, PhaseScore, ReferenceLimit, ReferenceRun, ScenarioScore};
pub use sweep::Sweep;

use cell::PlannedCell;

/// Where all proxies write what they have to warn of.
const LOG: &str = "proxy.log";

/// How many of a sweep's best limits are measured again.
const REFERENCES: usize = 2;

/// So many controllers run between two rounds of references.
const GROUP: usize = 6;

#[derive(Clone, Debug)]
pub struct BenchOptions {
    pub database: DatabaseChoice,
    pub tidegate: PathBuf,
    /// Where reports are written; made when missing.
    pub out: PathBuf,
    /// What clients do, in this order.
    pub scenarios: Vec<BenchScenario>,
    pub controllers: Vec<Algorithm>,
    /// The fixed limits of a sweep; those above the number of clients are left out.
    pub limits: Vec<Mpl>,
    /// How many clients there are, at most 1000.
    pub clients: usize,
    /// The limit a controller starts with.
    pub start: Mpl,
    /// The thrash study's workloads, with the size of their tables.
    pub thrash: Ranges,
    /// Uncounted and counted time at a fixed limit.
    pub sweep: Times,
    /// Time of a controller in each phase of a scenario.
    pub run: Duration,
    /// Where the clients' draws, the controllers' and the order of the runs begin.
    pub seed: u64,
    /// The command line that asked for this, for the record.
    pub command: String,
}

impl BenchOptions {
    /// The whole benchmark: every controller, four workloads and a switch, 256 clients.
    pub fn new(
        database: DatabaseChoice,
        thrash: Ranges,
        tidegate: PathBuf,
        out: PathBuf,
        command: String,
    ) -> Self {
        let seconds = Duration::from_secs;
        BenchOptions {
            scenarios: BenchScenario::usual(database.dbms),
            database,
            tidegate,
            out,
            controllers: Algorithm::ALL.to_vec(),
            limits: [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256]
                .map(Mpl::at_least_one)
                .to_vec(),
            clients: 256,
            start: Mpl::at_least_one(64),
            thrash,
            sweep: Times { warmup: seconds(2), measured: seconds(4) },
            run: seconds(14),
            seed: 1,
            command,
        }
    }

    /// Two controllers, a workload and a switch, few limits and short times: a minute that shows
    /// whether all works, with figures that mean little.
    pub fn quick(self) -> Self {
        BenchOptions {
            scenarios: vec![BenchScenario::Tpcb1, BenchScenario::Switch],
            controllers: vec![Algorithm::default(), Algorithm::HillClimbing],
            limits: [1, 4, 16, 64].map(Mpl::at_least_one).to_vec(),
            clients: 64,
            sweep: Times { warmup: Duration::from_millis(500), measured: Duration::from_secs(1) },
            run: Duration::from_secs(3),
            ..self
        }
    }

    fn check(&self) -> Result<(), BenchError> {
        if !(1..=MAX_CLIENTS).contains(&self.clients) {
            return Err(BenchError::Clients);
        }
        if self.scenarios.is_empty() || self.controllers.is_empty() || self.limits().is_empty() {
            return Err(BenchError::Nothing);
        }
        if self.sweep.measured.is_zero() || self.run.is_zero() {
            return Err(BenchError::NoTime);
        }
        Ok(())
    }

    /// The limits that make a difference, each once.
    fn limits(&self) -> Vec<Mpl> {
        let makes_sense = |limit: &&Mpl| limit.get() as usize <= self.clients;
        let mut limits: Vec<Mpl> = self.limits.iter().filter(makes_sense).copied().collect();
        limits.sort();
        limits.dedup();
        limits
    }

    /// Seconds that a run takes, with a guess for all that comes before and after the load.
    fn run_s(&self, plan: &PlannedCell) -> f64 {
        let level_s = plan.scenario.phases().iter().map(|work| work.level_s(&self.thrash));
        let load_s = plan.times(self).total().as_secs_f64() + self.clients as f64 / 400.0;
        0.2 + level_s.sum::<f64>() + load_s
    }

    /// Seconds that the whole benchmark takes, roughly.
    pub fn planned_s(&self) -> f64 {
        let mut swept: Vec<BenchWork> = Vec::new();
        let mut total_s = START_S;
        let rounds = self.controllers.len().div_ceil(GROUP) + 1;
        for &scenario in &self.scenarios {
            let plan = |purpose, work| PlannedCell { scenario, purpose, work, control: FIXED };
            for &work in scenario.phases() {
                let sweep_s = self.run_s(&plan(Purpose::Sweep, work));
                let again_s = self.run_s(&plan(Purpose::Reference, work));
                if !swept.contains(&work) {
                    swept.push(work);
                    total_s += sweep_s * self.limits().len() as f64;
                }
                total_s += again_s * (REFERENCES.min(self.limits().len()) * rounds) as f64;
                total_s += work.load_s(&self.thrash);
            }
            let run_s = self.run_s(&plan(Purpose::Controller, scenario.phases()[0]));
            total_s += run_s * self.controllers.len() as f64;
        }
        total_s
    }
}

/// Any fixed limit takes as long as any other.
const FIXED: Algorithm = Algorithm::Fixed(Mpl::ONE);

/// Seconds to start the database, roughly.
const START_S: f64 = 3.0;

#[derive(Debug, Error)]
pub enum BenchError {
    #[error("the number of clients must be between 1 and {MAX_CLIENTS}")]
    Clients,
    #[error("give at least one workload, one controller, and one limit within the clients")]
    Nothing,
    #[error("the times of runs must be above zero")]
    NoTime,
    /// Too few files may be open.
    #[error(transparent)]
    Files(#[from] FileLimit),
    #[error("no run of {work} at a fixed limit succeeded; the last failed with: {reason}")]
    NoSweep { work: &'static str, reason: String },
    /// The database, the proxy or a file failed.
    #[error(transparent)]
    Rig(#[from] RigError),
    #[error("cancelled")]
    Cancelled,
}

impl From<DatabaseError> for BenchError {
    fn from(error: DatabaseError) -> Self {
        RigError::from(error).into()
    }
}

impl BenchError {
    /// Whether it is what was asked for that is wrong.
    pub fn is_usage(&self) -> bool {
        matches!(self, BenchError::Clients | BenchError::Nothing | BenchError::NoTime)
    }
}

/// Runs the benchmark and writes `bench-control.json`, `bench-control.md`, `bench-control.svg` and
/// the controllers' journals into the output directory.
///
/// # Errors
/// See [`BenchError`]; nothing is left running.
pub fn run(
    options: &BenchOptions,
    cancel: &AtomicBool,
    observer: &mut dyn FnMut(&Update),
) -> Result<BenchReport, BenchError> {
    options.check()?;
    fs::create_dir_all(&options.out).map_err(RigError::file(&options.out))?;
    if options.database.dbms.gate == Gate::Proxy {
        rig::empty_file(&options.out.join(LOG))?;
    }
    let result = run_all(options, cancel, observer);
    // Ctrl-C may also surface as the failure of whatever was going on.
    match result {
        Err(_) if cancel.load(Ordering::Relaxed) => Err(BenchError::Cancelled),
        result => result,
    }
}

fn run_all(
    options: &BenchOptions,
    cancel: &AtomicBool,
    observer: &mut dyn FnMut(&Update),
) -> Result<BenchReport, BenchError> {
    let DatabaseChoice { dbms, reason } = &options.database;
    if dbms.gate == Gate::Proxy {
        rig::reserve_files(options.clients).map_err(|(_, limit)| limit)?;
    }
    let message = format!("{reason}: starting it; {}", planned(options));
    observer(&Update { fraction: 0.0, message, is_new: true });
    let mut bench = Bench {
        options,
        database: (dbms.start)(&Settings::default())?,
        cancel,
        observer,
        began: Instant::now(),
        done_s: START_S,
        total_s: options.planned_s(),
        cells: Vec::new(),
        inconsistent: Vec::new(),
    };
    for &scenario in &options.scenarios {
        bench.scenario(scenario)?;
    }
    let Bench { database, cells, inconsistent, .. } = bench;
    let description = DatabaseDescription::of(&*database)?;
    let report = BenchReport::new(options, description, cells, inconsistent)?;
    database.stop()?;
    report.write(&options.out)?;
    Ok(report)
}

fn planned(options: &BenchOptions) -> String {
    format!("about {:.0} minutes are planned", (options.planned_s() / 60.0).ceil())
}

struct Bench<'a> {
    options: &'a BenchOptions,
    database: Box<dyn Database>,
    cancel: &'a AtomicBool,
    observer: &'a mut dyn FnMut(&Update),
    began: Instant,
    /// Planned seconds that are over, and all of them.
    done_s: f64,
    total_s: f64,
    /// The runs made, in order.
    cells: Vec<BenchCell>,
    /// Scenarios whose balances did not agree at the end.
    inconsistent: Vec<&'static str>,
}

impl Bench<'_> {
    fn scenario(&mut self, scenario: BenchScenario) -> Result<(), BenchError> {
        let phases = scenario.phases();
        let names: Vec<&str> = phases.iter().map(|work| work.name()).collect();
        self.tell(format!("{scenario}: loading the tables of {}", names.join(" and ")));
        self.database.load(&scenario.workloads(self.options), self.cancel)?;
        self.done_s += phases.iter().map(|work| work.load_s(&self.options.thrash)).sum::<f64>();
        let mut proposals = Vec::new();
        for &work in scenario.phases() {
            let sweep = self.sweep(scenario, work)?;
            proposals.extend(sweep.best(REFERENCES).into_iter().map(|(limit, _)| (work, limit)));
        }
        let controllers = self.shuffled(&self.options.controllers, scenario.name());
        self.references(scenario, &proposals)?;
        for group in controllers.chunks(GROUP) {
            for &control in group {
                let work = scenario.phases()[0];
                self.run(&PlannedCell { scenario, purpose: Purpose::Controller, control, work })?;
            }
            self.references(scenario, &proposals)?;
        }
        self.check_balances(scenario)
    }

    /// The sweep of a workload, made now unless an earlier scenario has made it.
    fn sweep(&mut self, scenario: BenchScenario, work: BenchWork) -> Result<Sweep, BenchError> {
        if let Some(sweep) = Sweep::find(work, &self.cells) {
            return Ok(sweep);
        }
        for limit in self.shuffled(&self.options.limits(), work.name()) {
            let control = Algorithm::Fixed(limit);
            self.run(&PlannedCell { scenario, purpose: Purpose::Sweep, control, work })?;
        }
        Sweep::find(work, &self.cells).ok_or_else(|| BenchError::NoSweep {
            work: work.name(),
            reason: self
                .cells
                .iter()
                .rev()
                .find_map(|cell| cell.failure.clone())
                .expect("a run at a fixed limit has a report or a failure"),
        })
    }

    fn references(
        &mut self,
        scenario: BenchScenario,
        proposals: &[(BenchWork, Mpl)],
    ) -> Result<(), BenchError> {
        for &(work, limit) in proposals {
            let control = Algorithm::Fixed(limit);
            self.run(&PlannedCell { scenario, purpose: Purpose::Reference, control, work })?;
        }
        Ok(())
    }

    fn run(&mut self, plan: &PlannedCell) -> Result<(), BenchError> {
        self.tell(plan.to_string());
        let Bench { options, cancel, began, done_s, total_s, .. } = *self;
        let observer = &mut *self.observer;
        let cell =
            plan.run(options, &*self.database, began, cancel, &mut |seconds, progress| {
                observer(&Update {
                    fraction: (done_s + seconds) / total_s,
                    message: describe(plan, progress),
                    is_new: false,
                });
            })?;
        let troubles = cell.troubles();
        self.cells.push(cell);
        self.done_s += options.run_s(plan);
        if !troubles.is_empty() {
            self.tell(format!("{plan}: {}", troubles.join(", ")));
        }
        Ok(())
    }

    /// The sums that every TPC-B transaction changes alike must be equal.
    fn check_balances(&mut self, scenario: BenchScenario) -> Result<(), BenchError> {
        if !scenario.phases().iter().any(|work| work.is_tpcb()) {
            return Ok(());
        }
        let sums = rig::sums(&*self.database)?;
        if !sums.consistent() {
            self.inconsistent.push(scenario.name());
        }
        Ok(())
    }

    /// `items` in an order drawn from the seed and a name (Fisher and Yates).
    fn shuffled<T: Clone>(&self, items: &[T], name: &str) -> Vec<T> {
        let stream = name.bytes().fold(0, |stream: u64, byte| (stream << 5) ^ u64::from(byte));
        let mut draw = Random::new(self.options.seed, stream | (1 << 63));
        let mut items = items.to_vec();
        for last in (1..items.len()).rev() {
            items.swap(last, draw.index(last + 1));
        }
        items
    }

    fn tell(&mut self, message: String) {
        let fraction = self.done_s / self.total_s;
        (self.observer)(&Update { fraction, message, is_new: true });
    }
}

fn describe(plan: &PlannedCell, progress: &Progress) -> String {
    let Progress { connected, tps, .. } = progress;
    match progress.stage {
        Stage::Connecting | Stage::Ready => format!("{plan}: {connected} connected"),
        Stage::Warmup => format!("{plan}: {tps:.0} tps, not counted yet"),
        Stage::Measuring => format!("{plan}: {tps:.0} tps"),
        Stage::Draining => format!("{plan}: {connected} still in a transaction"),
    }
}

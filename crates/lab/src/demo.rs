//! The main job end to end: what a growing crowd of clients gets from a database directly, and what
//! it gets through Tidegate.
//!
//! # Mechanism
//! A private database is started and pgbench's tables are loaded. Then, for each number of clients,
//! the TPC-B-like load runs first directly and then through Tidegate. One controller lives over all
//! steps, so its limit has one history: a step begins with the limit the step before ended with.
//! Its warm-up is longer because that is the time it has to find the new one. Before each run the
//! tables are put in order and a checkpoint is made, so that both runs of a step start alike.
//!
//! | | PostgreSQL | embedded engine |
//! | --- | --- | --- |
//! | scale | 1: every transaction updates the same row | [`EMBEDDED_SCALE`] |
//! | direct | clients connect to the server | the engine's server, a thread for each client |
//! | through Tidegate | clients connect to the proxy | the engine's server, limited |
//!
//! Whatever happens, Ctrl-C included (the caller's flag), the database is stopped and its directory
//! is removed; only the files in the output directory stay.

mod error;
mod figure;
mod summary;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_control::Algorithm;
use tidegate_subject::database::{Database, Gate};
use tidegate_subject::embedded::ClassPriorities;
use tidegate_subject::settings::Settings;
use tidegate_workload::pgbench::Scale;
use tidegate_workload::tpcb::Tpcb;
use tidegate_workload::workload::Workload;

use crate::load::{self, LoadOptions, LoadReport, Progress, Stage};
use crate::rig::{self, DatabaseDescription, Front, FrontOptions, MAX_CLIENTS, RigError};

pub use crate::rig::{Console, DatabaseChoice, Interval, Machine, Times, Update};
pub use error::DemoError;
pub use summary::{DemoStep, DemoSummary};

/// The scale of the tables in the embedded engine.
pub const EMBEDDED_SCALE: Scale = Scale::new(10).expect("10 is within the range of scales");

#[derive(Clone, Debug)]
pub struct DemoOptions {
    pub database: DatabaseChoice,
    pub tidegate: PathBuf,
    /// Where reports are written; made when missing.
    pub out: PathBuf,
    pub scale: Scale,
    /// Numbers of clients, one step each, at most 1000.
    pub clients: Vec<usize>,
    /// Uncounted and counted time of each direct run.
    pub direct: Times,
    /// Uncounted and counted time of each run through Tidegate.
    pub proxied: Times,
    pub seed: u64,
    /// The command line that asked for this, for the record.
    pub command: String,
}

impl DemoOptions {
    /// The demonstration of the README: 4, 64, 256 and 1,000 clients in less than two minutes.
    pub fn new(database: DatabaseChoice, tidegate: PathBuf, out: PathBuf, command: String) -> Self {
        let times = |warmup, measured| Times {
            warmup: Duration::from_secs(warmup),
            measured: Duration::from_secs(measured),
        };
        DemoOptions {
            scale: if database.dbms.gate == Gate::Own { EMBEDDED_SCALE } else { Scale::ONE },
            database,
            tidegate,
            out,
            clients: vec![4, 64, 256, 1000],
            direct: times(1, 5),
            proxied: times(4, 8),
            seed: 1,
            command,
        }
    }

    /// Few clients, small tables and short times: some seconds that show whether all works, with
    /// figures that mean little.
    pub fn quick(self) -> Self {
        let times = |warmup, measured| Times {
            warmup: Duration::from_millis(warmup),
            measured: Duration::from_millis(measured),
        };
        DemoOptions {
            scale: Scale::ONE,
            clients: vec![4, 64],
            direct: times(200, 800),
            proxied: times(500, 2000),
            ..self
        }
    }
}

/// Which way clients go to the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DemoSide {
    /// With nobody in between.
    Direct,
    /// As many at once as Tidegate admits.
    Proxied,
}

impl std::fmt::Display for DemoSide {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            DemoSide::Direct => "direct",
            DemoSide::Proxied => "through Tidegate",
        })
    }
}

/// Runs the demonstration and writes `summary.json`, `report.svg`, `journal.jsonl` and, where there
/// is a proxy, `proxy.log` into the output directory.
///
/// # Errors
/// See [`DemoError`]; nothing is left running.
pub fn run(
    options: &DemoOptions,
    cancel: &AtomicBool,
    observer: &mut dyn FnMut(&Update),
) -> Result<DemoSummary, DemoError> {
    let result = Demo::new(options, cancel, observer).and_then(Demo::run);
    // Ctrl-C may also surface as the failure of whatever was going on.
    match result {
        Err(_) if cancel.load(Ordering::Relaxed) => Err(DemoError::Cancelled),
        result => result,
    }
}

struct Demo<'a> {
    options: &'a DemoOptions,
    cancel: &'a AtomicBool,
    observer: &'a mut dyn FnMut(&Update),
    clients: Vec<usize>,
    /// Planned seconds that are over.
    done_s: f64,
}

impl<'a> Demo<'a> {
    fn new(
        options: &'a DemoOptions,
        cancel: &'a AtomicBool,
        observer: &'a mut dyn FnMut(&Update),
    ) -> Result<Self, DemoError> {
        let mut demo =
            Demo { options, cancel, observer, clients: options.clients.clone(), done_s: 0.0 };
        let is_sound = |clients: &usize| (1..=MAX_CLIENTS).contains(clients);
        if demo.clients.is_empty() || !demo.clients.iter().all(is_sound) {
            return Err(DemoError::Clients);
        }
        fs::create_dir_all(&options.out).map_err(RigError::file(&options.out))?;
        if options.database.dbms.gate == Gate::Proxy {
            demo.fit_to_file_limit();
        }
        Ok(demo)
    }

    fn fit_to_file_limit(&mut self) {
        let most = self.clients.iter().copied().max().unwrap_or(0);
        let Err((room, limit)) = rig::reserve_files(most) else {
            return;
        };
        self.tell(format!("Fewer clients than planned, at most {room}: {limit}"));
        for clients in &mut self.clients {
            *clients = (*clients).min(room);
        }
        self.clients.dedup();
    }

    fn run(mut self) -> Result<DemoSummary, DemoError> {
        let DemoOptions { database, out, .. } = self.options;
        self.tell(format!("{}: starting it", database.reason));
        let mut database = (database.dbms.start)(&Settings::default())?;
        self.tell(format!("Loading pgbench's tables at scale {}", self.options.scale.get()));
        database.load(&[self.workload()], self.cancel)?;
        let front = self.front(&*database)?;
        self.done_s += START_S;

        let mut steps = Vec::new();
        for clients in self.clients.clone() {
            steps.push(self.step(clients, &*database, &front)?);
        }
        front.stop()?;
        let summary = DemoSummary::new(
            self.options,
            DatabaseDescription::of(&*database)?,
            rig::sums(&*database)?,
            steps,
        );
        database.stop()?;
        summary.write(out)?;
        figure::draw(&summary, &out.join("report.svg"))?;
        Ok(summary)
    }

    fn front<'d>(&self, database: &'d dyn Database) -> Result<Front<'d>, RigError> {
        let DemoOptions { tidegate, out, seed, .. } = self.options;
        let log = out.join("proxy.log");
        if self.options.database.dbms.gate == Gate::Proxy {
            rig::empty_file(&log)?;
        }
        let options = FrontOptions {
            tidegate,
            log,
            log_level: "info",
            journal: Some(self.journal()),
            control: Algorithm::default(),
            start: None,
            priorities: ClassPriorities::default(),
            seed: *seed,
            arms: Vec::new(),
        };
        Front::limited(database, options)
    }

    fn workload(&self) -> Arc<dyn Workload> {
        // The two collapse for different reasons: PostgreSQL by its processes; the engine by the
        // deadlocks of programs that read what they are about to change.
        let reads_first = self.options.database.dbms.gate == Gate::Own;
        Arc::new(Tpcb { scale: self.options.scale, reads_first })
    }

    fn journal(&self) -> PathBuf {
        self.options.out.join("journal.jsonl")
    }

    fn step(
        &mut self,
        clients: usize,
        database: &dyn Database,
        front: &Front<'_>,
    ) -> Result<DemoStep, DemoError> {
        database.level(&[self.workload()])?;
        let way = Front::direct(database, clients)?;
        let direct = self.load(clients, DemoSide::Direct, &way)?;
        way.stop()?;

        database.level(&[self.workload()])?;
        let (cpu_before_s, from) = (front.cpu_seconds()?, front.age());
        let proxied = self.load(clients, DemoSide::Proxied, front)?;
        let (cpu_after_s, until) = (front.cpu_seconds()?, front.age());
        let intervals = rig::journal_between(&self.journal(), from, until)?;
        let transactions = (proxied.transactions + proxied.warmup_transactions).max(1);
        let cpu_s = cpu_before_s.zip(cpu_after_s).map(|(before_s, after_s)| after_s - before_s);
        Ok(DemoStep {
            clients,
            ratio: proxied.tps / direct.tps,
            limit_at_end: intervals.last().map(|interval| interval.next_limit),
            proxy_cpu_us: cpu_s.map(|cpu_s| cpu_s * 1e6 / (transactions as f64)),
            began_s: from.as_secs_f64(),
            direct,
            proxied,
            intervals,
        })
    }

    fn load(
        &mut self,
        clients: usize,
        side: DemoSide,
        way: &Front<'_>,
    ) -> Result<LoadReport, DemoError> {
        let times = self.times(side);
        let options = LoadOptions {
            warmup: times.warmup,
            duration: times.measured,
            seed: self.options.seed,
            ..LoadOptions::new(way.target(), self.workload(), clients)
        };
        self.tell(format!("{clients} clients {side}"));
        let (before_s, total_s) = (self.done_s, self.total_s());
        let observer = &mut *self.observer;
        let report = load::run(&options, self.cancel, &mut |progress| {
            observer(&Update {
                fraction: (before_s + times.seconds_into(progress)) / total_s,
                message: describe(clients, side, progress),
                is_new: false,
            });
        });
        self.done_s += run_s(clients, times);
        report.map_err(|source| DemoError::Load { clients, side, source })
    }

    fn times(&self, side: DemoSide) -> Times {
        match side {
            DemoSide::Direct => self.options.direct,
            DemoSide::Proxied => self.options.proxied,
        }
    }

    /// Planned seconds of the whole demonstration.
    fn total_s(&self) -> f64 {
        let step_s = |clients: &usize| {
            run_s(*clients, self.options.direct) + run_s(*clients, self.options.proxied)
        };
        START_S + self.clients.iter().map(step_s).sum::<f64>()
    }

    fn tell(&mut self, message: String) {
        let fraction = self.done_s / self.total_s();
        (self.observer)(&Update { fraction, message, is_new: true });
    }
}

/// Seconds to start the database and load the tables, roughly.
const START_S: f64 = 4.0;

/// Seconds a run takes, with a guess for connecting and draining.
fn run_s(clients: usize, times: Times) -> f64 {
    times.total().as_secs_f64() + clients as f64 / 300.0
}

fn describe(clients: usize, side: DemoSide, progress: &Progress) -> String {
    let Progress { connected, tps, .. } = progress;
    match progress.stage {
        Stage::Connecting | Stage::Ready => {
            format!("{clients} clients {side}: {connected} connected")
        }
        Stage::Warmup => format!("{clients} clients {side}: {tps:.0} tps, not counted yet"),
        Stage::Measuring => format!("{clients} clients {side}: {tps:.0} tps"),
        Stage::Draining => format!("{clients} clients {side}: {connected} still in a transaction"),
    }
}

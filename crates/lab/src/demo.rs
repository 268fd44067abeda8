//! The main job end to end: what a growing crowd of clients gets from a database directly, and what
//! it gets through the proxy.
//!
//! A private PostgreSQL server is started and pgbench's tables are loaded at scale 1, where every
//! transaction updates the same row. Then, for each number of clients, the TPC-B-like load runs
//! first directly and then through the proxy. One proxy lives over all steps, so its limit has one
//! history: a step begins with the limit the step before ended with. Its warm-up is longer because
//! that is the time it has to find the new one. Before each run the hot tables are vacuumed and a
//! checkpoint is made, so that both runs of a step start alike.
//!
//! Whatever happens, Ctrl-C included (the caller's flag), the proxy and the server are stopped and
//! the server's directory is removed; only the files in the output directory stay.

mod error;
mod figure;
mod summary;

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_subject::postgres::Postgres;
use tidegate_workload::Workload;
use tidegate_workload::pgbench::{LEVEL_STATEMENTS, Scale, load_statements};

use crate::load::{self, LoadOptions, LoadReport, Progress, Stage};
use crate::rig::{self, CONNECT_TIMEOUT, MAX_CLIENTS, Proxy, ProxyOptions, RigError};

pub use crate::rig::{Console, Interval, Machine, Times, Update};
pub use error::DemoError;
pub use summary::{DemoSummary, Step};

/// What the demonstration runs.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// The `tidegate` program.
    pub tidegate: PathBuf,
    /// Where reports are written; made when missing.
    pub out: PathBuf,
    /// Numbers of clients, one step each, at most 1000.
    pub clients: Vec<usize>,
    /// Uncounted and counted time of each direct run.
    pub direct: Times,
    /// Uncounted and counted time of each run through the proxy.
    pub proxied: Times,
    /// Where the clients' draws begin.
    pub seed: u64,
    /// The command line that asked for this, for the record.
    pub command: String,
}

impl DemoOptions {
    /// The demonstration of the README: 4, 64, 256 and 1,000 clients in less than two minutes.
    #[must_use]
    pub fn new(tidegate: PathBuf, out: PathBuf, command: String) -> Self {
        let times = |warmup, measured| Times {
            warmup: Duration::from_secs(warmup),
            measured: Duration::from_secs(measured),
        };
        DemoOptions {
            tidegate,
            out,
            clients: vec![4, 64, 256, 1000],
            direct: times(1, 5),
            proxied: times(4, 8),
            seed: 1,
            command,
        }
    }
}

/// Which way clients go to the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Straight to the server.
    Direct,
    /// Through the proxy.
    Proxied,
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Side::Direct => "direct",
            Side::Proxied => "through Tidegate",
        })
    }
}

/// Runs the demonstration and writes `summary.json`, `report.svg`, `journal.jsonl` and `proxy.log`
/// into the output directory.
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
    scale: Scale,
    /// Planned seconds that are over.
    done_s: f64,
}

impl<'a> Demo<'a> {
    fn new(
        options: &'a DemoOptions,
        cancel: &'a AtomicBool,
        observer: &'a mut dyn FnMut(&Update),
    ) -> Result<Self, DemoError> {
        let mut demo = Demo {
            options,
            cancel,
            observer,
            clients: options.clients.clone(),
            scale: Scale::new(1).ok_or(DemoError::Clients)?,
            done_s: 0.0,
        };
        let is_sound = |clients: &usize| (1..=MAX_CLIENTS).contains(clients);
        if demo.clients.is_empty() || !demo.clients.iter().all(is_sound) {
            return Err(DemoError::Clients);
        }
        fs::create_dir_all(&options.out).map_err(RigError::file(&options.out))?;
        demo.fit_to_file_limit();
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
        self.tell("Starting a private PostgreSQL server".into());
        let server = rig::start_server()?;
        self.tell("Loading pgbench's tables at scale 1".into());
        rig::execute(&server, self.cancel, &load_statements(self.scale))?;
        let DemoOptions { tidegate, out, .. } = self.options;
        let log = out.join("proxy.log");
        rig::empty_file(&log)?;
        let proxy = Proxy::start(
            &server,
            ProxyOptions {
                tidegate,
                log,
                journal: Some(self.journal()),
                arguments: vec!["--admin-listen".into(), "127.0.0.1:0".into()],
            },
        )?;
        self.done_s += START_S;

        let mut steps = Vec::new();
        for clients in self.clients.clone() {
            steps.push(self.step(clients, &server, &proxy)?);
        }
        let sums = rig::read_sums(&server)?;
        let summary = DemoSummary::new(self.options, &server, self.scale, sums, steps)?;
        proxy.stop()?;
        server.stop().map_err(RigError::from)?;
        summary.write(&self.options.out)?;
        figure::draw(&summary, &self.options.out.join("report.svg"))?;
        Ok(summary)
    }

    fn journal(&self) -> PathBuf {
        self.options.out.join("journal.jsonl")
    }

    fn step(
        &mut self,
        clients: usize,
        server: &Postgres,
        proxy: &Proxy,
    ) -> Result<Step, DemoError> {
        rig::execute(server, self.cancel, &LEVEL_STATEMENTS)?;
        let direct = self.load(clients, Side::Direct, &server.url())?;
        rig::execute(server, self.cancel, &LEVEL_STATEMENTS)?;

        let (cpu_before_s, from) = (proxy.cpu_seconds()?, proxy.age());
        let proxied = self.load(clients, Side::Proxied, &proxy.url)?;
        let (cpu_after_s, until) = (proxy.cpu_seconds()?, proxy.age());
        let intervals = rig::journal_between(&self.journal(), from, until)?;
        let transactions = proxied.transactions + proxied.warmup_transactions;
        Ok(Step {
            clients,
            ratio: proxied.tps / direct.tps,
            limit_at_end: intervals.last().map(|interval| interval.next_limit),
            proxy_cpu_us: (cpu_after_s - cpu_before_s) * 1e6 / (transactions.max(1) as f64),
            began_s: from.as_secs_f64(),
            direct,
            proxied,
            intervals,
        })
    }

    fn load(&mut self, clients: usize, side: Side, url: &str) -> Result<LoadReport, DemoError> {
        let times = self.times(side);
        let options = LoadOptions {
            url: url.to_owned(),
            workload: Workload::Tpcb,
            scale: self.scale,
            clients,
            warmup: times.warmup,
            duration: times.measured,
            connect_timeout: CONNECT_TIMEOUT,
            seed: self.options.seed,
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

    fn times(&self, side: Side) -> Times {
        match side {
            Side::Direct => self.options.direct,
            Side::Proxied => self.options.proxied,
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

/// Seconds to start the server and load the tables, roughly.
const START_S: f64 = 4.0;

/// Seconds a run takes, with a guess for connecting and draining.
fn run_s(clients: usize, times: Times) -> f64 {
    times.total().as_secs_f64() + clients as f64 / 300.0
}

fn describe(clients: usize, side: Side, progress: &Progress) -> String {
    let Progress { connected, tps, .. } = progress;
    match progress.stage {
        Stage::Connecting => format!("{clients} clients {side}: {connected} connected"),
        Stage::Warmup => format!("{clients} clients {side}: {tps:.0} tps, not counted yet"),
        Stage::Measuring => format!("{clients} clients {side}: {tps:.0} tps"),
        Stage::Draining => format!("{clients} clients {side}: {connected} still in a transaction"),
    }
}

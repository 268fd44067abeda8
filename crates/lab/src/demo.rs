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

mod console;
mod error;
mod figure;
mod journal;
mod machine;
mod proxy;
mod summary;

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_subject::postgres::{self, Postgres};
use tidegate_workload::Workload;
use tidegate_workload::pgbench::{LEVEL_STATEMENTS, SUMS_QUERY, Scale, Sums, load_statements};

use crate::load::{self, LoadOptions, LoadReport, Progress, Stage};

pub use console::Console;
pub use error::DemoError;
pub use journal::Interval;
pub use machine::Machine;
pub use summary::{DemoSummary, Step};

use proxy::Proxy;

/// The server's settings that are not PostgreSQL's defaults.
const SETTINGS: [(&str, &str); 2] = [("max_connections", "1100"), ("shared_buffers", "256MB")];

/// Connections of the server kept for others than the clients: its own reserve, the proxy, us.
const SPARE_CONNECTIONS: usize = 100;
const MAX_CLIENTS: usize = 1100 - SPARE_CONNECTIONS;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

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

/// How long a run lasts.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Time that does not count.
    pub warmup: Duration,
    /// Time that counts.
    pub measured: Duration,
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

/// A sign of life.
#[derive(Clone, Debug)]
pub struct Update {
    /// How much of the demonstration is done, by planned time, from 0 to 1.
    pub fraction: f64,
    /// What is going on.
    pub message: String,
    /// Whether something new has begun, so that also those who do not watch want to know.
    pub is_new: bool,
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
        fs::create_dir_all(&options.out).map_err(DemoError::file(&options.out))?;
        demo.fit_to_file_limit();
        Ok(demo)
    }

    /// The proxy inherits our limit and needs a socket for each client and each server connection.
    fn fit_to_file_limit(&mut self) {
        let most = self.clients.iter().copied().max().unwrap_or(0);
        let Err(limit) = load::reserve_files(2 * most) else {
            return;
        };
        let room = (limit.sockets / 2).max(1);
        // The soft limit may still be lower than what the hard one allows.
        let _ = load::reserve_files(2 * room);
        self.tell(format!("Fewer clients than planned, at most {room}: {limit}"));
        for clients in &mut self.clients {
            *clients = (*clients).min(room);
        }
        self.clients.dedup();
    }

    fn run(mut self) -> Result<DemoSummary, DemoError> {
        self.tell("Starting a private PostgreSQL server".into());
        let settings = SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let server = Postgres::start(postgres::Options {
            settings: settings.to_vec(),
            ..postgres::Options::default()
        })?;
        self.tell("Loading pgbench's tables at scale 1".into());
        execute(&server, self.cancel, &load_statements(self.scale))?;
        let proxy = Proxy::start(&self.options.tidegate, &server, &self.options.out)?;
        self.done_s += START_S;

        let mut steps = Vec::new();
        for clients in self.clients.clone() {
            steps.push(self.step(clients, &server, &proxy)?);
        }
        let sums = read_sums(&server)?;
        let summary = DemoSummary::new(self.options, &server, self.scale, sums, steps)?;
        proxy.stop()?;
        server.stop()?;
        summary.write(&self.options.out)?;
        figure::draw(&summary, &self.options.out.join("report.svg"))?;
        Ok(summary)
    }

    fn step(
        &mut self,
        clients: usize,
        server: &Postgres,
        proxy: &Proxy,
    ) -> Result<Step, DemoError> {
        execute(server, self.cancel, &LEVEL_STATEMENTS)?;
        let direct = self.load(clients, Side::Direct, &server.url())?;
        execute(server, self.cancel, &LEVEL_STATEMENTS)?;

        let (cpu_before_s, from) = (proxy.cpu_seconds()?, proxy.age());
        let proxied = self.load(clients, Side::Proxied, &proxy.url)?;
        let (cpu_after_s, until) = (proxy.cpu_seconds()?, proxy.age());
        let intervals = journal::between(&proxy.journal, from, until)?;
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
                fraction: (before_s + seconds_into(progress, times)) / total_s,
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
    (times.warmup + times.measured).as_secs_f64() + clients as f64 / 300.0
}

/// How far into its run a load is, in seconds.
fn seconds_into(progress: &Progress, times: Times) -> f64 {
    let elapsed = match progress.stage {
        Stage::Connecting => Duration::ZERO,
        Stage::Warmup => progress.elapsed,
        Stage::Measuring => times.warmup + progress.elapsed,
        Stage::Draining => times.warmup + times.measured,
    };
    elapsed.as_secs_f64()
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

fn execute(
    server: &Postgres,
    cancel: &AtomicBool,
    statements: &[impl AsRef<str>],
) -> Result<(), DemoError> {
    let mut client = server.connect()?;
    for statement in statements {
        if cancel.load(Ordering::Relaxed) {
            return Err(DemoError::Cancelled);
        }
        client.query(statement.as_ref())?;
    }
    Ok(())
}

fn read_sums(server: &Postgres) -> Result<Option<Sums>, DemoError> {
    let rows = server.connect()?.query(SUMS_QUERY)?;
    Ok(rows.first().and_then(|row| Sums::read(row)))
}

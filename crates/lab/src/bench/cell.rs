//! One run of the benchmark: a fresh proxy, a load, and what came of it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Serialize, Serializer};
use tidegate_control::{Algorithm, Mpl};
use tidegate_subject::postgres::Postgres;

use super::{BenchOptions, Scenario, Work};
use crate::load::{self, LoadError, LoadOptions, LoadReport, Phase, Progress};
use crate::rig::{self, Interval, Proxy, ProxyOptions, RigError, Times};

/// What a run is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// One point of the curve of throughput against limit.
    Sweep,
    /// One of the best fixed limits once more, as a measure of the machine at this time.
    Reference,
    /// A controller to be judged.
    Controller,
}

/// A run to make.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) scenario: Scenario,
    pub(super) purpose: Purpose,
    pub(super) control: Algorithm,
    /// The workload of a run with a fixed limit; a controller goes through the whole scenario.
    pub(super) work: Work,
}

/// A run that was made.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// The scenario that it belongs to.
    pub scenario: &'static str,
    /// What it is for.
    pub purpose: Purpose,
    /// Who chose the limit: a controller, or `fixed:N`.
    #[serde(serialize_with = "as_text")]
    pub control: Algorithm,
    /// What the clients did, phase by phase.
    pub works: Vec<Work>,
    /// When it began, in seconds since the benchmark began.
    pub began_s: f64,
    /// What the clients saw. A controller's phases have two halves each, counted apart.
    pub load: Option<LoadReport>,
    /// Why there is no such report.
    pub failure: Option<String>,
    /// The controller's intervals, in seconds since the load was called for.
    pub intervals: Vec<Interval>,
}

impl Plan {
    fn works(&self) -> &[Work] {
        match self.purpose {
            Purpose::Controller => self.scenario.phases(),
            Purpose::Sweep | Purpose::Reference => std::slice::from_ref(&self.work),
        }
    }

    /// A controller is judged from its first moment on.
    pub(super) fn times(&self, options: &BenchOptions) -> Times {
        match self.purpose {
            Purpose::Sweep | Purpose::Reference => options.sweep,
            Purpose::Controller => {
                let phases = u32::try_from(self.works().len()).unwrap_or(u32::MAX);
                Times { warmup: Duration::ZERO, measured: options.run * phases }
            }
        }
    }

    /// Measured time in order: a fixed limit's in one piece, a controller's phases in halves.
    fn phases(&self, options: &BenchOptions) -> Vec<Phase> {
        let pieces = if self.purpose == Purpose::Controller { 2 } else { 1 };
        let duration = match self.purpose {
            Purpose::Controller => options.run / pieces,
            Purpose::Sweep | Purpose::Reference => options.sweep.measured,
        };
        let phases = self.works().iter().flat_map(|&work| {
            let (workload, scale) = (work.workload(options.rows), work.scale());
            (0..pieces).map(move |_| Phase { workload, scale, duration })
        });
        phases.collect()
    }

    fn arguments(&self, options: &BenchOptions) -> Vec<String> {
        let mut arguments = vec!["--log-level=warn".to_owned(), format!("--seed={}", options.seed)];
        arguments.push(format!("--control={}", self.control));
        if self.purpose == Purpose::Controller {
            arguments.push(format!("--start-mpl={}", options.start));
        }
        arguments
    }

    /// Where the proxy's journal goes; only a controller's is kept.
    fn journal(&self, out: &Path) -> PathBuf {
        match self.purpose {
            Purpose::Sweep | Purpose::Reference => out.join("fixed.jsonl"),
            Purpose::Controller => out.join(format!("{}-{}.jsonl", self.scenario, self.control)),
        }
    }

    /// Makes the run; the load's progress is shown as seconds into it.
    ///
    /// # Errors
    /// The server or a file failed, or all was cancelled. What goes wrong with the proxy or the
    /// load is in the cell instead: other runs may still do.
    pub(super) fn run(
        &self,
        options: &BenchOptions,
        server: &Postgres,
        began: Instant,
        cancel: &AtomicBool,
        observe: &mut dyn FnMut(f64, &Progress),
    ) -> Result<Cell, RigError> {
        // All tables of the scenario, also those that this run leaves alone.
        for work in self.scenario.phases() {
            rig::execute(server, cancel, &work.level_statements())?;
        }
        let mut cell = Cell {
            scenario: self.scenario.name(),
            purpose: self.purpose,
            control: self.control,
            works: self.works().to_vec(),
            began_s: began.elapsed().as_secs_f64(),
            load: None,
            failure: None,
            intervals: Vec::new(),
        };
        match self.measure(options, server, cancel, observe) {
            Ok((load, intervals)) => (cell.load, cell.intervals) = (Some(load), intervals),
            Err(_) if cancel.load(Ordering::Relaxed) => return Err(RigError::Cancelled),
            Err(Failure::Rig(error @ (RigError::File { .. } | RigError::Database(_)))) => {
                return Err(error);
            }
            Err(failure) => cell.failure = Some(failure.to_string()),
        }
        Ok(cell)
    }

    fn measure(
        &self,
        options: &BenchOptions,
        server: &Postgres,
        cancel: &AtomicBool,
        observe: &mut dyn FnMut(f64, &Progress),
    ) -> Result<(LoadReport, Vec<Interval>), Failure> {
        let proxy = Proxy::start(
            server,
            ProxyOptions {
                tidegate: &options.tidegate,
                log: options.out.join(super::LOG),
                journal: self.journal(&options.out),
                arguments: self.arguments(options),
            },
        )?;
        let times = self.times(options);
        let phases = self.phases(options);
        let Some((first, then)) = phases.split_first() else {
            return Err(Failure::Load(LoadError::NoClients));
        };
        let load_options = LoadOptions {
            url: proxy.url.clone(),
            workload: first.workload,
            scale: first.scale,
            clients: options.clients,
            warmup: times.warmup,
            duration: first.duration,
            connect_timeout: rig::CONNECT_TIMEOUT,
            seed: options.seed,
        };
        let called = proxy.age();
        let load = load::run_phases(&load_options, then, cancel, &mut |progress| {
            observe(times.seconds_into(progress), progress);
        })?;
        let journal = proxy.journal.clone();
        proxy.stop()?;
        let intervals = match self.purpose {
            Purpose::Sweep | Purpose::Reference => Vec::new(),
            Purpose::Controller => since(called, rig::read_journal(&journal)?),
        };
        Ok((load, intervals))
    }
}

/// The intervals with their times counted from `called`, which was so long after the proxy's start.
fn since(called: Duration, intervals: Vec<Interval>) -> Vec<Interval> {
    let called_s = called.as_secs_f64();
    let moved = |interval: Interval| Interval { at_s: interval.at_s - called_s, ..interval };
    intervals.into_iter().map(moved).collect()
}

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Rig(#[from] RigError),
    #[error(transparent)]
    Load(#[from] LoadError),
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&title(self.scenario.name(), self.purpose, self.works(), self.control))
    }
}

/// What a run is called in messages.
fn title(scenario: &str, purpose: Purpose, works: &[Work], control: Algorithm) -> String {
    match (purpose, works) {
        (Purpose::Controller, _) | (_, []) => format!("{scenario}, {control}"),
        (Purpose::Sweep, [work, ..]) => format!("{}, {control}", work.name()),
        (Purpose::Reference, [work, ..]) => {
            format!("{scenario}: {} again, {control}", work.name())
        }
    }
}

impl Cell {
    /// What the run is called in messages.
    #[must_use]
    pub fn title(&self) -> String {
        title(self.scenario, self.purpose, &self.works, self.control)
    }

    /// Transactions per second over all measured time, when there was a load.
    #[must_use]
    pub fn tps(&self) -> Option<f64> {
        self.load.as_ref().map(|load| load.tps)
    }

    /// The fixed limit, of a run with one.
    pub(super) fn fixed_limit(&self) -> Option<Mpl> {
        match self.control {
            Algorithm::Fixed(limit) => Some(limit),
            _ => None,
        }
    }

    /// What did not go as it should, in words; nothing when all did. In a closed loop every client
    /// is in a transaction when the time is up; only an old one is worth a word.
    #[must_use]
    pub fn troubles(&self) -> Vec<String> {
        let mut troubles: Vec<String> = self.failure.iter().cloned().collect();
        let Some(load) = &self.load else {
            return troubles;
        };
        for (code, count) in &load.errors {
            troubles.push(format!("{count} errors {code}"));
        }
        for (count, what) in [
            (load.retries, "transactions run again"),
            (load.connection_losses as u64, "connections lost"),
            (load.connect_retries, "logins tried again"),
        ] {
            if count > 0 {
                troubles.push(format!("{count} {what}"));
            }
        }
        if load.oldest_straggler_s > load.seconds / 2.0 {
            let seconds = load.oldest_straggler_s;
            troubles.push(format!("a transaction not done after {seconds:.1} s"));
        }
        troubles
    }
}

fn as_text<S: Serializer>(control: &Algorithm, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(control)
}

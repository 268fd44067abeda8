//! One run of the benchmark: a fresh proxy or server, a load, and what came of it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Serialize, Serializer};
use tidegate_control::{Algorithm, Mpl};
use tidegate_subject::database::Database;
use tidegate_subject::embedded::ClassPriorities;

use super::{BenchOptions, BenchScenario, BenchWork, LOG};
use crate::load::{self, LoadError, LoadOptions, LoadReport, Phase, Progress};
use crate::rig::{self, Front, FrontOptions, Interval, RigError, Times};

/// When the time is up a transaction has been under way for up to clients over throughput, if it is
/// not overtaken (Little's law). One that took this many times as long is reported, if that is at
/// least so many seconds.
const OLD: f64 = 5.0;
const OLD_S: f64 = 2.0;

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
pub(super) struct PlannedCell {
    pub(super) scenario: BenchScenario,
    pub(super) purpose: Purpose,
    pub(super) control: Algorithm,
    /// The workload of a run with a fixed limit. A controller goes through the whole scenario and
    /// begins with this.
    pub(super) work: BenchWork,
}

/// A run that was made.
#[derive(Clone, Debug, Serialize)]
pub struct BenchCell {
    /// The scenario that it belongs to.
    pub scenario: &'static str,
    pub purpose: Purpose,
    /// Who chose the limit: a controller, or `fixed:N`.
    #[serde(serialize_with = "as_text")]
    pub control: Algorithm,
    /// What the clients did, phase by phase.
    pub works: Vec<BenchWork>,
    /// When it began, in seconds since the benchmark began.
    pub began_s: f64,
    /// What the clients saw. Phases have two halves each, counted apart, but for a sweep's.
    pub load: Option<LoadReport>,
    /// Why there is no such report.
    pub failure: Option<String>,
    /// The controller's intervals, in seconds since the load was called for.
    pub intervals: Vec<Interval>,
}

impl PlannedCell {
    fn works(&self) -> &[BenchWork] {
        match self.purpose {
            Purpose::Controller => self.scenario.phases(),
            Purpose::Sweep | Purpose::Reference => std::slice::from_ref(&self.work),
        }
    }

    /// A controller is judged from its first moment on, and compared with a fixed limit that was
    /// measured just so: tables grow, and what is fast at first need not stay so.
    pub(super) fn times(&self, options: &BenchOptions) -> Times {
        match self.purpose {
            Purpose::Sweep => options.sweep,
            Purpose::Reference | Purpose::Controller => {
                let phases = u32::try_from(self.works().len()).expect("there are one or two");
                Times { warmup: Duration::ZERO, measured: options.run * phases }
            }
        }
    }

    /// How many pieces a phase is counted in: halves, but for the sweep.
    fn pieces(&self) -> u32 {
        if self.purpose == Purpose::Sweep { 1 } else { 2 }
    }

    /// The length of such a piece.
    fn piece(&self, options: &BenchOptions) -> Duration {
        match self.purpose {
            Purpose::Sweep => options.sweep.measured,
            Purpose::Reference | Purpose::Controller => options.run / self.pieces(),
        }
    }

    /// All pieces but the first, in order.
    fn then(&self, options: &BenchOptions) -> Vec<Phase> {
        let pieces = self.works().iter().flat_map(|&work| {
            let workload = work.workload(options);
            let duration = self.piece(options);
            (0..self.pieces()).map(move |_| Phase { workload: workload.clone(), duration })
        });
        pieces.skip(1).collect()
    }

    /// Where the limit begins; a fixed one is what it is.
    fn start(&self, options: &BenchOptions) -> Option<Mpl> {
        (!matches!(self.control, Algorithm::Fixed(_))).then_some(options.start)
    }

    /// Where the journal goes; only a controller has one.
    fn journal(&self, out: &Path) -> Option<PathBuf> {
        let name = || format!("{}-{}.jsonl", self.scenario, self.control);
        (self.purpose == Purpose::Controller).then(|| out.join(name()))
    }

    /// Makes the run; the load's progress is shown as seconds into it.
    ///
    /// # Errors
    /// The database or a file failed, or all was cancelled. What goes wrong with the proxy or the
    /// load is in the cell instead: other runs may still do.
    pub(super) fn run(
        &self,
        options: &BenchOptions,
        database: &dyn Database,
        began: Instant,
        cancel: &AtomicBool,
        observe: &mut dyn FnMut(f64, &Progress),
    ) -> Result<BenchCell, RigError> {
        database.level(&self.scenario.workloads(options))?;
        let mut cell = BenchCell {
            scenario: self.scenario.name(),
            purpose: self.purpose,
            control: self.control,
            works: self.works().to_vec(),
            began_s: began.elapsed().as_secs_f64(),
            load: None,
            failure: None,
            intervals: Vec::new(),
        };
        match self.measure(options, database, cancel, observe) {
            Ok((load, intervals)) => (cell.load, cell.intervals) = (Some(load), intervals),
            Err(_) if cancel.load(Ordering::Relaxed) => return Err(RigError::Cancelled),
            Err(CellFailure::Rig(error)) if !error.is_passing() => return Err(error),
            Err(failure) => cell.failure = Some(failure.to_string()),
        }
        Ok(cell)
    }

    fn measure(
        &self,
        options: &BenchOptions,
        database: &dyn Database,
        cancel: &AtomicBool,
        observe: &mut dyn FnMut(f64, &Progress),
    ) -> Result<(LoadReport, Vec<Interval>), CellFailure> {
        let journal = self.journal(&options.out);
        let front_options = FrontOptions {
            tidegate: &options.tidegate,
            log: options.out.join(LOG),
            log_level: "warn",
            journal: journal.clone(),
            control: self.control,
            start: self.start(options),
            priorities: ClassPriorities::default(),
            seed: options.seed,
            arms: Vec::new(),
        };
        let front = Front::limited(database, front_options)?;
        let times = self.times(options);
        let workload = self.work.workload(options);
        let load_options = LoadOptions {
            warmup: times.warmup,
            duration: self.piece(options),
            seed: options.seed,
            ..LoadOptions::new(front.target(), workload, options.clients)
        };
        let called = front.age();
        let load = load::run_phases(&load_options, &self.then(options), cancel, &mut |progress| {
            observe(times.seconds_into(progress), progress);
        })?;
        front.stop()?;
        let intervals = match journal {
            Some(journal) => since(called, rig::read_journal(&journal)?),
            None => Vec::new(),
        };
        Ok((load, intervals))
    }
}

/// The intervals with their times counted from `called`, which was so long after the start.
fn since(called: Duration, intervals: Vec<Interval>) -> Vec<Interval> {
    let called_s = called.as_secs_f64();
    let moved = |interval: Interval| Interval { at_s: interval.at_s - called_s, ..interval };
    intervals.into_iter().map(moved).collect()
}

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
enum CellFailure {
    #[error(transparent)]
    Rig(#[from] RigError),
    #[error(transparent)]
    Load(#[from] LoadError),
}

impl fmt::Display for PlannedCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&title(self.scenario.name(), self.purpose, self.works(), self.control))
    }
}

/// What a run is called in messages.
fn title(scenario: &str, purpose: Purpose, works: &[BenchWork], control: Algorithm) -> String {
    match (purpose, works) {
        (Purpose::Controller, _) | (_, []) => format!("{scenario}, {control}"),
        (Purpose::Sweep, [work, ..]) => format!("{}, {control}", work.name()),
        (Purpose::Reference, [work, ..]) => {
            format!("{scenario}: {} again, {control}", work.name())
        }
    }
}

impl BenchCell {
    /// What the run is called in messages.
    pub fn title(&self) -> String {
        title(self.scenario, self.purpose, &self.works, self.control)
    }

    /// Transactions per second over all measured time, when there was a load.
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
    pub fn troubles(&self) -> Vec<String> {
        let mut troubles: Vec<String> = self.failure.iter().cloned().collect();
        let Some(load) = &self.load else {
            return troubles;
        };
        for (code, count) in &load.errors {
            troubles.push(format!("{count} errors {code}"));
        }
        // Where the database runs them again by itself, clients know nothing of it.
        let retries = if load.errors.is_empty() { 0 } else { load.retries };
        for (count, what) in [
            (retries, "transactions run again"),
            (load.connection_losses as u64, "connections lost"),
            (load.connect_retries, "logins tried again"),
        ] {
            if count > 0 {
                troubles.push(format!("{count} {what}"));
            }
        }
        let (age_s, expected_s) = (load.oldest_straggler_s, load.clients as f64 / load.tps);
        if load.transactions == 0 {
            troubles.push("no transaction committed".to_owned());
        } else if age_s > OLD_S.max(OLD * expected_s) {
            troubles.push(format!("a transaction not done after {age_s:.1} s"));
        }
        troubles
    }
}

fn as_text<S: Serializer>(control: &Algorithm, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(control)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::testing::{self, fixed};

    /// What is said of a second with 200 clients and so many transactions.
    fn troubles(transactions: u64, change: impl Fn(&mut LoadReport)) -> Vec<String> {
        let mut cell = fixed(Purpose::Sweep, BenchWork::Tpcb1, 0.0, 4, transactions);
        cell.load.iter_mut().for_each(change);
        cell.troubles()
    }

    #[test]
    fn what_went_wrong_is_named_and_nothing_else() {
        assert_eq!(troubles(100, |_| {}), [""; 0]);
        let lost = troubles(100, |load| {
            load.errors.insert("40P01".into(), 3);
            (load.retries, load.connection_losses, load.connect_retries) = (3, 2, 1);
        });
        let expected = [
            "3 errors 40P01",
            "3 transactions run again",
            "2 connections lost",
            "1 logins tried again",
        ];
        assert_eq!(lost, expected);
        assert_eq!(troubles(0, |_| {}), ["no transaction committed"]);

        let mut failed = fixed(Purpose::Sweep, BenchWork::Tpcb1, 0.0, 4, 1);
        (failed.load, failed.failure) = (None, Some("no proxy".into()));
        assert_eq!(failed.troubles(), ["no proxy"]);
    }

    #[test]
    fn a_transaction_is_old_when_others_were_served_meanwhile() {
        // 200 clients at 100 tps are served every 2 s, so 10 s is five times too long. At 1,000 tps
        // that would be a second, but what is below 2 s is not worth a word.
        for (transactions, age_s, is_old) in
            [(100, 9.9, false), (100, 10.1, true), (1_000, 1.9, false), (1_000, 2.1, true)]
        {
            let said = troubles(transactions, |load| load.oldest_straggler_s = age_s);
            assert_eq!(!said.is_empty(), is_old, "{transactions} tps, {age_s} s: {said:?}");
        }
    }

    #[test]
    fn a_controllers_phases_are_counted_in_halves() {
        let options = testing::options();
        let work = BenchScenario::Switch.phases()[0];
        let plan = |purpose, control| PlannedCell {
            scenario: BenchScenario::Switch,
            purpose,
            control,
            work,
        };
        let vegas = plan(Purpose::Controller, Algorithm::Vegas);
        let half = options.run / 2;
        let names: Vec<_> = vegas
            .then(&options)
            .iter()
            .map(|phase| (phase.workload.name(), phase.duration))
            .collect();
        assert_eq!(names, [("tpcb", half), ("thrash", half), ("thrash", half)]);
        assert_eq!(vegas.times(&options).total(), options.run * 2);
        assert_eq!(vegas.start(&options), Some(Mpl::at_least_one(64)));

        let fixed = plan(Purpose::Reference, Algorithm::Fixed(Mpl::at_least_one(3)));
        assert_eq!(fixed.then(&options).len(), 1);
        assert_eq!(fixed.times(&options).total(), options.run);
        let swept = plan(Purpose::Sweep, Algorithm::Fixed(Mpl::at_least_one(3)));
        assert!(swept.then(&options).is_empty());
        assert_eq!(swept.times(&options).total(), options.sweep.total());
        assert_eq!(fixed.start(&options), None);
    }
}

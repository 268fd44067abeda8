//! Runs what an experiment has planned and the store does not have yet.
//!
//! # Mechanism
//! A run's subject is started, and batchset by batchset tables are made, executions are made on
//! them, and the tables are checked. What fails is tried again by whoever resumes, not at once: a
//! batchset with three failures in a row is left, and so is one whose tables cannot be
//! made. Its tables are checked all the same, the subject is started anew, and the next batchset
//! begins. So what always fails costs its own batchset and no other.
//!
//! # Example
//! MPL 1000 cannot connect; MPLs are in a random order. Each batchset has what came before its
//! third failure in a row, and `resume` begins with what failed: three more failures each.
//!
//! # Limits
//! * In a batchset in which something always fails, what comes after it in the order may never be
//!   made.
//! * Who is interrupted after a batchset's executions and before its tables were checked has lost
//!   these tables: nobody can check them any more. The store says so ([`Store::unchecked`]).

use std::collections::BTreeMap;
use std::mem::discriminant;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use thiserror::Error;
use tidegate_workload::workload::Condition;

use crate::conduct::{Assignment, ExecutionError, Executor, simulated};
use crate::experiment::machine;
use crate::experiment::plan::{START_S, execution_s};
use crate::experiment::{Batchset, Execution, Experiment, Plan, RunPlan};
use crate::load::{Progress, Stage};
use crate::rig::{Machine, Update};
use crate::store::{Kept, NOT_CHECKED, Store, StoreError};

/// Failures one after the other after which the rest of a batchset is left for another time.
const FAILURES_MAX: u32 = 3;

/// How often a pause looks at the cancellation flag.
const POLL: Duration = Duration::from_millis(20);

/// Why an experiment stopped before its end. It can be resumed.
#[derive(Debug, Error)]
pub enum RunError {
    #[error("cancelled; `tidegate lab resume {0}` goes on from here")]
    Cancelled(i64),
    #[error("{source}; `tidegate lab resume {id}` goes on from there")]
    Store { id: i64, source: StoreError },
}

/// Why a part of it stopped.
enum Stop {
    Cancelled,
    Store(StoreError),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Stop::Store(error)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Executions that were done now.
    pub done: usize,
    /// Executions that failed now, and are still to be done.
    pub failed: usize,
    /// Runs and batchsets that were left for another time, and why: a subject that cannot be
    /// started, tables that cannot be made, executions that fail one after the other.
    pub unavailable: Vec<String>,
}

pub struct Runner<'a> {
    pub experiment: &'a Experiment,
    pub plan: &'a Plan,
    pub id: i64,
    pub store: &'a mut Store,
    /// Makes an executor for a run's subject.
    pub executor: &'a mut dyn FnMut(&RunPlan) -> Box<dyn Executor>,
    /// Ends it soon when raised.
    pub cancel: &'a AtomicBool,
    /// Is told how far it is.
    pub observer: &'a mut dyn FnMut(&Update),
}

impl Runner<'_> {
    /// Runs what is left to do.
    pub fn run(&mut self) -> Result<Outcome, RunError> {
        self.run_those(&|_| true)
    }

    /// Runs what is left to do of one run, by its number.
    pub fn run_only(&mut self, number: u32) -> Result<Outcome, RunError> {
        self.run_those(&|run| run == number)
    }

    fn run_those(&mut self, is_wanted: &dyn Fn(u32) -> bool) -> Result<Outcome, RunError> {
        let id = self.id;
        self.run_wanted(is_wanted).map_err(|stop| match stop {
            Stop::Cancelled => RunError::Cancelled(id),
            Stop::Store(source) => RunError::Store { id, source },
        })
    }

    fn run_wanted(&mut self, is_wanted: &dyn Fn(u32) -> bool) -> Result<Outcome, Stop> {
        let mut to_do = self.store.to_do(self.id)?;
        to_do.retain(|one, _| is_wanted(one.run));
        let rows: BTreeMap<u32, i64> =
            self.store.runs(self.id)?.into_iter().map(|row| (row.number, row.id)).collect();
        let batchsets: BTreeMap<(u32, u32), i64> = self
            .store
            .batchsets(self.id)?
            .into_iter()
            .map(|row| ((row.run, row.number), row.id))
            .collect();
        let mut clock = Clock::new(self.experiment, self.plan, &to_do);
        let mut outcome = Outcome::default();
        for run in self.plan.runs.iter().filter(|run| is_wanted(run.number)) {
            let Some(&row) = rows.get(&run.number) else { continue };
            if !to_do.keys().any(|one| one.run == run.number) {
                continue;
            }
            let mut course = RunInProgress { run, row, batchsets: &batchsets, clock: &mut clock };
            self.run_held(&mut course, &mut outcome)?;
        }
        Ok(outcome)
    }

    /// Makes what is left of a run, unless another laboratory is at it.
    fn run_held(
        &mut self,
        course: &mut RunInProgress<'_>,
        outcome: &mut Outcome,
    ) -> Result<(), Stop> {
        if let Some(holder) = self.store.hold_run(course.row)? {
            let reason = format!("{}: left to {holder}", course.run.title());
            self.tell(course.clock, reason.clone());
            outcome.unavailable.push(reason);
            return Ok(());
        }
        // Read anew: another laboratory may have been at it until now.
        let to_do = self.store.to_do(self.id)?;
        let executions = self.plan.executions(course.run).into_iter();
        let executions: Vec<(Execution, i64)> =
            executions.filter_map(|one| Some((one, *to_do.get(&one)?))).collect();
        let result = match executions.as_slice() {
            [] => Ok(()),
            some => self.run_one(course, some, outcome),
        };
        let released = self.store.release_run(course.row);
        // The first error says more than what it leads to.
        result?;
        Ok(released?)
    }

    /// Makes executions of a run. After a batchset that was given up the subject is started anew:
    /// whatever state that left it in, the next shall not suffer from it.
    fn run_one(
        &mut self,
        course: &mut RunInProgress<'_>,
        executions: &[(Execution, i64)],
        outcome: &mut Outcome,
    ) -> Result<(), Stop> {
        let mut left = executions;
        while !left.is_empty() {
            left = self.run_started(course, left, outcome)?;
            course.clock.total_s += if left.is_empty() { 0.0 } else { START_S };
        }
        Ok(())
    }

    /// Starts the subject, makes executions and stops it; the executions that want another start.
    fn run_started<'e>(
        &mut self,
        course: &mut RunInProgress<'_>,
        executions: &'e [(Execution, i64)],
        outcome: &mut Outcome,
    ) -> Result<&'e [(Execution, i64)], Stop> {
        let mut executor = (self.executor)(course.run);
        let name = course.run.title();
        self.tell(course.clock, format!("{name}: starting"));
        // Before the start: a subject within this process keeps all of it to its processors.
        let machine = Machine::this();
        let started = match executor.start(course.run, self.cancel) {
            Ok(started) => started,
            Err(ExecutionError::Cancelled) => return Err(Stop::Cancelled),
            Err(error) => {
                self.leave(course, format!("{name}: {error}"), executions, outcome);
                return Ok(&[]);
            }
        };
        let kept = Kept::of(self.experiment, course.run.subject.kind);
        self.store.keep_time(self.id, course.run.number, kept)?;
        let start = self.store.started(course.row, &machine, &started)?;
        course.clock.done_s += START_S;
        let result = self.execute_all(course, &mut *executor, start, executions, outcome);
        // Also after an error: what was started is stopped.
        let stopped = executor.stop();
        let left = result?;
        if let Err(error) = stopped {
            self.tell(course.clock, format!("{name}: {error}"));
        }
        Ok(left)
    }

    /// Makes executions, batchset by batchset, until one is given up; those that come after it.
    fn execute_all<'e>(
        &mut self,
        course: &mut RunInProgress<'_>,
        executor: &mut dyn Executor,
        start: i64,
        executions: &'e [(Execution, i64)],
        outcome: &mut Outcome,
    ) -> Result<&'e [(Execution, i64)], Stop> {
        let mut left = executions;
        while let Some((first, _)) = left.first() {
            let number = first.batchset;
            let is_another = |(one, _): &(Execution, i64)| one.batchset != number;
            let count = left.iter().position(is_another).unwrap_or(left.len());
            let (these, rest) = left.split_at(count);
            left = rest;
            let Some(batchset) = course.run.batchset(number) else { continue };
            if !self.execute_batchset(course, executor, start, (batchset, these), outcome)? {
                break;
            }
        }
        Ok(left)
    }

    /// Makes executions of a batchset and checks its tables; whether it got to the end.
    fn execute_batchset(
        &mut self,
        course: &mut RunInProgress<'_>,
        executor: &mut dyn Executor,
        start: i64,
        (batchset, executions): (&Batchset, &[(Execution, i64)]),
        outcome: &mut Outcome,
    ) -> Result<bool, Stop> {
        let name = format!("{}, batchset {}", course.run.title(), batchset.number);
        let mut failures = 0;
        for (place, &one) in executions.iter().enumerate() {
            if self.cancel.load(Ordering::Relaxed) {
                return Err(Stop::Cancelled);
            }
            let is_fresh = batchset.treatment.needs_fresh_tables();
            if place > 0 && is_fresh {
                self.check(course, executor, start, batchset)?;
            }
            if (place == 0 || is_fresh)
                && let Some(reason) = self.prepare(course, executor, batchset)?
            {
                self.leave(course, format!("{name}: {reason}"), &executions[place..], outcome);
                return Ok(false);
            }
            if let Some(reason) = self.execute(course, executor, start, one, batchset)? {
                (outcome.failed, failures) = (outcome.failed + 1, failures + 1);
                if failures == FAILURES_MAX {
                    let why = format!("{name}: {failures} failures in a row, at last: {reason}");
                    self.leave(course, why, &executions[place + 1..], outcome);
                    self.check(course, executor, start, batchset)?;
                    return Ok(false);
                }
            } else {
                (outcome.done, failures) = (outcome.done + 1, 0);
            }
            self.pause(course)?;
        }
        self.check(course, executor, start, batchset)?;
        Ok(true)
    }

    /// Leaves executions for another time.
    fn leave(
        &mut self,
        course: &mut RunInProgress<'_>,
        reason: String,
        executions: &[(Execution, i64)],
        outcome: &mut Outcome,
    ) {
        self.tell(course.clock, reason.clone());
        outcome.unavailable.push(reason);
        course.clock.skip(executions);
    }

    /// Makes the tables; why that did not go well, if so.
    fn prepare(
        &mut self,
        course: &mut RunInProgress<'_>,
        executor: &mut dyn Executor,
        batchset: &Batchset,
    ) -> Result<Option<String>, Stop> {
        self.tell(course.clock, format!("{}: loading tables", course.run.title()));
        let workloads = batchset.treatment.workloads(&batchset.workload);
        match executor.prepare(&workloads, self.cancel) {
            Ok(()) => {
                course.clock.done_s += batchset.load_s(1);
                Ok(None)
            }
            Err(ExecutionError::Cancelled) => Err(Stop::Cancelled),
            Err(error) => Ok(Some(error.to_string())),
        }
    }

    /// Makes one execution; why it failed, if it did.
    fn execute(
        &mut self,
        course: &mut RunInProgress<'_>,
        executor: &mut dyn Executor,
        start: i64,
        (execution, row): (Execution, i64),
        batchset: &Batchset,
    ) -> Result<Option<String>, Stop> {
        let experiment = self.experiment;
        let seed = execution.seed(experiment.seed);
        let title = format!(
            "{}, batchset {}, MPL {}",
            course.run.title(),
            execution.batchset,
            execution.mpl
        );
        self.tell(course.clock, title.clone());
        let tried = self.store.try_execution(row, start, seed)?;
        let assignment = Assignment {
            workload: batchset.workload.clone(),
            mpl: execution.mpl,
            treatment: batchset.treatment.clone(),
            warmup: experiment.warmup,
            ctl: experiment.ctl,
            interval: experiment.interval,
            connect: experiment.connect,
            connect_at_once: experiment.connect_at_once,
            seed,
            transactions: experiment.transactions.then(|| self.store.transactions(self.id, tried)),
        };
        let (clock, observer) = (&*course.clock, &mut *self.observer);
        let measured = executor.execute(&assignment, self.cancel, &mut |progress| {
            observer(&Update {
                fraction: clock.fraction(seconds_into(experiment, progress)),
                message: format!("{title}: {:.0} tps", progress.tps),
                is_new: false,
            });
        });
        course.clock.done_s += execution_s(experiment, execution.mpl);
        match measured {
            Ok(measured) => {
                if course.is_virtual() {
                    let connecting = Duration::from_secs_f64(measured.connect_s);
                    let times = [experiment.warmup, experiment.ctl, connecting];
                    self.store.pass(times.iter().sum());
                }
                self.store.measured(tried, &measured)?;
                Ok(None)
            }
            Err(ExecutionError::Cancelled) => {
                self.store.failed(tried, "cancelled")?;
                Err(Stop::Cancelled)
            }
            Err(error) => {
                let reason = error.to_string();
                self.store.failed(tried, &reason)?;
                self.tell(course.clock, format!("{title}: {reason}"));
                Ok(Some(reason))
            }
        }
    }

    /// Checks the tables of all workloads of a batchset, those that several share once.
    fn check(
        &mut self,
        course: &mut RunInProgress<'_>,
        executor: &mut dyn Executor,
        start: i64,
        batchset: &Batchset,
    ) -> Result<(), Stop> {
        let Some(&row) = course.batchsets.get(&(course.run.number, batchset.number)) else {
            return Ok(());
        };
        let name = course.run.title();
        let mut workloads = batchset.treatment.workloads(&batchset.workload);
        // Those of a kind on the same tables have the same conditions.
        workloads.dedup_by(|then, first| {
            discriminant(then) == discriminant(first) && then.shares_tables_with(first)
        });
        let mut conditions = Vec::new();
        for workload in workloads {
            match executor.check(&workload, self.experiment.check) {
                Ok(checked) => conditions.extend(checked),
                Err(ExecutionError::Cancelled) => return Err(Stop::Cancelled),
                Err(error) => conditions.push(not_checked(&error)),
            }
        }
        for Condition { name: what, violation } in &conditions {
            if let Some(violation) = violation {
                self.tell(course.clock, format!("{name}: {what}: {violation}"));
            }
        }
        // All at once: a batchset of which only the first workload was checked is not checked.
        Ok(self.store.checked(start, row, &conditions)?)
    }

    fn pause(&mut self, course: &RunInProgress<'_>) -> Result<(), Stop> {
        if course.is_virtual() {
            simulated::pass(self.experiment.pause);
            self.store.pass(self.experiment.pause);
            return Ok(());
        }
        let until = Instant::now() + self.experiment.pause;
        while Instant::now() < until {
            if self.cancel.load(Ordering::Relaxed) {
                return Err(Stop::Cancelled);
            }
            std::thread::sleep(POLL.min(until.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }

    fn tell(&mut self, clock: &Clock, message: String) {
        let fraction = clock.fraction(0.0);
        (self.observer)(&Update { fraction, message, is_new: true });
    }
}

struct RunInProgress<'a> {
    run: &'a RunPlan,
    row: i64,
    batchsets: &'a BTreeMap<(u32, u32), i64>,
    clock: &'a mut Clock,
}

impl RunInProgress<'_> {
    /// Whether its time only seems to go by.
    fn is_virtual(&self) -> bool {
        self.run.subject.kind.is_virtual()
    }
}

/// How much of the planned time is done.
struct Clock {
    done_s: f64,
    total_s: f64,
    /// What an execution of each MPL is planned to take.
    by_mpl: BTreeMap<u32, f64>,
}

impl Clock {
    fn new(experiment: &Experiment, plan: &Plan, to_do: &BTreeMap<Execution, i64>) -> Self {
        let of = |mpl: u32| execution_s(experiment, mpl);
        let executions: f64 = to_do.keys().map(|execution| of(execution.mpl)).sum();
        let mut left: BTreeMap<(u32, u32), usize> = BTreeMap::new();
        for one in to_do.keys() {
            *left.entry((one.run, one.batchset)).or_default() += 1;
        }
        let loads = |run: &RunPlan, batchset: &Batchset| {
            let executions = left.get(&(run.number, batchset.number)).copied().unwrap_or(0);
            let is_fresh = batchset.treatment.needs_fresh_tables();
            if is_fresh { executions } else { executions.min(1) }
        };
        let loads: f64 = plan
            .runs
            .iter()
            .flat_map(|run| run.batchsets.iter().map(move |set| (run, set)))
            .map(|(run, set)| set.load_s(loads(run, set)))
            .sum();
        let runs: std::collections::BTreeSet<u32> = to_do.keys().map(|one| one.run).collect();
        Clock {
            done_s: 0.0,
            total_s: executions + loads + START_S * runs.len() as f64,
            by_mpl: experiment.mpls.iter().map(|&mpl| (mpl, of(mpl))).collect(),
        }
    }

    fn skip(&mut self, executions: &[(Execution, i64)]) {
        let times = executions.iter().filter_map(|(one, _)| self.by_mpl.get(&one.mpl));
        self.done_s += times.sum::<f64>();
    }

    fn fraction(&self, more_s: f64) -> f64 {
        (self.done_s + more_s) / self.total_s.max(f64::MIN_POSITIVE)
    }
}

/// What stands in the store where it is not known whether the conditions hold.
fn not_checked(error: &ExecutionError) -> Condition {
    Condition { name: NOT_CHECKED, violation: Some(error.to_string()) }
}

fn seconds_into(experiment: &Experiment, progress: &Progress) -> f64 {
    let elapsed = match progress.stage {
        Stage::Connecting | Stage::Ready => Duration::ZERO,
        Stage::Warmup => progress.elapsed,
        Stage::Measuring => experiment.warmup + progress.elapsed,
        Stage::Draining => experiment.warmup + experiment.ctl,
    };
    elapsed.as_secs_f64()
}

impl RunPlan {
    /// What the run is called in messages.
    pub fn title(&self) -> String {
        let processors = match self.processors {
            Some(1) => ", 1 processor".to_owned(),
            Some(count) => format!(", {count} processors"),
            None => String::new(),
        };
        let machine = machine::described(&self.subject.settings.named);
        let keys = if self.primary_key { "" } else { ", no primary keys" };
        format!("{}{processors}{machine}{keys}", self.subject.kind)
    }

    pub(crate) fn batchset(&self, number: u32) -> Option<&Batchset> {
        self.batchsets.iter().find(|batchset| batchset.number == number)
    }
}

#[cfg(test)]
mod tests;

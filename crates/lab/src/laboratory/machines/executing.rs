//! A job: what is left of a run is made, on this host.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::laboratory::run::{Outcome, RunError};
use crate::laboratory::{LabError, Laboratory};
use crate::rig::Update;
use crate::store::StoreError;

use super::wait;

/// How long what failed is left before it is tried again on the same host.
const AGAIN: [Duration; 4] = [
    Duration::from_secs(3),
    Duration::from_secs(7),
    Duration::from_secs(20),
    Duration::from_secs(55),
];

/// Whom a worker tells what it is at.
pub type Observer = Box<dyn FnMut(&Update) + Send>;

/// A run to be executed: which one is decided when it is first taken ([`Store::take_turn`]).
///
/// [`Store::take_turn`]: crate::store::Store::take_turn
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunJob {
    /// The experiment's number in the store.
    pub(super) experiment: i64,
    /// The place of the run among those that are taken.
    pub(super) place: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum JobEnding {
    Done,
    /// It failed, and may be tried again later, maybe elsewhere.
    Failed(String),
    /// It is to be put back at once, and the session with the queue to end; with the reason when
    /// the store is lost.
    PutBack(Option<String>),
}

pub(super) fn tell(observer: &mut Observer, message: String) {
    observer(&Update { fraction: 0.0, message, is_new: true });
}

/// The laboratory at work on jobs, one at a time.
pub(super) struct Executing<'o> {
    pub(super) laboratory: Laboratory,
    pub(super) cancel: Arc<AtomicBool>,
    pub(super) observer: &'o mut Observer,
}

impl Executing<'_> {
    pub(super) fn do_job(&mut self, job: RunJob) -> JobEnding {
        match self.try_job(job) {
            Ok(ending) => ending,
            Err(LabError::Run(RunError::Cancelled(_))) => JobEnding::PutBack(None),
            Err(error) => self.ending_of(&error),
        }
    }

    /// Does a job, and again what failed after it had begun here: elsewhere all of a batchset would
    /// be measured anew for it. What fails to the end is left for `tidegate lab resume`.
    fn try_job(&mut self, job: RunJob) -> Result<JobEnding, LabError> {
        let RunJob { experiment, place } = job;
        let Executing { laboratory, cancel, observer } = self;
        let Some(run) = laboratory.store.take_turn(experiment, place)? else {
            return Ok(JobEnding::Done);
        };
        let observer = &mut |update: &Update| {
            let message = format!("experiment {experiment}, run {run}: {}", update.message);
            observer(&Update { message, ..update.clone() });
        };
        let mut pauses = AGAIN.into_iter();
        loop {
            let left = execute(laboratory, (experiment, run), cancel, observer)?;
            if left.reasons.is_empty() {
                return Ok(JobEnding::Done);
            }
            if !left.has_begun {
                return Ok(JobEnding::Failed(left.reasons.join("; ")));
            }
            let Some(pause) = pauses.next() else { return Ok(JobEnding::Done) };
            if !wait(pause, cancel) {
                return Err(RunError::Cancelled(experiment).into());
            }
        }
    }

    fn ending_of(&mut self, error: &LabError) -> JobEnding {
        let store = match error {
            LabError::Store(error) | LabError::Run(RunError::Store { source: error, .. }) => {
                Some(error)
            }
            _ => None,
        };
        let reason = error.to_string();
        if store.is_some_and(StoreError::is_lost) {
            return JobEnding::PutBack(Some(reason));
        }
        tell(self.observer, format!("left for another time: {reason}"));
        JobEnding::Failed(reason)
    }
}

/// What is left of a run.
struct RemainingWork {
    /// Why; nothing where nothing is left.
    reasons: Vec<String>,
    /// Whether executions were made here.
    has_begun: bool,
}

/// Makes what is left of a run, by its number in the plan.
fn execute(
    laboratory: &mut Laboratory,
    (experiment, run): (i64, u32),
    cancel: &AtomicBool,
    observer: &mut dyn FnMut(&Update),
) -> Result<RemainingWork, LabError> {
    let runs = laboratory.store.runs(experiment)?;
    let row = runs.iter().find(|row| row.number == run).map(|row| row.id);
    let missing = StoreError::Missing { what: "run", id: run.into() };
    let row = row.ok_or(missing)?;
    // The queue gave the run to this worker, so what other worker is at it was silent for too long.
    // A laboratory without workers is not in the queue's eyes, and may well be at it.
    if let Some(holder) = laboratory.store.seize_run(row)? {
        let message = format!("left to {holder}");
        observer(&Update { fraction: 0.0, message: message.clone(), is_new: true });
        return Ok(RemainingWork { reasons: vec![message], has_begun: false });
    }
    let outcome = laboratory.conduct(experiment, Some(run), cancel, observer);
    let released = laboratory.store.release_run(row);
    let outcome = outcome?;
    released?;
    let has_begun = outcome.done + outcome.failed > 0;
    Ok(RemainingWork { reasons: reasons(outcome), has_begun })
}

/// Why something is left of a run.
fn reasons(outcome: Outcome) -> Vec<String> {
    let mut reasons = outcome.unavailable;
    if outcome.failed > 0 {
        reasons.push(format!("{} executions failed", outcome.failed));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_done_when_nothing_is_left_of_it() {
        let outcome = |failed, unavailable: &[&str]| Outcome {
            done: 7,
            failed,
            unavailable: unavailable.iter().map(|&one| one.to_owned()).collect(),
        };
        assert!(reasons(outcome(0, &[])).is_empty());
        assert_eq!(reasons(outcome(2, &[])), ["2 executions failed"]);
        assert_eq!(reasons(outcome(3, &["a", "b"])), ["a", "b", "3 executions failed"]);
    }
}

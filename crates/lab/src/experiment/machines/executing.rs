//! A job: what is left of a run is made, on this host.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use serde::{Deserialize, Serialize};

use crate::experiment::run::{Outcome, RunError};
use crate::experiment::{LabError, Laboratory};
use crate::rig::Update;
use crate::store::StoreError;

/// Whom a worker tells what it is at.
pub type Observer = Box<dyn FnMut(&Update) + Send>;

/// A run to be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RunJob {
    /// The experiment's number in the store.
    pub(super) experiment: i64,
    /// The run's number in its plan.
    pub(super) run: u32,
}

/// What became of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// It is over.
    Done,
    /// It failed, and may be tried again later, maybe elsewhere.
    Failed(String),
    /// It is to be put back at once, and the session with the queue to end.
    PutBack,
}

pub(super) fn tell(observer: &Mutex<Observer>, message: String) {
    (locked(observer))(&Update { fraction: 0.0, message, is_new: true });
}

/// What a thread that panicked leaves behind is still right: nothing here is changed by halves.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The laboratory at work on jobs, one at a time.
pub(super) struct Executing {
    laboratory: Mutex<Laboratory>,
    cancel: Arc<AtomicBool>,
    observer: Arc<Mutex<Observer>>,
    /// Why the store is lost.
    lost: Mutex<Option<String>>,
}

impl Executing {
    pub(super) fn new(
        laboratory: Laboratory,
        cancel: Arc<AtomicBool>,
        observer: Arc<Mutex<Observer>>,
    ) -> Self {
        Executing { laboratory: Mutex::new(laboratory), cancel, observer, lost: Mutex::new(None) }
    }

    /// Does a job.
    pub(super) fn do_job(&self, job: RunJob) -> Ending {
        let mut laboratory = locked(&self.laboratory);
        let RunJob { experiment, run } = job;
        let observer = &mut |update: &Update| {
            let message = format!("experiment {experiment}, run {run}: {}", update.message);
            (locked(&self.observer))(&Update { message, ..update.clone() });
        };
        match execute(&mut laboratory, job, &self.cancel, observer) {
            Ok(reasons) if reasons.is_empty() => Ending::Done,
            Ok(reasons) => Ending::Failed(reasons.join("; ")),
            Err(LabError::Run(RunError::Cancelled(_))) => Ending::PutBack,
            Err(error) => self.ending_of(&error),
        }
    }

    /// Whether the worker is to end and does nothing. While a job is done, the job decides.
    pub(super) fn is_over(&self) -> bool {
        let is_busy = matches!(self.laboratory.try_lock(), Err(TryLockError::WouldBlock));
        self.cancel.load(Ordering::Relaxed) && !is_busy
    }

    /// Why the store is lost, if it is.
    pub(super) fn why_lost(&self) -> Option<String> {
        locked(&self.lost).clone()
    }

    fn ending_of(&self, error: &LabError) -> Ending {
        let store = match error {
            LabError::Store(error) | LabError::Run(RunError::Store { source: error, .. }) => {
                Some(error)
            }
            _ => None,
        };
        let reason = error.to_string();
        if !store.is_some_and(StoreError::is_lost) {
            tell(&self.observer, format!("left for another time: {reason}"));
            return Ending::Failed(reason);
        }
        *locked(&self.lost) = Some(reason);
        Ending::PutBack
    }
}

impl fmt::Debug for Executing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executing").finish_non_exhaustive()
    }
}

/// Makes what is left of a run; why it could not be made, where it could not.
fn execute(
    laboratory: &mut Laboratory,
    job: RunJob,
    cancel: &AtomicBool,
    observer: &mut dyn FnMut(&Update),
) -> Result<Vec<String>, LabError> {
    let runs = laboratory.store.runs(job.experiment)?;
    let row = runs.iter().find(|row| row.number == job.run).map(|row| row.id);
    let missing = StoreError::Missing { what: "run", id: job.run.into() };
    let row = row.ok_or(missing)?;
    // The queue gave the run to this worker, so what other worker is at it was silent for too long.
    // A laboratory without workers is not in the queue's eyes, and may well be at it.
    if let Some(holder) = laboratory.store.seize_run(row)? {
        let message = format!("left to {holder}");
        observer(&Update { fraction: 0.0, message: message.clone(), is_new: true });
        return Ok(vec![message]);
    }
    let outcome = laboratory.conduct(job.experiment, Some(job.run), cancel, observer);
    let released = laboratory.store.release_run(row);
    let outcome = outcome?;
    released?;
    Ok(reasons(outcome))
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

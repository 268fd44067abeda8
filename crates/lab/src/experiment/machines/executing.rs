//! A job: what is left of a run is made, on this host.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::experiment::run::{Outcome, RunError};
use crate::experiment::{LabError, Laboratory};
use crate::rig::Update;
use crate::store::StoreError;

/// How long what failed is left before it is tried again on the same host.
const AGAIN: [Duration; 4] = [
    Duration::from_secs(3),
    Duration::from_secs(7),
    Duration::from_secs(20),
    Duration::from_secs(55),
];

/// How often a worker looks whether it is to end while it waits.
const POLL: Duration = Duration::from_millis(50);

/// Whom a worker tells what it is at.
pub type Observer = Box<dyn FnMut(&Update) + Send>;

/// A run to be executed: which one is decided when it is first taken ([`Store::take_turn`]).
///
/// [`Store::take_turn`]: crate::store::Store::take_turn
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RunJob {
    /// The experiment's number in the store.
    pub(super) experiment: i64,
    /// The place of the run among those that are taken. Older programs called it so, too.
    #[serde(rename = "run")]
    pub(super) place: u32,
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
        match self.try_job(&mut laboratory, job) {
            Ok(ending) => ending,
            Err(LabError::Run(RunError::Cancelled(_))) => Ending::PutBack,
            Err(error) => self.ending_of(&error),
        }
    }

    /// Does a job, and again what failed after it had begun here: elsewhere all of a batchset would
    /// be measured anew for it. What fails to the end is left for `tidegate lab resume`.
    fn try_job(&self, laboratory: &mut Laboratory, job: RunJob) -> Result<Ending, LabError> {
        let RunJob { experiment, place } = job;
        let Some(run) = laboratory.store.take_turn(experiment, place)? else {
            return Ok(Ending::Done);
        };
        let observer = &mut |update: &Update| {
            let message = format!("experiment {experiment}, run {run}: {}", update.message);
            (locked(&self.observer))(&Update { message, ..update.clone() });
        };
        let mut pauses = AGAIN.into_iter();
        loop {
            let left = execute(laboratory, (experiment, run), &self.cancel, observer)?;
            if left.reasons.is_empty() {
                return Ok(Ending::Done);
            }
            if !left.has_begun {
                return Ok(Ending::Failed(left.reasons.join("; ")));
            }
            let Some(pause) = pauses.next() else { return Ok(Ending::Done) };
            self.wait(pause).ok_or(RunError::Cancelled(experiment))?;
        }
    }

    /// Waits; `None` when the worker is to end.
    fn wait(&self, pause: Duration) -> Option<()> {
        let until = Instant::now() + pause;
        while Instant::now() < until {
            if self.cancel.load(Ordering::Relaxed) {
                return None;
            }
            std::thread::sleep(POLL);
        }
        Some(())
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

/// What is left of a run.
struct Left {
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
) -> Result<Left, LabError> {
    let runs = laboratory.store.runs(experiment)?;
    let row = runs.iter().find(|row| row.number == run).map(|row| row.id);
    let missing = StoreError::Missing { what: "run", id: run.into() };
    let row = row.ok_or(missing)?;
    // The queue gave the run to this worker, so what other worker is at it was silent for too long.
    // A laboratory without workers is not in the queue's eyes, and may well be at it.
    if let Some(holder) = laboratory.store.seize_run(row)? {
        let message = format!("left to {holder}");
        observer(&Update { fraction: 0.0, message: message.clone(), is_new: true });
        return Ok(Left { reasons: vec![message], has_begun: false });
    }
    let outcome = laboratory.conduct(experiment, Some(run), cancel, observer);
    let released = laboratory.store.release_run(row);
    let outcome = outcome?;
    released?;
    let has_begun = outcome.done + outcome.failed > 0;
    Ok(Left { reasons: reasons(outcome), has_begun })
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

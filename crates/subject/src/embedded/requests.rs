//! Whole transactions as requests to the engine's server.
//!
//! The server calls stored procedures by name, with bytes as arguments. Here there is one, `run`:
//! its argument is the number of a transaction that its client has left in a [`Requests`] list, and
//! it runs that transaction's code on what is stored from its first operation to its last. So a
//! transaction is one request, and when the server runs it again after a conflict it finds the
//! same transaction in the same place.
//!
//! # Phases
//! A request's [`PhaseClock`] begins with the transaction and goes on until the answer, so that the
//! commit is part of the last phase, as it is for clients on sockets. What comes before, the wait
//! for a permit, is part of no phase. Of a transaction that was run again no phases are told:
//! those of the last run would leave out what the others took.

use std::io;
use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use slab::Slab;
use thiserror::Error;
use tidegate_engine::lock::LockError;
use tidegate_engine::{StoreError, TxnError};
use tidegate_engine_server::{CallError, Procedure};
use tidegate_runtime::clock;
use tidegate_runtime::sync::Mutex;
use tidegate_workload::workload::Transaction;
use tidegate_workload::{Ending, Failure};
use tidegate_xml::store::RetryClaims;

use super::sql::{self, Catalog, RunError};
use crate::phases::PhaseClock;

/// The name of the procedure.
pub(super) const RUN: &str = "run";

/// What the procedure answers when the transaction rolled itself back.
const ROLLED_BACK: &[u8] = b"rolled back";

/// What a request has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// How its transaction ended.
    pub ending: Ending,
    /// How long each of its phases took; empty where it was run again.
    pub phases: Vec<Duration>,
    /// What it locked; `None` where it locks no nodes of documents.
    pub locking: Option<NodeLocking>,
}

/// What a request locked in documents: nodes, edges and entries of indexes, in all runs of its
/// transaction together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeLocking {
    /// Runs, of which all but one ended in a conflict.
    pub runs: u64,
    /// Requests of locks.
    pub requests: u64,
    /// Locks that were held at the end of a run.
    pub locks: u64,
    /// Locks that were held already and got another mode.
    pub conversions: u64,
    /// Times that many locks became one.
    pub escalations: u64,
    /// Requests that had to wait.
    pub waits: u64,
    /// Time that requests took, waits included.
    pub request_time: Duration,
    /// Time that requests waited for others to release locks.
    pub block_time: Duration,
    /// Runs that a deadlock ended.
    pub deadlocks: u64,
    /// Runs that ended because a wait took too long.
    pub timeouts: u64,
    /// Runs that gave way to a higher priority.
    pub preemptions: u64,
}

impl NodeLocking {
    /// Counts a run that ended in a conflict.
    pub(super) fn give_way(&mut self, conflict: LockError) {
        match conflict {
            LockError::Deadlock => self.deadlocks += 1,
            LockError::TimedOut => self.timeouts += 1,
            LockError::Preempted => self.preemptions += 1,
        }
    }
}

impl AddAssign for NodeLocking {
    fn add_assign(&mut self, other: NodeLocking) {
        self.runs += other.runs;
        self.requests += other.requests;
        self.locks += other.locks;
        self.conversions += other.conversions;
        self.escalations += other.escalations;
        self.waits += other.waits;
        self.request_time += other.request_time;
        self.block_time += other.block_time;
        self.deadlocks += other.deadlocks;
        self.timeouts += other.timeouts;
        self.preemptions += other.preemptions;
    }
}

/// What is noted of one run of a transaction.
pub(super) struct RunNotes {
    /// Is told of its phases.
    pub(super) clock: PhaseClock,
    /// What it locked.
    pub(super) locking: Option<NodeLocking>,
    /// What earlier runs were ended over, and this one, if it was.
    pub(super) claims: RetryClaims,
}

/// Why a request has not done what it was for.
#[derive(Debug, Error)]
pub enum RequestError {
    /// The server's reason.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The transaction's own, or one of its statements'.
    #[error(transparent)]
    Transaction(#[from] Failure),
}

/// Transactions that the server has been asked for.
#[derive(Clone, Default)]
pub(super) struct Requests(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Whether the clients have given up, so that nothing is to begin any more.
    given_up: AtomicBool,
    waiting: Mutex<Slab<Request>>,
}

/// A transaction, and what is known of it.
pub(super) struct Request {
    transaction: Arc<dyn Transaction>,
    /// Whether it was begun before.
    is_again: bool,
    /// Its phases, once it has run.
    clock: Option<PhaseClock>,
    /// What all its runs have locked.
    locking: Option<NodeLocking>,
    /// What they were ended over.
    claims: RetryClaims,
    /// Why it failed, when that is not the engine's doing.
    failure: Option<Failure>,
}

impl Request {
    /// How long its phases took, the last up to now.
    fn phases(self) -> Vec<Duration> {
        let clock = self.clock.filter(|_| !self.is_again);
        clock.map(|mut clock| clock.read(clock::now()).to_vec()).unwrap_or_default()
    }
}

impl Requests {
    /// Leaves a transaction in the list; its number there.
    pub(super) fn add(&self, transaction: Arc<dyn Transaction>) -> usize {
        let request = Request {
            transaction,
            is_again: false,
            clock: None,
            locking: None,
            claims: RetryClaims::default(),
            failure: None,
        };
        self.0.waiting.lock().insert(request)
    }

    /// Takes it out again.
    pub(super) fn remove(&self, number: usize) -> Request {
        self.0.waiting.lock().remove(number)
    }

    /// Sets whether the clients have given up.
    pub(super) fn give_up(&self, given_up: bool) {
        self.0.given_up.store(given_up, Ordering::Relaxed);
    }

    /// The transaction of a number, which is to run, once more if it did before, and what its
    /// earlier runs were ended over.
    fn begin(&self, number: usize) -> Option<(Arc<dyn Transaction>, RetryClaims)> {
        let mut requests = self.0.waiting.lock();
        let request = requests.get_mut(number)?;
        request.is_again = request.clock.is_some();
        Some((Arc::clone(&request.transaction), std::mem::take(&mut request.claims)))
    }

    /// It has run so, and failed where a failure is given.
    fn ran(&self, number: usize, notes: RunNotes, failure: Option<Failure>) {
        let request = &mut self.0.waiting.lock()[number];
        (request.clock, request.failure) = (Some(notes.clock), failure);
        request.claims = notes.claims;
        if let Some(locking) = notes.locking {
            *request.locking.get_or_insert_default() += locking;
        }
    }

    /// Runs the transaction whose number is in the arguments of a request.
    pub(super) fn run(
        &self,
        arguments: &[u8],
        run: impl FnOnce(Arc<dyn Transaction>, &mut RunNotes) -> Result<Ending, RunError>,
    ) -> Result<Vec<u8>, TxnError> {
        if self.0.given_up.load(Ordering::Relaxed) {
            let why = "begin a transaction that its client has given up";
            return Err(refusal(why, io::ErrorKind::Interrupted.into()));
        }
        let number = arguments.try_into().map(usize::from_le_bytes);
        let Some((number, (transaction, claims))) =
            number.ok().and_then(|number| Some((number, self.begin(number)?)))
        else {
            let why = "find a transaction by its number";
            return Err(refusal(why, io::ErrorKind::InvalidInput.into()));
        };
        let mut notes = RunNotes { clock: PhaseClock::new(clock::now()), locking: None, claims };
        let (answer, failure) = match run(transaction, &mut notes) {
            Ok(Ending::Commit) => (Ok(Vec::new()), None),
            Ok(Ending::Rollback) => (Ok(ROLLED_BACK.to_vec()), None),
            Err(RunError::Engine(error)) => (Err(error), None),
            Err(RunError::Failure(failure)) => {
                let error = refusal("run a transaction", io::Error::other(failure.to_string()));
                (Err(error), Some(failure))
            }
        };
        self.ran(number, notes, failure);
        answer
    }
}

/// What became of a request, by the procedure's answer and what is known of the transaction.
pub(super) fn outcome(
    answer: Result<Vec<u8>, CallError>,
    request: Request,
) -> Result<Done, RequestError> {
    match (answer, &request.failure) {
        (Ok(answer), _) => {
            let is_undone = answer == ROLLED_BACK;
            let ending = if is_undone { Ending::Rollback } else { Ending::Commit };
            Ok(Done { ending, locking: request.locking, phases: request.phases() })
        }
        (Err(CallError::Failed(_)), Some(failure)) => Err(failure.clone().into()),
        (Err(error), _) => Err(error.into()),
    }
}

/// The procedure on these tables.
pub(super) fn procedure(catalog: Arc<Catalog>, requests: Requests) -> Procedure {
    Box::new(move |transaction, arguments| {
        let run =
            |work, notes: &mut RunNotes| sql::run(transaction, &catalog, work, &mut notes.clock);
        requests.run(arguments, run)
    })
}

/// A procedure's own error, which is not run again.
fn refusal(action: &'static str, source: io::Error) -> TxnError {
    TxnError::Store(StoreError::Io { action, source })
}

#[cfg(test)]
mod tests {
    use tidegate_workload::pgbench::Scale;
    use tidegate_workload::tpcb::Tpcb;
    use tidegate_workload::workload::Workload;

    use super::*;

    #[test]
    fn phases_are_told_of_what_ran_once() {
        let mut client = Tpcb::new(Scale::ONE).client(0, 1, 1);
        for (runs, phases) in [(0, 0), (1, 1), (2, 0), (3, 0)] {
            let requests = Requests::default();
            let number = requests.add(client.next());
            for _ in 0..runs {
                assert!(requests.begin(number).is_some());
                let clock = PhaseClock::new(clock::now());
                let notes = RunNotes { clock, locking: None, claims: RetryClaims::default() };
                requests.ran(number, notes, None);
            }
            let done = outcome(Ok(Vec::new()), requests.remove(number)).unwrap();
            assert_eq!((done.ending, done.phases.len()), (Ending::Commit, phases), "{runs} runs");
        }
    }
}

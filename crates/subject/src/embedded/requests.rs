//! Whole transactions as requests to the engine's server.
//!
//! The server calls stored procedures by name, with bytes as arguments. Here there is one, `run`:
//! its argument is the number of a transaction that its client has left in a [`Waiting`] list, and
//! it runs that transaction's code on the embedded tables from its first statement to its last. So
//! a transaction is one request, and when the server runs it again after a conflict it finds the
//! same transaction in the same place.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use slab::Slab;
use thiserror::Error;
use tidegate_engine::{CallError, Procedure, StoreError, TxnError};
use tidegate_workload::workload::Transaction;
use tidegate_workload::{Ending, Failure};

use super::sql::{self, Catalog, RunError};

/// The name of the procedure.
pub(super) const RUN: &str = "run";

/// What the procedure answers when the transaction rolled itself back.
const ROLLED_BACK: &[u8] = b"rolled back";

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

/// Whether the clients have given up, so that nothing is to begin any more.
#[derive(Clone, Default)]
pub(super) struct GivenUp(pub(super) Arc<AtomicBool>);

/// Transactions that the server has been asked for.
#[derive(Clone, Default)]
pub(super) struct Waiting(Arc<Mutex<Slab<Request>>>);

/// A transaction, and why it failed when that is not the engine's doing.
struct Request {
    transaction: Arc<dyn Transaction>,
    failure: Option<Failure>,
}

impl Waiting {
    /// Leaves a transaction in the list; its number there.
    pub(super) fn add(&self, transaction: Arc<dyn Transaction>) -> usize {
        self.0.lock().insert(Request { transaction, failure: None })
    }

    /// Takes it out again; its failure, if it has one of its own.
    pub(super) fn remove(&self, number: usize) -> Option<Failure> {
        self.0.lock().try_remove(number)?.failure
    }

    fn get(&self, number: usize) -> Option<Arc<dyn Transaction>> {
        self.0.lock().get(number).map(|request| Arc::clone(&request.transaction))
    }

    fn failed(&self, number: usize, failure: Failure) {
        if let Some(request) = self.0.lock().get_mut(number) {
            request.failure = Some(failure);
        }
    }
}

/// What became of a request, by the procedure's answer and the transaction's own failure.
pub(super) fn outcome(
    answer: Result<Vec<u8>, CallError>,
    failure: Option<Failure>,
) -> Result<Ending, RequestError> {
    match (answer, failure) {
        (Ok(answer), _) if answer == ROLLED_BACK => Ok(Ending::Rollback),
        (Ok(_), _) => Ok(Ending::Commit),
        (Err(CallError::Failed(_)), Some(failure)) => Err(failure.into()),
        (Err(error), _) => Err(error.into()),
    }
}

/// The procedure on these tables.
pub(super) fn procedure(
    catalog: Arc<Catalog>,
    waiting: Waiting,
    GivenUp(given_up): GivenUp,
) -> Procedure {
    Box::new(move |transaction, arguments| {
        if given_up.load(Ordering::Relaxed) {
            let why = "begin a transaction that its client has given up";
            return Err(refusal(why, io::ErrorKind::Interrupted.into()));
        }
        let number = arguments.try_into().map(usize::from_le_bytes);
        let Some((number, request)) =
            number.ok().and_then(|number| Some((number, waiting.get(number)?)))
        else {
            let why = "find a transaction by its number";
            return Err(refusal(why, io::ErrorKind::InvalidInput.into()));
        };
        match sql::run(transaction, &catalog, request) {
            Ok(Ending::Commit) => Ok(Vec::new()),
            Ok(Ending::Rollback) => Ok(ROLLED_BACK.to_vec()),
            Err(RunError::Engine(error)) => Err(error),
            Err(RunError::Failure(failure)) => {
                let error = refusal("run a transaction", io::Error::other(failure.to_string()));
                waiting.failed(number, failure);
                Err(error)
            }
        }
    })
}

/// A procedure's own error, which is not run again.
fn refusal(action: &'static str, source: io::Error) -> TxnError {
    TxnError::Store(StoreError::Io { action, source })
}

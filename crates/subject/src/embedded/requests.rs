//! Whole transactions as requests to the engine's server.
//!
//! The server calls stored procedures by name, with bytes as arguments. Here there is one, `run`: its
//! argument is the number of a transaction that its client has left in a [`Waiting`] list, and it
//! runs that transaction's code on the embedded tables from its first statement to its last. So a
//! transaction is one request, and when the server runs it again after a conflict it finds the same
//! transaction in the same place.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use slab::Slab;
use tidegate_engine::{Procedure, StoreError, TxnError};
use tidegate_workload::workload::Transaction;
use tidegate_workload::{Ending, Session, finish};

use super::sql::{Catalog, SqlConnection};

/// The name of the procedure.
pub(super) const RUN: &str = "run";

/// What the procedure answers when the transaction rolled itself back.
const ROLLED_BACK: &[u8] = b"rolled back";

/// Whether the clients have given up, so that nothing is to begin any more.
#[derive(Clone, Default)]
pub(super) struct GivenUp(pub(super) Arc<AtomicBool>);

/// Transactions that the server has been asked for.
#[derive(Clone, Default)]
pub(super) struct Waiting(Arc<Mutex<Slab<Arc<dyn Transaction>>>>);

impl Waiting {
    /// Leaves a transaction in the list; its number there.
    pub(super) fn add(&self, transaction: Arc<dyn Transaction>) -> usize {
        self.0.lock().insert(transaction)
    }

    pub(super) fn remove(&self, number: usize) {
        self.0.lock().try_remove(number);
    }

    fn get(&self, arguments: &[u8]) -> Option<Arc<dyn Transaction>> {
        let number = usize::from_le_bytes(arguments.try_into().ok()?);
        self.0.lock().get(number).cloned()
    }
}

/// What an answer of the procedure means.
pub(super) fn ending(answer: &[u8]) -> Ending {
    if answer == ROLLED_BACK { Ending::Rollback } else { Ending::Commit }
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
            return Err(refusal(why, io::ErrorKind::Interrupted));
        }
        let Some(request) = waiting.get(arguments) else {
            return Err(refusal("find a transaction by its number", io::ErrorKind::InvalidInput));
        };
        let beginning = transaction.savepoint();
        let mut connection = SqlConnection::new(transaction, &catalog);
        match finish(request.run(Session::immediate(&mut connection))) {
            Ok(Ending::Commit) => Ok(Vec::new()),
            Ok(Ending::Rollback) => {
                transaction.roll_back_to(beginning)?;
                Ok(ROLLED_BACK.to_vec())
            }
            Err(failure) => Err(connection.take_error().unwrap_or_else(|| {
                let source = io::Error::other(failure);
                TxnError::Store(StoreError::Io { action: "run a transaction", source })
            })),
        }
    })
}

/// A procedure's own error, which is not run again.
fn refusal(action: &'static str, kind: io::ErrorKind) -> TxnError {
    TxnError::Store(StoreError::Io { action, source: kind.into() })
}

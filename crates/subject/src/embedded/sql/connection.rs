//! Statements run within a transaction of the engine; transactions of a workload run on a store.

use std::sync::Arc;

use tidegate_engine::{Store, Transaction, TxnError, TxnOptions};
use tidegate_runtime::work::{self, Operation};
use tidegate_runtime::{clock, thread};
use tidegate_workload::workload::Transaction as Work;
use tidegate_workload::{
    Connection, Dialect, Ending, Failure, Reply, Session, Statement, Value, Wants, finish,
};

use super::catalog::Catalog;
use super::error::SqlError;
use super::execute::execute;
use crate::connection::Transactional;
use crate::phases::PhaseClock;

/// Runs statements within one transaction, which its owner begins and ends.
///
/// After a [`Failure`] the engine's own error is kept, for a server that runs the transaction again
/// when that may help.
pub struct SqlConnection<'t> {
    transaction: &'t mut Transaction,
    catalog: &'t Catalog,
    /// Told of the transaction's phases, where somebody wants to know of them.
    clock: Option<&'t mut PhaseClock>,
    error: Option<TxnError>,
}

impl<'t> SqlConnection<'t> {
    /// A connection within a transaction.
    #[must_use]
    pub fn new(transaction: &'t mut Transaction, catalog: &'t Catalog) -> Self {
        SqlConnection { transaction, catalog, clock: None, error: None }
    }

    /// The engine's error behind the last [`Failure`], once; `None` when the statement was wrong.
    pub fn take_error(&mut self) -> Option<TxnError> {
        self.error.take()
    }
}

impl Connection for SqlConnection<'_> {
    fn run(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
        wants: Wants,
    ) -> Result<Reply, Failure> {
        self.error = None;
        let sql = statement.sql(Dialect::Embedded);
        work::count(Operation::Statement, 1);
        let reply = execute(self.transaction, self.catalog, &sql, values, wants);
        thread::settle();
        reply.map_err(|error| {
            let failure = error.failure();
            if let SqlError::Engine(error) = error {
                self.error = Some(error);
            }
            failure
        })
    }

    fn phase(&mut self, number: usize) {
        if let Some(clock) = &mut self.clock {
            clock.enter(number, clock::now());
        }
    }
}

impl std::fmt::Debug for SqlConnection<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqlConnection").field("catalog", &self.catalog).finish_non_exhaustive()
    }
}

/// Why a workload's transaction did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The engine's; see [`TxnError::is_retryable`].
    #[error(transparent)]
    Engine(#[from] TxnError),
    /// The transaction's, or a statement's.
    #[error(transparent)]
    Failure(#[from] Failure),
}

/// Runs a workload's transaction within one of the engine, as a stored procedure does: what is to
/// be rolled back is taken back here, and what is left then is to be committed in any case. What
/// calls a procedure elsewhere is called here already, and runs as its own logic. `clock` is told
/// of its phases.
///
/// # Errors
/// See [`RunError`]; the engine's transaction is to be dropped.
pub fn run(
    transaction: &mut Transaction,
    catalog: &Catalog,
    work: Arc<dyn Work>,
    clock: &mut PhaseClock,
) -> Result<Ending, RunError> {
    let work = work.called().unwrap_or(work);
    let begin = transaction.savepoint();
    let mut connection = SqlConnection::new(transaction, catalog);
    connection.clock = Some(clock);
    let ending = finish(work.run(Session::immediate(&mut connection)));
    let error = connection.take_error();
    match ending {
        Ok(Ending::Commit) => Ok(Ending::Commit),
        Ok(Ending::Rollback) => {
            transaction.roll_back_to(begin)?;
            Ok(Ending::Rollback)
        }
        Err(failure) => Err(error.map_or(RunError::Failure(failure), RunError::Engine)),
    }
}

/// A store as a connection with transactions of its own: one after the other, begun and ended by
/// whoever has it. A statement outside of one is a transaction by itself.
pub struct StoreConnection {
    store: Arc<Store>,
    catalog: Arc<Catalog>,
    options: TxnOptions,
    transaction: Option<Transaction>,
}

impl StoreConnection {
    /// A connection to a store, whose transactions run so.
    #[must_use]
    pub fn new(store: Arc<Store>, catalog: Arc<Catalog>, options: TxnOptions) -> Self {
        StoreConnection { store, catalog, options, transaction: None }
    }
}

impl Connection for StoreConnection {
    fn run(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
        wants: Wants,
    ) -> Result<Reply, Failure> {
        if let Some(transaction) = &mut self.transaction {
            return SqlConnection::new(transaction, &self.catalog).run(statement, values, wants);
        }
        let mut transaction = self.store.begin(self.options);
        let reply =
            SqlConnection::new(&mut transaction, &self.catalog).run(statement, values, wants)?;
        transaction.commit().map_err(failure)?;
        Ok(reply)
    }
}

impl Transactional for StoreConnection {
    fn begin(&mut self) -> Result<(), Failure> {
        self.transaction = Some(self.store.begin(self.options));
        Ok(())
    }

    fn commit(&mut self) -> Result<(), Failure> {
        self.transaction.take().map_or(Ok(()), Transaction::commit).map_err(failure)
    }

    fn rollback(&mut self) -> Result<(), Failure> {
        self.transaction.take().map_or(Ok(()), Transaction::roll_back).map_err(failure)
    }

    fn dialect(&self) -> Dialect {
        Dialect::Embedded
    }
}

impl std::fmt::Debug for StoreConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreConnection")
            .field("catalog", &self.catalog)
            .field("is_in_transaction", &self.transaction.is_some())
            .finish_non_exhaustive()
    }
}

fn failure(error: TxnError) -> Failure {
    SqlError::Engine(error).failure()
}

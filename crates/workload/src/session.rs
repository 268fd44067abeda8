//! A transaction's talk with its database: statements out, rows in, whoever carries them.
//!
//! # Mechanism
//! A transaction is an `async` function. Where it asks its [`Session`] for rows, it stops until the
//! [`Driver`] has them. So the logic is written once, as straight code with loops and branches, and
//! runs on every subject:
//!
//! - on one thread with a thousand sockets: the driver puts the statement on the wire, and the
//!   client's event loop polls the transaction again when the answer has come;
//! - on a thread of its own with a blocking library, and inside the embedded engine: the driver has
//!   the answer when it is asked ([`Session::immediate`]), and one poll runs all of it
//!   ([`finish`]).
//!
//! There is no runtime and no waker: who polls knows when it makes sense.
//!
//! What begins and ends the transaction is not said in it: a runner begins it, unless it is a
//! [single statement](crate::workload::Transaction::is_single), and does what its [`Ending`] says;
//! after a [`Failure`] it rolls back and, where that may help, runs the same transaction again.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use thiserror::Error;

use crate::{Rows, Statement, Value};

/// What is to be done with the work of a transaction that has come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Commit,
    /// Undo it: the transaction found that it must not be (as one in a hundred New-Orders of
    /// TPC-C). It counts as done.
    Rollback,
}

/// Why a statement has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    #[error("a conflict with another transaction ({0})")]
    Conflict(Conflict),
    #[error("the database says: {message} ({code})")]
    Refused {
        /// The database's code, such as an SQLSTATE.
        code: String,
        message: String,
    },
    #[error("the connection is lost: {0}")]
    Lost(String),
    #[error("the tables do not hold what the workload put there: {0}")]
    Unexpected(&'static str),
    #[error("stopped before its end")]
    Stopped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Error)]
pub enum Conflict {
    #[error("deadlock")]
    Deadlock,
    #[error("serialization failure")]
    Serialization,
    #[error("lock timeout")]
    LockTimeout,
}

/// What becomes of the rows of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    Rows,
    /// How many there were is enough; or how many were changed.
    Count,
}

/// A database's answer to a statement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The rows, where they were wanted.
    pub rows: Rows,
    /// How many rows were returned or changed.
    pub count: u64,
}

impl Rows {
    /// Returns the number in a column where there must be one.
    ///
    /// # Errors
    /// [`Failure::Unexpected`] with `missing` when there is none.
    pub fn number(&self, row: usize, column: usize, missing: &'static str) -> Result<i64, Failure> {
        self.int(row, column).ok_or(Failure::Unexpected(missing))
    }

    /// Returns the sum or the extreme in a column of the first row: 0 for NULL, which is SQL's sum
    /// of no rows.
    ///
    /// # Errors
    /// [`Failure::Unexpected`] when there is neither a number nor NULL.
    pub fn sum(&self, column: usize) -> Result<i64, Failure> {
        if self.is_null(0, column) { Ok(0) } else { self.number(0, column, "a sum") }
    }
}

/// Carries statements to a database and answers back. It is asked for one answer at a time.
pub trait Driver {
    /// Takes a statement on its way.
    fn submit(&mut self, statement: &Statement, values: &[Value<'_>], wants: Wants);

    /// The answer to the statement submitted last, once, when it has come.
    fn answer(&mut self) -> Poll<Result<Reply, Failure>>;

    /// The transaction enters its phase of this number, counted from 0 and begun in 0.
    fn phase(&mut self, number: usize) {
        let _ = number;
    }
}

/// A connection that has the answer when it returns.
pub trait Connection {
    /// Runs a statement.
    fn run(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
        wants: Wants,
    ) -> Result<Reply, Failure>;

    /// The transaction enters its phase of this number.
    fn phase(&mut self, number: usize) {
        let _ = number;
    }
}

/// What a transaction has in its hands.
#[derive(Clone)]
pub struct Session<'d> {
    driver: Rc<RefCell<dyn Driver + 'd>>,
}

pub type Running<'d, T = Ending> = Pin<Box<dyn Future<Output = Result<T, Failure>> + 'd>>;

impl<'d> Session<'d> {
    /// A session whose answers come later.
    pub fn new(driver: Rc<RefCell<dyn Driver + 'd>>) -> Self {
        Session { driver }
    }

    /// A session on a connection that answers at once; see [`finish`].
    pub fn immediate<C: Connection + ?Sized>(connection: &'d mut C) -> Self {
        Session { driver: Rc::new(RefCell::new(Immediate { connection, reply: None })) }
    }

    /// Runs a statement and returns its rows.
    pub async fn query(
        &self,
        statement: &Statement,
        values: &[Value<'_>],
    ) -> Result<Rows, Failure> {
        Ok(self.run(statement, values, Wants::Rows).await?.rows)
    }

    /// As [`Session::query`], where there must be a row.
    ///
    /// # Errors
    /// [`Failure::Unexpected`] with `missing` when there is none, and those of every statement.
    pub async fn query_some(
        &self,
        statement: &Statement,
        values: &[Value<'_>],
        missing: &'static str,
    ) -> Result<Rows, Failure> {
        let rows = self.query(statement, values).await?;
        if rows.is_empty() { Err(Failure::Unexpected(missing)) } else { Ok(rows) }
    }

    /// Runs a statement and returns how many rows it changed, or returned.
    pub async fn execute(
        &self,
        statement: &Statement,
        values: &[Value<'_>],
    ) -> Result<u64, Failure> {
        Ok(self.run(statement, values, Wants::Count).await?.count)
    }

    /// The transaction enters its phase of this number, counted from 0; it begins in 0.
    pub fn phase(&self, number: usize) {
        self.driver.borrow_mut().phase(number);
    }

    async fn run(
        &self,
        statement: &Statement,
        values: &[Value<'_>],
        wants: Wants,
    ) -> Result<Reply, Failure> {
        self.driver.borrow_mut().submit(statement, values, wants);
        std::future::poll_fn(|_| self.driver.borrow_mut().answer()).await
    }
}

struct Immediate<'d, C: ?Sized> {
    connection: &'d mut C,
    reply: Option<Result<Reply, Failure>>,
}

impl<C: Connection + ?Sized> Driver for Immediate<'_, C> {
    fn submit(&mut self, statement: &Statement, values: &[Value<'_>], wants: Wants) {
        self.reply = Some(self.connection.run(statement, values, wants));
    }

    fn answer(&mut self) -> Poll<Result<Reply, Failure>> {
        self.reply.take().map_or(Poll::Pending, Poll::Ready)
    }

    fn phase(&mut self, number: usize) {
        self.connection.phase(number);
    }
}

/// Polls a transaction that is given its answers at once.
///
/// # Errors
/// The transaction's own; [`Failure::Stopped`] when it waits for something else than its database,
/// which none may.
pub fn finish<T>(mut running: Running<'_, T>) -> Result<T, Failure> {
    match poll(&mut running) {
        Poll::Ready(result) => result,
        Poll::Pending => Err(Failure::Stopped),
    }
}

/// Lets a transaction go on as far as its answers allow.
pub fn poll<T>(running: &mut Running<'_, T>) -> Poll<Result<T, Failure>> {
    running.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers each statement with its number of values, and fails the third.
    struct Counting(u32);

    impl Connection for Counting {
        fn run(&mut self, _: &Statement, values: &[Value<'_>], _: Wants) -> Result<Reply, Failure> {
            self.0 += 1;
            if self.0 == 3 {
                return Err(Failure::Conflict(Conflict::Deadlock));
            }
            let mut rows = Rows::new(1);
            for value in values {
                rows.push(value);
            }
            Ok(Reply { count: values.len() as u64, rows })
        }
    }

    const ANY: Statement = Statement::new("SELECT ?");

    #[test]
    fn an_immediate_connection_is_done_at_one_poll() {
        let mut connection = Counting(0);
        let session = Session::immediate(&mut connection);
        let sum: Running<'_, i64> = Box::pin(async move {
            let first = session.query_some(&ANY, &[5.into()], "a row").await?;
            let second = session.execute(&ANY, &[1.into(), 2.into()]).await?;
            Ok(first.int(0, 0).unwrap_or(0) + i64::try_from(second).unwrap_or(0))
        });
        assert_eq!(finish(sum), Ok(7));
    }

    #[test]
    fn a_failure_and_a_missing_row_end_the_transaction() {
        let mut connection = Counting(1);
        let session = Session::immediate(&mut connection);
        let empty: Running<'_, Rows> = Box::pin({
            let session = session.clone();
            async move { session.query_some(&ANY, &[], "the row of the test").await }
        });
        assert_eq!(finish(empty), Err(Failure::Unexpected("the row of the test")));
        let failed: Running<'_, u64> =
            Box::pin(async move { session.execute(&ANY, &[]).await.map(|count| count + 1) });
        assert_eq!(finish(failed), Err(Failure::Conflict(Conflict::Deadlock)));
    }

    /// Has no answer before it is given one.
    #[derive(Default)]
    struct Later(Option<Result<Reply, Failure>>);

    impl Driver for Later {
        fn submit(&mut self, _: &Statement, _: &[Value<'_>], _: Wants) {}

        fn answer(&mut self) -> Poll<Result<Reply, Failure>> {
            self.0.take().map_or(Poll::Pending, Poll::Ready)
        }
    }

    #[test]
    fn a_transaction_waits_for_its_answer() {
        let driver = Rc::new(RefCell::new(Later::default()));
        let session = Session::new(driver.clone());
        let mut running: Running<'_, u64> =
            Box::pin(async move { session.execute(&ANY, &[]).await });
        assert!(poll(&mut running).is_pending());
        driver.borrow_mut().0 = Some(Ok(Reply { count: 3, ..Reply::default() }));
        assert_eq!(poll(&mut running), Poll::Ready(Ok(3)));
    }
}

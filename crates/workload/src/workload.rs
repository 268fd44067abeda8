//! What a workload is: tables, rows, clients, transactions, a check.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;

use crate::xmark::{AuctionTransaction, Xmark};
use crate::{Dialect, Procedure, Running, Session, Table, Value};

/// A benchmark's tables and what its clients do with them.
pub trait Workload: fmt::Debug + Send + Sync {
    /// The name used in files, on command lines and in reports.
    fn name(&self) -> &'static str;

    /// The kinds of its transactions; never empty.
    fn kinds(&self) -> &'static [Kind];

    /// Looks whether a database of this dialect can run it, which needs no database.
    ///
    /// # Errors
    /// It cannot, and why.
    fn validate(&self, dialect: Dialect) -> Result<(), Unfit> {
        let _ = dialect;
        Ok(())
    }

    /// The auction site in XML that it is on, if it has no tables but that.
    fn auction_site(&self) -> Option<&Xmark> {
        None
    }

    fn tables(&self) -> Vec<Table>;

    /// The rows that the table with this place in [`Workload::tables`] holds at the start, in the
    /// order of its primary key, the same each time; values in the order of its columns.
    fn rows(&self, table: usize) -> Box<dyn Iterator<Item = Vec<Value<'static>>> + Send + '_>;

    /// Its stored procedures in a dialect, each behind those that it needs; they are made with its
    /// tables, whether its clients call them or not. None, but for workloads that have them.
    fn procedures(&self, dialect: Dialect) -> Vec<Procedure> {
        let _ = dialect;
        Vec::new()
    }

    /// The client of a number, counted from 0, of so many. Each has a sequence of draws of its own.
    fn client(&self, number: usize, clients: usize, seed: u64) -> Box<dyn Client>;

    /// Looks whether the tables are as transactions that are done wholly or not at all leave them.
    /// Nobody may change them meanwhile.
    fn check<'d>(&self, session: Session<'d>, depth: Depth) -> Running<'d, Vec<Condition>>;
}

/// Returns the mean time that a client thinks before a transaction, as Little's law needs it: the
/// mean of what [`THINKERS`] clients draw before [`THOUGHTS`] transactions each, from a fixed seed.
/// It is exact for workloads without think time; else its standard error is about a hundredth.
pub fn mean_think_time(workload: &dyn Workload) -> Duration {
    let of_client = |number| {
        let mut client = workload.client(number, THINKERS, 0);
        let mut thought = || {
            let time = client.think_time();
            client.next();
            time
        };
        (0..THOUGHTS).map(|_| thought()).sum::<Duration>()
    };
    let total: Duration = (0..THINKERS).map(of_client).sum();
    total.div_f64((THINKERS * THOUGHTS) as f64)
}

/// Clients that [`mean_think_time`] asks.
const THINKERS: usize = 16;

/// Transactions of each of them.
const THOUGHTS: usize = 500;

/// A workload that a kind of database cannot run, and why.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Unfit(pub String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its name, such as `new-order`.
    pub name: &'static str,
    /// The names of its phases, at least one; see [`Session::phase`].
    pub phases: &'static [&'static str],
}

pub trait Client: Send {
    fn next(&mut self) -> Arc<dyn Transaction>;

    /// How long it thinks before that: none, but for workloads with think time.
    fn think_time(&mut self) -> Duration {
        Duration::ZERO
    }
}

/// One transaction with its values; running it again runs the same.
pub trait Transaction: fmt::Debug + Send + Sync {
    /// Its place in [`Workload::kinds`].
    fn kind(&self) -> usize;

    /// Whether it is one statement, which needs no BEGIN and no COMMIT.
    fn is_single(&self) -> bool {
        false
    }

    /// The transaction that this one calls as a stored procedure, as statements: a database in the
    /// process of its client runs that in its place. `None` where there is no call.
    fn called(&self) -> Option<Arc<dyn Transaction>> {
        None
    }

    /// The transaction as data, if it is one on an auction site in XML, which has no SQL: a store
    /// of XML runs that, and [`run`](Transaction::run) fails.
    fn auction(&self) -> Option<&AuctionTransaction> {
        None
    }

    /// Whether none of its statements changes anything, where a database gains by knowing that from
    /// the beginning: see `Transactional::begin_reading` in `tidegate-subject`. A single statement
    /// need not say so, as it has no beginning.
    fn is_read_only(&self) -> bool {
        false
    }

    /// The database has confirmed that what it did lasts: the runner says so. What its client
    /// is to know of it is known from then on, because a commit may fail.
    fn committed(&self) {}

    fn run(self: Arc<Self>, session: Session<'_>) -> Running<'_>;
}

/// How much is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Depth {
    #[default]
    Quick,
    Full,
}

/// A condition of consistency, and whether it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Its name, such as `TPC-C 3.3.2.1`.
    pub name: &'static str,
    /// Where it does not hold and how; `None` when it does.
    pub violation: Option<String>,
}

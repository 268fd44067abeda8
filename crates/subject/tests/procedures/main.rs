//! TPC-C by stored procedures, on the servers that have them.
//!
//! From one seed, statements and procedures leave the same rows in all tables and tell the same
//! (`same`). Clients at once keep all conditions, and a call that gives way leaves nothing behind
//! (`conflicts`). A database in our own process runs what would be called (`inside`).
//!
//! A server that is not installed is skipped, which a line on standard error says.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]
#![allow(clippy::print_stdout, reason = "a test prints its seed and what it did")]

mod conflicts;
mod inside;
mod same;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tidegate_subject::connection::{Connector, Transactional, load, remove, run};
use tidegate_subject::database::DatabaseError;
use tidegate_subject::firebird::{self, Firebird};
use tidegate_subject::mariadb::{self, MariaDb};
use tidegate_subject::postgres::{self, Postgres};
use tidegate_workload::tpcc::{Form, Scale, Tpcc};
use tidegate_workload::workload::Transaction;
use tidegate_workload::{Ending, Failure, Statement, Wants};

/// How often a transaction is run again before it will never come to its end.
const ATTEMPTS: usize = 10_000;

/// A server with stored procedures.
#[derive(Debug)]
enum Server {
    Postgres(Postgres),
    MariaDb(MariaDb),
    // Far larger than the others.
    Firebird(Box<Firebird>),
}

impl Connector for Server {
    fn connect(&self) -> Result<Box<dyn Transactional>, Failure> {
        Ok(match self {
            Server::Postgres(server) => Box::new(server.connect()?),
            Server::MariaDb(server) => Box::new(server.connect()?),
            Server::Firebird(server) => Box::new(server.connect()?),
        })
    }
}

fn settings(named: &[(&str, &str)]) -> Vec<(String, String)> {
    named.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Says on standard error, which the test runner does not keep to itself, what is left out.
fn skipped(reason: &dyn std::fmt::Display) -> Option<Server> {
    let _ = writeln!(std::io::stderr(), "skipped: {reason}");
    None
}

/// Servers that are in no hurry to write to their disk; `None` where they are not installed.
impl Server {
    fn postgres() -> Option<Self> {
        if let Err(error @ DatabaseError::NotInstalled(_)) = Postgres::find() {
            return skipped(&error);
        }
        // Orders of the same few items meet in deadlocks, each of which it notices this late.
        let settings = settings(&[("fsync", "off"), ("deadlock_timeout", "10ms")]);
        let options = postgres::Options { settings, ..postgres::Options::default() };
        Some(Server::Postgres(Postgres::start(options).unwrap()))
    }

    fn mariadb() -> Option<Self> {
        if let Err(error @ DatabaseError::NotInstalled(_)) = MariaDb::find() {
            return skipped(&error);
        }
        let settings = settings(&[("innodb_flush_log_at_trx_commit", "2"), ("debug_no_sync", "1")]);
        let options = mariadb::Options { settings, ..mariadb::Options::default() };
        Some(Server::MariaDb(MariaDb::start(options).unwrap()))
    }

    fn firebird() -> Option<Self> {
        if let Err(error @ DatabaseError::NotInstalled(_)) = Firebird::find() {
            return skipped(&error);
        }
        let settings = settings(&[("DeadlockTimeout", "1")]);
        let options = firebird::Options { settings, ..firebird::Options::default() };
        Some(Server::Firebird(Box::new(Firebird::start(options).unwrap())))
    }

    /// Makes the workload's tables anew.
    fn fill(&self, workload: &Tpcc) {
        let mut connection = self.connect().unwrap();
        remove(&mut *connection, workload).unwrap();
        load(&mut *connection, workload, &AtomicBool::new(false), &mut |_| {}).unwrap();
    }

    fn number(&self, sql: impl Into<String>) -> i64 {
        let mut connection = self.connect().unwrap();
        let reply = connection.run(&Statement::written(sql.into()), &[], Wants::Rows).unwrap();
        reply.rows.int(0, 0).unwrap()
    }
}

/// Two warehouses with so many items and ten times 30 customers each.
fn tpcc(items: u32, form: Form) -> Tpcc {
    Tpcc { form, ..Tpcc::new(Scale::new(2).unwrap().reduced(items, 30).unwrap()) }
}

/// Runs a transaction until no other one is in its way; how it ended, and how often one was.
fn insist(
    connection: &mut dyn Transactional,
    transaction: &Arc<dyn Transaction>,
) -> (Ending, usize) {
    for conflicts in 0..ATTEMPTS {
        match run(connection, Arc::clone(transaction)) {
            Ok(ending) => return (ending, conflicts),
            Err(Failure::Conflict(_)) => {}
            Err(failure) => panic!("{transaction:?}: {failure}"),
        }
    }
    panic!("{transaction:?} never comes to its end");
}

//! Databases under test: they come, obey, run transactions, and leave nothing behind.
//!
//! | module | on what |
//! | --- | --- |
//! | `postgres`, `mariadb`, `firebird`, `sqlite`, `embedded` | a private database of each |
//! | `guests` | servers that somebody else started |
//! | `procedures` | TPC-C by stored procedures, on the servers that have them |
//! | `sql` | SQL on the embedded engine |
//!
//! A DBMS that is not installed is skipped, which a line on standard error says.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a test says what it did")]

mod bank;
#[path = "../common/mod.rs"]
mod common;
mod embedded;
mod firebird;
mod guests;
mod mariadb;
mod mariadb_load;
mod postgres;
mod procedures;
mod sql;
mod sqlite;
mod traces;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tidegate_control::{Algorithm, Bounds, Mpl, Resources, Setting};
use tidegate_subject::connection::{self, Transactional};
use tidegate_subject::embedded::{Embedded, Options};
use tidegate_workload::workload::{Depth, Transaction, Workload};
use tidegate_workload::{Connection, Ending, Failure, Reply, Statement, Value, Wants};

static NEVER: AtomicBool = AtomicBool::new(false);

/// How often a transaction is run again before it will never come to its end.
const ATTEMPTS: usize = 10_000;

fn run<C: Connection + ?Sized>(
    connection: &mut C,
    sql: &str,
    values: &[Value<'_>],
) -> Result<Reply, Failure> {
    connection.run(&Statement::written(sql.to_owned()), values, Wants::Rows)
}

/// Makes a workload's tables.
fn load(connection: &mut dyn Transactional, workload: &dyn Workload) {
    connection::load(connection, workload, &NEVER, &mut |_| {}).unwrap();
}

/// Fails unless every condition of a workload holds. Returns how many there are.
fn assert_consistent(
    connection: &mut dyn Transactional,
    workload: &dyn Workload,
    depth: Depth,
) -> usize {
    let conditions = connection::check(connection, workload, depth).unwrap();
    assert!(conditions.iter().all(|condition| condition.violation.is_none()), "{conditions:#?}");
    conditions.len()
}

/// Starts a small store of the embedded engine.
fn store() -> Embedded {
    Embedded::start(Options { buffer_bytes: 4 << 20, ..Options::default() }).unwrap()
}

/// Returns a fixed limit, and what the engine's server is set to with it.
fn fixed(limit: u32) -> (Algorithm, Setting) {
    let limit = Mpl::at_least_one(limit);
    let setting = Setting {
        bounds: Bounds::new(Mpl::ONE, Mpl::at_least_one(100)).unwrap(),
        start: limit,
        resources: Resources { cpus: 2, disks: 1 },
    };
    (Algorithm::Fixed(limit), setting)
}

/// Runs a transaction until no other one is in its way; how it ended, and how often one was.
fn insist(
    connection: &mut dyn Transactional,
    transaction: &Arc<dyn Transaction>,
) -> (Ending, usize) {
    for conflicts in 0..ATTEMPTS {
        match connection::run(connection, Arc::clone(transaction)) {
            Ok(ending) => return (ending, conflicts),
            Err(Failure::Conflict(_)) => {}
            Err(failure) => panic!("{transaction:?}: {failure}"),
        }
    }
    panic!("{transaction:?} never comes to its end");
}

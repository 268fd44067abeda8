//! TPC-C by stored procedures, on the servers that have them.
//!
//! From one seed, statements and procedures leave the same rows in all tables and tell the same
//! (`same`). Clients at once keep all conditions, and a call that gives way leaves nothing behind
//! (`conflicts`). A database in our own process runs what would be called (`inside`).

mod conflicts;
mod inside;
mod same;

use std::sync::Arc;

use tidegate_subject::connection::{Transactional, remove, run};
use tidegate_subject::database::Database;
use tidegate_workload::tpcc::{Form, Scale, Tpcc};
use tidegate_workload::workload::Transaction;
use tidegate_workload::{Ending, Failure, Statement, Wants};

use super::{common, load};

/// How often a transaction is run again before it will never come to its end.
const ATTEMPTS: usize = 10_000;

/// A server with stored procedures, none where it is not installed.
type Server = Option<Box<dyn Database>>;

fn postgres() -> Server {
    common::postgres().map(|server| Box::new(server) as _)
}

fn mariadb() -> Server {
    common::mariadb(&[], None).map(|server| Box::new(server) as _)
}

fn firebird() -> Server {
    common::firebird().map(|server| Box::new(server) as _)
}

/// Makes the workload's tables anew.
fn fill(server: &dyn Database, workload: &Tpcc) {
    let mut session = server.session().unwrap();
    remove(&mut *session, workload).unwrap();
    load(&mut *session, workload);
}

fn number(server: &dyn Database, sql: impl Into<String>) -> i64 {
    let mut session = server.session().unwrap();
    let reply = session.run(&Statement::written(sql.into()), &[], Wants::Rows).unwrap();
    reply.rows.int(0, 0).unwrap()
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

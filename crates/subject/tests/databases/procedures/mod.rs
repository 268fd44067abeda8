//! TPC-C by stored procedures, on the servers that have them.
//!
//! From one seed, statements and procedures leave the same rows in all tables and tell the same
//! (`same`). Clients at once keep all conditions, and a call that gives way leaves nothing behind
//! (`conflicts`). A database in our own process runs what would be called (`inside`).

mod conflicts;
mod inside;
mod same;

use tidegate_subject::connection::remove;
use tidegate_subject::database::Database;
use tidegate_workload::tpcc::{Form, Scale, Tpcc};
use tidegate_workload::{Statement, Wants};

use super::{common, load};

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

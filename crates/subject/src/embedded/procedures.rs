//! The transactions of [`tidegate_workload`] as stored procedures.
//!
//! # Dialect
//! What is one statement in SQL is what an application does here that has a key-value interface:
//!
//! | SQL | here |
//! | --- | --- |
//! | `UPDATE t SET b = b + d WHERE id = k` | read row k, write it with another balance |
//! | `SELECT b FROM t WHERE id = k` | read row k |
//! | `INSERT INTO history` | put under the transaction's number, so at the end of the tree |
//! | `SELECT c .. WHERE id1 >= a AND id1 < b` | go over the rows, read the column |
//! | `UPDATE .. WHERE id1 >= a AND id1 < b` | go over the rows, then write each |
//!
//! Serializable, a read takes a shared lock and the write after it converts the lock. Two
//! transactions that have read the same row both wait for the other to let go: a conversion
//! deadlock, which PostgreSQL's UPDATE avoids by locking the row for itself at once. It is what a
//! program gets that reads a row, decides, and writes it back, with any strict two-phase locking.

use std::io;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tidegate_engine::{Direction, Procedure, StoreError, Transaction, TreeHandle, TxnError};
use tidegate_workload::point_select::{self, PointSelect};
use tidegate_workload::thrash::{self, Access, RangeAccess};
use tidegate_workload::tpcb::{self, Tpcb};

use super::tables::{self, Pgbench, Trees};

/// Whether the clients have given up, so that nothing is to begin any more.
#[derive(Clone, Default)]
pub(super) struct GivenUp(pub(super) Arc<AtomicBool>);

type Answer = Result<Vec<u8>, TxnError>;

/// The procedures whose tables are loaded.
pub(super) fn all(trees: &Trees, given_up: &GivenUp) -> Vec<(String, Procedure)> {
    let mut all = Vec::new();
    let mut add = |name: &str, procedure: Procedure| all.push((name.to_owned(), procedure));
    if let Some(trees) = &trees.pgbench {
        let of_tpcb = trees.clone();
        add(
            tpcb::PROCEDURE,
            make(given_up, Tpcb::decode, move |transaction, values| {
                run_tpcb(&of_tpcb, transaction, values)
            }),
        );
        let accounts = trees.accounts.clone();
        let select = move |transaction: &mut Transaction, values: PointSelect| {
            read(transaction, &accounts, values.account)
        };
        add(point_select::PROCEDURE, make(given_up, PointSelect::decode, select));
    }
    if let Some(trees) = &trees.thrash {
        let trees = trees.clone();
        add(
            thrash::PROCEDURE,
            make(given_up, RangeAccess::decode, move |transaction, values| {
                let Some(tree) = trees.get(values.table()) else { return Err(bad_arguments()) };
                match values.access() {
                    Access::Read => read_range(tree, transaction, &values),
                    Access::Update => update_range(tree, transaction, &values),
                }
            }),
        );
    }
    all
}

/// A procedure that runs `code` with the values in its arguments, unless the clients have given up.
fn make<V: 'static>(
    given_up: &GivenUp,
    decode: impl Fn(&[u8]) -> Option<V> + Send + Sync + 'static,
    code: impl Fn(&mut Transaction, V) -> Answer + Send + Sync + 'static,
) -> Procedure {
    let GivenUp(given_up) = given_up.clone();
    Box::new(move |transaction, arguments| {
        if given_up.load(Ordering::Relaxed) {
            let why = "begin a transaction that its client has given up";
            return Err(refusal(why, io::ErrorKind::Interrupted));
        }
        code(transaction, decode(arguments).ok_or_else(bad_arguments)?)
    })
}

fn bad_arguments() -> TxnError {
    refusal("read the arguments of a transaction", io::ErrorKind::InvalidInput)
}

/// A procedure's own error, which is not run again.
fn refusal(action: &'static str, kind: io::ErrorKind) -> TxnError {
    TxnError::Store(StoreError::Io { action, source: kind.into() })
}

fn run_tpcb(trees: &Pgbench, transaction: &mut Transaction, values: Tpcb) -> Answer {
    let Tpcb { account, branch, teller, delta } = values;
    add(transaction, &trees.accounts, account, delta)?;
    let balance = read(transaction, &trees.accounts, account)?;
    add(transaction, &trees.tellers, teller, delta)?;
    add(transaction, &trees.branches, branch, delta)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let row = tables::history_row(&values, now);
    let key = transaction.id().0.to_be_bytes();
    transaction.insert(&trees.history, &key, &row)?;
    Ok(balance)
}

/// Reads a row and writes it with a balance that is so much higher.
fn add(
    transaction: &mut Transaction,
    tree: &TreeHandle,
    number: i32,
    delta: i32,
) -> Result<(), TxnError> {
    let key = tables::key(number);
    let mut row = transaction.get(tree, &key)?.ok_or_else(no_row)?;
    let balance = tables::balance(&row).ok_or_else(no_row)?;
    tables::set_balance(&mut row, balance.wrapping_add(delta.into()));
    transaction.update(tree, &key, &row)?;
    Ok(())
}

/// The balance of a row, as bytes.
fn read(transaction: &mut Transaction, tree: &TreeHandle, number: i32) -> Answer {
    let row = transaction.get(tree, &tables::key(number))?.ok_or_else(no_row)?;
    let balance = tables::balance(&row).ok_or_else(no_row)?;
    Ok(balance.to_le_bytes().to_vec())
}

fn no_row() -> TxnError {
    refusal("find a row of the tables", io::ErrorKind::NotFound)
}

/// All of the column, one after the other.
fn read_range(tree: &TreeHandle, transaction: &mut Transaction, values: &RangeAccess) -> Answer {
    let column = tables::column(values.column());
    let mut answer = Vec::new();
    for_each(tree, transaction, values, |_, row| {
        answer.extend_from_slice(row.get(column.clone()).unwrap_or_default());
    })?;
    Ok(answer)
}

fn update_range(tree: &TreeHandle, transaction: &mut Transaction, values: &RangeAccess) -> Answer {
    let mut rows = Vec::new();
    for_each(tree, transaction, values, |key, row| rows.push((key.to_vec(), row.to_vec())))?;
    for (key, row) in &mut rows {
        tables::set_column(row, values.column(), values.value());
        transaction.update(tree, key, row)?;
    }
    Ok(Vec::new())
}

/// Goes over the rows of the range in order.
fn for_each(
    tree: &TreeHandle,
    transaction: &mut Transaction,
    values: &RangeAccess,
    mut visit: impl FnMut(&[u8], &[u8]),
) -> Result<(), TxnError> {
    let (from, until) = (tables::key(values.rows().start), tables::key(values.rows().end));
    let range = (Bound::Included(&from[..]), Bound::Excluded(&until[..]));
    let mut cursor = transaction.cursor(tree, range, Direction::Up)?;
    while let Some((key, row)) = cursor.next(transaction)? {
        visit(key, row);
    }
    Ok(())
}

//! A statement run by its plan.

use tidegate_engine::{Transaction, TxnError};
use tidegate_runtime::work::{self, Operation};
use tidegate_workload::{Reply, Value, Wants};

use super::aggregate::Groups;
use super::catalog::Catalog;
use super::error::SqlError;
use super::evaluate::Given;
use super::moment;
use super::output::Answer;
use super::plan::{Plan, Selecting};
use super::read::Reader;
use super::write;

/// Runs a statement within a transaction: all of it, or, after an error that is not a conflict,
/// nothing.
pub(super) fn execute(
    transaction: &mut Transaction,
    catalog: &Catalog,
    sql: &str,
    values: &[Value<'_>],
    wants: Wants,
) -> Result<Reply, SqlError> {
    let plan = catalog.plan(sql)?;
    let given = Given { values, now: moment::now() };
    let savepoint = transaction.savepoint();
    let count = match &*plan {
        Plan::Select(selecting) => return select(transaction, selecting, given, wants),
        Plan::Update(updating) => write::update(transaction, updating, given),
        Plan::Insert(inserting) => write::insert(transaction, inserting, given),
        Plan::Delete(deleting) => write::delete(transaction, deleting, given),
    };
    match count {
        Ok(count) => Ok(Reply { count, ..Reply::default() }),
        Err(error @ SqlError::Engine(TxnError::Conflict(_))) => Err(error),
        Err(error) => {
            transaction.roll_back_to(savepoint)?;
            Err(error)
        }
    }
}

fn select(
    transaction: &mut Transaction,
    plan: &Selecting,
    given: Given<'_>,
    wants: Wants,
) -> Result<Reply, SqlError> {
    let mut answer = Answer::new(&plan.output, given, wants)?;
    if answer.is_full() {
        return Ok(answer.end());
    }
    let mut reader = Reader::new(transaction, &plan.reading, given)?;
    match &plan.grouping {
        None => reader.read(&mut |row, _| {
            work::count(Operation::Answer, 1);
            answer.take(row)
        })?,
        Some(grouping) => {
            let mut groups = Groups::new(grouping, given);
            reader.read(&mut |row, _| {
                work::count(Operation::Group, 1);
                groups.take(row)
            })?;
            groups.end(|row| answer.take(row))?;
        }
    }
    Ok(answer.end())
}

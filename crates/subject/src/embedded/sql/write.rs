//! Rows changed, inserted and deleted, with their entries in indexes.
//!
//! The rows are looked for first, all of them, and changed then: a row that is moved by its change
//! is not met again.

use std::ops::ControlFlow;

use tidegate_engine::{Transaction, TreeHandle, TxnError};
use tidegate_runtime::work::{self, Operation};
use tidegate_workload::Value;

use super::catalog::Relation;
use super::encode::fit;
use super::error::SqlError;
use super::evaluate::{Given, borrow};
use super::join::Reading;
use super::plan::{Deleting, Inserting, Updating};
use super::read::Reader;

type Row = Vec<Value<'static>>;

/// The rows to be changed and their keys.
fn find(
    transaction: &mut Transaction,
    reading: &Reading,
    given: Given<'_>,
) -> Result<Vec<(Vec<u8>, Row)>, SqlError> {
    let mut found = Vec::new();
    Reader::new(transaction, reading, given)?.read(&mut |row, key| {
        found.push((key.to_vec(), row.to_vec()));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

pub(super) fn update(
    transaction: &mut Transaction,
    plan: &Updating,
    given: Given<'_>,
) -> Result<u64, SqlError> {
    let relation = &*plan.relation;
    let found = find(transaction, &plan.reading, given)?;
    let count = found.len() as u64;
    for (key, old) in found {
        let mut new: Vec<Value<'_>> = old.iter().map(borrow).collect();
        for (place, value) in &plan.set {
            new[*place] = fit(given.evaluate(value, &old)?, &relation.columns[*place])?;
        }
        relation.check_null(&new)?;
        let value = row_value(relation, &new);
        let new_key = if plan.changes_key { relation.row_key(&new) } else { key.clone() };
        if new_key == key {
            work::count(Operation::Row, 1);
            transaction.update(&relation.tree, &key, &value)?;
        } else {
            remove_entry(transaction, &relation.tree, &key)?;
            insert_entry(transaction, &relation.tree, &new_key, &value, relation, PRIMARY_KEY)?;
        }
        for index in plan.indexes.iter().map(|&index| &relation.indexes[index]) {
            let (before, after) = (index.entry(&old, &key), index.entry(&new, &new_key));
            if before == after {
                continue;
            }
            remove_entry(transaction, &index.tree, &before.0)?;
            insert_entry(transaction, &index.tree, &after.0, &after.1, relation, index.name)?;
        }
    }
    Ok(count)
}

pub(super) fn delete(
    transaction: &mut Transaction,
    plan: &Deleting,
    given: Given<'_>,
) -> Result<u64, SqlError> {
    let relation = &*plan.relation;
    let found = find(transaction, &plan.reading, given)?;
    for (key, row) in &found {
        remove_entry(transaction, &relation.tree, key)?;
        for index in &relation.indexes {
            remove_entry(transaction, &index.tree, &index.entry(row, key).0)?;
        }
    }
    Ok(found.len() as u64)
}

pub(super) fn insert(
    transaction: &mut Transaction,
    plan: &Inserting,
    given: Given<'_>,
) -> Result<u64, SqlError> {
    let relation = &*plan.relation;
    for cells in &plan.rows {
        let mut row = Vec::with_capacity(cells.len());
        for (cell, column) in cells.iter().zip(&relation.columns) {
            let value = match cell {
                Some(value) => given.evaluate(value, &[])?,
                None => Value::Null,
            };
            row.push(fit(value, column)?);
        }
        insert_row(transaction, relation, &row)?;
    }
    Ok(plan.rows.len() as u64)
}

/// Inserts a row whose values fit their columns.
fn insert_row(
    transaction: &mut Transaction,
    relation: &Relation,
    row: &[Value<'_>],
) -> Result<(), SqlError> {
    relation.check_null(row)?;
    let key = relation.row_key(row);
    let value = row_value(relation, row);
    insert_entry(transaction, &relation.tree, &key, &value, relation, PRIMARY_KEY)?;
    for index in &relation.indexes {
        let (entry, row_key) = index.entry(row, &key);
        insert_entry(transaction, &index.tree, &entry, &row_key, relation, index.name)?;
    }
    Ok(())
}

const PRIMARY_KEY: &str = "its primary key";

/// Returns what a row's entry holds beside its key.
fn row_value(relation: &Relation, row: &[Value<'_>]) -> Vec<u8> {
    let texts = row.iter().filter(|value| matches!(value, Value::Text(_))).count();
    work::count(Operation::Value, row.len() as u64);
    work::count(Operation::Text, texts as u64);
    relation.row_value(row)
}

fn remove_entry(
    transaction: &mut Transaction,
    tree: &TreeHandle,
    key: &[u8],
) -> Result<(), SqlError> {
    work::count(Operation::Row, 1);
    transaction.remove(tree, key)?;
    Ok(())
}

/// Inserts an entry that must not be there.
fn insert_entry(
    transaction: &mut Transaction,
    tree: &TreeHandle,
    key: &[u8],
    value: &[u8],
    relation: &Relation,
    name: &str,
) -> Result<(), SqlError> {
    work::count(Operation::Row, 1);
    match transaction.insert(tree, key, value) {
        Err(TxnError::KeyExists) => {
            Err(SqlError::Duplicate { table: relation.name.to_owned(), key: name.to_owned() })
        }
        other => Ok(other?),
    }
}

//! What a table of an export is, and its rows.

mod catalog;
mod phases;

use std::cmp::Ordering;

use serde_json::Value;
use tidegate_workload::Rows;

use crate::experiment::Experiment;
use crate::store::read::{float, int, text};
use crate::store::write::times_s;
use crate::store::{Store, StoreError};

pub(super) use catalog::TABLES;

/// What one cell holds.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    /// A cell without a value.
    Null,
    /// A whole number.
    Int(i64),
    /// A number with a point.
    Real(f64),
    /// Text.
    Text(String),
}

/// What the cells of a column hold, where they hold something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Int,
    Real,
    Text,
}

pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
}

const fn whole(name: &'static str) -> Column {
    Column { name, kind: Kind::Int }
}

const fn real(name: &'static str) -> Column {
    Column { name, kind: Kind::Real }
}

const fn words(name: &'static str) -> Column {
    Column { name, kind: Kind::Text }
}

/// What one `?` in a table's statement stands for, and how often it is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    Experiment,
    Batchset,
}

/// What becomes of the last column that the statement gives.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    /// It is a column like another.
    Plain,
    /// It is a workload's description: the columns after it are taken from there.
    Workload,
    /// It is an experiment's file: the columns after it are taken from what it says.
    File,
    /// It is a histogram: each of its pairs is a row.
    Histogram,
    /// It is what the clients reported: each phase of a kind of transaction is a row.
    Report,
}

pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) scope: Scope,
    pub(super) columns: &'static [Column],
    /// So many of the first columns are a row's key. Rows are sorted by them.
    keys: usize,
    last: Last,
    sql: &'static str,
}

impl Store {
    /// The rows of a table that belong to an experiment or a batchset, sorted.
    pub(super) fn rows(
        &mut self,
        table: &Table,
        experiment: &Experiment,
        of: i64,
    ) -> Result<Vec<Vec<Cell>>, StoreError> {
        let found = self.query(table.sql, &[of.into()])?;
        let mut rows = Vec::new();
        for place in 0..found.len() {
            let row = cells(table, &found, place)?;
            match table.last {
                Last::Plain => rows.push(row),
                Last::Workload => rows.push(with_workload(row)?),
                Last::File => rows.push(with_settings(row, experiment)),
                Last::Histogram => rows.extend(buckets(row)?),
                Last::Report => rows.extend(phases::of_report(row)?),
            }
        }
        rows.sort_by(|one, other| by_keys(&one[..table.keys], &other[..table.keys]));
        Ok(rows)
    }
}

/// What the statement gives of a row.
fn cells(table: &Table, found: &Rows, row: usize) -> Result<Vec<Cell>, StoreError> {
    let of_kind = |(place, kind)| {
        Ok(match kind {
            _ if found.is_null(row, place) => Cell::Null,
            Kind::Int => Cell::Int(int(found, row, place)?),
            Kind::Real => Cell::Real(float(found, row, place)?),
            Kind::Text => Cell::Text(text(found, row, place)),
        })
    };
    // A histogram or a report stands where the first of the columns taken from it will be.
    let is_taken_apart = matches!(table.last, Last::Histogram | Last::Report);
    let is_document = |place| is_taken_apart && place + 1 == found.width();
    let kind = |(place, column): (usize, &Column)| {
        (place, if is_document(place) { Kind::Text } else { column.kind })
    };
    table.columns.iter().take(found.width()).enumerate().map(kind).map(of_kind).collect()
}

/// The order in which databases agree: by number, NULL first, or byte by byte.
fn by_keys(one: &[Cell], other: &[Cell]) -> Ordering {
    let pairs = one.iter().zip(other);
    let orders = pairs.map(|pair| match pair {
        (Cell::Int(one), Cell::Int(other)) => one.cmp(other),
        (Cell::Text(one), Cell::Text(other)) => one.cmp(other),
        (Cell::Null, Cell::Int(_)) => Ordering::Less,
        (Cell::Int(_), Cell::Null) => Ordering::Greater,
        _ => Ordering::Equal,
    });
    orders.fold(Ordering::Equal, Ordering::then)
}

/// The row and what its last cell, a workload's description, says by name.
fn with_workload(mut row: Vec<Cell>) -> Result<Vec<Cell>, StoreError> {
    let spec = match row.last() {
        Some(Cell::Text(spec)) => parsed(spec, "a workload")?,
        _ => Value::Null,
    };
    let whole = |name| spec[name].as_i64().map_or(Cell::Null, Cell::Int);
    let real = |name| spec[name].as_f64().map_or(Cell::Null, Cell::Real);
    let placement = spec["placement"].as_str().map(str::to_owned);
    row.extend([whole("scale"), whole("rows"), real("sf"), real("rose")]);
    row.push(placement.map_or(Cell::Null, Cell::Text));
    row.extend([whole("reads"), whole("updates"), whole("changes"), whole("joins")]);
    Ok(row)
}

/// The row and what the experiment's file, with its preset and defaults, says of all executions.
fn with_settings(mut row: Vec<Cell>, experiment: &Experiment) -> Vec<Cell> {
    row.extend(times_s(experiment).map(Cell::Real));
    row.push(Cell::Int(experiment.repetitions.into()));
    row
}

/// A row for each pair of latency and count in the last cell.
fn buckets(mut row: Vec<Cell>) -> Result<Vec<Vec<Cell>>, StoreError> {
    let pairs: Vec<(i64, i64)> = match row.pop() {
        Some(Cell::Text(pairs)) => parsed(&pairs, "a histogram")?,
        _ => Vec::new(),
    };
    let bucket = |(latency_us, count)| {
        let mut bucket = row.clone();
        bucket.extend([Cell::Int(latency_us), Cell::Int(count)]);
        bucket
    };
    Ok(pairs.into_iter().map(bucket).collect())
}

fn parsed<T: serde::de::DeserializeOwned>(text: &str, what: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::Damaged(format!("{what}: {error}")))
}

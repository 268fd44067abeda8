//! What a table of an export is, and its rows.

mod phases;

use std::cmp::Ordering;

use serde_json::Value;
use tidegate_workload::{Dialect, Rows};

use crate::experiment::Experiment;
use crate::store::read::parsed;
use crate::store::rows::{float, int, text};
use crate::store::write::times_s;
use crate::store::{BatchsetRow, Store, StoreError, count};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum ExportCell {
    Null,
    Int(i64),
    Real(f64),
    Text(String),
}

/// What the cells of a column hold, where they hold something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnKind {
    Int,
    Real,
    Text,
}

pub(super) struct ExportColumn {
    pub(super) name: String,
    pub(super) kind: ColumnKind,
}

/// What a table's rows are asked for by.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    Experiment,
    Batchset,
}

/// What becomes of the last column of the view.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LastColumn {
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

impl LastColumn {
    /// The columns that are taken from it.
    fn columns(self) -> &'static [(&'static str, ColumnKind)] {
        use ColumnKind::{Int, Real, Text};
        match self {
            LastColumn::Plain => &[],
            LastColumn::Workload => &[
                ("scale", Int),
                ("rows", Int),
                ("sf_percent", Real),
                ("rose_percent", Real),
                ("placement", Text),
                ("reads", Int),
                ("updates", Int),
                ("changes", Int),
                ("joins", Int),
            ],
            LastColumn::File => &[
                ("ctl_s", Real),
                ("warmup_s", Real),
                ("pause_s", Real),
                ("connect_limit_s", Real),
                ("interval_s", Real),
                ("repetitions", Int),
            ],
            LastColumn::Histogram => &[("latency_us", Int), ("transactions", Int)],
            LastColumn::Report => &phases::COLUMNS,
        }
    }

    /// Whether the columns that are taken from it stand in its place.
    fn is_replaced(self) -> bool {
        matches!(self, LastColumn::Histogram | LastColumn::Report)
    }
}

/// What the view of a table (`exports.sql`, and later steps of the schema) does not say.
struct Source {
    name: &'static str,
    scope: Scope,
    /// So many of the first columns are a row's key. Rows are sorted by them.
    keys: usize,
    last: LastColumn,
}

const fn source(name: &'static str, scope: Scope, keys: usize, last: LastColumn) -> Source {
    Source { name, scope, keys, last }
}

/// Every table, in the order in which they are written. The phases of a kind of transaction stay in
/// their own order.
static SOURCES: [Source; 18] = [
    source("experiment", Scope::Experiment, 1, LastColumn::File),
    source("executions", Scope::Batchset, 7, LastColumn::Workload),
    source("attempts", Scope::Batchset, 8, LastColumn::Plain),
    source("kinds", Scope::Batchset, 9, LastColumn::Plain),
    source("phases", Scope::Batchset, 9, LastColumn::Report),
    source("intervals", Scope::Batchset, 8, LastColumn::Plain),
    source("interval_kinds", Scope::Batchset, 10, LastColumn::Plain),
    source("histograms", Scope::Batchset, 9, LastColumn::Histogram),
    source("limits", Scope::Batchset, 8, LastColumn::Plain),
    source("classes", Scope::Batchset, 8, LastColumn::Plain),
    source("trees", Scope::Batchset, 9, LastColumn::Plain),
    source("troubles", Scope::Batchset, 9, LastColumn::Plain),
    source("conditions", Scope::Batchset, 4, LastColumn::Plain),
    source("analyses", Scope::Experiment, 2, LastColumn::Plain),
    source("tap_counts", Scope::Experiment, 6, LastColumn::Plain),
    source("tap_drops", Scope::Batchset, 9, LastColumn::Plain),
    source("thrashing_points", Scope::Batchset, 4, LastColumn::Plain),
    source("thrashing_posteriors", Scope::Batchset, 5, LastColumn::Plain),
];

pub(super) struct ExportTable {
    pub(super) name: &'static str,
    pub(super) scope: Scope,
    pub(super) columns: Vec<ExportColumn>,
    keys: usize,
    last: LastColumn,
    /// What the cells of the view's columns hold.
    given: Vec<ColumnKind>,
}

impl Store {
    /// Returns every table of an export, with the columns that its view has in the store.
    pub(super) fn tables(&mut self) -> Result<Vec<ExportTable>, StoreError> {
        SOURCES.iter().map(|source| self.table(source)).collect()
    }

    fn table(&mut self, source: &Source) -> Result<ExportTable, StoreError> {
        let &Source { name, scope, keys, last } = source;
        let columns = match self.connection.dialect() {
            Dialect::Postgres => {
                "SELECT column_name, data_type FROM information_schema.columns \
                 WHERE table_name = ? AND table_schema = current_schema() ORDER BY ordinal_position"
            }
            _ => "SELECT name, lower(type) FROM pragma_table_info(?)",
        };
        let found = self.query(columns, &[view(name).into()])?;
        let given = (0..found.len()).map(|row| ExportColumn::of_type(&found, row));
        let mut columns = given.collect::<Result<Vec<_>, _>>()?;
        let given = columns.iter().map(|column| column.kind).collect();
        if last.is_replaced() {
            columns.pop();
        }
        let taken = last.columns().iter();
        columns.extend(taken.map(|&(name, kind)| ExportColumn { name: name.to_owned(), kind }));
        Ok(ExportTable { name, scope, columns, keys, last, given })
    }

    /// Returns the rows of a table that belong to an experiment, and to one of its batchsets where
    /// it is asked for by them, sorted.
    pub(super) fn rows_of(
        &mut self,
        table: &ExportTable,
        id: i64,
        experiment: &Experiment,
        batchset: Option<&BatchsetRow>,
    ) -> Result<Vec<Vec<ExportCell>>, StoreError> {
        let all = format!("SELECT * FROM {} WHERE experiment = ?", view(table.name));
        let found = match batchset {
            None => self.query(&all, &[id.into()])?,
            Some(of) => {
                let one = format!("{all} AND run = ? AND batchset = ?");
                self.query(&one, &[id.into(), count(of.run), count(of.number)])?
            }
        };
        let mut rows = Vec::new();
        for place in 0..found.len() {
            let row = cells(&table.given, &found, place)?;
            match table.last {
                LastColumn::Plain => rows.push(row),
                LastColumn::Workload => rows.push(with_workload(row)?),
                LastColumn::File => rows.push(with_settings(row, experiment)),
                LastColumn::Histogram => rows.extend(buckets(row)?),
                LastColumn::Report => rows.extend(phases::of_report(row)?),
            }
        }
        rows.sort_by(|one, other| by_keys(&one[..table.keys], &other[..table.keys]));
        Ok(rows)
    }
}

/// The view that a table's rows are read from.
fn view(table: &str) -> String {
    format!("export_{table}")
}

impl ExportColumn {
    /// Returns the column whose name and type stand in a row.
    fn of_type(found: &Rows, row: usize) -> Result<ExportColumn, StoreError> {
        let kind = match text(found, row, 1).as_str() {
            "int" | "integer" | "bigint" => ColumnKind::Int,
            "real" | "double precision" => ColumnKind::Real,
            "text" => ColumnKind::Text,
            other => {
                return Err(StoreError::Damaged(format!("a view has a column of type {other}")));
            }
        };
        Ok(ExportColumn { name: text(found, row, 0), kind })
    }
}

/// Returns what the view has in a row.
fn cells(given: &[ColumnKind], found: &Rows, row: usize) -> Result<Vec<ExportCell>, StoreError> {
    let of_kind = |(place, kind): (usize, &ColumnKind)| {
        Ok(match kind {
            _ if found.is_null(row, place) => ExportCell::Null,
            ColumnKind::Int => ExportCell::Int(int(found, row, place)?),
            ColumnKind::Real => ExportCell::Real(float(found, row, place)?),
            ColumnKind::Text => ExportCell::Text(text(found, row, place)),
        })
    };
    given.iter().enumerate().map(of_kind).collect()
}

/// The order in which databases agree: by number, NULL first, or byte by byte.
fn by_keys(one: &[ExportCell], other: &[ExportCell]) -> Ordering {
    let pairs = one.iter().zip(other);
    let orders = pairs.map(|pair| match pair {
        (ExportCell::Int(one), ExportCell::Int(other)) => one.cmp(other),
        (ExportCell::Text(one), ExportCell::Text(other)) => one.cmp(other),
        (ExportCell::Null, ExportCell::Int(_)) => Ordering::Less,
        (ExportCell::Int(_), ExportCell::Null) => Ordering::Greater,
        _ => Ordering::Equal,
    });
    orders.fold(Ordering::Equal, Ordering::then)
}

/// The row and what its last cell, a workload's description, says by name.
fn with_workload(mut row: Vec<ExportCell>) -> Result<Vec<ExportCell>, StoreError> {
    let spec = match row.last() {
        Some(ExportCell::Text(spec)) => parsed(spec, "a workload")?,
        _ => Value::Null,
    };
    let whole = |name| spec[name].as_i64().map_or(ExportCell::Null, ExportCell::Int);
    let real = |name| spec[name].as_f64().map_or(ExportCell::Null, ExportCell::Real);
    let placement = spec["placement"].as_str().map(str::to_owned);
    row.extend([whole("scale"), whole("rows"), real("sf"), real("rose")]);
    row.push(placement.map_or(ExportCell::Null, ExportCell::Text));
    row.extend([whole("reads"), whole("updates"), whole("changes"), whole("joins")]);
    Ok(row)
}

/// The row and what the experiment's file, with its preset and defaults, says of all executions.
fn with_settings(mut row: Vec<ExportCell>, experiment: &Experiment) -> Vec<ExportCell> {
    row.extend(times_s(experiment).map(ExportCell::Real));
    row.push(ExportCell::Int(experiment.repetitions.into()));
    row
}

/// A row for each pair of latency and count in the last cell.
fn buckets(mut row: Vec<ExportCell>) -> Result<Vec<Vec<ExportCell>>, StoreError> {
    let pairs: Vec<(i64, i64)> = match row.pop() {
        Some(ExportCell::Text(pairs)) => parsed(&pairs, "a histogram")?,
        _ => Vec::new(),
    };
    let bucket = |(latency_us, count)| {
        let mut bucket = row.clone();
        bucket.extend([ExportCell::Int(latency_us), ExportCell::Int(count)]);
        bucket
    };
    Ok(pairs.into_iter().map(bucket).collect())
}

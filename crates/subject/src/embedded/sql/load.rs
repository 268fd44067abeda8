//! Tables filled from a workload, each tree once and in the order of its keys.

use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_engine::{Store, TreeHandle, TxnError};
use tidegate_workload::Value;
use tidegate_workload::workload::Workload;

use super::catalog::{Catalog, Relation};
use super::encode::fit;
use super::error::SqlError;
use crate::connection::LoadError;

/// How full leaves are made, in percent: room for a few rows more in each, as databases leave it.
const FILL_PERCENT: u8 = 90;

/// Rows between two looks at the cancellation flag and two reports.
const BATCH: u64 = 1_000;

/// Makes a workload's tables, which must be empty or not be there, fills them and makes their
/// indexes; calls `progress` with the rows loaded so far. `cancel` ends it soon.
///
/// # Errors
/// See [`LoadError`]. The tables hold some of their rows then; the store is of no more use.
pub fn load(
    store: &Store,
    workload: &dyn Workload,
    cancel: &AtomicBool,
    progress: &mut dyn FnMut(u64),
) -> Result<Catalog, LoadError> {
    let tables = workload.tables();
    let failed = |table| move |error: SqlError| LoadError::Table { table, source: error.failure() };
    let first = tables.first().map_or("", |table| table.name);
    let catalog = Catalog::open(store, &tables).map_err(failed(first))?;
    let mut loaded = 0;
    for (place, table) in tables.iter().enumerate() {
        let relation = catalog.named(table.name);
        let mut rows = Rows {
            relation,
            source: workload.rows(place),
            entries: vec![Vec::new(); relation.indexes.len()],
            error: None,
            cancel,
            loaded: &mut loaded,
            progress,
        };
        let filled = rows.fill(store);
        if cancel.load(Ordering::Relaxed) {
            return Err(LoadError::Cancelled);
        }
        filled.map_err(failed(table.name))?;
    }
    progress(loaded);
    Ok(catalog)
}

type Entry = (Vec<u8>, Vec<u8>);

/// The rows of a table as entries of its tree; what goes into its indexes is put aside.
struct Rows<'l> {
    relation: &'l Relation,
    source: Box<dyn Iterator<Item = Vec<Value<'static>>> + Send + 'l>,
    entries: Vec<Vec<Entry>>,
    error: Option<SqlError>,
    cancel: &'l AtomicBool,
    loaded: &'l mut u64,
    progress: &'l mut dyn FnMut(u64),
}

impl Rows<'_> {
    fn fill(&mut self, store: &Store) -> Result<(), SqlError> {
        let relation = self.relation;
        bulk_load(store, &relation.tree, relation.name, "its primary key", &mut *self)?;
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        for (index, entries) in relation.indexes.iter().zip(&mut self.entries) {
            entries.sort_unstable();
            bulk_load(store, &index.tree, relation.name, index.name, entries.drain(..))?;
        }
        Ok(())
    }

    fn entry(&mut self, row: &[Value<'static>]) -> Result<Entry, SqlError> {
        let relation = self.relation;
        let mut fitted = Vec::with_capacity(row.len());
        for (value, column) in row.iter().zip(&relation.columns) {
            fitted.push(fit(super::evaluate::borrow(value), column)?);
        }
        relation.check_null(&fitted)?;
        let key = relation.row_key(&fitted);
        for (index, entries) in relation.indexes.iter().zip(&mut self.entries) {
            entries.push(index.entry(&fitted, &key));
        }
        Ok((key, relation.row_value(&fitted)))
    }
}

impl Iterator for Rows<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        if self.loaded.is_multiple_of(BATCH) {
            if self.cancel.load(Ordering::Relaxed) {
                return None;
            }
            (self.progress)(*self.loaded);
        }
        let row = self.source.next()?;
        *self.loaded += 1;
        self.entry(&row).map_err(|error| self.error = Some(error)).ok()
    }
}

fn bulk_load(
    store: &Store,
    tree: &TreeHandle,
    table: &'static str,
    key: &'static str,
    entries: impl Iterator<Item = Entry>,
) -> Result<(), SqlError> {
    match store.bulk_load(tree, FILL_PERCENT, entries) {
        Ok(_) => Ok(()),
        // Two that are equal, or rows that do not come in the order of their keys.
        Err(TxnError::NotAscending { .. }) => {
            Err(SqlError::Duplicate { table: table.to_owned(), key: key.to_owned() })
        }
        Err(error) => Err(error.into()),
    }
}

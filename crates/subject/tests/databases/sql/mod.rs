//! SQL on the embedded engine: what statements do, how they are planned, and that they do what
//! SQLite's do.

mod locks;
mod model;
mod plans;
mod statements;
mod workload;

use std::sync::Arc;

use tidegate_engine::disk::{Disk, Faults, SimulatedDisk};
use tidegate_engine::wal::LogId;
use tidegate_engine::{Store, StoreOptions, TxnOptions};
use tidegate_subject::embedded::sql::{Catalog, StoreConnection};
use tidegate_workload::{Column, Connection, Index, Rows, Table, Type, Value};

use super::run;

fn store() -> Arc<Store> {
    let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new(1, Faults::default()));
    let options =
        StoreOptions::default().buffer_bytes(8 << 20).buffer_bytes_max(8 << 20).background(false);
    Arc::new(Store::create(&disk, LogId(1), &options).unwrap())
}

fn connection(store: &Arc<Store>, tables: &[Table]) -> StoreConnection {
    let catalog = Arc::new(Catalog::open(store, tables).unwrap());
    StoreConnection::new(Arc::clone(store), catalog, TxnOptions::default())
}

/// The rows as text: cells with spaces between, NULL as `-`.
fn cells(rows: &Rows) -> Vec<String> {
    let cell = |row, column| {
        if rows.is_null(row, column) {
            return "-".to_owned();
        }
        match rows.int(row, column) {
            Some(number) => number.to_string(),
            None => rows.text(row, column).unwrap().to_owned(),
        }
    };
    let row = |row| (0..rows.width()).map(|column| cell(row, column)).collect::<Vec<_>>().join(" ");
    (0..rows.len()).map(row).collect()
}

fn query<C: Connection>(connection: &mut C, sql: &str, values: &[Value<'_>]) -> Vec<String> {
    cells(&run(connection, sql, values).unwrap().rows)
}

fn index(name: &'static str, columns: &[&'static str], unique: bool) -> Index {
    Index { name, columns: columns.to_vec(), unique }
}

fn table(
    name: &'static str,
    columns: &[(&'static str, Type)],
    key: &[&'static str],
    indexes: Vec<Index>,
) -> Table {
    let columns = columns.iter().map(|&(name, kind)| Column::new(name, kind)).collect();
    Table { name, columns, primary_key: key.to_vec(), indexes }
}

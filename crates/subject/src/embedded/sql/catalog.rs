//! Tables as trees of the engine, and the plans of statements on them.
//!
//! # Mechanism
//! | tree | key | value |
//! | --- | --- | --- |
//! | a table | its primary key, or the row's number where it has none | its other columns |
//! | an index | its columns, then the row's key | nothing |
//! | a unique index | its columns | the row's key |
//!
//! Keys and values are bytes as [`encode`](super::encode) says. A table without a primary key is
//! numbered from 0 in the order of its inserts, which no statement sees: it is a heap, and whoever
//! looks for a row without an index reads all of it.
//!
//! Rows with NULL in a column of a unique index are never equal. Their entries are those of an
//! index that is not unique.
//!
//! # Why not the engine's own indexes
//! [`Store::create_index`](tidegate_engine::Store::create_index) keeps any number of entries for
//! each row by a function of its bytes. SQL needs less and more: one entry for each row, known from
//! the statement to change or not; uniqueness, by one insert that fails, with the lock of that one
//! key; entries made in bulk; cursors on them that lock in U.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_engine::{Direction, Store, TreeHandle, TxnOptions};
use tidegate_runtime::sync::RwLock;
use tidegate_workload::{Column, Table, Value};

use super::ast::Source;
use super::encode::{append_key, append_row, read_key, skip_key};
use super::error::SqlError;
use super::plan::{Plan, plan};

/// Plans that are kept; further ones are made each time.
const PLANS_MAX: usize = 4_096;

/// The tables of a store, and the plans of the statements that were run on them.
pub struct Catalog {
    tables: HashMap<&'static str, Arc<Relation>>,
    plans: RwLock<HashMap<String, Arc<Plan>>>,
}

impl Catalog {
    /// These tables of a store; those that are not there yet are made, empty and with their
    /// indexes.
    ///
    /// # Errors
    /// The store cannot read or write, or a table is not sound: [`SqlError::UnknownColumn`] for a
    /// key of columns that it does not have.
    pub fn open(store: &Store, tables: &[Table]) -> Result<Self, SqlError> {
        let tables = tables
            .iter()
            .map(|table| Ok((table.name, Arc::new(Relation::open(store, table)?))))
            .collect::<Result<_, SqlError>>()?;
        Ok(Catalog { tables, plans: RwLock::default() })
    }

    pub(super) fn table(&self, source: &Source) -> Result<&Arc<Relation>, SqlError> {
        let unknown = || SqlError::UnknownTable { name: source.table.clone(), at: source.at };
        self.tables.get(source.table.as_str()).ok_or_else(unknown)
    }

    /// The table of that name, one that the catalog was opened with.
    pub(super) fn named(&self, name: &str) -> &Relation {
        &self.tables[name]
    }

    /// The plan of a statement, made when it is not there yet.
    pub(super) fn plan(&self, sql: &str) -> Result<Arc<Plan>, SqlError> {
        if let Some(plan) = self.plans.read().get(sql) {
            return Ok(Arc::clone(plan));
        }
        let plan = Arc::new(plan(self, sql)?);
        let mut plans = self.plans.write();
        if plans.len() < PLANS_MAX {
            plans.insert(sql.to_owned(), Arc::clone(&plan));
        }
        Ok(plan)
    }

    /// How a statement would be run, in words: a line for each table in the order in which they are
    /// read, and what is done with the rows.
    ///
    /// # Errors
    /// See [`SqlError`].
    pub fn explain(&self, sql: &str) -> Result<String, SqlError> {
        Ok(self.plan(sql)?.explain())
    }
}

impl std::fmt::Debug for Catalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Catalog")
            .field("tables", &self.tables.keys())
            .field("plans", &self.plans.read().len())
            .finish_non_exhaustive()
    }
}

/// A table.
pub(super) struct Relation {
    pub(super) name: &'static str,
    pub(super) columns: Vec<Column>,
    /// The columns of its primary key, by place; none for rows that are numbered.
    pub(super) key: Vec<usize>,
    /// Its other columns.
    pub(super) rest: Vec<usize>,
    pub(super) tree: TreeHandle,
    pub(super) indexes: Vec<Index>,
    /// The number of the next row, where rows are numbered.
    next_row: AtomicU64,
}

/// A secondary index.
pub(super) struct Index {
    pub(super) name: &'static str,
    /// Its columns, by their place in the table.
    pub(super) columns: Vec<usize>,
    pub(super) is_unique: bool,
    pub(super) tree: TreeHandle,
}

impl Relation {
    fn open(store: &Store, table: &Table) -> Result<Self, SqlError> {
        let place = |name: &&'static str| {
            let unknown =
                || SqlError::UnknownColumn { name: format!("{}.{name}", table.name), at: 0 };
            table.columns.iter().position(|column| column.name == *name).ok_or_else(unknown)
        };
        let places =
            |names: &[&'static str]| names.iter().map(place).collect::<Result<Vec<_>, _>>();
        let tree =
            |name: &str| store.create_tree(name).map_err(|error| SqlError::Engine(error.into()));
        let key = places(&table.primary_key)?;
        let index = |index: &tidegate_workload::Index| {
            Ok(Index {
                name: index.name,
                columns: places(&index.columns)?,
                is_unique: index.unique,
                tree: tree(&format!("{}.{}", table.name, index.name))?,
            })
        };
        let relation = Relation {
            name: table.name,
            columns: table.columns.clone(),
            rest: (0..table.columns.len()).filter(|column| !key.contains(column)).collect(),
            key,
            tree: tree(table.name)?,
            indexes: table.indexes.iter().map(index).collect::<Result<_, SqlError>>()?,
            next_row: AtomicU64::new(0),
        };
        if relation.key.is_empty() {
            relation.next_row.store(relation.count_rows(store)?, Ordering::Relaxed);
        }
        Ok(relation)
    }

    /// The number behind the highest of its rows.
    fn count_rows(&self, store: &Store) -> Result<u64, SqlError> {
        let mut transaction = store.begin(TxnOptions::default());
        let all = (Bound::Unbounded, Bound::Unbounded);
        let mut cursor = transaction.cursor(&self.tree, all, Direction::Down)?;
        let Some((key, _)) = cursor.next(&mut transaction)? else { return Ok(0) };
        match read_key(key) {
            Some((Value::Int(number), _)) => Ok(number.cast_unsigned() + 1),
            _ => Err(self.damaged()),
        }
    }

    /// The key of a row: of its primary key, or a new number.
    pub(super) fn row_key(&self, row: &[Value<'_>]) -> Vec<u8> {
        let mut key = Vec::with_capacity(16);
        if self.key.is_empty() {
            let number = self.next_row.fetch_add(1, Ordering::Relaxed);
            append_key(&mut key, &Value::Int(number.cast_signed()));
        }
        append_cells(&mut key, &self.key, row);
        key
    }

    /// The bytes of a row's other columns.
    pub(super) fn row_value(&self, row: &[Value<'_>]) -> Vec<u8> {
        let cells = self.rest.iter().map(|&place| (&self.columns[place], &row[place]));
        let mut value = Vec::with_capacity(64);
        append_row(&mut value, cells);
        value
    }

    /// Whether a row has something in all columns that always hold something.
    pub(super) fn check_null(&self, row: &[Value<'_>]) -> Result<(), SqlError> {
        for (place, (column, value)) in self.columns.iter().zip(row).enumerate() {
            if *value == Value::Null && (!column.nullable || self.key.contains(&place)) {
                let (table, column) = (self.name.to_owned(), column.name.to_owned());
                return Err(SqlError::NotNull { table, column });
            }
        }
        Ok(())
    }

    pub(super) fn damaged(&self) -> SqlError {
        SqlError::Damaged { table: self.name.to_owned() }
    }
}

impl Index {
    /// The key and the value of its entry for a row with that key.
    pub(super) fn entry(&self, row: &[Value<'_>], row_key: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let mut key = Vec::with_capacity(32);
        append_cells(&mut key, &self.columns, row);
        if self.tells_apart(row) {
            return (key, row_key.to_vec());
        }
        key.extend_from_slice(row_key);
        (key, Vec::new())
    }

    /// Whether no other row may have this one's values.
    fn tells_apart(&self, row: &[Value<'_>]) -> bool {
        self.is_unique && self.columns.iter().all(|&place| row[place] != Value::Null)
    }

    /// The key of the row that an entry is of; `None` when it is no entry.
    pub(super) fn row_of<'e>(&self, key: &'e [u8], value: &'e [u8]) -> Option<&'e [u8]> {
        if value.is_empty() { skip_key(key, self.columns.len()) } else { Some(value) }
    }
}

fn append_cells(key: &mut Vec<u8>, places: &[usize], row: &[Value<'_>]) {
    for &place in places {
        append_key(key, &row[place]);
    }
}

//! Rows to add, as pairs of a column and a value, and rows that were found, as tuples or structs.

use tidegate_workload::{Rows, Value};

use super::{Store, StoreError};
use crate::experiment::Execution;

impl Store {
    /// Adds a row.
    pub(super) fn insert(
        &mut self,
        table: &str,
        row: &[(&str, Value<'_>)],
    ) -> Result<(), StoreError> {
        let (sql, values) = insertion(table, row);
        self.execute(&sql, &values).map(drop)
    }

    /// Adds a row. Returns the `id` that the database gave it.
    pub(super) fn add(
        &mut self,
        table: &str,
        row: &[(&str, Value<'_>)],
    ) -> Result<i64, StoreError> {
        let (sql, values) = insertion(table, row);
        self.row(&format!("{sql} RETURNING id"), &values)
    }

    /// Returns the `id` of the row with these values, which is added where there is none.
    pub(super) fn find_or_add(
        &mut self,
        table: &str,
        row: &[(&str, Value<'_>)],
    ) -> Result<i64, StoreError> {
        let is_it: Vec<String> = row.iter().map(|(column, _)| format!("{column} = ?")).collect();
        let values: Vec<Value<'_>> = row.iter().map(|(_, value)| value.clone()).collect();
        let find = format!("SELECT id FROM {table} WHERE {}", is_it.join(" AND "));
        match self.rows(&find, &values)?.first() {
            Some(&id) => Ok(id),
            None => self.add(table, row),
        }
    }

    /// Returns all that a statement finds.
    pub(super) fn rows<T: FromRow>(
        &mut self,
        sql: &str,
        values: &[Value<'_>],
    ) -> Result<Vec<T>, StoreError> {
        self.read(sql, values, T::read)
    }

    /// Returns what `read` makes of each row that a statement finds.
    pub(super) fn read<T>(
        &mut self,
        sql: &str,
        values: &[Value<'_>],
        mut read: impl FnMut(&mut Columns<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let rows = self.query(sql, values)?;
        (0..rows.len()).map(|row| read(&mut Columns { rows: &rows, row, next: 0 })).collect()
    }

    /// Returns the first of the rows that a statement finds.
    pub(super) fn row<T: FromRow>(
        &mut self,
        sql: &str,
        values: &[Value<'_>],
    ) -> Result<T, StoreError> {
        let missing = || StoreError::Damaged("a row is missing".to_owned());
        self.rows(sql, values)?.into_iter().next().ok_or_else(missing)
    }
}

fn insertion<'v>(table: &str, row: &[(&str, Value<'v>)]) -> (String, Vec<Value<'v>>) {
    let columns: Vec<&str> = row.iter().map(|&(column, _)| column).collect();
    let marks = vec!["?"; row.len()].join(", ");
    let sql = format!("INSERT INTO {table} ({}) VALUES ({marks})", columns.join(", "));
    (sql, row.iter().map(|(_, value)| value.clone()).collect())
}

/// A row that was found, read from left to right.
pub(super) struct Columns<'r> {
    rows: &'r Rows,
    row: usize,
    next: usize,
}

impl Columns<'_> {
    /// Reads the next columns.
    pub(super) fn next<T: FromRow>(&mut self) -> Result<T, StoreError> {
        T::read(self)
    }
}

/// What is made of the next columns of a row.
pub(super) trait FromRow: Sized {
    fn read(columns: &mut Columns<'_>) -> Result<Self, StoreError>;
}

/// What is made of one column.
macro_rules! column {
    ($($type:ty: $read:expr;)+) => {$(
        impl FromRow for $type {
            fn read(columns: &mut Columns<'_>) -> Result<Self, StoreError> {
                columns.next += 1;
                let read: fn(&Rows, usize, usize) -> Result<$type, StoreError> = $read;
                read(columns.rows, columns.row, columns.next - 1)
            }
        }
    )+};
}

column! {
    i64: int;
    u32: |rows, row, column| unsigned(int(rows, row, column)?);
    u64: |rows, row, column| unsigned(int(rows, row, column)?);
    usize: |rows, row, column| unsigned(int(rows, row, column)?);
    f64: float;
    bool: |rows, row, column| Ok(int(rows, row, column)? != 0);
    String: |rows, row, column| Ok(text(rows, row, column));
}

impl<T: FromRow> FromRow for Option<T> {
    fn read(columns: &mut Columns<'_>) -> Result<Self, StoreError> {
        if columns.rows.is_null(columns.row, columns.next) {
            columns.next += 1;
            return Ok(None);
        }
        T::read(columns).map(Some)
    }
}

macro_rules! tuples {
    () => {};
    ($first:ident $($rest:ident)*) => {
        impl<$first: FromRow, $($rest: FromRow),*> FromRow for ($first, $($rest,)*) {
            fn read(columns: &mut Columns<'_>) -> Result<Self, StoreError> {
                Ok(($first::read(columns)?, $($rest::read(columns)?,)*))
            }
        }
        tuples!($($rest)*);
    };
}

tuples!(A B C D E F G H);

/// A struct whose fields are columns, in this order.
macro_rules! from_row {
    ($name:ident { $($field:ident),+ $(,)? }) => {
        impl $crate::store::rows::FromRow for $name {
            fn read(
                columns: &mut $crate::store::rows::Columns<'_>,
            ) -> Result<Self, $crate::store::StoreError> {
                $(let $field = $crate::store::rows::FromRow::read(columns)?;)+
                Ok($name { $($field),+ })
            }
        }
    };
}
pub(super) use from_row;

from_row!(Execution { run, batchset, mpl, repetition });

pub(super) fn int(rows: &Rows, row: usize, column: usize) -> Result<i64, StoreError> {
    rows.int(row, column).ok_or_else(|| no_number(row, column))
}

fn unsigned<T: TryFrom<i64>>(number: i64) -> Result<T, StoreError> {
    T::try_from(number).map_err(|_| StoreError::Damaged(format!("{number} is out of range")))
}

pub(super) fn float(rows: &Rows, row: usize, column: usize) -> Result<f64, StoreError> {
    let whole = rows.int(row, column).map(|number| number as f64);
    let number = rows.text(row, column).and_then(|text| text.parse().ok()).or(whole);
    number.ok_or_else(|| no_number(row, column))
}

fn no_number(row: usize, column: usize) -> StoreError {
    StoreError::Damaged(format!("column {column} of row {row} is no number"))
}

pub(super) fn text(rows: &Rows, row: usize, column: usize) -> String {
    match rows.text(row, column) {
        Some(text) => text.to_owned(),
        None => rows.int(row, column).map_or_else(String::new, |number| number.to_string()),
    }
}

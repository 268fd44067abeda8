//! The two tables, their rows, and whether those are all still there.

use super::options::Options;
use crate::workload::{Condition, Depth};
use crate::{Column, Failure, Random, Session, Statement, Table, Type, Value};

pub(super) const TABLES: [&str; 2] = ["thrash_1", "thrash_2"];

/// The columns that are read and set; the integers come first.
pub(super) const COLUMNS: [&str; 6] = ["id2", "id3", "id4", "id5", "str1", "str2"];

/// How many of the columns are integers.
const INTEGERS: usize = 4;

const STRING_LEN: u16 = 90;

/// Where the sequences of the rows begin: any number would do.
const ROWS_SEED: u64 = 2_017;

/// The tables as they are made.
pub(super) fn tables(options: &Options) -> Vec<Table> {
    let table = |name| {
        let mut columns = vec![Column::new("id1", Type::Int)];
        columns.extend(COLUMNS.iter().enumerate().map(|(place, column)| {
            if place < INTEGERS {
                Column::new(column, Type::Int)
            } else {
                Column::nullable(column, Type::Varchar(STRING_LEN))
            }
        }));
        let primary_key = if options.primary_key { vec!["id1"] } else { Vec::new() };
        Table { name, columns, primary_key, indexes: Vec::new() }
    };
    TABLES.map(table).into()
}

/// A row at the start.
pub(super) fn row(table: usize, id1: u32) -> Vec<Value<'static>> {
    let stream = (table as u64) << 32 | u64::from(id1);
    row_of(i64::from(id1), &mut Random::new(ROWS_SEED, stream))
}

pub(super) fn row_of(id1: i64, draw: &mut Random) -> Vec<Value<'static>> {
    let mut row = vec![id1.into()];
    row.extend((0..COLUMNS.len()).map(|column| value(column, draw)));
    row
}

/// A drawn value of a column.
pub(super) fn value(column: usize, draw: &mut Random) -> Value<'static> {
    if column < INTEGERS {
        return draw.between(0, i32::MAX).into();
    }
    let letter = |_| char::from(b"abcdefghijklmnopqrstuvwxyz"[draw.index(26)]);
    (0..STRING_LEN).map(letter).collect::<String>().into()
}

/// The names of the conditions for each table.
const CONDITIONS: [[&str; 3]; 2] = [
    ["thrash_1: number of rows", "thrash_1: sum of id1", "thrash_1: no id1 twice"],
    ["thrash_2: number of rows", "thrash_2: sum of id1", "thrash_2: no id1 twice"],
];

pub(super) async fn check(
    rows: u32,
    session: &Session<'_>,
    depth: Depth,
) -> Result<Vec<Condition>, Failure> {
    let mut conditions = Vec::new();
    for (table, names) in TABLES.iter().zip(CONDITIONS) {
        conditions.extend(check_table(table, names, rows.into(), session).await?);
        if depth == Depth::Full {
            conditions.push(check_twice(table, names[2], session).await?);
        }
    }
    Ok(conditions)
}

async fn check_table(
    table: &str,
    names: [&'static str; 3],
    rows: i64,
    session: &Session<'_>,
) -> Result<[Condition; 2], Failure> {
    let sql = format!("SELECT COUNT(*), SUM(id1) FROM {table} WHERE id1 < ?");
    let found = session.query(&Statement::written(sql), &[rows.into()]).await?;
    let (count, sum) = (found.sum(0)?, found.sum(1)?);
    Ok([
        compare(names[0], "rows below it", rows, count),
        compare(names[1], "as sum of id1", rows * (rows - 1) / 2, sum),
    ])
}

async fn check_twice(
    table: &str,
    name: &'static str,
    session: &Session<'_>,
) -> Result<Condition, Failure> {
    let sql = format!("SELECT COUNT(*), COUNT(DISTINCT id1) FROM {table}");
    let found = session.query(&Statement::written(sql), &[]).await?;
    let (count, distinct) = (found.sum(0)?, found.sum(1)?);
    Ok(compare(name, "values of id1", count, distinct))
}

fn compare(name: &'static str, what: &str, expected: i64, found: i64) -> Condition {
    let violation = (found != expected).then(|| format!("{found} {what} instead of {expected}"));
    Condition { name, violation }
}

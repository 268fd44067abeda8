//! SQLite, within our own process: a database file, and connections to it.
//!
//! There is no server. Each connection belongs to one thread at a time, a statement runs on that
//! thread, and one transaction at a time may write. Transactions begin with `BEGIN IMMEDIATE`: one
//! that reads before it writes would otherwise find at its first write that another was faster.

use std::path::Path;
use std::time::Duration;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{ErrorCode, ToSql};
use tidegate_workload::{
    Conflict, Connection, Dialect, Failure, Reply, Rows, Statement, Value, Wants,
};

use crate::connection::Transactional;

/// Statements that a connection keeps prepared.
const PREPARED: usize = 256;

/// A connection to a database file.
#[derive(Debug)]
pub struct SqliteConnection {
    connection: rusqlite::Connection,
}

impl SqliteConnection {
    /// Opens a database file, or makes it; a transaction waits so long for its turn to write.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn open(path: &Path, patience: Duration) -> Result<Self, Failure> {
        let connection = rusqlite::Connection::open(path).map_err(failure)?;
        connection.busy_timeout(patience).map_err(failure)?;
        connection.set_prepared_statement_cache_capacity(PREPARED);
        Ok(SqliteConnection { connection })
    }

    /// Runs statements that define or set something, separated by semicolons.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn batch(&self, sql: &str) -> Result<(), Failure> {
        self.connection.execute_batch(sql).map_err(failure)
    }
}

impl Connection for SqliteConnection {
    fn run(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
        wants: Wants,
    ) -> Result<Reply, Failure> {
        run(&self.connection, &statement.sql(Dialect::Sqlite), values, wants).map_err(failure)
    }
}

impl Transactional for SqliteConnection {
    fn begin(&mut self) -> Result<(), Failure> {
        self.batch("BEGIN IMMEDIATE")
    }

    fn commit(&mut self) -> Result<(), Failure> {
        self.batch("COMMIT")
    }

    fn rollback(&mut self) -> Result<(), Failure> {
        if self.connection.is_autocommit() { Ok(()) } else { self.batch("ROLLBACK") }
    }

    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }
}

fn run(
    connection: &rusqlite::Connection,
    sql: &str,
    values: &[Value<'_>],
    wants: Wants,
) -> rusqlite::Result<Reply> {
    let mut statement = connection.prepare_cached(sql)?;
    for (place, value) in values.iter().enumerate() {
        statement.raw_bind_parameter(place + 1, Bound(value))?;
    }
    let width = statement.column_count();
    if width == 0 {
        return Ok(Reply { count: statement.raw_execute()? as u64, ..Reply::default() });
    }
    let mut reply = Reply { rows: Rows::new(width), count: 0 };
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        reply.count += 1;
        if wants == Wants::Rows {
            for column in 0..width {
                push(&mut reply.rows, row.get_ref(column)?);
            }
        }
    }
    Ok(reply)
}

struct Bound<'v>(&'v Value<'v>);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            Value::Null => ValueRef::Null,
            Value::Int(number) => ValueRef::Integer(*number),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}

fn push(rows: &mut Rows, value: ValueRef<'_>) {
    match value {
        ValueRef::Null => rows.push(&Value::Null),
        ValueRef::Integer(number) => rows.push(&Value::Int(number)),
        ValueRef::Real(number) => rows.push_text(number.to_string().as_bytes()),
        ValueRef::Text(text) | ValueRef::Blob(text) => rows.push_text(text),
    }
}

/// What an error means for the transaction.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn failure(error: rusqlite::Error) -> Failure {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            Failure::Conflict(Conflict::LockTimeout)
        }
        Some(ErrorCode::OperationInterrupted) => Failure::Stopped,
        Some(code) => Failure::Refused { code: format!("{code:?}"), message: error.to_string() },
        None => Failure::Refused { code: String::new(), message: error.to_string() },
    }
}

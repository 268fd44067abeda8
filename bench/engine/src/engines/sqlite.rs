//! `SQLite`, by the crate rusqlite.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use rusqlite::{CachedStatement, Connection};
use tidegate_engine::Isolation;

use super::{Engine, Memory, Operation, Session, missing};
use crate::{Result, rows};

const SELECT: &str = "SELECT v FROM rows WHERE k = ?1";
const SCAN: &str = "SELECT k, v FROM rows WHERE k >= ?1 ORDER BY k LIMIT ?2";
const INSERT: &str = "INSERT INTO rows (k, v) VALUES (?1, ?2)";
const UPDATE: &str = "UPDATE rows SET v = ?2 WHERE k = ?1";

/// A database with one table, and the connection that writes.
pub(crate) struct Sqlite {
    path: PathBuf,
    cache_bytes: usize,
    writer: Mutex<Connection>,
}

impl Sqlite {
    /// Makes one in an empty directory.
    pub(crate) fn create(directory: &Path, memory: Memory) -> Result<Sqlite> {
        let path = directory.join("rows.sqlite");
        let writer = connect(&path, memory.cache_bytes)?;
        writer.execute_batch("CREATE TABLE rows (k INTEGER PRIMARY KEY, v BLOB NOT NULL)")?;
        Ok(Sqlite { path, cache_bytes: memory.cache_bytes, writer: Mutex::new(writer) })
    }

    fn writer(&self) -> Result<MutexGuard<'_, Connection>> {
        Ok(self.writer.lock().map_err(|_| "a thread that was writing has panicked")?)
    }
}

/// A connection: a write-ahead log that is synced at each commit, so much memory for pages, and no
/// map, with which the system's cache would stand in for that memory.
fn connect(path: &Path, cache_bytes: usize) -> Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(Duration::from_secs(60))?;
    let kib = cache_bytes / 1024;
    connection.execute_batch(&format!(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -{kib}; \
         PRAGMA mmap_size = 0;"
    ))?;
    Ok(connection)
}

fn run(connection: &Connection, sql: &str) -> Result<()> {
    connection.prepare_cached(sql)?.execute(())?;
    Ok(())
}

fn select(statement: &mut CachedStatement<'_>, key: u64) -> Result<u64> {
    let mut found = statement.query((key.cast_signed(),))?;
    let row = found.next()?.ok_or_else(|| missing(key))?;
    Ok(rows::sum(row.get_ref(0)?.as_blob()?))
}

impl Engine for Sqlite {
    fn session(&self, _: Isolation) -> Result<Box<dyn Session + '_>> {
        let reader = connect(&self.path, self.cache_bytes)?;
        Ok(Box::new(Thread { engine: self, reader }))
    }

    fn settle(&self) -> Result<()> {
        Ok(self.writer()?.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?)
    }
}

struct Thread<'e> {
    engine: &'e Sqlite,
    reader: Connection,
}

impl Session for Thread<'_> {
    fn append(&mut self, keys: Range<u64>) -> Result<()> {
        let writer = self.engine.writer()?;
        run(&writer, "BEGIN IMMEDIATE")?;
        let mut insert = writer.prepare_cached(INSERT)?;
        for key in keys {
            insert.execute((key.cast_signed(), &rows::value(key, 0)[..]))?;
        }
        run(&writer, "COMMIT")
    }

    fn read(&mut self, keys: &[u64]) -> Result<u64> {
        run(&self.reader, "BEGIN")?;
        let mut statement = self.reader.prepare_cached(SELECT)?;
        let mut sum: u64 = 0;
        for &key in keys {
            sum = sum.wrapping_add(select(&mut statement, key)?);
        }
        run(&self.reader, "COMMIT")?;
        Ok(sum)
    }

    fn scan(&mut self, from: u64, rows: u64) -> Result<u64> {
        let mut statement = self.reader.prepare_cached(SCAN)?;
        let limit = i64::try_from(rows).unwrap_or(i64::MAX);
        let mut found = statement.query((from.cast_signed(), limit))?;
        let mut sum: u64 = 0;
        while let Some(row) = found.next()? {
            let (key, value) = (row.get_ref(0)?.as_i64()?, row.get_ref(1)?.as_blob()?);
            sum = sum.wrapping_add(key.cast_unsigned()).wrapping_add(rows::sum(value));
        }
        Ok(sum)
    }

    fn write(&mut self, operations: &[Operation]) -> Result<u64> {
        let writer = self.engine.writer()?;
        run(&writer, "BEGIN IMMEDIATE")?;
        let mut statement = writer.prepare_cached(SELECT)?;
        let mut update = writer.prepare_cached(UPDATE)?;
        let mut sum: u64 = 0;
        for &operation in operations {
            match operation {
                Operation::Read(key) => sum = sum.wrapping_add(select(&mut statement, key)?),
                Operation::Replace(key, version) => {
                    update.execute((key.cast_signed(), &rows::value(key, version)[..]))?;
                }
            }
        }
        run(&writer, "COMMIT")?;
        Ok(sum)
    }
}

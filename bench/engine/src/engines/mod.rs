//! The four engines behind one interface, each used as its own documentation advises.
//!
//! A call of a [`Session`] is one transaction of many rows, so that what the interface itself costs
//! is nothing beside it. What each engine is told, and why that is its best:
//!
//! * **Tidegate**: keys are 8 bytes in big-endian order, pages of 8 KiB; commits are
//!   `Durability::Synced`. Reads are serializable, with locks on keys, unless a measurement says
//!   read committed.
//! * **LMDB**: the same keys, the default comparison; the default synchronous commits. The load
//!   appends (`MDB_APPEND`). A value is read where it lies in the map.
//! * **redb**: keys are its integers of 64 bits; `Durability::Immediate`.
//! * **`SQLite`**: the key is the row id (`INTEGER PRIMARY KEY`), its fastest; a log (WAL) with
//!   `synchronous = FULL`, prepared statements. Each reading thread has its connection. All writes
//!   of the process go through one connection behind a mutex, with `BEGIN IMMEDIATE`: connections
//!   for each thread would drop their caches whenever another one has written, and would sleep in
//!   `busy_timeout`, long or short by chance, while another one writes.

mod lmdb;
mod redb;
mod sqlite;
mod tidegate;

use std::ops::Range;
use std::path::Path;

use tidegate_engine::Isolation;

use crate::Result;

pub(crate) use tidegate::Tidegate;

/// Which engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Ours.
    Tidegate,
    /// LMDB, by the crate heed.
    Lmdb,
    /// redb.
    Redb,
    /// `SQLite`, by the crate rusqlite.
    Sqlite,
}

impl Kind {
    /// All of them, in the order of the tables.
    pub(crate) const ALL: [Kind; 4] = [Kind::Tidegate, Kind::Lmdb, Kind::Redb, Kind::Sqlite];

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Tidegate => "Tidegate",
            Kind::Lmdb => "LMDB",
            Kind::Redb => "redb",
            Kind::Sqlite => "SQLite",
        }
    }

    /// Makes an empty database in a directory that is there and empty.
    pub(crate) fn create(self, directory: &Path, memory: Memory) -> Result<Box<dyn Engine>> {
        Ok(match self {
            Kind::Tidegate => Box::new(Tidegate::create(directory, memory)?),
            Kind::Lmdb => Box::new(lmdb::Lmdb::create(directory, memory)?),
            Kind::Redb => Box::new(redb::Redb::create(directory, memory)?),
            Kind::Sqlite => Box::new(sqlite::Sqlite::create(directory, memory)?),
        })
    }
}

/// How much memory an engine may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// What it may keep of its pages, in bytes. LMDB has no such setting.
    pub(crate) cache_bytes: usize,
    /// What the data will have at most, in bytes: LMDB's map.
    pub(crate) data_bytes: usize,
}

/// What a transaction does with a row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    /// Reads the row of this key.
    Read(u64),
    /// Gives the row of this key the value of this version.
    Replace(u64, u64),
}

/// A database that is open.
pub(crate) trait Engine: Sync {
    /// What a thread works by. The isolation is that of reads; the peers have snapshots whatever
    /// it says.
    fn session(&self, isolation: Isolation) -> Result<Box<dyn Session + '_>>;

    /// Writes everything to its place, so that the log has nothing left to do.
    fn settle(&self) -> Result<()>;
}

/// What a thread works by. Every call is a transaction, and one that writes is durable when the
/// call returns.
pub(crate) trait Session {
    /// Adds the rows of these keys, which are above all keys there are.
    fn append(&mut self, keys: Range<u64>) -> Result<()>;

    /// Reads rows that are there; the sum of their values.
    fn read(&mut self, keys: &[u64]) -> Result<u64>;

    /// Reads up to so many rows from a key on; the sum of their keys and values.
    fn scan(&mut self, from: u64, rows: u64) -> Result<u64>;

    /// Reads and replaces rows that are there; the sum of the values read.
    fn write(&mut self, operations: &[Operation]) -> Result<u64>;
}

/// The error for a row that was not found.
fn missing(key: u64) -> crate::Failure {
    format!("the row of key {key} is not there: the engine has lost it").into()
}

//! The result store: everything an experiment was, saw and found, in SQLite or PostgreSQL.
//!
//! # Mechanism
//! The schema ([`schema`]) is the same in both. Rows are added and never changed; triggers refuse
//! it. What is *planned* is written before the first execution, down to each execution. What was
//! *tried* is an `attempt`, written before it begins; what came of it is a `measurement` or a
//! `failure`, written in one transaction when it is over. An execution is done when it has a
//! measurement that counts, and it can have only one: a unique key says so. So whatever kills the
//! laboratory, at whatever moment, the store says exactly what is left to do.
//!
//! All that counts of a batchset was measured by one host. A host's measurements of a batchset are
//! a `series`. A host that goes on with another's unfinished batchset begins a series of its own,
//! with all executions, and only the last series counts. `measurement` shows what counts, and
//! `measurement_taken` keeps the rest, too.
//!
//! A store is reached through the same connections as the databases under test
//! ([`Transactional`]), with statements in the SQL that both share.
//!
//! # Limits
//! One laboratory writes to a SQLite store at a time; SQLite makes others wait. One measures into
//! it at a time; others are refused ([`Store::hold_host`]).

mod analysis;
mod course;
mod export;
mod hold;
mod moments;
mod planned;
mod read;
mod rows;
pub mod schema;
mod turn;
mod write;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use thiserror::Error;
use tidegate_subject::client::{BlockingClient, ClientError};
use tidegate_subject::connection::Transactional;
use tidegate_subject::sqlite::SqliteConnection;
use tidegate_workload::{Failure, Rows, Statement, Value, Wants};

use crate::Cause;
use crate::experiment::workload::WorkloadError;

pub(crate) use moments::Kept;
use moments::Moments;

pub use course::{
    ClassSeen, ConflictSeen, ExecutionCourse, LimitSeen, LockingSeen, StoreSeen, TreeSeen,
};
pub use export::{Format, UnknownFormat};
pub use read::{BatchsetRow, Curve, ExperimentRow, Point, RunRow};
pub use write::Tried;

/// The condition of a check that could not be made; its violation is the reason. Whether any
/// condition holds is then not known.
pub(crate) const NOT_CHECKED: &str = "not checked";

/// How long a write waits for another laboratory.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often it asks again where the database does not wait by itself.
const POLL: Duration = Duration::from_millis(5);

/// How long a store on another host may take for a statement before it counts as lost.
const SILENCE: Duration = Duration::from_secs(300);

/// Why the store does not do what it was told.
#[derive(Debug, Error)]
pub enum StoreError {
    #[error("cannot open the result store {place}: {source}")]
    Open {
        /// The file, or the URL without its password.
        place: String,
        source: Cause,
    },
    #[error(
        "there is no result store {}: `tidegate lab run` makes one; --store names another",
        .0.display()
    )]
    NotThere(PathBuf),
    #[error(
        "the result store has schema version {found}, and this program knows up to {known}: \
         use the newer program that wrote it"
    )]
    Newer { found: usize, known: usize },
    #[error("the result store failed: {0}; what was written before is safe")]
    Database(#[from] Failure),
    #[error("the result store has no {what} {id}; `tidegate lab list` shows what it has")]
    Missing { what: &'static str, id: i64 },
    #[error(
        "experiment {id} was planned by Tidegate {then}, and Tidegate {now} makes another plan of \
         the same file: {what}. Use the program that planned it, or run the file anew"
    )]
    Replanned { id: i64, what: String, then: String, now: String },
    #[error(
        "the result store is taken by {holder}: one laboratory measures into a file at a time. \
         Wait for it or stop it"
    )]
    Taken { holder: String },
    #[error(
        "host {host} is taken by {holder}: one host measures one thing at a time. Wait for it or \
         stop it; a worker on another machine of the same name needs a name of its own: --host"
    )]
    Held { host: String, holder: String },
    #[error("the result store is damaged: {0}")]
    Damaged(String),
    #[error("the result store is damaged: {what}: {source}")]
    Json { what: &'static str, source: serde_json::Error },
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    #[error("cannot write {path}: {source}", path = .path.display())]
    Write { path: PathBuf, source: Cause },
}

/// An open store, in the newest version.
pub struct Store {
    connection: Box<dyn Transactional>,
    /// Where records of transactions go: beside a file, or where the program runs. No other store
    /// has a directory of this name.
    transactions: PathBuf,
    /// What is held of a store in a file.
    lock: Option<hold::FileLock>,
    /// The host that this laboratory is on.
    host: String,
    /// The key of the host that is held of a store on PostgreSQL.
    held_host: Option<String>,
    /// The time that is written.
    moments: Moments,
}

impl Store {
    /// Opens the store at a place: a URL that begins with `postgres://`, or else a file of SQLite.
    /// One that is not there is made; an older one is brought to this program's version.
    pub fn open(place: &str) -> Result<Self, StoreError> {
        if is_postgres(place) {
            Self::open_postgres(place)
        } else {
            Self::open_file(Path::new(place))
        }
    }

    /// The same of one that is there: who only looks at it makes none.
    pub fn open_existing(place: &str) -> Result<Self, StoreError> {
        // A file that cannot be looked for is for SQLite to refuse, with the system's reason.
        if !is_postgres(place) && matches!(Path::new(place).try_exists(), Ok(false)) {
            return Err(StoreError::NotThere(place.into()));
        }
        Self::open(place)
    }

    /// Opens a file of SQLite.
    pub fn open_file(path: &Path) -> Result<Self, StoreError> {
        let failed = |failure: Failure| StoreError::Open {
            place: path.display().to_string(),
            source: failure.into(),
        };
        let connection = SqliteConnection::open(path, PATIENCE).map_err(failed)?;
        write_ahead(&connection).map_err(failed)?;
        connection.batch("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON").map_err(failed)?;
        let mut store = Self::migrated(Box::new(connection))?;
        store.transactions = with_suffix(path, ".transactions");
        store.lock = Some(hold::FileLock::of(path));
        Ok(store)
    }

    fn open_postgres(url: &str) -> Result<Self, StoreError> {
        let failed = |error: ClientError| StoreError::Open {
            // The error names the server without the password.
            place: "on PostgreSQL".to_owned(),
            source: error.into(),
        };
        let connection = BlockingClient::connect(url).map_err(failed)?;
        connection.set_timeout(Some(SILENCE)).map_err(failed)?;
        let mut store = Self::migrated(Box::new(connection))?;
        let database: String = store.row("SELECT current_database()", &[])?;
        store.transactions = transactions_of(&database);
        Ok(store)
    }

    fn migrated(connection: Box<dyn Transactional>) -> Result<Self, StoreError> {
        let mut store = Store {
            connection,
            transactions: PathBuf::new(),
            lock: None,
            host: hold::system_host(),
            held_host: None,
            moments: Moments::CLOCK,
        };
        store.hold_schema()?;
        store.execute(schema::VERSIONS, &[])?;
        // Looking at a store in order does not wait for a writer.
        while store.version()? < schema::VERSION {
            store.atomically(Store::step)?;
        }
        store.release_schema()?;
        Ok(store)
    }

    /// Takes the next step, if there is one left. Of a store in a file nothing but this transaction
    /// keeps others from taking it first, so the version is asked for in it.
    fn step(&mut self) -> Result<(), StoreError> {
        let version = self.version()?;
        let Some(statements) = schema::step(version, self.connection.dialect()) else {
            return Ok(());
        };
        statements.iter().try_for_each(|sql| self.execute(sql, &[]).map(drop))?;
        let values = [count(version + 1)];
        self.execute("INSERT INTO schema_version (version) VALUES (?)", &values)?;
        Ok(())
    }

    /// The store's version, which this program knows.
    fn version(&mut self) -> Result<usize, StoreError> {
        let newest: Option<usize> = self.row("SELECT MAX(version) FROM schema_version", &[])?;
        let version = newest.unwrap_or(0);
        if version > schema::VERSION {
            return Err(StoreError::Newer { found: version, known: schema::VERSION });
        }
        Ok(version)
    }

    /// The file for a record of an attempt's transactions.
    pub(crate) fn transactions(&self, experiment: i64, tried: Tried) -> PathBuf {
        let directory = self.transactions.join(format!("experiment-{experiment}"));
        directory.join(format!("attempt-{}.parquet", tried.number()))
    }

    fn atomically<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.connection.begin()?;
        let done = work(self);
        match done {
            Ok(value) => {
                self.connection.commit()?;
                Ok(value)
            }
            Err(error) => {
                // The first error says more than what it leads to.
                let _ = self.connection.rollback();
                Err(error)
            }
        }
    }

    fn execute(&mut self, sql: &str, values: &[Value<'_>]) -> Result<u64, StoreError> {
        let statement = Statement::written(sql.to_owned());
        Ok(self.connection.run(&statement, values, Wants::Count)?.count)
    }

    fn query(&mut self, sql: &str, values: &[Value<'_>]) -> Result<Rows, StoreError> {
        let statement = Statement::written(sql.to_owned());
        Ok(self.connection.run(&statement, values, Wants::Rows)?.rows)
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("dialect", &self.connection.dialect()).finish_non_exhaustive()
    }
}

impl StoreError {
    /// Whether the connection is gone, so that another one may do better.
    pub fn is_lost(&self) -> bool {
        match self {
            StoreError::Open { .. } | StoreError::Database(Failure::Lost(_)) => true,
            // Classes of SQLSTATE: a connection's end, and the server's.
            StoreError::Database(Failure::Refused { code, .. }) => {
                code.starts_with("08") || code.starts_with("57P")
            }
            _ => false,
        }
    }
}

/// Switches a file to a write-ahead log, where it has none. SQLite waits for nobody here: of two
/// who make a new store at the same time, one is refused and has to ask again.
fn write_ahead(connection: &SqliteConnection) -> Result<(), Failure> {
    let until = Instant::now() + PATIENCE;
    loop {
        match connection.batch("PRAGMA journal_mode = WAL") {
            Err(Failure::Conflict(_)) if Instant::now() < until => std::thread::sleep(POLL),
            switched => return switched,
        }
    }
}

/// Whether a place is a URL of PostgreSQL, and not a file.
pub fn is_postgres(place: &str) -> bool {
    ["postgres://", "postgresql://"].iter().any(|scheme| place.starts_with(scheme))
}

/// The path of a file that belongs to another, whose whole name it keeps: those of `a.db` and
/// `a.sqlite` are two.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

/// Where records of transactions go for a database of PostgreSQL, whose name may hold anything.
fn transactions_of(database: &str) -> PathBuf {
    let name = database.replace('%', "%25").replace('/', "%2F");
    PathBuf::from(format!("postgres-{name}.transactions"))
}

/// A number with a point as a value: the databases read its digits.
fn real(number: f64) -> Value<'static> {
    number.to_string().into()
}

fn count<N: TryInto<i64>>(number: N) -> Value<'static>
where
    N::Error: std::fmt::Debug,
{
    Value::Int(number.try_into().expect("what is counted is below 2^63"))
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).expect("no time here is 292,000 years long")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_in_one_directory_share_no_records() {
        let file = |name: &str| with_suffix(Path::new(name), ".transactions");
        let mut all = ["a.db", "a.sqlite", "a", "d/a.db"].map(file).to_vec();
        all.extend(["a", "a/b", "a%2Fb", "../b"].map(transactions_of));
        for (place, one) in all.iter().enumerate() {
            assert_eq!(all.iter().position(|other| other == one), Some(place), "{one:?}");
        }
        assert_eq!(transactions_of("../b"), Path::new("postgres-..%2Fb.transactions"));
    }
}

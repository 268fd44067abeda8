//! The database of an experiment, whichever it is: started, filled, levelled, described.

mod existing;
mod place;
mod settings;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde::Serialize;
use thiserror::Error;
use tidegate_subject::client::{BlockingClient, ClientError};
use tidegate_subject::connection::{Transactional, load, remove};
use tidegate_subject::embedded::{self, Embedded};
use tidegate_subject::firebird::Firebird;
use tidegate_subject::mariadb::MariaDb;
use tidegate_subject::postgres::{Postgres, PostgresError};
use tidegate_subject::sqlite::Sqlite;
use tidegate_workload::pgbench::Sums;
use tidegate_workload::workload::Workload;
use tidegate_workload::{Session, finish};

use super::RigError;

pub(crate) use existing::Existing;
pub use place::{Place, PlaceError};
pub use settings::{SettingError, Settings};

/// A kind of database that experiments can be made on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DatabaseKind {
    /// A private PostgreSQL server, with a proxy before it.
    Postgres,
    /// The engine that Tidegate carries with it, behind its own server.
    Embedded,
}

impl DatabaseKind {
    const ALL: [DatabaseKind; 2] = [DatabaseKind::Postgres, DatabaseKind::Embedded];

    /// The name on command lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            DatabaseKind::Postgres => "postgres",
            DatabaseKind::Embedded => "embedded",
        }
    }

    /// What it is called in text.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            DatabaseKind::Postgres => "PostgreSQL",
            DatabaseKind::Embedded => "the embedded engine",
        }
    }
}

impl fmt::Display for DatabaseKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no database has.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no database is called `{name}`: use postgres or embedded")]
pub struct UnknownDatabase {
    /// What was asked for.
    pub name: String,
}

impl FromStr for DatabaseKind {
    type Err = UnknownDatabase;

    fn from_str(text: &str) -> Result<Self, UnknownDatabase> {
        let known = DatabaseKind::ALL.into_iter().find(|kind| kind.name() == text);
        known.ok_or_else(|| UnknownDatabase { name: text.to_owned() })
    }
}

/// The database to make an experiment on, and why that one.
#[derive(Clone, Debug)]
pub struct DatabaseChoice {
    /// Which.
    pub kind: DatabaseKind,
    /// Why, as a sentence for people.
    pub reason: String,
}

impl DatabaseChoice {
    /// The one asked for; else PostgreSQL where it can be started, else the embedded engine.
    #[must_use]
    pub fn new(asked: Option<DatabaseKind>) -> Self {
        if let Some(kind) = asked {
            let reason = format!("On {}, as asked for", kind.title());
            return DatabaseChoice { kind, reason };
        }
        Self::by_program(Postgres::find())
    }

    /// The one to take if this is where PostgreSQL's program is, or why there is none.
    fn by_program(program: Result<PathBuf, PostgresError>) -> Self {
        let (kind, why) = match program {
            Ok(program) => (DatabaseKind::Postgres, format!("found as {}", program.display())),
            Err(error) => {
                (DatabaseKind::Embedded, format!("because PostgreSQL cannot be run here: {error}"))
            }
        };
        let reason = format!("On {}, {why}", kind.title());
        DatabaseChoice { kind, reason }
    }
}

/// What an experiment ran on, for its report.
#[derive(Clone, Debug, Serialize)]
pub struct DatabaseDescription {
    /// Which database.
    pub database: DatabaseKind,
    /// Its version.
    pub database_version: String,
    /// Its settings that are not its defaults, as in force.
    pub database_settings: Vec<(String, String)>,
}

/// A database of our own; it is gone, with the server where that is ours, when this is dropped.
pub(crate) enum Database {
    Postgres(Postgres),
    MariaDb(MariaDb),
    Sqlite(Sqlite),
    Firebird(Box<Firebird>),
    Embedded(Embedded, embedded::Options),
    /// A database of our own on a server that somebody else runs.
    Existing(Existing),
}

impl Database {
    /// Starts an empty one with the settings of the demonstration and the benchmark.
    pub(crate) fn start(kind: DatabaseKind) -> Result<Self, RigError> {
        match kind {
            DatabaseKind::Postgres => Self::postgres(&Settings::default()),
            DatabaseKind::Embedded => Self::embedded(&Settings::default()),
        }
    }

    pub(crate) fn postgres(settings: &Settings) -> Result<Self, RigError> {
        Ok(Database::Postgres(Postgres::start(settings.postgres()?)?))
    }

    pub(crate) fn mariadb(settings: &Settings) -> Result<Self, RigError> {
        Ok(Database::MariaDb(MariaDb::start(settings.mariadb()?)?))
    }

    pub(crate) fn sqlite(settings: &Settings) -> Result<Self, RigError> {
        Ok(Database::Sqlite(Sqlite::start(settings.sqlite()?)?))
    }

    pub(crate) fn firebird(settings: &Settings) -> Result<Self, RigError> {
        Ok(Database::Firebird(Box::new(Firebird::start(settings.firebird()?)?)))
    }

    pub(crate) fn embedded(settings: &Settings) -> Result<Self, RigError> {
        let options = settings.embedded()?;
        Ok(Database::Embedded(Embedded::start(options)?, options))
    }

    /// Makes the tables of workloads anew; those that several have in common once. The embedded
    /// engine has these alone afterwards.
    pub(crate) fn load(
        &mut self,
        workloads: &[Arc<dyn Workload>],
        cancel: &AtomicBool,
    ) -> Result<(), RigError> {
        if let Database::Embedded(store, options) = self {
            *store = Embedded::start(*options)?;
            for workload in distinct(workloads) {
                store.load(&**workload, cancel)?;
            }
            return Ok(());
        }
        let mut connection = self.connect()?;
        for workload in distinct(workloads) {
            remove(&mut *connection, &**workload)?;
            load(&mut *connection, &**workload, cancel, &mut |_| {})?;
        }
        drop(connection);
        if let Some(client) = self.postgres_client() {
            let mut client = client?;
            for table in workloads.iter().flat_map(|workload| workload.tables()) {
                client.query(&format!("VACUUM ANALYZE {}", table.name))?;
            }
        }
        Ok(())
    }

    /// Gives two runs on the same tables the same start: no dead versions of rows, no checkpoint
    /// left over from the run before.
    pub(crate) fn level(&self, workloads: &[Arc<dyn Workload>]) -> Result<(), RigError> {
        if let Some(client) = self.postgres_client() {
            let mut client = client?;
            for table in workloads.iter().flat_map(|workload| workload.tables()) {
                client.query(&format!("VACUUM {}", table.name))?;
            }
        }
        match self {
            Database::Postgres(server) => {
                server.connect()?.query("CHECKPOINT")?;
                Ok(())
            }
            Database::Existing(existing) => existing.level(),
            Database::MariaDb(server) => Ok(server.level()?),
            Database::Sqlite(file) => Ok(file.level()?),
            Database::Firebird(server) => Ok(server.level()?),
            Database::Embedded(store, _) => Ok(store.level()?),
        }
    }

    /// Ends what clients have left behind that went away in the middle of a statement, so that the
    /// next run finds nobody.
    pub(crate) fn settle(&self) -> Result<(), RigError> {
        match self {
            Database::Postgres(server) => {
                let others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                              WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
                end_others(|| Ok(server.connect()?.query(others)?.len()))
            }
            Database::MariaDb(server) => {
                end_others(|| {
                    let mut client = server.connect()?;
                    let others = "SELECT id FROM information_schema.processlist \
                                  WHERE id <> CONNECTION_ID() AND command <> 'Daemon' \
                                  AND user <> 'system user'";
                    let ids = client.query(others)?;
                    for id in ids.iter().flatten().flatten() {
                        // One that has ended meanwhile is no error to us.
                        let _ = client.query(&format!("KILL {id}"));
                    }
                    Ok(ids.len())
                })
            }
            Database::Existing(Existing::Firebird(guest)) => {
                end_others(after_a_while(|| Ok(guest.connectors()), || Ok(guest.end_others()?)))
            }
            Database::Existing(existing) => end_others(|| existing.end_others()),
            Database::Firebird(server) => {
                end_others(after_a_while(|| Ok(server.connectors()), || Ok(server.end_others()?)))
            }
            // Threads cannot be sent away, but were interrupted, and end by themselves.
            Database::Sqlite(file) => end_others(|| Ok(file.connectors())),
            // A call was answered or given up when its load ended.
            Database::Embedded(..) => Ok(()),
        }
    }

    /// A connection for others than the clients.
    pub(crate) fn connect(&self) -> Result<Box<dyn Transactional>, RigError> {
        Ok(match self {
            Database::Postgres(server) => Box::new(server.connect()?),
            Database::MariaDb(server) => Box::new(server.connect()?),
            Database::Sqlite(file) => Box::new(file.connect()?),
            Database::Firebird(server) => Box::new(server.connect()?),
            Database::Embedded(store, _) => Box::new(store.connect()),
            Database::Existing(existing) => return existing.connect(),
        })
    }

    /// A client of PostgreSQL, where it is one.
    fn postgres_client(&self) -> Option<Result<BlockingClient, ClientError>> {
        match self {
            Database::Postgres(server) => Some(server.connect()),
            Database::Existing(existing) => existing.postgres(),
            _ => None,
        }
    }

    /// The process of the server that we started; none where the database is in our own, or the
    /// server somebody else's.
    pub(crate) fn process_id(&self) -> Option<u32> {
        match self {
            Database::Postgres(server) => Some(server.process_id()),
            Database::MariaDb(server) => Some(server.process_id()),
            Database::Firebird(server) => Some(server.process_id()),
            Database::Sqlite(_) | Database::Embedded(..) | Database::Existing(_) => None,
        }
    }

    /// The sums of pgbench's tables, while nobody changes them.
    pub(crate) fn sums(&self) -> Result<Sums, RigError> {
        let mut connection = self.connect()?;
        let session = Session::immediate(&mut *connection);
        Ok(finish(Box::pin(async move { Sums::read(&session).await }))?)
    }

    /// A look into it while it works, where it lets one.
    pub(crate) fn probe(&self) -> Option<embedded::Probe> {
        if let Database::Embedded(store, _) = self { Some(store.probe()) } else { None }
    }

    /// Its version.
    pub(crate) fn version(&self) -> Result<String, RigError> {
        Ok(match self {
            Database::Postgres(server) => server.version()?,
            Database::MariaDb(server) => server.version()?,
            Database::Sqlite(_) => Sqlite::version().to_owned(),
            Database::Firebird(server) => server.version()?,
            Database::Embedded(store, _) => store.version(),
            Database::Existing(existing) => existing.version()?,
        })
    }

    /// Its settings that are not its defaults, as in force.
    pub(crate) fn settings(&self) -> Result<Vec<(String, String)>, RigError> {
        Ok(match self {
            Database::Postgres(server) => server.settings()?,
            Database::MariaDb(server) => server.settings()?,
            Database::Sqlite(file) => file.settings()?,
            Database::Firebird(server) => server.settings()?,
            Database::Embedded(store, _) => store.settings(),
            Database::Existing(existing) => existing.settings()?,
        })
    }

    /// What it is, where it is one of those with a gate.
    pub(crate) fn describe(&self, kind: DatabaseKind) -> Result<DatabaseDescription, RigError> {
        Ok(DatabaseDescription {
            database: kind,
            database_version: self.version()?,
            database_settings: self.settings()?,
        })
    }

    pub(crate) fn stop(self) -> Result<(), RigError> {
        match self {
            Database::Postgres(server) => Ok(server.stop()?),
            Database::MariaDb(server) => Ok(server.stop()?),
            Database::Sqlite(file) => Ok(file.stop()?),
            Database::Firebird(server) => Ok(server.stop()?),
            Database::Embedded(store, _) => Ok(store.stop()?),
            Database::Existing(existing) => Ok(existing.leave()?),
        }
    }
}

/// Ends others until nobody is left; `end` says how many there were.
fn end_others(mut end: impl FnMut() -> Result<usize, RigError>) -> Result<(), RigError> {
    let deadline = Instant::now() + SETTLE_BOUND;
    while end()? > 0 {
        if Instant::now() >= deadline {
            return Err(RigError::NotAlone(SETTLE_BOUND));
        }
        std::thread::sleep(SETTLE_PAUSE);
    }
    Ok(())
}

/// Counts who is there and, when they are after a while, ends them as well. Firebird 3.0 can fall
/// when it ends connections that are at work, so that is for those that do not end by themselves.
fn after_a_while(
    mut count: impl FnMut() -> Result<usize, RigError>,
    mut end: impl FnMut() -> Result<usize, RigError>,
) -> impl FnMut() -> Result<usize, RigError> {
    let patience = Instant::now() + SETTLE_BOUND / 4;
    move || {
        let there = count()?;
        if there > 0 && Instant::now() >= patience {
            end()?;
        }
        Ok(there)
    }
}

/// How long clients that were sent away may take to be gone.
const SETTLE_BOUND: Duration = Duration::from_secs(60);

/// Between two looks at who is still there.
const SETTLE_PAUSE: Duration = Duration::from_millis(20);

/// The workloads but for those whose first table an earlier one has made.
fn distinct(workloads: &[Arc<dyn Workload>]) -> Vec<&Arc<dyn Workload>> {
    let mut names = Vec::new();
    let is_new = |workload: &&Arc<dyn Workload>| {
        let name = workload.tables().first().map(|table| table.name);
        let is_new = !names.contains(&name);
        names.push(name);
        is_new
    };
    workloads.iter().filter(is_new).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn a_run_on_a_file_waits_for_threads_of_the_run_before() {
        let database = Database::sqlite(&Settings::default()).unwrap();
        let Database::Sqlite(file) = &database else { panic!("there is no file") };
        let (client, has_ended) = (file.connector(), Arc::new(AtomicBool::new(false)));
        let ended = Arc::clone(&has_ended);
        let thread = std::thread::spawn(move || {
            std::thread::sleep(2 * SETTLE_PAUSE);
            ended.store(true, Ordering::SeqCst);
            drop(client);
        });
        database.settle().unwrap();
        assert!(has_ended.load(Ordering::SeqCst));
        thread.join().unwrap();
        database.stop().unwrap();
    }

    #[test]
    fn postgresql_is_taken_where_it_is() {
        let found = DatabaseChoice::by_program(Ok("bin/postgres".into()));
        assert_eq!(found.kind, DatabaseKind::Postgres);
        assert!(found.reason.contains("bin/postgres"), "{}", found.reason);
        let missing = DatabaseChoice::by_program(Err(PostgresError::NoBinaries));
        assert_eq!(missing.kind, DatabaseKind::Embedded);
        assert!(missing.reason.contains("install"), "{}", missing.reason);
    }

    #[test]
    fn every_database_is_found_by_its_name() {
        for kind in DatabaseKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
            let choice = DatabaseChoice::new(Some(kind));
            assert_eq!(choice.kind, kind);
            assert!(choice.reason.contains(kind.title()), "{}", choice.reason);
        }
        let error = "oracle".parse::<DatabaseKind>().unwrap_err().to_string();
        assert!(error.contains("`oracle`") && error.contains("embedded"), "{error}");
    }
}

//! The database of an experiment, whichever it is: started, filled, levelled, described.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::Serialize;
use thiserror::Error;
use tidegate_subject::connection::{Transactional, load};
use tidegate_subject::embedded::{self, Embedded, Isolation};
use tidegate_subject::postgres::{self, Postgres, PostgresError};
use tidegate_workload::pgbench::Sums;
use tidegate_workload::workload::Workload;
use tidegate_workload::{Session, Table, finish};

use super::RigError;

/// PostgreSQL's settings that are not its defaults.
const POSTGRES_SETTINGS: [(&str, &str); 2] =
    [("max_connections", "1100"), ("shared_buffers", "256MB")];

/// The embedded engine's: the buffer is small next to the tables, so that pages compete for it.
const EMBEDDED_OPTIONS: embedded::Options =
    embedded::Options { buffer_bytes: 8 << 20, isolation: Isolation::Serializable };

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

/// A private database; stopped, and its directory removed, when dropped.
pub(crate) enum Database {
    Postgres(Postgres),
    Embedded(Embedded),
}

impl Database {
    /// Starts an empty one.
    pub(crate) fn start(kind: DatabaseKind) -> Result<Self, RigError> {
        match kind {
            DatabaseKind::Postgres => {
                let settings =
                    POSTGRES_SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned()));
                let options = postgres::Options {
                    settings: settings.to_vec(),
                    ..postgres::Options::default()
                };
                Ok(Database::Postgres(Postgres::start(options)?))
            }
            DatabaseKind::Embedded => Ok(Database::Embedded(Embedded::start(EMBEDDED_OPTIONS)?)),
        }
    }

    /// Makes the tables of workloads anew; those that several have in common once. The embedded
    /// engine has these alone afterwards.
    pub(crate) fn load(
        &mut self,
        workloads: &[Arc<dyn Workload>],
        cancel: &AtomicBool,
    ) -> Result<(), RigError> {
        match self {
            Database::Postgres(server) => {
                let mut client = server.connect()?;
                for workload in distinct(workloads) {
                    for table in workload.tables() {
                        client.query(&format!("DROP TABLE IF EXISTS {}", table.name))?;
                    }
                    load(&mut client, &**workload, cancel, &mut |_| {})?;
                    for table in workload.tables() {
                        client.query(&format!("VACUUM ANALYZE {}", table.name))?;
                    }
                }
            }
            Database::Embedded(store) => {
                *store = Embedded::start(EMBEDDED_OPTIONS)?;
                for workload in distinct(workloads) {
                    store.load(&**workload, cancel)?;
                }
            }
        }
        Ok(())
    }

    /// Gives two runs on the same tables the same start: no dead versions of rows, no checkpoint
    /// left over from the run before.
    pub(crate) fn level(&self, workloads: &[Arc<dyn Workload>]) -> Result<(), RigError> {
        match self {
            Database::Postgres(server) => {
                let mut client = server.connect()?;
                let tables = workloads.iter().flat_map(|workload| workload.tables());
                let vacuum = |table: Table| format!("VACUUM {}", table.name);
                for statement in tables.map(vacuum).chain(["CHECKPOINT".to_owned()]) {
                    client.query(&statement)?;
                }
                Ok(())
            }
            Database::Embedded(store) => Ok(store.level()?),
        }
    }

    /// A connection for others than the clients.
    pub(crate) fn connect(&self) -> Result<Box<dyn Transactional>, RigError> {
        Ok(match self {
            Database::Postgres(server) => Box::new(server.connect()?),
            Database::Embedded(store) => Box::new(store.connect()),
        })
    }

    /// The sums of pgbench's tables, while nobody changes them.
    pub(crate) fn sums(&self) -> Result<Sums, RigError> {
        let mut connection = self.connect()?;
        let session = Session::immediate(&mut *connection);
        Ok(finish(Box::pin(async move { Sums::read(&session).await }))?)
    }

    /// What it is.
    pub(crate) fn describe(&self) -> Result<DatabaseDescription, RigError> {
        Ok(match self {
            Database::Postgres(server) => DatabaseDescription {
                database: DatabaseKind::Postgres,
                database_version: server.version()?,
                database_settings: server.settings(&POSTGRES_SETTINGS.map(|(name, _)| name))?,
            },
            Database::Embedded(store) => DatabaseDescription {
                database: DatabaseKind::Embedded,
                database_version: store.version(),
                database_settings: store.settings(),
            },
        })
    }

    pub(crate) fn stop(self) -> Result<(), RigError> {
        match self {
            Database::Postgres(server) => Ok(server.stop()?),
            Database::Embedded(store) => Ok(store.stop()?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

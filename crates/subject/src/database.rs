//! A database under test, and the list of the DBMSs that there are.
//!
//! # Mechanism
//! A DBMS is a [`Dbms`]: its name, what it can do, and how a database of it is made. [`Dbms::ALL`]
//! is the list of them. A database is a [`Database`], whichever DBMS it is of, and whether it is on
//! a private server, in this process, or a [guest](crate::guest) on a server that somebody else
//! runs.
//!
//! # A sixth DBMS
//! One module with a `Dbms` and an implementation of [`Database`], its line in `lib.rs`, and its
//! entry in [`Dbms::ALL`]. A server is a [`Program`](crate::server::Program). One that speaks
//! PostgreSQL's or MySQL's protocol needs no client, and [`Host`](crate::guest::Host) makes guests
//! on it. Its SQL is one of [`Dialect`]'s, or one more there.

use std::cmp::Ordering;
use std::error::Error;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use thiserror::Error;
use tidegate_workload::workload::{Condition, Depth, Workload};
use tidegate_workload::{Dialect, Failure};

use crate::blocking::ClientError;
use crate::connection::{Connector, LoadError, Transactional, check, load, on_tables, remove};
use crate::detection::Whereabouts;
use crate::embedded::auctions;
use crate::embedded::{self, EmbeddedError, EngineDatabase, Probe};
use crate::guest::GuestError;
use crate::process::ProcessError;
use crate::settings::{Reserved, SettingError, Settings};
use crate::url::{Protocol, Scheme, Url};
use crate::{client, firebird, mariadb, mysql, postgres, sqlite};

/// How long clients that were sent away may take to be gone.
const SETTLE_BOUND: Duration = Duration::from_secs(60);

/// The pause between two looks at who is still there.
const SETTLE_PAUSE: Duration = Duration::from_millis(20);

/// A DBMS: what it is called, what it can do, and how a database of it is made.
#[derive(Debug)]
pub struct Dbms {
    /// The name in files, on command lines and in result stores.
    pub name: &'static str,
    /// What it is called in text.
    pub title: &'static str,
    /// What its statements are written in; `None` where it has documents and no SQL.
    pub dialect: Option<Dialect>,
    /// What can hold a limit before it.
    pub gate: Gate,
    /// Whether a database of it is within our own process, also where the place of its file is
    /// given. Otherwise it has a server.
    pub is_in_process: bool,
    /// The setting that limits the connections of a server, where there is one.
    pub connections: Option<&'static str>,
    /// The names that the processes of a server can have.
    pub programs: &'static [&'static str],
    /// What its URLs look like; `None` where it is never elsewhere.
    pub scheme: Option<&'static Scheme>,
    /// What is run on each table that was loaded, with its name behind it.
    pub after_load: Option<&'static str>,
    /// Returns the version that a database of it says it has.
    pub version: fn(&mut dyn Transactional) -> Result<String, Failure>,
    /// Finds the server's program; `None` where none is needed. It fails where a private database
    /// cannot be started here.
    pub find: fn() -> Result<Option<PathBuf>, DatabaseError>,
    /// Checks that settings are the DBMS's, without starting anything.
    pub validate: fn(&Settings) -> Result<(), SettingError>,
    /// Starts a private database.
    pub start: fn(&Settings) -> Started,
    /// Makes a database of our own where a URL says.
    pub start_at: fn(&Url, &Settings) -> Started,
}

/// What comes of starting a database.
pub type Started = Result<Box<dyn Database>, DatabaseError>;

impl Dbms {
    /// Every DBMS.
    pub const ALL: &[&Dbms] = &[
        &postgres::DBMS,
        &mariadb::DBMS,
        &sqlite::DBMS,
        &firebird::DBMS,
        &embedded::DBMS,
        &auctions::DBMS,
    ];

    /// Returns the DBMS of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Dbms> {
        Dbms::ALL.iter().copied().find(|dbms| dbms.name == name)
    }
}

impl fmt::Display for Dbms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Dbms {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Dbms {}

impl PartialOrd for Dbms {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Dbms {
    fn cmp(&self, other: &Self) -> Ordering {
        self.name.cmp(other.name)
    }
}

impl Hash for Dbms {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// What can hold a limit before a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// No limit can be held before it.
    None,
    /// A `tidegate proxy`.
    Proxy,
    /// A gate of its own.
    Own,
}

/// Where the clients of a database go.
pub enum Clients<'d> {
    /// On sockets to a server.
    Server(Url),
    /// Each by a connection of its own, on a thread of its own.
    Threads(Arc<dyn Connector>),
    /// By calls of the engine in this process.
    Engine(&'d dyn EngineDatabase),
}

/// A database of our own. When it is dropped it is gone, and so is its server where that is ours.
pub trait Database: Send + Sync {
    /// Returns which DBMS it is of.
    fn dbms(&self) -> &'static Dbms;

    /// Returns where the clients of a load go.
    fn clients(&self) -> Clients<'_>;

    /// Connects, for others than the clients of a load.
    ///
    /// # Errors
    /// The server is down or refuses.
    fn session(&self) -> Result<Box<dyn Transactional>, DatabaseError> {
        Ok(match self.clients() {
            Clients::Server(url) => connect(&url)?,
            Clients::Threads(connector) => connector.connect()?,
            Clients::Engine(_) => {
                let text = format!("{} has no SQL, and takes no session", self.dbms().name);
                return Err(DatabaseError::Other(text));
            }
        })
    }

    /// Makes the tables of workloads anew; those that several have in common once.
    ///
    /// # Errors
    /// The database fails, or the caller cancelled.
    fn load(
        &mut self,
        workloads: &[Arc<dyn Workload>],
        cancel: &AtomicBool,
    ) -> Result<(), DatabaseError> {
        let mut session = self.session()?;
        for workload in distinct(workloads) {
            remove(&mut *session, &**workload)?;
            load(&mut *session, &**workload, cancel, &mut |_| {})?;
        }
        match self.dbms().after_load {
            Some(command) => Ok(on_tables(&mut *session, command, workloads)?),
            None => Ok(()),
        }
    }

    /// Looks whether the data of a workload is consistent, while nobody changes it.
    ///
    /// # Errors
    /// The server is down or refuses.
    fn check(
        &self,
        workload: &dyn Workload,
        depth: Depth,
    ) -> Result<Vec<Condition>, DatabaseError> {
        Ok(check(&mut *self.session()?, workload, depth)?)
    }

    /// Gives two runs on the same tables the same start: no dead versions of rows, no checkpoint
    /// left over from the run before. No client may be at work meanwhile.
    ///
    /// # Errors
    /// The server is down or refuses.
    fn level(&self, workloads: &[Arc<dyn Workload>]) -> Result<(), DatabaseError>;

    /// Ends the sessions of others, which may take a moment to be gone. `waited` is how long the
    /// caller has been asking for it. Returns how many sessions there were.
    ///
    /// # Errors
    /// The server is down or refuses.
    fn end_others(&self, waited: Duration) -> Result<usize, DatabaseError>;

    /// Ends what clients have left behind that went away in the middle of a statement, and waits
    /// until all are gone.
    ///
    /// # Errors
    /// The server is down, or some are still there after a minute.
    fn settle(&self) -> Result<(), DatabaseError> {
        let begun = Instant::now();
        while self.end_others(begun.elapsed())? > 0 {
            if begun.elapsed() >= SETTLE_BOUND {
                return Err(DatabaseError::NotAlone(SETTLE_BOUND));
            }
            std::thread::sleep(SETTLE_PAUSE);
        }
        Ok(())
    }

    /// Returns the version of the DBMS.
    ///
    /// # Errors
    /// The server is down or refuses.
    fn version(&self) -> Result<String, DatabaseError> {
        Ok((self.dbms().version)(&mut *self.session()?)?)
    }

    /// Returns the settings on which throughput depends, as in force; a guest's begin with `url`.
    ///
    /// # Errors
    /// The server is down or refuses.
    fn settings(&self) -> Result<Vec<(String, String)>, DatabaseError>;

    /// Returns the process of the server that we started; `None` where the database is in our own,
    /// or the server somebody else's.
    fn process_id(&self) -> Option<u32> {
        None
    }

    /// Returns where the server is that somebody else runs; `None` where it is ours.
    fn existing(&self) -> Option<Whereabouts> {
        None
    }

    /// Returns what looks into the database while it works, where it lets one.
    fn probe(&self) -> Option<Probe> {
        None
    }

    /// Stops the server, or drops the database on somebody else's.
    ///
    /// # Errors
    /// Something of it could not be removed.
    fn stop(self: Box<Self>) -> Result<(), DatabaseError>;
}

/// Connects to a server whose protocol we speak.
fn connect(url: &Url) -> Result<Box<dyn Transactional>, DatabaseError> {
    let text = url.with_password();
    Ok(match url.protocol().map_err(|error| DatabaseError::Other(error.to_string()))? {
        Protocol::Postgres => Box::new(client::BlockingClient::connect(&text)?),
        Protocol::MySql => Box::new(mysql::BlockingClient::connect(&text)?),
    })
}

/// Returns the workloads but for those whose first table an earlier one has made.
pub(crate) fn distinct(workloads: &[Arc<dyn Workload>]) -> Vec<&Arc<dyn Workload>> {
    let mut names = Vec::new();
    let is_new = |workload: &&Arc<dyn Workload>| {
        let name = workload.tables().first().map(|table| table.name);
        let is_new = !names.contains(&name);
        names.push(name);
        is_new
    };
    workloads.iter().filter(is_new).collect()
}

/// Why a database could not be made, asked or stopped.
#[derive(Debug, Error)]
pub enum DatabaseError {
    /// A program, or another file of the DBMS's package, is missing.
    #[error("{0}")]
    NotInstalled(String),
    /// We are root, and there is no other user to run the server as.
    #[error(
        "{server} should not run as root and there is neither a user {}; run as another user, or \
         create one: useradd --system {}", .users.join(" nor "), .users[0]
    )]
    NoAccount {
        /// The DBMS.
        server: &'static str,
        /// The users who were looked for.
        users: &'static [&'static str],
    },
    /// A setting is not the DBMS's, or not for the caller to make.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A file or a directory could not be made, used or removed.
    #[error("cannot use {path}: {source}", path = .path.display())]
    Directory {
        /// The directory or file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A program that prepares the server's directory failed.
    #[error("{program} failed: {reason}")]
    Prepare {
        /// The program.
        program: &'static str,
        /// What it says.
        reason: String,
    },
    /// The server ended while it started.
    #[error("{server} ended while starting; the end of its log:\n{log}")]
    Ended {
        /// The DBMS.
        server: &'static str,
        /// The end of the server's log.
        log: String,
    },
    /// The server did not accept connections in time.
    #[error(
        "{server} accepted no connection within {} s ({reason}); the end of its log:\n{log}",
        .bound.as_secs()
    )]
    NotReady {
        /// The DBMS.
        server: &'static str,
        /// How long it was given.
        bound: Duration,
        /// What the last attempt to connect met.
        reason: Failure,
        /// The end of the server's log.
        log: String,
    },
    /// The server does not let us in, or refuses to make its database.
    #[error("the server just started is of no use: {0}")]
    Unusable(Failure),
    /// The process could not be started or watched.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// An existing server has no room for us.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// The tables could not be made.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The database did not do what it was told.
    #[error("preparing the database failed: {0}")]
    Failed(#[from] Failure),
    /// Clients that were sent away are still there.
    #[error("clients of an earlier run were sent away and are still there after {0:?}")]
    NotAlone(Duration),
    /// The embedded engine failed.
    #[error(transparent)]
    Embedded(#[from] EmbeddedError),
    /// Another reason of the DBMS's own.
    #[error("{0}")]
    Other(String),
}

impl DatabaseError {
    /// Returns what makes an error of the system's reason why a path cannot be used.
    pub(crate) fn directory(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| DatabaseError::Directory { path, source }
    }
}

impl From<Reserved> for DatabaseError {
    fn from(error: Reserved) -> Self {
        DatabaseError::Setting(error.into())
    }
}

impl<S: Error + Into<Failure>, P: Error> From<ClientError<S, P>> for DatabaseError {
    fn from(error: ClientError<S, P>) -> Self {
        DatabaseError::Failed(error.into())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::sqlite::{Options, Sqlite};

    #[test]
    fn a_run_on_a_file_waits_for_threads_of_the_run_before() {
        let database = Sqlite::start(Options::default()).unwrap();
        let (client, has_ended) = (database.connector(), Arc::new(AtomicBool::new(false)));
        let ended = Arc::clone(&has_ended);
        let thread = std::thread::spawn(move || {
            std::thread::sleep(2 * SETTLE_PAUSE);
            ended.store(true, Ordering::SeqCst);
            drop(client);
        });
        database.settle().unwrap();
        assert!(has_ended.load(Ordering::SeqCst));
        thread.join().unwrap();
        Box::new(database).stop().unwrap();
    }

    #[test]
    fn every_dbms_is_found_by_its_name() {
        for dbms in Dbms::ALL {
            assert_eq!(Dbms::named(dbms.name), Some(*dbms));
        }
        assert_eq!(Dbms::named("oracle"), None);
    }
}

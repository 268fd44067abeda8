//! A private Firebird server: own root, security database and port, gone when dropped.
//!
//! The server is Firebird 3 as Debian packages it, in its own directory with one database. It
//! listens on a free port of 127.0.0.1. When we are root it runs as the first of the users
//! `postgres` and `nobody` that exists, neither of which may write into the machine's own log and
//! lock directory of Firebird.
//!
//! | setting | what it is here |
//! | --- | --- |
//! | `ServerMode` | `Super` by default: one process, one page cache for all connections |
//! | `DefaultDbCachePages` | the buffer, in pages of [`Options::page_bytes`]; 2,048 by default |
//! | `DeadlockTimeout` | seconds a transaction waits before the server looks for a circle; 10 |
//!
//! A database's page cache is dropped when its last connection ends, so the server holds one
//! connection for as long as it runs.
//!
//! A [`Guest`] makes a database on a server that somebody else runs.
//!
//! Limits: a private server is Firebird 3 only. The login is by default the one for every server
//! here, open to whoever can reach the loopback interface, as it is with [`crate::postgres`]. When
//! we are killed outright (SIGKILL) the system [tells the server](crate::process), and the
//! directory stays until the next one is made.
//!
//! What Firebird 3 takes otherwise than others do, beyond what `tidegate_workload::Dialect` mends:
//! a `?` alone in the list of a SELECT has no type and is refused (cast it); a SELECT needs a FROM
//! (`FROM rdb$database`); `WITH LOCK` is not for joins, DISTINCT or aggregates; some words are no
//! names of columns, among them VALUE, POSITION, DATE, TIMESTAMP, YEAR, MONTH, DAY, COUNT, USER,
//! ROWS, START, END, OFFSET, OVER and RELEASE; names have at most 31 characters; an index key has
//! at most a quarter of a page.

mod connection;
mod description;
mod guest;
mod installation;
mod keeper;
mod srp;
mod status;
mod url;
mod wire;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tidegate_workload::{Connection, Failure, Statement, Wants};

use crate::connection::Connector;
use crate::process::{Process, ProcessError};
use crate::scratch::Scratch;
pub use connection::{FirebirdConnection, Isolation};
use connection::{Purpose, Target};
pub use guest::Guest;
use installation::Installation;
use keeper::Keeper;
pub use url::{Url, UrlError};

/// The name of the database's file.
const DATABASE: &str = "data.fdb";

/// How long a server may take to answer.
const START_BOUND: Duration = Duration::from_secs(30);

/// How long it may take to stop before it is killed.
const STOP_BOUND: Duration = Duration::from_secs(10);

/// What a server is started with; everything else is Firebird's default.
#[derive(Clone, Debug)]
pub struct Options {
    /// Server settings as name and value, as in `firebird.conf`.
    pub settings: Vec<(String, String)>,
    /// Bytes in a page of the database: 4,096, 8,192 or 16,384.
    pub page_bytes: u32,
    /// What transactions of its connections see of each other.
    pub isolation: Isolation,
    /// How clients log in.
    pub authentication: Authentication,
}

/// How clients of a server prove who they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Authentication {
    /// By the older hash of the password that everybody knows, as good as not at all.
    #[default]
    Legacy,
    /// By the password of SYSDBA, as on a server that others use.
    Password {
        /// The password.
        password: String,
        /// `AuthServer`: the methods the server takes, such as `Srp`.
        methods: &'static str,
        /// `WireCrypt`: `Required`, `Enabled` or `Disabled`.
        wire_crypt: &'static str,
    },
}

impl Default for Options {
    fn default() -> Self {
        Options {
            settings: Vec::new(),
            page_bytes: 8_192,
            isolation: Isolation::default(),
            authentication: Authentication::default(),
        }
    }
}

/// Why a server could not be started, asked or stopped.
#[derive(Debug, Error)]
pub enum FirebirdError {
    /// Something of the package is missing.
    #[error(
        "Firebird 3's {0} cannot be found; install it (Debian: apt-get install firebird3.0-server)"
    )]
    NoBinaries(&'static str),
    /// We are root and there is nobody else to be.
    #[error(
        "a database server should not run as root and there is neither a user postgres nor nobody; \
         run as another user"
    )]
    NoAccount,
    /// A setting is not for the caller to make, or no setting at all.
    #[error(
        "{0} is no setting of firebird.conf that can be chosen: it is unknown, has a line break, \
         or makes the server private"
    )]
    Setting(String),
    /// The directory could not be made or read.
    #[error("cannot prepare {path}: {source}", path = .path.display())]
    Directory {
        /// The directory or file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The database of users could not be made.
    #[error("isql-fb cannot make the security database: {0}")]
    Security(String),
    /// The server ended while it started.
    #[error("Firebird ended while starting; what it said:\n{0}")]
    Ended(String),
    /// The server did not answer in time.
    #[error("Firebird did not answer within {} s ({reason}):\n{log}", START_BOUND.as_secs())]
    NotReady {
        /// What the last attempt to connect met.
        reason: String,
        /// What the server said.
        log: String,
    },
    /// The server refused to make its database.
    #[error("cannot make a database on the server just started: {0}")]
    Database(Failure),
    /// The process could not be started or watched.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// A running private server; dropping it stops it and removes its directory.
#[derive(Debug)]
pub struct Firebird {
    // Dropped in this order: a connection, the server, its directory.
    keeper: Keeper,
    process: Process,
    directory: Scratch,
    installation: Installation,
    options: Options,
    target: Arc<Target>,
}

impl Firebird {
    /// Whether a server could be started here: where its program is.
    ///
    /// # Errors
    /// There is no program, or nobody to run it as.
    pub fn find() -> Result<PathBuf, FirebirdError> {
        Installation::find().map(Installation::into_program)
    }

    /// Makes a directory, starts a server in it, makes a database and waits until it can be used.
    ///
    /// # Errors
    /// See [`FirebirdError`].
    pub fn start(options: Options) -> Result<Self, FirebirdError> {
        let installation = Installation::find()?;
        let directory = installation.prepare(&options)?;
        let (process, target) = installation.start(directory.path(), &options)?;
        let keeper = keep(&target)?;
        let target = Arc::new(target);
        Ok(Firebird { keeper, process, directory, installation, options, target })
    }

    /// The TCP port on 127.0.0.1, the same for as long as this handle lives.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.target.address.port()
    }

    /// The server's process id.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// The directory that holds all of it.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A connection to the database.
    ///
    /// # Errors
    /// The server is down or refuses.
    pub fn connect(&self) -> Result<FirebirdConnection, Failure> {
        FirebirdConnection::open(&self.target, Purpose::Use)
    }

    /// What makes connections on other threads. It does not keep the server: once that is stopped,
    /// they are lost and there are no new ones.
    #[must_use]
    pub fn connector(&self) -> Arc<dyn Connector> {
        Arc::clone(&self.target) as _
    }

    /// How many still hold what makes connections: threads of clients that have not ended.
    #[must_use]
    pub fn connectors(&self) -> usize {
        Arc::strong_count(&self.target) - 1
    }

    /// Ends the connections of others, also in the middle of a statement; how many there were. They
    /// may take a moment to be gone.
    ///
    /// # Errors
    /// The server is down or refuses.
    pub fn end_others(&self) -> Result<usize, Failure> {
        self.keeper.end_others(&self.target)
    }

    /// The server's version, such as `3.0.11`.
    ///
    /// # Errors
    /// The server is down or refuses.
    pub fn version(&self) -> Result<String, Failure> {
        version(&mut self.connect()?)
    }

    /// What the database says of itself (bytes in a page, pages in the buffer, whether a commit
    /// waits for the disk, the sweep interval) and what transactions see of each other, then the
    /// settings it was started with.
    ///
    /// # Errors
    /// The server is down or refuses.
    pub fn settings(&self) -> Result<Vec<(String, String)>, Failure> {
        let mut settings = of_database(&mut self.connect()?, self.options.isolation)?;
        settings.extend(self.options.settings.iter().cloned());
        Ok(settings)
    }

    /// Removes the versions of rows that nobody can see any more, so that every batch of an
    /// experiment finds the tables alike. Nobody should be at work meanwhile.
    ///
    /// # Errors
    /// The server is down or refuses.
    pub fn level(&self) -> Result<(), Failure> {
        FirebirdConnection::open(&self.target, Purpose::Sweep).map(drop)
    }

    /// Stops the server, breaking its connections, and starts it again on the same port.
    ///
    /// # Errors
    /// It does not come back; the handle then holds a server that is down.
    pub fn restart(&mut self) -> Result<(), FirebirdError> {
        self.process.end(STOP_BOUND)?;
        let (process, target) = self.installation.start_on(
            self.directory.path(),
            &self.options,
            self.port(),
            Purpose::Use,
        )?;
        (self.process, self.target) = (process, Arc::new(target));
        self.keeper = keep(&self.target)?;
        Ok(())
    }

    /// Stops the server, breaking its connections, and removes its directory.
    ///
    /// # Errors
    /// The server's end could not be seen, or the directory not be removed.
    pub fn stop(self) -> Result<(), FirebirdError> {
        let Firebird { keeper, mut process, directory, .. } = self;
        drop(keeper);
        process.end(STOP_BOUND)?;
        let path = directory.path().to_owned();
        directory.close().map_err(|source| FirebirdError::Directory { path, source })
    }
}

/// A connection that stays.
fn keep(target: &Target) -> Result<Keeper, FirebirdError> {
    let keeper = FirebirdConnection::open(target, Purpose::Use).and_then(Keeper::new);
    keeper.map_err(FirebirdError::Database)
}

/// The server's version.
fn version(connection: &mut FirebirdConnection) -> Result<String, Failure> {
    const SQL: &str = "SELECT rdb$get_context('SYSTEM', 'ENGINE_VERSION') FROM rdb$database";
    let reply = connection.run(&Statement::new(SQL), &[], Wants::Rows)?;
    let version = reply.rows.text(0, 0).map(str::to_owned);
    version.ok_or(Failure::Unexpected("the server's version"))
}

/// What a database says of itself, and the isolation of our transactions, which is not a setting of
/// the database's but of each transaction.
fn of_database(
    connection: &mut FirebirdConnection,
    isolation: Isolation,
) -> Result<Vec<(String, String)>, Failure> {
    const NAMES: [&str; 4] = ["PageSize", "PageBuffers", "ForcedWrites", "SweepInterval"];
    const SQL: &str = "SELECT mon$page_size, mon$page_buffers, mon$forced_writes, \
                       mon$sweep_interval FROM mon$database";
    let reply = connection.run(&Statement::new(SQL), &[], Wants::Rows)?;
    let value = |(column, name): (usize, &&str)| {
        let value = reply.rows.int(0, column);
        let value = value.ok_or(Failure::Unexpected("the monitoring table's row"))?;
        Ok(((*name).to_owned(), value.to_string()))
    };
    let isolation = Ok(("isolation".to_owned(), isolation.name().to_owned()));
    NAMES.iter().enumerate().map(value).chain([isolation]).collect()
}

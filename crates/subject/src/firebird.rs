//! Firebird: private servers, each with its own root, security database and port.
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
//! Limits: a private server is Firebird 3 only. See also [`crate::server`].
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
mod wire;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidegate_workload::workload::Workload;
use tidegate_workload::{Connection, Dialect, Failure, Statement, Wants};

use crate::connection::{Connector, Transactional};
use crate::database::{Clients, Database, DatabaseError, Dbms, Gate};
use crate::server::ServerProcess;
use crate::settings::{SettingError, Settings};
use crate::url::{PathPart, Scheme};
pub use connection::{FirebirdConnection, Isolation};
use connection::{Purpose, Target};
pub use guest::Guest;
use installation::Installation;
use keeper::Keeper;

/// See [`Dbms`].
pub static DBMS: Dbms = Dbms {
    name: "firebird",
    title: "Firebird",
    dialect: Dialect::Firebird,
    gate: Gate::None,
    is_in_process: false,
    connections: None,
    programs: &["firebird", "fbserver", "fb_smp_server"],
    scheme: Some(&SCHEME),
    find: || Firebird::find().map(Some),
    validate: |settings| Options::new(settings).map(drop),
    start: |settings| Ok(Box::new(Firebird::start(Options::new(settings)?)?)),
    start_at: |url, settings| Ok(Box::new(Guest::make(url, Options::new(settings)?.isolation)?)),
};

/// The form of its URLs.
pub static SCHEME: Scheme = Scheme {
    names: &["firebird"],
    form: "firebird://user[:password]@host[:port]/path/file.fdb",
    port: 3050,
    path: PathPart::File,
    socket: None,
    has_isolation: false,
    password_variable: "ISC_PASSWORD",
    protocol: None,
};

/// How long the connections of others may end by themselves. Firebird 3.0 can fall when it ends
/// connections that are at work, so that is for those that do not.
const PATIENCE: Duration = Duration::from_secs(15);

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

impl Options {
    /// Returns the options of an experiment's server.
    pub(crate) fn new(settings: &Settings) -> Result<Self, SettingError> {
        let isolation = match settings.isolation.as_deref() {
            None | Some("snapshot") => Isolation::Snapshot,
            Some("read-committed") => Isolation::ReadCommitted,
            Some(_) => return Err(settings.no_isolation("snapshot or read-committed")),
        };
        let settings = settings.named.clone().into_iter().collect();
        Ok(Options { settings, isolation, ..Options::default() })
    }
}

/// A running private server; dropping it stops it and removes its directory.
#[derive(Debug)]
pub struct Firebird {
    // Dropped in this order: a connection, then the server.
    keeper: Keeper,
    server: ServerProcess<Installation>,
    target: Arc<Target>,
}

impl Firebird {
    /// Returns where the server's program is.
    ///
    /// # Errors
    /// There is no program, or no user to run it as.
    pub fn find() -> Result<PathBuf, DatabaseError> {
        Installation::find(Options::default()).map(Installation::into_program)
    }

    /// Makes a directory, starts a server in it, makes a database and waits until it can be used.
    ///
    /// # Errors
    /// See [`DatabaseError`].
    pub fn start(options: Options) -> Result<Self, DatabaseError> {
        let installation = Installation::find(options)?;
        let directory = installation.prepare()?;
        let server = ServerProcess::begin(installation, directory)?;
        let target = server.program.target(server.directory(), server.port());
        Ok(Firebird { keeper: keep(&target)?, server, target: Arc::new(target) })
    }

    /// See [`ServerProcess::port`].
    #[must_use]
    pub fn port(&self) -> u16 {
        self.server.port()
    }

    /// See [`ServerProcess::process_id`].
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.server.process_id()
    }

    /// See [`ServerProcess::directory`].
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.server.directory()
    }

    /// Connects to the database.
    ///
    /// # Errors
    /// The server is down or refuses.
    pub fn connect(&self) -> Result<FirebirdConnection, Failure> {
        FirebirdConnection::open(&self.target, Purpose::Use)
    }

    /// Returns what makes connections on other threads. It does not keep the server: once that is
    /// stopped, they are lost and there are no new ones.
    #[must_use]
    pub fn connector(&self) -> Arc<dyn Connector> {
        Arc::clone(&self.target) as _
    }

    /// Ends the connections of others, also in the middle of a statement. They may take a moment to
    /// be gone. Returns how many there were.
    ///
    /// # Errors
    /// The server is down or refuses.
    pub fn end_connections(&self) -> Result<usize, Failure> {
        self.keeper.end_others(&self.target)
    }

    /// Stops the server, breaking its connections, and starts it again on the same port.
    ///
    /// # Errors
    /// It does not come back; the handle then holds a server that is down.
    pub fn restart(&mut self) -> Result<(), DatabaseError> {
        self.server.restart()?;
        let target = self.server.program.target(self.server.directory(), self.server.port());
        self.target = Arc::new(target);
        self.keeper = keep(&self.target)?;
        Ok(())
    }

    /// Stops the server, breaking its connections, and removes its directory.
    ///
    /// # Errors
    /// The server's end could not be seen, or the directory not be removed.
    pub fn stop(self) -> Result<(), DatabaseError> {
        drop(self.keeper);
        self.server.stop()
    }
}

impl Database for Firebird {
    fn dbms(&self) -> &'static Dbms {
        &DBMS
    }

    fn session(&self) -> Result<Box<dyn Transactional>, DatabaseError> {
        Ok(Box::new(self.connect()?))
    }

    fn clients(&self) -> Clients<'_> {
        Clients::Threads(self.connector())
    }

    fn level(&self, _: &[Arc<dyn Workload>]) -> Result<(), DatabaseError> {
        sweep(&self.target)
    }

    fn end_others(&self, waited: Duration) -> Result<usize, DatabaseError> {
        end_others(&self.target, waited, || self.end_connections())
    }

    /// Such as `3.0.11`.
    fn version(&self) -> Result<String, DatabaseError> {
        version(&mut self.connect()?)
    }

    /// What the database says of itself (bytes in a page, pages in the buffer, whether a commit
    /// waits for the disk, the sweep interval), the isolation of transactions, and the settings it
    /// was started with.
    fn settings(&self) -> Result<Vec<(String, String)>, DatabaseError> {
        let options = &self.server.program.options;
        let mut settings = of_database(&mut self.connect()?, options.isolation)?;
        settings.extend(options.settings.iter().cloned());
        Ok(settings)
    }

    fn process_id(&self) -> Option<u32> {
        Some(self.server.process_id())
    }

    fn stop(self: Box<Self>) -> Result<(), DatabaseError> {
        Firebird::stop(*self)
    }
}

/// Removes the versions of rows that no transaction can see any more. No client should be at work
/// meanwhile.
fn sweep(target: &Target) -> Result<(), DatabaseError> {
    Ok(FirebirdConnection::open(target, Purpose::Sweep).map(drop)?)
}

/// Returns how many threads of clients have not ended. When they take too long it ends all other
/// connections.
fn end_others(
    target: &Arc<Target>,
    waited: Duration,
    end: impl FnOnce() -> Result<usize, Failure>,
) -> Result<usize, DatabaseError> {
    let threads = Arc::strong_count(target) - 1;
    if threads > 0 && waited >= PATIENCE {
        end()?;
    }
    Ok(threads)
}

/// A connection that stays.
fn keep(target: &Target) -> Result<Keeper, DatabaseError> {
    let keeper = FirebirdConnection::open(target, Purpose::Use).and_then(Keeper::new);
    keeper.map_err(DatabaseError::Unusable)
}

/// The server's version.
fn version(connection: &mut FirebirdConnection) -> Result<String, DatabaseError> {
    const SQL: &str = "SELECT rdb$get_context('SYSTEM', 'ENGINE_VERSION') FROM rdb$database";
    let reply = connection.run(&Statement::new(SQL), &[], Wants::Rows)?;
    let version = reply.rows.text(0, 0).map(str::to_owned);
    Ok(version.ok_or(Failure::Unexpected("the server's version"))?)
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

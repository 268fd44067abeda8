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

use std::sync::Arc;
use std::time::Duration;

use tidegate_workload::workload::Workload;
use tidegate_workload::{Connection, Dialect, Failure, Statement, Wants};

use crate::connection::{Connector, ask};
use crate::database::{Clients, Database, DatabaseError, Dbms, Gate};
use crate::server::ServerProcess;
use crate::settings::{SettingError, Settings};
use crate::url::{PathPart, Scheme};
pub use connection::{FirebirdConnection, Isolation};
use connection::{Purpose, Target};
pub use guest::Guest;
pub use installation::Installation;
use keeper::Keeper;

/// See [`Dbms`].
pub static DBMS: Dbms = Dbms {
    name: "firebird",
    title: "Firebird",
    dialect: Some(Dialect::Firebird),
    gate: Gate::None,
    is_in_process: false,
    connections: None,
    programs: &["firebird", "fbserver", "fb_smp_server"],
    scheme: Some(&SCHEME),
    after_load: None,
    // Such as `3.0.11`.
    version: |session| {
        ask(session, "SELECT rdb$get_context('SYSTEM', 'ENGINE_VERSION') FROM rdb$database")
    },
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
pub type Firebird = ServerProcess<Installation>;

/// What is needed for as long as a server runs.
#[derive(Debug)]
pub struct Resident {
    keeper: Keeper,
    target: Arc<Target>,
}

impl Firebird {
    /// Connects to the database.
    ///
    /// # Errors
    /// The server is down or refuses.
    pub fn connect(&self) -> Result<FirebirdConnection, Failure> {
        FirebirdConnection::open(&self.resident.target, Purpose::Use)
    }

    /// Returns what makes connections on other threads. It does not keep the server: once that is
    /// stopped, they are lost and there are no new ones.
    #[must_use]
    pub fn connector(&self) -> Arc<dyn Connector> {
        Arc::clone(&self.resident.target) as _
    }

    /// Ends the connections of others, also in the middle of a statement. They may take a moment to
    /// be gone. Returns how many there were.
    ///
    /// # Errors
    /// The server is down or refuses.
    pub fn end_connections(&self) -> Result<usize, Failure> {
        self.resident.keeper.end_others(&self.resident.target)
    }
}

impl Database for Firebird {
    fn dbms(&self) -> &'static Dbms {
        &DBMS
    }

    fn clients(&self) -> Clients<'_> {
        Clients::Threads(self.connector())
    }

    fn level(&self, _: &[Arc<dyn Workload>]) -> Result<(), DatabaseError> {
        sweep(&self.resident.target)
    }

    fn end_others(&self, waited: Duration) -> Result<usize, DatabaseError> {
        end_others(&self.resident.target, waited, || self.end_connections())
    }

    /// What the database says of itself (bytes in a page, pages in the buffer, whether a commit
    /// waits for the disk, the sweep interval), the isolation of transactions, and the settings it
    /// was started with.
    fn settings(&self) -> Result<Vec<(String, String)>, DatabaseError> {
        let options = &self.program.options;
        let mut settings = of_database(&mut self.connect()?, options.isolation)?;
        settings.extend(options.settings.iter().cloned());
        Ok(settings)
    }

    fn process_id(&self) -> Option<u32> {
        Some(ServerProcess::process_id(self))
    }

    fn stop(self: Box<Self>) -> Result<(), DatabaseError> {
        ServerProcess::stop(*self)
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

//! A private MariaDB server: own data directory, own port, gone when dropped.
//!
//! # Mechanism
//! A directory is made, `mariadb-install-db` fills it, and `mariadbd` runs on it, on a free port of
//! 127.0.0.1 and on a socket in the directory. The system's configuration is not read, and nothing
//! outside the directory is touched: settings that say where files are and where the server listens
//! are [refused](crate::settings). When we are root the directory belongs to the first of the
//! users `mysql` and `nobody` that exists, as whom the server runs; the limit up to which it may
//! open files is raised before, for which we may need to be root.
//!
//! Everything is MariaDB's default but for the [settings](Options::settings) given and these:
//!
//! | setting | value | because |
//! | --- | --- | --- |
//! | `max_connections` | 1100 | 1,000 clients, and some who look on |
//! | `back_log` | 1100 | they may all knock at once |
//! | `table_open_cache` | 4000 | each has some tables open |
//! | `open_files_limit` | 10000 | a connection is a file, an open table up to two |
//! | `character_set_server` | `utf8mb4` | text is UTF-8 |
//! | `collation_server` | `utf8mb4_bin` | text is equal when it is the same, as elsewhere |
//! | `innodb_buffer_pool_dump_at_shutdown`, `.._load_at_startup` | off | a restart empties memory |
//! | `skip_name_resolve` | on | no login waits for a name server |
//!
//! A free port is found by binding port 0 and letting go of it; should another program take it in
//! between, the start is tried again with another one.
//!
//! # Limits
//! When we are killed outright (SIGKILL) the system [tells the server](crate::process), and the
//! directory stays until the next one is made. Whoever may connect to 127.0.0.1 on this machine may
//! log in as [`USER`] while it runs: it has no password.

mod binaries;
mod guest;
mod installation;
mod level;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;
use tidegate_workload::{Value, render_value};

use crate::isolation::Isolation;
use crate::mysql::{BlockingClient, ClientError};
use crate::process::{Process, ProcessError};
use crate::scratch::Scratch;
use crate::settings::{Reserved, plain_name, refuse_on_mariadb};
use binaries::Program;
pub use guest::Guest;
use installation::Installation;
pub use level::level;

/// The superuser of every server started here, without a password.
pub const USER: &str = "root";

/// The database that every server started here has, empty.
pub const DATABASE: &str = "tidegate";

/// The variable that holds the level of transactions that do not ask for one.
const ISOLATION: &str = "tx_isolation";

/// How long a server may take to accept connections, crash recovery included.
const START_BOUND: Duration = Duration::from_secs(60);

/// How long a server may take to write what it has in memory before it is killed. What is lost then
/// is done again from the log when it starts.
const STOP_BOUND: Duration = Duration::from_secs(30);

/// Files a server opens besides those of its connections, at least: two for each of the 200 tables
/// that it keeps open in any case, and some of its own.
const FILES: u64 = 430;

/// What a server is started with; everything else is as the module says.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Server settings as name and value, as in a configuration file.
    pub settings: Vec<(String, String)>,
    /// The level of transactions that do not ask for one; MariaDB's is REPEATABLE READ.
    pub isolation: Option<Isolation>,
}

impl Options {
    /// Looks whether the settings are the caller's to make, without starting anything.
    ///
    /// # Errors
    /// One of them is not.
    pub fn validate(&self) -> Result<(), Reserved> {
        refuse_on_mariadb(&self.settings)
    }
}

/// Why a server could not be started, looked into or stopped.
#[derive(Debug, Error)]
pub enum MariaDbError {
    /// A program is missing.
    #[error(
        "MariaDB's program {0} is in none of the directories searched ({1}); install it \
         (Debian: apt-get install mariadb-server), or name its directory in MARIADB_BIN_DIR"
    )]
    NoBinary(&'static str, &'static str),
    /// We are root and there is nobody else to be.
    #[error(
        "MariaDB should not run as root and there is neither a user mysql nor nobody; \
         run as another user, or create one: useradd --system mysql"
    )]
    NoAccount,
    /// A setting is not for the caller to make.
    #[error(transparent)]
    Setting(#[from] Reserved),
    /// The data directory could not be made or read.
    #[error("cannot prepare {path}: {source}", path = .path.display())]
    Directory {
        /// The directory or file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// `mariadb-install-db` failed.
    #[error("mariadb-install-db failed: {0}")]
    Install(String),
    /// The server ended while it started.
    #[error("MariaDB ended while starting; the end of its log:\n{0}")]
    Ended(String),
    /// The server did not accept connections in time.
    #[error(
        "MariaDB accepted no connection within {} s ({reason}); the end of its log:\n{log}",
        START_BOUND.as_secs()
    )]
    NotReady {
        /// What the last attempt to connect met.
        reason: ClientError,
        /// The end of the server's log.
        log: String,
    },
    /// The server may not open a file for each connection it was told to take.
    #[error(
        "MariaDB may open {files} files, and takes {granted} connections instead of {asked}; \
         allow it {} (ulimit -n)", .asked.saturating_add(FILES)
    )]
    TooFewFiles {
        /// How many connections were asked for.
        asked: u64,
        /// How many it says that it lets in, sometimes more than it has files for.
        granted: u64,
        /// How many files it may open.
        files: u64,
    },
    /// The server did not let us in, or refused to say what was asked.
    #[error("the server just started is of no use: {0}")]
    Client(#[from] ClientError),
    /// It has no such setting.
    #[error("MariaDB has no setting {0}")]
    NoSetting(String),
    /// What was written did not reach the disk in time.
    #[error("after {} s, {pages} changed pages are still not on disk", .bound.as_secs())]
    NotLevel {
        /// How many pages.
        pages: String,
        /// How long they were given.
        bound: Duration,
    },
    /// The process could not be started or watched.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// A running private server; dropping it stops it and removes its directory.
#[derive(Debug)]
pub struct MariaDb {
    // Dropped in this order: the server ends before its directory goes.
    process: Process,
    directory: Scratch,
    installation: Installation,
    options: Options,
    port: u16,
}

impl MariaDb {
    /// Whether a server could be started here: where its program is.
    ///
    /// # Errors
    /// A program is missing, or there is nobody to run it as.
    pub fn find() -> Result<PathBuf, MariaDbError> {
        Installation::find().map(|installation| installation.program(Program::Server))
    }

    /// Makes a data directory, starts a server on it and waits until it accepts connections.
    ///
    /// # Errors
    /// See [`MariaDbError`].
    pub fn start(options: Options) -> Result<Self, MariaDbError> {
        options.validate()?;
        let installation = Installation::find()?;
        let directory = installation.make_directory()?;
        installation.install(directory.path())?;
        let (process, port) = installation.start_on_free_port(directory.path(), &options)?;
        let server = MariaDb { process, directory, installation, options, port };
        let mut client = BlockingClient::connect(&server.url_of(""))?;
        server.check_connections(&mut client)?;
        client.query(&format!("CREATE DATABASE {DATABASE}"))?;
        Ok(server)
    }

    /// Looks whether the server can take the connections it was told to. With few files to open it
    /// lowers their number on its own, and with very few it keeps quiet.
    fn check_connections(&self, client: &mut BlockingClient) -> Result<(), MariaDbError> {
        let asked = installation::max_connections(&self.options);
        let mut global = |name: &str| -> Result<u64, MariaDbError> {
            let value = client.value(&format!("SELECT @@global.{name}"))?;
            Ok(value.parse().unwrap_or(0))
        };
        let (granted, files) = (global("max_connections")?, global("open_files_limit")?);
        if granted < asked || files < asked.saturating_add(FILES) {
            return Err(MariaDbError::TooFewFiles { asked, granted, files });
        }
        Ok(())
    }

    /// The TCP port on 127.0.0.1, the same for as long as this handle lives.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The server's process id.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// The directory that holds data, log and socket.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The superuser's URL over TCP, to [`DATABASE`].
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of(DATABASE)
    }

    fn url_of(&self, database: &str) -> String {
        installation::url(self.port, database)
    }

    /// The superuser's URL over the unix socket, to [`DATABASE`].
    #[must_use]
    pub fn socket_url(&self) -> String {
        let socket = installation::socket(self.directory.path());
        format!("{}?socket={}", self.url(), socket.display())
    }

    /// A connection as superuser.
    ///
    /// # Errors
    /// The server is down or refuses.
    pub fn connect(&self) -> Result<BlockingClient, ClientError> {
        BlockingClient::connect(&self.url())
    }

    /// The server's version, such as `10.11.6-MariaDB-0+deb12u1`.
    ///
    /// # Errors
    /// The server is down or refuses.
    pub fn version(&self) -> Result<String, ClientError> {
        self.connect()?.value("SELECT VERSION()")
    }

    /// The values in force of the settings it was started with, those of the module's table and the
    /// caller's, and the isolation level of transactions that do not ask for one. What the server
    /// takes when it starts and does not tell, such as `debug_no_sync`, has the value given.
    ///
    /// # Errors
    /// The server is down.
    pub fn settings(&self) -> Result<Vec<(String, String)>, MariaDbError> {
        let mut client = self.connect()?;
        let mut settings = installation::named(&self.options);
        settings.push((ISOLATION.to_owned(), String::new()));
        for (name, value) in &mut settings {
            match setting(&mut client, name) {
                Ok((_, in_force)) => *value = in_force,
                Err(MariaDbError::NoSetting(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(settings)
    }

    /// The values in force of the settings named, in that order.
    ///
    /// # Errors
    /// The server is down, or does not know one of them.
    pub fn in_force(&self, names: &[&str]) -> Result<Vec<(String, String)>, MariaDbError> {
        let mut client = self.connect()?;
        names.iter().map(|name| setting(&mut client, name)).collect()
    }

    /// Lets the server finish what is left of earlier runs; see [`level`].
    ///
    /// # Errors
    /// The server is down, or does not come to an end with it.
    pub fn level(&self) -> Result<(), MariaDbError> {
        level(&mut self.connect()?)
    }

    /// Stops the server, breaking its connections, and starts it again on the same port.
    ///
    /// # Errors
    /// It does not come back; the handle then holds a server that is down.
    pub fn restart(&mut self) -> Result<(), MariaDbError> {
        self.shut_down()?;
        self.process =
            self.installation.start_server(self.directory.path(), &self.options, self.port)?;
        Ok(())
    }

    /// Stops the server, breaking its connections, and removes its directory.
    ///
    /// # Errors
    /// The server's end could not be seen, or the directory not be removed.
    pub fn stop(mut self) -> Result<(), MariaDbError> {
        self.shut_down()?;
        let path = self.directory.path().to_owned();
        self.directory.close().map_err(|source| MariaDbError::Directory { path, source })
    }

    fn shut_down(&mut self) -> Result<(), MariaDbError> {
        self.process.end(STOP_BOUND)?;
        Ok(())
    }
}

/// The value in force of one setting.
fn setting(client: &mut BlockingClient, name: &str) -> Result<(String, String), MariaDbError> {
    // The server takes a name with dashes, and tells it with underscores.
    let name = plain_name(name);
    let mut sql = b"SHOW GLOBAL VARIABLES WHERE Variable_name = ".to_vec();
    render_value(&Value::from(name.as_str()), &mut sql);
    let rows = client.query(&String::from_utf8_lossy(&sql))?;
    match rows.into_iter().next().and_then(|row| row.into_iter().nth(1)) {
        Some(value) => Ok((name, value.unwrap_or_default())),
        None => Err(MariaDbError::NoSetting(name)),
    }
}

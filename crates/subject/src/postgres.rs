//! A private PostgreSQL server: own data directory, own port, gone when dropped.
//!
//! The server listens on a free port of 127.0.0.1 and on a socket in its directory. It refuses to
//! run as root, so when we are root it runs as the first of the users `postgres` and `nobody` that
//! exists, and the directory is theirs. Nothing outside the directory is touched: settings that say
//! where files are and where the server listens are [refused](crate::settings).
//!
//! A free port is found by binding port 0 and letting go of it; should another program take it in
//! between, the start is tried again with another one.
//!
//! Limits: when we are killed outright (SIGKILL) the system [tells the server](crate::process), and
//! the directory stays until the next one is made.

mod binaries;
mod guest;
mod installation;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use thiserror::Error;

use crate::client::{BlockingClient, ClientError, Host, Url};
use crate::process::{Process, ProcessError};
use crate::scratch::Scratch;
use crate::settings::{Reserved, plain_name, refuse_on_postgres};
pub use guest::Guest;
use installation::Installation;

/// The superuser of every server started here.
pub const USER: &str = "postgres";

/// How long a server may take to accept connections, crash recovery included.
const START_BOUND: Duration = Duration::from_secs(30);

/// How long each way of stopping may take before the next, harder one.
const STOP_BOUND: Duration = Duration::from_secs(10);

/// PostgreSQL's fast shutdown, then its immediate one.
const STOP_SIGNALS: &[Signal] = &[Signal::INT, Signal::QUIT];

/// The setting that holds the level of transactions that do not ask for one.
const ISOLATION: &str = "default_transaction_isolation";

/// How clients of the server prove who they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Authentication {
    /// Not at all.
    #[default]
    Trust,
    /// By the superuser's password, as MD5.
    Md5(String),
    /// By the superuser's password, as SCRAM-SHA-256.
    ScramSha256(String),
}

impl Authentication {
    fn initdb_method(&self) -> &'static str {
        match self {
            Authentication::Trust => "trust",
            Authentication::Md5(_) => "md5",
            Authentication::ScramSha256(_) => "scram-sha-256",
        }
    }

    fn password(&self) -> Option<&str> {
        match self {
            Authentication::Trust => None,
            Authentication::Md5(password) | Authentication::ScramSha256(password) => Some(password),
        }
    }
}

/// What a server is started with; everything else is PostgreSQL's default.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Server settings as name and value, as in `postgresql.conf`.
    pub settings: Vec<(String, String)>,
    /// How clients log in.
    pub authentication: Authentication,
}

impl Options {
    /// Looks whether the settings are the caller's to make, without starting anything.
    ///
    /// # Errors
    /// One of them is not.
    pub fn validate(&self) -> Result<(), Reserved> {
        refuse_on_postgres(&self.settings)
    }
}

/// Why a server could not be started or stopped.
#[derive(Debug, Error)]
pub enum PostgresError {
    /// There is no server program.
    #[error(
        "PostgreSQL's server programs are neither in PATH nor in /usr/lib/postgresql/*/bin; \
         install them (Debian: apt-get install postgresql)"
    )]
    NoBinaries,
    /// We are root and there is nobody else to be.
    #[error(
        "PostgreSQL refuses to run as root and there is neither a user postgres nor nobody; \
         run as another user, or create one: useradd --system postgres"
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
    /// `initdb` failed.
    #[error("initdb failed: {0}")]
    Initdb(String),
    /// The server ended while it started.
    #[error("PostgreSQL ended while starting; the end of its log:\n{0}")]
    Ended(String),
    /// The server did not accept connections in time.
    #[error(
        "PostgreSQL accepted no connection within {} s ({reason}); the end of its log:\n{log}",
        START_BOUND.as_secs()
    )]
    NotReady {
        /// What the last attempt to connect met.
        reason: ClientError,
        /// The end of the server's log.
        log: String,
    },
    /// The server did not let us in.
    #[error("cannot log in to the server just started: {0}")]
    Login(#[from] ClientError),
    /// The process could not be started or watched.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// A running private server; dropping it stops it and removes its directory.
#[derive(Debug)]
pub struct Postgres {
    // Dropped in this order: the server ends before its directory goes.
    process: Process,
    directory: Scratch,
    installation: Installation,
    options: Options,
    port: u16,
}

impl Postgres {
    /// Whether a server could be started here: where its program is.
    ///
    /// # Errors
    /// There is no program, or nobody to run it as.
    pub fn find() -> Result<PathBuf, PostgresError> {
        Installation::find().map(Installation::into_program)
    }

    /// Makes a data directory, starts a server on it and waits until it accepts connections.
    ///
    /// # Errors
    /// See [`PostgresError`].
    pub fn start(options: Options) -> Result<Self, PostgresError> {
        options.validate()?;
        let installation = Installation::find()?;
        let directory = installation.make_directory()?;
        installation.initdb(directory.path(), &options)?;
        let (process, port) = installation.start_on_free_port(directory.path(), &options)?;
        Ok(Postgres { process, directory, installation, options, port })
    }

    /// The TCP port on 127.0.0.1, the same for as long as this handle lives.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The postmaster's process id.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// The directory that holds data, log and socket.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The superuser's URL over TCP, to the database `postgres`.
    #[must_use]
    pub fn url(&self) -> String {
        url(&self.options, self.port)
    }

    /// The superuser's URL over the unix socket, to the database `postgres`.
    #[must_use]
    pub fn socket_url(&self) -> String {
        format!("{}?host={}", self.url(), self.directory.path().display())
    }

    /// A connection as superuser.
    ///
    /// # Errors
    /// The server is down or refuses.
    pub fn connect(&self) -> Result<BlockingClient, ClientError> {
        BlockingClient::connect(&self.url())
    }

    /// The server's version, such as `15.6 (Debian 15.6-0+deb12u1)`.
    ///
    /// # Errors
    /// The server is down or refuses.
    pub fn version(&self) -> Result<String, ClientError> {
        self.connect()?.value("SHOW server_version")
    }

    /// The values in force of the settings it was started with, and the isolation level of
    /// transactions that do not ask for one.
    ///
    /// # Errors
    /// The server is down.
    pub fn settings(&self) -> Result<Vec<(String, String)>, ClientError> {
        let own = self.options.settings.iter().map(|(name, _)| plain_name(name));
        let mut names: Vec<String> = own.filter(|name| name != ISOLATION).collect();
        names.push(ISOLATION.to_owned());
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.in_force(&names)
    }

    /// The values in force of the settings named, in that order.
    ///
    /// # Errors
    /// The server is down, or does not know one of them.
    pub fn in_force(&self, names: &[&str]) -> Result<Vec<(String, String)>, ClientError> {
        let mut client = self.connect()?;
        names
            .iter()
            .map(|name| {
                let value = client.value(&format!("SHOW \"{name}\""))?;
                Ok(((*name).to_owned(), value))
            })
            .collect()
    }

    /// Stops the server, breaking its connections, and starts it again on the same port.
    ///
    /// # Errors
    /// It does not come back; the handle then holds a server that is down.
    pub fn restart(&mut self) -> Result<(), PostgresError> {
        self.shut_down()?;
        self.process =
            self.installation.start_server(self.directory.path(), &self.options, self.port)?;
        Ok(())
    }

    /// Stops the server, breaking its connections, and removes its directory.
    ///
    /// # Errors
    /// The server's end could not be seen, or the directory not be removed.
    pub fn stop(mut self) -> Result<(), PostgresError> {
        self.shut_down()?;
        let path = self.directory.path().to_owned();
        self.directory.close().map_err(|source| PostgresError::Directory { path, source })
    }

    fn shut_down(&mut self) -> Result<(), PostgresError> {
        self.process.end(STOP_BOUND)?;
        Ok(())
    }
}

fn url(options: &Options, port: u16) -> String {
    Url {
        user: USER.to_owned(),
        password: options.authentication.password().map(str::to_owned),
        host: Host::Tcp("127.0.0.1".to_owned()),
        port,
        database: "postgres".to_owned(),
    }
    .with_password()
}

/// A port of 127.0.0.1 that nobody listened on a moment ago.
///
/// # Errors
/// The system has none.
pub fn free_port() -> io::Result<u16> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    Ok(TcpListener::bind(any)?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_password_survives_the_url() {
        let options = Options {
            authentication: Authentication::Md5("p@s:s/%?ü".into()),
            ..Options::default()
        };
        let url: Url = url(&options, 5432).parse().unwrap();
        assert_eq!(url.password.as_deref(), Some("p@s:s/%?ü"));
    }
}

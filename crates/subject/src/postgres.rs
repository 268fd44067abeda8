//! PostgreSQL: private servers, and [guests](Guest) on servers that somebody else runs.
//!
//! A private server has its own data directory and port, and a socket in its directory; see
//! [`crate::server`]. It refuses to run as root, so when we are root it runs as the first of the
//! users `postgres` and `nobody` that exists, and the directory is theirs. Nothing outside the
//! directory is touched: settings that say where files are and where the server listens are
//! [refused](crate::settings).

mod binaries;
mod guest;
mod installation;

use std::sync::Arc;
use std::time::Duration;

use tidegate_workload::Dialect;
use tidegate_workload::workload::Workload;

use crate::client::{BlockingClient, ClientError};
use crate::connection::{ask, on_tables};
use crate::database::{Clients, Database, DatabaseError, Dbms, Gate};
use crate::server::ServerProcess;
use crate::settings::{Reserved, SettingError, Settings, plain_name, refuse};
use crate::url::{PathPart, Protocol, Scheme, Socket};
pub use guest::Guest;
pub use installation::Installation;

/// See [`Dbms`].
pub static DBMS: Dbms = Dbms {
    name: "postgres",
    title: "PostgreSQL",
    dialect: Some(Dialect::Postgres),
    gate: Gate::Proxy,
    is_in_process: false,
    connections: Some("max_connections"),
    programs: &["postgres", "postmaster"],
    scheme: Some(&SCHEME),
    after_load: Some("VACUUM ANALYZE"),
    // Such as `15.6 (Debian 15.6-0+deb12u1)`.
    version: |session| ask(session, "SHOW server_version"),
    find: || Postgres::find().map(Some),
    validate: |settings| Options::new(settings).map(drop),
    start: |settings| Ok(Box::new(Postgres::start(Options::new(settings)?)?)),
    start_at: |url, settings| Ok(Box::new(Guest::make(url, settings.isolation()?)?)),
};

/// The form of its URLs.
pub static SCHEME: Scheme = Scheme {
    names: &["postgres", "postgresql"],
    form: "postgres://user[:password]@host:port/database",
    port: 5432,
    path: PathPart::DatabaseOfUser,
    socket: Some(Socket::Directory("host")),
    has_isolation: false,
    password_variable: "PGPASSWORD",
    protocol: Some(Protocol::Postgres),
};

/// The superuser of every server started here.
pub const USER: &str = "postgres";

/// Connections that a server has room for where nothing else is said: 1,000 clients, as many again
/// that a proxy beside them keeps from a time when its limit was higher, its own reserve, us.
pub const CONNECTIONS: &str = "2100";

/// The setting that holds the level of transactions that do not ask for one.
const ISOLATION: &str = "default_transaction_isolation";

const INSUFFICIENT_PRIVILEGE: &str = "42501";

/// Settings that are not the caller's to make.
const RESERVED: [&str; 9] = [
    "config_file",
    "data_directory",
    "external_pid_file",
    "hba_file",
    "ident_file",
    "listen_addresses",
    "log_directory",
    "port",
    "unix_socket_directories",
];

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
    /// The port of a private server whose standby this one is; its clients log in as there.
    pub standby_of: Option<u16>,
}

impl Options {
    /// Returns the options of an experiment's server.
    pub(crate) fn new(settings: &Settings) -> Result<Self, SettingError> {
        let mut named =
            settings.over(&[("max_connections", CONNECTIONS), ("shared_buffers", "256MB")]);
        if let Some(isolation) = settings.isolation()? {
            named.push((ISOLATION.to_owned(), isolation.to_string().to_lowercase()));
        }
        let options = Options { settings: named, ..Options::default() };
        options.validate()?;
        Ok(options)
    }

    /// Checks that the settings are the caller's to make, without starting anything.
    ///
    /// # Errors
    /// One of them is not.
    pub fn validate(&self) -> Result<(), Reserved> {
        refuse(&self.settings, |name| RESERVED.contains(&name))
    }
}

/// A running private server; dropping it stops it and removes its directory.
pub type Postgres = ServerProcess<Installation>;

impl Postgres {
    /// Returns the superuser's URL over TCP, to the database `postgres`.
    #[must_use]
    pub fn url(&self) -> String {
        self.program.url(self.port()).with_password()
    }

    /// Returns the superuser's URL over the unix socket, to the database `postgres`.
    #[must_use]
    pub fn socket_url(&self) -> String {
        format!("{}?host={}", self.url(), self.directory().display())
    }

    /// Connects as superuser.
    ///
    /// # Errors
    /// The server is down or refuses.
    pub fn connect(&self) -> Result<BlockingClient, ClientError> {
        BlockingClient::connect(&self.url())
    }

    /// Returns the values in force of the settings named, in that order.
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
}

impl Database for Postgres {
    fn dbms(&self) -> &'static Dbms {
        &DBMS
    }

    fn clients(&self) -> Clients<'_> {
        Clients::Server(self.program.url(self.port()))
    }

    fn level(&self, workloads: &[Arc<dyn Workload>]) -> Result<(), DatabaseError> {
        level(self.connect()?, workloads)
    }

    fn end_others(&self, _: Duration) -> Result<usize, DatabaseError> {
        let others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                      WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
        Ok(self.connect()?.query(others)?.len())
    }

    /// The settings that it was started with, and the isolation level of transactions that do not
    /// ask for one.
    fn settings(&self) -> Result<Vec<(String, String)>, DatabaseError> {
        let own = self.program.options.settings.iter().map(|(name, _)| plain_name(name));
        let mut names: Vec<String> = own.filter(|name| name != ISOLATION).collect();
        names.push(ISOLATION.to_owned());
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        Ok(self.in_force(&names)?)
    }

    fn process_id(&self) -> Option<u32> {
        Some(ServerProcess::process_id(self))
    }

    fn stop(self: Box<Self>) -> Result<(), DatabaseError> {
        ServerProcess::stop(*self)
    }
}

/// Clears dead versions of rows away and takes a checkpoint, for which a guest may have no right.
fn level(mut client: BlockingClient, workloads: &[Arc<dyn Workload>]) -> Result<(), DatabaseError> {
    on_tables(&mut client, "VACUUM", workloads)?;
    match client.query("CHECKPOINT") {
        Err(ClientError::Server(error)) if error.code == INSUFFICIENT_PRIVILEGE => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

//! The configuration as written, in `tidegate.toml` or by flags, and how it becomes a [`Config`].
//!
//! [`ConfigFile`] has a field for each key of the file, `None` where the file is silent. Flags are
//! put into the same fields, over the file's, so that both are judged by the same rules.
//! `docs/tidegate.toml` shows every key with its default.

use std::collections::{BTreeMap, HashMap};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;
use tidegate_control::{Algorithm, Bounds, BoundsError, ControlChoice, Mpl, Resources, Setting};
use tidegate_gate::ClassGoal;

use crate::config::{
    AuthQuery, ClientAuthentication, ClientTimeouts, ClientTls, Config, Control, Database,
    DatabaseLimits, HighPriority, ListenAddress, PoolMode, ServerHosts, SessionStateCheck,
    SessionStatePolicy, SslMode, Timeouts, TlsVersion, UserSettings, WatchLogin,
};
use crate::hba::{Hba, HbaError};
pub use crate::peers::{PeersError, PeersSection};
pub use crate::timeouts::ClientTimeoutsSection;
pub use crate::upstream_url::UpstreamUrl;
use crate::users::{Users, UsersError};

mod authentication;
mod values;

pub use values::{AdminAddress, OptionalPeriod, Period, PeriodOrOff, ValueError};

/// What holds where neither file nor flags say otherwise.
pub mod defaults {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};
    use std::num::NonZeroUsize;
    use std::time::Duration;

    use tidegate_control::Algorithm;

    use crate::config::{ClientTimeouts, PoolMode, Timeouts};

    /// Where clients connect.
    pub const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6432);
    /// One event loop: it keeps several cores' worth of database busy.
    pub const THREADS: NonZeroUsize = NonZeroUsize::MIN;
    /// As many clients as fit.
    pub const MODE: PoolMode = PoolMode::Transaction;
    /// The limit finds itself.
    pub const ALGORITHM: Algorithm = Algorithm::PairedComparison;
    /// The lowest limit.
    pub const MPL_MIN: u32 = 1;
    /// The highest limit.
    pub const MPL_MAX: u32 = 1000;
    /// The limit starts at this number of transactions for each processor of this machine: not
    /// far from right if the server has as many, and only a beginning if it has not.
    pub const MPL_START_PER_PROCESSOR: u32 = 2;
    /// Data disks of the server.
    pub const DISKS: u32 = 1;
    /// Looks a user up whose password has not expired. A view of those who may log in.
    pub const AUTH_QUERY: &str = "SELECT usename, \
        CASE WHEN valuntil < pg_catalog.now() THEN NULL ELSE passwd END \
        FROM pg_catalog.pg_shadow WHERE usename = $1";
    /// A server is not watched, because that takes one of its connections and a user.
    pub const WATCH: bool = false;
    /// Transactions that may wait for one server.
    pub const WAITING_MAX: usize = 100_000;
    /// Prepared statements kept on one upstream connection.
    pub const PREPARED_STATEMENTS_MAX: usize = 200;
    /// Seed of the controllers' draws: the same in every run, so that runs can be compared.
    pub const SEED: u64 = 1;
    /// Waiting times.
    pub const TIMEOUTS: Timeouts = Timeouts {
        client: ClientTimeouts {
            login: Duration::from_secs(15),
            queue: Some(Duration::from_secs(120)),
            // Half the time in the queue: who waits behind idle transactions still gets their turn.
            idle_in_transaction: Some(Duration::from_secs(60)),
            client_idle: None,
            transaction: None,
        },
        message: Duration::from_secs(30),
        connect: Duration::from_secs(5),
        abandoned: Duration::from_secs(5),
        server_idle: Duration::from_secs(60),
        server_lifetime: Some(Duration::from_secs(3600)),
        server_down: Duration::from_secs(30),
        health_check_after: Some(Duration::from_secs(30)),
        health_check: Duration::from_secs(2),
        unreachable: Some(Duration::from_secs(120)),
        shutdown_grace: Duration::from_secs(10),
    };
}

/// The configuration as written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConfigFile {
    /// Where this was read from; `None` is the command line.
    #[serde(skip)]
    pub path: Option<PathBuf>,
    /// Where clients connect.
    pub listen: Option<Vec<ListenAddress>>,
    /// Where `/metrics` and `/healthz` are served.
    pub admin_listen: Option<AdminAddress>,
    /// Event loops.
    pub threads: Option<NonZeroUsize>,
    /// How clients prove who they are.
    pub auth: Option<ClientAuthentication>,
    /// How connections of clients are encrypted.
    pub client_tls: ClientTlsSection,
    /// The user file.
    pub users_file: Option<PathBuf>,
    /// The file that says who may log in from where and how.
    pub auth_hba_file: Option<PathBuf>,
    /// The file with the maps of that file.
    pub auth_ident_file: Option<PathBuf>,
    /// Connections that have not logged in.
    pub max_logins: Option<NonZeroUsize>,
    /// Where decisions are appended.
    pub journal: Option<PathBuf>,
    /// Seed of the controllers' draws.
    pub seed: Option<u64>,
    /// Transactions that may wait for one server.
    pub waiting_max: Option<NonZeroUsize>,
    /// Prepared statements kept on one upstream connection.
    pub prepared_statements_max: Option<NonZeroUsize>,
    /// Clients at once.
    pub max_clients: Option<NonZeroU32>,
    /// Waiting times.
    pub timeouts: TimeoutsSection,
    /// Whose transactions go first.
    pub high_priority: HighPrioritySection,
    /// The instances that share clients with this one.
    pub peers: PeersSection,
    /// What is said of single users, by the name that clients give.
    pub users: BTreeMap<String, UserSection>,
    /// The databases by the name clients use; `*` serves every other name.
    pub databases: BTreeMap<String, DatabaseSection>,
}

/// The section `[timeouts]`; see [`Timeouts`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_docs, reason = "the fields are those of Timeouts")]
pub struct TimeoutsSection {
    pub login: Option<Period>,
    pub message: Option<Period>,
    pub queue: Option<OptionalPeriod>,
    pub idle_in_transaction: Option<OptionalPeriod>,
    pub client_idle: Option<OptionalPeriod>,
    pub transaction: Option<OptionalPeriod>,
    pub connect: Option<Period>,
    pub abandoned: Option<Period>,
    pub server_idle: Option<Period>,
    pub server_lifetime: Option<OptionalPeriod>,
    pub server_down: Option<PeriodOrOff>,
    pub health_check_after: Option<OptionalPeriod>,
    pub health_check: Option<Period>,
    pub unreachable: Option<OptionalPeriod>,
    pub shutdown_grace: Option<Period>,
}

/// A section `[users.NAME]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UserSection {
    /// Connections to servers as this user.
    pub max_connections: Option<NonZeroU32>,
    /// Clients that log in as this user.
    pub max_clients: Option<NonZeroU32>,
    /// The user's own bounds.
    pub timeouts: ClientTimeoutsSection,
}

/// The section `[client_tls]`; see [`ClientTls`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_docs, reason = "the fields are those of ClientTls")]
pub struct ClientTlsSection {
    pub mode: Option<SslMode>,
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    pub ca: Option<PathBuf>,
    pub min_version: Option<TlsVersion>,
    pub ciphers: Vec<String>,
}

/// The section `[high_priority]`; see [`HighPriority`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_docs, reason = "the fields are those of HighPriority")]
pub struct HighPrioritySection {
    pub users: Vec<String>,
    pub applications: Vec<String>,
}

/// A section `[databases.NAME]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatabaseSection {
    /// The server, the database there and whom to be.
    pub upstream: UpstreamUrl,
    /// Transaction or session pooling.
    pub mode: Option<PoolMode>,
    /// Connections to the server.
    pub max_connections: Option<NonZeroU32>,
    /// Connections to the server for this database.
    pub max_database_connections: Option<NonZeroU32>,
    /// Connections to the server for each user of this database.
    pub max_connections_per_user: Option<NonZeroU32>,
    /// Clients of this database.
    pub max_clients: Option<NonZeroU32>,
    /// Connections to the server that are kept open for each user of this database.
    pub min_connections: Option<u32>,
    /// The database's own bounds.
    #[serde(default)]
    pub timeouts: ClientTimeoutsSection,
    /// What becomes of session state that cannot follow a client in transaction mode.
    pub session_state: Option<SessionStatePolicy>,
    /// When session state is looked for in transaction mode.
    pub session_state_check: Option<SessionStateCheck>,
    /// Who chooses the limit.
    #[serde(default, deserialize_with = "values::written")]
    pub control: Option<ControlChoice>,
    /// The response time to keep for a class.
    #[serde(default, deserialize_with = "values::written")]
    pub keep: Option<ClassGoal>,
    /// The lowest limit.
    pub min_mpl: Option<NonZeroU32>,
    /// The highest limit.
    pub max_mpl: Option<NonZeroU32>,
    /// The limit before the first decision.
    pub start_mpl: Option<NonZeroU32>,
    /// The server's processors.
    pub cpus: Option<NonZeroU32>,
    /// The server's data disks; 0 when its data is all in memory.
    pub disks: Option<u32>,
    /// Whether the server is watched.
    pub watch: Option<bool>,
    /// The user that watches.
    pub watch_user: Option<String>,
    /// The password of that user.
    pub watch_password: Option<String>,
    /// The user that looks other users up.
    pub auth_user: Option<String>,
    /// The password of that user.
    pub auth_password: Option<String>,
    /// The query by which it does.
    pub auth_query: Option<String>,
    /// The database in which it does.
    pub auth_database: Option<String>,
}

impl DatabaseSection {
    /// Returns a database at `upstream` with everything else at its default.
    #[must_use]
    pub fn new(upstream: UpstreamUrl) -> DatabaseSection {
        DatabaseSection {
            upstream,
            mode: None,
            max_connections: None,
            max_database_connections: None,
            max_connections_per_user: None,
            max_clients: None,
            min_connections: None,
            timeouts: ClientTimeoutsSection::default(),
            session_state: None,
            session_state_check: None,
            control: None,
            keep: None,
            min_mpl: None,
            max_mpl: None,
            start_mpl: None,
            cpus: None,
            disks: None,
            watch: None,
            watch_user: None,
            watch_password: None,
            auth_user: None,
            auth_password: None,
            auth_query: None,
            auth_database: None,
        }
    }
}

/// A configuration that cannot be used: where it is written, and what is wrong.
#[derive(Debug, Error)]
#[error("{origin}: {problem}")]
pub struct ConfigError {
    /// The file, or `command line`.
    pub origin: String,
    /// What is wrong.
    pub problem: ConfigProblem,
}

/// What is wrong with a configuration.
#[derive(Debug, Error)]
pub enum ConfigProblem {
    /// The file cannot be read.
    #[error("cannot read it: {0}")]
    Read(#[from] std::io::Error),
    /// The file is not TOML, or has a key or a value that is not allowed.
    #[error("line {line}: {text}: {message}")]
    Toml {
        /// The line's number, from 1.
        line: usize,
        /// The line, without passwords.
        text: String,
        /// What is wrong with it.
        message: String,
    },
    /// There is nowhere to connect to.
    #[error("listen is empty: name an address, as in listen = [\"{}\"]", defaults::LISTEN)]
    NoListen,
    /// There is no database.
    #[error(
        "there is no database: add a section [databases.NAME], or [databases.\"*\"] for every \
         name, with upstream = \"postgres://host:port\""
    )]
    NoDatabase,
    /// A database without a name.
    #[error("a database's name is empty: \"*\" stands for every name")]
    EmptyDatabaseName,
    /// A database's limits exclude each other.
    #[error("databases.{database}: min_mpl and max_mpl: {error}")]
    Bounds {
        /// The database.
        database: String,
        /// How.
        error: BoundsError,
    },
    /// A database's limit begins outside its limits.
    #[error("databases.{database}: {key} = {start} is not between min_mpl = {} and max_mpl = {}",
        bounds.min(), bounds.max())]
    Start {
        /// The database.
        database: String,
        /// Which key says so.
        key: &'static str,
        /// Where it begins.
        start: Mpl,
        /// The limits.
        bounds: Bounds,
    },
    /// A limit that never moves, and another start.
    #[error(
        "databases.{database}: start_mpl has no meaning with control = \"{control}\", whose limit \
         never moves: remove it"
    )]
    FixedStart {
        /// The database.
        database: String,
        /// Who chooses the limit, as it is spelled.
        control: String,
    },
    /// A response time to keep where the limit is not set.
    #[error(
        "databases.{database}: keep = \"{keep}\" cannot be kept with control = \"{control}\", \
         which leaves the gate open: remove keep, or name the algorithm without observe"
    )]
    KeepObserving {
        /// The database.
        database: String,
        /// The response time, as it is spelled.
        keep: ClassGoal,
        /// Who would choose the limit, as it is spelled.
        control: String,
    },
    /// A server is to be watched, and no user is named for it.
    #[error(
        "databases.{0}: watch needs a user to log in as: name one in the upstream's URL, as in \
         postgres://user@host, or in watch_user (--watch-user USER)"
    )]
    WatchUser(String),
    /// An algorithm that goes by locks, where nothing is known of them.
    #[error(
        "databases.{database}: control = \"{control}\" goes by the locks that transactions hold, \
         which are known only of a server that is watched: set watch = true (--watch)"
    )]
    NotWatched {
        /// The database.
        database: String,
        /// Who chooses the limit, as it is spelled.
        control: String,
    },
    /// Two databases share a server but not its control.
    #[error(
        "databases.{first} and databases.{second} are on one server, {server}, which has one \
         limit: give both the same control, keep, min_mpl, max_mpl, start_mpl, cpus and \
         disks"
    )]
    ControlConflict {
        /// A database.
        first: String,
        /// Another database, on the same server.
        second: String,
        /// Their server.
        server: ServerHosts,
    },
    /// Two databases share a server but not the number of its connections.
    #[error(
        "databases.{first} and databases.{second} are on one server, {server}, which has one \
         number of connections: give both the same max_connections, or only one of them any"
    )]
    ConnectionsConflict {
        /// A database.
        first: String,
        /// Another database, on the same server.
        second: String,
        /// Their server.
        server: ServerHosts,
    },
    /// More connections would be kept open than there may be.
    #[error("databases.{database}: min_connections = {min} is more than {key} = {max}")]
    MinConnections {
        /// The database.
        database: String,
        /// The connections to keep open.
        min: u32,
        /// The key of the bound.
        key: &'static str,
        /// The bound.
        max: u32,
    },
    /// Connections would be kept open that no client could get.
    #[error(
        "databases.{0}: min_connections has no meaning with mode = \"session\", in which each \
         client opens a connection of its own: remove it"
    )]
    MinConnectionsOfSessions(String),
    /// Every client that reaches the proxy would be let in without an explicit setting.
    #[error(
        "listen = {0} can be reached from other machines and there is no users_file, so that \
         anybody would be let in: give users_file (--users-file FILE), or auth = \"trust\" \
         (--auth trust) if that is meant"
    )]
    OpenTrust(ListenAddress),
    /// Passwords are asked for and there is no user file.
    #[error(
        "{0} needs users_file (--users-file FILE), a file with lines of \"user\" \"password\", \
         or auth_user of a database, who looks users up; or auth = \"trust\" (--auth trust)"
    )]
    NoUsers(String),
    /// Clients are judged by an HBA file, which is not named.
    #[error("auth = \"hba\" needs auth_hba_file, a file in the format of pg_hba.conf")]
    NoHbaFile,
    /// An HBA file that is not used.
    #[error("{0} has a meaning with auth = \"hba\" only: set that, or remove it")]
    UnusedFile(&'static str),
    /// An HBA or ident file cannot be used.
    #[error(transparent)]
    Hba(#[from] HbaError),
    /// A key for looking users up without a user who does it.
    #[error("databases.{database}: {key} has no meaning without auth_user, who looks users up")]
    NoAuthUser {
        /// The database.
        database: String,
        /// The key.
        key: &'static str,
    },
    /// A query that asks for no user.
    #[error(
        "databases.{0}: auth_query has to ask for the user $1, as in SELECT usename, passwd FROM \
         pg_shadow WHERE usename = $1"
    )]
    AuthQueryParameter(String),
    /// The proxy has no client whose proof would let it log in.
    #[error(
        "databases.{database}: auth_user \"{user}\" has a SCRAM verifier in the users file, which \
         is no password: the proxy logs in as this user by itself, and no client proves it before. \
         Give the password in auth_password"
    )]
    AuthUserVerifier {
        /// The database.
        database: String,
        /// The user.
        user: String,
    },
    /// TLS is to be offered to clients, and a file for it is not named.
    #[error("client_tls.{missing} is missing: TLS with clients needs a certificate and its key")]
    ClientTlsFile {
        /// The key.
        missing: &'static str,
    },
    /// Certificates of clients are to be verified, and by what is not said.
    #[error(
        "client_tls.mode = \"{0}\" needs client_tls.ca, the authorities of clients' certificates"
    )]
    ClientTlsCa(SslMode),
    /// Logins by certificate, and no client is asked for one.
    #[error(
        "auth = \"cert\" needs certificates of clients: set client_tls.mode = \"verify-ca\" or \
         \"verify-full\" and client_tls.ca"
    )]
    CertificateLogin,
    /// The peers cannot be what is said.
    #[error(transparent)]
    Peers(#[from] PeersError),
    /// The user file cannot be used.
    #[error(transparent)]
    Users(#[from] UsersError),
}

impl ConfigFile {
    /// Reads the file at `path`. Paths in it are relative to its directory.
    ///
    /// # Errors
    /// It cannot be read or understood. What needs more than one key to be judged is left to
    /// [`ConfigFile::into_config`].
    pub fn read(path: &Path) -> Result<ConfigFile, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(ConfigProblem::Read);
        text.and_then(|text| Self::parse(&text, path))
            .map_err(|problem| ConfigError { origin: path.display().to_string(), problem })
    }

    fn parse(text: &str, path: &Path) -> Result<ConfigFile, ConfigProblem> {
        let mut file: ConfigFile =
            toml::from_str(text).map_err(|error| toml_problem(text, &error))?;
        let directory = path.parent().unwrap_or(Path::new(""));
        let ClientTlsSection { certificate, key, ca, .. } = &mut file.client_tls;
        let (hba, ident) = (&mut file.auth_hba_file, &mut file.auth_ident_file);
        let paths = [&mut file.users_file, hba, ident, &mut file.journal, certificate, key, ca];
        for path in paths.into_iter().flatten() {
            *path = directory.join(&*path);
        }
        for database in file.databases.values_mut() {
            database.upstream.tls.resolve_paths(directory);
        }
        file.path = Some(path.to_owned());
        Ok(file)
    }

    /// Returns the checked configuration.
    ///
    /// # Errors
    /// Keys contradict each other, a needed one is missing, or the user file cannot be used.
    pub fn into_config(self) -> Result<Config, ConfigError> {
        let origin = match &self.path {
            Some(path) => path.display().to_string(),
            None => "command line".to_owned(),
        };
        self.check().map_err(|problem| ConfigError { origin, problem })
    }

    fn check(self) -> Result<Config, ConfigProblem> {
        let listen = self.listen.unwrap_or_else(|| vec![ListenAddress::Tcp(defaults::LISTEN)]);
        if listen.is_empty() {
            return Err(ConfigProblem::NoListen);
        }
        let users = match &self.users_file {
            Some(path) => Users::load(path)?,
            None => Users::none()?,
        };
        let client_tls = self.client_tls.check()?;
        let known = authentication::KnownUsers::of(self.users_file.as_deref(), &self.databases);
        let authentication = authentication::method(self.auth, known, &listen)?;
        let are_verified = client_tls.as_ref().is_some_and(|tls| tls.mode >= SslMode::VerifyCa);
        if authentication == ClientAuthentication::Certificate && !are_verified {
            return Err(ConfigProblem::CertificateLogin);
        }
        let timeouts = self.timeouts.over(defaults::TIMEOUTS);
        let has_authority = client_tls.as_ref().is_some_and(|tls| tls.ca.is_some());
        let files = (self.auth_hba_file.as_deref(), self.auth_ident_file.as_deref());
        let hba = authentication::hba(authentication, files, known, has_authority)?;
        Ok(Config {
            listen,
            admin_listen: self.admin_listen.map(|AdminAddress(address)| address),
            threads: self.threads.unwrap_or(defaults::THREADS),
            databases: databases(self.databases, &users, timeouts.client)?,
            authentication,
            client_tls,
            max_clients: self.max_clients.map(NonZeroU32::get),
            users,
            hba,
            logins_max: self.max_logins,
            peers: self.peers.check()?,
            user_settings: user_settings(self.users),
            timeouts,
            waiting_max: self.waiting_max.map_or(defaults::WAITING_MAX, NonZeroUsize::get),
            prepared_statements_max: self
                .prepared_statements_max
                .map_or(defaults::PREPARED_STATEMENTS_MAX, NonZeroUsize::get),
            high_priority: HighPriority {
                users: self.high_priority.users,
                applications: self.high_priority.applications,
            },
            journal: self.journal,
            seed: self.seed.unwrap_or(defaults::SEED),
        })
    }
}

impl ClientTlsSection {
    /// Returns how TLS is offered to clients, if it is.
    fn check(self) -> Result<Option<ClientTls>, ConfigProblem> {
        let is_named = self.certificate.is_some() || self.key.is_some() || self.ca.is_some();
        let mode = self.mode.unwrap_or(if is_named { SslMode::Prefer } else { SslMode::Disable });
        if mode == SslMode::Disable {
            return Ok(None);
        }
        if mode >= SslMode::VerifyCa && self.ca.is_none() {
            return Err(ConfigProblem::ClientTlsCa(mode));
        }
        let named =
            |path: Option<PathBuf>, missing| path.ok_or(ConfigProblem::ClientTlsFile { missing });
        Ok(Some(ClientTls {
            mode,
            certificate: named(self.certificate, "certificate")?,
            key: named(self.key, "key")?,
            ca: self.ca,
            min_version: self.min_version.unwrap_or_default(),
            ciphers: self.ciphers,
        }))
    }
}

impl TimeoutsSection {
    /// These times, and those of `defaults` where there are none.
    fn over(self, defaults: Timeouts) -> Timeouts {
        let period = |own: Option<Period>, default| own.map_or(default, |Period(time)| time);
        let patience =
            |own: Option<OptionalPeriod>, default| own.map_or(default, |OptionalPeriod(time)| time);
        Timeouts {
            client: ClientTimeoutsSection {
                login: self.login,
                queue: self.queue,
                idle_in_transaction: self.idle_in_transaction,
                client_idle: self.client_idle,
                transaction: self.transaction,
            }
            .over(defaults.client),
            message: period(self.message, defaults.message),
            connect: period(self.connect, defaults.connect),
            abandoned: period(self.abandoned, defaults.abandoned),
            server_idle: period(self.server_idle, defaults.server_idle),
            server_lifetime: patience(self.server_lifetime, defaults.server_lifetime),
            server_down: self.server_down.map_or(defaults.server_down, |PeriodOrOff(time)| time),
            health_check_after: patience(self.health_check_after, defaults.health_check_after),
            health_check: period(self.health_check, defaults.health_check),
            unreachable: patience(self.unreachable, defaults.unreachable),
            shutdown_grace: period(self.shutdown_grace, defaults.shutdown_grace),
        }
    }
}

/// Returns the line an error of the TOML reader points at, in one line and without passwords.
fn toml_problem(text: &str, error: &toml::de::Error) -> ConfigProblem {
    // An error about the whole file has no span; one at its end is behind the last line.
    let start = error.span().map_or(0, |span| span.start);
    let line = text.bytes().take(start).filter(|&byte| byte == b'\n').count();
    let shown = text.lines().nth(line).unwrap_or_default().trim();
    let hidden = ["://", "watch_password", "auth_password"];
    let hidden = hidden.into_iter().find_map(|what| Some((shown.split_once(what)?.0, what)));
    let shown = hidden.map_or(shown.to_owned(), |(before, what)| format!("{before}{what}…"));
    let message = error.message().trim().replace('\n', ", ");
    ConfigProblem::Toml { line: line + 1, text: shown, message }
}

/// Returns whether other machines can reach an address.
fn is_open(address: &ListenAddress) -> bool {
    match address {
        ListenAddress::Tcp(address) => !address.ip().to_canonical().is_loopback(),
        ListenAddress::Unix(_) => false,
    }
}

/// Returns what is said of users; a section that says nothing is left out.
fn user_settings(sections: BTreeMap<String, UserSection>) -> HashMap<String, UserSettings> {
    let settings = |(name, UserSection { max_connections, max_clients, timeouts })| {
        let max_connections = max_connections.map(NonZeroU32::get);
        let max_clients = max_clients.map(NonZeroU32::get);
        (name, UserSettings { max_connections, max_clients, timeouts })
    };
    let says_something = |(_, settings): &(_, UserSettings)| *settings != UserSettings::default();
    sections.into_iter().map(settings).filter(says_something).collect()
}

fn databases(
    sections: BTreeMap<String, DatabaseSection>,
    users: &Users,
    timeouts: ClientTimeouts,
) -> Result<Vec<Database>, ConfigProblem> {
    if sections.is_empty() {
        return Err(ConfigProblem::NoDatabase);
    }
    let mut controls: HashMap<ServerHosts, (String, Control)> = HashMap::new();
    let mut connections: HashMap<ServerHosts, (String, u32)> = HashMap::new();
    let mut databases = Vec::with_capacity(sections.len());
    for (name, section) in sections {
        let database = database(&name, section, users, timeouts)?;
        match controls.get(&database.server) {
            Some((first, control)) if *control != database.control => {
                let (first, server) = (first.clone(), database.server);
                return Err(ConfigProblem::ControlConflict { first, second: name, server });
            }
            Some(_) => {}
            None => {
                controls.insert(database.server.clone(), (name.clone(), database.control));
            }
        }
        if let Some(max) = database.limits.max_connections {
            let server = database.server.clone();
            let (first, other) = connections.entry(server).or_insert((name.clone(), max));
            if *other != max {
                let (first, server) = (first.clone(), database.server);
                return Err(ConfigProblem::ConnectionsConflict { first, second: name, server });
            }
        }
        databases.push((name, database));
    }
    let watched = |server: &ServerHosts| {
        databases.iter().any(|(_, other)| other.server == *server && other.watch.is_some())
    };
    for (name, Database { control, server, .. }) in &databases {
        if control.algorithm.needs_locks() && !watched(server) {
            let (database, control) = (name.clone(), control.choice().to_string());
            return Err(ConfigProblem::NotWatched { database, control });
        }
    }
    Ok(databases.into_iter().map(|(_, database)| database).collect())
}

fn database(
    name: &str,
    section: DatabaseSection,
    users: &Users,
    timeouts: ClientTimeouts,
) -> Result<Database, ConfigProblem> {
    if name.is_empty() {
        return Err(ConfigProblem::EmptyDatabaseName);
    }
    let control = control(name, &section)?;
    let watch = watch(name, &section)?;
    let limits = limits(name, &section)?;
    let auth_query = authentication::auth_query(name, &section, users)?;
    Ok(Database {
        name: (name != "*").then(|| name.to_owned()),
        server: section.upstream.server,
        tls: section.upstream.tls,
        server_database: section.upstream.database,
        server_user: section.upstream.user,
        server_password: section.upstream.password,
        mode: section.mode.unwrap_or(defaults::MODE),
        limits,
        timeouts: section.timeouts.over(timeouts),
        session_state: section.session_state.unwrap_or_default(),
        session_state_check: section.session_state_check.unwrap_or_default(),
        control,
        watch,
        auth_query,
    })
}

/// Returns how many connections there may be for a database.
fn limits(name: &str, section: &DatabaseSection) -> Result<DatabaseLimits, ConfigProblem> {
    let limits = DatabaseLimits {
        max_connections: section.max_connections.map(NonZeroU32::get),
        max_database_connections: section.max_database_connections.map(NonZeroU32::get),
        max_connections_per_user: section.max_connections_per_user.map(NonZeroU32::get),
        max_clients: section.max_clients.map(NonZeroU32::get),
        min_connections: section.min_connections.unwrap_or(0),
    };
    let min = limits.min_connections;
    if min > 0 && section.mode == Some(PoolMode::Session) {
        return Err(ConfigProblem::MinConnectionsOfSessions(name.to_owned()));
    }
    let bounds = [
        ("max_connections", limits.max_connections),
        ("max_database_connections", limits.max_database_connections),
        ("max_connections_per_user", limits.max_connections_per_user),
    ];
    for (key, max) in bounds {
        if let Some(max) = max.filter(|&max| min > max) {
            return Err(ConfigProblem::MinConnections { database: name.to_owned(), min, key, max });
        }
    }
    Ok(limits)
}

/// Whom to be to watch the server, if it is to be watched: a user of its own, or the upstream's.
fn watch(name: &str, section: &DatabaseSection) -> Result<Option<WatchLogin>, ConfigProblem> {
    if !section.watch.unwrap_or(defaults::WATCH) {
        return Ok(None);
    }
    let upstream = &section.upstream;
    let user = section.watch_user.as_ref().or(upstream.user.as_ref());
    let user = user.ok_or_else(|| ConfigProblem::WatchUser(name.to_owned()))?.clone();
    let upstream_password =
        upstream.password.as_ref().filter(|_| upstream.user.as_ref() == Some(&user));
    let password = section.watch_password.as_ref().or(upstream_password).cloned();
    Ok(Some(WatchLogin { user, password }))
}

fn control(name: &str, section: &DatabaseSection) -> Result<Control, ConfigProblem> {
    let level =
        |own: Option<NonZeroU32>, default| Mpl::at_least_one(own.map_or(default, NonZeroU32::get));
    let min = level(section.min_mpl, defaults::MPL_MIN);
    // Only a highest limit that somebody wrote can be too low.
    let max = level(section.max_mpl, defaults::MPL_MAX.max(min.get()));
    let bounds = Bounds::new(min, max)
        .map_err(|error| ConfigProblem::Bounds { database: name.to_owned(), error })?;
    let choice = section.control.unwrap_or(defaults::ALGORITHM.into());
    let ControlChoice { algorithm, is_observing } = choice;
    let resources = Resources {
        cpus: section.cpus.map_or_else(processors, NonZeroU32::get),
        disks: section.disks.unwrap_or(defaults::DISKS),
    };
    let is_fixed = is_observing || matches!(algorithm, Algorithm::Fixed(_));
    if is_fixed && section.start_mpl.is_some() {
        let database = name.to_owned();
        return Err(ConfigProblem::FixedStart { database, control: choice.to_string() });
    }
    let (key, start) = match (algorithm, section.start_mpl) {
        (Algorithm::Fixed(limit), _) => ("control = fixed:N, N", limit),
        (_, Some(start)) => ("start_mpl", Mpl::at_least_one(start.get())),
        (_, None) => {
            let start = algorithm.own_start(resources).unwrap_or_else(default_start);
            ("start_mpl", bounds.clamp(start))
        }
    };
    if bounds.clamp(start) != start {
        return Err(ConfigProblem::Start { database: name.to_owned(), key, start, bounds });
    }
    let keep = section.keep;
    if let (true, Some(keep)) = (is_observing, keep) {
        let (database, control) = (name.to_owned(), choice.to_string());
        return Err(ConfigProblem::KeepObserving { database, keep, control });
    }
    Ok(Control { algorithm, is_observing, keep, setting: Setting { bounds, start, resources } })
}

fn default_start() -> Mpl {
    Mpl::at_least_one(processors().saturating_mul(defaults::MPL_START_PER_PROCESSOR))
}

/// Returns the number of this machine's processors; 1 if the system does not tell.
fn processors() -> u32 {
    let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    u32::try_from(processors).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;

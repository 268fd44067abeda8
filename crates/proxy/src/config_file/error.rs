//! What is wrong with a configuration, and what to do.

use thiserror::Error;
use tidegate_control::{Bounds, BoundsError, Mpl};
use tidegate_gate::{ClassGoalError, ClassesError};

use super::{PeersError, defaults};
use crate::config::{ListenAddress, ServerHosts, SslMode};
use crate::hba::HbaError;
use crate::network::NetworkError;
use crate::users::UsersError;

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
        /// Which of them exclude each other.
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
        keep: String,
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
    /// The classes cannot be what is said.
    #[error(transparent)]
    Classes(#[from] ClassesError),
    /// A class is named that there is not.
    #[error(
        "there is no class {class}: the classes are {known}. List all in their order, as in \
         [scheduling] classes = [\"high\", \"normal\", \"batch\"]"
    )]
    UnknownClass {
        /// The name.
        class: String,
        /// The names that there are.
        known: String,
    },
    /// One and the same belongs to two classes.
    #[error(
        "classes.{first}.{kind} and classes.{second}.{kind} both have {value:?}: it can belong to \
         one class only"
    )]
    TwoClasses {
        /// The key.
        kind: &'static str,
        /// What it names.
        value: String,
        /// A class.
        first: String,
        /// Another class.
        second: String,
    },
    /// The short form for the class `high` where there is no such class.
    #[error(
        "[high_priority] is short for users and applications of [classes.high], and there is no \
         class high: write them there where they belong"
    )]
    NoHighClass,
    /// A response time to keep for a class that there is not.
    #[error("databases.{database}: keep: {error}")]
    Keep {
        /// The database.
        database: String,
        /// What is wrong.
        error: Box<ClassGoalError>,
    },
    /// An address of a class is none.
    #[error("addresses of a class: {0}")]
    Network(#[from] NetworkError),
    /// The user file cannot be used.
    #[error(transparent)]
    Users(#[from] UsersError),
}

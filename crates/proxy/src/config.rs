//! The proxy's configuration in its checked form.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use tidegate_gate::Control;

use crate::hba::Hba;
use crate::scheduling::Scheduling;
use crate::timeouts::ClientTimeoutsSection;
use crate::users::Users;

pub use crate::peers::Peers;
pub use crate::timeouts::ClientTimeouts;
pub use crate::tls::settings::{
    ChannelBindingMode, ClientTls, Negotiation, RootCertificates, ServerTls, SslMode, TlsVersion,
};

/// Where clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// A TCP address; port 0 takes a free one.
    Tcp(SocketAddr),
    /// The path of a Unix-domain socket.
    Unix(PathBuf),
}

/// Where a database server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ServerAddress {
    /// Host name or address, and port.
    Tcp(String, u16),
    /// The path of the server's socket, `.s.PGSQL.<port>` included.
    Unix(PathBuf),
}

impl ServerAddress {
    /// Returns whether it is a name whose meaning may change.
    pub(crate) fn is_named(&self) -> bool {
        match self {
            ServerAddress::Tcp(host, _) => host.parse::<std::net::IpAddr>().is_err(),
            ServerAddress::Unix(_) => false,
        }
    }
}

/// Which of several hosts may be used, in libpq's words for `target_session_attrs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SessionAttributes {
    /// Every host.
    #[default]
    Any,
    /// A host that accepts writing transactions unless told otherwise.
    ReadWrite,
    /// A host that does not.
    ReadOnly,
    /// A host that is no standby.
    Primary,
    /// A standby.
    Standby,
    /// A standby, or any host if there is none.
    PreferStandby,
}

/// How connections are spread over several hosts, in libpq's words for `load_balance_hosts`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LoadBalance {
    /// One host is in use at a time.
    #[default]
    Disable,
    /// Each connection goes to a host chosen at random.
    Random,
}

/// The hosts of a database server: copies of one another, of which one is used at a time, or all.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerHosts {
    /// The hosts in the order in which they are tried; at least one.
    pub hosts: Vec<ServerAddress>,
    /// Which of them may be used.
    pub attributes: SessionAttributes,
    /// How connections are spread over them.
    pub balance: LoadBalance,
}

impl From<ServerAddress> for ServerHosts {
    fn from(host: ServerAddress) -> ServerHosts {
        let (attributes, balance) = (SessionAttributes::Any, LoadBalance::Disable);
        ServerHosts { hosts: vec![host], attributes, balance }
    }
}

/// How long an upstream connection belongs to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolMode {
    /// While a transaction runs.
    Transaction,
    /// As long as the client stays; only the right to run a transaction is rationed.
    Session,
}

/// What becomes of session state that cannot follow a client in transaction mode: temporary tables,
/// LISTEN, session-level advisory locks and the like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionStatePolicy {
    /// The client keeps its connection until the state is gone.
    #[default]
    Pin,
    /// The state is removed after the transaction; the client and the log are told.
    Warn,
    /// A statement that would make it fails. What is noticed too late is treated as with `Warn`.
    Refuse,
}

/// After which transactions of transaction mode the session is asked for its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionStateCheck {
    /// After those whose statements can change it, as far as their text tells.
    #[default]
    Noticed,
    /// After every transaction, for what functions do inside.
    Always,
}

/// A database that clients can ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Database {
    /// The name clients use; `None` serves every name that no other entry has.
    pub name: Option<String>,
    /// The server it is on. Databases on one server share one gate and one limit.
    pub server: ServerHosts,
    /// How connections to the server are encrypted.
    pub tls: ServerTls,
    /// Its name on the server; `None` is the name the client used.
    pub server_database: Option<String>,
    /// The user to be on the server; `None` is the client's user.
    pub server_user: Option<String>,
    /// The password for `server_user`; otherwise the user file's.
    pub server_password: Option<String>,
    /// Transaction or session pooling.
    pub mode: PoolMode,
    /// How many connections there may be, and how many are kept open.
    pub limits: DatabaseLimits,
    /// How long its clients may take.
    pub timeouts: ClientTimeouts,
    /// What becomes of session state that cannot follow a client.
    pub session_state: SessionStatePolicy,
    /// When session state is looked for.
    pub session_state_check: SessionStateCheck,
    /// How the server's limit is found.
    pub control: Control,
    /// Whom to be to watch the server; `None` does not watch it. The first database of a server
    /// that has it decides.
    pub watch: Option<WatchLogin>,
    /// How users are looked up on the server who are not in the user file; `None` knows no others.
    pub auth_query: Option<AuthQuery>,
}

/// How the proxy asks a server for the secrets of users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthQuery {
    /// The user who asks.
    pub user: String,
    /// That user's password; otherwise the user file's.
    pub password: Option<String>,
    /// The database in which the query runs; `None` is the database that is served.
    pub database: Option<String>,
    /// The query: from the user's name, `$1`, to rows of a name and a secret.
    pub sql: String,
}

impl Database {
    /// Returns the name under which a client's database is counted, shown and given orders, where
    /// the client asks for `asked`: that of the entry, or of the server's database for the entry
    /// that serves every name.
    pub(crate) fn shown_name<'a>(&'a self, asked: &'a str) -> &'a str {
        self.name.as_deref().or(self.server_database.as_deref()).unwrap_or(asked)
    }

    /// Returns its key in the configuration.
    pub(crate) fn key(&self) -> &str {
        self.name.as_deref().unwrap_or("*")
    }
}

/// How many connections there may be for a database, and how many are kept open. `None` is no
/// bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatabaseLimits {
    /// Connections to the server, of all its databases; `None` is what the server says.
    pub max_connections: Option<u32>,
    /// Connections to the server for the database.
    pub max_database_connections: Option<u32>,
    /// Connections to the server for each user of the database.
    pub max_connections_per_user: Option<u32>,
    /// Clients of the database.
    pub max_clients: Option<u32>,
    /// Connections to the server that are kept open for each user of the database.
    pub min_connections: u32,
}

/// Whom the proxy is on a server that it watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchLogin {
    /// The user.
    pub user: String,
    /// The password; otherwise the user file's.
    pub password: Option<String>,
}

/// How clients prove who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAuthentication {
    /// They do not.
    Trust,
    /// By an MD5 hash of the password.
    Md5,
    /// By SCRAM-SHA-256, bound to the proxy's certificate where client and TLS allow it.
    ScramSha256,
    /// By a certificate whose common name is the user.
    Certificate,
    /// As the HBA file says.
    Hba,
}

/// How long the proxy waits, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For clients, where neither their user nor their database has a bound of its own.
    pub client: ClientTimeouts,
    /// For the rest of a message whose beginning has arrived.
    pub message: Duration,
    /// Until an upstream connection is established and authenticated.
    pub connect: Duration,
    /// For the end of a transaction whose client has gone, after its cancel request.
    pub abandoned: Duration,
    /// How long an unused upstream connection is kept.
    pub server_idle: Duration,
    /// How old an upstream connection grows before it is replaced; `None` keeps it for ever.
    pub server_lifetime: Option<Duration>,
    /// How long transactions and logins that have sent nothing wait for a server that cannot be
    /// reached; zero fails them at once.
    pub server_down: Duration,
    /// An upstream connection that has not been used for so long is checked before it is lent;
    /// `None` checks none.
    pub health_check_after: Option<Duration>,
    /// For the answer to such a check.
    pub health_check: Duration,
    /// How long a silent TCP peer may leave keep-alive probes unanswered before its connection is
    /// ended; `None` leaves it to the system, which waits for hours.
    pub unreachable: Option<Duration>,
    /// For load balancers to send no more clients, before a shutdown begins: meanwhile new clients
    /// are served.
    pub drain_delay: Duration,
    /// For running transactions to end after the order to shut down.
    pub shutdown_grace: Duration,
}

/// What is said of one user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserSettings {
    /// Connections to servers as this user; `None` is no bound.
    pub max_connections: Option<u32>,
    /// Clients that log in as this user; `None` is no bound.
    pub max_clients: Option<u32>,
    /// The user's own bounds, which go before those of a database.
    pub timeouts: ClientTimeoutsSection,
}

/// The form of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// An object in each line.
    Json,
    /// For the journal of systemd: each line begins with its priority.
    Journald,
}

impl LogFormat {
    /// All forms.
    pub const ALL: [LogFormat; 3] = [LogFormat::Text, LogFormat::Json, LogFormat::Journald];
}

/// Everything the proxy is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where clients connect; at least one.
    pub listen: Vec<ListenAddress>,
    /// Where `/metrics`, `/healthz` and `/readyz` are served.
    pub admin_listen: Option<SocketAddr>,
    /// The file with the token for orders there; without one it only shows.
    pub admin_token_file: Option<PathBuf>,
    /// Host names by which browsers may ask for the page, beside addresses and those of this
    /// machine.
    pub admin_hosts: Vec<String>,
    /// The form of the log; `None` is what fits where it goes.
    pub log_format: Option<LogFormat>,
    /// Event loops, each on a thread of its own.
    pub threads: NonZeroUsize,
    /// The databases; at least one, names distinct.
    pub databases: Vec<Database>,
    /// How clients prove who they are.
    pub authentication: ClientAuthentication,
    /// How connections of clients are encrypted; `None` does not offer it.
    pub client_tls: Option<ClientTls>,
    /// Users who may do everything in the console.
    pub admin_users: Vec<String>,
    /// Users who may look at everything in the console.
    pub stats_users: Vec<String>,
    /// The user file's contents.
    pub users: Users,
    /// Clients at once; `None` is as many as there are file descriptors for.
    pub max_clients: Option<u32>,
    /// The instances that share clients with this one.
    pub peers: Peers,
    /// What is said of single users, by the name that clients give.
    pub user_settings: HashMap<String, UserSettings>,
    /// The HBA file's contents, where clients prove who they are as it says.
    pub hba: Option<Hba>,
    /// Connections that have not logged in, at most; `None` is derived from the number of files
    /// that the process may open.
    pub logins_max: Option<NonZeroUsize>,
    /// Waiting times.
    pub timeouts: Timeouts,
    /// Transactions that may wait at one gate.
    pub waiting_max: usize,
    /// Prepared statements kept on one upstream connection in transaction mode.
    pub prepared_statements_max: usize,
    /// The classes of transactions, and which transaction is of which.
    pub scheduling: Arc<Scheduling>,
    /// Where each control decision is appended as a JSON line; see [`tidegate_gate::journal`].
    pub journal: Option<PathBuf>,
    /// Seed of the controllers' draws.
    pub seed: u64,
}

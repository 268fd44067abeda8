//! The sections of the file, a field for each key.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

use serde::Deserialize;
use tidegate_control::ControlChoice;
use tidegate_gate::{ClassGoal, Policy, WaitingOrder};

use super::{
    AdminAddress, ClientTimeoutsSection, OptionalPeriod, PeersSection, Period, PeriodOrOff,
    UpstreamUrl, values,
};
use crate::config::{
    ClientAuthentication, ListenAddress, LogFormat, PoolMode, SessionStateCheck,
    SessionStatePolicy, SslMode, TlsVersion,
};
use crate::scheduling::ClassChoice;

/// The configuration as written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConfigFile {
    /// Where this was read from; `None` is the command line.
    #[serde(skip)]
    pub path: Option<PathBuf>,
    /// Where clients connect.
    pub listen: Option<Vec<ListenAddress>>,
    /// Where `/metrics`, `/healthz` and `/readyz` are served.
    pub admin_listen: Option<AdminAddress>,
    /// The file with the token for orders there.
    pub admin_token_file: Option<PathBuf>,
    /// Host names by which browsers may ask for the page.
    pub admin_hosts: Vec<String>,
    /// The form of the log.
    pub log_format: Option<LogFormat>,
    /// Event loops.
    pub threads: Option<NonZeroUsize>,
    /// How clients prove who they are.
    pub auth: Option<ClientAuthentication>,
    /// Users who may do everything in the console.
    pub admin_users: Vec<String>,
    /// Users who may look at everything in the console.
    pub stats_users: Vec<String>,
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
    /// Whose transactions are of the class `high`, in short.
    pub high_priority: HighPrioritySection,
    /// Which class goes next.
    pub scheduling: SchedulingSection,
    /// The classes by their names.
    pub classes: BTreeMap<String, ClassSection>,
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
    pub drain_delay: Option<PeriodOrOff>,
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
    /// Permits that the user can have before all others.
    pub min_permits: Option<u32>,
    /// Permits that the user's transactions hold at most.
    pub max_permits: Option<NonZeroU32>,
    /// Which class the user's clients may choose.
    pub class_choice: Option<ClassChoice>,
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

/// The section `[high_priority]`: what `[classes.high]` may say too.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HighPrioritySection {
    /// Users, as the client names itself.
    pub users: Vec<String>,
    /// Values of `application_name`.
    pub applications: Vec<String>,
}

/// The section `[scheduling]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SchedulingSection {
    /// Which class goes next when several wait.
    #[serde(deserialize_with = "values::written")]
    pub policy: Option<Policy>,
    /// The classes, the first of which goes first.
    pub classes: Option<Vec<String>>,
    /// The class of transactions to which no rule applies.
    pub default_class: Option<String>,
    /// Which class clients may choose.
    pub class_choice: Option<ClassChoice>,
}

/// A section `[classes.NAME]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClassSection {
    /// Its share of permits in relation to those of other classes.
    pub weight: Option<NonZeroU32>,
    /// After this time in the queue a transaction goes before all others.
    pub ageing: Option<OptionalPeriod>,
    /// Permits that it can have before all others.
    pub min_permits: Option<u32>,
    /// Permits that its transactions hold at most.
    pub max_permits: Option<NonZeroU32>,
    /// Its transactions that may wait.
    pub waiting_max: Option<u32>,
    /// Which of its transactions goes next.
    #[serde(deserialize_with = "values::written")]
    pub order: Option<WaitingOrder>,
    /// Within which time a transaction has to be done.
    pub deadline: Option<OptionalPeriod>,
    /// Users whose transactions are of this class.
    pub users: Vec<String>,
    /// Databases whose transactions are.
    pub databases: Vec<String>,
    /// Values of `application_name`.
    pub applications: Vec<String>,
    /// Where the clients are: addresses and networks.
    pub addresses: Vec<String>,
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
    /// Permits that the database can have before all others.
    pub min_permits: Option<u32>,
    /// Permits that the database's transactions hold at most.
    pub max_permits: Option<NonZeroU32>,
    /// Which class clients of the database may choose.
    pub class_choice: Option<ClassChoice>,
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
            min_permits: None,
            max_permits: None,
            class_choice: None,
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

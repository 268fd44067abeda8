//! What two processes tell each other: frames, and what they say of clients and connections.
//!
//! Times are microseconds before the frame was made. The form is JSON, so that a later version may
//! add fields (with a default) without a new [`VERSION`].

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tidegate_wire::startup::CancelKey;

use crate::config::{ListenAddress, PoolMode};
use crate::net::Origin;
use crate::settings::Settings;

/// Changes when the other process could misunderstand a frame.
pub(crate) const VERSION: u32 = 1;

/// What the old process says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Told {
    /// The first frame, with the listening sockets in their order.
    Hello(Box<Hello>),
    /// It grants no permits any more and accepts no clients.
    Begin(Vec<Held>),
    /// What it still holds has changed.
    Held(Vec<Held>),
    /// A statement of clients that follow.
    Statement { worker: usize, statement: StatementRecord },
    /// A client, with its socket, and that of its connection if it has one.
    Client { worker: usize, number: u64, client: Box<ClientRecord> },
    /// A connection at rest that no client has, with its socket.
    Upstream { worker: usize, number: u64, upstream: Box<UpstreamRecord> },
    /// A cancel request for a client of the other process, with the socket that it comes by.
    Connection,
    /// It has nothing left.
    Done,
}

/// What the new process says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// It can serve.
    Ready,
    /// It cannot, and ends.
    Failed { reason: String },
    /// What was passed with this number is its own.
    Adopted { number: u64 },
    /// As [`Told::Connection`].
    Connection,
    /// It is stopped by its administrator: the old process is to stop too.
    Stopping,
}

/// What there is beside clients and connections.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) version: u32,
    pub(crate) generation: u64,
    /// What each listening socket is: as configured, and as taken.
    pub(crate) listeners: Vec<(Address, Address)>,
    /// As configured; its socket is the last.
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) servers: Vec<ServerRecord>,
    pub(crate) orders: OrdersRecord,
}

/// A [`ListenAddress`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl From<&ListenAddress> for Address {
    fn from(address: &ListenAddress) -> Address {
        match address {
            ListenAddress::Tcp(address) => Address::Tcp(*address),
            ListenAddress::Unix(path) => Address::Unix(path.clone()),
        }
    }
}

impl From<Address> for ListenAddress {
    fn from(address: Address) -> ListenAddress {
        match address {
            Address::Tcp(address) => ListenAddress::Tcp(address),
            Address::Unix(path) => ListenAddress::Unix(path),
        }
    }
}

/// What was learnt of a server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ServerRecord {
    pub(crate) name: String,
    /// The controller, as flags spell it: another one begins anew.
    pub(crate) control: String,
    pub(crate) limit: u32,
    /// What the server has said of its connections.
    pub(crate) connections_max: Option<u32>,
}

/// The orders of an administrator that are in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OrdersRecord {
    /// All databases are paused, or suspended.
    pub(crate) all: Option<HoldRecord>,
    pub(crate) paused: Vec<String>,
    pub(crate) disabled: Vec<String>,
}

/// A hold of all databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum HoldRecord {
    Paused,
    Suspended,
}

/// What the old process has of a server's limit and connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Held {
    pub(crate) server: String,
    /// Permits that count.
    pub(crate) permits: u32,
    pub(crate) connections: u32,
}

/// A statement that clients have prepared.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StatementRecord {
    pub(crate) id: u64,
    /// `None` is one too long to be kept.
    pub(crate) definition: Option<Bytes>,
    pub(crate) search_path: Option<String>,
    pub(crate) is_accepted: bool,
}

/// Where a client stands.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Phase {
    /// It has sent nothing.
    New,
    /// It has proved who it is, and awaits the server's parameters.
    AwaitingParameters(Box<AccountRecord>),
    /// It has no transaction.
    Idle(Box<AccountRecord>),
    /// Its transaction was refused: the rest of its batch is discarded.
    Refused { account: Box<AccountRecord>, batch_ends: bool },
    /// It is a client of the console.
    Console { user: String, may_order: bool },
}

/// A client.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ClientRecord {
    pub(crate) phase: Phase,
    pub(crate) key: KeyRecord,
    pub(crate) connected_us: u64,
    /// Since when its login is awaited, or when its last transaction was asked for.
    pub(crate) asked_us: u64,
    /// It has asked for the transaction that begins in its inbox; its time in the queue goes on.
    pub(crate) has_asked: bool,
    /// Since when the rest of a message is awaited.
    pub(crate) mid_message_us: Option<u64>,
    /// Since when it is idle outside a transaction, as far as sweeps have found it so.
    pub(crate) idle_us: Option<u64>,
    /// Received and not handled.
    pub(crate) inbox: Bytes,
    /// Not sent yet.
    pub(crate) outbox: Bytes,
    /// Set if the old process does its TLS.
    pub(crate) origin: Option<Origin>,
}

/// A cancel key.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct KeyRecord {
    pub(crate) process_id: u32,
    pub(crate) secret: Bytes,
}

impl From<&CancelKey> for KeyRecord {
    fn from(key: &CancelKey) -> KeyRecord {
        KeyRecord { process_id: key.process_id, secret: Bytes(key.secret.to_vec()) }
    }
}

impl From<KeyRecord> for CancelKey {
    fn from(key: KeyRecord) -> CancelKey {
        CancelKey { process_id: key.process_id, secret: key.secret.0.into() }
    }
}

/// Names a pool in any configuration.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PoolRecord {
    /// The name of the database's entry; `None` is the one for every name.
    pub(crate) entry: Option<String>,
    pub(crate) server_database: String,
    /// The user on the server.
    pub(crate) user: String,
    pub(crate) is_session_mode: bool,
}

impl PoolRecord {
    /// Returns how long a connection belongs to a client.
    pub(crate) fn mode(&self) -> PoolMode {
        if self.is_session_mode { PoolMode::Session } else { PoolMode::Transaction }
    }
}

/// Who a client is and what it has set up.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct AccountRecord {
    pub(crate) user: String,
    /// The database that it has asked for.
    pub(crate) asked: String,
    /// It has proved who it is by what the users file says.
    pub(crate) is_of_users_file: bool,
    pub(crate) pool: PoolRecord,
    pub(crate) settings: SettingsRecord,
    pub(crate) first_settings: SettingsRecord,
    pub(crate) custom_names: Vec<String>,
    /// Its names for statements, and the statements' numbers.
    pub(crate) statements: Vec<(Bytes, u64)>,
    pub(crate) unnamed: Option<Bytes>,
    /// The connection that it keeps.
    pub(crate) upstream: Option<Box<UpstreamRecord>>,
}

/// Names and values of settings.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SettingsRecord(Vec<(String, String)>);

impl From<&Settings> for SettingsRecord {
    fn from(settings: &Settings) -> SettingsRecord {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let pairs = settings.iter().map(|(name, value)| (text(name), text(value)));
        SettingsRecord(pairs.collect())
    }
}

impl From<&SettingsRecord> for Settings {
    fn from(record: &SettingsRecord) -> Settings {
        Settings::from_pairs(record.0.iter().map(|(name, value)| (&**name, &**value)))
    }
}

/// A connection to a server, at rest.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct UpstreamRecord {
    pub(crate) pool: PoolRecord,
    /// What the server told at the login, if the pool knows it.
    pub(crate) parameters: Option<Vec<(Bytes, Bytes)>>,
    pub(crate) host: String,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) key: Option<KeyRecord>,
    pub(crate) opened_us: u64,
    /// In how much time it is old.
    pub(crate) retires_in_us: Option<u64>,
    pub(crate) settings: SettingsRecord,
    pub(crate) is_altered: bool,
    /// What keeps its client on it.
    pub(crate) pins: u16,
    pub(crate) holds_long_statement: bool,
    /// The numbers of its statements, the one that was used longest ago first.
    pub(crate) prepared: Vec<u64>,
    /// Received and not handled.
    pub(crate) inbox: Bytes,
    /// Set if the old process does its TLS.
    pub(crate) origin: Option<Origin>,
}

/// Bytes, in JSON as base64.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map(Bytes).map_err(serde::de::Error::custom)
    }
}

/// Returns how long ago a moment was, in microseconds.
pub(crate) fn ago(moment: Instant, now: Instant) -> u64 {
    micros(now.saturating_duration_since(moment))
}

/// Returns a time in microseconds.
pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Returns the moment that was so many microseconds ago, as far as the clock goes back.
pub(crate) fn before(now: Instant, micros: u64) -> Instant {
    now.checked_sub(Duration::from_micros(micros)).unwrap_or(now)
}

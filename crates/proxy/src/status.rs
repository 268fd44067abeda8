//! What `/status.json` says, and with it the page and `tidegate top`.
//!
//! The types here are the document, a field for each key; `docs/status.md` describes them, and a
//! test compares the two. They serialize and deserialize, so that a program in Rust can read what
//! it is sent.
//!
//! | module | what it has |
//! | --- | --- |
//! | `track.rs` | the last minutes of a server: seconds and decisions, bounded, kept all the time |
//! | `compose.rs` | the document, made of what the proxy knows at a moment |

mod compose;
mod track;

use serde::{Deserialize, Serialize};

pub(crate) use compose::{BusyReport, Composer, LISTED_MAX, add_tracked};
pub(crate) use track::{Cursor, Track};

/// The version of the document: it grows when a field changes its meaning or goes, not when one
/// comes.
pub const STATUS_VERSION: u32 = 1;

/// The document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// [`STATUS_VERSION`].
    pub version: u32,
    /// The version of Tidegate.
    pub tidegate: String,
    /// The moment, in UTC (RFC 3339).
    pub at: String,
    /// The same in milliseconds since 1970.
    pub at_ms: u64,
    /// Time since the start, seconds.
    pub uptime_s: f64,
    /// `serving`, `draining`, `shutting_down` or `failed`.
    pub state: String,
    /// What has failed, in the state `failed`.
    pub failure: Option<String>,
    /// Whether `history` and `decisions` are complete. In later events they hold only what is new.
    pub is_complete: bool,
    /// Whether orders can be given: a token is configured.
    pub takes_orders: bool,
    /// Whether new transactions of all databases wait: `none`, `paused` or `suspended`.
    pub hold: String,
    /// Clients.
    pub clients: ClientsStatus,
    /// Connections to all servers.
    pub connections: ConnectionsStatus,
    /// Event loops that did not say in time what their clients do.
    pub missing_event_loops: usize,
    /// What was refused at the login, with the reason; only what happened.
    pub refusals: Vec<Refusal>,
    /// Each server with its limit.
    pub servers: Vec<ServerStatus>,
}

/// Clients of all databases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientsStatus {
    /// Those connected.
    pub connected: u64,
    /// As many as there may be.
    pub max: Option<u64>,
}

/// Connections to servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConnectionsStatus {
    /// Idle, busy or being opened.
    pub open: u64,
    /// Held by a client.
    pub busy: u64,
}

/// Something that was refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// The reason in one word, as metrics have it.
    pub reason: String,
    /// The reason in words.
    pub sentence: String,
    /// How often, since the start.
    pub count: u64,
}

/// A server and its limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerStatus {
    /// `host:port` or the socket's path.
    pub server: String,
    /// The databases of the configuration that it has; `*` is every other name.
    pub databases: Vec<String>,
    /// The databases of them that are paused.
    pub paused: Vec<String>,
    /// Whether it could be reached at the last attempt.
    pub is_reachable: bool,
    /// Why not.
    pub outage: Option<String>,
    /// The limit in force.
    pub limit: u32,
    /// The lowest limit that the controller may choose.
    pub limit_min: u32,
    /// The highest limit.
    pub limit_max: u32,
    /// Who chooses the limit.
    pub control: ControlStatus,
    /// Why the limit is what it is.
    pub why: Option<LimitReason>,
    /// What is expected here and at the best limit, in a sentence.
    pub outlook: String,
    /// What holds the server's sessions up, where it is watched.
    pub bottleneck: Option<String>,
    /// Permits.
    pub permits: PermitsStatus,
    /// Transactions that wait for a permit.
    pub waiting: u64,
    /// Transactions that were refused, with the reason.
    pub refusals: Vec<Refusal>,
    /// The classes, the one that goes first first.
    pub classes: Vec<ClassStatus>,
    /// Throughput as it was measured at different numbers of transactions.
    pub measurements: Vec<MeasuredPoint>,
    /// What is expected at each limit; absent until it is known.
    pub curve: Option<CurveStatus>,
    /// The last minutes, a second each, the oldest first.
    pub history: Vec<HistorySecond>,
    /// The last decisions, the oldest first.
    pub decisions: Vec<DecisionEntry>,
    /// Who holds a permit, the longest first, at most 40.
    pub holders: Vec<PermitHolder>,
    /// How many hold a permit.
    pub holders_total: u64,
    /// Who waits, the longest first, at most as many.
    pub waiters: Vec<WaitingClient>,
    /// How many wait for a permit or for the end of a pause.
    pub waiters_total: u64,
}

/// Who chooses the limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ControlStatus {
    /// As configured, as in `control = "..."`.
    pub configured: String,
    /// In force, likewise: another one by an order.
    pub in_force: String,
    /// `configured`, `pinned` or `observing`.
    pub order: String,
    /// The response time to keep, where there is one in force.
    pub keep: Option<GoalEntry>,
    /// What would be set, while only observing.
    pub proposal: Option<ProposalStatus>,
}

/// A response time to keep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GoalEntry {
    /// As in `keep = "..."`.
    pub goal: String,
    /// Whether it is kept; absent until it is judged.
    pub is_met: Option<bool>,
    /// The highest limit that keeps it.
    pub ceiling: u32,
    /// What was seen, in words.
    pub seen: String,
}

/// What a controller that is only asked would set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProposalStatus {
    /// The controller.
    pub controller: String,
    /// The limit.
    pub limit: u32,
    /// Why, in words.
    pub sentence: String,
    /// What that is believed to gain, in words.
    pub gain: String,
    /// Which limit is believed to be best, in words.
    pub best: String,
}

/// Why the limit is what it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitReason {
    /// The controller that decided.
    pub controller: String,
    /// The rule in one word, as metrics count it.
    pub rule: String,
    /// The reason in words.
    pub sentence: String,
}

/// Permits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PermitsStatus {
    /// Those out.
    pub out: u32,
    /// Those of them that count against the limit.
    pub counted: u32,
    /// Those that do not because their clients are idle.
    pub idle: u32,
    /// Those that do not because they have been out for far longer than usual.
    pub discounted: u32,
}

/// A class since the start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassStatus {
    /// Its name.
    pub class: String,
    /// Transactions that ended well.
    pub completed: u64,
    /// Transactions that failed.
    pub failed: u64,
    /// Mean time in the queue, milliseconds.
    pub queue_ms: Option<f64>,
    /// Mean time in the database, milliseconds.
    pub database_ms: Option<f64>,
}

/// Throughput as it was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredPoint {
    /// Transactions in the database, in the mean.
    pub mpl: f64,
    /// Completed transactions per second.
    pub tps: f64,
    /// How long ago, seconds.
    pub age_s: f64,
    /// How long it was measured, seconds.
    pub seconds: f64,
}

/// What is expected at each limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurveStatus {
    /// How long ago it was made, seconds.
    pub age_s: f64,
    /// Transactions that run or wait, in the mean of the 10 seconds before.
    pub present: f64,
    /// By how much intervals at other limits are widened because of earlier errors, a factor.
    pub widening: f64,
    /// Rising limits.
    pub rows: Vec<CurvePoint>,
}

/// What is expected at one limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// The limit.
    pub limit: u32,
    /// Completed transactions per second.
    pub tps: Option<ExpectedBand>,
    /// Time from request to end, milliseconds.
    pub response_ms: Option<ExpectedBand>,
    /// Why the throughput is not known, in words.
    pub unknown: Option<String>,
}

/// A median with its 90 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExpectedBand {
    /// The lower end.
    pub low: f64,
    /// The median.
    pub median: f64,
    /// The upper end.
    pub high: f64,
}

/// A second, or more where a control interval is longer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistorySecond {
    /// Its end, milliseconds since 1970.
    pub at_ms: u64,
    /// The limit at its end.
    pub limit: u32,
    /// Completed transactions per second.
    pub tps: f64,
    /// Failed transactions per second.
    pub failed_tps: f64,
    /// Permits that count, in the mean.
    pub running: f64,
    /// Transactions that wait, in the mean.
    pub waiting: f64,
    /// The classes, in the order of `classes`.
    pub classes: Vec<ClassSecond>,
}

/// What a class did in a second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassSecond {
    /// Completed transactions per second.
    pub tps: f64,
    /// Mean time in the queue, milliseconds; absent if none left it.
    pub queue_ms: Option<f64>,
    /// Mean time in the database, milliseconds; absent if none ended.
    pub database_ms: Option<f64>,
}

/// A decision about the limit, with those after it that changed nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecisionEntry {
    /// Its number, which grows. A later event may bring it again, with more repeats.
    pub id: u64,
    /// When it was first made, milliseconds since 1970.
    pub at_ms: u64,
    /// When it was last made.
    pub until_ms: u64,
    /// How often it was made in a row.
    pub repeats: u64,
    /// The limit before.
    pub from: u32,
    /// The limit from there on.
    pub limit: u32,
    /// The controller.
    pub controller: String,
    /// The rule in one word.
    pub rule: String,
    /// The reason in words; the last one.
    pub sentence: String,
    /// Completed transactions per second in the interval that was judged; the last one.
    pub tps: f64,
}

/// A client with a permit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PermitHolder {
    /// The client's number, as in `SHOW CLIENTS` and `KILL_CLIENT`.
    pub client_id: u64,
    /// The class.
    pub class: String,
    /// The user.
    pub user: String,
    /// The database, as clients call it.
    pub database: String,
    /// The `application_name`.
    pub application: String,
    /// `running`, `idle_in_transaction` or `awaiting_connection`.
    pub state: String,
    /// How long it has had the permit, milliseconds.
    pub held_ms: f64,
    /// How long the database has been waiting for the client.
    pub idle_ms: Option<f64>,
}

/// A client that waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitingClient {
    /// The client's number.
    pub client_id: u64,
    /// The class.
    pub class: String,
    /// The user.
    pub user: String,
    /// The database, as clients call it.
    pub database: String,
    /// The `application_name`.
    pub application: String,
    /// `permit` or `resume`.
    pub waits_for: String,
    /// How long it has waited, milliseconds.
    pub waited_ms: f64,
}

#[cfg(test)]
mod tests;

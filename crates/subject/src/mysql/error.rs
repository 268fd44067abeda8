//! A server's errors, and what they mean for a transaction.

use thiserror::Error;
pub use tidegate_wire::mysql::response::ErrorPacket;
use tidegate_workload::{Conflict, Failure};

/// Numbers of errors after which something else is done than to report them.
mod code {
    pub(super) const SERVER_SHUTDOWN: u16 = 1053;
    /// Under snapshot isolation, the row has changed since the transaction read it.
    pub(super) const CHECKREAD: u16 = 1020;
    pub(super) const LOCK_WAIT_TIMEOUT: u16 = 1205;
    pub(super) const LOCK_DEADLOCK: u16 = 1213;
    pub(super) const QUERY_INTERRUPTED: u16 = 1317;
    pub(super) const CONNECTION_KILLED: u16 = 1927;
    /// The statement ran longer than `max_statement_time`.
    pub(super) const STATEMENT_TIMEOUT: u16 = 1969;
}

/// What a server said that it could not do.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{message} (error {code}, SQLSTATE {state})")]
pub struct ServerError {
    /// The server's number of the error.
    pub code: u16,
    /// The SQLSTATE, five characters.
    pub state: String,
    /// The server's words.
    pub message: String,
}

impl From<ErrorPacket<'_>> for ServerError {
    fn from(packet: ErrorPacket<'_>) -> Self {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        ServerError { code: packet.code, state: text(packet.state), message: text(packet.message) }
    }
}

impl From<ServerError> for Failure {
    /// What the error means for the transaction. A deadlock and a changed row have undone it in the
    /// server as well; a lock that took too long has undone its last statement alone.
    fn from(error: ServerError) -> Self {
        match error.code {
            code::LOCK_DEADLOCK => Failure::Conflict(Conflict::Deadlock),
            code::LOCK_WAIT_TIMEOUT => Failure::Conflict(Conflict::LockTimeout),
            code::CHECKREAD => Failure::Conflict(Conflict::Serialization),
            code::QUERY_INTERRUPTED | code::STATEMENT_TIMEOUT => Failure::Stopped,
            code::CONNECTION_KILLED | code::SERVER_SHUTDOWN => Failure::Lost(error.to_string()),
            code => Failure::Refused { code: code.to_string(), message: error.message },
        }
    }
}

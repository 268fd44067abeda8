//! The upstream connections of one worker to one database as one user.

use std::collections::VecDeque;
use std::time::Instant;

use crate::client::ClientKey;
use crate::config::PoolMode;
use crate::handshake::Credentials;
use crate::upstream::UpstreamKey;

/// What distinguishes pools.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PoolKey {
    /// Index of the configured database.
    pub(crate) database: usize,
    /// The database's name on the server.
    pub(crate) server_database: String,
    /// The user's name on the server.
    pub(crate) user: String,
}

/// What a server says of itself at login: names and values of parameters.
pub(crate) type Welcome = Vec<(Box<[u8]>, Box<[u8]>)>;

/// Connections that are alike, and who waits for one.
pub(crate) struct Pool {
    pub(crate) key: PoolKey,
    /// Index of the server, which has the gate.
    pub(crate) server: usize,
    pub(crate) mode: PoolMode,
    pub(crate) credentials: Credentials,
    /// Connections at rest, the one used last on top: the others grow old and are closed.
    pub(crate) idle: Vec<UpstreamKey>,
    /// Connections on their way to be ready.
    pub(crate) opening: usize,
    /// Transactions with a permit and without a connection.
    pub(crate) waiting: VecDeque<ClientKey>,
    /// Clients that are told the server's parameters when they are known.
    pub(crate) welcoming: Vec<ClientKey>,
    pub(crate) welcome: Option<Welcome>,
    /// The server has refused a connection since one was last given to a transaction.
    pub(crate) refused: Option<Refused>,
}

/// Why a server gives no connection, in its words, and since when.
pub(crate) struct Refused {
    pub(crate) since: Instant,
    pub(crate) code: String,
    pub(crate) message: String,
}

impl Pool {
    pub(crate) fn new(
        key: PoolKey,
        server: usize,
        mode: PoolMode,
        credentials: Credentials,
    ) -> Pool {
        Pool {
            key,
            server,
            mode,
            credentials,
            idle: Vec::new(),
            opening: 0,
            waiting: VecDeque::new(),
            welcoming: Vec::new(),
            welcome: None,
            refused: None,
        }
    }
}

//! A connection to a database server.

use std::net::SocketAddr;
use std::time::Instant;

use tidegate_gate::Permit;
use tidegate_wire::input::Missing;
use tidegate_wire::startup::CancelKey;

use crate::client::ClientKey;
use crate::handshake::Handshake;
use crate::net::{Outbox, Stream};
use crate::session::ServerSession;
use crate::slots::Key;

/// Names an upstream connection of a worker.
pub(crate) type UpstreamKey = Key<Upstream>;

/// Where an upstream connection stands.
pub(crate) enum UpstreamPhase {
    /// The socket connects.
    Connecting,
    /// Logging in.
    LoggingIn(Handshake),
    /// Ready, and nobody's.
    Idle,
    /// A client's: for a transaction, or in session mode for good.
    Linked,
    /// Its client went away in the middle; it is brought back to rest.
    Abandoned,
    /// At rest, but a cancel request for its last transaction may still be on the way.
    Quarantined,
}

/// An upstream connection, from connect to close.
pub(crate) struct Upstream {
    pub(crate) stream: Stream,
    pub(crate) outbox: Outbox,
    /// The beginning of a message whose rest has not arrived.
    pub(crate) carry: Vec<u8>,
    /// The rest of a message that is handled in pieces, and whether it passes on.
    pub(crate) passing: Missing,
    pub(crate) passing_on: bool,
    /// The socket may hold bytes that were not read because the client takes no more.
    pub(crate) readable: bool,
    /// The peer has sent its last byte, or the socket has failed.
    pub(crate) hung_up: bool,
    pub(crate) phase: UpstreamPhase,
    /// Where it leads, which is where its cancel requests have to go; `None` is a Unix socket.
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) pool: usize,
    /// The client that holds it, or in session mode the one it is opened for.
    pub(crate) client: Option<ClientKey>,
    /// The running transaction's permit.
    pub(crate) permit: Option<Permit>,
    pub(crate) session: ServerSession,
    pub(crate) key: Option<CancelKey>,
    /// Cancel requests on the way to this backend.
    pub(crate) cancels: u32,
    /// When the phase began.
    pub(crate) since: Instant,
}

impl Upstream {
    pub(crate) fn new(
        stream: Stream,
        peer: Option<SocketAddr>,
        pool: usize,
        now: Instant,
    ) -> Upstream {
        Upstream {
            stream,
            outbox: Outbox::default(),
            carry: Vec::new(),
            passing: Missing::default(),
            passing_on: false,
            readable: false,
            hung_up: false,
            phase: UpstreamPhase::Connecting,
            peer,
            pool,
            client: None,
            permit: None,
            session: ServerSession::new(),
            key: None,
            cancels: 0,
            since: now,
        }
    }

    /// Whether a transaction runs on it, its client present or gone.
    pub(crate) fn is_busy(&self) -> bool {
        self.permit.is_some()
    }

    pub(crate) fn enter(&mut self, phase: UpstreamPhase, now: Instant) {
        self.phase = phase;
        self.since = now;
    }
}

//! A client's connection.

use std::time::Instant;

use tidegate_gate::{Class, Permit, Ticket};
use tidegate_wire::input::Missing;
use tidegate_wire::startup::CancelKey;

use crate::login::Exchange;
use crate::net::{Outbox, Stream};
use crate::session::ClientSession;
use crate::slots::Key;
use crate::upstream::UpstreamKey;

/// Names a client of a worker.
pub(crate) type ClientKey = Key<Client>;

/// The connection a cancel request came by, and the worker that has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requester {
    pub(crate) worker: usize,
    pub(crate) client: ClientKey,
}

/// Where a client stands.
pub(crate) enum Phase {
    /// Nothing but requests for encryption has come.
    FirstPacket,
    /// It proves who it is.
    Authenticating(Exchange),
    /// It is who it says; the server's parameters are awaited.
    Welcoming,
    /// No transaction.
    Idle,
    /// Its transaction waits for a permit.
    Queued(Ticket),
    /// Its transaction has a permit and waits for an upstream connection.
    AwaitingUpstream(Permit),
    /// Its transaction runs; the upstream connection holds the permit.
    Running,
    /// Its transaction was refused: messages up to the end of the batch are discarded.
    Refused,
    /// It has sent a cancel request, and is closed when the server has dealt with it.
    Cancelling,
    /// It is told a last thing, then closed.
    Closing,
}

/// A client, from accept to close.
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not one state")]
pub(crate) struct Client {
    pub(crate) stream: Stream,
    pub(crate) outbox: Outbox,
    /// Bytes received and not yet passed on: an incomplete message, or all that came while the
    /// client waits.
    pub(crate) inbox: Vec<u8>,
    /// The rest of a message that is passed on, or discarded, in pieces.
    pub(crate) passing: Missing,
    /// The socket may hold bytes that were not read because the client could not go on.
    pub(crate) readable: bool,
    pub(crate) phase: Phase,
    pub(crate) key: CancelKey,
    /// Known once the first packet was understood.
    pub(crate) pool: Option<usize>,
    pub(crate) upstream: Option<UpstreamKey>,
    pub(crate) user: Box<str>,
    pub(crate) class: Class,
    pub(crate) session: ClientSession,
    /// The peer has sent its last byte, or the socket has failed.
    pub(crate) hung_up: bool,
    /// Its input waits for something of its upstream connection's.
    pub(crate) is_held: bool,
    /// A cancel request that is sent on as soon as the held input is.
    pub(crate) cancel_when_sent: Option<Requester>,
    /// The end of the refused batch is being discarded; its answer follows.
    pub(crate) refused_batch_ends: bool,
    /// Since when its login is awaited, or the end of its last message's way out.
    pub(crate) login_since: Option<Instant>,
    /// Since when the rest of a message is awaited.
    pub(crate) mid_message_since: Option<Instant>,
    /// Since when the next command of its transaction is awaited.
    pub(crate) idle_in_transaction_since: Option<Instant>,
}

impl Client {
    pub(crate) fn new(stream: Stream, key: CancelKey, now: Instant) -> Client {
        Client {
            stream,
            outbox: Outbox::default(),
            inbox: Vec::new(),
            passing: Missing::default(),
            readable: false,
            phase: Phase::FirstPacket,
            key,
            pool: None,
            upstream: None,
            user: Box::default(),
            class: Class::Normal,
            session: ClientSession::default(),
            hung_up: false,
            is_held: false,
            cancel_when_sent: None,
            refused_batch_ends: false,
            login_since: Some(now),
            mid_message_since: None,
            idle_in_transaction_since: None,
        }
    }

    /// Whether bytes that arrive now can be acted on, so that it makes sense to read them.
    pub(crate) fn takes_input(&self) -> bool {
        match self.phase {
            Phase::FirstPacket
            | Phase::Authenticating(_)
            | Phase::Idle
            | Phase::Running
            | Phase::Refused => true,
            Phase::Welcoming
            | Phase::Queued(_)
            | Phase::AwaitingUpstream(_)
            | Phase::Cancelling
            | Phase::Closing => false,
        }
    }
}

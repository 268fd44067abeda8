//! Transactions whose client has gone, and cancel requests.
//!
//! A client that vanishes leaves a backend at work. Closing the connection would not stop it: a
//! PostgreSQL backend notices only when it next writes, and until then it holds its locks while
//! its permit lets in another. So the permit stays with the connection, the backend is asked to
//! cancel, its transaction is rolled back, and only then are permit and connection free again.
//!
//! # Cancel requests
//!
//! A cancel request travels on a connection of its own, names a backend and no statement, and may
//! arrive late: a postmaster that is stopped or busy keeps it in its queue. It has arrived when the
//! server closes that connection, because the process that delivers the signal has ended then.
//! Until that end has been seen
//!
//! - no further request is sent to the backend: its client's input is held;
//! - the backend is not given to another client (`Quarantined`). When the connect timeout has
//!   passed it is closed, and the late request finds a process that has ended;
//! - the client that sent the cancel request is not told that it has been dealt with, as a server
//!   would not tell it, for up to the connect timeout.
//!
//! A cancel request is not sent on to a backend that does nothing for the client.
//!
//! A request that names a client of another instance is forwarded to it; see `peers`. The client
//! that sent it is told when that instance closes the connection.

use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::Registry;
use tidegate_gate::Outcome;
use tidegate_wire::backend::TransactionStatus;
use tidegate_wire::error_response::SqlState;
use tidegate_wire::startup::{self, CancelKey};

use crate::cancel_key::{KeyAddress, forwarded};
use crate::client::{ClientSlot, ClientState, Requester, TransactionState};
use crate::config::PoolMode;
use crate::mailbox::Message;
use crate::net::{Connection, ReadOutcome, Stream};
use crate::session;
use crate::slots::{Slot, Slots};
#[cfg(debug_assertions)]
use crate::upstream::Upstreams;
use crate::upstream::{Upstream, UpstreamSlot, UpstreamState};

use super::{Source, Worker};

/// Whom a cancel request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CancelTarget {
    /// The backend behind a connection.
    Backend(UpstreamSlot),
    /// A client of another instance.
    Peer,
    /// A client of the process from which this one takes over, or that takes over from this one.
    OtherProcess,
}

/// Cancel requests on their way to other instances at once; a further one is dropped.
const FORWARDED_MAX: usize = 64;

/// A cancel request on its way to a server, or to another instance.
pub(super) struct CancelRequest {
    connection: Connection,
    /// The request's bytes until they have been written; from then on it may arrive.
    unsent: Option<Vec<u8>>,
    target: CancelTarget,
    /// Who waits for the end of it; `None` for a request of the proxy's own.
    requester: Option<Requester>,
    since: Instant,
    /// The key in it.
    key: CancelKey,
}

/// Names a cancel request of an event loop.
pub(super) type CancelRequestSlot = Slot<CancelRequest>;

/// The cancel requests on their way.
pub(super) struct CancelRequests(Slots<CancelRequest>);

impl CancelRequests {
    pub(super) fn new() -> CancelRequests {
        CancelRequests(Slots::new())
    }

    /// Begins to send a cancel request on a connection that `connect` begins to open.
    fn start(
        &mut self,
        (target, key): (CancelTarget, &CancelKey),
        requester: Option<Requester>,
        connect: impl FnOnce() -> std::io::Result<Connection>,
        registry: &Registry,
        now: Instant,
    ) -> std::io::Result<()> {
        let mut request = Vec::new();
        startup::encode_cancel(&mut request, key);
        let unsent = Some(request);
        let inserted = self.0.insert_with(|own| {
            let mut connection = connect()?;
            connection.register(registry, Source::CancelRequest(own).token())?;
            let key = key.clone();
            Ok(CancelRequest { connection, unsent, target, requester, since: now, key })
        });
        inserted.map(|_| ())
    }

    /// Returns whether none is on its way.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns how many are on their way to other instances.
    fn forwarded(&self) -> usize {
        self.0.iter().filter(|(_, request)| request.target == CancelTarget::Peer).count()
    }

    /// Takes an event of a request's socket. Returns the request if it has arrived or failed.
    fn advance(
        &mut self,
        slot: CancelRequestSlot,
        writable: bool,
        readable: bool,
    ) -> Option<CancelRequest> {
        let CancelRequest { connection, unsent, .. } = self.0.get_mut(slot)?;
        if writable && let Some(request) = unsent.take() {
            // So few bytes always fit an empty socket.
            if connection.connected().is_err() || connection.send(&request).is_err() {
                return self.0.remove(slot);
            }
        }
        // The server says nothing; it closes when the signal has been sent.
        if readable && connection.read(&mut [0; 16]) == ReadOutcome::Closed {
            return self.0.remove(slot);
        }
        None
    }

    /// Returns the requests that have been under way for at least `limit`.
    fn overdue(&self, limit: Duration, now: Instant) -> Vec<CancelRequestSlot> {
        let age = |request: &CancelRequest| now.saturating_duration_since(request.since);
        self.0.iter().filter(|(_, it)| age(it) >= limit).map(|(slot, _)| slot).collect()
    }

    /// Checks that every connection knows how many requests are on the way to it.
    #[cfg(debug_assertions)]
    pub(super) fn check(&self, upstreams: &Upstreams) {
        for (slot, upstream) in upstreams.iter() {
            let target = CancelTarget::Backend(slot);
            let requests = self.0.iter().filter(|(_, request)| request.target == target);
            assert_eq!(upstream.cancels as usize, requests.count(), "cancel requests of {slot:?}");
        }
    }
}

impl Worker {
    /// Makes a client leave its upstream connection, which is brought to rest or closed. It is
    /// `Closing` afterwards and gives back its ticket or permit.
    pub(super) fn leave_upstream(&mut self, slot: ClientSlot) {
        self.forget_inquiry(slot);
        let closing = ClientState::Closing { since: self.now };
        let Some(client) = self.clients.get_mut(slot) else {
            return;
        };
        let upstream = client.upstream();
        let is_running = client.running().is_some();
        let is_mid_message = !client.connection.passing.is_none();
        let requester = client.running_mut().and_then(|running| running.cancel_when_sent.take());
        // A ticket or permit of the state returns when this is dropped.
        let _left = std::mem::replace(&mut client.state, closing);
        let replicates = upstream
            .and_then(|upstream| self.upstreams.get(upstream))
            .is_some_and(|it| self.upstreams[it.pool].is_for_replication());
        match upstream {
            // A stream has no end that could be waited for.
            Some(upstream) if is_running && replicates => self.remove_upstream(upstream),
            Some(upstream) if is_running => self.abandon(upstream, is_mid_message),
            Some(upstream) if self.is_pinned(upstream) => self.clean(upstream),
            Some(upstream) => self.close_upstream(upstream),
            None => {}
        }
        self.tell(requester);
    }

    fn abandon(&mut self, slot: UpstreamSlot, is_mid_message: bool) {
        // It may have been lost, and this is how its client is told.
        let Some(server) = self.upstreams.get_mut(slot) else {
            return;
        };
        server.abandon(self.now);
        // Its transaction is rolled back, which is work.
        if let Some(permit) = server.permit_mut() {
            permit.resume(Instant::now());
        }
        let is_at_work = server.session.is_at_work();
        self.counters.clients_lost.fetch_add(1, Ordering::Relaxed);
        if is_at_work {
            self.cancel_upstream(slot, None);
        }
        if is_mid_message {
            // The server waits for the rest of a message that will never come, and would take a
            // polite Terminate for that.
            return self.remove_upstream(slot);
        }
        let mut flush = Vec::new();
        if let Some(server) = self.upstreams.get_mut(slot) {
            session::flush(&server.session, &mut flush);
            if server.connection.send(&flush).is_err() {
                return self.close_upstream(slot);
            }
        }
        self.wind_up(slot);
        if let Some(server) = self.upstreams.get_mut(slot) {
            server.connection.set_readable(false);
            self.follow_ups.resume_upstream(slot);
        }
    }

    /// Brings an abandoned connection one step nearer to rest.
    pub(super) fn wind_up(&mut self, slot: UpstreamSlot) {
        let Some(server) = self.upstreams.get_mut(slot) else {
            return;
        };
        debug_assert!(matches!(server.state(), UpstreamState::Abandoned(_)), "nobody's by now");
        let mut out = Vec::new();
        session::wind_up(&mut server.session, &mut out);
        if server.connection.send(&out).is_err() {
            return self.close_upstream(slot);
        }
        let session = &server.session;
        if !session.replies.is_quiet() || session.status != TransactionStatus::Idle {
            return;
        }
        let is_uncertain = session.replies.is_uncertain() || session.holds_long_statement;
        let pool = server.pool;
        let may_be_released = self.upstreams[pool].mode == PoolMode::Transaction && !is_uncertain;
        if may_be_released && !self.is_clean(slot) {
            return;
        }
        let permit = self.upstreams[slot].take_permit();
        match self.upstreams[pool].mode {
            PoolMode::Transaction if !is_uncertain => self.release_upstream(slot),
            PoolMode::Transaction | PoolMode::Session => self.close_upstream(slot),
        }
        if let Some(permit) = permit {
            permit.finish(Outcome::Failed, Instant::now());
        }
    }

    /// Hands a cancel request to the instance and the event loop whose client it names.
    pub(super) fn route_cancel(&mut self, key: &CancelKey, requester: Requester) {
        let address = KeyAddress::of(key.process_id);
        if address.peer != self.shared.config.peers.id {
            return self.forward_cancel(key, address, requester);
        }
        if let Some(adopted) = self.shared.handover.adopted.find(key) {
            self.route_to_adopted(adopted, key, requester);
        } else if address.worker == self.index {
            self.cancel(key, requester);
        } else if let Some(mailbox) = self.shared.mailboxes.get(address.worker.0) {
            mailbox.post(Message::Cancel { key: key.clone(), requester });
        } else {
            self.cancel_elsewhere(key, requester);
        }
    }

    fn route_to_adopted(&mut self, adopted: Requester, key: &CancelKey, requester: Requester) {
        let Requester { worker, client } = adopted;
        if worker == self.index {
            return self.cancel_client(client, key, requester);
        }
        let message = Message::CancelAdopted { client, key: key.clone(), requester };
        self.shared.mailboxes[worker.0].post(message);
    }

    /// Asks the process before this one, or behind it, to cancel what no client here has the key
    /// of.
    fn cancel_elsewhere(&mut self, key: &CancelKey, requester: Requester) {
        let handover = &self.shared.handover;
        let is_forwarded = KeyAddress::of(key.process_id).is_forwarded;
        // Only the old process is asked about what others have forwarded, and does not ask back.
        if !handover.is_arriving() && (is_forwarded || !handover.is_leaving()) {
            return self.tell(Some(requester));
        }
        let connect = || {
            let (near, far) = UnixStream::pair()?;
            handover.forward(far.into())?;
            Ok(Connection::new(Stream::adopt(near.into())?))
        };
        let target = (CancelTarget::OtherProcess, &forwarded(key));
        let (registry, now) = (self.poll.registry(), self.now);
        let started = self.cancel_requests.start(target, Some(requester), connect, registry, now);
        if let Err(error) = started {
            tracing::debug!(%error, "a cancel request is not for a client of another process");
            self.tell(Some(requester));
        }
    }

    /// Sends a cancel request on to the instance that it names, unless another one has done that.
    fn forward_cancel(&mut self, key: &CancelKey, to: KeyAddress, requester: Requester) {
        let peers = &self.shared.config.peers;
        let Some(address) = peers.addresses.get(&to.peer).filter(|_| !to.is_forwarded) else {
            return self.tell(Some(requester));
        };
        let is_possible = self.cancel_requests.forwarded() < FORWARDED_MAX;
        let unreachable = self.shared.config.timeouts.unreachable;
        let connect = || Connection::to_listener(address, unreachable);
        let target = (CancelTarget::Peer, &forwarded(key));
        let (registry, now) = (self.poll.registry(), self.now);
        let started = if is_possible {
            self.cancel_requests.start(target, Some(requester), connect, registry, now)
        } else {
            Err(std::io::Error::other("too many are on their way to other instances"))
        };
        match started {
            Ok(()) => {
                self.counters.cancel_requests_forwarded.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                let peer = to.peer;
                if let Some(left_out) = self.endings.admit(self.now) {
                    tracing::warn!(peer, %error, left_out, "a cancel request was not forwarded");
                }
                self.tell(Some(requester));
            }
        }
    }

    /// Cancels what the client with this key is doing, waiting included.
    pub(super) fn cancel(&mut self, key: &CancelKey, requester: Requester) {
        let index = KeyAddress::of(key.process_id).client;
        let named = index.and_then(|index| self.clients.at_index(index));
        let Some((slot, _)) = named.filter(|(_, client)| client.key.is(key)) else {
            return self.cancel_elsewhere(key, requester);
        };
        self.cancel_client(slot, key, requester);
    }

    /// Cancels what a client is doing, whose key this is.
    pub(super) fn cancel_client(
        &mut self,
        slot: ClientSlot,
        key: &CancelKey,
        requester: Requester,
    ) {
        let Some(client) = self.clients.get_mut(slot) else {
            return self.tell(Some(requester));
        };
        // Whoever has it in the end.
        if let ClientState::Passing(passed) = &mut client.state {
            return passed.cancels.push((key.clone(), requester));
        }
        if let ClientState::Console(console) = &client.state {
            console.cancel();
        }
        let holds_input =
            (client.is_held() || client.has_asked()) && !client.connection.inbox.is_empty();
        match client.transaction() {
            Some(
                TransactionState::Paused
                | TransactionState::Queued(_)
                | TransactionState::AwaitingUpstream(_),
            ) => {
                self.cancel_waiting(slot);
            }
            Some(TransactionState::Idle { .. }) if holds_input => self.cancel_waiting(slot),
            Some(TransactionState::Running(running)) => {
                let upstream = running.upstream;
                if self.upstreams[upstream].session.is_at_work() {
                    return self.cancel_upstream(upstream, Some(requester));
                }
                // What it is about is not on its way yet.
                if holds_input && let Some(running) = self.clients[slot].running_mut() {
                    let before = running.cancel_when_sent.replace(requester);
                    return self.tell(before);
                }
            }
            _ => {}
        }
        self.tell(Some(requester));
    }

    /// Fails a transaction of which nothing has reached the server.
    pub(super) fn cancel_waiting(&mut self, slot: ClientSlot) {
        let message = "canceling statement due to user request";
        self.refuse_transaction(slot, SqlState::QUERY_CANCELED, message);
    }

    /// Sends a cancel request that came while the client's input was held, now that it is not.
    pub(super) fn cancel_what_was_held(&mut self, slot: ClientSlot, upstream: UpstreamSlot) {
        let is_at_work = self.upstreams.get(upstream).is_some_and(|it| it.session.is_at_work());
        if is_at_work
            && let Some(running) = self.clients.get_mut(slot).and_then(|it| it.running_mut())
            && let Some(requester) = running.cancel_when_sent.take()
        {
            self.cancel_upstream(upstream, Some(requester));
        }
    }

    /// Sends a cancel request to the backend behind a connection.
    fn cancel_upstream(&mut self, slot: UpstreamSlot, requester: Option<Requester>) {
        let upstream = &self.upstreams[slot];
        // A server that gives no key cannot be asked.
        let Some(key) = &upstream.key else {
            return self.tell(requester);
        };
        let pool = &self.upstreams[upstream.pool];
        let connector = pool.entry.connector(upstream.peer.host);
        let server = &pool.server;
        let connect = || server.connect(upstream.peer, connector);
        let target = (CancelTarget::Backend(slot), key);
        let (registry, now) = (self.poll.registry(), self.now);
        match self.cancel_requests.start(target, requester, connect, registry, now) {
            Ok(()) => self.upstreams[slot].cancels += 1,
            Err(error) => {
                tracing::warn!(%error, "cannot send a cancel request");
                self.tell(requester);
            }
        }
    }

    pub(super) fn cancel_request_event(
        &mut self,
        slot: CancelRequestSlot,
        writable: bool,
        readable: bool,
    ) {
        if let Some(ended) = self.cancel_requests.advance(slot, writable, readable) {
            self.cancel_request_ended(&ended);
        }
    }

    /// The request has arrived, or never will.
    fn cancel_request_ended(&mut self, ended: &CancelRequest) {
        // The client may have been on its way when it was asked for.
        if ended.target == CancelTarget::OtherProcess
            && let Some(requester) = ended.requester
            && let Some(adopted) = self.shared.handover.adopted.find(&ended.key)
        {
            return self.route_to_adopted(adopted, &ended.key, requester);
        }
        self.tell(ended.requester);
        let CancelTarget::Backend(slot) = ended.target else {
            return;
        };
        let Some(upstream) = self.upstreams.get_mut(slot) else {
            return;
        };
        debug_assert!(upstream.cancels > 0, "each request ends once");
        upstream.cancels -= 1;
        if upstream.cancels > 0 {
            return;
        }
        // Its next request may have been held.
        if let Some(client) = upstream.client() {
            self.follow_ups.resume_client(client);
        }
        if matches!(upstream.state(), UpstreamState::Quarantined) {
            self.release_upstream(slot);
        }
    }

    /// Closes the connection that a cancel request came by, if it came by one.
    pub(super) fn tell(&mut self, requester: Option<Requester>) {
        let Some(Requester { worker, client }) = requester else {
            return;
        };
        if worker == self.index {
            self.remove_client(client);
        } else {
            self.shared.mailboxes[worker.0].post(Message::CancelEnded { client });
        }
    }

    /// Stops waiting for cancel requests, but never ends a quarantine before its time.
    pub(super) fn sweep_cancel_requests(&mut self) {
        let limit = self.shared.config.timeouts.connect;
        for slot in self.cancel_requests.overdue(limit, self.now) {
            let Some(request) = self.cancel_requests.0.get_mut(slot) else {
                continue;
            };
            let (requester, is_sent) = (request.requester.take(), request.unsent.is_none());
            let target = request.target;
            self.tell(requester);
            if let CancelTarget::Backend(upstream) = target {
                let backend = self.upstreams.get(upstream);
                let is_quarantined =
                    |it: &Upstream| matches!(it.state(), UpstreamState::Quarantined);
                if !backend.is_none_or(is_quarantined) {
                    continue;
                }
                if is_sent {
                    // Whenever the request arrives, it finds a backend that has ended.
                    self.close_upstream(upstream);
                }
            }
            if let Some(ended) = self.cancel_requests.0.remove(slot) {
                self.cancel_request_ended(&ended);
            }
        }
    }
}

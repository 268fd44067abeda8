//! Transactions whose client has gone, and requests to cancel.
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

use std::time::Instant;

use tidegate_gate::Outcome;
use tidegate_wire::backend::TransactionStatus;
use tidegate_wire::error_response::SqlState;
use tidegate_wire::startup::{self, CancelKey};

use crate::client::{ClientKey, Phase, Requester};
use crate::config::PoolMode;
use crate::mailbox::Letter;
use crate::net::{self, Outbox, ReadOutcome, Stream};
use crate::session;
use crate::slots::{INDEX_BITS, Key};
use crate::upstream::{UpstreamKey, UpstreamPhase};

use super::{Source, Worker};

/// A cancel request on its way to a server.
pub(super) struct Canceller {
    stream: Stream,
    request: Vec<u8>,
    /// The request has been written: it may arrive, now or later.
    sent: bool,
    upstream: UpstreamKey,
    /// Who waits for the end of it; `None` for a request of the proxy's own.
    requester: Option<Requester>,
    since: Instant,
}

/// Names a cancel request of a worker.
pub(super) type CancellerKey = Key<Canceller>;

impl Worker {
    /// The client of `slot` ends: what it holds upstream is brought to rest or closed.
    pub(super) fn leave_upstream(&mut self, slot: ClientKey) {
        let Some(client) = self.clients.get_mut(slot) else {
            return;
        };
        let Some(upstream) = client.upstream.take() else {
            return;
        };
        let was_running = matches!(client.phase, Phase::Running);
        let is_mid_message = !client.passing.is_none();
        // The ticket or permit of another phase returns when the client is removed.
        if !was_running {
            if let Some(server) = self.upstreams.get_mut(upstream) {
                server.client = None;
            }
            return self.close_upstream(upstream);
        }
        client.phase = Phase::Closing;
        self.abandon(upstream, is_mid_message);
    }

    fn abandon(&mut self, slot: UpstreamKey, is_mid_message: bool) {
        let Some(server) = self.upstreams.get_mut(slot) else {
            return;
        };
        server.client = None;
        // Its transaction is rolled back, which is work.
        if let Some(permit) = &mut server.permit {
            permit.resume(Instant::now());
        }
        server.enter(UpstreamPhase::Abandoned, self.now);
        self.counters.clients_lost.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if !self.upstreams[slot].session.replies.is_quiet() {
            self.cancel_upstream(slot, None);
        }
        if is_mid_message {
            // The server waits for the rest of a message that will never come, and would take a
            // polite Terminate for that.
            return self.remove_upstream(slot);
        }
        self.settle(slot);
        self.upstream_readable_later(slot, false);
    }

    /// Brings an abandoned connection one step nearer to rest.
    pub(super) fn settle(&mut self, slot: UpstreamKey) {
        let Some(server) = self.upstreams.get_mut(slot) else {
            return;
        };
        let mut out = Vec::new();
        session::wind_up(&mut server.session, &mut out);
        if server.outbox.send(&mut server.stream, &out).is_err() {
            return self.close_upstream(slot);
        }
        let session = &server.session;
        if !session.replies.is_quiet() || session.status != TransactionStatus::Idle {
            return;
        }
        let pool = server.pool;
        let permit = server.permit.take();
        match self.pools[pool].mode {
            _ if session.replies.is_uncertain() => self.close_upstream(slot),
            PoolMode::Session => self.close_upstream(slot),
            PoolMode::Transaction => self.release_upstream(pool, slot),
        }
        if let Some(permit) = permit {
            permit.finish(Outcome::Failed, Instant::now());
        }
    }

    /// Hands a cancel request to the worker whose client it names.
    pub(super) fn route_cancel(&mut self, key: CancelKey, requester: Requester) {
        let worker = (key.process_id >> INDEX_BITS) as usize;
        if worker == self.index {
            self.cancel(key, requester);
        } else if let Some(mailbox) = self.shared.mailboxes.get(worker) {
            mailbox.post(Letter::Cancel { key, requester });
        } else {
            self.tell_requester(requester);
        }
    }

    /// Cancels what the client with this key is doing, waiting included.
    pub(super) fn cancel(&mut self, key: CancelKey, requester: Requester) {
        let number = key.process_id & ((1 << INDEX_BITS) - 1);
        let named = number.checked_sub(1).and_then(|index| self.clients.at_index(index));
        let Some((slot, client)) = named.filter(|(_, client)| client.key == key) else {
            return self.tell_requester(requester);
        };
        let is_held = client.is_held && !client.inbox.is_empty();
        match client.phase {
            Phase::Queued(_) | Phase::AwaitingUpstream(_) => self.cancel_waiting(slot),
            Phase::Idle if is_held => self.cancel_waiting(slot),
            Phase::Running => {
                let upstream =
                    client.upstream.and_then(|key| Some((key, self.upstreams.get(key)?)));
                match upstream {
                    Some((upstream, server)) if server.session.is_at_work() => {
                        return self.cancel_upstream(upstream, Some(requester));
                    }
                    // What it is about is not on its way yet.
                    Some(_) if is_held => {
                        if let Some(client) = self.clients.get_mut(slot) {
                            client.cancel_when_sent = Some(requester);
                        }
                        return;
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        self.tell_requester(requester);
    }

    /// Fails a transaction of which nothing has reached the server.
    fn cancel_waiting(&mut self, slot: ClientKey) {
        let message = "canceling statement due to user request";
        self.refuse_transaction(slot, SqlState::QUERY_CANCELED, message);
    }

    /// Sends a cancel request that came while the client's input was held, now that it is not.
    pub(super) fn cancel_what_was_held(&mut self, slot: ClientKey, upstream: UpstreamKey) {
        let is_at_work = self.upstreams.get(upstream).is_some_and(|s| s.session.is_at_work());
        if let Some(client) = self.clients.get_mut(slot)
            && is_at_work
            && let Some(requester) = client.cancel_when_sent.take()
        {
            self.cancel_upstream(upstream, Some(requester));
        }
    }

    /// Whether a cancel request may still reach the backend behind a connection.
    pub(super) fn is_cancel_on_its_way(&self, upstream: UpstreamKey) -> bool {
        self.upstreams.get(upstream).is_some_and(|server| server.cancels > 0)
    }

    /// Sends a cancel request to the backend behind a connection.
    fn cancel_upstream(&mut self, upstream: UpstreamKey, requester: Option<Requester>) {
        let Some(server) = self.upstreams.get_mut(upstream) else {
            return self.tell(requester);
        };
        let Some(key) = server.key else {
            return self.tell(requester);
        };
        let address = &self.shared.servers[self.pools[server.pool].server];
        let mut request = Vec::new();
        startup::encode_cancel(&mut request, key);
        let (registry, since, peer) = (self.poll.registry(), self.now, server.peer);
        let inserted = self.cancellers.insert_with(|slot| {
            let mut stream = address.connect(peer)?;
            stream.register(registry, Source::Canceller(slot).token())?;
            Ok(Canceller { stream, request, sent: false, upstream, requester, since })
        });
        match inserted {
            Ok(_) => server.cancels += 1,
            Err(error) => {
                tracing::warn!(%error, "cannot send a cancel request");
                self.tell(requester);
            }
        }
    }

    pub(super) fn canceller_event(&mut self, slot: CancellerKey, writable: bool, readable: bool) {
        let Some(canceller) = self.cancellers.get_mut(slot) else {
            return;
        };
        if writable && !std::mem::replace(&mut canceller.sent, true) {
            // Sixteen bytes always fit an empty socket.
            let failed = canceller.stream.connected().is_err()
                || Outbox::default().send(&mut canceller.stream, &canceller.request).is_err();
            if failed {
                return self.cancel_ended(slot);
            }
        }
        // The server says nothing; it closes when the signal has been sent.
        if readable && net::read_once(&mut canceller.stream, &mut [0; 16]) == ReadOutcome::Closed {
            self.cancel_ended(slot);
        }
    }

    /// The request has arrived, or never will.
    fn cancel_ended(&mut self, slot: CancellerKey) {
        let Some(canceller) = self.cancellers.remove(slot) else {
            return;
        };
        self.tell(canceller.requester);
        let Some(server) = self.upstreams.get_mut(canceller.upstream) else {
            return;
        };
        server.cancels -= 1;
        if server.cancels > 0 {
            return;
        }
        // Its next request may have been held.
        self.ready_clients.extend(server.client);
        if matches!(server.phase, UpstreamPhase::Quarantined) {
            let pool = server.pool;
            self.release_upstream(pool, canceller.upstream);
        }
    }

    fn tell(&mut self, requester: Option<Requester>) {
        if let Some(requester) = requester {
            self.tell_requester(requester);
        }
    }

    /// Closes the connection that a cancel request came by.
    fn tell_requester(&mut self, Requester { worker, client }: Requester) {
        if worker == self.index {
            self.cancel_answered(client);
        } else if let Some(mailbox) = self.shared.mailboxes.get(worker) {
            mailbox.post(Letter::CancelEnded { client });
        }
    }

    /// The cancel request of this client has been dealt with.
    pub(super) fn cancel_answered(&mut self, client: ClientKey) {
        self.remove_client(client);
    }

    /// Ends the patience of those that wait for a cancel request; never its quarantine.
    pub(super) fn sweep_cancellers(&mut self) {
        let limit = self.shared.config.timeouts.connect;
        for slot in self.cancellers.keys() {
            let Some(canceller) = self.cancellers.get_mut(slot) else {
                continue;
            };
            if self.now.saturating_duration_since(canceller.since) < limit {
                continue;
            }
            let (requester, sent) = (canceller.requester.take(), canceller.sent);
            let upstream = canceller.upstream;
            self.tell(requester);
            let is_unused = self
                .upstreams
                .get(upstream)
                .is_none_or(|server| matches!(server.phase, UpstreamPhase::Quarantined));
            if !is_unused {
                continue;
            }
            if sent {
                // Whenever the request arrives, it finds a backend that has ended.
                self.close_upstream(upstream);
            }
            self.cancel_ended(slot);
        }
    }
}

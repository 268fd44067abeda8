//! Transactions whose client has gone, and requests to cancel.
//!
//! A client that vanishes leaves a backend at work. Closing the connection would not stop it: a
//! PostgreSQL backend notices only when it next writes, and until then it holds its locks while
//! its permit lets in another. So the permit stays with the connection, the backend is asked to
//! cancel, its transaction is rolled back, and only then are permit and connection free again.
//!
//! A cancel request travels on a connection of its own and may arrive late. Until that connection
//! has been closed by the server the backend is not given to another client (`Quarantined`).

use std::time::Instant;

use tidegate_gate::Outcome;
use tidegate_wire::backend::TransactionStatus;
use tidegate_wire::error_response::SqlState;
use tidegate_wire::startup::{self, CancelKey};

use crate::client::Phase;
use crate::config::PoolMode;
use crate::mailbox::Letter;
use crate::net::{self, Outbox, ReadOutcome, Stream};
use crate::session;
use crate::upstream::UpstreamPhase;

use super::{SLOT_BITS, Source, Worker};

/// A cancel request on its way to a server.
pub(super) struct Canceller {
    stream: Stream,
    request: Vec<u8>,
    sent: bool,
    upstream: usize,
    upstream_serial: u64,
    since: Instant,
}

impl Worker {
    /// The client of `slot` ends: what it holds upstream is brought to rest or closed.
    pub(super) fn leave_upstream(&mut self, slot: usize) {
        let Some(client) = self.clients.get_mut(slot) else {
            return;
        };
        let Some(upstream) = client.upstream.take() else {
            return;
        };
        let was_running = matches!(client.phase, Phase::Running);
        let is_mid_message = client.passing > 0;
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

    fn abandon(&mut self, slot: usize, is_mid_message: bool) {
        let Some(server) = self.upstreams.get_mut(slot) else {
            return;
        };
        server.client = None;
        server.enter(UpstreamPhase::Abandoned, self.now);
        self.counters.clients_lost.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if !self.upstreams[slot].session.replies.is_quiet() {
            self.cancel_upstream(slot);
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
    pub(super) fn settle(&mut self, slot: usize) {
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
    pub(super) fn route_cancel(&mut self, key: CancelKey) {
        let worker = (key.process_id >> SLOT_BITS) as usize;
        if worker == self.index {
            self.cancel(key);
        } else if let Some(mailbox) = self.shared.mailboxes.get(worker) {
            mailbox.post(Letter::Cancel(key));
        }
    }

    /// Cancels what the client with this key is doing, waiting included.
    pub(super) fn cancel(&mut self, key: CancelKey) {
        let number = (key.process_id & ((1 << SLOT_BITS) - 1)) as usize;
        let slot = number.wrapping_sub(1);
        let Some(client) = self.clients.get(slot).filter(|client| client.key == key) else {
            return;
        };
        match client.phase {
            Phase::Queued(_) | Phase::AwaitingUpstream(_) => {
                let message = "canceling statement due to user request";
                self.refuse_transaction(slot, SqlState::QUERY_CANCELED, message);
            }
            Phase::Running => {
                if let Some(upstream) = client.upstream {
                    self.cancel_upstream(upstream);
                }
            }
            _ => {}
        }
    }

    /// Sends a cancel request to the backend behind a connection.
    fn cancel_upstream(&mut self, slot: usize) {
        let Some(server) = self.upstreams.get_mut(slot) else {
            return;
        };
        let Some(key) = server.key else { return };
        let address = &self.shared.servers[self.pools[server.pool].server];
        let mut request = Vec::new();
        startup::encode_cancel(&mut request, key);
        let canceller = self.cancellers.vacant_key();
        let connected = address.connect(0).and_then(|mut stream| {
            stream.register(self.poll.registry(), Source::Canceller(canceller).token())?;
            Ok(stream)
        });
        match connected {
            Ok(stream) => {
                server.cancels += 1;
                self.cancellers.insert(Canceller {
                    stream,
                    request,
                    sent: false,
                    upstream: slot,
                    upstream_serial: server.serial,
                    since: self.now,
                });
            }
            Err(error) => tracing::warn!(%error, "cannot send a cancel request"),
        }
    }

    pub(super) fn canceller_event(&mut self, slot: usize, writable: bool, readable: bool) {
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

    fn cancel_ended(&mut self, slot: usize) {
        let Some(canceller) = self.cancellers.try_remove(slot) else {
            return;
        };
        let serial = canceller.upstream_serial;
        let Some(server) =
            self.upstreams.get_mut(canceller.upstream).filter(|server| server.serial == serial)
        else {
            return;
        };
        server.cancels -= 1;
        if server.cancels == 0 && matches!(server.phase, UpstreamPhase::Quarantined) {
            let pool = server.pool;
            self.release_upstream(pool, canceller.upstream);
        }
    }

    pub(super) fn sweep_cancellers(&mut self) {
        let limit = self.shared.config.timeouts.connect;
        let late =
            |canceller: &Canceller| self.now.saturating_duration_since(canceller.since) >= limit;
        let slots: Vec<usize> = self
            .cancellers
            .iter()
            .filter(|(_, canceller)| late(canceller))
            .map(|(slot, _)| slot)
            .collect();
        for slot in slots {
            self.cancel_ended(slot);
        }
    }
}

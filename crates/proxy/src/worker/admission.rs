//! From a client's first message to a permit and an upstream connection, and back.

use std::time::Instant;

use tidegate_gate::{Admission, Claim, Outcome, Permit, Request};
use tidegate_wire::backend::TransactionStatus;
use tidegate_wire::error_response::{self, Severity, SqlState};
use tidegate_wire::frontend;

use crate::client::{ClientKey, Phase};
use crate::config::PoolMode;
use crate::pool::{Pool, Refused};
use crate::replies::Owed;
use crate::settings::Settings;
use crate::upstream::{UpstreamKey, UpstreamPhase};

use super::Worker;
use super::clients::Flow;

impl Worker {
    /// The client's next message begins a transaction: asks for a permit.
    pub(super) fn begin_transaction(&mut self, slot: ClientKey) -> Flow {
        if self.stopping.is_some() {
            self.say_goodbye(slot);
            return Flow::Wait;
        }
        let Some(pool) = self.clients[slot].pool else {
            return Flow::Wait;
        };
        let gate = &self.shared.servers[self.pools[pool].server].gate;
        let now = Instant::now();
        let request = Request {
            class: self.clients[slot].class,
            deadline: self.shared.config.timeouts.queue.map(|wait| now + wait),
            token: slot.to_bits(),
            waker: &self.admitted,
        };
        match gate.request(&request, now) {
            Admission::Granted(permit) => {
                self.run_transaction(slot, permit);
                Flow::Next
            }
            Admission::Queued(ticket) => {
                self.clients[slot].phase = Phase::Queued(ticket);
                Flow::Wait
            }
            Admission::Refused(full) => {
                let message = format!(
                    "too many transactions are waiting for the database ({}); try again later",
                    full.waiting
                );
                self.refuse_transaction(slot, SqlState::TOO_MANY_CONNECTIONS, &message);
                Flow::Next
            }
        }
    }

    /// The gate says that the ticket of the client in this slot can be claimed.
    pub(super) fn admitted(&mut self, slot: ClientKey) {
        let Some(client) = self.clients.get_mut(slot) else {
            return;
        };
        if !matches!(client.phase, Phase::Queued(_)) {
            return;
        }
        let Phase::Queued(ticket) = std::mem::replace(&mut client.phase, Phase::Idle) else {
            return;
        };
        match ticket.claim() {
            Claim::Granted(permit) => self.run_transaction(slot, permit),
            Claim::Waiting(ticket) => client.phase = Phase::Queued(ticket),
            Claim::Expired => {
                let message = "canceling statement: it waited in Tidegate's queue longer than the \
                               queue timeout";
                self.refuse_transaction(slot, SqlState::QUERY_CANCELED, message);
            }
        }
        self.resume_later(slot);
    }

    /// Fails the transaction that the client is about to begin, and keeps the client.
    pub(super) fn refuse_transaction(
        &mut self,
        slot: ClientKey,
        code: SqlState<'_>,
        message: &str,
    ) {
        let Some(client) = self.clients.get_mut(slot) else {
            return;
        };
        client.phase = Phase::Refused;
        let mut out = Vec::new();
        error_response::encode_error(&mut out, Severity::Error, code, message);
        self.send_to_client(slot, &out);
        self.resume_later(slot);
    }

    /// The client has a permit: gives it an upstream connection, or lets it wait for one.
    fn run_transaction(&mut self, slot: ClientKey, permit: Permit) {
        let client = &mut self.clients[slot];
        let Some(pool) = client.pool else { return };
        if let Some(upstream) = client.upstream {
            return self.start(slot, upstream, permit);
        }
        if let Some(upstream) = self.pools[pool].idle.pop() {
            return self.assign(slot, upstream, permit);
        }
        client.phase = Phase::AwaitingUpstream(permit);
        self.pools[pool].waiting.push_back(slot);
        self.open_for_waiting(pool);
    }

    /// Links a client to a pooled connection, with the client's settings.
    fn assign(&mut self, slot: ClientKey, upstream: UpstreamKey, permit: Permit) {
        let (client, server) = (&mut self.clients[slot], &mut self.upstreams[upstream]);
        client.upstream = Some(upstream);
        server.client = Some(slot);
        server.enter(UpstreamPhase::Linked, self.now);
        server.session.begin_tenure();
        let (has, wanted) = (&mut server.session.settings, &client.session.settings);
        if server.session.is_altered || !has.unify(wanted) {
            let sql = if server.session.is_altered {
                Settings::sql_from_anything(wanted)
            } else {
                has.sql_to_become(wanted)
            };
            let mut out = Vec::new();
            frontend::encode_query(&mut out, sql.as_bytes());
            server.session.replies.sent(Owed::OwnQuery);
            if server.outbox.send(&mut server.stream, &out).is_err() {
                self.upstream_readable_later(upstream, true);
            }
        }
        self.start(slot, upstream, permit);
    }

    fn start(&mut self, slot: ClientKey, upstream: UpstreamKey, permit: Permit) {
        let server = &mut self.upstreams[upstream];
        server.session.failed = false;
        server.permit = Some(permit);
        self.clients[slot].phase = Phase::Running;
    }

    /// The settings of a client's tenure have been answered: its own messages may follow.
    pub(super) fn settings_answered(&mut self, upstream: UpstreamKey) {
        let server = &mut self.upstreams[upstream];
        let Some(slot) = server.client else { return };
        match server.session.own_error.take() {
            None => {
                server.session.settings = self.clients[slot].session.settings.clone();
                server.session.is_altered = false;
                self.resume_later(slot);
            }
            Some(payload) => {
                let code = error_response::field(&payload, b'C');
                let message = error_response::field(&payload, b'M');
                self.end_client(slot, Severity::Fatal, SqlState(&code), &message);
            }
        }
    }

    /// ReadyForQuery reached the client. If nothing is open or owed, the transaction has ended.
    pub(super) fn ready_for_query(&mut self, upstream: UpstreamKey) {
        let server = &mut self.upstreams[upstream];
        let Some(slot) = server.client else { return };
        let session = &mut server.session;
        // Its input may have been held for this moment.
        self.ready_clients.push(slot);
        let is_mid_message = self.clients.get(slot).is_some_and(|client| !client.passing.is_none());
        if session.status != TransactionStatus::Idle {
            if session.is_idle_in_transaction() && !is_mid_message {
                self.begin_idle(slot, upstream);
            }
            return;
        }
        if session.replies.is_quiet() && !is_mid_message {
            return self.end_transaction(slot, upstream);
        }
        let outcome = outcome(&mut session.failed);
        if let Some(permit) = &mut server.permit {
            permit.next_transaction(outcome, Instant::now());
        }
    }

    /// Nothing is open or owed: gives the permit back, and in transaction mode the connection.
    pub(super) fn end_transaction(&mut self, slot: ClientKey, upstream: UpstreamKey) {
        let server = &mut self.upstreams[upstream];
        let (outcome, now) = (outcome(&mut server.session.failed), Instant::now());
        let permit = server.permit.take();
        let (pool, mode) = (server.pool, self.pools[server.pool].mode);
        if let Some(client) = self.clients.get_mut(slot) {
            client.phase = Phase::Idle;
            client.idle_in_transaction_since = None;
            if mode == PoolMode::Transaction {
                client.upstream = None;
            }
        }
        if mode == PoolMode::Transaction {
            self.upstreams[upstream].client = None;
            self.release_upstream(pool, upstream);
        }
        // The connection is at rest before the next transaction is let in.
        if let Some(permit) = permit {
            permit.finish(outcome, now);
        }
        if self.stopping.is_some() {
            self.say_goodbye(slot);
        }
    }

    /// A pooled connection is at rest and nobody's.
    pub(super) fn release_upstream(&mut self, pool: usize, upstream: UpstreamKey) {
        let server = &mut self.upstreams[upstream];
        if server.cancels > 0 {
            server.enter(UpstreamPhase::Quarantined, self.now);
            return;
        }
        if self.stopping.is_some() {
            return self.close_upstream(upstream);
        }
        while let Some(waiter) = self.pools[pool].waiting.pop_front() {
            let Some(client) = self.clients.get_mut(waiter) else {
                continue;
            };
            match std::mem::replace(&mut client.phase, Phase::Idle) {
                Phase::AwaitingUpstream(permit) => {
                    self.pools[pool].refused = None;
                    permit.begin_work(Instant::now());
                    self.assign(waiter, upstream, permit);
                    return self.resume_later(waiter);
                }
                other => client.phase = other,
            }
        }
        server_at_rest(&mut self.upstreams[upstream], self.now);
        self.pools[pool].idle.push(upstream);
    }

    /// The server has given no connection, and others of the pool are in use: those that wait take
    /// over the next that is free, and the gate lets in no more than have a connection.
    pub(super) fn await_release(&mut self, pool: usize, code: &str, message: &str) {
        let Pool { waiting, opening, server, refused, .. } = &mut self.pools[pool];
        if refused.is_none() {
            tracing::warn!(message, "no upstream connection; waiting for one that is in use");
            let (code, message) = (code.to_owned(), message.to_owned());
            *refused = Some(Refused { since: self.now, code, message });
        }
        // The one that was refused is still among those that are opening.
        let without = waiting.len().saturating_sub(opening.saturating_sub(1)).max(1);
        let without = u32::try_from(without).unwrap_or(u32::MAX);
        self.shared.servers[*server].gate.refused_by_server(without, Instant::now());
    }

    /// Asks servers again that have refused a connection; fails transactions that have waited for
    /// one too long.
    pub(super) fn sweep_refused(&mut self) {
        let limit = self.shared.config.timeouts.connect;
        for pool in 0..self.pools.len() {
            let Some(Refused { since, .. }) = self.pools[pool].refused else { continue };
            if self.pools[pool].waiting.is_empty() {
                self.pools[pool].refused = None;
            } else if self.now.saturating_duration_since(since) < limit {
                self.open_for_waiting(pool);
            } else if let Some(Refused { code, message, .. }) = self.pools[pool].refused.take() {
                for _ in 0..self.pools[pool].waiting.len() {
                    self.fail_one_waiting(pool, SqlState(&code), &message);
                }
            }
        }
    }

    /// No connection could be had: fails the transaction that has waited longest for one.
    pub(super) fn fail_one_waiting(&mut self, pool: usize, code: SqlState<'_>, message: &str) {
        while let Some(waiter) = self.pools[pool].waiting.pop_front() {
            let client = self.clients.get(waiter);
            if client.is_some_and(|client| matches!(client.phase, Phase::AwaitingUpstream(_))) {
                return self.refuse_transaction(waiter, code, message);
            }
        }
    }
}

fn outcome(failed: &mut bool) -> Outcome {
    if std::mem::take(failed) { Outcome::Failed } else { Outcome::Completed }
}

fn server_at_rest(server: &mut crate::upstream::Upstream, now: Instant) {
    server.client = None;
    server.enter(UpstreamPhase::Idle, now);
}

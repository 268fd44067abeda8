//! Upstream connections: opening them, a server's bytes, closing them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_wire::error_response::{self, Severity, SqlState};
use tidegate_wire::input::{Input, InputError, Side};
use tidegate_wire::{Malformed, backend::tag, frontend, startup};

use crate::capacity::Place;
use crate::client::{Client, ClientSlot};
use crate::config::PoolMode;
use crate::handshake::{Progress, UpstreamError};
use crate::hosts::{self, Opening};
use crate::net::{BatchOutput, Connection, ReadOutcome};
use crate::replies::Verdict;
use crate::session::{self, ClientSession};
use crate::session_state::{self, Kinds};
use crate::slots::PoolIndex;
use crate::timeouts::ShownBound;
use crate::traffic;
use crate::upstream::{Upstream, UpstreamSlot, UpstreamState};

use super::{Source, Worker};

/// A message up to this length is handled when it is complete; a longer one in pieces.
const WHOLE_LEN: usize = 1024;

/// The same for an answer to a query of the proxy's own, which the proxy reads.
const OWN_WHOLE_LEN: usize = 32 * 1024;

/// The longest message a server sends during login.
const LOGIN_MESSAGE_MAX: usize = 32 * 1024;

/// What the relayed bytes of a server contained.
#[derive(Default)]
struct Relayed {
    /// A ReadyForQuery for the client.
    ready: bool,
    /// How many of them there were.
    answers: u64,
    /// A query of the proxy's own was answered.
    own_ready: bool,
    /// An error on a connection that no client holds: the server is about to close it.
    last_words: bool,
    /// What the proxy has refused.
    refused: Kinds,
}

/// A server's bytes that make no sense.
#[derive(Debug, thiserror::Error)]
enum ServerViolation {
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("message type {0:#04x} on a connection at rest")]
    Unsolicited(u8),
}

impl Worker {
    /// Tells a client the server's parameters, as soon as they are known.
    pub(super) fn await_parameters(&mut self, slot: ClientSlot) {
        // The client may have been lost when it was written to.
        let Some(account) = self.clients.get(slot).and_then(Client::account) else {
            return;
        };
        let pool = account.pool;
        match self.upstreams[pool].mode {
            PoolMode::Session => {
                self.upstreams.queue_for_session(slot);
                self.open_for_sessions();
            }
            PoolMode::Transaction => {
                if let Some(parameters) = self.upstreams[pool].parameters.clone() {
                    return self.finish_client_login(slot, &parameters);
                }
                self.upstreams[pool].awaiting_parameters.push(slot);
                self.open_for_waiting(pool);
            }
        }
    }

    /// Opens connections for clients of session mode, a bounded number at a time.
    pub(super) fn open_for_sessions(&mut self) {
        while let Some(waiter) = self.upstreams.next_for_session() {
            // A client that has gone, or was told that it takes too long, needs none.
            let waits = self.clients.get(waiter).and_then(Client::awaiting_parameters);
            let Some(pool) = waits.map(|account| account.pool) else { continue };
            self.upstreams[pool].sessions.push_back(waiter);
            self.open_for_waiting(pool);
        }
    }

    /// Begins to open a connection. Returns `None` if this is not the time for an attempt to reach
    /// the server: when it comes, all connections are opened that are missing then.
    pub(super) fn open(
        &mut self,
        pool: PoolIndex,
        client: Option<ClientSlot>,
        place: Place,
    ) -> Result<Option<UpstreamSlot>, UpstreamError> {
        let entry = Arc::clone(&self.upstreams[pool].entry);
        let server = &*entry.server;
        let attempt = match server.hosts.begin(self.now) {
            Opening::Now(attempt) => attempt,
            Opening::Later(at) => {
                self.outages.retry_by(at);
                return Ok(None);
            }
        };
        let peer = attempt.peer();
        let server = (server, peer, entry.connector(peer.host));
        let token = |slot| Source::Upstream(slot).token();
        let registry = self.poll.registry();
        let id = self.shared.commands.next_id();
        match self.upstreams.open(pool, (id, client, place), server, (registry, token), self.now) {
            Ok(slot) => {
                self.upstreams[slot].attempt = Some(attempt);
                self.upstreams[slot].retires_at = self.retirement();
                self.counters.upstream_connects.fetch_add(1, Ordering::Relaxed);
                Ok(Some(slot))
            }
            Err(error) => {
                self.end_attempt(Some(attempt), &error);
                Err(error)
            }
        }
    }

    pub(super) fn upstream_writable(&mut self, slot: UpstreamSlot) {
        let Some(server) = self.upstreams.get_mut(slot) else {
            return;
        };
        if matches!(server.state(), UpstreamState::Connecting(_)) {
            return self.connected(slot);
        }
        if !server.connection.has_unsent() || server.is_passing() {
            return;
        }
        if server.connection.flush().is_err() {
            // Reading tells why, and may bring the server's last words.
            return self.upstream_readable(slot, true);
        }
        if !server.connection.has_unsent()
            && let Some(client) = server.client()
        {
            self.follow_ups.resume_client(client);
        }
    }

    /// The socket is connected, or has failed to: sends the start-up packet.
    fn connected(&mut self, slot: UpstreamSlot) {
        let Some((server, pool)) = self.upstreams.with_pool(slot) else {
            return;
        };
        if let Err(error) = server.connection.connected() {
            return self.lose_upstream(slot, &error.into());
        }
        let mut parameters = vec![
            (&b"user"[..], pool.credentials.user.as_bytes()),
            (b"database", pool.key.server_database.as_bytes()),
        ];
        let client = server.client().and_then(|client| self.clients.get(client));
        if let Some(account) = client.and_then(Client::account) {
            parameters.extend(account.session.settings.iter());
        }
        if let Some(replication) = pool.key.replication {
            parameters.push((b"replication", replication.value()));
        }
        let mut out = Vec::new();
        startup::encode_startup(&mut out, parameters);
        // A connection for physical replication runs no queries.
        let asks = !pool.is_for_replication() && self.shared.accounts.asks(pool.server.index);
        server.begin_login(asks);
        if server.connection.send(&out).is_err() {
            // A server that is full may say so before it has read anything.
            self.upstream_readable(slot, true);
        }
    }

    pub(super) fn upstream_readable(&mut self, slot: UpstreamSlot, closed: bool) {
        if let Some(server) = self.upstreams.get_mut(slot).filter(|it| !it.is_passing()) {
            server.connection.set_readable(closed);
            self.read_upstream(slot);
        }
    }

    /// Returns whether the server's socket should be read now: not while its client is slow to take
    /// more.
    fn wants_output(&self, slot: UpstreamSlot) -> bool {
        let Some(server) = self.upstreams.get(slot) else {
            return false;
        };
        let client = server.client().and_then(|client| self.clients.get(client));
        server.connection.is_readable()
            && !server.is_passing()
            && client.is_none_or(|client| !client.connection.has_unsent())
    }

    /// Reads what the server has sent.
    pub(super) fn read_upstream(&mut self, slot: UpstreamSlot) {
        let mut buffer = std::mem::take(&mut self.buffers.from_server);
        while self.wants_output(slot) {
            let Connection { inbox, .. } = &mut self.upstreams[slot].connection;
            let carried = inbox.len();
            buffer[..carried].copy_from_slice(inbox);
            match self.upstreams[slot].connection.read(&mut buffer[carried..]) {
                ReadOutcome::Bytes { count, .. } => {
                    self.upstreams[slot].connection.inbox.clear();
                    self.counters.bytes_from_servers.fetch_add(count as u64, Ordering::Relaxed);
                    if let Some((server, pool)) = self.upstreams.with_pool(slot)
                        && server.client().is_some()
                    {
                        pool.traffic.total.sent += count as u64;
                    }
                    self.upstream_bytes(slot, &buffer[..carried + count]);
                }
                ReadOutcome::Nothing => {}
                ReadOutcome::Closed => {
                    let error = self.upstreams[slot].closed();
                    self.lose_upstream(slot, &error);
                }
            }
        }
        self.buffers.from_server = buffer;
    }

    /// Handles what the server has sent; the connection keeps what is incomplete.
    fn upstream_bytes(&mut self, slot: UpstreamSlot, bytes: &[u8]) {
        if self.upstreams.get(slot).is_some_and(Upstream::is_closing) {
            return;
        }
        let mut input = Input::new(Side::Server, bytes);
        let is_opening = |this: &Worker| this.upstreams.get(slot).map(Upstream::is_opening);
        if is_opening(self) == Some(true) {
            let progress = self.login_messages(slot, &mut input);
            match progress.and_then(|progress| self.check_role(slot, progress)) {
                Ok(Progress::Continues) => {}
                Ok(Progress::Ready) => self.logged_in(slot),
                Err(error) => self.lose_upstream(slot, &error),
            }
        }
        if is_opening(self) == Some(false) {
            self.relay_to_client(slot, &mut input);
        }
        if let Some(server) = self.upstreams.get_mut(slot) {
            server.connection.inbox.extend_from_slice(&bytes[input.position()..]);
        }
    }

    /// Handles login messages.
    fn login_messages(
        &mut self,
        slot: UpstreamSlot,
        input: &mut Input<'_>,
    ) -> Result<Progress, UpstreamError> {
        let Some((server, pool)) = self.upstreams.with_pool(slot) else {
            return Ok(Progress::Continues);
        };
        loop {
            let peeked = match input.peek() {
                Ok(Some(peeked)) if peeked.announced_len() <= LOGIN_MESSAGE_MAX => peeked,
                Ok(Some(peeked)) => return Err(UpstreamError::Unexpected(peeked.tag())),
                Ok(None) => return Ok(Progress::Continues),
                Err(error) => return Err(UpstreamError::Unexpected(error.tag())),
            };
            if !peeked.is_complete() {
                return Ok(Progress::Continues);
            }
            let (message, _) = peeked.take();
            // A server that speaks before it was spoken to is none.
            let Some((handshake, connection)) = server.login() else {
                return Err(UpstreamError::Unexpected(message.tag()));
            };
            let mut out = Vec::new();
            let message = (message.tag(), message.payload());
            let tls = connection.encryption();
            let progress = handshake.message(message, &pool.credentials, tls, &mut out)?;
            if progress == Progress::Ready {
                return Ok(progress);
            }
            if !out.is_empty() {
                connection.send(&out)?;
            }
        }
    }

    /// The connection is ready for its first transaction.
    fn logged_in(&mut self, slot: UpstreamSlot) {
        self.learn_limits(slot);
        let pool = self.upstreams[slot].pool;
        self.upstreams[pool].keeps_open_at = None;
        let Some((parameters, client)) = self.upstreams.finish_login(slot, self.now) else {
            return;
        };
        self.open_for_sessions();
        if let Some(client) = client {
            self.upstreams[pool].traffic.total.assignments += 1;
            self.upstreams[pool].refused = None;
            return self.finish_client_login(client, &parameters);
        }
        for waiter in std::mem::take(&mut self.upstreams[pool].awaiting_parameters) {
            self.finish_client_login(waiter, &parameters);
        }
        self.upstreams[pool].parameters = Some(parameters);
        self.release_upstream(slot);
        self.open_missing(pool);
    }

    /// Tells those that wait for a connection why there is none.
    pub(super) fn opening_failed(
        &mut self,
        pool: PoolIndex,
        client: Option<ClientSlot>,
        error: &UpstreamError,
    ) {
        self.counters.upstream_connect_failures.fetch_add(1, Ordering::Relaxed);
        if hosts::may_pass(error) {
            return self.hold(pool, client);
        }
        let (code, message) = self.describe(pool, error);
        let is_full = code == SqlState::TOO_MANY_CONNECTIONS.0 && self.has_others_open(pool);
        if let Some(client) = client {
            if is_full {
                self.await_place_again(client, pool);
                return self.await_release(pool, &code, &message);
            }
            return self.refuse_login(client, SqlState(&code), &message);
        }
        // A connection that is in use comes free some time.
        if is_full {
            return self.await_release(pool, &code, &message);
        }
        for waiter in std::mem::take(&mut self.upstreams[pool].awaiting_parameters) {
            self.refuse_login(waiter, SqlState(&code), &message);
        }
        // A field of the name `message` would be logged as it is, with the line ends that a
        // database's name may have.
        let reason = message.as_str();
        tracing::warn!(reason, "no upstream connection");
        self.fail_one_waiting(pool, SqlState(&code), &message);
        // There may be more who wait than connections are being opened.
        self.outages.retry_by(Some(self.now));
    }

    /// Returns the code and the words in which a client is told of an upstream error.
    fn describe(&self, pool: PoolIndex, error: &UpstreamError) -> (String, String) {
        let server = &self.upstreams[pool].server.address;
        match error {
            UpstreamError::Refused { code, message } => (code.clone(), message.clone()),
            other => (
                hosts::sql_state(other).to_owned(),
                format!("cannot use the database server at {server}: {other}"),
            ),
        }
    }

    /// Passes a server's messages to its client, if it has one.
    fn relay_to_client(&mut self, slot: UpstreamSlot, input: &mut Input<'_>) {
        let server = &mut self.upstreams[slot];
        let client = server.client();
        let mut gather = BatchOutput::new(input.bytes(), std::mem::take(&mut self.buffers.changed));
        let session = client.and_then(|client| self.clients.get_mut(client)?.session_mut());
        let relayed = relay(server, session, input, &mut gather);
        if std::mem::take(&mut server.session.is_plan_outdated) {
            self.definitions.renew();
        }
        if let Some(client) = client
            && !gather.bytes().is_empty()
            // To a client that has sent nothing the connection is unknown, and replaced if it ends.
            && self.clients.get(client).is_some_and(|it| it.unsent().is_none())
        {
            self.send_to_client(client, gather.bytes());
        }
        self.buffers.changed = gather.recycle();
        match relayed {
            Ok(Relayed { last_words: true, .. }) => {
                self.lose_upstream(slot, &UpstreamError::Closed);
            }
            Ok(relayed) => self.after_relay(slot, &relayed),
            Err(violation) => {
                tracing::warn!(%violation, "closing an upstream connection");
                self.lose_upstream(slot, &UpstreamError::Closed);
            }
        }
    }

    fn after_relay(&mut self, slot: UpstreamSlot, relayed: &Relayed) {
        for kind in relayed.refused.pinning() {
            self.counters.session_state_refused.count(kind);
        }
        self.count_queries(slot, relayed.answers);
        match self.upstreams[slot].state() {
            // Not only at the end: a COPY may ask for data, which no client will send.
            UpstreamState::Abandoned(_) => self.wind_up(slot),
            UpstreamState::Lent { .. } if relayed.ready => self.ready_for_query(slot),
            UpstreamState::Checking if relayed.ready => self.release_upstream(slot),
            UpstreamState::Lent { .. } if relayed.own_ready => self.own_query_answered(slot),
            _ => {}
        }
    }

    /// Counts queries that have been answered.
    fn count_queries(&mut self, slot: UpstreamSlot, answers: u64) {
        let now = self.now;
        if answers == 0 {
            return;
        }
        let Some((server, pool)) = self.upstreams.with_pool(slot) else { return };
        let Some(since) = server.query_since.take() else { return };
        pool.traffic.total.queries += answers;
        let spent = now.saturating_duration_since(since);
        pool.traffic.total.query_us += traffic::micros(spent);
        // What was sent behind it is being answered from now on.
        server.query_since = (!server.session.replies.is_quiet()).then_some(now);
    }

    /// Tells those that depend on a connection that it is gone, or of no use.
    pub(super) fn lose_upstream(&mut self, slot: UpstreamSlot, error: &UpstreamError) {
        let Some(server) = self.upstreams.get_mut(slot) else {
            return;
        };
        if server.is_closing() {
            return self.remove_upstream(slot);
        }
        let (pool, client, is_opening) = (server.pool, server.client(), server.is_opening());
        let (is_told, attempt) = (server.session.is_ending, server.attempt.take());
        if !matches!(error, UpstreamError::Refused { .. }) {
            self.lost_contact(self.upstreams[pool].server.index, is_opening);
        }
        if is_opening {
            self.remove_upstream(slot);
            self.end_attempt(attempt, error);
            self.opening_failed(pool, client, error);
            return self.open_for_sessions();
        }
        self.suspect_others(slot);
        if self.put_back(slot) {
            return;
        }
        self.remove_upstream(slot);
        if let Some(client) = client {
            if is_told {
                return self.close_client(client);
            }
            let (code, message) = self.describe(pool, error);
            self.end_client(client, Severity::Fatal, SqlState(&code), &message);
        }
    }

    /// Closes a connection politely.
    pub(super) fn close_upstream(&mut self, slot: UpstreamSlot) {
        let Some(server) = self.upstreams.get_mut(slot) else {
            return;
        };
        if server.is_opening() {
            self.remove_upstream(slot);
            return self.open_for_sessions();
        }
        if server.is_closing() {
            return;
        }
        // It may be another process's by now.
        if server.is_passing() {
            return self.remove_upstream(slot);
        }
        server.connection.send_last(frontend::TERMINATE);
        // A permit comes back at once, not when the server has ended the connection.
        if self.stopping.is_some() || server.is_busy() {
            return self.remove_upstream(slot);
        }
        let (was_quarantined, pool) =
            (matches!(server.state(), UpstreamState::Quarantined), server.pool);
        self.upstreams.begin_closing(slot, self.now);
        // Its end may have been seen already.
        self.follow_ups.resume_upstream(slot);
        if was_quarantined {
            self.open_for_waiting(pool);
        }
    }

    /// Removes a connection. Its permit, if it has one, returns.
    pub(super) fn remove_upstream(&mut self, slot: UpstreamSlot) {
        let Some(removed) = self.upstreams.remove(slot) else {
            return;
        };
        if removed.is_withheld() && self.stopping.is_none() {
            self.open_for_waiting(removed.pool);
        }
    }

    pub(super) fn sweep_upstreams(&mut self) {
        let timeouts = self.shared.config.timeouts;
        for slot in self.upstreams.slots() {
            let Some(server) = self.upstreams.get(slot) else {
                continue;
            };
            let age = self.now.saturating_duration_since(server.since);
            match server.state() {
                UpstreamState::Connecting(_) | UpstreamState::LoggingIn(..)
                    if age >= timeouts.connect =>
                {
                    let is_connecting = matches!(server.state(), UpstreamState::Connecting(_));
                    let to = if is_connecting { "to the connection" } else { "to the login" };
                    let bound = ShownBound("connect", timeouts.connect);
                    self.lose_upstream(slot, &UpstreamError::NotReadyInTime { bound, to });
                }
                UpstreamState::Idle
                    if age >= timeouts.server_idle && self.may_expire(server.pool) =>
                {
                    self.close_upstream(slot);
                }
                UpstreamState::Closing if age >= timeouts.connect => self.remove_upstream(slot),
                UpstreamState::Checking if age >= timeouts.health_check => self.fail_check(slot),
                UpstreamState::Abandoned(_) if age >= timeouts.abandoned => {
                    tracing::warn!("an abandoned transaction did not end; closing its connection");
                    self.remove_upstream(slot);
                }
                _ => {}
            }
        }
    }
}

/// Handles the messages of `input`; what is for the client is collected in `out`.
fn relay(
    server: &mut Upstream,
    mut client: Option<&mut ClientSession>,
    input: &mut Input<'_>,
    out: &mut BatchOutput<'_>,
) -> Result<Relayed, ServerViolation> {
    let is_at_rest = server.is_at_rest();
    let is_checked = matches!(server.state(), UpstreamState::Checking);
    let mut relayed = Relayed::default();
    while !input.is_empty() {
        let passing = &mut server.connection.passing;
        if !passing.is_none() {
            let piece = input.skip(passing);
            if server.is_passed_on {
                out.pass(piece);
            }
            continue;
        }
        let Some(peeked) = input.peek()? else {
            break;
        };
        let is_own = server.session.replies.is_own_query();
        let whole_len = if is_own { OWN_WHOLE_LEN } else { WHOLE_LEN };
        if !peeked.is_complete() && peeked.announced_len() <= whole_len {
            break;
        }
        if is_at_rest && !may_come_at_rest(peeked.tag()) {
            return Err(ServerViolation::Unsolicited(peeked.tag()));
        }
        let (message, missing) = peeked.take();
        let (tag, payload) = (message.tag(), message.payload());
        let verdict =
            session::from_server(tag, payload, client.as_deref_mut(), &mut server.session)?;
        server.connection.passing = missing;
        server.is_passed_on = verdict == Verdict::Pass;
        if server.is_passed_on {
            let is_whole = server.connection.passing.is_none();
            let changed = is_whole
                .then(|| session::in_clients_words(tag, payload, client.as_deref()))
                .flatten();
            match changed {
                Some(changed) => out.spill().extend_from_slice(&changed),
                None => out.pass(message.range()),
            }
        } else if let Verdict::Replace(kinds) = verdict {
            let (message, hint) = session_state::refusal(kinds);
            error_response::encode_refusal(out.spill(), &message, hint);
            relayed.refused = relayed.refused.union(kinds);
        }
        session::answer_for_proxy(client.as_deref_mut(), &mut server.session, out);
        relayed.last_words |= tag == tag::ERROR && (is_at_rest || is_checked);
        if tag == tag::READY_FOR_QUERY {
            relayed.own_ready |= is_own;
            relayed.ready |= !is_own;
            relayed.answers += u64::from(!is_own);
        }
    }
    Ok(relayed)
}

fn may_come_at_rest(tag: u8) -> bool {
    matches!(tag, tag::NOTICE | tag::PARAMETER_STATUS | tag::NOTIFICATION | tag::ERROR)
}

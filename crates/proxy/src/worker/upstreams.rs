//! Upstream connections: opening them, a server's bytes, closing them.

use std::sync::atomic::Ordering;

use tidegate_wire::error_response::{Severity, SqlState};
use tidegate_wire::input::{Input, InputError, Side};
use tidegate_wire::{Malformed, backend::tag, frontend, startup};

use crate::client::ClientKey;
use crate::config::PoolMode;
use crate::handshake::{Handshake, Progress, UpstreamError};
use crate::net::{self, Gather, ReadOutcome};
use crate::replies::Verdict;
use crate::session;
use crate::upstream::{Upstream, UpstreamKey, UpstreamPhase};

use super::{OPENING_MAX, Source, Worker};

/// A message up to this length is looked at when it is complete; a longer one passes in pieces.
const LOOKED_AT_LEN: usize = 1024;

/// The longest message a server sends during login.
const LOGIN_MESSAGE_MAX: usize = 32 * 1024;

/// What a relayed stretch of a server's bytes contained.
#[derive(Default)]
struct Relayed {
    /// ReadyForQuery for the client came last with nothing behind it that matters.
    ready: bool,
    /// A query of the proxy's own was answered.
    own_ready: bool,
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
    /// A client of this pool is told the server's parameters, once they are known.
    pub(super) fn await_welcome(&mut self, slot: ClientKey) {
        let Some(pool) = self.clients.get(slot).and_then(|client| client.pool) else {
            return;
        };
        match self.pools[pool].mode {
            PoolMode::Session => {
                self.to_open.push_back(slot);
                self.open_for_sessions();
            }
            PoolMode::Transaction => {
                if let Some(welcome) = self.pools[pool].welcome.clone() {
                    return self.welcome(slot, &welcome);
                }
                self.pools[pool].welcoming.push(slot);
                if self.pools[pool].opening == 0 {
                    self.open_pooled(pool);
                }
            }
        }
    }

    /// Opens connections for clients of session mode, a bounded number at a time.
    fn open_for_sessions(&mut self) {
        while self.opening < OPENING_MAX
            && let Some(waiter) = self.to_open.pop_front()
        {
            let Some(pool) = self.clients.get(waiter).and_then(|client| client.pool) else {
                continue;
            };
            match self.open(pool) {
                Ok(upstream) => {
                    self.upstreams[upstream].client = Some(waiter);
                    self.clients[waiter].upstream = Some(upstream);
                }
                Err(error) => self.login_without_server(waiter, pool, &error),
            }
        }
    }

    /// Opens one more connection of a pool.
    pub(super) fn open_pooled(&mut self, pool: usize) {
        if let Err(error) = self.open(pool) {
            self.opening_failed(pool, None, &error);
        }
    }

    /// Opens a connection if more transactions wait than connections are expected. One in
    /// quarantine is expected: the server that has to end its quarantine has to accept a new
    /// connection too.
    pub(super) fn open_for_waiting(&mut self, pool: usize) {
        let in_quarantine = |server: &Upstream| {
            server.pool == pool && matches!(server.phase, UpstreamPhase::Quarantined)
        };
        let quarantined = self.upstreams.iter().filter(|(_, server)| in_quarantine(server)).count();
        if self.pools[pool].opening + quarantined < self.pools[pool].waiting.len() {
            self.open_pooled(pool);
        }
    }

    fn open(&mut self, pool: usize) -> Result<UpstreamKey, UpstreamError> {
        let server = &self.shared.servers[self.pools[pool].server];
        self.connects += 1;
        let peer = server.peer(self.connects)?;
        let (registry, now) = (self.poll.registry(), self.now);
        let slot = self.upstreams.insert_with(|slot| {
            let mut stream = server.connect(peer)?;
            stream.register(registry, Source::Upstream(slot).token())?;
            Ok(Upstream::new(stream, peer, pool, now))
        })?;
        self.opening += 1;
        self.pools[pool].opening += 1;
        self.counters.upstream_connects.fetch_add(1, Ordering::Relaxed);
        Ok(slot)
    }

    pub(super) fn upstream_writable(&mut self, slot: UpstreamKey) {
        let Some(server) = self.upstreams.get_mut(slot) else {
            return;
        };
        if matches!(server.phase, UpstreamPhase::Connecting) {
            return self.connected(slot);
        }
        if server.outbox.is_empty() {
            return;
        }
        if server.outbox.flush(&mut server.stream).is_err() {
            return self.lose_upstream(slot, &UpstreamError::Closed);
        }
        if server.outbox.is_empty()
            && let Some(client) = server.client
        {
            self.resume_later(client);
        }
    }

    /// The socket is connected, or has failed to: sends the start-up packet.
    fn connected(&mut self, slot: UpstreamKey) {
        let server = &mut self.upstreams[slot];
        if let Err(error) = server.stream.connected() {
            return self.lose_upstream(slot, &error.into());
        }
        let pool = &self.pools[server.pool];
        let mut parameters = vec![
            (&b"user"[..], pool.credentials.user.as_bytes()),
            (b"database", pool.key.server_database.as_bytes()),
        ];
        match server.client.and_then(|client| self.clients.get(client)) {
            Some(client) => parameters.extend(client.session.settings.iter()),
            None => parameters.push((b"application_name", b"tidegate")),
        }
        let mut out = Vec::new();
        startup::encode_startup(&mut out, parameters);
        server.phase = UpstreamPhase::LoggingIn(Handshake::new());
        if let Err(error) = server.outbox.send(&mut server.stream, &out) {
            self.lose_upstream(slot, &error.into());
        }
    }

    pub(super) fn upstream_readable(&mut self, slot: UpstreamKey, closed: bool) {
        let Some(server) = self.upstreams.get_mut(slot) else {
            return;
        };
        server.readable = true;
        server.hung_up |= closed;
        self.pump_upstream(slot);
    }

    pub(super) fn upstream_readable_later(&mut self, slot: UpstreamKey, closed: bool) {
        let Some(server) = self.upstreams.get_mut(slot) else {
            return;
        };
        server.readable = true;
        server.hung_up |= closed;
        self.ready_upstreams.push(slot);
    }

    /// Whether the server's socket should be read now: not while its client is slow to take more.
    fn wants_output(&self, slot: UpstreamKey) -> bool {
        let Some(server) = self.upstreams.get(slot) else {
            return false;
        };
        let client = server.client.and_then(|client| self.clients.get(client));
        server.readable && client.is_none_or(|client| client.outbox.is_empty())
    }

    /// Reads what the server has sent.
    pub(super) fn pump_upstream(&mut self, slot: UpstreamKey) {
        let mut buffer = std::mem::take(&mut self.server_buffer);
        while self.wants_output(slot) {
            let server = &mut self.upstreams[slot];
            let carried = server.carry.len();
            buffer[..carried].copy_from_slice(&server.carry);
            match net::read_once(&mut server.stream, &mut buffer[carried..]) {
                ReadOutcome::Bytes { count, more } => {
                    server.carry.clear();
                    server.readable = more || server.hung_up;
                    self.counters.bytes_from_servers.fetch_add(count as u64, Ordering::Relaxed);
                    self.upstream_bytes(slot, &buffer[..carried + count]);
                }
                ReadOutcome::Nothing => server.readable = false,
                ReadOutcome::Closed => self.lose_upstream(slot, &UpstreamError::Closed),
            }
        }
        self.server_buffer = buffer;
    }

    /// Handles what the server has sent; the connection keeps what is incomplete.
    fn upstream_bytes(&mut self, slot: UpstreamKey, bytes: &[u8]) {
        let mut input = Input::new(Side::Server, bytes);
        let is_logging_in = |server: &Upstream| matches!(server.phase, UpstreamPhase::LoggingIn(_));
        if self.upstreams.get(slot).is_some_and(is_logging_in) {
            self.log_in(slot, &mut input);
        }
        if self.upstreams.get(slot).is_some_and(|server| !is_logging_in(server)) {
            self.relay_to_client(slot, &mut input);
        }
        if let Some(server) = self.upstreams.get_mut(slot) {
            server.carry.extend_from_slice(&bytes[input.position()..]);
        }
    }

    /// Handles login messages.
    fn log_in(&mut self, slot: UpstreamKey, input: &mut Input<'_>) {
        match self.login_messages(slot, input) {
            Ok(Progress::Continues) => {}
            Ok(Progress::Ready) => self.logged_in(slot),
            Err(error) => self.lose_upstream(slot, &error),
        }
    }

    fn login_messages(
        &mut self,
        slot: UpstreamKey,
        input: &mut Input<'_>,
    ) -> Result<Progress, UpstreamError> {
        let server = &mut self.upstreams[slot];
        let UpstreamPhase::LoggingIn(handshake) = &mut server.phase else {
            return Ok(Progress::Continues);
        };
        let credentials = &self.pools[server.pool].credentials;
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
            let mut out = Vec::new();
            let progress =
                handshake.message(message.tag(), message.payload(), credentials, &mut out)?;
            if progress == Progress::Ready {
                return Ok(progress);
            }
            if !out.is_empty() {
                server.outbox.send(&mut server.stream, &out)?;
            }
        }
    }

    /// The connection is ready for its first transaction.
    fn logged_in(&mut self, slot: UpstreamKey) {
        let server = &mut self.upstreams[slot];
        let phase = std::mem::replace(&mut server.phase, UpstreamPhase::Linked);
        let UpstreamPhase::LoggingIn(handshake) = phase else {
            return;
        };
        server.key = handshake.key;
        let (pool, client) = (server.pool, server.client);
        self.opening_ended(pool);
        if let Some(client) = client {
            return self.welcome(client, &handshake.parameters);
        }
        for waiter in std::mem::take(&mut self.pools[pool].welcoming) {
            self.welcome(waiter, &handshake.parameters);
        }
        self.pools[pool].welcome = Some(handshake.parameters);
        self.release_upstream(pool, slot);
    }

    fn opening_ended(&mut self, pool: usize) {
        self.opening -= 1;
        self.pools[pool].opening -= 1;
        self.open_for_sessions();
    }

    /// No connection: those that wait for it are told why.
    fn opening_failed(&mut self, pool: usize, client: Option<ClientKey>, error: &UpstreamError) {
        self.counters.upstream_connect_failures.fetch_add(1, Ordering::Relaxed);
        if let Some(client) = client {
            return self.login_without_server(client, pool, error);
        }
        let (code, message) = self.describe(pool, error);
        for waiter in std::mem::take(&mut self.pools[pool].welcoming) {
            self.refuse_login(waiter, SqlState(&code), &message);
        }
        if code == SqlState::TOO_MANY_CONNECTIONS.0 && self.has_connection(pool) {
            return self.await_release(pool, &code, &message);
        }
        tracing::warn!(message, "no upstream connection");
        self.fail_one_waiting(pool, SqlState(&code), &message);
    }

    /// Whether the pool has a connection that comes free some time.
    fn has_connection(&self, pool: usize) -> bool {
        let is_opening = |server: &Upstream| {
            matches!(server.phase, UpstreamPhase::Connecting | UpstreamPhase::LoggingIn(_))
        };
        self.upstreams.iter().any(|(_, server)| server.pool == pool && !is_opening(server))
    }

    fn login_without_server(&mut self, client: ClientKey, pool: usize, error: &UpstreamError) {
        let (code, message) = self.describe(pool, error);
        self.refuse_login(client, SqlState(&code), &message);
    }

    /// The code and the words in which a client is told of an upstream error.
    fn describe(&self, pool: usize, error: &UpstreamError) -> (String, String) {
        let server = &self.shared.servers[self.pools[pool].server].address;
        match error {
            UpstreamError::Refused { code, message } => (code.clone(), message.clone()),
            other => (
                SqlState::CONNECTION_FAILURE.0.to_owned(),
                format!("cannot use the database server at {server}: {other}"),
            ),
        }
    }

    /// Passes a server's messages to its client, if it has one.
    fn relay_to_client(&mut self, slot: UpstreamKey, input: &mut Input<'_>) {
        let server = &mut self.upstreams[slot];
        let client = server.client;
        let mut gather = Gather::new(input.bytes(), std::mem::take(&mut self.spill));
        let session =
            client.and_then(|client| self.clients.get_mut(client)).map(|c| &mut c.session);
        let relayed = relay(server, session, input, &mut gather);
        if std::mem::take(&mut server.session.is_plan_outdated) {
            self.definitions.renew();
        }
        if let Some(client) = client
            && !gather.bytes().is_empty()
        {
            self.send_to_client(client, gather.bytes());
        }
        self.spill = gather.recycle();
        match relayed {
            Ok(relayed) => self.after_relay(slot, &relayed),
            Err(violation) => {
                tracing::warn!(%violation, "closing an upstream connection");
                self.lose_upstream(slot, &UpstreamError::Closed);
            }
        }
    }

    fn after_relay(&mut self, slot: UpstreamKey, relayed: &Relayed) {
        let Some(server) = self.upstreams.get(slot) else {
            return;
        };
        match server.phase {
            // Not only at the end: a COPY may ask for data, which nobody will send.
            UpstreamPhase::Abandoned => self.settle(slot),
            _ if !relayed.ready && !relayed.own_ready => {}
            UpstreamPhase::Linked if relayed.ready => self.ready_for_query(slot),
            UpstreamPhase::Linked => self.settings_answered(slot),
            _ => {}
        }
    }

    /// The connection is gone, or of no use: those that depend on it are told.
    pub(super) fn lose_upstream(&mut self, slot: UpstreamKey, error: &UpstreamError) {
        let Some(server) = self.upstreams.get(slot) else {
            return;
        };
        let (pool, client) = (server.pool, server.client);
        let was_opening =
            matches!(server.phase, UpstreamPhase::Connecting | UpstreamPhase::LoggingIn(_));
        self.remove_upstream(slot);
        if was_opening {
            if let Some(client) = client.and_then(|client| self.clients.get_mut(client)) {
                client.upstream = None;
            }
            self.opening_failed(pool, client, error);
            return self.opening_ended(pool);
        }
        let Some(client) = client else { return };
        if let Some(client) = self.clients.get_mut(client) {
            client.upstream = None;
        }
        let (code, message) = self.describe(pool, error);
        self.end_client(client, Severity::Fatal, SqlState(&code), &message);
    }

    /// Closes a connection politely.
    pub(super) fn close_upstream(&mut self, slot: UpstreamKey) {
        let Some(server) = self.upstreams.get_mut(slot) else {
            return;
        };
        if matches!(server.phase, UpstreamPhase::Connecting | UpstreamPhase::LoggingIn(_)) {
            let pool = server.pool;
            self.remove_upstream(slot);
            return self.opening_ended(pool);
        }
        // What cannot be sent at once does not matter: the socket closes in any case.
        let _ = server.outbox.send(&mut server.stream, frontend::TERMINATE);
        self.remove_upstream(slot);
    }

    pub(super) fn remove_upstream(&mut self, slot: UpstreamKey) {
        let Some(server) = self.upstreams.remove(slot) else {
            return;
        };
        self.pools[server.pool].idle.retain(|&idle| idle != slot);
        if matches!(server.phase, UpstreamPhase::Quarantined) && self.stopping.is_none() {
            self.open_for_waiting(server.pool);
        }
        // The permit, if there is one, returns with `server`.
    }

    pub(super) fn sweep_upstreams(&mut self) {
        let timeouts = self.shared.config.timeouts;
        for slot in self.upstreams.keys() {
            let Some(server) = self.upstreams.get(slot) else {
                continue;
            };
            let age = self.now.saturating_duration_since(server.since);
            match server.phase {
                UpstreamPhase::Connecting | UpstreamPhase::LoggingIn(_)
                    if age >= timeouts.connect =>
                {
                    self.lose_upstream(slot, &UpstreamError::TimedOut);
                }
                UpstreamPhase::Idle if age >= timeouts.server_idle => self.close_upstream(slot),
                UpstreamPhase::Abandoned if age >= timeouts.abandoned => {
                    tracing::warn!("an abandoned transaction did not end; closing its connection");
                    self.remove_upstream(slot);
                }
                _ => {}
            }
        }
    }
}

/// Walks the messages of `bytes`: what is the client's is collected in `out`.
fn relay(
    server: &mut Upstream,
    mut client: Option<&mut session::ClientSession>,
    input: &mut Input<'_>,
    out: &mut Gather<'_>,
) -> Result<Relayed, ServerViolation> {
    let is_at_rest = matches!(server.phase, UpstreamPhase::Idle | UpstreamPhase::Quarantined);
    let mut relayed = Relayed::default();
    while !input.is_empty() {
        if !server.passing.is_none() {
            let piece = input.skip(&mut server.passing);
            if server.passing_on {
                out.pass(piece);
            }
            continue;
        }
        let Some(peeked) = input.peek()? else {
            break;
        };
        if !peeked.is_complete() && peeked.announced_len() <= LOOKED_AT_LEN {
            break;
        }
        if is_at_rest && !may_come_at_rest(peeked.tag()) {
            return Err(ServerViolation::Unsolicited(peeked.tag()));
        }
        let is_own = server.session.replies.is_own_query();
        let (message, missing) = peeked.take();
        let (tag, payload) = (message.tag(), message.payload());
        let verdict =
            session::from_server(tag, payload, client.as_deref_mut(), &mut server.session)?;
        server.passing = missing;
        server.passing_on = verdict == Verdict::Pass;
        if server.passing_on {
            out.pass(message.range());
        }
        session::answer_for_proxy(client.as_deref_mut(), &mut server.session, out);
        if tag == tag::READY_FOR_QUERY {
            relayed.own_ready |= is_own;
            relayed.ready |= !is_own;
        }
    }
    Ok(relayed)
}

fn may_come_at_rest(tag: u8) -> bool {
    matches!(tag, tag::NOTICE | tag::PARAMETER_STATUS | tag::NOTIFICATION | tag::ERROR)
}

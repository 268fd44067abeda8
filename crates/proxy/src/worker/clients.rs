//! A client's bytes, once it is logged in: at rest, in a transaction, refused.

use std::sync::atomic::Ordering;
use std::time::Instant;

use tidegate_gate::Gate;
use tidegate_wire::backend::{self, TransactionStatus};
use tidegate_wire::error_response::{self, Severity, SqlState};
use tidegate_wire::frontend::{self, tag};
use tidegate_wire::input::{Input, Peeked, Side};

use crate::client::{Client, ClientKey, Phase};
use crate::config::PoolMode;
use crate::net::{self, Gather, ReadOutcome};
use crate::session::{self, Naming, ServerSession, Violation};
use crate::upstream::UpstreamKey;

use super::Worker;

/// Messages up to this length are acted on when they are complete; of a longer one, this much.
const WHOLE_LEN: usize = 16 * 1024;

/// The longest Parse of a named statement in transaction mode, which has to be kept.
const NAMED_PARSE_MAX: usize = 16 << 20;

/// How a client's input goes on from the position it has reached.
pub(super) enum Flow {
    /// What follows is looked at, in the phase that is now.
    Next,
    /// What follows has to wait.
    Wait,
}

impl Worker {
    pub(super) fn client_readable(&mut self, slot: ClientKey, closed: bool) {
        let Some(client) = self.clients.get_mut(slot) else {
            return;
        };
        client.readable = true;
        client.hung_up |= closed;
        // A client may end its side behind a cancel request, and waits for the end of this one.
        if matches!(client.phase, Phase::Cancelling) {
            return;
        }
        if client.takes_input() && !client.is_held {
            self.pump_client(slot);
        }
        // Whatever keeps it from being read to its end, nobody waits for an answer.
        if closed {
            self.lose_client(slot);
        }
    }

    pub(super) fn client_writable(&mut self, slot: ClientKey) {
        let Some(client) = self.clients.get_mut(slot) else {
            return;
        };
        if client.outbox.is_empty() {
            return;
        }
        if client.outbox.flush(&mut client.stream).is_err() {
            return self.lose_client(slot);
        }
        if !client.outbox.is_empty() {
            return;
        }
        match (&client.phase, client.upstream) {
            (Phase::Closing, _) => self.remove_client(slot),
            (_, Some(upstream)) => self.ready_upstreams.push(upstream),
            _ => {}
        }
    }

    /// Goes on with what the client has sent already, then with what its socket holds.
    pub(super) fn resume_client(&mut self, slot: ClientKey) {
        let Some(client) = self.clients.get_mut(slot) else {
            return;
        };
        client.is_held = false;
        if !client.inbox.is_empty() {
            self.client_bytes(slot, &[]);
        }
        self.pump_client(slot);
    }

    /// Whether the client's socket should be read now.
    fn wants_input(&self, slot: ClientKey) -> bool {
        let Some(client) = self.clients.get(slot) else {
            return false;
        };
        let upstream = client.upstream.and_then(|upstream| self.upstreams.get(upstream));
        client.readable
            && client.takes_input()
            && !client.is_held
            && upstream.is_none_or(|upstream| upstream.outbox.is_empty())
    }

    fn pump_client(&mut self, slot: ClientKey) {
        let mut buffer = std::mem::take(&mut self.client_buffer);
        while self.wants_input(slot) {
            let client = &mut self.clients[slot];
            match net::read_once(&mut client.stream, &mut buffer) {
                ReadOutcome::Bytes { count, more } => {
                    client.readable = more || client.hung_up;
                    self.counters.bytes_from_clients.fetch_add(count as u64, Ordering::Relaxed);
                    self.client_bytes(slot, &buffer[..count]);
                }
                ReadOutcome::Nothing => client.readable = false,
                ReadOutcome::Closed => self.lose_client(slot),
            }
        }
        self.client_buffer = buffer;
    }

    /// Acts on `bytes`, after what the client's inbox holds; the inbox keeps what has to wait.
    fn client_bytes(&mut self, slot: ClientKey, bytes: &[u8]) {
        let Some(client) = self.clients.get_mut(slot) else {
            return;
        };
        let mut inbox = std::mem::take(&mut client.inbox);
        let left = if inbox.is_empty() {
            let used = self.process(slot, bytes);
            inbox.extend_from_slice(&bytes[used..]);
            inbox
        } else {
            inbox.extend_from_slice(bytes);
            let used = self.process(slot, &inbox);
            if used == inbox.len() {
                net::reset(&mut inbox);
            } else {
                inbox.drain(..used);
            }
            inbox
        };
        let now = self.now;
        let Some(client) = self.clients.get_mut(slot) else {
            return;
        };
        client.inbox = left;
        let owes_rest =
            !client.passing.is_none() || (!client.inbox.is_empty() && client.takes_input());
        client.mid_message_since = match client.mid_message_since {
            Some(since) if owes_rest && bytes.is_empty() => Some(since),
            _ => (owes_rest && !client.is_held).then_some(now),
        };
    }

    /// Acts on the client's input as far as its phases allow; tells how much is done with.
    fn process(&mut self, slot: ClientKey, bytes: &[u8]) -> usize {
        let mut input = Input::new(Side::Client, bytes);
        while !input.is_empty() {
            let phase = self.clients.get(slot).map_or(&Phase::Closing, |client| &client.phase);
            let flow = match phase {
                Phase::FirstPacket => self.first_packet(slot, &mut input),
                Phase::Authenticating(_) => self.authenticate(slot, &mut input),
                Phase::Idle => self.at_rest(slot, &mut input),
                Phase::Running => self.relay_to_server(slot, &mut input),
                Phase::Refused => self.discard_batch(slot, &mut input),
                Phase::Welcoming | Phase::Queued(_) | Phase::AwaitingUpstream(_) => Flow::Wait,
                Phase::Cancelling | Phase::Closing => {
                    input.discard();
                    Flow::Wait
                }
            };
            if let Flow::Wait = flow {
                break;
            }
        }
        input.position()
    }

    /// A client without a transaction sends something.
    fn at_rest(&mut self, slot: ClientKey, input: &mut Input<'_>) -> Flow {
        let client = &mut self.clients[slot];
        if !client.passing.is_none() {
            input.skip(&mut client.passing);
            return Flow::Next;
        }
        let peeked = match input.peek() {
            Ok(Some(peeked)) => peeked,
            Ok(None) => return Flow::Wait,
            Err(error) => return self.violation(slot, &error.to_string()),
        };
        match peeked.tag() {
            tag::TERMINATE => {
                self.lose_client(slot);
                Flow::Wait
            }
            // What is left of a copy that failed; a server ignores it too.
            tag::COPY_DATA | tag::COPY_DONE | tag::COPY_FAIL | tag::FLUSH => {
                (_, client.passing) = peeked.take();
                Flow::Next
            }
            tag::SYNC => {
                // A Sync has no payload, so that nothing of it is missing.
                (_, client.passing) = peeked.take();
                let mut out = Vec::new();
                backend::encode_ready_for_query(&mut out, TransactionStatus::Idle);
                self.send_to_client(slot, &out);
                Flow::Next
            }
            other if begins_request(other) => {
                if !peeked.has_arrived(WHOLE_LEN) {
                    return Flow::Wait;
                }
                if client.upstream.is_some_and(|own| self.is_cancel_on_its_way(own)) {
                    self.clients[slot].is_held = true;
                    return Flow::Wait;
                }
                self.prepare_without_permit(slot, input)
                    .unwrap_or_else(|| self.begin_transaction(slot))
            }
            other => self.violation(slot, &Violation::UnexpectedTag(other).to_string()),
        }
    }

    /// Preparing a statement is not running a transaction: a batch that does nothing else is let
    /// past the gate. A client library that waits for each Parse on one thread for many
    /// connections (pgbench's) would otherwise wait for ever behind its own transactions.
    ///
    /// In session mode the batch goes to the client's own connection. In transaction mode it is
    /// answered here where the statement is known; one that is not needs a permit.
    fn prepare_without_permit(&mut self, slot: ClientKey, input: &mut Input<'_>) -> Option<Flow> {
        let client = &mut self.clients[slot];
        match self.pools[client.pool?].mode {
            PoolMode::Session => {
                if !is_preparation(input.look_ahead()) {
                    return None;
                }
                client.phase = Phase::Running;
                let flow = self.relay_to_server(slot, input);
                // What comes before the answer may begin a transaction, and has to ask.
                if let Some(client) = self.clients.get_mut(slot) {
                    client.is_held = true;
                }
                Some(flow)
            }
            PoolMode::Transaction => {
                let parse = input.peek().ok()??;
                let is_alone = parse.tag() == tag::PARSE
                    && parse.is_complete()
                    && parse.behind().starts_with(frontend::SYNC);
                let (payload, statements) = (parse.payload(), &mut client.session.statements);
                if !is_alone
                    || !session::prepare_without_server(payload, statements, &mut self.definitions)
                {
                    return None;
                }
                (_, client.passing) = parse.take();
                if let Ok(Some(sync)) = input.peek() {
                    (_, client.passing) = sync.take();
                }
                let mut out = Vec::from(backend::PARSE_COMPLETE);
                backend::encode_ready_for_query(&mut out, TransactionStatus::Idle);
                self.send_to_client(slot, &out);
                Some(Flow::Next)
            }
        }
    }

    /// Discards messages of a refused transaction up to the end of the batch, which is answered.
    fn discard_batch(&mut self, slot: ClientKey, input: &mut Input<'_>) -> Flow {
        let client = &mut self.clients[slot];
        if client.passing.is_none() {
            match input.peek() {
                Ok(Some(peeked)) => {
                    client.refused_batch_ends =
                        matches!(peeked.tag(), tag::QUERY | tag::FUNCTION_CALL | tag::SYNC);
                    (_, client.passing) = peeked.take();
                }
                Ok(None) => return Flow::Wait,
                Err(error) => return self.violation(slot, &error.to_string()),
            }
        } else {
            input.skip(&mut client.passing);
        }
        if client.passing.is_none() && std::mem::take(&mut client.refused_batch_ends) {
            client.phase = Phase::Idle;
            let mut out = Vec::new();
            backend::encode_ready_for_query(&mut out, TransactionStatus::Idle);
            self.send_to_client(slot, &out);
        }
        Flow::Next
    }

    /// A client with a running transaction sends something: it goes to its upstream connection.
    fn relay_to_server(&mut self, slot: ClientKey, input: &mut Input<'_>) -> Flow {
        let client = &mut self.clients[slot];
        let Some(upstream) = client.upstream else {
            return Flow::Wait;
        };
        let Some(server) = self.upstreams.get_mut(upstream) else {
            return Flow::Wait;
        };
        if server.session.replies.is_own_query() {
            client.is_held = true;
            return Flow::Wait;
        }
        if client.idle_in_transaction_since.take().is_some()
            && let Some(permit) = &mut server.permit
        {
            permit.resume(Instant::now());
        }
        let pool = &self.pools[server.pool];
        let mut naming = match pool.mode {
            PoolMode::Session => Naming::Kept,
            PoolMode::Transaction => Naming::Shared {
                definitions: &mut self.definitions,
                prepared_max: self.shared.config.prepared_statements_max,
            },
        };
        let turn = Turn {
            gate: &self.shared.servers[pool.server].gate,
            is_cancel_on_its_way: server.cancels > 0,
        };
        let mut gather = Gather::new(input.bytes(), std::mem::take(&mut self.spill));
        let end = relay(input, client, &mut server.session, &mut naming, &turn, &mut gather);
        let sent = server.outbox.send(&mut server.stream, gather.bytes());
        self.spill = gather.recycle();
        let own_parses = std::mem::take(&mut server.session.own_parses);
        if own_parses > 0 {
            self.counters.statements_prepared.fetch_add(own_parses, Ordering::Relaxed);
        }
        if sent.is_err() {
            // Reading tells why, and may bring the server's last words.
            self.upstream_readable(upstream, true);
            return Flow::Wait;
        }
        self.cancel_what_was_held(slot, upstream);
        self.answer_for_proxy(slot, upstream);
        match end {
            End::Input => self.end_after_last_words(slot, upstream),
            End::Held => {}
            End::Terminate => self.lose_client(slot),
            End::Violation(message) => return self.violation(slot, &message),
        }
        Flow::Wait
    }

    /// Copy data that the server did not want may go on after its ReadyForQuery, and with it the
    /// transaction. What asks for no answer leaves an open transaction as idle as it was.
    fn end_after_last_words(&mut self, slot: ClientKey, upstream: UpstreamKey) {
        let (Some(server), Some(client)) = (self.upstreams.get(upstream), self.clients.get(slot))
        else {
            return;
        };
        if !client.passing.is_none() {
            return;
        }
        if server.session.is_at_rest() {
            self.end_transaction(slot, upstream);
        } else if server.session.is_idle_in_transaction() {
            self.begin_idle(slot, upstream);
        }
    }

    /// Answers what was not sent on, if it is the next to be answered.
    fn answer_for_proxy(&mut self, slot: ClientKey, upstream: UpstreamKey) {
        let mut gather = Gather::new(&[], std::mem::take(&mut self.spill));
        if let Some(server) = self.upstreams.get_mut(upstream) {
            let client = self.clients.get_mut(slot).map(|client| &mut client.session);
            session::answer_for_proxy(client, &mut server.session, &mut gather);
        }
        if !gather.bytes().is_empty() {
            self.send_to_client(slot, gather.bytes());
        }
        self.spill = gather.recycle();
    }

    /// Writes to a client; one that cannot be written to is lost.
    pub(super) fn send_to_client(&mut self, slot: ClientKey, bytes: &[u8]) {
        let Some(client) = self.clients.get_mut(slot) else {
            return;
        };
        if client.outbox.send(&mut client.stream, bytes).is_err() {
            client.hung_up = true;
            client.readable = true;
            self.resume_later(slot);
        }
    }

    /// The client broke the protocol.
    pub(super) fn violation(&mut self, slot: ClientKey, message: &str) -> Flow {
        self.counters.protocol_errors.fetch_add(1, Ordering::Relaxed);
        self.end_client(slot, Severity::Fatal, SqlState::PROTOCOL_VIOLATION, message);
        Flow::Wait
    }

    /// Tells the client why and closes its connection, whatever it was doing.
    pub(super) fn end_client(
        &mut self,
        slot: ClientKey,
        severity: Severity,
        code: SqlState<'_>,
        message: &str,
    ) {
        let Some(client) = self.clients.get(slot) else {
            return;
        };
        if matches!(client.phase, Phase::Closing) && !client.outbox.is_empty() {
            return;
        }
        self.leave_upstream(slot);
        let Some(client) = self.clients.get_mut(slot) else {
            return;
        };
        if let Some(left_out) = self.endings.admit(self.now) {
            let (user, code) = (&*client.user, code.0);
            tracing::info!(user, code, message, left_out, "client connection ended");
        }
        let mut out = Vec::new();
        error_response::encode_error(&mut out, severity, code, message);
        client.phase = Phase::Closing;
        client.login_since = Some(self.now);
        let sent = client.outbox.send(&mut client.stream, &out);
        if sent.is_err() || client.outbox.is_empty() {
            self.remove_client(slot);
        }
    }

    /// The client has gone, or says that it goes.
    pub(super) fn lose_client(&mut self, slot: ClientKey) {
        self.leave_upstream(slot);
        self.remove_client(slot);
    }

    /// Forgets the client. Dropping its phase leaves the queue or gives its permit back.
    pub(super) fn remove_client(&mut self, slot: ClientKey) {
        self.clients.remove(slot);
    }

    pub(super) fn sweep_clients(&mut self) {
        let timeouts = self.shared.config.timeouts;
        let now = self.now;
        let is_over = |since: Option<Instant>, limit| {
            since.is_some_and(|since| now.saturating_duration_since(since) >= limit)
        };
        for slot in self.clients.keys() {
            let Some(client) = self.clients.get(slot) else {
                continue;
            };
            if is_over(client.login_since, timeouts.login) {
                if matches!(client.phase, Phase::Closing | Phase::Cancelling) {
                    self.remove_client(slot);
                } else {
                    let message = "login was not completed within the login timeout";
                    self.refuse_login(slot, SqlState::PROTOCOL_VIOLATION, message);
                }
            } else if is_over(client.mid_message_since, timeouts.message) {
                let message = "the rest of a message did not arrive within the message timeout";
                self.violation(slot, message);
            } else if let Some(limit) = timeouts.idle_in_transaction
                && is_over(client.idle_in_transaction_since, limit)
            {
                let message = "terminating connection due to idle-in-transaction timeout";
                self.end_client(slot, Severity::Fatal, SqlState::IDLE_IN_TRANSACTION, message);
            }
        }
    }
}

/// Why relaying a client's input stopped.
enum End {
    /// All that can be acted on has been.
    Input,
    /// The next transaction has to ask for a permit of its own, because others wait for one.
    Held,
    Terminate,
    Violation(String),
}

/// What a client's next request waits for, beside its permit.
struct Turn<'a> {
    gate: &'a Gate,
    /// A cancel request for an earlier request may still reach the backend.
    is_cancel_on_its_way: bool,
}

impl Turn<'_> {
    fn has_come(&self, server: &ServerSession) -> bool {
        if self.is_cancel_on_its_way && server.takes_request() {
            return false;
        }
        !(server.is_between_requests() && self.gate.has_waiting())
    }
}

/// Passes on the messages of `input` as far as they are complete.
fn relay(
    input: &mut Input<'_>,
    client: &mut Client,
    server: &mut ServerSession,
    naming: &mut Naming<'_>,
    turn: &Turn<'_>,
    out: &mut Gather<'_>,
) -> End {
    while !input.is_empty() {
        if !client.passing.is_none() {
            out.pass(input.skip(&mut client.passing));
            continue;
        }
        let peeked = match next_message(input, naming) {
            Ok(Some(peeked)) => peeked,
            Ok(None) => break,
            Err(message) => return End::Violation(message),
        };
        if peeked.tag() == tag::TERMINATE {
            return End::Terminate;
        }
        if begins_request(peeked.tag()) && !turn.has_come(server) {
            client.is_held = true;
            return End::Held;
        }
        let (message, missing) = peeked.take();
        client.passing = missing;
        let sent = session::to_server(&message, &mut client.session, server, naming, out);
        if let Err(violation) = sent {
            return End::Violation(violation.to_string());
        }
    }
    End::Input
}

/// The message at the front, if enough of it is there to act on it.
fn next_message<'i, 'a>(
    input: &'i mut Input<'a>,
    naming: &Naming<'_>,
) -> Result<Option<Peeked<'i, 'a>>, String> {
    let Some(peeked) = input.peek().map_err(|error| error.to_string())? else {
        return Ok(None);
    };
    let mut needed = WHOLE_LEN;
    let is_named_parse = peeked.tag() == tag::PARSE && peeked.payload().first() > Some(&0);
    if is_named_parse && matches!(naming, Naming::Shared { .. }) {
        let len = peeked.announced_len();
        if len > NAMED_PARSE_MAX {
            return Err(format!("a prepared statement of {len} bytes is too long"));
        }
        needed = len;
    }
    Ok(peeked.has_arrived(needed).then_some(peeked))
}

/// Whether the input is one complete batch that prepares and describes, and executes nothing.
fn is_preparation(mut input: Input<'_>) -> bool {
    let mut is_first = true;
    while let Ok(Some(peeked)) = input.peek() {
        let tag = peeked.tag();
        if !peeked.is_complete() || (is_first && tag != tag::PARSE) {
            return false;
        }
        is_first = false;
        match tag {
            tag::PARSE | tag::DESCRIBE | tag::CLOSE | tag::FLUSH => drop(peeked.take()),
            tag::SYNC => return peeked.behind().is_empty(),
            _ => return false,
        }
    }
    false
}

/// Whether a message of this type can be the first of a transaction.
fn begins_request(tag: u8) -> bool {
    matches!(
        tag,
        tag::QUERY
            | tag::FUNCTION_CALL
            | tag::PARSE
            | tag::BIND
            | tag::DESCRIBE
            | tag::EXECUTE
            | tag::CLOSE
    )
}

//! A client's bytes, once it is logged in: at rest, in a transaction, refused.

use std::sync::atomic::Ordering;

use tidegate_gate::Gate;
use tidegate_wire::backend::{self, TransactionStatus};
use tidegate_wire::error_response::{self, Severity, SqlState};
use tidegate_wire::frame::{self, Frame, HEADER_LEN};
use tidegate_wire::frontend::{self, tag};

use crate::client::{Client, Phase};
use crate::config::PoolMode;
use crate::net::{self, Gather, ReadOutcome};
use crate::pool::Waiter;
use crate::session::{self, Naming, ServerSession, Violation};

use super::Worker;

/// Messages up to this length are acted on when they are complete; of a longer one, this much.
const WHOLE_LEN: usize = 16 * 1024;

/// The longest Parse of a named statement in transaction mode, which has to be kept.
const NAMED_PARSE_MAX: usize = 16 << 20;

/// How a client's input goes on.
pub(super) enum Flow {
    /// These bytes are done with; look at what follows, in the phase that is now.
    Next(usize),
    /// These bytes are done with; what follows has to wait.
    Wait(usize),
}

impl Worker {
    pub(super) fn client_readable(&mut self, slot: usize, closed: bool) {
        let Some(client) = self.clients.get_mut(slot) else {
            return;
        };
        client.readable = true;
        client.hung_up |= closed;
        let serial = client.serial;
        if client.takes_input() && !client.is_held {
            self.pump_client(slot);
        }
        // Whatever keeps it from being read to its end, nobody waits for an answer.
        if closed && self.is_current(Waiter { client: slot, serial }) {
            self.lose_client(slot);
        }
    }

    pub(super) fn client_writable(&mut self, slot: usize) {
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
    pub(super) fn resume_client(&mut self, slot: usize) {
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
    fn wants_input(&self, slot: usize) -> bool {
        let Some(client) = self.clients.get(slot) else {
            return false;
        };
        let upstream = client.upstream.and_then(|upstream| self.upstreams.get(upstream));
        client.readable
            && client.takes_input()
            && !client.is_held
            && upstream.is_none_or(|upstream| upstream.outbox.is_empty())
    }

    fn pump_client(&mut self, slot: usize) {
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
    fn client_bytes(&mut self, slot: usize, bytes: &[u8]) {
        let Some(client) = self.clients.get_mut(slot) else {
            return;
        };
        let serial = client.serial;
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
        let Some(client) = self.clients.get_mut(slot).filter(|client| client.serial == serial)
        else {
            return;
        };
        client.inbox = left;
        let owes_rest = client.passing > 0 || (!client.inbox.is_empty() && client.takes_input());
        client.mid_message_since = match client.mid_message_since {
            Some(since) if owes_rest && bytes.is_empty() => Some(since),
            _ => (owes_rest && !client.is_held).then_some(now),
        };
    }

    /// Acts on the client's input as far as its phases allow; tells how much is done with.
    fn process(&mut self, slot: usize, input: &[u8]) -> usize {
        let mut at = 0;
        let Some(serial) = self.clients.get(slot).map(|client| client.serial) else {
            return 0;
        };
        while at < input.len() {
            let Some(client) = self.clients.get_mut(slot).filter(|c| c.serial == serial) else {
                return input.len();
            };
            let rest = &input[at..];
            let flow = match client.phase {
                Phase::FirstPacket => self.first_packet(slot, rest),
                Phase::Authenticating(_) => self.authenticate(slot, rest),
                Phase::Idle => self.at_rest(slot, rest),
                Phase::Running => self.relay_to_server(slot, rest),
                Phase::Refused => self.discard_batch(slot, rest),
                Phase::Welcoming | Phase::Queued(_) | Phase::AwaitingUpstream(_) => Flow::Wait(0),
                Phase::Closing => return input.len(),
            };
            match flow {
                Flow::Next(count) => at += count,
                Flow::Wait(count) => return at + count,
            }
        }
        at
    }

    /// A client without a transaction sends something.
    fn at_rest(&mut self, slot: usize, rest: &[u8]) -> Flow {
        let client = &mut self.clients[slot];
        if client.passing > 0 {
            return skip(client, rest);
        }
        let frame = match frame::frame(rest) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Flow::Wait(0),
            Err(error) => return self.violation(slot, &error.to_string()),
        };
        match frame.tag {
            tag::TERMINATE => {
                self.lose_client(slot);
                Flow::Wait(0)
            }
            // What is left of a copy that failed; a server ignores it too.
            tag::COPY_DATA | tag::COPY_DONE | tag::COPY_FAIL | tag::FLUSH => {
                client.passing = frame.len;
                Flow::Next(0)
            }
            tag::SYNC => {
                let mut out = Vec::new();
                backend::encode_ready_for_query(&mut out, TransactionStatus::Idle);
                self.send_to_client(slot, &out);
                Flow::Next(frame.len)
            }
            other if begins_request(other) => {
                if rest.len() < frame.len.min(WHOLE_LEN) {
                    return Flow::Wait(0);
                }
                self.prepare_without_permit(slot, frame, rest)
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
    fn prepare_without_permit(&mut self, slot: usize, frame: Frame, rest: &[u8]) -> Option<Flow> {
        if frame.tag != tag::PARSE {
            return None;
        }
        let client = &mut self.clients[slot];
        match self.pools[client.pool?].mode {
            PoolMode::Session => {
                if !is_preparation(rest) {
                    return None;
                }
                client.phase = Phase::Running;
                let flow = self.relay_to_server(slot, rest);
                // What comes before the answer may begin a transaction, and has to ask.
                if let Some(client) = self.clients.get_mut(slot) {
                    client.is_held = true;
                }
                Some(flow)
            }
            PoolMode::Transaction => {
                let payload = rest.get(HEADER_LEN..frame.len)?;
                if !rest[frame.len..].starts_with(frontend::SYNC) {
                    return None;
                }
                let statements = &mut client.session.statements;
                if !session::prepare_without_server(payload, statements, &mut self.definitions) {
                    return None;
                }
                let mut out = Vec::from(backend::PARSE_COMPLETE);
                backend::encode_ready_for_query(&mut out, TransactionStatus::Idle);
                self.send_to_client(slot, &out);
                Some(Flow::Next(frame.len + frontend::SYNC.len()))
            }
        }
    }

    /// Discards messages of a refused transaction up to the end of the batch, which is answered.
    fn discard_batch(&mut self, slot: usize, rest: &[u8]) -> Flow {
        let client = &mut self.clients[slot];
        if client.passing == 0 {
            match frame::frame(rest) {
                Ok(Some(frame)) => {
                    client.passing = frame.len;
                    client.refused_batch_ends =
                        matches!(frame.tag, tag::QUERY | tag::FUNCTION_CALL | tag::SYNC);
                }
                Ok(None) => return Flow::Wait(0),
                Err(error) => return self.violation(slot, &error.to_string()),
            }
        }
        let flow = skip(client, rest);
        if client.passing == 0 && std::mem::take(&mut client.refused_batch_ends) {
            client.phase = Phase::Idle;
            let mut out = Vec::new();
            backend::encode_ready_for_query(&mut out, TransactionStatus::Idle);
            self.send_to_client(slot, &out);
        }
        flow
    }

    /// A client with a running transaction sends something: it goes to its upstream connection.
    fn relay_to_server(&mut self, slot: usize, rest: &[u8]) -> Flow {
        let client = &mut self.clients[slot];
        let Some(upstream) = client.upstream else {
            return Flow::Wait(0);
        };
        let server = &mut self.upstreams[upstream];
        if server.session.replies.is_own_query() {
            client.is_held = true;
            return Flow::Wait(0);
        }
        client.idle_in_transaction_since = None;
        let pool = &self.pools[server.pool];
        let mut naming = match pool.mode {
            PoolMode::Session => Naming::Kept,
            PoolMode::Transaction => Naming::Shared {
                definitions: &mut self.definitions,
                prepared_max: self.shared.config.prepared_statements_max,
            },
        };
        let gate = &self.shared.servers[pool.server].gate;
        let mut gather = Gather::new(rest, std::mem::take(&mut self.spill));
        let (used, end) = relay(rest, client, &mut server.session, &mut naming, gate, &mut gather);
        let sent = server.outbox.send(&mut server.stream, gather.bytes());
        self.spill = gather.recycle();
        let own_parses = std::mem::take(&mut server.session.own_parses);
        if own_parses > 0 {
            self.counters.statements_prepared.fetch_add(own_parses, Ordering::Relaxed);
        }
        if sent.is_err() {
            // Reading tells why, and may bring the server's last words.
            self.upstream_readable(upstream, true);
            return Flow::Wait(used);
        }
        self.answer_for_proxy(slot, upstream);
        match end {
            End::Input => self.end_after_last_words(slot, upstream),
            End::Held => {}
            End::Terminate => self.lose_client(slot),
            End::Violation(message) => return self.violation(slot, &message),
        }
        Flow::Wait(used)
    }

    /// Copy data that the server did not want may go on after its ReadyForQuery, and with it the
    /// transaction.
    fn end_after_last_words(&mut self, slot: usize, upstream: usize) {
        let session = &self.upstreams[upstream].session;
        if session.is_at_rest() && self.clients[slot].passing == 0 {
            self.end_transaction(slot, upstream);
        }
    }

    /// Answers what was not sent on, if it is the next to be answered.
    fn answer_for_proxy(&mut self, slot: usize, upstream: usize) {
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
    pub(super) fn send_to_client(&mut self, slot: usize, bytes: &[u8]) {
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
    pub(super) fn violation(&mut self, slot: usize, message: &str) -> Flow {
        self.counters.protocol_errors.fetch_add(1, Ordering::Relaxed);
        self.end_client(slot, Severity::Fatal, SqlState::PROTOCOL_VIOLATION, message);
        Flow::Wait(0)
    }

    /// Tells the client why and closes its connection, whatever it was doing.
    pub(super) fn end_client(
        &mut self,
        slot: usize,
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
        tracing::info!(user = &*client.user, code = code.0, message, "client connection ended");
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
    pub(super) fn lose_client(&mut self, slot: usize) {
        self.leave_upstream(slot);
        self.remove_client(slot);
    }

    /// Forgets the client. Dropping its phase leaves the queue or gives its permit back.
    pub(super) fn remove_client(&mut self, slot: usize) {
        self.clients.try_remove(slot);
    }

    pub(super) fn sweep_clients(&mut self) {
        let timeouts = self.shared.config.timeouts;
        let now = self.now;
        let is_over = |since: Option<std::time::Instant>, limit| {
            since.is_some_and(|since| now.saturating_duration_since(since) >= limit)
        };
        for slot in self.client_slots() {
            let Some(client) = self.clients.get(slot) else {
                continue;
            };
            if is_over(client.login_since, timeouts.login) {
                if matches!(client.phase, Phase::Closing) {
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

/// Passes on the messages of `rest` as far as they are complete; tells how many bytes that took.
fn relay(
    rest: &[u8],
    client: &mut Client,
    server: &mut ServerSession,
    naming: &mut Naming<'_>,
    gate: &Gate,
    out: &mut Gather<'_>,
) -> (usize, End) {
    let mut at = 0;
    while at < rest.len() {
        if client.passing > 0 {
            let count = client.passing.min(rest.len() - at);
            client.passing -= count;
            out.pass(at..at + count);
            at += count;
            continue;
        }
        let frame = match next_message(&rest[at..], naming) {
            Ok(Some(frame)) => frame,
            Ok(None) => break,
            Err(message) => return (at, End::Violation(message)),
        };
        if frame.tag == tag::TERMINATE {
            return (at, End::Terminate);
        }
        if begins_request(frame.tag) && server.is_between_requests() && gate.has_waiting() {
            client.is_held = true;
            return (at, End::Held);
        }
        let until = at + frame.len.min(rest.len() - at);
        let theirs = &mut client.session;
        if let Err(violation) =
            session::to_server(frame, at..until, rest, theirs, server, naming, out)
        {
            return (at, End::Violation(violation.to_string()));
        }
        client.passing = frame.len - (until - at);
        at = until;
    }
    (at, End::Input)
}

/// The message at the front, if enough of it is there to act on it.
fn next_message(rest: &[u8], naming: &Naming<'_>) -> Result<Option<Frame>, String> {
    let Some(frame) = frame::frame(rest).map_err(|error| error.to_string())? else {
        return Ok(None);
    };
    let mut needed = frame.len.min(WHOLE_LEN);
    let is_named_parse = frame.tag == tag::PARSE && rest.get(HEADER_LEN).is_some_and(|&b| b != 0);
    if is_named_parse && matches!(naming, Naming::Shared { .. }) {
        if frame.len > NAMED_PARSE_MAX {
            return Err(format!("a prepared statement of {} bytes is too long", frame.len));
        }
        needed = frame.len;
    }
    Ok((rest.len() >= needed).then_some(frame))
}

/// Whether these bytes are one complete batch that prepares and describes, and executes nothing.
fn is_preparation(mut rest: &[u8]) -> bool {
    while let Ok(Some(frame)) = frame::frame(rest) {
        let Some(after) = rest.get(frame.len..) else {
            return false;
        };
        match frame.tag {
            tag::PARSE | tag::DESCRIBE | tag::CLOSE | tag::FLUSH => rest = after,
            tag::SYNC => return after.is_empty(),
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

/// Discards the rest of a message.
fn skip(client: &mut Client, rest: &[u8]) -> Flow {
    let count = client.passing.min(rest.len());
    client.passing -= count;
    Flow::Next(count)
}

//! A client's messages: without a transaction, in one, after a refusal.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tidegate_gate::Gate;
use tidegate_wire::backend::{self, TransactionStatus};
use tidegate_wire::error_response::{self, Severity, SqlState};
use tidegate_wire::frontend::{self, tag};
use tidegate_wire::input::{Input, Message, Missing, Peeked, Side};

use crate::client::TransactionState;
use crate::client::{
    Arrival, Client, ClientSlot, ClientState, LoggedIn, LoginStage, Requester, TransactionInput,
};
use crate::config::{Config, PoolMode};
use crate::net::{self, BatchOutput, ReadOutcome};
use crate::session::{self, ClientSession, Naming, ServerSession, Violation};
use crate::statements::{DEFINITION_KEPT_MAX, Definitions};
use crate::upstream::{Pool, UpstreamSlot};

use super::Worker;

/// Messages up to this length are handled when they are complete; of a longer one, this much.
const WHOLE_LEN: usize = 16 * 1024;

/// How a client's input goes on from the position it has reached.
pub(super) enum Flow {
    /// What follows is handled, in the state that is now.
    Next,
    /// What follows has to wait.
    Wait,
}

impl Worker {
    pub(super) fn client_readable(&mut self, slot: ClientSlot, closed: bool) {
        let Some(client) = self.clients.get_mut(slot) else {
            return;
        };
        if client.is_passing() {
            return;
        }
        client.connection.set_readable(closed);
        // A client may end its side behind a cancel request, and waits for the end of this one.
        if matches!(client.state, ClientState::Cancelling { .. }) {
            return;
        }
        self.read_client(slot);
        // Whatever keeps it from being read to its end, the client awaits no answer.
        if closed {
            self.lose_client(slot);
        }
    }

    pub(super) fn client_writable(&mut self, slot: ClientSlot) {
        let Some(client) = self.clients.get_mut(slot) else {
            return;
        };
        if client.is_passing() || !client.connection.has_unsent() {
            return;
        }
        if client.connection.flush().is_err() {
            return self.lose_client(slot);
        }
        if client.connection.has_unsent() {
            return;
        }
        match (&client.state, client.upstream()) {
            (ClientState::Closing { .. }, _) => self.remove_client(slot),
            (_, Some(upstream)) => self.follow_ups.resume_upstream(upstream),
            _ => {}
        }
    }

    /// Goes on with what the client has sent already, then with what its socket holds.
    pub(super) fn resume_client(&mut self, slot: ClientSlot) {
        let Some(client) = self.clients.get_mut(slot) else {
            return;
        };
        if client.is_passing() {
            return;
        }
        client.release_input();
        if !client.connection.inbox.is_empty() {
            self.client_bytes(slot, &[]);
        }
        self.read_client(slot);
    }

    /// Returns whether the client's socket should be read now.
    fn wants_input(&self, slot: ClientSlot) -> bool {
        let Some(client) = self.clients.get(slot) else {
            return false;
        };
        let upstream = client.upstream().and_then(|upstream| self.upstreams.get(upstream));
        client.connection.is_readable()
            && client.takes_input()
            && !client.is_held()
            && !self.has_read_enough(client)
            && upstream.is_none_or(|upstream| !upstream.connection.has_unsent())
    }

    fn read_client(&mut self, slot: ClientSlot) {
        let mut buffer = std::mem::take(&mut self.buffers.from_client);
        while self.wants_input(slot) {
            match self.clients[slot].connection.read(&mut buffer) {
                ReadOutcome::Bytes { count, .. } => {
                    self.counters.bytes_from_clients.fetch_add(count as u64, Ordering::Relaxed);
                    if let Some(account) = self.clients[slot].account() {
                        self.upstreams[account.pool].traffic.total.received += count as u64;
                    }
                    self.client_bytes(slot, &buffer[..count]);
                }
                ReadOutcome::Nothing => {}
                ReadOutcome::Closed => {
                    if let Some(error) = self.clients[slot].connection.tls_error().cloned() {
                        self.count_tls_failure(slot, &error);
                    }
                    self.lose_client(slot);
                }
            }
        }
        self.buffers.from_client = buffer;
    }

    /// Handles `bytes`, after what the client's inbox holds; the inbox keeps what has to wait.
    fn client_bytes(&mut self, slot: ClientSlot, bytes: &[u8]) {
        let Some(client) = self.clients.get_mut(slot) else {
            return;
        };
        client.has_moved = true;
        let mut inbox = std::mem::take(&mut client.connection.inbox);
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
        let owes_rest =
            !client.connection.passing.is_none() || (!left.is_empty() && client.takes_input());
        client.connection.inbox = left;
        client.mid_message_since = match client.mid_message_since {
            Some(since) if owes_rest && bytes.is_empty() => Some(since),
            _ => (owes_rest && !client.is_held()).then_some(now),
        };
    }

    /// Handles the client's input as far as its state allows. Returns the number of bytes handled.
    fn process(&mut self, slot: ClientSlot, bytes: &[u8]) -> usize {
        let mut input = Input::new(Side::Client, bytes);
        while !input.is_empty()
            && let Some(client) = self.clients.get(slot)
        {
            let flow = match &client.state {
                ClientState::LoggingIn { stage, .. } => match stage {
                    LoginStage::FirstPacket => self.first_packet(slot, &mut input),
                    LoginStage::Authenticating(..) => self.authenticate(slot, &mut input),
                    LoginStage::LookingUp(..) | LoginStage::AwaitingParameters(..) => Flow::Wait,
                },
                ClientState::LoggedIn(client) => match client.transaction {
                    TransactionState::Idle { .. } => self.at_rest(slot, &mut input),
                    TransactionState::Running(_) => self.relay_to_server(slot, &mut input),
                    TransactionState::Refused { .. } => self.discard_batch(slot, &mut input),
                    TransactionState::Paused
                    | TransactionState::Queued(_)
                    | TransactionState::AwaitingUpstream(_) => Flow::Wait,
                },
                ClientState::Console(_) => self.console_message(slot, &mut input),
                ClientState::Passing(_) => Flow::Wait,
                ClientState::Cancelling { .. } | ClientState::Closing { .. } => {
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

    /// Handles a message of a client without a transaction.
    fn at_rest(&mut self, slot: ClientSlot, input: &mut Input<'_>) -> Flow {
        let passing = &mut self.clients[slot].connection.passing;
        if !passing.is_none() {
            input.skip(passing);
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
                (_, *passing) = peeked.take();
                Flow::Next
            }
            tag::SYNC => {
                // A Sync has no payload, so that nothing of it is missing.
                (_, *passing) = peeked.take();
                let mut out = Vec::new();
                backend::encode_ready_for_query(&mut out, TransactionStatus::Idle);
                self.send_to_client(slot, &out);
                Flow::Next
            }
            other if begins_request(other) => {
                if !peeked.has_arrived(WHOLE_LEN) {
                    return Flow::Wait;
                }
                self.begin_request(slot, input)
            }
            other => self.violation(slot, &Violation::UnexpectedTag(other).to_string()),
        }
    }

    /// Handles the next message of a client without a transaction, which asks for something.
    fn begin_request(&mut self, slot: ClientSlot, input: &mut Input<'_>) -> Flow {
        let Some(client) = self.clients[slot].logged_in_mut() else {
            debug_assert!(false, "only a client that is logged in asks for something");
            return Flow::Wait;
        };
        if client.own_upstream.is_some_and(|own| self.upstreams[own].cancels > 0) {
            client.transaction = TransactionState::Idle { is_held: true };
            return Flow::Wait;
        }
        if let Some(own) = client.own_upstream
            && self.upstreams[client.account.pool].is_for_replication()
        {
            self.clients[slot].run_on(own, self.now);
            return Flow::Next;
        }
        // It asks in the process that takes over.
        if self.leaving.is_some() {
            return Flow::Wait;
        }
        let prepared = match client.own_upstream {
            Some(own) => self.prepare_on_own_connection(slot, own, input),
            None => self.prepare_without_server(slot, input),
        };
        prepared.unwrap_or_else(|| self.begin_transaction(slot, input))
    }

    /// Preparing a statement is not running a transaction: a batch that does nothing else is let
    /// past the gate. A client library that waits for each Parse on one thread for many
    /// connections (pgbench's) would otherwise wait for ever behind its own transactions.
    ///
    /// In session mode the batch goes to the client's own connection. Returns `None` if the input
    /// is no such batch.
    fn prepare_on_own_connection(
        &mut self,
        slot: ClientSlot,
        own: UpstreamSlot,
        input: &mut Input<'_>,
    ) -> Option<Flow> {
        if !is_preparation(input.look_ahead()) {
            return None;
        }
        self.clients[slot].run_on(own, self.now);
        let flow = self.relay_to_server(slot, input);
        // What comes before the answer may begin a transaction, and has to ask.
        if let Some(client) = self.clients.get_mut(slot) {
            client.hold_input();
        }
        Some(flow)
    }

    /// In transaction mode a statement that a server has accepted before is prepared here. Returns
    /// `None` if the input is anything else, which needs a permit.
    fn prepare_without_server(&mut self, slot: ClientSlot, input: &mut Input<'_>) -> Option<Flow> {
        let client = &mut self.clients[slot];
        let pool = client.account()?.pool;
        let parse = input.peek().ok()??;
        let is_alone = parse.tag() == tag::PARSE
            && parse.is_complete()
            && parse.behind().starts_with(frontend::SYNC);
        let session = client.session_mut()?;
        if !is_alone
            || !session::prepare_without_server(parse.payload(), session, &mut self.definitions)
        {
            return None;
        }
        self.upstreams[pool].traffic.total.client_parses += 1;
        // Both messages are complete, so that nothing of them is missing.
        (_, client.connection.passing) = parse.take();
        if let Ok(Some(sync)) = input.peek() {
            (_, client.connection.passing) = sync.take();
        }
        let mut out = Vec::from(backend::PARSE_COMPLETE);
        backend::encode_ready_for_query(&mut out, TransactionStatus::Idle);
        self.send_to_client(slot, &out);
        Some(Flow::Next)
    }

    /// Discards messages of a refused transaction up to the end of the batch, which is answered.
    fn discard_batch(&mut self, slot: ClientSlot, input: &mut Input<'_>) -> Flow {
        let client = &mut self.clients[slot];
        let passing = &mut client.connection.passing;
        let mut ends = None;
        if passing.is_none() {
            match input.peek() {
                Ok(Some(peeked)) => {
                    let last = [tag::QUERY, tag::FUNCTION_CALL, tag::SYNC];
                    ends = Some(last.contains(&peeked.tag()));
                    (_, *passing) = peeked.take();
                }
                Ok(None) => return Flow::Wait,
                Err(error) => return self.violation(slot, &error.to_string()),
            }
        } else {
            input.skip(passing);
        }
        let is_mid_message = !passing.is_none();
        let Some(TransactionState::Refused { batch_ends }) = client.transaction_mut() else {
            debug_assert!(false, "only a refused transaction is discarded");
            return Flow::Wait;
        };
        *batch_ends = ends.unwrap_or(*batch_ends);
        if *batch_ends && !is_mid_message {
            client.set_transaction(TransactionState::Idle { is_held: false });
            let mut out = Vec::new();
            backend::encode_ready_for_query(&mut out, TransactionStatus::Idle);
            self.send_to_client(slot, &out);
        }
        Flow::Next
    }

    /// Sends what a client with a running transaction has sent to its upstream connection.
    fn relay_to_server(&mut self, slot: ClientSlot, input: &mut Input<'_>) -> Flow {
        // One that is to move has to come to rest.
        let is_held_by_order = self.is_held_by_order(slot)
            || self.clients[slot].account().is_some_and(|account| account.is_misplaced);
        let Client { connection, state, .. } = &mut self.clients[slot];
        let ClientState::LoggedIn(LoggedIn {
            account,
            transaction: TransactionState::Running(running),
            ..
        }) = state
        else {
            debug_assert!(false, "only a running transaction has a server");
            return Flow::Wait;
        };
        let upstream = running.upstream;
        let Some((server, pool)) = self.upstreams.with_pool(upstream) else {
            debug_assert!(false, "a running transaction has an upstream connection");
            return Flow::Wait;
        };
        if server.session.replies.is_own_query() {
            running.input = TransactionInput::Held;
            return Flow::Wait;
        }
        let before = std::mem::replace(&mut running.input, TransactionInput::Flowing);
        if let (TransactionInput::IdleSince(_), Some(permit)) = (before, server.permit_mut()) {
            permit.resume(Instant::now());
        }
        let server_of_pool = Arc::clone(&pool.server);
        let mut naming = naming(pool, &mut self.definitions, &self.shared.config);
        let gate = &server_of_pool.gate;
        let next_request = NextRequest {
            gate: (!pool.is_for_replication()).then_some(gate),
            is_cancel_on_its_way: server.cancels > 0,
            is_held_by_order,
        };
        let start = input.place();
        let mut gather = BatchOutput::new(input.bytes(), std::mem::take(&mut self.buffers.changed));
        let end = relay(
            input,
            (&mut connection.passing, &mut account.session),
            &mut server.session,
            &mut naming,
            &next_request,
            &mut gather,
        );
        if let End::Held = end {
            running.input = TransactionInput::Held;
        }
        let sent = server.connection.send(gather.bytes());
        if sent.is_err() && !running.has_sent && server.connection.has_sent_none_of(gather.bytes())
        {
            // Not a byte has left, so that all of it may go elsewhere.
            connection.passing = Missing::default();
            account.session.statements.take_all_back();
            input.go_back(start);
            self.buffers.changed = gather.recycle();
            if !self.put_back(upstream) {
                self.upstream_readable(upstream, true);
            }
            return Flow::Wait;
        }
        if !gather.bytes().is_empty() {
            running.has_sent = true;
            server.query_since.get_or_insert(self.now);
        }
        self.buffers.changed = gather.recycle();
        self.after_relay_to_server((slot, upstream), sent.is_ok(), end)
    }

    /// Does what follows from a client's messages once they have been sent on.
    fn after_relay_to_server(
        &mut self,
        (slot, upstream): (ClientSlot, UpstreamSlot),
        is_sent: bool,
        end: End,
    ) -> Flow {
        let mut own_parses = 0;
        if let Some((server, pool)) = self.upstreams.with_pool(upstream) {
            own_parses = std::mem::take(&mut server.session.own_parses);
            let passed = std::mem::take(&mut server.session.passed);
            let total = &mut pool.traffic.total;
            total.client_parses += passed.named_parses;
            total.binds += passed.named_binds;
            total.server_parses += passed.prepared + own_parses;
        }
        if own_parses > 0 {
            self.counters.statements_prepared.fetch_add(own_parses, Ordering::Relaxed);
        }
        if !is_sent {
            // Reading tells why, and may bring the server's last words.
            self.upstream_readable(upstream, true);
            return Flow::Wait;
        }
        self.cancel_what_was_held(slot, upstream);
        self.answer_for_proxy(slot, upstream);
        match end {
            End::Input => self.end_after_unanswered(slot, upstream),
            End::Held => {}
            End::Terminate => self.lose_client(slot),
            End::Violation(message) => return self.violation(slot, &message),
        }
        Flow::Wait
    }

    /// Ends the transaction if nothing is owed, or begins its idle time. Copy data that the server
    /// did not want may go on after its ReadyForQuery, and with it the transaction. What asks for
    /// no answer leaves an open transaction as idle as it was.
    fn end_after_unanswered(&mut self, slot: ClientSlot, upstream: UpstreamSlot) {
        let (Some(server), Some(client)) = (self.upstreams.get(upstream), self.clients.get(slot))
        else {
            return;
        };
        if !client.connection.passing.is_none() {
            return;
        }
        if server.session.is_at_rest() {
            self.end_transaction(slot, upstream);
        } else if server.session.is_idle_in_transaction() {
            self.begin_idle(slot, upstream);
        }
    }

    /// Answers what was not sent on, if it is the next to be answered.
    fn answer_for_proxy(&mut self, slot: ClientSlot, upstream: UpstreamSlot) {
        let (Some(client), Some(server)) =
            (self.clients.get_mut(slot), self.upstreams.get_mut(upstream))
        else {
            return;
        };
        let mut gather = BatchOutput::new(&[], std::mem::take(&mut self.buffers.changed));
        session::answer_for_proxy(client.session_mut(), &mut server.session, &mut gather);
        if !gather.bytes().is_empty() {
            self.send_to_client(slot, gather.bytes());
        }
        self.buffers.changed = gather.recycle();
    }

    /// Writes to a client; one that cannot be written to is lost.
    pub(super) fn send_to_client(&mut self, slot: ClientSlot, bytes: &[u8]) {
        let Some(client) = self.clients.get_mut(slot) else {
            return;
        };
        if client.connection.send(bytes).is_err() {
            client.connection.set_readable(true);
            self.follow_ups.resume_client(slot);
        }
    }

    /// Ends a client that broke the protocol.
    pub(super) fn violation(&mut self, slot: ClientSlot, message: &str) -> Flow {
        self.counters.protocol_errors.fetch_add(1, Ordering::Relaxed);
        self.end_client(slot, Severity::Fatal, SqlState::PROTOCOL_VIOLATION, message);
        Flow::Wait
    }

    /// Tells the client why and closes its connection, whatever it was doing.
    pub(super) fn end_client(
        &mut self,
        slot: ClientSlot,
        severity: Severity,
        code: SqlState<'_>,
        message: &str,
    ) {
        let Some(client) = self.clients.get(slot) else {
            return;
        };
        if matches!(client.state, ClientState::Closing { .. }) && client.connection.has_unsent() {
            return;
        }
        // It may be another process's by now.
        if client.is_passing() {
            return;
        }
        if let Some(left_out) = self.endings.admit(self.now) {
            // A value of this name would be logged as it is, with the line ends of a user's name.
            let (user, code, reason) = (client.user(), code.0, message);
            let address = client.connection.peer();
            tracing::info!(user, address, code, reason, left_out, "client connection ended");
        }
        self.leave_upstream(slot);
        let Some(client) = self.clients.get_mut(slot) else {
            return;
        };
        let mut out = Vec::new();
        error_response::encode_error(&mut out, severity, code, message);
        let sent = client.connection.send(&out);
        if sent.is_err() || !client.connection.has_unsent() {
            self.remove_client(slot);
        }
    }

    /// Closes the connection of a client that has been told why, once it has taken that.
    pub(super) fn close_client(&mut self, slot: ClientSlot) {
        self.leave_upstream(slot);
        if self.clients.get(slot).is_some_and(|client| !client.connection.has_unsent()) {
            self.remove_client(slot);
        }
    }

    /// Removes a client that has gone, or says that it goes.
    pub(super) fn lose_client(&mut self, slot: ClientSlot) {
        if self.clients.get(slot).is_some_and(Client::is_passing) {
            return;
        }
        self.leave_upstream(slot);
        self.remove_client(slot);
    }

    /// Removes a client that has left its upstream connection.
    pub(super) fn remove_client(&mut self, slot: ClientSlot) {
        let removed = self.clients.remove(slot);
        if let Some(removed) = &removed {
            self.applicant_gone(removed);
            self.client_removed(slot, removed);
        }
        debug_assert!(removed.is_none_or(|it| it.upstream().is_none()), "left behind");
    }

    /// Does what is due when a client is not in the table any more.
    pub(super) fn client_removed(&self, slot: ClientSlot, removed: &Client) {
        if removed.arrival == Arrival::Adopted {
            let own = Requester { worker: self.index, client: slot };
            self.shared.handover.adopted.remove(&removed.key, own);
        }
    }
}

/// Returns how statements are handled on the way to the server of a pool.
fn naming<'a>(pool: &Pool, definitions: &'a mut Definitions, config: &Config) -> Naming<'a> {
    match pool.mode {
        PoolMode::Session => Naming::Kept,
        PoolMode::Transaction => Naming::Shared {
            definitions,
            prepared_max: config.prepared_statements_max,
            policy: pool.entry.database.session_state,
        },
    }
}

/// Why relaying a client's input stopped.
enum End {
    /// All that can be handled has been.
    Input,
    /// The next transaction has to ask for a permit of its own, because others wait for one.
    Held,
    Terminate,
    Violation(String),
}

/// What a client's next request waits for, beside its permit.
struct NextRequest<'a> {
    /// Absent if it needs no permit.
    gate: Option<&'a Gate>,
    /// A cancel request for an earlier request may still reach the backend.
    is_cancel_on_its_way: bool,
    /// Its database is paused.
    is_held_by_order: bool,
}

impl NextRequest<'_> {
    fn may_be_sent(&self, server: &ServerSession) -> bool {
        if self.is_cancel_on_its_way && server.takes_request() {
            return false;
        }
        let has_to_ask = self.is_held_by_order || self.gate.is_some_and(Gate::has_waiting);
        !(server.is_between_requests() && has_to_ask)
    }
}

/// Passes on the messages of `input` as far as they are complete.
fn relay(
    input: &mut Input<'_>,
    (passing, client): (&mut Missing, &mut ClientSession),
    server: &mut ServerSession,
    naming: &mut Naming<'_>,
    next_request: &NextRequest<'_>,
    out: &mut BatchOutput<'_>,
) -> End {
    while !input.is_empty() {
        if !passing.is_none() {
            let rest = input.skip(passing);
            session::rest_to_server(&input.bytes()[rest.clone()], passing.is_none(), server);
            out.pass(rest);
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
        if begins_request(peeked.tag()) && !next_request.may_be_sent(server) {
            return End::Held;
        }
        if let Naming::Shared { .. } = naming
            && session::has_to_wait(peeked.tag(), peeked.payload(), client, server)
        {
            return End::Held;
        }
        let (message, missing) = peeked.take();
        *passing = missing;
        count_statements(&message, server);
        let sent = session::to_server(&message, client, server, naming, out);
        if let Err(violation) = sent {
            return End::Violation(violation.to_string());
        }
    }
    End::Input
}

/// Counts messages about named statements.
fn count_statements(message: &Message<'_>, server: &mut ServerSession) {
    let is_named = |name: Result<&[u8], _>| name.is_ok_and(|name: &[u8]| !name.is_empty());
    match message.tag() {
        tag::PARSE if is_named(frontend::statement_name(message.payload())) => {
            server.passed.named_parses += 1;
        }
        tag::BIND if is_named(frontend::bind_names(message.payload()).map(|it| it.statement)) => {
            server.passed.named_binds += 1;
        }
        _ => {}
    }
}

/// Returns the message at the front if enough of it has arrived to handle it.
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
        needed = if len <= DEFINITION_KEPT_MAX { len } else { WHOLE_LEN };
    }
    Ok(peeked.has_arrived(needed).then_some(peeked))
}

/// Returns whether the input is one complete batch that prepares and describes, and executes
/// nothing.
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

/// Returns whether a message of this type can be the first of a transaction.
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

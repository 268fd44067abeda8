//! From a client's first message to a permit and an upstream connection, and back.
//!
//! # Clients that are idle inside their transactions
//!
//! The server has said ReadyForQuery inside a transaction block, and nothing of the client is on
//! its way: the database does nothing for this transaction until the client sends its next command.
//! After [`LEND_AFTER`] of this the permit is lent, and the gate admits the next transaction. The
//! client's next command makes the permit count again and goes to the server at once.
//!
//! All clients are idle for the same time before their permits are lent, so the one that became
//! idle first is at the front of a queue. A client that goes on stays in the queue and is skipped
//! when its time comes: a command costs one entry, and the gate is never asked about a client that
//! answers at once.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tidegate_gate::{
    Admission, Claim, ClassId, Outcome, Permit, Refusal, RefusalReason, Request, Snapshot,
};
use tidegate_wire::backend::TransactionStatus;
use tidegate_wire::error_response::{self, Severity, SqlState};
use tidegate_wire::frontend;
use tidegate_wire::input::Input;

use crate::client::{Client, ClientSlot, TransactionInput, TransactionState};
use crate::config::PoolMode;
use crate::session::ServerSession;
use crate::settings::Settings;
use crate::slots::PoolIndex;
use crate::timeouts::ShownBound;
use crate::traffic;
use crate::upstream::{Refused, UpstreamSlot};

use super::Worker;
use super::clients::Flow;

/// How long a client is idle inside its transaction before its permit counts no longer.
///
/// Longer than the round trip and the pause of a program that goes on at once: such a transaction
/// counts as a whole, which is what the limit is for, since it holds its locks all the time. And
/// short, because a permit that is out for nothing holds up others just as long: with 20 ms of
/// thinking and a limit of 4, throughput was 1,373, 634 and 184 tps when permits were lent after 1,
/// 5 and 20 ms, while in transactions without thinking next to none was lent, even after 1 ms
/// (`docs/results/idle.md`). The poll's timeout is in whole milliseconds, so it becomes 2 to 3 ms.
const LEND_AFTER: Duration = Duration::from_millis(2);

/// Clients that became idle inside a transaction, in the order in which they did; some have gone on
/// since.
#[derive(Debug, Default)]
pub(super) struct IdleTransactions(VecDeque<(Instant, ClientSlot)>);

impl IdleTransactions {
    fn push(&mut self, since: Instant, client: ClientSlot) {
        debug_assert!(self.0.back().is_none_or(|last| last.0 <= since), "in order of time");
        self.0.push_back((since, client));
    }

    /// Returns the client that became idle first and is idle since then, and that moment. Forgets
    /// the entries before it.
    fn first(
        &mut self,
        is_idle_since: impl Fn(ClientSlot, Instant) -> bool,
    ) -> Option<(Instant, ClientSlot)> {
        while let Some(&(since, client)) = self.0.front() {
            if is_idle_since(client, since) {
                return Some((since, client));
            }
            self.0.pop_front();
        }
        None
    }

    fn pop(&mut self) -> Option<(Instant, ClientSlot)> {
        self.0.pop_front()
    }
}

impl Worker {
    /// Asks for a permit: the client's next message begins a transaction.
    pub(super) fn begin_transaction(&mut self, slot: ClientSlot, input: &Input<'_>) -> Flow {
        if self.stopping.is_some() {
            self.end_for_shutdown(slot);
            return Flow::Wait;
        }
        let now = Instant::now();
        let since = self.clients[slot].ask(now);
        if self.is_held_by_order(slot) {
            self.clients[slot].set_transaction(TransactionState::Paused);
            return Flow::Wait;
        }
        let asked = self.classify(slot, input);
        let (Some(account), Some(asked)) = (self.clients[slot].account(), asked) else {
            debug_assert!(false, "only a client that is logged in begins a transaction");
            return Flow::Wait;
        };
        let gate = &self.upstreams[account.pool].server.gate;
        let request = Request {
            quotas: account.identity.quotas,
            wait_until: account.timeouts.queue.map(|wait| since + wait),
            finish_by: asked.within.map(|within| now + within),
            expected: asked.expected,
            ..Request::new(asked.class, slot.to_bits(), &self.admitted)
        };
        match gate.request(&request, now) {
            Admission::Granted(permit) => {
                self.run_transaction(slot, permit);
                Flow::Next
            }
            Admission::Queued(ticket) => {
                self.clients[slot].set_transaction(TransactionState::Queued(ticket));
                Flow::Wait
            }
            Admission::Refused(refusal) => {
                let message = self.refusal_words(&refusal);
                self.refuse_transaction(slot, SqlState::TOO_MANY_CONNECTIONS, &message);
                Flow::Next
            }
        }
    }

    /// Claims the client's ticket: the gate says that it can be.
    pub(super) fn admitted(&mut self, slot: ClientSlot) {
        // The client may have been cancelled or have gone meanwhile.
        let Some(transaction) = self.clients.get_mut(slot).and_then(|it| it.transaction_mut())
        else {
            return;
        };
        if !matches!(transaction, TransactionState::Queued(_)) {
            return;
        }
        let idle = TransactionState::Idle { is_held: false };
        let TransactionState::Queued(ticket) = std::mem::replace(transaction, idle) else {
            return;
        };
        match ticket.claim() {
            Claim::Granted(permit) => self.run_transaction(slot, permit),
            Claim::Waiting(ticket) => *transaction = TransactionState::Queued(ticket),
            Claim::Expired => {
                let message = self.waited_too_long(slot);
                self.refuse_transaction(slot, SqlState::QUERY_CANCELED, &message);
            }
            Claim::Late(refusal) => {
                let message = self.refusal_words(&refusal);
                self.refuse_transaction(slot, SqlState::TOO_MANY_CONNECTIONS, &message);
            }
        }
        self.follow_ups.resume_client(slot);
    }

    /// Returns what to tell a client whose transaction the gate refuses.
    fn refusal_words(&self, refusal: &Refusal) -> String {
        let classes = &self.shared.config.scheduling.classes;
        let class = classes.class(refusal.class).name;
        let Refusal { waiting, class_waiting, waiting_max, limit, .. } = *refusal;
        let shown = |time: Option<Duration>| {
            time.map_or_else(|| "not known".to_owned(), |time| format!("{time:.1?}"))
        };
        let (wait, runs) = (shown(refusal.expected_wait), shown(refusal.in_database));
        let why = match refusal.reason {
            RefusalReason::QueueFull => format!(
                "too many transactions are waiting for the database ({waiting}, and waiting_max \
                 is {waiting_max})"
            ),
            RefusalReason::ClassQueueFull => format!(
                "too many transactions of the class {class} are waiting for the database \
                 ({class_waiting}, and the class's waiting_max is {waiting_max})"
            ),
            RefusalReason::Late => format!(
                "the transaction cannot be done in time: those of the class {class} take {runs} \
                 in the database"
            ),
        };
        format!(
            "{why}; {waiting} wait, {class_waiting} of them of the class {class}, for {limit} \
             permits, the expected wait is {wait}; try again later"
        )
    }

    /// Returns what to tell a client that has waited in the queue for as long as it may.
    fn waited_too_long(&self, slot: ClientSlot) -> String {
        let words = "canceling statement: it waited in Tidegate's queue longer than the queue \
                     timeout";
        let Some(account) = self.clients[slot].account() else {
            return words.to_owned();
        };
        let server = &self.upstreams[account.pool].server;
        let bound = account.timeouts.queue.map(|time| ShownBound("queue", time).to_string());
        let Snapshot { limit, waiting, .. } = server.gate.snapshot();
        format!(
            "{words} ({}) for one of {limit} permits of the server at {}; {waiting} more wait",
            bound.unwrap_or_default(),
            server.address,
        )
    }

    /// Fails the transaction that the client is about to begin, and keeps the client.
    pub(super) fn refuse_transaction(
        &mut self,
        slot: ClientSlot,
        code: SqlState<'_>,
        message: &str,
    ) {
        let Some(client) = self.clients.get_mut(slot) else {
            return;
        };
        debug_assert!(client.running().is_none(), "what runs cannot be refused");
        client.set_transaction(TransactionState::Refused { batch_ends: false });
        client.forget_asked();
        let mut out = Vec::new();
        error_response::encode_error(&mut out, Severity::Error, code, message);
        self.send_to_client(slot, &out);
        self.follow_ups.resume_client(slot);
    }

    /// Gives a client with a permit an upstream connection, or lets it wait for one.
    fn run_transaction(&mut self, slot: ClientSlot, permit: Permit) {
        let Some(client) = self.clients[slot].logged_in_mut() else {
            debug_assert!(false, "only a client that is logged in gets a permit");
            return;
        };
        if let Some(own) = client.own_upstream {
            if self.is_pinned(own) {
                self.send_settings(slot, own);
            }
            return self.start(slot, own, permit);
        }
        let pool = client.account.pool;
        if let Some(upstream) = self.take_rested(pool) {
            return self.lend(slot, upstream, permit);
        }
        let Some(client) = self.clients[slot].logged_in_mut() else {
            debug_assert!(false, "looking at idle connections ends no client");
            return;
        };
        client.transaction = TransactionState::AwaitingUpstream(permit);
        self.upstreams[pool].waiting.push_back(slot);
        self.open_for_waiting(pool);
    }

    /// Lends a pooled connection to a client, with the client's settings.
    fn lend(&mut self, slot: ClientSlot, upstream: UpstreamSlot, permit: Permit) {
        self.upstreams.lend(upstream, slot, self.now);
        let pool = self.upstreams[upstream].pool;
        self.upstreams[pool].traffic.total.assignments += 1;
        self.send_settings(slot, upstream);
        self.start(slot, upstream, permit);
    }

    /// Gives a connection at rest the settings of its client, if it has others.
    fn send_settings(&mut self, slot: ClientSlot, upstream: UpstreamSlot) {
        let Some(client) = self.clients[slot].session_mut() else {
            debug_assert!(false, "only a client that is logged in has transactions");
            return;
        };
        let server = &mut self.upstreams[upstream];
        let (has, wanted) = (&mut server.session.settings, &mut client.settings);
        if !server.session.is_altered && has.unify(wanted) {
            return;
        }
        let sql = if server.session.is_altered {
            Settings::sql_from_anything(wanted)
        } else {
            has.sql_to_become(wanted)
        };
        let mut out = Vec::new();
        frontend::encode_query(&mut out, sql.as_bytes());
        server.session.own_error = None;
        server.session.own_query_sent();
        // Until it has been answered: the client may go before.
        server.session.is_altered = true;
        if server.connection.send(&out).is_err() {
            server.connection.set_readable(true);
            self.follow_ups.resume_upstream(upstream);
        }
    }

    fn start(&mut self, slot: ClientSlot, upstream: UpstreamSlot, permit: Permit) {
        self.upstreams[upstream].begin_transaction(permit);
        let asked = self.clients[slot].asked_at();
        let waited = asked.map(|asked| self.now.saturating_duration_since(asked));
        let pool = self.upstreams[upstream].pool;
        let total = &mut self.upstreams[pool].traffic.total;
        total.wait_us += traffic::micros(waited.unwrap_or_default());
        let class = self.clients[slot].class().map_or(0, ClassId::index);
        self.upstreams[pool].times.waited(class, waited.unwrap_or_default());
        self.clients[slot].run_on(upstream, self.now);
    }

    /// A query of the proxy's own has been answered on a client's connection.
    pub(super) fn own_query_answered(&mut self, upstream: UpstreamSlot) {
        if self.upstreams[upstream].session.watch.findings.is_some() {
            self.inspected(upstream);
        } else {
            self.settings_answered(upstream);
        }
    }

    /// The settings of a client that has just got the connection have been answered: its own
    /// messages may follow.
    fn settings_answered(&mut self, upstream: UpstreamSlot) {
        let server = &mut self.upstreams[upstream];
        let Some(slot) = server.client() else {
            debug_assert!(false, "settings are those of a client");
            return;
        };
        match server.session.own_error.take() {
            None => {
                let Some(client) = self.clients[slot].session_mut() else {
                    debug_assert!(false, "only a client that is logged in has settings");
                    return;
                };
                server.session.settings = client.settings.clone();
                server.session.is_altered = false;
                self.follow_ups.resume_client(slot);
            }
            Some(payload) => {
                let code = error_response::field(&payload, b'C');
                let message = error_response::field(&payload, b'M');
                let is_timeout =
                    code == SqlState::QUERY_CANCELED.0 && server.session.settings.has_timeout();
                if is_timeout && server.session.watch.pins.is_empty() {
                    return self.lend_another(slot, upstream);
                }
                self.end_client(slot, Severity::Fatal, SqlState(&code), &message);
            }
        }
    }

    /// The connection cannot be given its client's settings within the timeout that its last client
    /// has set: closes it and lets the client, of which nothing has been sent, wait for another.
    fn lend_another(&mut self, slot: ClientSlot, upstream: UpstreamSlot) {
        let server = &mut self.upstreams[upstream];
        let (permit, pool) = (server.take_permit(), server.pool);
        let Some(permit) = permit else {
            debug_assert!(false, "settings are sent for a transaction");
            return;
        };
        let requester = self.clients[slot].end_transaction();
        self.clients[slot].set_transaction(TransactionState::AwaitingUpstream(permit));
        self.upstreams[pool].waiting.push_front(slot);
        self.close_upstream(upstream);
        self.tell(requester);
        self.open_for_waiting(pool);
    }

    /// ReadyForQuery reached the client. If nothing is open or owed, the transaction has ended.
    pub(super) fn ready_for_query(&mut self, upstream: UpstreamSlot) {
        let server = &mut self.upstreams[upstream];
        let Some(slot) = server.client() else {
            debug_assert!(false, "a server that is lent answers a client");
            return;
        };
        // Its input may have been held for this moment.
        self.follow_ups.resume_client(slot);
        let client = &self.clients[slot];
        // In session mode a server may send one more than was asked for.
        if client.running().is_none() {
            return;
        }
        let is_mid_message = !client.connection.passing.is_none();
        let session = &mut server.session;
        if session.status != TransactionStatus::Idle {
            if session.is_idle_in_transaction() && !is_mid_message {
                self.begin_idle(slot, upstream);
            }
            return;
        }
        // An error may have answered what came after, and the server skips to a Sync.
        if session.is_at_rest() && !is_mid_message {
            return self.end_transaction(slot, upstream);
        }
        let outcome = take_outcome(session);
        self.count_transaction(slot, upstream);
        let server = &mut self.upstreams[upstream];
        if let Some(running) = self.clients[slot].running_mut() {
            running.since = self.now;
        }
        if let Some(permit) = server.permit_mut() {
            permit.next_transaction(outcome, Instant::now());
        }
    }

    /// Nothing is open or owed: ends the transaction, as soon as it is known what it has left
    /// behind.
    pub(super) fn end_transaction(&mut self, slot: ClientSlot, upstream: UpstreamSlot) {
        match self.due_inspection(upstream) {
            Some(due) => self.inspect(slot, upstream, due),
            None => self.finish_transaction(slot, upstream),
        }
    }

    /// Gives the permit back, and in transaction mode the connection, unless it is pinned.
    pub(super) fn finish_transaction(&mut self, slot: ClientSlot, upstream: UpstreamSlot) {
        let server = &mut self.upstreams[upstream];
        let (outcome, now) = (take_outcome(&mut server.session), Instant::now());
        if server.is_busy() {
            self.count_transaction(slot, upstream);
        }
        let server = &mut self.upstreams[upstream];
        let (permit, pool) = (server.take_permit(), server.pool);
        let requester = self.clients[slot].end_transaction();
        debug_assert!(
            self.upstreams[pool].mode == PoolMode::Transaction
                || self.clients[slot].upstream().is_some(),
            "a client of session mode has a connection of its own"
        );
        self.keep_for_long_statement(slot, upstream);
        if self.clients[slot].upstream().is_none() {
            self.release_upstream(upstream);
        }
        // The connection is at rest before the next transaction is let in.
        if let Some(permit) = permit {
            let took = permit.finish(outcome, now);
            self.learn_time(slot, took);
        }
        self.tell(requester);
        if self.stopping.is_some() {
            self.end_for_shutdown(slot);
        } else {
            self.place_anew(slot);
        }
    }

    /// Counts the transaction that ends.
    fn count_transaction(&mut self, slot: ClientSlot, upstream: UpstreamSlot) {
        let Some(since) = self.clients[slot].running().map(|running| running.since) else { return };
        let pool = self.upstreams[upstream].pool;
        let total = &mut self.upstreams[pool].traffic.total;
        let duration = self.now.saturating_duration_since(since);
        total.transactions += 1;
        total.transaction_us += traffic::micros(duration);
        let class = self.clients[slot].class().map_or(0, ClassId::index);
        self.upstreams[pool].times.ended(class, duration);
    }

    /// Lets a client of transaction mode keep its connection for as long as it has a statement that
    /// exists only there.
    fn keep_for_long_statement(&mut self, slot: ClientSlot, upstream: UpstreamSlot) {
        let server = &self.upstreams[upstream];
        if !server.session.holds_long_statement
            || self.upstreams[server.pool].mode == PoolMode::Session
        {
            return;
        }
        let is_pinned = !server.session.watch.pins.is_empty();
        let Some(client) = self.clients[slot].logged_in_mut() else {
            debug_assert!(false, "only a client that is logged in has transactions");
            return;
        };
        let keeps = is_pinned || client.account.session.statements.has_long();
        client.own_upstream = keeps.then_some(upstream);
    }

    /// Gives a pooled connection that is at rest to a client that waits, or to its pool.
    pub(super) fn release_upstream(&mut self, upstream: UpstreamSlot) {
        let server = &self.upstreams[upstream];
        let pool = server.pool;
        if server.cancels > 0 {
            return self.upstreams.quarantine(upstream, self.now);
        }
        if self.stopping.is_some() {
            return self.close_upstream(upstream);
        }
        if !self.leads_where_it_should(upstream) || self.is_to_be_closed(upstream) {
            self.close_upstream(upstream);
            return self.open_for_waiting(pool);
        }
        while let Some(waiter) = self.upstreams[pool].waiting.pop_front() {
            let Some(transaction) =
                self.clients.get_mut(waiter).and_then(|it| it.transaction_mut())
            else {
                continue;
            };
            let idle = TransactionState::Idle { is_held: false };
            match std::mem::replace(transaction, idle) {
                TransactionState::AwaitingUpstream(mut permit) => {
                    self.upstreams[pool].refused = None;
                    let now = Instant::now();
                    permit.resume(now);
                    permit.begin_work(now);
                    self.lend(waiter, upstream, permit);
                    if self.upstreams[pool].is_in_line {
                        self.open_for_waiting(pool);
                    }
                    return self.follow_ups.resume_client(waiter);
                }
                // It was cancelled, or has a connection, and asks again.
                other => *transaction = other,
            }
        }
        self.upstreams.rest(upstream, self.now);
    }

    /// The server has given no connection, and others of the pool are in use: those that wait take
    /// over the next that is free, and the gate lets in no more than have a connection.
    pub(super) fn await_release(&mut self, pool: PoolIndex, code: &str, message: &str) {
        let pool = &mut self.upstreams[pool];
        if pool.refused.is_none() {
            if let Some(left_out) = self.shared.accounts.admit_warning(self.now) {
                let words = "no upstream connection; waiting for one that is in use";
                tracing::warn!(reason = message, left_out, "{words}");
            }
            let (code, message) = (code.to_owned(), message.to_owned());
            pool.refused = Some(Refused { since: self.now, code, message });
        }
        // A login waits without a permit.
        if pool.waiting.is_empty() {
            return;
        }
        // More connections may be opening than transactions wait, which may have been cancelled.
        let without = pool.waiting.len().saturating_sub(pool.opening()).max(1);
        let without = u32::try_from(without).expect("a table of connections has 2^24 at most");
        pool.server.gate.refused_by_server(without, Instant::now());
    }

    /// Asks servers again that have refused a connection; fails transactions that have waited for
    /// one too long.
    pub(super) fn sweep_refused(&mut self) {
        let limit = self.shared.config.timeouts.connect;
        for pool in self.upstreams.pools() {
            let Some(Refused { since, .. }) = self.upstreams[pool].refused else { continue };
            let state = &mut self.upstreams[pool];
            let has_logins = !state.sessions.is_empty() || !state.awaiting_parameters.is_empty();
            if state.waiting.is_empty() && !has_logins {
                state.refused = None;
            } else if state.waiting.is_empty() || self.now.saturating_duration_since(since) < limit
            {
                self.open_for_waiting(pool);
            } else if let Some(Refused { code, message, .. }) = self.upstreams[pool].refused.take()
            {
                for _ in 0..self.upstreams[pool].waiting.len() {
                    self.fail_one_waiting(pool, SqlState(&code), &message);
                }
            }
        }
    }

    /// Fails the transaction that has waited longest for a connection: there is none.
    pub(super) fn fail_one_waiting(&mut self, pool: PoolIndex, code: SqlState<'_>, message: &str) {
        while let Some(waiter) = self.upstreams[pool].waiting.pop_front() {
            let transaction = self.clients.get(waiter).and_then(|client| client.transaction());
            if let Some(TransactionState::AwaitingUpstream(_)) = transaction {
                return self.refuse_transaction(waiter, code, message);
            }
        }
    }

    /// The server waits for the next command of a client whose transaction is open.
    pub(super) fn begin_idle(&mut self, slot: ClientSlot, upstream: UpstreamSlot) {
        let Some(running) = self.clients[slot].running_mut() else {
            debug_assert!(false, "only a running transaction is idle");
            return;
        };
        debug_assert_eq!(running.upstream, upstream, "a transaction has one connection");
        running.input = TransactionInput::IdleSince(self.now);
        self.idle_transactions.push(self.now, slot);
    }

    /// Returns when the next permit has to be lent, if a client is idle whose permit counts.
    pub(super) fn next_lending(&mut self) -> Option<Instant> {
        let clients = &self.clients;
        let is_idle_since = |slot, since| {
            clients.get(slot).and_then(Client::idle_in_transaction_since) == Some(since)
        };
        self.idle_transactions.first(is_idle_since).map(|(since, _)| since + LEND_AFTER)
    }

    /// Lends the permits of clients that have been idle for long enough.
    pub(super) fn lend_idle(&mut self) {
        while self.next_lending().is_some_and(|at| at <= self.now)
            && let Some((_, slot)) = self.idle_transactions.pop()
        {
            let upstream = self.clients[slot].running().map(|running| running.upstream);
            if let Some(permit) = upstream.and_then(|it| self.upstreams[it].permit_mut()) {
                permit.lend(Instant::now());
            }
        }
    }
}

/// Returns how the transaction ended, and forgets it.
fn take_outcome(session: &mut ServerSession) -> Outcome {
    if std::mem::take(&mut session.failed) { Outcome::Failed } else { Outcome::Completed }
}

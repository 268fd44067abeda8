//! What waits while a server cannot be reached, and what happens when it can be again.
//!
//! A transaction that has sent nothing, and a login, can wait for a server that restarts. They do,
//! with their permits, until the server has been out of reach for `timeouts.server_down`; then they
//! fail, and so do those that come later and find that one more attempt has failed. An error that
//! no later attempt cures, such as a wrong password, fails them at once.
//!
//! When an attempt may be made is the business of [`crate::hosts`], for all event loops together.
//! Each loop asks again at the moment that it was told, when another loop has reached the server
//! ([`Message::ServerBack`]), and at each sweep.
//!
//! # What may run a second time
//!
//! Nothing. A transaction gets another connection only if not a byte of it has left
//! (`RunningTransaction::has_sent`): its connection has died while the proxy still set it up, or
//! the first write has failed as a whole.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tidegate_wire::error_response::SqlState;

use crate::client::{Client, ClientSlot, LoggedIn, TransactionState};
use crate::commands::Hold;
use crate::config::SessionAttributes;
use crate::handshake::{Progress, UpstreamError};
use crate::hosts::{self, Attempt, Connected, OutageReport};
use crate::mailbox::Message;
use crate::shared::Server;
use crate::slots::{PoolIndex, ServerIndex};
use crate::upstream::UpstreamSlot;

use super::Worker;

/// After a connection has died, others that rest are looked at before they are lent, for so long.
const SUSPICION: Duration = Duration::from_secs(1);

/// What an event loop remembers of servers that cannot be reached.
pub(super) struct Outages {
    /// For each server, clients of session mode whose connection could not be opened.
    sessions: HashMap<ServerIndex, VecDeque<ClientSlot>>,
    /// When something that is held is tried again.
    retry_at: Option<Instant>,
    /// Until when connections at rest may have died.
    pub(super) suspicious_until: Instant,
    /// When the last sweep was.
    swept_at: Instant,
    /// Takes pools in turn.
    turn: usize,
}

impl Outages {
    pub(super) fn new(now: Instant) -> Outages {
        Outages {
            sessions: HashMap::new(),
            retry_at: None,
            suspicious_until: now,
            swept_at: now,
            turn: 0,
        }
    }

    /// Forgets a client of session mode that waits for a server.
    pub(super) fn forget_session(&mut self, client: ClientSlot) {
        for sessions in self.sessions.values_mut() {
            sessions.retain(|&waiter| waiter != client);
        }
    }

    /// Tries what is held again at this time, or before.
    pub(super) fn retry_by(&mut self, at: Option<Instant>) {
        self.retry_at = self.retry_at.into_iter().chain(at).min();
    }

    /// Returns when something that is held is tried again.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }
}

impl Worker {
    /// Notes what came of an attempt that has brought no connection.
    pub(super) fn end_attempt(&mut self, attempt: Option<Attempt>, error: &UpstreamError) {
        let Some(attempt) = attempt else { return };
        if hosts::may_pass(error) {
            attempt.failed(error, self.now);
        } else if attempt.answered(self.now) {
            self.tell_of_return();
        }
    }

    /// A server is ready: checks that it is what was asked for, once it has said what it is.
    ///
    /// # Errors
    /// It is something else.
    pub(super) fn check_role(
        &mut self,
        slot: UpstreamSlot,
        progress: Progress,
    ) -> Result<Progress, UpstreamError> {
        let Some((server, pool)) = self.upstreams.with_pool(slot) else { return Ok(progress) };
        let hosts = &pool.server.hosts;
        if progress == Progress::Continues {
            return Ok(progress);
        }
        let mut role = None;
        if hosts.attributes() != SessionAttributes::Any
            && let Some((handshake, connection)) = server.login()
        {
            let mut out = Vec::new();
            role = handshake.role(&mut out)?;
            let Some(role) = role else {
                connection.send(&out)?;
                return Ok(Progress::Continues);
            };
            if let Some(attempt) = &server.attempt {
                attempt.check(role)?;
            }
        }
        server.connected = Some(Connected::to(hosts));
        if server.attempt.take().is_some_and(|attempt| attempt.reached(role, self.now)) {
            self.tell_of_return();
        }
        Ok(progress)
    }

    /// Lets every event loop open the connections that are missing.
    fn tell_of_return(&self) {
        for mailbox in &self.shared.mailboxes {
            mailbox.post(Message::ServerBack);
        }
    }

    /// A connection could not be opened, and a later attempt may succeed: those that wait for it go
    /// on waiting. In session mode it was that of a client.
    pub(super) fn hold(&mut self, pool: PoolIndex, client: Option<ClientSlot>) {
        if let Some(client) = client
            && self.clients.get_mut(client).is_some_and(Client::unset_own_upstream)
        {
            self.hold_session(pool, client);
        }
        let server = Arc::clone(&self.upstreams[pool].server);
        let is_patient = !self.shared.config.timeouts.server_down.is_zero();
        if !is_patient && server.hosts.is_down() {
            self.give_up(&server);
        }
        // Another address may be tried at once.
        self.outages.retry_by(Some(self.now));
    }

    /// Lets a client of session mode wait until its connection can be opened.
    pub(super) fn hold_session(&mut self, pool: PoolIndex, client: ClientSlot) {
        let server = self.upstreams[pool].server.index;
        self.outages.sessions.entry(server).or_default().push_back(client);
    }

    /// Opens as many connections of a pool as are missing, as far as this is the time.
    pub(super) fn open_missing(&mut self, pool: PoolIndex) {
        if self.stopping.is_some() || self.upstreams[pool].refused.is_some() {
            return;
        }
        self.open_for_waiting(pool);
    }

    /// Tries to open the connections that are missing, if it is time.
    pub(super) fn retry_openings(&mut self) {
        if self.outages.retry_at.is_none_or(|at| at > self.now) {
            return;
        }
        self.outages.retry_at = None;
        self.open_all_missing();
    }

    pub(super) fn open_all_missing(&mut self) {
        if self.stopping.is_some() {
            return;
        }
        for pool in self.upstreams.pools() {
            self.lend_rested(pool);
            self.open_missing(pool);
        }
        for (_, sessions) in self.outages.sessions.drain() {
            for client in sessions {
                self.upstreams.queue_for_session(client);
            }
        }
        self.open_for_sessions();
    }

    /// Gives idle connections to transactions that wait: those that were put back.
    fn lend_rested(&mut self, pool: PoolIndex) {
        while !self.upstreams[pool].waiting.is_empty()
            && let Some(rested) = self.take_rested(pool)
        {
            self.release_upstream(rested);
        }
    }

    /// Fails what has waited too long for servers, and tries again to reach them.
    pub(super) fn sweep_outages(&mut self) {
        let bound = self.shared.config.timeouts.server_down;
        let shared = Arc::clone(&self.shared);
        for server in shared.servers.iter().map(|it| &it.server) {
            let Some(outage) = server.hosts.outage() else { continue };
            let (gives_up_at, swept_at) = (outage.since + bound, self.outages.swept_at);
            // Who came later waits for one more attempt.
            let has_failed_since = bound.is_zero() || outage.failed_at > swept_at;
            if gives_up_at <= self.now && (gives_up_at > swept_at || has_failed_since) {
                self.give_up(server);
            }
        }
        self.outages.swept_at = self.now;
        self.open_all_missing();
        self.probe();
    }

    /// Tries to reach servers that nobody waits for: until they are known to be back, their limits
    /// stay where they are.
    fn probe(&mut self) {
        let shared = Arc::clone(&self.shared);
        for server in shared.servers.iter().map(|it| &it.server) {
            if self.stopping.is_some() || server.hosts.outage().is_none() {
                continue;
            }
            let is_of_server = |pool: &PoolIndex| {
                let pool = &self.upstreams[*pool];
                pool.server.index == server.index && !pool.is_retired
            };
            let pools: Vec<PoolIndex> = self.upstreams.pools().filter(is_of_server).collect();
            // Each in turn: a server may refuse the user of one.
            self.outages.turn = self.outages.turn.wrapping_add(1);
            let turn = self.outages.turn.checked_rem(pools.len());
            if let Some(pool) = turn.and_then(|turn| pools.get(turn)) {
                self.open_spare(*pool);
            }
        }
    }

    /// Fails the transactions and logins that wait for a server which cannot be reached.
    fn give_up(&mut self, server: &Server) {
        let Some(outage) = server.hosts.outage() else { return };
        let (code, message) = self.words_about(server, &outage);
        let code = SqlState(&code);
        let mut given_up = 0;
        for pool in self.upstreams.pools() {
            let is_paused = self.upstreams[pool].orders.hold != Hold::None;
            if self.upstreams[pool].server.index != server.index || is_paused {
                continue;
            }
            for waiter in std::mem::take(&mut self.upstreams[pool].awaiting_parameters) {
                self.refuse_login(waiter, code, &message);
                given_up += 1;
            }
            for _ in 0..self.upstreams[pool].waiting.len() {
                self.fail_one_waiting(pool, code, &message);
                given_up += 1;
            }
        }
        for waiter in self.outages.sessions.remove(&server.index).unwrap_or_default() {
            if self.clients.get(waiter).is_some_and(|it| it.awaiting_parameters().is_some()) {
                self.refuse_login(waiter, code, &message);
                given_up += 1;
            }
        }
        for waiter in self.queued_without_connection(server.index) {
            self.refuse_transaction(waiter, code, &message);
            given_up += 1;
        }
        self.counters.transactions_given_up.fetch_add(given_up, Ordering::Relaxed);
        if given_up > 0
            && let Some(left_out) = self.endings.admit(self.now)
        {
            let server = &server.address;
            let reason = message.as_str();
            tracing::warn!(%server, given_up, left_out, reason, "no longer waiting for a server");
        }
    }

    /// Returns the clients in the gate's queue of a server for which no connection is open.
    fn queued_without_connection(&self, server: ServerIndex) -> Vec<ClientSlot> {
        let is_connected = |pool| self.upstreams.count(pool, |it| !it.is_opening()) > 0;
        let is_stuck_pool =
            |pool: &PoolIndex| self.upstreams[*pool].server.index == server && !is_connected(*pool);
        let stuck_pools: Vec<PoolIndex> = self.upstreams.pools().filter(is_stuck_pool).collect();
        let is_stuck = |client: &Client| {
            let crate::client::ClientState::LoggedIn(LoggedIn {
                account,
                own_upstream: None,
                transaction: TransactionState::Queued(_),
                ..
            }) = &client.state
            else {
                return false;
            };
            stuck_pools.contains(&account.pool)
        };
        self.clients.iter().filter(|(_, client)| is_stuck(client)).map(|(slot, _)| slot).collect()
    }

    /// Returns the SQLSTATE and the words in which clients are told of an outage.
    fn words_about(&self, server: &Server, outage: &OutageReport) -> (String, String) {
        let OutageReport { since, last, .. } = outage;
        let bound = self.shared.config.timeouts.server_down;
        let lasted = self.now.saturating_duration_since(*since);
        let message = format!(
            "no connection to the database server at {}: none could be opened for {:.1} s, and \
             transactions wait for one for {} s at most (timeouts.server_down); the last attempt \
             failed with {}",
            server.address,
            lasted.as_secs_f64(),
            bound.as_secs_f64(),
            last.text
        );
        (last.code.clone(), message)
    }

    /// Returns the SQLSTATE and the words for a client whose login has taken too long.
    pub(super) fn words_about_login(&self, slot: ClientSlot) -> (String, String) {
        let mut message = self.late_login_words(slot);
        let mut code = SqlState::PROTOCOL_VIOLATION.0.to_owned();
        let waits_for = self.clients.get(slot).and_then(Client::awaiting_parameters);
        if let Some(account) = waits_for {
            let server = &self.upstreams[account.pool].server;
            message = format!(
                "{message}: no connection to the database server at {} was opened in that time",
                server.address
            );
            SqlState::CONNECTION_FAILURE.0.clone_into(&mut code);
            if let Some(why) = self.why_no_connection(account.pool) {
                message = format!("{message}: {why}");
                SqlState::TOO_MANY_CONNECTIONS.0.clone_into(&mut code);
            }
            if let Some(outage) = server.hosts.outage() {
                message = format!("{message}; the last attempt failed with {}", outage.last.text);
                code = outage.last.code;
            }
        }
        (code, message)
    }

    /// A connection has died that was open: others may have.
    pub(super) fn suspect_others(&mut self, slot: UpstreamSlot) {
        self.outages.suspicious_until = self.now + SUSPICION;
        self.note_failed_check(slot);
    }

    /// Gives the transaction on a connection that has died another one, if nothing of it has left.
    /// Returns whether it did; the connection has been removed then.
    pub(super) fn put_back(&mut self, upstream: UpstreamSlot) -> bool {
        let Some(server) = self.upstreams.get_mut(upstream) else { return false };
        let (pool, Some(slot)) = (server.pool, server.client()) else { return false };
        let Some(client) = self.clients.get_mut(slot) else { return false };
        if client.unsent().is_none() || self.stopping.is_some() {
            return false;
        }
        let Some(running) = client.running_mut() else { return false };
        let requester = running.cancel_when_sent.take();
        let Some(permit) = server.take_permit() else { return false };
        self.clients[slot].set_transaction(TransactionState::AwaitingUpstream(permit));
        self.upstreams[pool].waiting.push_front(slot);
        self.remove_upstream(upstream);
        self.counters.transactions_put_back.fetch_add(1, Ordering::Relaxed);
        if requester.is_some() {
            // What it was to cancel has not begun.
            self.cancel_waiting(slot);
            self.tell(requester);
        }
        self.outages.retry_by(Some(self.now));
        true
    }

    /// Publishes how much waits for connections.
    pub(super) fn publish_held(&self) {
        let pools = || self.upstreams.pools().map(|pool| &self.upstreams[pool]);
        let transactions: usize = pools().map(|pool| pool.waiting.len()).sum();
        let logins: usize = pools().map(|pool| pool.awaiting_parameters.len()).sum();
        let in_line: usize = pools().map(|pool| pool.sessions.len()).sum();
        let sessions: usize = self.outages.sessions.values().map(VecDeque::len).sum();
        let logins = (logins + in_line + sessions) as u64;
        self.counters.transactions_held.store(transactions as u64, Ordering::Relaxed);
        self.counters.logins_held.store(logins, Ordering::Relaxed);
    }
}

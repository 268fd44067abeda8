//! Clients that take longer than they may: found by the sweep, told which bound it was, and ended.
//!
//! A client that is ended inside a transaction leaves as one that has disconnected: its backend is
//! sent a cancel request and rolls back, so that its locks and its connection are free again.
//!
//! Replication connections have no bounds but those of the login and of a message.

use std::time::{Duration, Instant};

use tidegate_wire::error_response::{Severity, SqlState};

use crate::client::{Client, ClientSlot, ClientState, LoginStage};
use crate::commands::Hold;
use crate::timeouts::ShownBound;

use super::Worker;

/// What a client took too long for: the code and the words that it is told.
type Passed = (SqlState<'static>, String);

impl Worker {
    pub(super) fn sweep_clients(&mut self) {
        for slot in self.clients.slots() {
            let Some(client) = self.clients.get(slot) else {
                continue;
            };
            if client.login_or_end_since().is_some() {
                self.sweep_login_or_end(slot);
            } else if let Some(message) = self.passed_by_message(slot) {
                self.violation(slot, &message);
            } else if let Some((code, message)) = self.passed_by_session(slot) {
                self.end_client(slot, Severity::Fatal, code, &message);
            }
        }
    }

    /// Ends a client that takes too long to log in, or to take its last message.
    fn sweep_login_or_end(&mut self, slot: ClientSlot) {
        let limit = self.login_limit(slot);
        let client = &self.clients[slot];
        let age =
            client.login_or_end_since().map(|since| self.now.saturating_duration_since(since));
        if age.is_none_or(|age| age < limit) {
            return;
        }
        if matches!(client.state, ClientState::LoggingIn { .. }) {
            self.end_late_login(slot);
        } else {
            self.remove_client(slot);
        }
    }

    /// Returns how long the client may take to log in.
    fn login_limit(&self, slot: ClientSlot) -> Duration {
        let awaiting = self.clients.get(slot).and_then(Client::awaiting_parameters);
        if awaiting.is_some_and(|it| self.upstreams[it.pool].orders.hold == Hold::Paused) {
            // It waits until its database is resumed.
            return Duration::MAX;
        }
        let own = self.clients.get(slot).and_then(Client::timeouts).map(|own| own.login);
        own.unwrap_or(self.shared.config.timeouts.client.login)
    }

    /// Returns the words for a client whose login has taken too long, and what was awaited of it.
    pub(super) fn late_login_words(&self, slot: ClientSlot) -> String {
        let awaited = match self.clients.get(slot).map(|client| &client.state) {
            Some(ClientState::LoggingIn { stage: LoginStage::FirstPacket, .. }) => {
                ": the client's start-up packet was awaited"
            }
            Some(ClientState::LoggingIn { stage: LoginStage::Authenticating(..), .. }) => {
                ": the client's proof of who it is was awaited"
            }
            _ => "",
        };
        let bound = ShownBound("login", self.login_limit(slot));
        format!("login was not completed within the login timeout ({bound}){awaited}")
    }

    /// Returns what to tell a client that has sent a part of a message and nothing since.
    fn passed_by_message(&self, slot: ClientSlot) -> Option<String> {
        let limit = self.shared.config.timeouts.message;
        let since = self.clients[slot].mid_message_since?;
        (self.now.saturating_duration_since(since) >= limit).then(|| {
            let bound = ShownBound("message", limit);
            format!("the rest of a message did not arrive within the message timeout ({bound})")
        })
    }

    /// Returns what to tell a client that is logged in and has passed a bound of its own.
    fn passed_by_session(&mut self, slot: ClientSlot) -> Option<Passed> {
        let (client, now) = (&mut self.clients[slot], self.now);
        let idle_since = client.note_idleness(now);
        let account = client.account()?;
        if self.upstreams[account.pool].is_for_replication() {
            return None;
        }
        let bounds = *account.timeouts;
        passed_transaction(client, bounds.transaction, now)
            .or_else(|| passed_idle_in_transaction(client, bounds.idle_in_transaction, now))
            .or_else(|| passed_idle(idle_since, bounds.client_idle, now))
    }
}

/// Returns how long something has lasted, if that is at least the limit.
fn beyond(since: Option<Instant>, limit: Option<Duration>, now: Instant) -> Option<Duration> {
    let age = now.saturating_duration_since(since?);
    (age >= limit?).then_some(age)
}

/// A time for people, in whole milliseconds.
fn shown(time: Duration) -> humantime::FormattedDuration {
    let milliseconds = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    humantime::format_duration(Duration::from_millis(milliseconds))
}

fn passed_transaction(client: &Client, limit: Option<Duration>, now: Instant) -> Option<Passed> {
    let since = client.running().map(|running| running.since);
    let age = shown(beyond(since, limit, now)?);
    let bound = ShownBound("transaction", limit?);
    let message = format!(
        "terminating connection due to transaction timeout ({bound}): the transaction was open \
         for {age} and is rolled back"
    );
    Some((SqlState::TRANSACTION_TIMEOUT, message))
}

fn passed_idle_in_transaction(
    client: &Client,
    limit: Option<Duration>,
    now: Instant,
) -> Option<Passed> {
    let age = shown(beyond(client.idle_in_transaction_since(), limit, now)?);
    let bound = ShownBound("idle_in_transaction", limit?);
    let message = format!(
        "terminating connection due to idle-in-transaction timeout ({bound}): the next command of \
         the open transaction was awaited for {age}, and the transaction is rolled back"
    );
    Some((SqlState::IDLE_IN_TRANSACTION, message))
}

fn passed_idle(since: Option<Instant>, limit: Option<Duration>, now: Instant) -> Option<Passed> {
    let age = shown(beyond(since, limit, now)?);
    let bound = ShownBound("client_idle", limit?);
    let message = format!(
        "terminating connection due to idle-session timeout ({bound}): the next command was \
         awaited for {age}"
    );
    Some((SqlState::IDLE_SESSION, message))
}

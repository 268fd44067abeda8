//! Session state in transaction mode: inspecting a connection before it is released, pinning it to
//! its client, and cleaning it.
//!
//! ```text
//! ReadyForQuery, idle, nothing owed
//!   -> nothing noticed                        -> permit and connection back
//!   -> own query -> only settings, or nothing -> the client's settings are these; as above
//!                -> anything else: "pin"      -> permit back; the connection stays the client's
//!                                  otherwise  -> permit back; the client is warned, the connection
//!                                                is cleaned, then released
//! a pinned client leaves                      -> its connection is cleaned, then released
//! ```
//!
//! The client's input is held while its connection is inspected. The permit is kept: asking is work
//! of the database, and the connection must not be lent meanwhile. A connection is cleaned in the
//! state `Abandoned`, without a permit.

use std::sync::atomic::Ordering;

use tidegate_wire::error_response::{self, SqlState};
use tidegate_wire::{backend, frontend};

use crate::client::{ClientSlot, LoggedIn};
use crate::config::{Database, PoolMode, SessionStateCheck, SessionStatePolicy};
use crate::scheduling::OWN_SETTINGS;
use crate::session;
use crate::session_state::inspection::{self, Findings};
use crate::session_state::{self, Due, Kind, Kinds};
use crate::settings::{self, Settings};
use crate::slots::PoolIndex;
use crate::upstream::{Upstream, UpstreamSlot, UpstreamState};

use super::Worker;

/// A session that has failed to answer so often because it was cancelled, is asked no more.
const FAILURES_MAX: u32 = 3;

impl Worker {
    /// Returns the configured database of a pool.
    fn database_of(&self, pool: PoolIndex) -> &Database {
        &self.upstreams[pool].entry.database
    }

    /// Returns what a connection has to be asked about before its transaction ends, if anything.
    pub(super) fn due_inspection(&mut self, upstream: UpstreamSlot) -> Option<Due> {
        let pool = self.upstreams[upstream].pool;
        if self.upstreams[pool].mode == PoolMode::Session {
            let session = &mut self.upstreams[upstream].session;
            // Nothing has to be known but what the client has chosen.
            let due = Due { asked: Kinds::of(Kind::Settings), unseen: Kinds::NONE };
            return std::mem::take(&mut session.choice_may_change).then_some(due);
        }
        let always = self.database_of(pool).session_state_check == SessionStateCheck::Always;
        self.upstreams[upstream].session.watch.take_due(always)
    }

    /// Asks a connection, on which nothing is owed, what its client has left behind.
    pub(super) fn inspect(&mut self, slot: ClientSlot, upstream: UpstreamSlot, due: Due) {
        self.ask(slot, upstream, Findings::new(due, 0));
    }

    fn ask(&mut self, slot: ClientSlot, upstream: UpstreamSlot, findings: Findings) {
        let server = &mut self.upstreams[upstream];
        let Some(client) = self.clients[slot].session_mut() else {
            debug_assert!(false, "only a client that is logged in has transactions");
            return;
        };
        let asked = findings.due.asked;
        server.session.watch.findings = Some(findings);
        // One answer more may be on its way than is known: this one could be taken for it.
        if server.session.replies.is_uncertain() {
            return self.inspected(upstream);
        }
        let names = client.settings.custom_names().chain(client.custom_names.iter());
        let mut out = Vec::new();
        frontend::encode_query(&mut out, inspection::query(asked, names).as_bytes());
        server.session.own_error = None;
        server.session.own_query_sent();
        self.counters.inspections.fetch_add(1, Ordering::Relaxed);
        if server.connection.send(&out).is_err() {
            server.connection.set_readable(true);
            self.follow_ups.resume_upstream(upstream);
        }
    }

    /// The connection has been asked, or cannot be.
    pub(super) fn inspected(&mut self, upstream: UpstreamSlot) {
        let server = &mut self.upstreams[upstream];
        let (slot, pool) = (server.client(), server.pool);
        let findings = server.session.watch.findings.take();
        let (Some(slot), Some(mut findings)) = (slot, findings) else {
            debug_assert!(false, "an inspection is of a client's connection");
            return;
        };
        let error = server.session.own_error.take();
        let is_cancelled = error
            .as_deref()
            .is_some_and(|error| error_response::field(error, b'C') == SqlState::QUERY_CANCELED.0);
        if is_cancelled && findings.failures < FAILURES_MAX {
            // A cancel request for the transaction that has ended came late.
            return self.ask(slot, upstream, Findings::new(findings.due, findings.failures + 1));
        }
        if self.upstreams[pool].mode == PoolMode::Session {
            if error.is_none() {
                self.take_over_choice(slot, &findings);
            }
            self.follow_ups.resume_client(slot);
            return self.finish_transaction(slot, upstream);
        }
        let server = &mut self.upstreams[upstream];
        if error.is_some() || server.session.replies.is_uncertain() {
            findings.kinds = findings.kinds.with(Kind::Unknown);
        } else if findings.due.asked.contains(Kind::Settings) {
            findings.kinds = findings.kinds.union(self.take_over(slot, upstream, &findings));
        }
        // Functions may have made settings that no server lists. They may stay with their client.
        let check = self.database_of(pool).session_state_check;
        self.upstreams[upstream].session.is_altered =
            check == SessionStateCheck::Always && findings.kinds.is_empty();
        // What was held may go on.
        self.follow_ups.resume_client(slot);
        let (policy, kinds) = (self.database_of(pool).session_state, findings.kinds);
        let before = self.keep(slot, upstream, kinds);
        if policy == SessionStatePolicy::Pin || kinds.is_empty() {
            for kind in kinds.without(before).pinning() {
                self.counters.session_state_pinned.count(kind);
            }
            return self.finish_transaction(slot, upstream);
        }
        self.warn_of_session_state(slot, kinds);
        self.finish_transaction(slot, upstream);
        self.let_go(slot, upstream);
    }

    /// In session mode: the class and the deadline that were found are those that the client has
    /// chosen.
    fn take_over_choice(&mut self, slot: ClientSlot, found: &Findings) {
        let Some(client) = self.clients[slot].session_mut() else { return };
        for name in OWN_SETTINGS {
            let found = found.settings.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
            client.settings.put(name, found.map(|(_, value)| &**value));
        }
    }

    /// The settings that were found are those of the connection and of its client. What the client
    /// has set back is what it was at the login. Returns whether there is one that cannot follow.
    fn take_over(&mut self, slot: ClientSlot, upstream: UpstreamSlot, found: &Findings) -> Kinds {
        let (Some((server, pool)), Some(client)) =
            (self.upstreams.with_pool(upstream), self.clients[slot].session_mut())
        else {
            debug_assert!(false, "an inspection is of a client's connection");
            return Kinds::of(Kind::Unknown);
        };
        let first = &client.first_settings;
        // What its start-up packet could set, can be set again.
        let is_first = |(name, _): &&(String, String)| first.get(name).is_some();
        let is_other_user = |(name, value): &&(String, String)| {
            name != "session_authorization" || *value != pool.key.user
        };
        // A custom setting has no other value when it has been set back.
        let is_set = |(name, value): &&(String, String)| {
            !value.is_empty() || !settings::is_custom_name(name) || first.get(name).is_none()
        };
        let follow = found.settings.iter().filter(is_other_user).filter(is_set);
        let follow = follow.chain(found.fixed.iter().filter(is_first));
        let settings = Settings::from_pairs(follow.map(|(name, value)| (&**name, &**value)));
        let mut reports = Vec::new();
        for (reported, _) in pool.parameters.iter().flatten() {
            let name = std::str::from_utf8(reported).unwrap_or_default();
            if let Some(value) = first.get(name).filter(|_| settings.get(name).is_none()) {
                backend::encode_parameter_status(&mut reports, reported, value.as_bytes());
            }
        }
        let cannot_follow = !found.fixed.iter().all(|pair| is_first(&pair));
        server.session.settings = settings.clone();
        client.settings = settings;
        client.settings.complete(&client.first_settings);
        if !reports.is_empty() {
            self.send_to_client(slot, &reports);
        }
        if cannot_follow { Kinds::of(Kind::FixedSetting) } else { Kinds::NONE }
    }

    /// The client keeps its connection because of these, or not any more because there are none.
    /// Returns the kinds before.
    fn keep(&mut self, slot: ClientSlot, upstream: UpstreamSlot, kinds: Kinds) -> Kinds {
        if let Some(client) = self.clients[slot].logged_in_mut() {
            client.own_upstream = (!kinds.is_empty()).then_some(upstream);
        }
        std::mem::replace(&mut self.upstreams[upstream].session.watch.pins, kinds)
    }

    /// Returns whether a connection is that of a client of transaction mode.
    pub(super) fn is_pinned(&self, upstream: UpstreamSlot) -> bool {
        let is_lent = |it: &Upstream| {
            let mode = self.upstreams[it.pool].mode;
            mode == PoolMode::Transaction && matches!(it.state(), UpstreamState::Lent { .. })
        };
        self.upstreams.get(upstream).is_some_and(is_lent)
    }

    /// Takes the connection away from a client of transaction mode that runs nothing, and cleans
    /// it.
    fn let_go(&mut self, slot: ClientSlot, upstream: UpstreamSlot) {
        // The client may have been ended with its transaction, for a shutdown.
        let client = self.clients.get_mut(slot).and_then(|client| client.logged_in_mut());
        if let Some(LoggedIn { own_upstream, .. }) = client
            && own_upstream.take().is_some()
        {
            self.clean(upstream);
        }
    }

    /// Cleans a connection whose client has left it at rest.
    pub(super) fn clean(&mut self, upstream: UpstreamSlot) {
        self.upstreams[upstream].abandon(self.now);
        self.wind_up(upstream);
    }

    /// Returns whether a connection that has come to rest without its client can be released; if
    /// not, it is being cleaned, or has been closed.
    pub(super) fn is_clean(&mut self, upstream: UpstreamSlot) -> bool {
        let session = &mut self.upstreams[upstream].session;
        if session.watch.take_cleaned() {
            if session.own_error.take().is_some() {
                self.close_upstream(upstream);
                return false;
            }
            session.cleaned();
        }
        if !session.watch.is_dirty() {
            return true;
        }
        if session.watch.needs_end() {
            self.close_upstream(upstream);
            return false;
        }
        let mut out = Vec::new();
        session::clean(session, &mut out);
        if self.upstreams[upstream].connection.send(&out).is_err() {
            self.close_upstream(upstream);
        }
        false
    }

    /// Tells a client and the log that what it left behind is removed.
    fn warn_of_session_state(&mut self, slot: ClientSlot, kinds: Kinds) {
        let (message, hint) = session_state::warning(kinds);
        for kind in kinds.pinning() {
            self.counters.session_state_removed.count(kind);
        }
        let Some(account) = self.clients[slot].account() else { return };
        if let Some(left_out) = self.session_warnings.admit(self.now) {
            // A value is logged as it is if it is displayed, with the line ends of a user's name.
            let (user, state) = (&*account.user, message.as_str());
            let database = &self.upstreams[account.pool].key.server_database;
            tracing::warn!(user, database, state, left_out, "session state was removed: {hint}");
        }
        let mut out = Vec::new();
        error_response::encode_warning(&mut out, SqlState::WARNING, &message, hint);
        self.send_to_client(slot, &out);
    }
}

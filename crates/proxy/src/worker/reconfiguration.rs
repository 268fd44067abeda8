//! Another configuration, taken over by an event loop: see [`crate::reload`].
//!
//! Pools whose entry connects as before go on with what is new in it. The others are *retired*: no
//! client comes any more, and their connections are closed as they are released. A client is
//! *misplaced* while the name of the database that it asked for leads to another entry than that of
//! its pool, or to none:
//!
//! | client | what becomes of it |
//! | --- | --- |
//! | at rest, or waiting for its turn | moves at once |
//! | inside a transaction | moves when it has ended |
//! | with a connection of its own (session mode, pinned) | keeps it as long as it would |
//! | whose database or user is configured no more | is ended when its transaction has: 57P01 |
//!
//! A client that waits at the gate of the same server keeps its position there.

use std::sync::Arc;
use std::time::Instant;

use tidegate_wire::error_response::{Severity, SqlState};

use crate::client::{Account, Client, ClientSlot, Inquiry, TransactionState};
use crate::handshake::Credentials;
use crate::login::LoginFailure;
use crate::shared::Entry;
use crate::slots::PoolIndex;
use crate::upstream::{Pool, PoolKey, Upstream};

use super::{Worker, applicants};

impl Worker {
    /// Goes by another configuration if one is in force.
    pub(super) fn look_for_configuration(&mut self) {
        if self.in_force.refresh(&mut self.shared) && self.stopping.is_none() {
            self.take_over_configuration();
        }
    }

    fn take_over_configuration(&mut self) {
        // Pools and clients that were counted meanwhile had the old bounds.
        self.shared.accounts.configure(&self.shared.config);
        self.applicants.set_max(applicants::max(&self.shared.config));
        for pool in self.upstreams.pools() {
            self.take_over_pool(pool);
        }
        self.make_kept_pools();
        let mut waiting: Vec<(Option<Instant>, ClientSlot)> =
            self.clients.iter().map(|(slot, client)| (client.asked_at(), slot)).collect();
        // Who has waited for longest asks first again, and what is resumed last is done first.
        waiting.sort_by_key(|(asked, _)| std::cmp::Reverse(*asked));
        for (_, slot) in waiting {
            self.take_over_client(slot);
        }
        for pool in self.upstreams.pools() {
            if self.upstreams[pool].is_retired {
                self.close_retired(pool);
            } else {
                self.announce_pool(&self.upstreams[pool].key.clone());
                self.open_for_waiting(pool);
            }
        }
        self.outages.retry_by(Some(self.now));
    }

    fn take_over_pool(&mut self, pool: PoolIndex) {
        let key = self.upstreams[pool].key.clone();
        let Some(entry) = self.shared.entry(key.database).cloned() else {
            let state = &mut self.upstreams[pool];
            state.is_retired = true;
            state.bounds.kept_open = 0;
            if std::mem::take(&mut state.is_in_line) {
                self.shared.accounts.upstreams.leave_line(self.pool_of_worker(pool));
            }
            return;
        };
        let bounds = self.bounds_of_pool(&key, &entry);
        let credentials = self.credentials(&key, &entry);
        let state = &mut self.upstreams[pool];
        (state.bounds, state.credentials, state.entry) = (bounds, credentials, entry);
    }

    /// Returns whom the proxy is on connections of a pool.
    pub(super) fn credentials(&self, key: &PoolKey, entry: &Entry) -> Credentials {
        let found = (&self.shared.config.users, entry.lookups.as_ref());
        let password = entry.database.server_password.as_deref();
        let channel_binding = entry.database.tls.channel_binding;
        Credentials::new(key.user.clone(), password, found, channel_binding)
    }

    /// Closes what no client holds of the connections of a retired pool.
    fn close_retired(&mut self, pool: PoolIndex) {
        for slot in self.upstreams.slots() {
            let is_free =
                |it: &Upstream| it.is_idle() || (it.is_opening() && it.client().is_none());
            if self.upstreams.get(slot).is_some_and(|it| it.pool == pool && is_free(it)) {
                self.close_upstream(slot);
            }
        }
    }

    fn take_over_client(&mut self, slot: ClientSlot) {
        self.ask_for_user_again(slot);
        let Some(account) = self.clients.get(slot).and_then(Client::account) else { return };
        let Some(entry) = self.entry_of(account) else {
            return self.leave_or_be_marked(slot);
        };
        let is_elsewhere = entry.index != self.upstreams[account.pool].key.database;
        let own = self.shared.config.user_settings.get(&*account.user).map(|user| user.timeouts);
        let timeouts = own.unwrap_or_default().over(entry.database.timeouts);
        let named = (entry.database.shown_name(&account.asked), entry.database.key());
        let peer = self.clients[slot].connection.peer_ip().unwrap_or_default();
        let identity = self.shared.config.scheduling.identity(&account.user, named, peer);
        if let Some(account) = self.clients[slot].account_mut() {
            (*account.timeouts, account.is_misplaced) = (timeouts, is_elsewhere);
            account.identity = identity;
        }
        if is_elsewhere {
            self.move_waiting(slot);
        }
    }

    /// Returns the entry that a client's database is now; `None` if it or the user is configured no
    /// more.
    fn entry_of(&self, account: &Account) -> Option<Arc<Entry>> {
        let entry = self.shared.database(&account.asked)?;
        let is_known = !account.is_of_users_file
            || entry.lookups.is_some()
            || self.shared.config.users.find(account.user.as_bytes()).is_some();
        is_known.then(|| Arc::clone(entry))
    }

    /// A server was asked for the user of a client: if nobody asks it any more, another one is.
    fn ask_for_user_again(&mut self, slot: ClientSlot) {
        let looking_up = self.clients.get(slot).and_then(Client::looking_up);
        let Some((applicant, Inquiry::User(method))) = looking_up else { return };
        let method = *method;
        if self.shared.entry(applicant.key.database).is_some() {
            return;
        }
        if let Some(mut applicant) = self.clients[slot].take_applicant() {
            if let Some(entry) = self.shared.database(&applicant.asked) {
                applicant.key.database = entry.index;
            }
            self.find_user(slot, applicant, method, Vec::new());
        }
    }

    /// Ends a client at rest whose database or user has gone, or has that done later.
    fn leave_or_be_marked(&mut self, slot: ClientSlot) {
        if let Some(account) = self.clients[slot].account_mut() {
            account.is_misplaced = true;
        }
        if self.clients[slot].running().is_none() {
            self.end_without_database(slot);
        }
    }

    fn end_without_database(&mut self, slot: ClientSlot) {
        let Some(account) = self.clients.get(slot).and_then(Client::account) else { return };
        let message = if self.shared.database(&account.asked).is_none() {
            let asked = &account.asked;
            format!("terminating connection: database \"{asked}\" is configured here no more")
        } else {
            let user = &account.user;
            format!("terminating connection: user \"{user}\" is in the users file no more")
        };
        self.end_client(slot, Severity::Fatal, SqlState::ADMIN_SHUTDOWN, &message);
    }

    /// Moves a client to the pool of the entry that its database is now, if it is at rest or waits.
    fn move_waiting(&mut self, slot: ClientSlot) {
        if self.clients[slot].awaiting_parameters().is_some() {
            return self.move_login(slot);
        }
        if self.clients[slot].running().is_some() || self.clients[slot].own_upstream().is_some() {
            return;
        }
        let Some((before, was_same_server)) = self.move_client(slot) else { return };
        let Some(transaction) = self.clients.get_mut(slot).and_then(|it| it.transaction_mut())
        else {
            return;
        };
        match transaction {
            TransactionState::AwaitingUpstream(_) if was_same_server => {
                self.upstreams[before].waiting.retain(|waiter| *waiter != slot);
                if let Some(pool) = self.clients[slot].account().map(|account| account.pool) {
                    self.upstreams[pool].waiting.push_back(slot);
                }
            }
            TransactionState::Queued(_) if was_same_server => {}
            TransactionState::AwaitingUpstream(_)
            | TransactionState::Queued(_)
            | TransactionState::Paused => {
                // It asks again, at the gate of its new server.
                *transaction = TransactionState::Idle { is_held: false };
                self.upstreams[before].waiting.retain(|waiter| *waiter != slot);
                self.follow_ups.resume_client(slot);
            }
            TransactionState::Idle { .. }
            | TransactionState::Running(_)
            | TransactionState::Refused { .. } => {}
        }
    }

    /// Moves a client that waits for the server's parameters.
    fn move_login(&mut self, slot: ClientSlot) {
        let opening = self.clients[slot].upstream();
        let Some((before, _)) = self.move_client(slot) else { return };
        self.upstreams[before].awaiting_parameters.retain(|waiter| *waiter != slot);
        let was_in_line = self.upstreams[before].sessions.contains(&slot);
        self.upstreams[before].sessions.retain(|waiter| *waiter != slot);
        if let Some(opening) = opening
            && self.clients[slot].unset_own_upstream()
        {
            self.remove_upstream(opening);
        }
        let is_session = self.upstreams[before].mode == crate::config::PoolMode::Session;
        // Others of session mode are in a line that is not of a pool, and stay there.
        if !is_session || was_in_line || opening.is_some() {
            self.await_parameters(slot);
        }
    }

    /// Moves a client to the pool that it belongs to now. Returns the one before, and whether both
    /// have one server.
    fn move_client(&mut self, slot: ClientSlot) -> Option<(PoolIndex, bool)> {
        let Some(account) = self.clients[slot].account() else {
            debug_assert!(false, "only a client with an account has a pool");
            return None;
        };
        let before = account.pool;
        let entry = self.entry_of(account)?;
        let Pool { key, server, .. } = &self.upstreams[before];
        let (mode, replication) = (key.mode, key.replication);
        let is_same_server = server.index == entry.server.index;
        let key = entry.pool_key(&account.asked, &account.user, (mode, replication));
        let pool = match self.pool(key) {
            Ok(pool) => pool,
            Err(error) => {
                tracing::warn!(%error, "a client cannot be moved to its new database");
                return None;
            }
        };
        if let Some(account) = self.clients[slot].account_mut() {
            (account.pool, account.is_misplaced) = (pool, false);
        }
        let counts = self.clients[slot].account().map(|it| self.counts_of_client(it));
        let place = self.clients[slot].account_mut().and_then(|it| it.place.as_mut());
        if let (Some(counts), Some(place)) = (counts, place) {
            place.recount(&counts);
        }
        Some((before, is_same_server))
    }

    /// Moves a client whose transaction has ended and whose database is another entry now, or ends
    /// it if there is none.
    pub(super) fn place_anew(&mut self, slot: ClientSlot) {
        let Some(account) = self.clients.get(slot).and_then(Client::account) else { return };
        if !account.is_misplaced {
            return;
        }
        if self.entry_of(account).is_none() {
            self.end_without_database(slot);
        } else if self.clients[slot].own_upstream().is_none() {
            self.move_client(slot);
        }
    }

    /// Returns the entry that an applicant's database is now, when it is let in.
    pub(super) fn key_when_let_in(
        &self,
        asked: &str,
        user: &str,
        key: &PoolKey,
    ) -> Result<PoolKey, (LoginFailure, SqlState<'static>, String)> {
        let Some(entry) = self.shared.database(asked) else {
            let message = format!("database \"{asked}\" is not configured here");
            return Err((LoginFailure::Database, SqlState::INVALID_CATALOG_NAME, message));
        };
        Ok(entry.pool_key(asked, user, (key.mode, key.replication)))
    }

    /// Removes retired pools of which nothing is left.
    pub(super) fn sweep_retired(&mut self) {
        // What is being passed may come back to its pool.
        if self.leaving.is_some() {
            return;
        }
        let retired = self.upstreams.pools().filter(|pool| self.upstreams[*pool].is_retired);
        let retired: Vec<PoolIndex> = retired.collect();
        for pool in retired {
            self.close_retired(pool);
            let has_connections = self.upstreams.count(pool, |_| true) > 0;
            let is_of_client = |client: &Client| client.account().is_some_and(|it| it.pool == pool);
            if has_connections || self.clients.iter().any(|(_, client)| is_of_client(client)) {
                continue;
            }
            let Some(removed) = self.upstreams.remove_pool(pool) else { continue };
            // What has passed through it stays in the sums of its database.
            let is_heir = |heir: &PoolIndex| {
                let heir = &self.upstreams[*heir];
                (&heir.database_name, &heir.key.user) == (&removed.database_name, &removed.key.user)
            };
            if let Some(heir) = self.upstreams.pools().find(is_heir) {
                self.upstreams[heir].traffic.inherit(&removed.traffic);
            }
        }
    }
}

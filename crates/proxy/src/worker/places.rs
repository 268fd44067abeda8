//! Which connections an event loop opens, keeps and gives up: places under the bounds of
//! [`Capacity`](crate::capacity::Capacity).
//!
//! # Who waits for a place
//!
//! A transaction in transaction mode that finds no idle connection, and a login that needs one,
//! wait until their pool gets a place: in the order in which they came, over all pools of all event
//! loops. When a connection is released and a client of another pool has waited for longer than
//! those of its own, it is closed, and its place is that client's. If all connections that could
//! help are in use, one that is idle is closed at once; the event loops are asked one after the
//! other, that with the oldest one first.
//!
//! # Permits of transactions that wait
//!
//! A transaction gets its permit before its connection, but a client that keeps a connection to
//! itself, as in session mode, has its connection before the permit. Each could wait for what the
//! other holds. So a permit that still waits for a place at a sweep is set aside
//! ([`Permit::set_aside`](tidegate_gate::Permit::set_aside)).
//!
//! # Age
//!
//! A connection that is older than `server_lifetime` is closed when it is released or idle, one of
//! a pool at a time. Each is given up to a tenth less, so that connections that were opened
//! together do not end together.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tidegate_wire::error_response::{Severity, SqlState};

use crate::accounts::{self, AskedWorkers};
use crate::capacity::{Bound, Counts, Place, PoolOfWorker, Wait};
use crate::client::{Account, Client, ClientSlot, TransactionState};
use crate::commands::Hold;
use crate::config::PoolMode;
use crate::handshake::Question;
use crate::mailbox::Message;
use crate::shared::Entry;
use crate::slots::{PoolIndex, ServerIndex};
use crate::timeouts::ShownBound;
use crate::upstream::{PoolBounds, PoolKey, Upstream, UpstreamSlot};

use super::Worker;

/// Connections of a pool are closed because of their age at least so far apart.
const RETIRE_INTERVAL: Duration = Duration::from_millis(250);

/// Connections of a pool that are opened at once while it has none.
const FIRST_OPENING: usize = 4;

/// Time until a connection that is to be kept open is tried again after a failure.
const KEEP_OPEN_PAUSE: Duration = Duration::from_secs(5);

/// What a pool lacks.
struct Want {
    /// When the first client came for whom no connection is expected.
    since: Instant,
    /// How many there are.
    clients: usize,
}

impl Worker {
    /// Opens connections of a pool for the clients that wait, or lets the pool wait for places.
    pub(super) fn open_for_waiting(&mut self, pool: PoolIndex) {
        while let Some(want) = self.want(pool) {
            if !self.upstreams.may_open_more() || self.awaits_first(pool) {
                return;
            }
            let Some(place) = self.take_place(pool, &want) else { return };
            // A server that has no more to give is asked with one connection at a time.
            if !self.open_with(pool, place) || self.upstreams[pool].refused.is_some() {
                return;
            }
        }
        if std::mem::take(&mut self.upstreams[pool].is_in_line) {
            self.shared.accounts.upstreams.leave_line(self.pool_of_worker(pool));
        }
    }

    /// Returns whether a pool of transaction mode has no connection yet and is opening some. The
    /// others follow when the first is ready, which is soon while they do not keep the server's
    /// processors from it.
    fn awaits_first(&self, pool: PoolIndex) -> bool {
        let state = &self.upstreams[pool];
        state.mode == PoolMode::Transaction
            && state.opening() >= FIRST_OPENING
            && self.upstreams.count(pool, |it| !it.is_opening() && !it.is_closing()) == 0
    }

    /// Takes what a pool has waited for in the line, if it is still wanted.
    pub(super) fn place_given(&mut self, pool: PoolIndex, place: Place) {
        // It may have been removed meanwhile, and the place comes back.
        if !self.upstreams.has_pool(pool) {
            return;
        }
        self.upstreams[pool].is_in_line = false;
        if self.stopping.is_some() || self.want(pool).is_none() || !self.open_with(pool, place) {
            return;
        }
        // How many connections are opened for sessions at once has a bound.
        let sessions = std::mem::take(&mut self.upstreams[pool].sessions);
        if sessions.is_empty() {
            self.open_for_waiting(pool);
        } else {
            self.upstreams.queue_for_session_again(sessions);
            self.open_for_sessions();
        }
    }

    pub(super) fn pool_of_worker(&self, pool: PoolIndex) -> PoolOfWorker {
        PoolOfWorker { worker: self.index, pool }
    }

    /// Returns what a pool lacks, if anything. A connection that is withheld is expected: the
    /// server that has to end its quarantine has to accept a new connection too.
    fn want(&mut self, pool: PoolIndex) -> Option<Want> {
        if self.leaving.is_some() {
            return None;
        }
        self.forget_those_served(pool);
        let state = &self.upstreams[pool];
        if state.orders.hold == Hold::Paused || state.is_retired {
            return None;
        }
        let opening = state.opening();
        let (line, expected) = if !state.sessions.is_empty() {
            (state.sessions.front(), 0)
        } else if opening < state.waiting.len() {
            let expected = opening + self.upstreams.count(pool, Upstream::is_withheld);
            (state.waiting.get(expected), expected)
        } else {
            (state.awaiting_parameters.first().filter(|_| opening == 0), 0)
        };
        let since = self.waits_since(*line?).unwrap_or(self.now);
        let all = state.sessions.len() + state.waiting.len() + state.awaiting_parameters.len();
        Some(Want { since, clients: all.saturating_sub(expected) })
    }

    /// Removes clients from the front of a pool's lines that wait no longer.
    fn forget_those_served(&mut self, pool: PoolIndex) {
        let (clients, pool) = (&self.clients, &mut self.upstreams[pool]);
        let transaction = |slot| clients.get(slot).and_then(Client::transaction);
        let is_waiting =
            |slot| matches!(transaction(slot), Some(TransactionState::AwaitingUpstream(_)));
        while pool.waiting.front().is_some_and(|&slot| !is_waiting(slot)) {
            pool.waiting.pop_front();
        }
        let awaits = |slot| clients.get(slot).is_some_and(|it| it.awaiting_parameters().is_some());
        while pool.sessions.front().is_some_and(|&slot| !awaits(slot)) {
            pool.sessions.pop_front();
        }
        pool.awaiting_parameters.retain(|&slot| awaits(slot));
    }

    /// Returns since when a client asks for what it needs a connection for.
    fn waits_since(&self, slot: ClientSlot) -> Option<Instant> {
        let client = self.clients.get(slot)?;
        client.asked_at().or_else(|| client.login_or_end_since())
    }

    fn take_place(&mut self, pool: PoolIndex, want: &Want) -> Option<Place> {
        let key = self.pool_of_worker(pool);
        let state = &mut self.upstreams[pool];
        let (counts, was_in_line) = (&state.bounds.counts, state.is_in_line);
        let capacity = &self.shared.accounts.upstreams;
        let taken = capacity.take_or_wait((key, counts), (want.since, want.clients), self.now);
        state.is_in_line = taken.is_err();
        match taken {
            Ok(place) => Some(place),
            Err(Wait { full, left_out }) => {
                if let Some(left_out) = left_out.filter(|_| self.shared.accounts.is_known(&full)) {
                    let bound = self.shared.accounts.connections_in_use(&full);
                    tracing::warn!(left_out, "clients wait for a connection: {bound}");
                }
                if !was_in_line {
                    self.ask_for_idle(AskedWorkers::default());
                }
                None
            }
        }
    }

    /// Opens a connection for those that wait. Returns whether that has begun.
    fn open_with(&mut self, pool: PoolIndex, place: Place) -> bool {
        if self.upstreams[pool].mode == PoolMode::Transaction {
            return match self.open(pool, None, place) {
                Ok(opened) => opened.is_some(),
                Err(error) => {
                    self.opening_failed(pool, None, &error);
                    false
                }
            };
        }
        let Some(waiter) = self.upstreams[pool].sessions.pop_front() else {
            return false;
        };
        match self.open(pool, Some(waiter), place) {
            Ok(Some(upstream)) => self.clients[waiter].set_own_upstream(upstream),
            Ok(None) => self.hold_session(pool, waiter),
            Err(error) => self.opening_failed(pool, Some(waiter), &error),
        }
        true
    }

    /// Has the connection closed that is idle for longest and whose place would help somebody who
    /// waits; of the event loops that have not been asked.
    pub(super) fn ask_for_idle(&mut self, asked: AskedWorkers) {
        if !self.shared.accounts.upstreams.is_waited_for() {
            return;
        }
        let Some(worker) = self.shared.accounts.longest_idle(asked) else { return };
        let asked = asked.with(worker);
        if worker != self.index {
            self.shared.mailboxes[worker.0].post(Message::GiveUpIdle { asked });
        } else if !self.give_up_idle() {
            self.ask_for_idle(asked);
        }
    }

    /// Gives up an idle connection, or asks the others.
    pub(super) fn asked_for_idle(&mut self, asked: AskedWorkers) {
        if !self.give_up_idle() {
            self.ask_for_idle(asked);
        }
    }

    /// Closes the connection of this event loop that is idle for longest and whose place would help
    /// somebody who waits. Returns whether there is one.
    fn give_up_idle(&mut self) -> bool {
        let mut idle: Vec<(Instant, PoolIndex, UpstreamSlot)> = self.oldest_idle().collect();
        idle.sort_unstable_by_key(|(since, ..)| *since);
        let helps = |pool: PoolIndex| {
            let counts = &self.upstreams[pool].bounds.counts;
            self.shared.accounts.upstreams.yields((self.pool_of_worker(pool), counts), None)
        };
        let Some((_, pool, slot)) = idle.into_iter().find(|(_, pool, _)| helps(*pool)) else {
            return false;
        };
        self.count_given_up(pool);
        self.close_upstream(slot);
        true
    }

    fn count_given_up(&self, pool: PoolIndex) {
        let server = self.upstreams[pool].server.index;
        self.shared.accounts.server(server).given_up.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the connection of each pool that is idle for longest.
    fn oldest_idle(&self) -> impl Iterator<Item = (Instant, PoolIndex, UpstreamSlot)> + '_ {
        self.upstreams.pools().filter_map(move |pool| {
            let slot = self.upstreams[pool].oldest_idle()?;
            Some((self.upstreams[slot].since, pool, slot))
        })
    }

    /// Returns whether a connection that is being released is closed instead: it is old, or a
    /// client of another pool has waited for longer than those of its own.
    pub(super) fn is_to_be_closed(&mut self, slot: UpstreamSlot) -> bool {
        let upstream = &self.upstreams[slot];
        let pool = upstream.pool;
        if upstream.retires_at.is_some_and(|at| at <= self.now) && self.may_retire(pool) {
            self.note_retired(pool);
            return true;
        }
        if !self.shared.accounts.upstreams.is_waited_for() {
            return false;
        }
        self.forget_those_served(pool);
        let state = &self.upstreams[pool];
        let first = state.waiting.front().and_then(|&waiter| self.waits_since(waiter));
        let own = (self.pool_of_worker(pool), &state.bounds.counts);
        let yields = self.shared.accounts.upstreams.yields(own, first);
        if yields {
            self.count_given_up(pool);
        }
        yields
    }

    /// Returns whether a connection of the pool may be closed because of its age: one at a time.
    fn may_retire(&self, pool: PoolIndex) -> bool {
        let state = &self.upstreams[pool];
        let is_long_ago = |at| self.now.saturating_duration_since(at) >= RETIRE_INTERVAL;
        state.opening() == 0 && state.retired.is_none_or(is_long_ago)
    }

    fn note_retired(&mut self, pool: PoolIndex) {
        let state = &mut self.upstreams[pool];
        state.retired = Some(self.now);
        self.shared.accounts.server(state.server.index).retired.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns when a connection that is opened now is old.
    pub(super) fn retirement(&self) -> Option<Instant> {
        let lifetime = self.shared.config.timeouts.server_lifetime?;
        // Multiples of the golden ratio are far apart, whatever number of them is taken.
        let share = (self.upstreams.begun() as f64 * 0.618_033_988_749_895).fract();
        Some(self.now + lifetime.mul_f64(1.0 - 0.1 * share))
    }

    /// Takes a server's answer about its connections, if a login ends with one.
    pub(super) fn learn_limits(&mut self, slot: UpstreamSlot) {
        let Some((upstream, pool)) = self.upstreams.with_pool(slot) else {
            return;
        };
        let server = Arc::clone(&pool.server);
        let Some((handshake, _)) = upstream.login() else {
            return;
        };
        if let Question::Put(limits) = handshake.question
            && self.shared.accounts.learn(server.index, limits)
        {
            self.shared.accounts.tell_gate(server.index, &server.gate);
            crate::descriptors::check_again(&self.shared);
        }
    }

    /// Notes that a server could not be reached, or closed a connection.
    pub(super) fn lost_contact(&self, server: ServerIndex, is_opening: bool) {
        self.shared.accounts.may_have_restarted(server);
        if is_opening {
            self.shared.accounts.cannot_be_asked(server);
        }
    }

    /// Lets a client of session mode wait again: the server has no connection to give, because
    /// others have them.
    pub(super) fn await_place_again(&mut self, slot: ClientSlot, pool: PoolIndex) {
        if self.clients.get_mut(slot).is_some_and(Client::unset_own_upstream) {
            self.upstreams[pool].sessions.push_front(slot);
        }
    }

    /// Returns whether the proxy has connections to the server of a pool, one of which comes free
    /// some time.
    pub(super) fn has_others_open(&self, pool: PoolIndex) -> bool {
        let server = Bound::Server(self.upstreams[pool].server.index);
        self.shared.accounts.upstreams.occupancy(&server).is_some_and(|it| it.taken > 0)
    }

    /// Returns why a client that waits for a connection has none.
    pub(super) fn why_no_connection(&self, pool: PoolIndex) -> Option<String> {
        let state = &self.upstreams[pool];
        let accounts = &self.shared.accounts;
        if let Some(full) =
            accounts.upstreams.full(&state.bounds.counts).filter(|_| state.is_in_line)
        {
            return Some(accounts.connections_in_use(&full));
        }
        state.refused.as_ref().map(|refused| refused.message.clone())
    }

    /// Looks after places: once in a while, since nothing here is urgent.
    pub(super) fn sweep_places(&mut self) {
        let oldest = self.oldest_idle().map(|(since, ..)| since).min();
        self.shared.accounts.publish_oldest_idle(self.index, oldest);
        for pool in self.upstreams.pools() {
            if self.upstreams[pool].is_in_line {
                self.sweep_waiting(pool);
            } else if self.upstreams[pool].refused.is_none() {
                self.open_for_waiting(pool);
            }
            self.upstreams[pool].traffic.roll(self.now);
            self.retire_idle(pool);
            self.keep_open(pool);
        }
        // Messages do this sooner.
        while self.shared.accounts.upstreams.is_waited_for() && self.give_up_idle() {}
    }

    /// Sets permits aside that wait for a place, and fails transactions that have waited too long.
    fn sweep_waiting(&mut self, pool: PoolIndex) {
        let mut late = Vec::new();
        for &slot in &self.upstreams[pool].waiting {
            let Some(client) = self.clients.get_mut(slot) else { continue };
            let (asked, limit) = (client.asked_at(), client.timeouts().and_then(|it| it.queue));
            let Some(TransactionState::AwaitingUpstream(permit)) = client.transaction_mut() else {
                continue;
            };
            permit.set_aside(Instant::now());
            let age = asked.map(|asked| self.now.saturating_duration_since(asked));
            late.extend(limit.filter(|&limit| age >= Some(limit)).map(|limit| (slot, limit)));
        }
        if late.is_empty() {
            return;
        }
        let why = self.why_no_connection(pool).unwrap_or_default();
        for (slot, limit) in late {
            let message = format!(
                "canceling statement: it waited for a connection longer than the queue timeout \
                 ({}): {why}",
                ShownBound("queue", limit)
            );
            self.refuse_transaction(slot, SqlState::QUERY_CANCELED, &message);
        }
        self.open_for_waiting(pool);
    }

    /// Closes an idle connection of the pool that is too old.
    fn retire_idle(&mut self, pool: PoolIndex) {
        let is_old = |this: &Worker, slot: UpstreamSlot| {
            this.upstreams[slot].retires_at.is_some_and(|at| at <= this.now)
        };
        let old = self.upstreams[pool].idle().find(|&slot| is_old(self, slot));
        if let Some(old) = old.filter(|_| self.may_retire(pool)) {
            self.note_retired(pool);
            self.close_upstream(old);
        }
    }

    /// Opens one of the connections that are to be kept open, if that takes nobody's place.
    fn keep_open(&mut self, pool: PoolIndex) {
        let state = &self.upstreams[pool];
        let wanted = state.bounds.kept_open;
        let is_due = state.keeps_open_at.is_none_or(|at| at <= self.now);
        if wanted == 0 || !is_due || state.opening() > 0 || self.stopping.is_some() {
            return;
        }
        // The process before has some that are to be this one's.
        if self.shared.handover.is_arriving() {
            return;
        }
        if self.upstreams.count(pool, |it| !it.is_closing()) >= wanted {
            return;
        }
        // Until it is logged in, it may fail.
        self.upstreams[pool].keeps_open_at = Some(self.now + KEEP_OPEN_PAUSE);
        self.open_spare(pool);
    }

    /// Opens a connection that nobody waits for, if that takes nobody's place.
    pub(super) fn open_spare(&mut self, pool: PoolIndex) {
        let state = &self.upstreams[pool];
        if state.orders.hold == Hold::Paused || state.is_retired || self.leaving.is_some() {
            return;
        }
        let counts = &self.upstreams[pool].bounds.counts;
        if let Some(place) = self.shared.accounts.upstreams.take_spare(counts)
            && let Err(error) = self.open(pool, None, place)
        {
            self.opening_failed(pool, None, &error);
        }
    }

    /// Returns whether an idle connection may be closed because it is not used.
    pub(super) fn may_expire(&self, pool: PoolIndex) -> bool {
        let kept_open = self.upstreams[pool].bounds.kept_open;
        kept_open == 0 || self.upstreams.count(pool, |it| !it.is_closing()) > kept_open
    }

    /// Returns how many connections a pool may have, and how many it keeps.
    pub(super) fn bounds_of_pool(&self, key: &PoolKey, entry: &Entry) -> PoolBounds {
        let config = &self.shared.config;
        let of_pool = (key, entry.server.index);
        let counts = self.shared.accounts.of_pool(config, of_pool, entry.database.key());
        let kept_open = entry.database.limits.min_connections as usize;
        let workers = self.shared.mailboxes.len();
        // The first event loops have one more where they do not divide.
        let share = (kept_open + workers - 1 - self.index.0) / workers;
        let keeps = key.replication.is_none() && key.mode == entry.database.mode;
        PoolBounds { counts, kept_open: if keeps { share } else { 0 } }
    }

    /// Makes the pools that keep connections open and whose user is known before any client comes.
    pub(super) fn make_kept_pools(&mut self) {
        let shared = Arc::clone(&self.shared);
        for Entry { index, database, .. } in shared.entries.iter().map(|entry| &**entry) {
            let name = database.server_database.as_ref().or(database.name.as_ref());
            if let (true, Some(user), Some(name)) =
                (database.limits.min_connections > 0, &database.server_user, name)
            {
                let (database, server_database, mode) = (*index, name.clone(), database.mode);
                let (user, replication) = (user.clone(), None);
                self.make_pool(PoolKey { database, server_database, user, mode, replication });
            }
        }
    }

    /// Makes a pool that no client waits for.
    fn make_pool(&mut self, key: PoolKey) {
        if let Err(error) = self.pool(key) {
            tracing::warn!(%error, "connections cannot be kept open");
        }
    }

    /// Makes the same pool in the other event loops if a share of its connections is kept open
    /// there.
    pub(super) fn announce_pool(&self, key: &PoolKey) {
        let entry = self.shared.entry(key.database);
        let keeps = entry.is_some_and(|it| {
            it.database.limits.min_connections > 0 && it.database.mode == key.mode
        });
        if !keeps || key.replication.is_some() {
            return;
        }
        for (worker, mailbox) in self.shared.mailboxes.iter().enumerate() {
            if worker != self.index.0 {
                mailbox.post(Message::KeepOpen { key: key.clone() });
            }
        }
    }

    /// Makes a pool that another event loop has announced.
    pub(super) fn pool_announced(&mut self, key: &PoolKey) {
        // The entry may have gone meanwhile.
        let is_configured = self.shared.entry(key.database).is_some();
        if self.stopping.is_none() && is_configured && self.upstreams.find_pool(key).is_none() {
            self.make_pool(key.clone());
        }
    }

    /// Counts a client that is who it says it is.
    ///
    /// # Errors
    /// A bound on clients of its user or its database is reached: what to tell it.
    pub(super) fn admit_client(&mut self, slot: ClientSlot) -> Result<(), String> {
        let Some(account) = self.clients[slot].account() else {
            debug_assert!(false, "only a client that has sent its first packet is admitted");
            return Ok(());
        };
        let counts = self.counts_of_client(account);
        let place = self.shared.accounts.clients.take(&counts);
        let place = place.map_err(|full| accounts::too_many_clients(&full))?;
        if let Some(account) = self.clients[slot].account_mut() {
            account.place = Some(place);
        }
        Ok(())
    }

    /// Returns what a client is counted among.
    pub(super) fn counts_of_client(&self, account: &Account) -> Counts {
        let pool = &self.upstreams[account.pool];
        let named = (pool.entry.database.key(), pool.key.server_database.as_str());
        self.shared.accounts.of_client(&self.shared.config, &account.user, named)
    }

    /// Refuses a client for which there is no room.
    pub(super) fn refuse_for_room(&mut self, slot: ClientSlot, message: &str) {
        self.counters.clients_refused.fetch_add(1, Ordering::Relaxed);
        self.end_client(slot, Severity::Fatal, SqlState::TOO_MANY_CONNECTIONS, message);
    }
}

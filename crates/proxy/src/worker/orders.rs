//! Orders of an administrator, obeyed by an event loop: see [`crate::commands`].
//!
//! New transactions of a database that is paused wait in a state of their own
//! ([`TransactionState::Paused`]), without a ticket: the time does not count against the queue's
//! timeout. A client that keeps a connection to itself, as in session mode, goes on, since its
//! connection is released when it leaves; but not while all databases are suspended.

use tidegate_wire::error_response::{Severity, SqlState};

use crate::client::{Client, ClientSlot, TransactionState};
use crate::commands::{Awaited, Hold, Scope, Wait};
use crate::slots::PoolIndex;

use super::Worker;

impl Worker {
    /// Reads the orders in force and obeys them.
    pub(super) fn obey_orders(&mut self) {
        self.orders_version = self.shared.commands.version();
        for pool in self.upstreams.pools() {
            let state = &mut self.upstreams[pool];
            let orders = self.shared.commands.of(&state.database_name);
            let before = std::mem::replace(&mut state.orders, orders);
            if before == orders {
                continue;
            }
            if orders.hold != Hold::None {
                self.hold_transactions(pool);
            }
            self.close_by_order(pool);
            if before.hold != Hold::None && orders.hold == Hold::None {
                self.resume_pool(pool);
            }
        }
        self.report_order_ends();
    }

    /// Returns whether the next transaction of a client waits for an order to resume.
    pub(super) fn is_held_by_order(&self, slot: ClientSlot) -> bool {
        let Some(client) = self.clients.get(slot) else { return false };
        let Some(account) = client.account() else { return false };
        // What begins now begins in the process that takes over.
        if self.leaving.is_some() && !self.upstreams[account.pool].is_for_replication() {
            return true;
        }
        match self.upstreams[account.pool].orders.hold {
            Hold::None => false,
            Hold::Paused => client.own_upstream().is_none(),
            Hold::Suspended => true,
        }
    }

    /// Lets transactions wait that have not begun: their tickets and permits return.
    fn hold_transactions(&mut self, pool: PoolIndex) {
        for slot in self.clients.slots() {
            let is_of_pool = |client: &Client| client.account().is_some_and(|it| it.pool == pool);
            if !self.clients.get(slot).is_some_and(is_of_pool) || !self.is_held_by_order(slot) {
                continue;
            }
            if let Some(waiting) = self.clients[slot].transaction_mut()
                && let TransactionState::Queued(_) | TransactionState::AwaitingUpstream(_) = waiting
            {
                *waiting = TransactionState::Paused;
            }
        }
    }

    /// Closes connections at rest that are to be closed, and those that are being opened for a
    /// database that is paused.
    fn close_by_order(&mut self, pool: PoolIndex) {
        for slot in self.upstreams.slots() {
            let Some(upstream) = self.upstreams.get(slot).filter(|it| it.pool == pool) else {
                continue;
            };
            let orders = self.upstreams[pool].orders;
            if !orders.close(upstream.opened_under) {
                continue;
            }
            if upstream.is_idle() {
                self.close_upstream(slot);
            } else if upstream.is_opening() && orders.hold == Hold::Paused {
                let client = upstream.client();
                self.remove_upstream(slot);
                if let Some(client) = client {
                    self.await_place_again(client, pool);
                }
                self.open_for_sessions();
            }
        }
    }

    /// Lets the clients of a pool go on, in the order in which they asked.
    fn resume_pool(&mut self, pool: PoolIndex) {
        let is_paused = |client: &Client| {
            matches!(client.transaction(), Some(TransactionState::Paused))
                && client.account().is_some_and(|account| account.pool == pool)
        };
        let paused = self.clients.iter().filter(|(_, client)| is_paused(client));
        let mut paused: Vec<_> = paused.map(|(slot, it)| (it.asked_at(), slot)).collect();
        paused.sort_by_key(|(asked, _)| *asked);
        // What is resumed last is done first.
        for (_, slot) in paused.into_iter().rev() {
            self.clients[slot].set_transaction(TransactionState::Idle { is_held: false });
            self.follow_ups.resume_client(slot);
        }
        self.open_for_waiting(pool);
    }

    /// Ends the clients of a database.
    pub(super) fn kill_clients(&mut self, scope: &Scope) {
        for slot in self.clients.slots() {
            let account = self.clients.get(slot).and_then(Client::account);
            let Some(pool) = account.map(|account| account.pool) else { continue };
            if scope.covers(&self.upstreams[pool].database_name) {
                self.end_by_order(slot);
            }
        }
    }

    /// Ends the client with this number. Returns whether there is one.
    pub(super) fn kill_client(&mut self, id: u64) -> bool {
        let found = self.clients.iter().find(|(_, client)| client.id == id);
        let Some(slot) = found.map(|(slot, _)| slot) else { return false };
        self.end_by_order(slot);
        true
    }

    fn end_by_order(&mut self, slot: ClientSlot) {
        let message = "terminating connection due to administrator command";
        self.end_client(slot, Severity::Fatal, SqlState::ADMIN_SHUTDOWN, message);
    }

    /// Says which of the orders that are waited for have nothing left in this event loop.
    pub(super) fn report_order_ends(&self) {
        if !self.shared.commands.has_waits() {
            return;
        }
        let waits = self.shared.commands.waits_of(self.index);
        let done = waits.into_iter().filter(|wait| self.has_ended(wait)).map(|wait| wait.id);
        let done: Vec<u64> = done.collect();
        if !done.is_empty() {
            self.shared.commands.done(self.index, &done);
        }
    }

    fn has_ended(&self, wait: &Wait) -> bool {
        wait.version <= self.orders_version
            && !self.upstreams.iter().any(|(_, upstream)| {
                let pool = &self.upstreams[upstream.pool];
                wait.scope.covers(&pool.database_name)
                    && match wait.awaited {
                        Awaited::Released => true,
                        Awaited::Closed => pool.orders.close(upstream.opened_under),
                        Awaited::Quiet => upstream.is_busy(),
                    }
            })
    }
}

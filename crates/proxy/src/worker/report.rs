//! The rows of an event loop for the [inventory](crate::inventory).

use std::sync::Arc;
use std::time::Instant;

use crate::client::{
    Client, ClientSlot, ClientState, LoggedIn, TransactionInput, TransactionState,
};
use crate::inventory::{
    BusyClients, ClientActivity, ClientRow, PoolRow, Report, ServerActivity, ServerRow,
};
use crate::slots::{PoolIndex, ServerIndex};
use crate::upstream::{Upstream, UpstreamState};

use super::Worker;

impl Worker {
    /// Returns who is connected here.
    pub(super) fn report(&self) -> Report {
        let pool = |index: PoolIndex| {
            let pool = &self.upstreams[index];
            PoolRow {
                database: pool.database_name.clone(),
                user: pool.key.user.clone(),
                entry: Arc::clone(&pool.entry),
                mode: pool.mode,
                replication: pool.key.replication,
                traffic: pool.traffic,
            }
        };
        Report {
            clients: self.clients.iter().map(|(slot, it)| self.client_row(slot, it)).collect(),
            servers: self.upstreams.iter().map(|(_, it)| self.server_row(it)).collect(),
            pools: self.upstreams.pools().map(pool).collect(),
        }
    }

    /// Returns, for each server, the clients that have held a permit longest and those that have
    /// waited longest, at most `most` of each kind. Rows are made for these only: thousands may
    /// wait.
    pub(super) fn busy(&self, most: usize) -> Vec<BusyClients> {
        let mut servers: Vec<(ServerIndex, BusySlots, BusySlots)> = Vec::new();
        for (slot, client) in self.clients.iter() {
            let Some(account) = client.account() else { continue };
            let holds = self.permit_since(client);
            let asked = client.asked_at().unwrap_or(client.connected_at);
            let is_waiting =
                matches!(activity(client), ClientActivity::Queued | ClientActivity::Paused);
            if holds.is_none() && !is_waiting {
                continue;
            }
            let index = self.upstreams[account.pool].entry.server.index;
            let known = servers.iter().position(|(server, ..)| *server == index);
            let at = known.unwrap_or_else(|| {
                servers.push((index, Vec::new(), Vec::new()));
                servers.len() - 1
            });
            match holds {
                Some(since) => servers[at].1.push((since, slot)),
                None => servers[at].2.push((asked, slot)),
            }
        }
        let row = |(_, slot): (Instant, ClientSlot)| {
            self.clients.get(slot).map(|client| self.client_row(slot, client))
        };
        let rows = |all: BusySlots| oldest(all, most).into_iter().filter_map(row).collect();
        let count = |all: &BusySlots| u32::try_from(all.len()).unwrap_or(u32::MAX);
        let busy = servers.into_iter().map(|(server, held, waiting)| BusyClients {
            server,
            holders_total: count(&held),
            waiters_total: count(&waiting),
            holders: rows(held),
            waiters: rows(waiting),
        });
        busy.collect()
    }

    /// Returns since when a client has a permit, if it has one.
    fn permit_since(&self, client: &Client) -> Option<Instant> {
        let has_permit = match client.transaction() {
            Some(TransactionState::Running(_)) => {
                let upstream = client.upstream().and_then(|it| self.upstreams.get(it));
                upstream.is_some_and(Upstream::is_busy)
            }
            Some(TransactionState::AwaitingUpstream(_)) => true,
            _ => false,
        };
        let asked_at = client.asked_at().unwrap_or(client.connected_at);
        has_permit.then(|| client.running().map_or(asked_at, |running| running.since))
    }

    fn client_row(&self, slot: ClientSlot, client: &Client) -> ClientRow {
        let account = client.account();
        let pool = account.map(|account| &self.upstreams[account.pool]);
        let upstream = client.upstream().and_then(|upstream| self.upstreams.get(upstream));
        let activity = activity(client);
        let asked_at = client.asked_at().unwrap_or(client.connected_at);
        let waits = matches!(
            activity,
            ClientActivity::Queued | ClientActivity::Paused | ClientActivity::AwaitingConnection
        );
        debug_assert!(
            upstream.is_none_or(|it| it.client() == Some(slot)),
            "a connection and its client know each other"
        );
        ClientRow {
            id: client.id,
            user: client.user().to_owned(),
            database: match activity {
                ClientActivity::Console => crate::console::DATABASES[0].to_owned(),
                _ => pool.map_or_else(String::new, |pool| pool.database_name.clone()),
            },
            pool_user: pool.map_or_else(String::new, |pool| pool.key.user.clone()),
            server: pool.map(|pool| pool.server.index),
            replication: pool.and_then(|pool| pool.key.replication),
            activity,
            address: client.connection.peer_address(),
            local_address: client.connection.local_address(),
            tls: client.connection.tls_description(),
            application_name: application_name(client),
            class: client.class(),
            connected_at: client.connected_at,
            asked_at,
            waiting_since: waits.then_some(asked_at),
            permit_since: self.permit_since(client),
            idle_since: client.idle_in_transaction_since(),
            prepared_statements: account.map_or(0, |it| it.session.statements.len()),
            link: upstream.map(|upstream| upstream.id),
        }
    }

    fn server_row(&self, upstream: &Upstream) -> ServerRow {
        let pool = &self.upstreams[upstream.pool];
        let client = upstream.client().and_then(|client| self.clients.get(client));
        ServerRow {
            id: upstream.id,
            user: pool.key.user.clone(),
            database: pool.database_name.clone(),
            replication: pool.key.replication,
            activity: match upstream.state() {
                UpstreamState::Connecting(_) | UpstreamState::LoggingIn(..) => {
                    ServerActivity::LoggingIn
                }
                UpstreamState::Idle => ServerActivity::Idle,
                UpstreamState::Lent { .. } => ServerActivity::Active,
                UpstreamState::Checking => ServerActivity::Tested,
                UpstreamState::Abandoned(_) => ServerActivity::Abandoned,
                UpstreamState::Quarantined => ServerActivity::BeingCancelled,
                UpstreamState::Closing | UpstreamState::Passing { .. } => ServerActivity::Closing,
            },
            address: upstream.peer.address,
            local_address: upstream.connection.local_address(),
            tls: upstream.connection.tls_description(),
            opened_at: upstream.opened_at,
            since: upstream.since,
            is_to_be_closed: pool.orders.close(upstream.opened_under),
            link: client.map(|client| client.id),
            application_name: client.map_or_else(String::new, application_name),
            process_id: upstream.key.as_ref().map(|key| key.process_id),
            prepared_statements: upstream.session.prepared_statements(),
            cancels: upstream.cancels,
        }
    }
}

/// Clients with the moment from which they hold or wait.
type BusySlots = Vec<(Instant, ClientSlot)>;

/// Returns the oldest of these.
fn oldest(mut all: BusySlots, most: usize) -> BusySlots {
    if all.len() > most {
        all.select_nth_unstable_by_key(most, |(since, _)| *since);
        all.truncate(most);
    }
    all
}

fn application_name(client: &Client) -> String {
    let account = client.account();
    account.map_or_else(String::new, |it| it.session.settings.application_name().to_owned())
}

fn activity(client: &Client) -> ClientActivity {
    match &client.state {
        ClientState::LoggingIn { .. } => ClientActivity::LoggingIn,
        ClientState::Console(_) => ClientActivity::Console,
        ClientState::Cancelling { .. } => ClientActivity::Cancelling,
        ClientState::Closing { .. } | ClientState::Passing(_) => ClientActivity::Closing,
        ClientState::LoggedIn(LoggedIn { transaction, .. }) => match transaction {
            TransactionState::Idle { .. } | TransactionState::Refused { .. } => {
                ClientActivity::Idle
            }
            TransactionState::Paused => ClientActivity::Paused,
            TransactionState::Queued(_) => ClientActivity::Queued,
            TransactionState::AwaitingUpstream(_) => ClientActivity::AwaitingConnection,
            TransactionState::Running(running) => match running.input {
                TransactionInput::IdleSince(_) => ClientActivity::IdleInTransaction,
                TransactionInput::Flowing | TransactionInput::Held => ClientActivity::Running,
            },
        },
    }
}

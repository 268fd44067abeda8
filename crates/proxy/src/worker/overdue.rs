//! Warnings of transactions that no longer count against the limit.
//!
//! The gate knows a permit, its class and its age. Whose it is, only the event loop knows that
//! serves the client, so each of them is asked, and the one that has the permit writes the warning.

use std::time::{Duration, Instant};

use tidegate_gate::{Discounted, Permit, PermitId};

use crate::client::{Client, TransactionState};
use crate::mailbox::Message;
use crate::shared::Shared;
use crate::slots::{PoolIndex, ServerIndex};
use crate::upstream::Upstream;

use super::Worker;

/// Holders of one server that are named within [`WINDOW`], at most.
const NAMED_MAX: u64 = 5;

const WINDOW: Duration = Duration::from_secs(10);

/// A permit whose holder is to be named in a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OverdueHolder {
    /// The server whose gate gave the permit.
    server: ServerIndex,
    permit: PermitId,
    /// How long it had been out when it was discounted.
    age: Duration,
    /// Discounted permits that were not named since the last warning.
    unnamed: u64,
}

/// The warnings about one server.
#[derive(Debug)]
pub(crate) struct OverdueWarnings {
    server: ServerIndex,
    window: Option<Instant>,
    named: u64,
    unnamed: u64,
}

impl OverdueWarnings {
    pub(crate) fn new(server: ServerIndex) -> OverdueWarnings {
        OverdueWarnings { server, window: None, named: 0, unnamed: 0 }
    }

    /// Has the holders named that may be; the others are counted.
    pub(crate) fn give(&mut self, discounted: &[Discounted], shared: &Shared, now: Instant) {
        for &permit in discounted {
            if let Some(holder) = self.next(permit, now) {
                for mailbox in &shared.mailboxes {
                    mailbox.post(Message::Discounted(holder));
                }
            }
        }
    }

    fn next(&mut self, discounted: Discounted, now: Instant) -> Option<OverdueHolder> {
        if self.window.is_none_or(|since| now.saturating_duration_since(since) >= WINDOW) {
            (self.window, self.named) = (Some(now), 0);
        }
        if self.named >= NAMED_MAX {
            self.unnamed += 1;
            return None;
        }
        self.named += 1;
        let Discounted { permit, age, .. } = discounted;
        let unnamed = std::mem::take(&mut self.unnamed);
        Some(OverdueHolder { server: self.server, permit, age, unnamed })
    }
}

impl Worker {
    /// Warns of a transaction that does not count any more, if it is one of this loop's and has
    /// not ended.
    pub(super) fn warn_of_overdue(&self, holder: &OverdueHolder) {
        let is_it = |pool: PoolIndex, permit: &Permit| {
            self.upstreams[pool].server.index == holder.server && permit.id() == holder.permit
        };
        for (_, upstream) in self.upstreams.iter() {
            if upstream.permit().is_some_and(|permit| is_it(upstream.pool, permit)) {
                let client = upstream.client().and_then(|slot| self.clients.get(slot));
                return self.warn(holder, upstream.pool, client, activity(client, upstream));
            }
        }
        for (_, client) in self.clients.iter() {
            if let (Some(account), Some(TransactionState::AwaitingUpstream(permit))) =
                (client.account(), client.transaction())
                && is_it(account.pool, permit)
            {
                let state = "waits for a connection to the server";
                return self.warn(holder, account.pool, Some(client), state);
            }
        }
    }

    fn warn(&self, holder: &OverdueHolder, pool: PoolIndex, client: Option<&Client>, state: &str) {
        let key = &self.upstreams[pool].key;
        tracing::warn!(
            server = %self.upstreams[pool].server.address,
            user = client.map_or(&*key.user, Client::user),
            database = key.server_database,
            address = client.map_or_else(|| "gone".to_owned(), |client| client.connection.peer()),
            age_ms = holder.age.as_millis(),
            state,
            unnamed = holder.unnamed,
            "a transaction is open far longer than usual and no longer counts against the limit"
        );
    }
}

/// Returns what the transaction on this connection does, for a log.
fn activity(client: Option<&Client>, upstream: &Upstream) -> &'static str {
    match client {
        None => "its client has gone",
        Some(client) if client.idle_in_transaction_since().is_some() => "idle in transaction",
        Some(client) if client.connection.has_unsent() => "its client does not read the result",
        Some(_) if upstream.connection.has_unsent() => "the server does not read the request",
        Some(_) => "active",
    }
}

//! Who holds a permit that no longer counts against the limit.

use crate::client::{Client, Phase};
use crate::holders::Holder;
use crate::upstream::Upstream;

use super::Worker;

impl Worker {
    /// Warns of a transaction that does not count any more, if it is one of this worker's and has
    /// not ended.
    pub(super) fn warn_of_holder(&self, holder: &Holder) {
        let is_it = |pool: usize, permit: Option<&tidegate_gate::Permit>| {
            self.pools[pool].server == holder.server
                && permit.is_some_and(|permit| permit.id() == holder.permit)
        };
        let mut upstreams = self.upstreams.iter().map(|(_, upstream)| upstream);
        if let Some(upstream) = upstreams.find(|it| is_it(it.pool, it.permit.as_ref())) {
            let client = upstream.client.and_then(|slot| self.clients.get(slot));
            return self.warn_of(holder, upstream.pool, client, state(client, upstream));
        }
        for (_, client) in self.clients.iter() {
            if let (Some(pool), Phase::AwaitingUpstream(permit)) = (client.pool, &client.phase)
                && is_it(pool, Some(permit))
            {
                self.warn_of(holder, pool, Some(client), "waits for a connection to the server");
            }
        }
    }

    fn warn_of(&self, holder: &Holder, pool: usize, client: Option<&Client>, state: &str) {
        let key = &self.pools[pool].key;
        tracing::warn!(
            server = %self.shared.servers[holder.server].address,
            user = client.map_or(&*key.user, |client| &*client.user),
            database = key.server_database,
            address = client.map_or_else(|| "gone".to_owned(), |client| client.stream.peer()),
            age_ms = holder.age.as_millis(),
            state,
            unnamed = holder.unnamed,
            "a transaction is open far longer than usual and no longer counts against the limit"
        );
    }
}

/// What the transaction on this connection does.
fn state(client: Option<&Client>, upstream: &Upstream) -> &'static str {
    match client {
        None => "its client has gone",
        Some(client) if client.idle_in_transaction_since.is_some() => "idle in transaction",
        Some(client) if !client.outbox.is_empty() => "its client does not read the result",
        Some(_) if !upstream.outbox.is_empty() => "the server does not read the request",
        Some(_) => "active",
    }
}

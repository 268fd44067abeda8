//! Clients that are idle inside their transactions: their permits are lent.
//!
//! The server has said ReadyForQuery inside a transaction block, and nothing of the client is on
//! its way: the database does nothing for this transaction until the client sends its next command.
//! After [`LEND_AFTER`] of this the gate is told, and lets in who waits. The next command of the
//! client makes the permit count again and goes to the server at once.
//!
//! All clients are idle for the same time before their permits are lent, so the one that became
//! idle first is at the front of a line. A client that goes on stays in the line and is skipped
//! when its time comes: a command costs one entry, and the gate is never asked about a client that
//! answers at once.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::client::ClientKey;
use crate::upstream::UpstreamKey;

use super::Worker;

/// How long a client is idle inside its transaction before its permit counts no longer.
///
/// Longer than the round trip and the pause of a program that goes on at once: such a transaction
/// counts as a whole, which is what the limit is for, since it holds its locks all the time. And
/// short, because a permit that is out for nothing holds up others just as long: with 20 ms of
/// thinking and a limit of 4, throughput was 1,373, 634 and 184 tps when permits were lent after 1,
/// 5 and 20 ms, while in transactions without thinking next to none was lent, even after 1 ms
/// (`docs/results/idle.md`). The poll's timeout is in whole milliseconds, so it becomes 2 to 3 ms.
const LEND_AFTER: Duration = Duration::from_millis(2);

/// Clients that became idle inside a transaction, by their connection, in the order in which they
/// did; some have gone on since.
#[derive(Debug, Default)]
pub(super) struct IdleLine(VecDeque<(Instant, UpstreamKey)>);

impl Worker {
    /// The server waits for the next command of a client whose transaction is open.
    pub(super) fn begin_idle(&mut self, slot: ClientKey, upstream: UpstreamKey) {
        if let Some(client) = self.clients.get_mut(slot) {
            client.idle_in_transaction_since = Some(self.now);
            self.idle.0.push_back((self.now, upstream));
        }
    }

    /// Returns when the next permit has to be lent, if a client is idle whose permit counts.
    pub(super) fn next_lending(&mut self) -> Option<Instant> {
        while let Some(&(since, upstream)) = self.idle.0.front() {
            if self.is_idle_since(since, upstream) {
                return Some(since + LEND_AFTER);
            }
            self.idle.0.pop_front();
        }
        None
    }

    /// Lends the permits of clients that have been idle for long enough.
    pub(super) fn lend_idle(&mut self) {
        while let Some(&(since, upstream)) = self.idle.0.front()
            && since + LEND_AFTER <= self.now
        {
            self.idle.0.pop_front();
            if self.is_idle_since(since, upstream)
                && let Some(server) = self.upstreams.get_mut(upstream)
                && let Some(permit) = &mut server.permit
            {
                permit.lend(Instant::now());
            }
        }
    }

    /// Whether the client of this connection became idle then and still is.
    fn is_idle_since(&self, since: Instant, upstream: UpstreamKey) -> bool {
        let client = self.upstreams.get(upstream).and_then(|server| server.client);
        let client = client.and_then(|client| self.clients.get(client));
        client.is_some_and(|client| client.idle_in_transaction_since == Some(since))
    }
}

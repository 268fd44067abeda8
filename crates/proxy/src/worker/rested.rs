//! Upstream connections that have rested: whether they can still be lent.
//!
//! A connection at rest may have died in one of three ways.
//!
//! - The server has closed it. An event says so; but it may be behind the event of a client that
//!   is given the connection. So closed connections are looked for first among the events of a
//!   turn, and a connection that has rested for longer than [`LOOKED_AT_AFTER`] is looked at before
//!   it is lent: a peek at its socket. After a connection has died every other one is, for a
//!   second.
//! - Something between here and the server has forgotten it, and nothing says so. A connection that
//!   has rested for `timeouts.health_check_after` is lent only when the server has answered a Sync,
//!   which is the least that a server answers: it begins no statement and leaves no line in a log.
//!   Meanwhile its transaction waits as for a connection that is being opened.
//! - It leads to a host that is no longer in use, or to an address that the host's name no longer
//!   means, or an administrator has ordered to reconnect. It is closed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use mio::Events;
use tidegate_wire::frontend;

use crate::replies::ExpectedReply;
use crate::slots::PoolIndex;
use crate::upstream::{Upstream, UpstreamSlot, UpstreamState};

use super::{Source, Worker};

/// A connection that has rested for longer is looked at before it is lent: connections of a busy
/// pool rest for less, and cost no system call more.
const LOOKED_AT_AFTER: Duration = Duration::from_millis(1);

impl Worker {
    /// Returns an idle connection that can be lent; it has to be lent at once. Those that cannot
    /// are closed, or begin to be checked.
    pub(super) fn take_rested(&mut self, pool: PoolIndex) -> Option<UpstreamSlot> {
        let check_after = self.shared.config.timeouts.health_check_after;
        loop {
            let slot = self.upstreams.take_idle(pool)?;
            if !self.leads_where_it_should(slot) {
                self.close_upstream(slot);
                continue;
            }
            let rested = self.now.saturating_duration_since(self.upstreams[slot].since);
            let is_suspicious = self.now < self.outages.suspicious_until;
            if (rested >= LOOKED_AT_AFTER || is_suspicious)
                && self.upstreams[slot].connection.has_news()
            {
                self.upstream_readable(slot, false);
                if self.upstreams.get(slot).is_none() {
                    continue;
                }
            }
            if check_after.is_none_or(|after| rested < after) {
                return Some(slot);
            }
            self.begin_check(slot);
            return None;
        }
    }

    /// Returns whether a connection leads to a host in use and an address of that host, and neither
    /// an order nor the configuration says that it is to be closed.
    pub(super) fn leads_where_it_should(&mut self, slot: UpstreamSlot) -> bool {
        let Some((server, pool)) = self.upstreams.with_pool(slot) else { return false };
        if pool.is_retired || pool.orders.close(server.opened_under) {
            return false;
        }
        let hosts = &pool.server.hosts;
        if let Some(is_standby) = server.session.became_standby.take() {
            hosts.report(server.peer, is_standby, self.now);
        }
        let generation = hosts.generation();
        if server.generation == generation {
            return true;
        }
        server.generation = generation;
        hosts.accepts(server.peer)
    }

    /// Asks a server whether it is there.
    fn begin_check(&mut self, slot: UpstreamSlot) {
        self.counters.health_checks.fetch_add(1, Ordering::Relaxed);
        self.upstreams.begin_check(slot, self.now);
        let server = &mut self.upstreams[slot];
        server.session.replies.sent(ExpectedReply::OwnSync);
        if server.connection.send(frontend::SYNC).is_err() {
            server.connection.set_readable(true);
            self.follow_ups.resume_upstream(slot);
        }
    }

    /// The server has not answered: closes the connection, and the others that have rested as long.
    pub(super) fn fail_check(&mut self, slot: UpstreamSlot) {
        let pool = self.upstreams[slot].pool;
        self.note_failed_check(slot);
        self.remove_upstream(slot);
        let check_after = self.shared.config.timeouts.health_check_after;
        for idle in self.upstreams.idle_of(pool) {
            let rested = self.now.saturating_duration_since(self.upstreams[idle].since);
            if check_after.is_some_and(|after| rested >= after) {
                self.remove_upstream(idle);
            }
        }
        self.open_missing(pool);
    }

    /// Counts a check whose connection is lost.
    pub(super) fn note_failed_check(&mut self, slot: UpstreamSlot) {
        let is_checking = |it: &Upstream| matches!(it.state(), UpstreamState::Checking);
        if self.upstreams.get(slot).is_some_and(is_checking) {
            self.counters.health_check_failures.fetch_add(1, Ordering::Relaxed);
            tracing::info!("an upstream connection that had rested did not answer");
        }
    }

    /// Removes the idle connections among these events that the server has closed, before any
    /// client can be given them.
    pub(super) fn lose_closed(&mut self, events: &Events) {
        for event in events {
            if !event.is_read_closed() && !event.is_error() {
                continue;
            }
            if let Source::Upstream(slot) = Source::of(event.token())
                && self.upstreams.get(slot).is_some_and(Upstream::is_at_rest)
            {
                self.upstream_readable(slot, true);
            }
        }
    }

    /// Closes idle connections that lead where they should not.
    pub(super) fn sweep_rested(&mut self) {
        for pool in self.upstreams.pools() {
            for idle in self.upstreams.idle_of(pool) {
                if !self.leads_where_it_should(idle) {
                    self.close_upstream(idle);
                }
            }
        }
    }
}

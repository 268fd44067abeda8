//! File descriptors: each client and each connection to a server takes one.
//!
//! The process may have as many as its limit says. What is not enough shows late and where nobody
//! looks for it, as clients that are not accepted, so the limit is compared with the configuration
//! at the start, and again when a server has said how many connections it gives.

use rustix::process::{Resource, getrlimit};

use crate::capacity::Bound;
use crate::config::Config;
use crate::shared::Shared;

/// Descriptors for everything else: standard streams, files, certificates, `/metrics`, cancel
/// requests, watches.
const FIXED: u64 = 48;

/// Descriptors of an event loop: its poll and its waker, and one on which a client is refused.
const EVENT_LOOP: u64 = 4;

/// Connections assumed of a server that has not said how many it gives: `PostgreSQL`'s default.
const SERVER_CONNECTIONS: u64 = 100;

/// How the descriptors are to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DescriptorPlan {
    /// As many as the process may have.
    limit: u64,
    /// For connections to servers.
    servers: u64,
    /// For all but clients and servers.
    fixed: u64,
    /// The bound on clients that is configured.
    clients: Option<u32>,
}

impl DescriptorPlan {
    /// Plans for a process with this limit; `servers` is the number of connections that all servers
    /// give, if that is known.
    fn new(config: &Config, limit: u64, servers: Option<u64>) -> DescriptorPlan {
        let mut addresses: Vec<_> = config.databases.iter().map(|it| &it.server).collect();
        addresses.sort_unstable_by_key(ToString::to_string);
        addresses.dedup();
        let assumed = addresses.len() as u64 * SERVER_CONNECTIONS;
        DescriptorPlan {
            limit,
            servers: servers.unwrap_or(assumed),
            fixed: FIXED + config.listen.len() as u64 + EVENT_LOOP * config.threads.get() as u64,
            clients: config.max_clients,
        }
    }

    /// Returns how many clients there may be: as configured, or as many as there are descriptors
    /// for.
    fn clients_max(&self) -> u32 {
        let room = self.limit.saturating_sub(self.fixed + self.servers).max(1);
        self.clients.unwrap_or(u32::try_from(room).unwrap_or(u32::MAX))
    }

    /// Returns how many descriptors are missing from what was configured, if the limit is too low.
    fn needed(&self) -> Option<u64> {
        let clients = self.clients.map_or(1, u64::from);
        let needed = clients + self.fixed + self.servers;
        Some(needed).filter(|needed| *needed > self.limit)
    }

    /// Says what the plan is, if there is something to say.
    fn report(&self) {
        let DescriptorPlan { limit, servers, .. } = *self;
        let clients = self.clients_max();
        if let Some(needed) = self.needed() {
            tracing::warn!(
                limit,
                needed,
                clients,
                servers,
                "there are too few file descriptors for the clients and connections that are \
                 configured: raise the limit (LimitNOFILE= of a systemd unit, or ulimit -n) or \
                 lower max_clients"
            );
        } else if self.clients.is_none() {
            tracing::info!(
                clients,
                limit,
                servers,
                "max_clients follows from the limit of file descriptors"
            );
        }
    }
}

/// Returns how many descriptors the process may have.
fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Compares the limit with the configuration, bounds the clients, and says so.
pub(crate) fn check(shared: &Shared) {
    bound_clients(shared).report();
}

/// The same, when a server has said how many connections it gives; says less.
pub(crate) fn check_again(shared: &Shared) {
    let plan = bound_clients(shared);
    if plan.needed().is_some() {
        plan.report();
    }
}

fn bound_clients(shared: &Shared) -> DescriptorPlan {
    let servers = shared.servers.iter().map(|it| it.server.index);
    let plan = DescriptorPlan::new(&shared.config, limit(), shared.accounts.servers_max(servers));
    shared.accounts.clients.set_max(&Bound::All, plan.clients_max());
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(limit: u64, servers: u64, clients: Option<u32>) -> DescriptorPlan {
        DescriptorPlan { limit, servers, fixed: 50, clients }
    }

    #[test]
    fn clients_are_bounded_by_what_is_left() {
        assert_eq!(plan(1024, 100, None).clients_max(), 874);
        assert_eq!(plan(1024, 100, None).needed(), None);
        assert_eq!(plan(1024, 100, Some(500)).clients_max(), 500);
        assert_eq!(plan(u64::MAX, 100, None).clients_max(), u32::MAX);
    }

    #[test]
    fn a_limit_that_is_too_low_is_noticed() {
        assert_eq!(plan(1024, 100, Some(1000)).needed(), Some(1150));
        assert_eq!(plan(1024, 100, Some(1000)).clients_max(), 1000, "as configured");
        assert_eq!(plan(1024, 100, Some(874)).needed(), None);
        let none_left = plan(100, 100, None);
        assert_eq!((none_left.needed(), none_left.clients_max()), (Some(151), 1));
    }
}

//! Connections to servers, under their bounds.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Kind, Page, ServerMetrics};
use crate::accounts::Accounts;
use crate::capacity::{Bound, Occupancy};
use crate::slots::ServerIndex;

/// Where the connections of a server are counted.
#[derive(Clone, Debug)]
pub(crate) struct CountedConnections {
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) server: ServerIndex,
}

impl CountedConnections {
    pub(super) fn occupancy(&self) -> Option<Occupancy> {
        self.accounts.upstreams.occupancy(&Bound::Server(self.server))
    }
}

pub(super) fn write(page: &mut Page, servers: &[ServerMetrics]) {
    let counted = |server: &ServerMetrics| Some((server.name.clone(), server.connections.clone()?));
    let counted: Vec<(String, CountedConnections)> = servers.iter().filter_map(counted).collect();
    let name = "tidegate_server_connections";
    page.family(name, Kind::Gauge, "Connections to the server, from their opening to their end.");
    for (server, connections) in &counted {
        if let Some(Occupancy { taken, .. }) = connections.occupancy() {
            page.sample(name, &[("server", server)], taken);
        }
    }
    let name = "tidegate_server_connections_max";
    page.family(name, Kind::Gauge, "Connections that there may be; absent while not known.");
    for (server, connections) in &counted {
        if let Some(known) = connections.accounts.occupancy(connections.server) {
            page.sample(name, &[("server", server)], known.max);
        }
    }
    let name = "tidegate_server_connections_awaited";
    page.family(name, Kind::Gauge, "Transactions and logins that wait because there are no more.");
    for (server, connections) in &counted {
        if let Some(Occupancy { waiting, .. }) = connections.occupancy() {
            page.sample(name, &[("server", server)], waiting);
        }
    }
    let name = "tidegate_server_connections_given_up_total";
    let help = "Connections closed because a client of another user or database needed one.";
    page.family(name, Kind::Counter, help);
    for (server, connections) in &counted {
        let given_up = &connections.accounts.server(connections.server).given_up;
        page.sample(name, &[("server", server)], given_up.load(Ordering::Relaxed));
    }
    let name = "tidegate_server_connections_retired_total";
    page.family(name, Kind::Counter, "Connections closed because of their age.");
    for (server, connections) in &counted {
        let retired = &connections.accounts.server(connections.server).retired;
        page.sample(name, &[("server", server)], retired.load(Ordering::Relaxed));
    }
}

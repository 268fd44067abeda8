//! Whether servers can be reached, and which of their hosts are in use.

use super::{Kind, Page, ServerMetrics};
use crate::hosts::HostsMetrics;

type HostsMetric = (&'static str, Kind, &'static str, fn(&HostsMetrics) -> u64);

const HOSTS_METRICS: [HostsMetric; 4] = [
    (
        "tidegate_server_up",
        Kind::Gauge,
        "0 if no host of the server could be reached at the last attempt, else 1.",
        |hosts| u64::from(hosts.is_up),
    ),
    (
        "tidegate_server_outages_total",
        Kind::Counter,
        "Times that no host of the server could be reached.",
        |hosts| hosts.outages,
    ),
    (
        "tidegate_server_connect_attempts_total",
        Kind::Counter,
        "Attempts to open a connection to the server.",
        |hosts| hosts.attempts,
    ),
    (
        "tidegate_server_connect_failures_total",
        Kind::Counter,
        "Attempts at which the host could not be reached, or was not what was asked for.",
        |hosts| hosts.failures,
    ),
];

/// Writes the state of each server's hosts.
pub(super) fn write(page: &mut Page, servers: &[ServerMetrics]) {
    let state =
        |server: &ServerMetrics| Some((server.name.clone(), server.hosts.as_ref()?.metrics()));
    let servers: Vec<(String, HostsMetrics)> = servers.iter().filter_map(state).collect();
    if servers.is_empty() {
        return;
    }
    for (name, kind, help, of) in HOSTS_METRICS {
        page.family(name, kind, help);
        for (server, hosts) in &servers {
            page.sample(name, &[("server", server)], of(hosts));
        }
    }
    let name = "tidegate_server_host_in_use";
    page.family(name, Kind::Gauge, "1 if connections are opened to the host, else 0.");
    for (server, hosts) in &servers {
        for (host, is_in_use) in &hosts.hosts {
            page.sample(name, &[("server", server), ("host", host)], u8::from(*is_in_use));
        }
    }
}

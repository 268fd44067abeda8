//! What is seen of the servers that are watched.

use std::time::Instant;

use tidegate_control::{Bottleneck, ServerObservation};

use super::{Kind, Page, ServerMetrics};
use crate::watch::WatchMetrics;

type WatchMetric = (&'static str, Kind, &'static str, fn(&WatchMetrics) -> f64);

const WATCH_METRICS: [WatchMetric; 5] = [
    (
        "tidegate_watch_up",
        Kind::Gauge,
        "Whether the connection that watches the server works: 1 or 0.",
        |watch| if watch.is_up { 1.0 } else { 0.0 },
    ),
    (
        "tidegate_watch_interval_seconds",
        Kind::Gauge,
        "Time between two samples of what sessions do.",
        |watch| watch.interval.as_secs_f64(),
    ),
    (
        "tidegate_watch_cost",
        Kind::Gauge,
        "Share of a processor that the watch costs, on the server and here, by its own account.",
        |watch| watch.cost,
    ),
    ("tidegate_watch_samples_total", Kind::Counter, "Samples of what sessions do.", |watch| {
        watch.sampled as f64
    }),
    (
        "tidegate_watch_failures_total",
        Kind::Counter,
        "Times that the connection that watches the server failed.",
        |watch| watch.failures as f64,
    ),
];

type SessionState = (&'static str, fn(&ServerObservation) -> f64);

/// The numbers of a [`ServerObservation`] by the word for what the sessions do.
const STATES: [SessionState; 8] = [
    ("processor", |seen| seen.processor),
    ("lock", |seen| seen.lock),
    ("lwlock", |seen| seen.lwlock),
    ("io", |seen| seen.io),
    ("client", |seen| seen.client),
    ("other", |seen| seen.other),
    ("idle_in_transaction", |seen| seen.idle_in_transaction),
    ("hidden", |seen| seen.hidden),
];

/// Writes what is seen now; nothing where no server is watch.
pub(super) fn write(page: &mut Page, servers: &[ServerMetrics]) {
    let now = Instant::now();
    let watch: Vec<(&str, WatchMetrics)> = servers
        .iter()
        .filter_map(|server| Some((&*server.name, server.samples.as_ref()?.watched(now))))
        .collect();
    if watch.is_empty() {
        return;
    }
    for (name, kind, help, of) in WATCH_METRICS {
        page.family(name, kind, help);
        for (server, watch) in &watch {
            page.sample(name, &[("server", server)], of(watch));
        }
    }
    let name = "tidegate_server_sessions";
    page.family(name, Kind::Gauge, "Sessions inside a transaction, by what they do; 0.5 s mean.");
    for (server, watch) in &watch {
        let Some(seen) = &watch.state.server else { continue };
        for (state, of) in STATES {
            page.sample(name, &[("server", server), ("state", state)], of(seen));
        }
    }
    let name = "tidegate_server_bottleneck";
    page.family(name, Kind::Gauge, "What holds the sessions up: 1 for that, 0 for all others.");
    for (server, watch) in &watch {
        let Some(bottleneck) = watch.bottleneck else { continue };
        for one in Bottleneck::ALL {
            let labels = [("server", *server), ("bottleneck", one.name())];
            page.sample(name, &labels, u8::from(one == bottleneck));
        }
    }
    let name = "tidegate_server_locks";
    page.family(name, Kind::Gauge, "Locks held, by all transactions and by those that run.");
    for (server, watch) in &watch {
        let Some(locks) = watch.state.locks else { continue };
        for (by, count) in [("all", locks.locks_held), ("running", locks.locks_held_by_running)] {
            page.sample(name, &[("server", server), ("by", by)], count);
        }
    }
}

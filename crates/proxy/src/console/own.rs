//! What only this console shows: the limit, the queue, the permits, the classes and the curve.

use std::time::Instant;

use tidegate_control::CurveInterval;
use tidegate_gate::{ClassId, Control};

use super::table::{Table, row};
use crate::inventory::{ClientActivity, Inventory};
use crate::metrics::Decisions;
use crate::shared::{Server, Shared};
use crate::traffic::micros;

/// SHOW LIMIT: each server's limit, its bounds, and the last decision.
pub(super) fn limit(shared: &Shared) -> Table {
    let names = [
        "server",
        "limit",
        "min_mpl",
        "max_mpl",
        "control",
        "running",
        "waiting",
        "idle",
        "discounted",
        "controller",
        "reason",
    ];
    let mut table = Table::new("siiisiiiiss", &names);
    for (server, control, decisions) in servers(shared) {
        let snapshot = server.gate.snapshot();
        let bounds = control.setting.bounds;
        let last = decisions.last();
        let counted = snapshot.outstanding - snapshot.idle - snapshot.discounted;
        table.push(row![
            server.address.to_string(),
            snapshot.limit.to_string(),
            bounds.min().to_string(),
            bounds.max().to_string(),
            control.choice().to_string(),
            counted,
            snapshot.waiting,
            snapshot.idle,
            snapshot.discounted,
            last.as_ref().map(|(controller, _)| *controller),
            last.as_ref().map(|(_, reason)| reason.to_string()),
        ]);
    }
    table
}

/// SHOW QUEUE: who waits for a permit, a connection or the end of a pause, the next one first.
pub(super) fn queue(shared: &Shared, inventory: &Inventory) -> Table {
    let names = [
        "server",
        "position",
        "class",
        "user",
        "database",
        "waits_for",
        "since",
        "wait",
        "wait_us",
        "client_id",
    ];
    let mut table = Table::new("sisssssiiq", &names);
    for server in shared.servers.iter().map(|it| &it.server) {
        let waits = inventory
            .clients
            .iter()
            .filter(|client| client.waiting_since.is_some() && client.server == Some(server.index));
        let mut waiting: Vec<_> = waits.collect();
        waiting.sort_by_key(|client| (client.class, client.asked_at));
        for (position, client) in waiting.into_iter().enumerate() {
            let waited = inventory.at.saturating_duration_since(client.asked_at);
            let waits_for = match client.activity {
                ClientActivity::Paused => "resume",
                ClientActivity::AwaitingConnection => "connection",
                _ => "permit",
            };
            table.push(row![
                server.address.to_string(),
                position + 1,
                class_name(shared, client.class),
                &*client.user,
                &*client.database,
                waits_for,
                super::show::timestamp(inventory.wall_clock(client.asked_at)),
                waited.as_secs(),
                waited.subsec_micros(),
                client.id,
            ]);
        }
    }
    table
}

/// SHOW PERMITS: who holds a permit, for how long, and for how long the database has been waiting
/// for the client's next command; the longest first.
pub(super) fn permits(shared: &Shared, inventory: &Inventory) -> Table {
    let names = [
        "server",
        "class",
        "user",
        "database",
        "state",
        "since",
        "held_us",
        "idle_us",
        "client_id",
        "server_id",
    ];
    let mut table = Table::new("ssssssqqqq", &names);
    let mut holders: Vec<_> =
        inventory.clients.iter().filter_map(|it| Some((it.permit_since?, it))).collect();
    holders.sort_by_key(|(since, _)| *since);
    for (since, client) in holders {
        let lasted = |since| inventory.at.saturating_duration_since(since);
        let state = match client.activity {
            ClientActivity::AwaitingConnection => "awaiting connection",
            ClientActivity::IdleInTransaction => "idle in transaction",
            _ => "running",
        };
        table.push(row![
            client.server.and_then(|it| shared.server(it)).map(|it| it.address.to_string()),
            class_name(shared, client.class),
            &*client.user,
            &*client.database,
            state,
            super::show::timestamp(inventory.wall_clock(since)),
            micros(lasted(since)),
            client.idle_since.map(|since| micros(lasted(since))),
            client.id,
            client.link,
        ]);
    }
    table
}

/// Returns the name of a class.
fn class_name(shared: &Shared, class: Option<ClassId>) -> Option<String> {
    let classes = &shared.config.scheduling.classes;
    class.map(|class| classes.class(class).name.to_string())
}

/// SHOW CLASSES: the classes with what waits and runs, and what their transactions did since the
/// start.
pub(super) fn classes(shared: &Shared) -> Table {
    let names = [
        "server",
        "class",
        "waiting",
        "running",
        "refused",
        "late",
        "expired",
        "withdrawn",
        "aged",
        "completed",
        "failed",
        "avg_queue_us",
        "avg_database_us",
        "avg_response_us",
    ];
    let mut table = Table::new("ssqqqqqqqqqqqq", &names);
    for server in shared.servers.iter().map(|it| &it.server) {
        let snapshot = server.gate.snapshot();
        let classes = server.gate.classes();
        for ((_, class), totals) in classes.iter().zip(&snapshot.classes) {
            let mean = |durations: &tidegate_gate::DurationTotals| {
                let count = durations.count();
                let us = if count == 0 { 0.0 } else { durations.sum_s() / count as f64 * 1e6 };
                format!("{us:.0}")
            };
            table.push(row![
                server.address.to_string(),
                class.name.to_string(),
                totals.waiting,
                totals.running,
                totals.refused.iter().sum::<u64>(),
                totals.late,
                totals.expired,
                totals.withdrawn,
                totals.aged,
                totals.completions,
                totals.failures,
                mean(&totals.in_queue),
                mean(&totals.in_database),
                mean(&totals.response),
            ]);
        }
    }
    table
}

/// A quantile of an interval.
type Part = fn(&CurveInterval) -> f64;

/// SHOW CURVE: the throughput and the response time to expect at each limit, with the quantiles
/// 0.05, 0.5 and 0.95.
pub(super) fn curve(shared: &Shared) -> Table {
    let names = [
        "server",
        "limit",
        "tps_low",
        "tps",
        "tps_high",
        "response_ms_low",
        "response_ms",
        "response_ms_high",
        "unknown",
        "age",
    ];
    let mut table = Table::new("siNNNNNNsi", &names);
    for (server, _, decisions) in servers(shared) {
        let Some((curve, made)) = decisions.curve() else { continue };
        let age = Instant::now().saturating_duration_since(made).as_secs();
        for line in curve.rows {
            let (tps, response) = (line.throughput_tps, line.response_s);
            let parts: [Part; 3] = [|it| it.low, |it| it.median, |it| it.high];
            let tps = parts.map(|part| tps.as_ref().map(|it| format!("{:.1}", part(it))));
            let response =
                parts.map(|part| response.as_ref().map(|it| format!("{:.3}", part(it) * 1e3)));
            let ([low, median, high], [fast, typical, slow]) = (tps, response);
            table.push(row![
                server.address.to_string(),
                line.limit.to_string(),
                low,
                median,
                high,
                fast,
                typical,
                slow,
                line.unknown.map(|why| why.to_string()),
                age,
            ]);
        }
    }
    table
}

/// Returns each server with how its limit is found and what was decided.
fn servers(shared: &Shared) -> impl Iterator<Item = (&Server, &Control, &Decisions)> {
    shared.servers.iter().map(|it| (&*it.server, &it.control, &*it.server.decisions))
}

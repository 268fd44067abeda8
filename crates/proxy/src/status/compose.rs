//! The document of a moment, made of what the proxy knows.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use tidegate_control::{CurveInterval, CurveRow, WhatIfCurve};
use tidegate_gate::{ClassTotals, Classes, DurationTotals, RefusalReason, Snapshot};

use super::track::{rounded, unix_ms};
use super::{
    ClassStatus, ClientsStatus, ConnectionsStatus, ControlStatus, Cursor, CurvePoint, CurveStatus,
    ExpectedBand, GoalEntry, LimitReason, PermitHolder, PermitsStatus, ProposalStatus, Refusal,
    STATUS_VERSION, ServerStatus, Status, WaitingClient,
};
use crate::capacity::Bound;
use crate::commands::Hold;
use crate::control_thread::ControlledServer;
use crate::inventory::{BusyClients, ClientActivity, ClientRow};
use crate::login::LoginFailure;
use crate::metrics::{MetricsSource, WorkerCounters};
use crate::shared::Shared;

/// Clients with a permit, and clients that wait, that are listed of each server.
pub(crate) const LISTED_MAX: usize = 40;

fn class_name(classes: &Classes, row: &ClientRow) -> String {
    row.class.map_or_else(String::new, |class| classes.class(class).name.to_string())
}

/// Makes documents.
#[derive(Debug)]
pub(crate) struct Composer {
    metrics: Arc<MetricsSource>,
    started: Instant,
}

/// Who holds permits and who waits, by server.
#[derive(Clone, Debug, Default)]
pub(crate) struct BusyReport {
    pub(crate) servers: Vec<BusyClients>,
    /// Event loops that have not answered.
    pub(crate) missing: usize,
}

impl BusyReport {
    /// Adds what another event loop says.
    pub(crate) fn add(&mut self, of_loop: Vec<BusyClients>) {
        for more in of_loop {
            let Some(all) = self.servers.iter_mut().find(|it| it.server == more.server) else {
                self.servers.push(more);
                continue;
            };
            all.holders.extend(more.holders);
            all.waiters.extend(more.waiters);
            all.holders_total += more.holders_total;
            all.waiters_total += more.waiters_total;
        }
    }
}

/// Adds history, decisions and measurements, as far as they are new since `cursors`. Returns up to
/// where they go.
pub(crate) fn add_tracked(
    status: &mut Status,
    shared: &Shared,
    cursors: Option<&[Cursor]>,
    now: Instant,
) -> Vec<Cursor> {
    status.is_complete = cursors.is_none();
    let mut reached = Vec::new();
    for (of, shown) in shared.servers.iter().zip(&mut status.servers) {
        let index = of.server.index;
        let known = cursors.map(|all| {
            all.iter().find(|it| it.server == index).copied().unwrap_or(Cursor::start(index))
        });
        let tracked = of.server.track.since(known, index, now);
        (shown.history, shown.decisions) = (tracked.seconds, tracked.decisions);
        shown.measurements = tracked.measurements;
        reached.push(tracked.cursor);
    }
    reached
}

impl Composer {
    pub(crate) fn new(metrics: Arc<MetricsSource>) -> Composer {
        Composer { metrics, started: Instant::now() }
    }

    /// Returns the document of this moment, without history and decisions.
    pub(crate) fn compose(&self, shared: &Shared, busy: &BusyReport, now: Instant) -> Status {
        let wall_clock = SystemTime::now();
        let failure = self.metrics.health().failure().map(|failure| failure.to_string());
        let state = match &failure {
            Some(_) => "failed",
            None if self.metrics.is_shutting_down() => "shutting_down",
            None if self.metrics.is_draining() => "draining",
            None => "serving",
        };
        let workers = self.metrics.workers();
        let sum = |of: fn(&WorkerCounters) -> u64| workers.iter().map(|it| of(it)).sum();
        let clients_max = shared.accounts.clients.occupancy(&Bound::All).map(|it| it.max);
        Status {
            version: STATUS_VERSION,
            tidegate: env!("CARGO_PKG_VERSION").to_owned(),
            at: humantime::format_rfc3339_millis(wall_clock).to_string(),
            at_ms: unix_ms(wall_clock),
            uptime_s: rounded(now.saturating_duration_since(self.started).as_secs_f64()),
            state: state.to_owned(),
            failure,
            is_complete: true,
            takes_orders: shared.admin_token.is_some(),
            hold: hold_name(shared.commands.hold_of_all()).to_owned(),
            clients: ClientsStatus {
                connected: sum(|it| it.clients.load(Ordering::Relaxed)),
                max: clients_max.filter(|max| *max < u32::MAX).map(u64::from),
            },
            connections: ConnectionsStatus {
                open: sum(|it| it.upstreams_open.load(Ordering::Relaxed)),
                busy: sum(|it| it.upstreams_busy.load(Ordering::Relaxed)),
            },
            missing_event_loops: busy.missing,
            refusals: self.refused_logins(),
            servers: shared.servers.iter().map(|it| server_status(shared, it, busy, now)).collect(),
        }
    }

    fn refused_logins(&self) -> Vec<Refusal> {
        let workers = self.metrics.workers();
        let failures = LoginFailure::ALL.iter().enumerate().map(|(index, failure)| {
            let of = |it: &Arc<WorkerCounters>| it.login_failures[index].load(Ordering::Relaxed);
            refusal(failure.label(), failure.sentence(), workers.iter().map(of).sum())
        });
        let count = |of: fn(&WorkerCounters) -> u64| workers.iter().map(|it| of(it)).sum();
        let others = [
            refusal(
                "too_many_clients",
                "There are as many clients as may be.",
                count(|it| it.clients_refused.load(Ordering::Relaxed)),
            ),
            refusal(
                "server_unreachable",
                "The server could not be reached for longer than timeouts.server_down.",
                count(|it| it.transactions_given_up.load(Ordering::Relaxed)),
            ),
        ];
        failures.chain(others).filter(|refusal| refusal.count > 0).collect()
    }
}

fn server_status(
    shared: &Shared,
    of: &ControlledServer,
    busy: &BusyReport,
    now: Instant,
) -> ServerStatus {
    let ControlledServer { server, control, samples, .. } = of;
    let snapshot = server.gate.snapshot();
    let entries = shared.entries.iter().filter(|entry| Arc::ptr_eq(&entry.server, server));
    let databases: Vec<String> = entries.map(|it| it.database.key().to_owned()).collect();
    let is_paused = |name: &&String| shared.commands.of(name).hold == Hold::Paused;
    let curve = server.decisions.curve();
    let busy = busy.servers.iter().find(|it| it.server == server.index);
    let (holders, waiters) =
        busy.map(|busy| listed(&server.gate.classes(), busy, now)).unwrap_or_default();
    let bounds = control.setting.bounds;
    let bottleneck = samples.as_ref().and_then(|samples| samples.watched(now).bottleneck);
    ServerStatus {
        server: of.name.clone(),
        paused: databases.iter().filter(is_paused).cloned().collect(),
        databases,
        is_reachable: !server.hosts.is_down(),
        outage: server.hosts.outage().map(|outage| outage.last.text),
        limit: snapshot.limit.get(),
        limit_min: bounds.min().get(),
        limit_max: bounds.max().get(),
        control: control_status(shared, of),
        why: server.track.last().map(|last| LimitReason {
            controller: last.controller,
            rule: last.rule,
            sentence: last.sentence,
        }),
        outlook: outlook(curve.as_ref().map(|(curve, _)| curve), snapshot.limit.get()),
        bottleneck: bottleneck.map(|it| it.name().to_owned()),
        permits: PermitsStatus {
            out: snapshot.outstanding,
            counted: snapshot.active(),
            idle: snapshot.idle,
            discounted: snapshot.discounted,
        },
        waiting: snapshot.waiting as u64,
        refusals: refused_transactions(&snapshot),
        classes: classes(&server.gate.classes(), &snapshot),
        measurements: Vec::new(),
        curve: curve.map(|(curve, made)| shown_curve(&curve, made, now)),
        history: Vec::new(),
        decisions: Vec::new(),
        holders,
        holders_total: busy.map_or(0, |busy| busy.holders_total.into()),
        waiters,
        waiters_total: busy.map_or(0, |busy| busy.waiters_total.into()),
    }
}

fn control_status(shared: &Shared, of: &ControlledServer) -> ControlStatus {
    let (configured, decisions) = (&of.control, &of.server.decisions);
    let order = shared.commands.limit_order(&of.server.address);
    let in_force = order.control(configured, configured.setting.start);
    let goal = in_force.keep.zip(decisions.goal());
    ControlStatus {
        configured: configured.choice().to_string(),
        in_force: in_force.choice().to_string(),
        order: order.name().to_owned(),
        keep: goal.map(|(keep, status)| GoalEntry {
            goal: keep.to_string(),
            is_met: status.is_met,
            ceiling: status.ceiling.get(),
            seen: status.seen.to_string(),
        }),
        proposal: decisions.proposal().map(|proposal| ProposalStatus {
            controller: proposal.algorithm.to_owned(),
            limit: proposal.limit.get(),
            sentence: proposal.reason.to_string(),
            gain: proposal.gain.to_string(),
            best: proposal.best.to_string(),
        }),
    }
}

fn hold_name(hold: Hold) -> &'static str {
    match hold {
        Hold::None => "none",
        Hold::Paused => "paused",
        Hold::Suspended => "suspended",
    }
}

fn refusal(reason: &str, sentence: &str, count: u64) -> Refusal {
    Refusal { reason: reason.to_owned(), sentence: sentence.to_owned(), count }
}

fn refused_transactions(snapshot: &Snapshot) -> Vec<Refusal> {
    let sum = |of: fn(&ClassTotals) -> u64| snapshot.classes.iter().map(of).sum();
    let all = [
        (
            "queue_full",
            "As many transactions waited as may (waiting_max).",
            sum(|it| it.refused[RefusalReason::QueueFull as usize]),
        ),
        (
            "class_queue_full",
            "As many transactions of its class waited as may (the class's waiting_max).",
            sum(|it| it.refused[RefusalReason::ClassQueueFull as usize]),
        ),
        (
            "late",
            "It could not be done by its deadline.",
            sum(|it| it.refused[RefusalReason::Late as usize] + it.late),
        ),
        ("queue_timeout", "It waited longer than timeouts.queue.", sum(|it| it.expired)),
        ("withdrawn", "The client cancelled it or left while it waited.", snapshot.withdrawn),
    ];
    all.into_iter().map(|(reason, sentence, count)| refusal(reason, sentence, count)).collect()
}

fn classes(classes: &Classes, snapshot: &Snapshot) -> Vec<ClassStatus> {
    let mean_ms = |durations: &DurationTotals| {
        let count = durations.count();
        (count > 0).then(|| rounded(durations.sum_s() / count as f64 * 1e3))
    };
    let classes = classes.iter().zip(&snapshot.classes);
    let status = classes.map(|((_, class), totals)| ClassStatus {
        class: class.name.to_string(),
        completed: totals.completions,
        failed: totals.failures,
        queue_ms: mean_ms(&totals.in_queue),
        database_ms: mean_ms(&totals.in_database),
    });
    status.collect()
}

/// Returns who holds permits and who waits, the longest first.
fn listed(
    classes: &Classes,
    busy: &BusyClients,
    now: Instant,
) -> (Vec<PermitHolder>, Vec<WaitingClient>) {
    let ms = |since: Instant| rounded(now.saturating_duration_since(since).as_secs_f64() * 1e3);
    let mut holders: Vec<&ClientRow> = busy.holders.iter().collect();
    holders.sort_by_key(|row| row.permit_since);
    let holders = holders.into_iter().take(LISTED_MAX).map(|row| PermitHolder {
        client_id: row.id,
        class: class_name(classes, row),
        user: row.user.clone(),
        database: row.database.clone(),
        application: row.application_name.clone(),
        state: match row.activity {
            ClientActivity::AwaitingConnection => "awaiting_connection",
            ClientActivity::IdleInTransaction => "idle_in_transaction",
            _ => "running",
        }
        .to_owned(),
        held_ms: row.permit_since.map_or(0.0, ms),
        idle_ms: row.idle_since.map(ms),
    });
    let mut waiters: Vec<&ClientRow> = busy.waiters.iter().collect();
    waiters.sort_by_key(|row| row.asked_at);
    let waiters = waiters.into_iter().take(LISTED_MAX).map(|row| WaitingClient {
        client_id: row.id,
        class: class_name(classes, row),
        user: row.user.clone(),
        database: row.database.clone(),
        application: row.application_name.clone(),
        waits_for: match row.activity {
            ClientActivity::Paused => "resume",
            _ => "permit",
        }
        .to_owned(),
        waited_ms: ms(row.asked_at),
    });
    (holders.collect(), waiters.collect())
}

fn shown_curve(curve: &WhatIfCurve, made: Instant, now: Instant) -> CurveStatus {
    let band = |it: CurveInterval, unit: f64| ExpectedBand {
        low: rounded(it.low * unit),
        median: rounded(it.median * unit),
        high: rounded(it.high * unit),
    };
    let row = |row: &CurveRow| CurvePoint {
        limit: row.limit.get(),
        tps: row.throughput_tps.map(|it| band(it, 1.0)),
        response_ms: row.response_s.map(|it| band(it, 1e3)),
        unknown: row.unknown.map(|why| why.to_string()),
    };
    let age: Duration = now.saturating_duration_since(made);
    CurveStatus {
        age_s: rounded(age.as_secs_f64()),
        present: rounded(curve.present),
        widening: rounded(curve.widening),
        rows: curve.rows.iter().map(row).collect(),
    }
}

/// Returns in words what is expected at a limit and at the best one.
fn outlook(curve: Option<&WhatIfCurve>, limit: u32) -> String {
    let known = curve.into_iter().flat_map(|curve| &curve.rows);
    let known: Vec<(u32, CurveInterval)> =
        known.filter_map(|row| Some((row.limit.get(), row.throughput_tps?))).collect();
    let Some((best, highest)) =
        known.iter().max_by(|(_, one), (_, other)| one.median.total_cmp(&other.median))
    else {
        return "Nothing is known yet of the throughput at other limits.".to_owned();
    };
    let told =
        |it: &CurveInterval| format!("{:.0} tps ({:.0} to {:.0})", it.median, it.low, it.high);
    let distance = |other: u32| {
        let ratio = f64::from(other) / f64::from(limit);
        ratio.max(1.0 / ratio)
    };
    let nearest =
        known.iter().min_by(|(one, _), (other, _)| distance(*one).total_cmp(&distance(*other)));
    // Limits of the curve are at most a third or a half apart.
    let here = nearest.filter(|(near, _)| distance(*near) < 1.3);
    match here {
        None => format!("The best limit known is {best}, with {}.", told(highest)),
        Some((_, here)) if highest.median <= here.high => {
            format!("{} are expected here, and no limit is known to be better.", told(here))
        }
        Some((_, here)) => format!(
            "{} are expected here; the best limit known is {best}, with {}.",
            told(here),
            told(highest),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_control::Mpl;

    /// The ends and the median of a throughput.
    type Told = Option<(f64, f64, f64)>;

    fn curve(rows: &[(u32, Told)]) -> WhatIfCurve {
        let row = |&(limit, tps): &(u32, Told)| CurveRow {
            limit: Mpl::at_least_one(limit),
            throughput_tps: tps.map(|(low, median, high)| CurveInterval { low, median, high }),
            response_s: None,
            unknown: None,
        };
        let rows = rows.iter().map(row).collect();
        WhatIfCurve { at_s: 0.0, present: 9.0, measurements: 3, widening: 1.0, rows }
    }

    #[test]
    fn the_outlook_says_what_is_known_and_no_more() {
        assert!(outlook(None, 4).starts_with("Nothing is known"));
        assert!(outlook(Some(&curve(&[(4, None)])), 4).starts_with("Nothing is known"));
        let flat = curve(&[(4, Some((90.0, 100.0, 110.0))), (8, Some((95.0, 105.0, 115.0)))]);
        let here = "100 tps (90 to 110) are expected here, and no limit is known to be better.";
        assert_eq!(outlook(Some(&flat), 4), here);
        let steep = curve(&[(4, Some((90.0, 100.0, 110.0))), (8, Some((190.0, 200.0, 210.0)))]);
        let better = "100 tps (90 to 110) are expected here; the best limit known is 8, with 200 \
                      tps (190 to 210).";
        assert_eq!(outlook(Some(&steep), 4), better);
        let far = "The best limit known is 8, with 200 tps (190 to 210).";
        assert_eq!(outlook(Some(&steep), 100), far);
    }
}

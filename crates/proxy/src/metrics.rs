//! What the proxy tells about itself, and its text form for Prometheus.
//!
//! Nothing is recorded here but the workers' counters: limits, queues and durations are read from
//! the gates when somebody asks. A metrics library would be a second copy of all this, filled at
//! every request only to be written out once, so the text format (version 0.0.4) is written
//! directly.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tidegate_control::{BelievedBest, GoalStatus, Proposal, Reason, WhatIfCurve};
use tidegate_gate::journal::BelievedGain;
use tidegate_gate::{
    ClassName, ClassTotals, Classes, DurationTotals, Gate, RefusalReason, Snapshot,
};

use crate::accounts::Accounts;
use crate::control_thread::ControlledServer;
use crate::health::Health;
use crate::hosts::Hosts;
use crate::login::LoginFailure;
use crate::watch::ServerSamples;

mod connections;
mod curve;
mod databases;
mod reached;
mod session_state;
mod watched;

pub(crate) use connections::CountedConnections;
use databases::DatabaseRegistry;
pub(crate) use databases::DatabaseTimes;
use session_state::KindCounters;

/// Upper bounds of the histograms' buckets, microseconds.
const BOUNDS_US: [u64; 16] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 10_000_000, 60_000_000,
];

/// A number of every event loop on the page, summed over them.
type WorkerMetric = (&'static str, Kind, &'static str, fn(&WorkerCounters) -> &AtomicU64);

/// Declares the counters of an event loop, each with its metric.
macro_rules! worker_counters {
    ($($field:ident: $kind:ident, $name:literal, $help:literal;)*) => {
        /// What one event loop counts. Only that loop changes them, so a cache line is never
        /// fought over.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct WorkerCounters {
            $(#[doc = $help] pub $field: AtomicU64,)*
            /// What transactions took, by database.
            pub(crate) databases: DatabaseRegistry,
            /// Turns of the loop: it stands still if they do.
            pub(crate) turns: AtomicU64,
            /// Logins refused, by reason, in the order of [`LoginFailure::ALL`].
            pub(crate) login_failures: [AtomicU64; LoginFailure::ALL.len()],
            /// Times that session state of each kind pinned a client.
            pub(crate) session_state_pinned: KindCounters,
            /// Times that session state of each kind was removed after its transaction.
            pub(crate) session_state_removed: KindCounters,
            /// Times that a statement was refused because of each kind.
            pub(crate) session_state_refused: KindCounters,
        }

        const WORKER_METRICS: &[WorkerMetric] =
            &[$(($name, Kind::$kind, $help, |worker| &worker.$field),)*];
    };
}

worker_counters! {
    clients: Gauge, "tidegate_clients",
        "Clients connected.";
    upstreams_open: Gauge, "tidegate_upstreams_open",
        "Upstream connections, idle, busy or being established.";
    upstreams_idle: Gauge, "tidegate_upstreams_idle",
        "Upstream connections that no client holds.";
    upstreams_busy: Gauge, "tidegate_upstreams_busy",
        "Upstream connections that a client holds.";
    connections_accepted: Counter, "tidegate_connections_accepted_total",
        "Client connections accepted.";
    clients_refused: Counter, "tidegate_clients_refused_total",
        "Clients refused because there are as many as may be.";
    tls_failures: Counter, "tidegate_tls_failures_total",
        "Clients whose TLS handshake or session failed.";
    protocol_errors: Counter, "tidegate_protocol_errors_total",
        "Client connections closed because of what they sent.";
    upstream_connects: Counter, "tidegate_upstream_connects_total",
        "Upstream connections established.";
    upstream_connect_failures: Counter, "tidegate_upstream_connect_failures_total",
        "Upstream connections that could not be established.";
    transactions_held: Gauge, "tidegate_transactions_held",
        "Transactions with a permit that have sent nothing and wait for an upstream connection.";
    logins_held: Gauge, "tidegate_logins_held",
        "Clients whose login waits for an upstream connection.";
    transactions_put_back: Counter, "tidegate_transactions_put_back_total",
        "Transactions that got another upstream connection: theirs died before they sent anything.";
    transactions_given_up: Counter, "tidegate_transactions_given_up_total",
        "Transactions and logins that failed because the server could not be reached for too long.";
    health_checks: Counter, "tidegate_health_checks_total",
        "Checks of upstream connections that had not been used for long.";
    health_check_failures: Counter, "tidegate_health_check_failures_total",
        "Checks of upstream connections that were not answered.";
    cancel_requests: Counter, "tidegate_cancel_requests_total",
        "Cancel requests received.";
    cancel_requests_forwarded: Counter, "tidegate_cancel_requests_forwarded_total",
        "Cancel requests forwarded to other instances.";
    clients_lost: Counter, "tidegate_clients_lost_total",
        "Clients that vanished inside a transaction.";
    clients_pinned: Gauge, "tidegate_clients_pinned",
        "Clients of transaction mode that keep their upstream connection for its session state.";
    inspections: Counter, "tidegate_session_inspections_total",
        "Queries of the proxy's own that asked a session for its state.";
    class_choices_unknown: Counter, "tidegate_class_choices_unknown_total",
        "Classes and deadlines that clients have chosen and that there are not.";
    class_choices_forbidden: Counter, "tidegate_class_choices_forbidden_total",
        "Classes and deadlines that clients have chosen and may not.";
    statements_prepared: Counter, "tidegate_statements_prepared_total",
        "Statements the proxy prepared by itself on an upstream connection.";
    bytes_from_clients: Counter, "tidegate_bytes_from_clients_total",
        "Bytes read from clients.";
    bytes_from_servers: Counter, "tidegate_bytes_from_servers_total",
        "Bytes read from servers.";
}

/// How often each rule chose a server's limit, and why it is what it is now.
#[derive(Debug, Default)]
pub struct Decisions(Mutex<ServerDecisions>);

#[derive(Clone, Debug, Default)]
struct ServerDecisions {
    /// How often, by the rule's word.
    counts: BTreeMap<&'static str, u64>,
    /// The last decision: who made it, and why.
    last: Option<(&'static str, Reason)>,
    /// What would have been decided last by a controller that is only asked.
    proposal: Option<Proposal>,
    /// What is known of the response time to keep.
    goal: Option<GoalStatus>,
    /// What is expected at every limit, and when that was said.
    curve: Option<(WhatIfCurve, Instant)>,
}

impl Decisions {
    /// Takes one decision of `controller` into account.
    pub fn add(&self, controller: &'static str, reason: Reason) {
        let mut decided = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *decided.counts.entry(reason.kind()).or_default() += 1;
        decided.last = Some((controller, reason));
    }

    /// Takes what a controller that is only asked would have decided.
    pub fn set_proposal(&self, proposal: Proposal) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).proposal = Some(proposal);
    }

    /// Takes what is known of the response time to keep.
    pub fn set_goal(&self, goal: GoalStatus) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).goal = Some(goal);
    }

    /// Takes what is expected at every limit, said at `now`.
    pub fn set_curve(&self, curve: WhatIfCurve, now: Instant) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).curve = Some((curve, now));
    }

    /// Returns the last decision: who made it, and why.
    pub(crate) fn last(&self) -> Option<(&'static str, Reason)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).last
    }

    /// Returns what is expected at every limit, and when that was said.
    pub(crate) fn curve(&self) -> Option<(WhatIfCurve, Instant)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).curve.clone()
    }

    /// Returns what is known of the response time to keep.
    pub(crate) fn goal(&self) -> Option<GoalStatus> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).goal
    }

    /// Returns what would have been decided last by a controller that is only asked.
    pub(crate) fn proposal(&self) -> Option<Proposal> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).proposal
    }

    /// Another controller decides from now on: forgets what the one before said of itself.
    pub(crate) fn begin_anew(&self) {
        let mut decided = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (decided.proposal, decided.goal) = (None, None);
    }

    fn so_far(&self) -> ServerDecisions {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// One database server, as metrics see it.
#[derive(Clone, Debug)]
pub struct ServerMetrics {
    /// `host:port` or the socket's path.
    pub name: String,
    /// Its gate.
    pub gate: Gate,
    /// The decisions about its limit.
    pub decisions: Arc<Decisions>,
    /// What is seen of it, if it is watched.
    pub(crate) samples: Option<Arc<ServerSamples>>,
    /// Its connections.
    pub(crate) connections: Option<CountedConnections>,
    /// Its hosts.
    pub(crate) hosts: Option<Arc<Hosts>>,
    /// It is configured no more.
    pub(crate) is_retired: bool,
}

impl ServerMetrics {
    /// Returns whether it is configured, or anything is left of it.
    fn is_shown(&self) -> bool {
        let taken = self.connections.as_ref().and_then(|it| Some(it.occupancy()?.taken));
        !self.is_retired || self.gate.snapshot().outstanding > 0 || taken.unwrap_or(0) > 0
    }
}

/// Returns a server as metrics see it.
pub(crate) fn server_metrics(of: &ControlledServer, accounts: &Arc<Accounts>) -> ServerMetrics {
    let server = &of.server;
    let connections = CountedConnections { accounts: Arc::clone(accounts), server: server.index };
    ServerMetrics {
        name: of.name.clone(),
        gate: server.gate.clone(),
        decisions: Arc::clone(&server.decisions),
        samples: of.samples.clone(),
        connections: Some(connections),
        hosts: Some(Arc::clone(&server.hosts)),
        is_retired: of.is_retired,
    }
}

/// Where the admin interface finds what it shows.
#[derive(Debug)]
pub struct MetricsSource {
    servers: Mutex<Arc<Vec<ServerMetrics>>>,
    workers: Vec<Arc<WorkerCounters>>,
    draining: AtomicBool,
    shutting_down: AtomicBool,
    health: Arc<Health>,
}

impl MetricsSource {
    /// Returns the source of a proxy that is serving.
    #[must_use]
    pub fn new(servers: Vec<ServerMetrics>, workers: Vec<Arc<WorkerCounters>>) -> MetricsSource {
        MetricsSource {
            servers: Mutex::new(Arc::new(servers)),
            workers,
            draining: AtomicBool::new(false),
            shutting_down: AtomicBool::new(false),
            health: Arc::default(),
        }
    }

    /// Shows other servers from now on: the configuration has changed.
    pub(crate) fn set_servers(&self, servers: Vec<ServerMetrics>) {
        *self.servers.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(servers);
    }

    /// Returns the servers that are configured, and former ones of which something is left.
    fn servers(&self) -> Vec<ServerMetrics> {
        let all = Arc::clone(&self.servers.lock().unwrap_or_else(PoisonError::into_inner));
        all.iter().filter(|server| server.is_shown()).cloned().collect()
    }

    /// From now on no new clients should come: the proxy is about to stop.
    pub fn begin_drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// From now on the proxy is in its grace time: it finishes what runs and takes nothing new.
    pub fn begin_shutdown(&self) {
        self.shutting_down.store(true, Ordering::Relaxed);
    }

    /// Returns whether [`MetricsSource::begin_shutdown`] was called.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        self.shutting_down.load(Ordering::Relaxed)
    }

    /// Returns whether [`MetricsSource::begin_drain`] was called.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Returns why no new clients should come, a line for each reason; none if they may. Servers
    /// that cannot be reached are a reason unless `is_without_servers`.
    pub(crate) fn reasons_not_ready(&self, is_without_servers: bool) -> Vec<String> {
        let mut reasons = Vec::new();
        reasons.extend(self.health.failure().map(|failure| failure.to_string()));
        if self.is_shutting_down() {
            reasons.push("shutting down".to_owned());
        } else if self.is_draining() {
            reasons.push("draining: about to shut down".to_owned());
        }
        let servers = self.servers();
        let configured = servers.iter().filter(|server| !server.is_retired);
        let hosts = configured.filter_map(|server| server.hosts.as_ref());
        for hosts in hosts.filter(|hosts| !is_without_servers && hosts.is_down()) {
            let error = hosts.outage().map_or_else(String::new, |it| format!(": {}", it.last.text));
            reasons.push(format!("the server at {} cannot be reached{error}", hosts.list()));
        }
        reasons
    }

    /// Returns where the proxy's threads report that they have failed.
    pub(crate) fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// Returns the counters of every event loop.
    pub(crate) fn workers(&self) -> &[Arc<WorkerCounters>] {
        &self.workers
    }

    /// All metrics in Prometheus' text format.
    #[must_use]
    pub fn page(&self) -> String {
        let mut page = Page(String::with_capacity(16 * 1024));
        let servers = &*self.servers();
        gates(&mut page, servers);
        decisions(&mut page, servers);
        connections::write(&mut page, servers);
        reached::write(&mut page, servers);
        watched::write(&mut page, servers);
        for &(name, kind, help, of) in WORKER_METRICS {
            page.family(name, kind, help);
            let sum: u64 =
                self.workers.iter().map(|worker| of(worker).load(Ordering::Relaxed)).sum();
            page.sample(name, &[], sum);
        }
        self.login_failures(&mut page);
        session_state::write(&mut page, &self.workers);
        databases::write(&mut page, &self.workers, &class_names(servers));
        process(&mut page);
        page.0
    }

    fn login_failures(&self, page: &mut Page) {
        let name = "tidegate_login_failures_total";
        page.family(name, Kind::Counter, "Logins refused, by reason.");
        for (index, failure) in LoginFailure::ALL.iter().enumerate() {
            let of =
                |worker: &Arc<WorkerCounters>| worker.login_failures[index].load(Ordering::Relaxed);
            let sum: u64 = self.workers.iter().map(of).sum();
            page.sample(name, &[("reason", failure.label())], sum);
        }
    }
}

fn gates(page: &mut Page, servers: &[ServerMetrics]) {
    let seen = |server: &ServerMetrics| {
        let classes = server.gate.classes();
        let names = classes.iter().map(|(_, class)| class.name).collect();
        (server.name.clone(), names, server.gate.snapshot())
    };
    let servers: Vec<SeenGate> = servers.iter().map(seen).collect();
    for (name, kind, help, of) in GATE_METRICS {
        page.family(name, kind, help);
        for (server, _, snapshot) in &servers {
            page.sample(name, &[("server", server)], of(snapshot));
        }
    }
    for (name, kind, help, of) in CLASS_METRICS {
        page.family(name, kind, help);
        for_each_class(&servers, |server, class, totals| {
            page.sample(name, &[("server", server), ("class", class)], of(totals));
        });
    }
    let name = "tidegate_class_refused_total";
    page.family(name, Kind::Counter, "Transactions that got no permit, by class and reason.");
    for_each_class(&servers, |server, class, totals| {
        let at_once = RefusalReason::ALL.map(RefusalReason::label).into_iter();
        let in_queue = [("late_in_queue", totals.late), ("queue_timeout", totals.expired)];
        for (reason, count) in at_once.zip(totals.refused).chain(in_queue) {
            let labels = [("server", server), ("class", class), ("reason", reason)];
            page.sample(name, &labels, count);
        }
    });
    let name = "tidegate_transactions_total";
    page.family(name, Kind::Counter, "Transactions that ended, by outcome.");
    for_each_class(&servers, |server, class, totals| {
        let ended = [("completed", totals.completions), ("failed", totals.failures)];
        for (outcome, count) in ended {
            let labels = [("server", server), ("class", class), ("outcome", outcome)];
            page.sample(name, &labels, count);
        }
    });
    for (name, help, of) in DURATION_METRICS {
        page.family(name, Kind::Histogram, help);
        for_each_class(&servers, |server, class, totals| {
            page.histogram(name, &[("server", server), ("class", class)], of(totals));
        });
    }
}

fn decisions(page: &mut Page, servers: &[ServerMetrics]) {
    let servers: Vec<(&str, ServerDecisions)> =
        servers.iter().map(|server| (&*server.name, server.decisions.so_far())).collect();
    let name = "tidegate_limit_decisions_total";
    page.family(name, Kind::Counter, "Decisions about the limit, by the rule that made them.");
    for (server, decided) in &servers {
        for (reason, count) in &decided.counts {
            page.sample(name, &[("server", server), ("reason", reason)], count);
        }
    }
    // The text holds numbers, so nearly every scrape shows another series. Who keeps series
    // for long drops this one when scraping, and keeps the counter, whose words are few.
    let name = "tidegate_limit_reason_info";
    page.family(name, Kind::Gauge, "Always 1; the last decision's reason is the label.");
    for (server, decided) in &servers {
        if let Some((controller, reason)) = decided.last {
            let reason = reason.to_string();
            let labels = [("server", *server), ("controller", controller), ("reason", &*reason)];
            page.sample(name, &labels, 1);
        }
    }
    let goals = servers.iter().filter_map(|(name, decided)| Some((*name, decided.goal?)));
    goal(page, &goals.collect::<Vec<(&str, GoalStatus)>>());
    let proposals = servers.iter().filter_map(|(name, decided)| Some((*name, decided.proposal?)));
    observed(page, &proposals.collect::<Vec<(&str, Proposal)>>());
    let curves = servers.iter().filter_map(|(name, decided)| {
        let (curve, at) = decided.curve.as_ref()?;
        Some((*name, curve, at.elapsed()))
    });
    curve::write(page, &curves.collect::<Vec<_>>());
}

/// What is known of response times to keep; nothing where there is none.
fn goal(page: &mut Page, goals: &[(&str, GoalStatus)]) {
    if goals.is_empty() {
        return;
    }
    let name = "tidegate_goal_met";
    page.family(name, Kind::Gauge, "1 if the response time is kept, 0 if not; absent till judged.");
    for (server, status) in goals {
        if let Some(is_met) = status.is_met {
            page.sample(name, &[("server", server)], u8::from(is_met));
        }
    }
    let name = "tidegate_goal_ceiling";
    page.family(name, Kind::Gauge, "The highest limit that the controller may choose.");
    for (server, status) in goals {
        page.sample(name, &[("server", server)], status.ceiling);
    }
    let name = "tidegate_goal_ratio";
    let help = "The mean response time, or the share that is late, over what is allowed.";
    page.family(name, Kind::Gauge, help);
    for (server, status) in goals.iter().filter(|(_, status)| status.is_met.is_some()) {
        page.sample(name, &[("server", server)], status.seen.ratio);
    }
}

/// What controllers that are only asked would have decided; nothing where none is.
fn observed(page: &mut Page, proposals: &[(&str, Proposal)]) {
    if proposals.is_empty() {
        return;
    }
    let name = "tidegate_observed_limit";
    page.family(name, Kind::Gauge, "The limit that the controller would set, which only observes.");
    for (server, Proposal { algorithm, limit, .. }) in proposals {
        page.sample(name, &[("server", server), ("controller", algorithm)], limit);
    }
    let name = "tidegate_observed_best_limit";
    page.family(name, Kind::Gauge, "The limit believed to be best; absent while none is.");
    for (server, proposal) in proposals {
        if let BelievedBest::Limit { limit } = proposal.best {
            page.sample(name, &[("server", server)], limit);
        }
    }
    for (name, help, of) in OBSERVED_METRICS {
        page.family(name, Kind::Gauge, help);
        for (server, proposal) in proposals {
            if let Some(value) = of(proposal) {
                page.sample(name, &[("server", server)], value);
            }
        }
    }
    let name = "tidegate_observed_info";
    page.family(name, Kind::Gauge, "Always 1; what would be set and what is believed, in words.");
    for (server, proposal) in proposals {
        let (reason, gain) = (proposal.reason.to_string(), proposal.gain.to_string());
        let best = proposal.best.to_string();
        let labels = [
            ("server", *server),
            ("controller", proposal.algorithm),
            ("reason", &*reason),
            ("gain", &*gain),
            ("best", &*best),
        ];
        page.sample(name, &labels, 1);
    }
}

type ObservedMetric = (&'static str, &'static str, fn(&Proposal) -> Option<f64>);

const OBSERVED_METRICS: [ObservedMetric; 6] = [
    (
        "tidegate_observed_gain",
        "Believed gain of throughput at that limit over the present; absent while not known.",
        |proposal| Some(BelievedGain::of(proposal.gain)?.share),
    ),
    ("tidegate_observed_gain_low", "Lower end of its 90 % interval.", |proposal| {
        Some(BelievedGain::of(proposal.gain)?.low)
    }),
    ("tidegate_observed_gain_high", "Upper end of its 90 % interval.", |proposal| {
        Some(BelievedGain::of(proposal.gain)?.high)
    }),
    (
        "tidegate_observed_best_gain",
        "Believed gain of throughput at the best limit over the present; absent while not known.",
        |proposal| Some(best_gain(proposal)?.share),
    ),
    ("tidegate_observed_best_gain_low", "Lower end of its 90 % interval.", |proposal| {
        Some(best_gain(proposal)?.low)
    }),
    ("tidegate_observed_best_gain_high", "Upper end of its 90 % interval.", |proposal| {
        Some(best_gain(proposal)?.high)
    }),
];

/// Returns what the best limit is believed to gain, if one is believed to be best.
fn best_gain(proposal: &Proposal) -> Option<BelievedGain> {
    let is_limit = matches!(proposal.best, BelievedBest::Limit { .. });
    BelievedGain::of(proposal.best_gain).filter(|_| is_limit)
}

type GateMetric = (&'static str, Kind, &'static str, fn(&Snapshot) -> u64);

const GATE_METRICS: [GateMetric; 11] = [
    ("tidegate_limit", Kind::Gauge, "Transactions allowed inside the database at once.", |gate| {
        gate.limit.get().into()
    }),
    ("tidegate_permits_out", Kind::Gauge, "Transactions inside the database.", |gate| {
        gate.outstanding.into()
    }),
    (
        "tidegate_permits_active",
        Kind::Gauge,
        "Transactions inside the database that count against the limit.",
        |gate| gate.active().into(),
    ),
    (
        "tidegate_permits_idle",
        Kind::Gauge,
        "Transactions whose clients are idle or that wait for a connection; they do not count.",
        |gate| gate.idle.into(),
    ),
    (
        "tidegate_permits_discounted",
        Kind::Gauge,
        "Transactions inside for far longer than usual, which do not count against the limit.",
        |gate| gate.discounted.into(),
    ),
    (
        "tidegate_lendings_total",
        Kind::Counter,
        "Times that a transaction's client was idle and its permit lent.",
        |gate| gate.lendings,
    ),
    (
        "tidegate_discounts_total",
        Kind::Counter,
        "Transactions that stopped counting against the limit.",
        |gate| gate.discounts,
    ),
    ("tidegate_waiting", Kind::Gauge, "Transactions in the queue.", |gate| gate.waiting as u64),
    (
        "tidegate_refused_total",
        Kind::Counter,
        "Transactions refused at once; tidegate_class_refused_total has the reasons.",
        |gate| gate.refused,
    ),
    (
        "tidegate_expired_total",
        Kind::Counter,
        "Transactions that waited for as long as they may, or could not be done in time any more.",
        |gate| gate.expired,
    ),
    (
        "tidegate_withdrawn_total",
        Kind::Counter,
        "Transactions cancelled or abandoned in the queue.",
        |gate| gate.withdrawn,
    ),
];

/// A gate: its server, the names of its classes, and its state.
type SeenGate = (String, Vec<ClassName>, Snapshot);

type ClassMetric = (&'static str, Kind, &'static str, fn(&ClassTotals) -> u64);

const CLASS_METRICS: [ClassMetric; 3] = [
    ("tidegate_class_waiting", Kind::Gauge, "Transactions in the queue, by class.", |class| {
        class.waiting.into()
    }),
    (
        "tidegate_class_permits",
        Kind::Gauge,
        "Transactions that count against the limit, by class.",
        |class| class.running.into(),
    ),
    (
        "tidegate_class_aged_total",
        Kind::Counter,
        "Transactions that went first because they had waited for the ageing time of their class.",
        |class| class.aged,
    ),
];

type DurationMetric = (&'static str, &'static str, fn(&ClassTotals) -> &DurationTotals);

const DURATION_METRICS: [DurationMetric; 3] = [
    ("tidegate_queue_seconds", "Time transactions waited for their permit.", |class| {
        &class.in_queue
    }),
    (
        "tidegate_database_seconds",
        "Time transactions held their permit, but for that in which it was lent.",
        |class| &class.in_database,
    ),
    (
        "tidegate_response_seconds",
        "Time from the request of a permit to the end, but for that in which it was lent.",
        |class| &class.response,
    ),
];

fn for_each_class(servers: &[SeenGate], mut write: impl FnMut(&str, &str, &ClassTotals)) {
    for (server, classes, snapshot) in servers {
        for (class, totals) in classes.iter().zip(&snapshot.classes) {
            write(server, class.as_str(), totals);
        }
    }
}

/// Returns the names of the classes, which all servers share.
fn class_names(servers: &[ServerMetrics]) -> Vec<String> {
    let classes = servers.first().map(|server| server.gate.classes());
    let names = |classes: &Classes| classes.iter().map(|(_, it)| it.name.to_string()).collect();
    classes.map_or_else(Vec::new, |classes| names(&classes))
}

fn process(page: &mut Page) {
    page.family("tidegate_build_info", Kind::Gauge, "Always 1; the version is the label.");
    page.sample("tidegate_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);

    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    let cpu = Duration::try_from(cpu).expect("processor time is not negative");
    let name = "process_cpu_seconds_total";
    page.family(name, Kind::Counter, "User and system CPU time spent, seconds.");
    page.sample(name, &[], cpu.as_secs_f64());

    if let Some(bytes) = resident_memory() {
        let name = "process_resident_memory_bytes";
        page.family(name, Kind::Gauge, "Resident memory.");
        page.sample(name, &[], bytes);
    }
}

/// This process's resident memory in bytes; `None` without `/proc`.
fn resident_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// A metrics page being written.
struct Page(String);

impl Page {
    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        self.0.write_fmt(text).expect("a String takes everything");
    }

    /// Begins a family; its samples follow before the next family begins.
    fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        self.write(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            self.0.push(if index == 0 { '{' } else { ',' });
            self.write(format_args!("{label}=\"{}\"", escaped(text)));
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        self.write(format_args!(" {value}\n"));
    }

    fn histogram(&mut self, name: &str, labels: &[(&str, &str)], totals: &DurationTotals) {
        let bucket = format!("{name}_bucket");
        for bound in BOUNDS_US.map(Duration::from_micros) {
            let le = bound.as_secs_f64().to_string();
            let labels = [labels, &[("le", &le)]].concat();
            self.sample(&bucket, &labels, totals.count_within(bound));
        }
        self.sample(&bucket, &[labels, &[("le", "+Inf")]].concat(), totals.count());
        self.sample(&format!("{name}_sum"), labels, totals.sum_s());
        self.sample(&format!("{name}_count"), labels, totals.count());
    }
}

/// Returns a label's value with `\`, `"` and line ends escaped.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests;

//! The thread that keeps every gate's limit where its controller wants it.
//!
//! It also does what must not stop an event loop: passing queue deadlines, looking after permits
//! that are out far longer than usual, looking names up again, reading changed files
//! again, writing the journal.

use std::convert::Infallible;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidegate_control::{Decision, GoalStatus, Mpl, Observation, Proposal, SplitMix64};
use tidegate_gate::journal::{Decided, Journal};
use tidegate_gate::{Adjustment, ClassGoal, DatabaseState, Governor};

use crate::commands::LimitOrder;
use crate::config::Control;
use crate::health::Health;
use crate::metrics::Decisions;
use crate::shared::Shared;
use crate::slots::ServerIndex;
use crate::status::Track;
use crate::watch::ServerSamples;
use crate::worker::OverdueWarnings;

/// How often intervals and deadlines are looked at.
const TICK: Duration = Duration::from_millis(20);

/// How often host names are looked up again, and while a server cannot be reached.
const LOOK_UP_INTERVAL: Duration = Duration::from_secs(30);
const LOOK_UP_INTERVAL_DOWN: Duration = Duration::from_secs(2);

/// Files of certificates, users and the like are looked at this often, and read again if they have
/// changed.
const RELOAD_INTERVAL: Duration = Duration::from_secs(1);

/// One server's control loop.
pub(crate) struct ControlledServer {
    pub(crate) name: String,
    pub(crate) control: Control,
    pub(crate) decisions: Arc<Decisions>,
    /// Its last minutes.
    pub(crate) track: Arc<Track>,
    /// What is seen of the server, if it is watched.
    pub(crate) samples: Option<Arc<ServerSamples>>,
}

impl ControlledServer {
    /// Returns what the server did in the interval that ends now.
    fn state(&self, interval: Duration, now: Instant) -> DatabaseState {
        self.samples
            .as_ref()
            .map_or_else(DatabaseState::default, |samples| samples.over(interval, now))
    }

    /// Returns what held the server's sessions up in an interval, if it was watched.
    fn bottleneck(&self, observation: &Observation) -> Option<&'static str> {
        let samples = self.samples.as_ref()?;
        Some(samples.bottleneck(observation.server.as_ref()?).name())
    }
}

/// The running thread; dropping it stops it.
pub(crate) struct ControlThread {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl ControlThread {
    /// Starts to control the gates of `shared.servers`, one of `regulated` for each.
    pub(crate) fn start(
        shared: Arc<Shared>,
        regulated: Vec<ControlledServer>,
        journal: Option<Journal>,
        health: Arc<Health>,
    ) -> std::io::Result<ControlThread> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let stopped = Arc::clone(&stop);
        let mut control_loop = ControlLoop::new(shared, regulated, journal);
        let thread =
            std::thread::Builder::new().name("tidegate-control".into()).spawn(move || {
                health.supervise("the control thread", || {
                    while !sleep(&stopped, TICK) {
                        control_loop.tick(Instant::now());
                    }
                    Ok::<(), Infallible>(())
                });
            })?;
        Ok(ControlThread { stop, thread: Some(thread) })
    }
}

impl Drop for ControlThread {
    fn drop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the control thread panicked");
        }
    }
}

/// Sleeps for `duration`, or until told to stop; tells which.
fn sleep(stop: &(Mutex<bool>, Condvar), duration: Duration) -> bool {
    let stopped = stop.0.lock().unwrap_or_else(PoisonError::into_inner);
    let (stopped, _) = stop
        .1
        .wait_timeout_while(stopped, duration, |stopped| !*stopped)
        .unwrap_or_else(PoisonError::into_inner);
    *stopped
}

/// Opens the journal and begins the record of every server.
pub(crate) fn begin_journal(
    path: &Path,
    regulated: &[ControlledServer],
    seed: u64,
) -> std::io::Result<Journal> {
    let mut journal = Journal::open(path)?;
    for ControlledServer { name, control, .. } in regulated {
        journal.begin(name, control, seed)?;
    }
    Ok(journal)
}

/// Logs a control interval: a change of the limit at level info, any other at level debug.
fn log_interval(
    is_change: bool,
    regulated: &ControlledServer,
    observation: &Observation,
    decision: &Decision,
) {
    macro_rules! log {
        ($level:ident, $message:literal) => {
            tracing::$level!(
                server = regulated.name,
                limit = decision.limit.get(),
                reason = %decision.reason,
                tps = format_args!("{:.0}", observation.throughput_tps()),
                queue_ms = format_args!("{:.2}", observation.in_queue.mean_s * 1e3),
                database_ms = format_args!("{:.2}", observation.in_database.mean_s * 1e3),
                concurrency = observation.concurrency,
                bottleneck = regulated.bottleneck(observation),
                $message
            )
        };
    }
    if is_change {
        log!(info, "limit changed");
    } else {
        log!(debug, "interval");
    }
}

/// Logs what a controller would do that is only asked: a change at level info, any other at level
/// debug.
fn log_proposal(is_change: bool, server: &str, observation: &Observation, proposal: &Proposal) {
    macro_rules! log {
        ($level:ident, $message:literal) => {
            tracing::$level!(
                server,
                controller = proposal.algorithm,
                limit = observation.limit.get(),
                would_be_limit = proposal.limit.get(),
                reason = %proposal.reason,
                gain = %proposal.gain,
                best = %proposal.best,
                tps = format_args!("{:.0}", observation.throughput_tps()),
                running = format_args!("{:.1}", observation.running_mean),
                $message
            )
        };
    }
    if is_change {
        log!(info, "would-be limit changed");
    } else {
        log!(debug, "would-be limit");
    }
}

/// Warns once when no limit keeps a goal, and says when it is kept again.
fn log_goal(server: &str, keep: ClassGoal, before: Option<GoalStatus>, now: GoalStatus) {
    let was_impossible = before.is_some_and(|before| before.is_impossible);
    if now.is_impossible && !was_impossible {
        let ceiling = now.ceiling.get();
        tracing::warn!(
            server,
            %keep,
            ceiling,
            seen = %now.seen,
            "no limit keeps the response time; the limit stays where it is nearest to it. Allow a \
             longer one, or give the database less to do for this class"
        );
    } else if was_impossible && !now.is_impossible {
        tracing::info!(server, %keep, seen = %now.seen, "the response time is kept again");
    }
}

struct ControlLoop {
    shared: Arc<Shared>,
    regulated: Vec<ControlledServer>,
    governors: Vec<Governor>,
    /// The limits last decided, to tell a change from a confirmation.
    limits: Vec<Option<u32>>,
    /// The orders that are obeyed.
    orders: Vec<LimitOrder>,
    /// The limits last proposed by controllers that are only asked.
    proposed: Vec<Option<u32>>,
    /// What was known last of the response times to keep.
    goals: Vec<Option<GoalStatus>>,
    warnings: Vec<OverdueWarnings>,
    journal: Option<Journal>,
    started: Instant,
    looked_up: Arc<AtomicBool>,
    looked_up_at: Instant,
    next_look_up: Instant,
    next_reload: Instant,
}

impl ControlLoop {
    fn new(
        shared: Arc<Shared>,
        regulated: Vec<ControlledServer>,
        journal: Option<Journal>,
    ) -> ControlLoop {
        let mut seeds = SplitMix64::new(shared.config.seed);
        let governors = shared
            .servers
            .iter()
            .zip(&regulated)
            .map(|(server, regulated)| {
                let draws = SplitMix64::new(seeds.next_bits());
                let controller = regulated.control.controller();
                let rule = controller.interval_rule();
                Governor::new(server.gate.clone(), controller, rule, draws)
            })
            .collect();
        let warnings =
            (0..shared.servers.len()).map(ServerIndex).map(OverdueWarnings::new).collect();
        let started = Instant::now();
        let limits =
            regulated.iter().map(|one| Some(one.control.controller().start().get())).collect();
        let orders = vec![LimitOrder::default(); regulated.len()];
        let proposed = vec![None; regulated.len()];
        let goals = vec![None; regulated.len()];
        ControlLoop {
            shared,
            regulated,
            governors,
            limits,
            orders,
            proposed,
            goals,
            warnings,
            journal,
            started,
            looked_up: Arc::new(AtomicBool::new(true)),
            looked_up_at: started,
            next_look_up: started + LOOK_UP_INTERVAL,
            next_reload: started + RELOAD_INTERVAL,
        }
    }

    fn tick(&mut self, now: Instant) {
        for (server, warnings) in self.shared.servers.iter().zip(&mut self.warnings) {
            server.gate.expire(now);
            warnings.give(&server.gate.discount(now), &self.shared, now);
        }
        for index in 0..self.governors.len() {
            self.obey_limit_order(index, now);
            let regulated = &self.regulated[index];
            let state = |interval| regulated.state(interval, now);
            if let Some(adjustment) = self.governors[index].tick_with(now, state) {
                self.report(index, adjustment, now);
            }
            let gate = &self.shared.servers[index].gate;
            let limit = self.limits[index].unwrap_or_default();
            self.regulated[index].track.pass(|| gate.progress(now).0, limit, now);
        }
        if now >= self.next_reload {
            self.next_reload = now + RELOAD_INTERVAL;
            self.shared.reload_files();
        }
        // A name may mean another host then.
        if self.shared.servers.iter().any(|server| server.hosts.is_down()) {
            self.next_look_up = self.next_look_up.min(self.looked_up_at + LOOK_UP_INTERVAL_DOWN);
        }
        if now >= self.next_look_up {
            self.looked_up_at = now;
            self.next_look_up = now + LOOK_UP_INTERVAL;
            self.look_up();
        }
    }

    /// Lets another controller decide if an administrator has ordered so.
    fn obey_limit_order(&mut self, index: usize, now: Instant) {
        let server = &self.shared.servers[index];
        let order = self.shared.commands.limit_order(&server.address);
        if std::mem::replace(&mut self.orders[index], order) == order {
            return;
        }
        let start = Mpl::at_least_one(self.limits[index].unwrap_or_default());
        let configured = self.shared.control_of(ServerIndex(index));
        let control = order.control(&configured, start);
        let regulated = &mut self.regulated[index];
        regulated.control = control;
        regulated.decisions.begin_anew();
        self.governors[index].replace(&control, now);
        self.limits[index] = Some(control.controller().start().get());
        (self.proposed[index], self.goals[index]) = (None, None);
        let choice = control.choice();
        tracing::info!(server = regulated.name, control = %choice, "the limit is controlled anew");
        if let Some(journal) = &mut self.journal
            && let Err(error) = journal.begin(&regulated.name, &control, self.shared.config.seed)
        {
            tracing::error!(%error, "cannot write the journal; it ends here");
            self.journal = None;
        }
    }

    fn report(&mut self, index: usize, adjustment: Adjustment, now: Instant) {
        let Adjustment { observation, decision, proposal, goal, curve, .. } = &adjustment;
        let controller = self.governors[index].controller_name();
        let regulated = &self.regulated[index];
        regulated.decisions.add(controller, decision.reason);
        let measurements = || self.governors[index].measurements(now);
        regulated.track.add(controller, observation, decision, measurements, now);
        let limit = decision.limit.get();
        let is_change = self.limits[index].replace(limit) != Some(limit);
        log_interval(is_change, regulated, observation, decision);
        if let Some(proposal) = proposal {
            regulated.decisions.set_proposal(*proposal);
            let limit = proposal.limit.get();
            let is_change = self.proposed[index].replace(limit) != Some(limit);
            log_proposal(is_change, &regulated.name, observation, proposal);
        }
        if let (Some(status), Some(keep)) = (goal, regulated.control.keep) {
            regulated.decisions.set_goal(*status);
            let before = self.goals[index].replace(*status);
            log_goal(&regulated.name, keep, before, *status);
        }
        if let Some(curve) = curve {
            regulated.decisions.set_curve(curve.clone(), now);
        }
        let Some(journal) = &mut self.journal else {
            return;
        };
        let at_s = now.saturating_duration_since(self.started).as_secs_f64();
        let decided = Decided::new(at_s, &regulated.name, controller, adjustment);
        if let Err(error) = journal.add(&decided) {
            tracing::error!(%error, "cannot write the journal; it ends here");
            self.journal = None;
        }
    }

    /// Looks the servers' names up again, on a thread of its own: a resolver may take its time.
    fn look_up(&self) {
        if !self.shared.servers.iter().any(|server| server.hosts.is_named())
            || !self.looked_up.swap(false, Ordering::SeqCst)
        {
            return;
        }
        let (shared, done) = (Arc::clone(&self.shared), Arc::clone(&self.looked_up));
        let looked_up =
            std::thread::Builder::new().name("tidegate-names".into()).spawn(move || {
                for server in shared.servers.iter().filter(|server| server.hosts.is_named()) {
                    server.resolve();
                }
                done.store(true, Ordering::SeqCst);
            });
        if let Err(error) = looked_up {
            tracing::warn!(%error, "cannot start a thread to look names up");
            self.looked_up.store(true, Ordering::SeqCst);
        }
    }
}

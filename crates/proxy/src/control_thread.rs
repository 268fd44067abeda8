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

use tidegate_control::{Decision, GoalStatus, Observation, Proposal, SplitMix64};
use tidegate_gate::journal::{Decided, Journal};
use tidegate_gate::{Adjustment, DatabaseState, Governor, KeptGoal};

use crate::commands::LimitOrder;
use crate::config::Control;
use crate::health::Health;
use crate::shared::{InForce, Server, Shared};
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

/// A server, and how its limit is found.
#[derive(Clone, Debug)]
pub(crate) struct ControlledServer {
    pub(crate) name: String,
    pub(crate) server: Arc<Server>,
    pub(crate) control: Control,
    /// What is seen of the server, if it is watched.
    pub(crate) samples: Option<Arc<ServerSamples>>,
    /// It is configured no more, and something is left of it.
    pub(crate) is_retired: bool,
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
    /// Starts to control the gates of the servers that are in use.
    pub(crate) fn start(
        in_force: Arc<InForce>,
        journal: Option<Journal>,
        health: Arc<Health>,
    ) -> std::io::Result<ControlThread> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let stopped = Arc::clone(&stop);
        let mut control_loop = ControlLoop::new(in_force, journal);
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
pub(crate) fn begin_journal(path: &Path, shared: &Shared) -> std::io::Result<Journal> {
    let mut journal = Journal::open(path)?;
    for server in &shared.servers {
        let ControlledServer { name, control, .. } = at_its_beginning(server, shared);
        journal.begin(&name, &control, shared.config.seed)?;
    }
    Ok(journal)
}

/// Returns a server whose controller begins with the limit in force, where another process has
/// found that.
fn at_its_beginning(server: &ControlledServer, shared: &Shared) -> ControlledServer {
    let mut server = server.clone();
    if shared.handover.is_arriving() {
        let setting = &mut server.control.setting;
        setting.start = setting.bounds.clamp(server.server.gate.snapshot().limit);
    }
    server
}

/// Logs a control interval: a change of the limit at level info, any other, and a limit that is
/// only tried, at level debug.
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
fn log_goal(server: &str, keep: KeptGoal, before: Option<GoalStatus>, now: GoalStatus) {
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

/// One server's control loop.
struct ServerLoop {
    regulated: ControlledServer,
    /// Who was ordered to choose the limit.
    order: LimitOrder,
    /// How it is found by that.
    in_force: Control,
    governor: Governor,
    /// The limit last logged as a change, to tell one from a confirmation.
    limit: Option<u32>,
    /// The limit last proposed by a controller that is only asked.
    proposed: Option<u32>,
    /// What was known last of the response time to keep.
    goal: Option<GoalStatus>,
    warnings: OverdueWarnings,
}

impl ServerLoop {
    /// Begins with a controller of its own, whose limit is in force at once.
    fn new(regulated: ControlledServer, seed: u64) -> ServerLoop {
        let controller = regulated.control.controller();
        let (start, rule) = (controller.start(), controller.interval_rule());
        let gate = regulated.server.gate.clone();
        gate.set_limit(start, Instant::now());
        ServerLoop {
            governor: Governor::new(gate, controller, rule, SplitMix64::new(seed)),
            limit: Some(start.get()),
            proposed: None,
            goal: None,
            warnings: OverdueWarnings::new(regulated.server.index),
            order: LimitOrder::Configured,
            in_force: regulated.control,
            regulated,
        }
    }
}

struct ControlLoop {
    in_force: Arc<InForce>,
    shared: Arc<Shared>,
    servers: Vec<ServerLoop>,
    seeds: SplitMix64,
    journal: Option<Journal>,
    started: Instant,
    looked_up: Arc<AtomicBool>,
    looked_up_at: Instant,
    next_look_up: Instant,
    next_reload: Instant,
}

impl ControlLoop {
    fn new(in_force: Arc<InForce>, journal: Option<Journal>) -> ControlLoop {
        let (started, shared) = (Instant::now(), in_force.get());
        let mut seeds = SplitMix64::new(shared.config.seed);
        let begin = |one: &ControlledServer| {
            let mut begun = ServerLoop::new(at_its_beginning(one, &shared), seeds.next_bits());
            // It is compared with what is configured.
            begun.regulated.control = one.control;
            begun
        };
        ControlLoop {
            servers: shared.servers.iter().map(begin).collect(),
            seeds,
            in_force,
            shared,
            journal,
            started,
            looked_up: Arc::new(AtomicBool::new(true)),
            looked_up_at: started,
            next_look_up: started + LOOK_UP_INTERVAL,
            next_reload: started + RELOAD_INTERVAL,
        }
    }

    /// Goes by another configuration. A limit that has been learnt stays where nothing is said
    /// against it: a controller whose settings are the same goes on, and another one begins with
    /// the limit in force unless it is told where to start.
    fn take_over_configuration(&mut self) {
        let mut before = std::mem::take(&mut self.servers);
        let shared = Arc::clone(&self.shared);
        for one in &shared.servers {
            let is_it = |it: &ServerLoop| Arc::ptr_eq(&it.regulated.server, &one.server);
            let known = before.iter().position(is_it).map(|index| before.swap_remove(index));
            let mut next = one.clone();
            match known {
                Some(known) if known.regulated.control == next.control => {
                    self.servers.push(ServerLoop { regulated: next, ..known });
                    continue;
                }
                Some(known) => {
                    let (old, new) = (known.regulated.control.setting, &mut next.control.setting);
                    if old.start == new.start {
                        new.start = new.bounds.clamp(next.server.gate.snapshot().limit);
                    }
                }
                None => {}
            }
            self.begin_record(&next.name, &next.control);
            next.server.decisions.begin_anew();
            let mut begun = ServerLoop::new(next, self.seeds.next_bits());
            // It is compared with what is configured.
            begun.regulated.control = one.control;
            self.servers.push(begun);
        }
    }

    /// Begins another record of a server in the journal.
    fn begin_record(&mut self, server: &str, control: &Control) {
        if let Some(journal) = &mut self.journal
            && let Err(error) = journal.begin(server, control, self.shared.config.seed)
        {
            tracing::error!(%error, "cannot write the journal; it ends here");
            self.journal = None;
        }
    }

    /// Lets another controller decide if an administrator has ordered so.
    fn obey_limit_order(&mut self, index: usize, now: Instant) {
        let of_server = &mut self.servers[index];
        let server = &of_server.regulated.server;
        let order = self.shared.commands.limit_order(&server.address);
        if std::mem::replace(&mut of_server.order, order) == order {
            return;
        }
        let control = order.control(&of_server.regulated.control, server.gate.snapshot().limit);
        server.decisions.begin_anew();
        of_server.governor.replace(&control, now);
        of_server.in_force = control;
        of_server.limit = Some(control.controller().start().get());
        (of_server.proposed, of_server.goal) = (None, None);
        let name = of_server.regulated.name.clone();
        tracing::info!(server = name, control = %control.choice(), "the limit is controlled anew");
        self.begin_record(&name, &control);
    }

    fn tick(&mut self, now: Instant) {
        if self.in_force.refresh(&mut self.shared) {
            self.take_over_configuration();
        }
        for ServerLoop { regulated, warnings, .. } in &mut self.servers {
            let gate = &regulated.server.gate;
            gate.expire(now);
            warnings.give(&gate.discount(now), &self.shared, now);
        }
        // The process that takes over controls the limit, and writes the journal.
        let is_leaving = self.shared.handover.is_leaving();
        for index in 0..self.servers.len() {
            if is_leaving {
                break;
            }
            self.obey_limit_order(index, now);
            let ServerLoop { regulated, governor, .. } = &mut self.servers[index];
            let state = |interval| regulated.state(interval, now);
            if let Some(adjustment) = governor.tick_with(now, state) {
                self.report(index, adjustment, now);
            }
            let server = &self.servers[index].regulated.server;
            server.track.pass(|| server.gate.progress(now).0, now);
        }
        if now >= self.next_reload {
            self.next_reload = now + RELOAD_INTERVAL;
            self.shared.reload_files();
        }
        // A name may mean another host then.
        if self.shared.servers.iter().any(|it| it.server.hosts.is_down()) {
            self.next_look_up = self.next_look_up.min(self.looked_up_at + LOOK_UP_INTERVAL_DOWN);
        }
        if now >= self.next_look_up {
            self.looked_up_at = now;
            self.next_look_up = now + LOOK_UP_INTERVAL;
            self.look_up();
        }
    }

    fn report(&mut self, index: usize, adjustment: Adjustment, now: Instant) {
        let Adjustment { observation, decision, proposal, goal, curve, .. } = &adjustment;
        let of_server = &mut self.servers[index];
        let controller = of_server.governor.controller_name();
        let regulated = &of_server.regulated;
        let decisions = &regulated.server.decisions;
        decisions.add(controller, decision.reason);
        let measurements = || of_server.governor.measurements(now);
        regulated.server.track.add(controller, observation, decision, measurements, now);
        let limit = decision.limit.get();
        // A limit that is only tried for a moment is no news.
        let is_settled = !decision.reason.is_trial();
        let is_change = is_settled && of_server.limit.replace(limit) != Some(limit);
        log_interval(is_change, regulated, observation, decision);
        if let Some(proposal) = proposal {
            decisions.set_proposal(*proposal);
            let limit = proposal.limit.get();
            let is_change = of_server.proposed.replace(limit) != Some(limit);
            log_proposal(is_change, &regulated.name, observation, proposal);
        }
        if let (Some(status), Some(keep)) = (goal, of_server.in_force.keep) {
            decisions.set_goal(*status);
            let before = of_server.goal.replace(*status);
            log_goal(&regulated.name, keep, before, *status);
        }
        if let Some(curve) = curve {
            decisions.set_curve(curve.clone(), now);
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
        if !self.shared.servers.iter().any(|it| it.server.hosts.is_named())
            || !self.looked_up.swap(false, Ordering::SeqCst)
        {
            return;
        }
        let (shared, done) = (Arc::clone(&self.shared), Arc::clone(&self.looked_up));
        let looked_up =
            std::thread::Builder::new().name("tidegate-names".into()).spawn(move || {
                for it in shared.servers.iter().filter(|it| it.server.hosts.is_named()) {
                    it.server.resolve();
                }
                done.store(true, Ordering::SeqCst);
            });
        if let Err(error) = looked_up {
            tracing::warn!(%error, "cannot start a thread to look names up");
            self.looked_up.store(true, Ordering::SeqCst);
        }
    }
}

//! The event loop: clients connected, served and counted, time kept.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mio::event::Event as Readiness;
use mio::{Events, Poll};
use rustix::time::{ClockId, clock_gettime};
use tidegate_subject::client::Url;

use super::client::{Client, Loss, Shared};
use super::session::Work;
use super::socket::Address;
use super::{LoadError, LoadOptions, LoadReport, Phase, PhaseReport, Progress, Refusal, Stage};

/// Logins under way at once: enough to hide round trips, few enough not to overrun a server that
/// starts a process for each.
const HANDSHAKES: usize = 64;

/// Pause after a refused login before the next is tried.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// How long stragglers may take to end before their connections are broken.
const DRAIN_BOUND: Duration = Duration::from_secs(15);

/// The longest wait before the cancellation flag is looked at.
const POLL_MAX: Duration = Duration::from_millis(50);

const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
const EVENTS: usize = 256;

/// SQLSTATEs of a server that may let us in later: too many connections, starting up.
const TRY_LATER: [&str; 2] = ["53300", "57P03"];

pub(super) struct ClosedLoop<'a> {
    options: &'a LoadOptions,
    url: Url,
    address: Address,
    cancel: &'a AtomicBool,
    progress: &'a mut dyn FnMut(&Progress),
    poll: Poll,
    /// By token; `None` when not connected.
    clients: Vec<Option<Client>>,
    shared: Shared,
    /// Clients to connect, in order.
    waiting: VecDeque<usize>,
    handshakes: usize,
    logged_in: usize,
    connect_retries: u64,
    losses: usize,
    last_refusal: Option<Refusal>,
    /// When all this began.
    called: Instant,
    /// No login is begun before this.
    pause_until: Instant,
    pace: Pace,
}

/// When the stage began and when its progress was last reported.
struct Pace {
    stage_began: Instant,
    reported: Instant,
    committed: u64,
}

/// What is known when the measured time is over, beside the tally.
struct Measured {
    clients: usize,
    seconds: f64,
    phases: Vec<PhaseReport>,
    cpu_s: f64,
    stragglers: usize,
    oldest_straggler_s: f64,
}

impl<'a> ClosedLoop<'a> {
    pub(super) fn new(
        options: &'a LoadOptions,
        url: Url,
        address: Address,
        cancel: &'a AtomicBool,
        progress: &'a mut dyn FnMut(&Progress),
    ) -> Result<Self, LoadError> {
        let now = Instant::now();
        Ok(ClosedLoop {
            options,
            url,
            address,
            cancel,
            progress,
            poll: Poll::new().map_err(LoadError::Poll)?,
            clients: (0..options.clients).map(|_| None).collect(),
            shared: Shared::new(Work { workload: options.workload, scale: options.scale }),
            waiting: (0..options.clients).collect(),
            handshakes: 0,
            logged_in: 0,
            connect_retries: 0,
            losses: 0,
            last_refusal: None,
            called: now,
            pause_until: now,
            pace: Pace { stage_began: now, reported: now, committed: 0 },
        })
    }

    /// Runs the phase of the options and then the others.
    pub(super) fn run(mut self, then: &[Phase]) -> Result<LoadReport, LoadError> {
        let mut events = Events::with_capacity(EVENTS);
        self.connect_all(&mut events)?;
        self.enter(Stage::Warmup);
        self.start_all();
        self.run_until(self.pace.stage_began + self.options.warmup, &mut events)?;

        self.enter(Stage::Measuring);
        let clients = self.logged_in;
        let cpu_before = thread_cpu();
        let phases = self.measure(then, &mut events)?;
        let measured = Measured {
            clients,
            phases,
            cpu_s: thread_cpu().saturating_sub(cpu_before).as_secs_f64(),
            seconds: self.pace.stage_began.elapsed().as_secs_f64(),
            stragglers: self.logged_in,
            oldest_straggler_s: self.oldest_transaction().as_secs_f64(),
        };

        self.enter(Stage::Draining);
        self.drain(&mut events)?;
        Ok(self.report(&measured))
    }

    fn report(&self, measured: &Measured) -> LoadReport {
        let tally = &self.shared.tally;
        let transactions = tally.transactions as f64;
        LoadReport {
            workload: self.options.workload.name(),
            scale: self.options.scale.get(),
            clients: measured.clients,
            seed: self.options.seed,
            warmup_s: self.options.warmup.as_secs_f64(),
            seconds: measured.seconds,
            transactions: tally.transactions,
            tps: transactions / measured.seconds,
            phases: measured.phases.clone(),
            warmup_transactions: tally.warmup_transactions,
            stragglers: measured.stragglers,
            oldest_straggler_s: measured.oldest_straggler_s,
            late_commits: tally.late_commits,
            errors: tally.errors.clone(),
            retries: tally.retries,
            connection_losses: self.losses,
            connect_retries: self.connect_retries,
            latency: tally.latency(),
            client_cpu_us: measured.cpu_s * 1e6 / transactions.max(1.0),
            client_core_share: measured.cpu_s / measured.seconds,
        }
    }

    fn enter(&mut self, stage: Stage) {
        self.shared.tally.stage = stage;
        let now = Instant::now();
        self.pace.stage_began = now;
        self.pace.reported = now;
        self.pace.committed = self.shared.tally.committed();
    }

    fn connect_all(&mut self, events: &mut Events) -> Result<(), LoadError> {
        let deadline = Instant::now() + self.options.connect_timeout;
        while self.logged_in < self.options.clients {
            if Instant::now() >= deadline {
                let reason = self.last_refusal.take().unwrap_or(Refusal::Silent);
                return Err(self.not_all_connected(reason));
            }
            self.open_more()?;
            self.turn(deadline, events)?;
        }
        Ok(())
    }

    fn not_all_connected(&self, reason: Refusal) -> LoadError {
        if self.logged_in == 0 {
            return LoadError::Connect { url: Box::new(self.url.clone()), reason };
        }
        LoadError::NotAllConnected {
            connected: self.logged_in,
            clients: self.options.clients,
            timeout: self.options.connect_timeout,
            reason,
        }
    }

    fn open_more(&mut self) -> Result<(), LoadError> {
        while self.handshakes < HANDSHAKES && Instant::now() >= self.pause_until {
            let Some(index) = self.waiting.pop_front() else {
                break;
            };
            self.handshakes += 1;
            match Client::open(self.options, &self.url, &self.address, &self.poll, index) {
                Ok(client) => self.clients[index] = Some(client),
                Err(error) => self.refused(index, Refusal::Io(error))?,
            }
        }
        Ok(())
    }

    /// A client could not log in: it is put back in line when others got in, else all is over.
    fn refused(&mut self, index: usize, reason: Refusal) -> Result<(), LoadError> {
        self.handshakes -= 1;
        self.clients[index] = None;
        if self.logged_in == 0 || !reason.may_pass() {
            return Err(self.not_all_connected(reason));
        }
        self.last_refusal = Some(reason);
        self.connect_retries += 1;
        self.waiting.push_back(index);
        self.pause_until = Instant::now() + RETRY_PAUSE;
        Ok(())
    }

    fn start_all(&mut self) {
        for index in 0..self.clients.len() {
            let Some(client) = &mut self.clients[index] else {
                continue;
            };
            if client.start(&mut self.shared).is_err() {
                self.lost(index);
            }
        }
    }

    /// Runs the phase of the options and then the others, each to its planned end.
    fn measure(
        &mut self,
        then: &[Phase],
        events: &mut Events,
    ) -> Result<Vec<PhaseReport>, LoadError> {
        let LoadOptions { workload, scale, duration, .. } = *self.options;
        let first = Phase { workload, scale, duration };
        let mut deadline = self.pace.stage_began;
        let mut reports = Vec::with_capacity(1 + then.len());
        for &Phase { workload, scale, duration } in [first].iter().chain(then) {
            let (began, before) = (Instant::now(), self.shared.tally.transactions);
            self.shared.switch_to(Work { workload, scale });
            deadline += duration;
            self.run_until(deadline, events)?;
            let seconds = began.elapsed().as_secs_f64();
            let transactions = self.shared.tally.transactions - before;
            reports.push(PhaseReport {
                workload: workload.name(),
                scale: scale.get(),
                began_s: began.duration_since(self.called).as_secs_f64(),
                seconds,
                transactions,
                tps: transactions as f64 / seconds,
            });
        }
        Ok(reports)
    }

    /// Runs the clients until `deadline`.
    fn run_until(&mut self, deadline: Instant, events: &mut Events) -> Result<(), LoadError> {
        while Instant::now() < deadline {
            self.turn(deadline, events)?;
            if self.logged_in == 0 {
                return Err(LoadError::AllLost(self.losses));
            }
        }
        Ok(())
    }

    /// Lets every client end; see the module's chapter on stragglers.
    fn drain(&mut self, events: &mut Events) -> Result<(), LoadError> {
        let deadline = self.pace.stage_began + DRAIN_BOUND;
        while self.logged_in > 0 && Instant::now() < deadline {
            self.turn(deadline, events)?;
        }
        Ok(())
    }

    fn oldest_transaction(&self) -> Duration {
        let now = Instant::now();
        let clients = self.clients.iter().flatten();
        let ages = clients.map(|client| client.age(now));
        ages.max().unwrap_or_default()
    }

    /// Waits once, until `deadline` at most, and serves the clients that are ready.
    fn turn(&mut self, deadline: Instant, events: &mut Events) -> Result<(), LoadError> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(LoadError::Cancelled);
        }
        let now = Instant::now();
        if now.duration_since(self.pace.reported) >= PROGRESS_INTERVAL {
            self.report_progress(now);
        }
        let timeout = POLL_MAX.min(deadline.saturating_duration_since(now));
        match self.poll.poll(events, Some(timeout)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(LoadError::Poll(error)),
        }
        for event in events.iter() {
            self.serve(event)?;
        }
        Ok(())
    }

    fn serve(&mut self, event: &Readiness) -> Result<(), LoadError> {
        let index = event.token().0;
        let Some(Some(client)) = self.clients.get_mut(index) else {
            return Ok(());
        };
        let was_logged_in = client.is_logged_in();
        let outcome = client.on_readiness(event, &mut self.shared, &self.poll, index);
        let is_done = client.is_done();
        let is_logged_in = client.is_logged_in();
        match outcome {
            Ok(()) if is_done => {
                self.clients[index] = None;
                self.logged_in -= 1;
                Ok(())
            }
            Ok(()) => {
                if is_logged_in && !was_logged_in {
                    self.handshakes -= 1;
                    self.logged_in += 1;
                }
                Ok(())
            }
            Err(loss) if self.shared.tally.stage == Stage::Connecting => {
                self.lost_while_connecting(index, was_logged_in, loss)
            }
            Err(_) => {
                self.lost(index);
                Ok(())
            }
        }
    }

    fn lost_while_connecting(
        &mut self,
        index: usize,
        was_logged_in: bool,
        loss: Loss,
    ) -> Result<(), LoadError> {
        if was_logged_in {
            self.logged_in -= 1;
            self.handshakes += 1;
        }
        let error = self.clients[index].as_mut().and_then(Client::take_error);
        let reason = match (error, loss) {
            (Some(error), _) => Refusal::Server(error),
            (None, Loss::Closed) => Refusal::Closed,
            (None, Loss::Io(error)) => Refusal::Io(error),
            (None, Loss::Protocol(error)) => Refusal::Protocol(error),
        };
        self.refused(index, reason)
    }

    fn lost(&mut self, index: usize) {
        self.clients[index] = None;
        self.logged_in -= 1;
        self.losses += 1;
    }

    fn report_progress(&mut self, now: Instant) {
        let committed = self.shared.tally.committed();
        let seconds = now.duration_since(self.pace.reported).as_secs_f64();
        (self.progress)(&Progress {
            stage: self.shared.tally.stage,
            elapsed: now.duration_since(self.pace.stage_began),
            connected: self.logged_in,
            tps: (committed - self.pace.committed) as f64 / seconds,
        });
        self.pace.reported = now;
        self.pace.committed = committed;
    }
}

impl Refusal {
    /// Whether another attempt may succeed once others are through.
    fn may_pass(&self) -> bool {
        match self {
            Refusal::Server(error) => TRY_LATER.contains(&error.code.as_str()),
            Refusal::Io(_) | Refusal::Closed | Refusal::Silent => true,
            Refusal::Protocol(_) => false,
        }
    }
}

/// CPU time of this thread, which is all the client runs on.
fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

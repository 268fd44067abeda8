//! The course of a load with clients of any kind: stages, phases, intervals, progress, the report.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tidegate_runtime::clock;
use tidegate_subject::embedded::StoreWork;
use tidegate_workload::Conflict;

use super::dispatcher::Dispatcher;
use super::server::ServerClock;
use super::tally::IntervalReport;
use super::{
    Alongside, LoadError, LoadOptions, LoadReport, Phase, PhaseReport, Progress, Stage, StoreReport,
};

/// How long stragglers may take to end before they are left behind. Whoever has the database ends
/// those.
const DRAIN_BOUND: Duration = Duration::from_secs(15);

/// The longest wait before the cancellation flag is looked at.
const POLL_MAX: Duration = Duration::from_millis(50);

const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Clients that run transactions, and what they saw.
pub(super) trait Crowd {
    /// Does what is to be done so that all clients are ready to begin; whether they are.
    fn gather(&mut self) -> Result<bool, LoadError>;

    /// Lets every client look for something to do.
    fn start(&mut self);

    /// What they do next, and what was counted.
    fn dispatcher(&mut self) -> &mut Dispatcher;

    /// What is seen from now on belongs to this stage. In the last no transaction begins, and who
    /// waits for one leaves.
    fn enter(&mut self, stage: Stage);

    /// Waits once, at most so long, and serves the clients that have been answered; those that have
    /// waited and are to begin begin.
    fn turn(&mut self, timeout: Duration) -> Result<(), LoadError>;

    /// Clients that are ready or in a transaction.
    fn alive(&self) -> usize;

    /// Clients in a transaction, and how long the oldest of them has been due.
    fn busy(&self, now: Instant) -> (usize, Duration);

    /// How often transactions gave way to others, by the reason; each was run again.
    fn conflicts(&mut self) -> BTreeMap<Conflict, u64> {
        self.dispatcher().tally.conflicts.clone()
    }

    /// What a store in our process did in the measured time.
    fn store_work(&self) -> Option<StoreWork> {
        None
    }

    fn losses(&self) -> &Losses;

    /// What the load generator has used of processors: all threads of our process.
    fn cpu(&self) -> Duration {
        cpu(ClockId::ProcessCPUTime)
    }

    /// Attempts to connect that were turned away and made again.
    fn connect_retries(&self) -> u64 {
        0
    }

    /// How many were connecting at a time, at most.
    fn connects_at_once(&self) -> Option<usize> {
        None
    }
}

#[derive(Debug, Default)]
pub(super) struct Losses {
    pub(super) count: usize,
    /// Why the first did.
    reason: Option<String>,
}

impl Losses {
    pub(super) fn add(&mut self, reason: impl FnOnce() -> String) {
        self.count += 1;
        self.reason.get_or_insert_with(reason);
    }
}

pub(super) struct LoadRun<'a, C> {
    options: &'a LoadOptions<'a>,
    cancel: &'a AtomicBool,
    progress: &'a mut dyn FnMut(&Progress),
    crowd: C,
    /// The server whose work is measured.
    server: Option<u32>,
    intervals: Vec<IntervalReport>,
    /// When all this began.
    called: Instant,
    pace: Pace,
}

/// When the stage began and when its progress was last reported.
struct Pace {
    stage: Stage,
    stage_began: Instant,
    reported: Instant,
    committed: u64,
}

/// What is known when the measured time is over, beside the tally.
struct MeasuredTime {
    clients: usize,
    seconds: f64,
    phases: Vec<PhaseReport>,
    intervals: Vec<IntervalReport>,
    cpu_s: f64,
    stragglers: usize,
    oldest_straggler_s: f64,
    overdue: u64,
    losses: usize,
    records_waited: Duration,
    /// Where the server is to be seen.
    server_cpu_s: Option<f64>,
}

impl<'a, C: Crowd> LoadRun<'a, C> {
    pub(super) fn new(
        options: &'a LoadOptions<'a>,
        crowd: C,
        cancel: &'a AtomicBool,
        progress: &'a mut dyn FnMut(&Progress),
    ) -> Self {
        let now = clock::now();
        let pace = Pace { stage: Stage::Connecting, stage_began: now, reported: now, committed: 0 };
        let (server, intervals) = (None, Vec::new());
        LoadRun { options, cancel, progress, crowd, server, intervals, called: now, pace }
    }

    /// The same with what is kept beside the report.
    pub(super) fn with(mut self, alongside: Alongside) -> Self {
        self.crowd.dispatcher().recorder = alongside.recorder;
        self.server = alongside.server;
        self
    }

    /// Runs the phase of the options and then the others.
    pub(super) fn run(mut self, then: &[Phase]) -> Result<LoadReport, LoadError> {
        while !self.crowd.gather()? {
            self.turn(POLL_MAX)?;
        }
        self.tell_ready();
        self.enter(Stage::Warmup);
        self.crowd.dispatcher().open(clock::now());
        self.crowd.start();
        self.run_until(self.pace.stage_began + self.options.warmup)?;

        self.enter(Stage::Measuring);
        let clients = self.crowd.alive();
        let server = self.server.and_then(ServerClock::start);
        let (cpu_before, waited_before) =
            (self.crowd.cpu(), self.crowd.dispatcher().records_waited());
        let phases = self.measure(then)?;
        let now = clock::now();
        let (stragglers, oldest) = self.crowd.busy(now);
        let measured = MeasuredTime {
            clients,
            phases,
            intervals: std::mem::take(&mut self.intervals),
            cpu_s: self.crowd.cpu().saturating_sub(cpu_before).as_secs_f64(),
            seconds: now.duration_since(self.pace.stage_began).as_secs_f64(),
            stragglers,
            oldest_straggler_s: oldest.as_secs_f64(),
            overdue: self.crowd.dispatcher().overdue(now),
            losses: self.crowd.losses().count,
            records_waited: self.crowd.dispatcher().records_waited().saturating_sub(waited_before),
            server_cpu_s: server.and_then(ServerClock::read).map(|time| time.as_secs_f64()),
        };

        self.enter(Stage::Draining);
        self.drain()?;
        if let Some(recorder) = self.crowd.dispatcher().recorder.take() {
            recorder.finish()?;
        }
        Ok(self.report(measured))
    }

    fn report(&mut self, measured: MeasuredTime) -> LoadReport {
        let conflicts = self.crowd.conflicts();
        let connect_retries = self.crowd.connect_retries();
        let connects_at_once = self.crowd.connects_at_once();
        let classes = self.crowd.dispatcher().class_reports();
        let store = self.crowd.store_work().map(StoreReport::from);
        let tally = &self.crowd.dispatcher().tally;
        let transactions = tally.transactions as f64;
        let each_us = |cpu_s: f64| cpu_s * 1e6 / transactions.max(1.0);
        LoadReport {
            workload: self.options.workload.name(),
            clients: measured.clients,
            seed: self.options.seed,
            warmup_s: self.options.warmup.as_secs_f64(),
            seconds: measured.seconds,
            transactions: tally.transactions,
            tps: transactions / measured.seconds,
            phases: measured.phases,
            kinds: tally.kinds(),
            classes,
            intervals: measured.intervals,
            warmup_transactions: tally.warmup_transactions,
            stragglers: measured.stragglers,
            oldest_straggler_s: measured.oldest_straggler_s,
            overdue: measured.overdue,
            late_commits: tally.late_commits,
            errors: tally.errors.clone(),
            first_error: tally.first_error.clone(),
            retries: conflicts.values().sum(),
            conflicts: conflicts
                .into_iter()
                .map(|(conflict, count)| (conflict.to_string(), count))
                .collect(),
            connection_losses: measured.losses,
            connect_retries,
            connects_at_once,
            latency: tally.latency(),
            client_cpu_us: each_us(measured.cpu_s),
            client_core_share: measured.cpu_s / measured.seconds,
            subject_cpu_us: measured.server_cpu_s.map(each_us),
            subject_core_share: measured.server_cpu_s.map(|cpu_s| cpu_s / measured.seconds),
            store,
            records_waited_ms: u64::try_from(measured.records_waited.as_millis())
                .expect("a load does not last for 500 million years"),
        }
    }

    /// Says that all are connected, and waits for the one that hears it.
    fn tell_ready(&mut self) {
        (self.progress)(&Progress {
            stage: Stage::Ready,
            elapsed: Duration::ZERO,
            connected: self.crowd.alive(),
            tps: 0.0,
        });
    }

    fn enter(&mut self, stage: Stage) {
        self.crowd.enter(stage);
        let now = clock::now();
        let committed = self.crowd.dispatcher().tally.total();
        self.pace = Pace { stage, stage_began: now, reported: now, committed };
    }

    /// Runs the phase of the options and then the others, each to its planned end.
    fn measure(&mut self, then: &[Phase]) -> Result<Vec<PhaseReport>, LoadError> {
        let LoadOptions { workload, duration, .. } = self.options;
        let first = Phase { workload: workload.clone(), duration: *duration };
        let mut deadline = self.pace.stage_began;
        let end = deadline + *duration + then.iter().map(|phase| phase.duration).sum::<Duration>();
        let mut reports = Vec::with_capacity(1 + then.len());
        for (place, phase) in [&first].into_iter().chain(then).enumerate() {
            if place > 0 && self.is_enough() {
                break;
            }
            let began = clock::now();
            let before = self.crowd.dispatcher().tally.transactions;
            if place > 0 {
                self.crowd.dispatcher().switch_to(&*phase.workload, self.options.clients);
            }
            deadline += phase.duration;
            self.measure_until(deadline, end)?;
            let seconds = (clock::now() - began).as_secs_f64();
            let transactions = self.crowd.dispatcher().tally.transactions - before;
            reports.push(PhaseReport {
                workload: phase.workload.name(),
                began_s: began.duration_since(self.called).as_secs_f64(),
                seconds,
                transactions,
                tps: transactions as f64 / seconds,
            });
        }
        Ok(reports)
    }

    /// Runs the clients until `deadline`, interval by interval; `end` is when all is over.
    fn measure_until(&mut self, deadline: Instant, end: Instant) -> Result<(), LoadError> {
        loop {
            let next = self.next_boundary(end);
            self.run_until(next.min(deadline))?;
            let is_over = next == end || self.is_enough();
            if next > deadline && !is_over {
                return Ok(());
            }
            let until_s = (clock::now() - self.pace.stage_began).as_secs_f64();
            let interval = self.crowd.dispatcher().tally.end_interval(until_s);
            self.intervals.push(interval);
            if is_over {
                return Ok(());
            }
        }
    }

    /// Whether as many transactions have been measured as there are to be.
    fn is_enough(&mut self) -> bool {
        let measured = self.crowd.dispatcher().tally.transactions;
        self.options.transactions_max.is_some_and(|max| measured >= max)
    }

    /// When the interval ends. The last takes what would be left after it, if that is little.
    fn next_boundary(&self, end: Instant) -> Instant {
        let interval = self.options.interval;
        let number = u32::try_from(self.intervals.len() + 1).expect("a load has fewer intervals");
        let next = self.pace.stage_began + interval * number;
        if end.saturating_duration_since(next) < interval / 4 { end } else { next }
    }

    fn run_until(&mut self, deadline: Instant) -> Result<(), LoadError> {
        loop {
            let left = deadline.saturating_duration_since(clock::now());
            if left.is_zero() || self.is_enough() {
                return Ok(());
            }
            self.turn(left)?;
            let losses = self.crowd.losses();
            if losses.count > 0 && self.options.needs_all {
                return Err(LoadError::Lost {
                    lost: losses.count,
                    clients: self.options.clients,
                    reason: losses.reason.clone().expect("the first loss has its reason"),
                });
            }
            if self.crowd.alive() == 0 {
                return Err(LoadError::AllLost(losses.count));
            }
        }
    }

    /// Lets every client end; see the module's chapter on stragglers.
    fn drain(&mut self) -> Result<(), LoadError> {
        let deadline = self.pace.stage_began + DRAIN_BOUND;
        while self.crowd.alive() > 0 && clock::now() < deadline {
            self.turn(POLL_MAX)?;
        }
        Ok(())
    }

    /// Waits once, at most so long, and serves the clients.
    fn turn(&mut self, longest: Duration) -> Result<(), LoadError> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(LoadError::Cancelled);
        }
        let now = clock::now();
        if now.duration_since(self.pace.reported) >= PROGRESS_INTERVAL {
            self.report_progress(now);
        }
        self.crowd.turn(POLL_MAX.min(longest))
    }

    fn report_progress(&mut self, now: Instant) {
        let committed = self.crowd.dispatcher().tally.total();
        let seconds = now.duration_since(self.pace.reported).as_secs_f64();
        (self.progress)(&Progress {
            stage: self.pace.stage,
            elapsed: now.duration_since(self.pace.stage_began),
            connected: self.crowd.alive(),
            tps: (committed - self.pace.committed) as f64 / seconds,
        });
        self.pace.reported = now;
        self.pace.committed = committed;
    }
}

/// CPU time by one of the clocks that count it.
pub(super) fn cpu(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::try_from(time).expect("a clock of processor time is never negative")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::testing::{self, TwoPhases};
    use super::*;

    /// Clients that do nothing but what the tests want.
    struct Idle {
        dispatcher: Dispatcher,
        losses: Losses,
        /// Whether two of them are lost when the clock starts.
        loses: bool,
        alive: usize,
    }

    impl Crowd for Idle {
        fn gather(&mut self) -> Result<bool, LoadError> {
            Ok(true)
        }

        fn start(&mut self) {}

        fn dispatcher(&mut self) -> &mut Dispatcher {
            &mut self.dispatcher
        }

        fn enter(&mut self, stage: Stage) {
            match stage {
                Stage::Measuring if self.loses => {
                    self.losses.add(|| "the first reason".to_owned());
                    self.losses.add(|| "another".to_owned());
                    self.alive -= 2;
                }
                Stage::Draining => self.alive = 0,
                _ => {}
            }
        }

        fn turn(&mut self, timeout: Duration) -> Result<(), LoadError> {
            std::thread::sleep(timeout);
            Ok(())
        }

        fn alive(&self) -> usize {
            self.alive
        }

        fn busy(&self, _: Instant) -> (usize, Duration) {
            (0, Duration::ZERO)
        }

        fn losses(&self) -> &Losses {
            &self.losses
        }
    }

    fn run(loses: bool, needs_all: bool) -> Result<LoadReport, LoadError> {
        let options = LoadOptions {
            clients: 5,
            needs_all,
            duration: Duration::from_millis(20),
            ..testing::options(Arc::new(TwoPhases::default()))
        };
        let dispatcher = Dispatcher::new(&options);
        let crowd = Idle { dispatcher, losses: Losses::default(), loses, alive: 5 };
        LoadRun::new(&options, crowd, &AtomicBool::new(false), &mut |_| {}).run(&[])
    }

    #[test]
    fn a_load_that_needs_all_its_clients_fails_with_the_first_reason() {
        assert!(run(false, true).is_ok());
        let lost = run(true, true).unwrap_err().to_string();
        assert_eq!(lost, "2 of 5 clients lost their connection before the end: the first reason");
        assert_eq!(run(true, false).unwrap().connection_losses, 2);
    }
}

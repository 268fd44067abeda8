//! The thread that keeps every gate's limit where its controller wants it.
//!
//! It also does what must not stop an event loop: passing queue deadlines, looking names up again,
//! writing the journal.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Serialize;
use tidegate_control::{
    Controller, Fixed, HillClimbing, IntervalRule, Parabola, ParabolaSettings, SplitMix64,
};
use tidegate_gate::{Adjustment, Governor};

use crate::config::{Algorithm, Control};
use crate::metrics::Decisions;
use crate::shared::Shared;

/// How often intervals and deadlines are looked at.
const TICK: Duration = Duration::from_millis(20);

/// How often host names are looked up again.
const LOOK_UP_INTERVAL: Duration = Duration::from_secs(30);

/// One control interval in the journal, a JSON object on a line.
#[derive(Serialize)]
struct JournalLine<'a> {
    at_s: f64,
    server: &'a str,
    controller: &'a str,
    interval_s: f64,
    limit: u32,
    next_limit: u32,
    reason: String,
    tps: f64,
    completions: u64,
    failures: u64,
    concurrency: u32,
    concurrency_peak: u32,
    in_queue_mean_s: f64,
    in_queue_p95_s: f64,
    in_database_mean_s: f64,
    in_database_p95_s: f64,
}

/// The controller that a configuration asks for.
pub(crate) fn controller(control: &Control) -> Box<dyn Controller> {
    let (bounds, start) = (control.bounds, control.start);
    match control.algorithm {
        Algorithm::HillClimbing => Box::new(HillClimbing::for_proxy(bounds, start)),
        Algorithm::GlobalParabola => {
            Box::new(Parabola::global(bounds, start, ParabolaSettings::PROXY))
        }
        Algorithm::LocalParabola => {
            Box::new(Parabola::local(bounds, start, ParabolaSettings::PROXY))
        }
        Algorithm::Fixed(limit) => Box::new(Fixed::new(bounds, limit)),
    }
}

/// One server's control loop.
pub(crate) struct Regulated {
    pub(crate) name: String,
    pub(crate) control: Control,
    pub(crate) decisions: Arc<Decisions>,
}

/// The running thread; dropping it stops it.
pub(crate) struct Regulation {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Regulation {
    /// Starts to control the gates of `shared.servers`, one of `regulated` for each.
    pub(crate) fn start(
        shared: Arc<Shared>,
        regulated: Vec<Regulated>,
    ) -> std::io::Result<Regulation> {
        let journal = shared.config.journal.as_deref().map(open_journal).transpose()?;
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let stopped = Arc::clone(&stop);
        let mut control_loop = ControlLoop::new(shared, regulated, journal);
        let thread =
            std::thread::Builder::new().name("tidegate-control".into()).spawn(move || {
                while !sleep(&stopped, TICK) {
                    control_loop.tick(Instant::now());
                }
            })?;
        Ok(Regulation { stop, thread: Some(thread) })
    }
}

impl Drop for Regulation {
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

fn open_journal(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

struct ControlLoop {
    shared: Arc<Shared>,
    regulated: Vec<Regulated>,
    governors: Vec<Governor>,
    journal: Option<File>,
    started: Instant,
    looked_up: Arc<AtomicBool>,
    next_look_up: Instant,
}

impl ControlLoop {
    fn new(shared: Arc<Shared>, regulated: Vec<Regulated>, journal: Option<File>) -> ControlLoop {
        let mut seeds = SplitMix64::new(shared.config.seed);
        let governors = shared
            .servers
            .iter()
            .zip(&regulated)
            .map(|(server, regulated)| {
                let draws = SplitMix64::new(seeds.next_bits());
                let controller = controller(&regulated.control);
                Governor::new(server.gate.clone(), controller, IntervalRule::default(), draws)
            })
            .collect();
        let started = Instant::now();
        ControlLoop {
            shared,
            regulated,
            governors,
            journal,
            started,
            looked_up: Arc::new(AtomicBool::new(true)),
            next_look_up: started + LOOK_UP_INTERVAL,
        }
    }

    fn tick(&mut self, now: Instant) {
        for server in &self.shared.servers {
            server.gate.expire(now);
        }
        for index in 0..self.governors.len() {
            if let Some(adjustment) = self.governors[index].tick(now) {
                self.report(index, &adjustment, now);
            }
        }
        if now >= self.next_look_up {
            self.next_look_up = now + LOOK_UP_INTERVAL;
            self.look_up();
        }
    }

    fn report(&mut self, index: usize, adjustment: &Adjustment, now: Instant) {
        let Adjustment { observation, decision } = adjustment;
        let regulated = &self.regulated[index];
        regulated.decisions.count(&decision.reason);
        tracing::info!(
            server = regulated.name,
            limit = decision.limit.get(),
            reason = %decision.reason,
            tps = format_args!("{:.0}", observation.throughput_tps()),
            queue_ms = format_args!("{:.2}", observation.in_queue.mean_s * 1e3),
            database_ms = format_args!("{:.2}", observation.in_database.mean_s * 1e3),
            concurrency = observation.concurrency,
            "interval"
        );
        let line = JournalLine {
            at_s: now.saturating_duration_since(self.started).as_secs_f64(),
            server: &regulated.name,
            controller: self.governors[index].controller_name(),
            interval_s: observation.interval.as_secs_f64(),
            limit: observation.limit.get(),
            next_limit: decision.limit.get(),
            reason: decision.reason.to_string(),
            tps: observation.throughput_tps(),
            completions: observation.completions,
            failures: observation.failures,
            concurrency: observation.concurrency,
            concurrency_peak: observation.concurrency_peak,
            in_queue_mean_s: observation.in_queue.mean_s,
            in_queue_p95_s: observation.in_queue.p95_s,
            in_database_mean_s: observation.in_database.mean_s,
            in_database_p95_s: observation.in_database.p95_s,
        };
        if let Some(journal) = &mut self.journal
            && let Err(error) = write_line(journal, &line)
        {
            tracing::error!(%error, "cannot write the journal; it ends here");
            self.journal = None;
        }
    }

    /// Looks the servers' names up again, on a thread of its own: a resolver may take its time.
    fn look_up(&self) {
        if !self.shared.servers.iter().any(crate::shared::Server::is_named)
            || !self.looked_up.swap(false, Ordering::SeqCst)
        {
            return;
        }
        let (shared, done) = (Arc::clone(&self.shared), Arc::clone(&self.looked_up));
        let looked_up =
            std::thread::Builder::new().name("tidegate-names".into()).spawn(move || {
                for server in shared.servers.iter().filter(|server| server.is_named()) {
                    if let Err(error) = server.resolve() {
                        let name = &server.address;
                        tracing::warn!(%name, %error, "name not found; keeping the last address");
                    }
                }
                done.store(true, Ordering::SeqCst);
            });
        if let Err(error) = looked_up {
            tracing::warn!(%error, "cannot start a thread to look names up");
            self.looked_up.store(true, Ordering::SeqCst);
        }
    }
}

fn write_line(journal: &mut File, line: &JournalLine<'_>) -> std::io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    journal.write_all(&text)
}

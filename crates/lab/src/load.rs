//! Many clients, all on one thread, and what they saw.
//!
//! Each client runs one transaction after the other, at once or when it has thought (closed loop),
//! or takes the next of a stream of arrivals (open loop). Everybody is connected first; when the
//! last client is logged in they all begin at once, and after the warm-up the clock starts. When
//! the time is up, the transactions still running are counted as stragglers and no more of them
//! counts: a client that waits behind a lock must not lengthen the measurement. Then each straggler
//! ends at its next answer, by disconnecting in the middle of its transaction unless that answer
//! was to its commit (a *late commit*), so that the server is idle again soon.
//!
//! The measured time may have several phases with a workload each. At the moment a phase ends, what
//! a client does *next* changes, for all clients at once; connections stay, a transaction that has
//! begun ends as what it is, and counts for the phase in which it is committed.
//!
//! The client must cost little next to what it measures, since it shares the machine with it. It
//! waits for all sockets by one edge-triggered epoll, reads into one shared buffer, writes each
//! query by one system call, and allocates nothing per transaction. Its own CPU time is part of the
//! report.
//!
//! The clients may also be those of the embedded engine, in our own process. Then there is nothing
//! to connect, a transaction is one call, and the server runs it again after a conflict; stragglers
//! that have not begun, or have to begin again, end there.
//!
//! Latency counts from the moment a transaction was due to its commit's answer. In a closed loop
//! that is when the client had the answer before, and slow answers also mean fewer questions, so it
//! is not what an open stream of arrivals would see. Stragglers have none, and they are the slow
//! ones: where a transaction takes about as long as the measured time, the mean is far too low. In
//! a closed loop clients over throughput is the mean of all, thinking included (Little's law).
//!
//! A client whose connection breaks is lost; the load goes on with the others or fails, as its
//! options say.
//!
//! Clients of a library that blocks, as those of SQLite and Firebird do, have a thread each, which
//! runs what it is given; what comes next and what is counted stays on the one thread.
//!
//! Limits: that one thread, so at most one core's worth of transactions on sockets. A client's
//! thread that panics counts as a straggler.

mod calls;
mod classes;
mod client;
mod client_state;
mod dispatcher;
mod files;
mod load_run;
mod pacer;
mod protocol;
mod records;
mod server;
mod socket;
mod sockets;
mod tally;
#[cfg(test)]
mod testing;
mod threads;
mod wire;

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::Serialize;
use thiserror::Error;
use tidegate_subject::connection::Connector;
use tidegate_subject::embedded::{RequestTimes, Service, StoreWork};
use tidegate_subject::url::{Url, UrlError};
use tidegate_workload::Failure;
use tidegate_workload::workload::Workload;

use classes::ClassDraws;
use load_run::LoadRun;

pub use classes::{HIGH_APPLICATION, HIGH_SHARE_MIN, Priority};
pub use files::{FileLimit, reserve_files};
pub use pacer::{Arrivals, RATES, is_rate};
pub use protocol::ClientProtocolError;
pub use records::{RecordError, Recorder};
pub use tally::{
    ClassReport, IntervalKind, IntervalReport, KindReport, LockingReport, PhaseOfKind,
};

/// The most clients of a load. One that wants more has mistyped their number: each has memory of
/// its own, and an address has fewer ports than that.
pub const CLIENTS_MAX: u32 = 100_000;

/// Files that a client of a blocking library may have open: SQLite's database, its journal, and a
/// temporary file.
const FILES_OF_THREAD: usize = 3;

/// Where the clients of a load go.
#[derive(Clone, Debug)]
pub enum LoadTarget<'a> {
    /// To a server that speaks PostgreSQL's or MariaDB's protocol, as the URL says.
    Url {
        /// Where they connect: `postgres://` or `mysql://user:password@host:port/database`.
        url: String,
        connecting: Connecting,
    },
    /// To a database whose library blocks: each client has a thread of its own.
    Threads {
        connector: Arc<dyn Connector>,
        connecting: Connecting,
    },
    Embedded(&'a Service<'a>),
}

/// How clients connect before they begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connecting {
    /// How long they may take, all together.
    pub timeout: Duration,
    /// How many of them may be at it at a time. When nothing is said, 64 on sockets, which hides
    /// round trips and does not overrun a server that starts a process for each, and all on
    /// threads. As many as there are clients is a storm.
    pub at_once: Option<NonZeroUsize>,
}

impl Connecting {
    /// Within so much time, and otherwise as usual.
    pub fn within(timeout: Duration) -> Self {
        Connecting { timeout, at_once: None }
    }
}

#[derive(Clone, Debug)]
pub struct LoadOptions<'a> {
    pub target: LoadTarget<'a>,
    pub workload: Arc<dyn Workload>,
    pub arrivals: Arrivals,
    /// How many clients run, at least 1.
    pub clients: usize,
    /// Whether the load fails when the first of them loses its connection. Otherwise it goes on
    /// with those that are left, and fails when nobody is.
    pub needs_all: bool,
    /// The share of the transactions that is of the high class, if there are two.
    pub priority: Option<Priority>,
    /// The transactions after which the measured time ends, if it is not over before.
    pub transactions_max: Option<u64>,
    /// How long transactions run before they count.
    pub warmup: Duration,
    /// How long transactions count.
    pub duration: Duration,
    /// How long an interval of that time is, in which they are counted apart; above 0.
    pub interval: Duration,
    /// Where the clients' draws begin; each client has a sequence of its own.
    pub seed: u64,
    /// What each request takes beside the database's work, on a machine in virtual time.
    pub requests: RequestTimes,
}

/// A further part of the measured time, with a workload of its own.
#[derive(Clone, Debug)]
pub struct Phase {
    pub workload: Arc<dyn Workload>,
    pub duration: Duration,
}

/// What is kept of a load beside its report, and seen beside what its clients see.
#[derive(Debug, Default)]
pub struct Alongside {
    /// Takes a record of each transaction.
    pub recorder: Option<Recorder>,
    /// The first process of the database, on this machine and not ourselves: the work of its tree
    /// goes into the report.
    pub server: Option<u32>,
}

/// Where a load run stands; reported about once a second.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub stage: Stage,
    pub elapsed: Duration,
    pub connected: usize,
    /// Transactions per second since the last report.
    pub tps: f64,
}

/// What the clients of a load run are at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Logging in, or waiting for those who do.
    Connecting,
    /// All are connected and nobody has begun; told once. The clients begin when that was heard.
    Ready,
    Warmup,
    /// Running and counted.
    Measuring,
    /// Ending what still runs, not counted any more.
    Draining,
}

/// What a load run saw. Rates and latencies are of the measured time alone.
#[derive(Clone, Debug, Serialize)]
pub struct LoadReport {
    /// The workload's name; that of the first phase when there are more.
    pub workload: &'static str,
    /// Clients connected when the clock started.
    pub clients: usize,
    pub seed: u64,
    /// Seconds run before transactions counted.
    pub warmup_s: f64,
    pub seconds: f64,
    /// Transactions committed in the measured time.
    pub transactions: u64,
    pub tps: f64,
    /// The parts of the measured time, in order, at least one.
    pub phases: Vec<PhaseReport>,
    /// Each kind of transaction on its own.
    pub kinds: Vec<KindReport>,
    /// Each scheduling class on its own; empty where all transactions are of one.
    pub classes: Vec<ClassReport>,
    /// The measured time, interval by interval.
    pub intervals: Vec<IntervalReport>,
    /// Transactions committed before the measured time.
    pub warmup_transactions: u64,
    /// Transactions running when the time was up.
    pub stragglers: usize,
    /// How long the oldest of them had been running, in seconds.
    pub oldest_straggler_s: f64,
    /// Transactions of an open loop that were due by then and that no client was free to begin.
    pub overdue: u64,
    /// Stragglers whose commit was already on its way and succeeded.
    pub late_commits: u64,
    /// Errors that clients were told of, by SQLSTATE, or by their kind where there is none, in the
    /// whole run.
    pub errors: BTreeMap<String, u64>,
    /// What the first of these errors said.
    pub first_error: Option<String>,
    /// Transactions that gave way to others, by the reason, in the whole run. Of the embedded
    /// engine these are waits that ended without the lock, after each of which it runs the
    /// transaction again.
    pub conflicts: BTreeMap<String, u64>,
    /// Transactions run again after a deadlock or serialization failure, in the whole run.
    pub retries: u64,
    /// Clients whose connection broke after the start and before the measured time was over.
    pub connection_losses: usize,
    /// Connection attempts that were turned away and made again.
    pub connect_retries: u64,
    /// How many clients were connecting at a time, at most; `None` where there is nothing to
    /// connect.
    pub connects_at_once: Option<usize>,
    /// How long a transaction took, retries included.
    pub latency: Latency,
    /// CPU time of the load generator in the measured time per transaction, in microseconds. That
    /// is the time of all threads of our process: the clients, those of blocking libraries
    /// included, and the one that writes records. SQLite works in its clients' threads, so its
    /// time is in it. The embedded engine has threads of its own in our process: there it is the
    /// time of the clients' thread alone.
    pub client_cpu_us: f64,
    /// The same CPU time as a share of one core, which may be above 1 where clients have threads.
    pub client_core_share: f64,
    /// CPU time of the database's processes in the measured time per transaction, in microseconds;
    /// `None` where they are not given or cannot be seen.
    pub subject_cpu_us: Option<f64>,
    /// The same CPU time as a share of one core, above 1 where more than one is at work.
    pub subject_core_share: Option<f64>,
    /// What the store did in the measured time; `None` where it is not in our process.
    pub store: Option<StoreReport>,
    /// How long the clients stood still in the measured time, in milliseconds, because the record
    /// of their transactions was not written fast enough.
    pub records_waited_ms: u64,
}

/// What was counted in one phase of the measured time.
#[derive(Clone, Debug, Serialize)]
pub struct PhaseReport {
    pub workload: &'static str,
    /// When the phase began, in seconds since the load was called for, logins included.
    pub began_s: f64,
    pub seconds: f64,
    pub transactions: u64,
    pub tps: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    pub mean_ms: f64,
    pub p50_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

/// What a store in our process did in the measured time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoreReport {
    /// Pages read from disk.
    pub page_reads: u64,
    /// Pages written to disk, each counted once.
    pub page_writes: u64,
    /// Syncs of the log for transactions that waited for it.
    pub log_syncs: u64,
    /// Bytes written to the log.
    pub log_bytes: u64,
    /// Runs of transactions that ended in a conflict over a document, by what ended them and what
    /// they waited for.
    pub conflicts: Vec<ConflictCount>,
}

/// How often a cause ended a run of a transaction at one kind of place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConflictCount {
    /// `deadlock`, `timeout` or `preempted`.
    pub cause: &'static str,
    /// `node`, `edge` or `entry`.
    pub place: &'static str,
    pub times: u64,
}

impl From<StoreWork> for StoreReport {
    fn from(work: StoreWork) -> StoreReport {
        let count = |((cause, place), times)| ConflictCount { cause, place, times };
        StoreReport {
            page_reads: work.page_reads,
            page_writes: work.page_writes,
            log_syncs: work.log_syncs,
            log_bytes: work.log_bytes,
            conflicts: work.conflicts.into_iter().map(count).collect(),
        }
    }
}

/// Why a load has no report.
#[derive(Debug, Error)]
pub enum LoadError {
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error("cannot find the host of {url}: {source}")]
    Host {
        /// Where to, without the password.
        url: Box<Url>,
        source: io::Error,
    },
    #[error("a load needs at least one client")]
    NoClients,
    #[error("{0} clients are more than the {CLIENTS_MAX} that a load may have")]
    TooManyClients(usize),
    #[error("{0} arrivals a second cannot be; give {RATES}")]
    Rate(f64),
    #[error(
        "{0} is no share of transactions of the high class; give a number from {HIGH_SHARE_MIN} \
         to 1, or leave the classes out"
    )]
    HighShare(f64),
    #[error("an interval of the measured time must be longer than nothing")]
    NoInterval,
    /// Too few files may be open.
    #[error(transparent)]
    Files(#[from] FileLimit),
    #[error("cannot connect to {place}: {reason}")]
    Connect {
        /// Where to, without the password.
        place: String,
        reason: Refusal,
    },
    #[error("cannot start a thread for each of {clients} clients: {source}")]
    Thread { clients: usize, source: io::Error },
    #[error(
        "only {connected} of {clients} clients could connect within {} s: {reason}",
        .timeout.as_secs()
    )]
    NotAllConnected {
        connected: usize,
        clients: usize,
        timeout: Duration,
        /// What stood in the way last.
        reason: Refusal,
    },
    #[error("{lost} of {clients} clients lost their connection before the end: {reason}")]
    Lost {
        lost: usize,
        clients: usize,
        /// What the first of them was told.
        reason: String,
    },
    #[error("all {0} connections broke during the run; is the server still up?")]
    AllLost(usize),
    #[error(transparent)]
    Records(#[from] RecordError),
    #[error("cancelled")]
    Cancelled,
    #[error("cannot wait for the clients' sockets: {0}")]
    Poll(io::Error),
}

/// What keeps a client from logging in.
#[derive(Debug, Error)]
pub enum Refusal {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Server(Failure),
    #[error("the server closed the connection during the login")]
    Closed,
    /// The server cannot be understood or satisfied.
    #[error(transparent)]
    Protocol(#[from] ClientProtocolError),
    #[error("the server does not answer")]
    Silent,
}

impl<'a> LoadOptions<'a> {
    /// A closed loop of such clients, in one class: without a warm-up, of no length yet, in
    /// intervals of a second.
    pub fn new(target: LoadTarget<'a>, workload: Arc<dyn Workload>, clients: usize) -> Self {
        LoadOptions {
            target,
            workload,
            arrivals: Arrivals::Closed,
            clients,
            needs_all: false,
            priority: None,
            transactions_max: None,
            warmup: Duration::ZERO,
            duration: Duration::ZERO,
            interval: Duration::from_secs(1),
            seed: 1,
            requests: RequestTimes::default(),
        }
    }

    fn validate(&self) -> Result<(), LoadError> {
        if self.clients == 0 {
            return Err(LoadError::NoClients);
        }
        if !u32::try_from(self.clients).is_ok_and(|clients| clients <= CLIENTS_MAX) {
            return Err(LoadError::TooManyClients(self.clients));
        }
        let share = self.priority.map_or(1.0, |priority| priority.high_share);
        if !(HIGH_SHARE_MIN..=1.0).contains(&share) {
            return Err(LoadError::HighShare(share));
        }
        match self.arrivals {
            Arrivals::Poisson { rate } | Arrivals::Constant { rate } if !is_rate(rate) => {
                Err(LoadError::Rate(rate))
            }
            _ if self.interval.is_zero() => Err(LoadError::NoInterval),
            _ => Ok(()),
        }
    }
}

/// Runs a load to its end; calls `progress` about once a second and gives up soon after `cancel`
/// becomes true, breaking all connections.
///
/// # Errors
/// See [`LoadError`]. Errors of transactions and lost connections are in the report instead.
pub fn run(
    options: &LoadOptions<'_>,
    cancel: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> Result<LoadReport, LoadError> {
    run_phases(options, &[], cancel, progress)
}

/// As [`run`], with more phases of measured time after the one that the options describe.
pub fn run_phases(
    options: &LoadOptions<'_>,
    then: &[Phase],
    cancel: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> Result<LoadReport, LoadError> {
    run_alongside(options, then, Alongside::default(), cancel, progress)
}

/// As [`run_phases`], with what is kept beside the report.
pub fn run_alongside(
    options: &LoadOptions<'_>,
    then: &[Phase],
    alongside: Alongside,
    cancel: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> Result<LoadReport, LoadError> {
    options.validate()?;
    match &options.target {
        LoadTarget::Url { url, connecting } => {
            let server = protocol::Server::find(url)?;
            let classes = ClassDraws::new(options.priority, options.seed).classes();
            files::reserve_files(options.clients * classes.len())?;
            let crowd = sockets::Sockets::new(options, server, *connecting)?;
            LoadRun::new(options, crowd, cancel, progress).with(alongside).run(then)
        }
        LoadTarget::Threads { connector, connecting } => {
            files::reserve_files(options.clients.saturating_mul(FILES_OF_THREAD))?;
            let crowd = threads::Threads::new(options, connector, *connecting);
            LoadRun::new(options, crowd, cancel, progress).with(alongside).run(then)
        }
        LoadTarget::Embedded(service) => {
            let crowd = calls::Calls::new(options, service);
            LoadRun::new(options, crowd, cancel, progress).with(alongside).run(then)
        }
    }
}

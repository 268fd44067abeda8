//! The server: one queue of requests, and as many workers as the gate lets in.
//!
//! # Mechanism
//! The architecture is worker-per-request (auto-tuning study, chapter 2): a request is a whole
//! transaction, a procedure registered by name. [`Server::call`] asks the gate for a permit. With
//! one the request is ready, and a worker takes it; without, it waits in the gate's queue, higher
//! class first, until a permit comes back. So the multiprogramming level is the limit of the gate,
//! and any [`Controller`] may set it.
//!
//! A worker runs the procedure in a transaction and commits it. If a conflict ends it, it is run
//! again under the same permit: what has started is never queued again. A request that runs far
//! longer than the others stops counting against the limit ([`tidegate_control::OverdueRule`]), so
//! that a few long ones do not stop the rest. There are at most as many workers as permits were
//! ever out; one that has had nothing to do for a while goes, so that after a lowered limit the
//! pool shrinks.
//!
//! # Example
//! Limit 1. A and B call at once. A gets the permit, B a ticket. A's worker commits, answers, and
//! gives the permit back, which wakes B's ticket: B is ready, and the same worker takes it.
//!
//! # Limits
//! A worker that waits for a lock keeps its thread. That is what the study's server does, and why
//! its pool must not be too small.

mod client;
mod listener;
mod maturity;
mod pool;
mod protocol;
mod socket;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use thiserror::Error;
use tidegate_control::{Controller, IntervalRule, Mpl, SplitMix64};
use tidegate_gate::Snapshot;
use tidegate_gate::{
    Admission, Class, DatabaseState, Discounted, Gate, Governor, Limits, QueueFull, Request,
};

use crate::store::{Store, StoreError};
use crate::txn::{Transaction, TxnError, TxnOptions};

pub use client::{CallFailure, CallResult, Client, ClientError, ClientOptions, ConnectionEnd};
pub use listener::{ListenError, Listener, ListenerOptions};
pub use protocol::{FailureKind, GoodbyeReason, ProtocolError, RequestId, TooLong};
pub use socket::Endpoint;
pub use tidegate_gate::Adjustment;

use maturity::Maturity;
use pool::{Job, Pool, Reply};

/// A transaction as a whole: reads and writes, and answers with some bytes.
pub type Procedure =
    Box<dyn Fn(&mut Transaction, &[u8]) -> Result<Vec<u8>, TxnError> + Send + Sync>;

/// How a server runs.
#[derive(Clone, Copy, Debug)]
pub struct ServerOptions {
    /// How transactions run.
    pub transactions: TxnOptions,
    /// Permits that may be out at once with those that are discounted: a request that runs far
    /// longer than the others stops counting against the limit, and others are let in for it. A
    /// limit above this takes its place; one equal to it discounts nothing.
    pub mpl_max: Mpl,
    /// Requests that may wait at once.
    pub waiting_max: usize,
    /// How long a request waits for a permit; `None` for as long as it takes.
    pub queue_timeout: Option<Duration>,
    /// How often a transaction is run again after a conflict.
    pub retries_max: u32,
    /// How long a control interval lasts.
    pub interval: IntervalRule,
    /// Where the controller's draws begin.
    pub seed: u64,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            transactions: TxnOptions::default(),
            mpl_max: Mpl::at_least_one(1_000),
            waiting_max: 10_000,
            queue_timeout: None,
            retries_max: 1_000,
            interval: IntervalRule::default(),
            seed: 1,
        }
    }
}

/// Why a call has no answer.
#[derive(Debug, Error)]
pub enum CallError {
    /// No procedure has that name.
    #[error("there is no procedure {0}; register it before the server is started")]
    NoProcedure(String),
    /// Too many wait already.
    #[error("{0} requests wait already; call again later")]
    Full(usize),
    /// It waited too long for a permit.
    #[error("the request waited longer than the queue timeout; call again later")]
    Expired,
    /// The transaction failed.
    #[error(transparent)]
    Failed(#[from] TxnError),
    /// The procedure panicked; its transaction was rolled back.
    #[error("the procedure panicked")]
    Panicked,
    /// The server is being stopped.
    #[error("the server is being stopped")]
    Stopped,
}

/// What a call is answered with.
pub type Answer = Result<Vec<u8>, CallError>;

/// What all threads of a server share.
pub(super) struct Shared {
    store: Arc<Store>,
    procedures: HashMap<String, Arc<Procedure>>,
    options: ServerOptions,
    gate: Gate,
    pool: Pool,
    maturity: Maturity,
    stop: Mutex<bool>,
    bell: Condvar,
}

/// A server. Dropped, it lets what has started end and refuses the rest.
pub struct Server {
    shared: Arc<Shared>,
    governor: Option<JoinHandle<()>>,
}

/// Told of every decision of the controller, on the governor's thread.
pub type Observer = Box<dyn FnMut(&Adjustment) + Send>;

/// How often deadlines and the end of an interval are looked for.
const TICK: Duration = Duration::from_millis(20);

/// There are no two warnings of long requests within this time.
const WARNING_INTERVAL: Duration = Duration::from_secs(1);

impl Server {
    /// Starts a server whose limit `controller` sets.
    ///
    /// # Errors
    /// The system gave no thread.
    pub fn start(
        store: Arc<Store>,
        procedures: impl IntoIterator<Item = (String, Procedure)>,
        controller: Box<dyn Controller>,
        options: ServerOptions,
        observer: Observer,
    ) -> Result<Server, StoreError> {
        let ServerOptions { mpl_max, waiting_max, .. } = options;
        let limits = Limits { mpl: controller.start(), mpl_max, waiting_max };
        let gate = Gate::new(limits, Instant::now());
        let draws = SplitMix64::new(options.seed);
        let governor = Governor::new(gate.clone(), controller, options.interval, draws);
        let procedures = procedures.into_iter().map(|(name, code)| (name, Arc::new(code)));
        let shared = Arc::new(Shared {
            store,
            procedures: procedures.collect(),
            options,
            gate,
            pool: Pool::new(),
            maturity: Maturity::default(),
            stop: Mutex::new(false),
            bell: Condvar::new(),
        });
        let governed = Arc::clone(&shared);
        let governor = std::thread::Builder::new()
            .name("tidegate-governor".into())
            .spawn(move || govern(&governed, governor, observer))
            .map_err(|source| StoreError::Io { action: "start the governor", source })?;
        Ok(Server { shared, governor: Some(governor) })
    }

    /// Runs a procedure as a transaction and waits for its answer.
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn call(&self, procedure: &str, arguments: &[u8], class: Class) -> Answer {
        let (answer, answered) = mpsc::sync_channel(1);
        self.submit(procedure, arguments, class, move |result| {
            // Who called waits for it below.
            let _ = answer.send(result);
        });
        answered.recv().unwrap_or(Err(CallError::Stopped))
    }

    /// Asks for a procedure to be run as a transaction. `answer` is called once in any case, with
    /// what [`Server::call`] would return: on a worker, or on the thread that calls, and soon; what
    /// takes time there keeps a worker from the next request. One thread can so be many clients.
    pub fn submit(
        &self,
        procedure: &str,
        arguments: &[u8],
        class: Class,
        answer: impl FnOnce(Answer) + Send + 'static,
    ) {
        let reply = Reply::new(Box::new(answer));
        let Some(code) = self.shared.procedures.get(procedure) else {
            return reply.send(Err(CallError::NoProcedure(procedure.to_owned())));
        };
        self.request(Job::new(Arc::clone(code), arguments.to_vec(), reply), class);
    }

    fn request(&self, job: Job, class: Class) {
        let shared = &self.shared;
        let token = shared.pool.arrive(job);
        let now = Instant::now();
        let weak = Arc::downgrade(shared);
        let waker: tidegate_gate::Waker = Arc::new(move |token| {
            if let Some(shared) = weak.upgrade() {
                shared.pool.wake(&shared, token);
            }
        });
        let deadline = shared.options.queue_timeout.map(|timeout| now + timeout);
        let request = Request { class, deadline, token, waker: &waker };
        match shared.gate.request(&request, now) {
            Admission::Granted(permit) => shared.pool.granted(shared, token, permit),
            Admission::Queued(ticket) => shared.pool.queued(shared, token, ticket),
            Admission::Refused(QueueFull { waiting }) => shared.pool.refuse(token, waiting),
        }
    }

    /// The gate's state at this moment.
    #[must_use]
    pub fn gate(&self) -> Snapshot {
        self.shared.gate.snapshot()
    }

    /// How many workers there are.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.shared.pool.workers()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        *self.shared.stop.lock() = true;
        self.shared.bell.notify_all();
        if let Some(governor) = self.governor.take()
            && governor.join().is_err()
        {
            tracing::error!("the governor panicked");
        }
        self.shared.pool.stop();
    }
}

/// Ends control intervals and lets deadlines pass, until the server is stopped.
fn govern(shared: &Shared, mut governor: Governor, mut observer: Observer) {
    let mut stop = shared.stop.lock();
    let mut warned = None;
    while !*stop {
        shared.bell.wait_for(&mut stop, TICK);
        let now = Instant::now();
        shared.gate.expire(now);
        warn(&shared.gate.discount(now), &mut warned, now);
        let state = |_| {
            let locks = shared.maturity.observe(&shared.store.locks().statistics());
            DatabaseState { locks: Some(locks), server: None }
        };
        if let Some(adjustment) = governor.tick_with(now, state) {
            observer(&adjustment);
        }
    }
}

/// Warns of requests that no longer count against the limit, at most once in [`WARNING_INTERVAL`].
fn warn(discounted: &[Discounted], warned: &mut Option<Instant>, now: Instant) {
    let Some(oldest) = discounted.first() else { return };
    if warned.is_some_and(|last| now.saturating_duration_since(last) < WARNING_INTERVAL) {
        return;
    }
    *warned = Some(now);
    tracing::warn!(
        class = oldest.class.name(),
        age_ms = oldest.age.as_millis(),
        requests = discounted.len(),
        "requests run far longer than the others and no longer count against the limit"
    );
}

impl Shared {
    /// Runs a job to its end, again after each conflict.
    fn run(&self, code: &Procedure, arguments: &[u8]) -> Answer {
        for attempt in 0.. {
            match self.attempt(code, arguments) {
                Ok(answer) => return Ok(answer),
                Err(error) if error.is_retryable() && attempt < self.options.retries_max => {}
                Err(error) => return Err(CallError::Failed(error)),
            }
        }
        Err(CallError::Stopped)
    }

    fn attempt(&self, code: &Procedure, arguments: &[u8]) -> Result<Vec<u8>, TxnError> {
        let mut transaction = self.store.begin(self.options.transactions);
        let running = Running { maturity: &self.maturity, number: transaction.id().0 };
        self.maturity.began(running.number, transaction.watch());
        let answer = code(&mut transaction, arguments)?;
        let locks = transaction.lock_count();
        transaction.commit()?;
        self.maturity.ended(running.number, Some(locks));
        Ok(answer)
    }
}

/// A transaction that runs, until it is dropped: also when it fails, or its procedure panics.
struct Running<'s> {
    maturity: &'s Maturity,
    number: u64,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.maturity.ended(self.number, None);
    }
}

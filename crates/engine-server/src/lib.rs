//! Runs transactions of a store as named procedures, as many at once as a gate admits.
//!
//! # Mechanism
//! A request is a whole transaction: a [`Procedure`], registered by name, and its arguments. This
//! is the worker-per-request architecture (auto-tuning study, chapter 2). [`Server::call`] asks the
//! gate for a permit. A request with a permit is ready, and a worker thread runs it. A request
//! without one waits in the gate's queue, higher class first, until a permit comes back. So the
//! gate's limit is the multiprogramming level, and any [`Controller`] may set it.
//!
//! A worker runs the procedure in a transaction and commits it. Where transactions do not begin
//! through the engine's store, but through what is built on it, a [`RequestHandler`] begins and
//! commits them itself. After a conflict the worker runs the same again under the same permit: a
//! transaction that has started is never queued again. A request that runs far longer than the
//! others stops counting against the limit ([`tidegate_control::OverdueRule`]), so that a few long
//! ones do not stop the rest. The pool never has more workers than permits were out at once. A
//! worker that was idle for five seconds ends, so the pool shrinks after the limit was lowered.
//!
//! # Priorities
//! A request has a [`Class`], which counts where [`ClassPriorities`] says. At the gate the high
//! class goes first in the queue. In lock queues a transaction of the high class passes those of
//! the normal class, and preempts them while they wait ([`tidegate_engine::lock`]). On processors
//! its work comes first. The latter two are the internal prioritization that the
//! external-scheduling study compares with a gate (Schroeder et al., ICDE 2006, Section 5.2).
//!
//! # Example
//! The limit is 1, and A and B call at once. A gets the permit, B a ticket. A worker runs A's
//! transaction, gives the permit back and answers. The permit wakes B's ticket: B is ready, and the
//! same worker runs it.
//!
//! ```
//! use std::sync::Arc;
//!
//! use tidegate_control::{Algorithm, Bounds, Mpl, Resources, Setting};
//! use tidegate_engine::disk::{Disk, Faults, SimulatedDisk};
//! use tidegate_engine::wal::LogId;
//! use tidegate_engine::{Store, StoreOptions};
//! use tidegate_engine_server::{Procedure, Server, ServerOptions};
//! use tidegate_gate::Class;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new(1, Faults::default()));
//! let store = Arc::new(Store::create(&disk, LogId(1), &StoreOptions::default())?);
//! let names = store.create_tree("names")?;
//! let add: Procedure = Box::new(move |transaction, name| {
//!     transaction.insert(&names, name, b"")?;
//!     Ok(b"added".to_vec())
//! });
//!
//! let limit = Mpl::at_least_one(4);
//! let setting = Setting {
//!     bounds: Bounds::new(Mpl::ONE, Mpl::at_least_one(100))?,
//!     start: limit,
//!     resources: Resources { cpus: 2, disks: 1 },
//! };
//! let controller = Algorithm::Fixed(limit).controller(&setting);
//! let procedures = [("add".to_owned(), add)];
//! let options = ServerOptions::default();
//! let server = Server::start(store, procedures, controller, options, Box::new(|_| ()))?;
//! assert_eq!(server.call("add", b"Ada", Class::Normal)?, b"added");
//! # Ok(())
//! # }
//! ```
//!
//! # Limits
//! * A worker that waits for a lock keeps its thread, as the study's server does. That is why the
//!   pool must not be too small.
//! * Priorities are not inherited: a transaction of the normal class that holds a lock for which
//!   the high class waits gets no processor sooner for it. The threads of the log and of the buffer
//!   have the normal priority.

mod maturity;
mod pool;

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;
use tidegate_control::{Controller, IntervalRule, Mpl, SplitMix64};
use tidegate_engine::lock::Priority as LockPriority;
use tidegate_engine::{Store, StoreError, Transaction, TxnError, TxnOptions};
use tidegate_gate::Snapshot;
use tidegate_gate::{Admission, Class, DatabaseState, Discounted, Gate, Governor, Limits, Request};
use tidegate_runtime::sync::{Condvar, LongMutex, channel};
use tidegate_runtime::thread::{self, JoinHandle};
use tidegate_runtime::{Priority, clock};

pub use tidegate_gate::Adjustment;

use maturity::Maturity;
use pool::{Job, Pool, Reply};

/// The code of a transaction. It gets the arguments of a request and returns the answer.
pub type Procedure =
    Box<dyn Fn(&mut Transaction, &[u8]) -> Result<Vec<u8>, TxnError> + Send + Sync>;

type HandlerCode = dyn Fn(&Attempt<'_>, &[u8]) -> Result<Vec<u8>, TxnError> + Send + Sync;

/// The code of a request that begins its transaction, runs it and commits it. It gets the arguments
/// of the request and returns the answer. A [`Procedure`] is turned into one by `into`.
pub struct RequestHandler(Box<HandlerCode>);

impl RequestHandler {
    /// Makes a handler of code, which is called again after each conflict.
    pub fn new(
        code: impl Fn(&Attempt<'_>, &[u8]) -> Result<Vec<u8>, TxnError> + Send + Sync + 'static,
    ) -> RequestHandler {
        RequestHandler(Box::new(code))
    }
}

impl From<Procedure> for RequestHandler {
    /// Returns a handler that runs the procedure in a transaction of the server's store.
    fn from(procedure: Procedure) -> RequestHandler {
        RequestHandler::new(move |attempt, arguments| {
            let mut transaction = attempt.store.begin(attempt.options);
            attempt.began(&transaction);
            let answer = procedure(&mut transaction, arguments)?;
            let locks = transaction.lock_count();
            transaction.commit()?;
            attempt.committed(locks);
            Ok(answer)
        })
    }
}

/// One run of a request's code, which may end in a conflict.
pub struct Attempt<'s> {
    store: &'s Store,
    options: TxnOptions,
    maturity: &'s Maturity,
    /// The transaction that was begun, until it is committed.
    running: Cell<Option<u64>>,
}

impl Attempt<'_> {
    /// Returns the options that the transaction has to begin with.
    #[must_use]
    pub fn options(&self) -> TxnOptions {
        self.options
    }

    /// Records that the transaction has begun, so that controllers see how many locks it holds.
    pub fn began(&self, transaction: &Transaction) {
        let number = transaction.id().0;
        self.maturity.began(number, transaction.watch());
        self.running.set(Some(number));
    }

    /// Records that the transaction was committed, with so many locks.
    pub fn committed(&self, locks: usize) {
        if let Some(number) = self.running.take() {
            self.maturity.ended(number, Some(locks));
        }
    }
}

impl Drop for Attempt<'_> {
    /// Removes a transaction that was not committed, also after an error or a panic.
    fn drop(&mut self) {
        if let Some(number) = self.running.take() {
            self.maturity.ended(number, None);
        }
    }
}

/// Where the high class goes first; by default at the gate only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassPriorities {
    /// In the gate's queue. Otherwise the gate takes all requests for those of the normal class.
    pub gate: bool,
    /// In lock queues: transactions of the high class have the highest [`TxnOptions::priority`].
    /// This has an effect if the store was opened with
    /// [`Priorities::PreemptOnWait`](tidegate_engine::lock::Priorities::PreemptOnWait).
    pub locks: bool,
    /// On the processors of a machine in virtual time: a request of the high class has
    /// [`Priority::High`](tidegate_runtime::Priority::High) from its begin to its commit. Threads
    /// of the operating system have no priorities.
    pub processors: bool,
}

impl Default for ClassPriorities {
    fn default() -> Self {
        ClassPriorities { gate: true, locks: false, processors: false }
    }
}

/// Settings of a server.
#[derive(Clone, Copy, Debug)]
pub struct ServerOptions {
    /// Isolation, durability and priority of every transaction. With
    /// [`ClassPriorities::locks`] the priority is that of the normal class.
    pub transactions: TxnOptions,
    /// Where the high class goes first.
    pub priorities: ClassPriorities,
    /// The most permits that may be out at once, including discounted ones. A request that runs far
    /// longer than the others is discounted: it stops counting against the limit, and another is
    /// admitted in its place. A higher limit of the controller replaces this value; an equal one
    /// leaves no room for discounting.
    pub mpl_max: Mpl,
    /// The most requests that may wait at once.
    pub waiting_max: usize,
    /// How long a request may wait for a permit; `None` for no bound.
    pub queue_timeout: Option<Duration>,
    /// The most times a transaction is run again after a conflict.
    pub retries_max: u32,
    /// The length of a control interval.
    pub interval: IntervalRule,
    /// The seed of the controller's random draws.
    pub seed: u64,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            transactions: TxnOptions::default(),
            priorities: ClassPriorities::default(),
            mpl_max: Mpl::at_least_one(1_000),
            waiting_max: 10_000,
            queue_timeout: None,
            retries_max: 1_000,
            interval: IntervalRule::default(),
            seed: 1,
        }
    }
}

impl ServerOptions {
    /// Returns the settings of a transaction of a class.
    fn of(&self, class: Class) -> TxnOptions {
        match class {
            Class::High if self.priorities.locks => {
                self.transactions.priority(LockPriority(u8::MAX))
            }
            Class::High | Class::Normal => self.transactions,
        }
    }
}

/// Errors of a call.
#[derive(Debug, Error)]
pub enum CallError {
    /// No procedure of that name is registered.
    #[error("there is no procedure {0}; register it before the server is started")]
    NoProcedure(String),
    /// As many requests wait as may wait at once.
    #[error("{0} requests wait already; call again later")]
    Full(usize),
    /// The request waited longer than [`ServerOptions::queue_timeout`].
    #[error("the request waited longer than the queue timeout; call again later")]
    Expired,
    /// The transaction failed, or conflicts ended it more often than it may be run again.
    #[error(transparent)]
    Failed(#[from] TxnError),
    /// The procedure panicked. Its transaction was rolled back.
    #[error("the procedure panicked")]
    Panicked,
    /// The server is being stopped.
    #[error("the server is being stopped")]
    Stopped,
}

/// The result of a call.
pub type Answer = Result<Vec<u8>, CallError>;

/// State shared by the threads of a server.
struct Shared {
    store: Arc<Store>,
    procedures: HashMap<String, Arc<RequestHandler>>,
    options: ServerOptions,
    gate: Gate,
    pool: Pool,
    maturity: Maturity,
    /// Held by the governor while it works.
    stop: LongMutex<bool>,
    stopped: Condvar,
}

/// A running server. Dropping it waits for transactions that have started and refuses the rest.
pub struct Server {
    shared: Arc<Shared>,
    governor: Option<JoinHandle<()>>,
}

/// Called with every decision of the controller, on the governor's thread.
pub type Observer = Box<dyn FnMut(&Adjustment) + Send>;

/// How often the governor checks deadlines and the end of the interval.
const TICK: Duration = Duration::from_millis(20);

/// The least time between two warnings of long requests.
const WARNING_INTERVAL: Duration = Duration::from_secs(1);

impl Server {
    /// Starts a server whose limit is set by `controller`. Each procedure is a [`Procedure`] or a
    /// [`RequestHandler`].
    ///
    /// # Errors
    /// Returns [`StoreError::Io`] if the governor's thread cannot be started.
    pub fn start<C: Into<RequestHandler>>(
        store: Arc<Store>,
        procedures: impl IntoIterator<Item = (String, C)>,
        controller: Box<dyn Controller>,
        options: ServerOptions,
        observer: Observer,
    ) -> Result<Server, StoreError> {
        let ServerOptions { mpl_max, waiting_max, .. } = options;
        let limits = Limits { mpl: controller.start(), mpl_max, waiting_max };
        let gate = Gate::new(limits, clock::now());
        let draws = SplitMix64::new(options.seed);
        let governor = Governor::new(gate.clone(), controller, options.interval, draws);
        let procedures = procedures.into_iter().map(|(name, code)| (name, Arc::new(code.into())));
        let shared = Arc::new(Shared {
            store,
            procedures: procedures.collect(),
            options,
            gate,
            pool: Pool::new(),
            maturity: Maturity::default(),
            stop: LongMutex::new(false),
            stopped: Condvar::new(),
        });
        let governed = Arc::clone(&shared);
        let govern = move || govern(&governed, governor, observer);
        let governor = thread::spawn("tidegate-governor", govern)
            .map_err(|source| StoreError::Io { action: "start the governor", source })?;
        Ok(Server { shared, governor: Some(governor) })
    }

    /// Runs a procedure as a transaction and waits for its answer.
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn call(&self, procedure: &str, arguments: &[u8], class: Class) -> Answer {
        let (answer, answered) = channel();
        self.submit(procedure, arguments, class, move |result| {
            // The receiver lives until `recv` below has returned.
            let _ = answer.send(result);
        });
        answered.recv().unwrap_or(Err(CallError::Stopped))
    }

    /// Submits a request and returns without waiting, so that one thread can act for many clients.
    /// `answer` is called exactly once with what [`Server::call`] would return, on a worker or on
    /// the calling thread. It should return quickly, because it keeps a worker from the next
    /// request.
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
        self.request(Job::new(Arc::clone(code), arguments.to_vec(), class, reply));
    }

    fn request(&self, job: Job) {
        let shared = &self.shared;
        let class = if shared.options.priorities.gate { job.class() } else { Class::Normal };
        let token = shared.pool.add(job);
        let now = clock::now();
        let weak = Arc::downgrade(shared);
        let waker: tidegate_gate::Waker = Arc::new(move |token| {
            if let Some(shared) = weak.upgrade() {
                shared.pool.wake(&shared, token);
            }
        });
        let wait_until = shared.options.queue_timeout.map(|timeout| now + timeout);
        let request = Request { wait_until, ..Request::new(class, token, &waker) };
        match shared.gate.request(&request, now) {
            Admission::Granted(permit) => shared.pool.granted(shared, token, permit),
            Admission::Queued(ticket) => shared.pool.queued(shared, token, ticket),
            Admission::Refused(refusal) => shared.pool.refuse(token, refusal.waiting as usize),
        }
    }

    /// Returns the present state of the gate.
    #[must_use]
    pub fn gate(&self) -> Snapshot {
        self.shared.gate.snapshot()
    }

    /// Returns the number of worker threads.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.shared.pool.workers()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        *self.shared.stop.lock() = true;
        self.shared.stopped.notify_all();
        if let Some(governor) = self.governor.take()
            && governor.join().is_err()
        {
            tracing::error!("the governor panicked");
        }
        self.shared.pool.stop();
    }
}

/// Ends control intervals and expires requests until the server is stopped.
fn govern(shared: &Shared, mut governor: Governor, mut observer: Observer) {
    let mut stop = shared.stop.lock();
    let mut warned = None;
    while !*stop {
        shared.stopped.wait_until(&mut stop, clock::now() + TICK);
        let now = clock::now();
        shared.gate.expire(now);
        warn(&shared.gate.discount(now), &mut warned, now);
        let state = |_| {
            let locks = shared.maturity.observe(&shared.store.lock_statistics());
            DatabaseState { locks: Some(locks), server: None }
        };
        if let Some(adjustment) = governor.tick_with(now, state) {
            observer(&adjustment);
        }
    }
}

/// Logs a warning of discounted requests, at most once in [`WARNING_INTERVAL`].
fn warn(discounted: &[Discounted], warned: &mut Option<Instant>, now: Instant) {
    let Some(oldest) = discounted.first() else { return };
    if warned.is_some_and(|last| now.saturating_duration_since(last) < WARNING_INTERVAL) {
        return;
    }
    *warned = Some(now);
    tracing::warn!(
        class = Class::ALL.get(oldest.class.index()).map(|class| class.name()),
        age_ms = oldest.age.as_millis(),
        requests = discounted.len(),
        "requests run far longer than the others and no longer count against the limit"
    );
}

impl Shared {
    /// Runs the code of a request of a class, and again after each conflict.
    fn run(&self, code: &RequestHandler, arguments: &[u8], class: Class) -> Answer {
        let _priority = ProcessorPriority::of(class, self.options.priorities);
        let mut retries = 0;
        loop {
            let attempt = Attempt {
                store: &self.store,
                options: self.options.of(class),
                maturity: &self.maturity,
                running: Cell::new(None),
            };
            match code.0(&attempt, arguments) {
                Err(error) if error.is_retryable() && retries < self.options.retries_max => {
                    retries += 1;
                }
                result => return result.map_err(CallError::Failed),
            }
        }
    }
}

/// Has the processor priority of a request until it is dropped, also after a panic.
struct ProcessorPriority {
    is_high: bool,
}

impl ProcessorPriority {
    fn of(class: Class, priorities: ClassPriorities) -> ProcessorPriority {
        let is_high = priorities.processors && class == Class::High;
        if is_high {
            thread::set_priority(Priority::High);
        }
        ProcessorPriority { is_high }
    }
}

impl Drop for ProcessorPriority {
    fn drop(&mut self) {
        if self.is_high {
            // It pays for the work of the request first, at the old priority.
            thread::set_priority(Priority::Normal);
        }
    }
}

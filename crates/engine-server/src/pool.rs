//! The worker threads, and the requests that wait for a permit or a worker.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tidegate_gate::{Claim, Class, Outcome, Permit, Ticket};
use tidegate_runtime::clock;
use tidegate_runtime::sync::{Condvar, Mutex};
use tidegate_runtime::thread::{self, JoinHandle};
use tidegate_runtime::work::{self, Operation};

use crate::{Answer, CallError, RequestHandler, Shared};

/// A worker that was idle for this long ends.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// A request that no worker has finished.
pub(crate) struct Job {
    code: Arc<RequestHandler>,
    arguments: Vec<u8>,
    class: Class,
    reply: Reply,
    progress: Progress,
}

/// The callback that takes the answer. When dropped uncalled, it is called with
/// [`CallError::Stopped`]. No lock of the server may be held meanwhile, because it may call the
/// server again.
pub(crate) struct Reply(Option<Box<dyn FnOnce(Answer) + Send>>);

impl Reply {
    pub(crate) fn new(answer: Box<dyn FnOnce(Answer) + Send>) -> Reply {
        Reply(Some(answer))
    }

    pub(crate) fn send(mut self, answer: Answer) {
        self.call(answer);
    }

    fn call(&mut self, answer: Answer) {
        if let Some(callback) = self.0.take() {
            // A client's panic must not end the worker.
            if catch_unwind(AssertUnwindSafe(|| callback(answer))).is_err() {
                tracing::error!("the callback of a request panicked");
            }
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.call(Err(CallError::Stopped));
    }
}

/// How far a job is with its permit.
enum Progress {
    /// The gate was asked and has not answered yet, but it may have woken the job already.
    Asked {
        is_woken: bool,
    },
    Queued(Ticket),
    Admitted(Permit),
}

impl Job {
    pub(crate) fn new(
        code: Arc<RequestHandler>,
        arguments: Vec<u8>,
        class: Class,
        reply: Reply,
    ) -> Job {
        Job { code, arguments, class, reply, progress: Progress::Asked { is_woken: false } }
    }

    pub(crate) fn class(&self) -> Class {
        self.class
    }
}

/// The jobs and the workers.
pub(crate) struct Pool {
    state: Mutex<State>,
    job_ready: Condvar,
}

#[derive(Default)]
struct State {
    /// By token, in order, so that a server that stops drops them in the same order each time. No
    /// token is used twice, because the gate may wake a job that has ended.
    jobs: BTreeMap<u64, Job>,
    next_token: u64,
    /// Jobs with a permit that no worker has taken yet.
    ready: VecDeque<u64>,
    /// All workers.
    workers: usize,
    /// Workers that run a job. The others are idle or about to look for a job.
    running: usize,
    threads: Vec<JoinHandle<()>>,
    is_stopping: bool,
}

impl Pool {
    pub(crate) fn new() -> Pool {
        Pool { state: Mutex::default(), job_ready: Condvar::new() }
    }

    pub(crate) fn workers(&self) -> usize {
        self.state.lock().workers
    }

    /// Adds a job before the gate is asked. Returns its token.
    pub(crate) fn add(&self, job: Job) -> u64 {
        let mut state = self.state.lock();
        let token = state.next_token;
        state.next_token += 1;
        state.jobs.insert(token, job);
        token
    }

    /// Answers a job that the gate has refused because of the number `waiting`.
    pub(crate) fn refuse(&self, token: u64, waiting: usize) {
        let job = self.state.lock().jobs.remove(&token);
        if let Some(job) = job {
            job.reply.send(Err(CallError::Full(waiting)));
        }
    }

    /// Records that the gate has admitted a job.
    pub(crate) fn granted(&self, shared: &Arc<Shared>, token: u64, permit: Permit) {
        let mut state = self.state.lock();
        if let Some(job) = state.jobs.get_mut(&token) {
            job.progress = Progress::Admitted(permit);
            self.make_ready(shared, &mut state, token);
        }
    }

    /// Records that the gate has queued a job, which it may have woken since.
    pub(crate) fn queued(&self, shared: &Arc<Shared>, token: u64, ticket: Ticket) {
        let mut state = self.state.lock();
        let Some(job) = state.jobs.get_mut(&token) else { return };
        let is_woken = matches!(job.progress, Progress::Asked { is_woken: true });
        job.progress = Progress::Queued(ticket);
        let expired = if is_woken { self.claim(shared, &mut state, token) } else { None };
        drop(state);
        expire(expired);
    }

    /// Called by the gate when the ticket of a job should be claimed.
    pub(crate) fn wake(&self, shared: &Arc<Shared>, token: u64) {
        let mut state = self.state.lock();
        let expired = match state.jobs.get_mut(&token).map(|job| &mut job.progress) {
            Some(Progress::Asked { is_woken }) => {
                *is_woken = true;
                None
            }
            Some(Progress::Queued(_)) => self.claim(shared, &mut state, token),
            Some(Progress::Admitted(_)) | None => None,
        };
        drop(state);
        expire(expired);
    }

    /// Claims the ticket of a job. Returns the job if it has waited too long.
    fn claim(&self, shared: &Arc<Shared>, state: &mut State, token: u64) -> Option<Job> {
        let mut job = state.jobs.remove(&token)?;
        let progress = std::mem::replace(&mut job.progress, Progress::Asked { is_woken: false });
        let claim = match progress {
            Progress::Queued(ticket) => ticket.claim(),
            other => {
                job.progress = other;
                state.jobs.insert(token, job);
                return None;
            }
        };
        match claim {
            Claim::Granted(permit) => {
                job.progress = Progress::Admitted(permit);
                state.jobs.insert(token, job);
                self.make_ready(shared, state, token);
                None
            }
            Claim::Waiting(ticket) => {
                job.progress = Progress::Queued(ticket);
                state.jobs.insert(token, job);
                None
            }
            Claim::Expired | Claim::Late(_) => Some(job),
        }
    }

    /// Hands an admitted job to the workers, and starts a worker if all are running. A worker that
    /// has just finished a job counts as free: so there are never more workers than permits out.
    fn make_ready(&self, shared: &Arc<Shared>, state: &mut State, token: u64) {
        state.ready.push_back(token);
        if state.workers < state.running + state.ready.len() {
            spawn(shared, state);
        } else {
            self.job_ready.notify_one();
        }
    }

    /// Records that a worker has run its job. It still has the permit.
    fn finished(&self) {
        self.state.lock().running -= 1;
    }

    /// Waits until all workers have finished their jobs and ended. Drops jobs that have not
    /// started.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        state.is_stopping = true;
        let abandoned = std::mem::take(&mut state.jobs);
        state.ready.clear();
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        // Outside the lock: their tickets and permits go back to the gate, which wakes others.
        drop(abandoned);
        self.job_ready.notify_all();
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a worker panicked");
            }
        }
    }

    /// Waits for a job to run. Returns `None` when the worker should end, which counts no more from
    /// then on: a job that comes next needs another one.
    fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if state.is_stopping {
                state.workers -= 1;
                return None;
            }
            while let Some(token) = state.ready.pop_front() {
                if let Some(job) = state.jobs.remove(&token) {
                    state.running += 1;
                    return Some(job);
                }
            }
            let until = clock::now() + IDLE_MAX;
            let is_over = !self.job_ready.wait_until(&mut state, until);
            if is_over && state.ready.is_empty() {
                state.workers -= 1;
                return None;
            }
        }
    }
}

fn expire(job: Option<Job>) {
    if let Some(job) = job {
        job.reply.send(Err(CallError::Expired));
    }
}

/// Starts a worker. If that fails, the job stays ready for the present workers.
fn spawn(shared: &Arc<Shared>, state: &mut State) {
    if state.is_stopping {
        return;
    }
    let worker = Arc::clone(shared);
    let name = format!("tidegate-worker-{}", state.threads.len());
    let thread = thread::spawn(&name, move || {
        while let Some(job) = worker.pool.next() {
            run(&worker, job);
        }
    });
    match thread {
        Ok(thread) => {
            state.workers += 1;
            // Handles of workers that have ended are not kept for ever.
            state.threads.retain(|thread| !thread.is_finished());
            state.threads.push(thread);
        }
        Err(error) => tracing::error!("a worker cannot be started: {error}"),
    }
}

fn run(shared: &Shared, job: Job) {
    work::count(Operation::Request, 1);
    let Job { code, arguments, class, reply, progress } = job;
    let result = catch_unwind(AssertUnwindSafe(|| shared.run(&code, &arguments, class)));
    let result = result.unwrap_or(Err(CallError::Panicked));
    shared.pool.finished();
    if let Progress::Admitted(permit) = progress {
        let is_good = result.is_ok();
        let outcome = if is_good { Outcome::Completed } else { Outcome::Failed };
        permit.finish(outcome, clock::now());
    }
    reply.send(result);
}

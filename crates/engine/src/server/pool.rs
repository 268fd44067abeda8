//! The workers and what they have to do.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tidegate_gate::{Claim, Outcome, Permit, Ticket};

use super::{Answer, CallError, Procedure, Shared};

/// A worker that has had nothing to do for so long goes.
const PATIENCE: Duration = Duration::from_secs(5);

/// A request on its way through the server.
pub(super) struct Job {
    code: Arc<Procedure>,
    arguments: Vec<u8>,
    reply: Reply,
    right: Right,
}

/// Who is to be told how a request ended. One that is dropped says that the server is being
/// stopped. No lock of the server is held when it is told, because it may call the server again.
pub(super) struct Reply(Option<Box<dyn FnOnce(Answer) + Send>>);

impl Reply {
    pub(super) fn new(answer: Box<dyn FnOnce(Answer) + Send>) -> Reply {
        Reply(Some(answer))
    }

    pub(super) fn send(mut self, answer: Answer) {
        self.tell(answer);
    }

    fn tell(&mut self, answer: Answer) {
        if let Some(tell) = self.0.take() {
            // A client's panic is not to end the worker.
            if catch_unwind(AssertUnwindSafe(|| tell(answer))).is_err() {
                tracing::error!("who was to be given an answer panicked");
            }
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.tell(Err(CallError::Stopped));
    }
}

/// What a job has of a permit.
enum Right {
    /// The gate has not answered yet; whether it has woken the job already.
    Asked {
        is_woken: bool,
    },
    Ticket(Ticket),
    Permit(Permit),
}

impl Job {
    pub(super) fn new(code: Arc<Procedure>, arguments: Vec<u8>, reply: Reply) -> Job {
        Job { code, arguments, reply, right: Right::Asked { is_woken: false } }
    }
}

/// Jobs, those of them that can run, and the workers.
pub(super) struct Pool {
    state: Mutex<State>,
    bell: Condvar,
}

#[derive(Default)]
struct State {
    /// By token. No token is used twice, because the gate may wake one that is gone.
    jobs: HashMap<u64, Job>,
    next_token: u64,
    /// Jobs with a permit that no worker has taken yet.
    ready: VecDeque<u64>,
    /// Workers; of these, those that run a job, and those that wait for one. The rest is between.
    workers: usize,
    running: usize,
    idle: usize,
    threads: Vec<JoinHandle<()>>,
    is_stopping: bool,
}

impl Pool {
    pub(super) fn new() -> Pool {
        Pool { state: Mutex::default(), bell: Condvar::new() }
    }

    pub(super) fn workers(&self) -> usize {
        self.state.lock().workers
    }

    /// Enters a job before the gate is asked; its token.
    pub(super) fn arrive(&self, job: Job) -> u64 {
        let mut state = self.state.lock();
        let token = state.next_token;
        state.next_token += 1;
        state.jobs.insert(token, job);
        token
    }

    /// The gate has refused a job, because so many wait already.
    pub(super) fn refuse(&self, token: u64, waiting: usize) {
        let job = self.state.lock().jobs.remove(&token);
        if let Some(job) = job {
            job.reply.send(Err(CallError::Full(waiting)));
        }
    }

    /// The gate has let a job in.
    pub(super) fn granted(&self, shared: &Arc<Shared>, token: u64, permit: Permit) {
        let mut state = self.state.lock();
        if let Some(job) = state.jobs.get_mut(&token) {
            job.right = Right::Permit(permit);
            self.make_ready(shared, &mut state, token);
        }
    }

    /// The gate lets a job wait. It may have been woken before this was known.
    pub(super) fn queued(&self, shared: &Arc<Shared>, token: u64, ticket: Ticket) {
        let mut state = self.state.lock();
        let Some(job) = state.jobs.get_mut(&token) else { return };
        let is_woken = matches!(job.right, Right::Asked { is_woken: true });
        job.right = Right::Ticket(ticket);
        let expired = if is_woken { self.claim(shared, &mut state, token) } else { None };
        drop(state);
        expire(expired);
    }

    /// The gate has something for a job that waits.
    pub(super) fn wake(&self, shared: &Arc<Shared>, token: u64) {
        let mut state = self.state.lock();
        let expired = match state.jobs.get_mut(&token).map(|job| &mut job.right) {
            Some(Right::Asked { is_woken }) => {
                *is_woken = true;
                None
            }
            Some(Right::Ticket(_)) => self.claim(shared, &mut state, token),
            Some(Right::Permit(_)) | None => None,
        };
        drop(state);
        expire(expired);
    }

    /// Claims a ticket: the job is ready, or is returned because it has waited too long.
    fn claim(&self, shared: &Arc<Shared>, state: &mut State, token: u64) -> Option<Job> {
        let mut job = state.jobs.remove(&token)?;
        let right = std::mem::replace(&mut job.right, Right::Asked { is_woken: false });
        let claim = match right {
            Right::Ticket(ticket) => ticket.claim(),
            other => {
                job.right = other;
                state.jobs.insert(token, job);
                return None;
            }
        };
        match claim {
            Claim::Granted(permit) => {
                job.right = Right::Permit(permit);
                state.jobs.insert(token, job);
                self.make_ready(shared, state, token);
                None
            }
            Claim::Waiting(ticket) => {
                job.right = Right::Ticket(ticket);
                state.jobs.insert(token, job);
                None
            }
            Claim::Expired => Some(job),
        }
    }

    /// A job with a permit is there for a worker. A worker that is between two jobs will come for
    /// it, so that there are never more workers than permits out.
    fn make_ready(&self, shared: &Arc<Shared>, state: &mut State, token: u64) {
        state.ready.push_back(token);
        if state.workers < state.running + state.ready.len() {
            spawn(shared, state);
        } else {
            self.bell.notify_one();
        }
    }

    /// A worker has run its job and still has the permit.
    fn ran(&self) {
        self.state.lock().running -= 1;
    }

    /// Lets workers end what they have begun, and ends them. Jobs that wait are given up.
    pub(super) fn stop(&self) {
        let mut state = self.state.lock();
        state.is_stopping = true;
        let given_up = std::mem::take(&mut state.jobs);
        state.ready.clear();
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        // Outside the lock: their tickets and permits go back to the gate, which wakes others.
        drop(given_up);
        self.bell.notify_all();
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a worker panicked");
            }
        }
    }

    /// The next job to be run, or `None` when the worker is to go.
    fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if state.is_stopping {
                return None;
            }
            while let Some(token) = state.ready.pop_front() {
                if let Some(job) = state.jobs.remove(&token) {
                    state.running += 1;
                    return Some(job);
                }
            }
            state.idle += 1;
            let is_over = self.bell.wait_for(&mut state, PATIENCE).timed_out();
            state.idle -= 1;
            if is_over && state.ready.is_empty() {
                return None;
            }
        }
    }

    fn gone(&self) {
        self.state.lock().workers -= 1;
    }
}

fn expire(job: Option<Job>) {
    if let Some(job) = job {
        job.reply.send(Err(CallError::Expired));
    }
}

/// One more worker. Without a thread the job stays ready for the workers there are.
fn spawn(shared: &Arc<Shared>, state: &mut State) {
    if state.is_stopping {
        return;
    }
    let worker = Arc::clone(shared);
    let name = format!("tidegate-worker-{}", state.threads.len());
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        while let Some(job) = worker.pool.next() {
            work(&worker, job);
        }
        worker.pool.gone();
    });
    match thread {
        Ok(thread) => {
            state.workers += 1;
            // Those that have gone of themselves are not kept for ever.
            state.threads.retain(|thread| !thread.is_finished());
            state.threads.push(thread);
        }
        Err(error) => tracing::error!("a worker cannot be started: {error}"),
    }
}

fn work(shared: &Shared, job: Job) {
    let Job { code, arguments, reply, right } = job;
    let run = catch_unwind(AssertUnwindSafe(|| shared.run(&code, &arguments)));
    let result = run.unwrap_or(Err(CallError::Panicked));
    shared.pool.ran();
    if let Right::Permit(permit) = right {
        let is_good = result.is_ok();
        let outcome = if is_good { Outcome::Completed } else { Outcome::Failed };
        permit.finish(outcome, Instant::now());
    }
    reply.send(result);
}

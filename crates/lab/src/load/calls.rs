//! Clients of the embedded engine: each calls a procedure, is answered, and calls the next.
//!
//! They are all on one thread. A call returns at once, and its answer comes through a channel from
//! the worker that ran the transaction.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use tidegate_subject::embedded::{CallError, Service};
use tidegate_workload::Draw;

use super::closed_loop::Crowd;
use super::session::Work;
use super::tally::Tally;
use super::{LoadError, LoadOptions, Stage};

/// Answers taken from the channel before others have their turn.
const ANSWERS: usize = 256;

pub(super) struct Calls<'a> {
    service: &'a Service<'a>,
    work: Work,
    clients: Vec<Caller>,
    answered: Sender<Answer>,
    answers: Receiver<Answer>,
    tally: Tally,
    alive: usize,
    losses: usize,
    conflicts_before: u64,
}

struct Caller {
    draw: Draw,
    /// When the transaction was called for; `None` when none is under way.
    began: Option<Instant>,
}

/// A client's number, and what became of its transaction.
type Answer = (usize, Result<(), CallError>);

impl<'a> Calls<'a> {
    pub(super) fn new(options: &LoadOptions<'_>, service: &'a Service<'a>) -> Self {
        let (answered, answers) = mpsc::channel();
        let caller =
            |index: usize| Caller { draw: Draw::new(options.seed, index as u64), began: None };
        Calls {
            service,
            work: Work { workload: options.workload, scale: options.scale },
            clients: (0..options.clients).map(caller).collect(),
            answered,
            answers,
            tally: Tally::new(),
            alive: options.clients,
            losses: 0,
            conflicts_before: conflicts(service),
        }
    }

    /// Calls for the client's next transaction.
    fn call(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let transaction = self.work.transaction(&mut client.draw);
        client.began = Some(Instant::now());
        let answered = self.answered.clone();
        self.service.submit(&transaction, move |result| {
            // Who has left does not want to know.
            let _ = answered.send((index, result));
        });
    }

    fn take(&mut self, (index, result): Answer) {
        let began = self.clients[index].began.take();
        match result {
            Ok(()) => self.tally.commit(began.map(|began| began.elapsed()).unwrap_or_default()),
            Err(_) if self.tally.stage == Stage::Draining => {}
            Err(CallError::Stopped | CallError::NoProcedure(_)) => {
                self.alive -= 1;
                self.losses += 1;
                return;
            }
            Err(error) => self.tally.error(kind(&error).to_owned()),
        }
        if self.tally.stage == Stage::Draining {
            self.alive -= 1;
        } else {
            self.call(index);
        }
    }
}

impl Crowd for Calls<'_> {
    fn gather(&mut self) -> Result<bool, LoadError> {
        self.service.give_up(false);
        Ok(true)
    }

    fn start(&mut self) {
        for index in 0..self.clients.len() {
            self.call(index);
        }
    }

    fn switch_to(&mut self, work: Work) {
        self.work = work;
    }

    fn enter(&mut self, stage: Stage) {
        self.tally.stage = stage;
        self.service.give_up(stage == Stage::Draining);
    }

    fn turn(&mut self, timeout: Duration) -> Result<(), LoadError> {
        match self.answers.recv_timeout(timeout) {
            Ok(answer) => self.take(answer),
            // We hold a sender ourselves, so the channel stays open.
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(()),
        }
        for _ in 1..ANSWERS {
            let Ok(answer) = self.answers.try_recv() else { break };
            self.take(answer);
        }
        Ok(())
    }

    fn alive(&self) -> usize {
        self.alive
    }

    fn oldest(&self, now: Instant) -> Duration {
        let began = self.clients.iter().filter_map(|client| client.began);
        began.min().map(|began| now.saturating_duration_since(began)).unwrap_or_default()
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }

    fn retries(&self) -> u64 {
        conflicts(self.service) - self.conflicts_before
    }

    fn losses(&self) -> usize {
        self.losses
    }

    fn connect_retries(&self) -> u64 {
        0
    }
}

impl Drop for Calls<'_> {
    /// Also when the load was cancelled, what still waits is not wanted any more.
    fn drop(&mut self) {
        self.service.give_up(true);
    }
}

/// Waits for locks that ended without the lock: after each of them a transaction is run again.
fn conflicts(service: &Service<'_>) -> u64 {
    let locks = service.locks();
    locks.deadlocks + locks.timeouts + locks.preemptions
}

/// What an error counts as.
fn kind(error: &CallError) -> &'static str {
    match error {
        CallError::NoProcedure(_) => "no procedure",
        CallError::Full(_) => "queue full",
        CallError::Expired => "queue timeout",
        CallError::Failed(_) => "failed",
        CallError::Panicked => "panicked",
        CallError::Stopped => "stopped",
    }
}

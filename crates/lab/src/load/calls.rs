//! Clients of the embedded engine: each calls a procedure, is answered, and calls the next.
//!
//! They are all on one thread. A call returns at once, and its answer comes through a channel from
//! the worker that ran the transaction.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rustix::time::ClockId;
use tidegate_runtime::sync::{Receiver, RecvTimeoutError, Sender, channel};
use tidegate_runtime::{clock, is_virtual};
use tidegate_subject::embedded::{CallError, Done, LockStatistics, RequestError, Service};
use tidegate_workload::Conflict;

use super::dispatcher::{Dispatcher, Task};
use super::load_run::{Crowd, Losses, cpu};
use super::{LoadError, LoadOptions, Stage};

/// Answers taken from the channel before others have their turn.
const ANSWERS: usize = 256;

pub(super) struct Calls<'a> {
    service: &'a Service<'a>,
    dispatcher: Dispatcher,
    /// The transaction that each client has under way.
    tasks: Vec<Option<Task>>,
    answered: Sender<CallAnswer>,
    answers: Receiver<CallAnswer>,
    alive: usize,
    losses: Losses,
    locks_before: LockStatistics,
}

/// A client's number, and what became of its transaction.
type CallAnswer = (usize, Result<Done, RequestError>);

impl<'a> Calls<'a> {
    pub(super) fn new(options: &LoadOptions<'_>, service: &'a Service<'a>) -> Self {
        let (answered, answers) = channel();
        Calls {
            service,
            dispatcher: Dispatcher::new(options),
            tasks: vec![None; options.clients],
            answered,
            answers,
            alive: options.clients,
            losses: Losses::default(),
            locks_before: service.locks(),
        }
    }

    /// Lets a client that has nothing to do begin its next transaction, or leave.
    fn next(&mut self, client: usize) {
        if self.dispatcher.is_closing() {
            self.alive -= 1;
        } else if let Some(task) = self.dispatcher.next(client, clock::now()) {
            self.call(client, task);
        }
    }

    fn call(&mut self, client: usize, task: Task) {
        let answered = self.answered.clone();
        self.service.submit(&task.transaction, task.class, move |result| {
            // Who has left does not want to know.
            let _ = answered.send((client, result));
        });
        self.tasks[client] = Some(task);
    }

    fn take(&mut self, (client, result): CallAnswer) {
        let Some(task) = self.tasks[client].take() else { return };
        match result {
            Ok(Done { ending, phases }) => {
                self.dispatcher.ended(&task, ending, &phases, clock::now());
            }
            Err(_) if self.dispatcher.is_closing() => {}
            Err(RequestError::Call(error @ (CallError::Stopped | CallError::NoProcedure(_)))) => {
                self.alive -= 1;
                self.losses.add(|| error.to_string());
                return;
            }
            Err(RequestError::Call(error)) => {
                self.dispatcher.tally.error(kind(&error).to_owned(), || error.to_string());
            }
            Err(RequestError::Transaction(failure)) => {
                self.dispatcher.failed(&failure);
            }
        }
        self.next(client);
    }

    /// Lets those begin who have waited and are to begin; how long to wait for the next of them, at
    /// most `longest`.
    fn begin_due(&mut self, longest: Duration) -> Duration {
        let now = clock::now();
        while let Some(task) = self.dispatcher.due(now) {
            self.call(task.client, task);
        }
        self.dispatcher.wait(now, longest)
    }
}

impl Crowd for Calls<'_> {
    fn gather(&mut self) -> Result<bool, LoadError> {
        self.service.give_up(false);
        Ok(true)
    }

    fn start(&mut self) {
        for client in 0..self.tasks.len() {
            self.next(client);
        }
    }

    fn dispatcher(&mut self) -> &mut Dispatcher {
        &mut self.dispatcher
    }

    fn enter(&mut self, stage: Stage) {
        self.dispatcher.tally.stage = stage;
        self.service.give_up(stage == Stage::Draining);
        if stage == Stage::Draining {
            self.alive = self.tasks.iter().flatten().count();
        }
    }

    fn turn(&mut self, timeout: Duration) -> Result<(), LoadError> {
        let timeout = self.begin_due(timeout);
        match self.answers.recv_timeout(timeout) {
            Ok(answer) => self.take(answer),
            // We hold a sender ourselves, so the channel stays open.
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(()),
        }
        for _ in 1..ANSWERS {
            let Some(answer) = self.answers.try_recv() else { break };
            self.take(answer);
        }
        Ok(())
    }

    fn alive(&self) -> usize {
        self.alive
    }

    fn busy(&self, now: Instant) -> (usize, Duration) {
        let ages =
            self.tasks.iter().flatten().map(|task| now.saturating_duration_since(task.scheduled));
        ages.fold((0, Duration::ZERO), |(count, oldest), age| (count + 1, oldest.max(age)))
    }

    fn conflicts(&mut self) -> BTreeMap<Conflict, u64> {
        conflicts(&self.locks_before, &self.service.locks())
    }

    fn losses(&self) -> &Losses {
        &self.losses
    }

    /// The engine's workers are threads of our process; the clients are this one. In virtual time
    /// they take none.
    fn cpu(&self) -> Duration {
        if is_virtual() { Duration::ZERO } else { cpu(ClockId::ThreadCPUTime) }
    }
}

impl Drop for Calls<'_> {
    /// Also when the load was cancelled, what still waits is not wanted any more.
    fn drop(&mut self) {
        self.service.give_up(true);
    }
}

/// Waits for locks that ended without the lock, between two moments: after each of them a
/// transaction is run again. They are called as what a connection to the engine fails with.
fn conflicts(before: &LockStatistics, now: &LockStatistics) -> BTreeMap<Conflict, u64> {
    let ended = [
        (Conflict::Deadlock, now.deadlocks - before.deadlocks),
        (Conflict::LockTimeout, now.timeouts - before.timeouts),
        (Conflict::Serialization, now.preemptions - before.preemptions),
    ];
    ended.into_iter().filter(|&(_, count)| count > 0).collect()
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflicts_are_told_apart_and_those_of_before_left_out() {
        let locks = |deadlocks, timeouts, preemptions| LockStatistics {
            deadlocks,
            timeouts,
            preemptions,
            ..LockStatistics::default()
        };
        let (before, now) = (locks(5, 7, 9), locks(8, 7, 10));
        let expected = [(Conflict::Deadlock, 3), (Conflict::Serialization, 1)];
        assert_eq!(conflicts(&before, &now), expected.into());
        assert_eq!(conflicts(&now, &now), BTreeMap::new());
    }
}

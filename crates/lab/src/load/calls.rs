//! Clients of the embedded engine: each calls a procedure, is answered, and calls the next.
//!
//! They are all on one thread. A call returns at once, and its answer comes through a channel from
//! the worker that ran the transaction.
//!
//! On a machine in virtual time they may be on another host: then a request is on its way for half
//! of the network's time before the server has it, and its answer for the other half. They may also
//! be on the machine's own processors: then this thread takes processor time for each request, and
//! all clients together have one processor at most, as they have on a real machine.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use rustix::time::ClockId;
use tidegate_runtime::sync::{Receiver, RecvTimeoutError, Sender, channel};
use tidegate_runtime::{clock, is_virtual, thread};
use tidegate_subject::embedded::{
    CallError, Done, LockStatistics, RequestError, RequestTimes, Service, StoreWork,
};
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
    times: RequestTimes,
    /// Clients whose requests are on their way, and when the server will have them; the first comes
    /// first.
    sent: VecDeque<(Instant, usize)>,
    /// Answers on their way back, and when their clients will have them.
    coming: VecDeque<(Instant, CallAnswer)>,
    answered: Sender<CallAnswer>,
    answers: Receiver<CallAnswer>,
    alive: usize,
    losses: Losses,
    locks_before: LockStatistics,
    /// What the store had done when the measured time began.
    work_before: StoreWork,
    /// What it did in the measured time, once that is over.
    work: Option<StoreWork>,
}

/// What became of a client's transaction.
struct CallAnswer {
    client: usize,
    result: Result<Done, RequestError>,
    /// When the client has it, if it is on its way.
    due: Option<Instant>,
}

impl<'a> Calls<'a> {
    pub(super) fn new(options: &LoadOptions<'_>, service: &'a Service<'a>) -> Self {
        let (answered, answers) = channel();
        Calls {
            service,
            dispatcher: Dispatcher::new(options),
            tasks: vec![None; options.clients],
            times: options.requests,
            sent: VecDeque::new(),
            coming: VecDeque::new(),
            answered,
            answers,
            alive: options.clients,
            losses: Losses::default(),
            locks_before: service.locks(),
            work_before: StoreWork::default(),
            work: None,
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
        if let Some(work) = self.times.client {
            thread::work_for(work);
        }
        self.tasks[client] = Some(task);
        if self.times.network.is_zero() {
            self.submit(client);
        } else {
            self.sent.push_back((clock::now() + self.times.network / 2, client));
        }
    }

    /// Hands the server the transaction that a client has under way.
    fn submit(&mut self, client: usize) {
        let Some(task) = &self.tasks[client] else { return };
        let (answered, way) = (self.answered.clone(), self.times.network / 2);
        self.service.submit(&task.transaction, task.class, move |result| {
            let due = (!way.is_zero()).then(|| clock::now() + way);
            // Who has left does not want to know.
            let _ = answered.send(CallAnswer { client, result, due });
        });
    }

    /// An answer left the server: its client has it now, or when it has come.
    fn answer(&mut self, answer: CallAnswer) {
        match answer.due {
            None => self.take(answer),
            Some(due) => self.coming.push_back((due, answer)),
        }
    }

    /// Hands over what has come to its end of the network.
    fn deliver(&mut self) {
        let now = clock::now();
        while let Some(client) = arrived(&mut self.sent, now) {
            self.submit(client);
        }
        while let Some(answer) = arrived(&mut self.coming, now) {
            self.take(answer);
        }
    }

    /// How long it is until something comes to its end of the network, at most `longest`.
    fn wait_for_network(&self, longest: Duration) -> Duration {
        let sent = self.sent.front().map(|(due, _)| *due);
        let coming = self.coming.front().map(|(due, _)| *due);
        let next = [sent, coming].into_iter().flatten().min();
        next.map_or(longest, |due| due.saturating_duration_since(clock::now()).min(longest))
    }

    fn take(&mut self, CallAnswer { client, result, .. }: CallAnswer) {
        let Some(task) = self.tasks[client].take() else { return };
        match result {
            Ok(Done { ending, phases, locking }) => {
                if let Some(locking) = &locking {
                    self.dispatcher.locked(&task, locking);
                }
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
        match stage {
            Stage::Measuring => self.work_before = self.service.work(),
            Stage::Draining => self.work = Some(self.service.work().since(&self.work_before)),
            Stage::Connecting | Stage::Ready | Stage::Warmup => {}
        }
        if stage == Stage::Draining {
            self.alive = self.tasks.iter().flatten().count();
        }
    }

    fn turn(&mut self, timeout: Duration) -> Result<(), LoadError> {
        self.deliver();
        let timeout = self.begin_due(timeout);
        let timeout = self.wait_for_network(timeout);
        match self.answers.recv_timeout(timeout) {
            Ok(answer) => self.answer(answer),
            // We hold a sender ourselves, so the channel stays open.
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(()),
        }
        for _ in 1..ANSWERS {
            let Some(answer) = self.answers.try_recv() else { break };
            self.answer(answer);
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

    fn store_work(&self) -> Option<StoreWork> {
        self.work.clone()
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

/// Takes the first of what is on the network, if it has come to its end.
fn arrived<T>(way: &mut VecDeque<(Instant, T)>, now: Instant) -> Option<T> {
    if way.front()?.0 > now {
        return None;
    }
    way.pop_front().map(|(_, one)| one)
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

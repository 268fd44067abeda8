//! What all clients of a load share: what each does next, and what is counted of it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_gate::Class;
use tidegate_runtime::clock;
use tidegate_subject::embedded::NodeLocking;
use tidegate_workload::workload::{Client, Transaction, Workload};
use tidegate_workload::{Ending, Failure};

use super::classes::{ClassDraws, ClientConnection, Priority};
use super::pacer::{Arrivals, DueTransaction, Pacer};
use super::records::{Record, Recorder};
use super::tally::{ClassReport, Ended, Tally};
use super::{LoadOptions, Stage};

/// A transaction to be run by a client.
#[derive(Clone)]
pub(super) struct Task {
    pub(super) transaction: Arc<dyn Transaction>,
    /// When it was due.
    pub(super) scheduled: Instant,
    pub(super) client: usize,
    pub(super) class: Class,
    /// Where its kind is counted.
    kind: usize,
}

/// Gives out transactions and takes back what became of them.
pub(super) struct Dispatcher {
    pub(super) tally: Tally,
    /// Takes a record of each transaction, where that is wanted.
    pub(super) recorder: Option<Recorder>,
    pacer: Pacer,
    /// Tasks of clients on another connection than the one that asked.
    elsewhere: VecDeque<Task>,
    priority: Option<Priority>,
    arrivals: Arrivals,
    seed: u64,
    clients: Vec<Box<dyn Client>>,
    /// Where the first kind of the workload is counted.
    first_kind: usize,
}

impl Dispatcher {
    pub(super) fn new(options: &LoadOptions<'_>) -> Self {
        let LoadOptions { arrivals, priority, seed, .. } = options;
        let mut dispatcher = Dispatcher {
            tally: Tally::new(),
            recorder: None,
            pacer: pacer(arrivals, *priority, *seed, clock::now()),
            elsewhere: VecDeque::new(),
            priority: *priority,
            arrivals: arrivals.clone(),
            seed: *seed,
            clients: Vec::new(),
            first_kind: 0,
        };
        dispatcher.switch_to(&*options.workload, options.clients);
        dispatcher
    }

    /// From now on every client's next transaction is of this workload.
    pub(super) fn switch_to(&mut self, workload: &dyn Workload, clients: usize) {
        self.first_kind = self.tally.add_kinds(workload.name(), workload.kinds());
        let client = |number| workload.client(number, clients, self.seed);
        self.clients = (0..clients).map(client).collect();
    }

    /// Everybody is ready: the schedule of arrivals begins.
    pub(super) fn open(&mut self, now: Instant) {
        self.pacer = pacer(&self.arrivals, self.priority, self.seed, now);
        if let Some(recorder) = &mut self.recorder {
            recorder.open(now);
        }
    }

    /// What a client that has nothing to do does now; `None` when it is to wait.
    pub(super) fn next(&mut self, client: usize, now: Instant) -> Option<Task> {
        let think = self.clients.get_mut(client)?.think_time();
        let transaction = self.pacer.free(client, think, now)?;
        self.task(client, transaction)
    }

    /// The same for a connection. A task of another class than the connection's comes up in
    /// [`Dispatcher::due`].
    pub(super) fn next_on(&mut self, connection: ClientConnection, now: Instant) -> Option<Task> {
        let task = self.next(connection.client, now)?;
        if task.class == connection.class {
            return Some(task);
        }
        self.elsewhere.push_back(task);
        None
    }

    /// A client's task that is to begin now.
    pub(super) fn due(&mut self, now: Instant) -> Option<Task> {
        if self.is_closing() {
            return None;
        }
        self.elsewhere.pop_front().or_else(|| {
            let (client, transaction) = self.pacer.due(now)?;
            self.task(client, transaction)
        })
    }

    /// A client is lost, and waits for nothing any more.
    pub(super) fn lost(&mut self, client: usize) {
        self.pacer.leave(client);
        self.elsewhere.retain(|task| task.client != client);
    }

    /// How long the clients have waited for the record of their transactions.
    pub(super) fn records_waited(&self) -> Duration {
        self.recorder.as_ref().map_or(Duration::ZERO, Recorder::waited)
    }

    /// How long it is until somebody who waits is to begin, at most `longest`.
    pub(super) fn wait(&self, now: Instant, longest: Duration) -> Duration {
        // At the end nobody begins, whatever is due. On a machine in virtual time, who does not
        // wait for the answers then looks for them for ever at the same moment.
        if self.is_closing() {
            return longest;
        }
        if !self.elsewhere.is_empty() {
            return Duration::ZERO;
        }
        let next = self.pacer.next_due();
        next.map_or(longest, |next| next.saturating_duration_since(now).min(longest))
    }

    /// Transactions that were due and that nobody was free to begin.
    pub(super) fn overdue(&self, now: Instant) -> u64 {
        self.pacer.overdue(now, 1_000_000)
    }

    fn task(&mut self, client: usize, due: DueTransaction) -> Option<Task> {
        let DueTransaction { scheduled, class } = due;
        let transaction = self.clients.get_mut(client)?.next();
        let kind = self.first_kind + transaction.kind();
        Some(Task { transaction, scheduled, client, class, kind })
    }

    /// A client's transaction has come to its end; `phases` may be empty.
    pub(super) fn ended(&mut self, task: &Task, ending: Ending, phases: &[Duration], now: Instant) {
        let latency = now.saturating_duration_since(task.scheduled);
        self.tally.ended(&Ended { kind: task.kind, class: task.class, ending, latency, phases });
        if let Some(recorder) = &mut self.recorder {
            let (workload, kind) = self.tally.kind(task.kind);
            let Task { client, class, scheduled, .. } = *task;
            let stage = self.tally.stage;
            let of = Record { client, workload, kind, class, stage, scheduled, latency, ending };
            recorder.record(of);
        }
    }

    /// Counts what a transaction has locked, which came to its end.
    pub(super) fn locked(&mut self, task: &Task, locking: &NodeLocking) {
        self.tally.locked(task.kind, locking);
    }

    /// A client's transaction has failed: whether the same one is to run again.
    pub(super) fn failed(&mut self, failure: &Failure) -> bool {
        match failure {
            Failure::Conflict(conflict) => {
                self.tally.conflict(*conflict);
                true
            }
            Failure::Refused { code, .. } => {
                self.tally.error(code.clone(), || failure.to_string());
                false
            }
            Failure::Unexpected(what) => {
                self.tally.error(format!("not found: {what}"), || failure.to_string());
                false
            }
            // Somebody else cancelled it, or a limit of the server on how long a statement takes.
            Failure::Stopped if !self.is_closing() => {
                self.tally.error("stopped before its end".to_owned(), || failure.to_string());
                false
            }
            Failure::Lost(_) | Failure::Stopped => false,
        }
    }

    /// The classes of the load's transactions.
    pub(super) fn classes(&self) -> &'static [Class] {
        ClassDraws::new(self.priority, self.seed).classes()
    }

    /// What was counted of each class, if there are two.
    pub(super) fn class_reports(&self) -> Vec<ClassReport> {
        if self.classes().len() > 1 { self.tally.classes() } else { Vec::new() }
    }

    /// Whether no transaction is to begin any more.
    pub(super) fn is_closing(&self) -> bool {
        self.tally.stage == Stage::Draining
    }
}

/// The pacer of a load that starts now.
fn pacer(arrivals: &Arrivals, priority: Option<Priority>, seed: u64, now: Instant) -> Pacer {
    let is_high_first = priority.is_some_and(|priority| priority.is_first);
    Pacer::new(arrivals, ClassDraws::new(priority, seed), is_high_first, seed, now)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, TwoPhases};
    use super::*;

    /// The classes of the first 200 transactions that clients begin one after the other.
    fn begun(clients: usize, arrivals: &Arrivals, seed: u64) -> Vec<Class> {
        let options = LoadOptions {
            clients,
            arrivals: arrivals.clone(),
            priority: Some(Priority { high_share: 0.25, is_first: false }),
            seed,
            ..testing::options(Arc::new(TwoPhases::default()))
        };
        let mut dispatcher = Dispatcher::new(&options);
        let start = clock::now();
        dispatcher.open(start);
        let late = start + Duration::from_secs(60);
        (0..200).map(|number| dispatcher.next(number % clients, late).unwrap().class).collect()
    }

    #[test]
    fn classes_do_not_depend_on_the_client_that_begins() {
        for seed in 1..=20 {
            let one = begun(1, &Arrivals::Closed, seed);
            assert!(one.contains(&Class::High) && one.contains(&Class::Normal), "seed {seed}");
            for arrivals in [Arrivals::Closed, Arrivals::Poisson { rate: 100.0 }] {
                for clients in [1, 7, 100] {
                    assert_eq!(begun(clients, &arrivals, seed), one, "seed {seed}, {clients}");
                }
            }
        }
    }

    /// What one connection of a client cannot begin, the client's other connection does, once.
    #[test]
    fn a_task_goes_to_the_connection_of_its_class() {
        let options = LoadOptions {
            priority: Some(Priority { high_share: 0.5, is_first: true }),
            ..testing::options(Arc::new(TwoPhases::default()))
        };
        let mut dispatcher = Dispatcher::new(&options);
        assert_eq!(dispatcher.classes(), Class::ALL);
        let now = clock::now();
        let mut here = 0;
        for _ in 0..100 {
            let connection = ClientConnection { client: 0, class: Class::High };
            if let Some(task) = dispatcher.next_on(connection, now) {
                assert_eq!(task.class, Class::High);
                here += 1;
            } else {
                assert_eq!(dispatcher.wait(now, Duration::MAX), Duration::ZERO);
                let task = dispatcher.due(now).unwrap();
                assert_eq!((task.client, task.class), (0, Class::Normal));
            }
            assert!(dispatcher.due(now).is_none());
        }
        assert!((25..=75).contains(&here), "{here}");
        let normal = ClientConnection { client: 0, class: Class::Normal };
        while dispatcher.next_on(normal, now).is_some() {}
        dispatcher.lost(0);
        assert!(dispatcher.due(now).is_none(), "nobody is there to begin it");
    }
}

//! What all clients of a load share: what each does next, and what is counted of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_gate::Class;
use tidegate_runtime::clock;
use tidegate_workload::workload::{Client, Transaction, Workload};
use tidegate_workload::{Ending, Failure};

use super::classes::Classes;
use super::pacer::{Arrivals, Pacer};
use super::records::{Record, Recorder};
use super::tally::{ClassReport, Ended, Tally};
use super::{LoadOptions, Stage};

/// A transaction to be run by a client.
#[derive(Clone)]
pub(super) struct Task {
    pub(super) transaction: Arc<dyn Transaction>,
    /// When it was due.
    pub(super) scheduled: Instant,
    client: usize,
    /// The class of the client that runs it.
    pub(super) class: Class,
    /// Where its kind is counted.
    kind: usize,
}

/// Gives out transactions and takes back what became of them.
pub(super) struct Dispatcher {
    pub(super) tally: Tally,
    /// Takes a record of each transaction, where that is wanted.
    pub(super) recorder: Option<Recorder>,
    /// One for each class.
    pacers: Vec<(Class, Pacer)>,
    classes: Classes,
    arrivals: Arrivals,
    seed: u64,
    clients: Vec<Box<dyn Client>>,
    /// Where the first kind of the workload is counted.
    first_kind: usize,
}

impl Dispatcher {
    pub(super) fn new(options: &LoadOptions<'_>) -> Self {
        let mut dispatcher = Dispatcher {
            tally: Tally::new(),
            recorder: None,
            pacers: Vec::new(),
            classes: Classes::new(options.clients, options.priority),
            arrivals: options.arrivals.clone(),
            seed: options.seed,
            clients: Vec::new(),
            first_kind: 0,
        };
        dispatcher.switch_to(&*options.workload, options.clients);
        dispatcher.open(clock::now());
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
        let pacer = |class| {
            let arrivals = self.classes.share(class, &self.arrivals);
            (class, Pacer::new(&arrivals, self.seed ^ u64::from(class == Class::High), now))
        };
        self.pacers = if self.classes.are_two() {
            [Class::High, Class::Normal].map(pacer).into()
        } else {
            vec![(Class::Normal, Pacer::new(&self.arrivals, self.seed, now))]
        };
        if let Some(recorder) = &mut self.recorder {
            recorder.open(now);
        }
    }

    /// What a client that has nothing to do does now; `None` when it is to wait.
    pub(super) fn next(&mut self, client: usize, now: Instant) -> Option<Task> {
        let think = self.clients.get_mut(client)?.think_time();
        let scheduled = self.pacer_of(client)?.free(client, think, now)?;
        self.task(client, scheduled)
    }

    /// A client that has waited and is to begin now.
    pub(super) fn due(&mut self, now: Instant) -> Option<(usize, Task)> {
        if self.tally.stage == Stage::Draining {
            return None;
        }
        let (client, scheduled) = self.pacers.iter_mut().find_map(|(_, pacer)| pacer.due(now))?;
        Some((client, self.task(client, scheduled)?))
    }

    /// A client is lost, and waits for nothing any more.
    pub(super) fn lost(&mut self, client: usize) {
        if let Some(pacer) = self.pacer_of(client) {
            pacer.leave(client);
        }
    }

    /// How long the clients have waited for the record of their transactions.
    pub(super) fn records_waited(&self) -> Duration {
        self.recorder.as_ref().map_or(Duration::ZERO, Recorder::waited)
    }

    /// How long it is until somebody who waits is to begin, at most `longest`.
    pub(super) fn wait(&self, now: Instant, longest: Duration) -> Duration {
        let next = self.pacers.iter().filter_map(|(_, pacer)| pacer.next_due()).min();
        next.map_or(longest, |next| next.saturating_duration_since(now).min(longest))
    }

    /// Transactions that were due and that nobody was free to begin.
    pub(super) fn overdue(&self, now: Instant) -> u64 {
        self.pacers.iter().map(|(_, pacer)| pacer.overdue(now, 1_000_000)).sum()
    }

    /// The pacer of a client: that of its class, or the only one.
    fn pacer_of(&mut self, client: usize) -> Option<&mut Pacer> {
        let class = self.classes.of(client);
        let are_two = self.pacers.len() > 1;
        let of = self.pacers.iter_mut().find(|(of, _)| !are_two || *of == class);
        of.map(|(_, pacer)| pacer)
    }

    fn task(&mut self, client: usize, scheduled: Instant) -> Option<Task> {
        let transaction = self.clients.get_mut(client)?.next();
        let kind = self.first_kind + transaction.kind();
        let class = self.classes.of(client);
        Some(Task { transaction, scheduled, client, class, kind })
    }

    /// A client's transaction has come to its end; `phases` may be empty.
    pub(super) fn ended(&mut self, task: &Task, ending: Ending, phases: &[Duration], now: Instant) {
        let latency = now.saturating_duration_since(task.scheduled);
        self.tally.ended(&Ended { kind: task.kind, class: task.class, ending, latency, phases });
        if let Some(recorder) = &mut self.recorder {
            let (workload, kind) = self.tally.kind(task.kind);
            let Task { client, scheduled, .. } = *task;
            let stage = self.tally.stage;
            recorder.record(Record { client, workload, kind, stage, scheduled, latency, ending });
        }
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

    pub(super) fn classes(&self) -> Classes {
        self.classes
    }

    /// What was counted of each class, if there are two.
    pub(super) fn class_reports(&self) -> Vec<ClassReport> {
        if self.classes.are_two() { self.tally.classes() } else { Vec::new() }
    }

    /// Whether no transaction is to begin any more.
    pub(super) fn is_closing(&self) -> bool {
        self.tally.stage == Stage::Draining
    }
}

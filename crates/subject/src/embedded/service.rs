//! The engine's server on a store, as the laboratory's clients call it.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::sync::Arc;

use tidegate_control::{Algorithm, Arms, Controller, Setting};
use tidegate_engine::lock::LockStatistics;
use tidegate_engine::{Store, StoreError, TxnOptions};
use tidegate_engine_server::{ClassPriorities, Observer, RequestHandler, Server, ServerOptions};
use tidegate_gate::Class;
use tidegate_workload::Ending;
use tidegate_workload::workload::Transaction;

use super::auctions::Locking;
use super::requests::{self, Done, RequestError, Requests};

/// How a store is served: who lets requests in.
pub struct Serving<'s> {
    /// What sets the limit.
    pub algorithm: Algorithm,
    /// What the algorithm is told.
    pub setting: &'s Setting,
    /// Ways to lock of which one is chosen beside the limit; none where it is not to be changed.
    pub arms: Vec<Locking>,
    /// Where the high class goes first.
    pub priorities: ClassPriorities,
    /// Where the controller's draws begin.
    pub seed: u64,
    /// Is told of every decision.
    pub observer: Observer,
}

/// Returns what sets the limit, and chooses among so many arms if there are any.
fn controller(algorithm: Algorithm, setting: &Setting, arms: usize) -> Box<dyn Controller> {
    let setting = *setting;
    let make = move || algorithm.controller(&setting);
    match NonZeroUsize::new(arms) {
        None => make(),
        Some(count) => Box::new(Arms::new(count, setting.bounds, move |_| make())),
    }
}

/// What a store has done in some time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreWork {
    /// Pages read from disk.
    pub page_reads: u64,
    /// Pages written to disk, each counted once.
    pub page_writes: u64,
    /// Syncs of the log for transactions that waited for it.
    pub log_syncs: u64,
    /// Bytes written to the log.
    pub log_bytes: u64,
    /// Runs of transactions that ended in a conflict over a document.
    pub conflicts: Conflicts,
}

/// How often runs of transactions ended in a conflict over a document, by what ended them
/// (`deadlock`, `timeout`, `preempted`) and what they waited for (`node`, `edge`, `entry`).
pub type Conflicts = BTreeMap<(&'static str, &'static str), u64>;

impl StoreWork {
    /// Returns what was done since a moment at which that much was done.
    #[must_use]
    pub fn since(&self, before: &StoreWork) -> StoreWork {
        let conflicts = self.conflicts.iter().map(|(key, times)| {
            let earlier = before.conflicts.get(key).copied().unwrap_or_default();
            (*key, times - earlier)
        });
        StoreWork {
            page_reads: self.page_reads - before.page_reads,
            page_writes: self.page_writes - before.page_writes,
            log_syncs: self.log_syncs - before.log_syncs,
            log_bytes: self.log_bytes - before.log_bytes,
            conflicts: conflicts.filter(|(_, times)| *times > 0).collect(),
        }
    }
}

/// The engine's server on a store; dropped, it lets what has started end and refuses the rest.
pub struct Service<'d> {
    server: Server,
    requests: Requests,
    store: Arc<Store>,
    /// Returns the conflicts so far.
    conflicts: Box<dyn Fn() -> Conflicts + Send + Sync>,
    /// The database stays as it is while it is served.
    database: PhantomData<&'d ()>,
}

impl Service<'_> {
    /// Starts to serve a store. `handler` makes what runs a request, once.
    ///
    /// # Errors
    /// The system gave no thread.
    pub(super) fn start<C: Into<RequestHandler>>(
        store: &Arc<Store>,
        transactions: TxnOptions,
        serving: Serving<'_>,
        handler: impl FnOnce(Requests) -> C,
    ) -> Result<Self, StoreError> {
        let Serving { algorithm, setting, arms, priorities, seed, observer } = serving;
        let requests = Requests::default();
        let controller = controller(algorithm, setting, arms.len());
        let interval = if arms.is_empty() {
            ServerOptions::default().interval
        } else {
            // Arms are compared in windows of a second, which have to be made of several intervals.
            controller.interval_rule()
        };
        let options = ServerOptions {
            interval,
            transactions,
            priorities,
            // A client runs a transaction again until it is done or not wanted any more.
            retries_max: u32::MAX,
            seed,
            mpl_max: setting.bounds.max(),
            ..ServerOptions::default()
        };
        let server = Server::start(
            Arc::clone(store),
            [(requests::RUN.to_owned(), handler(requests.clone()))],
            controller,
            options,
            observer,
        )?;
        Ok(Service {
            server,
            requests,
            store: Arc::clone(store),
            conflicts: Box::new(Conflicts::new),
            database: PhantomData,
        })
    }

    /// Returns the service with what returns the conflicts over documents so far.
    pub(super) fn counting(
        self,
        conflicts: impl Fn() -> Conflicts + Send + Sync + 'static,
    ) -> Self {
        Service { conflicts: Box::new(conflicts), ..self }
    }

    /// Asks for a transaction of a class. `answer` is called once, on a thread of the server or on
    /// this one; see [`Server::submit`].
    pub fn submit(
        &self,
        transaction: &Arc<dyn Transaction>,
        class: Class,
        answer: impl FnOnce(Result<Done, RequestError>) + Send + 'static,
    ) {
        let (requests, transaction) = (self.requests.clone(), Arc::clone(transaction));
        let number = requests.add(Arc::clone(&transaction));
        self.server.submit(requests::RUN, &number.to_le_bytes(), class, move |result| {
            let outcome = requests::outcome(result, requests.remove(number));
            if let Ok(Done { ending: Ending::Commit, .. }) = outcome {
                transaction.committed();
            }
            answer(outcome);
        });
    }

    /// Whether the clients have given up. While they have, a transaction that would begin, or begin
    /// again, fails instead: what waits for a permit or is rolled back is over soon.
    pub fn give_up(&self, given_up: bool) {
        self.requests.give_up(given_up);
    }

    /// The locks of the store's transactions, counted since the store was opened.
    #[must_use]
    pub fn locks(&self) -> LockStatistics {
        self.store.lock_statistics()
    }

    /// Returns what the store has done since it was opened.
    #[must_use]
    pub fn work(&self) -> StoreWork {
        let log = self.store.log_statistics();
        let mut work = StoreWork {
            log_syncs: log.syncs,
            log_bytes: log.written_bytes,
            conflicts: (self.conflicts)(),
            ..StoreWork::default()
        };
        for tree in self.store.trees().iter().filter_map(|name| self.store.tree(name)) {
            let pages = tree.io();
            work.page_reads += pages.physical_reads;
            work.page_writes += pages.writes;
        }
        work
    }
}

impl std::fmt::Debug for Service<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("gate", &self.server.gate()).finish_non_exhaustive()
    }
}

//! The engine's server on a store, as the laboratory's clients call it.

use std::marker::PhantomData;
use std::sync::Arc;

use tidegate_control::{Algorithm, Setting};
use tidegate_engine::lock::LockStatistics;
use tidegate_engine::{Store, StoreError, TxnOptions};
use tidegate_engine_server::{ClassPriorities, Observer, RequestHandler, Server, ServerOptions};
use tidegate_gate::Class;
use tidegate_workload::Ending;
use tidegate_workload::workload::Transaction;

use super::requests::{self, Done, RequestError, Requests};

/// How a store is served: who lets requests in.
pub struct Serving<'s> {
    /// What sets the limit.
    pub algorithm: Algorithm,
    /// What the algorithm is told.
    pub setting: &'s Setting,
    /// Where the high class goes first.
    pub priorities: ClassPriorities,
    /// Where the controller's draws begin.
    pub seed: u64,
    /// Is told of every decision.
    pub observer: Observer,
}

/// The engine's server on a store; dropped, it lets what has started end and refuses the rest.
pub struct Service<'d> {
    server: Server,
    requests: Requests,
    store: Arc<Store>,
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
        let Serving { algorithm, setting, priorities, seed, observer } = serving;
        let requests = Requests::default();
        let options = ServerOptions {
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
            algorithm.controller(setting),
            options,
            observer,
        )?;
        Ok(Service { server, requests, store: Arc::clone(store), database: PhantomData })
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

    /// The locks of the store's transactions, counted since the store was made.
    #[must_use]
    pub fn locks(&self) -> LockStatistics {
        self.store.locks().statistics()
    }
}

impl std::fmt::Debug for Service<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("gate", &self.server.gate()).finish_non_exhaustive()
    }
}

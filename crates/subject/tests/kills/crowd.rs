//! Clients at once, each on a thread of its own, that go on when their connection is gone.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_subject::connection::{Connector, Transactional, run};
use tidegate_workload::workload::{Client, Transaction, Workload};
use tidegate_workload::{
    Conflict, Connection, Ending, Failure, Reply, Session, Statement, Value, Wants, finish,
};

use super::CLIENTS;

/// One transaction in so many of a client loses its connection.
const VANISHING: usize = 25;

/// How long a number of transactions may take before something hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often a transaction is run again before it will never come to its end.
const ATTEMPTS: usize = 10_000;

const CONFLICTS: [Conflict; 3] =
    [Conflict::Deadlock, Conflict::Serialization, Conflict::LockTimeout];

/// What is known of the transactions of one kind.
#[derive(Debug, Default)]
pub(super) struct Count {
    /// Reported as committed.
    pub(super) committed: AtomicU64,
    /// Nobody knows: the connection was gone before the answer.
    pub(super) doubtful: AtomicU64,
}

/// Clients of a workload, and what came of their transactions.
pub(super) struct Crowd<'w> {
    workload: &'w dyn Workload,
    connector: &'w dyn Connector,
    /// Codes of errors with which a server says farewell.
    farewells: &'w [&'w str],
    /// Counts by the kinds of the workload.
    pub(super) counts: Vec<Count>,
    done: AtomicU64,
    conflicts: [AtomicU64; 3],
    losses: AtomicU64,
    vanished: AtomicU64,
    is_over: AtomicBool,
    /// Called with the kind of each transaction that is committed.
    tell: Box<dyn Fn(usize) + Sync + 'w>,
}

/// Ends the crowd's work, also on panic, so that nobody waits for its threads for ever.
struct Over<'c>(&'c AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs so many statements, and then none any more.
struct Vanishing<'c> {
    connection: &'c mut dyn Transactional,
    left: usize,
}

impl Connection for Vanishing<'_> {
    fn run(&mut self, sql: &Statement, of: &[Value<'_>], wants: Wants) -> Result<Reply, Failure> {
        self.left = self.left.checked_sub(1).ok_or(Failure::Stopped)?;
        self.connection.run(sql, of, wants)
    }
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl<'w> Crowd<'w> {
    pub(super) fn new(
        workload: &'w dyn Workload,
        connector: &'w dyn Connector,
        farewells: &'w [&'w str],
    ) -> Self {
        Crowd {
            workload,
            connector,
            farewells,
            counts: workload.kinds().iter().map(|_| Count::default()).collect(),
            done: AtomicU64::new(0),
            conflicts: Default::default(),
            losses: AtomicU64::new(0),
            vanished: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            tell: Box::new(|_| {}),
        }
    }

    pub(super) fn telling(self, tell: impl Fn(usize) + Sync + 'w) -> Self {
        Crowd { tell: Box::new(tell), ..self }
    }

    /// Runs all clients until `director` returns.
    pub(super) fn work(&self, seed: u64, director: impl FnOnce(&Self)) {
        println!("{}, seed {seed}", self.workload.name());
        self.is_over.store(false, Ordering::Relaxed);
        thread::scope(|scope| {
            let _over = Over(&self.is_over);
            for number in 0..CLIENTS {
                let client = self.workload.client(number, CLIENTS, seed);
                scope.spawn(move || {
                    // A client that fails ends the others.
                    let over = Over(&self.is_over);
                    self.serve(client);
                    drop(over);
                });
            }
            director(self);
        });
        println!("{}", self.summary());
    }

    /// Waits for so many more transactions.
    pub(super) fn wait_for(&self, more: u64) {
        let goal = self.done.load(Ordering::Relaxed) + more;
        let began = Instant::now();
        while self.done.load(Ordering::Relaxed) < goal {
            assert!(!self.is_over.load(Ordering::Relaxed), "a client has failed");
            assert!(began.elapsed() < PATIENCE, "nothing moves: {}", self.summary());
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// How often a connection was lost that did not vanish on its own.
    pub(super) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Relaxed)
    }

    fn summary(&self) -> String {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut text = format!(
            "{} done, conflicts {:?}, {} connections lost, {} vanished:",
            load(&self.done),
            self.conflicts.each_ref().map(load),
            load(&self.losses),
            load(&self.vanished)
        );
        for (kind, count) in self.workload.kinds().iter().zip(&self.counts) {
            let (committed, doubtful) = (load(&count.committed), load(&count.doubtful));
            let _ = write!(text, " {} {committed}+{doubtful}", kind.name);
        }
        text
    }

    fn serve(&self, mut client: Box<dyn Client>) {
        let mut connection = None;
        for count in 1.. {
            let transaction = client.next();
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let mut open = connection.take().unwrap_or_else(|| self.connect());
            if count % VANISHING == 0 {
                self.vanish(open, transaction, count / VANISHING * 3);
            } else if self.insist(&mut *open, &transaction) {
                connection = Some(open);
            }
        }
    }

    /// A connection, also where the server ends those that are just logging in.
    fn connect(&self) -> Box<dyn Transactional> {
        let began = Instant::now();
        loop {
            match self.connector.connect() {
                Ok(connection) => return connection,
                Err(failure) if self.is_farewell(&failure) && began.elapsed() < PATIENCE => {
                    thread::sleep(Duration::from_millis(2));
                }
                Err(failure) => panic!("no connection: {failure}"),
            }
        }
    }

    /// Runs a transaction until no other one is in its way. `false` when the connection is gone,
    /// and whether it was committed is not known.
    fn insist(
        &self,
        connection: &mut dyn Transactional,
        transaction: &Arc<dyn Transaction>,
    ) -> bool {
        let count = &self.counts[transaction.kind()];
        for _ in 0..ATTEMPTS {
            match run(connection, Arc::clone(transaction)) {
                Ok(ending) => {
                    if ending == Ending::Commit {
                        add(&count.committed);
                        (self.tell)(transaction.kind());
                    }
                    add(&self.done);
                    return true;
                }
                Err(Failure::Conflict(conflict)) if !self.is_over.load(Ordering::Relaxed) => {
                    let place = CONFLICTS.iter().position(|known| *known == conflict).unwrap();
                    add(&self.conflicts[place]);
                }
                Err(Failure::Conflict(_)) => return true,
                Err(failure) => {
                    assert!(self.is_farewell(&failure), "{transaction:?}: {failure}");
                    add(&count.doubtful);
                    add(&self.losses);
                    return false;
                }
            }
        }
        panic!("{transaction:?} never comes to its end");
    }

    /// Begins a transaction and is gone before its end, or after the only statement of one.
    fn vanish(
        &self,
        mut connection: Box<dyn Transactional>,
        transaction: Arc<dyn Transaction>,
        statements: usize,
    ) {
        let begun = if transaction.is_single() { Ok(()) } else { connection.begin() };
        let mut vanishing = Vanishing { connection: &mut *connection, left: statements };
        let ending = begun
            .and_then(|()| finish(transaction.run(Session::immediate(&mut vanishing))).map(drop));
        match ending {
            Ok(()) | Err(Failure::Conflict(_)) => {}
            Err(failure) => assert!(self.is_farewell(&failure), "{failure}"),
        }
        add(&self.vanished);
    }

    fn is_farewell(&self, failure: &Failure) -> bool {
        match failure {
            Failure::Lost(_) | Failure::Stopped => true,
            Failure::Refused { code, .. } => self.farewells.contains(&code.as_str()),
            Failure::Conflict(_) | Failure::Unexpected(_) => false,
        }
    }
}

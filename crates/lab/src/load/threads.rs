//! Clients of a library that blocks: a thread for each, which runs what it is given.
//!
//! What comes next and what is counted stays on the thread of the load, as with all other clients.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use tidegate_subject::connection::{self, Connector, Interrupter, Transactional};
use tidegate_workload::workload::Transaction;
use tidegate_workload::{
    Connection, Dialect, Ending, Failure, Reply, Statement, Table, Value, Wants,
};

use super::course::Crowd;
use super::desk::{Desk, Task};
use super::phases::PhaseClock;
use super::{Connecting, LoadError, LoadOptions, Refusal, Stage};

/// A thread's stack, in bytes: what SQLite's deepest parser needs, with room to spare.
const STACK: usize = 512 * 1024;

/// Words from threads taken from the channel before others have their turn.
const WORDS: usize = 256;

pub(super) struct Threads {
    desk: Desk,
    connector: Arc<dyn Connector>,
    /// Those whose threads have been started.
    clients: Vec<Client>,
    /// For threads that are started.
    say: Sender<(usize, Word)>,
    words: Receiver<(usize, Word)>,
    connected: usize,
    alive: usize,
    losses: usize,
    clients_wanted: usize,
    /// How many may be connecting at a time.
    connects_max: usize,
    connect_timeout: Duration,
    deadline: Instant,
}

struct Client {
    /// Where the thread waits for transactions; it ends when this is dropped.
    transactions: Option<Sender<Arc<dyn Transaction>>>,
    interrupter: Option<Interrupter>,
    task: Option<Task>,
    is_again: bool,
}

/// What a client's thread says.
enum Word {
    Connected(Option<Interrupter>),
    Refused(Failure),
    /// A transaction is over; how long its phases took.
    Over(Result<Ending, Failure>, Vec<Duration>),
}

impl Threads {
    /// Clients of the connector's database, none of them connected.
    pub(super) fn new(
        options: &LoadOptions<'_>,
        connector: &Arc<dyn Connector>,
        connecting: Connecting,
    ) -> Self {
        let (say, words) = mpsc::channel();
        Threads {
            desk: Desk::new(options),
            connector: Arc::clone(connector),
            clients: Vec::with_capacity(options.clients),
            say,
            words,
            connected: 0,
            alive: options.clients,
            losses: 0,
            clients_wanted: options.clients,
            connects_max: connecting.at_once.map_or(options.clients, NonZeroUsize::get),
            connect_timeout: connecting.timeout,
            deadline: Instant::now() + connecting.timeout,
        }
    }

    /// Starts the next client's thread, which begins to connect.
    fn start_next(&mut self) -> Result<(), LoadError> {
        let number = self.clients.len();
        let (connector, say) = (Arc::clone(&self.connector), self.say.clone());
        let (give, transactions) = mpsc::channel();
        std::thread::Builder::new()
            .name(format!("client-{number}"))
            .stack_size(STACK)
            .spawn(move || {
                serve(&*connector, &transactions, |word| say.send((number, word)).is_ok());
            })
            .map_err(|source| LoadError::Thread { clients: self.clients_wanted, source })?;
        let transactions = Some(give);
        self.clients.push(Client { transactions, interrupter: None, task: None, is_again: false });
        Ok(())
    }

    fn refused(&self, reason: Refusal) -> LoadError {
        if self.connected == 0 {
            return LoadError::Connect { place: "the database".to_owned(), reason };
        }
        LoadError::NotAllConnected {
            connected: self.connected,
            clients: self.clients_wanted,
            timeout: self.connect_timeout,
            reason,
        }
    }

    /// Lets a client that has nothing to do begin its next transaction, or leave.
    fn next(&mut self, client: usize) {
        if self.desk.is_closing() {
            self.leave(client);
        } else if let Some(task) = self.desk.next(client, Instant::now()) {
            self.begin(client, task);
        }
    }

    fn begin(&mut self, client: usize, task: Task) {
        self.clients[client].is_again = false;
        self.give(client, task);
    }

    fn give(&mut self, client: usize, task: Task) {
        let Some(transactions) = &self.clients[client].transactions else { return };
        // A thread that has ended has said why.
        let _ = transactions.send(Arc::clone(&task.transaction));
        self.clients[client].task = Some(task);
    }

    fn leave(&mut self, client: usize) {
        if self.clients[client].transactions.take().is_some() {
            self.alive -= 1;
        }
    }

    fn take(&mut self, (client, word): (usize, Word)) -> Result<(), LoadError> {
        match word {
            Word::Connected(interrupter) => {
                self.clients[client].interrupter = interrupter;
                self.connected += 1;
            }
            Word::Refused(failure) => return Err(self.refused(Refusal::Server(failure))),
            Word::Over(result, phases) => self.over(client, result, &phases),
        }
        Ok(())
    }

    fn over(&mut self, client: usize, result: Result<Ending, Failure>, phases: &[Duration]) {
        let Some(task) = self.clients[client].task.take() else { return };
        match result {
            Ok(ending) => {
                let phases = if self.clients[client].is_again { &[] } else { phases };
                self.desk.ended(&task, ending, phases, Instant::now());
            }
            Err(Failure::Lost(_)) => {
                self.losses += 1;
                return self.leave(client);
            }
            Err(failure) if !self.desk.is_closing() => {
                if self.desk.failed(failure) {
                    self.clients[client].is_again = true;
                    return self.give(client, task);
                }
            }
            Err(_) => {}
        }
        self.next(client);
    }

    /// Lets those begin who have waited and are to begin; how long to wait for the next of them, at
    /// most `longest`.
    fn begin_due(&mut self, longest: Duration) -> Duration {
        let now = Instant::now();
        while let Some((client, task)) = self.desk.due(now) {
            self.begin(client, task);
        }
        let next = self.desk.next_due();
        next.map_or(longest, |next| next.saturating_duration_since(now).min(longest))
    }
}

impl Crowd for Threads {
    fn gather(&mut self) -> Result<bool, LoadError> {
        if self.connected < self.clients_wanted && Instant::now() >= self.deadline {
            return Err(self.refused(Refusal::Silent));
        }
        let is_wanted = |crowd: &Self| crowd.clients.len() < crowd.clients_wanted;
        while is_wanted(self) && self.clients.len() - self.connected < self.connects_max {
            self.start_next()?;
        }
        Ok(self.connected == self.clients_wanted)
    }

    fn start(&mut self) {
        for client in 0..self.clients.len() {
            self.next(client);
        }
    }

    fn desk(&mut self) -> &mut Desk {
        &mut self.desk
    }

    fn enter(&mut self, stage: Stage) {
        self.desk.tally.stage = stage;
        if stage != Stage::Draining {
            return;
        }
        for client in 0..self.clients.len() {
            match (&self.clients[client].task, &self.clients[client].interrupter) {
                (None, _) => self.leave(client),
                (Some(_), Some(interrupt)) => interrupt(),
                (Some(_), None) => {}
            }
        }
    }

    fn turn(&mut self, timeout: Duration) -> Result<(), LoadError> {
        let timeout = self.begin_due(timeout);
        match self.words.recv_timeout(timeout) {
            Ok(word) => self.take(word)?,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(()),
        }
        for _ in 1..WORDS {
            let Ok(word) = self.words.try_recv() else { break };
            self.take(word)?;
        }
        Ok(())
    }

    fn alive(&self) -> usize {
        if self.desk.tally.stage == Stage::Connecting { self.connected } else { self.alive }
    }

    fn busy(&self, now: Instant) -> (usize, Duration) {
        let tasks = self.clients.iter().filter_map(|client| client.task.as_ref());
        let ages = tasks.map(|task| now.saturating_duration_since(task.scheduled));
        ages.fold((0, Duration::ZERO), |(count, oldest), age| (count + 1, oldest.max(age)))
    }

    fn losses(&self) -> usize {
        self.losses
    }

    fn connects_at_once(&self) -> Option<usize> {
        Some(self.connects_max.min(self.clients_wanted))
    }
}

impl Drop for Threads {
    /// Also when the load was cancelled: what is under way is ended where that can be.
    fn drop(&mut self) {
        for client in &self.clients {
            if let (Some(_), Some(interrupt)) = (&client.task, &client.interrupter) {
                interrupt();
            }
        }
    }
}

/// A client's thread: connects, then runs what it is given until there is no more.
fn serve(
    connector: &dyn Connector,
    transactions: &Receiver<Arc<dyn Transaction>>,
    mut say: impl FnMut(Word) -> bool,
) {
    let connection = match connector.connect() {
        Ok(connection) => connection,
        Err(failure) => {
            say(Word::Refused(failure));
            return;
        }
    };
    if !say(Word::Connected(connection.interrupter())) {
        return;
    }
    let mut timed = Timed { connection, clock: PhaseClock::new() };
    for transaction in transactions {
        timed.clock.restart(Instant::now());
        let result = connection::run(&mut timed, transaction);
        let phases = timed.clock.read(Instant::now()).to_vec();
        if !say(Word::Over(result, phases)) {
            return;
        }
    }
}

/// A connection on which the phases of transactions are timed.
struct Timed {
    connection: Box<dyn Transactional>,
    clock: PhaseClock,
}

impl Connection for Timed {
    fn run(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
        wants: Wants,
    ) -> Result<Reply, Failure> {
        self.connection.run(statement, values, wants)
    }

    fn phase(&mut self, number: usize) {
        self.clock.enter(number, Instant::now());
    }
}

impl Transactional for Timed {
    fn begin(&mut self) -> Result<(), Failure> {
        self.connection.begin()
    }

    fn begin_reading(&mut self) -> Result<(), Failure> {
        self.connection.begin_reading()
    }

    fn commit(&mut self) -> Result<(), Failure> {
        self.connection.commit()
    }

    fn rollback(&mut self) -> Result<(), Failure> {
        self.connection.rollback()
    }

    fn dialect(&self) -> Dialect {
        self.connection.dialect()
    }

    fn insert(&mut self, table: &Table, rows: &[Vec<Value<'static>>]) -> Result<(), Failure> {
        self.connection.insert(table, rows)
    }
}

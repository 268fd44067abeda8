//! Clients of a library that blocks: a thread for each, which runs what it is given.
//!
//! What comes next and what is counted stays on the thread of the load, as with all other clients.
//!
//! When the time is up, what a library can interrupt is interrupted, and a transaction that comes
//! to its next statement ends there. What cannot be ended so, such as a wait for a lock, ends by
//! itself, or by whoever has the database: a thread holds the connector until it has ended.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use tidegate_subject::connection::{self, Connector, Interrupter, Transactional};
use tidegate_subject::phases::PhaseClock;
use tidegate_workload::workload::Transaction;
use tidegate_workload::{
    Connection, Dialect, Ending, Failure, Reply, Statement, Table, Value, Wants,
};

use super::dispatcher::{Dispatcher, Task};
use super::load_run::{Crowd, Losses};
use super::{Connecting, LoadError, LoadOptions, Refusal, Stage};

/// A thread's stack, in bytes: what SQLite's deepest parser needs, with room to spare.
const STACK: usize = 512 * 1024;

/// Words from threads taken from the channel before others have their turn.
const WORDS: usize = 256;

pub(super) struct Threads {
    dispatcher: Dispatcher,
    connector: Arc<dyn Connector>,
    /// Those whose threads have been started.
    clients: Vec<ThreadClient>,
    /// No statement is to begin any more.
    is_over: Arc<AtomicBool>,
    /// For threads that are started.
    say: Sender<(usize, Word)>,
    words: Receiver<(usize, Word)>,
    connected: usize,
    alive: usize,
    losses: Losses,
    clients_wanted: usize,
    /// How many may be connecting at a time.
    connects_max: usize,
    connect_timeout: Duration,
    deadline: Instant,
}

struct ThreadClient {
    /// Where the thread waits for transactions; it ends when this is dropped.
    transactions: Option<Sender<Arc<dyn Transaction>>>,
    interrupter: Option<Interrupter>,
    task: Option<Task>,
    is_again: bool,
}

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
            dispatcher: Dispatcher::new(options),
            connector: Arc::clone(connector),
            clients: Vec::with_capacity(options.clients),
            is_over: Arc::default(),
            say,
            words,
            connected: 0,
            alive: options.clients,
            losses: Losses::default(),
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
        let is_over = Arc::clone(&self.is_over);
        let (give, transactions) = mpsc::channel();
        std::thread::Builder::new()
            .name(format!("client-{number}"))
            .stack_size(STACK)
            .spawn(move || {
                let say = |word| say.send((number, word)).is_ok();
                serve(&*connector, &transactions, is_over, say);
            })
            .map_err(|source| LoadError::Thread { clients: self.clients_wanted, source })?;
        let transactions = Some(give);
        self.clients.push(ThreadClient {
            transactions,
            interrupter: None,
            task: None,
            is_again: false,
        });
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
        if self.dispatcher.is_closing() {
            self.leave(client);
        } else if let Some(task) = self.dispatcher.next(client, Instant::now()) {
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
                self.dispatcher.ended(&task, ending, phases, Instant::now());
            }
            Err(failure @ Failure::Lost(_)) => {
                self.losses.add(|| failure.to_string());
                return self.leave(client);
            }
            Err(failure) if !self.dispatcher.is_closing() => {
                if self.dispatcher.failed(&failure) {
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
        while let Some(task) = self.dispatcher.due(now) {
            self.begin(task.client, task);
        }
        self.dispatcher.wait(now, longest)
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

    fn dispatcher(&mut self) -> &mut Dispatcher {
        &mut self.dispatcher
    }

    fn enter(&mut self, stage: Stage) {
        self.dispatcher.tally.stage = stage;
        if stage != Stage::Draining {
            return;
        }
        self.is_over.store(true, Ordering::Relaxed);
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
        if self.dispatcher.tally.stage == Stage::Connecting { self.connected } else { self.alive }
    }

    fn busy(&self, now: Instant) -> (usize, Duration) {
        let tasks = self.clients.iter().filter_map(|client| client.task.as_ref());
        let ages = tasks.map(|task| now.saturating_duration_since(task.scheduled));
        ages.fold((0, Duration::ZERO), |(count, oldest), age| (count + 1, oldest.max(age)))
    }

    fn losses(&self) -> &Losses {
        &self.losses
    }

    fn connects_at_once(&self) -> Option<usize> {
        Some(self.connects_max.min(self.clients_wanted))
    }
}

impl Drop for Threads {
    /// Also when the load was cancelled: what is under way is ended where that can be.
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
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
    is_over: Arc<AtomicBool>,
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
    let mut timed = Timed { connection, clock: PhaseClock::new(Instant::now()), is_over };
    for transaction in transactions {
        timed.clock.restart(Instant::now());
        let result = connection::run(&mut timed, transaction);
        let phases = timed.clock.read(Instant::now()).to_vec();
        if !say(Word::Over(result, phases)) {
            return;
        }
    }
}

/// A connection on which the phases of transactions are timed, and which refuses statements when
/// the load is over.
struct Timed {
    connection: Box<dyn Transactional>,
    clock: PhaseClock,
    is_over: Arc<AtomicBool>,
}

impl Connection for Timed {
    fn run(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
        wants: Wants,
    ) -> Result<Reply, Failure> {
        if self.is_over.load(Ordering::Relaxed) {
            return Err(Failure::Stopped);
        }
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

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};

    use rustix::time::ClockId;

    use super::super::load_run::{LoadRun, cpu};
    use super::super::testing::{self, TwoPhases};
    use super::super::{Connecting, LoadTarget};
    use super::*;

    /// What a statement needs of a processor, in the thread of its client.
    const WORK: Duration = Duration::from_millis(2);

    /// A database whose statements hold their thread until it is let go, and then work.
    #[derive(Clone, Debug, Default)]
    struct Held(Arc<(Mutex<Holding>, Condvar)>);

    #[derive(Debug, Default)]
    struct Holding {
        is_held: bool,
        statements: usize,
        commits: usize,
    }

    impl Held {
        fn set(&self, is_held: bool) {
            self.0.0.lock().unwrap().is_held = is_held;
            self.0.1.notify_all();
        }
    }

    impl Connector for Held {
        fn connect(&self) -> Result<Box<dyn Transactional>, Failure> {
            Ok(Box::new(self.clone()))
        }
    }

    impl Connection for Held {
        fn run(&mut self, _: &Statement, _: &[Value<'_>], _: Wants) -> Result<Reply, Failure> {
            let mut holding = self.0.0.lock().unwrap();
            holding.statements += 1;
            self.0.1.notify_all();
            drop(self.0.1.wait_while(holding, |holding| holding.is_held).unwrap());
            let since = cpu(ClockId::ThreadCPUTime);
            while cpu(ClockId::ThreadCPUTime).saturating_sub(since) < WORK {}
            Ok(Reply::default())
        }
    }

    impl Transactional for Held {
        fn begin(&mut self) -> Result<(), Failure> {
            Ok(())
        }

        fn commit(&mut self) -> Result<(), Failure> {
            self.0.0.lock().unwrap().commits += 1;
            Ok(())
        }

        fn rollback(&mut self) -> Result<(), Failure> {
            Ok(())
        }

        fn dialect(&self) -> Dialect {
            Dialect::Firebird
        }
    }

    fn options(connector: &Held) -> LoadOptions<'static> {
        let connecting = Connecting::within(Duration::from_secs(60));
        LoadOptions {
            target: LoadTarget::Threads { connector: Arc::new(connector.clone()), connecting },
            duration: Duration::from_secs(600),
            ..testing::options(Arc::new(TwoPhases::default()))
        }
    }

    fn crowd(options: &LoadOptions<'_>) -> Threads {
        let LoadTarget::Threads { connector, connecting } = &options.target else {
            panic!("threads were asked for")
        };
        Threads::new(options, connector, *connecting)
    }

    /// Serves the clients until something is so.
    fn until(crowd: &mut Threads, mut is_so: impl FnMut(&mut Threads) -> bool) {
        while !is_so(crowd) {
            crowd.turn(Duration::from_millis(1)).unwrap();
        }
    }

    #[test]
    fn the_work_of_the_clients_threads_is_the_load_generators() {
        let options = LoadOptions { transactions_max: Some(20), ..options(&Held::default()) };
        let (cancel, mut progress) = (AtomicBool::new(false), |_: &_| {});
        let load_run = LoadRun::new(&options, crowd(&options), &cancel, &mut progress);
        let report = load_run.run(&[]).unwrap();
        // Two statements each; what began before the clock did may be left out.
        assert!(report.transactions >= 20 && report.client_cpu_us > 3_000.0, "{report:?}");
    }

    #[test]
    fn a_thread_that_is_held_ends_at_its_next_statement() {
        let held = Held::default();
        let mut crowd = crowd(&options(&held));
        until(&mut crowd, |crowd| crowd.gather().unwrap());
        held.set(true);
        crowd.start();
        let begun = held.0.1.wait_while(held.0.0.lock().unwrap(), |now| now.statements == 0);
        drop(begun.unwrap());
        crowd.enter(Stage::Draining);
        assert_eq!(crowd.alive(), 1);
        held.set(false);
        until(&mut crowd, |crowd| crowd.alive() == 0);
        let holding = held.0.0.lock().unwrap();
        assert_eq!((holding.statements, holding.commits), (1, 0));
    }

    #[test]
    fn clients_that_nobody_can_have_are_refused_before_a_thread_is_started() {
        let options = LoadOptions { clients: usize::MAX / 8, ..options(&Held::default()) };
        let refused = super::super::run(&options, &AtomicBool::new(false), &mut |_| {});
        assert!(matches!(refused, Err(LoadError::TooManyClients(_))), "{refused:?}");
    }
}

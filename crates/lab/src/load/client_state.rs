//! One client's way through its transactions, on one connection, without sockets.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tidegate_workload::{Dialect, Ending, Failure, Running, Session, poll};

use super::classes::ClientConnection;
use super::dispatcher::{Dispatcher, Task};
use super::wire::Wire;

/// What a server said, in whatever protocol.
pub(super) enum ServerEvent {
    /// It waits for a statement, inside a transaction or outside; the first of these ends the
    /// login.
    Ready { in_transaction: bool },
    /// The statement, or the login, failed.
    Failed(Failure),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextMessage {
    Nothing,
    Statement,
    Begin,
    Commit,
    Rollback,
    Quit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waiting for the server to be ready for the first time.
    LoggingIn,
    /// Logged in, with nothing to do: before the start, thinking, or waiting for an arrival.
    Idle,
    /// The answer to BEGIN is awaited.
    Beginning,
    /// The answer to a statement is awaited.
    Running,
    /// The answer to COMMIT is awaited.
    Committing,
    /// The answer to ROLLBACK is awaited, which the transaction itself wanted.
    Undoing,
    /// The answer to ROLLBACK is awaited, after a failure.
    RollingBack,
    Done,
}

/// A client's state, and what it does on each event of its connection.
pub(super) struct ClientState {
    connection: ClientConnection,
    wire: Rc<RefCell<Wire>>,
    state: State,
    task: Option<Task>,
    running: Option<Running<'static>>,
    /// The failure of the statement, or of the transaction that is rolled back.
    failure: Option<Failure>,
    /// Whether the transaction has been run before, so that its phases say nothing.
    is_again: bool,
}

impl ClientState {
    pub(super) fn new(connection: ClientConnection, dialect: Dialect) -> Self {
        ClientState {
            connection,
            wire: Rc::new(RefCell::new(Wire::new(dialect))),
            state: State::LoggingIn,
            task: None,
            running: None,
            failure: None,
            is_again: false,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether a transaction is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.task.is_some()
    }

    /// Whether the answer to COMMIT is awaited.
    pub(super) fn is_committing(&self) -> bool {
        self.state == State::Committing
    }

    /// How long the current transaction has been due.
    pub(super) fn age(&self, now: Instant) -> Duration {
        let task = self.task.as_ref();
        task.map_or(Duration::ZERO, |task| now.saturating_duration_since(task.scheduled))
    }

    /// The failure that came last, such as why the login was refused.
    pub(super) fn take_failure(&mut self) -> Option<Failure> {
        self.failure.take()
    }

    pub(super) fn wire(&self) -> &Rc<RefCell<Wire>> {
        &self.wire
    }

    /// Looks for something to do, as a client that has nothing. What is to be done on another of
    /// its connections leaves this one idle.
    pub(super) fn start(&mut self, dispatcher: &mut Dispatcher) -> NextMessage {
        if dispatcher.is_closing() {
            return self.quit();
        }
        if let Some(task) = dispatcher.next_on(self.connection, Instant::now()) {
            return self.begin(task, dispatcher);
        }
        self.state = State::Idle;
        NextMessage::Nothing
    }

    pub(super) fn begin(&mut self, task: Task, dispatcher: &mut Dispatcher) -> NextMessage {
        self.is_again = false;
        self.task = Some(task);
        self.attempt(dispatcher)
    }

    /// A client that waits leaves when no transaction is to begin any more.
    pub(super) fn close(&mut self) -> NextMessage {
        if self.state == State::Idle { self.quit() } else { NextMessage::Nothing }
    }

    fn attempt(&mut self, dispatcher: &mut Dispatcher) -> NextMessage {
        let Some(task) = &self.task else { return NextMessage::Nothing };
        self.wire.borrow_mut().begin(Instant::now());
        if task.transaction.is_single() {
            return self.enter(false, dispatcher);
        }
        self.state = State::Beginning;
        NextMessage::Begin
    }

    /// The transaction's own code begins to run.
    fn enter(&mut self, in_transaction: bool, dispatcher: &mut Dispatcher) -> NextMessage {
        let Some(task) = &self.task else { return NextMessage::Nothing };
        let session = Session::new(self.wire.clone());
        self.running = Some(task.transaction.clone().run(session));
        self.state = State::Running;
        self.advance(in_transaction, dispatcher)
    }

    /// Takes what the server said; what is to be sent then.
    pub(super) fn on(&mut self, event: ServerEvent, dispatcher: &mut Dispatcher) -> NextMessage {
        match event {
            ServerEvent::Failed(failure) => {
                self.failure = Some(failure);
                NextMessage::Nothing
            }
            ServerEvent::Ready { in_transaction } => self.on_ready(in_transaction, dispatcher),
        }
    }

    fn on_ready(&mut self, in_transaction: bool, dispatcher: &mut Dispatcher) -> NextMessage {
        match (self.state, self.failure.is_some()) {
            (State::LoggingIn, _) => {
                self.state = State::Idle;
                NextMessage::Nothing
            }
            (State::Idle | State::Done, _) => NextMessage::Nothing,
            (State::RollingBack, _) => self.again(dispatcher),
            (State::Committing, false) => self.ended(Ending::Commit, dispatcher),
            (State::Undoing, false) => self.ended(Ending::Rollback, dispatcher),
            _ if dispatcher.is_closing() => self.quit(),
            (State::Running, _) => {
                let outcome = self.failure.take().map_or(Ok(()), Err);
                self.wire.borrow_mut().ready(outcome);
                self.advance(in_transaction, dispatcher)
            }
            (State::Beginning, false) => self.enter(in_transaction, dispatcher),
            (State::Beginning | State::Committing | State::Undoing, true) => {
                self.on_failure(in_transaction, dispatcher)
            }
        }
    }

    /// Lets the transaction's code go on, up to its next statement or its end.
    fn advance(&mut self, in_transaction: bool, dispatcher: &mut Dispatcher) -> NextMessage {
        let Some(running) = &mut self.running else { return NextMessage::Nothing };
        let end = match poll(running) {
            Poll::Pending => return NextMessage::Statement,
            Poll::Ready(end) => end,
        };
        self.running = None;
        let is_single = self.task.as_ref().is_some_and(|task| task.transaction.is_single());
        match end {
            Err(failure) => {
                self.failure = Some(failure);
                self.on_failure(in_transaction, dispatcher)
            }
            Ok(ending) if is_single => self.ended(ending, dispatcher),
            Ok(Ending::Commit) => {
                self.state = State::Committing;
                NextMessage::Commit
            }
            Ok(Ending::Rollback) => {
                self.state = State::Undoing;
                NextMessage::Rollback
            }
        }
    }

    fn ended(&mut self, ending: Ending, dispatcher: &mut Dispatcher) -> NextMessage {
        let now = Instant::now();
        if let Some(task) = self.task.take() {
            if ending == Ending::Commit {
                task.transaction.committed();
            }
            let mut wire = self.wire.borrow_mut();
            let phases = if self.is_again { &[] } else { wire.phases(now) };
            dispatcher.ended(&task, ending, phases, now);
        }
        self.start(dispatcher)
    }

    fn on_failure(&mut self, in_transaction: bool, dispatcher: &mut Dispatcher) -> NextMessage {
        if in_transaction {
            self.state = State::RollingBack;
            return NextMessage::Rollback;
        }
        self.again(dispatcher)
    }

    /// After a failure: the same transaction when that may help, else the next one.
    fn again(&mut self, dispatcher: &mut Dispatcher) -> NextMessage {
        let is_retried = self.failure.take().is_some_and(|failure| dispatcher.failed(&failure));
        if dispatcher.is_closing() {
            return self.quit();
        }
        if is_retried {
            self.is_again = true;
            return self.attempt(dispatcher);
        }
        self.task = None;
        self.start(dispatcher)
    }

    fn quit(&mut self) -> NextMessage {
        self.task = None;
        self.running = None;
        self.state = State::Done;
        NextMessage::Quit
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::load::testing::{self, STATEMENTS};
    use crate::load::{LoadOptions, Stage};
    use tidegate_gate::Class;
    use tidegate_subject::client::undone;
    use tidegate_workload::pgbench::Scale;
    use tidegate_workload::point_select::PointSelect;
    use tidegate_workload::workload::Workload;
    use tidegate_workload::{Conflict, tpcb::Tpcb};

    const CONNECTION: ClientConnection = ClientConnection { client: 0, class: Class::Normal };
    const IDLE: ServerEvent = ServerEvent::Ready { in_transaction: false };
    const IN_BLOCK: ServerEvent = ServerEvent::Ready { in_transaction: true };

    /// A session past the barrier, in the measured time.
    struct Bench {
        state: ClientState,
        dispatcher: Dispatcher,
    }

    fn bench(options: &LoadOptions<'_>) -> Bench {
        let mut bench = Bench {
            state: ClientState::new(CONNECTION, Dialect::Postgres),
            dispatcher: Dispatcher::new(options),
        };
        assert_eq!(bench.on(IDLE), "");
        bench.dispatcher.tally.stage = Stage::Measuring;
        let first = bench.state.start(&mut bench.dispatcher);
        bench.text(first);
        bench
    }

    fn tpcb() -> Bench {
        bench(&testing::options(Arc::new(Tpcb::new(Scale::ONE))))
    }

    impl Bench {
        fn on(&mut self, event: ServerEvent) -> String {
            let send = self.state.on(event, &mut self.dispatcher);
            self.text(send)
        }

        fn text(&mut self, send: NextMessage) -> String {
            match send {
                NextMessage::Statement => {
                    let mut wire = self.state.wire().borrow_mut();
                    String::from_utf8_lossy(wire.take_statement().unwrap()).into_owned()
                }
                NextMessage::Nothing => String::new(),
                other => format!("{other:?}"),
            }
        }

        /// Answers what was sent, up to a statement that begins so.
        fn run_to(&mut self, statement: &str) {
            for _ in 0..STATEMENTS {
                self.answer();
                if self.on(IN_BLOCK).starts_with(statement) {
                    return;
                }
            }
            panic!("no statement begins with {statement}");
        }

        /// One row with a number.
        fn answer(&self) {
            let mut wire = self.state.wire().borrow_mut();
            wire.row([Some(&b"5"[..])].into_iter());
            wire.complete(1);
        }

        fn fail(&mut self, failure: Failure) {
            assert_eq!(self.on(ServerEvent::Failed(failure)), "");
        }

        fn counts(&self) -> (u64, u64, u64) {
            let tally = &self.dispatcher.tally;
            (tally.transactions, tally.conflicts.values().sum(), tally.errors.values().sum())
        }
    }

    fn refused(code: &str) -> Failure {
        Failure::Refused { code: code.to_owned(), message: String::new() }
    }

    #[test]
    fn a_commit_counts_and_the_next_transaction_begins() {
        let mut bench = tpcb();
        bench.run_to("Commit");
        assert_eq!(bench.counts(), (0, 0, 0));
        assert_eq!(bench.on(IDLE), "Begin");
        assert_eq!(bench.counts(), (1, 0, 0));
    }

    #[test]
    fn a_single_statement_needs_no_begin() {
        let mut bench = bench(&testing::options(Arc::new(PointSelect { scale: Scale::ONE })));
        bench.answer();
        assert!(bench.on(IDLE).starts_with("SELECT abalance"));
        assert_eq!(bench.counts(), (1, 0, 0));
    }

    #[test]
    fn a_conflict_runs_the_same_transaction_again() {
        for (failure, is_retried) in [
            (Failure::Conflict(Conflict::Deadlock), true),
            (Failure::Conflict(Conflict::Serialization), true),
            (refused("23505"), false),
        ] {
            let mut bench = tpcb();
            let statement = bench.on(IN_BLOCK);
            bench.run_to("UPDATE pgbench_branches");
            bench.fail(failure);
            assert_eq!(bench.on(IN_BLOCK), "Rollback");
            assert_eq!(bench.on(IDLE), "Begin");
            assert_eq!(bench.on(IN_BLOCK) == statement, is_retried);
            let expected = if is_retried { (0, 1, 0) } else { (0, 0, 1) };
            assert_eq!(bench.counts(), expected);
        }
    }

    #[test]
    fn a_switch_changes_the_next_transaction_and_not_the_one_under_way() {
        let mut bench = tpcb();
        bench.run_to("UPDATE pgbench_branches");
        bench.dispatcher.switch_to(&PointSelect { scale: Scale::ONE }, 1);
        bench.fail(Failure::Conflict(Conflict::Deadlock));
        assert_eq!(bench.on(IN_BLOCK), "Rollback");
        assert_eq!(bench.on(IDLE), "Begin", "the same transaction again");
        bench.run_to("Commit");
        assert!(bench.on(IDLE).starts_with("SELECT abalance"));
        let kinds = bench.dispatcher.tally.kinds();
        let committed: Vec<_> = kinds.iter().map(|kind| (kind.kind, kind.committed)).collect();
        assert_eq!(committed, [("transfer", 1), ("select", 0)]);
    }

    #[test]
    fn an_error_that_leaves_no_transaction_needs_no_rollback() {
        let mut bench = tpcb();
        bench.fail(refused("53300"));
        assert_eq!(bench.on(IDLE), "Begin");
        assert_eq!(bench.counts(), (0, 0, 1));
    }

    #[test]
    fn a_commit_that_undoes_is_an_error_and_no_commit() {
        let mut bench = tpcb();
        bench.run_to("Commit");
        assert!(bench.state.is_committing());
        bench.fail(undone());
        assert_eq!(bench.on(IDLE), "Begin");
        assert_eq!(bench.counts(), (0, 0, 1));
        assert_eq!(bench.dispatcher.tally.errors.keys().next().map(String::as_str), Some("25P02"));
    }

    #[test]
    fn a_transaction_is_told_that_it_lasts_when_the_database_has_said_so() {
        let workload = testing::TwoPhases::default();
        let committed = || workload.committed.load(Ordering::Relaxed);
        let mut bench = bench(&testing::options(Arc::new(workload.clone())));
        for (failure, expected) in [(Some(undone()), 0), (None, 1)] {
            bench.run_to("Commit");
            if let Some(failure) = failure {
                bench.fail(failure);
            }
            assert_eq!(committed(), 0);
            assert_eq!(bench.on(IDLE), "Begin");
            assert_eq!(committed(), expected);
        }
    }

    #[test]
    fn a_statement_that_somebody_cancelled_is_counted_unless_that_was_us() {
        let mut theirs = tpcb();
        theirs.fail(Failure::Stopped);
        assert_eq!(theirs.on(IN_BLOCK), "Rollback");
        assert_eq!(theirs.on(IDLE), "Begin");
        assert_eq!(theirs.counts(), (0, 0, 1));

        let mut ours = tpcb();
        ours.dispatcher.tally.stage = Stage::Draining;
        ours.fail(Failure::Stopped);
        assert_eq!(ours.on(IN_BLOCK), "Quit");
        assert_eq!(ours.counts(), (0, 0, 0));
    }

    #[test]
    fn a_missing_row_is_an_error_of_its_own() {
        let mut bench = tpcb();
        assert!(bench.on(IN_BLOCK).starts_with("UPDATE pgbench_accounts"));
        assert!(bench.on(IN_BLOCK).starts_with("SELECT"));
        assert_eq!(bench.on(IN_BLOCK), "Rollback");
        assert_eq!(bench.on(IDLE), "Begin");
        assert!(bench.dispatcher.tally.errors.keys().any(|error| error.contains("account")));
    }

    #[test]
    fn a_straggler_ends_at_its_next_answer() {
        let mut early = tpcb();
        early.run_to("SELECT");
        early.dispatcher.tally.stage = Stage::Draining;
        assert_eq!(early.on(IN_BLOCK), "Quit");
        assert_eq!(early.dispatcher.tally.total(), 0);

        let mut late = tpcb();
        late.run_to("Commit");
        late.dispatcher.tally.stage = Stage::Draining;
        assert_eq!(late.on(IDLE), "Quit");
        assert_eq!(
            (late.dispatcher.tally.late_commits, late.dispatcher.tally.transactions),
            (1, 0)
        );

        let mut failed = tpcb();
        failed.fail(Failure::Stopped);
        failed.dispatcher.tally.stage = Stage::Draining;
        assert_eq!(failed.on(IDLE), "Quit");
        assert!(failed.state.is_done() && !failed.state.is_busy());
    }

    #[test]
    fn phases_are_told_apart_and_retries_left_out() {
        let workload = testing::TwoPhases::default();
        assert_eq!(workload.kinds()[0].phases, ["I", "II"]);
        let mut bench = bench(&testing::options(Arc::new(workload)));
        bench.run_to("SELECT 2");
        bench.run_to("Commit");
        assert_eq!(bench.on(IDLE), "Begin");
        let phases = &bench.dispatcher.tally.kinds()[0].phases;
        let names: Vec<_> = phases.iter().map(|phase| phase.phase).collect();
        assert_eq!(names, ["I", "II"]);
        assert!(phases.iter().all(|phase| phase.latency.max_ms > 0.0), "{phases:?}");
    }
}

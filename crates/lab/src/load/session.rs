//! One client's way through its transactions, without sockets.

use std::time::{Duration, Instant};

use tidegate_subject::client::{Event, ServerError, TERMINATE, TransactionStatus, encode_query};
use tidegate_workload::pgbench::Scale;
use tidegate_workload::{Draw, Transaction, Workload};

use super::Stage;
use super::tally::Tally;

/// SQLSTATEs after which the same transaction may well succeed: serialization failure, deadlock.
const RETRYABLE: [&str; 2] = ["40001", "40P01"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waiting for the first `ReadyForQuery`.
    LoggingIn,
    /// Logged in; waiting for the others.
    AtBarrier,
    /// The answer to this statement of the transaction is awaited.
    Running { statement: usize },
    /// The answer to a ROLLBACK is awaited.
    RollingBack,
    /// Nothing more will be sent.
    Done,
}

/// What clients do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) workload: Workload,
    pub(super) scale: Scale,
}

impl Work {
    pub(super) fn transaction(self, draw: &mut Draw) -> Transaction {
        self.workload.transaction(self.scale, draw)
    }
}

/// A client's state, and what it does on each event of its connection.
pub(super) struct Session {
    draw: Draw,
    state: State,
    transaction: Transaction,
    /// When the transaction's first statement was written, retries not counted.
    began: Instant,
    /// The error of the statement, or of the transaction that is rolled back.
    error: Option<ServerError>,
}

impl Session {
    /// The session of a client whose first transaction is `work`.
    pub(super) fn new(work: Work, mut draw: Draw, now: Instant) -> Self {
        Session {
            transaction: work.transaction(&mut draw),
            draw,
            state: State::LoggingIn,
            began: now,
            error: None,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// How long the current transaction has been running.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began)
    }

    /// The error that came last, such as why the login was refused.
    pub(super) fn take_error(&mut self) -> Option<ServerError> {
        self.error.take()
    }

    /// Starts the first transaction.
    pub(super) fn start(&mut self, script: &mut Script, out: &mut Vec<u8>) {
        self.began = Instant::now();
        self.send(0, script, out);
    }

    /// Does what the server's word asks for; what is to be sent is appended to `out`.
    pub(super) fn on_event(
        &mut self,
        event: Event<'_>,
        tally: &mut Tally,
        script: &mut Script,
        out: &mut Vec<u8>,
    ) {
        match event {
            Event::Row(_) | Event::Complete(_) => {}
            Event::Error(payload) => {
                let error = ServerError::read(payload);
                if tally.stage != Stage::Connecting {
                    tally.error(error.code.clone());
                }
                self.error = Some(error);
            }
            Event::Ready(status) => self.on_ready(status, tally, script, out),
        }
    }

    fn on_ready(
        &mut self,
        status: TransactionStatus,
        tally: &mut Tally,
        script: &mut Script,
        out: &mut Vec<u8>,
    ) {
        match self.state {
            State::LoggingIn => self.state = State::AtBarrier,
            State::AtBarrier | State::Done => {}
            State::Running { .. } if self.error.is_some() => {
                if status == TransactionStatus::Idle {
                    self.again(tally, script, out);
                } else {
                    encode_query(out, b"ROLLBACK;");
                    self.state = State::RollingBack;
                }
            }
            State::RollingBack => self.again(tally, script, out),
            State::Running { statement } => self.advance(statement + 1, tally, script, out),
        }
    }

    /// Goes on with statement `next`, or with the next transaction after the last.
    fn advance(&mut self, next: usize, tally: &mut Tally, script: &mut Script, out: &mut Vec<u8>) {
        let is_committed = next >= self.transaction.statements();
        if is_committed {
            let now = Instant::now();
            tally.commit(self.age(now));
            self.began = now;
        }
        if tally.stage == Stage::Draining {
            self.finish(out);
        } else if is_committed {
            self.transaction = script.work.transaction(&mut self.draw);
            self.send(0, script, out);
        } else {
            self.send(next, script, out);
        }
    }

    /// After a failure: the same transaction when that may help, else the next one.
    fn again(&mut self, tally: &mut Tally, script: &mut Script, out: &mut Vec<u8>) {
        let error = self.error.take();
        if tally.stage == Stage::Draining {
            return self.finish(out);
        }
        if error.is_some_and(|error| RETRYABLE.contains(&error.code.as_str())) {
            tally.retries += 1;
        } else {
            self.transaction = script.work.transaction(&mut self.draw);
            self.began = Instant::now();
        }
        self.send(0, script, out);
    }

    fn send(&mut self, statement: usize, script: &mut Script, out: &mut Vec<u8>) {
        script.text.clear();
        self.transaction.write_statement(statement, &mut script.text);
        encode_query(out, &script.text);
        self.state = State::Running { statement };
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(TERMINATE);
        self.state = State::Done;
    }
}

/// What comes next, and where statements are written before they become messages; one for all
/// clients.
pub(super) struct Script {
    pub(super) work: Work,
    text: Vec<u8>,
}

impl Script {
    pub(super) fn new(work: Work) -> Self {
        Script { work, text: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_subject::client::TransactionStatus::{Failed, Idle, InBlock};

    fn work(workload: Workload) -> Work {
        Work { workload, scale: Scale::new(1).unwrap() }
    }

    /// A TPC-B session past the barrier, in the measured time.
    struct Bench {
        session: Session,
        script: Script,
        tally: Tally,
        out: Vec<u8>,
    }

    fn bench() -> Bench {
        let work = work(Workload::Tpcb);
        let mut bench = Bench {
            session: Session::new(work, Draw::new(1, 1), Instant::now()),
            script: Script::new(work),
            tally: Tally::new(),
            out: Vec::new(),
        };
        assert_eq!(bench.on(Event::Ready(Idle)), "");
        assert_eq!(bench.session.state, State::AtBarrier);
        bench.tally.stage = Stage::Measuring;
        bench.session.start(&mut bench.script, &mut bench.out);
        assert_eq!(bench.sent(), "BEGIN;");
        bench
    }

    impl Bench {
        fn on(&mut self, event: Event<'_>) -> String {
            let Bench { session, script, tally, out } = self;
            session.on_event(event, tally, script, out);
            self.sent()
        }

        /// The query just sent, without the message's header and final zero.
        fn sent(&mut self) -> String {
            let message = std::mem::take(&mut self.out);
            let end = message.len().saturating_sub(1);
            String::from_utf8_lossy(message.get(5..end).unwrap_or_default()).into_owned()
        }

        fn run_to(&mut self, statement: &str) {
            while !self.on(Event::Ready(InBlock)).starts_with(statement) {}
        }

        /// An `ErrorResponse` with the code alone.
        fn fail(&mut self, code: &str) {
            let payload = [b"C", code.as_bytes(), b"\0\0"].concat();
            assert_eq!(self.on(Event::Error(&payload)), "");
        }
    }

    #[test]
    fn a_commit_counts_and_the_next_transaction_begins() {
        let mut bench = bench();
        bench.run_to("END");
        assert_eq!(bench.tally.transactions, 0);
        assert_eq!(bench.on(Event::Ready(Idle)), "BEGIN;");
        assert_eq!(bench.tally.transactions, 1);
    }

    #[test]
    fn a_deadlock_victim_runs_the_same_transaction_again() {
        for (code, is_retried) in [("40P01", true), ("40001", true), ("23505", false)] {
            let mut bench = bench();
            let before = bench.session.transaction;
            bench.run_to("UPDATE pgbench_branches");
            bench.fail(code);
            assert_eq!(bench.on(Event::Ready(Failed)), "ROLLBACK;");
            assert_eq!(bench.on(Event::Ready(Idle)), "BEGIN;");
            assert_eq!(bench.session.transaction == before, is_retried, "{code}");
            assert_eq!(bench.tally.retries, u64::from(is_retried));
            assert_eq!(bench.tally.errors.get(code), Some(&1));
            assert_eq!(bench.tally.transactions, 0);
        }
    }

    #[test]
    fn a_switch_changes_the_next_transaction_and_not_the_one_under_way() {
        let mut bench = bench();
        bench.run_to("UPDATE pgbench_branches");
        bench.script.work = work(Workload::PointSelect);
        bench.fail("40P01");
        assert_eq!(bench.on(Event::Ready(Failed)), "ROLLBACK;");
        assert_eq!(bench.on(Event::Ready(Idle)), "BEGIN;", "the same transaction again");
        bench.run_to("END");
        assert!(bench.on(Event::Ready(Idle)).starts_with("SELECT abalance"));
        assert_eq!(bench.tally.transactions, 1);
    }

    #[test]
    fn an_error_that_leaves_no_transaction_needs_no_rollback() {
        let mut bench = bench();
        bench.fail("53300");
        assert_eq!(bench.on(Event::Ready(Idle)), "BEGIN;");
        assert_eq!(bench.tally.committed(), 0);
    }

    #[test]
    fn a_straggler_ends_at_its_next_answer() {
        let mut early = bench();
        early.run_to("SELECT");
        early.tally.stage = Stage::Draining;
        early.on(Event::Ready(InBlock));
        assert!(early.session.is_done());
        assert_eq!(early.tally.committed(), 0);

        let mut late = bench();
        late.run_to("END");
        late.tally.stage = Stage::Draining;
        late.on(Event::Ready(Idle));
        assert!(late.session.is_done());
        assert_eq!((late.tally.late_commits, late.tally.transactions), (1, 0));

        let mut failed = bench();
        failed.fail("57014");
        failed.tally.stage = Stage::Draining;
        failed.on(Event::Ready(Idle));
        assert!(failed.session.is_done());
    }
}

//! A transaction's way to a database that is given text: the statement out, the answer in.
//!
//! The running transaction and the client that feeds it share a [`Wire`]: the transaction puts its
//! statement there and stops; the client sends it, puts what comes back there, and lets the
//! transaction go on.

use std::task::Poll;
use std::time::{Duration, Instant};

use tidegate_subject::phases::PhaseClock;
use tidegate_workload::{Dialect, Driver, Failure, Reply, Statement, Value, Wants};

pub(super) struct Wire {
    dialect: Dialect,
    text: Vec<u8>,
    is_submitted: bool,
    wants: Wants,
    reply: Reply,
    /// What became of the statement, once that is known.
    outcome: Option<Result<(), Failure>>,
    clock: PhaseClock,
}

impl Wire {
    pub(super) fn new(dialect: Dialect) -> Self {
        Wire {
            dialect,
            text: Vec::new(),
            is_submitted: false,
            wants: Wants::Count,
            reply: Reply::default(),
            outcome: None,
            clock: PhaseClock::new(Instant::now()),
        }
    }

    pub(super) fn begin(&mut self, now: Instant) {
        self.is_submitted = false;
        self.outcome = None;
        self.clock.restart(now);
    }

    /// The statement that waits to be sent.
    pub(super) fn take_statement(&mut self) -> Option<&[u8]> {
        std::mem::take(&mut self.is_submitted).then_some(&self.text)
    }

    /// A row of the answer has come, as the text of its columns.
    pub(super) fn row<'r>(&mut self, columns: impl Iterator<Item = Option<&'r [u8]>>) {
        self.reply.count += 1;
        if self.wants == Wants::Rows {
            self.reply.rows.push_row(columns);
        }
    }

    /// The answer is complete. How many rows were changed, says the server; how many were returned,
    /// we have counted.
    pub(super) fn complete(&mut self, count: u64) {
        self.reply.count = self.reply.count.max(count);
    }

    /// The server waits for the next statement; the last has had this outcome.
    pub(super) fn ready(&mut self, outcome: Result<(), Failure>) {
        self.outcome = Some(outcome);
    }

    /// How long the transaction's phases took, the last up to now.
    pub(super) fn phases(&mut self, now: Instant) -> &[Duration] {
        self.clock.read(now)
    }
}

impl Driver for Wire {
    fn submit(&mut self, statement: &Statement, values: &[Value<'_>], wants: Wants) {
        self.text.clear();
        statement.render(self.dialect, values, &mut self.text);
        self.is_submitted = true;
        self.wants = wants;
        self.reply = Reply::default();
        self.outcome = None;
    }

    fn answer(&mut self) -> Poll<Result<Reply, Failure>> {
        match self.outcome.take() {
            Some(outcome) => Poll::Ready(outcome.map(|()| std::mem::take(&mut self.reply))),
            None => Poll::Pending,
        }
    }

    fn phase(&mut self, number: usize) {
        self.clock.enter(number, Instant::now());
    }
}

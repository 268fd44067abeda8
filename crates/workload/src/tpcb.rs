//! pgbench's default transaction, modelled after TPC-B: move money, read it back, log it.
//!
//! Every transaction updates a branch, and at scale 1 there is one branch: all transactions queue
//! for its row lock, which is what makes throughput collapse when too many of them run at once.
//!
//! Many a program reads what it is about to change. With [`Tpcb::reads_first`] each UPDATE comes
//! after a SELECT of the same row. Where reads lock, two transactions that have read a row both
//! wait for the other to let go of it: a deadlock by conversion, and the more the more run at once.

use std::sync::Arc;

use crate::pgbench::{self, ACCOUNTS, BRANCHES, Scale, Sums, TELLERS};
use crate::point_select::BALANCE;
use crate::workload::{Client, Condition, Depth, Kind, Transaction, Workload};
use crate::{Ending, Failure, Random, Running, Session, Statement, Table, Value};

/// The largest amount moved, in either direction.
const DELTA_MAX: i32 = 5000;

const ACCOUNT: Statement =
    Statement::new("UPDATE pgbench_accounts SET abalance = abalance + ? WHERE aid = ?");
const TELLER: Statement =
    Statement::new("UPDATE pgbench_tellers SET tbalance = tbalance + ? WHERE tid = ?");
const BRANCH: Statement =
    Statement::new("UPDATE pgbench_branches SET bbalance = bbalance + ? WHERE bid = ?");
const OF_TELLER: Statement = Statement::new("SELECT tbalance FROM pgbench_tellers WHERE tid = ?");
const OF_BRANCH: Statement = Statement::new("SELECT bbalance FROM pgbench_branches WHERE bid = ?");
const HISTORY: Statement = Statement::new(
    "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) \
     VALUES (?, ?, ?, ?, CURRENT_TIMESTAMP)",
);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tpcb {
    pub scale: Scale,
    /// Whether each row is read before it is changed, which pgbench does not.
    pub reads_first: bool,
}

impl Tpcb {
    /// pgbench's transaction on tables of this size.
    pub const fn new(scale: Scale) -> Self {
        Tpcb { scale, reads_first: false }
    }
}

impl Workload for Tpcb {
    fn name(&self) -> &'static str {
        "tpcb"
    }

    fn kinds(&self) -> &'static [Kind] {
        &[Kind { name: "transfer", phases: &["all"] }]
    }

    fn tables(&self) -> Vec<Table> {
        pgbench::tables()
    }

    fn rows(&self, table: usize) -> Box<dyn Iterator<Item = Vec<Value<'static>>> + Send + '_> {
        pgbench::rows(self.scale, table)
    }

    fn client(&self, number: usize, _: usize, seed: u64) -> Box<dyn Client> {
        Box::new(Teller { workload: *self, draw: Random::new(seed, number as u64) })
    }

    fn check<'d>(&self, session: Session<'d>, _: Depth) -> Running<'d, Vec<Condition>> {
        Box::pin(async move { Ok(vec![Sums::read(&session).await?.condition()]) })
    }
}

struct Teller {
    workload: Tpcb,
    draw: Random,
}

impl Client for Teller {
    fn next(&mut self) -> Arc<dyn Transaction> {
        let Tpcb { scale, reads_first } = self.workload;
        Arc::new(Transfer { reads_first, ..Transfer::draw(scale, &mut self.draw) })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The account's number, from 1.
    pub account: i32,
    /// The branch's number, from 1.
    pub branch: i32,
    /// The teller's number, from 1.
    pub teller: i32,
    /// What the balances of all three change by.
    pub delta: i32,
    /// Whether each row is read before it is changed.
    pub reads_first: bool,
}

impl Transfer {
    /// Draws the values with pgbench's ranges: account, branch and teller independent of each
    /// other, so that the teller and the account need not be the branch's.
    pub fn draw(scale: Scale, draw: &mut Random) -> Self {
        Transfer {
            account: draw.between(1, scale.last(ACCOUNTS)),
            branch: draw.between(1, scale.last(BRANCHES)),
            teller: draw.between(1, scale.last(TELLERS)),
            delta: draw.between(-DELTA_MAX, DELTA_MAX),
            reads_first: false,
        }
    }

    async fn transfer(&self, session: Session<'_>) -> Result<Ending, Failure> {
        let Transfer { account, branch, teller, delta, .. } = *self;
        self.change(&session, &BALANCE, &ACCOUNT, account).await?;
        session.query_some(&BALANCE, &[account.into()], "an account").await?;
        self.change(&session, &OF_TELLER, &TELLER, teller).await?;
        self.change(&session, &OF_BRANCH, &BRANCH, branch).await?;
        let values = [teller.into(), branch.into(), account.into(), delta.into()];
        session.execute(&HISTORY, &values).await?;
        Ok(Ending::Commit)
    }
}

impl Transfer {
    /// Changes a row's balance, after a look at it if that is the form.
    async fn change(
        &self,
        session: &Session<'_>,
        select: &Statement,
        update: &Statement,
        number: i32,
    ) -> Result<(), Failure> {
        if self.reads_first {
            session.query_some(select, &[number.into()], "a row with a balance").await?;
        }
        session.execute(update, &[self.delta.into(), number.into()]).await?;
        Ok(())
    }
}

impl Transaction for Transfer {
    fn kind(&self) -> usize {
        0
    }

    fn run(self: Arc<Self>, session: Session<'_>) -> Running<'_> {
        Box::pin(async move { self.transfer(session).await })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Connection, Dialect, Reply, Rows, Wants, finish};

    /// Writes down what it is given; every query has a row.
    #[derive(Default)]
    struct Writer(Vec<String>);

    impl Connection for Writer {
        fn run(
            &mut self,
            statement: &Statement,
            values: &[Value<'_>],
            _: Wants,
        ) -> Result<Reply, Failure> {
            let mut text = Vec::new();
            statement.render(Dialect::Postgres, values, &mut text);
            self.0.push(String::from_utf8(text).unwrap());
            let mut rows = Rows::new(1);
            rows.push(&Value::Int(0));
            Ok(Reply { rows, count: 1 })
        }
    }

    #[test]
    fn the_statements_are_pgbenchs() {
        let values =
            Transfer { account: 42, branch: 1, teller: 7, delta: -300, reads_first: false };
        let transfer = Arc::new(values);
        let mut writer = Writer::default();
        assert_eq!(finish(transfer.run(Session::immediate(&mut writer))), Ok(Ending::Commit));
        assert_eq!(
            writer.0,
            [
                "UPDATE pgbench_accounts SET abalance = abalance + -300 WHERE aid = 42",
                "SELECT abalance FROM pgbench_accounts WHERE aid = 42",
                "UPDATE pgbench_tellers SET tbalance = tbalance + -300 WHERE tid = 7",
                "UPDATE pgbench_branches SET bbalance = bbalance + -300 WHERE bid = 1",
                "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) \
                 VALUES (7, 1, 42, -300, CURRENT_TIMESTAMP)",
            ]
        );
    }

    #[test]
    fn a_program_that_looks_first_reads_each_row_it_changes() {
        let values = Transfer { account: 4, branch: 1, teller: 7, delta: 1, reads_first: true };
        let mut writer = Writer::default();
        let running = Arc::new(values).run(Session::immediate(&mut writer));
        assert_eq!(finish(running), Ok(Ending::Commit));
        let verbs: Vec<&str> = writer.0.iter().map(|text| &text[..6]).collect();
        let expected =
            ["SELECT", "UPDATE", "SELECT", "SELECT", "UPDATE", "SELECT", "UPDATE", "INSERT"];
        assert_eq!(verbs, expected);
    }

    #[test]
    fn values_stay_in_range_and_reach_its_ends() {
        let scale = Scale::new(2).unwrap();
        let mut draw = Random::new(5, 0);
        let drawn: Vec<Transfer> = (0..200_000).map(|_| Transfer::draw(scale, &mut draw)).collect();
        let range = |value: fn(&Transfer) -> i32| {
            let values = drawn.iter().map(value);
            (values.clone().min().unwrap(), values.max().unwrap())
        };
        assert_eq!(range(|t| t.branch), (1, 2));
        assert_eq!(range(|t| t.teller), (1, 20));
        assert_eq!(range(|t| t.delta), (-5000, 5000));
        let (low, high) = range(|t| t.account);
        assert!((1..100).contains(&low) && (199_900..=200_000).contains(&high));
    }
}

//! One read by primary key, each its own transaction: `pgbench --select-only`.

use std::sync::Arc;

use crate::pgbench::{self, ACCOUNTS, Scale, Sums};
use crate::workload::{Client, Condition, Depth, Kind, Transaction, Workload};
use crate::{Ending, Random, Running, Session, Statement, Table, Value};

pub(crate) const BALANCE: Statement =
    Statement::new("SELECT abalance FROM pgbench_accounts WHERE aid = ?");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointSelect {
    pub scale: Scale,
}

impl Workload for PointSelect {
    fn name(&self) -> &'static str {
        "point-select"
    }

    fn kinds(&self) -> &'static [Kind] {
        &[Kind { name: "select", phases: &["all"] }]
    }

    fn tables(&self) -> Vec<Table> {
        pgbench::tables()
    }

    fn rows(&self, table: usize) -> Box<dyn Iterator<Item = Vec<Value<'static>>> + Send + '_> {
        pgbench::rows(self.scale, table)
    }

    fn client(&self, number: usize, _: usize, seed: u64) -> Box<dyn Client> {
        let last = self.scale.last(ACCOUNTS);
        Box::new(Reader { last, draw: Random::new(seed, number as u64) })
    }

    fn check<'d>(&self, session: Session<'d>, _: Depth) -> Running<'d, Vec<Condition>> {
        Box::pin(async move { Ok(vec![Sums::read(&session).await?.condition()]) })
    }
}

struct Reader {
    /// The account with the highest number.
    last: i32,
    draw: Random,
}

impl Client for Reader {
    fn next(&mut self) -> Arc<dyn Transaction> {
        Arc::new(Select { account: self.draw.between(1, self.last) })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Select {
    /// The account's number, from 1.
    pub account: i32,
}

impl Transaction for Select {
    fn kind(&self) -> usize {
        0
    }

    fn is_single(&self) -> bool {
        true
    }

    fn run(self: Arc<Self>, session: Session<'_>) -> Running<'_> {
        Box::pin(async move {
            session.query_some(&BALANCE, &[self.account.into()], "an account").await?;
            Ok(Ending::Commit)
        })
    }
}

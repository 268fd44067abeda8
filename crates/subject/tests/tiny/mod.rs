//! A workload small enough to be seen through: money moves between accounts and stays as much.

use std::sync::Arc;

use tidegate_workload::workload::{Client, Condition, Depth, Kind, Transaction, Workload};
use tidegate_workload::{
    Column, Ending, Index, Random, Running, Session, Statement, Table, Type, Value,
};

/// How many accounts there are; more than one batch of rows.
pub(crate) const ACCOUNTS: i32 = 2_500;

const READ: Statement =
    Statement::new("SELECT cents FROM account WHERE id = ? AND kind = ? FOR UPDATE");
const ADD: Statement = Statement::new("UPDATE account SET cents = cents + ? WHERE id = ?");
const TOTAL: Statement = Statement::new("SELECT COUNT(*), SUM(cents) FROM account");

#[derive(Debug)]
pub(crate) struct Tiny;

impl Workload for Tiny {
    fn name(&self) -> &'static str {
        "tiny"
    }

    fn kinds(&self) -> &'static [Kind] {
        &[Kind { name: "move", phases: &["all"] }, Kind { name: "add", phases: &["all"] }]
    }

    fn tables(&self) -> Vec<Table> {
        vec![Table {
            name: "account",
            columns: vec![
                Column::new("id", Type::Int),
                Column::new("kind", Type::Char(4)),
                Column::new("cents", Type::BigInt),
                Column::nullable("note", Type::Varchar(20)),
            ],
            primary_key: vec!["id"],
            indexes: vec![Index {
                name: "account_kind",
                columns: vec!["kind", "id"],
                unique: true,
            }],
        }]
    }

    fn rows(&self, _: usize) -> Box<dyn Iterator<Item = Vec<Value<'static>>> + Send + '_> {
        Box::new((0..ACCOUNTS).map(|id| {
            let note = if id % 2 == 0 { Value::Null } else { "it's \u{e4}".into() };
            vec![id.into(), "ab".into(), 100.into(), note]
        }))
    }

    fn client(&self, number: usize, _: usize, seed: u64) -> Box<dyn Client> {
        Box::new(Mover { draw: Random::new(seed, number as u64) })
    }

    fn check<'d>(&self, session: Session<'d>, _: Depth) -> Running<'d, Vec<Condition>> {
        Box::pin(async move {
            let rows = session.query_some(&TOTAL, &[], "the total").await?;
            let (count, total) = (rows.int(0, 0), rows.int(0, 1));
            let expected = i64::from(ACCOUNTS);
            let holds = count == Some(expected) && total == Some(expected * 100);
            let violation = (!holds).then(|| format!("{count:?} accounts hold {total:?}"));
            Ok(vec![Condition { name: "nothing is lost", violation }])
        })
    }
}

struct Mover {
    draw: Random,
}

impl Client for Mover {
    fn next(&mut self) -> Arc<dyn Transaction> {
        let from = self.draw.between(0, ACCOUNTS - 1);
        let to = self.draw.between(0, ACCOUNTS - 1);
        if self.draw.between(0, 3) == 0 {
            Arc::new(Nothing { account: from })
        } else {
            Arc::new(Move { from, to, cents: self.draw.between(1, 150) })
        }
    }
}

/// Moves cents, unless the account has too few.
#[derive(Debug)]
struct Move {
    from: i32,
    to: i32,
    cents: i32,
}

impl Transaction for Move {
    fn kind(&self) -> usize {
        0
    }

    fn run(self: Arc<Self>, session: Session<'_>) -> Running<'_> {
        Box::pin(async move {
            let values = [self.from.into(), "ab".into()];
            let rows = session.query_some(&READ, &values, "an account").await?;
            session.execute(&ADD, &[(-self.cents).into(), self.from.into()]).await?;
            if rows.int(0, 0) < Some(self.cents.into()) {
                return Ok(Ending::Rollback);
            }
            session.execute(&ADD, &[self.cents.into(), self.to.into()]).await?;
            Ok(Ending::Commit)
        })
    }
}

/// Changes a row to what it was, with one statement.
#[derive(Debug)]
struct Nothing {
    account: i32,
}

impl Transaction for Nothing {
    fn kind(&self) -> usize {
        1
    }

    fn is_single(&self) -> bool {
        true
    }

    fn run(self: Arc<Self>, session: Session<'_>) -> Running<'_> {
        Box::pin(async move {
            session.execute(&ADD, &[0.into(), self.account.into()]).await?;
            Ok(Ending::Commit)
        })
    }
}

//! A workload small enough to be seen through: money moves between accounts and stays as much.

use std::sync::Arc;
use std::thread;

use tidegate_subject::connection::{LoadError, check, load};
use tidegate_subject::database::Database;
use tidegate_workload::workload::{Client, Condition, Depth, Kind, Transaction, Workload};
use tidegate_workload::{
    Column, Ending, Failure, Index, Random, Running, Session, Statement, Table, Type, Value,
};

use super::{NEVER, assert_consistent, insist, run};

/// What each account has at first.
const CENTS: i64 = 1_000;

const READ: Statement =
    Statement::new("SELECT cents FROM account WHERE id = ? AND kind = ? FOR UPDATE");
const ADD: Statement = Statement::new(
    "UPDATE account SET cents = cents + ?, changed = CURRENT_TIMESTAMP WHERE id = ?",
);
const NOTE: Statement =
    Statement::new("INSERT INTO moves (account, cents, moved) VALUES (?, ?, CURRENT_TIMESTAMP)");
const TOTAL: Statement = Statement::new("SELECT COUNT(*), SUM(cents) FROM account");

/// The kind of transactions that move money; one in ten is undone.
pub(crate) const MOVE: usize = 0;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Bank {
    pub(crate) accounts: i32,
    /// So many of them money is moved between.
    pub(crate) busy: i32,
}

impl Bank {
    /// More accounts than one batch of rows has, nearly all of which are left alone.
    pub(crate) const CROWDED: Bank = Bank { accounts: 2_500, busy: 10 };
    /// As many, all of which money is moved between.
    pub(crate) const WIDE: Bank = Bank { accounts: 2_500, busy: 2_500 };
}

/// The workload is loaded, run by four clients at once, and checked.
pub(crate) fn assert_works(database: &dyn Database, bank: Bank, transactions: usize) {
    let mut session = database.session().unwrap();
    let mut loaded = Vec::new();
    load(&mut *session, &bank, &NEVER, &mut |rows| loaded.push(rows)).unwrap();
    assert_eq!(loaded, [1000, 2000, 2500, 2500]);
    database.level(&[]).unwrap();
    let work = |number| {
        let mut connection = database.session().unwrap();
        let mut client = bank.client(number, 4, 7);
        let one = |_| insist(&mut *connection, &client.next()).0;
        (0..transactions).map(one).collect::<Vec<_>>()
    };
    let endings: Vec<Ending> = thread::scope(|scope| {
        let work = &work;
        let clients: Vec<_> = (0..4).map(|number| scope.spawn(move || work(number))).collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    assert!([Ending::Commit, Ending::Rollback].iter().all(|ending| endings.contains(ending)));
    assert_eq!(assert_consistent(&mut *session, &bank, Depth::Full), 1);
    run(&mut *session, "UPDATE account SET cents = cents + 1 WHERE id = 1", &[]).unwrap();
    let conditions = check(&mut *session, &bank, Depth::Quick).unwrap();
    assert!(conditions[0].violation.is_some());
    let again = load(&mut *session, &bank, &NEVER, &mut |_| {});
    assert!(matches!(again, Err(LoadError::Table { source: Failure::Refused { .. }, .. })));
}

impl Workload for Bank {
    fn name(&self) -> &'static str {
        "bank"
    }

    fn kinds(&self) -> &'static [Kind] {
        &[Kind { name: "move", phases: &["all"] }, Kind { name: "add", phases: &["all"] }]
    }

    fn tables(&self) -> Vec<Table> {
        let index = |name, columns, unique| Index { name, columns, unique };
        let account = Table {
            name: "account",
            columns: vec![
                Column::new("id", Type::Int),
                Column::new("branch", Type::Int),
                Column::new("kind", Type::Char(4)),
                Column::new("cents", Type::BigInt),
                Column::nullable("note", Type::Varchar(400)),
                Column::nullable("changed", Type::Timestamp),
            ],
            primary_key: vec!["id"],
            indexes: vec![
                index("account_kind", vec!["kind", "id"], true),
                index("account_branch", vec!["branch"], false),
            ],
        };
        let columns = vec![
            Column::new("account", Type::Int),
            Column::new("cents", Type::Int),
            Column::new("moved", Type::Timestamp),
        ];
        vec![account, Table { name: "moves", columns, primary_key: vec![], indexes: vec![] }]
    }

    fn rows(&self, table: usize) -> Box<dyn Iterator<Item = Vec<Value<'static>>> + Send + '_> {
        let count = if table == 0 { self.accounts } else { 0 };
        // Longer than one INSERT is meant to grow, each time a thousand rows are put together.
        let note = "it's \u{e4} note? ".repeat(28);
        Box::new((0..count).map(move |id| {
            let note = if id % 2 == 0 { Value::Null } else { note.clone().into() };
            vec![id.into(), (id % 7).into(), "ab".into(), CENTS.into(), note, Value::Null]
        }))
    }

    fn client(&self, number: usize, _: usize, seed: u64) -> Box<dyn Client> {
        Box::new(Teller { last: self.busy - 1, draw: Random::new(seed, number as u64) })
    }

    fn check<'d>(&self, session: Session<'d>, _: Depth) -> Running<'d, Vec<Condition>> {
        let expected = i64::from(self.accounts);
        Box::pin(async move {
            let rows = session.query_some(&TOTAL, &[], "the total").await?;
            let (count, total) = (rows.int(0, 0), rows.int(0, 1));
            let holds = count == Some(expected) && total == Some(expected * CENTS);
            let violation = (!holds).then(|| format!("{count:?} accounts hold {total:?}"));
            Ok(vec![Condition { name: "nothing is lost", violation }])
        })
    }
}

struct Teller {
    last: i32,
    draw: Random,
}

impl Client for Teller {
    fn next(&mut self) -> Arc<dyn Transaction> {
        let (from, to) = (self.draw.between(0, self.last), self.draw.between(0, self.last));
        if self.draw.between(0, 3) == 0 {
            Arc::new(Nothing { account: from })
        } else {
            Arc::new(Move { from, to, cents: self.draw.between(1, 100) })
        }
    }
}

/// Moves cents.
#[derive(Debug)]
struct Move {
    from: i32,
    to: i32,
    cents: i32,
}

impl Transaction for Move {
    fn kind(&self) -> usize {
        MOVE
    }

    fn run(self: Arc<Self>, session: Session<'_>) -> Running<'_> {
        Box::pin(async move {
            session.query_some(&READ, &[self.from.into(), "ab".into()], "an account").await?;
            for (cents, account) in [(-self.cents, self.from), (self.cents, self.to)] {
                if session.execute(&ADD, &[cents.into(), account.into()]).await? != 1 {
                    return Err(Failure::Unexpected("an account"));
                }
            }
            session.execute(&NOTE, &[self.to.into(), self.cents.into()]).await?;
            Ok(if self.cents % 10 == 0 { Ending::Rollback } else { Ending::Commit })
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

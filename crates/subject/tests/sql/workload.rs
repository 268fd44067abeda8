//! A workload on the engine: loaded, run as procedures of its server, checked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use tidegate_control::{Algorithm, Bounds, Mpl, Resources, Setting};
use tidegate_engine::{TxnError, TxnOptions};
use tidegate_engine_server::{Procedure, Server, ServerOptions};
use tidegate_gate::Class;
use tidegate_subject::connection::{self, LoadError};
use tidegate_subject::embedded::sql::{RunError, StoreConnection, load, run};
use tidegate_subject::phases::PhaseClock;
use tidegate_workload::workload::{Client, Condition, Depth, Kind, Transaction, Workload};
use tidegate_workload::{Ending, Failure, Random, Running, Session, Statement, Table, Type, Value};

use super::{index, query, store, table};

/// Accounts that money is moved between; one in ten movements is undone.
#[derive(Debug)]
struct Bank {
    accounts: i32,
}

#[derive(Debug)]
struct Move {
    from: i32,
    to: i32,
    cents: i32,
}

struct Mover {
    accounts: i32,
    draw: Random,
}

const TAKE: Statement = Statement::new("UPDATE account SET cents = cents - ? WHERE id = ?");
const READ: Statement = Statement::new("SELECT cents FROM account WHERE id = ? FOR UPDATE");
const WRITE: Statement = Statement::new("UPDATE account SET cents = ? WHERE id = ?");
const NOTE: Statement =
    Statement::new("INSERT INTO moves (account, cents, at) VALUES (?, ?, CURRENT_TIMESTAMP)");
const SUMS: Statement = Statement::new("SELECT SUM(cents), COUNT(*) FROM account");

impl Workload for Bank {
    fn name(&self) -> &'static str {
        "bank"
    }

    fn kinds(&self) -> &'static [Kind] {
        &[Kind { name: "move", phases: &["all"] }]
    }

    fn tables(&self) -> Vec<Table> {
        vec![
            table(
                "account",
                &[("id", Type::Int), ("branch", Type::Int), ("cents", Type::BigInt)],
                &["id"],
                vec![index("by_branch", &["branch"], false)],
            ),
            table(
                "moves",
                &[("account", Type::Int), ("cents", Type::Int), ("at", Type::Timestamp)],
                &[],
                vec![],
            ),
        ]
    }

    fn rows(&self, table: usize) -> Box<dyn Iterator<Item = Vec<Value<'static>>> + Send + '_> {
        let count = if table == 0 { self.accounts } else { 0 };
        Box::new((0..count).map(|id| vec![id.into(), (id % 7).into(), 1000.into()]))
    }

    fn client(&self, number: usize, _: usize, seed: u64) -> Box<dyn Client> {
        Box::new(Mover { accounts: self.accounts, draw: Random::new(seed, number as u64) })
    }

    fn check<'d>(&self, session: Session<'d>, _: Depth) -> Running<'d, Vec<Condition>> {
        let expected = i64::from(self.accounts) * 1000;
        Box::pin(async move {
            let sum = session.query(&SUMS, &[]).await?.int(0, 0).unwrap_or(0);
            let violation = (sum != expected).then(|| format!("{sum} and not {expected}"));
            Ok(vec![Condition { name: "money", violation }])
        })
    }
}

impl Client for Mover {
    fn next(&mut self) -> Arc<dyn Transaction> {
        let last = self.accounts - 1;
        let (from, to) = (self.draw.between(0, last), self.draw.between(0, last));
        Arc::new(Move { from, to, cents: self.draw.between(1, 100) })
    }
}

impl Transaction for Move {
    fn kind(&self) -> usize {
        0
    }

    fn run(self: Arc<Self>, session: Session<'_>) -> Running<'_> {
        Box::pin(async move {
            let Move { from, to, cents } = *self;
            session.execute(&TAKE, &[cents.into(), from.into()]).await?;
            let rows = session.query_some(&READ, &[to.into()], "each account").await?;
            let balance = rows.int(0, 0).ok_or(Failure::Unexpected("a balance"))?;
            session.execute(&WRITE, &[(balance + i64::from(cents)).into(), to.into()]).await?;
            session.execute(&NOTE, &[to.into(), cents.into()]).await?;
            Ok(if cents % 10 == 0 { Ending::Rollback } else { Ending::Commit })
        })
    }
}

fn refused(_: Failure) -> TxnError {
    TxnError::OtherStore
}

#[test]
fn its_transactions_are_procedures_and_what_it_checks_holds() {
    let store = store();
    let bank = Bank { accounts: 20 };
    let mut loaded = 0;
    let never = AtomicBool::new(false);
    let catalog = Arc::new(load(&store, &bank, &never, &mut |rows| loaded = rows).unwrap());
    assert_eq!(loaded, 20);

    let mut client = bank.client(0, 1, 5);
    let works: Vec<Arc<dyn Transaction>> = (0..400).map(|_| client.next()).collect();
    let given = works.clone();
    let shared = Arc::clone(&catalog);
    let procedure: Procedure = Box::new(move |transaction, number| {
        let work = &given[usize::from_le_bytes(number.try_into().unwrap())];
        let mut clock = PhaseClock::new(Instant::now());
        match run(transaction, &shared, Arc::clone(work), &mut clock) {
            Ok(ending) => Ok(vec![u8::from(ending == Ending::Commit)]),
            Err(RunError::Engine(error)) => Err(error),
            Err(RunError::Failure(failure)) => Err(refused(failure)),
        }
    });
    let limit = Mpl::at_least_one(8);
    let setting = Setting {
        bounds: Bounds::new(Mpl::ONE, limit).unwrap(),
        start: limit,
        resources: Resources { cpus: 2, disks: 1 },
    };
    let server = Server::start(
        Arc::clone(&store),
        [("run".to_owned(), procedure)],
        Algorithm::Fixed(limit).controller(&setting),
        ServerOptions::default(),
        Box::new(|_| ()),
    )
    .unwrap();
    let (answered, answers) = mpsc::channel();
    for number in 0..works.len() {
        let answered = answered.clone();
        server.submit("run", &number.to_le_bytes(), Class::Normal, move |answer| {
            answered.send(answer.unwrap()[0]).unwrap();
        });
    }
    drop(answered);
    let committed = answers.iter().filter(|&is_committed| is_committed == 1).count();
    drop(server);
    assert!((300..400).contains(&committed), "{committed}");

    let mut connection = StoreConnection::new(store, catalog, TxnOptions::default());
    let conditions = connection::check(&mut connection, &bank, Depth::Full).unwrap();
    assert_eq!(conditions, [Condition { name: "money", violation: None }]);
    let moves = query(&mut connection, "SELECT COUNT(*) FROM moves", &[]);
    assert_eq!(moves, [committed.to_string()]);
    // And through the connection that has transactions of its own.
    assert_eq!(connection::run(&mut connection, client.next()).map(drop), Ok(()));
    let conditions = connection::check(&mut connection, &bank, Depth::Quick).unwrap();
    assert_eq!(conditions[0].violation, None);
}

#[test]
fn what_is_loaded_is_found_by_key_and_by_index() {
    let store = store();
    let bank = Bank { accounts: 5_000 };
    let never = AtomicBool::new(false);
    let catalog = Arc::new(load(&store, &bank, &never, &mut |_| ()).unwrap());
    store.check().unwrap();
    let mut connection = StoreConnection::new(store, catalog, TxnOptions::default());
    for (sql, expected) in [
        ("SELECT id, branch, cents FROM account WHERE id = 4999", "4999 1 1000"),
        ("SELECT COUNT(*), SUM(cents), MIN(id), MAX(id) FROM account", "5000 5000000 0 4999"),
        ("SELECT COUNT(*), MIN(id), MAX(id) FROM account WHERE branch = 3", "714 3 4994"),
        ("SELECT COUNT(*) FROM account a, account b WHERE a.cents = b.cents AND a.id < 3", "15000"),
    ] {
        assert_eq!(query(&mut connection, sql, &[]), [expected], "{sql}");
    }
}

#[test]
fn loading_can_be_cancelled_and_goes_only_into_empty_tables() {
    let bank = Bank { accounts: 5_000 };
    let cancel = AtomicBool::new(false);
    let stop = &mut |rows| cancel.store(rows >= 2_000, Ordering::Relaxed);
    let end = load(&store(), &bank, &cancel, stop);
    assert!(matches!(end, Err(LoadError::Cancelled)), "{end:?}");
    let (store, never) = (store(), AtomicBool::new(false));
    load(&store, &bank, &never, &mut |_| ()).unwrap();
    let again = load(&store, &bank, &never, &mut |_| ());
    assert!(matches!(again, Err(LoadError::Table { table: "account", .. })), "{again:?}");
}

//! On a private PostgreSQL server: several clients at once, some of which vanish in the middle of a
//! transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tidegate_subject::client::BlockingClient;
use tidegate_subject::connection::{Transactional, run};
use tidegate_subject::postgres::{Options, Postgres};
use tidegate_workload::tpcc::Tpcc;
use tidegate_workload::workload::{Transaction, Workload};
use tidegate_workload::{Connection, Failure, Reply, Session, Statement, Value, Wants, finish};

use super::{assert_consistent, load_into, small};

const CLIENTS: usize = 4;

/// Transactions of each client.
const TRANSACTIONS: usize = 300;

/// One transaction in so many loses its connection.
const VANISHING: usize = 25;

/// Runs so many statements, and then none any more.
struct Vanishing<'c> {
    client: &'c mut BlockingClient,
    left: usize,
}

impl Connection for Vanishing<'_> {
    fn run(&mut self, sql: &Statement, of: &[Value<'_>], wants: Wants) -> Result<Reply, Failure> {
        self.left = self.left.checked_sub(1).ok_or(Failure::Stopped)?;
        Connection::run(self.client, sql, of, wants)
    }
}

/// Connects, for transactions of an isolation level.
fn connect(server: &Postgres, level: &str) -> BlockingClient {
    let mut client = server.connect().unwrap();
    let set = format!("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}");
    client.query(&set).unwrap();
    client
}

/// Runs a transaction until no other one is in its way; returns how often one was.
fn insist(client: &mut BlockingClient, transaction: &Arc<dyn Transaction>) -> usize {
    for conflicts in 0..10_000 {
        match run(client, transaction.clone()) {
            Ok(_) => return conflicts,
            Err(Failure::Conflict(_)) => {}
            Err(failure) => panic!("{transaction:?}: {failure}"),
        }
    }
    panic!("{transaction:?} never comes to its end");
}

/// Begins a transaction and is gone before its end.
fn vanish(mut client: BlockingClient, transaction: Arc<dyn Transaction>, statements: usize) {
    client.begin().unwrap();
    let mut vanishing = Vanishing { client: &mut client, left: statements };
    let ending = finish(transaction.run(Session::immediate(&mut vanishing)));
    // What has begun to wait for others may be told to give way before its time has come.
    let expected = matches!(ending, Ok(_) | Err(Failure::Stopped | Failure::Conflict(_)));
    assert!(expected, "{ending:?}");
}

fn work(server: &Postgres, workload: &Tpcc, level: &str, number: usize, seed: u64) -> usize {
    let mut terminal = workload.client(number, CLIENTS, seed);
    let mut client = connect(server, level);
    let mut conflicts = 0;
    for count in 1..=TRANSACTIONS {
        let transaction = terminal.next();
        if count % VANISHING == 0 {
            vanish(client, transaction, count / VANISHING * 3);
            client = connect(server, level);
        } else {
            conflicts += insist(&mut client, &transaction);
        }
    }
    conflicts
}

#[test]
fn conditions_hold_after_clients_at_once_of_which_some_vanish() {
    // Orders of the same few items meet in deadlocks, each of which the server notices this late.
    let settings = [("fsync", "off"), ("deadlock_timeout", "10ms")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let options = Options { settings, ..Options::default() };
    let server = Postgres::start(options).unwrap();
    let mut client = server.connect().unwrap();
    let workload = small();
    load_into(&mut client, &workload);
    assert_consistent(&mut client, &workload);
    for (level, seed) in [("READ COMMITTED", 31), ("REPEATABLE READ", 32), ("SERIALIZABLE", 33)] {
        println!("seed {seed}, {level}");
        let conflicts = AtomicUsize::new(0);
        thread::scope(|scope| {
            for number in 0..CLIENTS {
                let (server, workload, conflicts) = (&server, &workload, &conflicts);
                scope.spawn(move || {
                    let met = work(server, workload, level, number, seed);
                    conflicts.fetch_add(met, Ordering::Relaxed);
                });
            }
        });
        println!("{} conflicts", conflicts.into_inner());
        assert_consistent(&mut client, &workload);
        // No update of the stock is lost either, of which the conditions know nothing.
        let sold = "SELECT SUM(ol_quantity) FROM order_line WHERE ol_o_id > 60";
        let sold = client.value(sold).unwrap();
        assert!(sold.parse::<u64>().unwrap() > 0);
        assert_eq!(client.value("SELECT SUM(s_ytd) FROM stock").unwrap(), sold);
    }
}

//! On a private PostgreSQL server: several clients at once, some of which vanish in the middle of a
//! transaction; and after a crash of the server.

use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tidegate_subject::client::BlockingClient;
use tidegate_subject::connection::{Transactional, run};
use tidegate_subject::postgres::{Options, Postgres};
use tidegate_workload::tpcc::Tpcc;
use tidegate_workload::workload::{Client, Transaction, Workload};
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

/// A server that is in no hurry to write to its disk.
fn start() -> Postgres {
    // Orders of the same few items meet in deadlocks, each of which the server notices this late.
    let settings = [("fsync", "off"), ("deadlock_timeout", "10ms")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    Postgres::start(Options { settings, ..Options::default() }).unwrap()
}

/// Works on all clients at once, and adds up what each returns.
fn at_once(work: impl Fn(usize) -> usize + Sync) -> usize {
    let work = &work;
    thread::scope(|scope| {
        let clients = (0..CLIENTS).map(|number| scope.spawn(move || work(number)));
        let clients: Vec<_> = clients.collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    })
}

/// All conditions hold, and no update of the stock is lost either, of which they know nothing.
fn assert_kept(client: &mut BlockingClient, workload: &Tpcc) {
    assert_consistent(client, workload);
    let sold = "SELECT SUM(ol_quantity) FROM order_line WHERE ol_o_id > 60";
    let sold = client.value(sold).unwrap();
    assert!(sold.parse::<u64>().unwrap() > 0);
    assert_eq!(client.value("SELECT SUM(s_ytd) FROM stock").unwrap(), sold);
}

#[test]
fn conditions_hold_after_clients_at_once_of_which_some_vanish() {
    let server = start();
    let mut client = server.connect().unwrap();
    let workload = small();
    load_into(&mut client, &workload);
    assert_consistent(&mut client, &workload);
    for (level, seed) in [("READ COMMITTED", 31), ("REPEATABLE READ", 32), ("SERIALIZABLE", 33)] {
        println!("seed {seed}, {level}");
        let conflicts = at_once(|number| work(&server, &workload, level, number, seed));
        println!("{conflicts} conflicts");
        assert_kept(&mut client, &workload);
    }
}

/// Works until the server has gone away; returns how many transactions came to their end.
fn work_until_lost(server: &Postgres, workload: &Tpcc, number: usize, seed: u64) -> usize {
    let mut terminal = workload.client(number, CLIENTS, seed);
    let mut client = connect(server, "READ COMMITTED");
    if number == 0 {
        return be_killed(&mut client, terminal.as_mut());
    }
    let mut count = 0;
    loop {
        match run(&mut client, terminal.next()) {
            Ok(_) => count += 1,
            Err(Failure::Conflict(_)) => {}
            Err(Failure::Lost(_)) => return count,
            // Class 57P: the server says that it goes away.
            Err(Failure::Refused { code, .. }) if code.starts_with("57P") => return count,
            Err(failure) => panic!("{failure}"),
        }
    }
}

/// Runs twenty transactions, and one in whose middle the client's process on the server is killed.
fn be_killed(client: &mut BlockingClient, terminal: &mut dyn Client) -> usize {
    let process = client.value("SELECT pg_backend_pid()").unwrap();
    for _ in 0..20 {
        insist(client, &terminal.next());
    }
    client.begin().unwrap();
    // It may be in another one's way; what it did by then is enough.
    let _ = finish(terminal.next().run(Session::immediate(client)));
    assert!(Command::new("kill").args(["-KILL", &process]).status().unwrap().success());
    20
}

/// Connects to a server that recovers.
fn connect_again(server: &Postgres) -> BlockingClient {
    for _ in 0..600 {
        match server.connect() {
            Ok(client) => return client,
            Err(_) => thread::sleep(Duration::from_millis(50)),
        }
    }
    server.connect().unwrap()
}

/// When a process of PostgreSQL is killed, all others end as well, and the log is replayed.
#[test]
fn conditions_hold_after_the_server_has_crashed() {
    let server = start();
    let workload = small();
    load_into(&mut server.connect().unwrap(), &workload);
    for seed in 41..44 {
        println!("seed {seed}");
        let done = at_once(|number| work_until_lost(&server, &workload, number, seed));
        println!("{done} transactions");
        assert_kept(&mut connect_again(&server), &workload);
    }
}

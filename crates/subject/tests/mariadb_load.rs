//! Many clients on one thread, and a workload from its load to its check, on a private MariaDB.
//!
//! Where MariaDB is not installed each test says so and is skipped.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod mariadb_server;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use mariadb_server::server;
use tidegate_subject::connection::{LoadError, check, load, run};
use tidegate_subject::database::Database;
use tidegate_subject::mariadb::MariaDb;
use tidegate_subject::mysql::{Connection, Event, QUIT, TransactionStatus, encode_query};
use tidegate_subject::url::Url;
use tidegate_workload::workload::{Client, Condition, Depth, Kind, Transaction, Workload};
use tidegate_workload::{
    Column, Ending, Failure, Index, Random, Running, Session, Statement, Table, Type, Value,
};

const ACCOUNTS: i32 = 2_500;
const EACH: i64 = 100;

/// Money goes from account to account, and none gets lost.
#[derive(Debug)]
struct Bank;

#[derive(Debug)]
struct Transfer {
    from: i32,
    to: i32,
    amount: i32,
    ending: Ending,
}

struct Teller(Random);

impl Workload for Bank {
    fn name(&self) -> &'static str {
        "bank"
    }

    fn kinds(&self) -> &'static [Kind] {
        &[Kind { name: "transfer", phases: &["all"] }]
    }

    fn tables(&self) -> Vec<Table> {
        let columns = vec![
            Column::new("id", Type::Int),
            Column::new("cents", Type::BigInt),
            Column::new("kind", Type::Char(4)),
            Column::nullable("note", Type::Varchar(400)),
            Column::nullable("moment", Type::Timestamp),
        ];
        let indexes = vec![Index { name: "by_kind", columns: vec!["kind", "id"], unique: true }];
        vec![Table { name: "account", columns, primary_key: vec!["id"], indexes }]
    }

    fn rows(&self, _: usize) -> Box<dyn Iterator<Item = Vec<Value<'static>>> + Send + '_> {
        // Longer than one INSERT is meant to grow, each time a thousand rows are put together.
        let note = "it's a note? ".repeat(30);
        Box::new((0..ACCOUNTS).map(move |id| {
            let note = if id % 2 == 0 { Value::Null } else { note.clone().into() };
            vec![id.into(), EACH.into(), "a".into(), note, Value::Null]
        }))
    }

    fn client(&self, number: usize, _: usize, seed: u64) -> Box<dyn Client> {
        Box::new(Teller(Random::new(seed, number as u64)))
    }

    fn check<'d>(&self, session: Session<'d>, _: Depth) -> Running<'d, Vec<Condition>> {
        const SUM: Statement = Statement::new("SELECT sum(cents), count(*) FROM account");
        Box::pin(async move {
            let rows = session.query_some(&SUM, &[], "the sum").await?;
            let (sum, count) = (rows.int(0, 0), rows.int(0, 1));
            let is_kept = sum == Some(i64::from(ACCOUNTS) * EACH) && count == Some(ACCOUNTS.into());
            let violation = (!is_kept).then(|| format!("{sum:?} in {count:?} accounts"));
            Ok(vec![Condition { name: "money is kept", violation }])
        })
    }
}

impl Client for Teller {
    fn next(&mut self) -> Arc<dyn Transaction> {
        let mut account = || self.0.between(0, 9);
        let (from, to, amount) = (account(), account(), account());
        let ending = if account() == 0 { Ending::Rollback } else { Ending::Commit };
        Arc::new(Transfer { from, to, amount, ending })
    }
}

impl Transaction for Transfer {
    fn kind(&self) -> usize {
        0
    }

    fn run(self: Arc<Self>, session: Session<'_>) -> Running<'_> {
        const READ: Statement = Statement::new("SELECT cents FROM account WHERE id = ? FOR UPDATE");
        const WRITE: Statement = Statement::new(
            "UPDATE account SET cents = cents + ?, moment = CURRENT_TIMESTAMP WHERE id = ?",
        );
        Box::pin(async move {
            session.query_some(&READ, &[self.from.into()], "an account").await?;
            for (sign, account) in [(-1, self.from), (1, self.to)] {
                let values = [(sign * self.amount).into(), account.into()];
                if session.execute(&WRITE, &values).await? != 1 {
                    return Err(Failure::Unexpected("an account"));
                }
            }
            Ok(self.ending)
        })
    }
}

#[test]
fn a_workload_is_loaded_run_and_checked() {
    let Some(server) = server(&[]) else { return };
    let mut client = server.connect().unwrap();
    let mut loaded = Vec::new();
    load(&mut client, &Bank, &AtomicBool::new(false), &mut |rows| loaded.push(rows)).unwrap();
    assert_eq!(loaded, [1000, 2000, 2500]);
    let notes = client.value("SELECT sum(length(note)) FROM account").unwrap();
    assert_eq!(notes, (i64::from(ACCOUNTS) / 2 * 13 * 30).to_string());
    server.level(&[]).unwrap();

    let clients = 4;
    let done: Vec<(u32, u32)> = thread::scope(|scope| {
        let server = &server;
        let tellers: Vec<_> = (0..clients)
            .map(|number| scope.spawn(move || work(server, Bank.client(number, clients, 7))))
            .collect();
        tellers.into_iter().map(|teller| teller.join().unwrap()).collect()
    });
    assert!(done.iter().all(|(committed, _)| *committed > 0), "{done:?}");

    let conditions = check(&mut client, &Bank, Depth::Full).unwrap();
    assert_eq!(conditions, [Condition { name: "money is kept", violation: None }]);
    client.query("UPDATE account SET cents = cents + 1 WHERE id = 1").unwrap();
    let conditions = check(&mut client, &Bank, Depth::Full).unwrap();
    assert!(conditions[0].violation.is_some());
    let again = load(&mut client, &Bank, &AtomicBool::new(false), &mut |_| {});
    assert!(matches!(again, Err(LoadError::Table { source: Failure::Refused { .. }, .. })));
}

/// Runs transactions on the same few accounts as others do; how many were committed, and how many
/// gave way.
fn work(server: &MariaDb, mut teller: Box<dyn Client>) -> (u32, u32) {
    let mut connection = server.connect().unwrap();
    let (mut committed, mut conflicts) = (0, 0);
    for _ in 0..200 {
        match run(&mut connection, teller.next()) {
            Ok(Ending::Commit) => committed += 1,
            Ok(Ending::Rollback) => {}
            Err(Failure::Conflict(_)) => conflicts += 1,
            Err(failure) => panic!("{failure}"),
        }
    }
    (committed, conflicts)
}

#[test]
fn the_leftovers_of_a_run_are_brought_to_their_end() {
    let Some(server) = server(&[]) else { return };
    let mut client = server.connect().unwrap();
    let settings = || server.in_force(&["innodb_io_capacity", "innodb_max_dirty_pages_pct"]);
    let before = settings().unwrap();
    client.query("CREATE TABLE t (a int PRIMARY KEY, b varchar(200))").unwrap();
    client.query("INSERT INTO t SELECT seq, repeat('x', 150) FROM seq_1_to_20000").unwrap();
    client.query("UPDATE t SET b = repeat('y', 140)").unwrap();
    server.level(&[]).unwrap();
    let mut status = |name: &str| {
        let sql = format!(
            "SELECT variable_value FROM information_schema.global_status \
             WHERE variable_name = '{name}'"
        );
        client.value(&sql).unwrap()
    };
    assert_eq!(status("innodb_history_list_length"), "0");
    // Counting the rows is itself written down, so a page or two may be dirty again.
    assert!(status("innodb_buffer_pool_pages_dirty").parse::<u32>().unwrap() < 10);
    assert_eq!(settings().unwrap(), before);
}

/// Transactions that each of many clients runs.
const TRANSACTIONS: u32 = 3;

/// One of many clients on one thread.
struct Caller {
    socket: TcpStream,
    connection: Connection,
    transactions: u32,
    is_done: bool,
}

impl Caller {
    fn new(server: &MariaDb, url: &Url) -> Self {
        let socket = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        socket.set_nonblocking(true).unwrap();
        Caller { socket, connection: Connection::start(url, None), transactions: 0, is_done: false }
    }

    fn is_logged_in(&self) -> bool {
        self.connection.is_logged_in()
    }

    /// Begins the first transaction.
    fn start(&mut self) {
        self.transactions = 1;
        let mut out = Vec::new();
        encode_query(&mut out, b"BEGIN");
        self.socket.write_all(&out).unwrap();
    }

    /// Reads what there is and answers it; whether there was something.
    fn turn(&mut self, buffer: &mut [u8]) -> bool {
        let len = match self.socket.read(buffer) {
            Ok(0) => panic!("the server hung up"),
            Ok(len) => len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) => panic!("{error}"),
        };
        let (transactions, is_done) = (&mut self.transactions, &mut self.is_done);
        let on_event = |event: Event<'_>, out: &mut Vec<u8>| match event {
            Event::Ready(TransactionStatus::InBlock) => encode_query(out, b"COMMIT"),
            // Logged in; waiting for the others.
            Event::Ready(_) if *transactions == 0 => {}
            Event::Ready(_) if *transactions == TRANSACTIONS => {
                out.extend_from_slice(QUIT);
                *is_done = true;
            }
            Event::Ready(_) => {
                *transactions += 1;
                encode_query(out, b"BEGIN");
            }
            Event::Row(_) | Event::Complete(_) => {}
            Event::Error(error) => panic!("{}", String::from_utf8_lossy(error.message)),
        };
        let mut out = Vec::new();
        self.connection.receive(&buffer[..len], &mut out, on_event).unwrap();
        // A statement is far smaller than the socket's buffer.
        self.socket.write_all(&out).unwrap();
        true
    }
}

/// Serves the callers in turn until all of them are as they should be.
fn serve(callers: &mut [Caller], is_there: fn(&Caller) -> bool) {
    let mut buffer = [0; 4096];
    while !callers.iter().all(is_there) {
        let waiting = callers.iter_mut().filter(|caller| !is_there(caller));
        if waiting.map(|caller| caller.turn(&mut buffer)).filter(|had| *had).count() == 0 {
            thread::yield_now();
        }
    }
}

#[test]
fn a_thousand_connections_are_served_on_one_thread() {
    let Some(server) = server(&[]) else { return };
    let url: Url = server.url().parse().unwrap();
    let mut callers: Vec<Caller> = Vec::new();
    for _ in 0..20 {
        let from = callers.len();
        callers.extend((0..50).map(|_| Caller::new(&server, &url)));
        serve(&mut callers[from..], Caller::is_logged_in);
    }
    callers.iter_mut().for_each(Caller::start);
    serve(&mut callers, |caller| caller.is_done);
    assert!(callers.iter().all(|caller| caller.transactions == TRANSACTIONS));
    let mut client = server.connect().unwrap();
    let most = client.query("SHOW GLOBAL STATUS LIKE 'Max_used_connections'").unwrap();
    let most: u32 = most[0][1].as_ref().unwrap().parse().unwrap();
    assert!(most >= 1_000, "{most} at once");
}

//! Many clients on one thread, and a workload from its load to its check, on a private MariaDB.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;

use tidegate_subject::database::Database;
use tidegate_subject::mariadb::MariaDb;
use tidegate_subject::mysql::{Connection, Event, QUIT, TransactionStatus, encode_query};
use tidegate_subject::url::Url;

use super::bank::{Bank, assert_works};
use super::mariadb::server;

#[test]
fn a_workload_is_loaded_run_and_checked() {
    const BANK: Bank = Bank::CROWDED;
    let Some(server) = server(&[]) else { return };
    assert_works(&server, BANK, 200);
    let notes = "SELECT sum(char_length(note)) FROM account";
    let notes = server.connect().unwrap().value(notes).unwrap();
    assert_eq!(notes, (BANK.accounts / 2 * 13 * 28).to_string());
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
        Caller { socket, connection: Connection::start(url), transactions: 0, is_done: false }
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

//! TPC-C on PostgreSQL through a proxy: clients vanish, the server is killed and started again.
//!
//! # Mechanism
//! Clients, blows and what has to hold afterwards are those of the tests of the databases
//! themselves (`crowd`, `kept`), with the `tidegate` program between clients and server. Some
//! clients vanish in the middle of a transaction, so that the proxy has to undo it; the server ends
//! all connections of the proxy, and is killed once. Then all twelve conditions hold, no order and
//! no payment is lost that was acknowledged, and none is there that nobody sent.

#[expect(dead_code, reason = "the tests of databases have more ways to hurt them")]
#[expect(clippy::print_stdout, reason = "a test prints its seed and what it did")]
#[path = "../../../subject/tests/kills/crowd.rs"]
mod crowd;
#[expect(clippy::print_stdout, reason = "a test prints what it did")]
#[path = "../../../subject/tests/kills/kept.rs"]
mod kept;

use std::sync::RwLock;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tidegate_subject::client::BlockingClient;
use tidegate_subject::connection::{Connector, Transactional, load};
use tidegate_subject::database::DatabaseError;
use tidegate_subject::postgres::{Options, Postgres, USER};
use tidegate_workload::Failure;

use self::crowd::Crowd;
use self::kept::{Sent, assert_tpcc, tpcc};
use crate::support::{PATIENCE, Proxy, wait_until};

/// Clients at once, more than the proxy lets in.
const CLIENTS: usize = 4;
const LIMIT: &str = "fixed:3";

/// Codes of errors with which a client is sent away: by an administrator, by a crash, by a server
/// that is not there yet, and by the proxy that has lost the server.
const FAREWELLS: [&str; 4] = ["57P01", "57P02", "57P03", "08006"];

/// Transactions before and after each blow.
const TRANSACTIONS: u64 = 300;

/// A server that clients cannot connect to while it is down, and the way to it.
#[derive(Debug)]
struct Through {
    server: RwLock<Postgres>,
    /// Of the proxy.
    url: String,
}

impl Connector for Through {
    fn connect(&self) -> Result<Box<dyn Transactional>, Failure> {
        let _up = self.server.read().unwrap();
        let began = Instant::now();
        loop {
            match BlockingClient::connect(&self.url) {
                Ok(client) => return Ok(Box::new(client)),
                // The proxy may not know yet that the server is there again.
                Err(error) => assert!(began.elapsed() < PATIENCE, "no connection: {error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Through {
    /// Ends the connections that the proxy has.
    fn end_connections(&self) {
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
        self.server.read().unwrap().connect().unwrap().query(sql).unwrap();
    }

    /// SIGKILL for the server's process, then a new one on its data.
    fn crash(&self) {
        let mut server = self.server.write().unwrap();
        let id = i32::try_from(server.process_id()).ok().and_then(Pid::from_raw).unwrap();
        kill_process(id, Signal::KILL).unwrap();
        // Its other processes still notice, and keep its memory until they have.
        wait_until("the server starts again", || server.restart().is_ok());
    }
}

#[test]
fn tpcc_through_a_proxy_survives_kills() {
    // Orders of the same few items meet in deadlocks, each of which it notices this late.
    let settings = [("fsync", "off"), ("deadlock_timeout", "10ms")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    if let Err(error @ DatabaseError::NotInstalled(_)) = Postgres::find() {
        return println!("skipped: {error}");
    }
    let server = Postgres::start(Options { settings, ..Options::default() }).unwrap();
    let upstream = format!("postgres://127.0.0.1:{}", server.port());
    let mut proxy =
        Proxy::start(&["--upstream", &upstream, "--control", LIMIT, "--log-level", "error"]);
    let address = proxy.address("listening on ");
    let url = format!("postgres://{USER}@{address}/postgres");
    let through = Through { server: RwLock::new(server), url };

    let workload = tpcc();
    let mut connection = through.connect().unwrap();
    load(&mut *connection, &workload, &AtomicBool::new(false), &mut |_| {}).unwrap();
    drop(connection);
    let crowd = Crowd::new(&workload, &through, &FAREWELLS);
    crowd.work(46, |crowd| {
        crowd.wait_for(TRANSACTIONS);
        wait_until("a client loses its connection", || {
            through.end_connections();
            crowd.wait_for(10);
            crowd.losses() > 0
        });
        crowd.wait_for(TRANSACTIONS);
        through.crash();
        crowd.wait_for(TRANSACTIONS);
    });
    assert_tpcc(&through, &workload, &Sent::by(&crowd.counts));
    proxy.signal(Signal::TERM);
    let (status, log) = proxy.end();
    assert_eq!(status.code(), Some(0), "{log}");
}

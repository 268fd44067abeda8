//! Databases with a server of their own.

use std::fmt::Debug;
use std::sync::RwLock;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tidegate_subject::connection::{Connector, Transactional, load, remove};
use tidegate_subject::database::DatabaseError;
use tidegate_subject::firebird::{self, Firebird};
use tidegate_subject::isolation::Isolation;
use tidegate_subject::mariadb::{self, MariaDb};
use tidegate_subject::postgres::{self, Postgres};
use tidegate_workload::Failure;
use tidegate_workload::workload::Workload;

use super::crowd::Crowd;
use super::kept::{Sent, assert_tpcc};
use super::{skipped, tpcc};

/// A server that can be hurt.
pub(super) trait Server: Debug + Send + Sync + Sized + 'static {
    /// Codes of errors with which it says farewell to a client.
    const FAREWELLS: &'static [&'static str] = &[];

    /// `None` where it is not installed.
    fn start() -> Option<Self>;

    fn connect(&self) -> Result<Box<dyn Transactional>, Failure>;

    /// Ends the connections of all clients that are at work, from a connection of its own; whether
    /// it can.
    fn kill_clients(&self) -> bool;

    fn process_id(&self) -> u32;

    /// Starts it again on what it left; whether that is done.
    fn restart(&mut self) -> bool;
}

/// A server that clients cannot connect to while it is down.
#[derive(Debug)]
pub(super) struct Shared<S>(RwLock<S>);

impl<S: Server> Connector for Shared<S> {
    fn connect(&self) -> Result<Box<dyn Transactional>, Failure> {
        self.0.read().unwrap().connect()
    }
}

impl<S: Server> Shared<S> {
    pub(super) fn start() -> Option<Self> {
        S::start().map(|server| Shared(RwLock::new(server)))
    }

    pub(super) fn kill_clients(&self) {
        let is_done = self.0.read().unwrap().kill_clients();
        if !is_done {
            self.crash();
        }
    }

    /// SIGKILL for the server's process, then a new one on its data.
    pub(super) fn crash(&self) {
        let mut server = self.0.write().unwrap();
        let id = i32::try_from(server.process_id()).ok().and_then(Pid::from_raw).unwrap();
        kill_process(id, Signal::KILL).unwrap();
        // PostgreSQL's other processes still notice, and keep its memory until they have.
        for _ in 0..200 {
            if server.restart() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("the server does not start again: {server:?}");
    }

    pub(super) fn load(&self, workload: &dyn Workload) {
        let mut connection = Connector::connect(self).unwrap();
        load(&mut *connection, workload, &AtomicBool::new(false), &mut |_| {}).unwrap();
    }

    /// Removes the tables of a workload.
    pub(super) fn clear(&self, workload: &dyn Workload) {
        let mut connection = Connector::connect(self).unwrap();
        remove(&mut *connection, workload).unwrap();
    }
}

fn settings(named: &[(&str, &str)]) -> Vec<(String, String)> {
    named.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

impl Server for Postgres {
    /// Shut down by an administrator, by a crash, and not yet there.
    const FAREWELLS: &'static [&'static str] = &["57P01", "57P02", "57P03"];

    fn start() -> Option<Self> {
        // Orders of the same few items meet in deadlocks, each of which it notices this late.
        let settings = settings(&[("fsync", "off"), ("deadlock_timeout", "10ms")]);
        let options = postgres::Options { settings, ..postgres::Options::default() };
        match Postgres::find() {
            Err(error @ DatabaseError::NotInstalled(_)) => {
                skipped(&error);
                None
            }
            _ => Some(Postgres::start(options).unwrap()),
        }
    }

    fn connect(&self) -> Result<Box<dyn Transactional>, Failure> {
        Ok(Box::new(Postgres::connect(self)?))
    }

    fn kill_clients(&self) -> bool {
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
        Postgres::connect(self).unwrap().query(sql).unwrap();
        true
    }

    fn process_id(&self) -> u32 {
        Postgres::process_id(self)
    }

    fn restart(&mut self) -> bool {
        Postgres::restart(self).is_ok()
    }
}

impl Server for MariaDb {
    fn start() -> Option<Self> {
        // The log is written at each commit, for the system to bring to the disk.
        let settings = settings(&[("innodb_flush_log_at_trx_commit", "2"), ("debug_no_sync", "1")]);
        let options = mariadb::Options { settings, isolation: Some(Isolation::ReadCommitted) };
        match MariaDb::find() {
            Err(error @ DatabaseError::NotInstalled(_)) => {
                skipped(&error);
                None
            }
            _ => Some(MariaDb::start(options).unwrap()),
        }
    }

    fn connect(&self) -> Result<Box<dyn Transactional>, Failure> {
        Ok(Box::new(MariaDb::connect(self)?))
    }

    fn kill_clients(&self) -> bool {
        let mut client = MariaDb::connect(self).unwrap();
        let others = "SELECT id FROM information_schema.processlist \
                      WHERE id <> CONNECTION_ID() AND command IN ('Query', 'Sleep')";
        for id in client.query(others).unwrap().into_iter().flatten().flatten() {
            // It may have gone by itself.
            let _ = client.query(&format!("KILL {id}"));
        }
        true
    }

    fn process_id(&self) -> u32 {
        MariaDb::process_id(self)
    }

    fn restart(&mut self) -> bool {
        MariaDb::restart(self).is_ok()
    }
}

impl Server for Firebird {
    fn start() -> Option<Self> {
        let settings = settings(&[("DeadlockTimeout", "1")]);
        let options = firebird::Options { settings, ..firebird::Options::default() };
        match Firebird::find() {
            Err(error @ DatabaseError::NotInstalled(_)) => {
                skipped(&error);
                None
            }
            _ => Some(Firebird::start(options).unwrap()),
        }
    }

    fn connect(&self) -> Result<Box<dyn Transactional>, Failure> {
        Ok(Box::new(Firebird::connect(self)?))
    }

    /// It can be told to, by its table of attachments; but 3.0.11 now and then ends by a
    /// segmentation fault in its engine when those are at work.
    fn kill_clients(&self) -> bool {
        false
    }

    fn process_id(&self) -> u32 {
        Firebird::process_id(self)
    }

    fn restart(&mut self) -> bool {
        Firebird::restart(self).is_ok()
    }
}

/// TPC-C with so many transactions before and after each blow, in so many rounds.
fn tpcc_survives<S: Server>(rounds: u64, transactions: u64, seed: u64) {
    let Some(server) = Shared::<S>::start() else { return };
    let workload = tpcc();
    server.load(&workload);
    let crowd = Crowd::new(&workload, &server, S::FAREWELLS);
    for round in 0..rounds {
        let before = crowd.losses();
        crowd.work(seed + round, |crowd| {
            crowd.wait_for(transactions);
            server.kill_clients();
            crowd.wait_for(transactions);
            assert!(crowd.losses() > before, "no client was killed");
            server.crash();
            crowd.wait_for(transactions);
        });
        assert_tpcc(&server, &workload, &Sent::by(&crowd.counts));
        // And after a crash with nobody at work.
        server.crash();
        assert_tpcc(&server, &workload, &Sent::by(&crowd.counts));
    }
}

#[test]
fn tpcc_on_postgres_survives_kills() {
    tpcc_survives::<Postgres>(1, 300, 41);
}

#[test]
fn tpcc_on_mariadb_survives_kills() {
    tpcc_survives::<MariaDb>(1, 300, 42);
}

#[test]
fn tpcc_on_firebird_survives_kills() {
    tpcc_survives::<Firebird>(1, 150, 43);
}

#[test]
#[ignore = "soak: ten rounds of kills on each server"]
fn tpcc_on_servers_survives_many_kills() {
    tpcc_survives::<Postgres>(10, 2_000, 1_041);
    tpcc_survives::<MariaDb>(10, 2_000, 1_042);
    tpcc_survives::<Firebird>(10, 500, 1_043);
}

//! Databases with a server of their own.

use std::sync::RwLock;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tidegate_subject::connection::{Connector, Transactional, load, remove};
use tidegate_subject::database::{Database, DatabaseError};
use tidegate_subject::isolation::Isolation;
use tidegate_subject::server::{Program, ServerProcess};
use tidegate_workload::Failure;
use tidegate_workload::workload::Workload;

use super::common;
use super::crowd::Crowd;
use super::kept::{Sent, assert_tpcc};
use super::tpcc;

/// A server's process.
trait Process: Database + std::fmt::Debug {
    /// Starts the server again on what it left.
    fn restart(&mut self) -> Result<(), DatabaseError>;
}

impl<P: Program> Process for ServerProcess<P>
where
    ServerProcess<P>: Database,
{
    fn restart(&mut self) -> Result<(), DatabaseError> {
        ServerProcess::restart(self)
    }
}

/// A server that can be hurt, and that clients cannot connect to while it is down.
#[derive(Debug)]
pub(super) struct Server {
    process: RwLock<Box<dyn Process>>,
    /// Codes of errors with which it says farewell to a client.
    pub(super) farewells: &'static [&'static str],
    /// Whether the connections of clients that are at work can be ended.
    can_end_clients: bool,
}

pub(super) fn postgres() -> Option<Server> {
    // Shut down by an administrator, by a crash, and not yet there.
    let farewells = &["57P01", "57P02", "57P03"];
    let process = RwLock::new(Box::new(common::postgres()?) as _);
    Some(Server { process, farewells, can_end_clients: true })
}

pub(super) fn mariadb() -> Option<Server> {
    let server = common::mariadb(&[], Some(Isolation::ReadCommitted))?;
    let process = RwLock::new(Box::new(server) as _);
    Some(Server { process, farewells: &[], can_end_clients: true })
}

/// It can be told to end clients, by its table of attachments; but 3.0.11 now and then ends by a
/// segmentation fault in its engine when those are at work.
pub(super) fn firebird() -> Option<Server> {
    let process = RwLock::new(Box::new(common::firebird()?) as _);
    Some(Server { process, farewells: &[], can_end_clients: false })
}

impl Connector for Server {
    fn connect(&self) -> Result<Box<dyn Transactional>, Failure> {
        self.process.read().unwrap().session().map_err(|error| match error {
            DatabaseError::Failed(failure) => failure,
            other => panic!("{other}"),
        })
    }
}

impl Server {
    /// Ends the connections of all clients, by a crash where it cannot be done otherwise.
    pub(super) fn kill_clients(&self) {
        if self.can_end_clients {
            self.process.read().unwrap().end_others(Duration::ZERO).unwrap();
        } else {
            self.crash();
        }
    }

    /// SIGKILL for the server's process, then a new one on its data.
    pub(super) fn crash(&self) {
        let mut server = self.process.write().unwrap();
        let id = server.process_id().and_then(|id| Pid::from_raw(id.cast_signed())).unwrap();
        kill_process(id, Signal::KILL).unwrap();
        // PostgreSQL's other processes still notice, and keep its memory until they have.
        for _ in 0..200 {
            if server.restart().is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("the server does not start again: {server:?}");
    }

    pub(super) fn load(&self, workload: &dyn Workload) {
        let mut connection = self.connect().unwrap();
        load(&mut *connection, workload, &AtomicBool::new(false), &mut |_| {}).unwrap();
    }

    /// Removes the tables of a workload.
    pub(super) fn clear(&self, workload: &dyn Workload) {
        let mut connection = self.connect().unwrap();
        remove(&mut *connection, workload).unwrap();
    }
}

/// TPC-C with so many transactions before and after each blow, in so many rounds.
fn tpcc_survives(server: Option<Server>, rounds: u64, transactions: u64, seed: u64) {
    let Some(server) = server else { return };
    let workload = tpcc();
    server.load(&workload);
    let crowd = Crowd::new(&workload, &server, server.farewells);
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
    tpcc_survives(postgres(), 1, 300, 41);
}

#[test]
fn tpcc_on_mariadb_survives_kills() {
    tpcc_survives(mariadb(), 1, 300, 42);
}

#[test]
fn tpcc_on_firebird_survives_kills() {
    tpcc_survives(firebird(), 1, 150, 43);
}

#[test]
#[ignore = "soak: ten rounds of kills on each server"]
fn tpcc_on_servers_survives_many_kills() {
    tpcc_survives(postgres(), 10, 2_000, 1_041);
    tpcc_survives(mariadb(), 10, 2_000, 1_042);
    tpcc_survives(firebird(), 10, 500, 1_043);
}

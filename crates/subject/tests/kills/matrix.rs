//! Every workload on every database: loaded, run, hurt, checked.

use std::sync::Arc;

use tidegate_workload::ds2::{self, Ds2};
use tidegate_workload::thrash::{self, Mix, Placement, Share, Thrash};
use tidegate_workload::tpcw::{self, Tpcw};
use tidegate_workload::workload::Workload;

use super::children::{Engine, File, Local, interrupt};
use super::crowd::Crowd;
use super::kept::assert_consistent;
use super::servers::{Server, firebird, mariadb, postgres};

const SEED: u64 = 77;

/// Transactions before and after each blow.
const TRANSACTIONS: u64 = 150;

fn study() -> Thrash {
    Thrash::new(thrash::Options {
        rows: 600,
        primary_key: true,
        sf: Share::from_percent(2.0).unwrap(),
        rose: Share::from_percent(25.0).unwrap(),
        placement: Placement::Random,
        mix: Mix { reads: 3, updates: 3, changes: 3, joins: 1 },
    })
    .unwrap()
}

/// All but TPC-C, which has tests of its own.
fn workloads() -> Vec<Arc<dyn Workload>> {
    vec![
        Arc::new(study()),
        Arc::new(Ds2::new(ds2::Options::new(ds2::Scale::TINY)).unwrap()),
        Arc::new(Tpcw::new(tpcw::Scale::new(1_000, 1).unwrap(), tpcw::Mix::Ordering)),
    ]
}

fn on_server(server: Option<Server>) {
    let Some(server) = server else { return };
    for workload in workloads() {
        server.load(&*workload);
        let crowd = Crowd::new(&*workload, &server, server.farewells);
        crowd.work(SEED, |crowd| {
            crowd.wait_for(TRANSACTIONS);
            server.kill_clients();
            crowd.wait_for(TRANSACTIONS);
            server.crash();
            crowd.wait_for(TRANSACTIONS);
        });
        assert_consistent(&server, &*workload);
        server.clear(&*workload);
    }
}

fn in_process<L: Local>() {
    for workload in workloads() {
        let directory = tempfile::tempdir().unwrap();
        let database = L::create(directory.path(), &*workload);
        let crowd = Crowd::new(&*workload, &database, &[]);
        crowd.work(SEED, |crowd| interrupt(crowd, &database, 3 * TRANSACTIONS));
        drop(crowd);
        assert_consistent(&database, &*workload);
        drop(database);
        let database = L::open(directory.path(), &*workload);
        database.examine();
        assert_consistent(&database, &*workload);
    }
}

#[test]
fn every_workload_runs_on_postgres() {
    on_server(postgres());
}

#[test]
fn every_workload_runs_on_mariadb() {
    on_server(mariadb());
}

#[test]
fn every_workload_runs_on_firebird() {
    on_server(firebird());
}

#[test]
fn every_workload_runs_on_sqlite() {
    in_process::<File>();
}

#[test]
fn every_workload_runs_on_the_embedded_engine() {
    in_process::<Engine>();
}

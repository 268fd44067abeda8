//! What says that it only reads does, and waits for nobody on SQLite.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tidegate_subject::connection::{Transactional, load, run};
use tidegate_subject::sqlite::SqliteConnection;
use tidegate_workload::workload::Workload;
use tidegate_workload::{Conflict, Failure, ds2, tpcc, tpcw};

/// The kinds of transactions that say they only read, while another connection is writing: such a
/// one comes to its end, and any other that begins does not.
fn readers(workload: &dyn Workload) -> BTreeSet<&'static str> {
    let directory = tempfile::tempdir().unwrap();
    let open = || SqliteConnection::open(&directory.path().join("db"), Duration::ZERO).unwrap();
    let (mut writer, mut connection) = (open(), open());
    writer.batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF").unwrap();
    load(&mut writer, workload, &AtomicBool::new(false), &mut |_| ()).unwrap();
    writer.begin().unwrap();
    let mut kinds = BTreeSet::new();
    let mut client = workload.client(0, 1, 9);
    for _ in 0..2_000 {
        let transaction = client.next();
        if transaction.is_single() {
            continue;
        }
        let kind = workload.kinds()[transaction.kind()].name;
        let end = run(&mut connection, Arc::clone(&transaction));
        if transaction.is_read_only() {
            assert!(end.is_ok(), "{kind}: {end:?}: {transaction:?}");
            kinds.insert(kind);
        } else {
            assert_eq!(end, Err(Failure::Conflict(Conflict::LockTimeout)), "{kind}");
        }
    }
    writer.rollback().unwrap();
    kinds
}

#[test]
fn who_only_reads_does_not_wait_for_who_writes() {
    let scale = tpcc::Scale::new(1).unwrap().reduced(200, 60).unwrap();
    let orders = tpcc::Tpcc::new(scale);
    let discs = ds2::Ds2::new(ds2::Options::new(ds2::Scale::TINY)).unwrap();
    let books = tpcw::Tpcw::new(tpcw::Scale::new(1_000, 1).unwrap(), tpcw::Mix::Shopping);
    let workloads: [(&dyn Workload, &[&str]); 3] = [
        (&orders, &["order-status", "stock-level"]),
        (&discs, &["login"]),
        (&books, &["best-sellers", "home", "new-products"]),
    ];
    for (workload, expected) in workloads {
        let found = readers(workload);
        assert!(expected.iter().all(|kind| found.contains(kind)), "{}: {found:?}", workload.name());
        let is_writer = |kind: &&&str| ["payment", "purchase", "buy-confirm"].contains(kind);
        assert_eq!(found.iter().find(is_writer), None, "{}", workload.name());
    }
}

//! The embedded engine comes, runs the transactions, and leaves nothing behind.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;

use tidegate_control::{Algorithm, Bounds, Mpl, Resources, Setting};
use tidegate_subject::embedded::{CallError, Embedded, EmbeddedError, Isolation, Options, Service};
use tidegate_workload::pgbench::Scale;
use tidegate_workload::thrash::{Rows, Thrash};
use tidegate_workload::{Draw, Workload};

const SEED: u64 = 20_170_611;
static NEVER: AtomicBool = AtomicBool::new(false);

fn start() -> Embedded {
    Embedded::start(Options { buffer_bytes: 4 << 20, isolation: Isolation::Serializable }).unwrap()
}

/// The engine's server with a fixed limit.
fn serve(store: &Embedded, limit: u32) -> Service<'_> {
    let limit = Mpl::at_least_one(limit);
    let setting = Setting {
        bounds: Bounds::new(Mpl::ONE, Mpl::at_least_one(100)).unwrap(),
        start: limit,
        resources: Resources { cpus: 2, disks: 1 },
    };
    store.serve(Algorithm::Fixed(limit), &setting, SEED, Box::new(|_| ())).unwrap()
}

/// Asks for so many transactions at once, and waits for what became of them.
fn run(service: &Service<'_>, workload: Workload, count: usize) -> Vec<Result<(), CallError>> {
    let mut draw = Draw::new(SEED, 0);
    let (answered, answers) = mpsc::channel();
    for _ in 0..count {
        let answered = answered.clone();
        let transaction = workload.transaction(Scale::ONE, &mut draw);
        service.submit(&transaction, move |result| answered.send(result).unwrap());
    }
    drop(answered);
    answers.into_iter().collect()
}

#[test]
fn every_transaction_is_done_whole_and_once() {
    let mut store = start();
    assert_eq!(store.sums().unwrap(), None);
    store.load_pgbench(Scale::ONE, &NEVER).unwrap();
    let empty = store.sums().unwrap().unwrap();
    assert!(empty.consistent() && empty.history_rows == 0, "{empty:?}");
    // On one branch and at eight at once, each in the way of all others.
    for (limit, count) in [(1, 20), (8, 300)] {
        let service = serve(&store, limit);
        for result in run(&service, Workload::Tpcb, count) {
            result.unwrap();
        }
        assert_eq!(service.locks().held, 0);
    }
    for result in run(&serve(&store, 4), Workload::PointSelect, 50) {
        result.unwrap();
    }
    store.level().unwrap();
    let sums = store.sums().unwrap().unwrap();
    assert!(sums.consistent() && sums.history_rows == 320, "seed {SEED}: {sums:?}");
    let directory = store.directory().to_owned();
    assert!(directory.exists());
    store.stop().unwrap();
    assert!(!directory.exists());
}

#[test]
fn ranges_are_read_and_updated() {
    let mut store = start();
    let rows = Rows::new(2_000).unwrap();
    store.load_thrash(rows, &NEVER).unwrap();
    let service = serve(&store, 6);
    for thrash in [Thrash::read(rows), Thrash::update(rows)] {
        for result in run(&service, Workload::Thrash(thrash), 200) {
            result.unwrap();
        }
    }
    // There is no table of pgbench's, so there is no such procedure.
    let refused = run(&service, Workload::Tpcb, 1).remove(0);
    assert!(matches!(refused, Err(CallError::NoProcedure(name)) if name == "tpcb"));
}

#[test]
fn who_has_given_up_gets_nothing_until_he_comes_back() {
    let mut store = start();
    store.load_thrash(Rows::new(100).unwrap(), &NEVER).unwrap();
    let reads = Workload::Thrash(Thrash::read(Rows::new(100).unwrap()));
    let service = serve(&store, 2);
    service.give_up(true);
    for result in run(&service, reads, 20) {
        let error = result.unwrap_err().to_string();
        assert!(error.contains("given up"), "{error}");
    }
    service.give_up(false);
    assert!(run(&service, reads, 20).iter().all(Result::is_ok));
}

#[test]
fn a_panic_leaves_nothing_behind() {
    let mut directory = PathBuf::new();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let store = start();
        store.directory().clone_into(&mut directory);
        assert!(directory.exists());
        let _service = serve(&store, 1);
        panic!("on purpose");
    }));
    assert!(panicked.is_err() && !directory.exists());
}

#[test]
fn loading_can_be_cancelled() {
    let loaded = start().load_pgbench(Scale::ONE, &AtomicBool::new(true));
    assert!(matches!(loaded, Err(EmbeddedError::Cancelled)), "{loaded:?}");
}

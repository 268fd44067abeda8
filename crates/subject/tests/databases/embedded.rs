//! The embedded engine comes, runs the transactions, and leaves nothing behind.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use tidegate_gate::Class;
use tidegate_subject::connection::LoadError;
use tidegate_subject::database::Database;
use tidegate_subject::embedded::{
    ClassPriorities, Done, Embedded, EmbeddedError, EngineDatabase, RequestError, Service, Serving,
};
use tidegate_workload::pgbench::{Scale, Sums};
use tidegate_workload::point_select::PointSelect;
use tidegate_workload::thrash::{Options as Ranges, Thrash};
use tidegate_workload::tpcb::Tpcb;
use tidegate_workload::workload::{Depth, Transaction, Workload};
use tidegate_workload::{Conflict, Ending, Failure, Running, Session, Statement, finish};

use super::{NEVER, assert_consistent, fixed, store};

const SEED: u64 = 20_170_611;

/// The engine's server with a fixed limit.
fn serve(store: &Embedded, limit: u32) -> Service<'_> {
    let (algorithm, setting) = fixed(limit);
    let (priorities, observer) = (ClassPriorities::default(), Box::new(|_: &_| ()));
    let (arms, setting) = (Vec::new(), &setting);
    store.serve(Serving { algorithm, setting, arms, priorities, seed: SEED, observer }).unwrap()
}

/// Asks for so many transactions at once, and waits for what became of them.
fn run(
    service: &Service<'_>,
    workload: &dyn Workload,
    count: usize,
) -> Vec<Result<Done, RequestError>> {
    let mut client = workload.client(0, 1, SEED);
    let (answered, answers) = mpsc::channel();
    for _ in 0..count {
        let answered = answered.clone();
        service.submit(&client.next(), Class::Normal, move |result| answered.send(result).unwrap());
    }
    drop(answered);
    answers.into_iter().collect()
}

/// A transaction without statements that ends so, and counts how often it is told that it lasts.
#[derive(Debug)]
struct Told {
    end: Result<Ending, Failure>,
    times: AtomicU32,
}

impl Transaction for Told {
    fn kind(&self) -> usize {
        0
    }

    fn run(self: Arc<Self>, _: Session<'_>) -> Running<'_> {
        Box::pin(async move { self.end.clone() })
    }

    fn committed(&self) {
        self.times.fetch_add(1, Ordering::Relaxed);
    }
}

fn sums(store: &Embedded) -> Sums {
    let mut connection = store.connect();
    let session = Session::immediate(&mut connection);
    finish(Box::pin(async move { Sums::read(&session).await })).unwrap()
}

const TPCB: Tpcb = Tpcb::new(Scale::ONE);

#[test]
fn every_transaction_is_done_whole_and_once() {
    let mut store = store();
    store.load(&TPCB, &NEVER).unwrap();
    let empty = sums(&store);
    assert!(empty.consistent() && empty.history_rows == 0, "{empty:?}");
    // On one branch and at eight at once, each in the way of all others.
    for (limit, count) in [(1, 20), (8, 300)] {
        let service = serve(&store, limit);
        for result in run(&service, &TPCB, count) {
            result.unwrap();
        }
        assert_eq!(service.locks().held, 0);
    }
    for result in run(&serve(&store, 4), &PointSelect { scale: Scale::ONE }, 50) {
        result.unwrap();
    }
    store.level(&[]).unwrap();
    let sums = sums(&store);
    assert!(sums.consistent() && sums.history_rows == 320, "seed {SEED}: {sums:?}");
    let directory = store.directory().unwrap().to_owned();
    assert!(directory.exists());
    store.stop().unwrap();
    assert!(!directory.exists());
}

#[test]
fn only_what_lasts_is_told_so() {
    let store = store();
    let service = serve(&store, 1);
    for (end, expected) in [
        (Ok(Ending::Commit), 1),
        (Ok(Ending::Rollback), 0),
        (Err(Failure::Conflict(Conflict::Deadlock)), 0),
    ] {
        let ending = || Arc::new(Told { end: end.clone(), times: AtomicU32::new(0) });
        let (asked, called) = (ending(), ending());
        let (answered, answer) = mpsc::channel();
        let submitted: Arc<dyn Transaction> = asked.clone();
        let times = Arc::clone(&asked);
        service.submit(&submitted, Class::Normal, move |_| {
            // Whoever hears of the end asks for what comes next, which may depend on it.
            answered.send(times.times.load(Ordering::Relaxed)).unwrap();
        });
        assert_eq!(answer.recv().unwrap(), expected, "{end:?}");
        assert_eq!(tidegate_subject::connection::run(&mut store.connect(), called.clone()), end);
        assert_eq!(called.times.load(Ordering::Relaxed), expected, "{end:?}");
    }
}

/// A transaction of two phases, with a statement in each, that ends so.
#[derive(Debug)]
struct InPhases(Ending);

impl Transaction for InPhases {
    fn kind(&self) -> usize {
        0
    }

    fn run(self: Arc<Self>, session: Session<'_>) -> Running<'_> {
        Box::pin(async move {
            const COUNT: Statement = Statement::new("SELECT COUNT(*) FROM pgbench_tellers");
            session.query(&COUNT, &[]).await?;
            session.phase(1);
            session.query(&COUNT, &[]).await?;
            Ok(self.0)
        })
    }
}

#[test]
fn phases_are_timed_and_no_longer_than_the_request() {
    let mut store = store();
    store.load(&TPCB, &NEVER).unwrap();
    let service = serve(&store, 1);
    for ending in [Ending::Commit, Ending::Rollback] {
        let transaction: Arc<dyn Transaction> = Arc::new(InPhases(ending));
        let (answered, answer) = mpsc::channel();
        let asked = Instant::now();
        service.submit(&transaction, Class::Normal, move |result| answered.send(result).unwrap());
        let done = answer.recv().unwrap().unwrap();
        let latency = asked.elapsed();
        assert_eq!((done.ending, done.phases.len()), (ending, 2));
        assert!(done.phases.iter().all(|phase| !phase.is_zero()), "{done:?}");
        assert!(done.phases.iter().sum::<Duration>() <= latency, "{done:?} in {latency:?}");
    }
}

#[test]
fn ranges_are_read_and_updated() {
    let mut store = store();
    let ranges = |of: Ranges| Thrash::new(Ranges { rows: 2_000, ..of }).unwrap();
    store.load(&ranges(Ranges::read()), &NEVER).unwrap();
    let service = serve(&store, 6);
    for thrash in [Ranges::read(), Ranges::update()].map(ranges) {
        for result in run(&service, &thrash, 200) {
            result.unwrap();
        }
        assert_consistent(&mut store.connect(), &thrash, Depth::Full);
    }
    // There is no table of pgbench's, and the first statement says so.
    let refused = run(&service, &TPCB, 1).remove(0);
    let Err(RequestError::Transaction(Failure::Refused { message, .. })) = &refused else {
        panic!("{refused:?}");
    };
    assert!(message.contains("pgbench_accounts"), "{message}");
}

#[test]
fn who_has_given_up_gets_nothing_until_he_comes_back() {
    let mut store = store();
    let reads = Thrash::new(Ranges { rows: 1_000, ..Ranges::read() }).unwrap();
    store.load(&reads, &NEVER).unwrap();
    let service = serve(&store, 2);
    service.give_up(true);
    for result in run(&service, &reads, 20) {
        let error = result.unwrap_err().to_string();
        assert!(error.contains("given up"), "{error}");
    }
    service.give_up(false);
    assert!(run(&service, &reads, 20).iter().all(Result::is_ok));
}

#[test]
fn a_panic_leaves_nothing_behind() {
    let mut directory = PathBuf::new();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let store = store();
        store.directory().unwrap().clone_into(&mut directory);
        assert!(directory.exists());
        let _service = serve(&store, 1);
        panic!("on purpose");
    }));
    assert!(panicked.is_err() && !directory.exists());
}

#[test]
fn loading_can_be_cancelled() {
    let loaded = store().load(&TPCB, &AtomicBool::new(true));
    let is_cancelled = matches!(loaded, Err(EmbeddedError::Load(LoadError::Cancelled)));
    assert!(is_cancelled, "{loaded:?}");
}

//! Hosts and runs are held by one laboratory at a time.

use std::sync::Barrier;
use std::sync::atomic::AtomicBool;

use tidegate_lab::laboratory::run::Outcome;
use tidegate_lab::laboratory::{LabError, Laboratory};
use tidegate_lab::store::{Store, StoreError};

use crate::support::{StoreFile, begin, experiment, planned, run_by, server, simulated};

fn store(place: &str, host: &str) -> Store {
    let mut store = Store::open(place).unwrap();
    store.set_host(host.to_owned());
    store
}

#[test]
fn on_postgresql_one_holds_and_the_others_learn_who() {
    let Some(server) = server() else { return };
    let [mut first, mut second] = ["alpha", "alpha"].map(|host| store(&server.url(), host));
    let mut elsewhere = store(&server.url(), "beta");
    first.hold_host().unwrap();
    elsewhere.hold_host().unwrap();
    let refused = second.hold_host().unwrap_err();
    assert!(!refused.is_lost());
    let said = refused.to_string();
    let me = format!("host alpha is taken by tidegate on alpha, process {}", std::process::id());
    assert!(said.contains(&me) && said.contains("at 127.0.0.1, connected since 2"), "{said}");

    assert_eq!(first.hold_run(7).unwrap(), None);
    let holder = elsewhere.hold_run(7).unwrap().unwrap();
    assert!(holder.starts_with("tidegate on alpha"), "{holder}");
    assert_eq!(elsewhere.hold_run(8).unwrap(), None);
    first.release_run(7).unwrap();
    assert_eq!(elsewhere.hold_run(7).unwrap(), None);

    // A session that ends lets go of everything; a host that was let go can be taken.
    drop(elsewhere);
    while first.hold_run(7).unwrap().is_some() {}
    first.release_host().unwrap();
    second.hold_host().unwrap();
}

#[test]
fn many_open_a_new_store_at_once() {
    let Some(server) = server() else { return };
    let url = server.url();
    std::thread::scope(|scope| {
        let opened: Vec<_> = (0..8).map(|_| scope.spawn(|| Store::open(&url))).collect();
        for store in opened {
            assert!(store.join().unwrap().unwrap().experiments().unwrap().is_empty());
        }
    });
}

#[test]
fn many_open_a_new_file_at_once() {
    let directory = tempfile::tempdir().unwrap();
    for attempt in 0..20 {
        let path = directory.path().join(format!("{attempt}.db"));
        let together = Barrier::new(4);
        std::thread::scope(|scope| {
            let open = || {
                together.wait();
                Store::open_file(&path)
            };
            let opened: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
            for store in opened {
                assert!(store.join().unwrap().unwrap().experiments().unwrap().is_empty());
            }
        });
    }
}

#[test]
fn a_store_that_is_not_there_is_not_made_by_looking() {
    let file = StoreFile::new();
    let (path, place) = (file.path(), &*file.place());
    let error = Store::open_existing(place).unwrap_err().to_string();
    assert!(error.starts_with(&format!("there is no result store {place}: ")), "{error}");
    assert!(!path.exists());
    drop(Store::open(place).unwrap());
    assert!(Store::open_existing(place).unwrap().experiments().unwrap().is_empty());
}

#[test]
fn who_is_cut_off_has_lost_the_connection() {
    let Some(server) = server() else { return };
    let mut silent = store(&server.url(), "alpha");
    let mut next = store(&server.url(), "beta");
    silent.hold_host_as_worker().unwrap();
    assert_eq!(silent.hold_run(1).unwrap(), None);
    assert_eq!(next.seize_run(1).unwrap(), None);
    let lost = silent.experiments().unwrap_err();
    assert!(lost.is_lost(), "{lost}");
    let mut back = store(&server.url(), "alpha");
    back.hold_host().unwrap();
    assert!(back.hold_run(1).unwrap().is_some());
    // What it holds itself it seizes without harm.
    assert_eq!(next.seize_run(1).unwrap(), None);
    next.experiments().unwrap();
}

#[test]
fn who_has_no_heartbeat_is_not_cut_off() {
    let Some(server) = server() else { return };
    let mut own = store(&server.url(), "alpha");
    let mut worker = store(&server.url(), "beta");
    own.hold_host().unwrap();
    worker.hold_host_as_worker().unwrap();
    assert_eq!(own.hold_run(1).unwrap(), None);
    let holder = worker.seize_run(1).unwrap().unwrap();
    assert!(holder.starts_with("tidegate on alpha, process "), "{holder}");
    own.experiments().unwrap();
    own.release_run(1).unwrap();
    assert_eq!(worker.seize_run(1).unwrap(), None);
}

/// Two runs of two executions.
const FILE: &str = r#"
name = "two"
scenario = "thrash"
subjects = ["simulated"]
processors = [1, 2]
mpl = [100, 200]
ctl = "1s"
warmup = "0s"
pause = "0s"
repetitions = 1

[factors]
rows = 30000
primary_key = [true]
read_sf = [1.0]
update_sf = []
rose = [100.0]
"#;

#[test]
fn a_run_that_is_held_is_left_to_its_holder() {
    let Some(server) = server() else { return };
    let mut other = store(&server.url(), "alpha");
    let mut own = store(&server.url(), "beta");
    other.hold_host().unwrap();
    let planned = planned(FILE);
    let id = begin(&mut own, &planned);
    let rows = own.runs(id).unwrap();
    let mut run = |only| run_by(&mut own, id, &planned, &simulated, only).unwrap();
    assert_eq!(other.hold_run(rows[0].id).unwrap(), None);
    let outcome = run(None);
    assert_eq!((outcome.done, outcome.unavailable.len()), (2, 1));
    let left = &outcome.unavailable[0];
    assert!(left.starts_with("simulated, 1 processor: left to tidegate on alpha"), "{left}");
    // What it made itself it has let go of.
    assert_eq!(other.hold_run(rows[1].id).unwrap(), None);
    assert_eq!(run(Some(2)), Outcome::default());
    other.release_run(rows[0].id).unwrap();
    assert_eq!(run(Some(1)), Outcome { done: 2, ..Outcome::default() });
    assert_eq!(run(None), Outcome::default());
}

/// What cannot be run is not planned, either: nobody would know of it.
#[test]
fn a_host_that_is_taken_leaves_no_experiment_behind() {
    let Some(server) = server() else { return };
    let mut other = Store::open(&server.url()).unwrap();
    other.hold_host().unwrap();
    let experiment = experiment(FILE);
    let mut own = Laboratory::open(&server.url(), "none".into()).unwrap();
    let refused = own.begin(&experiment).unwrap_err();
    assert!(matches!(refused, LabError::Store(StoreError::Held { .. })), "{refused}");
    assert!(other.experiments().unwrap().is_empty());
    // Workers may be on hosts that are free.
    assert_eq!(own.begin_for_workers(&experiment).unwrap(), 1);

    other.release_host().unwrap();
    assert_eq!(own.begin(&experiment).unwrap(), 2);
    assert!(matches!(other.hold_host(), Err(StoreError::Held { .. })));
    let outcome = own.run(2, &AtomicBool::new(false), &mut |_| {}).unwrap();
    assert_eq!(outcome, Outcome { done: 4, ..Outcome::default() });
    // It was held twice, and one release lets go of it.
    other.hold_host().unwrap();
}

#[test]
fn a_file_is_one_laboratorys_at_a_time() {
    let file = StoreFile::new();
    let [mut first, mut second] = ["alpha", "alpha"].map(|host| store(&file.place(), host));
    first.hold_host().unwrap();
    first.hold_host().unwrap();
    assert_eq!(first.hold_run(1).unwrap(), None);
    let refused = second.hold_host().unwrap_err();
    let me = format!("tidegate on alpha, process {}", std::process::id());
    assert!(matches!(&refused, StoreError::Taken { holder } if *holder == me), "{refused}");
    assert!(!refused.is_lost());
    // It is only measured alone: to look is allowed.
    second.experiments().unwrap();
    first.release_host().unwrap();
    second.hold_host().unwrap();
    assert!(first.hold_host().is_err());
    drop(second);
    first.hold_host().unwrap();
    // Another file is another store.
    store(&StoreFile::new().place(), "alpha").hold_host().unwrap();
}

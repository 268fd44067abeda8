//! Experiments on a simulated subject: what is planned is done, once, whatever happens on the way.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_control::Mpl;
use tidegate_lab::conduct::{Assignment, ExecutionError, Executor, Simulated};
use tidegate_lab::experiment::workload::WorkloadSpec;
use tidegate_lab::experiment::{Choice, Experiment, Plan, RunPlan, parse};
use tidegate_lab::laboratory::run::{Outcome, RunError, Runner};
use tidegate_lab::load::Progress;
use tidegate_lab::measured::{Measured, Started};
use tidegate_lab::rig::Update;
use tidegate_lab::store::{Store, StoreError};
use tidegate_lab::tap::{Rule, analyse};
use tidegate_subject::connection::Transactional;
use tidegate_workload::workload::{Condition, Depth};
use tidegate_workload::{Statement, Wants};

use crate::support::{StoreFile, begin, planned, run_by, server, simulated};

const FILE: &str = r#"
name = "try"
scenario = "thrash"
seed = 7
subjects = ["simulated"]
processors = [1, 2]
mpl = { from = 200, to = 800, step = 200 }
ctl = "200s"
warmup = "40s"
repetitions = 2

[factors]
rows = 30000
primary_key = [true]
read_sf = [1.0]
rose = [100.0]
"#;

/// 2 runs of 5 batchsets of 4 MPLs twice.
const EXECUTIONS: usize = 80;

fn tried() -> (Experiment, Plan) {
    let planned = planned(FILE);
    assert_eq!(planned.1.count(), EXECUTIONS);
    planned
}

/// Runs what is left, until `stop_after` executions were seen to begin.
fn run(store: &mut Store, id: i64, stop_after: usize) -> Result<Outcome, RunError> {
    run_until(&tried(), store, id, stop_after)
}

fn run_until(
    (experiment, plan): &(Experiment, Plan),
    store: &mut Store,
    id: i64,
    stop_after: usize,
) -> Result<Outcome, RunError> {
    let cancel = AtomicBool::new(false);
    let mut begun = 0;
    let mut observer = |update: &Update| {
        begun += usize::from(update.message.contains("MPL"));
        cancel.store(begun > stop_after, Ordering::Relaxed);
    };
    let (executor, cancel, observer) = (&mut |_: &RunPlan| simulated(), &cancel, &mut observer);
    Runner { experiment, plan, id, store, executor, cancel, observer }.run()
}

/// What is cut off again and again is done in the end, each execution once.
fn what_is_cut_off_is_done_in_the_end(place: &str) {
    let mut store = Store::open(place).unwrap();
    let id = begin(&mut store, &tried());
    for stop_after in [0, 1, 17, 5] {
        let cut = run(&mut store, id, stop_after);
        assert!(matches!(cut, Err(RunError::Cancelled(cut)) if cut == id), "{cut:?}");
        // As after a kill: the store is opened anew.
        drop(store);
        store = Store::open(place).unwrap();
    }
    let outcome = run(&mut store, id, usize::MAX).unwrap();
    assert!((outcome.failed, outcome.done < EXECUTIONS) == (0, true), "{outcome:?}");
    assert_eq!(run(&mut store, id, usize::MAX).unwrap(), Outcome::default());
    let row = store.experiment(id).unwrap();
    assert_eq!((row.planned, row.done), (80, 80));
    assert!(store.failures(id).unwrap().is_empty());

    let curves = store.curves(id).unwrap();
    assert_eq!(curves.len(), 10);
    for curve in &curves {
        let places: Vec<_> = curve.points.iter().map(|one| (one.mpl, one.repetition)).collect();
        let expected = [(200, 1), (200, 2), (400, 1), (400, 2), (600, 1), (600, 2)];
        assert_eq!((places[..6].to_vec(), places.len()), (expected.to_vec(), 8));
    }
    // Cut off or not, it comes to the same.
    let file = StoreFile::new();
    let mut whole = file.store();
    let first = begin(&mut whole, &tried());
    assert_eq!(run(&mut whole, first, usize::MAX).unwrap().done, EXECUTIONS);
    let points = thrashing_points(&mut store, id);
    assert_eq!(points, thrashing_points(&mut whole, first));
    let thrashing = points.iter().flatten().count();
    assert!(0 < thrashing && thrashing < 10, "{points:?}");

    let other = begin(&mut store, &tried());
    assert_eq!(store.to_do(other).unwrap().len(), EXECUTIONS);
    assert!(matches!(store.experiment(99), Err(StoreError::Missing { id: 99, .. })));
}

/// The thrashing points of all batchsets, of which none is dropped.
fn thrashing_points(store: &mut Store, id: i64) -> Vec<Option<Mpl>> {
    let (experiment, plan) = tried();
    let data = store.data_set(id, &experiment, &plan).unwrap();
    assert_eq!((data.runs.len(), data.batchsets.len(), data.executions.len()), (2, 10, 80));
    let report = analyse(&data, Rule::default()).unwrap();
    // Virtual time goes on where it had been before: no two executions overlap.
    assert_eq!(report.violations, []);
    assert_eq!(report.retained.len(), 10);
    report.retained.iter().map(|set| set.thrashing_point.mpl()).collect()
}

/// A simulated subject that refuses transactions, and whose record of them is slow to write.
#[derive(Default)]
struct Troubled(Simulated);

impl Executor for Troubled {
    fn start(&mut self, run: &RunPlan, cancel: &AtomicBool) -> Result<Started, ExecutionError> {
        self.0.start(run, cancel)
    }

    fn prepare(&mut self, of: &[WorkloadSpec], cancel: &AtomicBool) -> Result<(), ExecutionError> {
        self.0.prepare(of, cancel)
    }

    fn execute(
        &mut self,
        assignment: &Assignment,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Measured, ExecutionError> {
        let mut measured = self.0.execute(assignment, cancel, progress)?;
        let load = &mut measured.load;
        load.errors = [("53200".to_owned(), 7), ("53300".to_owned(), 2)].into();
        load.conflicts = [("deadlock".to_owned(), 5)].into();
        (load.stragglers, load.records_waited_ms) = (3, 1_500);
        Ok(measured)
    }

    fn check(
        &mut self,
        workload: &WorkloadSpec,
        depth: Depth,
    ) -> Result<Vec<Condition>, ExecutionError> {
        self.0.check(workload, depth)
    }

    fn stop(&mut self) -> Result<(), ExecutionError> {
        self.0.stop()
    }
}

/// Errors and stragglers come back with the curves; waits for records are a trouble.
fn troubles_are_kept(place: &str, connection: &mut impl Transactional) {
    let mut store = Store::open(place).unwrap();
    let id = begin(&mut store, &tried());
    let troubled = || Box::new(Troubled::default()) as Box<dyn Executor>;
    let outcome = run_by(&mut store, id, &tried(), &troubled, None).unwrap();
    assert_eq!(outcome.done, EXECUTIONS);
    let curves = store.curves(id).unwrap();
    for point in curves.iter().flat_map(|curve| &curve.points) {
        assert_eq!((point.clients, point.stragglers, point.errors), (point.mpl, 3, 9));
        assert!(point.transactions > 0);
    }
    let waits = "SELECT COUNT(*), MIN(times) FROM trouble \
                 WHERE kind = 'records' AND what = 'ms waited'";
    let rows = connection.run(&Statement::new(waits), &[], Wants::Rows).unwrap().rows;
    assert_eq!((rows.int(0, 0), rows.int(0, 1)), (Some(80), Some(1_500)));
}

#[test]
fn in_a_file() {
    what_is_cut_off_is_done_in_the_end(&StoreFile::new().place());
}

#[test]
fn on_postgresql() {
    let Some(server) = server() else { return };
    what_is_cut_off_is_done_in_the_end(&server.url());
    troubles_are_kept(&server.url(), &mut server.connect().unwrap());
    rows_are_never_changed(&mut server.connect().unwrap());
}

/// Two clients for a while on a database.
const REAL: &str = r#"
name = "real"
scenario = "characterise"
subjects = ["postgres"]
mpl = [2]
ctl = "5s"
warmup = "0s"

[workload]
kind = "point-select"
"#;

#[test]
fn an_execution_that_loses_a_client_is_a_failed_attempt() {
    let Some(server) = server() else { return };
    let mut admin = server.connect().unwrap();
    let file = StoreFile::new();
    let subject = format!("postgres={}", server.url()).parse().unwrap();
    let choice = Choice { preset: None, subjects: Some(vec![subject]) };
    let experiment = parse(Path::new("real.toml"), REAL, &choice).unwrap();
    let mut laboratory = file.laboratory();
    let id = laboratory.begin(&experiment).unwrap();
    let outcome = laboratory.run(id, &AtomicBool::new(false), &mut |update| {
        if update.message.ends_with(" tps") {
            let one = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                       WHERE application_name = 'tidegate load' LIMIT 1";
            admin.query(one).unwrap();
        }
    });
    let outcome = outcome.unwrap();
    assert_eq!((outcome.done, outcome.failed), (0, 1), "{outcome:?}");
    drop(laboratory);
    let failures = file.store().failures(id).unwrap();
    assert!(failures[0].contains("1 of 2 clients lost their connection"), "{failures:?}");
}

#[test]
fn troubles_are_kept_in_a_file() {
    let file = StoreFile::new();
    drop(file.store());
    troubles_are_kept(&file.place(), &mut file.connection());
}

#[test]
fn rows_in_a_file_are_never_changed() {
    let file = StoreFile::new();
    let mut store = file.store();
    let id = begin(&mut store, &tried());
    run(&mut store, id, usize::MAX).unwrap();
    rows_are_never_changed(&mut file.connection());
}

fn rows_are_never_changed(connection: &mut impl Transactional) {
    for change in [
        "UPDATE measurement_taken SET tps = 1",
        "DELETE FROM measurement_taken",
        "UPDATE series SET host = 'another'",
        "DELETE FROM attempt",
        "UPDATE experiment SET seed = 3",
        "DELETE FROM interval_seen",
    ] {
        let statement = Statement::written(change.to_owned());
        let refused = connection.run(&statement, &[], Wants::Count).unwrap_err().to_string();
        assert!(refused.contains("never changed"), "{change}: {refused}");
    }
    // A second measurement of an execution, as of two laboratories at once.
    let twice = "INSERT INTO failure (attempt, reason) SELECT attempt, 'x' FROM measurement; ";
    let statement = Statement::written(twice.trim_end_matches("; ").to_owned());
    assert!(connection.run(&statement, &[], Wants::Count).is_ok());
    let again = Statement::new(
        "INSERT INTO measurement_taken (attempt, execution, series, ended_us, connect_s, seconds, \
         clients, transactions, tps, mean_ms, p50_ms, p95_ms, p99_ms, max_ms, retries, \
         stragglers, overdue, connection_losses, client_cpu_us, client_core_share, processors, \
         other_executors, report) SELECT attempt + 1000000, execution, series, ended_us, \
         connect_s, seconds, clients, transactions, tps, mean_ms, p50_ms, p95_ms, p99_ms, max_ms, \
         retries, stragglers, overdue, \
         connection_losses, client_cpu_us, client_core_share, processors, other_executors, report \
         FROM measurement_taken",
    );
    let refused = connection.run(&again, &[], Wants::Count).unwrap_err().to_string();
    assert!(refused.to_lowercase().contains("unique"), "{refused}");
}

/// Two MPLs of one batchset in each of two runs; an execution is two minutes, half of it warm-up.
fn with_warmup() -> (Experiment, Plan) {
    let text = FILE
        .replace("step = 200", "step = 600")
        .replace("repetitions = 2", "repetitions = 1\norder = \"ascending\"")
        .replace("\"2s\"", "\"60s\"")
        .replace("\"0s\"", "\"60s\"")
        .replace("rose =", "update_sf = []\nrose =");
    let planned = planned(&text);
    assert_eq!(planned.1.count(), 4);
    planned
}

/// What counts of a batchset is one host's, and what another had measured of it is kept.
#[test]
fn a_batchset_that_another_host_left_is_measured_anew() {
    let file = StoreFile::new();
    let mut store = file.store();
    let planned = with_warmup();
    let id = begin(&mut store, &planned);
    // Two executions are a batchset: alpha leaves the second in its middle.
    for (host, executions, left_here, left_to_another) in
        [("alpha", 3, 1, 2), ("beta", usize::MAX, 0, 0)]
    {
        store.set_host(host.to_owned());
        let _ = run_until(&planned, &mut store, id, executions);
        assert_eq!(store.to_do(id).unwrap().len(), left_here, "{host}");
        store.set_host("gamma".to_owned());
        assert_eq!(store.to_do(id).unwrap().len(), left_to_another, "{host}");
    }
    let data = store.data_set(id, &planned.0, &planned.1).unwrap();
    let hosts: Vec<&str> = data.executions.iter().map(|one| one.host.as_str()).collect();
    assert_eq!(hosts, ["alpha", "alpha", "beta", "beta"]);
    let report = analyse(&data, Rule::default()).unwrap();
    assert!(report.is_sound(), "{:?}", report.violations);
    // Runs differ in their processors, and each was another host's.
    let said: Vec<String> = report.confounded.iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with("processors is confounded with the host: "), "{said:?}");
}

/// Each execution is where and when it was, also when its run went on elsewhere.
#[test]
fn executions_overlap_by_their_own_hosts_and_by_all_of_their_time() {
    let file = StoreFile::new();
    let mut store = file.store();
    let planned = with_warmup();
    let id = begin(&mut store, &planned);
    for (host, executions) in [("alpha", 2), ("beta", usize::MAX)] {
        store.set_host(host.to_owned());
        let _ = run_until(&planned, &mut store, id, executions);
    }
    let violations = |store: &mut Store| {
        let data = store.data_set(id, &planned.0, &planned.1).unwrap();
        let lengths = data.executions.iter().map(|one| one.ended_s - one.began_s);
        assert!(lengths.into_iter().all(|length_s| length_s >= 120.0), "{:?}", data.executions);
        let machines = data.executions.iter().map(|one| one.machine.clone()).collect::<Vec<_>>();
        let found = analyse(&data, Rule::default()).unwrap().violations;
        (machines, found.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let [alpha, beta] = ["alpha, in virtual time", "beta, in virtual time"];
    let machines = [alpha, alpha, beta, beta].map(str::to_owned).to_vec();
    assert_eq!(violations(&mut store), (machines.clone(), Vec::new()));

    // The third begins half a minute before the second has ended, but elsewhere; the fourth in the
    // last half minute of the third, where that is.
    let connection = file.connection();
    connection.batch("DROP TRIGGER attempt_no_update").unwrap();
    let earlier = "UPDATE attempt SET began_us = began_us - 30000000 WHERE execution";
    connection.batch(&format!("{earlier} = 3")).unwrap();
    assert_eq!(violations(&mut store), (machines.clone(), Vec::new()));
    connection.batch(&format!("{earlier} = 4")).unwrap();
    let (_, found) = violations(&mut store);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().all(|one| one.contains("at the same time and on the same machine")));
}

#[test]
fn a_newer_store_is_refused_and_says_so() {
    let file = StoreFile::new();
    drop(file.store());
    let connection = file.connection();
    connection.batch("INSERT INTO schema_version (version) VALUES (99)").unwrap();
    let error = Store::open(&file.place()).unwrap_err().to_string();
    assert!(error.contains("version 99") && error.contains("newer program"), "{error}");
    let nowhere = Store::open("/no/such/directory/results.db").unwrap_err().to_string();
    assert!(nowhere.contains("results.db") && nowhere.contains("unable to open"), "{nowhere}");
}

//! What fails is left, what can be made is made, and all tables are checked.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use tidegate_subject::sqlite::SqliteConnection;
use tidegate_workload::workload::Depth;

use super::*;
use crate::conduct::Simulated;
use crate::experiment::workload::WorkloadSpec;
use crate::experiment::{Choice, parse};
use crate::measured::{Measured, Started};

/// 1 run of 3 batchsets of 3 MPLs three times.
const FILE: &str = r#"
name = "try"
scenario = "thrash"
subjects = ["simulated"]
processors = [1]
order = "ascending"
mpl = [100, 200, 300]
ctl = "2s"
warmup = "0s"
repetitions = 3

[factors]
rows = 30000
primary_key = [true]
read_sf = [1.0]
update_sf = []
rose = [25.0, 50.0, 75.0]
"#;

const SWITCH: &str = r#"
name = "switch"
scenario = "switch"
subjects = ["simulated"]
mpl = [16]
clients = 20
ctl = "4s"
warmup = "0s"

[factors]
control = ["fixed:8"]
then = { kind = "tpcb", scale = 1 }

[workload]
kind = "point-select"
"#;

const DETERIORATE: &str = r#"
name = "aging"
scenario = "deteriorate"
subjects = ["simulated"]
mpl = [20]
ctl = "2s"
warmup = "0s"
repetitions = 2

[factors]
transactions = 1000

[workload]
kind = "tpcb"
"#;

/// What an executor is told to refuse, by the ROSE of its batchset, and what it was asked for.
#[derive(Debug, Default)]
struct Script {
    /// Executions at this MPL.
    fails_at: Option<(f64, u32)>,
    /// Making tables.
    fails_to_load: Option<f64>,
    /// Checking them.
    fails_to_check: Option<f64>,
    /// The same, but as if somebody interrupted it.
    cancels_check: Option<f64>,
    said: Vec<String>,
}

/// A simulated subject that follows a script.
struct Scripted {
    script: Rc<RefCell<Script>>,
    simulated: Simulated,
}

fn rose(workload: &WorkloadSpec) -> Option<f64> {
    match workload {
        WorkloadSpec::Thrash(thrash) => Some(thrash.rose),
        _ => None,
    }
}

impl Scripted {
    fn say(&self, what: &str, workload: &WorkloadSpec) {
        let said = rose(workload).map_or_else(|| workload.describe(), |rose| rose.to_string());
        self.script.borrow_mut().said.push(format!("{what} {said}"));
    }
}

impl Executor for Scripted {
    fn start(&mut self, run: &RunPlan, cancel: &AtomicBool) -> Result<Started, ExecutionError> {
        self.script.borrow_mut().said.push("start".to_owned());
        self.simulated.start(run, cancel)
    }

    fn prepare(&mut self, all: &[WorkloadSpec], _: &AtomicBool) -> Result<(), ExecutionError> {
        if self.script.borrow().fails_to_load.is_some_and(|it| rose(&all[0]) == Some(it)) {
            return Err(ExecutionError::Failed("no space".into()));
        }
        self.say("load", &all[0]);
        Ok(())
    }

    fn execute(
        &mut self,
        assignment: &Assignment,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Measured, ExecutionError> {
        let here = rose(&assignment.workload).map(|rose| (rose, assignment.mpl));
        if here.is_some() && here == self.script.borrow().fails_at {
            return Err(ExecutionError::Failed("too many clients".into()));
        }
        self.simulated.execute(assignment, cancel, progress)
    }

    fn check(
        &mut self,
        workload: &WorkloadSpec,
        depth: Depth,
    ) -> Result<Vec<Condition>, ExecutionError> {
        let what = if depth == Depth::Full { "check fully" } else { "check" };
        self.say(what, workload);
        let script = self.script.borrow();
        let is_here = |at: Option<f64>| at.is_some() && at == rose(workload);
        if is_here(script.cancels_check) {
            return Err(ExecutionError::Cancelled);
        }
        if is_here(script.fails_to_check) {
            return Err(ExecutionError::Failed("no connection".into()));
        }
        self.simulated.check(workload, depth)
    }

    fn stop(&mut self) -> Result<(), ExecutionError> {
        self.script.borrow_mut().said.push("stop".to_owned());
        Ok(())
    }
}

/// An experiment in a store of its own.
struct Bench {
    experiment: Experiment,
    plan: Plan,
    id: i64,
    store: Store,
    script: Rc<RefCell<Script>>,
    directory: tempfile::TempDir,
}

impl Bench {
    fn new(file: &str, script: Script) -> Bench {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Store::open_file(&directory.path().join("results.db")).unwrap();
        let experiment = parse(Path::new("try.toml"), file, &Choice::default()).unwrap();
        let plan = Plan::new(&experiment);
        let id = store.begin_experiment(&experiment, &plan, &Machine::this()).unwrap();
        let script = Rc::new(RefCell::new(script));
        Bench { experiment, plan, id, store, script, directory }
    }

    /// What came of what is left, and what the executor was asked for.
    fn run(&mut self) -> (Outcome, Vec<String>) {
        let outcome = self.try_run().unwrap();
        (outcome, std::mem::take(&mut self.script.borrow_mut().said))
    }

    fn try_run(&mut self) -> Result<Outcome, RunError> {
        let script = Rc::clone(&self.script);
        let mut executor = |_: &RunPlan| {
            let simulated = Simulated::default();
            Box::new(Scripted { script: Rc::clone(&script), simulated }) as Box<dyn Executor>
        };
        Runner {
            experiment: &self.experiment,
            plan: &self.plan,
            id: self.id,
            store: &mut self.store,
            executor: &mut executor,
            cancel: &AtomicBool::new(false),
            observer: &mut |_| {},
        }
        .run()
    }
}

#[test]
fn what_always_fails_keeps_nothing_else_from_being_made() {
    let script = Script { fails_at: Some((50.0, 200)), ..Script::default() };
    let mut bench = Bench::new(FILE, script);
    let (outcome, said) = bench.run();
    // MPL 300 of the second batchset comes after the failures, and is left with them.
    assert_eq!((outcome.done, outcome.failed), (9 + 3 + 9, 3));
    let reason = "simulated, 1 processor, batchset 2: 3 failures in a row, at last: too many \
                  clients";
    assert_eq!(outcome.unavailable, [reason]);
    // What failed is checked, too, and the next begins on a subject started anew.
    let expected = [
        "start", "load 25", "check 25", "load 50", "check 50", "stop", "start", "load 75",
        "check 75", "stop",
    ];
    assert_eq!(said, expected);
    let (again, said) = bench.run();
    assert_eq!((again.done, again.failed, again.unavailable.len()), (0, 3, 1));
    assert_eq!(said, ["start", "load 50", "check 50", "stop"]);
    bench.script.borrow_mut().fails_at = None;
    assert_eq!(bench.run().0, Outcome { done: 6, ..Outcome::default() });
}

#[test]
fn failures_that_are_not_in_a_row_leave_nothing_out() {
    let script = Script { fails_at: Some((50.0, 200)), ..Script::default() };
    let mut bench = Bench::new(&FILE.replace("repetitions = 3", "repetitions = 2"), script);
    let (outcome, _) = bench.run();
    assert_eq!(outcome, Outcome { done: 16, failed: 2, unavailable: Vec::new() });
}

#[test]
fn tables_that_cannot_be_made_are_left_with_their_batchset() {
    let script = Script { fails_to_load: Some(50.0), ..Script::default() };
    let mut bench = Bench::new(FILE, script);
    let (outcome, said) = bench.run();
    let unavailable = vec!["simulated, 1 processor, batchset 2: no space".to_owned()];
    assert_eq!(outcome, Outcome { done: 18, failed: 0, unavailable });
    let expected = ["start", "load 25", "check 25", "stop", "start", "load 75", "check 75", "stop"];
    assert_eq!(said, expected);
}

#[test]
fn the_tables_of_both_workloads_of_a_switch_are_checked() {
    let mut bench = Bench::new(SWITCH, Script::default());
    let (outcome, said) = bench.run();
    assert_eq!(outcome.done, 1);
    assert_eq!(said[2..4], ["check point-select, scale 1", "check tpcb, scale 1"]);
    let file = SWITCH.replace("clients = 20", "clients = 20\ncheck = \"full\"");
    let (_, said) = Bench::new(&file, Script::default()).run();
    assert_eq!(said[2..4], ["check fully point-select, scale 1", "check fully tpcb, scale 1"]);
}

#[test]
fn a_check_that_cannot_be_made_leaves_its_reason() {
    let script = Script { fails_to_check: Some(50.0), ..Script::default() };
    let mut bench = Bench::new(FILE, script);
    assert_eq!(bench.run().0, Outcome { done: 27, ..Outcome::default() });
    let unchecked = bench.store.unchecked(bench.id).unwrap();
    assert_eq!(unchecked, ["run 1, batchset 2, start 1: not checked: no connection"]);
    // Nobody knows that a condition is violated, either.
    assert_eq!(bench.store.violations(bench.id).unwrap(), Vec::<String>::new());
}

#[test]
fn a_check_that_was_never_made_is_missed() {
    let script = Script { cancels_check: Some(50.0), ..Script::default() };
    let mut bench = Bench::new(FILE, script);
    assert!(matches!(bench.try_run(), Err(RunError::Cancelled(_))));
    bench.script.borrow_mut().cancels_check = None;
    // Its executions are done, so that who resumes finds the next batchset only.
    assert_eq!(bench.run().0, Outcome { done: 9, ..Outcome::default() });
    let why = "not checked: the laboratory was interrupted before, or has not come to it";
    let expected = [format!("run 1, batchset 2, start 1: {why}")];
    assert_eq!(bench.store.unchecked(bench.id).unwrap(), expected);
}

/// Tables that are made anew for each execution are checked after each.
#[test]
fn one_check_is_not_enough_for_tables_that_were_made_twice() {
    let mut bench = Bench::new(DETERIORATE, Script::default());
    assert_eq!(bench.run().0, Outcome { done: 2, ..Outcome::default() });
    assert_eq!(bench.store.unchecked(bench.id).unwrap(), Vec::<String>::new());
    let path = bench.directory.path().join("results.db");
    let connection = SqliteConnection::open(&path, Duration::from_secs(1)).unwrap();
    connection.batch("DROP TRIGGER consistency_no_delete").unwrap();
    connection.batch("DELETE FROM consistency WHERE id = 2").unwrap();
    let unchecked = bench.store.unchecked(bench.id).unwrap();
    assert_eq!(unchecked.len(), 1, "{unchecked:?}");
    assert!(unchecked[0].starts_with("run 1, batchset 1, start 1: not checked"), "{unchecked:?}");
}

//! One set-up for all: a server, the file of a store, an experiment and what runs it.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tidegate_lab::conduct::{Executor, Simulated};
use tidegate_lab::experiment::{Choice, Experiment, Plan, RunPlan, parse};
use tidegate_lab::laboratory::Laboratory;
use tidegate_lab::laboratory::run::{Outcome, RunError, Runner};
use tidegate_lab::rig::Machine;
use tidegate_lab::store::Store;
use tidegate_subject::postgres::{self, Postgres};
use tidegate_subject::sqlite::SqliteConnection;

/// A PostgreSQL of the test's own, where it is installed.
#[expect(clippy::print_stdout, reason = "why a test has nothing to do")]
pub(crate) fn server() -> Option<Postgres> {
    if let Err(error) = Postgres::find() {
        println!("skipped: {error}");
        return None;
    }
    Some(Postgres::start(postgres::Options::default()).unwrap())
}

/// A directory with the file of a store, which is not there yet.
pub(crate) struct StoreFile(tempfile::TempDir);

impl StoreFile {
    pub(crate) fn new() -> Self {
        StoreFile(tempfile::tempdir().unwrap())
    }

    pub(crate) fn directory(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().join("results.db")
    }

    pub(crate) fn place(&self) -> String {
        self.path().to_str().unwrap().to_owned()
    }

    pub(crate) fn store(&self) -> Store {
        Store::open_file(&self.path()).unwrap()
    }

    /// A laboratory that can start no proxy.
    pub(crate) fn laboratory(&self) -> Laboratory {
        Laboratory::open(&self.place(), "none".into()).unwrap()
    }

    pub(crate) fn connection(&self) -> SqliteConnection {
        SqliteConnection::open(&self.path(), Duration::from_secs(1)).unwrap()
    }
}

pub(crate) fn experiment(text: &str) -> Experiment {
    parse(Path::new("try.toml"), text, &Choice::default()).unwrap()
}

pub(crate) fn planned(text: &str) -> (Experiment, Plan) {
    let experiment = experiment(text);
    let plan = Plan::new(&experiment);
    (experiment, plan)
}

pub(crate) fn begin(store: &mut Store, (experiment, plan): &(Experiment, Plan)) -> i64 {
    store.begin_experiment(experiment, plan, &Machine::this()).unwrap()
}

pub(crate) fn simulated() -> Box<dyn Executor> {
    Box::new(Simulated::default())
}

/// Runs what is left of an experiment, or of one of its runs.
pub(crate) fn run_by(
    store: &mut Store,
    id: i64,
    (experiment, plan): &(Experiment, Plan),
    executor: &dyn Fn() -> Box<dyn Executor>,
    only: Option<u32>,
) -> Result<Outcome, RunError> {
    let executor = &mut |_: &RunPlan| executor();
    let (cancel, observer) = (&AtomicBool::new(false), &mut |_: &_| {});
    let mut runner = Runner { experiment, plan, id, store, executor, cancel, observer };
    match only {
        None => runner.run(),
        Some(run) => runner.run_only(run),
    }
}

//! The executor on a real database: started privately, kept to its processors, loaded, measured.
//!
//! A server with processes of its own is given its processors before it starts, and every thread of
//! it is looked at before each execution. SQLite and the embedded engine run in our own process:
//! there the processors are ours as well, and the clients share them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tidegate_control::{Algorithm, Mpl};
use tidegate_subject::connection::check;
use tidegate_subject::detection::foreign_databases;
use tidegate_subject::processors::Processors;
use tidegate_workload::workload::{Condition, Depth, Workload};

use super::executor::Assignment;
use super::workload::WorkloadSpec;
use super::{
    Admission, ExecutionError, Executor, Measured, RunPlan, Started, SubjectKind, SubjectSpec,
};
use crate::load::{self, Arrivals, LoadError, LoadOptions, Progress, Recorder};
use crate::rig::{Database, Front, FrontOptions, RigError, Settings, other_executors};

/// A private database.
pub struct RealSubject {
    /// The `tidegate` program, for the proxy.
    tidegate: PathBuf,
    /// Where a proxy's log goes.
    log: PathBuf,
    subject: Option<Running>,
}

/// A database that was started.
struct Running {
    kind: SubjectKind,
    database: Database,
    processors: Processors,
}

impl RealSubject {
    /// An executor with nothing started yet.
    #[must_use]
    pub fn new(tidegate: PathBuf, log: PathBuf) -> Self {
        RealSubject { tidegate, log, subject: None }
    }

    fn running(&mut self) -> Result<&mut Running, ExecutionError> {
        let missing = || ExecutionError::Failed("the subject is not started".to_owned());
        self.subject.as_mut().ok_or_else(missing)
    }
}

impl Running {
    fn front<'d>(
        &'d self,
        assignment: &Assignment<'_>,
        tidegate: &std::path::Path,
        log: PathBuf,
    ) -> Result<Front<'d>, RigError> {
        let is_through_tidegate = self.kind == SubjectKind::PostgresThroughTidegate;
        let (control, start) = match assignment.admission {
            Admission::Clients if is_through_tidegate => (Algorithm::default(), None),
            Admission::Clients => {
                let clients = usize::try_from(assignment.mpl).unwrap_or(usize::MAX);
                return self.database.direct(clients);
            }
            Admission::Limit { .. } => (Algorithm::Fixed(Mpl::at_least_one(assignment.mpl)), None),
            Admission::Control { control, .. } => {
                (control, Some(Mpl::at_least_one(assignment.mpl)))
            }
        };
        self.database.front(FrontOptions {
            tidegate,
            log,
            log_level: "warn",
            journal: None,
            control,
            start,
            seed: assignment.seed,
        })
    }

    /// Whose processors are looked at: the server's, or ours where it has no process of its own.
    fn process(&self) -> u32 {
        self.database.process_id().unwrap_or_else(std::process::id)
    }

    /// How many processors the database has been seen to have: all of its threads the same.
    fn processors(&self) -> Result<u32, RigError> {
        let count = self.processors.verify(self.process())?;
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// Processes of other database systems, by name.
    fn others(&self) -> Vec<String> {
        let own = [self.process(), std::process::id()];
        let mut names: Vec<String> =
            foreign_databases(&own, Duration::ZERO).into_iter().map(|one| one.name).collect();
        names.sort();
        names.dedup();
        names
    }
}

impl Executor for RealSubject {
    fn start(&mut self, run: &RunPlan, _: &AtomicBool) -> Result<Started, ExecutionError> {
        let unavailable = |error: RigError| ExecutionError::Unavailable(error.to_string());
        let running = start(&run.subject, run.processors).map_err(unavailable)?;
        let started = Started {
            version: running.database.version().map_err(unavailable)?,
            settings: running.database.settings().map_err(unavailable)?,
            processors: running.processors().map_err(unavailable)?,
        };
        self.subject = Some(running);
        Ok(started)
    }

    fn prepare(
        &mut self,
        workload: &WorkloadSpec,
        cancel: &AtomicBool,
    ) -> Result<(), ExecutionError> {
        let workload = build(workload)?;
        self.running()?.database.load(&[workload], cancel).map_err(failed)
    }

    fn execute(
        &mut self,
        assignment: &Assignment<'_>,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Measured, ExecutionError> {
        let workload = build(assignment.workload)?;
        let (tidegate, log) = (self.tidegate.clone(), self.log.clone());
        let running = self.running()?;
        running.database.level(std::slice::from_ref(&workload)).map_err(failed)?;
        let clients = match assignment.admission {
            Admission::Clients => assignment.mpl,
            Admission::Limit { clients } | Admission::Control { clients, .. } => clients,
        };
        let front = running.front(assignment, &tidegate, log).map_err(failed)?;
        let options = LoadOptions {
            target: front.target(),
            workload,
            arrivals: Arrivals::Closed,
            clients: usize::try_from(clients).unwrap_or(usize::MAX),
            warmup: assignment.warmup,
            duration: assignment.ctl,
            interval: assignment.interval,
            seed: assignment.seed,
        };
        let recorder = assignment.transactions.as_deref().map(Recorder::create).transpose();
        let recorder = recorder.map_err(|error| ExecutionError::Failed(error.to_string()))?;
        let load = load::run_recorded(&options, &[], recorder, cancel, progress);
        let load = load.map_err(|error| match error {
            LoadError::Cancelled => ExecutionError::Cancelled,
            other => ExecutionError::Failed(other.to_string()),
        })?;
        front.stop().map_err(failed)?;
        let (processors, other_dbms) = (running.processors().map_err(failed)?, running.others());
        running.database.settle().map_err(failed)?;
        let began_s = load.phases.first().map_or(0.0, |phase| phase.began_s);
        Ok(Measured {
            connect_s: (began_s - load.warmup_s).max(0.0),
            load,
            processors,
            other_executors: other_executors(),
            other_dbms,
        })
    }

    fn check(&mut self, workload: &WorkloadSpec) -> Result<Vec<Condition>, ExecutionError> {
        let workload = build(workload)?;
        let mut connection = self.running()?.database.connect().map_err(failed)?;
        check(&mut *connection, &*workload, Depth::Quick)
            .map_err(|failure| ExecutionError::Failed(failure.to_string()))
    }

    fn stop(&mut self) -> Result<(), ExecutionError> {
        let Some(Running { database, .. }) = self.subject.take() else { return Ok(()) };
        let is_ours = database.process_id().is_none();
        let stopped = database.stop();
        if is_ours {
            // What follows is not to be kept to this subject's processors.
            let back = Processors::available().and_then(|all| all.hold(std::process::id()));
            back.map_err(|error| failed(error.into()))?;
        }
        stopped.map_err(failed)
    }
}

/// Starts a database with so many processors.
fn start(spec: &SubjectSpec, processors: Option<u32>) -> Result<Running, RigError> {
    let available = Processors::available()?;
    let processors = match processors {
        Some(count) => available.first(usize::try_from(count).unwrap_or(usize::MAX))?,
        None => available,
    };
    let settings = spec.settings();
    let is_ours = matches!(spec.kind, SubjectKind::Sqlite | SubjectKind::Embedded);
    if is_ours {
        processors.hold(std::process::id())?;
    }
    let database = processors.during(|| database(spec.kind, settings))??;
    Ok(Running { kind: spec.kind, database, processors })
}

fn database(kind: SubjectKind, settings: Settings) -> Result<Database, RigError> {
    match kind {
        SubjectKind::Postgres | SubjectKind::PostgresThroughTidegate => {
            Database::postgres(settings)
        }
        SubjectKind::Mariadb => Database::mariadb(settings),
        SubjectKind::Sqlite => Database::sqlite(&settings),
        SubjectKind::Firebird => Database::firebird(&settings),
        SubjectKind::Embedded => Database::embedded(&settings),
        SubjectKind::Simulated => Err(RigError::NoDatabase("simulated")),
    }
}

impl SubjectSpec {
    /// What the database is to be started with.
    fn settings(&self) -> Settings {
        Settings { named: self.settings.clone(), isolation: self.isolation.clone() }
    }

    /// Looks whether the database has such settings, without starting it.
    pub(super) fn validate(&self) -> Result<(), String> {
        let settings = self.settings();
        let checked = match self.kind {
            SubjectKind::Postgres | SubjectKind::PostgresThroughTidegate => {
                settings.postgres().map(drop)
            }
            SubjectKind::Mariadb => settings.mariadb().map(drop),
            SubjectKind::Sqlite => settings.sqlite().map(drop),
            SubjectKind::Firebird => settings.firebird().map(drop),
            SubjectKind::Embedded => settings.embedded().map(drop),
            SubjectKind::Simulated => Ok(()),
        };
        checked.map_err(|error| format!("subject {}: {error}", self.kind))
    }
}

fn build(spec: &WorkloadSpec) -> Result<Arc<dyn Workload>, ExecutionError> {
    spec.build().map_err(|error| ExecutionError::Failed(error.to_string()))
}

fn failed(error: RigError) -> ExecutionError {
    match error {
        RigError::Cancelled => ExecutionError::Cancelled,
        other => ExecutionError::Failed(other.to_string()),
    }
}

//! The executor on a real database: started privately, kept to its processors, loaded, measured.
//!
//! A server with processes of its own is given its processors before it starts, and every thread of
//! it is looked at before each execution. SQLite and the embedded engine run in our own process:
//! there the processors are ours as well, and the clients share them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tidegate_subject::connection::check;
use tidegate_subject::detection::foreign_databases;
use tidegate_subject::processors::Processors;
use tidegate_workload::workload::{Condition, Depth, Workload};

use super::conduct::{Way, conduct, failed};
use super::executor::Assignment;
use super::workload::WorkloadSpec;
use super::{ExecutionError, Executor, Measured, RunPlan, Started, SubjectKind, SubjectSpec};
use crate::load::Progress;
use crate::rig::{Database, RigError, Settings, other_executors};

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
        workloads: &[WorkloadSpec],
        cancel: &AtomicBool,
    ) -> Result<(), ExecutionError> {
        let workloads: Vec<_> = workloads.iter().map(build).collect::<Result<_, _>>()?;
        self.running()?.database.load(&workloads, cancel).map_err(failed)
    }

    fn execute(
        &mut self,
        assignment: &Assignment<'_>,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Measured, ExecutionError> {
        let specs = assignment.treatment.workloads(assignment.workload);
        let workloads: Vec<_> = specs.iter().map(build).collect::<Result<_, _>>()?;
        let (tidegate, log) = (self.tidegate.clone(), self.log.clone());
        let running = self.running()?;
        running.database.level(&workloads).map_err(failed)?;
        let is_through_tidegate = running.kind == SubjectKind::PostgresThroughTidegate;
        let way = Way { tidegate: &tidegate, log: &log, is_through_tidegate };
        let seen = conduct(&running.database, &workloads, assignment, &way, cancel, progress)?;
        let (processors, other_dbms) = (running.processors().map_err(failed)?, running.others());
        running.database.settle().map_err(failed)?;
        Ok(Measured {
            connect_s: seen.connect_s,
            load: seen.load,
            processors,
            other_executors: other_executors(),
            other_dbms,
            limits: seen.limits,
            looks: seen.looks,
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

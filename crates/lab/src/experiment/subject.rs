//! The executor on a real database.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tidegate_control::{Algorithm, Mpl};
use tidegate_subject::connection::check;
use tidegate_workload::workload::{Condition, Depth, Workload};

use super::executor::Assignment;
use super::workload::WorkloadSpec;
use super::{Admission, ExecutionError, Executor, Measured, RunPlan, Started, SubjectKind};
use crate::load::{self, Arrivals, LoadError, LoadOptions, Progress, Recorder};
use crate::rig::{Database, DatabaseKind, Front, FrontOptions, RigError};

/// A private database.
pub struct RealSubject {
    /// The `tidegate` program, for the proxy.
    tidegate: PathBuf,
    /// Where a proxy's log goes.
    log: PathBuf,
    database: Option<Database>,
    processors: u32,
}

impl RealSubject {
    /// An executor with nothing started yet.
    #[must_use]
    pub fn new(tidegate: PathBuf, log: PathBuf) -> Self {
        RealSubject { tidegate, log, database: None, processors: 0 }
    }

    fn database(&mut self) -> Result<&mut Database, ExecutionError> {
        let missing = || ExecutionError::Failed("the subject is not started".to_owned());
        self.database.as_mut().ok_or_else(missing)
    }

    fn front(&mut self, assignment: &Assignment<'_>) -> Result<Front<'_>, ExecutionError> {
        let control = match assignment.admission {
            Admission::Clients => {
                let clients = usize::try_from(assignment.mpl).unwrap_or(usize::MAX);
                return self.database()?.direct(clients).map_err(failed);
            }
            Admission::Limit { .. } => Algorithm::Fixed(Mpl::at_least_one(assignment.mpl)),
            Admission::Control { control, .. } => control,
        };
        let (tidegate, log) = (self.tidegate.clone(), self.log.clone());
        let database = self.database()?;
        database
            .front(FrontOptions {
                tidegate: &tidegate,
                log,
                log_level: "warn",
                journal: None,
                control,
                start: Some(Mpl::at_least_one(assignment.mpl)),
                seed: assignment.seed,
            })
            .map_err(failed)
    }
}

impl Executor for RealSubject {
    fn start(&mut self, run: &RunPlan, _: &AtomicBool) -> Result<Started, ExecutionError> {
        let kind = match run.subject.kind {
            SubjectKind::Postgres => DatabaseKind::Postgres,
            SubjectKind::Embedded => DatabaseKind::Embedded,
            other => {
                return Err(ExecutionError::Unavailable(format!("{other} cannot be started yet")));
            }
        };
        let unavailable = |error: RigError| ExecutionError::Unavailable(error.to_string());
        let database = Database::start(kind).map_err(unavailable)?;
        let description = database.describe().map_err(unavailable)?;
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        self.processors = u32::try_from(all).unwrap_or(u32::MAX);
        self.database = Some(database);
        Ok(Started {
            version: description.database_version,
            settings: description.database_settings,
            processors: self.processors,
        })
    }

    fn prepare(
        &mut self,
        workload: &WorkloadSpec,
        cancel: &AtomicBool,
    ) -> Result<(), ExecutionError> {
        let workload = build(workload)?;
        self.database()?.load(&[workload], cancel).map_err(failed)
    }

    fn execute(
        &mut self,
        assignment: &Assignment<'_>,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Measured, ExecutionError> {
        let workload = build(assignment.workload)?;
        self.database()?.level(std::slice::from_ref(&workload)).map_err(failed)?;
        let clients = match assignment.admission {
            Admission::Clients => assignment.mpl,
            Admission::Limit { clients } | Admission::Control { clients, .. } => clients,
        };
        let processors = self.processors;
        let front = self.front(assignment)?;
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
        let began_s = load.phases.first().map_or(0.0, |phase| phase.began_s);
        Ok(Measured {
            connect_s: (began_s - load.warmup_s).max(0.0),
            load,
            processors,
            other_executors: 0,
            other_dbms: Vec::new(),
        })
    }

    fn check(&mut self, workload: &WorkloadSpec) -> Result<Vec<Condition>, ExecutionError> {
        let workload = build(workload)?;
        let mut connection = self.database()?.connect().map_err(failed)?;
        check(&mut *connection, &*workload, Depth::Quick)
            .map_err(|failure| ExecutionError::Failed(failure.to_string()))
    }

    fn stop(&mut self) -> Result<(), ExecutionError> {
        match self.database.take() {
            Some(database) => database.stop().map_err(failed),
            None => Ok(()),
        }
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

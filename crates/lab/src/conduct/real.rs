//! The executor on a real database: started privately, kept to its processors, loaded, measured; or
//! on a server that somebody else runs, as a guest.
//!
//! A server with processes of its own is given its processors before it starts, and every thread of
//! it is looked at in each execution ([`environment`](super::environment)). SQLite and the embedded
//! engine run in our own process: there the processors are ours as well, and the clients share them
//! until the database is stopped. Which processors a server has that we did not start is not for us
//! to say: 0 stands for them.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use tidegate_subject::database::Database;
use tidegate_subject::embedded::RequestTimes;
use tidegate_subject::processors::{Held, Processors};
use tidegate_workload::workload::{Condition, Depth};

use super::environment::{Environment, EnvironmentMonitor};
use super::measure::{ProxySetup, RunLoad, conduct};
use super::{Assignment, ExecutionError, Executor};
use crate::experiment::workload::WorkloadSpec;
use crate::experiment::{RunPlan, Subject, SubjectKind};
use crate::load::Progress;
use crate::measured::{Measured, Started};
use crate::rig::RigError;

/// What the processors are called among the settings; no database has a setting of this name.
const PROCESSORS: &str = "processors";

pub struct RealSubject {
    /// The `tidegate` program, for the proxy.
    tidegate: PathBuf,
    /// Where a proxy's log goes.
    log: PathBuf,
    subject: Option<RunningSubject>,
}

struct RunningSubject {
    kind: SubjectKind,
    database: Box<dyn Database>,
    processors: Processors,
    /// Keeps our own process to the processors where the database is within it.
    held: Option<Held>,
}

impl RealSubject {
    /// An executor with nothing started yet.
    pub fn new(tidegate: PathBuf, log: PathBuf) -> Self {
        RealSubject { tidegate, log, subject: None }
    }

    fn running(&mut self) -> Result<&mut RunningSubject, ExecutionError> {
        let missing = || ExecutionError::Failed("the subject is not started".into());
        self.subject.as_mut().ok_or_else(missing)
    }
}

impl RunningSubject {
    fn environment(&self) -> EnvironmentMonitor {
        EnvironmentMonitor::of(&*self.database, &self.processors)
    }

    /// What it was started with: which processors, as the system numbers them, and its settings.
    /// Two of a machine's processors may share a core or not, so their number does not say it all.
    fn settings(&self) -> Result<Vec<(String, String)>, RigError> {
        let mut settings = self.database.settings()?;
        if self.database.existing().is_none() {
            settings.insert(0, (PROCESSORS.to_owned(), self.processors.to_string()));
        }
        Ok(settings)
    }
}

impl Executor for RealSubject {
    fn start(&mut self, run: &RunPlan, _: &AtomicBool) -> Result<Started, ExecutionError> {
        let unavailable = |error: RigError| ExecutionError::Unavailable(error.into());
        let running = start(&run.subject, run.processors).map_err(unavailable)?;
        let started = Started {
            version: running.database.version().map_err(RigError::from).map_err(unavailable)?,
            settings: running.settings().map_err(unavailable)?,
            processors: running.environment().processors().map_err(unavailable)?,
        };
        self.subject = Some(running);
        Ok(started)
    }

    fn prepare(
        &mut self,
        workloads: &[WorkloadSpec],
        cancel: &AtomicBool,
    ) -> Result<(), ExecutionError> {
        let workloads = WorkloadSpec::build_in_turn(workloads)?;
        Ok(self.running()?.database.load(&workloads, cancel)?)
    }

    fn execute(
        &mut self,
        assignment: &Assignment,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Measured, ExecutionError> {
        let specs = assignment.treatment.workloads(&assignment.workload);
        let workloads = WorkloadSpec::build_in_turn(&specs)?;
        let (tidegate, log) = (self.tidegate.clone(), self.log.clone());
        let running = self.running()?;
        // Nobody of an attempt that broke off is to be there.
        running.database.settle()?;
        running.database.level(&workloads)?;
        let is_through_tidegate = matches!(running.kind, SubjectKind::ThroughTidegate(_));
        let requests = RequestTimes::default();
        let way = ProxySetup { tidegate: &tidegate, log: &log, is_through_tidegate, requests };
        let (database, monitor) = (&*running.database, running.environment());
        let mut environment = Environment::default();
        let mut attend = |progress: &mut dyn FnMut(&Progress), run: &mut RunLoad<'_>| {
            let (load, seen) = monitor.attend(progress, run)?;
            environment = seen;
            Ok(load)
        };
        let seen = conduct(database, &workloads, assignment, &way, &mut attend, cancel, progress)?;
        running.database.settle()?;
        Ok(Measured {
            connect_s: seen.connect_s,
            load: seen.load,
            processors: environment.processors,
            other_executors: environment.other_executors,
            other_dbms: environment.other_dbms,
            limits: seen.limits,
            looks: seen.looks,
        })
    }

    fn check(
        &mut self,
        workload: &WorkloadSpec,
        depth: Depth,
    ) -> Result<Vec<Condition>, ExecutionError> {
        let workload = workload.build()?;
        Ok(self.running()?.database.check(&*workload, depth)?)
    }

    fn stop(&mut self) -> Result<(), ExecutionError> {
        let Some(RunningSubject { database, held, .. }) = self.subject.take() else {
            return Ok(());
        };
        let stopped = database.stop();
        // What follows is not to be kept to this subject's processors.
        drop(held);
        Ok(stopped?)
    }
}

/// Starts a database with so many processors.
fn start(subject: &Subject, processors: Option<u32>) -> Result<RunningSubject, RigError> {
    let available = Processors::available()?;
    let processors = match processors {
        Some(count) => available.first(count as usize)?,
        None => available,
    };
    let is_ours = subject.kind.dbms().is_some_and(|dbms| dbms.is_in_process);
    let held = is_ours.then(|| processors.hold_ourselves()).transpose()?;
    let database = match subject.place {
        Some(_) => subject.database()?,
        None => processors.during(|| subject.database())??,
    };
    Ok(RunningSubject { kind: subject.kind, database, processors, held })
}

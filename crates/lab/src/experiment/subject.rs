//! The executor on a real database: started privately, kept to its processors, loaded, measured; or
//! on a server that somebody else runs, as a guest.
//!
//! A server with processes of its own is given its processors before it starts, and every thread of
//! it is looked at before each execution. SQLite and the embedded engine run in our own process:
//! there the processors are ours as well, and the clients share them. Which processors a server has
//! that we did not start is not for us to say: 0 stands for them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tidegate_subject::connection::check;
use tidegate_subject::detection::{Whereabouts, foreign_databases};
use tidegate_subject::firebird::Firebird;
use tidegate_subject::mariadb::MariaDb;
use tidegate_subject::postgres::Postgres;
use tidegate_subject::processors::Processors;
use tidegate_workload::workload::{Condition, Depth, Workload};

use super::conduct::{Way, conduct, failed};
use super::executor::Assignment;
use super::workload::WorkloadSpec;
use super::{ExecutionError, Executor, Measured, RunPlan, Started, SubjectKind, SubjectSpec};
use crate::load::Progress;
use crate::rig::{Database, Place, RigError, Settings, other_executors};

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
    /// Whose processors are looked at: the server's that we started, or ours where the database has
    /// no process of its own; nobody's at a guest's.
    fn process(&self) -> Option<u32> {
        match self.database {
            Database::Existing(_) => None,
            _ => Some(self.database.process_id().unwrap_or_else(std::process::id)),
        }
    }

    /// How many processors the database has been seen to have: all of its threads the same.
    fn processors(&self) -> Result<u32, RigError> {
        let Some(process) = self.process() else { return Ok(0) };
        let count = self.processors.verify(process)?;
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// Processes of other database systems, by name. The server of a guest is none of them; where
    /// it is on this machine and we may not know which process it is, none of its kind is.
    fn others(&self) -> Vec<String> {
        let (whereabouts, kind) = match &self.database {
            Database::Existing(existing) => existing.whereabouts(),
            _ => (Whereabouts::Here(self.process()), &[][..]),
        };
        let (server, own_names) = match whereabouts {
            Whereabouts::Elsewhere => (None, &[][..]),
            Whereabouts::Here(None) => (None, kind),
            Whereabouts::Here(Some(process)) => (Some(process), &[][..]),
        };
        let own: Vec<u32> = server.into_iter().chain([std::process::id()]).collect();
        let names = foreign_databases(&own, Duration::ZERO).into_iter().map(|one| one.name);
        let mut names: Vec<String> =
            names.filter(|name| !own_names.contains(&name.as_str())).collect();
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
        let Some(Running { kind, database, .. }) = self.subject.take() else { return Ok(()) };
        let is_ours = matches!(kind, SubjectKind::Sqlite | SubjectKind::Embedded);
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
    let database = match &spec.place {
        Some(place) => Database::at(place, &settings)?,
        None => processors.during(|| database(spec.kind, &settings))??,
    };
    Ok(Running { kind: spec.kind, database, processors })
}

fn database(kind: SubjectKind, settings: &Settings) -> Result<Database, RigError> {
    match kind {
        SubjectKind::Postgres | SubjectKind::PostgresThroughTidegate => {
            Database::postgres(settings)
        }
        SubjectKind::Mariadb => Database::mariadb(settings),
        SubjectKind::Sqlite => Database::sqlite(settings),
        SubjectKind::Firebird => Database::firebird(settings),
        SubjectKind::Embedded => Database::embedded(settings),
        SubjectKind::Simulated => Err(RigError::NoDatabase("simulated")),
    }
}

impl SubjectSpec {
    /// What the database is to be started with.
    fn settings(&self) -> Settings {
        Settings { named: self.settings.clone(), isolation: self.isolation.clone() }
    }

    /// Whether somebody else runs the server.
    fn is_existing(&self) -> bool {
        self.place.is_some() && self.kind != SubjectKind::Sqlite
    }

    /// Refuses to give an existing server so many processors.
    pub(super) fn refuse_processors(&self) -> Result<(), String> {
        if !self.is_existing() {
            return Ok(());
        }
        Err(format!(
            "`processors`: {} is an existing server, whose processors are not ours to give; \
             leave them out",
            self.kind
        ))
    }

    /// Looks whether the database is to be had: whether its programs are installed, or its server
    /// lets us make a database, which is dropped again.
    pub(super) fn look(&self) -> Result<(), String> {
        let found = match (&self.place, self.kind) {
            (Some(place), _) => Database::at(place, &self.settings()).and_then(Database::stop),
            (None, SubjectKind::Postgres | SubjectKind::PostgresThroughTidegate) => {
                Postgres::find().map(drop).map_err(RigError::from)
            }
            (None, SubjectKind::Mariadb) => MariaDb::find().map(drop).map_err(RigError::from),
            (None, SubjectKind::Firebird) => Firebird::find().map(drop).map_err(RigError::from),
            (None, SubjectKind::Sqlite | SubjectKind::Embedded | SubjectKind::Simulated) => Ok(()),
        };
        found.map_err(|error| error.to_string())
    }

    /// Looks whether the place and the settings are the database's, without starting it.
    pub(super) fn validate(&self) -> Result<(), String> {
        self.validate_place()?;
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

impl SubjectSpec {
    fn validate_place(&self) -> Result<(), String> {
        let kind = self.kind;
        let (fits, wanted) = match (kind, &self.place) {
            (_, None) => return Ok(()),
            (SubjectKind::Postgres | SubjectKind::PostgresThroughTidegate, Some(place)) => {
                (matches!(place, Place::Postgres(_)), "postgres://user@host/database")
            }
            (SubjectKind::Mariadb, Some(place)) => {
                (matches!(place, Place::MariaDb(_)), "mysql://user@host/")
            }
            (SubjectKind::Firebird, Some(place)) => {
                (matches!(place, Place::Firebird(_)), "firebird://user@host/path/of/the/file.fdb")
            }
            (SubjectKind::Sqlite, Some(place)) => {
                (matches!(place, Place::Sqlite(_)), "sqlite:path")
            }
            (SubjectKind::Embedded | SubjectKind::Simulated, Some(_)) => {
                return Err(format!("`subject.{kind}.url`: {kind} is nowhere else than here"));
            }
        };
        if !fits {
            return Err(format!("`subject.{kind}.url` is no place of {kind}; give {wanted}"));
        }
        if self.is_existing() && !self.settings.is_empty() {
            return Err(format!(
                "`subject.{kind}.settings` are for a server that the laboratory starts; an \
                 existing one keeps its own"
            ));
        }
        Ok(())
    }
}

fn build(spec: &WorkloadSpec) -> Result<Arc<dyn Workload>, ExecutionError> {
    spec.build().map_err(|error| ExecutionError::Failed(error.to_string()))
}

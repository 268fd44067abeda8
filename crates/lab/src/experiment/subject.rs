//! The executor on a real database: started privately, kept to its processors, loaded, measured; or
//! on a server that somebody else runs, as a guest.
//!
//! A server with processes of its own is given its processors before it starts, and every thread of
//! it is looked at in each execution ([`witness`](super::witness)). SQLite and the embedded engine
//! run in our own process: there the processors are ours as well, and the clients share them until
//! the database is stopped. Which processors a server has that we did not start is not for us to
//! say: 0 stands for them.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use tidegate_subject::connection::check;
use tidegate_subject::firebird::Firebird;
use tidegate_subject::mariadb::MariaDb;
use tidegate_subject::postgres::Postgres;
use tidegate_subject::processors::{Held, Processors};
use tidegate_workload::workload::{Condition, Depth};

use super::conduct::{Way, conduct, failed};
use super::executor::Assignment;
use super::witness::Witness;
use super::workload::{WorkloadError, WorkloadSpec};
use super::{ExecutionError, Executor, Measured, RunPlan, Started, SubjectKind, SubjectSpec};
use crate::load::Progress;
use crate::rig::{Database, Place, RigError, Settings};

/// What the processors are called among the settings; no database has a setting of this name.
const PROCESSORS: &str = "processors";

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
    /// Keeps our own process to the processors where the database is within it.
    held: Option<Held>,
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
    fn witness(&self) -> Witness {
        Witness::of(&self.database, &self.processors)
    }

    /// What it was started with: which processors, as the system numbers them, and its settings.
    /// Two of a machine's processors may share a core or not, so their number does not say it all.
    fn settings(&self) -> Result<Vec<(String, String)>, RigError> {
        let mut settings = self.database.settings()?;
        if !matches!(self.database, Database::Existing(_)) {
            settings.insert(0, (PROCESSORS.to_owned(), self.processors.to_string()));
        }
        Ok(settings)
    }
}

impl Executor for RealSubject {
    fn start(&mut self, run: &RunPlan, _: &AtomicBool) -> Result<Started, ExecutionError> {
        let unavailable = |error: RigError| ExecutionError::Unavailable(error.to_string());
        let running = start(&run.subject, run.processors).map_err(unavailable)?;
        let started = Started {
            version: running.database.version().map_err(unavailable)?,
            settings: running.settings().map_err(unavailable)?,
            processors: running.witness().processors().map_err(unavailable)?,
        };
        self.subject = Some(running);
        Ok(started)
    }

    fn prepare(
        &mut self,
        workloads: &[WorkloadSpec],
        cancel: &AtomicBool,
    ) -> Result<(), ExecutionError> {
        let workloads = WorkloadSpec::build_in_turn(workloads).map_err(|error| unbuilt(&error))?;
        self.running()?.database.load(&workloads, cancel).map_err(failed)
    }

    fn execute(
        &mut self,
        assignment: &Assignment<'_>,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Measured, ExecutionError> {
        let specs = assignment.treatment.workloads(assignment.workload);
        let workloads = WorkloadSpec::build_in_turn(&specs).map_err(|error| unbuilt(&error))?;
        let (tidegate, log) = (self.tidegate.clone(), self.log.clone());
        let running = self.running()?;
        // Nobody of an attempt that broke off is to be there.
        running.database.settle().map_err(failed)?;
        running.database.level(&workloads).map_err(failed)?;
        let is_through_tidegate = running.kind == SubjectKind::PostgresThroughTidegate;
        let way = Way { tidegate: &tidegate, log: &log, is_through_tidegate };
        let (database, witness) = (&running.database, running.witness());
        let seen = conduct(database, &workloads, assignment, &way, &witness, cancel, progress)?;
        running.database.settle().map_err(failed)?;
        Ok(Measured {
            connect_s: seen.connect_s,
            load: seen.load,
            processors: seen.sight.processors,
            other_executors: seen.sight.other_executors,
            other_dbms: seen.sight.other_dbms,
            limits: seen.limits,
            looks: seen.looks,
        })
    }

    fn check(
        &mut self,
        workload: &WorkloadSpec,
        depth: Depth,
    ) -> Result<Vec<Condition>, ExecutionError> {
        let workload = workload.build().map_err(|error| unbuilt(&error))?;
        let mut connection = self.running()?.database.connect().map_err(failed)?;
        check(&mut *connection, &*workload, depth)
            .map_err(|failure| ExecutionError::Failed(failure.to_string()))
    }

    fn stop(&mut self) -> Result<(), ExecutionError> {
        let Some(Running { database, held, .. }) = self.subject.take() else { return Ok(()) };
        let stopped = database.stop();
        // What follows is not to be kept to this subject's processors.
        drop(held);
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
    let held = is_ours.then(|| processors.hold_ourselves()).transpose()?;
    let database = match &spec.place {
        Some(place) => Database::at(place, &settings)?,
        None => processors.during(|| database(spec.kind, &settings))??,
    };
    Ok(Running { kind: spec.kind, database, processors, held })
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

    /// Starts a private database once with the settings that the file gives it, and stops it: it
    /// alone can tell whether they can be. Without any there is nothing to find out.
    pub(super) fn try_settings(&self) -> Result<(), String> {
        let is_private = self.place.is_none() && self.kind != SubjectKind::Simulated;
        if self.settings.is_empty() || !is_private {
            return Ok(());
        }
        let tried = database(self.kind, &self.settings()).and_then(Database::stop);
        tried.map_err(|error| {
            format!("`subject.{}.settings`: it does not start with them: {error}", self.kind)
        })
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
        checked.map_err(|error| format!("`subject.{}.{}`: {error}", self.kind, error.key()))
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

fn unbuilt(error: &WorkloadError) -> ExecutionError {
    ExecutionError::Failed(error.to_string())
}

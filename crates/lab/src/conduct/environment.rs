//! Who else is on the machine, and whether a database keeps to its processors, when it is measured.
//!
//! There are two looks: when all clients are connected and nobody has begun, so that all their
//! server processes are there and nothing that counts is held up; and when the load is over.
//!
//! Limit: who comes after the first look and goes before the second is not seen.

use std::process;
use std::time::Duration;

use tidegate_subject::database::Database;
use tidegate_subject::detection::{Whereabouts, foreign_databases};
use tidegate_subject::processors::Processors;

use super::ExecutionError;
use super::measure::RunLoad;
use crate::load::{LoadReport, Progress, Stage};
use crate::rig::{RigError, other_executors};

pub(super) struct EnvironmentMonitor {
    processors: Processors,
    /// Whose processors are looked at: the server's that we started, or ours where the database has
    /// no process of its own; nobody's at a guest's.
    process: Option<u32>,
    /// Roots of process trees that are no strangers: our own, and that of the database.
    own: Vec<u32>,
    /// Names of a database on this machine whose process may not be known to us.
    own_names: &'static [&'static str],
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Environment {
    /// Processors of the database, all of its threads the same; 0 where they cannot be seen.
    pub(super) processors: u32,
    /// Other laboratories.
    pub(super) other_executors: u32,
    /// Processes of other database systems, by name.
    pub(super) other_dbms: Vec<String>,
}

impl Environment {
    /// What was seen at two moments, together.
    fn and(mut self, later: Environment) -> Environment {
        self.processors = later.processors;
        self.other_executors = self.other_executors.max(later.other_executors);
        self.other_dbms.extend(later.other_dbms);
        self.other_dbms.sort();
        self.other_dbms.dedup();
        self
    }
}

impl EnvironmentMonitor {
    /// Of a database that was given these processors.
    pub(super) fn of(database: &dyn Database, processors: &Processors) -> Self {
        let us = process::id();
        let existing = database.existing();
        let its = existing.is_none().then(|| database.process_id().unwrap_or(us));
        let whereabouts = existing.unwrap_or(Whereabouts::Here(its));
        let (server, own_names) = match whereabouts {
            Whereabouts::Elsewhere => (None, &[][..]),
            Whereabouts::Here(None) => (None, database.dbms().programs),
            Whereabouts::Here(server) => (server, &[][..]),
        };
        let own = server.into_iter().chain([us]).collect();
        EnvironmentMonitor { processors: processors.clone(), process: its, own, own_names }
    }

    /// How many processors the database has; 0 at a guest's.
    ///
    /// # Errors
    /// One of its threads may use others.
    pub(super) fn processors(&self) -> Result<u32, RigError> {
        let Some(process) = self.process else { return Ok(0) };
        self.processors.verify(process)?;
        Ok(u32::try_from(self.processors.count()).expect("processors are far fewer"))
    }

    fn look(&self) -> Result<Environment, RigError> {
        let others = foreign_databases(&self.own, Duration::ZERO).into_iter().map(|one| one.name);
        let is_other = |name: &String| !self.own_names.contains(&name.as_str());
        Ok(Environment {
            processors: self.processors()?,
            other_executors: other_executors(),
            other_dbms: others.filter(is_other).collect(),
        })
    }

    /// Looks before the clients of a load begin and when it is over.
    pub(super) fn attend(
        &self,
        progress: &mut dyn FnMut(&Progress),
        run: &mut RunLoad<'_>,
    ) -> Result<(LoadReport, Environment), ExecutionError> {
        let mut first = None;
        let load = run(&mut |seen| {
            if seen.stage == Stage::Ready {
                first = Some(self.look());
            }
            progress(seen);
        })?;
        let first = first.transpose()?.unwrap_or_default();
        Ok((load, first.and(self.look()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_there_once_was_there() {
        let environment = |other_executors, names: &[&str]| Environment {
            processors: 2,
            other_executors,
            other_dbms: names.iter().map(|&name| name.to_owned()).collect(),
        };
        let early = environment(1, &["redis-server", "mongod", "mongod"]);
        let late = environment(0, &["mongod"]);
        assert_eq!(early.and(late), environment(1, &["mongod", "redis-server"]));
    }
}

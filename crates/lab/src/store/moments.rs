//! The moments that a store writes, and where it says that they were.
//!
//! # Mechanism
//! What happens on a host happens at moments of its clock. A simulated subject takes a small part
//! of the time that it says: its moments go on as if it had taken all of it ([`Kept::Ahead`]).
//!
//! An experiment of machines in virtual time alone is of no host at all ([`Kept::Machine`]). Each
//! of its runs begins on 2000-01-01, as the machines themselves do; it was planned then, and
//! analysed when its last measurement ended; and its host is called [`MACHINE_HOST`]. So
//! the same file gives the same rows, whenever and wherever it is run. Which host did the work is
//! not kept. In an experiment with other subjects
//! beside, machines in virtual time have moments of the host as simulated ones have: there is one
//! order of all.

use std::time::{Duration, Instant, SystemTime};

use tidegate_workload::Dialect;

use super::{Store, StoreError, count, micros};
use crate::experiment::{Experiment, Subject, SubjectKind};

/// The host of a machine in virtual time, and its processor and kernel. No host has such a name.
pub(super) const MACHINE_HOST: &str = "virtual time";

/// Microseconds from 1970 to the moment at which machines in virtual time begin.
const BEGINNING_US: i64 = 946_684_800_000_000;

/// Which time a store writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// The host's clock.
    Clock,
    /// The host's clock, and what virtual time is ahead of it.
    Ahead,
    /// That of a machine in virtual time.
    Machine,
}

impl Kept {
    /// Returns the time of an experiment's executions on a subject.
    pub(crate) fn of(experiment: &Experiment, kind: SubjectKind) -> Kept {
        match kind {
            _ if is_of_machines(&experiment.subjects) => Kept::Machine,
            kind if kind.is_virtual() => Kept::Ahead,
            _ => Kept::Clock,
        }
    }
}

/// Whether all subjects are machines in virtual time.
fn is_of_machines(subjects: &[Subject]) -> bool {
    subjects.iter().all(|subject| subject.kind == SubjectKind::Machine)
}

/// The time that a store keeps, and where it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moments {
    kept: Kept,
    /// How far virtual time is ahead of the clock, in microseconds; of a machine's, the moment.
    ahead_us: i64,
}

/// A moment from which time is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Since {
    us: i64,
    /// The same by a clock that nobody sets.
    began: Instant,
    ahead_us: i64,
}

impl Moments {
    pub(super) const CLOCK: Moments = Moments { kept: Kept::Clock, ahead_us: 0 };

    const MACHINE: Moments = Moments { kept: Kept::Machine, ahead_us: BEGINNING_US };

    /// Returns the present, in microseconds since 1970.
    pub(super) fn now_us(self) -> i64 {
        if self.kept == Kept::Machine {
            return self.ahead_us;
        }
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now_us = since.map_or_else(|before| -micros(before.duration()), micros);
        now_us + self.ahead_us
    }

    pub(super) fn since(self) -> Since {
        Since { us: self.now_us(), began: Instant::now(), ahead_us: self.ahead_us }
    }

    /// Returns the moment at which what began then ends now. The clock may have been set since, and
    /// nothing ends before its begin.
    pub(super) fn end_us(self, since: Since) -> i64 {
        let passed_us = match self.kept {
            Kept::Machine => 0,
            Kept::Clock | Kept::Ahead => micros(since.began.elapsed()),
        };
        // At least one tick, as everywhere else: begin and end are two moments.
        since.us + (passed_us + self.ahead_us - since.ahead_us).max(1)
    }

    /// Whether moments are those of a machine in virtual time, which is no host's.
    pub(super) fn is_of_machine(self) -> bool {
        self.kept == Kept::Machine
    }
}

impl Since {
    pub(super) fn us(self) -> i64 {
        self.us
    }
}

impl Store {
    /// Virtual time goes by: moments written from now on are later by so much.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.moments.ahead_us += micros(time);
    }

    /// Moments of a run are by a time from now on. Virtual time goes on from where it had come to
    /// in the run's measurements, or in the experiment's where it is ahead of the host's clock.
    ///
    /// In virtual time a commit does not wait for the disk, which would take longer than the
    /// execution. Who is killed loses nothing by that; when the machine loses its power, the last
    /// executions may be gone, and are made again.
    pub(crate) fn keep_time(
        &mut self,
        experiment: i64,
        run: u32,
        kept: Kept,
    ) -> Result<(), StoreError> {
        let commits = match (self.connection.dialect(), kept) {
            (Dialect::Postgres, Kept::Clock) => "RESET synchronous_commit",
            (Dialect::Postgres, _) => "SET synchronous_commit = off",
            (_, Kept::Clock) => "PRAGMA synchronous = FULL",
            (_, _) => "PRAGMA synchronous = NORMAL",
        };
        self.execute(commits, &[])?;
        self.moments = match kept {
            Kept::Clock => Moments::CLOCK,
            Kept::Ahead => {
                let last_us = self.last_us(experiment, None)?;
                let now_us = Moments::CLOCK.now_us();
                Moments { kept, ahead_us: last_us.map_or(0, |last| (last - now_us).max(0)) }
            }
            Kept::Machine => {
                let last_us = self.last_us(experiment, Some(run))?;
                Moments { kept, ahead_us: last_us.unwrap_or(BEGINNING_US) }
            }
        };
        Ok(())
    }

    /// Moments are those of a new experiment from now on.
    pub(super) fn keep_time_of_plan(&mut self, experiment: &Experiment) {
        let is_of_machines = is_of_machines(&experiment.subjects);
        self.moments = if is_of_machines { Moments::MACHINE } else { Moments::CLOCK };
    }

    /// Returns the moment of an analysis that is made now.
    pub(super) fn moment_of_analysis(&mut self, experiment: i64) -> Result<i64, StoreError> {
        let subjects = self.experiment(experiment)?.subjects;
        let is_machine = |one: &str| one.parse() == Ok(Subject::from(SubjectKind::Machine));
        if !subjects.split(',').all(is_machine) {
            return Ok(Moments::CLOCK.now_us());
        }
        Ok(self.last_us(experiment, None)?.unwrap_or(BEGINNING_US))
    }

    /// Returns when the last measurement ended of an experiment, or of one of its runs.
    fn last_us(&mut self, experiment: i64, run: Option<u32>) -> Result<Option<i64>, StoreError> {
        let of_experiment = "SELECT MAX(m.ended_us) FROM measurement m, execution x, batchset b, \
                             run r WHERE m.execution = x.id AND x.batchset = b.id \
                             AND b.run = r.id AND r.experiment = ?";
        match run {
            None => self.row(of_experiment, &[experiment.into()]),
            Some(run) => {
                let of_run = format!("{of_experiment} AND r.number = ?");
                self.row(&of_run, &[experiment.into(), count(run)])
            }
        }
    }
}

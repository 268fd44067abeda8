//! Experiments: from a file to executions, in the hierarchy of the thrashing study (Suh, Snodgrass
//! and Currim, 2017, Section 5, Fig. 5).
//!
//! # Mechanism
//!
//! | level | what it is | how many |
//! | --- | --- | --- |
//! | scenario | what is varied: [`Scenario`] | a file has one |
//! | experiment | a file with a preset: [`Experiment`] | |
//! | run | a subject with so many processors, tables with or without keys | their product |
//! | batchset instance | a workload with its values and its [treatment] | those of the scenario |
//! | batch instance | an MPL | the levels of `mpl` |
//! | batch execution | one measurement | `repetitions` |
//! | interval | a part of it | CTL / `interval` |
//!
//! [`Plan::new`] writes all of this out, the same from the same file and seed. The runner
//! ([`run`](mod@run)) takes one execution after the other that the store does not have yet, so
//! that to resume is to run: what is done stays done, and what was cut off becomes a new attempt.
//!
//! # Example
//! The study's confirmatory experiment: per run 28 batchsets (3 read SF + 4 update SF, times 4
//! ROSE), 10 MPLs, 5 repetitions: 1,400 executions; 50 runs have 70,000.
//!
//! # Limits
//! Subjects are started one after the other on this machine. Those that somebody else runs are used
//! where they are; what they do beside is not seen.

mod conduct;
mod executor;
mod figure;
mod file;
mod fit;
mod laboratory;
mod line;
#[cfg(feature = "machines")]
pub mod machines;
mod plan;
mod redact;
pub mod run;
pub mod scenarios;
pub mod show;
mod simulated;
mod subject;
pub mod timeline;
pub mod treatment;
mod values;
mod watch;
mod witness;
pub mod workload;

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tidegate_workload::Dialect;
use tidegate_workload::workload::Depth;

use crate::rig::{Place, PlaceError};

pub use executor::{Assignment, ExecutionError, Executor, Measured, Started};
pub use file::{Choice, FileError, look_for_subjects, parse, read};
pub use laboratory::{LabError, Laboratory, plan_text};
pub use plan::{Batch, Batchset, Execution, Plan, RunPlan};
pub use scenarios::Scenario;
pub use simulated::Simulated;
pub use subject::RealSubject;
pub use values::Bytes;
pub use watch::Look;

/// What an experiment file says.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Its name.
    pub name: String,
    /// What is varied.
    pub scenario: Arc<dyn Scenario>,
    /// Where all draws begin, also that of the order.
    pub seed: u64,
    /// The databases.
    pub subjects: Vec<SubjectSpec>,
    /// The numbers of processors given to the DBMS; all there are when nothing is said.
    pub processors: Option<Vec<u32>>,
    /// The levels, rising.
    pub mpls: Vec<u32>,
    /// How long an execution is measured: the connection time limit.
    pub ctl: Duration,
    /// How long it runs before that.
    pub warmup: Duration,
    /// How long nothing happens after it.
    pub pause: Duration,
    /// How long all clients may take to connect.
    pub connect: Duration,
    /// How many of them may be connecting at a time; as usual when nothing is said.
    pub connect_at_once: Option<NonZeroUsize>,
    /// How long an interval is, in which transactions are counted apart.
    pub interval: Duration,
    /// How often each batch is executed.
    pub repetitions: u32,
    /// In which order.
    pub order: Order,
    /// Whether each transaction is recorded, in files beside the store.
    pub transactions: bool,
    /// How much of the tables is checked after the executions of a batchset.
    pub check: Depth,
    /// The file's text, word for word but for passwords in URLs.
    pub text: String,
    /// The preset that was chosen.
    pub preset: Option<String>,
}

/// In which order executions are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Batchsets in an order drawn from the seed, and the executions of each, too.
    Random,
    /// As they are written, MPLs rising, repetitions one after the other.
    Ascending,
}

/// A database of an experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubjectSpec {
    /// Which.
    pub kind: SubjectKind,
    /// Its own settings, by its own names.
    pub settings: BTreeMap<String, String>,
    /// How far transactions are apart; the database's default when nothing is said.
    pub isolation: Option<String>,
    /// Where an existing server is, instead of a private one.
    pub place: Option<Place>,
}

/// A database as it is named on command lines and in the store: `postgres`, or
/// `postgres=postgres://user@host/database` where it is an existing one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubjectChoice {
    /// Which.
    pub kind: SubjectKind,
    /// Where.
    pub place: Option<Place>,
}

impl From<SubjectKind> for SubjectChoice {
    /// A private one.
    fn from(kind: SubjectKind) -> Self {
        SubjectChoice { kind, place: None }
    }
}

impl fmt::Display for SubjectChoice {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            None => self.kind.fmt(f),
            Some(place) => write!(f, "{}={}", self.kind, place.without_password()),
        }
    }
}

impl SubjectSpec {
    /// How the database is named in the store.
    #[must_use]
    pub fn choice(&self) -> SubjectChoice {
        SubjectChoice { kind: self.kind, place: self.place.clone() }
    }
}

/// A kind of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SubjectKind {
    /// PostgreSQL.
    Postgres,
    /// PostgreSQL behind a Tidegate proxy with its default controller.
    PostgresThroughTidegate,
    /// MariaDB.
    Mariadb,
    /// SQLite, within our own process.
    Sqlite,
    /// Firebird.
    Firebird,
    /// The engine that Tidegate carries with it.
    Embedded,
    /// No database: a plant of the simulator, to try an experiment or the laboratory itself.
    Simulated,
}

impl SubjectKind {
    /// Every kind.
    pub const ALL: [SubjectKind; 7] = [
        SubjectKind::Postgres,
        SubjectKind::PostgresThroughTidegate,
        SubjectKind::Mariadb,
        SubjectKind::Sqlite,
        SubjectKind::Firebird,
        SubjectKind::Embedded,
        SubjectKind::Simulated,
    ];

    /// The name in files and on command lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SubjectKind::Postgres => "postgres",
            SubjectKind::PostgresThroughTidegate => "postgres-through-tidegate",
            SubjectKind::Mariadb => "mariadb",
            SubjectKind::Sqlite => "sqlite",
            SubjectKind::Firebird => "firebird",
            SubjectKind::Embedded => "embedded",
            SubjectKind::Simulated => "simulated",
        }
    }
}

impl SubjectKind {
    /// What its statements are written in; nothing where there are none.
    fn dialect(self) -> Option<Dialect> {
        match self {
            SubjectKind::Postgres | SubjectKind::PostgresThroughTidegate => Some(Dialect::Postgres),
            SubjectKind::Mariadb => Some(Dialect::MariaDb),
            SubjectKind::Sqlite => Some(Dialect::Sqlite),
            SubjectKind::Firebird => Some(Dialect::Firebird),
            SubjectKind::Embedded => Some(Dialect::Embedded),
            SubjectKind::Simulated => None,
        }
    }
}

impl fmt::Display for SubjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no subject has.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "no subject is called `{name}`: use {}",
    SubjectKind::ALL.map(SubjectKind::name).join(", ")
)]
pub struct UnknownSubject {
    /// What was asked for.
    pub name: String,
}

/// A subject on a command line that is none.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChoiceError {
    /// The name is none.
    #[error(transparent)]
    Kind(#[from] UnknownSubject),
    /// What follows the name is no place.
    #[error("{kind}=..: {source}")]
    Place {
        /// The subject.
        kind: SubjectKind,
        /// Why it is none.
        source: PlaceError,
    },
}

impl FromStr for SubjectChoice {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        let (kind, place) = match text.split_once('=') {
            Some((kind, place)) => (kind, Some(place)),
            None => (text, None),
        };
        let kind: SubjectKind = kind.parse()?;
        let place = place.map(str::parse).transpose();
        Ok(SubjectChoice {
            kind,
            place: place.map_err(|source| ChoiceError::Place { kind, source })?,
        })
    }
}

impl FromStr for SubjectKind {
    type Err = UnknownSubject;

    fn from_str(text: &str) -> Result<Self, UnknownSubject> {
        let known = SubjectKind::ALL.into_iter().find(|kind| kind.name() == text);
        known.ok_or_else(|| UnknownSubject { name: text.to_owned() })
    }
}

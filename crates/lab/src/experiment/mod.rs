//! Experiments: from a file to executions, in the hierarchy of the thrashing study (Suh, Snodgrass
//! and Currim, 2017, Section 5, Fig. 5).
//!
//! # Mechanism
//!
//! | level | what it is | how many |
//! | --- | --- | --- |
//! | scenario | what is varied: [`Scenario`] | a file has one |
//! | experiment | a file with a preset: [`Experiment`] | |
//! | run | a subject, its processors or machine, tables with or without keys | their product |
//! | batchset instance | a workload with its values and its [treatment] | those of the scenario |
//! | batch instance | an MPL | the levels of `mpl` |
//! | batch execution | one measurement | `repetitions` |
//! | interval | a part of it | CTL / `interval` |
//!
//! [`Plan::new`] writes all of this out, the same from the same file and seed. The runner
//! ([`run`](mod@crate::laboratory::run)) takes one execution after the other that the store does
//! not have yet, so that to resume is to run: what is done stays done, and what was cut off becomes
//! a new attempt.
//!
//! # Example
//! The study's confirmatory experiment: per run 28 batchsets (3 read SF + 4 update SF, times 4
//! ROSE), 10 MPLs, 5 repetitions: 1,400 executions; 50 runs have 70,000.
//!
//! # Limits
//! Subjects are started one after the other on this machine. Those that somebody else runs are used
//! where they are; what they do beside is not seen.

mod complaint;
pub(crate) mod file;
mod fit;
pub(crate) mod machine;
pub(crate) mod plan;
mod redact;
pub mod scenarios;
mod subject;
pub mod treatment;
pub(crate) mod values;
pub mod workload;

use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;
use tidegate_subject::database::{Dbms, Gate};
use tidegate_subject::embedded;
use tidegate_subject::settings::Settings;
use tidegate_subject::url::{Url, UrlError};
use tidegate_workload::workload::Depth;

pub use file::{Choice, FileError, look_for_subjects, parse, read};
pub use machine::MachineFactors;
pub use plan::{Batch, Batchset, Execution, Plan, RunPlan};
pub use scenarios::Scenario;
pub use values::Bytes;

#[derive(Clone, Debug)]
pub struct Experiment {
    pub name: String,
    pub scenario: Scenario,
    /// Where all draws begin, also that of the order.
    pub seed: u64,
    pub subjects: Vec<Subject>,
    /// The numbers of processors given to a DBMS on this host, or simulated; all there are when
    /// nothing is said.
    pub processors: Option<Vec<u32>>,
    /// The machines in virtual time.
    pub machine: MachineFactors,
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
    pub order: Order,
    /// Whether each transaction is recorded, in files beside the store.
    pub transactions: bool,
    /// How much of the tables is checked after the executions of a batchset.
    pub check: Depth,
    /// The file's text, word for word but for passwords in URLs.
    pub text: String,
    pub preset: Option<String>,
}

impl Experiment {
    /// Returns a subject in each of its configurations, with the processors that it has; `None` is
    /// all there are.
    pub(crate) fn configurations(&self, subject: &Subject) -> Vec<(Subject, Option<u32>)> {
        if subject.kind == SubjectKind::Machine {
            let all = self.machine.configurations(subject).into_iter();
            return all.map(|(subject, count)| (subject, Some(count))).collect();
        }
        match &self.processors {
            None => vec![(subject.clone(), None)],
            Some(counts) => counts.iter().map(|&count| (subject.clone(), Some(count))).collect(),
        }
    }
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

/// A subject of an experiment: a database, or what stands for one.
///
/// On command lines and in the store it is named without its settings, and without a password:
/// `postgres`, or `postgres=postgres://user@host/database` where it is an existing one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub kind: SubjectKind,
    pub settings: Settings,
    /// Where an existing server or the file is, instead of a private one.
    pub place: Option<Url>,
}

impl From<SubjectKind> for Subject {
    fn from(kind: SubjectKind) -> Self {
        Subject { kind, settings: Settings::default(), place: None }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            None => self.kind.fmt(f),
            Some(place) => write!(f, "{}={}", self.kind, place.without_password()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub enum SubjectKind {
    /// A database of a DBMS.
    Plain(&'static Dbms),
    /// The same behind a Tidegate proxy with its default controller.
    ThroughTidegate(&'static Dbms),
    /// The embedded engine on a machine in virtual time.
    Machine,
    /// No database: a plant of the simulator, to try an experiment or the laboratory itself.
    Simulated,
}

/// What stands behind the name of a DBMS that is reached through a proxy.
const THROUGH: &str = "-through-tidegate";

impl SubjectKind {
    /// Returns every kind, in the order in which messages name them.
    fn all() -> impl Iterator<Item = SubjectKind> {
        let of = |dbms: &'static Dbms| {
            let through = (dbms.gate == Gate::Proxy).then_some(SubjectKind::ThroughTidegate(dbms));
            std::iter::once(SubjectKind::Plain(dbms)).chain(through)
        };
        Dbms::ALL.iter().copied().flat_map(of).chain([SubjectKind::Machine, SubjectKind::Simulated])
    }

    /// Returns the DBMS; `None` where there is no database.
    pub fn dbms(self) -> Option<&'static Dbms> {
        match self {
            SubjectKind::Plain(dbms) | SubjectKind::ThroughTidegate(dbms) => Some(dbms),
            SubjectKind::Machine => Some(&embedded::DBMS),
            SubjectKind::Simulated => None,
        }
    }

    /// Returns whether time only seems to go by while it is measured.
    pub fn is_virtual(self) -> bool {
        matches!(self, SubjectKind::Machine | SubjectKind::Simulated)
    }
}

impl fmt::Display for SubjectKind {
    /// The name in files, on command lines and in the store.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SubjectKind::Plain(dbms) => f.write_str(dbms.name),
            SubjectKind::ThroughTidegate(dbms) => write!(f, "{}{THROUGH}", dbms.name),
            SubjectKind::Machine => f.write_str("embedded-in-virtual-time"),
            SubjectKind::Simulated => f.write_str("simulated"),
        }
    }
}

/// A name that no subject has.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "no subject is called `{name}`: use {}",
    SubjectKind::all().map(|kind| kind.to_string()).collect::<Vec<_>>().join(", ")
)]
pub struct UnknownSubject {
    pub name: String,
}

/// A subject on a command line that is none.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChoiceError {
    #[error(transparent)]
    Kind(#[from] UnknownSubject),
    #[error("{kind}=..: {source}")]
    Place { kind: SubjectKind, source: UrlError },
}

impl FromStr for Subject {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        let (kind, place) = match text.split_once('=') {
            Some((kind, place)) => (kind, Some(place)),
            None => (text, None),
        };
        let kind: SubjectKind = kind.parse()?;
        let place = place.map(str::parse).transpose();
        let place = place.map_err(|source| ChoiceError::Place { kind, source })?;
        Ok(Subject { place, ..kind.into() })
    }
}

impl FromStr for SubjectKind {
    type Err = UnknownSubject;

    fn from_str(text: &str) -> Result<Self, UnknownSubject> {
        let known = SubjectKind::all().find(|kind| kind.to_string() == text);
        known.ok_or_else(|| UnknownSubject { name: text.to_owned() })
    }
}

impl TryFrom<String> for SubjectKind {
    type Error = UnknownSubject;

    fn try_from(text: String) -> Result<Self, UnknownSubject> {
        text.parse()
    }
}

//! What is done with a batchset's workload: who lets transactions in, how they come, and what
//! changes on the way.
//!
//! A scenario says this as values, so that every executor can do it, the store can keep it beside
//! what was measured, and a batch that is resumed is what it was.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tidegate_control::Algorithm;
use tidegate_subject::embedded::auctions::{
    EscalationReading, LockEscalation, LockProtocol, Locking, LockingError,
};

use super::values::{Bytes, written};
use super::workload::WorkloadSpec;

/// See the module. The default is the plain closed loop of as many clients as the MPL.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Treatment {
    pub admission: Admission,
    pub arrivals: ArrivalSpec,
    /// Scheduling classes, if there are two.
    pub priority: Option<PriorityShare>,
    /// Memory for pages at the start, where it can be changed while the database runs.
    pub buffer: Option<Bytes>,
    /// What is exchanged half way.
    pub exchange: Option<Exchange>,
    /// Whether the database's aging is watched, and how.
    pub aging: Option<Aging>,
    /// How transactions lock the nodes of a document, where they do.
    pub locking: Option<LockingSpec>,
    /// Ways to lock of which a controller chooses one beside the limit; it begins with the first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arms: Vec<LockingSpec>,
    /// Memory for pages at the start as a share of all pages, in per cent, in the place of
    /// `buffer`. All pages are read before the load begins, so it begins with a warm buffer.
    pub buffer_percent: Option<f64>,
}

/// How transactions lock the nodes of a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockingSpec {
    /// The name of the protocol.
    pub protocol: String,
    /// The lock depth; no bound when nothing is said.
    #[serde(default)]
    pub depth: Option<u32>,
    /// From when on many locks become one; never when nothing is said.
    #[serde(default)]
    pub escalation: Option<EscalationSpec>,
}

/// From when on many locks on nodes become one lock above them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EscalationSpec {
    pub policy: EscalationPolicy,
    pub reading: ReadingSpec,
}

/// The study's policies of escalation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EscalationPolicy {
    Moderate,
    Eager,
    Aggressive,
}

/// What the gain of an escalation does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReadingSpec {
    /// As the study's formula.
    #[default]
    Formula,
    /// As the sentence behind the formula.
    Sentence,
}

impl LockingSpec {
    /// Reads a way to lock as the XML store writes it, for example `taDOM3+/3/aggressive`.
    ///
    /// # Errors
    /// It is none.
    pub fn read(text: &str) -> Result<LockingSpec, LockingError> {
        let Locking { protocol, depth, escalation, .. } = text.parse()?;
        let spec = |escalation: LockEscalation| {
            let policy = match escalation.read_as(EscalationReading::Formula) {
                LockEscalation::MODERATE => EscalationPolicy::Moderate,
                LockEscalation::EAGER => EscalationPolicy::Eager,
                _ => EscalationPolicy::Aggressive,
            };
            let reading = match escalation.reading {
                EscalationReading::Formula => ReadingSpec::Formula,
                EscalationReading::Sentence => ReadingSpec::Sentence,
            };
            EscalationSpec { policy, reading }
        };
        let protocol = protocol.name().to_lowercase();
        Ok(LockingSpec { protocol, depth, escalation: escalation.map(spec) })
    }

    /// Returns what the store is told. The time of requests is measured, too.
    ///
    /// # Errors
    /// There is no protocol of that name.
    pub fn locking(&self) -> Result<Locking, UnknownProtocol> {
        let escalation = |EscalationSpec { policy, reading }: EscalationSpec| LockEscalation {
            reading: match reading {
                ReadingSpec::Formula => EscalationReading::Formula,
                ReadingSpec::Sentence => EscalationReading::Sentence,
            },
            ..match policy {
                EscalationPolicy::Moderate => LockEscalation::MODERATE,
                EscalationPolicy::Eager => LockEscalation::EAGER,
                EscalationPolicy::Aggressive => LockEscalation::AGGRESSIVE,
            }
        };
        let protocol = LockProtocol::named(&self.protocol)
            .ok_or_else(|| UnknownProtocol(self.protocol.clone()))?;
        let (depth, escalation) = (self.depth, self.escalation.map(escalation));
        Ok(Locking { protocol, depth, escalation, is_timed: true })
    }
}

/// A name that no lock protocol has.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no lock protocol is called `{0}`; use document, x, mgl or tadom3+")]
pub struct UnknownProtocol(pub String);

/// The protocol, and what differs from no bound and no escalation.
impl fmt::Display for LockingSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LockingSpec { protocol, depth, escalation } = self;
        f.write_str(protocol)?;
        if let Some(depth) = depth {
            write!(f, " to depth {depth}")?;
        }
        let Some(EscalationSpec { policy, reading }) = escalation else { return Ok(()) };
        let policy = match policy {
            EscalationPolicy::Moderate => "moderate",
            EscalationPolicy::Eager => "eager",
            EscalationPolicy::Aggressive => "aggressive",
        };
        let reading = match reading {
            ReadingSpec::Formula => "formula",
            ReadingSpec::Sentence => "sentence",
        };
        write!(f, ", {policy} escalation by the {reading}")
    }
}

/// What an MPL of an experiment is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mpl", rename_all = "kebab-case")]
pub enum Admission {
    /// The number of clients, each in a transaction all the time.
    #[default]
    Clients,
    /// A limit that a gate holds, whoever waits outside.
    Limit { clients: u32 },
    /// The limit that a controller starts with.
    Control {
        clients: u32,
        #[serde(with = "written")]
        control: Algorithm,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ArrivalSpec {
    /// When a client's last has been answered and the client has thought.
    #[default]
    Closed,
    /// So many a second, at random, whether answers come or not.
    Poisson(f64),
    /// So many a second, evenly.
    Constant(f64),
}

/// A share of the transactions is of the high class, and goes first at some places. Where it goes
/// first nowhere, the classes are only counted apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PriorityShare {
    pub high_percent: f64,
    /// Whether the gate lets the high class in first.
    pub is_given: bool,
    /// Whether the high class goes first in lock queues, with preempt-on-wait.
    #[serde(default)]
    pub locks: bool,
    /// Whether the high class goes first on the processors.
    #[serde(default)]
    pub processors: bool,
}

/// What is exchanged when half of the measured time is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Exchange {
    Workload(WorkloadSpec),
    Buffer(Bytes),
}

/// A database that is watched as it gets older.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aging {
    /// Transactions after which the execution ends.
    pub transactions: u64,
    /// How long it is from one look at the trees to the next.
    pub look: Duration,
    /// How the trees split full nodes.
    pub split: Option<Split>,
}

/// How the embedded engine's trees split full nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Split {
    Half,
    /// 15/16 to the left in a sequence at the end of the tree, as the study's database did.
    MaxKey,
    /// Where a sequence is, anywhere in the tree: the study's proposal.
    Adaptive,
}

impl Treatment {
    /// How many clients there are at an MPL.
    pub fn clients(&self, mpl: u32) -> u32 {
        match self.admission {
            Admission::Clients => mpl,
            Admission::Limit { clients } | Admission::Control { clients, .. } => clients,
        }
    }

    /// The workloads, the second of an exchange included.
    pub fn workloads(&self, first: &WorkloadSpec) -> Vec<WorkloadSpec> {
        match &self.exchange {
            Some(Exchange::Workload(then)) => vec![first.clone(), then.clone()],
            _ => vec![first.clone()],
        }
    }

    /// Whether each execution begins with tables as they are loaded.
    pub fn needs_fresh_tables(&self) -> bool {
        self.aging.is_some()
    }
}

/// What it is in words; nothing for the default.
impl fmt::Display for Treatment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        match self.admission {
            Admission::Clients => {}
            Admission::Limit { clients } => words.push(format!("{clients} clients")),
            Admission::Control { clients, control } => {
                words.push(format!("{control}, {clients} clients"));
            }
        }
        match self.arrivals {
            ArrivalSpec::Closed => {}
            ArrivalSpec::Poisson(rate) => words.push(format!("{rate} a second at random")),
            ArrivalSpec::Constant(rate) => words.push(format!("{rate} a second")),
        }
        words.extend(self.priority.map(|priority| priority.to_string()));
        if self.arms.is_empty() {
            words.extend(self.locking.as_ref().map(ToString::to_string));
        } else {
            words.push(format!("one of {} ways to lock", self.arms.len()));
        }
        words.extend(self.buffer.map(|buffer| format!("buffer {buffer}")));
        words.extend(self.buffer_percent.map(|share| format!("buffer {share} % of all pages")));
        match &self.exchange {
            None => {}
            Some(Exchange::Workload(then)) => words.push(format!("then {}", then.describe())),
            Some(Exchange::Buffer(then)) => words.push(format!("then buffer {then}")),
        }
        if let Some(Aging { transactions, split, .. }) = self.aging {
            words.push(format!("{transactions} transactions"));
            words.extend(split.map(|split| format!("split {}", split.name())));
        }
        f.write_str(&words.join(", "))
    }
}

/// The share and where it goes first, as in `10 % first in lock queues`.
impl fmt::Display for PriorityShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PriorityShare { high_percent, is_given, locks, processors } = *self;
        write!(f, "{high_percent} % ")?;
        let inside = match (locks, processors) {
            (false, false) if is_given => return f.write_str("first"),
            (false, false) => return f.write_str("apart but not first"),
            (true, false) => "in lock queues",
            (false, true) => "on processors",
            (true, true) => "in lock queues and on processors",
        };
        let gate = if is_given { "at the gate, " } else { "" };
        write!(f, "first {gate}{inside}")
    }
}

impl Split {
    fn name(self) -> &'static str {
        match self {
            Split::Half => "half",
            Split::MaxKey => "max-key",
            Split::Adaptive => "adaptive",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_kept_as_text_and_comes_back() {
        let control = "study-hill-climbing:c=0.3".parse().unwrap();
        let full = Treatment {
            admission: Admission::Control { clients: 500, control },
            arrivals: ArrivalSpec::Poisson(80.0),
            priority: Some(PriorityShare {
                high_percent: 10.0,
                is_given: true,
                locks: true,
                processors: true,
            }),
            buffer: Some(Bytes::try_from("16MB".to_owned()).unwrap()),
            exchange: Some(Exchange::Buffer(Bytes::try_from("8MB".to_owned()).unwrap())),
            aging: Some(Aging {
                transactions: 100_000,
                look: Duration::from_secs(10),
                split: Some(Split::MaxKey),
            }),
            locking: Some(LockingSpec {
                protocol: "mgl".to_owned(),
                depth: Some(3),
                escalation: Some(EscalationSpec {
                    policy: EscalationPolicy::Eager,
                    reading: ReadingSpec::Sentence,
                }),
            }),
            arms: vec![LockingSpec::read("x").unwrap()],
            buffer_percent: Some(0.1),
        };
        for treatment in [Treatment::default(), full.clone()] {
            let text = serde_json::to_string(&treatment).unwrap();
            assert_eq!(serde_json::from_str::<Treatment>(&text).unwrap(), treatment, "{text}");
        }
        assert_eq!(Treatment::default().to_string(), "");
        assert_eq!(
            full.to_string(),
            "study-hill-climbing:c=0.3, 500 clients, 80 a second at random, 10 % first at the \
             gate, in lock queues and on processors, one of 1 ways to lock, buffer 16MB, \
             buffer 0.1 % of all pages, then buffer 8MB, 100000 transactions, split max-key"
        );
    }

    #[test]
    fn a_priority_says_where_it_counts() {
        let share = PriorityShare { high_percent: 5.0, ..PriorityShare::default() };
        let given = PriorityShare { is_given: true, ..share };
        for (share, expected) in [
            (share, "5 % apart but not first"),
            (given, "5 % first"),
            (PriorityShare { locks: true, ..share }, "5 % first in lock queues"),
            (PriorityShare { processors: true, ..share }, "5 % first on processors"),
            (PriorityShare { locks: true, ..given }, "5 % first at the gate, in lock queues"),
        ] {
            assert_eq!(share.to_string(), expected);
        }
        // As stores have it from before there were priorities past the gate.
        let old = r#"{"high_percent":5.0,"is_given":true}"#;
        assert_eq!(serde_json::from_str::<PriorityShare>(old).unwrap(), given);
    }
}

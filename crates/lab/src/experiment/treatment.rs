//! What is done with a batchset's workload: who lets transactions in, how they come, and what
//! changes on the way.
//!
//! A scenario says this as values, so that every executor can do it, the store can keep it beside
//! what was measured, and a batch that is resumed is what it was.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_control::Algorithm;

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

/// A share of the clients, and of the arrivals of an open loop, is of the high class.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PriorityShare {
    pub high_percent: f64,
    /// Whether the gate lets them in first; otherwise they are only counted apart.
    pub is_given: bool,
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

    /// How many of so many clients are of the high class: at least one where there are classes.
    pub fn high_clients(&self, clients: u32) -> u32 {
        let percent = self.priority.map_or(0.0, |priority| priority.high_percent);
        let share = f64::from(clients) * percent / 100.0;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of at most 100 per cent of a u32"
        )]
        let high = share.round() as u32;
        if percent > 0.0 { high.clamp(1, clients) } else { 0 }
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
        if let Some(PriorityShare { high_percent, is_given }) = self.priority {
            let first = if is_given { "first" } else { "apart but not first" };
            words.push(format!("{high_percent} % {first}"));
        }
        words.extend(self.buffer.map(|buffer| format!("buffer {buffer}")));
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
            priority: Some(PriorityShare { high_percent: 10.0, is_given: true }),
            buffer: Some(Bytes::try_from("16MB".to_owned()).unwrap()),
            exchange: Some(Exchange::Buffer(Bytes::try_from("8MB".to_owned()).unwrap())),
            aging: Some(Aging {
                transactions: 100_000,
                look: Duration::from_secs(10),
                split: Some(Split::MaxKey),
            }),
        };
        for treatment in [Treatment::default(), full.clone()] {
            let text = serde_json::to_string(&treatment).unwrap();
            assert_eq!(serde_json::from_str::<Treatment>(&text).unwrap(), treatment, "{text}");
        }
        assert_eq!(Treatment::default().to_string(), "");
        assert_eq!(
            full.to_string(),
            "study-hill-climbing:c=0.3, 500 clients, 80 a second at random, 10 % first, buffer \
             16MB, then buffer 8MB, 100000 transactions, split max-key"
        );
    }

    #[test]
    fn the_high_class_is_never_empty_where_there_is_one() {
        let with = |high_percent| Treatment {
            priority: Some(PriorityShare { high_percent, is_given: true }),
            ..Treatment::default()
        };
        let high = |percent, clients| with(percent).high_clients(clients);
        assert_eq!((high(10.0, 100), high(10.0, 4), high(100.0, 7)), (10, 1, 7));
        assert_eq!(Treatment::default().high_clients(100), 0);
    }
}

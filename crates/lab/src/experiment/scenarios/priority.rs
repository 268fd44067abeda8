//! `priority`: two scheduling classes before a gate and inside a database (external-scheduling
//! study, Section 5).
//!
//! A share of the transactions is of the high class, each by chance, as in the study. `mpl` are
//! limits: the lower the limit, the more of the waiting is before the gate, where the high class
//! goes first, and the more throughput may be lost. The first batchset gives priority, the second
//! counts the classes apart and does not; so the loss of throughput and what each class gains can
//! be read off, at 5 % and 20 % as in the study's Fig. 11. The loop is closed, or open with
//! `poisson` or `constant` arrivals a second.
//!
//! The factors `gate`, `locks` and `processors` say where the high class goes first; each
//! combination of their values is a batchset. `locks` is the study's preempt-on-wait (Fig. 12),
//! `processors` its priorities of processes (Fig. 13).
//!
//! # Where this leaves the study
//! A store whose runs have a batchset with `locks` is opened with preempt-on-wait for all its
//! batchsets. Without `locks` all transactions have the same priority there, so nothing is
//! preempted.

use serde::Deserialize;

use super::{Common, Recipe, Scenario, ScenarioFactors};
use crate::experiment::complaint::Complaint;
use crate::experiment::treatment::{Admission, ArrivalSpec, PriorityShare, Treatment};
use crate::experiment::values::Percent;
use crate::load::{HIGH_SHARE_MIN, RATES, is_rate};

/// The lowest per cent of the high class.
const HIGH_PERCENT_MIN: f64 = 0.001;
const _: () = assert!(HIGH_PERCENT_MIN / 100.0 >= HIGH_SHARE_MIN);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PriorityFactors {
    /// Per cent of the transactions that are of the high class; 10 as published.
    high: Option<Percent>,
    arrivals: ArrivalSpec,
    /// Whether the high class goes first at the gate; both when nothing is said.
    gate: Option<Vec<bool>>,
    /// Whether it goes first in lock queues; not when nothing is said.
    locks: Option<Vec<bool>>,
    /// Whether it goes first on processors; not when nothing is said.
    processors: Option<Vec<bool>>,
}

impl ScenarioFactors for PriorityFactors {
    const NAME: &'static str = "priority";

    fn scenario(self, common: &Common) -> Result<Scenario, Complaint> {
        let workload = common.workload()?;
        let Admission::Limit { clients } = common.fixed()? else {
            let text = "the scenario priority needs `clients`: who waits before the gate";
            return Err(Complaint::missing(text));
        };
        let rate = match self.arrivals {
            ArrivalSpec::Closed => None,
            ArrivalSpec::Poisson(rate) | ArrivalSpec::Constant(rate) => Some(rate),
        };
        if rate.is_some_and(|rate| !is_rate(rate)) {
            return Err(Complaint::about("factors.arrivals", format!(": give {RATES}")));
        }
        let recipe = |priority| Recipe {
            workload: workload.clone(),
            treatment: Treatment {
                admission: Admission::Limit { clients },
                arrivals: self.arrivals,
                priority: Some(priority),
                buffer: common.buffer,
                ..Treatment::default()
            },
        };
        Ok(Scenario::of::<Self>(self.shares()?.into_iter().map(recipe).collect()))
    }
}

impl PriorityFactors {
    /// Returns each combination of places where the high class goes first or not.
    fn shares(&self) -> Result<Vec<PriorityShare>, Complaint> {
        let high_percent = self.high.map_or(10.0, |percent| percent.0);
        if high_percent < HIGH_PERCENT_MIN {
            let text = format!(": give a number from {HIGH_PERCENT_MIN} to 100");
            return Err(Complaint::about("factors.high", text));
        }
        let gate = self.gate.as_deref().unwrap_or(&[true, false]);
        let locks = self.locks.as_deref().unwrap_or(&[false]);
        let processors = self.processors.as_deref().unwrap_or(&[false]);
        let lists = [("gate", gate), ("locks", locks), ("processors", processors)];
        for (name, list) in lists {
            if list.is_empty() || list.iter().skip(1).any(|value| *value == list[0]) {
                let text = ": give [true], [false], or both, each once";
                return Err(Complaint::about(&format!("factors.{name}"), text));
            }
        }
        let mut shares = Vec::new();
        for &is_given in gate {
            for &locks in locks {
                for &processors in processors {
                    shares.push(PriorityShare { high_percent, is_given, locks, processors });
                }
            }
        }
        Ok(shares)
    }
}

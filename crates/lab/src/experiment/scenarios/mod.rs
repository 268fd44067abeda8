//! Scenarios: what an experiment varies, each a module of its own.
//!
//! # Mechanism
//! The *factors* of a scenario are the keys of the table `[factors]` in an experiment file. They
//! are made into a [`Scenario`], which has the batchsets of each run: a workload and a
//! [`Treatment`] each.
//!
//! # Adding one
//! Write a module with a type that is `ScenarioFactors`, and add a line to `READERS`. What it asks
//! of executors that a `Treatment` cannot say yet becomes a field there.

mod autotune;
mod characterise;
mod deteriorate;
mod priority;
mod sensitivity;
mod switch;
#[cfg(test)]
mod tests;
mod thrash;
mod xml_locking;

use serde::de::DeserializeOwned;
use tidegate_control::Algorithm;

use super::Experiment;
use super::complaint::Complaint;
use super::file::{Choice, Document, Problem, read_as};
use super::treatment::{Admission, Treatment};
use super::values::Bytes;
use super::workload::WorkloadSpec;

/// What an experiment varies.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    pub name: &'static str,
    /// A run on tables with primary keys or without, each with its batchsets in their order.
    pub runs: Vec<(bool, Vec<Recipe>)>,
}

impl Scenario {
    /// These batchsets, on tables with primary keys.
    fn of<F: ScenarioFactors>(recipes: Vec<Recipe>) -> Self {
        Scenario { name: F::NAME, runs: vec![(true, recipes)] }
    }
}

/// A batchset before it has a number.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    pub workload: WorkloadSpec,
    pub treatment: Treatment,
}

impl Recipe {
    /// Returns whether the high class goes first in lock queues.
    pub(super) fn has_locks(&self) -> bool {
        self.treatment.priority.is_some_and(|priority| priority.locks)
    }
}

/// A scenario's own keys in an experiment file.
pub(super) trait ScenarioFactors: DeserializeOwned + Clone + Default {
    const NAME: &'static str;

    fn scenario(self, common: &Common) -> Result<Scenario, Complaint>;
}

/// What a scenario sees of the keys that all have.
#[derive(Clone, Debug)]
pub(super) struct Common {
    pub(super) workload: Option<WorkloadSpec>,
    pub(super) clients: Option<u32>,
    pub(super) buffer: Option<Bytes>,
    pub(super) mpls: Vec<u32>,
}

pub(super) type Reader = fn(&Document<'_>, &Choice) -> Result<Experiment, Problem>;

pub(super) const READERS: [(&str, Reader); 8] = [
    (characterise::CharacteriseFactors::NAME, read_as::<characterise::CharacteriseFactors>),
    (thrash::ThrashFactors::NAME, read_as::<thrash::ThrashFactors>),
    (autotune::AutotuneFactors::NAME, read_as::<autotune::AutotuneFactors>),
    (switch::SwitchFactors::NAME, read_as::<switch::SwitchFactors>),
    (sensitivity::SensitivityFactors::NAME, read_as::<sensitivity::SensitivityFactors>),
    (deteriorate::DeteriorateFactors::NAME, read_as::<deteriorate::DeteriorateFactors>),
    (priority::PriorityFactors::NAME, read_as::<priority::PriorityFactors>),
    (xml_locking::XmlLockingFactors::NAME, read_as::<xml_locking::XmlLockingFactors>),
];

impl Common {
    /// The workload, which is there and can be built.
    fn workload(&self) -> Result<WorkloadSpec, Complaint> {
        let missing = || Complaint::missing("the table `workload` is missing");
        let workload = self.workload.clone().ok_or_else(missing)?;
        workload.build()?;
        Ok(workload)
    }

    /// A fixed limit where there are `clients`, else the clients themselves.
    fn fixed(&self) -> Result<Admission, Complaint> {
        let Some(clients) = self.clients else { return Ok(Admission::Clients) };
        if self.mpls.iter().any(|&mpl| mpl > clients) {
            let text = format!(" goes above the {clients} `clients`, who could not fill it");
            return Err(Complaint::about("mpl", text));
        }
        Ok(Admission::Limit { clients })
    }

    /// The admissions of several controllers, in their order.
    fn controlled(&self, controls: &[Algorithm]) -> Result<Vec<Admission>, Complaint> {
        let missing = || Complaint::missing("a controller needs `clients`: how many there are");
        let clients = self.clients.ok_or_else(missing)?;
        let admission = |&control: &Algorithm| Admission::Control { clients, control };
        Ok(controls.iter().map(admission).collect())
    }
}

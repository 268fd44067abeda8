//! Scenarios: what an experiment varies, each a module of its own.
//!
//! # Mechanism
//! A scenario is two types in one file. Its *factors* are the keys of the table `[factors]` in an
//! experiment file; they are made into a [`Scenario`], which writes out the batchsets of a run: a
//! workload and a [`Treatment`] each.
//!
//! # Adding one
//! Write a module with a type that is `Factors` and one that is [`Scenario`], and add a line to
//! `READERS`. What it asks of executors that a `Treatment` cannot say yet becomes a field there.

pub mod autotune;
pub mod characterise;
pub mod deteriorate;
pub mod priority;
pub mod sensitivity;
pub mod switch;
#[cfg(test)]
mod tests;
pub mod thrash;

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use tidegate_control::Algorithm;

use super::Experiment;
use super::complaint::Complaint;
use super::file::{Choice, Document, Problem, read_as};
use super::treatment::{Admission, Treatment};
use super::values::Bytes;
use super::workload::WorkloadSpec;

pub trait Scenario: fmt::Debug + Send + Sync {
    fn name(&self) -> &'static str;

    /// Whether tables have primary keys: a run for each.
    fn primary_keys(&self) -> Vec<bool> {
        vec![true]
    }

    /// The batchsets of a run, in their order.
    fn batchsets(&self, primary_key: bool) -> Vec<Recipe>;
}

/// A batchset before it has a number.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    pub workload: WorkloadSpec,
    pub treatment: Treatment,
}

/// A scenario's own keys in an experiment file.
pub(super) trait Factors: DeserializeOwned + Clone + Default {
    const NAME: &'static str;

    fn scenario(self, common: &Common) -> Result<Arc<dyn Scenario>, Complaint>;
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

pub(super) const READERS: [(&str, Reader); 7] = [
    (characterise::Keys::NAME, read_as::<characterise::Keys>),
    (thrash::Keys::NAME, read_as::<thrash::Keys>),
    (autotune::Keys::NAME, read_as::<autotune::Keys>),
    (switch::Keys::NAME, read_as::<switch::Keys>),
    (sensitivity::Keys::NAME, read_as::<sensitivity::Keys>),
    (deteriorate::Keys::NAME, read_as::<deteriorate::Keys>),
    (priority::Keys::NAME, read_as::<priority::Keys>),
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

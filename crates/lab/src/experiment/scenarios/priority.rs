//! `priority`: two scheduling classes before a gate (external-scheduling study, Section 5).
//!
//! A share of the clients is of the high class. `mpl` are limits: the lower the limit, the more
//! of the waiting is before the gate, where the high class goes first, and the more throughput
//! may be lost. The first batchset gives priority, the second counts the classes apart and does
//! not; so the loss of throughput and what each class gains can be read off, at 5 % and 20 % as
//! in the study's Fig. 11. The loop is closed, or open with `poisson` or `constant` arrivals a
//! second.
//!
//! # Where this leaves the study
//! There a transaction is of the high class by chance, here a client is: a proxy gives a
//! connection one class. In a closed loop without think time the high clients are back at once,
//! so that few of them fill a low limit, and the others starve: 4 of 40 clients leave a limit of
//! 2 to nobody else. In an open loop the share of the transactions is what it says.
//!
//! A proxy knows the high class by its `application_name`, the embedded engine by the call.

use serde::Deserialize;

use super::{Common, Recipe, Scenario, ScenarioFactors};
use crate::experiment::complaint::Complaint;
use crate::experiment::treatment::{Admission, ArrivalSpec, PriorityShare, Treatment};
use crate::experiment::values::Percent;
use crate::load::{RATES, is_rate};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PriorityFactors {
    /// Per cent of high-priority clients; 10 as published.
    high: Option<Percent>,
    arrivals: ArrivalSpec,
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
        let high_percent = self.high.map_or(10.0, |percent| percent.0);
        let recipe = |is_given| Recipe {
            workload: workload.clone(),
            treatment: Treatment {
                admission: Admission::Limit { clients },
                arrivals: self.arrivals,
                priority: Some(PriorityShare { high_percent, is_given }),
                buffer: common.buffer,
                ..Treatment::default()
            },
        };
        Ok(Scenario::of::<Self>([true, false].map(recipe).to_vec()))
    }
}

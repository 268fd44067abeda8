//! `autotune`: controllers on a workload, each from every start limit (auto-tuning study, Section
//! 7.1).
//!
//! `mpl` are the limits to start with. A batchset is a controller; the limit over time is kept
//! beside the throughput of every interval.

use serde::Deserialize;

use super::{Common, Recipe, Scenario, ScenarioFactors};
use crate::experiment::complaint::Complaint;
use crate::experiment::treatment::Treatment;
use crate::experiment::values::AlgorithmName;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct AutotuneFactors {
    control: Vec<AlgorithmName>,
}

impl ScenarioFactors for AutotuneFactors {
    const NAME: &'static str = "autotune";

    fn scenario(self, common: &Common) -> Result<Scenario, Complaint> {
        if self.control.is_empty() {
            return Err(Complaint::about("factors.control", " names no controller"));
        }
        let controls: Vec<_> = self.control.iter().map(|name| name.0).collect();
        let workload = common.workload()?;
        let recipe = |admission| Recipe {
            workload: workload.clone(),
            treatment: Treatment { admission, buffer: common.buffer, ..Treatment::default() },
        };
        let recipes = common.controlled(&controls)?.into_iter().map(recipe).collect();
        Ok(Scenario::of::<Self>(recipes))
    }
}

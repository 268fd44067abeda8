//! `sensitivity`: how much a controller's parameters matter (auto-tuning study, Chapter 6).
//!
//! Every value of the first parameter with every value of the second, of one controller on one
//! workload: `c = [0.1, 0.2]` and `delta = [10, 20]` are four batchsets.

use serde::Deserialize;
use tidegate_control::Algorithm;

use super::{Common, Recipe, Scenario, ScenarioFactors};
use crate::experiment::complaint::Complaint;
use crate::experiment::treatment::Treatment;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct SensitivityFactors {
    control: Option<String>,
    /// Values of hill climbing's C.
    c: Vec<f64>,
    /// Values of the parabolas' Γ.
    gamma: Vec<f64>,
    /// Values of Δ, in transactions.
    delta: Vec<u32>,
}

impl SensitivityFactors {
    /// The controller with each combination of values.
    fn controls(&self) -> Result<Vec<Algorithm>, Complaint> {
        let missing = || Complaint::missing("`factors.control` is missing");
        let name = self.control.as_deref().ok_or_else(missing)?;
        let c = self.c.iter().map(|value| format!("c={value}"));
        let gamma = self.gamma.iter().map(|value| format!("gamma={value}"));
        let shares: Vec<String> = c.chain(gamma).collect();
        let steps: Vec<String> = self.delta.iter().map(|value| format!("delta={value}")).collect();
        let texts: Vec<String> = match (shares.as_slice(), steps.as_slice()) {
            ([], []) => {
                let text = " varies nothing: give c, gamma or delta";
                return Err(Complaint::about("factors", text));
            }
            (shares, []) => shares.to_vec(),
            ([], steps) => steps.to_vec(),
            (shares, steps) => shares
                .iter()
                .flat_map(|share| steps.iter().map(move |step| format!("{share},{step}")))
                .collect(),
        };
        let control = |text: &String| {
            let text = format!("{name}:{text}");
            text.parse::<Algorithm>().map_err(Complaint::about_content)
        };
        texts.iter().map(control).collect()
    }
}

impl ScenarioFactors for SensitivityFactors {
    const NAME: &'static str = "sensitivity";

    fn scenario(self, common: &Common) -> Result<Scenario, Complaint> {
        let workload = common.workload()?;
        let recipe = |admission| Recipe {
            workload: workload.clone(),
            treatment: Treatment { admission, buffer: common.buffer, ..Treatment::default() },
        };
        let recipes = common.controlled(&self.controls()?)?.into_iter().map(recipe).collect();
        Ok(Scenario::of::<Self>(recipes))
    }
}

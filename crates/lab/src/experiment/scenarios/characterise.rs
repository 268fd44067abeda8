//! `characterise`: the throughput curve of one workload over fixed MPLs (auto-tuning study,
//! Chapter 5; external-scheduling study, Section 3).
//!
//! Without `clients` an MPL is a number of clients. With it that many clients wait before a gate
//! that lets in as many as the MPL says, which is what both studies did.

use serde::Deserialize;

use super::{Common, Recipe, Scenario, ScenarioFactors};
use crate::experiment::complaint::Complaint;
use crate::experiment::treatment::Treatment;

/// It has no keys of its own.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CharacteriseFactors {}

impl ScenarioFactors for CharacteriseFactors {
    const NAME: &'static str = "characterise";

    fn scenario(self, common: &Common) -> Result<Scenario, Complaint> {
        let treatment =
            Treatment { admission: common.fixed()?, buffer: common.buffer, ..Treatment::default() };
        Ok(Scenario::of::<Self>(vec![Recipe { workload: common.workload()?, treatment }]))
    }
}

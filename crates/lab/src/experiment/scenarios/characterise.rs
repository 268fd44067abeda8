//! `characterise`: the throughput curve of one workload over fixed MPLs (auto-tuning study,
//! Chapter 5; external-scheduling study, Section 3).
//!
//! Without `clients` an MPL is a number of clients. With it that many clients wait before a gate
//! that lets in as many as the MPL says, which is what both studies did.

use std::sync::Arc;

use serde::Deserialize;

use super::{Common, Factors, Recipe, Scenario};
use crate::experiment::complaint::Complaint;
use crate::experiment::treatment::Treatment;

/// It has no keys of its own.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Keys {}

#[derive(Clone, Debug, PartialEq)]
pub struct Characterise {
    recipe: Recipe,
}

impl Factors for Keys {
    const NAME: &'static str = "characterise";

    fn scenario(self, common: &Common) -> Result<Arc<dyn Scenario>, Complaint> {
        let treatment =
            Treatment { admission: common.fixed()?, buffer: common.buffer, ..Treatment::default() };
        Ok(Arc::new(Characterise { recipe: Recipe { workload: common.workload()?, treatment } }))
    }
}

impl Scenario for Characterise {
    fn name(&self) -> &'static str {
        Keys::NAME
    }

    fn batchsets(&self, _: bool) -> Vec<Recipe> {
        vec![self.recipe.clone()]
    }
}

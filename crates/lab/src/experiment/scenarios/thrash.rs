//! `thrash`: the thrashing study's batchsets (Suh, Snodgrass and Currim, 2017, Section 5).
//!
//! Reads with each SF, then updates with each, every one with each ROSE: 28 batchsets with the
//! study's values. Tables with primary keys and without are runs of their own.

use std::num::NonZeroU32;

use serde::Deserialize;

use super::{Common, Recipe, Scenario, ScenarioFactors};
use crate::experiment::complaint::Complaint;
use crate::experiment::treatment::Treatment;
use crate::experiment::values::Percent;
use crate::experiment::workload::WorkloadSpec;

/// What it varies; the study's values where nothing is said.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ThrashFactors {
    rows: Option<NonZeroU32>,
    primary_key: Option<Vec<bool>>,
    read_sf: Option<Vec<Percent>>,
    update_sf: Option<Vec<Percent>>,
    rose: Option<Vec<Percent>>,
}

/// The same with values for all.
struct ThrashValues {
    rows: u32,
    /// Shares of the rows that a read touches, in per cent.
    read_sf: Vec<f64>,
    /// Shares of the rows that an update touches, in per cent.
    update_sf: Vec<f64>,
    /// Shares of the rows that may be touched, in per cent.
    rose: Vec<f64>,
}

impl ScenarioFactors for ThrashFactors {
    const NAME: &'static str = "thrash";

    fn scenario(self, common: &Common) -> Result<Scenario, Complaint> {
        if common.workload.is_some() {
            let text = "the scenario thrash has its own workload; leave `workload` out, and use \
                        `factors` to vary it";
            return Err(Complaint::about_content(text));
        }
        if common.clients.is_some() {
            let text = "in the scenario thrash an MPL is a number of clients; leave `clients` out";
            return Err(Complaint::about_one_of(&["clients"], text));
        }
        let or = |list: Option<Vec<Percent>>, otherwise: &[f64]| -> Vec<f64> {
            list.map_or_else(
                || otherwise.to_vec(),
                |list| list.iter().map(|percent| percent.0).collect(),
            )
        };
        let values = ThrashValues {
            rows: self.rows.map_or(1_000_000, NonZeroU32::get),
            read_sf: or(self.read_sf, &[0.01, 0.1, 1.0]),
            update_sf: or(self.update_sf, &[0.25, 0.5, 0.75, 1.0]),
            rose: or(self.rose, &[25.0, 50.0, 75.0, 100.0]),
        };
        let primary_key = self.primary_key.unwrap_or(vec![true, false]);
        let recipes = values.recipes(true);
        if recipes.is_empty() || primary_key.is_empty() {
            let text = " leaves no batchset; each list needs a value";
            return Err(Complaint::about("factors", text));
        }
        for Recipe { workload, .. } in recipes {
            workload.build()?;
        }
        let runs = primary_key.into_iter().map(|key| (key, values.recipes(key))).collect();
        Ok(Scenario { name: Self::NAME, runs })
    }
}

impl ThrashValues {
    /// In the order of the study: reads first, SF by SF, ROSE by ROSE.
    fn recipes(&self, primary_key: bool) -> Vec<Recipe> {
        let reads = self.read_sf.iter().map(|&sf| (sf, false));
        let updates = self.update_sf.iter().map(|&sf| (sf, true));
        let pairs = reads.chain(updates);
        pairs
            .flat_map(|(sf, updates)| self.rose.iter().map(move |&rose| (sf, rose, updates)))
            .map(|(sf, rose, updates)| Recipe {
                workload: WorkloadSpec::thrash(self.rows, primary_key, sf, rose, updates),
                treatment: Treatment::default(),
            })
            .collect()
    }
}

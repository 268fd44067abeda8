//! `deteriorate`: a fixed number of transactions on freshly loaded tables, and what becomes of
//! the tables (structural-deterioration study, Section 3).
//!
//! An execution ends after `transactions`, or after CTL where it takes longer. Throughput and
//! response time are kept interval by interval. On the embedded engine every tree is looked at,
//! at the start, at the end and every `look` in between: how full its leaves are, in the order of
//! keys, and what was read and written for it. A batchset is a split policy with an amount of
//! memory.

use std::num::NonZeroU64;
use std::time::Duration;

use serde::Deserialize;

use super::{Common, Recipe, Scenario, ScenarioFactors};
use crate::experiment::complaint::Complaint;
use crate::experiment::treatment::{Aging, Split, Treatment};
use crate::experiment::values::{Bytes, Period};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct DeteriorateFactors {
    transactions: Option<NonZeroU64>,
    /// Time between two looks at the trees.
    look: Option<Period>,
    /// How full nodes are split; as they are when nothing is said.
    split: Vec<Split>,
    buffers: Vec<Bytes>,
}

impl ScenarioFactors for DeteriorateFactors {
    const NAME: &'static str = "deteriorate";

    fn scenario(self, common: &Common) -> Result<Scenario, Complaint> {
        let missing = || Complaint::missing("`factors.transactions` is missing");
        let transactions = self.transactions.ok_or_else(missing)?.get();
        let look = self.look.map_or(Duration::from_secs(10), |period| period.0);
        if look.is_zero() {
            return Err(Complaint::about("factors.look", " must be longer than nothing"));
        }
        let workload = common.workload()?;
        let admission = common.fixed()?;
        let splits = each_or(&self.split, None);
        let buffers = each_or(&self.buffers, common.buffer);
        let pairs = splits.iter().flat_map(|&split| buffers.iter().map(move |&one| (split, one)));
        let recipes = pairs.map(|(split, buffer)| Recipe {
            workload: workload.clone(),
            treatment: Treatment {
                admission,
                buffer,
                aging: Some(Aging { transactions, look, split }),
                ..Treatment::default()
            },
        });
        Ok(Scenario::of::<Self>(recipes.collect()))
    }
}

/// The values of a list, or the one there is without it.
fn each_or<T: Copy>(list: &[T], otherwise: Option<T>) -> Vec<Option<T>> {
    if list.is_empty() { vec![otherwise] } else { list.iter().copied().map(Some).collect() }
}

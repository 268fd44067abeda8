//! The values of `XMark`'s auction site under change.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use tidegate_workload::xmark::{AuctionMix, AuctionPersons, ChildAccess, Skew, Xmark};

use super::WorkloadError;

/// See [`tidegate_workload::xmark`].
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct XmarkSpec {
    /// The document's factor: about 110 MB at 1.
    pub factor: f64,
    /// The document's seed.
    #[serde(default = "seed")]
    pub seed: u64,
    #[serde(default)]
    pub persons: PersonsSpec,
    /// The weights of the eight transactions, in the order of the study's table.
    #[serde(default = "weights")]
    pub weights: [u16; 8],
    /// The weight of a transaction beside those that reads all items of a region.
    #[serde(default)]
    pub read_region: u16,
    /// How much the entries crowd in the middle, in per cent: 50 is low, 99 is high.
    #[serde(default = "skew")]
    pub skew: f64,
    #[serde(default)]
    pub access: AccessSpec,
    /// Whether what is needed at the end is locked at the beginning.
    #[serde(default)]
    pub preventive: bool,
    /// How many bidders an auction keeps, and mails a mailbox; all if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<NonZeroU32>,
}

/// How many persons the document has at factor 10.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PersonsSpec {
    /// 255,000, as the generator of `XMark` has it.
    #[default]
    Original,
    /// 250,000, as the study prints it.
    Study,
}

/// How transactions come to the children of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessSpec {
    #[default]
    Navigation,
    Stream,
}

fn seed() -> u64 {
    1
}

fn weights() -> [u16; 8] {
    AuctionMix::STUDY.weights()
}

fn skew() -> f64 {
    Skew::LOW.value() * 100.0
}

impl XmarkSpec {
    pub(super) fn build(&self) -> Result<Xmark, WorkloadError> {
        if !(self.factor.is_finite() && self.factor > 0.0) {
            return Err(WorkloadError::XmarkFactor(self.factor));
        }
        Ok(Xmark {
            factor: self.factor,
            persons: match self.persons {
                PersonsSpec::Original => AuctionPersons::Original,
                PersonsSpec::Study => AuctionPersons::Study,
            },
            seed: self.seed,
            mix: AuctionMix::new(self.weights)?,
            read_region: self.read_region,
            skew: Skew::new(self.skew / 100.0).map_err(|_| WorkloadError::Skew(self.skew))?,
            access: match self.access {
                AccessSpec::Navigation => ChildAccess::Navigation,
                AccessSpec::Stream => ChildAccess::Stream,
            },
            preventive: self.preventive,
            keep: self.keep,
        })
    }

    pub(super) fn describe(&self) -> String {
        let access = match self.access {
            AccessSpec::Navigation => "navigation",
            AccessSpec::Stream => "stream",
        };
        let preventive = if self.preventive { ", preventive" } else { "" };
        let keep = self.keep.map_or(String::new(), |keep| format!(", keeps {keep}"));
        format!("xmark {access}{preventive}{keep}, factor {}, skew {} %", self.factor, self.skew)
    }

    /// Nodes, of which a document of factor 1 has 3.3 million. They are loaded faster than rows.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rough number, of a factor above 0"
    )]
    pub(super) fn rows(&self) -> u64 {
        (self.factor * 1e6) as u64
    }

    pub(super) fn shares_tables_with(&self, other: &Self) -> bool {
        let document = |spec: &Self| (spec.factor.to_bits(), spec.seed, spec.persons);
        document(self) == document(other)
    }
}

//! The DVD store's values.

use serde::{Deserialize, Serialize};
use tidegate_workload::ds2::{Ds2, ImpossibleSize, Options, Scale};

/// See [`tidegate_workload::ds2`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Ds2Spec {
    /// `tiny`, `small` (10 MB) or `medium` (1 GB).
    #[serde(default)]
    pub size: Ds2Size,
    /// The mean time between two cycles of a client, in milliseconds.
    #[serde(default)]
    pub think_time_ms: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ds2Size {
    /// See [`Scale::TINY`].
    Tiny,
    /// See [`Scale::SMALL`].
    #[default]
    Small,
    /// See [`Scale::MEDIUM`].
    Medium,
}

impl Ds2Spec {
    fn scale(self) -> Scale {
        match self.size {
            Ds2Size::Tiny => Scale::TINY,
            Ds2Size::Small => Scale::SMALL,
            Ds2Size::Medium => Scale::MEDIUM,
        }
    }

    pub(super) fn build(self) -> Result<Ds2, ImpossibleSize> {
        Ds2::new(Options { think_time_ms: self.think_time_ms, ..Options::new(self.scale()) })
    }

    pub(super) fn describe(self) -> String {
        let size = match self.size {
            Ds2Size::Tiny => "tiny",
            Ds2Size::Small => "small",
            Ds2Size::Medium => "medium",
        };
        match self.think_time_ms {
            0 => format!("ds2 {size}"),
            think => format!("ds2 {size}, think time {think} ms"),
        }
    }

    /// Customers, products with their stock, and a year of orders of five lines in the mean, each
    /// line also in the customer's history.
    pub(super) fn rows(self) -> u64 {
        let Scale { customers, products, orders_per_month } = self.scale();
        let orders = u64::from(orders_per_month) * 12;
        u64::from(customers) + 2 * u64::from(products) + orders * 11
    }

    pub(super) fn shares_tables_with(self, other: Self) -> bool {
        self.size == other.size
    }
}

//! TPC-W's values.

use serde::{Deserialize, Serialize};
use tidegate_workload::tpcw::{Mix, Scale, Tpcw};

use super::WorkloadError;

/// See [`tidegate_workload::tpcw`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TpcwSpec {
    /// Books: 1,000, 10,000 or 100,000.
    #[serde(default = "items")]
    pub items: u32,
    /// Emulated browsers, which say how many customers there are: 2,880 each.
    #[serde(default = "super::one")]
    pub browsers: u32,
    /// `browsing`, `shopping` or `ordering`.
    #[serde(default = "shopping")]
    pub mix: String,
    #[serde(default)]
    pub takes_time: bool,
}

fn items() -> u32 {
    1_000
}

fn shopping() -> String {
    Mix::Shopping.name().to_owned()
}

impl TpcwSpec {
    pub(super) fn build(&self) -> Result<Tpcw, WorkloadError> {
        let scale = Scale::new(self.items, self.browsers)?;
        let mix = Mix::ALL.into_iter().find(|mix| mix.name() == self.mix);
        let mix = mix.ok_or_else(|| WorkloadError::Mix {
            workload: "tpcw",
            name: self.mix.clone(),
            known: Mix::ALL.map(Mix::name).join(", "),
        })?;
        let shop = Tpcw::new(scale, mix);
        Ok(if self.takes_time { shop.with_think_time() } else { shop })
    }

    pub(super) fn describe(&self) -> String {
        let TpcwSpec { items, browsers, mix, takes_time } = self;
        let time = if *takes_time { ", with think time" } else { "" };
        format!("tpcw {mix}, {items} items, customers of {browsers} browsers{time}")
    }

    /// Items with their authors; and for each customer one row, two addresses, 0.9 orders with a
    /// payment and three lines each.
    pub(super) fn rows(&self) -> u64 {
        let customers = 2_880 * u64::from(self.browsers);
        u64::from(self.items) * 5 / 4 + customers * 75 / 10
    }

    pub(super) fn shares_tables_with(&self, other: &Self) -> bool {
        (self.items, self.browsers) == (other.items, other.browsers)
    }
}

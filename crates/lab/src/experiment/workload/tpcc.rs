//! TPC-C's values.

use serde::{Deserialize, Serialize};
use tidegate_workload::tpcc::{Form, Mix, Scale, Tpcc};

use super::WorkloadError;

/// See [`tidegate_workload::tpcc`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TpccSpec {
    #[serde(default = "super::one")]
    pub warehouses: u32,
    /// Items, and so the stock of each warehouse; 100,000 by the specification.
    #[serde(default = "items")]
    pub items: u32,
    /// Customers of each district; 3,000 by the specification.
    #[serde(default = "customers")]
    pub customers: u32,
    /// `standard` (TPCC1 of the auto-tuning study), `payment-heavy` (TPCC2), `deterioration` or
    /// `writes` (the deterioration study's two).
    #[serde(default = "standard")]
    pub mix: String,
    /// Whether clients take keying and think times.
    #[serde(default)]
    pub takes_time: bool,
    /// Where the logic of the transactions is.
    #[serde(default)]
    pub form: Form,
}

fn items() -> u32 {
    100_000
}

fn customers() -> u32 {
    3_000
}

fn standard() -> String {
    Mix::STANDARD.name().to_owned()
}

impl TpccSpec {
    pub(super) fn build(&self) -> Result<Tpcc, WorkloadError> {
        let scale = Scale::new(self.warehouses)?.reduced(self.items, self.customers)?;
        let known = || Mix::ALL.map(Mix::name).join(", ");
        let mix = Mix::named(&self.mix).ok_or_else(|| WorkloadError::Mix {
            workload: "tpcc",
            name: self.mix.clone(),
            known: known(),
        })?;
        Ok(Tpcc { scale, mix, takes_time: self.takes_time, form: self.form })
    }

    pub(super) fn describe(&self) -> String {
        let TpccSpec { warehouses, items, customers, mix, takes_time, form } = self;
        let time = if *takes_time { ", with think time" } else { "" };
        let form = match form {
            Form::Statements => "",
            Form::Procedures => ", by stored procedures",
        };
        format!(
            "tpcc {mix}, {warehouses} warehouses of {items} items and {customers} customers a \
             district{time}{form}"
        )
    }

    /// Items and stock; and for each customer, of ten districts, a row of its own, one of history,
    /// an order of ten lines, and a new order for three in ten.
    pub(super) fn rows(&self) -> u64 {
        let customers = 10 * u64::from(self.customers);
        let of_warehouse = u64::from(self.items) + customers * 133 / 10;
        u64::from(self.items) + u64::from(self.warehouses) * of_warehouse
    }

    pub(super) fn shares_tables_with(&self, other: &Self) -> bool {
        let size = |spec: &Self| (spec.warehouses, spec.items, spec.customers);
        size(self) == size(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<TpccSpec, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn the_form_is_read_told_and_kept() {
        for (text, form, said) in [
            ("", Form::Statements, "a district"),
            ("form = 'statements'", Form::Statements, "a district"),
            ("form = 'procedures'", Form::Procedures, "a district, by stored procedures"),
        ] {
            let spec = read(text).unwrap();
            assert_eq!(spec.build().unwrap().form, form);
            assert!(spec.describe().ends_with(said), "{}", spec.describe());
            let kept = serde_json::to_string(&spec).unwrap();
            assert_eq!(serde_json::from_str::<TpccSpec>(&kept).unwrap(), spec);
            assert!(spec.shares_tables_with(&read("").unwrap()));
        }
        let error = read("form = 'triggers'").unwrap_err();
        assert!(error.contains("`statements` or `procedures`"), "{error}");
    }
}

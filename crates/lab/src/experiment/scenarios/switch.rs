//! `switch`: controllers on a workload that is exchanged for another when half of the time is
//! over (auto-tuning study, Section 7.2).
//!
//! Either the workload is exchanged, `then = { kind = ... }`, which may be the same with another
//! mix; or the memory for pages is, `then_buffer`, on subjects that can change it while they run.
//! With `both_ways` there is a batchset for the way back too.

use serde::Deserialize;

use super::{Common, Recipe, Scenario, ScenarioFactors};
use crate::experiment::complaint::Complaint;
use crate::experiment::treatment::{Admission, Exchange, Treatment};
use crate::experiment::values::{AlgorithmName, Bytes};
use crate::experiment::workload::WorkloadSpec;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct SwitchFactors {
    control: Vec<AlgorithmName>,
    /// The workload of the second half.
    then: Option<WorkloadSpec>,
    /// The memory for pages in the second half.
    then_buffer: Option<Bytes>,
    /// Whether there is the way back, too.
    both_ways: bool,
}

/// What holds in a half of the time.
type Half = (WorkloadSpec, Option<Bytes>);

impl ScenarioFactors for SwitchFactors {
    const NAME: &'static str = "switch";

    fn scenario(self, common: &Common) -> Result<Scenario, Complaint> {
        if self.control.is_empty() {
            let text = " names no controller; fixed:N keeps the limit";
            return Err(Complaint::about("factors.control", text));
        }
        let first = (common.workload()?, common.buffer);
        let then = match (self.then, self.then_buffer) {
            (Some(then), None) => {
                fit(&first.0, &then)?;
                (then, common.buffer)
            }
            (None, Some(_)) if common.buffer.is_none() => {
                let text = " needs `buffer`: what it is before";
                return Err(Complaint::about("factors.then_buffer", text));
            }
            (None, Some(buffer)) => (first.0.clone(), Some(buffer)),
            _ => {
                let text = " needs either `then` or `then_buffer`";
                return Err(Complaint::about("factors", text));
            }
        };
        let mut ways = vec![(first.clone(), then.clone())];
        if self.both_ways {
            ways.push((then, first));
        }
        let controls: Vec<_> = self.control.iter().map(|name| name.0).collect();
        let admissions = common.controlled(&controls)?;
        let recipes = ways
            .iter()
            .flat_map(|(from, to)| admissions.iter().map(|&admission| recipe(admission, from, to)))
            .collect();
        Ok(Scenario::of::<Self>(recipes))
    }
}

/// Whether two workloads can be in one database: on the same tables, or on tables of other names.
fn fit(first: &WorkloadSpec, then: &WorkloadSpec) -> Result<(), Complaint> {
    let tables = |spec: &WorkloadSpec| spec.build().map(|workload| workload.tables());
    let (then_tables, first_tables) = (tables(then)?, tables(first)?);
    let is_taken = |name: &str| first_tables.iter().any(|table| table.name == name);
    let taken = then_tables.iter().find(|table| is_taken(table.name));
    match taken {
        Some(table) if !first.shares_tables_with(then) => {
            let text = format!(
                ": both workloads have a table `{}`, and not the same; take the same sizes, or \
                 another workload",
                table.name
            );
            Err(Complaint::about("factors.then", text))
        }
        _ => Ok(()),
    }
}

fn recipe(admission: Admission, from: &Half, to: &Half) -> Recipe {
    let exchange = match to.1 {
        Some(buffer) if to.1 != from.1 => Exchange::Buffer(buffer),
        _ => Exchange::Workload(to.0.clone()),
    };
    let treatment =
        Treatment { admission, buffer: from.1, exchange: Some(exchange), ..Treatment::default() };
    Recipe { workload: from.0.clone(), treatment }
}

//! The phases of transactions, which only the report of a measurement has.

use serde::Deserialize;

use super::{Cell, Kind};
use crate::store::StoreError;
use crate::store::read::parsed;

/// The columns that are taken from a report.
pub(super) const COLUMNS: [(&str, Kind); 9] = [
    ("workload", Kind::Text),
    ("kind", Kind::Text),
    ("phase", Kind::Text),
    ("transactions", Kind::Int),
    ("mean_ms", Kind::Real),
    ("p50_ms", Kind::Real),
    ("p95_ms", Kind::Real),
    ("p99_ms", Kind::Real),
    ("max_ms", Kind::Real),
];

/// What is taken from a report.
#[derive(Deserialize)]
struct Report {
    #[serde(default)]
    kinds: Vec<OfKind>,
}

#[derive(Deserialize)]
struct OfKind {
    workload: String,
    kind: String,
    #[serde(default)]
    phases: Vec<Phase>,
}

#[derive(Deserialize)]
struct Phase {
    #[serde(rename = "phase")]
    name: String,
    /// Older reports do not say it.
    transactions: Option<i64>,
    latency: Latency,
}

#[derive(Deserialize)]
#[allow(clippy::struct_field_names, reason = "they are the report's")]
struct Latency {
    mean_ms: f64,
    p50_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

/// A row for each phase in the report in the last cell, in its order.
pub(super) fn of_report(mut row: Vec<Cell>) -> Result<Vec<Vec<Cell>>, StoreError> {
    let Some(Cell::Text(text)) = row.pop() else { return Ok(Vec::new()) };
    let report: Report = parsed(&text, "a report")?;
    let mut rows = Vec::new();
    for kind in report.kinds {
        for phase in kind.phases.iter().filter(|phase| phase.was_timed()) {
            let names = [&kind.workload, &kind.kind, &phase.name];
            let names = names.map(|name| Cell::Text(name.clone()));
            rows.push(row.iter().cloned().chain(names).chain(phase.cells()).collect());
        }
    }
    Ok(rows)
}

impl Phase {
    /// Older reports have phases of no time on the embedded engine, where nobody timed them.
    fn was_timed(&self) -> bool {
        self.transactions.is_some() || self.latency.max_ms > 0.0
    }

    fn cells(&self) -> [Cell; 6] {
        let Latency { mean_ms, p50_ms, p95_ms, p99_ms, max_ms } = self.latency;
        let [mean, p50, p95, p99, max] = [mean_ms, p50_ms, p95_ms, p99_ms, max_ms].map(Cell::Real);
        [self.transactions.map_or(Cell::Null, Cell::Int), mean, p50, p95, p99, max]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATENCY: &str = r#"{"mean_ms":1.5,"p50_ms":1.25,"p95_ms":2.5,"p99_ms":3.5,"max_ms":4.5}"#;
    const NOTHING: &str = r#"{"mean_ms":0.0,"p50_ms":0.0,"p95_ms":0.0,"p99_ms":0.0,"max_ms":0.0}"#;

    fn rows(report: &str) -> Vec<Vec<Cell>> {
        of_report(vec![Cell::Int(7), Cell::Text(report.to_owned())]).unwrap()
    }

    #[test]
    fn a_row_is_made_of_each_phase_that_was_timed() {
        let kinds = format!(
            r#"{{"workload":"tpcc","kind":"payment","phases":[]}},
               {{"workload":"tpcc","kind":"new-order","phases":[
                 {{"phase":"I","transactions":9,"latency":{LATENCY}}},
                 {{"phase":"order","latency":{LATENCY}}},
                 {{"phase":"II","latency":{NOTHING}}}]}}"#
        );
        let rows = rows(&format!(r#"{{"tps":1.0,"kinds":[{kinds}]}}"#));
        let row = |phase: &str, transactions| {
            let names = ["tpcc", "new-order", phase].map(|name| Cell::Text(name.to_owned()));
            let latency = [1.5, 1.25, 2.5, 3.5, 4.5].map(Cell::Real);
            let cells = [Cell::Int(7)].into_iter().chain(names).chain([transactions]);
            cells.chain(latency).collect::<Vec<_>>()
        };
        assert_eq!(rows, [row("I", Cell::Int(9)), row("order", Cell::Null)]);
    }

    #[test]
    fn what_was_not_measured_has_no_phases() {
        assert_eq!(rows("{}"), Vec::<Vec<Cell>>::new());
        assert_eq!(of_report(vec![Cell::Int(7), Cell::Null]).unwrap(), Vec::<Vec<Cell>>::new());
        let damaged = of_report(vec![Cell::Text("no JSON".to_owned())]).unwrap_err().to_string();
        assert!(damaged.contains("a report"), "{damaged}");
    }
}

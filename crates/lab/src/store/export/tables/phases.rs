//! The phases of transactions, which only the report of a measurement has.

use serde::Deserialize;

use super::{ColumnKind, ExportCell};
use crate::store::StoreError;
use crate::store::read::parsed;

/// The columns that are taken from a report.
pub(super) const COLUMNS: [(&str, ColumnKind); 9] = [
    ("workload", ColumnKind::Text),
    ("kind", ColumnKind::Text),
    ("phase", ColumnKind::Text),
    ("transactions", ColumnKind::Int),
    ("mean_ms", ColumnKind::Real),
    ("p50_ms", ColumnKind::Real),
    ("p95_ms", ColumnKind::Real),
    ("p99_ms", ColumnKind::Real),
    ("max_ms", ColumnKind::Real),
];

/// What is taken from a report.
#[derive(Deserialize)]
struct StoredReport {
    #[serde(default)]
    kinds: Vec<StoredKind>,
}

#[derive(Deserialize)]
struct StoredKind {
    workload: String,
    kind: String,
    #[serde(default)]
    phases: Vec<StoredPhase>,
}

#[derive(Deserialize)]
struct StoredPhase {
    #[serde(rename = "phase")]
    name: String,
    /// Older reports do not say it.
    transactions: Option<i64>,
    latency: StoredLatency,
}

#[derive(Deserialize)]
#[allow(clippy::struct_field_names, reason = "they are the report's")]
struct StoredLatency {
    mean_ms: f64,
    p50_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

/// A row for each phase in the report in the last cell, in its order.
pub(super) fn of_report(mut row: Vec<ExportCell>) -> Result<Vec<Vec<ExportCell>>, StoreError> {
    let Some(ExportCell::Text(text)) = row.pop() else { return Ok(Vec::new()) };
    let report: StoredReport = parsed(&text, "a report")?;
    let mut rows = Vec::new();
    for kind in report.kinds {
        for phase in kind.phases.iter().filter(|phase| phase.was_timed()) {
            let names = [&kind.workload, &kind.kind, &phase.name];
            let names = names.map(|name| ExportCell::Text(name.clone()));
            rows.push(row.iter().cloned().chain(names).chain(phase.cells()).collect());
        }
    }
    Ok(rows)
}

impl StoredPhase {
    /// Older reports have phases of no time on the embedded engine, where nobody timed them.
    fn was_timed(&self) -> bool {
        self.transactions.is_some() || self.latency.max_ms > 0.0
    }

    fn cells(&self) -> [ExportCell; 6] {
        let StoredLatency { mean_ms, p50_ms, p95_ms, p99_ms, max_ms } = self.latency;
        let [mean, p50, p95, p99, max] =
            [mean_ms, p50_ms, p95_ms, p99_ms, max_ms].map(ExportCell::Real);
        [self.transactions.map_or(ExportCell::Null, ExportCell::Int), mean, p50, p95, p99, max]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATENCY: &str = r#"{"mean_ms":1.5,"p50_ms":1.25,"p95_ms":2.5,"p99_ms":3.5,"max_ms":4.5}"#;
    const NOTHING: &str = r#"{"mean_ms":0.0,"p50_ms":0.0,"p95_ms":0.0,"p99_ms":0.0,"max_ms":0.0}"#;

    fn rows(report: &str) -> Vec<Vec<ExportCell>> {
        of_report(vec![ExportCell::Int(7), ExportCell::Text(report.to_owned())]).unwrap()
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
            let names = ["tpcc", "new-order", phase].map(|name| ExportCell::Text(name.to_owned()));
            let latency = [1.5, 1.25, 2.5, 3.5, 4.5].map(ExportCell::Real);
            let cells = [ExportCell::Int(7)].into_iter().chain(names).chain([transactions]);
            cells.chain(latency).collect::<Vec<_>>()
        };
        assert_eq!(rows, [row("I", ExportCell::Int(9)), row("order", ExportCell::Null)]);
    }

    #[test]
    fn what_was_not_measured_has_no_phases() {
        assert_eq!(rows("{}"), Vec::<Vec<ExportCell>>::new());
        assert_eq!(
            of_report(vec![ExportCell::Int(7), ExportCell::Null]).unwrap(),
            Vec::<Vec<ExportCell>>::new()
        );
        let damaged =
            of_report(vec![ExportCell::Text("no JSON".to_owned())]).unwrap_err().to_string();
        assert!(damaged.contains("a report"), "{damaged}");
    }
}

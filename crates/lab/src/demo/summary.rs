//! The demonstration's result: as JSON for programs, as a table for people.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde::Serialize;
use tidegate_workload::pgbench::Sums;

use super::DemoOptions;
use crate::load::LoadReport;
use crate::rig::{DatabaseDescription, Interval, Machine, RigError};

/// Everything the demonstration saw, and on what.
#[derive(Clone, Debug, Serialize)]
pub struct DemoSummary {
    pub tidegate_version: &'static str,
    pub command: String,
    pub seed: u64,
    pub machine: Machine,
    /// The database that it ran on.
    #[serde(flatten)]
    pub database: DatabaseDescription,
    pub scale: u32,
    /// Whether the sums of all balances were equal at the end: no transaction applied in part.
    pub consistent: bool,
    /// Transactions in the database's history at the end.
    pub history_rows: i64,
    /// One step for each number of clients.
    pub steps: Vec<DemoStep>,
}

/// One number of clients, directly and through Tidegate.
#[derive(Clone, Debug, Serialize)]
pub struct DemoStep {
    pub clients: usize,
    /// Transactions per second through Tidegate over those of direct clients.
    pub ratio: f64,
    /// The limit that Tidegate had arrived at.
    pub limit_at_end: Option<u32>,
    /// The proxy's CPU time per transaction in microseconds, logins included; `None` where there is
    /// no proxy.
    pub proxy_cpu_us: Option<f64>,
    /// When the limited run began, in seconds since Tidegate's start.
    pub began_s: f64,
    pub direct: LoadReport,
    pub proxied: LoadReport,
    /// Tidegate's control intervals in this step.
    pub intervals: Vec<Interval>,
}

impl DemoSummary {
    pub(super) fn new(
        options: &DemoOptions,
        database: DatabaseDescription,
        sums: Sums,
        steps: Vec<DemoStep>,
    ) -> Self {
        DemoSummary {
            tidegate_version: env!("CARGO_PKG_VERSION"),
            command: options.command.clone(),
            seed: options.seed,
            machine: Machine::this(),
            database,
            scale: options.scale.get(),
            consistent: sums.consistent(),
            history_rows: sums.history_rows,
            steps,
        }
    }

    pub(super) fn write(&self, out: &Path) -> Result<(), RigError> {
        let path = out.join("summary.json");
        let text = serde_json::to_string_pretty(self).map_err(std::io::Error::from);
        text.and_then(|text| fs::write(&path, text + "\n")).map_err(RigError::file(&path))
    }

    /// The result as a table of plain text with a word on how it was measured.
    pub fn table(&self) -> String {
        let mut table = String::from(
            "clients   direct tps   Tidegate tps   ratio   limit   p99 direct   p99 Tidegate\n",
        );
        for step in &self.steps {
            let limit = step.limit_at_end.map_or_else(|| "?".to_owned(), |limit| limit.to_string());
            // Writing to a String cannot fail.
            let _ = writeln!(
                table,
                "{:>7}   {:>10.0}   {:>12.0}   {:>5.2}   {limit:>5}   {:>8.0} ms   {:>9.0} ms",
                step.clients,
                step.direct.tps,
                step.proxied.tps,
                step.ratio,
                step.direct.latency.p99_ms,
                step.proxied.latency.p99_ms,
            );
        }
        table + &self.notes()
    }

    fn notes(&self) -> String {
        let mut notes = String::new();
        if let Some(step) = self.steps.first() {
            let _ = write!(
                notes,
                "\nOn {}: TPC-B-like, scale {}; direct: {:.0} s after {:.0} s not counted; through \
                 Tidegate: {:.0} s after {:.0} s not counted,\nin which it finds the new limit. \
                 Limit: where it stood at the end of the step.\n",
                self.database.dbms.title,
                self.scale,
                step.direct.seconds,
                step.direct.warmup_s,
                step.proxied.seconds,
                step.proxied.warmup_s,
            );
        }
        let errors: u64 = self.steps.iter().map(DemoStep::errors).sum();
        let losses: usize = self.steps.iter().map(DemoStep::losses).sum();
        let verdict =
            if self.consistent { "all balances agree" } else { "THE BALANCES DO NOT AGREE" };
        let retries: u64 = self.steps.iter().map(DemoStep::retries).sum();
        let _ = writeln!(
            notes,
            "{} transactions in the database's history; {verdict}; {retries} run again after a \
             conflict, {errors} errors, {losses} lost connections.",
            self.history_rows,
        );
        notes
    }
}

impl DemoStep {
    fn errors(&self) -> u64 {
        let errors = |report: &LoadReport| report.errors.values().sum::<u64>();
        errors(&self.direct) + errors(&self.proxied)
    }

    fn retries(&self) -> u64 {
        self.direct.retries + self.proxied.retries
    }

    fn losses(&self) -> usize {
        self.direct.connection_losses + self.proxied.connection_losses
    }
}

//! The demonstration's result: as JSON for programs, as a table for people.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde::Serialize;
use tidegate_subject::postgres::Postgres;
use tidegate_workload::pgbench::{Scale, Sums};

use super::DemoOptions;
use crate::load::LoadReport;
use crate::rig::{Interval, Machine, RigError, SETTINGS};

/// Everything the demonstration saw, and on what.
#[derive(Clone, Debug, Serialize)]
pub struct DemoSummary {
    /// Tidegate's version.
    pub tidegate_version: &'static str,
    /// The command line.
    pub command: String,
    /// Where the clients' draws began.
    pub seed: u64,
    /// What it ran on.
    pub machine: Machine,
    /// The server's version.
    pub postgres_version: String,
    /// The server's settings that are not its defaults, as in force.
    pub postgres_settings: Vec<(String, String)>,
    /// The tables' scale.
    pub scale: u32,
    /// Whether the sums of all balances were equal at the end: no transaction applied in part.
    pub consistent: bool,
    /// Transactions in the server's history at the end.
    pub history_rows: i64,
    /// One step for each number of clients.
    pub steps: Vec<Step>,
}

/// One number of clients, directly and through the proxy.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// How many clients.
    pub clients: usize,
    /// Transactions per second through the proxy over those of direct clients.
    pub ratio: f64,
    /// The limit the proxy had arrived at.
    pub limit_at_end: Option<u32>,
    /// The proxy's CPU time per transaction in microseconds, logins included.
    pub proxy_cpu_us: f64,
    /// When the proxied run began, in seconds since the proxy's start.
    pub began_s: f64,
    /// What direct clients saw.
    pub direct: LoadReport,
    /// What clients of the proxy saw.
    pub proxied: LoadReport,
    /// The proxy's control intervals in this step.
    pub intervals: Vec<Interval>,
}

impl DemoSummary {
    pub(super) fn new(
        options: &DemoOptions,
        server: &Postgres,
        scale: Scale,
        sums: Option<Sums>,
        steps: Vec<Step>,
    ) -> Result<Self, RigError> {
        Ok(DemoSummary {
            tidegate_version: env!("CARGO_PKG_VERSION"),
            command: options.command.clone(),
            seed: options.seed,
            machine: Machine::this(),
            postgres_version: server.version()?,
            postgres_settings: server.settings(&SETTINGS.map(|(name, _)| name))?,
            scale: scale.get(),
            consistent: sums.is_some_and(|sums| sums.consistent()),
            history_rows: sums.map_or(0, |sums| sums.history_rows),
            steps,
        })
    }

    pub(super) fn write(&self, out: &Path) -> Result<(), RigError> {
        let path = out.join("summary.json");
        let text = serde_json::to_string_pretty(self).map_err(std::io::Error::from);
        text.and_then(|text| fs::write(&path, text + "\n")).map_err(RigError::file(&path))
    }

    /// The result as a table of plain text with a word on how it was measured.
    #[must_use]
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
                "\nTPC-B-like, scale {}; direct: {:.0} s after {:.0} s not counted; through \
                 Tidegate: {:.0} s after {:.0} s not counted,\nin which it finds the new limit. \
                 Limit: where it stood at the end of the step.\n",
                self.scale,
                step.direct.seconds,
                step.direct.warmup_s,
                step.proxied.seconds,
                step.proxied.warmup_s,
            );
        }
        let errors: u64 = self.steps.iter().map(Step::errors).sum();
        let losses: usize = self.steps.iter().map(Step::losses).sum();
        let verdict =
            if self.consistent { "all balances agree" } else { "THE BALANCES DO NOT AGREE" };
        let _ = writeln!(
            notes,
            "{} transactions in the server's history; {verdict}; {errors} errors, {losses} lost \
             connections.",
            self.history_rows,
        );
        notes
    }
}

impl Step {
    fn errors(&self) -> u64 {
        let errors = |report: &LoadReport| report.errors.values().sum::<u64>();
        errors(&self.direct) + errors(&self.proxied)
    }

    fn losses(&self) -> usize {
        self.direct.connection_losses + self.proxied.connection_losses
    }
}

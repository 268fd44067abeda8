//! The benchmark's result: everything for programs, tables and a picture for people.

use std::path::Path;
use std::{fs, io};

use serde::Serialize;
use tidegate_control::Mpl;
use tidegate_subject::database::Gate;

use super::sweep::Sweep;
use super::{BenchCell, BenchOptions, BenchWork, LOG, ScenarioScore, figure, score, table};
use crate::rig::{DatabaseDescription, Machine, RigError};

/// Everything the benchmark saw, and on what.
#[derive(Clone, Debug, Serialize)]
pub struct BenchReport {
    pub tidegate_version: &'static str,
    pub command: String,
    /// Where the clients' draws, the controllers' and the order of the runs began.
    pub seed: u64,
    pub machine: Machine,
    /// The database that it ran on.
    #[serde(flatten)]
    pub database: DatabaseDescription,
    pub clients: usize,
    /// The limit the controllers started with.
    pub start_limit: Mpl,
    /// The workloads and what they are.
    pub works: Vec<(BenchWork, String)>,
    /// Seconds at a fixed limit that did not count.
    pub sweep_warmup_s: f64,
    /// Seconds at a fixed limit that counted.
    pub sweep_s: f64,
    /// Seconds of a controller in each phase of a scenario.
    pub run_s: f64,
    pub sweeps: Vec<Sweep>,
    /// How well the controllers did, in the order of the scenarios and controllers asked for.
    pub scenarios: Vec<ScenarioScore>,
    /// Scenarios at whose end pgbench's balances did not agree: a transaction was applied in part.
    pub inconsistent: Vec<&'static str>,
    /// What the proxies warned of, in lines of their log.
    pub proxy_warnings: usize,
    /// Every run, in the order they were made in.
    pub cells: Vec<BenchCell>,
}

impl BenchReport {
    pub(super) fn new(
        options: &BenchOptions,
        database: DatabaseDescription,
        cells: Vec<BenchCell>,
        inconsistent: Vec<&'static str>,
    ) -> Result<Self, RigError> {
        let warnings = if options.database.dbms.gate == Gate::Proxy {
            let log = options.out.join(LOG);
            fs::read_to_string(&log).map_err(RigError::file(&log))?
        } else {
            String::new()
        };
        let names: Vec<String> = options.controllers.iter().map(ToString::to_string).collect();
        let asked_for = |name: &str| names.iter().position(|known| known == name);
        let scenarios = options.scenarios.iter().map(|&scenario| {
            let mut score = score::score(scenario, &cells);
            score.controllers.sort_by_key(|controller| asked_for(&controller.controller));
            score
        });
        let mut works: Vec<BenchWork> =
            options.scenarios.iter().flat_map(|scenario| scenario.phases()).copied().collect();
        works.sort();
        works.dedup();
        Ok(BenchReport {
            tidegate_version: env!("CARGO_PKG_VERSION"),
            command: options.command.clone(),
            seed: options.seed,
            machine: Machine::this(),
            database,
            clients: options.clients,
            start_limit: options.start,
            works: works.iter().map(|&work| (work, work.about(&options.thrash))).collect(),
            sweep_warmup_s: options.sweep.warmup.as_secs_f64(),
            sweep_s: options.sweep.measured.as_secs_f64(),
            run_s: options.run.as_secs_f64(),
            sweeps: works.iter().filter_map(|&work| Sweep::find(work, &cells)).collect(),
            scenarios: scenarios.collect(),
            inconsistent,
            proxy_warnings: warnings.lines().count(),
            cells,
        })
    }

    /// The result as tables of plain text.
    pub fn tables(&self) -> String {
        table::text(self)
    }

    /// What did not go as it should, a line for each run; nothing when all did.
    pub fn troubles(&self) -> Vec<String> {
        let of_cell = |cell: &BenchCell| {
            let troubles = cell.troubles();
            let what = troubles.join("; ");
            (!troubles.is_empty()).then(|| format!("{}: {what}", cell.title()))
        };
        let mut troubles: Vec<String> = self.cells.iter().filter_map(of_cell).collect();
        for scenario in &self.inconsistent {
            troubles.push(format!("{scenario}: THE BALANCES DO NOT AGREE"));
        }
        if self.proxy_warnings > 0 {
            troubles.push(format!("{} lines of warnings in {LOG}", self.proxy_warnings));
        }
        troubles
    }

    pub(super) fn write(&self, out: &Path) -> Result<(), RigError> {
        let write = |name: &str, text: io::Result<String>| {
            let path = out.join(name);
            text.and_then(|text| fs::write(&path, text)).map_err(RigError::file(&path))
        };
        let json = serde_json::to_string_pretty(self).map_err(io::Error::from);
        write("bench-control.json", json.map(|json| json + "\n"))?;
        write("bench-control.md", Ok(table::markdown(self)))?;
        figure::draw(self, &out.join("bench-control.svg"))
    }
}

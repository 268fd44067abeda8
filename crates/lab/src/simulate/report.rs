//! The simulation's result: everything for programs, tables for people.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use serde::Serialize;
use tidegate_control::{Algorithm, Mpl};

use super::plants::Plant;
use super::runner::PlantRun;
use super::{
    BAND, Reached, Score, ScoredPhase, SimulateError, SimulateOptions, Spread, figure, table,
};

/// Everything the simulation saw. It is the same on every machine.
#[derive(Clone, Debug, Serialize)]
pub struct SimulationReport {
    pub tidegate_version: &'static str,
    pub command: String,
    /// The seed of the first run of each controller on each plant; the others follow it.
    pub seed: u64,
    /// How many runs there are of each controller on each plant.
    pub seeds: u32,
    /// The limits that the runs began with, in the order of their seeds.
    pub starts: Vec<Mpl>,
    /// The share of the best throughput that limits inside the band reach.
    pub band: f64,
    /// The controllers over all plants, in the order asked for.
    pub controllers: Vec<ControllerSummary>,
    /// The plants, in the order asked for.
    pub plants: Vec<PlantSummary>,
    pub cells: Vec<MatrixCell>,
}

/// A controller over the plants it ran on.
#[derive(Clone, Debug, Serialize)]
pub struct ControllerSummary {
    pub controller: String,
    /// How many plants it ran on.
    pub plants: usize,
    /// The mean and the worst plant; of each plant, the mean over the seeds.
    pub over_plants: Spread,
    /// The default controller over the same plants, where these are not all.
    pub default_on_same_plants: Option<Spread>,
}

/// A plant and the truth about it.
#[derive(Clone, Debug, Serialize)]
pub struct PlantSummary {
    pub plant: String,
    /// What it is like, and where its numbers are from.
    pub about: String,
    pub phases: Vec<PhaseSummary>,
}

/// A phase and the truth about it.
#[derive(Clone, Debug, Serialize)]
pub struct PhaseSummary {
    /// How many control intervals it lasts.
    pub intervals: u32,
    pub best_limit: Mpl,
    /// What the best fixed limit reaches, transactions per second.
    pub best_tps: f64,
    /// The lowest and the highest limit inside the band.
    pub band: (Mpl, Mpl),
    /// Whether the time until the band is reached is measured.
    pub is_entry: bool,
}

impl PhaseSummary {
    fn of(phase: &ScoredPhase) -> PhaseSummary {
        let ((best_limit, best_tps), band) = (phase.best(), phase.band());
        PhaseSummary {
            intervals: phase.intervals(),
            best_limit,
            best_tps,
            band: (*band.start(), *band.end()),
            is_entry: phase.is_entry(),
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct MatrixCell {
    pub controller: String,
    pub plant: String,
    /// What came out; `None` when the plant lacks what the controller goes by.
    pub result: Option<CellResult>,
}

/// What a controller reached on a plant.
#[derive(Clone, Debug, Serialize)]
pub struct CellResult {
    /// The mean and the worst over the seeds.
    #[serde(flatten)]
    pub over_seeds: Spread,
    /// How soon the band of each entry was reached.
    pub entries: Vec<Entry>,
}

/// How soon the band of a phase was reached.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// The phase, counted from 0.
    pub phase: usize,
    /// Intervals outside the band before, for each seed.
    pub reached: Vec<Reached>,
}

impl CellResult {
    fn of(plant: &Plant<'_>, scores: &[&Score]) -> CellResult {
        let phases = plant.phases.iter().enumerate().filter(|(_, phase)| phase.is_entry());
        let entry = |(entry, (phase, _)): (usize, (usize, &ScoredPhase))| Entry {
            phase,
            reached: scores.iter().filter_map(|score| score.entries.get(entry).copied()).collect(),
        };
        CellResult {
            over_seeds: Spread::of(&scores.iter().map(|score| &score.measures).collect::<Vec<_>>()),
            entries: phases.enumerate().map(entry).collect(),
        }
    }
}

impl SimulationReport {
    pub(super) fn new(
        options: &SimulateOptions,
        plants: &[Plant<'_>],
        runs: &[PlantRun<'_>],
        scores: &[Score],
    ) -> SimulationReport {
        let mut by_cell: BTreeMap<(Algorithm, &str), Vec<&Score>> = BTreeMap::new();
        for (run, score) in runs.iter().zip(scores) {
            by_cell.entry((run.algorithm, run.plant.name())).or_default().push(score);
        }
        let mut cells = Vec::new();
        for &controller in &options.controllers.0 {
            for plant in plants {
                let scores = by_cell.get(&(controller, plant.name()));
                cells.push(MatrixCell {
                    controller: controller.to_string(),
                    plant: plant.name().to_owned(),
                    result: scores.map(|scores| CellResult::of(plant, scores)),
                });
            }
        }
        let controllers = options.controllers.0.iter();
        SimulationReport {
            tidegate_version: env!("CARGO_PKG_VERSION"),
            command: options.command.clone(),
            seed: options.seed,
            seeds: options.seeds.get(),
            starts: options.run_seeds().map(|seed| options.start_of(seed)).collect(),
            band: BAND,
            controllers: controllers.map(|name| summary(&name.to_string(), &cells)).collect(),
            plants: plants.iter().map(plant_summary).collect(),
            cells,
        }
    }

    /// What a controller reached on a plant, if it ran there.
    pub fn cell(&self, controller: &str, plant: &str) -> Option<&CellResult> {
        let is_it = |cell: &&MatrixCell| cell.controller == controller && cell.plant == plant;
        self.cells.iter().find(is_it)?.result.as_ref()
    }

    /// The result as a table of plain text: controllers, or the plants of a single controller.
    pub fn table(&self) -> String {
        table::text(self)
    }

    pub(super) fn write(&self, out: &Path) -> Result<(), SimulateError> {
        let write = |name: &str, text: io::Result<String>| {
            let path = out.join(name);
            text.and_then(|text| fs::write(&path, text)).map_err(SimulateError::file(&path))
        };
        let json = serde_json::to_string_pretty(self).map_err(io::Error::from);
        write("simulate.json", json.map(|json| json + "\n"))?;
        write("simulate.md", Ok(table::markdown(self)))?;
        write("simulate.svg", Ok(figure::heat_map(self)))
    }
}

fn plant_summary(plant: &Plant<'_>) -> PlantSummary {
    PlantSummary {
        plant: plant.name().to_owned(),
        about: plant.scenario.about().to_owned(),
        phases: plant.phases.iter().map(PhaseSummary::of).collect(),
    }
}

/// A controller over the plants it ran on.
fn summary(controller: &str, cells: &[MatrixCell]) -> ControllerSummary {
    let own = cells.iter().filter(|cell| cell.controller == controller);
    let ran: Vec<&str> =
        own.clone().filter(|cell| cell.result.is_some()).map(|cell| &*cell.plant).collect();
    let lacks_some = own.count() > ran.len() && !ran.is_empty();
    let default = Algorithm::default().to_string();
    let default_ran = cells.iter().any(|cell| cell.controller == default);
    let wanted = lacks_some && default_ran;
    ControllerSummary {
        controller: controller.to_owned(),
        plants: ran.len(),
        over_plants: over(controller, &ran, cells),
        default_on_same_plants: wanted.then(|| over(&default, &ran, cells)),
    }
}

/// A controller's mean and worst over `plants`.
fn over(controller: &str, plants: &[&str], cells: &[MatrixCell]) -> Spread {
    let is_one =
        |cell: &&MatrixCell| cell.controller == controller && plants.contains(&&*cell.plant);
    let results = cells.iter().filter(is_one).filter_map(|cell| cell.result.as_ref());
    Spread::of(&results.map(|result| &result.over_seeds.mean).collect::<Vec<_>>())
}

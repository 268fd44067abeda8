//! The plants of a simulation: read from files, with the truth about each phase.

use std::collections::BTreeSet;
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use tidegate_control::Mpl;
use tidegate_control::plant::{Scenario, ScenarioFile, random_scenario};

use super::SimulateError;
use super::parallel::in_parallel;
use super::score::{self, ScoredPhase};
use crate::included;

/// A plant that runs can be made on.
#[derive(Clone, Debug)]
pub(super) struct Plant<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) phases: Vec<ScoredPhase>,
    /// Whether it tells what its lock manager does.
    pub(super) tells_locks: bool,
}

impl Plant<'_> {
    pub(super) fn name(&self) -> &str {
        self.scenario.name()
    }
}

/// The scenarios in `paths`: files, and all `.toml` files of directories, by name. What is not on
/// the disk is looked for [within the program](included).
pub fn read(paths: &[PathBuf]) -> Result<Vec<Scenario>, SimulateError> {
    let mut scenarios = Vec::new();
    let mut names = BTreeSet::new();
    for path in paths {
        let files = files(path)?;
        if files.is_empty() {
            return Err(SimulateError::NoPlants(path.clone()));
        }
        for path in files {
            let scenario = scenario(&path)?;
            if !names.insert(scenario.name().to_owned()) {
                return Err(SimulateError::SameName { path, name: scenario.name().to_owned() });
            }
            scenarios.push(scenario);
        }
    }
    Ok(scenarios)
}

/// So many plants drawn at random from `seed` on, each from a seed of its own.
///
/// # Errors
/// None: what is drawn can be run.
pub fn random(seed: u64, count: u32) -> Result<Vec<Scenario>, SimulateError> {
    let seeds = (0..count).map(|offset| seed.wrapping_add(offset.into()));
    seeds
        .map(|seed| random_scenario(seed).map_err(SimulateError::plant(&format!("random-{seed}"))))
        .collect()
}

/// A file is itself; a directory stands for its `.toml` files.
fn files(path: &Path) -> Result<Vec<PathBuf>, SimulateError> {
    if !path.is_dir() {
        let within = if path.exists() { Vec::new() } else { included::files_in(path) };
        return Ok(if within.is_empty() { vec![path.to_owned()] } else { within });
    }
    let entries = fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let entries = entries.map_err(SimulateError::file(path))?;
    let is_toml = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "toml");
    let mut files: Vec<PathBuf> =
        entries.into_iter().map(|entry| entry.path()).filter(is_toml).collect();
    files.sort();
    Ok(files)
}

fn scenario(path: &Path) -> Result<Scenario, SimulateError> {
    let text = included::read(path).map_err(SimulateError::file(path))?;
    let file: ScenarioFile = toml::from_str(&text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or("");
        SimulateError::Toml {
            path: path.to_owned(),
            line: before.matches('\n').count() + 1,
            message: error.message().replace('\n', "; "),
        }
    })?;
    Scenario::try_from(file)
        .map_err(|source| SimulateError::Scenario { path: path.to_owned(), source })
}

/// The plants of `scenarios`, the truth about their phases found on so many `threads`; `observe`
/// hears after each phase how many are done, and of how many.
pub(super) fn prepare<'a>(
    scenarios: &'a [Scenario],
    threads: NonZero<usize>,
    cancel: &AtomicBool,
    observe: impl FnMut(usize, usize),
) -> Result<Vec<Plant<'a>>, SimulateError> {
    let phases: Vec<(&Scenario, usize)> = scenarios
        .iter()
        .flat_map(|scenario| (0..scenario.intervals().len()).map(move |index| (scenario, index)))
        .collect();
    let truth = |job: usize| {
        let (scenario, index) = phases[job];
        scenario.truth(index).map_err(SimulateError::plant(scenario.name()))
    };
    let truths = in_parallel(threads, phases.len(), cancel, truth, observe);
    let truths: Result<Vec<_>, _> = truths.ok_or(SimulateError::Cancelled)?.into_iter().collect();
    let mut truths = truths?.into_iter().flatten();
    let mut plants = Vec::with_capacity(scenarios.len());
    for scenario in scenarios {
        let phases = score::phases(scenario.intervals().into_iter().zip(truths.by_ref()));
        let tells_locks = tells_locks(scenario)?;
        plants.push(Plant { scenario, phases, tells_locks });
    }
    Ok(plants)
}

fn tells_locks(scenario: &Scenario) -> Result<bool, SimulateError> {
    let plant = scenario.start(0).map_err(SimulateError::plant(scenario.name()));
    Ok(plant?.interval(Mpl::ONE).locks.is_some())
}

//! Why there is no simulation.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use tidegate_control::AlgorithmError;
use tidegate_control::plant::ScenarioError;

#[derive(Debug, Error)]
pub enum SimulateError {
    #[error("there is no plant in {}: give .toml files or directories of them", .0.display())]
    NoPlants(PathBuf),
    #[error("cannot use {path}: {source}", path = .path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{path}: line {line}: {message}", path = .path.display())]
    Toml {
        path: PathBuf,
        /// The line, counted from 1; that of its beginning where something is missing.
        line: usize,
        message: String,
    },
    #[error("{path}: {source}", path = .path.display())]
    Scenario { path: PathBuf, source: ScenarioError },
    #[error("{path}: there is another plant called `{name}`", path = .path.display())]
    SameName { path: PathBuf, name: String },
    #[error("plant {plant}: {source}")]
    Plant { plant: String, source: ScenarioError },
    #[error("cancelled")]
    Cancelled,
}

impl SimulateError {
    pub(super) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| SimulateError::File { path, source }
    }

    pub(super) fn plant(name: &str) -> impl FnOnce(ScenarioError) -> Self {
        let plant = name.to_owned();
        move |source| SimulateError::Plant { plant, source }
    }
}

/// No controllers, because a name is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}, or all")]
pub struct ControllersError(#[from] pub AlgorithmError);

//! Why there is no simulation.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use tidegate_control::AlgorithmError;
use tidegate_control::plant::ScenarioError;

/// Why there is no simulation.
#[derive(Debug, Error)]
pub enum SimulateError {
    /// There is nothing to simulate.
    #[error("there is no plant in {}: give .toml files or directories of them", .0.display())]
    NoPlants(PathBuf),
    /// A file or directory could not be read or written.
    #[error("cannot use {path}: {source}", path = .path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file is not what a plant is written as.
    #[error("{path}: line {line}: {message}", path = .path.display())]
    Toml {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1; that of its beginning where something is missing.
        line: usize,
        /// What is wrong there.
        message: String,
    },
    /// A file describes a plant that cannot be.
    #[error("{path}: {source}", path = .path.display())]
    Scenario {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: ScenarioError,
    },
    /// Two files describe plants of one name.
    #[error("{path}: there is another plant called `{name}`", path = .path.display())]
    SameName {
        /// The second file.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// A checked plant could not be started.
    #[error("plant {plant}: {source}")]
    Plant {
        /// The plant.
        plant: String,
        /// What is wrong with it.
        source: ScenarioError,
    },
    /// The caller raised the cancellation flag.
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

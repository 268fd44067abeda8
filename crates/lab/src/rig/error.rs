//! What can go wrong with the rig.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use tidegate_control::BoundsError;
use tidegate_subject::database::DatabaseError;
use tidegate_subject::embedded::EmbeddedError;
use tidegate_subject::process::ProcessError;
use tidegate_subject::processors::ProcessorsError;
use tidegate_workload::Failure;

use super::database::gated_names;

use crate::Cause;

/// What can go wrong with the server, the proxy and the files of an experiment.
#[derive(Debug, Error)]
pub enum RigError {
    #[error("cannot use {path}: {source}", path = .path.display())]
    File { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error("looking at the tables failed: {0}")]
    Query(#[from] Failure),
    /// Processes cannot be kept to a set of processors.
    #[error(transparent)]
    Processors(#[from] ProcessorsError),
    #[error("{0} is no database that can be started")]
    NoDatabase(&'static str),
    #[error(
        "{0} has no gate before it: use {gated}, or leave `clients` out",
        gated = gated_names()
    )]
    NoGate(&'static str),
    /// The bounds of the limit hold none.
    #[error(transparent)]
    Bounds(#[from] BoundsError),
    #[error("{source}; its log is {log}", log = .log.display())]
    Proxy {
        source: ProcessError,
        /// Where the proxy wrote its log.
        log: PathBuf,
    },
    #[error("line {line} of {path} is not an interval: {source}", path = .path.display())]
    Journal {
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        source: serde_json::Error,
    },
    #[error("cannot draw {path}: {source}", path = .path.display())]
    Figure { path: PathBuf, source: Cause },
    #[error("cancelled")]
    Cancelled,
}

impl From<EmbeddedError> for RigError {
    fn from(error: EmbeddedError) -> Self {
        RigError::Database(error.into())
    }
}

impl RigError {
    /// Whether another run may do better: it was not the database or a file that failed.
    pub(crate) fn is_passing(&self) -> bool {
        !matches!(self, RigError::File { .. } | RigError::Database(_))
    }

    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| RigError::File { path, source }
    }

    pub(crate) fn figure(path: &Path) -> impl FnOnce(Cause) -> Self {
        let path = path.to_owned();
        move |source| RigError::Figure { path, source }
    }
}

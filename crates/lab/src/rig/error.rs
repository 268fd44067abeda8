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

/// What can go wrong with the server, the proxy and the files of an experiment.
#[derive(Debug, Error)]
pub enum RigError {
    /// A file could not be written or read.
    #[error("cannot use {path}: {source}", path = .path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The database failed.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// A query of ours failed.
    #[error("looking at the tables failed: {0}")]
    Query(#[from] Failure),
    /// Processes cannot be kept to a set of processors.
    #[error(transparent)]
    Processors(#[from] ProcessorsError),
    /// There is nothing to start.
    #[error("{0} is no database that can be started")]
    NoDatabase(&'static str),
    /// Nothing holds a limit before this database.
    #[error(
        "{0} has no gate before it: use {gated}, or leave `clients` out",
        gated = gated_names()
    )]
    NoGate(&'static str),
    /// The bounds of the limit hold none.
    #[error(transparent)]
    Bounds(#[from] BoundsError),
    /// The proxy did not come up.
    #[error("{source}; its log is {log}", log = .log.display())]
    Proxy {
        /// What went wrong.
        source: ProcessError,
        /// Where the proxy wrote its log.
        log: PathBuf,
    },
    /// A line of the journal cannot be understood.
    #[error("line {line} of {path} is not an interval: {source}", path = .path.display())]
    Journal {
        /// The journal.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The figure could not be drawn.
    #[error("cannot draw {path}: {reason}", path = .path.display())]
    Figure {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        reason: String,
    },
    /// The caller raised the cancellation flag.
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

    pub(crate) fn figure(path: &Path) -> impl FnOnce(Box<dyn std::error::Error>) -> Self {
        let path = path.to_owned();
        move |error| RigError::Figure { path, reason: error.to_string() }
    }
}

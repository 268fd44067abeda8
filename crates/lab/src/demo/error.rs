//! Why there is no demonstration.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use tidegate_subject::client::ClientError;
use tidegate_subject::postgres::PostgresError;
use tidegate_subject::process::ProcessError;

use super::{MAX_CLIENTS, Side};
use crate::load::LoadError;

/// Why there is no demonstration.
#[derive(Debug, Error)]
pub enum DemoError {
    /// The steps make no sense.
    #[error("the numbers of clients must be between 1 and {MAX_CLIENTS}")]
    Clients,
    /// A file could not be written or read.
    #[error("cannot use {path}: {source}", path = .path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The private server did not come up.
    #[error(transparent)]
    Postgres(#[from] PostgresError),
    /// The private server did not do what it was told.
    #[error("preparing the database failed: {0}")]
    Database(#[from] ClientError),
    /// The proxy did not come up.
    #[error("{source}; its log is {log}", log = .log.display())]
    Proxy {
        /// What went wrong.
        source: ProcessError,
        /// Where the proxy wrote its log.
        log: PathBuf,
    },
    /// A load could not be run.
    #[error("{clients} clients {side}: {source}")]
    Load {
        /// How many clients there were.
        clients: usize,
        /// Which way they went.
        side: Side,
        /// What went wrong.
        source: LoadError,
    },
    /// A line of the proxy's journal cannot be understood.
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

impl DemoError {
    pub(super) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| DemoError::File { path, source }
    }
}

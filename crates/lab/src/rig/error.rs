//! What can go wrong with the rig.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;
use tidegate_control::BoundsError;
use tidegate_subject::client::{ClientError, UrlError};
use tidegate_subject::connection::LoadError;
use tidegate_subject::embedded::EmbeddedError;
use tidegate_subject::firebird::FirebirdError;
use tidegate_subject::guest::GuestError;
use tidegate_subject::mariadb::MariaDbError;
use tidegate_subject::mysql;
use tidegate_subject::postgres::PostgresError;
use tidegate_subject::process::ProcessError;
use tidegate_subject::processors::ProcessorsError;
use tidegate_subject::sqlite::SqliteError;
use tidegate_workload::Failure;

use super::SettingError;

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
    /// The private server did not come up.
    #[error(transparent)]
    Postgres(#[from] PostgresError),
    /// The private server did not do what it was told.
    #[error("preparing the database failed: {0}")]
    Database(#[from] ClientError),
    /// A server's URL is none.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The private server did not do what it was told.
    #[error("preparing the database failed: {0}")]
    MariaDbClient(#[from] mysql::ClientError),
    /// The tables could not be made.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A query of ours failed.
    #[error("looking at the tables failed: {0}")]
    Query(#[from] Failure),
    /// A private server did not come up, or not do what it was told.
    #[error(transparent)]
    MariaDb(#[from] MariaDbError),
    /// A private server did not come up, or not do what it was told.
    #[error(transparent)]
    Firebird(#[from] FirebirdError),
    /// The private file could not be made.
    #[error(transparent)]
    Sqlite(#[from] SqliteError),
    /// The database is not to be had with these settings.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// Processes cannot be kept to a set of processors.
    #[error(transparent)]
    Processors(#[from] ProcessorsError),
    /// Clients that were sent away are still there.
    #[error("clients of an earlier run were sent away and are still there after {0:?}")]
    NotAlone(Duration),
    /// There is nothing to start.
    #[error("{0} is no database that can be started")]
    NoDatabase(&'static str),
    /// An existing server has no room for us.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// Nothing holds a limit before this database.
    #[error("{0} has no gate before it: use postgres or embedded, or leave `clients` out")]
    NoGate(&'static str),
    /// The embedded engine failed.
    #[error(transparent)]
    Embedded(#[from] EmbeddedError),
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

impl RigError {
    /// Whether another run may do better: it was not the database or a file that failed.
    pub(crate) fn is_passing(&self) -> bool {
        !matches!(self, RigError::File { .. } | RigError::Database(_) | RigError::Embedded(_))
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

//! Why there is no demonstration.

use thiserror::Error;
use tidegate_subject::database::DatabaseError;

use super::Side;
use crate::load::LoadError;
use crate::rig::{MAX_CLIENTS, RigError};

/// Why there is no demonstration.
#[derive(Debug, Error)]
pub enum DemoError {
    /// The steps make no sense.
    #[error("the numbers of clients must be between 1 and {MAX_CLIENTS}")]
    Clients,
    /// The database, the proxy or a file failed.
    #[error(transparent)]
    Rig(#[from] RigError),
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
    /// The caller raised the cancellation flag.
    #[error("cancelled")]
    Cancelled,
}

impl From<DatabaseError> for DemoError {
    fn from(error: DatabaseError) -> Self {
        RigError::from(error).into()
    }
}

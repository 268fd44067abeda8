//! Why there is no demonstration.

use thiserror::Error;
use tidegate_subject::database::DatabaseError;

use super::DemoSide;
use crate::load::LoadError;
use crate::rig::{MAX_CLIENTS, RigError};

#[derive(Debug, Error)]
pub enum DemoError {
    #[error("the numbers of clients must be between 1 and {MAX_CLIENTS}")]
    Clients,
    /// The database, the proxy or a file failed.
    #[error(transparent)]
    Rig(#[from] RigError),
    #[error("{clients} clients {side}: {source}")]
    Load { clients: usize, side: DemoSide, source: LoadError },
    #[error("cancelled")]
    Cancelled,
}

impl From<DatabaseError> for DemoError {
    fn from(error: DatabaseError) -> Self {
        RigError::from(error).into()
    }
}

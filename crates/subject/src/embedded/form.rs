//! What the databases on the embedded engine have in common: the laboratory needs no more of them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tidegate_engine::disk::Disk;
use tidegate_workload::Table;
use tidegate_workload::workload::Workload;

use super::service::{Service, Serving};
use super::{Embedded, EmbeddedError, Options};
use crate::database::{Database, distinct};

/// A database on the embedded engine, whose clients call the engine's server.
pub trait EngineDatabase: Database {
    /// Starts to serve the transactions whose data is loaded.
    ///
    /// # Errors
    /// The system gave no thread.
    fn serve(&self, serving: Serving<'_>) -> Result<Service<'_>, EmbeddedError>;

    /// Puts the data of workloads into the store, which is empty. `cancel` ends it soon.
    ///
    /// # Errors
    /// The store fails, or it was cancelled.
    fn fill(
        &mut self,
        workloads: &[Arc<dyn Workload>],
        cancel: &AtomicBool,
    ) -> Result<(), EmbeddedError>;

    /// Writes everything and closes the store, which stays on its disk.
    ///
    /// # Errors
    /// The store fails.
    ///
    /// # Panics
    /// If a connection or a probe of it is still there.
    fn close(self: Box<Self>) -> Result<(), EmbeddedError>;
}

/// The databases that there are on the embedded engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineForm {
    /// Tables, with SQL.
    Tables,
}

impl EngineForm {
    /// Returns the form of the data that workloads have.
    #[must_use]
    pub fn of(_: &[Arc<dyn Workload>]) -> EngineForm {
        EngineForm::Tables
    }

    /// Makes an empty database on a disk.
    ///
    /// # Errors
    /// The store cannot be made.
    pub fn create_on(
        self,
        disk: &Arc<dyn Disk>,
        options: Options,
    ) -> Result<Box<dyn EngineDatabase>, EmbeddedError> {
        Ok(match self {
            EngineForm::Tables => Box::new(Embedded::create_on(disk, options)?),
        })
    }

    /// Opens the database on a disk, which has the data of these workloads.
    ///
    /// # Errors
    /// The store cannot be opened, or has not their data.
    pub fn open_on(
        self,
        disk: &Arc<dyn Disk>,
        workloads: &[Arc<dyn Workload>],
        options: Options,
    ) -> Result<Box<dyn EngineDatabase>, EmbeddedError> {
        Ok(match self {
            EngineForm::Tables => {
                let tables = distinct(workloads).into_iter().flat_map(|workload| workload.tables());
                let tables: Vec<Table> = tables.collect();
                Box::new(Embedded::open_on(disk, tables, options)?)
            }
        })
    }
}

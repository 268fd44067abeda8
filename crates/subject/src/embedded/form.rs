//! What the databases on the embedded engine have in common: the laboratory needs no more of them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tidegate_engine::Store;
use tidegate_engine::disk::Disk;
use tidegate_workload::Table;
use tidegate_workload::workload::Workload;

use super::auctions::{EmbeddedXml, Locking};
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

    /// Returns the engine's store.
    fn engine(&self) -> &Arc<Store>;

    /// Sets how transactions lock the nodes of documents.
    ///
    /// # Errors
    /// There are no documents.
    fn set_locking(&self, locking: Locking) -> Result<(), EmbeddedError> {
        let _ = locking;
        Err(EmbeddedError::NoNodes)
    }

    /// Reads all pages of the store, so that its memory is full of them, or has all of them.
    /// Returns how many bytes they are.
    ///
    /// # Errors
    /// A page cannot be read.
    fn warm(&self) -> Result<u64, EmbeddedError> {
        let engine = self.engine();
        let names = engine.trees();
        let trees = names.iter().filter_map(|name| engine.tree(name));
        trees.map(|tree| Ok(tree.size()?.bytes)).sum()
    }

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
    /// The document of an auction site in XML.
    Auctions,
}

impl EngineForm {
    /// Returns the form of the data that workloads have.
    #[must_use]
    pub fn of(workloads: &[Arc<dyn Workload>]) -> EngineForm {
        let has_site = workloads.iter().any(|workload| workload.auction_site().is_some());
        if has_site { EngineForm::Auctions } else { EngineForm::Tables }
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
            EngineForm::Auctions => Box::new(EmbeddedXml::create_on(disk, options)?),
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
            EngineForm::Auctions => Box::new(EmbeddedXml::open_on(disk, options)?),
        })
    }
}

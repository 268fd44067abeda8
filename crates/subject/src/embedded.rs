//! The embedded engine as a database under test: a private store, gone when dropped.
//!
//! # Mechanism
//! A store of [`tidegate_engine`] in a directory of its own, with the tables of workloads as trees.
//! Their statements are run by [`sql`]. A [`Service`] is the engine's server on it: so many
//! requests at once as its controller says, the others in the queue of its gate. There can be
//! several services on one store, one after the other; each borrows the store, so that all are gone
//! before it is.
//!
//! Where the file system has direct I/O the pages are read and written past the system's cache, so
//! that a small buffer is really small.
//!
//! # Limits
//! The engine runs in our own process and shares its processors with who measures it. When we are
//! killed outright (SIGKILL) the directory stays until the next one is made.

pub mod auctions;
mod costs;
mod database;
mod form;
mod machine;
mod probe;
mod requests;
mod service;
pub mod sql;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use thiserror::Error;
use tidegate_engine::disk::{FileDisk, IoMode};
use tidegate_engine::wal::LogId;
use tidegate_engine::{Store, StoreError, TxnError, TxnOptions};
use tidegate_runtime::entropy;
use tidegate_workload::Table;
use tidegate_workload::workload::Workload;
use tidegate_xml::store::XmlStoreError;

pub use database::DBMS;
pub use form::{EngineDatabase, EngineForm};
pub use machine::{MACHINE, MachineOptions, PARTS, RequestTimes};
pub use probe::{Probe, TreeState};
pub use tidegate_engine::SplitPolicy;
pub use tidegate_engine::disk::{Disk, MemoryDisk, TimedDisk};
pub use tidegate_engine::lock::{LockStatistics, Priorities as LockPriorities};
pub use tidegate_engine_server::{CallError, ClassPriorities};

use crate::connection::LoadError;
use crate::embedded_xml::AuctionLoadError;
pub use crate::isolation::Isolation;
use crate::scratch::Scratch;
pub use requests::{Done, NodeLocking, RequestError};
pub use service::{Conflicts, Service, Serving, StoreWork};
use sql::{Catalog, SqlError, StoreConnection};

/// The store's own directory, in ours: it must be empty at first.
const STORE: &str = "store";

/// What a store is made with; everything else is the engine's default.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Memory for pages, in bytes.
    pub buffer_bytes: usize,
    /// How far transactions are apart.
    pub isolation: Isolation,
    /// What the priorities of transactions do in lock queues.
    pub lock_priorities: LockPriorities,
}

/// Why there is no store, or it does not do what it was told.
#[derive(Debug, Error)]
pub enum EmbeddedError {
    /// The directory could not be made, used or removed.
    #[error("the embedded engine cannot use {path}: {source}", path = .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The store failed.
    #[error("the embedded engine: {0}")]
    Store(#[from] StoreError),
    /// A transaction of ours failed.
    #[error("the embedded engine: {0}")]
    Transaction(#[from] TxnError),
    /// The tables cannot be used.
    #[error("the embedded engine: {0}")]
    Sql(#[from] SqlError),
    /// The tables were not loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The XML store failed.
    #[error("the embedded XML store: {0}")]
    Xml(#[from] XmlStoreError),
    /// The document of an auction site was not loaded.
    #[error(transparent)]
    Auctions(#[from] AuctionLoadError),
    /// There is no document yet, or its workload has none.
    #[error("the embedded XML store has no auction site; load the workload xmark")]
    NoDocument,
    /// What committed transactions have done is not there.
    #[error("the embedded engine has lost something: {0}")]
    Lost(String),
    /// Locks on nodes were set where there are none.
    #[error("only the XML store has locks on nodes; leave them out for other data")]
    NoNodes,
}

/// A private store; dropping it closes it and removes its directory.
pub struct Embedded {
    // Dropped in this order: the store is closed before its directory goes.
    catalog: Arc<Catalog>,
    tables: Vec<Table>,
    store: Arc<Store>,
    /// None where the files are on a disk of the caller's.
    directory: Option<Scratch>,
    io: IoMode,
    options: Options,
}

impl Embedded {
    /// Makes an empty store in a directory of its own.
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn start(options: Options) -> Result<Self, EmbeddedError> {
        let (directory, disk, io) = private_disk("embedded")?;
        let mut database = Embedded::create_on(&disk, options)?;
        (database.directory, database.io) = (Some(directory), io);
        Ok(database)
    }

    /// Makes an empty store on a disk.
    ///
    /// # Errors
    /// The store cannot be made.
    pub fn create_on(disk: &Arc<dyn Disk>, options: Options) -> Result<Self, EmbeddedError> {
        let store = Store::create(disk, LogId(entropy()), &options.of_store())?;
        Embedded::of(store, Vec::new(), options)
    }

    /// Opens the store on a disk, which has these tables.
    ///
    /// # Errors
    /// The store cannot be opened, or has not these tables.
    pub fn open_on(
        disk: &Arc<dyn Disk>,
        tables: Vec<Table>,
        options: Options,
    ) -> Result<Self, EmbeddedError> {
        Embedded::of(Store::open(disk, &options.of_store())?, tables, options)
    }

    fn of(store: Store, tables: Vec<Table>, options: Options) -> Result<Self, EmbeddedError> {
        let store = Arc::new(store);
        let catalog = Arc::new(Catalog::open(&store, &tables)?);
        let (directory, io) = (None, IoMode::Buffered);
        Ok(Embedded { catalog, tables, store, directory, io, options })
    }

    /// Makes the tables of a workload, which must not be there yet. `cancel` ends it soon.
    ///
    /// # Errors
    /// The store fails, or it was cancelled.
    pub fn load(
        &mut self,
        workload: &dyn Workload,
        cancel: &AtomicBool,
    ) -> Result<(), EmbeddedError> {
        sql::load(&self.store, workload, cancel, &mut |_| {})?;
        self.tables.extend(workload.tables());
        self.catalog = Arc::new(Catalog::open(&self.store, &self.tables)?);
        Ok(())
    }

    /// A connection for others than the clients, past the server.
    #[must_use]
    pub fn connect(&self) -> StoreConnection {
        let options = transactions(self.options);
        StoreConnection::new(Arc::clone(&self.store), Arc::clone(&self.catalog), options)
    }

    /// A look into the store, and a hand on its settings, while others work on it.
    #[must_use]
    pub fn probe(&self) -> Probe {
        Probe::new(Arc::clone(&self.store))
    }

    /// The directory that holds the store, if it has one of its own.
    #[must_use]
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_ref().map(Scratch::path)
    }

    /// Closes the store and removes its directory.
    ///
    /// # Errors
    /// The directory cannot be removed.
    pub fn stop(self) -> Result<(), EmbeddedError> {
        let Embedded { catalog, store, directory, .. } = self;
        drop((catalog, store));
        directory.map_or(Ok(()), remove_directory)
    }
}

/// Makes a directory whose name has this word in it, for a store in it.
fn private_disk(word: &str) -> Result<(Scratch, Arc<dyn Disk>, IoMode), EmbeddedError> {
    let failed = |path: &Path, source| EmbeddedError::Directory { path: path.into(), source };
    let directory = Scratch::new(word).map_err(|source| failed(&std::env::temp_dir(), source))?;
    let place = directory.path().join(STORE);
    let (disk, io) = std::fs::create_dir(&place)
        .and_then(|()| open_disk(&place))
        .map_err(|source| failed(&place, source))?;
    Ok((directory, disk, io))
}

fn remove_directory(directory: Scratch) -> Result<(), EmbeddedError> {
    let path = directory.path().to_owned();
    directory.close().map_err(|source| EmbeddedError::Directory { path, source })
}

/// How the engine is to run transactions.
fn transactions(options: Options) -> TxnOptions {
    let isolation = match options.isolation {
        Isolation::ReadUncommitted => tidegate_engine::Isolation::ReadUncommitted,
        Isolation::ReadCommitted => tidegate_engine::Isolation::ReadCommitted,
        Isolation::RepeatableRead => tidegate_engine::Isolation::RepeatableRead,
        Isolation::Serializable => tidegate_engine::Isolation::Serializable,
    };
    TxnOptions::default().isolation(isolation)
}

/// The directory with direct I/O, or without where the file system has none.
fn open_disk(path: &Path) -> io::Result<(Arc<dyn Disk>, IoMode)> {
    let open = |io| -> io::Result<(Arc<dyn Disk>, IoMode)> {
        Ok((Arc::new(FileDisk::open(path, io)?), io))
    };
    match open(IoMode::Direct) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => open(IoMode::Buffered),
        opened => opened,
    }
}

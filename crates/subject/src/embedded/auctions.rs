//! The XML store as a database under test: a private store with the document of an auction site,
//! gone when dropped.
//!
//! # Mechanism
//! An [`EmbeddedXml`] has an [`XmlStore`] on a store of the engine, in a directory of its own or on
//! a disk of the caller's, and an [`AuctionSite`] in it. Requests come to the engine's server as
//! those of [`Embedded`](super::Embedded) do, and run in transactions of the XML store. What these
//! lock, and from when on many locks become one, is set while it runs ([`Locking`]).
//!
//! # Figures
//! Of each request it is noted what its transaction locked and how long that took, all its attempts
//! together, and how many of them ended in a conflict ([`NodeLocking`]).
//!
//! # Limits
//! As those of [`Embedded`](super::Embedded). Read uncommitted does without read locks, so its
//! transactions may fail over what others are about to take back.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tidegate_control::ArmDecision;
use tidegate_engine::disk::{Disk, IoMode};
use tidegate_engine::wal::LogId;
use tidegate_engine::{FORMAT_VERSION, Store, TxnError};
use tidegate_engine_server::{Attempt, Observer, RequestHandler};
use tidegate_runtime::{entropy, is_virtual};
use tidegate_workload::workload::{Condition, Depth, Workload};
use tidegate_workload::xmark::{AuctionTransaction, Xmark};
use tidegate_workload::{Ending, Failure};
use tidegate_xml::store::{
    ConflictCounts, ConflictPlace, LoadOptions, XmlStore, XmlStoreError, XmlTransaction,
};

pub use tidegate_xml::store::{
    EscalationReading, LockEscalation, LockProtocol, Locking, LockingError,
};

use super::form::EngineDatabase;
use super::requests::{NodeLocking, Requests, RunNotes};
use super::service::{Conflicts, Service, Serving};
use super::sql::RunError;
use super::{EmbeddedError, Options, Probe, private_disk, remove_directory, transactions};
use crate::database::{Clients, Database, DatabaseError, Dbms, Gate};
use crate::embedded_xml::{self, AuctionSite};
use crate::scratch::Scratch;

/// See [`Dbms`].
pub static DBMS: Dbms = Dbms {
    name: "embedded-xml",
    title: "the embedded XML store",
    dialect: None,
    gate: Gate::Own,
    is_in_process: true,
    connections: None,
    programs: &[],
    scheme: None,
    after_load: None,
    version: |_| Ok(version()),
    find: || Ok(None),
    validate: |settings| Options::new(settings).map(drop),
    start: |settings| Ok(Box::new(EmbeddedXml::start(Options::new(settings)?)?)),
    start_at: |url, _| Err(DatabaseError::Other(format!("embedded-xml is not at {url}, but here"))),
};

/// The name of the document.
const DOCUMENT: &str = "auction";

/// A private XML store; dropping it closes it and removes its directory.
pub struct EmbeddedXml {
    // Dropped in this order: the store is closed before its directory goes.
    /// None until the document is loaded.
    site: Option<Arc<AuctionSite>>,
    store: Arc<XmlStore>,
    /// None where the files are on a disk of the caller's.
    directory: Option<Scratch>,
    io: IoMode,
    options: Options,
}

impl EmbeddedXml {
    /// Makes an empty store in a directory of its own.
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn start(options: Options) -> Result<Self, EmbeddedError> {
        let (directory, disk, io) = private_disk("embedded-xml")?;
        let mut database = EmbeddedXml::create_on(&disk, options)?;
        (database.directory, database.io) = (Some(directory), io);
        Ok(database)
    }

    /// Makes an empty store on a disk.
    ///
    /// # Errors
    /// The store cannot be made.
    pub fn create_on(disk: &Arc<dyn Disk>, options: Options) -> Result<Self, EmbeddedError> {
        let engine = Store::create(disk, LogId(entropy()), &options.of_store())?;
        EmbeddedXml::of(engine, options)
    }

    /// Opens the store on a disk, which has the document.
    ///
    /// # Errors
    /// The store cannot be opened, or does not have the document.
    pub fn open_on(disk: &Arc<dyn Disk>, options: Options) -> Result<Self, EmbeddedError> {
        let mut database = EmbeddedXml::of(Store::open(disk, &options.of_store())?, options)?;
        database.open_site()?;
        Ok(database)
    }

    fn of(engine: Store, options: Options) -> Result<Self, EmbeddedError> {
        let store = Arc::new(XmlStore::on(engine)?);
        Ok(EmbeddedXml { site: None, store, directory: None, io: IoMode::Buffered, options })
    }

    fn open_site(&mut self) -> Result<(), EmbeddedError> {
        self.site = Some(Arc::new(AuctionSite::open(&self.store, DOCUMENT)?));
        Ok(())
    }

    fn site(&self) -> Result<&Arc<AuctionSite>, EmbeddedError> {
        self.site.as_ref().ok_or(EmbeddedError::NoDocument)
    }

    fn load_site(&mut self, workload: &Xmark, cancel: &AtomicBool) -> Result<(), EmbeddedError> {
        let mut options = LoadOptions::default();
        if is_virtual() {
            // Threads of the operating system do not run on a machine in virtual time.
            options.threads = 1;
        }
        embedded_xml::load(&self.store, DOCUMENT, workload, options, cancel)?;
        self.open_site()
    }
}

impl EmbeddedXml {
    /// Returns an observer that puts the arm of each decision into force before it tells another.
    fn switching(&self, arms: &[Locking], mut observer: Observer) -> Observer {
        let (store, arms) = (Arc::clone(&self.store), arms.to_vec());
        let mut in_force = 0;
        Box::new(move |adjustment| {
            if let Some(ArmDecision { arm, .. }) = adjustment.arm
                && arm != in_force
            {
                store.set_locking(arms[arm].clone());
                in_force = arm;
            }
            observer(adjustment);
        })
    }
}

/// What runs the requests of a service.
struct Runner {
    store: Arc<XmlStore>,
    site: Arc<AuctionSite>,
}

impl Runner {
    /// Begins a transaction, runs it and commits it.
    fn run(
        &self,
        attempt: &Attempt<'_>,
        auction: &AuctionTransaction,
        notes: &mut RunNotes,
    ) -> Result<Ending, RunError> {
        let mut transaction = self.store.begin_with(attempt.options());
        transaction.claim_first(std::mem::take(&mut notes.claims));
        attempt.began(&transaction.engine());
        let run = self.site.run(auction, &transaction);
        let mut locking = locked(&transaction);
        let claims = transaction.retry_claims();
        let ended = run.and_then(|run| {
            let locks = transaction.engine().lock_count();
            transaction.commit()?;
            attempt.committed(locks);
            self.site.committed(auction, &run);
            Ok(Ending::Commit)
        });
        if let Err(XmlStoreError::Engine(TxnError::Conflict(error))) = &ended {
            locking.give_way(*error);
            notes.claims = claims;
        }
        notes.locking = Some(locking);
        ended.map_err(failure)
    }
}

/// Returns what a run has locked.
fn locked(transaction: &XmlTransaction<'_>) -> NodeLocking {
    let figures = transaction.lock_figures();
    NodeLocking {
        runs: 1,
        requests: figures.requests,
        locks: figures.locks,
        conversions: figures.conversions,
        escalations: figures.escalations,
        waits: figures.waits,
        request_time: figures.request_time,
        block_time: figures.block_time,
        ..NodeLocking::default()
    }
}

/// Returns how many conflicts over a document ended transactions of a store.
fn conflicts(store: &XmlStore) -> Conflicts {
    let mut conflicts = Conflicts::new();
    for (place, counts) in store.conflict_counts() {
        let place = match place {
            ConflictPlace::Node => "node",
            ConflictPlace::Edge => "edge",
            ConflictPlace::Entry => "entry",
        };
        let ConflictCounts { deadlocks, timeouts, preemptions } = counts;
        let causes = [("deadlock", deadlocks), ("timeout", timeouts), ("preempted", preemptions)];
        conflicts.extend(causes.map(|(cause, times)| ((cause, place), times)));
    }
    conflicts
}

/// Why an attempt failed, as the server is told.
fn failure(error: XmlStoreError) -> RunError {
    match error {
        XmlStoreError::Engine(error) => error.into(),
        other => Failure::Refused { code: "XML".to_owned(), message: other.to_string() }.into(),
    }
}

impl Database for EmbeddedXml {
    fn dbms(&self) -> &'static Dbms {
        &DBMS
    }

    fn clients(&self) -> Clients<'_> {
        Clients::Engine(self)
    }

    /// Makes the store anew, too: it has this document alone afterwards.
    fn load(
        &mut self,
        workloads: &[Arc<dyn Workload>],
        cancel: &AtomicBool,
    ) -> Result<(), DatabaseError> {
        *self = EmbeddedXml::start(self.options)?;
        Ok(self.fill(workloads, cancel)?)
    }

    fn check(&self, _: &dyn Workload, _: Depth) -> Result<Vec<Condition>, DatabaseError> {
        Ok(self.site()?.check(&self.store).map_err(EmbeddedError::from)?)
    }

    /// Writes all changed pages and takes a checkpoint.
    fn level(&self, _: &[Arc<dyn Workload>]) -> Result<(), DatabaseError> {
        Ok(self.store.engine().flush().map_err(EmbeddedError::from)?)
    }

    /// A call was answered or given up when its load ended.
    fn end_others(&self, _: Duration) -> Result<usize, DatabaseError> {
        Ok(0)
    }

    fn version(&self) -> Result<String, DatabaseError> {
        Ok(version())
    }

    fn settings(&self) -> Result<Vec<(String, String)>, DatabaseError> {
        Ok(self.options.described(self.io))
    }

    fn probe(&self) -> Option<Probe> {
        Some(Probe::new(Arc::clone(self.store.engine())))
    }

    fn stop(self: Box<Self>) -> Result<(), DatabaseError> {
        let EmbeddedXml { site, store, directory, .. } = *self;
        drop((site, store));
        Ok(directory.map_or(Ok(()), remove_directory)?)
    }
}

impl EngineDatabase for EmbeddedXml {
    /// With arms, each decision about them is put into force by the governor's thread.
    fn serve(&self, serving: Serving<'_>) -> Result<Service<'_>, EmbeddedError> {
        if let Some(first) = serving.arms.first() {
            self.store.set_locking(first.clone());
        }
        let serving =
            Serving { observer: self.switching(&serving.arms, serving.observer), ..serving };
        let runner = Runner { store: Arc::clone(&self.store), site: Arc::clone(self.site()?) };
        let handler = |requests: Requests| {
            RequestHandler::new(move |attempt, arguments| {
                requests.run(arguments, |work, notes| match work.auction() {
                    Some(auction) => runner.run(attempt, auction, notes),
                    None => Err(Failure::Unexpected("a transaction on an auction site").into()),
                })
            })
        };
        let transactions = transactions(self.options);
        let service = Service::start(self.store.engine(), transactions, serving, handler)?;
        let store = Arc::clone(&self.store);
        Ok(service.counting(move || conflicts(&store)))
    }

    fn engine(&self) -> &Arc<Store> {
        self.store.engine()
    }

    fn fill(
        &mut self,
        workloads: &[Arc<dyn Workload>],
        cancel: &AtomicBool,
    ) -> Result<(), EmbeddedError> {
        let site = workloads.iter().find_map(|workload| workload.auction_site());
        self.load_site(site.ok_or(EmbeddedError::NoDocument)?, cancel)
    }

    fn set_locking(&self, locking: Locking) -> Result<(), EmbeddedError> {
        self.store.set_locking(locking);
        Ok(())
    }

    /// Before it closes the store, it looks whether there is as much of everything as committed
    /// transactions have added.
    fn close(self: Box<Self>) -> Result<(), EmbeddedError> {
        let EmbeddedXml { site, store, .. } = *self;
        if let Some(site) = site {
            // One lock on the document is enough to count.
            store.set_locking(Locking::default());
            let found = AuctionSite::open(&store, DOCUMENT)?.expected();
            let expected = site.expected();
            if found != expected {
                let text = format!("there are {found:?}, and {expected:?} have to be there");
                return Err(EmbeddedError::Lost(text));
            }
        }
        let store = Arc::into_inner(store).expect("nobody else has the store");
        Ok(store.close()?)
    }
}

fn version() -> String {
    format!("{}, format {FORMAT_VERSION}", env!("CARGO_PKG_VERSION"))
}

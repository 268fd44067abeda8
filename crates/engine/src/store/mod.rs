//! The store: one directory with pages, a log, and what holds them together.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `head` | format, size of pages, where the last checkpoint is |
//! | `data.pages` | the pages of all trees |
//! | `doublewrite.pages` | copies of the pages being written |
//! | `log-….wal` | the log |

mod catalog;
mod checkpoint;
mod head;
mod recovery;
mod space;
mod transactions;
mod undo;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use thiserror::Error;

use crate::btree::{Deletion, LeafFill, SplitPolicy, Tree, TreeEntry, TreeShape};
use crate::buffer::{BufferError, DoubleWrite, IoCounters, IoCounts, PAGES, Pool};
use crate::disk::{Claim, Disk, File, Open};
use crate::lock::{
    Detector, Escalation, Hierarchy, LockManager, LockSettings, Mode, ModeTable, ModeTableError,
    Parent,
};
use crate::page::{PageId, PageSize, Seed, TreeId};
use crate::record::TxnId;
use crate::txn::{Indexes, Lockable, RangeModes, TxnError, covering, mode_table};
use crate::wal::{Log, LogError, LogId, LogSettings, LogStatistics, Lsn};

use catalog::Catalog;
use head::{Checkpoint, Head};
pub(crate) use transactions::{Transactions, TxnState};

pub use head::{FORMAT_VERSION, HeadError};
pub use recovery::Recovery;
pub(crate) use space::Space;

/// Why the store cannot do what it was asked.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The `head` file is missing or unreadable.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// A page cannot be read.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// The log cannot be read or written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A file cannot be made, opened or repaired.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was to be done.
        action: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// A record is not what it should be.
    #[error("log record {lsn} cannot be used: {what}; restore the store from a backup")]
    Record {
        /// Where it is.
        lsn: Lsn,
        /// What is wrong.
        what: &'static str,
    },
    /// The log speaks of a tree that the catalog does not have.
    #[error("the log changes tree {number}, which is not there; restore the store from a backup")]
    NoSuchTree {
        /// The tree's number.
        number: u32,
    },
    /// A change cannot be taken back.
    #[error("transaction {} cannot be rolled back: {what}", .transaction.0)]
    Undo {
        /// Whose change it was.
        transaction: TxnId,
        /// Why.
        what: &'static str,
    },
    /// A tree is not sound.
    #[error("tree {name}: page {page}: {what}; restore the store from a backup")]
    Unsound {
        /// The tree's name.
        name: String,
        /// The page concerned.
        page: PageId,
        /// What is wrong.
        what: &'static str,
    },
    /// The name of a tree is empty or too long.
    #[error("a tree's name has 1 to {max} bytes, not {len}")]
    Name {
        /// Its length.
        len: usize,
        /// What is possible.
        max: usize,
    },
    /// There are files where a store was to be made.
    #[error("there are files already, such as {file}; a store is made in an empty directory")]
    NotEmpty {
        /// One of them.
        file: String,
    },
    /// The table of lock modes is not sound.
    #[error(transparent)]
    Modes(Box<ModeTableError>),
    /// Transactions are under way.
    #[error("{0} transactions are under way; end them before the store is closed")]
    Busy(usize),
    /// A log record may have to hold more than a segment does.
    #[error(
        "log segments of {segment_bytes} bytes are too short for pages of {page_bytes} bytes: \
         set `segment_bytes` to {least} or more"
    )]
    SegmentTooShort {
        /// The length asked for.
        segment_bytes: u64,
        /// The size of a page.
        page_bytes: usize,
        /// The shortest length that will do.
        least: u64,
    },
    /// The store was not closed, and recovery would have to write.
    #[error(
        "the store was not closed, so that opening it has to write: open it for writing once and \
         close it, then it can be opened to be read only"
    )]
    NotClosed,
}

/// How a store is kept. The size of pages and of log segments is fixed when it is created.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The size of a page.
    pub page_size: PageSize,
    /// Memory for pages, in bytes; at least 64 pages.
    pub buffer_bytes: usize,
    /// What [`Store::set_buffer_bytes`] may ask for at most.
    pub buffer_bytes_max: usize,
    /// How the log is kept.
    pub log: LogSettings,
    /// How locks are kept.
    pub locks: LockSettings,
    /// How often a thread looks for deadlocks, where requests that have to wait do not look
    /// themselves ([`LockSettings::check_on_block`]); `None` for never.
    pub detect_every: Option<Duration>,
    /// A transaction that holds so many locks on keys of a tree locks the tree in their place, if
    /// nobody is in its way; `None` for never. `SQL Server` does so at 5,000 as well.
    pub escalate_at: Option<u32>,
    /// Modes of the client's own, for [`Lockable::Client`]; see [`Store::client_mode`].
    pub client_modes: Option<ModeTable>,
    /// A checkpoint is taken when so many bytes were logged since the last one.
    pub checkpoint_bytes: u64,
    /// Whether a thread writes pages ahead of need and takes checkpoints; without, only
    /// [`Store::checkpoint`] does.
    pub background: bool,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions {
            page_size: PageSize::DEFAULT,
            buffer_bytes: 128 << 20,
            buffer_bytes_max: 1 << 30,
            log: LogSettings::default(),
            locks: LockSettings { check_on_block: true, ..LockSettings::default() },
            detect_every: Some(Duration::from_millis(10)),
            escalate_at: Some(5_000),
            client_modes: None,
            checkpoint_bytes: 512 << 20,
            background: true,
        }
    }
}

/// What all handles share.
pub(crate) struct Core {
    pub(crate) pool: Pool,
    pub(crate) log: Arc<Log>,
    pub(crate) space: Space,
    pub(crate) catalog: Catalog,
    pub(crate) transactions: Transactions,
    pub(crate) locks: Arc<LockManager<Lockable>>,
    pub(crate) indexes: Indexes,
    pub(crate) range_modes: RangeModes,
    head: Mutex<Head>,
    recovery_counters: IoCounters,
}

/// An open store.
///
/// When it is dropped or closed, transactions and trees of it that are still there can do nothing
/// any more: another store may be open on the same disk.
pub struct Store {
    pub(crate) core: Arc<Core>,
    writer: Option<Writer>,
    /// Stopped with the store.
    _detector: Option<Detector>,
    recovery: Recovery,
    /// Given back last. Those who only read have none.
    _claim: Option<Claim>,
}

impl Drop for Store {
    fn drop(&mut self) {
        drop(self.writer.take());
        self.core.log.close("the store was closed");
        self.core.pool.wait_for_writes();
        // A checkpoint that is being taken writes the head.
        drop(self.core.head.lock());
    }
}

fn io(action: &'static str) -> impl Fn(io::Error) -> StoreError {
    move |source| StoreError::Io { action, source }
}

impl Store {
    /// Makes a store in an empty directory. `id` tells its files from those of other stores; a
    /// number drawn at random will do.
    ///
    /// # Errors
    /// There are files already, log segments are too short for pages of this size, or a file
    /// cannot be made. What was made then is no store.
    pub fn create(
        disk: &Arc<dyn Disk>,
        id: LogId,
        options: &StoreOptions,
    ) -> Result<Store, StoreError> {
        if let Some(file) = disk.list().map_err(io("list the directory"))?.into_iter().next() {
            return Err(StoreError::NotEmpty { file });
        }
        check_segment(options)?;
        let claim = disk.claim().map_err(io("take the disk"))?;
        let data = disk.open(PAGES, Open::New).map_err(io("create the file of pages"))?;
        let copies = disk
            .open(crate::buffer::DOUBLEWRITE, Open::New)
            .map_err(io("create the doublewrite file"))?;
        let log = Arc::new(Log::create(Arc::clone(disk), LogSettings { id, ..options.log })?);
        disk.sync_directory().map_err(io("make durable the names in the directory"))?;
        let pool = make_pool(
            options,
            options.page_size,
            data,
            DoubleWrite::new(copies, Seed::of(id)),
            &log,
        )?;
        let (space, catalog) = (Space::new(), Catalog::new(&pool));
        Catalog::create(&pool, &log, &space)?;
        pool.write_all()?;
        let begin = log.end();
        let record = crate::record::Record::Checkpoint(crate::record::CheckpointTables {
            begin,
            next_transaction: 1,
            ..Default::default()
        });
        let record = log.append_with(64, |out| record.encode(out))?;
        log.force(record)?;
        // Last of all: without a head there is no store.
        let checkpoint = Checkpoint { record, needed: begin };
        let head = Head::create(&**disk, id, options.page_size, checkpoint)?;
        let transactions = Transactions::new(1);
        let (locks, range_modes) = make_locks(options)?;
        let core = Core {
            pool,
            log,
            space,
            catalog,
            transactions,
            locks,
            indexes: Indexes::default(),
            range_modes,
            head: Mutex::new(head),
            recovery_counters: IoCounters::default(),
        };
        Store::start(core, options, Recovery::default(), Some(claim))
    }

    /// Opens a store, and recovers it if it was not closed.
    ///
    /// # Errors
    /// There is none, it was written by a newer program, or something of it is damaged.
    pub fn open(disk: &Arc<dyn Disk>, options: &StoreOptions) -> Result<Store, StoreError> {
        let claim = disk.claim().map_err(io("take the disk"))?;
        let mut files = Files::open(disk)?;
        let (settings, from) = files.log(options);
        let (log, tail) = Log::open(Arc::clone(disk), settings, from)?;
        // What is read may be in the system's memory only, unless the store was closed.
        let repaired_pages =
            if tail.is_sealed && !tail.is_torn { files.repair()? } else { files.make_durable()? };
        let mut core = Core::new(files, log, options)?;
        let recovery = core.recover(repaired_pages)?;
        Store::start(core, options, recovery, Some(claim))
    }

    /// Opens a store that was closed, to be read only: nothing is written, so that it can lie on
    /// media that cannot be written, see
    /// [`FileDisk::open_read_only`](crate::disk::FileDisk::open_read_only). Whatever would change
    /// it fails with [`LogError::ReadOnly`].
    ///
    /// # Errors
    /// [`StoreError::NotClosed`], or as [`Store::open`].
    pub fn open_read_only(
        disk: &Arc<dyn Disk>,
        options: &StoreOptions,
    ) -> Result<Store, StoreError> {
        let files = Files::open(disk)?;
        let (settings, from) = files.log(options);
        let (log, tail) = Log::open_read_only(Arc::clone(disk), settings, from)?;
        if !tail.is_sealed || tail.is_torn {
            return Err(StoreError::NotClosed);
        }
        let mut core = Core::new(files, log, options)?;
        core.load_closed()?;
        let options = StoreOptions { background: false, ..options.clone() };
        Store::start(core, &options, Recovery::default(), None)
    }

    fn start(
        core: Core,
        options: &StoreOptions,
        recovery: Recovery,
        claim: Option<Claim>,
    ) -> Result<Store, StoreError> {
        let core = Arc::new(core);
        let writer = if options.background {
            Some(Writer::start(&core, options).map_err(io("start the background writer"))?)
        } else {
            None
        };
        let every = options.detect_every.filter(|_| !options.locks.check_on_block);
        let detector = every.map(|every| core.locks.start_detector(every)).transpose();
        let detector = detector.map_err(io("start the deadlock detector"))?;
        Ok(Store { core, writer, _detector: detector, recovery, _claim: claim })
    }

    /// What recovery did when the store was opened.
    #[must_use]
    pub fn recovery(&self) -> Recovery {
        self.recovery
    }

    /// The tree of that name, made if there is none.
    ///
    /// # Errors
    /// The name is empty or too long, or the store cannot read or write.
    pub fn create_tree(&self, name: &str) -> Result<TreeHandle, StoreError> {
        self.create_tree_of(name, None)
    }

    /// The index of that name, made empty if there is none.
    pub(crate) fn create_index_tree(
        &self,
        name: &str,
        indexed: TreeId,
    ) -> Result<TreeHandle, TxnError> {
        let tree = self.create_tree_of(name, Some(indexed))?;
        if tree.entry.indexed != Some(indexed) {
            return Err(TxnError::NameTaken { name: name.to_owned() });
        }
        Ok(tree)
    }

    fn create_tree_of(
        &self,
        name: &str,
        indexed: Option<TreeId>,
    ) -> Result<TreeHandle, StoreError> {
        let max = self.core.pool.page_size().key_max();
        if name.is_empty() || name.len() > max {
            return Err(StoreError::Name { len: name.len(), max });
        }
        let Core { pool, log, space, catalog, .. } = &*self.core;
        let (entry, is_new) = catalog.create_tree(name, indexed, pool, log, space)?;
        if is_new {
            log.force(log.end())?;
        }
        Ok(TreeHandle { core: Arc::clone(&self.core), entry })
    }

    /// The tree of that name, if there is one.
    #[must_use]
    pub fn tree(&self, name: &str) -> Option<TreeHandle> {
        let entry = self.core.catalog.named(name)?;
        Some(TreeHandle { core: Arc::clone(&self.core), entry })
    }

    /// The names of all trees, in the order in which they were made.
    #[must_use]
    pub fn trees(&self) -> Vec<String> {
        self.core.catalog.all().iter().map(|entry| entry.name.clone()).collect()
    }

    /// Takes a checkpoint.
    ///
    /// # Errors
    /// The store cannot write.
    pub fn checkpoint(&self) -> Result<(), StoreError> {
        self.core.checkpoint()
    }

    /// Writes all changed pages, then takes a checkpoint.
    ///
    /// # Errors
    /// The store cannot write.
    pub fn flush(&self) -> Result<(), StoreError> {
        self.core.write_back()?;
        self.core.checkpoint()
    }

    /// Gives the store another amount of memory for pages, at most what its options allow.
    ///
    /// # Errors
    /// Pages in memory that is given up cannot be written.
    pub fn set_buffer_bytes(&self, bytes: usize) -> Result<(), StoreError> {
        Ok(self.core.pool.resize(bytes / self.core.pool.page_size().bytes())?)
    }

    /// The mode of that name of [`StoreOptions::client_modes`]. A resource of the client's is
    /// locked in modes of its own, or in those of [multi-granularity locking](crate::lock), not in
    /// both.
    #[must_use]
    pub fn client_mode(&self, name: &str) -> Option<Mode> {
        self.core.locks.modes().mode(&format!("{CLIENT}{name}"))
    }

    /// What the log has done.
    #[must_use]
    pub fn log_statistics(&self) -> LogStatistics {
        self.core.log.statistics()
    }

    /// Looks at every page of every tree, while nobody changes any: whether all trees are sound,
    /// and exactly their pages are in use.
    ///
    /// # Errors
    /// Something is not as it should be, or cannot be read.
    pub fn check(&self) -> Result<Vec<(String, TreeShape)>, StoreError> {
        self.core.check()
    }

    /// Writes everything and closes the store, so that opening it again needs no recovery.
    ///
    /// # Errors
    /// Transactions are under way, or the store cannot write. It is closed in any case, and the
    /// next opening recovers it.
    pub fn close(mut self) -> Result<(), StoreError> {
        drop(self.writer.take());
        if matches!(self.core.log.check_writable(), Err(LogError::ReadOnly)) {
            return Ok(());
        }
        // Transactions that could not be rolled back then count as under way.
        self.core.log.check()?;
        let busy = self.core.transactions.count();
        if busy > 0 {
            return Err(StoreError::Busy(busy));
        }
        self.flush()?;
        Ok(self.core.log.seal()?)
    }
}

/// What the names of the client's modes begin with.
const CLIENT: &str = "client:";

fn make_locks(
    options: &StoreOptions,
) -> Result<(Arc<LockManager<Lockable>>, RangeModes), StoreError> {
    let bad = |error| StoreError::Modes(Box::new(error));
    let (mut table, modes) = mode_table().map_err(bad)?;
    if let Some(client) = &options.client_modes {
        table = table.beside(CLIENT, client, modes.strongest).map_err(bad)?;
    }
    let parent = |parts_max| {
        move |resource: &Lockable| match *resource {
            Lockable::Key(tree, _) | Lockable::End(tree) => {
                Some(Parent { resource: Lockable::Tree(tree), parts_max })
            }
            Lockable::Store | Lockable::Tree(_) | Lockable::Client(..) => None,
        }
    };
    let escalation = options.escalate_at.map(|parts_max| Escalation {
        parent: Box::new(parent(parts_max)),
        covering: Box::new(covering(&table)),
    });
    let is_whole = |resource: &Lockable| matches!(resource, Lockable::Store | Lockable::Tree(_));
    let hierarchy = Hierarchy { is_whole, escalation };
    Ok((LockManager::with_hierarchy(table, options.locks, hierarchy), modes))
}

fn make_pool(
    options: &StoreOptions,
    size: PageSize,
    data: Arc<dyn File>,
    copies: DoubleWrite,
    log: &Arc<Log>,
) -> Result<Pool, StoreError> {
    let frames = |bytes: usize| bytes / size.bytes();
    let max = frames(options.buffer_bytes_max.max(options.buffer_bytes));
    Pool::new(size, frames(options.buffer_bytes), max, data, copies, Arc::clone(log))
        .map_err(io("look at the file of pages"))
}

/// The files of a store, apart from its log.
struct Files {
    head: Head,
    data: Arc<dyn File>,
    copies: DoubleWrite,
}

impl Files {
    fn open(disk: &Arc<dyn Disk>) -> Result<Files, StoreError> {
        let head = Head::open(&**disk)?;
        let data = disk.open(PAGES, Open::Existing).map_err(io("open the file of pages"))?;
        let copies = disk
            .open(crate::buffer::DOUBLEWRITE, Open::Existing)
            .map_err(io("open the doublewrite file"))?;
        let copies = DoubleWrite::new(copies, Seed::of(head.id));
        Ok(Files { head, data, copies })
    }

    /// How the log is to be opened, and from where on.
    fn log(&self, options: &StoreOptions) -> (LogSettings, Lsn) {
        let Checkpoint { record, needed } = self.head.checkpoint;
        (LogSettings { id: self.head.id, ..options.log }, needed.min(record))
    }

    /// Puts torn pages back; how many.
    fn repair(&mut self) -> Result<usize, StoreError> {
        let size = self.head.page_size.bytes();
        self.copies.repair(&*self.data, size).map_err(io("repair torn pages"))
    }

    /// The same, and makes durable what recovery relies on.
    fn make_durable(&mut self) -> Result<usize, StoreError> {
        self.head.make_durable()?;
        let size = self.head.page_size.bytes();
        self.copies.renew(&*self.data, size).map_err(io("make durable the pages written last"))
    }
}

/// Whether every record fits into a segment. The longest splits a node: it holds the entries of a
/// page and some fences, which together are shorter than two pages.
fn check_segment(options: &StoreOptions) -> Result<(), StoreError> {
    let page_bytes = options.page_size.bytes();
    let least = (2 * page_bytes as u64 + 1024).next_multiple_of(512);
    let segment_bytes = options.log.segment_bytes;
    if segment_bytes < least {
        return Err(StoreError::SegmentTooShort { segment_bytes, page_bytes, least });
    }
    Ok(())
}

impl Core {
    /// A store that was opened, before its recovery.
    fn new(files: Files, log: Log, options: &StoreOptions) -> Result<Core, StoreError> {
        let Files { head, data, copies } = files;
        let log = Arc::new(log);
        let pool = make_pool(options, head.page_size, data, copies, &log)?;
        let (space, catalog) = (Space::new(), Catalog::new(&pool));
        let (locks, range_modes) = make_locks(options)?;
        Ok(Core {
            pool,
            log,
            space,
            catalog,
            transactions: Transactions::new(1),
            locks,
            indexes: Indexes::default(),
            range_modes,
            head: Mutex::new(head),
            recovery_counters: IoCounters::default(),
        })
    }

    /// Reads what a store that was closed holds.
    fn load_closed(&mut self) -> Result<(), StoreError> {
        let checkpoint = self.head.lock().checkpoint;
        let analysis = self.analyse(checkpoint.record)?;
        if !analysis.is_empty() {
            return Err(StoreError::NotClosed);
        }
        self.transactions = Transactions::new(analysis.next_transaction);
        self.space.check(&self.pool)?;
        Ok(self.catalog.load(&self.pool, &self.log, &self.space)?)
    }

    fn recover(&mut self, repaired_pages: usize) -> Result<Recovery, StoreError> {
        let mut recovery = Recovery { repaired_pages, ..Recovery::default() };
        let checkpoint = self.head.lock().checkpoint;
        let analysis = self.analyse(checkpoint.record)?;
        self.transactions = Transactions::new(analysis.next_transaction);
        self.redo(&analysis, &mut recovery)?;
        self.space.check(&self.pool)?;
        self.catalog.load(&self.pool, &self.log, &self.space)?;
        recovery.rolled_back = self.undo(&analysis)?;
        if recovery.pages > 0 || recovery.rolled_back > 0 {
            self.write_back()?;
            self.checkpoint()?;
        }
        Ok(recovery)
    }

    pub(crate) fn on<'s>(&'s self, entry: &'s TreeEntry) -> Tree<'s> {
        Tree { pool: &self.pool, log: &self.log, space: &self.space, entry }
    }

    fn check(&self) -> Result<Vec<(String, TreeShape)>, StoreError> {
        let mut pages: Vec<PageId> = Vec::new();
        let mut shapes = Vec::new();
        for entry in [self.catalog.own()].into_iter().chain(self.catalog.all()) {
            let shape = self.on(&entry).check(&mut |page| pages.push(page))?;
            let shape = shape.map_err(|unsound| StoreError::Unsound {
                name: entry.name.clone(),
                page: unsound.page,
                what: unsound.what,
            })?;
            shapes.push((entry.name.clone(), shape));
        }
        let unsound = |page, what| StoreError::Unsound { name: String::new(), page, what };
        pages.sort_unstable();
        if let Some(pair) = pages.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(unsound(pair[0], "it is in use twice"));
        }
        for &page in &pages {
            if !self.space.is_used(&self.pool, page)? {
                return Err(unsound(page, "it is in use, and its map says it is free"));
            }
        }
        let (used, own) = (self.space.used(&self.pool)?, self.space.own(&self.pool)?);
        if used != own + pages.len() as u64 {
            return Err(unsound(
                PageId(used),
                "so many pages are in use by the maps, and not all by trees",
            ));
        }
        shapes.remove(0);
        Ok(shapes)
    }
}

/// A tree of a store.
#[derive(Clone)]
pub struct TreeHandle {
    core: Arc<Core>,
    entry: Arc<TreeEntry>,
}

impl TreeHandle {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.entry.name
    }

    pub(crate) fn entry(&self) -> &TreeEntry {
        &self.entry
    }

    /// It, to be worked on.
    pub(crate) fn tree(&self) -> Tree<'_> {
        self.core.on(&self.entry)
    }

    pub(crate) fn shared_entry(&self) -> Arc<TreeEntry> {
        Arc::clone(&self.entry)
    }

    pub(crate) fn is_of(&self, core: &Arc<Core>) -> bool {
        Arc::ptr_eq(&self.core, core)
    }

    /// How full nodes are split.
    #[must_use]
    pub fn split_policy(&self) -> SplitPolicy {
        self.entry.split_policy()
    }

    /// Splits full nodes otherwise from now on.
    ///
    /// # Errors
    /// The store cannot write.
    pub fn set_split_policy(&self, policy: SplitPolicy) -> Result<(), StoreError> {
        self.entry.set_split_policy(policy);
        self.save()
    }

    /// Merges nodes otherwise from now on.
    ///
    /// # Errors
    /// The store cannot write.
    pub fn set_deletion(&self, deletion: Deletion) -> Result<(), StoreError> {
        self.entry.set_deletion(deletion);
        self.save()
    }

    fn save(&self) -> Result<(), StoreError> {
        let Core { pool, log, space, catalog, .. } = &*self.core;
        Ok(catalog.save(&self.entry, pool, log, space)?)
    }

    /// How full each leaf is, in the order of keys, while others go on.
    ///
    /// # Errors
    /// A page cannot be read.
    pub fn fills(&self) -> Result<Vec<LeafFill>, StoreError> {
        Ok(self.core.on(&self.entry).fills()?)
    }

    /// What was read and written for the tree until now.
    #[must_use]
    pub fn io(&self) -> IoCounts {
        self.entry.counters.counts()
    }
}

/// The thread that writes pages ahead of need and takes checkpoints.
struct Writer {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Stop {
    is_asked: Mutex<bool>,
    bell: Condvar,
}

/// How long the writer rests when there was nothing to write.
const REST: Duration = Duration::from_millis(50);

impl Writer {
    fn start(core: &Arc<Core>, options: &StoreOptions) -> io::Result<Writer> {
        let stop = Arc::new(Stop::default());
        let (core, stopped) = (Arc::clone(core), Arc::clone(&stop));
        let checkpoint_bytes = options.checkpoint_bytes;
        let has_failed = AtomicBool::new(false);
        let thread =
            std::thread::Builder::new().name("tidegate-writer".into()).spawn(move || {
                let mut last = core.log_end();
                let mut is_idle = false;
                while !stopped.wait(if is_idle { REST } else { Duration::ZERO }) {
                    match write_some(&core, &mut last, checkpoint_bytes) {
                        Ok(written) => is_idle = written == 0,
                        Err(error) => {
                            is_idle = true;
                            // Whoever uses the store is told the same; once is enough here.
                            if !has_failed.swap(true, Ordering::Relaxed) {
                                tracing::error!("the background writer: {error}");
                            }
                        }
                    }
                }
            })?;
        Ok(Writer { stop, thread: Some(thread) })
    }
}

fn write_some(core: &Core, last: &mut Lsn, checkpoint_bytes: u64) -> Result<usize, StoreError> {
    if core.log_end().0 - last.0 > checkpoint_bytes {
        core.write_back()?;
        core.checkpoint()?;
        *last = core.log_end();
    }
    Ok(core.pool.write_ahead()?)
}

impl Stop {
    /// Waits so long, or until the end is asked for; whether it is.
    fn wait(&self, rest: Duration) -> bool {
        let mut is_asked = self.is_asked.lock();
        if !*is_asked && !rest.is_zero() {
            self.bell.wait_for(&mut is_asked, rest);
        }
        *is_asked
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        *self.stop.is_asked.lock() = true;
        self.stop.bell.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the background writer panicked");
        }
    }
}

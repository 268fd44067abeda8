//! The store: one directory with pages, a log, and what holds them together.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `head` | format, size of pages, position of the last checkpoint |
//! | `data.pages` | the pages of all trees |
//! | `doublewrite.pages` | copies of the pages being written |
//! | `log-….wal` | the log |

mod recovery;
mod writer;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate_random::Draw;
use tidegate_runtime::{entropy, thread};

use crate::allocator::PageAllocator;
use crate::btree::TreeShape;
use crate::buffer::{DOUBLEWRITE, DoubleWrite, FRAMES_MIN, PAGES, Pool};
use crate::core::{
    Catalog, Checkpoint, Core, HEAD, Head, HeadError, IndexHandle, KeyExtractor, KeyLocks,
    LabelHierarchy, LockSpace, Lockable, StoreError, TemporaryFiles, TreeHandle, TreeOptions,
};
use crate::disk::{Claim, Disk, File, FileDisk, IoMode, Open};
use crate::lock::{Detector, LockManager, LockSettings, LockStatistics, ModeTable};
use crate::page::{PageId, PageSize, Seed};
use crate::periodic::Periodic;
use crate::record::{CheckpointTables, Record};
use crate::txn::{self, Sorter, Transaction, TxnError, TxnOptions};
use crate::wal::{Log, LogError, LogId, LogSettings, LogStatistics, Lsn};

pub use recovery::Recovery;
use writer::start_writer;

/// Settings of a store. The size of pages and of log segments is fixed when it is created.
///
/// ```
/// # use tidegate_engine::StoreOptions;
/// let options = StoreOptions::default().buffer_bytes(16 << 20).escalate_at(None);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StoreOptions {
    /// The size of a page. It is fixed when the store is created.
    pub page_size: PageSize,
    /// Memory for pages, in bytes; at least 64 pages.
    pub buffer_bytes: usize,
    /// What [`Store::set_buffer_bytes`] may ask for at most.
    pub buffer_bytes_max: usize,
    /// Settings of the log.
    pub log: LogSettings,
    /// Settings of the lock table.
    pub locks: LockSettings,
    /// How often a thread looks for deadlocks, where requests that have to wait do not look
    /// themselves ([`LockSettings::check_on_block`]); `None` for never.
    pub detect_every: Option<Duration>,
    /// A transaction that holds so many locks on keys of a tree locks the tree in their place, if
    /// no other transaction is in its way; `None` for never. `SQL Server` does so at 5,000 as well.
    pub escalate_at: Option<u32>,
    /// A checkpoint is taken when so many bytes were logged since the last one.
    pub checkpoint_bytes: u64,
    /// How many threads write pages of a batch at the same time, at least 1: about as many as there
    /// are disks below, or requests that one takes at a time. With 1 no thread is started for it.
    pub io_writers: usize,
    /// Whether pages are first written to the doublewrite file. Without, a crash in the middle of
    /// a write leaves a torn page, and the store cannot be recovered with it: it is lost but for
    /// its backup. Switch it off only where the disk and the file system write pages of
    /// [`StoreOptions::page_size`] as a whole or not at all, even when the power fails. It can be
    /// chosen anew each time the store is opened.
    pub doublewrite: bool,
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
            checkpoint_bytes: 512 << 20,
            io_writers: 4,
            doublewrite: true,
            background: true,
        }
    }
}

setters! {
    StoreOptions {
        page_size: PageSize,
        buffer_bytes: usize,
        buffer_bytes_max: usize,
        log: LogSettings,
        locks: LockSettings,
        detect_every: Option<Duration>,
        escalate_at: Option<u32>,
        checkpoint_bytes: u64,
        io_writers: usize,
        doublewrite: bool,
        background: bool,
    }
}

/// An open store.
///
/// When it is dropped or closed, transactions and trees of it that are still there can do nothing
/// any more: another store may be open on the same disk.
pub struct Store {
    core: Arc<Core>,
    /// Writes pages ahead of need and takes checkpoints.
    writer: Option<Periodic>,
    /// Stopped with the store.
    _detector: Option<Detector>,
    recovery: Recovery,
    /// Released last. A store that is only read has none.
    _claim: Option<Claim>,
}

impl Drop for Store {
    fn drop(&mut self) {
        drop(self.writer.take());
        self.core.log.close("the store was closed");
        self.core.pool.stop_writing();
        // A checkpoint that is being taken writes the head.
        drop(self.core.head.lock());
    }
}

/// Checks that a directory has a store, before a lock is made in it.
fn check_has_store(path: &Path) -> Result<(), StoreError> {
    let has_head = path.join(HEAD).try_exists().map_err(io("look for the store"))?;
    if has_head { Ok(()) } else { Err(HeadError::Missing.into()) }
}

fn io(action: &'static str) -> impl Fn(io::Error) -> StoreError {
    move |source| StoreError::Io { action, source }
}

/// Creating, opening and closing.
impl Store {
    /// Opens the store in a directory, or makes one if the directory is empty or does not exist.
    /// Pages are read and written through the system's cache; for direct input and output give a
    /// [`FileDisk`] to [`Store::open`].
    ///
    /// # Errors
    /// Those of [`Store::open`] and [`Store::create`].
    pub fn open_or_create(
        path: impl AsRef<Path>,
        options: &StoreOptions,
    ) -> Result<Store, StoreError> {
        let path = path.as_ref();
        match FileDisk::create(path, IoMode::Buffered) {
            // The keys of the standard library's hash maps are drawn by the system.
            Ok(disk) => {
                let id = LogId(entropy());
                Store::create(&(Arc::new(disk) as Arc<dyn Disk>), id, options)
            }
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                Store::open_directory(path, options)
            }
            Err(error) => Err(io("make the store")(error)),
        }
    }

    /// Opens the store in a directory, through the system's cache. Makes none, and leaves a
    /// directory that has no store as it was.
    ///
    /// # Errors
    /// [`HeadError::Missing`] if there is no store, or as [`Store::open`].
    pub fn open_directory(
        path: impl AsRef<Path>,
        options: &StoreOptions,
    ) -> Result<Store, StoreError> {
        check_has_store(path.as_ref())?;
        let disk = FileDisk::open(path.as_ref(), IoMode::Buffered);
        let disk = Arc::new(disk.map_err(io("open the store"))?);
        Store::open(&(disk as Arc<dyn Disk>), options)
    }

    /// Opens the store in a directory to be read only, as [`Store::open_read_only`] does. Several
    /// processes may do so at the same time.
    ///
    /// # Errors
    /// [`HeadError::Missing`] if there is no store, or as [`Store::open_read_only`].
    pub fn open_directory_read_only(
        path: impl AsRef<Path>,
        options: &StoreOptions,
    ) -> Result<Store, StoreError> {
        check_has_store(path.as_ref())?;
        let disk = FileDisk::open_read_only(path.as_ref());
        let disk = Arc::new(disk.map_err(io("open the store"))?);
        Store::open_read_only(&(disk as Arc<dyn Disk>), options)
    }

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
        let key_locks = key_locks(options)?;
        let claim = disk.claim().map_err(io("take the disk"))?;
        let data = disk.open(PAGES, Open::New).map_err(io("create the file of pages"))?;
        let copies =
            disk.open(DOUBLEWRITE, Open::New).map_err(io("create the doublewrite file"))?;
        let copies = DoubleWrite::new(copies, Seed::of(id), options.doublewrite);
        let log = Arc::new(Log::create(Arc::clone(disk), LogSettings { id, ..options.log })?);
        disk.sync_directory().map_err(io("make durable the names in the directory"))?;
        let pool = make_pool(options, options.page_size, data, copies, &log)?;
        Catalog::create(&pool, &log, &PageAllocator::new())?;
        pool.write_all()?;
        let begin = log.end();
        let tables = CheckpointTables { begin, next_transaction: 1, ..Default::default() };
        let record = log.append_with(64, |out| Record::Checkpoint(tables).encode(out))?;
        log.force(record)?;
        // Last of all: without a head there is no store.
        let checkpoint = Checkpoint { record, needed: begin };
        let head = Head::create(&**disk, id, options.page_size, checkpoint)?;
        let core = Core::new(disk, pool, log, head, key_locks);
        Store::start(core, options, Recovery::default(), Some(claim))
    }

    /// Opens a store, and recovers it if it was not closed.
    ///
    /// # Errors
    /// There is none, it was written by a newer program, or something of it is damaged.
    pub fn open(disk: &Arc<dyn Disk>, options: &StoreOptions) -> Result<Store, StoreError> {
        let claim = disk.claim().map_err(io("take the disk"))?;
        TemporaryFiles::remove_all(&**disk).map_err(io("remove temporary files"))?;
        let mut files = Files::open(disk, options)?;
        let (settings, from) = files.log(options);
        let (log, tail) = Log::open(Arc::clone(disk), settings, from)?;
        // What is read may be in the system's memory only, unless the store was closed.
        let repaired_pages =
            if tail.is_sealed && !tail.is_torn { files.repair()? } else { files.make_durable()? };
        files.discard_copies()?;
        let mut core = files.into_core(disk, log, options)?;
        // Before pages are written: their copies are for programs that know this version.
        core.head.lock().upgrade()?;
        let recovery = core.recover(repaired_pages)?;
        Store::start(core, options, recovery, Some(claim))
    }

    /// Opens a store that was closed, to be read only. Nothing is written, so the store can lie on
    /// media that cannot be written; see
    /// [`FileDisk::open_read_only`](crate::disk::FileDisk::open_read_only). Whatever would change
    /// it fails with [`LogError::ReadOnly`].
    ///
    /// # Errors
    /// [`StoreError::NotClosed`], or as [`Store::open`].
    pub fn open_read_only(
        disk: &Arc<dyn Disk>,
        options: &StoreOptions,
    ) -> Result<Store, StoreError> {
        let files = Files::open(disk, options)?;
        let (settings, from) = files.log(options);
        let (log, tail) = Log::open_read_only(Arc::clone(disk), settings, from)?;
        if !tail.is_sealed || tail.is_torn {
            return Err(StoreError::NotClosed);
        }
        let mut core = files.into_core(disk, log, options)?;
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
        let start = || start_writer(&core, options.checkpoint_bytes);
        let writer = options.background.then(start).transpose();
        let writer = writer.map_err(io("start the background writer"))?;
        let every = options.detect_every.filter(|_| !options.locks.check_on_block);
        let detector = every.map(|every| core.locks.start_detector(every)).transpose();
        let detector = detector.map_err(io("start the deadlock detector"))?;
        Ok(Store { core, writer, _detector: detector, recovery, _claim: claim })
    }

    /// Returns what recovery did when the store was opened.
    #[must_use]
    pub fn recovery(&self) -> Recovery {
        self.recovery
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

/// Trees and transactions.
impl Store {
    /// Returns the tree of that name. Makes an empty one if there is none.
    ///
    /// # Errors
    /// The name is empty, too long or that of a tree that is being dropped, or the store cannot
    /// read or write.
    pub fn create_tree(&self, name: &str) -> Result<TreeHandle, StoreError> {
        self.create_tree_with(name, TreeOptions::default())
    }

    /// Returns the tree of that name. Makes an empty one with these settings if there is none; one
    /// that exists keeps its own ([`TreeHandle::key_locking`]).
    ///
    /// # Errors
    /// As [`Store::create_tree`].
    pub fn create_tree_with(
        &self,
        name: &str,
        options: TreeOptions,
    ) -> Result<TreeHandle, StoreError> {
        self.core.create_tree(name, None, options)
    }

    /// Drops a tree with its indexes, or an index. Returns whether there was one of that name. Its
    /// pages can be used by other trees again. Handles of it return [`StoreError::Dropped`].
    ///
    /// It waits until no transaction uses the tree. When it returns, that the tree is gone is
    /// durable, also if the transactions of others are rolled back; after a crash the tree is there
    /// as it was or it is gone, with all its pages. After an error of the store the pages may still
    /// be in use: call it again, or open the store again. Other trees can be used meanwhile.
    ///
    /// # Errors
    /// [`TxnError::Conflict`] if transactions use the tree for longer than locks are waited for, or
    /// there is a deadlock: the tree is as it was. Or the store cannot read or write.
    pub fn drop_tree(&self, name: &str) -> Result<bool, TxnError> {
        txn::drop_tree(&self.core, name)
    }

    /// Returns the tree of that name, if there is one.
    #[must_use]
    pub fn tree(&self, name: &str) -> Option<TreeHandle> {
        Some(self.core.handle(self.core.catalog.named(name)?))
    }

    /// Returns the names of all trees, in the order in which they were made.
    #[must_use]
    pub fn trees(&self) -> Vec<String> {
        self.core.catalog.all().iter().map(|entry| entry.name.clone()).collect()
    }

    /// Returns the index of that name of `tree`, with an entry for every row. Makes the index if
    /// there is none. After the store was opened this has to be called, with the same function as
    /// before, before rows can be changed.
    ///
    /// Making an index locks the tree and takes one transaction over all rows.
    ///
    /// # Errors
    /// The name is empty, too long or another tree's. Or there was a conflict, an entry is too
    /// long, or the store failed: then the index has no entries, and this has to be called again.
    pub fn create_index(
        &self,
        tree: &TreeHandle,
        name: &str,
        extract: KeyExtractor,
    ) -> Result<IndexHandle, TxnError> {
        txn::create_index(&self.core, tree, name, extract)
    }

    /// Appends entries to a tree and returns how many there were. Their keys ascend and are above
    /// all keys of the tree. Each leaf is filled to `fill_percent`, from 50 to 100. The tree is
    /// locked meanwhile.
    ///
    /// This is several times faster than inserts, and is not undone: after an error or a crash the
    /// tree has the first part of the entries, in order. When it returns, they are durable.
    ///
    /// # Errors
    /// [`TxnError::FillPercent`]; [`TxnError::NotAscending`]; [`TxnError::Indexed`], because
    /// entries of indexes would not come in order: make the index afterwards; or another of
    /// [`TxnError`].
    pub fn bulk_load<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        tree: &TreeHandle,
        fill_percent: u8,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Result<u64, TxnError> {
        let entries = entries.into_iter().map(Ok::<_, TxnError>);
        txn::bulk_load(&self.core, tree, fill_percent, entries)
    }

    /// Appends entries to a tree as [`Store::bulk_load`] does, until one of them is an error. The
    /// tree has entries that came before it, but not all of them have to be there.
    ///
    /// # Errors
    /// The first error of `entries`, or as [`Store::bulk_load`].
    pub fn try_bulk_load<K: AsRef<[u8]>, V: AsRef<[u8]>, E: From<TxnError>>(
        &self,
        tree: &TreeHandle,
        fill_percent: u8,
        entries: impl IntoIterator<Item = Result<(K, V), E>>,
    ) -> Result<u64, E> {
        txn::bulk_load(&self.core, tree, fill_percent, entries.into_iter())
    }

    /// Sorts entries that come in any order, and appends them to a tree as [`Store::bulk_load`]
    /// does. Returns how many were appended. What does not fit into `memory_bytes`, which are
    /// raised to 256 KiB, goes to a temporary file in the directory of the store.
    ///
    /// An entry that comes several times is kept once.
    ///
    /// # Errors
    /// [`TxnError::KeyExists`] if two entries have one key and different values, or as
    /// [`Store::bulk_load`]: the lowest key has to be above all keys of the tree.
    pub fn bulk_load_unsorted<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        tree: &TreeHandle,
        fill_percent: u8,
        memory_bytes: usize,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Result<u64, TxnError> {
        let mut sorter = self.sorter(memory_bytes);
        for (key, value) in entries {
            sorter.push(key.as_ref(), value.as_ref())?;
        }
        self.bulk_load_sorted_by(tree, fill_percent, sorter)
    }

    /// Returns a sorter that keeps up to so many bytes of entries in memory, at least 256 KiB, and
    /// the others in a temporary file: for entries that are produced while others are loaded.
    #[must_use]
    pub fn sorter(&self, memory_bytes: usize) -> Sorter {
        Sorter::new(&self.core, memory_bytes)
    }

    /// Appends the entries of a sorter to a tree, as [`Store::bulk_load_unsorted`] does.
    ///
    /// # Errors
    /// As [`Store::bulk_load_unsorted`]; [`TxnError::OtherStore`] for the sorter of another store.
    pub fn bulk_load_sorted_by(
        &self,
        tree: &TreeHandle,
        fill_percent: u8,
        sorter: Sorter,
    ) -> Result<u64, TxnError> {
        if !sorter.is_of(&self.core) {
            return Err(TxnError::OtherStore);
        }
        txn::bulk_load(&self.core, tree, fill_percent, sorter.finish()?)
    }

    /// Runs a transaction with the default options and commits it. After a conflict it is rolled
    /// back and run again, as [`Store::transaction_with`] says.
    ///
    /// # Errors
    /// The error of `run`, or of the commit.
    pub fn transaction<R>(
        &self,
        run: impl FnMut(&mut Transaction) -> Result<R, TxnError>,
    ) -> Result<R, TxnError> {
        self.transaction_with(TxnOptions::default(), run)
    }

    /// Runs a transaction and commits it. After an error it is rolled back. If there was a conflict
    /// with another transaction, it is run again, after a pause that is drawn at random and grows,
    /// at most [`TxnOptions::retries_max`] times. So `run` should have no effect but on the store.
    ///
    /// # Errors
    /// The error of `run`, or of the commit.
    pub fn transaction_with<R, E: From<TxnError>>(
        &self,
        options: TxnOptions,
        mut run: impl FnMut(&mut Transaction) -> Result<R, E>,
    ) -> Result<R, E> {
        let mut retries = 0;
        loop {
            let mut transaction = self.begin(options);
            let result = run(&mut transaction);
            let has_conflict = transaction.has_conflict();
            let result = match result {
                Ok(value) => transaction.commit().map(|()| value).map_err(E::from),
                Err(error) => {
                    drop(transaction);
                    Err(error)
                }
            };
            if !has_conflict || retries == options.retries_max {
                return result;
            }
            retries += 1;
            pause(retries);
        }
    }

    /// Begins a transaction.
    #[must_use]
    pub fn begin(&self, options: TxnOptions) -> Transaction {
        Transaction::begin(&self.core, options)
    }
}

/// What the client of the store locks for itself.
impl Store {
    /// Makes a space of labels that transactions lock by [`Transaction::locks_in`], in modes of its
    /// own. It lives as long as the store is open, and is not stored.
    ///
    /// # Errors
    /// [`StoreError::LockSpaceExists`].
    pub fn create_lock_space(
        &self,
        name: &str,
        modes: ModeTable,
        hierarchy: Arc<dyn LabelHierarchy>,
    ) -> Result<LockSpace, StoreError> {
        self.core.create_lock_space(name, modes, hierarchy)
    }

    /// Replaces a space by one with the same name, other modes and another hierarchy. From then on
    /// requests in the old one fail with [`StoreError::LockSpaceReplaced`].
    ///
    /// # Errors
    /// [`StoreError::LockSpaceInUse`] while a transaction that has used the space is under way,
    /// even one that has released its locks; [`StoreError::LockSpaceReplaced`];
    /// [`TxnError::OtherStore`].
    pub fn replace_lock_space(
        &self,
        space: &LockSpace,
        modes: ModeTable,
        hierarchy: Arc<dyn LabelHierarchy>,
    ) -> Result<LockSpace, TxnError> {
        if !space.is_of(&self.core) {
            return Err(TxnError::OtherStore);
        }
        Ok(self.core.replace_lock_space(space, modes, hierarchy)?)
    }

    /// Returns the present space of that name, if there is one.
    #[must_use]
    pub fn lock_space(&self, name: &str) -> Option<LockSpace> {
        self.lock_spaces().into_iter().find(|space| space.name() == name)
    }

    /// Returns the present spaces, in the order in which their names came up.
    #[must_use]
    pub fn lock_spaces(&self) -> Vec<LockSpace> {
        self.core.spaces.all()
    }
}

/// Maintenance and figures.
impl Store {
    /// Returns the size of the store's pages. [`PageSize::key_max`] is the longest key of a tree.
    #[must_use]
    pub fn page_size(&self) -> PageSize {
        self.core.pool.page_size()
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
        self.core.pool.write_all()?;
        self.core.checkpoint()
    }

    /// Sets the memory for pages, at most to [`StoreOptions::buffer_bytes_max`].
    ///
    /// # Errors
    /// Pages in memory that is given up cannot be written.
    pub fn set_buffer_bytes(&self, bytes: usize) -> Result<(), StoreError> {
        Ok(self.core.pool.resize(bytes / self.core.pool.page_size().bytes())?)
    }

    /// Returns the lock table of keys and trees, with the locks of all transactions.
    #[must_use]
    pub fn locks(&self) -> &Arc<LockManager<Lockable>> {
        &self.core.locks
    }

    /// Returns what was counted in all lock tables: that of keys and trees, and the present
    /// [spaces](Store::lock_spaces).
    #[must_use]
    pub fn lock_statistics(&self) -> LockStatistics {
        let spaces = self.core.spaces.all();
        let in_spaces = spaces.iter().map(LockSpace::statistics);
        [self.core.locks.statistics()].into_iter().chain(in_spaces).sum()
    }

    /// Returns what the log has done since the store was opened.
    #[must_use]
    pub fn log_statistics(&self) -> LogStatistics {
        self.core.log.statistics()
    }

    /// Checks every page of every tree, while no transaction changes any: that all trees are sound,
    /// and that exactly their pages are in use. Returns the shape of each tree.
    ///
    /// # Errors
    /// Something is not as it should be, or cannot be read.
    pub fn check(&self) -> Result<Vec<(String, TreeShape)>, StoreError> {
        let core = &self.core;
        let mut pages: Vec<PageId> = Vec::new();
        let mut shapes = Vec::new();
        let trees = [core.catalog.own()].into_iter().chain(core.catalog.all());
        for entry in trees.chain(core.catalog.values_trees()) {
            let shape = core.tree(&entry).check(&mut |page| pages.push(page))?;
            let shape = shape.map_err(|unsound| StoreError::Unsound {
                name: entry.name.clone(),
                page: unsound.page,
                what: unsound.what,
            })?;
            core.check_apart(&entry)?;
            if entry.values_of.is_none() {
                shapes.push((entry.name.clone(), shape));
            }
        }
        for entry in core.catalog.dropping() {
            core.tree(&entry).parts(&mut |page| pages.push(page))?;
        }
        let unsound = |page, what| StoreError::Unsound { name: String::new(), page, what };
        pages.sort_unstable();
        if let Some(pair) = pages.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(unsound(pair[0], "it is in use twice"));
        }
        for &page in &pages {
            if !core.allocator.is_used(&core.pool, page)? {
                return Err(unsound(page, "it is in use, and its map says it is free"));
            }
        }
        let (used, own) = core.allocator.used(&core.pool)?;
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

/// The pause before the first retry is below this, and each bound is twice the one before.
const PAUSE_MIN: Duration = Duration::from_micros(50);

/// No pause is longer than 2^`PAUSE_DOUBLINGS_MAX` times [`PAUSE_MIN`]: 12.8 ms.
const PAUSE_DOUBLINGS_MAX: u32 = 8;

/// Waits before a transaction is run again. What conflicted once would often conflict again if all
/// of them began again at once.
fn pause(retries: u32) {
    let bound = PAUSE_MIN * (1 << (retries - 1).min(PAUSE_DOUBLINGS_MAX));
    thread::sleep(bound.mul_f64(Draw::from_bits(entropy()).value()));
}

fn key_locks(options: &StoreOptions) -> Result<KeyLocks, StoreError> {
    Ok(KeyLocks::new(options.locks, options.escalate_at)?)
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
    let (frames, writers) = (frames(options.buffer_bytes).max(FRAMES_MIN), options.io_writers);
    Pool::new(size, frames, max, data, writers, copies, Arc::clone(log))
        .map_err(io("read the length of the file of pages"))
}

/// Checks that every record fits into a segment. The longest splits a node: it holds the entries
/// of a page and some fences, which together are shorter than two pages.
fn check_segment(options: &StoreOptions) -> Result<(), StoreError> {
    let page_bytes = options.page_size.bytes();
    let least = (2 * page_bytes as u64 + 1024).next_multiple_of(512);
    let segment_bytes = options.log.segment_bytes;
    if segment_bytes < least {
        return Err(StoreError::SegmentTooShort { segment_bytes, page_bytes, least });
    }
    Ok(())
}

/// The files of a store, apart from its log.
struct Files {
    head: Head,
    data: Arc<dyn File>,
    copies: DoubleWrite,
}

impl Files {
    fn open(disk: &Arc<dyn Disk>, options: &StoreOptions) -> Result<Files, StoreError> {
        let head = Head::open(&**disk)?;
        let data = disk.open(PAGES, Open::Existing).map_err(io("open the file of pages"))?;
        let copies =
            disk.open(DOUBLEWRITE, Open::Existing).map_err(io("open the doublewrite file"))?;
        let (seed, size) = (Seed::of(head.id), head.page_size.bytes());
        let copies = DoubleWrite::open(copies, seed, options.doublewrite, size);
        let copies = copies.map_err(io("read the doublewrite file"))?;
        Ok(Files { head, data, copies })
    }

    /// Returns the settings with which the log is opened, and the position to open it from.
    fn log(&self, options: &StoreOptions) -> (LogSettings, Lsn) {
        let Checkpoint { record, needed } = self.head.checkpoint;
        (LogSettings { id: self.head.id, ..options.log }, needed.min(record))
    }

    /// Puts torn pages back. Returns how many.
    fn repair(&mut self) -> Result<usize, StoreError> {
        let size = self.head.page_size.bytes();
        self.copies.repair(&*self.data, size).map_err(io("repair torn pages"))
    }

    /// Puts torn pages back, and makes durable what recovery relies on. Returns how many.
    fn make_durable(&mut self) -> Result<usize, StoreError> {
        self.head.make_durable()?;
        let size = self.head.page_size.bytes();
        self.copies.renew(&*self.data, size).map_err(io("make durable the pages written last"))
    }

    /// Gives up the copies if none will be written. All pages are durable and whole.
    fn discard_copies(&mut self) -> Result<(), StoreError> {
        let size = self.head.page_size.bytes();
        self.copies.discard_if_off(size).map_err(io("give up the copies of pages"))
    }

    /// Puts the store together, before its recovery.
    fn into_core(
        self,
        disk: &Arc<dyn Disk>,
        log: Log,
        options: &StoreOptions,
    ) -> Result<Core, StoreError> {
        let Files { head, data, copies } = self;
        let log = Arc::new(log);
        let pool = make_pool(options, head.page_size, data, copies, &log)?;
        Ok(Core::new(disk, pool, log, head, key_locks(options)?))
    }
}

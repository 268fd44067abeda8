//! What transactions and the store are built on: the parts of an open store, and its trees.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `catalog` | the trees by name and number; handles of trees |
//! | `dropping` | trees that are taken away |
//! | `checkpoint`, `head` | checkpoints, and the file that says where the last one is |
//! | `indexes` | the functions of secondary indexes, and how their entries are encoded |
//! | `key_locks` | what can be locked, and in which modes |
//! | `long_values` | values that are too long for a leaf |
//! | `spaces` | what the client of the store locks for itself |
//! | `temporary` | temporary files |
//! | `unlocked` | an assertion about trees whose keys the client locks |
//! | `transactions` | transactions that have logged something: commit, rollback |

mod catalog;
mod checkpoint;
mod dropping;
mod head;
mod indexes;
mod key_locks;
mod long_values;
mod spaces;
mod temporary;
mod transactions;
mod unlocked;

use std::io;
use std::sync::Arc;

use thiserror::Error;
use tidegate_runtime::sync::LongMutex;

use crate::allocator::PageAllocator;
use crate::btree::{Tree, TreeEntry};
use crate::buffer::{BufferError, IoCounters, Pool};
use crate::disk::Disk;
use crate::lock::{LockManager, ModeTableError};
use crate::page::PageId;
use crate::record::{BadRecord, Record, TxnId};
use crate::wal::{Log, LogError, Lsn};

pub(crate) use catalog::{Catalog, check_not_dropped};
pub use catalog::{TreeHandle, TreeOptions};
pub(crate) use head::{Checkpoint, Head, NAME as HEAD};
pub use head::{FORMAT_VERSION, HeadError};
pub(crate) use indexes::{COMPLETE, Index, Indexes, above_entries, decode_entry, encode_secondary};
pub use indexes::{IndexHandle, KeyExtractor};
pub use key_locks::Lockable;
pub(crate) use key_locks::{KeyLocks, RangeModes, hash_key};
pub(crate) use long_values::{
    LACKS_PIECE, Reference, VALUE_MAX, ValueId, is_stored_apart, piece_bytes,
};
pub use spaces::{LabelHierarchy, LockSpace, ModeStatistics, NoHierarchy};
pub(crate) use spaces::{LabelResource, LockSpaces};
pub(crate) use temporary::TemporaryFiles;
pub use transactions::Durability;
pub(crate) use transactions::{Transactions, TxnState};
use unlocked::UnlockedWrites;

/// Errors of a store.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The `head` file is missing or unreadable.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// A page cannot be read or written.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// The log cannot be read or written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A file cannot be made, opened or repaired.
    #[error("cannot {action}: {source}")]
    Io {
        /// What the system was asked to do.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// A record is not what it should be.
    #[error("log record {lsn} cannot be used: {what}; restore the store from a backup")]
    Record {
        /// The position of the record.
        lsn: Lsn,
        /// What is wrong.
        what: &'static str,
    },
    /// The log speaks of a tree that the catalog does not have.
    #[error("the log changes tree {number}, which is not there; restore the store from a backup")]
    NoSuchTree {
        /// The number of the tree.
        number: u32,
    },
    /// A change cannot be taken back.
    #[error("transaction {} cannot be rolled back: {what}", .transaction.0)]
    Undo {
        /// The transaction that made the change.
        transaction: TxnId,
        /// The reason, in words.
        what: &'static str,
    },
    /// The tree was dropped, or its name is that of a tree that is being dropped.
    #[error(
        "tree {name} was dropped; its name can be used again when `Store::drop_tree` has returned"
    )]
    Dropped {
        /// The name of the tree.
        name: String,
    },
    /// A tree breaks one of its rules.
    #[error("tree {name}: page {page}: {what}; restore the store from a backup")]
    Unsound {
        /// The name of the tree.
        name: String,
        /// The number of the page.
        page: PageId,
        /// What is wrong.
        what: &'static str,
    },
    /// The name of a tree is empty or too long.
    #[error("a tree's name has 1 to {max} bytes, not {len}")]
    Name {
        /// The length asked for, in bytes.
        len: usize,
        /// The longest length that is allowed, in bytes.
        max: usize,
    },
    /// There are files where a store was to be made.
    #[error("there are files already, such as {file}; a store is made in an empty directory")]
    NotEmpty {
        /// The name of one of the files.
        file: String,
    },
    /// The table of lock modes is not sound.
    #[error(transparent)]
    Modes(#[from] ModeTableError),
    /// There is a lock space of that name.
    #[error("there is a lock space {name} already; choose another name or replace that one")]
    LockSpaceExists {
        /// The name of the space.
        name: String,
    },
    /// A lock space cannot be replaced while transactions use it.
    #[error("{transactions} transactions use lock space {name}; replace it when they have ended")]
    LockSpaceInUse {
        /// The name of the space.
        name: String,
        /// Transactions that have asked for locks in it.
        transactions: u64,
    },
    /// The lock space was replaced by another one.
    #[error("lock space {name} was replaced; get the present one by `Store::lock_space`")]
    LockSpaceReplaced {
        /// The name of the space.
        name: String,
    },
    /// Transactions are under way. The number is that of the transactions.
    #[error("{0} transactions are under way; end them before the store is closed")]
    Busy(usize),
    /// A log record may have to hold more than a segment does.
    #[error(
        "log segments of {segment_bytes} bytes are too short for pages of {page_bytes} bytes: \
         set `segment_bytes` to {least} or more"
    )]
    SegmentTooShort {
        /// The length of a segment that was asked for, in bytes.
        segment_bytes: u64,
        /// The size of a page in bytes.
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

/// The parts of an open store, shared by its handles and its threads.
pub(crate) struct Core {
    pub(crate) pool: Pool,
    pub(crate) log: Arc<Log>,
    pub(crate) allocator: PageAllocator,
    pub(crate) catalog: Catalog,
    pub(crate) transactions: Transactions,
    pub(crate) locks: Arc<LockManager<Lockable>>,
    pub(crate) spaces: LockSpaces,
    pub(crate) range_modes: RangeModes,
    pub(crate) indexes: Indexes,
    pub(crate) head: LongMutex<Head>,
    pub(crate) recovery_counters: IoCounters,
    pub(crate) unlocked_writes: UnlockedWrites,
    pub(crate) temporary: TemporaryFiles,
}

impl Core {
    /// Puts a store together. The catalog is empty, and the next transaction is the first.
    pub(crate) fn new(
        disk: &Arc<dyn Disk>,
        pool: Pool,
        log: Arc<Log>,
        head: Head,
        key_locks: KeyLocks,
    ) -> Core {
        let KeyLocks { manager, range_modes } = key_locks;
        Core {
            catalog: Catalog::new(&pool),
            pool,
            log,
            allocator: PageAllocator::new(),
            transactions: Transactions::new(1),
            locks: manager,
            spaces: LockSpaces::default(),
            range_modes,
            indexes: Indexes::default(),
            head: LongMutex::new(head),
            recovery_counters: IoCounters::default(),
            unlocked_writes: UnlockedWrites::default(),
            temporary: TemporaryFiles::new(disk),
        }
    }

    /// Returns a tree with what it takes to work on it.
    pub(crate) fn tree<'s>(&'s self, entry: &'s TreeEntry) -> Tree<'s> {
        Tree { pool: &self.pool, log: &self.log, allocator: &self.allocator, entry }
    }
}

/// Decodes the payload of the log record at `lsn`.
pub(crate) fn decode_record(payload: &[u8], lsn: Lsn) -> Result<Record<'_>, StoreError> {
    Record::decode(payload).map_err(|bad| bad_record(lsn, bad))
}

/// Says where the bad record is.
pub(crate) fn bad_record(lsn: Lsn, BadRecord(what): BadRecord) -> StoreError {
    StoreError::Record { lsn, what }
}

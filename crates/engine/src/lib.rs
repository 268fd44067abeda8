//! An embedded transactional store in which every mechanism can be opened and changed.
//!
//! From the bottom up:
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`disk`] | files, real ones and simulated ones that fail |
//! | [`wal`] | the log: records appended, forced and read back |
//! | `page` | bytes of a page: header, node, map of free pages, and what can be done to them |
//! | `buffer` | pages in memory, which of them stay, and how they get to disk |
//! | `record` | log records, and changes of several pages that happen together |
//! | `btree` | ordered trees: search, split, merge |
//! | [`lock`] | the lock manager |
//! | `txn` | transactions: what they lock, how they end |
//! | `server` | procedures, workers, a gate |
//! | `store` | the directory: files, catalog, checkpoints, recovery |

mod btree;
mod buffer;
pub mod disk;
pub mod lock;
mod page;
mod record;
mod server;
mod store;
mod txn;
pub mod wal;

pub use btree::{Deletion, LeafFill, SplitPolicy, TreeShape};
pub use buffer::{BufferError, ChangeFault, IoCounters, IoCounts};
pub use page::{BadPageSize, PageFault, PageId, PageSize, TreeId};
pub use record::TxnId;
pub use server::{Adjustment, CallError, Observer, Procedure, Server, ServerOptions};
pub use store::{FORMAT_VERSION, HeadError, Recovery, Store, StoreError, StoreOptions, TreeHandle};
pub use txn::{
    Cursor, Direction, Durability, Entry, Isolation, Lockable, Savepoint, Transaction, TxnError,
    TxnOptions,
};

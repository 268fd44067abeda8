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
//!
//! # Example
//! ```
//! use std::ops::Bound;
//! use std::sync::Arc;
//!
//! use tidegate_engine::disk::{Disk, FileDisk, IoMode};
//! use tidegate_engine::wal::LogId;
//! use tidegate_engine::{Direction, Store, StoreOptions, TxnOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let parent = tempfile::tempdir()?;
//! # let path = parent.path().join("store");
//! let disk: Arc<dyn Disk> = Arc::new(FileDisk::create(&path, IoMode::Buffered)?);
//! let store = Store::create(&disk, LogId(42), &StoreOptions::default())?;
//! let rows = store.create_tree("rows")?;
//! let colour = |_: &[u8], value: &[u8], found_by: &mut dyn FnMut(&[u8])| found_by(value);
//! let by_colour = store.create_index(&rows, "by colour", Box::new(colour))?;
//!
//! let mut writer = store.begin(TxnOptions::default());
//! writer.insert(&rows, b"apple", b"red")?;
//! writer.insert(&rows, b"cherry", b"red")?;
//! writer.insert(&rows, b"plum", b"blue")?;
//! writer.commit()?;
//!
//! let mut reader = store.begin(TxnOptions::default());
//! let red = Bound::Included(&b"red"[..]);
//! let mut cursor = reader.index_cursor(&by_colour, (red, red), Direction::Down)?;
//! let mut fruits = Vec::new();
//! while let Some((_, fruit)) = cursor.next(&mut reader)? {
//!     fruits.push(fruit.to_vec());
//! }
//! assert_eq!(fruits, [&b"cherry"[..], b"apple"]);
//! drop(reader);
//! store.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Limits
//! * A key has at most an eighth of a page, a key and its value at most a quarter; larger values
//!   are the client's to divide.
//! * A tree, once made, stays.

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
pub use server::{
    Adjustment, Answer, CallError, CallFailure, CallResult, Client, ClientError, ClientOptions,
    ConnectionEnd, Endpoint, FailureKind, GoodbyeReason, ListenError, Listener, ListenerOptions,
    Observer, Procedure, ProtocolError, RequestId, Server, ServerOptions, TooLong,
};
pub use store::{FORMAT_VERSION, HeadError, Recovery, Store, StoreError, StoreOptions, TreeHandle};
pub use txn::{
    Cursor, Direction, Durability, Entry, IndexCursor, IndexEntry, IndexHandle, Isolation, KeysOf,
    Lockable, Savepoint, Transaction, TxnError, TxnOptions,
};

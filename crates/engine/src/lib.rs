//! An embedded transactional store in which every mechanism can be opened and changed.
//!
//! From the bottom up:
//!
//! | module | what it holds |
//! | --- | --- |
//! | `bytes` | numbers and byte strings within bytes |
//! | `periodic` | threads that do something over and over |
//! | `hash_slab` | a hash table whose entries keep their places |
//! | [`disk`] | files, real ones and simulated ones that fail |
//! | [`wal`] | the log: records appended, forced and read back |
//! | `page` | bytes of a page: header, node, map of free pages, and what can be done to them |
//! | `buffer` | pages in memory, which of them stay, and how they get to disk |
//! | `record` | log records, and changes of several pages that happen together |
//! | `allocator` | which pages are in use |
//! | `btree` | ordered trees: search, split, merge |
//! | [`lock`] | the lock manager |
//! | `core` | an open store: catalog, checkpoints, what is locked, commit and rollback |
//! | `txn` | transactions: what they read, change and lock |
//! | `store` | the directory: creating, opening, recovery, closing |
//!
//! # Example
//! ```
//! use tidegate_engine::{Store, StoreOptions, TxnError};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let parent = tempfile::tempdir()?;
//! # let path = parent.path().join("store");
//! let store = Store::open_or_create(&path, &StoreOptions::default())?;
//! let fruits = store.create_tree("fruits")?;
//! let colour = |_: &[u8], value: &[u8], found_by: &mut dyn FnMut(&[u8])| found_by(value);
//! let by_colour = store.create_index(&fruits, "by colour", Box::new(colour))?;
//!
//! // Run again after a conflict with another transaction, and committed.
//! store.transaction(|transaction| {
//!     transaction.insert(&fruits, b"apple", b"red")?;
//!     transaction.insert(&fruits, b"cherry", b"red")?;
//!     transaction.insert(&fruits, b"plum", b"blue")
//! })?;
//!
//! let from_b = store.transaction(|transaction| {
//!     let range = transaction.range(&fruits, "b"..)?;
//!     range.rev().map(|entry| Ok(entry?.0)).collect::<Result<Vec<_>, TxnError>>()
//! })?;
//! assert_eq!(from_b, [&b"plum"[..], b"cherry"]);
//!
//! let red = store.transaction(|transaction| transaction.find(&by_colour, b"red"))?;
//! assert_eq!(red, [&b"apple"[..], b"cherry"]);
//! store.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Limits
//! * A key has at most an eighth of a page, a value at most 1 GiB.
//! * Making and dropping a tree are not parts of a transaction.

/// Makes a method for each field of some options that returns the options with another value.
macro_rules! setters {
    ($options:ident { $($field:ident: $kind:ty,)* }) => {
        impl $options {
            $(
                #[doc = concat!(
                    "Returns the options with another [`", stringify!($field), "`](",
                    stringify!($options), "::", stringify!($field), ")."
                )]
                #[must_use]
                pub fn $field(mut self, value: $kind) -> $options {
                    self.$field = value;
                    self
                }
            )*
        }
    };
}

mod allocator;
mod btree;
mod buffer;
mod bytes;
mod core;
pub mod disk;
mod hash_slab;
pub mod lock;
mod page;
mod periodic;
mod record;
mod store;
mod txn;
pub mod wal;

pub use crate::core::{
    Durability, FORMAT_VERSION, HeadError, IndexHandle, KeyExtractor, LabelHierarchy, LockSpace,
    Lockable, ModeStatistics, NoHierarchy, StoreError, TreeHandle, TreeOptions,
};
pub use btree::{KeyLocking, LeafFill, MergePolicy, SplitPolicy, TreeShape, TreeSize};
pub use buffer::{BufferError, ChangeFault, IoCounters, IoCounts};
pub use page::{BadPageSize, PageFault, PageId, PageSize, TreeId};
pub use record::TxnId;
pub use store::{Recovery, Store, StoreOptions};
pub use txn::{
    Cursor, Direction, Entry, IndexCursor, IndexEntry, Isolation, KeyValue, LabelLocks, Range,
    Savepoint, SortedEntries, Sorter, Transaction, TxnError, TxnOptions,
};

#[cfg(test)]
mod layers {
    use std::path::{Path, PathBuf};
    use std::{fs, io};

    fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
        if path.is_file() {
            return Ok(vec![path.to_owned()]);
        }
        let mut found = Vec::new();
        for entry in fs::read_dir(path)? {
            found.extend(files(&entry?.path())?);
        }
        Ok(found)
    }

    /// The table at the head of this file has the modules from the bottom up.
    #[test]
    fn no_module_uses_one_above_it() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let head = include_str!("lib.rs").lines().take_while(|line| line.starts_with("//!"));
        let rows = head.filter_map(|line| line.strip_prefix("//! | ")?.split('`').nth(1));
        let modules: Vec<&str> = rows.collect();
        assert!(modules.len() > 8, "{modules:?}");
        for (own, module) in modules.iter().enumerate() {
            let file = source.join(format!("{module}.rs"));
            let path = if file.is_file() { file } else { source.join(module) };
            for file in files(&path).expect("each module of the table has its files") {
                let text = fs::read_to_string(&file).expect("source is text");
                for (line, number) in text.lines().zip(1..) {
                    for used in line.split("crate::").skip(1) {
                        let is_used = |name: &&str| used.starts_with(&format!("{name}::"));
                        let above = modules[own + 1..].iter().find(|name| is_used(name));
                        assert_eq!(above, None, "{}:{number}", file.display());
                    }
                }
            }
        }
    }
}

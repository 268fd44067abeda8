//! Sorting entries for a bulk load, in bounded memory.
//!
//! # Mechanism
//! Entries are collected in memory. When that is full, they are sorted and written to a temporary
//! file as a run (`runs.rs`). At the end all runs are merged, as many at a time as memory has
//! blocks for; if there are more, the first of them are merged into a longer run behind the others,
//! until there are few enough. Entries that fit into memory touch no file.
//!
//! # Example
//! Memory for two entries, and merges of two runs:
//!
//! ```text
//! pushed  d a | c f | b e      runs  a d | c f | b e
//! first runs merged                  b e | a c d f
//! merged for the load                a b c d e f
//! ```

use std::sync::Arc;

use super::runs::{BLOCK, Merge, RunFile};
use super::{KeyValue, TxnError, check_lengths};
use crate::core::{Core, StoreError};

/// The least memory of a sort in bytes: a merge of three runs, and a block that is written.
const MEMORY_MIN: usize = 4 * BLOCK;

/// Most memory that is asked for before it is used, in bytes.
const RESERVED_MAX: usize = 256 << 20;

/// Sorts entries by their keys, for
/// [`Store::bulk_load_sorted_by`](crate::Store::bulk_load_sorted_by). Several can be filled at a
/// time. [`Store::sorter`](crate::Store::sorter) makes one.
pub struct Sorter {
    core: Arc<Core>,
    memory_bytes: usize,
    /// Keys and values of the entries in memory.
    bytes: Vec<u8>,
    entries: Vec<InMemory>,
    /// Entries that did not fit into memory.
    runs: Option<RunFile>,
}

/// Where an entry in memory is: its value is behind its key.
#[derive(Clone, Copy)]
struct InMemory {
    /// The first bytes of the key as a number in their order, zeros behind a shorter key: most
    /// comparisons look no further, which spares a look at the entries themselves.
    head: u64,
    at: usize,
    key_len: u32,
    value_len: u32,
}

impl InMemory {
    /// The lengths of key and value were checked.
    fn new(at: usize, key: &[u8], value: &[u8]) -> InMemory {
        let short = |part: &[u8]| u32::try_from(part.len()).expect("lengths were checked");
        InMemory { head: head(key), at, key_len: short(key), value_len: short(value) }
    }

    fn of(self, bytes: &[u8]) -> (&[u8], &[u8]) {
        let (key_len, value_len) = (self.key_len as usize, self.value_len as usize);
        bytes[self.at..self.at + key_len + value_len].split_at(key_len)
    }
}

fn head(key: &[u8]) -> u64 {
    if let Some(first) = key.first_chunk() {
        return u64::from_be_bytes(*first);
    }
    let mut first = [0; size_of::<u64>()];
    first[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(first)
}

impl Sorter {
    pub(crate) fn new(core: &Arc<Core>, memory_bytes: usize) -> Sorter {
        Sorter {
            core: Arc::clone(core),
            memory_bytes: memory_bytes.max(MEMORY_MIN),
            bytes: Vec::new(),
            entries: Vec::new(),
            runs: None,
        }
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// [`TxnError::TooLong`], which adds nothing; or a temporary file cannot be written: then drop
    /// the sorter. The store can be used on.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), TxnError> {
        check_lengths(&self.core, key, value)?;
        let len = key.len() + value.len();
        if self.entries.capacity() == 0 {
            self.reserve();
        }
        let used = self.bytes.len() + self.entries.len() * size_of::<InMemory>();
        if !self.entries.is_empty() && used + len + size_of::<InMemory>() > self.memory_bytes {
            self.write_run()?;
        }
        let at = self.bytes.len();
        self.entries.push(InMemory::new(at, key, value));
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        Ok(())
    }

    /// Asks for the whole memory at once. It is the system's until it is written to, while growth
    /// by doubling would leave half of it unused and copy the rest.
    fn reserve(&mut self) {
        let bytes = self.memory_bytes.min(RESERVED_MAX);
        // Without, they grow as they are filled.
        let _ = self.bytes.try_reserve_exact(bytes);
        let _ = self.entries.try_reserve_exact(bytes / size_of::<InMemory>());
    }

    /// Returns whether this sorter was made by that store.
    pub(crate) fn is_of(&self, core: &Arc<Core>) -> bool {
        Arc::ptr_eq(&self.core, core)
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        self.entries.sort_unstable_by(|one, other| {
            one.head.cmp(&other.head).then_with(|| one.of(bytes).cmp(&other.of(bytes)))
        });
    }

    /// Moves what is in memory to a run.
    fn write_run(&mut self) -> Result<(), StoreError> {
        self.sort();
        let runs = match &mut self.runs {
            Some(runs) => runs,
            none => none.insert(RunFile::new(&self.core)?),
        };
        let mut run = runs.begin_run();
        for entry in &self.entries {
            let (key, value) = entry.of(&self.bytes);
            run.put(key, value)?;
        }
        run.end()?;
        self.entries.clear();
        self.bytes.clear();
        Ok(())
    }

    /// Ends the sort, and returns the entries in the order of their keys. An entry that was pushed
    /// several times comes once; two with one key and different values are an error,
    /// [`TxnError::KeyExists`], in the place of the first.
    ///
    /// # Errors
    /// A temporary file cannot be read or written.
    pub fn finish(mut self) -> Result<SortedEntries, TxnError> {
        if self.runs.is_some() && !self.entries.is_empty() {
            self.write_run()?;
        }
        let source = match self.runs.take() {
            None => {
                self.sort();
                let (bytes, entries) = (std::mem::take(&mut self.bytes), self.entries.into_iter());
                Source::Memory { bytes, entries }
            }
            Some(runs) => {
                // The memory of the entries is that of the merge now.
                self.bytes = Vec::new();
                self.entries = Vec::new();
                // One block is for writing.
                let at_once = self.memory_bytes / BLOCK - 1;
                Source::Runs(merge_all(runs, at_once)?)
            }
        };
        let mut sorted = SortedEntries { source, next: None };
        sorted.next = sorted.source.next()?;
        Ok(sorted)
    }
}

/// Merges the first runs until all can be merged at once, and begins that merge.
fn merge_all(mut runs: RunFile, at_once: usize) -> Result<Merge, StoreError> {
    debug_assert!(at_once > 1, "a merge makes runs fewer");
    while runs.len() > at_once {
        // No more than have to be, because each entry of them is read and written once more.
        runs.merge_first(at_once.min(runs.len() - at_once + 1))?;
    }
    runs.merge(0, runs.len())
}

/// Entries in the order of their keys, see [`Sorter::finish`]. It ends after the first error.
pub struct SortedEntries {
    source: Source,
    next: Option<KeyValue>,
}

enum Source {
    Memory { bytes: Vec<u8>, entries: std::vec::IntoIter<InMemory> },
    Runs(Merge),
}

impl Source {
    fn next(&mut self) -> Result<Option<KeyValue>, StoreError> {
        match self {
            Source::Memory { bytes, entries } => Ok(entries.next().map(|entry| {
                let (key, value) = entry.of(bytes);
                (key.to_vec(), value.to_vec())
            })),
            Source::Runs(merge) => merge.next(),
        }
    }
}

impl SortedEntries {
    /// Returns what is behind `entry`, which comes once.
    fn behind(&mut self, entry: &KeyValue) -> Result<Option<KeyValue>, TxnError> {
        loop {
            match self.source.next()? {
                Some(next) if next == *entry => {}
                Some(next) if next.0 == entry.0 => return Err(TxnError::KeyExists),
                next => return Ok(next),
            }
        }
    }
}

impl Iterator for SortedEntries {
    type Item = Result<KeyValue, TxnError>;

    fn next(&mut self) -> Option<Result<KeyValue, TxnError>> {
        let entry = self.next.take()?;
        let behind = self.behind(&entry);
        Some(behind.map(|next| {
            self.next = next;
            entry
        }))
    }
}

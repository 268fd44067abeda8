//! What a load is told, and what it tells while it runs.

use std::num::NonZero;
use std::thread::available_parallelism;
use std::time::Duration;

use crate::parse::Limits;
use crate::store::{DocumentOptions, IndexDefinition};

/// How [`XmlStore::load`](crate::store::XmlStore::load) loads a document. The default has no
/// indexes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadOptions {
    /// How the document is stored.
    pub document: DocumentOptions,
    /// Names and definitions of the indexes that are made with the document.
    pub indexes: Vec<(String, IndexDefinition)>,
    /// How large the parts of the document may be.
    pub limits: Limits,
    /// Length of the text, in bytes, if it is known: so that [`Progress::left`] can be told.
    pub input_bytes: Option<u64>,
    /// Memory in which the entries of all indexes together are sorted, in bytes. What does not fit
    /// goes to temporary files in the directory of the store. Each index has at least 256 KiB.
    pub sort_bytes: usize,
    /// Threads that work at a time, at most. With 1 it is the caller's alone. By default as many as
    /// the system has processors.
    pub threads: usize,
}

impl Default for LoadOptions {
    fn default() -> LoadOptions {
        LoadOptions {
            document: DocumentOptions::default(),
            indexes: Vec::new(),
            limits: Limits::default(),
            input_bytes: None,
            sort_bytes: 16 << 20,
            threads: available_parallelism().map_or(1, NonZero::get),
        }
    }
}

impl From<DocumentOptions> for LoadOptions {
    fn from(document: DocumentOptions) -> LoadOptions {
        LoadOptions { document, ..LoadOptions::default() }
    }
}

impl LoadOptions {
    /// Adds an index.
    #[must_use]
    pub fn index(mut self, name: &str, definition: IndexDefinition) -> LoadOptions {
        self.indexes.push((name.to_owned(), definition));
        self
    }
}

/// What a load is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadPhase {
    /// It reads the text, and stores the document.
    Reading,
    /// It stores the indexes.
    Indexing,
}

/// How far a load has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What the load is doing.
    pub phase: LoadPhase,
    /// Nodes and namespace declarations that were read.
    pub nodes: u64,
    /// Bytes of text that were read.
    pub bytes: u64,
    /// Bytes of the whole text, if the load was told.
    pub input_bytes: Option<u64>,
    /// Entries of indexes that were stored.
    pub entries: u64,
    /// Entries of indexes that the nodes read so far have.
    pub entries_total: u64,
    /// How long the load has taken.
    pub elapsed: Duration,
    /// How long this phase of it has taken.
    pub elapsed_in_phase: Duration,
}

impl Progress {
    /// Returns the share of the present phase that is done, from 0 to 1; `None` while the text is
    /// read if its length is not known.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        let (done, of) = match self.phase {
            LoadPhase::Reading => (self.bytes, self.input_bytes?),
            LoadPhase::Indexing => (self.entries, self.entries_total),
        };
        Some(if of == 0 { 1.0 } else { (done as f64 / of as f64).min(1.0) })
    }

    /// Returns how long the present phase will go on at the speed that it has had. The phase of the
    /// indexes comes behind that of reading.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        let share = self.share().filter(|share| *share > 0.0)?;
        Some(self.elapsed_in_phase.mul_f64((1.0 - share) / share))
    }
}

//! A load: from the text to the document and its indexes.
//!
//! # Mechanism
//! 1. The text is read once. The records of its nodes go to the document's tree. The entries that
//!    each index has of a node go to a sorter of that index, which moves them to a temporary file
//!    when its memory is full.
//! 2. The sorted entries of each index go to its tree.
//! 3. One transaction inserts the entries of the catalog.
//!
//! The caller is told of the progress by nodes, bytes and time in step 1 and by entries in step 2,
//! and can end the load each time.

use std::io::BufRead;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_engine::{Sorter, Transaction, TxnError};

use super::{Builder, LoadOptions, LoadPhase, Made, Progress};
use crate::label::Label;
use crate::parse::XmlReader;
use crate::store::index::{Index, NewIndex};
use crate::store::{DOCUMENT_NAME_MAX, Entry, Stored, XmlStore, XmlStoreError};

/// Nodes, or entries of indexes, between two reports at most.
const NODES_PER_REPORT: u64 = 4_096;

/// Bytes between two reports at most, but for a single tag.
const BYTES_PER_REPORT: u64 = 1 << 20;

/// Time between two reports at most, while there is input.
const TIME_PER_REPORT: Duration = Duration::from_millis(100);

/// Events between two looks at the clock.
const EVENTS_PER_LOOK: u32 = 64;

impl XmlStore {
    /// Loads a document and makes its indexes. `progress` is called every 4,096 nodes, every MiB of
    /// text and every 100 ms, and while indexes are stored every 4,096 entries, and stops the load
    /// with [`ControlFlow::Break`]. When it returns, the document and the indexes are durable.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    ///
    /// use tidegate_xml::store::{LoadOptions, XmlStore};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let parent = tempfile::tempdir()?;
    /// let store = XmlStore::open_or_create(parent.path().join("store"))?;
    /// let text = &b"<people><anna id='7'/></people>"[..];
    /// let options = LoadOptions { input_bytes: Some(text.len() as u64), ..LoadOptions::default() }
    ///     .index("names", "name".parse()?)
    ///     .index("ids", "cas text //@id".parse()?);
    /// let loaded = store.load("people", options, text, |_| ControlFlow::Continue(()))?;
    /// assert_eq!((loaded.nodes, loaded.entries), (3, 3));
    /// assert!(store.indexes("people")?.iter().all(|index| index.is_ready));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`XmlStoreError::DocumentExists`], [`XmlStoreError::DocumentName`],
    /// [`XmlStoreError::IndexName`], [`XmlStoreError::IndexExists`] if two indexes have one name,
    /// [`XmlStoreError::IndexKeys`], [`XmlStoreError::Cancelled`], those of the parser, or the
    /// store cannot write: nothing is stored.
    pub fn load(
        &self,
        name: &str,
        options: impl Into<LoadOptions>,
        input: impl BufRead,
        progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Progress, XmlStoreError> {
        let options = options.into();
        if name.is_empty() || name.len() > DOCUMENT_NAME_MAX {
            return Err(XmlStoreError::DocumentName(name.len()));
        }
        // Asked now to spare the work; the insert decides.
        let exists = |transaction: &mut Transaction| {
            transaction.contains_key(&self.catalog, name.as_bytes())
        };
        if self.engine.transaction(exists)? {
            return Err(XmlStoreError::DocumentExists(name.to_owned()));
        }
        let (number, stored) = self.reserve(options.document)?;
        let entry = Entry::encode(number, options.document);
        let loaded = self.fill(&stored, &options, input, progress).and_then(|(loaded, indexes)| {
            self.publish(name, &entry, &indexes)?;
            Ok(loaded)
        });
        if loaded.is_err() {
            // If this fails, the store has failed, and the next opening does it.
            drop(stored);
            let _ = self.discard(number);
        }
        loaded
    }

    /// Fills the trees of a document and its indexes.
    fn fill(
        &self,
        stored: &Stored,
        options: &LoadOptions,
        input: impl BufRead,
        progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<(Progress, Vec<NewIndex>), XmlStoreError> {
        let fill_percent = options.document.fill_percent;
        let indexes = self.make_indexes(stored, &options.indexes)?;
        let sort_bytes = options.sort_bytes / indexes.len().max(1);
        let sorted = |new: &NewIndex| Sorted {
            index: Arc::clone(&new.index),
            sorter: self.engine.sorter(sort_bytes),
        };
        let mut loader = Loader {
            reader: XmlReader::new(input),
            builder: Builder::new(self, stored),
            sorted: indexes.iter().map(sorted).collect(),
            reporter: Reporter::new(options.input_bytes, progress),
        };
        self.engine.try_bulk_load(&stored.tree, fill_percent, &mut loader)?;
        let Loader { sorted, mut reporter, .. } = loader;
        reporter.begin_phase(LoadPhase::Indexing);
        for Sorted { index, sorter } in sorted {
            let entries = sorter.finish()?.map(|entry| {
                reporter.entry()?;
                Ok::<_, XmlStoreError>(entry?)
            });
            self.engine.try_bulk_load(index.tree(), fill_percent, entries)?;
        }
        Ok((reporter.come_to(), indexes))
    }

    /// Puts a loaded document and its indexes into the catalog.
    fn publish(&self, name: &str, entry: &[u8], indexes: &[NewIndex]) -> Result<(), XmlStoreError> {
        let insert = |transaction: &mut Transaction| {
            for new in indexes {
                transaction.insert(&self.indexes, &new.key, &new.entry)?;
            }
            transaction.insert(&self.catalog, name.as_bytes(), entry)
        };
        self.engine.transaction(insert).map_err(|error| match error {
            TxnError::KeyExists => XmlStoreError::DocumentExists(name.to_owned()),
            error => error.into(),
        })
    }
}

/// The entries of an index.
struct Sorted {
    index: Arc<Index>,
    sorter: Sorter,
}

/// The records of a document as an iterator, as the bulk load takes them.
struct Loader<'a, R: BufRead, P> {
    reader: XmlReader<R>,
    builder: Builder<'a>,
    sorted: Vec<Sorted>,
    reporter: Reporter<P>,
}

impl<R: BufRead, P: FnMut(Progress) -> ControlFlow<()>> Loader<'_, R, P> {
    /// Reads until there is a record. Returns `None` at the end of the document.
    fn advance(&mut self) -> Result<Option<(Label, Vec<u8>)>, XmlStoreError> {
        loop {
            if let Some(Made { label, record, is_inner }) = self.builder.ready.pop_front() {
                let Builder { store, stored, .. } = &self.builder;
                for Sorted { index, sorter } in &mut self.sorted {
                    let entry = index.entry(&store.vocabulary, &stored.paths, &label, &record);
                    if let Some((key, value)) = entry {
                        sorter.push(&key, &value)?;
                        self.reporter.come_to.entries_total += 1;
                    }
                }
                if stored.inner_nodes.has_record(is_inner) {
                    return Ok(Some((label, record.encode())));
                }
                continue;
            }
            let Some(event) = self.reader.next_event()? else { return Ok(None) };
            self.builder.event(event)?;
            self.reporter.read(self.builder.nodes, self.reader.position().offset)?;
        }
    }
}

impl<R: BufRead, P: FnMut(Progress) -> ControlFlow<()>> Iterator for Loader<'_, R, P> {
    type Item = Result<(Label, Vec<u8>), XmlStoreError>;

    fn next(&mut self) -> Option<Result<(Label, Vec<u8>), XmlStoreError>> {
        self.advance().transpose()
    }
}

/// Tells the caller how far the load has come, often enough.
struct Reporter<P> {
    progress: P,
    come_to: Progress,
    reported: Progress,
    begun: Instant,
    phase_begun: Instant,
    /// Events until the next look at the clock.
    events_left: u32,
}

impl<P: FnMut(Progress) -> ControlFlow<()>> Reporter<P> {
    fn new(input_bytes: Option<u64>, progress: P) -> Reporter<P> {
        let begun = Instant::now();
        let come_to = Progress {
            phase: LoadPhase::Reading,
            nodes: 0,
            bytes: 0,
            input_bytes,
            entries: 0,
            entries_total: 0,
            elapsed: Duration::ZERO,
            elapsed_in_phase: Duration::ZERO,
        };
        let (reported, events_left) = (come_to, EVENTS_PER_LOOK);
        Reporter { progress, come_to, reported, begun, phase_begun: begun, events_left }
    }

    fn come_to(&self) -> Progress {
        let (elapsed, elapsed_in_phase) = (self.begun.elapsed(), self.phase_begun.elapsed());
        Progress { elapsed, elapsed_in_phase, ..self.come_to }
    }

    fn begin_phase(&mut self, phase: LoadPhase) {
        self.come_to.phase = phase;
        self.phase_begun = Instant::now();
    }

    /// Notes what was read by an event.
    fn read(&mut self, nodes: u64, bytes: u64) -> Result<(), XmlStoreError> {
        (self.come_to.nodes, self.come_to.bytes) = (nodes, bytes);
        self.events_left -= 1;
        let mut is_due = nodes - self.reported.nodes >= NODES_PER_REPORT
            || bytes - self.reported.bytes >= BYTES_PER_REPORT;
        if self.events_left == 0 {
            self.events_left = EVENTS_PER_LOOK;
            is_due |= self.begun.elapsed() >= self.reported.elapsed + TIME_PER_REPORT;
        }
        if is_due { self.report() } else { Ok(()) }
    }

    /// Notes that an entry of an index goes to its tree.
    fn entry(&mut self) -> Result<(), XmlStoreError> {
        self.come_to.entries += 1;
        if self.come_to.entries - self.reported.entries < NODES_PER_REPORT {
            return Ok(());
        }
        self.report()
    }

    fn report(&mut self) -> Result<(), XmlStoreError> {
        self.reported = self.come_to();
        match (self.progress)(self.reported) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(XmlStoreError::Cancelled),
        }
    }
}

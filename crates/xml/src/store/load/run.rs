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
//!
//! # Threads
//! In step 1 [`Batches`] reads the text and labels the nodes, and [`Nodes`] makes entries of
//! indexes and records. With one thread the second calls the first. With more, the caller's thread
//! reads and a second one fills the tree; a channel between them holds few batches, so memory is
//! bounded. In step 2 as many trees are filled side by side as there are threads, and the caller's
//! thread reports. What is stored does not depend on the number of threads.
//!
//! An error of the reader, or its end by the caller, is sent in the place of a batch, and ends the
//! bulk load. After an error of a thread that fills a tree its channel is closed, and the next
//! batch cannot be sent. When a thread panics, so does the caller's, after the others have ended.
//! No thread is left behind: all are in a scope.

use std::io::BufRead;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use tidegate_engine::{Sorter, Transaction, TxnError};

use super::{Builder, LoadOptions, LoadPhase, Made, Progress};
use crate::label::Label;
use crate::parse::XmlReader;
use crate::store::index::{Entry as IndexEntry, Index, NewIndex};
use crate::store::{DOCUMENT_NAME_MAX, Entry, Stored, XmlStore, XmlStoreError};

/// Nodes, or entries of indexes, between two reports at most.
const NODES_PER_REPORT: u64 = 4_096;

/// Entries of an index between two messages of the thread that stores them, at most.
const ENTRIES_PER_MESSAGE: u64 = NODES_PER_REPORT / 4;

/// Bytes between two reports at most, but for a single tag.
const BYTES_PER_REPORT: u64 = 1 << 20;

/// Time between two reports at most, while there is input.
const TIME_PER_REPORT: Duration = Duration::from_millis(100);

/// Nodes that are handed on together, but for the attributes of the last: fewer would wake the
/// other thread more often.
const BATCH: usize = 2048;

/// The node that makes the contents of a batch so long, in bytes, is its last.
const BATCH_BYTES: usize = 128 << 10;

/// Batches that wait to be stored at most.
const BATCHES_WAITING: usize = 4;

/// Numbers of entries that wait to be reported at most.
const REPORTS_WAITING: usize = 2;

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
    /// [`XmlStoreError::IndexKeys`], [`XmlStoreError::Cancelled`], those of the parser,
    /// [`XmlStoreError::At`] for a node that is too deep or too long, or the store cannot write:
    /// nothing is stored.
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
        let indexes = self.make_indexes(stored, &options.indexes)?;
        let sort_bytes = options.sort_bytes / indexes.len().max(1);
        let sorted = |new: &NewIndex| Sorted {
            index: Arc::clone(&new.index),
            sorter: self.engine.sorter(sort_bytes),
        };
        let mut sorted: Vec<Sorted> = indexes.iter().map(sorted).collect();
        let mut reporter = Reporter::new(options.input_bytes, progress);
        self.fill_document(stored, options, (&mut sorted, &mut reporter), input)?;
        self.fill_indexes(options, sorted, &mut reporter)?;
        Ok((reporter.come_to(), indexes))
    }

    /// Reads the text, fills the document's tree, and collects the entries of the indexes.
    fn fill_document<P: FnMut(Progress) -> ControlFlow<()>>(
        &self,
        stored: &Stored,
        options: &LoadOptions,
        (sorted, reporter): (&mut [Sorted], &mut Reporter<P>),
        input: impl BufRead,
    ) -> Result<(), XmlStoreError> {
        let entries = AtomicU64::new(0);
        let batches = Batches {
            reader: XmlReader::with_limits(input, options.limits),
            builder: Builder::new(self, stored),
            entries: &entries,
            reporter: &mut *reporter,
            is_at_end: false,
        };
        let fill_percent = options.document.fill_percent;
        if options.threads <= 1 {
            let nodes = Nodes::new((self, stored), sorted, &entries, batches);
            self.engine.try_bulk_load(&stored.tree, fill_percent, nodes)?;
        } else {
            let (sender, received) = sync_channel(BATCHES_WAITING);
            let nodes = Nodes::new((self, stored), sorted, &entries, received.into_iter());
            let fill = || self.engine.try_bulk_load(&stored.tree, fill_percent, nodes);
            thread::scope(|scope| {
                let filling = spawn(scope, "xml-load-document", fill)?;
                // The end of the other thread closes the channel.
                let _ = batches.map(|batch| sender.send(batch)).find(Result::is_err);
                drop(sender);
                filling.join().unwrap_or_else(|panic| resume_unwind(panic))
            })?;
        }
        reporter.come_to.entries_total = entries.into_inner();
        Ok(())
    }

    /// Fills the trees of indexes.
    fn fill_indexes<P: FnMut(Progress) -> ControlFlow<()>>(
        &self,
        options: &LoadOptions,
        sorted: Vec<Sorted>,
        reporter: &mut Reporter<P>,
    ) -> Result<(), XmlStoreError> {
        reporter.begin_phase(LoadPhase::Indexing);
        let fill_percent = options.document.fill_percent;
        let threads = options.threads.min(sorted.len());
        let mut sorted = sorted.into_iter();
        if threads <= 1 {
            return sorted.try_for_each(|one| {
                self.fill_index(fill_percent, one, |more| reporter.entries(more))
            });
        }
        let waiting = Mutex::new(sorted);
        let fill = |sender: &SyncSender<Result<u64, XmlStoreError>>| {
            let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
            while let Some(one) = next() {
                // The channel is closed when another thread has failed or the load is cancelled.
                let tell = |more| sender.send(Ok(more)).map_err(|_| XmlStoreError::Cancelled);
                if let Err(error) = self.fill_index(fill_percent, one, tell) {
                    let _ = sender.send(Err(error));
                    break;
                }
            }
        };
        thread::scope(|scope| {
            let (sender, received) = sync_channel(REPORTS_WAITING);
            for _ in 0..threads {
                let (fill, sender) = (&fill, sender.clone());
                spawn(scope, "xml-load-index", move || fill(&sender))?;
            }
            drop(sender);
            received.into_iter().try_for_each(|more| reporter.entries(more?))
        })
    }

    /// Fills the tree of an index. Tells how many entries it took since it last did, at least every
    /// [`ENTRIES_PER_MESSAGE`].
    fn fill_index(
        &self,
        fill_percent: u8,
        Sorted { index, sorter }: Sorted,
        mut tell: impl FnMut(u64) -> Result<(), XmlStoreError>,
    ) -> Result<(), XmlStoreError> {
        let mut more = 0;
        let entries = sorter.finish()?.map(|entry| {
            more += 1;
            if more == ENTRIES_PER_MESSAGE {
                tell(std::mem::take(&mut more))?;
            }
            Ok::<_, XmlStoreError>(entry?)
        });
        self.engine.try_bulk_load(index.tree(), fill_percent, entries)?;
        tell(more)
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

/// Starts a thread of a load.
fn spawn<'scope, R: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    run: impl FnOnce() -> R + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, R>, XmlStoreError> {
    let thread = thread::Builder::new().name(name.to_owned());
    thread.spawn_scoped(scope, run).map_err(XmlStoreError::Thread)
}

/// Reads the text, and returns its nodes in batches. Ends after the first error.
struct Batches<'a, R: BufRead, P> {
    reader: XmlReader<R>,
    builder: Builder<'a>,
    /// Entries of indexes so far.
    entries: &'a AtomicU64,
    reporter: &'a mut Reporter<P>,
    is_at_end: bool,
}

impl<R: BufRead, P: FnMut(Progress) -> ControlFlow<()>> Batches<'_, R, P> {
    fn read(&mut self) -> Result<Vec<Made>, XmlStoreError> {
        let (mut batch, mut bytes) = (Vec::with_capacity(BATCH), 0);
        while batch.len() < BATCH && bytes < BATCH_BYTES {
            let Some(event) = self.reader.next_event()? else {
                self.is_at_end = true;
                break;
            };
            if let Err(error) = self.builder.event(event) {
                return Err(error.at(self.reader.position()));
            }
            for made in self.builder.made() {
                bytes += made.record.content.len();
                batch.push(made);
            }
            self.reporter.come_to.entries_total = self.entries.load(Ordering::Relaxed);
            self.reporter.read(self.builder.nodes, self.reader.position().offset)?;
        }
        Ok(batch)
    }
}

impl<R: BufRead, P: FnMut(Progress) -> ControlFlow<()>> Iterator for Batches<'_, R, P> {
    type Item = Result<Vec<Made>, XmlStoreError>;

    fn next(&mut self) -> Option<Result<Vec<Made>, XmlStoreError>> {
        if self.is_at_end {
            return None;
        }
        let batch = self.read();
        self.is_at_end |= batch.is_err();
        Some(batch)
    }
}

/// The records of a document as the bulk load takes them, from batches of its nodes. Puts the
/// entries of their indexes into the sorters.
struct Nodes<'a, B> {
    store: &'a XmlStore,
    stored: &'a Stored,
    sorted: &'a mut [Sorted],
    /// Entries of indexes so far.
    entries: &'a AtomicU64,
    batches: B,
    batch: std::vec::IntoIter<Made>,
    /// The entry that was written last.
    entry: IndexEntry,
}

impl<'a, B: Iterator<Item = Result<Vec<Made>, XmlStoreError>>> Nodes<'a, B> {
    fn new(
        (store, stored): (&'a XmlStore, &'a Stored),
        sorted: &'a mut [Sorted],
        entries: &'a AtomicU64,
        batches: B,
    ) -> Nodes<'a, B> {
        let (batch, entry) = (Vec::new().into_iter(), IndexEntry::default());
        Nodes { store, stored, sorted, entries, batches, batch, entry }
    }

    /// Returns the next record, and notes the entries of the nodes up to it. Returns `None` at the
    /// end of the document.
    fn advance(&mut self) -> Result<Option<(Label, Vec<u8>)>, XmlStoreError> {
        loop {
            let Some(Made { label, record, is_inner }) = self.batch.next() else {
                let Some(batch) = self.batches.next() else { return Ok(None) };
                self.batch = batch?.into_iter();
                continue;
            };
            let mut entries = 0;
            for Sorted { index, sorter } in &mut *self.sorted {
                let known = (&self.store.vocabulary, &self.stored.paths);
                if index.write_entry(known, (&label, &record), &mut self.entry) {
                    sorter.push(&self.entry.0, &self.entry.1)?;
                    entries += 1;
                }
            }
            self.entries.fetch_add(entries, Ordering::Relaxed);
            if self.stored.inner_nodes.has_record(is_inner) {
                return Ok(Some((label, record.encode())));
            }
        }
    }
}

impl<B: Iterator<Item = Result<Vec<Made>, XmlStoreError>>> Iterator for Nodes<'_, B> {
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

    /// Notes that so many entries of an index were stored.
    fn entries(&mut self, more: u64) -> Result<(), XmlStoreError> {
        self.come_to.entries += more;
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

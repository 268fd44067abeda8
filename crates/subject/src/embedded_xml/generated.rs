//! The document of the generator as text, while it is generated, to load it into a store.
//!
//! A thread generates and fills buffers, of which there are a few; the reader gives each back when
//! it has read it. So memory does not grow with the document.

use std::io::{self, BufRead, Read, Write};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use thiserror::Error;
use tidegate_runtime::sync::{Receiver, Sender, channel};
use tidegate_runtime::thread;
use tidegate_workload::xmark::{AuctionPersons, Xmark};
use tidegate_xml::store::{
    IndexDefinition, IndexDefinitionError, LoadOptions, Progress, XmlStore, XmlStoreError,
};
use tidegate_xml::xmark::{PersonCount, XmarkFactorError, XmarkGenerator, XmarkOptions};

/// The index of elements by their names.
pub(super) const NAME_INDEX: &str = "names";

/// The index of identifiers by path and content.
pub(super) const ID_INDEX: &str = "ids";

/// Their definitions.
const INDEXES: [(&str, &str); 2] = [(NAME_INDEX, "name"), (ID_INDEX, "cas text //@id")];

/// Bytes of a buffer.
const BUFFER: usize = 64 << 10;

/// Buffers between the generator and the reader.
const BUFFERS: usize = 4;

/// Why the document of a workload is not loaded.
#[derive(Debug, Error)]
pub enum AuctionLoadError {
    /// The factor is out of range.
    #[error(transparent)]
    Factor(#[from] XmarkFactorError),
    /// An index is not defined as it has to be.
    #[error(transparent)]
    Index(#[from] IndexDefinitionError),
    /// The system starts no thread for the generator.
    #[error("a thread for the generator cannot be started: {0}; end other programs")]
    Thread(#[source] io::Error),
    /// The store refuses the document or fails.
    #[error(transparent)]
    Store(#[from] XmlStoreError),
}

/// Generates the document of a workload and stores it with a name index and a CAS index of
/// identifiers, besides those that the options name. `cancel` ends it soon.
///
/// # Errors
/// The factor is out of range, the load is cancelled, or the store refuses it or fails. Nothing is
/// stored then.
pub fn load(
    store: &XmlStore,
    document: &str,
    workload: &Xmark,
    options: LoadOptions,
    cancel: &AtomicBool,
) -> Result<Progress, AuctionLoadError> {
    let text = GeneratedText::start(workload)?;
    let options = with_indexes(options)?;
    let go_on = |_: Progress| {
        if cancel.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    Ok(store.load(document, options, text, go_on)?)
}

/// Adds the indexes that transactions use: of names, and of identifiers.
///
/// # Errors
/// A definition of ours is wrong.
pub fn with_indexes(mut options: LoadOptions) -> Result<LoadOptions, IndexDefinitionError> {
    for (name, definition) in INDEXES {
        options = options.index(name, definition.parse::<IndexDefinition>()?);
    }
    Ok(options)
}

/// The text of a workload's document, while it is generated.
pub struct GeneratedText {
    filled: Receiver<Vec<u8>>,
    empty: Sender<Vec<u8>>,
    buffer: Vec<u8>,
    /// How much of the buffer has been read.
    read: usize,
}

impl GeneratedText {
    /// Starts to generate.
    ///
    /// # Errors
    /// The factor is out of range, or the system starts no thread.
    pub fn start(workload: &Xmark) -> Result<GeneratedText, AuctionLoadError> {
        let persons = match workload.persons {
            AuctionPersons::Original => PersonCount::Original,
            AuctionPersons::Study => PersonCount::Study,
        };
        let options = XmarkOptions { factor: workload.factor, seed: workload.seed, persons };
        let generator = XmarkGenerator::new(options)?;
        let (to_reader, filled) = channel();
        let (empty, from_reader) = channel();
        for _ in 0..BUFFERS {
            // The receiver is in this function.
            let _ = empty.send(Vec::with_capacity(BUFFER));
        }
        thread::spawn("xmark-generator", move || {
            let filling = Filling { filled: to_reader, empty: from_reader, buffer: Vec::new() };
            // It fails when the reader has gone, who knows why.
            let _ = generator.write(filling).and_then(|mut filling| Ok(filling.flush()?));
        })
        .map_err(AuctionLoadError::Thread)?;
        Ok(GeneratedText { filled, empty, buffer: Vec::new(), read: 0 })
    }
}

impl BufRead for GeneratedText {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.read == self.buffer.len() {
            // No buffer comes any more behind the end of the document.
            let next = self.filled.recv().unwrap_or_default();
            let mut read = std::mem::replace(&mut self.buffer, next);
            self.read = 0;
            read.clear();
            // The generator may have ended.
            let _ = self.empty.send(read);
        }
        Ok(&self.buffer[self.read..])
    }

    fn consume(&mut self, amount: usize) {
        self.read = (self.read + amount).min(self.buffer.len());
    }
}

impl Read for GeneratedText {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut available = self.fill_buf()?;
        let read = available.read(into)?;
        self.consume(read);
        Ok(read)
    }
}

/// The generator's end.
struct Filling {
    filled: Sender<Vec<u8>>,
    empty: Receiver<Vec<u8>>,
    buffer: Vec<u8>,
}

impl Write for Filling {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        let empty = self.empty.recv().map_err(|_| gone())?;
        let full = std::mem::replace(&mut self.buffer, empty);
        self.filled.send(full).map_err(|_| gone())
    }
}

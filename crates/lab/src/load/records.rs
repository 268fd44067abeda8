//! A record of every transaction that came to its end, as a Parquet file written on the way.
//!
//! The clients' thread puts records into a batch, and a full batch goes to a thread that writes.
//! When that one falls behind by [`BATCHES`] batches the clients wait for it: a record with holes
//! would be worth less than a slower load. So memory is bounded, however long the load. Throughput
//! is lower by that wait, and no processor is busy for it; so the wait is added up and reported.
//!
//! | column | meaning |
//! | --- | --- |
//! | `client` | who, counted from 0 |
//! | `workload`, `kind` | what |
//! | `class` | its scheduling class, `high` or `normal` |
//! | `stage` | `warm-up`, `measured`, or `late` when the measured time was over |
//! | `scheduled_us` | when it was due, since the clients began, which is before the warm-up |
//! | `latency_us` | from then to its end, retries included |
//! | `outcome` | `committed` or `rolled back` |
//!
//! Limits: what failed for good has no end and no record; errors are counted in the report.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};
use thiserror::Error;
use tidegate_gate::Class;
use tidegate_runtime::clock;
use tidegate_workload::Ending;

use super::Stage;
use crate::whole_file::{WholeFile, WholeFileError};

/// Records that go to the writing thread together, and are written together.
const BATCH: usize = 16_384;

/// Batches that may wait to be written.
const BATCHES: usize = 4;

/// Why there is no record of the transactions.
#[derive(Debug, Error)]
#[error("cannot record transactions in {path}: {source}", path = .path.display())]
pub struct RecordError {
    path: PathBuf,
    source: RecordFailure,
}

/// Why a record cannot be made or written.
#[derive(Debug, Error)]
enum RecordFailure {
    #[error(
        "it is there already, from another store of the same name, maybe one that was deleted: \
         move its directory away, or delete it, and resume"
    )]
    Taken,
    #[error(transparent)]
    System(#[from] io::Error),
    #[error(transparent)]
    File(#[from] WholeFileError),
    #[error(transparent)]
    Parquet(#[from] ParquetError),
    #[error("the writing thread died")]
    Died,
}

/// What is recorded of a transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) client: usize,
    pub(super) workload: &'static str,
    pub(super) kind: &'static str,
    pub(super) class: Class,
    pub(super) stage: Stage,
    pub(super) scheduled: Instant,
    pub(super) latency: Duration,
    pub(super) ending: Ending,
}

enum RecorderMessage {
    /// The clients begin.
    Open(Instant),
    Batch(Vec<Record>),
    /// The load is over, and the file whole.
    End,
}

/// Writes records into a file. One that is dropped before its end leaves no file.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    batch: Vec<Record>,
    sender: SyncSender<RecorderMessage>,
    waited: Duration,
    writer: JoinHandle<Result<(), RecordFailure>>,
}

impl Recorder {
    /// Makes a file, and the directories it is in. One that is there is somebody else's record, and
    /// stays as it is; what is left of one that was cut off is replaced.
    ///
    /// # Errors
    /// The file is there or cannot be made, or no thread can be started.
    pub fn create(path: &Path) -> Result<Self, RecordError> {
        Self::try_create(path).map_err(|source| RecordError { path: path.to_owned(), source })
    }

    fn try_create(path: &Path) -> Result<Self, RecordFailure> {
        if path.try_exists()? {
            return Err(RecordFailure::Taken);
        }
        let directory = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(directory)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let part = WholeFile::create(directory, &name)?;
        let (sender, receiver) = sync_channel(BATCHES);
        let write = move || write(part, &receiver);
        let writer = std::thread::Builder::new().name("records".to_owned()).spawn(write)?;
        Ok(Recorder {
            path: path.to_owned(),
            batch: Vec::with_capacity(BATCH),
            sender,
            waited: Duration::ZERO,
            writer,
        })
    }

    /// How long the clients have waited for the writing thread.
    pub(super) fn waited(&self) -> Duration {
        self.waited
    }

    /// The clients begin: times count from here.
    pub(super) fn open(&mut self, now: Instant) {
        self.send(RecorderMessage::Open(now));
    }

    pub(super) fn record(&mut self, record: Record) {
        self.batch.push(record);
        if self.batch.len() == BATCH {
            let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
            self.send(RecorderMessage::Batch(batch));
        }
    }

    fn send(&mut self, message: RecorderMessage) {
        // A writer that is gone has failed, and says so at the end.
        if let Err(TrySendError::Full(message)) = self.sender.try_send(message) {
            let since = clock::now();
            let _ = self.sender.send(message);
            self.waited += clock::now() - since;
        }
    }

    /// The load is over: the file gets its name.
    pub(super) fn finish(mut self) -> Result<(), RecordError> {
        let batch = std::mem::take(&mut self.batch);
        self.send(RecorderMessage::Batch(batch));
        self.send(RecorderMessage::End);
        let Recorder { path, sender, writer, .. } = self;
        drop(sender);
        let written = writer.join().unwrap_or(Err(RecordFailure::Died));
        written.map_err(|source| RecordError { path, source })
    }
}

/// The writing thread: until the end, or until nobody can send one any more.
fn write(part: WholeFile, messages: &Receiver<RecorderMessage>) -> Result<(), RecordFailure> {
    let properties = Arc::new(WriterProperties::default());
    let mut writer = SerializedFileWriter::new(part, schema()?, properties)?;
    let mut began = None;
    for message in messages {
        match message {
            RecorderMessage::Open(now) => began = Some(now),
            RecorderMessage::Batch(batch) if batch.is_empty() => {}
            RecorderMessage::Batch(batch) => {
                let mut group = writer.next_row_group()?;
                let began = began.expect("the clients begin before the first record");
                write_batch(&mut group, &batch, began)?;
                group.close()?;
            }
            RecorderMessage::End => {
                writer.into_inner()?.finish()?;
                return Ok(());
            }
        }
    }
    Ok(())
}

const NUMBERS: [&str; 3] = ["client", "scheduled_us", "latency_us"];
const WORDS: [&str; 5] = ["workload", "kind", "class", "stage", "outcome"];

fn schema() -> Result<TypePtr, ParquetError> {
    let required = |name: &str, physical, logical| {
        let field = Type::primitive_type_builder(name, physical)
            .with_repetition(Repetition::REQUIRED)
            .with_logical_type(logical);
        field.build().map(Arc::new)
    };
    let numbers = NUMBERS.map(|name| required(name, Physical::INT64, None));
    let words = WORDS.map(|name| required(name, Physical::BYTE_ARRAY, Some(LogicalType::String)));
    let fields =
        numbers.into_iter().chain(words).collect::<Result<Vec<TypePtr>, ParquetError>>()?;
    Ok(Arc::new(Type::group_type_builder("transactions").with_fields(fields).build()?))
}

fn write_batch<W: io::Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    batch: &[Record],
    began: Instant,
) -> Result<(), ParquetError> {
    let us = |time: Duration| i64::try_from(time.as_micros()).expect("a load is far shorter");
    let numbers: [&dyn Fn(&Record) -> i64; NUMBERS.len()] = [
        &|record| i64::try_from(record.client).expect("clients are far fewer"),
        &|record| us(record.scheduled.saturating_duration_since(began)),
        &|record| us(record.latency),
    ];
    for number in numbers {
        let values: Vec<i64> = batch.iter().map(number).collect();
        if let Some(mut column) = group.next_column()? {
            column.typed::<Int64Type>().write_batch(&values, None, None)?;
            column.close()?;
        }
    }
    let words: [&dyn Fn(&Record) -> &'static str; WORDS.len()] = [
        &|record| record.workload,
        &|record| record.kind,
        &|record| record.class.name(),
        &|record| stage(record),
        &outcome,
    ];
    for word in words {
        let mut seen: Vec<(&'static str, ByteArray)> = Vec::new();
        let values: Vec<ByteArray> =
            batch.iter().map(|record| shared(&mut seen, word(record))).collect();
        if let Some(mut column) = group.next_column()? {
            column.typed::<ByteArrayType>().write_batch(&values, None, None)?;
            column.close()?;
        }
    }
    Ok(())
}

/// The bytes of a word, which all its values share.
fn shared(seen: &mut Vec<(&'static str, ByteArray)>, word: &'static str) -> ByteArray {
    if let Some((_, bytes)) = seen.iter().find(|(known, _)| *known == word) {
        return bytes.clone();
    }
    let bytes = ByteArray::from(word);
    seen.push((word, bytes.clone()));
    bytes
}

fn stage(record: &Record) -> &'static str {
    match record.stage {
        Stage::Connecting | Stage::Ready | Stage::Warmup => "warm-up",
        Stage::Measuring => "measured",
        Stage::Draining => "late",
    }
}

fn outcome(record: &Record) -> &'static str {
    match record.ending {
        Ending::Commit => "committed",
        Ending::Rollback => "rolled back",
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use parquet::file::reader::{FileReader, SerializedFileReader};

    use super::*;

    fn record(number: u64, began: Instant) -> Record {
        Record {
            client: 3,
            workload: "w",
            kind: if number.is_multiple_of(2) { "even" } else { "odd" },
            class: if number == 7 { Class::High } else { Class::Normal },
            stage: if number < 10 { Stage::Warmup } else { Stage::Measuring },
            scheduled: began + Duration::from_micros(number),
            latency: Duration::from_millis(2),
            ending: if number == 7 { Ending::Rollback } else { Ending::Commit },
        }
    }

    #[test]
    fn every_record_is_in_the_file_in_its_order() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("experiment-1/attempt-2.parquet");
        let mut recorder = Recorder::create(&path).unwrap();
        let began = Instant::now();
        recorder.open(began);
        let count = (BATCH * (BATCHES + 2) + 5) as u64;
        (0..count).for_each(|number| recorder.record(record(number, began)));
        assert!(!path.exists(), "it has its name before it is whole");
        recorder.finish().unwrap();
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        let rows = reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string());
        let rows: Vec<String> = rows.collect();
        assert_eq!(rows.len() as u64, count);
        assert_eq!(
            rows[7],
            "{client: 3, scheduled_us: 7, latency_us: 2000, workload: \"w\", kind: \"odd\", \
             class: \"high\", stage: \"warm-up\", outcome: \"rolled back\"}"
        );
        let last = rows.last().unwrap();
        assert!(last.contains(&format!("scheduled_us: {}, ", count - 1)), "{last}");
        assert!(last.contains("\"measured\", outcome: \"committed\""), "{last}");
    }

    #[test]
    fn waiting_for_a_slow_disk_is_added_up() {
        let (sender, receiver) = sync_channel::<RecorderMessage>(BATCHES);
        let writer = std::thread::spawn(move || {
            for message in receiver {
                drop(message);
                std::thread::sleep(Duration::from_millis(5));
            }
            Ok(())
        });
        let (path, batch, waited) = (PathBuf::new(), Vec::new(), Duration::ZERO);
        let mut recorder = Recorder { path, batch, sender, waited, writer };
        // On a busy machine it may take a while until we are faster than the writer.
        let began = Instant::now();
        let mut numbers = 0..BATCH as u64 * 2_000;
        while recorder.waited().is_zero() {
            let number = numbers.next().expect("the writer is slower");
            recorder.record(record(number, began));
        }
        recorder.finish().unwrap();
    }

    #[test]
    fn what_is_dropped_on_the_way_leaves_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("attempt-1.parquet");
        let mut recorder = Recorder::create(&path).unwrap();
        let began = Instant::now();
        recorder.open(began);
        (0..100_000).for_each(|number| recorder.record(record(number, began)));
        let Recorder { sender, writer, .. } = recorder;
        drop(sender);
        writer.join().unwrap().unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        let refused = Recorder::create(Path::new("/proc/none/x")).unwrap_err().to_string();
        assert!(refused.starts_with("cannot record transactions in /proc/none/x: "), "{refused}");
    }

    #[test]
    fn a_record_is_never_written_over_but_what_was_cut_off_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("attempt-1.parquet");
        fs::write(directory.path().join("attempt-1.parquet.part"), "cut off").unwrap();
        Recorder::create(&path).unwrap().finish().unwrap();
        let first = fs::read(&path).unwrap();
        assert_ne!(first, b"cut off");
        let refused = Recorder::create(&path).unwrap_err().to_string();
        let is_told = refused.contains("attempt-1.parquet: it is there already");
        assert!(is_told && refused.contains("move its directory away"), "{refused}");
        assert_eq!(fs::read(&path).unwrap(), first);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}

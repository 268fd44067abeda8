//! The write-ahead log: records appended, forced, read back and given up.
//!
//! What a record means is its writer's affair. The log keeps byte strings in order, tells when they
//! are durable, and after a crash finds exactly those that survived without a hole.
//!
//! # Positions and files
//! The log is one endless string of bytes, cut into segments of equal length, each a file that is
//! named by the position of its first byte. An [`Lsn`] is such a position. It says where a record
//! is without any index: LSN / segment length is the file, the remainder is the offset in it. A
//! segment begins with a header of one sector, see [`SEGMENT_HEADER`] for its bytes. Records
//! follow, see [`RECORD_HEADER`], each beginning at a multiple of 8 and none going over the end of
//! its segment. There are three kinds: what was appended; **turns**, after which the log goes on in
//! the next segment because the next record did not fit; and **marks**, of which more below.
//!
//! An example: segments of 8,192 bytes, and three payloads of 3,000 bytes, without marks.
//!
//! ```text
//! log-0000000000000000.wal                          log-0000000000002000.wal
//! 0        512      3,528    6,544  6,560   8,192   8,192    8,704   11,720  16,384
//! | header | record | record | turn | unused |      | header | record | zeros |
//! ```
//!
//! Each record takes 16 + 3,000 bytes, which is a multiple of 8. The third would end at 9,560, so
//! it goes to the next segment, whose first record is at 8,192 + 512 = 8,704.
//!
//! # Appending and forcing
//! [`Log::append`] copies the record into a buffer, under one mutex: about as long as a copy takes,
//! since most of the checksum is computed before. [`Log::force`] returns when a record is durable.
//! The first thread that needs it takes the whole buffer, writes it and syncs, while the others
//! fill the next and wait; one sync serves all whose records were in the buffer (group commit). The
//! next sync waits for those who were there the last time, if they come within the time of a sync:
//! in closed loops of commits that doubles the group. When the buffer is full, appending waits for,
//! or does, a write without a sync.
//!
//! # Opening: a torn end, or damage
//! The checksum of a record covers its own LSN and the log's id, so nothing that was written for
//! another place, when the file was another segment, passes for a record. The log ends where the
//! first record does not check. Two things can be the reason, and they must not be confused:
//!
//! * The **end is torn**: a crash came before a sync, and the disk kept any part of what was not
//!   synced, perhaps a later record and not an earlier one. No promise is broken, and the log
//!   simply ends there.
//! * A record that was durable is **damaged**. To end the log there would silently lose
//!   transactions that were committed.
//!
//! A valid record after a bad one does not tell the two apart. What does is that the log itself
//! says how much of it was durable, in two ways:
//!
//! * A **mark** goes with each write, at its end, and holds the position up to which the log was
//!   durable when that write began. A bad record with a valid mark after it that vouches for it is
//!   damage.
//! * A **segment** is begun only after those before it are durable. A bad record in a segment that
//!   is not the last is damage.
//!
//! An example: A, B and C were forced one by one. Each arrow is a sync.
//!
//! ```text
//! 512                544       568                592       616
//! | A |  -sync->     | B | mark: 544 | -sync->    | C | mark: 592 | -sync->
//! ```
//!
//! * A bit of A flips. The mark after B vouches for everything before 544: [`LogError::Damaged`].
//! * The crash comes during the second sync, and the disk has kept the mark but not B. The mark
//!   vouches for A only: the end is torn, and the log ends at 544.
//! * A bit of B flips. The mark after C vouches for it: damage.
//! * A bit of C flips. This looks like the third sync never returned, and the log ends at 592.
//!
//! So what cannot be told is damage in the **last write** before a crash, which nothing later
//! vouches for, and zeros in place of the last segment's rest. That the file of the last segment is
//! cut or missing is noticed (`segment.rs`). Two things narrow the rest down.
//! [`Log::seal`], at a clean shutdown, leaves a mark that vouches for all, and [`Tail::is_sealed`]
//! says that it was found. And the caller may know more: a page on the disk whose LSN is not before
//! [`Tail::end`] proves that the log was longer, because it was forced before the page was written.
//!
//! A torn end is dropped, durably, before anything is appended. Else a record
//! that survived beyond the hole would come back when the log has grown up to it. The rest of the
//! last segment is searched for headers that say their own position; only those could come back.
//!
//! What is found need not be durable, because it is read from the system's memory: the process
//! that wrote it was killed before its sync, or the sync failed, and then a second one succeeds and
//! writes nothing. So opening a log that was not sealed copies the newest segment, up to the end
//! of the log, to a new file that takes its name; of a log that was sealed it writes the last mark
//! again. Both are synced before anybody is told what was found.
//!
//! # Files that come and go
//! [`Log::truncate_before`] gives up segments; up to four are kept and become later ones, which
//! saves allocating their blocks. A file gets the name of a segment only when its header is
//! durable, and the name of a spare is durable before the file is rewritten. So at any moment of a
//! crash each segment's name has that segment's header, and a bad header is damage.
//!
//! # Failures
//! After an error of a write or a sync the log is closed: it is unknown what reached the disk, and
//! a second sync would report success for pages that the first has dropped ("fsyncgate", 2018). The
//! caller that led gets the error, all others [`LogError::Failed`], until the store is opened
//! again. A full disk is such an error: what was appended and not forced is lost, and nothing else.
//!
//! # Where this leaves the literature
//! * **Group commit** (Gawlick & Kinkade, IEEE Database Engineering Bulletin, 1985) waits for a
//!   group by a timer. Helland et al. (HPTS 1987) compute its best value from a load that is known;
//!   `PostgreSQL` has the administrator set it (`commit_delay`, off by default). Here nothing is
//!   set: the wait ends when as many threads have come as the last sync served or left waiting, is
//!   never longer than a sync takes, and rests after it was in vain.
//! * **Aether** (Johnson et al., VLDB 2010) lets threads copy into the buffer side by side, which
//!   pays on tens of cores. One mutex is enough here: it is held for some tens of nanoseconds.
//! * **`PostgreSQL`** lets a record go over the end of a page and of a segment, and has a header on
//!   each page of 8 KiB. Here a record is in one segment, so that it can be read without being put
//!   together; the longest is a little shorter than a segment. The pages' headers tell `PostgreSQL`
//!   whether a page is of this time, which here each record tells by its LSN.
//! * **ARIES** (Mohan et al., TODS 1992) takes the end of the log for given. Most systems end it at
//!   the first bad record, so that damage in the middle drops all that follows without a word.
//!   Marks are the difference, at 24 bytes for each write.
//!
//! # Limits
//! * Records of the last write before a crash are not vouched for, see above.
//! * A record is found to be damaged when it is read. What is before the position given to
//!   [`Log::open`] is not looked at.
//! * Zeros in place of the last write before a crash cannot be told from a write that never came.
//! * The checksum has 32 bits: damage to a record goes unnoticed once in four thousand million
//!   times.

mod append;
mod commit;
mod record;
mod scan;
mod segment;
mod waiters;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use thiserror::Error;

use crate::disk::Disk;

use commit::{Flusher, LogInner};
use record::Checksum;
use segment::{Layout, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, Segments};

pub use record::{KIND_MARK, KIND_RECORD, KIND_SHIFT, KIND_TURN, RECORD_ALIGNMENT, RECORD_HEADER};
pub use scan::LogReader;
pub use segment::{FORMAT_VERSION, MAGIC, SEGMENT_HEADER};

/// A position in the log: the number of bytes before it since the log's beginning.
///
/// The LSN of a record is where it begins. A later record has a larger one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl Lsn {
    /// No record: the first begins later.
    pub const ZERO: Lsn = Lsn(0);

    const fn plus(self, bytes: usize) -> Lsn {
        Lsn(self.0 + bytes as u64)
    }

    /// Returns bytes from `earlier` to here.
    fn since(self, earlier: Lsn) -> Option<usize> {
        usize::try_from(self.0.checked_sub(earlier.0)?).ok()
    }
}

impl fmt::Display for Lsn {
    /// Writes the position in hexadecimal, as in the names of the files.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Which log this is: a number that no other log has, so that files of two stores cannot be
/// mistaken for each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogId(pub u64);

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The longest time that [`LogSettings::lazy_sync`] can be.
const LAZY_SYNC_MAX: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Settings of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// Which log it is. Another log's files are refused.
    pub id: LogId,
    /// Length of a segment in bytes: a multiple of 512 from 4 KiB to 1 GiB. It is chosen when the
    /// log is created; an open log keeps the one it has.
    pub segment_bytes: u64,
    /// Appending waits for a write when more than this many bytes are not written. Two buffers of
    /// this size are kept.
    pub buffer_bytes: usize,
    /// The time within which [`Log::force_soon`] makes records durable: the sync begins after half
    /// of it. At most a year.
    pub lazy_sync: Duration,
}

impl Default for LogSettings {
    fn default() -> LogSettings {
        LogSettings {
            id: LogId(0),
            segment_bytes: 16 << 20,
            buffer_bytes: 8 << 20,
            lazy_sync: Duration::from_millis(100),
        }
    }
}

impl LogSettings {
    fn layout(&self) -> Result<Layout, LogError> {
        Layout::new(self.segment_bytes).ok_or(LogError::Setting {
            setting: "segment_bytes",
            value: self.segment_bytes,
            rule: "a multiple of 512 from 4096 to 1073741824",
        })
    }

    fn check(&self) -> Result<(), LogError> {
        if self.lazy_sync > LAZY_SYNC_MAX {
            let value = self.lazy_sync.as_millis().try_into().unwrap_or(u64::MAX);
            let rule = "at most 31536000000 milliseconds, a year";
            return Err(LogError::Setting { setting: "lazy_sync", value, rule });
        }
        let bytes = self.buffer_bytes as u64;
        if (SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&bytes) {
            return Ok(());
        }
        let rule = "from 4096 to 1073741824";
        Err(LogError::Setting { setting: "buffer_bytes", value: bytes, rule })
    }
}

/// What may be done with an open log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Full,
    ReadOnly,
}

/// What was found at the end of a log when it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Where the log ends, and goes on.
    pub end: Lsn,
    /// The last record at or after the position opened from, if there is one.
    pub last: Option<Lsn>,
    /// Records at or after that position.
    pub records: u64,
    /// The log was sealed and nothing was written since: it surely ends here.
    pub is_sealed: bool,
    /// There were traces of a write after the end, which were dropped.
    pub is_torn: bool,
}

/// What a log has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStatistics {
    /// Records appended.
    pub records: u64,
    /// Bytes of these records, headers and padding included.
    pub record_bytes: u64,
    /// Times that a thread asked for something to be durable that was not yet.
    pub forces: u64,
    /// Syncs done for these forces.
    pub syncs: u64,
    /// Bytes written: records, marks, turns, and zeros ahead of them.
    pub written_bytes: u64,
}

impl LogStatistics {
    /// Returns how many forces one sync served in the mean; 0 before the first.
    #[must_use]
    pub fn mean_group(&self) -> f64 {
        if self.syncs == 0 { 0.0 } else { self.forces as f64 / self.syncs as f64 }
    }
}

/// An open write-ahead log, which all threads use together.
///
/// * Records are in the order of their LSNs, and that is the order in which they were appended.
/// * What is durable is always a prefix: if a record is, all before it are.
/// * After an error of a write or a sync nothing is appended or forced any more.
///
/// When it is dropped, records that no thread forced or asked to be forced soon are lost.
pub struct Log {
    // Dropped first: its thread uses what follows.
    flusher: Flusher,
    inner: Arc<LogInner>,
}

thread_local! {
    /// Where this thread's records are put together.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A thread does not keep more memory than this for its records.
const SCRATCH_MAX: usize = 1 << 20;

impl Log {
    /// Makes a new log in a directory that has none.
    ///
    /// # Errors
    /// [`LogError::Exists`] when there is a log, [`LogError::Setting`], or an error of the disk.
    pub fn create(disk: Arc<dyn Disk>, settings: LogSettings) -> Result<Log, LogError> {
        settings.check()?;
        let segments = Segments::create(disk, settings.id, settings.layout()?)?;
        let begin = segments.first_record();
        Ok(Log::new(segments, &settings, begin, true, Access::Full))
    }

    /// Opens a log that is there, and finds its end: the first position at or after `from` at which
    /// no record begins. What is after it is dropped, and what is before it made durable.
    ///
    /// `from` is a position that the caller knows to be durable, like that of its last checkpoint,
    /// or what [`Log::end`] was at the time of something that is; [`Lsn::ZERO`] is the oldest
    /// there is. What is before it is not looked at.
    ///
    /// # Errors
    /// [`LogError::Damaged`] or [`LogError::Missing`] when something that was durable is not there;
    /// [`LogError::NewerVersion`] or [`LogError::OtherLog`] for files that this log cannot have
    /// written; [`LogError::NoRecord`] when no record can begin at `from`; [`LogError::Setting`],
    /// or an error of the disk.
    pub fn open(
        disk: Arc<dyn Disk>,
        settings: LogSettings,
        from: Lsn,
    ) -> Result<(Log, Tail), LogError> {
        settings.check()?;
        let segments = Segments::open(disk, settings.id)?;
        let tail = scan::find_end(&segments, Checksum::of_log(settings.id), from)?;
        segments.make_durable(&tail)?;
        Ok((Log::new(segments, &settings, tail.end, tail.is_sealed, Access::Full), tail))
    }

    /// Opens a log that is there to be read only: nothing is written, appending fails with
    /// [`LogError::ReadOnly`], and what is found need not be durable.
    ///
    /// # Errors
    /// As [`Log::open`].
    pub fn open_read_only(
        disk: Arc<dyn Disk>,
        settings: LogSettings,
        from: Lsn,
    ) -> Result<(Log, Tail), LogError> {
        settings.check()?;
        let segments = Segments::open(disk, settings.id)?;
        let tail = scan::find_end(&segments, Checksum::of_log(settings.id), from)?;
        Ok((Log::new(segments, &settings, tail.end, tail.is_sealed, Access::ReadOnly), tail))
    }

    fn new(
        segments: Segments,
        settings: &LogSettings,
        end: Lsn,
        is_sealed: bool,
        access: Access,
    ) -> Log {
        let inner = Arc::new(LogInner::new(segments, settings, end, is_sealed, access));
        Log { flusher: Flusher::new(settings.lazy_sync), inner }
    }

    /// Returns the longest payload that a record can have.
    #[must_use]
    pub fn payload_max(&self) -> usize {
        self.inner.segments.layout().payload_max()
    }

    /// Closes the log for good, as a failed sync does: what uses the log fails with
    /// [`LogError::Failed`] and this reason. For a failure elsewhere in the store after which
    /// nothing may become durable.
    pub fn stop(&self, reason: &str) {
        self.inner.stop(reason);
    }

    /// Ends all use of the log: makes durable what was asked to be soon, and returns when nothing
    /// is written any more. What uses the log then fails with [`LogError::Failed`].
    pub fn close(&self, reason: &str) {
        self.flusher.finish();
        self.inner.stop(reason);
        self.inner.wait_for_leader();
    }

    /// Returns an error when nothing can be appended: the log is closed, or open to be read only.
    ///
    /// # Errors
    /// [`LogError::Failed`], [`LogError::ReadOnly`].
    pub fn check_writable(&self) -> Result<(), LogError> {
        self.inner.check_access()?;
        self.check()
    }

    /// Returns an error when the log is closed.
    ///
    /// # Errors
    /// [`LogError::Failed`].
    pub fn check(&self) -> Result<(), LogError> {
        self.inner.check()
    }

    /// Adds a record at the end, in memory; returns its LSN. Waits for a write when the buffer is
    /// full.
    ///
    /// # Errors
    /// [`LogError::TooLong`] for a record that does not fit in a segment, [`LogError::Failed`], or
    /// an error of the disk when the buffer had to be written.
    pub fn append(&self, payload: &[u8]) -> Result<Lsn, LogError> {
        self.inner.append(payload)
    }

    /// Adds a record whose payload `write` appends to an empty vector. The vector belongs to the
    /// thread and is used again, so that nothing is allocated.
    ///
    /// It is not the log's buffer itself. There `write` would run in the log's critical section,
    /// with the checksum of all it writes, it could change other records, and a panic in it would
    /// leave half a record. A second copy of 200 bytes costs 8 ns.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn append_with(
        &self,
        length_hint: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Lsn, LogError> {
        let mut payload = SCRATCH.take();
        payload.clear();
        payload.reserve(length_hint);
        write(&mut payload);
        let appended = self.inner.append(&payload);
        if payload.capacity() <= SCRATCH_MAX {
            SCRATCH.set(payload);
        }
        appended
    }

    /// Returns the end of the log. The next record begins here or, when a mark or a turn comes
    /// between, later.
    #[must_use]
    pub fn end(&self) -> Lsn {
        self.inner.end()
    }

    /// Returns the position of the oldest record that has not been given up.
    #[must_use]
    pub fn begin(&self) -> Lsn {
        self.inner.segments.first_record()
    }

    /// Returns the position before which every record is durable.
    #[must_use]
    pub fn durable(&self) -> Lsn {
        self.inner.durable()
    }

    /// Returns when every record that begins before or at `up_to` is durable.
    ///
    /// # Errors
    /// An error of the disk, which closes the log, or [`LogError::Failed`] when it is closed. What
    /// is durable already is no error even then.
    pub fn force(&self, up_to: Lsn) -> Result<(), LogError> {
        self.inner.force(up_to)
    }

    /// Returns when every record that begins before or at `up_to` is in its file, from where it
    /// outlives the process but not the system.
    ///
    /// # Errors
    /// As [`Log::force`].
    pub fn write_out(&self, up_to: Lsn) -> Result<(), LogError> {
        self.inner.write_out(up_to)
    }

    /// Makes everything that was appended durable within [`LogSettings::lazy_sync`], and returns at
    /// once. The sync begins after half of that time; the bound holds as long as syncs take no
    /// longer than a quarter of it.
    ///
    /// # Errors
    /// [`LogError::Failed`]. A later failure is told to whom uses the log then.
    pub fn force_soon(&self) -> Result<(), LogError> {
        self.check()?;
        match self.flusher.ask(&self.inner) {
            Ok(()) => Ok(()),
            // The system gave no thread, so it is done here.
            Err(_) => self.force(self.end()),
        }
    }

    /// Forces everything and adds a mark that says so, for the next open to be sure that nothing is
    /// missing. Meant for a shutdown, when no thread appends.
    ///
    /// # Errors
    /// As [`Log::force`].
    pub fn seal(&self) -> Result<(), LogError> {
        self.inner.seal()
    }

    /// Returns the payload of one record, from the buffer or from its file.
    ///
    /// # Errors
    /// [`LogError::NoRecord`] when no record begins at `lsn`, [`LogError::Truncated`] when it has
    /// been given up, [`LogError::Damaged`] when it is not as it was written, or an error of the
    /// disk.
    pub fn read(&self, lsn: Lsn) -> Result<Vec<u8>, LogError> {
        self.inner.read(lsn)
    }

    /// Returns the records from `from` on, in order, up to those appended before this call;
    /// [`Lsn::ZERO`] is the oldest there is. Records that are still in memory are written out
    /// first.
    #[must_use]
    pub fn reader(&self, from: Lsn) -> LogReader<'_> {
        LogReader::new(&self.inner, from)
    }

    /// Gives up what is before `lsn`, as far as whole segments go. The caller sees to it that no
    /// thread needs it: neither a reader nor the next [`Log::open`].
    ///
    /// # Errors
    /// An error of the disk. Some segments then stay until the log was opened again, and is
    /// truncated again. The log is closed only if a sync failed.
    pub fn truncate_before(&self, lsn: Lsn) -> Result<(), LogError> {
        self.inner.truncate_before(lsn)
    }

    /// Returns what the log has done since it was opened.
    #[must_use]
    pub fn statistics(&self) -> LogStatistics {
        self.inner.state.lock().statistics
    }
}

/// Errors of a log.
#[derive(Debug, Error)]
pub enum LogError {
    /// A setting is out of its range.
    #[error("log setting {setting} is {value}: it must be {rule}")]
    Setting {
        /// The name of the setting in [`LogSettings`].
        setting: &'static str,
        /// The value that was given.
        value: u64,
        /// The values that are allowed.
        rule: &'static str,
    },
    /// A log was to be created where there is one.
    #[error("{file} is there already: create a log in a directory that has none")]
    Exists {
        /// A file of the log that is there.
        file: String,
    },
    /// A segment is not there, and a later one, or the caller's position, says that it was.
    #[error("log file {file} is missing: put it back, or restore the store from a backup")]
    Missing {
        /// The file that should be there.
        file: String,
    },
    /// A file was written by a newer program.
    #[error(
        "log file {file} has format version {version}, and this program knows up to {known}: \
         open it with the program that wrote it, or a newer one"
    )]
    NewerVersion {
        /// The name of the file, or `directory`.
        file: String,
        /// The format version of the file.
        version: u32,
        /// The newest format version that this program knows.
        known: u32,
    },
    /// A file belongs to another log.
    #[error(
        "log file {file} belongs to log {found}, this is log {wanted}: the files of two stores \
         are mixed up, put back the right ones"
    )]
    OtherLog {
        /// The name of the file, or `directory`.
        file: String,
        /// The log it says it belongs to.
        found: LogId,
        /// The log that was opened.
        wanted: LogId,
    },
    /// What was surely written and durable is not there any more.
    #[error("log file {file} is damaged at byte {offset}: {reason}; restore it from a backup")]
    Damaged {
        /// The name of the file, or `directory`.
        file: String,
        /// The offset in the file, in bytes.
        offset: u64,
        /// What is wrong, and how it is known that it was right once.
        reason: String,
    },
    /// A record that no segment can hold.
    #[error("a record of {length} bytes is longer than {limit}, the longest this log can hold")]
    TooLong {
        /// The length of the payload, in bytes.
        length: usize,
        /// Bytes of payload that fit in a segment.
        limit: usize,
    },
    /// No record begins at this position: it is not one that was returned by `append`, or the
    /// record was lost, or was damaged where it says its own position.
    #[error("no record begins at {lsn}")]
    NoRecord {
        /// The position that was asked for.
        lsn: Lsn,
    },
    /// The position has been given up by `truncate_before`.
    #[error("{lsn} is no longer kept: the log begins at {begin}")]
    Truncated {
        /// The position that was asked for.
        lsn: Lsn,
        /// The first position that is kept.
        begin: Lsn,
    },
    /// There is no space left. The log is closed: what was not forced is lost, nothing else.
    #[error("the disk is full while {doing} {file}: make space and open the store again")]
    Full {
        /// The file that was to grow.
        file: String,
        /// What was being done to the file.
        doing: &'static str,
    },
    /// The system reported another error.
    #[error("{doing} {file}: {source}")]
    Io {
        /// The name of the file, or `directory`.
        file: String,
        /// What was being done to the file.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The log was opened to be read only.
    #[error("the store was opened to be read only: open it for writing to change it")]
    ReadOnly,
    /// The log was closed, with the store or by an earlier error. After an error it is unknown
    /// whether what was not yet durable reached the disk, and trying again would not tell.
    #[error("the log is closed: {reason}; open the store again to go on")]
    Failed {
        /// The reason why the log was closed.
        reason: Arc<str>,
    },
}

impl LogError {
    /// Returns what makes an error of what the system said about `file`.
    fn io(file: &str, doing: &'static str) -> impl FnOnce(io::Error) -> LogError {
        move |source| {
            let file = file.to_owned();
            match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    LogError::Full { file, doing }
                }
                io::ErrorKind::NotFound => LogError::Missing { file },
                _ => LogError::Io { file, doing, source },
            }
        }
    }
}

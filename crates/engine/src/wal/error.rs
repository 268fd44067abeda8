//! What can go wrong with a log, and what to do about it.

use std::io;
use std::sync::Arc;

use thiserror::Error;

use super::{LogId, Lsn};

/// Why the log did not do what it was asked.
#[derive(Debug, Error)]
pub enum LogError {
    /// A setting is out of its range.
    #[error("log setting {setting} is {value}: it must be {rule}")]
    Setting {
        /// Its name in [`LogSettings`](super::LogSettings).
        setting: &'static str,
        /// What was asked for.
        value: u64,
        /// What can be had.
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
        /// The file.
        file: String,
        /// Its version.
        version: u32,
        /// The newest version known here.
        known: u32,
    },
    /// A file belongs to another log.
    #[error(
        "log file {file} belongs to log {found}, this is log {wanted}: the files of two stores \
         are mixed up, put back the right ones"
    )]
    OtherLog {
        /// The file.
        file: String,
        /// The log it says it belongs to.
        found: LogId,
        /// The log that was opened.
        wanted: LogId,
    },
    /// What was surely written and durable is not there any more.
    #[error("log file {file} is damaged at byte {offset}: {reason}; restore it from a backup")]
    Damaged {
        /// The file.
        file: String,
        /// Bytes from its beginning.
        offset: u64,
        /// What is wrong, and how it is known that it was right once.
        reason: String,
    },
    /// A record that no segment can hold.
    #[error("a record of {length} bytes is longer than {limit}, the longest this log can hold")]
    TooLong {
        /// Bytes of payload asked for.
        length: usize,
        /// Bytes of payload that fit in a segment.
        limit: usize,
    },
    /// No record begins at this position: it is not one that was returned by `append`, or the
    /// record was lost, or was damaged where it says its own position.
    #[error("no record begins at {lsn}")]
    NoRecord {
        /// The position asked for.
        lsn: Lsn,
    },
    /// The position has been given up by `truncate_before`.
    #[error("{lsn} is no longer kept: the log begins at {begin}")]
    Truncated {
        /// The position asked for.
        lsn: Lsn,
        /// The first position that is kept.
        begin: Lsn,
    },
    /// There is no space left. The log is closed: what was not forced is lost, nothing else.
    #[error("the disk is full while {doing} {file}: make space and open the store again")]
    Full {
        /// The file that was to grow.
        file: String,
        /// What was being done.
        doing: &'static str,
    },
    /// The system reported an error.
    #[error("{doing} {file}: {source}")]
    Io {
        /// The file, or `directory`.
        file: String,
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The log was opened to be read only.
    #[error("the store was opened to be read only: open it for writing to change it")]
    ReadOnly,
    /// The log was closed, with the store or by an earlier error. After an error it is unknown
    /// whether what was not yet durable reached the disk, and trying again would not tell.
    #[error("the log is closed: {reason}; open the store again to go on")]
    Failed {
        /// The earlier error.
        reason: Arc<str>,
    },
}

impl LogError {
    /// What the system said about `file`.
    pub(super) fn io(file: &str, doing: &'static str, source: io::Error) -> LogError {
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

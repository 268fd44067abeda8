//! The files of a log.
//!
//! A segment gets its name only after its header is durable: it is made, or a spare one rewritten,
//! under the name of a spare. So a file with the name of a segment always has the right header, and
//! one that has not is damaged. A segment that is given up becomes a spare; that name is durable
//! before the file is used again, so a crash never finds new contents under the old name.
//!
//! Two things tell that the newest segment is not what it was. Its file has the full length from
//! the beginning, so one that was cut is too short. And when its name is durable, the header of the
//! segment before it is told that it is followed: where that is the newest to be found, the newest
//! is missing. A record in a segment is durable only after both.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::debug;

use super::layout::{self, Header, Layout, SEGMENT_HEADER};
use super::record::{Checksum, Content, Flaw, MARK_LENGTH, Parsed, RECORD_HEADER, parse};
use super::scan::BLOCK;
use super::{LogError, LogId, Lsn, Tail};
use crate::disk::{Disk, File, Open};

/// As many segments as are kept for later when they are given up. PostgreSQL estimates how many it
/// will need; a few are enough not to allocate while the log grows as fast as it is cut.
const SPARES_MAX: usize = 4;

/// As many bytes are read at once where a record begins: most records are shorter.
const READ_FIRST: usize = 512;

const SEGMENT_PREFIX: &str = "log-";
const SPARE_PREFIX: &str = "spare-";
const SUFFIX: &str = ".wal";

/// The segments of a log, in a directory that may hold other files as well.
pub(super) struct Segments {
    disk: Arc<dyn Disk>,
    id: LogId,
    layout: Layout,
    files: Mutex<Files>,
}

#[derive(Default)]
struct Files {
    /// Every segment there is, open once it was needed.
    segments: BTreeMap<Lsn, Option<Arc<dyn File>>>,
    /// Names of files to be made segments of.
    spares: Vec<String>,
}

fn file_name(prefix: &str, first: Lsn) -> String {
    format!("{prefix}{:016x}{SUFFIX}", first.0)
}

/// The name of the file that begins with `first`.
pub(super) fn segment_name(first: Lsn) -> String {
    file_name(SEGMENT_PREFIX, first)
}

fn first_lsn(prefix: &str, name: &str) -> Option<Lsn> {
    let digits = name.strip_prefix(prefix)?.strip_suffix(SUFFIX)?;
    let first = Lsn(u64::from_str_radix(digits, 16).ok()?);
    (file_name(prefix, first) == name).then_some(first)
}

fn list(disk: &dyn Disk) -> Result<Files, LogError> {
    let mut files = Files::default();
    let names = disk.list().map_err(|error| LogError::io("directory", "listing", error))?;
    for name in names {
        if let Some(first) = first_lsn(SEGMENT_PREFIX, &name) {
            files.segments.insert(first, None);
        } else if first_lsn(SPARE_PREFIX, &name).is_some() {
            files.spares.push(name);
        }
    }
    Ok(files)
}

fn read_header(file: &dyn File, name: &str) -> Result<Header, LogError> {
    let length = file.len().map_err(|error| LogError::io(name, "measuring", error))?;
    if length < SEGMENT_HEADER as u64 {
        let reason = "it ends within its header".into();
        return Err(LogError::Damaged { file: name.into(), offset: length, reason });
    }
    let mut bytes = [0; SEGMENT_HEADER];
    file.read_at(&mut bytes, 0).map_err(|error| LogError::io(name, "reading", error))?;
    Header::decode(&bytes, name)
}

/// A file that was made with the full length of a segment still has it.
fn check_length(file: &dyn File, length: u64, name: &str) -> Result<(), LogError> {
    let found = file.len().map_err(|error| LogError::io(name, "measuring", error))?;
    if found >= length {
        return Ok(());
    }
    let reason = format!("the file was cut: it has {found} bytes of {length}");
    Err(LogError::Damaged { file: name.into(), offset: found, reason })
}

fn open_file(disk: &dyn Disk, name: &str, how: Open) -> Result<Arc<dyn File>, LogError> {
    disk.open(name, how).map_err(|error| LogError::io(name, "opening", error))
}

impl Segments {
    /// Makes the first segment, in a directory without a log.
    pub(super) fn create(
        disk: Arc<dyn Disk>,
        id: LogId,
        layout: Layout,
    ) -> Result<Segments, LogError> {
        let files = list(&*disk)?;
        if let Some(&first) = files.segments.keys().next() {
            return Err(LogError::Exists { file: segment_name(first) });
        }
        let segments = Segments { disk, id, layout, files: Mutex::new(files) };
        segments.begin(Lsn::ZERO)?;
        Ok(segments)
    }

    /// Finds the segments there are.
    pub(super) fn open(disk: Arc<dyn Disk>, id: LogId) -> Result<Segments, LogError> {
        let files = list(&*disk)?;
        let Some(&newest) = files.segments.keys().next_back() else {
            return Err(LogError::Missing { file: segment_name(Lsn::ZERO) });
        };
        let name = segment_name(newest);
        let header = read_header(&*open_file(&*disk, &name, Open::Existing)?, &name)?;
        let layout = header.layout;
        let segments = Segments { disk, id, layout, files: Mutex::new(files) };
        segments.find(newest)?;
        if header.is_followed {
            return Err(LogError::Missing { file: segment_name(layout.next(newest)) });
        }
        Ok(segments)
    }

    pub(super) fn layout(&self) -> Layout {
        self.layout
    }

    /// The first segment there is.
    pub(super) fn oldest(&self) -> Lsn {
        self.files.lock().segments.keys().next().copied().unwrap_or_default()
    }

    /// The last segment there is.
    pub(super) fn newest(&self) -> Lsn {
        self.files.lock().segments.keys().next_back().copied().unwrap_or_default()
    }

    /// Where records begin that are still there.
    pub(super) fn first_record(&self) -> Lsn {
        layout::first_record(self.oldest())
    }

    /// The file of `segment`; `None` when the log has not come so far.
    pub(super) fn find(&self, segment: Lsn) -> Result<Option<Arc<dyn File>>, LogError> {
        let mut files = self.files.lock();
        match files.segments.get(&segment) {
            Some(Some(file)) => return Ok(Some(Arc::clone(file))),
            Some(None) => {}
            None if files.segments.keys().next_back().is_some_and(|newest| *newest > segment) => {
                return Err(LogError::Missing { file: segment_name(segment) });
            }
            None => return Ok(None),
        }
        let name = segment_name(segment);
        let file = open_file(&*self.disk, &name, Open::Existing)?;
        let header = read_header(&*file, &name)?;
        self.check(&header, segment, &name)?;
        if header.has_full_length {
            check_length(&*file, self.layout.segment_bytes(), &name)?;
        }
        files.segments.insert(segment, Some(Arc::clone(&file)));
        Ok(Some(file))
    }

    fn check(&self, header: &Header, segment: Lsn, name: &str) -> Result<(), LogError> {
        if header.id != self.id {
            let file = name.into();
            return Err(LogError::OtherLog { file, found: header.id, wanted: self.id });
        }
        if header.segment != segment || header.layout != self.layout {
            let reason = format!(
                "it says that it is the segment at {} of {} bytes, not the one at {segment} of {}",
                header.segment,
                header.layout.segment_bytes(),
                self.layout.segment_bytes()
            );
            return Err(LogError::Damaged { file: name.into(), offset: 24, reason });
        }
        Ok(())
    }

    /// Makes the file of `segment`, which is not there yet, and its name durable. Returns the file
    /// and up to where its blocks were written before.
    pub(super) fn begin(&self, segment: Lsn) -> Result<(Arc<dyn File>, u64), LogError> {
        let spare = self.files.lock().spares.pop();
        debug!(%segment, ?spare, "log segment begun");
        let (how, filled) = match spare {
            Some(_) => (Open::Existing, self.layout.segment_bytes()),
            None => (Open::New, SEGMENT_HEADER as u64),
        };
        let made_as = spare.unwrap_or_else(|| file_name(SPARE_PREFIX, segment));
        let file = open_file(&*self.disk, &made_as, how)?;
        self.write_header(&*file, segment)
            .map_err(|error| LogError::io(&made_as, "writing the header of", error))?;
        self.name(&made_as, segment, &file)?;
        Ok((file, filled))
    }

    fn write_header(&self, file: &dyn File, segment: Lsn) -> io::Result<()> {
        if file.len()? != self.layout.segment_bytes() {
            file.set_len(self.layout.segment_bytes())?;
        }
        file.write_at(&Header::new(self.id, segment, self.layout).encode(), 0)?;
        file.sync()
    }

    /// Gives a file that is durable the name of `segment`, and tells the segment before.
    fn name(&self, made_as: &str, segment: Lsn, file: &Arc<dyn File>) -> Result<(), LogError> {
        self.disk
            .rename(made_as, &segment_name(segment))
            .map_err(|error| LogError::io(made_as, "renaming", error))?;
        self.sync_directory()?;
        self.mark_followed(segment)?;
        self.files.lock().segments.insert(segment, Some(Arc::clone(file)));
        Ok(())
    }

    /// Writes into the header of the segment before `segment`, if it is kept, that it is followed.
    fn mark_followed(&self, segment: Lsn) -> Result<(), LogError> {
        let before = Lsn(segment.0.saturating_sub(self.layout.segment_bytes()));
        if !self.files.lock().segments.contains_key(&before) || before == segment {
            return Ok(());
        }
        let Some(file) = self.find(before)? else { return Ok(()) };
        let header = Header { is_followed: true, ..Header::new(self.id, before, self.layout) };
        let length = self.layout.segment_bytes();
        // A segment of format version 1 may be shorter.
        let written = file
            .len()
            .and_then(|len| if len < length { file.set_len(length) } else { Ok(()) })
            .and_then(|()| file.write_at(&header.encode(), 0))
            .and_then(|()| file.sync());
        written.map_err(|error| self.failed("writing the header of", before, error))
    }

    /// Makes sure that what was found of the log is durable, and that nothing of a torn end can be
    /// taken for records when the log has grown up to it.
    ///
    /// What is read may be in the system's memory only: the process that wrote it was killed before
    /// it synced, or its sync failed and another one will write nothing. So it is written again. Of
    /// a log that was sealed that is the last mark: all before it was durable when the mark was
    /// written. Of any other it is the newest segment as a whole, under its name; a segment is
    /// begun only after those before it are durable.
    pub(super) fn make_durable(&self, tail: &Tail) -> Result<(), LogError> {
        let newest = self.newest();
        let Some(file) = self.find(newest)? else {
            return Err(LogError::Missing { file: segment_name(newest) });
        };
        let is_full = self.layout.segment(tail.end) != newest;
        if !tail.is_sealed || tail.is_torn || is_full {
            return self.renew(newest, &*file, tail.end);
        }
        let mut mark = [0; MARK_LENGTH];
        let at = self.layout.offset(Lsn(tail.end.0 - MARK_LENGTH as u64));
        let written = file
            .read_at(&mut mark, at)
            .and_then(|()| file.write_at(&mark, at))
            .and_then(|()| file.sync());
        written.map_err(|error| self.failed("writing the last mark of", newest, error))
    }

    /// Replaces the newest segment by a new file with what of it is before `end`. A crash finds the
    /// old one or the new one, and the records are the same.
    fn renew(&self, newest: Lsn, old: &dyn File, end: Lsn) -> Result<(), LogError> {
        self.discard_spares()?;
        let is_full = self.layout.segment(end) != newest;
        let length = if is_full { self.layout.segment_bytes() } else { self.layout.offset(end) };
        let made_as = file_name(SPARE_PREFIX, newest);
        let file = open_file(&*self.disk, &made_as, Open::New)?;
        let mut block = Vec::new();
        let mut copy = || {
            let mut at = SEGMENT_HEADER as u64;
            while at < length {
                block.resize(layout::to_usize((length - at).min(BLOCK as u64)), 0);
                old.read_at(&mut block, at)?;
                file.write_at(&block, at)?;
                at += block.len() as u64;
            }
            self.write_header(&*file, newest)
        };
        copy().map_err(|error| LogError::io(&made_as, "copying the newest segment to", error))?;
        self.name(&made_as, newest, &file)
    }

    /// Removes the spares that an earlier process left: their names may not be durable.
    fn discard_spares(&self) -> Result<(), LogError> {
        let spares = std::mem::take(&mut self.files.lock().spares);
        for spare in spares {
            let removed = self.disk.remove(&spare);
            removed.map_err(|error| LogError::io(&spare, "removing", error))?;
        }
        Ok(())
    }

    /// Makes the names of segments and spares durable.
    pub(super) fn sync_directory(&self) -> Result<(), LogError> {
        self.disk.sync_directory().map_err(|error| LogError::io("directory", "syncing", error))
    }

    /// Gives up the segments that lie wholly before `lsn`, the oldest first. The last one stays,
    /// since without any file the log would be gone. Returns the names of spares, which are durable
    /// after [`Segments::sync_directory`]; `None` when there was nothing to give up.
    pub(super) fn give_up_before(&self, lsn: Lsn) -> Result<Option<Vec<String>>, LogError> {
        let (given_up, mut taken) = self.forget_before(lsn);
        if given_up.is_empty() {
            return Ok(None);
        }
        let mut spares = Vec::new();
        for first in given_up {
            let (name, spare) = (segment_name(first), file_name(SPARE_PREFIX, first));
            if taken.len() < SPARES_MAX && !taken.contains(&spare) {
                let renamed = self.disk.rename(&name, &spare);
                renamed.map_err(|error| LogError::io(&name, "renaming", error))?;
                taken.push(spare.clone());
                spares.push(spare);
            } else {
                let removed = self.disk.remove(&name);
                removed.map_err(|error| LogError::io(&name, "removing", error))?;
            }
        }
        debug!(%lsn, kept = spares.len(), "log truncated");
        Ok(Some(spares))
    }

    /// Keeps spares, whose names are durable, for the next segments.
    pub(super) fn keep_spares(&self, spares: Vec<String>) {
        self.files.lock().spares.extend(spares);
    }

    /// Takes the segments before `lsn` out of the map; also tells the spares there are.
    fn forget_before(&self, lsn: Lsn) -> (Vec<Lsn>, Vec<String>) {
        let mut files = self.files.lock();
        let newest = files.segments.keys().next_back().copied().unwrap_or_default();
        let is_before = |first: &Lsn| self.layout.next(*first) <= lsn && *first < newest;
        let given_up: Vec<Lsn> = files.segments.keys().copied().take_while(is_before).collect();
        files.segments.retain(|first, _| !is_before(first));
        (given_up, files.spares.clone())
    }

    /// Reads the record at `lsn` from its file.
    pub(super) fn read(&self, lsn: Lsn, checksum: Checksum) -> Result<Vec<u8>, LogError> {
        let begin = self.first_record();
        if lsn < begin {
            return Err(LogError::Truncated { lsn, begin });
        }
        let (offset, room) = (self.layout.offset(lsn), self.layout.room(lsn));
        let is_position = layout::is_position(lsn)
            && self.layout.has_room(lsn)
            && offset >= SEGMENT_HEADER as u64;
        let Some(file) = self.find(self.layout.segment(lsn))?.filter(|_| is_position) else {
            return Err(LogError::NoRecord { lsn });
        };
        let mut bytes = vec![0; READ_FIRST.min(room)];
        loop {
            match file.read_at(&mut bytes, offset) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    if bytes.len() <= RECORD_HEADER {
                        return Err(LogError::NoRecord { lsn });
                    }
                    bytes.truncate(RECORD_HEADER);
                    continue;
                }
                Err(error) => return Err(self.failed("reading", lsn, error)),
            }
            let length = match parse(&bytes, lsn, room, checksum) {
                Parsed::Short { needed } => {
                    bytes.resize(self.there(&*file, lsn, needed)?, 0);
                    continue;
                }
                Parsed::Whole { content: Content::Record(payload), .. } => payload.len(),
                Parsed::Whole { .. } | Parsed::Flawed(Flaw::Blank | Flaw::Elsewhere) => {
                    return Err(LogError::NoRecord { lsn });
                }
                Parsed::Flawed(flaw) => return Err(self.damaged(lsn, flaw.to_string())),
            };
            bytes.truncate(RECORD_HEADER + length);
            bytes.drain(..RECORD_HEADER);
            return Ok(bytes);
        }
    }

    /// `needed`, if the file has as many bytes from `lsn` on: no memory is taken for a length that
    /// the file cannot hold.
    fn there(&self, file: &dyn File, lsn: Lsn, needed: usize) -> Result<usize, LogError> {
        let length = file.len().map_err(|error| self.failed("measuring", lsn, error))?;
        if self.layout.offset(lsn) + needed as u64 > length {
            return Err(self.damaged(lsn, Flaw::Ends.to_string()));
        }
        Ok(needed)
    }

    /// What the system said about the file at `lsn`.
    pub(super) fn failed(&self, doing: &'static str, lsn: Lsn, error: io::Error) -> LogError {
        LogError::io(&segment_name(self.layout.segment(lsn)), doing, error)
    }

    /// The file at `lsn` is not as it was.
    pub(super) fn damaged(&self, lsn: Lsn, reason: String) -> LogError {
        let file = segment_name(self.layout.segment(lsn));
        LogError::Damaged { file, offset: self.layout.offset(lsn), reason }
    }
}

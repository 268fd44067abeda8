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
//!
//! # Writing
//! A segment is synced before the log goes on in the next, so that only one file at a time has
//! anything to sync, and the name of a segment on the disk says that those before it are complete.
//!
//! A sync is cheap when it need not change the file's length or its list of blocks. So a small
//! write behind what was written of a file is followed by zeros, which the same sync makes durable,
//! and the next writes overwrite them. On ext4, writes of 2 to 8 KiB with a sync each were so 1.5
//! times as many a second as in a file that grows, and 1.2 times as many as in one whose length is
//! set before, because there the blocks are still to be found. With 64 KiB all were the same, so a
//! large write is not followed by zeros.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use tidegate_runtime::sync::Mutex;
use tracing::debug;

use super::record::{
    self, Checksum, Content, Flaw, MARK_LENGTH, Parsed, RECORD_ALIGNMENT, RECORD_HEADER, parse,
};
use super::{LogError, LogId, Lsn, Tail};
use crate::bytes::{get_u32, get_u64, put_u32, put_u64};
use crate::disk::{Disk, File, Open, SECTOR};

/// Bytes before the first record of a segment: one sector, so that it is written whole or not.
///
/// | bytes | what they hold, little endian |
/// | --- | --- |
/// | 0..8 | [`MAGIC`] |
/// | 8..12 | [`FORMAT_VERSION`] |
/// | 12..16 | zero |
/// | 16..24 | the log's id |
/// | 24..32 | LSN of the segment's first byte, a multiple of its length |
/// | 32..40 | length of every segment of this log |
/// | 40..48 | LSN of the next segment once its file is durable, else zero |
/// | 48..508 | zero |
/// | 508..512 | CRC-32C of bytes 0..508 |
///
/// Every version keeps the first two fields and the last where they are. In version 1 bytes 40..48
/// are zero and the file may be shorter than a segment; since version 2 it has the full length from
/// the beginning, so that a file that was cut is noticed.
pub const SEGMENT_HEADER: usize = SECTOR;

/// The first bytes of every segment.
pub const MAGIC: [u8; 8] = *b"TIDELOG\0";

/// The version of the format written here.
pub const FORMAT_VERSION: u32 = 2;

/// Segments are not shorter than this.
pub(super) const SEGMENT_BYTES_MIN: u64 = 4 << 10;

/// Segments are not longer than this, so that a record's length has 30 bits.
pub(super) const SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// No position is later. A log of 1 GiB a second takes 34 years to get there.
const LSN_MAX: u64 = 1 << 60;

const CHECKED: usize = SEGMENT_HEADER - size_of::<u32>();

const _: () = assert!(SEGMENT_HEADER.is_multiple_of(RECORD_ALIGNMENT));
const _: () = assert!(SEGMENT_BYTES_MIN > (SEGMENT_HEADER + record::MARK_LENGTH) as u64);
const _: () = assert!(SEGMENT_BYTES_MAX - (SEGMENT_HEADER as u64) < 1 << record::KIND_SHIFT);

/// How the log is cut into segments, each named by the LSN of its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    segment_bytes: u64,
}

impl Layout {
    /// Returns the layout, or `None` for a length that segments cannot have.
    pub(super) fn new(segment_bytes: u64) -> Option<Layout> {
        let fits = (SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&segment_bytes);
        (fits && segment_bytes.is_multiple_of(SECTOR as u64)).then_some(Layout { segment_bytes })
    }

    pub(super) fn segment_bytes(self) -> u64 {
        self.segment_bytes
    }

    /// Returns the segment in which `lsn` lies.
    pub(super) fn segment(self, lsn: Lsn) -> Lsn {
        Lsn(lsn.0 - self.offset(lsn))
    }

    /// Returns the position of `lsn` within its segment.
    pub(super) fn offset(self, lsn: Lsn) -> u64 {
        lsn.0 % self.segment_bytes
    }

    /// Returns the segment after the one in which `lsn` lies.
    pub(super) fn next(self, lsn: Lsn) -> Lsn {
        Lsn(self.segment(lsn).0 + self.segment_bytes)
    }

    /// Returns bytes from `lsn` to the end of its segment.
    pub(super) fn room(self, lsn: Lsn) -> usize {
        debug_assert!(lsn.0 <= LSN_MAX, "no position is later");
        to_usize(self.segment_bytes - self.offset(lsn))
    }

    /// Returns `lsn`, or the first position after it that is not in a segment's header.
    pub(super) fn outside_header(self, lsn: Lsn) -> Lsn {
        lsn.max(first_record(self.segment(lsn)))
    }

    /// Returns whether a record can begin at `lsn`, which is where another ended.
    pub(super) fn has_room(self, lsn: Lsn) -> bool {
        self.offset(lsn) > 0 && self.room(lsn) >= RECORD_HEADER
    }

    /// Returns where the log goes on when no more records begin in a segment after `lsn`, which is
    /// where the last ended. That can be the segment's very end, so that `lsn` is in the next.
    pub(super) fn turned(self, lsn: Lsn) -> Lsn {
        let segment = if self.offset(lsn) == 0 { lsn } else { self.next(lsn) };
        first_record(segment)
    }

    /// Returns the longest payload.
    pub(super) fn payload_max(self) -> usize {
        to_usize(self.segment_bytes) - SEGMENT_HEADER - RECORD_HEADER
    }
}

/// Returns the first position in `segment` at which a record may begin.
pub(super) fn first_record(segment: Lsn) -> Lsn {
    segment.plus(SEGMENT_HEADER)
}

/// Converts a number of bytes within a segment.
#[expect(clippy::cast_possible_truncation, reason = "a segment has at most 2^30 bytes")]
pub(super) fn to_usize(bytes: u64) -> usize {
    bytes as usize
}

/// Returns whether a record may begin at `lsn`, as far as the number goes.
pub(super) fn is_position(lsn: Lsn) -> bool {
    lsn.0 <= LSN_MAX && lsn.0.is_multiple_of(RECORD_ALIGNMENT as u64)
}

/// What the first sector of a segment says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) id: LogId,
    /// The LSN of the segment's first byte.
    pub(super) segment: Lsn,
    pub(super) layout: Layout,
    /// The next segment is durable, so the log does not end here.
    pub(super) is_followed: bool,
    /// The file has the length of a segment, whatever is in it.
    pub(super) has_full_length: bool,
}

impl Header {
    /// Returns the header of a new segment.
    pub(super) fn new(id: LogId, segment: Lsn, layout: Layout) -> Header {
        debug_assert_eq!(layout.offset(segment), 0, "a segment begins at its length's multiple");
        Header { id, segment, layout, is_followed: false, has_full_length: true }
    }

    pub(super) fn encode(&self) -> [u8; SEGMENT_HEADER] {
        let mut bytes = [0; SEGMENT_HEADER];
        bytes[..8].copy_from_slice(&MAGIC);
        put_u32(&mut bytes, 8, FORMAT_VERSION);
        put_u64(&mut bytes, 16, self.id.0);
        put_u64(&mut bytes, 24, self.segment.0);
        put_u64(&mut bytes, 32, self.layout.segment_bytes);
        if self.is_followed {
            put_u64(&mut bytes, 40, self.layout.next(self.segment).0);
        }
        let sum = crc32c::crc32c(&bytes[..CHECKED]);
        put_u32(&mut bytes, CHECKED, sum);
        bytes
    }

    /// Reads the first sector of `file`.
    pub(super) fn decode(bytes: &[u8; SEGMENT_HEADER], file: &str) -> Result<Header, LogError> {
        let damaged = |offset, reason: &str| {
            Err(LogError::Damaged { file: file.into(), offset, reason: reason.into() })
        };
        if bytes[..8] != MAGIC {
            return damaged(0, "it does not begin as a log file does");
        }
        if crc32c::crc32c(&bytes[..CHECKED]) != get_u32(bytes, CHECKED) {
            return damaged(0, "its header does not have the checksum it says");
        }
        let version = get_u32(bytes, 8);
        if version > FORMAT_VERSION {
            let known = FORMAT_VERSION;
            return Err(LogError::NewerVersion { file: file.into(), version, known });
        }
        let id = LogId(get_u64(bytes, 16));
        let segment = Lsn(get_u64(bytes, 24));
        let Some(layout) = Layout::new(get_u64(bytes, 32)) else {
            return damaged(32, "its header says a length that no segment has");
        };
        if !is_position(segment) || layout.offset(segment) != 0 {
            return damaged(24, "its header says a position at which no segment begins");
        }
        let is_followed = match get_u64(bytes, 40) {
            0 => false,
            next if next == layout.next(segment).0 => true,
            _ => return damaged(40, "its header names a next segment that is not the next"),
        };
        Ok(Header { id, segment, layout, is_followed, has_full_length: version >= 2 })
    }
}

/// As many segments as are kept for later when they are given up. PostgreSQL estimates how many it
/// will need; a few are enough not to allocate while the log grows as fast as it is cut.
const SPARES_MAX: usize = 4;

/// As many bytes are read at once where a record begins: most records are shorter.
const READ_FIRST: usize = 512;

/// Bytes read at once: large against the cost of a call, small against the caches.
pub(super) const BLOCK: usize = 256 << 10;

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

impl Files {
    fn newest(&self) -> Lsn {
        *self.segments.keys().next_back().expect("a log has a segment")
    }
}

fn file_name(prefix: &str, first: Lsn) -> String {
    format!("{prefix}{:016x}{SUFFIX}", first.0)
}

/// Returns the name of the file that begins with `first`.
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
    let names = disk.list().map_err(LogError::io("directory", "listing"))?;
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
    let length = file.len().map_err(LogError::io(name, "measuring"))?;
    if length < SEGMENT_HEADER as u64 {
        let reason = "it ends within its header".into();
        return Err(LogError::Damaged { file: name.into(), offset: length, reason });
    }
    let mut bytes = [0; SEGMENT_HEADER];
    file.read_at(&mut bytes, 0).map_err(LogError::io(name, "reading"))?;
    Header::decode(&bytes, name)
}

/// Checks that a file that was made with the full length of a segment still has it.
fn check_length(file: &dyn File, length: u64, name: &str) -> Result<(), LogError> {
    let found = file.len().map_err(LogError::io(name, "measuring"))?;
    if found >= length {
        return Ok(());
    }
    let reason = format!("the file was cut: it has {found} bytes of {length}");
    Err(LogError::Damaged { file: name.into(), offset: found, reason })
}

fn open_file(disk: &dyn Disk, name: &str, how: Open) -> Result<Arc<dyn File>, LogError> {
    disk.open(name, how).map_err(LogError::io(name, "opening"))
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

    /// Returns the first segment there is.
    pub(super) fn oldest(&self) -> Lsn {
        *self.files.lock().segments.keys().next().expect("a log has a segment")
    }

    /// Returns the last segment there is.
    pub(super) fn newest(&self) -> Lsn {
        self.files.lock().newest()
    }

    /// Returns the position of the first record that is kept.
    pub(super) fn first_record(&self) -> Lsn {
        first_record(self.oldest())
    }

    /// Returns the file of `segment`; `None` when the log has not come so far.
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
            .map_err(LogError::io(&made_as, "writing the header of"))?;
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
            .map_err(LogError::io(made_as, "renaming"))?;
        self.sync_directory()?;
        self.mark_followed(segment)?;
        let mut files = self.files.lock();
        files.segments.insert(segment, Some(Arc::clone(file)));
        debug_assert_eq!(files.newest(), segment, "a segment is begun behind the others");
        Ok(())
    }

    /// Writes into the header of the segment before `segment`, if it is kept, that it is followed.
    fn mark_followed(&self, segment: Lsn) -> Result<(), LogError> {
        // The first segment of all has none before it.
        let before = segment.0.checked_sub(self.layout.segment_bytes()).map(Lsn);
        let is_kept = |before: &Lsn| self.files.lock().segments.contains_key(before);
        let Some(before) = before.filter(is_kept) else { return Ok(()) };
        let Some(file) = self.find(before)? else {
            return Err(LogError::Missing { file: segment_name(before) });
        };
        let header = Header { is_followed: true, ..Header::new(self.id, before, self.layout) };
        let length = self.layout.segment_bytes();
        // A segment of format version 1 may be shorter.
        let written = file
            .len()
            .and_then(|len| if len < length { file.set_len(length) } else { Ok(()) })
            .and_then(|()| file.write_at(&header.encode(), 0))
            .and_then(|()| file.sync());
        written.map_err(self.failed("writing the header of", before))
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
        written.map_err(self.failed("writing the last mark of", newest))
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
                block.resize(to_usize((length - at).min(BLOCK as u64)), 0);
                old.read_at(&mut block, at)?;
                file.write_at(&block, at)?;
                at += block.len() as u64;
            }
            self.write_header(&*file, newest)
        };
        copy().map_err(LogError::io(&made_as, "copying the newest segment to"))?;
        self.name(&made_as, newest, &file)
    }

    /// Removes the spares that an earlier process left: their names may not be durable.
    fn discard_spares(&self) -> Result<(), LogError> {
        let spares = std::mem::take(&mut self.files.lock().spares);
        for spare in spares {
            self.disk.remove(&spare).map_err(LogError::io(&spare, "removing"))?;
        }
        Ok(())
    }

    /// Makes the names of segments and spares durable.
    pub(super) fn sync_directory(&self) -> Result<(), LogError> {
        self.disk.sync_directory().map_err(LogError::io("directory", "syncing"))
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
                self.disk.rename(&name, &spare).map_err(LogError::io(&name, "renaming"))?;
                taken.push(spare.clone());
                spares.push(spare);
            } else {
                self.disk.remove(&name).map_err(LogError::io(&name, "removing"))?;
            }
        }
        debug!(%lsn, kept = spares.len(), "log truncated");
        Ok(Some(spares))
    }

    /// Keeps spares, whose names are durable, for the next segments.
    pub(super) fn keep_spares(&self, spares: Vec<String>) {
        debug_assert!(spares.iter().all(|name| first_lsn(SPARE_PREFIX, name).is_some()));
        self.files.lock().spares.extend(spares);
    }

    /// Takes the segments before `lsn` out of the map; also tells the spares there are.
    fn forget_before(&self, lsn: Lsn) -> (Vec<Lsn>, Vec<String>) {
        let mut files = self.files.lock();
        let newest = files.newest();
        let is_before = |first: &Lsn| self.layout.next(*first) <= lsn && *first < newest;
        let given_up: Vec<Lsn> = files.segments.keys().copied().take_while(is_before).collect();
        files.segments.retain(|first, _| !is_before(first));
        debug_assert!(files.segments.contains_key(&newest), "the last one stays");
        (given_up, files.spares.clone())
    }

    /// Reads the record at `lsn` from its file.
    pub(super) fn read(&self, lsn: Lsn, checksum: Checksum) -> Result<Vec<u8>, LogError> {
        let begin = self.first_record();
        if lsn < begin {
            return Err(LogError::Truncated { lsn, begin });
        }
        let (offset, room) = (self.layout.offset(lsn), self.layout.room(lsn));
        let is_position =
            is_position(lsn) && self.layout.has_room(lsn) && offset >= SEGMENT_HEADER as u64;
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
                Err(error) => return Err(self.failed("reading", lsn)(error)),
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

    /// Returns `needed`, if the file has as many bytes from `lsn` on: no memory is allocated for a
    /// length that the file cannot hold.
    fn there(&self, file: &dyn File, lsn: Lsn, needed: usize) -> Result<usize, LogError> {
        let length = file.len().map_err(self.failed("measuring", lsn))?;
        if self.layout.offset(lsn) + needed as u64 > length {
            return Err(self.damaged(lsn, Flaw::Ends.to_string()));
        }
        Ok(needed)
    }

    /// Returns the error for what the system said about the file at `lsn`.
    pub(super) fn failed(
        &self,
        doing: &'static str,
        lsn: Lsn,
    ) -> impl FnOnce(io::Error) -> LogError + use<> {
        let segment = self.layout.segment(lsn);
        move |error| LogError::io(&segment_name(segment), doing)(error)
    }

    /// Returns the error that the file at `lsn` is not as it was.
    pub(super) fn damaged(&self, lsn: Lsn, reason: String) -> LogError {
        let file = segment_name(self.layout.segment(lsn));
        LogError::Damaged { file, offset: self.layout.offset(lsn), reason }
    }
}

/// Files are filled with as many bytes of zeros at once.
const AHEAD: u64 = 1 << 20;

/// Writes of as many bytes and more are not followed by zeros.
const LARGE: usize = 64 << 10;

/// The segment that is being written.
#[derive(Default)]
pub(super) struct SegmentWriter {
    current: Option<Current>,
}

struct Current {
    segment: Lsn,
    file: Arc<dyn File>,
    /// Up to here the file's blocks were written.
    filled: u64,
    is_synced: bool,
}

impl SegmentWriter {
    /// Writes `bytes`, which lie within one segment; returns how many were written, zeros included.
    pub(super) fn write(
        &mut self,
        segments: &Segments,
        lsn: Lsn,
        bytes: &[u8],
    ) -> Result<u64, LogError> {
        let layout = segments.layout();
        let segment = layout.segment(lsn);
        debug_assert!(bytes.len() <= layout.room(lsn), "a piece lies within a segment");
        let current = match &mut self.current {
            Some(current) if current.segment == segment => current,
            _ => self.enter(segments, lsn)?,
        };
        current
            .write(bytes, layout.offset(lsn), layout.segment_bytes())
            .map_err(segments.failed("writing", lsn))
    }

    /// Goes on with the segment of `lsn`, which was opened or is begun now.
    fn enter(&mut self, segments: &Segments, lsn: Lsn) -> Result<&mut Current, LogError> {
        self.sync()?;
        let segment = segments.layout().segment(lsn);
        debug_assert!(self.current.as_ref().is_none_or(|current| current.segment < segment));
        let (file, filled) = match segments.find(segment)? {
            Some(file) => (file, segments.layout().offset(lsn)),
            None => segments.begin(segment)?,
        };
        Ok(self.current.insert(Current { segment, file, filled, is_synced: true }))
    }

    /// Makes durable what was written.
    pub(super) fn sync(&mut self) -> Result<(), LogError> {
        if let Some(current) = self.current.as_mut().filter(|current| !current.is_synced) {
            let name = || segment_name(current.segment);
            current.file.sync().map_err(|error| LogError::io(&name(), "syncing")(error))?;
            current.is_synced = true;
        }
        Ok(())
    }
}

impl Current {
    fn write(&mut self, bytes: &[u8], offset: u64, segment_bytes: u64) -> io::Result<u64> {
        self.is_synced = false;
        self.file.write_at(bytes, offset)?;
        let end = offset + bytes.len() as u64;
        if end <= self.filled {
            return Ok(bytes.len() as u64);
        }
        debug_assert!(end <= segment_bytes, "a piece lies within a segment");
        self.filled = end;
        if bytes.len() < LARGE {
            let filled = (end + 1).next_multiple_of(AHEAD).min(segment_bytes);
            self.file.write_at(&vec![0; to_usize(filled - end)], end)?;
            self.filled = filled;
        }
        Ok(self.filled - offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        let layout = Layout::new(8_192).expect("a length");
        Header::new(LogId(5), Lsn(16_384), layout)
    }

    /// Returns a header with four other bytes and a checksum that is right for them.
    fn altered(at: usize, value: u32) -> [u8; SEGMENT_HEADER] {
        let mut bytes = header().encode();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        let sum = crc32c::crc32c(&bytes[..CHECKED]);
        bytes[CHECKED..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    #[test]
    fn positions_fall_into_segments() {
        let layout = header().layout;
        let cases = [
            // position, segment, offset, room, outside a header
            (0, 0, 0, 8_192, 512),
            (512, 0, 512, 7_680, 512),
            (8_184, 0, 8_184, 8, 8_184),
            (8_192, 8_192, 0, 8_192, 8_704),
            (8_704, 8_192, 512, 7_680, 8_704),
        ];
        for (lsn, segment, offset, room, outside) in cases {
            let lsn = Lsn(lsn);
            assert_eq!(layout.segment(lsn), Lsn(segment));
            assert_eq!(layout.offset(lsn), offset);
            assert_eq!(layout.next(lsn), Lsn(segment + 8_192));
            assert_eq!(layout.room(lsn), room);
            assert_eq!(layout.outside_header(lsn), Lsn(outside));
        }
        let turned = [512, 8_184, 8_192, 8_704].map(|lsn| layout.turned(Lsn(lsn)).0);
        assert_eq!(turned, [8_704, 8_704, 8_704, 16_896]);
        let has_room = [8_176, 8_184, 8_192].map(|lsn| layout.has_room(Lsn(lsn)));
        assert_eq!(has_room, [true, false, false]);
        assert_eq!(layout.payload_max(), 8_192 - 512 - 16);
        assert_eq!(record::stored_length(layout.payload_max()), 8_192 - 512);
    }

    #[test]
    fn segments_have_whole_sectors() {
        let fits = |bytes| Layout::new(bytes).is_some();
        assert_eq!([4_096, 4_608, 1 << 30].map(fits), [true; 3]);
        assert_eq!([0, 3_584, 4_097, (1 << 30) + 512].map(fits), [false; 4]);
    }

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let bytes = header().encode();
        assert_eq!(Header::decode(&bytes, "f").expect("a header"), header());
        let followed = Header { is_followed: true, ..header() };
        assert_eq!(Header::decode(&followed.encode(), "f").expect("a header"), followed);
        let first = Header { has_full_length: false, ..header() };
        assert_eq!(Header::decode(&altered(8, 1), "f").expect("a header"), first);
    }

    #[test]
    fn a_wrong_header_is_named() {
        let told = |bytes: &[u8; SEGMENT_HEADER]| {
            let error = Header::decode(bytes, "f").expect_err("no header");
            error.to_string()
        };
        let cases = [
            (altered(0, 0), "damaged at byte 0: it does not begin as a log file does"),
            (altered(8, 3), "has format version 3, and this program knows up to 2"),
            (altered(24, 4_096), "damaged at byte 24"),
            (altered(28, 1 << 30), "damaged at byte 24"),
            (altered(32, 100), "damaged at byte 32"),
            (altered(40, 8_192), "damaged at byte 40"),
        ];
        for (bytes, part) in cases {
            assert!(told(&bytes).contains(part), "{}", told(&bytes));
        }
        for bit in 0..SEGMENT_HEADER * 8 {
            let mut bytes = header().encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(told(&bytes).contains("f is damaged at byte 0"), "bit {bit}");
        }
    }
}

//! Reading the log forward in big blocks: for readers, and to find its end when it is opened.

use std::ops::Range;

use tracing::warn;

use super::commit::LogInner;
use super::record::{Checksum, Content, Flaw, MARK_LENGTH, Parsed, RECORD_HEADER, parse};
use super::segment::{BLOCK, Segments, first_record, is_position, segment_name, to_usize};
use super::{LogError, Lsn, Tail};
use crate::disk::File;

/// Goes through the records of the files one after the other.
pub(super) struct Scanner<'a> {
    segments: &'a Segments,
    checksum: Checksum,
    /// Where the next record begins.
    at: Lsn,
    /// The bytes from `block_at` on, within one segment.
    block: Vec<u8>,
    block_at: Lsn,
}

/// What a scanner comes upon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A record, with its payload as a range of [`Scanner::bytes`].
    Record(Lsn, Range<usize>),
    /// A mark, and what it says was durable.
    Mark(Lsn, Lsn),
    /// No record begins here, and why.
    Nothing(Flaw),
}

impl<'a> Scanner<'a> {
    pub(super) fn new(segments: &'a Segments, checksum: Checksum, from: Lsn) -> Scanner<'a> {
        let at = segments.layout().outside_header(from);
        Scanner { segments, checksum, at, block: Vec::new(), block_at: at }
    }

    /// Returns the position of the next record, if there is one.
    pub(super) fn at(&self) -> Lsn {
        self.at
    }

    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.block[range]
    }

    /// Returns the next record or mark. After [`Found::Nothing`] it stays where it is.
    pub(super) fn advance(&mut self) -> Result<Found, LogError> {
        loop {
            let layout = self.segments.layout();
            if !layout.has_room(self.at) {
                self.turn();
                continue;
            }
            let (lsn, room) = (self.at, layout.room(self.at));
            debug_assert_eq!(lsn, layout.outside_header(lsn), "no record begins in a header");
            let skip = lsn.since(self.block_at).expect("a block begins at a record or before");
            // The padding of the last record may not have been read.
            let bytes = self.block.get(skip..).unwrap_or_default();
            match parse(bytes, lsn, room, self.checksum) {
                Parsed::Short { needed } => {
                    if !self.fill(needed, room)? {
                        return Ok(Found::Nothing(Flaw::Ends));
                    }
                }
                Parsed::Flawed(flaw) => return Ok(Found::Nothing(flaw)),
                Parsed::Whole { content: Content::Turn, .. } => self.turn(),
                Parsed::Whole { content: Content::Mark { durable }, length } => {
                    self.at = lsn.plus(length);
                    return Ok(Found::Mark(lsn, durable));
                }
                Parsed::Whole { content: Content::Record(payload), length } => {
                    let begin = skip + RECORD_HEADER;
                    let range = begin..begin + payload.len();
                    self.at = lsn.plus(length);
                    return Ok(Found::Record(lsn, range));
                }
            }
        }
    }

    /// Goes on in the next segment.
    fn turn(&mut self) {
        let turned = self.segments.layout().turned(self.at);
        debug_assert!(turned > self.at, "the log goes forward");
        self.at = turned;
        self.block.clear();
        self.block_at = self.at;
    }

    /// Reads a block, and at least `needed` bytes; false when the file has not as many.
    fn fill(&mut self, needed: usize, room: usize) -> Result<bool, LogError> {
        let layout = self.segments.layout();
        let Some(file) = self.segments.find(layout.segment(self.at))? else {
            return Ok(false);
        };
        let length = file.len().map_err(self.segments.failed("measuring", self.at))?;
        let offset = layout.offset(self.at);
        let there = to_usize(length.saturating_sub(offset).min(room as u64));
        if there < needed {
            return Ok(false);
        }
        self.block.resize(there.min(needed.max(BLOCK)), 0);
        debug_assert!(self.block.len() >= needed, "the record is in the block");
        self.block_at = self.at;
        let failed = self.segments.failed("reading", self.at);
        file.read_at(&mut self.block, offset).map_err(failed)?;
        Ok(true)
    }
}

/// The records from one position on, up to those that had been appended when it was made; see
/// [`Log::reader`](super::Log::reader).
pub struct LogReader<'a> {
    log: &'a LogInner,
    scanner: Scanner<'a>,
    from: Lsn,
    /// Where the log ended when this was made.
    stop: Lsn,
    is_started: bool,
}

impl<'a> LogReader<'a> {
    pub(super) fn new(log: &'a LogInner, from: Lsn) -> LogReader<'a> {
        let from = if from == Lsn::ZERO { log.segments.first_record() } else { from };
        let scanner = Scanner::new(&log.segments, log.checksum, from);
        LogReader { log, scanner, from, stop: log.end(), is_started: false }
    }

    /// Returns the next record and its payload, which is lent until the next call; `None` after the
    /// last.
    ///
    /// # Errors
    /// [`LogError::Truncated`] or [`LogError::NoRecord`] when the position to begin with is not one
    /// of a record that is kept, [`LogError::Damaged`] or [`LogError::Missing`] when a later record
    /// is not as it was written, and what keeps the buffered records from being written out.
    pub fn read_next(&mut self) -> Result<Option<(Lsn, &[u8])>, LogError> {
        if !self.is_started {
            self.start()?;
        }
        while self.scanner.at() < self.stop {
            match self.scanner.advance()? {
                Found::Record(lsn, payload) => return Ok(Some((lsn, self.scanner.bytes(payload)))),
                Found::Mark(..) => {}
                // Only a turn was left.
                Found::Nothing(_) if self.scanner.at() >= self.stop => {}
                Found::Nothing(flaw) => {
                    let lsn = self.scanner.at();
                    return Err(if lsn == self.from {
                        LogError::NoRecord { lsn }
                    } else {
                        self.log.segments.damaged(lsn, flaw.to_string())
                    });
                }
            }
        }
        Ok(None)
    }

    /// Sees to it that all is in the files.
    fn start(&mut self) -> Result<(), LogError> {
        let (lsn, begin) = (self.from, self.log.segments.first_record());
        let layout = self.log.segments.layout();
        // A full segment's very end is where the next begins, and its records come behind its
        // header; the full one may have been given up.
        let next = if layout.offset(lsn) == 0 { layout.turned(lsn) } else { lsn };
        if next < begin {
            return Err(LogError::Truncated { lsn, begin });
        }
        self.log.write_out(self.stop)?;
        self.is_started = true;
        Ok(())
    }
}

impl Iterator for LogReader<'_> {
    type Item = Result<(Lsn, Vec<u8>), LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.read_next().transpose()?;
        Some(next.map(|(lsn, payload)| (lsn, payload.to_vec())))
    }
}

/// Finds the end of the log after `from`.
pub(super) fn find_end(
    segments: &Segments,
    checksum: Checksum,
    from: Lsn,
) -> Result<Tail, LogError> {
    let mut scanner = Scanner::new(segments, checksum, start(segments, from)?);
    let (mut tail, flaw) = scan(&mut scanner)?;
    debug_assert!(tail.end >= from, "the end is behind the beginning");
    let newest = segments.newest();
    let segment = segments.layout().segment(tail.end);
    if segment < newest {
        // A segment is begun only after those before it are durable.
        let reason = format!("{flaw}, yet the log went on to {}", segment_name(newest));
        return Err(segments.damaged(tail.end, reason));
    }
    let Some(file) = segments.find(newest)? else {
        return Err(LogError::Missing { file: segment_name(newest) });
    };
    let name = segment_name(newest);
    if segment == newest && look_beyond(&*file, segments, checksum, tail.end, flaw)? {
        warn!(end = %tail.end, file = name, "log ends in a torn write, which is dropped");
        tail.is_torn = true;
    }
    Ok(tail)
}

/// Returns where to begin, which is in a segment that is there or just after the last.
fn start(segments: &Segments, from: Lsn) -> Result<Lsn, LogError> {
    if from == Lsn::ZERO {
        return Ok(segments.first_record());
    }
    if !is_position(from) {
        return Err(LogError::NoRecord { lsn: from });
    }
    let layout = segments.layout();
    let (segment, newest) = (layout.segment(from), segments.newest());
    if segments.find(segment)?.is_some() {
        return Ok(from);
    }
    let next = layout.next(newest);
    let is_end = segment == next && layout.outside_header(from) == first_record(next);
    if is_end { Ok(from) } else { Err(LogError::Missing { file: segment_name(segment) }) }
}

/// Goes through all records; returns also why there are no more.
fn scan(scanner: &mut Scanner<'_>) -> Result<(Tail, Flaw), LogError> {
    let mut tail =
        Tail { end: scanner.at(), last: None, records: 0, is_sealed: false, is_torn: false };
    loop {
        let before = scanner.at();
        match scanner.advance()? {
            Found::Record(lsn, _) => {
                tail.records += 1;
                tail.last = Some(lsn);
                tail.is_sealed = false;
            }
            Found::Mark(_, durable) => tail.is_sealed = durable >= before,
            Found::Nothing(flaw) => {
                tail.end = scanner.at();
                return Ok((tail, flaw));
            }
        }
    }
}

/// Looks through the rest of the last segment for traces of this log. True when there are some,
/// which could be taken for records once the log has grown up to them.
fn look_beyond(
    file: &dyn File,
    segments: &Segments,
    checksum: Checksum,
    end: Lsn,
    flaw: Flaw,
) -> Result<bool, LogError> {
    let layout = segments.layout();
    let failed = |doing| segments.failed(doing, end);
    let length = file.len().map_err(failed("measuring"))?;
    let mut left = length.min(layout.segment_bytes()).saturating_sub(layout.offset(end));
    let (mut at, mut has_traces) = (end, false);
    let mut block = Vec::new();
    while left >= RECORD_HEADER as u64 {
        block.resize(to_usize(left.min(BLOCK as u64)), 0);
        file.read_at(&mut block, layout.offset(at)).map_err(failed("reading"))?;
        let traces = Traces::find(&block, at, checksum);
        if let Some((mark, durable)) = traces.mark.filter(|(_, durable)| *durable > end) {
            let reason = format!(
                "{flaw}, yet the mark at {mark} says that all before {durable} was durable"
            );
            return Err(segments.damaged(end, reason));
        }
        has_traces |= traces.is_any;
        // The next block overlaps, so that a mark is whole in one of them.
        let step = if left > block.len() as u64 { block.len() - MARK_LENGTH } else { block.len() };
        at = at.plus(step);
        left -= step as u64;
    }
    Ok(has_traces)
}

/// What of this log is found in bytes that are not part of it.
struct Traces {
    /// There is something that says it belongs where it is.
    is_any: bool,
    /// The last whole mark, and what it says was durable.
    mark: Option<(Lsn, Lsn)>,
}

impl Traces {
    /// Looks through `bytes`, which are at `start`.
    ///
    /// A record says its own position in its second half. Where that is right, something was
    /// written for this place. Where it is not, the bytes are zeros or of a time when the file was
    /// another segment, and cannot become a record before they are overwritten.
    fn find(bytes: &[u8], start: Lsn, checksum: Checksum) -> Traces {
        let mut found = Traces { is_any: false, mark: None };
        let (words, _) = bytes.as_chunks::<8>();
        for (index, word) in words.iter().enumerate().skip(1) {
            let skip = (index - 1) * 8;
            let lsn = start.plus(skip);
            if u64::from_le_bytes(*word) != lsn.0 {
                continue;
            }
            found.is_any = true;
            // A mark that goes over the end of these bytes is whole in the next block.
            if let Some(mark) = bytes[skip..].get(..MARK_LENGTH)
                && let Parsed::Whole { content: Content::Mark { durable }, .. } =
                    parse(mark, lsn, MARK_LENGTH, checksum)
            {
                found.mark = Some((lsn, durable));
            }
        }
        found
    }
}

//! Reading the log forward, in big blocks.

use std::ops::Range;

use super::record::{Checksum, Content, Flaw, Parsed, RECORD_HEADER, parse};
use super::segment::Segments;
use super::{LogError, Lsn};

/// Bytes read at once: large against the cost of a call, small against the caches.
pub(super) const BLOCK: usize = 256 << 10;

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

    /// Where the next record begins, if there is one.
    pub(super) fn at(&self) -> Lsn {
        self.at
    }

    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.block.get(range).unwrap_or_default()
    }

    /// The next record or mark. After [`Found::Nothing`] it stays where it is.
    pub(super) fn advance(&mut self) -> Result<Found, LogError> {
        loop {
            let layout = self.segments.layout();
            if !layout.has_room(self.at) {
                self.turn();
                continue;
            }
            let (lsn, room) = (self.at, layout.room(self.at));
            let skip = lsn.since(self.block_at).unwrap_or(usize::MAX);
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
        self.at = self.segments.layout().turned(self.at);
        self.block.clear();
        self.block_at = self.at;
    }

    /// Reads a block, and at least `needed` bytes; false when the file has not as many.
    fn fill(&mut self, needed: usize, room: usize) -> Result<bool, LogError> {
        let layout = self.segments.layout();
        let Some(file) = self.segments.find(layout.segment(self.at))? else {
            return Ok(false);
        };
        let length = file.len();
        let length = length.map_err(|error| self.segments.failed("measuring", self.at, error))?;
        let offset = layout.offset(self.at);
        let there = usize::try_from(length.saturating_sub(offset)).unwrap_or(room).min(room);
        if there < needed {
            return Ok(false);
        }
        self.block.resize(there.min(needed.max(BLOCK)), 0);
        self.block_at = self.at;
        let read = file.read_at(&mut self.block, offset);
        read.map_err(|error| self.segments.failed("reading", self.at, error))?;
        Ok(true)
    }
}

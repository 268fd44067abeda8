//! Opening a log that is there: finding its end.

use tracing::warn;

use super::layout;
use super::record::{Checksum, Content, Flaw, MARK_LENGTH, Parsed, RECORD_HEADER, parse};
use super::scan::{BLOCK, Found, Scanner};
use super::segment::{Segments, segment_name};
use super::{LogError, Lsn, Tail};
use crate::disk::File;

/// Finds the end of the log after `from`.
pub(super) fn find_end(
    segments: &Segments,
    checksum: Checksum,
    from: Lsn,
) -> Result<Tail, LogError> {
    let mut scanner = Scanner::new(segments, checksum, start(segments, from)?);
    let (mut tail, flaw) = scan(&mut scanner)?;
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

/// Where to begin, which is in a segment that is there or just after the last.
fn start(segments: &Segments, from: Lsn) -> Result<Lsn, LogError> {
    if from == Lsn::ZERO {
        return Ok(segments.first_record());
    }
    if !layout::is_position(from) {
        return Err(LogError::NoRecord { lsn: from });
    }
    let layout = segments.layout();
    let (segment, newest) = (layout.segment(from), segments.newest());
    if segments.find(segment)?.is_some() {
        return Ok(from);
    }
    let next = layout.next(newest);
    let is_end = segment == next && layout.outside_header(from) == layout::first_record(next);
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
    let failed = |doing, error| segments.failed(doing, end, error);
    let length = file.len().map_err(|error| failed("measuring", error))?;
    let mut left = length.min(layout.segment_bytes()).saturating_sub(layout.offset(end));
    let (mut at, mut has_traces) = (end, false);
    let mut block = Vec::new();
    while left >= RECORD_HEADER as u64 {
        block.resize(layout::to_usize(left.min(BLOCK as u64)), 0);
        file.read_at(&mut block, layout.offset(at)).map_err(|error| failed("reading", error))?;
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
    /// `bytes` are at `start`.
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
            let bytes = bytes.get(skip..).unwrap_or_default();
            let mark = bytes.get(..MARK_LENGTH).unwrap_or_default();
            if let Parsed::Whole { content: Content::Mark { durable }, .. } =
                parse(mark, lsn, MARK_LENGTH, checksum)
            {
                found.mark = Some((lsn, durable));
            }
        }
        found
    }
}

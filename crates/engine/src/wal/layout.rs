//! Which byte of the log is where: positions, segments and their first sector.

use super::record::{self, RECORD_ALIGNMENT, RECORD_HEADER};
use super::{LogError, LogId, Lsn};
use crate::disk::SECTOR;

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
    /// `None` for a length that segments cannot have.
    pub(super) fn new(segment_bytes: u64) -> Option<Layout> {
        let fits = (SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&segment_bytes);
        (fits && segment_bytes.is_multiple_of(SECTOR as u64)).then_some(Layout { segment_bytes })
    }

    pub(super) fn segment_bytes(self) -> u64 {
        self.segment_bytes
    }

    /// The segment in which `lsn` lies.
    pub(super) fn segment(self, lsn: Lsn) -> Lsn {
        Lsn(lsn.0 - self.offset(lsn))
    }

    /// The position of `lsn` within its segment.
    pub(super) fn offset(self, lsn: Lsn) -> u64 {
        lsn.0 % self.segment_bytes
    }

    /// The segment after the one in which `lsn` lies.
    pub(super) fn next(self, lsn: Lsn) -> Lsn {
        Lsn(self.segment(lsn).0 + self.segment_bytes)
    }

    /// Bytes from `lsn` to the end of its segment.
    pub(super) fn room(self, lsn: Lsn) -> usize {
        to_usize(self.segment_bytes - self.offset(lsn))
    }

    /// `lsn`, or the first position after it that is not in a segment's header.
    pub(super) fn outside_header(self, lsn: Lsn) -> Lsn {
        lsn.max(first_record(self.segment(lsn)))
    }

    /// Whether a record can begin at `lsn`, which is where another ended.
    pub(super) fn has_room(self, lsn: Lsn) -> bool {
        self.offset(lsn) > 0 && self.room(lsn) >= RECORD_HEADER
    }

    /// Where the log goes on when no more records begin in a segment after `lsn`, which is where
    /// the last ended. That can be the segment's very end, so that `lsn` is in the next.
    pub(super) fn turned(self, lsn: Lsn) -> Lsn {
        let segment = if self.offset(lsn) == 0 { lsn } else { self.next(lsn) };
        first_record(segment)
    }

    /// The longest payload.
    pub(super) fn payload_max(self) -> usize {
        to_usize(self.segment_bytes) - SEGMENT_HEADER - RECORD_HEADER
    }
}

/// The first position in `segment` at which a record may begin.
pub(super) fn first_record(segment: Lsn) -> Lsn {
    segment.plus(SEGMENT_HEADER)
}

/// A number of bytes within a segment.
#[expect(clippy::cast_possible_truncation, reason = "a segment has at most 2^30 bytes")]
pub(super) fn to_usize(bytes: u64) -> usize {
    bytes as usize
}

/// Whether a record may begin at `lsn`, as far as the number goes.
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
    /// The header of a new segment.
    pub(super) fn new(id: LogId, segment: Lsn, layout: Layout) -> Header {
        Header { id, segment, layout, is_followed: false, has_full_length: true }
    }

    pub(super) fn encode(&self) -> [u8; SEGMENT_HEADER] {
        let mut bytes = [0; SEGMENT_HEADER];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.id.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.segment.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.layout.segment_bytes.to_le_bytes());
        if self.is_followed {
            bytes[40..48].copy_from_slice(&self.layout.next(self.segment).0.to_le_bytes());
        }
        let sum = crc32c::crc32c(&bytes[..CHECKED]);
        bytes[CHECKED..].copy_from_slice(&sum.to_le_bytes());
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
        if crc32c::crc32c(&bytes[..CHECKED]) != record::u32_at(bytes, CHECKED) {
            return damaged(0, "its header does not have the checksum it says");
        }
        let version = record::u32_at(bytes, 8);
        if version > FORMAT_VERSION {
            let known = FORMAT_VERSION;
            return Err(LogError::NewerVersion { file: file.into(), version, known });
        }
        let id = LogId(record::u64_at(bytes, 16));
        let segment = Lsn(record::u64_at(bytes, 24));
        let Some(layout) = Layout::new(record::u64_at(bytes, 32)) else {
            return damaged(32, "its header says a length that no segment has");
        };
        if !is_position(segment) || layout.offset(segment) != 0 {
            return damaged(24, "its header says a position at which no segment begins");
        }
        let is_followed = match record::u64_at(bytes, 40) {
            0 => false,
            next if next == layout.next(segment).0 => true,
            _ => return damaged(40, "its header names a next segment that is not the next"),
        };
        Ok(Header { id, segment, layout, is_followed, has_full_length: version >= 2 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        let layout = Layout::new(8_192).expect("a length");
        Header::new(LogId(5), Lsn(16_384), layout)
    }

    /// With another four bytes somewhere, and the checksum made right again.
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

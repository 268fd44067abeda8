//! The bytes of one record: encoded and parsed, without any file.
//!
//! The checksum covers the payload first and the header's other twelve bytes last. So nearly all
//! of it is computed before the position is known, outside the log's critical section.

use std::fmt;

use super::{LogId, Lsn};
use crate::bytes::{get_u32, get_u64};

/// Bytes before a record's payload.
///
/// | bytes | what they hold, little endian |
/// | --- | --- |
/// | 0..4 | CRC-32C over the log's id, the payload, and bytes 4..16, in this order |
/// | 4..8 | kind in the upper 2 bits, length in the lower 30: header and payload, without padding |
/// | 8..16 | LSN of the record |
pub const RECORD_HEADER: usize = 16;

/// Records begin at multiples of this many bytes; what is between two is zero and not checked.
pub const RECORD_ALIGNMENT: usize = 8;

/// The kind of a record in the upper two bits of its second word: what was appended.
pub const KIND_RECORD: u32 = 0;
/// The kind of a mark; its payload is an LSN, and everything before that was durable when the mark
/// was written.
pub const KIND_MARK: u32 = 1;
/// The kind of a turn: the log goes on in the next segment. It has no payload.
pub const KIND_TURN: u32 = 2;

/// Where the kind begins in the second word.
pub const KIND_SHIFT: u32 = 30;

/// Bytes of a mark.
pub(super) const MARK_LENGTH: usize = RECORD_HEADER + size_of::<u64>();

const LENGTH_MASK: u32 = (1 << KIND_SHIFT) - 1;

const _: () = assert!(RECORD_HEADER.is_multiple_of(RECORD_ALIGNMENT));
const _: () = assert!(MARK_LENGTH.is_multiple_of(RECORD_ALIGNMENT));

/// What a record is, with its payload.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content<'a> {
    Record(&'a [u8]),
    Mark { durable: Lsn },
    Turn,
}

/// Returns bytes that a record with `payload` bytes takes in the log.
pub(super) const fn stored_length(payload: usize) -> usize {
    (RECORD_HEADER + payload).next_multiple_of(RECORD_ALIGNMENT)
}

/// The checksum of a log's records before anything is added: that of its id.
#[derive(Clone, Copy, Debug)]
pub(super) struct Checksum(u32);

impl Checksum {
    pub(super) fn of_log(id: LogId) -> Checksum {
        Checksum(crc32c::crc32c(&id.0.to_le_bytes()))
    }

    pub(super) fn with(self, bytes: &[u8]) -> Checksum {
        Checksum(crc32c::crc32c_append(self.0, bytes))
    }
}

/// Appends a record to `out`, which begins at a multiple of [`RECORD_ALIGNMENT`]. `checksum` has
/// the payload in it, and the length is below 2^30.
pub(super) fn encode(out: &mut Vec<u8>, kind: u32, lsn: Lsn, payload: &[u8], checksum: Checksum) {
    let length = RECORD_HEADER + payload.len();
    debug_assert!(length <= LENGTH_MASK as usize && kind < 1 << (u32::BITS - KIND_SHIFT));
    debug_assert!(lsn.0.is_multiple_of(RECORD_ALIGNMENT as u64));
    #[expect(clippy::cast_possible_truncation, reason = "a segment is shorter than 2^30")]
    let word = (kind << KIND_SHIFT) | (length as u32 & LENGTH_MASK);
    let mut header = [0; RECORD_HEADER];
    header[4..8].copy_from_slice(&word.to_le_bytes());
    header[8..].copy_from_slice(&lsn.0.to_le_bytes());
    let Checksum(sum) = checksum.with(&header[4..]);
    header[..4].copy_from_slice(&sum.to_le_bytes());
    out.reserve(length + RECORD_ALIGNMENT);
    out.extend_from_slice(&header);
    out.extend_from_slice(payload);
    out.resize(out.len().next_multiple_of(RECORD_ALIGNMENT), 0);
}

/// What is at a position of the log.
#[derive(Debug)]
pub(super) enum Parsed<'a> {
    /// A whole record and its length, with padding.
    Whole {
        content: Content<'a>,
        length: usize,
    },
    /// It takes so many bytes to tell.
    Short {
        needed: usize,
    },
    Flawed(Flaw),
}

/// Why the bytes at a position are no record of this log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// There are only zeros.
    Blank,
    /// The file, or the log, ends before the record does.
    Ends,
    /// What is there was not written for this position.
    Elsewhere,
    Kind,
    Length,
    Checksum,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Flaw::Blank => "there are only zeros where a record should begin",
            Flaw::Ends => "the file ends where a record should go on",
            Flaw::Elsewhere => "what is there was not written for this position",
            Flaw::Kind => "the record is of no known kind",
            Flaw::Length => "the record has an impossible length",
            Flaw::Checksum => "the record does not have the checksum it says",
        })
    }
}

/// Reads the record at `lsn`, of which `bytes` are known; the segment goes on for `room` bytes.
pub(super) fn parse(bytes: &[u8], lsn: Lsn, room: usize, log: Checksum) -> Parsed<'_> {
    let Some(header) = bytes.first_chunk::<RECORD_HEADER>() else {
        return Parsed::Short { needed: RECORD_HEADER };
    };
    let (sum, word) = (get_u32(header, 0), get_u32(header, 4));
    if header.iter().all(|&byte| byte == 0) {
        return Parsed::Flawed(Flaw::Blank);
    }
    if get_u64(header, 8) != lsn.0 {
        return Parsed::Flawed(Flaw::Elsewhere);
    }
    let needed = (word & LENGTH_MASK) as usize;
    let length = needed.next_multiple_of(RECORD_ALIGNMENT);
    if needed < RECORD_HEADER || length > room {
        return Parsed::Flawed(Flaw::Length);
    }
    let Some(payload) = bytes.get(RECORD_HEADER..needed) else {
        return Parsed::Short { needed };
    };
    if log.with(payload).with(&header[4..]).0 != sum {
        return Parsed::Flawed(Flaw::Checksum);
    }
    match content(word >> KIND_SHIFT, payload) {
        Some(content) => Parsed::Whole { content, length },
        None => Parsed::Flawed(Flaw::Kind),
    }
}

fn content(kind: u32, payload: &[u8]) -> Option<Content<'_>> {
    match (kind, payload.len()) {
        (KIND_RECORD, _) => Some(Content::Record(payload)),
        (KIND_MARK, _) => {
            let durable = payload.first_chunk().map(|bytes| Lsn(u64::from_le_bytes(*bytes)))?;
            Some(Content::Mark { durable })
        }
        (KIND_TURN, 0) => Some(Content::Turn),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LSN: Lsn = Lsn(4_096);

    fn log() -> Checksum {
        Checksum::of_log(LogId(7))
    }

    fn encoded(kind: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(&mut bytes, kind, LSN, payload, log().with(payload));
        bytes
    }

    #[test]
    fn a_record_is_laid_out_as_documented() {
        let bytes = encoded(KIND_RECORD, b"abc");
        assert_eq!(bytes.len(), 24);
        assert_eq!(bytes[4..8], 19_u32.to_le_bytes());
        assert_eq!(bytes[8..16], 4_096_u64.to_le_bytes());
        assert_eq!(bytes[16..24], *b"abc\0\0\0\0\0");
        let covered = [&7_u64.to_le_bytes()[..], b"abc", &bytes[4..16]].concat();
        assert_eq!(bytes[..4], crc32c::crc32c(&covered).to_le_bytes());
    }

    #[test]
    fn what_was_encoded_is_parsed() {
        for payload in [&b""[..], b"x", b"12345678", &[0; 300]] {
            let bytes = encoded(KIND_RECORD, payload);
            assert_eq!(bytes.len(), stored_length(payload.len()));
            let Parsed::Whole { content: Content::Record(found), length } =
                parse(&bytes, LSN, bytes.len(), log())
            else {
                panic!("{payload:?}");
            };
            assert_eq!((found, length), (payload, bytes.len()));
        }
        let mark = encoded(KIND_MARK, &99_u64.to_le_bytes());
        let parsed = parse(&mark, LSN, 100, log());
        let expected = Content::Mark { durable: Lsn(99) };
        assert!(
            matches!(parsed, Parsed::Whole { content: Content::Mark { durable: Lsn(99) }, .. }),
            "{parsed:?} is not {expected:?}"
        );
        assert_eq!(mark.len(), MARK_LENGTH);
    }

    #[test]
    fn what_is_not_a_record_of_this_place_is_told_apart() {
        let flaw = |bytes: &[u8], lsn, room, log| match parse(bytes, lsn, room, log) {
            Parsed::Flawed(flaw) => flaw,
            other => panic!("{other:?}"),
        };
        let good = encoded(KIND_RECORD, b"some payload");
        let mut long = good.clone();
        long[6] ^= 1;
        assert_eq!(flaw(&[0; 16], LSN, 100, log()), Flaw::Blank);
        assert_eq!(flaw(&good, Lsn(4_104), 100, log()), Flaw::Elsewhere);
        assert_eq!(flaw(&good, LSN, 24, log()), Flaw::Length);
        assert_eq!(flaw(&long, LSN, 100, log()), Flaw::Length);
        assert_eq!(flaw(&good, LSN, 100, Checksum::of_log(LogId(8))), Flaw::Checksum);
        assert_eq!(flaw(&encoded(3, b""), LSN, 100, log()), Flaw::Kind);
        assert_eq!(flaw(&encoded(KIND_MARK, b"short"), LSN, 100, log()), Flaw::Kind);
        assert!(matches!(parse(&good[..15], LSN, 100, log()), Parsed::Short { needed: 16 }));
        assert!(matches!(parse(&good[..27], LSN, 100, log()), Parsed::Short { needed: 28 }));
    }

    #[test]
    fn no_single_flipped_bit_goes_unnoticed() {
        let good = encoded(KIND_RECORD, b"some payload");
        for bit in 0..28 * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let parsed = parse(&bad, LSN, 32, log());
            assert!(!matches!(parsed, Parsed::Whole { .. }), "bit {bit}: {parsed:?}");
        }
    }
}

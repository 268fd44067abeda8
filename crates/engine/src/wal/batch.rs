//! Records that wait to be written.

use super::Lsn;
use super::record::{self, Checksum};

/// Bytes of the log from one position on, as they will be in the files.
///
/// They follow each other without a gap, except where the log turns to the next segment.
#[derive(Debug)]
pub(super) struct Batch {
    start: Lsn,
    bytes: Vec<u8>,
    turns: Vec<Turn>,
}

/// From this place in the bytes on, they belong to a later position.
#[derive(Clone, Copy, Debug)]
struct Turn {
    at: usize,
    lsn: Lsn,
}

/// Room for marks and turns besides the records.
const MARGIN: usize = 256;

impl Batch {
    /// With room for so many bytes of records.
    pub(super) fn new(start: Lsn, capacity: usize) -> Batch {
        Batch { start, bytes: Vec::with_capacity(capacity + MARGIN), turns: Vec::new() }
    }

    /// Empties it, to be filled from `start` on.
    pub(super) fn restart(&mut self, start: Lsn) {
        self.start = start;
        self.bytes.clear();
        self.turns.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The position after the last byte.
    pub(super) fn end(&self) -> Lsn {
        let Turn { at, lsn } = self.turns.last().copied().unwrap_or(self.first());
        lsn.plus(self.bytes.len() - at)
    }

    /// Adds a record at the end, whose position is `lsn`.
    pub(super) fn push(&mut self, kind: u32, lsn: Lsn, payload: &[u8], checksum: Checksum) {
        record::encode(&mut self.bytes, kind, lsn, payload, checksum);
    }

    /// What is added from now on is at `lsn` and after.
    pub(super) fn turn(&mut self, lsn: Lsn) {
        self.turns.push(Turn { at: self.bytes.len(), lsn });
    }

    fn first(&self) -> Turn {
        Turn { at: 0, lsn: self.start }
    }

    /// Stretches without a gap, each within a segment and with its position; none is empty.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (Lsn, &[u8])> {
        let begins = std::iter::once(self.first()).chain(self.turns.iter().copied());
        let ends = self.turns.iter().map(|turn| turn.at).chain([self.bytes.len()]);
        begins
            .zip(ends)
            .filter(|(begin, end)| begin.at < *end)
            .map(|(begin, end)| (begin.lsn, &self.bytes[begin.at..end]))
    }

    /// The bytes at `lsn` and after it in the same segment.
    pub(super) fn at(&self, lsn: Lsn) -> Option<&[u8]> {
        self.pieces().find_map(|(start, bytes)| bytes.get(lsn.since(start)?..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wal::LogId;
    use crate::wal::record::KIND_RECORD;

    #[test]
    fn a_batch_knows_where_its_bytes_belong() {
        let checksum = Checksum::of_log(LogId(1));
        let mut batch = Batch::new(Lsn(1_000), 0);
        assert_eq!(batch.end(), Lsn(1_000));
        batch.push(KIND_RECORD, Lsn(1_000), b"", checksum);
        batch.turn(Lsn(2_000));
        assert_eq!(batch.end(), Lsn(2_000));
        batch.push(KIND_RECORD, Lsn(2_000), b"", checksum);
        batch.push(KIND_RECORD, Lsn(2_016), b"", checksum);
        assert_eq!(batch.end(), Lsn(2_032));

        let pieces: Vec<_> = batch.pieces().map(|(lsn, bytes)| (lsn, bytes.len())).collect();
        assert_eq!(pieces, [(Lsn(1_000), 16), (Lsn(2_000), 32)]);
        let left = |lsn| batch.at(Lsn(lsn)).map(<[u8]>::len);
        assert_eq!([left(1_000), left(2_000), left(2_016)], [Some(16), Some(32), Some(16)]);
        assert_eq!([left(999), left(1_500), left(3_000)], [None, None, None]);

        batch.restart(Lsn(3_000));
        batch.turn(Lsn(4_000));
        batch.push(KIND_RECORD, Lsn(4_000), b"", checksum);
        assert_eq!(batch.pieces().map(|(lsn, _)| lsn).collect::<Vec<_>>(), [Lsn(4_000)]);
    }
}

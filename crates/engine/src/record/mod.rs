//! Log records: what the log means to the store.
//!
//! # Records
//! | kind | what it says |
//! | --- | --- |
//! | update | a transaction changed a page; how to make the change again, and how to undo it |
//! | compensation | an undo changed a page; where the undo of the transaction goes on |
//! | structure | pages changed in a way that no transaction will undo, such as a split |
//! | commit | a transaction is done |
//! | end | a transaction that was rolled back is done |
//! | checkpoint | which pages and transactions were under way; as many records as that takes |
//!
//! Changes of several pages that must happen together are in one record. A record is in the log
//! wholly or not at all, so they happen wholly or not at all, and need no undo: this is what ARIES
//! does with nested top actions and dummy compensation records (Mohan et al., TODS 1992, section
//! 9), with less.
//!
//! Redo names a page and what to do to it; undo names a key of a tree, because by then a split may
//! have moved the entry to another page. All numbers are little-endian; `docs/wal.md` has the
//! bytes.

mod mini;

use thiserror::Error;

use crate::bytes::{Reader, Short, put_short_bytes};
use crate::page::{Change, ChangeError, PageId, TreeId};
use crate::wal::Lsn;

pub(crate) use mini::{MiniTransaction, log_change};

/// The number of a transaction, never used twice in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxnId(pub u64);

/// How to take a change back: what to do to a key of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undo<'a> {
    /// The key was inserted: take it out.
    Remove { tree: TreeId, key: &'a [u8] },
    /// The key was removed: insert it.
    Insert { tree: TreeId, key: &'a [u8], value: &'a [u8] },
    /// The key had another value: set it again.
    Replace { tree: TreeId, key: &'a [u8], value: &'a [u8] },
}

/// Why pages are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause<'a> {
    /// A transaction changes something.
    Update { transaction: TxnId, previous: Lsn, undo: Undo<'a> },
    /// A transaction is rolled back; the next record to undo is `undo_next`.
    Compensation { transaction: TxnId, undo_next: Lsn },
    /// The tree or the file needs it.
    Structure,
}

/// A transaction that was under way at a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Active {
    pub(crate) transaction: TxnId,
    /// Its last record then.
    pub(crate) last: Lsn,
}

/// What was under way at a checkpoint, or a part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CheckpointTables {
    /// The record with the part before this one; zero for none.
    pub(crate) earlier: Lsn,
    /// Records from here on may be missing in the tables.
    pub(crate) begin: Lsn,
    /// A number that no transaction has had.
    pub(crate) next_transaction: u64,
    /// Pages changed and not written, with the LSN from which on records may be missing in them.
    pub(crate) dirty: Vec<(PageId, Lsn)>,
    /// Transactions that had changed something and were not done.
    pub(crate) active: Vec<Active>,
}

/// A record, read from the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    /// Changes of pages.
    Pages { cause: Cause<'a>, pages: Pages<'a> },
    /// Removes a transaction that is done.
    Commit { transaction: TxnId },
    /// A transaction was rolled back and is done.
    End { transaction: TxnId },
    /// The tables of a checkpoint.
    Checkpoint(CheckpointTables),
}

/// Bytes that hold no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub(crate) struct BadRecord(pub(crate) &'static str);

impl From<ChangeError> for BadRecord {
    fn from(error: ChangeError) -> Self {
        BadRecord(error.0)
    }
}

impl From<Short> for BadRecord {
    fn from(_: Short) -> Self {
        BadRecord("the record ends too early")
    }
}

const UPDATE: u8 = 1;
const COMPENSATION: u8 = 2;
const STRUCTURE: u8 = 3;
const COMMIT: u8 = 4;
const END: u8 = 5;
const CHECKPOINT: u8 = 6;
/// A checkpoint that has parts in earlier records.
const CHECKPOINT_PART: u8 = 7;

const UNDO_REMOVE: u8 = 1;
const UNDO_INSERT: u8 = 2;
const UNDO_REPLACE: u8 = 3;

impl<'a> Undo<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
        let (kind, tree, key, value): (_, _, _, &[u8]) = match *self {
            Undo::Remove { tree, key } => (UNDO_REMOVE, tree, key, &[]),
            Undo::Insert { tree, key, value } => (UNDO_INSERT, tree, key, value),
            Undo::Replace { tree, key, value } => (UNDO_REPLACE, tree, key, value),
        };
        out.push(kind);
        out.extend_from_slice(&tree.0.to_le_bytes());
        put_short_bytes(out, key);
        put_short_bytes(out, value);
    }

    fn decode(reader: &mut Reader<'a>) -> Result<Undo<'a>, BadRecord> {
        let kind = reader.u8()?;
        let tree = TreeId(reader.u32()?);
        let (key, value) = (reader.short_bytes()?, reader.short_bytes()?);
        match kind {
            UNDO_REMOVE => Ok(Undo::Remove { tree, key }),
            UNDO_INSERT => Ok(Undo::Insert { tree, key, value }),
            UNDO_REPLACE => Ok(Undo::Replace { tree, key, value }),
            _ => Err(BadRecord("the kind of an undo is not known")),
        }
    }
}

impl<'a> Cause<'a> {
    /// Returns the transaction that the change is made for.
    pub(crate) fn transaction(&self) -> Option<TxnId> {
        match *self {
            Cause::Update { transaction, .. } | Cause::Compensation { transaction, .. } => {
                Some(transaction)
            }
            Cause::Structure => None,
        }
    }

    /// Begins a record. The pages follow.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Cause::Update { transaction, previous, undo } => {
                out.push(UPDATE);
                put_u64(out, transaction.0);
                put_u64(out, previous.0);
                undo.encode(out);
            }
            Cause::Compensation { transaction, undo_next } => {
                out.push(COMPENSATION);
                put_u64(out, transaction.0);
                put_u64(out, undo_next.0);
            }
            Cause::Structure => out.push(STRUCTURE),
        }
    }

    fn decode(kind: u8, reader: &mut Reader<'a>) -> Result<Cause<'a>, BadRecord> {
        match kind {
            UPDATE => Ok(Cause::Update {
                transaction: TxnId(reader.u64()?),
                previous: Lsn(reader.u64()?),
                undo: Undo::decode(reader)?,
            }),
            COMPENSATION => Ok(Cause::Compensation {
                transaction: TxnId(reader.u64()?),
                undo_next: Lsn(reader.u64()?),
            }),
            STRUCTURE => Ok(Cause::Structure),
            _ => Err(BadRecord("the kind of the record is not known")),
        }
    }
}

fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

/// Pages and their changes, not yet taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pages<'a> {
    bytes: &'a [u8],
}

/// Writes what was done to one page; any number of these follow one another.
pub(super) fn encode_page(out: &mut Vec<u8>, page: PageId, changes: &[Change<'_>]) {
    put_u64(out, page.0);
    out.push(u8::try_from(changes.len()).expect("a record makes few changes of a page"));
    for change in changes {
        let at = out.len();
        out.extend_from_slice(&[0; 4]);
        change.encode(out);
        let len = u32::try_from(out.len() - at - 4).expect("a change is shorter than a segment");
        out[at..at + 4].copy_from_slice(&len.to_le_bytes());
    }
}

/// A page of a record, and its changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageChanges<'a> {
    pub(crate) page: PageId,
    /// How many changes there are, and each with its length before it.
    bytes: &'a [u8],
}

impl<'a> Pages<'a> {
    /// Returns each page, in the order of the record, with its changes undecoded.
    pub(crate) fn split(self) -> impl Iterator<Item = Result<PageChanges<'a>, BadRecord>> {
        let mut bytes = self.bytes;
        std::iter::from_fn(move || {
            let (page, rest) = match split_page(bytes) {
                Ok(split) => split?,
                Err(bad) => {
                    bytes = &[];
                    return Some(Err(bad));
                }
            };
            bytes = rest;
            Some(Ok(page))
        })
    }
}

/// Returns the first page, and the bytes of those behind it; `None` when there is none.
fn split_page(bytes: &[u8]) -> Result<Option<(PageChanges<'_>, &[u8])>, BadRecord> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let mut reader = Reader::new(bytes);
    let page = PageId(reader.u64()?);
    let changes = reader.clone().rest();
    for _ in 0..reader.u8()? {
        let len = reader.u32()? as usize;
        reader.take(len)?;
    }
    let rest = reader.rest();
    debug_assert!(rest.len() < changes.len(), "the number of changes takes a byte");
    let bytes = &changes[..changes.len() - rest.len()];
    Ok(Some((PageChanges { page, bytes }, rest)))
}

impl<'a> PageChanges<'a> {
    /// Returns the changes of a page from what [`PageChanges::bytes`] gave.
    pub(crate) fn of(page: PageId, bytes: &'a [u8]) -> PageChanges<'a> {
        PageChanges { page, bytes }
    }

    /// Returns the changes as bytes, to be kept.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the changes, in their order.
    pub(crate) fn decode(&self) -> Result<Vec<Change<'a>>, BadRecord> {
        let mut reader = Reader::new(self.bytes);
        let count = reader.u8()?;
        let mut changes = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let len = reader.u32()? as usize;
            changes.push(Change::decode(reader.take(len)?)?);
        }
        Ok(changes)
    }
}

impl<'a> Record<'a> {
    /// Appends the record to `out`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Record::Pages { cause, pages } => {
                cause.encode(out);
                out.extend_from_slice(pages.bytes);
            }
            Record::Commit { transaction } => {
                out.push(COMMIT);
                put_u64(out, transaction.0);
            }
            Record::End { transaction } => {
                out.push(END);
                put_u64(out, transaction.0);
            }
            Record::Checkpoint(tables) => tables.encode(out),
        }
    }

    /// Decodes a record.
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Record<'a>, BadRecord> {
        let mut reader = Reader::new(bytes);
        let record = match reader.u8()? {
            COMMIT => Record::Commit { transaction: TxnId(reader.u64()?) },
            END => Record::End { transaction: TxnId(reader.u64()?) },
            CHECKPOINT => Record::Checkpoint(CheckpointTables::decode(Lsn::ZERO, &mut reader)?),
            CHECKPOINT_PART => {
                let earlier = Lsn(reader.u64()?);
                Record::Checkpoint(CheckpointTables::decode(earlier, &mut reader)?)
            }
            kind => {
                let cause = Cause::decode(kind, &mut reader)?;
                Record::Pages { cause, pages: Pages { bytes: reader.rest() } }
            }
        };
        if reader.is_empty() { Ok(record) } else { Err(BadRecord("the record is too long")) }
    }
}

impl CheckpointTables {
    /// Bytes of a record before its entries, and bytes of an entry.
    const FIXED_BYTES: usize = 1 + 4 * size_of::<u64>();
    const ENTRY_BYTES: usize = 2 * size_of::<u64>();

    /// Returns the tables in parts, each of which fits into a payload of so many bytes. The thread
    /// that logs them sets in each which part was [`earlier`](CheckpointTables::earlier).
    pub(crate) fn split(&self, payload_max: usize) -> Vec<CheckpointTables> {
        let room = (payload_max - Self::FIXED_BYTES) / Self::ENTRY_BYTES;
        assert!(room > 0, "a segment has room for more than an entry");
        let empty = || CheckpointTables {
            begin: self.begin,
            next_transaction: self.next_transaction,
            ..CheckpointTables::default()
        };
        let dirty = self.dirty.chunks(room);
        let dirty = dirty.map(|dirty| CheckpointTables { dirty: dirty.to_vec(), ..empty() });
        let active = self.active.chunks(room);
        let active = active.map(|active| CheckpointTables { active: active.to_vec(), ..empty() });
        debug_assert_eq!(self.earlier, Lsn::ZERO, "parts are not cut again");
        let fits = self.dirty.len() + self.active.len() <= room;
        if fits { vec![self.clone()] } else { dirty.chain(active).collect() }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        if self.earlier == Lsn::ZERO {
            out.push(CHECKPOINT);
        } else {
            out.push(CHECKPOINT_PART);
            put_u64(out, self.earlier.0);
        }
        put_u64(out, self.begin.0);
        put_u64(out, self.next_transaction);
        put_u64(out, self.dirty.len() as u64);
        for (page, since) in &self.dirty {
            put_u64(out, page.0);
            put_u64(out, since.0);
        }
        for active in &self.active {
            put_u64(out, active.transaction.0);
            put_u64(out, active.last.0);
        }
    }

    fn decode(earlier: Lsn, reader: &mut Reader<'_>) -> Result<CheckpointTables, BadRecord> {
        let mut tables = CheckpointTables {
            earlier,
            begin: Lsn(reader.u64()?),
            next_transaction: reader.u64()?,
            ..CheckpointTables::default()
        };
        for _ in 0..reader.u64()? {
            tables.dirty.push((PageId(reader.u64()?), Lsn(reader.u64()?)));
        }
        while !reader.is_empty() {
            let (transaction, last) = (TxnId(reader.u64()?), Lsn(reader.u64()?));
            tables.active.push(Active { transaction, last });
        }
        Ok(tables)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_is_read_as_it_was_written() {
        let (tree, key, value) = (TreeId(3), b"key".as_slice(), b"value".as_slice());
        let transaction = TxnId(7);
        let mut pages = Vec::new();
        let changes = [Change::Remove { slot: 1 }, Change::Free];
        encode_page(&mut pages, PageId(5), &changes);
        encode_page(&mut pages, PageId(6), &[]);
        let causes = [
            Cause::Structure,
            Cause::Compensation { transaction, undo_next: Lsn(8) },
            Cause::Update { transaction, previous: Lsn(9), undo: Undo::Remove { tree, key } },
            Cause::Update {
                transaction,
                previous: Lsn(9),
                undo: Undo::Insert { tree, key, value },
            },
            Cause::Update {
                transaction,
                previous: Lsn::ZERO,
                undo: Undo::Replace { tree, key, value },
            },
        ];
        let with_pages =
            causes.map(|cause| Record::Pages { cause, pages: Pages { bytes: &pages } });
        let others = [
            Record::Commit { transaction },
            Record::End { transaction },
            Record::Checkpoint(CheckpointTables {
                earlier: Lsn::ZERO,
                begin: Lsn(1),
                next_transaction: 2,
                dirty: vec![(PageId(3), Lsn(4)), (PageId(5), Lsn(6))],
                active: vec![Active { transaction, last: Lsn(10) }],
            }),
            Record::Checkpoint(CheckpointTables {
                earlier: Lsn(8),
                begin: Lsn(1),
                next_transaction: 2,
                dirty: vec![(PageId(3), Lsn(4))],
                active: vec![],
            }),
        ];
        for record in with_pages.iter().chain(&others) {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            assert_eq!(Record::decode(&bytes).as_ref(), Ok(record));
            for short in 0..bytes.len() {
                // Cut anywhere it is another record or none, and never a panic.
                if let Ok(Record::Pages { pages, .. }) = Record::decode(&bytes[..short]) {
                    for page in pages.split().flatten() {
                        let _ = page.decode();
                    }
                }
            }
        }
        let decoded: Vec<_> = Pages { bytes: &pages }
            .split()
            .map(|page| page.map(|page| (page.page, page.decode().unwrap())).unwrap())
            .collect();
        assert_eq!(decoded, [(PageId(5), changes.to_vec()), (PageId(6), vec![])]);
    }

    #[test]
    fn a_checkpoint_is_cut_into_parts_that_fit() {
        let page = |number| (PageId(number), Lsn(number + 1));
        let active = |number| Active { transaction: TxnId(number), last: Lsn(number + 1) };
        for (pages, transactions) in [(0, 0), (1, 0), (7, 3), (100, 0), (0, 100), (210, 205)] {
            let tables = CheckpointTables {
                earlier: Lsn::ZERO,
                begin: Lsn(9),
                next_transaction: 500,
                dirty: (0..pages).map(page).collect(),
                active: (0..transactions).map(active).collect(),
            };
            let mut together = CheckpointTables::default();
            for part in tables.split(200) {
                let part = CheckpointTables { earlier: Lsn(8), ..part };
                let mut bytes = Vec::new();
                part.encode(&mut bytes);
                assert!(bytes.len() <= 200, "{} bytes", bytes.len());
                assert_eq!((part.begin, part.next_transaction), (Lsn(9), 500));
                together.dirty.extend(part.dirty);
                together.active.extend(part.active);
            }
            assert_eq!((together.dirty, together.active), (tables.dirty, tables.active));
        }
    }
}

//! The head of a store: what it is, and where its last checkpoint is.
//!
//! The file has three blocks of 4 KiB. The first says what the store is. The other two take turns:
//! a checkpoint is written into the one that is not the latest, so that a torn write leaves the one
//! before. All numbers are little-endian; each block begins with the CRC-32C of its first 64 bytes
//! after the checksum.

use std::io;
use std::sync::Arc;

use thiserror::Error;

use crate::bytes::{get_u32, get_u64, put_u32, put_u64};
use crate::disk::{Disk, File, Open, SECTOR};
use crate::page::{BadPageSize, PageSize};
use crate::wal::{LogId, Lsn};

/// The name of the file.
pub(crate) const NAME: &str = "head";

/// The format that this program writes, and the newest it reads.
///
/// | version | what it added |
/// | --- | --- |
/// | 1 | the first |
/// | 2 | trees can be dropped, and have long values: an entry of the catalog has a byte of flags |
/// | 3 | the doublewrite file has several slots |
pub const FORMAT_VERSION: u32 = 3;

const BLOCK: usize = 4096;
const USED: usize = 64;
const MAGIC: u64 = u64::from_le_bytes(*b"tidegate");

const CHECKSUM_AT: usize = 0;
const VERSION_AT: usize = 4;
const MAGIC_AT: usize = 8;
const ID_AT: usize = 16;
const PAGE_SIZE_AT: usize = 24;

const _: () = assert!(USED <= SECTOR);

const SEQUENCE_AT: usize = 8;
const RECORD_AT: usize = 16;
const REDO_AT: usize = 24;

/// Errors of the file `head`.
#[derive(Debug, Error)]
pub enum HeadError {
    /// The file is missing.
    #[error("there is no store here: the file `head` is missing; create one, or look elsewhere")]
    Missing,
    /// It is shorter than it should be.
    #[error("the file `head` has {bytes} bytes and should have 12288; restore it from a backup")]
    Truncated {
        /// The length of the file in bytes.
        bytes: u64,
    },
    /// It is another kind of file.
    #[error("the file `head` is not that of a store")]
    NotOurs,
    /// A block does not have the checksum it says.
    #[error("block {block} of the file `head` is damaged; restore it from a backup")]
    Damaged {
        /// The number of the block, from 0 to 2.
        block: usize,
    },
    /// A newer program wrote the file.
    #[error(
        "the store has format version {version}, and this program knows up to {FORMAT_VERSION}: \
         open it with the program that wrote it, or a newer one"
    )]
    NewerVersion {
        /// The format version of the file.
        version: u32,
    },
    /// Its pages have a size that pages cannot have.
    #[error(transparent)]
    PageSize(#[from] BadPageSize),
    /// The system cannot read or write it.
    #[error("cannot {action} the file `head`: {source}")]
    Io {
        /// What the system was asked to do.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

fn failed(action: &'static str) -> impl Fn(io::Error) -> HeadError {
    move |source| HeadError::Io { action, source }
}

/// Where the last checkpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    /// Its record.
    pub(crate) record: Lsn,
    /// No record before this one is needed any more.
    pub(crate) needed: Lsn,
}

/// The head of an open store.
pub(crate) struct Head {
    file: Arc<dyn File>,
    pub(crate) id: LogId,
    pub(crate) page_size: PageSize,
    pub(crate) checkpoint: Checkpoint,
    sequence: u64,
    /// The format version that block 0 says.
    version: u32,
}

impl Head {
    /// Makes the head, last of all that a new store consists of.
    pub(crate) fn create(
        disk: &dyn Disk,
        id: LogId,
        page_size: PageSize,
        checkpoint: Checkpoint,
    ) -> Result<Head, HeadError> {
        let file = disk.open(NAME, Open::New).map_err(failed("create"))?;
        let mut blocks = vec![0; BLOCK * 3];
        encode_first(&mut blocks[..BLOCK], FORMAT_VERSION, id, page_size);
        for block in 1..3 {
            encode(&mut blocks[block * BLOCK..(block + 1) * BLOCK], block as u64, checkpoint);
        }
        file.write_at(&blocks, 0).map_err(failed("write"))?;
        file.sync().map_err(failed("sync"))?;
        let named = disk.sync_directory().map_err(failed("sync the directory of"));
        if named.is_err() {
            // Without a head it is no store. With one it could be opened, and be gone after a
            // failure of power, because a second sync does not bring back what the first dropped.
            let removed = disk.remove(NAME);
            removed.map_err(failed("remove, after its directory could not be synced,"))?;
        }
        let version = FORMAT_VERSION;
        named.map(|()| Head { file, id, page_size, checkpoint, sequence: 2, version })
    }

    pub(crate) fn open(disk: &dyn Disk) -> Result<Head, HeadError> {
        let file = match disk.open(NAME, Open::Existing) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(HeadError::Missing);
            }
            Err(error) => return Err(failed("open")(error)),
        };
        let bytes = file.len().map_err(failed("look at"))?;
        if bytes < (BLOCK * 3) as u64 {
            return Err(HeadError::Truncated { bytes });
        }
        let mut blocks = vec![0; BLOCK * 3];
        file.read_at(&mut blocks, 0).map_err(failed("read"))?;
        let first = &blocks[..BLOCK];
        if get_u64(first, MAGIC_AT) != MAGIC {
            return Err(HeadError::NotOurs);
        }
        let version = get_u32(first, VERSION_AT);
        if version > FORMAT_VERSION {
            return Err(HeadError::NewerVersion { version });
        }
        if !is_whole(first) {
            return Err(HeadError::Damaged { block: 0 });
        }
        let (id, size) = (LogId(get_u64(first, ID_AT)), get_u64(first, PAGE_SIZE_AT));
        let page_size = PageSize::new(size)?;
        let latest = [1, 2]
            .into_iter()
            .filter_map(|block| decode(&blocks[block * BLOCK..(block + 1) * BLOCK]))
            .max_by_key(|(sequence, _)| *sequence);
        let (sequence, checkpoint) = latest.ok_or(HeadError::Damaged { block: 1 })?;
        Ok(Head { file, id, page_size, checkpoint, sequence, version })
    }

    /// Writes where the latest checkpoint is.
    pub(crate) fn set_checkpoint(&mut self, checkpoint: Checkpoint) -> Result<(), HeadError> {
        debug_assert!(checkpoint.record > Lsn::ZERO && checkpoint.needed <= checkpoint.record);
        debug_assert!(checkpoint.record > self.checkpoint.record, "checkpoints follow each other");
        self.write(self.sequence + 1, checkpoint)?;
        (self.sequence, self.checkpoint) = (self.sequence + 1, checkpoint);
        Ok(())
    }

    /// Writes the latest checkpoint once more: what was read of it may be in the system's memory
    /// only, and the checkpoint before it, which the next one overwrites, may be the one on disk.
    /// The same is true of the format version.
    pub(crate) fn make_durable(&self) -> Result<(), HeadError> {
        self.write_first(self.version)?;
        self.write(self.sequence, self.checkpoint)
    }

    /// Writes that the store has the format of this program, before anything is written that an
    /// older program does not know. A store that has it already is left as it is.
    pub(crate) fn upgrade(&mut self) -> Result<(), HeadError> {
        if self.version == FORMAT_VERSION {
            return Ok(());
        }
        self.write_first(FORMAT_VERSION)?;
        self.file.sync().map_err(failed("sync"))?;
        self.version = FORMAT_VERSION;
        Ok(())
    }

    /// Writes block 0. What changes in it lies in one sector, so that no write is torn within it.
    fn write_first(&self, version: u32) -> Result<(), HeadError> {
        let mut block = vec![0; BLOCK];
        encode_first(&mut block, version, self.id, self.page_size);
        self.file.write_at(&block, 0).map_err(failed("write"))
    }

    fn write(&self, sequence: u64, checkpoint: Checkpoint) -> Result<(), HeadError> {
        let mut block = vec![0; BLOCK];
        encode(&mut block, sequence, checkpoint);
        // Odd ones are in block 1, even ones in block 2.
        let at = BLOCK as u64 * (2 - sequence % 2);
        self.file.write_at(&block, at).map_err(failed("write"))?;
        self.file.sync().map_err(failed("sync"))
    }
}

fn encode_first(block: &mut [u8], version: u32, id: LogId, page_size: PageSize) {
    put_u32(block, VERSION_AT, version);
    put_u64(block, MAGIC_AT, MAGIC);
    put_u64(block, ID_AT, id.0);
    put_u64(block, PAGE_SIZE_AT, page_size.bytes() as u64);
    seal(block);
}

fn seal(block: &mut [u8]) {
    let checksum = crc32c::crc32c(&block[VERSION_AT..USED]);
    put_u32(block, CHECKSUM_AT, checksum);
}

fn is_whole(block: &[u8]) -> bool {
    get_u32(block, CHECKSUM_AT) == crc32c::crc32c(&block[VERSION_AT..USED])
}

fn encode(block: &mut [u8], sequence: u64, checkpoint: Checkpoint) {
    put_u64(block, SEQUENCE_AT, sequence);
    put_u64(block, RECORD_AT, checkpoint.record.0);
    put_u64(block, REDO_AT, checkpoint.needed.0);
    seal(block);
}

fn decode(block: &[u8]) -> Option<(u64, Checkpoint)> {
    let checkpoint =
        Checkpoint { record: Lsn(get_u64(block, RECORD_AT)), needed: Lsn(get_u64(block, REDO_AT)) };
    is_whole(block).then(|| (get_u64(block, SEQUENCE_AT), checkpoint))
}

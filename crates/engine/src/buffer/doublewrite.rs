//! Copies of the pages that are being written, against writes that a crash tears.
//!
//! # Mechanism
//! The file holds one batch: a first page that lists the numbers and checksums of the others, then
//! these. It is written as a whole and synced before any of them goes to its place. After a crash
//! [`DoubleWrite::repair`] looks at every page listed: if what is at its place is not whole, the
//! copy is, and is put there.
//!
//! A copy is used only when the list has its checksum: what a larger batch left behind is not
//! taken for part of this one. A copy of a page that is whole at its place is never used, so an old
//! page cannot come back.
//!
//! # Why not images in the log
//! PostgreSQL logs the whole page at its first change after a checkpoint. Then the log of small
//! random updates is mostly pages, forty times as long here, and is what commits wait for. Copies
//! written apart cost a write and a sync for up to 240 pages, which nobody waits for (`InnoDB` does
//! so).

use std::io;
use std::sync::Arc;

use crate::disk::File;
use crate::page::{self, PageId, Seed, get_u32, get_u64, put_u32, put_u64};

/// The name of the file.
pub(crate) const NAME: &str = "doublewrite.pages";

const MAGIC: u64 = u64::from_le_bytes(*b"tgdouble");
const CHECKSUM_AT: usize = 0;
const COUNT_AT: usize = 4;
const MAGIC_AT: usize = 8;
const LIST_AT: usize = 16;
const MEMBER_BYTES: usize = 16;

/// The doublewrite file.
pub(crate) struct DoubleWrite {
    file: Arc<dyn File>,
    seed: Seed,
}

impl DoubleWrite {
    pub(crate) fn new(file: Arc<dyn File>, seed: Seed) -> DoubleWrite {
        DoubleWrite { file, seed }
    }

    pub(super) fn seed(&self) -> Seed {
        self.seed
    }

    /// Writes copies of pages, sealed and one behind the other in `bytes`, and syncs them. Before
    /// them `bytes` has a page of room for the list.
    pub(super) fn write(
        &mut self,
        ids: &[PageId],
        bytes: &mut [u8],
        size: usize,
    ) -> io::Result<()> {
        let (list, pages) = bytes.split_at_mut(size);
        list.fill(0);
        for (member, (id, page)) in ids.iter().zip(pages.chunks_exact(size)).enumerate() {
            let at = LIST_AT + member * MEMBER_BYTES;
            put_u64(list, at, id.0);
            put_u32(list, at + 8, get_u32(page, 0));
        }
        put_u32(list, COUNT_AT, u32::try_from(ids.len()).unwrap_or(u32::MAX));
        put_u64(list, MAGIC_AT, MAGIC);
        let checksum = crc32c::crc32c(&list[COUNT_AT..]);
        put_u32(list, CHECKSUM_AT, checksum);
        self.file.write_at(bytes, 0)?;
        self.file.sync()
    }

    /// Puts copies where a crash has torn the pages themselves; how many.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub(crate) fn repair(&mut self, data: &dyn File, size: usize) -> io::Result<usize> {
        let Some(list) = self.read(0, size)? else { return Ok(0) };
        let is_list = get_u64(&list, MAGIC_AT) == MAGIC
            && get_u32(&list, CHECKSUM_AT) == crc32c::crc32c(&list[COUNT_AT..]);
        if !is_list {
            return Ok(0);
        }
        let mut repaired = 0;
        let members = (get_u32(&list, COUNT_AT) as usize).min((size - LIST_AT) / MEMBER_BYTES);
        for member in 0..members {
            let at = LIST_AT + member * MEMBER_BYTES;
            let (id, checksum) = (PageId(get_u64(&list, at)), get_u32(&list, at + 8));
            if self.repair_page(member, id, checksum, data, size)? {
                repaired += 1;
            }
        }
        if repaired > 0 {
            data.sync()?;
        }
        Ok(repaired)
    }

    fn repair_page(
        &mut self,
        member: usize,
        id: PageId,
        checksum: u32,
        data: &dyn File,
        size: usize,
    ) -> io::Result<bool> {
        let Some(copy) = self.read(member + 1, size)? else { return Ok(false) };
        if get_u32(&copy, 0) != checksum || page::verify(&copy, id, self.seed).is_err() {
            return Ok(false);
        }
        let place = id.0.saturating_mul(size as u64);
        let mut there = vec![0; size];
        match data.read_at(&mut there, place) {
            Ok(()) if page::verify(&there, id, self.seed).is_ok() => return Ok(false),
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error),
            _ => {}
        }
        data.write_at(&copy, place)?;
        Ok(true)
    }

    /// A page of the file; `None` when it ends before.
    fn read(&self, number: usize, size: usize) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; size];
        match self.file.read_at(&mut bytes, (number * size) as u64) {
            Ok(()) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }
}

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
//! # What was read need not be durable
//! When a process ended and not the system, what is read comes from the system's memory, and its
//! sync may never have come, or failed and dropped it. A page that looks whole at its place may be
//! torn on the disk, and its only copy be overwritten by the next batch. So after anything but a
//! clean end [`DoubleWrite::renew`] writes the copies again and syncs them, then every page listed.
//! It cannot be the case that such a page is not listed: the next batch is written only after the
//! last one was synced.
//!
//! # Why not images in the log
//! PostgreSQL logs the whole page at its first change after a checkpoint. Then the log of small
//! random updates is mostly pages, forty times as long here, and is what commits wait for. Copies
//! written apart cost a write and a sync for up to 240 pages, which no transaction waits for
//! (`InnoDB` does so).

use std::io;
use std::sync::Arc;

use crate::bytes::{get_u32, get_u64, put_u32, put_u64};
use crate::disk::File;
use crate::page::{self, PageId, Seed};

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

/// A page of the last batch.
struct Member {
    /// Where its copy is, in pages from the file's beginning.
    number: usize,
    id: PageId,
    /// The checksum of its copy.
    checksum: u32,
}

impl Member {
    /// Returns where the page itself is, in bytes from the beginning of the file of pages. A number
    /// that no page has gives a place behind its end.
    fn place(&self, size: usize) -> u64 {
        self.id.0.saturating_mul(size as u64)
    }
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
        assert!(ids.len() <= (size - LIST_AT) / MEMBER_BYTES, "the list fits into its page");
        let (list, pages) = bytes.split_at_mut(size);
        debug_assert_eq!(pages.len(), ids.len() * size, "a copy for each page");
        list.fill(0);
        for (member, (id, page)) in ids.iter().zip(pages.chunks_exact(size)).enumerate() {
            debug_assert_eq!(page::id(page), *id, "a copy is of the page that is listed");
            let at = LIST_AT + member * MEMBER_BYTES;
            put_u64(list, at, id.0);
            put_u32(list, at + 8, get_u32(page, 0));
        }
        put_u32(list, COUNT_AT, u32::try_from(ids.len()).expect("a batch has 240 pages"));
        put_u64(list, MAGIC_AT, MAGIC);
        let checksum = crc32c::crc32c(&list[COUNT_AT..]);
        put_u32(list, CHECKSUM_AT, checksum);
        self.file.write_at(bytes, 0)?;
        self.file.sync()
    }

    /// Puts copies where the pages themselves are torn. Returns how many. It is for a store that
    /// was closed: everything else is durable.
    pub(crate) fn repair(&mut self, data: &dyn File, size: usize) -> io::Result<usize> {
        let mut repaired = 0;
        for member in self.members(size)? {
            if !self.is_whole(&member, data, size)?
                && let Some(copy) = self.copy(&member, size)?
            {
                data.write_at(&copy, member.place(size))?;
                repaired += 1;
            }
        }
        if repaired > 0 {
            data.sync()?;
        }
        Ok(repaired)
    }

    /// Makes the copies durable, then every page that they are of, which is put back if it is torn.
    /// Returns how many were put back. The length of the file of pages is durable as well.
    pub(crate) fn renew(&mut self, data: &dyn File, size: usize) -> io::Result<usize> {
        let members = self.members(size)?;
        self.write_again(members.len(), size)?;
        let mut repaired = 0;
        for member in members {
            let mut page = vec![0; size];
            if self.is_whole(&member, data, size)? {
                data.read_at(&mut page, member.place(size))?;
            } else if let Some(copy) = self.copy(&member, size)? {
                page = copy;
                repaired += 1;
            } else {
                continue;
            }
            data.write_at(&page, member.place(size))?;
        }
        data.set_len(data.len()?)?;
        data.sync()?;
        Ok(repaired)
    }

    /// Writes the list and so many copies as they are.
    fn write_again(&self, members: usize, size: usize) -> io::Result<()> {
        for number in 0..=members {
            if let Some(page) = self.read(number, size)? {
                self.file.write_at(&page, (number * size) as u64)?;
            }
        }
        self.file.sync()
    }

    /// Returns the pages of the last batch, none if there is no list.
    fn members(&self, size: usize) -> io::Result<Vec<Member>> {
        let Some(list) = self.read(0, size)? else { return Ok(Vec::new()) };
        let count = get_u32(&list, COUNT_AT) as usize;
        let is_list = get_u64(&list, MAGIC_AT) == MAGIC
            && get_u32(&list, CHECKSUM_AT) == crc32c::crc32c(&list[COUNT_AT..])
            && count <= (size - LIST_AT) / MEMBER_BYTES;
        if !is_list {
            return Ok(Vec::new());
        }
        let member = |index: usize| {
            let at = LIST_AT + index * MEMBER_BYTES;
            let (id, checksum) = (PageId(get_u64(&list, at)), get_u32(&list, at + 8));
            Member { number: index + 1, id, checksum }
        };
        Ok((0..count).map(member).collect())
    }

    /// Returns the copy of a page, if it is the one that the list means.
    fn copy(&self, member: &Member, size: usize) -> io::Result<Option<Vec<u8>>> {
        let is_meant = |copy: &Vec<u8>| {
            get_u32(copy, 0) == member.checksum && page::verify(copy, member.id, self.seed).is_ok()
        };
        Ok(self.read(member.number, size)?.filter(is_meant))
    }

    /// Returns whether the page at its place is whole.
    fn is_whole(&self, member: &Member, data: &dyn File, size: usize) -> io::Result<bool> {
        let mut there = vec![0; size];
        match data.read_at(&mut there, member.place(size)) {
            Ok(()) => Ok(page::verify(&there, member.id, self.seed).is_ok()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns a page of the file; `None` when it ends before.
    fn read(&self, number: usize, size: usize) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; size];
        match self.file.read_at(&mut bytes, (number * size) as u64) {
            Ok(()) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }
}

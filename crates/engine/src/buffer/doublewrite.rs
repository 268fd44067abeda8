//! Copies of the pages that are being written, against writes that a crash tears.
//!
//! # Mechanism
//! The file has a slot for each batch that is being written (`slots`): a first page that lists the
//! numbers and checksums of the others, then these. A slot is written as a whole and synced before
//! any of its pages goes to its place. After a crash [`DoubleWrite::repair`] looks at every page
//! listed: if what is at its place is not whole, the copy is, and is put there.
//!
//! A copy is used only when the list has its checksum: what a larger batch left behind is not
//! taken for part of this one. A copy of a page that is whole at its place is never used, so an old
//! page cannot come back.
//!
//! # Which lists count
//! Each batch has a number, and its list names the batches that were being written when it began.
//! The list with the highest number counts, and the lists it names. All others are of batches that
//! had ended: their pages were durable at their places, and may have been written again since. The
//! batches that count were under way at the same time, so a page is in one of them. An example:
//! batch 7 begins while 5 and 6 are under way, and all three end. Batch 8 begins and overwrites the
//! slot of 5; then the power fails. The list of 8 is damaged or says that nothing else was under
//! way. In the first case 7 counts, and 6, which it names: all their pages are durable, so that
//! nothing is repaired. Damage of the medium is put right where the copy is the last one, and is
//! noticed everywhere else, as if there were no copy.
//!
//! # What was read need not be durable
//! When a process ended and not the system, what is read comes from the system's memory, and its
//! sync may never have come, or failed and dropped it. A page that looks whole at its place may be
//! torn on the disk, and its only copy be overwritten by the next batch. So after anything but a
//! clean end [`DoubleWrite::renew`] writes the copies that count again and syncs them, then every
//! page listed. It cannot be the case that such a page is not listed: a slot is used again only
//! after its last batch was synced.
//!
//! # Without
//! On a medium that writes a page as a whole or not at all, whatever happens, copies are not needed
//! and can be switched off. On any other medium a crash then leaves torn pages, and the store with
//! them cannot be recovered: its opening fails, or the first look at the page. What copies there
//! are is put to use when the store is opened, and then given up durably by
//! [`DoubleWrite::discard`], because pages that are written without would make them old.
//!
//! # Why not images in the log
//! PostgreSQL logs the whole page at its first change after a checkpoint. Then the log of small
//! random updates is mostly pages, forty times as long here, and is what commits wait for. Copies
//! written apart cost a write and a sync for up to 240 pages, which no transaction waits for
//! (`InnoDB` does so).

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use super::shared_sync::SharedSync;
use super::slots::{BatchTicket, SLOTS, Slots, last_batches};
use super::write::BATCH;
use crate::bytes::{get_u32, get_u64, put_u32, put_u64};
use crate::disk::File;
use crate::page::{self, PageId, Seed};

/// The name of the file.
pub(crate) const NAME: &str = "doublewrite.pages";

const MAGIC: u64 = u64::from_le_bytes(*b"tgdoubl2");
const CHECKSUM_AT: usize = 0;
const COUNT_AT: usize = 4;
const MAGIC_AT: usize = 8;
const NUMBER_AT: usize = 16;
const OTHERS_AT: usize = 24;
const LIST_AT: usize = 128;
const MEMBER_BYTES: usize = 16;

/// The list of format versions 1 and 2, of which there is one, in the first slot.
const OLD_MAGIC: u64 = u64::from_le_bytes(*b"tgdouble");
const OLD_LIST_AT: usize = 16;

/// The smallest page.
const PAGE_MIN: usize = 4096;

/// Pages of a slot.
const SLOT_PAGES: usize = 1 + BATCH;

const _: () = assert!(OTHERS_AT + SLOTS * 8 <= LIST_AT);
const _: () = assert!(LIST_AT + BATCH * MEMBER_BYTES <= PAGE_MIN);

/// The doublewrite file.
pub(crate) struct DoubleWrite {
    file: SharedSync,
    seed: Seed,
    /// The number of the list of each slot, see [`Slots::new`].
    numbers: [Option<u64>; SLOTS],
    is_on: bool,
}

/// The list of a slot.
struct List {
    ticket: BatchTicket,
    members: Vec<Member>,
}

/// A page of a batch.
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
    /// Returns the doublewrite file of a store that is being made.
    pub(crate) fn new(file: Arc<dyn File>, seed: Seed, is_on: bool) -> DoubleWrite {
        DoubleWrite { file: SharedSync::new(file), seed, numbers: [None; SLOTS], is_on }
    }

    /// Returns the doublewrite file of a store that exists.
    ///
    /// # Errors
    /// The system cannot read.
    pub(crate) fn open(
        file: Arc<dyn File>,
        seed: Seed,
        is_on: bool,
        size: usize,
    ) -> io::Result<DoubleWrite> {
        let mut doublewrite = DoubleWrite::new(file, seed, is_on);
        let len = doublewrite.file.file().len()?;
        for slot in 0..SLOTS {
            // A damaged list may be an old one on the disk.
            let is_used = len > (slot * SLOT_PAGES * size) as u64;
            let number = || io::Result::Ok(doublewrite.list(slot, size)?.map_or(0, List::number));
            doublewrite.numbers[slot] = is_used.then(number).transpose()?;
        }
        Ok(doublewrite)
    }

    pub(super) fn seed(&self) -> Seed {
        self.seed
    }

    pub(super) fn slots(&self) -> Slots {
        Slots::new(self.numbers)
    }

    /// Writes copies of pages, sealed and one behind the other in `bytes`, to the slot of their
    /// batch, and syncs them. Before them `bytes` has a page of room for the list.
    pub(super) fn write(
        &self,
        ticket: &BatchTicket,
        ids: &[PageId],
        bytes: &mut [u8],
        size: usize,
    ) -> io::Result<()> {
        if !self.is_on {
            return Ok(());
        }
        assert!(ids.len() <= BATCH, "the list fits into its page, and the batch into its slot");
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
        put_u64(list, NUMBER_AT, ticket.number);
        for (index, other) in ticket.others.iter().enumerate() {
            put_u64(list, OTHERS_AT + index * 8, *other);
        }
        let checksum = crc32c::crc32c(&list[COUNT_AT..]);
        put_u32(list, CHECKSUM_AT, checksum);
        self.file.file().write_at(bytes, (ticket.slot * SLOT_PAGES * size) as u64)?;
        self.file.sync()
    }

    /// Puts copies where the pages themselves are torn. Returns how many. It is for a store that
    /// was closed: everything else is durable.
    pub(crate) fn repair(&self, data: &dyn File, size: usize) -> io::Result<usize> {
        let mut repaired = 0;
        for member in members(self.lists(size)?) {
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
    pub(crate) fn renew(&self, data: &dyn File, size: usize) -> io::Result<usize> {
        let lists = self.lists(size)?;
        for list in &lists {
            let first = list.ticket.slot * SLOT_PAGES;
            self.write_again(first..=first + list.members.len(), size)?;
        }
        self.file.sync()?;
        let mut repaired = 0;
        for member in members(lists) {
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

    /// Gives up all copies durably if none will be written. Every page is durable at its place.
    pub(crate) fn discard_if_off(&mut self, size: usize) -> io::Result<()> {
        if self.is_on || self.numbers == [None; SLOTS] {
            return Ok(());
        }
        for slot in (0..SLOTS).filter(|&slot| self.numbers[slot].is_some()) {
            self.file.file().write_at(&vec![0; size], (slot * SLOT_PAGES * size) as u64)?;
        }
        self.file.sync()?;
        self.numbers = self.numbers.map(|number| number.map(|_| 0));
        Ok(())
    }

    /// Writes pages of the file as they are.
    fn write_again(&self, pages: std::ops::RangeInclusive<usize>, size: usize) -> io::Result<()> {
        for number in pages {
            if let Some(page) = self.read(number, size)? {
                self.file.file().write_at(&page, (number * size) as u64)?;
            }
        }
        Ok(())
    }

    /// Returns the lists that count, the one with the highest number first.
    fn lists(&self, size: usize) -> io::Result<Vec<List>> {
        let mut lists = Vec::new();
        for slot in 0..SLOTS {
            lists.extend(self.list(slot, size)?);
        }
        let counting = last_batches(lists.iter().map(|list| &list.ticket));
        lists.retain(|list| counting.contains(&list.ticket.number));
        lists.sort_by_key(|list| std::cmp::Reverse(list.ticket.number));
        Ok(lists)
    }

    /// Returns the list of a slot; `None` if there is no whole one.
    fn list(&self, slot: usize, size: usize) -> io::Result<Option<List>> {
        let first = slot * SLOT_PAGES;
        let Some(list) = self.read(first, size)? else { return Ok(None) };
        let (at, number) = match get_u64(&list, MAGIC_AT) {
            MAGIC => (LIST_AT, get_u64(&list, NUMBER_AT)),
            OLD_MAGIC if slot == 0 => (OLD_LIST_AT, 0),
            _ => return Ok(None),
        };
        let count = get_u32(&list, COUNT_AT) as usize;
        let is_list = get_u32(&list, CHECKSUM_AT) == crc32c::crc32c(&list[COUNT_AT..])
            && count <= BATCH.min((size - at) / MEMBER_BYTES);
        if !is_list {
            return Ok(None);
        }
        let member = |index: usize| {
            let at = at + index * MEMBER_BYTES;
            let (id, checksum) = (PageId(get_u64(&list, at)), get_u32(&list, at + 8));
            Member { number: first + 1 + index, id, checksum }
        };
        let others = (0..SLOTS).map(|index| get_u64(&list, OTHERS_AT + index * 8));
        let others = others.filter(|&other| at == LIST_AT && other != 0).collect();
        let ticket = BatchTicket { slot, number, others };
        Ok(Some(List { ticket, members: (0..count).map(member).collect() }))
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
        match self.file.file().read_at(&mut bytes, (number * size) as u64) {
            Ok(()) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl List {
    fn number(self) -> u64 {
        self.ticket.number
    }
}

/// Returns the pages of lists. Of a page that is in two of them, which no program writes, the copy
/// of the list that comes first counts.
fn members(lists: Vec<List>) -> impl Iterator<Item = Member> {
    let mut seen = HashSet::new();
    lists.into_iter().flat_map(|list| list.members).filter(move |member| seen.insert(member.id))
}

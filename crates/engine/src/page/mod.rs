//! Pages: what every page begins with, and how it is known to be whole.
//!
//! Every page begins with the same 24 bytes; all numbers are little-endian.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0–3 | CRC-32C of all that follows, begun with the store's number |
//! | 4 | kind ([`Kind`]) |
//! | 5 | level: 0 for a leaf |
//! | 6–7 | zero |
//! | 8–15 | LSN of the last record that changed the page |
//! | 16–23 | the page's own number |
//!
//! The number inside tells a page that was written or read at the wrong place. A page of zeros was
//! allocated and never written. `docs/page-format.md` has the whole of it.

mod change;
mod node;
mod space;

use std::fmt;

use thiserror::Error;

use crate::bytes::{get_u32, get_u64, put_u32, put_u64, short};
use crate::wal::{LogId, Lsn};

pub(crate) use change::{Change, ChangeError, Entries};
pub(crate) use node::{Budget, Fences, Node, common};
pub(crate) use space::{SpaceMap, map_page_of, pages_per_map};

/// Bytes before what a kind of page has of its own.
pub(crate) const HEADER_BYTES: usize = 24;

const CHECKSUM_AT: usize = 0;
const KIND_AT: usize = 4;
const LEVEL_AT: usize = 5;
const LSN_AT: usize = 8;
const ID_AT: usize = 16;
const _: () = assert!(ID_AT + 8 == HEADER_BYTES);

/// The place of a page: its offset in the file divided by the size of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId(pub u64);

impl PageId {
    /// No page: page 0 is never linked to.
    pub(crate) const NONE: PageId = PageId(0);

    pub(crate) fn is_none(self) -> bool {
        self == PageId::NONE
    }
}

impl fmt::Display for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a tree, never used twice in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeId(pub u32);

/// The size of all pages of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSize(u32);

/// A size that pages cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a page has 4096, 8192, 16384, 32768 or 65536 bytes, not {0}")]
pub struct BadPageSize(pub u64);

impl PageSize {
    /// What a store has unless told otherwise.
    pub const DEFAULT: PageSize = PageSize(8192);

    /// Returns a page size, in bytes.
    ///
    /// # Errors
    /// It is not a power of two from 4096 to 65536.
    pub fn new(bytes: u64) -> Result<PageSize, BadPageSize> {
        match u32::try_from(bytes) {
            Ok(bytes) if bytes.is_power_of_two() && (4096..=65536).contains(&bytes) => {
                Ok(PageSize(bytes))
            }
            _ => Err(BadPageSize(bytes)),
        }
    }

    /// Returns the size in bytes.
    #[must_use]
    pub fn bytes(self) -> usize {
        self.0 as usize
    }

    /// Returns the longest key, in bytes.
    #[must_use]
    pub fn key_max(self) -> usize {
        self.bytes() / 8
    }

    /// Returns the longest key and value together, in bytes: a page has room for two fences as long
    /// as a key can be, and three such entries.
    #[must_use]
    pub fn entry_max(self) -> usize {
        self.bytes() / 4 - 64
    }
}

/// What a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A page that was never written, or was freed.
    Free = 0,
    /// A map of the pages that are in use.
    SpaceMap = 2,
    /// A node of a tree.
    Node = 3,
}

/// Why a page is not to be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PageFault {
    /// Bits have changed, or the page was written in part, or it is another store's.
    #[error("its checksum is {stored:08x} and should be {computed:08x}")]
    Checksum {
        /// The checksum in the page.
        stored: u32,
        /// The checksum that the page's bytes have.
        computed: u32,
    },
    /// It was written or read at the wrong place.
    #[error("it says that it is page {0}")]
    Misplaced(u64),
    /// Its checksum is right and its content is not.
    #[error("{0}")]
    Malformed(&'static str),
}

/// Converts the same to four bytes.
fn long(number: usize) -> u32 {
    u32::from(short(number))
}

/// Returns what kind a page is; a kind that is not known counts as free and fails [`verify`].
pub(crate) fn kind(page: &[u8]) -> Kind {
    match page[KIND_AT] {
        2 => Kind::SpaceMap,
        3 => Kind::Node,
        _ => Kind::Free,
    }
}

/// Returns the page's own number.
pub(crate) fn id(page: &[u8]) -> PageId {
    PageId(get_u64(page, ID_AT))
}

pub(crate) fn lsn(page: &[u8]) -> Lsn {
    Lsn(get_u64(page, LSN_AT))
}

pub(crate) fn set_lsn(page: &mut [u8], lsn: Lsn) {
    put_u64(page, LSN_AT, lsn.0);
}

pub(crate) fn level(page: &[u8]) -> u8 {
    page[LEVEL_AT]
}

/// Empties a page and writes what all pages begin with. The LSN stays.
pub(crate) fn format(page: &mut [u8], id: PageId, kind: Kind, level: u8) {
    debug_assert!(level == 0 || kind == Kind::Node, "only nodes have levels");
    let lsn = lsn(page);
    page.fill(0);
    page[KIND_AT] = kind as u8;
    page[LEVEL_AT] = level;
    put_u64(page, ID_AT, id.0);
    set_lsn(page, lsn);
}

/// What the checksums of a store's pages begin with, so that a page of another store is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seed(u32);

impl Seed {
    #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
    pub(crate) fn of(store: LogId) -> Seed {
        Seed((store.0 ^ (store.0 >> 32)) as u32)
    }

    fn checksum(self, page: &[u8]) -> u32 {
        crc32c::crc32c_append(self.0, &page[KIND_AT..])
    }
}

/// Writes the checksum, before the page goes to disk.
pub(crate) fn seal(page: &mut [u8], seed: Seed) {
    debug_assert!(lsn(page) > Lsn::ZERO, "a page that is written was changed by a record");
    let checksum = seed.checksum(page);
    put_u32(page, CHECKSUM_AT, checksum);
}

/// Checks that a page that came from disk is what `id` should be. A page of zeros is: it is free.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn verify(page: &[u8], id: PageId, seed: Seed) -> Result<(), PageFault> {
    let (stored, computed) = (get_u32(page, CHECKSUM_AT), seed.checksum(page));
    if stored != computed {
        let is_blank = page.iter().all(|&byte| byte == 0);
        return if is_blank { Ok(()) } else { Err(PageFault::Checksum { stored, computed }) };
    }
    let own = get_u64(page, ID_AT);
    if own != id.0 {
        return Err(PageFault::Misplaced(own));
    }
    match page[KIND_AT] {
        0 | 2 => Ok(()),
        3 => Node::new(page).check().map_err(PageFault::Malformed),
        _ => Err(PageFault::Malformed("its kind is not known")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: Seed = Seed(1);

    #[test]
    fn a_flipped_bit_anywhere_is_noticed() {
        let mut page = vec![0; 4096];
        format(&mut page, PageId(7), Kind::SpaceMap, 0);
        set_lsn(&mut page, Lsn(99));
        seal(&mut page, SEED);
        assert_eq!(verify(&page, PageId(7), SEED), Ok(()));
        let other = Seed::of(LogId(2));
        assert!(matches!(verify(&page, PageId(7), other), Err(PageFault::Checksum { .. })));
        for bit in (0..4096 * 8).step_by(61) {
            page[bit / 8] ^= 1 << (bit % 8);
            let fault = verify(&page, PageId(7), SEED);
            assert!(matches!(fault, Err(PageFault::Checksum { .. })), "{bit}");
            page[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(verify(&page, PageId(8), SEED), Err(PageFault::Misplaced(7)));
    }

    #[test]
    fn a_page_never_written_is_free_and_whole() {
        let page = vec![0; 4096];
        assert_eq!(verify(&page, PageId(3), SEED), Ok(()));
        assert_eq!(kind(&page), Kind::Free);
    }

    #[test]
    fn sizes_are_powers_of_two_from_4_to_64_kib() {
        for good in [4096, 8192, 16384, 32768, 65536] {
            assert_eq!(
                PageSize::new(good).map(PageSize::bytes),
                usize::try_from(good).map_err(|_| BadPageSize(good))
            );
        }
        for bad in [0, 1, 2048, 4097, 12288, 131_072, u64::MAX] {
            assert_eq!(PageSize::new(bad), Err(BadPageSize(bad)));
        }
    }
}

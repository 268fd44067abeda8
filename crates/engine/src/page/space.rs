//! Which pages are in use: one bit for each, in map pages spread over the file.
//!
//! The file is divided into groups of as many pages as a map page has bits. The first page of each
//! group is its map, except in the first group, where page 0 is never used, so that 0 can say "no
//! page", and page 1 is the map. A bit that is 1 says that the page is in use; the map's own is 1.

use super::{HEADER_BYTES, PageId};

const FIRST_MAP: PageId = PageId(1);

/// Returns how many pages a map page has bits for.
pub(crate) fn pages_per_map(page_bytes: usize) -> u64 {
    ((page_bytes - HEADER_BYTES) * 8) as u64
}

/// Returns the map page that has the bit of `page`, and the place of the bit in it.
pub(crate) fn map_page_of(page: PageId, page_bytes: usize) -> (PageId, usize) {
    let group = page.0 / pages_per_map(page_bytes);
    let bit = page.0 % pages_per_map(page_bytes);
    debug_assert_eq!(group * pages_per_map(page_bytes) + bit, page.0, "each page has one bit");
    (map_page(group, page_bytes), usize::try_from(bit).expect("a page has fewer than 2^20 bits"))
}

/// Returns the map page of a group.
pub(crate) fn map_page(group: u64, page_bytes: usize) -> PageId {
    if group == 0 { FIRST_MAP } else { PageId(group * pages_per_map(page_bytes)) }
}

/// The bits of a map page.
#[derive(Clone, Copy)]
pub(crate) struct SpaceMap<'a> {
    bits: &'a [u8],
}

impl<'a> SpaceMap<'a> {
    pub(crate) fn new(page: &'a [u8]) -> SpaceMap<'a> {
        SpaceMap { bits: &page[HEADER_BYTES..] }
    }

    pub(crate) fn is_used(self, bit: usize) -> bool {
        debug_assert!(bit / 8 < self.bits.len(), "the map has the bit");
        self.bits[bit / 8] & (1 << (bit % 8)) != 0
    }

    /// Returns the first bit from `from` on that is 0.
    pub(crate) fn first_free(self, from: usize) -> Option<usize> {
        let mut at = from / 8;
        let mut byte = *self.bits.get(at)? | low_bits(from % 8);
        while byte == u8::MAX {
            at += 1;
            byte = *self.bits.get(at)?;
        }
        Some(at * 8 + byte.trailing_ones() as usize)
    }

    /// Returns how many bits are 1.
    pub(crate) fn used(self) -> u64 {
        self.bits.iter().map(|byte| u64::from(byte.count_ones())).sum()
    }
}

fn low_bits(count: usize) -> u8 {
    (1_u8 << count).wrapping_sub(1)
}

/// Sets a bit of a map page.
pub(crate) fn set_used(page: &mut [u8], bit: usize, is_used: bool) {
    debug_assert!((bit as u64) < pages_per_map(page.len()), "the map has the bit");
    let byte = &mut page[HEADER_BYTES + bit / 8];
    if is_used {
        *byte |= 1 << (bit % 8);
    } else {
        *byte &= !(1 << (bit % 8));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_one_bit() {
        let per_map = pages_per_map(4096);
        assert_eq!(per_map, 4072 * 8);
        assert_eq!(map_page_of(PageId(0), 4096), (PageId(1), 0));
        assert_eq!(map_page_of(PageId(per_map - 1), 4096), (PageId(1), 32_575));
        assert_eq!(map_page_of(PageId(per_map), 4096), (PageId(per_map), 0));
        assert_eq!(map_page_of(PageId(per_map + 5), 4096), (PageId(per_map), 5));
    }

    #[test]
    fn the_first_free_bit_is_found_wherever_it_is() {
        let mut page = vec![0xff; 4096];
        assert_eq!(SpaceMap::new(&page).first_free(0), None);
        for bit in [0, 7, 8, 1_000, 32_575] {
            set_used(&mut page, bit, false);
            assert_eq!(SpaceMap::new(&page).first_free(0), Some(bit));
            assert_eq!(SpaceMap::new(&page).first_free(bit), Some(bit));
            assert_eq!(SpaceMap::new(&page).first_free(bit + 1), None);
            assert!(!SpaceMap::new(&page).is_used(bit));
            set_used(&mut page, bit, true);
            assert!(SpaceMap::new(&page).is_used(bit));
        }
    }
}

//! Which frame a page is in: an array indexed by page number that grows in pieces.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::page::PageId;

/// Entries of a piece.
const PIECE: usize = 1 << 16;

/// Pieces there can be: 2^32 pages.
const PIECES: usize = 1 << 16;

/// The array. An entry is 0 for a page that is not in memory, else the frame's number plus 1.
pub(super) struct Table {
    pieces: Box<[OnceLock<Box<[AtomicU32]>>]>,
}

impl Table {
    pub(super) fn new() -> Table {
        Table { pieces: (0..PIECES).map(|_| OnceLock::new()).collect() }
    }

    fn place(page: PageId) -> Option<(usize, usize)> {
        let number = usize::try_from(page.0).ok()?;
        (number / PIECE < PIECES).then_some((number / PIECE, number % PIECE))
    }

    /// Returns the frame of a page.
    pub(super) fn get(&self, page: PageId) -> Option<usize> {
        let (piece, at) = Self::place(page)?;
        let entry = self.pieces[piece].get()?[at].load(Ordering::Acquire);
        (entry as usize).checked_sub(1)
    }

    /// Sets the frame of a page. Returns whether the page can be entered: it cannot when its number
    /// is too high.
    pub(super) fn set(&self, page: PageId, frame: usize) -> bool {
        let (Some((piece, at)), Ok(entry)) = (Self::place(page), u32::try_from(frame + 1)) else {
            return false;
        };
        debug_assert!(self.get(page).is_none(), "a page is in one frame");
        let fresh = || (0..PIECE).map(|_| AtomicU32::new(0)).collect();
        self.pieces[piece].get_or_init(fresh)[at].store(entry, Ordering::Release);
        true
    }

    pub(super) fn clear(&self, page: PageId) {
        debug_assert!(self.get(page).is_some(), "a page leaves the table once");
        let place = Self::place(page);
        if let Some((piece, at)) = place
            && let Some(piece) = self.pieces[piece].get()
        {
            piece[at].store(0, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_found_where_it_was_put_and_not_elsewhere() {
        let table = Table::new();
        let pages = [0, 1, 65_535, 65_536, u64::from(u32::MAX)].map(PageId);
        for (frame, page) in pages.into_iter().enumerate() {
            assert_eq!(table.get(page), None);
            assert!(table.set(page, frame));
        }
        for (frame, page) in pages.into_iter().enumerate() {
            assert_eq!(table.get(page), Some(frame));
            table.clear(page);
            assert_eq!(table.get(page), None);
        }
        for far in [1 << 32, u64::MAX] {
            assert!(!table.set(PageId(far), 1) && table.get(PageId(far)).is_none());
        }
    }
}

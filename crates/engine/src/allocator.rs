//! The allocation of pages: which are in use, and which is used next.

use tidegate_runtime::sync::Mutex;

use crate::buffer::{BufferError, Exclusive, IoCounters, PAGES, Pool};
use crate::page::{self, Change, Kind, PageFault, PageId, SpaceMap, map_page_of, pages_per_map};
use crate::record::MiniTransaction;

/// Allocates and frees the pages of a store. Map pages are latched after all others and one at a
/// time, so that a thread that holds one waits for no other page.
pub(crate) struct PageAllocator {
    /// No page below is free, as far as is known.
    lowest_free: Mutex<PageId>,
    counters: IoCounters,
}

/// A page about to be allocated. Its map page is latched until the mini-transaction is over.
pub(crate) struct ReservedPage<'p> {
    pub(crate) page: Exclusive<'p>,
    map: Exclusive<'p>,
    bit: usize,
}

impl PageAllocator {
    pub(crate) fn new() -> PageAllocator {
        PageAllocator { lowest_free: Mutex::new(PageId(2)), counters: IoCounters::default() }
    }

    /// Finds a free page and latches it and its map page.
    pub(crate) fn reserve<'p>(&self, pool: &'p Pool) -> Result<ReservedPage<'p>, BufferError> {
        let size = pool.page_size().bytes();
        let lowest = *self.lowest_free.lock();
        let mut from = lowest;
        loop {
            let (map_id, bit) = map_page_of(from, size);
            let map = pool.write(map_id, &self.counters)?;
            let group = from.0 / pages_per_map(size);
            let Some(bit) = first_free(&map, bit, group) else {
                from = PageId((group + 1) * pages_per_map(size) + 1);
                continue;
            };
            let id = PageId(group * pages_per_map(size) + bit as u64);
            let mut lowest_free = self.lowest_free.lock();
            // A lower page that was freed meanwhile is not forgotten.
            if *lowest_free == lowest {
                *lowest_free = PageId(id.0 + 1);
            }
            drop(lowest_free);
            debug_assert_ne!(id, map_id, "a map is never allocated");
            let page = pool.write_new(id, &self.counters)?;
            return Ok(ReservedPage { page, map, bit });
        }
    }

    /// Frees `page` as a part of `mini`.
    pub(crate) fn free<'p>(
        &self,
        pool: &'p Pool,
        page: Exclusive<'p>,
        mini: &mut MiniTransaction<'p, '_>,
    ) -> Result<(), BufferError> {
        let (map_id, bit) = map_page_of(page.id(), pool.page_size().bytes());
        let map = pool.write(map_id, &self.counters)?;
        let mut lowest_free = self.lowest_free.lock();
        debug_assert_ne!(page.id(), map_id, "a map is never freed");
        *lowest_free = page.id().min(*lowest_free);
        drop(lowest_free);
        debug_assert!(SpaceMap::new(&map).is_used(bit), "a page is freed once");
        mini.change(page, vec![Change::Free]);
        mini.change(map, vec![mark(bit, false)]);
        Ok(())
    }

    /// Checks that the first map page is one. A blank page there would say that pages in use are
    /// free.
    ///
    /// # Errors
    /// It is no map page, or cannot be read.
    pub(crate) fn check(&self, pool: &Pool) -> Result<(), BufferError> {
        let (first, _) = map_page_of(PageId(0), pool.page_size().bytes());
        if page::kind(&pool.read(first, &self.counters)?) == Kind::SpaceMap {
            return Ok(());
        }
        let fault = PageFault::Malformed("it should be a map of free pages");
        Err(BufferError::Damaged { file: PAGES, page: first, fault })
    }

    /// Returns the number of pages in use, and how many of them are map pages or page 0. No thread
    /// may allocate or free pages meanwhile.
    pub(crate) fn used(&self, pool: &Pool) -> Result<(u64, u64), BufferError> {
        let size = pool.page_size().bytes();
        let (mut used, mut group) = (0, 0);
        loop {
            let (map, _) = map_page_of(PageId(group * pages_per_map(size)), size);
            let map = pool.read(map, &self.counters)?;
            if page::kind(&map) != Kind::SpaceMap {
                // The first group has page 0 beside its map.
                let own = if group == 0 { 0 } else { group + 1 };
                debug_assert!(own <= used, "a map says that it is in use itself");
                return Ok((used, own));
            }
            used += SpaceMap::new(&map).used();
            group += 1;
        }
    }

    /// Returns whether the map says that `page` is in use.
    pub(crate) fn is_used(&self, pool: &Pool, page: PageId) -> Result<bool, BufferError> {
        let (map, bit) = map_page_of(page, pool.page_size().bytes());
        let map = pool.read(map, &self.counters)?;
        Ok(page::kind(&map) == Kind::SpaceMap && SpaceMap::new(&map).is_used(bit))
    }
}

/// Returns the first free bit of a map page other than its own. A map page that was never formatted
/// is empty.
fn first_free(map: &[u8], from: usize, group: u64) -> Option<usize> {
    let first = if group == 0 { 2 } else { 1 };
    if page::kind(map) == Kind::SpaceMap {
        SpaceMap::new(map).first_free(from.max(first))
    } else {
        Some(from.max(first))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a page has at most 524,288 bits")]
fn mark(bit: usize, is_used: bool) -> Change<'static> {
    Change::Mark { bit: bit as u32, is_used }
}

impl<'p> ReservedPage<'p> {
    pub(crate) fn id(&self) -> PageId {
        self.page.id()
    }

    /// Allocates the page as a part of `mini`. `changes` format it.
    pub(crate) fn allocate<'c>(self, changes: Vec<Change<'c>>, mini: &mut MiniTransaction<'p, 'c>) {
        let mut marks = Vec::with_capacity(4);
        if page::kind(&self.map) != Kind::SpaceMap {
            marks.push(Change::FormatMap);
            marks.push(mark(0, true));
            if self.map.id() == PageId(1) {
                marks.push(mark(1, true));
            }
        }
        debug_assert!(
            page::kind(&self.map) != Kind::SpaceMap || !SpaceMap::new(&self.map).is_used(self.bit),
            "a page is allocated once"
        );
        marks.push(mark(self.bit, true));
        mini.change(self.page, changes);
        mini.change(self.map, marks);
    }
}

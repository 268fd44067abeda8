//! Pages that are being read: one thread reads a page, and the others that want it wait.
//!
//! The sets are guarded by mutexes that are held to look and never while a page is read, so that
//! threads that want different pages do not wait for each other. After a read, good or bad, those
//! who wanted the page look for it again: if it failed, one of them tries itself.

use tidegate_runtime::sync::{Condvar, Mutex};

use crate::page::PageId;

/// Sets, by the low bits of the pages' numbers.
const SETS: usize = 64;

/// Pages that are being read.
pub(super) struct Loading {
    sets: [Set; SETS],
}

struct Set {
    pages: Mutex<Vec<PageId>>,
    ended: Condvar,
}

/// The right to read a page, until this is dropped.
pub(super) struct Load<'l> {
    set: &'l Set,
    page: PageId,
}

impl Loading {
    pub(super) fn new() -> Loading {
        let set = || Set { pages: Mutex::new(Vec::new()), ended: Condvar::new() };
        Loading { sets: std::array::from_fn(|_| set()) }
    }

    /// Returns the right to read a page. While another thread has it, waits until it has ended and
    /// returns `None`.
    pub(super) fn begin(&self, page: PageId) -> Option<Load<'_>> {
        let set = &self.sets[usize::try_from(page.0 % SETS as u64).expect("fewer than there are")];
        let mut pages = set.pages.lock();
        if !pages.contains(&page) {
            pages.push(page);
            return Some(Load { set, page });
        }
        while pages.contains(&page) {
            set.ended.wait(&mut pages);
        }
        None
    }
}

impl Drop for Load<'_> {
    fn drop(&mut self) {
        let mut pages = self.set.pages.lock();
        pages.retain(|page| *page != self.page);
        drop(pages);
        self.set.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use tidegate_runtime::{Strategy, search, thread};

    use super::*;

    #[test]
    fn a_page_of_the_same_set_is_read_meanwhile() {
        let loading = Loading::new();
        let _first = loading.begin(PageId(7)).expect("no other thread reads it");
        drop(loading.begin(PageId(7 + SETS as u64)).expect("another page is read meanwhile"));
    }

    #[test]
    fn one_thread_at_a_time_reads_a_page_and_others_wait_for_its_end() {
        let strategies = (0..300).map(|seed| Strategy::Random { seed });
        let found = search(strategies, || {
            let loading = Arc::new(Loading::new());
            let (is_read, reads) =
                (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
            let read = |_| {
                let (loading, is_read) = (Arc::clone(&loading), Arc::clone(&is_read));
                let reads = Arc::clone(&reads);
                let body = move || {
                    if let Some(_load) = loading.begin(PageId(7)) {
                        assert!(!is_read.swap(true, Ordering::SeqCst), "two read it");
                        thread::yield_now();
                        reads.fetch_add(1, Ordering::SeqCst);
                        is_read.store(false, Ordering::SeqCst);
                    } else {
                        assert!(reads.load(Ordering::SeqCst) > 0, "one has read it");
                    }
                };
                thread::spawn("reader", body).expect("there is room")
            };
            let readers: Vec<_> = (0..4).map(read).collect();
            for reader in readers {
                reader.join().expect("no assertion failed");
            }
            assert!(loading.begin(PageId(7)).is_some(), "it is not read any more");
        });
        found.expect("no schedule fails");
    }
}

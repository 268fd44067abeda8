//! What each tree asks of the pool and of the disk.

use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_runtime::thread;
use tidegate_runtime::work::{self, Operation};

/// Threads count in different places, so that counting does not make them share a cache line.
const PLACES: usize = 8;

/// Counters of the pages of a tree that are read and written.
#[derive(Debug, Default)]
pub struct IoCounters {
    logical_reads: [Padded; PLACES],
    physical_reads: AtomicU64,
    writes: AtomicU64,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Padded(AtomicU64);

/// The values of [`IoCounters`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoCounts {
    /// Pages asked for, whether they were in memory or not.
    pub logical_reads: u64,
    /// Pages read from disk.
    pub physical_reads: u64,
    /// Pages written to disk, each counted once although it is written twice.
    pub writes: u64,
}

fn place() -> usize {
    thread::number() % PLACES
}

impl IoCounters {
    /// Counts pages that were asked for.
    pub(crate) fn count_logical_reads(&self, pages: u64) {
        work::count(Operation::PageVisit, pages);
        self.logical_reads[place()].0.fetch_add(pages, Ordering::Relaxed);
    }

    pub(super) fn count_physical_read(&self) {
        work::count(Operation::PageLoad, 1);
        self.physical_reads.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_write(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counts until now.
    #[must_use]
    pub fn counts(&self) -> IoCounts {
        let logical = self.logical_reads.iter().map(|padded| padded.0.load(Ordering::Relaxed));
        IoCounts {
            logical_reads: logical.sum(),
            physical_reads: self.physical_reads.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
        }
    }
}

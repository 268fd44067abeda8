//! The store through its public API: against a model, across crashes, with several threads.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bulk;
mod chains;
mod crashes;
mod cursors;
mod failures;
mod for_update;
mod indexes;
mod isolation;
mod model;
mod shape;

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_control::SplitMix64;
use tidegate_engine::disk::{Disk, Faults, SimulatedDisk};
use tidegate_engine::lock::LockSettings;
use tidegate_engine::wal::LogSettings;
use tidegate_engine::{PageSize, StoreOptions};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// The generator `SplitMix64`.
struct Random(SplitMix64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(SplitMix64::new(seed))
    }

    fn next(&mut self) -> u64 {
        self.0.next_bits()
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).unwrap()
    }

    fn bytes(&mut self, max: u64) -> Vec<u8> {
        let len = self.below(max + 1);
        (0..len).map(|_| u8::try_from(self.below(256)).unwrap()).collect()
    }
}

fn options() -> StoreOptions {
    let defaults = StoreOptions::default();
    StoreOptions {
        // Stores are opened by the thousand here, and each bucket costs its time.
        locks: LockSettings { buckets: 64, ..defaults.locks },
        page_size: PageSize::new(4096).unwrap(),
        buffer_bytes: 64 * 4096,
        buffer_bytes_max: 64 * 4096,
        log: LogSettings { segment_bytes: 256 << 10, ..LogSettings::default() },
        background: false,
        ..defaults
    }
}

fn disk(seed: u64) -> Arc<SimulatedDisk> {
    Arc::new(SimulatedDisk::new(seed, Faults::default()))
}

fn shared(disk: &Arc<SimulatedDisk>) -> Arc<dyn Disk> {
    Arc::clone(disk) as Arc<dyn Disk>
}

//! The store through its public API: against a model, across crashes, with several threads.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "threads and clocks of these are the system's"
)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod batches;
mod bulk;
mod chains;
mod client_locks;
mod cursors;
mod dropping;
mod failures;
mod for_update;
#[path = "../common/hooked.rs"]
mod hooked;
mod indexes;
mod isolation;
mod library;
mod long_values;
mod machine;
mod model;
#[path = "../../fuzz/src/random.rs"]
mod random;
mod schedules;
mod shape;
mod spaces;

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_engine::disk::{Disk, Faults, SimulatedDisk};
use tidegate_engine::lock::LockSettings;
use tidegate_engine::wal::{LogId, LogSettings};
use tidegate_engine::{Isolation, KeyValue, PageSize, Store, StoreOptions, TreeHandle, TxnOptions};

use random::Random;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const LEVELS: [Isolation; 4] = [
    Isolation::ReadUncommitted,
    Isolation::ReadCommitted,
    Isolation::RepeatableRead,
    Isolation::Serializable,
];

fn options() -> StoreOptions {
    // Stores are opened by the thousand here, and each bucket costs its time.
    let locks = LockSettings { buckets: 64, ..StoreOptions::default().locks };
    StoreOptions::default()
        .locks(locks)
        .page_size(PageSize::new(4096).unwrap())
        .buffer_bytes(64 * 4096)
        .buffer_bytes_max(64 * 4096)
        .log(LogSettings { segment_bytes: 256 << 10, ..LogSettings::default() })
        // What happens on a disk is the same each time.
        .io_writers(1)
        .background(false)
}

fn disk(seed: u64) -> Arc<SimulatedDisk> {
    Arc::new(SimulatedDisk::new(seed, Faults::default()))
}

fn shared(disk: &Arc<SimulatedDisk>) -> Arc<dyn Disk> {
    Arc::clone(disk) as Arc<dyn Disk>
}

/// A new store with an empty tree, and the disk that it is on.
fn new_store(seed: u64, options: &StoreOptions) -> (Arc<SimulatedDisk>, Store, TreeHandle) {
    let disk = disk(seed);
    let store = Store::create(&shared(&disk), LogId(seed), options).unwrap();
    let tree = store.create_tree("tree").unwrap();
    (disk, store, tree)
}

fn reopen(disk: &Arc<SimulatedDisk>) -> Store {
    Store::open(&shared(disk), &options()).unwrap()
}

fn at(isolation: Isolation) -> TxnOptions {
    TxnOptions::default().isolation(isolation)
}

/// Everything in a tree, in order.
fn scan(store: &Store, tree: &TreeHandle) -> Vec<KeyValue> {
    let mut transaction = store.begin(TxnOptions::default());
    transaction.entries(tree).unwrap().map(Result::unwrap).collect()
}

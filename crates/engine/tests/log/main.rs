//! The write-ahead log on simulated disks.
//!
//! What is random comes from seeds, and a test that fails prints its own.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "threads and clocks of these are the system's"
)]

mod crash;
mod damage;
mod files;
#[path = "../common/hooked.rs"]
mod hooked;
mod model;
#[path = "../../fuzz/src/random.rs"]
mod random;
mod schedules;
mod threads;

use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::disk::{Disk, Faults, SimulatedDisk};
use tidegate_engine::wal::{Log, LogError, LogId, LogSettings, Lsn, Tail};

use random::Random;

/// Small segments and buffers, so that little data goes over many ends.
const SETTINGS: LogSettings = LogSettings {
    id: LogId(0x1D),
    segment_bytes: 4_096,
    buffer_bytes: 4_096,
    lazy_sync: Duration::from_millis(2),
};

/// Bytes that all records of a segment of [`SETTINGS`] have together.
const SEGMENT_ROOM: usize = 4_096 - 512;

fn new_disk(seed: u64) -> Arc<SimulatedDisk> {
    Arc::new(SimulatedDisk::new(seed, Faults::default()))
}

fn create(disk: &Arc<SimulatedDisk>) -> Log {
    Log::create(Arc::clone(disk) as Arc<dyn Disk>, SETTINGS).expect("a new log")
}

fn new_log(seed: u64) -> (Arc<SimulatedDisk>, Log) {
    let disk = new_disk(seed);
    let log = create(&disk);
    (disk, log)
}

fn try_open(disk: &Arc<SimulatedDisk>, from: Lsn) -> Result<(Log, Tail), LogError> {
    Log::open(Arc::clone(disk) as Arc<dyn Disk>, SETTINGS, from)
}

fn open(disk: &Arc<SimulatedDisk>, from: Lsn) -> (Log, Tail) {
    try_open(disk, from).expect("a log that opens")
}

/// Everything from `from` on.
fn records(log: &Log, from: Lsn) -> Vec<(Lsn, Vec<u8>)> {
    log.reader(from).map(|record| record.expect("a record")).collect()
}

/// Appends the payloads and returns them with their positions.
fn append_all(log: &Log, payloads: &[&[u8]]) -> Vec<(Lsn, Vec<u8>)> {
    payloads.iter().map(|payload| (log.append(payload).expect("room"), payload.to_vec())).collect()
}

/// Names of the files of a kind.
fn files(disk: &SimulatedDisk, prefix: &str) -> Vec<String> {
    let names = disk.list().expect("a list");
    names.into_iter().filter(|name| name.starts_with(prefix)).collect()
}

/// Returns a payload that begins with `number`, and else looks like many others.
fn payload(random: &mut Random, number: u64) -> Vec<u8> {
    const LENGTHS: [usize; 10] = [0, 8, 9, 40, 40, 40, 200, 500, 1_000, SEGMENT_ROOM - 16];
    let length = *random.pick(&LENGTHS);
    let mut payload = number.to_le_bytes().to_vec();
    payload.resize(length, 0x55);
    payload
}

/// Runs `test` for each seed, and prints it, which is shown when the test fails.
#[expect(clippy::print_stdout, reason = "a seed that fails must be known")]
fn for_seeds(seeds: std::ops::Range<u64>, test: impl Fn(u64)) {
    for seed in seeds {
        println!("seed {seed}");
        test(seed);
    }
}

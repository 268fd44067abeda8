//! Disks: real and simulated ones do the same, and simulated ones lose what they may and no more.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "threads and clocks of these are the system's"
)]
#![expect(clippy::unwrap_used, reason = "the helpers of tests fail by panicking")]
#![expect(clippy::print_stdout, reason = "tests print their seeds and what they leave out")]

mod behaviour;
mod crashes;
mod faults;
#[path = "../../fuzz/src/random.rs"]
mod random;
mod real;

use std::io;
use std::sync::Arc;

use tidegate_engine::disk::{Crash, Disk, Faults, File, Open, SimulatedDisk};

use random::Random;

fn new_file(disk: &dyn Disk, name: &str) -> Arc<dyn File> {
    disk.open(name, Open::New).unwrap()
}

fn old_file(disk: &dyn Disk, name: &str) -> Arc<dyn File> {
    disk.open(name, Open::Existing).unwrap()
}

fn contents(file: &dyn File) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

fn kind<T>(result: io::Result<T>) -> Option<io::ErrorKind> {
    result.err().map(|error| error.kind())
}

/// A simulated disk with one file, `a`, that holds `bytes` durably.
fn disk_with(seed: u64, bytes: &[u8]) -> (SimulatedDisk, Arc<dyn File>) {
    let disk = SimulatedDisk::new(seed, Faults::default());
    let file = new_file(&disk, "a");
    file.write_at(bytes, 0).unwrap();
    file.sync().unwrap();
    disk.sync_directory().unwrap();
    (disk, file)
}

/// What is in `a` after a crash.
fn after(disk: &SimulatedDisk, crash: Crash) -> Vec<u8> {
    contents(&*old_file(&disk.crash(crash), "a"))
}

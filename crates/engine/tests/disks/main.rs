//! Disks: real and simulated ones do the same, and simulated ones lose what they may and no more.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail by panicking")]
#![expect(clippy::print_stdout, reason = "tests print their seeds and what they leave out")]

mod behaviour;
mod crashes;
mod faults;
mod real;

use std::io;
use std::sync::Arc;

use tidegate_engine::disk::{Crash, Disk, Faults, File, Open, SimulatedDisk};

/// Draws of the tests, by a linear congruential generator (Knuth, TAOCP 3.3.4, line 26): other than
/// those of the disk.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

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

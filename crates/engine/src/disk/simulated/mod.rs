//! A disk in memory that fails on request, for tests of what survives.
//!
//! # Mechanism
//! Every file has two images, of what is synced and of what is written, and a list of the changes
//! that lie between. A read sees the written image. A sync plays the list on the synced image. A
//! crash makes a new disk from what is synced and from some of the list, drawn from the seed:
//!
//! | crash | what the new disk holds |
//! | --- | --- |
//! | [`Crash::Kept`] | everything; what was not synced still is not, since only the process died |
//! | [`Crash::Lost`] | what was synced |
//! | [`Crash::Random`] | what was synced, and of the rest anything, as on a journaling system |
//! | [`Crash::Weak`] | the same, as on a file system that promises no more than it must |
//!
//! In a random crash
//! * each write survives whole, or not, or in part: its first sectors, or any. So a later write may
//!   survive where an earlier one does not. Of a sector the whole state at one moment survives,
//!   with all that earlier writes put into it, because that is how it lies in the page cache;
//! * the length of a file is the one after one of its changes, whatever became of the bytes. Bytes
//!   beyond it are gone, and where it grew and nothing arrived there are zeros;
//! * of the steps that changed names the first so many survive.
//!
//! A weak crash leaves noise, or sectors of other files and of removed ones, where a file grew and
//! nothing arrived, and lets each step on names survive on its own.
//!
//! # Example
//! A file of two synced sectors, AA. Then BB is written over them, and CC at the second. It is one
//! of 18 files after a random crash: the length is 2 or 3 sectors; the first is A or B; the second
//! A, B or C; the third, if there is one, C or zeros. `B B` is one: CC is lost. `A C 0` is another:
//! of BB nothing arrived, and CC is torn though its length survived. A test sees all 18, and no
//! other.
//!
//! # Faults
//! [`Faults`] breaks single operations: an error of reading, writing or syncing with a probability,
//! a disk that fills up, and a machine that stops after so many operations, in the middle of the
//! next. From then on everything fails, and what remains is to look at the disk after a crash. A
//! test first runs its work once to learn from [`SimulatedDisk::operations`] how many there are,
//! and then again for every one of them. Files at rest are damaged by
//! [`SimulatedDisk::flip_bit`], [`SimulatedDisk::corrupt`] and [`SimulatedDisk::truncate`].
//!
//! # Where this leaves the literature
//! * **States are drawn, not enumerated.** ALICE (Pillai et al., OSDI 2014) and `CrashMonkey`
//!   (Mohan et al., OSDI 2018) record the calls of a program and try the states they may lead to,
//!   one by one. A hundred writes between two syncs have too many. Here each crash draws first how
//!   much it spares of a file, then what, so that extremes are as common as halves.
//! * **Sectors, not calls.** ALICE splits a call at the blocks of a file system; devices promise a
//!   sector of 512 bytes. `SQLite`'s crash tests also fill sectors that were being written with
//!   noise. We leave that to [`SimulatedDisk::corrupt`], because the devices we mean finish a
//!   sector.
//! * **Names in order.** ext4, XFS and Btrfs put changes of one directory into a journal or a tree
//!   in order; ALICE found exceptions on Btrfs. So [`Crash::Random`] keeps order and
//!   [`Crash::Weak`] does not. A rename is atomic in both: a store that must replace a file has
//!   nothing else.
//! * **A failed sync.** Linux marks pages clean after an error, so that the next sync succeeds and
//!   writes nothing; ext4 and XFS leave the new bytes readable, Btrfs the old ones (Rebello et al.,
//!   USENIX ATC 2020). Here they stay readable and some were written: it looks right until the
//!   crash, which is the harder case.
//! * **A killed process leaves things unsynced.** Crash tests often take what a killed process
//!   wrote for durable. A recovery that builds on it without a sync loses it in the next failure
//!   of power, and this disk shows that.
//!
//! # Limits
//! * A sector is never torn and never spoilt by a crash; the damage of a device is on request.
//! * Every file grows into free room: overwriting never fails for want of it, as it may where data
//!   is copied on write. A hole counts as if it were written.
//! * One lock for all. With several threads it is correct, but repeatable only if they take turns.
//! * A change is kept in memory until its file is synced.

mod directory;
mod image;
mod machine;
mod node;
mod random;
mod survival;
mod trace;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tidegate_runtime::sync::Mutex;

use super::{Claim, Disk, File, Open};
use machine::{Handle, Machine};

/// What a crash does to what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process dies and the machine goes on: all is there, and still not synced.
    Kept,
    /// The power fails before anything else was written.
    Lost,
    /// The power fails at some moment, on a journaling file system.
    Random,
    /// The power fails at some moment, on a file system that keeps no order of names, and shows old
    /// sectors where a file grew and its bytes did not arrive.
    Weak,
}

/// What goes wrong while a disk is in use. The default is nothing.
///
/// Probabilities are from 0 to 1 for each operation, independent of each other.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// The machine stops after so many more operations, in the middle of the next. Operations are
    /// writes, changes of length, syncs, and changes of names; not reads.
    pub crash_after: Option<u64>,
    /// After so many more operations one fails, as by the probabilities below.
    pub fail_after: Option<u64>,
    /// The probability that a read fails, from 0 to 1.
    pub read_error: f64,
    /// Probability that a write fails, after some of its sectors; or a change of a length or a
    /// name, which then is not made.
    pub write_error: f64,
    /// Probability that a sync of a file or of the directory fails. What it had to make durable is
    /// durable in part and otherwise never will be, though it can be read.
    pub sync_error: f64,
    /// Room for the bytes of all files; of a removed one until it is closed and the directory is
    /// synced. A write that does not fit fails with `StorageFull`, after some of its sectors.
    pub capacity: Option<u64>,
}

/// A disk in memory that fails and crashes as it is told.
pub struct SimulatedDisk {
    machine: Arc<Mutex<Machine>>,
    /// Whether a store has the disk.
    is_taken: Arc<AtomicBool>,
}

impl SimulatedDisk {
    /// Returns an empty disk. Everything that is drawn comes from `seed`.
    #[must_use]
    pub fn new(seed: u64, faults: Faults) -> SimulatedDisk {
        SimulatedDisk::of(Machine::new(seed, faults))
    }

    fn of(machine: Machine) -> SimulatedDisk {
        SimulatedDisk { machine: Arc::new(Mutex::new(machine)), is_taken: Arc::default() }
    }

    /// Sets the faults from now on. A machine that is off stays off.
    pub fn set_faults(&self, faults: Faults) {
        self.machine.lock().set_faults(faults);
    }

    /// Returns the disk that is found after a crash: without faults, and with no operations
    /// counted. This one goes on as it is, and the next crash of it is drawn anew.
    #[must_use]
    pub fn crash(&self, how: Crash) -> SimulatedDisk {
        SimulatedDisk::of(self.machine.lock().crash(how))
    }

    /// Returns a second disk in the same state, faults and draws included, on which no file is
    /// open.
    #[must_use]
    pub fn fork(&self) -> SimulatedDisk {
        SimulatedDisk::of(self.machine.lock().fork())
    }

    /// Returns how many operations there were, see [`Faults::crash_after`].
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.machine.lock().operations()
    }

    /// Returns whether [`Faults::crash_after`] has stopped the machine.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.machine.lock().is_off()
    }

    /// Returns the durable content: what [`Crash::Lost`] leaves, by name.
    #[must_use]
    pub fn image(&self) -> BTreeMap<String, Vec<u8>> {
        self.machine.lock().image()
    }

    /// Returns the last operations, one a line, with their numbers; of reads only those that
    /// failed.
    #[must_use]
    pub fn trace(&self) -> String {
        self.machine.lock().trace()
    }

    /// Turns over one bit of a file, which is synced first.
    ///
    /// # Errors
    /// `NotFound`; `UnexpectedEof` when there is no such byte; `InvalidInput` for a bit above 7.
    pub fn flip_bit(&self, name: &str, offset: u64, bit: u32) -> io::Result<()> {
        let mask = 1_u8.checked_shl(bit).ok_or(io::ErrorKind::InvalidInput)?;
        self.machine.lock().damage(name, offset, &[mask])
    }

    /// Changes every one of `len` bytes of a file, which is synced first.
    ///
    /// # Errors
    /// `NotFound`; `UnexpectedEof` when there are not so many bytes.
    pub fn corrupt(&self, name: &str, offset: u64, len: usize) -> io::Result<()> {
        let mut machine = self.machine.lock();
        let mask = machine.mask(len);
        machine.damage(name, offset, &mask)
    }

    /// Cuts a file, which is synced first, to `len` bytes if it is longer.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn truncate(&self, name: &str, len: u64) -> io::Result<()> {
        self.machine.lock().truncate(name, len)
    }
}

impl fmt::Debug for SimulatedDisk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SimulatedDisk, last operations:\n{}", self.trace())
    }
}

impl Disk for SimulatedDisk {
    fn open(&self, name: &str, how: Open) -> io::Result<Arc<dyn File>> {
        let handle = self.machine.lock().open(name, how)?;
        Ok(Arc::new(SimulatedFile { machine: Arc::clone(&self.machine), handle }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.machine.lock().list()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.machine.lock().remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.machine.lock().rename(from, to)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.machine.lock().sync_directory()
    }

    fn claim(&self) -> io::Result<Claim> {
        Claim::take(&self.is_taken)
    }
}

struct SimulatedFile {
    machine: Arc<Mutex<Machine>>,
    handle: Handle,
}

impl File for SimulatedFile {
    fn len(&self) -> io::Result<u64> {
        self.machine.lock().len(&self.handle)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.machine.lock().read(&self.handle, buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.machine.lock().write(&self.handle, bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.machine.lock().sync(&self.handle)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.machine.lock().set_len(&self.handle, len)
    }
}

impl Drop for SimulatedFile {
    fn drop(&mut self) {
        self.machine.lock().close(&self.handle);
    }
}

//! Files, as the store sees them: real ones, simulated ones that fail, ones in memory, and ones
//! that take the time of a machine in virtual time.
//!
//! # What a disk promises
//! * A write is seen by every later read at once.
//! * After a crash a file holds everything written before its last [`File::sync`] that returned,
//!   and of what was written after it anything: all, nothing, some sectors of one write. Its length
//!   is that of one moment since then, whatever became of the bytes.
//! * A file that was created, renamed or removed is surely so after [`Disk::sync_directory`].
//!   Before that a file can be synced and have no name. A rename is done or it is not: never are
//!   both names missing.
//! * A file that was removed or replaced can be read and written as long as it is open.
//!
//! A sync that failed may have dropped what it was to write, and a second that succeeds does not
//! bring it back (PostgreSQL's `fsyncgate` of 2018). So the store stops writing after the first.
//!
//! # Names
//! The directory is flat: a name has no separator, is neither `.` nor `..`, and has at most 255
//! bytes. `lock` is taken: it is what keeps a second process out of the directory.
//!
//! # Where this leaves the literature
//! File systems differ in what a crash leaves behind, and programs rely on more than they may
//! (Pillai et al., OSDI 2014). So the store relies on the list above and on nothing else: not on
//! the order of two writes, not on appends being whole, not on a file's sync making its name
//! durable. [`SimulatedDisk`] gives no more than the list, a [`FileDisk`] mostly gives more.

mod file_disk;
mod memory;
mod simulated;
mod timed;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use file_disk::{FileDisk, IoMode};
pub use memory::MemoryDisk;
pub use simulated::{Crash, Faults, SimulatedDisk};
pub use timed::TimedDisk;

/// The unit in which a disk writes all or nothing, in bytes; offsets, lengths and memory of direct
/// I/O are multiples of [`ALIGNMENT`].
pub const SECTOR: usize = 512;

/// What direct I/O asks of offsets, lengths and addresses, in bytes.
pub const ALIGNMENT: usize = 4096;

/// What to do about a file that is there, or is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// The file must exist.
    Existing,
    /// It must not be there; made empty.
    New,
}

/// A directory of files with flat names.
pub trait Disk: Send + Sync {
    /// Opens a file.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists`, `InvalidInput` for a name that is none, or what the system
    /// says.
    fn open(&self, name: &str, how: Open) -> io::Result<Arc<dyn File>>;

    /// Returns the names of all files, in order.
    ///
    /// # Errors
    /// What the system says.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Removes a file.
    ///
    /// # Errors
    /// `NotFound`, or what the system says.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Renames a file. A file that had the new name is replaced.
    ///
    /// # Errors
    /// `NotFound`, or what the system says.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Makes names durable.
    ///
    /// # Errors
    /// What the system says.
    fn sync_directory(&self) -> io::Result<()>;

    /// Keeps the disk for one store, until what is returned is dropped.
    ///
    /// # Errors
    /// `ResourceBusy` when a store has it.
    fn claim(&self) -> io::Result<Claim>;
}

/// A disk kept for one store. Two stores on the same files would each overwrite what the other has
/// made durable.
#[derive(Debug)]
pub struct Claim {
    is_taken: Arc<AtomicBool>,
}

impl Claim {
    /// Takes what `is_taken` stands for.
    ///
    /// # Errors
    /// `ResourceBusy` when it is taken.
    pub fn take(is_taken: &Arc<AtomicBool>) -> io::Result<Claim> {
        if is_taken.swap(true, Ordering::AcqRel) {
            let message = "a store is open on this disk already: close it or drop it first";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, message));
        }
        Ok(Claim { is_taken: Arc::clone(is_taken) })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.is_taken.store(false, Ordering::Release);
    }
}

/// An open file; every method may be called from several threads at once.
///
/// What a read returns while another thread writes the same bytes is not defined.
pub trait File: Send + Sync {
    /// Returns length in bytes.
    ///
    /// # Errors
    /// What the system says.
    fn len(&self) -> io::Result<u64>;

    /// Returns whether the length is 0.
    ///
    /// # Errors
    /// What the system says.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `buffer` from `offset` on.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends before; or what the system says. Then the contents of
    /// `buffer` are not defined.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all `bytes` at `offset`. A gap before them is filled with zeros. Writing no bytes
    /// changes nothing.
    ///
    /// # Errors
    /// What the system says; then any part may have been written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes durable what was written before, and the length.
    ///
    /// # Errors
    /// What the system says; what was written may be lost for good, whatever a later sync says.
    fn sync(&self) -> io::Result<()>;

    /// Cuts the file, or lengthens it with zeros.
    ///
    /// # Errors
    /// What the system says.
    fn set_len(&self, len: u64) -> io::Result<()>;
}

/// The file by which a [`FileDisk`] is locked; no disk gives it out.
const LOCK: &str = "lock";

/// The end of the names of files of pages. They are what direct I/O is for.
const PAGES: &str = ".pages";

/// The longest name, in bytes: that of ext4, XFS and Btrfs.
const NAME_LEN_MAX: usize = 255;

/// Refuses what is not the name of a file in a flat directory.
fn check_name(name: &str) -> io::Result<()> {
    let why = match name {
        "" => "it is empty",
        "." | ".." => "it is a directory",
        LOCK => "the lock of the directory is called so",
        _ if name.contains(['/', '\0']) => "it has a separator in it",
        _ if name.len() > NAME_LEN_MAX => "it is longer than 255 bytes",
        _ => return Ok(()),
    };
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("{name:?} cannot be the name of a file of the store: {why}"),
    ))
}

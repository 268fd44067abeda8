//! A disk that takes its time on a machine in virtual time.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_runtime::disk::{Transfer, wait_for};
use tidegate_runtime::work::{self, Operation};

use super::{Claim, Disk, File, Open, PAGES};

/// Bytes of the log that a change of a name or of a length writes.
const SMALL: u64 = 512;

/// Bytes between the beginnings of two data files on the striped disks.
const FILE_APART: u64 = 1 << 44;

/// A disk whose bytes are on another one, and which takes the time of the machine's disks
/// ([`tidegate_runtime::disk`]). On a machine of the operating system it takes none.
///
/// * A file whose name ends in `.pages` is on the data disks, and its transfers are direct: each
///   read and each write takes its time, a sync none.
/// * Any other file is on the log's disk. A write to it goes to the system's cache and takes no
///   time. A sync takes the time of what was written since the last one. A read takes none: only
///   recovery and rollback read there, mostly what was written a moment ago.
/// * A change of a length, and making names durable, is a small write on the log's disk.
pub struct TimedDisk(Arc<dyn Disk>);

impl TimedDisk {
    /// Returns a disk with the files of `disk`.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>) -> TimedDisk {
        TimedDisk(disk)
    }
}

struct DataFile {
    file: Arc<dyn File>,
    /// Where it begins on the striped disks.
    start: u64,
}

struct LogFile {
    file: Arc<dyn File>,
    /// Bytes written since the last sync.
    unsynced: AtomicU64,
}

impl Disk for TimedDisk {
    fn open(&self, name: &str, how: Open) -> io::Result<Arc<dyn File>> {
        let file = self.0.open(name, how)?;
        if !name.ends_with(PAGES) {
            return Ok(Arc::new(LogFile { file, unsynced: AtomicU64::new(0) }));
        }
        let number = u64::from(crc32c::crc32c(name.as_bytes()) % 1_024);
        Ok(Arc::new(DataFile { file, start: number * FILE_APART }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn sync_directory(&self) -> io::Result<()> {
        wait_for(Transfer::Log { bytes: SMALL });
        self.0.sync_directory()
    }

    fn claim(&self) -> io::Result<Claim> {
        self.0.claim()
    }
}

impl DataFile {
    fn wait_for(&self, offset: u64, bytes: usize) {
        let offset = self.start.saturating_add(offset);
        wait_for(Transfer::Data { offset, bytes: bytes as u64 });
    }
}

impl File for DataFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.wait_for(offset, buffer.len());
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.wait_for(offset, bytes.len());
        self.file.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        wait_for(Transfer::Log { bytes: SMALL });
        self.file.set_len(len)
    }
}

impl File for LogFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        work::count(Operation::SystemCall, 1);
        self.file.write_at(bytes, offset)?;
        self.unsynced.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let bytes = self.unsynced.swap(0, Ordering::Relaxed);
        wait_for(Transfer::Log { bytes });
        self.file.sync()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        wait_for(Transfer::Log { bytes: SMALL });
        self.file.set_len(len)
    }
}

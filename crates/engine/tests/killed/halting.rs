//! A disk that stops in the middle of something, so that a process can be killed right there.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tidegate_engine::disk::{Claim, Disk, File, FileDisk, Open};

/// Counts changes of files down and, at the last, does half of a write, tells, and waits for the
/// end. Each thread that comes later waits as well.
struct Countdown {
    left: AtomicU64,
    tell: fn(),
}

/// No number of changes.
const NEVER: u64 = u64::MAX;

impl Countdown {
    /// Counts one change; `half` is what is done of the last.
    fn count(&self, half: impl FnOnce()) {
        let counted = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
            (left != NEVER).then(|| left.saturating_sub(1))
        });
        match counted {
            Err(_) => return,
            Ok(left) if left > 1 => return,
            Ok(1) => {
                half();
                (self.tell)();
            }
            Ok(_) => {}
        }
        loop {
            thread::park();
        }
    }
}

/// The files of a directory, until it stops.
pub(crate) struct HaltingDisk {
    disk: FileDisk,
    countdown: Arc<Countdown>,
}

impl HaltingDisk {
    /// Stops in the middle of the `after`th change, if it is given, and calls `tell`.
    pub(crate) fn new(disk: FileDisk, after: Option<u64>, tell: fn()) -> HaltingDisk {
        let left = AtomicU64::new(after.unwrap_or(NEVER));
        HaltingDisk { disk, countdown: Arc::new(Countdown { left, tell }) }
    }

    /// From now on it does not stop.
    pub(crate) fn never_halt(&self) {
        self.countdown.left.store(NEVER, Ordering::SeqCst);
    }
}

impl Disk for HaltingDisk {
    fn open(&self, name: &str, how: Open) -> io::Result<Arc<dyn File>> {
        if how == Open::New {
            self.countdown.count(|| {});
        }
        let file = self.disk.open(name, how)?;
        Ok(Arc::new(HaltingFile { file, countdown: Arc::clone(&self.countdown) }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.countdown.count(|| {});
        self.disk.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.countdown.count(|| {});
        self.disk.rename(from, to)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.countdown.count(|| {});
        self.disk.sync_directory()
    }

    fn claim(&self) -> io::Result<Claim> {
        self.disk.claim()
    }
}

struct HaltingFile {
    file: Arc<dyn File>,
    countdown: Arc<Countdown>,
}

impl File for HaltingFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.countdown.count(|| {
            let _ = self.file.write_at(&bytes[..bytes.len() / 2], offset);
        });
        self.file.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.countdown.count(|| {});
        self.file.sync()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.countdown.count(|| {});
        self.file.set_len(len)
    }
}

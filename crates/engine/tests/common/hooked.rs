//! A disk that calls a hook before each change of a file, which may delay it, refuse it, or stop.
#![allow(dead_code, reason = "not every test looks at what is written")]

use std::io;
use std::sync::Arc;

use tidegate_engine::disk::{Claim, Disk, File, Open};

/// A change that is about to be made.
pub(crate) enum Change<'c> {
    /// A file is made, removed or renamed, or the directory is synced.
    Name,
    Write {
        file: &'c dyn File,
        bytes: &'c [u8],
        offset: u64,
    },
    Sync,
    SetLen,
}

/// Called before each change. The change is not made after an error.
pub(crate) type Hook = Arc<dyn Fn(&Change<'_>) -> io::Result<()> + Send + Sync>;

pub(crate) struct HookedDisk {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) hook: Hook,
}

impl Disk for HookedDisk {
    fn open(&self, name: &str, how: Open) -> io::Result<Arc<dyn File>> {
        if how == Open::New {
            (self.hook)(&Change::Name)?;
        }
        let file = self.disk.open(name, how)?;
        Ok(Arc::new(HookedFile { file, hook: Arc::clone(&self.hook) }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        (self.hook)(&Change::Name)?;
        self.disk.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        (self.hook)(&Change::Name)?;
        self.disk.rename(from, to)
    }

    fn sync_directory(&self) -> io::Result<()> {
        (self.hook)(&Change::Name)?;
        self.disk.sync_directory()
    }

    fn claim(&self) -> io::Result<Claim> {
        self.disk.claim()
    }
}

struct HookedFile {
    file: Arc<dyn File>,
    hook: Hook,
}

impl File for HookedFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        (self.hook)(&Change::Write { file: &*self.file, bytes, offset })?;
        self.file.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        (self.hook)(&Change::Sync)?;
        self.file.sync()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        (self.hook)(&Change::SetLen)?;
        self.file.set_len(len)
    }
}

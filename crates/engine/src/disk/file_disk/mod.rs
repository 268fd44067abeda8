//! The files of one directory of this machine.
//!
//! # Mechanism
//! * **One store, one process.** The file `lock` in the directory is locked with `flock` while the
//!   disk, or a file it gave out, is alive. The system lets go of the lock when the process ends,
//!   however it ends, so there is nothing to clean up after a crash. `flock` locks belong to the
//!   open file and not to the process, unlike those of `fcntl`: the same process cannot open a
//!   directory twice either, and closing another descriptor of the file does not release it.
//!   Who finds nothing in a directory and leaves nothing there takes the file away again.
//! * **To be read only.** [`FileDisk::open_read_only`] writes nothing, not even `lock`: where that
//!   file is, it is locked together with others who only read.
//! * **Sync.** [`File::sync`] is `fdatasync`: the bytes, and the length when it changed, but no
//!   times. [`Disk::sync_directory`] is `fsync` of a descriptor that is held from the beginning,
//!   because Linux reports an error of writing back to those descriptors only that were open then.
//! * **Direct I/O.** In [`IoMode::Direct`] the files whose names end in `.pages` are opened with
//!   `O_DIRECT`: they bypass the page cache, so that the buffer pool is the only cache there is.
//!   The log is not: it is written in pieces that no alignment fits, and read once, at recovery.
//! * **Retries.** A call that a signal interrupted is made again, and a short one is continued.
//!   Nothing else is tried again: an error of a disk is for the store to judge.
//!
//! # Example
//! A page file in direct mode, page size 8 KiB. The pool writes page 3 from a frame at a multiple
//! of 4096: one `pwrite` of 8,192 bytes at 24,576 goes straight to the device. A test reads 100
//! bytes at 5,000: the block from 4,096 to 8,192 is read into a bounce buffer and 100 bytes are
//! copied.
//!
//! # Where this leaves the literature
//! * `SQLite` keeps processes apart with `fcntl` locks, PostgreSQL with a file that holds the
//!   number of the process. `fcntl` locks vanish when any descriptor of the file is closed, and a
//!   number may be another process's after a restart. `flock` has neither trouble on a local file
//!   system.
//! * PostgreSQL takes a failed `fsync` for the end of the process. Here it is an error; the rule
//!   that nothing is written afterwards is kept above, where the log is.
//!
//! # Limits
//! * On NFS `flock` guards against other machines only if the server does locking.
//! * Who removes `lock` by hand while a store is open lets a second one in.
//! * A part of a block that is written directly costs a read and a write of the block, while no
//!   other thread writes to the file. While it lasts, the file may appear up to 4,095 bytes longer.

mod direct;

use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::{Errno, retry_on_intr};
use tidegate_runtime::work::{self, Operation};

use super::{Claim, Disk, File, LOCK, Open, PAGES, check_name};
use direct::DirectFile;

/// How files of pages are read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoMode {
    /// Through the page cache of the system, like every other file.
    Buffered,
    /// Past it (`O_DIRECT`), so that a small buffer pool is really small. Concerns the files whose
    /// names end in `.pages`.
    Direct,
}

/// A directory of this machine, kept to this process.
#[derive(Debug)]
pub struct FileDisk {
    directory: Arc<Directory>,
    mode: IoMode,
}

/// Files hold it too, so that the lock outlives the disk if they do.
#[derive(Debug)]
struct Directory {
    path: PathBuf,
    handle: fs::File,
    access: Access,
    /// Missing where a directory that is only read has no such file.
    _lock: Option<fs::File>,
    /// The files that were there when this process made the lock, if it did.
    found: Option<Vec<String>>,
    /// Whether a store has the directory.
    is_taken: Arc<AtomicBool>,
}

/// What may be done with the files of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    ReadWrite,
    ReadOnly,
}

impl Drop for Directory {
    /// Leaves a directory in which nothing was made as it was.
    fn drop(&mut self) {
        let Some(found) = &self.found else { return };
        if files_in(&self.path).is_ok_and(|names| names == *found) {
            // Still locked. Who opened it meanwhile finds that it has lost its name.
            let _ = fs::remove_file(self.path.join(LOCK));
        }
    }
}

impl FileDisk {
    /// Opens a directory that is there.
    ///
    /// # Errors
    /// `ResourceBusy` when a store is open there already, in this process or another; `Unsupported`
    /// when direct I/O is asked for and the file system has none; or what the system says.
    pub fn open(directory: &Path, mode: IoMode) -> io::Result<FileDisk> {
        let explain = |error| cannot("open the directory", directory, &error);
        let path = directory.canonicalize().map_err(explain)?;
        let handle = fs::File::open(&path).map_err(explain)?;
        let (lock, made_lock) = lock(&path)?;
        let access = Access::ReadWrite;
        let found = if made_lock { Some(files_in(&path)?) } else { None };
        let (is_taken, lock) = (Arc::default(), Some(lock));
        let directory = Directory { path, handle, access, _lock: lock, found, is_taken };
        if mode == IoMode::Direct {
            // Opening is the test, and the lock is a file that is there.
            open_file(&directory.path.join(LOCK), Open::Existing, access, true)?;
        }
        Ok(FileDisk { directory: Arc::new(directory), mode })
    }

    /// Opens a directory that is there to be read only: nothing is written, so it can lie on media
    /// that cannot be written. Changes of its files fail. Where the directory has a lock, others
    /// may read at the same time, and no process may write.
    ///
    /// # Errors
    /// `ResourceBusy` when a store is open for writing there; or what the system says.
    pub fn open_read_only(directory: &Path) -> io::Result<FileDisk> {
        let explain = |error| cannot("open the directory", directory, &error);
        let path = directory.canonicalize().map_err(explain)?;
        let handle = fs::File::open(&path).map_err(explain)?;
        let lock = lock_shared(&path)?;
        let access = Access::ReadOnly;
        let (found, is_taken) = (None, Arc::default());
        let directory = Directory { path, handle, access, _lock: lock, found, is_taken };
        Ok(FileDisk { directory: Arc::new(directory), mode: IoMode::Buffered })
    }

    /// Makes a directory, or takes one that holds no files.
    ///
    /// # Errors
    /// Those of [`FileDisk::open`]; `DirectoryNotEmpty` when there are files; `NotFound` when the
    /// directory above is missing.
    pub fn create(directory: &Path, mode: IoMode) -> io::Result<FileDisk> {
        match fs::create_dir(directory) {
            Ok(()) => sync_parent(directory)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(cannot("make the directory", directory, &error)),
        }
        let disk = FileDisk::open(directory, mode)?;
        if disk.list()?.is_empty() {
            return Ok(disk);
        }
        Err(io::Error::new(
            io::ErrorKind::DirectoryNotEmpty,
            format!("{} holds files already: choose an empty directory", directory.display()),
        ))
    }

    fn path(&self, name: &str) -> io::Result<PathBuf> {
        check_name(name)?;
        Ok(self.directory.path.join(name))
    }
}

impl Disk for FileDisk {
    fn open(&self, name: &str, how: Open) -> io::Result<Arc<dyn File>> {
        let path = self.path(name)?;
        let is_direct = self.mode == IoMode::Direct && name.ends_with(PAGES);
        let file = open_file(&path, how, self.directory.access, is_direct)?;
        let handle =
            if is_direct { Handle::Direct(DirectFile::new(file)) } else { Handle::Buffered(file) };
        Ok(Arc::new(OpenFile { handle, path, _directory: Arc::clone(&self.directory) }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        files_in(&self.directory.path)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.path(name)?;
        fs::remove_file(&path).map_err(|error| cannot("remove", &path, &error))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (path, target) = (self.path(from)?, self.path(to)?);
        fs::rename(&path, target)
            .map_err(|error| cannot(format_args!("rename to {to:?} the file"), &path, &error))
    }

    fn sync_directory(&self) -> io::Result<()> {
        let Directory { handle, path, .. } = &*self.directory;
        handle.sync_all().map_err(|error| cannot("sync the directory", path, &error))
    }

    fn claim(&self) -> io::Result<Claim> {
        Claim::take(&self.directory.is_taken)
    }
}

/// A file that a [`FileDisk`] gave out.
struct OpenFile {
    handle: Handle,
    path: PathBuf,
    _directory: Arc<Directory>,
}

enum Handle {
    Buffered(fs::File),
    Direct(DirectFile),
}

impl OpenFile {
    fn file(&self) -> &fs::File {
        match &self.handle {
            Handle::Buffered(file) => file,
            Handle::Direct(direct) => direct.file(),
        }
    }

    /// Returns the error of a transfer: which one it was, and what may be done about it.
    fn cannot(&self, verb: &str, len: usize, offset: u64, error: &io::Error) -> io::Error {
        let is_direct = matches!(self.handle, Handle::Direct(_));
        if is_direct && error.kind() == io::ErrorKind::InvalidInput {
            return refused(&self.path);
        }
        cannot(format_args!("{verb} {len} bytes at offset {offset} of"), &self.path, error)
    }
}

impl File for OpenFile {
    fn len(&self) -> io::Result<u64> {
        let metadata = self.file().metadata();
        metadata
            .map(|metadata| metadata.len())
            .map_err(|error| cannot("read the length of", &self.path, &error))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        work::count(Operation::SystemCall, 1);
        let len = buffer.len();
        let read = match &self.handle {
            Handle::Buffered(file) => file.read_exact_at(buffer, offset),
            Handle::Direct(direct) => direct.read(buffer, offset),
        };
        read.map_err(|error| self.cannot("read", len, offset, &error))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        work::count(Operation::SystemCall, 1);
        let written = match &self.handle {
            Handle::Buffered(file) => file.write_all_at(bytes, offset),
            Handle::Direct(direct) => direct.write(bytes, offset),
        };
        written.map_err(|error| self.cannot("write", bytes.len(), offset, &error))
    }

    fn sync(&self) -> io::Result<()> {
        work::count(Operation::SystemCall, 1);
        self.file().sync_data().map_err(|error| cannot("sync", &self.path, &error))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let set = match &self.handle {
            Handle::Buffered(file) => file.set_len(len),
            Handle::Direct(direct) => direct.set_len(len),
        };
        set.map_err(|error| cannot(format_args!("set to {len} the length of"), &self.path, &error))
    }
}

/// Returns the names of the files in a directory, in order, without the lock.
fn files_in(path: &Path) -> io::Result<Vec<String>> {
    let explain = |error| cannot("list", path, &error);
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(explain)? {
        let entry = entry.map_err(explain)?;
        if !entry.file_type().map_err(explain)?.is_file() {
            continue;
        }
        // The engine makes no names that are not UTF-8.
        names.extend(entry.file_name().into_string().ok().filter(|name| name != LOCK));
    }
    names.sort_unstable();
    Ok(names)
}

/// Opens a file. Links are not followed, because [`Disk::list`] does not show them.
fn open_file(path: &Path, how: Open, access: Access, is_direct: bool) -> io::Result<fs::File> {
    let direct = if is_direct { OFlags::DIRECT } else { OFlags::empty() };
    let flags = (OFlags::NOFOLLOW | direct).bits().cast_signed();
    let mut options = OpenOptions::new();
    let writes = access == Access::ReadWrite;
    options.read(true).write(writes).create_new(writes && how == Open::New).custom_flags(flags);
    options.open(path).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput if is_direct => refused(path),
        _ => cannot("open", path, &error),
    })
}

/// Takes the lock of a directory; also returns whether the file was made for it.
fn lock(directory: &Path) -> io::Result<(fs::File, bool)> {
    let path = directory.join(LOCK);
    loop {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        let (file, is_made) = match options.open(&path) {
            Ok(file) => (file, true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                match options.create_new(false).open(&path) {
                    Ok(file) => (file, false),
                    // Its owner took it away.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(cannot("open", &path, &error)),
                }
            }
            Err(error) => return Err(cannot("open", &path, &error)),
        };
        take(&file, FlockOperation::NonBlockingLockExclusive, directory, &path)?;
        if is_named(&file, &path) {
            return Ok((file, is_made));
        }
    }
}

/// Takes the lock of a directory together with others who only read, if there is one.
fn lock_shared(directory: &Path) -> io::Result<Option<fs::File>> {
    let path = directory.join(LOCK);
    match fs::File::open(&path) {
        Ok(file) => {
            take(&file, FlockOperation::NonBlockingLockShared, directory, &path)?;
            Ok(Some(file))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(cannot("open", &path, &error)),
    }
}

/// Returns whether an open file still has its name. Its owner may have removed it before it was
/// locked.
fn is_named(file: &fs::File, path: &Path) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let named = fs::symlink_metadata(path).map(identity);
    file.metadata().map(identity).is_ok_and(|own| named.is_ok_and(|named| named == own))
}

fn take(
    file: &fs::File,
    operation: FlockOperation,
    directory: &Path,
    path: &Path,
) -> io::Result<()> {
    match retry_on_intr(|| flock(file, operation)) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            format!(
                "the store in {} is open already: close it, or stop the process that has it open \
                 (fuser {} says which one), or choose another directory",
                directory.display(),
                path.display()
            ),
        )),
        Err(errno) => Err(cannot("lock", path, &errno.into())),
    }
}

/// Makes the name of a new directory durable.
fn sync_parent(directory: &Path) -> io::Result<()> {
    // The parent of `store` is the empty path.
    let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let synced = fs::File::open(parent).and_then(|parent| parent.sync_all());
    synced.map_err(|error| cannot("sync the directory", parent, &error))
}

/// Returns an error of the same kind that says what could not be done with which file.
fn cannot(verb: impl Display, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {verb} {}: {error}", path.display()))
}

/// Returns the error of a file system without direct I/O.
fn refused(path: &Path) -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        format!(
            "the file system refuses direct I/O (O_DIRECT, aligned to 4096 bytes) on {}: use \
             buffered I/O, or another file system",
            path.display()
        ),
    )
}

//! Files in memory, which can be copied at the cost of what is changed afterwards.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tidegate_runtime::sync::{Mutex, RwLock};

use super::{Claim, Disk, File, Open, check_name};

/// Bytes of a piece of a file: what is copied when one byte of a shared piece is changed.
const PIECE: usize = 64 << 10;

/// A disk in memory. Nothing fails, and nothing survives the process.
///
/// [`fork`](MemoryDisk::fork) gives a second disk with the same files in a moment, whatever their
/// size, so that a database is filled once and used many times.
#[derive(Debug, Default)]
pub struct MemoryDisk {
    files: Mutex<BTreeMap<String, Arc<MemoryFile>>>,
    /// Whether a store has the disk.
    is_taken: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct MemoryFile(RwLock<Contents>);

/// The bytes of a file. What lies beyond its length within the last piece is zero.
#[derive(Clone, Debug, Default)]
struct Contents {
    len: usize,
    pieces: Vec<Arc<Vec<u8>>>,
}

impl MemoryDisk {
    /// Returns a disk without files.
    #[must_use]
    pub fn new() -> MemoryDisk {
        MemoryDisk::default()
    }

    /// Returns a second disk with the files of this one as they are now, on which no file is open.
    /// The two share memory until either changes it.
    #[must_use]
    pub fn fork(&self) -> MemoryDisk {
        let files = self.files.lock();
        let copy = |(name, file): (&String, &Arc<MemoryFile>)| {
            let contents = file.0.read().clone();
            (name.clone(), Arc::new(MemoryFile(RwLock::new(contents))))
        };
        let files = files.iter().map(copy).collect();
        MemoryDisk { files: Mutex::new(files), is_taken: Arc::default() }
    }
}

fn not_found(name: &str) -> io::Error {
    io::Error::new(ErrorKind::NotFound, format!("there is no file {name:?} in memory"))
}

impl Disk for MemoryDisk {
    fn open(&self, name: &str, how: Open) -> io::Result<Arc<dyn File>> {
        check_name(name)?;
        let mut files = self.files.lock();
        let file = match (how, files.get(name)) {
            (Open::Existing, Some(file)) => Arc::clone(file),
            (Open::Existing, None) => return Err(not_found(name)),
            (Open::New, None) => Arc::clone(files.entry(name.into()).or_default()),
            (Open::New, Some(_)) => {
                let message = format!("there is a file {name:?} in memory");
                return Err(io::Error::new(ErrorKind::AlreadyExists, message));
            }
        };
        Ok(file)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.files.lock().keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        check_name(name)?;
        self.files.lock().remove(name).map(drop).ok_or_else(|| not_found(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        check_name(from)?;
        check_name(to)?;
        let mut files = self.files.lock();
        let file = files.remove(from).ok_or_else(|| not_found(from))?;
        files.insert(to.into(), file);
        Ok(())
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }

    fn claim(&self) -> io::Result<Claim> {
        Claim::take(&self.is_taken)
    }
}

impl Contents {
    /// Calls `act` with each part of a range that lies in one piece: the piece, where the part
    /// begins in it, and which bytes of the range it is.
    fn parts(offset: usize, len: usize, mut act: impl FnMut(usize, usize, std::ops::Range<usize>)) {
        let mut done = 0;
        while done < len {
            let at = offset + done;
            let count = (PIECE - at % PIECE).min(len - done);
            act(at / PIECE, at % PIECE, done..done + count);
            done += count;
        }
    }

    fn set_len(&mut self, len: usize) {
        let pieces = len.div_ceil(PIECE);
        if len < self.len && !len.is_multiple_of(PIECE) {
            Arc::make_mut(&mut self.pieces[pieces - 1])[len % PIECE..].fill(0);
        }
        if pieces > self.pieces.len() {
            // One empty piece for all: it is copied when it is written to.
            self.pieces.resize(pieces, Arc::new(vec![0; PIECE]));
        } else {
            self.pieces.truncate(pieces);
        }
        self.len = len;
    }
}

fn position(offset: u64) -> io::Result<usize> {
    usize::try_from(offset).map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))
}

impl File for MemoryFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.read().len as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let contents = self.0.read();
        let offset = position(offset)?;
        if offset.saturating_add(buffer.len()) > contents.len && !buffer.is_empty() {
            let message = format!("the file has {} bytes only", contents.len);
            return Err(io::Error::new(ErrorKind::UnexpectedEof, message));
        }
        Contents::parts(offset, buffer.len(), |piece, at, part| {
            let len = part.len();
            buffer[part].copy_from_slice(&contents.pieces[piece][at..at + len]);
        });
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut contents = self.0.write();
        let offset = position(offset)?;
        let end = offset.checked_add(bytes.len()).ok_or(ErrorKind::FileTooLarge)?;
        if end > contents.len {
            contents.set_len(end);
        }
        Contents::parts(offset, bytes.len(), |piece, at, part| {
            let bytes = &bytes[part];
            Arc::make_mut(&mut contents.pieces[piece])[at..at + bytes.len()].copy_from_slice(bytes);
        });
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.write().set_len(position(len)?);
        Ok(())
    }
}

//! A file that gets its name when it is whole.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// A file could not be written.
#[derive(Debug, Error)]
#[error("cannot write {path}: {source}", path = .path.display())]
pub(crate) struct WholeFileError {
    pub(crate) path: PathBuf,
    pub(crate) source: io::Error,
}

/// A file under way, called `NAME.part`; removed when it is dropped before its end.
pub(crate) struct WholeFile {
    out: BufWriter<File>,
    path: PathBuf,
    is_whole: bool,
}

impl WholeFile {
    pub(crate) fn create(directory: &Path, name: &str) -> Result<Self, WholeFileError> {
        let path = directory.join(name);
        let file = File::create(part_of(&path)).map_err(failed(&path))?;
        Ok(WholeFile { out: BufWriter::new(file), path, is_whole: false })
    }

    /// As `write_all`, with an error that names the file.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<(), WholeFileError> {
        self.out.write_all(bytes).map_err(failed(&self.path))
    }

    /// Gives the file its name, now that it is whole. Returns its path.
    pub(crate) fn finish(mut self) -> Result<PathBuf, WholeFileError> {
        let whole = self.out.flush().and_then(|()| fs::rename(part_of(&self.path), &self.path));
        whole.map_err(failed(&self.path))?;
        self.is_whole = true;
        Ok(self.path.clone())
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if !self.is_whole {
            // Whoever dropped it has an error that says more.
            let _ = fs::remove_file(part_of(&self.path));
        }
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> WholeFileError {
    let path = path.to_owned();
    move |source| WholeFileError { path, source }
}

fn part_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    PathBuf::from(name)
}

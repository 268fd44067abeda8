//! A file that gets its name when it is whole.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::failed;
use crate::store::StoreError;

/// A file under way, called `NAME.part`; removed when it is dropped before its end.
pub(crate) struct Part {
    out: BufWriter<File>,
    path: PathBuf,
    is_whole: bool,
}

impl Part {
    pub(crate) fn create(directory: &Path, name: &str) -> Result<Self, StoreError> {
        let path = directory.join(name);
        let file = File::create(part_of(&path)).map_err(|error| failed(&path, &error))?;
        Ok(Part { out: BufWriter::new(file), path, is_whole: false })
    }

    /// As `write_all`, with an error that names the file.
    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.out.write_all(bytes).map_err(|error| failed(&self.path, &error))
    }

    /// The file is whole; its path.
    pub(crate) fn finish(mut self) -> Result<PathBuf, StoreError> {
        let whole = self.out.flush().and_then(|()| fs::rename(part_of(&self.path), &self.path));
        whole.map_err(|error| failed(&self.path, &error))?;
        self.is_whole = true;
        Ok(self.path.clone())
    }
}

impl Write for Part {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.is_whole {
            // Whoever dropped it has an error that says more.
            let _ = fs::remove_file(part_of(&self.path));
        }
    }
}

fn part_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    PathBuf::from(name)
}

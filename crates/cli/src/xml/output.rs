//! Where results go: standard output, or a file that is complete or not there.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use super::{XmlFailure, XmlUsage};
use crate::{Failure, interrupt, output_failure};

/// Bytes that are collected for standard output.
const BUFFER: usize = 64 * 1024;

/// Lines for standard output, passed on in large pieces unless it is a terminal.
pub(super) struct Lines(Box<dyn Write>);

impl Lines {
    pub(super) fn new() -> Lines {
        let output = io::stdout().lock();
        if output.is_terminal() {
            return Lines(Box::new(output));
        }
        Lines(Box::new(BufWriter::with_capacity(BUFFER, output)))
    }

    pub(super) fn text(&mut self, line: &str) -> Result<(), Failure> {
        writeln!(self.0, "{line}").map_err(output_failure)
    }

    pub(super) fn json(&mut self, object: &Value) -> Result<(), Failure> {
        writeln!(self.0, "{object}").map_err(output_failure)
    }

    /// Writes a line by something that returns the output.
    pub(super) fn line(
        &mut self,
        write: impl FnOnce(&mut dyn Write) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        write(&mut *self.0)?;
        writeln!(self.0).map_err(output_failure)
    }

    pub(super) fn finish(mut self) -> Result<(), Failure> {
        self.0.flush().map_err(output_failure)
    }
}

/// Writes to a file, or to standard output if there is none or it is `-`. A regular file gets its
/// name when all of it is durable; one of that name is replaced then.
pub(super) fn write_to(
    path: Option<&Path>,
    write: impl FnOnce(&mut dyn Write) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let Some(path) = path.filter(|path| *path != Path::new("-")) else {
        let mut output = BufWriter::with_capacity(BUFFER, io::stdout().lock());
        write(&mut output)?;
        return output.flush().map_err(output_failure);
    };
    let of = |error: io::Error| {
        Failure::failed(XmlFailure::Of(path.display().to_string(), Box::new(error)))
    };
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => {
            let text = format!("{} is a directory; name a file in it", path.display());
            return Err(Failure::usage(XmlUsage::Other(text)));
        }
        // A device or a pipe has no other name.
        Ok(metadata) if !metadata.is_file() => {
            let mut file = OpenOptions::new().write(true).open(path).map_err(of)?;
            return write(&mut file);
        }
        _ => {}
    }
    let mut file = NewFile::create(path).map_err(of)?;
    write(&mut file)?;
    file.finish().map_err(of)
}

/// A file under a temporary name, which is removed unless the file is finished.
struct NewFile {
    file: BufWriter<File>,
    temporary: PathBuf,
    path: PathBuf,
    cancel: Arc<AtomicBool>,
    is_finished: bool,
}

impl NewFile {
    fn create(path: &Path) -> io::Result<NewFile> {
        let cancel = interrupt::flag()?;
        let mut name = std::ffi::OsString::from(".");
        let own = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
        name.push(own);
        name.push(format!(".{}.tmp", std::process::id()));
        let temporary = path.with_file_name(name);
        let file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
        let file = BufWriter::with_capacity(BUFFER, file);
        Ok(NewFile { file, temporary, path: path.to_owned(), cancel, is_finished: false })
    }

    fn finish(mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        fs::rename(&self.temporary, &self.path)?;
        self.is_finished = true;
        Ok(())
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(io::Error::other("interrupted; no file was written"));
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_finished {
            // It is useless, and its name says that it is temporary.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

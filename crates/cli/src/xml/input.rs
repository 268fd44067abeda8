//! Reading a document: from a file or standard input, with progress, until Ctrl-C.

use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::{ProgressBar, ProgressStyle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

const BUFFER: usize = 256 * 1024;

/// How long a wait for a pipe lasts until the signal is looked for again.
const POLL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

const BYTES: &str = "{msg} [{bar:30}] {percent:>3} %, {decimal_bytes_per_sec}, {eta} left";
const BYTES_OF_PIPE: &str = "{msg} {decimal_bytes}, {decimal_bytes_per_sec}, {elapsed}";
const ENTRIES: &str = "{msg} [{bar:30}] {percent:>3} %, {eta} left";

/// What the bar says while indexes are stored.
const INDEXES: &str = "indexes";

/// A bar on standard error if that is a terminal, gone when dropped.
pub(super) struct Bar(ProgressBar);

impl Bar {
    /// Returns a bar for so many bytes, or for an unknown number of them.
    pub(super) fn of_bytes(message: String, bytes: Option<u64>) -> Bar {
        let (bar, template) = match bytes {
            Some(bytes) => (ProgressBar::new(bytes), BYTES),
            None => (ProgressBar::no_length(), BYTES_OF_PIPE),
        };
        Bar::new(bar, template, message)
    }

    /// Returns a counter of nodes.
    pub(super) fn of_nodes(message: String) -> Bar {
        Bar::new(ProgressBar::no_length(), "{msg} {pos} nodes, {per_sec}, {elapsed}", message)
    }

    fn new(bar: ProgressBar, template: &str, message: String) -> Bar {
        if !io::stderr().is_terminal() {
            return Bar(ProgressBar::hidden());
        }
        Bar(bar.with_style(style(template)).with_message(message))
    }

    pub(super) fn add(&self, count: u64) {
        self.0.inc(count);
    }

    /// Goes over from reading a document to storing its indexes.
    pub(super) fn set_entries(&self, done: u64, total: u64) {
        if self.0.message() != INDEXES && !self.0.is_hidden() {
            self.0.set_style(style(ENTRIES));
            self.0.set_message(INDEXES);
            self.0.reset();
        }
        self.0.set_length(total);
        self.0.set_position(done);
    }

    pub(super) fn set(&self, count: u64) {
        self.0.set_position(count);
    }
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template);
    style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ")
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// The text of a document, read until it ends or a signal comes.
pub(super) struct Input<'c> {
    file: File,
    /// Whether reads do not wait for another process.
    is_regular: bool,
    length: Option<u64>,
    cancel: &'c AtomicBool,
    bar: Option<&'c Bar>,
}

impl<'c> Input<'c> {
    /// Opens a file, or standard input for `-`.
    pub(super) fn open(path: &Path, cancel: &'c AtomicBool) -> io::Result<Input<'c>> {
        let file = if is_standard_input(path) {
            File::from(io::stdin().as_fd().try_clone_to_owned()?)
        } else {
            File::open(path)?
        };
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::Error::new(
                io::ErrorKind::IsADirectory,
                "it is a directory; name the files in it",
            ));
        }
        let is_regular = metadata.is_file();
        let length = is_regular.then_some(metadata.len());
        Ok(Input { file, is_regular, length, cancel, bar: None })
    }

    /// Returns the length in bytes, if it is known.
    pub(super) fn length(&self) -> Option<u64> {
        self.length
    }

    /// Returns the text, each read of which moves the bar.
    pub(super) fn shown_by(self, bar: &'c Bar) -> BufReader<Input<'c>> {
        BufReader::with_capacity(BUFFER, Input { bar: Some(bar), ..self })
    }

    /// Waits until there is something to read. Returns `false` if a signal came.
    fn wait(&self) -> io::Result<bool> {
        loop {
            if self.cancel.load(Ordering::Relaxed) {
                return Ok(false);
            }
            if self.is_regular {
                return Ok(true);
            }
            let mut file = [PollFd::new(&self.file, PollFlags::IN)];
            match poll(&mut file, Some(&POLL)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Read for Input<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.wait()? {
            return Err(io::Error::other("interrupted"));
        }
        let count = self.file.read(buffer)?;
        if let Some(bar) = self.bar {
            bar.add(count as u64);
        }
        Ok(count)
    }
}

/// Returns whether a path means standard input.
pub(super) fn is_standard_input(path: &Path) -> bool {
    path == Path::new("-")
}

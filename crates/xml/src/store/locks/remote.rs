//! Exchange of how a store locks while another process has it open.
//!
//! Who has the store listens on a socket in its directory. One request is a line, and so is its
//! answer: `locking` asks how transactions lock that do not say it, `locking TEXT` sets it, for
//! transactions that begin from then on, and saves it. The answer is `ok` and how they lock then,
//! or `error` and why not. The permissions of the socket say who may connect.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Locking;
use crate::store::XmlStore;

/// The name of the socket in the store's directory.
const SOCKET: &str = "locking.socket";

/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of the longest line.
const LINE_MAX: u64 = 4 << 10;

/// Listens for requests about a store, until it is dropped.
#[derive(Debug)]
pub struct LockingListener {
    is_over: Arc<AtomicBool>,
    place: Place,
    thread: Option<JoinHandle<()>>,
}

/// A socket in a directory. The name of a socket may have 108 bytes, and a directory's may be
/// longer, so it is named by way of the open directory.
#[derive(Debug)]
struct Place {
    directory: File,
}

impl Place {
    fn of(directory: &Path) -> io::Result<Place> {
        Ok(Place { directory: File::open(directory)? })
    }

    fn path(&self) -> PathBuf {
        Path::new("/proc/self/fd").join(self.directory.as_raw_fd().to_string()).join(SOCKET)
    }
}

impl LockingListener {
    /// Begins to listen in the directory of a store. `saved` is told of what could not be saved.
    ///
    /// # Errors
    /// The socket or the thread cannot be made.
    pub fn start(store: &Arc<XmlStore>, directory: &Path) -> io::Result<LockingListener> {
        let place = Place::of(directory)?;
        // Only who has the store open listens, so what is there was left by a crash.
        match fs::remove_file(place.path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(place.path())?;
        let is_over = Arc::new(AtomicBool::new(false));
        let (store, over) = (Arc::clone(store), Arc::clone(&is_over));
        let listen = move || {
            for stream in listener.incoming() {
                if over.load(Ordering::Acquire) {
                    return;
                }
                // Who does not say anything, or does not listen, is not answered.
                if let Ok(stream) = stream {
                    let _ = answer(&store, &stream);
                }
            }
        };
        let thread = std::thread::Builder::new().name("locking".to_owned()).spawn(listen)?;
        Ok(LockingListener { is_over, place, thread: Some(thread) })
    }
}

impl Drop for LockingListener {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // Wakes the thread.
        let woken = UnixStream::connect(self.place.path());
        if let (Ok(_), Some(thread)) = (woken, self.thread.take()) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
        let _ = fs::remove_file(self.place.path());
    }
}

fn answer(store: &XmlStore, stream: &UnixStream) -> io::Result<()> {
    let line = read_line(stream)?;
    let done = match line.split_once(' ') {
        None if line == "locking" => Ok(store.locking()),
        Some(("locking", text)) => text
            .parse::<Locking>()
            .map(|locking| Locking { is_timed: store.locking().is_timed, ..locking })
            .map_err(|error| error.to_string()),
        _ => Err(format!("{line:?} is no request; write locking, and how to lock")),
    };
    let done = done.and_then(|locking| {
        if locking != store.locking() {
            store.set_locking(locking);
            store.save_locking().map_err(|error| error.to_string())?;
        }
        Ok(store.locking())
    });
    let mut stream = stream;
    match done {
        Ok(locking) => writeln!(stream, "ok {locking}"),
        Err(error) => writeln!(stream, "error {}", error.replace('\n', " ")),
    }
}

fn read_line(stream: &UnixStream) -> io::Result<String> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.take(LINE_MAX)).read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}

/// Asks the process that has the store in a directory open how it locks, and has it lock as
/// `wanted` says before. Returns `None` if no process listens there.
///
/// # Errors
/// The process does not answer, or refuses.
pub fn ask_locking(directory: &Path, wanted: Option<&Locking>) -> io::Result<Option<Locking>> {
    let connected = Place::of(directory).and_then(|place| UnixStream::connect(place.path()));
    let mut stream = match connected {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound
                    | io::ErrorKind::ConnectionRefused
                    | io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(None);
        }
        connected => connected?,
    };
    match wanted {
        None => writeln!(stream, "locking")?,
        Some(locking) => writeln!(stream, "locking {locking}")?,
    }
    let line = read_line(&stream)?;
    let unknown = || io::Error::other(format!("the store's process answers {line:?}"));
    match line.split_once(' ') {
        Some(("ok", locking)) => locking.parse().map(Some).map_err(|_| unknown()),
        Some(("error", why)) => Err(io::Error::other(why.to_owned())),
        _ => Err(unknown()),
    }
}

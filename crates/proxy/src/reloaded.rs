//! What is read from files, and read again when they have changed.
//!
//! Files are read at start, where an error ends the proxy, and again when they have changed, where
//! an error is logged once and what was read before stays in use. A file that changes is read when
//! it has stayed the same from one look to the next, so that one that is being written, or the
//! first of two that belong together, is not.

use std::fmt::{self, Display};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Reads the files. It is given what they said before, if they were read before.
type Load<T> = dyn Fn(Option<&T>) -> Result<T, String> + Send + Sync;

/// What files say, and how they are read again.
pub(crate) struct Reloaded<T> {
    /// What the files hold, for the log.
    what: &'static str,
    current: Mutex<Arc<T>>,
    files: Vec<PathBuf>,
    seen: Mutex<Seen>,
    load: Box<Load<T>>,
}

impl<T> fmt::Debug for Reloaded<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Reloaded").field("files", &self.files).finish_non_exhaustive()
    }
}

/// Tells whether a file is another one than before.
type Stamp = (u64, u64, u64, i64, i64);

/// Those of all files; `None` is a file that is not there.
type Stamps = Vec<Option<Stamp>>;

#[derive(Debug)]
struct Seen {
    /// When the files were last read.
    read: Stamps,
    /// At the last look.
    last: Stamps,
}

fn stamp(metadata: &Metadata) -> Stamp {
    (metadata.dev(), metadata.ino(), metadata.size(), metadata.mtime(), metadata.mtime_nsec())
}

fn stamps(files: &[PathBuf]) -> Stamps {
    files.iter().map(|file| std::fs::metadata(file).ok().map(|it| stamp(&it))).collect()
}

impl<T> Reloaded<T> {
    /// Reads `files` by `load`, which is given what they said before when they are read again.
    ///
    /// # Errors
    /// That of `load`.
    pub(crate) fn new<E: Display>(
        what: &'static str,
        files: Vec<PathBuf>,
        load: impl Fn(Option<&T>) -> Result<T, E> + Send + Sync + 'static,
    ) -> Result<Reloaded<T>, E> {
        let read = stamps(&files);
        let current = Mutex::new(Arc::new(load(None)?));
        let seen = Mutex::new(Seen { last: read.clone(), read });
        let load = Box::new(move |before: Option<&T>| load(before).map_err(|it| it.to_string()));
        Ok(Reloaded { what, current, files, seen, load })
    }

    /// Returns what holds now.
    pub(crate) fn get(&self) -> Arc<T> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks whether a file has changed, and reads them again if they have and stay the same since
    /// the last look. Returns whether something new holds now.
    pub(crate) fn reload(&self) -> bool {
        let now = stamps(&self.files);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let is_settled = seen.last == now;
        seen.last.clone_from(&now);
        if seen.read == now || !is_settled {
            return false;
        }
        self.read(&mut seen, now)
    }

    /// Reads the files now, whatever they were before. Returns whether they could be read.
    pub(crate) fn reread(&self) -> bool {
        let now = stamps(&self.files);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.last.clone_from(&now);
        self.read(&mut seen, now)
    }

    /// Returns whether these are the same files.
    pub(crate) fn is_of_same_files(&self, other: &Reloaded<T>) -> bool {
        self.files == other.files
    }

    fn read(&self, seen: &mut Seen, now: Stamps) -> bool {
        seen.read = now;
        match (self.load)(Some(&self.get())) {
            Ok(loaded) => {
                *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(loaded);
                tracing::info!(files = ?self.files, "{} read again", self.what);
                true
            }
            Err(error) => {
                let what = self.what;
                tracing::warn!(error, "{what} cannot be read again; what was read before holds");
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_read_once_it_has_settled_and_an_error_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("number");
        std::fs::write(&path, "1").unwrap();
        let read = path.clone();
        let number = Reloaded::new("numbers", vec![path.clone()], move |before: Option<&u32>| {
            let text = std::fs::read_to_string(&read).map_err(|error| error.to_string())?;
            let number: u32 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
            Ok::<_, String>(number + before.copied().unwrap_or(0))
        })
        .unwrap();
        assert!(!number.reload());
        std::fs::write(&path, "20").unwrap();
        assert!(!number.reload(), "it may be being written");
        assert!(number.reload());
        assert_eq!(*number.get(), 21);
        for wrong in ["none", "none at all"] {
            std::fs::write(&path, wrong).unwrap();
            assert!(!number.reload() && !number.reload());
            assert_eq!(*number.get(), 21);
        }
        std::fs::remove_file(&path).unwrap();
        assert!(!number.reload() && !number.reload());
        std::fs::write(&path, "300").unwrap();
        assert!(!number.reload());
        assert!(number.reload());
        assert_eq!(*number.get(), 321);
        std::fs::write(&path, "4000").unwrap();
        assert!(number.reread(), "it is told that nobody writes it now");
        assert_eq!(*number.get(), 4321);
        assert!(!number.reload());
    }
}

//! Directories of our own, which go with us.
//!
//! # Mechanism
//! A directory is removed when its handle is dropped. Where we are killed outright nobody drops it,
//! so whoever makes one holds a lock on a file in it. The system lets go of that lock when the
//! process has ended, however it did, and whoever makes the next directory removes those whose
//! lock nobody holds.
//!
//! # Limits
//! A server that outlived us, where nobody could be [told](crate::process), loses its files. What
//! is another user's is left alone.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

/// How the names of all directories begin.
const PREFIX: &str = "tidegate-";

/// The file that is locked for as long as the directory's owner lives.
const OWNER: &str = "owner";

/// What [`OWNER`] is called before it is locked, when nobody looks at it.
const COMING_OWNER: &str = "owner.new";

/// A directory in the system's place for temporary files, removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    directory: TempDir,
    _owner: File,
}

impl Scratch {
    /// Makes a directory for this purpose, which its name tells, and removes those that were left
    /// behind.
    ///
    /// # Errors
    /// The directory or the file in it cannot be made or locked.
    pub(crate) fn new(purpose: &str) -> io::Result<Self> {
        Self::new_in(&std::env::temp_dir(), purpose)
    }

    fn new_in(place: &Path, purpose: &str) -> io::Result<Self> {
        sweep(place);
        let prefix = format!("{PREFIX}{purpose}-");
        let directory = tempfile::Builder::new().prefix(&prefix).tempdir_in(place)?;
        let coming = directory.path().join(COMING_OWNER);
        let owner = File::create(&coming)?;
        flock(&owner, FlockOperation::NonBlockingLockExclusive)?;
        fs::rename(coming, directory.path().join(OWNER))?;
        Ok(Scratch { directory, _owner: owner })
    }

    /// Where it is.
    #[must_use]
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Removes it.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn close(self) -> io::Result<()> {
        self.directory.close()
    }
}

/// Removes the directories whose owner has ended. What cannot be read or removed is left, as what
/// is not ours is.
fn sweep(place: &Path) {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    for entry in ours.filter(|entry| is_abandoned(&entry.path())) {
        let _ = fs::remove_dir_all(entry.path());
    }
}

fn is_abandoned(directory: &Path) -> bool {
    let is_ours = |path: &Path| {
        let user = rustix::process::geteuid().as_raw();
        fs::symlink_metadata(path).is_ok_and(|owner| owner.is_file() && owner.uid() == user)
    };
    let owner = directory.join(OWNER);
    is_ours(&owner)
        && File::open(owner)
            .is_ok_and(|owner| flock(&owner, FlockOperation::NonBlockingLockExclusive).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_uses_stays_and_what_is_left_behind_goes() {
        let place = tempfile::tempdir().unwrap();
        let make = || Scratch::new_in(place.path(), "test").unwrap();
        let used = make();
        fs::write(used.path().join("data"), "used").unwrap();

        // Its owner ends without removing it, as when it is killed.
        let Scratch { mut directory, _owner: owner } = make();
        directory.disable_cleanup(true);
        let left = directory.path().to_owned();
        drop((directory, owner));
        fs::create_dir(left.join("data")).unwrap();

        // Others' have another name, or no such file.
        let foreign = place.path().join("other-1");
        let unlocked = place.path().join("tidegate-1");
        for (path, file) in [(&foreign, OWNER), (&unlocked, "data")] {
            fs::create_dir(path).unwrap();
            fs::write(path.join(file), "theirs").unwrap();
        }

        let next = make();
        assert!(!left.exists());
        let stay = [used.path(), next.path(), &foreign, &unlocked];
        assert!(stay.iter().all(|path| path.exists()));
        let (used_path, next_path) = (used.path().to_owned(), next.path().to_owned());
        drop(used);
        next.close().unwrap();
        assert!(!used_path.exists() && !next_path.exists());
    }
}

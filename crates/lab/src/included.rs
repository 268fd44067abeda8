//! The files of `experiments/` within the program, so that one binary is all it needs.
//!
//! A path that no file has is looked up here, as it stands or without `experiments/` before and
//! `.toml` behind: `experiments/quick.toml` and `quick` are the same, and so are
//! `experiments/plants` and `plants`, a directory of simulated plants. A file on the disk comes
//! first, so that in a checkout a changed file is what is read.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::{fs, io};

include!(concat!(env!("OUT_DIR"), "/included.rs"));

/// A file within the program.
#[derive(Clone, Copy, Debug)]
pub struct Included {
    /// Its path below `experiments/`, without `.toml`.
    pub name: &'static str,
    pub text: &'static str,
}

/// All files, by name.
#[must_use]
pub fn all() -> &'static [Included] {
    FILES
}

/// Returns the file that a path or a name stands for.
#[must_use]
pub fn find(path: &Path) -> Option<Included> {
    let name = name_of(path)?;
    FILES.iter().find(|file| file.name == name).copied()
}

/// Reads a file: from the disk or, where there is none, from the program.
pub(crate) fn read(path: &Path) -> io::Result<Cow<'static, str>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Cow::Owned(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match find(path) {
            Some(file) => Ok(Cow::Borrowed(file.text)),
            None => Err(io::Error::new(
                error.kind(),
                "no such file; `tidegate experiments` lists those within the program",
            )),
        },
        Err(error) => Err(error),
    }
}

/// Returns the paths of the files in a directory of the program; none if it has no such directory.
pub(crate) fn files_in(directory: &Path) -> Vec<PathBuf> {
    let Some(name) = name_of(directory) else { return Vec::new() };
    let is_in = |file: &&Included| file.name.rsplit_once('/').is_some_and(|(at, _)| at == name);
    FILES.iter().filter(is_in).map(|file| PathBuf::from(file.name)).collect()
}

/// Returns what a path would be called here.
fn name_of(path: &Path) -> Option<&str> {
    let path = path.strip_prefix("./").unwrap_or(path);
    let name = path.strip_prefix("experiments").unwrap_or(path).to_str()?;
    Some(name.strip_suffix(".toml").unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every file of the directory, word for word, by its path and by its name.
    #[test]
    fn the_program_has_every_file_of_the_directory() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
        let mut files = Vec::new();
        for directory in ["", "plants", "plants-by-tick"] {
            for entry in fs::read_dir(root.join(directory)).expect("a directory") {
                let path = entry.expect("an entry").path();
                if path.extension().is_some_and(|extension| extension == "toml") {
                    files.push(path);
                }
            }
        }
        assert_eq!(all().len(), files.len());
        for path in files {
            let below = path.strip_prefix(&root).expect("below");
            let text = fs::read_to_string(&path).expect("a file");
            for called in [below.to_owned(), below.with_extension(""), "experiments".into()] {
                let called = if called.ends_with("experiments") {
                    Path::new("./experiments").join(below)
                } else {
                    called
                };
                let found = find(&called).unwrap_or_else(|| panic!("no {}", called.display()));
                assert_eq!(found.text, text, "{}", called.display());
            }
        }
        assert!(all().is_sorted_by_key(|file| file.name));
    }

    #[test]
    fn a_file_on_the_disk_comes_first_and_a_directory_has_its_files() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("quick.toml");
        fs::write(&path, "mine").expect("written");
        assert_eq!(read(&path).expect("a file"), "mine");
        assert!(read(Path::new("quick")).expect("a file").contains("name = \"quick\""));
        let error = read(Path::new("quikc")).expect_err("no file").to_string();
        assert!(error.contains("`tidegate experiments`"), "{error}");
        let plants = files_in(Path::new("experiments/plants"));
        assert!(plants.contains(&PathBuf::from("plants/ds2")), "{plants:?}");
        assert_eq!(plants, files_in(Path::new("plants")));
        assert!(files_in(Path::new("nowhere")).is_empty());
    }
}

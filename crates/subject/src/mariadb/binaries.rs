//! Where MariaDB's programs are.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::database::DatabaseError;
use crate::server::first_in;

/// The variable that names the directories to search, as in PATH; only those, when it is set.
const VARIABLE: &str = "MARIADB_BIN_DIR";

/// Where Debian's package puts the server, which PATH often leaves out, and its scripts.
const DEBIAN: [&str; 2] = ["/usr/sbin", "/usr/bin"];

/// The programs a private server needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Binaries {
    pub(super) server: PathBuf,
    pub(super) installer: PathBuf,
}

impl Binaries {
    pub(super) fn find() -> Result<Self, DatabaseError> {
        let own = env::var_os(VARIABLE);
        let searched = match &own {
            Some(_) => VARIABLE,
            None => "PATH, /usr/sbin, /usr/bin",
        };
        let directories = directories(own, &env::var_os("PATH").unwrap_or_default());
        let find =
            |program| within(&directories, program).ok_or_else(|| missing(program, searched));
        Ok(Binaries { server: find("mariadbd")?, installer: find("mariadb-install-db")? })
    }

    /// The directory that the server's own files are found from: `/usr` for `/usr/sbin/mariadbd`.
    pub(super) fn base(&self) -> Option<&Path> {
        self.server.parent()?.parent()
    }
}

fn missing(program: &str, searched: &str) -> DatabaseError {
    DatabaseError::NotInstalled(format!(
        "MariaDB's program {program} is in none of the directories searched ({searched}); install \
         it (Debian: apt-get install mariadb-server), or name its directory in {VARIABLE}"
    ))
}

fn directories(own: Option<OsString>, path: &OsStr) -> Vec<PathBuf> {
    match own {
        Some(own) => env::split_paths(&own).collect(),
        None => env::split_paths(path).chain(DEBIAN.map(PathBuf::from)).collect(),
    }
}

/// The program in the first directory that has it, by the path it has without links.
fn within(directories: &[PathBuf], name: &str) -> Option<PathBuf> {
    let program = first_in(directories.iter().cloned(), name)?;
    Some(program.canonicalize().unwrap_or(program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_comes_instead_of_the_path() {
        let own = directories(Some("/a:/b".into()), "/c".as_ref());
        assert_eq!(own, [PathBuf::from("/a"), "/b".into()]);
        let path = directories(None, "/c".as_ref());
        assert_eq!(path, [PathBuf::from("/c"), "/usr/sbin".into(), "/usr/bin".into()]);
    }

    #[test]
    fn the_first_directory_with_the_program_counts() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for directory in ["empty", "first", "second"] {
            std::fs::create_dir(at(directory)).unwrap();
        }
        std::fs::write(at("first/mariadbd"), "").unwrap();
        std::fs::write(at("second/mariadbd"), "").unwrap();
        let found = within(&["empty", "first", "second"].map(at), "mariadbd");
        assert_eq!(found, Some(at("first/mariadbd").canonicalize().unwrap()));
        assert_eq!(within(&[at("empty")], "mariadbd"), None);
    }
}

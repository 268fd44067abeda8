//! Where PostgreSQL's programs are.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// Where Debian's packages put a directory per major version.
const VERSIONED: &str = "/usr/lib/postgresql";

/// The two programs a private server needs, of one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Binaries {
    pub(super) initdb: PathBuf,
    pub(super) postgres: PathBuf,
}

impl Binaries {
    /// The first directory of PATH that holds both, else the highest version installed.
    pub(super) fn find() -> Option<Self> {
        let path = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&path)
            .chain(versioned(Path::new(VERSIONED)))
            .find_map(|directory| Self::within(&directory))
    }

    /// Returns where the program is that copies a running server: beside the other two, or where
    /// they are linked to.
    pub(super) fn pg_basebackup(&self) -> PathBuf {
        let linked = fs::canonicalize(&self.postgres).unwrap_or_else(|_| self.postgres.clone());
        let places = [&self.postgres, &linked].map(|path| path.with_file_name("pg_basebackup"));
        let found = places.into_iter().find(|path| path.is_file());
        found.unwrap_or_else(|| PathBuf::from("pg_basebackup"))
    }

    fn within(directory: &Path) -> Option<Self> {
        let binaries =
            Binaries { initdb: directory.join("initdb"), postgres: directory.join("postgres") };
        (binaries.initdb.is_file() && binaries.postgres.is_file()).then_some(binaries)
    }
}

/// The program directories under `root`, highest major version first.
fn versioned(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let mut versions: Vec<(f64, PathBuf)> = entries
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    versions.sort_by(|(left, _), (right, _)| right.total_cmp(left));
    versions.into_iter().map(|(_, directory)| directory).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn higher_versions_come_first_and_halves_do_not_count() {
        let root = tempfile::tempdir().unwrap();
        for (version, programs) in [
            ("9.6", &["initdb", "postgres"][..]),
            ("15", &["initdb", "postgres"]),
            ("17", &["initdb"]),
            ("common", &["initdb", "postgres"]),
        ] {
            let directory = root.path().join(version).join("bin");
            fs::create_dir_all(&directory).unwrap();
            for program in programs {
                fs::write(directory.join(program), "").unwrap();
            }
        }
        let order = versioned(root.path());
        let found: Vec<_> = order
            .iter()
            .filter_map(|directory| Binaries::within(directory))
            .map(|binaries| binaries.postgres)
            .collect();
        let expected = ["15", "9.6"].map(|version| root.path().join(version).join("bin/postgres"));
        assert_eq!(found, expected);
    }
}

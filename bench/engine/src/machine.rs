//! What the figures were measured on, and with what.

use std::fs;
use std::path::Path;
use std::thread;

/// The files that belong to this program: its lock file says which versions it was built with.
const LOCK_FILE: &str = include_str!("../Cargo.lock");

/// Lines about the machine, its file system under `directory`, and how busy it is.
pub(crate) fn describe(directory: &Path) -> Vec<String> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpu = field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown CPU".into());
    let memory = field(&read("/proc/meminfo"), "MemTotal")
        .and_then(|text| text.trim_end_matches(" kB").parse::<f64>().ok())
        .map_or(String::new(), |kib| format!(", {:.1} GiB of memory", kib / f64::from(1 << 20)));
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    let load = read("/proc/loadavg");
    let load = load.split(' ').next().unwrap_or_default();
    vec![
        format!(
            "machine: {cpu}, {processors} processors{memory}, Linux {}, file system {}",
            kernel.trim(),
            file_system(directory, &read("/proc/self/mounts"))
        ),
        format!("load average before: {load}"),
    ]
}

/// The versions of everything that is compared.
pub(crate) fn versions() -> String {
    format!(
        "versions: Tidegate's engine {}, format {}; redb {}; {} by heed {}; SQLite {} by rusqlite \
         {}",
        locked("tidegate-engine"),
        tidegate_engine::FORMAT_VERSION,
        locked("redb"),
        heed::lmdb_version().string.trim_end_matches([':', ' ']),
        locked("heed"),
        rusqlite::version(),
        locked("rusqlite"),
    )
}

/// What follows the colon of the first line that begins with `name`.
fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The type of the file system with the longest mount point above `directory`.
fn file_system(directory: &Path, mounts: &str) -> String {
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let mut best: (usize, &str) = (0, "unknown");
    for line in mounts.lines() {
        let mut fields = line.split(' ').skip(1);
        let (Some(point), Some(kind)) = (fields.next(), fields.next()) else {
            continue;
        };
        if directory.starts_with(point) && point.len() >= best.0 {
            best = (point.len(), kind);
        }
    }
    best.1.to_owned()
}

/// The version of a package by the lock file.
fn locked(package: &str) -> &'static str {
    let entry = LOCK_FILE.split_once(&format!("name = \"{package}\"\nversion = \""));
    entry.and_then(|(_, rest)| rest.split('"').next()).unwrap_or("unknown")
}

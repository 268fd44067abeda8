//! Other database systems on the machine, which would disturb a measurement.
//!
//! A process is one by the name of its program, or of its command where the program cannot be read.
//! Servers of our own, and what they started, are left out. What the others use of the processors
//! while we look says whether they matter: check 5 of the analysis protocol drops a batch execution
//! during which another database was at work.
//!
//! Limits: a database under a name not in the list, in a virtual machine or a container of another
//! process namespace is not seen.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use crate::processors::{numbers, tree};

/// Names of programs that are database servers.
const NAMES: [&str; 22] = [
    "asrunning",
    "clickhouse-server",
    "cockroach",
    "couchdb",
    "db2sysc",
    "etcd",
    "fb_smp_server",
    "fbserver",
    "firebird",
    "mariadbd",
    "memcached",
    "mongod",
    "mysqld",
    "neo4j",
    "oracle",
    "postgres",
    "postmaster",
    "redis-server",
    "scylla",
    "sqlservr",
    "tnslsnr",
    "valkey-server",
];

/// A process of another database system.
#[derive(Clone, Debug, PartialEq)]
pub struct Foreign {
    /// Its process id.
    pub process_id: u32,
    /// The name of its program.
    pub name: String,
    /// Processor seconds it used while it was watched.
    pub cpu_s: f64,
}

/// Watches for so long and returns the processes of database systems that were there at its end,
/// by process id, without those of the trees whose roots are given.
#[must_use]
pub fn foreign_databases(own: &[u32], watch: Duration) -> Vec<Foreign> {
    let before = used(own);
    let end = Instant::now() + watch;
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
    let earlier =
        |process| before.iter().find(|(of, ..)| *of == process).map_or(0, |(_, _, ticks)| *ticks);
    used(own)
        .into_iter()
        .map(|(process_id, name, ticks)| {
            let ticks = ticks.saturating_sub(earlier(process_id));
            Foreign { process_id, name, cpu_s: crate::process::seconds(ticks) }
        })
        .collect()
}

/// Every foreign database's process, its name, and the clock ticks it has used.
fn used(own: &[u32]) -> Vec<(u32, String, u64)> {
    let own: BTreeSet<u32> = own.iter().flat_map(|&root| tree(root)).collect();
    let mut found: Vec<_> = numbers("/proc")
        .filter(|process| !own.contains(process))
        .filter_map(|process| {
            let name = database(process)?;
            let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
            Some((process, name, crate::process::cpu_ticks(&stat)?))
        })
        .collect();
    found.sort();
    found
}

/// The name of a process if it is that of a database server.
fn database(process: u32) -> Option<String> {
    let program = fs::read_link(format!("/proc/{process}/exe")).ok();
    let program = program.as_deref().and_then(|path| path.file_name()?.to_str());
    let command = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    [program, Some(command.trim_end())].into_iter().flatten().find_map(known)
}

/// A program replaced while it runs has ` (deleted)` behind its name; a command's name is cut off
/// after 15 bytes.
fn known(name: &str) -> Option<String> {
    let name = name.strip_suffix(" (deleted)").unwrap_or(name);
    let is = |of: &&&str| **of == name || (name.len() == 15 && of.starts_with(name));
    NAMES.iter().find(is).map(|of| (*of).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_whole_or_cut_off() {
        for (name, expected) in [
            ("postgres", Some("postgres")),
            ("postgres (deleted)", Some("postgres")),
            ("clickhouse-serv", Some("clickhouse-server")),
            ("postgresql", None),
            ("post", None),
            ("", None),
        ] {
            assert_eq!(known(name).as_deref(), expected, "{name}");
        }
    }
}

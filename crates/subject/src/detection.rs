//! Other database systems on the machine, which would disturb a measurement.
//!
//! A process is one by the name of its program, or of its command where the program cannot be read.
//! Servers of our own, and what they started, are left out. What the others use of the processors
//! while we look says whether they matter. Check 5 of the analysis protocol counts batch executions
//! during which there was another one, at work or not.
//!
//! Limits: a database under a name not in the list, in a virtual machine or a container of another
//! process namespace is not seen.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;

use crate::database::Dbms;
use crate::processors::{numbers, tree};
use crate::stream::Stream;

/// Names of programs that are servers of databases which are not under test here.
const NAMES: [&str; 15] = [
    "asrunning",
    "clickhouse-server",
    "cockroach",
    "couchdb",
    "db2sysc",
    "etcd",
    "memcached",
    "mongod",
    "neo4j",
    "oracle",
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

/// Where a server is, seen from here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Whereabouts {
    /// On another machine, as far as can be seen.
    #[default]
    Elsewhere,
    /// On this one, in this process where we may know it.
    Here(Option<u32>),
}

/// Where the server is at the other end of a connection. It is here when both ends of it have one
/// address; its process is the one that has the listening socket open, which root and the process's
/// own user may see. A unix socket knows itself who listens.
#[must_use]
pub(crate) fn whereabouts(stream: &Stream) -> Whereabouts {
    match stream {
        Stream::Unix(stream) => {
            let process = socket_peercred(stream).ok().map(|peer| peer.pid.as_raw_nonzero().get());
            Whereabouts::Here(process.and_then(|process| process.try_into().ok()))
        }
        Stream::Tcp(stream) => tcp_whereabouts(stream),
    }
}

pub(crate) fn tcp_whereabouts(stream: &TcpStream) -> Whereabouts {
    match (stream.local_addr(), stream.peer_addr()) {
        (Ok(ours), Ok(theirs)) if ours.ip() == theirs.ip() => {
            Whereabouts::Here(listener(theirs.port()))
        }
        _ => Whereabouts::Elsewhere,
    }
}

/// The first process that listens on a TCP port.
fn listener(port: u16) -> Option<u32> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
    let sockets: BTreeSet<String> = tables
        .iter()
        .flatten()
        .flat_map(|table| table.lines().filter_map(|line| listening(line, port)))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let has_it = |process: &u32| {
        let open = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
        open.filter_map(|file| fs::read_link(file.path()).ok())
            .any(|target| target.to_str().is_some_and(|target| sockets.contains(target)))
    };
    numbers("/proc").filter(has_it).min()
}

/// The inode of a socket that listens on the port, from its line in the system's table: a number,
/// the local address, the remote one, the state (0A listens), five more columns, the inode.
fn listening(line: &str, port: u16) -> Option<&str> {
    let mut columns = line.split_whitespace();
    let (_, local) = columns.nth(1)?.split_once(':')?;
    let state = columns.nth(1)?;
    let is_it = u16::from_str_radix(local, 16) == Ok(port) && state == "0A";
    columns.nth(5).filter(|_| is_it)
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
    let tested = Dbms::ALL.iter().flat_map(|dbms| dbms.programs);
    NAMES.iter().chain(tested).find(is).map(|of| (*of).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_of_this_machine_is_found_by_its_socket() {
        let us = Whereabouts::Here(Some(std::process::id()));
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(whereabouts(&Stream::tcp("127.0.0.1", port).unwrap()), us);

        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert_eq!(whereabouts(&Stream::unix(&path).unwrap()), us);
    }

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

//! The proxy as a process of its own: its descriptors and its memory can be counted, and limited.

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use tempfile::TempDir;
use tidegate_proxy::config::ListenAddress;
use tidegate_proxy::config_file::ConfigFile;
use tidegate_proxy::start;

use crate::support::eventually;
use crate::support::server::BOUND;

/// Where the child finds its configuration; only then does it do anything.
const DIRECTORY: &str = "TIDEGATE_FAULTS_DIRECTORY";

/// A proxy; it stops when this is dropped.
pub(super) struct Child {
    process: std::process::Child,
    pub(super) address: SocketAddr,
    admin: SocketAddr,
    directory: TempDir,
}

impl Child {
    /// Starts a proxy with this configuration, which lets it choose its ports.
    pub(super) fn start(config: &str) -> Child {
        let directory = TempDir::new().unwrap();
        fs::write(directory.path().join("tidegate.toml"), config).unwrap();
        let log = fs::File::create(directory.path().join("log")).unwrap();
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "seeded::child::serve", "--include-ignored", "--nocapture"])
            .env(DIRECTORY, directory.path())
            .stdin(Stdio::piped())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let path = directory.path().join("addresses");
        let addresses = eventually("the proxy starts", || fs::read_to_string(&path).ok());
        let mut addresses = addresses.lines().map(|line| line.parse().unwrap());
        let (address, admin) = (addresses.next().unwrap(), addresses.next().unwrap());
        Child { process, address, admin, directory }
    }

    /// Every metric, summed over its labels.
    pub(super) fn metrics(&self) -> HashMap<String, u64> {
        let mut sums = HashMap::new();
        for line in self.get("/metrics").lines() {
            if let Some((labelled, value)) = line.rsplit_once(' ')
                && let Ok(value) = value.parse::<u64>()
            {
                let name = labelled.split('{').next().unwrap_or(labelled);
                *sums.entry(name.to_owned()).or_default() += value;
            }
        }
        sums
    }

    pub(super) fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.admin).unwrap();
        stream.set_read_timeout(Some(BOUND)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Descriptors that are open.
    pub(super) fn descriptors(&self) -> u64 {
        fs::read_dir(format!("/proc/{}/fd", self.process.id())).unwrap().count() as u64
    }

    /// Resident memory, KiB.
    pub(super) fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Limits the descriptors; `None` is as many as this process may have.
    pub(super) fn limit_descriptors(&self, limit: Option<u64>) {
        let own = getrlimit(Resource::Nofile);
        let pid = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw);
        let current = limit.or(own.maximum);
        prlimit(pid, Resource::Nofile, Rlimit { current, maximum: own.maximum }).unwrap();
    }

    /// The last lines of the proxy's log.
    pub(super) fn log(&self) -> String {
        let text = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Lines of the log that tell of a panic.
    pub(super) fn panics(&self) -> Vec<String> {
        let text = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        text.lines().filter(|line| line.contains("panicked")).map(str::to_owned).collect()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It ends with its standard input.
        drop(self.process.stdin.take());
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if self.process.try_wait().is_ok_and(|code| code.is_some()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The child's part.
#[test]
#[ignore = "soak: the proxy of the faults from a seed"]
fn serve() {
    let Ok(directory) = std::env::var(DIRECTORY) else {
        return;
    };
    let directory = PathBuf::from(directory);
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .init();
    let config = ConfigFile::read(&directory.join("tidegate.toml")).unwrap().into_config().unwrap();
    let running = start(config).unwrap();
    let [ListenAddress::Tcp(address)] = *running.local_addresses() else {
        panic!("one TCP address was asked for");
    };
    let admin = running.admin_address().unwrap();
    let partial = directory.join("addresses.partial");
    fs::write(&partial, format!("{address}\n{admin}\n")).unwrap();
    fs::rename(partial, directory.join("addresses")).unwrap();
    let _ = std::io::stdin().read_line(&mut String::new());
    running.shutdown(Duration::ZERO);
}

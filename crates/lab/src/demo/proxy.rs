//! The proxy under demonstration: one process for all steps.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tidegate_subject::postgres::{self, Postgres, free_port};
use tidegate_subject::process::{Process, ProcessError};

use super::DemoError;

const START_BOUND: Duration = Duration::from_secs(10);
const STOP_GRACE: Duration = Duration::from_secs(10);

/// A running proxy, stopped when dropped.
pub(super) struct Proxy {
    process: Process,
    /// The journal counts seconds from here.
    started: Instant,
    log: PathBuf,
    pub(super) journal: PathBuf,
    /// Where clients connect.
    pub(super) url: String,
}

impl Proxy {
    /// Starts `tidegate proxy` before `server`, with journal and log in `out`.
    pub(super) fn start(tidegate: &Path, server: &Postgres, out: &Path) -> Result<Self, DemoError> {
        let journal = out.join("journal.jsonl");
        // What an earlier demonstration left must not be taken for this one's.
        File::create(&journal).map_err(DemoError::file(&journal))?;
        let log = out.join("proxy.log");
        let log_file = File::create(&log).map_err(DemoError::file(&log))?;
        let listen = free_address().map_err(DemoError::file(out))?;
        let admin = free_address().map_err(DemoError::file(out))?;
        let mut command = Command::new(tidegate);
        command
            .args(["proxy", "--listen", &listen.to_string()])
            .args(["--upstream", &server.url()])
            .arg("--journal")
            .arg(&journal)
            .args(["--admin-listen", &admin.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log_file);
        let started = Instant::now();
        let process = Process::start("the proxy", &mut command).and_then(|mut process| {
            process.wait_for_port(listen, START_BOUND)?;
            Ok(process)
        });
        Ok(Proxy {
            process: process.map_err(failed(&log))?,
            started,
            log,
            journal,
            url: format!("postgres://{}@{listen}/postgres", postgres::USER),
        })
    }

    /// Time since the start, as the journal counts it.
    pub(super) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// CPU seconds used so far.
    pub(super) fn cpu_seconds(&self) -> Result<f64, DemoError> {
        self.process.cpu_seconds().map_err(failed(&self.log))
    }

    pub(super) fn stop(self) -> Result<(), DemoError> {
        let stopped = self.process.stop(STOP_GRACE);
        stopped.map(drop).map_err(failed(&self.log))
    }
}

fn failed(log: &Path) -> impl FnOnce(ProcessError) -> DemoError {
    let log = log.to_owned();
    move |source| DemoError::Proxy { source, log }
}

fn free_address() -> io::Result<SocketAddr> {
    Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?)))
}

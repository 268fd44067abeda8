//! The proxy before the server: a `tidegate proxy` of its own process.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tidegate_subject::process::{Process, ProcessError, outlived_by_none};
use tidegate_subject::server::free_port;
use tidegate_subject::url::{Host, Url};

use super::RigError;
use crate::load::HIGH_APPLICATION;

const START_BOUND: Duration = Duration::from_secs(10);
const STOP_GRACE: Duration = Duration::from_secs(10);

pub(crate) struct ProxyOptions<'a> {
    pub(crate) tidegate: &'a Path,
    /// Where its log goes, after what is there.
    pub(crate) log: PathBuf,
    /// Where its journal goes, if anywhere; what was there before is lost.
    pub(crate) journal: Option<PathBuf>,
    /// Whether the high class of a load goes first.
    pub(crate) has_priority: bool,
    /// More arguments of `tidegate proxy`.
    pub(crate) arguments: Vec<String>,
}

/// A running proxy, stopped when dropped.
pub(crate) struct Proxy {
    process: Process,
    log: PathBuf,
    pub(crate) url: String,
}

impl Proxy {
    pub(crate) fn start(server: &Url, options: ProxyOptions<'_>) -> Result<Self, RigError> {
        let ProxyOptions { tidegate, log, journal, has_priority, arguments } = options;
        let log_file = OpenOptions::new().create(true).append(true).open(&log);
        let log_file = log_file.map_err(RigError::file(&log))?;
        let listen = free_address().map_err(RigError::file(&log))?;
        let mut command = outlived_by_none(tidegate, "TERM");
        command
            .args(["proxy", "--listen", &listen.to_string()])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log_file);
        // In a file that is ours alone: arguments, and with them a password, can be seen by all.
        let mut file = tempfile::NamedTempFile::new().map_err(RigError::file(&log))?;
        let written = file.write_all(configuration(server, has_priority).as_bytes());
        written.map_err(RigError::file(file.path()))?;
        command.arg("--config").arg(file.path());
        if let Some(journal) = journal {
            super::empty_file(&journal)?;
            command.arg("--journal").arg(journal);
        }
        let process = Process::start("the proxy", command).and_then(|mut process| {
            process.wait_for_port(listen, START_BOUND)?;
            Ok(process)
        });
        Ok(Proxy {
            process: process.map_err(failed(&log))?,
            log,
            url: Url {
                password: None,
                host: Host::Tcp(listen.ip().to_string()),
                port: listen.port(),
                ..server.clone()
            }
            .with_password(),
        })
    }

    pub(crate) fn cpu_seconds(&self) -> Result<f64, RigError> {
        self.process.cpu_seconds().map_err(failed(&self.log))
    }

    pub(crate) fn stop(self) -> Result<(), RigError> {
        let stopped = self.process.stop(STOP_GRACE);
        stopped.map(drop).map_err(failed(&self.log))
    }
}

/// The configuration of a proxy before a server. With priority, the high class of a load goes
/// first.
fn configuration(server: &Url, has_priority: bool) -> String {
    let priority = format!("[high_priority]\napplications = [\"{HIGH_APPLICATION}\"]\n\n");
    format!(
        "{}[databases.\"*\"]\nupstream = \"{}\"\n",
        if has_priority { &priority } else { "" },
        server.with_password()
    )
}

fn failed(log: &Path) -> impl FnOnce(ProcessError) -> RigError {
    let log = log.to_owned();
    move |source| RigError::Proxy { source, log }
}

fn free_address() -> io::Result<SocketAddr> {
    Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?)))
}

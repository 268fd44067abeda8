//! MariaDB's programs at work: a directory made and filled, a server started.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::binaries::{Binaries, Program};
use super::{MariaDbError, Options, START_BOUND, USER};
use crate::account::Account;
use crate::isolation::Isolation;
use crate::mysql::{BlockingClient, ClientError};
use crate::postgres::free_port;
use crate::process::{Process, outlived_by_none};
use crate::scratch::Scratch;
use crate::settings::plain_name;

const POLL: Duration = Duration::from_millis(20);
const PORT_ATTEMPTS: usize = 5;
const LOG_TAIL_LINES: usize = 12;

/// Users to be when we are root, tried in this order.
const ACCOUNTS: &[&str] = &["mysql", "nobody"];

const MAX_CONNECTIONS: &str = "max_connections";
const OPEN_FILES: &str = "open_files_limit";

/// What every server is started with; a setting of the caller's comes later and wins.
const SETTINGS: [(&str, &str); 8] = [
    (MAX_CONNECTIONS, "1100"),
    ("back_log", "1100"),
    ("table_open_cache", "4000"),
    (OPEN_FILES, "10000"),
    ("character_set_server", "utf8mb4"),
    ("collation_server", "utf8mb4_bin"),
    ("innodb_buffer_pool_dump_at_shutdown", "OFF"),
    ("innodb_buffer_pool_load_at_startup", "OFF"),
];

/// The programs and the user they run as.
#[derive(Debug)]
pub(super) struct Installation {
    binaries: Binaries,
    account: Option<Account>,
}

impl Installation {
    pub(super) fn find() -> Result<Self, MariaDbError> {
        Ok(Installation {
            binaries: Binaries::find()?,
            account: Account::needed(ACCOUNTS).map_err(|_| MariaDbError::NoAccount)?,
        })
    }

    pub(super) fn program(self, program: Program) -> PathBuf {
        match program {
            Program::Server => self.binaries.server,
            Program::Installer => self.binaries.installer,
        }
    }

    pub(super) fn make_directory(&self) -> Result<Scratch, MariaDbError> {
        let failed =
            |path: &Path, source| MariaDbError::Directory { path: path.to_owned(), source };
        let directory =
            Scratch::new("mariadb").map_err(|source| failed(&std::env::temp_dir(), source))?;
        if let Some(account) = &self.account {
            account.own(directory.path()).map_err(|source| failed(directory.path(), source))?;
        }
        Ok(directory)
    }

    /// A command run by the unprivileged user in the server's directory, out of Ctrl-C's reach,
    /// that reads no configuration, and ends when we are gone: at once, because a SIGTERM while it
    /// starts can leave it waiting for ever (10.11: in the start of replication).
    fn command(&self, program: &Path, directory: &Path) -> Command {
        let mut command = outlived_by_none(program, "KILL");
        command
            .current_dir(directory)
            .stdin(Stdio::null())
            .process_group(0)
            .arg("--no-defaults")
            .arg(format!("--datadir={}", directory.join("data").display()))
            .arg(format!("--tmpdir={}", directory.display()))
            .arg("--skip-name-resolve");
        if let Some(base) = self.binaries.base() {
            command.arg(format!("--basedir={}", base.display()));
        }
        if let Some(account) = &self.account {
            account.run_as(&mut command);
        }
        command
    }

    /// Fills the data directory: a superuser without a password, no other users, no test database.
    /// Nothing waits for the disk: a machine that fails now has no use for the directory.
    pub(super) fn install(&self, directory: &Path) -> Result<(), MariaDbError> {
        let mut command = self.command(&self.binaries.installer, directory);
        command.args([
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--debug-no-sync",
            "--innodb-log-file-size=8M",
        ]);
        let output =
            command.output().map_err(|source| MariaDbError::Install(source.to_string()))?;
        if output.status.success() {
            return Ok(());
        }
        let text = [output.stdout, output.stderr].concat();
        Err(MariaDbError::Install(tail(&String::from_utf8_lossy(&text))))
    }

    pub(super) fn start_on_free_port(
        &self,
        directory: &Path,
        options: &Options,
    ) -> Result<(Process, u16), MariaDbError> {
        let mut attempt = 1;
        loop {
            let port = free_port()
                .map_err(|source| MariaDbError::Directory { path: directory.to_owned(), source })?;
            match self.start_server(directory, options, port) {
                Ok(process) => return Ok((process, port)),
                Err(MariaDbError::Ended(log))
                    if attempt < PORT_ATTEMPTS && log.contains("Address already in use") =>
                {
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn start_server(
        &self,
        directory: &Path,
        options: &Options,
        port: u16,
    ) -> Result<Process, MariaDbError> {
        let log_path = directory.join("log");
        let log = File::create(&log_path).and_then(|log| Ok((log.try_clone()?, log)));
        let (out, err) =
            log.map_err(|source| MariaDbError::Directory { path: log_path.clone(), source })?;
        let mut command = self.command(&self.binaries.server, directory);
        command
            .arg("--bind-address=127.0.0.1")
            .arg(format!("--port={port}"))
            .arg(format!("--socket={}", socket(directory).display()))
            .arg(format!("--pid-file={}", directory.join("pid").display()))
            .args(settings(options))
            .stdout(out)
            .stderr(err);
        if self.account.is_some() {
            allow_files(files(options));
        }
        let mut process = Process::start("MariaDB", command)?;
        wait_until_ready(&mut process, &url(port, ""), &log_path)?;
        Ok(process)
    }
}

/// The settings as arguments.
fn settings(options: &Options) -> Vec<String> {
    let level = |level: Isolation| level.to_string().replace(' ', "-");
    let isolation = options.isolation.map(|isolation| ("transaction_isolation", level(isolation)));
    let base = SETTINGS.map(|(name, value)| (name, value.to_owned()));
    let own = options.settings.iter().map(|(name, value)| (name.as_str(), value.clone()));
    let all = base.into_iter().chain(isolation).chain(own);
    all.map(|(name, value)| format!("--{name}={value}")).collect()
}

/// All settings but the isolation, each once, with the value that counts.
pub(super) fn named(options: &Options) -> Vec<(String, String)> {
    let mut named: Vec<(String, String)> = Vec::new();
    let own = options.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    for (name, value) in SETTINGS.into_iter().chain(own) {
        let name = plain_name(name);
        match named.iter_mut().find(|(of, _)| *of == name) {
            Some((_, earlier)) => value.clone_into(earlier),
            None => named.push((name, value.to_owned())),
        }
    }
    named
}

/// How many connections a server is asked to take.
pub(super) fn max_connections(options: &Options) -> u64 {
    number(options, MAX_CONNECTIONS)
}

/// How many files a server wants to open: five for a connection, or more where it is told so.
fn files(options: &Options) -> u64 {
    number(options, OPEN_FILES).max(max_connections(options).saturating_mul(5))
}

/// A setting's value that counts, 0 where it is no number.
fn number(options: &Options, wanted: &str) -> u64 {
    let own = options.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let all = SETTINGS.into_iter().chain(own);
    let last = all.rev().find(|(name, _)| plain_name(name) == wanted);
    last.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

/// Raises the hard limit of open files, up to which a server raises its own. Root may, which we are
/// and the server is not. Where even we may not, the server has too few, which it is asked later.
fn allow_files(files: u64) {
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|maximum| maximum < files) {
        let _ = setrlimit(Resource::Nofile, Rlimit { maximum: Some(files), ..limit });
    }
}

/// The superuser's URL.
pub(super) fn url(port: u16, database: &str) -> String {
    format!("mysql://{USER}@127.0.0.1:{port}/{database}")
}

/// Where the socket of a server in this directory is.
pub(super) fn socket(directory: &Path) -> PathBuf {
    directory.join("socket")
}

fn wait_until_ready(process: &mut Process, url: &str, log: &Path) -> Result<(), MariaDbError> {
    let deadline = Instant::now() + START_BOUND;
    loop {
        let Err(reason) = BlockingClient::connect(url) else {
            return Ok(());
        };
        let text = || tail(&fs::read_to_string(log).unwrap_or_default());
        if process.exit_status()?.is_some() {
            return Err(MariaDbError::Ended(text()));
        }
        if !is_starting(&reason) {
            return Err(reason.into());
        }
        if Instant::now() >= deadline {
            return Err(MariaDbError::NotReady { reason, log: text() });
        }
        std::thread::sleep(POLL);
    }
}

/// Whether a failed connection is what a server on its way up looks like.
fn is_starting(error: &ClientError) -> bool {
    match error {
        ClientError::Connect { .. } | ClientError::Io(_) | ClientError::Closed => true,
        ClientError::Url(_) | ClientError::Protocol(_) | ClientError::Server(_) => false,
    }
}

/// The last lines of a log.
fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_callers_settings_come_last_and_count() {
        let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let mut options = Options {
            settings: vec![own("innodb_buffer_pool_size", "64M")],
            isolation: Some(Isolation::ReadCommitted),
        };
        let arguments = settings(&options);
        assert_eq!(arguments[0], "--max_connections=1100");
        assert_eq!(arguments[8], "--transaction_isolation=READ-COMMITTED");
        assert_eq!(arguments[9], "--innodb_buffer_pool_size=64M");
        assert_eq!(max_connections(&options), 1100);
        options.settings.push(own("max-connections", "7"));
        assert_eq!(max_connections(&options), 7);
        let named = named(&options);
        assert_eq!(named.len(), SETTINGS.len() + 1);
        assert_eq!(named[0], own(MAX_CONNECTIONS, "7"));
        assert_eq!(named[8], own("innodb_buffer_pool_size", "64M"));
    }

    #[test]
    fn a_log_is_cut_to_its_end() {
        let log = format!("first\n{}last\n", "more\n".repeat(LOG_TAIL_LINES - 1));
        assert_eq!(tail(&log), log.trim_end().replace("first\n", ""));
        assert_eq!(tail("all\n"), "all");
        assert_eq!(tail(""), "");
    }
}

//! MariaDB's programs at work: a directory filled, a server started.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use tidegate_workload::Failure;

use super::binaries::Binaries;
use super::{DATABASE, Options, SCHEME, USER};
use crate::account::Account;
use crate::database::DatabaseError;
use crate::isolation::Isolation;
use crate::mysql::BlockingClient;
use crate::scratch::Scratch;
use crate::server::{self, Program};
use crate::settings::plain_name;
use crate::url::{Host, Url};

/// Users to be when we are root, tried in this order.
const ACCOUNTS: &[&str] = &["mysql", "nobody"];

const MAX_CONNECTIONS: &str = "max_connections";
const OPEN_FILES: &str = "open_files_limit";

/// Files a server opens besides those of its connections, at least: two for each of the 200 tables
/// that it keeps open in any case, and some of its own.
const FILES: u64 = 430;

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

/// The programs, the user they run as, and what a server is started with.
#[derive(Debug)]
pub struct Installation {
    binaries: Binaries,
    account: Option<Account>,
    pub(super) options: Options,
}

impl Installation {
    /// Returns a command of the unprivileged user that reads no configuration, and ends when we are
    /// gone: at once, because a SIGTERM while it starts can leave it waiting for ever (10.11: in
    /// the start of replication).
    fn base_command(&self, program: &Path, directory: &Path) -> Command {
        let mut command = server::command(program, "KILL", directory, self.account.as_ref());
        command
            .arg("--no-defaults")
            .arg(format!("--datadir={}", directory.join("data").display()))
            .arg(format!("--tmpdir={}", directory.display()))
            .arg("--skip-name-resolve");
        if let Some(base) = self.binaries.base() {
            command.arg(format!("--basedir={}", base.display()));
        }
        command
    }

    /// Returns the superuser's URL, to a database.
    pub(super) fn url(port: u16, database: &str) -> Url {
        Url {
            scheme: &SCHEME,
            user: USER.to_owned(),
            password: None,
            host: Host::Tcp("127.0.0.1".to_owned()),
            port,
            database: database.to_owned(),
            isolation: None,
        }
    }
}

impl Program for Installation {
    const NAME: &'static str = "MariaDB";
    const START_BOUND: Duration = Duration::from_secs(60);
    /// So long it may write what it has in memory before it is killed. What is lost then is done
    /// again from the log when it starts.
    const STOP_BOUND: Duration = Duration::from_secs(30);
    const STOP_SIGNALS: &'static [Signal] = &[Signal::TERM];
    type Options = Options;
    type Resident = ();

    fn find(options: Options) -> Result<Self, DatabaseError> {
        options.validate()?;
        let binaries = Binaries::find()?;
        let account = server::account(Self::NAME, ACCOUNTS)?;
        Ok(Installation { binaries, account, options })
    }

    fn path(&self) -> &Path {
        &self.binaries.server
    }

    /// Makes the directory and fills it: a superuser without a password, no other users, no test
    /// database. Nothing waits for the disk: a machine that fails now has no use for the directory.
    fn prepare(&self) -> Result<Scratch, DatabaseError> {
        let directory = server::directory("mariadb", self.account.as_ref())?;
        let mut command = self.base_command(&self.binaries.installer, directory.path());
        command.args([
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--debug-no-sync",
            "--innodb-log-file-size=8M",
        ]);
        server::run("mariadb-install-db", &mut command)?;
        Ok(directory)
    }

    fn command(&self, directory: &Path, port: u16) -> Result<Command, DatabaseError> {
        let mut command = self.base_command(&self.binaries.server, directory);
        command
            .arg("--bind-address=127.0.0.1")
            .arg(format!("--port={port}"))
            .arg(format!("--socket={}", socket(directory).display()))
            .arg(format!("--pid-file={}", directory.join("pid").display()))
            .args(settings(&self.options));
        if self.account.is_some() {
            allow_files(files(&self.options));
        }
        Ok(command)
    }

    fn connect(&self, _: &Path, port: u16) -> Result<(), Failure> {
        Ok(BlockingClient::connect(&Self::url(port, "").with_password()).map(drop)?)
    }

    /// Makes the database, if the server can take the connections it was told to. With few files
    /// to open it lowers their number on its own, and with very few it keeps quiet.
    fn complete(&self, port: u16) -> Result<(), DatabaseError> {
        let mut client = BlockingClient::connect(&Self::url(port, "").with_password())?;
        let mut global = |name: &str| {
            let value = client.value(&format!("SELECT @@global.{name}"))?;
            let number = value.parse::<u64>();
            number.map_err(|_| DatabaseError::Other(format!("MariaDB's {name} is `{value}`")))
        };
        let (granted, open) = (global("max_connections")?, global("open_files_limit")?);
        let asked = max_connections(&self.options);
        let wanted = asked.saturating_add(FILES);
        if granted < asked || open < wanted {
            return Err(DatabaseError::Other(format!(
                "MariaDB may open {open} files, and takes {granted} connections instead of \
                 {asked}; allow it {wanted} (ulimit -n)"
            )));
        }
        client.query(&format!("CREATE DATABASE {DATABASE}"))?;
        Ok(())
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
fn max_connections(options: &Options) -> u64 {
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

/// Returns where the socket of a server in this directory is.
pub(super) fn socket(directory: &Path) -> PathBuf {
    directory.join("socket")
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
}

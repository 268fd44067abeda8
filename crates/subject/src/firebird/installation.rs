//! Firebird's programs at work: a private root, a security database, a server.
//!
//! Firebird takes its configuration from the directory named by `FIREBIRD` and keeps its lock
//! tables in the one named by `FIREBIRD_LOCK`. What is the same for all servers of a machine
//! (plug-ins, character sets, messages) is linked into the private root from where the package put
//! it.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tidegate_workload::Failure;

use super::connection::{FirebirdConnection, Login, Purpose, Target};
use super::{Authentication, DATABASE, FirebirdError, Options, START_BOUND};
use crate::account::Account;
use crate::postgres::free_port;
use crate::process::{Process, outlived_by_none};
use crate::scratch::Scratch;

const POLL: Duration = Duration::from_millis(20);
const PORT_ATTEMPTS: usize = 5;

/// Users tried in this order when we are root, which a server need not be. The package's own user
/// may write into the machine's own log and lock directory, and is none of them.
const ACCOUNTS: &[&str] = &["postgres", "nobody"];

/// Where Debian's packages of Firebird 3 put what servers share, below a directory per
/// architecture, and the script that makes a security database.
const LIBRARIES: &str = "/usr/lib";
const SHARED: &str = "firebird/3.0";
const SECURITY_SCRIPT: &str = "/usr/share/firebird/3.0/security.sql";

/// What of it a private root is given.
const LINKED: [&str; 5] = ["plugins", "intl", "lib", "firebird.msg", "plugins.conf"];

/// The settings that make a server private; others come behind them, and the last one counts.
fn private(authentication: &Authentication) -> String {
    let (methods, manager, wire_crypt) = match authentication {
        Authentication::Legacy => ("Legacy_Auth", "Legacy_UserManager", "Disabled"),
        Authentication::Password { methods, wire_crypt, .. } => (*methods, "Srp", *wire_crypt),
    };
    format!(
        "RemoteBindAddress = 127.0.0.1\nAuthServer = {methods}\nAuthClient = {methods}\n\
         UserManager = {manager}\nWireCrypt = {wire_crypt}\n"
    )
}

/// Settings that are ours to make.
const RESERVED: [&str; 8] = [
    "AuthClient",
    "AuthServer",
    "DatabaseAccess",
    "RemoteBindAddress",
    "RemoteServicePort",
    "SecurityDatabase",
    "UserManager",
    "WireCrypt",
];

/// The programs, what they share, and the user they run as.
#[derive(Debug)]
pub(super) struct Installation {
    server: PathBuf,
    isql: PathBuf,
    shared: PathBuf,
    account: Option<Account>,
}

impl Installation {
    pub(super) fn find() -> Result<Self, FirebirdError> {
        Ok(Installation {
            server: program("firebird").ok_or(FirebirdError::NoBinaries("firebird"))?,
            isql: program("isql-fb").ok_or(FirebirdError::NoBinaries("isql-fb"))?,
            shared: shared(Path::new(LIBRARIES))
                .filter(|_| Path::new(SECURITY_SCRIPT).is_file())
                .ok_or(FirebirdError::NoBinaries("libEngine12.so and security.sql"))?,
            account: Account::needed(ACCOUNTS).map_err(|_| FirebirdError::NoAccount)?,
        })
    }

    pub(super) fn into_program(self) -> PathBuf {
        self.server
    }

    /// Makes the directory with root, locks and security database.
    pub(super) fn prepare(&self, options: &Options) -> Result<Scratch, FirebirdError> {
        self.refuse_unknown(options)?;
        let directory = Scratch::new("firebird")
            .map_err(|source| FirebirdError::Directory { path: std::env::temp_dir(), source })?;
        self.lay_out(directory.path()).map_err(|source| FirebirdError::Directory {
            path: directory.path().to_owned(),
            source,
        })?;
        configure(directory.path(), options, 0)?;
        self.make_security_database(directory.path(), &options.authentication)?;
        Ok(directory)
    }

    fn lay_out(&self, directory: &Path) -> io::Result<()> {
        let root = directory.join("root");
        let locks = directory.join("lock");
        fs::create_dir(&root)?;
        fs::create_dir(&locks)?;
        for name in LINKED {
            symlink(self.shared.join(name), root.join(name))?;
        }
        fs::write(root.join("databases.conf"), "")?;
        if let Some(account) = &self.account {
            for path in [directory, &root, &locks] {
                account.own(path)?;
            }
        }
        Ok(())
    }

    /// Refuses settings that Firebird, which passes over what it does not know, would ignore, and
    /// those that make the server private. Every setting is in the commented file of the package.
    fn refuse_unknown(&self, options: &Options) -> Result<(), FirebirdError> {
        let known = fs::read_to_string(self.shared.join("firebird.conf")).unwrap_or_default();
        for (name, value) in &options.settings {
            let refused = FirebirdError::Setting(name.clone());
            if RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(name))
                || value.contains('\n')
                || !(known.is_empty() || is_setting(&known, name))
            {
                return Err(refused);
            }
        }
        Ok(())
    }

    /// Makes the database of users with the package's script: its user SYSDBA has the password
    /// that Firebird is known for, unless it is to have another.
    fn make_security_database(
        &self,
        directory: &Path,
        authentication: &Authentication,
    ) -> Result<(), FirebirdError> {
        let failed = |error: io::Error| FirebirdError::Security(error.to_string());
        let users = match authentication {
            Authentication::Legacy => format!("INPUT {SECURITY_SCRIPT}"),
            Authentication::Password { password, .. } => {
                let password = password.replace('\'', "''");
                format!("CREATE USER SYSDBA PASSWORD '{password}' USING PLUGIN Srp")
            }
        };
        let script = format!(
            "CREATE DATABASE '{}/security.fdb' USER 'SYSDBA';\n{users};\nCOMMIT;\nEXIT;\n",
            directory.display()
        );
        let mut child = self
            .command(&self.isql, directory)
            .args(["-quiet", "-bail"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        if let Some(mut input) = child.stdin.take() {
            // Should it not read, its own message says why.
            let _ = input.write_all(script.as_bytes());
        }
        let output = child.wait_with_output().map_err(failed)?;
        if output.status.success() {
            return Ok(());
        }
        Err(FirebirdError::Security(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }

    /// A command run by the unprivileged user in the server's directory, out of Ctrl-C's reach,
    /// which ends when we are gone: at once, because a SIGTERM while it starts can leave it waiting
    /// for connections it no longer takes, deaf to a second one (3.0).
    fn command(&self, program: &Path, directory: &Path) -> Command {
        let mut command = outlived_by_none(program, "KILL");
        command
            .current_dir(directory)
            .env("FIREBIRD", directory.join("root"))
            .env("FIREBIRD_LOCK", directory.join("lock"))
            .env("FIREBIRD_TMP", directory)
            .stdin(Stdio::null())
            .process_group(0);
        for name in ["ISC_USER", "ISC_PASSWORD", "ISC_PATH"] {
            command.env_remove(name);
        }
        if let Some(account) = &self.account {
            account.run_as(&mut command);
        }
        command
    }

    /// Starts a server and makes its database.
    pub(super) fn start(
        &self,
        directory: &Path,
        options: &Options,
    ) -> Result<(Process, Target), FirebirdError> {
        let mut attempt = 1;
        loop {
            let port = free_port().map_err(|source| FirebirdError::Directory {
                path: directory.to_owned(),
                source,
            })?;
            let create = Purpose::Create { page_bytes: options.page_bytes };
            match self.start_on(directory, options, port, create) {
                Err(FirebirdError::Ended(log)) if attempt < PORT_ATTEMPTS && is_taken(&log) => {
                    attempt += 1;
                }
                result => return result,
            }
        }
    }

    /// Starts a server on a port and opens its database, or makes it.
    pub(super) fn start_on(
        &self,
        directory: &Path,
        options: &Options,
        port: u16,
        purpose: Purpose,
    ) -> Result<(Process, Target), FirebirdError> {
        configure(directory, options, port)?;
        let path = directory.join("log");
        let (out, err) = File::create(&path)
            .and_then(|log| Ok((log.try_clone()?, log)))
            .map_err(|source| FirebirdError::Directory { path: path.clone(), source })?;
        let mut command = self.command(&self.server, directory);
        command.stdout(out).stderr(err);
        let mut process = Process::start("Firebird", command)?;
        let target = Target {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            database: directory.join(DATABASE).display().to_string(),
            isolation: options.isolation,
            login: Login::of(&options.authentication),
        };
        wait_until_open(&mut process, &target, purpose, &path)?;
        Ok((process, target))
    }
}

/// Writes `firebird.conf`.
fn configure(directory: &Path, options: &Options, port: u16) -> Result<(), FirebirdError> {
    let place = directory.display();
    let mut text = format!(
        "{}RemoteServicePort = {port}\nDatabaseAccess = Restrict {place}\n\
             SecurityDatabase = {place}/security.fdb\n",
        private(&options.authentication)
    );
    for (name, value) in &options.settings {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name} = {value}");
    }
    let path = directory.join("root").join("firebird.conf");
    fs::write(&path, text).map_err(|source| FirebirdError::Directory { path, source })
}

/// Opens the database as soon as the server answers.
fn wait_until_open(
    process: &mut Process,
    target: &Target,
    purpose: Purpose,
    log: &Path,
) -> Result<(), FirebirdError> {
    let deadline = Instant::now() + START_BOUND;
    loop {
        let failure = match FirebirdConnection::open(target, purpose) {
            Ok(_) => return Ok(()),
            Err(Failure::Lost(reason)) => reason,
            Err(failure) => return Err(FirebirdError::Database(failure)),
        };
        let log = || fs::read_to_string(log).unwrap_or_default();
        if process.exit_status()?.is_some() {
            return Err(FirebirdError::Ended(log()));
        }
        if Instant::now() >= deadline {
            return Err(FirebirdError::NotReady { reason: failure, log: log() });
        }
        std::thread::sleep(POLL);
    }
}

fn is_taken(log: &str) -> bool {
    log.contains("Address already in use")
}

/// Whether the commented configuration file of the package has the setting.
fn is_setting(known: &str, name: &str) -> bool {
    let setting = |line: &str| {
        let (left, _) = line.split_once('=')?;
        Some(left.trim_start_matches('#').trim().eq_ignore_ascii_case(name))
    };
    !name.is_empty() && known.lines().any(|line| setting(line) == Some(true))
}

/// A program in PATH, or where Debian has those of the administrator.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/bin".into()])
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
}

/// The directory of what servers share, in that of the first architecture that has it.
fn shared(libraries: &Path) -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(libraries)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join(SHARED))
        .filter(|path| path.join("plugins/libEngine12.so").is_file())
        .collect();
    found.sort();
    found.into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_known_by_its_commented_line() {
        let known = "# Sets the page cache = a lot\n#\n#DefaultDbCachePages = 2048\nServerMode=x\n";
        for (name, expected) in [
            ("DefaultDbCachePages", true),
            ("servermode", true),
            ("Sets", false),
            ("", false),
            ("LockMemSize", false),
        ] {
            assert_eq!(is_setting(known, name), expected, "{name}");
        }
    }
}

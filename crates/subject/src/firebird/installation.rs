//! Firebird's programs at work: a private root, a security database, a server.
//!
//! Firebird takes its configuration from the directory named by `FIREBIRD` and keeps its lock
//! tables in the one named by `FIREBIRD_LOCK`. What is the same for all servers of a machine
//! (plug-ins, character sets, messages) is linked into the private root from where the package put
//! it.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tidegate_workload::Failure;

use super::connection::{FirebirdConnection, Login, Purpose, Target};
use super::keeper::Keeper;
use super::{Authentication, Options, Resident};
use crate::account::Account;
use crate::database::DatabaseError;
use crate::scratch::Scratch;
use crate::server::{self, Program, first_in};
use crate::settings::Reserved;

/// The name of the database's file.
const DATABASE: &str = "data.fdb";

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

/// The programs, what they share, the user they run as, and what a server is started with.
#[derive(Debug)]
pub struct Installation {
    server: PathBuf,
    isql: PathBuf,
    shared: PathBuf,
    account: Option<Account>,
    pub(super) options: Options,
}

impl Installation {
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
            for path in [&root, &locks] {
                account.own(path)?;
            }
        }
        Ok(())
    }

    /// Refuses settings that Firebird, which passes over what it does not know, would ignore, and
    /// those that make the server private. Every setting is in the commented file of the package.
    fn refuse_unknown(&self) -> Result<(), DatabaseError> {
        let known = fs::read_to_string(self.shared.join("firebird.conf")).unwrap_or_default();
        for (name, value) in &self.options.settings {
            if RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(name))
                || value.contains('\n')
                || !(known.is_empty() || is_setting(&known, name))
            {
                return Err(Reserved(name.clone()).into());
            }
        }
        Ok(())
    }

    /// Makes the database of users with the package's script: its user SYSDBA has the password
    /// that Firebird is known for, unless it is to have another.
    fn make_security_database(&self, directory: &Path) -> Result<(), DatabaseError> {
        let path = directory.join("security.sql");
        let users = match &self.options.authentication {
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
        fs::write(&path, script).map_err(DatabaseError::directory(&path))?;
        let mut command = self.base_command(&self.isql, directory);
        command.args(["-quiet", "-bail", "-input"]).arg(path);
        server::run("isql-fb", &mut command)
    }

    /// Returns a command of the unprivileged user, which ends when we are gone: at once, because a
    /// SIGTERM while it starts can leave it waiting for connections it no longer takes, deaf to a
    /// second one (3.0).
    fn base_command(&self, program: &Path, directory: &Path) -> Command {
        let mut command = server::command(program, "KILL", directory, self.account.as_ref());
        command
            .env("FIREBIRD", directory.join("root"))
            .env("FIREBIRD_LOCK", directory.join("lock"))
            .env("FIREBIRD_TMP", directory);
        for name in ["ISC_USER", "ISC_PASSWORD", "ISC_PATH"] {
            command.env_remove(name);
        }
        command
    }

    /// Writes `firebird.conf`.
    fn configure(&self, directory: &Path, port: u16) -> Result<(), DatabaseError> {
        let place = directory.display();
        let mut text = format!(
            "{}RemoteServicePort = {port}\nDatabaseAccess = Restrict {place}\n\
             SecurityDatabase = {place}/security.fdb\n",
            private(&self.options.authentication)
        );
        for (name, value) in &self.options.settings {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{name} = {value}");
        }
        let path = directory.join("root").join("firebird.conf");
        fs::write(&path, text).map_err(DatabaseError::directory(&path))
    }

    /// Returns where the database of a server in a directory is.
    pub(super) fn target(&self, directory: &Path, port: u16) -> Target {
        Target {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            database: directory.join(DATABASE).display().to_string(),
            isolation: self.options.isolation,
            login: Login::of(&self.options.authentication),
        }
    }
}

impl Program for Installation {
    const NAME: &'static str = "Firebird";
    const START_BOUND: Duration = Duration::from_secs(30);
    const STOP_BOUND: Duration = Duration::from_secs(10);
    const STOP_SIGNALS: &'static [Signal] = &[Signal::TERM];
    type Options = Options;
    type Resident = Resident;

    fn find(options: Options) -> Result<Self, DatabaseError> {
        let missing = |what: &str| {
            DatabaseError::NotInstalled(format!(
                "Firebird 3's {what} cannot be found; install it (Debian: apt-get install \
                 firebird3.0-server)"
            ))
        };
        Ok(Installation {
            server: program("firebird").ok_or_else(|| missing("firebird"))?,
            isql: program("isql-fb").ok_or_else(|| missing("isql-fb"))?,
            shared: shared(Path::new(LIBRARIES))
                .filter(|_| Path::new(SECURITY_SCRIPT).is_file())
                .ok_or_else(|| missing("libEngine12.so and security.sql"))?,
            account: server::account(Self::NAME, ACCOUNTS)?,
            options,
        })
    }

    fn path(&self) -> &Path {
        &self.server
    }

    /// Makes the directory with root, locks and security database.
    fn prepare(&self) -> Result<Scratch, DatabaseError> {
        self.refuse_unknown()?;
        let directory = server::directory("firebird", self.account.as_ref())?;
        self.lay_out(directory.path()).map_err(DatabaseError::directory(directory.path()))?;
        self.configure(directory.path(), 0)?;
        self.make_security_database(directory.path())?;
        Ok(directory)
    }

    fn command(&self, directory: &Path, port: u16) -> Result<Command, DatabaseError> {
        self.configure(directory, port)?;
        Ok(self.base_command(&self.server, directory))
    }

    /// Opens the server's database, or makes it, and stays in it.
    fn connect(&self, directory: &Path, port: u16) -> Result<Resident, Failure> {
        let purpose = if directory.join(DATABASE).exists() {
            Purpose::Use
        } else {
            Purpose::Create { page_bytes: self.options.page_bytes }
        };
        let target = Arc::new(self.target(directory, port));
        let keeper = Keeper::new(FirebirdConnection::open(&target, purpose)?)?;
        Ok(Resident { keeper, target })
    }
}

/// Whether the commented configuration file of the package has the setting.
fn is_setting(known: &str, name: &str) -> bool {
    let setting = |line: &str| {
        let (left, _) = line.split_once('=')?;
        Some(left.trim_start_matches('#').trim().eq_ignore_ascii_case(name))
    };
    !name.is_empty() && known.lines().any(|line| setting(line) == Some(true))
}

/// Returns a program in PATH, or where Debian has those of the administrator.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    first_in(std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/bin".into()]), name)
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

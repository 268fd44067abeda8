//! PostgreSQL's programs at work: a cluster initialised, a server started.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use tidegate_workload::Failure;

use super::binaries::Binaries;
use super::{Options, USER};
use crate::account::Account;
use crate::client::BlockingClient;
use crate::database::DatabaseError;
use crate::scratch::Scratch;
use crate::server::{self, Program};
use crate::url::{Host, Url};

/// Users to be when we are root, tried in this order.
const ACCOUNTS: &[&str] = &["postgres", "nobody"];

/// SQLSTATE `cannot_connect_now`: the server is starting up.
const CANNOT_CONNECT_NOW: &str = "57P03";

/// The programs, the user they run as, and what a server is started with.
#[derive(Debug)]
pub struct Installation {
    binaries: Binaries,
    account: Option<Account>,
    pub(super) options: Options,
}

impl Installation {
    /// Returns a command of the unprivileged user. It ends, a server by its fast shutdown, when we
    /// are gone.
    fn program(&self, program: &Path, directory: &Path) -> Command {
        server::command(program, "INT", directory, self.account.as_ref())
    }

    fn initdb(&self, directory: &Path) -> Result<(), DatabaseError> {
        let mut command = self.program(&self.binaries.initdb, directory);
        command
            .args(["--pgdata=data", "--encoding=UTF8", "--locale=C", "--no-sync"])
            .args([format!("--username={USER}")])
            .args([format!("--auth={}", self.options.authentication.initdb_method())]);
        if let Some(password) = self.options.authentication.password() {
            self.write_password(directory, password)?;
            command.arg("--pwfile=password");
        }
        server::run("initdb", &mut command)
    }

    /// Copies a running server, whose standby this is to be.
    fn base_backup(&self, directory: &Path, primary: u16) -> Result<(), DatabaseError> {
        let mut command = self.program(&self.binaries.pg_basebackup(), directory);
        command
            .args(["--pgdata=data", "--host=127.0.0.1", "--port", &primary.to_string()])
            .args([format!("--username={USER}")])
            .args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync"]);
        if let Some(password) = self.options.authentication.password() {
            command.env("PGPASSWORD", password);
        }
        server::run("pg_basebackup", &mut command)
    }

    /// Writes the file initdb takes the password from; the directory is closed to others.
    fn write_password(&self, directory: &Path, password: &str) -> Result<(), DatabaseError> {
        let path = directory.join("password");
        let written = File::create(&path)
            .and_then(|mut file| file.write_all(password.as_bytes()))
            .and_then(|()| self.account.as_ref().map_or(Ok(()), |account| account.own(&path)));
        written.map_err(DatabaseError::directory(&path))
    }

    /// Returns the superuser's URL over TCP, to the database `postgres`.
    pub(super) fn url(&self, port: u16) -> Url {
        Url {
            scheme: &super::SCHEME,
            user: USER.to_owned(),
            password: self.options.authentication.password().map(str::to_owned),
            host: Host::Tcp("127.0.0.1".to_owned()),
            port,
            database: "postgres".to_owned(),
            isolation: None,
        }
    }
}

impl Program for Installation {
    const NAME: &'static str = "PostgreSQL";
    const START_BOUND: Duration = Duration::from_secs(30);
    const STOP_BOUND: Duration = Duration::from_secs(10);
    /// The fast shutdown, then the immediate one.
    const STOP_SIGNALS: &'static [Signal] = &[Signal::INT, Signal::QUIT];
    type Options = Options;
    type Resident = ();

    fn find(options: Options) -> Result<Self, DatabaseError> {
        options.validate()?;
        let missing = || {
            DatabaseError::NotInstalled(
                "PostgreSQL's server programs are neither in PATH nor in \
                 /usr/lib/postgresql/*/bin; install them (Debian: apt-get install postgresql)"
                    .to_owned(),
            )
        };
        let binaries = Binaries::find().ok_or_else(missing)?;
        let account = server::account(Self::NAME, ACCOUNTS)?;
        Ok(Installation { binaries, account, options })
    }

    fn path(&self) -> &Path {
        &self.binaries.postgres
    }

    /// Makes the directory, and the cluster in it or the copy of one.
    fn prepare(&self) -> Result<Scratch, DatabaseError> {
        let directory = server::directory("postgres", self.account.as_ref())?;
        match self.options.standby_of {
            None => self.initdb(directory.path())?,
            Some(primary) => self.base_backup(directory.path(), primary)?,
        }
        Ok(directory)
    }

    fn command(&self, directory: &Path, port: u16) -> Result<Command, DatabaseError> {
        let mut command = self.program(&self.binaries.postgres, directory);
        command
            .args(["-D", "data", "-p", &port.to_string()])
            .args(["-c", "listen_addresses=127.0.0.1"])
            .args(["-c", &format!("unix_socket_directories={}", directory.display())]);
        for (name, value) in &self.options.settings {
            command.args(["-c", &format!("{name}={value}")]);
        }
        Ok(command)
    }

    fn connect(&self, _: &Path, port: u16) -> Result<(), Failure> {
        Ok(BlockingClient::connect(&self.url(port).with_password()).map(drop)?)
    }

    fn is_starting(&self, failure: &Failure) -> bool {
        match failure {
            Failure::Lost(_) => true,
            Failure::Refused { code, .. } => code == CANNOT_CONNECT_NOW,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Authentication, SCHEME};
    use super::*;

    #[test]
    fn any_password_survives_the_url() {
        let url = Url {
            password: Authentication::Md5("p@s:s/%?ü".into()).password().map(str::to_owned),
            ..Url::of(&SCHEME, "postgres://postgres@127.0.0.1:5432/postgres").unwrap()
        };
        let url: Url = url.with_password().parse().unwrap();
        assert_eq!(url.password.as_deref(), Some("p@s:s/%?ü"));
    }
}

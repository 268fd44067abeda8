//! PostgreSQL's programs at work: a directory made, a cluster initialised, a server started.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::binaries::Binaries;
use super::{Options, PostgresError, START_BOUND, STOP_SIGNALS, USER, free_port, url};
use crate::account::Account;
use crate::client::{BlockingClient, ClientError, ServerError};
use crate::process::{Process, outlived_by_none};
use crate::scratch::Scratch;

const POLL: Duration = Duration::from_millis(20);
const PORT_ATTEMPTS: usize = 5;
const LOG_TAIL_LINES: usize = 12;

/// Users to be when we are root, tried in this order.
const ACCOUNTS: &[&str] = &["postgres", "nobody"];

/// SQLSTATE `cannot_connect_now`: the server is starting up.
const CANNOT_CONNECT_NOW: &str = "57P03";

/// The programs and the user they run as.
#[derive(Debug)]
pub(super) struct Installation {
    binaries: Binaries,
    account: Option<Account>,
}

impl Installation {
    pub(super) fn find() -> Result<Self, PostgresError> {
        Ok(Installation {
            binaries: Binaries::find().ok_or(PostgresError::NoBinaries)?,
            account: Account::needed(ACCOUNTS).map_err(|_| PostgresError::NoAccount)?,
        })
    }

    pub(super) fn into_program(self) -> PathBuf {
        self.binaries.postgres
    }

    pub(super) fn make_directory(&self) -> Result<Scratch, PostgresError> {
        let failed =
            |path: &Path, source| PostgresError::Directory { path: path.to_owned(), source };
        let directory =
            Scratch::new("postgres").map_err(|source| failed(&std::env::temp_dir(), source))?;
        if let Some(account) = &self.account {
            account.own(directory.path()).map_err(|source| failed(directory.path(), source))?;
        }
        Ok(directory)
    }

    /// A command run by the unprivileged user in the server's directory, out of Ctrl-C's reach. It
    /// ends, a server by its fast shutdown, when we are gone.
    fn command(&self, program: &Path, directory: &Path) -> Command {
        let mut command = outlived_by_none(program, "INT");
        command.current_dir(directory).stdin(Stdio::null()).process_group(0);
        if let Some(account) = &self.account {
            account.run_as(&mut command);
        }
        command
    }

    pub(super) fn initdb(&self, directory: &Path, options: &Options) -> Result<(), PostgresError> {
        let mut command = self.command(&self.binaries.initdb, directory);
        command
            .args(["--pgdata=data", "--encoding=UTF8", "--locale=C", "--no-sync"])
            .args([format!("--username={USER}")])
            .args([format!("--auth={}", options.authentication.initdb_method())]);
        if let Some(password) = options.authentication.password() {
            self.write_password(directory, password)?;
            command.arg("--pwfile=password");
        }
        let output =
            command.output().map_err(|source| PostgresError::Initdb(source.to_string()))?;
        if output.status.success() {
            return Ok(());
        }
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(PostgresError::Initdb(message))
    }

    /// Writes the file initdb takes the password from; the directory is closed to others.
    fn write_password(&self, directory: &Path, password: &str) -> Result<(), PostgresError> {
        let path = directory.join("password");
        let written = File::create(&path)
            .and_then(|mut file| file.write_all(password.as_bytes()))
            .and_then(|()| match &self.account {
                Some(account) => account.own(&path),
                None => Ok(()),
            });
        written.map_err(|source| PostgresError::Directory { path, source })
    }

    pub(super) fn start_on_free_port(
        &self,
        directory: &Path,
        options: &Options,
    ) -> Result<(Process, u16), PostgresError> {
        let mut attempt = 1;
        loop {
            let port = free_port().map_err(|source| PostgresError::Directory {
                path: directory.to_owned(),
                source,
            })?;
            match self.start_server(directory, options, port) {
                Ok(process) => return Ok((process, port)),
                Err(PostgresError::Ended(log))
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
    ) -> Result<Process, PostgresError> {
        let log_path = directory.join("log");
        let log = File::create(&log_path).and_then(|log| Ok((log.try_clone()?, log)));
        let (out, err) =
            log.map_err(|source| PostgresError::Directory { path: log_path.clone(), source })?;
        let mut command = self.command(&self.binaries.postgres, directory);
        command
            .args(["-D", "data", "-p", &port.to_string()])
            .args(["-c", "listen_addresses=127.0.0.1"])
            .args(["-c", &format!("unix_socket_directories={}", directory.display())])
            .stdout(out)
            .stderr(err);
        for (name, value) in &options.settings {
            command.args(["-c", &format!("{name}={value}")]);
        }
        let mut process = Process::start("PostgreSQL", command)?.stopped_by(STOP_SIGNALS);
        wait_until_ready(&mut process, &url(options, port), &log_path)?;
        Ok(process)
    }
}

fn wait_until_ready(process: &mut Process, url: &str, log: &Path) -> Result<(), PostgresError> {
    let deadline = Instant::now() + START_BOUND;
    loop {
        let Err(reason) = BlockingClient::connect(url) else {
            return Ok(());
        };
        if process.exit_status()?.is_some() {
            return Err(PostgresError::Ended(log_tail(log)));
        }
        if !is_starting(&reason) {
            return Err(PostgresError::Login(reason));
        }
        if Instant::now() >= deadline {
            let log = log_tail(log);
            return Err(PostgresError::NotReady { reason, log });
        }
        std::thread::sleep(POLL);
    }
}

/// Whether a failed connection is what a server on its way up looks like.
fn is_starting(error: &ClientError) -> bool {
    match error {
        ClientError::Server(ServerError { code, .. }) => code == CANNOT_CONNECT_NOW,
        ClientError::Connect { .. } | ClientError::Io(_) | ClientError::Closed => true,
        ClientError::Url(_) | ClientError::Protocol(_) => false,
    }
}

fn log_tail(path: &Path) -> String {
    let log = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
}

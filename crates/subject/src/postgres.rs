//! A private PostgreSQL server: own data directory, own port, gone when dropped.
//!
//! The server listens on a free port of 127.0.0.1 and on a socket in its directory. It refuses to
//! run as root, so when we are root it runs as the first of the users `postgres` and `nobody` that
//! exists, and the directory is theirs. Nothing outside the directory is touched.
//!
//! A free port is found by binding port 0 and letting go of it; should another program take it in
//! between, the start is tried again with another one.
//!
//! Limits: when we are killed outright (SIGKILL) nobody is left to stop the server.

mod account;
mod binaries;

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;
use thiserror::Error;

use crate::client::{BlockingClient, ClientError, ServerError};
use crate::process::{Process, ProcessError};
use account::Account;
use binaries::Binaries;

/// The superuser of every server started here.
pub const USER: &str = "postgres";

/// How long a server may take to accept connections, crash recovery included.
const START_BOUND: Duration = Duration::from_secs(30);

/// How long each way of stopping may take before the next, harder one.
const STOP_BOUND: Duration = Duration::from_secs(10);

/// PostgreSQL's fast shutdown, then its immediate one.
const STOP_SIGNALS: &[Signal] = &[Signal::INT, Signal::QUIT];

const POLL: Duration = Duration::from_millis(20);
const PORT_ATTEMPTS: usize = 5;
const LOG_TAIL_LINES: usize = 12;

/// SQLSTATE `cannot_connect_now`: the server is starting up.
const CANNOT_CONNECT_NOW: &str = "57P03";

/// How clients of the server prove who they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Authentication {
    /// Not at all.
    #[default]
    Trust,
    /// By the superuser's password, as MD5.
    Md5(String),
    /// By the superuser's password, as SCRAM-SHA-256.
    ScramSha256(String),
}

impl Authentication {
    fn initdb_method(&self) -> &'static str {
        match self {
            Authentication::Trust => "trust",
            Authentication::Md5(_) => "md5",
            Authentication::ScramSha256(_) => "scram-sha-256",
        }
    }

    fn password(&self) -> Option<&str> {
        match self {
            Authentication::Trust => None,
            Authentication::Md5(password) | Authentication::ScramSha256(password) => Some(password),
        }
    }
}

/// What a server is started with; everything else is PostgreSQL's default.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Server settings as name and value, as in `postgresql.conf`.
    pub settings: Vec<(String, String)>,
    /// How clients log in.
    pub authentication: Authentication,
}

/// Why a server could not be started or stopped.
#[derive(Debug, Error)]
pub enum PostgresError {
    /// There is no server program.
    #[error(
        "PostgreSQL's server programs are neither in PATH nor in /usr/lib/postgresql/*/bin; \
         install them (Debian: apt-get install postgresql)"
    )]
    NoBinaries,
    /// We are root and there is nobody else to be.
    #[error(
        "PostgreSQL refuses to run as root and there is neither a user postgres nor nobody; \
         run as another user, or create one: useradd --system postgres"
    )]
    NoAccount,
    /// The data directory could not be made or read.
    #[error("cannot prepare {path}: {source}", path = .path.display())]
    Directory {
        /// The directory or file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// `initdb` failed.
    #[error("initdb failed: {0}")]
    Initdb(String),
    /// The server ended while it started.
    #[error("PostgreSQL ended while starting; the end of its log:\n{0}")]
    Ended(String),
    /// The server did not accept connections in time.
    #[error("PostgreSQL accepted no connection within {} s ({reason}); the end of its log:\n{log}", START_BOUND.as_secs())]
    NotReady {
        /// What the last attempt to connect met.
        reason: ClientError,
        /// The end of the server's log.
        log: String,
    },
    /// The server did not let us in.
    #[error("cannot log in to the server just started: {0}")]
    Login(#[from] ClientError),
    /// The process could not be started or watched.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// A running private server; dropping it stops it and removes its directory.
#[derive(Debug)]
pub struct Postgres {
    // Dropped in this order: the server ends before its directory goes.
    process: Process,
    directory: TempDir,
    installation: Installation,
    options: Options,
    port: u16,
}

/// The programs and the user they run as.
#[derive(Debug)]
struct Installation {
    binaries: Binaries,
    account: Option<Account>,
}

impl Postgres {
    /// Makes a data directory, starts a server on it and waits until it accepts connections.
    ///
    /// # Errors
    /// See [`PostgresError`].
    pub fn start(options: Options) -> Result<Self, PostgresError> {
        let installation = Installation {
            binaries: Binaries::find().ok_or(PostgresError::NoBinaries)?,
            account: Account::needed()?,
        };
        let directory = installation.make_directory()?;
        installation.initdb(directory.path(), &options)?;
        let (process, port) = installation.start_on_free_port(directory.path(), &options)?;
        Ok(Postgres {
            process,
            directory,
            installation,
            options,
            port,
        })
    }

    /// The TCP port on 127.0.0.1, the same for as long as this handle lives.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The postmaster's process id.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// The directory that holds data, log and socket.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The superuser's URL over TCP, to the database `postgres`.
    #[must_use]
    pub fn url(&self) -> String {
        url(&self.options, self.port)
    }

    /// The superuser's URL over the unix socket, to the database `postgres`.
    #[must_use]
    pub fn socket_url(&self) -> String {
        format!("{}?host={}", self.url(), self.directory.path().display())
    }

    /// A connection as superuser.
    ///
    /// # Errors
    /// The server is down or refuses.
    pub fn connect(&self) -> Result<BlockingClient, ClientError> {
        BlockingClient::connect(&self.url())
    }

    /// The server's version, such as `15.6 (Debian 15.6-0+deb12u1)`.
    ///
    /// # Errors
    /// The server is down or refuses.
    pub fn version(&self) -> Result<String, ClientError> {
        self.connect()?.value("SHOW server_version")
    }

    /// The values in force of the settings named, in that order.
    ///
    /// # Errors
    /// The server is down, or does not know one of them.
    pub fn settings(&self, names: &[&str]) -> Result<Vec<(String, String)>, ClientError> {
        let mut client = self.connect()?;
        names
            .iter()
            .map(|name| {
                let value = client.value(&format!("SHOW \"{name}\""))?;
                Ok(((*name).to_owned(), value))
            })
            .collect()
    }

    /// Stops the server, breaking its connections, and starts it again on the same port.
    ///
    /// # Errors
    /// It does not come back; the handle then holds a server that is down.
    pub fn restart(&mut self) -> Result<(), PostgresError> {
        self.shut_down()?;
        self.process =
            self.installation
                .start_server(self.directory.path(), &self.options, self.port)?;
        Ok(())
    }

    /// Stops the server, breaking its connections, and removes its directory.
    ///
    /// # Errors
    /// The server's end could not be seen, or the directory not be removed.
    pub fn stop(mut self) -> Result<(), PostgresError> {
        self.shut_down()?;
        let path = self.directory.path().to_owned();
        self.directory
            .close()
            .map_err(|source| PostgresError::Directory { path, source })
    }

    fn shut_down(&mut self) -> Result<(), PostgresError> {
        self.process.end(STOP_BOUND)?;
        Ok(())
    }
}

impl Installation {
    fn make_directory(&self) -> Result<TempDir, PostgresError> {
        let failed = |path: &Path, source| PostgresError::Directory {
            path: path.to_owned(),
            source,
        };
        let directory = tempfile::Builder::new()
            .prefix("tidegate-postgres-")
            .tempdir()
            .map_err(|source| failed(&std::env::temp_dir(), source))?;
        if let Some(account) = &self.account {
            account
                .own(directory.path())
                .map_err(|source| failed(directory.path(), source))?;
        }
        Ok(directory)
    }

    /// A command that runs as the unprivileged user in the server's directory, out of Ctrl-C's reach.
    fn command(&self, program: &Path, directory: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(directory)
            .stdin(Stdio::null())
            .process_group(0);
        if let Some(account) = &self.account {
            account.run_as(&mut command);
        }
        command
    }

    fn initdb(&self, directory: &Path, options: &Options) -> Result<(), PostgresError> {
        let mut command = self.command(&self.binaries.initdb, directory);
        command
            .args([
                "--pgdata=data",
                "--encoding=UTF8",
                "--locale=C",
                "--no-sync",
            ])
            .args([format!("--username={USER}")])
            .args([format!("--auth={}", options.authentication.initdb_method())]);
        if let Some(password) = options.authentication.password() {
            self.write_password(directory, password)?;
            command.arg("--pwfile=password");
        }
        let output = command
            .output()
            .map_err(|source| PostgresError::Initdb(source.to_string()))?;
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

    fn start_on_free_port(
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

    fn start_server(
        &self,
        directory: &Path,
        options: &Options,
        port: u16,
    ) -> Result<Process, PostgresError> {
        let log_path = directory.join("log");
        let log = File::create(&log_path).and_then(|log| Ok((log.try_clone()?, log)));
        let (out, err) = log.map_err(|source| PostgresError::Directory {
            path: log_path.clone(),
            source,
        })?;
        let mut command = self.command(&self.binaries.postgres, directory);
        command
            .args(["-D", "data", "-p", &port.to_string()])
            .args(["-c", "listen_addresses=127.0.0.1"])
            .args([
                "-c",
                &format!("unix_socket_directories={}", directory.display()),
            ])
            .stdout(out)
            .stderr(err);
        for (name, value) in &options.settings {
            command.args(["-c", &format!("{name}={value}")]);
        }
        let mut process = Process::start("PostgreSQL", &mut command)?.stopped_by(STOP_SIGNALS);
        wait_until_ready(&mut process, &url(options, port), &log_path)?;
        Ok(process)
    }
}

fn url(options: &Options, port: u16) -> String {
    let password = match options.authentication.password() {
        Some(password) => format!(":{}", percent_encoded(password)),
        None => String::new(),
    };
    format!("postgres://{USER}{password}@127.0.0.1:{port}/postgres")
}

fn percent_encoded(text: &str) -> String {
    use std::fmt::Write;
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() {
            encoded.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
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

/// A port of 127.0.0.1 that nobody listened on a moment ago.
///
/// # Errors
/// The system has none.
pub fn free_port() -> io::Result<u16> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    Ok(TcpListener::bind(any)?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_password_survives_the_url() {
        let options = Options {
            authentication: Authentication::Md5("p@s:s/%?ü".into()),
            ..Options::default()
        };
        let url: crate::client::Url = url(&options, 5432).parse().unwrap();
        assert_eq!(url.password.as_deref(), Some("p@s:s/%?ü"));
    }
}

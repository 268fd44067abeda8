//! A private server: a process with a directory and a port of its own, gone when dropped.
//!
//! # Mechanism
//! What is particular about a DBMS is its [`Program`]: the command that starts a server in a
//! directory on a port, and how one connects to it. The rest is here. The server listens on
//! 127.0.0.1, on a port that is found by binding port 0 and letting go of it; should another
//! program take it in between, the start is tried again with another one. Its output goes to the
//! file `log` of the directory.
//!
//! # Limits
//! When we are killed outright (SIGKILL) the system [tells the server](crate::process), and the
//! directory stays until the next one is made. Whoever may connect to 127.0.0.1 on this machine may
//! log in, unless the server asks for a password.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tidegate_workload::Failure;

use crate::account::Account;
use crate::database::DatabaseError;
use crate::process::{Process, outlived_by_none};
use crate::scratch::Scratch;

const POLL: Duration = Duration::from_millis(20);
const PORT_ATTEMPTS: usize = 5;
const LOG_TAIL_LINES: usize = 12;

/// What is particular about the servers of a DBMS.
pub trait Program: std::fmt::Debug + Sized {
    /// What the DBMS is called in messages.
    const NAME: &'static str;
    /// How long a server may take to accept connections, crash recovery included.
    const START_BOUND: Duration;
    /// How long each way of stopping may take before the next, harder one.
    const STOP_BOUND: Duration;
    /// The signals that stop a server, from polite to harsh; SIGKILL follows.
    const STOP_SIGNALS: &'static [Signal];
    /// What a server is started with.
    type Options: Default;
    /// What is needed for as long as the server runs.
    type Resident;

    /// Finds the programs, and the user to run them as.
    ///
    /// # Errors
    /// One of them is missing, or an option is not for the caller to make.
    fn find(options: Self::Options) -> Result<Self, DatabaseError>;

    /// Returns where the server's program is.
    fn path(&self) -> &Path;

    /// Makes a directory with all that a server needs.
    ///
    /// # Errors
    /// A file could not be written, or a program failed.
    fn prepare(&self) -> Result<Scratch, DatabaseError>;

    /// Returns the command that starts a server on a port, in a directory that was prepared.
    ///
    /// # Errors
    /// A file of the server's could not be written.
    fn command(&self, directory: &Path, port: u16) -> Result<Command, DatabaseError>;

    /// Connects to the server, once.
    ///
    /// # Errors
    /// It refuses, or is not there.
    fn connect(&self, directory: &Path, port: u16) -> Result<Self::Resident, Failure>;

    /// Completes a server that was started for the first time.
    ///
    /// # Errors
    /// It refuses, or is not as it should be.
    fn complete(&self, _port: u16) -> Result<(), DatabaseError> {
        Ok(())
    }

    /// Returns whether a failed connection is what a server on its way up looks like.
    fn is_starting(&self, failure: &Failure) -> bool {
        matches!(failure, Failure::Lost(_))
    }
}

/// A running private server; dropping it stops it and removes its directory.
pub struct ServerProcess<P: Program> {
    // Dropped in this order: the server ends before its directory goes.
    pub(crate) resident: P::Resident,
    process: Process,
    directory: Scratch,
    pub(crate) program: P,
    port: u16,
}

impl<P: Program> ServerProcess<P> {
    /// Returns where the server's program is.
    ///
    /// # Errors
    /// There is no program, or no user to run it as.
    pub fn find() -> Result<PathBuf, DatabaseError> {
        P::find(P::Options::default()).map(|program| program.path().to_owned())
    }

    /// Makes a directory, starts a server in it and waits until it accepts connections.
    ///
    /// # Errors
    /// See [`DatabaseError`].
    pub fn start(options: P::Options) -> Result<Self, DatabaseError> {
        let program = P::find(options)?;
        let directory = program.prepare()?;
        let mut attempt = 1;
        loop {
            let port = free_port().map_err(DatabaseError::directory(directory.path()))?;
            match start(&program, directory.path(), port) {
                Ok((process, resident)) => {
                    let server = ServerProcess { resident, process, directory, program, port };
                    server.program.complete(port)?;
                    return Ok(server);
                }
                Err(DatabaseError::Ended { log, .. })
                    if attempt < PORT_ATTEMPTS && log.contains("Address already in use") =>
                {
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the TCP port on 127.0.0.1, the same for as long as this handle lives.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the id of the server's first process.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Returns the directory that holds all of its files.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Stops the server, breaking its connections, and starts it again on the same port.
    ///
    /// # Errors
    /// It does not come back; the handle then holds a server that is down.
    pub fn restart(&mut self) -> Result<(), DatabaseError> {
        self.process.end(P::STOP_BOUND)?;
        (self.process, self.resident) = start(&self.program, self.directory.path(), self.port)?;
        Ok(())
    }

    /// Stops the server, breaking its connections, and removes its directory.
    ///
    /// # Errors
    /// The server's end could not be seen, or the directory not be removed.
    pub fn stop(self) -> Result<(), DatabaseError> {
        let ServerProcess { resident, mut process, directory, .. } = self;
        drop(resident);
        process.end(P::STOP_BOUND)?;
        let path = directory.path().to_owned();
        directory.close().map_err(DatabaseError::directory(&path))
    }
}

impl<P: Program> std::fmt::Debug for ServerProcess<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("ServerProcess");
        debug.field("process", &self.process).field("directory", &self.directory);
        debug.field("program", &self.program).field("port", &self.port).finish_non_exhaustive()
    }
}

/// Starts a server on a port, and waits until it accepts connections.
fn start<P: Program>(
    program: &P,
    directory: &Path,
    port: u16,
) -> Result<(Process, P::Resident), DatabaseError> {
    let path = directory.join("log");
    let log = File::create(&path).and_then(|log| Ok((log.try_clone()?, log)));
    let (out, err) = log.map_err(DatabaseError::directory(&path))?;
    let mut command = program.command(directory, port)?;
    command.stdout(out).stderr(err);
    let mut process = Process::start(P::NAME, command)?.stopped_by(P::STOP_SIGNALS);
    let deadline = Instant::now() + P::START_BOUND;
    loop {
        let reason = match program.connect(directory, port) {
            Ok(resident) => return Ok((process, resident)),
            Err(reason) => reason,
        };
        let log = || tail(&fs::read_to_string(&path).unwrap_or_default());
        if process.exit_status()?.is_some() {
            return Err(DatabaseError::Ended { server: P::NAME, log: log() });
        }
        if !program.is_starting(&reason) {
            return Err(DatabaseError::Unusable(reason));
        }
        if Instant::now() >= deadline {
            let (server, bound) = (P::NAME, P::START_BOUND);
            return Err(DatabaseError::NotReady { server, bound, reason, log: log() });
        }
        std::thread::sleep(POLL);
    }
}

/// Makes a directory for a server that runs as an account.
pub(crate) fn directory(
    purpose: &str,
    account: Option<&Account>,
) -> Result<Scratch, DatabaseError> {
    let directory =
        Scratch::new(purpose).map_err(DatabaseError::directory(&std::env::temp_dir()))?;
    if let Some(account) = account {
        account.own(directory.path()).map_err(DatabaseError::directory(directory.path()))?;
    }
    Ok(directory)
}

/// Returns a command run by an account in a server's directory, out of Ctrl-C's reach, which gets a
/// signal when we are gone.
pub(crate) fn command(
    program: &Path,
    signal: &str,
    directory: &Path,
    account: Option<&Account>,
) -> Command {
    let mut command = outlived_by_none(program, signal);
    command.current_dir(directory).stdin(Stdio::null()).process_group(0);
    if let Some(account) = account {
        account.run_as(&mut command);
    }
    command
}

/// Runs a program that prepares a server's directory. The error has the end of what it says.
pub(crate) fn run(program: &'static str, command: &mut Command) -> Result<(), DatabaseError> {
    let failed = |reason| DatabaseError::Prepare { program, reason };
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    Err(failed(tail(&String::from_utf8_lossy(&text))))
}

/// Returns the account that a server runs as, the first of these users: none unless we are root.
pub(crate) fn account(
    server: &'static str,
    users: &'static [&'static str],
) -> Result<Option<Account>, DatabaseError> {
    Account::needed(users).map_err(|_| DatabaseError::NoAccount { server, users })
}

/// Returns the first of these programs' paths that is a file.
pub(crate) fn first_in(
    directories: impl IntoIterator<Item = PathBuf>,
    name: &str,
) -> Option<PathBuf> {
    directories.into_iter().map(|directory| directory.join(name)).find(|path| path.is_file())
}

/// Returns a port of 127.0.0.1 on which no program listened a moment ago.
///
/// # Errors
/// The system has none.
pub fn free_port() -> io::Result<u16> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    Ok(TcpListener::bind(any)?.local_addr()?.port())
}

/// Returns the last lines of a log.
pub(crate) fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_cut_to_its_end() {
        let log = format!("first\n{}last\n", "more\n".repeat(LOG_TAIL_LINES - 1));
        assert_eq!(tail(&log), log.trim_end().replace("first\n", ""));
        assert_eq!(tail("all\n"), "all");
        assert_eq!(tail(""), "");
    }
}

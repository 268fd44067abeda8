//! Running the program, with nothing left behind.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tidegate_subject::connection::Transactional;
use tidegate_subject::postgres::{self, Postgres};
use tidegate_subject::sqlite::SqliteConnection;
use tidegate_workload::{Statement, Wants};

/// Longest time any step may take before a test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn tidegate(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(arguments).stdin(Stdio::null());
    command
}

pub(crate) fn run(arguments: &[&str]) -> Output {
    tidegate(arguments).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs a command that must be refused, and returns what it says.
pub(crate) fn refused(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    assert_eq!(text(&output.stdout), "", "{arguments:?}");
    text(&output.stderr)
}

/// A proxy that was started, killed when dropped.
pub(crate) struct Proxy {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: ChildStderr,
}

impl Proxy {
    pub(crate) fn start(arguments: &[&str]) -> Proxy {
        Proxy::start_in(arguments, &[])
    }

    /// The same, with more variables in its environment.
    pub(crate) fn start_in(arguments: &[&str], environment: &[(&str, &str)]) -> Proxy {
        let mut command = tidegate(&["proxy", "--listen", "127.0.0.1:0"]);
        command.envs(environment.iter().copied());
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = child.stderr.take().unwrap();
        Proxy { child, stdout, stderr }
    }

    /// The address in the next line of standard output, which begins with `label`.
    pub(crate) fn address(&mut self, label: &str) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let address = line.strip_prefix(label).unwrap_or_else(|| panic!("{line:?}"));
        address.trim().to_owned()
    }

    /// The next line of standard error, with its end.
    pub(crate) fn log_line(&mut self) -> String {
        let mut line = Vec::new();
        let mut byte = [0];
        while !line.ends_with(b"\n") && self.stderr.read(&mut byte).unwrap() > 0 {
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    /// How it ended, and what it wrote to standard error.
    pub(crate) fn end(&mut self) -> (ExitStatus, String) {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < PATIENCE, "the proxy does not stop");
            std::thread::sleep(Duration::from_millis(10));
        };
        let mut log = String::new();
        self.stderr.read_to_string(&mut log).unwrap();
        (status, log)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The value of a metric without labels, or of one server's only line.
pub(crate) fn metric(admin: &str, name: &str) -> String {
    let page = get(admin, "/metrics");
    let is_it = |line: &&str| line.split(['{', ' ']).next() == Some(name);
    let line = page.lines().find(is_it).unwrap_or_else(|| panic!("no {name}: {page}"));
    line.rsplit_once(' ').unwrap().1.to_owned()
}

/// Waits until `holds`.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "still not so: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A PostgreSQL of the test's own, where it is installed.
#[expect(clippy::print_stdout, reason = "why a test has nothing to do")]
pub(crate) fn server(options: postgres::Options) -> Option<Postgres> {
    if let Err(error) = Postgres::find() {
        println!("skipped: {error}");
        return None;
    }
    Some(Postgres::start(options).unwrap())
}

/// A laboratory: a directory with an experiment file, and a store.
pub(crate) struct Lab {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) store: String,
}

impl Lab {
    /// A store in a file that is not there yet.
    pub(crate) fn new(file: &str) -> Lab {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("results.db").to_str().unwrap().to_owned();
        let lab = Lab { directory, store };
        fs::write(lab.file(), file).unwrap();
        lab
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The experiment file.
    pub(crate) fn file(&self) -> String {
        self.text_path("e.toml")
    }

    pub(crate) fn text_path(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = tidegate(&["--log-level", "off", "lab", "--store", &self.store]);
        command.args(arguments).env("TMPDIR", self.directory.path());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// The end of a command that must succeed.
    pub(crate) fn done(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    pub(crate) fn open(&self) -> SqliteConnection {
        SqliteConnection::open(Path::new(&self.store), PATIENCE).unwrap()
    }
}

/// The number that a statement finds; `None` also when it fails.
pub(crate) fn number(connection: &mut dyn Transactional, sql: &str) -> Option<i64> {
    let reply = connection.run(&Statement::written(sql.to_owned()), &[], Wants::Rows);
    reply.ok()?.rows.int(0, 0)
}

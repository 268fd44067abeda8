//! The `tidegate` program as its users run it: help, errors, exit codes, start and stop.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Longest time any step may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(30);

fn tidegate(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    tidegate(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs a command that must be refused, and returns what it says.
fn refused(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    assert_eq!(text(&output.stdout), "", "{arguments:?}");
    text(&output.stderr)
}

/// A proxy that was started, killed when dropped.
struct Proxy {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: ChildStderr,
}

impl Proxy {
    fn start(arguments: &[&str]) -> Proxy {
        let mut command = tidegate(&["proxy", "--listen", "127.0.0.1:0"]);
        command
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = child.stderr.take().unwrap();
        Proxy {
            child,
            stdout,
            stderr,
        }
    }

    /// The address in the next line of standard output, which begins with `label`.
    fn address(&mut self, label: &str) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let address = line
            .strip_prefix(label)
            .unwrap_or_else(|| panic!("{line:?}"));
        address.trim().to_owned()
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    /// How it ended, and what it wrote to standard error.
    fn end(&mut self) -> (ExitStatus, String) {
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

#[test]
fn help_tells_the_commands_the_defaults_and_the_exit_codes() {
    let general = run(&["--help"]);
    assert!(general.status.success());
    let general = text(&general.stdout);
    for word in ["proxy", "load", "demo", "Exit codes:", "--log-level"] {
        assert!(general.contains(word), "{word}: {general}");
    }
    let proxy = run(&["proxy", "--help"]);
    assert!(proxy.status.success());
    // Wrapping is a matter of the terminal.
    let proxy = text(&proxy.stdout)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    for word in [
        "Examples:",
        "tidegate proxy --upstream postgres://127.0.0.1:5432",
        "--listen <ADDRESS>",
        "[default: 127.0.0.1:6432]",
        "[default: transaction]",
        "[default: hill-climbing]",
        "--min-mpl <N> The lowest limit [default: 1]",
        "--max-mpl <N> The highest limit [default: 1000]",
        "SIGTERM",
    ] {
        assert!(proxy.contains(word), "{word}: {proxy}");
    }
    for command in ["load", "demo"] {
        let output = run(&[command, "--help"]);
        assert!(output.status.success());
        assert!(text(&output.stdout).contains("[default: "), "{command}");
    }
}

#[test]
fn wrong_flags_are_refused_with_what_is_allowed() {
    let upstream = ["proxy", "--upstream", "postgres://127.0.0.1"];
    for (flags, expected) in [
        (["--mode", "statement"], "transaction or session"),
        (["--control", "fixed:0"], "fixed:N"),
        (["--listen", "localhost:1"], "127.0.0.1:6432"),
        (["--admin-listen", "9432"], "127.0.0.1:9432"),
        (["--auth", "ldap"], "trust, md5 or scram-sha-256"),
        (["--auth", "md5"], "--users-file FILE"),
        (
            ["--users-file", "/nonexistent"],
            "cannot read the user file /nonexistent",
        ),
        (["--listen", "0.0.0.0:0"], "--auth trust"),
        (
            ["--start-mpl", "2000"],
            "between min_mpl = 1 and max_mpl = 1000",
        ),
        (["--threads", "0"], "--threads"),
        (["--config", "x.toml"], "cannot be used with"),
        (["--log-level", "loud"], "--log-level"),
    ] {
        let error = refused(&[&upstream[..], &flags[..]].concat());
        assert!(error.contains(expected), "{flags:?}: {error}");
    }
    let error = refused(&["proxy"]);
    assert!(
        error.contains("--config <FILE>|--upstream <URL>"),
        "{error}"
    );
    assert!(refused(&["proxy", "--upstream", "mysql://h"]).contains("begin with postgres://"));
    assert!(refused(&["load", "--url", "mysql://h"]).contains("bad connection URL"));
    assert!(refused(&["load", "--url", "postgres://a@h", "--scale", "0"]).contains("--scale"));
    assert!(refused(&[]).contains("Usage: tidegate"));
}

#[test]
fn a_bad_configuration_file_is_named_with_the_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tidegate.toml");
    let file = path.to_str().unwrap();
    for (content, expected) in [
        ("", "there is no database"),
        ("\nthreads = 0\n", "line 2: threads = 0: "),
        (
            "[databases.shop]\nupstream = \"postgres://a:secret@h:x/d\"\n",
            "line 2: upstream",
        ),
        (
            "[databases.shop]\nupstream = \"postgres://h\"\nmdoe = 1\n",
            "unknown field `mdoe`",
        ),
    ] {
        std::fs::write(&path, content).unwrap();
        let error = refused(&["proxy", "-c", file]);
        assert!(error.starts_with(&format!("error: {file}: ")), "{error}");
        assert!(
            error.contains(expected) && !error.contains("secret"),
            "{error}"
        );
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    assert!(refused(&["proxy", "-c", "/nonexistent.toml"]).contains("No such file"));
}

#[test]
fn flags_go_before_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tidegate.toml");
    let content = "listen = [\"127.0.0.1:1\"]\n[databases.\"*\"]\n\
                   upstream = \"postgres://127.0.0.1:1\"\nstart_mpl = 7\n";
    std::fs::write(&path, content).unwrap();
    // Port 1 would be refused or taken; start_mpl would contradict the fixed limit.
    let file = ["-c", path.to_str().unwrap()];
    let flags = ["--control", "fixed:3", "--admin-listen", "127.0.0.1:0"];
    let mut proxy = Proxy::start(&[&file[..], &flags[..]].concat());
    assert_ne!(proxy.address("listening on "), "127.0.0.1:1");
    let page = get(
        &proxy.address("metrics on http://").replace("/metrics", ""),
        "/metrics",
    );
    assert!(
        page.contains("\ntidegate_limit{server=\"127.0.0.1:1\"} 3\n"),
        "{page}"
    );
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_proxy_says_where_it_listens_and_ends_well_on_a_signal() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut proxy = Proxy::start(&["--upstream", "postgres://127.0.0.1:1"]);
        let address = proxy.address("listening on ");
        TcpStream::connect(&address).unwrap();
        proxy.signal(signal);
        let (status, log) = proxy.end();
        assert_eq!(status.code(), Some(0), "{log}");
        assert!(log.contains("shutting down"), "{log}");
        assert!(
            TcpStream::connect(&address).is_err(),
            "the port is free again"
        );
    }
}

#[test]
fn an_address_in_use_is_a_failure_that_names_it() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for flag in ["--listen", "--admin-listen"] {
        let mut proxy = Proxy::start(&["--upstream", "postgres://127.0.0.1:1", flag, &address]);
        let (status, log) = proxy.end();
        assert_eq!(status.code(), Some(1), "{log}");
        assert!(log.contains(&address), "{log}");
    }
}

#[test]
fn the_example_configuration_starts() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tidegate.toml");
    let mut proxy = Proxy::start(&["-c", example.to_str().unwrap()]);
    proxy.address("listening on 127.0.0.1:");
}

#[test]
fn logging_can_be_turned_off() {
    let mut proxy = Proxy::start(&["--upstream", "postgres://127.0.0.1:1", "--log-level", "off"]);
    proxy.address("listening on ");
    proxy.signal(Signal::TERM);
    let (status, log) = proxy.end();
    assert_eq!((status.code(), log.as_str()), (Some(0), ""));
}

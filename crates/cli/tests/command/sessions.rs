//! psql's logins and the shutdown of a proxy at work, with a real server.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::Signal;
use tidegate_subject::postgres::{Authentication, Options, Postgres};

use crate::support::{Proxy, get, metric, text, wait_until};

const ADMIN: [&str; 2] = ["--admin-listen", "127.0.0.1:0"];

fn server(authentication: Authentication) -> Postgres {
    Postgres::start(Options { authentication, ..Options::default() }).unwrap()
}

/// psql from PATH or from where Debian's packages put it.
pub(crate) fn psql_program() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut programs = versions.map(|version| version.path().join("bin/psql"));
    programs.find(|program| program.is_file()).unwrap_or_else(|| "psql".into())
}

/// psql about to run `sql` as `user` through the proxy at `address`.
fn psql(address: &str, user: &str, password: &str, sql: &str) -> Command {
    let (host, port) = address.rsplit_once(':').unwrap();
    let mut command = Command::new(psql_program());
    command
        .args(["-X", "-A", "-t", "-h", host, "-p", port, "-U", user, "-d", "postgres", "-c", sql])
        .env("PGPASSWORD", password)
        .env("PGCONNECT_TIMEOUT", "20")
        .stdin(Stdio::null());
    command
}

fn proxy_at_work(server: &Postgres) -> (Proxy, String, String) {
    let mut proxy = Proxy::start(&[&["--upstream", &server.url()], &ADMIN[..]].concat());
    let address = proxy.address("listening on ");
    let admin = proxy.address("metrics on http://").replace("/metrics", "");
    (proxy, address, admin)
}

/// A psql that sleeps inside the database for `seconds`.
fn sleeper(address: &str, admin: &str, seconds: &str) -> Child {
    let sql = format!("SELECT pg_sleep({seconds})");
    let mut command = psql(address, "postgres", "", &sql);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("it runs", || metric(admin, "tidegate_permits_out") == "1");
    child
}

#[test]
fn every_secret_lets_its_user_in_by_the_methods_it_fits() {
    let server = server(Authentication::ScramSha256("server's".into()));
    // The server makes the hashes, so that its forms are what is read.
    let mut client = server.connect().unwrap();
    let mut hash = |method: &str| {
        let role = format!(
            "SET password_encryption = '{method}'; DROP ROLE IF EXISTS hashed; \
             CREATE ROLE hashed PASSWORD 'secret'"
        );
        client.query(&role).unwrap();
        client.value("SELECT rolpassword FROM pg_authid WHERE rolname = 'hashed'").unwrap()
    };
    // PostgreSQL hashes the name along with an MD5 password, so all users here have one name.
    let secrets = [
        ("secret".to_owned(), ["scram-sha-256", "md5"].as_slice()),
        (hash("md5"), &["md5"]),
        // The method md5 asks for SCRAM where the secret is a verifier, as PostgreSQL does.
        (hash("scram-sha-256"), &["scram-sha-256", "md5"]),
    ];
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("users.txt");
    let upstream = server.url();
    for (secret, methods) in secrets {
        std::fs::write(&file, format!("; a test\n\"hashed\" \"{secret}\"\n")).unwrap();
        for method in ["scram-sha-256", "md5"] {
            let users = ["--users-file", file.to_str().unwrap(), "--auth", method];
            let mut proxy = Proxy::start(&[&["--upstream", &upstream], &users[..]].concat());
            let proxy_address = proxy.address("listening on ");
            let log_in = |user: &str, password: &str| -> Output {
                psql(&proxy_address, user, password, "SELECT 42").output().unwrap()
            };
            let right = log_in("hashed", "secret");
            assert_eq!(
                (right.status.success(), text(&right.stdout).trim() == "42"),
                (methods.contains(&method), methods.contains(&method)),
                "{method} with {secret}: {}",
                text(&right.stderr)
            );
            for (user, password) in [("hashed", "guessed"), ("unknown", "secret")] {
                let wrong = log_in(user, password);
                let error = text(&wrong.stderr);
                let expected = format!("password authentication failed for user \"{user}\"");
                assert!(!wrong.status.success() && error.contains(&expected), "{error}");
            }
        }
    }
}

#[test]
fn a_running_transaction_ends_within_the_grace_time() {
    let server = server(Authentication::Trust);
    let (mut proxy, address, admin) = proxy_at_work(&server);
    let sleeper = sleeper(&address, &admin, "1");
    proxy.signal(Signal::TERM);
    let output = sleeper.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let (status, log) = proxy.end();
    assert_eq!(status.code(), Some(0), "{log}");
}

/// While it drains, clients are served as before, and only `/readyz` says otherwise.
#[test]
fn a_proxy_that_drains_serves_until_the_delay_or_a_second_signal_ends_it() {
    let server = server(Authentication::Trust);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tidegate.toml");
    for (delay, has_second_signal) in [("1s", false), ("1h", true)] {
        let upstream = server.url();
        let written = format!(
            "timeouts.drain_delay = \"{delay}\"\n[databases.\"*\"]\nupstream = \"{upstream}\"\n"
        );
        std::fs::write(&file, written).unwrap();
        let mut proxy = Proxy::start(&[&["-c", file.to_str().unwrap()], &ADMIN[..]].concat());
        let address = proxy.address("listening on ");
        let admin = proxy.address("metrics on http://").replace("/metrics", "");
        assert!(get(&admin, "/readyz").starts_with("HTTP/1.1 200 "));
        let sleeper = sleeper(&address, &admin, "2");
        proxy.signal(Signal::TERM);
        wait_until("draining", || get(&admin, "/readyz").contains(" 503 "));
        if has_second_signal {
            assert!(get(&admin, "/healthz").starts_with("HTTP/1.1 200 "));
            let new = psql(&address, "postgres", "", "SELECT 42").output().unwrap();
            assert_eq!(text(&new.stdout).trim(), "42", "{}", text(&new.stderr));
            proxy.signal(Signal::INT);
        }
        let output = sleeper.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let (status, log) = proxy.end();
        assert_eq!(status.code(), Some(0), "{log}");
    }
}

#[test]
fn a_second_signal_ends_the_grace_time() {
    let server = server(Authentication::Trust);
    let (mut proxy, address, admin) = proxy_at_work(&server);
    // Longer than anybody's patience.
    let sleeper = sleeper(&address, &admin, "600");
    proxy.signal(Signal::TERM);
    wait_until("shutting down", || get(&admin, "/healthz").contains("503"));
    proxy.signal(Signal::TERM);
    let (status, log) = proxy.end();
    assert_eq!(status.code(), Some(0), "{log}");
    let output = sleeper.wait_with_output().unwrap();
    assert!(text(&output.stderr).contains("shutting down"), "{}", text(&output.stderr));
}

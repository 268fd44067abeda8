//! Who is let in, on both sides.

use std::process::{Command, Output};

use postgres_protocol::password;
use tidegate_subject::postgres::{Authentication, Postgres};

use crate::support::server::{own_server, setup};
use crate::support::{MODES, Proxy, Wire, server};

/// Runs `psql` as a user would.
fn psql(proxy: &Proxy, user: &str, password: Option<&str>) -> Output {
    let mut command = Command::new("psql");
    let port = proxy.address.port().to_string();
    command
        .args(["-h", "127.0.0.1", "-p", &port, "-U", user, "-d", "postgres", "-w", "-X", "-At"])
        .args(["-c", "SELECT current_user"])
        .env_remove("PGPASSWORD")
        .env("PGSSLMODE", "prefer");
    if let Some(password) = password {
        command.env("PGPASSWORD", password);
    }
    command.output().unwrap()
}

fn assert_let_in(proxy: &Proxy, user: &str, password: Option<&str>) {
    let output = psql(proxy, user, password);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{user}: {errors}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "postgres\n");
}

fn assert_refused(proxy: &Proxy, user: &str, password: Option<&str>, why: &str) {
    let output = psql(proxy, user, password);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(errors.contains(why), "{user}: {errors}");
}

#[test]
fn clients_are_asked_for_their_password() {
    let server = server();
    let users = format!(
        "\"postgres\" \"right\"\n\"hashed\" \"{}\"\n\"verified\" \"{}\"\n",
        password::md5(b"right", "hashed"),
        password::scram_sha_256(b"right"),
    );
    let as_postgres = format!("postgres://postgres@127.0.0.1:{}", server.port());
    for mode in MODES {
        for method in ["md5", "scram-sha-256"] {
            let proxy = setup(&server, mode)
                .upstream(&as_postgres)
                .users(&users)
                .line(&format!("auth = \"{method}\""))
                .start();
            assert_let_in(&proxy, "postgres", Some("right"));
            let other = if method == "md5" { "hashed" } else { "verified" };
            assert_let_in(&proxy, other, Some("right"));
            for (user, password) in [("postgres", "wrong"), ("nobody", "right"), ("hashed", "no")] {
                let why = format!("password authentication failed for user \"{user}\"");
                assert_refused(&proxy, user, Some(password), &why);
            }
            assert_refused(&proxy, "postgres", None, "password");
            proxy.wait_for("tidegate_login_failures_total", 3);
            proxy.is_left_clean();
        }
        let trusting = setup(&server, mode).upstream(&as_postgres).start();
        assert_let_in(&trusting, "anybody", None);
    }
}

/// The client learns why the server did not let the proxy in.
fn assert_not_let_in(proxy: &Proxy, code: &str, why: &str) {
    let mut client = Wire::attempt(proxy.address, &[]);
    let refusal = client.login.pop().unwrap();
    assert_eq!(refusal.code(), code);
    assert!(refusal.text().contains(why), "{}", refusal.text());
    assert!(client.is_closed());
    proxy.is_left_clean();
}

#[test]
fn the_proxy_logs_in_to_the_server() {
    let secret = || String::from("right");
    for server in [
        own_server(Authentication::Md5(secret())),
        own_server(Authentication::ScramSha256(secret())),
        server_that_wants_clear_text(),
    ] {
        let place = format!("127.0.0.1:{}", server.port());
        for mode in MODES {
            let proxy = |url: &str| setup(&server, mode).upstream(&format!("postgres://{url}"));
            let with_url = proxy(&format!("postgres:right@{place}")).start();
            assert_eq!(with_url.connect().value("SELECT 1"), "1");
            let with_users = proxy(&place).users("\"postgres\" \"right\"").line("auth = \"trust\"");
            assert_eq!(with_users.start().connect().value("SELECT 1"), "1");
            let wrong = proxy(&format!("postgres:wrong@{place}")).start();
            assert_not_let_in(&wrong, "28P01", "password authentication failed");
            let without = proxy(&format!("postgres@{place}")).start();
            assert_not_let_in(&without, "08006", "the server wants");
        }
    }
}

fn server_that_wants_clear_text() -> Postgres {
    let server = own_server(Authentication::Md5("right".into()));
    let mut admin = server.connect().unwrap();
    let rules = server.directory().join("data/pg_hba.conf");
    std::fs::write(rules, "host all all 127.0.0.1/32 password\n").unwrap();
    admin.query("SELECT pg_reload_conf()").unwrap();
    server
}

/// A verifier is enough for both logins: the client's proof yields the key for the server.
#[test]
fn a_clients_proof_logs_the_proxy_in() {
    let server = own_server(Authentication::ScramSha256("right".to_owned()));
    let verifier = server
        .connect()
        .unwrap()
        .query("SELECT rolpassword FROM pg_authid WHERE rolname = 'postgres'")
        .unwrap()[0][0]
        .clone()
        .unwrap();
    let other = password::scram_sha_256(b"right");
    for mode in MODES {
        let upstream = format!("postgres://127.0.0.1:{}", server.port());
        let users = format!("\"postgres\" \"{verifier}\"\n");
        let proxy = setup(&server, mode).upstream(&upstream).users(&users).start();
        assert_refused(&proxy, "postgres", Some("wrong"), "password authentication failed");
        assert_let_in(&proxy, "postgres", Some("right"));
        proxy.is_left_clean();
        let users = format!("\"postgres\" \"{other}\"\n");
        let proxy = setup(&server, mode).upstream(&upstream).users(&users).start();
        assert_refused(&proxy, "postgres", Some("right"), "another SCRAM verifier");
        let users = format!("\"postgres\" \"{verifier}\"\n");
        let trusting = setup(&server, mode).upstream(&upstream).users(&users);
        let trusting = trusting.line("auth = \"trust\"").start();
        assert_refused(&trusting, "postgres", None, "once a client has logged in");
    }
}

//! Connections that do not log in: their number is bounded, and they keep out nobody.

use std::net::TcpStream;

use rustix::process::{Resource, getrlimit};

use crate::support::server::setup;
use crate::support::{MODES, Wire, log, server};

/// Silent connections, of which the system lets this process have both ends.
fn flood() -> usize {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(files / 4).unwrap_or(usize::MAX).min(10_000)
}

#[test]
fn silent_connections_keep_nobody_out() {
    let server = server();
    let flood = flood();
    let most = flood / 4;
    for mode in MODES {
        let proxy = setup(&server, mode)
            .upstream(&format!("postgres://postgres@127.0.0.1:{}", server.port()))
            .users("\"ann\" \"right\"\n\"postgres\" \"right\"\n")
            .line(&format!("max_logins = {most}"))
            .threads(2)
            .start();
        let mut silent: Vec<TcpStream> = Vec::with_capacity(flood);
        for number in 0..flood {
            silent.push(TcpStream::connect(proxy.address).unwrap());
            if number % (flood / 4) == 0 {
                assert_logs_in(&proxy);
            }
        }
        assert_logs_in(&proxy);
        let most = u64::try_from(most).unwrap();
        let clients = proxy.metric("tidegate_clients");
        assert!(clients <= most + 1, "{clients} of at most {most}");
        drop(silent);
        proxy.is_left_clean();
    }
}

fn assert_logs_in(proxy: &crate::support::Proxy) {
    let port = proxy.address.port().to_string();
    let output = std::process::Command::new("psql")
        .args(["-h", "127.0.0.1", "-p", &port, "-U", "ann", "-d", "postgres", "-w", "-X", "-At"])
        .args(["-c", "SELECT 1"])
        .env("PGPASSWORD", "right")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Those who have logged in do not count, and the oldest of the others is told why it goes.
#[test]
fn the_oldest_that_has_not_logged_in_is_closed() {
    let server = server();
    for mode in MODES {
        let proxy = setup(&server, mode).line("max_logins = 2").start();
        let mut first = Wire::raw(proxy.address);
        proxy.wait_for("tidegate_clients", 1);
        let mut logged_in: Vec<Wire> = (0..5).map(|_| proxy.connect()).collect();
        let second = Wire::raw(proxy.address);
        proxy.wait_for("tidegate_clients", 7);
        let third = Wire::raw(proxy.address);
        let refusal = first.receive().unwrap();
        assert_eq!(refusal.code(), "53300");
        assert!(refusal.text().contains("max_logins = 2"), "{}", refusal.text());
        assert!(first.is_closed());
        for client in &mut logged_in {
            assert_eq!(client.value("SELECT 1"), "1");
        }
        assert_eq!(proxy.metric("tidegate_login_failures_total"), 1);
        drop((logged_in, second, third));
        proxy.is_left_clean();
    }
}

/// A name is what the client likes: it begins no line of the log, and no password is in it.
#[test]
fn a_refusal_is_logged_in_one_line_without_the_password() {
    log::collect();
    let server = server();
    let proxy =
        setup(&server, "session").users("\"ann\" \"right\"\n").line("auth = \"md5\"").start();
    let user = "log-forger\n2026-01-01 INFO all is well";
    let mut wire = Wire::raw(proxy.address);
    let mut packet = Vec::new();
    let parameters = [(&b"user"[..], user.as_bytes()), (b"database", b"postgres")];
    tidegate_wire::startup::encode_startup(&mut packet, parameters);
    wire.send(&packet);
    wire.receive().unwrap();
    // The clear text, as a client sends it that takes the challenge for another one.
    wire.send(b"p\0\0\0\x13secret-of-test\0");
    assert!(wire.is_closed());
    crate::support::eventually("the line", || {
        let lines = log::lines_with("log-forger");
        (!lines.is_empty()).then_some(())
    });
    for line in log::lines_with("log-forger") {
        assert!(line.contains("all is well"), "in one line: {line}");
    }
    assert!(log::lines_with("secret-of-test").is_empty());
    proxy.is_left_clean();
}

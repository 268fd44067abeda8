//! Many clients at once: pgbench in every protocol mode, killed in the middle, and a storm of
//! connections.

use std::process::{Child, Command, Output, Stdio};

use tidegate_subject::postgres::Authentication;

use crate::support::server::{own_server, setup};
use crate::support::{MODES, Proxy, Wire, eventually, server};

fn pgbench(proxy: &Proxy, arguments: &[&str]) -> Command {
    let mut command = Command::new("pgbench");
    command
        .args(["-h", "127.0.0.1", "-p", &proxy.address.port().to_string(), "-U", "postgres"])
        .args(arguments)
        .arg("postgres")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// So many clients, for so many seconds.
pub(crate) fn run(proxy: &Proxy, clients: u32, seconds: u32, arguments: &[&str]) -> Command {
    let mut command = pgbench(proxy, arguments);
    command.args(["-n", "-j", "2", "-c", &clients.to_string(), "-T", &seconds.to_string()]);
    command
}

fn assert_no_errors(output: &Output, what: &str) {
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{what}: {err}");
    assert!(out.contains("number of failed transactions: 0"), "{what}: {out}\n{err}");
    assert!(!err.contains("error"), "{what}: {err}");
}

/// How many transactions pgbench says it has made.
fn processed(output: &Output) -> u64 {
    let out = String::from_utf8_lossy(&output.stdout);
    let name = "number of transactions actually processed: ";
    let line = out.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{out}"))
}

/// pgbench's tables on a server of the test's own, made through the proxy: it loads them by COPY.
pub(crate) fn with_tables(proxy: &Proxy) {
    let output = pgbench(proxy, &["-i", "-q"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn pgbench_in_every_protocol_mode_ends_without_errors() {
    let server = own_server(Authentication::Trust);
    with_tables(&setup(&server, "transaction").start());
    for mode in MODES {
        for protocol in ["simple", "extended", "prepared"] {
            let proxy = setup(&server, mode).threads(2).start();
            let output = run(&proxy, 200, 2, &["-M", protocol]).output().unwrap();
            assert_no_errors(&output, &format!("{mode}, {protocol}"));
            proxy.is_left_clean();
            // No transaction that pgbench counts is missing. Its look at its tables is one more.
            let (completed, counted) =
                (proxy.metric("tidegate_transactions_total"), processed(&output));
            let what = format!("{mode}, {protocol}: {completed} of {counted}");
            assert!(counted > 0 && completed >= counted, "{what}");
        }
    }
}

/// Of two pgbench processes one is killed in the middle; the other ends without errors.
#[test]
fn half_of_the_clients_are_killed() {
    let server = own_server(Authentication::Trust);
    with_tables(&setup(&server, "transaction").start());
    for mode in MODES {
        let proxy = setup(&server, mode).limit(8).threads(2).start();
        let start =
            |seconds| -> Child { run(&proxy, 100, seconds, &["-M", "prepared"]).spawn().unwrap() };
        let (mut victim, survivor) = (start(60), start(3));
        proxy.wait_for("tidegate_clients", 200);
        eventually("both run", || {
            (proxy.metric("tidegate_transactions_total") > 200).then_some(())
        });
        // SIGKILL to this very process.
        victim.kill().unwrap();
        victim.wait().unwrap();
        assert_no_errors(&survivor.wait_with_output().unwrap(), mode);
        proxy.is_left_clean();
        assert_eq!(proxy.connect().value("SELECT 1"), "1");
    }
}

#[test]
fn the_server_restarts_in_the_middle_of_a_load() {
    let mut server = own_server(Authentication::Trust);
    with_tables(&setup(&server, "transaction").start());
    for mode in MODES {
        let proxy = setup(&server, mode).limit(4).threads(2).start();
        let mut load = run(&proxy, 50, 60, &["-S"]).spawn().unwrap();
        eventually("it runs", || (proxy.metric("tidegate_transactions_total") > 100).then_some(()));
        server.restart().unwrap();
        // pgbench gives up the clients whose transaction was cut off, others it may keep.
        load.kill().unwrap();
        load.wait().unwrap();
        let output = run(&proxy, 50, 1, &["-S"]).output().unwrap();
        assert_no_errors(&output, mode);
        proxy.is_left_clean();
    }
}

#[test]
fn a_thousand_clients_connect_at_once() {
    const CLIENTS: usize = 1_000;
    let server = server();
    for mode in MODES {
        let proxy = setup(&server, mode).limit(4).threads(2).start();
        let address = proxy.address;
        let threads: Vec<_> = (0..20)
            .map(|_| {
                std::thread::spawn(move || {
                    let mut clients: Vec<Wire> =
                        (0..CLIENTS / 20).map(|_| Wire::connect(address)).collect();
                    for client in &mut clients {
                        assert_eq!(client.value("SELECT 1"), "1");
                    }
                    clients
                })
            })
            .collect();
        let clients: Vec<Vec<Wire>> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        proxy.wait_for("tidegate_clients", CLIENTS as u64);
        proxy.comes_to_rest();
        let open = proxy.metric("tidegate_upstreams_open");
        match mode {
            // Each event loop has connections of its own, and not more than the limit.
            "transaction" => assert!(open <= 2 * 4, "{open}"),
            _ => assert_eq!(open, CLIENTS as u64),
        }
        drop(clients);
        proxy.is_left_clean();
    }
}

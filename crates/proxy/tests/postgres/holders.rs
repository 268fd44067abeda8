//! Transactions that are open far longer than others do not stop the others.

use std::collections::BTreeMap;

use tidegate_control::{Algorithm, Mpl};

use crate::support::server::setup;
use crate::support::wire::{query, show};
use crate::support::{MODES, Proxy, Wire, eventually, log, server};

/// A proxy with this controller, from a limit of 4.
fn proxy(mode: &str, algorithm: Algorithm) -> Proxy {
    let start = match algorithm {
        Algorithm::Fixed(_) => "",
        _ => "\nstart_mpl = 4",
    };
    setup(&server(), mode).database_line(&format!("control = \"{algorithm}\"{start}")).start()
}

fn fixed() -> Algorithm {
    Algorithm::Fixed(Mpl::at_least_one(4))
}

/// Twenty sessions that began a transaction and left it, with every controller.
#[test]
fn beside_idle_transactions_others_run_with_every_controller() {
    let _server = server();
    for algorithm in Algorithm::ALL.into_iter().chain([fixed()]) {
        let proxy = proxy("transaction", algorithm);
        let mut idle: Vec<Wire> = (0..20)
            .map(|_| {
                let mut client = proxy.connect();
                client.send(&query("BEGIN; SELECT 1"));
                client
            })
            .collect();
        let mut other = proxy.connect();
        for _ in 0..3 {
            assert_eq!(other.value("SELECT 'other'"), "other", "{algorithm}");
        }
        // A holder is never queued again, also when others wait.
        for client in &mut idle {
            assert!(show(&client.until_ready()).ends_with("Z(T)"), "{algorithm}");
        }
        for client in &mut idle {
            assert_eq!(client.value("SELECT 'back'"), "back", "{algorithm}");
            client.query("COMMIT");
        }
        proxy.wait_for("tidegate_permits_discounted", 0);
        let (discounts, limit) =
            (proxy.metric("tidegate_discounts_total"), proxy.metric("tidegate_limit"));
        // Some controllers begin with a limit of their own.
        assert!(discounts + limit >= 20, "{algorithm}: {discounts} at a limit of {limit}");
        drop((idle, other));
        proxy.is_left_clean();
    }
}

/// Statements that run, and results that are not read, hold nobody up either.
#[test]
fn beside_long_statements_and_results_not_read_others_run() {
    let _server = server();
    let large = "SELECT repeat('x', 100000) FROM generate_series(1, 2000)";
    for mode in MODES {
        for (sql, count) in [("SELECT pg_sleep(600)", 8), (large, 20)] {
            let proxy = proxy(mode, fixed());
            let holders: Vec<Wire> = (0..count)
                .map(|_| {
                    let mut client = proxy.connect();
                    client.send(&query(sql));
                    client
                })
                .collect();
            let mut other = proxy.connect();
            assert_eq!(other.value("SELECT 'other'"), "other", "{mode}: {sql}");
            drop((holders, other));
            proxy.is_left_clean();
            assert_eq!(proxy.metric("tidegate_permits_discounted"), 0, "{mode}: {sql}");
        }
    }
}

/// With the highest limit where the limit is, it is kept whatever happens: here by a fixed limit.
#[test]
fn never_more_than_the_highest_limit_are_let_in() {
    let server = server();
    let lines = "control = \"fixed:2\"\nmax_mpl = 5";
    let proxy = setup(&server, "transaction").database_line(lines).start();
    let mut holders: Vec<Wire> = (0..8).map(|_| proxy.connect()).collect();
    for client in &mut holders {
        client.send(&query("BEGIN"));
    }
    proxy.wait_for("tidegate_permits_out", 5);
    proxy.wait_for("tidegate_permits_discounted", 3);
    assert_eq!(proxy.metric("tidegate_waiting"), 3);
    drop(holders);
    proxy.is_left_clean();
}

#[test]
fn a_warning_names_the_holder() {
    log::collect();
    let server = server();
    let proxy = setup(&server, "transaction").database_line("control = \"fixed:1\"").start();
    let mut idle = proxy.connect();
    idle.query("BEGIN");
    let mut other = proxy.connect();
    assert_eq!(other.value("SELECT 'other'"), "other");
    let mut active = proxy.connect();
    active.send(&query("SELECT pg_sleep(600)"));
    let warnings = eventually("two warnings", || {
        let address = server.port().to_string();
        let lines = log::lines_with("no longer counts against the limit");
        let mut states = BTreeMap::new();
        for line in lines.into_iter().filter(|line| line.contains(&address)) {
            for (client, state) in [(&idle, "idle in transaction"), (&active, "active")] {
                let is_it = line.contains(&client.local_address()) && line.contains(state);
                if is_it && line.contains("user=\"postgres\"") && line.contains("age_ms=") {
                    states.insert(state, line.clone());
                }
            }
        }
        (states.len() == 2).then_some(states)
    });
    assert!(warnings["active"].contains("WARN"), "{warnings:?}");
    drop((idle, other, active));
    proxy.is_left_clean();
}

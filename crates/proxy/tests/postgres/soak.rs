//! Long or large: `make soak` runs these.

use std::process::{Command, Stdio};

use crate::support::Wire;
use crate::support::server::shared;

/// Where a child process finds the proxy it connects to; only then does it do anything.
const ADDRESS: &str = "TIDEGATE_SOAK_ADDRESS";

const CLIENTS: u64 = 10_000;

/// Resident memory for each idle client, at most.
const BYTES_MAX: u64 = 20 * 1024;

/// Resident memory of this process, bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// The clients are in a process of their own: they need a descriptor each, and so does the proxy.
#[test]
#[ignore = "soak: 10,000 clients"]
fn ten_thousand_idle_clients() {
    let proxy = shared("transaction").limit(4).threads(2).start();
    proxy.connect().query("SELECT 1");
    proxy.wait_for("tidegate_clients", 0);
    let before = resident();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "soak::hold_idle_clients", "--include-ignored"])
        .env(ADDRESS, proxy.address.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    proxy.wait_for("tidegate_clients", CLIENTS);
    let each = resident().saturating_sub(before) / CLIENTS;
    // It ends with its standard input.
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    println!("{each} bytes of resident memory for each of {CLIENTS} idle clients");
    assert!(each <= BYTES_MAX, "{each} bytes");
    proxy.is_left_clean();
}

/// The child's part: each client has run a transaction before it rests.
#[test]
#[ignore = "soak: the clients of ten_thousand_idle_clients"]
fn hold_idle_clients() {
    let Ok(address) = std::env::var(ADDRESS) else {
        return;
    };
    let address = address.parse().unwrap();
    let clients: Vec<Wire> = (0..CLIENTS)
        .map(|_| {
            let mut client = Wire::connect(address);
            assert_eq!(client.value("SELECT 1"), "1");
            client
        })
        .collect();
    std::io::stdin().read_line(&mut String::new()).unwrap();
    drop(clients);
}

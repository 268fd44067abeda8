//! Start, flags over the file, and stop.

use std::net::TcpStream;
use std::path::Path;

use rustix::process::Signal;

use crate::support::{Proxy, get};

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
    let page = get(&proxy.address("metrics on http://").replace("/metrics", ""), "/metrics");
    assert!(page.contains("\ntidegate_limit{server=\"127.0.0.1:1\"} 3\n"), "{page}");
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
        assert!(TcpStream::connect(&address).is_err(), "the port is free again");
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

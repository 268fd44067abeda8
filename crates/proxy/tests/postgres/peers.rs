//! Cancel requests that reach another instance than the client's, and keys of protocol 3.2.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use tidegate_wire::backend::{self, tag};
use tidegate_wire::startup::{self, CancelKey, FirstPacket};

use crate::support::server::setup;
use crate::support::wire::{cancel, query, show};
use crate::support::{MODES, Proxy, Wire, eventually, server};

/// An address on which nothing listens now.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// A start-up packet of another minor version, or with more parameters.
fn start_up(version: u32, more: &[(&str, &str)]) -> Vec<u8> {
    let all = [("user", "postgres"), ("database", "postgres")].into_iter();
    let all = all.chain(more.iter().copied());
    let mut packet = Vec::new();
    startup::encode_startup(&mut packet, all.map(|(n, v)| (n.as_bytes(), v.as_bytes())));
    packet[4..8].copy_from_slice(&version.to_be_bytes());
    packet
}

fn connect_with(address: SocketAddr, packet: &[u8]) -> Wire {
    let mut wire = Wire::raw(address);
    wire.send(packet);
    wire.login = wire.until_ready();
    assert_eq!(wire.login.last().unwrap().tag, tag::READY_FOR_QUERY, "{:?}", wire.login);
    wire
}

fn wait_until_asleep(marker: &str) {
    let mut watcher = server().connect().unwrap();
    let sql = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' \
         AND query LIKE '%{marker}%' AND pid <> pg_backend_pid()"
    );
    eventually("the query runs", || (watcher.value(&sql).unwrap() != "0").then_some(()));
}

/// Runs a query that a cancel request at `other` has to end.
fn is_cancelled_at(client: &mut Wire, other: SocketAddr, marker: &str) {
    client.send(&query(&format!("SELECT pg_sleep(600) /* {marker} */")));
    wait_until_asleep(marker);
    cancel(other, &client.key());
    assert!(show(&client.until_ready()).ends_with("E(57014) Z(I)"));
    assert_eq!(client.value("SELECT 'goes on'"), "goes on");
}

#[test]
fn a_cancel_request_at_another_instance_reaches_the_client() {
    let server = server();
    for mode in MODES {
        // The first learns the address of the second by the table; the second starts first.
        let address = free_address();
        let start = |id: u8, peers: &str| -> Proxy {
            let peers = format!("peers = {{ id = {id}, addresses = {{ {peers} }} }}");
            setup(&server, mode).limit(2).threads(2).line(&peers).start()
        };
        let second = start(2, &format!("1 = \"{address}\""));
        let first = start(1, &format!("1 = \"{address}\", 2 = \"{}\"", second.address));
        for version in [startup::PROTOCOL_3_0, startup::PROTOCOL_3_2] {
            let mut client = connect_with(second.address, &start_up(version, &[]));
            let marker = format!("peers {mode} {version}");
            is_cancelled_at(&mut client, first.address, &marker);
            // At its own instance, too; and one that nobody listens for is dropped.
            is_cancelled_at(&mut client, second.address, &marker);
            let mut other = first.connect();
            cancel(second.address, &other.key());
            assert_eq!(other.value("SELECT 1"), "1");
        }
        assert_eq!(first.metric("tidegate_cancel_requests_forwarded_total"), 2);
        first.is_left_clean();
        second.is_left_clean();
    }
}

/// Two instances whose tables are wrong do not send a request to and fro.
#[test]
fn a_cancel_request_is_forwarded_once() {
    let server = server();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let peers = format!("peers = {{ id = 1, addresses = {{ 2 = \"{address}\" }} }}");
    let first = setup(&server, "transaction").line(&peers).start();
    let own = first.connect().key();
    let other = CancelKey { process_id: own.process_id ^ (3 << 25), secret: own.secret };
    let asked = {
        let (address, key) = (first.address, other.clone());
        std::thread::spawn(move || cancel(address, &key))
    };
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut packet = [0; 16];
    stream.read_exact(&mut packet).unwrap();
    let received = startup::first_packet(&packet).unwrap().unwrap().0;
    let FirstPacket::Cancel(received) = received else { panic!("{received:?}") };
    assert_eq!(received.secret, other.secret);
    assert_ne!(received.process_id, other.process_id, "marked as forwarded");
    assert!(!asked.is_finished(), "it waits for the other instance");
    drop(stream);
    asked.join().unwrap();
    // The other sends it back, which ends it.
    cancel(first.address, &received);
    assert_eq!(first.metric("tidegate_cancel_requests_forwarded_total"), 1);
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "it was forwarded again");
    first.is_left_clean();
}

/// Options of the protocol, and their values.
type Options<'a> = &'a [(&'a str, &'a str)];

#[test]
fn keys_have_the_length_of_the_protocol() {
    let server = server();
    for mode in MODES {
        let proxy = setup(&server, mode).limit(2).start();
        let later = startup::PROTOCOL_3_0 + 99;
        let unknown = [("_pq_.none", "x")];
        let table: [(u32, Options<'_>, usize, Option<u32>); 5] = [
            (startup::PROTOCOL_3_0, &[], 4, None),
            (startup::PROTOCOL_3_0, &unknown, 4, Some(startup::PROTOCOL_3_0)),
            (startup::PROTOCOL_3_2, &[], 32, None),
            (startup::PROTOCOL_3_2, &unknown, 32, Some(startup::PROTOCOL_3_2)),
            (later, &[], 32, Some(startup::PROTOCOL_3_2)),
        ];
        for (asked, options, secret_len, told) in table {
            let mut client = connect_with(proxy.address, &start_up(asked, options));
            assert_eq!(client.key().secret.len(), secret_len, "{asked:#x}");
            let first = &client.login[0];
            let is_told = (first.tag == tag::NEGOTIATE_PROTOCOL)
                .then(|| u32::from_be_bytes(first.payload[..4].try_into().unwrap()));
            assert_eq!(is_told, told, "{asked:#x}");
            is_cancelled_at(&mut client, proxy.address, &format!("keys {mode} {asked}"));
            let mut short = client.key();
            short.secret = short.secret[..4].into();
            if secret_len > 4 {
                cancel(proxy.address, &short);
            }
        }
        proxy.is_left_clean();
    }
}

/// A server of the test's own: it lets the proxy in with this key, or none, and answers every query
/// once it has been asked to cancel, or at once. Returns the keys of the cancel requests.
fn serve(listener: &TcpListener, key: Option<&CancelKey>) -> CancelKey {
    let mut packet = [0; 1_000];
    let (mut stream, _) = listener.accept().unwrap();
    assert!(stream.read(&mut packet).unwrap() > 8);
    let mut out = b"R\0\0\0\x08\0\0\0\0".to_vec();
    if let Some(key) = key {
        backend::encode_backend_key_data(&mut out, key);
    }
    backend::encode_ready_for_query(&mut out, backend::TransactionStatus::Idle);
    stream.write_all(&out).unwrap();
    assert!(stream.read(&mut packet).unwrap() > 5, "a query");
    let asked = key.map(|_| {
        let (mut cancelling, _) = listener.accept().unwrap();
        let len = cancelling.read(&mut packet).unwrap();
        match startup::first_packet(&packet[..len]).unwrap().unwrap().0 {
            FirstPacket::Cancel(key) => key,
            other => panic!("{other:?}"),
        }
    });
    let mut out = b"C\0\0\0\x09DONE\0".to_vec();
    backend::encode_ready_for_query(&mut out, backend::TransactionStatus::Idle);
    stream.write_all(&out).unwrap();
    let _ = stream.read(&mut packet);
    asked.unwrap_or(CancelKey { process_id: 0, secret: [0; 4].into() })
}

/// The longest key that a server may give comes back to it whole; without a key nothing can be
/// cancelled, and all else works.
#[test]
fn a_server_with_a_long_key_and_one_without() {
    let server = server();
    for mode in MODES {
        let long = CancelKey { process_id: 77, secret: (0..=255).collect() };
        for key in [Some(long), None] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("postgres://{}?sslmode=disable", listener.local_addr().unwrap());
            let expected = key.clone();
            let serving = std::thread::spawn(move || serve(&listener, key.as_ref()));
            // A server whose bound is known is not asked for it.
            let setup = setup(&server, mode).upstream(&url);
            let proxy = setup.database_line("max_connections = 9").start();
            let mut client = proxy.connect();
            client.send(&query("SELECT 1"));
            if expected.is_some() {
                proxy.wait_for("tidegate_permits_out", 1);
                cancel(proxy.address, &client.key());
            }
            assert_eq!(show(&client.until_ready()), "C(DONE) Z(I)", "{mode}");
            drop(client);
            drop(proxy);
            let asked = serving.join().unwrap();
            if let Some(expected) = expected {
                assert_eq!(asked, expected, "{mode}");
            }
        }
    }
}

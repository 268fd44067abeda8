//! Peers that are no PostgreSQL clients, or bad ones: told so or closed, logged once, and nobody
//! else notices.

use std::net::TcpListener;

use tidegate_wire::backend::tag;

use crate::support::server::setup;
use crate::support::wire::{SYNC, copy_data, extended, parse, query, show};
use crate::support::{MODES, Proxy, Wire, log, server};

/// Proxies that lose patience soon.
fn impatient(test: impl Fn(&Proxy)) {
    log::collect();
    let server = server();
    for mode in MODES {
        let short = "{ login = \"300ms\", message = \"300ms\", connect = \"1s\" }";
        let proxy = setup(&server, mode).limit(2).line(&format!("timeouts = {short}")).start();
        let mut bystander = proxy.connect();
        bystander.query("BEGIN");
        test(&proxy);
        assert_eq!(bystander.value("SELECT 'unharmed'"), "unharmed");
        bystander.query("COMMIT");
        drop(bystander);
        proxy.is_left_clean();
    }
}

/// The last words of a peer that is about to be closed: the code of its error.
fn last_words(wire: &mut Wire) -> Option<(String, String)> {
    let last = wire.until(0).pop()?;
    assert_eq!(last.tag, tag::ERROR);
    Some((last.code(), last.text()))
}

#[test]
fn first_bytes_that_are_no_packet() {
    impatient(|proxy| {
        let tls = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
        let inputs: [&[u8]; 6] = [
            b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n",
            tls,
            b"\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\x80\0\0\0\0\x03\0\0",
            b"\0\0\0\x08\0\x02\0\0",
            b"\0\0\0\0",
        ];
        for input in inputs {
            let mut wire = Wire::raw(proxy.address);
            wire.send(input);
            let (code, text) = last_words(&mut wire).unwrap();
            assert_eq!(code, "08P01", "{text}");
        }
        proxy.wait_for("tidegate_protocol_errors_total", 6);
    });
}

#[test]
fn one_line_is_logged() {
    impatient(|proxy| {
        // A length nobody else in these tests uses.
        let before = log::lines_with("1234567890").len();
        let mut wire = Wire::raw(proxy.address);
        wire.send(&1_234_567_890_u32.to_be_bytes());
        wire.send(&[0; 4]);
        assert!(wire.is_closed());
        assert_eq!(log::lines_with("1234567890").len(), before + 1);
    });
}

#[test]
fn a_start_up_packet_without_a_user_or_with_a_wrong_form() {
    impatient(|proxy| {
        let packets: [(&[u8], &str); 3] = [
            (b"\0\0\0\x09\0\x03\0\0\0", "28000"),
            (b"\0\0\0\x0d\0\x03\0\0user\0", "08P01"),
            (b"\0\0\0\x10\0\x03\0\0user\0\xff\0\0", "08P01"),
        ];
        for (packet, expected) in packets {
            let mut wire = Wire::raw(proxy.address);
            wire.send(packet);
            let (code, text) = last_words(&mut wire).unwrap();
            assert_eq!(code, expected, "{text}");
        }
    });
}

#[test]
fn silence_before_and_within_messages() {
    impatient(|proxy| {
        for packet in [&b""[..], b"\0\0", b"\0\0\0\x20\0\x03\0\0us"] {
            let mut wire = Wire::raw(proxy.address);
            wire.send(packet);
            let (code, text) = last_words(&mut wire).unwrap();
            assert_eq!(code, "08P01");
            assert!(text.contains("within the"), "{text}");
        }
        let long = query(&format!("SELECT '{}'", "x".repeat(100_000)));
        for bytes in [&query("SELECT 1")[..3], &query("SELECT 1")[..8], &long[..50_000]] {
            let mut wire = proxy.connect();
            wire.send(bytes);
            let (code, text) = last_words(&mut wire).unwrap();
            assert_eq!(code, "08P01");
            assert!(text.contains("message timeout"), "{text}");
        }
    });
}

#[test]
fn lengths_that_lie_and_types_that_are_none() {
    impatient(|proxy| {
        let inputs: [&[u8]; 10] = [
            b"S\0\0\x10\0",
            b"S\0\0\0\x05",
            b"H\0\0\x10\0",
            b"c\0\0\x10\0",
            b"X\0\0\x10\0",
            b"Q\x80\0\0\0SELECT",
            b"Q\x7f\xff\xff\xffSELECT",
            b"Q\0\0\0\x03",
            b"p\0\0\0\x05\0",
            b"!\0\0\0\x04",
        ];
        for (begin, input) in inputs.into_iter().flat_map(|input| [("", input), ("BEGIN", input)]) {
            let mut wire = proxy.connect();
            wire.query(begin);
            wire.send(input);
            let (code, text) = last_words(&mut wire).unwrap();
            assert_eq!(code, "08P01", "{text}");
        }
    });
}

/// A named Parse and a message of a running transaction are cut off as well.
#[test]
fn half_a_message_in_a_transaction() {
    impatient(|proxy| {
        for bytes in [parse("s", &"x".repeat(50_000)), copy_data(&vec![b'1'; 50_000])] {
            let mut wire = proxy.connect();
            wire.query("BEGIN");
            wire.send(&bytes[..30_000]);
            let (code, _) = last_words(&mut wire).unwrap();
            assert_eq!(code, "08P01");
        }
    });
}

#[test]
fn an_unknown_database() {
    let server = server();
    for mode in MODES {
        let proxy = setup(&server, mode).start();
        let mut wire = Wire::attempt(proxy.address, &[("database", "nowhere")]);
        assert_eq!(wire.login.pop().unwrap().code(), "3D000", "the server knows none");
        assert!(wire.is_closed());
        proxy.is_left_clean();
        let proxy = setup(&server, mode).only("shop").start();
        let mut wire = Wire::attempt(proxy.address, &[("database", "nowhere")]);
        let refusal = wire.login.pop().unwrap();
        assert_eq!(refusal.code(), "3D000", "the proxy knows none");
        assert!(refusal.text().contains("nowhere"), "{}", refusal.text());
        proxy.is_left_clean();
    }
}

#[test]
fn an_upstream_that_is_down() {
    let server = server();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for mode in MODES {
        let proxy = setup(&server, mode)
            .upstream(&format!("postgres://{closed}"))
            .line("timeouts.server_down = \"off\"")
            .start();
        for _ in 0..2 {
            let mut wire = Wire::attempt(proxy.address, &[]);
            let refusal = wire.login.pop().unwrap();
            assert_eq!(refusal.code(), "08006");
            assert!(refusal.text().contains(&closed.to_string()), "{}", refusal.text());
            assert!(wire.is_closed());
        }
        assert!(proxy.metric("tidegate_upstream_connect_failures_total") >= 1);
    }
}

/// It accepts and says nothing; the client is told after the connect timeout.
#[test]
fn an_upstream_that_is_silent() {
    let server = server();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://{}", silent.local_addr().unwrap());
    for mode in MODES {
        let lines = "timeouts.connect = \"300ms\"\ntimeouts.server_down = \"off\"";
        let proxy = setup(&server, mode).upstream(&url).line(lines).start();
        let mut wire = Wire::attempt(proxy.address, &[]);
        let refusal = wire.login.pop().unwrap();
        assert_eq!(refusal.code(), "08006");
        assert!(refusal.text().contains("connect timeout"), "{}", refusal.text());
        proxy.is_left_clean();
    }
}

/// What asks for encryption or a newer protocol is answered, and goes on.
#[test]
fn what_is_not_offered_is_declined() {
    let server = server();
    for mode in MODES {
        let proxy = setup(&server, mode).start();
        let mut wire = Wire::raw(proxy.address);
        for request in [80_877_103_u32, 80_877_104] {
            wire.send(&[8_u32.to_be_bytes(), request.to_be_bytes()].concat());
            assert_eq!(wire.byte(), b'N');
        }
        let packet = b"\0\x03\0\x02user\0postgres\0database\0postgres\0_pq_.none\0x\0\0";
        let length = u32::try_from(packet.len() + 4).unwrap();
        wire.send(&[&length.to_be_bytes()[..], packet].concat());
        let seen = wire.until_ready();
        let tags: Vec<u8> = seen.iter().map(|message| message.tag).collect();
        assert!(tags.starts_with(&[tag::NEGOTIATE_PROTOCOL, tag::AUTHENTICATION]), "{tags:?}");
        assert!(show(&seen).contains("_pq_.none"));
        assert_eq!(
            wire.run(&[extended("SELECT 1"), SYNC.to_vec()].concat()).chars().last(),
            Some(')')
        );
        let mut replication = Wire::attempt(proxy.address, &[("replication", "perhaps")]);
        assert_eq!(replication.login.pop().unwrap().code(), "22023");
    }
}

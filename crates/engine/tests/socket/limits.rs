//! Limits of a connection, and of how many there are.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use tidegate_engine::{
    Client, ClientError, ClientOptions, ConnectionEnd, FailureKind, GoodbyeReason, Listener,
    ListenerOptions, ServerOptions,
};
use tidegate_gate::Class;

use crate::house::{House, any_port, beside_others, connect, end, failure, wait_until};
use crate::raw::{assert_at_end, done, raw, read_frame, request, welcomed};

#[test]
fn a_client_that_does_not_read_is_not_read() {
    let _guard = beside_others();
    let house = House::new(2, ServerOptions::default());
    let options =
        ListenerOptions { frame_len_max: 64 << 10, under_way_max: 4, ..Default::default() };
    let listener = house.listen(options);
    let mut stream = welcomed(&listener);
    let answer_len = 32_000_u32;
    let total = 2_000_u64;
    let requests = (0..total).flat_map(|id| request(id, "long", &answer_len.to_le_bytes()));
    stream.write_all(&requests.collect::<Vec<u8>>()).unwrap();
    // Until nothing more happens.
    let mut before = 0;
    loop {
        thread::sleep(Duration::from_millis(100));
        let now = house.runs.load(Ordering::SeqCst);
        if now == before && now > 2 {
            break;
        }
        before = now;
    }
    // One frame, what is under way, and a megabyte in the buffers of the socket.
    assert!(before < 40, "{before} answers are kept");
    let mut other = connect(&listener);
    assert_eq!(other.call("echo", b"fine", Class::Normal).unwrap(), b"fine");
    let mut seen: Vec<u64> = Vec::new();
    for _ in 0..total {
        let frame = read_frame(&mut stream);
        let (id, answer) = done(&frame);
        assert_eq!(answer.len(), 32_000);
        seen.push(id);
    }
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..total), "each is answered once");
}

#[test]
fn one_connection_has_no_more_requests_under_way_than_it_may() {
    let _guard = beside_others();
    let house = House::new(1, ServerOptions::default());
    let listener = house.listen(ListenerOptions { under_way_max: 3, ..Default::default() });
    let mut client = connect(&listener);
    let ids: Vec<_> = (0..10).map(|_| client.send("hold", b"x", Class::Normal).unwrap()).collect();
    let under_way = || {
        let gate = house.server.gate();
        (gate.outstanding, gate.waiting)
    };
    wait_until("three are taken", || under_way() == (1, 2));
    // A turn of the event loop later it has not taken another.
    let mut other = connect(&listener);
    assert_eq!(failure(other.call("none", b"", Class::Normal)), FailureKind::NoProcedure);
    assert_eq!(under_way(), (1, 2));
    house.latch.open();
    for id in ids {
        assert_eq!(client.receive(id).unwrap(), b"x");
    }
}

#[test]
fn one_connection_too_many_is_told_so() {
    let _guard = beside_others();
    let house = House::new(1, ServerOptions::default());
    for endpoint in [house.unix(), any_port()] {
        let options = ListenerOptions { connections_max: 2, ..Default::default() };
        let listener = house.listen_on(&endpoint, options);
        let (first, mut second) = (connect(&listener), connect(&listener));
        for _ in 0..100 {
            let third = Client::connect(listener.endpoint(), ClientOptions::default());
            assert!(matches!(third, Err(ClientError::TooManyConnections)), "{third:?}");
        }
        assert_eq!(second.call("echo", b"in", Class::Normal).unwrap(), b"in");
        drop(first);
        wait_until("there is room", || listener.connections() == 1);
        assert_eq!(connect(&listener).call("echo", b"in", Class::Normal).unwrap(), b"in");
    }
}

#[test]
fn who_says_nothing_is_disconnected() {
    let _guard = beside_others();
    let house = House::new(1, ServerOptions::default());
    let short = Duration::from_millis(300);
    let options = ListenerOptions {
        handshake_timeout: short,
        idle_timeout: Some(short),
        ..Default::default()
    };
    let listener = house.listen(options);
    let mut silent = raw(&listener);
    let mut stutters = raw(&listener);
    stutters.write_all(b"tg-ca").unwrap();
    assert_at_end(&mut silent);
    assert_at_end(&mut stutters);
    // What runs is not quiet, however long it takes.
    let mut client = connect(&listener);
    let held = client.send("hold", b"held", Class::Normal).unwrap();
    thread::sleep(2 * short);
    house.latch.open();
    assert_eq!(client.receive(held).unwrap(), b"held");
    wait_until("it is sent away", || listener.connections() == 0);
    let ConnectionEnd::Goodbye { reason, text } = end(&mut client) else { panic!() };
    assert_eq!(reason, GoodbyeReason::Idle);
    assert_eq!(text, "nothing was asked for 300ms; connect again");
}

#[test]
fn options_out_of_bounds_are_named() {
    let _guard = beside_others();
    let house = House::new(1, ServerOptions::default());
    let sound = ListenerOptions::default();
    let cases = [
        (ListenerOptions { connections_max: 0, ..sound }, "connections_max cannot be 0"),
        (ListenerOptions { under_way_max: 0, ..sound }, "under_way_max cannot be 0"),
        (ListenerOptions { frame_len_max: 2_047, ..sound }, "frame_len_max cannot be 2047"),
        (ListenerOptions { frame_len_max: u32::MAX, ..sound }, "cannot be 4294967295"),
    ];
    for (options, expected) in cases {
        let started = Listener::start(Arc::clone(&house.server), &house.unix(), options);
        let Err(error) = started.map(|_| ()) else { panic!("{options:?}") };
        assert!(error.to_string().contains(expected), "{error}");
        assert!(!house.path().exists());
    }
}

//! What is asked is answered: over both kinds of socket, in whatever order, to many at once.

use std::collections::HashMap;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use tidegate_engine::{
    Client, ClientError, ClientOptions, FailureKind, ListenerOptions, ServerOptions,
};
use tidegate_gate::Class;

use crate::house::{House, any_port, beside_others, connect, failure, wait_until};

#[test]
fn each_answer_comes_over_both_kinds_of_socket() {
    let _guard = beside_others();
    let options = ServerOptions { retries_max: 2, ..ServerOptions::default() };
    let house = House::new(2, options);
    for endpoint in [house.unix(), any_port()] {
        let frame_len_max = 10_000;
        let listener =
            house.listen_on(&endpoint, ListenerOptions { frame_len_max, ..Default::default() });
        let mut client = connect(&listener);
        let mut call = |name: &str, arguments: &[u8]| client.call(name, arguments, Class::Normal);
        assert_eq!(call("echo", b"").unwrap(), b"");
        assert_eq!(call("echo", &[7; 9_000]).unwrap(), [7; 9_000]);
        assert_eq!(failure(call("subtract", b"")), FailureKind::NoProcedure);
        assert_eq!(failure(call("", b"")), FailureKind::NoProcedure);
        assert_eq!(failure(call("add", &[7; 5_000])), FailureKind::Failed);
        assert_eq!(failure(call("panic", b"")), FailureKind::Panicked);
        assert_eq!(failure(call("conflict", b"")), FailureKind::Conflict);
        assert_eq!(call("long", &9_991_u32.to_le_bytes()).unwrap().len(), 9_991);
        let too_long = call("long", &9_992_u32.to_le_bytes());
        assert_eq!(failure(too_long), FailureKind::AnswerTooLong);
        let Err(ClientError::TooLong(what)) = call("echo", &[7; 10_000]) else { panic!() };
        assert_eq!((what.len, what.max), (10_015, 10_000));
        assert_eq!(call("echo", b"still there").unwrap(), b"still there");
    }
}

#[test]
fn who_waits_too_long_or_is_one_too_many_is_told() {
    let _guard = beside_others();
    let options = ServerOptions {
        waiting_max: 1,
        queue_timeout: Some(Duration::from_millis(300)),
        ..ServerOptions::default()
    };
    let house = House::new(1, options);
    let listener = house.listen(ListenerOptions::default());
    let mut client = connect(&listener);
    let held = client.send("hold", b"held", Class::Normal).unwrap();
    wait_until("the first runs", || house.server.gate().outstanding == 1);
    let waiting = client.send("echo", b"", Class::Normal).unwrap();
    // These are refused on the thread of the event loop itself.
    let refused: Vec<_> =
        (0..50).map(|_| client.send("echo", b"", Class::Normal).unwrap()).collect();
    let kinds: Vec<_> = refused.into_iter().map(|id| failure(client.receive(id))).collect();
    let is_full = |kind: &&FailureKind| **kind == FailureKind::Full;
    // The one that waits may be over its time by then, and another wait in its place.
    assert!(kinds.iter().filter(is_full).count() >= 40, "{kinds:?}");
    assert_eq!(failure(client.receive(waiting)), FailureKind::Expired);
    house.latch.open();
    assert_eq!(client.receive(held).unwrap(), b"held");
}

#[test]
fn two_hundred_clients_count_every_call_once_whatever_conflicts_there_are() {
    let _guard = beside_others();
    let house = House::new(8, ServerOptions::default());
    let listener = house.listen_on(&any_port(), ListenerOptions::default());
    let all_there = Barrier::new(200);
    thread::scope(|scope| {
        for number in 0..200 {
            let (listener, all_there) = (&listener, &all_there);
            let client = thread::Builder::new().stack_size(256 * 1024);
            let run = move || {
                let mut client = connect(listener);
                all_there.wait();
                let class = if number % 2 == 0 { Class::High } else { Class::Normal };
                for _ in 0..5 {
                    client.call("add", b"one", class).unwrap();
                    assert_eq!(client.call("echo", &[number], class).unwrap(), [number]);
                }
            };
            client.spawn_scoped(scope, run).unwrap();
        }
    });
    assert_eq!(house.count(b"one"), 1_000);
    wait_until("all have gone", || listener.connections() == 0);
    assert_eq!(house.server.gate().outstanding, 0);
}

#[test]
fn answers_come_by_number_in_whatever_order() {
    let _guard = beside_others();
    let house = House::new(4, ServerOptions::default());
    let listener = house.listen(ListenerOptions::default());
    let mut client = connect(&listener);
    let held = client.send("hold", b"held", Class::Normal).unwrap();
    let echoes: Vec<_> = (0..100_u8)
        .map(|byte| (client.send("echo", &[byte], Class::Normal).unwrap(), byte))
        .collect();
    for (id, byte) in echoes.iter().rev().take(50) {
        assert_eq!(client.receive(*id).unwrap(), [*byte]);
    }
    let mut left: HashMap<_, _> = echoes.into_iter().take(50).collect();
    while !left.is_empty() {
        let (id, answer) = client.receive_any().unwrap().unwrap();
        assert_eq!(answer.unwrap(), [left.remove(&id).unwrap()]);
        assert!(matches!(client.receive(id), Err(ClientError::NotUnderWay(again)) if again == id));
    }
    house.latch.open();
    assert_eq!(client.receive_any().unwrap().unwrap(), (held, Ok(b"held".to_vec())));
    assert!(client.receive_any().unwrap().is_none());
}

#[test]
fn an_answer_that_takes_long_can_be_waited_for_again() {
    let _guard = beside_others();
    let house = House::new(1, ServerOptions::default());
    let listener = house.listen(ListenerOptions::default());
    let answer_timeout = Some(Duration::from_millis(20));
    let options = ClientOptions { answer_timeout, ..Default::default() };
    let mut client = Client::connect(listener.endpoint(), options).unwrap();
    let held = client.send("hold", b"held", Class::Normal).unwrap();
    assert!(matches!(client.receive(held), Err(ClientError::TimedOut)));
    assert!(matches!(client.receive_any(), Err(ClientError::TimedOut)));
    house.latch.open();
    let answer = loop {
        match client.receive(held) {
            Err(ClientError::TimedOut) => {}
            other => break other.unwrap(),
        }
    };
    assert_eq!(answer, b"held");
}

#[test]
fn a_client_that_sends_much_reads_meanwhile() {
    let _guard = beside_others();
    let house = House::new(2, ServerOptions::default());
    let options = ListenerOptions { frame_len_max: 300_000, ..Default::default() };
    let listener = house.listen(options);
    let mut client = connect(&listener);
    // 25 MB each way; a socket's buffers hold less than one.
    let arguments = vec![1; 250_000];
    let ids: Vec<_> =
        (0..100).map(|_| client.send("echo", &arguments, Class::Normal).unwrap()).collect();
    for id in ids {
        assert!(client.receive(id).unwrap() == arguments, "another answer");
    }
}

//! Beginning to listen, and stopping: addresses, goodbyes, and nothing left behind.

use std::fs;
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, PoisonError};
use std::thread;
use std::time::Duration;

use tidegate_engine::{
    Client, ClientError, ClientOptions, ConnectionEnd, Endpoint, GoodbyeReason, ListenError,
    Listener, ListenerOptions, ServerOptions,
};
use tidegate_gate::Class;

use crate::house::{House, PATIENCE, PROCESS, any_port, beside_others, connect, end, wait_until};
use crate::raw::{assert_at_end, raw};

#[test]
fn an_address_can_be_used_again_at_once() {
    let _guard = beside_others();
    let house = House::new(1, ServerOptions::default());
    let mut endpoint = any_port();
    for round in 0..5 {
        let listener = house.listen_on(&endpoint, ListenerOptions::default());
        endpoint = listener.endpoint().clone();
        let mut client = connect(&listener);
        assert_eq!(client.call("echo", &[round], Class::Normal).unwrap(), [round]);
        drop(listener);
        let Endpoint::Tcp(address) = endpoint else { panic!() };
        assert!(TcpStream::connect(address).is_err(), "nobody listens");
    }
    for round in 0..5 {
        let listener = house.listen(ListenerOptions::default());
        assert_eq!(connect(&listener).call("echo", &[round], Class::Normal).unwrap(), [round]);
        drop(listener);
        assert!(!house.path().exists());
    }
}

#[test]
fn a_socket_file_is_replaced_only_if_nobody_listens() {
    let _guard = beside_others();
    let house = House::new(1, ServerOptions::default());
    let refused = || {
        let options = ListenerOptions::default();
        let refused = Listener::start(Arc::clone(&house.server), &house.unix(), options);
        matches!(refused, Err(ListenError::Bind { .. }))
    };
    // As a killed process leaves it.
    drop(UnixListener::bind(house.path()).unwrap());
    assert!(house.path().exists());
    let listener = house.listen(ListenerOptions::default());
    connect(&listener).call("echo", b"", Class::Normal).unwrap();
    assert!(refused(), "there is one that listens");
    connect(&listener).call("echo", b"", Class::Normal).unwrap();
    // What another has put in its place stays.
    fs::remove_file(house.path()).unwrap();
    fs::write(house.path(), "a file").unwrap();
    drop(listener);
    assert!(refused(), "a file is none of ours");
    assert_eq!(fs::read(house.path()).unwrap(), b"a file");
}

#[test]
fn a_stop_lets_what_was_taken_end_and_says_goodbye() {
    let _guard = beside_others();
    let house = House::new(1, ServerOptions::default());
    let listener = house.listen(ListenerOptions {
        under_way_max: 2,
        stop_timeout: PATIENCE,
        ..Default::default()
    });
    let (mut busy, mut idle) = (connect(&listener), connect(&listener));
    let mut silent = raw(&listener);
    let held = busy.send("hold", b"held", Class::Normal).unwrap();
    let waits = busy.send("add", b"waits", Class::Normal).unwrap();
    let not_taken = busy.send("add", b"never", Class::Normal).unwrap();
    wait_until("two are taken", || house.server.gate().waiting == 1);
    let stopper = thread::spawn(move || drop(listener));
    wait_until("nobody is accepted", || !house.path().exists());
    let ConnectionEnd::Goodbye { reason, .. } = end(&mut idle) else { panic!() };
    assert_eq!(reason, GoodbyeReason::Stopping);
    assert_at_end(&mut silent);
    assert!(!stopper.is_finished(), "a transaction is under way");
    house.latch.open();
    assert_eq!(busy.receive(held).unwrap(), b"held");
    assert_eq!(busy.receive(waits).unwrap(), 1_u64.to_le_bytes());
    let left = busy.receive(not_taken);
    let reason = GoodbyeReason::Stopping;
    let is_goodbye = matches!(
        left,
        Err(ClientError::Ended(ConnectionEnd::Goodbye { reason: told, .. })) if told == reason
    );
    assert!(is_goodbye, "{left:?}");
    stopper.join().unwrap();
    assert_eq!(house.count(b"never"), 0, "what has no answer before a goodbye was not run");
}

#[test]
fn a_stop_does_not_wait_for_ever() {
    let _guard = beside_others();
    let house = House::new(1, ServerOptions::default());
    let stop_timeout = Duration::from_millis(50);
    let listener = house.listen(ListenerOptions { stop_timeout, ..Default::default() });
    let mut client = connect(&listener);
    let held = client.send("hold", b"", Class::Normal).unwrap();
    wait_until("it runs", || house.server.gate().outstanding == 1);
    drop(listener);
    let left = client.receive(held);
    assert!(matches!(left, Err(ClientError::Ended(ConnectionEnd::Closed))), "{left:?}");
    house.latch.open();
    wait_until("it has run", || house.server.gate().outstanding == 0);
}

/// Names of the process's threads that begin like those of the engine.
fn threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    // A thread may go while the list is read.
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("tidegate-")).collect()
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_stop_under_load_leaves_nothing_behind() {
    let _alone = PROCESS.write().unwrap_or_else(PoisonError::into_inner);
    // Those of tests that have just ended may still be on their way out.
    wait_until("there is no thread of the engine", || threads().is_empty());
    let before = descriptors();
    for endpoint in [None, Some(any_port())] {
        let house = House::new(4, ServerOptions::default());
        let endpoint = endpoint.unwrap_or_else(|| house.unix());
        let listener = house.listen_on(&endpoint, ListenerOptions::default());
        let endpoint = listener.endpoint().clone();
        // A thread names itself.
        wait_until("the thread is there", || threads().contains(&"tidegate-socket\n".to_owned()));
        let acknowledged = AtomicU64::new(0);
        let is_stopped = AtomicBool::new(false);
        let all_there = Barrier::new(21);
        thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    let mut client = Client::connect(&endpoint, ClientOptions::default()).unwrap();
                    all_there.wait();
                    let end = loop {
                        match client.call("add", b"one", Class::Normal) {
                            Ok(_) => acknowledged.fetch_add(1, Ordering::SeqCst),
                            Err(end) => break end,
                        };
                    };
                    let is_goodbye =
                        matches!(end, ClientError::Ended(ConnectionEnd::Goodbye { .. }));
                    assert!(is_goodbye, "{end:?}");
                    assert!(is_stopped.load(Ordering::SeqCst), "before the time");
                });
            }
            all_there.wait();
            wait_until("there is load", || acknowledged.load(Ordering::SeqCst) > 200);
            is_stopped.store(true, Ordering::SeqCst);
            drop(listener);
            // The system may list a thread for a moment after it was joined.
            wait_until("the thread has gone", || {
                !threads().contains(&"tidegate-socket\n".to_owned())
            });
        });
        assert_eq!(house.count(b"one"), acknowledged.load(Ordering::SeqCst));
        let refused = Client::connect(&endpoint, ClientOptions::default());
        assert!(matches!(refused, Err(ClientError::Connect { .. })), "{refused:?}");
        assert!(!house.path().exists());
    }
    wait_until("no thread is left", || threads().is_empty());
    assert_eq!(descriptors(), before);
}

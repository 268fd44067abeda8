//! Clients that vanish, servers that restart, proxies that stop.

use std::net::TcpListener;
use std::time::Duration;

use tidegate_subject::client::BlockingClient;
use tidegate_subject::postgres::Authentication;
use tidegate_wire::backend::tag;

use crate::support::server::{own_server, setup};
use crate::support::wire::{SYNC, copy_data, extended, parse, query, show};
use crate::support::{MODES, Proxy, Wire, eventually, server};

/// Ways to be gone without a Terminate message.
const ENDS: [fn(Wire); 3] = [drop, Wire::reset, |wire| {
    wire.shut_down_writing();
    assert!({ wire }.is_closed());
}];

/// Lets a client vanish in each way after `step`; nothing of it is left, and the one permit is
/// there for the next client.
fn vanishes_after(step: impl Fn(&Proxy, &mut Wire)) {
    let server = server();
    for mode in MODES {
        for end in ENDS {
            let proxy = setup(&server, mode).limit(1).start();
            let mut client = proxy.connect();
            step(&proxy, &mut client);
            end(client);
            assert_eq!(proxy.client().value("SELECT 'next'").unwrap(), "next", "{mode}");
            proxy.is_left_clean();
            let open = proxy.metric("tidegate_upstreams_open");
            assert!(open <= u64::from(mode == "transaction"), "{mode}: {open}");
        }
    }
}

fn wait_until_running(marker: &str) {
    let mut watcher: BlockingClient = server().connect().unwrap();
    let sql = format!(
        "SELECT count(*) FROM pg_stat_activity \
         WHERE state = 'active' AND query LIKE '%{marker}%' AND pid <> pg_backend_pid()"
    );
    eventually("the query runs", || (watcher.value(&sql).unwrap() != "0").then_some(()));
}

#[test]
fn a_client_vanishes_at_rest() {
    vanishes_after(|_, client| {
        client.query("SELECT 1");
    });
}

#[test]
fn a_client_vanishes_in_a_transaction_which_is_rolled_back() {
    // The shared server stops with the last test that holds it, and its tables with it.
    let server = server();
    server.connect().unwrap().query("CREATE TABLE kept (x int)").unwrap();
    vanishes_after(|_, client| {
        client.query("BEGIN");
        client.query("INSERT INTO kept VALUES (1)");
    });
    vanishes_after(|_, client| {
        client.query("BEGIN; INSERT INTO kept VALUES (1)");
        client.query("SELECT 1/0");
    });
    let mut watcher = server.connect().unwrap();
    assert_eq!(watcher.value("SELECT count(*) FROM kept").unwrap(), "0");
}

#[test]
fn a_client_vanishes_in_the_middle_of_a_query() {
    vanishes_after(|_, client| {
        client.send(&query("SELECT pg_sleep(600) /* simple */"));
        wait_until_running("/* simple */");
    });
    vanishes_after(|_, client| {
        let batch = [extended("SELECT pg_sleep(600) /* extended */"), SYNC.to_vec()].concat();
        client.send(&[batch.clone(), batch].concat());
        wait_until_running("/* extended */");
    });
}

#[test]
fn a_client_vanishes_in_the_middle_of_a_batch_and_of_a_message() {
    vanishes_after(|_, client| {
        client.send(&[extended("SELECT 1"), b"H\0\0\0\x04".to_vec()].concat());
        client.until(tag::COMMAND_COMPLETE);
    });
    vanishes_after(|_, client| client.send(&query("SELECT 1")[..7]));
    vanishes_after(|proxy, client| {
        // Five bytes are missing: as many as a Terminate message has.
        let long = query(&format!("INSERT INTO nowhere VALUES ('{}')", "x".repeat(50_000)));
        client.send(&long[..long.len() - 5]);
        proxy.wait_for("tidegate_permits_out", 1);
    });
}

/// Without its Sync a batch is not committed, though its statements have been answered.
#[test]
fn a_client_vanishes_before_the_sync_of_its_batch_which_is_rolled_back() {
    let server = server();
    server.connect().unwrap().query("CREATE TABLE unsynced (x int)").unwrap();
    let insert = extended("INSERT INTO unsynced VALUES (1)");
    vanishes_after(|_, client| {
        client.send(&[insert.clone(), b"H\0\0\0\x04".to_vec()].concat());
        client.until(tag::COMMAND_COMPLETE);
    });
    vanishes_after(|proxy, client| {
        client.send(&insert);
        proxy.wait_for("tidegate_permits_out", 1);
    });
    vanishes_after(|_, client| {
        let slow = extended("SELECT pg_sleep(0.3) /* unsynced */");
        client.send(&[insert.clone(), slow].concat());
        wait_until_running("/* unsynced */");
    });
    let mut watcher = server.connect().unwrap();
    assert_eq!(watcher.value("SELECT count(*) FROM unsynced").unwrap(), "0");
}

#[test]
fn a_client_vanishes_in_the_middle_of_copy_in() {
    let server = server();
    server.connect().unwrap().query("CREATE TABLE filled (x int)").unwrap();
    vanishes_after(|_, client| {
        client.send(&query("COPY filled FROM STDIN"));
        client.until(tag::COPY_IN);
        client.send(&copy_data(b"1\n2\n"));
    });
    vanishes_after(|_, client| {
        client.send(&[extended("COPY filled FROM STDIN"), SYNC.to_vec()].concat());
        client.until(tag::COPY_IN);
        client.send(&copy_data(b"1\n2\n"));
    });
    // Before it knows that data is wanted.
    vanishes_after(|_, client| {
        client.send(&query("SELECT pg_sleep(0.2) /* before copy */; COPY filled FROM STDIN"));
        wait_until_running("/* before copy */");
    });
    let mut watcher = server.connect().unwrap();
    assert_eq!(watcher.value("SELECT count(*) FROM filled").unwrap(), "0");
}

#[test]
fn a_client_vanishes_in_the_middle_of_a_large_answer() {
    vanishes_after(|_, client| {
        client.send(&query("SELECT repeat('x', 1000000) FROM generate_series(1, 1000)"));
        client.until(tag::DATA_ROW);
    });
}

#[test]
fn a_client_vanishes_from_the_queue() {
    let server = server();
    for mode in MODES {
        for end in ENDS {
            let proxy = setup(&server, mode).limit(1).start();
            let mut holder = proxy.connect();
            holder.query("BEGIN");
            let mut client = proxy.connect();
            client.send(&query("SELECT 1"));
            proxy.wait_for("tidegate_waiting", 1);
            end(client);
            proxy.wait_for("tidegate_waiting", 0);
            holder.query("COMMIT");
            drop(holder);
            proxy.is_left_clean();
        }
    }
}

/// A client that says goodbye in the middle of a transaction is rolled back too.
#[test]
fn terminate_in_a_transaction() {
    vanishes_after(|_, client| {
        client.query("BEGIN");
        client.send(b"X\0\0\0\x04");
    });
    vanishes_after(|_, client| {
        client.send(&parse("unfinished", "SELECT 1"));
        client.send(b"X\0\0\0\x04");
    });
}

#[test]
fn a_restarted_server_is_used_again() {
    for mode in MODES {
        let mut server = own_server(Authentication::Trust);
        let proxy = setup(&server, mode).limit(2).start();
        let (mut idle, mut busy) = (proxy.connect(), proxy.connect());
        idle.query("SELECT 1");
        busy.query("BEGIN");
        server.restart().unwrap();
        let last = busy.until_ready();
        assert!(show(&last).starts_with("E("), "told why: {}", show(&last));
        assert!(busy.is_closed());
        if mode == "transaction" {
            assert_eq!(idle.value("SELECT 'still here'"), "still here");
        } else {
            assert!(idle.is_closed());
        }
        drop(idle);
        assert_eq!(proxy.connect().value("SELECT 'again'"), "again");
        proxy.is_left_clean();
    }
}

#[test]
fn a_connection_that_the_server_closes_at_rest_is_replaced() {
    let server = own_server(Authentication::Trust);
    let proxy = setup(&server, "transaction").limit(2).start();
    let mut client = proxy.connect();
    let backend = client.value("SELECT pg_backend_pid()");
    // The gauge follows the answer: only after a 1 is a 0 the loss.
    proxy.wait_for("tidegate_upstreams_open", 1);
    let mut admin = server.connect().unwrap();
    admin.query(&format!("SELECT pg_terminate_backend({backend})")).unwrap();
    proxy.wait_for("tidegate_upstreams_open", 0);
    assert_ne!(client.value("SELECT pg_backend_pid()"), backend);
}

/// Running transactions finish, everybody else is told at once, and the port is free afterwards.
#[test]
fn an_orderly_shutdown() {
    let server = server();
    for mode in MODES {
        let proxy = setup(&server, mode).limit(1).threads(2).start();
        let address = proxy.address;
        let (mut idle, mut running, mut queued) =
            (proxy.connect(), proxy.connect(), proxy.connect());
        running.query("BEGIN");
        queued.send(&query("SELECT 1"));
        proxy.wait_for("tidegate_waiting", 1);
        // Longer than any test may take: it ends because everything has ended.
        let stopping = std::thread::spawn(move || proxy.shutdown(Duration::from_secs(3_600)));
        for wire in [&mut idle, &mut queued] {
            assert_eq!(show(&wire.until_ready()), "E(57P01)", "{mode}");
            assert!(wire.is_closed());
        }
        assert_eq!(running.value("SELECT 'goes on'"), "goes on");
        running.send(&query("COMMIT"));
        assert_eq!(show(&running.until(0)), "C(COMMIT) Z(I) E(57P01)", "{mode}");
        stopping.join().unwrap();
        TcpListener::bind(address).unwrap();
    }
}

/// The grace time is over: the transaction is cut off, and rolled back by the server.
#[test]
fn a_shutdown_that_loses_patience() {
    let server = server();
    for mode in MODES {
        let proxy = setup(&server, mode).limit(1).start();
        let mut running = proxy.connect();
        running.query("BEGIN");
        proxy.shutdown(Duration::from_millis(100));
        assert_eq!(show(&running.until(0)), "E(57P01)", "{mode}");
    }
}

/// The timers of established TCP connections with this local or remote port, as the kernel shows
/// them; 2 is that of keep-alive probes.
fn timers(port: u16, is_local: bool) -> Vec<u8> {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let rows = table.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<_>>());
    let suffix = format!(":{port:04X}");
    rows.filter(|row| row[3] == "01" && row[if is_local { 1 } else { 2 }].ends_with(&suffix))
        .map(|row| row[5][..2].parse().unwrap())
        .collect()
}

#[test]
fn silent_peers_are_asked_whether_they_are_there() {
    let server = own_server(Authentication::Trust);
    let has_timer = |timer: u8, port: u16, is_local: bool| {
        eventually(&format!("timer {timer}"), || (timers(port, is_local) == [timer]).then_some(()));
    };
    let asking = setup(&server, "session").start();
    let client = asking.client();
    has_timer(2, asking.address.port(), true);
    has_timer(2, server.port(), false);
    drop(client);
    let silent = setup(&server, "session").line("timeouts.unreachable = \"none\"").start();
    let _client = silent.client();
    has_timer(0, silent.address.port(), true);
}

//! One proxy takes over from another, and clients notice nothing.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tidegate_proxy::handover::{HandoverError, Inheritance, Left};
use tidegate_wire::backend::tag;
use tidegate_wire::frontend::Target;
use tidegate_wire::startup::encode_startup;

use crate::support::server::{setup, shared};
use crate::support::wire::{SYNC, bind, cancel, describe, execute, extended, parse, query, show};
use crate::support::{MODES, Proxy, Wire, eventually, server};
use crate::tls::Authority;

const NOTHING_LEFT: Left = Left::All { relayed: 0 };

/// Waits until a transaction waits for a permit.
fn wait_for_one_waiting(proxy: &Proxy) {
    proxy.wait_for("tidegate_waiting", 1);
}

#[test]
fn clients_keep_what_they_have_set_up() {
    let _server = server();
    for (mode, threads) in [("transaction", 1), ("transaction", 3), ("session", 2)] {
        let mut proxy = shared(mode).threads(threads).start();
        let mut clients: Vec<Wire> = (0..5)
            .map(|number| {
                let name = format!("client {number}");
                Wire::with(proxy.address, &[("application_name", &name)])
            })
            .collect();
        for (number, client) in clients.iter_mut().enumerate() {
            let prepare = parse("own", &format!("SELECT {number} * $1::int"));
            client.run(&[&prepare[..], SYNC].concat());
            client.query(&format!("SET work_mem = '{}MB'", number + 2));
            client.query(&format!("SET app.tenant = 't{number}'"));
            client.query("CREATE TEMP TABLE own AS SELECT 7 AS x");
        }
        let opened = proxy.metric("tidegate_upstream_connects_total");
        for round in 0..3 {
            assert_eq!(proxy.hand_over(), NOTHING_LEFT);
            for (number, client) in clients.iter_mut().enumerate() {
                let run = [&bind("own", &["7"])[..], &execute("", 0), SYNC].concat();
                let answer = client.run(&run);
                assert!(answer.contains(&format!("D({})", 7 * number)), "{round}: {answer}");
                assert_eq!(client.value("SHOW work_mem"), format!("{}MB", number + 2));
                assert_eq!(client.value("SHOW app.tenant"), format!("t{number}"));
                assert_eq!(client.value("SHOW application_name"), format!("client {number}"));
                assert_eq!(client.value("SELECT x FROM own"), "7");
            }
            assert_eq!(proxy.metric("tidegate_upstream_connects_total"), 0, "passed, not opened");
            // New ones are let in as before.
            assert_eq!(proxy.connect().value("SELECT 1"), "1");
        }
        assert!(opened >= 5, "each has one of its own");
        drop(clients);
        proxy.is_left_clean();
    }
}

/// A transaction ends where it runs; a client that waits, waits in the new process, for a permit
/// that the old one still has.
#[test]
fn the_limit_holds_over_both_processes() {
    let mut proxy = shared("transaction").limit(1).start();
    let mut running = proxy.connect();
    running.query("BEGIN");
    // Or its permit is lent.
    running.send(&query("SELECT pg_sleep(1.5)"));
    let mut waiting = proxy.connect();
    waiting.send(&query("SELECT 'after that'"));
    wait_for_one_waiting(&proxy);
    let handing_over = proxy.begin_hand_over();
    // It is the new one in whose queue it is.
    wait_for_one_waiting(&proxy);
    assert_eq!(proxy.metric("tidegate_permits_out"), 0);
    assert!(!handing_over.has_ended());
    let mut late = proxy.connect();
    late.send(&query("SELECT 'last'"));
    assert!(show(&running.until_ready()).ends_with("Z(T)"));
    assert_eq!(running.query("COMMIT"), "C(COMMIT) Z(I)");
    assert!(show(&waiting.until_ready()).contains("D(after that)"));
    assert!(show(&late.until_ready()).contains("D(last)"));
    assert_eq!(running.value("SELECT 'here, too'"), "here, too");
    assert_eq!(handing_over.end(), NOTHING_LEFT);
    drop((running, waiting, late));
    proxy.is_left_clean();
}

#[test]
fn a_cancel_request_finds_its_client_wherever_it_is() {
    for mode in MODES {
        let mut proxy = shared(mode).limit(3).threads(2).start();
        let (mut early, mut late) = (proxy.connect(), proxy.connect());
        early.send(&query("SELECT pg_sleep(600)"));
        proxy.wait_for("tidegate_permits_out", 1);
        let handing_over = proxy.begin_hand_over();
        // In the old process, by its key, though the request reaches the new one.
        cancel(proxy.address, &early.key());
        assert!(show(&early.until_ready()).contains("E(57014)"), "{mode}");
        assert_eq!(handing_over.end(), NOTHING_LEFT);
        // In the new one, by the keys of the old; after another hand-over, too.
        for _ in 0..2 {
            for client in [&mut early, &mut late] {
                client.send(&query("SELECT pg_sleep(600)"));
                proxy.wait_for("tidegate_permits_out", 1);
                cancel(proxy.address, &client.key());
                assert!(show(&client.until_ready()).contains("E(57014)"), "{mode}");
            }
            assert_eq!(proxy.hand_over(), NOTHING_LEFT);
        }
        let other = proxy.connect();
        assert_ne!(other.key(), early.key());
        drop((early, late, other));
        proxy.is_left_clean();
    }
}

#[test]
fn messages_that_have_half_arrived_are_completed_in_the_new_process() {
    let mut proxy = shared("transaction").start();
    let mut half = proxy.connect();
    let text = [query("SELECT 'first'"), query("SELECT 'second'")].concat();
    let (head, tail) = text.split_at(text.len() - 7);
    half.send(&head[..9]);
    let mut long = proxy.connect();
    let comment = format!("SELECT 'long' /* {} */", "x".repeat(200_000));
    let parse_long = [&parse("long", &comment)[..], SYNC].concat();
    long.send(&parse_long[..150_000]);
    let mut silent = Wire::raw(proxy.address);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(proxy.hand_over(), NOTHING_LEFT);
    half.send(&[&head[9..], tail].concat());
    assert!(show(&half.until_ready()).contains("D(first)"));
    assert!(show(&half.until_ready()).contains("D(second)"));
    long.send(&parse_long[150_000..]);
    assert_eq!(show(&long.until_ready()), "1() Z(I)");
    assert_eq!(proxy.hand_over(), NOTHING_LEFT);
    let run = [&bind("long", &[])[..], &execute("", 0), SYNC].concat();
    assert!(long.run(&run).contains("D(long)"));
    // One that had said nothing is let in by another process than the one it connected to.
    let mut packet = Vec::new();
    let names: [(&[u8], &[u8]); 2] = [(b"user", b"postgres"), (b"database", b"postgres")];
    encode_startup(&mut packet, names);
    silent.send(&packet);
    assert_eq!(silent.until_ready().last().unwrap().tag, tag::READY_FOR_QUERY);
    let batch = [extended("SELECT 8"), SYNC.to_vec()].concat();
    assert!(silent.run(&batch).contains("D(8)"));
    let described = [parse("", "SELECT 9"), describe(Target::Statement, "")].concat();
    assert!(silent.run(&[&described[..], SYNC].concat()).ends_with("Z(I)"));
    drop((half, long, silent));
    proxy.is_left_clean();
}

/// What an administrator has ordered holds in the new process.
#[test]
fn orders_and_clients_of_the_console_are_passed() {
    let mut proxy = shared("transaction").line("admin_users = [\"postgres\"]").start();
    let mut client = proxy.connect();
    assert_eq!(client.value("SELECT 1"), "1");
    let mut console = Wire::with(proxy.address, &[("database", "pgbouncer")]);
    assert_eq!(console.query("PAUSE postgres"), "C(PAUSE) Z(I)");
    client.send(&query("SELECT 'resumed'"));
    eventually("it waits", || {
        console.send(&query("SHOW CLIENTS"));
        show(&console.until_ready()).contains("waiting").then_some(())
    });
    assert_eq!(proxy.hand_over(), NOTHING_LEFT);
    assert!(client.receive_within(Duration::from_millis(300)).is_none(), "it is paused");
    assert_eq!(console.query("RESUME postgres"), "C(RESUME) Z(I)");
    assert!(show(&client.until_ready()).contains("D(resumed)"));
    drop((client, console));
    proxy.is_left_clean();
}

/// psql with a connection by TLS, which answers one line to each query.
struct Psql {
    process: Child,
    answers: BufReader<ChildStdout>,
}

impl Psql {
    fn connect(proxy: &Proxy) -> Psql {
        let connection =
            format!("host=127.0.0.1 port={} user=postgres sslmode=require", proxy.address.port());
        let mut process = Command::new("psql")
            .args(["-w", "-X", "-q", "-At", &format!("{connection} dbname=postgres")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        Psql { process, answers }
    }

    fn send(&mut self, sql: &str) {
        writeln!(self.process.stdin.as_mut().unwrap(), "{sql};").unwrap();
    }

    fn value(&mut self, sql: &str) -> String {
        self.send(sql);
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Lets it end, and returns what it has written to standard error.
    fn end(mut self) -> String {
        drop(self.process.stdin.take());
        let output = self.process.wait_with_output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    }
}

/// The old process stays the end of TLS, and everything else is the new one's.
#[test]
fn clients_with_tls_go_on_through_the_process_that_they_connected_to() {
    let (server, authority) = (server(), Authority::new());
    authority.issue("proxy", "proxy", &["localhost"]);
    for mode in MODES {
        let mut proxy = setup(&server, mode).line(&authority.section("proxy", "")).start();
        let mut client = Psql::connect(&proxy);
        client.send("CREATE TEMP TABLE own AS SELECT 5 AS x");
        assert_eq!(client.value("SELECT x FROM own"), "5");
        for generation in 0..3 {
            // After the first hand-over the second process has a socket like any other.
            let relayed = usize::from(generation == 0);
            assert_eq!(proxy.hand_over(), Left::All { relayed }, "{mode}");
            assert_eq!(client.value("SELECT x FROM own"), "5");
            assert_eq!(client.value("SELECT repeat('x', 300000)").len(), 300_000);
        }
        client.send("SELECT pg_sleep(600)");
        proxy.wait_for("tidegate_permits_out", 1);
        // It sends a cancel request with the key that the first process gave it.
        kill_process(Pid::from_child(&client.process), Signal::INT).unwrap();
        assert!(client.end().contains("canceling statement due to user request"));
        proxy.is_left_clean();
    }
}

/// A process that does not become ready changes nothing.
#[test]
fn a_new_process_that_fails_is_not_noticed() {
    let mut proxy = shared("transaction").start();
    let mut client = proxy.connect();
    client.query("BEGIN");
    // It ends at once.
    let (near, far) = UnixStream::pair().unwrap();
    drop(far);
    let ended = proxy.leave().hand_over(near.into(), || (), || ());
    assert!(matches!(ended, Err(HandoverError::Ended | HandoverError::Io(_))), "{ended:?}");
    // It refuses.
    let (near, far) = UnixStream::pair().unwrap();
    let refuses = std::thread::spawn(move || {
        Inheritance::receive(far.into()).unwrap().refusal()("the file is wrong");
    });
    let why = proxy.leave().hand_over(near.into(), || (), || ()).unwrap_err();
    refuses.join().unwrap();
    assert!(why.to_string().contains("the file is wrong"), "{why}");
    // It says what makes no sense.
    let (near, mut far) = UnixStream::pair().unwrap();
    let babbles = std::thread::spawn(move || {
        far.write_all(b"\xff\xff\xff\xffnonsense").unwrap();
        let _ = far.read_to_end(&mut Vec::new());
    });
    proxy.leave().hand_over(near.into(), || (), || ()).unwrap_err();
    babbles.join().unwrap();
    assert_eq!(client.query("COMMIT"), "C(COMMIT) Z(I)");
    assert_eq!(proxy.connect().value("SELECT 1"), "1");
    // Nothing stands in the way of one that works.
    assert_eq!(proxy.hand_over(), NOTHING_LEFT);
    assert_eq!(client.value("SELECT 2"), "2");
    drop(client);
    proxy.is_left_clean();
}

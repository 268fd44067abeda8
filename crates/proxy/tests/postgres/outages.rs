//! Servers that restart, fail over or stay away, under clients that wait for them.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tidegate_subject::postgres::{Authentication, Postgres};
use tidegate_wire::error_response::{Severity, SqlState, encode_error};

use crate::support::plain::{Plain, dial, start_up};
use crate::support::server::{own_server, setup, shared, standby_of};
use crate::support::wire::{query, show};
use crate::support::{MODES, Proxy, Wire, eventually};

/// The fast shutdown, and the immediate one, which is like a crash.
const SHUTDOWNS: [Signal; 2] = [Signal::INT, Signal::QUIT];

/// Clients of a busy proxy.
const CLIENTS: u64 = 200;

/// Stops a server, and waits until it accepts no connections. [`Postgres::restart`] starts it
/// again.
fn stop(server: &Postgres, signal: Signal) {
    let pid = i32::try_from(server.process_id()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], server.port()));
    eventually("the server has stopped", || TcpStream::connect(address).err());
}

/// Waits until a server's process sleeps. One that is still in the call that sends an answer says
/// nothing when it is told to quit: PostgreSQL does not begin a message inside another
/// (`PqCommBusy`).
fn wait_until_at_rest(backend: &str) {
    let sleeps = || {
        let stat = std::fs::read_to_string(format!("/proc/{backend}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with('S').then_some(())
    };
    eventually("the server's process sleeps", sleeps);
}

/// A label's value of a metric.
fn labelled(proxy: &Proxy, name: &str, label: &str) -> f64 {
    let page = proxy.get("/metrics");
    let is_it = |line: &&str| line.starts_with(&format!("{name}{{")) && line.contains(label);
    let line = page.lines().find(is_it).unwrap_or_else(|| panic!("no {name} {label}:\n{page}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

/// A server with an empty table, in which an id that is there twice shows.
fn with_table() -> Postgres {
    let server = own_server(Authentication::Trust);
    server.connect().unwrap().query("CREATE TABLE done (id bigint)").unwrap();
    server
}

#[test]
fn clients_that_have_sent_nothing_survive_a_restart() {
    for signal in SHUTDOWNS {
        let mut server = with_table();
        let proxy = setup(&server, "transaction").limit(20).threads(2).start();
        let mut clients: Vec<Plain> =
            (0..CLIENTS).map(|_| Plain::connect(proxy.address).unwrap()).collect();
        for client in &mut clients {
            assert_eq!(client.run("SELECT 1").unwrap(), Ok("1".into()));
        }
        let mut inside: Vec<Wire> = (0..5).map(|_| proxy.connect()).collect();
        for client in &mut inside {
            client.query("BEGIN");
            client.query("INSERT INTO done VALUES (-1)");
            wait_until_at_rest(&client.value("SELECT pg_backend_pid()"));
        }
        stop(&server, signal);
        for (id, client) in clients.iter_mut().enumerate() {
            client.send(&format!("INSERT INTO done VALUES ({id})")).unwrap();
        }
        proxy.wait_for("tidegate_server_up", 0);
        let attempts = proxy.metric("tidegate_server_connect_attempts_total");
        std::thread::sleep(Duration::from_secs(2));
        let more = proxy.metric("tidegate_server_connect_attempts_total") - attempts;
        assert!(more < 40, "{more} attempts in 2 s");
        server.restart().unwrap();
        for client in &mut clients {
            assert_eq!(client.answer().unwrap(), Ok(String::new()));
        }
        proxy.wait_for("tidegate_server_up", 1);
        for client in &mut inside {
            // An immediate shutdown is announced by a warning.
            let last = show(&client.until_ready());
            assert!(last.contains("(57P0"), "the server's own words: {last}");
            assert!(client.is_closed());
        }
        let counts = "SELECT count(*) || ' ' || count(DISTINCT id) || ' ' || min(id) FROM done";
        assert_eq!(clients[0].run(counts).unwrap(), Ok(format!("{CLIENTS} {CLIENTS} 0")));
        drop((clients, inside));
        proxy.is_left_clean();
    }
}

/// A server that is away is a reason for load balancers to send clients elsewhere, until it is
/// back, also if no client comes meanwhile. The process is healthy all the time.
#[test]
fn readiness_follows_the_server() {
    let mut server = own_server(Authentication::Trust);
    let proxy = setup(&server, "transaction").start();
    let is_well = |path: &str| proxy.get(path).starts_with("HTTP/1.1 200 ");
    let mut client = proxy.connect();
    assert_eq!(client.value("SELECT 1"), "1");
    assert!(is_well("/readyz"));
    stop(&server, Signal::INT);
    client.send(&query("SELECT 1"));
    let why = eventually("the server is missed", || {
        let answer = proxy.get("/readyz");
        answer.starts_with("HTTP/1.1 503 ").then_some(answer)
    });
    let named = format!("the server at 127.0.0.1:{} cannot be reached: ", server.port());
    assert!(why.contains(&named), "{why}");
    assert!(is_well("/readyz?exclude=servers") && is_well("/healthz"));
    drop(client);
    server.restart().unwrap();
    eventually("it is back", || is_well("/readyz").then_some(()));
}

/// Inserts ids that nobody else has until told to stop. An id whose answer was lost is not tried
/// again. Returns the ids that were confirmed.
fn insert_ids(address: SocketAddr, next: &AtomicU64, done: &AtomicBool) -> Vec<u64> {
    let (mut confirmed, mut client) = (Vec::new(), None);
    while !done.load(Ordering::Relaxed) {
        let mut connected = match client.take() {
            Some(connected) => connected,
            None => match Plain::connect(address) {
                Ok(connected) => connected,
                Err(_) => continue,
            },
        };
        let id = next.fetch_add(1, Ordering::Relaxed);
        match connected.run(&format!("INSERT INTO done VALUES ({id})")) {
            Ok(Ok(_)) => confirmed.push(id),
            Ok(Err(_)) => {}
            Err(_) => continue,
        }
        client = Some(connected);
    }
    confirmed
}

#[test]
fn nothing_runs_twice_and_nothing_is_lost_when_a_busy_server_restarts() {
    let mut server = with_table();
    for mode in MODES {
        server.connect().unwrap().query("TRUNCATE done").unwrap();
        let proxy = setup(&server, mode).limit(10).threads(2).start();
        let (next, done) = (AtomicU64::new(0), AtomicBool::new(false));
        let confirmed: Vec<u64> = std::thread::scope(|scope| {
            let clients: Vec<_> =
                (0..50).map(|_| scope.spawn(|| insert_ids(proxy.address, &next, &done))).collect();
            for signal in SHUTDOWNS {
                let before = next.load(Ordering::Relaxed);
                eventually("they are at work", || {
                    (next.load(Ordering::Relaxed) > before + 200).then_some(())
                });
                // An immediate shutdown may lose what was confirmed without fsync.
                server.connect().unwrap().query("CHECKPOINT").unwrap();
                stop(&server, signal);
                std::thread::sleep(Duration::from_millis(500));
                server.restart().unwrap();
            }
            let before = next.load(Ordering::Relaxed);
            eventually("they are at work again", || {
                (next.load(Ordering::Relaxed) > before + 200).then_some(())
            });
            done.store(true, Ordering::Relaxed);
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
        });
        let rows = server.connect().unwrap().query("SELECT id FROM done").unwrap();
        let mut times: HashMap<u64, u32> = HashMap::new();
        for row in rows {
            let id = row[0].as_deref().unwrap().parse().unwrap();
            *times.entry(id).or_default() += 1;
        }
        assert!(times.values().all(|&times| times == 1), "{mode}: run twice");
        let lost = confirmed.iter().filter(|id| !times.contains_key(id)).count();
        assert_eq!(lost, 0, "{mode}: confirmed and lost");
        proxy.is_left_clean();
    }
}

#[test]
fn logins_wait_for_a_server_that_restarts() {
    for mode in MODES {
        let mut server = own_server(Authentication::Trust);
        let proxy = setup(&server, mode).limit(5).start();
        stop(&server, Signal::INT);
        let clients: Vec<_> = (0..20)
            .map(|_| {
                let address = proxy.address;
                std::thread::spawn(move || {
                    Plain::connect(address).and_then(|mut client| client.run("SELECT 1"))
                })
            })
            .collect();
        // In session mode a connection may be on its way for one of them.
        eventually(&format!("the logins are held, {mode}"), || {
            (proxy.metric("tidegate_logins_held") >= 19).then_some(())
        });
        server.restart().unwrap();
        for client in clients {
            assert_eq!(client.join().unwrap(), Ok(Ok("1".into())), "{mode}");
        }
        proxy.is_left_clean();
    }
}

#[test]
fn a_server_that_stays_away_fails_those_who_wait_after_the_bound() {
    let mut server = own_server(Authentication::Trust);
    let proxy = setup(&server, "transaction")
        .limit(2)
        .line("timeouts.server_down = \"1s\"\ntimeouts.login = \"3s\"")
        .start();
    let mut clients: Vec<Wire> = (0..20).map(|_| proxy.connect()).collect();
    stop(&server, Signal::INT);
    for client in &mut clients {
        client.send(&query("SELECT 1"));
    }
    for client in &mut clients {
        let answer = client.until_ready();
        assert_eq!(show(&answer), "E(08006) Z(I)");
        let text = answer[0].text();
        assert!(text.contains("1 s at most (timeouts.server_down)"), "{text}");
        assert!(text.contains("refused"), "what was seen: {text}");
    }
    // Who comes later waits for no more than one attempt.
    let start = Instant::now();
    assert_eq!(clients[0].error("SELECT 1"), "08006");
    assert!(start.elapsed() < Duration::from_secs(10));
    let late = Wire::attempt(proxy.address, &[("user", "somebody_else")]);
    assert_eq!(show(&late.login[late.login.len() - 1..]), "E(08006)");
    // They are counted when all have been told.
    eventually("all are counted", || {
        (proxy.metric("tidegate_transactions_given_up_total") >= 22).then_some(())
    });
    server.restart().unwrap();
    eventually("the server is back", || {
        clients[0].send(&query("SELECT 'back'"));
        show(&clients[0].until_ready()).contains("D(back)").then_some(())
    });
    drop(clients);
    proxy.is_left_clean();
}

#[test]
fn waiting_can_be_switched_off() {
    let server = own_server(Authentication::Trust);
    let proxy =
        setup(&server, "transaction").line("timeouts.server_down = \"off\"").limit(2).start();
    let mut client = proxy.connect();
    stop(&server, Signal::INT);
    for _ in 0..3 {
        assert_eq!(client.error("SELECT 1"), "08006");
    }
}

#[test]
fn a_wrong_password_fails_at_once() {
    let server = own_server(Authentication::ScramSha256("right".into()));
    for mode in MODES {
        let url = format!("postgres://postgres:wrong@127.0.0.1:{}", server.port());
        let proxy = setup(&server, mode).upstream(&url).start();
        let start = Instant::now();
        let refused = Wire::attempt(proxy.address, &[]);
        assert_eq!(show(&refused.login[refused.login.len() - 1..]), "E(28P01)", "{mode}");
        assert!(start.elapsed() < Duration::from_secs(5), "{mode}");
        assert_eq!(proxy.metric("tidegate_server_up"), 1, "the server can be reached");
    }
}

/// The controller learns nothing from an outage.
#[test]
fn the_limit_is_the_same_before_and_after_an_outage() {
    let mut server = own_server(Authentication::Trust);
    let proxy = setup(&server, "transaction").database_line("max_mpl = 64").threads(2).start();
    let (done, address) = (Arc::new(AtomicBool::new(false)), proxy.address);
    for _ in 0..16 {
        let done = Arc::clone(&done);
        // It ends when the test does, at the latest with the proxy.
        std::thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                let Ok(mut client) = Plain::connect(address) else { return };
                while matches!(client.run("SELECT 1"), Ok(Ok(_))) && !done.load(Ordering::Relaxed) {
                }
            }
        });
    }
    let decisions = || proxy.metric("tidegate_limit_decisions_total");
    let is_deciding = || proxy.get("/metrics").contains("tidegate_limit_decisions_total{");
    eventually("the controller decides", || (is_deciding() && decisions() > 20).then_some(()));
    stop(&server, Signal::INT);
    proxy.wait_for("tidegate_server_up", 0);
    let before = (proxy.metric("tidegate_limit"), decisions());
    std::thread::sleep(Duration::from_secs(2));
    let after = (proxy.metric("tidegate_limit"), decisions());
    assert_eq!(after, before, "nothing is learnt during the outage");
    let discounts = proxy.metric("tidegate_discounts_total");
    server.restart().unwrap();
    eventually("the controller decides again", || (decisions() > before.1).then_some(()));
    assert_eq!(proxy.metric("tidegate_discounts_total"), discounts, "none was overdue");
    done.store(true, Ordering::Relaxed);
}

#[test]
fn a_connection_that_died_at_rest_fails_no_client() {
    let server = own_server(Authentication::Trust);
    let proxy = setup(&server, "transaction").limit(2).start();
    let (mut client, mut admin) = (proxy.connect(), server.connect().unwrap());
    for round in 0..100 {
        let backend = client.value("SELECT pg_backend_pid()");
        // Waits until the backend has ended.
        let ended = format!("SELECT pg_terminate_backend({backend}, 10000)");
        assert_eq!(admin.value(&ended).unwrap(), "t");
        assert_ne!(client.value("SELECT pg_backend_pid()"), backend, "{round}");
    }
}

/// Passes bytes on between clients and a server, until it forgets the connections that it has.
struct Relay {
    address: SocketAddr,
    connections: Arc<Mutex<Vec<Arc<AtomicBool>>>>,
}

impl Relay {
    fn to(server: &Postgres) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = SocketAddr::from(([127, 0, 0, 1], server.port()));
        let connections: Arc<Mutex<Vec<Arc<AtomicBool>>>> = Arc::default();
        let made = Arc::clone(&connections);
        // It ends with the process, as its connections do with their ends.
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(server).unwrap());
                let is_forgotten = Arc::new(AtomicBool::new(false));
                made.lock().unwrap().push(Arc::clone(&is_forgotten));
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let is_forgotten = Arc::clone(&is_forgotten);
                    std::thread::spawn(move || pass(from, to, &is_forgotten));
                }
            }
        });
        Relay { address, connections }
    }

    /// Says nothing to anybody, and passes nothing on.
    fn forget(&self) {
        for connection in self.connections.lock().unwrap().drain(..) {
            connection.store(true, Ordering::Relaxed);
        }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, is_forgotten: &AtomicBool) {
    let mut chunk = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut chunk) {
        if !is_forgotten.load(Ordering::Relaxed) && to.write_all(&chunk[..count]).is_err() {
            return;
        }
    }
    if !is_forgotten.load(Ordering::Relaxed) {
        let _ = to.shutdown(std::net::Shutdown::Write);
    }
}

#[test]
fn a_connection_that_was_forgotten_on_the_way_is_found_before_it_is_lent() {
    let server = own_server(Authentication::Trust);
    let relay = Relay::to(&server);
    let proxy = setup(&server, "transaction")
        .upstream(&format!("postgres://{}", relay.address))
        .line("timeouts.health_check_after = \"200ms\"\ntimeouts.health_check = \"300ms\"")
        .limit(4)
        .start();
    let mut client = proxy.connect();
    let first = client.value("SELECT pg_backend_pid()");
    assert_eq!(client.value("SELECT pg_backend_pid()"), first);
    assert_eq!(proxy.metric("tidegate_health_checks_total"), 0, "used a moment ago");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(client.value("SELECT pg_backend_pid()"), first, "it has answered");
    assert_eq!(proxy.metric("tidegate_health_checks_total"), 1);
    std::thread::sleep(Duration::from_millis(300));
    relay.forget();
    assert_ne!(client.value("SELECT pg_backend_pid()"), first);
    assert_eq!(proxy.metric("tidegate_health_checks_total"), 2);
    assert_eq!(proxy.metric("tidegate_health_check_failures_total"), 1);
    drop(client);
    proxy.is_left_clean();
}

#[test]
fn a_list_of_hosts_follows_the_primary() {
    let primary = with_table();
    let standby = standby_of(&primary);
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", standby.port(), primary.port());
    let to = |attributes: &str| {
        let url = format!("postgres://{hosts}?target_session_attrs={attributes}");
        setup(&primary, "transaction").upstream(&url).limit(4).threads(2).start()
    };
    let (writing, reading, preferring) = (to("read-write"), to("standby"), to("prefer-standby"));
    let mut writers: Vec<Wire> = (0..20).map(|_| writing.connect()).collect();
    for (id, client) in writers.iter_mut().enumerate() {
        assert_eq!(client.query(&format!("INSERT INTO done VALUES ({id})")), "C(INSERT 0 1) Z(I)");
    }
    let (mut reader, mut preferrer) = (reading.connect(), preferring.connect());
    for client in [&mut reader, &mut preferrer] {
        assert_eq!(client.value("SELECT pg_is_in_recovery()"), "t");
    }
    let in_use = |proxy: &Proxy, server: &Postgres| {
        labelled(proxy, "tidegate_server_host_in_use", &format!(":{}\"}}", server.port()))
    };
    assert_eq!((in_use(&writing, &primary), in_use(&writing, &standby)), (1.0, 0.0));
    let mut admin = standby.connect().unwrap();
    eventually("the standby has all rows", || {
        (admin.value("SELECT count(*) FROM done").unwrap() == "20").then_some(())
    });
    stop(&primary, Signal::INT);
    for (id, client) in writers.iter_mut().enumerate() {
        client.send(&query(&format!("INSERT INTO done VALUES ({})", 100 + id)));
    }
    writing.wait_for("tidegate_server_up", 0);
    assert_eq!(admin.value("SELECT pg_promote()").unwrap(), "t");
    for client in &mut writers {
        assert_eq!(show(&client.until_ready()), "C(INSERT 0 1) Z(I)");
    }
    assert_eq!((in_use(&writing, &primary), in_use(&writing, &standby)), (0.0, 1.0));
    assert_eq!(admin.value("SELECT count(DISTINCT id) FROM done").unwrap(), "40");
    assert_eq!(preferrer.value("SELECT pg_is_in_recovery()"), "f", "any host does without one");
    drop((writers, reader, preferrer));
    writing.is_left_clean();
}

#[test]
fn a_host_that_nothing_answers_at_is_passed_over() {
    let server = own_server(Authentication::Trust);
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (mode, more) in MODES.iter().zip(["", "&load_balance_hosts=random"]) {
        let url = format!(
            "postgres://{nobody},127.0.0.1:{}?target_session_attrs=any{more}",
            server.port()
        );
        let proxy = setup(&server, mode).upstream(&url).limit(4).start();
        for _ in 0..10 {
            assert_eq!(proxy.connect().value("SELECT 1"), "1", "{mode}");
        }
    }
}

/// Lets everybody in, and ends each connection with its last words when told to. It has read
/// nothing of what it was sent, so that the system ends the connection by a reset.
fn serve_last_words(listener: &TcpListener, ends: &Receiver<()>) {
    for stream in listener.incoming() {
        let (mut stream, mut len) = (stream.unwrap(), [0; 4]);
        stream.read_exact(&mut len).unwrap();
        let mut packet = vec![0; u32::from_be_bytes(len) as usize - len.len()];
        stream.read_exact(&mut packet).unwrap();
        stream.write_all(b"R\0\0\0\x08\0\0\0\0").unwrap();
        stream.write_all(READY).unwrap();
        if ends.recv().is_err() {
            return;
        }
        let mut words = Vec::new();
        encode_error(&mut words, Severity::Fatal, SqlState("57P01"), "the administrator");
        stream.write_all(&words).unwrap();
    }
}

const READY: &[u8] = b"Z\0\0\0\x05I";

/// Sends a message longer than all sockets on the way take. Returns when they take no more.
fn fill(client: &TcpStream) {
    let (mut client, sent) = (client.try_clone().unwrap(), Arc::new(AtomicU64::new(0)));
    let written = Arc::clone(&sent);
    std::thread::spawn(move || {
        let mut chunk = vec![b' '; 1 << 16];
        chunk[..5].copy_from_slice(b"Q\x3f\0\0\0");
        while client.write_all(&chunk).is_ok() {
            written.fetch_add(1, Ordering::Relaxed);
            chunk[..5].fill(b' ');
        }
    });
    let (mut before, mut times) = (0, 0);
    eventually("nothing more is taken", || {
        let now = sent.load(Ordering::Relaxed);
        times = if now > 0 && now == before { times + 1 } else { 0 };
        before = now;
        (times == 20).then_some(())
    });
}

/// The proxy learns by a failed write that the server has gone, before it has read why.
#[test]
fn the_last_words_of_a_server_that_cannot_be_written_to_reach_the_client() {
    for mode in MODES {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ends) = mpsc::channel();
        std::thread::spawn(move || serve_last_words(&listener, &ends));
        let proxy = shared(mode)
            .upstream(&format!("postgres://{address}?sslmode=disable"))
            .database_line("max_connections = 5")
            .start();
        for round in 0..5 {
            let mut client = dial(proxy.address).unwrap();
            client.write_all(&start_up()).unwrap();
            let (mut seen, mut byte) = (Vec::new(), [0]);
            while !seen.ends_with(READY) {
                client.read_exact(&mut byte).unwrap();
                seen.extend_from_slice(&byte);
            }
            fill(&client);
            end.send(()).unwrap();
            seen.clear();
            // What has come before a reset is read.
            let _ = client.read_to_end(&mut seen);
            let seen = String::from_utf8_lossy(&seen);
            assert!(seen.contains("57P01"), "{mode}, round {round}: {seen}");
        }
    }
}

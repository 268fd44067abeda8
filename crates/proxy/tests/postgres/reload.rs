//! Another configuration while clients work.

use std::fmt::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tidegate_control::SplitMix64;
use tidegate_proxy::ReloadError;
use tidegate_subject::postgres::{Authentication, Postgres};

use crate::support::plain::Plain;
use crate::support::server::{own_server, server_with, setup};
use crate::support::wire::query;
use crate::support::{Proxy, Wire, eventually};

/// The configuration of a proxy on a free port, with these lines behind its addresses.
fn text(lines: &str) -> String {
    format!("listen = [\"127.0.0.1:0\"]\nadmin_listen = \"127.0.0.1:0\"\n{lines}")
}

/// An entry that leads to the database `postgres` of a server.
fn entry(name: &str, server: &Postgres, lines: &str) -> String {
    let port = server.port();
    format!(
        "[databases.\"{name}\"]\nupstream = \"postgres://127.0.0.1:{port}/postgres\"\n{lines}\n"
    )
}

fn proxy(server: &Postgres, lines: &str) -> Proxy {
    let proxy = setup(server, "transaction").start();
    proxy.write(&text(lines));
    proxy.reload().unwrap();
    proxy
}

fn reload(proxy: &Proxy, lines: &str) -> String {
    proxy.write(&text(lines));
    proxy.reload().unwrap().to_string()
}

fn client(proxy: &Proxy, database: &str) -> Wire {
    Wire::with(proxy.address, &[("user", "postgres"), ("database", database)])
}

/// How a login is refused.
fn refusal(proxy: &Proxy, database: &str) -> String {
    let parameters = [("user", "postgres"), ("database", database)];
    Wire::attempt(proxy.address, &parameters).login.last().unwrap().code()
}

#[test]
fn a_file_that_cannot_be_served_is_refused_as_a_whole() {
    let server = own_server(Authentication::Trust);
    let good = entry("kept", &server, "");
    let proxy = proxy(&server, &good);
    let mut inside = client(&proxy, "kept");
    inside.query("BEGIN");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    let more = entry("more", &server, "");
    let wrong = [
        format!("{more}[nonsense"),
        format!("{more}{}", entry("kept", &server, "mode = \"none\"")),
        format!("{more}[databases.far]\nupstream = \"postgres://host.invalid/\""),
        format!("{more}[timeouts]\nlogin = \"never\""),
        format!("users_file = \"missing\"\n{more}"),
        format!("client_tls = {{ certificate = \"missing\", key = \"missing\" }}\n{more}"),
    ];
    for lines in wrong {
        proxy.write(&text(&lines));
        let error = proxy.reload().unwrap_err();
        assert!(!matches!(error, ReloadError::Stopping), "{lines}: {error}");
        assert_eq!(refusal(&proxy, "more"), "3D000", "{lines}: {error}");
    }
    for key in ["listen = [\"127.0.0.1:0\", ", "listen = [\"127.0.0.1:0\"]\nadmin_listen = "] {
        let end = if key.ends_with("= ") { "" } else { "]" };
        proxy.write(&format!("{key}\"{taken}\"{end}\n{more}"));
        let error = proxy.reload().unwrap_err().to_string();
        assert!(error.contains(&taken.to_string()), "{error}");
        assert_eq!(refusal(&proxy, "more"), "3D000");
    }
    assert_eq!(inside.value("SELECT 1"), "1", "its transaction is as it was");
    assert_eq!(client(&proxy, "kept").value("SELECT 2"), "2");
    assert!(reload(&proxy, &format!("{good}{more}")).contains("settings have changed"));
    assert_eq!(client(&proxy, "more").value("SELECT 3"), "3");
    drop(inside);
    proxy.is_left_clean();
}

/// Clients at rest are told at once, others when their transaction has ended; those of other
/// databases notice nothing.
#[test]
fn clients_of_a_database_that_has_gone_are_told_so_after_their_transaction() {
    let server = own_server(Authentication::Trust);
    for mode in ["transaction", "session"] {
        let lines = format!("mode = \"{mode}\"");
        let (kept, gone) = (entry("kept", &server, &lines), entry("gone", &server, &lines));
        let proxy = proxy(&server, &format!("{kept}{gone}"));
        let (mut stays, mut idle) = (client(&proxy, "kept"), client(&proxy, "gone"));
        let mut inside = client(&proxy, "gone");
        stays.query("BEGIN");
        inside.query("BEGIN");
        assert_eq!(idle.value("SELECT 1"), "1");
        reload(&proxy, &kept);
        let last = idle.receive().unwrap();
        assert_eq!(last.code(), "57P01", "{mode}: {}", last.text());
        assert!(last.text().contains("\"gone\" is configured here no more"), "{}", last.text());
        assert!(idle.is_closed());
        assert_eq!(inside.value("SELECT 2"), "2");
        let told = inside.query("COMMIT");
        assert!(told.contains("COMMIT"), "{told}");
        assert_eq!(inside.receive().unwrap().code(), "57P01");
        assert_eq!(stays.value("SELECT 3"), "3");
        stays.query("COMMIT");
        assert_eq!(refusal(&proxy, "gone"), "3D000");
        drop((stays, idle, inside));
        proxy.is_left_clean();
    }
}

/// A client of transaction mode is moved between two transactions; one of session mode keeps its
/// connection, and who comes later gets a new one.
#[test]
fn clients_of_a_database_that_leads_elsewhere_move() {
    let server = own_server(Authentication::Trust);
    server.connect().unwrap().query("CREATE DATABASE other").unwrap();
    let port = server.port();
    let lines = |there: &str, mode: &str| {
        format!(
            "[databases.d]\nupstream = \"postgres://127.0.0.1:{port}/{there}\"\nmode = \"{mode}\"\n"
        )
    };
    let ask = "SELECT current_database()";
    for mode in ["transaction", "session"] {
        let proxy = proxy(&server, &lines("postgres", mode));
        let (mut inside, mut idle) = (client(&proxy, "d"), client(&proxy, "d"));
        inside.query("SET application_name = 'follows'");
        inside.query("BEGIN");
        assert_eq!((inside.value(ask), idle.value(ask)), ("postgres".into(), "postgres".into()));
        let report = reload(&proxy, &lines("other", mode));
        assert!(report.contains("connections are replaced for: d"), "{report}");
        assert_eq!(inside.value(ask), "postgres", "a transaction stays where it is");
        inside.query("COMMIT");
        let expected = if mode == "session" { "postgres" } else { "other" };
        assert_eq!((&*inside.value(ask), &*idle.value(ask)), (expected, expected));
        assert_eq!(inside.value("SHOW application_name"), "follows");
        assert_eq!(client(&proxy, "d").value(ask), "other");
        // What was prepared is prepared there as well.
        drop((inside, idle));
        proxy.is_left_clean();
    }
}

/// An entry of its own goes before the one for all names, for clients that are there as well.
#[test]
fn a_name_that_gets_an_entry_of_its_own_leads_there() {
    let server = own_server(Authentication::Trust);
    server.connect().unwrap().query("CREATE DATABASE other").unwrap();
    let port = server.port();
    let all = format!("[databases.\"*\"]\nupstream = \"postgres://127.0.0.1:{port}\"\n");
    let own = format!("[databases.postgres]\nupstream = \"postgres://127.0.0.1:{port}/other\"\n");
    let proxy = proxy(&server, &all);
    let ask = "SELECT current_database()";
    let mut client = client(&proxy, "postgres");
    assert_eq!(client.value(ask), "postgres");
    reload(&proxy, &format!("{own}{all}"));
    assert_eq!(client.value(ask), "other");
    reload(&proxy, &all);
    assert_eq!(client.value(ask), "postgres");
    drop(client);
    proxy.is_left_clean();
}

/// Those who are there already count against a bound that is new, and a limit stays where it is if
/// nothing is said of it.
#[test]
fn bounds_hold_for_those_who_are_there() {
    let server = own_server(Authentication::Trust);
    let with = |lines: &str| entry("d", &server, lines);
    let proxy = proxy(&server, &with("control = \"fixed:5\""));
    let (mut first, second) = (client(&proxy, "d"), client(&proxy, "d"));
    reload(&proxy, &with("control = \"fixed:5\"\nmax_clients = 2"));
    assert_eq!(refusal(&proxy, "d"), "53300");
    drop(second);
    let mut second = eventually("room for one", || Plain::connect_to(proxy.address, "d").ok());
    assert_eq!(proxy.metric("tidegate_limit"), 5);
    reload(&proxy, &with("control = \"fixed:5\"\n[timeouts]\nqueue = \"2s\""));
    assert_eq!(proxy.metric("tidegate_limit"), 5);
    reload(&proxy, &with("control = \"fixed:1\""));
    eventually("the new limit", || (proxy.metric("tidegate_limit") == 1).then_some(()));
    // One transaction at a time, and the other waits for it.
    first.send(&query("SELECT pg_sleep(600)"));
    proxy.wait_for("tidegate_permits_out", 1);
    second.send("SELECT 1").unwrap();
    proxy.wait_for("tidegate_waiting", 1);
    reload(&proxy, &with("control = \"fixed:2\""));
    assert_eq!(second.answer().unwrap(), Ok("1".into()));
    // A controller that is told other bounds goes on from the limit that it has found.
    reload(&proxy, &with("control = \"paired-comparison\"\nmin_mpl = 2\nmax_mpl = 50"));
    eventually("a limit within", || (proxy.metric("tidegate_limit") == 2).then_some(()));
    drop((first, second));
    proxy.is_left_clean();
}

#[test]
fn addresses_come_and_go() {
    let server = own_server(Authentication::Trust);
    let all = entry("*", &server, "");
    let proxy = proxy(&server, &all);
    let socket = proxy.directory.path().join(".s.PGSQL.9");
    let before = proxy.local_addresses().len();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let listen = format!("listen = [\"127.0.0.1:0\", \"{free}\", \"{}\"]\n", socket.display());
    let admin = "admin_listen = \"127.0.0.1:0\"\n";
    let mut client = client(&proxy, "postgres");
    proxy.write(&format!("{listen}{admin}{all}"));
    proxy.reload().unwrap();
    assert_eq!(proxy.local_addresses().len(), before + 2);
    assert_eq!(Wire::connect(free).value("SELECT 1"), "1");
    UnixStream::connect(&socket).unwrap();
    let mut stays = Wire::connect(free);
    reload(&proxy, &all);
    eventually("nobody listens there", || TcpStream::connect(free).err());
    assert!(!socket.exists());
    assert_eq!((stays.value("SELECT 2"), client.value("SELECT 3")), ("2".into(), "3".into()));
    proxy.write(&format!("listen = [\"127.0.0.1:0\"]\n{all}"));
    proxy.reload().unwrap();
    assert_eq!(proxy.admin_address(), None);
    assert!(
        reload(&proxy, &format!("threads = 3\nseed = 7\n{all}"))
            .ends_with("restart needed for: threads, seed")
    );
    drop((client, stays));
    proxy.is_left_clean();
}

#[test]
fn a_user_who_has_left_the_file_is_ended() {
    let server = own_server(Authentication::Trust);
    let lines = format!("users_file = \"users\"\n{}", entry("*", &server, ""));
    let proxy = setup(&server, "transaction").start();
    let users = proxy.directory.path().join("users");
    std::fs::write(&users, "\"ann\" \"a\"\n\"postgres\" \"p\"\n").unwrap();
    reload(&proxy, &lines);
    let url = |user: &str| format!("postgres://{user}@{}/postgres", proxy.address);
    let connect = |user: &str| {
        let client = tidegate_subject::client::BlockingClient::connect(&url(user));
        client.unwrap()
    };
    server.connect().unwrap().query("CREATE ROLE ann LOGIN").unwrap();
    let (mut ann, mut stays) = (connect("ann:a"), connect("postgres:p"));
    assert_eq!(ann.value("SELECT 1").unwrap(), "1");
    std::fs::write(&users, "\"postgres\" \"p\"\n").unwrap();
    proxy.reload().unwrap();
    // It has been told why, or finds the connection closed.
    ann.value("SELECT 1").unwrap_err();
    assert_eq!(stays.value("SELECT 2").unwrap(), "2");
}

/// The names of databases that clients ask for.
const NAMES: [&str; 4] = ["one", "two", "three", "four"];

/// Threads with a client each.
const CLIENTS: usize = 8;

/// Accounts of the bank, and what each has at first.
const ACCOUNTS: u64 = 20;

/// A configuration that was in force from the beginning of its reload to the end of the next one.
struct Period {
    names: Vec<&'static str>,
    since: Instant,
    until: Option<Instant>,
}

/// All configurations that were in force.
#[derive(Default)]
struct History(Mutex<Vec<Period>>);

impl History {
    fn begin(&self, names: Vec<&'static str>) {
        let period = Period { names, since: Instant::now(), until: None };
        self.0.lock().unwrap().push(period);
    }

    /// The newest period has replaced those before.
    fn taken_over(&self) {
        let mut periods = self.0.lock().unwrap();
        let count = periods.len();
        for period in periods.iter_mut().take(count - 1) {
            period.until.get_or_insert_with(Instant::now);
        }
    }

    /// Whether a database was not configured at some moment of this time.
    fn was_missing(&self, name: &str, from: Instant, to: Instant) -> bool {
        let periods = self.0.lock().unwrap();
        periods.iter().any(|period| {
            let overlaps = period.since <= to && period.until.is_none_or(|until| until >= from);
            overlaps && !period.names.contains(&name)
        })
    }
}

/// Draws a configuration. Whatever it is, every client fits in.
fn draw(server: &Postgres, draws: &mut SplitMix64) -> (Vec<&'static str>, String) {
    let mut pick = |count: u32| draws.next_below(count);
    let mut lines = String::new();
    let mut names: Vec<&str> = NAMES.into_iter().filter(|_| pick(4) > 0).collect();
    if names.is_empty() {
        names.push(NAMES[0]);
    }
    let mut line = |text: std::fmt::Arguments<'_>| writeln!(lines, "{text}").unwrap();
    if pick(2) == 0 {
        line(format_args!("max_clients = {}", 30 + pick(50)));
    }
    line(format_args!("waiting_max = {}", 50 + pick(50)));
    let port = server.port();
    // All entries of one host have one limit.
    let hosts = ["127.0.0.1", "localhost"].map(|host| {
        let control = ["fixed:1", "fixed:3", "paired-comparison"][pick(3) as usize];
        (host, format!("control = \"{control}\"\nmax_connections = {}", 30 + pick(20)))
    });
    for name in &names {
        let (host, of_host) = &hosts[pick(2) as usize];
        let user = ["", "postgres@", "teller@"][pick(3) as usize];
        line(format_args!("[databases.{name}]\n{of_host}"));
        line(format_args!("upstream = \"postgres://{user}{host}:{port}/postgres\""));
        let mode = ["transaction", "transaction", "session"][pick(3) as usize];
        line(format_args!("mode = \"{mode}\""));
        if pick(3) == 0 {
            line(format_args!("max_database_connections = {}", 20 + pick(20)));
        }
        if mode == "transaction" && pick(3) == 0 {
            line(format_args!("min_connections = {}", 1 + pick(3)));
        }
        if pick(3) == 0 {
            line(format_args!("timeouts = {{ queue = \"{}s\" }}", 20 + pick(20)));
        }
    }
    line(format_args!("[timeouts]\nserver_idle = \"{}s\"\nconnect = \"20s\"", 1 + pick(5)));
    if pick(2) == 0 {
        line(format_args!("[users.postgres]\nmax_connections = {}", 20 + pick(20)));
    }
    (names, lines)
}

/// Transfers money until told to stop. Returns the transfers that were confirmed.
fn transfer(
    address: SocketAddr,
    name: &'static str,
    (history, done): (&History, &AtomicBool),
    seed: u64,
) -> u64 {
    let mut draws = SplitMix64::new(seed);
    let mut confirmed = 0;
    while !done.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let may_be_missing = || history.was_missing(name, begun, Instant::now());
        let mut client = match Plain::connect_to(address, name) {
            Ok(client) => client,
            Err(error) => {
                assert!(
                    may_be_missing() && (error.contains("3D000") || error.contains("57P01")),
                    "seed {seed}, {name}: {error}"
                );
                std::thread::sleep(Duration::from_millis(5));
                continue;
            }
        };
        while !done.load(Ordering::Relaxed) {
            let mut accounts = [0, 0].map(|_| draws.next_bits() % ACCOUNTS);
            // In one order, so that nobody waits in a circle.
            accounts.sort_unstable();
            match client.run("BEGIN") {
                Ok(Ok(_)) => {}
                // It has gone between two transactions.
                Ok(Err(code)) if code == "57P01" && may_be_missing() => break,
                Err(_) if may_be_missing() => break,
                other => panic!("seed {seed}, {name}: {other:?} {}", may_be_missing()),
            }
            // From here on it is left alone.
            for sql in [
                format!("UPDATE bank SET money = money - 1 WHERE id = {}", accounts[0]),
                format!("UPDATE bank SET money = money + 1 WHERE id = {}", accounts[1]),
                "INSERT INTO done VALUES (1)".to_owned(),
                "COMMIT".to_owned(),
            ] {
                let answer = client.run(&sql);
                assert!(matches!(answer, Ok(Ok(_))), "seed {seed}, {name}: {sql}: {answer:?}");
            }
            confirmed += 1;
            if draws.next_bits().is_multiple_of(8) {
                std::thread::sleep(Duration::from_millis(draws.next_bits() % 5));
            }
        }
        client.leave();
    }
    confirmed
}

/// Clients work while configurations are drawn: none sees an error but one whose database has gone,
/// and that one between two transactions; nothing that was confirmed is lost.
#[expect(clippy::print_stdout, reason = "it prints its seeds")]
fn reload_under_clients(seeds: std::ops::Range<u64>, reloads: usize) {
    let server = server_with(&[("max_connections", "400")], Authentication::Trust);
    let mut own = server.connect().unwrap();
    own.query("CREATE ROLE teller LOGIN SUPERUSER").unwrap();
    own.query("CREATE TABLE bank (id bigint PRIMARY KEY, money bigint)").unwrap();
    own.query(&format!(
        "INSERT INTO bank SELECT id, 100 FROM generate_series(0, {}) id",
        ACCOUNTS - 1
    ))
    .unwrap();
    own.query("CREATE TABLE done (one bigint)").unwrap();
    for seed in seeds {
        println!("seed {seed}");
        own.query("TRUNCATE done").unwrap();
        let mut draws = SplitMix64::new(seed);
        let (names, lines) = draw(&server, &mut draws);
        let history = History::default();
        history.begin(names);
        let proxy = setup(&server, "transaction").threads(2).start();
        proxy.write(&format!("threads = 2\n{}", text(&lines)));
        proxy.reload().unwrap();
        let done = AtomicBool::new(false);
        let confirmed: u64 = std::thread::scope(|scope| {
            let work = |number: usize| {
                let (name, shared) = (NAMES[number % NAMES.len()], (&history, &done));
                let seed = seed * 1000 + number as u64;
                let address = proxy.address;
                scope.spawn(move || transfer(address, name, shared, seed))
            };
            let clients: Vec<_> = (0..CLIENTS).map(work).collect();
            for _ in 0..reloads {
                std::thread::sleep(Duration::from_millis(draws.next_bits() % 120));
                let (names, lines) = draw(&server, &mut draws);
                proxy.write(&format!("threads = 2\n{}", text(&lines)));
                history.begin(names);
                proxy.reload().unwrap();
                // Every event loop has taken it over when it has answered.
                proxy.metric("tidegate_clients");
                std::thread::sleep(Duration::from_millis(20));
                history.taken_over();
            }
            done.store(true, Ordering::Relaxed);
            clients.into_iter().map(|client| client.join().unwrap()).sum()
        });
        let counted = own.value("SELECT count(*) FROM done").unwrap();
        let sum = own.value("SELECT sum(money) FROM bank").unwrap();
        assert_eq!(sum, (ACCOUNTS * 100).to_string(), "seed {seed}");
        assert_eq!(counted, confirmed.to_string(), "seed {seed}");
        assert!(confirmed > 0, "seed {seed}: no client came to anything");
        println!("{confirmed} transfers");
        proxy.is_left_clean();
    }
}

#[test]
fn whatever_is_reloaded_clients_go_on() {
    reload_under_clients(0..4, 25);
}

#[test]
#[ignore = "takes minutes: a soak test"]
fn whatever_is_reloaded_clients_go_on_for_long() {
    reload_under_clients(100..140, 60);
}

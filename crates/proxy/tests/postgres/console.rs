//! The console: who may use it, what it shows, and that its orders are obeyed.

use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tidegate_subject::postgres::Authentication;
use tidegate_wire::backend::{self, tag};
use tidegate_wire::frontend::Target;

use crate::support::server::{Setup, own_server, setup, shared};
use crate::support::wire::{
    SYNC, bind, cancel, describe, error_code, execute, message, parse, query, show,
};
use crate::support::{MODES, Message, Proxy, Wire, eventually};

/// Who may use the console.
const USERS: &str = "admin_users = [\"boss\"]\nstats_users = [\"watcher\"]";

fn with_console(mode: &str) -> Setup {
    shared(mode).line(USERS).threads(2)
}

fn console_as(proxy: &Proxy, user: &str) -> Wire {
    Wire::with(proxy.address, &[("user", user), ("database", "pgbouncer")])
}

fn console(proxy: &Proxy) -> Wire {
    console_as(proxy, "boss")
}

/// The rows of a result; NULL is `-`.
fn rows(messages: &[Message]) -> Vec<Vec<String>> {
    let rows = messages.iter().filter(|message| message.tag == tag::DATA_ROW);
    rows.map(|row| {
        let cells = backend::data_row(&row.payload).unwrap();
        let text = |cell: Option<&[u8]>| match cell {
            Some(cell) => String::from_utf8(cell.to_vec()).unwrap(),
            None => "-".to_owned(),
        };
        cells.map(text).collect()
    })
    .collect()
}

/// The names and the object identifiers of the types of a result's columns.
fn columns(messages: &[Message]) -> Vec<(String, u32)> {
    let description = messages.iter().find(|message| message.tag == tag::ROW_DESCRIPTION);
    let mut rest = &description.expect("a result has columns").payload[2..];
    let mut columns = Vec::new();
    while let Some(end) = rest.iter().position(|&byte| byte == 0) {
        let name = String::from_utf8(rest[..end].to_vec()).unwrap();
        let oid = u32::from_be_bytes(rest[end + 7..end + 11].try_into().unwrap());
        columns.push((name, oid));
        rest = &rest[end + 19..];
    }
    columns
}

/// The result of a command, with the values by the names of the columns.
struct Shown {
    names: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Shown {
    fn of(console: &mut Wire, command: &str) -> Shown {
        console.send(&query(command));
        let messages = console.until_ready();
        let names = columns(&messages).into_iter().map(|(name, _)| name).collect();
        Shown { names, rows: rows(&messages) }
    }

    fn value<'a>(&self, row: &'a [String], name: &str) -> &'a str {
        let index = self.names.iter().position(|it| it == name);
        &row[index.unwrap_or_else(|| panic!("no column {name}: {:?}", self.names))]
    }

    /// The values of a column in the rows in which another has this value.
    fn find(&self, key: &str, value: &str, wanted: &str) -> Vec<&str> {
        let is_it = |row: &&Vec<String>| self.value(row, key) == value;
        self.rows.iter().filter(is_it).map(|row| self.value(row, wanted)).collect()
    }
}

/// The columns of PgBouncer 1.24.1's results, as it sends them: name and type.
const COLUMNS: &[(&str, &str)] = &[
    (
        "STATS",
        "database:25 total_server_assignment_count:1700 total_xact_count:1700 \
         total_query_count:1700 total_received:1700 total_sent:1700 total_xact_time:1700 \
         total_query_time:1700 total_wait_time:1700 total_client_parse_count:1700 \
         total_server_parse_count:1700 total_bind_count:1700 avg_server_assignment_count:1700 \
         avg_xact_count:1700 avg_query_count:1700 avg_recv:1700 avg_sent:1700 avg_xact_time:1700 \
         avg_query_time:1700 avg_wait_time:1700 avg_client_parse_count:1700 \
         avg_server_parse_count:1700 avg_bind_count:1700",
    ),
    (
        "STATS_TOTALS",
        "database:25 server_assignment_count:1700 xact_count:1700 query_count:1700 \
         bytes_received:1700 bytes_sent:1700 xact_time:1700 query_time:1700 wait_time:1700 \
         client_parse_count:1700 server_parse_count:1700 bind_count:1700",
    ),
    (
        "STATS_AVERAGES",
        "database:25 server_assignment_count:1700 xact_count:1700 query_count:1700 \
         bytes_received:1700 bytes_sent:1700 xact_time:1700 query_time:1700 wait_time:1700 \
         avg_client_parse_count:1700 avg_server_parse_count:1700 avg_bind_count:1700",
    ),
    ("TOTALS", "name:25 value:1700"),
    (
        "POOLS",
        "database:25 user:25 cl_active:23 cl_waiting:23 cl_active_cancel_req:23 \
         cl_waiting_cancel_req:23 sv_active:23 sv_active_cancel:23 sv_being_canceled:23 \
         sv_idle:23 sv_used:23 sv_tested:23 sv_login:23 maxwait:23 maxwait_us:23 pool_mode:25 \
         load_balance_hosts:25",
    ),
    ("CLIENTS", SOCKET),
    ("SERVERS", SOCKET),
    (
        "DATABASES",
        "name:25 host:25 port:23 database:25 force_user:25 pool_size:23 min_pool_size:23 \
         reserve_pool_size:23 server_lifetime:23 pool_mode:25 load_balance_hosts:25 \
         max_connections:23 current_connections:23 max_client_connections:23 \
         current_client_connections:23 paused:23 disabled:23",
    ),
    ("LISTS", "list:25 items:23"),
    (
        "USERS",
        "name:25 pool_size:25 reserve_pool_size:25 pool_mode:25 max_user_connections:23 \
         current_connections:23 max_user_client_connections:23 current_client_connections:23",
    ),
    ("VERSION", "version:25"),
    ("MEM", "name:25 size:23 used:23 free:23 memtotal:23"),
    ("STATE", "key:25 value:25"),
    ("PEERS", "peer_id:23 host:25 port:23 pool_size:23"),
    (
        "PEER_POOLS",
        "peer_id:23 cl_active_cancel_req:23 cl_waiting_cancel_req:23 sv_active_cancel:23 \
         sv_login:23",
    ),
    ("DNS_HOSTS", "hostname:25 ttl:20 addrs:25"),
    ("DNS_ZONES", "zonename:25 serial:20 count:23"),
    ("CONFIG", "key:25 value:25 default:25 changeable:25"),
];

const SOCKET: &str = "type:25 user:25 database:25 replication:25 state:25 addr:25 port:23 \
     local_addr:25 local_port:23 connect_time:25 request_time:25 wait:23 wait_us:23 \
     close_needed:23 ptr:25 link:25 remote_pid:23 tls:25 application_name:25 \
     prepared_statements:23 id:23";

#[test]
fn results_have_pgbouncers_columns() {
    let proxy = with_console("transaction").start();
    let mut client = proxy.connect();
    client.query("SELECT 1");
    let mut console = console(&proxy);
    for (what, wanted) in COLUMNS {
        console.send(&query(&format!("SHOW {what};")));
        let messages = console.until_ready();
        let columns: Vec<String> =
            columns(&messages).iter().map(|(name, oid)| format!("{name}:{oid}")).collect();
        assert_eq!(columns.join(" "), *wanted, "SHOW {what}");
        assert!(show(&messages).ends_with("C(SHOW) Z(I)"), "{}", show(&messages));
    }
    for what in ["SOCKETS", "ACTIVE_SOCKETS", "LIMIT", "QUEUE", "PERMITS", "CLASSES", "CURVE"] {
        console.send(&query(&format!("show {}", what.to_lowercase())));
        assert!(!columns(&console.until_ready()).is_empty(), "{what}");
    }
}

#[test]
fn only_those_who_are_named_may_use_it_and_some_may_only_look() {
    let proxy = with_console("transaction").start();
    let stranger = Wire::attempt(proxy.address, &[("user", "stranger"), ("database", "pgbouncer")]);
    assert_eq!(error_code(&stranger.login), "28000");
    let mut watcher = console_as(&proxy, "watcher");
    assert!(watcher.query("SHOW POOLS").contains("C(SHOW)"));
    for command in ["PAUSE", "KILL", "SHUTDOWN", "RELOAD", "SET a = 1", "KILL_CLIENT 1"] {
        assert_eq!(watcher.error(command), "42501", "{command}");
    }
    // What drivers set by themselves is let through.
    assert!(watcher.query("SET client_encoding TO 'UTF8'").ends_with("C(SET) Z(I)"));
    let mut boss = Wire::with(proxy.address, &[("user", "boss"), ("database", "tidegate")]);
    assert!(boss.query("show version; SHOW STATE").contains("C(SHOW)"));
    let codes = [
        ("bla", "42601"),
        ("show nothing", "42601"),
        ("pause nobody here", "42601"),
        ("disable", "42601"),
        ("RESUME", "55000"),
        ("pause pgbouncer", "55000"),
        ("show fds", "0A000"),
        // The program that runs the proxy, which is the test, has not said how it stops.
        ("SHUTDOWN", "0A000"),
        ("SET pool_mode = session", "22023"),
        ("SET default_pool_size = 5", "22023"),
        ("SET nonsense = 1", "F0000"),
        ("SET threads = 3", "F0000"),
        ("SET timeouts.queue = soon", "F0000"),
        ("KILL_CLIENT 999999", "55000"),
    ];
    for (command, code) in codes {
        assert_eq!(boss.error(command), code, "{command}");
    }
    assert_eq!(boss.query(" ; "), "I() Z(I)");
}

/// What is set holds until the file is read again; what cannot change is refused, and said.
#[test]
fn settings_are_set_and_reloaded() {
    let proxy = with_console("transaction").start();
    let config = |line: &str| {
        let shown = psql(&proxy, "boss", "", &["-Atc", "SHOW CONFIG"]);
        let text = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(text.lines().any(|it| it == line), "{line}:\n{text}");
    };
    config("timeouts.queue|2m|2m|yes");
    config("threads|2||no");
    let told = psql(&proxy, "boss", "", &["-Atc", "SET timeouts.queue = '7s'"]);
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(told.contains("NOTICE:  1 setting has changed"), "{told}");
    assert!(told.contains("DETAIL:  timeouts.queue = 7s"), "{told}");
    let mut boss = console_as(&proxy, "boss");
    for command in ["SET databases.*.control = 'fixed:3'", "SET max_client_conn = 50"] {
        assert!(boss.query(command).ends_with("C(SET) Z(I)"), "{command}");
    }
    config("timeouts.queue|7s|2m|yes");
    config("databases.*.control|fixed:3||yes");
    config("max_client_conn|50||yes");
    eventually("the limit", || (proxy.metric("tidegate_limit") == 3).then_some(()));
    for told in ["settings have changed", "no setting has changed"] {
        let reloaded = psql(&proxy, "boss", "", &["-Atc", "RELOAD"]);
        let notice = String::from_utf8_lossy(&reloaded.stderr).into_owned();
        assert!(notice.contains(told), "{notice}");
        config("timeouts.queue|2m|2m|yes");
    }
}

#[test]
fn passwords_are_asked_for_as_elsewhere() {
    let proxy = with_console("transaction")
        .users("\"boss\" \"secret\"\n")
        .line("auth = \"scram-sha-256\"")
        .start();
    for (password, is_right) in [("secret", true), ("wrong", false)] {
        let output = psql(&proxy, "boss", password, &["-Atc", "SHOW VERSION"]);
        assert_eq!(output.status.success(), is_right, "{output:?}");
    }
}

fn psql(proxy: &Proxy, user: &str, password: &str, arguments: &[&str]) -> Output {
    Command::new("psql")
        .env("PGPASSWORD", password)
        .args(["-X", "-h", "127.0.0.1", "-p", &proxy.address.port().to_string()])
        .args(["-U", user, "-d", "pgbouncer"])
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn psql_shows_everything() {
    let proxy = with_console("transaction").start();
    let mut client = proxy.connect();
    client.query("SELECT 1");
    for (what, _) in COLUMNS {
        let output = psql(&proxy, "boss", "", &["-c", &format!("SHOW {what}")]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains("row"), "{what}: {output:?}");
    }
    let help = psql(&proxy, "boss", "", &["-c", "SHOW HELP"]);
    assert!(String::from_utf8_lossy(&help.stderr).contains("SHOW STATS|STATS_TOTALS"));
    let error = psql(&proxy, "boss", "", &["-c", "SELECT 1"]);
    let error = String::from_utf8_lossy(&error.stderr).into_owned();
    assert!(error.contains("invalid command 'SHOW 1', use SHOW HELP;"), "{error}");
}

#[test]
fn the_extended_protocol_works_in_text_format() {
    let proxy = with_console("transaction").start();
    let mut console = console(&proxy);
    let batch = [
        parse("s", "SHOW LISTS"),
        describe(Target::Statement, "s"),
        bind("s", &[]),
        describe(Target::Portal, ""),
        execute("", 0),
        SYNC.to_vec(),
    ];
    console.send(&batch.concat());
    let messages = console.until_ready();
    let tags: String = messages.iter().map(|it| char::from(it.tag)).collect();
    assert_eq!(tags, format!("1tT2T{}CZ", "D".repeat(14)));
    console.send(&[parse("", "PAUSE x y"), bind("", &[]), SYNC.to_vec()].concat());
    assert_eq!(show(&console.until_ready()), "E(42601) Z(I)");
    let binary = message(b'B', b"\0s\0\0\0\0\0\0\x01\0\x01");
    console.send(&[binary, SYNC.to_vec()].concat());
    assert_eq!(show(&console.until_ready()), "E(0A000) Z(I)");
}

/// A client inside a transaction, and one that waits behind it, as the console sees them.
#[test]
fn clients_servers_and_the_queue_are_shown_as_they_are() {
    let proxy = with_console("transaction").limit(1).start();
    let mut holder = Wire::with(proxy.address, &[("application_name", "holder")]);
    holder.query("BEGIN");
    let backend = holder.value("SELECT pg_backend_pid()");
    let mut waiter = Wire::with(proxy.address, &[("application_name", "waiter")]);
    waiter.send(&query("SELECT 2"));
    proxy.wait_for("tidegate_waiting", 1);
    let mut console = console(&proxy);
    let clients = Shown::of(&mut console, "SHOW CLIENTS");
    assert_eq!(clients.find("application_name", "holder", "state"), ["active"]);
    assert_eq!(clients.find("application_name", "waiter", "state"), ["waiting"]);
    assert_eq!(clients.find("user", "boss", "database"), ["pgbouncer"]);
    let servers = Shown::of(&mut console, "SHOW SERVERS");
    assert_eq!(servers.find("application_name", "holder", "remote_pid"), [&*backend]);
    let link = clients.find("application_name", "holder", "link");
    assert_eq!(servers.find("application_name", "holder", "ptr"), link, "they name each other");
    let pools = Shown::of(&mut console, "SHOW POOLS");
    let row = &pools.rows[0];
    let shown =
        ["cl_active", "cl_waiting", "sv_active", "pool_mode"].map(|name| pools.value(row, name));
    assert_eq!(shown, ["1", "1", "1", "transaction"], "{row:?}");
    let queue = Shown::of(&mut console, "SHOW QUEUE");
    assert_eq!(queue.find("position", "1", "waits_for"), ["permit"]);
    assert_eq!(queue.rows.len(), 1);
    let permits = Shown::of(&mut console, "SHOW PERMITS");
    assert_eq!(permits.find("state", "idle in transaction", "user"), ["postgres"]);
    assert_eq!(permits.rows.len(), 1);
    let limit = Shown::of(&mut console, "SHOW LIMIT");
    let row = &limit.rows[0];
    let shown = ["limit", "waiting", "control"].map(|name| limit.value(row, name));
    assert_eq!(shown, ["1", "1", "fixed:1"], "{row:?}");
    let id = clients.find("application_name", "holder", "id")[0].to_owned();
    assert_eq!(console.query(&format!("KILL_CLIENT {id}")), "C(KILL_CLIENT) Z(I)");
    assert_eq!(last_words(&mut holder), "E(57P01)");
    assert!(show(&waiter.until_ready()).contains("D(2)"), "the transaction was rolled back");
    drop((holder, waiter, console));
    proxy.is_left_clean();
}

#[test]
fn totals_count_what_has_happened() {
    for mode in MODES {
        let proxy = with_console(mode).start();
        let mut client = proxy.connect();
        for _ in 0..3 {
            client.query("SELECT 1");
        }
        client.query("BEGIN");
        client.query("SELECT pg_sleep(0.05)");
        client.query("COMMIT");
        client.send(
            &[parse("s", "SELECT 2"), bind("s", &[]), execute("", 0), SYNC.to_vec()].concat(),
        );
        client.until_ready();
        let mut console = console(&proxy);
        let stats = Shown::of(&mut console, "SHOW STATS");
        let row = &stats.rows[0];
        let number = |name: &str| stats.value(row, name).parse::<u64>().unwrap();
        assert_eq!(stats.value(row, "database"), "postgres");
        assert_eq!(number("total_xact_count"), 5, "{mode}");
        assert_eq!(number("total_query_count"), 7, "{mode}");
        let assignments = if mode == "session" { 1 } else { 5 };
        assert_eq!(number("total_server_assignment_count"), assignments, "{mode}");
        assert_eq!(number("total_client_parse_count"), 1, "{mode}");
        assert_eq!(number("total_bind_count"), 1, "{mode}");
        assert!(number("total_xact_time") >= 50_000 && number("total_query_time") >= 50_000);
        assert!(number("total_received") > 100 && number("total_sent") > 100);
        drop((client, console));
        proxy.is_left_clean();
    }
}

/// What a client is told before its connection is closed.
fn last_words(client: &mut Wire) -> String {
    let messages: Vec<Message> = std::iter::from_fn(|| client.receive()).collect();
    show(&messages)
}

/// Runs transactions until told to stop, and counts those that were confirmed; any error fails the
/// test.
fn work(proxy: &Proxy, done: &AtomicBool, count: &AtomicU64) {
    let mut client = proxy.connect();
    while !done.load(Ordering::Relaxed) {
        client.query("BEGIN");
        assert_eq!(client.value("SELECT 1"), "1");
        assert_eq!(client.query("COMMIT"), "C(COMMIT) Z(I)");
        count.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_pause_waits_for_transactions_and_loses_none() {
    let server = own_server(Authentication::Trust);
    let proxy = setup(&server, "transaction").line(USERS).threads(2).limit(4).start();
    let (done, count) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..20).map(|_| scope.spawn(|| work(&proxy, &done, &count))).collect();
        let mut console = console(&proxy);
        for round in 0..5 {
            let before = count.load(Ordering::Relaxed);
            eventually("they are at work", || {
                (count.load(Ordering::Relaxed) > before + 50).then_some(())
            });
            assert_eq!(console.query("PAUSE"), "C(PAUSE) Z(I)");
            let paused = count.load(Ordering::Relaxed);
            let sql = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' \
                       AND pid <> pg_backend_pid()";
            assert_eq!(server.connect().unwrap().value(sql).unwrap(), "0", "round {round}");
            assert!(console.query("SHOW STATE").contains("paused"));
            assert_eq!(console.error("PAUSE"), "55000");
            std::thread::sleep(Duration::from_millis(100));
            // The last answers may have been read after the pause was confirmed.
            assert!(count.load(Ordering::Relaxed) <= paused + 20, "round {round}: they wait");
            assert_eq!(console.query("RESUME"), "C(RESUME) Z(I)");
        }
        done.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().unwrap();
        }
    });
    proxy.is_left_clean();
}

#[test]
fn a_server_that_is_restarted_in_a_pause_fails_nothing() {
    let mut server = own_server(Authentication::Trust);
    let proxy = setup(&server, "transaction").line(USERS).threads(2).limit(4).start();
    let (done, count) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..20).map(|_| scope.spawn(|| work(&proxy, &done, &count))).collect();
        let mut console = console(&proxy);
        for _ in 0..2 {
            let before = count.load(Ordering::Relaxed);
            eventually("they are at work", || {
                (count.load(Ordering::Relaxed) > before + 50).then_some(())
            });
            assert_eq!(console.query("PAUSE"), "C(PAUSE) Z(I)");
            server.restart().unwrap();
            assert_eq!(console.query("RESUME"), "C(RESUME) Z(I)");
        }
        done.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().unwrap();
        }
    });
    proxy.is_left_clean();
}

#[test]
fn a_pause_of_one_database_leaves_others_alone_and_outlasts_the_queue_timeout() {
    let proxy = with_console("transaction").line("timeouts.queue = \"100ms\"").start();
    let mut console = console(&proxy);
    let mut client = proxy.connect();
    client.query("SELECT 1");
    assert_eq!(console.query("PAUSE postgres"), "C(PAUSE) Z(I)");
    client.send(&query("SELECT 'later'"));
    let mut other = Wire::with(proxy.address, &[("database", "template1")]);
    assert_eq!(other.value("SELECT 3"), "3");
    std::thread::sleep(Duration::from_millis(600));
    let clients = Shown::of(&mut console, "SHOW CLIENTS");
    assert_eq!(clients.find("database", "postgres", "state"), ["waiting"]);
    let databases = Shown::of(&mut console, "SHOW DATABASES");
    assert_eq!(databases.find("name", "postgres", "paused"), ["1"]);
    assert_eq!(databases.find("name", "template1", "paused"), ["0"]);
    // A client that waits can cancel, and wait again.
    cancel(proxy.address, &client.key());
    assert_eq!(show(&client.until_ready()), "E(57014) Z(I)");
    client.send(&query("SELECT 'later'"));
    assert_eq!(console.query("RESUME postgres"), "C(RESUME) Z(I)");
    assert!(show(&client.until_ready()).contains("D(later)"));
    assert_eq!(console.error("RESUME postgres"), "55000");
}

/// Where all names lead to one database, an order for any of them is one for that database.
#[test]
fn orders_are_for_what_a_name_leads_to() {
    let server = crate::support::server();
    let proxy = setup(&server, "transaction")
        .line(USERS)
        .upstream(&format!("postgres://127.0.0.1:{}/postgres", server.port()))
        .start();
    let mut console = console(&proxy);
    let mut client = Wire::with(proxy.address, &[("database", "any")]);
    client.query("SELECT 1");
    assert_eq!(console.query("PAUSE any"), "C(PAUSE) Z(I)");
    client.send(&query("SELECT 'later'"));
    eventually("it waits", || {
        let queue = Shown::of(&mut console, "SHOW QUEUE");
        (queue.find("database", "postgres", "waits_for") == ["resume"]).then_some(())
    });
    assert_eq!(console.error("PAUSE other"), "55000", "it is paused already");
    assert_eq!(console.query("RESUME other"), "C(RESUME) Z(I)");
    assert!(show(&client.until_ready()).contains("D(later)"));
    console.query("DISABLE any");
    let refused = Wire::attempt(proxy.address, &[("database", "other")]);
    assert_eq!(error_code(&refused.login), "55000");
}

#[test]
fn in_session_mode_a_pause_waits_for_clients_to_leave_and_can_be_cancelled() {
    let proxy = with_console("session").start();
    let mut client = proxy.connect();
    let mut console = console(&proxy);
    console.send(&query("PAUSE"));
    let state = || Shown::of(&mut self::console(&proxy), "SHOW STATE").rows[1][1].clone();
    eventually("it is paused", || (state() == "yes").then_some(()));
    assert_eq!(client.value("SELECT 1"), "1", "a session goes on");
    cancel(proxy.address, &console.key());
    assert_eq!(show(&console.until_ready()), "E(57014) Z(I)");
    assert_eq!(state(), "yes", "the order stays in force");
    console.query("RESUME");
    console.send(&query("PAUSE"));
    eventually("it is paused", || (state() == "yes").then_some(()));
    drop(client);
    assert_eq!(show(&console.until_ready()), "C(PAUSE) Z(I)");
    let late = std::thread::spawn({
        let address = proxy.address;
        move || Wire::connect(address).value("SELECT 4")
    });
    proxy.wait_for("tidegate_logins_held", 1);
    console.query("RESUME");
    assert_eq!(late.join().unwrap(), "4", "its login waited");
}

#[test]
fn reconnect_replaces_connections_when_they_are_released() {
    let proxy = with_console("transaction").start();
    let mut console = console(&proxy);
    let mut client = proxy.connect();
    let first = client.value("SELECT pg_backend_pid()");
    client.query("BEGIN");
    assert_eq!(client.value("SELECT pg_backend_pid()"), first);
    assert_eq!(console.query("RECONNECT postgres"), "C(RECONNECT) Z(I)");
    assert_eq!(client.value("SELECT pg_backend_pid()"), first, "the transaction goes on");
    let servers = Shown::of(&mut console, "SHOW SERVERS");
    assert_eq!(servers.find("remote_pid", &first, "close_needed"), ["1"]);
    console.send(&query("WAIT_CLOSE"));
    client.query("COMMIT");
    assert_eq!(show(&console.until_ready()), "C(WAIT_CLOSE) Z(I)");
    assert_ne!(client.value("SELECT pg_backend_pid()"), first);
    assert_eq!(console.query("WAIT_CLOSE"), "C(WAIT_CLOSE) Z(I)");
}

#[test]
fn a_database_that_is_disabled_refuses_new_clients_only() {
    let proxy = with_console("transaction").start();
    let mut console = console(&proxy);
    let mut client = proxy.connect();
    assert_eq!(console.query("DISABLE postgres"), "C(DISABLE) Z(I)");
    assert_eq!(client.value("SELECT 1"), "1");
    let refused = Wire::attempt(proxy.address, &[]);
    assert_eq!(error_code(&refused.login), "55000");
    assert_eq!(console.query("ENABLE postgres"), "C(ENABLE) Z(I)");
    assert_eq!(proxy.connect().value("SELECT 2"), "2");
}

#[test]
fn kill_ends_clients_rolls_back_and_leaves_it_paused() {
    for mode in MODES {
        let proxy = with_console(mode).start();
        let mut console = console(&proxy);
        let table = format!("killed_{mode}");
        proxy.connect().query(&format!("CREATE TABLE IF NOT EXISTS {table} (i int)"));
        let mut busy = proxy.connect();
        busy.query("BEGIN");
        busy.query(&format!("INSERT INTO {table} VALUES (1)"));
        busy.send(&query("SELECT pg_sleep(600)"));
        let mut idle = proxy.connect();
        idle.query("SELECT 1");
        assert_eq!(console.query("KILL postgres"), "C(KILL) Z(I)", "{mode}");
        assert!(last_words(&mut busy).ends_with("E(57P01)"), "{mode}");
        assert_eq!(last_words(&mut idle), "E(57P01)", "{mode}");
        assert_eq!(Shown::of(&mut console, "SHOW SERVERS").rows.len(), 0, "{mode}");
        console.query("RESUME postgres");
        let count = format!("SELECT count(*) FROM {table}");
        assert_eq!(proxy.connect().value(&count), "0", "{mode}: rolled back");
        drop((busy, idle, console));
        proxy.is_left_clean();
    }
}

#[test]
fn suspend_keeps_connections() {
    for mode in MODES {
        let proxy = with_console(mode).start();
        let mut console = console(&proxy);
        let mut client = proxy.connect();
        let backend = client.value("SELECT pg_backend_pid()");
        assert_eq!(console.query("SUSPEND"), "C(SUSPEND) Z(I)");
        client.send(&query("SELECT pg_backend_pid()"));
        eventually("it waits", || {
            let clients = Shown::of(&mut console, "SHOW QUEUE");
            (clients.find("position", "1", "waits_for") == ["resume"]).then_some(())
        });
        console.query("RESUME");
        assert!(show(&client.until_ready()).contains(&format!("D({backend})")), "{mode}");
    }
}

/// Draws messages, most of them of types that clients send, with some text of commands.
#[test]
fn garbage_harms_only_its_sender() {
    let proxy = with_console("transaction").start();
    let mut draws = tidegate_control::SplitMix64::new(22);
    let words = ["SHOW", "POOLS", "'", "\"", ";", "=", "SET", "x", "\0", "\u{fc}", "1", " "];
    for round in 0..300 {
        let mut wire = console_as(&proxy, "watcher");
        let mut bytes = Vec::new();
        for _ in 0..draws.next_below(6) {
            let tags = b"QPBDECSHXpdFZ\0";
            let tag = tags[draws.next_below(14) as usize];
            let text: String =
                (0..draws.next_below(8)).map(|_| words[draws.next_below(12) as usize]).collect();
            let mut payload = text.into_bytes();
            payload.extend((0..draws.next_below(5)).map(|_| draws.next_bits().to_le_bytes()[3]));
            if draws.next_below(2) == 0 {
                payload.push(0);
            }
            bytes.extend(message(tag, &payload));
        }
        if draws.next_below(4) == 0 {
            bytes.extend(draws.next_bits().to_le_bytes());
        }
        let _ = wire.try_send(&bytes);
        if draws.next_below(2) == 0 {
            wire.shut_down_writing();
            wire.is_closed();
        }
        drop(wire);
        if round % 50 == 0 {
            assert!(console(&proxy).query("SHOW STATE").contains("C(SHOW)"), "round {round}");
        }
    }
    assert_eq!(proxy.connect().value("SELECT 1"), "1");
    proxy.wait_for("tidegate_clients", 0);
}

/// The user of the operating system that runs the proxy needs no password on a socket.
#[test]
fn the_own_user_of_the_system_may_do_everything_on_a_socket() {
    let proxy = with_console("transaction")
        .users("\"boss\" \"secret\"\n")
        .line("auth = \"scram-sha-256\"")
        .with_socket()
        .start();
    let output = Command::new("psql")
        .args(["-X", "-h", proxy.directory.path().to_str().unwrap(), "-p", "6432"])
        .args(["-U", "pgbouncer", "-d", "pgbouncer", "-c", "PAUSE", "-c", "RESUME"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let by_tcp = Wire::attempt(proxy.address, &[("user", "pgbouncer"), ("database", "pgbouncer")]);
    let first = by_tcp.login.first().map(|message| message.tag);
    assert_eq!(first, Some(tag::AUTHENTICATION), "a password is asked for");
}

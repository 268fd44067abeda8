//! How many connections there are to a server, of whom, and for how long.

use std::time::Duration;

use tidegate_subject::postgres::{Authentication, Postgres};

use crate::support::server::{Setup, server_with, setup, shared};
use crate::support::wire::{error_code, query, show};
use crate::support::{MODES, Proxy, Wire, eventually, log, server};

/// A server with few connections, three of which are reserved.
fn small_server(connections: u32) -> Postgres {
    server_with(&[("max_connections", &connections.to_string())], Authentication::Trust)
}

/// Many transactions at once, as far as there are connections.
fn open(setup: Setup) -> Setup {
    setup.database_line("control = \"fixed:100\"")
}

fn at_most(connections: u32, mode: &str) -> Setup {
    open(shared(mode)).database_line(&format!("max_connections = {connections}"))
}

fn as_user(proxy: &Proxy, user: &str) -> Wire {
    Wire::with(proxy.address, &[("user", user)])
}

/// Roles of the shared server that one test uses. They cannot be dropped while the proxy has
/// connections, and other tests do not mind them.
fn roles<const N: usize>(server: &Postgres, names: [&'static str; N]) -> [&'static str; N] {
    let mut direct = server.connect().unwrap();
    for name in names {
        direct.query(&format!("CREATE ROLE {name} LOGIN")).unwrap();
    }
    names
}

fn waits(proxy: &Proxy, count: u64) {
    proxy.wait_for("tidegate_server_connections_awaited", count);
}

/// What a login is refused with: code and text.
fn refusal(proxy: &Proxy, parameters: &[(&str, &str)]) -> (String, String) {
    let wire = Wire::attempt(proxy.address, parameters);
    (error_code(&wire.login), wire.login.last().unwrap().text())
}

#[test]
fn sixty_users_of_two_databases_share_the_connections_of_a_small_server() {
    let server = small_server(20);
    let mut direct = server.connect().unwrap();
    for user in 0..60 {
        direct.query(&format!("CREATE ROLE u{user} LOGIN")).unwrap();
    }
    direct.query("CREATE DATABASE second").unwrap();
    drop(direct);
    let proxy = open(setup(&server, "transaction")).threads(2).start();
    let address = proxy.address;
    std::thread::scope(|scope| {
        for number in 0..120 {
            scope.spawn(move || {
                let (user, database) =
                    (format!("u{}", number / 2), ["postgres", "second"][number % 2]);
                let who = format!("{user} of {database}");
                let parameters = [("user", &*user), ("database", database)];
                let mut client = Wire::with(address, &parameters);
                for _ in 0..3 {
                    let sql = "SELECT current_user || ' of ' || current_database()";
                    assert_eq!(client.value(sql), who);
                }
            });
        }
    });
    assert_eq!(proxy.metric("tidegate_server_connections_max"), 17, "three are reserved");
    assert!(proxy.metric("tidegate_server_connections_given_up_total") > 100);
    proxy.is_left_clean();
    assert!(proxy.metric("tidegate_upstreams_open") <= 17);
}

#[test]
fn a_session_beyond_the_bound_begins_when_another_ends() {
    let _server = server();
    let proxy = at_most(2, "session").threads(2).start();
    let holders = [proxy.connect(), proxy.connect()];
    let address = proxy.address;
    let third = std::thread::spawn(move || Wire::connect(address).value("SELECT 'third'"));
    waits(&proxy, 1);
    let [first, second] = holders;
    drop(first);
    assert_eq!(third.join().unwrap(), "third");
    drop(second);
    proxy.is_left_clean();
}

#[test]
fn a_storm_of_sessions_meets_a_small_server() {
    let server = small_server(12);
    let proxy = open(setup(&server, "session")).threads(2).start();
    let address = proxy.address;
    std::thread::scope(|scope| {
        for _ in 0..60 {
            scope.spawn(move || assert_eq!(Wire::connect(address).value("SELECT 'in'"), "in"));
        }
    });
    proxy.is_left_clean();
}

#[test]
fn a_login_that_waits_too_long_is_told_for_what() {
    let _server = server();
    let proxy = at_most(1, "session").line("timeouts.login = \"300ms\"").start();
    let holder = proxy.connect();
    let (code, text) = refusal(&proxy, &[]);
    assert_eq!(code, "53300");
    for part in ["login timeout", "all 1 connections", "max_connections"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    drop(holder);
    proxy.is_left_clean();
}

#[test]
fn a_transaction_that_waits_too_long_is_told_for_what() {
    let server = server();
    let [other] = roles(&server, ["waits_too_long"]);
    let proxy = at_most(1, "transaction").line("timeouts.queue = \"300ms\"").start();
    let mut waiter = as_user(&proxy, other);
    let mut holder = proxy.connect();
    holder.query("BEGIN");
    waiter.send(&query("SELECT 1"));
    let refused = waiter.until_ready();
    assert_eq!(error_code(&refused), "57014");
    assert!(refused[0].text().contains("queue timeout"), "{}", refused[0].text());
    holder.query("COMMIT");
    assert_eq!(waiter.value("SELECT 'now'"), "now");
    drop((waiter, holder));
    proxy.is_left_clean();
}

/// Clients of both event loops need the only connection. An idle one is given up at once, one in
/// use at the end of its transaction.
#[test]
fn a_connection_goes_to_whom_needs_it() {
    let server = server();
    let users = roles(&server, ["needs_a", "needs_b", "needs_c"]);
    let proxy = at_most(1, "transaction").threads(2).start();
    let mut clients = users.map(|user| as_user(&proxy, user));
    for _ in 0..3 {
        for (client, user) in clients.iter_mut().zip(users) {
            assert_eq!(client.value("SELECT current_user"), user);
        }
    }
    let given_up = proxy.metric("tidegate_server_connections_given_up_total");
    assert!(given_up >= 8, "{given_up}");
    let [holder, first, second] = &mut clients;
    holder.query("BEGIN");
    first.send(&query("SELECT 'first'"));
    second.send(&query("SELECT 'second'"));
    holder.query("COMMIT");
    assert!(show(&first.until_ready()).contains("D(first)"));
    assert!(show(&second.until_ready()).contains("D(second)"));
    drop(clients);
    proxy.is_left_clean();
}

/// A session has a connection and needs a permit; a transaction has the permit and needs the
/// connection.
#[test]
fn a_session_goes_on_while_transactions_wait_for_its_connection() {
    let server = server();
    let other = format!(
        "[databases.postgres]\nupstream = \"postgres://127.0.0.1:{}\"\nmode = \"session\"\n\
         control = \"fixed:1\"\nmax_mpl = 1",
        server.port()
    );
    let proxy =
        shared("transaction").limit(1).database_line("max_connections = 1").section(&other).start();
    let mut session = proxy.connect();
    assert_eq!(session.value("SELECT 1"), "1");
    let mut pooled = Wire::raw(proxy.address);
    pooled.send(&start_up("template1"));
    waits(&proxy, 1);
    assert_eq!(session.value("SELECT 'goes on'"), "goes on");
    drop(session);
    pooled.until_ready();
    let mut session = proxy.connect();
    // Its connection has been given up for the session; the permit is the transaction's first.
    pooled.send(&query("SELECT 'pooled'"));
    waits(&proxy, 1);
    assert_eq!(session.value("SELECT 'goes on again'"), "goes on again");
    drop(session);
    assert!(show(&pooled.until_ready()).contains("D(pooled)"));
    drop(pooled);
    proxy.is_left_clean();
}

fn start_up(database: &str) -> Vec<u8> {
    let parameters = [("user", "postgres"), ("database", database)];
    let mut packet = Vec::new();
    let parameters = parameters.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    tidegate_wire::startup::encode_startup(&mut packet, parameters);
    packet
}

#[test]
fn connections_are_bounded_by_user_and_by_database() {
    let server = server();
    let [narrow, other] = roles(&server, ["by_user", "beside_user"]);
    let of_user = format!("[users.{narrow}]\nmax_connections = 1");
    for (line, section, is_wide) in [
        ("", &*of_user, true),
        ("max_connections_per_user = 1", "", true),
        ("max_database_connections = 1", "", false),
    ] {
        let proxy = open(shared("transaction")).database_line(line).section(section);
        let proxy = proxy.threads(2).start();
        let mut others = as_user(&proxy, other);
        let (mut holder, mut waiter) = (as_user(&proxy, narrow), as_user(&proxy, narrow));
        holder.query("BEGIN");
        waiter.send(&query("SELECT 'waiter'"));
        waits(&proxy, 1);
        if is_wide {
            assert_eq!(others.value("SELECT 'other'"), "other", "{line}{section}");
        }
        holder.query("COMMIT");
        assert!(show(&waiter.until_ready()).contains("D(waiter)"), "{line}{section}");
        assert_eq!(others.value("SELECT 'other'"), "other", "{line}{section}");
        drop((holder, waiter, others));
        proxy.is_left_clean();
    }
}

#[test]
fn clients_are_bounded_by_user_by_database_and_all_together() {
    let server = server();
    let [narrow, other] = roles(&server, ["few_clients", "more_clients"]);
    let of_user = format!("[users.{narrow}]\nmax_clients = 2");
    for mode in MODES {
        for (top, line, section, named, is_wide) in [
            ("", "", &*of_user, "users.few_clients.max_clients = 2", true),
            ("", "max_clients = 2", "", "databases.*.max_clients = 2", false),
            ("max_clients = 2", "", "", "(max_clients = 2)", false),
        ] {
            let proxy = open(shared(mode)).line(top).database_line(line).section(section);
            let proxy = proxy.threads(2).start();
            let (first, second) = (as_user(&proxy, narrow), as_user(&proxy, narrow));
            let (code, text) = refusal(&proxy, &[("user", narrow)]);
            assert_eq!(code, "53300", "{mode}: {text}");
            assert!(text.contains(named), "{mode}: {text}");
            if is_wide {
                drop(as_user(&proxy, other));
            }
            drop(first);
            let third = eventually("a place for a client", || {
                let third = Wire::attempt(proxy.address, &[("user", narrow)]);
                third.login.last().is_some_and(|last| last.tag == b'Z').then_some(third)
            });
            assert!(proxy.metric("tidegate_clients_refused_total") >= 1);
            drop((second, third));
            proxy.is_left_clean();
        }
    }
}

#[test]
fn a_connection_that_is_old_is_replaced_but_not_inside_a_transaction() {
    let _server = server();
    let proxy = open(shared("transaction")).line("timeouts.server_lifetime = \"200ms\"").start();
    let (mut holder, mut client) = (proxy.connect(), proxy.connect());
    holder.query("BEGIN");
    let held = holder.value("SELECT pg_backend_pid()");
    let mut backends = std::collections::HashSet::new();
    eventually("new connections", || {
        backends.insert(client.value("SELECT pg_backend_pid()"));
        (backends.len() >= 4).then_some(())
    });
    assert_eq!(holder.value("SELECT pg_backend_pid()"), held);
    holder.query("COMMIT");
    eventually("another connection", || {
        (holder.value("SELECT pg_backend_pid()") != held).then_some(())
    });
    assert!(proxy.metric("tidegate_server_connections_retired_total") >= 4);
    drop((holder, client));
    proxy.is_left_clean();
}

#[test]
fn connections_are_kept_open_once_a_pool_has_been_used() {
    let server = server();
    let [other] = roles(&server, ["kept_open"]);
    let idle = "timeouts = { server_idle = \"100ms\", server_lifetime = \"2s\" }";
    let proxy = open(shared("transaction")).database_line("min_connections = 3").line(idle);
    let proxy = proxy.threads(2).start();
    let mut client = proxy.connect();
    client.query("SELECT 1");
    proxy.wait_for("tidegate_upstreams_idle", 3);
    // Those of the other user and those that are old are replaced.
    assert_eq!(as_user(&proxy, other).value("SELECT 1"), "1");
    proxy.wait_for("tidegate_upstreams_idle", 6);
    eventually("connections are replaced", || {
        (proxy.metric("tidegate_server_connections_retired_total") >= 4).then_some(())
    });
    proxy.wait_for("tidegate_upstreams_idle", 6);
    drop(client);
    proxy.is_left_clean();
}

#[test]
fn connections_are_kept_open_from_the_start_where_the_user_is_known() {
    let server = server();
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", server.port());
    let proxy = open(shared("transaction")).upstream(&url).threads(2);
    let proxy = proxy.database_line("min_connections = 3").start();
    proxy.wait_for("tidegate_upstreams_idle", 3);
    let connects = proxy.metric("tidegate_upstream_connects_total");
    assert_eq!(proxy.connect().value("SELECT 1"), "1");
    assert_eq!(proxy.metric("tidegate_upstream_connects_total"), connects);
    proxy.is_left_clean();
}

#[test]
fn a_server_that_comes_back_is_asked_again_how_many_connections_it_gives() {
    let mut server = server_with(&[], Authentication::Trust);
    let proxy = open(setup(&server, "transaction")).start();
    let mut client = proxy.connect();
    assert_eq!(client.value("SHOW max_connections"), "100");
    assert_eq!(proxy.metric("tidegate_server_connections_max"), 97);
    server.connect().unwrap().query("ALTER SYSTEM SET max_connections = 20").unwrap();
    server.restart().unwrap();
    eventually("the server is back", || {
        client.send(&query("SHOW max_connections"));
        show(&client.until_ready()).contains("D(20)").then_some(())
    });
    proxy.wait_for("tidegate_server_connections_max", 17);
    drop(client);
    proxy.is_left_clean();
}

#[test]
fn who_waits_for_a_connection_is_in_the_log_once_a_second_at_most() {
    log::collect();
    let server = server();
    let users = roles(&server, ["logged_a", "logged_b", "logged_c", "logged_d"]);
    let proxy = at_most(1, "transaction").start();
    let began = std::time::Instant::now();
    let mut clients = users.map(|user| as_user(&proxy, user));
    for _ in 0..5 {
        for client in &mut clients {
            assert_eq!(client.value("SELECT 1"), "1");
        }
    }
    let named = format!("all 1 connections to the server at 127.0.0.1:{}", server.port());
    let lines: Vec<String> = log::lines_with("clients wait for a connection");
    let lines = lines.iter().filter(|line| line.contains(&named)).count() as u64;
    // Other tests may have proxies of their own to the same server.
    assert!(lines >= 1 && lines <= 20 * (2 + began.elapsed().as_secs()), "{lines}");
    drop(clients);
    proxy.shutdown(Duration::ZERO);
}

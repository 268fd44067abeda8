//! How long clients may take, by database and by user, and what they are told.

use std::net::TcpListener;

use tidegate_subject::postgres::Postgres;

use crate::support::server::{Setup, setup};
use crate::support::wire::{query, show};
use crate::support::{MODES, Message, Proxy, Wire, server};

/// A user of the tests' own. Two tests may create it at once, so one of them may fail to.
fn create_user(server: &Postgres, name: &str) {
    let mut admin = server.connect().unwrap();
    let _ = admin.query(&format!("CREATE ROLE {name} LOGIN"));
    let _ = admin.query("GRANT ALL ON SCHEMA public TO PUBLIC");
}

/// A proxy in each mode, for tests that need at most four connections.
fn in_each_mode(with: impl Fn(Setup) -> Setup, test: impl Fn(&Proxy)) {
    let server = server();
    create_user(&server, "hasty");
    create_user(&server, "patient");
    for mode in MODES {
        let proxy = with(setup(&server, mode).limit(4)).start();
        test(&proxy);
        proxy.is_left_clean();
    }
}

fn connect_as(proxy: &Proxy, user: &str) -> Wire {
    Wire::with(proxy.address, &[("user", user)])
}

/// The last message of a connection that is ended.
fn last_words(client: &mut Wire) -> Message {
    let mut seen = client.until(0);
    assert!(!seen.is_empty(), "closed without a word");
    seen.remove(seen.len() - 1)
}

#[test]
fn a_transaction_that_lasts_too_long_is_rolled_back() {
    in_each_mode(
        |setup| setup.line("users.hasty.timeouts.transaction = \"300ms\""),
        |proxy| {
            let table = format!("locked_{}", proxy.address.port());
            let mut other = connect_as(proxy, "patient");
            other.query(&format!("CREATE TABLE {table} (x int); GRANT ALL ON {table} TO PUBLIC"));
            // At work, idle, and after a failure.
            for step in ["SELECT pg_sleep(600)", "SELECT 1", "SELECT 1/0"] {
                let mut hasty = connect_as(proxy, "hasty");
                hasty.query("BEGIN");
                let locked = hasty.query(&format!("LOCK TABLE {table}"));
                assert_eq!(locked, "C(LOCK TABLE) Z(T)");
                hasty.send(&query(step));
                let last = last_words(&mut hasty);
                assert_eq!(last.code(), "25P04", "{}", last.text());
                let text = last.text();
                assert!(text.contains("timeouts.transaction = 300ms"), "{text}");
                assert!(text.contains("was open for"), "{text}");
                assert_eq!(other.value(&format!("SELECT count(*) FROM {table}")), "0");
            }
            other.query(&format!("DROP TABLE {table}"));
        },
    );
}

/// Each transaction has the whole time, also if the client sends them without waiting.
#[test]
fn the_time_of_a_transaction_begins_with_it() {
    in_each_mode(
        |setup| setup.line("timeouts.transaction = \"600ms\""),
        |proxy| {
            let mut client = proxy.connect();
            let naps: Vec<u8> = (0..8).flat_map(|_| query("SELECT pg_sleep(0.2)")).collect();
            client.send(&naps);
            for _ in 0..8 {
                assert!(show(&client.until_ready()).ends_with("C(SELECT 1) Z(I)"));
            }
        },
    );
}

#[test]
fn a_client_that_is_idle_for_too_long_is_disconnected() {
    in_each_mode(
        |setup| {
            setup
                .line("users.patient.timeouts.client_idle = \"none\"")
                .database_line("timeouts = { client_idle = \"600ms\" }")
        },
        |proxy| {
            let mut patient = connect_as(proxy, "patient");
            let mut idle = proxy.connect();
            // A client at work is not idle, nor is one in its transaction.
            assert_eq!(idle.value("SELECT pg_sleep(1)"), "");
            assert_eq!(idle.query("BEGIN; SELECT pg_sleep(1)").chars().last(), Some(')'));
            assert_eq!(idle.query("COMMIT"), "C(COMMIT) Z(I)");
            let last = last_words(&mut idle);
            assert_eq!(last.code(), "57P05");
            assert!(last.text().contains("timeouts.client_idle = 600ms"), "{}", last.text());
            assert_eq!(patient.value("SELECT 'still here'"), "still here");
        },
    );
}

#[test]
fn a_transaction_that_is_idle_for_too_long_is_rolled_back() {
    in_each_mode(
        |setup| setup.line("users.hasty.timeouts.idle_in_transaction = \"300ms\""),
        |proxy| {
            let mut patient = connect_as(proxy, "patient");
            patient.query("BEGIN");
            let mut hasty = connect_as(proxy, "hasty");
            assert_eq!(hasty.query("BEGIN; SELECT pg_sleep(0.6)").chars().last(), Some(')'));
            let last = last_words(&mut hasty);
            assert_eq!(last.code(), "25P03");
            let text = last.text();
            assert!(text.contains("timeouts.idle_in_transaction = 300ms"), "{text}");
            assert_eq!(patient.query("COMMIT"), "C(COMMIT) Z(I)");
        },
    );
}

#[test]
fn the_time_in_the_queue_is_bounded_by_user() {
    let server = server();
    create_user(&server, "hasty");
    for mode in MODES {
        let own = "users.hasty.timeouts.queue = \"100ms\"";
        let proxy = setup(&server, mode).limit(1).line(own).start();
        let mut holder = proxy.connect();
        holder.query("BEGIN");
        // Its permit counts while its client is at work.
        holder.send(&query("SELECT pg_sleep(1)"));
        proxy.wait_for("tidegate_permits_out", 1);
        let mut patient = proxy.connect();
        patient.send(&query("SELECT 'waited'"));
        proxy.wait_for("tidegate_waiting", 1);
        let mut hasty = connect_as(&proxy, "hasty");
        hasty.send(&query("SELECT 1"));
        let refusal = hasty.until_ready().remove(0);
        assert_eq!(refusal.code(), "57014");
        let text = refusal.text();
        assert!(text.contains("timeouts.queue = 100ms"), "{text}");
        assert!(text.contains("one of 1 permits") && text.contains("1 more wait"), "{text}");
        assert!(show(&holder.until_ready()).ends_with("Z(T)"));
        holder.query("COMMIT");
        assert!(show(&patient.until_ready()).contains("waited"));
        assert_eq!(hasty.value("SELECT 'goes on'"), "goes on");
    }
}

/// The server accepts connections and says nothing; or the client does.
#[test]
fn a_login_that_is_not_completed_says_what_was_awaited() {
    let server = server();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    for mode in MODES {
        let proxy = setup(&server, mode)
            .upstream(&format!("postgres://{address}"))
            .line("timeouts.login = \"20s\"")
            .database_line("timeouts.login = \"300ms\"")
            .line("users.patient.timeouts.login = \"10s\"")
            .line("timeouts.connect = \"1s\"")
            .start();
        let refusal = Wire::attempt(proxy.address, &[]).login.pop().unwrap();
        assert_eq!(refusal.code(), "08006", "{}", refusal.text());
        let text = refusal.text();
        assert!(text.contains("timeouts.login = 300ms") && text.contains(&address), "{text}");
        let refusal = Wire::attempt(proxy.address, &[("user", "patient")]).login.pop().unwrap();
        let text = refusal.text();
        assert!(text.contains("timeouts.connect = 1s") && text.contains(&address), "{text}");
        proxy.is_left_clean();
        let proxy = setup(&server, mode).line("timeouts.login = \"300ms\"").start();
        let mut wire = Wire::raw(proxy.address);
        let refusal = last_words(&mut wire);
        assert_eq!(refusal.code(), "08P01");
        assert!(refusal.text().contains("start-up packet"), "{}", refusal.text());
    }
}

//! Who may run, who waits, and what those are told who wait too long.

use std::time::Duration;

use tidegate_wire::backend::tag;

use crate::support::server::{Setup, setup};
use crate::support::wire::{SYNC, cancel, extended, query, show};
use crate::support::{MODES, Message, Proxy, Wire, eventually, server};

/// A proxy in each mode that lets in one transaction at a time.
fn one_at_a_time(with: impl Fn(Setup) -> Setup, test: impl Fn(&Proxy)) {
    let server = server();
    for mode in MODES {
        let proxy = with(setup(&server, mode).limit(1)).start();
        test(&proxy);
        proxy.is_left_clean();
    }
}

/// Both ways to send a query, and what the answer ends with.
fn both_protocols(sql: &str) -> [Vec<u8>; 2] {
    [query(sql), [extended(sql), SYNC.to_vec()].concat()]
}

/// A client whose transaction holds the only permit.
fn holder(proxy: &Proxy) -> Wire {
    let mut holder = proxy.connect();
    holder.query("BEGIN");
    holder
}

#[test]
fn a_second_transaction_waits_for_the_first() {
    one_at_a_time(
        |setup| setup,
        |proxy| {
            for batch in both_protocols("SELECT 'second'") {
                let mut first = holder(proxy);
                let mut second = proxy.connect();
                second.send(&batch);
                proxy.wait_for("tidegate_waiting", 1);
                assert_eq!(first.value("SELECT 'first'"), "first", "those inside go on");
                assert_eq!(proxy.metric("tidegate_permits_out"), 1);
                first.query("COMMIT");
                assert!(show(&second.until_ready()).contains("D(second)"));
            }
        },
    );
}

#[test]
fn the_high_class_goes_first() {
    let high = "high_priority = { users = [], applications = [\"urgent\"] }";
    one_at_a_time(
        |setup| setup.line(high),
        |proxy| {
            proxy.connect().query("CREATE TABLE IF NOT EXISTS served (n serial, who text)");
            proxy.connect().query("TRUNCATE served");
            let mut holder = holder(proxy);
            let names = ["normal", "normal", "urgent", "urgent"];
            let mut waiting = Vec::new();
            for name in names {
                let mut client = Wire::with(proxy.address, &[("application_name", name)]);
                client.send(&query(&format!("INSERT INTO served (who) VALUES ('{name}')")));
                waiting.push(client);
                proxy.wait_for("tidegate_waiting", waiting.len() as u64);
            }
            holder.query("COMMIT");
            for client in &mut waiting {
                assert_eq!(show(&client.until_ready()), "C(INSERT 0 1) Z(I)");
            }
            let order = "SELECT string_agg(who, ' ' ORDER BY n) FROM served";
            assert_eq!(holder.value(order), "urgent urgent normal normal");
        },
    );
}

#[test]
fn a_waiting_transaction_can_be_cancelled() {
    one_at_a_time(
        |setup| setup,
        |proxy| {
            for batch in both_protocols("SELECT 1") {
                let mut holder = holder(proxy);
                let mut client = proxy.connect();
                client.send(&batch);
                proxy.wait_for("tidegate_waiting", 1);
                cancel(proxy.address, &client.key());
                assert_eq!(show(&client.until_ready()), "E(57014) Z(I)");
                proxy.wait_for("tidegate_waiting", 0);
                holder.query("COMMIT");
                assert_eq!(client.value("SELECT 2"), "2", "the client can still be used");
            }
        },
    );
}

#[test]
fn a_running_query_can_be_cancelled() {
    one_at_a_time(
        |setup| setup,
        |proxy| {
            for batch in both_protocols("SELECT pg_sleep(600)") {
                let mut client = proxy.connect();
                client.send(&batch);
                let mut watcher = server().connect().unwrap();
                eventually("the query runs", || {
                    let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
                    (watcher.value(sql).unwrap() != "0").then_some(())
                });
                cancel(proxy.address, &client.key());
                assert!(show(&client.until_ready()).ends_with("E(57014) Z(I)"));
                assert_eq!(client.value("SELECT 2"), "2");
                // A cancel request with nothing to cancel, or by somebody else, does nothing.
                cancel(proxy.address, &client.key());
                let mut wrong = client.key();
                wrong.secret[0] ^= 1;
                cancel(proxy.address, &wrong);
                assert_eq!(client.value("SELECT 3"), "3");
            }
        },
    );
}

/// A refusal, in either protocol: one error, then as usual.
fn refused(client: &mut Wire, batch: &[u8]) -> Message {
    client.send(batch);
    let mut seen = client.until_ready();
    assert_eq!(seen.len(), 2, "{}", show(&seen));
    assert_eq!((seen[1].tag, &*seen[1].payload), (tag::READY_FOR_QUERY, &b"I"[..]));
    seen.swap_remove(0)
}

#[test]
fn who_waits_too_long_is_told_and_can_go_on() {
    one_at_a_time(
        |setup| setup.line("timeouts.queue = \"100ms\""),
        |proxy| {
            let mut client = proxy.connect();
            for batch in both_protocols("SELECT 1") {
                let mut holder = holder(proxy);
                let refusal = refused(&mut client, &batch);
                assert_eq!(refusal.code(), "57014");
                assert!(refusal.text().contains("queue timeout"), "{}", refusal.text());
                holder.query("COMMIT");
                assert_eq!(client.value("SELECT 2"), "2");
            }
            proxy.wait_for("tidegate_expired_total", 2);
        },
    );
}

#[test]
fn a_full_queue_refuses_and_the_client_can_go_on() {
    one_at_a_time(
        |setup| setup.line("waiting_max = 1"),
        |proxy| {
            let mut client = proxy.connect();
            for batch in both_protocols("SELECT 1") {
                let (mut holder, mut waiting) = (holder(proxy), proxy.connect());
                waiting.send(&query("SELECT 'waited'"));
                proxy.wait_for("tidegate_waiting", 1);
                let refusal = refused(&mut client, &batch);
                assert_eq!(refusal.code(), "53300");
                assert!(refusal.text().contains("waiting"), "{}", refusal.text());
                holder.query("COMMIT");
                assert!(show(&waiting.until_ready()).contains("D(waited)"));
                assert_eq!(client.value("SELECT 2"), "2");
            }
            proxy.wait_for("tidegate_refused_total", 2);
        },
    );
}

/// Copy data and a long query behind a refusal are discarded with it.
#[test]
fn a_refused_batch_is_discarded_whole() {
    one_at_a_time(
        |setup| setup.line("timeouts.queue = \"50ms\""),
        |proxy| {
            let mut client = proxy.connect();
            let mut holder = holder(proxy);
            let long = format!("SELECT '{}'", "x".repeat(200_000));
            for batch in both_protocols(&long) {
                assert_eq!(refused(&mut client, &batch).code(), "57014");
            }
            let three = [query("SELECT 1"), query("SELECT 2"), query("SELECT 3")].concat();
            client.send(&three);
            for _ in 0..3 {
                assert_eq!(show(&client.until_ready()), "E(57014) Z(I)");
            }
            holder.query("COMMIT");
            assert_eq!(client.value("SELECT 4"), "4");
        },
    );
}

#[test]
fn no_more_transactions_than_allowed_are_in_the_database() {
    const LIMIT: usize = 3;
    let server = server();
    for mode in MODES {
        let name = format!("limit_{mode}");
        let proxy = setup(&server, mode).limit(3).threads(2).start();
        let mut watcher = server.connect().unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        let (stop, address, name) = (&stop, proxy.address, &*name);
        std::thread::scope(|scope| {
            for _ in 0..12 {
                scope.spawn(move || {
                    let mut client = Wire::with(address, &[("application_name", name)]);
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        client.query("BEGIN");
                        client.query("SELECT pg_sleep(0.001)");
                        client.query("COMMIT");
                    }
                });
            }
            // A backend at rest says `idle`; between commands of a block, `idle in transaction`.
            let sql = format!(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{name}' \
                 AND state <> 'idle'"
            );
            let mut seen = Vec::new();
            for _ in 0..100 {
                seen.push(watcher.value(&sql).unwrap().parse::<usize>().unwrap());
                std::thread::sleep(Duration::from_millis(5));
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            // A machine that stands still for half a second has permits discounted.
            let most = LIMIT + usize::try_from(proxy.metric("tidegate_discounts_total")).unwrap();
            assert!(seen.iter().all(|&busy| busy <= most), "{mode}: {most}: {seen:?}");
            assert!(seen.contains(&LIMIT), "{mode}: {seen:?}");
        });
        proxy.is_left_clean();
    }
}

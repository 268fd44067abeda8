//! Transactions that are idle, or run far longer than others, do not stop the others.

use tidegate_control::{Algorithm, Mpl};
use tidegate_gate::journal;
use tidegate_wire::frontend;

use crate::support::server::setup;
use crate::support::wire::{query, show};
use crate::support::{MODES, Proxy, Wire, eventually, log, server};

/// A proxy with this controller, from a limit of 4.
fn proxy(mode: &str, algorithm: Algorithm) -> Proxy {
    let start = match algorithm {
        Algorithm::Fixed(_) => "",
        _ => "\nstart_mpl = 4",
    };
    let watch =
        if algorithm.needs_locks() { "\nwatch = true\nwatch_user = \"postgres\"" } else { "" };
    let lines = format!("control = \"{algorithm}\"{start}{watch}");
    setup(&server(), mode).database_line(&lines).start()
}

fn fixed() -> Algorithm {
    Algorithm::Fixed(Mpl::at_least_one(4))
}

/// Twenty sessions that began a transaction and left it, with every controller.
#[test]
fn beside_idle_transactions_others_run_with_every_controller() {
    let _server = server();
    for algorithm in Algorithm::ALL.into_iter().chain([fixed()]) {
        let proxy = proxy("transaction", algorithm);
        let mut idle: Vec<Wire> = (0..20)
            .map(|_| {
                let mut client = proxy.connect();
                client.send(&query("BEGIN; SELECT 1"));
                client
            })
            .collect();
        let mut other = proxy.connect();
        for _ in 0..3 {
            assert_eq!(other.value("SELECT 'other'"), "other", "{algorithm}");
        }
        for client in &mut idle {
            assert!(show(&client.until_ready()).ends_with("Z(T)"), "{algorithm}");
        }
        proxy.wait_for("tidegate_permits_idle", 20);
        assert_eq!(proxy.metric("tidegate_permits_out"), 20, "{algorithm}");
        assert_eq!(proxy.metric("tidegate_permits_active"), 0, "{algorithm}");
        for client in &mut idle {
            assert_eq!(client.value("SELECT 'back'"), "back", "{algorithm}");
            client.query("COMMIT");
        }
        proxy.wait_for("tidegate_permits_out", 0);
        assert!(proxy.metric("tidegate_lendings_total") >= 20, "{algorithm}");
        drop((idle, other));
        proxy.is_left_clean();
    }
}

/// A proxy at this limit, whose server has room for so many transactions, and where one may wait.
fn narrow(mode: &str, limit: u32, most: u32) -> Proxy {
    let lines = format!("control = \"fixed:{limit}\"\nmax_mpl = {most}");
    setup(&server(), mode).line("waiting_max = 1").database_line(&lines).start()
}

/// The only permit that counts is another's, and the queue is full: a client that was idle goes on
/// all the same, in a transaction that works and in one that has failed.
#[test]
fn an_idle_client_that_comes_back_goes_on_past_a_full_queue() {
    let _server = server();
    for mode in MODES {
        for (sql, state, next, answer) in [
            ("SELECT 1", "Z(T)", "SELECT 'back'", "T() D(back) C(SELECT 1) Z(T)"),
            ("SELECT 1/0", "Z(E)", "SELECT 1", "E(25P02) Z(E)"),
        ] {
            // Two out are the most: the sleeper keeps the queue shut also when it is overdue.
            let proxy = narrow(mode, 1, 2);
            let mut idle = proxy.connect();
            idle.query("BEGIN");
            let said = idle.query(sql);
            assert!(said.ends_with(state), "{mode}: {said}");
            proxy.wait_for("tidegate_permits_idle", 1);
            let (mut active, mut waiting) = (proxy.connect(), proxy.connect());
            active.send(&query("SELECT pg_sleep(600)"));
            proxy.wait_for("tidegate_permits_out", 2);
            waiting.send(&query("SELECT 'waited'"));
            proxy.wait_for("tidegate_waiting", 1);
            assert_eq!(proxy.connect().error("SELECT 1"), "53300", "{mode}: the queue is full");
            assert_eq!(idle.query(next), answer, "{mode}: {sql}");
            assert_eq!(proxy.metric("tidegate_waiting"), 1, "{mode}: {sql}");
            idle.query("ROLLBACK");
            waiting.until_ready();
            drop((idle, active, waiting));
            proxy.is_left_clean();
        }
    }
}

/// Whoever goes while its permit is lent gives it back, with its locks: by the end of its socket,
/// by a reset, and politely. Whoever waits is let in then.
#[test]
fn a_client_that_goes_while_its_permit_is_lent_leaves_nothing() {
    let _server = server();
    let ways: [fn(Wire); 3] = [drop, Wire::reset, |mut client| {
        client.send(frontend::TERMINATE);
        assert!(client.is_closed());
    }];
    for mode in MODES {
        for (way, leave) in ways.into_iter().enumerate() {
            let proxy = narrow(mode, 1, 1);
            let mut idle = proxy.connect();
            idle.query(&format!("BEGIN; SELECT pg_advisory_xact_lock(4711, {way})"));
            proxy.wait_for("tidegate_permits_idle", 1);
            let mut waiting = proxy.connect();
            waiting.send(&query(&format!("SELECT pg_try_advisory_xact_lock(4711, {way})")));
            proxy.wait_for("tidegate_waiting", 1);
            leave(idle);
            let answer = show(&waiting.until_ready());
            assert_eq!(answer, "T() D(t) C(SELECT 1) Z(I)", "{mode}, way {way}");
            drop(waiting);
            proxy.is_left_clean();
            assert_eq!(proxy.metric("tidegate_permits_idle"), 0, "{mode}, way {way}");
        }
    }
}

/// The server has said that the first of two requests is through, and works on the second.
#[test]
fn a_client_whose_next_request_is_on_its_way_is_not_idle() {
    let _server = server();
    for mode in MODES {
        let proxy = proxy(mode, Algorithm::Fixed(Mpl::ONE));
        let mut active = proxy.connect();
        active.send(&[query("BEGIN"), query("SELECT pg_sleep(600)")].concat());
        assert!(show(&active.until_ready()).ends_with("Z(T)"), "{mode}");
        // It is let in for one that is overdue, which takes far longer than to be idle.
        let mut other = proxy.connect();
        assert_eq!(other.value("SELECT 'other'"), "other", "{mode}");
        assert_eq!(proxy.metric("tidegate_lendings_total"), 0, "{mode}");
        assert!(proxy.metric("tidegate_discounts_total") >= 1, "{mode}");
        drop((active, other));
        proxy.is_left_clean();
    }
}

/// What asks for no answer, and half a message, do not make an idle client an active one.
#[test]
fn a_client_that_sends_what_begins_nothing_is_still_idle() {
    let _server = server();
    for mode in MODES {
        let proxy = proxy(mode, Algorithm::Fixed(Mpl::ONE));
        let mut idle = proxy.connect();
        idle.query("BEGIN");
        proxy.wait_for("tidegate_lendings_total", 1);
        idle.send(&[b'H', 0, 0, 0, 4]);
        proxy.wait_for("tidegate_lendings_total", 2);
        let message = query("SELECT 'whole'");
        let (head, rest) = message.split_at(8);
        idle.send(head);
        proxy.wait_for("tidegate_lendings_total", 3);
        assert_eq!(proxy.metric("tidegate_permits_idle"), 1, "{mode}");
        assert_eq!(idle.run(rest), "T() D(whole) C(SELECT 1) Z(T)", "{mode}");
        idle.query("COMMIT");
        drop(idle);
        proxy.is_left_clean();
    }
}

/// Idle holders are told apart from those that work, in the journal and so to the controller.
#[test]
fn the_journal_tells_idle_holders_apart() {
    let server = server();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.jsonl");
    let proxy = setup(&server, "transaction")
        .line(&format!("journal = \"{}\"", path.display()))
        .database_line("control = \"fixed:1\"")
        .start();
    let mut idle = [proxy.connect(), proxy.connect()];
    for client in &mut idle {
        client.query("BEGIN");
    }
    proxy.wait_for("tidegate_permits_idle", 2);
    let mut other = proxy.connect();
    // The first interval may have seen them before they were idle.
    let seen = eventually("two intervals", || {
        (0..20).for_each(|_| drop(other.query("SELECT 1")));
        let mut run = journal::read(&path).unwrap().runs.pop().unwrap();
        (run.decisions.len() >= 2).then(|| run.decisions.swap_remove(1).observation)
    });
    assert_eq!(seen.idle, 2);
    assert!((seen.idle_mean - 2.0).abs() < 1e-9, "{seen:?}");
    assert!(seen.running <= 1 && seen.running_mean <= 1.0, "{seen:?}");
    drop((idle, other));
    proxy.is_left_clean();
}

/// The server gives a user three connections, and the limit would allow for more: who comes then
/// waits for one of the three instead of being refused, and who comes after that in the queue.
#[test]
fn no_more_are_let_in_than_the_server_has_connections_for() {
    let server = server();
    let mut direct = Wire::connect(([127, 0, 0, 1], server.port()).into());
    direct.query("CREATE ROLE narrow LOGIN CONNECTION LIMIT 3");
    let proxy = setup(&server, "transaction").database_line("control = \"fixed:8\"").start();
    let connect = || Wire::with(proxy.address, &[("user", "narrow")]);
    let mut idle = [connect(), connect(), connect()];
    for client in &mut idle {
        assert!(client.query("BEGIN").ends_with("Z(T)"));
    }
    let (mut fourth, mut fifth) = (connect(), connect());
    fourth.send(&query("SELECT 'fourth'"));
    proxy.wait_for("tidegate_permits_out", 4);
    eventually("a refusal", || {
        (proxy.metric("tidegate_upstream_connect_failures_total") > 0).then_some(())
    });
    fifth.send(&query("SELECT 'fifth'"));
    proxy.wait_for("tidegate_waiting", 1);
    idle[0].query("COMMIT");
    assert_eq!(show(&fourth.until_ready()), "T() D(fourth) C(SELECT 1) Z(I)");
    assert_eq!(show(&fifth.until_ready()), "T() D(fifth) C(SELECT 1) Z(I)");
    drop((idle, fourth, fifth));
    proxy.is_left_clean();
    drop(proxy);
    eventually("the role is gone", || {
        direct.query("DROP ROLE narrow").starts_with("C(DROP ROLE)").then_some(())
    });
}

/// Statements that run, and results that are not read, hold nobody up either.
#[test]
fn beside_long_statements_and_results_not_read_others_run() {
    let _server = server();
    let large = "SELECT repeat('x', 100000) FROM generate_series(1, 2000)";
    for mode in MODES {
        for (sql, count) in [("SELECT pg_sleep(600)", 8), (large, 20)] {
            let proxy = proxy(mode, fixed());
            let holders: Vec<Wire> = (0..count)
                .map(|_| {
                    let mut client = proxy.connect();
                    client.send(&query(sql));
                    client
                })
                .collect();
            let mut other = proxy.connect();
            assert_eq!(other.value("SELECT 'other'"), "other", "{mode}: {sql}");
            drop((holders, other));
            proxy.is_left_clean();
            assert_eq!(proxy.metric("tidegate_permits_discounted"), 0, "{mode}: {sql}");
        }
    }
}

/// With the highest limit where the limit is, it is kept whatever happens: here by a fixed limit.
#[test]
fn never_more_than_the_highest_limit_are_let_in() {
    let server = server();
    let lines = "control = \"fixed:2\"\nmax_mpl = 5";
    let proxy = setup(&server, "transaction").database_line(lines).start();
    let mut holders: Vec<Wire> = (0..8).map(|_| proxy.connect()).collect();
    for client in &mut holders {
        client.send(&query("BEGIN"));
    }
    proxy.wait_for("tidegate_permits_out", 5);
    proxy.wait_for("tidegate_permits_idle", 5);
    assert_eq!(proxy.metric("tidegate_waiting"), 3);
    drop(holders);
    proxy.is_left_clean();
}

#[test]
fn a_warning_names_the_holder() {
    log::collect();
    let server = server();
    let proxy = setup(&server, "transaction").database_line("control = \"fixed:1\"").start();
    let mut active = proxy.connect();
    active.send(&query("SELECT pg_sleep(600)"));
    let mut other = proxy.connect();
    assert_eq!(other.value("SELECT 'other'"), "other");
    let warning = eventually("a warning", || {
        let lines = log::lines_with("no longer counts against the limit");
        lines.into_iter().find(|line| line.contains(&active.local_address()))
    });
    for part in ["WARN", "user=\"postgres\"", "age_ms=", "active", &server.port().to_string()] {
        assert!(warning.contains(part), "{part}: {warning}");
    }
    drop((active, other));
    proxy.is_left_clean();
}

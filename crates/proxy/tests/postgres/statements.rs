//! Named prepared statements in transaction mode, where connections are shared.

use tidegate_wire::frontend::Target;

use crate::support::server::{Setup, setup, shared};
use crate::support::wire::{
    SYNC, bind, close, describe, error_code, execute, extended, parse, query, show,
};
use crate::support::{MODES, Proxy, Wire, server};

/// Two connections for all, so that a client meets both and both meet every client.
fn two_connections() -> Proxy {
    proxy(|setup| setup.limit(2))
}

fn proxy(with: impl Fn(Setup) -> Setup) -> Proxy {
    with(shared("transaction")).start()
}

fn prepare(client: &mut Wire, name: &str, sql: &str) -> String {
    client.run(&[parse(name, sql), SYNC.to_vec()].concat())
}

fn run(name: &str) -> Vec<u8> {
    [bind(name, &[]), execute("", 0), SYNC.to_vec()].concat()
}

/// The rows of a prepared statement, or its error.
fn answer(client: &mut Wire, name: &str) -> String {
    client.run(&run(name))
}

fn row(text: &str) -> String {
    format!("2() D({text}) C(SELECT 1) Z(I)")
}

#[test]
fn one_name_means_to_each_client_its_own_text() {
    let proxy = two_connections();
    let mut clients: Vec<Wire> = (0..8).map(|_| proxy.connect()).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        let sql = format!("SELECT 'text {index}'");
        assert_eq!(prepare(client, "s", &sql), "1() Z(I)");
    }
    for _ in 0..3 {
        // All at once, so that they do not always get the same connection.
        for client in &mut clients {
            client.send(&run("s"));
        }
        for (index, client) in clients.iter_mut().enumerate() {
            let seen = show(&client.until_ready());
            assert!(seen.contains(&format!("text {index}")), "{seen}");
        }
    }
    assert!(proxy.metric("tidegate_upstream_connects_total") <= 2);
}

#[test]
fn one_text_under_several_names() {
    let proxy = two_connections();
    let mut client = proxy.connect();
    for name in ["a", "b", "c"] {
        assert_eq!(prepare(&mut client, name, "SELECT 'shared'"), "1() Z(I)");
    }
    let closing = [close(Target::Statement, "b"), SYNC.to_vec()].concat();
    assert_eq!(client.run(&closing), "3() Z(I)");
    for (name, expected) in [("a", row("shared")), ("b", "E(26000) Z(I)".into())] {
        assert_eq!(answer(&mut client, name), expected);
    }
    let described = [describe(Target::Statement, "c"), SYNC.to_vec()].concat();
    assert_eq!(client.run(&described), "t() T() Z(I)");
}

#[test]
fn a_closed_name_can_be_given_again() {
    for mode in MODES {
        let proxy = shared(mode).limit(2).start();
        let mut client = proxy.connect();
        for text in ["one", "two", "one"] {
            assert_eq!(prepare(&mut client, "s", &format!("SELECT '{text}'")), "1() Z(I)");
            assert_eq!(prepare(&mut client, "s", "SELECT 'taken'"), "E(42P05) Z(I)");
            assert!(answer(&mut client, "s").contains(text));
            let batch = [close(Target::Statement, "s"), run("s")].concat();
            assert_eq!(client.run(&batch), "3() E(26000) Z(I)");
        }
    }
}

#[test]
fn deallocate_all_and_discard_all_forget_every_statement() {
    for mode in MODES {
        let proxy = shared(mode).limit(1).start();
        let (mut client, mut other) = (proxy.connect(), proxy.connect());
        assert_eq!(prepare(&mut other, "s", "SELECT 'kept'"), "1() Z(I)");
        for sql in ["DEALLOCATE ALL", "DISCARD ALL"] {
            assert_eq!(prepare(&mut client, "s", "SELECT 'gone'"), "1() Z(I)");
            assert!(answer(&mut client, "s").contains("gone"));
            assert!(client.query(sql).contains(&format!("C({sql})")));
            assert_eq!(answer(&mut client, "s"), "E(26000) Z(I)");
            assert!(answer(&mut other, "s").contains("kept"), "{mode}: another client's stays");
            assert_eq!(prepare(&mut client, "s", "SELECT 'gone'"), "1() Z(I)");
            assert!(answer(&mut client, "s").contains("gone"));
            let closing = [close(Target::Statement, "s"), SYNC.to_vec()].concat();
            assert_eq!(client.run(&closing), "3() Z(I)");
        }
    }
}

/// SQL's DEALLOCATE of a statement that the protocol has prepared, as psycopg sends it.
#[test]
fn deallocate_forgets_the_clients_statement_and_no_other() {
    for mode in MODES {
        let proxy = shared(mode).limit(1).start();
        let (mut client, mut other) = (proxy.connect(), proxy.connect());
        for is_extended in [false, true] {
            for sql in ["DEALLOCATE s", "DEALLOCATE PREPARE \"s\";"] {
                assert_eq!(prepare(&mut client, "s", "SELECT 'mine'"), "1() Z(I)");
                prepare(&mut other, "s", "SELECT 'mine'");
                assert_eq!(answer(&mut client, "s"), row("mine"));
                if is_extended {
                    let batch = [extended(sql), SYNC.to_vec()].concat();
                    assert_eq!(client.run(&batch), "1() 2() n() C(DEALLOCATE) Z(I)", "{mode}");
                } else {
                    assert_eq!(client.query(sql), "C(DEALLOCATE) Z(I)", "{mode}");
                }
                assert_eq!(answer(&mut client, "s"), "E(26000) Z(I)", "{mode}: {sql}");
                assert_eq!(answer(&mut other, "s"), row("mine"), "{mode}: {sql}");
                assert_eq!(client.error("DEALLOCATE s"), "26000");
            }
        }
        // A transaction that has failed keeps it.
        prepare(&mut client, "s", "SELECT 'mine'");
        client.query("BEGIN");
        client.error("SELECT 1/0");
        assert_eq!(client.error("DEALLOCATE s"), "25P02");
        client.query("ROLLBACK");
        assert_eq!(answer(&mut client, "s"), row("mine"), "{mode}");
    }
}

#[test]
fn an_unnamed_statement_of_an_earlier_transaction_is_the_clients_own() {
    let proxy = proxy(|setup| setup.limit(1));
    let (mut ann, mut bob, mut eve) = (proxy.connect(), proxy.connect(), proxy.connect());
    assert_eq!(prepare(&mut ann, "", "SELECT 'ann'"), "1() Z(I)");
    assert_eq!(prepare(&mut bob, "", "SELECT 'bob'"), "1() Z(I)");
    assert_eq!(answer(&mut ann, ""), row("ann"));
    assert_eq!(answer(&mut bob, ""), row("bob"));
    assert_eq!(answer(&mut eve, ""), "E(26000) Z(I)", "never another client's");
    // A simple query destroys it.
    ann.query("SELECT 1");
    bob.query("SELECT 1");
    assert_eq!(answer(&mut ann, ""), "E(26000) Z(I)");
}

#[test]
fn statements_on_a_connection_are_bounded() {
    let proxy = proxy(|setup| setup.limit(1).line("prepared_statements_max = 3"));
    let mut client = proxy.connect();
    let name = |index: usize| format!("s{index}");
    for index in 0..10 {
        assert_eq!(prepare(&mut client, &name(index), &format!("SELECT 'n{index}'")), "1() Z(I)");
    }
    for index in [0, 1, 2, 9, 0, 5, 3, 0] {
        assert_eq!(answer(&mut client, &name(index)), row(&format!("n{index}")));
        let count = client.value("SELECT count(*) FROM pg_prepared_statements");
        assert!(count.parse::<u32>().unwrap() <= 3, "{count}");
    }
    // The server skips the Close of the evicted statement with the rest of the failed batch.
    for index in [6, 7, 8, 5, 6, 7, 8] {
        let failing = [bind("no such", &[]), run(&name(index))].concat();
        assert_eq!(client.run(&failing), "E(26000) Z(I)");
        assert_eq!(answer(&mut client, &name(index)), row(&format!("n{index}")));
    }
}

#[test]
fn a_name_is_free_again_after_an_error() {
    let proxy = two_connections();
    let mut client = proxy.connect();
    assert_eq!(prepare(&mut client, "s", "SELEC"), "E(42601) Z(I)");
    assert_eq!(prepare(&mut client, "s", "SELECT 'right'"), "1() Z(I)");
    assert_eq!(answer(&mut client, "s"), row("right"));
    // Skipped by the server, since the batch had failed before it.
    let batch = [parse("", "SELEC"), parse("t", "SELECT 'skipped'"), SYNC.to_vec()].concat();
    assert_eq!(client.run(&batch), "E(42601) Z(I)");
    assert_eq!(answer(&mut client, "t"), "E(26000) Z(I)");
    assert_eq!(prepare(&mut client, "t", "SELECT 'second'"), "1() Z(I)");
    assert_eq!(answer(&mut client, "t"), row("second"));
}

/// The first batch's ReadyForQuery says nothing about the second's Parse.
#[test]
fn a_name_is_free_again_after_an_error_in_a_pipeline() {
    let proxy = two_connections();
    let mut client = proxy.connect();
    let wrong = [parse("s", "SELEC"), SYNC.to_vec()].concat();
    client.send(&[parse("", "SELECT pg_sleep(0.05)"), run(""), wrong].concat());
    assert_eq!(show(&client.until_ready()), "1() 2() D() C(SELECT 1) Z(I)");
    assert_eq!(show(&client.until_ready()), "E(42601) Z(I)");
    assert_eq!(prepare(&mut client, "s", "SELECT 'right'"), "1() Z(I)");
    assert_eq!(answer(&mut client, "s"), row("right"));
}

/// A Close that the server would have skipped closes nothing.
#[test]
fn a_close_in_a_failed_batch_is_not_done() {
    for mode in MODES {
        let proxy = shared(mode).limit(1).start();
        let mut client = proxy.connect();
        prepare(&mut client, "s", "SELECT 'here'");
        let closing = close(Target::Statement, "s");
        let batch = [bind("no such", &[]), closing, SYNC.to_vec()].concat();
        assert_eq!(client.run(&batch), "E(26000) Z(I)");
        assert_eq!(answer(&mut client, "s"), row("here"), "{mode}");
    }
}

/// The server refuses a plan whose result type a DDL changed; preparing anew helps, under the same
/// name or another, on every connection.
#[test]
fn a_statement_invalidated_by_ddl_can_be_prepared_anew() {
    let server = server();
    for mode in MODES {
        let mut admin = server.connect().unwrap();
        let table = format!("altered_{mode}");
        admin
            .query(&format!("CREATE TABLE {table} (x int); INSERT INTO {table} VALUES (1)"))
            .unwrap();
        let proxy = setup(&server, mode).limit(2).start();
        let mut clients = [proxy.connect(), proxy.connect(), proxy.connect()];
        let sql = format!("SELECT * FROM {table}");
        for client in &mut clients {
            assert_eq!(prepare(client, "s", &sql), "1() Z(I)");
            assert_eq!(answer(client, "s"), row("1"));
        }
        admin.query(&format!("ALTER TABLE {table} ADD y int DEFAULT 2")).unwrap();
        for client in &mut clients {
            let seen = answer(client, "s");
            assert!(seen == "E(0A000) Z(I)" || seen == row("12"), "{mode}: {seen}");
            let closing = [close(Target::Statement, "s"), SYNC.to_vec()].concat();
            assert_eq!(client.run(&closing), "3() Z(I)");
            assert_eq!(prepare(client, "s", &sql), "1() Z(I)");
            assert_eq!(answer(client, "s"), row("12"), "{mode}");
        }
    }
}

/// One text means other tables in another schema.
#[test]
fn a_statement_is_another_with_another_search_path() {
    let server = server();
    let mut admin = server.connect().unwrap();
    for sql in [
        "CREATE SCHEMA tenant_1; CREATE TABLE tenant_1.things AS SELECT 1 AS x",
        "CREATE SCHEMA tenant_2; CREATE TABLE tenant_2.things AS SELECT 'two' AS y, 2 AS z",
    ] {
        admin.query(sql).unwrap();
    }
    let proxy = setup(&server, "transaction").limit(1).start();
    let expected = [("tenant_1", row("1")), ("tenant_2", row("two2"))];
    let mut clients = expected.map(|(schema, expected)| {
        let mut client = proxy.connect();
        client.query(&format!("SET search_path = {schema}"));
        (client, expected)
    });
    for _ in 0..2 {
        for (client, expected) in &mut clients {
            assert_eq!(prepare(client, "s", "SELECT * FROM things"), "1() Z(I)");
            assert_eq!(answer(client, "s"), *expected);
        }
        for (client, expected) in &mut clients {
            assert_eq!(answer(client, "s"), *expected);
            client.run(&[close(Target::Statement, "s"), SYNC.to_vec()].concat());
        }
    }
}

#[test]
fn a_transaction_block_keeps_its_statements() {
    let proxy = two_connections();
    let mut client = proxy.connect();
    client.query("BEGIN");
    assert_eq!(client.run(&[parse("s", "SELECT 'in'"), SYNC.to_vec()].concat()), "1() Z(T)");
    client.send(&[bind("s", &[]), bind("none", &[]), SYNC.to_vec()].concat());
    assert_eq!(error_code(&client.until_ready()), "26000");
    assert_eq!(answer(&mut client, "s"), "E(25P02) Z(E)");
    client.query("ROLLBACK");
    assert_eq!(answer(&mut client, "s"), row("in"), "statements survive a rollback");
}

/// Errors name statements as their client does, not by the names that they have on the server.
#[test]
fn errors_show_the_names_of_the_client() {
    let server = server();
    for mode in MODES {
        let proxy = crate::support::server::setup(&server, mode).limit(1).start();
        let mut client = proxy.connect();
        prepare(&mut client, "mine", "SELECT $1::int");
        let text = |client: &mut Wire, batch: Vec<u8>| {
            client.send(&[batch, SYNC.to_vec()].concat());
            client.until_ready().remove(0).text()
        };
        let taken = text(&mut client, parse("mine", "SELECT 2"));
        assert_eq!(taken, "prepared statement \"mine\" already exists", "{mode}");
        let few = text(&mut client, bind("mine", &[]));
        assert!(few.ends_with("but prepared statement \"mine\" requires 1"), "{mode}: {few}");
    }
}

/// Longer than what is kept to be prepared elsewhere: the client keeps the connection until it has
/// closed the statement.
#[test]
fn a_very_long_statement() {
    let server = server();
    let long = format!("SELECT length('{}')", "x".repeat(20 << 20));
    for mode in MODES {
        let proxy = crate::support::server::setup(&server, mode).limit(2).start();
        let (mut client, mut other) = (proxy.connect(), proxy.connect());
        assert_eq!(prepare(&mut client, "long", &long), "1() Z(I)", "{mode}");
        for _ in 0..2 {
            assert_eq!(other.value("SELECT 'other'"), "other");
            assert_eq!(answer(&mut client, "long"), row("20971520"), "{mode}");
        }
        assert_eq!(prepare(&mut client, "long", &long), "E(42P05) Z(I)", "{mode}");
        let closing = [close(Target::Statement, "long"), SYNC.to_vec()].concat();
        assert_eq!(client.run(&closing), "3() Z(I)", "{mode}");
        assert_eq!(answer(&mut client, "long"), "E(26000) Z(I)", "{mode}");
        drop((client, other));
        proxy.is_left_clean();
    }
}

/// A batch fails before it comes to the unnamed statement, which stays as it was.
#[test]
fn an_unnamed_statement_outlives_a_successor_that_was_skipped() {
    for mode in MODES {
        let proxy = shared(mode).limit(2).start();
        let mut client = proxy.connect();
        let skipped = [parse("", "SELECT 'new'"), parse("", "wrong"), close(Target::Statement, "")];
        for skipped in skipped {
            assert_eq!(prepare(&mut client, "", "SELECT 'old'"), "1() Z(I)");
            let batch = [bind("unknown", &[]), skipped, SYNC.to_vec()].concat();
            assert_eq!(client.run(&batch), "E(26000) Z(I)");
            assert_eq!(answer(&mut client, ""), row("old"), "{mode}");
            // Both batches at once.
            client.send(&[batch, run("")].concat());
            assert_eq!(show(&client.until_ready()), "E(26000) Z(I)");
            assert_eq!(show(&client.until_ready()), row("old"), "{mode}");
        }
        assert_eq!(prepare(&mut client, "", "wrong"), "E(42601) Z(I)");
        assert_eq!(answer(&mut client, ""), "E(26000) Z(I)", "a Parse that fails leaves none");
    }
}

/// What a batch was to do with the unnamed statement is not done if the batch fails before. The
/// statement that is there then may be another client's.
#[test]
fn the_unnamed_statement_of_another_client_never_runs() {
    let proxy = proxy(|setup| setup.limit(1).database_line("max_connections = 1"));
    let (mut client, mut other) = (proxy.connect(), proxy.connect());
    for (name, sql) in [("b", "BEGIN"), ("s", "SAVEPOINT s"), ("r", "ROLLBACK TO s")] {
        assert_eq!(prepare(&mut client, name, sql), "1() Z(I)");
    }
    for skipped in [close(Target::Statement, ""), parse("", "SELECT 1"), bind("", &[])] {
        let batch = [bind("unknown", &[]), skipped, SYNC.to_vec()].concat();
        assert_eq!(prepare(&mut other, "", "SELECT 'of another'"), "1() Z(I)");
        client.send(&[batch.clone(), run("")].concat());
        assert_eq!(show(&client.until_ready()), "E(26000) Z(I)");
        assert_eq!(show(&client.until_ready()), "E(26000) Z(I)", "in a pipeline");

        // A transaction keeps the connection, and none of its messages is a simple query, which
        // would remove the statement.
        assert_eq!(prepare(&mut other, "", "SELECT 'of another'"), "1() Z(I)");
        assert_eq!(answer(&mut client, "b"), "2() C(BEGIN) Z(T)");
        assert_eq!(answer(&mut client, "s"), "2() C(SAVEPOINT) Z(T)");
        assert_eq!(client.run(&batch), "E(26000) Z(E)");
        assert_eq!(answer(&mut client, "r"), "2() C(ROLLBACK) Z(T)");
        assert_eq!(answer(&mut client, ""), "E(26000) Z(E)", "in a transaction");
        client.query("ROLLBACK");
    }
}

/// The end of the first is not known when the second is sent.
#[test]
fn a_statement_prepared_right_behind_a_deallocate_all_is_there() {
    for mode in MODES {
        let proxy = shared(mode).limit(2).start();
        let mut client = proxy.connect();
        for sql in ["DEALLOCATE ALL", "DISCARD ALL"] {
            let simple = query(sql);
            let batch = [parse("all", sql), bind("all", &[]), execute("", 0), SYNC.to_vec()];
            for all in [simple, batch.concat()] {
                prepare(&mut client, "s", "SELECT 'before'");
                client.send(&[all, parse("s", "SELECT 'behind'"), run("s")].concat());
                assert!(show(&client.until_ready()).contains(&format!("C({sql})")));
                let behind = show(&client.until_ready());
                assert_eq!(behind, format!("1() {}", row("behind")), "{mode}, {sql}");
                assert_eq!(answer(&mut client, "s"), row("behind"), "{mode}, {sql}");
                client.query("DEALLOCATE ALL");
            }
        }
    }
}

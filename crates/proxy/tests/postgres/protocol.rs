//! What a client sees is what the server itself would have shown it.

use tidegate_subject::postgres::Postgres;
use tidegate_wire::backend::tag;
use tidegate_wire::frontend::Target;

use crate::support::server::setup;
use crate::support::wire::{
    COPY_DONE, FLUSH, SYNC, bind, bind_portal, close, copy_data, copy_fail, describe, execute,
    extended, function_call, parse, query, show,
};
use crate::support::{MODES, Wire, server};

/// Runs `script` on the server itself, then through a proxy in each mode: the answers agree, and
/// the proxy is left clean. With a limit of one, a permit that leaks would stop the next script.
fn same_as_direct(script: impl Fn(&mut Wire) -> Vec<String>) {
    let server = server();
    let direct = script(&mut direct(&server));
    for mode in MODES {
        let proxy = setup(&server, mode).limit(1).start();
        // Another client has left its traces on the connection that is shared.
        proxy.connect().query("SELECT 'another client'");
        for round in 0..2 {
            let mut client = proxy.connect();
            assert_eq!(script(&mut client), direct, "{mode} mode, round {round}");
            proxy.comes_to_rest();
        }
        proxy.is_left_clean();
    }
}

/// A table for COPY. Two tests may create it at once, so one of them may fail to.
fn create_copied(server: &Postgres) {
    let _ = server.connect().unwrap().query("CREATE TABLE copied (x int)");
}

fn direct(server: &Postgres) -> Wire {
    Wire::connect(([127, 0, 0, 1], server.port()).into())
}

#[test]
fn simple_queries() {
    same_as_direct(|client| {
        [
            "SELECT 1, NULL, 'x'",
            "",
            ";",
            "SELECT 1; SELECT 2; SELECT 3",
            "SELECT 1; SELECT 1/0; SELECT 2",
            "SELEC 1",
            "DO $$ BEGIN RAISE NOTICE 'heard'; END $$",
            "SELECT generate_series(1, 3)",
        ]
        .map(|sql| client.query(sql))
        .into()
    });
}

#[test]
fn extended_queries() {
    same_as_direct(|client| {
        let unnamed = |sql: &str| [extended(sql), SYNC.to_vec()].concat();
        let sum = [parse("", "SELECT $1::int + $2::int"), bind("", &["20", "22"])].concat();
        let sum = [sum, execute("", 0), SYNC.to_vec()].concat();
        let described = [parse("", "SELECT $1::int"), describe(Target::Statement, "")].concat();
        vec![
            client.run(&unnamed("SELECT 1")),
            client.run(&unnamed("")),
            client.run(&unnamed("SELEC 1")),
            client.run(&unnamed("SELECT 1/0")),
            client.run(&sum),
            client.run(&[described, SYNC.to_vec()].concat()),
            client.run(SYNC),
            client.run(&[close(Target::Portal, "none"), SYNC.to_vec()].concat()),
        ]
    });
}

#[test]
fn several_syncs_in_flight_in_one_write() {
    same_as_direct(|client| {
        let batch = |sql: &str| [extended(sql), SYNC.to_vec()].concat();
        let sqls = ["SELECT 1", "SELECT 1/0", "SELECT 2", "SELEC", "BEGIN", "SELECT 3", "COMMIT"];
        let all: Vec<u8> = sqls.iter().flat_map(|sql| batch(sql)).collect();
        client.send(&all);
        sqls.map(|_| show(&client.until_ready())).into()
    });
}

#[test]
fn several_simple_queries_in_one_write() {
    same_as_direct(|client| {
        let sqls = ["SELECT 1", "SELECT 1/0", "BEGIN", "SELEC", "SELECT 2", "ROLLBACK", "SELECT 3"];
        client.send(&sqls.map(query).concat());
        sqls.map(|_| show(&client.until_ready())).into()
    });
}

#[test]
fn a_batch_flushed_in_pieces() {
    same_as_direct(|client| {
        client.send(&[parse("", "SELECT generate_series(1, 5)"), FLUSH.to_vec()].concat());
        let mut seen = client.until(tag::PARSE_COMPLETE);
        client.send(&[bind_portal("p", ""), execute("p", 2), FLUSH.to_vec()].concat());
        seen.extend(client.until(tag::PORTAL_SUSPENDED));
        client.send(&[execute("p", 2), FLUSH.to_vec()].concat());
        seen.extend(client.until(tag::PORTAL_SUSPENDED));
        client.send(&[execute("p", 0), close(Target::Portal, "p"), SYNC.to_vec()].concat());
        seen.extend(client.until_ready());
        vec![show(&seen)]
    });
}

#[test]
fn transaction_blocks() {
    same_as_direct(|client| {
        [
            "BEGIN",
            "SELECT 1",
            "COMMIT",
            "BEGIN",
            "SELECT 1/0",
            "SELECT 1",
            "ROLLBACK",
            "COMMIT",
            "BEGIN; SELECT 1; COMMIT; SELECT 2",
            "BEGIN; SELECT 1/0",
            "COMMIT",
        ]
        .map(|sql| client.query(sql))
        .into()
    });
}

/// A table that lasts as long as its transaction block, and rows expected for it.
const COPY_INTO_A_TEMPORARY_TABLE: &str =
    "BEGIN; CREATE TEMP TABLE c (x int) ON COMMIT DROP; COPY c FROM STDIN";

#[test]
fn copy_in() {
    same_as_direct(|client| {
        let rows = [copy_data(b"1\n"), copy_data(b"2\n3\n"), COPY_DONE.to_vec()].concat();
        let gives_up = [copy_data(b"1\n"), copy_fail("enough")].concat();
        let mut seen = Vec::new();
        for data in [rows, gives_up] {
            client.send(&query(COPY_INTO_A_TEMPORARY_TABLE));
            seen.push(show(&client.until(tag::COPY_IN)));
            seen.push(client.run(&data));
            seen.push(client.query("SELECT * FROM c; COMMIT"));
            seen.push(client.query("ROLLBACK"));
        }
        seen
    });
}

/// libpq sends Sync with the Execute, before it knows of the COPY, and a second one at the end.
#[test]
fn copy_in_by_the_extended_protocol() {
    same_as_direct(|client| {
        client.query("BEGIN; CREATE TEMP TABLE c (x int) ON COMMIT DROP");
        let mut seen = Vec::new();
        for end in [COPY_DONE.to_vec(), copy_fail("enough")] {
            client.send(&[extended("COPY c FROM STDIN"), SYNC.to_vec()].concat());
            seen.push(show(&client.until(tag::COPY_IN)));
            client.send(&[copy_data(b"1\n"), end, SYNC.to_vec()].concat());
            seen.push(show(&client.until_ready()));
        }
        seen.push(client.query("ROLLBACK"));
        seen
    });
}

/// The server fails at once; the client is still sending, in messages large and small.
#[test]
fn an_error_in_the_middle_of_copy_in() {
    same_as_direct(|client| {
        let mut seen = Vec::new();
        for rest_len in [10, 100_000] {
            client.send(&query(COPY_INTO_A_TEMPORARY_TABLE));
            client.until(tag::COPY_IN);
            let rest = copy_data(&vec![b'1'; rest_len]);
            let (early, late) = rest.split_at(rest_len / 2);
            client.send(&[&copy_data(b"wrong\n"), early].concat());
            seen.push(show(&client.until_ready()));
            client.send(&[late, COPY_DONE].concat());
            seen.push(client.query("ROLLBACK"));
        }
        seen
    });
}

/// As before, outside a transaction block: after the error nothing is open, and the permit is
/// free although the client has not finished its message.
#[test]
fn an_error_in_copy_in_ends_the_transaction() {
    let server = server();
    create_copied(&server);
    for mode in MODES {
        let proxy = setup(&server, mode).limit(1).start();
        let mut client = proxy.connect();
        client.send(&query("COPY copied FROM STDIN"));
        client.until(tag::COPY_IN);
        let large = copy_data(&vec![b'1'; 100_000]);
        let (early, late) = large.split_at(50_000);
        client.send(&[&copy_data(b"wrong\n"), early].concat());
        assert!(show(&client.until_ready()).starts_with("E(22P02)"));
        client.send(&[late, COPY_DONE].concat());
        proxy.comes_to_rest();
        assert_eq!(proxy.connect().value("SELECT 1"), "1");
        assert_eq!(client.value("SELECT 2"), "2");
    }
}

#[test]
fn copy_out() {
    same_as_direct(|client| {
        let rows = "COPY (SELECT generate_series(1, 1000)) TO STDOUT";
        let fails = "COPY (SELECT 1/(3 - g) FROM generate_series(1, 5) g) TO STDOUT";
        let by_extended = [extended(rows), SYNC.to_vec()].concat();
        vec![client.query(rows), client.query(fails), client.run(&by_extended)]
    });
}

#[test]
fn large_values() {
    const LEN: usize = 10 << 20;
    same_as_direct(|client| {
        let large = "x".repeat(LEN);
        let text = "SELECT md5($1::text), length($1::text)";
        let batch = [parse("", text), bind("", &[&large]), execute("", 0), SYNC.to_vec()].concat();
        let named = [parse("large", text), bind("large", &[&large]), execute("", 0)].concat();
        let named = [named, close(Target::Statement, "large"), SYNC.to_vec()].concat();
        let mut seen = vec![client.run(&batch), client.run(&named)];
        seen.push(client.query(&format!("SELECT length('{large}')")));
        client.send(&query(&format!("SELECT repeat('y', {LEN}); SELECT 1")));
        let row = client.until(tag::DATA_ROW).pop().unwrap();
        assert_eq!(row.payload.len(), 6 + LEN);
        assert!(row.payload[6..].iter().all(|&byte| byte == b'y'));
        seen.push(show(&client.until_ready()));
        seen
    });
}

#[test]
fn function_calls() {
    /// `upper(text)` in `pg_proc`.
    const UPPER: u32 = 871;
    same_as_direct(|client| {
        vec![
            client.run(&function_call(UPPER, b"loud")),
            client.run(&function_call(1, b"no such function")),
            client.query("BEGIN"),
            client.run(&function_call(UPPER, b"again")),
            client.query("COMMIT"),
        ]
    });
}

/// Odd sequences that the protocol allows: the server skips a Query too, until a Sync.
#[test]
fn a_query_in_the_middle_of_a_failed_batch() {
    same_as_direct(|client| {
        let batch = [parse("", "SELEC"), query("SELECT 1"), SYNC.to_vec()].concat();
        let without_sync = [extended("SELECT 1"), query("SELECT 2")].concat();
        vec![client.run(&batch), client.query("SELECT 3"), client.run(&without_sync)]
    });
}

/// The server ends the connection of a client that sends a Parse where it expects copy data.
#[test]
fn another_batch_where_copy_data_is_expected() {
    let server = server();
    create_copied(&server);
    for mode in MODES {
        let proxy = setup(&server, mode).limit(1).start();
        let mut client = proxy.connect();
        let copy = [extended("COPY copied FROM STDIN"), SYNC.to_vec()].concat();
        client.send(&[copy, extended("SELECT 1"), SYNC.to_vec()].concat());
        let seen = show(&client.until_ready());
        assert!(seen.contains("E(08P01)"), "{seen}");
        assert!(client.is_closed());
        assert_eq!(proxy.connect().value("SELECT 2"), "2");
        proxy.is_left_clean();
    }
}

//! A private MariaDB, and what its client reads of what it says.

use std::thread;

use tidegate_subject::connection::Transactional;
use tidegate_subject::database::{Database, DatabaseError};
use tidegate_subject::isolation::Isolation;
use tidegate_subject::mariadb::{MariaDb, Options};
use tidegate_subject::mysql::{BlockingClient, ClientError};
use tidegate_subject::url::Url;
use tidegate_workload::{Conflict, Connection, Dialect, Failure, Statement, Value, Wants};

use super::common::{Named, mariadb};
use super::traces::{assert_gone_after_panic, assert_restarts_and_stops};

/// A server at READ COMMITTED.
pub(crate) fn server(settings: &Named<'_>) -> Option<MariaDb> {
    mariadb(settings, Some(Isolation::ReadCommitted))
}

fn run(client: &mut BlockingClient, sql: &str) -> Result<u64, Failure> {
    super::run(client, sql, &[]).map(|reply| reply.count)
}

#[test]
fn a_server_serves_restarts_and_leaves_nothing() {
    let Some(server) = server(&[("innodb-buffer-pool-size", "64M")]) else { return };
    for url in [server.url(), server.socket_url()] {
        let mut client = BlockingClient::connect(&url).unwrap();
        let rows = client.query("SELECT 1, NULL, 'two' UNION ALL SELECT 3, '', NULL").unwrap();
        let text = |column: &str| Some(column.to_owned());
        assert_eq!(rows, [[text("1"), None, text("two")], [text("3"), text(""), None]], "{url}");
    }
    let names = ["innodb_buffer_pool_size", "tx_isolation", "port", "back_log"];
    let settings = server.in_force(&names).unwrap();
    let port = server.port().to_string();
    let values: Vec<&str> = settings.iter().map(|(_, value)| value.as_str()).collect();
    assert_eq!(values, ["67108864", "READ-COMMITTED", &port, "1100"]);
    let settings = server.settings().unwrap();
    let value = |name: &str| settings.iter().find(|(of, _)| of == name).unwrap().1.as_str();
    assert_eq!(value("innodb_buffer_pool_size"), "67108864");
    assert_eq!((value("tx_isolation"), value("max_connections")), ("READ-COMMITTED", "1100"));
    let error = server.in_force(&["no'such"]).unwrap_err();
    assert!(error.to_string().contains("no setting no'such"), "{error}");
    assert!(server.version().unwrap().contains("MariaDB"));
    assert_restarts_and_stops(server);
}

#[test]
fn a_panic_stops_the_server_and_removes_its_directory() {
    assert_gone_after_panic(|| server(&[]));
}

#[test]
fn what_keeps_a_server_from_starting_is_said() {
    let start = |name: &str, value: &str| {
        let settings = vec![(name.to_owned(), value.to_owned())];
        MariaDb::start(Options { settings, isolation: None }).unwrap_err()
    };
    if server(&[]).is_none() {
        return;
    }
    for name in ["datadir", "loose-data", "bind-address"] {
        let error = start(name, "elsewhere");
        assert!(matches!(error, DatabaseError::Setting(_)), "{error}");
    }
    let error = start("no_such_setting", "1");
    assert!(matches!(error, DatabaseError::Ended { .. }), "{error}");
    assert!(error.to_string().contains("no_such_setting"), "{error}");
    // More than MariaDB takes on any machine.
    let error = start("max-connections", "200000");
    assert!(error.to_string().contains("connections instead of 200000"), "{error}");
}

#[test]
fn a_client_is_let_in_by_its_password_alone() {
    let Some(server) = server(&[]) else { return };
    let mut root = server.connect().unwrap();
    root.query("CREATE USER ann@'127.0.0.1' IDENTIFIED BY 's:e/c@r%t'").unwrap();
    let at = |login: &str| format!("mysql://{login}@127.0.0.1:{}", server.port());
    let mut ann = BlockingClient::connect(&at("ann:s%3ae%2fc%40r%25t")).unwrap();
    assert_eq!(ann.value("SELECT CURRENT_USER()").unwrap(), "ann@127.0.0.1");

    for login in ["ann:wrong", "ann", "nobody:x"] {
        match BlockingClient::connect(&at(login)) {
            Err(ClientError::Server(error)) => assert_eq!(error.code, 1045, "{login}: {error}"),
            Err(error) => panic!("{login}: {error}"),
            Ok(_) => panic!("{login} is let in"),
        }
    }
    let fails = |url: &str| BlockingClient::connect(url).err().unwrap().to_string();
    assert!(fails("http://x").contains("mysql://"));
    assert!(fails("mysql://a:secret@127.0.0.1:1/d").starts_with("cannot connect to mysql://a@"));
    assert!(fails(&format!("{}/missing", at("root"))).contains("1049"));
    let no_socket = fails("mysql://a@localhost/d?socket=/nonexistent/socket");
    assert!(no_socket.contains("/nonexistent/socket"), "{no_socket}");
}

#[test]
fn every_value_comes_back_as_it_went() {
    let Some(server) = server(&[("max_allowed_packet", "64M")]) else { return };
    let mut client = server.connect().unwrap();
    run(&mut client, "CREATE TABLE t (id bigint, name varchar(50), fixed char(5))").unwrap();
    let names = ["", "it's ? \\ \"here\"", "näh 🦀", "\u{0}\u{1a}\n", "NULL"];
    let insert = Statement::new("INSERT INTO t VALUES (?, ?, ?)");
    for (id, name) in (i64::MIN..).zip(names) {
        let values = [id.into(), name.into(), "ab".into()];
        assert_eq!(client.run(&insert, &values, Wants::Count).unwrap().count, 1);
    }
    client.run(&insert, &[i64::MAX.into(), Value::Null, Value::Null], Wants::Count).unwrap();

    let select = Statement::new("SELECT id, name, fixed FROM t WHERE id > ? OR id < 0 ORDER BY id");
    let reply = client.run(&select, &[0.into()], Wants::Rows).unwrap();
    assert_eq!((reply.count, reply.rows.len(), reply.rows.width()), (6, 6, 3));
    for (row, name) in names.into_iter().enumerate() {
        assert_eq!(reply.rows.text(row, 1), Some(name));
        assert_eq!(reply.rows.text(row, 2), Some("ab"));
    }
    assert_eq!((reply.rows.int(0, 0), reply.rows.int(5, 0)), (Some(i64::MIN), Some(i64::MAX)));
    assert!(reply.rows.is_null(5, 1) && reply.rows.is_null(5, 2));

    let counted = client.run(&select, &[0.into()], Wants::Count).unwrap();
    assert_eq!((counted.count, counted.rows.len()), (6, 0));
    // Rows found count, also those that were so already.
    assert_eq!(run(&mut client, "UPDATE t SET fixed = 'ab' WHERE id < 0"), Ok(5));
    assert_eq!(run(&mut client, "SELECT * FROM t WHERE id = 0"), Ok(0));
    // Text concatenates, what is too long is refused.
    assert_eq!(client.value("SELECT 'a' || 'b\\'").unwrap(), "ab\\");
    let refused = run(&mut client, "INSERT INTO t VALUES (1, 'x', 'abcdef')").unwrap_err();
    assert!(matches!(refused, Failure::Refused { code, .. } if code == "1406"));
    assert_eq!(client.query("BEGIN").unwrap().len(), 0);
}

#[test]
fn rows_and_statements_longer_than_a_packet_pass() {
    let Some(server) = server(&[("max_allowed_packet", "64M")]) else { return };
    let mut client = server.connect().unwrap();
    // 16 MiB - 1 is the longest payload of a packet; a row has four bytes before its text.
    for len in [0xff_ffff_usize - 5, 0xff_ffff - 4, 0xff_ffff, 40_000_000] {
        let text = client.value(&format!("SELECT repeat('x', {len})")).unwrap();
        assert_eq!(text.len(), len);
    }
    for len in [0xff_ffff_usize - 20, 0xff_ffff, 34_000_000] {
        for query in [len - 17, len] {
            let sql = format!("SELECT length('{}')", "y".repeat(query));
            assert_eq!(client.value(&sql).unwrap(), query.to_string());
        }
    }
    assert_eq!(client.value("SELECT 1").unwrap(), "1");
}

/// Two rows, and two clients who hold one each.
fn rivals(server: &MariaDb) -> (BlockingClient, BlockingClient) {
    let mut first = server.connect().unwrap();
    let mut second = server.connect().unwrap();
    run(&mut first, "CREATE OR REPLACE TABLE r (id int PRIMARY KEY, n int)").unwrap();
    run(&mut first, "INSERT INTO r VALUES (1, 0), (2, 0)").unwrap();
    for (client, id) in [(&mut first, 1), (&mut second, 2)] {
        client.begin().unwrap();
        assert_eq!(run(client, &format!("UPDATE r SET n = n + 1 WHERE id = {id}")), Ok(1));
    }
    (first, second)
}

#[test]
fn what_an_error_means_for_the_transaction_is_known() {
    let Some(server) = server(&[]) else { return };

    let (mut first, mut second) = rivals(&server);
    let waiting = thread::spawn(move || {
        let end = run(&mut first, "UPDATE r SET n = n + 1 WHERE id = 2");
        (first, end)
    });
    let here = run(&mut second, "UPDATE r SET n = n + 1 WHERE id = 1");
    second.rollback().unwrap();
    let (mut first, there) = waiting.join().unwrap();
    let deadlock = Err(Failure::Conflict(Conflict::Deadlock));
    assert!(
        (here == deadlock && there == Ok(1)) || (here == Ok(1) && there == deadlock),
        "{here:?} {there:?}"
    );
    first.rollback().unwrap();
    assert_eq!(first.value("SELECT sum(n) FROM r").unwrap(), "0");

    let (mut first, mut second) = rivals(&server);
    run(&mut second, "SET innodb_lock_wait_timeout = 1").unwrap();
    let late = run(&mut second, "UPDATE r SET n = 7 WHERE id = 1");
    assert_eq!(late, Err(Failure::Conflict(Conflict::LockTimeout)));
    // The rest of the transaction is still there, until it is undone.
    assert_eq!(second.value("SELECT n FROM r WHERE id = 2").unwrap(), "1");
    second.rollback().unwrap();
    first.commit().unwrap();
    assert_eq!(second.value("SELECT n FROM r ORDER BY id").unwrap(), "1");

    run(&mut second, "SET innodb_snapshot_isolation = ON").unwrap();
    run(&mut second, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ").unwrap();
    second.begin().unwrap();
    assert_eq!(second.value("SELECT n FROM r WHERE id = 1").unwrap(), "1");
    run(&mut first, "UPDATE r SET n = 5 WHERE id = 1").unwrap();
    let changed = run(&mut second, "UPDATE r SET n = n + 1 WHERE id = 1");
    assert_eq!(changed, Err(Failure::Conflict(Conflict::Serialization)));
    second.rollback().unwrap();
    assert_eq!(second.value("SELECT n FROM r WHERE id = 1").unwrap(), "5");
}

#[test]
fn who_is_stopped_or_killed_is_told() {
    let Some(server) = server(&[]) else { return };
    let mut root = server.connect().unwrap();
    for (kill, is_stopped) in [("KILL QUERY", true), ("KILL", false)] {
        let mut victim = server.connect().unwrap();
        let id = victim.value("SELECT CONNECTION_ID()").unwrap();
        let waiting = thread::spawn(move || {
            let end = run(&mut victim, "SELECT sleep(60) FROM (SELECT 1 UNION SELECT 2) t");
            (end, run(&mut victim, "SELECT 1"))
        });
        let asleep = format!(
            "SELECT count(*) FROM information_schema.processlist \
             WHERE id = {id} AND info LIKE '%sleep%'"
        );
        while root.value(&asleep).unwrap() == "0" {
            thread::yield_now();
        }
        root.query(&format!("{kill} {id}")).unwrap();
        let (end, after) = waiting.join().unwrap();
        if is_stopped {
            assert_eq!((end, after), (Err(Failure::Stopped), Ok(1)));
        } else {
            assert!(matches!(end, Err(Failure::Lost(_))), "{end:?}");
            assert!(matches!(after, Err(Failure::Lost(_))), "{after:?}");
        }
    }
}

#[test]
fn an_isolation_level_is_the_sessions_own() {
    let Some(server) = server(&[]) else { return };
    let url: Url = server.url().parse().unwrap();
    for (isolation, name) in [
        (None, "READ-COMMITTED"),
        (Some(Isolation::ReadUncommitted), "READ-UNCOMMITTED"),
        (Some(Isolation::ReadCommitted), "READ-COMMITTED"),
        (Some(Isolation::RepeatableRead), "REPEATABLE-READ"),
        (Some(Isolation::Serializable), "SERIALIZABLE"),
    ] {
        let url = Url { isolation, ..url.clone() };
        let mut client = BlockingClient::connect(&url.with_password()).unwrap();
        assert_eq!(client.value("SELECT @@tx_isolation").unwrap(), name);
        assert_eq!(client.dialect(), Dialect::MariaDb);
    }
}

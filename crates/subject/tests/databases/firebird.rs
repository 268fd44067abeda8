//! A private Firebird.

use std::os::unix::fs::MetadataExt;
use std::sync::mpsc;
use std::time::Duration;

use tidegate_subject::connection::Transactional;
use tidegate_subject::database::{Database, DatabaseError};
use tidegate_subject::firebird::{Firebird, FirebirdConnection, Isolation, Options};
use tidegate_workload::{Conflict, Connection, Failure, Reply, Statement, Value, Wants};

use super::bank::{Bank, assert_works};
use super::common::{self, Named, firebird, settings};
use super::run;
use super::traces::{Traces, assert_gone_after_panic, assert_restarts_and_stops};

fn start(options: Options) -> Option<Firebird> {
    common::start(options)
}

fn with_settings(named: &Named<'_>) -> Options {
    Options { settings: settings(named), ..Options::default() }
}

#[test]
fn a_server_serves_says_what_it_is_and_leaves_nothing() {
    let options = Options { page_bytes: 4_096, ..with_settings(&[("DefaultDbCachePages", "321")]) };
    let Some(server) = start(options) else { return };
    assert!(server.version().unwrap().starts_with("3."));
    let settings = server.settings().unwrap();
    let value =
        |name: &str| settings.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str());
    assert_eq!(value("PageSize"), Some("4096"));
    assert_eq!(value("PageBuffers"), Some("321"));
    assert_eq!(value("ForcedWrites"), Some("1"));
    assert_eq!(value("DefaultDbCachePages"), Some("321"));
    assert_eq!(value("isolation"), Some("snapshot"));
    server.level(&[]).unwrap();
    // It may not write into the log of the machine's own server, which is its user's alone.
    if let Ok(log) = std::fs::metadata("/var/log/firebird") {
        let process = std::fs::metadata(format!("/proc/{}", server.process_id())).unwrap();
        assert_ne!(process.uid(), log.uid());
    }

    assert_restarts_and_stops(server);
}

#[test]
fn a_panic_stops_the_server_and_removes_its_directory() {
    assert_gone_after_panic(firebird);
}

#[test]
fn settings_that_are_none_or_ours_are_refused() {
    if firebird().is_none() {
        return;
    }
    for name in ["NoSuchSetting", "RemoteBindAddress", "wirecrypt", ""] {
        let error = Firebird::start(with_settings(&[(name, "1")])).unwrap_err();
        assert!(matches!(error, DatabaseError::Setting(_)), "{error}");
    }
    let broken = with_settings(&[("DefaultDbCachePages", "1\nRemoteBindAddress = 0.0.0.0")]);
    assert!(matches!(Firebird::start(broken), Err(DatabaseError::Setting(_))));
}

#[test]
fn values_come_back_as_they_went() {
    let Some(server) = firebird() else { return };
    let mut connection = server.connect().unwrap();
    let table = "CREATE TABLE t (a integer NOT NULL PRIMARY KEY, b bigint, c char(6), \
                 d varchar(400), e numeric(9, 2), f timestamp)";
    run(&mut connection, table, &[]).unwrap();
    let long = "\u{e9}'?\\".repeat(100);
    let insert = "INSERT INTO t (a, b, c, d) VALUES (?, ?, ?, ?)";
    let rows: [[Value<'_>; 4]; 3] = [
        [1.into(), i64::MIN.into(), "ab".into(), long.as_str().into()],
        [2.into(), i64::MAX.into(), "".into(), "x".into()],
        [3.into(), Value::Null, Value::Null, Value::Null],
    ];
    for row in &rows {
        assert_eq!(run(&mut connection, insert, row).unwrap().count, 1);
    }
    let update = "UPDATE t SET e = 12.5, f = CURRENT_TIMESTAMP WHERE a < ?";
    assert_eq!(run(&mut connection, update, &[2.into()]).unwrap().count, 1);

    let select = "SELECT a, b, c, d, e, f FROM t WHERE a <> ? ORDER BY a";
    let Reply { rows, count } = run(&mut connection, select, &["7".into()]).unwrap();
    assert_eq!((count, rows.len(), rows.width()), (3, 3, 6));
    assert_eq!(
        (rows.int(0, 0), rows.int(0, 1), rows.int(1, 1)),
        (Some(1), Some(i64::MIN), Some(i64::MAX))
    );
    assert_eq!((rows.text(0, 2), rows.text(1, 2)), (Some("ab"), Some("")));
    assert_eq!((rows.text(0, 3), rows.text(0, 4)), (Some(long.as_str()), Some("12.50")));
    assert!(rows.text(0, 5).unwrap().contains(':'), "{:?}", rows.text(0, 5));
    assert!((1..6).all(|column| rows.is_null(2, column)));

    let counted = connection.run(&Statement::new(select), &[1.into()], Wants::Count).unwrap();
    assert_eq!((counted.count, counted.rows.len()), (2, 0));
    let returning = "UPDATE t SET b = ? WHERE a = ? RETURNING b, d";
    let returned = run(&mut connection, returning, &[9.into(), 2.into()]).unwrap();
    assert_eq!((returned.rows.int(0, 0), returned.rows.text(0, 1)), (Some(9), Some("x")));
    let none = run(&mut connection, returning, &[9.into(), 99.into()]).unwrap();
    assert_eq!((none.count, none.rows.len()), (0, 0));
    assert_eq!(run(&mut connection, "DELETE FROM t WHERE a > ?", &[1.into()]).unwrap().count, 2);
    run(&mut connection, "DROP TABLE t", &[]).unwrap();
}

#[test]
fn refusals_name_code_and_place_and_do_no_harm() {
    let Some(server) = firebird() else { return };
    let mut connection = server.connect().unwrap();
    run(&mut connection, "CREATE TABLE t (a integer NOT NULL PRIMARY KEY, b char(2))", &[])
        .unwrap();
    let insert = "INSERT INTO t VALUES (?, ?)";
    let values = [1.into(), "x".into()];
    run(&mut connection, insert, &values).unwrap();
    for (sql, values, code, words) in [
        ("SELEKT 1", &[][..], "335544634", "token unknown"),
        ("SELECT a FROM missing", &[], "335544580", "MISSING"),
        (insert, &values, "335544665", "KEY violated"),
        (insert, &[2.into(), "long".into()], "335544321", "truncat"),
        (insert, &["x".into(), "x".into()], "335544334", "convert"),
    ] {
        // Alone and not yet prepared, alone and prepared, within a transaction.
        for within in [false, false, true] {
            if within {
                connection.begin().unwrap();
            }
            let error = run(&mut connection, sql, values).unwrap_err();
            let Failure::Refused { code: said, message } = &error else { panic!("{error}") };
            assert_eq!(said, code, "{message}");
            assert!(message.contains(words), "{message}");
            connection.rollback().unwrap();
        }
        let count = run(&mut connection, "SELECT COUNT(*) FROM t", &[]).unwrap();
        assert_eq!(count.rows.int(0, 0), Some(1));
    }
}

#[test]
fn many_statements_and_many_rows_pass() {
    let Some(server) = firebird() else { return };
    let mut connection = server.connect().unwrap();
    run(&mut connection, "CREATE TABLE t (a integer NOT NULL PRIMARY KEY)", &[]).unwrap();
    let fill = "EXECUTE BLOCK AS DECLARE i integer = 0; BEGIN WHILE (i < 3000) DO BEGIN \
                INSERT INTO t VALUES (:i); i = i + 1; END END";
    run(&mut connection, fill, &[]).unwrap();
    for within in [false, true] {
        if within {
            connection.begin().unwrap();
        }
        for number in 0..600 {
            let sql = format!("SELECT a FROM t WHERE a = {}", number % 300);
            let reply = connection.run(&Statement::written(sql), &[], Wants::Rows).unwrap();
            assert_eq!(reply.rows.int(0, 0), Some(number % 300));
        }
        for _ in 0..3 {
            let reply = run(&mut connection, "SELECT a FROM t ORDER BY a", &[]).unwrap();
            assert_eq!((reply.count, reply.rows.int(2_999, 0)), (3_000, Some(2_999)));
        }
        connection.commit().unwrap();
    }
}

/// Two connections, a table with two rows of 0, both in a transaction.
fn pair(server: &Firebird) -> [FirebirdConnection; 2] {
    let mut pair = [(); 2].map(|()| server.connect().unwrap());
    run(&mut pair[0], "CREATE TABLE t (a integer NOT NULL PRIMARY KEY, b integer)", &[]).unwrap();
    for row in [1, 2] {
        run(&mut pair[0], "INSERT INTO t VALUES (?, 0)", &[row.into()]).unwrap();
    }
    for connection in &mut pair {
        connection.begin().unwrap();
        run(connection, "SELECT COUNT(*) FROM t", &[]).unwrap();
    }
    pair
}

const ADD: &str = "UPDATE t SET b = b + 1 WHERE a = ?";

#[test]
fn under_snapshot_the_second_to_change_a_row_gives_way() {
    let Some(server) = firebird() else { return };
    let [mut first, mut second] = pair(&server);
    run(&mut first, ADD, &[1.into()]).unwrap();
    first.commit().unwrap();
    let conflict = Err(Failure::Conflict(Conflict::Serialization));
    assert_eq!(run(&mut second, ADD, &[1.into()]), conflict);
    second.rollback().unwrap();
    second.begin().unwrap();
    assert_eq!(run(&mut second, ADD, &[1.into()]).unwrap().count, 1);
    second.commit().unwrap();

    // One that waits for the other learns the same when the other commits.
    first.begin().unwrap();
    second.begin().unwrap();
    run(&mut first, ADD, &[1.into()]).unwrap();
    let waiting = std::thread::spawn(move || run(&mut second, ADD, &[1.into()]));
    std::thread::sleep(Duration::from_millis(100));
    first.commit().unwrap();
    assert_eq!(waiting.join().unwrap(), conflict);
    let mut after = server.connect().unwrap();
    let rows = run(&mut after, "SELECT b FROM t WHERE a = 1", &[]).unwrap().rows;
    assert_eq!(rows.int(0, 0), Some(3));
}

#[test]
fn under_read_committed_the_second_sees_what_the_first_did() {
    let options = Options { isolation: Isolation::ReadCommitted, ..Options::default() };
    let Some(server) = start(options) else { return };
    let [mut first, mut second] = pair(&server);
    run(&mut first, ADD, &[1.into()]).unwrap();
    first.commit().unwrap();
    assert_eq!(run(&mut second, ADD, &[1.into()]).unwrap().count, 1);
    let rows = run(&mut second, "SELECT b FROM t ORDER BY a", &[]).unwrap().rows;
    assert_eq!((rows.int(0, 0), rows.int(1, 0)), (Some(2), Some(0)));
}

#[test]
fn a_circle_is_a_conflict_for_one_of_two() {
    let Some(server) = firebird() else { return };
    let [mut first, mut second] = pair(&server);
    run(&mut first, ADD, &[1.into()]).unwrap();
    run(&mut second, ADD, &[2.into()]).unwrap();
    let finish = |mut connection: FirebirdConnection, row: i32| {
        let result = run(&mut connection, ADD, &[row.into()]);
        connection.rollback().unwrap();
        result
    };
    let other = std::thread::spawn(move || finish(second, 1));
    let results = [finish(first, 2), other.join().unwrap()];
    let done = results.iter().filter(|result| result.is_ok()).count();
    // Firebird 3 gives the same codes for a circle as for a row changed by another.
    let conflict = Err(Failure::Conflict(Conflict::Serialization));
    assert_eq!((done, results.contains(&conflict)), (1, true), "{results:?}");
}

/// Ends the connections of others until nobody is left; whether there were any.
fn end_others(server: &Firebird) -> bool {
    let mut were_there = false;
    while server.end_connections().unwrap() > 0 {
        were_there = true;
        std::thread::sleep(Duration::from_millis(20));
    }
    were_there
}

#[test]
fn others_are_ended_while_they_wait_and_undone() {
    let Some(server) = firebird() else { return };
    let [mut first, mut second] = pair(&server);
    run(&mut first, ADD, &[1.into()]).unwrap();
    let (tell, are_ended) = mpsc::channel();
    let waiting = std::thread::spawn(move || {
        // The one it waits for may be ended, and let it go on, a moment before it is itself.
        let _ = run(&mut second, ADD, &[1.into()]);
        are_ended.recv().unwrap();
        second.commit()
    });
    assert!(end_others(&server));
    tell.send(()).unwrap();
    let waited = waiting.join().unwrap();
    assert!(matches!(waited, Err(Failure::Lost(_))), "{waited:?}");
    assert!(matches!(first.commit(), Err(Failure::Lost(_))));
    // The keeper is still there: nobody else is.
    assert!(!end_others(&server));
    let mut connection = server.connect().unwrap();
    let sum = run(&mut connection, "SELECT SUM(b) FROM t", &[]).unwrap().rows.int(0, 0);
    assert_eq!(sum, Some(0));
}

#[test]
fn a_server_is_stopped_whoever_is_connected() {
    let Some(server) = firebird() else { return };
    let (traces, connector) = (Traces::of(&server), server.connector());
    let mut straggler = connector.connect().unwrap();
    straggler.begin().unwrap();
    server.stop().unwrap();
    traces.assert_gone();
    assert!(matches!(straggler.commit(), Err(Failure::Lost(_))));
    assert!(matches!(connector.connect(), Err(Failure::Lost(_))));
}

#[test]
fn fifty_connections_work_side_by_side() {
    let Some(server) = firebird() else { return };
    let mut connections: Vec<_> = (0..50).map(|_| server.connect().unwrap()).collect();
    for (number, connection) in connections.iter_mut().enumerate() {
        let number = i64::try_from(number).unwrap();
        let sql = "SELECT CAST(? AS bigint) FROM rdb$database";
        assert_eq!(run(connection, sql, &[number.into()]).unwrap().rows.int(0, 0), Some(number));
    }
}

#[test]
fn a_workload_is_loaded_run_and_checked() {
    let options = Options {
        isolation: Isolation::ReadCommitted,
        ..with_settings(&[("DeadlockTimeout", "1")])
    };
    let Some(server) = start(options) else { return };
    assert_works(&server, Bank::WIDE, 100);
}

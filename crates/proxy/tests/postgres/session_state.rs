//! What a client leaves in its session in transaction mode: settings follow it, the rest pins it,
//! and nothing reaches another client.

use tidegate_wire::backend::tag;
use tidegate_wire::error_response::field;

use crate::support::server::{Server, Setup, eventually, setup, shared};
use crate::support::wire::{SYNC, error_code, extended, query, show};
use crate::support::{Proxy, Wire, log, server};

const PINNED: &str = "tidegate_clients_pinned";
const INSPECTIONS: &str = "tidegate_session_inspections_total";

fn proxy() -> Proxy {
    shared("transaction").limit(4).start()
}

fn with_policy(policy: &str) -> Setup {
    shared("transaction").limit(4).database_line(&format!("session_state = \"{policy}\""))
}

/// Roles that the tests may become.
fn server_with_roles() -> Server {
    let server = server();
    let mut admin = server.connect().unwrap();
    // Several tests may come at the same time.
    let sql = "SELECT pg_advisory_xact_lock(77); DO $$ BEGIN \
               IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'tenant_a') THEN \
               CREATE ROLE tenant_a; CREATE ROLE tenant_b SUPERUSER LOGIN; END IF; END $$";
    admin.query(sql).unwrap();
    server
}

/// Runs one statement in the simple or the extended protocol.
fn run(client: &mut Wire, sql: &str, is_extended: bool) -> String {
    if is_extended {
        client.run(&[extended(sql), SYNC.to_vec()].concat())
    } else {
        client.query(sql)
    }
}

/// Holds the connection that was used last, so that the next transaction runs on another one, for
/// as long as the client that is returned stays.
fn hold_last_connection(proxy: &Proxy) -> Wire {
    let mut holder = proxy.connect();
    holder.query("BEGIN");
    holder
}

/// Statement, what shows its effect, and that effect.
const FOLLOWING: [(&str, &str, &str); 17] = [
    ("SET work_mem = '7MB'", "work_mem", "7MB"),
    ("SET IntervalStyle = 'iso_8601'", "IntervalStyle", "iso_8601"),
    ("SET search_path = app, \"$user\", public", "search_path", "app, \"$user\", public"),
    ("SET statement_timeout = '5s'", "statement_timeout", "5s"),
    ("SET TimeZone = 'Asia/Tokyo'", "TimeZone", "Asia/Tokyo"),
    ("SET TIME ZONE INTERVAL '-08:00' HOUR TO MINUTE", "TimeZone", "<-08>+08"),
    ("SET client_encoding = 'LATIN1'", "client_encoding", "LATIN1"),
    ("SET app.tenant = 'a''b\\c'", "app.tenant", "a'b\\c"),
    ("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", "transaction_read_only", "on"),
    ("SET ROLE tenant_a", "role", "tenant_a"),
    ("SET SESSION AUTHORIZATION tenant_b", "session_authorization", "tenant_b"),
    ("SELECT set_config('app.x', 'set', false)", "app.x", "set"),
    ("SELECT set_config('work_mem', '9MB', false)", "work_mem", "9MB"),
    ("DO $$ BEGIN SET app.y = 'do'; END $$", "app.y", "do"),
    ("DO $$ BEGIN PERFORM set_config('lock_timeout', '3s', false); END $$", "lock_timeout", "3s"),
    ("DO $$ BEGIN EXECUTE 'SET jit = ' || 'off'; END $$", "jit", "off"),
    ("SET extra_float_digits = 0", "extra_float_digits", "0"),
];

#[test]
fn settings_follow_their_client_and_nobody_else() {
    let server = server_with_roles();
    for is_extended in [false, true] {
        let proxy = setup(&server, "transaction").limit(8).start();
        for (sql, name, value) in FOLLOWING {
            // A custom setting that was ever set on a connection is empty there, not absent.
            let show = format!("SELECT coalesce(current_setting('{name}', true), '')");
            let (mut client, mut other) = (proxy.connect(), proxy.connect());
            let before = other.value(&show);
            let set = run(&mut client, sql, is_extended);
            assert!(set.ends_with("Z(I)") && !set.contains("E("), "{sql}: {set}");
            assert_eq!(client.value(&show), value, "{sql}");
            assert_eq!(other.value(&show), before, "{sql}, for another");
            // On another connection.
            let _holder = hold_last_connection(&proxy);
            assert_eq!(client.value(&show), value, "{sql}, elsewhere");
        }
        proxy.wait_for(PINNED, 0);
        proxy.is_left_clean();
    }
}

#[test]
fn a_role_goes_with_the_settings_that_it_could_not_make() {
    let server = server_with_roles();
    let proxy = setup(&server, "transaction").limit(8).start();
    let mut client = proxy.connect();
    client.query("SET SESSION AUTHORIZATION tenant_b; SET ROLE tenant_a; SET work_mem = '7MB'");
    for _ in 0..3 {
        let _holder = hold_last_connection(&proxy);
        assert_eq!(client.value("SELECT session_user || current_user"), "tenant_btenant_a");
        assert_eq!(client.value("SHOW work_mem"), "7MB");
        assert_eq!(
            proxy.connect().value("SELECT session_user || current_user"),
            "postgrespostgres"
        );
    }
    client.query("RESET ROLE");
    client.query("RESET SESSION AUTHORIZATION");
    assert_eq!(client.value("SELECT session_user || current_user"), "postgrespostgres");
    proxy.wait_for(PINNED, 0);
}

#[test]
fn a_setting_ends_as_it_would_directly() {
    let proxy = proxy();
    let parameters = [("timezone", "Asia/Tokyo"), ("options", "-c work_mem=5MB -c app.x=start")];
    let mut client = Wire::with(proxy.address, &parameters);
    let shown = |client: &mut Wire| {
        ["SHOW timezone", "SHOW work_mem", "SHOW app.x"].map(|sql| client.value(sql))
    };
    let first = ["Asia/Tokyo", "5MB", "start"];
    let other = ["Europe/Oslo", "6MB", "other"];
    for reset in [
        "RESET ALL",
        "DISCARD ALL",
        "RESET timezone; RESET work_mem; RESET app.x",
        "SET timezone TO DEFAULT; SET work_mem TO DEFAULT; SET app.x TO DEFAULT",
    ] {
        assert_eq!(shown(&mut client), first);
        client.query("SET timezone = 'Europe/Oslo'; SET work_mem = '6MB'; SET app.x = 'other'");
        assert_eq!(shown(&mut client), other);
        proxy.connect().query("SELECT 1");
        assert_eq!(shown(&mut client), other);
        client.query("BEGIN; SET work_mem = '9MB'; SET app.x = 'undone'; ROLLBACK");
        client.query("BEGIN; SET LOCAL work_mem = '9MB'; SET LOCAL app.x = 'undone'; COMMIT");
        client.query("SET work_mem = '9MB'; SELECT 1/0");
        assert_eq!(shown(&mut client), other, "undone");
        client.query(reset);
        assert_eq!(shown(&mut client), first, "{reset}");
    }
    proxy.wait_for(PINNED, 0);
}

#[test]
fn what_ends_with_the_transaction_is_not_inspected() {
    let proxy = proxy();
    let mut client = proxy.connect();
    for sql in [
        "SELECT 1",
        "BEGIN; SET LOCAL app.tenant = '7'; SELECT 1; COMMIT",
        "BEGIN; SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; SELECT set_config('a.b', '', true); \
         COMMIT",
        "SELECT pg_advisory_xact_lock(1)",
        "BEGIN; DECLARE c CURSOR FOR SELECT 1; FETCH c; CLOSE c; COMMIT",
        "SELECT lo_unlink(lo_create(0))",
    ] {
        let answer = client.query(sql);
        assert!(!answer.contains("E("), "{sql}: {answer}");
    }
    for sql in ["BEGIN", "SET LOCAL app.tenant = '7'", "SELECT set_config('a.b', 'c', true)", "END"]
    {
        let answer = run(&mut client, sql, true);
        assert!(!answer.contains("E("), "{sql}: {answer}");
    }
    assert_eq!(proxy.metric(INSPECTIONS), 0);
}

/// Statement, a question, its answer by the same session, by another one (a value or the code of an
/// error), and what undoes it.
const PINNING: [(&str, &str, &str, &str, &str); 9] = [
    (
        "CREATE TEMP TABLE mine AS SELECT 7 AS x",
        "SELECT x FROM mine",
        "7",
        "42P01",
        "DROP TABLE mine",
    ),
    (
        "CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 7'",
        "SELECT count(*) FROM pg_proc WHERE proname = 'f' AND pronamespace = pg_my_temp_schema()",
        "1",
        "0",
        "DROP FUNCTION pg_temp.f()",
    ),
    ("PREPARE p AS SELECT 7", "EXECUTE p", "7", "26000", "DEALLOCATE p"),
    (
        "SELECT pg_advisory_lock(4712)",
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4712 \
         AND pid = pg_backend_pid()",
        "1",
        "0",
        "SELECT pg_advisory_unlock(4712)",
    ),
    ("LISTEN news", "SELECT * FROM pg_listening_channels()", "news", "", "UNLISTEN news"),
    (
        "DECLARE c CURSOR WITH HOLD FOR SELECT 7 FROM generate_series(1, 9)",
        "FETCH c",
        "7",
        "34000",
        "CLOSE c",
    ),
    (
        "SET session_replication_role = 'replica'",
        "SHOW session_replication_role",
        "replica",
        "origin",
        "RESET session_replication_role",
    ),
    (
        "SELECT set_config('app.' || 'z', '7', false)",
        "SELECT coalesce(current_setting('app.z', true), '')",
        "7",
        "",
        "RESET ALL",
    ),
    (
        "DO $$ BEGIN EXECUTE 'PREPARE q AS SELECT 7'; END $$",
        "EXECUTE q",
        "7",
        "26000",
        "DISCARD ALL",
    ),
];

/// The first value of an answer, or the code of its error; empty without rows.
fn outcome(client: &mut Wire, sql: &str) -> String {
    client.send(&query(sql));
    let messages = client.until_ready();
    if messages.iter().any(|message| message.tag == tag::ERROR) {
        return error_code(&messages);
    }
    let row = messages.iter().find(|message| message.tag == tag::DATA_ROW);
    row.map_or_else(String::new, |row| {
        format!("{row:?}").trim_start_matches("D(").trim_end_matches(')').to_owned()
    })
}

#[test]
fn what_cannot_follow_pins_until_it_is_gone() {
    for is_extended in [false, true] {
        let proxy = proxy();
        let (mut client, mut other) = (proxy.connect(), proxy.connect());
        for (sql, question, own, others, undo) in PINNING {
            let made = run(&mut client, sql, is_extended);
            assert!(!made.contains("E("), "{sql}: {made}");
            proxy.wait_for(PINNED, 1);
            for _ in 0..2 {
                assert_eq!(outcome(&mut client, question), own, "{sql}");
                assert_eq!(outcome(&mut other, question), others, "{sql}, for another");
            }
            let undone = run(&mut client, undo, is_extended);
            assert!(!undone.contains("E("), "{undo}: {undone}");
            eventually(undo, || (proxy.metric(PINNED) == 0).then_some(()));
            assert_eq!(outcome(&mut client, question), others, "{undo}");
        }
    }
}

/// The connection of a client that has left is used again, without anything of it.
#[test]
fn what_a_client_leaves_behind_is_removed_when_it_goes() {
    for how in ["goodbye", "reset", "in a transaction"] {
        let proxy = shared("transaction").limit(1).start();
        for (sql, question, _, others, _) in PINNING {
            let mut client = proxy.connect();
            let backend = client.value("SELECT pg_backend_pid()");
            if how == "in a transaction" {
                client.query(&format!("BEGIN; {sql}"));
            } else {
                client.query(sql);
                proxy.wait_for(PINNED, 1);
            }
            if how == "reset" {
                client.reset();
            } else {
                drop(client);
            }
            proxy.wait_for("tidegate_clients", 0);
            proxy.wait_for("tidegate_upstreams_idle", 1);
            let mut next = proxy.connect();
            assert_eq!(next.value("SELECT pg_backend_pid()"), backend, "{sql}, {how}");
            assert_eq!(outcome(&mut next, question), others, "{sql}, {how}");
        }
        proxy.wait_for(PINNED, 0);
    }
}

/// A backend that has loaded a library is of no use for others.
#[test]
fn what_no_command_removes_ends_with_the_connection() {
    let proxy = shared("transaction").limit(1).start();
    for sql in ["LOAD 'auto_explain'", "SELECT setseed(0.5)"] {
        let mut client = proxy.connect();
        let backend = client.value("SELECT pg_backend_pid()");
        client.query(sql);
        proxy.wait_for(PINNED, 1);
        client.query("DISCARD ALL");
        assert_eq!(client.value("SELECT pg_backend_pid()"), backend, "{sql}");
        drop(client);
        proxy.wait_for("tidegate_clients", 0);
        assert_ne!(proxy.connect().value("SELECT pg_backend_pid()"), backend, "{sql}");
    }
}

#[test]
fn what_is_undone_does_not_pin() {
    let proxy = proxy();
    let mut client = proxy.connect();
    for sql in [
        "BEGIN; CREATE TEMP TABLE t (x int) ON COMMIT DROP; COMMIT",
        "BEGIN; CREATE TEMP TABLE t (x int); ROLLBACK",
        "BEGIN; LISTEN x; ROLLBACK",
        "SELECT pg_advisory_lock(5), pg_advisory_unlock(5)",
        "PREPARE p AS SELECT 1; DEALLOCATE p",
        "CREATE TEMP TABLE t (x int); SELECT 1/0",
    ] {
        client.query(sql);
        // The answer comes before the inspection ends; the next one comes behind it.
        client.query("SELECT 1");
    }
    proxy.wait_for(PINNED, 0);
    let page = proxy.get("/metrics");
    assert!(!page.lines().any(|line| line.contains("outcome=\"pinned\"") && !line.ends_with(" 0")));
    assert_eq!(proxy.metric(INSPECTIONS), 6);
}

#[test]
fn notifications_reach_the_client_that_listens_and_no_other() {
    let proxy = proxy();
    let (mut listener, mut other) = (proxy.connect(), proxy.connect());
    listener.query("LISTEN news");
    for news in ["first", "second"] {
        assert_eq!(other.query(&format!("NOTIFY news, '{news}'")), "C(NOTIFY) Z(I)");
        let heard = listener.until(tag::NOTIFICATION).pop().unwrap();
        assert!(format!("{heard:?}").contains(news), "{heard:?}");
    }
    // Its own, too, before or behind the end of the answer.
    listener.send(&query("NOTIFY news, 'own'"));
    let (mut is_heard, mut is_ready) = (false, false);
    while !(is_heard && is_ready) {
        let message = listener.receive().unwrap();
        is_heard |= message.tag == tag::NOTIFICATION;
        is_ready |= message.tag == tag::READY_FOR_QUERY;
    }
    proxy.wait_for("tidegate_permits_out", 0);
    listener.query("UNLISTEN *");
    proxy.wait_for(PINNED, 0);
    other.query("NOTIFY news, 'third'");
    assert_eq!(listener.query("SELECT 1"), "T() D(1) C(SELECT 1) Z(I)");
}

#[test]
fn a_warning_comes_with_what_is_removed() {
    log::collect();
    let proxy = with_policy("warn").start();
    let mut client = Wire::with(proxy.address, &[("user", "postgres")]);
    let mut other = proxy.connect();
    for (sql, question, _, others, _) in PINNING {
        client.query(sql);
        client.send(&query(question));
        let answer = client.until_ready();
        let warning = answer.iter().find(|message| {
            message.tag == tag::NOTICE && message.text().contains("transaction mode")
        });
        let warning = warning.unwrap_or_else(|| panic!("{sql}: {}", show(&answer)));
        assert_eq!(warning.code(), "01000");
        assert!(field(&warning.payload, b'H').contains("session_state"), "{sql}");
        assert_eq!(outcome(&mut client, question), others, "{sql}");
        assert_eq!(outcome(&mut other, question), others, "{sql}");
    }
    assert_eq!(client.query("SET work_mem = '7MB'"), "C(SET) Z(I)");
    assert_eq!(client.value("SHOW work_mem"), "7MB", "settings follow under every policy");
    proxy.wait_for(PINNED, 0);
    assert!(!log::lines_with("session state was removed").is_empty());
}

#[test]
fn what_is_refused_fails_before_it_runs() {
    for is_extended in [false, true] {
        let proxy = with_policy("refuse").start();
        let mut client = proxy.connect();
        for (sql, question, _, others, _) in PINNING.into_iter().take(6) {
            let batch =
                if is_extended { [extended(sql), SYNC.to_vec()].concat() } else { query(sql) };
            client.send(&batch);
            let messages = client.until_ready();
            let error = messages.iter().find(|message| message.tag == tag::ERROR);
            let error = error.unwrap_or_else(|| panic!("{sql}: {}", show(&messages)));
            assert_eq!(error.code(), "0A000", "{sql}: {}", error.text());
            assert!(error.text().contains("transaction mode"), "{}", error.text());
            assert!(field(&error.payload, b'H').contains("session_state"), "{sql}");
            assert_eq!(outcome(&mut client, question), others, "{sql}");
            // It fails the transaction that it is in, as any other error.
            client.query("BEGIN");
            assert!(run(&mut client, sql, is_extended).contains("E(0A000) Z(E)"), "{sql}");
            assert!(run(&mut client, sql, is_extended).contains("E(0A000) Z(E)"), "{sql}");
            assert_eq!(client.error("SELECT 1"), "25P02");
            assert_eq!(client.query("ROLLBACK"), "C(ROLLBACK) Z(I)");
        }
        let fine =
            "BEGIN; CREATE TEMP TABLE t (x int) ON COMMIT DROP; COMMIT; SET work_mem = '7MB'";
        assert!(!client.query(fine).contains("E("));
        assert_eq!(client.value("SHOW work_mem"), "7MB");
        assert_eq!(proxy.metric(PINNED), 0);
        proxy.comes_to_rest();
    }
}

/// What functions do inside is found if every transaction is inspected.
#[test]
fn functions_are_seen_through_when_every_transaction_is_inspected() {
    let server = server();
    let mut admin = server.connect().unwrap();
    admin
        .query(
            "CREATE OR REPLACE FUNCTION changes_session() RETURNS void LANGUAGE plpgsql AS \
             $$ BEGIN \
             SET work_mem = '7MB'; SET app.hidden = '7'; CREATE TEMP TABLE mine AS SELECT 7 AS x; \
             END $$",
        )
        .unwrap();
    let proxy = setup(&server, "transaction")
        .limit(4)
        .database_line("session_state_check = \"always\"")
        .start();
    let (mut client, mut other) = (proxy.connect(), proxy.connect());
    client.query("SELECT changes_session()");
    proxy.wait_for(PINNED, 1);
    assert_eq!(client.value("SELECT x FROM mine"), "7");
    assert_eq!(other.error("SELECT x FROM mine"), "42P01");
    client.query("DROP TABLE mine");
    proxy.wait_for(PINNED, 0);
    let _holder = hold_last_connection(&proxy);
    assert_eq!(client.value("SHOW work_mem"), "7MB");
    for client in [&mut client, &mut other] {
        assert_eq!(client.value("SELECT coalesce(current_setting('app.hidden', true), '')"), "");
    }
}

/// Queries too long to be looked at whole, and prepared ones that run again.
#[test]
fn long_queries_and_prepared_ones_are_noticed() {
    let proxy = proxy();
    let mut client = proxy.connect();
    let padding = " ".repeat(100_000);
    assert!(client.query(&format!("SELECT 1;{padding} SET app.far = '7'")).ends_with("Z(I)"));
    proxy.wait_for(PINNED, 1);
    assert_eq!(client.value("SHOW app.far"), "7");
    client.query("RESET ALL");
    proxy.wait_for(PINNED, 0);
    let far = format!("SELECT {padding} pg_advisory_lock(4713)");
    run(&mut client, &far, true);
    proxy.wait_for(PINNED, 1);
    client.query("SELECT pg_advisory_unlock(4713)");
    proxy.wait_for(PINNED, 0);
    let parse = crate::support::wire::parse("s", "SELECT set_config('app.tenant', $1, false)");
    client.run(&[parse, SYNC.to_vec()].concat());
    for value in ["1", "2"] {
        let run = [
            crate::support::wire::bind("s", &[value]),
            crate::support::wire::execute("", 0),
            SYNC.to_vec(),
        ];
        client.run(&run.concat());
        proxy.connect().query("SELECT 1");
        assert_eq!(client.value("SHOW app.tenant"), value);
    }
}

/// A session that cannot be inspected is kept from others.
#[test]
fn a_client_whose_session_cannot_be_inspected_is_pinned() {
    let proxy = proxy();
    let mut client = proxy.connect();
    client.query("SET statement_timeout = 1; SET jit_above_cost = 0");
    for _ in 0..20 {
        let answer = client.query("SET work_mem = '7MB'");
        assert!(answer == "C(SET) Z(I)" || answer == "E(57014) Z(I)", "{answer}");
        assert_eq!(proxy.connect().value("SHOW work_mem"), "4MB");
    }
    eventually("the setting", || {
        client.send(&query("SHOW work_mem"));
        show(&client.until_ready()).contains("D(7MB)").then_some(())
    });
    drop(client);
    proxy.is_left_clean();
    assert_eq!(proxy.connect().value("SHOW statement_timeout"), "0");
}

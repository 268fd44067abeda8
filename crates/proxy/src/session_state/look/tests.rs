//! Texts, what they may leave behind, and how fast one finds out.

use proptest::prelude::*;

use super::*;

fn looked_at(sql: &str) -> (Look, Vec<String>) {
    let mut names = Vec::new();
    let look = look(sql.as_bytes(), &mut names);
    (look, names.into_iter().map(String::from).collect())
}

fn may(sql: &str) -> Kinds {
    looked_at(sql).0.may
}

#[test]
fn what_leaves_nothing_behind_costs_nothing() {
    for sql in [
        "SELECT 1",
        "UPDATE t SET x = 1 WHERE y = 'SET work_mem = 1'",
        "update t set x = 1; insert into t values (1) on conflict do update set x = 2",
        "BEGIN; SET LOCAL app.tenant = '7'; SELECT 1; COMMIT",
        "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "/* SET work_mem = 1 */ SET CONSTRAINTS ALL DEFERRED",
        "SELECT set_config('app.tenant', $1, true)",
        "SELECT pg_catalog.set_config($1, coalesce($2, ''), TRUE), set_config('a', 'b', 't')",
        "-- SET work_mem = 1\nSELECT 1",
        "SELECT $$; SET work_mem = 1$$, $x$ set_config( $x$",
        "SELECT 'it''s; SET work_mem = 1', E'it\\'s; LISTEN x'",
        "SELECT \"set\", \";SET x = 1\" FROM offset_table OFFSET 3",
        "CREATE FUNCTION f() RETURNS int LANGUAGE sql SET search_path = x AS 'SELECT 1'",
        "ALTER TABLE t SET (fillfactor = 70)",
        "SELECT temp, temporary FROM weather",
        "INSERT INTO temp VALUES (1)",
        "PREPARE TRANSACTION 'x'",
        "DECLARE c CURSOR FOR SELECT 1",
        "DECLARE c CURSOR WITHOUT HOLD FOR SELECT 1",
        "SELECT pg_advisory_xact_lock(1), pg_try_advisory_xact_lock_shared(2)",
        "SELECT $1, $2::int FROM t WHERE a$b = 1",
        "CLOSE c; DROP TABLE t; DEALLOCATE s",
        "",
        ";;",
    ] {
        assert_eq!(looked_at(sql).0.may, Kinds::NONE, "{sql}");
        assert!(looked_at(sql).1.is_empty(), "{sql}");
    }
}

#[test]
fn words_that_change_a_session_are_noticed() {
    use Kind::{
        AdvisoryLock, Backend, Cursor, Listen, NamelessSetting, Prepared, Settings, Temporary,
    };
    for (sql, kind) in [
        ("SET work_mem = '7MB'", Settings),
        ("set session work_mem to 7", Settings),
        ("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", Settings),
        ("SET SESSION AUTHORIZATION x", Settings),
        ("SELECT 1; /* a /* nested */ comment */ SET ROLE x", Settings),
        ("RESET work_mem", Settings),
        ("DISCARD ALL", Settings),
        ("SELECT set_config('work_mem', '7MB', false)", Settings),
        ("SELECT set_config('work_mem', '7MB', $1)", Settings),
        ("SELECT set_config($1, '7MB', false)", NamelessSetting),
        ("SELECT set_config('app.' || x, '7MB', false)", NamelessSetting),
        ("DO $$BEGIN EXECUTE format('SET %I = 1', x); END$$", NamelessSetting),
        ("DO $$BEGIN CREATE TEMP TABLE t (); END$$", Temporary),
        ("DO 'BEGIN PERFORM f(); END'", Listen),
        ("CREATE TEMP TABLE t (x int)", Temporary),
        ("create local temporary view v as select 1", Temporary),
        ("CREATE OR REPLACE TEMP VIEW v AS SELECT 1", Temporary),
        ("SELECT 1 INTO TEMP t", Temporary),
        ("EXPLAIN ANALYZE CREATE TEMP TABLE t AS SELECT 1", Temporary),
        ("CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 1'", Temporary),
        ("PREPARE s AS SELECT 1", Prepared),
        ("SELECT pg_advisory_lock(1)", AdvisoryLock),
        ("SELECT pg_catalog.pg_try_advisory_lock_shared(1, 2)", AdvisoryLock),
        ("SELECT \"pg_advisory_lock\"(1)", AdvisoryLock),
        ("LISTEN x", Listen),
        ("BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT 1", Cursor),
        ("LOAD 'auto_explain'", Backend),
        ("SELECT setseed(0.5)", Backend),
        // It depends on a setting where this string ends.
        ("SELECT 'a\\'; SET work_mem = 1; --'", Settings),
        ("SELECT U&\"set\\005fconfig\"('work_mem', '7MB', false)", Settings),
    ] {
        assert!(may(sql).contains(kind), "{sql}: {:?}", may(sql));
    }
}

#[test]
fn names_of_custom_settings_are_collected() {
    for (sql, expected) in [
        ("SET app.tenant = '7'", &["app.tenant"][..]),
        ("SET SESSION \"app\" . tenant TO 7; SET other.x = 1", &["app.tenant", "other.x"]),
        ("SELECT set_config('app.tenant', $1, false)", &["app.tenant"]),
        ("SELECT set_config('search_path', $1, false)", &[]),
        ("DO $$BEGIN IF true THEN SET app.x = 1; END IF; END$$", &["app.x"]),
        ("SET work_mem = 1", &[]),
    ] {
        let (look, names) = looked_at(sql);
        assert_eq!(names, expected, "{sql}");
        assert!(!look.may.contains(Kind::NamelessSetting), "{sql}");
    }
    assert!(
        may("SET app..x = 1").contains(Kind::NamelessSetting),
        "a name that cannot be asked for"
    );
}

#[test]
fn what_is_refused_is_sure() {
    for sql in [
        "CREATE TEMP TABLE t (x int) ON COMMIT DROP",
        "DO $$BEGIN PERFORM 1; END$$",
        "SET work_mem = 1",
        "SELECT 'x\\'",
    ] {
        assert_eq!(looked_at(sql).0.sure, Kinds::NONE, "{sql}");
    }
    assert!(!looked_at("CREATE TEMP TABLE t (x int)").0.sure.is_empty());
}

#[test]
fn a_deallocate_names_its_statement() {
    for (sql, name) in [
        ("DEALLOCATE s1", Some("s1")),
        (" deallocate /* it */ prepare \"S 1\" ; ", Some("S 1")),
        ("DEALLOCATE S1;", Some("s1")),
        ("DEALLOCATE prepare", Some("prepare")),
        ("DEALLOCATE ALL", None),
        ("DEALLOCATE s1; SELECT 1", None),
        ("SELECT 1", None),
        ("", None),
    ] {
        let expected = name.map(|name| name.as_bytes().to_vec());
        assert_eq!(deallocated_name(sql.as_bytes()), expected, "{sql}");
    }
}

#[test]
fn sets_are_counted_at_the_top_level() {
    let sql = "SET a = 1; SET LOCAL b = 1; DO $$BEGIN SET c = 1; END$$; UPDATE t SET d = 1";
    assert_eq!(looked_at(sql).0.sets, 2);
}

#[test]
fn bodies_in_bodies_have_a_bound() {
    let mut sql = String::from("SELECT 1");
    for depth in 0..1_000 {
        sql = format!("$a{depth}${sql}$a{depth}$");
    }
    assert!(may(&format!("DO {sql}")).contains(Kind::NamelessSetting));
}

#[test]
fn a_long_message_is_read_word_by_word() {
    let text = b"SELECT x, y FROM t WHERE pg_advisory_lock(7) OR pg_Temp.x AND settings";
    for cut in 0..text.len() {
        let mut scan = WordScan::default();
        let found = scan.read(&text[..cut]).union(scan.read(&text[cut..])).union(scan.end());
        assert_eq!(found, Kinds::of(Kind::AdvisoryLock).with(Kind::Temporary), "{cut}");
    }
}

proptest! {
    #[test]
    fn any_text_can_be_looked_at(text in prop::collection::vec(any::<u8>(), 0..200)) {
        look(&text, &mut Vec::new());
    }

    #[test]
    fn any_order_of_pieces_can_be_looked_at(
        pieces in prop::collection::vec(
            prop::sample::select(vec![
                "SET ", "LOCAL ", "'", "''", "\\'", "E'", "$$", "$a$", "/*", "*/", "--", "\n", "\"",
                "set_config(", "'a.b'", ", ", "true", ")", ";", "DO ", "x", ".", "U&'", "$1", "0",
            ]),
            0..30,
        ),
    ) {
        let text = pieces.concat();
        look(text.as_bytes(), &mut Vec::new());
    }
}

#[test]
fn a_fingerprint_is_that_of_the_text_without_constants() {
    let same =
        |one: &str, other: &str| fingerprint(one.as_bytes()) == fingerprint(other.as_bytes());
    for (one, other) in [
        ("SELECT 1", "select 'a'  -- x"),
        ("SELECT * FROM t WHERE id = 1", "SELECT * FROM t WHERE id = $1"),
        ("SELECT 1 WHERE x IN (1, 2, 3)", "SELECT 1 WHERE x IN (7)"),
        ("SELECT E'a\\'b', $$c$$", "SELECT 'x', 2, 3 /*tidegate_class='a'*/"),
    ] {
        assert!(same(one, other), "{one} {other}");
    }
    for (one, other) in [
        ("SELECT a", "SELECT b"),
        ("SELECT \"A\"", "SELECT \"a\""),
        ("SELECT f(1), g", "SELECT f(1) g"),
        ("SELECT a, 1", "SELECT a 1"),
    ] {
        assert!(!same(one, other), "{one} {other}");
    }
}

//! The transactions of the thrashing study on a real database file: they run, from several threads
//! too, the check holds afterwards, and finds what is planted.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tidegate_subject::connection::{check, load, run};
use tidegate_subject::sqlite::SqliteConnection;
use tidegate_workload::thrash::{Mix, Options, Placement, Share, Thrash};
use tidegate_workload::workload::{Depth, Workload};
use tidegate_workload::{Connection, Ending, Failure, Statement, Wants};

const SEED: u64 = 2_017;

const ROWS: u32 = 600;

fn open(path: &Path) -> SqliteConnection {
    let connection = SqliteConnection::open(path, Duration::from_secs(60)).unwrap();
    connection.batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF").unwrap();
    connection
}

/// All kinds of transactions; SF 2 % are 12 rows, ROSE 25 % the first 150.
fn options(placement: Placement, primary_key: bool) -> Options {
    Options {
        rows: ROWS,
        primary_key,
        sf: Share::from_percent(2.0).unwrap(),
        rose: Share::from_percent(25.0).unwrap(),
        placement,
        mix: Mix { reads: 3, updates: 3, changes: 3, joins: 1 },
    }
}

fn loaded(options: Options, path: &Path) -> (Thrash, SqliteConnection) {
    let study = Thrash::new(options).unwrap();
    let mut connection = open(path);
    let mut rows = 0;
    load(&mut connection, &study, &AtomicBool::new(false), &mut |loaded| rows = loaded).unwrap();
    assert_eq!(rows, u64::from(ROWS) * 2);
    (study, connection)
}

fn violations(connection: &mut SqliteConnection, study: &Thrash, depth: Depth) -> Vec<String> {
    let conditions = check(connection, study, depth).unwrap();
    assert_eq!(conditions.len(), if depth == Depth::Full { 6 } else { 4 });
    let found = conditions.into_iter().filter_map(|condition| {
        condition.violation.map(|violation| format!("{}: {violation}", condition.name))
    });
    found.collect()
}

fn number(connection: &mut SqliteConnection, sql: &str) -> i64 {
    let sql = Statement::written(sql.to_owned());
    connection.run(&sql, &[], Wants::Rows).unwrap().rows.int(0, 0).unwrap()
}

/// Runs transactions of a client, and counts them by kind.
fn work(
    connection: &mut SqliteConnection,
    study: &Thrash,
    client: usize,
    count: usize,
) -> [u32; 5] {
    let mut client = study.client(client, 4, SEED);
    let mut done = [0; 5];
    for _ in 0..count {
        let transaction = client.next();
        assert!(transaction.is_single());
        assert_eq!(run(connection, transaction.clone()), Ok(Ending::Commit), "{transaction:?}");
        done[transaction.kind()] += 1;
    }
    done
}

#[test]
fn every_placement_runs_with_and_without_a_key() {
    println!("seed {SEED}");
    for placement in [Placement::Random, Placement::Rotation, Placement::Discrete] {
        for primary_key in [true, false] {
            let directory = tempfile::tempdir().unwrap();
            let (study, mut connection) =
                loaded(options(placement, primary_key), &directory.path().join("thrash"));
            let key = "SELECT pk FROM pragma_table_info('thrash_2') WHERE name = 'id1'";
            assert_eq!(number(&mut connection, key), i64::from(primary_key));
            let done = work(&mut connection, &study, 0, 1_000);
            // 300, 300, 150 twice, 100; six standard deviations are 87, 87, 68 and 57.
            for (kind, expected, most) in [(0, 300, 87), (1, 300, 87), (2, 150, 68), (4, 100, 57)] {
                assert!(u32::abs_diff(done[kind], expected) < most, "{done:?}");
            }
            assert_eq!(violations(&mut connection, &study, Depth::Full), [""; 0]);
        }
    }
}

#[test]
fn an_update_changes_its_rows_and_no_others() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { mix: Mix::UPDATES, ..options(Placement::Discrete, true) };
    let (study, mut connection) = loaded(options, &directory.path().join("thrash"));
    connection.batch("CREATE TABLE before AS SELECT * FROM thrash_1").unwrap();
    connection.batch("INSERT INTO before SELECT * FROM thrash_2").unwrap();
    let transaction = study.client(0, 1, SEED).next();
    assert_eq!(run(&mut connection, transaction), Ok(Ending::Commit));
    let changed = "SELECT COUNT(*) FROM (SELECT * FROM thrash_1 UNION ALL SELECT * FROM thrash_2 \
                   EXCEPT SELECT * FROM before)";
    assert_eq!(number(&mut connection, changed), 12);
}

#[test]
fn threads_leave_the_tables_whole() {
    println!("seed {SEED}");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("thrash");
    let (study, mut connection) = loaded(options(Placement::Random, true), &path);
    let done = Mutex::new([0; 5]);
    std::thread::scope(|scope| {
        for client in 0..4 {
            let (study, done, path) = (&study, &done, &path);
            scope.spawn(move || {
                let mine = work(&mut open(path), study, client, 1_000);
                let mut done = done.lock().unwrap();
                done.iter_mut().zip(mine).for_each(|(sum, count)| *sum += count);
            });
        }
    });
    assert_eq!(done.lock().unwrap().iter().sum::<u32>(), 4_000);
    assert_eq!(violations(&mut connection, &study, Depth::Full), [""; 0]);
    // A row above the table at most for each client and table; the next run takes them over.
    let above = number(&mut connection, "SELECT COUNT(*) FROM thrash_1 WHERE id1 >= 600");
    assert!(above <= 4, "{above}");
    work(&mut connection, &study, 3, 200);
    assert_eq!(violations(&mut connection, &study, Depth::Full), [""; 0]);
}

#[test]
fn planted_violations_are_found_by_name() {
    for (plant, expected) in [
        (
            "DELETE FROM thrash_2 WHERE id1 = 0",
            vec!["thrash_2: number of rows: 599 rows below it instead of 600"],
        ),
        (
            "UPDATE thrash_1 SET id1 = 5 WHERE id1 = 4",
            vec![
                "thrash_1: sum of id1: 179701 as sum of id1 instead of 179700",
                "thrash_1: no id1 twice: 599 values of id1 instead of 600",
            ],
        ),
        (
            "INSERT INTO thrash_1 SELECT * FROM thrash_2 WHERE id1 = 7",
            vec![
                "thrash_1: number of rows: 601 rows below it instead of 600",
                "thrash_1: sum of id1: 179707 as sum of id1 instead of 179700",
                "thrash_1: no id1 twice: 600 values of id1 instead of 601",
            ],
        ),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let (study, mut connection) =
            loaded(options(Placement::Random, false), &directory.path().join("thrash"));
        connection.batch(plant).unwrap();
        assert_eq!(violations(&mut connection, &study, Depth::Full), expected, "{plant}");
        let quick = violations(&mut connection, &study, Depth::Quick);
        assert_eq!(quick, expected[..quick.len()], "{plant}");
        assert!(!quick.is_empty(), "{plant}");
    }
}

#[test]
fn a_read_that_misses_a_row_fails() {
    let directory = tempfile::tempdir().unwrap();
    let everything =
        Options { sf: Share::ALL, rose: Share::ALL, mix: Mix::READS, ..Options::read() };
    let options = Options { rows: ROWS, ..everything };
    let (study, mut connection) = loaded(options, &directory.path().join("thrash"));
    let mut client = study.client(0, 1, SEED);
    assert_eq!(run(&mut connection, client.next()), Ok(Ending::Commit));
    connection.batch("DELETE FROM thrash_1 WHERE id1 = 9; DELETE FROM thrash_2").unwrap();
    assert!(matches!(run(&mut connection, client.next()), Err(Failure::Unexpected(_))));
}

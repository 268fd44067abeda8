//! A private SQLite database: settings, two writers, a straggler, nothing left behind.

use std::time::Duration;

use tidegate_subject::connection::Transactional;
use tidegate_subject::database::{Database, DatabaseError};
use tidegate_subject::sqlite::{JournalMode, Options, Sqlite, Synchronous};
use tidegate_workload::workload::Depth;
use tidegate_workload::{Conflict, Connection, Failure, Statement, Wants};

use super::bank::{Bank, assert_works};
use super::{assert_consistent, load};

fn start(busy_timeout: Duration) -> Sqlite {
    let synchronous = Synchronous::Off;
    Sqlite::start(Options { synchronous, busy_timeout, ..Options::default() }).unwrap()
}

#[test]
fn settings_are_in_force_and_nothing_is_left() {
    for (journal_mode, name) in [(JournalMode::Wal, "wal"), (JournalMode::Delete, "delete")] {
        let sqlite = Sqlite::start(Options {
            journal_mode,
            synchronous: Synchronous::Normal,
            cache_bytes: 1 << 20,
            page_bytes: 8_192,
            busy_timeout: Duration::from_millis(1_234),
        })
        .unwrap();
        let settings = sqlite.settings().unwrap();
        let expected = [
            ("journal_mode", name),
            ("synchronous", "1"),
            ("cache_size", "-1024"),
            ("page_size", "8192"),
            ("busy_timeout", "1234"),
        ];
        let settings: Vec<_> =
            settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(settings, expected);
        sqlite.level(&[]).unwrap();
        assert!(sqlite.version().unwrap().starts_with("3."));
        let directory = sqlite.directory().to_owned();
        assert!(directory.exists());
        sqlite.stop().unwrap();
        assert!(!directory.exists());
    }
    for page_bytes in [0, 256, 5_000, 131_072] {
        let error = Sqlite::start(Options { page_bytes, ..Options::default() }).unwrap_err();
        assert!(matches!(error, DatabaseError::Setting(_)), "{error}");
    }
}

#[test]
fn clients_at_once_write_and_what_they_wrote_is_consistent() {
    let sqlite = start(Duration::from_secs(60));
    assert_works(&sqlite, Bank::WIDE, 150);
    sqlite.level(&[]).unwrap();
}

#[test]
fn who_waits_too_long_for_its_turn_has_a_conflict() {
    let sqlite = start(Duration::from_millis(20));
    let mut writer = sqlite.connect().unwrap();
    writer.begin().unwrap();
    let mut other = sqlite.connect().unwrap();
    let conflict = Err(Failure::Conflict(Conflict::LockTimeout));
    assert_eq!(other.begin(), conflict);
    other.rollback().unwrap();
    writer.commit().unwrap();
    other.begin().unwrap();
    other.commit().unwrap();
}

#[test]
fn a_check_waits_for_no_writer() {
    let sqlite = start(Duration::from_millis(20));
    let mut setup = sqlite.connect().unwrap();
    load(&mut setup, &Bank::WIDE);
    let mut straggler = sqlite.connect().unwrap();
    straggler.begin().unwrap();
    assert_consistent(&mut setup, &Bank::WIDE, Depth::Full);
    straggler.commit().unwrap();
}

#[test]
fn a_straggler_is_interrupted() {
    const ENDLESS: Statement = Statement::new(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n",
    );
    let sqlite = start(Duration::from_secs(1));
    let mut connection = sqlite.connect().unwrap();
    let interrupt = connection.interrupter().unwrap();
    let running = std::thread::spawn(move || connection.run(&ENDLESS, &[], Wants::Rows));
    // Until the statement is under way, an interrupt finds nothing to stop.
    while !running.is_finished() {
        interrupt();
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(running.join().unwrap(), Err(Failure::Stopped));
}

#[test]
fn a_database_that_is_gone_is_not_made_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("named.sqlite");
    let sqlite = Sqlite::at(path.clone(), Options::default()).unwrap();
    let connector = sqlite.connector();
    let mut straggler = connector.connect().unwrap();
    straggler.begin().unwrap();
    sqlite.stop().unwrap();
    assert!(connector.connect().is_err());
    drop(straggler);
    assert!(!path.exists());
}

//! Guests on servers that they did not start: what they make is theirs, what others made stays, and
//! nothing is left.

use std::path::Path;
use std::time::Duration;

use tidegate_subject::client::BlockingClient;
use tidegate_subject::connection::{self, Transactional};
use tidegate_subject::database::Database;
use tidegate_subject::detection::Whereabouts;
use tidegate_subject::firebird::{self, Firebird};
use tidegate_subject::guest::{GuestError, MARK, NAME};
use tidegate_subject::isolation::Isolation;
use tidegate_subject::postgres::{Authentication, Options, Postgres};
use tidegate_subject::server::free_port;
use tidegate_subject::sqlite::{self, Sqlite, SqliteConnection};
use tidegate_subject::url::Url;
use tidegate_subject::{mariadb, postgres};
use tidegate_workload::workload::{Depth, Workload};
use tidegate_workload::{Connection, Ending, Failure, Statement, Wants};

use super::bank::Bank;
use super::common::start;
use super::mariadb::server as mariadb_server;
use super::{assert_consistent, load};

/// Loads a workload, runs its transactions, and checks its tables.
fn works(connection: &mut dyn Transactional) {
    load(connection, &Bank::WIDE);
    let transaction = Bank::WIDE.client(0, 1, 1).next();
    assert_eq!(connection::run(connection, transaction), Ok(Ending::Commit));
    assert_consistent(connection, &Bank::WIDE, Depth::Full);
}

/// Every guest is refused for the reason that stands beside its URL, which says nothing secret.
fn assert_refused<G>(
    refusals: impl IntoIterator<Item = (Url, &'static str)>,
    make: impl Fn(&Url) -> Result<G, GuestError>,
) {
    for (url, expected) in refusals {
        let error = make(&url).err().unwrap().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(!["secret", "s3cret", "wrong"].iter().any(|word| error.contains(word)), "{error}");
    }
}

fn postgresql() -> Option<Postgres> {
    let authentication = Authentication::ScramSha256("it's @ secret:/".to_owned());
    start(Options { authentication, ..Options::default() })
}

#[test]
fn on_postgresql_a_guest_makes_a_database_and_drops_it() {
    let Some(server) = postgresql() else { return };
    let url: Url = server.url().parse().unwrap();
    let databases =
        || server.connect().unwrap().query("SELECT datname FROM pg_database ORDER BY 1");
    let before = databases().unwrap();
    let guest = postgres::Guest::make(&url, Some(Isolation::RepeatableRead)).unwrap();
    works(&mut guest.connect().unwrap());
    let here = Whereabouts::Here(Some(server.process_id()));
    assert_eq!(guest.existing(), Some(here));
    let settings = guest.settings().unwrap();
    let level = ("default_transaction_isolation".to_owned(), "repeatable read".to_owned());
    assert!(settings.contains(&level) && settings.len() > 15, "{settings:?}");
    assert_eq!(guest.version().unwrap(), server.version().unwrap());

    // Sessions of clients are ended, ours and those of others elsewhere are not.
    let mut client = guest.connect().unwrap();
    let mut other = server.connect().unwrap();
    while guest.end_others(Duration::ZERO).unwrap() > 0 {}
    assert!(client.query("SELECT 1").is_err());
    assert!(other.query("SELECT 1").is_ok());
    guest.level(&[]).unwrap();

    let second = postgres::Guest::make(&url, None).unwrap_err().to_string();
    assert!(second.contains("another laboratory is at work"), "{second}");
    let _still_there = guest.connect().unwrap();
    guest.leave().unwrap();
    assert_eq!(databases().unwrap(), before);
}

/// A marked database with nobody in it would be dropped by whoever comes.
#[test]
fn on_postgresql_whoever_sees_the_mark_sees_that_somebody_is_there() {
    let Some(server) = postgresql() else { return };
    let url: Url = server.url().parse().unwrap();
    let unattended = format!(
        "SELECT 1 FROM pg_database d WHERE datname = '{NAME}' \
         AND shobj_description(oid, 'pg_database') = '{MARK}' AND NOT EXISTS \
         (SELECT 1 FROM pg_stat_activity a WHERE a.datname = d.datname \
          AND application_name = 'tidegate lab')"
    );
    let mut looker = server.connect().unwrap();
    for _ in 0..5 {
        let making = std::thread::spawn({
            let url = url.clone();
            move || postgres::Guest::make(&url, None).unwrap()
        });
        while !making.is_finished() {
            assert!(looker.query(&unattended).unwrap().is_empty(), "nobody is in it");
        }
        making.join().unwrap().leave().unwrap();
    }
}

#[test]
fn on_postgresql_what_is_not_ours_stays_and_what_was_left_behind_goes() {
    let Some(server) = postgresql() else { return };
    let url: Url = server.url().parse().unwrap();
    let mut client = server.connect().unwrap();
    client.query(&format!("CREATE DATABASE {NAME}")).unwrap();
    let theirs = Url { database: NAME.to_owned(), ..url.clone() }.with_password();
    BlockingClient::connect(&theirs).unwrap().query("CREATE TABLE kept (a integer)").unwrap();
    let refused = postgres::Guest::make(&url, None).unwrap_err().to_string();
    assert!(refused.contains("no laboratory made"), "{refused}");
    let mut kept = BlockingClient::connect(&theirs).unwrap();
    assert!(kept.query("SELECT a FROM kept").unwrap().is_empty());
    drop(kept);

    client.query(&format!("COMMENT ON DATABASE {NAME} IS '{MARK}'")).unwrap();
    let guest = postgres::Guest::make(&url, None).unwrap();
    assert!(guest.connect().unwrap().query("SELECT a FROM kept").is_err());
    drop(guest);
    let left = client.query(&format!("SELECT 1 FROM pg_database WHERE datname = '{NAME}'"));
    assert!(left.unwrap().is_empty());

    // Somebody who may not make databases is told what is missing.
    client.query("CREATE ROLE ann LOGIN PASSWORD 'x'").unwrap();
    let ann = Url { user: "ann".into(), password: Some("x".into()), ..url.clone() };
    let refused = postgres::Guest::make(&ann, None).unwrap_err().to_string();
    assert!(refused.contains("permission denied") && refused.contains("CREATEDB"), "{refused}");
    client.query("ALTER ROLE ann CREATEDB").unwrap();
    let guest = postgres::Guest::make(&ann, None).unwrap();
    guest.level(&[]).unwrap();
    guest.leave().unwrap();
}

#[test]
fn on_postgresql_a_login_that_fails_says_why() {
    let Some(server) = postgresql() else { return };
    let url: Url = server.url().parse().unwrap();
    let nobody = free_port().unwrap();
    let refusals = [
        (Url { password: Some("wrong".into()), ..url.clone() }, "authentication failed"),
        (Url { password: None, ..url.clone() }, "nor in PGPASSWORD"),
        (Url { port: nobody, ..url.clone() }, "onnection refused"),
        (Url { database: "shop".into(), ..url.clone() }, "\"shop\" does not exist"),
    ];
    assert_refused(refusals, |url| postgres::Guest::make(url, None));
}

#[test]
fn a_commit_after_a_failure_is_no_commit() {
    let Some(server) = postgresql() else { return };
    let mut client = server.connect().unwrap();
    client.query("CREATE TABLE t (a integer)").unwrap();
    let run = |client: &mut BlockingClient, sql: &'static str| {
        client.run(&Statement::new(sql), &[], Wants::Count).map(|reply| reply.count)
    };
    client.begin().unwrap();
    run(&mut client, "INSERT INTO t VALUES (1)").unwrap();
    assert!(run(&mut client, "SELECT 1 / 0").is_err());
    let Err(Failure::Refused { code, .. }) = client.commit() else { panic!("it was a commit") };
    assert_eq!(code, "25P02");
    client.begin().unwrap();
    assert_eq!(run(&mut client, "INSERT INTO t VALUES (2)"), Ok(1));
    client.commit().unwrap();
    assert_eq!(client.value("SELECT string_agg(a::text, ' ') FROM t").unwrap(), "2");

    client.query("SET statement_timeout = 20").unwrap();
    assert_eq!(run(&mut client, "SELECT pg_sleep(60)"), Err(Failure::Stopped));
}

#[test]
fn on_mariadb_a_guest_makes_a_database_and_drops_it() {
    let Some(server) = mariadb_server(&[]) else { return };
    let mut root = server.connect().unwrap();
    root.query("CREATE USER ann@'%' IDENTIFIED BY 's3cret'").unwrap();
    root.query(&format!("GRANT ALL ON {NAME}.* TO ann@'%'")).unwrap();
    let url: Url = server.url().parse().unwrap();
    let nobody = Url { database: String::new(), ..url.clone() };
    let ann = Url { user: "ann".into(), password: Some("s3cret".into()), ..nobody.clone() };

    let guest = mariadb::Guest::make(&ann, Some(Isolation::Serializable)).unwrap();
    works(&mut guest.connect().unwrap());
    assert_eq!(guest.existing(), Some(Whereabouts::Here(Some(server.process_id()))));
    let settings = guest.settings().unwrap();
    let level = ("tx_isolation".to_owned(), "SERIALIZABLE".to_owned());
    assert!(settings.contains(&level) && settings.len() > 12, "{settings:?}");
    assert_eq!(guest.version().unwrap(), server.version().unwrap());
    guest.level(&[]).unwrap();
    let mut client = guest.connect().unwrap();
    while guest.end_others(Duration::ZERO).unwrap() > 0 {}
    assert!(client.query("SELECT 1").is_err());
    guest.leave().unwrap();
    let left = format!("SHOW DATABASES LIKE '{NAME}'");
    assert!(root.query(&left).unwrap().is_empty());

    // What somebody else made stays; what a guest left behind goes.
    root.query(&format!("CREATE DATABASE {NAME}")).unwrap();
    root.query(&format!("CREATE TABLE {NAME}.kept (a integer)")).unwrap();
    let refused = mariadb::Guest::make(&ann, None).unwrap_err().to_string();
    assert!(refused.contains("no laboratory made"), "{refused}");
    assert!(root.query(&format!("SELECT a FROM {NAME}.kept")).is_ok());
    root.query(&format!("ALTER DATABASE {NAME} COMMENT '{MARK}'")).unwrap();
    drop(mariadb::Guest::make(&ann, None).unwrap());
    assert!(root.query(&left).unwrap().is_empty());

    root.query("CREATE USER bob@'%' IDENTIFIED BY 's3cret'").unwrap();
    let port = free_port().unwrap();
    let refusals = [
        (Url { password: Some("wrong".into()), ..ann.clone() }, "Access denied for user 'ann'"),
        (Url { password: None, ..ann.clone() }, "nor in MYSQL_PWD"),
        (Url { port, ..ann.clone() }, "onnection refused"),
        (Url { database: "shop".into(), ..nobody }, "Unknown database 'shop'"),
        (Url { user: "bob".into(), ..ann.clone() }, "GRANT ALL ON tidegate_lab"),
    ];
    assert_refused(refusals, |url| mariadb::Guest::make(url, None));
    assert!(root.query(&left).unwrap().is_empty());
}

/// A server that wants passwords, or none where Firebird is not installed.
fn firebird(methods: &'static str, wire_crypt: &'static str) -> Option<Firebird> {
    let password = "it's secret".to_owned();
    let authentication = firebird::Authentication::Password { password, methods, wire_crypt };
    start(firebird::Options { authentication, ..firebird::Options::default() })
}

fn firebird_url(server: &Firebird, password: &str) -> Url {
    let path = server.directory().join("guest.fdb");
    let url = format!("firebird://sysdba@127.0.0.1:{}{}", server.port(), path.display());
    let password = Some(password.to_owned()).filter(|password| !password.is_empty());
    Url { password, ..url.parse().unwrap() }
}

#[test]
fn firebird_lets_us_in_by_every_method_and_encryption() {
    for (methods, wire_crypt) in [
        ("Srp", "Required"),
        ("Srp256", "Required"),
        ("Srp", "Disabled"),
        ("Srp256, Srp", "Enabled"),
    ] {
        let Some(server) = firebird(methods, wire_crypt) else { return };
        let url = firebird_url(&server, "it's secret");
        let guest = firebird::Guest::make(&url, firebird::Isolation::default()).unwrap();
        works(&mut guest.connect().unwrap());
        guest.leave().unwrap();
        assert!(!Path::new(&url.database).exists());
        server.stop().unwrap();
    }
}

#[test]
fn on_firebird_a_guest_leaves_whoever_is_in_its_database() {
    let Some(server) = firebird("Srp", "Required") else { return };
    let url = firebird_url(&server, "it's secret");
    let guest = firebird::Guest::make(&url, firebird::Isolation::default()).unwrap();
    let connector = guest.connector();
    let mut ended = connector.connect().unwrap();
    ended.begin().unwrap();
    let mut other = server.connect().unwrap();
    while guest.end_connections().unwrap() > 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(matches!(ended.commit(), Err(Failure::Lost(_))));
    // Those in another database of the server are not ours to end.
    other.begin().unwrap();
    let mut straggler = connector.connect().unwrap();
    straggler.begin().unwrap();
    assert_eq!(guest.end_others(Duration::ZERO).unwrap(), 1);
    guest.leave().unwrap();
    assert!(!Path::new(&url.database).exists());
    assert!(matches!(straggler.commit(), Err(Failure::Lost(_))));
    assert!(connector.connect().is_err());
    other.commit().unwrap();
}

#[test]
fn on_firebird_what_is_not_ours_stays_and_what_was_left_behind_goes() {
    let Some(server) = firebird("Srp", "Required") else { return };
    let isolation = firebird::Isolation::ReadCommitted;
    let url = firebird_url(&server, "it's secret");
    let guest = firebird::Guest::make(&url, isolation).unwrap();
    assert_eq!(guest.existing(), Some(Whereabouts::Here(Some(server.process_id()))));
    assert!(guest.version().unwrap().starts_with("3."));
    assert!(guest.settings().unwrap().iter().any(|(name, _)| name == "PageSize"));
    guest.level(&[]).unwrap();
    drop(guest);
    assert!(!Path::new(&url.database).exists());

    // The server's own database has no mark.
    let theirs = server.directory().join("data.fdb").to_str().unwrap().to_owned();
    let refused = Url { database: theirs.clone(), ..url.clone() };
    let refused = firebird::Guest::make(&refused, isolation).unwrap_err().to_string();
    assert!(refused.contains("no laboratory made"), "{refused}");
    let mut connection = server.connect().unwrap();
    let comment = Statement::written(format!("COMMENT ON DATABASE IS '{MARK}'"));
    connection.run(&comment, &[], Wants::Count).unwrap();
    let in_use = Url { database: theirs, ..url.clone() };
    let in_use = firebird::Guest::make(&in_use, isolation).unwrap_err().to_string();
    assert!(in_use.contains("another laboratory is at work"), "{in_use}");
    connection.run(&Statement::new("SELECT 1 FROM rdb$database"), &[], Wants::Rows).unwrap();

    let port = free_port().unwrap();
    let nowhere = format!("{}/none/guest.fdb", server.directory().display());
    let refusals = [
        (firebird_url(&server, "wrong"), "user name or password not accepted"),
        (firebird_url(&server, ""), "nor in ISC_PASSWORD"),
        (Url { port, ..url.clone() }, "onnection refused"),
        (Url { database: nowhere, ..url.clone() }, "cannot make or drop"),
    ];
    assert_refused(refusals, |url| firebird::Guest::make(url, isolation));
}

#[test]
fn a_sqlite_file_is_made_where_it_is_told_and_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let file = Sqlite::at(path.clone(), sqlite::Options::default()).unwrap();
    works(&mut file.connect().unwrap());
    // As after a kill: it is there, and nobody removes it.
    std::mem::forget(file);
    assert!(path.exists());
    let file = Sqlite::at(path.clone(), sqlite::Options::default()).unwrap();
    works(&mut file.connect().unwrap());
    file.stop().unwrap();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);

    let theirs = SqliteConnection::open(&path, Duration::from_secs(1)).unwrap();
    theirs.batch("CREATE TABLE kept (a)").unwrap();
    let refused = Sqlite::at(path, sqlite::Options::default()).unwrap_err().to_string();
    assert!(refused.contains("no laboratory made it"), "{refused}");
    theirs.batch("SELECT a FROM kept").unwrap();
}

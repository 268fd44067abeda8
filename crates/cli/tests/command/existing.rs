//! `tidegate lab` on servers that somebody else runs, and on subjects that are not to be had.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use tidegate_subject::database::DatabaseError;
use tidegate_subject::firebird::{self, Firebird};
use tidegate_subject::mariadb::{self, MariaDb};
use tidegate_subject::postgres::{self, Authentication, Postgres};
use tidegate_subject::server::free_port;
use tidegate_subject::sqlite::SqliteConnection;
use tidegate_subject::url::Url;

use crate::support::{PATIENCE, number, server, text, tidegate};

/// A run of two executions.
const FILE: &str = r#"
name = "guest"
scenario = "characterise"
subjects = ["SUBJECT"]
mpl = [1, 3]
ctl = "300ms"
warmup = "50ms"
connect_at_once = 3

[workload]
kind = "tpcb"

[subject.SUBJECT]
url = "URL"
"#;

/// What a command ended with, in a directory of its own.
struct Ended {
    directory: tempfile::TempDir,
    code: Option<i32>,
    out: String,
    error: String,
}

fn lab(file: &str, arguments: &[&str]) -> Ended {
    let directory = tempfile::tempdir().unwrap();
    // Where we are root, servers run as another user, who must get to their directories.
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(directory.path().join("e.toml"), file).unwrap();
    let output = tidegate(&["--log-level", "off", "lab", "run", "e.toml"])
        .args(arguments)
        .current_dir(directory.path())
        .env("TMPDIR", directory.path())
        .env_remove("PGPASSWORD")
        .env_remove("MYSQL_PWD")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    Ended { directory, code: output.status.code(), out, error }
}

fn at(subject: &str, url: &str) -> String {
    FILE.replace("SUBJECT", subject).replace("URL", url)
}

impl Ended {
    /// That both executions were made, and the password is nowhere.
    fn was_done(&self, secret: &str) {
        assert_eq!(self.code, Some(0), "{}", self.error);
        assert!(self.out.contains("2 of 2 executions done"), "{}", self.out);
        assert!(!self.out.contains("left out"), "{}", self.out);
        assert!(!format!("{}{}", self.out, self.error).contains(secret));
        for entry in fs::read_dir(self.directory.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() && !path.ends_with("e.toml") {
                let bytes = fs::read(&path).unwrap();
                let is_in = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
                assert!(!is_in, "the password is in {}", path.display());
            }
        }
    }

    /// That it was refused for this reason before anything was there.
    fn was_refused(&self, expected: &str) {
        assert_eq!(self.code, Some(2), "{}", self.error);
        assert!(self.error.contains(expected), "{expected}: {}", self.error);
        assert!(!self.error.contains("s3cret"), "{}", self.error);
        let files = fs::read_dir(self.directory.path()).unwrap();
        assert_eq!(files.count(), 1, "something was written: {}", self.error);
    }
}

fn guest() -> Option<Postgres> {
    let authentication = Authentication::ScramSha256("s3cret".to_owned());
    server(postgres::Options { authentication, ..Default::default() })
}

#[test]
fn postgresql_by_its_url_is_measured_and_left_as_it_was() {
    let Some(server) = guest() else { return };
    let mut client = server.connect().unwrap();
    client.query("CREATE TABLE pgbench_accounts (kept integer)").unwrap();
    let databases = "SELECT string_agg(datname, ' ' ORDER BY datname) FROM pg_database";
    let before = client.value(databases).unwrap();

    lab(&at("postgres", &server.url()), &[]).was_done("s3cret");
    let given = format!("postgres-through-tidegate={}", server.url());
    let file = at("mariadb", "mysql://ann@nowhere/");
    let through = lab(&file, &["--subject", &given]);
    through.was_done("s3cret");

    assert_eq!(client.value(databases).unwrap(), before);
    assert_eq!(client.value("SELECT COUNT(kept) FROM pgbench_accounts").unwrap(), "0");

    // The store has where it was, not with what password; that comes from the environment.
    let list = tidegate(&["lab", "list"]).current_dir(through.directory.path()).output().unwrap();
    let place = format!("postgres@127.0.0.1:{}/postgres", server.port());
    assert!(text(&list.stdout).contains(&place), "{}", text(&list.stdout));
    let again = tidegate(&["lab", "resume", "1"])
        .current_dir(through.directory.path())
        .env("PGPASSWORD", "s3cret")
        .output()
        .unwrap();
    assert!(text(&again.stdout).contains("2 of 2 executions done"), "{}", text(&again.stderr));
}

#[test]
fn what_is_not_to_be_had_is_refused_by_its_line_before_anything_is_there() {
    let Some(server) = guest() else { return };
    let url: Url = server.url().parse().unwrap();
    let nobody = free_port().unwrap();
    for (url, expected) in [
        (Url { password: Some("wrong".into()), ..url.clone() }, "authentication failed"),
        (Url { password: None, ..url.clone() }, "PGPASSWORD"),
        (Url { port: nobody, ..url.clone() }, "refused"),
        (Url { database: "shop".into(), ..url.clone() }, "\"shop\" does not exist"),
    ] {
        let ended = lab(&at("postgres", &url.with_password()), &[]);
        ended.was_refused(expected);
        ended
            .was_refused("e.toml: line 14: `subject.postgres.url`: postgres: cannot use postgres:");
        let given = format!("postgres={}", url.with_password());
        let ended = lab(&at("mariadb", "mysql://ann@nowhere/"), &["--subject", &given]);
        ended.was_refused("e.toml: --subject postgres: cannot use postgres:");
    }
    let mut client = server.connect().unwrap();
    client.query("CREATE DATABASE tidegate_lab").unwrap();
    let ended = lab(&at("postgres", &server.url()), &[]);
    ended.was_refused("has a database tidegate_lab already that no laboratory made");
    let left = client.value("SELECT COUNT(*) FROM pg_database WHERE datname = 'tidegate_lab'");
    assert_eq!(left.unwrap(), "1");

    let file = at("postgres", &server.url());
    let processors = file.replace("ctl =", "processors = [1]\nctl =");
    lab(&processors, &[]).was_refused("line 6: `processors`: postgres is an existing server");
    for given in ["postgres=mysql://a:s3cret@h/", "oracle=mysql://a:s3cret@h/", "postgres=s3cret"] {
        lab(&file, &["--subject", given]).was_refused("");
    }
    lab(&file.replace("url =", "urll ="), &[]).was_refused("line 14");
}

#[test]
fn settings_that_cannot_be_are_refused_before_anything_is_there() {
    let postgres = Postgres::find().map(drop).map_err(|error| error.to_string());
    let mariadb = MariaDb::find().map(drop).map_err(|error| error.to_string());
    let firebird = Firebird::find().map(drop).map_err(|error| error.to_string());
    for (found, subject, settings, expected) in [
        (&postgres, "postgres", "no_such = \"1\"", "unrecognized configuration parameter"),
        (&postgres, "postgres", "shared_buffers = \"lots\"", "\"lots\""),
        (&mariadb, "mariadb", "no_such = \"1\"", "no_such"),
        (&firebird, "firebird", "NoSuch = \"1\"", "NoSuch"),
    ] {
        if let Err(error) = found {
            println!("skipped: {error}");
            continue;
        }
        let file = at(subject, "").replace("url = \"\"", &format!("settings = {{ {settings} }}"));
        // The command line names the subject, but the settings are the file's.
        for arguments in [&[][..], &["--subject", subject]] {
            let ended = lab(&file, arguments);
            ended.was_refused(&format!("e.toml: line 14: `subject.{subject}.settings`: "));
            ended.was_refused(expected);
        }
    }
}

#[test]
fn tables_are_checked_as_deeply_as_the_file_says() {
    for (line, expected) in [("", 4), ("check = \"full\"\n", 6)] {
        let file = at("sqlite", "")
            .replace("url = \"\"\n", "")
            .replace("kind = \"tpcb\"", "kind = \"thrash\"\nrows = 300\nsf = 1\nreads = 1")
            .replace("ctl =", &format!("{line}ctl ="));
        let ended = lab(&file, &[]);
        ended.was_done("s3cret");
        let store = ended.directory.path().join("results.db");
        let mut store = SqliteConnection::open(&store, PATIENCE).unwrap();
        assert_eq!(number(&mut store, "SELECT COUNT(*) FROM consistency"), Some(expected));
    }
}

#[test]
fn a_subject_whose_programs_are_missing_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = at("mariadb", "").replace("[subject.mariadb]\nurl = \"\"\n", "");
    fs::write(directory.path().join("e.toml"), file).unwrap();
    let output = tidegate(&["--log-level", "off", "lab", "run", "e.toml"])
        .current_dir(directory.path())
        .env("MARIADB_BIN_DIR", directory.path())
        .output()
        .unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("e.toml: line 4: `subjects`: mariadb: "), "{error}");
    assert!(error.contains("install it"), "{error}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn mariadb_by_its_url_is_measured_and_left_as_it_was() {
    if let Err(error @ DatabaseError::NotInstalled(_)) = MariaDb::find() {
        return println!("skipped: {error}");
    }
    let server = MariaDb::start(mariadb::Options::default()).unwrap();
    let mut root = server.connect().unwrap();
    root.query("CREATE USER ann@'%' IDENTIFIED BY 's3cret'").unwrap();
    root.query("GRANT ALL ON tidegate_lab.* TO ann@'%'").unwrap();
    let before = root.query("SHOW DATABASES").unwrap();
    let url = format!("mysql://ann:s3cret@127.0.0.1:{}/", server.port());
    lab(&at("mariadb", &url), &[]).was_done("s3cret");
    assert_eq!(root.query("SHOW DATABASES").unwrap(), before);
}

#[test]
fn firebird_by_its_url_is_measured_and_left_as_it_was() {
    if let Err(error) = Firebird::find() {
        return println!("skipped: {error}");
    }
    let authentication = firebird::Authentication::Password {
        password: "s3cret".to_owned(),
        methods: "Srp",
        wire_crypt: "Required",
    };
    let options = firebird::Options { authentication, ..firebird::Options::default() };
    let server = Firebird::start(options).unwrap();
    let path = server.directory().join("guest.fdb");
    let url = |password: &str| {
        let (port, path) = (server.port(), path.display());
        format!("firebird://SYSDBA:{password}@127.0.0.1:{port}{path}")
    };
    lab(&at("firebird", &url("s3cret")), &[]).was_done("s3cret");
    lab(&at("firebird", &url("wrong")), &[]).was_refused("password not accepted");
    assert!(!path.exists());
}

#[test]
fn sqlite_is_where_it_is_told_to_be() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let given = format!("sqlite=sqlite:{}", path.display());
    let file = at("mariadb", "mysql://ann@nowhere/");
    lab(&file, &["--subject", &given]).was_done("s3cret");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    fs::write(&path, "somebody's").unwrap();
    lab(&file, &["--subject", &given]).was_refused("no laboratory made it");
    assert_eq!(fs::read_to_string(&path).unwrap(), "somebody's");
}

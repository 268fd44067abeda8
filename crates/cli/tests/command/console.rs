//! From PgBouncer's configuration to a running proxy whose console stops it.

use std::process::{Command, Output};

use tidegate_subject::client::BlockingClient;
use tidegate_subject::postgres::{Authentication, Options, Postgres};

use crate::sessions::psql_program;
use crate::support::{Proxy, run, text};

fn psql(address: &str, command: &str) -> Output {
    let (host, port) = address.rsplit_once(':').unwrap();
    Command::new(psql_program())
        .args(["-X", "-A", "-t", "-h", host, "-p", port, "-U", "boss", "-d", "pgbouncer"])
        .args(["-c", command])
        .output()
        .unwrap()
}

#[test]
fn a_configuration_of_pgbouncer_becomes_a_running_proxy() {
    let options = Options { authentication: Authentication::Trust, ..Options::default() };
    let server = Postgres::start(options).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (ini, toml) = (directory.path().join("pgbouncer.ini"), directory.path().join("new.toml"));
    let written = format!(
        "[databases]\npostgres = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
         listen_port = 0\nunix_socket_dir =\nauth_type = any\nadmin_users = boss\n\
         default_pool_size = 5\npool_mode = transaction\n",
        server.port()
    );
    std::fs::write(&ini, written).unwrap();
    let (ini, toml) = (ini.to_str().unwrap(), toml.to_str().unwrap());
    let imported = run(&["import", ini, "-o", toml]);
    let notes = text(&imported.stderr);
    assert!(imported.status.success(), "{notes}");
    assert!(notes.contains("to do:") && notes.contains("default_pool_size"), "{notes}");
    let again = run(&["import", ini, "-o", toml]);
    assert_eq!(again.status.code(), Some(1), "a file that is there is left alone");
    let checked = run(&["check-config", toml]);
    assert!(checked.status.success(), "{}", text(&checked.stderr));
    assert!(text(&checked.stdout).contains("databases.postgres.mode = transaction"));
    let mut proxy = Proxy::start(&["-c", toml]);
    let address = proxy.address("listening on ");
    let shown = psql(&address, "SHOW DATABASES");
    assert!(text(&shown.stdout).starts_with("postgres|127.0.0.1|"), "{shown:?}");
    let stays = format!("postgres://postgres@{address}/postgres");
    let mut client = BlockingClient::connect(&stays).unwrap();
    let ordered = psql(&address, "SHUTDOWN WAIT_FOR_CLIENTS");
    assert_eq!(text(&ordered.stdout), "SHUTDOWN\n");
    let refused = BlockingClient::connect(&stays).map(drop).unwrap_err().to_string();
    assert!(refused.contains("waits for its clients to leave"), "{refused}");
    assert_eq!(client.value("SELECT 1").unwrap(), "1");
    drop(client);
    let (status, log) = proxy.end();
    assert!(status.success(), "{log}");
}

#[test]
fn the_console_stops_the_proxy() {
    let options = Options { authentication: Authentication::Trust, ..Options::default() };
    let server = Postgres::start(options).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tidegate.toml");
    let upstream = server.url();
    let written =
        format!("admin_users = [\"boss\"]\n[databases.\"*\"]\nupstream = \"{upstream}\"\n");
    std::fs::write(&file, written).unwrap();
    for command in ["SHUTDOWN", "SHUTDOWN WAIT_FOR_SERVERS"] {
        let mut proxy = Proxy::start(&["-c", file.to_str().unwrap()]);
        let address = proxy.address("listening on ");
        assert_eq!(text(&psql(&address, command).stdout), "SHUTDOWN\n");
        let (status, log) = proxy.end();
        assert!(status.success(), "{command}: {log}");
    }
}

#[test]
fn a_wrong_configuration_is_told_with_all_its_mistakes() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tidegate.toml");
    let wrong = "journal = \"none/a\"\nlisten = [\"/nowhere/.s.PGSQL.1\"]\n\
                 [databases.a]\nupstream = \"postgres://127.0.0.1\"\n";
    std::fs::write(&file, wrong).unwrap();
    let checked = run(&["check-config", file.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(2));
    let errors = text(&checked.stderr);
    assert!(errors.contains("journal:") && errors.contains("listen:"), "{errors}");
    assert!(errors.contains("2 mistakes"), "{errors}");
    std::fs::write(&file, "nonsense = 1\n").unwrap();
    let checked = run(&["check-config", file.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(2));
    assert!(text(&checked.stderr).contains("line 1: nonsense"), "{}", text(&checked.stderr));
}

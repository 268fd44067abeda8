//! Replication connections, through a proxy in either mode: the protocol by hand, and PostgreSQL's
//! own programs.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tidegate_subject::postgres::{Authentication, Options, Postgres};
use tidegate_wire::backend::tag;

use crate::support::server::setup;
use crate::support::wire::{COPY_DONE, copy_data, query, show};
use crate::support::{MODES, Proxy, Wire, eventually};

/// A server that replicates.
fn replicating_server() -> Postgres {
    let settings = [("fsync", "off"), ("wal_level", "logical"), ("max_wal_senders", "8")];
    Postgres::start(Options {
        settings: settings.map(|(name, value)| (name.into(), value.into())).into(),
        authentication: Authentication::Trust,
        ..Options::default()
    })
    .unwrap()
}

/// A permit of one, which a transaction holds for the whole test: replication takes none.
fn in_each_mode(test: impl Fn(&Postgres, &Proxy, &str)) {
    let server = replicating_server();
    for mode in MODES {
        let proxy = setup(&server, mode).limit(1).start();
        let mut holder = proxy.connect();
        holder.query("BEGIN");
        test(&server, &proxy, mode);
        assert_eq!(holder.query("COMMIT"), "C(COMMIT) Z(I)");
        drop(holder);
        proxy.is_left_clean();
    }
}

/// A program of the server's version that is to stream through the proxy.
fn program(name: &str, server: &Postgres, proxy: &Proxy) -> Command {
    let directory = "SELECT setting FROM pg_config WHERE name = 'BINDIR'";
    let directory = server.connect().unwrap().value(directory).unwrap();
    let mut command = Command::new(Path::new(&directory).join(name));
    let port = proxy.address.port().to_string();
    command.args(["--host", "127.0.0.1", "--port", &port, "--username", "postgres"]);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// Ends a program as Ctrl-C does.
fn interrupt(child: &Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).unwrap();
    kill_process(pid, Signal::INT).unwrap();
}

fn succeeds(child: Child) {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn files(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_stream_both_ways() {
    in_each_mode(|_, proxy, mode| {
        let mut client = Wire::with(proxy.address, &[("replication", "database")]);
        let system = client.query("IDENTIFY_SYSTEM");
        assert!(system.ends_with("C(IDENTIFY_SYSTEM) Z(I)"), "{mode}: {system}");
        assert_eq!(client.value("SELECT 'SQL as well'"), "SQL as well");
        let slot = format!("by_hand_{mode}");
        let created = client.query(&format!("CREATE_REPLICATION_SLOT {slot} PHYSICAL"));
        assert!(created.ends_with("Z(I)") && !created.starts_with('E'), "{created}");
        let start = client.value("SELECT pg_current_wal_lsn()");
        client.send(&query(&format!("START_REPLICATION SLOT {slot} PHYSICAL {start}")));
        client.until(tag::COPY_BOTH);
        // The status of a standby that has received nothing and asks for an answer.
        let status = [&b"r"[..], &[0; 32], &[1]].concat();
        client.send(&copy_data(&status));
        let keepalive = client.until(b'd').pop().unwrap();
        assert!([b'k', b'w'].contains(&keepalive.payload[0]), "{keepalive:?}");
        client.send(COPY_DONE);
        let end = show(&client.until_ready());
        assert!(end.ends_with("Z(I)") && !end.contains("E("), "{end}");
        let dropped = client.query(&format!("DROP_REPLICATION_SLOT {slot}"));
        assert_eq!(dropped, "C(DROP_REPLICATION_SLOT) Z(I)");
        // It goes in the middle of a stream.
        client.send(&query(&format!("START_REPLICATION PHYSICAL {start}")));
        client.until(tag::COPY_BOTH);
        drop(client);
        proxy.wait_for("tidegate_clients", 1);
        proxy.wait_for("tidegate_upstreams_open", 1);
    });
}

/// An error in the middle of the stream ends it, and the connection goes on.
#[test]
fn a_stream_that_fails() {
    in_each_mode(|_, proxy, _| {
        let mut client = Wire::with(proxy.address, &[("replication", "true")]);
        assert_eq!(client.error("START_REPLICATION PHYSICAL 7FFFFFFF/0"), "XX000");
        assert_eq!(client.error("START_REPLICATION SLOT none PHYSICAL 0/0"), "42704");
        assert!(client.query("IDENTIFY_SYSTEM").ends_with("Z(I)"));
        client.send(b"X\0\0\0\x04");
        assert!(client.is_closed());
    });
}

#[test]
fn pg_basebackup_makes_a_backup() {
    in_each_mode(|server, proxy, _| {
        let directory = TempDir::new().unwrap();
        let mut command = program("pg_basebackup", server, proxy);
        command.args(["--wal-method", "stream", "--checkpoint", "fast", "--pgdata"]);
        succeeds(command.arg(directory.path()).spawn().unwrap());
        assert!(files(directory.path()).contains(&"backup_manifest".to_owned()));
    });
}

#[test]
fn pg_receivewal_streams_the_log() {
    in_each_mode(|server, proxy, _| {
        let directory = TempDir::new().unwrap();
        let mut command = program("pg_receivewal", server, proxy);
        let child = command.arg("--directory").arg(directory.path()).spawn().unwrap();
        let mut writer = server.connect().unwrap();
        eventually("a whole segment", || {
            writer.query("SELECT pg_logical_emit_message(false, 't', 'x')").unwrap();
            writer.query("SELECT pg_switch_wal()").unwrap();
            let is_whole = |name: &String| name.len() == 24;
            files(directory.path()).iter().any(is_whole).then_some(())
        });
        interrupt(&child);
        succeeds(child);
    });
}

#[test]
fn pg_recvlogical_streams_changes() {
    in_each_mode(|server, proxy, mode| {
        let mut writer = server.connect().unwrap();
        let table = format!("changed_{mode}");
        writer.query(&format!("CREATE TABLE {table} (x int)")).unwrap();
        let directory = TempDir::new().unwrap();
        let output = directory.path().join("changes");
        let slot = format!("decoded_{mode}");
        let mut create = program("pg_recvlogical", server, proxy);
        create.args(["--dbname", "postgres", "--create-slot", "--plugin", "test_decoding"]);
        let created = create.args(["--slot", &slot]).spawn().unwrap().wait_with_output().unwrap();
        let words = String::from_utf8_lossy(&created.stderr).into_owned();
        // The plug-in is in a package that not every machine has.
        if words.contains("could not access file") {
            return;
        }
        assert!(created.status.success(), "{words}");
        let mut stream = program("pg_recvlogical", server, proxy);
        stream.args(["--dbname", "postgres", "--start", "--slot", &slot, "--fsync-interval", "0"]);
        let child = stream.arg("--file").arg(&output).spawn().unwrap();
        writer.query(&format!("INSERT INTO {table} VALUES (42)")).unwrap();
        eventually("the change", || {
            let text = std::fs::read_to_string(&output).unwrap_or_default();
            text.contains("42").then_some(())
        });
        interrupt(&child);
        succeeds(child);
        let mut delete = program("pg_recvlogical", server, proxy);
        delete.args(["--dbname", "postgres", "--drop-slot", "--slot", &slot]);
        succeeds(delete.spawn().unwrap());
    });
}

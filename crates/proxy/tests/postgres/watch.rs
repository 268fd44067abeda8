//! A server that is watched: what its sessions do is told, whatever becomes of the connection.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use tempfile::TempDir;
use tidegate_gate::journal::{self, Decided};
use tidegate_subject::client::BlockingClient;
use tidegate_subject::postgres::{Authentication, Postgres};

use crate::load::run;
use crate::support::server::{Setup, own_server, setup};
use crate::support::wire::query;
use crate::support::{Proxy, Wire, eventually, log};

/// Everybody wants the same row, and keeps it for a while.
const ONE_ROW: &str = "BEGIN;\nUPDATE hot SET x = x + 1;\nSELECT pg_sleep(0.01);\nCOMMIT;\n";

/// Work for a processor, and nothing to wait for.
const COMPUTE: &str =
    "DO $$ DECLARE x int := 0; BEGIN FOR i IN 1..300000 LOOP x := x + i % 7; END LOOP; END $$;\n";

/// Everybody has a row.
const OWN_ROW: &str = "BEGIN;\nUPDATE own SET x = x + 1 WHERE id = :client_id;\n\
                       SELECT pg_sleep(0.005);\nCOMMIT;\n";

/// A server of the test's own with tables for the scripts.
fn with_tables() -> Postgres {
    let server = own_server(Authentication::Trust);
    let mut client = server.connect().unwrap();
    client.query("CREATE TABLE hot AS SELECT 0 AS x").unwrap();
    client.query("CREATE TABLE own AS SELECT id, 0 AS x FROM generate_series(0, 99) id").unwrap();
    server
}

fn watched(server: &Postgres) -> Setup {
    setup(server, "transaction").database_line("watch = true\nwatch_user = \"postgres\"\ncpus = 2")
}

/// Scripts for pgbench.
struct Scripts(TempDir);

impl Scripts {
    fn new() -> Scripts {
        Scripts(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn start(&self, proxy: &Proxy, clients: u32, script: &str) -> Load {
        let path = self.path("script.sql");
        std::fs::write(&path, script).unwrap();
        // Nobody of a load that was killed before.
        proxy.wait_for("tidegate_clients", 0);
        let load = run(proxy, clients, 600, &["-f", path.to_str().unwrap()]).spawn().unwrap();
        // pgbench has read the script once it is connected.
        proxy.wait_for("tidegate_clients", clients.into());
        Load(load)
    }
}

/// A pgbench that is killed when dropped.
struct Load(Child);

impl Drop for Load {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// The value of a metric with this label, if it is on the page.
fn gauge(proxy: &Proxy, name: &str, label: &str) -> Option<f64> {
    let page = proxy.get("/metrics");
    let is_it = |line: &&str| line.starts_with(&format!("{name}{{")) && line.contains(label);
    let line = page.lines().find(is_it)?;
    Some(line.rsplit_once(' ')?.1.parse().unwrap())
}

fn wait_for_bottleneck(proxy: &Proxy, name: &str) {
    eventually(&format!("{name}: {}", proxy.get("/metrics")), || {
        let label = format!("bottleneck=\"{name}\"");
        (gauge(proxy, "tidegate_server_bottleneck", &label) == Some(1.0)).then_some(())
    });
}

fn sessions(proxy: &Proxy, state: &str) -> f64 {
    let label = format!("state=\"{state}\"");
    gauge(proxy, "tidegate_server_sessions", &label).unwrap_or(-1.0)
}

fn wait_until_up(proxy: &Proxy) {
    eventually("the watch", || {
        (gauge(proxy, "tidegate_watch_up", "server") == Some(1.0)).then_some(())
    });
}

/// The process ids of all connections that watch.
fn watchers(client: &mut BlockingClient) -> String {
    let sql = "SELECT coalesce(string_agg(pid::text, ','), '') FROM pg_stat_activity \
               WHERE application_name = 'tidegate watch'";
    client.value(sql).unwrap()
}

/// One after the other on one server: a row that all want, work for the processors, clients that
/// begin a transaction and leave it, and nothing.
#[test]
fn the_bottleneck_is_told() {
    let (server, scripts) = (with_tables(), Scripts::new());
    let proxy = watched(&server).limit(50).start();
    wait_for_bottleneck(&proxy, "nothing");
    for (script, bottleneck, state) in
        [(ONE_ROW, "locks", "lock"), (COMPUTE, "processors", "processor")]
    {
        let load = scripts.start(&proxy, 8, script);
        wait_for_bottleneck(&proxy, bottleneck);
        eventually(state, || (sessions(&proxy, state) > 4.0).then_some(()));
        drop(load);
    }
    wait_for_bottleneck(&proxy, "nothing");
    let mut idle: Vec<Wire> = (0..6).map(|_| proxy.connect()).collect();
    for client in &mut idle {
        client.query("BEGIN");
    }
    wait_for_bottleneck(&proxy, "clients");
    eventually("six", || (sessions(&proxy, "idle_in_transaction") >= 5.9).then_some(()));
    // One of them has the row that the others want.
    idle[0].query("UPDATE hot SET x = 0");
    for client in &mut idle[1..] {
        client.send(&query("UPDATE hot SET x = 1"));
    }
    wait_for_bottleneck(&proxy, "locks");
    drop(idle);
    wait_for_bottleneck(&proxy, "nothing");
    proxy.is_left_clean();
}

/// The decisions under a load, once `enough` says so.
fn decisions(
    setup: Setup,
    scripts: &Scripts,
    script: &str,
    mut enough: impl FnMut(&[Decided]) -> bool,
) -> Vec<Decided> {
    let path = scripts.path("journal.jsonl");
    let proxy = setup.line(&format!("journal = \"{}\"", path.display())).start();
    wait_until_up(&proxy);
    let load = scripts.start(&proxy, 24, script);
    eventually("enough decisions", || enough(&last_run(&path)).then_some(()));
    drop(load);
    proxy.is_left_clean();
    drop(proxy);
    let run = journal::read(&path).unwrap().runs.pop().unwrap();
    assert_eq!(run.first_difference(), None);
    run.decisions
}

fn last_run(path: &Path) -> Vec<Decided> {
    journal::read(path).unwrap().runs.pop().unwrap().decisions
}

#[test]
fn the_journal_tells_what_the_sessions_did() {
    let (server, scripts) = (with_tables(), Scripts::new());
    // One of twelve has the row, eleven wait for it. The locks are read once an interval, and that
    // moment may lie between two holders, when nobody waits: one interval of many has to show them.
    let waiting = |decided: &Decided| {
        let locks = decided.observation.locks.as_ref();
        locks.is_some_and(|locks| locks.mature_blocked + locks.young_blocked > 6)
    };
    let seen = |decisions: &[Decided]| decisions.len() >= 3 && decisions.iter().any(waiting);
    let decisions = decisions(watched(&server).limit(12), &scripts, ONE_ROW, seen);
    let last = &decisions.last().unwrap().observation;
    let sessions = last.server.expect("the server is watched");
    assert!(sessions.samples > 1 && sessions.lock > 6.0, "{sessions:?}");
    assert!((sessions.inside() - last.running_mean).abs() < 4.0, "{last:?}");
    let with_waiters = decisions.iter().find(|it| waiting(it)).expect("one with waiters");
    let locks = with_waiters.observation.locks.expect("locks are read while a session waits");
    assert!(locks.locks_held > locks.locks_held_by_running, "{locks:?}");
}

/// Where all wait for one row both take the limit down, and up where nobody waits.
#[test]
fn controllers_that_go_by_locks_work() {
    log::collect();
    let (server, scripts) = (with_tables(), Scripts::new());
    for (control, down, up) in [
        ("half-and-half", "overloaded", "underloaded"),
        ("conflict-ratio", "above_critical", "below_critical"),
    ] {
        let from = |start: u32| {
            watched(&server).database_line(&format!("control = \"{control}\"\nstart_mpl = {start}"))
        };
        let was = |kind: &str, decisions: &[Decided]| decisions.iter().any(|it| it.kind == kind);
        let lowered = |decisions: &[Decided]| {
            was(down, decisions) && decisions.iter().any(|it| it.next_limit.get() <= 10)
        };
        let decisions_down = decisions(from(20), &scripts, ONE_ROW, lowered);
        assert!(decisions_down.iter().all(|it| it.kind != "no_lock_statistics"), "{control}");
        let raised = |decisions: &[Decided]| {
            was(up, decisions) && decisions.iter().any(|it| it.next_limit.get() >= 8)
        };
        decisions(from(2), &scripts, OWN_ROW, raised);
    }
    let port = server.port().to_string();
    let lines = log::lines_with("limit changed");
    let told = |line: &&String| line.contains(&port) && line.contains("bottleneck=\"locks\"");
    assert!(lines.iter().any(|line| told(&line)), "{lines:#?}");
}

#[test]
fn a_watch_that_is_ended_comes_back_and_a_proxy_that_stops_takes_it_along() {
    let server = with_tables();
    let mut admin = server.connect().unwrap();
    let proxy = watched(&server).limit(2).start();
    let mut client = proxy.connect();
    wait_until_up(&proxy);
    for times in 1..4 {
        let before = watchers(&mut admin);
        assert!(!before.is_empty() && !before.contains(','), "{before}");
        admin.query(&format!("SELECT pg_terminate_backend({before})")).unwrap();
        eventually("another connection", || {
            let now = watchers(&mut admin);
            (!now.is_empty() && now != before).then_some(())
        });
        wait_until_up(&proxy);
        assert_eq!(client.value("SELECT 'served'"), "served");
        let failures = gauge(&proxy, "tidegate_watch_failures_total", "server").unwrap();
        assert!(failures >= f64::from(times), "{failures}");
    }
    // It takes none of the gate's permits, and none of the workers' connections.
    assert_eq!(proxy.metric("tidegate_upstreams_open"), 1);
    drop(client);
    proxy.is_left_clean();
    proxy.shutdown(Duration::ZERO);
    eventually("no connection", || watchers(&mut admin).is_empty().then_some(()));
}

#[test]
fn a_restarted_server_is_watched_again() {
    let mut server = with_tables();
    let proxy = watched(&server).limit(2).start();
    wait_until_up(&proxy);
    server.restart().unwrap();
    eventually("a failure", || {
        (gauge(&proxy, "tidegate_watch_failures_total", "server") >= Some(1.0)).then_some(())
    });
    wait_until_up(&proxy);
    let mut idle = proxy.connect();
    idle.query("BEGIN");
    wait_for_bottleneck(&proxy, "clients");
    drop(idle);
    proxy.is_left_clean();
}

/// A user without the right sees that there are sessions, and not what they do; this is said.
#[test]
fn a_watch_that_may_not_see_says_so() {
    log::collect();
    let server = with_tables();
    let mut admin = server.connect().unwrap();
    admin.query("CREATE ROLE shortsighted LOGIN").unwrap();
    let proxy = setup(&server, "transaction")
        .database_line("watch = true\nwatch_user = \"shortsighted\"")
        .limit(4)
        .start();
    let mut clients = [proxy.connect(), proxy.connect()];
    for client in &mut clients {
        client.query("BEGIN");
    }
    wait_for_bottleneck(&proxy, "hidden");
    assert!(sessions(&proxy, "hidden") >= 2.0, "{}", proxy.get("/metrics"));
    let warnings = log::lines_with("GRANT pg_read_all_stats");
    let port = server.port().to_string();
    let is_it = |line: &&String| line.contains("user=\"shortsighted\"") && line.contains(&port);
    assert!(warnings.iter().any(|line| is_it(&line)), "{warnings:#?}");

    admin.query("GRANT pg_read_all_stats TO shortsighted").unwrap();
    let pid = watchers(&mut admin);
    admin.query(&format!("SELECT pg_terminate_backend({pid})")).unwrap();
    wait_for_bottleneck(&proxy, "clients");
    drop(clients);
    proxy.is_left_clean();
}

/// Sessions of other databases on the server are none of this proxy's, unless it serves them all.
#[test]
fn only_the_sessions_of_the_proxys_databases_count() {
    let server = with_tables();
    let mut admin = server.connect().unwrap();
    admin.query("CREATE DATABASE \"it's another\\\"").unwrap();
    let all = watched(&server).limit(4).start();
    let one = watched(&server).limit(4).only("postgres").start();
    let mut other =
        Wire::with(all.address, &[("user", "postgres"), ("database", "it's another\\")]);
    other.query("BEGIN");
    wait_for_bottleneck(&all, "clients");
    wait_until_up(&one);
    wait_for_bottleneck(&one, "nothing");
    assert!(sessions(&one, "idle_in_transaction").abs() < f64::EPSILON);
    let only = setup(&server, "transaction")
        .database_line("watch = true\nwatch_user = \"postgres\"")
        .only("it's another\\\\")
        .limit(4)
        .start();
    wait_for_bottleneck(&only, "clients");
    drop(other);
    for proxy in [all, one, only] {
        proxy.is_left_clean();
    }
}

/// A watch that cannot log in harms nobody, and one that gets no answer does not keep the proxy
/// from stopping, although it would wait for an hour.
#[test]
fn a_watch_that_never_works_stops_nobody() {
    let server = with_tables();
    let proxy = setup(&server, "transaction")
        .database_line("watch = true\nwatch_user = \"nobody at all\"")
        .limit(2)
        .start();
    eventually("failures", || {
        (gauge(&proxy, "tidegate_watch_failures_total", "server") >= Some(2.0)).then_some(())
    });
    assert_eq!(proxy.connect().value("SELECT 'served'"), "served");
    assert_eq!(gauge(&proxy, "tidegate_watch_up", "server"), Some(0.0));
    assert_eq!(gauge(&proxy, "tidegate_server_bottleneck", "server"), None);
    proxy.is_left_clean();
    drop(proxy);

    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = watched(&server)
        .upstream(&format!("postgres://{}", silent.local_addr().unwrap()))
        .line("timeouts.connect = \"1h\"")
        .start();
    let (_asked, _) = silent.accept().unwrap();
    proxy.shutdown(Duration::ZERO);
}

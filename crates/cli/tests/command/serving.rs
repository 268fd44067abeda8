//! Start, flags over the file, and stop.

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::process::Signal;
use tidegate_gate::journal;
use tidegate_subject::client::BlockingClient;
use tidegate_subject::postgres::{Options, Postgres};

use crate::support::{Proxy, get, metric, run, text, wait_until};

#[test]
fn flags_go_before_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tidegate.toml");
    let content = "listen = [\"127.0.0.1:1\"]\n[databases.\"*\"]\n\
                   upstream = \"postgres://127.0.0.1:1\"\nstart_mpl = 7\n";
    std::fs::write(&path, content).unwrap();
    // Port 1 would be refused or taken; start_mpl would contradict the fixed limit.
    let file = ["-c", path.to_str().unwrap()];
    let flags = ["--control", "fixed:3", "--admin-listen", "127.0.0.1:0"];
    let mut proxy = Proxy::start(&[&file[..], &flags[..]].concat());
    assert_ne!(proxy.address("listening on "), "127.0.0.1:1");
    let page = get(&proxy.address("metrics on http://").replace("/metrics", ""), "/metrics");
    assert!(page.contains("\ntidegate_limit{server=\"127.0.0.1:1\"} 3\n"), "{page}");
}

#[test]
fn a_proxy_says_where_it_listens_and_ends_well_on_a_signal() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut proxy = Proxy::start(&["--upstream", "postgres://127.0.0.1:1"]);
        let address = proxy.address("listening on ");
        TcpStream::connect(&address).unwrap();
        proxy.signal(signal);
        let (status, log) = proxy.end();
        assert_eq!(status.code(), Some(0), "{log}");
        assert!(log.contains("shutting down"), "{log}");
        assert!(TcpStream::connect(&address).is_err(), "the port is free again");
    }
}

#[test]
fn an_address_in_use_is_a_failure_that_names_it() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for flag in ["--listen", "--admin-listen"] {
        let mut proxy = Proxy::start(&["--upstream", "postgres://127.0.0.1:1", flag, &address]);
        let (status, log) = proxy.end();
        assert_eq!(status.code(), Some(1), "{log}");
        assert!(log.contains(&address), "{log}");
    }
}

#[test]
fn the_example_configuration_starts() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tidegate.toml");
    let mut proxy = Proxy::start(&["-c", example.to_str().unwrap()]);
    proxy.address("listening on 127.0.0.1:");
}

#[test]
fn logging_can_be_turned_off() {
    let mut proxy = Proxy::start(&["--upstream", "postgres://127.0.0.1:1", "--log-level", "off"]);
    proxy.address("listening on ");
    proxy.signal(Signal::TERM);
    let (status, log) = proxy.end();
    assert_eq!((status.code(), log.as_str()), (Some(0), ""));
}

#[test]
fn a_signal_without_a_meaning_is_logged_and_ignored() {
    let mut proxy = Proxy::start(&["--upstream", "postgres://127.0.0.1:1"]);
    let address = proxy.address("listening on ");
    proxy.signal(Signal::USR1);
    TcpStream::connect(&address).unwrap();
    proxy.signal(Signal::TERM);
    let (status, log) = proxy.end();
    assert_eq!(status.code(), Some(0), "{log}");
    assert_eq!(log.matches("SIGUSR1 ignored").count(), 1, "{log}");
}

/// Options still go before the file, a bad file changes nothing, and many signals do no harm.
#[test]
fn a_signal_puts_another_configuration_in_force() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tidegate.toml");
    let write = |limit: &str, more: &str| {
        let upstream = "upstream = \"postgres://127.0.0.1:1\"";
        let content = format!(
            "listen = [\"127.0.0.1:1\"]\n{more}[databases.\"*\"]\n{upstream}\ncontrol = {limit}\n"
        );
        std::fs::write(&path, content).unwrap();
    };
    write("\"fixed:3\"", "");
    let file = ["-c", path.to_str().unwrap(), "--admin-listen", "127.0.0.1:0"];
    let mut proxy = Proxy::start(&file);
    let address = proxy.address("listening on ");
    let admin = proxy.address("metrics on http://").replace("/metrics", "");
    let limit = || metric(&admin, "tidegate_limit");
    assert_eq!(limit(), "3");
    for next in ["4", "5"] {
        write(&format!("\"fixed:{next}\""), "threads = 2\n");
        for _ in 0..20 {
            proxy.signal(Signal::HUP);
        }
        wait_until("it is in force", || limit() == next);
        write("\"fixed:9\"", "nonsense = 1\n");
        proxy.signal(Signal::HUP);
        TcpStream::connect(&address).unwrap();
    }
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(limit(), "5");
    proxy.signal(Signal::TERM);
    proxy.signal(Signal::HUP);
    let (status, log) = proxy.end();
    assert_eq!(status.code(), Some(0), "{log}");
    for word in ["restart needed for: threads", "is not reloaded", "nonsense"] {
        assert!(log.contains(word), "{word}: {log}");
    }
}

/// What a configuration leaves behind when another one replaces it is bounded.
#[test]
fn memory_does_not_grow_with_reloads() {
    let server = Postgres::start(Options::default()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tidegate.toml");
    let port = server.port();
    let write = |number: usize| {
        // Each connects as another user, and to another server: that of another name.
        let host = ["127.0.0.1", "localhost"][number % 2];
        let user = format!("user{}", number % 7);
        let content = format!(
            "admin_users = [\"boss\"]\nwaiting_max = {}\n[databases.a]\nupstream = \
             \"postgres://postgres@{host}:{port}/postgres\"\ncontrol = \"fixed:{}\"\n\
             [databases.\"b{}\"]\nupstream = \"postgres://{user}:p{number}@{host}:{port}/x\"\n\
             control = \"fixed:{}\"\n",
            100 + number,
            2 + number % 5,
            number % 11,
            2 + number % 5
        );
        std::fs::write(&path, content).unwrap();
    };
    write(0);
    // Nobody reads the log while it runs.
    let quiet = ["--admin-listen", "127.0.0.1:0", "--log-level", "error"];
    let mut proxy = Proxy::start(&[&["-c", path.to_str().unwrap()], &quiet[..]].concat());
    let address = proxy.address("listening on ");
    let admin = proxy.address("metrics on http://").replace("/metrics", "");
    let connect = |place: &str| BlockingClient::connect(&format!("postgres://{place}")).unwrap();
    let mut console = connect(&format!("boss@{address}/pgbouncer"));
    let mut clients: Vec<_> = (0..10).map(|_| connect(&format!("postgres@{address}/a"))).collect();
    let resident = || -> u64 { metric(&admin, "process_resident_memory_bytes").parse().unwrap() };
    let mut settled = 0;
    for number in 1..=1000 {
        write(number);
        console.query("RELOAD").unwrap();
        let client = &mut clients[number % 10];
        assert_eq!(client.value("SELECT 1").unwrap(), "1");
        if number == 200 {
            settled = resident();
        }
    }
    let grown = resident().saturating_sub(settled);
    assert!(grown < 6 << 20, "{grown} bytes in 800 reloads, of {settled}");
    wait_until("connections of before are closed", || {
        metric(&admin, "tidegate_upstreams_open").parse::<u32>().unwrap() <= 10
    });
}

/// What a killed process leaves behind is replaced, and nothing else is.
/// A controller that decides every 100 ms, beside transactions that fail.
#[test]
fn of_all_decisions_only_changes_are_logged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.jsonl");
    let server = Postgres::start(Options::default()).unwrap();
    let url = server.url();
    let journal = ["--journal", path.to_str().unwrap()];
    let mut proxy = Proxy::start(
        &[&["--upstream", &url, "--control", "paired-comparison"][..], &journal].concat(),
    );
    let through = format!("postgres://postgres@{}/postgres", proxy.address("listening on "));
    let times = ["--warmup", "100ms", "--duration", "2s", "--clients", "2"];
    run(&[&["load", "--url", &through][..], &times[..]].concat());
    proxy.signal(Signal::TERM);
    let (_, log) = proxy.end();
    let run = journal::read(&path).unwrap().runs.pop().unwrap();
    // What is only tried for a moment is no news.
    let trials = ["washout", "scan", "compare"];
    let settled = run.decisions.iter().filter(|decided| !trials.contains(&&*decided.kind));
    let decided = settled.map(|decided| decided.next_limit);
    let limits: Vec<_> = std::iter::once(run.control.setting.start).chain(decided).collect();
    let changes = limits.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(run.decisions.len() > changes + 1, "{limits:?}\n{log}");
    assert_eq!(log.matches("limit changed").count(), changes, "{limits:?}\n{log}");
    assert!(!log.contains("interval"), "{log}");
}

#[test]
fn a_stale_socket_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(".s.PGSQL.6432");
    let path = path.to_str().unwrap();
    let arguments = ["--upstream", "postgres://127.0.0.1:1", "--listen", path];
    let start = || {
        let mut proxy = Proxy::start(&arguments);
        proxy.address("listening on ");
        assert_eq!(proxy.address("listening on "), path);
        proxy
    };
    let mut killed = start();
    killed.signal(Signal::KILL);
    killed.end();
    assert!(UnixStream::connect(path).is_err());
    let mut serving = start();
    UnixStream::connect(path).unwrap();
    // One that answers is left alone.
    let (status, log) = Proxy::start(&arguments).end();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains(path), "{log}");
    UnixStream::connect(path).unwrap();
    serving.signal(Signal::TERM);
    serving.end();
    // So is what is no socket.
    std::fs::write(path, "kept").unwrap();
    let (status, log) = Proxy::start(&arguments).end();
    assert_eq!(status.code(), Some(1), "{log}");
    assert_eq!(std::fs::read_to_string(path).unwrap(), "kept");
}

#[test]
fn a_journal_that_cannot_be_written_is_named_with_its_flag() {
    let upstream = ["--upstream", "postgres://127.0.0.1:1"];
    let journal = ["--journal", "/nonexistent/journal.jsonl"];
    let (status, log) = Proxy::start(&[upstream, journal].concat()).end();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("/nonexistent/journal.jsonl") && log.contains("--journal FILE"), "{log}");
}

#[test]
fn a_load_without_its_tables_fails_with_the_first_error() {
    let server = Postgres::start(Options::default()).unwrap();
    let url = server.url();
    let times = ["--warmup", "100ms", "--duration", "300ms", "--clients", "2"];
    let output = run(&[&["load", "--url", &url][..], &times[..]].concat());
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no transaction succeeded") && said.contains("42P01"), "{said}");
    assert!(said.contains("relation \"pgbench_accounts\" does not exist"), "{said}");
    assert!(text(&output.stdout).contains("first error "));
}

/// The first lines say what was started, and whether the server answers.
#[test]
fn the_start_is_logged_in_each_form() {
    let start = |flags: &[&str]| {
        let all = [&["--upstream", "postgres://127.0.0.1:1"][..], flags].concat();
        let mut proxy = Proxy::start(&all);
        let address = proxy.address("listening on ");
        let mut log = String::new();
        while !log.contains("does not answer") {
            log.push_str(&proxy.log_line());
        }
        proxy.signal(Signal::TERM);
        let (status, rest) = proxy.end();
        assert_eq!(status.code(), Some(0), "{log}{rest}");
        (address, log + &rest)
    };
    let (address, text) = start(&[]);
    for part in [
        &*format!("listen=\"{address}\""),
        "version=\"",
        "auth=trust",
        "file_descriptors=\"",
        "control=paired-comparison",
        "min_mpl=1 max_mpl=1000",
        "databases=\"*\"",
        "stopped",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (_, json) = start(&["--log-format", "json"]);
    for line in json.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(line["timestamp"].is_string() && line["message"].is_string(), "{line}");
    }
    let (_, journal) = start(&["--log-format", "journald"]);
    assert!(journal.lines().all(|line| line.starts_with("<6>") || line.starts_with("<4>")));
    assert!(journal.contains("\n<4>the server does not answer"), "{journal}");
}

/// A manager that waits for the proxy is told when it serves and when it ends.
#[test]
fn the_service_manager_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(crate::support::PATIENCE)).unwrap();
    let told = || {
        let mut buffer = [0; 512];
        let len = socket.recv(&mut buffer).unwrap();
        text(&buffer[..len])
    };
    let flags = ["--upstream", "postgres://127.0.0.1:1"];
    let environment = [("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", "4000000")];
    let proxy = Proxy::start_in(&flags, &environment);
    assert_eq!(told(), "READY=1\nSTATUS=serving");
    assert_eq!(told(), "WATCHDOG=1", "the event loops turn");
    proxy.signal(Signal::TERM);
    while told() != "STOPPING=1" {}
}

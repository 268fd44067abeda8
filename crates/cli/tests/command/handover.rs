//! SIGUSR2: a new process of the program takes over, with its clients, or fails and is not noticed.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tidegate_control::SplitMix64;
use tidegate_subject::client::BlockingClient;
use tidegate_subject::postgres::{Options, Postgres};

use crate::support::{PATIENCE, tidegate, wait_until};

/// A proxy and all that take over from it, ended by their process ids when dropped.
struct Chain {
    first: Child,
    directory: tempfile::TempDir,
    /// All that have been started, in their order.
    processes: Vec<Pid>,
}

impl Chain {
    /// Starts the first one, which serves by a file with these lines.
    fn start(server: &Postgres, lines: &str) -> Chain {
        let directory = tempfile::tempdir().unwrap();
        write_config(directory.path(), server, lines);
        let log = File::create(directory.path().join("log")).unwrap();
        let config = directory.path().join("tidegate.toml");
        let first = tidegate(&["proxy", "-c", config.to_str().unwrap()])
            .env("NO_COLOR", "1")
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let processes = vec![Pid::from_child(&first)];
        let chain = Chain { first, directory, processes };
        wait_until("it serves", || chain.log().contains("listening on "));
        chain
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap()
    }

    fn client(&self) -> BlockingClient {
        let log = self.log();
        let (_, behind) = log.split_once("listening on ").unwrap();
        let address = behind.lines().next().unwrap();
        let url = format!("postgres://postgres@{address}/postgres");
        let client = BlockingClient::connect(&url).unwrap();
        client.set_timeout(Some(PATIENCE)).unwrap();
        client
    }

    fn last(&self) -> Pid {
        *self.processes.last().unwrap()
    }

    fn is_alive(&mut self, process: Pid) -> bool {
        if process == Pid::from_child(&self.first) {
            return self.first.try_wait().unwrap().is_none();
        }
        test_kill_process(process).is_ok()
    }

    /// Asks the last one to hand over. Returns the new one, as soon as it accepts clients.
    fn ask(&mut self) -> Pid {
        let ready = "the new process accepts clients process=";
        let before = self.log().matches(ready).count();
        kill_process(self.last(), Signal::USR2).unwrap();
        wait_until("another process serves", || self.log().matches(ready).count() > before);
        let log = self.log();
        let number = log.rsplit(ready).next().unwrap().split_whitespace().next().unwrap();
        let process = Pid::from_raw(number.parse().unwrap()).unwrap();
        self.processes.push(process);
        process
    }

    /// Lets a new process take over from the last one, which ends.
    fn hand_over(&mut self) {
        let old = self.last();
        self.ask();
        wait_until("the old process has ended", || !self.is_alive(old));
        let taken = "has taken over from the process before";
        let count = self.processes.len() - 1;
        wait_until("it is alone", || self.log().matches(taken).count() >= count);
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        for &process in self.processes.iter().rev() {
            // It may have ended already.
            let _ = kill_process(process, Signal::KILL);
        }
        let _ = self.first.wait();
    }
}

fn write_config(directory: &Path, server: &Postgres, lines: &str) {
    let socket = directory.join(".s.PGSQL.6432");
    let text = format!(
        "listen = [\"127.0.0.1:0\", \"{}\"]\nadmin_listen = \"127.0.0.1:0\"\n{lines}\n\
         [databases.\"*\"]\nupstream = \"{}\"\n",
        socket.display(),
        server.url()
    );
    std::fs::write(directory.join("tidegate.toml"), text).unwrap();
}

fn server() -> Postgres {
    Postgres::start(Options::default()).unwrap()
}

#[test]
fn a_new_process_takes_over_with_its_clients() {
    let server = server();
    let mut chain = Chain::start(&server, "");
    let mut client = chain.client();
    client.query("SET application_name = 'kept'").unwrap();
    for _ in 0..3 {
        chain.hand_over();
        assert_eq!(client.value("SHOW application_name").unwrap(), "kept");
        assert_eq!(chain.client().value("SELECT 1").unwrap(), "1");
    }
    // The settings of the file as it is now.
    write_config(chain.directory.path(), &server, "waiting_max = 77");
    chain.hand_over();
    assert_eq!(client.value("SELECT 2").unwrap(), "2");
    let last = chain.last();
    kill_process(last, Signal::TERM).unwrap();
    wait_until("the last has stopped", || !chain.is_alive(last));
    assert!(!chain.path(".s.PGSQL.6432").exists(), "its socket is removed with it");
    assert!(chain.log().contains("stopped"), "{}", chain.log());
}

#[test]
fn a_new_process_that_cannot_start_says_why_and_changes_nothing() {
    let server = server();
    let mut chain = Chain::start(&server, "");
    let mut client = chain.client();
    client.query("BEGIN").unwrap();
    let wrong = [
        ("waiting_max = \"many\"", "waiting_max"),
        (&*format!("journal = \"{}\"", chain.path("no/where").display()), "journal"),
    ];
    for (line, why) in wrong {
        write_config(chain.directory.path(), &server, line);
        let before = chain.log().len();
        kill_process(chain.last(), Signal::USR2).unwrap();
        wait_until("it is refused", || chain.log()[before..].contains("this process goes on"));
        let log = chain.log();
        let refusal = log[before..].lines().find(|line| line.contains("goes on")).unwrap();
        assert!(refusal.contains(why), "{refusal}");
        assert_eq!(chain.client().value("SELECT 1").unwrap(), "1");
    }
    assert_eq!(client.value("SELECT 'still open'").unwrap(), "still open");
    write_config(chain.directory.path(), &server, "");
    client.query("COMMIT").unwrap();
    chain.hand_over();
    assert_eq!(client.value("SELECT 2").unwrap(), "2");
}

/// Each client belongs to one process: it goes on or is disconnected, and nothing that it has
/// asked for is done twice.
#[test]
fn a_new_process_that_is_killed_takes_only_what_it_has_confirmed() {
    let server = server();
    let mut direct = server.connect().unwrap();
    direct.query("CREATE TABLE done (client int, step int)").unwrap();
    for seed in 1..=4 {
        let mut draws = SplitMix64::new(seed);
        let mut chain = Chain::start(&server, "");
        direct.query("TRUNCATE done").unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let running: Vec<_> = (0..8)
            .map(|client| {
                let (mut connection, is_over) = (chain.client(), Arc::clone(&is_over));
                std::thread::spawn(move || {
                    let mut steps = 0;
                    let sql = |step| format!("INSERT INTO done VALUES ({client}, {step})");
                    while !is_over.load(Ordering::Relaxed) && connection.query(&sql(steps)).is_ok()
                    {
                        steps += 1;
                    }
                    (client, steps)
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(100));
        let new = chain.ask();
        std::thread::sleep(Duration::from_micros(draws.next_bits() % 20_000));
        kill_process(new, Signal::KILL).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        is_over.store(true, Ordering::Relaxed);
        let ended: Vec<(i64, i64)> = running.into_iter().map(|it| it.join().unwrap()).collect();
        for (client, steps) in ended {
            let sql = format!(
                "SELECT count(*)::text || ' ' || count(DISTINCT step) FROM done \
                 WHERE client = {client}"
            );
            let found = direct.value(&sql).unwrap();
            // The last may have been done without an answer.
            let expected = [steps, steps + 1].map(|count| format!("{count} {count}"));
            assert!(expected.contains(&found), "seed {seed}, client {client}: {found}, {steps}");
        }
        // If the old one had not ended before, it serves again.
        let first = chain.processes[0];
        let goes_on = |chain: &Chain| chain.log().contains("this process goes on");
        wait_until("it goes on or ends", || goes_on(&chain) || !chain.is_alive(first));
        if goes_on(&chain) {
            chain.processes.truncate(1);
            assert_eq!(chain.client().value("SELECT 1").unwrap(), "1");
            chain.hand_over();
            assert_eq!(chain.client().value("SELECT 1").unwrap(), "1");
        }
    }
}

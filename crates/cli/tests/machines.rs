//! Workers of many machines: each execution is done once, whatever becomes of a worker, or of the
//! store. Each machine is a process with a network of its own where the system allows that.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test's helpers fail the test")]

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tidegate_lab::store::Store;
use tidegate_subject::client::BlockingClient;
use tidegate_subject::postgres::{self, Postgres};

/// Longest time any step may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(90);

/// A heartbeat with which a worker is taken for dead in about a second, rightly or not.
const FAST: &str = "200ms";

/// A heartbeat with which only a worker that is dead is taken for it, after six seconds.
const SLOW: &str = "1s";

/// 4 runs of 5 batchsets of 2 MPLs twice. An execution takes a millionth of its time.
const EXECUTIONS: i64 = 80;
const FILE: &str = r#"
name = "machines"
scenario = "thrash"
seed = 7
subjects = ["simulated"]
processors = [1, 2, 3, 4]
mpl = { from = 100, to = 200, step = 100 }
ctl = "100000s"
warmup = "0s"
pause = "0s"
repetitions = 2

[factors]
rows = 30000
primary_key = [true]
read_sf = [1.0]
rose = [100.0]
"#;

/// A laboratory's store with an experiment file beside it.
struct Lab {
    server: Postgres,
    directory: tempfile::TempDir,
    isolated: bool,
}

impl Lab {
    fn new() -> Option<Lab> {
        if let Err(error) = Postgres::find() {
            println!("skipped: {error}");
            return None;
        }
        let server = Postgres::start(postgres::Options::default()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("machines.toml"), FILE).unwrap();
        let isolated = Command::new("unshare").args(["--net", "true"]).status();
        let isolated = isolated.is_ok_and(|status| status.success());
        if !isolated {
            println!("workers share one network: `unshare --net` is not allowed here");
        }
        Some(Lab { server, directory, isolated })
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("machines.toml")
    }

    fn tidegate(&self, arguments: &[&str]) -> Output {
        let place = self.server.url();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(["lab", "--store", &place]).args(arguments).output().unwrap()
    }

    /// Puts the experiment into the queue.
    fn enqueue(&self) {
        let output = self.tidegate(&["run", self.file().to_str().unwrap(), "--workers"]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said, "experiment 1: 4 runs wait for workers\n", "{output:?}");
    }

    /// A worker; its store is reached through a socket in the file system where its network has
    /// nothing but its own loopback.
    fn worker(&self, host: &str, heartbeat: &str) -> Worker {
        let program = env!("CARGO_BIN_EXE_tidegate");
        let mut command = if self.isolated {
            let mut command = Command::new("unshare");
            command.args(["--net", program]);
            command
        } else {
            Command::new(program)
        };
        let place = if self.isolated { self.server.socket_url() } else { self.server.url() };
        let log = self.directory.path().join(format!("{host}.log"));
        let file = fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
        command.args(["--log-level", "error", "lab", "worker", "--lab", &place]);
        command.args(["--host", host, "--heartbeat", heartbeat]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        Worker { child: command.spawn().unwrap(), log }
    }

    fn done(&self) -> i64 {
        Store::open(&self.server.url()).unwrap().experiment(1).unwrap().done
    }

    fn wait(&self, until: i64) {
        wait_for(&format!("{until} executions"), || self.done() >= until);
    }

    fn value(&self, sql: &str) -> String {
        BlockingClient::connect(&self.server.url()).unwrap().value(sql).unwrap()
    }

    /// All executions are done once, and nothing is left in the queue.
    fn check(&self, hosts: &str) {
        let measured = "SELECT COUNT(*) || ' ' || COUNT(DISTINCT execution) FROM measurement";
        assert_eq!(self.value(measured), format!("{EXECUTIONS} {EXECUTIONS}"));
        let made = "SELECT string_agg(DISTINCT m.host, ',' ORDER BY m.host) FROM measurement x, \
                    attempt a, start s, machine m WHERE x.attempt = a.id AND a.start = s.id \
                    AND s.machine = m.id";
        assert_eq!(self.value(made), hosts);
        let queued = "SELECT COUNT(*) FROM tidegate_job";
        wait_for("an empty queue", || self.value(queued) == "0");
        let shown = self.tidegate(&["show", "1"]);
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(shown.contains("80 of 80 executions done"), "{shown}");
        assert!(self.tidegate(&["tap", "1"]).status.success());
    }

    fn attempts(&self) -> i64 {
        self.value("SELECT COUNT(*) FROM attempt").parse().unwrap()
    }
}

/// A worker that was started, killed when dropped.
struct Worker {
    child: Child,
    log: PathBuf,
}

impl Worker {
    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    fn said(&self) -> String {
        read(&self.log)
    }

    /// Waits for a worker that ends by itself; its exit code.
    fn end(&mut self) -> Option<i32> {
        let mut code = None;
        wait_for("a worker's end", || {
            code = self.child.try_wait().unwrap();
            code.is_some()
        });
        code.unwrap().code()
    }

    /// Stops it in an orderly way.
    fn stop(mut self) {
        self.signal(Signal::TERM);
        assert_eq!(self.end(), Some(0), "{}", self.said());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(path: &Path) -> String {
    let mut text = String::new();
    fs::File::open(path).unwrap().read_to_string(&mut text).unwrap();
    text
}

fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_there() {
        assert!(Instant::now() < until, "waited for {what} for too long");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn two_workers_share_the_runs() {
    let Some(lab) = Lab::new() else { return };
    let [alpha, beta] = ["alpha", "beta"].map(|host| lab.worker(host, SLOW));
    for worker in [&alpha, &beta] {
        wait_for("a worker", || worker.said().contains("waiting for runs"));
    }
    lab.enqueue();
    lab.wait(EXECUTIONS);
    lab.check("alpha,beta");
    assert_eq!(lab.attempts(), EXECUTIONS);
    assert_eq!(lab.value("SELECT COUNT(*) FROM start"), "4");
    let again = lab.tidegate(&["resume", "1", "--workers"]);
    assert_eq!(String::from_utf8_lossy(&again.stdout), "experiment 1: 0 runs wait for workers\n");
    alpha.stop();
    beta.stop();
}

#[test]
fn a_worker_that_is_killed_is_made_up_for() {
    let Some(lab) = Lab::new() else { return };
    lab.enqueue();
    let mut alpha = lab.worker("alpha", SLOW);
    lab.wait(5);
    let mut second = lab.worker("alpha", SLOW);
    assert_eq!(second.end(), Some(1));
    let said = second.said();
    let holder =
        format!("host alpha is taken by tidegate worker on alpha, process {}", alpha.child.id());
    assert!(said.contains(&holder), "{said}");

    let beta = lab.worker("beta", SLOW);
    lab.wait(20);
    alpha.child.kill().unwrap();
    alpha.child.wait().unwrap();
    lab.wait(EXECUTIONS);
    lab.check("alpha,beta");
    // The execution that was cut off is the only attempt without a measurement; those of its
    // batchset that alpha had measured were measured anew.
    let taken: i64 = lab.value("SELECT COUNT(*) FROM measurement_taken").parse().unwrap();
    assert!((0..=1).contains(&(lab.attempts() - taken)), "{} {taken}", lab.attempts());
    assert!((0..4).contains(&(taken - EXECUTIONS)), "{taken}");
    assert_eq!(lab.value("SELECT COUNT(*) FROM start"), "5");
    beta.stop();
}

/// The batchsets that measurements of two hosts count for.
const OF_TWO_HOSTS: &str = "SELECT COUNT(*) FROM (SELECT x.batchset FROM measurement m, \
     execution x, attempt a, start s, machine k WHERE m.execution = x.id AND m.attempt = a.id \
     AND a.start = s.id AND s.machine = k.id GROUP BY x.batchset \
     HAVING COUNT(DISTINCT k.host) > 1) two";

#[test]
fn a_batchset_stays_on_one_host_when_its_worker_is_killed_in_it() {
    let Some(lab) = Lab::new() else { return };
    lab.enqueue();
    let mut alpha = lab.worker("alpha", SLOW);
    // Stopped where a part of a later batchset's four executions is there, and then killed.
    let mut done = 4;
    while done % 4 == 0 {
        alpha.signal(Signal::CONT);
        lab.wait(done + 1);
        alpha.signal(Signal::STOP);
        std::thread::sleep(Duration::from_millis(100));
        done = lab.done();
    }
    alpha.child.kill().unwrap();
    alpha.child.wait().unwrap();
    let beta = lab.worker("beta", SLOW);
    lab.wait(EXECUTIONS);
    lab.check("alpha,beta");
    assert_eq!(lab.value(OF_TWO_HOSTS), "0");
    // What alpha had measured of that batchset is kept, and does not count.
    let kept = "SELECT COUNT(*) FROM measurement_taken t \
                WHERE t.attempt NOT IN (SELECT attempt FROM measurement)";
    assert_eq!(lab.value(kept), (done % 4).to_string());
    let shown = lab.tidegate(&["show", "1"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(!shown.contains("two hosts"), "{shown}");
    beta.stop();
}

/// In the plan's order, runs with keys and without follow each other: hosts that take turns would
/// have one of the two each.
#[test]
fn hosts_share_the_levels_of_each_factor() {
    let Some(lab) = Lab::new() else { return };
    let file = FILE.replace("[1, 2, 3, 4]", "[1, 2]").replace("[true]", "[true, false]");
    fs::write(lab.file(), file).unwrap();
    let workers = ["alpha", "beta"].map(|host| lab.worker(host, SLOW));
    for worker in &workers {
        wait_for("a worker", || worker.said().contains("waiting for runs"));
    }
    lab.enqueue();
    lab.wait(EXECUTIONS);
    lab.check("alpha,beta");
    // Whoever had two runs or more has both levels of both factors.
    let poor = "SELECT COUNT(*) FROM (SELECT t.host FROM turn t, run r WHERE t.run = r.id \
                GROUP BY t.host HAVING COUNT(*) > 1 AND (COUNT(DISTINCT r.primary_key) < 2 \
                OR COUNT(DISTINCT r.processors) < 2)) poor";
    let turns = lab.value("SELECT string_agg(host || ' ' || run, ', ') FROM turn");
    assert_eq!(lab.value(poor), "0", "{turns}");
    workers.into_iter().for_each(Worker::stop);
}

/// A laboratory without workers at a run of the queue: it has no heartbeat that could be missing.
#[test]
fn a_laboratory_without_workers_keeps_its_run() {
    let Some(lab) = Lab::new() else { return };
    lab.enqueue();
    let mut own = Store::open(&lab.server.url()).unwrap();
    own.set_host("gamma".to_owned());
    own.hold_host().unwrap();
    let run = own.runs(1).unwrap()[0].id;
    assert_eq!(own.hold_run(run).unwrap(), None);
    let alpha = lab.worker("alpha", SLOW);
    let left = "SELECT COUNT(*) FROM tidegate_job \
                WHERE last_error LIKE '%left to tidegate on gamma%'";
    wait_for("a run that is left", || lab.value(left) == "1");
    lab.wait(5);
    // The session is still there.
    assert!(own.experiment(1).unwrap().done >= 5);
    own.release_run(run).unwrap();
    lab.wait(EXECUTIONS);
    lab.check("alpha");
    assert_eq!(lab.attempts(), EXECUTIONS);
    alpha.stop();
}

#[test]
fn a_worker_that_is_interrupted_puts_its_run_back() {
    let Some(lab) = Lab::new() else { return };
    lab.enqueue();
    let alpha = lab.worker("alpha", SLOW);
    lab.wait(5);
    alpha.stop();
    let free = "SELECT COUNT(*) FROM tidegate_job WHERE worker IS NULL \
                AND attempts = 0";
    assert_eq!(lab.value(free), "4");
    let alpha = lab.worker("alpha", SLOW);
    lab.wait(EXECUTIONS);
    lab.check("alpha");
    alpha.stop();
}

#[test]
fn a_worker_that_was_silent_is_cut_off_and_goes_on() {
    let Some(lab) = Lab::new() else { return };
    lab.enqueue();
    let alpha = lab.worker("alpha", FAST);
    lab.wait(5);
    alpha.signal(Signal::STOP);
    let beta = lab.worker("beta", FAST);
    // All runs but alpha's first, and then also that one.
    lab.wait(EXECUTIONS);
    alpha.signal(Signal::CONT);
    wait_for("alpha's new session", || alpha.said().matches("waiting for runs").count() >= 2);
    assert!(alpha.said().contains("lost the store"), "{}", alpha.said());
    lab.check("alpha,beta");
    alpha.stop();
    beta.stop();
}

#[test]
fn a_store_that_restarts_is_waited_for() {
    let Some(mut lab) = Lab::new() else { return };
    lab.enqueue();
    let [alpha, beta] = ["alpha", "beta"].map(|host| lab.worker(host, FAST));
    lab.wait(10);
    lab.server.restart().unwrap();
    lab.wait(EXECUTIONS);
    lab.check("alpha,beta");
    for worker in [alpha, beta] {
        assert!(worker.said().contains("lost the store"), "{}", worker.said());
        worker.stop();
    }
}

#[test]
fn what_cannot_work_is_refused() {
    let Some(lab) = Lab::new() else { return };
    let file = lab.directory.path().join("results.db");
    let worker = |place: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let output = command.args(["lab", "worker", "--lab", place]).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = worker(file.to_str().unwrap());
    assert!(code == Some(2) && said.contains("--lab postgres://"), "{said}");
    assert!(!file.exists());
    let (code, said) = worker("postgres://postgres@127.0.0.1:1/postgres");
    assert!(code == Some(1) && said.contains("cannot connect"), "{said}");
    // A laboratory on the host of a worker waits for its turn.
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let busy = lab.worker(host.trim(), SLOW);
    wait_for("a worker", || busy.said().contains("waiting for runs"));
    let output = lab.tidegate(&["run", lab.file().to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("is taken by"), "{said}");
    busy.stop();
}

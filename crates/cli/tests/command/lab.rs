//! `tidegate lab` on a simulated subject: killed, interrupted, without space, without its store.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};
use tidegate_lab::experiment::{Choice, read};
use tidegate_lab::laboratory::Laboratory;
use tidegate_subject::connection::Transactional;
use tidegate_subject::firebird::Firebird;
use tidegate_subject::postgres;
use tidegate_workload::Random;

use crate::support::{Lab, PATIENCE, number, server, text};

/// 2 runs of 5 batchsets of 4 MPLs twice. An execution lasts a millionth of its time.
const FILE: &str = r#"
name = "try"
scenario = "thrash"
seed = 7
subjects = ["simulated"]
processors = [1, 2]
mpl = { from = 100, to = 400, step = 100 }
ctl = "5000s"
warmup = "0s"
repetitions = 2

[factors]
rows = 30000
primary_key = [true]
read_sf = [1.0]
rose = [100.0]
"#;
const EXECUTIONS: i64 = 80;

fn run(lab: &Lab) -> Child {
    lab.command(&["run", &lab.file()]).spawn().unwrap()
}

fn resume(lab: &Lab) -> Child {
    lab.command(&["resume", "1"]).spawn().unwrap()
}

/// Waits until a statement finds a number above 0, which it does soon.
fn wait_for(connection: &mut dyn Transactional, sql: &str) {
    let start = Instant::now();
    // At first there are no tables.
    while number(connection, sql).unwrap_or(0) == 0 {
        assert!(start.elapsed() < PATIENCE, "it never came to {sql}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn signal(child: &Child, signal: Signal) {
    // It may have ended by itself a moment ago, and is not waited for yet.
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// That each planned execution is there once, and each attempt came to an end or was cut off.
fn all_is_done_once(connection: &mut dyn Transactional, executions: i64, cut_off: i64) {
    let mut count = |sql: &str| number(connection, sql).unwrap();
    assert_eq!(count("SELECT COUNT(*) FROM experiment"), 1);
    assert_eq!(count("SELECT COUNT(*) FROM execution"), executions);
    assert_eq!(count("SELECT COUNT(*) FROM measurement"), executions);
    assert_eq!(count("SELECT COUNT(DISTINCT execution) FROM measurement"), executions);
    let attempts = count("SELECT COUNT(*) FROM attempt");
    let failures = count("SELECT COUNT(*) FROM failure");
    assert_eq!(attempts - executions - failures, cut_off, "{attempts} attempts");
    // The attempts of an execution are counted from 1, and the last one measured.
    let last = "SELECT COUNT(*) FROM measurement m, attempt a WHERE m.attempt = a.id \
                AND a.number = (SELECT COUNT(*) FROM attempt t WHERE t.execution = m.execution) \
                AND a.number = (SELECT MAX(t.number) FROM attempt t \
                WHERE t.execution = m.execution)";
    assert_eq!(count(last), executions);
    // What an execution saw is there in full, and for nothing that was not done.
    assert_eq!(count("SELECT COUNT(DISTINCT attempt) FROM interval_seen"), executions);
    assert_eq!(count("SELECT COUNT(*) FROM kind"), executions);
}

#[test]
fn killed_at_any_moment_it_ends_with_what_was_planned() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = u64::from(now.subsec_nanos());
    println!("seed {seed}");
    let mut draw = Random::new(seed, 0);
    let lab = Lab::new(FILE);
    for kill in 0..12 {
        let is_begun = lab.done(&["list"]).contains("1: try");
        let mut child = if is_begun { resume(&lab) } else { run(&lab) };
        let wait_ms = draw.between(0, 40 + 20 * kill);
        std::thread::sleep(Duration::from_millis(u64::try_from(wait_ms).unwrap()));
        signal(&child, Signal::KILL);
        child.wait().unwrap();
        let listed = lab.done(&["list"]);
        assert!(!listed.contains("2: "), "{listed}");
    }
    if !lab.done(&["list"]).contains("1: try") {
        lab.done(&["run", &lab.file()]);
    }
    let resumed = lab.done(&["resume", "1"]);
    assert!(resumed.contains("80 of 80 executions done"), "{resumed}");
    let mut connection = lab.open();
    let cut_off = "SELECT COUNT(*) FROM attempt a WHERE a.id NOT IN \
                   (SELECT attempt FROM measurement) AND a.id NOT IN (SELECT attempt FROM failure)";
    let cut_off = number(&mut connection, cut_off).unwrap();
    assert!(cut_off <= 12, "{cut_off} attempts cut off by 12 kills");
    all_is_done_once(&mut connection, EXECUTIONS, cut_off);
    // There is nothing left to resume.
    lab.done(&["resume", "1"]);
    all_is_done_once(&mut connection, EXECUTIONS, cut_off);
}

/// Two executions of two seconds each.
fn slow() -> String {
    FILE.replace("\"5000s\"", "\"2000000s\"\ninterval = \"1000000s\"")
        .replace("[1, 2]", "[1]")
        .replace("to = 400", "to = 100")
        .replace("repetitions = 2", "repetitions = 1")
        .replace("rows = 30000", "rows = 30000\nupdate_sf = [1.0]")
}

/// An attempt is under way.
const OPEN: &str = "SELECT COUNT(*) FROM attempt WHERE id NOT IN (SELECT attempt FROM measurement)";

#[test]
fn an_execution_that_was_cut_off_is_tried_again() {
    let lab = Lab::new(&slow());
    drop(lab.done(&["list"]));
    let mut connection = lab.open();
    let mut child = run(&lab);
    wait_for(&mut connection, OPEN);
    signal(&child, Signal::KILL);
    child.wait().unwrap();
    let attempts = lab.text_path("out/attempts.csv");
    lab.done(&["export", "1", "--out", &lab.text_path("out")]);
    assert!(fs::read_to_string(&attempts).unwrap().contains(",cut off,"));
    lab.done(&["resume", "1"]);
    all_is_done_once(&mut connection, 2, 1);
    let twice = "SELECT COUNT(*) FROM attempt WHERE number = 2";
    assert_eq!(number(&mut connection, twice), Some(1));
}

#[test]
fn ctrl_c_ends_with_a_word_on_how_to_go_on() {
    let lab = Lab::new(&slow());
    drop(lab.done(&["list"]));
    let mut connection = lab.open();
    let child = run(&lab);
    wait_for(&mut connection, OPEN);
    signal(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    stopped_resumably(&output);
    assert_eq!(number(&mut connection, "SELECT COUNT(*) FROM failure"), Some(1));
    lab.done(&["resume", "1"]);
    all_is_done_once(&mut connection, 2, 0);
}

#[test]
fn a_second_laboratory_on_a_file_is_refused() {
    let lab = Lab::new(&slow());
    drop(lab.done(&["list"]));
    let mut connection = lab.open();
    let mut child = run(&lab);
    wait_for(&mut connection, OPEN);
    let output = resume(&lab).wait_with_output().unwrap();
    let error = text(&output.stderr);
    let holder = format!("process {}: one laboratory measures into a file", child.id());
    assert!(output.status.code() == Some(1) && error.contains(&holder), "{error}");
    assert!(lab.done(&["show", "1"]).contains("of 2 executions done"));
    // Whoever is killed lets go.
    signal(&child, Signal::KILL);
    child.wait().unwrap();
    lab.done(&["resume", "1"]);
    all_is_done_once(&mut connection, 2, 1);
}

/// What cannot be had here any more is left, which is no success.
#[test]
fn what_is_left_is_said_and_is_an_exit_code() {
    let gone = tempfile::tempdir().unwrap();
    let url = format!("url = \"sqlite:{}\"", gone.path().join("lab.db").display());
    let file = slow().replace("\"2000000s\"", "\"1s\"");
    let file = file.replace("[\"simulated\"]", "[\"simulated\", \"sqlite\"]");
    let lab = Lab::new(&format!("{file}\n[subject.sqlite]\n{url}\n"));
    drop(lab.done(&["list"]));
    let experiment = read(&lab.path("e.toml"), &Choice::default()).unwrap();
    let mut laboratory = Laboratory::open(&lab.store, "none".into()).unwrap();
    laboratory.begin(&experiment).unwrap();
    drop((laboratory, gone));
    for _ in 0..2 {
        let output = resume(&lab).wait_with_output().unwrap();
        let (said, error) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{said} {error}");
        assert!(said.contains("left out: sqlite, 1 processor: "), "{said}");
        let left = "error: 2 of 4 executions done; `tidegate lab resume 1` tries the rest";
        assert!(error.contains(left), "{error}");
    }
}

#[test]
fn a_store_that_is_not_there_is_not_made_by_looking() {
    let lab = Lab::new(FILE);
    let out = lab.text_path("out");
    for arguments in
        [&["show", "1"][..], &["tap", "1"], &["resume", "1"], &["export", "1", "--out", &out]]
    {
        let output = lab.command(arguments).output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        let expected = format!("error: there is no result store {}: ", lab.store);
        assert!(error.starts_with(&expected), "{error}");
    }
    assert!(!Path::new(&lab.store).exists());
}

/// A condition that did not hold, and a check that was lost, are seen by all who look.
#[test]
fn a_violated_condition_has_an_exit_code_of_its_own() {
    let lab = Lab::new(&slow().replace("\"2000000s\"", "\"1s\""));
    lab.done(&["run", &lab.file()]);
    let connection = lab.open();
    connection.batch("DROP TRIGGER consistency_no_delete; DELETE FROM consistency").unwrap();
    // Nobody knows of a violation, so this is no failure.
    let resumed = lab.done(&["resume", "1"]);
    assert_eq!(resumed.matches(", start 1: not checked: ").count(), 2, "{resumed}");
    let violation = "INSERT INTO consistency (start, batchset, condition, violation) \
                     VALUES (1, 1, 'sums', '1 is not 2')";
    connection.batch(violation).unwrap();
    let output = resume(&lab).wait_with_output().unwrap();
    let (said, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(3), "{said} {error}");
    assert!(said.contains("run 1, batchset 1: sums: 1 is not 2"), "{said}");
    assert!(error.contains("error: consistency conditions violated: 1; "), "{error}");
    let shown: serde_json::Value =
        serde_json::from_str(&lab.done(&["show", "1", "--json"])).unwrap();
    assert_eq!(shown["violations"][0], "run 1, batchset 1: sums: 1 is not 2");
    assert_eq!(shown["unchecked"].as_array().unwrap().len(), 1, "{shown}");
}

/// Whoever is in the middle of a transaction: the server and its directory go with the program.
#[test]
fn ctrl_c_stops_a_firebird_with_clients_at_work() {
    if let Err(error) = Firebird::find() {
        println!("skipped: {error}");
        return;
    }
    let file = FILE
        .replace("simulated", "firebird")
        .replace("processors = [1, 2]\n", "")
        .replace("from = 100, to = 400, step = 100", "from = 8, to = 8, step = 1")
        .replace("\"5000s\"", "\"600s\"");
    let lab = Lab::new(&file);
    // The server runs as another user, who must get to its directory.
    fs::set_permissions(lab.directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    drop(lab.done(&["list"]));
    let mut connection = lab.open();
    let child = run(&lab);
    wait_for(&mut connection, OPEN);
    // Nothing outside tells when the clients are at work, which they are soon.
    std::thread::sleep(Duration::from_secs(2));
    signal(&child, Signal::INT);
    stopped_resumably(&child.wait_with_output().unwrap());
    let entries = fs::read_dir(lab.directory.path()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let left: Vec<String> = names.filter(|name| name.starts_with("tidegate-")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// It failed, and says how to go on.
fn stopped_resumably(output: &Output) -> String {
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("`tidegate lab resume 1` goes on"), "{error}");
    error
}

/// A file system of half a megabyte, in a mount namespace of its own, which grows when told to.
const FULL_DISK: &str = r#"
mount -t tmpfs -o size=$1 tmpfs "$DISK" || exit 77
"$TIDEGATE" --log-level off lab --store "$DISK/results.db" run "$FILE" > /dev/null
echo "exit code $?" >&2
mount -o remount,size=64m "$DISK" || exit 77
exec "$TIDEGATE" --log-level off lab --store "$DISK/results.db" resume 1
"#;

#[test]
fn a_full_disk_stops_it_until_there_is_space() {
    let lab = Lab::new(FILE);
    fs::create_dir(lab.text_path("disk")).unwrap();
    let output = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", FULL_DISK, "sh", "600k"])
        .env("DISK", lab.text_path("disk"))
        .env("FILE", lab.text_path("e.toml"))
        .env("TIDEGATE", env!("CARGO_BIN_EXE_tidegate"))
        .output();
    let Ok(output) = output else {
        println!("skipped: there is no unshare");
        return;
    };
    let error = text(&output.stderr);
    if output.status.code() == Some(77) || error.starts_with("unshare: ") {
        println!("skipped: nothing can be mounted here: {error}");
        return;
    }
    assert!(output.status.success(), "{error}");
    assert!(error.contains("exit code 1"), "{error}");
    assert!(error.contains("database or disk is full"), "{error}");
    assert!(error.contains("`tidegate lab resume 1` goes on"), "{error}");
    let said = text(&output.stdout);
    assert!(said.contains("80 of 80 executions done"), "{said}");
}

#[test]
fn a_lost_connection_to_the_store_stops_it_until_there_is_one() {
    let Some(server) = server(postgres::Options::default()) else { return };
    let mut lab = Lab::new(&slow());
    lab.store = server.url();
    let mut connection = server.connect().unwrap();
    let child = run(&lab);
    wait_for(&mut connection, OPEN);
    let end = "SELECT COUNT(pg_terminate_backend(pid)) FROM pg_stat_activity \
               WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    assert_eq!(number(&mut connection, end), Some(1));
    let error = stopped_resumably(&child.wait_with_output().unwrap());
    assert!(error.contains("the result store failed"), "{error}");
    lab.done(&["resume", "1"]);
    all_is_done_once(&mut connection, 2, 1);
}

/// Databases that run in our own process take the processors of the whole laboratory, and give them
/// back.
#[test]
fn each_run_has_its_processors_and_leaves_all_to_the_next() {
    let count = std::thread::available_parallelism().unwrap().get();
    if count < 2 {
        eprintln!("skipped: one processor only");
        return;
    }
    let lab = Lab::new(
        "name = \"two\"\nscenario = \"characterise\"\nsubjects = [\"sqlite\", \"embedded\"]\n\
         processors = [1, 2]\nmpl = [2]\nctl = \"200ms\"\nwarmup = \"100ms\"\n\
         [workload]\nkind = \"ds2\"\n",
    );
    lab.done(&["run", &lab.file()]);
    let mut store = lab.open();
    let mut count = |sql: &str| number(&mut store, sql).unwrap();
    assert_eq!(count("SELECT COUNT(*) FROM measurement"), 4);
    let joined = "FROM measurement m, execution x, batchset b, run r \
                  WHERE m.execution = x.id AND x.batchset = b.id AND b.run = r.id";
    let others = format!("SELECT COUNT(*) {joined} AND m.processors <> r.processors");
    assert_eq!(count(&others), 0);
    assert_eq!(count("SELECT COUNT(*) FROM machine"), 1);
    let left = fs::read_dir(lab.directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let is_ours = |name: &str| name == "e.toml" || name.starts_with("results.db");
    let left: Vec<_> = left.filter(|name| !is_ours(&name.to_string_lossy())).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Workers need a store that all of them reach, which a file is not: neither a plan nor the file is
/// left behind.
#[test]
fn workers_refuse_a_store_in_a_file_before_a_plan_is_written() {
    let lab = Lab::new(FILE);
    let output = lab.command(&["run", &lab.file(), "--workers"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let files = fs::read_dir(lab.directory.path()).unwrap();
    assert_eq!(files.count(), 1, "something was written");
    lab.done(&["run", &lab.file()]);
    let output = lab.command(&["resume", "1", "--workers"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(lab.done(&["list"]).lines().count(), 1);
}

#[test]
fn a_bad_file_is_refused_before_anything_is_there() {
    for (from, to, expected) in [
        ("seed = 7", "seed = 7\ncolour = 1", "line 5"),
        ("seed = 7", "seed = \"seven\"", "line 4"),
        ("\"5000s\"", "\"soon\"", "`soon` is no length of time"),
        ("\"5000s\"", "\"0s\"", "line 8: `ctl` must be longer than nothing"),
        ("to = 400", "to = 50", "line 7: `mpl` names no level"),
        ("[\"simulated\"]", "[]", "line 5: `subjects` is empty"),
        ("ctl = \"5000s\"", "", "the key `ctl` is missing"),
        ("[\"simulated\"]", "[\"oracle\"]", "no subject is called `oracle`: use postgres"),
        ("rose = [100.0]", "rose = [0.0]", "0 is no share"),
        ("rose = [100.0]", "rose = []", "line 12: `factors` leaves no batchset"),
        ("rose = [100.0]", "rose = [100.0", "line 16"),
    ] {
        let lab = Lab::new(&FILE.replace(from, to));
        for command in ["run", "plan"] {
            let output = lab.command(&[command, &lab.file()]).output().unwrap();
            let error = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{to}: {error}");
            assert!(error.contains("e.toml: ") && error.contains(expected), "{to}: {error}");
        }
        let files = fs::read_dir(lab.directory.path()).unwrap();
        assert_eq!(files.count(), 1, "{to}: something was written");
    }
    let lab = Lab::new(FILE);
    let (file, many) = (lab.text_path("e.toml"), lab.text_path("many.toml"));
    fs::write(&many, FILE.replace("[1, 2]", "[4096]")).unwrap();
    for (arguments, expected) in [
        (&["run", "none.toml"][..], "cannot read none.toml"),
        (&["run", &file, "--preset", "big"], "no preset `big`"),
        (&["run", &many, "--subject", "sqlite"], "line 6: `processors`: 4096 are wanted, but"),
        (&["run", &file, "--subject", "oracle"], "no subject is called `oracle`"),
        (&["export", "1", "--format", "xls", "--out", "out"], "no format is called `xls`"),
    ] {
        let output = lab.command(arguments).output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(fs::read_dir(lab.directory.path()).unwrap().count(), 2);
}

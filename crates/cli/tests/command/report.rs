//! `tidegate report` with an interpreter that only writes down what it is told.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tidegate_subject::connection::Transactional;
use tidegate_subject::postgres;
use tidegate_subject::sqlite::SqliteConnection;

use crate::support::{Lab, number, server, text, tidegate, wait_until};

/// One curve and one course of a controller.
const THRASH: &str = r#"
name = "curve"
scenario = "thrash"
subjects = ["simulated"]
processors = [1]
mpl = [100, 200]
ctl = "2s"
warmup = "0s"

[factors]
rows = 30000
primary_key = [true]
read_sf = [1.0]
update_sf = []
rose = [100.0]
"#;
const AUTOTUNE: &str = r#"
name = "course"
scenario = "autotune"
subjects = ["simulated"]
mpl = [16]
clients = 200
ctl = "2s"
warmup = "0s"

[factors]
control = ["gaussian-process"]

[workload]
kind = "point-select"
"#;

/// Has the package; notes its arguments and what it knows of the store.
const NOTES: &str = r#"#!/bin/sh
[ "$1" = -c ] && exit 0
printf '%s\n' "$@" "store $TIDEGATE_STORE" > "$NOTES"
echo "written"
echo "a warning" >&2
exit "${CODE:-0}"
"#;

/// A laboratory, and an interpreter for the package.
struct Bench(Lab);

impl Bench {
    /// A store with experiment 1, a curve, and 2, which is none.
    fn new() -> Bench {
        Bench(Lab::new(THRASH)).filled()
    }

    fn filled(self) -> Bench {
        for file in [THRASH, AUTOTUNE] {
            fs::write(self.0.file(), file).unwrap();
            self.0.done(&["run", &self.0.file()]);
        }
        self
    }

    fn script(&self, name: &str, script: &str) -> PathBuf {
        let path = self.0.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn report(&self, python: &Path, experiments: &[&str]) -> Command {
        let mut command = tidegate(&["report", "--store", &self.0.store, "--out", "there"]);
        command.args(experiments).current_dir(self.0.directory.path());
        command.env("TIDEGATE_PYTHON", python).env("NOTES", self.0.path("notes"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn notes(&self) -> String {
        fs::read_to_string(self.0.path("notes")).unwrap()
    }
}

fn count(connection: &mut dyn Transactional, sql: &str) -> i64 {
    number(connection, sql).unwrap()
}

#[test]
fn curves_are_analysed_and_the_package_writes_the_report() {
    let bench = Bench::new();
    let python = bench.script("python", NOTES);
    let output = bench.report(&python, &["1", "2"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!((text(&output.stdout), text(&output.stderr)), (say("written"), say("a warning")));
    let store = &bench.0.store;
    let expected = format!(
        "-m\ntidegate_analysis\nreport\n--store\n{store}\n--out\nthere\n1\n2\nstore {store}\n"
    );
    assert_eq!(bench.notes(), expected);
    let mut connection = bench.0.open();
    let analyses = |connection: &mut SqliteConnection| {
        let all = count(connection, "SELECT COUNT(*) FROM analysis");
        (all, count(connection, "SELECT COUNT(*) FROM analysis WHERE experiment = 1"))
    };
    assert_eq!(analyses(&mut connection), (1, 1));

    // The package's own end is ours, and the analysis was made before it.
    let output = bench.report(&python, &["1"]).env("CODE", "3").output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(3), say("a warning")));
    assert_eq!(analyses(&mut connection), (2, 2));

    // An interpreter in the directory of the analysis is found there.
    bench.script("analysis/.venv/bin/python", &NOTES.replace("written", "by its own"));
    let mut command = bench.report(Path::new(""), &["1"]);
    assert_eq!(text(&command.output().unwrap().stdout), say("by its own"));
}

fn say(line: &str) -> String {
    format!("{line}\n")
}

#[test]
fn what_is_missing_is_said_with_what_installs_it() {
    let bench = Bench::new();
    let without = bench.script("without", "#!/bin/sh\nexit 1\n");
    let python = bench.script("python", NOTES);
    for (python, experiments, expected) in [
        (&bench.0.path("nowhere"), &["1"][..], "nowhere: No such file"),
        (&without, &["1"], "without has no package tidegate_analysis; `make analysis` installs"),
        (&python, &["1", "7"], "no experiment 7"),
    ] {
        let output = bench.report(python, experiments).output().unwrap();
        let error = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()));
        assert!(error.contains(expected), "{error}");
        assert!(expected.starts_with("no ") || error.contains("`make analysis` installs"));
    }
    assert!(!bench.0.path("notes").exists(), "the package was run");
    let mut connection = bench.0.open();
    assert_eq!(count(&mut connection, "SELECT COUNT(*) FROM analysis"), 0);
    let typo = Bench(Lab { store: "typo.db".to_owned(), ..Lab::new(THRASH) });
    let error = text(&typo.report(&python, &["1"]).output().unwrap().stderr);
    assert!(error.contains("there is no result store typo.db"), "{error}");
    assert!(!typo.0.path("typo.db").exists() && !typo.0.path("notes").exists());
}

#[test]
fn an_interrupt_stops_the_package_too() {
    let bench = Bench::new();
    let endless = "#!/bin/sh\n[ \"$1\" = -c ] && exit 0\n\
                   echo $$ > \"$NOTES.new\"; mv \"$NOTES.new\" \"$NOTES\"; exec sleep 1000\n";
    let python = bench.script("python", endless);
    let child = bench.report(&python, &["1"]).spawn().unwrap();
    wait_until("the package runs", || bench.0.path("notes").exists());
    let package: i32 = bench.notes().trim().parse().unwrap();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("interrupted"), "{}", text(&output.stderr));
    assert!(test_kill_process(Pid::from_raw(package).unwrap()).is_err(), "it still runs");
}

#[test]
fn a_password_is_in_nobodys_arguments() {
    let Some(server) = server(postgres::Options::default()) else { return };
    let bench = Bench(Lab { store: server.url(), ..Lab::new(THRASH) }).filled();
    let python = bench.script("python", NOTES);
    let output = bench.report(&python, &["1"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let expected = "-m\ntidegate_analysis\nreport\n--out\nthere\n1\nstore ";
    assert_eq!(bench.notes(), format!("{expected}{}\n", server.url()));
    let mut connection = server.connect().unwrap();
    assert_eq!(count(&mut connection, "SELECT COUNT(*) FROM analysis"), 1);
}

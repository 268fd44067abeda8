//! `tidegate bench control` end to end, on a real server.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// `tidegate bench control --quick`, with its servers and results below `place`.
fn bench(place: &TempDir, arguments: &[&str]) -> Command {
    // The server runs as another user, who must reach its directory.
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command
        .args(["bench", "control", "--quick"])
        .arg("--out")
        .arg(place.path().join("out"))
        .args(arguments)
        .env("TMPDIR", place.path())
        .stdin(Stdio::null());
    command
}

/// Servers' directories that were left.
fn servers(place: &Path) -> Vec<String> {
    let entries = fs::read_dir(place).unwrap().map(|entry| entry.unwrap().file_name());
    let names = entries.map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("tidegate-postgres")).collect()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("not a number: {value}"))
}

#[test]
fn a_switch_is_swept_run_scored_and_written_down() {
    let place = tempfile::tempdir().unwrap();
    let output = bench(
        &place,
        &[
            "--workloads=switch",
            "--controllers=hill-climbing",
            "--limits=2,8",
            "--start=8",
            "--clients=16",
            "--sweep-s=0.3",
            "--run-s=3",
        ],
    )
    .output()
    .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    let out = place.path().join("out");
    let json = fs::read_to_string(out.join("bench-control.json")).unwrap();
    let report: Value = serde_json::from_str(&json).unwrap();

    // Two workloads at two limits, both again before and after the one controller.
    let cells = report["cells"].as_array().unwrap();
    let count = |purpose: &str| cells.iter().filter(|cell| cell["purpose"] == purpose).count();
    assert_eq!((count("sweep"), count("reference"), count("controller")), (4, 8, 1), "{stderr}");
    assert!(cells.iter().all(|cell| cell["failure"].is_null() && !cell["load"].is_null()));
    assert_eq!(report["inconsistent"], Value::Array(Vec::new()));

    let run = cells.iter().find(|cell| cell["purpose"] == "controller").unwrap();
    let phases = run["load"]["phases"].as_array().unwrap();
    let works: Vec<_> = phases.iter().map(|phase| phase["workload"].as_str().unwrap()).collect();
    assert_eq!(works, ["tpcb", "tpcb", "thrash", "thrash"]);
    assert!(!run["intervals"].as_array().unwrap().is_empty());
    assert!(out.join("switch-hill-climbing.jsonl").exists());

    let scenario = &report["scenarios"][0];
    let score = &scenario["controllers"][0];
    assert_eq!(score["controller"], "hill-climbing");
    for (index, work) in ["tpcb-1", "thrash-read"].into_iter().enumerate() {
        let (phase, reference) = (&score["phases"][index], &scenario["references"][index]);
        assert_eq!((&phase["work"], &reference["work"]), (&work.into(), &work.into()));
        assert!(number(&phase["whole"]) > 0.0 && number(&phase["settled"]) > 0.0, "{phase}");
        let halves = [2 * index, 2 * index + 1].map(|half| number(&phases[half]["transactions"]));
        let seconds = [2 * index, 2 * index + 1].map(|half| number(&phases[half]["seconds"]));
        let tps = halves.iter().sum::<f64>() / seconds.iter().sum::<f64>();
        let share = tps / number(&phase["best_tps"]);
        assert!((share - number(&phase["whole"])).abs() < 1e-9, "{phase}");
    }
    let stdout = String::from_utf8_lossy(&output.stdout);
    for part in ["switch, phase 2: thrash-read", "hill-climbing", "all phases %"] {
        assert!(stdout.contains(part), "{stdout}");
    }
    let document = fs::read_to_string(out.join("bench-control.md")).unwrap();
    assert!(document.contains("max_connections 2100, shared_buffers 256MB"), "{document}");
    let figure = fs::read_to_string(out.join("bench-control.svg")).unwrap();
    assert!(figure.contains("switch, phase 1: tpcb-1"), "{figure}");
    assert_eq!(servers(place.path()), [""; 0]);
}

/// Interrupts the child when a line of its standard error contains `sign`; what else it says.
fn interrupt_at(child: &mut Child, sign: &str) -> String {
    let mut said = String::new();
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        if line.contains(sign) {
            kill_process(Pid::from_child(child), Signal::INT).unwrap();
        }
        said = said + &line + "\n";
    }
    said
}

#[test]
fn ctrl_c_leaves_nothing_behind() {
    // While a table is loaded that takes its time, and while clients run through a proxy.
    for (workload, sign) in [("tpcb-50", "loading"), ("thrash-update", "fixed:")] {
        let place = tempfile::tempdir().unwrap();
        let mut command = bench(&place, &["--workloads", workload, "--sweep-s=60"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let said = interrupt_at(&mut child, sign);
        assert_eq!(child.wait().unwrap().code(), Some(1), "{said}");
        assert!(said.ends_with("error: cancelled\n"), "{said}");
        assert_eq!(servers(place.path()), [""; 0], "{said}");
        assert!(!place.path().join("out/bench-control.json").exists());
    }
}

#[test]
fn flags_that_make_no_sense_are_refused() {
    for (flags, wrong) in [
        (["--workloads", "tpcc"], "thrash-update, switch"),
        (["--controllers", "vega"], "no algorithm is called `vega`"),
        (["--limits", "0"], "positive number"),
        (["--run-s", "0"], "above zero"),
        (["--run-s", "nan"], "above zero"),
        (["--rows", "0"], "give 1 to"),
        (["--clients", "1001"], "between 1 and 1000"),
    ] {
        let place = tempfile::tempdir().unwrap();
        let output = bench(&place, &flags[..]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(wrong), "{stderr}");
    }
}

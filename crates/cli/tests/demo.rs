//! `tidegate demo` end to end, on the embedded engine.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// `tidegate demo --quick --db embedded`, with its store and results below `place`.
fn demo(place: &TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command
        .args(["demo", "--quick", "--db", "embedded", "--out"])
        .arg(place.path().join("out"))
        .env("TMPDIR", place.path())
        .stdin(Stdio::null());
    command
}

/// What there is below `place`, but for the results.
fn left(place: &Path) -> Vec<String> {
    let entries = fs::read_dir(place).unwrap().map(|entry| entry.unwrap().file_name());
    let names = entries.map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| name != "out").collect()
}

#[test]
fn the_engine_is_loaded_run_both_ways_and_summed_up() {
    let place = tempfile::tempdir().unwrap();
    let output = demo(&place).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("On the embedded engine, as asked for"), "{stderr}");
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(table.contains("all balances agree") && table.contains(" 0 errors"), "{table}");

    let out = place.path().join("out");
    let summary = fs::read_to_string(out.join("summary.json")).unwrap();
    let summary: Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(summary["database"], "embedded");
    assert!(summary["database_version"].is_string());
    let settings = summary["database_settings"].as_array().unwrap();
    assert!(settings.iter().any(|setting| setting[0] == "buffer"), "{settings:?}");
    let steps = summary["steps"].as_array().unwrap();
    let clients: Vec<_> = steps.iter().map(|step| step["clients"].as_u64().unwrap()).collect();
    assert_eq!(clients, [4, 64]);
    let count = |report: &Value, name: &str| report[name].as_u64().unwrap();
    let mut committed = 0;
    for report in steps.iter().flat_map(|step| [&step["direct"], &step["proxied"]]) {
        assert!(count(report, "transactions") > 0, "{report}");
        committed += count(report, "transactions") + count(report, "warmup_transactions");
        committed += count(report, "late_commits");
    }
    assert_eq!(count(&summary, "history_rows"), committed);
    assert!(fs::read_to_string(out.join("report.svg")).unwrap().contains("the embedded engine"));
    assert!(!out.join("proxy.log").exists());
    assert_eq!(left(place.path()), [""; 0]);

    // The journal is one that the decisions can be made again from.
    let mut replay = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let replayed = replay.arg("replay").arg(out.join("journal.jsonl")).output().unwrap();
    let said = String::from_utf8_lossy(&replayed.stdout).into_owned();
    assert!(replayed.status.success() && said.contains("embedded"), "{said} {replayed:?}");
}

#[test]
fn ctrl_c_leaves_nothing_behind() {
    for sign in ["Loading", "direct", "through"] {
        let place = tempfile::tempdir().unwrap();
        let mut child = demo(&place).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        for line in BufReader::new(child.stderr.take().unwrap()).lines() {
            let line = line.unwrap();
            if line.contains(sign) {
                // It may have ended by itself a moment ago.
                let _ = kill_process(Pid::from_child(&child), Signal::INT);
            }
            said = said + &line + "\n";
        }
        assert_eq!(child.wait().unwrap().code(), Some(1), "{said}");
        assert!(said.ends_with("error: cancelled\n"), "{said}");
        assert_eq!(left(place.path()), [""; 0], "{said}");
    }
}

#[test]
fn an_unknown_database_is_refused() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let output = command.args(["demo", "--db", "oracle"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("use postgres or embedded"), "{stderr}");
}

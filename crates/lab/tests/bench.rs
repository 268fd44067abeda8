//! A benchmark that cannot be run says why, and leaves nothing behind.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_control::{Algorithm, Mpl};
use tidegate_lab::bench::{BenchError, BenchOptions, BenchScenario, Ranges, run};
use tidegate_lab::rig::DatabaseChoice;

fn thrash() -> Ranges {
    Ranges::new(30_000).unwrap()
}

fn all(tidegate: &str, out: &Path) -> BenchOptions {
    let database = DatabaseChoice::named("postgres").unwrap();
    BenchOptions::new(database, thrash(), tidegate.into(), out.into(), "test".into())
}

fn options(tidegate: &str, out: &Path) -> BenchOptions {
    BenchOptions { scenarios: vec![BenchScenario::ThrashRead], ..all(tidegate, &out.join("bench")) }
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_starts() {
    let out = tempfile::tempdir().unwrap();
    let good = || options("false", out.path());
    let mut no_time = good();
    no_time.sweep.measured = Duration::ZERO;
    for (options, wrong) in [
        (BenchOptions { clients: 0, ..good() }, "number of clients"),
        (BenchOptions { clients: 1001, ..good() }, "number of clients"),
        (BenchOptions { scenarios: vec![], ..good() }, "at least one workload"),
        (BenchOptions { controllers: vec![], ..good() }, "at least one workload"),
        // Limits above the number of clients are none.
        (
            BenchOptions { clients: 4, limits: vec![Mpl::at_least_one(5)], ..good() },
            "one limit within the clients",
        ),
        (BenchOptions { run: Duration::ZERO, ..good() }, "above zero"),
        (no_time, "above zero"),
    ] {
        let error = run(&options, &AtomicBool::new(false), &mut |_| {}).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains(wrong), "{error}");
    }
    assert!(!out.path().join("bench").exists());
}

#[test]
fn when_no_fixed_limit_can_be_run_the_reason_is_given() {
    let out = tempfile::tempdir().unwrap();
    let mut messages = Vec::new();
    let two = [1, 2].map(Mpl::at_least_one).to_vec();
    let options = BenchOptions { limits: two, ..options("false", out.path()) };
    let error = run(&options, &AtomicBool::new(false), &mut |update| {
        messages.push(update.message.clone());
    })
    .unwrap_err();
    let text = error.to_string();
    assert!(text.contains("thrash-read") && text.contains("proxy.log"), "{text}");
    assert!(!error.is_usage());
    // Each failed run was told of when it failed.
    let failed = messages.iter().filter(|message| message.contains("ended with")).count();
    assert_eq!(failed, 2, "{messages:?}");
}

#[test]
fn a_cancelled_benchmark_ends() {
    let out = tempfile::tempdir().unwrap();
    let cancel = AtomicBool::new(false);
    let options = options("false", out.path());
    let result = run(&options, &cancel, &mut |update| {
        cancel.store(update.message.contains("loading"), Ordering::Relaxed);
    });
    assert!(matches!(result, Err(BenchError::Cancelled)), "{result:?}");
}

#[test]
fn the_plan_grows_with_what_is_asked_for() {
    let all = all("tidegate", Path::new("out"));
    let longer = BenchOptions { run: all.run * 2, ..all.clone() };
    // Every controller on four workloads and, twice as long, a switch: six times the run more. And
    // two fixed limits of each, before the controllers and after every sixth, for as long.
    let more_s = longer.planned_s() - all.planned_s();
    let controllers = all.controllers.len();
    let runs = 6.0 * (controllers + 2 * (1 + controllers.div_ceil(6))) as f64;
    assert!((more_s - runs * all.run.as_secs_f64()).abs() < 1e-6, "{more_s}");
    // A workload that was swept for itself is not swept again for the switch.
    let of = |scenarios: &[BenchScenario]| {
        BenchOptions { scenarios: scenarios.to_vec(), ..all.clone() }.planned_s()
    };
    let apart_s = of(&[BenchScenario::Switch])
        + of(&[BenchScenario::Tpcb1])
        + of(&[BenchScenario::ThrashRead]);
    let together_s = of(&[BenchScenario::Switch, BenchScenario::Tpcb1, BenchScenario::ThrashRead]);
    let sweeps_s = 2.0 * 13.0 * all.sweep.measured.as_secs_f64();
    assert!(apart_s - together_s > sweeps_s, "{apart_s} and {together_s}");
    assert!(all.clone().quick().planned_s() < 120.0);
    // As the Makefile says: with 19 controllers 50 minutes.
    assert!((30.0..51.0).contains(&(all.planned_s() / 60.0)), "{}", all.planned_s());
}

#[test]
fn the_embedded_engine_is_swept_controlled_and_scored() {
    let out = tempfile::tempdir().unwrap();
    let database = DatabaseChoice::named("embedded").unwrap();
    let whole =
        BenchOptions::new(database, thrash(), "false".into(), out.path().into(), "test".into());
    let mut quick = BenchOptions {
        scenarios: vec![BenchScenario::Switch],
        controllers: vec![Algorithm::HillClimbing],
        limits: [2, 16].map(Mpl::at_least_one).to_vec(),
        clients: 16,
        start: Mpl::at_least_one(16),
        run: Duration::from_millis(1500),
        ..whole.quick()
    };
    quick.sweep.measured = Duration::from_millis(300);
    let report = run(&quick, &AtomicBool::new(false), &mut |_| {}).unwrap();
    assert_eq!(report.database.dbms.name, "embedded");
    assert_eq!(report.troubles(), [""; 0]);
    let names: Vec<&str> = report.scenarios.iter().map(|scenario| scenario.scenario).collect();
    assert_eq!(names, ["switch"]);
    let controller = &report.scenarios[0].controllers[0];
    assert_eq!((controller.controller.as_str(), controller.phases.len()), ("hill-climbing", 2));
    assert!(controller.phases.iter().all(|phase| phase.whole > 0.0), "{controller:?}");
    let run = report.cells.iter().find(|cell| !cell.intervals.is_empty()).unwrap();
    assert_eq!(run.intervals[0].limit, 16, "{run:?}");
    for file in ["bench-control.json", "bench-control.md", "switch-hill-climbing.jsonl"] {
        assert!(out.path().join(file).exists(), "{file}");
    }
    let document = std::fs::read_to_string(out.path().join("bench-control.md")).unwrap();
    assert!(document.starts_with("# Controllers on the embedded engine"), "{document}");
    assert!(!out.path().join("proxy.log").exists());
}

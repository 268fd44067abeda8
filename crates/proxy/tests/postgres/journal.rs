//! What is recorded while a real database is under load, and making the decisions again.

use std::path::Path;

use tidegate_control::{Algorithm, Mpl};
use tidegate_gate::journal::{self, Decided, Run};
use tidegate_subject::postgres::{Authentication, Postgres};

use crate::load::{run, with_tables};
use crate::support::eventually;
use crate::support::server::{own_server, setup};

const CLIENTS: u32 = 16;
const DECISIONS: usize = 4;

/// Runs a load until an algorithm has decided a few times more; the page of metrics at the end.
fn record(server: &Postgres, algorithm: Algorithm, journal: &Path) -> String {
    let proxy = setup(server, "transaction")
        .threads(2)
        .line(&format!("journal = \"{}\"", journal.display()))
        .database_line(&format!("control = \"{algorithm}\"\nmax_mpl = 40\nstart_mpl = 3\ncpus = 2"))
        .start();
    let mut load = run(&proxy, CLIENTS, 600, &["-M", "prepared"]).spawn().unwrap();
    eventually("enough decisions", || {
        let last = journal::read(journal).unwrap().runs.pop().unwrap();
        (last.decisions.len() >= DECISIONS).then_some(())
    });
    let page = proxy.get("/metrics");
    load.kill().unwrap();
    load.wait().unwrap();
    proxy.is_left_clean();
    page
}

/// The numbers are those of a gate that works.
fn assert_plausible(decided: &Decided) {
    let seen = &decided.observation;
    let times = seen.in_database;
    // Those that were discounted, when the machine stood still, end without a time.
    assert!(times.count > 0 && times.count <= seen.completions + seen.failures, "{seen:?}");
    assert!(times.min_s > 0.0 && times.min_s <= times.mean_s, "{seen:?}");
    assert!(times.min_s <= times.p50_s * 1.01 && times.p50_s <= times.p99_s, "{seen:?}");
    assert!(seen.running_mean > 0.0 && seen.running_mean <= seen.concurrency_mean, "{seen:?}");
    assert!(seen.concurrency_peak <= CLIENTS, "{seen:?}");
    assert_eq!(seen.classes.len(), 2);
}

/// In each observation the limit is what was decided before, the start at first.
fn assert_unbroken(run: &Run) {
    let mut limit = run.control.setting.start;
    for decided in &run.decisions {
        assert_eq!(decided.observation.limit, limit, "{decided:?}");
        limit = decided.next_limit;
    }
}

#[test]
fn a_real_load_is_decided_again_as_it_was() {
    let server = own_server(Authentication::Trust);
    with_tables(&setup(&server, "transaction").start());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.jsonl");
    let algorithms = [Algorithm::default(), Algorithm::HillClimbing, Algorithm::GlobalParabola];
    for algorithm in algorithms {
        let page = record(&server, algorithm, &path);
        let run = journal::read(&path).unwrap().runs.pop().unwrap();
        let last = run.decisions.iter().rev().find(|decided| page.contains(&decided.reason));
        let Decided { server, controller, reason, .. } = last.expect("the page tells the reason");
        let labels = format!("server=\"{server}\",controller=\"{controller}\",reason=\"{reason}\"");
        let info = format!("tidegate_limit_reason_info{{{labels}}} 1\n");
        assert!(page.contains(&info), "{info}{page}");
    }

    let recorded = journal::read(&path).unwrap();
    assert_eq!(recorded.cut_off, [0; 0]);
    assert_eq!(recorded.runs.len(), algorithms.len());
    for (run, algorithm) in recorded.runs.iter().zip(algorithms) {
        assert_eq!(run.control.algorithm, algorithm);
        assert_eq!(run.control.setting.bounds.max(), Mpl::at_least_one(40));
        assert_eq!(run.control.setting.resources.cpus, 2);
        assert!(run.decisions.len() >= DECISIONS);
        run.decisions.iter().for_each(assert_plausible);
        assert_unbroken(run);
        assert_eq!(run.first_difference(), None);
    }
}

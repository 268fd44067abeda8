//! A controller that is asked and not obeyed, beside a real database.

use std::path::Path;
use std::process::Child;

use tidegate_control::{Algorithm, ControlChoice, Mpl};
use tidegate_gate::journal::{self, Run};
use tidegate_subject::postgres::Authentication;

use crate::load::run;
use crate::support::server::{own_server, setup};
use crate::support::{Proxy, eventually};

/// Every transaction takes as long, however many there are: throughput is in proportion to the
/// clients, and a limit only loses.
const SCRIPT: &str = "SELECT pg_sleep(0.02);\n";

const HIGHEST: u64 = 60;

/// So many clients of [`SCRIPT`].
fn load(proxy: &Proxy, clients: u32, script: &str) -> Child {
    run(proxy, clients, 600, &["-f", script]).spawn().unwrap()
}

/// Waits for this text in the metrics, while the limit stays the highest allowed.
fn wait_for(proxy: &Proxy, text: &str) {
    eventually(&format!("{text} in {}", proxy.get("/metrics")), || {
        let page = proxy.get("/metrics");
        assert_eq!(proxy.metric("tidegate_limit"), HIGHEST, "{page}");
        page.contains(text).then_some(())
    });
}

/// Waits for two more decisions from a population between these.
fn wait_for_population(journal: &Path, least: f64, most: f64) {
    let seen = || {
        let run = journal::read(journal).unwrap().runs.pop().unwrap();
        let is_seen = |mean: f64| least <= mean && mean <= most;
        run.decisions.iter().filter(|one| is_seen(one.observation.running_mean)).count()
    };
    let before = seen();
    eventually("a population", || (seen() >= before + 2).then_some(()));
}

/// The value of a metric that may not be a whole number.
fn value(proxy: &Proxy, name: &str) -> f64 {
    let page = proxy.get("/metrics");
    let line = page.lines().find(|line| line.starts_with(&format!("{name}{{")));
    let value = line.and_then(|line| line.rsplit_once(' ')).map(|(_, value)| value.parse());
    value.unwrap_or_else(|| panic!("{name}: {page}")).unwrap()
}

fn stop(mut load: Child) {
    load.kill().unwrap();
    load.wait().unwrap();
}

fn assert_open(run: &Run, algorithm: Algorithm) {
    assert_eq!((run.control.algorithm, run.control.is_observing), (algorithm, true));
    let highest = Mpl::at_least_one(60);
    for decided in &run.decisions {
        assert_eq!((decided.observation.limit, decided.next_limit), (highest, highest));
        assert_eq!(decided.controller, "observe");
        let proposal = decided.proposal.as_ref().expect("a proposal for each decision");
        assert_eq!(proposal.controller, algorithm.name());
    }
    assert_eq!(run.first_difference(), None);
}

/// With clients that stay it does not know; when their number has varied it does.
#[test]
fn the_gate_stays_open_and_the_proposal_is_told() {
    let server = own_server(Authentication::Trust);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.jsonl");
    let script = directory.path().join("script.sql");
    std::fs::write(&script, SCRIPT).unwrap();
    let script = script.to_str().unwrap();
    let fixed = Algorithm::Fixed(Mpl::at_least_one(6));
    for algorithm in [fixed, ControlChoice::ASKED] {
        let control = format!("control = \"observe:{algorithm}\"\nmax_mpl = {HIGHEST}");
        let proxy = setup(&server, "transaction")
            .line(&format!("journal = \"{}\"", path.display()))
            .database_line(&control)
            .start();
        let few = load(&proxy, 4, script);
        wait_for(&proxy, "all the time");
        assert!(!proxy.get("/metrics").contains("tidegate_observed_best_limit{"));
        let mut many = load(&proxy, 36, script);
        for _ in 0..3 {
            wait_for_population(&path, 30.0, 40.0);
            stop(many);
            wait_for_population(&path, 2.0, 4.0);
            many = load(&proxy, 36, script);
        }
        wait_for(&proxy, "no limit: throughput does not fall up to the highest level seen");
        if algorithm == fixed {
            assert_eq!(proxy.metric("tidegate_observed_limit"), 6);
            // Of 40 only 6 would run: 85 % less.
            let gain = ["", "_low", "_high"]
                .map(|end| value(&proxy, &format!("tidegate_observed_gain{end}")));
            assert!(gain[1] <= gain[0] && gain[0] <= gain[2], "{gain:?}");
            assert!(-0.95 < gain[1] && gain[2] < -0.7, "{gain:?}");
        }
        stop(many);
        stop(few);
        proxy.is_left_clean();
        drop(proxy);
        assert_open(&journal::read(&path).unwrap().runs.pop().unwrap(), algorithm);
    }
}

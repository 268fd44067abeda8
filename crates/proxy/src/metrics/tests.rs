//! The page of metrics, read as strictly as the format is written.

use super::*;
use std::collections::{BTreeMap, HashMap};
use std::time::Instant;
use tidegate_control::{Change, CurveInterval, CurveRow, Gain, GoalSeen, Mpl, NotKnown, Unknown};
use tidegate_gate::{Admission, Class, Limits, Outcome, Request, Waker};

/// Reads a page as strictly as the format's description is written: every sample belongs to
/// the family announced last, no family and no sample comes twice.
fn read(page: &str) -> BTreeMap<String, String> {
    let mut samples = BTreeMap::new();
    let mut kinds = HashMap::new();
    let mut family = ("", "");
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            family = (help.split_once(' ').unwrap().0, "");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert_eq!(name, family.0);
            assert_eq!(kinds.insert(name, kind), None, "{name} twice");
            family = (name, kind);
        } else {
            let (key, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
            let name = key.split('{').next().unwrap();
            let rest = name.strip_prefix(family.0).unwrap();
            let suffixes: &[&str] = match family.1 {
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            assert!(suffixes.contains(&rest), "{line}");
            assert_eq!(family.1 == "counter", name.ends_with("_total"), "{line}");
            assert_eq!(samples.insert(key.into(), value.into()), None, "{line} twice");
        }
    }
    samples
}

fn gate(mpl: u32, now: Instant) -> Gate {
    let mpl = Mpl::at_least_one(mpl);
    Gate::new(Limits { mpl, mpl_max: mpl, waiting_max: 1 }, now)
}

fn source(name: &str, gate: Gate) -> (MetricsSource, Arc<WorkerCounters>, Arc<Decisions>) {
    let decisions = Arc::new(Decisions::default());
    let workers = [Arc::new(WorkerCounters::default()), Arc::default()];
    let first = Arc::clone(&workers[0]);
    workers[1].clients.store(2, Ordering::Relaxed);
    let decided = Arc::clone(&decisions);
    let name = name.into();
    let server = ServerMetrics {
        name,
        gate,
        decisions: decided,
        samples: None,
        connections: None,
        hosts: None,
        is_retired: false,
    };
    (MetricsSource::new(vec![server], workers.into()), first, decisions)
}

#[test]
fn what_passed_the_gate_is_on_the_page() {
    let start = Instant::now();
    let gate = gate(1, start);
    let waker: Waker = Arc::new(|_| {});
    let request = |class: Class| Request::new(class, 0, &waker);
    let Admission::Granted(mut first) = gate.request(&request(Class::Normal), start) else {
        panic!("a free permit was not granted")
    };
    let Admission::Queued(second) = gate.request(&request(Class::High), start) else {
        panic!("a second permit at a limit of one")
    };
    assert!(matches!(gate.request(&request(Class::High), start), Admission::Refused(_)));
    let (source, ..) = source("db:5432", gate);

    let page = read(&source.page());
    assert_eq!(page["tidegate_limit{server=\"db:5432\"}"], "1");
    assert_eq!(page["tidegate_permits_out{server=\"db:5432\"}"], "1");
    assert_eq!(page["tidegate_waiting{server=\"db:5432\"}"], "1");
    assert_eq!(page["tidegate_refused_total{server=\"db:5432\"}"], "1");
    let of_high = |name: &str, more: &str| {
        page[&format!("tidegate_class_{name}{{server=\"db:5432\",class=\"high\"{more}}}")].clone()
    };
    assert_eq!(of_high("refused_total", ",reason=\"queue_full\""), "1");
    assert_eq!(of_high("refused_total", ",reason=\"late\""), "0");
    assert_eq!([of_high("waiting", ""), of_high("permits", "")], ["1", "0"]);

    drop(second);
    let counts = ["out", "active", "idle", "discounted"]
        .map(|what| format!("tidegate_permits_{what}{{server=\"db:5432\"}}"));
    let counted = |page: &BTreeMap<String, String>| counts.clone().map(|it| page[&it].clone());
    assert_eq!(counted(&page), ["1", "1", "0", "0"]);
    // Idle for 30 ms, which do not count: the times are of the 20 ms beside them.
    first.lend(start + Duration::from_millis(10));
    let page = read(&source.page());
    assert_eq!(counted(&page), ["1", "0", "1", "0"]);
    assert_eq!(page["tidegate_lendings_total{server=\"db:5432\"}"], "1");
    first.resume(start + Duration::from_millis(40));
    first.finish(Outcome::Completed, start + Duration::from_millis(50));
    let page = read(&source.page());
    assert_eq!(counted(&page), ["0"; 4]);
    assert_eq!(page["tidegate_permits_out{server=\"db:5432\"}"], "0");
    assert_eq!(page["tidegate_waiting{server=\"db:5432\"}"], "0");
    assert_eq!(page["tidegate_withdrawn_total{server=\"db:5432\"}"], "1");
    let transactions = |class: &str, outcome: &str| {
        let labels = format!("server=\"db:5432\",class=\"{class}\",outcome=\"{outcome}\"");
        page[&format!("tidegate_transactions_total{{{labels}}}")].as_str()
    };
    assert_eq!(transactions("normal", "completed"), "1");
    assert_eq!(transactions("normal", "failed"), "0");
    assert_eq!(transactions("high", "completed"), "0");

    let labels = "server=\"db:5432\",class=\"normal\"";
    let of = |name: &str| page[&format!("tidegate_{name}{{{labels}}}")].as_str();
    let within = |le: &str| {
        let labels = format!("{labels},le=\"{le}\"");
        page[&format!("tidegate_database_seconds_bucket{{{labels}}}")].as_str()
    };
    assert_eq!(["0.0001", "0.01"].map(within), ["0", "0"]);
    assert_eq!(["0.025", "60", "+Inf"].map(within), ["1", "1", "1"]);
    assert_eq!(of("database_seconds_count"), "1");
    assert_eq!(of("database_seconds_sum"), "0.02");
    assert_eq!(of("queue_seconds_count"), "1");
}

#[test]
fn workers_are_summed_and_decisions_counted() {
    let (source, worker, decisions) = source("db:1", gate(4, Instant::now()));
    worker.clients.fetch_add(3, Ordering::Relaxed);
    worker.bytes_from_servers.fetch_add(7, Ordering::Relaxed);
    assert!(!source.page().contains("tidegate_limit_reason_info{"), "nothing decided yet");
    let climb = |throughput| Reason::Climb(Change { throughput, response_time: None, limit: 0.2 });
    for reason in [Reason::First, climb(0.1), climb(0.3)] {
        decisions.add("hill-climbing", reason);
    }

    let page = read(&source.page());
    assert_eq!(page["tidegate_clients"], "5");
    assert_eq!(page["tidegate_bytes_from_servers_total"], "7");
    assert_eq!(page["tidegate_limit_decisions_total{server=\"db:1\",reason=\"first\"}"], "1");
    assert_eq!(page["tidegate_limit_decisions_total{server=\"db:1\",reason=\"climb\"}"], "2");
    let last = "server=\"db:1\",controller=\"hill-climbing\",\
                reason=\"climb: throughput rose 30 % for 20 % more\"";
    assert_eq!(page[&format!("tidegate_limit_reason_info{{{last}}}")], "1");
    let infos = page.keys().filter(|key| key.starts_with("tidegate_limit_reason_info"));
    assert_eq!(infos.count(), 1, "the last only");
}

#[test]
fn what_a_controller_would_do_is_on_the_page_as_far_as_it_is_known() {
    let (source, _, decisions) = source("db:1", gate(1_000, Instant::now()));
    assert!(!source.page().contains("tidegate_observed"), "nobody observes");
    let mpl = Mpl::at_least_one;
    let gain = Gain::Known {
        share: 0.25,
        low: 0.125,
        high: 0.5,
        running: 180.0,
        lowest: mpl(3),
        highest: mpl(200),
    };
    let proposal = Proposal {
        algorithm: "fixed",
        limit: mpl(12),
        reason: Reason::Fixed,
        gain,
        best: BelievedBest::Limit { limit: mpl(9) },
        best_gain: Gain::NotBinding { running: 5.0 },
    };
    decisions.set_proposal(proposal);
    let page = read(&source.page());
    let of = |name: &str| page[&format!("tidegate_observed_{name}{{server=\"db:1\"}}")].as_str();
    assert_eq!(["gain", "gain_low", "gain_high"].map(of), ["0.25", "0.125", "0.5"]);
    assert_eq!(["best_limit", "best_gain", "best_gain_high"].map(of), ["9", "0", "0"]);
    assert_eq!(page["tidegate_observed_limit{server=\"db:1\",controller=\"fixed\"}"], "12");

    let unknown = NotKnown::Narrow { lowest: mpl(3), highest: mpl(5) };
    let (best, gain) = (BelievedBest::NotKnown(unknown), Gain::NotKnown(unknown));
    decisions.set_proposal(Proposal { gain, best, best_gain: gain, ..proposal });
    let page = source.page();
    for absent in ["tidegate_observed_gain{", "_gain_low{", "_best_limit{", "_best_gain{"] {
        assert!(!page.contains(absent), "{absent}: {page}");
    }
    let words = "gain=\"not known: the population was between 3 and 5 all the time\"";
    assert!(page.contains(words), "{page}");
    read(&page);
}

#[test]
fn a_goal_is_on_the_page_once_it_is_judged() {
    let (source, _, decisions) = source("db:1", gate(4, Instant::now()));
    assert!(!source.page().contains("tidegate_goal"), "there is none");
    let seen = GoalSeen { count: 120.0, ratio: 1.5, mean_s: 0.1 };
    let ceiling = Mpl::at_least_one(9);
    let status = GoalStatus { is_met: None, is_impossible: false, ceiling, seen };
    decisions.set_goal(status);
    let page = source.page();
    assert!(!page.contains("tidegate_goal_met{"), "not judged yet: {page}");
    for (is_met, shown) in [(false, "0"), (true, "1")] {
        decisions.set_goal(GoalStatus { is_met: Some(is_met), ..status });
        let page = read(&source.page());
        assert_eq!(page["tidegate_goal_met{server=\"db:1\"}"], shown);
        assert_eq!(page["tidegate_goal_ratio{server=\"db:1\"}"], "1.5");
        assert_eq!(page["tidegate_goal_ceiling{server=\"db:1\"}"], "9");
    }
}

#[test]
fn the_curve_is_on_the_page_as_far_as_it_is_known() {
    let now = Instant::now();
    let (source, _, decisions) = source("db:1", gate(1_000, now));
    assert!(!source.page().contains("tidegate_curve"), "nothing was expected yet");
    let told = CurveInterval { low: 90.0, median: 100.0, high: 112.5 };
    let known = CurveRow {
        limit: Mpl::at_least_one(8),
        throughput_tps: Some(told),
        response_s: None,
        unknown: None,
    };
    let limit = Mpl::at_least_one(64);
    let far = CurveRow { limit, throughput_tps: None, unknown: Some(Unknown::Unseen), ..known };
    let rows = vec![known, far];
    let curve = WhatIfCurve { at_s: 10.0, present: 30.0, measurements: 9, widening: 1.25, rows };
    decisions.set_curve(curve, now);
    let page = read(&source.page());
    let of = |quantile: &str| {
        let labels = format!("server=\"db:1\",limit=\"8\",quantile=\"{quantile}\"");
        page[&format!("tidegate_curve_throughput_tps{{{labels}}}")].as_str()
    };
    assert_eq!(["0.05", "0.5", "0.95"].map(of), ["90", "100", "112.5"]);
    assert_eq!(page["tidegate_curve_widening{server=\"db:1\"}"], "1.25");
    assert!(page.contains_key("tidegate_curve_age_seconds{server=\"db:1\"}"));
    let samples = page.keys().filter(|key| key.starts_with("tidegate_curve"));
    assert_eq!(samples.count(), 5, "no response time, and nothing at 64");
}

#[test]
fn the_process_is_on_the_page() {
    let (source, ..) = source("db:1", gate(4, Instant::now()));
    let page = read(&source.page());
    let version = concat!("tidegate_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"}");
    assert_eq!(page[version], "1");
    let number = |name: &str| page[name].parse::<f64>().unwrap();
    assert!(number("process_resident_memory_bytes") > 100_000.0);
    assert!(number("process_cpu_seconds_total") > 0.0);
}

#[test]
fn labels_are_escaped() {
    let (source, ..) = source("/run/\"a\\b\n", gate(4, Instant::now()));
    let page = source.page();
    assert!(page.contains("tidegate_limit{server=\"/run/\\\"a\\\\b\\n\"} 4\n"), "{page}");
}

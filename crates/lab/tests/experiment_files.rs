//! Every file in `experiments/`, with every preset: it can be read, and plans what it says.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tidegate_lab::experiment::{Choice, Experiment, Plan, SubjectKind, read};
use tidegate_lab::laboratory::Laboratory;
use tidegate_lab::laboratory::run::Outcome;
use tidegate_lab::tap::MEASURED_SHARE;

/// The longest that an experiment may take without a preset, on two cores.
const SMALL_MAX: Duration = Duration::from_secs(30 * 60);

/// A file's name; runs, batchset instances and executions, without a preset and with `published`.
const PLANS: [(&str, Counts, Counts); 45] = [
    ("autotuning-ds2-control", (1, 4, 8), (1, 4, 4)),
    ("autotuning-ds2-curve", (1, 1, 16), (1, 1, 26)),
    ("autotuning-sensitivity-c", (1, 9, 9), (1, 9, 9)),
    ("autotuning-sensitivity-delta-c03", (1, 3, 3), (1, 3, 3)),
    ("autotuning-sensitivity-delta-c05", (1, 5, 5), (1, 5, 5)),
    ("autotuning-sensitivity-gamma-global", (1, 9, 9), (1, 9, 9)),
    ("autotuning-sensitivity-gamma-local", (1, 9, 9), (1, 9, 9)),
    ("autotuning-switch-memory", (1, 6, 6), (1, 6, 6)),
    ("autotuning-switch-mix", (1, 6, 6), (1, 6, 6)),
    ("autotuning-tpcc1-bigmem-control", (1, 4, 8), (1, 4, 4)),
    ("autotuning-tpcc1-bigmem-curve", (1, 1, 16), (1, 1, 26)),
    ("autotuning-tpcc1-smallmem-control", (1, 4, 8), (1, 4, 4)),
    ("autotuning-tpcc1-smallmem-curve", (1, 1, 16), (1, 1, 26)),
    ("autotuning-tpcc2-bigmem-control", (1, 4, 8), (1, 4, 4)),
    ("autotuning-tpcc2-bigmem-curve", (1, 1, 16), (1, 1, 26)),
    ("deterioration-figures-10-13", (1, 4, 4), (1, 4, 4)),
    ("deterioration-figures-3-9", (1, 3, 3), (1, 3, 3)),
    ("quick", (1, 1, 9), (1, 1, 50)),
    ("scheduling-figure-11-browsing", (2, 4, 40), (2, 4, 40)),
    ("scheduling-figure-11-inventory", (2, 4, 40), (2, 4, 40)),
    ("scheduling-figure-11-open", (1, 2, 20), (1, 2, 20)),
    ("scheduling-figure-12", (1, 8, 16), (1, 8, 16)),
    ("scheduling-figure-13", (1, 8, 16), (1, 8, 16)),
    ("scheduling-figure-2-browsing", (2, 2, 22), (2, 2, 22)),
    ("scheduling-figure-2-inventory", (2, 2, 22), (2, 2, 22)),
    ("scheduling-figure-3-browsing", (1, 1, 11), (1, 1, 11)),
    ("scheduling-figure-3-inventory", (1, 1, 11), (1, 1, 11)),
    ("scheduling-figure-4-balanced", (2, 2, 22), (2, 2, 22)),
    ("scheduling-figure-5-rr", (2, 2, 22), (2, 2, 22)),
    ("scheduling-figure-5-ur", (2, 2, 22), (2, 2, 22)),
    // 28 batchsets a run: 1,400 and 1,120 of them, as published.
    ("thrashing-confirmatory", (16, 32, 384), (50, 1_400, 70_000)),
    ("thrashing-exploratory", (16, 128, 512), (40, 1_120, 33_600)),
    ("thrashing-figure-1", (3, 3, 60), (20, 20, 600)),
    ("thrashing-to-1000", (3, 3, 42), (3, 3, 150)),
    ("xml-arms-best", (1, 1, 3), (1, 1, 3)),
    ("xml-arms-chosen", (1, 1, 3), (1, 1, 3)),
    ("xml-arms-fixed", (1, 5, 45), (1, 5, 45)),
    ("xml-figure-10-full", (1, 8, 80), (1, 8, 80)),
    ("xml-figure-10-none", (1, 8, 80), (1, 8, 80)),
    ("xml-figure-6-intensive", (2, 6, 60), (2, 6, 60)),
    ("xml-figure-6-reduced", (1, 3, 30), (1, 3, 30)),
    ("xml-figure-8", (1, 27, 270), (1, 63, 630)),
    ("xml-figure-9", (1, 4, 40), (1, 4, 40)),
    ("xml-over-time", (1, 5, 5), (1, 5, 5)),
    ("xml-real-time", (1, 6, 60), (1, 6, 60)),
];

type Counts = (usize, usize, usize);

/// Files of curves over numbers of clients, and the lowest throughput that was seen or is expected
/// at the highest, as their heads and `docs/results/` have it.
const WORST: [(&str, f64); 5] = [
    ("quick", 926.9),
    ("thrashing-confirmatory", 175.0),
    ("thrashing-exploratory", 175.0),
    ("thrashing-figure-1", 12_416.0),
    ("thrashing-to-1000", 163.3),
];

fn files() -> BTreeMap<String, PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let paths = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let files = paths.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), path)).collect()
}

fn experiment(path: &Path, preset: Option<&str>) -> Experiment {
    let choice = Choice { preset: preset.map(str::to_owned), subjects: None };
    read(path, &choice).unwrap_or_else(|error| panic!("{error}"))
}

fn counts(plan: &Plan) -> Counts {
    let batchsets = plan.runs.iter().map(|run| run.batchsets.len()).sum();
    (plan.runs.len(), batchsets, plan.count())
}

#[test]
fn every_file_plans_what_is_counted_here() {
    let files = files();
    let known: Vec<&str> = PLANS.iter().map(|(name, ..)| *name).collect();
    assert_eq!(files.keys().map(String::as_str).collect::<Vec<_>>(), known);
    for (name, small, published) in PLANS {
        for (preset, expected) in [(None, small), (Some("published"), published)] {
            let experiment = experiment(&files[name], preset);
            assert_eq!(experiment.name, name);
            assert_eq!(counts(&Plan::new(&experiment)), expected, "{name} {preset:?}");
        }
    }
}

#[test]
fn without_a_preset_a_file_fits_two_cores_and_minutes() {
    for (name, path) in files() {
        let small = experiment(&path, None);
        let estimate = Plan::new(&small).estimate(&small);
        assert!(estimate <= SMALL_MAX, "{name}: {estimate:?}");
        let most = small.processors.iter().flatten().max();
        assert!(most.is_none_or(|&most| most <= 2), "{name}");
        let published = experiment(&path, Some("published"));
        assert!(Plan::new(&published).estimate(&published) > estimate, "{name}");
    }
}

/// Check 10 of the analysis protocol: clients over throughput, the mean time of a transaction, fits
/// the warm-up and a fifth of the measured time.
#[test]
fn times_follow_from_littles_law() {
    let files = files();
    for (name, worst_tps) in WORST {
        let small = experiment(&files[name], None);
        let most = small.mpls.iter().max().unwrap();
        let in_system_s = f64::from(*most) / worst_tps;
        let (warmup_s, ctl_s) = (small.warmup.as_secs_f64(), small.ctl.as_secs_f64());
        assert!(in_system_s <= warmup_s, "{name}: {in_system_s} s in the system, {warmup_s} s");
        assert!(in_system_s <= MEASURED_SHARE * ctl_s, "{name}: {in_system_s} s, {ctl_s} s");
        // The study's times: no warm-up is the reason why a level is no steady state.
        let published = experiment(&files[name], Some("published"));
        let (warmup_s, ctl_s) = (published.warmup.as_secs_f64(), published.ctl.as_secs_f64());
        assert!(warmup_s >= MEASURED_SHARE * ctl_s, "{name}: {warmup_s} s of {ctl_s} s");
    }
    for (name, path) in &files {
        let text = std::fs::read_to_string(path).unwrap();
        assert!(!text.contains("long beside any transaction"), "{name}");
    }
}

#[test]
fn every_file_says_in_its_head_what_it_is() {
    for (name, path) in files() {
        let text = std::fs::read_to_string(&path).unwrap();
        let head: Vec<&str> = text.lines().take_while(|line| line.starts_with('#')).collect();
        assert!(!head.is_empty(), "{name} has no head");
        let is_short = |line: &str| line.starts_with("# |") || line.chars().count() <= 100;
        assert!(text.lines().all(is_short), "{name}: a long line that is no table's");
        if name != "quick" {
            let head = head.join(" ");
            let study =
                ["Auto-tuning", "Thrashing", "External-scheduling", "Structural", "BrackitDB"];
            assert!(study.iter().any(|study| head.contains(study)), "{name} names no study");
            assert!(head.contains("The default is"), "{name} does not say what is scaled down");
        }
    }
}

/// Every scenario's executions can be made, and what each is about is in the store afterwards.
#[test]
fn every_file_can_be_tried_without_a_database() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("results.db");
    let mut laboratory = Laboratory::open(place.to_str().unwrap(), PathBuf::new()).unwrap();
    for (name, path) in files() {
        let subjects = Some(vec![SubjectKind::Simulated.into()]);
        let experiment = read(&path, &Choice { preset: None, subjects }).unwrap();
        let planned = Plan::new(&experiment).count();
        let id = laboratory.begin(&experiment).unwrap();
        let never = AtomicBool::new(false);
        let outcome = laboratory.run(id, &never, &mut |_| {}).unwrap();
        let expected = Outcome { done: planned, ..Outcome::default() };
        assert_eq!(outcome, expected, "{name}");
        let text = laboratory.show(id, None).unwrap();
        let expected = match experiment.scenario.name {
            "autotune" | "switch" | "sensitivity" => "second half of the time: limit",
            "priority" => "high",
            _ => "MPL",
        };
        assert!(text.contains(expected), "{name}: {text}");
    }
}

//! Runs made by hand, for tests.

use std::collections::BTreeMap;

use tidegate_control::{Algorithm, Mpl};

use super::{BenchCell, BenchOptions, BenchScenario, BenchWork, Purpose, Ranges};
use crate::load::{Latency, LoadReport, PhaseReport};
use crate::rig::DatabaseChoice;

pub(super) fn options() -> BenchOptions {
    let database = DatabaseChoice::named("postgres").unwrap();
    BenchOptions::new(
        database,
        Ranges::new(30_000).unwrap(),
        "tidegate".into(),
        "out".into(),
        "test".into(),
    )
}

/// A load of which only the phases matter: (began, seconds, transactions) each.
pub(super) fn load(phases: &[(f64, f64, u64)]) -> LoadReport {
    let none = Latency { mean_ms: 0.0, p50_ms: 0.0, p95_ms: 0.0, p99_ms: 0.0, max_ms: 0.0 };
    let phase = |&(began_s, seconds, transactions): &(f64, f64, u64)| PhaseReport {
        workload: "any",
        began_s,
        seconds,
        transactions,
        tps: transactions as f64 / seconds,
    };
    let seconds: f64 = phases.iter().map(|phase| phase.1).sum();
    let transactions: u64 = phases.iter().map(|phase| phase.2).sum();
    LoadReport {
        workload: "any",
        clients: 200,
        seed: 1,
        warmup_s: 0.0,
        seconds,
        transactions,
        tps: transactions as f64 / seconds,
        phases: phases.iter().map(phase).collect(),
        kinds: Vec::new(),
        classes: Vec::new(),
        intervals: Vec::new(),
        overdue: 0,
        conflicts: BTreeMap::new(),
        warmup_transactions: 0,
        stragglers: 200,
        oldest_straggler_s: 0.1,
        late_commits: 0,
        errors: BTreeMap::new(),
        first_error: None,
        retries: 0,
        connection_losses: 0,
        connect_retries: 0,
        connects_at_once: None,
        latency: none,
        client_cpu_us: 0.0,
        client_core_share: 0.0,
        subject_cpu_us: None,
        subject_core_share: None,
        store: None,
        records_waited_ms: 0,
    }
}

pub(super) fn cell(
    purpose: Purpose,
    control: Algorithm,
    works: &[BenchWork],
    began_s: f64,
) -> BenchCell {
    BenchCell {
        scenario: BenchScenario::Tpcb1.name(),
        purpose,
        control,
        works: works.to_vec(),
        began_s,
        load: None,
        failure: None,
        intervals: Vec::new(),
    }
}

/// A second at a fixed limit, and for a reference in two halves; then `tps` is even.
pub(super) fn fixed(
    purpose: Purpose,
    work: BenchWork,
    began_s: f64,
    limit: u32,
    tps: u64,
) -> BenchCell {
    let control = Algorithm::Fixed(Mpl::at_least_one(limit));
    let load = match purpose {
        Purpose::Reference => load(&[(0.0, 0.5, tps / 2), (0.5, 0.5, tps / 2)]),
        _ => load(&[(0.0, 1.0, tps)]),
    };
    BenchCell { load: Some(load), ..cell(purpose, control, &[work], began_s) }
}

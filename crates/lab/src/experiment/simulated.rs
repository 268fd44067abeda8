//! An executor without a database: throughput by a formula, to try an experiment, or the
//! laboratory.
//!
//! Throughput at an MPL of N is Gunther's scalability law with noise drawn from the execution's
//! seed: X(N) = λ N / (1 + σ (N − 1) + κ N (N − 1)) · (1 + 3 % ε).
//!
//! An execution takes a thousandth of its time, so that a day's plan is tried in minutes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_workload::Draw;
use tidegate_workload::workload::Condition;

use super::executor::Assignment;
use super::workload::WorkloadSpec;
use super::{ExecutionError, Executor, Measured, RunPlan, Started};
use crate::load::{IntervalReport, KindReport, Latency, LoadReport, PhaseReport, Progress};

/// How many times faster an execution is than it says.
const SPEED: u32 = 1000;

/// Gunther's parameters: a peak of about 570 tps at 32, and a half of it at 200.
const LAMBDA: f64 = 40.0;
const SIGMA: f64 = 0.02;
const KAPPA: f64 = 0.001;

/// See the module.
#[derive(Debug, Default)]
pub struct Simulated {
    processors: u32,
}

impl Executor for Simulated {
    fn start(&mut self, run: &RunPlan, _: &AtomicBool) -> Result<Started, ExecutionError> {
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        let all = u32::try_from(all).unwrap_or(u32::MAX);
        self.processors = run.processors.unwrap_or(all);
        Ok(Started {
            version: "simulated 1".to_owned(),
            settings: vec![("lambda".to_owned(), LAMBDA.to_string())],
            processors: self.processors,
        })
    }

    fn prepare(&mut self, _: &WorkloadSpec, _: &AtomicBool) -> Result<(), ExecutionError> {
        Ok(())
    }

    fn execute(
        &mut self,
        assignment: &Assignment<'_>,
        cancel: &AtomicBool,
        _: &mut dyn FnMut(&Progress),
    ) -> Result<Measured, ExecutionError> {
        std::thread::sleep((assignment.warmup + assignment.ctl) / SPEED);
        if cancel.load(Ordering::Relaxed) {
            return Err(ExecutionError::Cancelled);
        }
        Ok(Measured {
            load: report(assignment),
            connect_s: f64::from(assignment.mpl) / 1000.0,
            processors: self.processors,
            other_executors: 0,
            other_dbms: Vec::new(),
        })
    }

    fn check(&mut self, _: &WorkloadSpec) -> Result<Vec<Condition>, ExecutionError> {
        Ok(vec![Condition { name: "simulated", violation: None }])
    }

    fn stop(&mut self) -> Result<(), ExecutionError> {
        Ok(())
    }
}

fn throughput(mpl: u32, seed: u64) -> f64 {
    let n = f64::from(mpl);
    let mut draw = Draw::new(seed, 0);
    // The sum of twelve even draws of (-0.5, 0.5) is near enough to a normal one.
    let noise: f64 = (0..12).map(|_| f64::from(draw.between(-500, 500)) / 1000.0).sum();
    LAMBDA * n / (1.0 + SIGMA * (n - 1.0) + KAPPA * n * (n - 1.0)) * (1.0 + 0.03 * noise)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts of a model")]
fn report(assignment: &Assignment<'_>) -> LoadReport {
    let seconds = assignment.ctl.as_secs_f64();
    let tps = throughput(assignment.mpl, assignment.seed);
    let transactions = (tps * seconds).round() as u64;
    let mean_ms = f64::from(assignment.mpl) / tps * 1e3;
    let latency = Latency {
        mean_ms,
        p50_ms: mean_ms * 0.7,
        p95_ms: mean_ms * 3.0,
        p99_ms: mean_ms * 4.6,
        max_ms: mean_ms * 9.0,
    };
    let intervals =
        (assignment.ctl.as_secs_f64() / assignment.interval.as_secs_f64()).round().max(1.0);
    let interval = |number: u32| IntervalReport {
        until_s: seconds * f64::from(number) / intervals,
        transactions: (transactions as f64 / intervals) as u64,
        latency,
        histogram: vec![((mean_ms * 1e3) as u64, (transactions as f64 / intervals) as u64)],
    };
    LoadReport {
        workload: "simulated",
        clients: assignment.mpl as usize,
        seed: assignment.seed,
        warmup_s: assignment.warmup.as_secs_f64(),
        seconds,
        transactions,
        tps,
        phases: vec![PhaseReport {
            workload: "simulated",
            began_s: assignment.warmup.as_secs_f64(),
            seconds,
            transactions,
            tps,
        }],
        kinds: vec![KindReport {
            workload: "simulated",
            kind: "any",
            committed: transactions,
            rolled_back: 0,
            latency,
            phases: Vec::new(),
        }],
        intervals: (1..=intervals as u32).map(interval).collect(),
        warmup_transactions: 0,
        stragglers: 0,
        oldest_straggler_s: 0.0,
        overdue: 0,
        late_commits: 0,
        errors: BTreeMap::new(),
        conflicts: BTreeMap::new(),
        retries: 0,
        connection_losses: 0,
        connect_retries: 0,
        latency,
        client_cpu_us: 0.0,
        client_core_share: 0.0,
    }
}

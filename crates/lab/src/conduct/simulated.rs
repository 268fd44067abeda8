//! An executor without a database: throughput by a formula, to try an experiment, or the
//! laboratory.
//!
//! Throughput at an MPL of N is Gunther's scalability law with noise drawn from the execution's
//! seed: X(N) = λ N / (1 + σ (N − 1) + κ N (N − 1)) · (1 + 3 % ε). Batchsets of the thrashing study
//! have a curve of their own instead, which collapses ([`study`]).
//!
//! A controller works on the same law by the curve plant of `tidegate-control`, with intervals of
//! a second; what is exchanged half way makes κ four times as large. A class that goes first
//! waits a tenth as long. There are no trees to look at.
//!
//! Time is virtual: an execution takes a millionth of what it says, so that a year's plan is tried
//! in minutes, and moments in the store go on as if it had taken all of it. As its intervals are
//! all alike, it has [`INTERVALS_MAX`] at most.

mod study;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_control::plant::{Curve, CurvePhase, CurvePlant, Simulation};
use tidegate_control::{Bounds, Mpl, Resources, Setting};
use tidegate_workload::Random;
use tidegate_workload::workload::{Condition, Depth};

use self::study::Collapse;
use super::{Assignment, ExecutionError, Executor};
use crate::experiment::RunPlan;
use crate::experiment::treatment::{Admission, PriorityShare};
use crate::experiment::workload::WorkloadSpec;
use crate::load::{
    ClassReport, IntervalKind, IntervalReport, KindReport, Latency, LoadReport, PhaseReport,
    Progress,
};
use crate::measured::{Measured, Started};
use crate::rig::Interval;

/// How many times faster time goes by than it says.
const SPEED: u32 = 1_000_000;

/// The most intervals that an execution has.
const INTERVALS_MAX: f64 = 10.0;

/// Gunther's parameters: a peak of about 570 tps at 32, and a half of it at 200.
const LAMBDA: f64 = 40.0;
const SIGMA: f64 = 0.02;
const KAPPA: f64 = 0.001;

#[derive(Debug, Default)]
pub struct Simulated {
    run: u32,
    processors: u32,
}

impl Executor for Simulated {
    fn start(&mut self, run: &RunPlan, _: &AtomicBool) -> Result<Started, ExecutionError> {
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        let all = u32::try_from(all).expect("processors are far fewer");
        self.run = run.number;
        self.processors = run.processors.unwrap_or(all);
        Ok(Started {
            version: "simulated 1".to_owned(),
            settings: vec![("lambda".to_owned(), LAMBDA.to_string())],
            processors: self.processors,
        })
    }

    fn prepare(&mut self, _: &[WorkloadSpec], _: &AtomicBool) -> Result<(), ExecutionError> {
        Ok(())
    }

    fn execute(
        &mut self,
        assignment: &Assignment,
        cancel: &AtomicBool,
        _: &mut dyn FnMut(&Progress),
    ) -> Result<Measured, ExecutionError> {
        pass(assignment.warmup + assignment.ctl);
        if cancel.load(Ordering::Relaxed) {
            return Err(ExecutionError::Cancelled);
        }
        let limits = limits(assignment)?;
        let tps = match limits.len() {
            0 => self.throughput(assignment),
            count => limits.iter().map(|one| one.tps).sum::<f64>() / count as f64,
        };
        Ok(Measured {
            load: report(assignment, tps),
            connect_s: f64::from(assignment.mpl) / 1000.0,
            processors: self.processors,
            other_executors: 0,
            other_dbms: Vec::new(),
            limits,
            looks: Vec::new(),
        })
    }

    fn check(&mut self, _: &WorkloadSpec, _: Depth) -> Result<Vec<Condition>, ExecutionError> {
        Ok(vec![Condition { name: "simulated", violation: None }])
    }

    fn stop(&mut self) -> Result<(), ExecutionError> {
        Ok(())
    }
}

impl Simulated {
    fn throughput(&self, assignment: &Assignment) -> f64 {
        let mpl = assignment.mpl;
        let tps = match &assignment.workload {
            WorkloadSpec::Thrash(spec) => {
                Collapse::of(spec, self.run, self.processors).throughput(mpl)
            }
            _ => law(mpl, KAPPA),
        };
        tps * (1.0 + 0.03 * normal(&mut Random::new(assignment.seed, 0)))
    }
}

/// Lets so much virtual time go by.
pub(crate) fn pass(time: Duration) {
    std::thread::sleep(time / SPEED);
}

/// Gunther's law.
fn law(mpl: u32, kappa: f64) -> f64 {
    let n = f64::from(mpl);
    LAMBDA * n / (1.0 + SIGMA * (n - 1.0) + kappa * n * (n - 1.0))
}

/// What a controller does on the law, if there is one.
fn limits(assignment: &Assignment) -> Result<Vec<Interval>, ExecutionError> {
    let Admission::Control { clients, control } = assignment.treatment.admission else {
        return Ok(Vec::new());
    };
    let phase = |kappa| {
        let levels = std::iter::successors(Some(1_u32), |level| Some(level * 5 / 4 + 1));
        let points =
            levels.take_while(|&level| level <= 2_000).map(|level| (level, law(level, kappa)));
        let curve = Curve::new(&points.collect::<Vec<_>>());
        curve.map(|curve| CurvePhase::closed(curve, clients, 0.03))
    };
    let kappas = match assignment.treatment.exchange {
        Some(_) => vec![KAPPA, 4.0 * KAPPA],
        None => vec![KAPPA],
    };
    let phases: Vec<CurvePhase> = kappas
        .into_iter()
        .map(phase)
        .collect::<Result<_, _>>()
        .map_err(|error| ExecutionError::Failed(error.into()))?;
    let bounds = Bounds::new(Mpl::ONE, Mpl::at_least_one(1000));
    let setting = Setting {
        bounds: bounds.map_err(|error| ExecutionError::Failed(error.into()))?,
        start: Mpl::at_least_one(assignment.mpl),
        resources: Resources { cpus: 2, disks: 1 },
    };
    let mut simulation = Simulation::new(control.controller(&setting), assignment.seed);
    let each = (assignment.ctl.as_secs() / phases.len() as u64).max(1);
    let mut limits = Vec::new();
    for phase in phases {
        let mut plant = CurvePlant::new(&[phase], assignment.seed);
        for _ in 0..each {
            let (seen, decision) = simulation.interval(&mut plant);
            let interval_s = seen.interval.as_secs_f64();
            limits.push(Interval {
                arm: None,
                at_s: limits.last().map_or(0.0, |before: &Interval| before.at_s) + interval_s,
                interval_s,
                server: "simulated".to_owned(),
                limit: seen.limit.get(),
                next_limit: decision.limit.get(),
                reason: decision.reason.to_string(),
                tps: seen.throughput_tps(),
                concurrency: f64::from(seen.concurrency),
                in_queue_mean_s: None,
                in_database_mean_s: None,
            });
        }
    }
    Ok(limits)
}

/// The classes: by Little's law all have N/X in the mean; who goes first a tenth of that.
fn classes(assignment: &Assignment, tps: f64, all: Latency) -> Vec<ClassReport> {
    let Some(priority) = assignment.treatment.priority else { return Vec::new() };
    let PriorityShare { high_percent, is_given, locks, processors } = priority;
    let high = high_percent / 100.0;
    let scaled = |factor: f64| Latency {
        mean_ms: all.mean_ms * factor,
        p50_ms: all.p50_ms * factor,
        p95_ms: all.p95_ms * factor,
        p99_ms: all.p99_ms * factor,
        max_ms: all.max_ms * factor,
    };
    let faster = if is_given || locks || processors { 0.1 } else { 1.0 };
    let slower = (1.0 - high * faster) / (1.0 - high).max(f64::MIN_POSITIVE);
    let report = |class, share: f64, factor| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        let transactions = (tps * assignment.ctl.as_secs_f64() * share).round() as u64;
        ClassReport { class, transactions, latency: scaled(factor) }
    };
    vec![report("high", high, faster), report("normal", 1.0 - high, slower)]
}

/// A draw that is near enough to normal: the sum of twelve even ones of (-0.5, 0.5).
fn normal(draw: &mut Random) -> f64 {
    (0..12).map(|_| f64::from(draw.between(-500, 500)) / 1000.0).sum()
}

/// Latencies with this mean, about as far apart as those of exponential times.
fn latency(mean_ms: f64) -> Latency {
    Latency {
        mean_ms,
        p50_ms: mean_ms * 0.7,
        p95_ms: mean_ms * 3.0,
        p99_ms: mean_ms * 4.6,
        max_ms: mean_ms * 9.0,
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts of a model")]
fn report(assignment: &Assignment, tps: f64) -> LoadReport {
    let seconds = assignment.ctl.as_secs_f64();
    let clients = assignment.treatment.clients(assignment.mpl);
    let transactions = (tps * seconds).round() as u64;
    let mean_ms = f64::from(clients) / tps * 1e3;
    let latency = latency(mean_ms);
    let intervals = (assignment.ctl.as_secs_f64() / assignment.interval.as_secs_f64()).round();
    let intervals = intervals.clamp(1.0, INTERVALS_MAX);
    let in_interval = (transactions as f64 / intervals) as u64;
    let interval = |number: u32| IntervalReport {
        until_s: seconds * f64::from(number) / intervals,
        transactions: in_interval,
        latency,
        histogram: vec![((mean_ms * 1e3) as u64, in_interval)],
        kinds: vec![IntervalKind {
            workload: "simulated",
            kind: "any",
            transactions: in_interval,
            mean_ms,
            p99_ms: latency.p99_ms,
        }],
    };
    LoadReport {
        workload: "simulated",
        clients: clients as usize,
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
            locking: None,
        }],
        intervals: (1..=intervals as u32).map(interval).collect(),
        classes: classes(assignment, tps, latency),
        warmup_transactions: 0,
        stragglers: 0,
        oldest_straggler_s: 0.0,
        overdue: 0,
        late_commits: 0,
        errors: BTreeMap::new(),
        first_error: None,
        conflicts: BTreeMap::new(),
        retries: 0,
        connection_losses: 0,
        connect_retries: 0,
        connects_at_once: None,
        latency,
        client_cpu_us: 0.0,
        client_core_share: 0.0,
        subject_cpu_us: None,
        subject_core_share: None,
        store: None,
        records_waited_ms: 0,
    }
}

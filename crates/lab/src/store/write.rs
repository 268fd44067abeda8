//! What is written: the plan, then attempts and what came of them.

use std::time::Instant;

use tidegate_workload::Value;
use tidegate_workload::workload::Condition;

use super::read::{int, text};
use super::{Store, StoreError, count, real};
use crate::experiment::{Execution, Experiment, Plan, RunPlan};
use crate::load::{IntervalKind, KindReport, LoadReport};
use crate::measured::{Measured, Started};
use crate::rig::Machine;

#[derive(Clone, Copy, Debug)]
pub struct Tried {
    id: i64,
    execution: i64,
    /// The host's measurements of the batchset that this one will be of.
    series: i64,
    /// When, by the store's clock, and by one that nobody sets.
    began_us: i64,
    began: Instant,
    /// How far virtual time was ahead then.
    ahead_us: i64,
}

impl Tried {
    pub(super) fn number(self) -> i64 {
        self.id
    }
}

impl Store {
    /// Writes down an experiment with all that it plans; its number.
    pub fn begin_experiment(
        &mut self,
        experiment: &Experiment,
        plan: &Plan,
        machine: &Machine,
    ) -> Result<i64, StoreError> {
        self.atomically(|store| {
            let (machine, code) = (store.machine(machine)?, store.code()?);
            let subjects: Vec<String> =
                experiment.subjects.iter().map(ToString::to_string).collect();
            let [ctl_s, warmup_s, pause_s, connect_limit_s, interval_s] = times_s(experiment);
            let id = store.add(
                "INSERT INTO experiment (name, scenario, preset, subjects, seed, file, machine, \
                 code, began_us, ctl_s, warmup_s, pause_s, connect_limit_s, interval_s) \
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                &[
                    experiment.name.as_str().into(),
                    experiment.scenario.name().into(),
                    experiment.preset.as_deref().unwrap_or_default().into(),
                    subjects.join(",").into(),
                    Value::Int(experiment.seed.cast_signed()),
                    experiment.text.as_str().into(),
                    machine.into(),
                    code.into(),
                    store.now_us().into(),
                    real(ctl_s),
                    real(warmup_s),
                    real(pause_s),
                    real(connect_limit_s),
                    real(interval_s),
                ],
            )?;
            plan.runs.iter().try_for_each(|run| store.plan_run(id, plan, run))?;
            Ok(id)
        })
    }

    fn plan_run(&mut self, experiment: i64, plan: &Plan, run: &RunPlan) -> Result<(), StoreError> {
        let settings = json(&run.subject.settings.named)?;
        let id = self.add(
            "INSERT INTO run (experiment, number, subject, processors, primary_key, isolation, \
             settings) VALUES (?, ?, ?, ?, ?, ?, ?)",
            &[
                experiment.into(),
                count(run.number),
                run.subject.kind.to_string().into(),
                count(run.processors.unwrap_or(0)),
                i64::from(run.primary_key).into(),
                run.subject.settings.isolation.as_deref().unwrap_or_default().into(),
                settings.into(),
            ],
        )?;
        let mut batchsets = std::collections::BTreeMap::new();
        for batchset in &run.batchsets {
            let spec = json(&batchset.workload)?;
            let workload = batchset.workload.build().map(|workload| workload.name());
            let row = self.add(
                "INSERT INTO batchset (run, number, workload, spec, treatment) \
                 VALUES (?, ?, ?, ?, ?)",
                &[
                    id.into(),
                    count(batchset.number),
                    workload.unwrap_or_default().into(),
                    spec.into(),
                    json(&batchset.treatment)?.into(),
                ],
            )?;
            batchsets.insert(batchset.number, row);
        }
        for (place, execution) in plan.executions(run).iter().enumerate() {
            let batchset = batchsets.get(&execution.batchset).copied().unwrap_or_default();
            self.execute(
                "INSERT INTO execution (batchset, mpl, repetition, place) VALUES (?, ?, ?, ?)",
                &[batchset.into(), count(execution.mpl), count(execution.repetition), count(place)],
            )?;
        }
        Ok(())
    }

    fn machine(&mut self, machine: &Machine) -> Result<i64, StoreError> {
        let host = self.host().to_owned();
        let values = [
            host.as_str().into(),
            machine.cpu.as_str().into(),
            count(machine.cores),
            count(machine.memory_mib),
            machine.kernel.as_str().into(),
        ];
        let found = self.query(
            "SELECT id FROM machine WHERE host = ? AND cpu = ? AND processors = ? AND \
             memory_mib = ? AND kernel = ?",
            &values,
        )?;
        if let Some(id) = found.int(0, 0) {
            return Ok(id);
        }
        self.add(
            "INSERT INTO machine (host, cpu, processors, memory_mib, kernel) \
             VALUES (?, ?, ?, ?, ?)",
            &values,
        )
    }

    pub(super) fn code(&mut self) -> Result<i64, StoreError> {
        let values: [Value<'_>; 2] = [env!("CARGO_PKG_VERSION").into(), crate::BUILD.into()];
        let found = self.query("SELECT id FROM code WHERE version = ? AND build = ?", &values)?;
        if let Some(id) = found.int(0, 0) {
            return Ok(id);
        }
        self.add("INSERT INTO code (version, build) VALUES (?, ?)", &values)
    }

    /// A run's subject was started; the number of that.
    pub fn started(
        &mut self,
        run: i64,
        machine: &Machine,
        started: &Started,
    ) -> Result<i64, StoreError> {
        self.atomically(|store| {
            let (machine, code) = (store.machine(machine)?, store.code()?);
            store.add(
                "INSERT INTO start (run, machine, code, version, settings, processors, began_us) \
                 VALUES (?, ?, ?, ?, ?, ?, ?)",
                &[
                    run.into(),
                    machine.into(),
                    code.into(),
                    started.version.as_str().into(),
                    json(&started.settings)?.into(),
                    count(started.processors),
                    store.now_us().into(),
                ],
            )
        })
    }

    /// An execution is tried, once more if it was before.
    pub fn try_execution(
        &mut self,
        execution: i64,
        start: i64,
        seed: u64,
    ) -> Result<Tried, StoreError> {
        let (began_us, began, ahead_us) = (self.now_us(), Instant::now(), self.ahead_us);
        self.atomically(|store| {
            let before = store
                .query("SELECT COUNT(*) FROM attempt WHERE execution = ?", &[execution.into()])?;
            let number = before.int(0, 0).unwrap_or(0) + 1;
            let series = store.series(execution, start)?;
            let id = store.add(
                "INSERT INTO attempt (execution, number, start, seed, began_us) \
                 VALUES (?, ?, ?, ?, ?)",
                &[
                    execution.into(),
                    number.into(),
                    start.into(),
                    Value::Int(seed.cast_signed()),
                    began_us.into(),
                ],
            )?;
            Ok(Tried { id, execution, series, began_us, began, ahead_us })
        })
    }

    /// Returns the series that a measurement of an execution after a start belongs to: that of the
    /// start's host. Where the batchset's last series is another host's, a new one begins, and the
    /// measurements of the one before no longer count.
    fn series(&mut self, execution: i64, start: i64) -> Result<i64, StoreError> {
        let rows = self.query(
            "SELECT x.batchset, k.host FROM execution x, start s, machine k \
             WHERE k.id = s.machine AND x.id = ? AND s.id = ?",
            &[execution.into(), start.into()],
        )?;
        let (batchset, host) = (int(&rows, 0, 0)?, text(&rows, 0, 1));
        let last = self.query(
            "SELECT id, number, host FROM series WHERE batchset = ? ORDER BY number DESC LIMIT 1",
            &[batchset.into()],
        )?;
        if last.text(0, 2) == Some(host.as_str()) {
            return int(&last, 0, 0);
        }
        let number = last.int(0, 1).unwrap_or(0) + 1;
        self.add(
            "INSERT INTO series (batchset, number, host) VALUES (?, ?, ?)",
            &[batchset.into(), number.into(), host.as_str().into()],
        )
    }

    /// An attempt failed.
    pub fn failed(&mut self, tried: Tried, reason: &str) -> Result<(), StoreError> {
        self.execute(
            "INSERT INTO failure (attempt, reason) VALUES (?, ?)",
            &[tried.id.into(), reason.into()],
        )?;
        Ok(())
    }

    /// An attempt succeeded, and its execution is done.
    pub fn measured(&mut self, tried: Tried, measured: &Measured) -> Result<(), StoreError> {
        self.atomically(|store| {
            store.add_measurement(tried, measured)?;
            let load = &measured.load;
            load.kinds.iter().try_for_each(|kind| store.add_kind(tried, kind))?;
            store.add_intervals(tried, load)?;
            store.add_course(tried.id, measured)?;
            let others = measured.other_dbms.iter().map(|name| ("other DBMS", name.as_str(), 1));
            let errors = load.errors.iter().map(|(code, &times)| ("error", code.as_str(), times));
            let conflicts =
                load.conflicts.iter().map(|(what, &times)| ("conflict", what.as_str(), times));
            let waited_ms = Some(load.records_waited_ms).filter(|&ms| ms > 0);
            let records = waited_ms.map(|ms| ("records", "ms waited", ms));
            for (kind, what, times) in errors.chain(conflicts).chain(others).chain(records) {
                store.execute(
                    "INSERT INTO trouble (attempt, kind, what, times) VALUES (?, ?, ?, ?)",
                    &[tried.id.into(), kind.into(), what.into(), count(times)],
                )?;
            }
            Ok(())
        })
    }

    fn add_measurement(&mut self, tried: Tried, measured: &Measured) -> Result<(), StoreError> {
        let load = &measured.load;
        let latency = load.latency;
        self.execute(
            "INSERT INTO measurement_taken (attempt, execution, series, ended_us, connect_s, \
             seconds, clients, transactions, tps, mean_ms, p50_ms, p95_ms, p99_ms, max_ms, \
             retries, stragglers, overdue, connection_losses, client_cpu_us, client_core_share, \
             subject_cpu_us, subject_core_share, processors, other_executors, report) \
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            &[
                tried.id.into(),
                tried.execution.into(),
                tried.series.into(),
                self.end_us(tried).into(),
                real(measured.connect_s),
                real(load.seconds),
                count(load.clients),
                count(load.transactions),
                real(load.tps),
                real(latency.mean_ms),
                real(latency.p50_ms),
                real(latency.p95_ms),
                real(latency.p99_ms),
                real(latency.max_ms),
                count(load.retries),
                count(load.stragglers),
                count(load.overdue),
                count(load.connection_losses),
                real(load.client_cpu_us),
                real(load.client_core_share),
                load.subject_cpu_us.map_or(Value::Null, real),
                load.subject_core_share.map_or(Value::Null, real),
                count(measured.processors),
                count(measured.other_executors),
                without_intervals(load)?.into(),
            ],
        )?;
        Ok(())
    }

    /// The moment at which an attempt ends now. The clock may have been set since it began, and no
    /// execution ends before its begin.
    fn end_us(&self, tried: Tried) -> i64 {
        let elapsed_us = i64::try_from(tried.began.elapsed().as_micros()).unwrap_or(i64::MAX);
        let passed_us = self.ahead_us.saturating_sub(tried.ahead_us);
        // At least one tick, as everywhere else: begin and end are two moments.
        let length_us = elapsed_us.saturating_add(passed_us).max(1);
        tried.began_us.saturating_add(length_us)
    }

    fn add_kind(&mut self, tried: Tried, kind: &KindReport) -> Result<(), StoreError> {
        let latency = kind.latency;
        self.execute(
            "INSERT INTO kind (attempt, workload, kind, committed, rolled_back, mean_ms, p50_ms, \
             p95_ms, p99_ms, max_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            &[
                tried.id.into(),
                kind.workload.into(),
                kind.kind.into(),
                count(kind.committed),
                count(kind.rolled_back),
                real(latency.mean_ms),
                real(latency.p50_ms),
                real(latency.p95_ms),
                real(latency.p99_ms),
                real(latency.max_ms),
            ],
        )?;
        Ok(())
    }

    fn add_intervals(&mut self, tried: Tried, load: &LoadReport) -> Result<(), StoreError> {
        for (number, interval) in (1_i64..).zip(&load.intervals) {
            self.execute(
                "INSERT INTO interval_seen (attempt, number, until_s, transactions, mean_ms, \
                 p99_ms, histogram) VALUES (?, ?, ?, ?, ?, ?, ?)",
                &[
                    tried.id.into(),
                    number.into(),
                    real(interval.until_s),
                    count(interval.transactions),
                    real(interval.latency.mean_ms),
                    real(interval.latency.p99_ms),
                    json(&interval.histogram)?.into(),
                ],
            )?;
            for kind in &interval.kinds {
                self.add_interval_kind(tried, number, kind)?;
            }
        }
        Ok(())
    }

    fn add_interval_kind(
        &mut self,
        tried: Tried,
        number: i64,
        kind: &IntervalKind,
    ) -> Result<(), StoreError> {
        self.execute(
            "INSERT INTO interval_kind (attempt, number, workload, kind, transactions, mean_ms, \
             p99_ms) VALUES (?, ?, ?, ?, ?, ?, ?)",
            &[
                tried.id.into(),
                number.into(),
                kind.workload.into(),
                kind.kind.into(),
                count(kind.transactions),
                real(kind.mean_ms),
                real(kind.p99_ms),
            ],
        )?;
        Ok(())
    }

    /// The conditions of a batchset's tables after its executions.
    pub fn checked(
        &mut self,
        start: i64,
        batchset: i64,
        conditions: &[Condition],
    ) -> Result<(), StoreError> {
        self.atomically(|store| {
            for condition in conditions {
                let violation = condition.violation.as_deref().map_or(Value::Null, Into::into);
                store.execute(
                    "INSERT INTO consistency (start, batchset, condition, violation) \
                     VALUES (?, ?, ?, ?)",
                    &[start.into(), batchset.into(), condition.name.into(), violation],
                )?;
            }
            Ok(())
        })
    }
}

/// What the clients saw, but for the intervals, which have rows of their own.
fn without_intervals(load: &LoadReport) -> Result<String, StoreError> {
    let mut report =
        serde_json::to_value(load).map_err(|error| StoreError::Damaged(error.to_string()))?;
    if let Some(report) = report.as_object_mut() {
        report.remove("intervals");
    }
    json(&report)
}

/// An experiment's times in seconds, in the order of their columns.
pub(super) fn times_s(experiment: &Experiment) -> [f64; 5] {
    let Experiment { ctl, warmup, pause, connect, interval, .. } = experiment;
    [ctl, warmup, pause, connect, interval].map(std::time::Duration::as_secs_f64)
}

/// The key of an execution in a plan, which has a row of its own in the store.
pub(super) type Place = Execution;

pub(super) fn json(value: &impl serde::Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Damaged(error.to_string()))
}

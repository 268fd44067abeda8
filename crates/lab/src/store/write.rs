//! What is written: the plan, then attempts and what came of them.

use tidegate_workload::Value;
use tidegate_workload::workload::Condition;

use super::moments::{MACHINE_HOST, Since};
use super::{Store, StoreError, count, real};
use crate::experiment::{Experiment, Plan, RunPlan};
use crate::load::{IntervalKind, KindReport, Latency, LoadReport};
use crate::measured::{Measured, Started};
use crate::rig::Machine;

#[derive(Clone, Copy, Debug)]
pub struct Tried {
    id: i64,
    execution: i64,
    /// The host's measurements of the batchset that this one will be of.
    series: i64,
    began: Since,
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
        self.keep_time_of_plan(experiment);
        self.atomically(|store| {
            let (machine, code) = (store.machine(machine, 0)?, store.code()?);
            let subjects: Vec<String> =
                experiment.subjects.iter().map(ToString::to_string).collect();
            let [ctl_s, warmup_s, pause_s, connect_limit_s, interval_s] = times_s(experiment);
            let id = store.add(
                "experiment",
                &[
                    ("name", experiment.name.as_str().into()),
                    ("scenario", experiment.scenario.name.into()),
                    ("preset", experiment.preset.as_deref().unwrap_or_default().into()),
                    ("subjects", subjects.join(",").into()),
                    ("seed", Value::Int(experiment.seed.cast_signed())),
                    ("file", experiment.text.as_str().into()),
                    ("machine", machine.into()),
                    ("code", code.into()),
                    ("began_us", store.moments.now_us().into()),
                    ("ctl_s", real(ctl_s)),
                    ("warmup_s", real(warmup_s)),
                    ("pause_s", real(pause_s)),
                    ("connect_limit_s", real(connect_limit_s)),
                    ("interval_s", real(interval_s)),
                ],
            )?;
            plan.runs.iter().try_for_each(|run| store.plan_run(id, plan, run))?;
            Ok(id)
        })
    }

    fn plan_run(&mut self, experiment: i64, plan: &Plan, run: &RunPlan) -> Result<(), StoreError> {
        let settings = json(&run.subject.settings.named)?;
        let id = self.add(
            "run",
            &[
                ("experiment", experiment.into()),
                ("number", count(run.number)),
                ("subject", run.subject.kind.to_string().into()),
                ("processors", count(run.processors.unwrap_or(0))),
                ("primary_key", i64::from(run.primary_key).into()),
                ("isolation", run.subject.settings.isolation.as_deref().unwrap_or_default().into()),
                ("settings", settings.into()),
            ],
        )?;
        let mut batchsets = std::collections::BTreeMap::new();
        for batchset in &run.batchsets {
            let workload = batchset.workload.build()?.name();
            let row = self.add(
                "batchset",
                &[
                    ("run", id.into()),
                    ("number", count(batchset.number)),
                    ("workload", workload.into()),
                    ("spec", json(&batchset.workload)?.into()),
                    ("treatment", json(&batchset.treatment)?.into()),
                ],
            )?;
            batchsets.insert(batchset.number, row);
        }
        for (place, execution) in plan.executions(run).iter().enumerate() {
            self.insert(
                "execution",
                &[
                    // A plan's executions are of its batchsets.
                    ("batchset", batchsets[&execution.batchset].into()),
                    ("mpl", count(execution.mpl)),
                    ("repetition", count(execution.repetition)),
                    ("place", count(place)),
                ],
            )?;
        }
        Ok(())
    }

    /// The row of the machine that measures: this host, as it is described; or one in virtual time
    /// with so many processors, 0 where there may be several.
    fn machine(&mut self, machine: &Machine, processors: u32) -> Result<i64, StoreError> {
        let host = self.host().to_owned();
        let row = if self.moments.is_of_machine() {
            [
                ("host", MACHINE_HOST.into()),
                ("cpu", MACHINE_HOST.into()),
                ("processors", count(processors)),
                ("memory_mib", count(0)),
                ("kernel", MACHINE_HOST.into()),
            ]
        } else {
            [
                ("host", host.as_str().into()),
                ("cpu", machine.cpu.as_str().into()),
                ("processors", count(machine.cores)),
                ("memory_mib", count(machine.memory_mib)),
                ("kernel", machine.kernel.as_str().into()),
            ]
        };
        self.find_or_add("machine", &row)
    }

    pub(super) fn code(&mut self) -> Result<i64, StoreError> {
        let (version, build) = (env!("CARGO_PKG_VERSION"), crate::BUILD);
        self.find_or_add("code", &[("version", version.into()), ("build", build.into())])
    }

    /// A run's subject was started; the number of that.
    pub fn started(
        &mut self,
        run: i64,
        machine: &Machine,
        started: &Started,
    ) -> Result<i64, StoreError> {
        self.atomically(|store| {
            let machine = store.machine(machine, started.processors)?;
            let code = store.code()?;
            store.add(
                "start",
                &[
                    ("run", run.into()),
                    ("machine", machine.into()),
                    ("code", code.into()),
                    ("version", started.version.as_str().into()),
                    ("settings", json(&started.settings)?.into()),
                    ("processors", count(started.processors)),
                    ("began_us", store.moments.now_us().into()),
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
        let began = self.moments.since();
        self.atomically(|store| {
            let before: i64 = store
                .row("SELECT COUNT(*) FROM attempt WHERE execution = ?", &[execution.into()])?;
            let series = store.series(execution, start)?;
            let id = store.add(
                "attempt",
                &[
                    ("execution", execution.into()),
                    ("number", (before + 1).into()),
                    ("start", start.into()),
                    ("seed", Value::Int(seed.cast_signed())),
                    ("began_us", began.us().into()),
                ],
            )?;
            Ok(Tried { id, execution, series, began })
        })
    }

    /// Returns the series that a measurement of an execution after a start belongs to: that of the
    /// start's host. Where the batchset's last series is another host's, a new one begins, and the
    /// measurements of the one before no longer count.
    fn series(&mut self, execution: i64, start: i64) -> Result<i64, StoreError> {
        let (batchset, host): (i64, String) = self.row(
            "SELECT x.batchset, k.host FROM execution x, start s, machine k \
             WHERE k.id = s.machine AND x.id = ? AND s.id = ?",
            &[execution.into(), start.into()],
        )?;
        let series: Vec<(i64, i64, String)> = self.rows(
            "SELECT id, number, host FROM series WHERE batchset = ? ORDER BY number DESC LIMIT 1",
            &[batchset.into()],
        )?;
        let number = match series.first() {
            Some((id, _, last)) if *last == host => return Ok(*id),
            Some((_, number, _)) => number + 1,
            None => 1,
        };
        self.add(
            "series",
            &[
                ("batchset", batchset.into()),
                ("number", number.into()),
                ("host", host.as_str().into()),
            ],
        )
    }

    /// An attempt failed.
    pub fn failed(&mut self, tried: Tried, reason: &str) -> Result<(), StoreError> {
        self.insert("failure", &[("attempt", tried.id.into()), ("reason", reason.into())])
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
                store.insert(
                    "trouble",
                    &[
                        ("attempt", tried.id.into()),
                        ("kind", kind.into()),
                        ("what", what.into()),
                        ("times", count(times)),
                    ],
                )?;
            }
            Ok(())
        })
    }

    fn add_measurement(&mut self, tried: Tried, measured: &Measured) -> Result<(), StoreError> {
        let load = &measured.load;
        let row = [
            ("attempt", tried.id.into()),
            ("execution", tried.execution.into()),
            ("series", tried.series.into()),
            ("ended_us", self.moments.end_us(tried.began).into()),
            ("connect_s", real(measured.connect_s)),
            ("seconds", real(load.seconds)),
            ("clients", count(load.clients)),
            ("transactions", count(load.transactions)),
            ("tps", real(load.tps)),
            ("retries", count(load.retries)),
            ("stragglers", count(load.stragglers)),
            ("overdue", count(load.overdue)),
            ("connection_losses", count(load.connection_losses)),
            ("client_cpu_us", real(load.client_cpu_us)),
            ("client_core_share", real(load.client_core_share)),
            ("subject_cpu_us", load.subject_cpu_us.map_or(Value::Null, real)),
            ("subject_core_share", load.subject_core_share.map_or(Value::Null, real)),
            ("processors", count(measured.processors)),
            ("other_executors", count(measured.other_executors)),
            ("report", without_intervals(load)?.into()),
        ];
        self.insert("measurement_taken", &[&row[..], &latency(&load.latency)].concat())
    }

    fn add_kind(&mut self, tried: Tried, kind: &KindReport) -> Result<(), StoreError> {
        let row = [
            ("attempt", tried.id.into()),
            ("workload", kind.workload.into()),
            ("kind", kind.kind.into()),
            ("committed", count(kind.committed)),
            ("rolled_back", count(kind.rolled_back)),
        ];
        self.insert("kind", &[&row[..], &latency(&kind.latency)].concat())
    }

    fn add_intervals(&mut self, tried: Tried, load: &LoadReport) -> Result<(), StoreError> {
        for (number, interval) in (1_i64..).zip(&load.intervals) {
            self.insert(
                "interval_seen",
                &[
                    ("attempt", tried.id.into()),
                    ("number", number.into()),
                    ("until_s", real(interval.until_s)),
                    ("transactions", count(interval.transactions)),
                    ("mean_ms", real(interval.latency.mean_ms)),
                    ("p99_ms", real(interval.latency.p99_ms)),
                    ("histogram", json(&interval.histogram)?.into()),
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
        self.insert(
            "interval_kind",
            &[
                ("attempt", tried.id.into()),
                ("number", number.into()),
                ("workload", kind.workload.into()),
                ("kind", kind.kind.into()),
                ("transactions", count(kind.transactions)),
                ("mean_ms", real(kind.mean_ms)),
                ("p99_ms", real(kind.p99_ms)),
            ],
        )
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
                store.insert(
                    "consistency",
                    &[
                        ("start", start.into()),
                        ("batchset", batchset.into()),
                        ("condition", condition.name.into()),
                        ("violation", violation),
                    ],
                )?;
            }
            Ok(())
        })
    }
}

/// What the clients saw, but for the intervals, which have rows of their own.
fn without_intervals(load: &LoadReport) -> Result<String, StoreError> {
    let report = serde_json::to_value(load);
    let mut report = report.map_err(|source| StoreError::Json { what: "a report", source })?;
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

/// The columns of a latency.
pub(super) fn latency(latency: &Latency) -> [(&'static str, Value<'static>); 5] {
    let Latency { mean_ms, p50_ms, p95_ms, p99_ms, max_ms } = *latency;
    [
        ("mean_ms", real(mean_ms)),
        ("p50_ms", real(p50_ms)),
        ("p95_ms", real(p95_ms)),
        ("p99_ms", real(p99_ms)),
        ("max_ms", real(max_ms)),
    ]
}

pub(super) fn json(value: &impl serde::Serialize) -> Result<String, StoreError> {
    let text = serde_json::to_string(value);
    text.map_err(|source| StoreError::Json { what: "what is to be written", source })
}

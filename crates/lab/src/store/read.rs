//! What is read: what is left to do, curves, and rows for the analysis protocol.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use tidegate_control::Mpl;
use tidegate_workload::workload::mean_think_time;

use super::moments::MACHINE_HOST;
use super::rows::from_row;
use super::{NOT_CHECKED, Store, StoreError};
use crate::experiment::machine;
use crate::experiment::treatment::{Admission, ArrivalSpec, Treatment};
use crate::experiment::workload::WorkloadSpec;
use crate::experiment::{Execution, SubjectKind};
use crate::tap::posterior::variance_of_mean;
use crate::tap::{
    BatchExecution, BatchsetInstance, BatchsetKey, DataSet, ExecutionKey, Factors, RunDesign,
    RunId, TapRun,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExperimentRow {
    pub id: i64,
    pub name: String,
    pub scenario: String,
    /// The preset, or nothing.
    pub preset: String,
    /// The subjects, separated by commas.
    pub subjects: String,
    pub file: String,
    /// When it began, in microseconds since 1970.
    pub began_us: i64,
    /// When its last measurement ended, in microseconds since 1970.
    pub measured_us: Option<i64>,
    pub planned: i64,
    pub done: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRow {
    pub id: i64,
    pub number: u32,
    pub subject: String,
    /// Processors; 0 is all there were.
    pub processors: u32,
    pub primary_key: bool,
    /// The subject's settings, by name.
    pub settings: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct BatchsetRow {
    pub id: i64,
    /// Its run's number in the plan.
    pub run: u32,
    pub number: u32,
    pub spec: WorkloadSpec,
    pub treatment: Treatment,
}

impl BatchsetRow {
    pub fn describe(&self) -> String {
        let treatment = self.treatment.to_string();
        let separator = if treatment.is_empty() { "" } else { "; " };
        format!("{}{separator}{treatment}", self.spec.describe())
    }
}

/// Throughput over MPLs, of a batchset.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    pub run: RunRow,
    pub batchset: BatchsetRow,
    /// What was measured, MPLs rising.
    pub points: Vec<Point>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub mpl: u32,
    pub repetition: u32,
    pub tps: f64,
    pub mean_ms: f64,
    /// 99th percentile of the latency, in milliseconds.
    pub p99_ms: f64,
    pub clients: u32,
    /// Transactions that ended in the measured time.
    pub transactions: i64,
    /// Transactions running when the time was up.
    pub stragglers: i64,
    /// Errors that clients were told of.
    pub errors: i64,
}

/// A run's columns, the last of which are the subject's settings as JSON.
type StoredRun = (i64, u32, String, u32, bool, String);

/// Why there is neither a check nor a reason.
const MISSING: &str = "the laboratory was interrupted before, or has not come to it";

/// How often tables were checked, and how often they could not be.
#[derive(Clone, Copy, Default)]
struct Checks {
    made: i64,
    failed: i64,
}

impl Store {
    /// All experiments, the oldest first.
    pub fn experiments(&mut self) -> Result<Vec<ExperimentRow>, StoreError> {
        self.rows(
            "SELECT e.id, e.name, e.scenario, e.preset, e.subjects, e.file, e.began_us, \
             (SELECT COUNT(*) FROM execution x, batchset b, run r WHERE x.batchset = b.id \
              AND b.run = r.id AND r.experiment = e.id), \
             (SELECT COUNT(*) FROM measurement m, execution x, batchset b, run r \
              WHERE m.execution = x.id AND x.batchset = b.id AND b.run = r.id \
              AND r.experiment = e.id), \
             (SELECT MAX(m.ended_us) FROM measurement m, execution x, batchset b, run r \
              WHERE m.execution = x.id AND x.batchset = b.id AND b.run = r.id \
              AND r.experiment = e.id) \
             FROM experiment e ORDER BY e.id",
            &[],
        )
    }

    /// An experiment.
    ///
    /// # Errors
    /// [`StoreError::Missing`], and all others.
    pub fn experiment(&mut self, id: i64) -> Result<ExperimentRow, StoreError> {
        let found = self.experiments()?.into_iter().find(|row| row.id == id);
        found.ok_or(StoreError::Missing { what: "experiment", id })
    }

    /// The runs of an experiment.
    pub fn runs(&mut self, experiment: i64) -> Result<Vec<RunRow>, StoreError> {
        let rows: Vec<StoredRun> = self.rows(
            "SELECT id, number, subject, processors, primary_key, settings FROM run \
             WHERE experiment = ? ORDER BY number",
            &[experiment.into()],
        )?;
        let run = |(id, number, subject, processors, primary_key, settings): StoredRun| {
            let settings = parsed(&settings, "settings")?;
            Ok(RunRow { id, number, subject, processors, primary_key, settings })
        };
        rows.into_iter().map(run).collect()
    }

    /// The batchsets of an experiment.
    pub fn batchsets(&mut self, experiment: i64) -> Result<Vec<BatchsetRow>, StoreError> {
        let rows: Vec<(i64, u32, u32, String, String)> = self.rows(
            "SELECT b.id, r.number, b.number, b.spec, b.treatment FROM batchset b, run r \
             WHERE b.run = r.id AND r.experiment = ? ORDER BY r.number, b.number",
            &[experiment.into()],
        )?;
        let batchset = |(id, run, number, spec, treatment): (_, _, _, String, String)| {
            let spec = parsed(&spec, "a workload")?;
            Ok(BatchsetRow { id, run, number, spec, treatment: parsed(&treatment, "a treatment")? })
        };
        rows.into_iter().map(batchset).collect()
    }

    /// The rows of an experiment's executions that this host has to do, by their places in the
    /// plan: those that are not done, and all of a batchset that another host left unfinished, for
    /// one host measures all of a batchset. What a machine in virtual time has measured is no
    /// host's.
    pub fn to_do(&mut self, experiment: i64) -> Result<BTreeMap<Execution, i64>, StoreError> {
        let host = self.host().to_owned();
        let rows = self.rows(
            "WITH undone AS (SELECT y.id, y.batchset FROM execution y, batchset d, run q \
             WHERE y.batchset = d.id AND d.run = q.id AND q.experiment = ? \
             AND y.id NOT IN (SELECT execution FROM measurement)) \
             SELECT r.number, b.number, x.mpl, x.repetition, x.id \
             FROM execution x, batchset b, run r WHERE x.batchset = b.id AND b.run = r.id \
             AND b.id IN (SELECT batchset FROM undone) AND (x.id IN (SELECT id FROM undone) \
             OR EXISTS (SELECT 1 FROM series s WHERE s.batchset = b.id AND s.host <> ? \
             AND s.host <> ? \
             AND s.number = (SELECT MAX(n.number) FROM series n WHERE n.batchset = b.id)))",
            &[experiment.into(), host.as_str().into(), MACHINE_HOST.into()],
        )?;
        Ok(rows.into_iter().collect())
    }

    /// The curves of an experiment.
    pub fn curves(&mut self, experiment: i64) -> Result<Vec<Curve>, StoreError> {
        let runs = self.runs(experiment)?;
        let mut curves = Vec::new();
        for batchset in self.batchsets(experiment)? {
            let Some(run) = runs.iter().find(|run| run.number == batchset.run) else { continue };
            let points = self.points(batchset.id)?;
            curves.push(Curve { run: run.clone(), batchset, points });
        }
        Ok(curves)
    }

    fn points(&mut self, batchset: i64) -> Result<Vec<Point>, StoreError> {
        self.rows(
            "SELECT x.mpl, x.repetition, m.tps, m.mean_ms, m.p99_ms, m.clients, m.transactions, \
             m.stragglers, (SELECT CAST(COALESCE(SUM(t.times), 0) AS bigint) FROM trouble t \
             WHERE t.attempt = m.attempt AND t.kind = 'error') \
             FROM execution x, measurement m WHERE m.execution = x.id AND x.batchset = ? \
             ORDER BY x.mpl, x.repetition",
            &[batchset.into()],
        )
    }

    /// The conditions that did not hold: the run's and the batchset's number, the condition, how.
    pub fn violations(&mut self, experiment: i64) -> Result<Vec<String>, StoreError> {
        let rows: Vec<(u32, u32, String, String)> = self.rows(
            "SELECT r.number, b.number, c.condition, c.violation \
             FROM consistency c, batchset b, run r WHERE c.batchset = b.id AND b.run = r.id \
             AND r.experiment = ? AND c.violation IS NOT NULL AND c.condition <> ? ORDER BY c.id",
            &[experiment.into(), NOT_CHECKED.into()],
        )?;
        let violation = |(run, batchset, condition, how)| {
            format!("run {run}, batchset {batchset}: {condition}: {how}")
        };
        Ok(rows.into_iter().map(violation).collect())
    }

    /// The measurements of whose tables it is not known whether they are consistent: the run's and
    /// the batchset's number, the subject's start, why. The check failed; or there was none, for
    /// the laboratory was interrupted before it, or has not come to it yet.
    pub fn unchecked(&mut self, experiment: i64) -> Result<Vec<String>, StoreError> {
        let mut lines = self.failed_checks(experiment)?;
        lines.extend(self.missing_checks(experiment)?);
        Ok(lines)
    }

    fn failed_checks(&mut self, experiment: i64) -> Result<Vec<String>, StoreError> {
        let rows: Vec<(u32, u32, i64, String)> = self.rows(
            "SELECT r.number, b.number, c.start, c.violation \
             FROM consistency c, batchset b, run r WHERE c.batchset = b.id AND b.run = r.id \
             AND r.experiment = ? AND c.condition = ? ORDER BY c.id",
            &[experiment.into(), NOT_CHECKED.into()],
        )?;
        let failed =
            |(run, batchset, start, why): (_, _, _, String)| unchecked(run, batchset, start, &why);
        Ok(rows.into_iter().map(failed).collect())
    }

    fn missing_checks(&mut self, experiment: i64) -> Result<Vec<String>, StoreError> {
        let checks = self.checks(experiment)?;
        let batchsets = self.batchsets(experiment)?.into_iter();
        let fresh: BTreeSet<i64> = batchsets
            .filter(|batchset| batchset.treatment.needs_fresh_tables())
            .map(|batchset| batchset.id)
            .collect();
        let rows: Vec<(u32, u32, i64, i64, i64)> = self.rows(
            "SELECT r.number, b.number, a.start, b.id, COUNT(*) \
             FROM measurement m, attempt a, execution x, batchset b, run r \
             WHERE m.attempt = a.id AND m.execution = x.id AND x.batchset = b.id \
             AND b.run = r.id AND r.experiment = ? \
             GROUP BY r.number, b.number, a.start, b.id ORDER BY a.start, b.number",
            &[experiment.into()],
        )?;
        let mut missing = Vec::new();
        for (run, batchset, start, id, executions) in rows {
            // Tables that are made anew for each execution are checked after each.
            let wanted = if fresh.contains(&id) { executions } else { 1 };
            // What was never checked has no entry.
            let seen = checks.get(&(start, id)).copied().unwrap_or_default();
            if seen.made + seen.failed < wanted {
                missing.push(unchecked(run, batchset, start, MISSING));
            }
        }
        Ok(missing)
    }

    /// How often the tables of a batchset were checked after a start, and how often they could not
    /// be.
    fn checks(&mut self, experiment: i64) -> Result<BTreeMap<(i64, i64), Checks>, StoreError> {
        let rows: Vec<((i64, i64), String, i64)> = self.rows(
            "SELECT c.start, c.batchset, c.condition, COUNT(*) \
             FROM consistency c, batchset b, run r WHERE c.batchset = b.id AND b.run = r.id \
             AND r.experiment = ? GROUP BY c.start, c.batchset, c.condition",
            &[experiment.into()],
        )?;
        let mut checks: BTreeMap<(i64, i64), Checks> = BTreeMap::new();
        for (key, condition, times) in rows {
            let seen = checks.entry(key).or_default();
            if condition == NOT_CHECKED {
                seen.failed = times;
            } else {
                // A check has a row for each condition.
                seen.made = seen.made.max(times);
            }
        }
        Ok(checks)
    }

    /// Why executions failed that are not done: the run's and the batchset's number, the MPL, why.
    pub fn failures(&mut self, experiment: i64) -> Result<Vec<String>, StoreError> {
        let rows: Vec<(u32, u32, u32, String)> = self.rows(
            "SELECT r.number, b.number, x.mpl, f.reason \
             FROM failure f, attempt a, execution x, batchset b, run r \
             WHERE f.attempt = a.id AND a.execution = x.id AND x.batchset = b.id AND b.run = r.id \
             AND r.experiment = ? AND x.id NOT IN (SELECT execution FROM measurement) \
             ORDER BY f.attempt",
            &[experiment.into()],
        )?;
        let failure = |(run, batchset, mpl, reason)| {
            format!("run {run}, batchset {batchset}, MPL {mpl}: {reason}")
        };
        Ok(rows.into_iter().map(failure).collect())
    }

    /// The rows of an experiment for the analysis protocol, with the plan that they are held
    /// against.
    pub fn data_set(
        &mut self,
        id: i64,
        experiment: &crate::experiment::Experiment,
        plan: &crate::experiment::Plan,
    ) -> Result<DataSet, StoreError> {
        let mut data = DataSet::default();
        let rows = self.runs(id)?;
        for (run, row) in plan.runs.iter().zip(&rows) {
            let (dbms, processors) = self.start_of(row.id)?;
            data.runs.push(TapRun {
                id: RunId(row.number.into()),
                // Runs on different machines are not of one group.
                subject: format!("{}{}", row.subject, machine::described(&row.settings)),
                dbms,
                plan: RunDesign {
                    // They are numbered from 1.
                    batchsets: run.batchsets.last().map_or(0, |last| last.number),
                    mpls: run
                        .batchsets
                        .iter()
                        .flat_map(|set| &set.batches)
                        .map(|batch| Mpl::at_least_one(batch.mpl))
                        .collect(),
                    executions: run
                        .batchsets
                        .first()
                        .and_then(|set| set.batches.first())
                        .map_or(1, |batch| batch.repetitions),
                    num_procs: run.processors.unwrap_or(processors),
                    ctl_s: experiment.ctl.as_secs_f64(),
                    warmup_s: experiment.warmup.as_secs_f64(),
                    connect_limit_s: experiment.connect.as_secs_f64(),
                },
            });
        }
        self.add_batchsets(id, &mut data)?;
        self.add_executions(id, &mut data)?;
        Ok(data)
    }

    /// The DBMS and its processors when a run was last started.
    fn start_of(&mut self, run: i64) -> Result<(String, u32), StoreError> {
        let rows = self.rows(
            "SELECT version, processors FROM start WHERE run = ? ORDER BY id DESC LIMIT 1",
            &[run.into()],
        )?;
        Ok(rows.into_iter().next().unwrap_or_else(|| ("not started".to_owned(), 0)))
    }

    fn add_batchsets(&mut self, experiment: i64, data: &mut DataSet) -> Result<(), StoreError> {
        let begun: Vec<i64> = self.rows(
            "SELECT DISTINCT x.batchset FROM attempt a, execution x, batchset b, run r \
             WHERE a.execution = x.id AND x.batchset = b.id AND b.run = r.id AND r.experiment = ?",
            &[experiment.into()],
        )?;
        for batchset in self.batchsets(experiment)? {
            if begun.contains(&batchset.id) {
                let run = RunId(batchset.run.into());
                data.batchsets.push(BatchsetInstance {
                    key: BatchsetKey { run, batchset: batchset.number },
                    factors: factors(&batchset.spec)?,
                    think_s: think_s(&batchset)?,
                    is_limit: matches!(batchset.treatment.admission, Admission::Limit { .. }),
                });
            }
        }
        Ok(())
    }

    fn add_executions(&mut self, experiment: i64, data: &mut DataSet) -> Result<(), StoreError> {
        let others = self.other_dbms(experiment)?;
        let variances = self.variances_of_means(experiment)?;
        let executions = self.read(
            "SELECT r.number, b.number, x.mpl, x.repetition, m.attempt, k.host, r.subject, \
             a.began_us, m.ended_us, m.connect_s, m.seconds, m.clients, m.transactions, \
             (SELECT CAST(COALESCE(SUM(t.times), 0) AS bigint) FROM trouble t \
             WHERE t.attempt = m.attempt AND t.kind = 'error'), \
             m.mean_ms, m.processors, m.other_executors \
             FROM measurement m, attempt a, start s, machine k, execution x, batchset b, run r \
             WHERE m.attempt = a.id AND a.start = s.id AND s.machine = k.id \
             AND m.execution = x.id AND x.batchset = b.id AND b.run = r.id AND r.experiment = ?",
            &[experiment.into()],
            |row| {
                let Execution { run, batchset, mpl, repetition: iteration } = row.next()?;
                let (run, mpl) = (RunId(run.into()), Mpl::at_least_one(mpl));
                let attempt: i64 = row.next()?;
                let (host, subject): (String, String) = row.next()?;
                let mut execution = BatchExecution {
                    key: ExecutionKey { run, batchset, mpl, iteration },
                    machine: machine(host.clone(), &subject, run),
                    host,
                    began_s: row.next::<i64>()? as f64 / 1e6,
                    ended_s: row.next::<i64>()? as f64 / 1e6,
                    connect_s: row.next()?,
                    seconds: row.next()?,
                    clients: row.next()?,
                    transactions: row.next()?,
                    errors: row.next()?,
                    atpt_s: Some(row.next::<f64>()? / 1e3),
                    variance_of_mean: variances.get(&attempt).copied(),
                    num_procs: row.next()?,
                    other_executors: row.next()?,
                    other_dbms: others.get(&attempt).cloned().unwrap_or_default(),
                };
                execution.atpt_s = execution.atpt_s.filter(|_| execution.transactions > 0);
                Ok(execution)
            },
        )?;
        data.executions.extend(executions);
        Ok(())
    }

    /// What the intervals of each attempt say of the variance of its mean throughput, by attempt.
    fn variances_of_means(&mut self, experiment: i64) -> Result<BTreeMap<i64, f64>, StoreError> {
        let mut variances = BTreeMap::new();
        // The intervals of one run are in memory at a time.
        for run in self.runs(experiment)? {
            let rows: Vec<(i64, f64, u64)> = self.rows(
                "SELECT m.attempt, i.until_s, i.transactions \
                 FROM batchset b, execution x, measurement m, interval_seen i \
                 WHERE b.run = ? AND x.batchset = b.id AND m.execution = x.id \
                 AND i.attempt = m.attempt ORDER BY m.attempt, i.number",
                &[run.id.into()],
            )?;
            for of_attempt in rows.chunk_by(|(one, ..), (other, ..)| one == other) {
                let intervals: Vec<(f64, u64)> =
                    of_attempt.iter().map(|&(_, until_s, count)| (until_s, count)).collect();
                let attempt = of_attempt[0].0;
                variances.extend(variance_of_mean(&intervals).map(|found| (attempt, found)));
            }
        }
        Ok(variances)
    }

    fn other_dbms(&mut self, experiment: i64) -> Result<BTreeMap<i64, Vec<String>>, StoreError> {
        let rows = self.rows(
            "SELECT t.attempt, t.what FROM trouble t, attempt a, execution x, batchset b, run r \
             WHERE t.kind = 'other DBMS' AND t.attempt = a.id AND a.execution = x.id \
             AND x.batchset = b.id AND b.run = r.id AND r.experiment = ?",
            &[experiment.into()],
        )?;
        let mut others: BTreeMap<i64, Vec<String>> = BTreeMap::new();
        for (attempt, what) in rows {
            others.entry(attempt).or_default().push(what);
        }
        Ok(others)
    }
}

/// The machine of an execution: its host, whatever else of it a start has seen. A simulated subject
/// is in a time of its own, at the same time as nobody else; and so is each run of a machine in
/// virtual time.
fn machine(host: String, subject: &str, run: RunId) -> String {
    match subject.parse() {
        Ok(SubjectKind::Machine) => format!("{host}, in virtual time, run {}", run.0),
        Ok(kind) if kind.is_virtual() => format!("{host}, in virtual time"),
        _ => host,
    }
}

/// The mean think time of a batchset's clients, in seconds; `None` where transactions come by a
/// rate.
fn think_s(batchset: &BatchsetRow) -> Result<Option<f64>, StoreError> {
    if batchset.treatment.arrivals != ArrivalSpec::Closed {
        return Ok(None);
    }
    let workload = batchset.spec.build()?;
    Ok(Some(mean_think_time(&*workload).as_secs_f64()))
}

/// The independent variables of a workload. What is not of the thrashing study is a group of its
/// own.
fn factors(spec: &WorkloadSpec) -> Result<Factors, StoreError> {
    Ok(match spec {
        WorkloadSpec::Thrash(thrash) => Factors {
            group: group([thrash.reads, thrash.updates, thrash.changes, thrash.joins]).to_owned(),
            selectivity: thrash.sf / 100.0,
            rose: thrash.rose / 100.0,
            primary_key: thrash.primary_key,
        },
        other => Factors {
            group: other.build()?.name().to_owned(),
            selectivity: 1.0,
            rose: 1.0,
            primary_key: true,
        },
    })
}

/// The group of the weights of reads, updates, changes and joins: the study has the first two.
fn group(weights: [u16; 4]) -> &'static str {
    match weights.map(|weight| weight > 0) {
        [true, false, false, false] => "read",
        [false, true, false, false] => "update",
        [false, false, true, false] => "changes",
        [false, false, false, true] => "joins",
        _ => "mixed",
    }
}

/// A line on tables that were not checked.
fn unchecked(run: u32, batchset: u32, start: i64, why: &str) -> String {
    format!("run {run}, batchset {batchset}, start {start}: {NOT_CHECKED}: {why}")
}

pub(super) fn parsed<T: DeserializeOwned>(text: &str, what: &'static str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|source| StoreError::Json { what, source })
}

from_row!(ExperimentRow {
    id,
    name,
    scenario,
    preset,
    subjects,
    file,
    began_us,
    planned,
    done,
    measured_us
});
from_row!(Point {
    mpl,
    repetition,
    tps,
    mean_ms,
    p99_ms,
    clients,
    transactions,
    stragglers,
    errors
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batchset_is_in_the_group_of_what_its_transactions_do() {
        for (weights, expected) in [
            ([1, 0, 0, 0], "read"),
            ([0, 3, 0, 0], "update"),
            ([0, 0, 1, 0], "changes"),
            ([0, 0, 0, 2], "joins"),
            ([1, 1, 0, 0], "mixed"),
            ([9, 0, 1, 0], "mixed"),
        ] {
            assert_eq!(group(weights), expected, "{weights:?}");
        }
    }
}

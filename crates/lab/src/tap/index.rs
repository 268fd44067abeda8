//! The rows in the order of their keys, once they are known not to contradict each other.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use tidegate_control::Mpl;

use super::curve::ThroughputCurve;
use super::data::{
    BatchExecution, BatchsetInstance, BatchsetKey, DataError, DataSet, ExecutionKey, RunDesign,
    RunId, TapRun,
};
use super::posterior::LevelSample;

/// How much there is at each level of the hierarchy (Fig. 5). A batch or batchset instance counts
/// when it has an execution, as the study counts its "BSIs calculated based on the BEs retained".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Batch executions, BEs.
    pub executions: usize,
    /// Batch instances, BIs.
    pub batches: usize,
    /// Batchset instances, BSIs.
    pub batchsets: usize,
}

/// The executions of a batch, by iteration; never empty.
pub(super) type BatchRows<'a> = BTreeMap<u32, &'a BatchExecution>;

/// A batchset instance that has executions.
#[derive(Clone, Debug)]
pub(super) struct BatchsetRows<'a> {
    pub run: &'a TapRun,
    pub row: &'a BatchsetInstance,
    /// The batches that have executions.
    pub batches: BTreeMap<Mpl, BatchRows<'a>>,
}

#[derive(Clone, Debug)]
pub(super) struct RowIndex<'a> {
    pub runs: BTreeMap<RunId, &'a TapRun>,
    /// The batchset instances that have executions.
    pub batchsets: BTreeMap<BatchsetKey, BatchsetRows<'a>>,
}

impl<'a> RowIndex<'a> {
    pub(super) fn new(data: &'a DataSet) -> Result<RowIndex<'a>, DataError> {
        let runs = index_runs(&data.runs)?;
        let mut batchsets = index_batchsets(&runs, &data.batchsets)?;
        for execution in &data.executions {
            let key = execution.key;
            let batchset = batchsets.get_mut(&key.in_batchset());
            let batchset = batchset.ok_or(DataError::NoBatchset(key))?;
            check_execution(&batchset.run.plan, execution)?;
            let batch = batchset.batches.entry(key.mpl).or_default();
            if batch.insert(key.iteration, execution).is_some() {
                return Err(DataError::SameExecution(key));
            }
        }
        batchsets.retain(|_, batchset| !batchset.batches.is_empty());
        Ok(RowIndex { runs, batchsets })
    }

    /// The same without some executions, and without the batches and batchset instances that lose
    /// their last.
    pub(super) fn without(&self, dropped: &BTreeSet<ExecutionKey>) -> RowIndex<'a> {
        let mut left = self.clone();
        for batchset in left.batchsets.values_mut() {
            for batch in batchset.batches.values_mut() {
                batch.retain(|_, execution| !dropped.contains(&execution.key));
            }
            batchset.batches.retain(|_, batch| !batch.is_empty());
        }
        left.batchsets.retain(|_, batchset| !batchset.batches.is_empty());
        left
    }

    pub(super) fn counts(&self) -> Counts {
        let batches = || self.batchsets.values().flat_map(|batchset| batchset.batches.values());
        Counts {
            executions: batches().map(BTreeMap::len).sum(),
            batches: batches().count(),
            batchsets: self.batchsets.len(),
        }
    }

    /// What there would be if every run had done what was planned.
    pub(super) fn planned(&self) -> Counts {
        let mut planned = Counts::default();
        for run in self.runs.values() {
            let batchsets = run.plan.batchsets as usize;
            let batches = batchsets * run.plan.mpls.len();
            planned.batchsets += batchsets;
            planned.batches += batches;
            planned.executions += batches * run.plan.executions as usize;
        }
        planned
    }
}

impl<'a> BatchsetRows<'a> {
    pub(super) fn key(&self) -> BatchsetKey {
        self.row.key
    }

    pub(super) fn executions(&self) -> impl Iterator<Item = &'a BatchExecution> {
        self.batches.values().flat_map(|batch| batch.values().copied())
    }

    /// The planned batches that have no execution.
    pub(super) fn missing(&self) -> Vec<Mpl> {
        let planned = self.run.plan.mpls.iter().copied();
        planned.filter(|mpl| !self.batches.contains_key(mpl)).collect()
    }

    /// Throughput against MPL, each the mean over its executions.
    pub(super) fn curve(&self) -> Option<ThroughputCurve> {
        let point = |&mpl: &Mpl| (mpl, self.batches.get(&mpl).map(mean_tps));
        ThroughputCurve::new(self.run.plan.mpls.iter().map(point))
    }

    /// What its executions say of each batch's throughput.
    pub(super) fn levels(&self) -> Vec<LevelSample> {
        let level = |(&mpl, batch): (&Mpl, &BatchRows<'_>)| {
            let within: Vec<f64> =
                batch.values().filter_map(|execution| execution.variance_of_mean).collect();
            LevelSample {
                mpl,
                tps: batch.values().map(|execution| execution.tps()).collect(),
                variance_within: within.iter().sum::<f64>() / within.len().max(1) as f64,
            }
        };
        self.batches.iter().map(level).collect()
    }

    /// The mean time of all transactions of all executions, in seconds; `None` without any.
    pub(super) fn atpt_s(&self) -> Option<f64> {
        let (mut transactions, mut total_s) = (0.0, 0.0);
        for execution in self.executions() {
            let count = execution.transactions as f64;
            transactions += count;
            total_s += count * execution.atpt_s.unwrap_or(0.0);
        }
        (transactions > 0.0).then(|| total_s / transactions)
    }
}

/// The mean throughput of a batch's executions.
pub(super) fn mean_tps(batch: &BatchRows<'_>) -> f64 {
    batch.values().map(|execution| execution.tps()).sum::<f64>() / batch.len() as f64
}

fn index_runs(rows: &[TapRun]) -> Result<BTreeMap<RunId, &TapRun>, DataError> {
    let mut runs = BTreeMap::new();
    for run in rows {
        check_plan(run)?;
        if runs.insert(run.id, run).is_some() {
            return Err(DataError::SameRun(run.id));
        }
    }
    Ok(runs)
}

fn index_batchsets<'a>(
    runs: &BTreeMap<RunId, &'a TapRun>,
    rows: &'a [BatchsetInstance],
) -> Result<BTreeMap<BatchsetKey, BatchsetRows<'a>>, DataError> {
    let mut batchsets = BTreeMap::new();
    for row in rows {
        let run = *runs.get(&row.key.run).ok_or(DataError::NoRun(row.key))?;
        if !(1..=run.plan.batchsets).contains(&row.key.batchset) {
            return Err(DataError::UnplannedBatchset(row.key));
        }
        let batchset = BatchsetRows { run, row, batches: BTreeMap::new() };
        if batchsets.insert(row.key, batchset).is_some() {
            return Err(DataError::SameBatchset(row.key));
        }
    }
    Ok(batchsets)
}

fn check_plan(run: &TapRun) -> Result<(), DataError> {
    let plan = &run.plan;
    let is_time = |seconds: f64| seconds.is_finite() && seconds >= 0.0;
    let is_length = |seconds: f64| is_time(seconds) && seconds > 0.0;
    let faults = [
        (plan.batchsets == 0, "no batchset is planned"),
        (plan.mpls.is_empty(), "no MPL is planned"),
        (plan.executions == 0, "no execution of a batch is planned"),
        (!is_length(plan.ctl_s), "the connection time limit is not a length of time"),
        // 0 is one that nothing to connect keeps.
        (!is_time(plan.warmup_s), "the warm-up is not a length of time"),
        (!is_time(plan.connect_limit_s), "the limit for connecting is not a length of time"),
    ];
    let fault = faults.into_iter().find(|(is_wrong, _)| *is_wrong);
    fault.map_or(Ok(()), |(_, what)| Err(DataError::Plan { run: run.id, what }))
}

fn check_execution(plan: &RunDesign, execution: &BatchExecution) -> Result<(), DataError> {
    let key = execution.key;
    if !plan.mpls.contains(&key.mpl) || !(1..=plan.executions).contains(&key.iteration) {
        return Err(DataError::UnplannedExecution(key));
    }
    let seconds = execution.seconds;
    let is_measured = seconds.is_finite() && seconds > 0.0;
    let is_mean = |atpt_s: f64| atpt_s.is_finite() && atpt_s > 0.0;
    let has_mean = match execution.atpt_s {
        Some(atpt_s) => execution.transactions > 0 && is_mean(atpt_s),
        None => execution.transactions == 0,
    };
    let faults = [
        (!is_measured, "measuring did not take a length of time"),
        (!has_mean, "a mean time above 0 goes with completed transactions, and none with none"),
    ];
    let fault = faults.into_iter().find(|(is_wrong, _)| *is_wrong);
    fault.map_or(Ok(()), |(_, what)| Err(DataError::Execution { key, what }))
}

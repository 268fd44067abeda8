//! Generated data sets: the study's two designs, without a fault in them.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_control::{Mpl, SplitMix64};

use super::{
    BatchExecution, BatchsetInstance, BatchsetKey, DataSet, ExecutionKey, Factors, RunDesign,
    RunId, TapRun,
};

/// A design: each subject runs with each number of processors, with and without primary keys.
pub(super) struct Design {
    pub subjects: &'static [&'static str],
    pub num_procs: &'static [u32],
    pub batchsets: u32,
    pub executions: u32,
}

const SUBJECTS: &[&str] = &["X", "Y", "Z", "MySQL", "PostgreSQL"];

/// 40 runs, 1,120 batchset instances, 33,600 executions.
pub(super) const EXPLORATORY: Design =
    Design { subjects: SUBJECTS, num_procs: &[1, 2, 4, 8], batchsets: 28, executions: 3 };

/// 50 runs, 1,400 batchset instances, 70,000 executions.
pub(super) const CONFIRMATORY: Design =
    Design { subjects: SUBJECTS, num_procs: &[1, 2, 4, 6, 8], batchsets: 28, executions: 5 };

/// SF of the reads, then of the updates; each with four values of ROSE.
const SELECTIVITY: [(&str, f64); 7] = [
    ("read", 0.000_1),
    ("read", 0.001),
    ("read", 0.01),
    ("update", 0.002_5),
    ("update", 0.005),
    ("update", 0.007_5),
    ("update", 0.01),
];
const ROSE: [f64; 4] = [0.25, 0.5, 0.75, 1.0];

pub(super) const CTL_S: f64 = 120.0;

/// Transactions in 120 s at MPL 100, 200, …: rising towards a ceiling of 1,000 tps.
const RISING: [u64; 10] =
    [24_000, 43_200, 58_560, 70_800, 80_640, 88_560, 94_800, 99_840, 103_920, 107_160];

impl Design {
    pub(super) fn keys(&self) -> Vec<BatchsetKey> {
        let runs = self.subjects.len() * self.num_procs.len() * 2;
        let runs = (1..).take(runs).map(RunId);
        runs.flat_map(|run| (1..=self.batchsets).map(move |batchset| BatchsetKey { run, batchset }))
            .collect()
    }

    /// The data: those of `thrashing` fall by half after one of MPL 300 to 700, for good; the
    /// others rise to the end.
    pub(super) fn data(&self, thrashing: &BTreeSet<BatchsetKey>, seed: u64) -> DataSet {
        let mut data = DataSet::default();
        let mut generator = SplitMix64::new(seed);
        let mut id = 0;
        for subject in self.subjects {
            let mut clock_s = 1_000.0;
            for &num_procs in self.num_procs {
                for primary_key in [false, true] {
                    id += 1;
                    let run = self.run(id, subject, num_procs);
                    for batchset in 1..=self.batchsets {
                        let key = BatchsetKey { run: run.id, batchset };
                        let factors = factors(key, primary_key);
                        data.batchsets.push(BatchsetInstance {
                            key,
                            factors,
                            think_s: Some(0.0),
                            is_limit: false,
                        });
                        let top = 2 + pick(&mut generator, 5);
                        let curve = curve(thrashing.contains(&key).then_some(top));
                        for (&mpl, &transactions) in run.plan.mpls.iter().zip(&curve) {
                            for iteration in 1..=self.executions {
                                let key = key.batch(mpl).execution(iteration);
                                let machine = format!("machine of {subject}");
                                let row =
                                    execution(key, transactions, &mut clock_s, &mut generator);
                                let host = machine.clone();
                                let row = BatchExecution { host, machine, num_procs, ..row };
                                data.executions.push(row);
                            }
                        }
                    }
                    data.runs.push(run);
                }
            }
        }
        data
    }

    fn run(&self, id: i64, subject: &str, num_procs: u32) -> TapRun {
        TapRun {
            id: RunId(id),
            subject: subject.to_owned(),
            dbms: format!("{subject} 1.0"),
            plan: RunDesign {
                batchsets: self.batchsets,
                mpls: (1..=10).map(|step| Mpl::at_least_one(100 * step)).collect(),
                executions: self.executions,
                num_procs,
                ctl_s: CTL_S,
                warmup_s: CTL_S / 5.0,
                connect_limit_s: 10.0,
            },
        }
    }
}

/// `machines` runs of three batchsets, three executions a batch, each run on its own machine.
pub(super) fn small(machines: usize) -> DataSet {
    let design =
        Design { subjects: &SUBJECTS[..machines], num_procs: &[2], batchsets: 3, executions: 3 };
    let mut data = design.data(&BTreeSet::new(), 7);
    // One run a machine: those without primary keys are enough.
    let is_kept = |run: RunId| run.0 % 2 == 1;
    data.runs.retain(|run| is_kept(run.id));
    data.batchsets.retain(|batchset| is_kept(batchset.key.run));
    data.executions.retain(|execution| is_kept(execution.key.run));
    renumber(&mut data);
    data
}

fn renumber(data: &mut DataSet) {
    let number = |run: &mut RunId| run.0 = (run.0 + 1) / 2;
    data.runs.iter_mut().for_each(|row| number(&mut row.id));
    data.batchsets.iter_mut().for_each(|row| number(&mut row.key.run));
    data.executions.iter_mut().for_each(|row| number(&mut row.key.run));
}

pub(super) fn key(run: i64, batchset: u32, mpl: u32, iteration: u32) -> ExecutionKey {
    ExecutionKey { run: RunId(run), batchset, mpl: Mpl::at_least_one(mpl), iteration }
}

/// A uniform draw from `0..bound`.
pub(super) fn pick(generator: &mut SplitMix64, bound: usize) -> usize {
    let bound = u64::try_from(bound).expect("a length");
    usize::try_from(generator.next_bits() % bound).expect("below a length")
}

pub(super) fn shuffle<T>(values: &mut [T], generator: &mut SplitMix64) {
    for end in (1..values.len()).rev() {
        values.swap(end, pick(generator, end + 1));
    }
}

/// The rows by key, to change them.
pub(super) struct Rows {
    pub data: DataSet,
    at: BTreeMap<ExecutionKey, usize>,
}

impl Rows {
    pub(super) fn new(data: DataSet) -> Rows {
        let at = data.executions.iter().enumerate().map(|(at, row)| (row.key, at)).collect();
        Rows { data, at }
    }

    pub(super) fn row(&mut self, key: ExecutionKey) -> &mut BatchExecution {
        &mut self.data.executions[self.at[&key]]
    }

    /// Makes an execution end late, at the same throughput.
    pub(super) fn end_late(&mut self, key: ExecutionKey) {
        let row = self.row(key);
        (row.seconds, row.ended_s) = (row.seconds + 12.0, row.ended_s + 12.0);
        row.transactions += row.transactions / 10;
    }
}

pub(super) fn group(key: BatchsetKey) -> &'static str {
    SELECTIVITY[(key.batchset as usize - 1) / ROSE.len()].0
}

fn factors(key: BatchsetKey, primary_key: bool) -> Factors {
    let number = key.batchset as usize - 1;
    let (group, selectivity) = SELECTIVITY[number / ROSE.len()];
    let rose = ROSE[number % ROSE.len()];
    Factors { group: group.to_owned(), selectivity, rose, primary_key }
}

/// Transactions by batch; half and less after the batch at `top`.
fn curve(top: Option<usize>) -> [u64; 10] {
    let mut curve = RISING;
    if let Some(top) = top {
        for (step, transactions) in curve.iter_mut().enumerate().skip(top + 1) {
            let lost = u64::try_from(step - top).expect("a step");
            *transactions = RISING[top] / 2 * (100 - 2 * lost) / 100;
        }
    }
    curve
}

/// An execution with throughput within 1 % and ATPT within 2 %, 30 s after the one before.
fn execution(
    key: ExecutionKey,
    transactions: u64,
    clock_s: &mut f64,
    generator: &mut SplitMix64,
) -> BatchExecution {
    let transactions = transactions * (990 + generator.next_bits() % 21) / 1_000;
    let mean_s = f64::from(key.mpl.get()) * CTL_S / transactions as f64;
    let connect_s = 1.0 + generator.next_draw().value();
    let seconds = CTL_S + 0.05 * generator.next_draw().value();
    let (began_s, ended_s) = (*clock_s, *clock_s + connect_s + seconds);
    *clock_s = ended_s + 30.0;
    BatchExecution {
        key,
        host: String::new(),
        machine: String::new(),
        began_s,
        ended_s,
        connect_s,
        seconds,
        clients: key.mpl.get(),
        transactions,
        errors: 0,
        atpt_s: Some(mean_s * (0.98 + 0.04 * generator.next_draw().value())),
        variance_of_mean: None,
        num_procs: 0,
        other_executors: 0,
        other_dbms: Vec::new(),
    }
}

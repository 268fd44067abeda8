//! Whether a plan that is made anew is the one that was begun.
//!
//! # Mechanism
//! The store keeps an experiment's file, and whoever goes on with it, or analyses or exports it,
//! makes the plan from that file again. A program with other defaults, other batchsets or another
//! order makes another plan, under which rows of the store would be taken for what they are not. So
//! everything of the plan that the store has is held against it: times, runs, workloads, treatments
//! and the order of the executions.
//!
//! # Example
//! A version of Tidegate in which `rows` of the thrashing study is 60,000 by default makes another
//! workload of a file without `rows`: an experiment begun with 30,000 is refused.
//!
//! # Limits
//! Stores of before schema version 3 do not have the times: there the file's are taken, with the
//! defaults of the program at hand. Values that a newer version reads into the same plan, such as a
//! new part of a treatment that is absent by default, are no difference.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::read::{float, int, small, text};
use super::write::{json, times_s};
use super::{Store, StoreError};
use crate::experiment::{Batchset, Execution, Experiment, Plan, RunPlan};

/// The columns of times, in the order of [`times_s`].
const TIMES: [&str; 5] = ["ctl_s", "warmup_s", "pause_s", "connect_limit_s", "interval_s"];

/// Numbers that differ by no more than this share do so by being written as decimals.
const ROUNDING: f64 = 1e-9;

impl Store {
    /// Holds a plan against the one that was begun.
    ///
    /// # Errors
    /// [`StoreError::Replanned`] when it is another one.
    pub(crate) fn check_plan(
        &mut self,
        id: i64,
        experiment: &Experiment,
        plan: &Plan,
    ) -> Result<(), StoreError> {
        let mut what = self.other_time(id, experiment)?;
        if what.is_none() {
            what = self.other_run(id, plan)?;
        }
        if what.is_none() {
            what = self.other_batchset(id, plan)?;
        }
        if what.is_none() {
            what = self.other_order(id, plan)?;
        }
        let Some(what) = what else { return Ok(()) };
        let code = self.query(
            "SELECT c.version, c.build FROM experiment e, code c WHERE c.id = e.code AND e.id = ?",
            &[id.into()],
        )?;
        let then = version(&text(&code, 0, 0), &text(&code, 0, 1));
        let now = version(env!("CARGO_PKG_VERSION"), crate::BUILD);
        Err(StoreError::Replanned { id, what, then, now })
    }

    fn other_time(
        &mut self,
        id: i64,
        experiment: &Experiment,
    ) -> Result<Option<String>, StoreError> {
        let columns = TIMES.join(", ");
        let rows =
            self.query(&format!("SELECT {columns} FROM experiment WHERE id = ?"), &[id.into()])?;
        for (column, (name, planned)) in TIMES.iter().zip(times_s(experiment)).enumerate() {
            if rows.is_empty() || rows.is_null(0, column) {
                continue;
            }
            let stored = float(&rows, 0, column)?;
            if (stored - planned).abs() > ROUNDING * stored.abs() {
                return Ok(Some(format!("{name} was {stored} and is {planned}")));
            }
        }
        Ok(None)
    }

    fn other_run(&mut self, id: i64, plan: &Plan) -> Result<Option<String>, StoreError> {
        let rows = self.query(
            "SELECT number, subject, processors, primary_key, isolation, settings FROM run \
             WHERE experiment = ? ORDER BY number",
            &[id.into()],
        )?;
        if rows.len() != plan.runs.len() {
            let (then, now) = (rows.len(), plan.runs.len());
            return Ok(Some(format!("there were {then} runs and are {now}")));
        }
        for (row, run) in plan.runs.iter().enumerate() {
            let RunPlan { number, subject, processors, primary_key, .. } = run;
            let is_same = small(&rows, row, 0)? == *number
                && text(&rows, row, 1) == subject.kind.to_string()
                && small(&rows, row, 2)? == processors.unwrap_or(0)
                && (int(&rows, row, 3)? != 0) == *primary_key
                && text(&rows, row, 4) == subject.settings.isolation.as_deref().unwrap_or_default()
                && is_written(&text(&rows, row, 5), &subject.settings.named);
            if !is_same {
                return Ok(Some(format!("run {number} is of another configuration")));
            }
        }
        Ok(None)
    }

    fn other_batchset(&mut self, id: i64, plan: &Plan) -> Result<Option<String>, StoreError> {
        let rows = self.query(
            "SELECT r.number, b.number, b.spec, b.treatment FROM batchset b, run r \
             WHERE b.run = r.id AND r.experiment = ? ORDER BY r.number, b.number",
            &[id.into()],
        )?;
        let planned: Vec<(u32, &Batchset)> = plan
            .runs
            .iter()
            .flat_map(|run| run.batchsets.iter().map(|b| (run.number, b)))
            .collect();
        if rows.len() != planned.len() {
            let (then, now) = (rows.len(), planned.len());
            return Ok(Some(format!("there were {then} batchsets and are {now}")));
        }
        for (row, (run, batchset)) in planned.into_iter().enumerate() {
            let number = batchset.number;
            let is_there = (small(&rows, row, 0)?, small(&rows, row, 1)?) == (run, number);
            let changed = match () {
                () if !is_there => "is numbered otherwise",
                () if !is_written(&text(&rows, row, 2), &batchset.workload) => {
                    "has another workload"
                }
                () if !is_written(&text(&rows, row, 3), &batchset.treatment) => {
                    "has another treatment"
                }
                () => continue,
            };
            return Ok(Some(format!("batchset {number} of run {run} {changed}")));
        }
        Ok(None)
    }

    fn other_order(&mut self, id: i64, plan: &Plan) -> Result<Option<String>, StoreError> {
        let rows = self.query(
            "SELECT r.number, b.number, x.mpl, x.repetition \
             FROM execution x, batchset b, run r WHERE x.batchset = b.id AND b.run = r.id \
             AND r.experiment = ? ORDER BY r.number, x.place",
            &[id.into()],
        )?;
        let execution = |row| {
            Ok(Execution {
                run: small(&rows, row, 0)?,
                batchset: small(&rows, row, 1)?,
                mpl: small(&rows, row, 2)?,
                repetition: small(&rows, row, 3)?,
            })
        };
        let stored = (0..rows.len()).map(execution).collect::<Result<Vec<_>, StoreError>>()?;
        let planned = plan.runs.iter().flat_map(|run| plan.executions(run));
        let is_same = stored.into_iter().eq(planned);
        Ok((!is_same).then(|| "executions are others, or in another order".to_owned()))
    }
}

/// Whether a text of the store is what a value would be written as, or reads as the same value.
fn is_written<T: Serialize + DeserializeOwned + PartialEq>(stored: &str, planned: &T) -> bool {
    let Ok(written) = json(planned) else { return false };
    // What is planned goes the same way through text: it may round a number.
    let read = |text: &str| serde_json::from_str::<T>(text).ok();
    stored == written || read(stored).is_some_and(|value| Some(value) == read(&written))
}

fn version(number: &str, build: &str) -> String {
    if build.is_empty() { number.to_owned() } else { format!("{number} ({build})") }
}

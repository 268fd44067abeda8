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

use super::write::{json, times_s};
use super::{Store, StoreError};
use crate::experiment::{Batchset, Execution, Experiment, Plan};

/// The columns of times, in the order of [`times_s`].
const TIMES: [&str; 5] = ["ctl_s", "warmup_s", "pause_s", "connect_limit_s", "interval_s"];

/// What they hold; nothing in older stores.
type StoredTimes = (Option<f64>, Option<f64>, Option<f64>, Option<f64>, Option<f64>);

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
        let what = match self.other_time(id, experiment)? {
            None => self.other_run(id, plan)?,
            what => what,
        };
        let what = match what {
            None => self.other_batchset(id, plan)?,
            what => what,
        };
        let what = match what {
            None => self.other_order(id, plan)?,
            what => what,
        };
        let Some(what) = what else { return Ok(()) };
        let (number, build): (String, String) = self.row(
            "SELECT c.version, c.build FROM experiment e, code c WHERE c.id = e.code AND e.id = ?",
            &[id.into()],
        )?;
        let then = version(&number, &build);
        let now = version(env!("CARGO_PKG_VERSION"), crate::BUILD);
        Err(StoreError::Replanned { id, what, then, now })
    }

    fn other_time(
        &mut self,
        id: i64,
        experiment: &Experiment,
    ) -> Result<Option<String>, StoreError> {
        let times: StoredTimes = self.row(
            "SELECT ctl_s, warmup_s, pause_s, connect_limit_s, interval_s FROM experiment \
             WHERE id = ?",
            &[id.into()],
        )?;
        let stored = [times.0, times.1, times.2, times.3, times.4];
        for ((name, stored), planned) in TIMES.into_iter().zip(stored).zip(times_s(experiment)) {
            let Some(stored) = stored else { continue };
            if (stored - planned).abs() > ROUNDING * stored.abs() {
                return Ok(Some(format!("{name} was {stored} and is {planned}")));
            }
        }
        Ok(None)
    }

    fn other_run(&mut self, id: i64, plan: &Plan) -> Result<Option<String>, StoreError> {
        let rows: Vec<(u32, String, u32, bool, String, String)> = self.rows(
            "SELECT number, subject, processors, primary_key, isolation, settings FROM run \
             WHERE experiment = ? ORDER BY number",
            &[id.into()],
        )?;
        if rows.len() != plan.runs.len() {
            let (then, now) = (rows.len(), plan.runs.len());
            return Ok(Some(format!("there were {then} runs and are {now}")));
        }
        for (row, run) in rows.iter().zip(&plan.runs) {
            let (number, subject, processors, primary_key, isolation, settings) = row;
            let planned = &run.subject.settings;
            let is_same = *number == run.number
                && *subject == run.subject.kind.to_string()
                && *processors == run.processors.unwrap_or(0)
                && *primary_key == run.primary_key
                && *isolation == planned.isolation.as_deref().unwrap_or_default()
                && is_written(settings, &planned.named);
            if !is_same {
                return Ok(Some(format!("run {} is of another configuration", run.number)));
            }
        }
        Ok(None)
    }

    fn other_batchset(&mut self, id: i64, plan: &Plan) -> Result<Option<String>, StoreError> {
        let rows: Vec<((u32, u32), String, String)> = self.rows(
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
        for ((place, spec, treatment), (run, batchset)) in rows.iter().zip(planned) {
            let number = batchset.number;
            let changed = match () {
                () if *place != (run, number) => "is numbered otherwise",
                () if !is_written(spec, &batchset.workload) => "has another workload",
                () if !is_written(treatment, &batchset.treatment) => "has another treatment",
                () => continue,
            };
            return Ok(Some(format!("batchset {number} of run {run} {changed}")));
        }
        Ok(None)
    }

    fn other_order(&mut self, id: i64, plan: &Plan) -> Result<Option<String>, StoreError> {
        let stored: Vec<Execution> = self.rows(
            "SELECT r.number, b.number, x.mpl, x.repetition \
             FROM execution x, batchset b, run r WHERE x.batchset = b.id AND b.run = r.id \
             AND r.experiment = ? ORDER BY r.number, x.place",
            &[id.into()],
        )?;
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

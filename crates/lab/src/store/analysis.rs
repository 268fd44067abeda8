//! What the analysis protocol found: a row for each time it was applied, with its counts, what it
//! dropped and why, and the thrashing points with their posteriors.

use std::collections::BTreeMap;

use tidegate_control::Mpl;
use tidegate_workload::Value;

use super::write::json;
use super::{Store, StoreError, count, real};
use crate::experiment::Execution;
use crate::tap::posterior::{DRAWS, MODEL, SEED};
use crate::tap::{
    CheckPlace, Count, Dropped, ExecutionKey, Posterior, RetainedBatchset, TapReport,
    ThrashingPoint,
};

/// The rows that an analysis speaks of, by run and batchset, and by execution.
struct RowIds {
    batchsets: BTreeMap<(i64, u32), i64>,
    executions: BTreeMap<Execution, i64>,
}

impl Store {
    /// Keeps an analysis of an experiment beside those before it: its counts, what it dropped, and
    /// the thrashing points, each with the protocol's and the rule's version and its posterior;
    /// these are in the order of the batchset instances retained. Its number.
    pub fn analysed(
        &mut self,
        experiment: i64,
        report: &TapReport,
        posteriors: &[Posterior],
    ) -> Result<i64, StoreError> {
        let rule = json(&report.rule)?;
        let (rule, found_us) = (rule.trim_matches('"'), self.moment_of_analysis(experiment)?);
        let named = self.named(experiment)?;
        self.atomically(|store| {
            let code = store.code()?;
            let id = store.add(
                "analysis",
                &[
                    ("experiment", experiment.into()),
                    ("protocol", report.protocol.into()),
                    ("rule", rule.into()),
                    ("code", code.into()),
                    ("found_us", found_us.into()),
                ],
            )?;
            report.counts().iter().try_for_each(|one| store.add_count(id, one))?;
            report.dropped().iter().try_for_each(|one| store.add_drop(id, &named, one))?;
            let from = [report.protocol.into(), rule.into(), found_us.into()];
            for (set, posterior) in report.retained.iter().zip(posteriors) {
                let point = store.add_point(id, &from, &named, set)?;
                store.add_posterior(point, posterior)?;
            }
            Ok(id)
        })
    }

    fn named(&mut self, experiment: i64) -> Result<RowIds, StoreError> {
        let rows: Vec<(Execution, i64, i64)> = self.rows(
            "SELECT r.number, b.number, x.mpl, x.repetition, x.id, b.id \
             FROM execution x, batchset b, run r WHERE x.batchset = b.id AND b.run = r.id \
             AND r.experiment = ?",
            &[experiment.into()],
        )?;
        let mut named = RowIds { batchsets: BTreeMap::new(), executions: BTreeMap::new() };
        for (execution, id, batchset) in rows {
            named.batchsets.insert((execution.run.into(), execution.batchset), batchset);
            named.executions.insert(execution, id);
        }
        Ok(named)
    }

    fn add_count(&mut self, analysis: i64, one: &Count) -> Result<(), StoreError> {
        self.insert(
            "tap_count",
            &[
                ("analysis", analysis.into()),
                ("step", one.step.to_string().into()),
                ("name", one.name.into()),
                ("part", one.part.as_str().into()),
                ("level", one.level.into()),
                ("number", one.number.map_or(Value::Null, count)),
                ("checked", count(one.checked)),
                ("found", count(one.found)),
                ("batchsets", one.batchsets.map_or(Value::Null, count)),
            ],
        )
    }

    fn add_drop(&mut self, analysis: i64, named: &RowIds, one: &Dropped) -> Result<(), StoreError> {
        let execution = match one.place {
            CheckPlace::Execution(key) => Value::Int(named.execution(key)?),
            CheckPlace::Batch(_) | CheckPlace::Batchset(_) => Value::Null,
        };
        let batchset = one.place.in_batchset();
        self.insert(
            "tap_drop",
            &[
                ("analysis", analysis.into()),
                ("step", one.step.to_string().into()),
                ("name", one.name.into()),
                ("batchset", named.batchset(batchset.run.0, batchset.batchset)?.into()),
                ("execution", execution),
                ("why", one.why.as_str().into()),
            ],
        )
    }

    /// Keeps a thrashing point, with the protocol, the rule and the moment of its analysis. `low`
    /// is 0 where throughput fell from the lowest level. Returns its number.
    fn add_point(
        &mut self,
        analysis: i64,
        [protocol, rule, found_us]: &[Value<'_>; 3],
        named: &RowIds,
        set: &RetainedBatchset,
    ) -> Result<i64, StoreError> {
        let [mpl, low, high] = place(set.thrashing_point);
        self.add(
            "thrashing_point",
            &[
                ("batchset", named.batchset(set.key.run.0, set.key.batchset)?.into()),
                ("protocol", protocol.clone()),
                ("rule", rule.clone()),
                ("mpl", mpl),
                ("low", low),
                ("high", high),
                ("caveats", json(&set.caveats)?.into()),
                ("found_us", found_us.clone()),
                ("analysis", analysis.into()),
                ("atpt_ms", set.atpt_s.map_or(Value::Null, |atpt_s| real(atpt_s * 1e3))),
            ],
        )
    }

    /// Keeps how probable each outcome of a curve is beside its thrashing point.
    fn add_posterior(&mut self, point: i64, posterior: &Posterior) -> Result<(), StoreError> {
        self.insert(
            "thrashing_posterior",
            &[
                ("point", point.into()),
                ("model", MODEL.into()),
                ("draws", count(DRAWS)),
                ("seed", count(SEED)),
                ("noise", real(posterior.noise)),
                ("noise_measured", i64::from(posterior.is_noise_measured).into()),
            ],
        )?;
        for (number, outcome) in (1_i64..).zip(&posterior.outcomes) {
            let [mpl, low, high] = place(outcome.point);
            self.insert(
                "thrashing_outcome",
                &[
                    ("point", point.into()),
                    ("number", number.into()),
                    ("mpl", mpl),
                    ("low", low),
                    ("high", high),
                    ("prior", real(outcome.prior)),
                    ("probability", real(outcome.probability)),
                ],
            )?;
        }
        Ok(())
    }
}

/// Returns a thrashing point as the columns `mpl`, `low` and `high`.
fn place(point: ThrashingPoint) -> [Value<'static>; 3] {
    let number = |mpl: Option<Mpl>| mpl.map_or(Value::Null, |mpl| count(mpl.get()));
    let (low, high) = point.bounds();
    [number(point.mpl()), count(low.map_or(0, Mpl::get)), number(high)]
}

impl RowIds {
    fn batchset(&self, run: i64, number: u32) -> Result<i64, StoreError> {
        let found = self.batchsets.get(&(run, number)).copied();
        found.ok_or_else(|| missing(&format!("batchset {number} of run {run}")))
    }

    fn execution(&self, key: ExecutionKey) -> Result<i64, StoreError> {
        let run = u32::try_from(key.run.0).map_err(|_| missing(&format!("run {}", key.run)))?;
        let ExecutionKey { batchset, mpl, iteration: repetition, .. } = key;
        let place = Execution { run, batchset, mpl: mpl.get(), repetition };
        self.executions.get(&place).copied().ok_or_else(|| missing(&key.to_string()))
    }
}

fn missing(what: &str) -> StoreError {
    StoreError::Damaged(format!("{what} was analysed and is not there"))
}

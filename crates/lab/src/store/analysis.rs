//! What the analysis protocol found: a row for each time it was applied, with its counts, what it
//! dropped and why, and the thrashing points.

use std::collections::BTreeMap;

use tidegate_control::Mpl;
use tidegate_workload::Value;

use super::read::{int, small};
use super::write::json;
use super::{Store, StoreError, count, real};
use crate::experiment::Execution;
use crate::tap::{CheckPlace, Count, Dropped, ExecutionKey, Report, RetainedBatchset};

/// The rows that an analysis speaks of, by run and batchset, and by execution.
struct Named {
    batchsets: BTreeMap<(i64, u32), i64>,
    executions: BTreeMap<Execution, i64>,
}

impl Store {
    /// Keeps an analysis of an experiment beside those before it: its counts, what it dropped, and
    /// the thrashing points, each with the protocol's and the rule's version; its number.
    pub fn analysed(&mut self, experiment: i64, report: &Report) -> Result<i64, StoreError> {
        let rule = json(&report.rule)?;
        let (rule, found_us) = (rule.trim_matches('"'), self.now_us());
        let named = self.named(experiment)?;
        self.atomically(|store| {
            let code = store.code()?;
            let id = store.add(
                "INSERT INTO analysis (experiment, protocol, rule, code, found_us) \
                 VALUES (?, ?, ?, ?, ?)",
                &[
                    experiment.into(),
                    report.protocol.into(),
                    rule.into(),
                    code.into(),
                    found_us.into(),
                ],
            )?;
            report.counts().iter().try_for_each(|one| store.add_count(id, one))?;
            report.dropped().iter().try_for_each(|one| store.add_drop(id, &named, one))?;
            let from = [report.protocol.into(), rule.into(), found_us.into()];
            report.retained.iter().try_for_each(|set| store.add_point(id, &from, &named, set))?;
            Ok(id)
        })
    }

    fn named(&mut self, experiment: i64) -> Result<Named, StoreError> {
        let rows = self.query(
            "SELECT r.number, b.number, x.mpl, x.repetition, x.id, b.id \
             FROM execution x, batchset b, run r WHERE x.batchset = b.id AND b.run = r.id \
             AND r.experiment = ?",
            &[experiment.into()],
        )?;
        let mut named = Named { batchsets: BTreeMap::new(), executions: BTreeMap::new() };
        for row in 0..rows.len() {
            let execution = Execution {
                run: small(&rows, row, 0)?,
                batchset: small(&rows, row, 1)?,
                mpl: small(&rows, row, 2)?,
                repetition: small(&rows, row, 3)?,
            };
            let batchset = (execution.run.into(), execution.batchset);
            named.batchsets.insert(batchset, int(&rows, row, 5)?);
            named.executions.insert(execution, int(&rows, row, 4)?);
        }
        Ok(named)
    }

    fn add_count(&mut self, analysis: i64, one: &Count) -> Result<(), StoreError> {
        self.execute(
            "INSERT INTO tap_count (analysis, step, name, part, level, number, checked, found, \
             batchsets) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            &[
                analysis.into(),
                one.step.to_string().into(),
                one.name.into(),
                one.part.as_str().into(),
                one.level.into(),
                one.number.map_or(Value::Null, count),
                count(one.checked),
                count(one.found),
                one.batchsets.map_or(Value::Null, count),
            ],
        )?;
        Ok(())
    }

    fn add_drop(&mut self, analysis: i64, named: &Named, one: &Dropped) -> Result<(), StoreError> {
        let execution = match one.place {
            CheckPlace::Execution(key) => Value::Int(named.execution(key)?),
            CheckPlace::Batch(_) | CheckPlace::Batchset(_) => Value::Null,
        };
        let batchset = one.place.in_batchset();
        self.execute(
            "INSERT INTO tap_drop (analysis, step, name, batchset, execution, why) \
             VALUES (?, ?, ?, ?, ?, ?)",
            &[
                analysis.into(),
                one.step.to_string().into(),
                one.name.into(),
                named.batchset(batchset.run.0, batchset.batchset)?.into(),
                execution,
                one.why.as_str().into(),
            ],
        )?;
        Ok(())
    }

    /// Keeps a thrashing point, with the protocol, the rule and the moment of its analysis. `low`
    /// is 0 where throughput fell from the lowest level.
    fn add_point(
        &mut self,
        analysis: i64,
        [protocol, rule, found_us]: &[Value<'_>; 3],
        named: &Named,
        set: &RetainedBatchset,
    ) -> Result<(), StoreError> {
        let (low, high) = set.thrashing_point.bounds();
        let number = |mpl: Option<Mpl>| mpl.map_or(Value::Null, |mpl| count(mpl.get()));
        self.execute(
            "INSERT INTO thrashing_point (batchset, protocol, rule, mpl, low, high, caveats, \
             found_us, analysis, atpt_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            &[
                named.batchset(set.key.run.0, set.key.batchset)?.into(),
                protocol.clone(),
                rule.clone(),
                number(set.thrashing_point.mpl()),
                count(low.map_or(0, Mpl::get)),
                number(high),
                json(&set.caveats)?.into(),
                found_us.clone(),
                analysis.into(),
                set.atpt_s.map_or(Value::Null, |atpt_s| real(atpt_s * 1e3)),
            ],
        )?;
        Ok(())
    }
}

impl Named {
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

//! Checks 1 to 5: the experiment was carried out as planned, alone on its machines.
//!
//! # Where this leaves the study
//! * **What a violation is.** The study counts batches (1), batch executions or batches (3; its
//!   text and its Table 5 differ) and batchset instances (5), and says nothing for (2) and (4).
//!   Here each batch of (1) and each execution of the others is one violation, the finest that can
//!   be looked up; the batchset instances they are in are counted beside them.
//! * **A fault is counted once.** A batch without any execution is a missing batch, and its
//!   executions are not missed ones too.
//! * **Processors.** The study compares the machine with the plan. Here each execution tells the
//!   processors its subject had, since an affinity, unlike a boot option, can change at any time.
//! * **Other executors.** Table 5 has the check, and the text does not define it. An executor is a
//!   program that runs experiments; each machine may run one. There was another if it was seen, or
//!   if two executions on one machine overlap in these rows, from the moment that tables are put in
//!   order to the end, by more than [`OVERLAP_S`]: then both are violations. The machine is each
//!   execution's own, since a run may be resumed on another. One whose end is not after its begin
//!   overlaps with nobody: when it was is not known.

use std::collections::BTreeMap;

use super::check::{Check, CheckPlace, Violation, of_executions};
use super::data::{BatchExecution, BatchsetKey, ExecutionKey};
use super::index::RowIndex;

/// Two executions that overlap by no more than this, in seconds, do so by rounding.
pub const OVERLAP_S: f64 = 0.001;

/// Check 1.
pub(super) fn missing_batches(index: &RowIndex<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for run in index.runs.values() {
        for number in 1..=run.plan.batchsets {
            let key = BatchsetKey { run: run.id, batchset: number };
            let batchset = index.batchsets.get(&key);
            let is_there = |mpl| batchset.is_some_and(|there| there.batches.contains_key(mpl));
            let missing = run.plan.mpls.iter().filter(|mpl| !is_there(mpl));
            found.extend(missing.map(|&mpl| Violation {
                check: Check::MissingBatches,
                place: CheckPlace::Batch(key.batch(mpl)),
                observed: "0 executions".to_owned(),
                expected: run.plan.executions.to_string(),
            }));
        }
    }
    found
}

/// Check 2.
pub(super) fn processor_configuration(index: &RowIndex<'_>) -> Vec<Violation> {
    of_executions(Check::ProcessorConfiguration, index, |plan, execution| {
        let (seen, planned) = (execution.num_procs, plan.num_procs);
        (seen != planned).then(|| (format!("numProcs is {seen}"), planned.to_string()))
    })
}

/// Check 3.
pub(super) fn missed_executions(index: &RowIndex<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (key, batchset) in &index.batchsets {
        let planned = batchset.run.plan.executions;
        for (&mpl, batch) in &batchset.batches {
            let missed = (1..=planned).filter(|iteration| !batch.contains_key(iteration));
            found.extend(missed.map(|iteration| Violation {
                check: Check::MissedExecutions,
                place: CheckPlace::Execution(key.batch(mpl).execution(iteration)),
                observed: format!("the batch has {} executions", batch.len()),
                expected: planned.to_string(),
            }));
        }
    }
    found
}

/// Check 4.
pub(super) fn other_executors(index: &RowIndex<'_>) -> Vec<Violation> {
    let overlaps = overlaps(index);
    of_executions(Check::OtherExecutors, index, |_, execution| {
        let seen = execution.other_executors;
        let observed = match overlaps.get(&execution.key) {
            _ if seen > 0 => format!("{seen} other executors on the machine"),
            Some(other) => format!("at the same time and on the same machine as {other}"),
            None => return None,
        };
        Some((observed, "alone".to_owned()))
    })
}

/// Check 5.
pub(super) fn other_dbms_processes(index: &RowIndex<'_>) -> Vec<Violation> {
    of_executions(Check::OtherDbmsProcesses, index, |_, execution| {
        let others = &execution.other_dbms;
        let observed = || format!("processes of {} on the machine", others.join(", "));
        (!others.is_empty()).then(|| (observed(), "none".to_owned()))
    })
}

/// Each execution that ran at the same time as another on its machine, with one such other.
fn overlaps(index: &RowIndex<'_>) -> BTreeMap<ExecutionKey, ExecutionKey> {
    let mut machines: BTreeMap<&str, Vec<&BatchExecution>> = BTreeMap::new();
    for batchset in index.batchsets.values() {
        let placed = batchset.executions().filter(|execution| execution.ends_after_its_begin());
        for execution in placed {
            machines.entry(&execution.machine).or_default().push(execution);
        }
    }
    let mut found = BTreeMap::new();
    for mut executions in machines.into_values() {
        executions.sort_by(|one, other| one.began_s.total_cmp(&other.began_s));
        let mut executions = executions.into_iter();
        let Some(mut last) = executions.next() else { continue };
        for execution in executions {
            // `last` ends last of all that started before: who overlaps with any, does with it.
            if last.ended_s - execution.began_s > OVERLAP_S {
                found.entry(execution.key).or_insert(last.key);
                found.entry(last.key).or_insert(execution.key);
            }
            if execution.ended_s > last.ended_s {
                last = execution;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::testing::{key, small};
    use super::*;

    /// An execution that contains two others, and one that begins as they have ended.
    #[test]
    fn executions_that_overlap_on_a_machine_are_violations_each() {
        let mut data = small(1);
        let times = [(100.0, 220.0), (110.0, 120.0), (130.0, 140.0), (221.0, 341.0)];
        data.executions.truncate(times.len());
        for (execution, (began_s, ended_s)) in data.executions.iter_mut().zip(times) {
            (execution.began_s, execution.ended_s) = (began_s, ended_s);
        }
        let others = |data: &crate::tap::DataSet| {
            let index = RowIndex::new(data).expect("sound rows");
            let found = overlaps(&index);
            data.executions.iter().map(|row| found.get(&row.key).copied()).collect::<Vec<_>>()
        };
        let keys: Vec<ExecutionKey> = data.executions.iter().map(|row| row.key).collect();
        let expected = [Some(keys[1]), Some(keys[0]), Some(keys[0]), None];
        assert_eq!(others(&data), expected);
        // The last of a run that was resumed elsewhere overlaps with nobody, wherever that was.
        data.executions[3].began_s = 200.0;
        assert_eq!(others(&data)[3], Some(keys[0]));
        data.executions[3].machine = "another".to_owned();
        assert_eq!(others(&data)[3], None);
    }

    #[test]
    fn executions_at_the_same_time_on_two_machines_are_none() {
        let mut data = small(2);
        let index = RowIndex::new(&data).expect("sound rows");
        assert_eq!(other_executors(&index), []);
        let machine = data.executions[0].machine.clone();
        data.executions.iter_mut().for_each(|row| row.machine.clone_from(&machine));
        let index = RowIndex::new(&data).expect("sound rows");
        assert_eq!(other_executors(&index).len(), data.executions.len());
    }

    #[test]
    fn a_batch_without_executions_is_missing_and_one_with_some_has_missed_the_rest() {
        let mut data = small(1);
        let (gone, poor) = (key(1, 1, 200, 1).in_batch(), key(1, 2, 300, 1).in_batch());
        data.executions.retain(|row| {
            row.key.in_batch() != gone && (row.key.in_batch() != poor || row.key.iteration == 2)
        });
        let index = RowIndex::new(&data).expect("sound rows");
        let places = |found: Vec<Violation>| {
            found.into_iter().map(|violation| violation.place).collect::<Vec<_>>()
        };
        assert_eq!(places(missing_batches(&index)), [CheckPlace::Batch(gone)]);
        let missed = [1, 3].map(|iteration| CheckPlace::Execution(poor.execution(iteration)));
        assert_eq!(places(missed_executions(&index)), missed);
    }

    #[test]
    fn a_violation_is_a_sentence() {
        let mut data = small(1);
        data.executions[0].num_procs = 1;
        data.executions[1].other_dbms = vec!["mariadbd".into(), "postgres".into()];
        let index = RowIndex::new(&data).expect("sound rows");
        let sentences =
            |found: Vec<Violation>| found.iter().map(Violation::to_string).collect::<Vec<_>>();
        assert_eq!(
            sentences(processor_configuration(&index)),
            ["run 1, batchset 1, MPL 100, execution 1: numProcs is 1, but should be 2"]
        );
        assert_eq!(
            sentences(other_dbms_processes(&index)),
            ["run 1, batchset 1, MPL 100, execution 2: processes of mariadbd, postgres on the \
              machine, but should be none"]
        );
    }
}

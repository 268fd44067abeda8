//! Check 10: an execution that was too short, or was warmed up too shortly, to be a steady state.
//!
//! # Mechanism
//! In a closed loop each of N clients is in a transaction or thinks. By Little's law (1961) the
//! mean time of one cycle is `N / X`, with X the transactions that end each second, and so the mean
//! time in the system is `R = N / X − Z`, with Z the mean think time. This holds for *all*
//! transactions, also for those that had not ended when the time was up, which the mean of the
//! measured times leaves out. After a change of load throughput settles within a few R. So an
//! execution is a violation when R is longer than
//!
//! * the warm-up: most transactions that are counted began before the load was the one measured; or
//! * [`MEASURED_SHARE`] of the measured time: each client ends fewer than five transactions, and
//!   throughput is that of the transactions that happened to end first.
//!
//! # Example
//! 512 clients, 17 tps, no think time: R = 512/17 = 30.1 s. Measured for a second after 0.3 s of
//! warm-up, this is nothing but the first 17 of 512 transactions. With 2,000 tps R is 0.256 s: the
//! warm-up suffices, but a fifth of a second does not.
//!
//! # Where this leaves the study
//! The study has no such check. Its executions last 120 s, so that 1,000 clients need 42 tps.
//!
//! # Choices
//! * **What ends** is a transaction that committed, was rolled back as its logic has it, or failed:
//!   each lets its client begin the next. A database that refuses all work at once is in a steady
//!   state, at a throughput of 0.
//! * **Nothing ended**: R is at least the measured time, a violation. Thus 0 tps with no error is
//!   no longer "the worst of thrashing", but unknown.
//! * **Think time** Z is the workload's own mean. Where Z is longer than the cycle seen, R is 0.
//! * **Transactions that come by a rate** are not judged: N does not bound how many are inside.
//! * **A limit** that a gate holds bounds how many are inside, so that R is at most `MPL / X`: it
//!   is the throughput behind the gate that is to be steady. Response times with the wait before
//!   it are not judged, and are not to be believed where each client ends only a few.
//!
//! # Limits
//! R is a mean. Where few clients do all the work and the others wait for a lock to the end, R is
//! short. A state that drifts for longer than the measured time, as a cache that fills, is not seen
//! either.

use super::check::{Check, CheckPlace, Violation};
use super::data::BatchExecution;
use super::index::{BatchsetRows, RowIndex};

/// The share of the measured time that the mean time in the system may be.
pub const MEASURED_SHARE: f64 = 0.2;

/// Check 10.
pub(super) fn not_steady(index: &RowIndex<'_>) -> Vec<Violation> {
    index.batchsets.values().flat_map(in_batchset).collect()
}

fn in_batchset(batchset: &BatchsetRows<'_>) -> Vec<Violation> {
    let Some(think_s) = batchset.row.think_s else { return Vec::new() };
    let violation = |execution: &BatchExecution| {
        let in_system_s = execution.in_system_s(think_s, batchset.row.is_limit);
        let (observed, expected) = judge(batchset.run.plan.warmup_s, in_system_s, execution)?;
        let place = CheckPlace::Execution(execution.key);
        Some(Violation { check: Check::NotSteady, place, observed, expected })
    };
    batchset.executions().filter_map(violation).collect()
}

/// What was observed and what is expected, where an execution is no steady state.
fn judge(
    warmup_s: f64,
    in_system_s: Option<f64>,
    execution: &BatchExecution,
) -> Option<(String, String)> {
    let most_s = warmup_s.min(MEASURED_SHARE * execution.seconds);
    let expected = || {
        format!(
            "{most_s:.3} s at most: the warm-up of {warmup_s} s, and a fifth of {:.3} s measured",
            execution.seconds
        )
    };
    let Some(in_system_s) = in_system_s else {
        let none = format!("no transaction ended in {:.3} s", execution.seconds);
        return Some((none, expected()));
    };
    let observed = || {
        let (clients, ended_per_s) = (execution.clients, execution.ended_per_s());
        format!(
            "a transaction of {clients} clients takes {in_system_s:.3} s in the mean where \
             {ended_per_s:.3} end each second"
        )
    };
    (in_system_s > most_s).then(|| (observed(), expected()))
}

#[cfg(test)]
mod tests {
    use super::super::testing::small;
    use super::super::{Choices, Rule, analyse};
    use super::*;

    struct Case {
        clients: u32,
        tps: u64,
        errors: u64,
        warmup_s: f64,
        think_s: Option<f64>,
        is_limit: bool,
        is_violation: bool,
    }

    const CASE: Case = Case {
        clients: 100,
        tps: 100,
        errors: 0,
        warmup_s: 10.0,
        think_s: Some(0.0),
        is_limit: false,
        is_violation: false,
    };

    /// One execution of 10 s: 2 s in the system are the most, or the warm-up.
    #[test]
    fn executions_worked_by_hand() {
        let table = [
            ("1 s", CASE),
            ("2 s, as long as may be", Case { tps: 50, ..CASE }),
            ("2.04 s, above a fifth", Case { tps: 49, is_violation: true, ..CASE }),
            ("1 s, as the warm-up", Case { warmup_s: 1.0, ..CASE }),
            ("1 s, above the warm-up", Case { warmup_s: 0.99, is_violation: true, ..CASE }),
            ("no warm-up at all", Case { warmup_s: 0.0, is_violation: true, ..CASE }),
            ("10 s, 9 of them thought", Case { tps: 10, think_s: Some(9.0), ..CASE }),
            ("10 s, 7 thought", Case { tps: 10, think_s: Some(7.0), is_violation: true, ..CASE }),
            ("more thought than cycled", Case { think_s: Some(1.1), warmup_s: 0.0, ..CASE }),
            // The execution's MPL is 100.
            ("a limit", Case { clients: 1_000, is_limit: true, ..CASE }),
            ("a limit, and more clients", Case { clients: 1_000, is_violation: true, ..CASE }),
            ("a limit above all", Case { clients: 10, tps: 10, is_limit: true, ..CASE }),
            ("open", Case { tps: 1, think_s: None, ..CASE }),
            ("nothing ended", Case { tps: 0, is_violation: true, ..CASE }),
            ("nothing, open", Case { tps: 0, think_s: None, ..CASE }),
            ("all refused at once", Case { tps: 0, errors: 1_000, ..CASE }),
            ("all refused late", Case { tps: 0, errors: 400, is_violation: true, ..CASE }),
            ("some refused", Case { tps: 30, errors: 200, ..CASE }),
        ];
        for (name, case) in table {
            let mut data = small(1);
            data.executions.truncate(1);
            data.runs[0].plan.warmup_s = case.warmup_s;
            data.batchsets[0].think_s = case.think_s;
            data.batchsets[0].is_limit = case.is_limit;
            let row = &mut data.executions[0];
            (row.seconds, row.clients) = (10.0, case.clients);
            (row.transactions, row.errors) = (10 * case.tps, case.errors);
            row.atpt_s = (case.tps > 0).then_some(0.001);
            let index = RowIndex::new(&data).expect("sound rows");
            let found = not_steady(&index);
            assert_eq!(found.len(), usize::from(case.is_violation), "{name}: {found:?}");
        }
    }

    #[test]
    fn a_violation_says_the_arithmetic() {
        let mut data = small(1);
        data.executions.truncate(1);
        let row = &mut data.executions[0];
        (row.clients, row.transactions, row.seconds) = (512, 17, 1.0);
        data.runs[0].plan.warmup_s = 0.3;
        let index = RowIndex::new(&data).expect("sound rows");
        let found: Vec<String> = not_steady(&index).iter().map(Violation::to_string).collect();
        assert_eq!(
            found,
            ["run 1, batchset 1, MPL 100, execution 1: a transaction of 512 clients takes 30.118 \
              s in the mean where 17.000 end each second, but should be 0.200 s at most: the \
              warm-up of 0.3 s, and a fifth of 1.000 s measured"]
        );
    }

    /// All of one batch at 1,000 clients: dropped, the batchset with it; or kept, with a caveat.
    #[test]
    fn what_is_not_steady_is_dropped_unless_it_is_to_be_kept() {
        let mut data = small(1);
        for row in &mut data.executions {
            if row.key.batchset == 2 && row.key.mpl.get() == 1_000 {
                row.clients = 1_000_000;
            }
        }
        let report = analyse(&data, Rule::Equation1).expect("sound rows");
        assert_eq!((report.protocol, report.dropped_executions.len()), ("tap v2", 3));
        let kept: Vec<u32> = report.retained.iter().map(|set| set.key.batchset).collect();
        assert_eq!(kept, [1, 3]);
        let choices = Choices { keeps_unsteady: true, ..Choices::default() };
        let report = analyse(&data, choices).expect("sound rows");
        assert_eq!(report.protocol, "tap v2, unsteady kept");
        assert_eq!(report.dropped_executions, []);
        assert_eq!(report.violations.len(), 3);
        let caveats: Vec<Vec<Check>> =
            report.retained.iter().map(|set| set.caveats.iter().copied().collect()).collect();
        assert_eq!(caveats, [vec![], vec![Check::NotSteady], vec![]]);
        assert!(report.is_sound(), "it is not about how the experiment was carried out");
    }
}

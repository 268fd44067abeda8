//! Checks 6 and 7: a batch execution that says something, over the time it was given.
//!
//! # Where this leaves the study
//! * **Zero TPS.** Each execution without a completed transaction at the starting MPL, the lowest
//!   planned, is a violation. At higher MPLs zero is the worst of thrashing, and data, where
//!   transactions failed; where none ended at all nothing is known, by check 10.
//! * **The limit's tolerance.** The study gives none. The time is measured from the moment the
//!   clients are let go to the moment the last has stopped, which takes a little longer than the
//!   limit even where nothing is wrong. Allowed is 1 % of the limit, and a tenth of a second where
//!   that is more (short limits). Throughput is a count over the time measured, so that such a
//!   deviation does not bias it.
//! * **Too short counts too.** An execution that ended early did not keep its connections for the
//!   time specified either, and its warm-up weighs more.
//! * **Connecting.** Clients are connected before an execution starts, in the study too, which
//!   says nothing of how long that may take. Here it has a limit of its own, which belongs to this
//!   check: a storm of connections that took too long leaves a server that has not settled.
//! * **Its moments.** An execution that ends before it began was measured while somebody set the
//!   machine's clock. Of the time it was given nothing is known then, so that it is a violation of
//!   this check.

use super::check::{Check, Violation, of_executions};
use super::data::{BatchExecution, RunDesign};
use super::index::RowIndex;

/// How far from the connection time limit an execution may end, as a share of the limit.
pub const TOLERANCE_SHARE: f64 = 0.01;

/// The least that is allowed whatever the limit is, in seconds.
pub const TOLERANCE_MIN_S: f64 = 0.1;

/// Check 6.
pub(super) fn zero_tps(index: &RowIndex<'_>) -> Vec<Violation> {
    of_executions(Check::ZeroTps, index, |plan, execution| {
        let is_start = plan.mpls.first() == Some(&execution.key.mpl);
        let is_violation = is_start && execution.transactions == 0;
        is_violation.then(|| ("0 transactions completed".to_owned(), "more".to_owned()))
    })
}

/// Check 7.
pub(super) fn connection_time_limit(index: &RowIndex<'_>) -> Vec<Violation> {
    of_executions(Check::ConnectionTimeLimit, index, |plan, execution| {
        clock(execution).or_else(|| length(plan, execution)).or_else(|| connecting(plan, execution))
    })
}

fn clock(execution: &BatchExecution) -> Option<(String, String)> {
    let (began_s, ended_s) = (execution.began_s, execution.ended_s);
    (!execution.ends_after_its_begin()).then(|| {
        (format!("it ended {:.3} s after its begin", ended_s - began_s), "more".to_owned())
    })
}

fn length(plan: &RunDesign, execution: &BatchExecution) -> Option<(String, String)> {
    let tolerance_s = TOLERANCE_MIN_S.max(TOLERANCE_SHARE * plan.ctl_s);
    let seconds = execution.seconds;
    let is_violation = (seconds - plan.ctl_s).abs() > tolerance_s;
    is_violation.then(|| {
        let expected = format!("{} s, give or take {tolerance_s:.1} s", plan.ctl_s);
        (format!("{seconds:.3} s from start to end"), expected)
    })
}

fn connecting(plan: &RunDesign, execution: &BatchExecution) -> Option<(String, String)> {
    let is_violation = !(0.0..=plan.connect_limit_s).contains(&execution.connect_s);
    is_violation.then(|| {
        let expected = format!("{} s at most", plan.connect_limit_s);
        (format!("{:.3} s to connect", execution.connect_s), expected)
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::small;
    use super::*;

    #[test]
    fn an_execution_may_be_off_its_limit_by_the_tolerance() {
        // CTL, time from start to end, time to connect (10 s allowed), whether it is a violation.
        let table = [
            (120.0, 120.0, 1.0, false),
            (120.0, 121.1, 1.0, false),
            (120.0, 121.3, 1.0, true),
            (120.0, 118.9, 1.0, false),
            (120.0, 118.7, 1.0, true),
            (120.0, 120.0, 10.0, false),
            (120.0, 120.0, 10.1, true),
            (2.0, 2.09, 1.0, false),
            (2.0, 2.11, 1.0, true),
            (2.0, 1.89, 1.0, true),
        ];
        for (ctl_s, seconds, connect_s, is_violation) in table {
            let mut data = small(1);
            data.executions.truncate(1);
            data.runs[0].plan.ctl_s = ctl_s;
            let execution = &mut data.executions[0];
            execution.seconds = seconds;
            execution.connect_s = connect_s;
            let index = RowIndex::new(&data).expect("sound rows");
            let found = connection_time_limit(&index);
            assert_eq!(found.len(), usize::from(is_violation), "{ctl_s} {seconds} {connect_s}");
        }
    }

    #[test]
    fn zero_counts_at_the_lowest_mpl_only() {
        let mut data = small(1);
        for execution in &mut data.executions {
            (execution.transactions, execution.atpt_s) = (0, None);
        }
        let index = RowIndex::new(&data).expect("sound rows");
        let found = zero_tps(&index);
        let at_start = data.executions.iter().filter(|row| row.key.mpl.get() == 100).count();
        assert_eq!(found.len(), at_start);
    }
}

//! What holds for any data, on data full of random faults.

use std::collections::BTreeSet;

use tidegate_control::{Mpl, SplitMix64};

use crate::tap::testing::{Design, pick, shuffle};
use crate::tap::{
    BatchExecution, BatchKey, BatchsetKey, Check, CheckPlace, Class, DataSet, ExecutionKey, Rule,
    TapReport, ThroughputCurve, analyse,
};

const DESIGN: Design =
    Design { subjects: &["one", "two"], num_procs: &[1, 2], batchsets: 4, executions: 3 };

/// A quarter of the batchset instances, drawn at random, loses and distorts some of what it has.
fn messy(seed: u64) -> DataSet {
    let mut generator = SplitMix64::new(seed);
    let keys = DESIGN.keys();
    let thrashing = keys.iter().copied().filter(|key| key.batchset % 2 == 0).collect();
    let mut data = DESIGN.data(&thrashing, seed);
    let mut messy = keys;
    messy.retain(|_| pick(&mut generator, 4) == 0);
    let lost: BTreeSet<BatchKey> = messy
        .iter()
        .map(|key| key.batch(Mpl::at_least_one(100 * key.batchset)))
        .filter(|_| pick(&mut generator, 3) == 0)
        .collect();
    data.executions.retain_mut(|row| {
        let is_messy = messy.contains(&row.key.in_batchset());
        !lost.contains(&row.key.in_batch()) && (!is_messy || distort(row, &mut generator))
    });
    data
}

/// Distorts one execution in three, and whether to keep it.
fn distort(row: &mut BatchExecution, generator: &mut SplitMix64) -> bool {
    match pick(generator, 24) {
        0 => return false,
        1 => row.seconds += 60.0,
        2 => (row.transactions, row.atpt_s) = (0, None),
        3 => row.atpt_s = row.atpt_s.map(|atpt_s| atpt_s / 2.0),
        4 => row.transactions *= 3,
        5 => row.num_procs = 7,
        6 => row.other_executors = 2,
        7 => row.other_dbms.push("firebird".into()),
        8 => row.host.push_str(", another"),
        _ => {}
    }
    true
}

fn of_data(data: &DataSet, rule: Rule) -> TapReport {
    analyse(data, rule).expect("rows that do not contradict each other")
}

#[test]
fn the_order_of_the_rows_changes_nothing() {
    for seed in 0..30 {
        let mut data = messy(seed);
        let before = of_data(&data, Rule::Equation1);
        let mut generator = SplitMix64::new(seed);
        shuffle(&mut data.runs, &mut generator);
        shuffle(&mut data.batchsets, &mut generator);
        shuffle(&mut data.executions, &mut generator);
        assert_eq!(of_data(&data, Rule::Equation1), before, "seed {seed}");
    }
}

#[test]
fn all_counts_add_up() {
    let mut checks_seen = BTreeSet::new();
    for seed in 0..60 {
        let data = messy(seed);
        let rule = if seed % 2 == 0 { Rule::Equation1 } else { Rule::Drop20 };
        let report = of_data(&data, rule);
        assert_planned(&data, &report);
        assert_steps_follow_each_other(&report);
        assert_everything_is_dropped_or_retained(&data, &report);
        assert_retained_curves(&report, rule);
        assert_check_8_empties_no_batch(&data, &report);
        assert!(report.violations.is_sorted());
        assert!(report.dropped_batchsets.is_sorted());
        checks_seen.extend(report.violations.iter().map(|violation| violation.check));
    }
    // The mess is messy enough to say something.
    assert_eq!(checks_seen.into_iter().collect::<Vec<_>>(), Check::ALL);
}

fn violations(report: &TapReport, check: Check) -> usize {
    report.violations.iter().filter(|violation| violation.check == check).count()
}

fn assert_planned(data: &DataSet, report: &TapReport) {
    let start = report.steps[0].before;
    assert_eq!(start.executions, data.executions.len());
    let missing = violations(report, Check::MissingBatches);
    assert_eq!(start.batches + missing, report.planned.batches);
    let missed = violations(report, Check::MissedExecutions);
    let in_missing = missing * DESIGN.executions as usize;
    assert_eq!(start.executions + missed + in_missing, report.planned.executions);
    for count in &report.checks {
        let checked = match count.check {
            Check::MissingBatches => report.planned.batches,
            Check::MissedExecutions => start.executions + missed,
            Check::TransientThrashing | Check::SeveralHosts => start.batchsets,
            _ => start.executions,
        };
        assert_eq!(count.checked, checked, "{:?}", count.check);
        assert_eq!(count.violations, violations(report, count.check));
        assert!(count.batchsets <= count.violations && count.violations <= count.checked);
    }
}

fn assert_steps_follow_each_other(report: &TapReport) {
    for pair in report.steps.windows(2) {
        assert_eq!(pair[0].after, pair[1].before);
    }
    let [first, .., last] = report.steps.as_slice() else { panic!("six steps") };
    assert_eq!((first.before, last.before), (first.after, last.after));
    for step in &report.steps {
        let dropped = report.dropped_batchsets.iter().filter(|dropped| dropped.step == step.step);
        assert_eq!(step.before.batchsets - step.after.batchsets, dropped.count());
    }
    let step_2 = report.steps[1];
    let dropped = step_2.before.executions - step_2.after.executions;
    assert_eq!(dropped, report.dropped_executions.len());
}

fn assert_everything_is_dropped_or_retained(data: &DataSet, report: &TapReport) {
    let there: BTreeSet<BatchsetKey> =
        data.executions.iter().map(|row| row.key.in_batchset()).collect();
    let dropped = report.dropped_batchsets.iter().map(|dropped| dropped.key);
    let accounted: Vec<BatchsetKey> =
        dropped.chain(report.retained.iter().map(|batchset| batchset.key)).collect();
    assert_eq!(accounted.len(), there.len());
    assert_eq!(accounted.into_iter().collect::<BTreeSet<_>>(), there);
    let faulty: BTreeSet<CheckPlace> = report
        .violations
        .iter()
        .filter(|violation| violation.check.class() == Class::Execution)
        .map(|violation| violation.place)
        .collect();
    let dropped: BTreeSet<CheckPlace> =
        report.dropped_executions.iter().copied().map(CheckPlace::Execution).collect();
    assert_eq!(dropped, faulty);
}

fn assert_retained_curves(report: &TapReport, rule: Rule) {
    let last = report.steps.last().expect("six steps").after;
    let executions = report.retained.iter().flat_map(|batchset| &batchset.curve);
    assert_eq!(executions.map(|point| point.executions).sum::<usize>(), last.executions);
    assert_eq!(report.retained.len(), last.batchsets);
    let in_groups: usize = report.groups.iter().map(|group| group.retained).sum();
    assert_eq!(in_groups, last.batchsets);
    for batchset in &report.retained {
        assert_eq!(batchset.curve.len(), 10);
        let points = batchset.curve.iter().map(|point| (point.mpl, Some(point.tps)));
        let curve = ThroughputCurve::new(points).expect("ten points");
        assert_eq!(rule.thrashing_point(&curve), batchset.thrashing_point);
        assert_eq!(rule.transient(&curve), None);
        assert_eq!(batchset.rule, rule);
    }
}

fn assert_check_8_empties_no_batch(data: &DataSet, report: &TapReport) {
    let abnormal = report.violations.iter().filter_map(|violation| match violation.place {
        CheckPlace::Execution(key) if violation.check == Check::AbnormalAtpt => Some(key),
        _ => None,
    });
    let abnormal: BTreeSet<ExecutionKey> = abnormal.collect();
    let is_left = |row: &&BatchExecution| !abnormal.contains(&row.key);
    let left: BTreeSet<BatchKey> =
        data.executions.iter().filter(is_left).map(|row| row.key.in_batch()).collect();
    assert!(data.executions.iter().all(|row| left.contains(&row.key.in_batch())));
}

//! Rows that are refused, and the form in which rows and reports are written.

use serde_json::{Value, json};

use crate::tap::testing::{key, small};
use crate::tap::{Check, CheckPlace, DataError, DataSet, PROTOCOL, Rule, RunId, analyse};

type Fault = (fn(&mut DataSet), &'static str);

/// Each fault and the message that names it.
const FAULTS: &[Fault] = &[
    (|data| data.runs.push(data.runs[0].clone()), "run 1 is there twice"),
    (|data| data.batchsets.push(data.batchsets[2].clone()), "run 1, batchset 3 is there twice"),
    (
        |data| data.executions.push(data.executions[4].clone()),
        "run 1, batchset 1, MPL 200, execution 2 is there twice: give the attempt that counts",
    ),
    (|data| data.runs[0].plan.batchsets = 0, "run 1: no batchset is planned"),
    (|data| data.runs[0].plan.mpls.clear(), "run 1: no MPL is planned"),
    (|data| data.runs[0].plan.executions = 0, "run 1: no execution of a batch is planned"),
    (
        |data| data.runs[0].plan.ctl_s = f64::NAN,
        "run 1: the connection time limit is not a length of time",
    ),
    (
        |data| data.runs[0].plan.connect_limit_s = -1.0,
        "run 1: the limit for connecting is not a length of time",
    ),
    (|data| data.batchsets[0].key.run = RunId(9), "run 9, batchset 1: there is no such run"),
    (|data| data.runs[0].plan.batchsets = 2, "run 1, batchset 3 is not in the run's plan"),
    (
        |data| drop(data.batchsets.remove(1)),
        "run 1, batchset 2, MPL 100, execution 1: there is no such batchset instance",
    ),
    (
        |data| data.executions[0].key = key(1, 1, 150, 1),
        "run 1, batchset 1, MPL 150, execution 1 is not in the run's plan",
    ),
    (
        |data| data.executions[0].key = key(1, 1, 100, 4),
        "run 1, batchset 1, MPL 100, execution 4 is not in the run's plan",
    ),
    (
        |data| data.executions[0].seconds = 0.0,
        "run 1, batchset 1, MPL 100, execution 1: measuring did not take a length of time",
    ),
    (|data| data.executions[0].transactions = 0, MEAN),
    (|data| data.executions[0].atpt_s = None, MEAN),
    (|data| data.executions[0].atpt_s = Some(0.0), MEAN),
];

const MEAN: &str = "run 1, batchset 1, MPL 100, execution 1: a mean time above 0 goes with \
                    completed transactions, and none with none";

#[test]
fn contradictory_rows_are_refused_by_name() {
    for (spoil, message) in FAULTS {
        let mut data = small(1);
        spoil(&mut data);
        let error = analyse(&data, Rule::Equation1).expect_err(message);
        assert_eq!(error.to_string(), *message);
    }
}

/// Whoever set the clock, or the limit, costs what was measured then, and nothing else.
#[test]
fn impossible_times_are_violations_of_their_executions() {
    let spoil: [fn(&mut DataSet); 4] = [
        |data| data.executions[0].ended_s = data.executions[0].began_s,
        |data| data.executions[0].began_s = f64::INFINITY,
        |data| data.executions[0].ended_s = 0.0,
        |data| data.executions[0].connect_s = -1.0,
    ];
    for spoil in spoil {
        let mut data = small(1);
        spoil(&mut data);
        let report = analyse(&data, Rule::Equation1).expect("sound rows");
        let found: Vec<_> = report.violations.iter().map(|one| (one.check, one.place)).collect();
        let place = CheckPlace::Execution(key(1, 1, 100, 1));
        assert_eq!(found, [(Check::ConnectionTimeLimit, place)]);
        assert_eq!(report.dropped_executions, [key(1, 1, 100, 1)]);
        assert_eq!(report.retained.len(), 3);
    }
    let mut data = small(1);
    data.runs[0].plan.connect_limit_s = 0.0;
    let report = analyse(&data, Rule::Equation1).expect("sound rows");
    assert_eq!(report.dropped_executions.len(), data.executions.len());
}

#[test]
fn without_rows_there_is_an_empty_report() {
    let report = analyse(&DataSet::default(), Rule::Equation1).expect("no rows");
    assert!(report.is_sound());
    assert_eq!(report.steps.len(), 6);
    assert!(report.tables().contains("| 6 | zero TPS at the starting MPL | 0 % (0/0) |"));
}

#[test]
fn a_run_that_has_only_begun_lacks_everything() {
    let mut data = small(1);
    data.executions.clear();
    let report = analyse(&data, Rule::Equation1).expect("sound rows");
    assert_eq!(report.violations.len(), 30);
    assert_eq!(report.steps[0].before.batchsets, 0);
}

/// Two batches of two executions: 10 and 30 transactions in 2 s, 51 in 2.04 s and 41 in 2.05 s.
#[test]
fn throughput_and_mean_time_worked_by_hand() {
    let mut data = small(1);
    let plan = &mut data.runs[0].plan;
    (plan.batchsets, plan.executions, plan.ctl_s) = (1, 2, 2.0);
    plan.mpls.retain(|mpl| mpl.get() <= 200);
    data.batchsets.truncate(1);
    data.executions
        .retain(|row| row.key.batchset == 1 && row.key.mpl.get() <= 200 && row.key.iteration <= 2);
    let rows = [(2.0, 10, 0.2), (2.0, 30, 0.22), (2.04, 51, 0.4), (2.05, 41, 0.36)];
    for (row, (seconds, transactions, atpt_s)) in data.executions.iter_mut().zip(rows) {
        (row.seconds, row.transactions) = (seconds, transactions);
        row.atpt_s = Some(atpt_s);
        row.clients = 2;
    }
    let report = analyse(&data, Rule::Equation1).expect("sound rows");
    assert_eq!(report.violations, []);
    assert_eq!(report.unjudged_atpt, 4);
    let batchset = &report.retained[0];
    let tps: Vec<f64> = batchset.curve.iter().map(|point| point.tps).collect();
    // (5 + 15)/2 and (25 + 20)/2.
    assert!((tps[0] - 10.0).abs() < 1e-6 && (tps[1] - 22.5).abs() < 1e-6, "{tps:?}");
    // (10·0.2 + 30·0.22 + 51·0.4 + 41·0.36) / 132.
    let atpt_s = batchset.atpt_s.expect("transactions completed");
    assert!((atpt_s - 43.76 / 132.0).abs() < 1e-9, "{atpt_s}");
}

#[test]
fn rows_survive_being_written() {
    let data = small(1);
    let text = serde_json::to_string(&data).expect("text");
    assert_eq!(serde_json::from_str::<DataSet>(&text).expect("rows"), data);
}

#[test]
fn a_written_report_has_versions_and_flat_keys() {
    let mut data = small(1);
    data.executions[0].num_procs = 5;
    let report = analyse(&data, Rule::Equation1).expect("sound rows");
    let written: Value = serde_json::to_value(&report).expect("JSON");
    assert_eq!(written["protocol"], PROTOCOL);
    assert_eq!(written["steps"][3]["step"], "3-(ii)");
    assert_eq!(
        written["violations"][0],
        json!({
            "check": "processor-configuration",
            "place": { "run": 1, "batchset": 1, "mpl": 100, "iteration": 1 },
            "observed": "numProcs is 5",
            "expected": "2",
        })
    );
    let retained = &written["retained"][0];
    assert_eq!(retained["rule"], "equation-1 v1");
    assert_eq!(retained["thrashing_point"], json!({ "is": "infinite", "highest": 1_000 }));
    assert_eq!(retained["caveats"], json!(["processor-configuration"]));
}

#[test]
fn errors_can_be_told_apart() {
    let mut data = small(1);
    data.executions[0].key = key(1, 1, 100, 4);
    let expected = DataError::UnplannedExecution(key(1, 1, 100, 4));
    assert_eq!(analyse(&data, Rule::Equation1), Err(expected));
}

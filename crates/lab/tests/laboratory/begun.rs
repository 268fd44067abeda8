//! An experiment goes on, is analysed and exported by the plan with which it was begun, or not at
//! all.

use std::sync::atomic::AtomicBool;

use tidegate_lab::laboratory::{LabError, Laboratory};
use tidegate_lab::store::{Format, StoreError};
use tidegate_lab::tap::Choices;
use tidegate_subject::sqlite::SqliteConnection;

use crate::support::{StoreFile, experiment};

/// 1 run of 2 batchsets of 2 MPLs.
const FILE: &str = r#"
name = "try"
scenario = "thrash"
subjects = ["simulated"]
processors = [2]
mpl = [100, 200]
ctl = "40s"
warmup = "8s"
interval = "700ms"

[factors]
rows = 30000
primary_key = [true]
read_sf = [0.1]
update_sf = [0.07]
rose = [75.0]
"#;

/// A store with the experiment, planned by version 0.0.1, and half done.
struct Bench {
    file: StoreFile,
    laboratory: Laboratory,
    connection: SqliteConnection,
}

impl Bench {
    fn new() -> Bench {
        let file = StoreFile::new();
        let mut laboratory = file.laboratory();
        laboratory.begin(&experiment(FILE)).unwrap();
        let connection = file.connection();
        let tables = ["code", "experiment", "run", "batchset", "execution"];
        for table in tables {
            connection.batch(&format!("DROP TRIGGER {table}_no_update")).unwrap();
        }
        connection.batch("UPDATE code SET version = '0.0.1', build = 'old'").unwrap();
        Bench { file, laboratory, connection }
    }

    /// What resuming, analysing and exporting come to.
    fn all(&mut self) -> [Result<(), LabError>; 3] {
        let Bench { file, laboratory, .. } = self;
        let resumed = laboratory.run(1, &AtomicBool::new(false), &mut |_| ()).map(drop);
        let exported = laboratory.export(1, Format::Csv, &file.directory().join("out"));
        [resumed, laboratory.tap(1, Choices::default()).map(drop), exported.map(drop)]
    }
}

#[test]
fn another_plan_than_was_begun_is_refused() {
    for (change, expected) in [
        ("UPDATE experiment SET warmup_s = 5", "warmup_s was 5 and is 8"),
        ("UPDATE experiment SET connect_limit_s = 30", "connect_limit_s was 30 and is 60"),
        ("UPDATE run SET settings = '{\"fsync\":\"off\"}'", "run 1 is of another configuration"),
        ("UPDATE run SET isolation = 'serializable'", "run 1 is of another configuration"),
        (
            "UPDATE batchset SET spec = replace(spec, '30000', '60000') WHERE number = 2",
            "batchset 2 of run 1 has another workload",
        ),
        ("UPDATE batchset SET spec = 'none'", "batchset 1 of run 1 has another workload"),
        (
            "UPDATE batchset SET treatment = '{\"buffer\":\"8MB\"}'",
            "batchset 1 of run 1 has another treatment",
        ),
        ("UPDATE batchset SET number = 3 WHERE number = 2", "batchset 2 of run 1 is numbered"),
        ("UPDATE execution SET place = -place", "in another order"),
    ] {
        let mut bench = Bench::new();
        bench.connection.batch(change).unwrap();
        for refused in bench.all() {
            let error = refused.unwrap_err();
            let is_refused = matches!(&error, LabError::Store(StoreError::Replanned { id: 1, .. }));
            assert!(is_refused, "{change}: {error}");
            let said = error.to_string();
            let now = format!("Tidegate {}", env!("CARGO_PKG_VERSION"));
            let versions = said.contains("Tidegate 0.0.1 (old)") && said.contains(&now);
            assert!(versions && said.contains(expected), "{change}: {said}");
        }
        if let Ok(shown) = bench.laboratory.show(1, None) {
            assert!(shown.contains("not analysed: experiment 1 was planned by"), "{shown}");
        }
    }
}

#[test]
fn the_same_plan_is_taken_however_it_is_written() {
    for change in [
        // As it is.
        "UPDATE run SET number = number",
        // As stores of before version 3 have it.
        "UPDATE experiment SET ctl_s = NULL, warmup_s = NULL, pause_s = NULL, \
         connect_limit_s = NULL, interval_s = NULL",
        // As a version without a treatment's newest parts had it.
        "UPDATE batchset SET treatment = '{}', spec = replace(spec, ':0.1,', ':1e-1,')",
    ] {
        let mut bench = Bench::new();
        bench.connection.batch(change).unwrap();
        for done in bench.all() {
            done.unwrap();
        }
        assert_eq!(bench.laboratory.experiment(1).unwrap().done, 4, "{change}");
    }
}

/// Somebody sets the clock back in the middle of an execution: it costs that execution.
#[test]
fn an_execution_that_ends_before_its_begin_is_dropped_alone() {
    let mut bench = Bench::new();
    bench.laboratory.run(1, &AtomicBool::new(false), &mut |_| ()).unwrap();
    let set = "DROP TRIGGER attempt_no_update; UPDATE attempt SET began_us = began_us + 3600000000 \
               WHERE id = 1";
    bench.connection.batch(set).unwrap();
    let report = bench.laboratory.tap(1, Choices::default()).unwrap().report;
    assert_eq!((report.dropped_executions.len(), report.retained.len()), (1, 1));
    let why = &report.violations[0].observed;
    assert!(why.contains("s after its begin") && why.contains("it ended -"), "{why}");
}

/// Rows that contradict each other cannot be analysed, and looking says so.
#[test]
fn what_cannot_be_analysed_is_shown_with_its_reason() {
    let mut bench = Bench::new();
    bench.laboratory.run(1, &AtomicBool::new(false), &mut |_| ()).unwrap();
    let spoil = "DROP TRIGGER measurement_taken_no_update; \
                 UPDATE measurement_taken SET seconds = 0";
    bench.connection.batch(spoil).unwrap();
    let reason = "the rows cannot be analysed: run 1, batchset ";
    let shown = bench.laboratory.show(1, None).unwrap();
    assert!(shown.contains(&format!("not analysed: {reason}")), "{shown}");
    assert!(!shown.contains("dropped this curve"), "{shown}");
    let json = bench.laboratory.show_json(1).unwrap();
    assert!(json.contains(&format!("\"not_analysed\":\"{reason}")), "{json}");
    assert!(json.contains("\"retained\":null") && !json.contains("\"retained\":f"), "{json}");
}

/// An execution that ends early by design is no violation of its time.
#[test]
fn only_curves_are_judged() {
    let mut bench = Bench::new();
    bench.laboratory.run(1, &AtomicBool::new(false), &mut |_| ()).unwrap();
    assert!(bench.laboratory.show(1, None).unwrap().contains("thrashing"));
    bench.connection.batch("UPDATE experiment SET scenario = 'deteriorate'").unwrap();
    let shown = bench.laboratory.show(1, None).unwrap();
    assert!(shown.contains("4 of 4 executions done"), "{shown}");
    assert!(!shown.contains("thrashing") && !shown.contains("dropped"), "{shown}");
}

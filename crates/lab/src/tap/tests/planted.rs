//! Every violation planted in the study's two designs is found, and nothing else is.

use std::collections::BTreeSet;

use tidegate_control::{Mpl, SplitMix64};

use crate::tap::testing::{CONFIRMATORY, Design, EXPLORATORY, Rows, key, pick, shuffle};
use crate::tap::{
    BatchExecution, BatchsetKey, Check, CheckCount, CheckPlace, Counts, DataSet, ExecutionKey,
    Rule, Step, TapReport, analyse,
};

/// Sound data, into which violations are planted, each in a batchset instance of its own unless
/// said otherwise.
struct Plot {
    rows: Rows,
    generator: SplitMix64,
    executions: u32,
    /// Batchset instances without a violation so far, in random order.
    free: Vec<BatchsetKey>,
    removed: BTreeSet<ExecutionKey>,
    planted: BTreeSet<(Check, CheckPlace)>,
}

impl Plot {
    /// Batchset instances whose numbers add up to a multiple of 3 thrash.
    fn new(design: &Design, seed: u64) -> Plot {
        let mut free = design.keys();
        let thrashing = free.iter().copied().filter(|&key| thrashes(key)).collect();
        let rows = Rows::new(design.data(&thrashing, seed));
        let mut generator = SplitMix64::new(seed);
        shuffle(&mut free, &mut generator);
        let (removed, planted) = (BTreeSet::new(), BTreeSet::new());
        Plot { rows, generator, executions: design.executions, free, removed, planted }
    }

    fn batchset(&mut self) -> BatchsetKey {
        self.free.pop().expect("a batchset instance is left")
    }

    fn rising_batchset(&mut self) -> BatchsetKey {
        let at = self.free.iter().rposition(|&key| !thrashes(key));
        self.free.swap_remove(at.expect("one that does not thrash is left"))
    }

    /// An execution of a fresh batchset instance.
    fn execution(&mut self) -> ExecutionKey {
        let batchset = self.batchset();
        let mpl = 100 * (1 + u32::try_from(pick(&mut self.generator, 10)).expect("small"));
        key(batchset.run.0, batchset.batchset, mpl, self.iteration())
    }

    fn iteration(&mut self) -> u32 {
        1 + u32::try_from(pick(&mut self.generator, self.executions as usize)).expect("small")
    }

    fn plant(&mut self, check: Check, place: CheckPlace) {
        assert!(self.planted.insert((check, place)), "{place}: planted twice");
    }

    fn plant_executions(
        &mut self,
        check: Check,
        count: usize,
        change: impl Fn(&mut BatchExecution),
    ) {
        for _ in 0..count {
            let key = self.execution();
            change(self.rows.row(key));
            self.plant(check, CheckPlace::Execution(key));
        }
    }

    /// All executions of the batch of `batchset` at an MPL.
    fn batch(&self, batchset: BatchsetKey, mpl: u32) -> Vec<ExecutionKey> {
        let batch = batchset.batch(Mpl::at_least_one(mpl));
        (1..=self.executions).map(|iteration| batch.execution(iteration)).collect()
    }

    fn remove_batch(&mut self, batchset: BatchsetKey, mpl: u32) {
        let executions = self.batch(batchset, mpl);
        self.plant(Check::MissingBatches, CheckPlace::Batch(executions[0].in_batch()));
        self.removed.extend(executions);
    }

    /// Checks 1 and 3: 12 single batches, one batchset instance altogether, 9 single executions.
    fn plant_absences(&mut self) {
        for step in 0..12 {
            let batchset = self.batchset();
            self.remove_batch(batchset, 100 * (1 + step % 10));
        }
        let batchset = self.batchset();
        for step in 1..=10 {
            self.remove_batch(batchset, 100 * step);
        }
        for _ in 0..9 {
            let key = self.execution();
            self.removed.insert(key);
            self.plant(Check::MissedExecutions, CheckPlace::Execution(key));
        }
    }

    /// Checks 2, 4 and 5: 7, 5 and 2, and 4 executions.
    fn plant_company(&mut self) {
        self.plant_executions(Check::ProcessorConfiguration, 7, |row| row.num_procs += 1);
        self.plant_executions(Check::OtherExecutors, 5, |row| row.other_executors = 1);
        self.plant_executions(Check::OtherDbmsProcesses, 4, |row| {
            row.other_dbms.push("mariadbd".into());
        });
        // The second execution of a batch connects while the first has not ended.
        let first = ExecutionKey { iteration: 1, ..self.execution() };
        let second = ExecutionKey { iteration: 2, ..first };
        let began_s = self.rows.row(first).ended_s - 0.5;
        let row = self.rows.row(second);
        (row.ended_s, row.began_s) = (began_s + row.ended_s - row.began_s, began_s);
        for key in [first, second] {
            self.plant(Check::OtherExecutors, CheckPlace::Execution(key));
        }
    }

    /// Check 6: 4 single executions, and all of two batches.
    fn plant_zeros(&mut self) {
        let mut zeros = Vec::new();
        for _ in 0..4 {
            zeros.push(ExecutionKey { mpl: Mpl::at_least_one(100), ..self.execution() });
        }
        for _ in 0..2 {
            let batchset = self.batchset();
            zeros.extend(self.batch(batchset, 100));
        }
        for key in zeros {
            let row = self.rows.row(key);
            (row.transactions, row.atpt_s) = (0, None);
            self.plant(Check::ZeroTps, CheckPlace::Execution(key));
            // Nothing ended at all, not even with an error.
            self.plant(Check::NotSteady, CheckPlace::Execution(key));
        }
    }

    /// Check 7: 8 late, 8 early, 8 that connect too long, and all of one batchset instance. Check
    /// 8: 10 long and 10 short, and 5 that violate check 7 too.
    fn plant_times(&mut self) {
        let limit = Check::ConnectionTimeLimit;
        self.plant_executions(limit, 8, |row| row.seconds += 10.0);
        self.plant_executions(limit, 8, |row| row.seconds -= 10.0);
        self.plant_executions(limit, 8, |row| row.connect_s += 15.0);
        let batchset = self.batchset();
        for key in (1..=10).flat_map(|step| self.batch(batchset, 100 * step)).collect::<Vec<_>>() {
            self.rows.end_late(key);
            self.plant(limit, CheckPlace::Execution(key));
        }
        let scale = |factor: f64| {
            move |row: &mut BatchExecution| row.atpt_s = row.atpt_s.map(|atpt_s| factor * atpt_s)
        };
        self.plant_executions(Check::AbnormalAtpt, 10, scale(4.0));
        self.plant_executions(Check::AbnormalAtpt, 10, scale(0.7));
        for _ in 0..5 {
            let key = self.execution();
            self.rows.end_late(key);
            scale(1.5)(self.rows.row(key));
            self.plant(limit, CheckPlace::Execution(key));
            self.plant(Check::AbnormalAtpt, CheckPlace::Execution(key));
        }
    }

    /// Check 10: 11 with so many clients that none ends five transactions.
    fn plant_unsteady(&mut self) {
        self.plant_executions(Check::NotSteady, 11, |row| row.clients *= 1_000);
    }

    /// Check 9: 3 dips at MPL 300.
    fn plant_dips(&mut self) {
        for _ in 0..3 {
            let batchset = self.rising_batchset();
            for key in self.batch(batchset, 300) {
                self.rows.row(key).transactions /= 2;
            }
            self.plant(Check::TransientThrashing, CheckPlace::Batchset(batchset));
        }
    }

    /// For Step 3-(iii): 2 dips at MPL 300 that show only once the executions that ended late, all
    /// but one, have been dropped.
    fn plant_hidden_dips(&mut self) {
        for _ in 0..2 {
            let batchset = self.rising_batchset();
            let mut batch = self.batch(batchset, 300);
            let low = batch.pop().expect("an execution");
            self.rows.row(low).transactions /= 2;
            for key in batch {
                let row = self.rows.row(key);
                row.transactions += row.transactions / 4;
                self.rows.end_late(key);
                self.plant(Check::ConnectionTimeLimit, CheckPlace::Execution(key));
            }
        }
    }

    /// For Step 3-(ii): 2 dips at MPL 300 that vanish once the executions that ended late, all but
    /// one, have been dropped.
    fn plant_healing_dips(&mut self) {
        for _ in 0..2 {
            let batchset = self.rising_batchset();
            self.plant(Check::TransientThrashing, CheckPlace::Batchset(batchset));
            for key in self.batch(batchset, 300).into_iter().skip(1) {
                self.rows.row(key).transactions /= 4;
                self.rows.end_late(key);
                self.plant(Check::ConnectionTimeLimit, CheckPlace::Execution(key));
            }
        }
    }

    fn data(&self) -> DataSet {
        let mut data = self.rows.data.clone();
        data.executions.retain(|row| !self.removed.contains(&row.key));
        data
    }
}

fn thrashes(key: BatchsetKey) -> bool {
    (key.run.0 + i64::from(key.batchset)) % 3 == 0
}

fn plotted(design: &Design, seed: u64) -> Plot {
    let mut plot = Plot::new(design, seed);
    plot.plant_absences();
    plot.plant_company();
    plot.plant_zeros();
    plot.plant_times();
    plot.plant_unsteady();
    plot.plant_dips();
    plot.plant_hidden_dips();
    plot.plant_healing_dips();
    plot
}

/// The counts after Steps 1, 2, 3-(i), (ii) and (iii), where they follow from what was planted.
fn assert_steps(design: &Design, plot: &Plot, report: &TapReport) {
    let each = design.executions as usize;
    let all = design.keys().len();
    // One batchset instance is not there, and 12 others lack a batch; 9 executions were missed.
    let there = Counts {
        executions: (all * 10 - 22) * each - 9,
        batches: all * 10 - 22,
        batchsets: all - 1,
    };
    // All of one batchset instance ended late; in two others all at the lowest MPL did nothing.
    let of_executions =
        [Check::ZeroTps, Check::ConnectionTimeLimit, Check::AbnormalAtpt, Check::NotSteady];
    let planted: BTreeSet<CheckPlace> = plot
        .planted
        .iter()
        .filter(|(check, _)| of_executions.contains(check))
        .map(|&(_, place)| place)
        .collect();
    let faults = 4 + 2 * each + 3 * 8 + 10 * each + 2 * 10 + 5 + 11 + 4 * (each - 1);
    assert_eq!(planted.len(), faults);
    let cleaned = Counts {
        executions: there.executions - faults,
        batches: there.batches - 10 - 2,
        batchsets: all - 2,
    };
    let is_transient = |count: &&CheckCount| count.check == Check::TransientThrashing;
    let transient = report.checks.iter().find(is_transient).expect("ten checks");
    assert_eq!(transient.checked, there.batchsets);
    let after: Vec<Counts> = report.steps.iter().map(|step| step.after).collect();
    assert_eq!(after[..2], [there, cleaned]);
    let batchsets: Vec<usize> = after.iter().map(|counts| counts.batchsets).collect();
    let whole = all - 2 - 12 - 2;
    assert_eq!(batchsets, [all - 1, all - 2, whole, whole - 5, whole - 7, whole - 7]);
}

fn check(design: &Design, seed: u64) {
    let plot = plotted(design, seed);
    let report = analyse(&plot.data(), Rule::Equation1).expect("sound rows");
    let found: BTreeSet<(Check, CheckPlace)> =
        report.violations.iter().map(|violation| (violation.check, violation.place)).collect();
    assert_eq!(found.len(), report.violations.len(), "none is reported twice");
    let differences: Vec<_> = found.symmetric_difference(&plot.planted).collect();
    assert!(differences.is_empty(), "seed {seed}: {differences:?}");
    assert_steps(design, &plot, &report);

    // Every batchset instance that was retained thrashes as it was made to.
    for batchset in &report.retained {
        let is_found = batchset.thrashing_point.mpl().is_some();
        assert_eq!(is_found, thrashes(batchset.key), "{}", batchset.key);
    }
    assert!(!report.is_sound());
    let caveats = report.retained.iter().filter(|batchset| !batchset.caveats.is_empty()).count();
    // Those with missed executions, other processors, executors (the last in pairs) and DBMSes.
    assert_eq!(caveats, 9 + 7 + 5 + 4 + 1);
    let lost = report.dropped_batchsets.iter().filter(|dropped| dropped.step == Step::Executions);
    assert_eq!(lost.count(), 1);
}

#[test]
fn in_the_exploratory_design() {
    for seed in 1..=3 {
        check(&EXPLORATORY, seed);
    }
}

#[test]
fn in_the_confirmatory_design() {
    check(&CONFIRMATORY, 4);
}

#[test]
fn sound_data_have_no_violation() {
    for design in [&EXPLORATORY, &CONFIRMATORY] {
        let plot = Plot::new(design, 5);
        let report = analyse(&plot.data(), Rule::Equation1).expect("sound rows");
        assert_eq!(report.violations, []);
        assert!(report.is_sound());
        assert!(report.steps.iter().all(|step| step.before == report.planned));
        assert!(report.steps.iter().all(|step| step.after == report.planned));
        let thrashing = design.keys().into_iter().filter(|&key| thrashes(key)).count();
        let found: usize = report.groups.iter().map(|group| group.thrashing).sum();
        assert_eq!(found, thrashing);
    }
}

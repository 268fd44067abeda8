//! The report as the study prints it: Tables 5 to 8, and the outcome of Step 4, in Markdown.

use std::fmt::Write as _;

use super::check::{Check, Class};
use super::posterior::Posterior;
use super::steps::{CheckCount, Step, StepCounts, TapReport};

impl TapReport {
    /// Tables 5 to 8 of the study and the counts of Step 4, as Markdown. Percentages have two
    /// significant digits, like the study's.
    pub fn tables(&self) -> String {
        let mut text = String::new();
        text.push_str("| | experiment-wide checks | violations |\n| --- | --- | --- |\n");
        for count in self.of_class(Class::Experiment) {
            let (number, title) = (count.check.number(), count.check.title());
            push(&mut text, format_args!("| {number} | {title} | {} |", count.violations));
        }
        for (class, heading) in [
            (Class::Execution, "checks of batch executions"),
            (Class::Batchset, "check of batchset instances"),
        ] {
            push(&mut text, format_args!("\n| | {heading} | violations |\n| --- | --- | --- |"));
            for count in self.of_class(class) {
                let (number, title) = (count.check.number(), count.check.title());
                let CheckCount { violations, checked, .. } = *count;
                let share = percent(violations, checked);
                let cells =
                    format_args!("| {number} | {title} | {share} ({violations}/{checked}) |");
                push(&mut text, cells);
            }
        }
        text.push_str("\n| | batch executions | batchset instances |\n| --- | --- | --- |\n");
        self.push_steps(&mut text);
        let rule = self.rule.version();
        push(&mut text, format_args!("\n| group | retained | TP below ∞ by {rule} |"));
        text.push_str("| --- | --- | --- |\n");
        for group in &self.groups {
            let share = percent(group.thrashing, group.retained);
            let (name, retained) = (&group.group, group.retained);
            push(
                &mut text,
                format_args!("| {name} | {retained} | {} ({share}) |", group.thrashing),
            );
        }
        for one in &self.confounded {
            push(&mut text, format_args!("\nwarning: {one}"));
        }
        text
    }

    /// Table 8, with the batch executions of every line, of which the study gives the first two.
    fn push_steps(&self, text: &mut String) {
        for &StepCounts { step, before, after } in &self.steps {
            let (executions, batchsets) = (before.executions, before.batchsets);
            match step {
                Step::Execution | Step::Checks | Step::ThrashingPoints => continue,
                Step::Executions => {
                    let line = format_args!("| at start of Step 2 | {executions} | {batchsets} |");
                    push(text, line);
                }
                Step::Incomplete | Step::RawTransient | Step::RetainedTransient => {}
            }
            let lost = percent(executions - after.executions, executions);
            let lost_sets = percent(batchsets - after.batchsets, batchsets);
            let (executions, batchsets) = (after.executions, after.batchsets);
            push(
                text,
                format_args!(
                    "| after Step {step} | {executions} ({lost} dropped) | \
                     {batchsets} ({lost_sets} dropped) |"
                ),
            );
        }
    }

    fn of_class(&self, class: Class) -> impl Iterator<Item = &CheckCount> {
        self.checks.iter().filter(move |count| Check::class(count.check) == class)
    }
}

/// Returns how certain the outcome of Step 4 is, as Markdown: for each group how many batchset
/// instances are expected to thrash, and of how many that is in doubt.
///
/// `posteriors` are those of the batchset instances retained, in their order.
pub(crate) fn certainty(report: &TapReport, posteriors: &[Posterior]) -> String {
    let mut text = "\n| group | retained | expected to thrash by the posteriors | \
                    P(thrashing) up to 0.1 | in doubt | 0.9 or more |\n\
                    | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for group in &report.groups {
        let of_group = report.retained.iter().zip(posteriors);
        let thrashing: Vec<f64> = of_group
            .filter(|(batchset, _)| batchset.factors.group == group.group)
            .map(|(_, posterior)| 1.0 - posterior.none())
            .collect();
        let few = thrashing.iter().filter(|&&share| share <= 0.1).count();
        let many = thrashing.iter().filter(|&&share| share >= 0.9).count();
        let (name, retained) = (&group.group, group.retained);
        let expected: f64 = thrashing.iter().sum();
        let doubt = retained - few - many;
        push(
            &mut text,
            format_args!("| {name} | {retained} | {expected:.1} | {few} | {doubt} | {many} |"),
        );
    }
    let unmeasured = posteriors.iter().filter(|posterior| !posterior.is_noise_measured).count();
    if unmeasured > 0 {
        push(
            &mut text,
            format_args!(
                "\n{unmeasured} have one execution a level, which does not measure the noise \
                 between executions: their probabilities are conditional on its prior"
            ),
        );
    }
    text
}

fn push(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{line}");
}

/// A share in per cent with two significant digits.
pub(super) fn percent(part: usize, whole: usize) -> String {
    if part == 0 || whole == 0 {
        return "0 %".to_owned();
    }
    let percent = 100.0 * part as f64 / whole as f64;
    let mut decimals = 0;
    let mut shifted = percent;
    while shifted < 10.0 {
        shifted *= 10.0;
        decimals += 1;
    }
    format!("{percent:.decimals$} %")
}

#[cfg(test)]
mod tests {
    use super::super::testing::small;
    use super::super::{RetainedBatchset, Rule, analyse};
    use super::*;

    #[test]
    fn certainty_is_told_by_group() {
        let mut report = analyse(&small(2), Rule::Equation1).expect("sound rows");
        for level in report.retained[0].levels.iter_mut().skip(5) {
            level.tps = vec![1.0; 3];
        }
        let posteriors: Vec<Posterior> =
            report.retained.iter().map(RetainedBatchset::posterior).collect();
        let text = certainty(&report, &posteriors);
        assert!(text.ends_with("| read | 6 | 1.0 | 5 | 0 | 1 |\n"), "{text}");
        for level in &mut report.retained[0].levels {
            level.tps.truncate(1);
        }
        report.retained.truncate(1);
        report.groups[0].retained = 1;
        let text = certainty(&report, &[report.retained[0].posterior()]);
        assert!(text.contains("\n1 have one execution a level"), "{text}");
    }

    /// Those of the study's Tables 6 and 8 and of its text, and the ends.
    #[test]
    fn percentages_are_the_studys() {
        for (part, whole, expected) in [
            (25, 70_000, "0.036 %"),
            (2_434, 70_000, "3.5 %"),
            (679, 70_000, "0.97 %"),
            (70_000 - 66_927, 70_000, "4.4 %"),
            (1_400 - 1_339, 1_400, "4.4 %"),
            (482, 1_339, "36 %"),
            (487, 1_003, "49 %"),
            (2_507, 33_600, "7.5 %"),
            (109, 1_112, "9.8 %"),
            (0, 1_400, "0 %"),
            (5, 5, "100 %"),
            (0, 0, "0 %"),
        ] {
            assert_eq!(percent(part, whole), expected, "{part}/{whole}");
        }
    }
}

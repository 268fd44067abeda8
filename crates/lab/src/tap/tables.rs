//! The report as the study prints it: Tables 5 to 8, and the outcome of Step 4, in Markdown.

use std::fmt::Write as _;

use super::check::{Check, Class};
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
    use super::*;

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

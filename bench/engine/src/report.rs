//! The Markdown file.

use std::fmt::Write;
use std::path::Path;

use crate::{Plan, machine};

/// What is written so far.
pub(crate) struct Report {
    text: String,
}

impl Report {
    /// The title, and under which circumstances everything is measured.
    pub(crate) fn new(plan: &Plan, directory: &Path) -> Report {
        let mut report = Report { text: "# The embedded engine, measured\n\n".into() };
        let command: Vec<String> = std::env::args().skip(1).collect();
        report.item(&format!("command: `engine-bench {}`", command.join(" ")));
        report.item(&format!(
            "seed {}, {} rows, {} rounds, {} s per timed measurement",
            plan.seed, plan.rows, plan.rounds, plan.seconds
        ));
        for line in machine::describe(directory) {
            report.item(&line);
        }
        report.item(&machine::versions());
        if plan.is_quick {
            report
                .paragraph("**`--quick`: this shows that it works, and no figure is worth much.**");
        }
        report
    }

    /// A heading of the second level.
    pub(crate) fn heading(&mut self, title: &str) {
        self.paragraph(&format!("## {title}"));
    }

    /// A paragraph.
    pub(crate) fn paragraph(&mut self, text: &str) {
        if !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
        self.text += text;
        self.text += "\n\n";
    }

    /// An item of a list.
    pub(crate) fn item(&mut self, text: &str) {
        // Writing into a string does not fail.
        let _ = writeln!(self.text, "- {text}");
    }

    /// A table: the first column left, the others right.
    pub(crate) fn table(&mut self, header: &[&str], rows: &[Vec<String>]) {
        self.row(header.iter().copied());
        self.row(header.iter().enumerate().map(|(at, _)| if at == 0 { "---" } else { "---:" }));
        for row in rows {
            self.row(row.iter().map(String::as_str));
        }
        self.text.push('\n');
    }

    fn row<'c>(&mut self, cells: impl Iterator<Item = &'c str>) {
        let cells: Vec<&str> = cells.collect();
        let _ = writeln!(self.text, "| {} |", cells.join(" | "));
    }

    /// All of it.
    pub(crate) fn text(&self) -> String {
        self.text.trim_end_matches('\n').to_owned() + "\n"
    }
}

/// How a target is said to be met.
pub(crate) fn verdict(is_met: bool) -> &'static str {
    if is_met { "met" } else { "**missed**" }
}

//! Rows of cells as plain text for a terminal and as Markdown for a document.

use std::fmt::Write;

/// Rows of cells; the first column is text, the others numbers.
pub(crate) struct Grid {
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Grid {
    /// Columns one under the other, numbers to the right.
    pub(crate) fn text(&self) -> String {
        let lines = || std::iter::once(&self.head).chain(&self.rows);
        let width = |column: usize| {
            let cells = lines().filter_map(|line| line.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let mut text = String::new();
        for line in lines() {
            let mut out = String::new();
            for (index, (cell, &width)) in line.iter().zip(&widths).enumerate() {
                // Writing to a String cannot fail.
                let _ = match index {
                    0 => write!(out, "{cell:<width$}"),
                    _ => write!(out, "  {cell:>width$}"),
                };
            }
            text += out.trim_end();
            text.push('\n');
        }
        text
    }

    pub(crate) fn markdown(&self) -> String {
        let mut text = line(self.head.iter().map(String::as_str));
        let rule = (0..self.head.len()).map(|index| if index == 0 { "---" } else { "---:" });
        text += &line(rule);
        for row in &self.rows {
            text += &line(row.iter().map(String::as_str));
        }
        text
    }
}

/// A line of a Markdown table.
pub(crate) fn line<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    let cells = cells.map(|cell| cell.replace('|', "\\|"));
    format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_under_their_heading() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let grid = Grid { head: row(["who", "±tps %"]), rows: vec![row(["vegas", "9.5"])] };
        assert_eq!(grid.text(), "who    ±tps %\nvegas     9.5\n");
        assert_eq!(grid.markdown(), "| who | ±tps % |\n| --- | ---: |\n| vegas | 9.5 |\n");
    }
}

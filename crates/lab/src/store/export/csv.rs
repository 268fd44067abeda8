//! CSV: a line of names, then a line for each row (RFC 4180, lines ended by a line feed).
//!
//! NULL is an empty field, and empty text is `""`.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::tables::{ExportCell, ExportTable};
use super::{Portions, Sink};
use crate::store::StoreError;
use crate::whole_file::WholeFile;

pub(super) struct Csv {
    directory: PathBuf,
    done: Vec<PathBuf>,
}

impl Csv {
    pub(super) fn new(directory: &Path) -> Self {
        Csv { directory: directory.to_owned(), done: Vec::new() }
    }
}

impl Sink for Csv {
    fn write(
        &mut self,
        table: &ExportTable,
        portions: &mut Portions<'_>,
    ) -> Result<(), StoreError> {
        let mut part = WholeFile::create(&self.directory, &format!("{}.csv", table.name))?;
        let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
        let mut line = format!("{}\n", names.join(",")).into_bytes();
        part.put(&line)?;
        for rows in portions {
            for row in rows? {
                line.clear();
                push_line(&mut line, &row);
                part.put(&line)?;
            }
        }
        self.done.push(part.finish()?);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Vec<PathBuf>, StoreError> {
        Ok(self.done)
    }
}

fn push_line(line: &mut Vec<u8>, row: &[ExportCell]) {
    for (place, cell) in row.iter().enumerate() {
        if place > 0 {
            line.push(b',');
        }
        // Writing to a vector cannot fail.
        let _ = match cell {
            ExportCell::Null => Ok(()),
            ExportCell::Int(number) => write!(line, "{number}"),
            ExportCell::Real(number) => write!(line, "{number}"),
            ExportCell::Text(text) if text.is_empty() || text.contains(['"', ',', '\r', '\n']) => {
                write!(line, "\"{}\"", text.replace('"', "\"\""))
            }
            ExportCell::Text(text) => write!(line, "{text}"),
        };
    }
    line.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_something_in_csv_is_quoted() {
        let mut line = Vec::new();
        let text = |text: &str| ExportCell::Text(text.to_owned());
        let row = [text("a,b"), text("say \"a\"\nb"), text(""), ExportCell::Null, text("plain")];
        push_line(&mut line, &row);
        push_line(&mut line, &[ExportCell::Int(-3), ExportCell::Real(0.25), ExportCell::Real(4.0)]);
        let expected = "\"a,b\",\"say \"\"a\"\"\nb\",\"\",,plain\n-3,0.25,4\n";
        assert_eq!(String::from_utf8(line).unwrap(), expected);
    }
}

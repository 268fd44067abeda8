//! JSON: one document, an object with an array of objects for each table.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::Sink;
use super::tables::{Cell, Table};
use crate::store::StoreError;
use crate::whole_file::WholeFile;

pub(super) struct Json {
    part: WholeFile,
    table: Option<&'static Table>,
    /// What stands before the next table, and before the next row.
    comma: (&'static str, &'static str),
}

impl Json {
    pub(super) fn new(directory: &Path) -> Result<Self, StoreError> {
        let part = WholeFile::create(directory, "experiment.json")?;
        Ok(Json { part, table: None, comma: ("{", "") })
    }
}

impl Sink for Json {
    fn begin(&mut self, table: &'static Table) -> Result<(), StoreError> {
        self.part.put(format!("{}\n\"{}\": [", self.comma.0, table.name).as_bytes())?;
        self.table = Some(table);
        self.comma = (",", "");
        Ok(())
    }

    fn row(&mut self, row: &[Cell]) -> Result<(), StoreError> {
        let columns = self.table.map_or(&[][..], |table| table.columns);
        let cells = columns.iter().zip(row);
        let object: Map<String, Value> =
            cells.map(|(column, cell)| (column.name.to_owned(), value(cell))).collect();
        self.part.put(format!("{}\n{}", self.comma.1, Value::Object(object)).as_bytes())?;
        self.comma.1 = ",";
        Ok(())
    }

    fn end(&mut self) -> Result<(), StoreError> {
        Ok(self.part.put(b"]")?)
    }

    fn finish(mut self: Box<Self>) -> Result<Vec<PathBuf>, StoreError> {
        self.part.put(b"\n}\n")?;
        Ok(vec![self.part.finish()?])
    }
}

/// JSON has no word for what is no number: that is null.
fn value(cell: &Cell) -> Value {
    match cell {
        Cell::Null => Value::Null,
        Cell::Int(number) => Value::from(*number),
        Cell::Real(number) => Value::from(*number),
        Cell::Text(text) => Value::from(text.as_str()),
    }
}

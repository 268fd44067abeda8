//! JSON: one document, an object with an array of objects for each table.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::tables::{ExportCell, ExportTable};
use super::{Portions, Sink};
use crate::store::StoreError;
use crate::whole_file::WholeFile;

pub(super) struct Json {
    part: WholeFile,
    /// What stands before the next table.
    before: &'static str,
}

impl Json {
    pub(super) fn new(directory: &Path) -> Result<Self, StoreError> {
        Ok(Json { part: WholeFile::create(directory, "experiment.json")?, before: "{" })
    }
}

impl Sink for Json {
    fn write(
        &mut self,
        table: &ExportTable,
        portions: &mut Portions<'_>,
    ) -> Result<(), StoreError> {
        self.part.put(format!("{}\n\"{}\": [", self.before, table.name).as_bytes())?;
        self.before = ",";
        let mut before = "";
        for rows in portions {
            for row in rows? {
                let cells = table.columns.iter().zip(&row);
                let object: Map<String, Value> =
                    cells.map(|(column, cell)| (column.name.clone(), value(cell))).collect();
                self.part.put(format!("{before}\n{}", Value::Object(object)).as_bytes())?;
                before = ",";
            }
        }
        Ok(self.part.put(b"]")?)
    }

    fn finish(mut self: Box<Self>) -> Result<Vec<PathBuf>, StoreError> {
        self.part.put(b"\n}\n")?;
        Ok(vec![self.part.finish()?])
    }
}

/// JSON has no word for what is no number: that is null.
fn value(cell: &ExportCell) -> Value {
    match cell {
        ExportCell::Null => Value::Null,
        ExportCell::Int(number) => Value::from(*number),
        ExportCell::Real(number) => Value::from(*number),
        ExportCell::Text(text) => Value::from(text.as_str()),
    }
}

//! An experiment's rows as files that other programs read: CSV, JSON, Parquet.
//!
//! # Mechanism
//! There is a table for each kind of row ([`tables`]), in long form: one row for one thing seen,
//! and in each row the keys by which it is found: experiment, run, batchset, MPL, repetition. The
//! table of executions carries all that an execution depended on, so that a figure needs no join.
//! Each table is a view in the store (`exports.sql`), which has its columns. Rows are sorted by
//! their keys, runs and batchsets first, so that the same store gives the same bytes, whichever
//! database holds it.
//!
//! CSV and Parquet are a file for each table, JSON one document with an array for each. A file
//! appears under its name when it is whole.
//!
//! `docs/results.md` lists the columns. A column keeps its meaning for ever; what is new gets a new
//! name.
//!
//! # Limits
//! One batchset's rows of one table are in memory at a time, and a Parquet file's last group of
//! rows. Of an experiment that is still running, a file has the rows that were there when it was
//! written.

mod csv;
mod json;
mod parquet;
pub(crate) mod tables;

use std::path::{Path, PathBuf};
use std::str::FromStr;

use thiserror::Error;

use self::tables::{ExportCell, ExportTable, Scope};
use super::{BatchsetRow, Store, StoreError};
use crate::Cause;
use crate::experiment::Experiment;
use crate::whole_file::WholeFileError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A text file for each table, with a line of names (RFC 4180).
    Csv,
    Json,
    /// A column-wise file for each table.
    Parquet,
}

/// A name that no format has.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no format is called `{0}`: use csv, json or parquet")]
pub struct UnknownFormat(String);

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        match name {
            "csv" => Ok(Format::Csv),
            "json" => Ok(Format::Json),
            "parquet" => Ok(Format::Parquet),
            _ => Err(UnknownFormat(name.to_owned())),
        }
    }
}

/// The rows of a table, by portions that are in memory one at a time; a row has a cell for each
/// column.
type Portions<'p> = dyn Iterator<Item = Result<Vec<Vec<ExportCell>>, StoreError>> + 'p;

/// Takes tables, one after the other.
trait Sink {
    fn write(&mut self, table: &ExportTable, portions: &mut Portions<'_>)
    -> Result<(), StoreError>;

    /// Ends the last file. Returns the files that there are now.
    fn finish(self: Box<Self>) -> Result<Vec<PathBuf>, StoreError>;
}

impl Store {
    /// Writes all rows of an experiment into a directory, which is made where it is not there;
    /// files of the same names are replaced. The paths of the files.
    pub fn export(
        &mut self,
        id: i64,
        experiment: &Experiment,
        format: Format,
        directory: &Path,
    ) -> Result<Vec<PathBuf>, StoreError> {
        self.experiment(id)?;
        std::fs::create_dir_all(directory).map_err(|error| failed(directory, error))?;
        let batchsets = self.batchsets(id)?;
        let mut sink = sink(format, directory)?;
        for table in self.tables()? {
            let parts: Vec<Option<&BatchsetRow>> = match table.scope {
                Scope::Experiment => vec![None],
                Scope::Batchset => batchsets.iter().map(Some).collect(),
            };
            let mut portions =
                parts.into_iter().map(|part| self.rows_of(&table, id, experiment, part));
            sink.write(&table, &mut portions)?;
        }
        sink.finish()
    }
}

fn sink(format: Format, directory: &Path) -> Result<Box<dyn Sink>, StoreError> {
    Ok(match format {
        Format::Csv => Box::new(csv::Csv::new(directory)),
        Format::Json => Box::new(json::Json::new(directory)?),
        Format::Parquet => Box::new(parquet::Parquet::new(directory)),
    })
}

fn failed(path: &Path, source: impl Into<Cause>) -> StoreError {
    StoreError::Write { path: path.to_owned(), source: source.into() }
}

impl From<WholeFileError> for StoreError {
    fn from(error: WholeFileError) -> Self {
        failed(&error.path, error.source)
    }
}

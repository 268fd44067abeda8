//! Parquet: columns of optional INT64, DOUBLE and UTF-8 text, by dictionary where that is shorter,
//! not compressed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};

use super::tables::{ColumnKind, ExportCell, ExportTable};
use super::{Portions, Sink, failed};
use crate::store::StoreError;
use crate::whole_file::WholeFile;

/// Rows that are kept in memory and written together.
const GROUP: usize = 32_768;

pub(super) struct Parquet {
    directory: PathBuf,
    done: Vec<PathBuf>,
}

impl Parquet {
    pub(super) fn new(directory: &Path) -> Self {
        Parquet { directory: directory.to_owned(), done: Vec::new() }
    }
}

impl Sink for Parquet {
    fn write(
        &mut self,
        table: &ExportTable,
        portions: &mut Portions<'_>,
    ) -> Result<(), StoreError> {
        let mut open = Open::create(&self.directory, table)?;
        for rows in portions {
            for row in rows? {
                open.columns.iter_mut().zip(&row).for_each(|(column, cell)| column.push(cell));
                open.rows += 1;
                if open.rows == GROUP {
                    open.write_group()?;
                }
            }
        }
        self.done.push(open.finish()?);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Vec<PathBuf>, StoreError> {
        Ok(self.done)
    }
}

struct Open {
    path: PathBuf,
    writer: SerializedFileWriter<WholeFile>,
    columns: Vec<ColumnBuffer>,
    rows: usize,
}

impl Open {
    fn create(directory: &Path, table: &ExportTable) -> Result<Self, StoreError> {
        let name = format!("{}.parquet", table.name);
        let path = directory.join(&name);
        let part = WholeFile::create(directory, &name)?;
        let writer = schema(table).and_then(|schema| {
            SerializedFileWriter::new(part, schema, Arc::new(WriterProperties::default()))
        });
        let writer = writer.map_err(|error| failed(&path, error))?;
        let columns = table.columns.iter().map(|column| ColumnBuffer::new(column.kind)).collect();
        Ok(Open { path, writer, columns, rows: 0 })
    }

    fn write_group(&mut self) -> Result<(), StoreError> {
        let written = self.try_write_group();
        self.rows = 0;
        written.map_err(|error| failed(&self.path, error))
    }

    fn try_write_group(&mut self) -> Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        for column in &mut self.columns {
            if let Some(mut writer) = group.next_column()? {
                column.write(&mut writer)?;
                writer.close()?;
            }
        }
        group.close()?;
        Ok(())
    }

    fn finish(mut self) -> Result<PathBuf, StoreError> {
        if self.rows > 0 {
            self.write_group()?;
        }
        let part = self.writer.into_inner();
        Ok(part.map_err(|error| failed(&self.path, error))?.finish()?)
    }
}

/// The part of a column that is not written yet.
struct ColumnBuffer {
    /// For each row whether it has a value: 1 or 0.
    levels: Vec<i16>,
    values: ColumnValues,
}

enum ColumnValues {
    Int(Vec<i64>),
    Real(Vec<f64>),
    Text(Vec<ByteArray>),
}

impl ColumnBuffer {
    fn new(kind: ColumnKind) -> Self {
        let values = match kind {
            ColumnKind::Int => ColumnValues::Int(Vec::new()),
            ColumnKind::Real => ColumnValues::Real(Vec::new()),
            ColumnKind::Text => ColumnValues::Text(Vec::new()),
        };
        ColumnBuffer { levels: Vec::new(), values }
    }

    /// A cell of another kind than the column's is none.
    fn push(&mut self, cell: &ExportCell) {
        let is_there = match (&mut self.values, cell) {
            (ColumnValues::Int(values), ExportCell::Int(number)) => {
                values.push(*number);
                true
            }
            (ColumnValues::Real(values), ExportCell::Real(number)) => {
                values.push(*number);
                true
            }
            (ColumnValues::Text(values), ExportCell::Text(text)) => {
                values.push(ByteArray::from(text.as_str()));
                true
            }
            _ => false,
        };
        self.levels.push(i16::from(is_there));
    }

    fn write(&mut self, writer: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        let levels = Some(&self.levels[..]);
        match &mut self.values {
            ColumnValues::Int(values) => {
                writer.typed::<Int64Type>().write_batch(values, levels, None)?;
                values.clear();
            }
            ColumnValues::Real(values) => {
                writer.typed::<DoubleType>().write_batch(values, levels, None)?;
                values.clear();
            }
            ColumnValues::Text(values) => {
                writer.typed::<ByteArrayType>().write_batch(values, levels, None)?;
                values.clear();
            }
        }
        self.levels.clear();
        Ok(())
    }
}

fn schema(table: &ExportTable) -> Result<TypePtr, ParquetError> {
    let field = |column: &super::tables::ExportColumn| {
        let (physical, logical) = match column.kind {
            ColumnKind::Int => (Physical::INT64, None),
            ColumnKind::Real => (Physical::DOUBLE, None),
            ColumnKind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let field = Type::primitive_type_builder(&column.name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical);
        Ok(Arc::new(field.build()?))
    };
    let fields = table.columns.iter().map(field).collect::<Result<Vec<TypePtr>, ParquetError>>()?;
    Ok(Arc::new(Type::group_type_builder(table.name).with_fields(fields).build()?))
}

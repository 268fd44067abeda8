//! Results as PostgreSQL sends them: columns with types, and rows of texts.

use tidegate_wire::backend::{self, ColumnType};

/// The value of a cell; absent is NULL.
pub(super) type Cell = Option<String>;

/// What a cell can be made of.
pub(super) trait IntoCell {
    fn into_cell(self) -> Cell;
}

impl IntoCell for &str {
    fn into_cell(self) -> Cell {
        Some(self.to_owned())
    }
}

impl<T: IntoCell> IntoCell for Option<T> {
    fn into_cell(self) -> Cell {
        self.and_then(T::into_cell)
    }
}

macro_rules! cells {
    ($($type:ty),*) => { $(
        impl IntoCell for $type {
            fn into_cell(self) -> Cell {
                Some(self.to_string())
            }
        }
    )* };
}

cells!(String, u8, u16, u32, u64, usize, f64);

impl IntoCell for bool {
    fn into_cell(self) -> Cell {
        u8::from(self).into_cell()
    }
}

/// Makes a row of values of several types.
macro_rules! row {
    ($($value:expr),* $(,)?) => {
        vec![$($crate::console::table::IntoCell::into_cell($value)),*]
    };
}
pub(super) use row;

/// A result.
#[derive(Clone, Debug)]
pub(super) struct Table {
    columns: Vec<(&'static str, ColumnType)>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// Makes a result without rows; each type has its letter: `s` text, `i` int4, `q` int8,
    /// `N` numeric.
    pub(super) fn new(types: &str, names: &[&'static str]) -> Table {
        debug_assert_eq!(types.len(), names.len(), "each column has a type");
        let columns = types.chars().zip(names).map(|(letter, &name)| {
            let of = match letter {
                'i' => ColumnType::Int4,
                'q' => ColumnType::Int8,
                'N' => ColumnType::Numeric,
                _ => ColumnType::Text,
            };
            (name, of)
        });
        Table { columns: columns.collect(), rows: Vec::new() }
    }

    pub(super) fn push(&mut self, row: Vec<Cell>) {
        debug_assert_eq!(row.len(), self.columns.len(), "each column has a value");
        self.rows.push(row);
    }

    /// Appends the description of the columns.
    pub(super) fn encode_description(&self, out: &mut Vec<u8>) {
        backend::encode_row_description(out, self.columns.iter().copied());
    }

    /// Appends the rows.
    pub(super) fn encode_rows(&self, out: &mut Vec<u8>) {
        for row in &self.rows {
            backend::encode_data_row(out, row.iter().map(|cell| cell.as_deref()));
        }
    }
}

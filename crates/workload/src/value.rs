//! Values that go into statements and the rows that come out.
//!
//! Three types are enough for every workload here, and every database has them: whole numbers of 64
//! bits, text, and nothing. Money is a whole number of cents and a rate one of ten-thousandths, so
//! that every database adds them up alike; a moment is microseconds since 1970.

use std::borrow::Cow;

/// What a statement is given, or a column holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    Null,
    Int(i64),
    /// Text, without trailing spaces where the column has a fixed width.
    Text(Cow<'a, str>),
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Value::Int(number)
    }
}

impl From<i32> for Value<'_> {
    fn from(number: i32) -> Self {
        Value::Int(number.into())
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Value::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Value::Text(Cow::Owned(text))
    }
}

/// The rows of an answer: cells side by side, text in one buffer.
///
/// Databases that answer in text keep numbers as their digits; [`Rows::int`] reads them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    width: usize,
    cells: Vec<Cell>,
    text: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    Null,
    Int(i64),
    /// Where in the buffer the text begins and ends.
    Text(u32, u32),
}

impl Rows {
    /// No rows yet, each to have so many columns.
    pub fn new(width: usize) -> Self {
        Rows { width, ..Rows::default() }
    }

    /// How many columns each row has.
    pub fn width(&self) -> usize {
        self.width
    }

    pub fn len(&self) -> usize {
        self.cells.len().checked_div(self.width).unwrap_or(0)
    }

    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// Appends the next cell, from left to right, a row after the other.
    pub fn push(&mut self, value: &Value<'_>) {
        match value {
            Value::Null => self.cells.push(Cell::Null),
            Value::Int(number) => self.cells.push(Cell::Int(*number)),
            Value::Text(text) => self.push_text(text.as_bytes()),
        }
    }

    /// Appends the next cell as text, or as digits of a number.
    pub fn push_text(&mut self, text: &[u8]) {
        let place = |len| u32::try_from(len).expect("an answer has less than 4 GiB of text");
        let from = place(self.text.len());
        self.text.extend_from_slice(text);
        self.cells.push(Cell::Text(from, place(self.text.len())));
    }

    /// Appends a row of text, NULL where there is none. The first says how many columns each has.
    pub fn push_row<'r>(&mut self, columns: impl Iterator<Item = Option<&'r [u8]>>) {
        let before = self.cells.len();
        for column in columns {
            match column {
                Some(text) => self.push_text(text),
                None => self.cells.push(Cell::Null),
            }
        }
        if before == 0 {
            self.width = self.cells.len();
        }
    }

    fn cell(&self, row: usize, column: usize) -> Option<Cell> {
        let index = row.checked_mul(self.width)?.checked_add(column)?;
        self.cells.get(index).copied().filter(|_| column < self.width)
    }

    /// The number in a column; `None` for NULL, for text that is no number, and where no cell is.
    pub fn int(&self, row: usize, column: usize) -> Option<i64> {
        match self.cell(row, column)? {
            Cell::Null => None,
            Cell::Int(number) => Some(number),
            Cell::Text(..) => self.text(row, column)?.parse().ok(),
        }
    }

    /// The text in a column, without the spaces that pad a fixed width; `None` for NULL, for a
    /// number that came as one, for what is not UTF-8, and where no cell is.
    pub fn text(&self, row: usize, column: usize) -> Option<&str> {
        let Cell::Text(from, until) = self.cell(row, column)? else { return None };
        let text = std::str::from_utf8(&self.text[from as usize..until as usize]).ok()?;
        Some(text.trim_end_matches(' '))
    }

    /// Whether a cell is there and holds NULL.
    pub fn is_null(&self, row: usize, column: usize) -> bool {
        self.cell(row, column) == Some(Cell::Null)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_found_by_row_and_column() {
        let mut rows = Rows::new(2);
        for value in [Value::Int(7), "ab  ".into(), Value::Null, "-12".into()] {
            rows.push(&value);
        }
        assert_eq!((rows.len(), rows.width(), rows.is_empty()), (2, 2, false));
        assert_eq!((rows.int(0, 0), rows.text(0, 1)), (Some(7), Some("ab")));
        assert_eq!((rows.int(1, 0), rows.is_null(1, 0)), (None, true));
        assert_eq!((rows.int(1, 1), rows.text(0, 0)), (Some(-12), None));
        assert_eq!((rows.int(0, 2), rows.int(2, 0), rows.is_null(2, 0)), (None, None, false));
    }

    #[test]
    fn the_first_row_of_text_says_how_wide_all_are() {
        let mut rows = Rows::default();
        rows.push_row([Some(&b"1"[..]), None].into_iter());
        rows.push_row([None, Some(&b"x"[..])].into_iter());
        assert_eq!((rows.width(), rows.len()), (2, 2));
        assert_eq!(
            (rows.int(0, 0), rows.text(1, 1), rows.is_null(0, 1)),
            (Some(1), Some("x"), true)
        );
    }

    #[test]
    fn an_answer_without_columns_has_no_rows() {
        let rows = Rows::new(0);
        assert_eq!((rows.len(), rows.is_empty(), rows.int(0, 0)), (0, true, None));
    }
}

//! What Firebird tells about statements: items of a tag, a length of two bytes and a value, with
//! the lowest byte first.

use super::wire::{Column, WireError};

/// What kind of statement it is, and so how it is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It has rows, which are fetched.
    Select,
    /// It answers with at most one row.
    Returning,
    /// It changes rows.
    Change,
    /// It defines something.
    Definition,
}

/// A statement as the server understood it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Description {
    pub(super) kind: Kind,
    pub(super) columns: Vec<Column>,
}

/// Bytes, four for each character of UTF-8, for a date, a number with a point or a truth value.
const SHORT_TEXT: u16 = 256;

const END: u8 = 1;
const TRUNCATED: u8 = 2;

impl Description {
    /// Reads what `Requests::prepare` asked for.
    pub(super) fn parse(data: &[u8]) -> Result<Self, WireError> {
        let mut items = Items(data);
        let mut kind = Kind::Change;
        let mut columns = Vec::new();
        let (mut code, mut scale) = (0, 0);
        loop {
            match items.tag()? {
                END => break,
                TRUNCATED => return Err(WireError::Protocol("a statement has too many columns")),
                // A statement with rows; the column is done.
                4 | 8 => {}
                21 => kind = kind_of(items.number()?),
                // How many columns; a column's place.
                7 | 9 => drop(items.number()?),
                11 => code = items.number()?,
                13 => scale = items.number()?,
                14 => columns.push(column(code, scale, items.number()?)?),
                _ => return Err(WireError::Protocol("an unknown item about a statement")),
            }
        }
        if kind == Kind::Returning && columns.is_empty() {
            kind = Kind::Change;
        }
        Ok(Description { kind, columns })
    }
}

fn kind_of(number: i32) -> Kind {
    match number {
        1 | 12 => Kind::Select,
        5 => Kind::Definition,
        8 => Kind::Returning,
        _ => Kind::Change,
    }
}

/// The lowest bit of a type says that it may be NULL. Types that are neither whole numbers nor text
/// are asked for as text.
fn column(code: i32, scale: i32, bytes: i32) -> Result<Column, WireError> {
    match code & !1 {
        // SMALLINT, INTEGER and BIGINT.
        500 | 496 | 580 if scale == 0 => Ok(Column::Int),
        // CHAR and VARCHAR.
        452 | 448 => match u16::try_from(bytes) {
            Ok(bytes) => Ok(Column::Text(bytes.max(1))),
            Err(_) => Err(WireError::Protocol("a column has a length that cannot be")),
        },
        // BLOB, arrays.
        520 | 540 | 550 => Err(WireError::Protocol("a column is a blob; cast it to varchar")),
        _ => Ok(Column::Text(SHORT_TEXT)),
    }
}

/// Reads how many rows a statement touched: updated (15), deleted (16), selected (13), inserted
/// (14), one after the other within one item (23). What it read in order to change it is left out.
pub(super) fn changed(data: &[u8]) -> Result<u64, WireError> {
    let mut items = Items(data);
    let mut changed = 0;
    loop {
        match items.tag()? {
            END => return Ok(changed),
            23 => items.skip(2)?,
            14..=16 => {
                changed += u64::try_from(items.number()?)
                    .map_err(|_| WireError::Protocol("fewer than no rows were touched"))?;
            }
            13 => drop(items.number()?),
            _ => return Err(WireError::Protocol("an unknown item about touched rows")),
        }
    }
}

struct Items<'d>(&'d [u8]);

impl<'d> Items<'d> {
    fn take(&mut self, count: usize) -> Result<&'d [u8], WireError> {
        let (head, rest) = self
            .0
            .split_at_checked(count)
            .ok_or(WireError::Protocol("a description ends early"))?;
        self.0 = rest;
        Ok(head)
    }

    fn skip(&mut self, count: usize) -> Result<(), WireError> {
        self.take(count).map(drop)
    }

    fn tag(&mut self) -> Result<u8, WireError> {
        Ok(self.take(1)?[0])
    }

    /// A number of at most four bytes, behind its length.
    fn number(&mut self) -> Result<i32, WireError> {
        let length = self.take(2)?;
        let length = usize::from(u16::from_le_bytes([length[0], length[1]]));
        let bytes = self.take(length)?;
        let mut word = [0; 4];
        match word.get_mut(..length) {
            Some(low) => low.copy_from_slice(bytes),
            None => return Err(WireError::Protocol("a number of more than four bytes")),
        }
        Ok(i32::from_le_bytes(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_gives_kind_and_columns() {
        let mut data = vec![21, 4, 0, 1, 0, 0, 0, 4, 7, 4, 0, 3, 0, 0, 0];
        for (code, scale, bytes) in [(496_i32, 0_i32, 4_i32), (449, 0, 12), (580, -2, 8)] {
            for (tag, number) in [(11, code), (13, scale), (14, bytes)] {
                data.extend_from_slice(&[tag, 4, 0]);
                data.extend_from_slice(&number.to_le_bytes());
            }
            data.push(8);
        }
        data.push(END);
        let columns = vec![Column::Int, Column::Text(12), Column::Text(SHORT_TEXT)];
        let expected = Description { kind: Kind::Select, columns };
        assert_eq!(Description::parse(&data).unwrap(), expected);
        for cut in 0..data.len() {
            assert!(Description::parse(&data[..cut]).is_err(), "cut at {cut}");
        }
        assert!(column(520, 0, 8).is_err());
    }

    #[test]
    fn rows_touched_are_those_changed() {
        let number = |tag: u8, count: u8| [tag, 4, 0, count, 0, 0, 0];
        let data = [
            &[23, 29, 0][..],
            &number(15, 2),
            &number(16, 3),
            &number(13, 100),
            &number(14, 5),
            &[END],
        ]
        .concat();
        assert_eq!(changed(&data).unwrap(), 10);
        assert!(changed(&data[..8]).is_err());
        assert!(changed(&[99]).is_err());
    }
}

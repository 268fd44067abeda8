//! Bytes of keys, whose order is that of the values, and of rows.
//!
//! # Keys
//! A key is its values one behind the other. Each begins with a byte that says what it is, and none
//! is the beginning of another, so keys with the same first values stand together, and those with
//! a value in a range do.
//!
//! | value | bytes |
//! | --- | --- |
//! | NULL | 0 |
//! | a number from 0 up | 128 + n, then the n bytes it needs, the highest first |
//! | a number below 0 | 127 − n, then the n lowest bytes of its two's complement |
//! | text | 160, its bytes with 0 written as 0 255, then 0 0 |
//!
//! For a number below 0, n is what its complement needs: −1 is 127 alone, −256 is 126 0, −257 is
//! 125 254 255. Small numbers make short keys: (1, 10, 3000) takes 7 bytes.
//!
//! # Rows
//! The columns that are not of the key: a bit for each that says whether it is NULL, eight to a
//! byte, then the columns, numbers in 4 or 8 bytes by their type, text with its length in 2 bytes.
//! A number that is NULL keeps its bytes, all 0: an update that fills it in, as TPC-C's Delivery
//! does in every order, then needs no room that a full leaf does not have. A text that is NULL has
//! none. `Char(n)` is padded to n characters, as other databases do, so that rows are as long there
//! and here, and read without its padding.

use std::borrow::Cow;

use tidegate_workload::{Column, Type, Value};

use super::error::SqlError;
use super::evaluate::wrong_type;

const NULL: u8 = 0;
const ZERO: u8 = 128;
const TEXT: u8 = 160;

/// Appends a value to a key.
pub(super) fn append_key(key: &mut Vec<u8>, value: &Value<'_>) {
    match value {
        Value::Null => key.push(NULL),
        Value::Int(number) => append_number(key, *number),
        Value::Text(text) => {
            key.push(TEXT);
            for &byte in text.as_bytes() {
                key.push(byte);
                if byte == 0 {
                    key.push(255);
                }
            }
            key.extend_from_slice(&[0, 0]);
        }
    }
}

fn append_number(key: &mut Vec<u8>, number: i64) {
    let magnitude = if number < 0 { !number } else { number };
    let unused = magnitude.leading_zeros() / 8;
    let bytes = number.to_be_bytes();
    let used = &bytes[unused as usize..];
    let count = u8::try_from(used.len()).expect("a number has at most 8 bytes");
    key.push(if number < 0 { ZERO - 1 - count } else { ZERO + count });
    key.extend_from_slice(used);
}

/// The value that a key begins with, and the rest of the key; `None` when it is no key.
pub(super) fn read_key(key: &[u8]) -> Option<(Value<'static>, &[u8])> {
    let (&first, rest) = key.split_first()?;
    match first {
        NULL => Some((Value::Null, rest)),
        TEXT => read_text(rest),
        _ => {
            let is_negative = first < ZERO;
            let count = if is_negative { ZERO - 1 - first } else { first - ZERO };
            let (used, rest) = rest.split_at_checked(usize::from(count))?;
            let mut bytes = [if is_negative { 255 } else { 0 }; 8];
            bytes.get_mut(8 - used.len().min(8)..)?.copy_from_slice(used.get(..used.len().min(8))?);
            (count <= 8).then_some((Value::Int(i64::from_be_bytes(bytes)), rest))
        }
    }
}

fn read_text(mut rest: &[u8]) -> Option<(Value<'static>, &[u8])> {
    let mut text = Vec::new();
    loop {
        let end = rest.iter().position(|&byte| byte == 0)?;
        text.extend_from_slice(rest.get(..end)?);
        let mark = *rest.get(end + 1)?;
        rest = rest.get(end + 2..)?;
        if mark == 0 {
            return Some((Value::Text(String::from_utf8(text).ok()?.into()), rest));
        }
        text.push(0);
    }
}

/// What is behind a key's first values, so many.
pub(super) fn skip_key(mut key: &[u8], values: usize) -> Option<&[u8]> {
    for _ in 0..values {
        let (&first, rest) = key.split_first()?;
        key = match first {
            NULL => rest,
            TEXT => skip_text(rest)?,
            _ => read_key(key)?.1,
        };
    }
    Some(key)
}

/// What is behind a text.
fn skip_text(mut rest: &[u8]) -> Option<&[u8]> {
    loop {
        let end = rest.iter().position(|&byte| byte == 0)?;
        let mark = *rest.get(end + 1)?;
        rest = rest.get(end + 2..)?;
        if mark == 0 {
            return Some(rest);
        }
    }
}

/// Above all keys that begin so, and below all others above them; `None` when nothing is.
pub(super) fn behind(mut prefix: Vec<u8>) -> Option<Vec<u8>> {
    while let Some(last) = prefix.pop() {
        if last < 255 {
            prefix.push(last + 1);
            return Some(prefix);
        }
    }
    None
}

/// A value as a column holds it.
///
/// # Errors
/// It is of another type, or too large.
pub(super) fn fit<'v>(value: Value<'v>, column: &Column) -> Result<Value<'v>, SqlError> {
    let wrong = |what: String| SqlError::WrongType { what, done: "put into a column of its type" };
    match (column.kind, value) {
        (_, Value::Null) => Ok(Value::Null),
        (Type::Int, Value::Int(number)) if i32::try_from(number).is_err() => {
            let (what, place) = (number.to_string(), format!("column {}", column.name));
            Err(SqlError::OutOfRange { what, place })
        }
        (Type::Int | Type::BigInt | Type::Timestamp, Value::Int(number)) => Ok(Value::Int(number)),
        (Type::Timestamp, Value::Text(text)) => match super::moment::read(&text) {
            Some(micros) => Ok(Value::Int(micros)),
            None => Err(wrong(format!("'{}' for column {}", shorten(&text), column.name))),
        },
        (Type::Char(max), Value::Text(text)) => {
            let text = match text {
                Cow::Borrowed(text) => Cow::Borrowed(text.trim_end_matches(' ')),
                Cow::Owned(mut text) => {
                    text.truncate(text.trim_end_matches(' ').len());
                    Cow::Owned(text)
                }
            };
            within(text, max, column)
        }
        (Type::Varchar(max), Value::Text(text)) => within(text, max, column),
        (_, Value::Int(number)) => Err(wrong(format!("{number} for column {}", column.name))),
        (_, Value::Text(text)) => {
            Err(wrong(format!("'{}' for column {}", shorten(&text), column.name)))
        }
    }
}

/// A value as one of a column is compared with it in a key.
///
/// # Errors
/// It is of another type.
pub(super) fn comparable<'v>(value: Value<'v>, column: &Column) -> Result<Value<'v>, SqlError> {
    match (column.kind, &value) {
        (_, Value::Null)
        | (Type::Int | Type::BigInt | Type::Timestamp, Value::Int(_))
        | (Type::Char(_) | Type::Varchar(_), Value::Text(_)) => Ok(value),
        _ => Err(wrong_type(&value, "compared with a column of another type")),
    }
}

fn within<'v>(text: Cow<'v, str>, max: u16, column: &Column) -> Result<Value<'v>, SqlError> {
    let max = usize::from(max);
    if text.len() > max {
        let len = text.chars().count();
        if len > max {
            return Err(SqlError::TooLong { column: column.name.to_owned(), len, max });
        }
    }
    Ok(Value::Text(text))
}

/// The beginning of a text, for a message.
pub(super) fn shorten(text: &str) -> String {
    text.chars().take(40).collect()
}

/// Appends the row of values that fit their columns.
pub(super) fn append_row<'c, 'v>(
    row: &mut Vec<u8>,
    cells: impl Iterator<Item = (&'c Column, &'v Value<'v>)> + Clone,
) {
    let from = row.len();
    row.resize(from + cells.clone().count().div_ceil(8), 0);
    for (place, (column, value)) in cells.enumerate() {
        match (column.kind, value) {
            (_, Value::Null) => {
                row[from + place / 8] |= 1 << (place % 8);
                row.resize(row.len() + kept(column.kind), 0);
            }
            (Type::Int, Value::Int(number)) => {
                let number = i32::try_from(*number).expect("it fits its column");
                row.extend_from_slice(&number.to_le_bytes());
            }
            (_, Value::Int(number)) => row.extend_from_slice(&number.to_le_bytes()),
            (kind, Value::Text(text)) => append_text(row, text, kind),
        }
    }
}

/// The bytes that a column has while it is NULL.
fn kept(kind: Type) -> usize {
    match kind {
        Type::Int => 4,
        Type::BigInt | Type::Timestamp => 8,
        Type::Char(_) | Type::Varchar(_) => 0,
    }
}

fn append_text(row: &mut Vec<u8>, text: &str, kind: Type) {
    let padding = match kind {
        Type::Char(max) => usize::from(max).saturating_sub(text.chars().count()),
        _ => 0,
    };
    // A column has at most 65,535 characters; only those of several bytes could be more here, and
    // they would not fit a page either.
    let len = u16::try_from(text.len() + padding).unwrap_or(u16::MAX);
    row.extend_from_slice(&len.to_le_bytes());
    row.extend_from_slice(text.as_bytes());
    row.resize(row.len() + padding, b' ');
}

/// Reads a row's cells one after the other.
pub(super) struct RowReader<'r> {
    nulls: &'r [u8],
    rest: &'r [u8],
    place: usize,
}

impl<'r> RowReader<'r> {
    /// A reader of a row of so many columns; `None` when it is none.
    pub(super) fn new(row: &'r [u8], columns: usize) -> Option<Self> {
        let (nulls, rest) = row.split_at_checked(columns.div_ceil(8))?;
        Some(RowReader { nulls, rest, place: 0 })
    }

    /// The next cell, which is of this type; `None` when the row has none such.
    pub(super) fn next(&mut self, kind: Type) -> Option<Value<'r>> {
        let is_null = self.nulls.get(self.place / 8)? >> (self.place % 8) & 1 == 1;
        self.place += 1;
        if is_null {
            return self.take(kept(kind)).map(|_| Value::Null);
        }
        match kind {
            Type::Int => {
                let number = i32::from_le_bytes(self.take(4)?.try_into().ok()?);
                Some(Value::Int(number.into()))
            }
            Type::BigInt | Type::Timestamp => {
                Some(Value::Int(i64::from_le_bytes(self.take(8)?.try_into().ok()?)))
            }
            Type::Char(_) | Type::Varchar(_) => {
                let len = u16::from_le_bytes(self.take(2)?.try_into().ok()?);
                let text = std::str::from_utf8(self.take(usize::from(len))?).ok()?;
                let is_padded = matches!(kind, Type::Char(_));
                let text = if is_padded { text.trim_end_matches(' ') } else { text };
                Some(Value::Text(text.into()))
            }
        }
    }

    fn take(&mut self, len: usize) -> Option<&'r [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_workload::Random;

    use super::super::evaluate::order;
    use super::*;

    fn key(values: &[Value<'_>]) -> Vec<u8> {
        let mut key = Vec::new();
        for value in values {
            append_key(&mut key, value);
        }
        key
    }

    #[test]
    fn keys_have_the_bytes_of_the_table_above() {
        for (number, bytes) in [
            (0, &[128][..]),
            (1, &[129, 1]),
            (255, &[129, 255]),
            (256, &[130, 1, 0]),
            (-1, &[127]),
            (-256, &[126, 0]),
            (-257, &[125, 254, 255]),
        ] {
            assert_eq!(key(&[Value::Int(number)]), bytes, "{number}");
        }
        assert_eq!(key(&["a\0b".into(), Value::Null]), [160, b'a', 0, 255, b'b', 0, 0, 0]);
        assert_eq!(key(&[1.into(), 10.into(), 3000.into()]).len(), 7);
    }

    fn random(draw: &mut Random) -> Value<'static> {
        match draw.between(0, 9) {
            0 => Value::Null,
            1..=3 => Value::Int(draw.between(-3, 3).into()),
            4 => {
                let wide = i64::from(draw.between(i32::MIN, i32::MAX));
                Value::Int((wide << 32) ^ i64::from(draw.between(i32::MIN, i32::MAX)))
            }
            5 => Value::Int(1_i64.wrapping_shl(draw.between(0, 63).cast_unsigned()).wrapping_neg()),
            _ => {
                let letters = ["", "\0", "\x01", "a", "b", "ÿ", "a"];
                let len = draw.between(0, 4);
                let letter =
                    |draw: &mut Random| letters[draw.between(0, 6).cast_unsigned() as usize];
                Value::Text((0..len).map(|_| letter(draw)).collect::<String>().into())
            }
        }
    }

    #[test]
    fn the_order_of_keys_is_that_of_values_and_they_read_back() {
        let mut draw = Random::new(7, 0);
        for round in 0..20_000 {
            let mut tuple = || [(); 3].map(|()| random(&mut draw));
            let (one, other) = (tuple(), tuple());
            let expected = one.iter().zip(&other).map(|(one, other)| order(one, other));
            let expected = expected.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then);
            let (low, high) = (key(&one), key(&other));
            assert_eq!(low.cmp(&high), expected, "seed 7, round {round}: {one:?} and {other:?}");
            let mut rest = low.as_slice();
            for value in &one {
                let (read, after) = read_key(rest).unwrap();
                assert_eq!(&read, value);
                rest = after;
            }
            assert!(rest.is_empty());
            assert_eq!(skip_key(&low, 2).unwrap(), key(&one[2..]));
            let prefix = key(&one[..2]);
            let end = behind(prefix.clone()).unwrap();
            assert!(low < end && low >= prefix);
            assert_eq!(high < end && high >= prefix, one[..2] == other[..2], "round {round}");
        }
    }

    #[test]
    fn bytes_that_are_no_key_are_none() {
        for bytes in [&[][..], &[129], &[140, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1], &[160, 1], &[1]]
        {
            assert_eq!(read_key(bytes), None, "{bytes:?}");
        }
        assert_eq!(read_key(&[160, 255, 0, 0]), None, "not UTF-8");
        assert_eq!(behind(vec![255, 255]), None);
        assert_eq!(behind(vec![1, 255]), Some(vec![2]));
    }

    #[test]
    fn rows_read_back_and_have_their_length() {
        let columns = [
            Column::new("a", Type::Int),
            Column::nullable("b", Type::BigInt),
            Column::new("c", Type::Char(5)),
            Column::nullable("d", Type::Varchar(9)),
        ];
        let row = |values: &[Value<'_>; 4]| {
            let mut row = Vec::new();
            append_row(&mut row, columns.iter().zip(values));
            row
        };
        let full = [Value::Int(-7), Value::Int(1 << 40), "ab".into(), "x ".into()];
        let sparse = [Value::Int(7), Value::Null, "".into(), Value::Null];
        assert_eq!((row(&full).len(), row(&sparse).len()), (1 + 4 + 8 + 7 + 4, 1 + 4 + 8 + 7));
        for values in [full, sparse] {
            let bytes = row(&values);
            let mut reader = RowReader::new(&bytes, 4).unwrap();
            let read: Vec<_> = columns.iter().map(|of| reader.next(of.kind).unwrap()).collect();
            assert_eq!(read, values);
            let mut cut = RowReader::new(&bytes[..bytes.len() - 1], 4).unwrap();
            assert!(columns.iter().any(|column| cut.next(column.kind).is_none()));
        }
    }

    #[test]
    fn values_are_fitted_to_their_columns_or_refused() {
        let char = Column::new("c", Type::Char(3));
        assert_eq!(fit("ab  ".into(), &char).unwrap(), "ab".into());
        assert_eq!(fit("é é".into(), &char).unwrap(), "é é".into());
        let int = Column::new("i", Type::Int);
        for (value, column, code) in [
            ("abcd".into(), char, "22001"),
            (1.into(), char, "42804"),
            (Value::Int(1 << 31), int, "22003"),
            ("1".into(), int, "42804"),
        ] {
            assert_eq!(fit(value, &column).unwrap_err().code(), code);
        }
        let moment = Column::new("t", Type::Timestamp);
        assert_eq!(fit("1970-01-02 00:00:01".into(), &moment).unwrap(), 86_401_000_000_i64.into());
    }
}

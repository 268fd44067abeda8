//! Statements: SQL with `?` for each value, once for all databases.
//!
//! A statement is written in the SQL that PostgreSQL and MariaDB share. Where a database wants it
//! otherwise and a rule can say how, [`Dialect`] does it; where no rule can, the statement names
//! the exception beside it.
//!
//! | written | PostgreSQL, MariaDB, embedded | SQLite | Firebird |
//! | --- | --- | --- | --- |
//! | `.. FOR UPDATE` at the end | the same | left out: one writer at a time | `.. WITH LOCK` |
//! | `.. LIMIT 20` at the end, before it | the same | the same | `.. ROWS 20` |
//!
//! MariaDB at REPEATABLE READ, its default, reads without `FOR UPDATE` as of the transaction's
//! first such read, also a row that the transaction has locked. What is read to be written back is
//! read with it.
//!
//! MariaDB must run with `NO_BACKSLASH_ESCAPES` in its `sql_mode`, so that text is quoted alike.
//!
//! Limits: a `?` is a value wherever it stands, also in quotes, so a text with one must be a value.

use std::borrow::Cow;
use std::fmt;

use crate::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    Postgres,
    MariaDb,
    Sqlite,
    Firebird,
    /// The engine that Tidegate carries with it.
    Embedded,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    sql: Cow<'static, str>,
    exceptions: &'static [(Dialect, &'static str)],
}

impl Statement {
    /// A statement that all databases take, by the rules of this module.
    pub const fn new(sql: &'static str) -> Self {
        Statement { sql: Cow::Borrowed(sql), exceptions: &[] }
    }

    /// A statement whose text is made at run time.
    pub fn written(sql: String) -> Self {
        Statement { sql: Cow::Owned(sql), exceptions: &[] }
    }

    /// The same statement, but for these dialects in another text, with its values in the same
    /// order.
    pub const fn except(mut self, exceptions: &'static [(Dialect, &'static str)]) -> Self {
        self.exceptions = exceptions;
        self
    }

    /// The text for a dialect, with `?` for each value.
    pub fn sql(&self, dialect: Dialect) -> Cow<'_, str> {
        match self.exceptions.iter().find(|(of, _)| *of == dialect) {
            Some((_, sql)) => Cow::Borrowed(sql),
            None => dialect.translate(&self.sql),
        }
    }

    /// Appends the text for a dialect with the values in their places, for a database that is given
    /// text alone.
    ///
    /// # Panics
    /// If there is a place without a value.
    pub fn render(&self, dialect: Dialect, values: &[Value<'_>], out: &mut Vec<u8>) {
        let sql = self.sql(dialect);
        let mut values = values.iter();
        let mut pieces = sql.split('?');
        out.extend_from_slice(pieces.next().expect("split yields one piece at least").as_bytes());
        for piece in pieces {
            render_value(values.next().expect("each place has a value"), out);
            out.extend_from_slice(piece.as_bytes());
        }
    }
}

/// Appends a value as SQL's literal.
pub fn render_value(value: &Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"NULL"),
        Value::Int(number) => append(out, format_args!("{number}")),
        Value::Text(text) => {
            out.push(b'\'');
            for &byte in text.as_bytes() {
                if byte == b'\'' {
                    out.push(byte);
                }
                out.push(byte);
            }
            out.push(b'\'');
        }
    }
}

fn append(out: &mut Vec<u8>, text: fmt::Arguments<'_>) {
    use std::io::Write;
    // Writing to a Vec cannot fail.
    let _ = out.write_fmt(text);
}

const LOCK: &str = " FOR UPDATE";
const LIMIT: &str = " LIMIT ";

impl Dialect {
    fn translate(self, sql: &str) -> Cow<'_, str> {
        match self {
            Dialect::Postgres | Dialect::MariaDb | Dialect::Embedded => Cow::Borrowed(sql),
            Dialect::Sqlite => Cow::Borrowed(sql.strip_suffix(LOCK).unwrap_or(sql)),
            Dialect::Firebird => translate_to_firebird(sql),
        }
    }
}

fn translate_to_firebird(sql: &str) -> Cow<'_, str> {
    let (rest, lock) = match sql.strip_suffix(LOCK) {
        Some(rest) => (rest, " WITH LOCK"),
        None => (sql, ""),
    };
    match rest.rsplit_once(LIMIT) {
        Some((head, count)) if count.bytes().all(|byte| byte.is_ascii_digit() || byte == b'?') => {
            Cow::Owned(format!("{head} ROWS {count}{lock}"))
        }
        _ if lock.is_empty() => Cow::Borrowed(sql),
        _ => Cow::Owned(format!("{rest}{lock}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Dialect; 5] = [
        Dialect::Postgres,
        Dialect::MariaDb,
        Dialect::Sqlite,
        Dialect::Firebird,
        Dialect::Embedded,
    ];

    #[test]
    fn each_dialect_has_its_text() {
        const SQL: &str = "SELECT a FROM t WHERE b = ? ORDER BY a LIMIT 1 FOR UPDATE";
        let statement = Statement::new(SQL);
        let expected = [
            SQL,
            SQL,
            "SELECT a FROM t WHERE b = ? ORDER BY a LIMIT 1",
            "SELECT a FROM t WHERE b = ? ORDER BY a ROWS 1 WITH LOCK",
            SQL,
        ];
        assert_eq!(ALL.map(|dialect| statement.sql(dialect).into_owned()), expected);
        let locked = Statement::new("SELECT a FROM t FOR UPDATE");
        assert_eq!(locked.sql(Dialect::Firebird), "SELECT a FROM t WITH LOCK");
        let plain = Statement::new("UPDATE t SET a = 'x LIMIT y' WHERE b = 1");
        for dialect in ALL {
            assert_eq!(plain.sql(dialect), "UPDATE t SET a = 'x LIMIT y' WHERE b = 1");
        }
    }

    #[test]
    fn an_exception_is_for_its_dialect_alone() {
        let statement =
            Statement::new("SELECT 1").except(&[(Dialect::Firebird, "SELECT 1 FROM d")]);
        assert_eq!(statement.sql(Dialect::Firebird), "SELECT 1 FROM d");
        assert_eq!(statement.sql(Dialect::Sqlite), "SELECT 1");
    }

    #[test]
    fn values_take_their_places_quoted() {
        let statement = Statement::new("INSERT INTO t VALUES (?, ?, ?)");
        let mut out = Vec::new();
        let values = [Value::Int(-3), "it's ? \\ here".into(), Value::Null];
        statement.render(Dialect::Postgres, &values, &mut out);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "INSERT INTO t VALUES (-3, 'it''s ? \\ here', NULL)");
    }
}

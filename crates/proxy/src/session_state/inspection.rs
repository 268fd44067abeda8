//! The query that asks a server session for its state, and its answer.
//!
//! The query runs with whatever the client has set up: it names every function, table and operator
//! by its schema, needs no right beyond those of PUBLIC, and gives values as hexadecimal digits of
//! UTF-8, so that no encoding changes them. Each part of it asks about one [`Kind`], and only what
//! was noticed is asked about: `pg_settings` and `pg_locks` are the costly ones. It fails if the
//! client has set a very short `statement_timeout`; the client is pinned then.
//!
//! Rows have three columns: the kind (a letter), a name, a value.

use std::fmt::Write;

use tidegate_wire::backend;

use super::{Due, Kind, Kinds};
use crate::settings;

/// What an inspection has found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    /// What is there, settings that follow aside.
    pub(crate) kinds: Kinds,
    /// Settings that differ from what the connection began with: names and values.
    pub(crate) settings: Vec<(String, String)>,
    /// The same for those that only superusers may change.
    pub(crate) fixed: Vec<(String, String)>,
    /// What was asked.
    pub(crate) due: Due,
    /// How often it was asked before, without an answer.
    pub(crate) failures: u32,
}

/// Settings of a transaction, and one whose value the server does not tell.
const NOT_OF_SESSION: &str =
    "'transaction_isolation', 'transaction_read_only', 'transaction_deferrable', 'seed'";

const SETTINGS: &str = "SELECT CASE context WHEN 'user' THEN 's' ELSE 'f' END, name, \
    pg_catalog.encode(pg_catalog.convert_to(setting, 'UTF8'), 'hex') \
    FROM pg_catalog.pg_settings WHERE source OPERATOR(pg_catalog.=) 'session' \
    AND name OPERATOR(pg_catalog.<>) ALL (ARRAY[";

/// Each is a row if there is one of its kind.
const OTHERS: [(Kind, &str, &str); 5] = [
    (
        Kind::Temporary,
        "t",
        "pg_catalog.pg_depend WHERE refclassid OPERATOR(pg_catalog.=) '2615'::pg_catalog.oid \
         AND refobjid OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema() \
         AND deptype OPERATOR(pg_catalog.=) 'n'",
    ),
    (Kind::Prepared, "p", "pg_catalog.pg_prepared_statements WHERE from_sql"),
    (
        Kind::AdvisoryLock,
        "a",
        "pg_catalog.pg_locks WHERE locktype OPERATOR(pg_catalog.=) 'advisory' \
         AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()",
    ),
    (Kind::Listen, "l", "pg_catalog.pg_listening_channels()"),
    (Kind::Cursor, "c", "pg_catalog.pg_cursors WHERE is_holdable"),
];

/// Returns the query that asks about these kinds, and for the custom settings of these names.
pub(crate) fn query<'a>(asked: Kinds, custom: impl Iterator<Item = &'a str>) -> String {
    // Its first columns make the others text.
    let mut sql = String::from("SELECT 'i'::pg_catalog.text, ''::pg_catalog.text, NULL");
    let union = " UNION ALL ";
    if asked.contains(Kind::Settings) {
        sql.push_str(union);
        sql.push_str(SETTINGS);
        sql.push_str(NOT_OF_SESSION);
        sql.push_str("]::pg_catalog.text[])");
        // The server lists neither these nor custom settings.
        for name in ["role", "session_authorization"].into_iter().chain(custom) {
            debug_assert!(settings::is_name(name), "a name is no SQL");
            push_current(&mut sql, union, name);
        }
    }
    for (kind, letter, source) in OTHERS {
        if asked.contains(kind) {
            write_part(&mut sql, union, letter, source);
        }
    }
    sql
}

fn push_current(sql: &mut String, union: &str, name: &str) {
    let current = format!("pg_catalog.current_setting('{name}', true)");
    let written = write!(
        sql,
        "{union}SELECT 's', '{name}', \
         pg_catalog.encode(pg_catalog.convert_to({current}, 'UTF8'), 'hex') \
         WHERE {current} IS NOT NULL"
    );
    debug_assert!(written.is_ok(), "a String takes everything");
}

fn write_part(sql: &mut String, union: &str, letter: &str, source: &str) {
    let written =
        write!(sql, "{union}SELECT '{letter}', NULL, NULL WHERE EXISTS (SELECT FROM {source})");
    debug_assert!(written.is_ok(), "a String takes everything");
}

impl Findings {
    /// Begins an inspection, or begins it again after so many failures.
    pub(crate) fn new(due: Due, failures: u32) -> Findings {
        Findings { kinds: due.unseen, due, failures, ..Findings::default() }
    }

    /// Takes a row, the payload of a `DataRow`. A row that cannot be read counts as something that
    /// could not be inspected.
    pub(crate) fn row(&mut self, payload: &[u8]) {
        if self.read(payload).is_none() {
            self.kinds = self.kinds.with(Kind::Unknown);
        }
    }

    fn read(&mut self, payload: &[u8]) -> Option<()> {
        let mut columns = backend::data_row(payload).ok()?;
        let (kind, name, value) = (columns.next()??, columns.next()?, columns.next()?);
        let kind = match kind {
            b"i" => return Some(()),
            b"s" | b"f" => return self.setting(kind, name?, value?),
            other => OTHERS.iter().find(|(_, letter, _)| letter.as_bytes() == other)?.0,
        };
        self.kinds = self.kinds.with(kind);
        Some(())
    }

    fn setting(&mut self, kind: &[u8], name: &[u8], value: &[u8]) -> Option<()> {
        let name = std::str::from_utf8(name).ok().filter(|name| settings::is_name(name));
        let Some(name) = name else {
            self.kinds = self.kinds.with(Kind::FixedSetting);
            return Some(());
        };
        let value = String::from_utf8(from_hex(value)?).ok()?;
        if kind == b"f" {
            self.fixed.push((name.to_owned(), value));
        } else if name != "role" || value != "none" {
            self.settings.push((name.to_owned(), value));
        }
        Some(())
    }
}

/// Returns the bytes that pairs of hexadecimal digits stand for.
fn from_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|it| u8::try_from(it).ok());
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(columns: [Option<&str>; 3]) -> Vec<u8> {
        let mut payload = vec![0, 3];
        for column in columns {
            let length = column.map_or(-1, |text| i32::try_from(text.len()).unwrap());
            payload.extend_from_slice(&length.to_be_bytes());
            payload.extend_from_slice(column.unwrap_or_default().as_bytes());
        }
        payload
    }

    #[test]
    fn only_what_was_noticed_is_asked_about() {
        let sql = query(Kinds::of(Kind::Temporary), std::iter::once("app.tenant"));
        assert!(sql.contains("pg_my_temp_schema") && !sql.contains("pg_settings"), "{sql}");
        let sql = query(Kinds::INSPECTED, std::iter::once("app.tenant"));
        for part in ["pg_settings", "app.tenant", "pg_listening_channels", "pg_cursors"] {
            assert!(sql.contains(part), "{part}: {sql}");
        }
    }

    #[test]
    fn rows_are_settings_or_reasons_to_pin() {
        let due = Due { asked: Kinds::INSPECTED, unseen: Kinds::of(Kind::Backend) };
        let mut findings = Findings::new(due, 0);
        for columns in [
            [Some("i"), Some(""), None],
            [Some("s"), Some("app.tenant"), Some("c3a9")],
            [Some("s"), Some("role"), Some("6e6f6e65")],
            [Some("f"), Some("log_statement"), Some("616c6c")],
            [Some("t"), None, None],
        ] {
            findings.row(&row(columns));
        }
        assert_eq!(findings.settings, [("app.tenant".to_owned(), "é".to_owned())]);
        assert_eq!(findings.fixed, [("log_statement".to_owned(), "all".to_owned())]);
        assert_eq!(findings.kinds, Kinds::of(Kind::Backend).with(Kind::Temporary));
        findings.row(&row([Some("s"), Some("work_mem"), Some("7")]));
        assert!(findings.kinds.contains(Kind::Unknown), "half a byte");
    }
}

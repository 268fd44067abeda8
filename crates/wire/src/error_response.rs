//! `ErrorResponse` and `NoticeResponse`: fields told apart by a type byte.

use crate::cursor::Cursor;
use crate::{backend, frame};

/// A five-character error code, PostgreSQL documentation appendix A.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqlState<'a>(pub &'a str);

impl SqlState<'static> {
    /// `connection_failure`: the database could not be reached or went away.
    pub const CONNECTION_FAILURE: SqlState<'static> = SqlState("08006");
    /// `protocol_violation`.
    pub const PROTOCOL_VIOLATION: SqlState<'static> = SqlState("08P01");
    /// `invalid_authorization_specification`.
    pub const INVALID_AUTHORIZATION: SqlState<'static> = SqlState("28000");
    /// `invalid_password`.
    pub const INVALID_PASSWORD: SqlState<'static> = SqlState("28P01");
    /// `invalid_sql_statement_name`: no such prepared statement.
    pub const INVALID_STATEMENT_NAME: SqlState<'static> = SqlState("26000");
    /// `duplicate_prepared_statement`.
    pub const DUPLICATE_STATEMENT: SqlState<'static> = SqlState("42P05");
    /// `invalid_catalog_name`: no such database.
    pub const INVALID_CATALOG_NAME: SqlState<'static> = SqlState("3D000");
    /// `too_many_connections`: the queue is full.
    pub const TOO_MANY_CONNECTIONS: SqlState<'static> = SqlState("53300");
    /// `configuration_limit_exceeded`.
    pub const CONFIGURATION_LIMIT: SqlState<'static> = SqlState("53400");
    /// `config_file_error`.
    pub const CONFIG_FILE_ERROR: SqlState<'static> = SqlState("F0000");
    /// `query_canceled`: by a cancel request or by a deadline.
    pub const QUERY_CANCELED: SqlState<'static> = SqlState("57014");
    /// `admin_shutdown`.
    pub const ADMIN_SHUTDOWN: SqlState<'static> = SqlState("57P01");
    /// `idle_in_transaction_session_timeout`.
    pub const IDLE_IN_TRANSACTION: SqlState<'static> = SqlState("25P03");
    /// `invalid_parameter_value`.
    pub const INVALID_PARAMETER_VALUE: SqlState<'static> = SqlState("22023");
    /// `transaction_timeout`.
    pub const TRANSACTION_TIMEOUT: SqlState<'static> = SqlState("25P04");
    /// `idle_session_timeout`.
    pub const IDLE_SESSION: SqlState<'static> = SqlState("57P05");
    /// `warning`.
    pub const WARNING: SqlState<'static> = SqlState("01000");
    /// `cannot_connect_now`.
    pub const CANNOT_CONNECT_NOW: SqlState<'static> = SqlState("57P03");
    /// `insufficient_privilege`.
    pub const INSUFFICIENT_PRIVILEGE: SqlState<'static> = SqlState("42501");
    /// `syntax_error`.
    pub const SYNTAX_ERROR: SqlState<'static> = SqlState("42601");
    /// `invalid_cursor_name`.
    pub const INVALID_CURSOR_NAME: SqlState<'static> = SqlState("34000");
    /// `object_not_in_prerequisite_state`.
    pub const NOT_IN_PREREQUISITE_STATE: SqlState<'static> = SqlState("55000");
    /// `feature_not_supported`.
    pub const FEATURE_NOT_SUPPORTED: SqlState<'static> = SqlState("0A000");
}

/// How grave an error is for the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The command failed.
    Error,
    /// The connection ends.
    Fatal,
}

/// Appends an `ErrorResponse`.
pub fn encode_error(out: &mut Vec<u8>, severity: Severity, code: SqlState<'_>, message: &str) {
    let severity = match severity {
        Severity::Error => "ERROR",
        Severity::Fatal => "FATAL",
    };
    frame::message(out, backend::tag::ERROR, |out| {
        for (field, text) in [(b'S', severity), (b'V', severity), (b'C', code.0), (b'M', message)] {
            out.push(field);
            frame::string(out, text.as_bytes());
        }
        out.push(0);
    });
}

/// Appends an `ErrorResponse` of the code `feature_not_supported`, with a hint at what to do.
pub fn encode_refusal(out: &mut Vec<u8>, message: &str, hint: &str) {
    let code = SqlState::FEATURE_NOT_SUPPORTED;
    encode_with_hint(out, (backend::tag::ERROR, "ERROR"), code, message, hint);
}

/// Appends a `NoticeResponse` of the severity WARNING, with a hint at what to do.
pub fn encode_warning(out: &mut Vec<u8>, code: SqlState<'_>, message: &str, hint: &str) {
    encode_with_hint(out, (backend::tag::NOTICE, "WARNING"), code, message, hint);
}

/// Appends a `NoticeResponse` of the severity NOTICE, with a detail unless that is empty.
pub fn encode_notice(out: &mut Vec<u8>, message: &str, detail: &str) {
    frame::message(out, backend::tag::NOTICE, |out| {
        let fields =
            [(b'S', "NOTICE"), (b'V', "NOTICE"), (b'C', "00000"), (b'M', message), (b'D', detail)];
        for (field, text) in fields.into_iter().filter(|(_, text)| !text.is_empty()) {
            out.push(field);
            frame::string(out, text.as_bytes());
        }
        out.push(0);
    });
}

fn encode_with_hint(
    out: &mut Vec<u8>,
    (tag, severity): (u8, &str),
    code: SqlState<'_>,
    message: &str,
    hint: &str,
) {
    frame::message(out, tag, |out| {
        let fields =
            [(b'S', severity), (b'V', severity), (b'C', code.0), (b'M', message), (b'H', hint)];
        for (field, text) in fields {
            out.push(field);
            frame::string(out, text.as_bytes());
        }
        out.push(0);
    });
}

/// Returns the fields of an `ErrorResponse` or `NoticeResponse` payload as pairs of type and text;
/// ends early where the payload is cut short.
pub fn fields(payload: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut cursor = Cursor::new("ErrorResponse", payload);
    std::iter::from_fn(move || match cursor.byte("field type").ok()? {
        0 => None,
        field => Some((field, cursor.string("field").ok()?)),
    })
    .fuse()
}

/// Returns the text of one field, such as `b'C'` (the code) or `b'M'` (the message); empty when
/// absent.
#[must_use]
pub fn field(payload: &[u8], wanted: u8) -> String {
    fields(payload)
        .find(|(field, _)| *field == wanted)
        .map(|(_, text)| String::from_utf8_lossy(text).into_owned())
        .unwrap_or_default()
}

//! Messages from the server to the client.

use crate::cursor::{Cursor, Malformed};
use crate::frame;
use crate::startup::CancelKey;

/// Message types a server sends.
pub mod tag {
    /// Authentication requests, told apart by a code.
    pub const AUTHENTICATION: u8 = b'R';
    /// `BackendKeyData`.
    pub const BACKEND_KEY_DATA: u8 = b'K';
    /// `BindComplete`.
    pub const BIND_COMPLETE: u8 = b'2';
    /// `CloseComplete`.
    pub const CLOSE_COMPLETE: u8 = b'3';
    /// `CommandComplete`, with the command tag.
    pub const COMMAND_COMPLETE: u8 = b'C';
    /// `CopyBothResponse`, of streaming replication.
    pub const COPY_BOTH: u8 = b'W';
    /// `CopyInResponse`: the server waits for `CopyData`.
    pub const COPY_IN: u8 = b'G';
    /// `CopyOutResponse`.
    pub const COPY_OUT: u8 = b'H';
    /// `DataRow`.
    pub const DATA_ROW: u8 = b'D';
    /// `EmptyQueryResponse`.
    pub const EMPTY_QUERY: u8 = b'I';
    /// `ErrorResponse`.
    pub const ERROR: u8 = b'E';
    /// `NoData`: what was described returns no rows.
    pub const NO_DATA: u8 = b'n';
    /// `NoticeResponse`; may come at any time.
    pub const NOTICE: u8 = b'N';
    /// `NotificationResponse`; may come at any time.
    pub const NOTIFICATION: u8 = b'A';
    /// `NegotiateProtocolVersion`.
    pub const NEGOTIATE_PROTOCOL: u8 = b'v';
    /// `ParameterDescription`.
    pub const PARAMETER_DESCRIPTION: u8 = b't';
    /// `ParameterStatus`; may come at any time.
    pub const PARAMETER_STATUS: u8 = b'S';
    /// `ParseComplete`.
    pub const PARSE_COMPLETE: u8 = b'1';
    /// `PortalSuspended`: Execute reached its row limit.
    pub const PORTAL_SUSPENDED: u8 = b's';
    /// `ReadyForQuery`, with the transaction status.
    pub const READY_FOR_QUERY: u8 = b'Z';
    /// `RowDescription`.
    pub const ROW_DESCRIPTION: u8 = b'T';
}

/// A `ParseComplete` message.
pub const PARSE_COMPLETE: &[u8] = b"1\0\0\0\x04";

/// A `BindComplete` message.
pub const BIND_COMPLETE: &[u8] = b"2\0\0\0\x04";

/// A `CloseComplete` message.
pub const CLOSE_COMPLETE: &[u8] = b"3\0\0\0\x04";

/// The transaction status that `ReadyForQuery` reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionStatus {
    /// No transaction is open.
    Idle,
    /// A transaction block is open.
    InBlock,
    /// A transaction block is open and has failed: everything but its end is refused.
    Failed,
}

impl TransactionStatus {
    fn code(self) -> u8 {
        match self {
            TransactionStatus::Idle => b'I',
            TransactionStatus::InBlock => b'T',
            TransactionStatus::Failed => b'E',
        }
    }
}

/// Reads a `ReadyForQuery` payload.
///
/// # Errors
/// The status is missing or unknown.
pub fn ready_for_query(payload: &[u8]) -> Result<TransactionStatus, Malformed> {
    let mut cursor = Cursor::new("ReadyForQuery", payload);
    match cursor.byte("transaction status")? {
        b'I' => Ok(TransactionStatus::Idle),
        b'T' => Ok(TransactionStatus::InBlock),
        b'E' => Ok(TransactionStatus::Failed),
        _ => cursor.fail("transaction status"),
    }
}

/// Reads a `ParameterStatus` payload: name and value.
///
/// # Errors
/// A string is cut short.
pub fn parameter_status(payload: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let mut cursor = Cursor::new("ParameterStatus", payload);
    let name = cursor.string("name")?;
    Ok((name, cursor.string("value")?))
}

/// Reads a `BackendKeyData` payload.
///
/// # Errors
/// The process number is cut short, or the secret key is too short or too long.
pub fn backend_key_data(payload: &[u8]) -> Result<CancelKey, Malformed> {
    CancelKey::read(&mut Cursor::new("BackendKeyData", payload))
}

/// Reads a `CommandComplete` payload: the command tag, such as `INSERT 0 1`.
///
/// # Errors
/// The string is cut short.
pub fn command_complete(payload: &[u8]) -> Result<&[u8], Malformed> {
    Cursor::new("CommandComplete", payload).string("command tag")
}

/// Returns the columns of a `DataRow` payload; `None` is NULL. Ends early where the payload is cut
/// short or a length is negative and not NULL's -1.
///
/// # Errors
/// The column count is missing.
pub fn data_row(payload: &[u8]) -> Result<impl Iterator<Item = Option<&[u8]>>, Malformed> {
    let mut cursor = Cursor::new("DataRow", payload);
    let columns = cursor.uint16("number of columns")?;
    Ok((0..columns).map_while(move |_| cursor.counted("column").ok()).fuse())
}

/// Appends an `ErrorResponse` with this payload.
pub fn encode_error_payload(out: &mut Vec<u8>, payload: &[u8]) {
    frame::message(out, tag::ERROR, |out| out.extend_from_slice(payload));
}

/// The type of a column, of those that the proxy's own results have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// `text`.
    Text,
    /// `int4`.
    Int4,
    /// `int8`.
    Int8,
    /// `numeric`.
    Numeric,
}

impl ColumnType {
    /// Returns the type's object identifier and its length in bytes, -1 where that varies.
    fn described(self) -> (u32, i16) {
        match self {
            ColumnType::Text => (25, -1),
            ColumnType::Int4 => (23, 4),
            ColumnType::Int8 => (20, 8),
            ColumnType::Numeric => (1700, -1),
        }
    }
}

/// Appends a `RowDescription` of columns in text format that belong to no table.
///
/// # Panics
/// There are more than 65,535 columns.
pub fn encode_row_description<'a>(
    out: &mut Vec<u8>,
    columns: impl ExactSizeIterator<Item = (&'a str, ColumnType)>,
) {
    frame::message(out, tag::ROW_DESCRIPTION, |out| {
        let count = u16::try_from(columns.len()).expect("at most 65,535 columns");
        out.extend_from_slice(&count.to_be_bytes());
        for (name, of) in columns {
            frame::string(out, name.as_bytes());
            let (oid, length) = of.described();
            // Neither table nor column of a table.
            out.extend_from_slice(&[0; 6]);
            out.extend_from_slice(&oid.to_be_bytes());
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(&(-1_i32).to_be_bytes());
            out.extend_from_slice(&0_i16.to_be_bytes());
        }
    });
}

/// Appends a `DataRow` of texts; absent is NULL.
///
/// # Panics
/// There are more than 65,535 columns.
pub fn encode_data_row<'a>(
    out: &mut Vec<u8>,
    values: impl ExactSizeIterator<Item = Option<&'a str>>,
) {
    frame::message(out, tag::DATA_ROW, |out| {
        let count = u16::try_from(values.len()).expect("at most 65,535 columns");
        out.extend_from_slice(&count.to_be_bytes());
        for value in values {
            match value {
                Some(text) => frame::counted(out, text.as_bytes()),
                None => out.extend_from_slice(&(-1_i32).to_be_bytes()),
            }
        }
    });
}

/// Appends a `CommandComplete` with this command tag.
pub fn encode_command_complete(out: &mut Vec<u8>, command: &[u8]) {
    frame::message(out, tag::COMMAND_COMPLETE, |out| frame::string(out, command));
}

/// Appends an `EmptyQueryResponse`.
pub fn encode_empty_query(out: &mut Vec<u8>) {
    frame::message(out, tag::EMPTY_QUERY, |_| ());
}

/// Appends a `ParameterDescription` of a statement without parameters.
pub fn encode_no_parameters(out: &mut Vec<u8>) {
    frame::message(out, tag::PARAMETER_DESCRIPTION, |out| out.extend_from_slice(&[0; 2]));
}

/// Appends a `NoData`.
pub fn encode_no_data(out: &mut Vec<u8>) {
    frame::message(out, tag::NO_DATA, |_| ());
}

/// Appends a `ReadyForQuery`.
pub fn encode_ready_for_query(out: &mut Vec<u8>, status: TransactionStatus) {
    frame::message(out, tag::READY_FOR_QUERY, |out| out.push(status.code()));
}

/// Appends a `ParameterStatus`.
pub fn encode_parameter_status(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    frame::message(out, tag::PARAMETER_STATUS, |out| {
        frame::string(out, name);
        frame::string(out, value);
    });
}

/// Appends a `BackendKeyData`.
pub fn encode_backend_key_data(out: &mut Vec<u8>, key: &CancelKey) {
    frame::message(out, tag::BACKEND_KEY_DATA, |out| key.write(out));
}

/// Appends a `NegotiateProtocolVersion`: this version is spoken, and these options are not known.
///
/// # Panics
/// There are 2^32 options or more, which no start-up packet holds.
pub fn encode_negotiate_protocol<'a>(
    out: &mut Vec<u8>,
    version: u32,
    unknown: impl ExactSizeIterator<Item = &'a [u8]>,
) {
    frame::message(out, tag::NEGOTIATE_PROTOCOL, |out| {
        out.extend_from_slice(&version.to_be_bytes());
        let count = u32::try_from(unknown.len()).expect("the options of one start-up packet");
        out.extend_from_slice(&count.to_be_bytes());
        for option in unknown {
            frame::string(out, option);
        }
    });
}

//! Answers to a command: OK, error, and rows as text.

use crate::cursor::{Cursor, Malformed};

/// First bytes of a message from the server.
pub(super) mod header {
    pub(in crate::mysql) const OK: u8 = 0x00;
    pub(in crate::mysql) const MORE: u8 = 0x01;
    pub(in crate::mysql) const EOF: u8 = 0xfe;
    pub(in crate::mysql) const ERROR: u8 = 0xff;
}

/// The server's state behind a statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status(pub u16);

impl Status {
    /// Returns whether a transaction is open.
    #[must_use]
    pub fn in_transaction(self) -> bool {
        self.0 & 0x0001 != 0
    }

    /// Returns whether another answer to the same command follows.
    #[must_use]
    pub fn more_results(self) -> bool {
        self.0 & 0x0008 != 0
    }

    /// Returns whether a backslash within quotes is a character like others.
    #[must_use]
    pub fn no_backslash_escapes(self) -> bool {
        self.0 & 0x0200 != 0
    }
}

/// That a statement was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OkPacket {
    /// Rows changed, or found to be changed where the client wants that; 0 behind rows.
    pub affected: u64,
    /// The state behind it.
    pub status: Status,
}

/// That a statement, or the login, failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorPacket<'a> {
    /// The server's number of the error.
    pub code: u16,
    /// The SQLSTATE, five characters; `HY000`, the general one, where the server gives none.
    pub state: &'a [u8],
    /// The server's words.
    pub message: &'a [u8],
}

/// The first message of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// It is done.
    Ok(OkPacket),
    /// It failed.
    Error(ErrorPacket<'a>),
    /// So many definitions of columns follow, then rows.
    Columns(u64),
}

/// One of the messages behind the definitions.
#[derive(Clone, Debug)]
pub enum RowOrEnd<'a> {
    /// A row.
    Row(TextRow<'a>),
    /// All rows have come.
    End(OkPacket),
    /// No more rows will come.
    Error(ErrorPacket<'a>),
}

/// Reads the first message of an answer.
///
/// # Errors
/// It is none of the three. A server that wants to be sent a file is refused so, too.
pub fn answer(payload: &[u8]) -> Result<Answer<'_>, Malformed> {
    match payload.first() {
        Some(&header::OK) => ok(payload).map(Answer::Ok),
        Some(&header::ERROR) => error(payload).map(Answer::Error),
        _ => {
            let mut cursor = Cursor::new("column count", payload);
            let columns = cursor.some_number("number of columns")?;
            cursor.end("end")?;
            Ok(Answer::Columns(columns))
        }
    }
}

/// Returns whether a message is the old EOF. A row may begin with the same byte, but is longer
/// then.
#[must_use]
pub fn is_eof(payload: &[u8]) -> bool {
    payload.first() == Some(&header::EOF) && payload.len() < 9
}

/// Reads a message behind the definitions of `columns` columns, from a server that was asked to
/// put an OK in place of EOF, or was not.
///
/// # Errors
/// It is not of the form prescribed, or a row of another number of columns.
#[inline]
pub fn row_or_end(
    payload: &[u8],
    columns: u64,
    deprecates_eof: bool,
) -> Result<RowOrEnd<'_>, Malformed> {
    match payload.first() {
        Some(&header::ERROR) => error(payload).map(RowOrEnd::Error),
        // A row that begins so has a first value of 16 MiB or more.
        Some(&header::EOF) if deprecates_eof && payload.len() < super::packet::PACKET_LEN_MAX => {
            ok(payload).map(RowOrEnd::End)
        }
        _ if !deprecates_eof && is_eof(payload) => eof(payload).map(RowOrEnd::End),
        _ => TextRow::read(payload, columns).map(RowOrEnd::Row),
    }
}

/// Reads an OK packet, also one in EOF's place.
pub(super) fn ok(payload: &[u8]) -> Result<OkPacket, Malformed> {
    let mut cursor = Cursor::new("OK", payload);
    cursor.byte("header")?;
    let affected = cursor.some_number("affected rows")?;
    cursor.some_number("last insert id")?;
    let status = Status(cursor.uint16_le("status")?);
    cursor.uint16_le("warnings")?;
    Ok(OkPacket { affected, status })
}

fn eof(payload: &[u8]) -> Result<OkPacket, Malformed> {
    let mut cursor = Cursor::new("EOF", payload);
    cursor.byte("header")?;
    cursor.uint16_le("warnings")?;
    Ok(OkPacket { affected: 0, status: Status(cursor.uint16_le("status")?) })
}

/// Reads an ERR packet. One that comes before the login has no SQLSTATE.
///
/// # Errors
/// It is cut short, or another packet.
pub fn error(payload: &[u8]) -> Result<ErrorPacket<'_>, Malformed> {
    let mut cursor = Cursor::new("ERR", payload);
    if cursor.byte("header")? != header::ERROR {
        return cursor.fail("header");
    }
    let code = cursor.uint16_le("code")?;
    let state = if cursor.rest().first() == Some(&b'#') {
        &cursor.bytes(6, "SQLSTATE")?[1..]
    } else {
        b"HY000"
    };
    Ok(ErrorPacket { code, state, message: cursor.rest() })
}

/// A row whose values come as text; `None` is NULL. It was read to its end when it was made, so
/// going through it cannot fail.
#[derive(Clone)]
pub struct TextRow<'a> {
    cursor: Cursor<'a>,
    columns: usize,
}

impl<'a> TextRow<'a> {
    fn read(payload: &'a [u8], columns: u64) -> Result<Self, Malformed> {
        let cursor = Cursor::new("row", payload);
        let Ok(count) = usize::try_from(columns) else {
            return cursor.fail("number of columns");
        };
        let mut rest = cursor;
        for _ in 0..count {
            rest.value("column")?;
        }
        rest.end("end")?;
        Ok(TextRow { cursor, columns: count })
    }
}

impl<'a> Iterator for TextRow<'a> {
    type Item = Option<&'a [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        self.columns = self.columns.checked_sub(1)?;
        self.cursor.value("column").ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.columns, Some(self.columns))
    }
}

impl ExactSizeIterator for TextRow<'_> {}

impl std::fmt::Debug for TextRow<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.clone().map(|value| value.map(String::from_utf8_lossy)))
            .finish()
    }
}

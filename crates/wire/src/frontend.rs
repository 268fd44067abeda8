//! Messages from the client to the server.

use crate::cursor::{Cursor, Malformed};
use crate::frame;

/// Message types a client sends.
pub mod tag {
    /// Bind: a statement and parameters become a portal.
    pub const BIND: u8 = b'B';
    /// Close a statement or a portal.
    pub const CLOSE: u8 = b'C';
    /// `CopyData`, either direction.
    pub const COPY_DATA: u8 = b'd';
    /// `CopyDone`, either direction.
    pub const COPY_DONE: u8 = b'c';
    /// `CopyFail`: the client gives up a COPY FROM STDIN.
    pub const COPY_FAIL: u8 = b'f';
    /// Describe a statement or a portal.
    pub const DESCRIBE: u8 = b'D';
    /// Execute a portal.
    pub const EXECUTE: u8 = b'E';
    /// Flush what the server has ready.
    pub const FLUSH: u8 = b'H';
    /// `FunctionCall`, the fast path of old.
    pub const FUNCTION_CALL: u8 = b'F';
    /// Parse: a query text becomes a prepared statement.
    pub const PARSE: u8 = b'P';
    /// Password, SASL and GSSAPI responses share one type.
    pub const PASSWORD: u8 = b'p';
    /// Simple query.
    pub const QUERY: u8 = b'Q';
    /// Sync: end of an extended-query batch.
    pub const SYNC: u8 = b'S';
    /// Terminate.
    pub const TERMINATE: u8 = b'X';
}

/// A Sync message.
pub const SYNC: &[u8] = b"S\0\0\0\x04";

/// A Terminate message.
pub const TERMINATE: &[u8] = b"X\0\0\0\x04";

/// What Describe and Close point at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A prepared statement.
    Statement,
    /// A portal.
    Portal,
}

impl Target {
    fn code(self) -> u8 {
        match self {
            Target::Statement => b'S',
            Target::Portal => b'P',
        }
    }
}

/// A Parse message's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parse<'a> {
    /// The statement's name; empty for the unnamed one.
    pub name: &'a [u8],
    /// All that follows the name: query text, its zero, parameter types. Two Parses with the same
    /// definition prepare the same statement.
    pub definition: &'a [u8],
}

/// Reads a Parse payload.
///
/// # Errors
/// A field is cut short.
pub fn parse(payload: &[u8]) -> Result<Parse<'_>, Malformed> {
    let mut cursor = Cursor::new("Parse", payload);
    let name = cursor.string("statement name")?;
    let definition = cursor.rest();
    cursor.string("query")?;
    let types = cursor.uint16("number of parameter types")?;
    cursor.bytes(usize::from(types) * 4, "parameter types")?;
    Ok(Parse { name, definition })
}

/// Reads the name at the head of a Parse payload; the rest of the payload may still be missing.
///
/// # Errors
/// The name is not ended within `payload`.
pub fn statement_name(payload: &[u8]) -> Result<&[u8], Malformed> {
    Cursor::new("Parse", payload).string("statement name")
}

/// The names at the head of a Bind message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindNames<'a> {
    /// The portal to make; empty for the unnamed one.
    pub portal: &'a [u8],
    /// The statement to bind; empty for the unnamed one.
    pub statement: &'a [u8],
}

impl BindNames<'_> {
    /// Bytes the two names take in the payload, terminators included.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        self.portal.len() + self.statement.len() + 2
    }
}

/// Reads the names of a Bind payload; the rest of the payload may still be missing.
///
/// # Errors
/// A name is not ended within `payload`.
pub fn bind_names(payload: &[u8]) -> Result<BindNames<'_>, Malformed> {
    let mut cursor = Cursor::new("Bind", payload);
    let portal = cursor.string("portal name")?;
    Ok(BindNames { portal, statement: cursor.string("statement name")? })
}

/// Returns whether a Bind asks for a result column in binary format.
///
/// # Errors
/// The payload is cut short.
pub fn asks_for_binary(payload: &[u8]) -> Result<bool, Malformed> {
    let mut cursor = Cursor::new("Bind", payload);
    cursor.string("portal name")?;
    cursor.string("statement name")?;
    for _ in 0..cursor.uint16("count")? {
        cursor.array::<2>("parameter format")?;
    }
    for _ in 0..cursor.uint16("count")? {
        cursor.counted("parameter")?;
    }
    let mut is_binary = false;
    for _ in 0..cursor.uint16("count")? {
        is_binary |= cursor.array::<2>("result format")? != [0, 0];
    }
    Ok(is_binary)
}

/// Reads a Describe or Close payload.
///
/// # Errors
/// The kind is neither `S` nor `P`, or the name is cut short.
pub fn target(payload: &[u8]) -> Result<(Target, &[u8]), Malformed> {
    let mut cursor = Cursor::new("Describe or Close", payload);
    let target = match cursor.byte("kind")? {
        b'S' => Target::Statement,
        b'P' => Target::Portal,
        _ => return cursor.fail("kind"),
    };
    Ok((target, cursor.string("name")?))
}

/// Appends a simple Query.
pub fn encode_query(out: &mut Vec<u8>, text: &[u8]) {
    frame::message(out, tag::QUERY, |out| frame::string(out, text));
}

/// Appends a Parse made of a name and a definition as [`Parse::definition`] holds it.
pub fn encode_parse(out: &mut Vec<u8>, name: &[u8], definition: &[u8]) {
    frame::message(out, tag::PARSE, |out| {
        frame::string(out, name);
        out.extend_from_slice(definition);
    });
}

/// Appends the head of a Parse whose payload after the name has `rest_len` bytes; the caller sends
/// those itself.
///
/// # Panics
/// The message would be 4 GiB long or longer.
pub fn encode_parse_head(out: &mut Vec<u8>, name: &[u8], rest_len: usize) {
    out.push(tag::PARSE);
    let length = 4 + name.len() + 1 + rest_len;
    let length = u32::try_from(length).expect("a message is shorter than 4 GiB");
    out.extend_from_slice(&length.to_be_bytes());
    frame::string(out, name);
}

/// Returns a Parse definition: a query text whose parameter types the server infers.
#[must_use]
pub fn definition(query: &[u8]) -> Vec<u8> {
    let mut definition = Vec::with_capacity(query.len() + 3);
    frame::string(&mut definition, query);
    definition.extend_from_slice(&0_i16.to_be_bytes());
    definition
}

/// Appends the head of a Bind whose payload after the names has `rest_len` bytes; the caller sends
/// those itself.
///
/// # Panics
/// The message would be 4 GiB long or longer.
pub fn encode_bind_head(out: &mut Vec<u8>, names: BindNames<'_>, rest_len: usize) {
    out.push(tag::BIND);
    let length = 4 + names.encoded_len() + rest_len;
    let length = u32::try_from(length).expect("a message is shorter than 4 GiB");
    out.extend_from_slice(&length.to_be_bytes());
    frame::string(out, names.portal);
    frame::string(out, names.statement);
}

/// Appends a Bind of the unnamed portal with text parameters and text results.
///
/// # Panics
/// There are more than the 65,535 parameters that the protocol can count.
pub fn encode_bind_text<'a>(
    out: &mut Vec<u8>,
    statement: &[u8],
    parameters: impl ExactSizeIterator<Item = &'a [u8]>,
) {
    frame::message(out, tag::BIND, |out| {
        frame::string(out, b"");
        frame::string(out, statement);
        out.extend_from_slice(&0_i16.to_be_bytes());
        let count = u16::try_from(parameters.len()).expect("at most 65,535 parameters");
        out.extend_from_slice(&count.to_be_bytes());
        for parameter in parameters {
            frame::counted(out, parameter);
        }
        out.extend_from_slice(&0_i16.to_be_bytes());
    });
}

/// Appends an Execute of the unnamed portal without a row limit.
pub fn encode_execute(out: &mut Vec<u8>) {
    frame::message(out, tag::EXECUTE, |out| {
        frame::string(out, b"");
        out.extend_from_slice(&0_i32.to_be_bytes());
    });
}

/// Appends a Describe.
pub fn encode_describe(out: &mut Vec<u8>, target: Target, name: &[u8]) {
    encode_target(out, tag::DESCRIBE, target, name);
}

/// Appends a Close.
pub fn encode_close(out: &mut Vec<u8>, target: Target, name: &[u8]) {
    encode_target(out, tag::CLOSE, target, name);
}

fn encode_target(out: &mut Vec<u8>, tag: u8, target: Target, name: &[u8]) {
    frame::message(out, tag, |out| {
        out.push(target.code());
        frame::string(out, name);
    });
}

/// Appends a `CopyFail` with the reason the server reports.
pub fn encode_copy_fail(out: &mut Vec<u8>, reason: &[u8]) {
    frame::message(out, tag::COPY_FAIL, |out| frame::string(out, reason));
}

/// Appends a clear-text or MD5 password.
pub fn encode_password(out: &mut Vec<u8>, password: &[u8]) {
    frame::message(out, tag::PASSWORD, |out| frame::string(out, password));
}

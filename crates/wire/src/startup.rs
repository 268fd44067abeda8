//! The first packet of a connection, which has no type byte: start-up, cancel, or a request to
//! encrypt.

use std::ops::RangeInclusive;

use thiserror::Error;

use crate::cursor::{Cursor, Malformed};
use crate::frame;

/// The longest first packet PostgreSQL accepts (`MAX_STARTUP_PACKET_LENGTH`).
pub const STARTUP_LEN_MAX: usize = 10_000;

/// Protocol 3.0.
pub const PROTOCOL_3_0: u32 = 3 << 16;

/// Protocol 3.2, of PostgreSQL 18: secret keys may be longer than four bytes.
pub const PROTOCOL_3_2: u32 = (3 << 16) + 2;

/// The lengths of a secret key. Before protocol 3.2 it has four bytes.
pub const SECRET_LEN: RangeInclusive<usize> = 4..=256;

const CANCEL_REQUEST: u32 = (1234 << 16) + 5678;
const SSL_REQUEST: u32 = (1234 << 16) + 5679;
const GSSENC_REQUEST: u32 = (1234 << 16) + 5680;

/// Names a backend in a request to cancel its query: what BackendKeyData holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CancelKey {
    /// The backend's process number.
    pub process_id: u32,
    /// The secret that proves the right to cancel; its length is in [`SECRET_LEN`].
    pub secret: Box<[u8]>,
}

impl CancelKey {
    /// Reads the rest of a message that holds nothing else.
    pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<CancelKey, Malformed> {
        let process_id = u32::from_be_bytes(cursor.array("process id")?);
        let secret = cursor.rest();
        if !SECRET_LEN.contains(&secret.len()) {
            return cursor.fail("secret key");
        }
        Ok(CancelKey { process_id, secret: secret.into() })
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.process_id.to_be_bytes());
        out.extend_from_slice(&self.secret);
    }
}

/// The first packet of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirstPacket<'a> {
    /// `StartupMessage`.
    Startup(Startup<'a>),
    /// `CancelRequest`.
    Cancel(CancelKey),
    /// `SSLRequest`; answered by one byte.
    Ssl,
    /// `GSSENCRequest`; answered by one byte.
    GssEnc,
}

/// A `StartupMessage`: the protocol version and the parameters, still in the caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Startup<'a> {
    /// Major version in the upper, minor in the lower 16 bits.
    pub protocol: u32,
    parameters: &'a [u8],
}

impl<'a> Startup<'a> {
    /// Returns the parameters in the order sent, as pairs of name and value.
    pub fn parameters(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let mut cursor = Cursor::new("StartupMessage", self.parameters);
        std::iter::from_fn(move || {
            let name = cursor.string("parameter").ok()?;
            if name.is_empty() {
                return None;
            }
            Some((name, cursor.string("value").ok()?))
        })
    }

    /// Returns the value of the last parameter named `name`.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&'a [u8]> {
        self.parameters().filter(|(key, _)| *key == name.as_bytes()).last().map(|(_, value)| value)
    }
}

/// A first packet that is none.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum StartupError {
    /// The length word is outside what PostgreSQL accepts: the peer speaks something else.
    #[error("first packet announces {0} bytes, outside 8..={STARTUP_LEN_MAX}; not PostgreSQL?")]
    Length(u32),
    /// A version this protocol family does not have.
    #[error("unsupported frontend protocol {}.{}", .0 >> 16, .0 & 0xffff)]
    Version(u32),
    /// The parameters are not pairs of strings closed by an empty one.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// Returns the first packet and the bytes it took; `Ok(None)` until it is complete.
///
/// # Errors
/// See [`StartupError`]. The length is judged as soon as its four bytes are there.
pub fn first_packet(bytes: &[u8]) -> Result<Option<(FirstPacket<'_>, usize)>, StartupError> {
    let Some((length, _)) = bytes.split_first_chunk::<4>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(*length);
    let len = length as usize;
    if !(8..=STARTUP_LEN_MAX).contains(&len) {
        return Err(StartupError::Length(length));
    }
    let Some(packet) = bytes.get(4..len) else {
        return Ok(None);
    };
    let mut cursor = Cursor::new("first packet", packet);
    let code = u32::from_be_bytes(cursor.array("code")?);
    let packet = match code {
        CANCEL_REQUEST => {
            let mut cursor = Cursor::new("CancelRequest", cursor.rest());
            FirstPacket::Cancel(CancelKey::read(&mut cursor)?)
        }
        SSL_REQUEST => FirstPacket::Ssl,
        GSSENC_REQUEST => FirstPacket::GssEnc,
        version if version >> 16 == 3 => FirstPacket::Startup(startup(version, cursor.rest())?),
        version => return Err(StartupError::Version(version)),
    };
    Ok(Some((packet, len)))
}

fn startup(protocol: u32, parameters: &[u8]) -> Result<Startup<'_>, Malformed> {
    let mut cursor = Cursor::new("StartupMessage", parameters);
    while !cursor.string("parameter name")?.is_empty() {
        cursor.string("parameter value")?;
    }
    cursor.end("final zero")?;
    Ok(Startup { protocol, parameters })
}

/// Appends a `StartupMessage` for protocol 3.0.
pub fn encode_startup<'a>(
    out: &mut Vec<u8>,
    parameters: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
) {
    frame::untagged(out, |out| {
        out.extend_from_slice(&PROTOCOL_3_0.to_be_bytes());
        for (name, value) in parameters {
            frame::string(out, name);
            frame::string(out, value);
        }
        out.push(0);
    });
}

/// Appends an `SSLRequest`.
pub fn encode_ssl_request(out: &mut Vec<u8>) {
    frame::untagged(out, |out| out.extend_from_slice(&SSL_REQUEST.to_be_bytes()));
}

/// Appends a `CancelRequest`.
pub fn encode_cancel(out: &mut Vec<u8>, key: &CancelKey) {
    frame::untagged(out, |out| {
        out.extend_from_slice(&CANCEL_REQUEST.to_be_bytes());
        key.write(out);
    });
}

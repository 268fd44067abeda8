//! Authentication requests of the server and the client's SASL answers.

use crate::cursor::{Cursor, Malformed};
use crate::{backend, frame, frontend};

const OK: i32 = 0;
const CLEARTEXT_PASSWORD: i32 = 3;
const MD5_PASSWORD: i32 = 5;
const SASL: i32 = 10;
const SASL_CONTINUE: i32 = 11;
const SASL_FINAL: i32 = 12;

/// The SASL mechanism that proves the password.
pub const SCRAM_SHA_256: &str = "SCRAM-SHA-256";
/// The same, bound to the server's certificate: it takes TLS.
pub const SCRAM_SHA_256_PLUS: &str = "SCRAM-SHA-256-PLUS";

/// What a server asks of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authentication<'a> {
    /// Nothing more: the client is in.
    Ok,
    /// The password as it is.
    CleartextPassword,
    /// The password hashed with the user's name and this salt.
    Md5Password {
        /// The salt.
        salt: [u8; 4],
    },
    /// A SASL exchange by one of these mechanisms, zero-separated.
    Sasl {
        /// The mechanisms' names, best first; see [`offers`].
        mechanisms: &'a [u8],
    },
    /// The next challenge.
    SaslContinue(&'a [u8]),
    /// The exchange's outcome.
    SaslFinal(&'a [u8]),
    /// A method not spoken here: Kerberos, GSSAPI, SSPI.
    Unsupported(i32),
}

/// Reads an Authentication payload.
///
/// # Errors
/// A field is cut short.
pub fn authentication(payload: &[u8]) -> Result<Authentication<'_>, Malformed> {
    let mut cursor = Cursor::new("Authentication", payload);
    Ok(match cursor.int32("method")? {
        OK => Authentication::Ok,
        CLEARTEXT_PASSWORD => Authentication::CleartextPassword,
        MD5_PASSWORD => Authentication::Md5Password { salt: cursor.array("salt")? },
        SASL => Authentication::Sasl { mechanisms: cursor.rest() },
        SASL_CONTINUE => Authentication::SaslContinue(cursor.rest()),
        SASL_FINAL => Authentication::SaslFinal(cursor.rest()),
        other => Authentication::Unsupported(other),
    })
}

/// Returns whether a zero-separated list of mechanisms holds `mechanism`.
#[must_use]
pub fn offers(mechanisms: &[u8], mechanism: &str) -> bool {
    mechanisms.split(|&byte| byte == 0).any(|name| name == mechanism.as_bytes())
}

fn encode(out: &mut Vec<u8>, method: i32, data: &[u8]) {
    frame::message(out, backend::tag::AUTHENTICATION, |out| {
        out.extend_from_slice(&method.to_be_bytes());
        out.extend_from_slice(data);
    });
}

/// Appends `AuthenticationOk`.
pub fn encode_ok(out: &mut Vec<u8>) {
    encode(out, OK, b"");
}

/// Appends `AuthenticationMD5Password`.
pub fn encode_md5_password(out: &mut Vec<u8>, salt: [u8; 4]) {
    encode(out, MD5_PASSWORD, &salt);
}

/// Appends `AuthenticationSASL` offering these mechanisms, best first.
pub fn encode_sasl(out: &mut Vec<u8>, offered: &[&str]) {
    let mut mechanisms = Vec::new();
    for mechanism in offered {
        frame::string(&mut mechanisms, mechanism.as_bytes());
    }
    mechanisms.push(0);
    encode(out, SASL, &mechanisms);
}

/// Appends `AuthenticationSASLContinue`.
pub fn encode_sasl_continue(out: &mut Vec<u8>, challenge: &[u8]) {
    encode(out, SASL_CONTINUE, challenge);
}

/// Appends `AuthenticationSASLFinal`.
pub fn encode_sasl_final(out: &mut Vec<u8>, outcome: &[u8]) {
    encode(out, SASL_FINAL, outcome);
}

/// Reads a `PasswordMessage` payload.
///
/// # Errors
/// The string is cut short.
pub fn password(payload: &[u8]) -> Result<&[u8], Malformed> {
    Cursor::new("PasswordMessage", payload).string("password")
}

/// Reads a `SASLInitialResponse` payload: the mechanism and the client's first message.
///
/// # Errors
/// A field is cut short, or the length does not fit the message.
pub fn sasl_initial_response(payload: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let mut cursor = Cursor::new("SASLInitialResponse", payload);
    let mechanism = cursor.string("mechanism")?;
    // A client that sends no first message says so by a length of -1.
    Ok((mechanism, cursor.counted("response")?.unwrap_or_default()))
}

/// Appends a `SASLInitialResponse`.
pub fn encode_sasl_initial_response(out: &mut Vec<u8>, mechanism: &str, response: &[u8]) {
    frame::message(out, frontend::tag::PASSWORD, |out| {
        frame::string(out, mechanism.as_bytes());
        frame::counted(out, response);
    });
}

/// Appends a `SASLResponse`.
pub fn encode_sasl_response(out: &mut Vec<u8>, response: &[u8]) {
    frame::message(out, frontend::tag::PASSWORD, |out| {
        out.extend_from_slice(response);
    });
}

//! The login: the server's greeting, the client's answer, and what the server says to that.

use super::authentication::{NATIVE_PASSWORD, NONCE_LEN};
use super::packet::encode_message;
use super::response::{ErrorPacket, OkPacket, header};
use crate::cursor::{Cursor, Malformed};
use crate::frame;

/// What client and server can do. The client names what it wants of what the server offers.
pub mod capability {
    /// UPDATE counts the rows it found, also those that were so already, as other databases do.
    pub const FOUND_ROWS: u32 = 1 << 1;
    /// The login names a database.
    pub const CONNECT_WITH_DB: u32 = 1 << 3;
    /// The protocol since version 4.1.
    pub const PROTOCOL_41: u32 = 1 << 9;
    /// The status says whether a transaction is open.
    pub const TRANSACTIONS: u32 = 1 << 13;
    /// A nonce of 20 bytes, and the answer to it after its length.
    pub const SECURE_CONNECTION: u32 = 1 << 15;
    /// A procedure may answer with several sets of rows.
    pub const MULTI_RESULTS: u32 = 1 << 17;
    /// Methods of authentication have names.
    pub const PLUGIN_AUTH: u32 = 1 << 19;
    /// No EOF behind the definitions, and an OK in place of the one behind the rows.
    pub const DEPRECATE_EOF: u32 = 1 << 24;
}

/// utf8mb4 with its general collation.
const UTF8MB4: u8 = 45;

/// The server's first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting<'a> {
    /// The server's version. MariaDB before 11 puts `5.5.5-` in front.
    pub version: &'a [u8],
    /// The connection's number in the server, by which it can be killed.
    pub connection: u32,
    /// What the server can do, as in [`capability`].
    pub capabilities: u32,
    /// To be answered by the password.
    pub nonce: [u8; NONCE_LEN],
    /// How the server would like the password to be proved.
    pub plugin: &'a [u8],
}

/// Reads the greeting, `Protocol::HandshakeV10`.
///
/// # Errors
/// It is cut short, of another version, or of a server older than protocol 4.1.
pub fn greeting(payload: &[u8]) -> Result<Greeting<'_>, Malformed> {
    let mut cursor = Cursor::new("Handshake", payload);
    if cursor.byte("protocol version")? != 10 {
        return cursor.fail("protocol version");
    }
    let version = cursor.string("server version")?;
    let connection = cursor.uint32_le("connection id")?;
    let mut nonce = [0; NONCE_LEN];
    nonce[..8].copy_from_slice(cursor.bytes(8, "nonce")?);
    cursor.byte("filler")?;
    let low = cursor.uint16_le("capabilities")?;
    cursor.bytes(3, "character set and status")?;
    let capabilities = u32::from(low) | u32::from(cursor.uint16_le("capabilities")?) << 16;
    let needed = capability::PROTOCOL_41 | capability::SECURE_CONNECTION;
    if capabilities & needed != needed {
        return cursor.fail("capabilities");
    }
    cursor.bytes(11, "reserved")?;
    nonce[8..].copy_from_slice(cursor.bytes(NONCE_LEN - 8, "nonce")?);
    let plugin = if capabilities & capability::PLUGIN_AUTH == 0 {
        NATIVE_PASSWORD.as_bytes()
    } else {
        cursor.byte("end of nonce")?;
        // Some servers leave out the zero behind the name.
        cursor.string("plugin").unwrap_or(cursor.rest())
    };
    Ok(Greeting { version, connection, capabilities, nonce, plugin })
}

/// What a client says to a greeting.
#[derive(Clone, Copy, Debug)]
pub struct Login<'a> {
    /// What it wants of the server, as in [`capability`]; that it names a database and a plugin is
    /// added.
    pub capabilities: u32,
    /// Who it is.
    pub user: &'a str,
    /// Its proof by [`NATIVE_PASSWORD`].
    pub proof: Option<[u8; 20]>,
    /// The database it wants to use.
    pub database: &'a str,
}

/// Appends the login, `Protocol::HandshakeResponse41`, as the packet of this number.
pub fn encode_login(out: &mut Vec<u8>, number: u8, login: &Login<'_>) {
    let added = capability::PROTOCOL_41
        | capability::SECURE_CONNECTION
        | capability::PLUGIN_AUTH
        | if login.database.is_empty() { 0 } else { capability::CONNECT_WITH_DB };
    encode_message(out, number, |out| {
        out.extend_from_slice(&(login.capabilities | added).to_le_bytes());
        // The longest message we take; the server's own limit is what counts.
        out.extend_from_slice(&(1_u32 << 30).to_le_bytes());
        out.push(UTF8MB4);
        out.extend_from_slice(&[0; 23]);
        frame::string(out, login.user.as_bytes());
        match login.proof {
            Some(proof) => {
                out.push(20);
                out.extend_from_slice(&proof);
            }
            None => out.push(0),
        }
        if !login.database.is_empty() {
            frame::string(out, login.database.as_bytes());
        }
        frame::string(out, NATIVE_PASSWORD.as_bytes());
    });
}

/// Appends the proof that a server asked for with [`Verdict::Switch`].
pub fn encode_proof(out: &mut Vec<u8>, number: u8, proof: Option<[u8; 20]>) {
    encode_message(out, number, |out| out.extend(proof.into_iter().flatten()));
}

/// What the server says to a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// Come in.
    In(OkPacket),
    /// Stay out.
    Out(ErrorPacket<'a>),
    /// Prove it by this method, with this nonce.
    Switch {
        /// The method's name.
        plugin: &'a [u8],
        /// What the method needs.
        data: &'a [u8],
    },
    /// A word of a method that needs several.
    More(&'a [u8]),
}

/// Reads what the server says to a login.
///
/// # Errors
/// It is none of the four.
pub fn verdict(payload: &[u8]) -> Result<Verdict<'_>, Malformed> {
    let mut cursor = Cursor::new("login answer", payload);
    match payload.first() {
        Some(&header::OK) => super::response::ok(payload).map(Verdict::In),
        Some(&header::ERROR) => super::response::error(payload).map(Verdict::Out),
        // The old form, without a name, asks for what came before protocol 4.1.
        Some(&header::EOF) if payload.len() == 1 => {
            Ok(Verdict::Switch { plugin: b"mysql_old_password", data: b"" })
        }
        Some(&header::EOF) => {
            cursor.byte("header")?;
            let plugin = cursor.string("plugin")?;
            Ok(Verdict::Switch { plugin, data: cursor.rest() })
        }
        Some(&header::MORE) => Ok(Verdict::More(&payload[1..])),
        _ => cursor.fail("header"),
    }
}

/// Returns the nonce in a [`Verdict::Switch`] to [`NATIVE_PASSWORD`], which a zero may follow.
///
/// # Errors
/// It is too short.
pub fn nonce(data: &[u8]) -> Result<[u8; NONCE_LEN], Malformed> {
    Cursor::new("AuthSwitchRequest", data).array("nonce")
}

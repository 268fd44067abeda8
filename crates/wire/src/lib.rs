//! PostgreSQL's frontend/backend protocol, version 3: bytes to values and back, no sockets. Beside
//! it, in [`mysql`], the one of MariaDB and MySQL.
//!
//! The hot path needs only message boundaries ([`frame`]) and a byte or a name here and there; it
//! borrows from the buffer it is given and copies nothing. Encoders append to a `Vec<u8>` that the
//! caller reuses.
//!
//! Everywhere, `Ok(None)` means that more bytes are needed. A length that lies is an error; nothing
//! is ever allocated by a length read from the wire, and no input panics.
//!
//! Source: PostgreSQL documentation, chapter "Frontend/Backend Protocol", sections "Message Flow"
//! and "Message Formats".

pub mod authentication;
pub mod backend;
mod cursor;
pub mod error_response;
pub mod frame;
pub mod frontend;
pub mod input;
pub mod mysql;
pub mod startup;

pub use cursor::Malformed;
